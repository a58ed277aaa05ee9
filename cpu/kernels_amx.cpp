// cpu/kernels_amx.cpp: the matmuls of AMX. The AVX-512 kernel files unpack their tiles.
// Main path: cpu/ops.cpp -> cpu/kernels.h -> [cpu/kernels_amx.cpp] -> cpu/simd/kernels_simd.inc
// On Windows it is not taken (cpu/dispatch.cpp), and g++ 12's header cuts strides to the 32 bits that long has there.
#if defined(__x86_64__) && (!defined(_WIN32) || defined(DUET_AMX_EMULATED))
#define DUET_ISA    amx_tiles
#define DUET_TARGET "avx2,fma,f16c,avx512f,avx512dq,avx512bw,avx512vl,avx512vnni,avx512bf16,amx-tile,amx-int8,amx-bf16"
#define DUET_LANES  16
#define DUET_AMX
#include "simd/kernels_simd.inc"

namespace duet {

constinit const tile_table kAmx = {amx_tiles::matmul_amx, nullptr};
constinit const fast_table kAmxFast = amx_tiles::make_fast<amx_tiles::amx_product>();

}  // namespace duet
#endif
