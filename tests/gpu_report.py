#!/usr/bin/env python3
"""What each kernel of a code object needs of its chip: registers, spills, scratch, shared memory of fixed size, occupancy by registers.

    gpu_report.py CODE_OBJECT...      (build/gpu/CHIP.co, of gpu/kernels.cu)

It also fails on what would go wrong on a card without a sign: a version of the code object that ROCm before 6.3 refuses, a counter of blocks (is_last_block of
gpu/simt.h) that is written by anything but an atomic, or more than one release for it.
Shared memory that a launch asks for (gpu/launch.cpp, gpu/launch_steps.cpp) is not in a code object and not in the table. Exit status 1 when a
kernel of decoding or of prompts spills vector registers or uses scratch memory; scalar registers that AMD's compiler keeps in lanes of a vector register are shown.
Register files: CUDA programming guide, table of compute capabilities; LLVM:llvm/lib/Target/AMDGPU/Utils/AMDGPUBaseInfo.cpp.
"""
import os
import re
import struct
import subprocess
import sys

THREADS = 256


def amd_occupancy(chip, vgprs):
    large = ('gfx1100', 'gfx1101', 'gfx1151', 'gfx1200', 'gfx1201')
    if chip in ('gfx90a', 'gfx942'):
        total, step, most = 512, 8, 8
    elif chip.startswith('gfx9'):
        total, step, most = 256, 4, 10
    else:
        total, step, most = (1536, 24, 16) if chip in large else (1024, 16, 16)
    return min(most, total // max(step, -(-vgprs // step) * step)) / most


def cuda_occupancy(chip, registers, threads):
    most = {'sm_75': 32, 'sm_86': 48, 'sm_89': 48, 'sm_120': 48}.get(chip, 64)
    blocks = 65536 // (-(-registers // 8) * 8 * threads)
    return min(most, blocks * threads // 32) / most


def amd_kernels(path, chip):
    text = subprocess.run(['llvm-readelf-19', '--notes', path], capture_output=True, text=True, check=True).stdout
    for part in text.split('- .agpr_count')[1:] if '.agpr_count' in text else text.split('- .args')[1:]:
        def number(field):
            found = re.search(r'\.' + field + r':\s+(\d+)', part)
            return int(found.group(1)) if found else 0
        name = re.search(r'\.name:\s+(kernel_\w+)', part).group(1)
        agprs = re.match(r':\s+(\d+)', part)
        vgprs = number('vgpr_count') + (int(agprs.group(1)) if agprs and chip == 'gfx908' else 0)
        yield (name, f"{number('vgpr_count')} + {number('sgpr_count')}", number('vgpr_spill_count'), number('sgpr_spill_count'),
               number('private_segment_fixed_size'), number('group_segment_fixed_size'), amd_occupancy(chip, vgprs))


def cuda_kernels(path, chip):
    """Registers and stack frames as .nv.info tells them: attributes 0x2f and 0x11, each with a symbol and a value. What it tells of
    one kernel has the most threads of a block: 0x05, with three numbers."""
    data = open(path, 'rb').read()
    at, = struct.unpack_from('<Q', data, 0x28)
    size, count, names = struct.unpack_from('<3H', data, 0x3a)
    sections = [struct.unpack_from('<IIQQQQIIQQ', data, at + i * size) for i in range(count)]

    def text(section, offset):
        start = sections[section][4] + offset
        return data[start:data.index(b'\0', start)].decode()
    named = {text(names, s[0]): s for s in sections}
    symbols = named['.symtab']

    def attributes(section):
        """Each attribute that has numbers, with its first two."""
        at, end = named[section][4], named[section][4] + named[section][5]
        while at < end:
            form, attribute, length = struct.unpack_from('<BBH', data, at)
            if form == 4 and length >= 8:
                yield attribute, *struct.unpack_from('<II', data, at + 4)
            at += 4 + (length if form == 4 else 0)
    found = {0x2f: {}, 0x11: {}}
    for attribute, symbol, value in attributes('.nv.info'):
        if attribute in found:
            name, = struct.unpack_from('<I', data, symbols[4] + symbol * 24)
            found[attribute][text(symbols[6], name)] = value
    for name, registers in found[0x2f].items():
        shared = named.get('.nv.shared.' + name)
        threads = next((n for attribute, n, _ in attributes('.nv.info.' + name) if attribute == 0x05), THREADS)
        yield name, str(registers), 0, 0, found[0x11].get(name, 0), shared[5] if shared else 0, cuda_occupancy(chip, registers, threads)


def amd_faults(path, chip):
    with open(path, 'rb') as f:
        version = f.read(9)[8]
    want = 4 if chip.endswith('generic') else 3     # ELFABIVERSION_AMDGPU_HSA_V6 and V5
    if version != want:
        yield f'code object version {version + 2}: want {want + 2}'
    text = subprocess.run(['llvm-objdump-19', '-d', path], capture_output=True, text=True, check=True).stdout
    for kernel in re.split(r'^[0-9a-f]+ <(?=kernel_)', text, flags=re.M)[1:]:
        name = kernel.split('>')[0]
        adds, clears, releases = (len(re.findall(word, kernel)) for word in (r'atomic_add_?u?3?2? ', 'atomic_swap', 'buffer_wbl2'))
        if adds != clears + name.startswith('kernel_walk') or releases > adds:    # a walk has one more, of its barrier
            yield f'{name}: {adds} counters, {clears} cleared by atomics, {releases} releases'


def main():
    failed = False
    for path in sys.argv[1:]:
        chip = os.path.basename(path).split('.')[0].split('-')[0]
        kernels = list((amd_kernels if chip.startswith('gfx') else cuda_kernels)(path, chip))
        print(f'{chip}: {len(kernels)} kernels\n{"kernel":34} registers  spilled v s  scratch  shared  occupancy')
        for name, registers, v, s, scratch, shared, occupancy in sorted(kernels):
            # Those run when a model is loaded; what walks for CUDA may spill stands in tests/gpu_guards.txt.
            bad = (v > 0 or scratch > 0) and not name.startswith('kernel_arrange' if chip.startswith('gfx') else ('kernel_arrange', 'kernel_walk'))
            print(f'{name:34} {registers:>9}  {v:9} {s:1}  {scratch:7}  {shared:6}  {occupancy:8.0%}{"  SPILLS" if bad else ""}')
            failed = failed or bad
        failed = failed or not kernels
        for fault in amd_faults(path, chip) if chip.startswith('gfx') else ():
            print(f'FAULT: {chip}: {fault}')
            failed = True
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
