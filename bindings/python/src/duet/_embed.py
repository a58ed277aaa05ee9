"""Vectors and scores of texts: the arrays that Session.embed and Session.rerank give, and the calls that fill them."""
from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, Callable, Sequence, Tuple, Union

from . import _abi
from ._core import defaults, error_of, int32s, lib
from ._model import Ids, counted, encode

if TYPE_CHECKING:
    import numpy
    import numpy.typing

    from ._session import Session

    Filled = Tuple[numpy.typing.NDArray[numpy.float32], Callable[[], None]]

Texts = Union[Sequence[str], Sequence[Ids]]
POOLING = ("file", "mean", "cls", "last")  # in the order of DUET_POOL_...


def embedding_of(session: Session, texts: Texts, pooling: str, normalise: bool, cut: bool) -> Filled:
    if pooling not in POOLING:
        raise error_of(_abi.DUET_ERR_ARG, f"pooling: want one of {', '.join(POOLING)}, got {pooling}")
    params = defaults(_abi.duet_embed_params)
    params.pooling, params.normalise, params.cut = POOLING.index(pooling), int(normalise), int(cut)
    given: Any = texts
    arguments: Tuple[Any, ...]
    is_text = [isinstance(text, str) for text in given]
    if all(is_text):
        function, arguments = lib.duet_embed, (counted_texts(given), len(given))
    elif any(is_text):
        raise error_of(_abi.DUET_ERR_ARG, "texts: want all of them as texts or all as lists of ids, got both")
    else:
        ids = int32s(id for text in given for id in int32s(text, "texts"))
        function, arguments = lib.duet_embed_ids, (ids, int32s(map(len, given)), len(given))
    return filled(session, (len(texts), session._embedding_dim), lambda address, out: int(
        function(address, *arguments, ctypes.byref(params), out)))


def scoring_of(session: Session, query: str, texts: Sequence[str]) -> Filled:
    asked, given = encode(query), counted_texts(texts)
    return filled(session, (len(texts),), lambda address, out: int(
        lib.duet_rerank(address, asked, len(asked), given, len(texts), out)))


def counted_texts(texts: Any) -> Any:
    if isinstance(texts, str):
        raise error_of(_abi.DUET_ERR_ARG, "texts: want a list of texts, got one text: put it in brackets")
    return counted([encode(text) for text in texts])


def filled(session: Session, shape: Tuple[int, ...], fill: Callable[[int, Any], int]) -> Filled:
    """An array, and the call that lets the library write into it."""
    import numpy

    out = numpy.zeros(shape, numpy.float32)
    to = out.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
    return out, lambda: session._change(lambda address: fill(address, to))


def absorb_at_once(session: Session) -> None:
    """Takes back a cancel() that came too late, where the sequences are empty or an encoder's: one token ends by it."""
    ids, n = int32s([0]), int32s([1])
    row = (ctypes.c_float * session._embedding_dim)()
    session._change(lambda address: int(lib.duet_embed_ids(address, ids, n, 1, None, row)))
