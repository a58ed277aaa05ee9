// quant/blocks.h: the bit layout of every number format with code here, and the only definition of what its bits mean:
// decode() returns one value, and unpack() returns 32 values as integers with their scales. The scalar CPU kernels, the
// GPU's arranging of weights and the tests call these functions, and every fast path must agree with them. This file is
// also the only copy of the half, bfloat16 and E8M0 conversions. It compiles for host and device.
// Must not know: tensors, files, kernels, encoders.
// Main path: quant/exact.h -> [quant/blocks.h]
//
// The layouts come from llama.cpp:ggml/src/ggml-common.h, the meaning of the codes from the functions dequantize_row_*
// of llama.cpp:ggml/src/ggml-quants.c.
#pragma once
#include "blocks_grid.h"
#include "exact_math.h"

#include <cstdint>

namespace duet {

// ---- 16 and 8 bit floats ------------------------------------------------------------------------------------------

// Converts IEEE binary16 to f32, exactly. A NaN keeps its payload and becomes quiet, as in the CPU's instructions.
DUET_HD inline float half_to_float(uint16_t h) {
    const uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = (h >> 10) & 31u, fraction = h & 0x3ffu;
    if (exponent == 31) return float_of(sign | 0x7f800000u | fraction << 13 | (fraction ? 0x00400000u : 0u));
    if (exponent != 0) return float_of(sign | (exponent + 112) << 23 | fraction << 13);
    const float tiny = (float)fraction * 5.9604644775390625e-8f;  // 2^-24; exact, because the fraction has 10 bits
    return float_of(sign | bits_of(tiny));
}

// Converts f32 to binary16: to nearest, ties to even. Values of 65520 and above become infinity. A NaN keeps the upper
// bits of its payload and becomes quiet.
DUET_HD inline uint16_t float_to_half(float x) {
    const uint32_t b = bits_of(x), sign = b >> 16 & 0x8000u, a = b & 0x7fffffffu;
    if (a > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | (a >> 13 & 0x3ffu));
    if (a >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u);
    if (a < 0x38800000u) {  // below 2^-14: adding 0.5 leaves multiples of 2^-24 in the low bits
        const float shifted = float_of(a) + 0.5f;
        return (uint16_t)(sign | (bits_of(shifted) - 0x3f000000u));
    }
    const uint32_t rounded = a + 0xfffu + (a >> 13 & 1u);
    return (uint16_t)(sign | (rounded - 0x38000000u) >> 13);
}

DUET_HD inline float bf16_to_float(uint16_t h) { return float_of((uint32_t)h << 16); }

// Rounds to nearest, ties to even. A NaN becomes quiet.
DUET_HD inline uint16_t float_to_bf16(float x) {
    const uint32_t b = bits_of(x);
    if ((b & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(b >> 16 | 0x40u);
    return (uint16_t)((b + 0x7fffu + (b >> 16 & 1u)) >> 16);
}

// Returns half of the E8M0 scale 2^(e - 127), because the tables hold doubled values. In GGUF files e = 255 (NaN in the
// OCP paper) stands for 2^128.
DUET_HD inline float e8m0_half_to_float(uint8_t e) {
    return float_of(e < 2 ? 0x00200000u << e : (uint32_t)(e - 1) << 23);
}

// The 16 values of IQ4_NL and IQ4_XS, and the doubled values of FP4 E2M1 (MXFP4).
DUET_HD constexpr int iq4_value(int code) {
    constexpr int8_t value[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
    return value[code];
}
DUET_HD constexpr int fp4_value(int code) {
    constexpr int8_t value[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    return value[code];
}

// ---- blocks -------------------------------------------------------------------------------------------------------

// 32 weights as integers with their scales: value_i = d * sub[i / 16] * q[i] - m * min[i / 16]. A format without a
// minimum has m = 0.
struct block32 {
    int8_t q[32];
    float d, m;
    int sub[2], min[2];
};

// The scales of 16 weights; d and m are exact in f32.
struct block_scale {
    float d, m;
    int sub, min;
};

// Every block type states:
//   kElems           the number of weights in a block
//   kSubScales       the number of sub-scales of 32 weights: 1 or 2
//   kHasMin          whether a minimum is subtracted
//   code(i)          the integer of weight i
//   scale(k)         the scales of weights 16k to 16k + 15
// A block type states these where they apply:
//   kBias, kLargest  code(i) + kBias lies in 0 .. kLargest. Kernels that compute with unsigned codes need both. CPU
//                    kernels take the bias back by shifts, so it is 0 or a power of two.
//   kLevels          the sizes of codes, in formats whose codes are points of a grid or signs
//   kFraction        scale().d is the block's half float times kFraction
//   kPlain           sub is always 1
//   kPowerScale      d is a power of two
//   kWideSubs        sub-scales are larger than a byte (exact.h applies them in f32)
//   eight(k)         codes 8k to 8k + 7 as bytes, in a few operations
// Blocks are packed, because rows of 17 or 18 bytes and memory from callers are not aligned.
#pragma pack(push, 1)

struct float_f32 {
    static constexpr int kElems = 1;
    float bits;
};
struct float_f16 {
    static constexpr int kElems = 1;
    uint16_t bits;
};
struct float_bf16 {
    static constexpr int kElems = 1;
    uint16_t bits;
};
DUET_HD inline float to_float(const float_f32& x) { return x.bits; }
DUET_HD inline float to_float(const float_f16& x) { return half_to_float(x.bits); }
DUET_HD inline float to_float(const float_bf16& x) { return bf16_to_float(x.bits); }

// The nibbles of 32 weights lie in 16 bytes: weight i < 16 in the low half of byte i, weight 16 + i in its high half.
DUET_HD inline int nibble32(const uint8_t* qs, int i) { return qs[i & 15] >> (i & 16 ? 4 : 0) & 15; }

struct block_q4_0 {
    static constexpr int kElems = 32, kSubScales = 1, kBias = 8, kLargest = 15;
    static constexpr bool kHasMin = false;
    uint16_t d;
    uint8_t qs[16];
    DUET_HD int code(int i) const { return nibble32(qs, i) - kBias; }
    DUET_HD block_scale scale(int) const { return {half_to_float(d), 0.0f, 1, 0}; }
};

struct block_q4_1 {
    static constexpr int kElems = 32, kSubScales = 1, kBias = 0, kLargest = 15;
    static constexpr bool kHasMin = true;
    uint16_t d, m;  // value = d * code + m
    uint8_t qs[16];
    DUET_HD int code(int i) const { return nibble32(qs, i); }
    DUET_HD block_scale scale(int) const { return {half_to_float(d), -half_to_float(m), 1, 1}; }
};

struct block_q5_0 {
    static constexpr int kElems = 32, kSubScales = 1, kBias = 16, kLargest = 31;
    static constexpr bool kHasMin = false;
    uint16_t d;
    uint8_t qh[4];  // bit i is the fifth bit of weight i
    uint8_t qs[16];
    DUET_HD int code(int i) const { return (nibble32(qs, i) | (qh[i >> 3] >> (i & 7) & 1) << 4) - kBias; }
    DUET_HD block_scale scale(int) const { return {half_to_float(d), 0.0f, 1, 0}; }
};

struct block_q5_1 {
    static constexpr int kElems = 32, kSubScales = 1, kBias = 0, kLargest = 31;
    static constexpr bool kHasMin = true;
    uint16_t d, m;
    uint8_t qh[4];
    uint8_t qs[16];
    DUET_HD int code(int i) const { return nibble32(qs, i) | (qh[i >> 3] >> (i & 7) & 1) << 4; }
    DUET_HD block_scale scale(int) const { return {half_to_float(d), -half_to_float(m), 1, 1}; }
};

struct block_q8_0 {
    static constexpr int kElems = 32, kSubScales = 1, kBias = 128, kLargest = 255;
    static constexpr bool kHasMin = false;
    uint16_t d;
    int8_t qs[32];
    DUET_HD int code(int i) const { return qs[i]; }
    DUET_HD block_scale scale(int) const { return {half_to_float(d), 0.0f, 1, 0}; }
};

// The two-bit fields of 256 weights: four rows of 32 weights share 32 bytes, and row r takes bits 2r and 2r + 1.
DUET_HD inline int two_bits256(const uint8_t* qs, int i) { return qs[i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3; }

struct block_q2_K {
    static constexpr int kElems = 256, kSubScales = 2, kBias = 0, kLargest = 3;
    static constexpr bool kHasMin = true;
    uint8_t scales[16];  // of 16 weights each: sub-scale in the low half, minimum in the high half
    uint8_t qs[64];
    uint16_t d, dmin;
    DUET_HD int code(int i) const { return two_bits256(qs, i); }
    DUET_HD block_scale scale(int k) const {
        return {half_to_float(d), half_to_float(dmin), scales[k] & 15, scales[k] >> 4};
    }
};

struct block_q3_K {
    static constexpr int kElems = 256, kSubScales = 2, kBias = 4, kLargest = 7;
    static constexpr bool kHasMin = false;
    uint8_t hmask[32];  // bit i / 32 of byte i % 32 is the third bit of weight i
    uint8_t qs[64];
    uint8_t scales[12];  // 16 sub-scales of 6 bits: 4 low bits in bytes 0..7, 2 high bits in bytes 8..11
    uint16_t d;
    DUET_HD int code(int i) const { return (two_bits256(qs, i) | (hmask[i % 32] >> (i / 32) & 1) << 2) - kBias; }
    DUET_HD block_scale scale(int k) const {
        const int low = scales[k & 7] >> (k & 8 ? 4 : 0) & 15, high = scales[8 + k % 4] >> (k / 4 * 2) & 3;
        return {half_to_float(d), 0.0f, (low | high << 4) - 32, 0};
    }
};

// Eight 6-bit sub-scales and eight 6-bit minimums lie in 12 bytes. Sub-scales 0..3 take the low 6 bits of bytes 0..3,
// minimums 0..3 those of bytes 4..7. For 4..7, bytes 8..11 hold the low 4 bits (sub-scale in the low half, minimum in
// the high half), and the top 2 bits of bytes 0..3 (minimums: 4..7) hold the high 2 bits.
DUET_HD inline int k_sub_scale(const uint8_t* scales, int j) {
    return j < 4 ? scales[j] & 63 : (scales[j + 4] & 15) | scales[j - 4] >> 6 << 4;
}
DUET_HD inline int k_minimum(const uint8_t* scales, int j) {
    return j < 4 ? scales[j + 4] & 63 : scales[j + 4] >> 4 | scales[j] >> 6 << 4;
}
// The nibbles of 256 weights: two rows of 32 weights share 32 bytes, and the first row takes the low halves.
DUET_HD inline int nibble256(const uint8_t* qs, int i) { return qs[i / 64 * 32 + i % 32] >> (i & 32 ? 4 : 0) & 15; }

struct block_q4_K {
    static constexpr int kElems = 256, kSubScales = 1, kBias = 0, kLargest = 15;
    static constexpr bool kHasMin = true;
    uint16_t d, dmin;
    uint8_t scales[12];
    uint8_t qs[128];
    DUET_HD int code(int i) const { return nibble256(qs, i); }
    DUET_HD block_scale scale(int k) const {
        return {half_to_float(d), half_to_float(dmin), k_sub_scale(scales, k / 2), k_minimum(scales, k / 2)};
    }
};

struct block_q5_K {
    static constexpr int kElems = 256, kSubScales = 1, kBias = 0, kLargest = 31;
    static constexpr bool kHasMin = true;
    uint16_t d, dmin;
    uint8_t scales[12];
    uint8_t qh[32];  // bit i / 32 of byte i % 32 is the fifth bit of weight i
    uint8_t qs[128];
    DUET_HD int code(int i) const { return nibble256(qs, i) | (qh[i % 32] >> (i / 32) & 1) << 4; }
    DUET_HD block_scale scale(int k) const {
        return {half_to_float(d), half_to_float(dmin), k_sub_scale(scales, k / 2), k_minimum(scales, k / 2)};
    }
};

struct block_q6_K {
    static constexpr int kElems = 256, kSubScales = 2, kBias = 32, kLargest = 63;
    static constexpr bool kHasMin = false;
    uint8_t ql[128];  // of 128 weights: rows 0 and 1 in the low halves of 64 bytes, rows 2 and 3 in the high halves
    uint8_t qh[64];   // the upper two bits, as in two_bits256
    int8_t scales[16];
    uint16_t d;
    DUET_HD int code(int i) const {
        return ((ql[i / 128 * 64 + i % 64] >> (i & 64 ? 4 : 0) & 15) | two_bits256(qh, i) << 4) - kBias;
    }
    DUET_HD block_scale scale(int k) const { return {half_to_float(d), 0.0f, scales[k], 0}; }
};

struct block_iq4_nl {
    static constexpr int kElems = 32, kSubScales = 1, kBias = 128, kLargest = 241;
    static constexpr bool kHasMin = false;
    uint16_t d;
    uint8_t qs[16];
    DUET_HD int code(int i) const { return iq4_value(nibble32(qs, i)); }
    DUET_HD block_scale scale(int) const { return {half_to_float(d), 0.0f, 1, 0}; }
};

struct block_iq4_xs {
    static constexpr int kElems = 256, kSubScales = 1, kBias = 128, kLargest = 241;
    static constexpr bool kHasMin = false;
    uint16_t d, scales_h;  // 8 sub-scales: 4 low bits in scales_l, 2 high bits in scales_h
    uint8_t scales_l[4];
    uint8_t qs[128];
    DUET_HD int code(int i) const { return iq4_value(nibble32(qs + i / 32 * 16, i & 31)); }
    DUET_HD block_scale scale(int k) const {
        const int j = k / 2, low = scales_l[j / 2] >> (j & 1 ? 4 : 0) & 15, high = scales_h >> (2 * j) & 3;
        return {half_to_float(d), 0.0f, (low | high << 4) - 32, 0};
    }
};

struct block_mxfp4 {
    static constexpr int kElems = 32, kSubScales = 1, kBias = 16, kLargest = 28;
    static constexpr bool kHasMin = false, kPowerScale = true;
    uint8_t e;
    uint8_t qs[16];
    DUET_HD int code(int i) const { return fp4_value(nibble32(qs, i)); }
    DUET_HD block_scale scale(int) const { return {e8m0_half_to_float(e), 0.0f, 1, 0}; }
};

// Returns a UE4M3 scale (no sign, 4 bits of exponent, 3 of fraction) in units of 2^-9, the least positive scale. The
// result is at most 15 << 14. In GGUF files 127 (NaN in the OCP paper) stands for 0.
DUET_HD inline int ue4m3_units(uint8_t x) {
    const int e = x >> 3 & 15, fraction = x & 7;
    return x == 127 ? 0 : e == 0 ? fraction : (8 + fraction) << (e - 1);
}

// Eight bytes at once: bits_of8 returns bit `at` of each, less_one8 subtracts 1 from each (bytes below 128).
DUET_HD inline uint64_t bits_of8(uint64_t v, int at) { return v >> at & 0x0101010101010101u; }
DUET_HD inline uint64_t less_one8(uint64_t v) {
    return ((v | 0x8080808080808080u) - 0x0101010101010101u) ^ 0x8080808080808080u;
}
DUET_HD inline uint64_t load8(const uint8_t* p) {
    uint64_t v;
    __builtin_memcpy(&v, p, 8);
    return v;
}

struct block_nvfp4 {
    static constexpr int kElems = 64, kSubScales = 2, kBias = 16, kLargest = 28;
    static constexpr bool kHasMin = false, kWideSubs = true;
    static constexpr float kFraction = 0x1p-10f;  // 2^-9, halved because fp4_value is doubled
    uint8_t d[4];                                 // scales of 16 weights each
    uint8_t qs[32];                               // 16 weights in 8 bytes, the first 8 in the low halves
    DUET_HD int code(int i) const { return fp4_value(qs[i / 16 * 8 + i % 8] >> (i & 8 ? 4 : 0) & 15); }
    DUET_HD uint64_t eight(int k) const {  // numbers 0 .. 4 are the sizes themselves; 5, 6, 7 stand for 1, 2 and 5 more
        const uint64_t v = load8(qs + k / 2 * 8) >> k % 2 * 4, b0 = bits_of8(v, 0), b1 = bits_of8(v, 1),
                       b2 = bits_of8(v, 2);
        const uint64_t size = (v & 0x0707070707070707u) + (b2 & b0) + (b2 & b1) * 2 + (b2 & b1 & b0) * 2;
        return negate8(size, bits_of8(v, 3) & (b0 | b1 | b2));
    }
    DUET_HD block_scale scale(int k) const { return {kFraction, 0.0f, ue4m3_units(d[k]), 0}; }
};

// Ternary: a byte holds five digits of base 3 as the fraction byte / 256. Three times that fraction has the first digit
// as its integer part.
struct block_tq1_0 {
    static constexpr int kElems = 256, kSubScales = 1, kBias = 1, kLargest = 2;
    static constexpr bool kHasMin = false, kPlain = true;
    uint8_t qs[48];  // digit n < 5 of bytes 0..31: weights from 32n on; of bytes 32..47: from 160 + 16n on
    uint8_t qh[4];   // digit n < 4: weights from 240 + 4n on
    uint16_t d;
    DUET_HD int code(int i) const {
        constexpr uint8_t power[5] = {1, 3, 9, 27, 81};
        const int j = i - 160, l = i - 240;
        const int b = l >= 0   ? qh[l % 4] * power[l / 4]
                      : j >= 0 ? qs[32 + j % 16] * power[j / 16]
                               : qs[i % 32] * power[i / 32];
        return ((b & 255) * 3 >> 8) - 1;
    }
    DUET_HD static uint64_t digits(uint64_t v, int n) {
        constexpr uint64_t power[5] = {1, 3, 9, 27, 81}, wide = 0x00ff00ff00ff00ffu;
        const uint64_t even = ((v & wide) * power[n] & wide) * 3 >> 8 & wide,
                       odd = ((v >> 8 & wide) * power[n] & wide) * 3 & ~wide;
        return less_one8(even | odd);
    }
    DUET_HD uint64_t eight(int k) const {
        if (k < 20) return digits(load8(qs + k % 4 * 8), k / 4);
        if (k < 30) return digits(load8(qs + 32 + k % 2 * 8), k / 2 - 10);
        uint32_t v;
        __builtin_memcpy(&v, qh, 4);
        return (uint32_t)digits(v, k * 2 - 60) | digits(v, k * 2 - 59) << 32;
    }
    DUET_HD block_scale scale(int) const { return {half_to_float(d), 0.0f, 1, 0}; }
};

struct block_tq2_0 {
    static constexpr int kElems = 256, kSubScales = 1, kBias = 1, kLargest = 3;
    static constexpr bool kHasMin = false, kPlain = true;
    uint8_t qs[64];
    uint16_t d;
    DUET_HD int code(int i) const { return two_bits256(qs, i) - kBias; }
    DUET_HD uint64_t eight(int k) const {
        return less_one8(load8(qs + k / 16 * 32 + k % 4 * 8) >> k / 4 % 4 * 2 & 0x0303030303030303u);
    }
    DUET_HD block_scale scale(int) const { return {half_to_float(d), 0.0f, 1, 0}; }
};

struct block_q1_0 {
    static constexpr int kElems = 128, kSubScales = 1, kBias = 1, kLargest = 2;
    static constexpr const auto& kLevels = kSignLevels;
    static constexpr bool kHasMin = false, kPlain = true;
    uint16_t d;
    uint8_t qs[16];  // weight i is d where bit i is set, else -d
    DUET_HD int code(int i) const { return (qs[i / 8] >> i % 8 & 1) * 2 - 1; }
    DUET_HD uint64_t eight(int k) const { return with_signs(0x0101010101010101u, qs[k] ^ 255u); }
    DUET_HD block_scale scale(int) const { return {half_to_float(d), 0.0f, 1, 0}; }
};

// A format of grid points (blocks_grid.h). Its codes have the sizes Levels, in rising order, and either sign. Its
// sub-scales are odd numbers, 2s + 1, which multiply the block's scale divided by Parts.
template <class B, int Subs, int Parts, const auto& Levels, int Bias>
struct grid_block {
    static constexpr const auto& kLevels = Levels;
    static constexpr int kElems = 256, kSubScales = Subs, kBias = Bias, kLargest = kBias + Levels[sizeof Levels - 1];
    static constexpr bool kHasMin = false;
    static constexpr float kFraction = 1.0f / Parts;
    DUET_HD int code(int i) const { return (int8_t)(((const B*)this)->eight(i / 8) >> 8 * (i % 8)); }
    DUET_HD static block_scale odd_scale(uint16_t d, int s) {
        return {half_to_float(d) * kFraction, 0.0f, 2 * s + 1, 0};
    }
};
DUET_HD inline int nibble(const uint8_t* p, int i) { return p[i / 2] >> i % 2 * 4 & 15; }

struct sign_word {  // of 32 weights: four groups of seven signs, then a sub-scale of 4 bits
    uint32_t bits;
    DUET_HD uint32_t signs(int i) const { return even_signs(bits >> 7 * i & 127); }
    DUET_HD int sub() const { return (int)(bits >> 28); }
};

struct block_iq2_xxs : grid_block<block_iq2_xxs, 1, 8, kIq2Levels, 64> {
    uint16_t d;
    struct {
        uint8_t point[4];
        sign_word signs;
    } qs[8];
    DUET_HD uint64_t eight(int k) const {
        return with_signs(iq2_xxs_point(qs[k / 4].point[k % 4]), qs[k / 4].signs.signs(k % 4));
    }
    DUET_HD block_scale scale(int k) const { return odd_scale(d, qs[k / 2].signs.sub()); }
};

struct block_iq2_xs : grid_block<block_iq2_xs, 2, 8, kIq2Levels, 64> {
    uint16_t d, qs[32];  // a point of 9 bits and 7 signs
    uint8_t scales[8];
    DUET_HD uint64_t eight(int k) const { return with_signs(iq2_xs_point(qs[k] & 511), even_signs(qs[k] >> 9)); }
    DUET_HD block_scale scale(int k) const { return odd_scale(d, nibble(scales, k)); }
};

struct block_iq2_s : grid_block<block_iq2_s, 2, 8, kIq2Levels, 64> {
    uint16_t d;
    uint8_t qs[32], signs[32], qh[8], scales[8];  // qh: the two high bits of each point
    DUET_HD uint64_t eight(int k) const {
        return with_signs(iq2_s_point(qs[k] | (qh[k / 4] >> k % 4 * 2 & 3) << 8), signs[k]);
    }
    DUET_HD block_scale scale(int k) const { return odd_scale(d, nibble(scales, k)); }
};

struct block_iq3_xxs : grid_block<block_iq3_xxs, 1, 4, kIq3XxsLevels, 64> {
    uint16_t d;
    uint8_t qs[64];  // points of 4 weights
    sign_word signs[8];
    DUET_HD uint64_t eight(int k) const {
        const uint64_t low = iq3_xxs_point(qs[2 * k]), high = iq3_xxs_point(qs[2 * k + 1]);
        return with_signs(low | high << 32, signs[k / 4].signs(k % 4));
    }
    DUET_HD block_scale scale(int k) const { return odd_scale(d, signs[k / 2].sub()); }
};

struct block_iq3_s : grid_block<block_iq3_s, 1, 1, kIq3SLevels, 16> {
    uint16_t d;
    uint8_t qs[64], qh[8], signs[32], scales[4];  // qh: the high bit of each point
    DUET_HD uint64_t point(int i) const { return iq3_s_point(qs[i] | (qh[i / 8] >> i % 8 & 1) << 8); }
    DUET_HD uint64_t eight(int k) const { return with_signs(point(2 * k) | point(2 * k + 1) << 32, signs[k]); }
    DUET_HD block_scale scale(int k) const { return odd_scale(d, nibble(scales, k / 2)); }
};

struct block_iq1_s : grid_block<block_iq1_s, 1, 8, kIq1Sizes, 16> {
    uint16_t d;
    uint8_t qs[32];
    uint16_t qh[8];  // of 32 weights: three high bits of each of four points, a sub-scale of 3 bits, the delta's sign
    DUET_HD uint64_t eight(int k) const {
        const int high = qh[k / 4];
        return with_delta(iq1_point(qs[k] | (high >> k % 4 * 3 & 7) << 8), high >> 15);
    }
    DUET_HD block_scale scale(int k) const { return odd_scale(d, qh[k / 2] >> 12 & 7); }
};

struct block_iq1_m : grid_block<block_iq1_m, 2, 8, kIq1Sizes, 16> {
    uint8_t qs[32], qh[16];  // qh, of 8 weights: three high bits of the point and the delta's sign
    uint16_t scales[4];      // four sub-scales of 3 bits each, and on top 4 bits of the block's scale
    DUET_HD uint64_t eight(int k) const {
        const int high = nibble(qh, k);
        return with_delta(iq1_point(qs[k] | (high & 7) << 8), high >> 3);
    }
    DUET_HD uint16_t d() const {
        return (uint16_t)(scales[0] >> 12 | scales[1] >> 12 << 4 | scales[2] >> 12 << 8 | scales[3] >> 12 << 12);
    }
    DUET_HD block_scale scale(int k) const { return odd_scale(d(), scales[k / 4] >> k % 4 * 3 & 7); }
};

#pragma pack(pop)

#define FLOAT_TYPE(id, NAME, gguf_id, bytes) static_assert(sizeof(float_##id) == bytes);
#define QUANT_TYPE(id, NAME, gguf_id, elems, bytes, max_nmse)                                                          \
    static_assert(sizeof(block_##id) == bytes && block_##id::kElems == elems && elems % 32 == 0);
#include "types.def"

template <class B> constexpr bool kWideSubs = requires { B::kWideSubs; };
template <class B> constexpr bool kPowerScale = requires { B::kPowerScale; };
template <class B> constexpr bool kPlain = requires { B::kPlain; };
template <class B> constexpr float kFraction = [] {
    if constexpr (requires { B::kFraction; }) return B::kFraction;
    else return 1.0f;
}();

// ---- the definition -----------------------------------------------------------------------------------------------

// Value i of a block.
template <class B>
DUET_HD inline float decode(const B& b, int i) {
    if constexpr (B::kElems == 1) {
        return to_float(b);
    } else {
        const block_scale s = b.scale(i / 16);
        const float v = s.d * (float)s.sub * (float)b.code(i);
        return B::kHasMin ? v - s.m * (float)s.min : v;
    }
}

// The weights 32s .. 32s + 31 of a block.
template <class B>
DUET_HD inline void unpack(const B& b, int s, block32* out) {
    if constexpr (requires { b.eight(0); }) {
        for (int k = 0; k < 4; k++) {
            const uint64_t codes = b.eight(4 * s + k);
            __builtin_memcpy(out->q + 8 * k, &codes, 8);
        }
    } else {
        for (int i = 0; i < 32; i++) out->q[i] = (int8_t)b.code(32 * s + i);
    }
    for (int k = 0; k < 2; k++) {
        const block_scale scale = b.scale(2 * s + k);
        out->d = scale.d;
        out->m = scale.m;
        out->sub[k] = scale.sub;
        out->min[k] = scale.min;
    }
}

}  // namespace duet
