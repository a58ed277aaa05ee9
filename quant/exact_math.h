// quant/exact_math.h: exp, tanh, sigmoid, silu, gelu and softplus in f32, and exp, log, sin and cos in f64. They use
// only IEEE + - * / and fma, so that every machine gives the same bits, and not libm, whose functions differ by
// platform. They are part of the numeric contract (docs/numerics.md); tests/test_exact.cpp measures their errors. This
// file compiles for host and device.
// Must not know: formats, ops, devices.
// Main path: cpu/ops.cpp -> quant/exact.h -> [quant/exact_math.h]
#pragma once
#include "exact_fma.h"

#include <cstdint>
#include <cstring>
#include <cmath>

#ifndef DUET_HD
#define DUET_HD
#endif

namespace duet {

DUET_HD inline uint32_t bits_of(float x) { return __builtin_bit_cast(uint32_t, x); }
DUET_HD inline float float_of(uint32_t b) { return __builtin_bit_cast(float, b); }
DUET_HD inline double double_of(uint64_t b) { return __builtin_bit_cast(double, b); }
DUET_HD inline uint64_t bits_of(double x) { return __builtin_bit_cast(uint64_t, x); }

// Rounds to the nearest integer, ties to even, for |x| < 2^22: adding and subtracting 1.5 * 2^23 drops all bits
// below 1.
DUET_HD inline float exact_rint(float x) {
    const float magic = 12582912.0f;
    return (x + magic) - magic;
}

// e^x with an error below 1 ulp. The result is 0 below -87.33 (no denormals), +inf above 88.72, and NaN for NaN.
// x = n ln2 + r with |r| <= 0.347. e^r is a Taylor sum of degree 7 in Horner form, whose truncation is 4e-9 relative.
DUET_HD inline float exact_exp(float x) {
    const float magic = 12582912.0f, raised = x * 1.44269504f + magic, n = raised - magic;  // exact_rint
    float r = __builtin_fmaf(n, -0.693359375f, x);  // 0.693359375 has 9 bits, so the product is exact
    r = __builtin_fmaf(n, 2.12194440e-4f, r);       // ln2 - 0.693359375 = -2.1219444e-4
    float p = 1.98412698e-4f;                       // 1/7!
    p = __builtin_fmaf(p, r, 1.38888889e-3f);
    p = __builtin_fmaf(p, r, 8.33333333e-3f);
    p = __builtin_fmaf(p, r, 4.16666667e-2f);
    p = __builtin_fmaf(p, r, 1.66666667e-1f);
    p = __builtin_fmaf(p, r, 0.5f);
    p = __builtin_fmaf(p, r, 1.0f);
    p = __builtin_fmaf(p, r, 1.0f);
    // n is in -126..128. 2^n is applied as two factors, so that each is a normal number; the first changes the exponent
    // of p. Where x is out of range, what they make is dropped: branches would cost a GPU more.
    const uint32_t i = bits_of(raised) - bits_of(magic), half = (uint32_t)((int32_t)i >> 1);
    const float e = float_of(bits_of(p) + (half << 23)) * float_of((i - half + 127) << 23);
    const float low = x != x ? x : 0.0f, high = x > 88.72f ? float_of(0x7f800000u) : e;
    return x >= -87.33f ? high : low;
}

DUET_HD inline float exact_sigmoid(float x) { return 1.0f / (1.0f + exact_exp(-x)); }
DUET_HD inline float exact_silu(float x) { return x / (1.0f + exact_exp(-x)); }

// The tanh form of gelu: 0.5 x (1 + tanh(u)) = x sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3)
DUET_HD inline float exact_gelu(float x) {
    const float u2 = 1.59576912f * __builtin_fmaf(0.044715f * x * x, x, x);
    return x / (1.0f + exact_exp(-u2));
}

// tanh x: the odd Taylor series to x^15 below 0.55 (its truncation is 4e-8 relative there), 1 - 2/(e^2x + 1) above.
DUET_HD inline float exact_tanh(float x) {
    const float a = float_of(bits_of(x) & 0x7fffffffu);
    if (a < 0.55f) {
        const float s = x * x;
        float p = -1.45583438705132e-3f;                  // -929569/638512875
        p = __builtin_fmaf(p, s, 3.59212803657248e-3f);   // 21844/6081075
        p = __builtin_fmaf(p, s, -8.86323552990220e-3f);  // -1382/155925
        p = __builtin_fmaf(p, s, 2.18694885361552e-2f);   // 62/2835
        p = __builtin_fmaf(p, s, -5.39682539682540e-2f);  // -17/315
        p = __builtin_fmaf(p, s, 1.33333333333333e-1f);   // 2/15
        p = __builtin_fmaf(p, s, -3.33333333333333e-1f);  // -1/3
        return __builtin_fmaf(p * s, x, x);
    }
    const float t = 1.0f - 2.0f / (exact_exp(2.0f * a) + 1.0f);
    return x < 0 ? -t : t;
}

// ln(1 + e^x) = max(x, 0) + ln(1 + e^-|x|). With z = e^-|x| in (0, 1] and s = z / (2 + z), |s| <= 1/3: ln(1 + z) is
// 2 atanh(s), an odd series to s^15 (truncation below 1e-9 relative).
DUET_HD inline float exact_softplus(float x) {
    const float a = float_of(bits_of(x) & 0x7fffffffu);
    const float z = exact_exp(-a), s = z / (2.0f + z), w = s * s;
    float p = 6.66666667e-2f;  // 1/15
    p = __builtin_fmaf(p, w, 7.69230769e-2f);
    p = __builtin_fmaf(p, w, 9.09090909e-2f);
    p = __builtin_fmaf(p, w, 1.11111111e-1f);
    p = __builtin_fmaf(p, w, 1.42857143e-1f);
    p = __builtin_fmaf(p, w, 0.2f);
    p = __builtin_fmaf(p, w, 3.33333333e-1f);
    const float l = 2.0f * __builtin_fmaf(p * w, s, s);
    return x > 0.0f ? x + l : l + 0.0f * x;  // 0 * x keeps NaN
}

// ---- f64, for tables made once on the host (rope angles, samplers) -------------------------------------------------

// e^x with an error below 1 ulp for |x| < 708; outside, 0 and +inf.
DUET_HD inline double exact_exp64(double x) {
    if (!(x >= -708.0)) return x != x ? x : 0.0;
    if (x > 709.0) return double_of(0x7ff0000000000000ull);
    const double magic = 6755399441055744.0;  // 1.5 * 2^52
    const double n = (x * 1.4426950408889634074 + magic) - magic;
    double r = __builtin_fma(n, -6.93147180369123816490e-01, x);  // the high and low part of ln 2
    r = __builtin_fma(n, -1.90821492927058770002e-10, r);
    double p = 1.0, k = 16.0;  // Horner over 1/16!: |r| <= 0.347, truncation 1e-22
    for (; k >= 1.0; k -= 1.0) p = __builtin_fma(p, r / k, 1.0);
    const int64_t i = (int64_t)n, half = i >> 1;
    return p * double_of((uint64_t)(half + 1023) << 52) * double_of((uint64_t)(i - half + 1023) << 52);
}

// ln x with an error below 2 ulp for normal x > 0. The result is NaN for x < 0 or NaN, and -inf for 0. x = 2^e m with m
// in [0.7071, 1.4142); ln m = 2 atanh((m-1)/(m+1)).
DUET_HD inline double exact_log64(double x) {
    if (!(x >= 0.0)) return double_of(0x7ff8000000000000ull);
    if (x == 0.0) return double_of(0xfff0000000000000ull);
    if (bits_of(x) >= 0x7ff0000000000000ull) return x;
    int64_t e = 0;
    if (x < 2.2250738585072014e-308) {
        x *= 18014398509481984.0;
        e = -54;
    }
    uint64_t b = bits_of(x);
    e += (int64_t)(b >> 52) - 1023;
    double m = double_of((b & 0x000fffffffffffffull) | 0x3ff0000000000000ull);
    if (m > 1.4142135623730951) {
        m *= 0.5;
        e += 1;
    }
    const double s = (m - 1.0) / (m + 1.0), z = s * s;
    double p = 0.0;
    for (double k = 25.0; k >= 3.0; k -= 2.0) p = __builtin_fma(p, z, 1.0 / k);
    const double tail = 2.0 * s * z * p;
    return __builtin_fma((double)e, 6.93147180369123816490e-01,
                         __builtin_fma((double)e, 1.90821492927058770002e-10, tail) + 2.0 * s);
}

// x^y for x > 0.
DUET_HD inline double exact_pow64(double x, double y) { return exact_exp64(y * exact_log64(x)); }

// sin and cos of x radians for |x| < 2^31. The absolute error is below 2^-52 + 2^-53 |x| 2^-50. x is reduced by pi/2 in
// three parts (Cody and Waite).
DUET_HD inline void exact_sincos64(double x, double* sin_x, double* cos_x) {
    const double magic = 6755399441055744.0, n = (x * 0.63661977236758134308 + magic) - magic;
    double r = __builtin_fma(n, -1.57079632679489655800e+00, x);
    r = __builtin_fma(n, -6.12323399573676603587e-17, r);
    r = __builtin_fma(n, 1.49738490485916983e-33, r);
    const double z = r * r;
    double s = 1.0, c = 1.0;  // Taylor sums in Horner form: |r| <= pi/4, terms to r^21 and r^20
    for (double k = 20.0; k >= 2.0; k -= 2.0) s = __builtin_fma(s, -z / (k * (k + 1.0)), 1.0);
    for (double k = 20.0; k >= 2.0; k -= 2.0) c = __builtin_fma(c, -z / (k * (k - 1.0)), 1.0);
    s *= r;
    const int64_t q = (int64_t)n & 3;
    *sin_x = q == 0 ? s : q == 1 ? c : q == 2 ? -s : -c;
    *cos_x = q == 0 ? c : q == 1 ? -s : q == 2 ? -c : s;
}

}  // namespace duet
