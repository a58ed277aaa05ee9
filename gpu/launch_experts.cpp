// gpu/launch_experts.cpp: routes, matmuls by chosen experts, and sums of experts on a GPU. The device groups the
// batch's tokens by matrix, so that the host does not wait and each tile of tokens reads its matrix once.
// quant/exact_ops.h defines the results. Must not know: families, vendors.
// Main path: gpu/launch.cpp -> [gpu/launch_experts.cpp] -> gpu/experts.cuh, gpu/matvec.cuh
#include "context.h"
#include "weights.h"

namespace duet {
namespace {

constexpr int kMaxGpuExperts = 4096;  // An expert takes two words of shared memory.

// An upper bound of the tiles, of at most `rows` tokens of one matrix each. It is below the number of pairs where each
// matrix has numbers of its own (gpu/experts.cuh, expert_lists).
int tile_count(int n_pairs, int n_mats, int rows) { return std::min(n_mats + n_pairs / rows, n_pairs); }

int32_t* list_order(const gpu_context& c, const expert_list& l) {
    return (int32_t*)(c.experts + (size_t)(&l - c.lists) * c.layout.list_bytes);
}
expert_tile* list_tiles(const gpu_context& c, const expert_list& l) {
    return (expert_tile*)(list_order(c, l) + c.layout.list_pairs);
}

duet_status make_list(gpu_context& c, const op& o, int n_tok, int n_mats, int rows, expert_list& l, error_text& err) {
    const float* ids = o.in2.buffer < 0 ? nullptr : c.at(o.in2);
    if (l.rows == rows && l.n_mats == n_mats && l.n_used == o.n_used && l.ids == ids) return DUET_OK;
    l = {ids, n_mats, o.n_used, rows, true};
    const int n_tiles = tile_count(n_tok * o.n_used, n_mats, rows);
    DUET_TRY(copy_words(c, list_tiles(c, l), nullptr, (size_t)n_tiles * sizeof(expert_tile), err));
    return launch(c, kernel_expert_lists, grid_of(blocks_of(n_tok * o.n_used), 1, 1, 1024),
                  lists_args{(const int32_t*)ids, list_order(c, l), list_tiles(c, l), n_tok, o.n_used,
                             ids ? c.stride(o.in2.buffer) : 0, rows, n_tiles < n_tok * o.n_used, 0},
                  err);
}

// Gathers the inputs in the list's order. Launches nothing when the op before has gathered the same inputs.
duet_status gather_inputs(gpu_context& c, size_t i, int n_tok, const expert_list& l, matrix_args& a, error_text& err) {
    const op& o = c.graph.ops[i];
    const bool quantized = is_quantized(c.graph.weights[(size_t)o.w].type), is_shared = o.in.n_heads == 1,
               is_one = n_tok == 1;
    uint8_t* gathered = c.experts + 2 * c.layout.list_bytes;
    const int n_rows = is_one && is_shared ? 1 : n_tok * o.n_used;
    if (is_one && !quantized && !l.has_order) {
        a.x = c.at(o.in);
        a.x_stride = is_shared ? 0 : o.in.stride;
        return DUET_OK;
    }
    rows_args g{c.heads(o.in), l.has_order ? list_order(c, l) : nullptr, {}, (float*)gathered, o.n_used, a.n_in};
    if (quantized)
        g.act = {(int8_t*)gathered, (act_scale*)(gathered + round_up((size_t)n_rows * (size_t)a.n_in, 16)), a.n_in, 0};
    a.act = g.act;
    a.x = g.out;
    a.x_stride = a.n_in;
    if (n_rows == 1) a.act.q_stride = a.x_stride = 0;  // All choices read the one row.
    const op* before = i > 0 && !o.after_border ? &c.graph.ops[i - 1] : nullptr;
    if (before && before->kind == op_kind::expert_matmul && before->in == o.in && before->in2 == o.in2 &&
        before->n_used == o.n_used && is_quantized(c.graph.weights[(size_t)before->w].type) == quantized)
        return DUET_OK;
    return launch(c, kernel_rows, grid_of(n_rows, blocks_of(a.n_in, kRowColumns)), g, err);
}

}  // namespace

void add_expert_layout(const model_graph& g, const exec_limits& limits, gpu_layout* sizes) {
    for (const op& o : g.ops) {
        if (o.kind == op_kind::route || o.kind == op_kind::expert_matmul)
            at_least(sizes->list_pairs, (size_t)limits.max_batch * (size_t)o.n_used);
        if (o.kind != op_kind::expert_matmul) continue;
        const size_t n = (size_t)limits.max_batch * (size_t)o.n_used * (size_t)o.in.head_dim;
        const bool quantized = is_quantized(g.weights[(size_t)o.w].type);
        at_least(sizes->gather_bytes, round_up(quantized ? n + 16 + n / kBlock * sizeof(act_scale) : n * 4, 256));
    }
    sizes->list_bytes = round_up(sizes->list_pairs * (4 + sizeof(expert_tile)), 256);
}

duet_status check_expert_op(const model_graph& g, const exec_limits& limits, const op& o, error_text& err) {
    if (o.kind == op_kind::route && o.in.width() > kMaxGpuExperts)
        return fail(err, DUET_ERR_UNSUPPORTED, "%d experts: want at most %d on a GPU", o.in.width(), kMaxGpuExperts);
    if (o.kind != op_kind::expert_matmul) return DUET_OK;
    const int n_mats = (int)g.weights[(size_t)o.w].n_mats;
    // Tiles of 8 are for up to 16 pairs a matrix, so 3 a matrix lie in the grid's y.
    if ((int64_t)limits.max_batch * o.n_used > INT32_MAX || std::min(n_mats, limits.max_batch * o.n_used) > 65535 / 3)
        return fail(err, DUET_ERR_ARG,
                    "max_batch %d with %d experts of a token: too many for one launch on a GPU; lower max_batch",
                    limits.max_batch, o.n_used);
    return DUET_OK;
}

duet_status launch_route(gpu_context& c, const op& o, error_text& err) {
    const int n = o.in.width(), n_tok = c.n_rows(o.in);
    c.lists[0] = {};
    if (n_tok == 1) c.lists[0] = {c.at(o.out), n, o.n_used, 1, false};  // The choices of one token need no sorting.
    return launch(c, kernel_expert_route, grid_of(n_tok, 1, 1, (kRouteWords + 2 * n) * 4),
                  route_args{c.at(o.in), c.vector_of(o.b), c.at(o.out),
                             n_tok == 1 ? list_tiles(c, c.lists[0]) : nullptr, n, c.stride(o.in.buffer),
                             c.stride(o.out.buffer), o.n_used, o.n_groups, o.n_groups_used, o.sigmoid_scores,
                             o.softmax_after, o.normalise, o.scale},
                  err);
}

duet_status launch_expert_matmul(gpu_context& c, size_t i, error_text& err) {
    const op& o = c.graph.ops[i];
    const weight& w = c.graph.weights[(size_t)o.w];
    const int n_tok = c.n_rows(o.in), n_pairs = n_tok * o.n_used, n_mats = (int)w.n_mats;
    if (n_tok == 0) return DUET_OK;
    const int rows = n_tok == 1 ? 1 : n_pairs > kSmallBatch * n_mats ? kMatmulToks : 8;
    expert_list& l = c.lists[o.in2.buffer < 0];
    DUET_TRY(make_list(c, o, n_tok, n_mats, rows, l, err));
    matrix_args a = matrices_of(c, (int32_t)i, 1, n_pairs, rows == kMatmulToks ? kMatmulRows : kRowTile);
    DUET_TRY(gather_inputs(c, i, n_tok, l, a, err));
    a.experts = {list_tiles(c, l), l.has_order ? list_order(c, l) : nullptr, gpu_weight_bytes(w.type, w.n_in, w.n_out),
                 o.n_used, o.out.stride};
    return launch_tiles(c, w.type, a, rows, tile_count(n_pairs, n_mats, rows), err);
}

duet_status launch_expert_sum(gpu_context& c, const op& o, error_text& err) {
    const expert_sum_args a{c.heads(o.in),          c.at(o.in2), c.vector_of(o.w), c.at(o.out), c.stride(o.in2.buffer),
                            c.stride(o.out.buffer), o.residual,  o.scale};
    return launch(c, kernel_expert_sum, grid_of(blocks_of(o.in.head_dim), c.n_rows(o.in)), a, err);
}

}  // namespace duet
