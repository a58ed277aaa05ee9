// quant/kernels_i8mm.cpp: the CPU kernels built for ARM with dot products and matrix products of bytes (ARMv8.6 i8mm). The target pragma covers only
// this file's namespace, so that nothing here can be linked into code that runs on an older machine.
// Main path: quant/cpu_ops.cpp -> quant/cpu_kernels.h -> [quant/kernels_i8mm.cpp] -> quant/*.inc
#if defined(__aarch64__)
#include "activate.h"
#include "cpu_kernels.h"

#include <arm_neon.h>
#include <cstring>
#include <type_traits>

namespace duet {
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("dotprod,i8mm"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("arch=armv8.2-a+dotprod+i8mm")
#endif
namespace i8mm_lanes {  // named: all instruction sets may stand in one unit
namespace {
#define DUET_LANES 8
#define DUET_ARM_DOT 2
#include "kernels_simd.inc"
#undef DUET_LANES
#undef DUET_ARM_DOT
}  // namespace
}  // namespace i8mm_lanes
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

extern const cpu_kernels kI8mmKernels;
constinit const cpu_kernels kI8mmKernels = i8mm_lanes::make_kernels("i8mm");

}  // namespace duet
#endif
