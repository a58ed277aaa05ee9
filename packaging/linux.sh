#!/bin/sh
# packaging/linux.sh: two archives for every Linux, to build/packages/linux:
#   duet-VERSION-linux-x86_64.tar.gz          bin, lib, include and share, to be unpacked anywhere or over /usr/local; glibc 2.28 or newer
#   duet-VERSION-linux-x86_64-static.tar.gz   duet-run alone, for the CPU, without any library
# The first is compiled as the Python wheel is, and with its objects: by the compiler of the ziglang package, which links against
# the symbols of an old glibc and brings its own C++ library. The second is linked from the objects of g++ in BUILD.
#   packaging/linux.sh
# BUILD: folder of objects for the static run (build/release); PORTABLE_BUILD for the others (build/python/manylinux); OUT;
# GPU_TARGETS: none by default; CXXFLAGS
# HOST=1: takes the programs of BUILD and the library of SHARED_BUILD for the first archive, too; it then needs this machine's glibc
set -eu
cd "$(dirname "$0")/.."
build=${BUILD:-build/release} out=${OUT:-build/packages}/linux tools=build/python/tools gpu=${GPU_TARGETS:-none}
version=$(sed -n 's/^.define DUET_VERSION_[A-Z]* *\([0-9]*\)$/\1/p' runtime.h | paste -sd. -)
major=${version%%.*}
name=duet-$version-linux-$(uname -m)
SOURCE_DATE_EPOCH=$(packaging/commit.sh --date)
export SOURCE_DATE_EPOCH

rm -rf "$out"
mkdir -p "$out/$name" "$out/$name-static/bin"
out=$(cd "$out" && pwd) into=$(cd "$out/$name" && pwd)
if [ "${HOST:-}" = 1 ]; then
    shared=${SHARED_BUILD:-build/shared}
    make -s -j"$(nproc)" GPU_TARGETS="$gpu" config=shared BUILD="$shared" "$shared/libduet.so.$version"
    make -s -j"$(nproc)" GPU_TARGETS="$gpu" BUILD="$build" DESTDIR="$into" PREFIX= install
else
    if ! cmp -s bindings/python/tools.txt "$tools/installed"; then
        rm -rf "$tools"
        python3 -m venv "$tools"
        "$tools/bin/pip" install -q -r bindings/python/tools.txt
        cp bindings/python/tools.txt "$tools/installed"
    fi
    # of /usr/include the headers of these two only: the others are those of this machine's glibc
    headers=build/packages/include shared=${PORTABLE_BUILD:-build/python/manylinux}
    mkdir -p $headers
    for header in boost nlohmann; do [ -e $headers/$header ] || ln -s /usr/include/$header $headers/$header; done
    # Boost.Asio of 1.74 asks for std::result_of, which C++20 took out; zig's C++ library has it by this name.
    portable_make() {
        make -s -j"$(nproc)" config=shared BUILD="$shared" GPU_TARGETS="$gpu" CXXFLAGS="${CXXFLAGS:--O3}" CPPFLAGS="-isystem $headers -D_LIBCPP_ENABLE_CXX20_REMOVED_TYPE_TRAITS" \
            CXX="$PWD/$tools/bin/python -m ziglang c++ -target $(uname -m)-linux-gnu.2.28" "$@"
    }
    portable_make LDFLAGS="-s bindings/python/unload.c" "$shared/libduet.so.$version"
    portable_make LDFLAGS=-s DESTDIR="$into" PREFIX= install
fi

# ---- what is in them ----

strip "$into"/bin/*
rm "$into"/lib/*.a
COMMIT_DATE=$SOURCE_DATE_EPOCH packaging/from_help.py "$into" "$into"/bin/*
strip --strip-unneeded -o "$into/lib/libduet.so.$version" "$shared/libduet.so.$version"
ln -s "libduet.so.$version" "$into/lib/libduet.so.$major"
ln -s "libduet.so.$major" "$into/lib/libduet.so"
# pkg-config finds the folder by itself, wherever it is unpacked
sed -e "s|@CMAKE_INSTALL_PREFIX@|\${pcfiledir}/../..|;s|@CMAKE_INSTALL_LIBDIR@|lib|;s|@CMAKE_INSTALL_INCLUDEDIR@|include|;s|@PROJECT_VERSION@|$version|;s| @DUET_LIBS@||" \
    duet.pc.in >"$into/lib/pkgconfig/duet.pc"
mkdir -p "$into/share/doc/duet"
cp LICENSE CHANGELOG.md docs/packages.md "$into/share/doc/duet/"

make -s -j"$(nproc)" GPU_TARGETS="$gpu" BUILD="$build" lib "$build/tools/run.o"
${CXX:-g++} -static -s -O1 -o "$out/$name-static/bin/duet-run" packaging/no_libraries.cpp "$build/tools/run.o" "$build/libduet.a" -pthread 2>"$out/log" || { cat "$out/log" >&2; exit 1; }
# the linker warns of dlopen, which no_libraries.cpp has taken the place of
grep -vE "dlopen'? in statically linked|in function .*os_open_library" "$out/log" >&2 || true
rm "$out/log"
cp LICENSE "$out/$name-static/"
# parts of the compiler's and the system's libraries are in the static program; their licences go along
for package in libc6 libstdc++6; do
    if [ -f /usr/share/doc/$package/copyright ]; then cp /usr/share/doc/$package/copyright "$out/$name-static/LICENSE.$package"
    else echo "warning: no /usr/share/doc/$package/copyright: the archive lacks it" >&2; fi
done

# ---- what they need ----

if [ "${HOST:-}" = 1 ]; then echo "not checked: symbol versions: these are programs for this machine's glibc (HOST=1)"
else packaging/symbols.sh 2.28 "$into"/bin/* "$into/lib/libduet.so.$version"; fi
packaging/symbols.sh none "$out/$name-static/bin/duet-run"

for archive in "$name" "$name-static"; do
    (cd "$out" && find "$archive" -type d -exec chmod 755 {} + && find "$archive" -type f ! -path '*/bin/*' -exec chmod 644 {} + &&
        tar --format=ustar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -cf - "$archive" | gzip -9n >"$archive.tar.gz")
    echo "${OUT:-build/packages}/linux/$archive.tar.gz: $(stat -c %s "$out/$archive.tar.gz") bytes, sha256 $(sha256sum <"$out/$archive.tar.gz" | cut -d' ' -f1)"
done
