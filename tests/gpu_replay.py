#!/usr/bin/env python3
"""Runs traces of tests/gpu_trace.cpp as GPU code on the CPU and compares every byte that is read back.

    gpu_replay.py TOOL_FOLDER CODE TRACE...

Of a trace named fast*.trace (mode fast, whose sums are added in an order that the matrix units choose) not the bytes are compared but the
numbers: their difference is below 2^-18 of the results (2^-12 after attention), both as root mean squares.

CODE is gpu/kernels.cu compiled for one chip: a code object for AMD (.co; TOOL_FOLDER has rdna_emu.py) or NVIDIA's intermediate code (.ptx;
ptx_emu.py). Prints a line for each trace: kernels run, launches, instructions of a warp, and what is wrong: other bytes, barriers that not
all threads reach; in PTX also races, reads of shared memory that nobody wrote, weights read from more sectors of memory than they fill, and
arithmetic whose rounding ptxas may choose. Exit status 1 if anything is.
"""
import os
import shutil
import struct
import sys
import time


def events(path):
    with open(path, 'rb') as f:
        while True:
            head = f.read(77)
            if len(head) < 77:
                return
            kind, at, source, size = struct.unpack_from('<cQQQ', head)
            grid = struct.unpack_from('<5I', head, 25)
            name = head[45:].split(b'\0')[0].decode()
            yield kind.decode(), at, source, size, grid, name, f.read(size) if kind in b'udl' else b''


RESIDENT = 5    # blocks of a walk


def threads_of(emulator, name, n):
    """How many threads a block gets for whose kind the trace has n: the matmuls of some NVIDIA chips are compiled for fewer."""
    return min(n, emulator.mod.funcs[name].maxntid or n) if hasattr(emulator, 'mod') else n


class Memory:
    """The device's allocations, each with pages behind it that cannot be touched."""

    def __init__(self, make):
        self.make, self.kept = make, {}

    def find(self, address):
        for base, buffer in self.kept.items():
            if base <= address <= base + buffer.size:
                return base, buffer
        return None, None

    def patch(self, args):
        """Every 8-byte word of the arguments that points into an allocation gets its address here."""
        out = bytearray(args)
        for i in range(0, len(out) - 7, 8):
            value, = struct.unpack_from('<Q', out, i)
            base, buffer = self.find(value) if value else (None, None)
            if buffer:
                struct.pack_into('<Q', out, i, buffer.addr + value - base)
        return bytes(out)


class Walks:
    """The list of launches that a walk reads lies in device memory, with addresses: they get those of the allocations here, once."""
    ENTRY, HEAD = 496, 16   # gpu/args.h, walk_entry

    def __init__(self):
        self.patched = {}

    def patch(self, memory, args):
        at, _, n, _ = struct.unpack_from('<QQii', args)
        base, buffer = memory.find(at)
        for offset in range(at - base, at - base + n * self.ENTRY, self.ENTRY):
            entry = buffer.bytes()[offset:offset + self.ENTRY]
            if self.patched.get((base, offset)) != entry:
                self.patched[base, offset] = entry[:self.HEAD] + memory.patch(entry[self.HEAD:])
                buffer.write(self.patched[base, offset], offset)


def found(kernel, stats):
    """What the tool for PTX reports. Blocks that share a head of keys append the same bytes (gpu/attention.cuh): no other kernel may.
    In a walk, whose cache is f16, they are the stores of 16 bits: what all other kernels store there has 8 or 32."""
    def may_repeat(text):
        return kernel.startswith('kernel_attention') or (kernel.startswith('kernel_walk') and 'st.global.u16' in text)
    notes = [text for text in stats.notes if 'the same value' not in text or not may_repeat(text)]
    inexact = [f'{name}: not the bits of a card' for name in stats.inexact if not kernel.startswith('kernel_fast')]
    scattered = [f'weights of {m["ideal"]} sectors of memory lie in {m["sectors"]}: {m["text"]}' for m in stats.memory()
                 if 'L1::no_allocate' in m['text'] and m['sectors'] > m['ideal']]
    return stats.reports + notes + inexact + scattered


# Of the results' root mean squares. Attention rounds weights to f16 after a sum, which in another order may move one by half a unit.
FAST_SHARE, FAST_ATTENTION_SHARE = 2.0 ** -18, 2.0 ** -12


def distance(want, got):
    """The root mean square of the difference of two arrays of floats, as a share of the first's."""
    want, got = (struct.unpack(f'<{len(data) // 4}f', data) for data in (want, got))
    return (sum((a - b) ** 2 for a, b in zip(want, got)) / sum(a * a for a in want)) ** 0.5


def replay(tool, emulator, trace):
    memory = Memory(lambda n: tool.DevBuf(max(n, 1), align=256, fill=0))
    launches, instructions, compared, wrong, kernels = 0, 0, 0, [], set()
    last = ''
    weights = {}    # buffers that the kernels of loading wrote: a kernel may read them before the launch before it has ended
    walks = Walks()
    is_fast, differs = os.path.basename(trace).startswith('fast'), False
    starts_early = bool(getattr(emulator.mod, 'sm', 0) >= 90) if hasattr(emulator, 'mod') else False
    for kind, at, source, size, grid, name, data in events(trace):
        base, buffer = memory.find(at)
        if kind == 'a':
            memory.kept[at] = memory.make(size)
        elif kind == 'f':
            weights.pop(at, None)
            memory.kept.pop(at).free()
        elif kind == 'u':
            buffer.write(data, at - base)
        elif kind == 'z':
            buffer.write(bytes(size), at - base)
        elif kind == 'c':
            from_base, from_buffer = memory.find(source)
            buffer.write(from_buffer.bytes()[source - from_base:source - from_base + size], at - base)
        elif kind == 'l':
            if name.startswith('kernel_arrange'):
                base, buffer = memory.find(struct.unpack_from('<Q', data, 8)[0])
                weights[base] = buffer
            early = {'pdl': True, 'pdl_early': list(weights.values())} if starts_early else {}
            if name.startswith('kernel_walk'):      # by more blocks than the emulator's one
                walks.patch(memory, data)
                grid, data, early = (RESIDENT, *grid[1:]), data[:20] + struct.pack('<i', RESIDENT), {'resident': True}
            stats = emulator.launch(name, grid[:3], (threads_of(emulator, name, grid[3]),), [memory.patch(data)], dynamic_lds=grid[4], **early)
            if stats.barrier_count_mismatch or stats.barrier_pc_mismatch:
                wrong.append(f'{name}: divergent barrier')
            if hasattr(stats, 'reports'):
                wrong += [f'{name}: {text}' for text in found(name, stats)]
            launches += 1
            instructions += stats.wave_insts
            kernels.add(name)
            if name not in ('kernel_rows', 'kernel_norm'):
                last = name
        elif kind == 'd':
            compared += size
            got = buffer.bytes()[at - base:at - base + size]
            if is_fast:
                share = distance(data, got)
                differs = differs or got != data
                if not share < (FAST_ATTENTION_SHARE if last == 'kernel_fast_attention' else FAST_SHARE):
                    wrong.append(f'after {last}: differs by {share:.2g} of the results')
            elif got != data:
                first = next(i for i in range(size) if got[i] != data[i])
                word = slice(first & ~3, (first & ~3) + 4)
                wrong.append(f'after {last}: byte {first} of {size}: want {data[word].hex()} got {got[word].hex()}')
    if is_fast and not differs:
        wrong.append('the same bytes as of the emulator, so the matrix units were not used')
    return launches, instructions, compared, wrong, kernels


def open_tool(folder, code):
    """The tool, and the code made ready in it."""
    sys.path.insert(0, folder)
    if code.endswith('.ptx'):
        os.environ.setdefault('PTX_EMU_CACHE', 'build/gpu/translated')
        import ptx_emu as tool
        return tool, tool.Emulator(code, order='random', profile=True)
    # Kernels run once or a few times, so what counts is how fast the tool's C is compiled: user seconds of one kernel (a matvec of
    # 2,000 instructions): clang 19 at -O0 0.8, gcc 12 at -O0 2.5, at -O1 8, at the tool's own -O2 22. All sampled kernels with their
    # 68 M instructions: 30.
    os.environ.setdefault('RDNA_EMU_CC', 'clang-19' if shutil.which('clang-19') else 'gcc')
    os.environ.setdefault('RDNA_EMU_CFLAGS',
                          '-O0 -march=native -ffp-contract=off -frounding-math -fno-strict-aliasing -fwrapv -w -shared -fPIC')
    os.environ.setdefault('RDNA_EMU_CACHE', 'build/gpu/translated')
    import rdna_emu as tool
    return tool, tool.Emulator(code, order='random')


def main():
    tool, emulator = open_tool(sys.argv[1], sys.argv[2])
    failed = False
    for trace in sys.argv[3:]:
        start = time.time()
        launches, instructions, compared, wrong, kernels = replay(tool, emulator, trace)
        verdict = ('near' if os.path.basename(trace).startswith('fast') else 'identical') if not wrong else f'{len(wrong)} DIFFERENT: ' + '; '.join(wrong[:5])
        names = ', '.join(os.path.basename(path) for path in (sys.argv[2], trace))
        print(f'{names}: {verdict}; {len(kernels)} kernels, {launches} launches, {instructions / 1e6:.1f} M warp instructions, '
              f'{compared} bytes compared, {time.time() - start:.1f} s', flush=True)
        failed = failed or bool(wrong) or compared == 0
    for kernel, line, text in emulator.mod.contractible if sys.argv[2].endswith('.ptx') else []:
        print(f'{sys.argv[2]}, line {line}, {kernel}: ptxas may round this once where the source rounds twice: {text}')
        failed = True
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
