"""Both servers behind HAProxy (nginx, Envoy) are restarted, one after the other, under load: no request fails."""
import json
import os
import signal
import subprocess
import threading
import time

import pytest
import requests

from conftest import SERVE, Deployment, is_alive, want

N_REQUESTS, N_CLIENTS = 500, 8


def restart(d, i, known_file, started):
    """As a package update does: SIGTERM, wait for the end, start again at the same port."""
    pid, url = d.servers()[i]
    os.kill(pid, signal.SIGTERM)
    end = time.monotonic() + 30
    while is_alive(pid) and time.monotonic() < end:
        time.sleep(0.02)
    assert not is_alive(pid), "the server did not end"
    time.sleep(0.3)  # nobody listens meanwhile
    started.append(subprocess.Popen([SERVE, *d.flags, "--port", url.rsplit(":", 1)[1]], stdout=subprocess.PIPE,
                                    stderr=subprocess.DEVNULL, text=True))
    assert started[-1].stdout.readline().startswith("serve: http")


@pytest.mark.parametrize("name", ["haproxy", "nginx", "envoy"])
def test_a_rolling_restart_loses_no_request(known_file, name):
    want(name)
    d = Deployment(name, "-m", known_file, "--alias", "duet", "-t", "1", "-c", "4096")
    started, failures, done = [], [], []
    numbers, lock = iter(range(N_REQUESTS)), threading.Lock()

    def client():
        with requests.Session() as session:  # connections are kept, as clients do
            while True:
                with lock:
                    i = next(numbers, None)
                if i is None:
                    return
                body = {"model": "duet", "temperature": 0, "stream": i % 2 == 0, "max_tokens": 60,
                        "messages": [{"role": "user", "content": f"question {i}"}],
                        "chat_template_kwargs": {"script": 4 if i % 3 == 0 else 0}}
                answer = None
                try:
                    answer = session.post(d.url + "/v1/chat/completions", json=body, timeout=60)
                    text = whole(answer.text) if i % 2 == 0 else answer.json()["choices"][0]["message"]["content"]
                    if text != ("x" * 60 if i % 3 == 0 else "Hello world!"):
                        failures.append((i, answer.status_code, answer.text[-200:]))
                except (requests.RequestException, ValueError, KeyError, AssertionError) as error:
                    failures.append((i, repr(error)) if answer is None else (i, answer.status_code, answer.text[-200:]))
                done.append(time.monotonic())
                time.sleep(0.1)  # the load goes on until both are back

    threads = [threading.Thread(target=client) for _ in range(N_CLIENTS)]
    try:
        for thread in threads:
            thread.start()
        for i in range(2):
            time.sleep(0.8)
            n_before = len(done)
            restart(d, i, known_file, started)
            assert len(done) > n_before, "nothing was asked during the restart"
            time.sleep(0.8)  # the health check has seen it
        n_at_end = len(done)
        for thread in threads:
            thread.join(120)
        assert n_at_end < N_REQUESTS, "the load was over before the second restart"
        assert len(done) == N_REQUESTS and not failures, (len(failures), failures[:5])
    finally:
        d.end()
        for process in started:
            process.terminate()
            process.wait(20)
            process.stdout.close()


def whole(stream):
    events = [line[6:] for line in stream.split("\n\n") if line.startswith("data: ")]
    assert events and events[-1] == "[DONE]", stream[-200:]
    return "".join(json.loads(e)["choices"][0]["delta"].get("content") or "" for e in events[:-1])
