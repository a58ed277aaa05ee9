#!/usr/bin/env python3
"""tests/serve_windows.py: `serve` of Linux and that of Windows under Wine are asked the same (tests/windows.sh).

  python3 tests/serve_windows.py bin/serve "wine build/windows/bin/serve.exe"

Both answer the same bytes; the one of Windows is also asked while clients leave, by many at once, and ended by Ctrl-C
while it answers.
"""
import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

CHAT = {"messages": [{"role": "user", "content": "Tell me of a dragon, Grüße 漢字 😀"}], "max_tokens": 40, "seed": 3,
        "temperature": 1, "logprobs": True, "top_logprobs": 5}
TEXT = {"prompt": "Once upon a time", "max_tokens": 40, "seed": 3, "temperature": 0.8, "logprobs": 5}
LONG = {"prompt": "x", "max_tokens": 400, "seed": 1, "stream": True, "ignore_eos": True}
folder = tempfile.TemporaryDirectory()
place = os.path.join(folder.name, "Größe 模型", "long" * 40, "path" * 40)
os.makedirs(place)
model = os.path.join(place, "é 😀.gguf")
shutil.copy("models/demo.gguf", model)
keys = os.path.join(place, "ключ.txt")
with open(keys, "w", newline="") as file:
    file.write("secret\r\n")


class Server:
    def __init__(self, command, *args):
        self.errors = open(os.path.join(folder.name, "stderr"), "w+")
        self.process = subprocess.Popen([*command.split(), "-m", model, "--chat-template", "chatml", "--port", "0", *args],
                                        stdout=subprocess.PIPE, stderr=self.errors)
        line = self.process.stdout.readline().decode()
        if "serves" not in line:
            self.errors.seek(0)
            sys.exit(f"{command}: no line that says it is ready: {line!r} {self.errors.read()}")
        self.url = next(word for word in line.split() if word.startswith("http://"))
        self.ready = re.sub("cpu [a-z0-9]+", "cpu", line.replace(self.url, "URL"))  # AMX is not used on Windows

    def ask(self, path, body=None, raw=None, key="secret"):
        data = raw if raw is not None else json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json", "Authorization": "Bearer " + key})
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def ask_and_lose(self):
        try:
            self.ask("/v1/completions", {**LONG, "stream": False})
        except OSError:
            pass  # the server has ended

    def stream(self):
        status, text = self.ask("/v1/chat/completions", {**CHAT, "stream": True})
        events = [line[6:] for line in text.splitlines() if line.startswith("data: ")]
        assert status == 200 and events[-1] == "[DONE]" and len(events) > 10, text
        return [json.loads(event)["choices"] for event in events[:-1]]

    def begin_long(self):
        """Begins an answer of 400 tokens and reads its first bytes."""
        connection = http.client.HTTPConnection(self.url[7:], timeout=120)
        connection.request("POST", "/v1/completions", json.dumps(LONG),
                           {"Content-Type": "application/json", "Authorization": "Bearer secret"})
        answer = connection.getresponse()
        return connection, answer, answer.read(100)

    def count(self, name):
        return sum(float(line.split()[-1]) for line in self.ask("/metrics")[1].splitlines() if line.split("{")[0].split(" ")[0] == name)

    def end(self):
        """Ctrl-C: seconds until it is gone, and the exit code."""
        begin = time.time()
        self.process.send_signal(signal.SIGINT)
        code = self.process.wait(timeout=60)
        return time.time() - begin, code


def answers(server):
    return {"the line that says it is ready": server.ready, "health": server.ask("/health"),
            "models": [m["id"] for m in json.loads(server.ask("/v1/models")[1])["data"]],
            "chat": json.loads(server.ask("/v1/chat/completions", CHAT)[1])["choices"], "a stream": server.stream(),
            "text": json.loads(server.ask("/v1/completions", TEXT)[1])["choices"],
            "broken JSON": server.ask("/v1/completions", raw=b"{"), "no such path": server.ask("/nothing")[0],
            "a wrong key": server.ask("/v1/models", key="public"),
            "the page": re.sub(r'nonce-?="?[^" ;]*', "", re.sub(r"nonce-[^']*", "", server.ask("/")[1]))}


here_command, there_command = sys.argv[1:3]
here, there = Server(here_command, "--api-key-file", keys), Server(there_command, "--api-key-file", keys)
try:
    want, got = answers(here), answers(there)
    for what in want:
        assert want[what] == got[what], f"{what}: want {want[what]}, got {got[what]}"[:2000]
    print(f"the same: {', '.join(want)}")

    # a client that leaves in the middle ends its answer
    connection, answer, _ = there.begin_long()
    assert there.count("vllm:num_requests_running") == 1
    answer.close()
    connection.close()
    end = time.time() + 20
    while there.count("vllm:num_requests_running") and time.time() < end:
        time.sleep(0.05)
    assert there.count("vllm:num_requests_running") == 0, "a client left, its answer goes on"
    print("a client that leaves: its answer ends")

    # many at once, more than there are slots: each gets the text that it gets alone
    texts = [None] * 40
    def ask(i):
        texts[i] = json.loads(there.ask("/v1/completions", TEXT)[1])["choices"][0]["text"]
    threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(texts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == [want["text"][0]["text"]] * len(texts), texts
    print(f"{len(texts)} clients at once: the text of one alone")

    seconds, code = here.end()
    assert code == 0
    # Ctrl-C while it answers: the answer comes to its end, no new connection is answered
    connection, answer, begun = there.begin_long()
    there.process.send_signal(signal.SIGINT)
    text = (begun + answer.read()).decode()
    assert text.rstrip().endswith("data: [DONE]") and text.count("data: ") > 50, text[-500:]
    code = there.process.wait(timeout=60)
    assert code == 0, code
    print("Ctrl-C while it answers: the answer is whole, exit code 0")
    for second in False, True:
        server = Server(there_command)
        if second:
            connection, answer, _ = server.begin_long()
            for _ in range(120):  # more than it has slots for: it is at them for seconds
                threading.Thread(target=server.ask_and_lose, daemon=True).start()
            end = time.time() + 20
            while server.count("vllm:num_requests_waiting") < 60 and time.time() < end:
                time.sleep(0.02)
            assert time.time() < end, "the answers do not wait"
            server.process.send_signal(signal.SIGINT)
            time.sleep(0.1)
        seconds, code = server.end()
        print(f"Ctrl-C {'twice while it answers' if second else 'while nothing is asked'}: exit code {code} after {seconds:.1f} s")
        assert code == (1 if second else 0) and seconds < 10
    server = Server(there_command)
    done = subprocess.run([*there_command.split(), "-m", model, "--port", server.url.split(":")[-1]], capture_output=True)
    assert done.returncode == 1 and b"cannot listen on 127.0.0.1:" in done.stderr, done
    server.end()
    print("a port that is taken: refused")
    done = subprocess.run([*there_command.split(), "-m", model, "--host", "unix:/tmp/x"], capture_output=True)
    assert done.returncode == 1 and b"unix:/tmp/x: no such address" in done.stderr, done
    print("a socket with a path: refused")
finally:
    for server in here, there:
        server.process.kill()
