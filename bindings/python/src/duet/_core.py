"""The library as Python sees it: functions, errors, handles and their lifetimes, and calls that can be interrupted.

Every object of the package keeps one Handle. A handle is freed when its owner is closed or collected, all handles
made of it are freed, no call runs on it and no array shows its memory, whatever the order; until then freeing waits.
What is left when the program ends is not freed: the system takes it back.
"""
from __future__ import annotations

import array
import contextlib
import contextvars
import ctypes
import functools
import gc
import operator
import os
import sys
import threading
import weakref
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Tuple, Type, TypeVar

from . import _abi

T = TypeVar("T")


# ---- numbers: ctypes cuts off what does not fit, so that 2**32 + 5 would be 5 ----------------------------------------

_INTEGERS = (ctypes.c_int32, ctypes.c_uint32, ctypes.c_int64, ctypes.c_uint64, ctypes.c_uint8)


def _fitting(kind: Any, value: Any) -> Any:
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"want an integer, got {value!r:.40}") from None
    made = kind(number)
    if made.value != number:
        raise OverflowError(f"want a number of {8 * ctypes.sizeof(kind)} bits, got {number}")
    return made


def _checked(kind: Any) -> Any:
    """The type of an argument, which refuses numbers that do not fit it."""
    if kind not in _INTEGERS:
        return kind
    return type(kind.__name__, (), {"from_param": staticmethod(lambda value: _fitting(kind, value))})


def whole(kind: Any, value: Any, name: str) -> int:
    """The number of a parameter, which fits its type."""
    try:
        return int(_fitting(kind, value).value)
    except (OverflowError, TypeError) as error:
        raise ArgumentError(f"{name}: {error}") from None


# Fields whose parameter in Python has another name.
_PARAMETERS = {"max_new_tok": "max_tokens", "n_threads": "threads"}


def _set_field(struct: Any, name: str, value: Any) -> None:
    kind, parameter = struct.integers.get(name), _PARAMETERS.get(name, name)
    try:
        object.__setattr__(struct, name, value if kind is None else whole(kind, value, parameter))
    except (OverflowError, TypeError) as error:
        raise ArgumentError(f"{parameter}: {error}") from None


for _struct in _abi.STRUCTS:
    _struct.integers = {name: kind for name, kind in _struct._fields_ if kind in _INTEGERS}
    _struct.__setattr__ = _set_field


def int32s(values: Iterable[int], name: str = "ids") -> Any:
    """An array of numbers for the library."""
    if isinstance(values, (str, bytes, bytearray)):
        raise ArgumentError(f"{name}: want numbers, got {type(values).__name__}")
    made = array.array("i")
    try:
        made.extend(iter(values))
    except OverflowError:
        raise ArgumentError(f"{name}: want numbers of 32 bits, got one of more at place {len(made)}") from None
    return (ctypes.c_int32 * len(made)).from_buffer(made)


# ---- the library ----------------------------------------------------------------------------------------------------


def _refuse_subinterpreter() -> None:
    """Callbacks of ctypes run in the main interpreter, and helper threads would outlive another one."""
    if sys.implementation.name != "cpython":
        return
    current, main = ctypes.pythonapi.PyInterpreterState_Get, ctypes.pythonapi.PyInterpreterState_Main
    current.restype = main.restype = ctypes.c_void_p
    if current() != main():
        raise ImportError("duet: want Python's main interpreter, got a subinterpreter: import it there, or in a process "
                          "of its own")


def _load() -> Any:
    _refuse_subinterpreter()
    path = os.environ.get("DUET_LIBRARY") or os.path.join(os.path.dirname(os.path.abspath(__file__)), "libduet.so")
    library = ctypes.CDLL(path)
    # the version first: another one may lack functions
    tell_version = getattr(library, "duet_version", None)
    if tell_version is None:
        raise ImportError(f"{path}: want Duet's library, got one without duet_version")
    tell_version.restype = ctypes.c_char_p
    found = tell_version().decode()
    if found != _abi.VERSION:
        raise ImportError(f"{path}: want version {_abi.VERSION}, got {found}")
    for name, (result, arguments) in _abi.FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, [_checked(kind) for kind in arguments]
    return library


lib = _load()


def string(text: Any) -> bytes:
    """The bytes of a duet_string."""
    return ctypes.string_at(text.data, text.n_bytes) if text.data else b""


def defaults(kind: Type[T]) -> T:
    """A struct of parameters with the library's defaults."""
    made = kind()
    getattr(lib, kind.__name__ + "_init")(ctypes.byref(made), ctypes.sizeof(made))  # type: ignore[arg-type]
    return made


def sized(kind: Type[T]) -> T:
    """An empty struct for the library to fill."""
    made = kind()
    made.struct_size = ctypes.sizeof(made)  # type: ignore[attr-defined, arg-type]
    return made


# ---- errors ---------------------------------------------------------------------------------------------------------


class DuetError(Exception):
    """An error with the library's text. `status` is the library's code; each code has its own class."""

    status = 0


class ArgumentError(DuetError, ValueError):
    """An argument is out of range, or contradicts another."""

    status = _abi.DUET_ERR_ARG


class FileError(DuetError, OSError):
    """A file cannot be opened, read, mapped or written."""

    status = _abi.DUET_ERR_IO


class FormatError(DuetError, ValueError):
    """A file, grammar, schema or template breaks a rule of its format."""

    status = _abi.DUET_ERR_FORMAT


class UnsupportedError(DuetError):
    """Well-formed, but this build has no code for it."""

    status = _abi.DUET_ERR_UNSUPPORTED


class OutOfMemoryError(DuetError, MemoryError):
    """Memory ran out."""

    status = _abi.DUET_ERR_MEMORY


class FullError(DuetError):
    """The context has too little room."""

    status = _abi.DUET_ERR_FULL


class DeviceError(DuetError):
    """A device is missing, failed, or was lost."""

    status = _abi.DUET_ERR_DEVICE


class CancelledError(DuetError):
    """`Session.cancel`, or a callback, asked to stop."""

    status = _abi.DUET_ERR_CANCELLED


class NanError(DuetError):
    """The logits hold no number to choose by."""

    status = _abi.DUET_ERR_NAN


class StateError(DuetError):
    """Not possible in this state."""

    status = _abi.DUET_ERR_STATE


class InternalError(DuetError):
    """A mistake of the library."""

    status = _abi.DUET_ERR_INTERNAL


class ClosedError(StateError):
    """The object was closed before."""


class BusyError(StateError):
    """Another thread, or a callback's own call, is inside a call on this object."""


class ForkError(StateError):
    """The object was made in another process, before a fork. Open it again in this one."""


_ERRORS: Dict[int, Type[DuetError]] = {
    kind.status: kind
    for kind in (ArgumentError, FileError, FormatError, UnsupportedError, OutOfMemoryError, FullError, DeviceError,
                 CancelledError, NanError, StateError, InternalError)
}


def error_of(status: int, text: str) -> DuetError:
    kind = _ERRORS.get(status, InternalError)
    return kind(text or lib.duet_status_name(status).decode())


# ---- handles --------------------------------------------------------------------------------------------------------

# Guards the counts of all handles. A collection may free handles inside the guarded lines, so it can be taken again.
_counts = threading.RLock()


def _new_counts() -> None:
    global _counts
    _counts = threading.RLock()


os.register_at_fork(after_in_child=_new_counts)


def when_collected(thing: object, call: Callable[[], None]) -> None:
    """Calls when the thing is collected, but not at the program's end."""
    finalizer: Any = weakref.finalize(thing, call)
    finalizer.atexit = False


class Handle:
    """A handle of the library, and who still needs it."""

    __slots__ = ("address", "name", "is_shared", "_free", "_error", "_parents", "_kept", "_n_users", "_n_views",
                 "_busy", "_is_open", "_pid", "_late", "__weakref__")

    def __init__(self, name: str, address: Optional[int], free: Callable[[int], object],
                 error: Callable[[Optional[int]], Optional[bytes]], parents: Tuple["Handle", ...] = (),
                 is_shared: bool = False, kept: object = None) -> None:
        self.address, self.name, self.is_shared = address, name, is_shared
        self._free, self._error, self._parents, self._kept = free, error, parents, kept
        self._n_users, self._n_views, self._busy = 1, 0, 0
        self._is_open, self._pid = True, os.getpid()
        self._late: List["Handle"] = []  # handles made of this one, to be freed when its call ends
        for parent in parents:
            parent.take()

    def own(self, owner: object) -> None:
        """The handle is closed when the owner is collected."""
        when_collected(owner, self.close)

    def take(self) -> None:
        with _counts:
            self._n_users += 1

    def take_open(self) -> None:
        """take() where another thread may close the handle meanwhile: a freed one is not taken again."""
        self.check()
        with _counts:
            if not self._is_open:
                raise ClosedError(f"the {self.name} is closed")
            self._n_users += 1

    def take_used(self) -> bool:
        """take() of a handle that was perhaps closed; False: it is freed, or of another process."""
        if os.getpid() != self._pid:
            return False
        with _counts:
            if not self._n_users:
                return False
            self._n_users += 1
        return True

    def drop(self) -> None:
        with _counts:
            self._n_users -= 1
            if self._n_users:
                return
        self._free_or_wait()

    def _free_or_wait(self) -> None:
        if os.getpid() != self._pid:  # the threads and devices of the handle are in the other process
            return
        # Freeing may change a parent, as an answer joins its chat's messages: no call runs on one meanwhile.
        own = [parent for parent in self._parents if not parent.is_shared]
        guard: Any = _counts if own else contextlib.nullcontext()
        try:
            with guard:
                for parent in own:
                    if parent._busy and self.address:
                        parent._late.append(self)
                        return
                address, self.address = self.address, None
                if address:
                    self._free(address)
        finally:  # an interrupt may strike anywhere
            if self.address is None:
                self._kept = None
                for parent in self._parents:
                    parent.drop()

    def close(self) -> None:
        with _counts:
            if not self._is_open:
                return
            self._is_open = False
        self.drop()

    @property
    def is_closed(self) -> bool:
        return not self._is_open

    def check(self) -> None:
        if os.getpid() != self._pid:
            raise ForkError(f"the {self.name} was made in process {self._pid}, this is {os.getpid()}: after a fork, "
                            f"open models and make sessions anew")
        if not self._is_open:
            raise ClosedError(f"the {self.name} is closed")

    def enter(self) -> None:
        """Begins a call: from now on the handle cannot be freed, nor used by another thread unless it is shared."""
        self.check()
        with _counts:
            if not self._is_open:
                raise ClosedError(f"the {self.name} is closed")
            if self._busy and not self.is_shared:
                raise BusyError(f"the {self.name} is in use: another thread or task, or the call around this one, is "
                                f"inside a call on it; each needs a {self.name} of its own, or waits for its turn")
            self._busy += 1
            self._n_users += 1

    def leave(self) -> None:
        with _counts:
            self._busy -= 1
            late: List[Handle] = []
            if not self._busy:
                late, self._late = self._late, late
        try:
            for child in late:
                child._free_or_wait()
        finally:
            self.drop()

    def error(self) -> str:
        """The text of the calling thread's last failed call."""
        return (self._error(self.address) or b"").decode("utf-8", "replace")

    def check_status(self, status: int) -> None:
        if status != _abi.DUET_OK:
            raise error_of(status, self.error())

    # ---- arrays that show the handle's memory ----

    def view(self, address: int, kind: Any) -> Any:
        """A ctypes array over memory of the handle, which lives as long as the array."""
        made = kind.from_address(address)
        with _counts:
            self._n_users += 1
            self._n_views += 1
        when_collected(made, self._drop_view)
        return made

    def _drop_view(self) -> None:
        with _counts:
            self._n_views -= 1
        self.drop()

    def check_views(self) -> None:
        """Before the memory of the arrays is written anew, or moved."""
        if self._n_views:
            gc.collect()
        if self._n_views:
            raise BufferError(f"{self._n_views} array(s) still show the {self.name}'s memory, which this call would "
                              f"change: del them, or make them with copy=True")


@contextlib.contextmanager
def using(*handles: Handle) -> Iterator[None]:
    """Inside, the handles are this call's alone (models are shared)."""
    entered: List[Handle] = []
    try:
        for handle in handles:
            handle.enter()
            entered.append(handle)
        yield
    except ctypes.ArgumentError as error:
        raise ArgumentError(str(error)) from None
    finally:
        for handle in reversed(entered):
            handle.leave()


class Owner:
    """What all objects with a handle have: close(), `with`, and no copies."""

    _handle: Handle

    def close(self) -> None:
        """Frees the object; calls on it raise ClosedError. What was made of it stays sound, and its memory goes when
        the last of it is freed. Closing twice is nothing."""
        if hasattr(self, "_handle"):
            self._handle.close()

    @property
    def closed(self) -> bool:
        """Whether close() was called."""
        return not hasattr(self, "_handle") or self._handle.is_closed

    def __enter__(self: T) -> T:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise TypeError(f"cannot copy or pickle a {type(self).__name__}: make one in each process")


# ---- long calls -----------------------------------------------------------------------------------------------------


class Job:
    """A call of the library on a helper thread. Whoever waits for it may stop it: cancel asks the call to end. When the
    call was done in that moment, the request is still there, and absorb takes it, so that it does not stop another."""

    def __init__(self, call: Callable[[], Any], cancel: Optional[Callable[[], None]],
                 absorb: Optional[Callable[[], None]], when_done: Callable[[], None]) -> None:
        # callbacks and tools see the context variables of who waits
        self._call: Optional[Callable[[], Any]] = functools.partial(contextvars.copy_context().run, call)
        self._cancel, self._absorb, self.when_done = cancel, absorb, when_done
        self.is_done = False  # when_done is about to be called
        self._result: Any = None
        self._error: Optional[BaseException] = None
        self._is_begun, self._is_left, self._is_over, self._was_cancelled = False, False, False, False
        self._lock = threading.Lock()

    def run(self) -> None:
        with self._lock:
            if self._is_left:
                return
            self._is_begun = True
        assert self._call is not None
        try:
            self._result = self._call()
        except BaseException as error:
            self._error = error
        with self._lock:
            self._is_over = True
        if self._was_cancelled and self._absorb and not isinstance(self._error, CancelledError):
            with contextlib.suppress(DuetError):
                self._absorb()
        # whoever waits goes on before this thread forgets the job, whose functions hold a session
        self._call = self._cancel = self._absorb = None

    def stop(self) -> bool:
        """False: the call has not begun and never will. Else its end is to be waited for."""
        with self._lock:
            if not self._is_begun:
                self._is_left = True
            elif not self._is_over and self._cancel and not self._was_cancelled:
                self._was_cancelled = True
                self._cancel()
            return self._is_begun

    def give(self) -> Any:
        try:
            if self._error:
                raise self._error
            return self._result
        finally:
            self._error = None  # a traceback holds this frame, which would hold the error


class _Helper:
    """A thread that runs one job after another. Idle helpers wait in a list."""

    def __init__(self) -> None:
        self._go = threading.Lock()
        self._go.acquire()
        self._job: Optional[Job] = None
        threading.Thread(target=self._work, name="duet", daemon=True).start()

    def start(self, job: Job) -> None:
        self._job = job
        self._go.release()

    def _work(self) -> None:
        while True:
            self._go.acquire()
            job, self._job = self._job, None
            assert job is not None
            job.run()
            _idle.append(self)
            job.is_done = True
            job.when_done()
            del job


_idle: List[_Helper] = []
os.register_at_fork(after_in_child=_idle.clear)


def start(job: Job) -> None:
    try:
        helper = _idle.pop()
    except IndexError:
        helper = _Helper()
    helper.start(job)


def run(call: Callable[[], T], cancel: Optional[Callable[[], None]] = None,
        absorb: Optional[Callable[[], None]] = None) -> T:
    """Runs a long call. On the main thread, which gets the signals, it runs beside it, so that KeyboardInterrupt (or
    what else a signal handler raises) stops it within 100 ms."""
    if threading.current_thread() is not threading.main_thread() or sys.is_finalizing():
        return call()  # once the interpreter ends, helpers do not run
    done = threading.Lock()
    done.acquire()
    job = Job(call, cancel, absorb, done.release)
    try:
        try:
            start(job)
        except RuntimeError as error:
            if job.stop() or "new thread" not in str(error):  # a signal handler's
                raise
            return call()  # no threads any more: the interpreter ends
        # A signal that comes just before the wait begins, or to another thread, does not end the wait
        while not done.acquire(timeout=0.05):
            pass
    except BaseException:
        is_over = False
        while not is_over:
            with contextlib.suppress(KeyboardInterrupt):
                is_over = not job.stop() or job.is_done or done.acquire(timeout=0.1)
        raise
    result: T = job.give()
    return result


async def run_async(call: Callable[[], T], cancel: Optional[Callable[[], None]] = None,
                    absorb: Optional[Callable[[], None]] = None) -> T:
    """Runs a long call without blocking the event loop. Cancelling the task stops the call and waits for its end."""
    import asyncio

    loop = asyncio.get_running_loop()
    done = loop.create_future()

    def set_done() -> None:
        if not done.done():
            done.set_result(None)

    def tell() -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
            loop.call_soon_threadsafe(set_done)

    job = Job(call, cancel, absorb, tell)
    start(job)
    try:
        await asyncio.shield(done)
    except asyncio.CancelledError:
        is_running = job.stop()
        while is_running and not job.is_done:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.shield(done)
        raise
    except BaseException:  # the coroutine is closed and may not wait
        job.stop()
        raise
    result: T = job.give()
    return result
