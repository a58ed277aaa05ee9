#!/bin/sh
# tests/smoke.sh BIN_DIR RUN: every tool with wrong flags and wrong files (exit codes, messages), and the tools that
# work on a real model's file or vocabulary. What run, logits, perplexity and bench do in detail is tests/test_cli.sh's.
# Model: models/demo.gguf, else a small one of DUET_TEST_DATA; without either its cases are skipped. Runs from the
# repository root.
set -u
bin=$1 run=$2
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
n_done=0 n_failed=0
limit=${WINDOWS:+300} limit=${limit:-60} # seconds of one command; WINDOWS=1: a program of Windows, under Wine

# judge PROBLEM CASE: counts a case; a problem is told with what the last command said.
judge() {
    n_done=$((n_done + 1))
    [ -n "$1" ] || return 0
    n_failed=$((n_failed + 1))
    echo "FAILED: $2: $1"
    head -c 300 "$dir/err" | sed 's/^/    /'
}
# expect CODE TEXT COMMAND...: runs it for at most $limit seconds with no input; its output holds TEXT ("" is any).
expect() {
    want=$1 holds=$2
    shift 2
    timeout $limit "$@" </dev/null >"$dir/out" 2>"$dir/err"
    code=$? problem=
    [ $code = "$want" ] || problem="exit code $code, want $want;"
    [ -z "$holds" ] || cat "$dir/out" "$dir/err" | grep -qF -e "$holds" || problem="$problem lacks '$holds';"
    judge "$problem" "$*"
}
prints() { if [ "$(cat "$dir/out")" = "$1" ]; then judge "" ""; else judge "printed '$(head -c 100 "$dir/out")', want '$1'" "$2"; fi; }

for tool in "$run" "$bin"/*; do
    [ -f "$tool" ] || continue
    expect 0 "usage: " "$tool" -h
    expect 0 "duet " "$tool" --version
    expect 2 "unknown flag '--no-such-flag'" "$tool" --no-such-flag
    expect 2 "usage: " "$tool"
done

mkdir "$dir/folder" && mkfifo "$dir/fifo" && : >"$dir/empty"
echo '<!DOCTYPE html><html><body>404</body></html>' >"$dir/html"
printf 'GGUF\003\000\000\000' >"$dir/short"
printf 'GGUF\003\000\000\000\377\377\377\377\377\377\377\177\000\000\000\000\000\000\000\000' >"$dir/huge"
for name in folder fifo empty html short huge absent; do
    file=$dir/$name
    expect 1 "$file" "$run" -m "$file" -p text
    expect 1 "$file" "$bin/inspect" "$file"
    expect 1 "$file" "$bin/inspect" --check "$file"
    expect 1 "$file" "$bin/tokenize" -m "$file" -p text
    expect 1 "$file" "$bin/logits" -m "$file" --ids 1 -o "$dir/made"
    expect 1 "$file" "$bin/perplexity" -m "$file" -f README.md
    expect 1 "$file" "$bin/bench" -m "$file"
    expect 1 "$file" "$bin/quantize" "$file" "$dir/made" Q4_0
done
judge "$([ ! -e "$dir/made" ] || echo "a file was left")" "wrong inputs"

for device in cpu emu32; do expect 0 "result      good" "$run" --selftest --device $device; done
expect 1 "device 'emu33'" "$run" --selftest --device emu33

text="Once upon a time"
model=models/demo.gguf
[ -f $model ] || model=${DUET_TEST_DATA:-../shared/data}/models/stories260K-Q8_0.gguf
if [ -f "$model" ]; then
    say="$run -m $model -n 24 --seed 7 -p"
    expect 0 "tok/s" $say "$text"
    cp "$dir/out" "$dir/first"
    judge "$(iconv -f UTF-8 -t UTF-8 "$dir/out" 2>/dev/null | grep -q '[a-z]' || echo "no UTF-8 text")" "the completion"
    for other in "-t 3 -b 3" "--cpu-isa scalar"; do
        expect 0 "" $say "$text" $other
        judge "$(cmp "$dir/out" "$dir/first" 2>&1)" "same text with $other"
    done
    expect 0 "general.architecture" "$bin/inspect" "$model"
    expect 0 "ok" "$bin/inspect" --check "$model"
    head -c "$(($(wc -c <"$model") / 2))" "$model" >"$dir/cut"
    expect 1 "$dir/cut" "$bin/inspect" --check "$dir/cut"
    cp "$model" "$dir/nan"
    at=$("$bin/inspect" "$model" --kv --json | sed -n 's/.*"type": "f32", "offset": \([0-9]*\),.*/\1/p' | head -1)
    printf '\000\000\300\177' | dd of="$dir/nan" bs=1 seek="$at" conv=notrunc 2>/dev/null
    expect 1 "want a finite number, got nan" "$bin/inspect" --check "$dir/nan"
    expect 0 "[" "$bin/tokenize" -m "$model" --no-bos -p "$text"
    expect 0 "" "$bin/tokenize" -m "$model" --decode -p "$(cat "$dir/out")"
    prints "$text" "tokenize and back"
    expect 0 "" "$bin/perplexity" -m "$model" -f README.md -c 64 --chunks 2
    expect 2 "" "$bin/quantize" "$model" "$dir/made" Q9_9
    expect 0 "" "$bin/quantize" "$model" "$dir/q8" Q8_0
    expect 0 "ok" "$bin/inspect" --check "$dir/q8"
    expect 0 "tok/s" $say "$text" -m "$dir/q8"
    # An importance matrix of the model's own stories: the same bits, spent where stories use them.
    for seed in $(seq 24); do $say "$text" -n 200 -s $seed --temp 1 2>/dev/null; done >"$dir/stories"
    expect 0 "PPL" "$bin/perplexity" -m "$model" -f "$dir/stories" -c 128 --imatrix "$dir/matrix"
    expect 0 "blk.0.attn_q.weight.in_sum2" "$bin/inspect" "$dir/matrix"
    for type in Q2_K Q3_K; do
        expect 0 "" "$bin/quantize" "$model" "$dir/plain" $type --pure
        expect 0 "" "$bin/quantize" "$model" "$dir/weighted" $type --pure --imatrix "$dir/matrix"
        expect 0 "ok" "$bin/inspect" --check "$dir/weighted"
        plain=$("$bin/perplexity" -m "$dir/plain" -f "$dir/stories" -c 128 2>/dev/null)
        expect 0 "PPL" "$bin/perplexity" -m "$dir/weighted" -f "$dir/stories" -c 128
        judge "$(printf '%s\n%s\n' "$plain" "$(cat "$dir/out")" | awk '{ p[NR] = $3 } END { if (!(p[2] < p[1])) print p[2], "is not below", p[1] }')" \
            "$type with an importance matrix"
    done
    "$bin/bench" --synthetic tiny:f16 --save "$dir/other" >/dev/null 2>&1
    expect 1 "made for another model" "$bin/quantize" "$dir/other" "$dir/made" Q4_0 --imatrix "$dir/matrix"
    expect 1 "general.type: want imatrix" "$bin/quantize" "$model" "$dir/made" Q4_0 --imatrix "$model"
    expect 1 "GGUF form" "$bin/quantize" "$model" "$dir/made" Q4_0 --imatrix README.md
    expect 1 "$dir/none" "$bin/quantize" "$model" "$dir/none/made" Q8_0
else
    echo "skipped: smoke: the cases with a model: no models/demo.gguf, no $model"
fi

echo "smoke: $n_done cases, $n_failed failed"
[ $n_failed = 0 ]
