"""The interfaces of Anthropic and Ollama, asked through their own packages."""
import json

import anthropic
import ollama
import pytest

from test_chat import TOOLS

HI = [{"role": "user", "content": "hi"}]
LOOK = [{"name": "look", "description": "looks", "input_schema": TOOLS[0]["function"]["parameters"]}]


COLD = {"temperature": 0}


def script(n):
    return {"chat_template_kwargs": {"script": n}, **COLD}


@pytest.fixture
def claude(known):
    return anthropic.Anthropic(base_url=known.url, api_key="none", max_retries=0)


def test_a_message(claude):
    m = claude.messages.create(model="known", max_tokens=50, messages=HI, system="be kind", extra_body=COLD)
    assert m.content[0].text == "Hello world!" and m.stop_reason == "end_turn" and m.role == "assistant"
    assert m.usage.output_tokens == 5
    count = claude.messages.count_tokens(model="known", messages=HI, system="be kind")
    assert count.input_tokens == m.usage.input_tokens
    m = claude.messages.create(model="known", max_tokens=2, messages=HI, extra_body=COLD)
    assert m.stop_reason == "max_tokens" and m.content[0].text == "Hello"
    m = claude.messages.create(model="known", max_tokens=9, messages=HI, extra_body=COLD, stop_sequences=["wor"])
    assert m.stop_reason == "stop_sequence" and m.stop_sequence == "wor" and m.content[0].text == "Hello "
    ask = dict(model="known", max_tokens=9, messages=HI, extra_body=COLD, stop_sequences=["never", "ld", "", "wor"])
    m = claude.messages.create(**ask)
    assert m.stop_sequence == "wor" and m.content[0].text == "Hello "
    with claude.messages.stream(**{**ask, "stop_sequences": ["x", "o wo", "wor"]}) as stream:
        final = stream.get_final_message()
    assert final.stop_reason == "stop_sequence" and final.stop_sequence == "o wo" and final.content[0].text == "Hell"
    m = claude.messages.create(**{**ask, "stop_sequences": ["x", "y"]})
    assert m.stop_reason == "end_turn" and m.stop_sequence is None


def test_a_streamed_message(claude):
    with claude.messages.stream(model="known", max_tokens=50, messages=HI, extra_body=COLD) as stream:
        assert "".join(stream.text_stream) == "Hello world!"
        final = stream.get_final_message()
    assert final.stop_reason == "end_turn" and final.usage.output_tokens == 5


def test_a_tool_is_used_and_its_result_read(claude):
    ask = dict(model="known", max_tokens=50, tools=LOOK, messages=HI)
    m = claude.messages.create(**ask, extra_body=script(3))
    use = m.content[-1]
    assert m.stop_reason == "tool_use" and use.type == "tool_use" and use.name == "look" and use.input == {"at": "here"}
    with claude.messages.stream(**ask, extra_body=script(3)) as stream:
        assert stream.get_final_message().content[-1].input == {"at": "here"}
    m = claude.messages.create(**ask, extra_body=script(3), tool_choice={"type": "any"})
    assert m.content[-1].input == {"at": "here"}
    turn = HI + [{"role": "assistant", "content": [u.model_dump(exclude_none=True) for u in m.content]},
                 {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use.id, "content": "a tree"}]}]
    m = claude.messages.create(**{**ask, "messages": turn}, extra_body=COLD)
    assert m.content[0].text == "Hello world!"


def test_thinking(claude):
    ask = dict(model="known", max_tokens=2000, messages=HI, extra_body=COLD,
               thinking={"type": "enabled", "budget_tokens": 1024})
    m = claude.messages.create(**ask)
    assert [b.type for b in m.content] == ["thinking", "text"]
    assert m.content[0].thinking == "hm, well" and m.content[1].text == "fine"
    with claude.messages.stream(**ask) as stream:
        final = stream.get_final_message()
    assert final.content[0].thinking == "hm, well" and final.content[1].text == "fine"


@pytest.mark.parametrize("fields", [{"max_tokens": 0}, {"messages": []},
                                    {"messages": [{"role": "system", "content": "a"}]},
                                    {"tools": [{"name": "x"}]}, {"tool_choice": {"type": "any"}},
                                    {"extra_body": {"temperature": 5}}, {"messages": [{"role": "user", "content": []}]},
                                    {"extra_body": {"thinking": {"type": "enabled", "budget_tokens": "x"}}},
                                    {"messages": [{"role": "user", "content": [{"type": "image"}]}]}])
def test_wrong_messages(claude, fields):
    with pytest.raises(anthropic.BadRequestError) as error:
        claude.messages.create(**{"model": "known", "max_tokens": 5, "messages": HI, **fields})
    assert error.value.body["type"] == "error" and error.value.body["error"]["message"]


def test_the_form_of_a_message_is_kept_to(claude):
    ask = dict(model="known", max_tokens=50, messages=HI, thinking={"type": "disabled"}, extra_body=COLD)

    def form(schema, **more):
        return {"output_config": {"effort": "high", "format": {"type": "json_schema", "schema": schema, **more}}}

    assert claude.messages.create(**ask, **form({"const": "no"})).content[0].text == '"no"'
    with claude.messages.stream(**ask, **form({"const": 5})) as stream:
        assert stream.get_final_message().content[0].text == "5"
    assert claude.messages.create(**ask, output_config={"effort": "low"}).content[0].text == "Hello world!"
    look = {**LOOK[0], "input_schema": {"type": "object", "properties": {"at": {"not": {"const": "x"}}}}}
    assert claude.messages.create(**ask, tools=[look]).content
    for wrong in (form({"not": {}}), form(5), form(None), form({}, type="text"), {"output_config": {"format": 5}},
                  {"output_config": 5}, {"tools": [{**look, "strict": True}]}, {"tools": [{**look, "strict": 5}]}):
        with pytest.raises(anthropic.BadRequestError):
            claude.messages.create(**ask, **wrong)


def test_a_form_at_its_older_place_is_kept_to(claude):
    """LiteLLM sends output_format, also now."""
    def said(**more):
        m = claude.messages.create(model="known", max_tokens=50, messages=HI, thinking={"type": "disabled"},
                                   extra_body={**COLD, **more})
        return m.content[0].text

    older = {"type": "json_schema", "schema": {"const": "no"}}
    assert said(output_format=older) == '"no"' and said(output_format=None) == "Hello world!"
    newer = {"format": {"type": "json_schema", "schema": {"const": 5}}}
    assert said(output_format=older, output_config=newer) == "5"
    for wrong in (5, {}, {"type": "text"}, {"type": "json_schema"}):
        with pytest.raises(anthropic.BadRequestError):
            said(output_format=wrong)


def test_what_the_system_says_between_turns_is_read(claude):
    def count(messages):
        return claude.messages.count_tokens(model="known", messages=messages, system="be kind").input_tokens

    def one(role, content):
        return {"role": role, "content": content}

    kind = [{"type": "text", "text": "b"}]
    assert count([one("user", "a"), one("system", kind), one("user", "c")]) == count([one("user", "a\n\nb\n\nc")])
    turns = [one("user", "a"), one("assistant", "x")]
    assert count([*turns, one("system", "b")]) == count([*turns, one("user", "b")])
    m = claude.messages.create(model="known", max_tokens=9, messages=[*HI, one("system", "b")], extra_body=COLD)
    assert m.content[0].text == "Hello world!"
    for system in ({}, {"system": "be kind"}):
        with pytest.raises(anthropic.BadRequestError) as error:
            claude.messages.create(model="known", max_tokens=9, messages=[one("system", "b"), *HI], **system)
        assert "messages[0].role" in error.value.body["error"]["message"]


def test_what_claude_code_tells_of_its_tools_is_read(claude):
    """Its search answers with references; tools that come and go later are told in blocks of their own."""
    def count(*messages):
        return claude.messages.count_tokens(model="known", messages=[*HI, *messages], tools=LOOK).input_tokens

    def answered(*parts):
        call = {"type": "tool_use", "id": "a", "name": "look", "input": {}}
        result = {"type": "tool_result", "tool_use_id": "a", "content": list(parts)}
        return count({"role": "assistant", "content": [call]}, {"role": "user", "content": [result]})

    found = {"type": "tool_reference", "tool_name": "look"}
    assert answered(found) == answered({"type": "text", "text": "look"}) > answered()
    come = {"type": "tool_addition", "tool": {"type": "tool_reference", "tool_name": "look"}}
    gone = {**come, "type": "tool_removal"}
    text = {"type": "text", "text": "b"}
    assert count({"role": "system", "content": [text, come]}) == count({"role": "system", "content": "b"})
    assert count({"role": "system", "content": [come, gone]}) == count()
    with pytest.raises(anthropic.BadRequestError):
        answered({"type": "tool_reference"})


def test_every_effort_of_the_clients_is_taken(known):
    for effort in ("none", "minimal", "low", "medium", "high", "xhigh", "max"):
        for path, fields in (("/v1/chat/completions", {"messages": HI, "reasoning_effort": effort}),
                             ("/v1/responses", {"input": "hi", "reasoning": {"effort": effort}}),
                             ("/api/chat", {"messages": HI, "stream": False, "think": effort})):
            answer = known.post(path, {**fields, **COLD, "options": COLD})
            assert answer.status_code == 200 and "Hello world!" in answer.text, (effort, answer.text)


def test_the_effort_of_a_message_reaches_the_template(start, known_file, tmp_path):
    (tmp_path / "template").write_text("{{ reasoning_effort }}{% for m in messages %}{{ m.content }}{% endfor %}")
    server = start(known_file, "--chat-template", str(tmp_path / "template"))

    def count(**more):
        answer = server.post("/v1/messages/count_tokens", {"messages": HI, **more})
        return answer.json()["input_tokens"] if answer.status_code == 200 else answer.json()["error"]["message"]

    for effort in ("low", "medium", "high", "xhigh", "max"):
        prompt = server.post("/apply-template", {"messages": HI, "reasoning_effort": effort}).json()
        assert prompt["prompt"].startswith(effort) and len(prompt["tokens"]) > count()
        assert count(output_config={"effort": effort}) == len(prompt["tokens"])
    for wrong in ("much", "none", 5):
        assert "output_config.effort" in count(output_config={"effort": wrong})


def test_a_failure_has_the_type_that_the_interface_knows(start, known_file, tmp_path):
    with open(known_file, "rb") as file:
        data = file.read()
    half = len(data) // 2
    (tmp_path / "nan.gguf").write_bytes(data[:half] + b"\xff" * (len(data) - half))  # weights that are no numbers
    server = start(str(tmp_path / "nan.gguf"))
    for path, want in (("/v1/messages", "api_error"), ("/v1/chat/completions", "server_error")):
        answer = server.post(path, {"messages": HI, "max_tokens": 5})
        assert answer.status_code == 500 and answer.json()["error"]["type"] == want, answer.text
        assert "NaN" in answer.json()["error"]["message"]
    client = anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0)
    with pytest.raises(anthropic.InternalServerError) as error:
        client.messages.create(model="nan", max_tokens=5, messages=HI)
    assert error.value.body["type"] == "error"
    assert server.post("/api/chat", {"messages": HI, "stream": False}).json()["error"].count("NaN") == 1
    assert server.get("/health").status_code == 200


def test_ollama(known):
    client = ollama.Client(host=known.url)
    cold = {"temperature": 0}
    answer = client.chat(model="known", messages=HI, options=cold)
    assert answer.message.content == "Hello world!" and answer.done and answer.done_reason == "stop"
    assert answer.eval_count == 5 and answer.prompt_eval_count > 5
    pieces = list(client.chat(model="known:latest", messages=HI, options={**cold, "num_predict": 2}, stream=True))
    assert "".join(p.message.content for p in pieces) == "Hello" and pieces[-1].done_reason == "length"
    assert client.generate(model="known", prompt="hi", options=cold).response == "Hello world!"
    assert client.generate(model="known", prompt="<|go1|>", raw=True, options=cold).response == "abcSTOPdef"
    assert client.chat(model="known", messages=HI, options=cold, think=True).message.thinking == "hm, well"
    assert client.chat(model="known", messages=HI, options={**cold, "num_predict": -2}).done_reason == "stop"
    assert client.list().models[0].model == "known"
    assert client.show("known").capabilities == ["completion", "tools", "thinking"]
    with pytest.raises(ollama.ResponseError) as error:
        client.chat(model="other", messages=HI)
    assert error.value.status_code == 404 and "other" in error.value.error
    with pytest.raises(ollama.ResponseError):
        client.chat(model="known", messages=[{"role": "wizard", "content": "x"}])
    with pytest.raises(ollama.ResponseError):
        client.generate(model="known", prompt="x", images=[b"x"])


def test_ollamas_version_is_that_of_its_interface(known):
    told = known.get("/api/version").json()["version"]
    assert [int(part) for part in told.split(".")] >= [0, 6, 4]  # the least that Copilot in VS Code takes


def test_ollama_embeds(known, demo):
    client = ollama.Client(host=known.url)
    want = [v.embedding for v in known.client().embeddings.create(model="known", input=["a", "bc"], encoding_format="float").data]
    told = client.embed(model="known", input=["a", "bc"])
    assert told.embeddings == want and told.model == "known" and told.prompt_eval_count > 0
    assert client.embed(model="known", input="a").embeddings == want[:1]
    for server, fields, want in ((demo, {}, 501), (known, {"input": ""}, 400), (known, {"model": "other"}, 404)):
        answer = server.post("/api/embed", {"input": "a", **fields})
        assert answer.status_code == want and answer.json()["error"] and len(answer.json()) == 1


def test_a_response_that_ends_while_it_thinks_is_the_same_streamed(known):
    for limit, kinds in ((1, ["reasoning"]), (2, ["reasoning"]), (50, ["reasoning", "message"])):
        body = {"input": "hi", "max_output_tokens": limit, "chat_template_kwargs": {"enable_thinking": True}, **COLD}
        whole = known.post("/v1/responses", body).json()
        lines = known.post("/v1/responses", {**body, "stream": True}).text.splitlines()
        streamed = json.loads([line for line in lines if line.startswith("data: ")][-1][6:])["response"]
        for told in (whole, streamed):
            assert [item["type"] for item in told["output"]] == kinds
            assert told["status"] == ("completed" if limit == 50 else "incomplete")
    (only,) = known.post("/v1/responses", {"input": "hi", **script(9)}).json()["output"]
    assert only["type"] == "message" and only["content"][0]["text"] == ""


def test_ollama_embeds_one_text_in_its_older_form(known, demo):
    client = ollama.Client(host=known.url)
    for text in ("a", "bc de"):
        (want,) = client.embed(model="known", input=text).embeddings
        assert client.embeddings(model="known", prompt=text).embedding == want
    for server, fields, want in ((demo, {}, 501), (known, {"prompt": ""}, 400), (known, {"prompt": ["a", "b"]}, 400),
                                 (known, {"prompt": None, "input": "a"}, 400), (known, {"model": "other"}, 404)):
        answer = server.post("/api/embeddings", {"prompt": "a", **fields})
        assert answer.status_code == want and answer.json()["error"] and len(answer.json()) == 1


def test_ollama_tells_what_is_loaded(known):
    (running,), (listed,) = (told.models for told in (ollama.Client(host=known.url).ps(), ollama.Client(host=known.url).list()))
    assert running.model == running.name == listed.model == "known" and running.size == listed.size > 0
    assert running.context_length == 4096 and running.size_vram == 0 and running.expires_at.year > 2200
    assert running.details.quantization_level == "F32"
    assert len(running.digest) == len(listed.digest) == 64  # `ollama list` and `ollama ps` print the first twelve
    assert known.post("/api/show", {"model": "known"}).json()["model_info"]["general.basename"] == "known"  # Copilot's name of it


def test_ollama_tells_log_probabilities(known):
    client = ollama.Client(host=known.url)
    ask = dict(model="known", options=COLD, logprobs=True, top_logprobs=2)

    def shown(told):
        return [(p.token, [(top.token, top.logprob) for top in p.top_logprobs]) for one in told for p in one.logprobs or []]

    want = known.client().chat.completions.create(model="known", messages=HI, logprobs=True, top_logprobs=2, temperature=0)
    whole = client.chat(messages=HI, **ask)
    assert shown([whole]) == [(p.token, [(top.token, top.logprob) for top in p.top_logprobs])
                              for p in want.choices[0].logprobs.content]
    pieces = list(client.chat(messages=HI, stream=True, **ask))
    assert shown(pieces) == shown([whole]) and [len(p.logprobs or []) for p in pieces] == [1] * 5 + [0]
    for more in ({"prompt": "hi"}, {"prompt": "<|go0|>", "raw": True}):
        told = client.generate(**more, **ask)
        assert told.response == "".join(token for token, _ in shown([told])) == "Hello world!"
        assert shown(client.generate(stream=True, **more, **ask)) == shown([told])
        assert all(len(top) == 2 for _, top in shown([told]))
        told = client.generate(**more, **{**ask, "top_logprobs": None})
        assert all(not top for _, top in shown([told])) and len(shown([told])) == 5
        assert client.generate(**more, **{**ask, "logprobs": False}).logprobs is None
    pieces = list(client.chat(messages=HI, stream=True, think=True, **ask))  # all tokens are told, also those of marks
    assert "".join(token for token, _ in shown(pieces)) == "hm, well</think>fine"
    for wrong in ({"logprobs": 5}, {"top_logprobs": 21}, {"top_logprobs": "x"}):
        body = {"messages": HI, "logprobs": True, **wrong}
        assert known.post("/api/chat", body).status_code == 400, wrong


def test_a_prompt_without_a_template_has_no_system(known, start, known_file):
    raw = {"prompt": "<|go0|>", "raw": True, "stream": False, "options": COLD}
    for more, status in (({}, 200), ({"system": ""}, 200), ({"system": "be kind"}, 400), ({"system": 5}, 400)):
        answer = known.post("/api/generate", {**raw, **more})
        assert answer.status_code == status and (status == 200 or "system" in answer.json()["error"])
    assert known.post("/api/generate", {**raw, "raw": False, "system": "be kind"}).status_code == 200


def test_ollama_has_one_answer_and_no_limit_of_its_own(known):
    client = ollama.Client(host=known.url)
    pieces = list(client.chat(model="known", messages=HI, options={"temperature": 0, "n": 4}, stream=True))
    assert "".join(p.message.content for p in pieces) == "Hello world!"
    for more in ({}, {"num_predict": None}, {"num_predict": -1}, {"num_predict": 0}):
        answer = client.generate(model="known", prompt="<|go8|>", raw=True, options={"temperature": 0, **more})
        assert answer.response.endswith("The end.") and answer.eval_count > 16, more


def test_minus_one_is_no_limit(known):
    ask = {"messages": HI, **script(8)}
    for path, fields, text in (
            ("/v1/chat/completions", {**ask, "max_tokens": -1}, lambda a: a["choices"][0]["message"]["content"]),
            ("/v1/chat/completions", {**ask, "max_completion_tokens": -1, "max_tokens": 1},
             lambda a: a["choices"][0]["message"]["content"]),
            ("/v1/completions", {"prompt": "<|go8|>", "max_tokens": -1, **COLD}, lambda a: a["choices"][0]["text"]),
            ("/v1/responses", {"input": "hi", "max_output_tokens": -1, **script(8)},
             lambda a: a["output"][-1]["content"][0]["text"]),
            ("/v1/messages", {**ask, "max_tokens": -1}, lambda a: a["content"][-1]["text"])):
        answer = known.post(path, fields)
        assert answer.status_code == 200 and text(answer.json()).endswith("The end."), (path, answer.text)


def test_messages_of_a_user_in_a_row_are_one(known):
    def count(messages):
        return known.post("/v1/messages/count_tokens", {"model": "known", "messages": messages}).json()["input_tokens"]

    def user(content):
        return {"role": "user", "content": content}

    one = count([user("a\n\nb\n\nc")])
    assert count([user("a"), user([{"type": "text", "text": "b"}]), user("c")]) == one
    assert count([user("a"), {"role": "assistant", "content": "x"}, user("b")]) > one
    # the result of a call stays a message of its own
    use = {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "look", "input": {}}]}
    result = [{"type": "tool_result", "tool_use_id": "t", "content": "a tree"}]
    assert count([*HI, use, user(result), user("go on")]) == count([*HI, use, user([*result, {"type": "text", "text": "go on"}])])


def test_ollama_loads_and_unloads(known):
    client = ollama.Client(host=known.url)
    for more, reason in (({}, "load"), ({"keep_alive": "5m"}, "load"), ({"keep_alive": 0}, "unload"),
                         ({"keep_alive": "0s"}, "unload")):
        told = client.generate(model="known", **more)
        assert told.done and told.done_reason == reason and told.response == ""
        told = client.chat(model="known", messages=[], **more)
        assert told.done and told.done_reason == reason and told.message.content == ""
    # one object, also where a stream is the default
    assert known.post("/api/generate", {"model": "known"}).json()["done_reason"] == "load"
    assert known.post("/api/chat", {"model": "known"}).json()["done_reason"] == "load"
    assert known.post("/api/generate", {"model": "other"}).status_code == 404


def test_ollama_takes_an_answer_without_text_back(known):
    """Home Assistant leaves the content of such an answer out, in all later turns."""
    def count(*messages):
        told = known.post("/api/chat", {"messages": [*HI, *messages, *HI], "stream": False, "options": COLD})
        return told.json()["prompt_eval_count"]

    empty = count({"role": "assistant", "content": ""})
    assert count({"role": "assistant"}) == count({"role": "assistant", "content": None}) == empty
    assert count({"role": "assistant"}, {"role": "user"}) > empty


def test_calls_of_ollama_have_ids(start, known_file, tmp_path):
    """Zed wants one. Some clients send it back with the call and not with the result."""
    (tmp_path / "template").write_text(
        "{% for m in messages %}{% for c in m.tool_calls or [] %}<tool_call>{{ c.id }}={{ c.function.name }};</tool_call>"
        "{% endfor %}{% if m.role == 'tool' %}{{ m.tool_call_id }}:{{ m.content }};{% endif %}{% endfor %}<|go3|>")
    server = start(known_file, "--chat-template", str(tmp_path / "template"), "--tool-parser", "hermes")
    ask = {"messages": HI, "tools": TOOLS, "options": COLD}
    (call,) = server.post("/api/chat", {**ask, "stream": False}).json()["message"]["tool_calls"]
    lines = [json.loads(line) for line in server.post("/api/chat", ask).text.splitlines()]
    (other,) = [call for line in lines for call in line["message"].get("tool_calls", [])]
    assert call["function"] == other["function"] and call["id"] != other["id"]

    def prompt(ids, results):
        # a limit of one token: the count of the prompt's tokens tells which ids it has
        calls = [{**({"id": id} if id else {}), "function": {"name": "look", "arguments": {}}} for id in ids]
        tools = [{"role": "tool", "content": "x", **({"tool_call_id": id} if id else {})} for id in results]
        told = server.post("/api/chat", {**ask, "stream": False, "messages": [
            *HI, {"role": "assistant", "content": "", "tool_calls": calls}, *tools]})
        assert told.status_code == 200, told.text
        return told.json()["prompt_eval_count"]

    assert prompt(["a", "b" * 30], [None, None]) == prompt(["a", "b" * 30], ["a", "b" * 30])
    assert prompt([None, None], [None, None]) == prompt(["call00000", "call00001"], ["call00000", "call00001"])
    assert prompt(["a"], [None, None]) == prompt(["a"], ["a", "call00001"])


def test_calls_of_ollama_are_numbered(known):
    """LiteLLM joins the calls of a stream that have no number."""
    ask = {"messages": HI, "tools": TOOLS, "options": {**COLD, "chat_template_kwargs": {"script": 10}}}
    whole = known.post("/api/chat", {**ask, "stream": False}).json()["message"]["tool_calls"]
    lines = [json.loads(line) for line in known.post("/api/chat", ask).text.splitlines()]
    for calls in (whole, [call for line in lines for call in line["message"].get("tool_calls", [])]):
        assert [call["function"]["arguments"]["at"] for call in calls] == ["there", "ab"]
        assert [call["index"] for call in calls] == [call["function"]["index"] for call in calls] == [0, 1]


def test_ollama_takes_calls_back(known):
    said = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "look", "arguments": {"at": "x"}}}]}
    body = {"model": "known", "messages": [*HI, said, {"role": "tool", "content": "a tree"}], "stream": False,
            "options": {"temperature": 0}}
    assert known.post("/api/chat", body).json()["message"]["content"] == "Hello world!"
    said["tool_calls"][0]["function"].pop("name")
    assert known.post("/api/chat", body).status_code == 400
    kwargs = {"think": True, "options": {"chat_template_kwargs": 5}}
    assert known.post("/api/chat", {"model": "known", "messages": HI, **kwargs}).status_code == 400
    body = {"max_tokens": 5, "messages": HI, "thinking": {"type": "enabled", "budget_tokens": 1024}}
    assert known.post("/v1/messages", {**body, "chat_template_kwargs": 5}).status_code == 400


RESPONSE_TOOLS = [{"type": "function", **TOOLS[0]["function"]}]


def test_responses(known):
    client = known.client()
    r = client.responses.create(model="known", input="hi", instructions="be kind", temperature=0)
    assert r.output_text == "Hello world!" and r.status == "completed" and r.usage.output_tokens == 5
    r = client.responses.create(model="known", input="hi", temperature=0, max_output_tokens=2)
    assert r.output_text == "Hello" and r.status == "incomplete" and r.incomplete_details.reason == "max_output_tokens"
    assert r.output[0].status == "incomplete" and r.truncation == "disabled" and r.reasoning.effort is None
    events = list(client.responses.create(model="known", input="hi", temperature=0, max_output_tokens=2, stream=True))
    assert events[-1].response.output[0].status == "incomplete" == events[-2].item.status
    events = list(client.responses.create(model="known", input=HI, temperature=0, stream=True))
    assert [e.sequence_number for e in events] == list(range(len(events)))
    assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == "Hello world!"
    assert events[0].type == "response.created" and events[-1].type == "response.completed"
    assert events[-1].response.output_text == "Hello world!"
    with client.responses.stream(model="known", input="hi", extra_body=COLD) as stream:
        assert stream.get_final_response().output_text == "Hello world!"
    # an answer without text: what the last event holds was announced by events before it
    events = list(client.responses.create(model="known", input="hi", stream=True, extra_body=script(9)))
    assert [e.type.removeprefix("response.") for e in events] == [
        "created", "in_progress", "output_item.added", "content_part.added", "output_text.delta", "output_text.done",
        "content_part.done", "output_item.done", "completed"]
    assert events[-2].item.id == events[2].item.id == events[-1].response.output[0].id
    assert events[-1].response.output_text == ""


def test_responses_call_functions(known):
    client = known.client()
    ask = dict(model="known", input=HI, tools=RESPONSE_TOOLS, extra_body=script(3))
    call = client.responses.create(**ask).output[-1]
    assert call.type == "function_call" and call.name == "look" and call.arguments == '{"at": "here"}'
    events = list(client.responses.create(**ask, stream=True))
    assert "".join(e.delta for e in events if e.type == "response.function_call_arguments.delta") == call.arguments
    assert events[-1].response.output[-1].arguments == call.arguments
    turn = HI + [call.model_dump(), {"type": "function_call_output", "call_id": call.call_id, "output": "a tree"}]
    r = client.responses.create(model="known", input=turn, tools=RESPONSE_TOOLS, extra_body=COLD)
    assert r.output_text == "Hello world!"
    # text and a call are one turn of the assistant, as in a chat
    said = {"type": "message", "role": "assistant", "content": "Let me see."}
    r = client.responses.create(model="known", input=turn[:1] + [said] + turn[1:], tools=RESPONSE_TOOLS, extra_body=COLD)
    tools = [{"type": "function", "function": {k: v for k, v in tool.items() if k != "type"}} for tool in RESPONSE_TOOLS]
    called = {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
    chat = HI + [{"role": "assistant", "content": "Let me see.", "tool_calls": [called]},
                 {"role": "tool", "tool_call_id": call.call_id, "content": "a tree"}]
    alike = client.chat.completions.create(model="known", messages=chat, tools=tools, extra_body=COLD)
    assert r.usage.input_tokens == alike.usage.prompt_tokens


def test_responses_leave_out_tools_of_others(known):
    """Codex sends them beside its functions."""
    def ask(*tools, **more):
        return known.post("/v1/responses", {"input": "hi", "tools": tools, **script(3), **more})

    others = [{"type": "web_search", "external_web_access": True}, {"type": "custom", "name": "apply_patch"},
              {"type": "namespace", "name": "mcp", "tools": []}]
    told = ask(others[0], *RESPONSE_TOOLS, *others[1:])
    assert told.status_code == 200 and told.json()["output"][-1]["name"] == "look", told.text
    assert told.json()["usage"]["input_tokens"] == ask(*RESPONSE_TOOLS).json()["usage"]["input_tokens"]
    for wrong in (ask(*others), ask(*others, tool_choice="required"), ask({}, *RESPONSE_TOOLS), ask({"type": 5}, *RESPONSE_TOOLS)):
        assert wrong.status_code == 400 and wrong.json()["error"]["param"].startswith("tools"), wrong.text


def test_responses_think_and_keep_to_schemas(known):
    thinking = {"chat_template_kwargs": {"enable_thinking": True}, **COLD}
    r = known.client().responses.create(model="known", input="hi", extra_body=thinking)
    assert r.output[0].type == "reasoning" and r.output[0].content[0].text == "hm, well" and r.output_text == "fine"
    form = {"format": {"type": "json_schema", "name": "x", "schema": {
        "type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"],
        "additionalProperties": False}}}
    r = known.client().responses.create(model="known", input="hi", text=form, extra_body=script(5))
    assert r.output_text == '{"age": 42}'
    for wrong in ({"input": 5}, {}, {"input": "a", "previous_response_id": "x"}, {"input": [{"type": "magic"}]},
                  {"input": "a", "tools": [{"type": "web_search"}]}, {"input": "a", "max_output_tokens": 0}):
        assert known.post("/v1/responses", wrong).status_code == 400, wrong
    for wrong, param in (({"input": []}, "input"), ({"input": [{"role": "x", "content": "a"}]}, "input[0].role"),
                         ({"input": [{"role": "user", "content": []}]}, "input[0].content"),
                         ({"input": "a", "text": {"format": {"type": "x"}}}, "text.format.type"),
                         ({"input": "a", "text": {"format": {"type": "json_schema"}}}, "text.format.schema"),
                         ({"input": "a", "reasoning": {"effort": "x"}}, "reasoning.effort"),
                         ({"input": "a" * 5000}, "input")):
        error = known.post("/v1/responses", wrong).json()["error"]
        assert error["param"] == param, error


def test_what_was_thought_goes_back_to_the_template(start, known_file, tmp_path):
    path = tmp_path / "template"
    path.write_text("{% for m in messages %}<{{ m.role }}>{% if m.reasoning_content %}({{ m.reasoning_content }}){% endif %}"
                    "{{ m.content }}{% for c in m.tool_calls or [] %}[{{ c.function.name }}]{% endfor %}{% endfor %}"
                    "{# <think> </think> <tool_call> #}")
    server = start(known_file, "--chat-template", str(path))
    call = {"type": "function_call", "call_id": "call00000", "name": "look", "arguments": "{}"}
    thought = {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]}
    items = [*HI, thought, call, {"type": "function_call_output", "call_id": "call00000", "output": "tree"},
             {**thought, "content": []}, {"type": "reasoning", "summary": []}, thought,
             {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a tree"}]}, *HI]
    called = {"id": "call00000", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    messages = [*HI, {"role": "assistant", "content": None, "reasoning": "hm", "tool_calls": [called]},
                {"role": "tool", "tool_call_id": "call00000", "content": "tree"},
                {"role": "assistant", "content": "a tree", "reasoning_content": "hm", "reasoning": "x"}, *HI]
    prompt = server.post("/apply-template", {"messages": messages}).json()
    assert prompt["prompt"] == "<user>hi<assistant>(hm)[look]<tool>tree<assistant>(hm)a tree<user>hi"
    r = server.post("/v1/responses", {"input": items, "max_output_tokens": 1}).json()
    assert r["usage"]["input_tokens"] == len(prompt["tokens"]), r
    assert server.post("/v1/responses", {"input": [{**thought, "content": "x"}]}).status_code == 400


def test_an_item_that_is_not_stored_is_told(known):
    """The AI SDK names items of earlier answers by their ids, unless it is told that nothing is stored."""
    told = known.post("/v1/responses", {"input": [*HI, {"type": "item_reference", "id": "msg_1"}]})
    assert told.status_code == 400 and "store: false" in told.json()["error"]["message"]
    assert told.json()["error"]["param"] == "input[1].id"


def test_refusals_are_read_as_text(known):
    said = {"role": "assistant", "content": [{"type": "refusal", "refusal": "I will not"}]}
    turn = [*HI, said, *HI]
    prompt = known.post("/apply-template", {"messages": turn}).json()["prompt"]
    assert "assistant\nI will not<|im_end|>" in prompt
    for wrong in ({"type": "refusal"}, {"type": "refusal", "refusal": 5}, {"type": "refusal", "text": "x"}):
        assert known.post("/apply-template", {"messages": [*HI, {**said, "content": [wrong]}]}).status_code == 400
    r = known.client().responses.create(model="known", input=turn, extra_body=COLD)
    assert r.output_text == "Hello world!" and r.usage.input_tokens == len(tokens_of(known, turn))


def tokens_of(known, messages):
    return known.post("/apply-template", {"messages": messages}).json()["tokens"]


def test_log_probabilities_of_responses(known):
    client = known.client()
    ask = dict(model="known", input="hi", extra_body=COLD, include=["message.output_text.logprobs"], top_logprobs=3)
    chat = client.chat.completions.create(model="known", messages=HI, temperature=0, logprobs=True, top_logprobs=3)
    wanted = [(p.token, p.logprob, [(t.token, t.logprob) for t in p.top_logprobs]) for p in chat.choices[0].logprobs.content]

    def told(list_):
        return [(p.token, p.logprob, [(t.token, t.logprob) for t in p.top_logprobs]) for p in list_]

    assert told(client.responses.create(**ask).output[0].content[0].logprobs) == wanted and len(wanted) == 5
    events = list(client.responses.create(**ask, stream=True))
    deltas = [p for e in events if e.type == "response.output_text.delta" for p in e.logprobs]
    done = [e for e in events if e.type == "response.output_text.done"][0]
    assert told(deltas) == wanted == told(done.logprobs) == told(events[-1].response.output[0].content[0].logprobs)
    # those of thinking belong to no text
    thinking = {"chat_template_kwargs": {"enable_thinking": True}, **COLD}
    r = client.responses.create(**{**ask, "extra_body": thinking})
    assert "".join(p.token for p in r.output[-1].content[0].logprobs) == "fine"
    r = client.responses.create(**{**ask, "include": []})
    assert r.output[0].content[0].logprobs == []


def test_ollama_shows_its_template(known):
    for body in ({"model": "known"}, {"name": "known"}, {"name": "second:latest"}):
        answer = known.post("/api/show", body).json()
        assert "<|im_start|>" in answer["template"] and answer["details"]["format"] == "gguf"
    assert known.post("/api/show", {"name": "other"}).status_code == 404
    assert known.post("/api/show", {"name": 5}).status_code == 400
    assert known.post("/api/generate", {"prompt": "a", "template": 5}).status_code == 400
