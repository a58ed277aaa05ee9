// cpu/kernels_dotprod.cpp: the CPU kernels for ARM with dot products of bytes (ARMv8.2 dotprod).
// Main path: cpu/ops.cpp -> cpu/kernels.h -> [cpu/kernels_dotprod.cpp] -> cpu/simd/kernels_arm.inc
#if defined(__aarch64__)
#define DUET_ISA     dotprod_lanes
#define DUET_TARGET  DUET_ARM_TARGET("dotprod", "arch=armv8.2-a+dotprod")
#define DUET_ARM_DOT 1
#include "simd/kernels_arm.inc"

namespace duet {

constinit const cpu_kernels kDotprodVectors = dotprod_lanes::make_vectors();
constinit const format_table kDotprodFormats = dotprod_lanes::make_formats();

}  // namespace duet
#endif
