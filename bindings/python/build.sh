#!/bin/sh
# bindings/python/build.sh (make python): the wheel for every Linux with glibc 2.28 or newer and the sdist, to
# build/python/dist. The compiler is that of the ziglang package, which links against the symbols of an old glibc and
# brings its own C++ library; auditwheel refuses a wheel that needs more. GPU_TARGETS="sm_90 gfx1100" builds code for cards in.
set -eu
cd "$(dirname "$0")/../.."
python=${PYTHON:-python3} tools=build/python/tools out=build/python/dist plain=build/python/plain
if ! cmp -s bindings/python/tools.txt "$tools/installed"; then
    rm -rf "$tools"
    "$python" -m venv "$tools"
    "$tools/bin/pip" install -q -r bindings/python/tools.txt
    cp bindings/python/tools.txt "$tools/installed"
fi
make -j"$(nproc)" config=shared BUILD=build/python/manylinux shared GPU_TARGETS="${GPU_TARGETS:-none}" CXXFLAGS=-O3 \
    LDFLAGS="-s bindings/python/unload.c" CXX="$PWD/$tools/bin/python -m ziglang c++ -target x86_64-linux-gnu.2.28"
rm -rf "$out" "$plain"
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-1577836800} DUET_BUILT=$PWD/build/python/manylinux/libduet.so
export SOURCE_DATE_EPOCH DUET_BUILT
"$tools/bin/python" -m build --no-isolation -w -o "$plain" bindings/python >/dev/null
"$tools/bin/python" -m build --no-isolation -s -o "$out" bindings/python >/dev/null
PATH=$PWD/$tools/bin:$PATH "$tools/bin/auditwheel" repair --plat manylinux_2_28_x86_64 --only-plat \
    -w "$out" "$plain"/*.whl
"$tools/bin/twine" check --strict "$out"/*
if [ "$(stat -c %s "$out"/*.whl)" -gt 8388608 ]; then echo "the wheel has more than 8 MiB"; exit 1; fi
ls -l "$out"
