// quant/kernels_neon.cpp: the CPU kernels built for the base instruction set of 64-bit ARM (NEON).
// Main path: quant/cpu_ops.cpp -> quant/cpu_kernels.h -> [quant/kernels_neon.cpp] -> quant/*.inc
#if defined(__aarch64__)
#include "activate.h"
#include "cpu_kernels.h"

#include <arm_neon.h>
#include <cstring>
#include <type_traits>

namespace duet {
namespace neon_lanes {  // named: all instruction sets may stand in one unit
namespace {
#define DUET_LANES 8
#define DUET_ARM_DOT 0
#include "kernels_simd.inc"
#undef DUET_LANES
#undef DUET_ARM_DOT
}  // namespace
}  // namespace neon_lanes

extern const cpu_kernels kNeonKernels;
constinit const cpu_kernels kNeonKernels = neon_lanes::make_kernels("neon");

}  // namespace duet
#endif
