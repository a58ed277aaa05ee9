#!/bin/sh
# tests/arm.sh: the tree built for 64-bit ARM and run under qemu, on processors with i8mm, with dotprod alone and with neither: the kernels against
# the scalar definition, then whole models and a story against what this machine computes, bit for bit. About 3 minutes on 2 cores.
#   tests/arm.sh          installs g++-aarch64-linux-gnu and qemu-user-static with apt-get where they are missing; says what it skips otherwise
#   tests/arm.sh sample   of the golden cases every fifth; most kernels on a processor with i8mm, and logits on one with neither set
# DUET_TEST_DATA: folder of golden cases (default ../shared/data; without it that step is skipped, and said so)
set -eu
cd "$(dirname "$0")/.."
data=${DUET_TEST_DATA:-../shared/data}
cxx=${ARM_CXX:-aarch64-linux-gnu-g++}
out=build/aarch64
every=1 less=
[ "${1:-}" != sample ] || every=5 less="matmul: points of grids*,matmuls of one input*"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
step() { printf '== %s\n' "$*"; }

if [ "$(uname -m)" != x86_64 ]; then
    echo "skipped: ARM under qemu: this machine is no x86-64, its own tests are what counts"
    exit 0
fi
if ! command -v ${cxx##* } >/dev/null || ! command -v qemu-aarch64-static >/dev/null; then
    sudo=; [ "$(id -u)" = 0 ] || sudo=sudo
    if ! command -v apt-get >/dev/null || ! { [ -z "$sudo" ] || command -v sudo >/dev/null; }; then
        echo "skipped: ARM under qemu: want aarch64-linux-gnu-g++ and qemu-aarch64-static, and no way to install them"
        exit 0
    fi
    $sudo apt-get update -qq
    $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends g++-aarch64-linux-gnu qemu-user-static
fi

step "build for aarch64, static"
make -s -j"$(nproc)" run bin/logits
# a static program opens no library: without the tests of drivers and their stand-ins
make -s -j"$(nproc)" CXX="$cxx" BUILD=$out LDFLAGS=-static stand_ins= test_sources="tests/main.cpp tests/test_data.cpp tests/test_exact.cpp tests/test_kernels.cpp tests/test_quant.cpp \
    tests/test_models.cpp tests/test_runtime.cpp" $out/tests/all $out/bin/run $out/bin/logits

# check CPU ISA..: the processor runs exactly these sets, its kernels are exact, and demo.gguf's logits are this machine's with each of them
ids=1,300,337,374,411,448,485,522,559,596,633,670,307,344,381,418
bin/logits -m models/demo.gguf --ids $ids -o "$dir/x86" 2>/dev/null
check() {
    cpu=$1 mine=$dir/$1
    shift
    step "-cpu $cpu: kernels and logits with $*"
    if [ $every != 1 ] && [ $cpu != max ]; then echo "skipped: the kernels: tests/arm.sh without sample does them" >"$mine.log"
    else qemu-aarch64-static -cpu $cpu $out/tests/all -tc="matmul*,quantize:*,*half conversions*,attention chunks*,kernels of experts*" -tce="$less" >"$mine.log" 2>&1 || { cat "$mine.log"; exit 1; }; fi
    tail -n 2 "$mine.log"
    for isa in neon dotprod i8mm; do
        runs=0
        for i in "$@"; do [ $i != $isa ] || runs=1; done
        for chunk in 512 1; do
            if qemu-aarch64-static -cpu $cpu $out/bin/logits -m models/demo.gguf --ids $ids --cpu-isa $isa --chunk $chunk -t 2 -o "$mine.arm" 2>"$mine.why"; then
                [ $runs = 1 ] || { echo "$isa: $cpu must not take it"; exit 1; }
                cmp "$dir/x86" "$mine.arm"
            else
                [ $runs = 0 ] && grep -q "this CPU runs" "$mine.why" || { cat "$mine.why"; exit 1; }
            fi
        done
    done
}

contract() {
    step "the contract's functions, number formats, batches"
    qemu-aarch64-static -cpu max $out/tests/all -tc="sums*,a row's dot*,attention in chunks*,f32 functions at*,half floats*,bfloat*,E8M0*,decode:*,unpack:*,encode:*the same bytes*,\
neighbours*,copied, trimmed*,routing:*,golden cases: every*,golden cases: the*" >"$dir/contract.log" 2>&1 || { cat "$dir/contract.log"; exit 1; }
    grep "^test cases" "$dir/contract.log"
}

golden() {
    step "golden cases: logits of every family against this machine's, by one instruction set after another"
    n=0 seen=0
    set -- i8mm dotprod neon scalar
    for model in "$data"/golden/*/model.gguf; do
        [ -f "$model" ] || continue
        seen=$((seen + 1))
        [ $((seen % every)) = 0 ] || continue
        bin/logits -m "$model" --ids-file "${model%/*}/tokens.json" -o "$dir/golden.x86" 2>/dev/null || continue
        qemu-aarch64-static -cpu max $out/bin/logits -m "$model" --cpu-isa $1 --ids-file "${model%/*}/tokens.json" -o "$dir/golden.arm" 2>"$dir/golden.why" || { cat "$dir/golden.why"; exit 1; }
        cmp "$dir/golden.x86" "$dir/golden.arm"
        n=$((n + 1))
        set -- "$2" "$3" "$4" "$1"
    done
    if [ $n = 0 ]; then echo "skipped: no folder $data/golden"; else echo "$n cases of $seen, the same bits"; fi
}

# All at once, because one takes a core for a minute or two.
started=
start() { "$@" >"$dir/$1-$2.out" 2>&1 & started="$started $!:$1-$2"; }
start contract -
start golden -
start check cortex-a72 neon
[ $every != 1 ] || start check neoverse-n1 neon dotprod
start check max neon dotprod i8mm
good=yes
for one in $started; do
    wait ${one%%:*} || good=no
    cat "$dir/${one#*:}.out"
done
[ $good = yes ]

step "the same story"
./run -m models/demo.gguf -p "Once upon a time" -n 100 --seed 1 >"$dir/x86" 2>/dev/null
qemu-aarch64-static -cpu max $out/bin/run -m models/demo.gguf -p "Once upon a time" -n 100 --seed 1 >"$dir/arm" 2>/dev/null
cmp "$dir/x86" "$dir/arm"
echo "ARM: all good"
