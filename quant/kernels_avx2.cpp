// quant/kernels_avx2.cpp: the CPU kernels built for AVX2, FMA and F16C. The target pragma covers only this file's namespace, so that
// nothing here can be linked into code that runs on an older machine.
// Main path: quant/cpu_ops.cpp -> quant/cpu_kernels.h -> [quant/kernels_avx2.cpp] -> quant/*.inc
#if defined(__x86_64__)
#include "activate.h"
#include "cpu_kernels.h"

#include <cstring>
#include <immintrin.h>
#include <type_traits>

namespace duet {
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"   // g++ 12 warns inside its own immintrin.h (GCC bug 105593)
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#endif
namespace avx2_lanes {  // named: both instruction sets may stand in one unit
namespace {
#define DUET_LANES 8
#include "kernels_simd.inc"
#undef DUET_LANES
}  // namespace
}  // namespace avx2_lanes
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

extern const cpu_kernels kAvx2Kernels;
constinit const cpu_kernels kAvx2Kernels = avx2_lanes::make_kernels("avx2");

}  // namespace duet
#endif
