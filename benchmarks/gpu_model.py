#!/usr/bin/env python3
"""Predicts the speed of an 8B model on cards that nobody here has, from counts of what the kernels do. A model, not a measurement.

    gpu_model.py                 the tables of docs/gpu_model.md, from benchmarks/gpu_counts.json and gpu_cards.json
    gpu_model.py --check DOC     fails when DOC does not hold the tables as they are computed now; --write DOC puts them there
    gpu_model.py --card NAME     one card: every launch of a token with its times; NAME as in gpu_cards.json ("RTX 4090")
    gpu_model.py --beside TEXT FORMAT BATCH CONTEXT     one line for tests/gpu.sh: what is predicted for the card that TEXT names

The model, for one launch of n blocks on a card with u units (SMs, compute units):
  slots      u x blocks that fit a unit by registers, threads and shared memory; rounds = ceil(n / slots)
  on its way min(n, slots) x warps of a block x bytes of weights that a warp asks for before it waits
  memory     latency + bytes / (published bandwidth x the share that a copy reaches)
  in flight  bytes / (on its way / latency), Little's law
  issue      n x instructions of a block / (min(n, u) x instructions a clock); integer, dot and conversion at their own rate;
             matrix instructions at the published int8 rate (those of f16 tiles at theirs), in the same pipe on RDNA
  chain      rounds x (waits for weights x latency + other waits x latency of the second cache, half of it for scalar loads of AMD
             + the longer of instructions of a warp x clocks each and of loads asked for a turn ahead x latency)
  launch     max(memory, issue, chain) + tail (the last block alone: its waits and instructions) + gap
  early      where launches start early (early_gap_us), the gap is shorter, and the first weights of a matrix, latency and what is on its
             way, come while the last block of the launch before works alone, or a norm of a few blocks, and while that gap passes
  ahead      bytes that a launch brings of the next matrix take the memory's time that is left until the launch ends, and the next
             matrix has so many fewer; waits for them alone take the second cache's latency. In a walk each block brings a part while
             it waits for others: at the barrier, for the last block of a matrix, for a norm of a few blocks
  token      sum of its launches + the host's part. The limiter is what most of the time is spent on.
"""
import json
import math
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
N_LAYERS, KV_HEADS, WORDS, CUT_WORDS = 32, 8, 128256, 16384
WALK_BLOCKS, FETCH_BYTES = 2, 16384    # of a unit (RDNA: of a pair); what each brings ahead at a barrier (gpu/walk.cuh)
BARRIER_US = 1.0    # of the grid: 0.9 to 1.2 us (Kog, Hazy)
FORMATS = ('q4_0', 'q4_K', 'q8_0', 'f16')
PROMPT_FORMATS = (*FORMATS, 'q4_0-fast', 'f16-fast')    # the last two in mode fast
TITLES = {'q4_0': 'Q4_0', 'q4_K': 'Q4_K', 'q8_0': 'Q8_0', 'f16': 'F16', 'q4_0-fast': 'Q4_0, `--fast`', 'f16-fast': 'F16, `--fast`'}
# PTX: classes that run at half of the rate; int64 is two instructions; moves and loads of parameters are none in the machine's code.
SLOW = {'int': 1, 'int64': 2, 'select': 1, 'cvt': 1, 'dp4a': 1, 'int division': 20}
NONE = {'mov', 'ld.param'}
MATRIX = {'matrix', 'mma'}
# Vector instructions of AMD; others are issued beside them.
VECTOR = {'dot', 'fma', 'convert', 'float', 'int', 'other'}
# What is wanted of the prediction: share of the bandwidth in decoding of Q4_0, tokens a second of prompts of 512.
TARGETS = {'RX 7900 XTX': (0.80, 4000), 'RTX 4090': (0.84, 18000), 'H100 SXM': (0.70, 22000), 'MI300X': (0.50, None)}


def load(name):
    with open(os.path.join(HERE, name), encoding='utf-8') as f:
        return json.load(f)


def blocks_per_unit(chip, threads, registers, shared):
    warps = threads / chip['warp']
    per_warp = math.ceil(max(registers, 1) / chip['step']) * chip['step'] * chip['warp']
    pair = chip.get('pair', 1)    # units that hold blocks together
    return max(1, min(int(pair * chip['registers'] / per_warp / warps), int(pair * chip['threads'] / threads), pair * chip['blocks'],
                      int(pair * chip['shared'] * 1024 / max(shared, 1024)))) / pair


def launch_times(card, chip, n, threads, registers, shared, c, tail=None, dram_bytes=None, walks=False, is_float=False, alone=0, brought=0, fetched=0):
    """Microseconds of one launch, by what they are spent on. c: what a block does, tail: what the last does beside it. walks: a barrier
    takes the place of the gap, and the latency of the first weights passes while the block waits there. alone: microseconds before this
    launch in which its first weights may come. brought: bytes of its weights that the launch before brought to the second cache; fetched:
    those that it brings for the next."""
    warps = threads / chip['warp']
    clock = card['clock_ghz'] * 1e3
    slots = card['units'] * blocks_per_unit(chip, threads, registers, shared)
    rounds = math.ceil(n / slots)
    weights = c.get('bytes of weights', 0)
    waits = c.get('trips of weights', 0)
    n_bytes = max(0, (dram_bytes if dram_bytes is not None else n * weights) - brought)
    turns = waits + c.get('trips ahead', 0)
    per_wait = weights / turns if turns else n_bytes / n
    bandwidth = card['gbps'] * card['ceiling'] * 1e3    # bytes a microsecond
    little = min(n, slots) * per_wait / card['latency_us']
    classes = c.get('classes', {})
    is_amd = any(kind in classes for kind in ('wait', 'scalar', 'scalar load'))
    slow = 0 if is_amd else sum(v * SLOW.get(k, 0) for k, v in classes.items())

    def issued_of(part):    # of PTX, those that the machine has
        return sum(v * SLOW.get(k, 1) for k, v in part['classes'].items() if k not in NONE and k not in MATRIX)

    issued = sum(v for k, v in classes.items() if k in VECTOR) if is_amd else issued_of(c)

    def in_a_row(part):    # what a block's warps do
        return part['instructions'] if is_amd else issued_of(part)

    matrix = sum(v for k, v in classes.items() if k in MATRIX)
    ops_per_us = (card['f16_tflops'] / chip['f16_share'] if is_float else card['int8_tops']) * 1e6
    matrix_us = n * matrix * chip['matrix_ops'] / (min(n, card['units']) / card['units'] * ops_per_us)
    units = min(n, card['units'])
    vector_us = n * max(issued / chip['issue'], slow / chip['slow']) / units / clock
    issue = vector_us + matrix_us if is_amd and chip['warp'] == 32 else max(vector_us, matrix_us)
    near = min(waits, int(brought / (min(n, slots) * per_wait))) if brought else 0    # waits for what the launch before brought
    chain_us = ((waits - near) * card['latency_us'] + near * card['l2_us'] + (c.get('trips', 0) + c.get('trips of scalars', 0) / 2) * card['l2_us']
                + max(in_a_row(c) / warps * chip['chain_clocks'] / clock, c.get('trips ahead', 0) * card['latency_us']))
    parts = {'memory': n_bytes / bandwidth + (card['latency_us'] if n_bytes and not (walks and weights) else 0), 'in flight': n_bytes / little if little and n_bytes > 0 else 0, 'issue': issue, 'chain': rounds * chain_us + (rounds - 1) * near * (card['latency_us'] - card['l2_us'])}
    if weights and alone:
        first = min(min(n, slots) * per_wait, n_bytes) * n_bytes / (n_bytes + brought)
        parts['memory'] -= min(alone, card['latency_us'] + first / bandwidth)
        parts['chain'] -= min(alone, card['latency_us']) if not near else 0
    limiter = max(parts, key=parts.get)
    times = {limiter: parts[limiter], 'gap': BARRIER_US if walks else card.get('early_gap_us', card['gap_us'])}
    if tail:
        times['tail'] = ((tail.get('trips', 0) + tail.get('trips of weights', 0) + 2) * card['l2_us']
                         + in_a_row(tail) / warps * chip['chain_clocks'] / clock)
    # What comes ahead takes the memory's time that is left while the launch waits, and more where that is too little.
    longer = (n_bytes + fetched) / bandwidth + card['latency_us'] * (not walks) - parts[limiter] - times.get('tail', 0) if fetched else 0
    times[limiter] += max(0, longer)
    return times, {**parts, 'rounds': rounds, 'MB': n_bytes / 1e6, 'kB in flight of a unit': min(n, slots) * per_wait / card['units'] / 1e3}


def deeper(cases, batch, context):
    """The launches of several sequences at a context at which only one was counted: its attention, for each."""
    key1, grid1 = next((key, grid) for key, grid, _ in cases['1x' + context] if key.startswith('attention'))
    return [[key1, [grid1[0], grid[1], *grid1[2:5]], where] if key.startswith('attention') else [key, grid, where]
            for key, grid, where in cases[batch + 'x512']]


def is_counted(counts, card, kind, *cases):
    have = counts['launches'].get(card['counts'], {}).get(kind, {})
    return all(case in have or ('x' in case and f'{case.split("x")[0]}x512' in have and '1x' + case.split('x')[1] in have) for case in cases)


def predict(counts, cards, name, kind, case, walks=False):
    """Microseconds of a batch by what they are spent on, the bytes of weights read, and a row for each launch."""
    card = cards['cards'][name]
    chip, counted = cards['chips'][card['counts']], counts['counts'][card['counts']]
    registers = counts['registers'].get(card['counts'], {})
    cases = counts['launches'][card['counts']][kind]
    if case.startswith('1x') and (walks or 'early_gap_us' in card):
        case += ' apart'
    rows = cases.get(case) or deeper(cases, *case.split('x'))
    prompt = 'x' not in case
    # Tails are counted of launches of one token. With several tokens only attention has one.
    one = [key for key, _, _ in cases['1x' + case.split('x')[-1]]] if not prompt else []
    attention = next((key for key in one if key.startswith('attention')), None)
    spent, n_bytes, lines, alone, brought, idle = {'host': card['host_us']}, 0, [], 0, 0, 0
    for i, (key, grid, where) in enumerate(rows):
        kernel, c = key.split()[0], counted[key]
        x, y, z, threads, shared, *fetched = grid
        if where != (rows[i - 1][2] if i else None):    # a layer stands for all: the one before it ends as it does
            brought = sum(next((g[5:] for _, g, w in reversed(rows) if w == 'layer'), ())) if where == 'layer' else 0
        if where == 'once' and kernel.startswith(('matvec', 'argmax')):
            x = math.ceil(x * WORDS / CUT_WORDS)
        n = x * y * z
        tail = None
        if not prompt and 'attention' in kernel:
            tail = counted[attention].get('tail')
        elif case.startswith('1x'):
            tail = counted[cases[case.replace('8192', '512')][i][0]].get('tail')
        dram = None
        b = c['block']
        if 'attention' in kernel:
            # Keys and values: each chunk of 64 positions and head (KV_HEADS of them) once for a token, also where blocks share a head.
            # Prompts read them from the second cache.
            dram = 0 if prompt else min(x, KV_HEADS) * y * z * 64 * 2 * 128 * 2
            if not prompt:
                waits = b.get('trips of weights', 0) + b.get('trips', 0)
                b = {**b, 'bytes of weights': 64 * 2 * 128 * 2, 'trips of weights': waits, 'trips': 0}
        elif kernel.startswith(('matmul', 'matvec8', 'fast')):    # blocks with the same rows of weights find them in the second cache
            dram = (x if kernel.startswith('matvec8') else y) * z * b.get('bytes of weights', 0)
        is_matvec = kernel.startswith('matvec')
        if walks and kernel == 'matvec_' + kind:    # each block has brought a part of it, as far as memory could while it waited
            brought = max(brought, min(WALK_BLOCKS * card['units'] / chip.get('pair', 1) * FETCH_BYTES, max(0, idle - card['latency_us']) * card['gbps'] * card['ceiling'] * 1e3))
        times, parts = launch_times(card, chip, n, threads, registers.get(kernel, 96), shared, b, tail, dram, walks, kernel.startswith('fast'),
                                    alone * is_matvec, brought * is_matvec, sum(fetched))
        # What is fetched begins where the next matrix does, and so does what is left of what was fetched before.
        brought = max(sum(fetched), brought - is_matvec * (dram if dram is not None else n * b.get('bytes of weights', 0)))
        # A norm of a few blocks leaves the card to the launch behind it, which starts when the norm does.
        few = sum(times.values()) - times['gap'] if kernel == 'norm' and n < card['units'] / 4 else times.get('tail', 0)
        idle = few + times['gap']
        alone = idle if 'early_gap_us' in card and not walks else 0
        times_of = N_LAYERS if where == 'layer' else 1
        for what, us in times.items():
            spent[what] = spent.get(what, 0) + us * times_of
        if 'attention' not in kernel:
            n_bytes += times_of * (dram if dram is not None else n * b.get('bytes of weights', 0))
        lines.append((kernel, n, times_of, times, parts))
    return spent, n_bytes, lines


# ---- the check: other programs' kernels, from their published sources ----

MODELS = {  # layers, rows x columns of each matrix of a layer, of the output matrix
    '7b': (32, [(4096, 4096)] * 4 + [(22016, 4096), (4096, 11008)], (32000, 4096)),
    'mistral': (32, [(4096, 4096), (1024, 4096), (1024, 4096), (4096, 4096), (28672, 4096), (4096, 14336)], (32000, 4096)),
    'llama3': (32, [(4096, 4096), (1024, 4096), (1024, 4096), (4096, 4096), (28672, 4096), (4096, 14336)], (128256, 4096)),
}
BITS = {'q4_0': 4.5, 'q6_K': 6.5625, 'f16': 16}


def other_program(cards, row):
    """Milliseconds of a token of another program, by the same formulas. llama.cpp: a row of a matrix is a block of 128 threads; a thread
    has 2 words of 4 bits and a scale (F16: 8 bytes) on their way; about 610 launches a token of which 6 of a layer are matrices (Aug. 2026).
    Its instructions are guessed: 40 of a warp for each wait and 60 at the end.
    calm: one launch, all of the card on one matrix at a time, 6 barriers of the grid a layer, 4 loads of 8 bytes a thread."""
    # The published figures are older than launches that start early.
    card = {k: v for k, v in cards['cards'][row['card']].items() if k != 'early_gap_us'}
    chip = cards['chips'][card['counts']]
    n_layers, matrices, output = MODELS[row['model']]
    bits, us = BITS[row['format']], card['host_us']
    is_calm = row['program'] == 'calm'
    for n_rows, n_cols, many in [(*m, n_layers) for m in matrices] + [(*output, 1)]:
        kind = 'q6_K' if (n_rows, n_cols) == output and row['format'] == 'q4_0' else row['format']
        per_row = n_cols * BITS[kind] / 8
        per_warp = 32 * (32 if is_calm else 10 if row['format'] == 'q4_0' else 8) * chip['warp'] / 32
        if is_calm:    # a warp a row, 1,024 threads a unit
            warps = 32
            n, threads = math.ceil(n_rows / warps), 1024
        else:
            warps, n, threads = 128 / chip['warp'], n_rows, 128
        waits = max(1, per_row / per_warp / (1 if is_calm else warps))
        block = {'bytes of weights': per_row * (warps if is_calm else 1), 'trips of weights': waits, 'trips': 1,
                 'instructions': warps * (40 * waits + 60), 'classes': {'ld': warps * (40 * waits + 60)}}
        times, _ = launch_times(card, chip, n, threads, 40, 1024, block)
        us += many * (sum(times.values()) - (card['gap_us'] if is_calm else 0))
    if is_calm:
        us += n_layers * 6 * BARRIER_US
    else:
        small = {'trips of weights': 0, 'trips': 3, 'instructions': 8 * 60, 'classes': {'ld': 8 * 60}}
        n_small = 610 - n_layers * len(matrices) - 1
        us += n_small * sum(launch_times(card, chip, 32, 256, 32, 1024, small)[0].values())
    return us / 1e3


# ---- tables ----

def check_table(cards):
    lines = ['| card | program, model | published tok/s | model | error |', '|---|---|---:|---:|---:|']
    errors = []
    for row in cards['published']:
        got = 1e3 / other_program(cards, row)
        error = got / row['tok_s'] - 1
        errors.append(error)
        if row['card'] == 'H100 PCIe':    # the other reading of a row that is counted with its larger error
            errors.pop()
        lines.append(f'| {row["card"]} | {row["program"]}, {row["model"]} {TITLES[row["format"]]} | {row["tok_s"]:.1f} | {got:.0f} | {error:+.0%} |')
    lines.append(f'\nMean of the errors without their sign (H100 counted once, as SXM) {sum(map(abs, errors)) / len(errors):.0%}, largest {max(errors, key=abs):+.0%}.')
    return lines


def measured_table(counts, cards):
    """This program on cards that it ran on."""
    lines = ['| card | format, work | measured tok/s | model | error |', '|---|---|---:|---:|---:|']
    errors = []
    for row in cards['measured']:
        name, kind, case = row['card'], row['format'], row['case']
        if not is_counted(counts, cards['cards'][name], kind, case):
            sys.exit(f'gpu_cards.json: {case} of {kind} is not counted')
        if case.startswith('p'):
            got, what = prompt_tokens_per_second(counts, cards, name, kind, int(case[1:]))[0], f'prompt of {int(case[1:]):,}'
        else:
            n, context = map(int, case.split('x'))
            got, what = n / sum(predict(counts, cards, name, kind, case)[0].values()) * 1e6, f'{n} at {context:,}'
        errors.append(got / row['tok_s'] - 1)
        lines.append(f'| {name} | {TITLES[kind]}, {what} | {row["tok_s"]:,} | {got:,.0f} | {errors[-1]:+.0%} |')
    lines.append(f'\nMean of the errors without their sign {sum(map(abs, errors)) / len(errors):.0%}, largest {max(errors, key=abs):+.0%}.')
    return lines


def limiter_of(spent):
    most = max(spent, key=spent.get)
    return f'{most} {spent[most] / sum(spent.values()):.0%}'


def decode_table(counts, cards):
    lines = ['| card | format | 1 at 512: tok/s (share) | limiter | 1 at 8,192 | limiter | 4 at 512 | 4 at 8,192 | 16 at 512 | 16 at 8,192 |',
             '|---|---|---:|---|---:|---|---:|---:|---:|---:|']
    for name, card in cards['cards'].items():
        for kind in FORMATS:
            if card.get('check_only') or kind not in counts['launches'].get(card['counts'], {}):
                continue
            cells = []
            for case in ('1x512', '1x8192', '4x512', '4x8192', '16x512', '16x8192'):
                if not is_counted(counts, card, kind, case):
                    cells += ['not counted'] + [''] * case.startswith('1x')
                    continue
                spent, n_bytes, _ = predict(counts, cards, name, kind, case)
                us, n = sum(spent.values()), int(case.split('x')[0])
                speed = f'{n / us * 1e6:,.0f}'
                cells += [f'{speed} ({n_bytes / us / card["gbps"] / 1e3:.0%})' if case == '1x512' else speed] + ([limiter_of(spent)] if n == 1 else [])
            lines.append(f'| {name} | {TITLES[kind]} | ' + ' | '.join(cells) + ' |')
    return lines


def prompt_tokens_per_second(counts, cards, name, kind, n):
    """A prompt goes in batches of 512: the first and the last are counted, those between are their mean."""
    first, last = (predict(counts, cards, name, kind, case)[0] for case in ('p512', 'p4096' if n > 512 else 'p512'))
    many = n // 512
    mean = {k: (first.get(k, 0) + last.get(k, 0)) / 2 if many > 1 else first.get(k, 0) for k in first | last}
    return n / (many * sum(mean.values())) * 1e6, mean


def prompt_table(counts, cards):
    lines = ['| card | format | 512 tokens: tok/s | limiter | 4,096 tokens: tok/s | limiter |', '|---|---|---:|---|---:|---|']
    for name, card in cards['cards'].items():
        for kind in PROMPT_FORMATS:
            if card.get('check_only') or kind not in counts['launches'].get(card['counts'], {}):
                continue
            cells = []
            for n in (512, 4096):
                if not is_counted(counts, card, kind, f'p{n}'):
                    cells += ['not counted', '']
                    continue
                speed, spent = prompt_tokens_per_second(counts, cards, name, kind, n)
                cells += [f'{speed:,.0f}', limiter_of(spent)]
            lines.append(f'| {name} | {TITLES[kind]} | ' + ' | '.join(cells) + ' |')
    return lines


def target_table(counts, cards):
    lines = ['| card | decoding, Q4_0: share of bandwidth, wanted | predicted | | by a walk | prompt of 512, tok/s, wanted | predicted | |', '|---|---:|---:|---|---:|---:|---:|---|']
    for name, (share, speed) in TARGETS.items():
        if 'q4_0' not in counts['launches'].get(cards['cards'][name]['counts'], {}):
            lines.append(f'| {name} | {share:.0%} | not counted | | | {f"{speed:,}" if speed else "-"} | not counted | |')
            continue
        spent, n_bytes, _ = predict(counts, cards, name, 'q4_0', '1x512')
        got = n_bytes / sum(spent.values()) / cards['cards'][name]['gbps'] / 1e3
        walked = n_bytes / sum(predict(counts, cards, name, 'q4_0', '1x512', True)[0].values()) / cards['cards'][name]['gbps'] / 1e3
        tokens = prompt_tokens_per_second(counts, cards, name, 'q4_0', 512)[0]
        lines.append(f'| {name} | {share:.0%} | {got:.0%} | {"met" if got >= share else "not met"} | {walked:.0%} | {f"{speed:,}" if speed else "-"} | {tokens:,.0f} | '
                     f'{"" if not speed else "met" if tokens >= speed else "not met"} |')
    return lines


def kernel_table(counts, cards):
    """The kernels that most of the time goes to, of a chip's first card."""
    lines = ['| chip | format, kernel | registers | instructions of a warp | waits: weights, others | bytes of weights a wait and warp | kB on their way in a unit '
             '| sectors: least of touched | bank passes of least | barriers |', '|---|---|---:|---:|---:|---:|---:|---:|---:|---:|']
    seen = set()
    for name, card in cards['cards'].items():
        chip = card['counts']
        if chip in seen or chip not in counts['launches']:
            continue
        seen.add(chip)
        for kind in PROMPT_FORMATS:
            for case, part in (('1x512', 'matvec'), ('16x512', 'matvec8'), ('p512', 'matmul'), ('p512', 'fast_f16'), ('1x512', 'attention'), ('p512', 'attention'), ('p512', 'fast_attention')):
                if ('attention' in part and not kind.startswith(FORMATS[0])) or (kind == 'q4_0-fast') != (part == 'fast_attention'):
                    continue
                rows = [r for r in counts['launches'][chip].get(kind, {}).get(case, []) if r[2] == 'layer' and r[0].startswith(part)]
                if not rows:
                    continue
                key, grid, _ = max(rows, key=lambda r: r[1][0] * r[1][1])
                c, kernel = counts['counts'][chip][key]['block'], key.split()[0]
                registers = counts['registers'].get(chip, {}).get(kernel, 0)
                warps = grid[3] / cards['chips'][chip]['warp']
                waits, others = c.get('trips of weights', 0), c.get('trips', 0) + c.get('trips of scalars', 0)
                ahead = c.get('trips ahead', 0)
                per_wait = c.get('bytes of weights', 0) / warps / (waits + ahead) if waits else 0
                fit = blocks_per_unit(cards['chips'][chip], grid[3], registers or 96, grid[4])
                n = grid[0] * grid[1] * grid[2]
                on_its_way = min(fit, n / card['units']) * warps * per_wait / 1e3
                what = TITLES[kind] if 'attention' not in part else 'f16 cache' + ', `--fast`' * (part == 'fast_attention')
                cells = [chip, f'{what}, {kernel} {"x".join(map(str, grid[:3]))}', str(registers or '-'), f'{c["instructions"] / warps:,.0f}',
                         f'{waits:.0f}, {others:.0f}' + (f', {ahead:.0f} ahead' if ahead else ''), f'{per_wait:,.0f}' if waits else '-', f'{on_its_way:.1f}' if waits else '-',
                         '{:.0%}'.format(c['least sectors'] / c['sectors']) if c.get('sectors') else '-',
                         '{:.2f}'.format(c['bank passes'] / c['least passes']) if c.get('least passes') else '-', f'{c.get("barriers", 0) / warps:.0f}']
                lines.append('| ' + ' | '.join(cells) + ' |')
    return lines


def tables(counts, cards):
    return {'kernels': kernel_table(counts, cards), 'check': check_table(cards), 'measured': measured_table(counts, cards),
            'targets': target_table(counts, cards), 'decode': decode_table(counts, cards), 'prompts': prompt_table(counts, cards)}


def show_card(counts, cards, name):
    for kind in FORMATS:
        for case in ('1x512', 'p512'):
            spent, n_bytes, lines = predict(counts, cards, name, kind, case)
            print(f'{name}, {TITLES[kind]}, {case}: {sum(spent.values()):.0f} us; ' + ', '.join(f'{k} {v:.0f}' for k, v in sorted(spent.items(), key=lambda e: -e[1])))
            for kernel, n, many, times, parts in lines:
                print(f'  {many:3} x {kernel:22} {n:6} blocks  ' + ', '.join(f'{k} {v:.1f}' for k, v in times.items()) + '   ['
                      + ', '.join(f'{k} {v:.1f}' for k, v in parts.items()) + ']')


def beside(counts, cards, text, kind, batch, context):
    """For tests/gpu.sh: the card that `text` names."""
    for name, card in cards['cards'].items():
        if re.search(card['named'], text, re.I) and not card.get('check_only'):
            if not is_counted(counts, card, kind, context if context.startswith('p') else f'{batch}x{context}'):
                return f'{name}: not counted'
            if context.startswith('p'):
                got = prompt_tokens_per_second(counts, cards, name, kind, int(context[1:]))[0]
            else:
                got = int(batch) / sum(predict(counts, cards, name, kind, f'{batch}x{context}')[0].values()) * 1e6
            return f'{name}: predicted {got:,.0f} tok/s'
    return f'no prediction for this card ({text.strip() or "no name"})'


def main():
    counts, cards = load('gpu_counts.json'), load('gpu_cards.json')
    if len(sys.argv) == 3 and sys.argv[1] == '--card':
        if sys.argv[2] not in cards['cards']:
            sys.exit(f'no card {sys.argv[2]}: there are {", ".join(cards["cards"])}')
        return show_card(counts, cards, sys.argv[2])
    if len(sys.argv) == 6 and sys.argv[1] == '--beside':
        return print(beside(counts, cards, *sys.argv[2:]))
    if len(sys.argv) > 1 and (len(sys.argv) != 3 or sys.argv[1] not in ('--check', '--write')):
        sys.exit(__doc__.split('\n\n')[1])
    made = {name: '\n'.join(lines) for name, lines in tables(counts, cards).items()}
    if len(sys.argv) == 3:
        with open(sys.argv[2], encoding='utf-8') as f:
            text = f.read()
        new = text
        for name, table in made.items():
            start, end = f'<!-- gpu_model {name} -->\n', f'\n<!-- end {name} -->'
            if start not in new or end not in new:
                sys.exit(f'{sys.argv[2]}: no place for the table {name}: want {start.strip()}')
            new = new[:new.index(start) + len(start)] + table + new[new.index(end):]
        if sys.argv[1] == '--write':
            with open(sys.argv[2], 'w', encoding='utf-8') as f:
                f.write(new)
        elif new != text:
            sys.exit(f'{sys.argv[2]}: tables differ from benchmarks/gpu_model.py: run it with --write {sys.argv[2]}')
        return print(f'{sys.argv[2]}: the tables are those of benchmarks/gpu_model.py')
    return print('\n\n'.join(made.values()))


if __name__ == '__main__':
    main()
