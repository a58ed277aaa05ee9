// gpu/state.cuh: recurrent states: convolution windows, gated delta rule, Mamba-2. The tokens of a sequence are walked
// in order; sequences, channels, heads and columns run in parallel. Must not know: ops, drivers.
// Main path: gpu/launch_states.cpp -> gpu/kernels.def -> [gpu/state.cuh] -> quant/exact_ops.h

namespace duet {

// y = act(causal depthwise convolution of x over time) (exact_conv). The window of each sequence is moved on.
// x, y (n_tok, n) f32, y may be x; w (n, n_taps); window (n_taps - 1, n), oldest first
// grid (ceil(n / 128), sequences), block 128, shared (n_taps - 1) * 512 bytes: each thread's own ring
// moves 8 bytes per token and channel, and 8 (n_taps - 1) per sequence and channel; source: own; docs/numerics.md
DUET_DEVICE void short_conv(const conv_gpu_args& a) {
    const int n_old = a.n_taps - 1, tid = thread_id(), threads = block_size(), seq = block_y(),
              c = block_x() * threads + tid;
    if (c >= a.n) return;
    auto ring = shared_array<float>(0, n_old * threads);
    float* window = a.state + (size_t)a.seqs.slot[seq] * a.slot_floats + c;
    for (int j = 0; j < n_old; j++) ring[j * threads + tid] = window[(size_t)j * a.n];
    int oldest = 0;
    auto old = [&](int j) -> float {
        const int at = oldest + j;
        return ring[(at < n_old ? at : at - n_old) * threads + tid];
    };
    for (int t = a.seqs.first[seq]; t < a.seqs.first[seq + 1]; t++) {
        const int row = a.seqs.rows[t];
        const float x = a.x[(size_t)row * a.x_stride + c];
        const float y = exact_conv(a.w + (size_t)c * a.n_taps, a.n_taps, a.bias ? a.bias + c : nullptr,
                                   [&](int j) { return j == n_old ? x : old(j); });
        ring[oldest * threads + tid] = x;
        oldest = oldest + 1 < n_old ? oldest + 1 : 0;
        a.y[(size_t)row * a.y_stride + c] = exact_activate((activation)a.act, y, nullptr);
    }
    for (int j = 0; j < n_old; j++) window[(size_t)j * a.n] = old(j);
}

// y = outputs of the gated delta rule or of Mamba-2, token by token over the states of all heads (exact_state_step)
// x (n_tok, ..) f32: delta rule [q | k: n_groups heads | v: n_heads], Mamba-2 [v: n_heads | k | q: n_groups heads];
//     heads of q and k have n_rows floats, those of v n_cols
// y (n_tok, n_heads * n_cols); state (n_heads, n_rows, n_cols)
// grid (n_heads * ceil(n_cols / cols), sequences), block 4 cols, shared n_rows * row_stride * 4 bytes; any warp width
// moves the state twice, a token's vectors once per block; source: Yang et al. (arXiv 2412.06464), Dao and Gu
// (2405.21060). The sum of a column has four chains. Four lanes hold them, so a segment has 8 columns. Every thread has
// a part of the state that no other thread touches, so no barrier is needed.
template <bool IsDelta>
DUET_DEVICE void state_steps(const state_gpu_args& a) {
    static_assert(kStateParts == 4 && kSegment == 32);
    const int lane = thread_id() % kSegment, part = lane / 8, stride = a.row_stride,
              blocks = (a.n_cols + a.cols - 1) / a.cols;
    const int head = block_x() / blocks, seq = block_y(), at = thread_id() / kSegment * 8 + lane % 8,
              j = block_x() % blocks * a.cols + at;
    const int group = a.tiled_heads ? head % a.n_groups : head / (a.n_heads / a.n_groups);
    const bool inside = j < a.n_cols;
    auto m = shared_array<float>(0, a.n_rows * stride);
    float* state = a.state + (size_t)a.seqs.slot[seq] * a.slot_floats + (size_t)head * a.n_rows * a.n_cols + j;
    for (int i = part; i < a.n_rows; i += kStateParts) m[i * stride + at] = inside ? state[(size_t)i * a.n_cols] : 0.0f;
    auto add_parts = [](float v) {
        v = v + shuffle_xor(v, 8);
        return v + shuffle_xor(v, 16);
    };
    for (int t = a.seqs.first[seq]; t < a.seqs.first[seq + 1]; t++) {
        const int row = a.seqs.rows[t];
        const float* x = a.x + (size_t)row * a.x_stride;
        const float *q = x, *k = x, *v = x;
        if (IsDelta) {
            q += group * a.n_rows;
            k += (a.n_groups + group) * a.n_rows;
            v += 2 * a.n_groups * a.n_rows + head * a.n_cols;
        } else {
            v += head * a.n_cols;
            k += a.n_heads * a.n_cols + group * a.n_rows;
            q += a.n_heads * a.n_cols + (a.n_groups + group) * a.n_rows;
        }
        auto of_head = [&](const heads_args& v) { return row_of(v, row)[column(v, head)]; };
        const float step = exact_step_size(of_head(IsDelta ? a.decay : a.step), a.bias[head]);
        const float decay = exact_decay(a.rate[head], step), beta = IsDelta ? exact_sigmoid(of_head(a.step)) : step;
        const float vj = inside ? v[j] : 0.0f;
        float e = beta * vj, out = 0.0f;
        if (IsDelta) {
            float seen = 0.0f;
            for (int i = part; i < a.n_rows; i += kStateParts)
                seen = __builtin_fmaf(m[i * stride + at] * decay, k[i], seen);
            e = beta * (vj - add_parts(seen));
        }
        for (int i = part; i < a.n_rows; i += kStateParts) {
            const float mi = __builtin_fmaf(k[i], e, m[i * stride + at] * decay);
            m[i * stride + at] = mi;
            out = __builtin_fmaf(mi, q[i], out);
        }
        out = add_parts(out);
        if (inside && part == 0)
            a.y[(size_t)row * a.y_stride + head * a.n_cols + j] =
                IsDelta ? out * a.scale : __builtin_fmaf(a.skip[head], vj, out);
    }
    for (int i = part; i < a.n_rows && inside; i += kStateParts) state[(size_t)i * a.n_cols] = m[i * stride + at];
}

}  // namespace duet
