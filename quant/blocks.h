// quant/blocks.h: the number formats as they lie in a file: block structs, their values, and their integer view for exact dots.
// unpack() is the definition of a format; every fast path must agree with it. Compiles for host and device.
// Must not know: how blocks are made (quant/quantize.cpp), ops, devices.
// Main path: quant/exact.h -> [quant/blocks.h]
// Layouts: ggml/src/ggml-common.h and ggml/src/ggml-quants.c of llama.cpp, read as a specification.
#pragma once
#include "exact_math.h"

#include <cstddef>
#include <cstdint>

namespace duet {

// ---- small floats -----------------------------------------------------------------------------------------------------------------

// IEEE half to float, every bit pattern (NaN keeps its payload, quiet).
DUET_HD inline float half_to_float(uint16_t h) {
    const uint32_t sign = (uint32_t)(h & 0x8000u) << 16, e = (h >> 10) & 31u, m = h & 0x3ffu;
    if (e == 31) return float_of(sign | 0x7f800000u | (m ? 0x400000u | m << 13 : 0));
    if (e == 0) return float_of(bits_of((float)m * 5.9604644775390625e-08f) | sign);   // m * 2^-24, exact
    return float_of(sign | (e + 112) << 23 | m << 13);
}

// Float to IEEE half, nearest, ties to even; too large becomes inf; NaN keeps the top of its payload, quiet.
DUET_HD inline uint16_t float_to_half(float x) {
    const uint32_t b = bits_of(x), sign = b >> 16 & 0x8000u, a = b & 0x7fffffffu;
    if (a > 0x7f800000u) return (uint16_t)(sign | 0x7e00u | (a >> 13 & 0x3ffu));
    if (a >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u);                  // 65520 and above round to inf
    if (a < 0x38800000u) {                                                     // below 2^-14: a multiple of 2^-24
        const float scaled = float_of(a) * 16777216.0f;                        // exact: at most 1024
        return (uint16_t)(sign | (uint32_t)exact_rint(scaled));
    }
    return (uint16_t)(sign | ((a - 0x38000000u + 0xfffu + (a >> 13 & 1u)) >> 13));
}

struct float_f32 { float x; };
struct float_f16 { uint16_t bits; };
struct float_bf16 { uint16_t bits; };
DUET_HD inline float to_float(float_f32 v) { return v.x; }
DUET_HD inline float to_float(float_f16 v) { return half_to_float(v.bits); }
DUET_HD inline float to_float(float_bf16 v) { return float_of((uint32_t)v.bits << 16); }
DUET_HD inline void from_float(float x, float_f32* v) { v->x = x; }
DUET_HD inline void from_float(float x, float_f16* v) { v->bits = float_to_half(x); }
DUET_HD inline void from_float(float x, float_bf16* v) {
    const uint32_t b = bits_of(x);
    v->bits = (b & 0x7fffffffu) > 0x7f800000u ? (uint16_t)(b >> 16 | 64u) : (uint16_t)((b + 0x7fffu + (b >> 16 & 1u)) >> 16);
}

// Half of the E8M0 scale e: 2^(e - 128); doubled E2M1 codes times it are MXFP4's values.
DUET_HD inline float half_e8m0_to_float(uint8_t e) { return float_of(e < 2 ? 0x00200000u << e : (uint32_t)(e - 1) << 23); }

// ---- blocks -----------------------------------------------------------------------------------------------------------------------

// 32 weights as integers with their scales: value_i = (d * sub[i/16]) * q[i] - m * min[i/16], each product rounded to f32.
// d * sub is exact (11 bits times at most 8). |sum of sub * q * 127 over 32| < 2^24 for every format.
struct block32 {
    int8_t q[32];
    float  d, m;       // m = 0 where the format has no minimum
    int    sub[2];     // integer sub-scale of each 16
    int    min[2];     // integer minimum of each 16
};

// A format: elements in a block; how many different sub-scales 32 weights have; whether it has minimums.
template <int elems, int sub_scales, bool has_min>
struct format {
    static constexpr int  kElems = elems;
    static constexpr int  kSubScales = sub_scales;
    static constexpr bool kHasMin = has_min;
};

struct block_q4_0 : format<32, 1, false> { uint16_t d; uint8_t qs[16]; };
struct block_q4_1 : format<32, 1, true> { uint16_t d, m; uint8_t qs[16]; };
struct block_q5_0 : format<32, 1, false> { uint16_t d; uint8_t qh[4], qs[16]; };
struct block_q5_1 : format<32, 1, true> { uint16_t d, m; uint8_t qh[4], qs[16]; };
struct block_q8_0 : format<32, 1, false> { uint16_t d; int8_t qs[32]; };
struct block_iq4_nl : format<32, 1, false> { uint16_t d; uint8_t qs[16]; };
struct block_mxfp4 : format<32, 1, false> { uint8_t e; uint8_t qs[16]; };
struct block_q2_K : format<256, 2, true> { uint8_t scales[16], qs[64]; uint16_t d, dmin; };
struct block_q3_K : format<256, 2, false> { uint8_t hmask[32], qs[64], scales[12]; uint16_t d; };
struct block_q4_K : format<256, 1, true> { uint16_t d, dmin; uint8_t scales[12], qs[128]; };
struct block_q5_K : format<256, 1, true> { uint16_t d, dmin; uint8_t scales[12], qh[32], qs[128]; };
struct block_q6_K : format<256, 2, false> { uint8_t ql[128], qh[64]; int8_t scales[16]; uint16_t d; };
struct block_iq4_xs : format<256, 1, false> { uint16_t d, scales_h; uint8_t scales_l[4], qs[128]; };

#define QUANT_TYPE(id, NAME, gguf_id, elems, bytes, max_nmse) \
    static_assert(sizeof(block_##id) == bytes && block_##id::kElems == elems, "types.def and blocks.h disagree on " #NAME);
#define FLOAT_TYPE(id, NAME, gguf_id, bytes) static_assert(sizeof(float_##id) == bytes);
#include "types.def"

// 16 values of the non-linear 4-bit formats, and E2M1 doubled.
DUET_HD inline int8_t iq4_value(int code) {
    constexpr int8_t kValues[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
    return kValues[code];
}
DUET_HD inline int8_t e2m1_doubled(int code) {
    constexpr int8_t kValues[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    return kValues[code];
}

// Low nibbles are elements 0..15, high nibbles 16..31.
DUET_HD inline int nibble32(const uint8_t* qs, int i) { return i < 16 ? qs[i] & 15 : qs[i - 16] >> 4; }
DUET_HD inline int bit32(const uint8_t* qh, int i) { return qh[i / 8] >> (i % 8) & 1; }

DUET_HD inline void set_scales(block32* out, float d, int sub0, int sub1, float m = 0.0f, int min0 = 0, int min1 = 0) {
    out->d = d;
    out->m = m;
    out->sub[0] = sub0;
    out->sub[1] = sub1;
    out->min[0] = min0;
    out->min[1] = min1;
}

// Sub-block s (32 weights) of a block.
DUET_HD inline void unpack(const block_q4_0& b, int, block32* out) {
    for (int i = 0; i < 32; i++) out->q[i] = (int8_t)(nibble32(b.qs, i) - 8);
    set_scales(out, half_to_float(b.d), 1, 1);
}
DUET_HD inline void unpack(const block_q4_1& b, int, block32* out) {
    for (int i = 0; i < 32; i++) out->q[i] = (int8_t)nibble32(b.qs, i);
    set_scales(out, half_to_float(b.d), 1, 1, -half_to_float(b.m), 1, 1);
}
DUET_HD inline void unpack(const block_q5_0& b, int, block32* out) {
    for (int i = 0; i < 32; i++) out->q[i] = (int8_t)((nibble32(b.qs, i) | bit32(b.qh, i) << 4) - 16);
    set_scales(out, half_to_float(b.d), 1, 1);
}
DUET_HD inline void unpack(const block_q5_1& b, int, block32* out) {
    for (int i = 0; i < 32; i++) out->q[i] = (int8_t)(nibble32(b.qs, i) | bit32(b.qh, i) << 4);
    set_scales(out, half_to_float(b.d), 1, 1, -half_to_float(b.m), 1, 1);
}
DUET_HD inline void unpack(const block_q8_0& b, int, block32* out) {
    for (int i = 0; i < 32; i++) out->q[i] = b.qs[i];
    set_scales(out, half_to_float(b.d), 1, 1);
}
DUET_HD inline void unpack(const block_iq4_nl& b, int, block32* out) {
    for (int i = 0; i < 32; i++) out->q[i] = iq4_value(nibble32(b.qs, i));
    set_scales(out, half_to_float(b.d), 1, 1);
}
DUET_HD inline void unpack(const block_mxfp4& b, int, block32* out) {
    for (int i = 0; i < 32; i++) out->q[i] = e2m1_doubled(nibble32(b.qs, i));
    set_scales(out, half_e8m0_to_float(b.e), 1, 1);
}

// Q2_K and Q3_K: 128 elements share 32 bytes of 2-bit codes; sub-block s takes bits 2 (s % 4) of the bytes of its half.
DUET_HD inline void unpack(const block_q2_K& b, int s, block32* out) {
    for (int i = 0; i < 32; i++) out->q[i] = (int8_t)(b.qs[s / 4 * 32 + i] >> (s % 4 * 2) & 3);
    const uint8_t *sc = b.scales + s * 2;
    set_scales(out, half_to_float(b.d), sc[0] & 15, sc[1] & 15, half_to_float(b.dmin), sc[0] >> 4, sc[1] >> 4);
}
// 16 sub-scales of 6 bits: low nibbles in bytes 0..7 (twice), high pairs in bytes 8..11.
DUET_HD inline int q3_K_scale(const uint8_t* scales, int k) {
    return ((scales[k % 8] >> (k / 8 * 4) & 15) | (scales[8 + k % 4] >> (k / 4 * 2) & 3) << 4) - 32;
}
DUET_HD inline void unpack(const block_q3_K& b, int s, block32* out) {
    for (int i = 0; i < 32; i++)
        out->q[i] = (int8_t)((b.qs[s / 4 * 32 + i] >> (s % 4 * 2) & 3) - (b.hmask[i] >> s & 1 ? 0 : 4));
    set_scales(out, half_to_float(b.d), q3_K_scale(b.scales, s * 2), q3_K_scale(b.scales, s * 2 + 1));
}
// Q4_K and Q5_K: 8 scales and 8 minimums of 6 bits in 12 bytes.
DUET_HD inline void q4_K_scale(const uint8_t* q, int s, int* scale, int* min) {
    *scale = s < 4 ? q[s] & 63 : (q[s + 4] & 15) | q[s - 4] >> 6 << 4;
    *min = s < 4 ? q[s + 4] & 63 : q[s + 4] >> 4 | q[s] >> 6 << 4;
}
DUET_HD inline void unpack(const block_q4_K& b, int s, block32* out) {
    for (int i = 0; i < 32; i++) out->q[i] = (int8_t)(b.qs[s / 2 * 32 + i] >> (s % 2 * 4) & 15);
    int scale, min;
    q4_K_scale(b.scales, s, &scale, &min);
    set_scales(out, half_to_float(b.d), scale, scale, half_to_float(b.dmin), min, min);
}
DUET_HD inline void unpack(const block_q5_K& b, int s, block32* out) {
    for (int i = 0; i < 32; i++) out->q[i] = (int8_t)((b.qs[s / 2 * 32 + i] >> (s % 2 * 4) & 15) | (b.qh[i] >> s & 1) << 4);
    int scale, min;
    q4_K_scale(b.scales, s, &scale, &min);
    set_scales(out, half_to_float(b.d), scale, scale, half_to_float(b.dmin), min, min);
}
// Q6_K: each half of 128 has 64 bytes of low nibbles (sub-blocks 0, 1 low; 2, 3 high) and 32 bytes of high pairs.
DUET_HD inline void unpack(const block_q6_K& b, int s, block32* out) {
    const int half = s / 4, j = s % 4;
    for (int i = 0; i < 32; i++) {
        const int low = b.ql[half * 64 + j % 2 * 32 + i] >> (j / 2 * 4) & 15, high = b.qh[half * 32 + i] >> (j * 2) & 3;
        out->q[i] = (int8_t)((low | high << 4) - 32);
    }
    set_scales(out, half_to_float(b.d), b.scales[s * 2], b.scales[s * 2 + 1]);
}
DUET_HD inline void unpack(const block_iq4_xs& b, int s, block32* out) {
    for (int i = 0; i < 32; i++) out->q[i] = iq4_value(nibble32(b.qs + s * 16, i));
    const int scale = ((b.scales_l[s / 2] >> (s % 2 * 4) & 15) | (b.scales_h >> (s * 2) & 3) << 4) - 32;
    set_scales(out, half_to_float(b.d), scale, scale);
}

// Value of element i of 32 unpacked ones: the definition of what a block stands for.
DUET_HD inline float block32_value(const block32& b, int i) {
    return (b.d * (float)b.sub[i / 16]) * (float)b.q[i] - b.m * (float)b.min[i / 16];
}

// Value of element i of a block.
template <class B>
DUET_HD inline float decode(const B& b, int i) {
    block32 w;
    unpack(b, i / 32, &w);
    return block32_value(w, i % 32);
}

}  // namespace duet
