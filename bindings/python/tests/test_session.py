"""Sessions: batches, arrays over their memory, sequences, saved states."""
import ctypes
import gc
import weakref
from typing import Any

import pytest

import duet
from duet._core import lib

numpy: Any = pytest.importorskip("numpy")


def test_logits_are_the_sessions_memory(session: duet.Session) -> None:
    session.decode(session.model.tokenize("Once upon a"), logits=True)
    n = session.n_logits
    row = session.logits(0)
    pointer = ctypes.cast(lib.duet_logits(session._handle.address, 0), ctypes.c_void_p).value
    assert row.__array_interface__["data"] == (pointer, False) and row.dtype == numpy.float32
    assert row.shape == (session.model.info.n_vocab,) and not row.flags.owndata
    assert numpy.array_equal(session.logits(), session.logits(n - 1))
    assert session.logits(copy=True).flags.owndata
    for i in (n, -n - 1):
        with pytest.raises(duet.StateError, match="want a row"):
            session.logits(i)


def test_writing_to_logits_changes_the_choice(session: duet.Session) -> None:
    session.decode(session.model.tokenize("Once upon a"))
    row = session.logits()
    row[:] = -100
    row[777] = 100
    del row
    session.generate(max_tokens=1, temp=0).read()
    assert session.ids()[-1] == 777


def test_views_hold_off_what_would_change_them(session: duet.Session) -> None:
    session.decode([1, 2, 3])
    row = session.logits()
    part = row[5:10]
    want = part.copy()
    del row
    for call in (lambda: session.decode([4]), lambda: session.trim(1), lambda: session.load(b""),
                 lambda: session.generate([4], max_tokens=1).read(), lambda: session.reuse([1])):
        with pytest.raises(BufferError, match="copy=True"):
            call()
    assert numpy.array_equal(part, want) and session.length() == 3
    del part
    session.decode([4])


def test_views_outlive_session_and_model(demo_path: str) -> None:
    model = duet.Model(demo_path)
    session = model.session()
    session.decode([1, 2, 3])
    row, vector = session.logits(), session.embedding()
    sums = row.sum(), vector.sum()
    handles = [weakref.ref(session._handle), weakref.ref(model._handle)]
    session.close()
    model.close()
    del session, model
    gc.collect()
    assert (row.sum(), vector.sum()) == sums
    del row, vector
    gc.collect()
    assert [handle() for handle in handles] == [None, None]


def test_embedding_is_read_only(session: duet.Session) -> None:
    with pytest.raises(duet.StateError):
        session.embedding()
    session.decode([1, 2])
    vector = session.embedding()
    assert vector.shape == (session.model.info.dim,)
    with pytest.raises(ValueError):
        vector[0] = 1
    session.embedding(copy=True)[0] = 1


def test_batches_have_the_bits_of_each_alone(model: duet.Model) -> None:
    texts = [model.tokenize(t) for t in ("Once upon a time", "The cat", "A star in the sky")]
    alone = []
    for ids in texts:
        with model.session() as session:
            session.decode(ids)
            alone.append(session.logits(copy=True))
    with model.session(n_seqs=3) as session:
        ids = [id for text in texts for id in text]
        seqs = [i for i, text in enumerate(texts) for _ in text]
        ends = [i == len(text) - 1 for text in texts for i in range(len(text))]
        session.decode(ids, seq=seqs, logits=ends)
        assert session.n_logits == 3
        for i in range(3):
            assert session.logits(i).tobytes() == alone[i].tobytes()


def test_arguments_are_checked(session: duet.Session) -> None:
    for call in (lambda: session.decode([]), lambda: session.decode([10**6]), lambda: session.decode([1], seq=3),
                 lambda: session.decode([1, 2], seq=[0]), lambda: session.decode([1], pos=[5]),
                 lambda: session.length(7), lambda: session.trim(9), lambda: session.reuse([1], seq=4),
                 lambda: session.generate([]), lambda: session.generate("a", seed=1, sampler=duet.Sampler())):
        with pytest.raises(duet.ArgumentError):
            call()
    with pytest.raises(duet.FullError):
        session.decode([1] * (session.n_ctx + 1))
    with pytest.raises((TypeError, ctypes.ArgumentError)):
        session.decode(["a"])  # type: ignore[list-item]


def test_sequences(model: duet.Model) -> None:
    with model.session(n_seqs=2) as session:
        session.decode([1, 2, 3, 4])
        session.copy(0, 1)
        session.trim(2)
        assert session.ids() == [1, 2] and session.ids(1) == [1, 2, 3, 4]
        assert session.reuse([1, 2, 9], seq=1) == 2 and session.length(1) == 2
        session.trim()
        assert session.ids() == []


def test_saved_states(model: duet.Model) -> None:
    with model.session() as a, model.session() as b:
        a.decode(model.tokenize("Once upon a time"))
        state = a.save()
        b.load(memoryview(state))
        assert a.generate([5], max_tokens=20, seed=3).read() == b.generate([5], max_tokens=20, seed=3).read()
        for broken in (b"", state[:-1], bytes([state[0] ^ 1]) + state[1:]):
            with pytest.raises(duet.FormatError):
                b.load(broken)


def test_choose_and_accept(session: duet.Session) -> None:
    session.decode([1, 2])
    best = int(session.logits().argmax())
    sampler = duet.Sampler(temp=0)
    assert sampler.choose(session.logits()) == best
    assert duet.Sampler(temp=0, bias={best: float("-inf")}).choose(session.logits()) != best
    sampler.accept(best)
    with pytest.raises(duet.NanError):
        sampler.choose(numpy.full(10, numpy.nan, numpy.float32))
    for wrong in (numpy.zeros(5), numpy.zeros((2, 2), numpy.float32), numpy.zeros(8, numpy.float32)[::2]):
        with pytest.raises(duet.ArgumentError):
            sampler.choose(wrong)
    with pytest.raises(duet.ArgumentError, match="max_token"):
        session.generate("a", max_token=5)


def test_arrays_are_ids_and_states_to_a_type_checker_too(session: duet.Session, model: duet.Model) -> None:
    import numpy as np

    ids = np.array([1, 2, 3], np.int32)
    session.decode(ids)
    assert session.reuse(ids[:2]) == 2 and model.detokenize(ids) == model.detokenize([1, 2, 3])
    session.load(np.frombuffer(session.save(), np.uint8))
    assert session.ids() == [1, 2] and session.generate(ids[2:], max_tokens=1, seed=1).read()
    assert np.array_equal(session.embed([ids, ids])[0], session.embed([[1, 2, 3]])[0])


def test_numbers_of_numpy(session: duet.Session, model: duet.Model) -> None:
    numpy = pytest.importorskip("numpy")
    with model.session(n_seqs=2) as two:
        two.decode(numpy.array([1, 2]), seq=numpy.int64(1), logits=numpy.bool_(True))
        assert two.ids(1) == [1, 2] and two.n_logits == 2
        two.decode([3, 4], seq=numpy.array([0, 1]), pos=numpy.array([0, 2]), logits=numpy.array([False, True]))
        assert two.ids(0) == [3] and two.ids(1) == [1, 2, 4] and two.n_logits == 1
