#!/usr/bin/env bash
# cmake.sh: the library built by CMake, static and shared, installed, and used through pkg-config and find_package; and
# what `make install` puts there. Wants cmake and pkg-config, and bin/ as `make` leaves it. -O0: what is tried is the installation.
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=$(nproc)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Few files know whether they become a shared library: ccache, where it is installed, compiles the others once.
export CCACHE_DIR=$work/ccache
launcher=$(command -v ccache || true)

cat >"$work/use.c" <<'C'
#include <runtime.h>
#include <string.h>
int main(void) {
    duet_model* model = 0;
    duet_status status = duet_model_open("no such file", 0, &model);
    int is_good = status == DUET_ERR_IO && strstr(duet_model_error(model), "no such file") != 0;
    duet_model_free(model);
    return is_good ? 0 : 1;
}
C
cat >"$work/CMakeLists.txt" <<'C'
cmake_minimum_required(VERSION 3.18)
project(use LANGUAGES C)
find_package(duet REQUIRED)
add_executable(use use.c)
target_link_libraries(use duet::duet)
C
for shared in OFF ON; do
    prefix=$work/prefix-$shared
    if [ $shared = ON ]; then libdir=$prefix/lib headers=$prefix/headers; else libdir=lib headers=include; fi
    cmake -S . -B "$work/build-$shared" -DBUILD_SHARED_LIBS=$shared -DCMAKE_CXX_FLAGS_RELEASE=-O0 \
          -DCMAKE_POSITION_INDEPENDENT_CODE=ON -DCMAKE_INSTALL_PREFIX="$prefix" ${launcher:+-DCMAKE_CXX_COMPILER_LAUNCHER=$launcher} \
          -DCMAKE_INSTALL_LIBDIR="$libdir" -DCMAKE_INSTALL_INCLUDEDIR="$headers" >"$work/log"
    cmake --build "$work/build-$shared" -j"$jobs" >>"$work/log" || { tail -n 50 "$work/log"; exit 1; }
    cmake --install "$work/build-$shared" >>"$work/log"
    export PKG_CONFIG_PATH=$prefix/lib/pkgconfig LD_LIBRARY_PATH=$prefix/lib
    # shellcheck disable=SC2046  # the flags are words
    ${CC:-gcc} -std=c99 -pedantic-errors $(pkg-config --cflags duet) -o "$work/use" "$work/use.c" $(pkg-config --libs duet)
    "$work/use"
    # shellcheck disable=SC2046  # a shared library of one's own
    ${CC:-gcc} -shared -fPIC $(pkg-config --cflags duet) -o "$work/own.so" "$work/use.c" $(pkg-config --libs duet)
    cmake -S "$work" -B "$work/use-$shared" -DCMAKE_PREFIX_PATH="$prefix" >>"$work/log"
    cmake --build "$work/use-$shared" >>"$work/log"
    "$work/use-$shared/use"
    echo "BUILD_SHARED_LIBS=$shared: good, $(pkg-config --modversion duet)"
done
# A project of C that says add_subdirectory: what links its program. The library is the one above, not built again.
mkdir "$work/sub"
sed "s|^find_package.*|add_subdirectory($PWD duet)|" "$work/CMakeLists.txt" >"$work/sub/CMakeLists.txt"
cp "$work/use.c" "$work/sub/"
cmake -G "Unix Makefiles" -S "$work/sub" -B "$work/use-sub" >>"$work/log"
make -C "$work/use-sub" use.c.o >>"$work/log"
(cd "$work/use-sub" && sh -c "$(sed "s|duet/libduet.a|$work/build-OFF/libduet.a|" CMakeFiles/use.dir/link.txt)")
"$work/use-sub/use"
echo "add_subdirectory: good"
make install PREFIX="$work/prefix-make" >/dev/null
PKG_CONFIG_PATH=$work/prefix-make/lib/pkgconfig
# shellcheck disable=SC2046
${CC:-gcc} -std=c99 $(pkg-config --cflags duet) -o "$work/use" "$work/use.c" $(pkg-config --libs duet)
"$work/use"
"$work/prefix-make/bin/duet-run" --version
