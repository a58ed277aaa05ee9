#!/usr/bin/env python3
"""Counts what the GPU kernels ask of a chip, from runs of their machine code (AMD) or intermediate code (NVIDIA) on the CPU.

    gpu_counts.py TABLE TRACE_PROGRAM TOOL_FOLDER CODE...        fills the rows of the chips in TABLE (benchmarks/gpu_counts.json)
    gpu_counts.py --print TABLE CHIP                              what TABLE has of a chip, as `make gpu-report COUNTS=1` prints it
    gpu_counts.py --registers TABLE CODE_OBJECT...                the registers of chips whose instructions are not counted

CODE is build/gpu/CHIP-sample.co (TOOL_FOLDER has rdna_emu.py) or .ptx (ptx_emu.py). The launches are those that the executor makes for an
8B model (TRACE_PROGRAM shape, tests/gpu_trace.cpp): two layers with all columns and rows, and 16,384 words instead of 128,256.
What is run of a launch: decoding of one token at 512 and 8,192 positions whole; of all others the first block, and of attention in prompts
the first and the last, whose mean is that of all, as the number of chunks grows by equal steps. Blocks of one launch do the same, so a
launch is a block times their number. What a whole launch has above that is the work of its last block alone (`tail`).
Memory holds zeros. No kernel's instructions depend on values but for the order of branches in the search for the largest logit.

Of a block: instructions of warps by class; bytes that loads of global memory ask for; barriers; `trips`: how often a warp waits for loads of
weights (marked as read once) and for others, on average of its warps, loads that were asked for together counted once.
From PTX: loads of a block of code are taken to be asked for together unless one's address comes from another, as ptxas has the freedom and
the guards show that it takes it (tests/gpu_guards.py). `trips ahead`: loads that only code above them reads, so a turn of the loop later, and
copies to shared memory, which are waited for a turn later too: turns, as all of a turn are on their way together. What ptxas puts into other
instructions (folded_class) is counted with moves, which the model does not take for instructions. Also 32-byte sectors touched and the least possible, passes of the banks of shared memory and the least.
From AMD's code: bytes are those of all lanes of the executed loads, waits are s_waitcnt and its like. Sectors and bank passes are not to be had.
"""
import hashlib
import json
import os
import re
import struct
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', 'tests'))
import gpu_replay  # noqa: E402
import gpu_report  # noqa: E402
from gpu_model import NONE, load  # noqa: E402

FORMATS = ('q4_0', 'q4_K', 'q8_0', 'f16', 'q4_0-fast', 'f16-fast')    # -fast: prompts in mode fast
# Tokens of a sequence, sequences, positions. apart: norms are launches of their own, as where launches start early, and in a walk.
CASES = {'1x512': (1, 1, 512), '1x8192': (1, 1, 8192), '1x512 apart': (1, 1, 512), '1x8192 apart': (1, 1, 8192), '4x512': (1, 4, 512), '16x512': (1, 16, 512), 'p512': (512, 1, 512), 'p4096': (512, 1, 4096)}
CUT_VOCAB = 16384
# Multiprocessors as the driver tells them (RDNA: pairs of compute units): how many blocks share a tile depends on them.
UNITS = {'sm_90': 132, 'gfx1100': 48, 'gfx1201': 32, 'gfx942': 304}
# The last field of arguments with `ahead` (gpu/args.h), and what a block brings of that (kFetchBytes).
AHEAD, FETCH_BYTES, MORE_CHUNKS = struct.Struct('<QII'), 16384, 272    # kMoreChunks (gpu/context.h)
AMD_CLASSES = (('matrix', r'v_(wmma|mfma|smfmac)'), ('dot', r'v_dot'), ('load', r'(global|flat|buffer)_load'), ('store', r'(global|flat|buffer)_(store|atomic)'),
               ('shared', r'ds_'), ('scalar load', r's_(buffer_)?load'), ('barrier', r's_barrier'), ('wait', r's_wait|s_nop|s_delay|s_clause|s_sleep'),
               ('scalar', r's_'), ('fma', r'v_(pk_|dual_)?(fma|fmac|fmaak|fmamk)'), ('convert', r'v_cvt'), ('float', r'v_\w*_f(16|32|64)'), ('int', r'v_'))
WIDTHS = {'b8': 1, 'u8': 1, 'i8': 1, 'ubyte': 1, 'sbyte': 1, 'b16': 2, 'u16': 2, 'i16': 2, 'ushort': 2, 'sshort': 2, 'b32': 4, 'dword': 4, 'b64': 8,
          'dwordx2': 8, 'b96': 12, 'dwordx3': 12, 'b128': 16, 'dwordx4': 16, 'b256': 32, 'dwordx8': 32, 'b512': 64, 'dwordx16': 64}
STREAM = r'\b(slc|nt)\b|TH_LOAD_NT|L1::no_allocate'


def amd_class(text):
    return next((name for name, pattern in AMD_CLASSES if re.match(pattern, text)), 'other')


class Trips:
    """Counts waits for memory in code that is read in its order. Loads that are on their way stay so from block to block; loads that
    were asked for before an earlier wait come with that one, as they were on their way together. A load that ran more often than the
    wait behind it was waited for above it, a turn of its loop later."""

    def __init__(self):
        self.pending, self.n, self.found, self.ahead = [], 0, {}, 0

    def load(self, is_weights, n):
        self.pending.append((is_weights, self.n, n))

    def land(self, n_landed, n):
        landed, self.pending = self.pending[:n_landed], self.pending[n_landed:]
        most = max((ran for _, asked, ran in landed if asked == self.n), default=0)
        self.ahead = max(self.ahead, most - n)
        if most:
            self.n += 1
            kind = 'trips of weights' if any(is_weights for is_weights, _, _ in landed) else 'trips'
            self.found[kind] = self.found.get(kind, 0) + min(n, most)


def amd_counts(stats, is_wave64):
    """Sums over a launch, from how often each block of code ran."""
    classes, sums = {}, {'bytes': 0, 'bytes of weights': 0, 'stored': 0, 'barriers': 0}
    starts = sorted(stats.hist)
    vector, scalar, at = Trips(), Trips(), 0
    for i, start in enumerate(starts):
        end, n = starts[i + 1] if i + 1 < len(starts) else 1 << 62, stats.hist[start]
        while at < len(stats.insts) and stats.insts[at][0] < start:
            at += 1
        while at < len(stats.insts) and stats.insts[at][0] < end:
            text = stats.insts[at][2]
            at += 1
            if not n:    # else the wait of a branch that nobody took would stand for that of another
                continue
            kind = amd_class(text)    # two in one (v_dual) are one
            classes[kind] = classes.get(kind, 0) + n
            load = re.match(r'(?:global|flat|buffer)_load_(?:d16_|lds_)?(?:hi_)?(\w+)', text)
            scalar_load = re.match(r's_(?:buffer_)?load_(\w+)', text)
            if load:
                n_bytes, is_weights = n * WIDTHS.get(load[1], 4) * (64 if is_wave64 else 32), bool(re.search(STREAM, text))
                sums['bytes'] += n_bytes
                sums['bytes of weights'] += n_bytes * is_weights
                vector.load(is_weights, n)
            elif scalar_load:
                sums['bytes'] += n * WIDTHS.get(scalar_load[1], 4)
                scalar.load(False, n)
            elif re.match(r'(global|flat|buffer)_(store|atomic)', text):
                width = re.search(r'_(b\d+|dword(?:x\d)?|byte|short)\b', text)
                sums['stored'] += n * WIDTHS.get(width[1] if width else '', 4) * (64 if is_wave64 else 32)
            elif text.startswith(('s_barrier ', 's_barrier_wait')) or text == 's_barrier':
                sums['barriers'] += n
            found = re.search(r'vmcnt\((\d+)\)|s_wait_loadcnt\w* 0x([0-9a-f]+)', text)
            if found:
                vector.land(max(0, len(vector.pending) - (int(found[1]) if found[1] else int(found[2], 16) & 63)), n)
            if re.search(r'lgkmcnt\(0\)|s_wait_kmcnt 0x0', text):
                scalar.land(len(scalar.pending), n)
    vector.land(len(vector.pending), 0)
    for kind, many in {**vector.found, 'trips of scalars': sum(scalar.found.values()), 'trips ahead': vector.ahead}.items():
        sums[kind] = many / stats.waves * stats.workgroups
    return classes, sums


def reads(text):
    """The registers that an instruction of PTX writes, or a store's address, and those that it reads."""
    rest = re.sub(r'^@\S+ ', '', text)
    into, _, source = rest.partition(',') if '{' not in rest.split(',')[0] else rest.partition('}')
    return re.findall(r'%\w+', into), re.findall(r'%\w+', source)


def ptx_counts(program, stats):
    classes = {kind: n for kind, (n, _) in stats.classes().items()}
    totals = stats.totals()
    loads = [m for m in stats.memory() if m['space'] != 'shared' and re.match(r'(@\S+ )?ld', m['text'])]
    sums = {'bytes': sum(m['bytes'] for m in loads), 'bytes of weights': sum(32 * m['sectors'] for m in loads if re.search(STREAM, m['text'])),
            'sectors': sum(m['sectors'] for m in loads), 'least sectors': sum(m['ideal'] for m in loads),
            'stored': totals['global_bytes'] - sum(m['bytes'] for m in loads), 'bank passes': totals['shared_passes'],
            'least passes': totals['shared_least'], 'barriers': classes.get('bar', classes.get('barrier', 0))}
    ran = {id(c): n for n, _, c in stats._blocks}
    readers = {}    # of each register: where, and what it is moved to there
    for at, (_, text) in enumerate(program.texts):
        into, source = reads(text)
        for r in source:
            readers.setdefault(r, []).append((at, into[0] if re.match(r'mov\.', text) else None))

    def folded_class(text):
        """The class of an instruction that the machine has within those that read its result, else None: a constant added to an address,
        half of a register that a conversion takes, a copy's size or none."""
        into = reads(text)[0]
        users = [program.texts[at][1] for r in into for at, _ in readers.get(r, ())]
        if re.match(r'add\.\w+ %\w+, %\w+, -?\d+$', text):
            is_address = all(into[0] not in re.findall(r'%\w+', re.sub(r'\[.*?\]', '', user)) for user in users)
            return ('int64' if text.startswith('add.s64') else 'int') if is_address else None
        if re.match(r'selp\.b32 %\w+, \d+, 0, ', text):
            return 'select' if all(user.startswith('cp.async') for user in users) else None
        if re.match(r'cvt\.u16\.u32 ', text):
            return 'cvt' if all(user.startswith('cvt.f32.f16 ') for user in users) else None
        if re.match(r'shr\.u32 %\w+, %\w+, 16$', text):
            return 'int' if all(user.startswith('cvt.u16.u32 ') and folded_class(user) for user in users) else None
        return None

    def is_read_above(register, at):
        """Whether only code above reads what is put there, itself or as the loop's next value, which is moved at its end."""
        return register in readers and all(where < at or (to and is_read_above(to, where)) for where, to in readers[register])

    for i, (start, _, _) in enumerate(program.bl):
        end, n = program.bl[i + 1][0] if i + 1 < len(program.bl) else len(program.texts), ran.get(id(program.bl_cls[i]), 0)
        for _, text in program.texts[start:end] if n else ():
            kind = folded_class(text)
            if kind:
                classes[kind] -= n
                classes['mov'] = classes.get('mov', 0) + n
        depth, levels = {}, {}    # how many loads of this block each register waits for, one after the other
        for at, (_, text) in enumerate(program.texts[start:end], start):
            into, source = reads(text)
            now = max((depth.get(r, 0) for r in source), default=0)
            is_load = re.match(r'(@\S+ )?ld\.(?!param|shared|const|local)', text)
            if 'cp.async.c' in text or (is_load and all(is_read_above(r, at) for r in into)):
                sums['trips ahead'] = max(sums.get('trips ahead', 0), n / stats.waves * stats.workgroups)
            elif is_load:
                now += 1
                levels[now] = levels.get(now, False) or bool(re.search(STREAM, text))
            for r in into:
                depth[r] = now
        for is_weights in levels.values():
            kind = 'trips of weights' if is_weights else 'trips'
            sums[kind] = sums.get(kind, 0) + n / stats.waves * stats.workgroups
    return classes, sums


class Machine:
    """A chip's code in the tool that runs it."""

    def __init__(self, folder, code):
        sys.path.insert(0, folder)
        self.is_ptx = code.endswith('.ptx')
        os.environ.setdefault('RDNA_EMU_CC', 'clang-19')
        os.environ.setdefault('RDNA_EMU_CFLAGS', '-O0 -march=native -ffp-contract=off -frounding-math -fno-strict-aliasing -fwrapv -w -shared -fPIC')
        os.environ.setdefault('RDNA_EMU_CACHE', 'build/gpu/translated')
        os.environ.setdefault('PTX_EMU_CACHE', 'build/gpu/translated')
        if self.is_ptx:
            import ptx_emu as tool
            self.emulator = tool.Emulator(code, races=False, profile=True)
        else:
            import rdna_emu as tool
            self.emulator = tool.Emulator(code)
        self.tool = tool

    def run(self, launch, memory, first, end):
        """What the blocks first to end - 1 of a launch do: counts of the whole, and of a block on average."""
        name, grid, args = launch
        stats = self.emulator.launch(name, grid[:3], (gpu_replay.threads_of(self.emulator, name, grid[3]),), [memory.patch(args)], dynamic_lds=grid[4], wg_range=(first, end))
        if self.is_ptx:
            return ptx_counts(self.emulator._lower(name), stats)
        return amd_counts(stats, self.emulator.co.kernel(name).wave_size == 64)

    def registers(self, name):
        return None if self.is_ptx else self.emulator.co.kernels[name]['.vgpr_count']


def add(a, b, factor=1.0):
    return {k: a.get(k, 0) + factor * b.get(k, 0) for k in a | b}


def read_launches(program, kind, n_layers, case, n_units, vec_blocks):
    """The launches of a batch, and the events before each that it needs."""
    path = f'build/gpu/shape-{kind}-{n_layers}-{case.replace(" ", "-")}-{n_units}-{vec_blocks}.trace'
    if not os.path.exists(path) or os.path.getmtime(path) < os.path.getmtime(program):
        subprocess.run([program, 'shape', path + '.part', 'emu64' if case.endswith('apart') else 'emu32', kind, *map(str, (n_layers, *CASES[case], n_units, vec_blocks))],
                       check=True)
        os.replace(path + '.part', path)
    events = list(gpu_replay.events(path))
    ends = [i for i, e in enumerate(events) if e[0] == 'l' and e[5] == 'kernel_argmax']
    return events[:ends[0] + 1] if ends else events


def sections(one, two):
    """Which launches of a one-layer model are the layer's: first and end, by comparison with those of two layers."""
    one, two = [[e[5] for e in events if e[0] == 'l'] for events in (one, two)]
    n = len(two) - len(one)
    first = next(i for i in range(len(one)) if two[i:i + n] == two[i + n:i + 2 * n] and two[:i] + two[i + n:] == one)
    return first, first + n


def rounded(counts):
    return {k: round(v, 1) if v % 1 else int(v) for k, v in counts.items() if round(v, 1)}


def bytes_ahead(name, grid, args):
    """The bytes of the next matrix that a launch brings to the second cache beside its own work, and the blocks that do nothing else."""
    if not re.search('matvec_|attention_split', name):
        return 0, 0
    at, n_bytes, _ = AHEAD.unpack(args[-AHEAD.size:])
    if 'matvec' in name:
        return min(n_bytes, grid[0] * FETCH_BYTES) if at else 0, 0
    more = min(-(-n_bytes // (grid[0] * FETCH_BYTES)), MORE_CHUNKS)
    return min(n_bytes, more * grid[0] * FETCH_BYTES), more


def count_launch(machine, launch, memory, case):
    """The counts of an average block, and of the tail."""
    name, grid, _ = launch
    n = grid[0] * grid[1] * (grid[2] - bytes_ahead(*launch)[1])
    is_whole = case.startswith('1x512') or (case.startswith('1x8192') and 'attention' in name)
    # The last block alone has a tail: what it does when all others have counted themselves as finished.
    # Where blocks share tiles, a tile's last block does more than the others, so the first stands for all of them.
    n_alike = 1 if grid[2] > 1 or not is_whole else max(n - 1, 1)
    classes, sums = machine.run(launch, memory, 0, n_alike)
    tail = None
    if is_whole and n > 1:
        if n_alike < n - 1:
            machine.run(launch, memory, n_alike, n - 1)
        classes, sums = ({k: v / n_alike for k, v in part.items()} for part in (classes, sums))
        last_classes, last_sums = machine.run(launch, memory, n - 1, n)
        # Which matrix is a block's decides how many arguments it loads, which is no tail.
        above = sum(v for k, v in add(last_classes, classes, -1).items() if k not in NONE)
        if above > 0.01 * sum(classes.values()):
            tail = {'instructions': above, **add(last_sums, sums, -1), 'classes': rounded(add(last_classes, classes, -1))}
    elif 'attention' in name and 'split' not in name and n > 1:
        last_classes, last_sums = machine.run(launch, memory, n - 1, n)
        classes = {k: v / 2 for k, v in add(classes, last_classes).items()}
        sums = {k: v / 2 for k, v in add(sums, last_sums).items()}
    block = {'instructions': sum(classes.values()), **sums, 'classes': rounded(classes)}
    return tuple({**rounded({k: v for k, v in part.items() if k != 'classes'}), 'classes': part['classes']} if part else {} for part in (block, tail))


def fill(table, program, folder, code):
    chip = re.match(r'(\w+?)(?:-sample)?\.', os.path.basename(code))[1]
    machine = Machine(folder, code)
    counted = table.setdefault('counts', {}).setdefault(chip, {})
    counted.clear()
    known = {}
    registers = table.setdefault('registers', {}).setdefault(chip, {})
    for kind in FORMATS:
        for case in [case for case in CASES if case[0] == 'p' or not kind.endswith('-fast')]:
            # The layer is the first of two: only the last one has no norm of the next behind it.
            rest = (case, UNITS[chip], 4 if chip == 'sm_90' and case.endswith('apart') else 2)    # gpu_info.vec_blocks
            two = read_launches(program, kind, 2, *rest)
            first, end = sections(read_launches(program, kind, 1, *rest), two)
            n_all = sum(e[0] == 'l' for e in two)
            memory, rows, n = gpu_replay.Memory(lambda size: machine.tool.DevBuf(max(size, 1), align=256, fill=0)), [], 0
            for what, at, source, size, grid, name, data in two:
                base, buffer = memory.find(at)
                if what == 'l' and end <= n < 2 * end - first:
                    n += 1
                    continue
                if what == 'a':
                    memory.kept[at] = memory.make(size)
                elif what == 'u':
                    buffer.write(data, at - base)
                elif what == 'l':
                    # What has no format costs the same in all.
                    same = None if re.search('mat|embed|fast', name) else (name, grid, case, n - n_all if n >= end else n)
                    if same is None or same not in known:
                        known[same or 'this one'] = count_launch(machine, (name, grid, data), memory, case)
                    block, tail = known[same or 'this one']
                    if name == 'kernel_words':    # the batch itself, which the others read
                        machine.run((name, grid, data), memory, 0, grid[0])
                    text = json.dumps([block, tail], sort_keys=True)
                    key = f'{name.removeprefix("kernel_")} {hashlib.sha256(text.encode()).hexdigest()[:6]}'
                    counted[key] = {'block': block, **({'tail': tail} if tail else {})}
                    if machine.registers(name):
                        registers[name.removeprefix('kernel_')] = machine.registers(name)
                    ahead, more = bytes_ahead(name, grid, data)
                    grid = [*grid[:2], grid[2] - more, gpu_replay.threads_of(machine.emulator, name, grid[3]), grid[4]] + [ahead] * (ahead > 0)
                    rows.append([key, grid, 'layer' if first <= n < end else 'once'])
                    n += 1
            for buffer in memory.kept.values():
                buffer.free()
            table.setdefault('launches', {}).setdefault(chip, {}).setdefault(kind, {})[case] = rows
            print(f'{chip} {kind} {case}: {n} launches, {time.process_time():.0f} s', flush=True)


def write(path, table):
    """One line to a row, so that a change can be read."""
    with open(path, 'w', encoding='utf-8') as f:
        f.write('{\n "about": ' + json.dumps(table['about']))
        for name in ('registers', 'counts', 'launches'):
            f.write(f',\n "{name}": {{\n')
            f.write(',\n'.join(f'  "{chip}": {{\n' + ',\n'.join(f'   {json.dumps(k)}: {json.dumps(v)}' for k, v in sorted(rows.items())) + '\n  }'
                               for chip, rows in sorted(table.get(name, {}).items())))
            f.write('\n }')
        f.write('\n}\n')


def read(path):
    if not os.path.exists(path):
        return {'about': ''}
    with open(path, encoding='utf-8') as f:
        return json.load(f)


def show(table, chip):
    if chip not in table.get('launches', {}):
        return print(f'{chip}: not counted in benchmarks/gpu_counts.json (make gpu-counts TARGETS={chip})')
    print(f'{chip}: of one block (decoding: one token at 512 positions; matmul and attention of prompts: 512 tokens)')
    print(f'{"kernel":22} {"format":8} {"grid":>12} regs  instr/warp  bytes asked  sectors (least)  bank passes  barriers  waits w/o  bytes a wait  classes')
    seen, warp = set(), load('gpu_cards.json')['chips'][chip]['warp']
    for kind, cases in table['launches'][chip].items():
        for case in ('1x512', '16x512', 'p512'):
            for key, grid, _ in cases.get(case, []):
                c, name = table['counts'][chip][key]['block'], key.split()[0]
                if key in seen:
                    continue
                seen.add(key)
                n_warps = -(-grid[3] // warp)
                weights, other = c.get('trips of weights', 0), c.get('trips', 0) + c.get('trips of scalars', 0)
                top = ', '.join(f'{k} {100 * n / c["instructions"]:.0f} %' for k, n in sorted(c['classes'].items(), key=lambda e: -e[1])[:6])
                sectors = f'{c["sectors"]} ({c["least sectors"]})' if 'sectors' in c else '-'
                passes = f'{c["bank passes"] / max(c["least passes"], 1):.2f}x' if 'bank passes' in c else '-'
                barriers = c.get('barriers', 0) / n_warps
                print(f'{name:22} {kind:8} {"x".join(map(str, grid[:3])):>12} {table["registers"].get(chip, {}).get(name, 0):4}  {c["instructions"] / n_warps:10.0f}  '
                      f'{c.get("bytes", 0):11}  {sectors:>15}  {passes:>11}  {barriers:8.0f}  {weights:4.0f} {other:4.0f}  '
                      f'{c.get("bytes", 0) / max(weights + other, 1):12.0f}  {top}')


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__.split('\n\n')[1])
    if sys.argv[1] == '--print':
        return show(read(sys.argv[2]), sys.argv[3])
    if sys.argv[1] == '--registers':
        path, codes = sys.argv[2], sys.argv[3:]
        table = read(path)
        for code in codes:
            chip = re.match(r'(\w+?)(?:-sample)?\.', os.path.basename(code))[1]
            table.setdefault('registers', {})[chip] = {name.removeprefix('kernel_'): int(n.split()[0])
                                                       for name, n, *_ in gpu_report.cuda_kernels(code, chip) if 'arrange' not in name}
        return write(path, table)
    path, program, folder, *codes = sys.argv[1:]
    for code in codes:
        made = {}
        fill(made, program, folder, code)
        table = read(path)
        table['about'] = 'made by: make gpu-counts; benchmarks/gpu_counts.py says what is counted and how'
        for name, chips in made.items():
            table.setdefault(name, {}).update({chip: rows for chip, rows in chips.items() if rows})
        write(path, table)


if __name__ == '__main__':
    sys.exit(main())
