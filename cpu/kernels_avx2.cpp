// cpu/kernels_avx2.cpp: the CPU kernels for AVX2, FMA and F16C, except the matmuls by quantized weights.
// Main path: cpu/ops.cpp -> cpu/kernels.h -> [cpu/kernels_avx2.cpp] -> cpu/simd/kernels_simd.inc
#if defined(__x86_64__)
#define DUET_ISA    avx2_vectors
#define DUET_TARGET "avx2,fma,f16c"
#define DUET_LANES  8
#define DUET_VECTORS
#include "simd/kernels_simd.inc"

namespace duet {

constinit const cpu_kernels kAvx2Vectors = avx2_vectors::make_vectors();

}  // namespace duet
#endif
