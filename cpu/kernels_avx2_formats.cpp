// cpu/kernels_avx2_formats.cpp: the matmuls by quantized weights for AVX2, FMA and F16C.
// Main path: cpu/ops.cpp -> cpu/kernels.h -> [cpu/kernels_avx2_formats.cpp] -> cpu/simd/kernels_simd.inc
#if defined(__x86_64__)
#define DUET_ISA     avx2_formats
#define DUET_TARGET  "avx2,fma,f16c"
#define DUET_LANES   8
#define DUET_FORMATS vector_code::every
#include "simd/kernels_simd.inc"

namespace duet {

constinit const format_table kAvx2Formats = avx2_formats::make_formats();

}  // namespace duet
#endif
