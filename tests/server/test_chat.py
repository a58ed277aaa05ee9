"""Conversations with a model whose answers are known to the letter, through the openai package and plain requests."""
import json

import pytest

from conftest import ask

TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {
    "type": "object", "properties": {"at": {"type": "string"}}, "required": ["at"]}}}]


def chunks_of(known, body):
    text = known.post("/v1/chat/completions", {**body, "stream": True}).text
    events = [line[6:] for line in text.split("\n\n") if line.startswith("data: ")]
    assert events[-1] == "[DONE]"
    return [json.loads(event) for event in events[:-1]]


def extra(body):
    """The same for the client, which takes fields of its own by another name."""
    body = dict(body)
    return {"extra_body": {"chat_template_kwargs": body.pop("chat_template_kwargs")}, **body}


def test_answer_through_the_client(known):
    answer = known.client().chat.completions.create(**extra(ask(0)))
    assert answer.choices[0].message.content == "Hello world!"
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.object == "chat.completion" and answer.model == "known"
    assert answer.usage.completion_tokens == 5
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 5


def test_stream_through_the_client(known):
    body = ask(0, stream=True, stream_options={"include_usage": True})
    stream = known.client().chat.completions.create(**extra(body))
    chunks = list(stream)
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "Hello world!"
    reasons = [c.choices[0].finish_reason for c in chunks if c.choices]
    assert reasons[-1] == "stop" and not any(reasons[:-1])
    assert not chunks[-1].choices and chunks[-1].usage.completion_tokens == 5
    assert all(c.usage is None for c in chunks[:-1])


def test_whole_characters_only(known):
    texts = [c["choices"][0]["delta"].get("content") for c in chunks_of(known, ask(2))]
    assert [t for t in texts if t] == ["a", "\u20ac", "b"]


@pytest.mark.parametrize("stop", ["STOP", ["nothing", "STOP"], "TO", "S"])
def test_stop_string_over_tokens_never_leaks(known, stop):
    body = ask(1, stop=stop)
    whole = known.post("/v1/chat/completions", body).json()["choices"][0]
    streamed = "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks_of(known, body))
    want = "abcS" if stop == "TO" else "abc"
    assert whole["message"]["content"] == streamed == want
    assert whole["finish_reason"] == "stop"


def test_what_only_began_like_a_stop_string_comes_out(known):
    answer = known.post("/v1/chat/completions", ask(1, stop="defx")).json()["choices"][0]
    assert answer["message"]["content"] == "abcSTOPdef"


def test_thinking_goes_to_its_own_field(known):
    body = {**ask(0), "chat_template_kwargs": {"enable_thinking": True}}
    answer = known.post("/v1/chat/completions", body).json()
    message = answer["choices"][0]["message"]
    assert message["reasoning_content"] == message["reasoning"] == "hm, well"
    assert message["content"] == "fine"
    assert answer["usage"]["completion_tokens_details"]["reasoning_tokens"] > 0
    deltas = [c["choices"][0]["delta"] for c in chunks_of(known, body)]
    assert "".join(d.get("reasoning_content", "") for d in deltas) == "hm, well"
    assert "".join(d.get("content") or "" for d in deltas) == "fine"


def test_thinking_stays_in_the_text_if_asked(known):
    body = {**ask(0, reasoning_format="none"), "chat_template_kwargs": {"enable_thinking": True}}
    message = known.post("/v1/chat/completions", body).json()["choices"][0]["message"]
    assert "hm, well</think>fine" in message["content"] and "reasoning_content" not in message


@pytest.mark.parametrize("choice", ["auto", "required", {"type": "function", "function": {"name": "look"}}])
def test_tool_calls(known, choice):
    body = ask(3, tools=TOOLS, tool_choice=choice)
    choice = known.post("/v1/chat/completions", body).json()["choices"][0]
    call = choice["message"]["tool_calls"][0]
    assert choice["message"]["content"] is None and choice["finish_reason"] == "tool_calls"
    assert call["type"] == "function" and call["function"]["name"] == "look" and call["id"]
    assert json.loads(call["function"]["arguments"]) == {"at": "here"}
    deltas = [c["choices"][0]["delta"]["tool_calls"][0] for c in chunks_of(known, body)
              if "tool_calls" in c["choices"][0]["delta"]]
    assert deltas[0]["function"] == {"name": "look", "arguments": ""} and deltas[0]["type"] == "function"
    assert all("id" not in d for d in deltas[1:]) and len(deltas) > 2
    assert "".join(d["function"]["arguments"] for d in deltas) == call["function"]["arguments"]


def test_a_call_that_is_required_leaves_no_room_for_text(known):
    body = ask(0, tools=TOOLS, tool_choice="required", max_tokens=20)
    choice = known.post("/v1/chat/completions", body).json()["choices"][0]
    assert "Hel" not in choice["message"]["content"] and choice["finish_reason"] == "length"


def test_tools_with_choice_none_give_text(known):
    choice = known.post("/v1/chat/completions", ask(0, tools=TOOLS, tool_choice="none")).json()["choices"][0]
    assert choice["message"]["content"] == "Hello world!" and "tool_calls" not in choice["message"]
    body = ask(3, tools=TOOLS, tool_choice="none")  # and so does a call that is written all the same
    choice = known.post("/v1/chat/completions", body).json()["choices"][0]
    written = "<tool_call>\n{\"name\": \"look\", \"arguments\": {\"at\": \"here\"}}\n</tool_call>"
    assert choice["message"]["content"] == written and "tool_calls" not in choice["message"]
    assert choice["finish_reason"] == "stop"
    assert "".join(c["choices"][0]["delta"].get("content", "") for c in chunks_of(known, body)) == written


def test_a_call_is_answered_in_the_next_turn(known):
    messages = [{"role": "user", "content": "hi"},
                {"role": "assistant", "content": None, "tool_calls": [
                    {"id": "call_1", "type": "function",
                     "function": {"name": "look", "arguments": "{\"at\": \"x\"}"}}]},
                {"role": "tool", "tool_call_id": "call_1", "content": "a tree"}]
    answer = known.post("/v1/chat/completions", {**ask(0, tools=TOOLS), "messages": messages})
    assert answer.json()["choices"][0]["message"]["content"] == "Hello world!"


def test_schema(known):
    schema = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"],
              "additionalProperties": False}
    form = {"type": "json_schema", "json_schema": {"name": "person", "strict": True, "schema": schema}}
    for script in (5, 0):  # the second would answer with text
        answer = known.post("/v1/chat/completions", ask(script, response_format=form, max_tokens=60)).json()
        if answer["choices"][0]["finish_reason"] == "stop":
            assert isinstance(json.loads(answer["choices"][0]["message"]["content"])["age"], int)
    assert json.loads(known.post("/v1/chat/completions", ask(5, response_format=form)).json()
                      ["choices"][0]["message"]["content"]) == {"age": 42}


def test_without_thinking_no_grammar_with_thinking_is_used(known):
    schema = {"type": "object", "properties": {"only_here": {"type": "integer"}}}
    body = ask(0, response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}, max_tokens=3)
    texts = [known.post("/v1/chat/completions", {**body, **more}).json()["choices"][0]["message"]["content"]
             for more in ({}, {"reasoning_effort": "none"})]
    # only where thinking may come, blanks may come before it
    assert texts[0] == "\n\n\n" and texts[1][0] == "{"


def test_a_schema_that_cannot_be_kept_is_refused(known):
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": {
        "type": "object", "properties": {"a": {"type": "nonsense"}}}}}
    answer = known.post("/v1/chat/completions", ask(0, response_format=form))
    assert answer.status_code == 400 and "/properties/a" in answer.json()["error"]["message"]


def test_a_tool_whose_schema_cannot_be_kept_is_called_all_the_same(known):
    odd = {"name": "odd", "parameters": {"type": "object", "properties": {
        "host": {"type": "string", "format": "idn-hostname"}, "name": {"type": "string", "pattern": "^(?=.*[A-Z]).+$"},
        "tags": {"type": "array", "uniqueItems": True, "items": {"type": "string"}}}, "not": {"required": ["x"]}}}
    answer = known.post("/v1/chat/completions", ask(3, tools=TOOLS + [{"type": "function", "function": odd}]))
    assert answer.json()["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "look"
    strict = {"type": "function", "function": {**odd, "strict": True}}
    answer = known.post("/v1/chat/completions", ask(3, tools=TOOLS + [strict]))
    assert answer.status_code == 400 and "#/" in answer.json()["error"]["message"]


def test_log_probabilities_are_the_same_in_both_modes_and_under_constraints(known):
    body = ask(0, logprobs=True, top_logprobs=3)
    whole = known.post("/v1/chat/completions", body).json()["choices"][0]["logprobs"]["content"]
    assert [t["token"] for t in whole] == ["Hel", "lo", " wor", "ld", "!"]
    assert all(len(t["top_logprobs"]) == 3 and t["top_logprobs"][0]["token"] == t["token"] for t in whole)
    streamed = [t for c in chunks_of(known, body) if c["choices"][0]["logprobs"]
                for t in c["choices"][0]["logprobs"]["content"]]
    assert streamed == whole
    warm = known.post("/v1/chat/completions", {**body, "temperature": 1.5, "seed": 3, "top_k": 1}).json()
    assert warm["choices"][0]["logprobs"]["content"] == whole


def test_limit_and_choices(known):
    answer = known.post("/v1/chat/completions", ask(4, max_completion_tokens=7, n=3)).json()
    assert [c["index"] for c in answer["choices"]] == [0, 1, 2]
    assert all(c["message"]["content"] == "x" * 7 and c["finish_reason"] == "length" for c in answer["choices"])
    assert answer["usage"]["completion_tokens"] == 21


def test_without_a_template_chat_is_a_400_that_says_what_to_do(demo):
    answer = demo.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}]})
    assert answer.status_code == 400 and "--chat-template" in answer.json()["error"]["message"]


def test_a_named_template(start):
    server = start("models/demo.gguf", "--chat-template", "chatml")
    answer = server.post("/apply-template", {"messages": [{"role": "user", "content": "hi"}]}).json()
    assert answer["prompt"].endswith("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n")


def test_tools_are_a_capability_where_the_template_shows_how_calls_are_written(start, known):
    plain = start("models/demo.gguf", "--chat-template", "vicuna")
    for server, has_tools in ((known, True), (plain, False)):
        about = server.get("/v1/models").json()["data"][0]["capabilities"]
        assert about["chat"] is True and about["tools"] is has_tools
        assert ("tools" in server.post("/api/show", {}).json()["capabilities"]) is has_tools


def test_nulls_of_clients_in_messages_and_tools(known):
    hi = {"role": "user", "content": "hi"}
    call = {"id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}}

    def prompt(*messages, **more):
        answer = known.post("/apply-template", {"messages": [hi, *messages], **more})
        assert answer.status_code == 200, answer.text
        return answer.json()["prompt"]

    called = prompt({"role": "assistant", "content": "", "tool_calls": [call]})
    assert prompt({"role": "assistant", "content": None, "tool_calls": [call]}) == called
    assert prompt({"role": "assistant", "tool_calls": [call]}) == called
    said = {"role": "assistant", "content": "yes"}
    for more in ({"tool_calls": None}, {"tool_calls": []}, {"reasoning_content": ""}, {"refusal": None}):
        assert prompt({**said, **more}, hi) == prompt(said, hi), more
    for function in ({"name": "f"}, {"name": "f", "description": None, "parameters": None}):
        answer = known.post("/v1/chat/completions", {
            "messages": [hi], "max_tokens": 2, "tools": [{"type": "function", "function": function}]})
        assert answer.status_code == 200, answer.text


def test_nulls_in_the_schemas_of_tools_are_absent(known):
    """Servers of tools that are written in Go send them."""
    def tool(**more):
        schema = {"type": "object", "properties": {"at": {"type": "string", **more}}, **more}
        return [{"type": "function", "function": {"name": "look", "parameters": schema}}]

    nulls = {"required": None, "enum": None, "items": None, "description": None}
    plain, told = (known.post("/apply-template", ask(3, tools=tools)) for tools in (tool(), tool(**nulls)))
    assert told.status_code == 200 and told.json() == plain.json()
    prompt = known.post("/apply-template", ask(3, tools=tool(default=None))).json()["prompt"]
    assert prompt.count('"default": null') == 2  # says something
    message = known.post("/v1/chat/completions", ask(3, tools=tool(**nulls))).json()["choices"][0]["message"]
    assert message["tool_calls"][0]["function"]["arguments"] == '{"at": "here"}'


def test_a_last_message_of_the_assistant_is_gone_on_with(known):
    hi, said = {"role": "user", "content": "hi"}, {"role": "assistant", "content": "Once upon"}
    applied = known.post("/apply-template", {"messages": [hi, said]}).json()
    assert applied["prompt"].endswith("<|im_start|>assistant\nOnce upon")
    for route, fields, count in (
            ("/v1/chat/completions", {"max_tokens": 2}, lambda a: a["usage"]["prompt_tokens"]),
            ("/v1/messages", {"max_tokens": 2}, lambda a: a["usage"]["input_tokens"]),
            ("/v1/responses", {"max_output_tokens": 2}, lambda a: a["usage"]["input_tokens"]),
            ("/api/chat", {"stream": False, "options": {"num_predict": 2}}, lambda a: a["prompt_eval_count"])):
        ask_of = {"input": [hi, said]} if route == "/v1/responses" else {"messages": [hi, said]}
        answer = known.post(route, {"model": "known", **ask_of, **fields})
        assert answer.status_code == 200 and count(answer.json()) == len(applied["tokens"]), answer.text
    # A message with calls is whole: another one follows.
    call = {"id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    answer = known.post("/apply-template", {"messages": [hi, {**said, "tool_calls": [call]}]})
    assert answer.json()["prompt"].endswith("<|im_start|>assistant\n<|go0|>")


def test_messages_never_become_control_tokens(known):
    plain = known.post("/apply-template", {"messages": [{"role": "user", "content": "<|im_end|>"}]}).json()
    assert plain["tokens"].count(plain["tokens"][0]) == 2  # <|im_start|>, from the template only
    assert len(plain["tokens"]) > 25


def test_the_log_probabilities_of_a_call_are_equal_in_both_modes(known):
    body = ask(3, tools=TOOLS, logprobs=True, top_logprobs=2)
    whole = known.post("/v1/chat/completions", body).json()
    assert whole["choices"][0]["finish_reason"] == "tool_calls"
    told = [t for c in chunks_of(known, body) for t in (c["choices"][0]["logprobs"] or {"content": []})["content"]]
    assert told == whole["choices"][0]["logprobs"]["content"]
    assert len(told) == whole["usage"]["completion_tokens"]


def test_calls_of_different_answers_have_different_ids(known):
    body = ask(3, tools=TOOLS, tool_choice="required", n=2)
    ids = [c["message"]["tool_calls"][0]["id"] for _ in range(2)
           for c in known.post("/v1/chat/completions", body).json()["choices"]]
    assert len(set(ids)) == 4 and all(len(i) == 9 and i.isalnum() for i in ids)
