#!/bin/sh
# packaging/windows.sh: the zip for Windows: run.exe, bench.exe, duet.dll with its import library and header, the licence, in the folder
# duet-VERSION-windows-x86_64 of build/windows/package. The same sources and compiler give the same bytes.
#   packaging/windows.sh
# WIN_CXX: the compiler (x86_64-w64-mingw32-g++-posix), also "ccache ..."; GPU_TARGETS: none by default, as for make
set -eu
cd "$(dirname "$0")/.."
cxx=${WIN_CXX:-x86_64-w64-mingw32-g++-posix}
triple=x86_64-w64-mingw32
version=$(sed -n 's/^.define DUET_VERSION_[A-Z]* *\([0-9]*\)$/\1/p' runtime.h | paste -sd. -)
out=build/windows
name=duet-$version-windows-x86_64
most=15000000
[ "${GPU_TARGETS:-none}" = none ] || most=45000000

# linked without symbols: strip would write the time into the files
rm -f $out/bin/run.exe $out/bin/bench.exe $out/duet.dll
make -s -j"$(nproc)" CXX="$cxx" BUILD=$out LDFLAGS=-s GPU_TARGETS="${GPU_TARGETS:-none}" $out/bin/run.exe $out/bin/bench.exe dll
rm -rf $out/package
mkdir -p $out/package/$name
cp runtime.h LICENSE docs/windows.md $out/package/$name/
cp $out/bin/run.exe $out/bin/bench.exe $out/duet.dll $out/package/$name/
cp $out/libduet.dll.a $out/package/$name/duet.lib
cp $out/duet.def $out/package/$name/
# parts of the compiler's libraries are in the programs; their licences go along
mkdir $out/package/$name/licenses
for package in mingw-w64-common gcc-mingw-w64-base; do
    if [ -f /usr/share/doc/$package/copyright ]; then cp /usr/share/doc/$package/copyright $out/package/$name/licenses/$package.txt
    else echo "warning: no /usr/share/doc/$package/copyright: the zip lacks it" >&2; fi
done
# only the system's own libraries are needed
for file in run.exe bench.exe duet.dll; do
    if $triple-objdump -p $out/package/$name/$file | sed -n 's/.*DLL Name: //p' |
        grep -viE '^(kernel32|advapi32|shell32|user32|msvcrt|ws2_32|ucrtbase|api-ms-win-[a-z0-9-]*)\.dll$'; then
        echo "$file needs a library that Windows does not have"
        exit 1
    fi
done
python3 - $out/package $name <<'P'
import os, sys, zipfile
folder, name = sys.argv[1:]
with zipfile.ZipFile(os.path.join(folder, name + ".zip"), "w", zipfile.ZIP_DEFLATED, compresslevel=9) as out:
    for where, folders, files in os.walk(os.path.join(folder, name)):
        folders.sort()
        for file in sorted(files):
            path = os.path.join(where, file)
            row = zipfile.ZipInfo(os.path.relpath(path, folder), (1980, 1, 1, 0, 0, 0))
            row.compress_type = zipfile.ZIP_DEFLATED
            row.external_attr = 0o644 << 16
            out.writestr(row, open(path, "rb").read())
P
zip=$out/package/$name.zip
size=$(wc -c <"$zip")
echo "$zip: $size bytes, sha256 $(sha256sum <"$zip" | cut -d' ' -f1)"
[ "$size" -le $most ] || { echo "want at most $most bytes"; exit 1; }
