"""Threads, forks, orders of freeing, use after close, interrupts, the program's end, and memory."""
import copy
import ctypes
import gc
import itertools
import os
import pathlib
import pickle
import shutil
import signal
import subprocess
import sys
import threading
import time
import weakref
from typing import Any, Callable, List, Optional

import pytest

import duet
from duet._core import Handle, Job, lib
from duet._session import last_of

LONG = 30000


def interrupt_after(seconds: float, told: List[float]) -> threading.Timer:
    def strike() -> None:
        told.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Timer(seconds, strike)
    timer.start()
    return timer


@pytest.mark.parametrize("what", ["decode", "prompt", "tokens", "answer"])
def test_an_interrupt_stops_within_100_ms(chat_model: duet.Model, what: str) -> None:
    session = chat_model.session(n_ctx=LONG + 100, max_batch=LONG)
    waits = []
    for _ in range(5):
        told: List[float] = []
        timer = interrupt_after(0.1, told)
        with pytest.raises(KeyboardInterrupt):
            if what == "decode":
                session.decode([5] * LONG)
            elif what == "prompt":
                session.generate([5] * LONG).read()
            elif what == "tokens":
                session.generate("x", ignore_end=True).read()
            else:
                session.chat("long").read()
        waits.append(time.monotonic() - told[0])
        timer.join()
        session.trim()
        assert session.chat("hello").read() == "Hello world."  # nothing is left of the interrupt
        session.trim()
    assert sorted(waits)[2] < 0.1, waits


def test_an_interrupt_that_another_thread_gets(chat_model: duet.Model) -> None:
    """The main thread's wait is not woken by it, as by one that comes just before the wait."""
    with chat_model.session(n_ctx=LONG + 100, max_batch=LONG) as session:
        timer = threading.Timer(0.2, lambda: signal.pthread_kill(threading.get_ident(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            session.decode([5] * LONG)
        assert session.length() == 0  # it came before the call's end
        timer.join()


STORM = """
import os, random, signal, threading, time
import numpy
import duet

model = duet.Model({path!r}, threads=1)
session = model.session()
is_over, is_armed, n_interrupts = threading.Event(), False, 0


def strike():
    while not is_over.wait(random.uniform(0.0005, 0.004)):
        os.kill(os.getpid(), signal.SIGINT)


def on_signal(*_):
    global is_armed
    if is_armed:
        is_armed = False
        raise KeyboardInterrupt


signal.signal(signal.SIGINT, on_signal)
thread = threading.Thread(target=strike)
thread.start()
end = time.monotonic() + 2
try:
    while time.monotonic() < end:
        session.trim()  # on a slow machine no round comes as far as the one below
        try:
            is_armed = True
            session.decode([1])
            session.logits(copy=True), session.ids(), session.length()
            session.generate([2], max_tokens=3, seed=1).read()
            session.trim()
            is_armed = False
        except KeyboardInterrupt:
            n_interrupts += 1
finally:
    is_over.set()
    thread.join()
assert n_interrupts > 100, n_interrupts
session.trim()
session.decode([1, 2, 3])
assert session.length() == 3
"""


def test_a_storm_of_interrupts_leaves_a_sound_session(demo_path: str) -> None:
    """Only KeyboardInterrupt comes of it, wherever it strikes: no call is refused or stopped for an old one."""
    pytest.importorskip("numpy")
    program = STORM.format(path=demo_path)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    # Python tells of interrupts that strike while it collects something, and goes on
    told = {line for line in done.stderr.splitlines() if line and line[0] not in " \t" and "Error" in line}
    assert not told, done.stderr


def test_cancel_from_another_thread(chat_model: duet.Model) -> None:
    session = chat_model.session(n_ctx=LONG + 100, max_batch=LONG)
    threading.Timer(0.05, session.cancel).start()
    with pytest.raises(duet.CancelledError):
        session.decode([5] * LONG)
    session.cancel()  # nothing runs: the next is stopped
    with pytest.raises(duet.CancelledError):
        session.generate("a").read()


def test_a_session_that_is_closed_during_its_cancel(demo_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever comes between the look at the session and its use, it is freed once, and its model stays."""
    with duet.Model(demo_path) as model, model.session() as other:
        session = model.session()
        look = Handle.check

        def look_and_close(handle: Handle) -> None:
            look(handle)
            if handle is session._handle:
                session.close()

        n_users = model._handle._n_users
        monkeypatch.setattr(Handle, "check", look_and_close)
        with pytest.raises(duet.ClosedError):
            session.cancel()
        monkeypatch.undo()
        assert model._handle._n_users == n_users - 1
        model.close()
        other.decode([1])


def test_an_interrupt_stops_a_session_that_was_closed(chat_model: duet.Model) -> None:
    session = chat_model.session(n_ctx=LONG + 100, max_batch=LONG)
    told: List[float] = []
    closing, timer = threading.Timer(0.05, session.close), interrupt_after(0.1, told)
    closing.start()
    with pytest.raises(KeyboardInterrupt):
        session.decode([5] * LONG)
    closing.join()
    timer.join()
    assert session._handle.address is None


def test_the_lock_of_python_is_free_during_calls(chat_model: duet.Model) -> None:
    session = chat_model.session(n_ctx=LONG + 100, max_batch=LONG)
    threading.Timer(0.3, session.cancel).start()
    counted, is_over = 0, threading.Event()

    def work() -> None:
        try:
            session.decode([5] * LONG)
        except duet.CancelledError:
            pass
        is_over.set()

    thread = threading.Thread(target=work)
    thread.start()
    while not is_over.is_set():
        counted += 1
    thread.join()
    assert counted > 10000


def test_a_session_in_use_is_refused(chat_model: duet.Model) -> None:
    session = chat_model.session(n_ctx=LONG + 100, max_batch=LONG)
    errors: List[BaseException] = []

    def work() -> None:
        try:
            session.decode([5] * LONG)
        except duet.DuetError as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    time.sleep(0.05)
    for call in (lambda: session.decode([1]), lambda: session.length(), lambda: session.logits(),
                 lambda: session.generate("a")):
        with pytest.raises(duet.BusyError, match="another thread"):
            call()
    session.close()  # freed when the call is over
    with pytest.raises(duet.ClosedError):
        session.length()
    lib.duet_session_cancel(session._handle.address)  # still there
    thread.join()
    assert [type(error) for error in errors] == [duet.CancelledError]
    assert session._handle.address is None


def test_threads_with_sessions_of_their_own(model: duet.Model) -> None:
    want = [model.session().generate("Once upon a time", max_tokens=20, seed=seed).read() for seed in range(8)]
    got: List[str] = [""] * 8

    def work(seed: int) -> None:
        got[seed] = model.session().generate("Once upon a time", max_tokens=20, seed=seed).read()

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == want


def test_two_threads_fight_for_one_session(model: duet.Model) -> None:
    """Whatever the threads do, each call works or is refused."""
    session = model.session()
    wrong: List[BaseException] = []

    def work() -> None:
        for i in range(50):
            try:
                session.generate([1 + i], max_tokens=2).read()
                session.trim()
            except (duet.StateError, BufferError):
                pass
            except BaseException as error:
                wrong.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    session.trim()
    assert session.generate("Once", max_tokens=2).read()


def in_child(work: Callable[[], None]) -> int:
    """Runs work in a forked process; 0 when nothing went wrong there."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            gc.collect()
            code = 0
        except BaseException as error:
            sys.stderr.write(f"{type(error).__name__}: {error}\n")
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1]


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_after_a_fork(demo_path: str) -> None:
    model = duet.Model(demo_path)
    session = model.session()
    story = session.generate("Once upon a time", max_tokens=20, seed=1)
    next(iter(story))

    def child() -> None:
        for call in (lambda: model.tokenize("a"), lambda: session.decode([1]), lambda: list(story),
                     lambda: model.session(), lambda: session.cancel()):
            with pytest.raises(duet.ForkError, match="after a fork"):
                call()
        story.close()
        session.close()
        model.close()
        with duet.Model(demo_path) as own:  # a model of its own works
            assert own.session().generate("Once upon a time", max_tokens=5, temp=0).read()

    assert in_child(child) == 0
    assert story.read()  # the parent goes on
    assert session.length() == 25


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_fork_during_a_call(demo_path: str, chat_model: duet.Model) -> None:
    session = chat_model.session(n_ctx=LONG + 100, max_batch=LONG)
    thread = threading.Thread(target=lambda: pytest.raises(duet.CancelledError, session.decode, [5] * LONG))
    thread.start()
    time.sleep(0.05)

    def child() -> None:
        with pytest.raises(duet.ForkError):
            session.length()
        with duet.Model(demo_path) as own:
            assert own.session().generate("Once upon a time", max_tokens=5, temp=0).read()

    status = in_child(child)
    session.cancel()
    thread.join()
    assert status == 0


def test_every_order_of_closing(demo_path: str, chat_path: str) -> None:
    for order in itertools.permutations(range(5)):
        model = duet.Model(chat_path)
        session = model.session()
        sampler = duet.Sampler(seed=1, grammar=model.grammar(gbnf="root ::= [a-z ]+"))
        story = session.generate([5, 6], sampler=sampler)
        next(story.events())
        chat = duet.Chat(session)
        things: List[Any] = [model, session, sampler, story, chat]
        for i in order:
            things[i].close()
            things[i].close()
        for thing in things:
            assert thing.closed


def test_every_order_of_collection(demo_path: str) -> None:
    for order in itertools.permutations(range(4)):
        model = duet.Model(demo_path)
        session = model.session()
        story = session.generate("a", seed=1)
        next(story.events())
        things: List[Any] = [model, session, story, story._sampler]
        del model, session, story
        for i in order:
            things[i] = None
        del things


def test_cycles_are_collected_in_any_order(demo_path: str) -> None:
    for _ in range(20):
        model = duet.Model(demo_path)
        session = model.session()
        story = session.generate("a", seed=1)
        model.cycle = [session, story]  # type: ignore[attr-defined]
        session.cycle = story.cycle = model  # type: ignore[attr-defined]
        del model, session, story
        gc.collect()


def test_parents_stay_while_children_live(demo_path: str) -> None:
    story = duet.Model(demo_path).session().generate("Once upon a time", max_tokens=10, temp=0)
    gc.collect()
    assert story.read()


def test_use_after_close(demo_path: str) -> None:
    model = duet.Model(demo_path)
    session, sampler, grammar, file = model.session(), duet.Sampler(), model.grammar(schema={}), model.file
    for thing in (session, sampler, grammar, file, model):
        thing.close()
    calls: List[Callable[[], Any]] = [
        lambda: model.tokenize("a"), lambda: model.info, lambda: model.session(), lambda: model.file,
        lambda: session.decode([1]), lambda: session.generate("a"), lambda: session.logits(), lambda: session.save(),
        lambda: session.cancel(), lambda: sampler.accept(1), lambda: sampler.grammar(grammar), lambda: len(file),
        lambda: duet.Sampler(grammar=grammar), lambda: duet.Chat(session)]
    for call in calls:
        with pytest.raises(duet.ClosedError):
            call()
    repr(model), repr(session)


def test_a_grammar_that_is_refused_is_not_kept(model: duet.Model) -> None:
    sampler, closed = duet.Sampler(seed=1), model.grammar(gbnf='root ::= "a"')
    closed.close()
    with pytest.raises(duet.ClosedError):
        sampler.grammar(closed)
    for grammar in (model.grammar(gbnf='root ::= "yes"'), None):
        assert model.session().generate("a", sampler=sampler, grammar=grammar, max_tokens=2).read()


SUBINTERPRETER = """
try:
    import _interpreters as interpreters
    made, run = interpreters.create("legacy"), interpreters.exec
except ImportError:
    import _xxsubinterpreters as interpreters
    made, run = interpreters.create(isolated=False), interpreters.run_string
run(made, '''
try:
    import duet
    duet.devices()
except ImportError as error:
    print(error, flush=True)
''')
"""


@pytest.mark.skipif(sys.implementation.name != "cpython", reason="subinterpreters are CPython's")
def test_a_subinterpreter_is_refused() -> None:
    """Its end would be the process's before Python 3.13, where a helper thread is left in it."""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", SUBINTERPRETER], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 and "want Python's main interpreter" in done.stdout, done.stderr


def test_another_library_is_named(tmp_path: pathlib.Path) -> None:
    """Its version is told before a function that it lacks is missed."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if not compiler:
        pytest.skip("no C compiler")
    for source, told in (('const char* duet_version(void) { return "0.0.1"; }', "want version"),
                         ("int other(void) { return 0; }", "want Duet's library")):
        (tmp_path / "old.c").write_text(source)
        library = str(tmp_path / "old.so")
        subprocess.run([compiler, "-shared", "-fPIC", "-o", library, str(tmp_path / "old.c")], check=True)
        done = subprocess.run([sys.executable, "-c", "import duet"], capture_output=True, text=True,
                              env={**os.environ, "DUET_LIBRARY": library})
        assert done.returncode == 1 and f"ImportError: {library}: {told}" in done.stderr


def test_a_failed_opening_leaves_an_object_that_can_be_forgotten() -> None:
    for make in (lambda: duet.Model("none"), lambda: duet.File("none"), lambda: duet.Sampler(tmp=1)):
        with pytest.raises(duet.DuetError):
            make()
    empty = duet.Model.__new__(duet.Model)
    empty.close()
    assert empty.closed


def test_no_copies(model: duet.Model) -> None:
    for thing in (model, duet.Sampler()):
        for twice in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match="in each process"):
                twice(thing)


def test_numbers_that_do_not_fit_are_errors(demo_path: str, chat_model: duet.Model) -> None:
    """ctypes would cut them off: a trim to 2**32 tokens would empty the sequence."""
    with duet.Model(demo_path) as model, model.session() as session, chat_model.chat() as chat:
        session.decode([1, 2, 3])
        chat.add("user", "a")
        big = 2**32
        calls: List[Callable[[], Any]] = [
            lambda: session.trim(big), lambda: session.length(big), lambda: session.decode([4, big + 5]),
            lambda: session.decode([4], seq=big), lambda: session.decode([4], pos=[big + 3]),
            lambda: session.logits(big), lambda: session.copy(0, big), lambda: session.save(seq=big),
            lambda: session.generate("a", max_tokens=big), lambda: session.generate("a", seq=big),
            lambda: session.generate([big + 5]), lambda: session.embed([[big + 5]]), lambda: session.reuse([big + 1]),
            lambda: model.session(n_ctx=big + 64), lambda: model.plan(cache_tokens=2**64), lambda: model.is_end(big),
            lambda: model.detokenize([big + 5]), lambda: model.token_bytes(-big), lambda: duet.Sampler(bias={big: 1}),
            lambda: duet.Model(demo_path, threads=big + 1), lambda: chat.remove(big), lambda: chat.answer(max_tokens=big),
            lambda: chat.insert({"role": "user", "content": "b"}, big),
            lambda: duet.Model.from_reader(lambda offset, n: b"", -1),
            lambda: duet.Model.from_reader(lambda offset, n: b"", 2**70)]
        for call in calls:
            with pytest.raises(duet.ArgumentError):
                call()
        assert session.ids() == [1, 2, 3] and len(chat) == 1
        session.generate([4], seed=2**64 + 1, max_tokens=1).read()  # of seeds the lowest 64 bits count


def test_what_is_of_another_type_is_an_error(model: duet.Model, session: duet.Session) -> None:
    given: Any = b"Once"
    nothing: Any = None
    calls: List[Callable[[], Any]] = [
        lambda: session.decode(given), lambda: session.generate(given), lambda: session.trim(given),
        lambda: session.generate("a", temp=nothing), lambda: session.ids(9)]
    for call in calls:
        with pytest.raises(duet.ArgumentError):
            call()
    assert nothing not in model.file and model.file.get("general.architecture\0") is None


def test_callbacks_may_not_use_what_calls_them(demo_path: str) -> None:
    """A model that is being opened has no handle yet; what the callback raises comes out."""
    seen: List[Any] = []

    def progress(share: float) -> None:
        seen.append(duet.Model(demo_path).tokenize("inside another opening"))

    duet.Model(demo_path, progress=progress)
    assert seen


def test_an_object_that_its_model_calls_is_collected(demo_path: str) -> None:
    class Shown:
        def __init__(self) -> None:
            self.n_shown, self.lines = 0, 0
            self.model = duet.Model(demo_path, progress=self.show, log=self.note)

        def show(self, share: float) -> None:
            self.n_shown += 1

        def note(self, text: str) -> None:
            self.lines += 1

    shown = Shown()
    session, held = shown.model.session(), weakref.ref(shown)
    assert shown.n_shown
    del shown
    gc.collect()
    session.decode([1])  # the model is there as long as a session of it
    assert held() is not None
    del session
    gc.collect()
    assert held() is None


EXITS = {
    "everything alive": "s = m.session(); g = s.generate('Once', seed=1); next(g.events()); s2 = m.session()",
    "in a cycle": "s = m.session(); m.x = s; s.y = m; g = s.generate('a'); m.z = g",
    "a thread in a call": "import threading, time\n"
                          "s = m.session(n_ctx=40000, max_batch=40000)\n"
                          "threading.Thread(target=lambda: s.decode([5] * 39000), daemon=True).start()\n"
                          "time.sleep(0.1)",
    "an array alive": "s = m.session(); s.decode([1, 2]); a = s.logits()",
    "made in atexit": "import atexit\n"
                      "atexit.register(lambda: print(m.session().generate('a', max_tokens=2, temp=0).read() != ''))",
    "freed in atexit": "import atexit\ns = m.session()\natexit.register(m.close)",
    "a long call in a __del__": "s = m.session()\n"
                                "class App:\n"
                                "    def __del__(self, s=s):\n"
                                "        assert s.generate('a', max_tokens=2, seed=1).read()\n"
                                "a = App(); s.decode([1])",
    "an exception": "s = m.session(); g = s.generate('a'); next(g.events()); raise SystemExit(0)",
}


@pytest.mark.parametrize("name", EXITS)
def test_the_programs_end(name: str, demo_path: str) -> None:
    if name == "an array alive":
        pytest.importorskip("numpy")
    program = f"import duet\nm = duet.Model({demo_path!r})\n" + EXITS[name]
    done = subprocess.run([sys.executable, "-X", "dev", "-W", "error", "-c", program], capture_output=True, text=True,
                          timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Mallinfo(ctypes.Structure):
    """struct mallinfo2 of malloc.h: n_heap and n_mapped are the bytes that were asked for and not freed."""
    _fields_ = [(name, ctypes.c_size_t) for name in
                ("arena", "ordblks", "smblks", "hblks", "n_mapped", "usmblks", "fsmblks", "n_heap", "fordblks", "keepcost")]


def allocated() -> Optional[int]:
    """None where the C library cannot tell (glibc before 2.33, musl)."""
    mallinfo = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if mallinfo is None:
        return None
    mallinfo.restype = Mallinfo
    info = mallinfo()
    return int(info.n_heap + info.n_mapped)


def test_the_program_ends_while_a_thread_is_called_back(demo_path: str) -> None:
    # Pythons before 3.14 end a daemon thread within the callback that it is in.
    program = f"""
import threading, time, duet
def work():
    while True:
        duet.Model({demo_path!r}, device="cpu", progress=lambda share: None).close()
threading.Thread(target=work, daemon=True).start()
time.sleep(0.3)
"""
    for _ in range(3):
        ended = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60)
        assert ended.returncode == 0, ended.stderr.decode()


def test_memory_stays_over_1000_rounds(demo_path: str) -> None:
    def rounds(n: int) -> None:
        for _ in range(n):
            model = duet.Model(demo_path)
            session = model.session(n_ctx=64)
            session.generate("Once upon", max_tokens=2, seed=1).read()
            duet.Chat(session, template_name="chatml").close()
            model.close()

    # A leak raises every look; what the allocator takes ahead and what the system joins into large pages come in single
    # steps, which the middle one of the differences does not see. What is held by malloc has no such steps.
    rounds(300)
    seen, held = [resident()], [allocated()]
    for _ in range(11):
        rounds(100)
        gc.collect()
        seen.append(resident())
        held.append(allocated())
    grown = sorted(b - a for a, b in zip(seen, seen[1:]))[5]
    assert grown < 100 << 10, f"{grown} bytes more after each 100 rounds: {seen}"
    if held[0] is None or held[-1] is None:
        pytest.skip("the C library does not tell what is allocated: only the size in memory was looked at")
    assert held[-1] - held[0] < 64 << 10, f"not freed: {held}"


def test_a_free_waits_for_the_call_of_another_thread(chat_model: duet.Model) -> None:
    """Freeing an answer changes its chat's messages, which a call reads meanwhile."""
    session = chat_model.session(n_ctx=4096, n_seqs=2, cache_type="f32")
    chat = duet.Chat(session)
    session.decode([5] * 3000, seq=1)
    for is_closed in (True, False):
        answer = chat.ask("hello")
        next(answer.events())
        handle, free = answer._handle, answer._handle._free
        busy: List[int] = []

        def traced(address: int, free: Any = free, busy: List[int] = busy) -> None:
            busy.append(chat._handle._busy)
            free(address)

        handle._free = traced
        saved: List[bytes] = []
        thread = threading.Thread(target=lambda: saved.append(chat.save(seq=1)))
        thread.start()
        while thread.is_alive() and not chat._handle._busy:
            pass
        if is_closed:
            answer.close()
        del answer
        thread.join()
        assert busy == [0] and saved and handle.address is None
        assert [message["role"] for message in chat.messages[-2:]] == ["user", "assistant"]


@pytest.mark.parametrize("error", ["RuntimeError('timed out')", "KeyboardInterrupt"])
def test_what_a_signal_handler_raises_stops_the_call_once(chat_path: str, error: str) -> None:
    program = f"""
import signal, duet
model = duet.Model({chat_path!r}, threads=1)
session = model.session(n_ctx={LONG + 100}, max_batch={LONG})
def strike(*_):
    raise {error}
signal.signal(signal.SIGALRM, strike)
signal.setitimer(signal.ITIMER_REAL, 0.1)
try:
    session.decode([5] * {LONG})
except (RuntimeError, KeyboardInterrupt):
    print(session.length())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")


@pytest.mark.parametrize("logits", [None, False, [True, False]])
def test_an_interrupt_as_a_decode_ends_does_not_stop_the_next(model: duet.Model, logits: Any) -> None:
    with model.session(n_ctx=64, n_seqs=2) as session:
        seq = [0, 1]
        decode = session._decoding([1, 2], seq, None, logits)

        def call() -> None:
            decode()
            job.stop()

        job = Job(call, session._stop, lambda: session._absorb(last_of(seq)), lambda: None)
        job.run()
        job.give()
        session.decode([3])
        assert session.ids(0) == [1, 3] and session.ids(1) == [2]


def test_an_exception_of_a_late_log_goes_to_the_hook(demo_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: List[str] = []

    def log(text: str) -> None:
        if text == "bad":
            raise OSError("disk full")
        lines.append(text)

    told: List[Any] = []
    with duet.Model(demo_path, log=log) as model:
        monkeypatch.setattr(sys, "unraisablehook", lambda args: told.append(args.exc_value))
        for text in (b"bad", b"good"):
            model._callbacks.c_log(None, 1, text)
        monkeypatch.undo()
        assert [str(error) for error in told] == ["disk full"] and lines[-1] == "good"
        told.clear()
        model.session().close()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_model_of_another_process_has_a_repr(model: duet.Model) -> None:
    def child() -> None:
        assert repr(model) == "<duet.Model>"

    assert in_child(child) == 0


def test_errors_name_what_is_wrong(model: duet.Model, session: duet.Session, chat_model: duet.Model) -> None:
    chat = chat_model.chat()
    data: Any = b"x"
    nothing: Any = None
    number: Any = 5
    real: Any = 10.0
    word: Any = "hot"
    calls: List[Any] = [
        (lambda: model.tokenize(data), "want a text, got bytes"), (lambda: chat.ask(data), "want a text, got bytes"),
        (lambda: duet.Chat(chat.session, system=number), "want a text, got int"),
        (lambda: session.generate("a", max_tokens=nothing), "max_tokens: want an integer, got None"),
        (lambda: session.generate("a", max_tokens=real), "max_tokens: want an integer, got 10.0"),
        (lambda: session.generate("a", stop=nothing), "stop: want a list of texts, got NoneType"),
        (lambda: chat.answer(stop=nothing), "stop: want a list of texts, got NoneType"),
        (lambda: model.session(n_ctx=real), "n_ctx: want an integer, got 10.0"),
        (lambda: duet.Sampler(temp=word), "temp: want a number, got 'hot'"),
        (lambda: session.embed([b"hello"]), "texts: want numbers, got bytes"),
        (lambda: session.generate("a", grammar=word), "grammar: want one that Model.grammar() made, got str"),
        (lambda: duet.Sampler(grammar=word), "grammar: want one that Model.grammar() made, got str"),
        (lambda: session.generate("a", sampler=word), "sampler: want a Sampler, got str"),
        (lambda: duet.Model.from_reader(lambda at, n: b"", real), "n_bytes: want an integer, got 10.0")]
    for call, text in calls:
        with pytest.raises(duet.ArgumentError) as told:
            call()
        assert text in str(told.value)
    with pytest.raises(TypeError, match=r"want a type of JSON values .* got \[1\]"):
        model.grammar(schema=[1])
    assert chat.messages == []
