#!/bin/sh
# tests/windows.sh: the tree built for Windows by mingw-w64 and run under Wine: whole models and a story against what this machine computes,
# bit for bit; paths, texts and pipes in UTF-8; the DLL; the test suite. Half a minute on 2 cores after the build, and the suite.
#   tests/windows.sh          installs g++-mingw-w64-x86-64-posix, wine and wine64 with apt-get where they are missing; says what it skips otherwise
#   tests/windows.sh sample   of the suite only what meets the system: files, threads, drivers, the contract
#   tests/windows.sh suite [FILE...]   the suite alone; only the cases of tests/test_FILE.cpp
# WIN_CXX, WIN_CXXFLAGS: compiler (ccache x86_64-...), optimization (-O1: the bits are the same, the build takes half the time)
# RUN, BIN, TESTS, CHAT_MODEL: this machine's programs and tests where they are built elsewhere (default ./run, bin and build/release/tests, which are built)
# GOLDEN_EVERY=5: of the golden cases every fifth
# DUET_TEST_DATA: folder of golden cases (default ../shared/data; without it that step is skipped, and said so)
set -eu
cd "$(dirname "$0")/.."
data=${DUET_TEST_DATA:-../shared/data}
cxx=${WIN_CXX:-x86_64-w64-mingw32-g++-posix}
triple=x86_64-w64-mingw32
out=build/windows
chat_model=${CHAT_MODEL:-build/release/tests/chat_model}
dir=$(mktemp -d)
trap 'wineserver -k 2>/dev/null || true; rm -rf "$dir"' EXIT
step() { printf '== %s\n' "$*"; }

if [ "$(uname -m)" != x86_64 ]; then
    echo "skipped: Windows under Wine: this machine is no x86-64"
    exit 0
fi
if ! command -v "${cxx##* }" >/dev/null || ! command -v wine >/dev/null; then
    sudo=; [ "$(id -u)" = 0 ] || sudo=sudo
    if ! command -v apt-get >/dev/null || ! { [ -z "$sudo" ] || command -v sudo >/dev/null; } || ! { $sudo apt-get update -qq &&
         $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends g++-mingw-w64-x86-64-posix wine wine64; }; then
        echo "skipped: Windows under Wine: want x86_64-w64-mingw32-g++-posix and wine, and no way to install them"
        exit 0
    fi
fi
# a Wine of its own, in a locale of UTF-8, which Wine needs to hand over arguments and names of files
export WINEPREFIX="$dir/wine" WINEDEBUG=-all WINEDLLOVERRIDES="mscoree,mshtml=" LC_ALL=C.UTF-8
wine wineboot -i >/dev/null 2>&1

suite() {  # FILE...: the cases of tests/test_FILE.cpp, each file in a process of its own, as many at once as there are processors
    [ $# -gt 0 ] || { cd tests && set -- $(grep -l '^TEST_CASE' test_*.cpp | sed 's/^test_//; s/\.cpp$//') && cd ..; }
    step "the test suite: $*"
    make -s -j"$(nproc)" CXX="$cxx" CXXFLAGS="${WIN_CXXFLAGS:--O3}" BUILD=$out $out/tests/all.exe
    mkdir "$dir/suite"
    DUET_TEST_HASHES=$dir/windows_hashes
    export DUET_TEST_HASHES
    printf '%s\n' "$@" | xargs -P "$(nproc)" -I{} sh -c 'wine "$0" -sf="*test_$1.cpp" >"$2/$1" 2>&1; echo "exit code $?" >>"$2/$1"' $out/tests/all.exe {} "$dir/suite"
    n_bad=0
    for name; do
        printf '%-15s %s\n' "$name" "$(sed -n 's/^test cases: //p' "$dir/suite/$name")"
        [ "$(tail -n 1 "$dir/suite/$name")" = "exit code 0" ] || { n_bad=$((n_bad + 1)); cat "$dir/suite/$name"; }
    done
    sed -n '/^not proved here/,/^SUCCESS/{ /^  /p; }' "$dir"/suite/*
    cat "$dir"/suite/* | awk '/^test cases:/ { n += $3; passed += $5; failed += $8; skipped += $11; part += $14 }
        END { printf "in all: %d test cases | %d passed | %d failed | %d skipped | %d skipped in part\n", n, passed, failed, skipped, part }'
    [ $n_bad = 0 ] || { echo "$n_bad files failed"; exit 1; }
    if [ -s "$DUET_TEST_HASHES" ]; then
        step "logits of the golden models on stand-ins for nvcuda.dll and amdhip64_6.dll: the hashes of this machine's own stand-ins"
        [ -n "${TESTS:-}" ] || make -s -j"$(nproc)" build/release/tests/all
        DUET_TEST_HASHES=$dir/linux_hashes ${TESTS:-build/release/tests/all} -tc="drivers: golden*" >"$dir/log" || { cat "$dir/log"; exit 1; }
        cmp "$dir/linux_hashes" "$dir/windows_hashes"
        echo "$(wc -l <"$dir/linux_hashes") hashes, the same"
    fi
}
if [ "${1:-}" = suite ]; then
    shift
    suite "$@"
    exit
fi

step "build: the library, all programs, the tests, the DLL and a C program that uses it"
if [ -z "${BIN:-}" ]; then make -s -j"$(nproc)" run bin/logits bin/tokenize bin/quantize bin/inspect; fi
here=${RUN:-./run} bin=${BIN:-bin}
make -s -j"$(nproc)" CXX="$cxx" CXXFLAGS="${WIN_CXXFLAGS:--O3}" BUILD=$out tools dll $out/tests/all.exe $out/tests/test_abi.exe $out/examples/complete_dll.exe
run=$out/bin/run.exe

step "no vector of 32 bytes is moved as if the stack were aligned to 32"
for file in $run $out/duet.dll; do
    x86_64-w64-mingw32-objdump -d --no-show-raw-insn $file >"$dir/code"
    if grep -E 'vmov(ap[sd]|dqa(32|64)?) .*\(.*%[yz]mm|vmov(ap[sd]|dqa(32|64)?) .*%[yz]mm.*\(' "$dir/code" | head -n 3 | grep .; then exit 1; fi
    grep -qE 'vmovup[sd] .*\(%rsp\).*%[yz]mm|%[yz]mm[0-9]+,.*\(%rsp\)' "$dir/code" || { echo "$file: want AVX code to check, found none"; exit 1; }
done

step "logits of demo.gguf: every instruction set, in one piece and one by one"
ids=1,300,337,374,411,448,485,522,559,596,633,670,307,344,381,418
"$bin"/logits -m models/demo.gguf --ids $ids -o "$dir/linux" 2>/dev/null
for isa in auto scalar avx2 avxvnni avx512; do
    for chunk in 512 1; do
        if wine $out/bin/logits.exe -m models/demo.gguf --ids $ids --cpu-isa $isa --chunk $chunk -o "$dir/windows" 2>"$dir/why"; then
            cmp "$dir/linux" "$dir/windows"
            echo "$isa, chunk $chunk: the same bits"
        else
            grep "this CPU runs" "$dir/why" || { cat "$dir/why"; exit 1; }
        fi
    done
done

step "golden cases: logits of every family against this machine's"
n=0 seen=0
for model in "$data"/golden/*/model.gguf; do
    [ -f "$model" ] || continue
    seen=$((seen + 1))
    [ $((seen % ${GOLDEN_EVERY:-1})) = 0 ] || continue
    "$bin"/logits -m "$model" --ids-file "${model%/*}/tokens.json" -o "$dir/linux" 2>/dev/null || continue
    wine $out/bin/logits.exe -m "$model" --ids-file "${model%/*}/tokens.json" -o "$dir/windows" 2>"$dir/why" || { cat "$dir/why"; exit 1; }
    cmp "$dir/linux" "$dir/windows"
    n=$((n + 1))
done
if [ $n = 0 ]; then echo "skipped: no folder $data/golden"; else echo "$n cases of $seen, the same bits"; fi

step "paths, arguments, stdin and stdout in UTF-8"
same() {  # the Linux program and the Windows one get the same arguments and give the same bytes and exit code
    linux=$1 windows=$2
    shift 2
    linux_code=0 windows_code=0
    $linux "$@" >"$dir/linux" 2>"$dir/why" <"$dir/in" || linux_code=$?
    wine $windows "$@" >"$dir/windows" 2>"$dir/why_windows" <"$dir/in" || windows_code=$?
    cmp "$dir/linux" "$dir/windows" || { cat "$dir/why_windows"; exit 1; }
    [ $linux_code = $windows_code ] || { echo "exit codes: $linux_code and $windows_code"; cat "$dir/why_windows"; exit 1; }
}
folder="$dir/Größe 模型 😀/$(printf 'long%.0s' $(seq 50))/$(printf 'path%.0s' $(seq 50))"
mkdir -p "$folder"
model="$folder/é.gguf"
cp models/demo.gguf "$model"
printf 'Once upon a time, Привет\nanother line' >"$dir/in"
same "$here" $run -m models/demo.gguf -p "Once upon a time" -n 100 --seed 1
same "$here" $run -m "$model" -p "Grüße, Привет, 漢字 😀" -n 30 --seed 1
same "$here" $run -m "$model" -p - -n 30 --seed 2
cp "$dir/in" "$folder/ü.txt"
same "$here" $run -m "$model" -f "$folder/ü.txt" -n 30 --seed 2
same "$here" $run -m "$model" -p "x" --prompt-cache "$folder/ß.state" -n 5 --seed 2
same "$here" $run -m "$folder" -p x
same "$here" $run -m "$folder/nothing" -p x
same "$here" $run --nonsense
same "$bin"/inspect $out/bin/inspect.exe "$model"
same "$bin"/tokenize $out/bin/tokenize.exe -m "$model" -p "Grüße, Привет, 漢字 😀"
for kind in Q4_K_M Q8_0; do
    "$bin"/quantize -q "$model" "$folder/linux.gguf" $kind
    wine $out/bin/quantize.exe -q "$model" "$folder/windows ü.gguf" $kind
    cmp "$folder/linux.gguf" "$folder/windows ü.gguf"
done
wine $out/bin/bench.exe -m "$model" -p 16 -n 4 -r 1 >"$dir/windows" && grep -q "memory bandwidth" "$dir/windows"
echo "a reader that leaves"
wine $run -m models/demo.gguf -p "Once upon a time" -n 100000 --ignore-eos 2>/dev/null | head -c 100 >"$dir/windows"
test "$(wc -c <"$dir/windows")" = 100

step "Ctrl-C ends a generation and keeps the text"
wine $run -m models/demo.gguf -p "Once upon a time" -n 100000 --ignore-eos -c 100000 >"$dir/windows" 2>"$dir/why" &
child=$!
for i in $(seq 100); do [ "$(wc -c <"$dir/windows")" -gt 200 ] && break; sleep 0.2; done
kill -INT $child
code=0
wait $child || code=$?
echo "exit code $code, $(wc -c <"$dir/windows") bytes"
grep -q "cancelled" "$dir/why" || { cat "$dir/why"; exit 1; }

step "the server: asked as the one of this machine is, left by clients, ended by Ctrl-C"
if ! command -v python3 >/dev/null; then echo "skipped: no python3"
elif [ ! -e $out/bin/serve.exe ]; then echo "skipped: serve.exe was not built: no headers of Boost and nlohmann-json"
else
    [ -n "${BIN:-}" ] || make -s -j"$(nproc)" bin/serve
    python3 tests/serve_windows.py "$bin/serve" "wine $out/bin/serve.exe"
fi

step "the plain C test; a C program that uses duet.dll"
wine $out/tests/test_abi.exe
if grep -vE '^EXPORTS|^ +duet_[a-z0-9_]+ @' $out/duet.def; then echo "duet.dll exports more than runtime.h"; exit 1; fi
cp $out/duet.dll $out/examples/complete_dll.exe "$dir"
wine "$dir/complete_dll.exe" models/demo.gguf "Once upon a time" >"$dir/windows"
grep -q "[a-z]" "$dir/windows"

step "CMake: what its DLL is linked with"
if command -v cmake >/dev/null; then
    cmake -G "Unix Makefiles" -S . -B "$dir/cmake" -DCMAKE_SYSTEM_NAME=Windows -DCMAKE_CXX_COMPILER="${cxx##* }" -DBUILD_SHARED_LIBS=ON >"$dir/log"
    grep -q -e ' -static ' "$dir/cmake/CMakeFiles/duet.dir/link.txt" || { cat "$dir/cmake/CMakeFiles/duet.dir/link.txt"; exit 1; }
else echo "skipped: no cmake"; fi

step "a program by MSVC's rules that uses duet.dll"
if command -v clang-19 >/dev/null && command -v lld-link-19 >/dev/null; then
    printf '#include "runtime.h"\nint begin(void) { return duet_version()[0] == 48 + DUET_VERSION_MAJOR ? 42 : 1; }\n' >"$dir/use.c"
    for language in "c -std=c99" "c++ -std=c++14" "c++ -std=c++20"; do
        # shellcheck disable=SC2086  # the flags are words
        clang-19 --target=x86_64-pc-windows-msvc -fms-compatibility-version=19.30 -ffreestanding -Wall -Wextra -Werror -I. -DDUET_SHARED \
            -x $language -c -o "$dir/use.obj" "$dir/use.c"
        case $language in "c "*)
            lld-link-19 /subsystem:console /entry:begin /nodefaultlib /out:"$dir/use.exe" "$dir/use.obj" $out/libduet.dll.a
            code=0
            wine "$dir/use.exe" || code=$?
            [ $code = 42 ] || { echo "use.exe: want 42, got $code"; exit 1; } ;;
        esac
    done
else
    echo "skipped: want clang-19 and lld-link-19"
fi

step "a GUI program that uses duet.dll: no console, no window, no process of its own"
$triple-gcc -x c -std=c99 -pedantic-errors -Wall -Wextra -Werror -I. -DDUET_SHARED -c -o "$dir/gui.o" tests/gui_windows.c
$triple-gcc -static -mwindows -o "$dir/gui.exe" "$dir/gui.o" $out/libduet.dll.a
if command -v xvfb-run >/dev/null; then
    # Wine's server keeps the display, or its absence, of the program that started it: each side of this one has its own
    wineserver -w
    xvfb-run -a wine "$dir/gui.exe"
    wineserver -w
else echo "skipped: want xvfb-run (apt-get install xvfb): without a display no window could appear"; fi

step "the console: keys typed on a terminal, an answer in other scripts"
if command -v python3 >/dev/null; then
    [ -n "${CHAT_MODEL:-}" ] || make -s "$chat_model"
    "$chat_model" "$dir/chat.gguf"
    python3 tests/console_windows.py wine $run -m "$dir/chat.gguf" --chat --temp 0
else echo "skipped: no python3"; fi

if [ "${1:-}" = sample ]; then
    step "a sample of the test suite"
    wine $out/tests/all.exe >"$dir/log" 2>&1 "-tc=gguf*,paths*,templates: the lang*,a file above*,a model that was read*,fma without*,f64*,threads*,quantize: bits*,norm*,\
contract: threads*,line editor*,generate: the same*,drivers: a model on*" || { cat "$dir/log"; exit 1; }
    grep -A 100 "^test cases" "$dir/log"
else
    step "the tests of the programs, which start each with wine"
    mkdir "$dir/bin"
    for file in $out/bin/*.exe; do
        name=$(basename "$file" .exe)
        printf '#!/bin/sh\nexec wine "%s" "$@"\n' "$PWD/$file" >"$dir/bin/$name"
        chmod +x "$dir/bin/$name"
    done
    WINDOWS=1 RUN=$dir/bin/run BIN=$dir/bin sh tests/test_cli.sh
    WINDOWS=1 sh tests/smoke.sh "$dir/bin" "$dir/bin/run"
    if command -v python3 >/dev/null; then WINDOWS=1 python3 tests/test_cli_chat.py "$dir/bin/run" "$dir/bin" "$chat_model"; fi
    suite
fi
echo "Windows under Wine: all good"
