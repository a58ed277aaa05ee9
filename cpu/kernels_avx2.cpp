// cpu/kernels_avx2.cpp: the CPU kernels built for AVX2, FMA and F16C.
// Main path: cpu/ops.cpp -> cpu/kernels.h -> [cpu/kernels_avx2.cpp] -> cpu/simd/kernels_simd.inc
#if defined(__x86_64__)
#define DUET_ISA    avx2_lanes
#define DUET_TARGET "avx2,fma,f16c"
#define DUET_LANES  8
#include "simd/kernels_simd.inc"

namespace duet {

extern const cpu_kernels kAvx2Kernels;
constinit const cpu_kernels kAvx2Kernels = avx2_lanes::make_kernels("avx2");

}  // namespace duet
#endif
