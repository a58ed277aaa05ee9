#!/bin/sh
# tests/smoke.sh BIN_DIR RUN: runs every tool: help, wrong flags, wrong files (exit codes and messages), and with a model what it is for.
# Model: models/demo.gguf, else a small one of DUET_TEST_DATA; without either those cases are skipped. Runs from the repository root.
set -u
bin=$1 run=$2
data=${DUET_TEST_DATA:-../shared/data}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
n_done=0 n_failed=0

# expect CODE WHAT COMMAND...: runs it for at most 60 seconds with no input; stdout and stderr go to $dir/out and $dir/err.
# WHAT: a text that stderr must hold, "" for any. A failing command must leave stdout empty.
expect() {
    want=$1 what=$2
    shift 2
    timeout 60 "$@" </dev/null >"$dir/out" 2>"$dir/err"
    code=$? problem=
    [ $code = "$want" ] || problem="exit code $code, want $want"
    [ -z "$what" ] || grep -qF -- "$what" "$dir/err" || problem="$problem stderr lacks '$what'"
    [ "$want" = 0 ] || [ ! -s "$dir/out" ] || problem="$problem stdout is not empty"
    judge "$problem" "$*"
}
judge() { # PROBLEM COMMAND
    n_done=$((n_done + 1))
    [ -n "$1" ] || return 0
    n_failed=$((n_failed + 1))
    echo "smoke: $2: $1" >&2
    head -c 300 "$dir/err" | sed 's/^/    /' >&2
}
same() { if cmp -s "$1" "$2"; then judge "" "$3"; else judge "$1 and $2 differ" "$3"; fi; }
has_tool() { [ -x "$bin/$1" ]; }

# ---- every tool: help, version, flags that are not there ----
tools=
for t in "$run" "$bin"/*; do [ -f "$t" ] && [ -x "$t" ] && [ "$t" != "$bin/run" -o "$t" = "$run" ] && tools="$tools $t"; done
for t in $(printf '%s\n' $tools | sort -u); do
    expect 0 "" "$t" -h
    [ -s "$dir/out" ] || judge "help is empty" "$t -h"
    expect 0 "" "$t" --version
    expect 2 "--no-such-flag" "$t" --no-such-flag
    expect 2 "" "$t"
done

# ---- wrong files ----
mkdir "$dir/folder" && mkfifo "$dir/fifo" && : >"$dir/empty.gguf"
echo '<!DOCTYPE html><html><body>404</body></html>' >"$dir/html.gguf"
printf 'GGUF\003\000\000\000' >"$dir/short.gguf"
printf 'GGUF\003\000\000\000\377\377\377\377\377\377\377\177\000\000\000\000\000\000\000\000' >"$dir/huge.gguf"
for file in folder fifo empty.gguf html.gguf short.gguf huge.gguf absent.gguf; do
    expect 1 "$file" "$run" -m "$dir/$file" -p text
    has_tool inspect && expect 1 "$file" "$bin/inspect" "$dir/$file"
    has_tool inspect && expect 1 "$file" "$bin/inspect" --check "$dir/$file"
    has_tool tokenize && expect 1 "$file" "$bin/tokenize" -m "$dir/$file" -p text
    has_tool logits && expect 1 "$file" "$bin/logits" -m "$dir/$file" --ids 1 -o "$dir/x.f32"
    has_tool perplexity && expect 1 "$file" "$bin/perplexity" -m "$dir/$file" -f README.md
    has_tool bench && expect 1 "$file" "$bin/bench" -m "$dir/$file"
    has_tool quantize && expect 1 "$file" "$bin/quantize" "$dir/$file" "$dir/out.gguf" Q4_0
done
judge "$([ ! -e "$dir/out.gguf" ] || echo "it left a file")" "quantize of wrong files"
expect 2 "-m" "$run" -p text
expect 2 "-p" "$run" -m "$dir/html.gguf"
for bad in "--temp nan" "--temp -1" "--top-k x" "--top-p 2" "-n 1.5" "-c -4" "-t 99999999" "--seed x" "--cpu-isa z80"; do
    expect 2 "${bad%% *}" "$run" -m models/demo.gguf -p text $bad
done

# ---- with a model ----
model=models/demo.gguf
[ -f $model ] || model=$data/models/stories260K-Q8_0.gguf
if [ ! -f "$model" ]; then
    echo "skipped: smoke: the cases with a model: no models/demo.gguf, no $model" >&2
else
    say="$run -m $model -n 24 -c 128 --seed 7"
    expect 0 "tok/s" $say -p "Once upon a time"
    cp "$dir/out" "$dir/first"
    judge "$([ -s "$dir/out" ] && iconv -f UTF-8 -t UTF-8 "$dir/out" >/dev/null || echo "not UTF-8 text")" "the completion"
    judge "$(! grep -q "Once upon a time" "$dir/out" || echo "repeats the prompt")" "the completion"
    expect 0 "" $say -p "Once upon a time" -t 2 -b 3
    same "$dir/out" "$dir/first" "other threads and batch size"
    expect 0 "" $say -p "Once upon a time" --cpu-isa scalar
    same "$dir/out" "$dir/first" "scalar code"
    printf 'Once upon a time\n' >"$dir/prompt.txt"
    expect 0 "" $say -f "$dir/prompt.txt"
    same "$dir/out" "$dir/first" "prompt from a file"
    n_done=$((n_done + 1))
    printf 'Once upon a time' | $say -p - >"$dir/out" 2>"$dir/err" || judge "exit code $?" "prompt from stdin"
    same "$dir/out" "$dir/first" "prompt from stdin"
    expect 0 "" $say -p "Once upon a time" --json
    judge "$(grep -q '"event":"token"' "$dir/out" && tail -n 1 "$dir/out" | grep -q '"event":"end"' || echo "events are missing")" "run --json"
    expect 1 "128" $say -p "$(yes 'a long prompt' | head -n 400)"
    expect 2 "unexpected argument" $say -p Once upon

    if has_tool inspect; then
        expect 0 "" "$bin/inspect" "$model"
        judge "$(grep -q general.architecture "$dir/out" || echo "shows no architecture")" "inspect"
        expect 0 "" "$bin/inspect" --json "$model"
        expect 0 "" "$bin/inspect" --check "$model"
        head -c "$(($(wc -c <"$model") - 1))" "$model" >"$dir/cut.gguf"
        expect 1 "cut.gguf" "$bin/inspect" --check "$dir/cut.gguf"
        expect 1 "cut.gguf" "$run" -m "$dir/cut.gguf" -p text
    fi
    if has_tool tokenize; then
        expect 0 "" "$bin/tokenize" -m "$model" --no-bos -p "Once upon a time"
        judge "$(grep -Eq '^\[[0-9]+(, ?[0-9]+)*\]$' "$dir/out" || echo "no JSON array of ids")" "tokenize"
        ids=$(cat "$dir/out")
        expect 0 "" "$bin/tokenize" -m "$model" --decode -p "$ids"
        judge "$([ "$(cat "$dir/out")" = "Once upon a time" ] || echo "decodes to $(cat "$dir/out")")" "tokenize --decode"
    fi
    if has_tool logits; then
        expect 0 "" "$bin/logits" -m "$model" --ids 1,5,6,7,8,9,10,11,12 -o "$dir/a.f32"
        for other in "--chunk 1" "--chunk 4" "-t 1" "-t 3" "--cpu-isa scalar" "--cpu-isa avx2" "--cpu-isa avx512"; do
            if timeout 60 "$bin/logits" -m "$model" --ids 1,5,6,7,8,9,10,11,12 $other -o "$dir/b.f32" 2>"$dir/err"; then
                same "$dir/a.f32" "$dir/b.f32" "logits $other"
            else # an instruction set this machine lacks is a message
                judge "$(grep -q avx "$dir/err" || echo "failed without a reason")" "logits $other"
            fi
        done
    fi
    has_tool perplexity && expect 0 "" "$bin/perplexity" -m "$model" -f README.md -c 64 --chunks 2
    if has_tool bench; then
        expect 0 "" "$bin/bench" -m "$model" -p 16 -n 4 -r 1 --json
        judge "$(head -c 1 "$dir/out" | grep -q '{' || echo "no JSON object")" "bench --json"
    fi
    if has_tool quantize; then
        expect 2 "Q9_9" "$bin/quantize" "$model" "$dir/q.gguf" Q9_9
        expect 0 "" "$bin/quantize" "$model" "$dir/q.gguf" Q8_0
        expect 0 "" "$run" -m "$dir/q.gguf" -p "Once upon a time" -n 8
        expect 1 "" "$bin/quantize" "$model" "$dir/no such folder/q.gguf" Q8_0
    fi
fi

echo "smoke: $n_done checks, $n_failed failed"
[ $n_failed = 0 ]
