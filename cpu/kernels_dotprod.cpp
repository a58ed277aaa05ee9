// cpu/kernels_dotprod.cpp: the CPU kernels for ARM with dot products of bytes (ARMv8.2 dotprod).
// Main path: cpu/ops.cpp -> cpu/kernels.h -> [cpu/kernels_dotprod.cpp] -> cpu/simd/kernels_simd.inc
#if defined(__aarch64__)
#define DUET_ISA dotprod_lanes
#if defined(__clang__)
#define DUET_TARGET "dotprod"
#else
#define DUET_TARGET "arch=armv8.2-a+dotprod"
#endif
#define DUET_LANES   8
#define DUET_ARM_DOT 1
#define DUET_VECTORS
#define DUET_FORMATS vector_code::every
#include "simd/kernels_simd.inc"

namespace duet {

constinit const cpu_kernels kDotprodVectors = dotprod_lanes::make_vectors();
constinit const format_table kDotprodFormats = dotprod_lanes::make_formats();

}  // namespace duet
#endif
