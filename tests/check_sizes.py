#!/usr/bin/env python3
"""check_sizes.py: lines of code, neither blank nor only a comment, of each folder beside their bounds, and the longest
file (as tinygrad's check does, tinygrad:sz.py).

The bounds are on the library with its build and on the programs. Tests, benchmarks, examples, bindings, packaging and the
training of the demo model are counted and shown. The library with chat (templates, grammars, schemas, the parser of
answers) is meant to have 24,000 lines and has more: its bound is what it has, so that it can only shrink. The server, a
part of the tools, is meant to have 3,500 without the page in the browser. Code that only Windows compiles has a bound of
its own. Python 3.8 and newer, and git.
"""
import collections
import os
import re
import subprocess
import sys

# what is counted: the most it may have
BOUNDS = {"library without chat": 24050, "chat": 10836, "tools": 7890, "server": 3500, "only for Windows": 565}
LONGEST_FILE = 1200  # lines of any kind
NOT_LIBRARY = {"tools", "tests", "benchmarks", "examples", "training", "bindings", "deploy", "packaging"}

COUNTED = re.compile(r"\.(h|cpp|c|inc|def|cuh|cu|py|sh)$|^Makefile$|^CMakeLists\.txt$|^\.ci/")
NOT_COUNTED = re.compile(r"tests/doctest\.h|unicode_data\.inc")  # from outside; a table made by a script
HASH_COMMENTS = re.compile(r"\.(py|sh)$|^Makefile$|CMakeLists|^\.ci/")
SERVER = re.compile(r"tools/serve/(?!page)")
CHAT = re.compile(r"(models|runtime)/(chat|template|value|grammar|schema)")
WINDOWS = re.compile(r"_windows\.(h|cpp|sh)$")
C_COMMENT = re.compile(r"[ \t]*(//|/\*.*\*/$)|(/\*| \*[ /]| \*$)")
HASH_COMMENT = re.compile(r"[ \t]*#")


def part_of(path):
    if path.startswith("models/demo/"):
        return "training"
    return path.split("/")[0] if "/" in path else "root"


def main():
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    names = subprocess.run(["git", "ls-files"], check=True, capture_output=True, text=True).stdout.splitlines()
    parts, totals, too_long = collections.Counter(), collections.Counter(), []
    for name in names:
        if not COUNTED.search(name) or NOT_COUNTED.search(name) or not os.path.exists(name):
            continue
        with open(name, encoding="utf-8") as file:
            lines = file.read().splitlines()
        if len(lines) > LONGEST_FILE:
            too_long.append(name)
        comment = HASH_COMMENT if HASH_COMMENTS.search(name) else C_COMMENT
        n = sum(1 for line in lines if line.strip() and not comment.match(line))
        totals["all"] += n
        if WINDOWS.search(name):
            totals["only for Windows"] += n
            continue
        parts[part_of(name)] += n
        if SERVER.match(name):
            totals["server"] += n
        if part_of(name) not in NOT_LIBRARY:
            totals["chat" if CHAT.match(name) else "library without chat"] += n
    totals["tools"] = parts["tools"]
    for part, n in sorted(parts.items()):
        print(f"{part} {n}")
    print(f"all {totals['all']}")
    bad = [f"too long: {name}" for name in too_long]
    for what, bound in BOUNDS.items():
        print(f"{what}: {totals[what]} of at most {bound}")
        if totals[what] > bound:
            bad.append(f"{what}: {totals[what]} lines of code, at most {bound} wanted")
    for line in bad:
        print(line, file=sys.stderr)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
