#!/usr/bin/env python3
"""tests/exports.py: every function of runtime.h is defined in runtime.cpp, inside the guard, and nowhere else.

    tests/exports.py [LIBRARY.a]    with a library, its symbols are compared, too

The guard (runtime/guard.h) is what keeps exceptions inside the library. A function passes when its body is one
statement, or ends in one return statement, that calls a guard; bodies are short, so that nothing stands before it.
"""
import re
import subprocess
import sys

GUARDS = r"\b(guarded|guarded_call|guarded_shared|guarded_value|guarded_void|create|with_\w+)\("

header = open("runtime.h").read()
header = re.sub(r"/\*.*?\*/", "", header, flags=re.S)
declared = set(re.findall(r"^DUET_API(?:_STATUS)?[^;{#]*?\b(duet_\w+)\(", header, flags=re.M | re.S))
declared |= {name + "_init" for name in re.findall(r"^DUET_DEFAULTS\((duet_\w+)\)", header, flags=re.M)}
source = re.sub(r"//[^\n]*", "", open("runtime.cpp").read())
exported = source[source.index('extern "C" {'):]
wrong = []

# A definition begins at the start of a line; its body ends at the first line that is "}" or on the same line.
bodies = {}
for match in re.finditer(r"^(?!#|using|extern|\}| )[^\n;]*?\b(duet_\w+)\(", exported, flags=re.M):
    begin = exported.index("{", match.end())
    depth, end = 0, begin
    for end in range(begin, len(exported)):
        depth += {"{": 1, "}": -1}.get(exported[end], 0)
        if depth == 0:
            break
    if match.group(1) in bodies:
        wrong.append(f"runtime.cpp: {match.group(1)} is defined twice")
    bodies[match.group(1)] = exported[begin + 1:end]

bodies |= {name + "_init": "guarded_void(" for name in re.findall(r"^DUET_INIT\((duet_\w+)\)$", exported, flags=re.M)}
for name in re.findall(r"^DUET_HANDLE\((duet_\w+)\)", exported, flags=re.M):
    bodies |= {name + "_free": "guarded_void(", name + "_error": "guarded_value("}

for name in sorted(declared - bodies.keys()):
    wrong.append(f"runtime.h declares {name}, runtime.cpp does not define it")
for name in sorted(bodies.keys() - declared):
    wrong.append(f"runtime.cpp defines {name}, runtime.h does not declare it")
for name, body in sorted(bodies.items()):
    if not re.search(GUARDS, body):
        wrong.append(f"runtime.cpp: {name} has no guard")
        continue
    before = re.split(GUARDS, body)[0]
    # What stands before the guard may only make plain values: no other call.
    calls = [c for c in re.findall(r"\b([a-z_]\w*)\(", before)]
    if calls:
        wrong.append(f"runtime.cpp: {name} calls {', '.join(calls)} before its guard")

if len(sys.argv) > 1:
    listed = subprocess.run(["nm", "-A", "-g", "--defined-only", sys.argv[1]], capture_output=True, text=True, check=True)
    symbols = {}
    for line in listed.stdout.splitlines():
        match = re.match(r"[^:]*:([^:]*\.o):\S* T (duet_\w+)$", line)
        if match:
            symbols[match.group(2)] = match.group(1)
    for name, where in sorted(symbols.items()):
        if where != "runtime.o" and name != "duet_emu_switch":  # the emulator's own, hidden
            wrong.append(f"{sys.argv[1]}: {name} is exported from {where}, want runtime.cpp only")
    for name in sorted(declared - symbols.keys()):
        wrong.append(f"{sys.argv[1]}: no symbol {name}")

for line in wrong:
    print(line)
print(f"exports: {len(declared)} functions, {len(wrong)} wrong")
sys.exit(1 if wrong or not declared else 0)
