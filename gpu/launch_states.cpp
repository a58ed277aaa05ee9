// gpu/launch_states.cpp: ops with recurrent state on a GPU. It groups the batch's tokens by sequence, because these ops
// walk each sequence in order. States lie as on the CPU. quant/exact_ops.h defines the results.
// Must not know: families, vendors. Main path: gpu/launch.cpp -> [gpu/launch_states.cpp] -> gpu/state.cuh
#include "context.h"

namespace duet {
namespace {

constexpr int kConvThreads = 128;
constexpr int kMaxStateRows = 1024;  // 8 columns of that many rows take 32 KB of shared memory.

// Words from one row of a state to the next in shared memory, such that 8 columns of 4 rows fall on 32 banks.
constexpr int state_stride(int cols) { return cols == 8 ? 8 : cols + 8; }

float* state_layer_of(const gpu_context& c, const op& o) {
    return (float*)c.states + c.layout.common.state_offset[(size_t)o.index];
}

}  // namespace

size_t sequence_ints(const exec_limits& limits) { return (size_t)limits.max_batch * 3 + 1; }

// Writes first (n + 1), slot (n), rows (n_tok) of seqs_args for the batch's n sequences; returns the number of ints.
int put_sequences(gpu_context& c, int32_t* at, const int32_t* on_device) {
    const exec_batch& b = *c.batch;
    std::vector<int32_t> count((size_t)c.limits.n_seqs, 0);
    c.n_active = 0;
    for (int i = 0; i < b.n_tok; i++) c.n_active += count[(size_t)b.seq[i]]++ == 0;
    const int n = c.n_active;
    int32_t *first = at, *slot = first + n + 1, *rows = slot + n, next = 0;
    for (size_t q = 0, k = 0; q < count.size(); q++) {
        if (count[q] == 0) continue;
        first[k] = next;
        slot[k++] = b.state_slot[q];
        next += count[q];
        count[q] = next - count[q];  // The next row of the sequence goes here.
    }
    first[n] = next;
    for (int i = 0; i < b.n_tok; i++) rows[count[(size_t)b.seq[i]]++] = i;
    c.seqs = {on_device, on_device + n + 1, on_device + 2 * n + 1};
    return 2 * n + 1 + b.n_tok;
}

duet_status check_state_op(const model_graph& g, const op& o, error_text& err) {
    if (o.kind != op_kind::delta_net && o.kind != op_kind::mamba2) return DUET_OK;
    const int64_t n_rows = g.states[(size_t)o.index].n_floats / o.out.width();
    if (n_rows > kMaxStateRows)
        return fail(err, DUET_ERR_UNSUPPORTED, "recurrent state of %d rows: want at most %d on a GPU", (int)n_rows,
                    kMaxStateRows);
    return DUET_OK;
}

duet_status launch_conv(gpu_context& c, const op& o, error_text& err) {
    const int n = o.in.width(), n_taps = (int)c.graph.weights[(size_t)o.w].n_in;
    const auto grid = grid_of(blocks_of(n, kConvThreads), c.n_active, 1, (n_taps - 1) * kConvThreads * 4, kConvThreads);
    return launch(c, kernel_conv, grid,
                  conv_gpu_args{c.at(o.in), c.at(o.out), c.vector_of(o.w), c.vector_of(o.b), state_layer_of(c, o),
                                c.layout.common.state_floats, c.seqs, c.stride(o.in.buffer), c.stride(o.out.buffer), n,
                                n_taps, (int32_t)o.act, 0},
                  err);
}

duet_status launch_state_steps(gpu_context& c, const op& o, error_text& err) {
    const bool is_delta = o.kind == op_kind::delta_net;
    state_gpu_args a{};
    a.x = c.at(o.in), a.y = c.at(o.out);
    a.step = c.heads(o.in2);
    if (is_delta) a.decay = c.heads(o.in3);
    a.rate = c.vector_of(o.w), a.bias = c.vector_of(o.b);
    a.skip = c.vector_of(o.w2);
    a.state = state_layer_of(c, o);
    a.slot_floats = c.layout.common.state_floats;
    a.seqs = c.seqs;
    a.x_stride = c.stride(o.in.buffer), a.y_stride = c.stride(o.out.buffer);
    a.n_heads = o.in2.width(), a.n_groups = o.n_groups;
    a.n_cols = is_delta ? o.in.width() / (2 * o.n_groups + a.n_heads) : o.out.width() / a.n_heads;
    a.n_rows = is_delta ? a.n_cols : (o.in.width() - o.out.width()) / (2 * o.n_groups);
    a.tiled_heads = o.tiled_heads;
    a.scale = o.scale;
    a.cols = a.n_rows * state_stride(32) * 4 <= 40 << 10 ? 32 : 8;
    a.row_stride = state_stride(a.cols);
    const gpu_grid grid =
        grid_of(a.n_heads * blocks_of(a.n_cols, a.cols), c.n_active, 1, a.n_rows * a.row_stride * 4, a.cols * 4);
    return launch(c, is_delta ? kernel_delta_net : kernel_mamba2, grid, a, err);
}

}  // namespace duet
