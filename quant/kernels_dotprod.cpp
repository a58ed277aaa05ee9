// quant/kernels_dotprod.cpp: the CPU kernels built for ARM with dot products of bytes (ARMv8.2 dotprod). The target pragma covers only
// this file's namespace, so that nothing here can be linked into code that runs on an older machine.
// Main path: quant/cpu_ops.cpp -> quant/cpu_kernels.h -> [quant/kernels_dotprod.cpp] -> quant/*.inc
#if defined(__aarch64__)
#include "activate.h"
#include "cpu_kernels.h"

#include <arm_neon.h>
#include <cstring>
#include <type_traits>

namespace duet {
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("dotprod"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("arch=armv8.2-a+dotprod")
#endif
namespace dotprod_lanes {  // named: all instruction sets may stand in one unit
namespace {
#define DUET_LANES 8
#define DUET_ARM_DOT 1
#include "kernels_simd.inc"
#undef DUET_LANES
#undef DUET_ARM_DOT
}  // namespace
}  // namespace dotprod_lanes
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

extern const cpu_kernels kDotprodKernels;
constinit const cpu_kernels kDotprodKernels = dotprod_lanes::make_kernels("dotprod");

}  // namespace duet
#endif
