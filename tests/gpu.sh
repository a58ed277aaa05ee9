#!/bin/sh
# tests/gpu.sh: everything to be seen on a machine that has a card, in one command: builds for that card only, self test, golden cases bit for bit
# against the CPU, compute-sanitizer where there is one, then speed. Appends a section to docs/measurements/<today>.md.
#   tests/gpu.sh [DEVICE] [SHAPE]     DEVICE: cuda, hip (default: the first that works), or emu32 to try the script itself
#                                     SHAPE: of the speed test, 8b (default) or another one that bin/bench knows
# DUET_TEST_DATA: folder of golden cases (default ../shared/data; without it that step is skipped, and said so)
set -u
cd "$(dirname "$0")/.." || exit 1
device=${1:-}
shape=${2:-8b}
data=${DUET_TEST_DATA:-../shared/data}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
failed=0
step() { printf '\n==== %s\n' "$*"; }
fail() { echo "FAILED: $*"; failed=$((failed + 1)); }

step "build"
make -j"$(nproc)" || exit 1
./run --version
./run --devices
if [ -z "$device" ]; then
    for device in cuda hip none; do
        ./run --selftest --device $device >/dev/null 2>"$dir/why" && break
        [ $device = none ] || cat "$dir/why"
    done
    [ $device != none ] || { echo "no card can be used"; exit 1; }
fi

step "self test on $device"
./run --selftest --device "$device" >"$dir/selftest" 2>&1 || fail "self test"
cat "$dir/selftest"

step "golden cases on $device: logits of whole prompts, in one piece and in pieces of 7, against the CPU's"
n=0
for model in "$data"/golden/*/model.gguf; do
    [ -f "$model" ] || continue
    ids=$(dirname "$model")/tokens.json
    for piece in 512 7; do
        bin/logits -m "$model" --ids-file "$ids" -c 256 --chunk $piece --device cpu -o "$dir/cpu" 2>"$dir/why" &&
            bin/logits -m "$model" --ids-file "$ids" -c 256 --chunk $piece --device "$device" -o "$dir/gpu" 2>"$dir/why" &&
            cmp "$dir/cpu" "$dir/gpu" || fail "$model, pieces of $piece: $(cat "$dir/why")"
    done
    n=$((n + 1))
done
if [ $n = 0 ]; then echo "skipped: no golden cases in $data"; else echo "$n cases"; fi

if [ "$device" != "${device#cuda}" ] && command -v compute-sanitizer >/dev/null; then
    for tool in memcheck racecheck synccheck; do
        step "compute-sanitizer --tool $tool"
        compute-sanitizer --tool $tool --error-exitcode 9 ./run --selftest --device "$device" >"$dir/sanitizer" 2>&1 ||
            { fail "compute-sanitizer $tool"; tail -n 30 "$dir/sanitizer"; }
    done
else
    echo "skipped: compute-sanitizer"
fi

step "speed, $shape"
card=$(sed -n 's/^device  *//p' "$dir/selftest")
driver=$(cat /sys/module/nvidia/version 2>/dev/null || cat /sys/module/amdgpu/version 2>/dev/null || uname -r)
{
    printf '\n## %s\n\n%s, driver %s, commit %s: `tests/gpu.sh %s %s`\n\n' "$card" "$(date +%F)" "$driver" \
        "$(git rev-parse --short HEAD 2>/dev/null)" "$device" "$shape"
    printf 'Self test: %s. Golden cases: %s, %s failures so far.\n' "$(sed -n 's/^result  *//p' "$dir/selftest")" "$n" "$failed"
    long="-p 512,4096 -n 128 --batch 1,4,16" deep="-p 0 -n 64 --depth 8192"
    if [ "${device#emu}" != "$device" ]; then long="-p 8 -n 4 --batch 1,4 -r 1" deep="-p 0 -n 4 --depth 64 -r 1"; fi
    for format in q4_0 q4_K q8_0 f16; do
        for test in "$long" "$deep"; do
            printf '\n```\nbin/bench --synthetic %s:%s %s --device %s\n' "$shape" $format "$test" "$device"
            # shellcheck disable=SC2086  # the flags are words
            bin/bench --synthetic "$shape:$format" $test --device "$device" 2>"$dir/why" || echo "failed: $(cat "$dir/why")"
            printf '```\n'
        done
    done
} >"$dir/section"
cat "$dir/section"
if [ "${device#emu}" = "$device" ]; then cat "$dir/section" >>"docs/measurements/$(date +%F).md"; fi
grep -q '^failed: ' "$dir/section" && fail "bin/bench"

step "$([ $failed = 0 ] && echo passed || echo "$failed failed")"
[ $failed = 0 ]
