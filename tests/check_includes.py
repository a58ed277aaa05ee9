#!/usr/bin/env python3
"""tests/check_includes.py: prints which folder includes which, and fails when an arrow points upward.

  python3 tests/check_includes.py [FOLDER]        FOLDER: root of the tree, "." by default
"""
import os
import re
import sys

# What the files of a folder may include, beside their own folder. "runtime.h" is the public header, at the root.
ALLOWED = {
    "quant": [],
    "models": ["quant"],
    "cpu": ["models", "quant"],
    "gpu": ["models", "quant"],
    "runtime": ["cpu", "gpu", "models", "quant", "runtime.h"],
    "runtime.cpp": ["runtime", "cpu", "gpu", "models", "quant", "runtime.h"],
    "runtime.h": [],
    "tools": ["runtime.h"],
    "examples": ["runtime.h"],
    "tests": ["runtime", "cpu", "gpu", "models", "quant", "tools", "runtime.h"],
}
# Single includes that point upward, with the reason.
EXCEPTIONS = {
    ("models/status.h", "runtime.h"): "status codes and the types of number formats are public and used everywhere",
    ("gpu/args.h", "runtime.h"): "kernels read the public numbers of the cache's formats; devices have no <string>",
    ("gpu/store.cpp", "cpu/threads.h"): "weights are copied to the device by the pool of threads",
}


def room(path):
    return path.split("/")[0]


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else "."
    arrows, wrong, used = {}, [], set()
    for folder, subfolders, names in os.walk(root):
        subfolders[:] = [s for s in subfolders if not s.startswith(".") and s != "build"]
        for name in sorted(names):
            path = os.path.relpath(os.path.join(folder, name), root)
            if not re.search(r"\.(h|c|cpp|inc|def|cu|cuh)$", path) or name == "doctest.h":
                continue
            for line in open(os.path.join(folder, name), encoding="utf-8"):
                found = re.match(r'\s*#\s*include\s*"([^"]+)"', line)
                if not found:
                    continue
                target = os.path.normpath(os.path.join(os.path.dirname(path), found[1]))
                if not os.path.exists(os.path.join(root, target)):
                    target = found[1]  # from the root (-I.)
                if not os.path.exists(os.path.join(root, target)):
                    wrong.append(f"{path}: {found[1]}: no such file")
                    continue
                a, b = room(path), room(target)
                arrows[a, b] = arrows.get((a, b), 0) + (a != b)
                if (path, target) in EXCEPTIONS:
                    used.add((path, target))
                elif a != b and b not in ALLOWED.get(a, []):
                    may = ", ".join(ALLOWED.get(a, [])) or "nothing outside itself"
                    wrong.append(f"{path} includes {target}: {a} may include {may}")
    for a in sorted({a for a, _ in arrows}):
        to = [f"{b} ({n})" for (c, b), n in sorted(arrows.items()) if c == a and n]
        print(f"{a:12} -> {', '.join(to) or '-'}")
    for (path, target), why in EXCEPTIONS.items():
        print(f"exception: {path} -> {target}: {why}")
        if (path, target) not in used:
            wrong.append(f"{path} no longer includes {target}: take the exception out")
    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
