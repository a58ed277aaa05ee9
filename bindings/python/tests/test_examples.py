"""examples/chat.py and retrieve.py, run as programs."""
import os
import pathlib
import select
import signal
import subprocess
import sys
from typing import Any, Dict

import pytest

from conftest import ROOT

EXAMPLE = ROOT / "examples" / "chat.py"
pytestmark = pytest.mark.skipif(not EXAMPLE.exists(), reason=f"no {EXAMPLE}")
ENV: Dict[str, str] = {**os.environ, "PYTHONIOENCODING": "utf-8"}


def run(*arguments: str, example: str = "chat.py", **given: Any) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, str(EXAMPLE.parent / example), *arguments], capture_output=True, encoding="utf-8", timeout=60,
                          env=ENV, **given)


def test_chat(chat_path: str) -> None:
    done = run(chat_path, input="hello\nwide\n")
    assert (done.stdout, done.stderr, done.returncode) == ("> Hello world.\n> 漢字 😀 café\n> ", "", 0)


def test_chat_tells_errors_in_one_line(demo_path: str) -> None:
    done = run(demo_path, input="hello\n")
    assert done.returncode == 1 and "chat template" in done.stderr and done.stderr.count("\n") == 1


def test_ctrl_c_stops_an_answer(chat_path: str) -> None:
    talk = subprocess.Popen([sys.executable, str(EXAMPLE), chat_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                            env=ENV)
    assert talk.stdin and talk.stdout
    talk.stdin.write(b"long\n")
    talk.stdin.flush()
    text = b""
    while b"no play no play" not in text.replace(b"and ", b""):
        assert select.select([talk.stdout], [], [], 30)[0]
        text += os.read(talk.stdout.fileno(), 4096)
    talk.send_signal(signal.SIGINT)
    rest, _ = talk.communicate(b"hello\n", timeout=30)
    assert rest.endswith(b"> Hello world.\n> ") and talk.returncode == 0


def test_retrieve(demo_path: str, tmp_path: pathlib.Path) -> None:
    pytest.importorskip("numpy")
    (tmp_path / "a.txt").write_text("The cat sat on the mat.\n\nA king lived in a castle.\n")
    (tmp_path / "b.md").write_text("It rained. " * 300)  # longer than the context
    (tmp_path / "folder.md").mkdir()
    (tmp_path / "gone.txt").symlink_to("none")
    done = run(demo_path, str(tmp_path), "A king lived in a castle.\n", example="retrieve.py")
    assert done.returncode == 0 and done.stdout.startswith(f"1.000 {tmp_path / 'a.txt'}\nA king lived"), done.stderr
    done = run(demo_path, str(tmp_path), "a king", demo_path, example="retrieve.py")
    assert done.returncode == 1 and "scores no pairs" in done.stderr and done.stderr.count("\n") == 1
    assert run(demo_path, str(tmp_path / "none"), "a king", example="retrieve.py").returncode == 1
