#!/bin/sh
# packaging/windows.sh: the zip for Windows: run.exe, bench.exe, serve.exe, duet.dll with its import library and header, the licences, in
# the folder duet-VERSION-windows-x86_64 of build/windows/package. The same sources and compiler give the same bytes.
#   packaging/windows.sh
# The programs use the DLL beside them, so that the library and the code for cards are there once. serve.exe is left out where the headers
# of Boost or nlohmann-json are missing. Where Wine is installed, the files are taken out of the zip and used.
# WIN_CXX: the compiler (x86_64-w64-mingw32-g++-posix), also "ccache ..."; CXXFLAGS; GPU_TARGETS: none by default, as for make;
# "windows": the cards that have a driver there
set -eu
cd "$(dirname "$0")/.."
cxx=${WIN_CXX:-x86_64-w64-mingw32-g++-posix}
triple=x86_64-w64-mingw32
version=$(sed -n 's/^.define DUET_VERSION_[A-Z]* *\([0-9]*\)$/\1/p' runtime.h | paste -sd. -)
out=build/windows
name=duet-$version-windows-x86_64
most=15000000
[ "${GPU_TARGETS:-none}" = none ] || most=45000000

# Radeons and the graphics of Ryzens that AMD's HIP runs on Windows, and NVIDIA's cards but those of data centres.
if [ "${GPU_TARGETS:-}" = windows ]; then
    parts=$(sed -nE 's/^(FLOAT|QUANT)_TYPE.([a-zA-Z0-9_]+), .*/\2/p' quant/types.def)
    known=$(make -s --eval 'known_chips: ; @echo $(all_chips)' known_chips)
    GPU_TARGETS=
    for chip in sm_75 sm_86 sm_89 sm_120 gfx1030 gfx1031 gfx1032 gfx1034 gfx1035 gfx1036 gfx1100 gfx1101 gfx1102 gfx1103 gfx1150 gfx1151 gfx1152 \
        gfx1153 gfx1200 gfx1201; do
        case " $known " in
            *" $chip "*) GPU_TARGETS="$GPU_TARGETS $chip" ;;
            *) echo "left out: code for $chip: this machine's compilers do not know it" ;;
        esac
    done
    for version in 75 120; do for part in common $parts; do GPU_TARGETS="$GPU_TARGETS compute_${version}_$part"; done; done
fi

programs="run bench" serve=
if [ -e /usr/include/boost/beast.hpp ] && [ -e /usr/include/nlohmann/json.hpp ]; then
    programs="$programs serve"
    for source in tools/serve/*.cpp; do serve="$serve $out/${source%.cpp}.o"; done
else echo "left out: serve.exe: want the headers of Boost and nlohmann-json (apt-get install libboost-dev nlohmann-json3-dev)"; fi

# linked without symbols: strip would write the time into the files
rm -f $out/duet.dll
# shellcheck disable=SC2086  # words
make -s -j"$(nproc)" CXX="$cxx" ${CXXFLAGS:+"CXXFLAGS=$CXXFLAGS"} BUILD=$out LDFLAGS=-s GPU_TARGETS="${GPU_TARGETS:-none}" \
    $out/tools/run.o $out/tools/bench.o $serve dll
rm -rf $out/package
mkdir -p $out/package/$name
cp runtime.h LICENSE docs/windows.md $out/package/$name/
cp $out/duet.dll $out/package/$name/
for program in $programs; do
    objects=$out/tools/$program.o
    [ $program != serve ] || objects=$serve
    # shellcheck disable=SC2086  # words
    $cxx -static -s -pthread -Wl,--no-insert-timestamp -Wl,--gc-sections -o $out/package/$name/$program.exe $objects $out/libduet.dll.a -lws2_32 -lmswsock
done
cp $out/libduet.dll.a $out/package/$name/duet.lib
cp $out/duet.def $out/package/$name/
# parts of the compiler's libraries are in the programs, and of two more in serve.exe; their licences go along
mkdir $out/package/$name/licenses
for package in mingw-w64-common gcc-mingw-w64-base ${serve:+"$(basename "$(echo /usr/share/doc/libboost[0-9]*-dev)")" nlohmann-json3-dev}; do
    if [ -f /usr/share/doc/$package/copyright ]; then cp /usr/share/doc/$package/copyright $out/package/$name/licenses/$package.txt
    else echo "warning: no /usr/share/doc/$package/copyright: the zip lacks it" >&2; fi
done
# only the system's own libraries are needed
for file in $out/package/$name/*.exe $out/package/$name/duet.dll; do
    if $triple-objdump -p "$file" | sed -n 's/.*DLL Name: //p' |
        grep -viE '^(duet|kernel32|advapi32|shell32|user32|msvcrt|ws2_32|mswsock|ucrtbase|api-ms-win-[a-z0-9-]*)\.dll$'; then
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

if ! command -v wine >/dev/null; then
    echo "not tried: no wine"
    exit
fi
dir=$(mktemp -d)
trap 'wineserver -k 2>/dev/null || true; rm -rf "$dir"' EXIT
export WINEPREFIX="$dir/wine" WINEDEBUG=-all WINEDLLOVERRIDES="mscoree,mshtml=" LC_ALL=C.UTF-8
wine wineboot -i >/dev/null 2>&1
mkdir "$dir/Größe 模型"
python3 -m zipfile -e "$zip" "$dir/Größe 模型"
here="$dir/Größe 模型/$name"
wine "$here/run.exe" --version >"$dir/out"
cat "$dir/out"
grep -q "^commit $(packaging/commit.sh);" "$dir/out"
wine "$here/run.exe" -m models/demo.gguf -p "Once upon a time" -n 20 --seed 1 >"$dir/out" 2>"$dir/why" && grep -q "[a-z]" "$dir/out" || { cat "$dir/why"; exit 1; }
if [ -n "$serve" ]; then
    wine "$here/serve.exe" -m models/demo.gguf --chat-template chatml --port 0 >"$dir/out" 2>"$dir/why" &
    server=$!
    for i in $(seq 100); do ! grep -q "serves demo" "$dir/out" || break; sleep 0.2; done
    python3 - "$(grep -o 'http://[^ ]*' "$dir/out")" <<'P' || { cat "$dir/why"; exit 1; }
import json, sys, urllib.request
assert urllib.request.urlopen(sys.argv[1] + "/health", timeout=60).status == 200
request = urllib.request.Request(sys.argv[1] + "/v1/completions", b'{"prompt": "Once upon a time", "max_tokens": 20}', {"Content-Type": "application/json"})
assert len(json.load(urllib.request.urlopen(request, timeout=60))["choices"][0]["text"]) > 20
P
    kill -INT $server
    wait $server
fi
wine "$here/bench.exe" -m models/demo.gguf -p 16 -n 4 -r 1 >"$dir/out" 2>"$dir/why" && grep -q "^pp16" "$dir/out" || { cat "$dir/why"; exit 1; }
# a program of somebody's, with nothing but what is in the zip
"${cxx##* }" -x c -std=c99 -I"$here" -DDUET_SHARED -c -o "$dir/app.o" examples/complete.c
"${cxx##* }" -static -o "$here/app.exe" "$dir/app.o" "$here/duet.lib"
wine "$here/app.exe" models/demo.gguf "Once upon a time" >"$dir/out" && grep -q "[a-z]" "$dir/out"
echo "tried under Wine: run.exe, bench.exe${serve:+, serve.exe}, a C program built with runtime.h and duet.lib"
