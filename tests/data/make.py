#!/usr/bin/env python3
"""tests/data/make.py: writes the files of this folder, all expected values computed by others than Duet.

  pip install numpy gguf tokenizers sentencepiece protobuf      then: python3 tests/data/make.py
"""
import os
import sys

import numpy as np

here = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, here)
import families  # noqa: E402
import formats  # noqa: E402
import vocabularies  # noqa: E402


def layers_together(m):
    """Tensors that differ in their block only share a line: blk.0,2,3.attn_q.weight."""
    lines = {}
    for name, (scale, offset, dims) in m.tensors.items():
        block, rest = (name.split(".", 2)[1], name.split(".", 2)[2]) if name.startswith("blk.") else ("", name)
        lines.setdefault((rest, scale, offset, dims), []).append(block)
    for (rest, scale, offset, dims), blocks in lines.items():
        name = f"blk.{','.join(blocks)}.{rest}" if blocks[0] else rest
        is_matrix = len(dims) > 1 and not rest.endswith("bias")
        number_format = m.number_format if is_matrix and (m.number_format != "MXFP4" or "_exps" in rest) else ""
        yield f"w {name} {number_format or 'F32'} {scale:.10g} {offset:.10g} {' '.join(map(str, dims))}"


def key_line(key, value, arch):
    key = key[len(arch):] if key.startswith(arch + ".") else key
    kinds = {bool: "b", int: "u", float: "f", str: "s"}
    if isinstance(value, list) and isinstance(value[0], str):
        return f"S {key} {' '.join(value)}"
    if isinstance(value, list):
        return f"{kinds[type(value[0])].upper()} {key} {' '.join(str(int(v)) for v in value)}"
    return f"{kinds[type(value)]} {key} {int(value) if isinstance(value, bool) else value}"


def models():
    for m, logits in families.all_models():
        if logits is not None:
            assert np.isfinite(logits).all() and 0.5 < logits.std() < 20, (m.name, logits.std())
        yield f"model {m.name}"
        yield from (key_line(k, v, m.arch) for k, v in m.keys.items())
        yield from layers_together(m)
        yield "i " + " ".join(map(str, m.ids))
        if logits is not None and not m.number_format:  # a quantized model's logits are not those of its weights before
            yield "l " + " ".join(f"{x:.4f}" for x in logits[-1].ravel())
        if m.name.endswith("embedding") and m.embedding is not None:
            yield "e " + " ".join(f"{x:.4f}" for x in m.embedding)
        if m.pooled is not None:
            yield "p " + " ".join(f"{x:.6f}" for x in m.pooled)
        if m.score is not None:  # of the pair (q, d)
            yield f"r {m.score:.6f}"


def write(name, lines):
    with open(os.path.join(here, name), "w", encoding="utf-8", newline="\n") as f:
        f.writelines(line + "\n" for line in lines)
    print(name, os.path.getsize(os.path.join(here, name)), "bytes")


if __name__ == "__main__":
    write("models.txt", models())
    write("formats.txt", formats.lines())
    write("vocabularies.txt", vocabularies.lines(os.path.join(here, "..", "..")))
