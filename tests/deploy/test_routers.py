"""What is true behind every program of deploy/: answers, streams as they are made, clients that leave, keys."""
import concurrent.futures
import json
import os
import signal
import socket
import time

import pytest
import requests

from conftest import PROGRAMS, Deployment, is_alive, want

ALL = list(PROGRAMS)


def wait_for(condition, seconds=10.0):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return False


def open_stream(deployment, n=50000):
    """A connection that a long stream comes from, read to its first tokens."""
    body = json.dumps({"model": "duet", "temperature": 0, "messages": [{"role": "user", "content": "hi"}], "stream": True,
                       "chat_template_kwargs": {"script": 4}, "max_tokens": n})
    peer = socket.create_connection(("127.0.0.1", deployment.port), timeout=10)
    headers = "".join(f"{k}: {v}\r\n" for k, v in deployment.headers.items())
    peer.sendall(f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost:{deployment.port}\r\n{headers}"
                 f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}".encode())
    data = b""
    while data.count(b"\ndata: ") < 3:
        piece = peer.recv(65536)
        assert piece, data
        data += piece
    assert data.startswith(b"HTTP/1.1 200"), data
    return peer, data


def read_until_silent(peer, seconds):
    data = b""
    peer.settimeout(seconds)
    try:
        while piece := peer.recv(1 << 20):
            data += piece
    except TimeoutError:
        pass
    return data


# "class": all tests of one program before the next is started
@pytest.mark.parametrize("name", ALL, scope="class")
class TestEach:
    def test_an_answer(self, deployments, name):
        d = deployments(name)
        answer = d.ask()
        assert answer.status_code == 200 and answer.headers["content-type"] == "application/json"
        assert answer.json()["choices"][0]["message"]["content"] == "Hello world!"
        assert answer.json()["usage"]["completion_tokens"] == 5

    def test_a_stream(self, deployments, name):
        answer = deployments(name).ask(stream=True, stream_options={"include_usage": True})
        assert answer.headers["content-type"].startswith("text/event-stream")
        events = [line[6:] for line in answer.text.split("\n\n") if line.startswith("data: ")]
        assert events[-1] == "[DONE]"
        chunks = [json.loads(event) for event in events[:-1]]
        text = "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks if c["choices"])
        assert text == "Hello world!" and chunks[-1]["usage"]["completion_tokens"] == 5

    def test_a_call(self, deployments, name):
        tools = [{"type": "function", "function": {"name": "look", "parameters": {
            "type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]}}}]
        choice = deployments(name).ask(tools=tools, chat_template_kwargs={"script": 3}).json()["choices"][0]
        assert choice["finish_reason"] == "tool_calls"
        assert json.loads(choice["message"]["tool_calls"][0]["function"]["arguments"]) == {"at": "here"}

    def test_a_wrong_field_is_a_400_with_its_message(self, deployments, name):
        answer = deployments(name).ask(response_format={"type": "json_schema", "json_schema": {
            "name": "x", "schema": {"type": "object", "properties": {"a": {"type": "nonsense"}}}}})
        assert answer.status_code == 400 and "/properties/a" in answer.text

    def test_a_long_body_arrives_whole(self, deployments, name):
        answer = deployments(name).ask("a \\\"{[ word " * 100000)  # 1.4 MB
        assert answer.status_code == 400 and "maximum context length" in answer.text, answer.text[:300]
        assert deployments(name).ask().status_code == 200

    def test_each_token_goes_out_as_it_is_made(self, deployments, name):
        # The servers run for a moment and are stopped again: what they wrote has to arrive, whole, while they stand. A
        # program that gathers bytes would cut in the midst of an event.
        d = deployments(name)
        peer, data = open_stream(d, 5000)  # LiteLLM may read on to the end
        pids = [pid for pid, _ in d.servers()]

        def send(sign):
            for pid in pids:
                os.kill(pid, sign)

        try:
            for _ in range(8):
                send(signal.SIGSTOP)
                data += read_until_silent(peer, 0.1)
                assert data.endswith((b"\n\n", b"\n\n\r\n")), data[-80:]
                send(signal.SIGCONT)
                peer.settimeout(10)
                data += peer.recv(65536)
        finally:
            send(signal.SIGCONT)
            peer.close()
        assert wait_for(lambda: d.running() == 0, 60)

    def test_a_client_that_leaves_frees_its_place(self, deployments, name):
        d = deployments(name)
        if name == "litellm":
            pytest.skip("not promised: LiteLLM reads on for seconds, or to the end")
        peer, _ = open_stream(d)
        assert wait_for(lambda: d.running() == 1)
        peer.close()
        begin = time.monotonic()
        assert wait_for(lambda: d.running() == 0) and time.monotonic() - begin < 1

    def test_many_at_once(self, deployments, name):
        d = deployments(name)
        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            answers = list(pool.map(lambda i: d.ask(f"question {i}"), range(36)))
        assert all(a.json()["choices"][0]["message"]["content"] == "Hello world!" for a in answers)
        if name in ("nginx", "haproxy", "envoy"):
            assert all(n > 0 for n in d.counts())

    def test_numbers_of_one_server_are_not_shown_for_all(self, deployments, name):
        if name not in ("nginx", "haproxy", "envoy"):
            pytest.skip("not promised")
        assert deployments(name).get("/metrics").status_code == 404

    def test_a_conversation_stays_on_its_server(self, deployments, name):
        if name not in ("nginx", "haproxy", "envoy"):
            pytest.skip("not promised")
        d = deployments(name)
        used = set()
        for i in range(12):
            before = d.counts()
            for turn in range(3):
                assert d.ask(f"turn {turn}", {"X-Conversation-Id": f"conversation {i}"}).status_code == 200
            grown = [after - n for after, n in zip(d.counts(), before)]
            assert sorted(grown) == [0, 3], grown
            used.add(grown.index(3))
        assert len(used) == 2

    def test_a_prompt_goes_where_its_beginning_is_cached(self, deployments, name):
        if name not in ("sglang-router", "vllm-router"):
            pytest.skip("not promised")
        d = deployments(name)

        def cached_and_prompt(i, end, n):
            text = f"{chr(97 + i)}{i * 7919 % 1000} " * 60 + end
            more = {"chat_template_kwargs": {"script": 4}, "max_tokens": n}
            if name == "sglang-router":
                usage = d.ask(text, **more).json()["usage"]
            else:  # of version 0.1.17, only these are compared
                usage = d.post("/v1/completions", {"model": "duet", "prompt": text + "<|go4|>", "temperature": 0,
                                                   "max_tokens": n}).json()["usage"]
            return usage["prompt_tokens_details"]["cached_tokens"], usage["prompt_tokens"]

        before = d.counts()
        # they go to the server with the fewest requests at the moment, so they come together
        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            first = list(pool.map(lambda i: cached_and_prompt(i, "", 400), range(12)))
        assert sum(after > n for after, n in zip(d.counts(), before)) > 1
        for i in range(12):
            # the end of the last message and the beginning of the answer differ
            assert cached_and_prompt(i, "and more", 5)[0] >= first[i][1] - 25

    def test_a_foreign_page_may_not_read(self, deployments, name):
        d = deployments(name)
        answer = d.post("/v1/chat/completions", {"model": "duet", "messages": [{"role": "user", "content": "hi"}]},
                        {"Origin": "https://foreign.example"})
        if name == "litellm":  # its own key is what keeps pages out
            answer = requests.post(d.url + "/v1/chat/completions", json={"model": "duet"}, timeout=30)
            assert answer.status_code >= 400
        elif answer.status_code != 403:
            assert name in ("sglang-router", "vllm-router")
            assert "access-control-allow-origin" not in answer.headers

    # the last of a program: it takes a server away
    def test_a_server_that_dies_is_not_missed(self, deployments, name):
        d = deployments(name)
        pid = d.servers()[0][0]
        os.kill(pid, signal.SIGKILL)
        assert wait_for(lambda: not is_alive(pid))
        if name == "ray":  # the only one: it is missed until Ray has started another
            assert wait_for(lambda: d.ask().status_code == 200, 60)
        for i in range(20):
            answer = d.ask(f"question {i}", {"X-Conversation-Id": str(i)})
            assert answer.status_code == 200, (i, answer.text)
            assert answer.json()["choices"][0]["message"]["content"] == "Hello world!"


@pytest.mark.parametrize("name", ["nginx", "haproxy", "envoy"])
def test_a_conversation_is_known_by_its_beginning(deployments, name):
    d = deployments(name)
    system = {"role": "system", "content": "Be kind to {all}, \"friends\" and \\."}
    used = set()
    for i in range(12):
        messages = [system] if i % 2 else []
        before = d.counts()
        for turn in range(3):
            text = f"question {turn} of \"{i}\" ]}}"
            parts = [{"type": "text", "text": text}]
            messages.append({"role": "user", "content": parts if i % 3 == 0 else text})
            assert d.ask(messages=messages).status_code == 200
            messages.append({"role": "assistant", "content": "Hello world!"})
        grown = [after - n for after, n in zip(d.counts(), before)]
        assert sorted(grown) == [0, 3], (i, grown)
        used.add(grown.index(3))
    assert len(used) == 2


def test_vllm_router_keeps_sessions(known_file):
    want("vllm-router")
    d = Deployment("vllm-router", "-m", known_file, "--alias", "duet", "-t", "1", "-c", "4096",
                   env={"POLICY": "consistent_hash"})
    try:
        used = set()
        for i in range(12):
            before = d.counts()
            for turn in range(3):
                assert d.ask(f"turn {turn}", {"x-session-id": f"session {i}"}).status_code == 200
            grown = [after - n for after, n in zip(d.counts(), before)]
            assert sorted(grown) == [0, 0, 3], grown
            used.add(grown.index(3))
        assert len(used) > 1
    finally:
        assert d.end()
