// cpu/kernels_avx512_large.cpp: the matmuls for AVX-512 by blocks of 256 weights whose codes lie in bit fields, and by
// the tiles of all formats.
// Main path: cpu/ops.cpp -> cpu/kernels.h -> [cpu/kernels_avx512_large.cpp] -> cpu/simd/kernels_simd.inc
#if defined(__x86_64__)
#define DUET_ISA     avx512_large
#define DUET_TARGET  "avx2,fma,f16c,avx512f,avx512dq,avx512bw,avx512vl,avx512vnni"
#define DUET_LANES   16
#define DUET_FORMATS vector_code::large
#include "simd/kernels_simd.inc"

namespace duet {

constinit const format_table kAvx512Large = avx512_large::make_formats();

void avx512_tiles(const matmul_args& m, const tile_source& source) { avx512_large::matmul_any_tiles(m, source); }
void avx512_panels(const matmul_args& m, const tile_source& source) { avx512_large::matmul_any_panels(m, source); }

}  // namespace duet
#endif
