// cpu/kernels_neon.cpp: the CPU kernels for the base instruction set of 64-bit ARM (NEON).
// Main path: cpu/ops.cpp -> cpu/kernels.h -> [cpu/kernels_neon.cpp] -> cpu/simd/kernels_simd.inc
#if defined(__aarch64__)
#define DUET_ISA neon_lanes
#if defined(__clang__)
#define DUET_TARGET "neon"
#else
#define DUET_TARGET "arch=armv8-a"
#endif
#define DUET_LANES   8
#define DUET_ARM_DOT 0
#define DUET_VECTORS
#define DUET_FORMATS vector_code::every
#include "simd/kernels_simd.inc"

namespace duet {

constinit const cpu_kernels kNeonVectors = neon_lanes::make_vectors();
constinit const format_table kNeonFormats = neon_lanes::make_formats();

}  // namespace duet
#endif
