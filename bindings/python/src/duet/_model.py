"""Models and what belongs to them: the file, the tokenizer, grammars, samplers, devices."""
from __future__ import annotations

import ctypes
import json
import operator
import os
import random
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

from . import _abi
from ._core import (DuetError, Handle, Owner, defaults, error_of, int32s, lib, run, run_async, sized, string, using,
                    whole)
from ._schema import json_schema

if TYPE_CHECKING:
    import numpy
    import numpy.typing

    from ._chat import Chat
    from ._session import Session

Progress = Callable[[float], Any]
Log = Callable[[str], None]
Schema = Any  # a text, a mapping or a type; type checkers have no name for what Optional[int] and Literal["a"] are
PathLike = Union[str, "os.PathLike[str]"]
Buffer = Union[bytes, bytearray, memoryview, "numpy.typing.NDArray[Any]"]
Ids = Union[Sequence[int], "numpy.typing.NDArray[numpy.integer[Any]]"]

CACHE_TYPES = {"f16": _abi.DUET_CACHE_F16, "f32": _abi.DUET_CACHE_F32, "q8_0": _abi.DUET_CACHE_Q8_0}

#: What samplers have where nothing else is said: as the programs `run` and `serve`.
SAMPLING: Dict[str, float] = {"temp": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05}


def encode(text: str) -> bytes:
    """UTF-8; halves of surrogate pairs, which Python's strings may hold, become U+FFFD."""
    if not isinstance(text, str):
        raise error_of(_abi.DUET_ERR_ARG, f"want a text, got {type(text).__name__}")
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def terminated(text: str) -> bytes:
    """A text that the library reads up to its first NUL."""
    data = encode(text)
    if b"\0" in data:
        raise error_of(_abi.DUET_ERR_ARG, f"want a text without NUL, got {text[:40]!r}")
    return data


def text_or_none(text: Optional[str]) -> Optional[bytes]:
    return None if text is None else terminated(text)


def path_bytes(path: PathLike) -> bytes:
    name = os.fsencode(path)
    if b"\0" in name:
        raise error_of(_abi.DUET_ERR_ARG, f"want a path without NUL, got {name!r}")
    return name


def bytes_of(data: Any) -> bytes:
    return data if isinstance(data, bytes) else bytes(memoryview(data))


def decode(text: bytes) -> str:
    return text.decode("utf-8", "replace")


def no_error(_: object) -> Optional[bytes]:
    return b""


# ---- devices and formats --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Device:
    """A device, or a driver without one. `why`: why it is not usable or not the default."""

    id: str
    name: str
    chip: str
    driver: str
    why: str
    is_usable: bool
    is_default: bool
    is_integrated: bool
    memory_bytes: int
    free_bytes: int


def devices() -> List[Device]:
    """The devices of this machine, the CPU first.

    >>> import duet
    >>> duet.devices()[0].id
    'cpu'
    """
    found: List[Device] = []

    def each(_: object, row: Any) -> None:
        d = row.contents
        found.append(Device(decode(d.id), decode(d.name), decode(d.chip), decode(d.driver), decode(d.why),
                            bool(d.is_usable), bool(d.is_default), bool(d.is_integrated), d.memory_bytes, d.free_bytes))

    def call() -> None:
        status = lib.duet_list_devices(_abi.duet_device_fn(each), None)
        if status:
            raise error_of(status, decode(lib.duet_model_error(None)))

    run(call)
    return found


def version() -> str:
    """The version of the library.

    >>> import duet
    >>> duet.version() == duet.__version__
    True
    """
    return decode(lib.duet_version())


def build_info() -> str:
    """In one line what was built in: compiler, instruction sets of CPUs, chips of GPUs."""
    return decode(lib.duet_build_info())


def numerics_version() -> int:
    """The same model, tokens and settings give the same logits bit for bit while this number stays the same."""
    return int(lib.duet_numerics_version())


# ---- files ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tensor:
    """A tensor of a GGUF file; shape: fastest dimension first."""

    name: str
    type: str
    shape: Tuple[int, ...]
    n_bytes: int
    offset: int


class File(Owner, Mapping[str, Any]):
    """A GGUF file (also a split one): a mapping of its metadata, and its tensors.

    >>> import duet
    >>> with duet.File(demo) as file:
    ...     file["general.architecture"], len(file.tensors) > 10
    ('llama', True)
    """

    def __init__(self, path: PathLike) -> None:
        address = ctypes.c_void_p()
        status = lib.duet_file_open(path_bytes(path), ctypes.byref(address))
        self._handle = Handle("file", address.value, lib.duet_file_free, lib.duet_file_error, is_shared=True)
        self._handle.own(self)
        if status:
            text = self._handle.error()
            self._handle.close()
            raise error_of(status, text)

    @classmethod
    def _of(cls, model: "Model") -> "File":
        made = cls.__new__(cls)
        made._handle = Handle("file", lib.duet_model_file(model._handle.address), no_error, lib.duet_file_error,
                              parents=(model._handle,), is_shared=True)
        made._handle.own(made)
        return made

    def _find(self, key: object) -> int:
        is_name = isinstance(key, str) and "\0" not in key
        return int(lib.duet_file_find_kv(self._handle.address, encode(str(key)))) if is_name else -1

    def __contains__(self, key: object) -> bool:
        with using(self._handle):
            return self._find(key) >= 0

    def __getitem__(self, key: str) -> Any:
        with using(self._handle):
            i = self._find(key)
            if i < 0:
                raise KeyError(key)
            row = _abi.duet_kv()
            self._handle.check_status(lib.duet_file_kv(self._handle.address, i, ctypes.byref(row)))
            if row.type != _abi.DUET_KV_ARRAY:
                return self._value(i, 0, row.type)
            return [self._value(i, k, row.array_type) for k in range(row.n_values)]

    def _value(self, i: int, k: int, kind: int) -> Any:
        out: Any
        read: Callable[..., int]
        if kind == _abi.DUET_KV_STRING:
            out, read = _abi.duet_string(), lib.duet_file_get_string
        elif kind in (_abi.DUET_KV_F32, _abi.DUET_KV_F64):
            out, read = ctypes.c_double(), lib.duet_file_get_float
        else:
            out, read = ctypes.c_int64(), lib.duet_file_get_int
        status = read(self._handle.address, i, k, ctypes.byref(out))
        if status == _abi.DUET_ERR_FORMAT and kind == _abi.DUET_KV_U64:  # above 2^63 - 1: its bits are there
            return int(out.value) & (2**64 - 1)
        self._handle.check_status(status)
        if kind == _abi.DUET_KV_STRING:
            return decode(string(out))
        return bool(out.value) if kind == _abi.DUET_KV_BOOL else out.value

    def __iter__(self) -> Iterator[str]:
        row = _abi.duet_kv()
        for i in range(len(self)):
            with using(self._handle):
                self._handle.check_status(lib.duet_file_kv(self._handle.address, i, ctypes.byref(row)))
                key = decode(string(row.key))
            yield key

    def __len__(self) -> int:
        with using(self._handle):
            return int(lib.duet_file_n_kv(self._handle.address))

    @property
    def tensors(self) -> List[Tensor]:
        with using(self._handle):
            address, row, made = self._handle.address, _abi.duet_tensor(), []
            for i in range(lib.duet_file_n_tensors(address)):
                self._handle.check_status(lib.duet_file_tensor(address, i, ctypes.byref(row)))
                kind = lib.duet_type_by_id(row.type_id)
                made.append(Tensor(decode(string(row.name)), decode(kind.contents.name) if kind else str(row.type_id),
                                   tuple(row.dims[:row.n_dims]), row.n_bytes, row.offset))
            return made


# ---- models ---------------------------------------------------------------------------------------------------------


class _Buffer(ctypes.Structure):  # Py_buffer
    _fields_ = [("buf", ctypes.c_void_p), ("obj", ctypes.py_object), ("len", ctypes.c_ssize_t),
                ("itemsize", ctypes.c_ssize_t), ("readonly", ctypes.c_int), ("ndim", ctypes.c_int),
                ("format", ctypes.c_char_p), ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p),
                ("suboffsets", ctypes.c_void_p), ("internal", ctypes.c_void_p)]


class _Pinned:
    """The memory of an object with the buffer protocol, which stays where it is while this lives."""

    def __init__(self, data: Any) -> None:
        self._is_held = False
        self._buffer = _Buffer()
        ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(data), ctypes.byref(self._buffer), 0)
        self._is_held = True
        self.address, self.n_bytes = self._buffer.buf, self._buffer.len

    def __del__(self) -> None:
        if self._is_held:
            ctypes.pythonapi.PyBuffer_Release(ctypes.byref(self._buffer))


@dataclass(frozen=True)
class ModelInfo:
    """What a model is."""

    architecture: str
    name: str
    device: str
    main_type: str
    n_vocab: int
    n_layers: int
    dim: int
    n_heads: int
    n_kv_heads: int
    n_ctx_train: int
    n_params: int
    weight_bytes: int
    decode_bytes: int
    embedding_dim: int
    is_encoder: bool
    is_reranker: bool


@dataclass(frozen=True)
class MemoryPlan:
    """The bytes that a session needs, exactly, and free_bytes, which the system and a container's limit have left."""

    gpu_layers: int
    cpu_expert_layers: int
    weight_bytes: int
    cache_bytes: int
    state_bytes: int
    work_bytes: int
    pinned_bytes: int
    gpu_weight_bytes: int
    gpu_cache_bytes: int
    gpu_state_bytes: int
    gpu_work_bytes: int
    free_bytes: int


class _Callbacks:
    """The callbacks of an opening. An exception in one stops the opening and comes out of it; that of a later log goes to
    sys.unraisablehook. The handle keeps what the library calls, which does not keep this: else an object that holds its
    model and is called by it stayed forever."""

    def __init__(self, progress: Optional[Progress], log: Optional[Log]) -> None:
        self.error: Optional[BaseException] = None
        self.is_stopped, self.is_opened = False, False
        self.progress, self.log = progress, log
        held = weakref.ref(self)

        def tell_progress(_: object, share: float) -> int:
            me = held()
            return me._tell_progress(share) if me else 0

        def tell_log(_: object, level: int, text: bytes) -> None:
            me = held()
            if me:
                me._tell_log(text)

        self.c_progress, self.c_log = _abi.duet_progress_fn(tell_progress), _abi.duet_log_fn(tell_log)

    def stop(self) -> None:
        self.is_stopped = True

    def _tell_progress(self, share: float) -> int:
        try:
            # False cancels; None, as of a function that returns nothing, goes on
            if self.progress and not self.error and self.progress(share) is False:
                self.is_stopped = True
        except BaseException as error:
            self.error = error
        return 1 if self.error or self.is_stopped else 0

    def _tell_log(self, text: bytes) -> None:
        try:
            if self.log and not self.error:
                self.log(decode(text))
        except BaseException as error:
            if self.is_opened:
                raise  # ctypes tells the hook
            self.error = error

    def take_error(self) -> Optional[BaseException]:
        error, self.error = self.error, None
        return error


class Model(Owner):
    """A model, opened from a file. Any number of threads and sessions may use it at once.

    device: "auto" (a GPU where one can be used), "cpu", "cuda", "hip", "cuda:1", ... (see `devices`).
    copy: the file is read into memory, so that it may change afterwards. progress: called with the share that is done
    (0..1), which also reads all weights ahead; it returns False to cancel. log: called with lines of text. Both may be
    called on another thread than this one. rope_...: for contexts longer than the trained (docs/embeddings.md). The other
    parameters are those of duet_model_params in runtime.h.

    >>> import duet
    >>> model = duet.Model(demo)
    >>> model.tokenize("Once upon a time")[:1] == [model.bos]
    True
    >>> model.detokenize(model.tokenize("a star", bos=False))
    'a star'
    """

    def __init__(self, path: PathLike, *, device: str = "auto", cpu_isa: str = "auto", threads: int = 0,
                 gpu_layers: int = -1, cpu_expert_layers: int = -1, fast: bool = False, copy: bool = False,
                 vocab_only: bool = False, gpu_recording: int = -1, rope_scaling: Optional[str] = None,
                 rope_scale: float = 0, rope_freq_base: float = 0, rope_original_ctx: int = 0,
                 progress: Optional[Progress] = None, log: Optional[Log] = None) -> None:
        name = path_bytes(path)
        self._open(locals(), lambda params, out: lib.duet_model_open(name, params, out), None)

    @classmethod
    def from_memory(cls, data: Any, *, device: str = "auto", cpu_isa: str = "auto", threads: int = 0,
                    gpu_layers: int = -1, cpu_expert_layers: int = -1, fast: bool = False, vocab_only: bool = False,
                    gpu_recording: int = -1, rope_scaling: Optional[str] = None, rope_scale: float = 0,
                    rope_freq_base: float = 0, rope_original_ctx: int = 0, progress: Optional[Progress] = None,
                    log: Optional[Log] = None) -> "Model":
        """Opens a model from an object with bytes (bytes, mmap, numpy arrays, ...), without a copy. The bytes must not
        change before the model was freed."""
        block = _Pinned(data)
        made = cls.__new__(cls)
        made._open(locals(), lambda params, out: lib.duet_model_open_memory(block.address, block.n_bytes, params, out),
                   block)
        return made

    @classmethod
    def from_reader(cls, read: Callable[[int, int], Any], n_bytes: int, *, device: str = "auto", cpu_isa: str = "auto",
                    threads: int = 0, gpu_layers: int = -1, cpu_expert_layers: int = -1, fast: bool = False,
                    vocab_only: bool = False, gpu_recording: int = -1, rope_scaling: Optional[str] = None,
                    rope_scale: float = 0, rope_freq_base: float = 0, rope_original_ctx: int = 0,
                    progress: Optional[Progress] = None, log: Optional[Log] = None) -> "Model":
        """Opens a model of n_bytes from a function: read(offset, n) gives n bytes. It is called during the opening
        only."""
        size = whole(ctypes.c_int64, n_bytes, "n_bytes")
        if size < 0:
            raise error_of(_abi.DUET_ERR_ARG, f"n_bytes: want 0 or more, got {n_bytes}")
        made = cls.__new__(cls)
        failures: List[BaseException] = []

        def fill(_: object, offset: int, to: int, n: int) -> int:
            try:
                data = memoryview(read(offset, n)).cast("B")
                if len(data) != n:
                    raise ValueError(f"read: want {n} bytes at {offset}, got {len(data)}")
                ctypes.memmove(to, bytes(data), n)
                return 0
            except BaseException as error:
                failures.append(error)
                return 1

        def open_it(params: Any, out: Any) -> int:
            status = int(lib.duet_model_open_reader(_abi.duet_read_fn(fill), None, size, params, out))
            if failures:
                raise failures.pop()
            return status

        made._open(locals(), open_it, None)
        return made

    @classmethod
    async def open_async(cls, path: PathLike, *, device: str = "auto", cpu_isa: str = "auto", threads: int = 0,
                         gpu_layers: int = -1, cpu_expert_layers: int = -1, fast: bool = False, copy: bool = False,
                         vocab_only: bool = False, gpu_recording: int = -1, rope_scaling: Optional[str] = None,
                         rope_scale: float = 0, rope_freq_base: float = 0, rope_original_ctx: int = 0,
                         progress: Optional[Progress] = None, log: Optional[Log] = None) -> "Model":
        """Model(path, ...) without blocking the event loop."""
        made = cls.__new__(cls)
        name = path_bytes(path)
        callbacks, call = made._opening(locals(), lambda params, out: lib.duet_model_open(name, params, out), None)
        await run_async(call, callbacks.stop)
        return made

    def _opening(self, given: Mapping[str, Any], open_it: Callable[[Any, Any], int],
                 kept: object) -> Tuple[_Callbacks, Callable[[], None]]:
        p = defaults(_abi.duet_model_params)
        p.device, p.cpu_isa = terminated(given["device"]), terminated(given["cpu_isa"])
        p.n_threads = given["threads"]
        p.gpu_layers, p.cpu_expert_layers = given["gpu_layers"], given["cpu_expert_layers"]
        p.fast, p.vocab_only, p.gpu_recording = bool(given["fast"]), bool(given["vocab_only"]), given["gpu_recording"]
        p.rope_scaling, p.rope_scale = text_or_none(given["rope_scaling"]), given["rope_scale"]
        p.rope_freq_base, p.rope_original_ctx = given["rope_freq_base"], given["rope_original_ctx"]
        p.load = _abi.DUET_LOAD_COPY if given.get("copy") else _abi.DUET_LOAD_MAP
        callbacks = _Callbacks(given["progress"], given["log"])
        if given["progress"] or given.get("copy"):
            p.progress = callbacks.c_progress
        if given["log"]:
            p.log = callbacks.c_log
        self._callbacks = callbacks

        def call() -> None:
            address = ctypes.c_void_p()
            status = error = text = None
            try:
                status = open_it(ctypes.byref(p), ctypes.byref(address))
            finally:
                handle = Handle("model", address.value, lib.duet_model_free, lib.duet_model_error, is_shared=True,
                                kept=(kept, callbacks.c_progress, callbacks.c_log))
                error = callbacks.take_error()
                if status != _abi.DUET_OK or error:
                    text = handle.error()
                    handle.close()
            if error:
                raise error
            if status:
                raise error_of(status, text or "")
            callbacks.is_opened = True
            handle.own(self)
            self._handle = handle

        return callbacks, call

    def _open(self, given: Mapping[str, Any], open_it: Callable[[Any, Any], int], kept: object) -> None:
        callbacks, call = self._opening(given, open_it, kept)
        run(call, callbacks.stop)

    def __repr__(self) -> str:
        try:
            return "<duet.Model, closed>" if self.closed else f"<duet.Model {self.info.name or self.info.architecture}>"
        except DuetError:  # of another process
            return "<duet.Model>"

    @property
    def info(self) -> ModelInfo:
        """What the model is."""
        with using(self._handle):
            i = sized(_abi.duet_model_info)
            self._handle.check_status(lib.duet_model_get_info(self._handle.address, ctypes.byref(i)))
            return ModelInfo(decode(i.architecture or b""), decode(i.name or b""), decode(i.device or b""),
                             decode(i.main_type or b""), i.n_vocab, i.n_layers, i.dim, i.n_heads, i.n_kv_heads,
                             i.n_ctx_train, i.n_params, i.weight_bytes, i.decode_bytes, i.embedding_dim,
                             bool(i.is_encoder), bool(i.is_reranker))

    @property
    def file(self) -> File:
        """The file behind the model: its metadata and tensors."""
        with using(self._handle):
            return File._of(self)

    # ---- text ----

    def tokenize(self, text: str, *, bos: bool = True, special: bool = False) -> List[int]:
        """The ids of a text. bos: begin and end as the file asks. special: control tokens that the text spells out
        become those tokens; else they are plain text."""
        data = encode(text)
        flags = (_abi.DUET_TOKENIZE_ADD_BOS if bos else 0) | (_abi.DUET_TOKENIZE_PARSE_SPECIAL if special else 0)
        n_max, n = len(data) + 16, ctypes.c_size_t()
        with using(self._handle):
            while True:
                ids = (ctypes.c_int32 * n_max)()
                status = lib.duet_tokenize(self._handle.address, data, len(data), flags, ids, n_max, ctypes.byref(n))
                if status != _abi.DUET_ERR_FULL:
                    self._handle.check_status(status)
                    return ids[:n.value]
                n_max = n.value

    def detokenize_bytes(self, ids: Ids, *, special: bool = False) -> bytes:
        """The bytes of ids, which may end inside a character. special: control tokens are written as their names."""
        given = int32s(ids)
        n_max, n = 16 * len(ids) + 16, ctypes.c_size_t()
        with using(self._handle):
            while True:
                out = ctypes.create_string_buffer(n_max)
                status = lib.duet_detokenize(self._handle.address, given, len(ids), int(special), out, n_max,
                                             ctypes.byref(n))
                if status != _abi.DUET_ERR_FULL:
                    self._handle.check_status(status)
                    return out.raw[:n.value]
                n_max = n.value

    def detokenize(self, ids: Ids, *, special: bool = False) -> str:
        """The text of ids; bytes that are no UTF-8 become U+FFFD."""
        return decode(self.detokenize_bytes(ids, special=special))

    def token_bytes(self, id: int) -> bytes:
        """What a token adds to a text; nothing of control tokens."""
        with using(self._handle):
            return string(lib.duet_token_text(self._handle.address, id))

    def token_spelling(self, id: int) -> str:
        """How the file spells a token."""
        with using(self._handle):
            return decode(string(lib.duet_token_spelling(self._handle.address, id)))

    def is_end(self, id: int) -> bool:
        """Whether a token ends a generation."""
        with using(self._handle):
            return bool(lib.duet_token_is_end(self._handle.address, id))

    def is_control(self, id: int) -> bool:
        """Whether it is a control token."""
        with using(self._handle):
            return bool(lib.duet_token_is_control(self._handle.address, id))

    @property
    def bos(self) -> int:
        """The token that begins a text; -1: none."""
        with using(self._handle):
            return int(lib.duet_token_bos(self._handle.address))

    @property
    def eos(self) -> int:
        """The token that ends a text; -1: none."""
        with using(self._handle):
            return int(lib.duet_token_eos(self._handle.address))

    # ---- what is made of a model ----

    def plan(self, *, n_ctx: int = 0, n_seqs: int = 1, max_batch: int = 512, cache_type: str = "f16",
             cache_tokens: int = 0) -> MemoryPlan:
        """What `session` with these parameters would allocate.

        >>> import duet
        >>> duet.Model(demo).plan(n_ctx=64).cache_bytes > 0
        True
        """
        params = session_params(n_ctx, n_seqs, max_batch, cache_type, cache_tokens)
        with using(self._handle):
            out = sized(_abi.duet_memory_plan)
            self._handle.check_status(
                lib.duet_session_plan(self._handle.address, ctypes.byref(params), ctypes.byref(out)))
            return MemoryPlan(*(getattr(out, n) for n in MemoryPlan.__dataclass_fields__))

    def session(self, *, n_ctx: int = 0, n_seqs: int = 1, max_batch: int = 512, cache_type: str = "f16",
                cache_tokens: int = 0) -> "Session":
        """A session: what one user of the model needs. n_ctx: tokens a sequence may hold, 0: the smaller of what the
        model was trained with and 4096. cache_type: "f16", "f32", "q8_0". cache_tokens: tokens that all sequences
        hold together, 0: n_seqs * n_ctx."""
        from ._session import Session

        return Session(self, n_ctx=n_ctx, n_seqs=n_seqs, max_batch=max_batch, cache_type=cache_type,
                       cache_tokens=cache_tokens)

    async def session_async(self, *, n_ctx: int = 0, n_seqs: int = 1, max_batch: int = 512, cache_type: str = "f16",
                            cache_tokens: int = 0) -> "Session":
        """session() without blocking the event loop."""
        from ._session import Session

        params = session_params(n_ctx, n_seqs, max_batch, cache_type, cache_tokens)
        return await Session._create_async(self, params)

    def chat(self, *, n_ctx: int = 0, **params: Any) -> "Chat":
        """A conversation with a session of its own, which close() closes, too. The parameters are those of `Chat`."""
        from ._chat import Chat

        session = self.session(n_ctx=n_ctx)
        try:
            made = Chat(session, **params)
        except BaseException:
            session.close()
            raise
        made._own_session = session
        return made

    def grammar(self, *, gbnf: Optional[str] = None, root: Optional[str] = None, schema: Optional[Schema] = None,
                triggers: Sequence[str] = (), max_indent: int = 16) -> "Grammar":
        """Compiles a grammar (GBNF) or a JSON schema: a text, a dict, or a type as of a pydantic model."""
        return Grammar(self, gbnf=gbnf, root=root, schema=schema, triggers=triggers, max_indent=max_indent)

    async def grammar_async(self, **params: Any) -> "Grammar":
        """grammar() without blocking the event loop."""
        return await run_async(lambda: self.grammar(**params))


def session_params(n_ctx: int, n_seqs: int, max_batch: int, cache_type: str,
                   cache_tokens: int) -> _abi.duet_session_params:
    params = defaults(_abi.duet_session_params)
    params.n_ctx, params.n_seqs, params.max_batch, params.cache_tokens = n_ctx, n_seqs, max_batch, cache_tokens
    if cache_type not in CACHE_TYPES:
        raise error_of(_abi.DUET_ERR_ARG, f"cache_type: want one of {', '.join(CACHE_TYPES)}, got {cache_type}")
    params.cache_type = CACHE_TYPES[cache_type]
    return params


def strings(texts: Sequence[str], name: str) -> Tuple[Any, int]:
    """An array of texts for the library, None when there are none, and their number."""
    if isinstance(texts, str):
        texts = [texts]
    if not hasattr(texts, "__len__"):
        raise error_of(_abi.DUET_ERR_ARG, f"{name}: want a list of texts, got {type(texts).__name__}")
    n = len(texts)
    return (ctypes.c_char_p * n)(*(terminated(t) for t in texts)) if n else None, n


def counted(texts: Sequence[bytes]) -> Any:
    """An array of duet_string; the bytes must live as long as it."""
    made: Any = (_abi.duet_string * len(texts))()
    made.kept = [ctypes.create_string_buffer(t, len(t) or 1) for t in texts]
    for string, data, text in zip(made, made.kept, texts):
        string.data, string.n_bytes = ctypes.addressof(data), len(text)
    return made


class Grammar(Owner):
    """What a text may be, compiled for the vocabulary of a model. Any number of samplers may use it, in all threads.

    >>> import duet
    >>> model = duet.Model(demo)
    >>> yes_or_no = model.grammar(gbnf='root ::= " yes" | " no"')
    >>> model.session().generate("Is it?", grammar=yes_or_no, seed=1).read() in (" yes", " no")
    True
    """

    def __init__(self, model: Model, *, gbnf: Optional[str] = None, root: Optional[str] = None,
                 schema: Optional[Schema] = None, triggers: Sequence[str] = (), max_indent: int = 16) -> None:
        self.schema = schema
        params = defaults(_abi.duet_grammar_params)
        params.gbnf, params.root = text_or_none(gbnf), text_or_none(root)
        params.json_schema = None if schema is None else terminated(schema_text(schema))
        params.triggers, params.n_triggers = strings(triggers, "triggers")
        params.max_indent = max_indent
        address = ctypes.c_void_p()

        def call() -> None:
            with using(model._handle):
                status = lib.duet_grammar_create(model._handle.address, ctypes.byref(params), ctypes.byref(address))
                handle = Handle("grammar", address.value, lib.duet_grammar_free, lib.duet_grammar_error,
                                is_shared=True)
                if status:
                    text = handle.error()
                    handle.close()
                    raise error_of(status, text)
                handle.own(self)
                self._handle = handle

        run(call)


def schema_text(schema: Schema) -> str:
    return schema if isinstance(schema, str) else json.dumps(json_schema(schema), ensure_ascii=False)


class Sampler(Owner):
    """How ids are chosen: steps by name (a dot of a name is an underscore: dry_base), in the library's order. What is
    not named has the values of `SAMPLING`; `Sampler(plain=True)` begins with all steps off. It belongs to one thread
    at a time, as the generations that use it.

    seed: the same seed gives the same text on every machine; None: another one each time (see `seed`).

    >>> import duet
    >>> sampler = duet.Sampler(seed=1, temp=0.7, top_k=20, dry_multiplier=0.8)
    >>> sampler.seed
    1
    >>> duet.Sampler(tmp=1)
    Traceback (most recent call last):
        ...
    duet.ArgumentError: sampler parameter "tmp": unknown; there are repeat_penalty, ...
    """

    def __init__(self, seed: Optional[int] = None, *, plain: bool = False, grammar: Optional[Grammar] = None,
                 bias: Optional[Mapping[int, float]] = None, dry_breakers: Sequence[int] = (),
                 **params: float) -> None:
        self.seed = random.getrandbits(63) if seed is None else operator.index(seed)
        self._own_grammar: Optional[Grammar] = None
        self._has_lent_grammar = False
        address = ctypes.c_void_p()
        status = lib.duet_sampler_create(self.seed & (2**64 - 1), ctypes.byref(address))
        self._handle = Handle("sampler", address.value, lib.duet_sampler_free, lib.duet_sampler_error)
        self._handle.own(self)
        self._handle.check_status(status)
        names = {name.replace(".", "_"): name for name in sampler_params()}
        for name, value in {**({} if plain else SAMPLING), **params}.items():
            self.set(names.get(name, name), value)
        for id, value in (bias or {}).items():
            self.bias(id, value)
        for id in dry_breakers:
            self._call(lib.duet_sampler_dry_breaker, id)
        if grammar is not None:
            self.grammar(grammar)

    def _begin_text(self, grammar: Optional[Grammar]) -> None:
        """Before a text: keeps to a grammar that is for this text alone, or to the sampler's own again."""
        if grammar is not None or self._has_lent_grammar:
            self._keep_to(self._own_grammar if grammar is None else grammar)
            self._has_lent_grammar = grammar is not None

    def _call(self, function: Callable[..., int], *arguments: Any) -> None:
        with using(self._handle):
            self._handle.check_status(function(self._handle.address, *arguments))

    def set(self, name: str, value: float) -> None:
        """Sets a parameter by the library's name ("dry.base")."""
        if not hasattr(value, "__float__"):
            raise error_of(_abi.DUET_ERR_ARG, f"{name}: want a number, got {value!r:.40}")
        self._call(lib.duet_sampler_set, terminated(name), value)

    def bias(self, id: int, value: float) -> None:
        """Adds to a token's logit; -inf forbids it."""
        self._call(lib.duet_sampler_bias, id, value)

    def grammar(self, grammar: Optional[Grammar]) -> None:
        """Constrains what is chosen from now on; None: nothing."""
        self._keep_to(grammar)
        self._own_grammar, self._has_lent_grammar = grammar, False

    def _keep_to(self, grammar: Optional[Grammar]) -> None:
        if grammar is None:
            return self._call(lib.duet_sampler_grammar, None)
        if not isinstance(grammar, Grammar):
            raise error_of(_abi.DUET_ERR_ARG, f"grammar: want one that Model.grammar() made, got {type(grammar).__name__}")
        with using(grammar._handle):
            self._call(lib.duet_sampler_grammar, grammar._handle.address)

    def choose(self, logits: Any) -> int:
        """Chooses an id from logits: an array of 32-bit floats (numpy's, or another with the buffer protocol)."""
        view = memoryview(logits)
        is_row = view.ndim == 1 and view.contiguous and view.format.lstrip("<=@") == "f"
        if not is_row or view.shape is None:
            raise error_of(_abi.DUET_ERR_ARG, f"logits: want one row of 32-bit floats, got {view.format} {view.shape}")
        block, id = _Pinned(logits), ctypes.c_int32()
        row = ctypes.cast(block.address, ctypes.POINTER(ctypes.c_float))
        self._call(lib.duet_sampler_choose, row, view.shape[0], ctypes.byref(id))
        return id.value

    def accept(self, id: int) -> None:
        """Adds an id to the history of penalties and to the text of the grammar."""
        self._call(lib.duet_sampler_accept, id)

    def reset(self, seed: Optional[int] = None) -> None:
        """Forgets the history and begins again with the seed."""
        self.seed = self.seed if seed is None else operator.index(seed)
        with using(self._handle):
            lib.duet_sampler_reset(self._handle.address, self.seed & (2**64 - 1))

    @property
    def is_done(self) -> bool:
        """Whether the grammar's text is at its end."""
        with using(self._handle):
            return bool(lib.duet_sampler_is_done(self._handle.address))


@dataclass(frozen=True)
class SamplerParam:
    """A row of the library's table of steps. The step does nothing at the default value."""

    name: str
    help: str
    default: float
    min: float
    max: float


def sampler_params() -> Dict[str, SamplerParam]:
    """The steps of samplers and their parameters, in the order in which they run.

    >>> import duet
    >>> duet.sampler_params()["top_p"].help
    'keeps the best up to this share of probability (1: off)'
    """
    made: Dict[str, SamplerParam] = {}
    while row := lib.duet_sampler_param_row(len(made)):
        r = row.contents
        name = decode(r.name)
        made[name] = SamplerParam(name, decode(r.help), r.default_value, r.min_value, r.max_value)
    return made
