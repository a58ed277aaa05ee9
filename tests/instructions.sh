#!/usr/bin/env bash
# tests/instructions.sh: instructions of the AVX2 matmuls' hot loops, counted by valgrind, against the figures below: more than 5 % above
# fails, more than 5 % below asks for a new figure. Times on shared machines mean nothing; these are the same everywhere, for one compiler.
# Needs build/release/libduet.a, or another library by the same compiler in LIBRARY. `tests/instructions.sh --print` prints new figures.
set -euo pipefail
cd "$(dirname "$0")/.."
figures_for=12   # g++
# type id, tokens, instructions in thousands
figures="
1 1 101
2 1 45
2 16 327
8 1 59
8 16 455
12 1 52
12 16 317
14 1 71
18 1 209
18 16 525
29 1 135
40 1 85
"
skip() { echo "instruction counts: skipped: $1"; exit 0; }
command -v valgrind >/dev/null || skip "no valgrind"
[ "$(${CXX:-g++} -dumpversion 2>/dev/null | cut -d. -f1)" = $figures_for ] || skip "the figures are for g++ $figures_for"
grep -q avx2 /proc/cpuinfo || skip "no AVX2"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
${CXX:-g++} -std=c++20 -O2 -I. -o "$work/case" tests/instructions.cpp "${LIBRARY:-build/release/libduet.a}" -pthread -ldl
bad=0
while read -r type n_tok want; do
    [ -n "$type" ] || continue
    got=$(valgrind --tool=callgrind --callgrind-out-file=/dev/null --toggle-collect=counted "$work/case" "$type" "$n_tok" 2>&1 |
          sed -n 's/.*Collected : \([0-9]*\).*/\1/p')
    got=$(((got + 500) / 1000))
    if [ "${1:-}" = --print ]; then echo "$type $n_tok $got"; continue; fi
    verdict=good
    if [ $((got * 100)) -gt $((want * 105)) ]; then verdict="too many"; bad=1; fi
    if [ $((got * 100)) -lt $((want * 95)) ]; then verdict="fewer: lower the figure"; fi
    echo "type $type, $n_tok tokens: $got thousand instructions, figure $want: $verdict"
done <<<"$figures"
exit $bad
