// cpu/kernels_neon.cpp: the CPU kernels built for the base instruction set of 64-bit ARM (NEON).
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
#include "simd/kernels_simd.inc"

namespace duet {

extern const cpu_kernels kNeonKernels;
constinit const cpu_kernels kNeonKernels = neon_lanes::make_kernels("neon");

}  // namespace duet
#endif
