#!/usr/bin/env python3
"""benchmarks/choices.py: is the way that a process chooses for its matmuls the fastest one, start after start?

  python3 benchmarks/choices.py -m FILE [-p 256] [--starts 10] [--turns 5]

It starts bin/bench several times and counts what was chosen, then lets AMX and AVX-512 take turns by name.
"""
import argparse
import collections
import json
import os
import statistics
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def bench(options, *more):
    command = [options.bench, "-m", options.model, "-p", str(options.prompt), "-n", "0", "-r", "1", "--json", *more]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        sys.exit(f"choices: {error}")
    if done.returncode:
        sys.exit(done.stderr.strip() or f"choices: {options.bench} ended with {done.returncode}")
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("-p", "--prompt", type=int, default=256)
    parser.add_argument("--starts", type=int, default=10)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--bench", default=os.path.join(ROOT, "bin", "bench"))
    options = parser.parse_args()
    counts = collections.defaultdict(collections.Counter)
    for _ in range(options.starts):
        for text in bench(options)["choices"]:  # "chosen: matmul Q4_0, 256 tokens: amx 339, panels 245 GMAC/s ..."
            what, ways = text.split(": ")[1:]
            counts[what][ways.split()[0]] += 1
    for what, ways in counts.items():
        print(f"{what}: " + ", ".join(f"{way} {n} of {options.starts}" for way, n in ways.most_common()))
    speeds = collections.defaultdict(list)
    for _ in range(options.turns):
        for isa in ("amx", "avx512"):
            speeds[isa].append(bench(options, "--cpu-isa", isa)["tests"][0]["tok_per_s"])
    for isa, s in speeds.items():
        print(f"{isa}: median {statistics.median(s):.1f} tok/s ({min(s):.1f} - {max(s):.1f})")


main()
