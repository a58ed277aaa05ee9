#!/bin/sh
# tests/test_cli.sh: behaviour of run, logits, perplexity, bench and quantize as programs: flags, wrong inputs, exit codes, what goes where.
# Needs nothing but the built tools: the model is a synthetic one that bench writes. RUN and BIN name other builds' programs,
# EXAMPLES the folder of the examples.
# WINDOWS=1: they are programs of Windows, under Wine (tests/windows.sh). Prints one line per failed case; exit code 0 when there is none.
run=${RUN:-./run}
bin=${BIN:-bin}
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
n_cases=0
n_failed=0
limit=${WINDOWS:+300} limit=${limit:-60} # seconds of one command

fail() {
    n_failed=$((n_failed + 1))
    echo "FAILED: $1"
    sed 's/^/    stderr: /' "$dir/err" | head -5
}

# case_of NAME CODE STDERR-PATTERN COMMAND...: runs it for at most $limit s; stdout stays in $dir/out, stderr in $dir/err.
case_of() {
    name=$1 want=$2 pattern=$3
    shift 3
    n_cases=$((n_cases + 1))
    timeout $limit "$@" >"$dir/out" 2>"$dir/err" </dev/null
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
for tool in "$run" "$bin/logits" "$bin/perplexity" "$bin/bench" "$bin/embed"; do
    case_of "$tool -h" 0 "" "$tool" -h
    holds "$tool -h: help on stdout" grep -q "usage:" "$dir/out"
    case_of "$tool --version" 0 "" "$tool" --version
    holds "$tool --version: on stdout" grep -q "duet [0-9]" "$dir/out"
    case_of "$tool without arguments" 2 "usage:" "$tool"
    holds "$tool without arguments: no stdout" test ! -s "$dir/out"
    case_of "$tool: unknown flag" 2 "did you mean --model" "$tool" --modle x
    case_of "$tool: flag without value" 2 "needs a value" "$tool" -m
    case_of "$tool: --help for a value" 2 "needs a value .*found the flag '--help'" "$tool" -m --help
    case_of "$tool: missing file" 1 "$dir/none.gguf" "$tool" -m "$dir/none.gguf" $( case $tool in "$run" | "$bin/embed") echo "-p x" ;; esac ) \
        $( [ "$tool" = "$bin/logits" ] && echo "--ids 1 -o $dir/x" ) $( [ "$tool" = "$bin/perplexity" ] && echo "-f $0" )
done
"$run" -h >"$dir/help"
for flag in -m -p -f -n -c -t -b -s --temp --top-k --top-p --min-p --repeat-penalty --repeat-last-n --presence-penalty --frequency-penalty \
    --typical --top-n-sigma --xtc-probability --xtc-threshold --dry-multiplier --dry-base --dry-allowed-length --dry-penalty-last-n \
    --dynatemp-range --dynatemp-exp --mirostat --mirostat-ent --mirostat-lr --logit-bias --ignore-eos -v --version -h --device --devices \
    --raw --chat --system --messages --tools --tool-choice --think --show-thinking --chat-template --show-template --ctx-overflow \
    --grammar --grammar-file --json-schema -j --prompt-cache --cpu-isa --cache-type -ctk --json --verbose-prompt --stop --special --no-bos --parse-special --n-predict --predict --ctx-size --seed; do
    holds "run -h lists $flag" grep -q -e "[ ,]$flag[ ,]" "$dir/help"
done
holds "run -h: a bound as it was written" grep -q "(0.01 to 100, default 1)" "$dir/help"
case_of "no prompt" 2 "no prompt" "$run" -m "$model"
case_of "number with a tail" 2 "12x" "$run" -m "$model" -p x -n 12x
case_of "number out of range" 2 "want a whole number from -1" "$run" -m "$model" -p x -n -2
case_of "number too large" 2 "want a whole number" "$run" -m "$model" -p x -c 99999999999999999999
case_of "temp out of range" 2 "want a number from 0 to 100, got '-1'; usage:" "$run" -m "$model" -p x --temp -1
holds "wrong command line: one line" test "$(wc -l <"$dir/err")" = 1
case_of "repeat penalty out of range" 2 "from 0.01 to 100, got '0'" "$run" -m "$model" -p x --repeat-penalty 0
case_of "top_k out of range" 2 "from 0 to 16777216" "$run" -m "$model" -p x --top-k 1e9
case_of "stop text like a flag" 2 "write '--stop=-n'" "$run" -m "$model" -p t300 --stop -n 1
case_of "stop text like a flag, as value" 0 "generated 1 " "$run" -m "$model" -p t300 --stop=-n -n 1 --ignore-eos
case_of "context beyond training" 0 "^warning: a context of 140000 tokens" "$run" -m "$model" -p t300 -c 140000 -n 1 --ignore-eos
for number in nan 0x1 " 1" 1e 1,5 1e999; do
    case_of "temp not a number: $number" 2 "temp" "$run" -m "$model" -p x --temp "$number"
done
case_of "temp with a sign and an exponent" 0 "generated 1 " "$run" -m "$model" -p x -n 1 --ignore-eos --temp +.05e1
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
case_of "mode fast in attention" 0 "on emu32, fast" "$run" -m "$model" -p x -n 1 -v --device emu32 --fast
case_of "unknown isa" 1 "isa" "$run" -m "$model" -p x --cpu-isa z80
case_of "unknown device" 1 "device" "$run" -m "$model" -p x --device cuda
case_of "argument too many" 2 "quotes" "$run" -m "$model" -p Once upon
case_of "model without -m" 2 "such as -m" "$run" "$model"
case_of "flag of other programs" 2 "--chat is the interactive mode" "$run" -m "$model" -p x -i
case_of "flag of other programs for what happens anyway" 0 "generated 1 " "$run" -m "$model" -p t300 -n 1 --ignore-eos --jinja --no_warmup
case_of "flag of other programs, its value is not read" 2 "^run: -fa: there is nothing to choose" "$run" -m "$model" -p x -fa on
case_of "flag of other programs: quantize" 2 "--type NAME=TYPE" "$bin/quantize" "$model" "$dir/none" Q8_0 --output-tensor-type Q6_K
case_of "flag of other programs: --dry-run" 2 "-v lists the tensors" "$bin/quantize" "$model" "$dir/none" Q8_0 --dry-run
case_of "flag of other programs: --keep-split" 2 "one file is written" "$bin/quantize" "$model" "$dir/none" Q8_0 --keep-split
case_of "flag of other programs: --override-kv" 2 "keys are taken as they are" "$run" -m "$model" -p x --override-kv a=int:1
case_of "other programs' name of the cache type" 0 "generated 1 " "$run" -m "$model" -p t300 -n 1 --ignore-eos --cache-type-k f32
case_of "unknown short flag" 2 "^bench: unknown flag '-o'; usage:" "$bin/bench" -m "$model" -o json
case_of "unknown flag that is far from all" 2 "^run: unknown flag '--keep'; usage:" "$run" -m "$model" -p x --keep 5
case_of "unknown flag that is near one" 2 "did you mean --seed" "$run" -m "$model" -p x --sead 5
case_of "bench of nothing" 2 "nothing to measure" "$bin/bench" -m "$model" -p 0 -n 0
case_of "quantize: type of no tensor" 1 "no tensor of two dimensions has such a name" "$bin/quantize" "$model" "$dir/none" Q8_0 --type nosuch=Q4_0
case_of "quantize: type of tensors that keep theirs" 1 "no tensor of two dimensions has such a name" "$bin/quantize" "$model" "$dir/none" Q8_0 --type attn_norm=F16
case_of "two prompts" 2 "not both" "$run" -m "$model" -p x -f "$0"
case_of "two prompts, one of them stdin" 2 "not both" "$run" -m "$model" -p - -f "$0"
case_of "two prompts, the other way round" 2 "not both" "$run" -m "$model" -f "$0" -p -
case_of "tokenize: two texts, one of them stdin" 2 "either -p or -f" "$bin/tokenize" -m "$model" -p - -f "$0"
case_of "tokenize: two texts, the other way round" 2 "either -p or -f" "$bin/tokenize" -m "$model" -f "$0" -p -
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
printf 't300\r\n' >"$dir/prompt_crlf"
case_of "prompt from a file of Windows" 0 "" "$run" -m "$model" -f "$dir/prompt_crlf" -n 8 --temp 0 --ignore-eos
holds "its end of line is not the prompt's" cmp "$dir/out" "$dir/greedy"
printf '\357\273\277t300\r\n' >"$dir/prompt_mark"
case_of "prompt from a file of Windows with the mark of UTF-8" 0 "" "$run" -m "$model" -f "$dir/prompt_mark" -n 8 --temp 0 --ignore-eos
holds "the mark is not the prompt's" cmp "$dir/out" "$dir/greedy"
printf '\377\376t\0003\0000\0000\000' >"$dir/prompt_16"
case_of "prompt in UTF-16" 1 "want UTF-8, got UTF-16" "$run" -m "$model" -f "$dir/prompt_16" -n 8
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
case_of "verbose, a mapped file" 0 "weights [0-9.]* MB (mapped), cache" "$run" -m "$model" -p t300 -n 1 -v
case_of "verbose, a file in memory" 0 "weights [0-9.]* MB, cache" "$run" -m "$model" -p t300 -n 1 -v --no-mmap
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


# ---- a full disk behind stdout ----
# on_full_disk NAME PATTERN COMMAND...: its stdout is /dev/full; the exit code is 1, one line of stderr has the pattern.
on_full_disk() {
    name=$1 pattern=$2
    shift 2
    n_cases=$((n_cases + 1))
    timeout $limit "$@" >/dev/full 2>"$dir/err" </dev/null
    code=$?
    [ "$code" = 1 ] || fail "$name: exit code $code, want 1"
    [ "$(grep -c "$pattern" "$dir/err")" = 1 ] || fail "$name: want one line about stdout"
}
if [ -e /dev/full ]; then
    for tool in "$run" "$bin/bench" "$bin/inspect" "$bin/logits" "$bin/perplexity" "$bin/quantize" "$bin/tokenize"; do
        on_full_disk "$tool -h, full disk" "stdout" "$tool" -h
        on_full_disk "$tool --version, full disk" "stdout" "$tool" --version
    done
    on_full_disk "bench, full disk" "stdout" "$bin/bench" -m "$model" -p 8 -n 2 -r 1
    on_full_disk "bench --json, full disk" "stdout" "$bin/bench" -m "$model" -p 8 -n 2 -r 1 --json
    on_full_disk "run --devices, full disk" "stdout" "$run" --devices
    on_full_disk "inspect, full disk" "stdout" "$bin/inspect" "$model"
fi

# ---- a schema or grammar without text is an error, not freedom; special files are written to, not replaced ----
: >"$dir/empty"
case_of "empty schema" 1 "empty, want a grammar or a schema" "$run" -m "$model" -p t1 -n 2 --json-schema "@$dir/empty"
case_of "empty grammar" 1 "empty, want a grammar or a schema" "$run" -m "$model" -p t1 -n 2 --grammar-file "$dir/empty"
if [ -z "${WINDOWS:-}" ] && command -v mkfifo >/dev/null; then
    mkfifo "$dir/cache_fifo"
    timeout $limit cat "$dir/cache_fifo" >"$dir/through" &
    case_of "prompt cache to a FIFO" 0 "" "$run" -m "$model" -p t1 -n 2 --prompt-cache "$dir/cache_fifo"
    wait $!
    holds "prompt cache to a FIFO: what came through" test -s "$dir/through"
    holds "prompt cache to a FIFO: it is there" test -p "$dir/cache_fifo"
fi

# ---- what is read is not written over ----
cp "$model" "$dir/kept.gguf"
echo "some text" >"$dir/notes"
case_of "the model as a prompt cache" 1 "want a saved state" "$run" -m "$model" -p t1 -n 2 --prompt-cache "$model"
case_of "a folder as a prompt cache, before the model is read" 1 "want a file, found a directory" "$run" -m "$dir/none" -p t1 --prompt-cache "$dir"
case_of "a prompt cache in no folder, before the model is read" 1 "none/x: cannot be written" "$run" -m "$dir/none" -p t1 --prompt-cache "$dir/none/x"
if [ -r /proc/self/environ ]; then    # an empty file, in a folder that takes no new ones
    case_of "a prompt cache in a folder that cannot be written" 1 "environ: cannot be written" env -i "$run" -m "$model" -p t1 -n 2 --prompt-cache /proc/self/environ
    holds "a prompt cache in a folder that cannot be written: nothing was computed" test ! -s "$dir/out"
fi
case_of "a text as a prompt cache" 1 "want a saved state" "$run" -m "$model" -p t1 -n 2 --prompt-cache "$dir/notes"
case_of "the model as an importance matrix" 1 "is read" "$bin/perplexity" -m "$model" -f "$dir/notes" --imatrix "$model"
case_of "the text as an importance matrix" 1 "is read" "$bin/perplexity" -m "$model" -f "$dir/notes" --imatrix "$dir/notes"
case_of "an importance matrix to nowhere" 1 "cannot be written" "$bin/perplexity" -m "$model" -f "$dir/notes" --imatrix "$dir/none/x"
case_of "a text instead of a grammar with NUL bytes" 1 "found a NUL byte" "$run" -m "$model" -p t1 -n 2 --grammar-file "$model"
case_of "the model as a plot" 1 "is read" "$bin/bench" -m "$model" --plot "$model"
case_of "the model as logits" 1 "is read" "$bin/logits" -m "$model" --ids 1 -o "$model"
echo "[1, 2]" >"$dir/these"
case_of "the ids as logits" 1 "is read" "$bin/logits" -m "$model" --ids-file "$dir/these" -o "$dir/these"
holds "the ids are as they were" test "$(cat "$dir/these")" = "[1, 2]"
echo kept >"$dir/m.gguf.part"    # another program may be fetching it
case_of "an importance matrix beside a file of that name" 0 "" "$bin/perplexity" -m "$model" -f "$dir/notes" -c 4 --imatrix "$dir/m.gguf"
holds "what is beside it is as it was" test "$(cat "$dir/m.gguf.part")" = "kept"
holds "the model is as it was" cmp "$model" "$dir/kept.gguf"
holds "the text is as it was" test "$(cat "$dir/notes")" = "some text"

# ---- an output that is a symbolic link: what it leads to is written, the link stays ----
if [ -z "${WINDOWS:-}" ]; then
    for of in logits matrix cache plot model; do echo old >"$dir/at_$of"; ln -s "at_$of" "$dir/to_$of"; done
    : >"$dir/at_cache"
    case_of "logits to a link" 0 "" "$bin/logits" -m "$model" --ids 1 -o "$dir/to_logits"
    case_of "an importance matrix to a link" 0 "" "$bin/perplexity" -m "$model" -f "$dir/notes" -c 4 --imatrix "$dir/to_matrix"
    case_of "a prompt cache to a link" 0 "" "$run" -m "$model" -p t1 -n 2 --prompt-cache "$dir/to_cache"
    case_of "a plot to a link" 0 "" "$bin/bench" -m "$model" -p 8 -n 4 -r 1 -d 0,8 --batch 1,2 --plot "$dir/to_plot"
    case_of "a model to a link" 0 "" "$bin/bench" --synthetic tiny:q4_0 --save "$dir/to_model"
    for of in logits matrix cache plot model; do
        holds "$of: the link is there" test -L "$dir/to_$of"
        holds "$of: it was written" test "$(wc -c <"$dir/at_$of")" -gt 100
    done
    for of in logits matrix cache plot model; do ln -s "put_$of" "$dir/new_$of"; done    # they lead to nothing yet
    case_of "logits to a link to nothing" 0 "" "$bin/logits" -m "$model" --ids 1 -o "$dir/new_logits"
    case_of "an importance matrix to a link to nothing" 0 "" "$bin/perplexity" -m "$model" -f "$dir/notes" -c 4 --imatrix "$dir/new_matrix"
    case_of "a prompt cache to a link to nothing" 0 "" "$run" -m "$model" -p t1 -n 2 --prompt-cache "$dir/new_cache"
    case_of "a plot to a link to nothing" 0 "" "$bin/bench" -m "$model" -p 8 -n 4 -r 1 -d 0,8 --batch 1,2 --plot "$dir/new_plot"
    case_of "a model to a link to nothing" 0 "" "$bin/quantize" "$model" "$dir/new_model" F16
    for of in logits matrix cache plot model; do
        holds "$of: the link to nothing is there" test -L "$dir/new_$of"
        holds "$of: what it leads to was made" test "$(wc -c <"$dir/put_$of")" -gt 100
    done
    ln -s none/put "$dir/new_nowhere"
    case_of "a prompt cache to a link to no folder" 1 "cannot be written" "$run" -m "$dir/none" -p t1 --prompt-cache "$dir/new_nowhere"
    holds "no parts are left" sh -c '! ls "$1" | grep -q -e "at_.*\\."' - "$dir"
    holds "a plot: its mode is the umask's" test "$(ls -l "$dir/at_plot" | cut -c 1-10)" = "$(ls -l "$dir/notes" | cut -c 1-10)"
    holds "a prompt cache is private" test "$(ls -l "$dir/at_cache" | cut -c 1-10)" = "-rw-------"
fi

# ---- a standard stream that is closed: its number is no file's ----
if [ -z "${WINDOWS:-}" ]; then
    case_of "quantize" 0 "" "$bin/quantize" "$model" "$dir/open.gguf" F16 -v
    case_of "quantize, closed streams" 0 "" sh -c '"$@" <&- >&- 2>&-' - "$bin/quantize" "$model" "$dir/closed.gguf" F16 -v
    holds "closed streams: the same file" cmp "$dir/open.gguf" "$dir/closed.gguf"
    case_of "run, closed stdout" 1 "cannot write to stdout" sh -c '"$@" >&-' - "$run" -m "$model" -p t1 -n 2 --ignore-eos
    case_of "run, closed stdin" 1 "cannot be read" sh -c '"$@" <&-' - "$run" -m "$model" -p - -n 2
fi

# ---- a value that is empty is no value; stdin is one thing ----
for flag in --grammar --grammar-file --json-schema --prompt-cache -m; do
    case_of "$flag without a text" 2 "$flag: want a text, got ''" "$run" -m "$model" -p t1 -n 2 $flag ""
done
case_of "a schema and the prompt from stdin" 2 "stdin can be one thing only" "$run" -m "$model" -p - --json-schema @-

# ---- the self test's short text: greedy, as logits says ----
case_of "self test" 0 "" "$run" --selftest --device cpu -m "$model"
first=$(sed -n 's/^ *greedy ids \([0-9]*\) .*/\1/p' "$dir/out")
prompt=$(i=0; while [ $i -lt 20 ]; do printf '%s ' $((i * 7 % 512)); i=$((i + 1)); done)
case_of "logits of the self test's prompt" 0 "" "$bin/logits" -m "$model" --ids "$prompt" -o "$dir/s.f32"
largest=$(tail -c 2048 "$dir/s.f32" | od -A n -t f4 -v -w4 | awk 'NR == 1 || $1 > top { top = $1; at = NR - 1 } END { print at }')
holds "self test: the first id has the largest logit" test "$first" = "$largest"

# ---- embed ----
demo=models/demo.gguf
case_of "embed: one text" 0 "" "$bin/embed" -m "$demo" -p "A cat sat."
holds "embed: a list in one line" grep -qx '\[[-0-9e., ]*\]' "$dir/out"
cp "$dir/out" "$dir/one"
printf 'A dog.\r\nA cat sat.\nThe end of it all, and more of that\n' >"$dir/texts"
case_of "embed: a file of texts" 0 "" "$bin/embed" -m "$demo" -f "$dir/texts"
holds "embed: a line for each text" test "$(wc -l <"$dir/out")" = 3
holds "embed: the bits of the text alone" sh -c 'sed -n 2p "$1" | cmp - "$2"' - "$dir/out" "$dir/one"
case_of "embed --raw" 0 "" "$bin/embed" -m "$demo" -p "A cat sat." --raw --pooling mean
holds "embed --raw: 4 bytes a number" test "$(wc -c <"$dir/out")" = $(($(tr -dc , <"$dir/one" | wc -c) * 4 + 4))
case_of "embed: too long" 1 "do not fit the context of 4" "$bin/embed" -m "$demo" -p "A cat sat on the mat and was." -c 4
case_of "embed --cut" 0 "" "$bin/embed" -m "$demo" -p "A cat sat on the mat and was." -c 4 --cut
case_of "embed --whole without a file" 2 "--whole wants -f FILE" "$bin/embed" -m "$demo" -p x --whole
case_of "embed --query and what vectors are made by" 2 "for vectors" "$bin/embed" -m "$demo" -p x --query y --cut
case_of "embed --query of a model that scores nothing" 1 "scores no pairs" "$bin/embed" -m "$demo" -p x --query y
printf 'A cat sat.\r\n' >"$dir/text_crlf"
case_of "embed -p -" 0 "" sh -c '"$@" <"$0"' "$dir/text_crlf" "$bin/embed" -m "$demo" -p -
holds "embed -p -: the bits of the text" cmp "$dir/out" "$dir/one"
case_of "embed: stdin twice" 2 "one text only" "$bin/embed" -m "$demo" -p - -p -
case_of "embed: stdin as a text and as a file" 2 "one text only" "$bin/embed" -m "$demo" -p - -f -
case_of "embed: no text" 2 "want -p or -f" "$bin/embed" -m "$demo"
case_of "run --rope-scaling" 1 "want none, linear or yarn" "$run" -m "$demo" -p x -n 1 --rope-scaling cubic
case_of "run --rope-scale" 0 "" "$run" -m "$demo" -p "A cat" -n 2 --temp 0 --rope-scaling linear --rope-scale 2

# ---- logits ----
ids=1,300,301,302,5,6,7,400,401,402,403
case_of "logits" 0 "" "$bin/logits" -m "$model" --ids $ids -o "$dir/a.f32"
holds "logits: size" test "$(wc -c <"$dir/a.f32")" = $((11 * 512 * 4))
printf '{"ids": [1,300,301,302,5,6,\n7,400,401,402, 403]}' >"$dir/ids.json"
case_of "logits in chunks" 0 "" "$bin/logits" -m "$model" --ids-file "$dir/ids.json" --chunk 3 -t 1 -c 100 -o "$dir/b.f32"
holds "chunks and threads: same bits" cmp "$dir/a.f32" "$dir/b.f32"
case_of "logits by scalar code" 0 "" "$bin/logits" -m "$model" --ids $ids --cpu-isa scalar -o "$dir/b.f32"
holds "scalar code: same bits" cmp "$dir/a.f32" "$dir/b.f32"
case_of "logits of a file in memory" 0 "" "$bin/logits" -m "$model" --ids $ids --no-mmap -o "$dir/b.f32"
holds "a file in memory: same bits" cmp "$dir/a.f32" "$dir/b.f32"
echo 1,,2 >"$dir/wrong.txt"
case_of "wrong list in a file" 1 "wrong.txt: .*want" "$bin/logits" -m "$model" --ids-file "$dir/wrong.txt" -o "$dir/c.f32"
case_of "logits without -o" 2 "-o" "$bin/logits" -m "$model" --ids 1
case_of "logits without ids" 2 "--ids" "$bin/logits" -m "$model" -o "$dir/b.f32"
case_of "wrong id text" 2 "id 1" "$bin/logits" -m "$model" --ids 1,x -o "$dir/c.f32"
for list in 1,,2 1,2, ,1 "1, ,2" "[1,,2]" "[1,2]3"; do
    case_of "wrong list of ids '$list'" 2 "--ids: .*want" "$bin/logits" -m "$model" --ids "$list" -o "$dir/c.f32"
done
for list in 1,2 "1 2" "1, 2" "[1 , 2]"; do
    case_of "list of ids '$list'" 0 "" "$bin/logits" -m "$model" --ids "$list" -o "$dir/d.f32"
    holds "list of ids '$list': two rows" test "$(wc -c <"$dir/d.f32")" = $((2 * 512 * 4))
done
for list in 1,,2 1,2, ,1; do case_of "wrong list '$list'" 2 "separated by commas" "$bin/bench" -m "$model" -p "$list"; done
cp "$dir/prompt" "$dir/c.f32"
case_of "id out of range, an older file" 1 "512" "$bin/logits" -m "$model" --ids 1,512 -o "$dir/c.f32"
holds "the older file is as it was" cmp "$dir/c.f32" "$dir/prompt"
rm "$dir/c.f32"
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
case_of "bench of a model in the caches" 0 "" "$bin/bench" -m "$model" -p 8 -n 8 -r 1 --ops
holds "in the caches: said" grep -q "^tg8 .* caches " "$dir/out"
holds "in the caches: no share of the bandwidth" sh -c "! sed -n '/^tg8 /p' '$dir/out' | grep '%'"
case_of "bench --json of a model in the caches" 0 "" "$bin/bench" -m "$model" -p 0 -n 8 -r 1 --json
holds "bench --json: no share" grep -q '"bandwidth_percent":null' "$dir/out"
case_of "run of a model in the caches" 0 "read at .* from caches or faster than memory" "$run" -m "$model" -p t300 -n 8 --ignore-eos -v
holds "run: no share" sh -c "! grep '%' '$dir/err'"
case_of "run without -v" 0 "generated 8 " "$run" -m "$model" -p t300 -n 8 --ignore-eos
holds "run without -v: no bandwidth is measured" sh -c "! grep 'read at' '$dir/err'"
case_of "bench --memory of a file" 0 "" "$bin/bench" --memory -m models/demo.gguf -t 1 -r 1
holds "bench --memory: a row per pattern" test "$(grep -c ' %' "$dir/out")" = 20
case_of "bench --memory of a missing file" 1 "missing.gguf" "$bin/bench" --memory -m "$dir/missing.gguf" -t 1 -r 1
case_of "bench --plot" 0 "" "$bin/bench" -m "$model" -p 8 -n 4 -r 2 -d 0,8,96 --batch 1,2 --plot "$dir/plot.svg" --json
holds "bench --plot: a test for each point" test "$(grep -o '"n_gen":4,' "$dir/out" | wc -l)" = 4
holds "bench --plot: six points and the legend's" test "$(grep -o '<circle' "$dir/plot.svg" | wc -l)" = 6
holds "bench --plot: both lines in both panels, and in the legend" test "$(grep -cE 'class="(line|limit)"' "$dir/plot.svg")" = 6
if command -v python3 >/dev/null; then
    holds "bench --plot: XML" python3 -c 'import sys, xml.dom.minidom; xml.dom.minidom.parse(sys.argv[1])' "$dir/plot.svg"
    python3 -c '
import struct, sys
text = lambda s: struct.pack("<Q", len(s.encode())) + s.encode()
kvs = b"".join(text(k) + struct.pack("<I", 8) + text(v) for k, v in (("general.architecture", "llama"), ("x", "a" + "\u6f22" * 100)))
open(sys.argv[1], "wb").write(b"GGUF" + struct.pack("<IQQ", 3, 0, 2) + kvs)' "$dir/wide.gguf"
    case_of "inspect: a long text" 0 "" "$bin/inspect" "$dir/wide.gguf"
    holds "inspect: a long text is not cut inside a character" grep -q '漢"\.\.\. (301 bytes)' "$dir/out"
    python3 -c '
import struct, sys
text = lambda s: struct.pack("<Q", len(s.encode())) + s.encode()
head = b"GGUF" + struct.pack("<IQQ", 3, 2, 1) + text("general.architecture") + struct.pack("<I", 8) + text("llama")
for i, name in enumerate(("rope_freqs.weight", "output_norm.weight")):
    head += text(name) + struct.pack("<IQIQ", 1, 8, 0, 32 * i)
open(sys.argv[1], "wb").write(head + bytes(-len(head) % 32) + struct.pack("<16f", *[1e30] * 16))' "$dir/large.gguf"
    case_of "inspect --check: a large weight" 1 "" "$bin/inspect" --check "$dir/large.gguf"
    holds "inspect --check: a large weight is found" grep -q "output_norm.weight: element 0 .*want a value of at most 1.8e+19" "$dir/out"
    holds "inspect --check: a large divisor of a frequency is none" sh -c "! grep -q rope_freqs '$dir/out'"
fi
echo old >"$dir/old.svg"
case_of "bench --plot, no model" 1 "cannot be opened" "$bin/bench" -m "$dir/none" --plot "$dir/old.svg"
holds "bench --plot, no model: the older file is as it was" grep -q old "$dir/old.svg"
case_of "bench --plot, no folder" 1 "cannot be written" "$bin/bench" -m "$dir/none" --plot "$dir/none/plot.svg"
case_of "bench --plot to a folder" 1 "want a file, found a directory" "$bin/bench" -m "$dir/none" --plot "$dir"
case_of "bench --plot without a name" 2 "want a file" "$bin/bench" -m "$model" --plot=
for flags in --memory "--save x" "-t 1,2" "-n 4,8" "-n 0"; do
    # shellcheck disable=SC2086  # words
    case_of "bench --plot with $flags" 2 "bench: --plot" "$bin/bench" --synthetic tiny:q4_0 --plot "$dir/no.svg" $flags
done
holds "bench --plot: nothing was written" test ! -e "$dir/no.svg"
case_of "bench: unknown shape" 1 "tiny, 1b, 3b" "$bin/bench" --synthetic 9b:q4_0
case_of "bench: unknown format" 1 "number format" "$bin/bench" --synthetic 1b:q9_9

# ---- quantize ----
quantize=$bin/quantize
mkdir "$dir/q"
case_of "a model to quantize" 0 "" "$bin/bench" --synthetic tiny:f16:f16 --save "$dir/q/in.gguf"
for type in F32 Q4_0 Q8_0 Q4_K_M IQ4_XS; do
    case_of "quantize $type -t 1" 0 "" "$quantize" "$dir/q/in.gguf" "$dir/q/one" $type -t 1 -q
    holds "quantize -q says nothing" test ! -s "$dir/err"
    for n in 2 3 0; do
        case_of "quantize $type -t $n" 0 "MB in " "$quantize" "$dir/q/in.gguf" "$dir/q/more" $type -t $n
        holds "quantize $type: the same bytes with -t $n" cmp "$dir/q/one" "$dir/q/more"
    done
    case_of "quantize $type: can be run" 0 "ok" sh -c '"$1" --check "$2" >&2' - "$bin/inspect" "$dir/q/one"
done
case_of "quantize: rows that are no multiple of a block" 0 "note: 36 tensors have rows that are no multiple of their format's block; instead: Q5_0 Q8_0" "$quantize" "$demo" "$dir/q/more" Q4_K
case_of "quantize back" 0 "quantized already" "$quantize" "$dir/q/one" "$dir/q/more" Q4_0
case_of "quantize -v lists tensors" 0 "blk.1.ffn_down.weight.* F16 -> Q4_0" "$quantize" "$dir/q/in.gguf" "$dir/q/more" Q4_0 -v
case_of "quantize: a name with a point is not a part of another" 0 "\"output.weight.* F16 -> Q8_0" "$quantize" "$dir/q/in.gguf" "$dir/q/more" Q4_0 -v --type output.weight=Q8_0
holds "quantize: attn_output.weight is another tensor" grep -q "attn_output.weight.* F16 -> Q4_0" "$dir/err"
case_of "quantize: a part of a name" 0 "attn_output.weight.* F16 -> Q8_0" "$quantize" "$dir/q/in.gguf" "$dir/q/more" Q4_0 -v --type output=Q8_0 --type .ffn_down.weight=Q5_0
holds "quantize: a name that begins with a point" grep -q "ffn_down.weight.* F16 -> Q5_0" "$dir/err"
case_of "quantize: IQ3_XS spends less on ffn_up between the ends" 0 "blk.0.ffn_up.weight.* F16 -> IQ3_XXS" "$quantize" "$dir/q/in.gguf" "$dir/q/more" IQ3_XS -v
case_of "a matrix to quantize with" 0 "" "$bin/perplexity" -m "$dir/q/in.gguf" -f "$dir/text" -c 64 --chunks 1 --imatrix "$dir/q/matrix"
printf 'GGUF\3\0\0\0\0\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\14\0\0\0\0\0\0\0general.type\10\0\0\0\7\0\0\0\0\0\0\0imatrix' > "$dir/q/none_at_all"
case_of "quantize: a matrix without tensors" 1 "no entry for any of the [0-9]* tensors" "$quantize" "$dir/q/in.gguf" "$dir/q/none" Q4_K_M -q --imatrix "$dir/q/none_at_all"
holds "quantize: a matrix without tensors: nothing is written" test ! -e "$dir/q/none"
case_of "quantize: a matrix that nothing is quantized by" 0 "" "$quantize" "$dir/q/in.gguf" "$dir/q/more" F32 --imatrix "$dir/q/none_at_all"
case_of "quantize: IQ3_XXS without a matrix" 0 "blk.1.attn_v.weight.* F16 -> IQ3_S" "$quantize" "$dir/q/in.gguf" "$dir/q/more" IQ3_XXS -v
case_of "quantize: IQ3_XXS with one" 0 "blk.1.attn_v.weight.* F16 -> IQ3_XXS" "$quantize" "$dir/q/in.gguf" "$dir/q/more" IQ3_XXS -v --imatrix "$dir/q/matrix"
# 8 experts share a layer's attention: IQ3_M spends on the last layers, too. A file with one tensor of zeros.
{
    printf 'GGUF\3\0\0\0\1\0\0\0\0\0\0\0\3\0\0\0\0\0\0\0\24\0\0\0\0\0\0\0general.architecture\10\0\0\0\5\0\0\0\0\0\0\0llama'
    printf '\21\0\0\0\0\0\0\0llama.block_count\4\0\0\0\2\0\0\0\22\0\0\0\0\0\0\0llama.expert_count\4\0\0\0\10\0\0\0'
    printf '\25\0\0\0\0\0\0\0blk.1.ffn_down.weight\2\0\0\0\0\1\0\0\0\0\0\0\2\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0'
    head -c 2075 /dev/zero
} >"$dir/q/experts"
case_of "quantize: IQ3_M of 8 experts" 0 "blk.1.ffn_down.weight.* F32 -> Q4_K" "$quantize" "$dir/q/experts" "$dir/q/more" IQ3_M -v
case_of "quantize: IQ3_M of none" 0 "blk.1.ffn_down.weight.* F16 -> IQ3_S" "$quantize" "$dir/q/in.gguf" "$dir/q/more" IQ3_M -v
case_of "quantize to stdout" 2 "want a file, stdout" "$quantize" "$dir/q/in.gguf" - Q4_0
case_of "an importance matrix to stdout" 1 "want a file" "$bin/perplexity" -m "$dir/q/in.gguf" -f "$dir/text" -c 64 --chunks 1 --imatrix -
holds "no file is named -" test ! -e -
case_of "quantize: unknown type" 2 "unknown TYPE 'Q9_9'" "$quantize" "$dir/q/in.gguf" "$dir/q/none" Q9_9
case_of "quantize: cut file" 1 "cut.gguf" "$quantize" "$dir/cut.gguf" "$dir/q/none" Q4_0
case_of "quantize: a directory is the target" 1 "directory" "$quantize" "$dir/q/in.gguf" "$dir/q" Q4_0
case_of "quantize: no such folder" 1 "$dir/none/x" "$quantize" "$dir/q/in.gguf" "$dir/none/x" Q4_0

# The input is never written: by its name, by a link, as a part, as the file beside the target, as the matrix.
cp "$dir/q/in.gguf" "$dir/q/copy"
ln -s in.gguf "$dir/q/link"
ln "$dir/q/in.gguf" "$dir/q/hard"
for out in in.gguf link hard; do
    case_of "quantize onto its input ($out)" 2 "OUT.gguf is IN.gguf" "$quantize" "$dir/q/in.gguf" "$dir/q/$out" Q4_0
done
cp "$dir/q/in.gguf" "$dir/q/x-00001-of-00002.gguf"
cp "$dir/q/in.gguf" "$dir/q/x-00002-of-00002.gguf"
case_of "quantize onto another part" 2 "OUT.gguf is IN.gguf" "$quantize" "$dir/q/x-00001-of-00002.gguf" "$dir/q/x-00002-of-00002.gguf" Q4_0
case_of "quantize onto the matrix" 2 "importance matrix" "$quantize" "$dir/q/in.gguf" "$dir/q/more" Q4_0 --imatrix "$dir/q/more"
cp "$dir/q/in.gguf" "$dir/q/y.part"
case_of "quantize y.part to y" 0 "" "$quantize" "$dir/q/y.part" "$dir/q/y" Q4_0
holds "the input is no file that was left" sh -c "! grep left '$dir/err'"
echo cut >"$dir/q/z.part"
case_of "quantize beside what a killed run left" 0 "note: $dir/q/z.part is there" "$quantize" "$dir/q/in.gguf" "$dir/q/z" Q4_0
holds "what was left stays" grep -q cut "$dir/q/z.part"
holds "y.part is as it was" cmp "$dir/q/copy" "$dir/q/y.part"
holds "the input is as it was" cmp "$dir/q/copy" "$dir/q/in.gguf"

# Nothing is left behind by a failure, and an older file stays.
mkdir "$dir/f"
echo old >"$dir/f/out"
left() { [ "$(ls "$dir/f")" = out ] && [ "$(cat "$dir/f/out")" = old ]; }
signals="INT TERM HUP"
if [ -n "${WINDOWS:-}" ]; then
    signals=INT
    echo "skipped: 7 cases: Windows has no ulimit, and no SIGTERM and SIGHUP that a program could answer"
else
    case_of "quantize: file too large" 1 "f/out: writing failed" sh -c 'ulimit -f 100; exec "$@"' - "$quantize" "$dir/q/in.gguf" "$dir/f/out" Q8_0 -q
    holds "file too large: one line" test "$(wc -l <"$dir/err")" = 1
    holds "file too large: nothing is left" left
fi
for signal in $signals; do
    # IQ3_S takes seconds. A signal before the handler is there ends the program too, with nothing written.
    timeout --preserve-status -s $signal 0.5 "$quantize" "$dir/q/in.gguf" "$dir/f/out" IQ3_S --pure -t 1 >"$dir/out" 2>"$dir/err" </dev/null
    code=$? n_cases=$((n_cases + 1))
    [ $code -gt 128 ] || { [ -n "${WINDOWS:-}" ] && [ $code != 0 ]; } || fail "quantize, SIG$signal: exit code $code, want above 128"
    holds "SIG$signal: nothing is left" left
done
if [ -e /dev/full ]; then
    case_of "quantize: full disk" 1 "/dev/full: writing failed: No space" "$quantize" "$dir/q/in.gguf" /dev/full Q4_0 -q
    holds "full disk: one line" test "$(wc -l <"$dir/err")" = 1
fi

# ---- examples ----
if [ -n "${EXAMPLES:-}" ]; then
    head -c 5000 /dev/zero | tr '\0' a >"$dir/long"
    case_of "chat.c: a line longer than its buffer" 1 "^chat: a line is too long" sh -c '"$1" "$2" chatml <"$3"' - "$EXAMPLES/chat" "$model" "$dir/long"
    if [ -e /dev/full ]; then
        case_of "complete.c: full disk" 1 "" sh -c '"$1" models/demo.gguf a >/dev/full' - "$EXAMPLES/complete"
    fi
fi

# ---- benchmarks/*.py ----
# shellcheck disable=SC2086  # words
if command -v python3 >/dev/null && [ -z "${WINDOWS:-}" ]; then
    case_of "choices: no model" 1 "^bench: .*none.gguf" python3 benchmarks/choices.py -m "$dir/none.gguf" --bench "$bin/bench"
    case_of "choices: no bench" 1 "^choices: .*none" python3 benchmarks/choices.py -m "$model" --bench "$dir/none"
    compare="python3 benchmarks/vs_llama_cpp.py -n 4 -r 1 --bench $bin/bench"
    case_of "vs_llama_cpp: no model" 1 "^bench: .*none.gguf" $compare -m "$dir/none.gguf"
    holds "vs_llama_cpp, no model: one line" test "$(wc -l <"$dir/err")" = 1
    case_of "vs_llama_cpp: no such format" 1 "^bench: .*no code for this number format" $compare --synthetic tiny:q99
    holds "vs_llama_cpp, no such format: one line" test "$(wc -l <"$dir/err")" = 1
    case_of "vs_llama_cpp: no turns" 2 "want 1 or more" $compare -m "$model" -r 0
    case_of "vs_llama_cpp: peers that fail" 0 "" $compare -m "$model" -p 8 --peer "a=$dir/none" --peer b=false --peer c=true
    holds "vs_llama_cpp, peers that fail: why" grep -q "a (failed: .*none.*); b (failed: it ended with 1); c (failed: no JSON" "$dir/out"
    # a package that takes no time
    mkdir "$dir/package"
    cat >"$dir/package/llama_cpp.py" <<'END'
import ctypes, sys, unittest.mock as mock
told = {"llama_decode": 0, "llama_vocab_n_tokens": 9, "llama_memory_seq_pos_max": -1, "llama_print_system_info": b""}
sys.modules[__name__] = mock.MagicMock(__version__="1", llama_token=ctypes.c_int32, **{f"{k}.return_value": v for k, v in told.items()})
END
    case_of "vs_llama_cpp: the package" 0 "" env PYTHONPATH="$dir/package" $compare -m "$model" -p 8,32
    holds "vs_llama_cpp, the package: every prompt" test "$(grep -c '^| \(8\|32\) tokens, tok/s | [^|]* | [0-9.]* ([^|]* | [0-9.]* |$' "$dir/out")" = 2
    case_of "server.py: no model" 1 "none.gguf: no such file" python3 benchmarks/server.py -m "$dir/none.gguf"
    case_of "server.py: no program" 1 "Duet did not start: .*none" python3 benchmarks/server.py -m "$model" --serve "$dir/none" --only speed
    for flags in "-n 1" "-r 0" "--clients 0,1"; do
        case_of "server.py $flags" 2 "want 2 or more of -n" python3 benchmarks/server.py -m "$model" $flags
    done
    case_of "gpu_counts --print" 0 "" python3 benchmarks/gpu_counts.py --print benchmarks/gpu_counts.json gfx942
    row=$(sed -n 's/^| gfx942 | Q4_0, matvec_q4_0 [0-9x]* | \([0-9]*\) | \([0-9,]*\) | .* | \([0-9]*\) |$/\1 *\2 .* \3 /p' docs/gpu_model.md | tr -d ,)
    holds "gpu_counts --print, warps of 64: as docs/gpu_model.md has it" grep -q "^matvec_q4_0 * q4_0 .* $row" "$dir/out"
    case_of "gpu_counts --help" 1 "gpu_counts.py --print TABLE CHIP" python3 benchmarks/gpu_counts.py --help
    case_of "gpu_model: no such card" 1 "^no card x: there are .*H200" python3 benchmarks/gpu_model.py --card x
    for flags in --check "--look docs/gpu_model.md" --help; do
        case_of "gpu_model $flags" 1 "gpu_model.py --check DOC" python3 benchmarks/gpu_model.py $flags
    done
fi

echo "test_cli: $n_cases cases, $n_failed failed"
[ $n_failed = 0 ]
