"""Conversations: messages in, events of the answer out, tools as functions."""
from __future__ import annotations

import contextlib
import ctypes
import inspect
import json
import weakref
from dataclasses import dataclass, field
from typing import Any, AsyncIterator, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Union

from . import _abi
from ._core import DuetError, Handle, Owner, defaults, error_of, lib, run, run_async, sized, string, using
from ._model import Buffer, Sampler, Schema, bytes_of, decode, encode, schema_text, strings, terminated, text_or_none
from ._schema import Tool, result_text
from ._session import Session, Steps, StopReason, new_sampler, parse, read_integer, saved

Messages = Union[Mapping[str, Any], Sequence[Mapping[str, Any]]]


def json_bytes(value: Any) -> bytes:
    return encode(json.dumps(value, ensure_ascii=False))


# ---- events ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PromptProgress:
    """n_done of the prompt's n_prompt tokens are computed; n_reused of them were in the sequence before."""

    n_done: int
    n_prompt: int
    n_reused: int


@dataclass(frozen=True)
class Text:
    """A piece of the answer."""

    text: str


@dataclass(frozen=True)
class Thinking:
    """A piece of the thinking before the answer."""

    text: str


@dataclass(frozen=True)
class CallBegin:
    """A call of a tool begins."""

    name: str
    id: str
    i_call: int


@dataclass(frozen=True)
class CallPiece:
    """A piece of a call's arguments, which are JSON."""

    text: str
    i_call: int


@dataclass(frozen=True)
class Call:
    """A call of a tool. arguments: None when the call was cut off."""

    name: str
    id: str
    arguments: Optional[Dict[str, Any]]
    text: str = field(repr=False)


@dataclass(frozen=True)
class CallEnd:
    """A call is over; is_complete: it was written to its end."""

    call: Call
    i_call: int
    is_complete: bool


@dataclass(frozen=True)
class End:
    """The answer is at its end."""

    stop_reason: StopReason
    n_tokens: int
    n_thinking: int
    n_prompt: int
    n_reused: int


@dataclass(frozen=True)
class ToolResult:
    """`Chat.run` called a tool; content is what the model reads, error what the tool raised."""

    call: Call
    content: str
    error: Optional[Exception] = None


Event = Union[PromptProgress, Text, Thinking, CallBegin, CallPiece, CallEnd, End]


@dataclass(frozen=True)
class Prompt:
    """What the template makes of the messages."""

    text: str
    ids: List[int]
    opens_thinking: bool


# ---- conversations --------------------------------------------------------------------------------------------------


class Chat(Owner):
    """A conversation with a model: its messages, and the template that turns them into a prompt.

    session: whose sequence holds the conversation. tools: functions with types (see `Tool`), `Tool`s, or descriptions
    as OpenAI's clients send them. template: text of a template (Jinja); template_name: one of the file's or a built-in
    one. thinking: on, off, or None: as the template has it. The rest: duet_chat_params in runtime.h.

    >>> import duet
    >>> chat = duet.Chat(duet.Model(demo).session(), template_name="chatml")
    >>> chat.add("user", "Who are you?")
    >>> chat.messages
    [{'role': 'user', 'content': 'Who are you?'}]
    """

    def __init__(self, session: Session, *, system: Optional[str] = None, tools: Sequence[Any] = (),
                 thinking: Optional[bool] = None, template: Optional[str] = None, template_name: Optional[str] = None,
                 documents: Optional[Sequence[Any]] = None, variables: Optional[Mapping[str, Any]] = None,
                 form: Optional[str] = None, now: Optional[str] = None, keeps_markers: bool = False) -> None:
        self.session = session
        self._own_session: Optional[Session] = None
        self._answer: Optional["weakref.ref[Answer]"] = None
        self.tools: Dict[str, Tool] = {}
        definitions: List[Any] = []
        for tool in tools:
            if isinstance(tool, Mapping):
                definitions.append(tool)
                continue
            made = tool if isinstance(tool, Tool) else Tool(tool)
            self.tools[made.name] = made
            definitions.append(made.definition)
        params = defaults(_abi.duet_chat_params)
        params.chat_template, params.template_name = text_or_none(template), text_or_none(template_name)
        self._has_tools = bool(definitions)
        params.tools = json_bytes(definitions) if definitions else None
        params.documents = None if documents is None else json_bytes(documents)
        params.variables = None if variables is None else json_bytes(variables)
        params.form, params.now = text_or_none(form), text_or_none(now)
        params.thinking = -1 if thinking is None else int(thinking)
        params.keeps_markers = keeps_markers
        model, address = session.model._handle, ctypes.c_void_p()
        with using(session._handle, model):
            status = lib.duet_chat_create(model.address, ctypes.byref(params), ctypes.byref(address))
            self._handle = Handle("chat", address.value, lib.duet_chat_free, lib.duet_chat_error, parents=(model,))
            self._handle.own(self)
        if status:
            with using(self._handle):
                text = self._handle.error()
            self.close()
            raise error_of(status, text)
        if system is not None:
            self.add("system", system)

    def close(self) -> None:
        super().close()
        if getattr(self, "_own_session", None):
            self.session.close()

    def _call(self, function: Callable[..., int], *arguments: Any) -> None:
        with using(self._handle):
            self._handle.check_status(function(self._handle.address, *arguments))

    def _end_answer(self) -> None:
        """Before the messages change: an answer that is not at its end ends where it is."""
        with using(self._handle):
            pass  # not while another thread computes it
        answer = self._answer() if self._answer else None
        if answer is not None:
            answer.close()
        self._answer = None

    # ---- messages ----

    def add(self, role: str, text: str) -> None:
        """Adds a message at the end."""
        name, data = terminated(role), encode(text)
        self._end_answer()
        self._call(lib.duet_chat_add, name, data, len(data))

    def insert(self, messages: Messages, i: int = -1) -> None:
        """Inserts messages (as OpenAI's clients write them) before message i; -1: at the end."""
        data = json_bytes(messages)
        self._end_answer()
        self._call(lib.duet_chat_insert, i, data, len(data))

    def remove(self, i: int, n: int = 1) -> None:
        """Removes n messages from message i on; a negative i counts from the end."""
        self._end_answer()
        self._call(lib.duet_chat_remove, i if i >= 0 else len(self) + i, n)

    def __bool__(self) -> bool:
        return True  # also without messages

    def __len__(self) -> int:
        with using(self._handle):
            return int(lib.duet_chat_count(self._handle.address))

    @property
    def messages(self) -> List[Dict[str, Any]]:
        """The messages, a copy."""
        with using(self._handle):
            address = self._handle.address
            texts = [string(lib.duet_chat_message(address, i)) for i in range(lib.duet_chat_count(address))]
        return [json.loads(text, parse_int=read_integer) for text in texts]

    @property
    def template(self) -> str:
        """The template that is used."""
        with using(self._handle):
            return decode(string(lib.duet_chat_template(self._handle.address)))

    @property
    def form(self) -> str:
        """The name of the form in which calls are read."""
        with using(self._handle):
            return decode(lib.duet_chat_form(self._handle.address) or b"")

    def render(self, *, answer: bool = True, continue_last: bool = False) -> Prompt:
        """The prompt. answer: it ends with the beginning of an answer. continue_last: it ends inside the last
        message."""
        flags = (0 if answer else _abi.DUET_CHAT_NO_ANSWER) | (_abi.DUET_CHAT_CONTINUE_LAST if continue_last else 0)
        with using(self._handle):
            prompt = sized(_abi.duet_chat_prompt)
            self._handle.check_status(lib.duet_chat_render(self._handle.address, flags, ctypes.byref(prompt)))
            return Prompt(decode(string(prompt.text)), prompt.ids[:prompt.n_ids], bool(prompt.opens_thinking))

    def save(self, *, state: bool = True, seq: int = 0) -> bytes:
        """The conversation as bytes; state: with the state of its sequence, so that it goes on without computing the
        prompt again."""
        used = (self._handle, self.session._handle) if state else (self._handle,)
        return saved(self._handle, used, lambda out, room, n: lib.duet_chat_save(
            self._handle.address, self.session._handle.address if state else None, seq, out, room, n))

    def load(self, data: Buffer, *, state: bool = True, seq: int = 0) -> None:
        """Replaces the messages, and with state the sequence, by saved ones."""
        data = bytes_of(data)
        self._end_answer()
        with using(self._handle, self.session._handle):
            if state:
                self.session._handle.check_views()
            self._handle.check_status(lib.duet_chat_load(
                self._handle.address, self.session._handle.address if state else None, seq, data, len(data)))

    # ---- answers ----

    def ask(self, text: str, **params: Any) -> "Answer":
        """Adds a question and begins an answer to it. The parameters are those of `answer`. Where that raises an error
        (a question that is too long: FullError), the question is taken back."""
        return self._begin(text, params)

    def _begin(self, text: Optional[str], params: Dict[str, Any]) -> "Answer":
        if text is None:
            return self.answer(**params)
        self.add("user", text)
        try:
            return self.answer(**params)
        except BaseException:
            self.remove(-1)
            raise

    def answer(self, *, max_tokens: int = -1, stop: Sequence[str] = (), seq: int = 0, continue_last: bool = False,
               sampler: Optional[Sampler] = None, seed: Optional[int] = None, tool_choice: Optional[str] = None,
               parallel: bool = True, schema: Optional[Schema] = None, gbnf: Optional[str] = None,
               **sampling: float) -> "Answer":
        """Begins an answer to the messages and computes nothing yet; it joins them when it ends, however it ends.

        tool_choice: "auto", "none", "required", or a tool's name; calls keep to the tools' schemas. schema, gbnf: what
        the text of the answer must be. The rest: as of `Session.generate`."""
        return Answer(self, max_tokens, stop, seq, continue_last, sampler, seed, tool_choice, parallel, schema, gbnf,
                      sampling)

    async def ask_async(self, text: str, **params: Any) -> "Answer":
        """ask() where tools or schemas are large: compiling their grammar may take 0.1 s. When the task is cancelled
        meanwhile, the question is taken back."""
        return await self._begin_async(text, params)

    async def answer_async(self, **params: Any) -> "Answer":
        """answer(), in the same way."""
        return await self._begin_async(None, params)

    async def _begin_async(self, text: Optional[str], params: Dict[str, Any]) -> "Answer":
        n = 0
        made: Optional[Answer] = None

        def call() -> "Answer":
            nonlocal n, made
            self._end_answer()
            n = len(self)
            made = self._begin(text, params)
            return made

        try:
            return await run_async(call)
        except BaseException:
            with contextlib.suppress(DuetError):
                if made is not None:  # nobody gets it
                    made.close()
                    if len(self) > n:
                        self.remove(n, len(self) - n)
            raise

    def run(self, text: Optional[str] = None, *, max_rounds: int = 8,
            **params: Any) -> Iterator[Union[Event, ToolResult]]:
        """Answers, calls the tools that the model calls, gives it their results, and goes on until it answers without
        a call, at most max_rounds times. What a tool raises becomes its result ("error: ..."). Coroutine functions are
        for run_async()."""
        for tool in self.tools.values():
            refuse_coroutine(tool)
        for i in range(max_rounds):
            with self._begin(None if i else text, params) as answer:
                yield from answer.events()
            calls = [call for call in answer.calls if call.arguments is not None]
            if not calls:
                return
            for call in calls:
                result = self.call(call)
                self._tell(result)
                yield result

    async def run_async(self, text: Optional[str] = None, *, max_rounds: int = 8,
                        **params: Any) -> AsyncIterator[Union[Event, ToolResult]]:
        """run() for `async for`. Tools may be coroutine functions; others are called on another thread."""
        for i in range(max_rounds):
            with await self._begin_async(None if i else text, params) as answer:
                async for event in answer.events_async():
                    yield event
            calls = [call for call in answer.calls if call.arguments is not None]
            if not calls:
                return
            for call in calls:
                result = await self._call_async(call)
                self._tell(result)
                yield result

    def _tell(self, result: ToolResult) -> None:
        call = result.call
        self.insert({"role": "tool", "tool_call_id": call.id, "name": call.name, "content": result.content})

    async def _call_async(self, call: Call) -> ToolResult:
        tool = self.tools.get(call.name)
        if tool is None or not is_coroutine(tool):
            return await run_async(lambda: self.call(call))
        try:
            return ToolResult(call, result_text(await tool.call(call.arguments or {})))
        except Exception as error:
            return ToolResult(call, error_text(error), error)

    def call(self, call: Call) -> ToolResult:
        """Calls the tool of a call, a coroutine function excepted: TypeError."""
        tool = self.tools.get(call.name)
        if tool is None:
            return ToolResult(call, f"error: no tool {call.name}", KeyError(call.name))
        refuse_coroutine(tool)
        try:
            return ToolResult(call, result_text(tool.call(call.arguments or {})))
        except Exception as error:
            return ToolResult(call, error_text(error), error)


def error_text(error: Exception) -> str:
    """What the model reads of an error; many have no text."""
    return f"error: {str(error) or type(error).__name__}"


def is_coroutine(tool: Tool) -> bool:
    """Whether its calls are to be awaited: a coroutine function, or an object that is called as one."""
    called = getattr(tool.function, "__call__", None)
    return inspect.iscoroutinefunction(tool.function) or inspect.iscoroutinefunction(called)


def refuse_coroutine(tool: Tool) -> None:
    if is_coroutine(tool):
        raise TypeError(f"tool {tool.name}: it is a coroutine function, which only run_async() can call")


class Answer(Steps[Event]):
    """An answer in the making. Iterating (also with `async for`) gives pieces of its text, `events()` also thinking,
    calls and the end. When it ends, however it ends, or is closed, what was told of it is in the chat's messages. It
    also ends when the chat's messages are changed or another answer is begun."""

    def __init__(self, chat: Chat, max_tokens: int, stop: Sequence[str], seq: int, continue_last: bool,
                 sampler: Optional[Sampler], seed: Optional[int], tool_choice: Optional[str], parallel: bool,
                 schema: Optional[Schema], gbnf: Optional[str], sampling: Dict[str, float]) -> None:
        chat._end_answer()
        self.chat, self._session, self._schema, self._seq = chat, chat.session, schema, seq
        self._texts: List[str] = []
        self._thinking: List[str] = []
        self._calls: List[Call] = []
        self._names: Dict[int, CallBegin] = {}
        self._pieces: Dict[int, List[str]] = {}
        self._end: Optional[End] = None
        self._sampler = new_sampler(chat.session.model, sampler, seed, None, None, sampling)
        if tool_choice is None and chat._has_tools:
            tool_choice = "auto"
        if tool_choice is not None or schema is not None or gbnf is not None:
            run(lambda: self._constrain(continue_last, tool_choice, parallel, gbnf))
        params = defaults(_abi.duet_chat_turn_params)
        params.seq, params.max_new_tok = seq, max_tokens
        params.flags = _abi.DUET_CHAT_CONTINUE_LAST if continue_last else 0
        params.stop, params.n_stop = strings(stop, "stop")
        address = ctypes.c_void_p()
        with using(chat._handle, chat.session._handle, self._sampler._handle):
            chat.session._handle.check_views()
            chat._handle.check_status(lib.duet_chat_begin(
                chat._handle.address, chat.session._handle.address, self._sampler._handle.address,
                ctypes.byref(params), ctypes.byref(address)))
            self._handle = Handle("answer", address.value, lib.duet_chat_turn_free, lib.duet_chat_error,
                                  parents=(chat._handle, chat.session._handle, self._sampler._handle))
            self._handle.own(self)
        chat._answer = weakref.ref(self)

    def _constrain(self, continue_last: bool, tool_choice: Optional[str], parallel: bool, gbnf: Optional[str]) -> None:
        opens_thinking = self.chat.render(continue_last=continue_last).opens_thinking
        params = defaults(_abi.duet_chat_grammar_params)
        params.tool_choice, params.parallel, params.opens_thinking = text_or_none(tool_choice), parallel, opens_thinking
        params.json_schema = None if self._schema is None else terminated(schema_text(self._schema))
        params.gbnf = text_or_none(gbnf)
        address = ctypes.c_void_p()
        with using(self.chat._handle, self._sampler._handle):
            status = lib.duet_chat_grammar(self.chat._handle.address, ctypes.byref(params), ctypes.byref(address))
            try:
                if status:
                    text = decode(lib.duet_grammar_error(address.value) or b"")
                    raise error_of(status, text or self.chat._handle.error())
                self._sampler._handle.check_status(
                    lib.duet_sampler_grammar(self._sampler._handle.address, address.value))
                self._sampler._has_lent_grammar = True
            finally:
                lib.duet_grammar_free(address.value)

    def _used(self) -> Any:
        return (self._handle, self.chat._handle, self._session._handle, self._sampler._handle)

    def _step(self) -> Event:
        e = sized(_abi.duet_chat_event)
        status = lib.duet_chat_next(self._handle.address, ctypes.byref(e))
        event = self._event(e, decode(string(e.text)), decode(string(e.call_id)))
        if isinstance(event, End):
            self._is_over, self._end = True, event
        self.chat._handle.check_status(status)
        return event

    def _event(self, e: _abi.duet_chat_event, text: str, call_id: str) -> Event:
        if e.kind == _abi.DUET_CHAT_PROMPT:
            return PromptProgress(e.n_done_tok, e.n_prompt_tok, e.n_reused_tok)
        if e.kind == _abi.DUET_CHAT_TEXT:
            self._texts.append(text)
            return Text(text)
        if e.kind == _abi.DUET_CHAT_THINKING:
            self._thinking.append(text)
            return Thinking(text)
        if e.kind == _abi.DUET_CHAT_CALL_BEGIN:
            self._names[e.i_call] = begin = CallBegin(text, call_id, e.i_call)
            self._pieces[e.i_call] = []
            return begin
        if e.kind == _abi.DUET_CHAT_CALL_PIECE:
            self._pieces[e.i_call].append(text)
            return CallPiece(text, e.i_call)
        if e.kind == _abi.DUET_CHAT_CALL_END:
            begin, written = self._names[e.i_call], "".join(self._pieces[e.i_call])
            try:  # The conversation keeps a call that was cut when its arguments are whole.
                arguments = json.loads(written or ("{}" if e.is_complete else ""), parse_int=read_integer)
            except ValueError:
                arguments = None
            call = Call(begin.name, begin.id, arguments if isinstance(arguments, dict) else None, written)
            self._calls.append(call)
            return CallEnd(call, e.i_call, bool(e.is_complete))
        return End(StopReason(e.stop_reason), e.n_done_tok, e.n_thinking_tok, e.n_prompt_tok, e.n_reused_tok)

    def _text_of(self, event: Event) -> str:
        return event.text if isinstance(event, Text) else ""

    def parsed(self) -> Any:
        """The whole text as a value of the schema: a pydantic model's object, ..."""
        return parse(self.read(), self._schema)

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(self._texts)

    @property
    def thinking(self) -> str:
        """The thinking so far."""
        return "".join(self._thinking)

    @property
    def calls(self) -> List[Call]:
        """The calls that are over."""
        return list(self._calls)

    @property
    def end(self) -> Optional[End]:
        """Why it ended, and its counts; None: it goes on, or was closed before."""
        return self._end

    @property
    def stop_reason(self) -> StopReason:
        """Why it ended; NONE: it goes on."""
        return self._end.stop_reason if self._end else StopReason.NONE


def render_template(template: str, variables: Mapping[str, Any], *, now: Optional[str] = None) -> str:
    """Renders any template (Jinja) with any variables, without a model.

    >>> import duet
    >>> duet.render_template("{% for m in messages %}<{{ m }}>{% endfor %}", {"messages": ["a", "b"]})
    '<a><b>'
    """
    source, given = encode(template), json_bytes(variables)
    clock = text_or_none(now)

    def call() -> str:
        n_max, n = 65536, ctypes.c_size_t()
        while True:
            out = ctypes.create_string_buffer(n_max)
            status = lib.duet_template_render(source, len(source), given, len(given), clock, out, n_max,
                                              ctypes.byref(n))
            if status == _abi.DUET_ERR_FULL and n.value > n_max:
                n_max = n.value
            elif status:
                raise error_of(status, decode(lib.duet_chat_error(None) or b""))
            else:
                return decode(out.raw[:n.value])

    return run(call)
