// gpu/vector.cuh: the ops between the matrices: norm, quantization, rope, elementwise ops, rows.
// Must not know: ops, drivers. Main path: gpu/launch.cpp -> gpu/kernels.def -> [gpu/vector.cuh] -> quant/exact.h

namespace duet {

// to = from, or zeros; from, to (n) words; grid (n_blocks), block 256, shared 0; moves 8 bytes per word; source: own
// `from` may be pinned memory of the computer, which changes between two plays of a recording, so no cache may answer.
DUET_DEVICE void put_words(const words_args& a, const block_place& here = {}) {
    const size_t step = (size_t)a.n_blocks * kGpuThreads;
    for (size_t i = (size_t)here.x * kGpuThreads + thread_id(); i < a.n; i += step)
        a.to[i] = a.from ? ((const volatile uint32_t*)a.from)[i] : 0;
}

// Brings the i-th kFetchBytes of what comes next to the second cache.
DUET_DEVICE void fetch_ahead(const ahead_args& a, int i) {
    const uint32_t at = (uint32_t)i * kFetchBytes + (uint32_t)thread_id() * kFetchLine;
    if (at < a.n_bytes) fetch(a.at + at);
}

// exact_sum over the block: each thread brings its lane sum and gets the total. sum: kSumLanes words of shared memory.
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

// The codes of 32 values (exact_quantize_block): V of them, the sums of both halves, and the scale.
template <int V>
struct lanes_codes {
    int8_t code[V];
    int sums;  // of the lower half + 65536 * of the upper one
    float d;
};

// V values of each of 32 / V lanes are one block: value k of lane l is number l + k * 32 / V. The first steps of the
// halving trees are between values of one lane. exact_rint's sum with kMagic has the code in its low bits. The sums of
// all tries are made beside their misses: no lane waits.
template <int V>
DUET_DEVICE lanes_codes<V> lanes_code(const float (&values)[V]) {
    constexpr float kMagic = 12582912.0f;  // its bits: 0x4b400000
    uint32_t amax_bits = 0;
    for (int k = 0; k < V; k++) {
        const uint32_t size = bits_of(values[k]) & 0x7fffffffu;
        amax_bits = size > amax_bits ? size : amax_bits;
    }
    amax_bits = segment_max(amax_bits, kBlock / V);
    const float amax = float_of(amax_bits);
    const bool bad = amax_bits >= 0x7f800000u, zero = amax_bits < 0x0d800000u;
    const float inverse_0 = bad || zero ? 0.0f : 127.0f / amax;
    float x[V], least = 0.0f, inverse = inverse_0, largest = largest_code(0);
    uint32_t sums = 0;  // in one word, and 16 times the bits of kMagic
    for (int k = 0; k < V; k++) x[k] = bad ? 0.0f : values[k];
    for (int t = 0; t < kScaleTries; t++) {
        float miss[V];
        uint32_t both = 0;
        const float inverse_t = inverse_0 * (largest_code(t) / 127.0f);
        for (int k = 0; k < V; k++) {
            const float scaled = x[k] * inverse_t, raised = scaled + kMagic, rest = scaled - (raised - kMagic);
            miss[k] = rest * rest;
            both += bits_of(raised) << (thread_id() % (kBlock / V) + k * (kBlock / V) < kBlock / 2 ? 0 : 16);
        }
        for (int h = V / 2; h > 0; h /= 2)
            for (int k = 0; k < h; k++) miss[k] = miss[k] + miss[k + h];
        const float missed = segment_sum(miss[0], kBlock / V) * miss_weight(t);
        const bool is_less = t == 0 || missed < least;
        both = segment_sum(both, kBlock / V);
        sums = is_less ? both : sums;
        least = is_less ? missed : least;
        inverse = is_less ? inverse_t : inverse;
        largest = is_less ? largest_code(t) : largest;
    }
    lanes_codes<V> c;
    for (int k = 0; k < V; k++) c.code[k] = (int8_t)bits_of(x[k] * inverse + kMagic);
    c.sums = (int)(sums - 0xb4000000u);
    c.d = bad ? float_of(0x7fc00000u) : zero ? 0.0f : amax / largest;
    return c;
}

// Quantizes such blocks. i: the column of this lane's first value. A block that is not there takes part in exchanges.
template <int V>
DUET_DEVICE void lanes_quantize(const float (&x)[V], const act_args& act, int i_row, int i, bool is_there = true) {
    const lanes_codes<V> c = lanes_code(x);
    if (!is_there) return;
    const size_t at = (size_t)i_row * (size_t)act.q_stride + (size_t)i;
    for (int k = 0; k < V; k++) act.q[at + (size_t)(k * (kBlock / V))] = c.code[k];
    const int low = (int16_t)c.sums, high = (c.sums - low) >> 16;
    if (i % kBlock == 0) act.scale[at / kBlock] = {c.d, c.d * (float)(low + high), pack_pair(low, high), 0};
}
DUET_DEVICE void segment_quantize(const float& x, const act_args& act, int i_row, int i) {
    lanes_quantize((const float(&)[1])x, act, i_row, i);
}

constexpr int kNormLoads = 16;  // values of a thread on their way at once, for the sums

// Adds to `lane` the next of its values, or of the squares of what they are above the mean. Whole: there are so many.
template <bool Whole> DUET_DEVICE float norm_lane(const float* x, int at, int n, bool is_mean, float mean, float lane) {
    float v[kNormLoads];
    const int i = at + thread_id();
    for (int k = 0; k < kNormLoads; k++) v[k] = x[Whole || i + k * kSumLanes < n ? i + k * kSumLanes : n - 1];
    loads_before();
    for (int k = 0; k < kNormLoads; k++) {
        const float u = v[k] - mean, next = lane + (is_mean ? v[k] : u * u);
        lane = Whole || i + k * kSumLanes < n ? next : lane;
    }
    return lane;
}

// out = norm(in) per row and head (exact_rms_norm, exact_layer_norm, exact_l2_norm); with act.q its int8 blocks too
// in, out (n_rows, n_heads, head_dim) f32, out may be in; w, b head_dim; the w of each head w_stride apart
// grid (n_heads, n_rows, slices; 1 where out is in), block 256, shared 1024 bytes; moves 12 to 16 bytes per element
// All blocks of a row find its sums, and each makes its slices of kRowColumns. What counts is how often a block
// waits: no branch stands between the loads, and of the Blocks quarters of blocks of 32 that a thread makes at once
// none needs an exchange of another. source: own; order of sums: docs/numerics.md
template <int Blocks>
DUET_DEVICE void norm(const norm_args& a, const block_place& here = {}) {
    constexpr int kStep = kSumLanes * 4 * Blocks;
    const int h = here.x, row = here.y, slice = here.z;
    const int n = a.in.head_dim, j = thread_id(), n_whole = n / kBlock * kBlock;
    const float* x = a.in.at + (size_t)row * a.in.stride + (size_t)h * a.in.head_stride;
    float* y = a.out.at + (size_t)row * a.out.stride + (size_t)h * a.out.head_stride;
    const float* w = a.w && a.kind != 2 ? a.w + (size_t)h * a.w_stride : nullptr;
    float mean = 0.0f, scale = 0.0f;
    for (bool is_mean = a.kind == 1;; is_mean = false) {
        float lane = 0.0f;
        int i = 0;
        for (; i + kSumLanes * kNormLoads <= n; i += kSumLanes * kNormLoads)
            lane = norm_lane<true>(x, i, n, is_mean, mean, lane);
        if (i < n) lane = norm_lane<false>(x, i, n, is_mean, mean, lane);
        const float total = block_sum(shared_array<float>(0, kSumLanes), lane);
        if (!is_mean) {
            scale = a.kind == 2 ? exact_l2_scale(total, a.eps) : exact_norm_scale(total / (float)n, a.eps);
            break;
        }
        mean = total / (float)n;
    }
    const float* factors = w ? w : x;  // loaded anyway, so that there is no branch
    auto result = [&](float v, float factor, int i) {
        float u = (v - mean) * scale;
        u = w ? u * factor : u;
        return a.b ? u + a.b[i] : u;
    };
    for (int first = slice * kStep; first < n_whole; first += a.n_slices * kStep) {
        float v[Blocks][4], factor[Blocks][4];
        auto column = [&](int block) { return first + (block * kSumLanes + j) / 8 * kBlock + j % 8; };
        for (int k = 0; k < Blocks; k++) {
            const int i = column(k) < n_whole ? column(k) : n_whole - kBlock;
            for (int e = 0; e < 4; e++) v[k][e] = x[i + e * 8], factor[k][e] = factors[i + e * 8];
        }
        sync_block();  // Where out is in, columns are read by many threads before they are written.
        for (int k = 0; k < Blocks; k++) {
            const bool is_there = column(k) < n_whole;
            for (int e = 0; e < 4; e++) v[k][e] = result(v[k][e], factor[k][e], (is_there ? column(k) : 0) + e * 8);
            for (int e = 0; e < 4 && is_there; e++) y[column(k) + e * 8] = v[k][e];
        }
        if (!a.act.q) continue;
        for (int k = 0; k < Blocks; k++) lanes_quantize(v[k], a.act, row, column(k), column(k) < n_whole);
    }
    if (const int i = n_whole + j; i < n && slice == 0) y[i] = result(x[i], factors[i], i);
}

// out = rows of x, in order or by `order`, as int8 blocks of 32 (exact_quantize_block) or unchanged
// x (n_rows, 1 or n_used heads of n) f32; quantized: n % 32 == 0
// grid (rows, ceil(n / kRowColumns)), block 256, shared 0; moves 5.5 or 8 bytes per element; source: own
DUET_DEVICE void take_rows(const rows_args& a, const block_place& here = {}) {
    const int row = here.x, from = a.order ? a.order[row] : row, tok = a.n_used == 1 ? from : from / a.n_used;
    const int n = a.x.head_dim, i = here.y * kRowColumns + thread_id() / 8 * kBlock + thread_id() % 8;
    const float* x =
        a.x.at + (size_t)tok * a.x.stride + (a.x.n_heads == 1 ? 0 : (size_t)(from - tok * a.n_used) * a.x.head_stride);
    float v[4];
    for (int k = 0; k < 4; k++) v[k] = x[i + k * 8 < n ? i + k * 8 : n - 1];
    if (a.act.q) lanes_quantize(v, a.act, row, i, i < n);
    for (int k = 0; k < 4 && !a.act.q; k++)
        if (i + k * 8 < n) a.out[(size_t)row * a.out_stride + i + k * 8] = v[k];
}

DUET_DEVICE float* row_of(const heads_args& v, int row) { return kept(v.at + (size_t)row * v.stride); }
DUET_DEVICE int column(const heads_args& v, int j) {  // A division is 20 instructions.
    return v.n_heads == 1 ? j : j / v.head_dim * v.head_stride + j % v.head_dim;
}

// Rotates pairs of x in place (exact_rotate): x (n_tok, n_heads, head_dim) f32; angles (n_tok, 2, n_freq)
// grid (ceil(ceil(n_heads / kHeadsAtOnce) * half / 256), n_tok), block 256, shared 0; moves 8 bytes per element
// source: own; Su et al. (arXiv 2104.09864)
DUET_DEVICE void rope(const rope_args& a, const block_place& here = {}) {
    const int i = here.x * kGpuThreads + thread_id(), group = i / a.half, j = i - group * a.half;
    float* x = row_of(a.x, here.y) + group * kHeadsAtOnce * a.x.head_stride;
    const float* angle = a.angles + (size_t)here.y * 2 * a.n_freq + j;
    const int p = a.neox ? j : 2 * j, q = a.neox ? j + a.half : 2 * j + 1, n = a.x.n_heads - group * kHeadsAtOnce;
    for (int k = 0; k < kHeadsAtOnce && k < n; k++, x += a.x.head_stride)
        exact_rotate(x + p, x + q, angle[0], angle[a.n_freq]);
}

// y = act(x) * x2; y = x + scale * x2; y = cap(scale * x); x, x2, y (n_rows, n) f32; with codes.q y's int8 blocks too
// grid (ceil(n / kRowColumns), n_rows), block 256, shared 0; moves 8 to 13 bytes per element; source: own
DUET_DEVICE void elementwise(const elementwise_args& a, const block_place& here = {}) {
    const int first = here.x * kRowColumns + thread_id() / 8 * kBlock + thread_id() % 8, row = here.y;
    // A factor that is not there is what changes nothing: an address that may be null would keep all of them in memory.
    const float none = (activation)a.act == activation::swiglu_oai ? 0.0f : 1.0f;
    float *const from = row_of(a.x, row), *const from2 = row_of(a.x2, row), *const to = row_of(a.y, row);
    float v[4] = {};
    DUET_ROLLED
    for (int i = first; i < first + kBlock; i += 8) {  // Four copies of the code would make a walk spill.
        for (int k = 0; k < 3; k++) v[k] = v[k + 1];
        if (i >= a.n) continue;
        const float x = from[column(a.x, i)], x2 = a.x2.at ? from2[column(a.x2, i)] : none;
        v[3] = a.mode == kElementwiseActivate ? exact_activate((activation)a.act, x, &x2)
               : a.mode == kElementwiseAdd    ? exact_add(x, x2, a.scale)
                                              : exact_scale_cap(x, a.scale, a.cap);
        to[column(a.y, i)] = v[3];
    }
    if (a.codes.q) lanes_quantize(v, a.codes, row, first, first < a.n);  // n % 32 == 0
}

// The largest value of the block's threads and its lowest index: thread 0 has them in v and at.
template <class Floats, class Ints>
DUET_DEVICE void block_best(Floats best, Ints index, float& v, int& at) {
    const int j = thread_id();
    best[j] = v;
    index[j] = at;
    for (int h = kSumLanes / 2; h > 0; h /= 2) {
        sync_block();
        if (j >= h) continue;
        const float other = best[j + h];
        const int other_at = index[j + h];
        if (other > v || (other == v && other_at < at)) {
            v = other;
            at = other_at;
            best[j] = v;
            index[j] = at;
        }
    }
}

constexpr int kBestLoads = 16;  // values of a thread on their way at once

// out = lowest index of the largest value; -1: a value is NaN or +inf, or all are -inf
// x (n) f32; best, index (n_blocks): of each block, the last block takes the best of them
// grid (n_blocks), at most 256; block 256, shared 2052 bytes; moves 4 bytes per element; source: own
DUET_DEVICE void argmax(const argmax_args& a, const block_place& here = {}) {
    auto best = shared_array<float>(0, kSumLanes);
    auto index = shared_array<int>(kSumLanes * 4, kSumLanes);
    const float infinity = float_of(0x7f800000u);
    constexpr int kNone = 0x7fffffff;
    float v = -infinity;
    int at = kNone;
    const int step = kSumLanes * kBestLoads, j = thread_id();
    for (int first = here.x * step; first < a.n; first += a.n_blocks * step) {
        float next[kBestLoads];
        for (int k = 0; k < kBestLoads; k++) {
            const int i = first + k * kSumLanes + j;
            next[k] = a.x[i < a.n ? i : a.n - 1];  // Past the end: what is there already, with a higher index.
        }
        for (int k = 0; k < kBestLoads; k++) {
            const int i = first + k * kSumLanes + j;
            const bool is_bad = !(next[k] < infinity), is_more = next[k] > v;
            at = is_bad ? -1 : is_more ? i : at;  // Nothing is larger than infinity, so -1 stays.
            v = is_bad ? infinity : is_more ? next[k] : v;
        }
    }
    block_best(best, index, v, at);
    if (j == 0) {
        store_for_others(a.best + here.x, v);
        store_for_others(a.index + here.x, at);
    }
    if (!is_last_block(a.counter, a.n_blocks, shared_array<int>(kSumLanes * 8, 1))) return;
    v = j < a.n_blocks ? a.best[j] : -infinity;
    at = j < a.n_blocks ? a.index[j] : kNone;
    block_best(best, index, v, at);
    if (j == 0) *a.out = at == kNone ? -1 : at;
}

}  // namespace duet
