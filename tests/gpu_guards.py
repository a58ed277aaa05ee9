#!/usr/bin/env python3
"""Holds what the machine code of the kernels has reached, so that it gets worse only when somebody says so.

    gpu_guards.py [--write] TABLE CODE_OBJECT...

TABLE is tests/gpu_guards.txt, a code object build/gpu/CHIP.co or CHIP-sample.co. Of each kernel, from its disassembly
(llvm-objdump-19; nvdisasm, by NVDISASM or on the path):
  waits   matrix times vector: the 16-byte loads of a group's weights are not all on their way at once, in one block of
          code without a branch, so a lane waits for memory more than once a group. Scales are not looked at.
          Of float weights, 8 pieces have to be. Where 8 tokens go through matrix instructions of NVIDIA, a lane has a load of
          each piece of four rows, and one of a scale at least; all of them in the block are on their way at once.
  late    matrix times vector of CUDA: in a loop, it waits for the launches before it (ACQBULK) and then asks for the weights
          that it could have asked for earlier.
  narrow  it reads 1 or 2 bytes of global memory at a time in a loop. Kernels that run when a model is loaded may.
  plain   a matmul of a quantized format, a kernel of mode fast, or of NVIDIA 8 tokens of a quantized format: no instruction of its
          matrix units is in its loops. The bits would be the same.
and of each family of kernels the most registers and scalar spills (tests/gpu_report.py). Of kernels that wait for memory
or for other lanes, by name:
  together   the most loads of a block of code in a loop that are on their way at once
  wide       the most 16-byte loads of a block of code, in a loop or not: keys, or values, of a chunk of split attention
  exchanges  dependent exchanges between lanes for 1,024 values that become int8, in the loop that stores these: of the tail of a
             matrix, and of a norm, whose blocks make 1,024 of a row each at the same time
and of a chip of NVIDIA
  stores matmul  instructions that put weights or tokens into shared memory, in a loop with matrix instructions: weights stay in
                 registers, and tokens are copied without them
and of a chip of AMD
  write-backs  instructions of all kernels that write a second cache back; of walks apart, which have one for each barrier of the grid
and of walks
  scratch walk  bytes of local memory of a thread, which other kernels may not have (tests/gpu_report.py)

TABLE names the kernels that wait or read narrowly today. The program fails when another one does, when one in TABLE
does no more (--write strikes it out and refuses to add one), when a family takes more registers than TABLE says,
when fewer loads are together or more exchanges depend on each other, and when the code has nothing that a row of TABLE counts.
The code of another compiler than TABLE's is only counted.
"""
import os
import re
import shutil
import subprocess
import sys
import textwrap

import gpu_report

TOGETHER = ('norm', 'argmax', 'attention_f16', 'attention_split_f16')
WIDE = ('attention_f16', 'attention_split_f16')
EXCHANGES = ('norm', 'matvec_q4_0')
FLOATS = (('f32', 'f16', 'bf16'), ('f32',))    # formats whose products are no matrix instructions: exact, in mode fast
LISTS = {'waits': 'waits more than once for the weights of a group',
         'late': 'waits for other launches before it asks for weights',
         'narrow': 'reads 1 or 2 bytes at a time in a loop',
         'plain': 'multiplies tiles without the matrix units'}


class Block:
    """Instructions with no branch into or out of their middle, and the addresses or labels that come next."""

    def __init__(self):
        self.code, self.next = [], []


def amd_code(path):
    """Yields a kernel's name and its code: address or label, text, where it may jump, if the next one may follow."""
    out = subprocess.run(['llvm-objdump-19', '-d', path], capture_output=True, text=True, check=True).stdout
    for name, body in re.findall(r'^[0-9a-f]+ <(kernel_\w+)>:\n((?:.+\n)*)', out, re.M):
        start, code = None, []
        for text, at, target in re.findall(r'^\s+(\S.*?)\s*// ([0-9A-F]+):.*?(?:<\w+\+0x([0-9a-f]+)>)?$', body, re.M):
            start = int(at, 16) if start is None else start
            if text.startswith(('s_setpc', 's_swappc')):
                raise ValueError(f'{name}: {text}: calls are not followed')
            jumps = [int(target or '0', 16)] if text.startswith(('s_branch', 's_cbranch')) else []
            code.append((int(at, 16) - start, text, jumps, not text.startswith(('s_branch', 's_endpgm'))))
        yield name, code


def cuda_code(path):
    tool = os.environ.get('NVDISASM') or shutil.which('nvdisasm') or '/usr/local/cuda/bin/nvdisasm'
    out = subprocess.run([tool, '-c', path], capture_output=True, text=True, check=True).stdout
    for part in out.split('\n.text.')[1:]:
        name, code = part[:part.index(':')], []
        for label, at, text in re.findall(r'^(?:(\.L_\w+):|\s+/\*([0-9a-f]+)\*/\s+(.*?)\s*;.*)$', part, re.M):
            ends = re.match(r'(BRA `|BRX |EXIT$|RET)', text)
            code.append((label or int(at, 16), text, re.findall(r'\.L_\w+', text), not ends))
        yield name, code


def blocks_of(code):
    """The blocks of a kernel by the address or label of their first instruction."""
    targets, blocks, now = {to for c in code for to in c[2]}, {}, None
    for at, text, jumps, goes_on in code:
        if now is None or at in targets:
            if now:
                now.next.append(at)
            now = blocks[at] = Block()
        now.code.append(text)
        now.next += jumps
        if not goes_on:
            now = None
        elif jumps and not text.startswith('BSSY'):    # that one only says where lanes will meet
            now.next.append((at, 'after'))
            now = blocks[at, 'after'] = Block()
    return blocks


def loops_of(blocks):
    """The loops: lists of blocks that can be reached from each other (Tarjan's strong components, without recursion)."""
    number, low, stack, on_stack, found = {}, {}, [], set(), []
    for root in blocks:
        work = [] if root in number else [(root, iter(blocks[root].next))]
        while work:
            at, rest = work[-1]
            if at not in number:
                number[at] = low[at] = len(number)
                stack.append(at)
                on_stack.add(at)
            for to in rest:
                if to not in blocks:
                    continue
                if to not in number:
                    work.append((to, iter(blocks[to].next)))
                    break
                if to in on_stack:
                    low[at] = min(low[at], number[to])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[at])
                if low[at] == number[at]:
                    part = stack[stack.index(at):]
                    del stack[stack.index(at):]
                    on_stack -= set(part)
                    if len(part) > 1 or at in blocks[at].next:
                        found.append([blocks[x] for x in blocks if x in part])
    return found


def in_loops(blocks):
    return [block for loop in loops_of(blocks) for block in loop]


def most_on_the_way(block, of_weights=True, is_wide=True):
    """The most loads (of 16 bytes where is_wide, of weights where of_weights) in a block that are on their way to registers at once."""
    loads, most = [], 0    # AMD: whether each load is of weights. NVIDIA: the registers of each load of weights.
    for text in block.code:
        amd_wait = re.search(r'vmcnt\((\d+)\)|s_wait_loadcnt 0x([0-9a-f]+)', text)
        if re.match(r'(global|flat)_load_', text):
            of_these = '(b128|dwordx4).* (slc|nt|th:TH_LOAD_NT)' if of_weights else 'b128|dwordx4' if is_wide else ''
            loads.append(bool(re.search(of_these, text)))
        elif amd_wait:     # Loads end in their order. All but the last n have.
            n = int(amd_wait.group(1) or amd_wait.group(2), 10 if amd_wait.group(1) else 16)
            loads = loads[max(0, len(loads) - n):]
        else:              # An instruction of NVIDIA waits for the loads whose registers it names.
            named = {int(n) for n in re.findall(r'\bR(\d+)\b', text)}
            loads = [into for into in loads if isinstance(into, bool) or not into & named]
            load = re.search(r'LDG\.E(\.NA)?(\S*) R(\d+),', text)
            if load and (load.group(1) or not of_weights) and ('.128' in load.group(2) or not is_wide):
                size = 4 if '.128' in load.group(2) else 2 if '.64' in load.group(2) else 1
                loads.append(set(range(int(load.group(3)), int(load.group(3)) + size)))
        most = max(most, sum(bool(into) for into in loads))
    return most


def pieces():
    """The 16-byte loads of a group of 128 weights, by format."""
    with open('quant/types.def', encoding='utf-8') as f:
        table = f.read()
    ids = {name: 8 for name in re.findall(r'^QUANT_TYPE\((\w+),', table, re.M)}
    floats = re.findall(r'^FLOAT_TYPE\((\w+),\s*\w+,\s*\d+,\s*(\d)\)', table, re.M)
    ids |= {name: 8 for name, _ in floats}
    with open('gpu/weights.h', encoding='utf-8') as f:
        for name, low, high in re.findall(r'gpu_codes<block_(\w+)> : gpu_\w+<\w+, (\d), (\d)', f.read()):
            ids[name] = int(low) + int(high)
    return ids


def has_matrix(blocks, pattern='IMMA'):
    return any(re.search(pattern, text) for block in blocks for text in block.code)


def is_plain(name, loops, is_amd):
    found = re.fullmatch(r'kernel_(matmul|matvec8|fast)_(\w+)', name)
    if not found or found.group(2) in FLOATS[found.group(1) == 'fast'] or (is_amd and found.group(1) == 'matvec8'):
        return False
    return not has_matrix(loops, r'IMMA|HMMA|v_(wmma|mfma)')


def waits(name, loops, formats):
    """Whether a kernel of matrix times vector waits more than once for the weights of a group, or is of no format."""
    found = re.fullmatch(r'kernel_matvec8?_(\w+)', name)
    if not found:
        return False
    parts = [found.group(1)] if found.group(1) in formats else \
        [p for i in formats for j in formats if found.group(1) == f'{i}_{j}' for p in (i, j)]
    is_matrix = has_matrix(loops)
    want = sorted((4 * (formats[p] + 1) if is_matrix else formats[p] for p in parts), reverse=True)
    have = [most_on_the_way(b, is_wide=not is_matrix) for b in loops]
    if is_matrix:
        have = [n if n == sum('LDG.E.NA ' in text or 'LDG.E.NA.' in text for text in b.code) else 0 for n, b in zip(have, loops)]
    have.sort(reverse=True)
    return not want or any(h < w for h, w in zip(have + [0] * len(want), want))


def dependent_exchanges(loop):
    """Dependent exchanges for 1,024 values, where a loop's 256 threads store bytes; None where they store none."""
    depth, most, n_bytes = {}, 0, 0
    for text in (text for block in loop for pair in block.code for text in pair.split(' :: ')):
        n_bytes += bool(re.match(r'global_store_(b8|byte)|(@!?U?P\d+ )?STG\.E\.U8', text))
        predicate, operands = re.match(r'(@\S+ )?\S* ?(.*)', text).groups()
        names = []    # the registers that it names, the one it writes first
        for kind, low, high, vcc in re.findall(r'\b(?:(v|s|UR|UP|R|P)\[?(\d+)(?::(\d+)\])?|(vcc))', f'{operands} {predicate}'):
            names.append([vcc] if vcc else [kind + str(n) for n in range(int(low), int(high or low) + 1)])
        if not names:
            continue
        n_written = 2 if text.startswith('v_div_scale') else 1
        if 'op_sel:' not in text:    # packed: 0 says that both halves come from the lower register
            for i, flag in enumerate(''.join(re.findall(r'op_sel_hi:\[(\S+)\]', text)).split(',')):
                names[i + 1:i + 2] = [group[:1] if flag == '0' else group for group in names[i + 1:i + 2]]
        read = names[:n_written] if predicate else []    # what a predicate keeps
        now = max((depth.get(n, 0) for group in names[n_written:] + read for n in group), default=0)
        now += bool(re.search(r'^ds_(bpermute|swizzle)|_dpp|^v_permlane|SHFL', text))
        for n in sum(names[:n_written], []):
            depth[n] = now
        most = max(most, now)
    return -(-most * 1024 // (n_bytes * 256)) if n_bytes else None


def is_late(loops):
    for block in loops:
        after = [i for i, text in enumerate(block.code) if text.startswith('ACQBULK')]
        if after and any(('LDG.E.NA ' if has_matrix(loops) else 'LDG.E.NA.128') in text for text in block.code[after[0]:]):
            return True
    return False


def is_narrow(loops):
    pattern = r'^(?:global|flat|buffer)_load_(?:[ui](?:8|16)|d16|[us]byte|[us]short)|\bLDG\.E(?:\.\w+)*\.[US](?:8|16)\b'
    return any(re.search(pattern, text) for b in loops for text in b.code)


def look_at(path, chip, formats):
    """What TABLE has of this chip: {row: set of kernels or number}, and the names of all kernels."""
    is_amd = chip.startswith('gfx')
    rows, names = {row: set() for row in LISTS}, set()
    if is_amd:
        rows['write-backs'] = 0
    for name, code in (amd_code if is_amd else cuda_code)(path):
        code = list(code)
        blocks = blocks_of(code)
        if is_amd:
            row = 'write-backs walk' if name.startswith('kernel_walk') else 'write-backs'
            rows[row] = rows.get(row, 0) + sum(text.startswith('buffer_wbl2') for _, text, *_ in code)
        loops = in_loops(blocks)
        names.add(name)
        for loop in (loops_of(blocks) if name.startswith('kernel_matmul') and not is_amd else []):
            if has_matrix(loop):
                texts = [text for block in loop for text in block.code]
                rows['stores matmul'] = max(rows.get('stores matmul', 0), sum(bool(re.search(r'\bSTS\b', text)) for text in texts))
        short = name.removeprefix('kernel_')
        if short in TOGETHER:
            rows[f'together {short}'] = max((most_on_the_way(b, False, False) for b in loops), default=0)
        if short in WIDE:
            rows[f'wide {short}'] = max(most_on_the_way(b, False) for b in blocks.values())
        if short in EXCHANGES:
            rows[f'exchanges {short}'] = max(filter(None, map(dependent_exchanges, loops_of(blocks))), default=1024)
        if waits(name, loops, formats):
            rows['waits'].add(name)
        if is_plain(name, loops, is_amd):
            rows['plain'].add(name)
        if is_late(loops) and not name.startswith('kernel_walk'):    # no launch is before a walk
            rows['late'].add(name)
        if is_narrow(loops) and not name.startswith(('kernel_arrange', 'kernel_walk')):    # all of a walk is in a loop
            rows['narrow'].add(name)
    for name, registers, _, scalar, scratch, *_ in (gpu_report.amd_kernels if is_amd else gpu_report.cuda_kernels)(path, chip):
        family = re.match(r'kernel_(matvec8|matvec|matmul|fast_attention|fast|attention|arrange|walk|)', name).group(1) or 'others'
        family_rows = [(f'registers {family}', int(registers.split()[0])), (f'scalar spills {family}', scalar)]
        for row, n in family_rows + [('scratch walk', scratch)] * (family == 'walk'):
            rows[row] = max(rows.get(row, 0), n)
    return rows, names


def compiler_of(path):
    """Who made a code object, as it says itself."""
    with open(path, 'rb') as f:
        found = re.search(rb'clang version \d+|release \d+\.\d+', f.read())
    return found.group(0).decode() if found else 'unknown'


def read_table(path):
    table = {}
    with open(path, encoding='utf-8') as f:
        for line in f:
            if line.strip() and line[0] != '#':
                chip, row, value = (x.strip() for x in line.split('|'))
                if row in LISTS:
                    table.setdefault((chip, row), set()).update(f'kernel_{x}' for x in value.split())
                else:
                    table[chip, row] = value if row == 'compiler' else int(value)
    return table


def compare(table, chip, rows, names):
    """What is worse than TABLE, as lines."""
    bad = []
    for row, what in LISTS.items():
        was = table.get((chip, row), set()) & names
        print(f'{chip}: {len(rows[row])} of {len(names)} kernels: {what}; may only get fewer')
        bad += [f'{name} {what}' for name in sorted(rows[row] - was)]
        bad += [f'{name} does better now: strike it out of {row} with --write' for name in sorted(was - rows[row])]
    for row, n in rows.items():
        was, is_least = table.get((chip, row), 0), row.startswith(('together', 'wide'))
        if isinstance(n, int) and (n < was if is_least else n > was):
            bad.append(f'{row}: {n}, want at {"least" if is_least else "most"} {was}')
    bad += [f'{row}: found nowhere, want {value}' for (of, row), value in table.items() if of == chip and row not in rows]
    if table.get((chip, 'compiler')) != rows['compiler']:
        print(f'{chip}: made by {rows["compiler"]}, {len(bad)} differences to {table.get((chip, "compiler"))} not held')
        return []
    return bad


def write_table(path, table):
    with open(path, encoding='utf-8') as f:
        head = [line for line in f if line[0] == '#']
    with open(path, 'w', encoding='utf-8') as f:
        f.writelines(head)
        for (chip, row), value in table.items():
            text = ' '.join(sorted(x.removeprefix('kernel_') for x in value)) if row in LISTS else str(value)
            f.writelines(f'{chip} | {row} | {line}\n' for line in textwrap.wrap(text, 95) or [''])


def main():
    is_writing = sys.argv[1] == '--write'
    path, *objects = sys.argv[1 + is_writing:]
    table, formats, failed = read_table(path), pieces(), False
    for code in objects:
        chip, _, sample = os.path.basename(code).removesuffix('.co').partition('-')
        if is_writing and sample:
            sys.exit(f'{code}: want all formats to write {path}')
        rows, names = look_at(code, chip, formats)
        rows['compiler'] = compiler_of(code)
        bad = compare(table, chip, rows, names)
        if is_writing:
            bad = [b for b in bad if b.endswith(tuple(LISTS.values())) and (chip, 'waits') in table]
            table |= {(chip, row): value for row, value in rows.items()}
        for line in bad:
            print(f'{chip}: {line}')
        failed = failed or bool(bad) or not names
    if is_writing and not failed:
        write_table(path, table)
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
