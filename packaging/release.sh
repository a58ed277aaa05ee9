#!/bin/sh
# packaging/release.sh (make release): all files that people install, to build/release-files, with their checksums and the list of
# what is in them. The same commit and compilers give the same bytes, in any folder (docs/packages.md).
#   packaging/release.sh
# PARTS: which ("deb linux windows python source"); GPU_TARGETS: none by default; DIRTY=1: a tree with changes, too
# OUT: the folder; BUILD, SHARED_BUILD, PORTABLE_BUILD, CXXFLAGS, HOST as in deb.sh and linux.sh
set -eu
cd "$(dirname "$0")/.."
files=${OUT:-build/release-files}
version=$(sed -n 's/^.define DUET_VERSION_[A-Z]* *\([0-9]*\)$/\1/p' runtime.h | paste -sd. -)
commit=$(packaging/commit.sh)
SOURCE_DATE_EPOCH=$(packaging/commit.sh --date)
export SOURCE_DATE_EPOCH
case $commit in
    *-dirty | unknown) [ "${DIRTY:-}" = 1 ] || { echo "make release: want a tree without changes, found commit $commit (DIRTY=1 takes it)"; exit 1; } ;;
esac

rm -rf "$files"
mkdir -p "$files"
files=$(cd "$files" && pwd)
unset OUT
# a release's own folder, because two may be made at once
export OUT="$files.parts"
for part in ${PARTS:-deb linux windows python source}; do
    echo "==== $part"
    case $part in
        deb | linux)
            "packaging/$part.sh"
            find "$OUT/$part" -maxdepth 1 \( -name '*.deb' -o -name '*.tar.gz' \) -exec cp {} "$files/" \; ;;
        windows)
            compiler=${WIN_CXX:-x86_64-w64-mingw32-g++-posix}
            if command -v "${compiler##* }" >/dev/null; then
                packaging/windows.sh
                cp build/windows/package/*.zip "$files/"
            else echo "left out: the zip for Windows: no $compiler"; fi ;;
        python)
            sh bindings/python/build.sh
            cp build/python/dist/* "$files/" ;;
        source)
            if git rev-parse -q --verify HEAD >/dev/null 2>&1; then
                git archive --format=tar --prefix="duet-$version-source/" HEAD | gzip -9n >"$files/duet-$version-source.tar.gz"
            else echo "left out: the sources: this tree has no git"; fi ;;
        *) echo "PARTS: want deb, linux, windows, python or source, got $part"; exit 1 ;;
    esac
done
rm -rf "$OUT"
packaging/sbom.py "$files" >"$files/duet-$version.cdx.json"
(cd "$files" && LC_ALL=C sha256sum -- * >SHA256SUMS.new && mv SHA256SUMS.new SHA256SUMS)
echo "==== commit $commit, in $files"
cat "$files/SHA256SUMS"
