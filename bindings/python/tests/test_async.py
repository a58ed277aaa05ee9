"""The asyncio forms: the loop goes on, tasks can be cancelled, sessions run beside each other."""
import asyncio
import contextvars
import time
from typing import Any, List

import pytest

import duet

LONG = 30000  # prompt tokens of one piece: seconds on one core


def test_pieces_and_answers(demo_path: str, model: duet.Model, chat_model: duet.Model) -> None:
    async def main() -> None:
        want = model.session().generate("Once upon a time", max_tokens=20, seed=1).read()
        session = await model.session_async()
        pieces = [piece async for piece in session.generate("Once upon a time", max_tokens=20, seed=1)]
        assert "".join(pieces) == want
        assert await session.generate(max_tokens=3, seed=1).read_async()
        chat = chat_model.chat()
        assert [piece async for piece in chat.ask("hello")] == ["Hello", " world", "."]
        events = [event async for event in chat.ask("think").events_async()]
        assert isinstance(events[-1], duet.End)
        async for _ in session.generate("more", temp=0):
            break  # left in the middle
        await session.decode_async([1, 2])
        opened = await duet.Model.open_async(demo_path, progress=lambda share: None)
        opened.close()
        with pytest.raises(duet.FileError):
            await duet.Model.open_async("no such file")

    asyncio.run(main())


def test_tools_may_be_coroutines(chat_model: duet.Model) -> None:
    async def weather(city: str) -> str:
        await asyncio.sleep(0)
        return f"rain in {city}"

    def fails(city: str) -> str:
        raise LookupError("closed")

    async def late(city: str) -> str:
        raise TimeoutError

    class Station:
        async def __call__(self, city: str) -> str:
            return f"wind in {city}"

    async def told(function: Any) -> List[str]:
        chat = chat_model.chat(tools=[duet.Tool(function, name="weather")])
        results = [e.content async for e in chat.run_async("call the weather") if isinstance(e, duet.ToolResult)]
        assert chat.messages[-1]["content"] == "It is sunny!"
        return results

    async def main() -> None:
        assert await told(weather) == ["rain in Paris"]
        assert await told(fails) == ["error: closed"]
        assert await told(late) == ["error: TimeoutError"]
        assert await told(Station()) == ["wind in Paris"]
        session = chat_model.session()
        story = await session.generate_async("x", grammar=await chat_model.grammar_async(gbnf='root ::= "yes"'))
        assert await story.__anext__() and await story.read_async() == "yes"
        assert await (await chat_model.chat().ask_async("hello")).read_async() == "Hello world."

    asyncio.run(main())


def test_the_loop_goes_on_during_a_long_step(chat_model: duet.Model) -> None:
    async def main() -> None:
        n = 20000
        session = chat_model.session(n_ctx=n, max_batch=n)
        ticks: List[float] = []

        async def tick() -> None:
            while True:
                ticks.append(time.monotonic())
                await asyncio.sleep(0.005)

        ticking = asyncio.create_task(tick())
        start = time.monotonic()
        await session.decode_async([5] * n)
        took = time.monotonic() - start
        ticking.cancel()
        assert took > 0.2, "want a long step"
        assert len(ticks) > took / 0.1

    asyncio.run(main())


def test_cancelling_a_task_stops_the_step(chat_model: duet.Model) -> None:
    async def main() -> None:
        session = chat_model.session(n_ctx=LONG + 10, max_batch=LONG)
        for make in (lambda: session.decode_async([5] * LONG), lambda: session.generate([5] * LONG).read_async()):
            task = asyncio.ensure_future(make())
            await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            session.trim()
            session.decode([1, 2])  # nothing is left of the request to stop
            session.trim()
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(session.decode_async([5] * LONG), 0.05)

    asyncio.run(main())


def test_cancelling_a_task_whose_session_was_closed(chat_model: duet.Model) -> None:
    async def main() -> None:
        for is_text in (False, True):
            session = chat_model.session(n_ctx=LONG + 10, max_batch=LONG)
            ids = [5] * LONG
            call: Any = session.generate(ids).read_async() if is_text else session.decode_async(ids)
            task = asyncio.ensure_future(call)
            await asyncio.sleep(0.05)
            session.close()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert not session._handle._busy  # its call is over

    asyncio.run(main())


def test_a_text_whose_task_was_cancelled_is_at_its_end(model: duet.Model, chat_model: duet.Model) -> None:
    """Also where the request comes between two short steps."""
    async def main() -> None:
        session, chat = model.session(), chat_model.chat()
        for i in range(20):
            session.trim()
            chat.remove(0, len(chat))
            for text in (session.generate("Once upon a time", seed=1), chat.ask("long story")):
                task = asyncio.ensure_future(text.read_async())
                await asyncio.sleep(0.001 * i)
                if task.done():
                    continue
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                told = text.text
                assert text.read() == told and list(text.events()) == []
            assert [message["role"] for message in chat.messages[-2:]] == ["user", "assistant"]
            session.decode([1])  # nothing is left of the request to stop

    asyncio.run(main())


def test_sessions_run_beside_each_other(model: duet.Model) -> None:
    async def one(seed: int) -> str:
        return await model.session().generate("Once upon a time", max_tokens=30, seed=seed).read_async()

    async def main() -> List[str]:
        return list(await asyncio.gather(*(one(seed) for seed in range(6))))

    want = [model.session().generate("Once upon a time", max_tokens=30, seed=seed).read() for seed in range(6)]
    assert asyncio.run(main()) == want


def test_one_session_for_two_tasks_is_refused(chat_model: duet.Model) -> None:
    async def main() -> None:
        session = chat_model.session(n_ctx=LONG + 10, max_batch=LONG)
        first = asyncio.ensure_future(session.decode_async([5] * LONG))
        await asyncio.sleep(0.05)
        with pytest.raises(duet.BusyError):
            await session.decode_async([1])
        session.cancel()
        with pytest.raises(duet.CancelledError):
            await first

    asyncio.run(main())


def test_a_cancelled_question_is_taken_back(chat_model: duet.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    chat = chat_model.chat()
    chat.ask("hello").read()
    begin = chat._begin

    def slow(text: Any, params: Any) -> duet.Answer:
        answer = begin(text, params)
        time.sleep(0.2)
        return answer

    async def ask() -> None:
        for make in (lambda: chat.ask_async("wide"), lambda: chat.run_async("wide").__anext__()):
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(make(), 0.05)
            assert [message["content"] for message in chat.messages] == ["hello", "Hello world."]

    monkeypatch.setattr(chat, "_begin", slow)
    asyncio.run(ask())
    monkeypatch.undo()
    assert chat.ask("wide").read() == "漢字 😀 café"


def test_tools_and_callbacks_see_the_context(chat_model: duet.Model, demo_path: str) -> None:
    who = contextvars.ContextVar("who", default="nobody")

    def weather(city: str) -> str:
        return who.get()

    async def main() -> None:
        who.set("me")
        chat = chat_model.chat(tools=[weather])
        assert [e.content async for e in chat.run_async("call the weather") if isinstance(e, duet.ToolResult)] == ["me"]
        seen: List[str] = []
        (await duet.Model.open_async(demo_path, progress=lambda share: seen.append(who.get()))).close()
        duet.Model(demo_path, progress=lambda share: seen.append(who.get())).close()
        assert set(seen) == {"me"}

    asyncio.run(main())
