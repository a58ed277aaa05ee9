"""The LiteLLM proxy: its key, the servers' keys, and what happens when Duet is gone."""
import os
import signal

import requests

from conftest import KEY


def test_keys_and_fallback(deployments):
    d = deployments("litellm")
    body = {"model": "duet", "messages": [{"role": "user", "content": "hi"}], "temperature": 0}
    before = d.counts()
    for headers in ({}, {"Authorization": "Bearer " + KEY + "x"}):
        # without its database LiteLLM answers 400 or 500 here
        assert requests.post(d.url + "/v1/chat/completions", json=body, headers=headers, timeout=30).status_code >= 400
    assert d.counts() == before
    assert {m["id"] for m in d.get("/v1/models").json()["data"]} == {"duet", "other"}
    assert d.ask(model="other").status_code == 200
    assert [a - b for a, b in zip(d.counts(), before)] == [0, 1]
    assert d.ask(model="duet").status_code == 200
    assert [a - b for a, b in zip(d.counts(), before)] == [1, 1]
    os.kill(d.servers()[0][0], signal.SIGKILL)
    for _ in range(3):
        answer = d.ask(model="duet")
        assert answer.status_code == 200 and answer.json()["choices"][0]["message"]["content"] == "Hello world!"
