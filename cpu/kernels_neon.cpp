// cpu/kernels_neon.cpp: the CPU kernels for the base instruction set of 64-bit ARM (NEON).
// Main path: cpu/ops.cpp -> cpu/kernels.h -> [cpu/kernels_neon.cpp] -> cpu/simd/kernels_arm.inc
#if defined(__aarch64__)
#define DUET_ISA     neon_lanes
#define DUET_TARGET  DUET_ARM_TARGET("neon", "arch=armv8-a")
#define DUET_ARM_DOT 0
#include "simd/kernels_arm.inc"

namespace duet {

constinit const cpu_kernels kNeonVectors = neon_lanes::make_vectors();
constinit const format_table kNeonFormats = neon_lanes::make_formats();

}  // namespace duet
#endif
