#!/bin/sh
# setup.sh: what a bare Debian 12 or Ubuntu 24.04 lacks to build Duet: a C++20 compiler and make, and for bin/serve the
# headers of Boost and nlohmann-json. Does nothing where all are there. As root it needs no sudo; as another user it asks
# sudo. Never touches anything but these packages.
set -eu

# g++ 12, clang 15 or newer know enough of C++20; several words, as "ccache g++", are a command and its argument
compiler=${CXX:-g++}
has_compiler() {
    printf '#include <compare>\n#include <bit>\nint main() { return std::bit_width(0u) + (1 <=> 1 != 0); }\n' |
        $compiler -std=c++20 -x c++ -fsyntax-only - >/dev/null 2>&1
}
has_headers() {
    printf '#include <boost/beast/core.hpp>\n#include <nlohmann/json.hpp>\n' |
        $compiler -std=c++20 -x c++ -M - >/dev/null 2>&1
}
if has_compiler && command -v make >/dev/null 2>&1 && has_headers; then exit 0; fi

if ! command -v apt-get >/dev/null 2>&1; then
    echo "setup.sh: want a C++20 compiler (g++ 12, clang 15, or newer) and make; and for bin/serve the headers of Boost and nlohmann-json; found no apt-get to install them with." >&2
    echo "setup.sh: install both with this system's package manager, then run make (make CXX=clang++ for clang)." >&2
    exit 1
fi
if [ "$(id -u)" = 0 ]; then as_root=
elif command -v sudo >/dev/null 2>&1; then as_root=sudo
else
    echo "setup.sh: want root or sudo to install g++ and make; run as root: apt-get install g++ make libboost-dev nlohmann-json3-dev" >&2
    exit 1
fi
$as_root apt-get update -qq
$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends g++ make libc6-dev \
    libboost-dev nlohmann-json3-dev >&2
if ! has_compiler; then
    echo "setup.sh: $compiler is too old: want g++ 12 or newer; set CXX to a newer compiler" >&2
    exit 1
fi
