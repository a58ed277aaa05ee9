"""Conversations with a model whose answers are known (tests/chat_model.cpp)."""
import enum
import functools
import importlib
import json
import pathlib
import typing
from dataclasses import dataclass
from typing import Any, Dict, List, Literal, Optional, Tuple, Union

import pytest

import duet
from duet import _abi
from duet._schema import result_text
from duet._session import parse


def weather(city: str, days: int = 1) -> str:
    """Tells the weather.

    city: the name of a city
    """
    return f"sunny in {city} for {days} day(s)"


@pytest.fixture
def chat(chat_model: duet.Model) -> duet.Chat:
    return chat_model.chat()


def test_an_answer_joins_the_messages(chat: duet.Chat) -> None:
    answer = chat.ask("hello there")
    assert list(answer) == ["Hello", " world", "."]
    assert answer.text == "Hello world." and answer.stop_reason is duet.StopReason.END
    assert answer.end and answer.end.n_tokens == 3 and answer.end.n_prompt > 0
    assert chat.messages == [{"role": "user", "content": "hello there"},
                             {"role": "assistant", "content": "Hello world."}]
    assert "".join(chat.ask("wide")) == "漢字 😀 café"
    again = chat.ask("hello again")
    again.read()
    assert again.end and again.end.n_reused > 0


def test_a_question_that_cannot_be_answered_is_taken_back(chat: duet.Chat) -> None:
    with pytest.raises(duet.FullError, match="n_ctx") as full:
        chat.ask("word " * 200000)
    assert "-c" not in str(full.value)  # which is a flag of the programs
    with pytest.raises((TypeError, ValueError)):
        chat.ask("hello there", max_token=3)
    with pytest.raises(duet.FullError):
        list(chat.run("word " * 200000))
    assert chat.messages == []
    assert chat.ask("hello there").read() == "Hello world."
    assert [message["role"] for message in chat.messages] == ["user", "assistant"]


def test_thinking_is_told_apart(chat: duet.Chat) -> None:
    answer = chat.ask("think about it")
    events = list(answer.events())
    assert answer.thinking.strip() == "I wonder." and answer.text == "Forty-two"
    assert any(isinstance(e, duet.Thinking) for e in events) and isinstance(events[-1], duet.End)
    assert chat.messages[-1]["reasoning_content"].strip() == "I wonder."


def test_a_closed_answer_stays_in_the_messages(chat: duet.Chat) -> None:
    with chat.ask("long story") as answer:
        for n, _ in enumerate(answer):
            if n == 3:
                break
    assert chat.messages[-1]["role"] == "assistant" and chat.messages[-1]["content"].startswith("All work")
    with pytest.raises(duet.ClosedError):
        answer._handle.check()
    assert chat.ask("hello").read() == "Hello world."


def test_an_answer_ends_when_the_messages_change(chat: duet.Chat) -> None:
    saved = b""
    for change in (lambda: chat.add("user", "hello"), lambda: chat.remove(0, len(chat)), lambda: chat.load(saved),
                   lambda: chat.insert({"role": "user", "content": "hello"}), lambda: chat.answer()):
        chat.remove(0, len(chat))
        chat.insert([{"role": "user", "content": "hello"}, {"role": "assistant", "content": "All"}])
        saved = chat.save()
        answer = chat.answer(continue_last=True)
        next(answer.events())
        change()
        assert list(answer) == [] and answer.closed


def test_messages(chat: duet.Chat) -> None:
    chat.insert([{"role": "system", "content": "Be kind."}, {"role": "user", "content": "hello\ud800"}])
    assert len(chat) == 2 and chat.messages[1]["content"] == "hello\ufffd"
    chat.remove(-2)
    assert [m["role"] for m in chat.messages] == ["user"]
    assert chat.render().ids == chat.session.model.tokenize(chat.render().text, bos=False, special=True)
    with pytest.raises(duet.ArgumentError):
        chat.insert({"role": 3})
    with pytest.raises(duet.ArgumentError):
        chat.remove(5)
    with pytest.raises(duet.ArgumentError, match="chatml"):
        duet.Chat(chat.session, template_name="no such template")


def test_a_model_without_template_says_so(model: duet.Model) -> None:
    with pytest.raises(duet.StateError, match="chat template"):
        model.chat()
    with model.chat(template_name="chatml") as chat:
        assert chat.ask("hello", max_tokens=3).read()


def test_tools_are_called(chat_model: duet.Model) -> None:
    chat = chat_model.chat(tools=[weather])
    events = list(chat.run("call the weather"))
    results = [e for e in events if isinstance(e, duet.ToolResult)]
    assert [r.content for r in results] == ["sunny in Paris for 1 day(s)"]
    call = results[0].call
    assert (call.name, call.arguments) == ("weather", {"city": "Paris"})
    kinds = [type(e).__name__ for e in events]
    assert [kind for kind in kinds if kind.startswith("Call")] == ["CallBegin", "CallPiece", "CallEnd"]
    assert chat.messages[-1]["content"] == "It is sunny!"
    assert [m["role"] for m in chat.messages] == ["user", "assistant", "tool", "assistant"]


def test_a_tool_that_fails_tells_the_model(chat_model: duet.Model) -> None:
    def broken(city: str) -> str:
        raise LookupError("no weather today")

    chat = chat_model.chat(tools=[duet.Tool(broken, name="weather")])
    (result,) = [e for e in chat.run("call the weather") if isinstance(e, duet.ToolResult)]
    assert result.content == "error: no weather today" and isinstance(result.error, LookupError)


def test_a_coroutine_as_a_tool_is_for_run_async(chat_model: duet.Model) -> None:
    async def weather(city: str) -> str:
        return "sunny"

    chat = chat_model.chat(tools=[weather])
    with pytest.raises(TypeError, match="tool weather: .*run_async"):
        list(chat.run("call the weather"))
    assert not chat.messages
    with pytest.raises(TypeError, match="run_async"):
        chat.call(duet.Call("weather", "1", {"city": "Paris"}, ""))


def test_calls_keep_to_the_schemas_of_described_tools(chat_model: duet.Model) -> None:
    city = {"enum": ["Rome"]}  # the model would say Paris
    described = {"type": "function", "function": {"name": "weather", "parameters": {
        "type": "object", "properties": {"city": city}, "required": ["city"], "additionalProperties": False}}}
    answer = chat_model.chat(tools=[described]).ask("call the weather", temp=0)
    answer.read()
    assert [call.arguments for call in answer.calls] == [{"city": "Rome"}]


def test_integers_of_more_digits_than_python_reads(chat: duet.Chat) -> None:
    many = "1" * 5000
    assert parse(f'{{"n": {many}, "m": 12}}', None) == {"n": float("inf"), "m": 12}
    answer = chat.ask("hello there")
    for kind, text in ((_abi.DUET_CHAT_CALL_BEGIN, "f"), (_abi.DUET_CHAT_CALL_PIECE, f'{{"n": {many}}}')):
        answer._event(_abi.duet_chat_event(kind=kind, i_call=0), text, "")
    event = answer._event(_abi.duet_chat_event(kind=_abi.DUET_CHAT_CALL_END, i_call=0, is_complete=1), "", "")
    assert isinstance(event, duet.CallEnd) and event.call.arguments == {"n": float("inf")}


def test_tool_choice(chat_model: duet.Model) -> None:
    chat = chat_model.chat(tools=[weather])
    with pytest.raises(duet.ArgumentError):
        chat.ask("call", tool_choice="no such tool")
    answer = chat.ask("call", tool_choice="none")
    answer.read()
    assert not answer.calls


def test_session_chat(chat_model: duet.Model) -> None:
    with chat_model.session() as session:
        assert session.chat("hello").read() == "Hello world."
        answer = session.chat([{"role": "user", "content": "hello"}, {"role": "assistant", "content": "Hello world."},
                               {"role": "user", "content": "wide"}])
        assert answer.read() == "漢字 😀 café"
        assert answer.end and answer.end.n_reused > 20
        value = session.chat("hello", schema={"enum": ["yes"]}, max_tokens=100, seed=1, thinking=False).parsed()
        assert value == "yes"


def test_saved_conversations(chat_model: duet.Model) -> None:
    a = chat_model.chat()
    a.ask("hello").read()
    b = chat_model.chat()
    b.load(a.save())
    assert b.messages == a.messages and b.session.ids() == a.session.ids()
    again = b.ask("wide")
    assert again.read() == "漢字 😀 café" and again.end and again.end.n_reused > 0
    c = chat_model.chat()
    c.load(a.save(state=False), state=False)
    assert c.messages == a.messages and c.session.length() == 0
    with pytest.raises(duet.FormatError):
        c.load(b"no conversation")


# ---- signatures as schemas ------------------------------------------------------------------------------------------


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Place:
    name: str
    height: float = 0.0


def paint(what: str, colour: Colour, where: Place, tags: List[str], mode: Literal["wet", "dry"] = "wet",
          size: Optional[int] = None, both: Union[int, str] = 0, pair: Tuple[int, str] = (0, ""),
          more: Optional[Dict[str, float]] = None) -> Any:
    """Paints."""
    return colour, where, tags, mode, size, both, pair, more


def test_signatures_become_schemas() -> None:
    definition = duet.Tool(paint).definition["function"]
    assert definition["description"] == "Paints."
    assert definition["parameters"]["required"] == ["what", "colour", "where", "tags"]
    properties = definition["parameters"]["properties"]
    assert properties["colour"] == {"enum": ["red", "blue"]}
    assert properties["where"]["properties"]["height"] == {"type": "number"}
    assert properties["size"] == {"anyOf": [{"type": "integer"}, {"type": "null"}]}
    assert properties["mode"] == {"enum": ["wet", "dry"]}
    json.dumps(definition)
    city = duet.Tool(weather).definition["function"]["parameters"]["properties"]["city"]
    assert city["description"] == "the name of a city"


def test_a_parameter_that_the_docstring_leaves_open() -> None:
    def travel(to: str, days: int) -> None:
        """Books a journey.

        to:
        days: how long
        """

    properties = duet.Tool(travel).definition["function"]["parameters"]["properties"]
    assert properties == {"to": {"type": "string"}, "days": {"type": "integer", "description": "how long"}}


def test_arguments_become_the_signatures_types() -> None:
    got = duet.Tool(paint).call({"what": "it", "colour": "blue", "where": {"name": "hill", "height": 3},
                                 "tags": ["a"], "size": 4, "both": "x", "pair": [1, "b"], "more": {"a": 1}})
    assert got == (Colour.BLUE, Place("hill", 3.0), ["a"], "wet", 4, "x", (1, "b"), {"a": 1.0})


@dataclass
class Tree:
    name: str
    parts: List["Tree"]


def test_types_that_hold_themselves(chat_model: duet.Model) -> None:
    of_tree = duet.json_schema(Tree)
    assert of_tree["$ref"] == "#/$defs/Tree" and list(of_tree["$defs"]) == ["Tree"]
    for schema in (of_tree, duet.json_schema(List[Tree]), duet.json_schema(Optional[Tree])):
        chat_model.grammar(schema=schema)

    def plant(tree: Tree, beside: List[Tree]) -> str:
        return tree.parts[0].name + beside[0].name

    tool = duet.Tool(plant)
    chat_model.grammar(schema=tool.definition["function"]["parameters"])
    apple = {"name": "apple", "parts": [{"name": "core", "parts": []}]}
    assert tool.call({"tree": apple, "beside": [apple]}) == "coreapple"


def test_pydantic_models_in_signatures(chat_model: duet.Model) -> None:
    """What a model refers to stands at the root, wherever the model does."""
    pydantic = pytest.importorskip("pydantic")
    inner = pydantic.create_model("Inner", x=(int, ...))
    box = pydantic.create_model("Box", inner=(inner, ...))
    other = pydantic.create_model("Box", inner=(pydantic.create_model("Inner", y=(str, ...)), ...))  # the same names
    kinds: Any = (List[box], Optional[box], Dict[str, box], List[Union[box, other]])  # type: ignore[valid-type]
    for kind in kinds:
        chat_model.grammar(schema=kind)

    def weather(where: Any, also: Any) -> str:
        """Tells the weather."""
        return f"{where.inner.x} {also[0].inner.y}"

    weather.__annotations__.update(where=box, also=List[other])  # type: ignore[valid-type]
    tool = duet.Tool(weather)
    assert tool.call({"where": {"inner": {"x": 3}}, "also": [{"inner": {"y": "a"}}]}) == "3 a"
    chat = chat_model.chat(tools=[tool])
    events = list(chat.run("call the weather", max_rounds=1))
    assert any(isinstance(event, duet.CallBegin) for event in events)


def test_a_tool_with_arguments_of_the_program() -> None:
    tool = duet.Tool(functools.partial(weather, days=2))
    told = tool.definition["function"]
    assert told["name"] == "weather" and told["description"] == "Tells the weather."
    assert told["parameters"]["properties"]["city"] == {"type": "string", "description": "the name of a city"}
    assert tool.call({"city": "Rome"}) == "sunny in Rome for 2 day(s)"


def test_what_a_tool_returns_may_have_a_name_for_type_checkers_alone() -> None:
    def tell(city: "str", days: int = 1) -> "NoSuchName":  # type: ignore[name-defined] # noqa: F821
        return city * days

    tool = duet.Tool(tell)
    assert tool.definition["function"]["parameters"]["properties"]["days"] == {"type": "integer"}
    assert tool.call({"city": "ab", "days": 2}) == "abab"

    def odd(city: "NoSuchName") -> str:  # type: ignore[name-defined] # noqa: F821
        return ""

    with pytest.raises(NameError, match="NoSuchName"):
        duet.Tool(odd)


def test_what_is_no_schema_is_an_error() -> None:
    def odd(x: bytes) -> None:
        pass

    def starred(*x: int) -> None:
        pass

    for function in (odd, starred):
        with pytest.raises(TypeError):
            duet.Tool(function)
    with pytest.raises(TypeError):
        duet.json_schema(Dict[int, int])


def test_fields_that_need_not_be_there() -> None:
    of_typing: Any = typing
    if not hasattr(typing, "NotRequired"):
        pytest.skip("typing.NotRequired came with Python 3.11")
    kind = of_typing.TypedDict("kind", {"a": of_typing.NotRequired[int], "b": of_typing.Required[str]}, total=False)
    schema = duet.json_schema(kind)
    assert schema["properties"] == {"a": {"type": "integer"}, "b": {"type": "string"}} and schema["required"] == ["b"]


LATE = """
from __future__ import annotations
from typing import NotRequired, Required, TypedDict

class Most(TypedDict):
    a: NotRequired[int]
    b: str

class Few(TypedDict, total=False):
    a: int
    b: Required[str]
"""


def test_fields_of_a_module_whose_annotations_are_texts(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not hasattr(typing, "NotRequired"):
        pytest.skip("typing.NotRequired came with Python 3.11")
    (tmp_path / "late_annotations.py").write_text(LATE)
    monkeypatch.syspath_prepend(tmp_path)
    late = importlib.import_module("late_annotations")
    for kind in (late.Most, late.Few):
        assert duet.json_schema(kind)["required"] == ["b"]
        assert parse('[{"b": "x"}]', List[Union[Place, kind]]) == [{"b": "x"}]  # type: ignore[valid-type]


def test_every_schema_of_the_signature_compiles(chat_model: duet.Model) -> None:
    for name, schema in duet.Tool(paint).definition["function"]["parameters"]["properties"].items():
        chat_model.grammar(schema=schema)


def test_bare_kinds_of_typing() -> None:
    def mix(names: Dict, numbers: List, both: typing.Set) -> Any:  # type: ignore[type-arg]
        return names, numbers, both

    assert duet.Tool(mix).call({"names": {"a": 1}, "numbers": [1], "both": [2]}) == ({"a": 1}, [1], {2})


def test_results_that_hold_objects() -> None:
    assert json.loads(result_text([Place("hill", 3.0), {"c": Colour.RED}, {"s"}])) == \
        [{"name": "hill", "height": 3.0}, {"c": "red"}, ["s"]]
    pydantic = pytest.importorskip("pydantic")
    inner = pydantic.create_model("Inner", x=(int, ...))
    assert json.loads(result_text([inner(x=1)])) == [{"x": 1}]


def test_a_union_of_lists() -> None:
    kind: Any = Union[List[Place], List[Tree]]
    assert parse('[{"name": "a", "parts": []}]', Union[List[Tree], List[Place]]) == [Tree("a", [])]
    assert parse('[{"name": "a"}]', Union[List[Tree], List[Place]]) == [Place("a")]
    assert parse('[{"name": "a"}]', kind) == [Place("a")]


def test_a_union_has_the_part_that_holds_all_of_a_value() -> None:
    both: Any = Union[Place, Tree]
    assert parse('{"name": "a", "parts": []}', both) == Tree("a", []) and parse('{"name": "a"}', both) == Place("a")
    assert parse('{"name": "a", "parts": [{"name": "b"}]}', Union[Tree, Dict[str, Any]])["parts"] == [{"name": "b"}]
    pairs: Any = Union[Tuple[int, int], Tuple[int, str], Tuple[int, int, int]]
    assert parse("[1, 2, 3]", pairs) == (1, 2, 3) and parse('[1, "a"]', pairs) == (1, "a")
    assert parse('{"a": {"name": "b"}}', Union[Dict[str, int], Dict[str, Place]]) == {"a": Place("b")}


def test_members_of_enums_in_a_literal(chat_model: duet.Model) -> None:
    kind: Any = Optional[Literal[Colour.RED, "blue", 1]]
    schema = duet.json_schema(kind)
    assert schema == {"anyOf": [{"enum": ["red", "blue", 1]}, {"type": "null"}]}
    chat_model.grammar(schema=kind)
    assert [parse(text, kind) for text in ('"red"', '"blue"', "1", "null")] == [Colour.RED, "blue", 1, None]
    assert parse("true", Union[Literal[1], bool]) is True


@dataclass
class Nothing:
    pass


def test_a_type_without_fields() -> None:
    assert duet.json_schema(Nothing)["properties"] == {} and parse("[{}]", List[Nothing]) == [Nothing()]


def test_closing_a_chat_closes_its_own_session(chat_path: str) -> None:
    with duet.Model(chat_path) as model, model.chat() as chat:
        chat.ask("hello").read()
        other = duet.Chat(chat.session)
        other.close()
        assert not chat.session.closed
    assert chat.session.closed and model._handle.address is None
    with pytest.raises(duet.ArgumentError):
        duet.Model(chat_path).chat(template_name="no such template")


def test_a_chat_without_messages_is_true(chat: duet.Chat) -> None:
    assert len(chat) == 0 and chat
