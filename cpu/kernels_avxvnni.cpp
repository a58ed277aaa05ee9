// cpu/kernels_avxvnni.cpp: the matmul by tiles for AVX-VNNI, which processors without AVX-512 have, too. The kernel
// files for AVX2 unpack its tiles, and do all else. Main path: cpu/ops.cpp -> cpu/kernels.h ->
// [cpu/kernels_avxvnni.cpp] -> cpu/simd/dot_tiles.inc
#if defined(__x86_64__)
#define DUET_ISA    avxvnni_tiles
#define DUET_TARGET "avx2,fma,f16c,avxvnni"
#define DUET_LANES  8
#define DUET_VNNI
#include "simd/kernels_simd.inc"

namespace duet {

constinit const tile_table kAvxVnni = {nullptr, avxvnni_tiles::matmul_vnni};

}  // namespace duet
#endif
