"""Vectors are computed beside running answers: neither waits for the other, and both keep their bits."""
import base64
import concurrent.futures
import json
import os
import re
import resource
import signal
import struct
import subprocess
import sys
import threading
import time

import pytest

from conftest import DEMO, SERVE
from test_cache import ids
from test_life import completion, stream

LONG = [ids(3000, i) for i in range(3)]


def vectors(server, texts):
    """The bits of the vectors: base64 holds the floats as they are."""
    answer = server.post("/v1/embeddings", {"input": texts, "encoding_format": "base64"})
    assert answer.status_code == 200, answer.text
    return [base64.b64decode(one["embedding"]) for one in answer.json()["data"]]


def begin(server, texts):
    """Asks, and gives back the connection."""
    peer, body = server.connect(), json.dumps({"input": texts}).encode()
    peer.sendall(b"POST /v1/embeddings HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                 b"Content-Length: %d\r\n\r\n" % len(body) + body)
    return peer


def ready(*flags):
    return [DEMO, "--embeddings", "-c", "8192", *flags]


def test_the_cache_type_is_that_of_vectors_too(start):
    """The bits of bin/embed with the same flag."""
    embed = os.path.join(os.path.dirname(SERVE), "embed")
    for kind in ("f16", "f32", "q8_0"):
        raw = subprocess.run([embed, "-m", DEMO, "-p", "Once upon a time", "--raw", "-ctk", kind], capture_output=True, check=True).stdout
        assert vectors(start(DEMO, "--embeddings", "-ctk", kind), ["Once upon a time"]) == [raw], kind


def test_a_stream_goes_on_while_texts_are_embedded(start):
    server = start(*ready())
    vectors(server, ["a"])
    then = time.monotonic()
    vectors(server, LONG[:1])
    alone = time.monotonic() - then
    running = stream(server, {"prompt": "Once", "max_tokens": 8000, "ignore_eos": True})
    gaps, times = [], [time.monotonic()]
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        embedding = pool.submit(vectors, server, LONG[:1])
        for line in running.lines:
            if line:
                gaps.append(time.monotonic() - times[-1])
                times.append(time.monotonic())
            if embedding.done():
                break
    running.close()
    assert embedding.done(), "the answer was shorter than the text"
    # The bound of 0.15 s is measured on a machine that does nothing else.
    assert max(gaps) < max(0.15, alone / 2), (max(gaps), alone)


def test_a_client_that_leaves_frees_its_place_while_its_texts_are_embedded(start):
    server = start(*ready("--slots", "2", "--queue", "1"))
    want = vectors(server, ["a"])
    for n, texts in ((1, LONG[:1]), (4, LONG), (7, LONG)):
        peer = begin(server, texts)
        assert server.wait_for("duet_requests_running", 1)
        time.sleep(0.2)
        assert server.metric("duet_requests_waiting") == len(texts) - 1
        then = time.monotonic()
        peer.close()
        assert server.wait_for("duet_requests_running", 0, 2) and time.monotonic() - then < 0.1
        assert server.wait_for("duet_cancelled_total", n)
        assert server.metric("duet_requests_waiting") == 0
    assert vectors(server, ["a"]) == want


def test_the_bits_of_a_vector_do_not_depend_on_neighbours_and_those_who_leave(start):
    server = start(*ready())
    texts = [ids(40 + 37 * i, i) for i in range(8)] + ["Once upon a time", "A dog"]
    alone = [vectors(server, [text])[0] for text in texts]
    assert vectors(server, texts) == alone
    body = {"prompt": "Once", "max_tokens": 300, "temperature": 0.9, "seed": 4, "logprobs": 1, "ignore_eos": True}
    answer, ends = completion(server, body), threading.Event()

    def leave():
        while not ends.is_set():
            peer = begin(server, texts[:3])
            time.sleep(0.02)
            peer.close()

    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        leaving, asked = pool.submit(leave), pool.submit(completion, server, body)
        try:
            for found in pool.map(lambda _: vectors(server, texts), range(8)):
                assert found == alone
            assert asked.result() == answer
        finally:
            ends.set()
        leaving.result()
    assert server.wait_for("duet_requests_running", 0) and server.metric("duet_requests_waiting") == 0
    program = os.path.join(os.path.dirname(SERVE), "embed")
    if os.path.exists(program):
        done = subprocess.run([program, "-m", DEMO, "-p", "Once upon a time", "--raw"], capture_output=True, check=True)
        assert done.stdout == alone[8]


def test_a_full_queue_of_texts_is_a_429(start):
    server = start(*ready("--slots", "1", "--queue", "1"))
    peers = [begin(server, LONG[:1]), begin(server, LONG[:1])]
    assert server.wait_for("duet_requests_running", 1) and server.wait_for("duet_requests_waiting", 1)
    assert server.post("/v1/embeddings", {"input": "a"}).status_code == 429
    for peer in peers:
        peer.close()
    assert server.wait_for("duet_requests_running", 0)
    assert len(vectors(server, ["a"])) == 1


def test_drain_ends_what_is_embedded_when_the_time_is_over(start):
    server = start(*ready("--drain", "0"))
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        asked = pool.submit(server.post, "/v1/embeddings", {"input": LONG * 9})
        assert server.wait_for("duet_requests_running", 1)
        then = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        assert asked.result().status_code == 503 and "ends" in asked.result().json()["error"]["message"]
        assert server.process.wait(5) == 0 and time.monotonic() - then < 3


def test_a_session_that_cannot_be_made_is_made_by_a_later_request(start):
    # Its cache of 403 MB fits in none of the heaps that the C library reserves for threads (64 MB each; 51 MB once did).
    server = start(DEMO, "--embeddings", "-c", "262144")
    with open(f"/proc/{server.process.pid}/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    before = resource.prlimit(server.process.pid, resource.RLIMIT_AS)
    resource.prlimit(server.process.pid, resource.RLIMIT_AS, (used + (8 << 20), before[1]))
    for _ in range(2):
        answer = server.post("/v1/embeddings", {"input": "a"})
        assert answer.status_code == 500 and answer.json()["error"]["message"]
    resource.prlimit(server.process.pid, resource.RLIMIT_AS, before)
    assert len(vectors(server, ["a", "b"])) == 2
    assert server.metric("duet_requests_running") == 0


def test_the_plan_has_the_second_session(start, demo):
    server = start(*ready("--slots", "4"))
    line = next(line for line in server.process.stderr if "memory" in line)
    found = re.search(r"for embeddings, when they are asked for: cache ([\d.]+) MB, state 0.0, work ([\d.]+)", line)
    planned = server.metric('duet_memory_bytes{kind="embeddings"}')
    assert abs(float(found[1]) + float(found[2]) - planned / 1e6) < 0.11
    per_token = server.metric('duet_memory_bytes{kind="cache"}') / int(re.search(r"\((\d+) tokens for", line)[1])
    assert abs(float(found[1]) - (8192 + 64 * 4) * per_token / 1e6) < 0.06
    assert demo.metric('duet_memory_bytes{kind="embeddings"}') == 0


def test_a_model_that_makes_only_vectors(start, tmp_path):
    subprocess.run([sys.executable, "tests/data/tiny_gguf.py", "bert", str(tmp_path / "bert.gguf")], check=True, timeout=60)
    server = start(tmp_path / "bert.gguf")
    (model,) = server.get("/v1/models").json()["data"]
    assert model["capabilities"] == {"completion": False, "chat": False, "tools": False, "structured_output": False,
                                     "embeddings": True}
    assert server.post("/api/show", {}).json()["capabilities"] == ["embedding"]
    (text,) = vectors(server, ["a text"])
    assert abs(sum(x * x for x in struct.unpack(f"{len(text) // 4}f", text)) - 1) < 1e-5
    for path, body in (("/v1/completions", {"prompt": "a"}), ("/v1/responses", {"input": "a"})):
        answer = server.post(path, body)
        assert answer.status_code == 400 and "/v1/embeddings" in answer.json()["error"]["message"]


@pytest.fixture(scope="module")
def reranker(tmp_path_factory):
    """A model with a head, which is an encoder, and one that is asked as a decoder."""
    files = []
    for name in ("bert-reranker", "qwen3-reranker"):
        files.append(str(tmp_path_factory.mktemp("rerank") / f"{name}.gguf"))
        subprocess.run([sys.executable, "tests/data/tiny_gguf.py", name, files[-1]], check=True, timeout=60)
    return files


def test_documents_are_ranked_by_the_scores_of_embed(start, reranker):
    documents = ["a", "b c", "zzz", "dd ab", "a"]
    for file in reranker:
        texts = [part for text in documents for part in ("-p", text)]
        raw = subprocess.run([os.path.join(os.path.dirname(SERVE), "embed"), "-m", file, "--query", "q", "--raw", *texts],
                             capture_output=True, check=True).stdout
        scores = struct.unpack("5f", raw)
        server = start(file, "--embeddings")
        for path in ("/v1/rerank", "/v2/rerank", "/rerank", "/v1/reranking", "/reranking"):
            told = server.post(path, {"query": "q", "documents": documents}).json()
            assert [one["relevance_score"] for one in told["results"]] == sorted(scores, reverse=True)
            assert all(scores[one["index"]] == one["relevance_score"] for one in told["results"])
            assert told["usage"]["total_tokens"] > len(documents) and "document" not in told["results"][0]
        equal = [one["index"] for one in told["results"] if one["index"] in (0, 4)]
        assert equal == [0, 4]  # the order of what is scored alike is that of the request
        best = server.post("/v1/rerank", {"query": "q", "documents": documents, "top_n": 2, "return_documents": True}).json()
        assert [one["index"] for one in best["results"]] == [one["index"] for one in told["results"]][:2]
        assert all(one["document"]["text"] == documents[one["index"]] for one in best["results"])
        # as the clients of Text Embeddings Inference ask
        bare = server.post("/rerank", {"query": "q", "texts": documents, "raw_scores": False, "truncate": True}).json()
        assert bare == [{"index": one["index"], "score": one["relevance_score"]} for one in told["results"]]
        texts = server.post("/rerank", {"query": "q", "texts": documents, "return_text": True}).json()
        assert texts == [{**one, "text": documents[one["index"]]} for one in bare]


def test_documents_that_cannot_be_ranked(start, reranker, known, demo):
    server = start(reranker[0])  # an encoder needs no flag
    for wrong, says in (({"documents": []}, "documents"), ({"documents": ["a"] * 2049}, "2048"), ({"documents": None}, "documents"),
                        ({"query": None}, "query"), ({"query": 5}, "query"), ({"top_n": 0}, "top_n"),
                        ({"return_documents": "yes"}, "return_documents"), ({"texts": []}, "texts"),
                        ({"texts": ["a"], "return_text": 5}, "return_text"), ({"documents": ["a", "ab " * 300]}, "text 1: ")):
        answer = server.post("/v1/rerank", {"query": "q", "documents": ["a"], **wrong})
        error = answer.json()["error"]
        assert answer.status_code == 400 and says in error["message"] and error["type"] == "invalid_request_error", wrong
    assert server.post("/v1/rerank", {"query": "q", "documents": ["a"]}).status_code == 200
    answer = known.post("/v1/rerank", {"query": "q", "documents": ["a"]})
    assert answer.status_code == 400 and "scores no pairs" in answer.json()["error"]["message"]
    assert demo.post("/v1/rerank", {"query": "q", "documents": ["a"]}).status_code == 501


def test_ranking_and_vectors_share_the_thread_and_keep_their_bits(start, reranker):
    server = start(reranker[1], "--embeddings", "--slots", "4", "--queue", "64")
    body = {"query": "q", "documents": ["ab " * (5 + i % 7) for i in range(40)]}
    texts = ["ab " * (3 + i) for i in range(12)]
    ranked, alone = server.post("/v1/rerank", body).json()["results"], vectors(server, texts)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        asked = [(pool.submit(server.post, "/v1/rerank", body), pool.submit(vectors, server, texts)) for _ in range(6)]
        assert all(one.result().json()["results"] == ranked and other.result() == alone for one, other in asked)
    peer, text = server.connect(), json.dumps({**body, "documents": ["ab " * 60] * 2000}).encode()
    peer.sendall(b"POST /v1/rerank HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                 b"Content-Length: %d\r\n\r\n" % len(text) + text)
    assert server.wait_for("duet_requests_running", 1)
    peer.close()  # leaves while its documents are scored
    assert server.wait_for("duet_cancelled_total", 1, 2) and server.metric("duet_requests_running") == 0
    assert server.post("/v1/rerank", body).json()["results"] == ranked


def test_what_spells_a_control_token_is_text(start):
    server = start(DEMO, "--embeddings")
    text = {"content": "an <s>old</s> price", "add_special": True}
    plain, special = (server.post("/tokenize", {**text, "parse_special": on}).json()["count"] for on in (False, True))
    used = server.post("/v1/embeddings", {"input": text["content"]}).json()["usage"]["prompt_tokens"]
    assert used == plain > special
