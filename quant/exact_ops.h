// quant/exact_ops.h: the numeric contract of elementwise ops, of expert routing and of recurrent states, as scalar
// definitions like those of exact.h.
// Must not know: families, devices, threads.
// Main path: cpu/ops.cpp, cpu/experts.cpp, cpu/recurrent.cpp -> [quant/exact_ops.h] -> quant/exact.h
#pragma once
#include "exact.h"

namespace duet {

// ---- elementwise ops ---------------------------------------------------------------------------------------

DUET_HD inline float exact_add(float x, float x2, float scale) {
    return scale == 1.0f ? x + x2 : __builtin_fmaf(scale, x2, x);
}

// cap(scale * x): cap > 0 bends it softly below cap, cap < 0 clips it to +- cap, 0 leaves it.
DUET_HD inline float exact_scale_cap(float x, float scale, float cap) {
    const float v = x * scale;
    if (cap < 0.0f) return v > -cap ? -cap : v < cap ? cap : v;
    return cap == 0.0f ? v : cap * exact_tanh(v / cap);
}

// ---- experts ---------------------------------------------------------------------------------------------

struct route_rule {
    int n_experts, n_used, n_groups, n_groups_used;  // n_groups <= 1: no groups
    bool sigmoid_scores, softmax_after, normalise;
    float scale;
};

constexpr float kMinRouteSum = 6.103515625e-5f;  // 2^-14 keeps normalised weights finite when scores are almost 0

// Maps floats to integers above 0 in the same order. NaN is the lowest, and -0 comes before +0.
DUET_HD inline uint32_t exact_order(float x) {
    const uint32_t b = bits_of(x);
    return x != x ? 1u : b & 0x80000000u ? ~b : b | 0x80000000u;
}

// Computes the scores of all experts from the router logits z.
DUET_HD inline void exact_route_scores(const float* z, const route_rule& r, float* score) {
    const int n = r.n_experts;
    float m = z[0];
    for (int i = 1; i < n; i++) m = z[i] > m ? z[i] : m;
    for (int i = 0; i < n; i++)
        score[i] = r.softmax_after ? z[i] : r.sigmoid_scores ? exact_sigmoid(z[i]) : exact_exp(z[i] - m);
    if (r.softmax_after || r.sigmoid_scores) return;
    const float sum = exact_sum(n, [&](int i) { return score[i]; });
    for (int i = 0; i < n; i++) score[i] = score[i] / sum;
}

// Writes the ids of the n_used experts with the best scores, best first (of equal ones the lower id first), and their
// weights. key has room for n_experts values.
DUET_HD inline void exact_route(const float* score, const float* bias, const route_rule& r, uint32_t* key, int32_t* id,
                                float* weight) {
    const int n = r.n_experts;
    for (int i = 0; i < n; i++) key[i] = exact_order(bias ? score[i] + bias[i] : score[i]);
    if (r.n_groups > 1) {  // a group scores as its two best experts together; experts outside the best groups are out
        const int size = n / r.n_groups;
        uint64_t taken[4] = {0, 0, 0, 0};  // at most 256 groups
        for (int k = 0; k < r.n_groups_used; k++) {
            int best = -1;
            uint32_t best_key = 0;
            for (int g = 0; g < r.n_groups; g++) {
                if (taken[g / 64] >> (g % 64) & 1) continue;
                int first = g * size, second = -1;
                for (int i = g * size + 1; i < (g + 1) * size; i++) {
                    if (key[i] > key[first]) {
                        second = first;
                        first = i;
                    } else if (second < 0 || key[i] > key[second]) second = i;
                }
                const float s1 = bias ? score[first] + bias[first] : score[first];
                const float s2 = second < 0 ? 0.0f : bias ? score[second] + bias[second] : score[second];
                const uint32_t group_key = exact_order(s1 + s2);
                if (group_key > best_key) best_key = group_key, best = g;
            }
            taken[best / 64] |= 1ull << (best % 64);
        }
        for (int i = 0; i < n; i++)
            if (!(taken[i / size / 64] >> (i / size % 64) & 1)) key[i] = 0;
    }
    float sum = 0.0f;
    for (int k = 0; k < r.n_used; k++) {
        int best = 0;
        for (int i = 1; i < n; i++)
            if (key[i] > key[best]) best = i;
        key[best] = 0;
        id[k] = best;
        weight[k] = r.softmax_after ? exact_exp(score[best] - score[id[0]]) : score[best];
        sum = sum + weight[k];
    }
    if (sum < kMinRouteSum) sum = kMinRouteSum;
    for (int k = 0; k < r.n_used; k++) {
        if (r.normalise || r.softmax_after) weight[k] = weight[k] / sum;
        weight[k] = weight[k] * r.scale;
    }
}

// Sums one column of the experts' outputs x (x_stride apart), in the order of choice, and adds it to *before if there
// is one.
DUET_HD inline float exact_expert_sum(const float* x, size_t x_stride, const float* weight, int n_used, float scale,
                                      const float* before) {
    float acc = 0.0f;
    for (int k = 0; k < n_used; k++) acc = __builtin_fmaf(weight[k], x[(size_t)k * x_stride], acc);
    if (scale != 1.0f) acc = acc * scale;
    return before ? *before + acc : acc;
}

// ---- recurrent states ------------------------------------------------------------------------------------

// One output of a causal depthwise convolution. Taps are in the order of time, and x(j) is the input of n_taps - 1 - j
// tokens ago.
template <class X> DUET_HD inline float exact_conv(const float* w, int n_taps, const float* bias, X x) {
    float acc = 0.0f;
    for (int j = 0; j < n_taps; j++) acc = __builtin_fmaf(w[j], x(j), acc);
    return bias ? acc + *bias : acc;
}

// A sum over a state's rows has 4 fma chains c, over the rows c, c + 4, ..; they are added as (0 + 1) + (2 + 3).
constexpr int kStateParts = 4;

// One token for one column of a head's state m (n_rows, n_cols), by the gated delta rule or Mamba-2:
//   m_i = m_i * decay
//   e = beta * (v - sum_i m_i k_i) for the delta rule, beta * v for Mamba-2
//   m_i = fma(k_i, e, m_i)
//   result = scale * sum_i m_i q_i for the delta rule, fma(skip, v, sum_i m_i q_i) for Mamba-2
struct state_rule {
    bool is_delta;
    float scale, skip;
};
DUET_HD inline float exact_state_step(float* m, int n_rows, int n_cols, const float* k, const float* q, float v,
                                      float decay, float beta, const state_rule& rule) {
    float seen[kStateParts] = {0.0f, 0.0f, 0.0f, 0.0f}, out[kStateParts] = {0.0f, 0.0f, 0.0f, 0.0f};
    for (int i = 0; i < n_rows; i++) {
        float& mi = m[(size_t)i * (size_t)n_cols];
        mi = mi * decay;
        seen[i % kStateParts] = __builtin_fmaf(mi, k[i], seen[i % kStateParts]);
    }
    const float e = beta * (rule.is_delta ? v - ((seen[0] + seen[1]) + (seen[2] + seen[3])) : v);
    for (int i = 0; i < n_rows; i++) {
        float& mi = m[(size_t)i * (size_t)n_cols];
        mi = __builtin_fmaf(k[i], e, mi);
        out[i % kStateParts] = __builtin_fmaf(mi, q[i], out[i % kStateParts]);
    }
    const float sum = (out[0] + out[1]) + (out[2] + out[3]);
    return rule.is_delta ? sum * rule.scale : __builtin_fmaf(rule.skip, v, sum);
}

// The decay of one head and token is e^(a * softplus(x + bias)), where a is negative. Mamba-2's beta is the softplus.
DUET_HD inline float exact_step_size(float x, float bias) { return exact_softplus(x + bias); }
DUET_HD inline float exact_decay(float a, float step) { return exact_exp(a * step); }

// ALiBi (Press et al. 2021) adds slope * (key position - query position) to the scores. The query's part is the same
// for all keys, so the softmax cancels it. The key's part is one more element of the dot: slope / scale in the query,
// which this function returns, and the position in the key. The first n = 2^k <= n_heads heads have powers of
// 2^(-max_bias / n) as slopes, the others odd powers of its root. The host computes them.
inline float exact_alibi(int32_t head, int32_t n_heads, float max_bias, float scale) {
    int32_t n = 1;
    while (n * 2 <= n_heads) n *= 2;
    const double power = head < n ? head + 1 : 0.5 * (2 * (head - n) + 1);
    return (float)(exact_pow64(2.0, -(double)max_bias / n * power) / (double)scale);
}

// ALiBi where a token sees both ways: the score less slope times the distance, whose sign does not count. The slope is
// exact_alibi with scale 1.
DUET_HD inline float exact_alibi_both(float score, float slope, int32_t distance) {
    return __builtin_fmaf(-slope, (float)(distance < 0 ? -distance : distance), score);
}

// The attention temperature at a position: queries are multiplied by 1 + t ln(floor(pos / length) + 1). The host
// computes it in f64.
inline float exact_temperature(int32_t pos, float t, float length) {
    return (float)(1.0 + (double)t * exact_log64((double)(int64_t)((double)pos / (double)length) + 1.0));
}

}  // namespace duet
