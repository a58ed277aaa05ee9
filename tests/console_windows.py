#!/usr/bin/env python3
"""tests/console_windows.py: `run --chat` of Windows on a console, which Wine shows on a pseudo-terminal (tests/windows.sh).

  python3 tests/console_windows.py wine run.exe -m CHAT_MODEL --chat --temp 0

Wine 8 draws the screen by its own sequences and does not know those of a terminal, so only the text is looked at. It also
prints half of a surrogate pair at a time: the emoji of the answer is not looked at.
"""
import os
import pty
import re
import select
import sys
import time

pid, fd = pty.fork()
if pid == 0:
    os.environ["TERM"] = "xterm"
    os.execvp(sys.argv[1], sys.argv[1:])
text = ""


def wait(name, pattern, seconds=60):
    """Reads until the screen has the pattern; what follows it stays for the next wait."""
    global text
    end = time.time() + seconds
    raw = b""
    while time.time() < end:
        shown = text + re.sub(r"\x1b\[[?0-9;]*[A-Za-z]|\r", "", raw.decode("utf-8", "replace"))
        found = re.search(pattern, shown, re.S)
        if found:
            text = shown[found.end():]
            return
        if select.select([fd], [], [], 0.1)[0]:
            try:
                raw += os.read(fd, 65536)
            except OSError:
                break
    sys.exit(f"{name}: {shown[-500:]!r}")


def type_(keys):
    os.write(fd, keys.encode())


wait("the prompt", r"/help.*> ")
type_("wide 漢字é\r")
wait("what was typed", r"wide 漢字é\n")
wait("an answer in other scripts", r"漢字 .* café\n.*> ")
type_("hellx\x7fo\r")
wait("a key that deletes", r"Hello world\.\n.*> ")
type_("long\r")
wait("an answer without end", r"no play and no play and no play")
type_("\x03")
wait("Ctrl-C ends it", r"\n.*> ")
type_("hello\r")
wait("the chat goes on", r"Hello world\.\n.*> ")
type_("/quit\r")
end = time.time() + 30
while time.time() < end:
    done, status = os.waitpid(pid, os.WNOHANG)
    if done:
        sys.exit(f"exit status {status}" if status else 0)
    if select.select([fd], [], [], 0.1)[0]:
        try:
            os.read(fd, 65536)
        except OSError:
            time.sleep(0.1)
sys.exit("/quit does not end it")
