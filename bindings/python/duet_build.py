"""bindings/python/duet_build.py: builds the wheel and the sdist. A build backend (PEP 517) of its own, because one
library and a few files need no more, and the same sources give the same bytes.

    pip install ./bindings/python          with the system's compiler; CXX, CXXFLAGS, GPU_TARGETS as for make
    make python                            the wheel for others (manylinux) and the sdist

In the repository the sources lie two folders up; an sdist brings them along in library/.
"""
import base64
import glob
import gzip
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from typing import Any, Dict, List, Optional

import abi

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "library")
IS_SDIST = os.path.isdir(ROOT)
if not IS_SDIST:
    ROOT = os.path.dirname(os.path.dirname(HERE))
if not os.path.exists(os.path.join(ROOT, "runtime.h")):
    raise SystemExit(f"duet: want runtime.h two folders above bindings/python, found none in {ROOT}: pip before 21.3 builds "
                     "a copy of the one folder; pip install --upgrade pip")
# What make needs to build the library.
SOURCES = ["Makefile", "LICENSE", "runtime.h", "runtime.cpp"] + [
    f"{folder}/{pattern}" for folder in ("runtime", "models", "quant", "cpu", "cpu/simd", "gpu")
    for pattern in ("*.cpp", "*.h", "*.def", "*.inc", "*.cuh", "*.cu")]
OWN = ["README.md", "pyproject.toml", "duet_build.py", "abi.py", "src/duet/*.py", "src/duet/py.typed", "tests/*.py"]
EPOCH = int(os.environ.get("SOURCE_DATE_EPOCH", "1577836800"))


def read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def version() -> str:
    with open(os.path.join(ROOT, "runtime.h"), encoding="utf-8") as header:
        return ".".join(abi.Header(header.read()).version)


def metadata() -> bytes:
    lines = [
        "Metadata-Version: 2.1", "Name: duet", f"Version: {version()}",
        "Summary: Runs quantized GGUF language models, the same bits on every machine", "License: MIT",
        "Requires-Python: >=3.9", "Provides-Extra: numpy", 'Requires-Dist: numpy; extra == "numpy"',
        "Classifier: Programming Language :: Python :: 3", "Classifier: Operating System :: POSIX :: Linux",
        "Classifier: Typing :: Typed", "Description-Content-Type: text/markdown",
    ]
    return "\n".join(lines).encode() + b"\n\n" + read(os.path.join(HERE, "README.md"))


def files(root: str, patterns: List[str]) -> List[str]:
    found = [path for pattern in patterns for path in sorted(glob.glob(os.path.join(root, pattern)))]
    return [os.path.relpath(path, root) for path in found if os.path.basename(path) != "_abi.py"]  # made anew


def library() -> bytes:
    """Builds the library, or takes the one of DUET_BUILT."""
    if built := os.environ.get("DUET_BUILT"):
        return read(built)
    build = os.path.join(ROOT, "build", "python", "own")
    command = ["make", "-C", ROOT, "--no-print-directory", "config=shared", "shared",
               f"BUILD={os.path.relpath(build, ROOT)}",
               f"GPU_TARGETS={os.environ.get('GPU_TARGETS', 'none')}", "LDFLAGS=-s " + os.environ.get("LDFLAGS", "")]
    for name in ("CXX", "CXXFLAGS"):
        command += [f"{name}={os.environ[name]}"] if name in os.environ else []
    if "MAKEFLAGS" not in os.environ:
        command.append(f"-j{os.cpu_count()}")
    if not shutil.which("make"):
        raise SystemExit("duet: want make and a C++20 compiler (g++ 12, clang 15, or newer) to build the library, "
                         "found no make")
    subprocess.run(command, check=True, stdout=sys.stderr)
    return read(os.path.join(build, "libduet.so"))


# ---- the hooks of PEP 517 -------------------------------------------------------------------------------------------


def get_requires_for_build_wheel(config_settings: Optional[Dict[str, Any]] = None) -> List[str]:
    return []


get_requires_for_build_sdist = get_requires_for_build_wheel


def build_wheel(wheel_directory: str, config_settings: Optional[Dict[str, Any]] = None,
                metadata_directory: Optional[str] = None) -> str:
    with open(os.path.join(ROOT, "runtime.h"), encoding="utf-8") as header:
        module = abi.Header(header.read()).module().encode()
    content = {f"duet/{os.path.basename(path)}": read(os.path.join(HERE, path))
               for path in files(HERE, ["src/duet/*.py", "src/duet/py.typed"])}
    content["duet/_abi.py"] = module
    content["duet/libduet.so"] = library()
    tag = "py3-none-" + re.sub(r"[-.]", "_", sysconfig.get_platform())
    info = f"duet-{version()}.dist-info"
    content[f"{info}/METADATA"] = metadata()
    content[f"{info}/LICENSE"] = read(os.path.join(ROOT, "LICENSE"))
    wheel_lines = ["Wheel-Version: 1.0", "Generator: duet_build", "Root-Is-Purelib: false", f"Tag: {tag}", ""]
    content[f"{info}/WHEEL"] = "\n".join(wheel_lines).encode()
    record = "".join(
        f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()},{len(data)}\n"
        for name, data in content.items())
    content[f"{info}/RECORD"] = (record + f"{info}/RECORD,,\n").encode()
    name = f"duet-{version()}-{tag}.whl"
    with zipfile.ZipFile(os.path.join(wheel_directory, name), "w") as wheel:
        for path, data in content.items():
            entry = zipfile.ZipInfo(path)
            entry.external_attr = (0o755 if path.endswith(".so") else 0o644) << 16
            wheel.writestr(entry, data, zipfile.ZIP_DEFLATED, 9)
    return name


def build_sdist(sdist_directory: str, config_settings: Optional[Dict[str, Any]] = None) -> str:
    base = f"duet-{version()}"
    content = {"PKG-INFO": metadata()}
    content.update({path: read(os.path.join(HERE, path)) for path in files(HERE, OWN)})
    content.update({f"library/{path}": read(os.path.join(ROOT, path)) for path in files(ROOT, SOURCES)})
    # without git, the sources tell their commit like this
    commit = os.path.join(ROOT, "packaging", "commit.sh")
    told = subprocess.run(["sh", commit], capture_output=True).stdout.strip() or b"unknown"
    content["library/packaging/commit.sh"] = b"echo " + told + b"\n"
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path, data in content.items():
            entry = tarfile.TarInfo(f"{base}/{path}")
            entry.size, entry.mtime, entry.mode = len(data), EPOCH, 0o644
            tar.addfile(entry, io.BytesIO(data))
    with open(os.path.join(sdist_directory, base + ".tar.gz"), "wb") as out:
        with gzip.GzipFile("", "wb", 9, out, mtime=EPOCH) as packed:
            packed.write(raw.getvalue())
    return base + ".tar.gz"
