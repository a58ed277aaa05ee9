// quant/exact_fma.cpp: the functions that quant/exact_fma.h describes.
// Main path: quant/exact_fma.h -> [quant/exact_fma.cpp]
#include "exact_fma.h"
#include "exact_math.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace duet {
namespace {

__extension__ typedef unsigned __int128 fma_wide;

// A finite number other than 0: bits * 2^exponent and its sign.
struct fma_term {
    bool is_negative;
    int exponent;
    fma_wide bits;
};

fma_term fma_split(double x) {
    const uint64_t b = bits_of(x), fraction = b & 0xfffffffffffff;
    const int e = (int)(b >> 52 & 0x7ff);
    return {b >> 63 != 0, (e ? e : 1) - 1075, fraction | (uint64_t)(e != 0) << 52};
}

int fma_width(fma_wide v) {
    return 128 - (v >> 64 ? std::countl_zero((uint64_t)(v >> 64)) : 64 + std::countl_zero((uint64_t)v));
}

// Moves the highest bit to place 125, which leaves room for the carry of a sum.
void fma_align(fma_term* t) {
    const int n = 126 - fma_width(t->bits);
    t->bits <<= n;
    t->exponent -= n;
}

// Rounds to the nearest double, ties to even.
double fma_round(const fma_term& t) {
    const int lost = std::max({fma_width(t.bits) - 53, -1074 - t.exponent, 0});
    uint64_t kept = lost < 128 ? (uint64_t)(t.bits >> lost) : 0;
    if (lost > 0 && lost < 128) {
        const fma_wide half = (fma_wide)1 << (lost - 1), rest = t.bits & (half * 2 - 1);
        kept += rest > half || (rest == half && kept % 2);
    }
    return (t.is_negative ? -1.0 : 1.0) * std::ldexp((double)kept, t.exponent + lost);
}

}  // namespace

// The sum in double is rounded to odd, and then to float: the two roundings together are one, because a double has more
// than two bits beyond twice a float's (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums: proved
// algorithms using rounding to odd", 2008). The error of the sum is Knuth's.
float soft_fma(float x, float y, float z) {
    const double p = (double)x * (double)y, c = z, sum = p + c, part = sum - p, error = (p - (sum - part)) + (c - part);
    uint64_t b = bits_of(sum);
    if (std::isfinite(sum) && error != 0 && b % 2 == 0) b += (error > 0) == (sum > 0) ? 1 : (uint64_t)-1;
    return (float)double_of(b);
}

// The product of two doubles has at most 106 bits, so 128 bits hold it exactly. Bits that the smaller term loses when
// it is shifted below the larger one stay as one bit, which only says that there were some; then the result is rounded
// 70 bits above it.
double soft_fma(double x, double y, double z) {
    if (!std::isfinite(x) || !std::isfinite(y) || x == 0 || y == 0) return x * y + z;
    if (!std::isfinite(z)) return z;  // a product beyond all doubles is still finite
    if (z == 0) return x * y;
    const fma_term a = fma_split(x), b = fma_split(y);
    fma_term large{a.is_negative != b.is_negative, a.exponent + b.exponent, a.bits * b.bits}, small = fma_split(z);
    fma_align(&large);
    fma_align(&small);
    if (std::pair(large.exponent, large.bits) < std::pair(small.exponent, small.bits)) std::swap(large, small);
    const int n = large.exponent - small.exponent;
    if (n >= 128) small.bits = 1;
    else if (n > 0) small.bits = small.bits >> n | ((small.bits & (((fma_wide)1 << n) - 1)) != 0);
    if (large.is_negative == small.is_negative) large.bits += small.bits;
    else if (large.bits == small.bits) return 0;
    else large.bits -= small.bits;
    return fma_round(large);
}

#if defined(__MINGW32__)
namespace {
#if defined(__x86_64__)
__attribute__((target("fma"))) float hardware_fma(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
__attribute__((target("fma"))) double hardware_fma(double x, double y, double z) { return __builtin_fma(x, y, z); }
// The bit of FMA says that the processor has it, AVX that the system keeps its registers.
bool has_hardware_fma() {
    static const bool has = __builtin_cpu_supports("fma") && __builtin_cpu_supports("avx");
    return has;
}
#else
template <class T> T hardware_fma(T x, T y, T z) { return soft_fma(x, y, z); }
bool has_hardware_fma() { return false; }
#endif
}  // namespace

extern "C" float duet_fmaf(float x, float y, float z) __asm__("duet_fmaf");
extern "C" float duet_fmaf(float x, float y, float z) {
    return has_hardware_fma() ? hardware_fma(x, y, z) : soft_fma(x, y, z);
}
extern "C" double duet_fma(double x, double y, double z) __asm__("duet_fma");
extern "C" double duet_fma(double x, double y, double z) {
    return has_hardware_fma() ? hardware_fma(x, y, z) : soft_fma(x, y, z);
}
#endif

}  // namespace duet
