#!/usr/bin/env python3
"""tests/data/tiny_gguf.py: writes models of models.txt as GGUF files, as tests/test_data.cpp does, for tests and comparisons in Python.

  python3 tests/data/tiny_gguf.py bert bert.gguf        needs numpy
"""
import os
import struct
import sys

import numpy as np

V = 96
HERE = os.path.dirname(os.path.abspath(__file__))
KINDS = {"u": (4, "<I", int), "b": (7, "<?", lambda x: x == "1"), "f": (6, "<f", float), "i": (5, "<i", int)}


def random_values(name, count):
    seed = np.uint64(14695981039346656037)
    with np.errstate(over="ignore"):
        for byte in name.encode():
            seed = (seed ^ np.uint64(byte)) * np.uint64(1099511628211)
        z = seed + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    total = sum(((z >> np.uint64(s)) & np.uint64(0xFFFF)).astype(np.int64) for s in (0, 16, 32, 48)) - 131070
    return total.astype(np.float64) * 2.0**-15


def lines_of(name):
    """The lines of a model; its ids are in the line that begins with i, its vector in p, its score in r."""
    with open(os.path.join(HERE, "models.txt"), encoding="utf-8") as file:
        found = ("\n" + file.read()).split(f"\nmodel {name}\n")
    if len(found) != 2:
        raise KeyError(name)
    return found[1].split("\nmodel ")[0].splitlines()


def values_of(name, letter, kind=float):
    return [kind(x) for line in lines_of(name) if line[0] == letter for x in line[2:].split()]


def string(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def array(kind, form, values):
    data = b"".join(map(string, values)) if kind == 8 else b"".join(struct.pack(form, v) for v in values)
    return 9, struct.pack("<IQ", kind, len(values)) + data


def vocabulary():
    words = ["<unk>", "<s>", "</s>", "\u2581"] + [chr(ord("a") + i) for i in range(26)]
    for i in range(V - len(words)):
        words.append(chr(ord("a") + i % 26) + chr(ord("a") + (i * 7 + 4 + i // 26) % 26))
    return {"model": (8, string("llama")), "tokens": array(8, "", words), "token_type": array(5, "<i", [2, 3, 3] + [1] * (V - 3)),
            "scores": array(6, "<f", [float(i - V) for i in range(V)]),
            "bos_token_id": (4, struct.pack("<I", 1)), "eos_token_id": (4, struct.pack("<I", 2))}


def write(name, path, more_keys=()):
    """more_keys: further lines as those of models.txt ("b tokenizer.ggml.add_bos_token 1")."""
    keys = {"tokenizer.ggml." + key: value for key, value in vocabulary().items()}
    tensors, arch = [], ""
    for line in [*lines_of(name), *more_keys]:
        letter, key, *words = line.split()
        key = arch + key if key[0] == "." else key
        if letter == "s":
            keys[key] = (8, string(words[0]))
            arch = words[0] if key == "general.architecture" else arch
        elif letter == "S":
            keys[key] = array(8, "", words)
        elif letter in "ubf":
            kind, form, read = KINDS[letter]
            keys[key] = (kind, struct.pack(form, read(words[0])))
        elif letter in "UB":
            kind, form, read = KINDS["i" if letter == "U" else "b"]
            keys[key] = array(kind, form, [read(w) for w in words])
        elif letter == "w":
            form, scale, offset, *dims = words
            if form != "F32":
                raise ValueError(f"{name}: {key} is {form}, want F32")
            parts = key.split(".", 2)
            for full in [f"blk.{i}.{parts[2]}" for i in parts[1].split(",")] if key.startswith("blk.") else [key]:
                x = float(offset) + float(scale) * random_values(name + "/" + full, int(np.prod([int(d) for d in dims])))
                tensors.append((full, [int(d) for d in dims], x.astype("<f4").tobytes()))
    head, data = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(keys)), b""
    for key, (kind, value) in keys.items():
        head += string(key) + struct.pack("<I", kind) + value
    for full, dims, block in tensors:
        head += string(full) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, 0, len(data))
        data += block + b"\0" * (-len(block) % 32)
    with open(path, "wb") as file:
        file.write(head + b"\0" * (-len(head) % 32) + data)


if __name__ == "__main__":
    write(sys.argv[1], sys.argv[2])
