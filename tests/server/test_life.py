"""Start and end, queues, clients that leave, the same bits among neighbours."""
import concurrent.futures
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
import requests
from prometheus_client.parser import text_string_to_metric_families

from conftest import DEMO, SERVE, Server, ask, read_all

ENDLESS = {"prompt": "<|go4|>", "max_tokens": 4000, "temperature": 0}


def run(*flags):
    done = subprocess.run([SERVE, *flags], capture_output=True, text=True, timeout=20)
    return done.returncode, done.stderr.strip()


def test_wrong_starts(known, known_file):
    for flags, want in ((["-m", "/nowhere.gguf", "--port", "0"], 1), (["--nonsense"], 2), ([], 2),
                        (["-m", known_file, "--port", "70000"], 2),
                        (["-m", known_file, "--host", "0.0.0.0", "--port", "0"], 2),
                        (["-m", known_file, "--port", str(known.port)], 1), (["-m", known_file, "--api-key", ""], 2),
                        (["-m", known_file, "--chat-template", "nonsense", "--port", "0"], 1),
                        (["-m", known_file, "--top-k", "1.5", "--port", "0"], 2),
                        (["-m", known_file, "--origin", "/", "--port", "0"], 2),
                        (["-m", known_file, "--origin", "//", "--port", "0"], 2),
                        (["-m", known_file, "--tool-parser", "nonsense", "--port", "0"], 1)):
        code, text = run(*flags)
        assert code in (1, 2) and text.splitlines()[-1].startswith("serve: "), (flags, text)
        if want == 2 or "nonsense" not in flags:
            assert code == want, (flags, code, text)


def test_the_ready_line_and_the_plan(known):
    assert "serves known" in known.line and known.url in known.line


def test_a_unix_socket(known_file, tmp_path):
    path = tmp_path / "socket"
    process = subprocess.Popen([SERVE, "-m", known_file, "--host", f"unix:{path}"], stdout=subprocess.PIPE, text=True,
                               stderr=subprocess.DEVNULL)
    assert f"unix:{path}" in process.stdout.readline()
    done = subprocess.run(["curl", "-s", "--unix-socket", str(path), "http://localhost/health"], capture_output=True)
    assert json.loads(done.stdout)["status"] == "ok"
    process.terminate()
    assert process.wait(10) == 0 and not path.exists()
    process.stdout.close()


def stream(server, body):
    """Begins a stream, and reads its first line. A generator that is dropped would close the connection."""
    answer = requests.post(server.url + "/v1/completions", json={**body, "stream": True}, stream=True, timeout=60)
    answer.lines = answer.iter_lines()
    next(answer.lines)
    return answer


def test_a_client_that_leaves_frees_its_place(start):
    # each phase: written to, waiting for the whole answer, queued, its prompt being read
    server = start(DEMO, "--slots", "1", "-c", "100000")
    body = {"prompt": "Once", "max_tokens": 90000, "ignore_eos": True}

    def ask(**more):
        peer, text = server.connect(), json.dumps({**body, **more}).encode()
        peer.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                     b"Content-Length: %d\r\n\r\n" % len(text) + text)
        return peer

    def leave(peer, name):
        assert server.wait_for(name, 1)
        time.sleep(0.05)
        begin = time.monotonic()
        peer.close()
        assert server.wait_for(name, 0, 2), name
        return time.monotonic() - begin

    n, times = 0, {}
    for _ in range(3):
        first = ask(stream=True)
        assert server.wait_for("duet_requests_running", 1)
        for phase, name, peer in (("queued", "duet_requests_waiting", ask()),
                                  ("written to", "duet_requests_running", first),
                                  ("waiting", "duet_requests_running", None),
                                  ("reading", "duet_requests_running", None)):
            peer = peer or ask(**({"prompt": [5] * 60000, "cache_prompt": False} if phase == "reading" else {}))
            times[phase] = min(times.get(phase, 9), leave(peer, name))
            n += 1
            assert server.metric("duet_cancelled_total") == n
    assert max(times.values()) < 0.1, times


def test_a_client_that_sends_ahead_and_leaves_frees_its_place_and_is_a_499(start):
    server = start(DEMO, "--slots", "1", "-c", "100000", "--log-json")
    text = json.dumps({"prompt": "Once", "max_tokens": 90000, "ignore_eos": True}).encode()
    for n, ahead in enumerate((0, 200_000), 1):
        with server.connect() as peer:
            peer.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                         b"Content-Length: %d\r\n\r\n" % len(text) + text)
            assert server.wait_for("duet_requests_running", 1)
            peer.setblocking(False)
            with contextlib.suppress(OSError):
                peer.send(b"x" * ahead)
        assert server.wait_for("duet_requests_running", 0, 2)
        assert server.metric("duet_cancelled_total") == n
    assert server.metric('duet_requests_total{code="499"}') == 2
    assert server.end() == 0


def test_a_stream_whose_client_leaves_is_a_499_with_its_counts(start):
    server = start(DEMO, "-c", "100000", "--log-json")
    stream(server, {"prompt": "Once", "max_tokens": 90000, "ignore_eos": True}).close()
    assert server.wait_for("duet_cancelled_total", 1)
    assert server.wait_for('duet_requests_total{code="499"}', 1)
    server.process.terminate()
    line = next(json.loads(line) for line in server.process.stderr if '"POST"' in line)
    assert line["code"] == 499 and line["answer_tokens"] > 0


def test_a_full_queue_is_a_429(start):
    server = start(DEMO, "--slots", "1", "--queue", "1", "-c", "100000")
    body = {"prompt": "Once", "max_tokens": 90000, "ignore_eos": True}
    first = stream(server, body)
    second = threading.Thread(target=lambda: server.post("/v1/completions", {"prompt": "a", "max_tokens": 1}))
    second.start()
    assert server.wait_for("duet_requests_waiting", 1)
    for extra in ({}, {"stream": True}):
        answer = server.post("/v1/completions", {"prompt": "b", **extra})
        assert answer.status_code == 429 and answer.headers["retry-after"]
        assert answer.json()["error"]["type"] == "rate_limit_error"
        assert answer.headers["content-type"] == "application/json"
    first.close()
    second.join()


def test_without_a_queue_what_finds_no_slot_is_a_429(start):
    server = start(DEMO, "--slots", "2", "--queue", "0", "-c", "100000")
    body = {"prompt": "Once", "max_tokens": 90000, "ignore_eos": True}
    streams = [stream(server, body), stream(server, body)]
    assert server.post("/v1/completions", {"prompt": "b"}).status_code == 429
    streams[0].close()
    assert server.wait_for("duet_requests_running", 1)
    assert server.post("/v1/completions", {"prompt": "b"}).status_code == 200
    streams[1].close()


def test_drain(start):
    server = start(DEMO, "-c", "20000", "--slots", "2")
    idle = server.connect()
    running = stream(server, {"prompt": "Once", "max_tokens": 400, "ignore_eos": True})
    lines = running.lines
    endless = stream(server, {"prompt": "Once", "max_tokens": 19000, "ignore_eos": True})  # keeps the server up
    server.process.send_signal(signal.SIGHUP)
    server.process.send_signal(signal.SIGTERM)
    time.sleep(0.1)
    assert server.get("/readyz").status_code == 503
    assert server.get("/livez").status_code == 200
    answer = server.post("/v1/completions", {"prompt": "a"})
    assert answer.status_code == 503 and answer.json()["error"]["message"]
    assert answer.headers["connection"] == "close"
    assert idle.recv(10) == b""
    rest = [line for line in lines if line]
    assert rest[-1] == b"data: [DONE]" and b'"finish_reason":"length"' in rest[-2]
    endless.close()
    assert server.process.wait(5) == 0
    idle.close()


def test_a_request_whose_body_is_on_its_way_is_answered_before_the_end(start, known_file):
    server = start(known_file)
    text = json.dumps({"prompt": "<|go0|>", "max_tokens": 9, "temperature": 0}).encode()
    with server.connect() as peer:
        peer.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                     b"Content-Length: %d\r\n\r\n" % len(text) + text[:9])
        time.sleep(0.2)
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.2)
        peer.sendall(text[9:])
        assert b"Hello world!" in read_all(peer)
    assert server.process.wait(5) == 0


def test_idle_connections_do_not_keep_the_server_up(start, known_file):
    server = start(known_file)
    with requests.Session() as session:
        assert session.get(server.url + "/health", timeout=20).status_code == 200
        peers = [server.connect() for _ in range(20)]
        peers[0].sendall(b"GET /health HT")
        begin = time.monotonic()
        assert server.end() == 0 and time.monotonic() - begin < 3
        for peer in peers:
            peer.close()


def test_a_second_signal_ends_at_once(start):
    server = start(DEMO, "-c", "100000")
    running = stream(server, {"prompt": "Once", "max_tokens": 90000, "ignore_eos": True})
    server.process.send_signal(signal.SIGINT)
    time.sleep(0.3)
    assert server.process.poll() is None
    server.process.send_signal(signal.SIGINT)
    assert server.process.wait(2) != 0
    running.close()


def test_what_is_left_when_the_time_is_over_is_told(start):
    server = start(DEMO, "-c", "100000", "--drain", "1")
    running = stream(server, {"prompt": "Once", "max_tokens": 90000, "ignore_eos": True})
    lines = running.lines
    server.process.send_signal(signal.SIGTERM)
    last = [line for line in lines if line][-1]
    assert b'"error"' in last
    assert server.process.wait(5) == 0


def test_clients_that_leave_while_the_server_ends(start):
    # nothing is left to answer while a step with pieces of their prompts still runs
    for _ in range(4):
        server = start(DEMO, "-c", "20000")
        peers = [server.connect() for _ in range(4)]
        for i, peer in enumerate(peers):
            text = json.dumps({"prompt": [5 + i] * 6000, "max_tokens": 9000, "ignore_eos": True, "stream": True}).encode()
            peer.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                         b"Content-Length: %d\r\n\r\n" % len(text) + text)
        assert server.wait_for("duet_requests_running", 4)
        time.sleep(0.1)
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.01)
        for peer in peers:
            peer.close()
        assert server.process.wait(10) == 0


def completion(server, body):
    choice = server.post("/v1/completions", body).json()["choices"][0]
    return choice["text"], choice["logprobs"]["tokens"], choice["logprobs"]["token_logprobs"]


PROMPTS = ["Once upon a time", "The old king", "A small dog ran", "It was a dark night and", "Tom and Anna",
           "In the woods", "Once upon a time, a brave", "She said"]


def test_the_same_bits_among_neighbours(demo):
    bodies = [{"prompt": p, "max_tokens": 40 + 7 * i, "temperature": 0.9, "seed": i, "logprobs": 3, "ignore_eos": True}
              for i, p in enumerate(PROMPTS)]
    alone = [completion(demo, {**b, "cache_prompt": False}) for b in bodies]
    with concurrent.futures.ThreadPoolExecutor(24) as pool:
        for _ in range(3):
            for i, answer in enumerate(pool.map(lambda b: completion(demo, b), bodies * 3)):
                assert answer == alone[i % len(bodies)]


def test_the_same_bits_from_the_cache_and_in_any_pieces(start, demo):
    text = "Once upon a time there was a little girl who lived in a house near the woods. " * 8
    body = {"prompt": text, "max_tokens": 30, "temperature": 0.8, "seed": 5, "logprobs": 2, "ignore_eos": True}
    want = completion(demo, {**body, "cache_prompt": False})
    assert completion(demo, body) == completion(demo, body) == want
    small = start(DEMO, "--chunk", "7", "-t", "2", "--slots", "3")
    assert completion(small, body) == want
    assert completion(small, {**body, "prompt": text[:200]}) != want
    assert completion(small, body) == want


def test_a_program_run_alone_gives_the_same_text(demo):
    program = "./run" if SERVE == "bin/serve" else os.path.join(os.path.dirname(SERVE), "run")
    if not os.path.exists(program):
        pytest.skip("the program run is not built")
    want = subprocess.run([program, "-m", DEMO, "-p", "Once upon a time", "-n", "30", "-s", "7"], capture_output=True,
                          text=True, check=True)
    body = {"prompt": "Once upon a time", "max_tokens": 30, "seed": 7}
    assert demo.post("/v1/completions", body).json()["choices"][0]["text"] == want.stdout


def test_prefixes_are_used_again(start):
    server = start(DEMO)
    text = "Once upon a time there was a little girl who lived in a house near the woods. " * 8
    n_prompt = server.post("/v1/completions", {"prompt": text, "max_tokens": 1}).json()["usage"]["prompt_tokens"]

    def cached(prompt, **more):
        usage = server.post("/v1/completions", {"prompt": prompt, "max_tokens": 1, **more}).json()["usage"]
        return usage["prompt_tokens_details"]["cached_tokens"]

    assert cached(text) == n_prompt - 1
    assert cached(text, cache_prompt=False) == 0
    for i in range(12):
        assert cached(f"Number {i} " * 20 + "of many") < n_prompt - 1
    assert cached(text) == n_prompt - 1
    assert cached(text + " And then") >= n_prompt - 2
    running = stream(server, {"prompt": text, "max_tokens": 200, "ignore_eos": True})
    assert cached(text + " But") >= n_prompt - 2
    running.close()


def test_old_completions_form(known):
    body = {"prompt": "a<|go0|>", "max_tokens": 8, "temperature": 0, "logprobs": 2, "echo": True}
    choice = known.post("/v1/completions", body).json()["choices"][0]
    assert choice["text"].endswith("Hello world!")
    logprobs = choice["logprobs"]
    assert len({len(v) for v in logprobs.values()}) == 1
    assert logprobs["token_logprobs"][0] is None and logprobs["top_logprobs"][0] is None
    assert logprobs["tokens"][-5:] == ["Hel", "lo", " wor", "ld", "!"]
    only = known.post("/v1/completions", {**body, "max_tokens": 0}).json()
    assert only["usage"]["completion_tokens"] == 0
    assert only["choices"][0]["logprobs"]["token_logprobs"] == logprobs["token_logprobs"][:-5]
    several = known.post("/v1/completions", {"prompt": ["<|go0|>", "<|go1|>"], "temperature": 0, "n": 2}).json()
    assert [c["text"] for c in several["choices"]] == ["Hello world!"] * 2 + ["abcSTOPdef"] * 2
    assert [c["index"] for c in several["choices"]] == [0, 1, 2, 3]
    alike = known.post("/v1/completions", {"prompt": ["ab", "ab"], "n": 2, "max_tokens": 1}).json()
    assert alike["usage"]["prompt_tokens"] == 2 * len(known.post("/tokenize", {"content": "ab"}).json()["tokens"])


def test_the_older_form_names_parts_of_characters_and_counts_characters(known):
    body = {"prompt": "\u20ac<|go2|>", "temperature": 0, "logprobs": 1, "echo": True}
    told = known.post("/v1/completions", body).json()["choices"][0]
    assert told["text"] == "\u20ac<|go2|>a\u20acb"
    names = ["<0xE2>", "<0x82>", "<0xAC>"]
    assert told["logprobs"]["tokens"] == names + ["<|go2|>", "a"] + names + ["b"]
    assert told["logprobs"]["text_offset"] == [0, 1, 1, 1, 8, 9, 10, 10, 10]
    assert told["logprobs"]["top_logprobs"][5].keys() == {"<0xE2>"}


def test_text_offsets_point_into_the_text(demo):
    """The first token, <s>, has no text, and the second begins with a space that the text has not."""
    body = {"prompt": "Once upon a time", "temperature": 0, "max_tokens": 8, "logprobs": 0, "echo": True}
    told = demo.post("/v1/completions", body).json()["choices"][0]
    tokens, offsets = told["logprobs"]["tokens"], told["logprobs"]["text_offset"]
    assert tokens[:2] == ["<s>", " Once"] and offsets[:2] == [0, 0]
    assert all(told["text"][at:at + len(token)] == token for token, at in list(zip(tokens, offsets))[2:])


def test_seeds(demo):
    def texts(**more):
        body = {"prompt": "Once", "max_tokens": 20, "temperature": 1.5, **more}
        return [c["text"] for c in demo.post("/v1/completions", body).json()["choices"]]

    assert texts(seed=3, n=4) == texts(seed=3, n=4)
    assert texts(seed=3, n=2) == texts(seed=3, n=4)[:2]
    assert len(set(texts(seed=3, n=4))) > 1
    assert texts() != texts()


def test_metrics(known):
    known.post("/v1/chat/completions", ask(0))
    families = {f.name: f for f in text_string_to_metric_families(known.get("/metrics").text)}
    for name, kind in (("duet_requests_running", "gauge"), ("duet_requests", "counter"),
                       ("duet_prompt_tokens", "counter"),
                       ("duet_time_to_first_token_seconds", "histogram"), ("duet_request_prompt_tokens", "histogram"),
                       ("vllm:num_requests_waiting", "gauge"), ("vllm:num_requests_running", "gauge"), ("vllm:kv_cache_usage_perc", "gauge")):
        assert families[name].type == kind and families[name].samples, name
    counted = known.metric("duet_request_seconds_count")
    assert known.get("/health").status_code == 200
    assert known.metric("duet_request_seconds_count") == counted
    known.post("/v1/chat/completions", ask(0))
    assert known.metric("duet_request_seconds_count") == counted + 1


def test_a_client_that_does_not_read_is_cut_off(start, known_file):
    server = start(known_file, "-c", "200000")
    peer = server.connect()
    text = json.dumps({**ENDLESS, "max_tokens": 190000, "stream": True, "logprobs": 20}).encode()
    peer.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                 b"Content-Length: %d\r\n\r\n" % len(text) + text)
    assert server.wait_for("duet_requests_running", 1)
    assert server.wait_for("duet_requests_running", 0, 20)
    assert server.metric("duet_cancelled_total") == 1
    peer.close()


def test_a_client_that_reads_gets_events_of_any_size(start, known_file):
    # echoed log probabilities of the prompt come in one event for each choice
    server = start(known_file, "-c", "4000")
    body = {"prompt": [5] * 2000, "echo": True, "logprobs": 20, "max_tokens": 30, "ignore_eos": True, "n": 2}
    text = server.post("/v1/completions", {**body, "stream": True}).text
    lines = text.splitlines()
    assert lines[-2] == "data: [DONE]" and max(map(len, lines)) > 1 << 20
    assert text.count('"finish_reason":"length"') == 2


def test_answers_with_many_log_probabilities_hold_no_stream_up(start, known_file):
    # as JSON they take seconds
    server = start(known_file, "--slots", "17")
    running, ends, gaps = stream(server, {**ENDLESS, "max_tokens": 3900}), [], []
    body = {**ENDLESS, "max_tokens": 2000, "n": 16, "logprobs": 20}
    asked = threading.Thread(target=lambda: ends.append(server.post("/v1/completions", body)))
    asked.start()
    last = time.monotonic()
    for line in running.lines:
        if line:
            gaps.append(time.monotonic() - last)
            last += gaps[-1]
    asked.join()
    assert ends[0].status_code == 200 and len(gaps) > 2000
    assert max(gaps) < 0.5, max(gaps)


def test_one_log_line_for_each_request_without_prompts_or_keys(start, known_file):
    server = start(known_file, "--log-json", "--api-key", "sesame", "--alias", "known")
    headers = {"Authorization": "Bearer sesame", "X-Request-Id": "mine-1"}
    assert server.post("/v1/chat/completions", ask(0), headers=headers).headers["x-request-id"] == "mine-1"
    assert server.post("/v1/chat/completions", ask(0)).status_code == 401
    server.process.send_signal(signal.SIGTERM)
    server.process.wait(10)
    text = server.process.stderr.read()
    lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    assert [line["code"] for line in lines] == [200, 401] and "sesame" not in text
    assert lines[0]["id"] == "mine-1" and lines[0]["path"] == "/v1/chat/completions"
    assert lines[0]["answer_tokens"] == 5 and {"prompt_tokens", "cached_tokens", "queue_ms", "first_token_ms",
                                               "ms"} <= set(lines[0])


def test_the_benchmark_measures_a_model_with_few_ids():
    """Prompts of random ids have none that the model has not."""
    done = subprocess.run([sys.executable, "benchmarks/server.py", "--serve", SERVE, "-m", DEMO, "--only", "speed", "--clients", "1",
                           "-p", "8", "-n", "4", "-r", "1", "-t", "1"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "| 1 |" in done.stdout, done.stderr
