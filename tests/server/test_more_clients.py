"""The packages litellm, langchain-openai and instructor against the server: text, streams, calls, structured output."""
import json

import pytest

from test_chat import TOOLS

pytest.importorskip("litellm", reason="not run: the packages of requirements_more.txt are not installed (make test-more)")

import instructor
import litellm
import openai
import pydantic
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAI, OpenAIEmbeddings

HI = [{"role": "user", "content": "hi"}]


class Person(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    age: int


class Look(pydantic.BaseModel):
    at: str


def script(n):
    return {"chat_template_kwargs": {"script": n}}


# ---- litellm

@pytest.fixture
def complete(known):
    def ask(n=0, **more):
        body = {"messages": HI, "temperature": 0, "extra_body": script(n), **more}
        return litellm.completion(model="openai/known", api_base=known.url + "/v1", api_key="none", num_retries=0, **body)
    return ask


def test_litellm_text(complete):
    answer = complete()
    assert answer.choices[0].message.content == "Hello world!" and answer.choices[0].finish_reason == "stop"
    assert answer.usage.completion_tokens == 5
    assert complete(4, max_tokens=3).choices[0].finish_reason == "length"
    assert complete(1, stop=["STOP"]).choices[0].message.content == "abc"


def test_litellm_stream(complete):
    chunks = list(complete(stream=True, stream_options={"include_usage": True}))
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "Hello world!"
    assert [c.usage for c in chunks if getattr(c, "usage", None)][-1].completion_tokens == 5
    whole = litellm.stream_chunk_builder(chunks, messages=HI)
    assert whole.choices[0].message.content == "Hello world!"


def test_litellm_tools(complete):
    call = complete(3, tools=TOOLS).choices[0].message.tool_calls[0]
    assert call.function.name == "look" and json.loads(call.function.arguments) == {"at": "here"}
    chunks = list(complete(3, tools=TOOLS, stream=True))
    call = litellm.stream_chunk_builder(chunks, messages=HI).choices[0].message.tool_calls[0]
    assert call.function.name == "look" and json.loads(call.function.arguments) == {"at": "here"} and call.id


def test_litellm_structured_output(complete):
    answer = complete(5, response_format=Person)
    assert Person.model_validate_json(answer.choices[0].message.content).age == 42


def test_litellm_thinking(complete):
    answer = complete(extra_body={"chat_template_kwargs": {"enable_thinking": True}}).choices[0].message
    assert answer.reasoning_content == "hm, well" and answer.content == "fine"


def test_litellm_errors(known, complete):
    with pytest.raises(litellm.BadRequestError) as error:
        complete(top_p=7)
    assert "top_p" in str(error.value)
    with pytest.raises(litellm.ContextWindowExceededError):
        complete(messages=[{"role": "user", "content": "word " * 50000}])
    with pytest.raises(litellm.NotFoundError):
        litellm.completion(model="openai/other", api_base=known.url + "/v1", api_key="none", messages=HI)


def test_litellm_text_completion_and_embedding(known):
    where = {"api_base": known.url + "/v1", "api_key": "none"}
    answer = litellm.text_completion(model="text-completion-openai/known", prompt="<|go0|>", temperature=0, **where)
    assert answer.choices[0].text == "Hello world!"
    answer = litellm.embedding(model="openai/known", input=["a", "b"], **where)
    assert len(answer.data) == 2 and len(answer.data[0]["embedding"]) > 8


# ---- langchain-openai

def chat(known, n=0, **more):
    return ChatOpenAI(model="known", base_url=known.url + "/v1", api_key="none", temperature=0, max_retries=0,
                      extra_body=script(n), **more)


def test_langchain_text(known):
    answer = chat(known).invoke([SystemMessage("be kind"), HumanMessage("hi")])
    assert answer.content == "Hello world!" and answer.usage_metadata["output_tokens"] == 5
    assert answer.response_metadata["finish_reason"] == "stop"
    answers = chat(known).batch(["hi", "ho", "he"])
    assert [a.content for a in answers] == ["Hello world!"] * 3


def test_langchain_stream(known):
    chunks = list(chat(known, stream_usage=True).stream("hi"))
    assert "".join(c.content for c in chunks) == "Hello world!" and len([c for c in chunks if c.content]) == 5
    total = chunks[0]
    for chunk in chunks[1:]:
        total += chunk
    assert total.usage_metadata["output_tokens"] == 5


@tool
def look(at: str) -> str:
    """Looks somewhere."""
    return "a tree at " + at


@pytest.mark.parametrize("choice", ["auto", "required", "look"])
def test_langchain_tools(known, choice):
    answer = chat(known, 3).bind_tools([look], tool_choice=choice).invoke("hi")
    assert [(c["name"], c["args"]) for c in answer.tool_calls] == [("look", {"at": "here"})]
    result = look.invoke(answer.tool_calls[0])
    assert isinstance(result, ToolMessage) and result.content == "a tree at here"
    last = chat(known).bind_tools([look]).invoke([HumanMessage("hi"), answer, result])
    assert isinstance(last, AIMessage) and last.content == "Hello world!"


def test_langchain_streams_calls(known):
    total = None
    for chunk in chat(known, 3).bind_tools([look]).stream("hi"):
        total = chunk if total is None else total + chunk
    assert total.tool_calls[0]["args"] == {"at": "here"} and len(total.tool_call_chunks) == 1


@pytest.mark.parametrize("method", ["json_schema", "json_mode"])
def test_langchain_structured_output(known, method):
    assert chat(known, 5).with_structured_output(Person, method=method).invoke("hi") == Person(age=42)


def test_langchain_structured_output_by_a_call(known):
    answer = chat(known, 3).with_structured_output({"title": "look", **TOOLS[0]["function"]["parameters"],
                                                    "description": "looks"}, method="function_calling").invoke("hi")
    assert answer == {"at": "here"}


def test_langchain_responses_interface(known):
    answer = chat(known, use_responses_api=True).invoke("hi")
    assert answer.text == "Hello world!"
    assert "".join(c.text for c in chat(known, use_responses_api=True).stream("hi")) == "Hello world!"


def test_langchain_log_probabilities(known):
    answer = chat(known, logprobs=True, top_logprobs=2).invoke("hi")
    content = answer.response_metadata["logprobs"]["content"]
    assert [t["token"] for t in content] == ["Hel", "lo", " wor", "ld", "!"]


def test_langchain_completions_and_embeddings(known):
    where = {"model": "known", "base_url": known.url + "/v1", "api_key": "none"}
    assert OpenAI(temperature=0, **where).invoke("<|go0|>") == "Hello world!"
    # the server takes lists of ids too, which the package makes of texts
    vectors = OpenAIEmbeddings(check_embedding_ctx_length=False, **where).embed_documents(["a", "b"])
    assert len(vectors) == 2 and len(vectors[0]) == len(vectors[1]) > 8


# ---- instructor

def instruct(known, mode):
    client = openai.OpenAI(base_url=known.url + "/v1", api_key="none", max_retries=0)
    return instructor.from_openai(client, mode=mode)


@pytest.mark.parametrize("mode", [instructor.Mode.JSON, instructor.Mode.JSON_SCHEMA, instructor.Mode.MD_JSON],
                         ids=lambda mode: mode.name)
def test_instructor_json(known, mode):
    person = instruct(known, mode).chat.completions.create(model="known", messages=HI, response_model=Person,
                                                           temperature=0, extra_body=script(5), max_retries=0)
    assert person.age == 42


@pytest.mark.parametrize("mode", [instructor.Mode.TOOLS, instructor.Mode.TOOLS_STRICT], ids=lambda mode: mode.name)
def test_instructor_by_a_call(known, mode):
    # the known model calls "look": the response model has its name
    model = pydantic.create_model("look", __base__=Look)
    answer = instruct(known, mode).chat.completions.create(model="known", messages=HI, response_model=model,
                                                           temperature=0, extra_body=script(3), max_retries=0)
    assert answer.at == "here"


def test_instructor_keeps_what_came_before_the_end(known):
    client = instruct(known, instructor.Mode.JSON_SCHEMA)
    parts = list(client.chat.completions.create_partial(model="known", messages=HI, response_model=Person, temperature=0,
                                                        extra_body=script(5), max_retries=0))
    assert parts[-1].age == 42
    person, answer = client.chat.completions.create_with_completion(
        model="known", messages=HI, response_model=Person, temperature=0, extra_body=script(5), max_retries=0)
    assert person.age == 42 and answer.usage.completion_tokens > 0


def test_instructor_asks_again_until_it_validates(known):
    class Old(Person):
        age: int = pydantic.Field(ge=100)

    # the schema's bound is kept while the answer is written, so the first answer validates
    client = instruct(known, instructor.Mode.JSON_SCHEMA)
    person = client.chat.completions.create(model="known", messages=HI, response_model=Old, temperature=0, max_tokens=40,
                                            extra_body=script(5), max_retries=0)
    assert person.age >= 100
