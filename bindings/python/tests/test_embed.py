"""Vectors and scores of texts: the bits of each alone, beside bin/embed, encoders, what stops them, what is refused."""
import asyncio
import gc
import importlib.util
import os
import pathlib
import subprocess
import threading
import time
from typing import Any, Callable, Dict, List

import pytest

import duet
from conftest import ROOT
from test_misuse import interrupt_after

numpy: Any = pytest.importorskip("numpy")
TEXTS = ["A cat sat.", "The end of it all.", "\u00e4 \U0001f600", "", "A cat sat."]
ENCODERS = ["bert", "nomic-bert", "jina-bert-v2", "modern-bert", "gemma-embedding"]
PROGRAM = os.environ.get("DUET_EMBED", str(ROOT / "bin" / "embed"))


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: Any) -> Callable[[str], str]:
    """The path of a tiny model of tests/data/models.txt, and what numpy computed of it."""
    writer = ROOT / "tests" / "data" / "tiny_gguf.py"
    if not writer.exists():
        pytest.skip(f"no {writer}")
    spec = importlib.util.spec_from_file_location("tiny_gguf", writer)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    folder: pathlib.Path = tmp_path_factory.mktemp("tiny")
    made: Dict[str, str] = {}

    def path_of(name: str) -> str:
        if name not in made:
            made[name] = str(folder / f"{name}.gguf")
            module.write(name, made[name])
        return made[name]

    setattr(path_of, "values_of", module.values_of)
    return path_of


def test_bits_alone_and_in_batches(model: duet.Model) -> None:
    with model.session(n_seqs=3, cache_tokens=1024) as session:
        vectors = session.embed(TEXTS)
        assert vectors.shape == (5, model.info.embedding_dim) and vectors.dtype == numpy.float32
        assert numpy.allclose((vectors ** 2).sum(1), 1, atol=1e-6) and vectors.flags.writeable
        for text, vector in zip(TEXTS, vectors):
            assert session.embed([text])[0].tobytes() == vector.tobytes()
        ids = [model.tokenize(text) for text in TEXTS]
        assert session.embed(ids).tobytes() == vectors.tobytes()
        assert not numpy.array_equal(session.embed(TEXTS, pooling="mean"), vectors)
        assert session.embed(TEXTS, pooling="last").tobytes() == vectors.tobytes()  # a decoder's file without the key
        assert numpy.abs((session.embed(TEXTS, normalise=False) ** 2).sum(1) - 1).min() > 0.01
        assert session.embed([]).shape == (0, model.info.embedding_dim) and session.ids() == []


def test_the_array_is_filled_in_place(model: duet.Model) -> None:
    with model.session() as session:
        vectors = session.embed(["a"])
        want = vectors.tobytes()
        session.embed(["b"])  # an array of its own: no view holds the session
    assert vectors.flags.owndata and vectors.tobytes() == want


@pytest.mark.skipif(not os.path.exists(PROGRAM), reason=f"no {PROGRAM} (DUET_EMBED=...)")
@pytest.mark.parametrize("name", ["demo", *ENCODERS])
def test_the_bits_of_the_program(name: str, demo_path: str, request: Any) -> None:
    path = demo_path if name == "demo" else request.getfixturevalue("tiny")(name)
    texts = ["abc", "a b a b", "xyz"]
    made = subprocess.run([PROGRAM, "-m", path, "--raw", *[word for text in texts for word in ("-p", text)]],
                          check=True, capture_output=True).stdout
    with duet.Model(path) as model, model.session(cache_type="f16" if name == "demo" else "f32") as session:
        assert session.embed(texts).tobytes() == made


@pytest.mark.parametrize("name", ENCODERS)
def test_encoders(name: str, tiny: Any) -> None:
    ids, want = tiny.values_of(name, "i", int), numpy.array(tiny.values_of(name, "p"), numpy.float32)
    with duet.Model(tiny(name)) as model, model.session(n_seqs=4, cache_type="f32") as session:
        assert model.info.is_encoder and model.info.embedding_dim == len(want)
        vectors = session.embed([ids, ids[:3], ids])
        assert numpy.abs(vectors[0] - want).max() < 2e-5 and numpy.array_equal(vectors[0], vectors[2])
        session.cancel()
        with pytest.raises(duet.CancelledError):
            session.embed([ids])
        assert session.embed([ids[:3]])[0].tobytes() == vectors[1].tobytes()


@pytest.mark.parametrize("name", ["bert-reranker", "modern-bert-reranker", "qwen3-reranker"])
def test_rerank(name: str, tiny: Any) -> None:
    want = tiny.values_of(name, "r")[0]
    with duet.Model(tiny(name)) as model, model.session(n_seqs=2, cache_type="f32") as session:
        assert model.info.is_reranker
        scores = session.rerank("q", ["d", "dd ab", "d"])
        assert scores.dtype == numpy.float32 and scores.shape == (3,)
        assert abs(scores[0] - want) < 2e-5 and scores[0] == scores[2] != scores[1]
        assert session.rerank("q", ["dd ab"])[0] == scores[1] and session.rerank("q", []).shape == (0,)

        async def main() -> Any:
            return await session.rerank_async("q", ["d", "dd ab", "d"])

        assert numpy.array_equal(asyncio.run(main()), scores)


def test_what_is_refused(model: duet.Model) -> None:
    with model.session(n_ctx=8) as session:
        wrong: List[Callable[[], Any]] = [
            lambda: session.embed(["a"], pooling="median"), lambda: session.embed("a"), lambda: session.embed([[]]),
            lambda: session.embed(["a", [1]]), lambda: session.embed([[10**6]])]  # type: ignore[arg-type]
        for call in wrong:
            with pytest.raises(duet.ArgumentError):
                call()
        with pytest.raises(duet.ArgumentError, match="one text"):
            session.rerank("q", "text")
        with pytest.raises(duet.UnsupportedError, match="scores no pairs"):
            session.rerank("who?", TEXTS)
        long = "A cat sat on the mat and that was all of it."
        with pytest.raises(duet.FullError, match="text 1: .* ask for pieces"):
            session.embed(["A", long])
        assert session.embed([long], cut=True).shape[0] == 1
        session.decode([1])
        row = session.logits()
        with pytest.raises(BufferError):
            session.embed(["a"])
        del row
        session.embed(["a"])
        session.close()
        with pytest.raises(duet.ClosedError):
            session.embed(["a"])


def test_an_interrupt_stops_within_100_ms(model: duet.Model) -> None:
    session = model.session(n_seqs=8)
    alone = session.embed(["hello"]).tobytes()
    waits = []
    for seconds in (0.05, 0.1, 0.15, 0.2, 0.25):
        told: List[float] = []
        timer = interrupt_after(seconds, told)
        with pytest.raises(KeyboardInterrupt):
            session.embed(["Once upon a time there was a cat. " * 20] * 2000)
        waits.append(time.monotonic() - told[0])
        timer.join()
        assert session.embed(["hello"]).tobytes() == alone  # nothing is left of the interrupt
    assert sorted(waits)[2] < 0.1, waits


def test_a_request_that_comes_too_late_is_taken_back(tiny: Any) -> None:
    """Interrupts that strike when a call is just done leave the session as it was, also an encoder's."""
    gc.collect()
    gc.disable()  # Python drops an interrupt that strikes while an object of an earlier test is freed
    try:
        with duet.Model(tiny("bert"), threads=1) as model, model.session() as session:
            want = session.embed(["abc"]).tobytes()
            for i in range(60):
                told: List[float] = []
                end = time.monotonic() + 30
                with pytest.raises(KeyboardInterrupt):
                    interrupt_after(0.0002 * (i % 12), told)
                    while time.monotonic() < end:
                        session.embed(["abc"])
                assert session.embed(["abc"]).tobytes() == want
    finally:
        gc.enable()


def test_asyncio(model: duet.Model) -> None:
    async def main() -> None:
        session = await model.session_async(n_seqs=4, cache_tokens=4096)
        want = session.embed(TEXTS)
        assert numpy.array_equal(await session.embed_async(TEXTS), want)
        task = asyncio.ensure_future(session.embed_async(["Once upon a time there was a cat. " * 20] * 2000))
        for _ in range(20):
            await asyncio.sleep(0.005)
            assert not task.done()  # seconds of work, beside which the loop goes on
        with pytest.raises(duet.BusyError):
            session.embed(["a"])
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert numpy.array_equal(await session.embed_async(TEXTS), want)

    asyncio.run(main())


def test_threads_with_sessions_of_their_own(model: duet.Model) -> None:
    want = model.session().embed(TEXTS).tobytes()
    got: List[bytes] = []

    def work() -> None:
        session = model.session(n_seqs=2)
        for _ in range(5):
            got.append(session.embed(TEXTS).tobytes())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == [want] * 20
