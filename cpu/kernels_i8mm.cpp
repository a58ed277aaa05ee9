// cpu/kernels_i8mm.cpp: the CPU kernels for ARM with dot products and matrix products of bytes (ARMv8.6 i8mm).
// Main path: cpu/ops.cpp -> cpu/kernels.h -> [cpu/kernels_i8mm.cpp] -> cpu/simd/kernels_simd.inc
#if defined(__aarch64__)
#define DUET_ISA i8mm_lanes
#if defined(__clang__)
#define DUET_TARGET "dotprod,i8mm"
#else
#define DUET_TARGET "arch=armv8.2-a+dotprod+i8mm"
#endif
#define DUET_LANES   8
#define DUET_ARM_DOT 2
#define DUET_VECTORS
#define DUET_FORMATS vector_code::every
#include "simd/kernels_simd.inc"

namespace duet {

constinit const cpu_kernels kI8mmVectors = i8mm_lanes::make_vectors();
constinit const format_table kI8mmFormats = i8mm_lanes::make_formats();

}  // namespace duet
#endif
