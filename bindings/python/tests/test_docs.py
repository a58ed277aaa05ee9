"""The examples of the docstrings, the README and docs/python.md."""
import doctest
import importlib
import pathlib

import pytest

FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
HERE = pathlib.Path(__file__).resolve().parent.parent


@pytest.mark.parametrize("name", ["_model", "_session", "_chat", "_schema"])
def test_docstrings(name: str, demo_path: str, chat_path: str) -> None:
    pytest.importorskip("numpy")
    module = importlib.import_module("duet." + name)
    failed, tried = doctest.testmod(module, optionflags=FLAGS, extraglobs={"demo": demo_path, "talker": chat_path})
    assert tried > 0 and failed == 0


PAGES = [HERE / "README.md", HERE.parents[1] / "docs" / "python.md"]


@pytest.mark.parametrize("path", PAGES, ids=lambda p: str(p.name))
def test_pages(path: pathlib.Path, demo_path: str, chat_path: str, tmp_path: pathlib.Path,
               monkeypatch: pytest.MonkeyPatch) -> None:
    if not path.exists():
        pytest.skip(f"no {path}")
    pytest.importorskip("numpy")
    pytest.importorskip("pydantic")
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "demo.gguf").symlink_to(demo_path)
    (tmp_path / "model.gguf").symlink_to(chat_path)
    monkeypatch.chdir(tmp_path)
    failed, tried = doctest.testfile(str(path), module_relative=False, optionflags=FLAGS, encoding="utf-8")
    assert tried > 0 and failed == 0
