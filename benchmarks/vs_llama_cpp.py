#!/usr/bin/env python3
"""Compares bin/bench with llama.cpp (package llama-cpp-python) on the same file, in one run, in turns: A B A B ...

Each repetition is a process of its own: open the file, first prompt (which also warms up; with the opening it is the time to the first
token), then one timed prompt and one timed generation, both after `-d` tokens of context. Both sides: the same number of threads, f16
cache, batches of 512, random token ids. llama.cpp's flash attention is at its default, or with `-d` once on and once off: each speed is
the better of the two. Medians over the repetitions; memory is the peak resident size of the process (of llama.cpp's without what Python
itself needs). With `--llama-bench PROGRAM` the program of that name of ik_llama.cpp is a second peer in the same turns, with and without repacking at
run time; it tells no first token and no memory, and at a depth only generation.
With `--cpu-isa` Duet keeps to an instruction set, with `--fast` it takes mode fast; what the peers use is how they were built.

    python3 benchmarks/vs_llama_cpp.py -m model.gguf
    python3 benchmarks/vs_llama_cpp.py --synthetic 1b:q4_0 -p 512 -n 64 -t 2 -r 5
    python3 benchmarks/vs_llama_cpp.py --synthetic 1b:q4_0 -p 512 -n 32 -t 2 -r 3 -d 8192
"""
import argparse
import ctypes
import json
import os
import random
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


def measure_llama(path, n_prompt, n_gen, depth, n_threads, batches, flash):
    """Runs in its own process; prints one JSON object."""
    import llama_cpp as lc

    silent = lc.llama_log_callback(lambda level, text, user: None)
    lc.llama_log_set(silent, ctypes.c_void_p(0))
    base = peak_bytes()
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
    result = {"pp": n_prompt / timed(n_prompt, BATCH), "tg": n_gen / timed(n_gen, 1), "first_token": first_token,
              "peak": peak_bytes() - base, "version": lc.__version__, "system": lc.llama_print_system_info().decode()}
    result.update({f"tg{n}": together(n) for n in batches})
    print(json.dumps(result))


def measure_program(program, repack, path, n_prompt, n_gen, depth, n_threads):
    tests = ["-p", "0", "-n", "0", "-gp", f"{depth},{n_gen}"] if depth else ["-p", str(n_prompt), "-n", str(n_gen)]
    command = [program, "-m", path, *tests, "-t", str(n_threads), "-r", "3", "-o", "json", *repack]   # its first prompt is slower
    out = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout)
    return {**{"tg" if test["n_gen"] else "pp": statistics.median(test["samples_ts"]) for test in out}, "version": out[0]["build_commit"]}


def measure_duet(path, n_prompt, n_gen, depth, n_threads, batches, more):
    command = [BENCH, "--json", "-r", "1", "-m", path, "-p", str(n_prompt), "-n", str(n_gen), "-d", str(depth), "-t", str(n_threads),
               *more, "--batch", ",".join(map(str, [1] + batches))]
    out = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    tests = {(test["test"][:2], test["n_seqs"]): test for test in out["tests"]}
    one = tests["tg", 1]
    speeds = {f"tg{n}": tests["tg", n]["tok_per_s"] for n in batches}
    return {**speeds, "pp": tests["pp", 1]["tok_per_s"], "tg": one["tok_per_s"], "first_token": out["first_token_s"], "peak": out["peak_bytes"], "version": out["duet"],
            "system": out["device"], "gbps": one["weights_gbps"], "share": one["bandwidth_percent"], "bandwidth": one["bandwidth_gbps"]}


def compare(path, label, args):
    ours, with_flash = [], {flash: [] for flash in ([0, 1] if args.depth else [-1])}
    programs = {repack: [] for repack in ((), ("-rtr", "1"))} if args.llama_bench else {}
    for _ in range(args.reps):
        ours.append(measure_duet(path, args.prompt, args.gen, args.depth, args.threads, args.batch, ["--cpu-isa", args.cpu_isa] + ["--fast"] * args.fast))
        for repack, runs in programs.items():
            runs.append(measure_program(args.llama_bench, repack, path, args.prompt, args.gen, args.depth, args.threads))
        for flash, runs in with_flash.items():
            worker = [sys.executable, os.path.abspath(__file__), "--worker", path, "-p", str(args.prompt), "-n", str(args.gen), "-d",
                      str(args.depth), "-t", str(args.threads), f"--flash={flash}",
                      *(["--batch", ",".join(map(str, args.batch))] if args.batch else [])]
            runs.append(json.loads(subprocess.run(worker, check=True, stdout=subprocess.PIPE).stdout))
    theirs = with_flash[max(with_flash)]
    size = os.path.getsize(path)
    print(f"\n{label}: {size / 1e6:.0f} MB, {args.threads} threads, prompt {args.prompt}, generated {args.gen}, depth {args.depth}, "
          f"{args.reps} repetitions in turns")
    print(f"Duet {ours[0]['version']} ({ours[0]['system']}); llama-cpp-python {theirs[0]['version']} ({theirs[0]['system'].strip(' |')})")
    peers = [("llama.cpp", with_flash), *([("llama-bench " + programs[()][0]["version"], programs)] if programs else [])]
    print(f"\n| what | Duet |{''.join(f' {name} | ratio |' for name, _ in peers)}\n|---|---:|{'---:|---:|' * len(peers)}")
    rows = [("prompt, tok/s", "pp", 1, "%.1f"), ("generation, tok/s", "tg", 1, "%.2f"), ("first token, s", "first_token", 1, "%.2f"),
            ("peak memory, MB", "peak", 1e-6, "%.0f")]
    rows[2:2] = [(f"{n} sequences together, tok/s", f"tg{n}", 1, "%.2f") for n in args.batch]
    for name, key, scale, form in rows:
        median = lambda runs: statistics.median(run[key] for run in runs) * scale
        cell = lambda runs: f"{form % median(runs)} ({form % min(run[key] * scale for run in runs)} - {form % max(run[key] * scale for run in runs)})"
        line = f"| {name} | {cell(ours)} |"
        better = max if key[:2] in ("pp", "tg") else min
        for _, ways in peers:
            told = [runs for runs in ways.values() if key in runs[0]]
            best = better(told, key=median) if told else None
            line += f" {cell(best)} | {median(ours) / median(best):.2f} |" if best else " | |"
        print(line)
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
    parser.add_argument("-p", "--prompt", type=int, default=512)
    parser.add_argument("-n", "--gen", type=int, default=64)
    parser.add_argument("-d", "--depth", type=int, default=0)
    parser.add_argument("-t", "--threads", type=int, default=os.cpu_count())
    parser.add_argument("-r", "--reps", type=int, default=5)
    parser.add_argument("--batch", type=lambda text: [int(n) for n in text.split(",")], default=[],
                        help="N,N: also sequences that generate together, from an empty context")
    parser.add_argument("--llama-bench", metavar="PROGRAM", help="a second peer: llama-bench of ik_llama.cpp")
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
    for path in args.model:
        compare(path, os.path.basename(path), args)
    for spec in args.synthetic:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "synthetic.gguf")
            subprocess.run([BENCH, "--synthetic", spec, "--save", path], check=True)
            compare(path, "synthetic " + spec, args)


if __name__ == "__main__":
    main()
