// cpu/kernels_avx512_small.cpp: the matmuls for AVX-512 by blocks of 32 weights.
// Main path: cpu/ops.cpp -> cpu/kernels.h -> [cpu/kernels_avx512_small.cpp] -> cpu/simd/kernels_simd.inc
#if defined(__x86_64__)
#define DUET_ISA     avx512_small
#define DUET_TARGET  "avx2,fma,f16c,avx512f,avx512dq,avx512bw,avx512vl,avx512vnni"
#define DUET_LANES   16
#define DUET_FORMATS vector_code::small
#include "simd/kernels_simd.inc"

namespace duet {

constinit const format_table kAvx512Small = avx512_small::make_formats();

}  // namespace duet
#endif
