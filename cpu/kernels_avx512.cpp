// cpu/kernels_avx512.cpp: the CPU kernels built for AVX-512 (F, DQ, BW, VL) with VNNI, and the matmuls of AMX beside
// them.
// Main path: cpu/ops.cpp -> cpu/kernels.h -> [cpu/kernels_avx512.cpp] -> cpu/simd/kernels_simd.inc
#if defined(__x86_64__)
#define DUET_ISA    avx512_lanes
#define DUET_TARGET "avx2,fma,f16c,avx512f,avx512dq,avx512bw,avx512vl,avx512vnni,avx512bf16,amx-tile,amx-int8,amx-bf16"
#define DUET_LANES  16
#define DUET_WITH_AMX
#include "simd/kernels_simd.inc"
#undef DUET_WITH_AMX

namespace duet {

#ifdef DUET_AMX_EMULATED  // tests/amx_emulated.cpp
extern const cpu_kernels kAmxEmulatedKernels, kAmxEmulatedFast;
constinit const cpu_kernels kAmxEmulatedKernels =
    avx512_lanes::with_amx(avx512_lanes::make_kernels(""), "amx (emulated)");
constinit const cpu_kernels kAmxEmulatedFast =
    avx512_lanes::with_fast<avx512_lanes::amx_product>(avx512_lanes::with_amx(avx512_lanes::make_kernels(""), ""));
#else
extern const cpu_kernels kAvx512Kernels, kAvx512Fast, kAmxKernels, kAmxFast;
constinit const cpu_kernels kAvx512Kernels = avx512_lanes::make_kernels("avx512");
constinit const cpu_kernels kAvx512Fast =
    avx512_lanes::with_fast<avx512_lanes::pair_product>(avx512_lanes::make_kernels("avx512"));
constinit const cpu_kernels kAmxKernels = avx512_lanes::with_amx(avx512_lanes::make_kernels(""), "amx");
constinit const cpu_kernels kAmxFast =
    avx512_lanes::with_fast<avx512_lanes::amx_product>(avx512_lanes::with_amx(avx512_lanes::make_kernels(""), "amx"));
#endif

}  // namespace duet
#endif
