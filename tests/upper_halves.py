#!/usr/bin/env python3
"""tests/upper_halves.py: no function of a program for x86-64 ends with values in the upper halves of vector registers.

    tests/upper_halves.py PROGRAM

Where vzeroupper is missing, SSE code that runs later, such as libm's, is up to fifty times as slow, and nothing else
tells. Compilers forget it around calls whose registers they know. A jump by a table is not followed.
"""
import re
import subprocess
import sys

WIDE = re.compile(r"%[yz]mm(?:[0-9]|1[0-5])\b")  # registers 16 to 31 have no SSE code
functions, name = {}, ""
disassembly = subprocess.run(["objdump", "-dC", "--no-show-raw-insn", sys.argv[1]], check=True, capture_output=True, text=True)
for line in disassembly.stdout.splitlines():
    if head := re.match(r"[0-9a-f]+ <(.*)>:$", line):
        name = line
        functions[name] = []
    elif part := re.match(r" *([0-9a-f]+):\t(.*?) *(?:#.*)?$", line):
        functions[name].append((int(part[1], 16), part[2]))


def ends_wide(code):
    """Returns the address at which a path leaves the function with upper halves in use, or None."""
    index = {address: i for i, (address, _) in enumerate(code)}
    seen, paths = set(), [(0, False)]
    while paths:
        i, is_wide = paths.pop()
        while i < len(code) and (i, is_wide) not in seen:
            seen.add((i, is_wide))
            address, text = code[i]
            if text.startswith("vzero"):
                is_wide = False
            elif WIDE.search(text.rsplit(",", 1)[-1]):  # the last operand is what is written
                is_wide = True
            jump = re.match(r"(?:bnd |notrack )?(j\w+) +([0-9a-f]+)\b", text)
            inside = index.get(int(jump[2], 16)) if jump else None
            if inside is not None:
                paths.append((inside, is_wide))
            if is_wide and (re.match(r"(?:bnd |repz )?ret", text) or (jump and inside is None)):
                return address
            if re.match(r"(?:bnd |repz |notrack )?(?:ret|jmp)", text):
                break
            i += 1
    return None


wide = {name: code for name, code in functions.items() if any(WIDE.search(text) for _, text in code)}
if len(wide) < 50:
    sys.exit(f"{sys.argv[1]}: want kernels for AVX2 and AVX-512, found {len(wide)} functions with wide vectors")
bad = [(name, at) for name, code in wide.items() if (at := ends_wide(code)) is not None]
for name, at in bad:
    print(f"{name} no vzeroupper on a way to {at:x}")
if bad:
    sys.exit(f"{len(bad)} functions end with values in upper halves")
print(f"{len(wide)} functions with wide vectors leave their upper halves empty")
