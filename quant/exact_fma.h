// quant/exact_fma.h: fma that rounds once, without the processor's instruction, for C libraries whose own rounds twice:
// those of mingw-w64 compute in the 80-bit format. There the compiler's calls of fma and fmaf go to this file's
// functions, which take the instruction where the processor has it. Must not know: what is computed. Main path:
// quant/exact_math.h -> [quant/exact_fma.h] -> quant/exact_fma.cpp
#pragma once

#if defined(__MINGW32__)
#include <cmath>
extern "C" {
float fmaf(float, float, float) __asm__("duet_fmaf");
double fma(double, double, double) __asm__("duet_fma");
}
#endif

namespace duet {

float soft_fma(float x, float y, float z);
double soft_fma(double x, double y, double z);

}  // namespace duet
