#!/usr/bin/env python3
"""Compares bin/bench with other programs on the same file, in one run, in turns: A B C A B C ...

Peers are programs named llama-bench of llama.cpp or ik_llama.cpp, each with options of its own; a name that is given twice is one peer
with two ways, of which each speed takes the faster one. Without any, the peer is the Python package llama-cpp-python.

    python3 benchmarks/vs_llama_cpp.py -m FILE -p 2,4,8,256 -n 32 -t 2 -r 10 --peer "llama.cpp=PATH/llama-bench" \\
        --peer "ik_llama.cpp=PATH/llama-bench" --peer "ik_llama.cpp=PATH/llama-bench -rtr 1"
    python3 benchmarks/vs_llama_cpp.py -m FILE -p 0 -n 32 -d 8192 -r 3 --peer ...          generation behind 8,192 tokens
    python3 benchmarks/vs_llama_cpp.py -m FILE --cpu-isa avx2 --peer "llama.cpp=PATH_OF_AN_AVX2_BUILD/llama-bench"
    python3 benchmarks/vs_llama_cpp.py --synthetic 1b:q4_0 -p 512 -n 64 -r 5 --batch 2,4   the package, also sequences together

A turn starts each program once: it warms up, computes every prompt of `-p` and one generation `-n`, after `-d` tokens of context. Both
sides: the same number of threads, f16 cache, random token ids. Prompts below 32 tokens are computed nine times in a turn. Cells are
medians over the turns with the lowest and the highest; a ratio is the median of the ratios of the single turns, since neighbours of the
machine change its speed between turns. Memory is the peak resident size of a program. ik_llama.cpp has no prompts behind a context.
With `--cpu-isa` Duet keeps to an instruction set, with `--fast` it takes mode fast; what the peers use is how they were built.
"""
import argparse
import ctypes
import json
import os
import random
import shlex
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BENCH = os.path.join(ROOT, "bin", "bench")
BATCH = 512


def peak_bytes():
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0


def measure_llama(path, prompts, n_gen, depth, n_threads, batches, flash):
    """Runs in its own process; prints one JSON object."""
    import llama_cpp as lc

    silent = lc.llama_log_callback(lambda level, text, user: None)
    lc.llama_log_set(silent, ctypes.c_void_p(0))
    base, n_prompt = peak_bytes(), max(prompts)
    lc.llama_backend_init()
    start = time.perf_counter()
    model_params = lc.llama_model_default_params()
    model_params.n_gpu_layers = 0
    model = lc.llama_model_load_from_file(path.encode(), model_params)
    if not model:
        sys.exit("llama.cpp could not open " + path)
    params = lc.llama_context_default_params()
    params.n_ctx = max(depth + max(n_prompt, n_gen) + 1, max([1] + batches) * (n_gen + 1))
    params.n_seq_max = max([1] + batches)
    params.kv_unified = True
    params.n_batch = params.n_ubatch = BATCH
    params.flash_attn_type = flash   # -1: llama.cpp decides
    params.n_threads = params.n_threads_batch = n_threads
    context = lc.llama_init_from_model(model, params)
    if not context:
        sys.exit("llama.cpp could not make a context")
    n_vocab = lc.llama_vocab_n_tokens(lc.llama_model_get_vocab(model))
    rng = random.Random(1)
    memory = lc.llama_get_memory(context)

    def decode(n_tok, at_once):
        for begin in range(0, n_tok, at_once):
            n = min(at_once, n_tok - begin)
            ids = (lc.llama_token * n)(*[rng.randrange(n_vocab) for _ in range(n)])
            if lc.llama_decode(context, lc.llama_batch_get_one(ids, n)) != 0:
                sys.exit("llama_decode failed")
        lc.llama_synchronize(context)

    def timed(n_tok, at_once):
        """Of n_tok tokens after the first `depth`, which are computed once."""
        lc.llama_memory_seq_rm(memory, 0, depth, -1)
        decode(depth - 1 - lc.llama_memory_seq_pos_max(memory, 0), BATCH)
        begin = time.perf_counter()
        decode(n_tok, at_once)
        return time.perf_counter() - begin

    def together(n_seqs):
        """Tokens per second of n_seqs sequences that generate in one batch."""
        lc.llama_memory_clear(memory, True)
        batch = lc.llama_batch_init(n_seqs, 0, 1)
        batch.n_tokens = n_seqs
        begin = time.perf_counter()
        for pos in range(n_gen):
            for i in range(n_seqs):
                batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = rng.randrange(n_vocab), pos, 1, 1
                batch.seq_id[i][0] = i
            if lc.llama_decode(context, batch) != 0:
                sys.exit("llama_decode failed")
        lc.llama_synchronize(context)
        seconds = time.perf_counter() - begin
        lc.llama_batch_free(batch)
        return n_gen * n_seqs / seconds

    decode(n_prompt, BATCH)
    first_token = time.perf_counter() - start
    timed(2, 1)
    result = {f"pp{n}": statistics.median(n / timed(n, BATCH) for _ in range(9 if n < 32 else 1)) for n in prompts}
    result.update({"tg": n_gen / timed(n_gen, 1), "first_token": first_token, "peak": peak_bytes() - base, "version": lc.__version__,
                   "system": lc.llama_print_system_info().decode()})
    result.update({f"tg{n}": together(n) for n in batches})
    print(json.dumps(result))


def run_json(command):
    """Returns the JSON that a program prints, and the peak of its resident memory in bytes; or None and why there is none."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as told:
        try:
            process = subprocess.Popen(command, stdout=out, stderr=told)
        except OSError as error:
            return None, str(error)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            told.seek(0)
            lines = told.read().decode(errors="replace").split("\n")
            return None, next((line for line in reversed(lines) if line.strip()), f"it ended with {process.returncode}")
        out.seek(0)
        try:
            return json.load(out), usage.ru_maxrss * 1024
        except ValueError as error:
            return None, f"no JSON: {error}"


def groups_of(prompts, args):
    """What is measured in one process each: prompts, generation, repetitions."""
    few, many = [n for n in prompts if n < 32], [n for n in prompts if n >= 32]
    groups = [(few, 0, 9), (many, args.gen, args.inner)]
    return [group for group in groups if group[0] or group[1]]


def measure_peer(program, path, prompts, args):
    """One turn of a llama-bench. What failed is left out."""
    is_ik = "ik" in os.path.realpath(program[0])
    result = {"peak": 0}

    def run(lengths, n_gen, reps):
        tests = ["-p", ",".join(map(str, lengths or [0])), "-n", str(n_gen)]
        if args.depth:
            tests = ["-p", "0", "-n", "0", "-gp", f"{args.depth},{n_gen}"] if is_ik else tests + ["-d", str(args.depth)]
        out, peak = run_json([*program, "-m", path, *tests, "-t", str(args.threads), "-r", str(reps), "-o", "json"])
        if out is None:
            result["why"] = peak
        for test in out or []:
            result["tg" if test["n_gen"] else f"pp{test['n_prompt']}"] = statistics.median(test["samples_ts"])
            result.update(version=test["build_commit"], peak=max(result["peak"], peak))
        return out

    for lengths, n_gen, reps in groups_of(prompts, args):
        if run(lengths, n_gen, reps) is None and lengths and n_gen:
            run([], n_gen, reps)   # some builds crash with prompts only
    return result


def measure_duet(path, prompts, args):
    result = {"choices": []}
    for lengths, n_gen, reps in groups_of(prompts, args):
        out, why = run_json([args.bench, "--json", "-m", path, "-d", str(args.depth), "-t", str(args.threads), "--cpu-isa", args.cpu_isa,
                           *["--fast"] * args.fast, "-r", str(reps), "-p", ",".join(map(str, lengths or [0])), "-n", str(n_gen),
                           "--batch", ",".join(map(str, [1] + args.batch * bool(n_gen)))])
        if out is None:
            sys.exit(why)
        result.update(version=out["duet"], system=out["device"], choices=result["choices"] + out["choices"],
                      first_token=max(result.get("first_token", 0), out["first_token_s"]), peak=max(result.get("peak", 0), out["peak_bytes"]))
        for test in out["tests"]:
            if test["n_gen"] == 0:
                result[f"pp{test['n_prompt']}"] = test["tok_per_s"]
            elif test["n_seqs"] > 1:
                result[f"tg{test['n_seqs']}"] = test["tok_per_s"]
            else:
                result.update(tg=test["tok_per_s"], gbps=test["weights_gbps"], share=test["bandwidth_percent"], bandwidth=test["bandwidth_gbps"])
    return result


def compare(path, label, args):
    prompts = [n for n in args.prompt if n]
    peers = {}   # name -> its ways
    for text in args.peer:
        name, equals, program = text.partition("=")
        if not equals:
            sys.exit(f'--peer {text}: want NAME=PROGRAM, as --peer "llama.cpp=PATH/llama-bench"')
        peers.setdefault(name, []).append(shlex.split(program))
    if not peers:
        peers = {"llama.cpp": [flash for flash in ([0, 1] if args.depth else [-1])]}
    ours, theirs = [], {name: [[] for _ in ways] for name, ways in peers.items()}
    for _ in range(args.reps):
        ours.append(measure_duet(path, prompts, args))
        for name, ways in peers.items():
            for i, way in enumerate(ways):
                if isinstance(way, int):
                    worker = [sys.executable, os.path.abspath(__file__), "--worker", path, "-p", ",".join(map(str, prompts or [1])), "-n", str(args.gen),
                              "-d", str(args.depth), "-t", str(args.threads), f"--flash={way}",
                              *(["--batch", ",".join(map(str, args.batch))] if args.batch else [])]
                    out, why = run_json(worker)
                    theirs[name][i].append(out or {"why": why})
                else:
                    theirs[name][i].append(measure_peer(way, path, prompts, args))
    size = os.path.getsize(path)
    print(f"\n{label}: {size / 1e6:.0f} MB, {args.threads} threads, generated {args.gen}, depth {args.depth}, {args.reps} turns, --cpu-isa {args.cpu_isa}")
    versions = []
    for name, ways in theirs.items():
        turns = [run for runs in ways for run in runs]
        versions.append(f"{name} {next((run['version'] for run in turns if 'version' in run), '') or '(failed: ' + turns[0].get('why', 'nothing told') + ')'}")
    print(f"Duet {ours[0]['version']} ({ours[0]['system']}); {'; '.join(versions)}")
    print(f"\n| {label} | Duet |{''.join(f' {name} | ratio |' for name in peers)}\n|---|---:|{'---:|---:|' * len(peers)}")
    rows = [*((f"{n} tokens, tok/s", f"pp{n}", 1, "%.1f") for n in prompts), ("generation, tok/s", "tg", 1, "%.2f"),
            *((f"{n} sequences together, tok/s", f"tg{n}", 1, "%.2f") for n in args.batch),
            ("first token, s", "first_token", 1, "%.2f"), ("peak memory, MB", "peak", 1e-6, "%.0f")]
    for name, key, scale, form in rows:
        def median(runs):
            return statistics.median(run[key] for run in runs) * scale

        def cell(runs):
            return f"{form % median(runs)} ({form % min(run[key] * scale for run in runs)} - {form % max(run[key] * scale for run in runs)})"

        if key not in ours[0]:
            continue
        line = f"| {name} | {cell(ours)} |"
        better = max if key[:2] in ("pp", "tg") else min
        for ways in theirs.values():
            told = [runs for runs in ways if all(run.get(key) for run in runs)]
            if not told:
                line += " | |"
                continue
            best = better(told, key=median)
            line += f" {cell(best)} | {statistics.median(a[key] / b[key] for a, b in zip(ours, best)):.2f} |"
        print(line)
    if "tg" in ours[0]:
        gbps, bandwidth = (statistics.median(run[key] for run in ours) for key in ("gbps", "bandwidth"))
        shares = [run["share"] for run in ours if run["share"] is not None]   # none: the weights were read from caches
        share = f"{statistics.median(shares):.0f} % of {bandwidth:.1f} measured before and after it" if len(shares) == len(ours) else \
            f"from caches or faster than memory ({bandwidth:.1f} measured before and after it)"
        print(f"\nDuet reads {gbps:.1f} GB/s of weights when generating, {share}; "
              f"its peak memory is {statistics.median(run['peak'] for run in ours) / size:.2f} of the file")
    sys.stdout.flush()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", action="append", default=[], help="a GGUF file; may be repeated")
    parser.add_argument("--synthetic", action="append", default=[], help="SHAPE:FORMAT, as bin/bench; may be repeated")
    parser.add_argument("-p", "--prompt", type=lambda text: [int(n) for n in text.split(",")], default=[512], help="N,N: lengths of prompts; 0: none")
    parser.add_argument("-n", "--gen", type=int, default=64)
    parser.add_argument("-d", "--depth", type=int, default=0)
    parser.add_argument("-t", "--threads", type=int, default=os.cpu_count())
    parser.add_argument("-r", "--reps", type=int, default=5, help="turns")
    parser.add_argument("--inner", type=int, default=1, help="generations of a turn in the same process: a long context is computed once for all")
    parser.add_argument("--batch", type=lambda text: [int(n) for n in text.split(",")], default=[],
                        help="N,N: also sequences that generate together, from an empty context")
    parser.add_argument("--peer", metavar="NAME=PROGRAM", action="append", default=[], help="a llama-bench, with options of its own; may be repeated")
    parser.add_argument("--bench", default=BENCH, help="Duet's program bench")
    parser.add_argument("--fast", action="store_true", help="Duet in mode fast")
    parser.add_argument("--cpu-isa", default="auto", help="what Duet may use: avx2, avx512 ...")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--flash", type=int, default=-1, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        return measure_llama(args.worker, args.prompt, args.gen, args.depth, args.threads, args.batch, args.flash)
    if args.batch and args.depth:
        parser.error("--batch starts from an empty context: want no --depth")
    if not args.model and not args.synthetic:
        parser.error("want -m FILE or --synthetic SHAPE:FORMAT")
    if min(args.reps, args.inner, args.threads) < 1:
        parser.error("want 1 or more of -r, --inner and -t")
    for path in args.model:
        compare(path, os.path.basename(path), args)
    for spec in args.synthetic:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "synthetic.gguf")
            if subprocess.run([args.bench, "--synthetic", spec, "--save", path]).returncode:
                sys.exit(1)    # bench said why
            compare(path, "synthetic " + spec, args)


if __name__ == "__main__":
    main()
