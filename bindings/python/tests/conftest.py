"""The models that the tests ask: the demo model, and one whose answers are known (tests/chat_model.cpp)."""
import os
import pathlib
import signal
import subprocess
from typing import Any, Iterator

import pytest

import duet

# A shell's background job ignores interrupts, and so would what the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = pathlib.Path(__file__).resolve().parents[3]
DEMO = os.environ.get("DUET_DEMO", str(ROOT / "models" / "demo.gguf"))


@pytest.fixture(scope="session")
def demo_path() -> str:
    if not os.path.exists(DEMO):
        pytest.skip(f"no {DEMO} (DUET_DEMO=...)")
    return DEMO


@pytest.fixture(scope="session")
def chat_path(tmp_path_factory: Any) -> str:
    """A model with a chat template: the first word of the last message chooses the answer."""
    writer = os.environ.get("DUET_CHAT_MODEL", "")
    if not writer:
        pytest.skip("no writer of the model (DUET_CHAT_MODEL=build/release/tests/chat_model)")
    path = str(tmp_path_factory.mktemp("models") / "chat.gguf")
    subprocess.run([writer, path], check=True)
    return path


@pytest.fixture(scope="session")
def model(demo_path: str) -> Iterator[duet.Model]:
    with duet.Model(demo_path, device="cpu") as opened:
        yield opened


@pytest.fixture(scope="session")
def chat_model(chat_path: str) -> Iterator[duet.Model]:
    with duet.Model(chat_path, device="cpu") as opened:
        yield opened


@pytest.fixture
def session(model: duet.Model) -> Iterator[duet.Session]:
    with model.session() as made:
        yield made
