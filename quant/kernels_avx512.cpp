// quant/kernels_avx512.cpp: the CPU kernels built for AVX-512 (F, DQ, BW, VL) with VNNI, and the matmuls of AMX beside them. The target pragma covers only this file's namespace, so that
// nothing here can be linked into code that runs on an older machine.
// Main path: quant/cpu_ops.cpp -> quant/cpu_kernels.h -> [quant/kernels_avx512.cpp] -> quant/*.inc
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
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c,avx512f,avx512dq,avx512bw,avx512vl,avx512vnni,amx-tile,amx-int8"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,avx512f,avx512dq,avx512bw,avx512vl,avx512vnni,amx-tile,amx-int8")
#endif
namespace avx512_lanes {  // named: both instruction sets may stand in one unit
namespace {
#define DUET_LANES 16
#include "kernels_simd.inc"
#include "dot_amx.inc"
#undef DUET_LANES
}  // namespace
}  // namespace avx512_lanes
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#ifdef DUET_AMX_EMULATED   // tests/amx_emulated.cpp
extern const cpu_kernels kAmxEmulatedKernels;
constinit const cpu_kernels kAmxEmulatedKernels = avx512_lanes::with_amx(avx512_lanes::make_kernels(""), "amx (emulated)");
#else
extern const cpu_kernels kAvx512Kernels, kAmxKernels;
constinit const cpu_kernels kAvx512Kernels = avx512_lanes::make_kernels("avx512");
constinit const cpu_kernels kAmxKernels = avx512_lanes::with_amx(avx512_lanes::make_kernels(""), "amx");
#endif

}  // namespace duet
#endif
