// cpu/experts.cpp: experts on the CPU: their choice, their matmuls and their weighted sum. The batch's tokens are
// grouped by expert, so that a weight is read once per batch. Results: quant/exact_ops.h.
// Must not know: families, files.
// Main path: cpu/ops.cpp -> [cpu/experts.cpp] -> cpu/kernels.h
#include "context.h"

namespace duet {

void run_route(cpu_context& c, const op& o) {
    const int n = o.in.width();
    const route_rule rule{n,           o.n_used, o.n_groups, o.n_groups_used, o.sigmoid_scores, o.softmax_after,
                          o.normalise, o.scale};
    c.pool.for_each(c.n_rows(o.in), [&](int t, int i) {
        float* score = (float*)c.thread_scratch(t);
        float* out = c.row(o.out, i);
        c.kernels->route_scores(c.row(o.in, i), rule, score);
        exact_route(score, c.vector_of(o.b), rule, (uint32_t*)(score + n), (int32_t*)out, out + o.n_used);
    });
}

namespace {

void group_by_expert(cpu_context& c, const op& o, int n_tok, int n_mats) {
    route_lists& lists = c.routes;
    const int n_used = o.n_used;
    auto matrix_of = [&](int i, int k) { return o.in2.buffer < 0 ? k : ((const int32_t*)c.row(o.in2, i))[k]; };
    lists.start.assign((size_t)n_mats + 1, 0);
    lists.active.clear();
    lists.order.resize((size_t)n_tok * (size_t)n_used);
    for (int i = 0; i < n_tok; i++)
        for (int k = 0; k < n_used; k++) lists.start[(size_t)matrix_of(i, k) + 1]++;
    for (int e = 0; e < n_mats; e++) {
        if (lists.start[(size_t)e + 1] > 0) lists.active.push_back(e);
        lists.start[(size_t)e + 1] += lists.start[(size_t)e];
    }
    lists.next = lists.start;
    for (int i = 0; i < n_tok; i++)
        for (int k = 0; k < n_used; k++) lists.order[(size_t)lists.next[(size_t)matrix_of(i, k)]++] = i * n_used + k;
}

// Puts the matmuls' input vectors into the order of the lists, quantized or as floats.
act_matrix gather_inputs(cpu_context& c, const op& o, int n_tok, bool reuse) {
    const route_lists& lists = c.routes;
    const weight& w = c.weight_of(o.w);
    const int n_pairs = n_tok * o.n_used, n_in = (int)w.n_in;
    const bool is_shared = o.in.n_heads == 1;
    const size_t stride = round_up((size_t)n_in, 64);
    auto input = [&](int j) {
        const int pair = lists.order[(size_t)j];
        return c.head(o.in, pair / o.n_used, is_shared ? 0 : pair % o.n_used);
    };
    if (!is_quantized(w.type)) {
        act_matrix a{};
        a.x = (const float*)c.gathered.data;
        a.x_stride = stride;
        for_rows(c, n_pairs, (size_t)n_in,
                 [&](int j) { memcpy((float*)a.x + (size_t)j * stride, input(j), (size_t)n_in * 4); });
        return a;
    }
    if (!is_shared) {
        const act_matrix a = act_arrays((uint8_t*)c.act.data, c.layout.act_codes, stride, n_pairs);
        for_rows(c, n_pairs, (size_t)n_in * 2, [&](int j) { quantize_row(c, input(j), 0, n_in, a, (size_t)j); });
        return a;
    }
    if (!reuse) quantize_input(c, o, n_tok);
    const act_matrix from = c.acts(n_tok);
    const act_matrix a = act_arrays((uint8_t*)c.gathered.data, (size_t)n_pairs * stride, stride, n_pairs);
    for_rows(c, n_pairs, (size_t)n_in, [&](int j) {
        const act_matrix x = act_from(from, (size_t)(lists.order[(size_t)j] / o.n_used), 1),
                         y = act_from(a, (size_t)j, 1);
        memcpy((void*)y.q, x.q, (size_t)n_in);
        memcpy((void*)y.d, x.d, (size_t)n_in / 32 * 4);
        memcpy((void*)y.t, x.t, (size_t)n_in / 32 * 4);
        memcpy((void*)y.s16, x.s16, (size_t)n_in / 16 * 2);
    });
    return a;
}

}  // namespace

void run_expert_matmul(cpu_context& c, const op& o, bool reuse) {
    const weight& w = c.weight_of(o.w);
    const int n_tok = c.n_rows(o.in), n_out = (int)w.n_out, n_used = o.n_used;
    if (n_tok == 0) return;
    group_by_expert(c, o, n_tok, (int)w.n_mats);
    const route_lists& lists = c.routes;
    const act_matrix a = gather_inputs(c, o, n_tok, reuse);
    const float* bias = c.vector_of(o.b);
    const int n_active = (int)lists.active.size();
    int tiles = n_tok <= kFewMost ? kFewTiles : 4;  // few tokens: longer streams are faster
    while (tiles > 1 && n_active * (n_out / (tiles * kTileRows)) < 8 * c.pool.size()) tiles /= 2;
    const int rows_per_piece = tiles * kTileRows, n_pieces = (n_out + rows_per_piece - 1) / rows_per_piece;
    const uint64_t first_matmul = c.n_matmuls + 1;  // the first expert's; each expert counts as one
    c.n_matmuls += (uint64_t)n_active;
    c.pool.for_each(n_pieces * n_active, [&](int t, int i_piece) {
        if (c.cancelled()) return;
        const int e = lists.active[(size_t)(i_piece / n_pieces)], first = lists.start[(size_t)e],
                  n = lists.start[(size_t)e + 1] - first;
        const int r0 = i_piece % n_pieces * rows_per_piece, n_rows = std::min(rows_per_piece, n_out - r0);
        const size_t row = (size_t)e * (size_t)n_out + (size_t)r0;
        matmul_args m = piece_args(c, t, w, row, n_rows, act_from(a, (size_t)first, n));
        m.y = (float*)(c.thread_scratch(t) + c.layout.matmul_bytes);
        m.y_stride = (size_t)rows_per_piece;
        matmul_ways ways = ways_of_matmul(*c.kernels, w.type, n, false);
        timed_choice* const choice = open_choice(c, choice_kind::experts, w.type, n, &ways);
        run_piece(c, ways, choice, t, first_matmul + (uint64_t)(i_piece / n_pieces), i_piece % n_pieces,
                  (uint64_t)n_rows * (uint64_t)w.n_in * (uint64_t)n, [&](matmul_way way, bool same_input) {
                      m.way = way;
                      m.same_input = same_input;
                      run_matmul(*c.kernels, w.type, m);
                  });
        for (int i = 0; i < n; i++) {
            const int pair = lists.order[(size_t)(first + i)];
            const float* y = m.y + (size_t)i * m.y_stride;
            float* out = c.head(o.out, pair / n_used, pair % n_used) + r0;
            for (int r = 0; r < n_rows; r++)
                out[r] = bias ? y[r] + bias[(size_t)e * (size_t)n_out + (size_t)(r0 + r)] : y[r];
        }
    });
    for (const int e : lists.active) {
        const int n = lists.start[(size_t)e + 1] - lists.start[(size_t)e];
        tell_choice(c, choice_kind::experts, w.type, n, ways_of_matmul(*c.kernels, w.type, n, false));
    }
}

void run_expert_sum(cpu_context& c, const op& o) {
    const float* scales = c.vector_of(o.w);
    for_rows(c, c.n_rows(o.in), (size_t)o.in.width() * 2, [&](int i) {
        const int32_t* id = (const int32_t*)c.row(o.in2, i);
        float weights[kMaxExpertsUsed];
        for (int k = 0; k < o.n_used; k++) {
            weights[k] = ((const float*)id)[o.n_used + k];
            if (scales) weights[k] = weights[k] * scales[id[k]];
        }
        c.kernels->weighted_sum(c.row(o.in, i), (size_t)o.in.stride, weights, o.n_used, o.in.head_dim, o.scale,
                                o.residual, c.row(o.out, i));
    });
}

}  // namespace duet
