#!/usr/bin/env python3
"""tests/completion.py: types into real interactive shells and presses Tab: tests/completion.py PREFIX/share

The programs are replaced by a function that prints its arguments, so that the shell itself tells what Tab made of a line.
bash and zsh that are missing are named as skipped; with neither it fails.
"""
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time

# what is typed, with Tab at its end; the arguments after it
CASES = (
    ("duet-run --ctx-o", ["--ctx-overflow"]),
    ("duet-run --ctx-overflow dr", ["--ctx-overflow", "drop-turns"]),
    ("duet-run --cache-type=q", ["--cache-type=q8_0"]),
    ("duet-run --think o", ["--think", "o"]),  # on or off: nothing is chosen
    ("duet-run --cpu-isa sc", ["--cpu-isa", "scalar"]),
    ("duet-run -m li", ["-m", "little model.gguf"]),  # not little.txt
    ("duet-run -f little.", ["-f", "little.txt"]),
    ("duet-serve --max-b", ["--max-body"]),
    ("duet-bench --synth", ["--synthetic"]),
    ("duet-inspect li", ["little model.gguf"]),
    ("duet-quantize -t 2 a.gguf b.gguf MXFP4_", ["-t", "2", "a.gguf", "b.gguf", "MXFP4_MOE"]),
    ("duet-quantize --pu", ["--pure"]),
    ("duet-perplexity --strid", ["--stride"]),
    ("duet-template --no-gen", ["--no-generation-prompt"]),
    ("duet-tokenize --deco", ["--decode"]),
    ("duet-logits --ids-f", ["--ids-file"]),
)
NAMES = sorted({typed.split()[0] for typed, _ in CASES})


def start(shell, share):
    functions = "\n".join(f"{name}() {{ printf '<%s>' \"$@\"; echo '<end>'; }}" for name in NAMES)
    if shell == "bash":
        sources = "\n".join(f"source '{share}/bash-completion/completions/{name}'" for name in NAMES)
        return ["bash", "--norc", "--noprofile", "-i"], f"bind 'set enable-bracketed-paste off'; PS1='ready> '\n{sources}\n{functions}\n"
    path = next(p for p in (f"{share}/zsh/site-functions", f"{share}/zsh/vendor-completions") if os.path.isdir(p))
    return ["zsh", "-f", "-i"], f"unset zle_bracketed_paste; PS1='ready> '; fpath=('{path}' $fpath); autoload -U compinit; compinit -u -D\n{functions}\n"


def ask(shell, share, folder):
    command, setup = start(shell, share)
    pid, fd = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.execvpe(command[0], command, {"PATH": os.environ["PATH"], "TERM": "dumb", "HOME": folder, "LC_ALL": "C.UTF-8"})

    def read_until(pattern, seconds):
        text, until = "", time.time() + seconds
        while time.time() < until:
            if select.select([fd], [], [], 0.1)[0]:
                try:
                    text += os.read(fd, 65536).decode(errors="replace")
                except OSError:
                    break
                if re.search(pattern, text):
                    break
        return text

    setup_file = os.path.join(folder, "setup")
    with open(setup_file, "w", encoding="utf-8") as file:
        file.write(setup)
    os.write(fd, f". '{setup_file}'; echo set''up-done\n".encode())
    if "setup-done" not in read_until("(?s)setup-done.*ready> ", 60):
        sys.exit(f"{shell}: cannot be set up")
    wrong = 0
    for typed, want in CASES:
        os.write(fd, typed.encode() + b"\t\n")
        text = read_until("<end>", 60)
        found = re.findall(r"<([^>]*)>", text.split("<end>")[0].split("\n")[-1])
        if found != want:
            print(f"{shell}: '{typed}' and Tab: want {want}, got {found}: {text!r}")
            wrong += 1
    os.write(fd, b"exit\n")
    os.close(fd)
    os.waitpid(pid, 0)
    print(f"{shell}: {len(CASES) - wrong} of {len(CASES)} lines completed as wanted")
    return wrong


def main():
    share, wrong, n_shells = os.path.abspath(sys.argv[1]), 0, 0
    for shell in ("bash", "zsh"):
        if not shutil.which(shell):
            print(f"skipped: {shell}: not installed")
            continue
        n_shells += 1
        with tempfile.TemporaryDirectory() as folder:
            for name in ("little model.gguf", "little.txt", "a.gguf", "b.gguf"):
                open(os.path.join(folder, name), "w", encoding="utf-8").close()
            wrong += ask(shell, share, folder)
    sys.exit(1 if wrong or not n_shells else 0)


main()
