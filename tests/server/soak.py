"""Asks a server of all kinds of requests for a time, and says whether anything was lost, wrong or grew.

    tests/server/soak.py [--seconds 120] [--clients 16] [--growth-mb 16]    DUET_SERVE, DUET_KNOWN as for the tests

Answers with a seed must be equal each time they are asked for, whoever asks beside. Memory is measured after the first
quarter and at the end.
"""
import argparse
import collections
import contextlib
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import threading
import time

import requests

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from conftest import KNOWN, Server, ask  # noqa: E402

TEXT = "There was a house near the woods, and in the house lived a bear. "


def body_of(kind, rng):
    """Path, body and the statuses that are right."""
    if kind == "text":
        n = rng.randrange(6)
        return "/v1/completions", {"prompt": TEXT * n + "<|go0|>", "max_tokens": 8, "seed": n, "temperature": 1.2,
                                   "logprobs": 2, "n": 1 + n % 3}, {200}
    if kind == "chat":
        return "/v1/chat/completions", ask(rng.randrange(4), seed=1, max_tokens=20, logprobs=True), {200}
    if kind == "tools":
        tool = {"type": "function", "function": {"name": "look", "parameters": {
            "type": "object", "properties": {"at": {"const": "here"}}, "required": ["at"]}}}
        return "/v1/chat/completions", ask(3, tools=[tool], max_tokens=60), {200}
    if kind == "schema":
        schema = {"type": "object", "properties": {f"k{rng.randrange(200)}": {"type": "integer", "maximum": 9}}}
        return "/v1/chat/completions", ask(5, max_tokens=20, response_format={
            "type": "json_schema", "json_schema": {"name": "s", "schema": schema}}), {200}
    if kind == "wrong":
        return "/v1/chat/completions", ask(0, temperature=rng.choice([-1, 3, "x"])), {400}
    if kind == "long":
        return "/v1/completions", {"prompt": [5] * rng.randrange(200, 5000), "max_tokens": 1}, {200, 400}
    if kind == "endless":
        return "/v1/completions", {"prompt": TEXT * rng.randrange(9) + "<|go4|>", "max_tokens": 500,
                                   "temperature": 0}, {200}
    if kind == "message":
        return "/v1/messages", {**ask(1), "max_tokens": 9, "stop_sequences": ["STOP", "x"]}, {200}
    return "/v1/embeddings", {"input": TEXT}, {200}


KINDS = ["text", "chat", "tools", "schema", "wrong", "long", "endless", "message", "embedding"]


class Soak:
    def __init__(self, server):
        self.server, self.answers, self.counts, self.faults = server, {}, collections.Counter(), []
        self.lock, self.ends = threading.Lock(), threading.Event()

    def resident(self):
        with open(f"/proc/{self.server.process.pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6

    def one(self, session, rng):
        path, body, wanted = body_of(kind := rng.choice(KINDS), rng)
        leaves = rng.random() < 0.1
        if leaves and path == "/v1/embeddings":
            with contextlib.suppress(requests.Timeout):
                session.post(self.server.url + path, json={"input": [TEXT * 30] * 3}, timeout=0.02)
            self.counts["left an embedding"] += 1
            return
        if leaves:
            with session.post(self.server.url + path, json={**body, "stream": True}, stream=True, timeout=60) as answer:
                next(answer.iter_content(20), None)
            self.counts["left"] += 1
            return
        answer = session.post(self.server.url + path, json=body, timeout=60)
        self.counts[kind, answer.status_code] += 1
        if answer.status_code not in wanted:
            self.faults.append((kind, answer.status_code, answer.text[:200]))
        elif answer.status_code == 200 and kind != "long":
            told = answer.json()
            for name in ("id", "created", "usage", "system_fingerprint"):
                told.pop(name, None)
            key, text = json.dumps([path, body]), json.dumps(told).replace(answer.json().get("id", "-"), "")
            text = re.sub(r'"id": "call\w+"', "", text)  # the ids of calls are new each time
            with self.lock:
                if self.answers.setdefault(key, text) != text:
                    self.faults.append((kind, "differs", self.answers[key][:300], text[:300]))

    def client(self, seed):
        rng, session = random.Random(seed), requests.Session()
        while not self.ends.is_set():
            try:
                self.one(session, rng)
            except requests.RequestException as error:
                self.faults.append(("connection", str(error)[:200]))


def main():
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("--seconds", type=float, default=120)
    args.add_argument("--clients", type=int, default=16)
    args.add_argument("--growth-mb", type=float, default=16)
    options = args.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "known.gguf")
        subprocess.run([KNOWN, model], check=True)
        # a pool of one slot for eight: pages are short all the time
        soak = Soak(Server(model, "--alias", "known", "--embeddings", "--cache-bytes", "1M"))
        threads = [threading.Thread(target=soak.client, args=(i,)) for i in range(options.clients)]
        for thread in threads:
            thread.start()
        time.sleep(options.seconds / 4)
        before = soak.resident()
        time.sleep(options.seconds * 3 / 4)
        soak.ends.set()
        for thread in threads:
            thread.join()
        idle = soak.server.wait_for("duet_requests_running", 0) and soak.server.wait_for("duet_requests_waiting", 0)
        grown = soak.resident() - before
        put_back = soak.server.metric("duet_put_back_total")
        code = soak.server.end()
    n = sum(soak.counts.values())
    print(f"{n} requests in {options.seconds:.0f} s: {dict(soak.counts)}; put back {put_back:.0f}; "
          f"resident {before:.1f} MB, then {grown:+.1f}; exit code {code}")
    for fault in soak.faults[:20]:
        print("fault:", *fault)
    is_good = not soak.faults and idle and code == 0 and grown < options.growth_mb and n > 0
    print("good" if is_good else f"WRONG: {len(soak.faults)} faults, idle {idle}, grown {grown:.1f} MB, code {code}")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
