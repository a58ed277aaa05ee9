"""One pool of cache pages for all slots: full, shared, with recurrent and windowed layers. The bits stay the same."""
import concurrent.futures
import os
import re
import socket
import subprocess
import time

import pytest
import requests

from conftest import DEMO, SERVE
from test_life import completion, stream

DATA = os.path.join(os.environ.get("DUET_TEST_DATA", "../shared/data"), "golden")
TEXT = "Once upon a time there was a little girl who lived in a house near the woods. " * 8


def tokens_of(server):
    """Of the pool, and the bytes of one of them."""
    n_tok = 64 * int(re.search(r'num_gpu_blocks="(\d+)"', server.get("/metrics").text)[1])
    return n_tok, server.metric('duet_memory_bytes{kind="cache"}') / n_tok


def usage(server, body):
    used = server.post("/v1/completions", {"max_tokens": 1, **body}).json()["usage"]
    return used["prompt_tokens"], used["prompt_tokens_details"]["cached_tokens"]


def test_the_pool_is_bounded_and_a_slot_holds_all_of_the_context(start):
    whole = start(DEMO, "-c", "1024")
    _, per_token = tokens_of(whole)
    small = start(DEMO, "-c", "1024", "--cache-bytes", str(int(per_token * 1200)))
    assert tokens_of(small) == (1152, per_token)
    line = next(line for line in small.process.stderr if "memory" in line)
    plan = re.search(r"cache ([\d.]+) \(1152 tokens for 8 slots of up to 1024", line)
    assert abs(float(plan[1]) - 1152 * per_token / 1e6) < 0.06
    for _ in range(2):
        answer = small.post("/v1/completions", {"prompt": [5] * 900, "max_tokens": 200, "ignore_eos": True}).json()
        assert answer["usage"]["completion_tokens"] == 124
        assert answer["choices"][0]["finish_reason"] == "length"
    done = subprocess.run([SERVE, "-m", DEMO, "-c", "1024", "--port", "0", "--cache-bytes", "4K"], capture_output=True,
                          text=True, timeout=20)
    assert done.returncode == 2 and "--cache-bytes: want at least" in done.stderr


@pytest.mark.parametrize("name", ["gemma3", "qwen35"])
@pytest.mark.parametrize("n_ctx", [64, 2048, 32768])
def test_the_least_bytes_that_are_named_are_enough(start, name, n_ctx):
    flags = ["-c", str(n_ctx), "--cache-bytes"]
    done = subprocess.run([SERVE, "-m", tiny(name), "--port", "0", *flags, "4K"], capture_output=True, text=True, timeout=20)
    least = re.search(r"want at least (\d+)", done.stderr)
    assert done.returncode == 2 and least, done.stderr
    assert start(tiny(name), *flags, least[1]).get("/health").status_code == 200


@pytest.mark.parametrize("name", ["gemma3", "qwen35"])
def test_the_bound_holds_for_windows_and_states(start, name):
    for bound in (3_000_000, 20_000_000):
        server = start(tiny(name), "-c", "2048", "--cache-bytes", str(bound))
        cache, state = (server.metric(f'duet_memory_bytes{{kind="{kind}"}}') for kind in ("cache", "state"))
        assert cache + state * 0.875 <= bound and server.post("/v1/completions", {
            "prompt": ids(2000), "max_tokens": 48, "ignore_eos": True}).json()["usage"]["completion_tokens"] == 48


def test_a_full_pool_changes_no_bits_and_loses_no_answer(start, demo):
    # eight answers of up to 500 tokens in a pool of 576: they take turns
    _, per_token = tokens_of(demo)
    server = start(DEMO, "-c", "512", "--cache-bytes", str(int(per_token * 600)))
    assert tokens_of(server)[0] == 576
    bodies = [{"prompt": TEXT[i:90 + 9 * i], "max_tokens": 300, "temperature": 0.9, "seed": i, "logprobs": 1,
               "ignore_eos": True} for i in range(8)]
    bodies[3].update(echo=True)
    alone = [completion(demo, {**b, "cache_prompt": False}) for b in bodies]
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        assert list(pool.map(lambda b: completion(server, b), bodies * 2)) == alone * 2
    assert server.metric("duet_put_back_total") > 0
    assert server.metric("duet_requests_running") == 0
    assert 0 < server.metric("duet_kv_cache_usage_ratio") <= 1


def test_cancelled_and_failed_answers_leave_their_pages_to_others(start, demo):
    _, per_token = tokens_of(demo)
    server = start(DEMO, "-c", "512", "--cache-bytes", str(int(per_token * 600)))
    body = {"prompt": TEXT, "max_tokens": 100, "ignore_eos": True, "temperature": 0, "logprobs": 1}
    want = completion(demo, body)
    for _ in range(12):
        streams = [stream(server, {**body, "prompt": f"{i} " + TEXT, "max_tokens": 250}) for i in range(3)]
        for s in streams:
            s.close()
    assert server.wait_for("duet_requests_running", 0)
    assert completion(server, body) == want


def test_a_kept_prefix_gives_back_its_end_first(start, demo):
    _, per_token = tokens_of(demo)
    server = start(DEMO, "-c", "1024", "--cache-bytes", str(int(per_token * 1200)))
    long = ids(900)
    assert usage(server, {"prompt": long}) == (900, 0)
    assert usage(server, {"prompt": ids(400, 7)}) == (400, 0)  # there is room for 192
    n, cached = usage(server, {"prompt": long})
    assert n == 900 and 300 < cached < 600


def test_eight_at_once_read_a_common_beginning_once(start):
    server = start(DEMO, "-c", "4096")
    n_common = usage(server, {"prompt": TEXT * 4, "cache_prompt": False})[0]
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda i: usage(server, {"prompt": TEXT * 4 + f" Number {i}"}), range(8)))
    # Nobody waits for fewer than 32 tokens of it (waits_for_prefix): reading them costs less.
    assert sorted(cached > n_common - 32 for _, cached in found) == [False] + [True] * 7


def tiny(name):
    path = os.path.join(DATA, name, "model.gguf")
    if not os.path.exists(path):
        pytest.skip(f"no {path} (DUET_TEST_DATA)")
    return path


def ids(n, first=0):
    return [(first + i * 37) % 200 + 3 for i in range(n)]


@pytest.mark.parametrize("name", ["qwen35", "granitehybrid", "lfm2", "gemma3"])
def test_recurrent_and_windowed_models_reuse_prompts_and_give_the_same_bits(start, name):
    server = start(tiny(name), "-c", "2048")

    def ask(prompt, **more):
        answer = server.post("/v1/completions", {"prompt": prompt, "max_tokens": 8, "ignore_eos": True, "seed": 1,
                                                 "logprobs": 1, **more}).json()
        return answer["usage"]["prompt_tokens_details"]["cached_tokens"], answer["choices"][0]["logprobs"]

    prompt = ids(900)
    n, first = ask(prompt)
    assert n == 0
    n, again = ask(prompt)
    assert n == 899 and again == first
    longer = prompt + ids(40, 11)
    n, reused = ask(longer)
    assert n >= 899 and reused == ask(longer, cache_prompt=False)[1]
    # what no state was kept for is read again, and a metric says why
    _, other = ask(prompt[:450] + ids(30, 5))
    assert other == ask(prompt[:450] + ids(30, 5), cache_prompt=False)[1]
    reason = "window" if name == "gemma3" else "recurrent_state"
    assert server.metric(f'duet_prefix_misses_total{{reason="{reason}"}}') >= 1
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        many = list(pool.map(lambda i: ask(prompt + ids(5, i)), range(8)))
    for i, (n, got) in enumerate(many):
        assert n >= 899 and got == ask(prompt + ids(5, i), cache_prompt=False)[1]


@pytest.mark.parametrize("name", ["qwen35", "gemma3"])
def test_conversations_share_a_system_prompt_where_states_cannot_go_back(start, name):
    server = start(tiny(name), "-c", "4096", "--chat-template", "chatml")
    messages = [{"role": "system", "content": "You are kind. " * 60}, {"role": "user", "content": "Who are you? " * 9}]

    def ask(messages, **more):
        answer = server.post("/v1/chat/completions", {"messages": messages, "max_tokens": 5, "seed": 1, "logprobs": True,
                                                      **more}).json()
        return answer["usage"]["prompt_tokens_details"]["cached_tokens"], answer["choices"][0]["logprobs"]

    n_system = len(server.post("/apply-template", {"messages": messages[:1]}).json()["tokens"]) - 16
    assert ask(messages)[0] == 0
    other = [messages[0], {"role": "user", "content": "What is this?"}]
    n, got = ask(other)
    assert n >= n_system and got == ask(other, cache_prompt=False)[1]
    later = messages + [{"role": "assistant", "content": "Not what was answered."}, {"role": "user", "content": "Why?"}]
    n, got = ask(later)
    assert n >= n_system and got == ask(later, cache_prompt=False)[1]


def test_an_idle_server_uses_no_processor_time(demo):
    def ticks():
        with open(f"/proc/{demo.process.pid}/stat") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])

    completion(demo, {"prompt": "a", "logprobs": 1})
    before = ticks()
    time.sleep(2)
    assert ticks() - before <= 1


def test_a_stream_goes_on_while_a_long_prompt_is_read(start):
    server = start(DEMO, "-c", "8192")
    running = stream(server, {"prompt": "Once", "max_tokens": 8000, "ignore_eos": True})
    gaps, last = [], time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        reading = pool.submit(usage, server, {"prompt": ids(3000)})
        for line in running.lines:
            if line:
                gaps.append(time.monotonic() - last)
                last = time.monotonic()
            if reading.done():
                break
    running.close()
    assert reading.result() == (3000, 0)
    assert max(gaps) < 0.5, max(gaps)  # the bound of 0.15 s is measured on a machine that does nothing else


def test_a_short_prompt_is_read_beside_a_long_one(start):
    server = start(DEMO, "-c", "16384", "--chunk", "64")
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        long = pool.submit(server.post, "/v1/completions", {"prompt": ids(12000), "max_tokens": 1})
        assert server.wait_for("duet_requests_running", 1)
        short = server.post("/v1/completions", {"prompt": [7] * 40, "max_tokens": 1})
        assert short.status_code == 200 and not long.done()
        assert long.result().status_code == 200


def test_while_the_model_loads_the_port_answers(known_file, tmp_path):
    # a long template takes a quarter of a second to compile
    template, seen = tmp_path / "template", []
    template.write_text("{% if a == 'b' %}b{% endif %}" * 20000)
    for _ in range(20):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        process = subprocess.Popen([SERVE, "-m", known_file, "--port", str(port), "--chat-template", str(template)],
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        url = f"http://127.0.0.1:{port}"
        status, until = None, time.monotonic() + 20
        while status != 200 and time.monotonic() < until:
            try:
                assert requests.get(url + "/livez", timeout=5).status_code == 200
                other = requests.post(url + "/v1/completions", json={"prompt": "a", "max_tokens": 1}, timeout=5)
                status = requests.get(url + "/readyz", timeout=5).status_code
                assert other.status_code in (503, 200) and status in (503, 200)
                if other.status_code == 503:
                    assert other.json()["error"]["message"] == "the model is loading" and other.headers["retry-after"]
                seen.append((other.status_code, status))
            except requests.ConnectionError:
                pass
        assert status == 200
        assert "serves" in process.stdout.readline()
        process.terminate()
        assert process.wait(10) == 0
        process.stdout.close()
        if any(503 in pair for pair in seen):
            return
    assert False, seen
