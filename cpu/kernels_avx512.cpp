// cpu/kernels_avx512.cpp: the CPU kernels for AVX-512 (F, DQ, BW, VL, VNNI), except the matmuls by quantized weights.
// It also has the matmul of mode fast for machines with AVX512_BF16.
// Main path: cpu/ops.cpp -> cpu/kernels.h -> [cpu/kernels_avx512.cpp] -> cpu/simd/kernels_simd.inc
#if defined(__x86_64__)
#define DUET_ISA    avx512_vectors
#define DUET_TARGET "avx2,fma,f16c,avx512f,avx512dq,avx512bw,avx512vl,avx512vnni,avx512bf16"
#define DUET_LANES  16
#define DUET_VECTORS
#include "simd/kernels_simd.inc"

namespace duet {

constinit const cpu_kernels kAvx512Vectors = avx512_vectors::make_vectors();
constinit const fast_table kAvx512Fast = avx512_vectors::make_fast<avx512_vectors::pair_product>();

}  // namespace duet
#endif
