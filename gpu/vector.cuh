// gpu/vector.cuh: the ops between the matrices: norm, quantization, rope, elementwise ops, rows.
// Must not know: ops, drivers.
// Main path: gpu/launch.cpp -> gpu/kernels.def -> [gpu/vector.cuh] -> quant/exact.h

namespace duet {

// to = from, or zeros
// from, to (n) words; grid (n_blocks), block 256, shared 0; moves 8 bytes per word
// `from` may be pinned memory of the computer, which changes between two plays of a recording, so no cache may answer.
// source: own
DUET_DEVICE void put_words(const words_args& a) {
    const size_t step = (size_t)a.n_blocks * kGpuThreads;
    for (size_t i = (size_t)block_x() * kGpuThreads + thread_id(); i < a.n; i += step)
        a.to[i] = a.from ? ((const volatile uint32_t*)a.from)[i] : 0;
}

// exact_sum over the block: each thread brings its lane sum, and every thread gets the total. `sum` is kSumLanes words
// of shared memory.
template <class Shared>
DUET_DEVICE float block_sum(Shared sum, float lane) {
    const int j = thread_id();
    sum[j] = lane;
    for (int h = kSumLanes / 2; h >= kSegment; h /= 2) {
        sync_block();
        if (j < h) sum[j] = sum[j] + sum[j + h];
    }
    sync_block();
    const float total = segment_sum((float)sum[j % kSegment]);  // Every segment repeats the last five steps.
    sync_block();                                               // From here on the next sum may overwrite.
    return total;
}

// A segment holds 32 values. Returns the code of this lane's value and sets d to their scale (exact_quantize_block).
DUET_DEVICE int segment_code(float x, float* d) {
    const uint32_t amax_bits = segment_max(bits_of(x) & 0x7fffffffu);
    const float amax = float_of(amax_bits);
    const bool bad = amax_bits >= 0x7f800000u, zero = amax_bits < 0x0d800000u;
    const float inverse_0 = bad || zero ? 0.0f : 127.0f / amax, value = bad ? 0.0f : x;
    float least = 0.0f, code = 0.0f;
    int best = 0;
    for (int k = 0; k < kScaleTries; k++) {
        const float scaled = value * (inverse_0 * (largest_code(k) / 127.0f)), nearest = exact_rint(scaled),
                    miss = scaled - nearest;
        const float missed = segment_sum(miss * miss) * miss_weight(k);
        if (k == 0 || missed < least) {
            least = missed;
            code = nearest;
            best = k;
        }
    }
    *d = bad ? float_of(0x7fc00000u) : zero ? 0.0f : amax / largest_code(best);
    return (int)code;
}

// Quantizes the 32 values of a segment (one each) as exact_quantize_block does; lane 0 writes the scales.
DUET_DEVICE void segment_quantize(float x, const act_args& act, int i_row, int i) {
    float d;
    const int code = segment_code(x, &d);
    const size_t at = (size_t)i_row * (size_t)act.q_stride + (size_t)i;
    act.q[at] = (int8_t)code;
    const int sum = segment_sum(code, 16), other = shuffle_xor(sum, 16);
    if (i % kBlock == 0) act.scale[at / kBlock] = {d, d * (float)(sum + other), pack_pair(sum, other), 0};
}

// out = norm(in) per row and head (exact_rms_norm, exact_layer_norm, exact_l2_norm); with act.q its int8 blocks too
// in, out (n_rows, n_heads, head_dim) f32, out may be in; w, b head_dim; the w of each head w_stride apart
// grid (n_heads, n_rows), block 256, shared 1024 bytes; moves 8 to 12 bytes per element
// source: own; order of sums: docs/numerics.md
template <class Shared>
DUET_DEVICE void norm_row(const norm_args& a, int h, int row, Shared sum) {
    const int n = a.in.head_dim, j = thread_id();
    const float* x = a.in.at + (size_t)row * a.in.stride + (size_t)h * a.in.head_stride;
    float* y = a.out.at + (size_t)row * a.out.stride + (size_t)h * a.out.head_stride;
    const float* w = a.w ? a.w + (size_t)h * a.w_stride : nullptr;
    float lane = 0.0f, mean = 0.0f, scale = 0.0f;
    if (a.kind == 1) {
        for (int i = j; i < n; i += kSumLanes) lane = lane + x[i];
        mean = block_sum(sum, lane) / (float)n;
        lane = 0.0f;
        for (int i = j; i < n; i += kSumLanes) lane = lane + (x[i] - mean) * (x[i] - mean);
        scale = exact_norm_scale(block_sum(sum, lane) / (float)n, a.eps);
    } else {
        for (int i = j; i < n; i += kSumLanes) lane = lane + x[i] * x[i];
        const float ss = block_sum(sum, lane);
        if (a.kind == 0) {
            scale = exact_norm_scale(ss / (float)n, a.eps);
        } else {
            const float len = __builtin_sqrtf(ss);
            scale = 1.0f / (len > a.eps ? len : a.eps) + (len - len);
        }
    }
    for (int i = j; i < n; i += kSumLanes) {
        float v = a.kind == 1 ? (x[i] - mean) * scale : x[i] * scale;
        if (w && a.kind != 2) v = v * w[i];
        if (a.b && a.kind == 1) v = v + a.b[i];
        y[i] = v;
        if (a.act.q) segment_quantize(v, a.act, row, i);  // n % 32 == 0, so whole segments are here.
    }
}

DUET_DEVICE void norm(const norm_args& a) { norm_row(a, block_x(), block_y(), shared_array<float>(0, kSumLanes)); }

// out = rows of x, in order or by `order`, as int8 blocks of 32 (exact_quantize_block) or unchanged
// x (n_rows, 1 or n_used heads of n) f32; quantized: n % 32 == 0
// grid (rows, ceil(n / 256)), block 256, shared 0; moves 5.5 or 8 bytes per element
// source: own; codes: docs/numerics.md
DUET_DEVICE void take_rows(const rows_args& a) {
    const int row = block_x(), i = block_y() * kGpuThreads + thread_id(), from = a.order ? a.order[row] : row;
    if (i >= a.x.head_dim) return;
    const float* x = a.x.at + (size_t)(from / a.n_used) * a.x.stride +
                     (a.x.n_heads == 1 ? 0 : (size_t)(from % a.n_used) * a.x.head_stride);
    if (a.act.q) segment_quantize(x[i], a.act, row, i);
    else a.out[(size_t)row * a.out_stride + i] = x[i];
}

// Rotates pairs of x in place (exact_rotate).
// x (n_tok, n_heads, head_dim) f32; angles (n_tok, 2, n_freq)
// grid (ceil(n_heads * half / 256), n_tok), block 256, shared 0; moves 8 bytes per element
// source: own; Su et al. (arXiv 2104.09864)
DUET_DEVICE void rope(const rope_args& a) {
    const int i = block_x() * kGpuThreads + thread_id(), h = i / a.half, j = i % a.half;
    if (h >= a.x.n_heads) return;
    float* x = a.x.at + (size_t)block_y() * a.x.stride + (size_t)h * a.x.head_stride;
    const float* angle = a.angles + (size_t)block_y() * 2 * a.n_freq + j;
    const int p = a.neox ? j : 2 * j, q = a.neox ? j + a.half : 2 * j + 1;
    exact_rotate(x + p, x + q, angle[0], angle[a.n_freq]);
}

DUET_DEVICE float* column(const heads_args& v, int row, int j) {
    return v.at + (size_t)row * v.stride + (size_t)(j / v.head_dim) * v.head_stride + j % v.head_dim;
}

// y = act(x) * x2; y = x + scale * x2; y = x * act(first column of x2); y = cap(scale * x): as cpu/ops.cpp elementwise
// x, x2, y (n_rows, n) f32
// grid (ceil(n / 256), n_rows), block 256, shared 0; moves 8 or 12 bytes per element
// source: own
DUET_DEVICE void elementwise(const elementwise_args& a) {
    const int i = block_x() * kGpuThreads + thread_id(), row = block_y();
    if (i >= a.n) return;
    const float x = *column(a.x, row, i);
    const float* x2 = a.x2.at ? column(a.x2, row, a.mode == kElementwiseMultiply ? 0 : i) : nullptr;
    float y;
    if (a.mode == kElementwiseActivate) {
        y = exact_activate((activation)a.act, x, x2);
    } else if (a.mode == kElementwiseAdd) {
        y = a.scale == 1.0f ? x + *x2 : __builtin_fmaf(a.scale, *x2, x);
    } else if (a.mode == kElementwiseMultiply) {
        y = x * exact_activate((activation)a.act, *x2, nullptr);
    } else {
        const float v = x * a.scale;
        if (a.cap < 0.0f) y = v > -a.cap ? -a.cap : v < a.cap ? a.cap : v;
        else y = a.cap == 0.0f ? v : a.cap * exact_tanh(v / a.cap);
    }
    *column(a.y, row, i) = y;
}

// out[r] = lowest index of the largest value of row r; -1: a value is NaN or +inf, or all are -inf
// x (n_rows, n) f32
// grid (n_rows), block 256, shared 2048 bytes; moves 4 bytes per element
// source: own
DUET_DEVICE void argmax(const argmax_args& a) {
    auto best = shared_array<float>(0, kSumLanes);
    auto index = shared_array<int>(kSumLanes * 4, kSumLanes);
    const float* x = a.x + (size_t)block_x() * a.stride;
    const float infinity = float_of(0x7f800000u);
    constexpr int kNone = 0x7fffffff;
    float v = -infinity;
    int at = kNone;
    for (int i = thread_id(); i < a.n; i += kSumLanes) {
        const float next = x[i];
        if (!(next < infinity)) {
            v = infinity;
            at = -1;  // Nothing is larger, so -1 stays.
        } else if (next > v) {
            v = next;
            at = i;
        }
    }
    best[thread_id()] = v;
    index[thread_id()] = at;
    for (int h = kSumLanes / 2; h > 0; h /= 2) {
        sync_block();
        if (thread_id() >= h) continue;
        const float other = best[thread_id() + h];
        const int other_at = index[thread_id() + h];
        if (other > v || (other == v && other_at < at)) {
            v = other;
            at = other_at;
            best[thread_id()] = v;
            index[thread_id()] = at;
        }
    }
    if (thread_id() == 0) a.out[block_x()] = at == kNone ? -1 : at;
}

}  // namespace duet
