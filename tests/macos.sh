#!/bin/sh
# tests/macos.sh: the library, run and bench compiled and linked for macOS on ARM and x86-64 by zig's C++ compiler (PyPI's package ziglang, in
# build/zig). Nothing is run: there is no macOS here.
#   tests/macos.sh                      both processors
#   tests/macos.sh aarch64              one of them
# ZIG: how to call zig, such as "zig" (default: installed from PyPI where it is missing; without it the script says that it skips)
# core2 is zig's own choice for x86-64; with a processor named, its clang 20 takes functions for AVX-512 only where evex512 is named too.
# ziglang 0.17.1 cannot compile it: its <cfloat> is empty where <cmath> came first.
set -eu
cd "$(dirname "$0")/.."
if [ -z "${ZIG:-}" ]; then
    if ! { test -x build/zig/bin/python && build/zig/bin/python -m ziglang version; } >/dev/null 2>&1 &&
        ! { python3 -m venv build/zig && build/zig/bin/pip install -q ziglang==0.15.1; }; then
        echo "skipped: macOS: want zig, and ziglang cannot be installed from PyPI"
        exit 0
    fi
    ZIG="$PWD/build/zig/bin/python -m ziglang"
fi
for cpu in ${1:-aarch64 x86_64}; do
    echo "== $cpu-macos"
    # What __builtin_cpu_supports reads stands in the runtime library of Apple's compilers, and not in zig's: here it says that nothing is
    # supported, so that all else is linked.
    more=
    if [ "$cpu" = x86_64 ]; then
        more=build/$cpu-macos/cpu_model.c
        mkdir -p "build/$cpu-macos"
        echo 'struct { unsigned vendor, type, subtype, features[1]; } __cpu_model; int __cpu_indicator_init(void) { return 0; }' >"$more"
    fi
    make -s -j"$(nproc)" CXX="$ZIG c++ -target $cpu-macos$([ "$cpu" = aarch64 ] || echo " -mcpu=core2+evex512")" AR="$ZIG ar" CXXFLAGS="${MACOS_CXXFLAGS:--O1}" LDFLAGS="$more" GPU_TARGETS=none \
        BUILD=build/$cpu-macos lib build/$cpu-macos/bin/run build/$cpu-macos/bin/bench
    od -An -tx4 -N8 build/$cpu-macos/bin/run | grep -qE "feedfacf $([ "$cpu" = aarch64 ] && echo 0100000c || echo 01000007)" ||
        { echo "build/$cpu-macos/bin/run: no Mach-O program for $cpu"; exit 1; }
    ls -l build/$cpu-macos/libduet.a build/$cpu-macos/bin/run
done
echo "macOS: compiled and linked, not run"
