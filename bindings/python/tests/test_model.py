"""Opening models, their text and their files."""
import ctypes
import mmap
import pathlib
import struct
from typing import Any, List

import pytest

import duet
from conftest import ROOT
from duet import _abi
from duet._core import lib


def test_info_and_file(model: duet.Model) -> None:
    assert model.info.architecture == model.file["general.architecture"] == "llama"
    assert model.info.n_vocab == len(model.file["tokenizer.ggml.tokens"])
    assert set(dict(model.file)) == set(model.file) and len(model.file) == len(list(model.file))
    assert sum(t.n_bytes for t in model.file.tensors) == model.info.weight_bytes
    with pytest.raises(KeyError):
        model.file["no such key"]


@pytest.mark.parametrize("text", ["", "Once upon a time", "Grüße 漢字 😀", "a\0b", "\ud800", "x" * 5000])
def test_tokenize_and_back(model: duet.Model, text: str) -> None:
    want = text.replace("\ud800", "\ufffd")
    assert model.detokenize(model.tokenize(text, bos=False)) == want
    assert b"".join(map(model.token_bytes, model.tokenize(text, bos=False))).decode().strip() == want.strip()


def test_special_tokens_only_when_asked(model: duet.Model) -> None:
    spelled = model.token_spelling(model.bos)
    assert model.tokenize(spelled, bos=False, special=True) == [model.bos]
    assert model.bos not in model.tokenize(spelled, bos=False)
    assert model.is_control(model.bos) and model.is_end(model.eos)


def test_errors_have_classes_and_texts(tmp_path: pathlib.Path, demo_path: str) -> None:
    with pytest.raises(duet.FileError, match="no such file") as told:
        duet.Model(tmp_path / "no such file")
    assert isinstance(told.value, OSError) and isinstance(told.value, duet.DuetError) and told.value.status == -2
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + b"\xff" * 100)
    with pytest.raises(duet.FormatError, match="broken.gguf"):
        duet.Model(broken)
    with pytest.raises(duet.DeviceError):
        duet.Model(demo_path, device="cuda:17")
    with pytest.raises(duet.ArgumentError, match="NUL"):
        duet.Model("a\0b")
    with pytest.raises(TypeError):
        duet.Model(17)  # type: ignore[arg-type]
    with pytest.raises(duet.FileError):
        duet.File(tmp_path / "none")


def test_from_memory_without_a_copy(demo_path: str, model: duet.Model) -> None:
    data = pathlib.Path(demo_path).read_bytes()
    want = model.session().generate("Once", max_tokens=5, temp=0).read()
    with open(demo_path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        blocks: List[Any] = [data, bytearray(data), memoryview(data), mapped]
        for block in blocks:
            opened = duet.Model.from_memory(block)
            assert opened.session().generate("Once", max_tokens=5, temp=0).read() == want
            if isinstance(block, (bytearray, mmap.mmap)):  # the model holds it: it cannot shrink or go
                with pytest.raises(BufferError):
                    block.append(1) if isinstance(block, bytearray) else block.close()
            opened.close()
        blocks[1].append(1)  # given back
    with pytest.raises(duet.FormatError):
        duet.Model.from_memory(b"GGUF")
    with pytest.raises(TypeError):
        duet.Model.from_memory("text")


def test_from_reader(demo_path: str, model: duet.Model) -> None:
    data = pathlib.Path(demo_path).read_bytes()
    opened = duet.Model.from_reader(lambda at, n: data[at:at + n], len(data))
    assert opened.session().generate("Once", max_tokens=5, temp=0).read() == \
        model.session().generate("Once", max_tokens=5, temp=0).read()

    def broken(at: int, n: int) -> bytes:
        raise LookupError("the shelf is empty")

    with pytest.raises(LookupError, match="shelf"):
        duet.Model.from_reader(broken, len(data))
    with pytest.raises(ValueError, match="got 3"):
        duet.Model.from_reader(lambda at, n: b"abc", len(data))


def test_progress_is_told_and_cancels(demo_path: str) -> None:
    shares: List[float] = []
    duet.Model(demo_path, progress=shares.append).close()
    assert shares and shares == sorted(shares) and shares[-1] == 1
    with pytest.raises(duet.CancelledError):
        duet.Model(demo_path, progress=lambda share: False)
    with pytest.raises(duet.CancelledError):
        duet.Model(demo_path, copy=True, progress=lambda share: False)

    def fails(share: float) -> None:
        raise LookupError("in the callback")

    with pytest.raises(LookupError, match="in the callback"):
        duet.Model(demo_path, progress=fails)


def test_log_and_vocab_only(demo_path: str) -> None:
    lines: List[str] = []
    with duet.Model(demo_path, vocab_only=True, fast=True, log=lines.append) as opened:
        assert opened.tokenize("a")
        with pytest.raises(duet.UnsupportedError, match="vocab_only"):
            opened.session()


def test_plan_is_exact_in_its_parts(model: duet.Model) -> None:
    small, large = model.plan(n_ctx=128), model.plan(n_ctx=512)
    assert 0 < small.cache_bytes < large.cache_bytes and small.weight_bytes == model.info.weight_bytes
    with pytest.raises(duet.ArgumentError, match="q8_0"):
        model.plan(cache_type="q9")
    with pytest.raises(duet.ArgumentError, match="n_seqs"):
        model.plan(n_seqs=0)


def test_sampling_is_that_of_the_programs() -> None:
    source = ROOT / "tools" / "common.h"
    if not source.exists():
        pytest.skip("no tools/common.h")
    table = source.read_text().split("kSamplerDefaults[] = {")[1].split("};")[0]
    found = {row.split('"')[1]: float(row.split(",")[1]) for row in table.split("{")[1:] for row in [row.split("}")[0]]}
    assert found == duet.SAMPLING


def test_numbers_of_a_file_that_only_a_u64_holds(tmp_path: pathlib.Path) -> None:
    def entry(key: bytes, kind: int, value: bytes) -> bytes:
        return struct.pack("<Q", len(key)) + key + struct.pack("<I", kind) + value

    entries = [entry(b"general.architecture", 8, struct.pack("<Q", 5) + b"llama"),
               entry(b"x.seed", 10, struct.pack("<Q", 2**64 - 1)),
               entry(b"x.seeds", 9, struct.pack("<IQQQ", 10, 2, 1, 2**63))]
    path = tmp_path / "u64.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, len(entries)) + b"".join(entries))
    with duet.File(path) as file:
        assert dict(file) == {"general.architecture": "llama", "x.seed": 2**64 - 1, "x.seeds": [1, 2**63]}
        assert "x.seed" in file and "x.none" not in file and file.get("x.seed") == 2**64 - 1
        out = ctypes.c_int64()
        assert lib.duet_file_get_int(file._handle.address, 1, 0, ctypes.byref(out)) == _abi.DUET_ERR_FORMAT
        assert "x.seed: want an integer up to 2^63 - 1, got a u64 above" in file._handle.error()
