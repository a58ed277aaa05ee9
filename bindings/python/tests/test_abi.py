"""What abi.py made of runtime.h is what a C compiler makes of it."""
import ctypes
import pathlib
import shutil
import subprocess
import sys

import pytest

from duet import _abi

HERE = pathlib.Path(__file__).resolve().parent.parent
HEADER = next((p for p in (HERE.parents[1] / "runtime.h", HERE / "library" / "runtime.h") if p.exists()), None)


def test_structs_and_constants_are_the_compilers(tmp_path: pathlib.Path) -> None:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if not compiler or not HEADER:
        pytest.skip("no C compiler, or no runtime.h")
    lines, want = [], []
    for struct in _abi.STRUCTS:
        name = struct.__name__
        lines.append(f'printf("%zu\\n", sizeof({name}));')
        want.append(ctypes.sizeof(struct))
        for field, _ in struct._fields_:
            lines.append(f'printf("%zu\\n%zu\\n", offsetof({name}, {field}), sizeof((({name}*)0)->{field}));')
            want += [getattr(struct, field).offset, getattr(struct, field).size]
    constants = [name for name in vars(_abi) if name.startswith("DUET_")]
    for name in constants:
        lines.append(f'printf("%d\\n", {name});')
        want.append(getattr(_abi, name))
    probe = tmp_path / "probe.c"
    probe.write_text(f'#include "{HEADER}"\n#include <stdio.h>\nint main(void) {{ {" ".join(lines)} return 0; }}\n')
    subprocess.run([compiler, "-std=c99", "-o", str(tmp_path / "probe"), str(probe)], check=True)
    got = subprocess.run([str(tmp_path / "probe")], check=True, capture_output=True, text=True).stdout.split()
    assert len(_abi.STRUCTS) > 15 and len(constants) > 50
    assert list(map(int, got)) == want


def test_functions_take_what_the_compiler_says(tmp_path: pathlib.Path) -> None:
    """The number of arguments of each function, and their sizes."""
    cxx = shutil.which("c++") or shutil.which("g++")
    if not cxx or not HEADER:
        pytest.skip("no C++ compiler, or no runtime.h")
    checks = []
    for name, (_, kinds) in _abi.FUNCTIONS.items():
        checks.append(f"COUNT({name}, {len(kinds)});")
        checks += [f"SIZE({name}, {i}, {ctypes.sizeof(kind)});" for i, kind in enumerate(kinds)]
    probe = tmp_path / "probe.cpp"
    probe.write_text(f'''#include "{HEADER}"
#include <cstddef>
template <class F> struct shape;
template <class R, class... A> struct shape<R (*)(A...)> {{
    static constexpr size_t n = sizeof...(A);
    static constexpr size_t sizes[n + 1] = {{sizeof(A)...}};
}};
#define COUNT(f, count) static_assert(shape<decltype(&f)>::n == count, #f)
#define SIZE(f, i, size) static_assert(shape<decltype(&f)>::sizes[i] == size, #f)
{chr(10).join(checks)}
''')
    subprocess.run([cxx, "-std=c++17", "-fsyntax-only", str(probe)], check=True)


def test_the_header_and_the_package_agree(tmp_path: pathlib.Path) -> None:
    if not HEADER:
        pytest.skip("no runtime.h")
    subprocess.run([sys.executable, str(HERE / "abi.py"), str(HEADER), str(tmp_path / "made.py")], check=True)
    assert (tmp_path / "made.py").read_text() == pathlib.Path(_abi.__file__).read_text()


def test_the_sdist_has_all_but_the_made_module() -> None:
    program = "import duet_build as b; print(*b.files(b.HERE, b.OWN), sep='\\n')"
    done = subprocess.run([sys.executable, "-c", program], cwd=HERE, check=True, capture_output=True, text=True)
    folders = [HERE / "src" / "duet", HERE / "tests"]
    held = {path.relative_to(HERE).as_posix() for folder in folders for path in folder.glob("*.py")}
    assert held - set(done.stdout.split()) <= {"src/duet/_abi.py"} and "src/duet/_abi.py" not in done.stdout.split()


def test_what_cannot_be_read_is_an_error(tmp_path: pathlib.Path) -> None:
    (tmp_path / "odd.h").write_text("typedef union a { int b; } a;\n")
    done = subprocess.run([sys.executable, str(HERE / "abi.py"), str(tmp_path / "odd.h"), str(tmp_path / "out")],
                          capture_output=True, text=True)
    assert done.returncode != 0 and "cannot read" in done.stderr


def test_a_build_of_the_folder_alone_says_what_it_wants(tmp_path: pathlib.Path) -> None:
    """pip before 21.3 copies the folder and builds the copy."""
    for name in ("duet_build.py", "abi.py"):
        (tmp_path / name).write_bytes((HERE / name).read_bytes())
    done = subprocess.run([sys.executable, "-c", "import duet_build"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode != 0 and "pip before 21.3" in done.stderr and "Traceback" not in done.stderr
