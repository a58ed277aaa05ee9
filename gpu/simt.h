// gpu/simt.h: the words in which kernels are written. Only this file knows which compiler builds a kernel: nvcc, a
// stock clang with -x hip (no ROCm), or the host's compiler for the emulator. Lanes exchange values over segments of 32
// lanes at every warp width, so results do not depend on the width. Owns: threads, barriers, shuffles, shared memory,
// dot and matrix words, and the choice among a chip's instructions by gpu/targets.def. Must not know: formats, ops.
// Main path: gpu/launch.cpp -> gpu/kernels.def -> gpu/*.cuh -> [gpu/simt.h]
#pragma once

#if defined(__CUDACC__) && !defined(__HIP__)
#define DUET_CUDA 1
#elif defined(__HIP__)
#define DUET_HIP   1
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __host__   __attribute__((host))
#define __shared__ __attribute__((shared))
#endif

#if defined(DUET_CUDA) || defined(DUET_HIP)
#define DUET_ON_DEVICE 1
#define DUET_HD        __host__ __device__ __attribute__((always_inline))
#define DUET_DEVICE    __device__ inline __attribute__((always_inline))
#define DUET_UNROLL    _Pragma("unroll")
#define DUET_ROLLED    _Pragma("unroll 1")  // Copies of a loop would take registers.
#else
#define DUET_DEVICE inline
#define DUET_UNROLL
#define DUET_ROLLED
#endif

#include "../quant/exact.h"

#include <cstddef>
#include <cstdint>

namespace duet {

constexpr int kSegment = 32;  // lanes that exchange values: a warp, or half of one

struct alignas(16) word4 {
    uint32_t w[4];
};

// Pointers in arguments, to memory that kernels write and to memory that no launch writes. A kernel that reads its
// arguments from memory (gpu/walk.cuh) would not know otherwise that they are not shared, or that a scalar load does.
#if defined(DUET_ON_DEVICE)
template <class T, int Space>
struct pointer_to {
#if defined(DUET_HIP)
    __attribute__((address_space(Space))) T* at;
    DUET_DEVICE operator T*() const { return (T*)at; }
#else
    T* at;
    DUET_DEVICE operator T*() const { return __builtin_assume(__isGlobal((const void*)at)), at; }
#endif
    template <class U>
    DUET_DEVICE explicit operator U*() const {
        return (U*)(T*)at;
    }
    DUET_DEVICE void operator+=(size_t n) { at += n; }
};
template <class T>
using device_ptr = pointer_to<T, 1>;
template <class T>
using constant_ptr = pointer_to<T, 4>;
#else
template <class T>
using device_ptr = T*;
template <class T>
using constant_ptr = T*;
#endif

// c + the products of four int8, where no instruction does it.
DUET_DEVICE int dot4_plain(uint32_t a, uint32_t b, int c) {
    for (int i = 0; i < 4; i++) c += (int)(int8_t)(a >> 8 * i) * (int)(int8_t)(b >> 8 * i);
    return c;
}

// ---- the chip ----
// Instructions of a chip, by the columns of gpu/targets.def. dot: of four int8. matrix: products of int8 tiles.
enum class gpu_dot { none, dp4a, dot4_i8, dot4_iu8 };
enum class gpu_matrix { none, mma_m8n8k16, mfma_gfx908, mma_m16n8k32, mfma_k16, mfma_k32, wmma_gfx11, wmma_gfx12 };
enum class gpu_start { after, early };  // of a launch, beside the one before it
enum class gpu_decode { launches, walk };
struct gpu_target {
    const char* name;
    int warp_width;
    gpu_dot dot;
    gpu_matrix matrix;
    gpu_start start;
    gpu_decode decode;
};
constexpr gpu_target kGpuTargets[] = {
#define GPU_TARGET(vendor, name, warp_width, dot, matrix, start, decode)                                               \
    {#name, warp_width, gpu_dot::dot, gpu_matrix::matrix, gpu_start::start, gpu_decode::decode},
#include "targets.def"
#undef GPU_TARGET
};

// The row for compute capability `arch` (900 for sm_90), or else of the highest row below it, or none.
constexpr gpu_target target_of(int arch) {
    gpu_target best{};
    int best_arch = 0;
    for (const gpu_target& t : kGpuTargets) {
        if (t.name[0] != 's') continue;
        int number = 0;  // 90 of "sm_90"
        for (const char* digit = t.name + 3; *digit; digit++) number = number * 10 + (*digit - '0');
        if (number * 10 > arch || number * 10 <= best_arch) continue;
        best = t;
        best_arch = number * 10;
    }
    return best;
}
// Whether the chip multiplies tiles of 16 x 16 over 32 f16 or bf16 with f32 sums (tile_product).
constexpr bool has_float_tiles(const gpu_target& t) { return t.matrix > gpu_matrix::mfma_gfx908; }
constexpr bool has_fragments(const gpu_target& t) { return t.matrix == gpu_matrix::mma_m16n8k32; }
constexpr int tile_threads(bool has_fragments) { return has_fragments ? 128 : 256; }  // of a block of matmul_quant
constexpr gpu_target target_of(const char* name) {
    for (const gpu_target& t : kGpuTargets)
        for (int i = 0; t.name[i] == name[i] || (t.name[i] == '_' && name[i] == '-'); i++)
            if (!name[i]) return t;
    return {};
}
#if defined(DUET_CUDA)
constexpr gpu_target kChip = target_of(__CUDA_ARCH__);
static_assert(kChip.warp_width == 32, "gpu/targets.def: CUDA chips have a row at or below theirs, and warps of 32");
#elif defined(DUET_HIP)
constexpr gpu_target kChip = target_of(__amdgcn_processor__);
static_assert(kChip.warp_width != 0, "gpu/targets.def has no row for this chip: add one");
#if defined(__GFX9__)
static_assert(kChip.warp_width == 64, "gpu/targets.def: this chip has warps of 64");
#else
static_assert(kChip.warp_width == 32, "gpu/targets.def: the compiler makes warps of 32 for this chip");
#endif
#endif

// ---- CUDA ----
#if defined(DUET_CUDA)
// The blocks that must fit a unit, as kernels.def says.
#define DUET_BLOCKS(threads) ((threads) < 2048 || __CUDA_ARCH__ / 100 == 9 ? (threads) / 1024 + 2 : 2)
#define DUET_KERNEL(name, args, threads, ...)                                                                          \
    extern "C" __global__ void __launch_bounds__((threads) % 1024, DUET_BLOCKS(threads)) name(const args a) {          \
        if constexpr (!__is_same(args, matrix_args)) wait_for_launches(); /* These wait after their first loads. */    \
        __VA_ARGS__(a);                                                                                                \
    }

// Waits until the launches before this one are done and their writes are seen, where launches start early; nothing but
// weights may be read before, and nothing written. From there on the next launch may start. Each thread of each kernel
// must come here. Source: PTX ISA, griddepcontrol; CUDA programming guide, "Programmatic Dependent Launch".
DUET_DEVICE void wait_for_launches() {
    if constexpr (kChip.start == gpu_start::early)
        asm volatile("griddepcontrol.wait;\n\tgriddepcontrol.launch_dependents;" ::: "memory");
}

DUET_DEVICE int thread_id() { return (int)threadIdx.x; }
DUET_DEVICE int block_size() { return (int)blockDim.x; }
DUET_DEVICE int block_x() { return (int)blockIdx.x; }
DUET_DEVICE int block_y() { return (int)blockIdx.y; }
DUET_DEVICE int block_z() { return (int)blockIdx.z; }
DUET_DEVICE constexpr int warp_width() { return kChip.warp_width; }
DUET_DEVICE void sync_block() { __syncthreads(); }
// Returns v, but not before all words of the mask were there. threadIdx.y is 0, which compilers do not know.
DUET_DEVICE uint32_t after(uint32_t v, uint32_t mask) { return v | (mask & threadIdx.y); }
DUET_DEVICE void release_device() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }  // __threadfence is dearer
DUET_DEVICE void acquire_device() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }
DUET_DEVICE uint32_t atomic_add(uint32_t* at, uint32_t v) { return atomicAdd(at, v); }
DUET_DEVICE void atomic_clear(uint32_t* at) { atomicExch(at, 0u); }
// Words of a walk. Launches before it ended before it began, so that wait_for_launches costs nothing there.
DUET_DEVICE void release_grid() { release_device(); }
DUET_DEVICE void wait_for_count(const uint32_t* at, uint32_t n) {
    uint32_t v;
    do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(at) : "memory");
    while (v < n);
}
// Starts to bring the line of weights to the second cache.
DUET_DEVICE void fetch(const void* p) { asm volatile("prefetch.global.L2 [%0];" ::"l"(p)); }
// take_args brings memory that no launch writes to where arguments are; block_args gives it behind the next barrier.
template <class T>
DUET_DEVICE word4* args_room() {
    __shared__ word4 room[sizeof(T) / sizeof(word4)];
    return room;
}
template <class T>
DUET_DEVICE void take_args(const T* from) {
    if (threadIdx.x < sizeof(T) / sizeof(word4)) args_room<T>()[threadIdx.x] = ((const word4*)from)[threadIdx.x];
}
template <class T> DUET_DEVICE const T& block_args(const T*) { return *(const T*)args_room<T>(); }
DUET_DEVICE int uniform_in_segment(int v) { return __shfl_sync(0xffffffffu, v, 0); }
DUET_DEVICE uint32_t shuffle_xor(uint32_t v, int mask) { return __shfl_xor_sync(0xffffffffu, v, mask); }
DUET_DEVICE int dot4(uint32_t a, uint32_t b, int c) { return __dp4a((int)a, (int)b, c); }
DUET_DEVICE float quick_half_to_float(uint16_t h) {
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
    return f;
}
// Returns four bytes: byte i is byte idx[i] (0..7) of the 8 bytes lo, hi.
DUET_DEVICE uint32_t pick_bytes(uint32_t lo, uint32_t hi, uint32_t idx) {
    const uint32_t x = idx | idx >> 4;  // The instruction takes four nibbles.
    return __byte_perm(lo, hi, (x & 0xffu) | (x >> 8 & 0xff00u));
}
// Loads weights. They pass once per token and should not push activations out of the first cache. Not by ld.global.nc:
// ptxas would move such loads behind wait_for_launches.
DUET_DEVICE word4 load_stream(const void* p) {
    word4 v;
    asm("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3])
        : "l"(p));
    return v;
}
// The same for a word. nvcc would load half of it where the other half is not used.
DUET_DEVICE uint32_t load_stream_word(const uint32_t* p) {
    uint32_t v;
    asm("ld.global.L1::no_allocate.u32 %0, [%1];" : "=r"(v) : "l"(p));
    return v;
}

// ---- HIP, without ROCm ----
#elif defined(DUET_HIP)
#define DUET_KERNEL(name, args, n, ...)                                                                                \
    extern "C" __global__ __attribute__((amdgpu_flat_work_group_size((n) % 1024 == 256 ? 256 : 1, (n) % 1024))) void   \
    name(const args a) {                                                                                               \
        __VA_ARGS__(a);                                                                                                \
    }

DUET_DEVICE int thread_id() { return (int)__builtin_amdgcn_workitem_id_x(); }
DUET_DEVICE int block_size() { return (int)__builtin_amdgcn_workgroup_size_x(); }
DUET_DEVICE int block_x() { return (int)__builtin_amdgcn_workgroup_id_x(); }
DUET_DEVICE int block_y() { return (int)__builtin_amdgcn_workgroup_id_y(); }
DUET_DEVICE int block_z() { return (int)__builtin_amdgcn_workgroup_id_z(); }
DUET_DEVICE constexpr int warp_width() { return kChip.warp_width; }
DUET_DEVICE int uniform_in_segment(int v) {
    if constexpr (kChip.warp_width == kSegment) return __builtin_amdgcn_readfirstlane(v);
    else return v;
}
DUET_DEVICE void sync_block() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
// Keeps what stands below from moving above, so that the loads above are on their way first.
DUET_DEVICE void loads_before() { __builtin_amdgcn_sched_barrier(0); }
// The compiler lets waves of gfx9 pass a barrier while their stores are on the way. vmcnt(0) waits for them.
DUET_DEVICE void finish_stores() {
#if defined(__GFX9__)
    __builtin_amdgcn_s_waitcnt(0x0f70);
#endif
}
// Stores what another block reads in this launch (is_last_block). On gfx94x each die has a second cache of its own, so
// a release would write all of it back. There these stores go through to memory, and the release has nothing to write.
// Source: LLVM, "User Guide for AMDGPU Backend", memory model of gfx942.
#if defined(__gfx942__) || defined(__gfx950__) || defined(__gfx9_4_generic__)
#define DUET_STORES_THROUGH 1
template <class T>
DUET_DEVICE void store_for_others(T* at, T v) {
    __hip_atomic_store(at, v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
DUET_DEVICE void release_device() { __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup"); }
#else
DUET_DEVICE void release_device() { __builtin_amdgcn_fence(__ATOMIC_RELEASE, "agent"); }
#endif
DUET_DEVICE void acquire_wave() { __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "agent"); }
DUET_DEVICE uint32_t atomic_add(uint32_t* at, uint32_t v) {
    return __hip_atomic_fetch_add(at, v, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
DUET_DEVICE void atomic_clear(uint32_t* p) { __hip_atomic_exchange(p, 0u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT); }
DUET_DEVICE void release_grid() { __builtin_amdgcn_fence(__ATOMIC_RELEASE, "agent"); }
DUET_DEVICE void wait_for_count(const uint32_t* at, uint32_t n) {
    while (__hip_atomic_load(at, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT) < n) __builtin_amdgcn_s_sleep(1);
}
// Scalar loads have a cache of their own. What is read next depends on `next`, so no such load moves above this.
DUET_DEVICE void acquire_grid(int& next) {
    acquire_wave();
#if defined(__GFX12__)
    asm volatile("s_dcache_inv\n\ts_wait_kmcnt 0x0" : "+s"(next)::"memory");
#else
    asm volatile("s_dcache_inv\n\ts_waitcnt lgkmcnt(0)" : "+s"(next)::"memory");
#endif
}
// Returns v. What is loaded at an index made of that is not loaded before this.
DUET_DEVICE int late(int v) {
    asm volatile("" : "+s"(v));
    return v;
}
// A load that nobody wants; before gfx12 there is nothing else. Its wait passes beside the one for the other blocks.
DUET_DEVICE void fetch(const void* p) { asm volatile("" ::"v"(*(const uint32_t*)p)); }
// Masks are 1, 2, 4, 8 and 16, known when this is compiled. Source: AMD's instruction set architecture guides of GCN 5
// (Vega) and RDNA, "Data Parallel Processing" and DS_SWIZZLE. V_PERMLANEX16 would do for 16, but clang 19 moves it into
// branches that not all lanes take, which gave a delta net wrong bits.
DUET_DEVICE uint32_t shuffle_xor(uint32_t v, int mask) {
    const int x = (int)v;
    if (mask == 1) return (uint32_t)__builtin_amdgcn_update_dpp(0, x, 0xb1, 15, 15, true);   // quads: 1 0 3 2
    if (mask == 2) return (uint32_t)__builtin_amdgcn_update_dpp(0, x, 0x4e, 15, 15, true);   // quads: 2 3 0 1
    if (mask == 8) return (uint32_t)__builtin_amdgcn_update_dpp(0, x, 0x128, 15, 15, true);  // rows of 16 by 8
#if defined(__GFX9__)
    // Eight lanes backwards (lane ^ 7), then four backwards (lane ^ 3).
    if (mask == 4)
        return (uint32_t)__builtin_amdgcn_update_dpp(0, __builtin_amdgcn_update_dpp(0, x, 0x141, 15, 15, true), 0x1b,
                                                     15, 15, true);
#else
    if (mask == 4) return (uint32_t)__builtin_amdgcn_update_dpp(0, x, 0x164, 15, 15, true);  // row_xmask
#endif
    return (uint32_t)__builtin_amdgcn_ds_swizzle(x, 0x401f);  // lane ^ 16 of 32
}
DUET_DEVICE int dot4(uint32_t a, uint32_t b, int c) {
    if constexpr (kChip.dot == gpu_dot::none) return dot4_plain(a, b, c);
    else if constexpr (kChip.dot == gpu_dot::dot4_iu8)
        return __builtin_amdgcn_sudot4(true, (int)a, true, (int)b, c, false);
    else return __builtin_amdgcn_sdot4((int)a, (int)b, c, false);
}
DUET_DEVICE float quick_half_to_float(uint16_t h) { return (float)__builtin_bit_cast(_Float16, h); }
DUET_DEVICE uint32_t pick_bytes(uint32_t lo, uint32_t hi, uint32_t idx) { return __builtin_amdgcn_perm(hi, lo, idx); }
typedef uint32_t word4_vec __attribute__((ext_vector_type(4)));
DUET_DEVICE word4 load_stream(const void* p) {
    return __builtin_bit_cast(word4, __builtin_nontemporal_load((const word4_vec*)p));
}
DUET_DEVICE uint32_t load_stream_word(const uint32_t* p) { return __builtin_nontemporal_load(p); }
// Loads what no thread of this launch writes: by a scalar load where all lanes have one address.
DUET_DEVICE float load_constant(const float* p) { return *(const __attribute__((address_space(4))) float*)(size_t)p; }
DUET_DEVICE word4 load_constant(const word4* p) {
    return __builtin_bit_cast(word4, *(const __attribute__((address_space(4))) word4_vec*)(uintptr_t)p);
}

// ---- the emulator ----
#else
// A thread of a block. gpu/driver_emu.cpp runs each thread as a fiber.
struct emu_place {
    int tid = 0, block_threads = 0, bx = 0, by = 0, bz = 0, width = 0;
};
extern thread_local constinit const emu_place* emu_self;
void emu_sync_block(int line);
uint32_t emu_exchange(uint32_t v, int mask, int line);         // gives the value of lane tid ^ mask of this segment
uint8_t* emu_shared(size_t offset, size_t n_bytes, int line);  // checks the range
void emu_touch(const void* word, bool write, int line);        // detects races
[[noreturn]] void emu_fault(const char* what, long index, long n, int line);  // ends the kernel with an error

inline int thread_id() { return emu_self->tid; }
inline int block_size() { return emu_self->block_threads; }
inline int block_x() { return emu_self->bx; }
inline int block_y() { return emu_self->by; }
inline int block_z() { return emu_self->bz; }
inline int warp_width() { return emu_self->width; }
inline void sync_block(int line = __builtin_LINE()) { emu_sync_block(line); }
inline void release_device() {}
inline uint32_t atomic_add(uint32_t* at, uint32_t v) { return (*at += v) - v; }  // Blocks run one by one.
inline void atomic_clear(uint32_t* at) { *at = 0; }
inline void release_grid() {}
inline void wait_for_count(const uint32_t* at, uint32_t n, int line = __builtin_LINE()) {
    if (*at < n) emu_fault("blocks that wait for others; of them there are", (long)*at, (long)n, line);
}
inline void fetch(const void* p) { (void)*(const volatile uint8_t*)p; }
inline int uniform_in_segment(int v) { return v; }
inline uint32_t shuffle_xor(uint32_t v, int mask, int line = __builtin_LINE()) { return emu_exchange(v, mask, line); }
inline int dot4(uint32_t a, uint32_t b, int c) { return dot4_plain(a, b, c); }
inline float quick_half_to_float(uint16_t h) { return half_to_float(h); }
inline uint32_t pick_bytes(uint32_t lo, uint32_t hi, uint32_t idx) {
    const uint64_t all = (uint64_t)hi << 32 | lo;
    uint32_t r = 0;
    for (int i = 0; i < 4; i++) r |= (uint32_t)(all >> 8 * (idx >> 8 * i & 7) & 255) << 8 * i;
    return r;
}
inline word4 load_stream(const void* p) { return *(const word4*)p; }
inline uint32_t load_stream_word(const uint32_t* p) { return *p; }
#endif

// ---- words that one vendor needs, for the others ----
#if !defined(DUET_CUDA)
DUET_DEVICE void wait_for_launches() {}
DUET_DEVICE uint32_t after(uint32_t v, uint32_t) { return v; }
DUET_DEVICE void acquire_device() {}
DUET_DEVICE void take_args(const void*) {}
template <class T> DUET_DEVICE const T& block_args(const T* from) { return *from; }
#endif
#if !defined(DUET_HIP)
DUET_DEVICE void loads_before() {}
DUET_DEVICE void finish_stores() {}
DUET_DEVICE void acquire_wave() {}  // The first cache is the block's.
DUET_DEVICE void acquire_grid(int&) {}
DUET_DEVICE int late(int v) { return v; }
template <class T> DUET_DEVICE T load_constant(const T* p) { return *p; }
#endif
#if !defined(DUET_STORES_THROUGH)
template <class T> DUET_DEVICE void store_for_others(T* at, T v) { *at = v; }
#endif

// ---- shared memory ----
// A part of the block's shared memory, named by its byte offset. T has 4 bytes.
#if defined(DUET_ON_DEVICE)
extern __shared__ __attribute__((aligned(128))) word4 duet_shared_memory[];
template <class T> DUET_DEVICE T* shared_array(size_t offset, int) { return (T*)((char*)duet_shared_memory + offset); }
#else
// In the emulator an element is a proxy. It checks its index and remembers who touched it since the last barrier.
template <class T>
struct emu_element {
    T* at;
    int line;
    operator T() const {
        emu_touch(at, false, line);
        return *at;
    }
    T operator=(T v) {
        emu_touch(at, true, line);
        return *at = v;
    }
    T operator=(const emu_element& other) { return *this = (T)other; }
};
template <class T>
struct emu_array {
    T* data;
    int n, line;
    emu_element<T> operator[](int i) const {
        if (i < 0 || i >= n) emu_fault("shared memory index", i, n, line);
        return {data + i, line};
    }
};
template <class T>
inline emu_array<T> shared_array(size_t offset, int n, int line = __builtin_LINE()) {
    static_assert(sizeof(T) == 4);
    return {(T*)emu_shared(offset, (size_t)n * 4, line), n, line};
}
#endif

// Loads N words (1, 2 or 4), the first at a multiple of N.
template <class Array, int N>
DUET_DEVICE void load_words(const Array& from, int at, float (&v)[N]) {
#if defined(DUET_ON_DEVICE)
    __builtin_memcpy(v, __builtin_assume_aligned(from + at, sizeof v), sizeof v);
#else
    for (int i = 0; i < N; i++) v[i] = from[at + i];
#endif
}
template <class Array>
DUET_DEVICE void store4(const Array& to, int at, const float (&v)[4]) {
#if defined(DUET_ON_DEVICE)
    *(word4*)(to + at) = {bits_of(v[0]), bits_of(v[1]), bits_of(v[2]), bits_of(v[3])};
#else
    for (int i = 0; i < 4; i++) to[at + i] = v[i];
#endif
}

// ---- made of the words above ----
// Returns p, an address of global memory. LLVM would add what p is made of to each index, in 64 bits.
template <class T>
DUET_DEVICE T* kept(T* p) {
#if defined(DUET_CUDA)
    size_t at = __cvta_generic_to_global(p);
    asm("" : "+l"(at));
    p = (T*)__cvta_global_to_generic(at);
#endif
    return p;
}

// The block that a kernel's function computes: the hardware's, or one of many that a resident block takes in turn.
struct block_place {
    int x = block_x(), y = block_y(), z = block_z();
};

DUET_DEVICE float shuffle_xor(float v, int mask) { return float_of(shuffle_xor(bits_of(v), mask)); }
DUET_DEVICE int shuffle_xor(int v, int mask) { return (int)shuffle_xor((uint32_t)v, mask); }

// Sums n lanes of a segment as a halving tree: lane j += lane j + 16, 8, 4, 2, 1. All lanes get it: addition commutes.
template <class T>
DUET_DEVICE T segment_sum(T v, int n = kSegment) {
    for (int m = n / 2; m > 0; m /= 2) v = v + shuffle_xor(v, m);
    return v;
}
template <class T>
DUET_DEVICE T segment_max(T v, int n = kSegment) {
    for (int m = n / 2; m > 0; m /= 2) {
        const T other = shuffle_xor(v, m);
        v = other > v ? other : v;
    }
    return v;
}

// Two int16 in one word.
DUET_DEVICE uint32_t pack_pair(int low, int high) { return (uint32_t)(low & 0xffff) | (uint32_t)high << 16; }
DUET_DEVICE void unpack_pair(uint32_t pair, int (&v)[2]) {
    v[0] = (int16_t)(pair & 0xffffu);
    v[1] = (int32_t)pair >> 16;
}

// n blocks share a counter. Returns true, in all threads, for the block that comes here last; this block sees what the
// others stored by store_for_others before they came. The counter is 0 before and after; only atomics touch it, so that
// no cache holds an old value. One thread's fence serves the block, because the barrier hands it what the others wrote;
// where each wave has to drop what its cache holds, each does. flag: a word of shared memory that is free now.
template <class Shared>
DUET_DEVICE bool is_last_block(uint32_t* counter, int n, Shared flag) {
    finish_stores();
    sync_block();
    if (thread_id() == 0) {
        release_device();
        const bool is_last = atomic_add(counter, 1u) + 1 == (uint32_t)n;
        if (is_last) atomic_clear(counter);
        acquire_device();
        flag[0] = is_last;
    }
    sync_block();
    const bool is_last = flag[0] != 0;
    if (is_last) acquire_wave();
    return is_last;
}

// Waits until `counter` has come to n, and gives what those blocks have written. What they do next depends on i.
template <class F>
DUET_DEVICE void sync_grid(uint32_t* counter, uint32_t n, int& i, F meanwhile) {
    finish_stores();
    sync_block();
    if (thread_id() == 0) {
        release_grid();
        atomic_add(counter, 1u);
    }
    meanwhile();
    if (thread_id() == 0) wait_for_count(counter, n);
    sync_block();
    acquire_grid(i);
}

// Looks up four 4-bit codes (one to a byte) in a table t of 16 int8.
DUET_DEVICE uint32_t table16(word4 t, uint32_t codes) {
    const uint32_t idx = codes & 0x07070707u, upper = (codes >> 3 & 0x01010101u) * 255u;
    return (pick_bytes(t.w[2], t.w[3], idx) & upper) | (pick_bytes(t.w[0], t.w[1], idx) & ~upper);
}

// ---- matrix words ----
// A tile has 16 rows x 16 tokens of exact i32 dots over K = 16 or 32 int8, and is spread over the lanes of a warp.
// Element e of this lane (0 .. tile_elems() - 1) belongs to row tile_row(e) and token tile_token(e). tile_dot adds the
// dots of K bytes: words w_at.. of w (rows `stride` words apart) and words x_at.. of x (tokens `stride` words apart),
// both in shared memory. Lane layouts: PTX ISA (mma), AMD matrix instruction calculator; proven by make test-amdgpu.
DUET_DEVICE int tile_elems() { return 256 / warp_width(); }

#if defined(DUET_ON_DEVICE)
constexpr bool kHasFloatTiles = has_float_tiles(kChip), kHasWideWarps = kChip.warp_width == 64;
#else
constexpr bool kHasFloatTiles = true, kHasWideWarps = false;
#endif
#if defined(DUET_CUDA)
constexpr bool kHasFragments = has_fragments(kChip);
DUET_DEVICE int tile_row(int e) { return thread_id() % 32 / 4 + (e & 2) * 4; }
DUET_DEVICE int tile_token(int e) { return thread_id() % 4 * 2 + (e & 1) + (e & 4) * 2; }
#else
constexpr bool kHasFragments = false;
DUET_DEVICE int tile_row(int e) {
    const int part = thread_id() % warp_width() / 16;
#if defined(DUET_HIP)
    if constexpr (kChip.matrix == gpu_matrix::wmma_gfx11) return 2 * e + part;
#endif
    return part * tile_elems() + e;
}
DUET_DEVICE int tile_token(int) { return thread_id() % 16; }
#endif
// Of a block of matmul_quant, for gpu/kernels.def. Formats with two sub-scales want more registers.
template <class B>
constexpr int kTileThreads = tile_threads(kHasFragments) + 1024 * (kHasFragments && B::kSubScales == 1);

#if defined(DUET_CUDA)
// sm_75 has 8 x 8 tiles over 16 bytes only: a lane has the same elements, by more instructions.
template <int K, class W, class X>
DUET_DEVICE void tile_dot(W w, int w_at, X x, int x_at, int stride, int (&dot)[8]) {
    const int lane = thread_id() % 32, g = lane / 4, t = lane % 4;
    DUET_UNROLL
    for (int part = 0; part < K / 16 * 4; part++) {  // 16 bytes, half of the tokens, half of the rows
        const int k = part / 4 * 4, tok = part / 2 % 2, row = part % 2;
        int* c = dot + 4 * tok + 2 * row;
        asm("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0, %1}, {%2}, {%3}, {%0, %1};"
            : "+r"(c[0]), "+r"(c[1])
            : "r"(w[w_at + k + (g + 8 * row) * stride + t]), "r"(x[x_at + k + (g + 8 * tok) * stride + t]));
    }
}

// Chips with mma.m16n8k32 need no weights in shared memory: the words that lie in a lane's registers are what the
// instruction wants. Of a tile of 16 rows x 8 tokens over 32 bytes, lane 4g + t has words t and t + 4 of rows g and
// g + 8, and of token g, and gets the dots of both rows with tokens 2t and 2t + 1.
#define DUET_FRAGMENTS 1

// dot = row words * token words + start of the token, over 32 bytes, or over those of word t (half 0) or word t + 4
// (half 1) alone. w: word t of rows g and g + 8, then word t + 4.
DUET_DEVICE void fragment_dot(const uint32_t (&w)[4], const uint32_t (&x)[2], const int (&start)[2], int (&dot)[4]) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %10, "
        "%11};"
        : "=r"(dot[0]), "=r"(dot[1]), "=r"(dot[2]), "=r"(dot[3])
        : "r"(w[0]), "r"(w[1]), "r"(w[2]), "r"(w[3]), "r"(x[0]), "r"(x[1]), "r"(start[0]), "r"(start[1]));
}
DUET_DEVICE void fragment_dot(const uint32_t (&w)[4], const uint32_t (&x)[2], const int (&start)[2], int (&dot)[4],
                              int half) {
    asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %8, %7, %8};"
        : "=r"(dot[0]), "=r"(dot[1]), "=r"(dot[2]), "=r"(dot[3])
        : "r"(w[2 * half]), "r"(w[2 * half + 1]), "r"(x[half]), "r"(start[0]), "r"(start[1]));
}
// Returns v & 0xf0f0f0f0 ^ 0x80808080: of codes in the top bits, code - 8. nvcc makes two instructions of that.
DUET_DEVICE uint32_t signed_tops(uint32_t v) {
    asm("lop3.b32 %0, %0, %1, %2, 0x6a;" : "+r"(v) : "r"(0xf0f0f0f0u), "r"(0x80808080u));
    return v;
}
// Adds the products of a pair of int16 with the two lowest bytes of b.
DUET_DEVICE int dot2(uint32_t pair, uint32_t b, int c) { return __dp2a_lo((int)pair, (int)b, c); }
// Loads four tiles of 8 lines x 16 bytes from shared memory: lane 8i + k names line k of i, 4g + t gets word t of g.
DUET_DEVICE void load_lines(uint32_t line, uint32_t (&w)[2][2]) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(w[0][0]), "=r"(w[0][1]), "=r"(w[1][0]), "=r"(w[1][1])
                 : "r"(line)
                 : "memory");
}
// Starts a copy to shared memory, without is_there of zeros. wait_for_copies waits for those of this thread.
template <int Bytes>
DUET_DEVICE void start_copy(uint32_t to, const void* from, bool is_there) {
    const int n = is_there ? Bytes : 0;
    if constexpr (Bytes == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(n) : "memory");
    else asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "r"(n) : "memory");
}
DUET_DEVICE void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }
#else
// With AMD's dot instructions, and in the emulator, a lane has 8 or 4 rows of one token. For chips with matrix
// instructions a function below meets one requirement more, and is taken instead.
template <int K, class W, class X>
DUET_DEVICE void tile_dot(W w, int w_at, X x, int x_at, int stride, int (&dot)[8]) {
    uint32_t b[K / 4];
    for (int k = 0; k < K / 4; k++) b[k] = x[tile_token(0) * stride + x_at + k];
    for (int e = 0; e < tile_elems(); e++)
        for (int k = 0; k < K / 4; k++) dot[e] = dot4(w[tile_row(e) * stride + w_at + k], b[k], dot[e]);
}
#endif
#if defined(DUET_HIP)
template <int N>
using tile_vec = int __attribute__((ext_vector_type(N)));

template <int K, class W, class X>
    requires(kChip.matrix == gpu_matrix::wmma_gfx11 || kChip.matrix == gpu_matrix::wmma_gfx12)
DUET_DEVICE void tile_dot(W w, int w_at, X x, int x_at, int stride, int (&dot)[8]) {
    const int line = thread_id() % 16;
    tile_vec<8> c;
    for (int e = 0; e < 8; e++) c[e] = dot[e];
    for (int k = 0; k < K / 4; k += 4) {
        if constexpr (kChip.matrix == gpu_matrix::wmma_gfx11) {
            const tile_vec<4> a = *(const tile_vec<4>*)&w[line * stride + w_at + k],
                              b = *(const tile_vec<4>*)&x[line * stride + x_at + k];
            c = __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32(true, a, true, b, c, false);
        } else {
            const int part = thread_id() % 32 / 16 * 2;
            const tile_vec<2> a = *(const tile_vec<2>*)&w[line * stride + w_at + k + part];
            const tile_vec<2> b = *(const tile_vec<2>*)&x[line * stride + x_at + k + part];
            c = __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32_gfx12(true, a, true, b, c, false);
        }
    }
    for (int e = 0; e < 8; e++) dot[e] = c[e];
}

template <int K, class W, class X>
    requires(kChip.matrix >= gpu_matrix::mfma_gfx908 && kChip.matrix <= gpu_matrix::mfma_k32)
DUET_DEVICE void tile_dot(W w, int w_at, X x, int x_at, int stride, int (&dot)[8]) {
    const int line = thread_id() % 16, part = thread_id() % 64 / 16;
    tile_vec<4> c = {dot[0], dot[1], dot[2], dot[3]};
    if constexpr (kChip.matrix == gpu_matrix::mfma_k32) {
        // One instruction does K = 32, with 8 bytes to a lane. With K = 16 the upper half of the lanes brings zeros.
        const int at = part * 2;
        int64_t a = 0, b = 0;
        if (K == 32 || part < 2) {
            a = *(const int64_t*)&w[w_at + line * stride + at];
            b = *(const int64_t*)&x[x_at + line * stride + at];
        }
        c = __builtin_amdgcn_mfma_i32_16x16x32_i8(a, b, c, 0, 0, 0);
    } else {
        for (int k = 0; k < K / 4; k += 4) {
            const int a = (int)w[line * stride + w_at + k + part], b = (int)x[line * stride + x_at + k + part];
            c = __builtin_amdgcn_mfma_i32_16x16x16i8(a, b, c, 0, 0, 0);
        }
    }
    for (int e = 0; e < 4; e++) dot[e] = c[e];
}
#endif

// ---- products of float tiles: mode fast ----
// tile_product adds the products of a tile over K = 32 to the lane's elements of f32, in an order that is the unit's
// own. Lines of w and x are 16 words of f16 or bf16, kTileStride words apart in shared memory so that loads of 16
// bytes meet no bank twice (of 8 by MFMA, twice). Which 16 elements come first does not matter if w and x agree.

#if defined(DUET_CUDA)
constexpr int kTileStride = 16;
template <class F>
DUET_DEVICE uint32_t pack_floats(float low, float high) {
    uint32_t v;
    if constexpr (__is_same(F, float_f16)) asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(high), "f"(low));
    else asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(high), "f"(low));
    return v;
}
template <class F, class Shared>
DUET_DEVICE void tile_product(Shared w, int w_at, Shared x, int x_at, float* sum) {
#define DUET_PRODUCT(type)                                                                                             \
    asm("mma.sync.aligned.m16n8k16.row.col.f32." type "." type                                                         \
        ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                                         \
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                                               \
        : "r"(a[0].w[k]), "r"(a[1].w[k]), "r"(a[0].w[k + 1]), "r"(a[1].w[k + 1]), "r"(b.w[k]), "r"(b.w[k + 1]))
    const int at = thread_id() % 32 / 4 * kTileStride + thread_id() % 4 * 4;
    const word4 a[2] = {*(const word4*)(w + w_at + at), *(const word4*)(w + w_at + at + 8 * kTileStride)};
    for (float* c = sum; c < sum + 8; c += 4) {
        const word4 b = *(const word4*)(x + x_at + at + (c - sum) * 2 * kTileStride);
        for (int k = 0; k < 4; k += 2)
            if constexpr (__is_same(F, float_f16)) DUET_PRODUCT("f16");
            else DUET_PRODUCT("bf16");
    }
#undef DUET_PRODUCT
}
#else
constexpr int kTileStride = 20;
template <class F>
DUET_DEVICE uint32_t pack_floats(float low, float high) {
    auto bits = [](float v) -> uint32_t {
        if constexpr (!__is_same(F, float_f16)) return float_to_bf16(v);
#if defined(DUET_HIP)
        return __builtin_bit_cast(uint16_t, (_Float16)v);
#else
        return float_to_half(v);
#endif
    };
    return bits(low) | bits(high) << 16;
}
#if defined(DUET_HIP)
template <class F, class Shared>
DUET_DEVICE void tile_product(Shared w, int w_at, Shared x, int x_at, float* sum) {
    constexpr bool kIsHalf = __is_same(F, float_f16);
    constexpr int kEach = kChip.matrix == gpu_matrix::wmma_gfx11 ? 16 : kChip.matrix == gpu_matrix::wmma_gfx12 ? 8 : 4;
    using element = decltype([] {
        if constexpr (kIsHalf) return _Float16();
        else return short();
    }());
    typedef element part __attribute__((ext_vector_type(kEach), aligned(kEach < 8 ? 8 : 16)));
    typedef float result __attribute__((ext_vector_type(256 / kChip.warp_width)));
    // Lanes of a line have 16 bytes each of 64, or all of each half.
    const int lane = thread_id() % kChip.warp_width, at = lane % 16 * kTileStride + (kEach < 16 ? lane / 16 * 4 : 0);
    result c;
    for (int e = 0; e < tile_elems(); e++) c[e] = sum[e];
    for (int k = 0; k < 2; k++) {
        const int step = at + k * (kEach == 4 ? 2 : 8);
        const part a = *(const part*)(w + w_at + step), b = *(const part*)(x + x_at + step);
        if constexpr (kEach == 16 && kIsHalf) c = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32(a, b, c);
        else if constexpr (kEach == 16) c = __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32(a, b, c);
        else if constexpr (kEach == 8 && kIsHalf) c = __builtin_amdgcn_wmma_f32_16x16x16_f16_w32_gfx12(a, b, c);
        else if constexpr (kEach == 8) c = __builtin_amdgcn_wmma_f32_16x16x16_bf16_w32_gfx12(a, b, c);
        else if constexpr (kIsHalf) c = __builtin_amdgcn_mfma_f32_16x16x16f16(a, b, c, 0, 0, 0);
        else c = __builtin_amdgcn_mfma_f32_16x16x16bf16_1k(a, b, c, 0, 0, 0);
    }
    for (int e = 0; e < tile_elems(); e++) sum[e] = c[e];
}
#else
template <class F, class Shared>
void tile_product(Shared w, int w_at, Shared x, int x_at, float* sum) {
    auto value = [](float pair, int i) { return to_float(F{(uint16_t)(bits_of(pair) >> i % 2 * 16)}); };
    for (int e = 0; e < tile_elems(); e++)
        for (int i = 0; i < 32; i++)
            sum[e] = __builtin_fmaf(value(w[w_at + tile_row(e) * kTileStride + i / 2], i),
                                    value(x[x_at + tile_token(e) * kTileStride + i / 2], i), sum[e]);
}
#endif
#endif

// Two floats rounded to F, of f16 at most 65504.
template <class F>
DUET_DEVICE uint32_t round_pair(float low, float high) {
    constexpr float kMost = __is_same(F, float_f16) ? 65504.0f : __builtin_inff();
    auto near = [](float v) { return v > kMost ? kMost : v < -kMost ? -kMost : v; };
    return pack_floats<F>(near(low), near(high));
}

}  // namespace duet
