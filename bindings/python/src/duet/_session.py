"""Sessions: the state of sequences, and texts that are generated step by step."""
from __future__ import annotations

import ctypes
import enum
import json
from dataclasses import dataclass
from typing import (TYPE_CHECKING, Any, AsyncIterator, Callable, Dict, Generic, Iterator, List, Mapping, Optional,
                    Sequence, Tuple, TypeVar, Union)

from . import _abi
from ._core import (ArgumentError, CancelledError, DuetError, Handle, Owner, StateError, defaults, error_of, int32s, lib,
                    run, run_async, sized, using)
from ._embed import Texts, absorb_at_once, embedding_of, scoring_of
from ._model import Buffer, Grammar, Ids, Model, Sampler, Schema, bytes_of, decode, session_params, strings
from ._schema import convert

if TYPE_CHECKING:
    import numpy
    import numpy.typing

    from ._chat import Answer

T = TypeVar("T")
S = TypeVar("S")


class StopReason(enum.IntEnum):
    """Why a text ended."""

    NONE = _abi.DUET_STOP_NONE
    END = _abi.DUET_STOP_END
    LIMIT = _abi.DUET_STOP_LIMIT
    STRING = _abi.DUET_STOP_STRING
    CALLBACK = _abi.DUET_STOP_CALLBACK
    CONTEXT = _abi.DUET_STOP_CONTEXT
    CANCELLED = _abi.DUET_STOP_CANCELLED
    ERROR = _abi.DUET_STOP_ERROR


class Session(Owner):
    """The state of sequences of tokens, and the work buffers of one user of a model. It belongs to one thread at a
    time: a call while another runs raises BusyError.

    >>> import duet
    >>> model = duet.Model(demo)
    >>> with model.session() as session:
    ...     text = session.generate("Once upon a time", max_tokens=8, seed=1).read()
    ...     session.length() == len(model.tokenize("Once upon a time")) + 8
    True
    """

    def __init__(self, model: Model, *, n_ctx: int = 0, n_seqs: int = 1, max_batch: int = 512,
                 cache_type: str = "f16", cache_tokens: int = 0) -> None:
        params = session_params(n_ctx, n_seqs, max_batch, cache_type, cache_tokens)
        run(self._creation(model, params), model._callbacks.stop)
        self._after_creation()

    @classmethod
    async def _create_async(cls, model: Model, params: _abi.duet_session_params) -> "Session":
        made = cls.__new__(cls)
        await run_async(made._creation(model, params), model._callbacks.stop)
        made._after_creation()
        return made

    def _creation(self, model: Model, params: _abi.duet_session_params) -> Callable[[], None]:
        self.model, self._n_seqs = model, params.n_seqs
        callbacks = model._callbacks

        def call() -> None:
            callbacks.is_stopped = False
            with using(model._handle):
                address = ctypes.c_void_p()
                status = lib.duet_session_create(model._handle.address, ctypes.byref(params), ctypes.byref(address))
                handle = Handle("session", address.value, lib.duet_session_free, lib.duet_session_error,
                                parents=(model._handle,))
                error = callbacks.take_error()
                if status:
                    text = handle.error()
                    handle.close()
                    raise error or error_of(status, text)
                handle.own(self)
                self._handle = handle

        return call

    def _after_creation(self) -> None:
        with using(self._handle):
            self._n_ctx = int(lib.duet_session_n_ctx(self._handle.address))
            self._max_batch = int(lib.duet_session_max_batch(self._handle.address))
        with using(self.model._handle):
            info = sized(_abi.duet_model_info)
            self.model._handle.check_status(lib.duet_model_get_info(self.model._handle.address, ctypes.byref(info)))
            self._n_vocab, self._dim, self._embedding_dim = info.n_vocab, info.dim, info.embedding_dim
            self._is_encoder = bool(info.is_encoder)

    def __repr__(self) -> str:
        return "<duet.Session, closed>" if self.closed else f"<duet.Session of {self._n_ctx} tokens>"

    @property
    def n_ctx(self) -> int:
        """Tokens that a sequence may hold."""
        return self._n_ctx

    @property
    def max_batch(self) -> int:
        """Tokens that are computed at once at most."""
        return self._max_batch

    def cancel(self) -> None:
        """Stops what runs on the session within about 100 ms, or, when nothing runs, the next that does: it raises
        CancelledError. Any thread may call it."""
        self._handle.take_open()
        try:
            lib.duet_session_cancel(self._handle.address)
        finally:
            self._handle.drop()

    def _stop(self) -> None:
        """cancel() of a call that waits to be stopped: it may run on after the session was closed."""
        if self._handle.take_used():
            try:
                lib.duet_session_cancel(self._handle.address)
            finally:
                self._handle.drop()

    def _absorb(self, seq: int) -> None:
        """Takes back a cancel() that came too late: a step that goes on from the kept logits ends at once by it."""
        if self._is_encoder:  # it makes no text
            return absorb_at_once(self)
        params = defaults(_abi.duet_generate_params)
        params.seq = seq
        try:
            generation = Generation(self, Sampler(plain=True), (), params, None)
        except (StateError, ArgumentError):  # no logits are kept: a token that would fit is stopped before it is added
            lengths = (int(lib.duet_seq_length(self._handle.address, i)) for i in range(self._n_seqs))
            room = next((i for i, n in enumerate(lengths) if n < self._n_ctx), seq)
            return self._decoding([0], room, None, None)()
        with using(*generation._used()):
            generation._step()

    def _call(self, call: Callable[[int], T]) -> T:
        """A short call that leaves logits and embeddings where they are."""
        with using(self._handle):
            return call(self._handle.address or 0)

    def _change(self, call: Callable[[int], int]) -> None:
        """A call after which arrays of logits and embeddings would show something else."""
        with using(self._handle):
            self._handle.check_views()
            self._handle.check_status(call(self._handle.address or 0))

    # ---- sequences ----

    def decode(self, ids: Ids, *, seq: Union[int, Ids] = 0, pos: Optional[Ids] = None,
               logits: Union[None, bool, Sequence[bool]] = None) -> None:
        """Runs the model on tokens and appends them to their sequences. logits: for which of them logits are kept:
        None: for the last one; True: for all; or one value for each. After an interrupt the sequence holds the pieces
        of max_batch tokens that were finished."""
        run(self._decoding(ids, seq, pos, logits), self._stop, lambda: self._absorb(last_of(seq)))

    async def decode_async(self, ids: Ids, *, seq: Union[int, Ids] = 0,
                           pos: Optional[Ids] = None,
                           logits: Union[None, bool, Sequence[bool]] = None) -> None:
        """decode() without blocking the event loop."""
        await run_async(self._decoding(ids, seq, pos, logits), self._stop, lambda: self._absorb(last_of(seq)))

    def _decoding(self, ids: Ids, seq: Union[int, Ids], pos: Optional[Ids],
                  logits: Union[None, bool, Sequence[bool]]) -> Callable[[], None]:
        n = len(ids)
        wanted: Any = logits if logits is None or hasattr(logits, "__len__") else [logits] * n
        seqs: Any = seq if hasattr(seq, "__len__") else [seq] * n
        for name, given in (("seq", seqs), ("pos", pos), ("logits", wanted)):
            if given is not None and len(given) != n:
                raise error_of(_abi.DUET_ERR_ARG, f"{name}: want one for each of {n} ids, got {len(given)}")
        batch = defaults(_abi.duet_batch)
        batch.n_tok = n
        batch.token = int32s(ids)
        batch.seq = int32s(seqs, "seq")
        batch.pos = None if pos is None else int32s(pos, "pos")
        batch.want_logits = None if wanted is None else (ctypes.c_uint8 * n)(*map(bool, wanted))

        def call() -> None:
            with using(self._handle):
                self._handle.check_views()
                self._handle.check_status(lib.duet_decode(self._handle.address, ctypes.byref(batch)))

        return call

    def logits(self, i: int = -1, *, copy: bool = False) -> "numpy.typing.NDArray[numpy.float32]":
        """Logits of the i-th token that asked for them in the last decode (-1: the last one), as a numpy array over
        the session's own memory, which may be written to. As long as such an array lives, calls that would change the
        memory raise BufferError; the memory outlives the session if need be. copy: an array of its own.

        >>> import duet
        >>> session = duet.Model(demo).session()
        >>> session.decode(session.model.tokenize("Once upon a"))
        >>> logits = session.logits()
        >>> session.model.token_bytes(int(logits.argmax()))
        b' time'
        >>> session.decode([1])
        Traceback (most recent call last):
            ...
        BufferError: 1 array(s) still show the session's memory, which this call would change: ...
        >>> del logits
        >>> session.decode([1])
        """
        def call(address: int) -> "numpy.typing.NDArray[numpy.float32]":
            n = lib.duet_logits_count(address)
            if not n:
                raise error_of(_abi.DUET_ERR_STATE, "logits: want a decode before that keeps some, got none")
            row = lib.duet_logits(address, i if i >= 0 else n + i)
            if not row:
                raise error_of(_abi.DUET_ERR_STATE, f"logits: want a row of -{n}..{n - 1} of the last decode, got {i}")
            return self._array(row, self._n_vocab, copy)

        return self._call(call)

    @property
    def n_logits(self) -> int:
        """How many tokens of the last decode have logits."""
        return self._call(lambda address: int(lib.duet_logits_count(address)))

    def embedding(self, *, copy: bool = False) -> "numpy.typing.NDArray[numpy.float32]":
        """The final hidden state, after the output norm, of the last token of the last decode: an array as of
        `logits`, which must not be written to."""
        def call(address: int) -> "numpy.typing.NDArray[numpy.float32]":
            row = lib.duet_embedding(address)
            if not row:
                raise error_of(_abi.DUET_ERR_STATE, "embedding: want a decode before, got none")
            made = self._array(row, self._dim, copy)
            made.flags.writeable = copy
            return made

        return self._call(call)

    def embed(self, texts: Texts, *, pooling: str = "file", normalise: bool = True,
              cut: bool = False) -> "numpy.typing.NDArray[numpy.float32]":
        """A vector for each text (or for each list of ids, as it is): the rows of an array that the library writes
        into. Up to n_seqs texts are computed at once, and each has the bits that it has alone. The sequences are
        empty afterwards. pooling: file, mean, cls or last. normalise: vectors have length 1. cut: a text longer than
        the context is cut into pieces, whose vectors are averaged; else it is an error.

        >>> import duet
        >>> session = duet.Model(demo).session(n_seqs=4, cache_tokens=4096)
        >>> vectors = session.embed(["A cat sat.", "A dog ran.", "A cat sat."])
        >>> vectors.shape, bool((vectors[0] == vectors[2]).all())
        ((3, 192), True)
        """
        out, call = embedding_of(self, texts, pooling, normalise, cut)
        run(call, self._stop, lambda: absorb_at_once(self))
        return out

    async def embed_async(self, texts: Texts, *, pooling: str = "file", normalise: bool = True,
                          cut: bool = False) -> "numpy.typing.NDArray[numpy.float32]":
        """embed() without blocking the event loop."""
        out, call = embedding_of(self, texts, pooling, normalise, cut)
        await run_async(call, self._stop, lambda: absorb_at_once(self))
        return out

    def rerank(self, query: str, texts: Sequence[str]) -> "numpy.typing.NDArray[numpy.float32]":
        """How well each text answers the query, of a model with a head for it (`ModelInfo.is_reranker`), or of one
        that is asked for yes and no: 0..1 there. The sequences are empty afterwards."""
        out, call = scoring_of(self, query, texts)
        run(call, self._stop, lambda: absorb_at_once(self))
        return out

    async def rerank_async(self, query: str, texts: Sequence[str]) -> "numpy.typing.NDArray[numpy.float32]":
        """rerank() without blocking the event loop."""
        out, call = scoring_of(self, query, texts)
        await run_async(call, self._stop, lambda: absorb_at_once(self))
        return out

    def _array(self, row: Any, n: int, copy: bool) -> "numpy.typing.NDArray[numpy.float32]":
        import numpy

        address = ctypes.cast(row, ctypes.c_void_p).value or 0
        made = numpy.frombuffer(self._handle.view(address, ctypes.c_float * n), dtype=numpy.float32)
        return made.copy() if copy else made

    def length(self, seq: int = 0) -> int:
        """How many tokens a sequence holds."""
        n = self._call(lambda address: int(lib.duet_seq_length(address, seq)))
        if n < 0:
            raise error_of(_abi.DUET_ERR_ARG, f"seq: the session has no sequence {seq}")
        return n

    def ids(self, seq: int = 0) -> List[int]:
        """The tokens that a sequence holds."""
        def call(address: int) -> List[int]:
            ids = lib.duet_seq_ids(address, seq)
            return ids[:n] if ids else []

        n = self.length(seq)
        return self._call(call)

    def reuse(self, ids: Ids, *, seq: int = 0) -> int:
        """Shortens a sequence to what it has in common with the beginning of ids, as far as it can go back; gives its
        length."""
        given = int32s(ids)
        kept = -1

        def call(address: int) -> int:
            nonlocal kept
            kept = lib.duet_seq_reuse(address, seq, given, len(ids))
            return _abi.DUET_OK

        self._change(call)
        if kept < 0:
            raise error_of(_abi.DUET_ERR_ARG, f"seq: the session has no sequence {seq}")
        return kept

    def trim(self, n: int = 0, *, seq: int = 0) -> None:
        """Shortens a sequence to n tokens."""
        self._change(lambda address: int(lib.duet_seq_trim(address, seq, n)))

    def copy(self, src: int, dst: int) -> None:
        """Makes sequence dst a copy of src. They share memory as far as they are the same."""
        self._change(lambda address: int(lib.duet_seq_copy(address, src, dst)))

    def save(self, *, seq: int = 0) -> bytes:
        """The state of a sequence as bytes, which any machine with the same model can load.

        >>> import duet
        >>> model = duet.Model(demo)
        >>> a, b = model.session(), model.session()
        >>> a.decode(model.tokenize("Once upon a time"))
        >>> b.load(a.save())
        >>> b.ids() == a.ids()
        True
        """
        return saved(self._handle, (self._handle,), lambda out, room, n: lib.duet_seq_save(
            self._handle.address, seq, out, room, n))

    def load(self, state: Buffer, *, seq: int = 0) -> None:
        """Replaces a sequence by a saved state."""
        state = bytes_of(state)
        self._change(lambda address: int(lib.duet_seq_load(address, seq, state, len(state))))

    # ---- texts ----

    def generate(self, prompt: Union[None, str, Ids] = None, *, max_tokens: int = -1,
                 stop: Sequence[str] = (), seq: int = 0, ignore_end: bool = False, special: bool = False,
                 sampler: Optional[Sampler] = None, seed: Optional[int] = None, grammar: Optional[Grammar] = None,
                 schema: Optional[Schema] = None, **sampling: float) -> "Generation":
        """Begins a text and computes nothing yet: iterate over it for its pieces, or `read()` it.

        prompt: text or ids, which are appended to the sequence; None: it goes on from where it is (after an interrupt,
        a trim or a load the last token is computed again first). max_tokens: -1:
        until the model ends the text or the context is full. stop: strings that end the text. sampler: or seed and
        parameters of a new `Sampler`. grammar, schema: what this text must be; the sampler's next text need not.

        >>> import duet
        >>> session = duet.Model(demo).session()
        >>> story = session.generate("Once upon a time", max_tokens=20, temp=0)
        >>> for piece in story:
        ...     pass
        >>> story.text[:9], story.stop_reason.name
        (', a brave', 'LIMIT')
        """
        ids: Ids = ()
        if isinstance(prompt, str):
            ids = self.model.tokenize(prompt, bos=self.length(seq) == 0)
        elif prompt is not None:
            ids = prompt
        params = defaults(_abi.duet_generate_params)
        params.seq, params.max_new_tok, params.ignore_end, params.special = seq, max_tokens, ignore_end, special
        params.stop, params.n_stop = strings(stop, "stop")
        chosen = new_sampler(self.model, sampler, seed, grammar, schema, sampling)
        try:
            return Generation(self, chosen, ids, params, schema)
        except StateError as error:  # no logits are left: of an interrupted step, or of the tokens that were trimmed
            if type(error) is not StateError or len(ids) > 0:
                raise
            last = self.ids(seq)[-1]
            try:
                self.trim(self.length(seq) - 1, seq=seq)
            except StateError:
                raise error from None
            self.decode([last], seq=seq)
            return Generation(self, chosen, ids, params, schema)

    async def generate_async(self, prompt: Union[None, str, Ids] = None, **params: Any) -> "Generation":
        """generate() where a schema is large: compiling one may take 0.1 s."""
        return await run_async(lambda: self.generate(prompt, **params))

    def chat(self, messages: Union[str, Sequence[Mapping[str, Any]]], *, tools: Sequence[Any] = (),
             thinking: Optional[bool] = None, template: Optional[str] = None, template_name: Optional[str] = None,
             max_tokens: int = -1, stop: Sequence[str] = (), seq: int = 0, sampler: Optional[Sampler] = None,
             seed: Optional[int] = None, tool_choice: Optional[str] = None, schema: Optional[Schema] = None,
             gbnf: Optional[str] = None, **sampling: float) -> "Answer":
        """Begins an answer to messages (as OpenAI's clients write them) or to one question. What the sequence holds of
        them already is not computed again. For a conversation that keeps its messages see `Chat`."""
        from ._chat import Answer, Chat

        chat = Chat(self, tools=tools, thinking=thinking, template=template, template_name=template_name)
        chat.insert([{"role": "user", "content": messages}] if isinstance(messages, str) else messages)
        return Answer(chat, max_tokens, stop, seq, False, sampler, seed, tool_choice, True, schema, gbnf, sampling)


def last_of(seq: Any) -> int:
    return seq if not hasattr(seq, "__len__") else seq[-1] if len(seq) else 0


def saved(handle: Handle, used: Tuple[Handle, ...], save: Callable[[Any, int, Any], int]) -> bytes:
    """The bytes of a call that tells their number first."""
    n = ctypes.c_uint64()
    with using(*used):
        handle.check_status(save(None, 0, ctypes.byref(n)))
        out = ctypes.create_string_buffer(n.value)
        handle.check_status(save(out, n.value, ctypes.byref(n)))
        return out.raw[:n.value]


def new_sampler(model: Model, sampler: Optional[Sampler], seed: Optional[int], grammar: Optional[Grammar],
                schema: Optional[Schema], sampling: Dict[str, Any]) -> Sampler:
    if grammar is not None and schema is not None:
        raise error_of(_abi.DUET_ERR_ARG, "want grammar or schema, got both")
    if schema is not None:
        grammar = model.grammar(schema=schema)
    if sampler is None:
        return Sampler(seed, grammar=grammar, **sampling)
    if not isinstance(sampler, Sampler):
        raise error_of(_abi.DUET_ERR_ARG, f"sampler: want a Sampler, got {type(sampler).__name__}")
    if seed is not None or sampling:
        raise error_of(_abi.DUET_ERR_ARG, "want a sampler, or a seed and parameters of a new one, got both")
    sampler._begin_text(grammar)
    return sampler


# ---- generations ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TokenEvent:
    """A step of a generation. id: the token, -1: none (a piece of the prompt, the end). text: what is certain now."""

    id: int
    pos: int
    text: str
    stop_reason: StopReason


@dataclass(frozen=True)
class GenerateResult:
    """What a generation has done so far."""

    n_prompt_tok: int
    n_new_tok: int
    stop_reason: StopReason
    prompt_us: int
    generate_us: int


E = TypeVar("E")


class Steps(Owner, Generic[E]):
    """What texts and answers have in common: steps that are computed one at a time, here or on an event loop."""

    _session: Session
    _sampler: Sampler
    _seq = 0
    _is_over = False

    def _step(self) -> E:
        """Computes a step."""
        raise NotImplementedError

    def _text_of(self, event: E) -> str:
        """What a step adds to the text."""
        raise NotImplementedError

    @property
    def text(self) -> str:
        """The text so far."""
        raise NotImplementedError

    def _used(self) -> Tuple[Handle, ...]:
        return (self._handle, self._session._handle, self._sampler._handle)

    def __iter__(self: S) -> S:
        return self

    def __next__(self) -> str:
        while event := self._take():
            if text := self._text_of(event):
                return text
        raise StopIteration

    def __aiter__(self: S) -> S:
        return self

    async def __anext__(self) -> str:
        while event := await self._take_async():
            if text := self._text_of(event):
                return text
        raise StopAsyncIteration

    def events(self) -> Iterator[E]:
        """Every step that is still to come, not only those with text; the last says why it ended."""
        while event := self._take():
            yield event

    async def events_async(self) -> AsyncIterator[E]:
        """events() for `async for`."""
        while event := await self._take_async():
            yield event

    def read(self) -> str:
        """Runs it to its end and gives the whole text."""
        while self._take():
            pass
        return self.text

    async def read_async(self) -> str:
        """read() without blocking the event loop."""
        while await self._take_async():
            pass
        return self.text

    def _take(self) -> Optional[E]:
        """One step; None after the last."""
        try:
            return None if self._is_over else run(self._locked_step, self._session._stop, self._absorb)
        except KeyboardInterrupt:    # also one between two calls of the library
            self.close()
            raise

    async def _take_async(self) -> Optional[E]:
        try:
            return None if self._is_over else await run_async(self._locked_step, self._session._stop, self._absorb)
        except BaseException as error:
            if not isinstance(error, Exception):  # a cancelled task's, also one between two calls of the library
                self.close()
            raise

    def _locked_step(self) -> E:
        with using(*self._used()):
            self._session._handle.check_views()
            return self._step()

    def close(self) -> None:
        """Ends it where it is, as close() of Python's generators does: iterating over it ends, too."""
        self._is_over = True
        super().close()

    def _absorb(self) -> None:
        """Takes back a request to stop that came too late for its step: another step ends by it, or, where there is
        none any more, the session takes it."""
        try:
            while not self._is_over:
                self._locked_step()
        except CancelledError:
            return
        except DuetError:
            pass
        self._session._absorb(self._seq)


class Generation(Steps[TokenEvent]):
    """A text in the making. Iterating (also with `async for`) gives its pieces as they become certain; `events()`
    gives every step. It may be left at any step: what was told is in the sequence.

    After Ctrl-C, or when the task is cancelled, the text is at its end, and the session can be used further.
    """

    def __init__(self, session: Session, sampler: Sampler, ids: Ids, params: _abi.duet_generate_params,
                 schema: Optional[Schema]) -> None:
        self._session, self._sampler, self._schema = session, sampler, schema
        self._seq = params.seq
        self._pieces: List[str] = []
        self._stop_reason = StopReason.NONE
        given = int32s(ids)
        address = ctypes.c_void_p()
        with using(session._handle, sampler._handle):
            session._handle.check_status(lib.duet_generate_begin(
                session._handle.address, sampler._handle.address, given, len(ids), ctypes.byref(params),
                ctypes.byref(address)))
            self._handle = Handle("generation", address.value, lib.duet_generation_free, lib.duet_session_error,
                                  parents=(session._handle, sampler._handle))
            self._handle.own(self)

    def _step(self) -> TokenEvent:
        event = sized(_abi.duet_token_event)
        status = lib.duet_generate_next(self._handle.address, ctypes.byref(event))
        text = decode(ctypes.string_at(event.text, event.n_bytes)) if event.text else ""
        self._pieces.append(text)
        self._stop_reason = StopReason(event.stop_reason)
        if self._stop_reason is not StopReason.NONE:
            self._is_over = True
        self._session._handle.check_status(status)
        return TokenEvent(event.id, event.pos, text, self._stop_reason)

    def _text_of(self, event: TokenEvent) -> str:
        return event.text

    def parsed(self) -> Any:
        """The whole text as a value of the schema that `generate` was given: a pydantic model's object, ..."""
        return parse(self.read(), self._schema)

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(self._pieces)

    @property
    def stop_reason(self) -> StopReason:
        """Why it ended; NONE: it goes on."""
        return self._stop_reason

    @property
    def result(self) -> GenerateResult:
        """Counts and times so far."""
        with using(self._handle, self._session._handle):
            r = sized(_abi.duet_generate_result)
            self._session._handle.check_status(lib.duet_generation_result(self._handle.address, ctypes.byref(r)))
            return GenerateResult(r.n_prompt_tok, r.n_new_tok, StopReason(r.stop_reason), r.prompt_us, r.generate_us)


def read_integer(digits: str) -> Union[int, float]:
    """An integer of a JSON text. One of more digits than Python turns into an int is a float: they are beyond it, too."""
    try:
        return int(digits)
    except ValueError:
        return float(digits)


def parse(text: str, schema: Any) -> Any:
    """A JSON text as a value of the type that the schema was made of."""
    if isinstance(schema, type) and hasattr(schema, "model_validate_json"):
        return schema.model_validate_json(text)
    value = json.loads(text, parse_int=read_integer)
    return value if schema is None or isinstance(schema, (str, Mapping)) else convert(value, schema)
