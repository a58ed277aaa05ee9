#!/bin/sh
# tests/gpu.sh: the first hour on a card, in one command (docs/gpu.md): builds for that card only, devices, self test, golden cases bit for
# bit against the CPU, recorded against plain decoding, two threads, full memory, the vendor's checks, then speed beside the prediction.
# Every step runs whatever the others found, under a time limit. The end is one text to paste into a report; it is also appended to
# docs/measurements/<today>.md.
#   tests/gpu.sh [DEVICE] [SHAPE]     DEVICE: cuda, hip (default: the first that works), or emu32 to try the script itself
#                                     SHAPE: of the speed test, 8b (default) or another one that bin/bench knows
# DUET_TEST_DATA: folder of golden cases (default ../shared/data; without it that step is skipped, and said so)
# FORMATS, RUNS, TOKENS: of the speed test, and of recorded decoding (default "q4_0 q4_K q8_0 f16", 10 runs of 2,000 tokens)
# BUILD: folder of what is built (default build/release). Exit status 1 if anything failed.
set -u
cd "$(dirname "$0")/.." || exit 1
device=${1:-}
shape=${2:-8b}
case $device in
    '' | cuda* | hip* | emu32 | emu64) ;;
    *) echo "usage: tests/gpu.sh [DEVICE] [SHAPE]: want cuda, hip, emu32 or emu64, got $device" >&2; exit 2 ;;
esac
data=${DUET_TEST_DATA:-../shared/data}
build=${BUILD:-build/release}
bin=bin run=./run
if [ "$build" != build/release ]; then bin=$build/bin run=$build/bin/run; fi
is_emulated=
case $device in emu*) is_emulated=yes ;; esac
formats=${FORMATS:-q4_0 q4_K q8_0 f16}
runs=${RUNS:-${is_emulated:+2}}
tokens=${TOKENS:-${is_emulated:+24}}
runs=${runs:-10} tokens=${tokens:-2000}
# The model whose tokens are compared: small enough to load 20 times, with all kernels of decoding.
small=${is_emulated:+tiny:q4_0}
small=${small:-1b:q4_0}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
dmesg >"$dir/logged" 2>/dev/null    # what the kernel said before is not about this run
: >"$dir/failed"
: >"$dir/summary"
step() { printf '\n==== %s\n' "$*"; }
note() { echo "$*"; echo "$*" >>"$dir/summary"; }
# fail STEP [FILE]: notes what failed, with the end of what it said
fail() {
    echo "FAILED: $1"
    {
        echo "FAILED: $1"
        if [ -n "${2:-}" ]; then tail -n 12 "$2" | sed 's/^/    /'; fi
    } >>"$dir/failed"
}
# limited SECONDS COMMAND...: a card that hangs must not hang the script; 124 is the exit status then, and 134 where AMD's runtime
# has ended the process after a fault of the card ("Memory access fault by GPU node")
limited() {
    seconds=$1
    shift
    if command -v timeout >/dev/null; then timeout -k 10 "$seconds" "$@"; else "$@"; fi
}
# check STEP SECONDS COMMAND...: the command's last line is the step's result
check() {
    what=$1 seconds=$2
    shift 2
    limited "$seconds" "$@" >"$dir/out" 2>&1
    status=$?
    if [ $status = 0 ]; then note "$what: $(tail -n 1 "$dir/out")"
    elif [ $status = 124 ]; then fail "$what: no end after $seconds s" "$dir/out"
    else fail "$what: exit status $status" "$dir/out"; fi
}

step "build"
make -j"$(nproc)" BUILD="$build" all "$build/tests/gpu_first_hour" || exit 1
"$run" --version
limited 120 "$run" --devices >"$dir/devices" 2>&1 || fail "--devices" "$dir/devices"
cat "$dir/devices"
if [ -z "$device" ]; then
    for device in cuda hip none; do
        limited 900 "$run" --selftest --device "$device" >/dev/null 2>"$dir/why" && break
        [ "$device" = none ] || cat "$dir/why"
    done
    [ "$device" != none ] || { echo "no card can be used"; exit 1; }
fi

step "self test on $device"
limited 900 "$run" --selftest --device "$device" >"$dir/selftest" 2>&1 || fail "self test" "$dir/selftest"
cat "$dir/selftest"

step "golden cases on $device, not recorded: logits of whole prompts, in one piece and in pieces of 7, against the CPU's"
# golden_case FOLDER MODEL PIECE: leaves FOLDER/good where both give the same bits, and what was said in FOLDER/why. A process takes
# most of its time to make the device's context, so that several run at once.
golden_case() {
    ids=$(dirname "$2")/tokens.json
    mkdir "$1"
    echo "$2, pieces of $3" >"$1/name"
    limited 300 "$bin/logits" -m "$2" --ids-file "$ids" --chunk "$3" --device cpu -t 1 -o "$1/cpu" 2>>"$1/why" &&
        DUET_GPU_RECORDING=0 limited 300 "$bin/logits" -m "$2" --ids-file "$ids" --chunk "$3" --device "$device" -o "$1/gpu" 2>>"$1/why" &&
        cmp "$1/cpu" "$1/gpu" >>"$1/why" 2>&1 && : >"$1/good"
    rm -f "$1/cpu" "$1/gpu"
}
n=0
n_at_once=$(nproc 2>/dev/null || echo 2)
[ "$n_at_once" -le 4 ] || n_at_once=4    # contexts take some hundred MB each of a card that may be small
for model in "$data"/golden/*/model.gguf; do
    [ -f "$model" ] || continue
    for piece in 512 7; do
        n=$((n + 1))
        golden_case "$dir/golden.$n" "$model" $piece &
        [ $((n % n_at_once)) != 0 ] || wait
    done
done
wait
i=0
while [ $i -lt $n ]; do
    i=$((i + 1))
    [ -f "$dir/golden.$i/good" ] || fail "golden case $(cat "$dir/golden.$i/name")" "$dir/golden.$i/why"
done
if [ $n = 0 ]; then note "golden cases: skipped: none in $data"; else note "golden cases: $n tried"; fi

# The library keeps its answers right when recordings or walks fail, and says so in its log: then this was not tried.
as_asked() { ! grep " is off from here on" "$dir/why" >&2; }

step "recorded decoding: $runs runs of $tokens tokens, $small, against plain launches"
n_same=0
DUET_GPU_RECORDING=0 limited 900 "$build/tests/gpu_first_hour" ids "$device" "$small" "$tokens" >"$dir/plain" 2>"$dir/why" || fail "plain decoding" "$dir/why"
i=0
while [ $i -lt "$runs" ]; do
    i=$((i + 1))
    if DUET_GPU_RECORDING=1 limited 900 "$build/tests/gpu_first_hour" ids "$device" "$small" "$tokens" >"$dir/recorded" 2>"$dir/why" &&
        cmp "$dir/plain" "$dir/recorded" >>"$dir/why" 2>&1 && as_asked; then n_same=$((n_same + 1))
    else fail "recorded decoding, run $i of $runs" "$dir/why"; fi
done
note "recorded decoding: $n_same of $runs runs of $tokens tokens have the ids of plain launches"

step "a token as one launch, $tokens tokens, $small, against plain launches"
if DUET_GPU_RECORDING=2 limited 900 "$build/tests/gpu_first_hour" ids "$device" "$small" "$tokens" >"$dir/walked" 2>"$dir/why" &&
    cmp "$dir/plain" "$dir/walked" >>"$dir/why" 2>&1 && as_asked; then note "a token as one launch: the ids of plain launches"
elif grep "decoding by one launch is off" "$dir/why" >"$dir/refused" && cmp -s "$dir/plain" "$dir/walked"; then
    note "a token as one launch: not on this device, the ids of plain launches ($(head -1 "$dir/refused"))"
else fail "a token as one launch" "$dir/why"; fi

step "two sessions in two threads, one recording while the other allocates"
DUET_GPU_RECORDING=1 check "two threads" 1800 "$build/tests/gpu_first_hour" threads "$device" "$small" "$tokens"

step "full memory, then a batch of a new shape"
if grep -q "^$device.*  integrated" "$dir/devices"; then note "full memory: skipped: it is the computer's, which may freeze"
else check "full memory" 900 "$build/tests/gpu_first_hour" memory "$device" "$small" 20; fi

step "the vendor's checks"
case $device in
cuda*)
    if command -v compute-sanitizer >/dev/null; then
        for tool in memcheck racecheck synccheck; do
            check "compute-sanitizer $tool" 3600 compute-sanitizer --tool $tool --error-exitcode 9 "$run" --selftest --device "$device"
        done
    else note "compute-sanitizer: skipped: not installed (it comes with the CUDA Toolkit)"; fi ;;
hip*)
    # AMD has no such tool for code that was built without it: each launch is waited for, so that a fault names its kernel.
    AMD_SERIALIZE_KERNEL=3 AMD_SERIALIZE_COPY=3 check "launches one by one (AMD_SERIALIZE_KERNEL=3)" 1800 "$run" --selftest --device "$device"
    if dmesg >"$dir/dmesg" 2>/dev/null; then
        if grep -vxFf "$dir/logged" "$dir/dmesg" | grep -E "amdgpu.*(fault|hang|reset|timeout)" | tail -n 8 >"$dir/faults" && [ -s "$dir/faults" ]; then fail "kernel log" "$dir/faults"
        else note "kernel log: no fault of amdgpu"; fi
    else note "kernel log: skipped: dmesg may not be read"; fi ;;
*) note "vendor's checks: skipped: no card" ;;
esac

step "speed, $shape, beside the prediction"
card=$(sed -n 's/^device  *//p' "$dir/selftest")
driver=$(cat /sys/module/nvidia/version 2>/dev/null || cat /sys/module/amdgpu/version 2>/dev/null || uname -r)
long="-p 512,4096 -n 128 --batch 1,4,16" deep="-p 0 -n 64 --depth 8192" prompts="-p 512,4096 -n 0"
if [ -n "$is_emulated" ]; then long="-p 8 -n 4 --batch 1,4 -r 1" deep="-p 0 -n 4 --depth 64 -r 1" prompts="-p 24 -n 0 -r 1"; fi
: >"$dir/speed"
for format in $formats; do
    for test in "$long" "$deep"; do
        printf '\n%s --synthetic %s:%s %s --device %s\n' "$bin/bench" "$shape" "$format" "$test" "$device" >>"$dir/speed"
        # shellcheck disable=SC2086  # the flags are words
        limited 1800 "$bin/bench" --synthetic "$shape:$format" $test --device "$device" >>"$dir/speed" 2>"$dir/why" || fail "bench $shape:$format $test" "$dir/why"
    done
    alone=$(printf '%s' "$long" | sed 's/-p [0-9,]*/-p 0/; s/--batch [0-9,]*//')
    for mode in 0 1 2; do    # plain launches, recordings (what is predicted), a token as one launch; above is the chip's and driver's default
        printf '\nDUET_GPU_RECORDING=%s: --synthetic %s:%s %s\n' "$mode" "$shape" "$format" "$alone" >>"$dir/speed"
        # shellcheck disable=SC2086
        DUET_GPU_RECORDING=$mode limited 1800 "$bin/bench" --synthetic "$shape:$format" $alone --device "$device" >>"$dir/speed" 2>"$dir/why" ||
            fail "bench $shape:$format, DUET_GPU_RECORDING=$mode" "$dir/why"
        grep " is off from here on" "$dir/why" >>"$dir/speed" || true
    done
    if [ "$shape" = 8b ] && command -v python3 >/dev/null; then
        for test in "1 512" "4 512" "16 512" "1 8192" "1 p512" "1 p4096"; do
            # shellcheck disable=SC2086
            printf 'prediction, %s, batch and context %s: %s\n' "$format" "$test" "$(python3 benchmarks/gpu_model.py --beside "$card" "$format" $test)" >>"$dir/speed"
        done
    fi
done
for format in f16 q4_0; do    # of q4_0 attention alone
    printf '\nmode fast: --synthetic %s:%s %s --fast\n' "$shape" "$format" "$prompts" >>"$dir/speed"
    # shellcheck disable=SC2086
    limited 1800 "$bin/bench" --synthetic "$shape:$format" $prompts --fast --device "$device" >>"$dir/speed" 2>"$dir/why" ||
        fail "bench $shape:$format --fast" "$dir/why"
    [ "$shape" = 8b ] && command -v python3 >/dev/null || continue
    for test in "1 p512" "1 p4096"; do
        # shellcheck disable=SC2086
        printf 'prediction, %s --fast, batch and context %s: %s\n' "$format" "$test" \
            "$(python3 benchmarks/gpu_model.py --beside "$card" "$format-fast" $test)" >>"$dir/speed"
    done
done
cat "$dir/speed"

n_failed=$(grep -c '^FAILED' "$dir/failed")
{
    printf '\n## %s\n\n%s, driver %s, commit %s: `tests/gpu.sh %s %s`\n\n' "${card:-$device}" "$(date +%F)" "$driver" \
        "$(git rev-parse --short HEAD 2>/dev/null)" "$device" "$shape"
    if [ "$n_failed" = 0 ]; then echo "Nothing failed."
    else printf '%s failed:\n\n```\n%s\n```\n' "$n_failed" "$(cat "$dir/failed")"; fi
    printf '\nSelf test: %s\n\n```\n%s\n```\n\n```\n%s\n```\n\n```\n%s\n```\n' "$(sed -n 's/^result  *//p' "$dir/selftest")" \
        "$(cat "$dir/summary")" "$(cat "$dir/devices")" "$(cat "$dir/speed")"
} >"$dir/section"
step "to paste into a report"
cat "$dir/section"
if [ -z "$is_emulated" ]; then cat "$dir/section" >>"docs/measurements/$(date +%F).md"; fi

step "$([ "$n_failed" = 0 ] && echo passed || echo "$n_failed failed")"
[ "$n_failed" = 0 ]
