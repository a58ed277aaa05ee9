"""tests/data/formats.py: what blocks of random bytes decode to in every number format. Used by make.py.

Computed by the gguf package (its code in numpy), Q1_0 by its definition. Stored: a hash of all values and the first two.
"""
import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, quants
from reference import random_values

N_BLOCKS = 64


def q1_0(data):
    """A half-precision factor d and 128 bits: d where the bit is 1, else -d."""
    d = data[:, :2].copy().view(np.float16).astype(np.float32)
    bits = np.unpackbits(data[:, 2:], axis=1, bitorder="little")
    return np.where(bits == 1, d, -d).astype(np.float32)


# Formats that the package does not decode: name -> (bytes of a block, decoder of an array (blocks, bytes)).
OWN = {"Q1_0": (18, q1_0)}


def hash_of(x):
    """FNV-1a over the bits, any NaN as 7fc00000."""
    bits = np.where(np.isnan(x), np.uint32(0x7FC00000), x.view(np.uint32))
    h = 2166136261
    for b in bits.astype("<u4").tobytes():
        h = (h ^ b) * 16777619 & 0xFFFFFFFF
    return h


def lines():
    known = {t.name: t for t in GGMLQuantizationType}
    for name in [*known, *(n for n in OWN if n not in known)]:
        t = known.get(name)
        if name not in OWN and t not in quants._type_traits:
            continue
        size = OWN[name][0] if name in OWN else GGML_QUANT_SIZES[t][1]
        count = N_BLOCKS * (32 if name == "BF16" else 1)
        data = (random_values("format/" + name, count * size) * 2.0**15).astype(np.int64) & 0xFF
        data = data.astype(np.uint8).reshape(count, size)
        with np.errstate(all="ignore"):
            x = OWN[name][1](data) if name in OWN else quants.dequantize(data, t)
        x = np.ascontiguousarray(x, np.float32).ravel()
        yield f"{name} {count} {x.size} {hash_of(x):08x} {x[0]:.9g} {x[1]:.9g}"
    data = (random_values("format/F16", 128) * 2.0**15).astype(np.int64) & 0xFF
    x = data.astype(np.uint8).view(np.float16).astype(np.float32)
    yield f"F16 64 {x.size} {hash_of(x):08x} {x[0]:.9g} {x[1]:.9g}"
