"""Requests that are wrong: each is answered with OpenAI's shape of an error and the status that fits."""
import json

import openai
import pytest
import requests

from conftest import ask

CHAT, TEXT, RESPONSES, MESSAGES = "/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"
HI = [{"role": "user", "content": "hi"}]
COLD = {"temperature": 0}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


def wrong(**fields):
    return {"messages": HI, "max_tokens": 2, **fields}


CASES = [
    (CHAT, {}), (CHAT, {"messages": []}), (CHAT, {"messages": "hi"}), (CHAT, {"messages": None}),
    (CHAT, {"messages": [1]}), (CHAT, {"messages": [{"role": "user"}]}), (CHAT, {"messages": [{"content": "x"}]}),
    (CHAT, {"messages": [{"role": "wizard", "content": "x"}]}), (CHAT, {"messages": [{"role": 1, "content": "x"}]}),
    (CHAT, {"messages": [{"role": "user", "content": 5}]}),
    (CHAT, {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}),
    (CHAT, {"messages": [{"role": "user", "content": ["x"]}]}),
    (CHAT, {"messages": [{"role": "assistant", "content": None, "tool_calls": [{"id": 1}]}]}),
    *[(CHAT, wrong(max_tokens=v)) for v in (0, -2, "5", 1.5, True, [], 10**30)],
    *[(CHAT, wrong(max_completion_tokens=v)) for v in (0, "x")],
    *[(CHAT, wrong(temperature=v)) for v in (-0.1, 2.1, "1", True, [1])],
    *[(CHAT, wrong(top_p=v)) for v in (-0.1, 1.1, "x")],
    *[(CHAT, wrong(top_k=v)) for v in (-2, 1.5, "x")],
    *[(CHAT, wrong(min_p=v)) for v in (-0.1, 1.1)],
    *[(CHAT, wrong(frequency_penalty=v)) for v in (-2.1, 2.1, "x")],
    *[(CHAT, wrong(presence_penalty=v)) for v in (-2.1, 2.1)],
    *[(CHAT, wrong(seed=v)) for v in ("x", 1.5, [], 1e300)],
    *[(CHAT, wrong(stop=v)) for v in (5, [1], ["a"] * 17, {}, ["a", None])],
    *[(CHAT, wrong(n=v)) for v in (0, 17, "2", 1.5)],
    *[(CHAT, wrong(stream=v)) for v in ("true", 1)],
    (CHAT, wrong(stream_options={"include_usage": True})), (CHAT, wrong(stream=True, stream_options=5)),
    (CHAT, wrong(stream=True, stream_options={"include_usage": "yes"})),
    (CHAT, wrong(logprobs=5)), (CHAT, wrong(top_logprobs=2)), (CHAT, wrong(logprobs=False, top_logprobs=2)),
    *[(CHAT, wrong(logprobs=True, top_logprobs=v)) for v in (-1, 21, "x")],
    *[(CHAT, wrong(logit_bias=v)) for v in ([], 5, {"x": 1}, {"0": 101}, {"0": "a"}, {"99999999": 1}, {"-1": 1})],
    *[(CHAT, wrong(tools=v)) for v in (5, [5], [{}], [{"type": "function"}], [{"type": "magic", "function": {}}],
                                       [{"type": "function", "function": {"name": ""}}],
                                       [{"type": "function", "function": {"name": "f", "parameters": 5}}])],
    (CHAT, wrong(tool_choice="auto")), (CHAT, wrong(tools=[TOOL], tool_choice="maybe")),
    (CHAT, wrong(tools=[TOOL], tool_choice={"type": "function", "function": {"name": "g"}})),
    (CHAT, wrong(tools=[TOOL], tool_choice=5)), (CHAT, wrong(tools=[TOOL], tool_choice={"type": "function"})),
    (CHAT, wrong(tools=[TOOL], parallel_tool_calls="x")),
    *[(CHAT, wrong(response_format=v)) for v in (5, {}, {"type": "xml"}, {"type": "json_schema"},
                                                 {"type": "json_schema", "json_schema": {}},
                                                 {"type": "json_schema", "json_schema": {"schema": 5}})],
    (CHAT, wrong(grammar="root ::= (")), (CHAT, wrong(grammar=5)), (CHAT, wrong(grammar="root ::= missing")),
    (CHAT, wrong(grammar="root ::= \"a\"", response_format={"type": "json_object"})),
    (CHAT, wrong(reasoning_effort="much")), (CHAT, wrong(reasoning_format=5)), (CHAT, wrong(chat_template_kwargs=[])),
    (CHAT, wrong(ignore_eos="x")), (CHAT, wrong(cache_prompt=5)), (CHAT, wrong(model=5)),
    *[(CHAT, wrong(messages=HI + v)) for v in (
        [{"role": "assistant", "content": None}], [{"role": "assistant", "content": None, "tool_calls": []}],
        [{"role": "assistant", "tool_calls": "x"}], [{"role": "tool", "content": "x"}], [None],
        [{"role": "user", "content": []}], [{"role": "user", "content": "x", "name": 5}],
        [{"role": "user", "content": [{"type": "text"}]}], [{"role": "user", "content": [{"type": "text", "text": 5}]}],
        [{"role": "assistant", "content": None, "tool_calls": [{"id": "a", "type": "function", "function": {
            "name": 5, "arguments": "{}"}}]}])],
    *[(CHAT, wrong(response_format={"type": "json_schema", "json_schema": v})) for v in (
        {"name": 5, "schema": {}}, {"name": "x", "strict": "yes", "schema": {}},
        {"name": "x", "schema": {"type": "strin"}}, {"name": "x", "schema": {"$ref": "#/nowhere"}},
        {"name": "x", "schema": {"not": {"type": "string"}}}, {"name": "x", "schema": {"enum": []}},
        {"name": "x", "schema": {"type": "string", "pattern": "("}},
        {"name": "x", "schema": {"type": "integer", "minimum": 5, "maximum": 2}})],
    (CHAT, wrong(tools=[{"type": "function", "function": {"name": "f", "description": 5}}])),
    (CHAT, wrong(tools=[{"type": "function", "function": {"name": "f", "strict": "yes"}}])),
    (CHAT, wrong(tools=[TOOL] * 300)), (CHAT, wrong(tools=[], tool_choice="required")),
    (CHAT, wrong(chat_template_kwargs={"enable_thinking": "x"})), (CHAT, wrong(repeat_penalty="x")),
    (CHAT, wrong(stop=["x" * 2000])), (CHAT, wrong(logit_bias={" 1": 1})), (CHAT, wrong(logit_bias={"1": None})),
    *[(RESPONSES, v) for v in (
        {}, {"input": 5}, {"input": []}, {"input": [5]}, {"input": [{"type": "x"}]}, {"input": [{"role": "user"}]},
        {"input": [{"role": "x", "content": "a"}]}, {"input": [{"type": "function_call", "name": "f"}]},
        {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]},
        {"input": [{"type": "function_call_output", "output": "x"}]},
        *[{"input": "a", **more} for more in (
            {"max_output_tokens": 0}, {"temperature": 3}, {"tools": 5}, {"tools": [{"type": "web_search"}]},
            {"tools": [{"type": "function"}]}, {"tool_choice": "required"}, {"tool_choice": 5}, {"text": 5},
            {"text": {"format": {"type": "x"}}}, {"reasoning": {"effort": "x"}}, {"previous_response_id": "x"},
            {"background": True}, {"instructions": 5}, {"metadata": 5}, {"store": "x"}, {"include": 5},
            {"truncation": "x"}, {"top_logprobs": 50})])],
    *[(MESSAGES, v) for v in (
        {}, {"messages": HI}, *[{"messages": HI, "max_tokens": 5, **more} for more in (
            {"max_tokens": 0}, {"messages": []}, {"messages": [5]}, {"messages": [{"role": "system", "content": "x"}]},
            {"messages": [{"role": "user"}]}, {"messages": [{"role": "user", "content": [{"type": "image"}]}]},
            {"messages": [{"role": "user", "content": [{"type": "tool_result"}]}]},
            {"messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "x", "name": "f", "input": 5}]}]},
            {"system": 5}, {"temperature": 1.5}, {"top_p": 2}, {"top_k": "x"}, {"tools": [{"name": "f"}]},
            {"tool_choice": {"type": "any"}}, {"thinking": {"type": "x"}}, {"stop_sequences": "x"}, {"metadata": 5},
            {"tools": [{"name": "f", "input_schema": {}}], "tool_choice": {"type": "tool", "name": "g"}})])],
    (TEXT, {}), (TEXT, {"prompt": 5}), (TEXT, {"prompt": []}), (TEXT, {"prompt": ""}), (TEXT, {"prompt": [1, "a"]}),
    (TEXT, {"prompt": [[]]}), (TEXT, {"prompt": [1, -5]}), (TEXT, {"prompt": [99999999]}), (TEXT, {"prompt": [1.5]}),
    (TEXT, {"prompt": [True]}), (TEXT, {"prompt": {}}), (TEXT, {"prompt": [1, None]}),
    *[(TEXT, {"prompt": "a", "max_tokens": v}) for v in (-2, "x", 1.5)],
    *[(TEXT, {"prompt": "a", "logprobs": v}) for v in (-1, 21, True, "x")],
    (TEXT, {"prompt": "a", "echo": "x"}), (TEXT, {"prompt": "a", "best_of": 5}), (TEXT, {"prompt": ["a"] * 257}), (TEXT, {"prompt": ["a"] * 60, "n": 9}),
    (TEXT, {"prompt": "a", "suffix": "b"}),
    ("/v1/embeddings", {"input": 5}), ("/v1/embeddings", {}),
    ("/v1/embeddings", {"input": "a", "encoding_format": "x"}),
    ("/v1/responses", {"input": "a", "stream": True, "stream_options": 1}),
    ("/v1/responses", {"input": "a", "stream": True, "stream_options": {"include_obfuscation": "no"}}),
    ("/v1/chat/completions", {"messages": HI, "stream": True, "stream_options": "x"}),
    ("/v1/completions", {"prompt": "a", "stream": True, "stream_options": [1]}),
    ("/v1/completions", {"prompt": "a", "stream": True, "stream_options": {"include_usage": 1}}),
    ("/tokenize", {}), ("/tokenize", {"content": 5}), ("/detokenize", {}), ("/detokenize", {"tokens": ["a"]}),
    ("/detokenize", {"tokens": [-1]}), ("/apply-template", {}), ("/apply-template", {"messages": 1}),
]


@pytest.mark.parametrize("path,body", CASES, ids=lambda v: json.dumps(v)[:60])
def test_a_wrong_field_is_a_400_that_says_which(known, path, body):
    for stream in ({}, {"stream": True}) if not {"stream", "stream_options"} & set(body) else ({},):
        answer = known.post(path, {**body, **stream})
        assert answer.status_code == 400, answer.text
        assert answer.headers["content-type"] == "application/json"
        error = answer.json()["error"]
        assert set(error) == {"message", "type", "param", "code"} and error["message"]
        assert error["type"] == "invalid_request_error"


BODIES = [b"", b"{", b"[]", b"null", b"5", b"{\"a\":1}x", b"\xff\xfe", b"{\"prompt\":\"\xff\"}", b"{\"prompt\": 1e999}",
          b"[" * 100000, b"{\"a\":" * 65 + b"1" + b"}" * 65, b"{'prompt': 'a'}", b"{\"prompt\": \"a\",}", b"\x00",
          b"{\"prompt\": \"\\ud800\"}", b"{\"prompt\": NaN}", b"{\"prompt\": \"a\"}\x00", b"{\"prompt\": \"a\"}\x00x"]


def test_half_of_a_surrogate_pair_is_told(known):
    for body in (b'{"prompt": "hi \\ud83d"}', b'{"prompt": "\\ude00"}'):
        answer = requests.post(known.url + TEXT, data=body, headers={"Content-Type": "application/json"}, timeout=20)
        assert answer.status_code == 400 and "half of a surrogate pair" in answer.json()["error"]["message"]


@pytest.mark.parametrize("body", BODIES, ids=lambda b: repr(b[:20]))
def test_a_body_that_is_no_json_is_a_400(known, body):
    answer = requests.post(known.url + TEXT, data=body, headers={"Content-Type": "application/json"}, timeout=20)
    assert answer.status_code == 400 and answer.json()["error"]["message"]


def test_other_statuses(known):
    assert known.post(TEXT, {"prompt": "a", "model": "gpt"}).json()["error"]["code"] == "model_not_found"
    assert known.post(TEXT, {"prompt": "a", "model": "gpt"}).status_code == 404
    assert known.get("/v1/models/gpt").status_code == 404
    assert known.get("/nothing").status_code == 404
    assert known.get("/../../etc/passwd").status_code == 404
    answer = known.get(TEXT)
    assert answer.status_code == 405 and "POST" in answer.headers["allow"]
    assert requests.delete(known.url + "/v1/models", timeout=20).headers["allow"] == "GET, HEAD, OPTIONS"
    for kind in ("text/plain", "application/x-www-form-urlencoded", "application/jsonx"):
        answer = requests.post(known.url + TEXT, data=b"{}", headers={"Content-Type": kind}, timeout=20)
        assert answer.status_code == 415, kind
    body = b'{"prompt": "a", "max_tokens": 1}'  # bytes, for which requests gives no type
    assert requests.post(known.url + TEXT, data=body, timeout=20).status_code == 200
    assert requests.post(known.url + TEXT, data=body, headers={"Origin": known.url}, timeout=20).status_code == 415
    assert requests.head(known.url + "/v1/models", timeout=20).status_code == 200
    assert requests.options(known.url + TEXT, timeout=20).status_code == 204


def test_a_prompt_that_does_not_fit_is_told_with_both_numbers(known):
    answer = known.post(TEXT, {"prompt": [5] * 4096})
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert error["code"] == "context_length_exceeded"
    # clients know the case by these words, which are OpenAI's and Anthropic's
    assert "maximum context length is 4096 tokens" in error["message"]
    assert "prompt is too long: 4096 tokens > 4095 maximum" in error["message"]
    assert known.post(TEXT, {"prompt": [5] * 4095, "max_tokens": 1}).status_code == 200


def test_null_is_absent_and_unknown_fields_are_ignored(known):
    body = ask(0, max_tokens=None, stop=None, tools=None, tool_choice=None, response_format=None, seed=None, n=None,
               logprobs=None, logit_bias=None, user="me", metadata={"a": 1}, store=False, nonsense=[1])
    assert known.post(CHAT, body).json()["choices"][0]["message"]["content"] == "Hello world!"


def test_models(known):
    models = known.get("/v1/models").json()
    assert models["object"] == "list" and {m["id"] for m in models["data"]} == {"known", "second"}
    assert models["data"][0]["max_model_len"] == 4096
    assert known.client().models.retrieve("second").id == "second"


def test_paths_are_known_without_v1(known):
    """Many leave it out of the address that they give to a client."""
    client = openai.OpenAI(base_url=known.url, api_key="none", max_retries=0)
    assert client.models.retrieve("second").id == "second" and len(client.models.list().data) == 2
    assert client.chat.completions.create(**COLD, model="known", messages=HI).choices[0].message.content == "Hello world!"
    assert client.responses.create(**COLD, model="known", input="hi").output_text == "Hello world!"
    wrong = known.post("/messages", {"messages": HI})
    assert wrong.status_code == 400 and wrong.json()["type"] == "error"  # in the shape of its interface
    for path in ("/v1", "/v1/", "/v1/health", "/v1/api/tags", "/v1/v1/models", "/v2/models"):
        assert known.get(path).status_code == 404, path


def test_mirostat_off_leaves_the_other_steps_on(known):
    def texts(**more):
        ask = {"prompt": "ab", "max_tokens": 12, "temperature": 2, "ignore_eos": True}
        return {known.post(TEXT, {**ask, "seed": seed, **more}).json()["choices"][0]["text"] for seed in range(6)}
    assert len(texts(top_k=1)) == 1 and texts(top_k=-1) == texts(top_k=0)  # -1: none, as vLLM has it
    assert len(texts(top_k=1, mirostat=0, mirostat_tau=5.0, mirostat_eta=0.1)) == 1
    assert len(texts(top_k=1, mirostat=2)) > 1 and texts(mirostat=2) == texts(mirostat_tau=5)
    assert known.post(TEXT, {"prompt": "a", "mirostat": 3}).status_code == 400


def test_completion_as_llama_cpp_has_it(known):
    ask = {"prompt": "<|go0|>", "temperature": 0}
    told = known.post("/completion", ask).json()
    assert (told["content"], told["stop"], told["stop_type"]) == ("Hello world!", True, "eos")
    assert (told["tokens_predicted"], told["tokens_evaluated"], told["model"]) == (5, 1, "known")
    assert known.post("/completion", {**ask, "n_predict": -1}).json()["content"] == "Hello world!"
    cut = known.post("/completion", {**ask, "n_predict": 2}).json()
    assert (cut["content"], cut["stop_type"]) == ("Hello", "limit")
    ids = known.post("/tokenize", {"content": "<|go0|>", "parse_special": True}).json()["tokens"]
    several = known.post("/completion", {**ask, "prompt": [ids, "<|go2|>"], "stop": ["ld"]}).json()
    assert [(t["index"], t["content"]) for t in several] == [(0, "Hello wor"), (1, "a\u20acb")]
    assert (several[0]["stop_type"], several[0]["stopping_word"]) == ("word", "ld")
    lines = known.post("/completion", {**ask, "stream": True}).text.split("\n\n")[:-1]
    events = [json.loads(line.removeprefix("data: ")) for line in lines]
    assert "".join(e["content"] for e in events) == "Hello world!"
    assert [e["stop"] for e in events] == [False] * (len(events) - 1) + [True]
    assert events[-1]["tokens_predicted"] == 5 and events[-1]["stop_type"] == "eos"
    wrong = known.post("/completion", {**ask, "n_predict": "x"})
    assert wrong.status_code == 400 and wrong.json()["error"]["param"] == "n_predict"


def test_tokens(known):
    ids = known.post("/tokenize", {"content": "a\u20acb"}).json()["tokens"]
    assert known.post("/detokenize", {"tokens": ids}).json()["content"] == "a\u20acb"
    pieces = known.post("/tokenize", {"content": "a\u20acb", "with_pieces": True}).json()["tokens"]
    assert [p["piece"] for p in pieces] == ["a", [0xe2], [0x82], [0xac], "b"]


def test_props(known):
    props = known.get("/props").json()
    assert props["total_slots"] == 8 and props["default_generation_settings"]["n_ctx"] == 4096
    assert props["bos_token"] == "<s>" and props["eos_token"] == "</s>"
    assert props["model_path"].endswith("known.gguf") and "<|im_start|>" in props["chat_template"]


def test_embeddings(known, demo):
    values = known.client().embeddings.create(model="known", input=["a", "b"], encoding_format="float")
    assert len(values.data) == 2 and abs(sum(x * x for x in values.data[0].embedding) - 1) < 1e-5
    packed = known.client().embeddings.create(model="known", input=["a", "b"])
    assert [abs(a - b) < 1e-6 for a, b in zip(packed.data[1].embedding, values.data[1].embedding)].count(False) == 0
    assert demo.post("/v1/embeddings", {"input": "a"}).status_code == 501
    assert len(known.client().embeddings.create(model="known", input=["a"] * 1000).data) == 1000
    for wrong in ("", ["a", ""], [], [[]], ["a"] * 2049):
        error = known.post("/v1/embeddings", {"input": wrong}).json()["error"]
        assert error["param"] == "input" and error["type"] == "invalid_request_error"


def test_a_coded_body_is_refused(known):
    kind = {"Content-Type": "application/json"}
    for coding, want in (("gzip", 415), ("br", 415), ("identity", 200)):
        answer = requests.post(known.url + TEXT, data=b'{"prompt": "a", "max_tokens": 1}', timeout=20,
                               headers={**kind, "Content-Encoding": coding})
        assert answer.status_code == want, coding


def test_64_levels_are_read_and_65_are_not(known):
    for n, says in ((64, "prompt"), (65, "deeper")):
        body = b'{"a": ' + b"[" * (n - 1) + b"1" + b"]" * (n - 1) + b"}"
        answer = requests.post(known.url + TEXT, data=body, headers={"Content-Type": "application/json"}, timeout=20)
        assert answer.status_code == 400 and says in answer.json()["error"]["message"], n


def test_objects_have_2048_members_and_lists_any_number(known):
    kind = {"Content-Type": "application/json"}
    for n, want in ((2048, 200), (2049, 400)):
        text = "{" + ",".join(f'"{i}:\\"{{": [{{}}]' for i in range(n)) + "}"
        body = f'{{"prompt": "a", "max_tokens": 1, "x": {text}}}'.encode()
        answer = requests.post(known.url + TEXT, data=body, headers=kind, timeout=20)
        assert answer.status_code == want, answer.text
    assert "more than 2048 members" in answer.json()["error"]["message"]
    # a parser that looks through a list after each of its items would take hours
    body = b'{"prompt": "a", "max_tokens": 1, "x": [' + b"{}," * 4_000_000 + b"{}]}"
    assert requests.post(known.url + TEXT, data=body, headers=kind, timeout=30).status_code == 200
