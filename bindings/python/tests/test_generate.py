"""Texts: iterators, seeds, grammars and schemas."""
import contextlib
import dataclasses
import json
import threading
from typing import Any, List

import pytest

import duet


def test_pieces_events_and_text_agree(session: duet.Session) -> None:
    story = session.generate("Once upon a time", max_tokens=30, seed=1)
    events = list(story.events())
    assert "".join(e.text for e in events) == story.text
    assert [e.id for e in events if e.id >= 0] == session.ids()[-30:]
    assert events[-1].stop_reason is story.stop_reason is duet.StopReason.LIMIT
    assert story.result.n_new_tok == 30 and list(story) == []


def test_the_seed_decides(model: duet.Model) -> None:
    def text(**params: Any) -> str:
        with model.session() as session:
            return session.generate("Once upon a time", max_tokens=40, **params).read()

    assert text(seed=1) == text(seed=1) == text(sampler=duet.Sampler(1))
    assert len({text(seed=seed) for seed in range(4)}) > 1
    assert text(temp=0) == text(temp=0, seed=9)


def test_a_text_may_be_left_and_gone_on_with(session: duet.Session, model: duet.Model) -> None:
    for n, _ in enumerate(session.generate("Once upon a time", temp=0)):
        if n == 10:
            break
    held = session.ids()
    rest = session.generate(max_tokens=10, temp=0).read()
    with model.session() as other:
        other.generate("Once upon a time", max_tokens=len(held) - 5 + 10, temp=0).read()
        assert other.ids() == session.ids()
    assert rest


def test_a_text_goes_on_where_no_logits_are_left(model: duet.Model) -> None:
    with model.session() as whole, model.session() as session:
        text = whole.generate("Once upon a time", max_tokens=60, temp=0).read()
        session.generate("Once upon a time", max_tokens=20, temp=0).read()
        session.trim(session.length() - 1)
        session.load(session.save())
        session.generate(max_tokens=41, temp=0).read()
        assert session.ids() == whole.ids()
        for delay in range(8):  # a step that is stopped inside takes its logits along
            session.trim()
            story = session.generate("Once upon a time", max_tokens=60, temp=0)
            timer = threading.Timer(0.003 * delay, session.cancel)
            timer.start()
            with contextlib.suppress(duet.CancelledError):
                story.read()
            timer.join()
            n_told = session.length() - len(model.tokenize("Once upon a time"))
            if 0 < n_told < 60:  # else it was the prompt that was stopped, or nothing
                rest = session.generate(max_tokens=60 - n_told, temp=0).read()
                assert story.text + rest == text and session.ids() == whole.ids()


def test_stop_strings_and_close(session: duet.Session) -> None:
    story = session.generate("Once upon a time", temp=0, stop=["knight"])
    assert story.read() == ", a brave " and story.stop_reason is duet.StopReason.STRING
    with session.generate("Once", temp=0) as other:
        first = next(other)
        assert first + next(other) == other.text
    assert list(other) == []
    with pytest.raises(duet.ClosedError):
        other.result
    other.close()


def test_grammars(model: duet.Model, session: duet.Session) -> None:
    text = session.generate("x", grammar=model.grammar(gbnf="root ::= [a-c]{5}"), seed=2).read()
    assert len(text) == 5 and set(text) <= set("abc")
    with pytest.raises(duet.FormatError, match="line 1, column"):
        model.grammar(gbnf="root ::= (")
    with pytest.raises(duet.ArgumentError):
        model.grammar()
    with pytest.raises(duet.UnsupportedError, match="#/not"):
        model.grammar(schema={"not": {}})
    with pytest.raises(duet.ArgumentError, match="both"):
        session.generate("x", grammar=model.grammar(schema={}), schema={})
    session.trim()
    free = session.generate("Once upon a time", temp=0, max_tokens=9).read()
    for triggers in ("<t>", ["<t>"]):  # one text is one trigger
        session.trim()
        lazy = model.grammar(gbnf='root ::= "<t>yes"', triggers=triggers)
        assert session.generate("Once upon a time", temp=0, max_tokens=9, grammar=lazy).read() == free


def test_a_grammar_is_for_its_text_alone(model: duet.Model, chat_model: duet.Model) -> None:
    session, yes = model.session(), model.grammar(gbnf='root ::= "yes"')
    free = session.generate("Once upon a time", temp=0, max_tokens=9).read()
    session.trim()
    sampler = duet.Sampler(seed=1, temp=0)
    assert session.generate("x", sampler=sampler, grammar=yes).read() == "yes"
    session.trim()
    assert session.generate("Once upon a time", sampler=sampler, max_tokens=9).read() == free
    session.trim()
    assert session.generate("x", sampler=sampler, schema={"const": 7}).read() == "7"
    assert session.generate("x", sampler=sampler, max_tokens=3).read() != "7"
    own = duet.Sampler(seed=1, grammar=model.grammar(gbnf='root ::= "no"'))
    assert [session.generate("x", sampler=own, grammar=g).read() for g in (None, yes)] == ["no", "yes"]
    own.reset()
    assert session.generate("x", sampler=own).read() == "no"
    chat = duet.Chat(chat_model.session(), thinking=False)
    plain = chat.ask("hello", temp=0).read()
    chat.remove(0, len(chat))
    assert chat.ask("hello", sampler=sampler, gbnf='root ::= "never"').read() == "never"
    chat.remove(0, len(chat))
    assert chat.ask("hello", sampler=sampler).read() == plain


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


def test_schemas(model: duet.Model) -> None:
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
    for given in (schema, json.dumps(schema)):
        with model.session() as session:
            value = session.generate("x", schema=given, seed=1, max_tokens=100).parsed()
            assert isinstance(value["ok"], bool)
    with model.session() as session:
        point = session.generate("x", schema=Point, seed=1, max_tokens=200).parsed()
        assert isinstance(point, Point)
    with model.session() as session:
        flags: List[bool] = session.generate("x", schema=List[bool], seed=4, max_tokens=50).parsed()
        assert all(isinstance(flag, bool) for flag in flags)


def test_pydantic_models(model: duet.Model) -> None:
    pydantic = pytest.importorskip("pydantic")
    Size = pydantic.create_model("Size", w=(int, pydantic.Field(ge=1, le=9)), h=(int, pydantic.Field(ge=1, le=9)))
    Box = pydantic.create_model("Box", colour=(str, pydantic.Field(max_length=5)), size=(Size, ...))
    with model.session() as session:
        box = session.generate("x", schema=Box, seed=1, max_tokens=200).parsed()
    assert isinstance(box, Box) and 1 <= box.size.w <= 9
