// cpu/kernels_avx512_grids.cpp: the matmuls for AVX-512 by formats of grid points, and by other formats whose codes are
// not contiguous in a row.
// Main path: cpu/ops.cpp -> cpu/kernels.h -> [cpu/kernels_avx512_grids.cpp] -> cpu/simd/kernels_simd.inc
#if defined(__x86_64__)
#define DUET_ISA     avx512_grids
#define DUET_TARGET  "avx2,fma,f16c,avx512f,avx512dq,avx512bw,avx512vl,avx512vnni"
#define DUET_LANES   16
#define DUET_FORMATS vector_code::grids
#include "simd/kernels_simd.inc"

namespace duet {

constinit const format_table kAvx512Grids = avx512_grids::make_formats();

}  // namespace duet
#endif
