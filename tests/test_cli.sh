#!/bin/sh
# tests/test_cli.sh: behaviour of run, logits, perplexity and bench as programs: flags, wrong inputs, exit codes, what goes where.
# Needs nothing but the built tools: the model is a synthetic one that bench writes. RUN and BIN name other builds' programs.
# Prints one line per failed case; exit code 0 when there is none.
run=${RUN:-./run}
bin=${BIN:-bin}
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
n_cases=0
n_failed=0

fail() {
    n_failed=$((n_failed + 1))
    echo "FAILED: $1"
    sed 's/^/    stderr: /' "$dir/err" | head -5
}

# case_of NAME CODE STDERR-PATTERN COMMAND...: runs it for at most 60 s; stdout stays in $dir/out, stderr in $dir/err.
case_of() {
    name=$1 want=$2 pattern=$3
    shift 3
    n_cases=$((n_cases + 1))
    timeout 60 "$@" >"$dir/out" 2>"$dir/err" </dev/null
    code=$?
    if [ "$code" != "$want" ]; then fail "$name: exit code $code, want $want"; return 1; fi
    if [ -n "$pattern" ] && ! grep -q -e "$pattern" "$dir/err"; then fail "$name: stderr lacks '$pattern'"; return 1; fi
}

# holds NAME COMMAND...: a condition on what the last case left.
holds() {
    name=$1
    shift
    n_cases=$((n_cases + 1))
    "$@" >/dev/null 2>&1 || fail "$name"
}

model=$dir/tiny.gguf
case_of "bench --save" 0 "" "$bin/bench" --synthetic tiny:q4_0 --save "$model" || { echo "no model to test with"; exit 1; }

# ---- run: the command line ----
for tool in "$run" "$bin/logits" "$bin/perplexity" "$bin/bench"; do
    case_of "$tool -h" 0 "" "$tool" -h
    holds "$tool -h: help on stdout" grep -q "usage:" "$dir/out"
    case_of "$tool --version" 0 "" "$tool" --version
    holds "$tool --version: on stdout" grep -q "duet [0-9]" "$dir/out"
    case_of "$tool without arguments" 2 "usage:" "$tool"
    holds "$tool without arguments: no stdout" test ! -s "$dir/out"
    case_of "$tool: unknown flag" 2 "did you mean --model" "$tool" --modle x
    case_of "$tool: flag without value" 2 "needs a value" "$tool" -m
    case_of "$tool: missing file" 1 "$dir/none.gguf" "$tool" -m "$dir/none.gguf" $( [ "$tool" = "$run" ] && echo "-p x" ) \
        $( [ "$tool" = "$bin/logits" ] && echo "--ids 1 -o $dir/x" ) $( [ "$tool" = "$bin/perplexity" ] && echo "-f $0" )
done
"$run" -h >"$dir/help"
for flag in -m -p -f -n -c -t -b -s --temp --top-k --top-p --min-p --repeat-penalty --repeat-last-n --presence-penalty --frequency-penalty \
    --typical --top-n-sigma --xtc-probability --xtc-threshold --dry-multiplier --dry-base --dry-allowed-length --dry-penalty-last-n \
    --dynatemp-range --dynatemp-exp --mirostat --mirostat-ent --mirostat-lr --logit-bias --ignore-eos -v --version -h --device --devices \
    --cpu-isa --cache-type -ctk --json --verbose-prompt --stop --special --no-bos --parse-special --n-predict --predict --ctx-size --seed; do
    holds "run -h lists $flag" grep -q -e "[ ,]$flag[ ,]" "$dir/help"
done
case_of "no prompt" 2 "no prompt" "$run" -m "$model"
case_of "number with a tail" 2 "12x" "$run" -m "$model" -p x -n 12x
case_of "number out of range" 2 "want a whole number from -1" "$run" -m "$model" -p x -n -2
case_of "number too large" 2 "want a whole number" "$run" -m "$model" -p x -c 99999999999999999999
case_of "temp out of range" 2 "want a number from 0 to 100, got '-1'; usage:" "$run" -m "$model" -p x --temp -1
holds "wrong command line: one line" test "$(wc -l <"$dir/err")" = 1
case_of "top_k out of range" 2 "from 0 to 16777216" "$run" -m "$model" -p x --top-k 1e9
case_of "stop text like a flag" 2 "write '--stop=-n'" "$run" -m "$model" -p t300 --stop -n 1
case_of "stop text like a flag, as value" 0 "generated 1 " "$run" -m "$model" -p t300 --stop=-n -n 1 --ignore-eos
case_of "context beyond training" 0 "^warning: a context of 140000 tokens" "$run" -m "$model" -p t300 -c 140000 -n 1 --ignore-eos
case_of "temp not a number" 2 "temp" "$run" -m "$model" -p x --temp nan
case_of "top_p out of range" 2 "--top-p" "$run" -m "$model" -p x --top-p 7
case_of "underscores in flags" 0 "generated 1 " "$run" -m "$model" -p t300 -n 1 --top_k 5 --ignore_eos
case_of "flag=value" 0 "generated 1 " "$run" --model="$model" --prompt=t300 --n-predict=1 --ignore-eos
case_of "reverse prompt" 2 "--stop" "$run" -m "$model" -p x -r "User:"
case_of "gpu layers without a gpu" 0 "no GPU is used" "$run" -m "$model" -p x -n 1 --device cpu -ngl 99
case_of "gpu layers of a device" 0 "on the GPU: 1 of" "$run" -m "$model" -p x -n 1 -v --device emu32 -ngl 1
case_of "gpu layers auto" 0 "generated 1 " "$run" -m "$model" -p x -n 1 --device emu32 --gpu-layers auto
case_of "gpu layers no number" 2 "want auto or a number" "$run" -m "$model" -p x -ngl most
case_of "cache type" 2 "f16|f32|q8_0" "$run" -m "$model" -p x -ctk q2
case_of "mode fast without BF16" 0 "mode fast has no effect" "$run" -m "$model" -p x -n 1 --fast
case_of "mode fast with a device" 0 "mode fast is not used" "$run" -m "$model" -p x -n 1 --device emu32 --fast
case_of "unknown isa" 1 "isa" "$run" -m "$model" -p x --cpu-isa z80
case_of "unknown device" 1 "device" "$run" -m "$model" -p x --device cuda
case_of "argument too many" 2 "quotes" "$run" -m "$model" -p Once upon
case_of "model without -m" 2 "such as -m" "$run" "$model"
case_of "flag of other programs" 2 "exits; usage" "$run" -m "$model" -p x -i
case_of "bench of nothing" 2 "nothing to measure" "$bin/bench" -m "$model" -p 0 -n 0
case_of "quantize: type of no tensor" 1 "no tensor has such a name" "$bin/quantize" "$model" "$dir/none" Q8_0 --type nosuch=Q4_0
case_of "two prompts" 2 "not both" "$run" -m "$model" -p x -f "$0"
case_of "bias of no token" 1 "512 tokens" "$run" -m "$model" -p x --logit-bias 512+1
case_of "bias without sign" 2 "ID+BIAS" "$run" -m "$model" -p x --logit-bias 5
case_of "--devices" 0 "" "$run" --devices
holds "--devices lists the cpu" grep -q "^cpu" "$dir/out"

# ---- run: files that are no models ----
mkfifo "$dir/fifo"
: >"$dir/empty.gguf"
echo '<!DOCTYPE html><html><body>Not found</body></html>' >"$dir/page.gguf"
head -c 3000 "$model" >"$dir/cut.gguf"
case_of "directory" 1 "directory" "$run" -m "$dir" -p x
case_of "FIFO" 1 "fifo" "$run" -m "$dir/fifo" -p x
case_of "empty file" 1 "empty" "$run" -m "$dir/empty.gguf" -p x
case_of "HTML page" 1 "HTML" "$run" -m "$dir/page.gguf" -p x
case_of "cut file" 1 "cut.gguf" "$run" -m "$dir/cut.gguf" -p x
holds "one line of error" test "$(wc -l <"$dir/err")" = 1
case_of "prompt file missing" 1 "none.txt" "$run" -m "$model" -f "$dir/none.txt"
case_of "prompt file is a directory" 1 "directory" "$run" -m "$model" -f "$dir"
case_of "prompt FIFO without a writer" 0 "prompt 1 tokens" "$run" -m "$model" -f "$dir/fifo" -n 1 --ignore-eos
case_of "prompt longer than the context" 1 "-c" "$run" -m "$model" -c 8 -p "t300 t301 t302 t303 t304"
holds "too long: no stdout" test ! -s "$dir/out"
case_of "context of no machine" 1 "-c" "$run" -m "$model" -c 1073741824 -p x
case_of "error as JSON" 1 "none.gguf" "$run" --json -m "$dir/none.gguf" -p x
holds "error as JSON: the line" grep -q '^{"event":"error","code":"DUET_ERR_IO","message":".*"}$' "$dir/out"

# ---- run: completions ----
case_of "greedy" 0 "generated 8 " "$run" -m "$model" -p t300 -n 8 --temp 0 --ignore-eos
cp "$dir/out" "$dir/greedy"
holds "something was written" test -s "$dir/greedy"
printf 't300\n' >"$dir/prompt"
case_of "prompt from a file" 0 "prompt 5 tokens\|prompt [0-9]* tokens" "$run" -m "$model" -f "$dir/prompt" -n 8 --temp 0 --ignore-eos -t 1 -b 1
holds "same text from a file, with one thread and batches of one" cmp "$dir/out" "$dir/greedy"
n_cases=$((n_cases + 1))
"$run" -m "$model" -p - -n 8 --temp 0 --ignore-eos <"$dir/prompt" 2>"$dir/err" | cmp -s - "$dir/greedy" || fail "prompt from stdin"
case_of "seed" 0 "seed 7" "$run" -m "$model" -p t300 -n 20 -s 7 --ignore-eos
cp "$dir/out" "$dir/seeded"
case_of "same seed" 0 "" "$run" -m "$model" -p t300 -n 20 -s 7 --ignore-eos
holds "same seed, same text" cmp "$dir/out" "$dir/seeded"
case_of "no tokens" 0 "generated 0 " "$run" -m "$model" -p t300 -n 0
holds "no tokens, no text" test ! -s "$dir/out"
case_of "empty prompt" 0 "prompt 1 tokens" "$run" -m "$model" -p "" -n 2 --ignore-eos
case_of "empty prompt without BOS" 1 "empty" "$run" -m "$model" -p "" --no-bos
case_of "until the context is full" 0 "(context)" "$run" -m "$model" -p t300 -c 32 --ignore-eos
case_of "verbose" 0 "context 64" "$run" -m "$model" -p t300 -n 1 -c 64 -v
case_of "verbose prompt" 0 '"<s>"' "$run" -m "$model" -p t300 -n 1 --verbose-prompt
case_of "json" 0 "" "$run" -m "$model" -p t300 -n 8 --temp 0 --ignore-eos --json
holds "json: tokens" test "$(grep -c '^{"event":"token","id":[0-9]*,"pos":[0-9]*,"text":".*"}$' "$dir/out")" = 8
holds "json: end" sh -c "tail -1 '$dir/out' | grep -q '^{\"event\":\"end\",\"reason\":\"limit\",\"n_prompt\":[0-9]*,\"n_generated\":8,.*}\$'"
if command -v python3 >/dev/null; then
    holds "json: every line is JSON and the texts are the completion" python3 -c "
import json, sys
text = ''.join(json.loads(line).get('text', '') for line in open(sys.argv[1], 'rb'))
sys.exit(text.encode() != open(sys.argv[2], 'rb').read())" "$dir/out" "$dir/greedy"
else
    echo "skipped: 1 case: no python3 to read JSON with"
fi
stop=$(cut -c 4-6 "$dir/greedy" | head -1)
case_of "stop text" 0 "(stop)" "$run" -m "$model" -p t300 -n 8 --temp 0 --ignore-eos --stop "$stop"
holds "stop text is not written" sh -c "! grep -q -F -e '$stop' '$dir/out'"

# A signal ends the text, not the program's manners; a reader that goes away ends it quietly.
n_cases=$((n_cases + 3))
for seconds in 1 5 20; do   # until text came before the signal: a slow start may take a second; --foreground: one signal, not two
    timeout --foreground --preserve-status -s INT $seconds "$run" -m "$model" -p t300 -c 100000 --ignore-eos >"$dir/out" 2>"$dir/err" </dev/null
    code=$?
    [ -s "$dir/out" ] && break
done
[ $code = 0 ] || fail "Ctrl-C: exit code $code, want 0"
grep -q "(cancelled)" "$dir/err" || fail "Ctrl-C: no statistics"
{ timeout 20 "$run" -m "$model" -p t300 -c 100000 --ignore-eos 2>"$dir/err"; echo $? >"$dir/code"; } </dev/null | head -c 5 >/dev/null
code=$(cat "$dir/code")
[ "$code" = 141 ] || [ "$code" = 1 ] || fail "closed pipe: exit code $code, want 141 or 1"
if [ -e /dev/full ]; then
    n_cases=$((n_cases + 1))
    timeout 20 "$run" -m "$model" -p t300 -c 1000 --ignore-eos >/dev/full 2>"$dir/err" </dev/null
    [ $? = 1 ] && grep -q "stdout" "$dir/err" || fail "full disk"
fi

# ---- logits ----
ids=1,300,301,302,5,6,7,400,401,402,403
case_of "logits" 0 "" "$bin/logits" -m "$model" --ids $ids -o "$dir/a.f32"
holds "logits: size" test "$(wc -c <"$dir/a.f32")" = $((11 * 512 * 4))
printf '{"ids": [1,300,301,302,5,6,\n7,400,401,402, 403]}' >"$dir/ids.json"
case_of "logits in chunks" 0 "" "$bin/logits" -m "$model" --ids-file "$dir/ids.json" --chunk 3 -t 1 -c 100 -o "$dir/b.f32"
holds "chunks and threads: same bits" cmp "$dir/a.f32" "$dir/b.f32"
case_of "logits by scalar code" 0 "" "$bin/logits" -m "$model" --ids $ids --cpu-isa scalar -o "$dir/b.f32"
holds "scalar code: same bits" cmp "$dir/a.f32" "$dir/b.f32"
case_of "logits without -o" 2 "-o" "$bin/logits" -m "$model" --ids 1
case_of "logits without ids" 2 "--ids" "$bin/logits" -m "$model" -o "$dir/b.f32"
case_of "wrong id text" 1 "id 1" "$bin/logits" -m "$model" --ids 1,x -o "$dir/c.f32"
case_of "id out of range" 1 "512" "$bin/logits" -m "$model" --ids 1,512 -o "$dir/c.f32"
holds "nothing half-done" test ! -e "$dir/c.f32"
case_of "context too short" 1 "context of 4" "$bin/logits" -m "$model" --ids $ids -c 4 -o "$dir/c.f32"
case_of "output cannot be made" 1 "none/x" "$bin/logits" -m "$model" --ids 1 -o "$dir/none/x"

# ---- perplexity, bench ----
i=0
while [ $i -lt 300 ]; do echo "t3$((i % 90 + 10)) t4$((i % 70 + 10))"; i=$((i + 1)); done >"$dir/text"
case_of "perplexity" 0 "tokens scored in" "$bin/perplexity" -m "$model" -f "$dir/text" -c 128 --chunks 2
holds "perplexity: result" grep -q "^PPL = [0-9.]* +/- [0-9.]*$" "$dir/out"
cp "$dir/out" "$dir/ppl"
case_of "perplexity in batches" 0 "" "$bin/perplexity" -m "$model" -f "$dir/text" -c 128 --chunks 2 -b 7
holds "batches: same result" cmp "$dir/out" "$dir/ppl"
case_of "perplexity, stride" 0 "" "$bin/perplexity" -m "$model" -f "$dir/text" -c 128 --stride 64 --chunks 2 --json
holds "perplexity, stride: 128 scored" grep -q '"n_scored":128,' "$dir/out"
case_of "text too short" 1 "take a longer text" "$bin/perplexity" -m "$model" -f "$dir/prompt" -c 128
case_of "bench" 0 "" "$bin/bench" -m "$model" -p 16 -n 4 -r 2 --batch 1,2 --depth 8 --ops
holds "bench: a row per test" test "$(grep -c '^pp16\|^tg4' "$dir/out")" -ge 3
case_of "bench --json" 0 "" "$bin/bench" --synthetic tiny:q8_0 -p 16 -n 4 -r 2 -t 1,2 --ops --json
holds "bench --json: one object" test "$(wc -l <"$dir/out")" = 1
case_of "bench: unknown shape" 1 "tiny, 1b, 3b" "$bin/bench" --synthetic 9b:q4_0
case_of "bench: unknown format" 1 "number format" "$bin/bench" --synthetic 1b:q9_9

echo "test_cli: $n_cases cases, $n_failed failed"
[ $n_failed = 0 ]
