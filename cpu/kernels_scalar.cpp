// cpu/kernels_scalar.cpp: the CPU kernels as the contract states them, one scalar step after another. They are the
// oracle of all other kernels, and run where a machine or a format has nothing faster.
// Main path: cpu/ops.cpp -> cpu/kernels.h -> [cpu/kernels_scalar.cpp] -> quant/exact.h
#include "kernels.h"
#include "../quant/activate.h"

namespace duet {
namespace {

template <class B>
void matmul_quantized(const matmul_args& m) {
    for (int i = 0; i < m.a.n_tok; i++) {
        const size_t at = (size_t)i * m.a.q_stride;
        const act_row a{nullptr, m.a.q + at, m.a.d + at / 32, m.a.t + at / 32, m.a.s16 + at / 16};
        for (int r = 0; r < m.n_rows; r++)
            m.y[(size_t)i * m.y_stride + (size_t)r] = exact_dot((const B*)(m.w + (size_t)r * m.row_bytes), m.n_in, a);
    }
}

template <class F>
void matmul_float(const matmul_args& m) {
    for (int i = 0; i < m.a.n_tok; i++)
        for (int r = 0; r < m.n_rows; r++)
            m.y[(size_t)i * m.y_stride + (size_t)r] =
                exact_dot_float((const F*)(m.w + (size_t)r * m.row_bytes), m.n_in, m.a.x + (size_t)i * m.a.x_stride);
}

void quantize(const float* x, int n, int8_t* q, float* d, float* t, int16_t* s) {
    for (int b = 0; b < n / kBlock; b++) exact_quantize_block(x + b * kBlock, q + b * kBlock, d + b, t + b, s + b * 2);
}

void activate(int act, const float* x, const float* x2, int n, float* y) {
    for (int i = 0; i < n; i++) y[i] = exact_activate((activation)act, x[i], x2 ? &x2[i] : nullptr);
}

void attn_chunk(const attn_chunk_args& a) {
    const auto cached = [&](const void* at, size_t i) {
        return a.is_half ? half_to_float(((const uint16_t*)at)[i]) : ((const float*)at)[i];
    };
    float* score = a.scratch;
    float* o = a.scratch + kAttnChunk;
    for (int r = 0; r < a.n_rows; r++) {
        if (a.n_pos[r] <= a.first[r]) continue;
        const float* q = a.q + (size_t)r * a.q_stride;
        for (int i = a.first[r]; i < a.n_pos[r]; i++) {
            float total = 0.0f;
            for (int g = 0; g < a.k_dim; g += kGroup) {
                float acc = 0.0f;
                for (int j = g; j < g + kGroup && j < a.k_dim; j++)
                    acc = __builtin_fmaf(cached(a.k, (size_t)j * kAttnChunk + (size_t)i), q[j], acc);
                total = total + acc;
            }
            score[i] = exact_attn_score(total, a.scale, a.cap);
            if (a.slope) score[i] = exact_alibi_both(score[i], a.slope[r], a.at[r] - i);
        }
        attn_state st;
        const bool is_first = a.state[r].sum == 0.0f;
        float* ro = a.o + (size_t)r * a.o_stride;
        exact_attn_chunk(
            score, a.first[r], a.n_pos[r], a.v_dim,
            [&](int i, int j) { return cached(a.v, (size_t)i * (size_t)a.v_dim + (size_t)j); }, &st, is_first ? ro : o);
        if (is_first) a.state[r] = st;
        else exact_attn_merge(&a.state[r], ro, st, o, a.v_dim);
    }
}

void attn_merge(const attn_merge_args& a) {
    for (int i = 0; i < a.n; i++) {
        const attn_state& st = a.chunk_state[(size_t)i * a.state_step];
        const float* o = a.chunk_o + (size_t)i * a.o_step;
        if (a.state->sum != 0.0f) {
            exact_attn_merge(a.state, a.o, st, o, a.v_dim);
            continue;
        }
        *a.state = st;
        for (int j = 0; j < a.v_dim; j++) a.o[j] = o[j];
    }
}

void weighted_sum(const float* x, size_t x_stride, const float* weight, int n_used, int n, float scale, bool residual,
                  float* y) {
    for (int j = 0; j < n; j++)
        y[j] = exact_expert_sum(x + j, x_stride, weight, n_used, scale, residual ? y + j : nullptr);
}

void conv(const conv_args& a) {
    for (int t = 0; t < a.n_tok; t++) {
        for (int c = 0; c < a.n; c++) {
            float* s = a.state + c;
            const float x = a.x[t][c];
            const float y = exact_conv(a.w + (size_t)c * (size_t)a.n_taps, a.n_taps, a.bias ? a.bias + c : nullptr,
                                       [&](int j) { return j < a.n_taps - 1 ? s[(size_t)j * a.state_stride] : x; });
            for (int j = 0; j + 1 < a.n_taps; j++)
                s[(size_t)j * a.state_stride] = j + 2 < a.n_taps ? s[(size_t)(j + 1) * a.state_stride] : x;
            a.y[t][c] = exact_activate((activation)a.act, y, nullptr);
        }
    }
}

void state_steps(const state_args& a) {
    for (int t = 0; t < a.n_tok; t++) {
        const state_token& s = a.tok[t];
        for (int j = 0; j < a.n_cols; j++)
            s.y[j] = exact_state_step(a.m + j, a.n_rows, a.n_cols, s.k, s.q, s.v[j], s.decay, s.beta, a.rule);
    }
}

void half_to_float_row(const uint16_t* x, size_t n, float* y) {
    for (size_t i = 0; i < n; i++) y[i] = half_to_float(x[i]);
}

constexpr cpu_kernels make_scalar() {
    cpu_kernels k{};
    k.name = "scalar";
#define FLOAT_TYPE(id, NAME, gguf_id, bytes)                  k.formats[gguf_id].run = matmul_float<float_##id>;
#define QUANT_TYPE(id, NAME, gguf_id, elems, bytes, max_nmse) k.formats[gguf_id].run = matmul_quantized<block_##id>;
#include "../quant/types.def"
    k.quantize = quantize;
    k.rms_norm = exact_rms_norm;
    k.activate = activate;
    k.rotate = exact_rotate_head;
    k.attn_chunk = attn_chunk;
    k.attn_merge = attn_merge;
    k.route_scores = exact_route_scores;
    k.weighted_sum = weighted_sum;
    k.conv = conv;
    k.state_steps = state_steps;
    k.half_to_float = half_to_float_row;
    k.codes_to_float = cache_to_float;
    return k;
}

}  // namespace

constinit const cpu_kernels kScalarKernels = make_scalar();

}  // namespace duet
