// cpu/kernels_i8mm.cpp: the CPU kernels for ARM with dot products and matrix products of bytes (ARMv8.6 i8mm).
// Main path: cpu/ops.cpp -> cpu/kernels.h -> [cpu/kernels_i8mm.cpp] -> cpu/simd/kernels_arm.inc
#if defined(__aarch64__)
#define DUET_ISA     i8mm_lanes
#define DUET_TARGET  DUET_ARM_TARGET("dotprod,i8mm", "arch=armv8.2-a+dotprod+i8mm")
#define DUET_ARM_DOT 2
#include "simd/kernels_arm.inc"

namespace duet {

constinit const cpu_kernels kI8mmVectors = i8mm_lanes::make_vectors();
constinit const format_table kI8mmFormats = i8mm_lanes::make_formats();

}  // namespace duet
#endif
