#!/usr/bin/env python3
"""Draws how fast bin/bench generates over the length of the context and the number of sequences, beside what the machine allows.

    python3 benchmarks/plot.py -m model.gguf -o docs/speed.svg          measures a round (two minutes for 1B), keeps speed.json beside it
    python3 benchmarks/plot.py -m model.gguf -o docs/speed.svg --again  adds a round to speed.json: one that is disturbed counts less
    python3 benchmarks/plot.py --from docs/speed.json -o docs/speed.svg draws again what was measured

Points are medians over all rounds; in a round every point is measured in turn.
The limits are the best of the same rounds: how often the memory can deliver all weights in a second (a token needs them once, the
sequences of a batch share them), and the speed of a prompt, which is what the processor can compute. The SVG is written here; no
package is needed.
"""
import argparse
import html
import json
import os
import statistics
import subprocess
import sys
import time

KINDS = ("prompt", "batch", "context")
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
WIDTH, HEIGHT, LEFT, TOP, PANEL, TALL = 920, 440, 70, 70, 350, 270
STYLE = ("text{font:13px sans-serif;fill:#333}.t{font-size:15px;font-weight:bold}.s{font-size:11px;fill:#666}.g{stroke:#ddd}"
         ".m{stroke:#1f6fb2;fill:none;stroke-width:2.5}.p{fill:#1f6fb2}.l{stroke:#c0392b;fill:none;stroke-width:2;stroke-dasharray:6 4}"
         ".c{stroke:#7d8b2f;fill:none;stroke-width:2;stroke-dasharray:2 4}.r{stroke:#1f6fb2}")


def measure(args):
    """A round of all points."""
    def bench(*more):
        command = [args.bench, "-m", args.model, "-t", str(args.threads), "-r", str(args.repetitions), "-n", str(args.n_gen), "--json", *more]
        print("+ " + " ".join([os.path.basename(args.bench), *command[3:]]), file=sys.stderr)
        return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)

    over_batch = bench("-p", "512", "--batch", ",".join(map(str, args.batches)))
    over_context = [bench("-p", "0", "-d", str(depth)) for depth in args.depths]
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        cpu = next((line.split(":")[1].strip() for line in file if line.startswith("model name")), "unknown processor")
    rows = over_batch.pop("tests")
    return {"machine": cpu, "date": time.strftime("%Y-%m-%d"), "rounds": 1, "bench": over_batch,
            "command": f"benchmarks/plot.py -m FILE -t {args.threads} -r {args.repetitions} -n {args.n_gen}",
            "prompt": [r for r in rows if r["n_prompt"]], "batch": [r for r in rows if r["n_gen"]],
            "context": [r for run in over_context for r in run["tests"]]}


def with_round(data, more):
    """What was measured before, and another round of the same points on the same machine."""
    def points(of):
        return [(r["test"], r["depth"], r["n_seqs"]) for kind in KINDS for r in of[kind]]

    same = ["machine", "command"]
    if [data[k] for k in same] != [more[k] for k in same] or points(data) != points(more) or \
            any(data["bench"][k] != more["bench"][k] for k in ("build", "model", "device", "weight_bytes")):
        sys.exit("--again: want the machine, build, model and points of the rounds before, found others")
    for kind in KINDS:
        for old, new in zip(data[kind], more[kind]):
            old["samples"] += new["samples"]
            old.update(tok_per_s=statistics.median(old["samples"]), min=min(old["samples"]), max=max(old["samples"]),
                       bandwidth_gbps=max(old["bandwidth_gbps"], new["bandwidth_gbps"]))
    data["rounds"] += 1
    return data


def nice_step(most):
    """A round step that gives four to nine lines."""
    step = 1.0
    while most / step > 9:
        step *= 2.5 if str(step).startswith("2") else 2
    return step


def panel(x0, title, label, rows, key, limits):
    """One diagram: the rows' speeds at evenly spaced places, with their range, and lines of limits."""
    most = 1.08 * max([r["max"] for r in rows] + [v for _, _, values in limits for v in values if v])
    # a limit that lies far above would make the speeds flat; its line ends at the frame
    most = min(most, 2.2 * max(r["max"] for r in rows))
    xs = [x0 + PANEL * (i + 0.5) / len(rows) for i in range(len(rows))]

    def y(value):
        return TOP + TALL * (1 - value / most)

    out = [f'<text class="t" x="{x0}" y="{TOP - 18}">{title}</text>']
    step = nice_step(most)
    for i in range(int(most / step) + 1):
        out.append(f'<line class="g" x1="{x0}" x2="{x0 + PANEL}" y1="{y(i * step):.1f}" y2="{y(i * step):.1f}"/>'
                   f'<text x="{x0 - 8}" y="{y(i * step) + 4:.1f}" text-anchor="end">{i * step:g}</text>')
    for x, row in zip(xs, rows):
        out.append(f'<text x="{x:.1f}" y="{TOP + TALL + 20}" text-anchor="middle">{row[key]:,}</text>')
    out.append(f'<text x="{x0 + PANEL / 2}" y="{TOP + TALL + 42}" text-anchor="middle">{label}</text>')
    for style, name, values in limits:
        points = [(x, v) for x, v in zip(xs, values) if v]
        cut = []
        for (xa, va), (xb, vb) in zip(points, points[1:]):
            if va <= most:
                cut.append((xa, va))
                if vb > most:
                    cut.append((xa + (xb - xa) * (most - va) / (vb - va), most))
            elif vb <= most:
                cut.append((xa + (xb - xa) * (most - va) / (vb - va), most))
        if points and points[-1][1] <= most:
            cut.append(points[-1])
        line = " ".join(f"{x:.1f},{y(v):.1f}" for x, v in cut)
        if cut:
            at = cut[len(cut) // 2] if len(cut) > 2 else cut[0]
            out.append(f'<polyline class="{style}" points="{line}"/><text class="s" x="{at[0] + 6:.1f}" y="{y(at[1]) - 7:.1f}">{name}</text>')
    line = " ".join(f"{x:.1f},{y(r['tok_per_s']):.1f}" for x, r in zip(xs, rows))
    out.append(f'<polyline class="m" points="{line}"/>')
    for x, row in zip(xs, rows):
        out.append(f'<line class="r" x1="{x:.1f}" x2="{x:.1f}" y1="{y(row["min"]):.1f}" y2="{y(row["max"]):.1f}"/>'
                   f'<circle class="p" cx="{x:.1f}" cy="{y(row["tok_per_s"]):.1f}" r="4"/>'
                   f'<text x="{x:.1f}" y="{y(row["tok_per_s"]) + 19:.1f}" text-anchor="middle">{row["tok_per_s"]:.{0 if row["tok_per_s"] >= 100 else 1}f}</text>')
    return out


def draw(data):
    bench, context, batch = data["bench"], data["context"], data["batch"]

    # A limit is the best that was measured: what disturbs a measurement makes it smaller. How often all weights can be read in a second:
    reads = max(r["bandwidth_gbps"] for kind in KINDS for r in data[kind]) * 1e9 / bench["decode_bytes"]
    prompt = max((r["max"] for r in data["prompt"]), default=0)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"><style>{STYLE}</style>',
           '<rect width="100%" height="100%" fill="#fff"/>',
           f'<text class="s" x="{LEFT}" y="24">' + html.escape(f'{bench["model"]}, {bench["main_type"]}; {data["machine"]}; {bench["device"]}; '
                                                               f'Duet {bench["duet"]}, {bench["build"].split(";")[0]}') + "</text>"]
    out += panel(LEFT, "Generation: tokens a second", "tokens the context already holds", context, "depth",
                 [("l", "weights read at memory speed", [reads] * len(context))])
    out += panel(LEFT + PANEL + 100, "Generation: all sequences together", "sequences at once", batch, "n_seqs",
                 [("l", "weights read at memory speed", [r["n_seqs"] * reads for r in batch]),
                  ("c", "speed of a prompt", [prompt] * len(batch))])
    notes = [f"Points are medians of {len(batch[0]['samples'])} measurements in turns, bars the slowest and the fastest; dashed: limits, "
             "the best measured beside them.", f"{data['date']}: {data['command']}"]
    for i, note in enumerate(notes):
        out.append(f'<text class="s" x="{LEFT}" y="{HEIGHT - 26 + 16 * i}">{html.escape(note)}</text>')
    out.append("</svg>")
    return "\n".join(out) + "\n"


def main():
    def numbers(text):
        return [int(n) for n in text.split(",")]

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("-m", "--model")
    source.add_argument("--from", dest="measured", metavar="FILE.json")
    parser.add_argument("-o", "--output", required=True, metavar="FILE.svg")
    parser.add_argument("-t", "--threads", type=int, default=0)
    parser.add_argument("-r", "--repetitions", type=int, default=1)
    parser.add_argument("--again", action="store_true")
    parser.add_argument("-n", "--n-gen", type=int, default=16)
    parser.add_argument("--depths", type=numbers, default=[0, 512, 1024, 2048, 4096])
    parser.add_argument("--batches", type=numbers, default=[1, 2, 4, 8, 16])
    parser.add_argument("--bench", default=os.path.join(ROOT, "bin", "bench"))
    args = parser.parse_args()
    if args.measured:
        with open(args.measured, encoding="utf-8") as file:
            data = json.load(file)
    else:
        data, kept = measure(args), os.path.splitext(args.output)[0] + ".json"
        if args.again:
            with open(kept, encoding="utf-8") as file:
                data = with_round(json.load(file), data)
        with open(kept, "w", encoding="utf-8") as file:
            json.dump(data, file, indent=1)
            file.write("\n")
    with open(args.output, "w", encoding="utf-8") as file:
        file.write(draw(data))


main()
