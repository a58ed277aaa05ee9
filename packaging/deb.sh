#!/bin/sh
# packaging/deb.sh: three packages for Debian and its relatives, to build/packages/deb, by this machine's compiler and for its
# distribution: duet (programs, man pages, completion), libduet0 (the shared library), libduet-dev (header, static library,
# pkg-config). They need nothing but libc6, libstdc++6 and libgcc-s1. The same sources and compiler give the same bytes.
#   packaging/deb.sh
# BUILD, SHARED_BUILD: folders of objects, built where they are missing (build/release, build/shared); OUT; GPU_TARGETS: none by default
set -eu
cd "$(dirname "$0")/.."
build=${BUILD:-build/release} shared=${SHARED_BUILD:-build/shared} out=${OUT:-build/packages}/deb
gpu=${GPU_TARGETS:-none}
version=$(sed -n 's/^.define DUET_VERSION_[A-Z]* *\([0-9]*\)$/\1/p' runtime.h | paste -sd. -)
major=${version%%.*}
arch=$(dpkg --print-architecture)
libs=usr/lib/$(dpkg-architecture -qDEB_HOST_MULTIARCH)
maintainer="${DUET_MAINTAINER:-Duet authors <duet@example.org>}"
SOURCE_DATE_EPOCH=$(packaging/commit.sh --date)
export SOURCE_DATE_EPOCH

rm -rf "$out"
mkdir -p "$out/debian"
out=$(cd "$out" && pwd)
make -s -j"$(nproc)" GPU_TARGETS="$gpu" config=shared BUILD="$shared" "$shared/libduet.so.$version"
make -s -j"$(nproc)" GPU_TARGETS="$gpu" BUILD="$build" DESTDIR="$out/all" PREFIX=/usr LIBDIR="${libs#usr/}" install >/dev/null
COMMIT_DATE=$SOURCE_DATE_EPOCH packaging/from_help.py "$out/all/usr" "$out"/all/usr/bin/*
mv "$out/all/usr/share/zsh/site-functions" "$out/all/usr/share/zsh/vendor-completions"
gzip -9n "$out"/all/usr/share/man/man1/*
strip "$out"/all/usr/bin/*

mkdir -p "$out/libduet$major/$libs" "$out/libduet-dev/$libs"
mv "$out/all/usr/include" "$out/libduet-dev/usr/"
mv "$out/all/$libs"/* "$out/libduet-dev/$libs/"
rm -r "$out/all/usr/lib"
# here the shared library is what a program links, unless it asks for --static
sed -i 's/^\(Libs: .*-lduet\) \(.*\)/\1\nLibs.private: \2/' "$out/libduet-dev/$libs/pkgconfig/duet.pc"
ln -s "libduet.so.$major" "$out/libduet-dev/$libs/libduet.so"
strip --strip-unneeded -o "$out/libduet$major/$libs/libduet.so.$version" "$shared/libduet.so.$version"
ln -s "libduet.so.$version" "$out/libduet$major/$libs/libduet.so.$major"
mv "$out/all" "$out/duet"

printf 'Source: duet\n\nPackage: duet\nArchitecture: any\n' >"$out/debian/control"
# needs FILE...: the packages that hold the libraries these need
needs() {
    (cd "$out" && dpkg-shlibdeps -O "$@" >needs 2>log) || { cat "$out/log" >&2; return 1; }
    sed -n 's/^shlibs:Depends=//p' "$out/needs" | grep .
}
# package NAME SECTION MULTI-ARCH DEPENDS SUMMARY, description from stdin
package() {
    root=$out/$1 doc=$out/$1/usr/share/doc/$1
    mkdir -p "$root/DEBIAN" "$doc"
    {
        printf 'Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nUpstream-Name: Duet\n\nFiles: *\n'
        sed -n 's/^Copyright (c) /Copyright: /p' LICENSE
        printf 'License: MIT\n'
        sed '1,/^Copyright/d; s/^$/./; s/^/ /' LICENSE | sed 1d
    } >"$doc/copyright"
    {
        printf 'duet (%s) unstable; urgency=medium\n\n' "$version"
        printf '  * Commit %s; see CHANGELOG.md of the sources.\n\n' "$(packaging/commit.sh)"
        printf ' -- %s  %s\n' "$maintainer" "$(LC_ALL=C date -u -R -d "@$SOURCE_DATE_EPOCH")"
    } | gzip -9n >"$doc/changelog.gz"
    {
        printf 'Package: %s\nSource: duet\nVersion: %s\nArchitecture: %s\nMulti-Arch: %s\n' "$1" "$version" "$arch" "$3"
        printf 'Maintainer: %s\nInstalled-Size: %s\n' "$maintainer" "$(find "$root/usr" -type f -printf '%k\n' | awk '{ n += $1 } END { print n }')"
        printf 'Depends: %s\nSection: %s\nPriority: optional\nDescription: %s\n' "$4" "$2" "$5"
        sed 's/^/ /'
    } >"$root/DEBIAN/control"
    (cd "$root" && find usr -type f | LC_ALL=C sort | xargs md5sum) >"$root/DEBIAN/md5sums"
    find "$root" -type d -exec chmod 755 {} +
    find "$root" -type f ! -path '*/usr/bin/*' -exec chmod 644 {} +
    find "$root" -newermt "@$SOURCE_DATE_EPOCH" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
    dpkg-deb --root-owner-group -Zxz -z6 -b "$root" "$out/$1_${version}_$arch.deb" >/dev/null
}

depends=$(needs "$out"/duet/usr/bin/*)
package duet utils foreign "$depends" "runs quantized language models from GGUF files" <<'T'
Duet runs language models on the CPU, and on cards of NVIDIA and AMD where
code for them is built in: duet-run answers on the command line, duet-serve
over HTTP in the forms of OpenAI's, Anthropic's and Ollama's clients, and
duet-quantize, duet-inspect and others work on the files. The same file,
prompt and seed give the same text, bit for bit, on every machine.
T
mkdir -p "$out/libduet$major/DEBIAN"
echo "activate-noawait ldconfig" >"$out/libduet$major/DEBIAN/triggers"
minor=${version#*.} minor=${minor%%.*}
# before 1.0 a minor version may change the interface
echo "libduet $major libduet$major (>= $major.$minor), libduet$major (<< $major.$((minor + 1))~)" >"$out/libduet$major/DEBIAN/shlibs"
depends=$(needs "libduet$major/$libs/libduet.so.$version")
package "libduet$major" libs same "$depends" "runs quantized language models (shared library)" <<'T'
Duet runs language models from quantized GGUF files, behind one C header.
This is the shared library. It exports the functions of that header and
nothing else, and brings its C++ library along.
T
package libduet-dev libdevel same "libduet$major (= $version)" "runs quantized language models (header, static library)" <<'T'
Duet runs language models from quantized GGUF files, behind one C header.
This is for programs that use it: runtime.h, which documents every function,
the static library, and duet.pc for pkg-config.
T
rm -r "$out/debian" "$out/needs" "$out/log"
for file in "$out"/*.deb; do echo "${OUT:-build/packages}/deb/${file##*/}: $(stat -c %s "$file") bytes, sha256 $(sha256sum <"$file" | cut -d' ' -f1)"; done
