// quant/exact.h: the numeric contract: the scalar definition of every op's result. Every instruction set, GPU target,
// batch size, thread count and split of the prompt gives the same bits, and tests compare them with memcmp. The reasons
// stand in docs/numerics.md. This code is built with contraction off, and an fma is written where one is meant.
// Must not know: families, devices, threads.
// Main path: cpu/ops.cpp -> [quant/exact.h] -> quant/blocks.h
#pragma once
#include "blocks.h"
#include "exact_math.h"

#include <cstddef>

namespace duet {

// These constants are frozen together: a change of one, or of any result below, raises kNumericsVersion.
constexpr int kNumericsVersion = 2;
constexpr int kBlock = 32;      // activations are quantized, and integer dots are exact, in blocks of 32
constexpr int kGroup = 128;     // a row's dot is the sum, in order, of the results of groups of 128 weights
constexpr int kSumLanes = 256;  // a vector has 256 strided partial sums, whose number is then halved step by step
constexpr int kAttnChunk = 64;  // attention merges chunks of 64 positions, counted from position 0, in order

// ---- activations as int8 -------------------------------------------------------------------------------------------

// One activation vector of n values, as matmuls read it. Float weights use x; quantized weights use the other fields,
// and n is then a multiple of 32.
struct act_row {
    const float* x;      // n values
    const int8_t* q;     // n codes, -127..127
    const float* d;      // n / 32 scales: x ~ d * q
    const float* t;      // n / 32: d * (float)(sum of the block's codes), for formats with a minimum
    const int16_t* s16;  // n / 16 sums of codes
};

// A block's scale is amax / s, where s is 127, 125 or 123: the one whose codes miss the values least. docs/numerics.md
// says what that brings.
constexpr int kScaleTries = 3;
DUET_HD constexpr float largest_code(int k) { return (float)(127 - 2 * k); }  // s
DUET_HD constexpr float miss_weight(int k) {
    return 127.0f * 127.0f / (largest_code(k) * largest_code(k));
}  // (127 / s)^2

// For each s: inverse_k = (127 / amax) * (s / 127), v = x * inverse_k, q = rint(v), ties to even. The miss of s is the
// sum of (v - q)^2 over the block, by halving (i += i + 16, then 8, 4, 2, 1), times (127 / s)^2. The first s with the
// least miss is taken, and d = amax / s. A block whose amax is below 2^-100 is all zero. A block with an inf or NaN has
// d = NaN and codes 0, so that the row's result is NaN on every machine.
DUET_HD inline void exact_quantize_block(const float* x, int8_t* q, float* d, float* t, int16_t* s16) {
    uint32_t amax_bits = 0;
    for (int i = 0; i < kBlock; i++) {
        const uint32_t b = bits_of(x[i]) & 0x7fffffffu;  // compared as integers, so that NaN is the largest
        if (b > amax_bits) amax_bits = b;
    }
    const float amax = float_of(amax_bits);
    const bool bad = amax_bits >= 0x7f800000u, zero = amax_bits < 0x0d800000u;  // 0x0d800000 = 2^-100
    float inverse = 0.0f, least = 0.0f;
    int best = 0;
    for (int k = 0; k < kScaleTries && !bad && !zero; k++) {
        const float inverse_k = 127.0f / amax * (largest_code(k) / 127.0f);
        float square[kBlock];
        for (int i = 0; i < kBlock; i++) {
            const float miss = x[i] * inverse_k - exact_rint(x[i] * inverse_k);
            square[i] = miss * miss;
        }
        for (int h = kBlock / 2; h > 0; h /= 2)
            for (int i = 0; i < h; i++) square[i] = square[i] + square[i + h];
        const float missed = square[0] * miss_weight(k);
        if (k > 0 && !(missed < least)) continue;
        least = missed;
        inverse = inverse_k;
        best = k;
    }
    *d = bad ? float_of(0x7fc00000u) : zero ? 0.0f : amax / largest_code(best);
    int sum[2] = {0, 0};
    for (int i = 0; i < kBlock; i++) {
        const int code = bad ? 0 : (int)exact_rint(x[i] * inverse);
        q[i] = (int8_t)code;
        sum[i / 16] += code;
    }
    s16[0] = (int16_t)sum[0];
    s16[1] = (int16_t)sum[1];
    *t = *d * (float)(sum[0] + sum[1]);
}

// ---- dot products --------------------------------------------------------------------------------------------------

// Adds the dot of one block of 32 weights and one block of activations to the group sum acc. The integer dot is exact:
// its size is below 2^24. A format whose 32 weights share one sub-scale folds it into d, exactly (11 bits times at most
// 8). The others apply the two sub-scales as integers, but NVFP4's (18 bits) as f32, each with an fma of its own.
// Minimums are subtracted afterwards, through the activations' sums.
template <class B>
DUET_HD inline float exact_block_dot(const block32& w, const act_row& a, int i_block, float acc) {
    const int8_t* q = a.q + (size_t)i_block * kBlock;
    const float da = a.d[i_block];
    int dot[2] = {0, 0};
    for (int i = 0; i < kBlock; i++) dot[i / 16] += (int)w.q[i] * (int)q[i];
    if constexpr (kWideSubs<B>) {
        for (int k = 0; k < 2; k++) acc = __builtin_fmaf((w.d * (float)w.sub[k]) * da, (float)dot[k], acc);
    } else if constexpr (B::kSubScales == 2) {
        acc = __builtin_fmaf(w.d * da, (float)(w.sub[0] * dot[0] + w.sub[1] * dot[1]), acc);
        if constexpr (B::kHasMin) {
            const int16_t* s = a.s16 + (size_t)i_block * 2;
            acc = __builtin_fmaf(-(w.m * (float)w.min[0]), da * (float)s[0], acc);
            acc = __builtin_fmaf(-(w.m * (float)w.min[1]), da * (float)s[1], acc);
        }
    } else {
        acc = __builtin_fmaf((w.d * (float)w.sub[0]) * da, (float)(dot[0] + dot[1]), acc);
        if constexpr (B::kHasMin) acc = __builtin_fmaf(-(w.m * (float)w.min[0]), a.t[i_block], acc);
    }
    return acc;
}

// The dot of a row of n quantized weights (n % 32 == 0; whole blocks) and one activation vector.
template <class B>
DUET_HD inline float exact_dot(const B* row, int n, const act_row& a) {
    float total = 0.0f;
    for (int g = 0; g < n; g += kGroup) {
        float acc = 0.0f;
        for (int i = g; i < g + kGroup && i < n; i += kBlock) {
            block32 w;
            unpack(row[i / B::kElems], (i % B::kElems) / kBlock, &w);
            acc = exact_block_dot<B>(w, a, i / kBlock, acc);
        }
        total = total + acc;
    }
    return total;
}

// The dot of a row of n float weights (F32, F16, BF16; any n) and x: fma in element order inside a group.
template <class F>
DUET_HD inline float exact_dot_float(const F* row, int n, const float* x) {
    float total = 0.0f;
    for (int g = 0; g < n; g += kGroup) {
        float acc = 0.0f;
        for (int i = g; i < g + kGroup && i < n; i++) acc = __builtin_fmaf(to_float(row[i]), x[i], acc);
        total = total + acc;
    }
    return total;
}

// ---- vector sums and norms -----------------------------------------------------------------------------------------

// The sum of term(0..n-1). Lane j adds the terms j, j + 256, ... in order from 0; then lane j += lane j + h for h =
// 128, 64, .. 1. A lane without terms is +0. 256 lanes suit vectors of 8 or 16 floats, warps of 32 and 64, and blocks
// of 256 threads alike.
template <class Term>
DUET_HD inline float exact_sum(int n, Term term) {
    float lane[kSumLanes];
    for (int j = 0; j < kSumLanes; j++) {
        lane[j] = 0.0f;
        for (int i = j; i < n; i += kSumLanes) lane[j] = lane[j] + term(i);
    }
    for (int h = kSumLanes / 2; h > 0; h /= 2)
        for (int j = 0; j < h; j++) lane[j] = lane[j] + lane[j + h];
    return lane[0];
}

// 1 / sqrt(mean + eps). A mean that overflowed gives NaN: with 0, the results of broken weights would look like zeros.
DUET_HD inline float exact_norm_scale(float mean, float eps) {
    return 1.0f / __builtin_sqrtf(mean + eps) + (mean - mean);
}

// y = x / sqrt(mean(x^2) + eps) * w; w may be null. y may be x.
DUET_HD inline void exact_rms_norm(const float* x, const float* w, int n, float eps, float* y) {
    const float ss = exact_sum(n, [&](int i) { return x[i] * x[i]; });
    const float scale = exact_norm_scale(ss / (float)n, eps);
    for (int i = 0; i < n; i++) y[i] = w ? (x[i] * scale) * w[i] : x[i] * scale;
}

// y = (x - mean) / sqrt(var + eps) * w + b; w and b may be null. y may be x.
DUET_HD inline void exact_layer_norm(const float* x, const float* w, const float* b, int n, float eps, float* y) {
    const float mean = exact_sum(n, [&](int i) { return x[i]; }) / (float)n;
    const float var = exact_sum(n, [&](int i) { return (x[i] - mean) * (x[i] - mean); }) / (float)n;
    const float scale = exact_norm_scale(var, eps);
    for (int i = 0; i < n; i++) {
        float v = (x[i] - mean) * scale;
        if (w) v = v * w[i];
        if (b) v = v + b[i];
        y[i] = v;
    }
}

// y = x / max(|x|, eps); squares: the sum of squares
DUET_HD inline float exact_l2_scale(float squares, float eps) {
    const float len = __builtin_sqrtf(squares);
    return 1.0f / (len > eps ? len : eps) + (len - len);
}
DUET_HD inline void exact_l2_norm(const float* x, int n, float eps, float* y) {
    const float scale = exact_l2_scale(exact_sum(n, [&](int i) { return x[i] * x[i]; }), eps);
    for (int i = 0; i < n; i++) y[i] = x[i] * scale;
}

// ---- rope ----------------------------------------------------------------------------------------------------------

// Rotates the pair (x, y); cos and sin carry the magnitude factor already.
DUET_HD inline void exact_rotate(float* x, float* y, float cos_a, float sin_a) {
    const float a = *x, b = *y;
    *x = __builtin_fmaf(a, cos_a, -(b * sin_a));
    *y = __builtin_fmaf(a, sin_a, b * cos_a);
}

// Rotates the pairs of one head's first 2 * half values: neighbours, or with neox values that lie `half` apart. The
// function is inlined, so that vector code compiles it for its own instruction set.
[[gnu::always_inline]] inline void exact_rotate_head(float* x, int half, bool neox, const float* cos_a,
                                                     const float* sin_a) {
    if (neox)
        for (int j = 0; j < half; j++) exact_rotate(x + j, x + half + j, cos_a[j], sin_a[j]);
    else
        for (int j = 0; j < half; j++) exact_rotate(x + 2 * j, x + 2 * j + 1, cos_a[j], sin_a[j]);
}

// cos and sin of the angle pos * freq, times magnitude, are computed in f64 and rounded once. The host makes the tables
// of them.
inline void exact_rope_angle(int32_t pos, double freq, double magnitude, float* cos_a, float* sin_a) {
    double s, c;
    exact_sincos64((double)pos * freq, &s, &c);
    *cos_a = (float)(c * magnitude);
    *sin_a = (float)(s * magnitude);
}

// ---- attention -----------------------------------------------------------------------------------------------------

// The state of one query head's softmax over the chunks seen so far.
struct attn_state {
    float max, sum;  // o (the values' floats) is kept beside the state
};

// The score of one position: s = scale * dot, and with a cap, cap * tanh(s / cap). dot is exact_dot_float of the query
// and the decoded key. cap == 0: no cap.
DUET_HD inline float exact_attn_score(float dot, float scale, float cap) {
    const float s = dot * scale;
    return cap == 0.0f ? s : cap * exact_tanh(s / cap);
}

// Attention over one chunk of 64 positions with scores s. Positions [first, n_pos), at least one, are seen; v(i, j) is
// value j < d of position i. Weights are p_i = exp(s_i - max), and 0 where unseen. st->sum is exact_sum over all 64,
// and o[j] is an fma chain over the seen positions in order from 0.
template <class Value>
DUET_HD inline void exact_attn_chunk(const float* score, int first, int n_pos, int d, Value v, attn_state* st,
                                     float* o) {
    float m = score[first];
    for (int i = first + 1; i < n_pos; i++) m = score[i] > m ? score[i] : m;
    float p[kAttnChunk];
    for (int i = 0; i < kAttnChunk; i++) p[i] = i >= first && i < n_pos ? exact_exp(score[i] - m) : 0.0f;
    st->max = m;
    st->sum = exact_sum(kAttnChunk, [&](int i) { return p[i]; });
    for (int j = 0; j < d; j++) {
        float acc = 0.0f;
        for (int i = first; i < n_pos; i++) acc = __builtin_fmaf(p[i], v(i, j), acc);
        o[j] = acc;
    }
}

// Merges the next chunk (st1, o1) into (st, o). The first chunk is taken as it is.
DUET_HD inline void exact_attn_merge(attn_state* st, float* o, const attn_state& st1, const float* o1, int d) {
    const float m = st1.max > st->max ? st1.max : st->max;
    const float a = exact_exp(st->max - m), b = exact_exp(st1.max - m);
    st->sum = __builtin_fmaf(st->sum, a, st1.sum * b);
    for (int j = 0; j < d; j++) o[j] = __builtin_fmaf(o[j], a, o1[j] * b);
    st->max = m;
}

// Adds a sink, one more softmax entry of score z without a value vector. It comes after the last chunk.
DUET_HD inline void exact_attn_sink(attn_state* st, float* o, float z, int d) {
    const float m = z > st->max ? z : st->max, a = exact_exp(st->max - m);
    st->sum = __builtin_fmaf(st->sum, a, exact_exp(z - m));
    for (int j = 0; j < d; j++) o[j] = o[j] * a;
    st->max = m;
}

// out = o * (1 / sum)
DUET_HD inline void exact_attn_finish(const attn_state& st, const float* o, int d, float* out) {
    const float inverse = 1.0f / st.sum;
    for (int j = 0; j < d; j++) out[j] = o[j] * inverse;
}

}  // namespace duet
