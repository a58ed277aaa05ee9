"""bindings/python/abi.py: reads runtime.h and writes duet/_abi.py: its constants, structs and functions for ctypes.

    python3 abi.py RUNTIME_H OUT

The build runs it, so that runtime.h stays the only place where the interface stands. What it cannot read is an error.
tests/test_abi.py compares what it made with what a C compiler makes of the header.
"""
import re
import sys
from typing import Dict, List, Tuple

PLAIN = {
    "int32_t": "c_int32", "uint32_t": "c_uint32", "int64_t": "c_int64", "uint64_t": "c_uint64", "uint8_t": "c_uint8",
    "size_t": "c_size_t", "float": "c_float", "double": "c_double", "duet_status": "c_int32",
}
PYTHON = {"c_float": "float", "c_double": "float", "c_char_p": "Optional[bytes]", "c_void_p": "Optional[int]"}


class Header:
    def __init__(self, text: str) -> None:
        text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
        text = re.sub(r"\\\n", " ", text)
        self.defaults = re.findall(r"^DUET_DEFAULTS\((\w+)\)", text, flags=re.M)
        self.version = re.findall(r"^#define DUET_VERSION_\w+ (\d+)$", text, flags=re.M)
        text = re.sub(r"^DUET_DEFAULTS\(\w+\)", "", text, flags=re.M)
        text = "\n".join(line for line in text.split("\n") if not line.lstrip().startswith("#"))
        text = re.sub(r'extern "C" \{', "", text)
        self.constants: Dict[str, int] = {}
        self.structs: Dict[str, List[Tuple[str, str]]] = {}
        self.callbacks: Dict[str, Tuple[str, List[str]]] = {}
        self.functions: Dict[str, Tuple[str, List[str]]] = {}
        self.opaque: List[str] = []
        for statement in self.statements(text):
            self.read(statement)
        for name in self.defaults:
            self.functions[name + "_init"] = ("None", [f"POINTER({name})", "c_uint32"])

    @staticmethod
    def statements(text: str) -> List[str]:
        found, depth, begin = [], 0, 0
        for i, c in enumerate(text):
            depth += (c == "{") - (c == "}")
            if c == ";" and depth == 0:
                found.append(" ".join(text[begin:i].split()))
                begin = i + 1
        rest = " ".join(text[begin:].split())
        if rest not in ("", "}"):
            raise ValueError(f"runtime.h: cannot read the end: {rest}")
        return found

    def read(self, statement: str) -> None:
        if match := re.fullmatch(r"enum \{(.*)\}", statement):
            value = -1
            for item in filter(None, (part.strip() for part in match[1].split(","))):
                name, _, number = (part.strip() for part in item.partition("="))
                value = int(number) if number else value + 1
                self.constants[name] = value
        elif match := re.fullmatch(r"typedef struct (\w+) \{(.*)\} \1", statement):
            self.structs[match[1]] = self.fields(match[2])
        elif match := re.fullmatch(r"typedef struct (\w+) \1", statement):
            self.opaque.append(match[1])
        elif match := re.fullmatch(r"typedef (.+?) ?\(\*(\w+)\)\((.*)\)", statement):
            self.callbacks[match[2]] = (self.type(match[1]), self.arguments(match[3]))
        elif match := re.fullmatch(r"DUET_API_STATUS (\w+)\((.*)\)", statement):
            self.functions[match[1]] = ("c_int32", self.arguments(match[2]))
        elif match := re.fullmatch(r"DUET_API (.+?) ?(\w+)\((.*)\)", statement):
            self.functions[match[2]] = (self.type(match[1]), self.arguments(match[3]))
        elif statement != "typedef int32_t duet_status":
            raise ValueError(f"runtime.h: cannot read: {statement}")

    def type(self, text: str) -> str:
        text = " ".join(text.replace("const", " ").replace("*", " * ").split())
        base, stars = text.split(" ")[0], text.count("*")
        if base == "void":
            return {0: "None", 1: "c_void_p"}[stars]
        if base == "char":
            return {1: "c_char_p", 2: "POINTER(c_char_p)"}[stars]
        if base in self.opaque:
            return {1: "c_void_p", 2: "POINTER(c_void_p)"}[stars]
        if base in PLAIN or base in self.structs or base in self.callbacks:
            made = PLAIN.get(base, base)
            for _ in range(stars):
                made = f"POINTER({made})"
            return made
        raise ValueError(f"runtime.h: cannot read the type: {text}")

    def declared(self, text: str) -> Tuple[str, str]:
        match = re.fullmatch(r"(.*?[ *])(\w+)(?:\[(\d+)\])?", text.strip())
        if not match:
            raise ValueError(f"runtime.h: cannot read: {text}")
        made = self.type(match[1])
        return match[2], f"{made} * {match[3]}" if match[3] else made

    def arguments(self, text: str) -> List[str]:
        if text in ("void", ""):
            return []
        return [self.declared(part)[1] for part in text.split(",")]

    # Bytes that a count of bytes follows may hold any value: their field is an address, not a terminated text.
    def fields(self, text: str) -> List[Tuple[str, str]]:
        made: List[Tuple[str, str]] = []
        for statement in filter(None, (part.strip() for part in text.split(";"))):
            first, *more = (part.strip() for part in statement.split(","))
            made.append(self.declared(first))
            kind = re.sub(r"\w+(\[\d+\])?$", "", first)
            made += [self.declared(kind + name) for name in more]
        counted = any(name == "n_bytes" for name, _ in made)
        return [(n, "c_void_p" if t == "c_char_p" and counted else t) for n, t in made]

    def module(self) -> str:
        lines = ['"""Made from runtime.h by bindings/python/abi.py."""',
                 "from ctypes import (CFUNCTYPE, POINTER, Structure, c_char_p, c_double, c_float, c_int32, c_int64,",
                 "                    c_size_t, c_uint8, c_uint32, c_uint64, c_void_p)",
                 "from typing import Any, Dict, List, Optional, Tuple", "",
                 f"VERSION = \"{'.'.join(self.version)}\"", ""]
        lines += [f"{name} = {value}" for name, value in self.constants.items()]
        made: List[str] = []
        for name, (result, arguments) in self.callbacks.items():
            if not self.needs_struct(arguments):
                lines += ["", f"{name} = CFUNCTYPE({', '.join([result, *arguments])})"]
        for name, fields in self.structs.items():
            lines += ["", "", f"class {name}(Structure):"]
            for field, kind in fields:
                is_plain = kind.startswith("c_") and "*" not in kind
                lines.append(f"    {field}: {PYTHON.get(kind, 'int') if is_plain else 'Any'}")
            lines += ["    _fields_ = ["] + [f"        (\"{field}\", {kind})," for field, kind in fields] + ["    ]"]
            made.append(name)
        lines += ["", ""]
        for name, (result, arguments) in self.callbacks.items():
            lines += [f"{name} = CFUNCTYPE({', '.join([result, *arguments])})"] if self.needs_struct(arguments) else []
        lines += ["", "STRUCTS: List[Any] = [" + ", ".join(made) + "]", "",
                  "# of each function its result and its arguments", "FUNCTIONS: Dict[str, Tuple[Any, List[Any]]] = {"]
        lines += [f"    \"{name}\": ({result}, [{', '.join(arguments)}]),"
                  for name, (result, arguments) in self.functions.items()]
        return "\n".join(lines + ["}", ""])

    def needs_struct(self, arguments: List[str]) -> bool:
        return any(f"POINTER({name})" in arguments for name in self.structs)


def main() -> int:
    with open(sys.argv[1], encoding="utf-8") as header:
        text = Header(header.read()).module()
    with open(sys.argv[2], "w", encoding="utf-8") as out:
        out.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
