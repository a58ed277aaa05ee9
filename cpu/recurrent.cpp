// cpu/recurrent.cpp: recurrent state on the CPU: convolution windows, and the states of delta net and Mamba-2. Tokens
// of one sequence are computed in order; sequences, channels and heads in parallel. Results: quant/exact_ops.h.
// Must not know: families, files.
// Main path: cpu/ops.cpp -> [cpu/recurrent.cpp] -> cpu/kernels.h
#include "context.h"

namespace duet {

void run_conv(cpu_context& c, const op& o) {
    const int n = o.in.width(), n_taps = (int)c.weight_of(o.w).n_in, n_pieces = (n + kConvChannels - 1) / kConvChannels;
    const float *w = c.vector_of(o.w), *b = c.vector_of(o.b);
    c.pool.for_each(n_pieces * (int)c.by_seq.size(), [&](int t, int piece) {
        if (c.cancelled()) return;
        const seq_rows& s = c.by_seq[(size_t)(piece / n_pieces)];
        const int c0 = piece % n_pieces * kConvChannels, n_tok = (int)s.rows.size();
        float** rows = (float**)c.thread_scratch(t);
        for (int i = 0; i < n_tok; i++) {
            rows[i] = c.row(o.in, s.rows[(size_t)i]) + c0;
            rows[n_tok + i] = c.row(o.out, s.rows[(size_t)i]) + c0;
        }
        conv_args a{};
        a.w = w + (size_t)c0 * (size_t)n_taps;
        a.bias = b ? b + c0 : nullptr;
        a.state = c.state(c.batch->state_slot[s.seq], o.index) + c0;
        a.state_stride = (size_t)n;
        a.n_taps = n_taps;
        a.n = std::min(kConvChannels, n - c0);
        a.n_tok = n_tok;
        a.act = (int)o.act;
        a.x = rows;
        a.y = rows + n_tok;
        c.kernels->conv(a);
    });
}

namespace {

// Runs every sequence's tokens over the states of all heads. step(head, row, &token) fills a token's vectors and
// factors.
template <class Step>
void run_states(cpu_context& c, const op& o, int n_heads, int n_state_rows, int n_cols, bool is_delta, Step step) {
    c.pool.for_each(n_heads * (int)c.by_seq.size(), [&](int t, int piece) {
        if (c.cancelled()) return;
        const seq_rows& s = c.by_seq[(size_t)(piece / n_heads)];
        const int head = piece % n_heads;
        state_token* tok = (state_token*)c.thread_scratch(t);
        for (size_t i = 0; i < s.rows.size(); i++) {
            tok[i].y = c.row(o.out, s.rows[i]) + (size_t)head * (size_t)n_cols;
            step(head, s.rows[i], &tok[i]);
        }
        state_args a{};
        a.m = c.state(c.batch->state_slot[s.seq], o.index) + (size_t)head * (size_t)n_state_rows * (size_t)n_cols;
        a.n_rows = n_state_rows;
        a.n_cols = n_cols;
        a.n_tok = (int)s.rows.size();
        a.tok = tok;
        a.rule = {is_delta, o.scale, is_delta ? 0.0f : c.vector_of(o.w2)[head]};
        c.kernels->state_steps(a);
    });
}

}  // namespace

void run_delta_net(cpu_context& c, const op& o) {
    const int n_heads = o.in2.width(), n_groups = o.n_groups, d = o.in.width() / (2 * n_groups + n_heads);
    const float *decay_rate = c.vector_of(o.w), *bias = c.vector_of(o.b);
    run_states(c, o, n_heads, d, d, true, [&](int r, int row, state_token* tok) {
        const int group = o.tiled_heads ? r % n_groups : r / (n_heads / n_groups);
        const float* x = c.row(o.in, row);
        tok->q = x + (size_t)group * (size_t)d;
        tok->k = x + (size_t)(n_groups + group) * (size_t)d;
        tok->v = x + (size_t)(2 * n_groups + r) * (size_t)d;
        tok->beta = exact_sigmoid(*c.column(o.in2, row, r));
        tok->decay = exact_decay(decay_rate[r], exact_step_size(*c.column(o.in3, row, r), bias[r]));
    });
}

void run_mamba2(cpu_context& c, const op& o) {
    const int n_heads = o.in2.width(), n_groups = o.n_groups, inner = o.out.width();
    const int d = inner / n_heads, n_state = (o.in.width() - inner) / (2 * n_groups);
    const float *decay_rate = c.vector_of(o.w), *bias = c.vector_of(o.b);
    run_states(c, o, n_heads, n_state, d, false, [&](int r, int row, state_token* tok) {
        const int group = r / (n_heads / n_groups);
        const float* x = c.row(o.in, row);
        tok->v = x + (size_t)r * (size_t)d;
        tok->k = x + inner + (size_t)group * (size_t)n_state;
        tok->q = x + inner + (size_t)(n_groups + group) * (size_t)n_state;
        tok->beta = exact_step_size(*c.column(o.in2, row, r), bias[r]);
        tok->decay = exact_decay(decay_rate[r], tok->beta);
    });
}

}  // namespace duet
