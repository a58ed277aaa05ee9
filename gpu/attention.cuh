// gpu/attention.cuh: the attention cache: append, and attention over chunks of kAttnChunk positions.
// A page holds, for each layer and each key/value head, the keys (k_dim, 64) transposed, then the values (64, v_dim).
// In q8_0 the codes keep these places, and f16 scales of 32 values follow. The bytes are those of cpu/attention.cpp.
// Must not know: ops, drivers.
// Main path: gpu/launch.cpp -> gpu/kernels.def -> [gpu/attention.cuh] -> quant/exact.h

namespace duet {

DUET_DEVICE uint8_t* cache_chunk(const cache_args& c, int tok, int chunk, int kv_head) {
    const int page = c.pages[c.page_start[tok] + chunk];
    return c.base + (size_t)page * c.page_bytes + (size_t)kv_head * (c.k_bytes + c.v_bytes);
}

constexpr int kShare = 4;  // rows that share a thread's read of a key or value
constexpr int kRun = 16;   // elements read at once, so that their loads are on their way together

// Reads N elements of a chunk's keys or values into v. A head has d elements per position. The elements lie `step`
// apart from `at` on, their q8_0 scales `scale_step` apart from scale_at on.
template <int Type, int N>
DUET_DEVICE void cached(const uint8_t* head, int d, int at, int step, int scale_at, int scale_step, float (&v)[N]) {
    const uint16_t* scales = (const uint16_t*)(head + (size_t)d * kAttnChunk) + scale_at;
    DUET_UNROLL
    for (int u = 0; u < N; u++) {
        if constexpr (Type == DUET_CACHE_F16) v[u] = quick_half_to_float(((const uint16_t*)head + at)[u * step]);
        else if constexpr (Type == DUET_CACHE_F32) v[u] = ((const float*)head + at)[u * step];
        else v[u] = quick_half_to_float(scales[u * scale_step]) * (float)((const int8_t*)head + at)[u * step];
    }
}

// Writes element j of a token's key or value to its place. q8_0: the 32 lanes of a segment bring one block.
DUET_DEVICE void cache_write(const cache_args& c, bool is_key, int tok, int kv_head, int j, float x) {
    const int pos = c.pos[tok], i = pos % kAttnChunk, d = is_key ? c.k_dim : c.v_dim,
              at = is_key ? j * kAttnChunk + i : i * d + j;
    uint8_t* head = cache_chunk(c, tok, pos / kAttnChunk, kv_head) + (is_key ? 0 : c.k_bytes);
    if (c.type == DUET_CACHE_F16) {
        ((uint16_t*)head)[at] = float_to_half(x);
    } else if (c.type == DUET_CACHE_F32) {
        ((float*)head)[at] = x;
    } else {
        const float one[1] = {x};
        const lanes_codes<1> c32 = lanes_code(one);
        ((int8_t*)head)[at] = (int8_t)c32.code[0];
        if (j % kBlock == 0) {
            uint16_t* scales = (uint16_t*)(head + (size_t)d * kAttnChunk);
            scales[is_key ? j / kBlock * kAttnChunk + i : at / kBlock] = float_to_half(c32.d);
        }
    }
}

// Writes the batch's keys and values to their places in the cache.
// k, v (n_tok, n_kv_heads, dim) f32
// grid (ceil(n_kv_heads * max(k_dim, v_dim) / 256), n_tok, 2: keys, values; 1 without values), block 256, shared 0
// moves 4 + 2 (f16) bytes per element
// q8_0 needs dims % 32 == 0 (runtime/session.cpp checks), so that a segment holds one block; its codes: quant/blocks.h
// source: own
DUET_DEVICE void kv_append(const append_args& a) {
    const bool is_key = block_z() == 0;
    const heads_args& from = is_key ? a.k : a.v;
    const int d = is_key ? a.cache.k_dim : a.cache.v_dim, tok = block_y(), e = block_x() * kGpuThreads + thread_id(),
              h = e / d, j = e % d;
    if (h < a.cache.n_kv_heads)
        cache_write(a.cache, is_key, tok, h, j, from.at[(size_t)tok * from.stride + (size_t)h * from.head_stride + j]);
}

// Applies norm and rope to n heads of d floats in shared memory, as norm_row and rope would. A segment takes a head;
// head0 is the model's number of the first one.
template <class Shared>
DUET_DEVICE void prepare_heads(const head_prepare& p, Shared x, int n, int d, int head0, int tok) {
    const int l = thread_id() % kSegment;
    for (int h = thread_id() / kSegment; p.has_norm && h < n; h += kGpuThreads / kSegment) {
        float lane[kSumLanes / kSegment];  // lanes l, l + 32, ... of exact_sum
        DUET_UNROLL
        for (int k = 0; k < kSumLanes / kSegment; k++) {
            lane[k] = 0.0f;
            for (int i = l + k * kSegment; i < d; i += kSumLanes) {
                const float v = x[h * d + i];
                lane[k] = lane[k] + v * v;
            }
        }
        DUET_UNROLL
        for (int m = kSumLanes / kSegment / 2; m > 0; m /= 2) {
            DUET_UNROLL
            for (int k = 0; k < m; k++) lane[k] = lane[k] + lane[k + m];
        }
        const float scale = exact_norm_scale(segment_sum(lane[0]) / (float)d, p.eps);
        const float* w = p.w ? p.w + (size_t)(head0 + h) * p.w_stride : nullptr;
        for (int i = l; i < d; i += kSegment) {
            const float v = x[h * d + i] * scale;
            x[h * d + i] = w ? v * w[i] : v;
        }
    }
    sync_block();
    for (int i = thread_id(); p.angles && i < n * p.half; i += kGpuThreads) {
        const int h = i / p.half, j = i % p.half, u = h * d + (p.neox ? j : 2 * j), v = p.neox ? u + p.half : u + 1;
        const float* angle = p.angles + (size_t)tok * 2 * p.n_freq + j;
        float a = x[u], b = x[v];
        exact_rotate(&a, &b, angle[0], angle[p.n_freq]);
        x[u] = a;
        x[v] = b;
    }
    sync_block();
}

// The rows of a block: n heads, from head0 on, of n_toks tokens of one sequence. Row r is head head0 + r % n of token
// tok + r / n.
struct attn_rows {
    int tok, n_toks, n, head0;
};

DUET_DEVICE int attn_seen_from(const attention_args& a, int pos) {
    return a.window && pos - a.window + 1 > 0 ? pos - a.window + 1 : 0;
}

// Writes the finished value of column j of head `head`, and its int8 form when the result is wanted so.
DUET_DEVICE void attn_store(const attention_args& a, int tok, int head, int j, attn_state st, float o) {
    if (a.sinks) exact_attn_sink(&st, &o, a.sinks[head], 1);
    float v;
    exact_attn_finish(st, &o, 1, &v);
    a.out.at[(size_t)tok * a.out.stride + (size_t)head * a.out.head_stride + j] = v;
    if (a.result.q) segment_quantize(v, a.result, tok, head * a.cache.v_dim + j);
}

constexpr int kMergeChunks = 16;  // chunks that the merge reads at once

// Merges the chunks of a split attention, in order (exact_attn_merge). The last block to finish does this. The factors
// of kMergeChunks chunks are made at once, a lane for each, and then the values come together. A head's 64 words of
// `part`: the chunks' maxima, sums, factors of what is merged already, and factors of the chunk. state: (max, sum).
template <class Shared>
DUET_DEVICE void attn_merge(const attention_args& a, const attn_rows& rows, int first_chunk, int last_chunk,
                            Shared part, Shared state, Shared o) {
    static_assert(kMergeChunks * 4 == kAttnChunk);
    const int d = a.cache.v_dim, lane = thread_id() % kSegment, segment = thread_id() / kSegment,
              n_segments = kGpuThreads / kSegment;
    const float* heads = a.partial + ((size_t)rows.tok * a.q.n_heads + rows.head0) * a.n_chunks * (size_t)(d + 2);
    for (int c0 = first_chunk; c0 <= last_chunk; c0 += kMergeChunks) {
        const int n_left = last_chunk - c0 + 1, n_here = n_left < kMergeChunks ? n_left : kMergeChunks;
        for (int r = segment; r < rows.n; r += n_segments) {
            if (lane >= n_here) continue;
            const float* p = heads + ((size_t)r * a.n_chunks + c0 + lane) * (size_t)(d + 2);
            part[r * kAttnChunk + lane] = p[0];
            part[r * kAttnChunk + kMergeChunks + lane] = p[1];
        }
        sync_block();
        for (int r = segment; r < rows.n; r += n_segments) {
            if (lane >= n_here) continue;
            float before = c0 == first_chunk ? (float)part[r * kAttnChunk] : (float)state[r * 4], now = before;
            for (int k = 0; k <= lane; k++) {
                const float m = part[r * kAttnChunk + k];
                before = now;
                now = m > now ? m : now;
            }
            part[r * kAttnChunk + 2 * kMergeChunks + lane] = exact_exp(before - now);
            part[r * kAttnChunk + 3 * kMergeChunks + lane] = exact_exp(part[r * kAttnChunk + lane] - now);
        }
        sync_block();
        for (int r = segment; r < rows.n; r += n_segments) {
            if (lane != 0) continue;
            const bool is_first = c0 == first_chunk;
            float most = is_first ? (float)part[r * kAttnChunk] : (float)state[r * 4],
                  sum = is_first ? (float)part[r * kAttnChunk + kMergeChunks] : (float)state[r * 4 + 1];
            for (int k = is_first; k < n_here; k++) {
                const int at = r * kAttnChunk + k;
                const float m = part[at];
                most = m > most ? m : most;
                sum = __builtin_fmaf(sum, part[at + 2 * kMergeChunks],
                                     part[at + kMergeChunks] * part[at + 3 * kMergeChunks]);
            }
            state[r * 4] = most;
            state[r * 4 + 1] = sum;
        }
        for (int i = thread_id(); i < rows.n * d; i += kGpuThreads) {
            const int r = i / d;
            const float* p = heads + ((size_t)r * a.n_chunks + c0) * (size_t)(d + 2) + 2 + i % d;
            float v[kMergeChunks];
            DUET_UNROLL
            for (int k = 0; k < kMergeChunks; k++) v[k] = p[(size_t)(k < n_here ? k : 0) * (d + 2)];
            loads_before();
            float all = c0 == first_chunk ? v[0] : (float)o[i];
            DUET_UNROLL
            for (int k = 0; k < kMergeChunks; k++) {
                const int at = r * kAttnChunk + 2 * kMergeChunks + k;
                if (k < n_here && (k > 0 || c0 > first_chunk))
                    all = __builtin_fmaf(all, part[at], v[k] * part[at + kMergeChunks]);
            }
            o[i] = all;
        }
        sync_block();
    }
    for (int i = thread_id(); i < rows.n * d; i += kGpuThreads)
        attn_store(a, rows.tok, rows.head0 + i / d, i % d, {state[i / d * 4], state[i / d * 4 + 1]}, o[i]);
}

// Adds the products of N elements, from j on, of position p's key with the queries of rows r0, r0 + step, ...: n rows.
template <int Type, int N, class Shared>
DUET_DEVICE void add_scores(const cache_args& c, const uint8_t* k, int p, int j, Shared q, int r0, int step, int n,
                            float (&acc)[kShare]) {
    // The N elements are of one block of 32.
    float key[N];
    cached<Type>(k, c.k_dim, j * kAttnChunk + p, kAttnChunk, j / kBlock * kAttnChunk + p, 0, key);
    loads_before();
    DUET_UNROLL
    for (int i = 0; i < kShare; i++) {
        if (i >= n) break;
        DUET_UNROLL
        for (int u = 0; u < N; u++) acc[i] = __builtin_fmaf(key[u], q[(r0 + i * step) * c.k_dim + j + u], acc[i]);
    }
}

// Computes the scores of the rows over a chunk. A thread has one position and every fourth row; one read of a key
// serves up to four rows.
template <int Type, class Shared>
DUET_DEVICE void attn_scores(const attention_args& a, const attn_rows& rows, const uint8_t* k, int base, Shared q,
                             Shared score) {
    const cache_args& c = a.cache;
    const int p = thread_id() % kAttnChunk, step = kGpuThreads / kAttnChunk, n_rows = rows.n_toks * rows.n;
    const bool is_seen = base + p <= a.until[rows.tok + rows.n_toks - 1];
    for (int r0 = uniform_in_segment(thread_id() / kAttnChunk); is_seen && r0 < n_rows; r0 += step * kShare) {
        const int n = (n_rows - r0 + step - 1) / step;
        float total[kShare] = {};
        for (int g = 0; g < c.k_dim; g += kGroup) {
            float acc[kShare] = {};
            const int end = g + kGroup < c.k_dim ? g + kGroup : c.k_dim;
            int j = g;
            for (; j + kRun <= end; j += kRun) add_scores<Type, kRun>(c, k, p, j, q, r0, step, n, acc);
            for (; j < end; j++) add_scores<Type, 1>(c, k, p, j, q, r0, step, n, acc);
            // ALiBi: the position is one more element of the key, in the last group or in a group of its own.
            const bool is_last = a.slopes && !a.both_ways && g + kGroup >= c.k_dim, is_whole = c.k_dim % kGroup == 0;
            DUET_UNROLL
            for (int i = 0; i < kShare; i++) {
                const float slope =
                    is_last && r0 + i * step < n_rows ? a.slopes[rows.head0 + (r0 + i * step) % rows.n] : 0.0f;
                if (is_last && !is_whole) acc[i] = __builtin_fmaf((float)(base + p), slope, acc[i]);
                total[i] = total[i] + acc[i];
                if (is_last && is_whole) total[i] = total[i] + __builtin_fmaf((float)(base + p), slope, 0.0f);
            }
        }
        DUET_UNROLL
        for (int i = 0; i < kShare; i++)
            if (const int r = r0 + i * step; r < n_rows) {
                float s = exact_attn_score(total[i], a.scale, a.cap);
                if (a.slopes && a.both_ways)
                    s = exact_alibi_both(s, a.slopes[rows.head0 + r % rows.n], c.pos[rows.tok + r / rows.n] - base - p);
                score[r * kAttnChunk + p] = s;
            }
    }
}

// Takes the softmax of a chunk's scores. A segment takes a row, and lane l holds positions l and l + 32. `state` gets
// max, sum, and the factors of the old and the new values.
template <bool Split, class Shared>
DUET_DEVICE void attn_softmax(const attention_args& a, const attn_rows& rows, int base, Shared score, Shared state) {
    const float low = -float_of(0x7f800000u);
    for (int r = thread_id() / kSegment; r < rows.n_toks * rows.n; r += kGpuThreads / kSegment) {
        const int pos = a.until[rows.tok + r / rows.n],
                  seen_from = attn_seen_from(a, a.cache.pos[rows.tok + r / rows.n]), l = thread_id() % kSegment;
        if (base > pos || base + kAttnChunk <= seen_from) continue;
        const bool seen0 = base + l >= seen_from && base + l <= pos,
                   seen1 = base + l + 32 >= seen_from && base + l + 32 <= pos;
        const float s0 = seen0 ? (float)score[r * kAttnChunk + l] : low,
                    s1 = seen1 ? (float)score[r * kAttnChunk + l + 32] : low;
        const float m = segment_max(s1 > s0 ? s1 : s0);
        const float p0 = seen0 ? exact_exp(s0 - m) : 0.0f, p1 = seen1 ? exact_exp(s1 - m) : 0.0f;
        score[r * kAttnChunk + l] = p0;
        score[r * kAttnChunk + l + 32] = p1;
        const attn_state st{m, segment_sum(p0 + p1)};
        if (l != 0) continue;
        if (Split || base / kAttnChunk == seen_from / kAttnChunk) {  // This is the row's first chunk.
            state[r * 4] = st.max;
            state[r * 4 + 1] = st.sum;
            continue;
        }
        const attn_state old{state[r * 4], state[r * 4 + 1]};  // as exact_attn_merge
        const float top = st.max > old.max ? st.max : old.max, f0 = exact_exp(old.max - top),
                    f1 = exact_exp(st.max - top);
        state[r * 4] = top;
        state[r * 4 + 1] = __builtin_fmaf(old.sum, f0, st.sum * f1);
        state[r * 4 + 2] = f0;
        state[r * 4 + 3] = f1;
    }
}

// Adds up the weighted values of a chunk. A thread has one column; one read of a value serves up to four rows.
template <bool Split, int Type, class Shared>
DUET_DEVICE void attn_values(const attention_args& a, const attn_rows& rows, const uint8_t* k, int base, Shared score,
                             Shared state, Shared o) {
    const cache_args& c = a.cache;
    const int d = c.v_dim, n_rows = rows.n_toks * rows.n, fit = kGpuThreads / d,
              step = fit < 1        ? 1
                     : fit < n_rows ? fit
                                    : n_rows;
    const int low = attn_seen_from(a, c.pos[rows.tok]) - base, high = a.until[rows.tok + rows.n_toks - 1] + 1 - base;
    for (int e = thread_id(); e < step * d; e += kGpuThreads)
        for (int r0 = e / d; r0 < n_rows; r0 += step * kShare) {
            const int j = e % d;
            int first[kShare], n_pos[kShare];
            float acc[kShare] = {};
            DUET_UNROLL
            for (int i = 0; i < kShare; i++) {
                const int r = r0 + i * step, pos = r < n_rows ? c.pos[rows.tok + r / rows.n] : -1;
                first[i] = attn_seen_from(a, pos) - base;
                n_pos[i] = (r < n_rows ? a.until[rows.tok + r / rows.n] : -1) + 1 - base;
            }
            for (int p = low > 0 ? low / kRun * kRun : 0; p < kAttnChunk && p < high; p += kRun) {
                float v[kRun];
                if (c.v_in_k) cached<Type>(k, c.k_dim, j * kAttnChunk + p, 1, j / kBlock * kAttnChunk + p, 1, v);
                else cached<Type>(k + c.k_bytes, d, p * d + j, d, (p * d + j) / kBlock, d / kBlock, v);
                loads_before();
                DUET_UNROLL
                for (int i = 0; i < kShare; i++) {
                    const int at = (r0 + i * step) * kAttnChunk + p;
                    const bool sees_all = p >= first[i] && p + kRun <= n_pos[i];
                    DUET_UNROLL
                    for (int u = 0; u < kRun && sees_all; u++) acc[i] = __builtin_fmaf(score[at + u], v[u], acc[i]);
                    DUET_UNROLL
                    for (int u = 0; u < kRun && !sees_all; u++)
                        if (p + u >= first[i] && p + u < n_pos[i]) acc[i] = __builtin_fmaf(score[at + u], v[u], acc[i]);
                }
            }
            DUET_UNROLL
            for (int i = 0; i < kShare; i++) {
                const int r = r0 + i * step;
                // The row sees nothing of this chunk, or does not exist.
                if (n_pos[i] <= 0 || first[i] >= kAttnChunk) continue;
                if (Split || first[i] >= 0) o[r * d + j] = acc[i];
                else o[r * d + j] = __builtin_fmaf(o[r * d + j], state[r * 4 + 2], acc[i] * state[r * 4 + 3]);
            }
        }
}

// out = attention of q over the cache (exact_attn_chunk; chunks merged in order; sink; finish)
// q (n_tok, n_heads, k_dim), out (n_tok, n_heads, v_dim) f32; n_heads / n_kv_heads query heads share a key/value head
// grid (n_kv_heads * ceil(group / heads_per_block), ceil(n_tok / toks_per_block), Split ? n_chunks : 1), block 256
// shared rows * (k_dim + 64 + v_dim + 4) * 4 bytes
// moves the chunks' keys and values once per block, and the f32 of its rows
// Type is the cache's. With Split a block does one chunk of one token and leaves (max, sum, values); the last block of
// a token merges them. Without Split a block walks all chunks in order, for the rows of several tokens. With k.at (one
// token to a block, and no token sees another) the kernel also prepares queries and keys, and the block with the
// token's own chunk first appends key and value to the cache. Blocks that share a key/value head append the same bytes.
// source: own; softmax chunk by chunk as Milakov and Gimelshein (arXiv 1805.02867)
template <bool Split, int Type>
DUET_DEVICE void attention(const attention_args& a) {
    const cache_args& c = a.cache;
    const int group = a.q.n_heads / c.n_kv_heads, n_slices = (group + a.heads_per_block - 1) / a.heads_per_block;
    const int kv_head = block_x() / n_slices, in_group = block_x() % n_slices * a.heads_per_block, tid = thread_id(),
              n_threads = kGpuThreads;
    const int most = a.heads_per_block * a.toks_per_block, tok_end = block_y() * a.toks_per_block + a.toks_per_block;
    attn_rows rows{block_y() * a.toks_per_block, 1,
                   group - in_group < a.heads_per_block ? group - in_group : a.heads_per_block,
                   kv_head * group + in_group};
    auto q = shared_array<float>(0, most * c.k_dim);
    auto score = shared_array<float>((size_t)most * c.k_dim * 4, most * kAttnChunk);
    auto o = shared_array<float>((size_t)most * (c.k_dim + kAttnChunk) * 4, most * c.v_dim);
    auto state = shared_array<float>((size_t)most * (c.k_dim + kAttnChunk + c.v_dim) * 4, most * 4);
    for (; rows.tok < tok_end && rows.tok < a.n_tok; rows.tok += rows.n_toks) {
        // The block takes tokens of one sequence together. Their page tables begin at one place.
        rows.n_toks = 1;
        while (rows.tok + rows.n_toks < tok_end && rows.tok + rows.n_toks < a.n_tok &&
               c.page_start[rows.tok + rows.n_toks] == c.page_start[rows.tok])
            rows.n_toks++;
        const int first_seen = attn_seen_from(a, c.pos[rows.tok]) / kAttnChunk,
                  last_seen = a.until[rows.tok + rows.n_toks - 1] / kAttnChunk;
        const int first_chunk = Split ? block_z() : first_seen, last_chunk = Split ? block_z() : last_seen;
        if (Split && (first_chunk < first_seen || last_chunk > last_seen)) return;  // All threads of the block return.
        if (a.k.at && last_chunk == last_seen) {
            auto fresh = shared_array<float>((size_t)most * c.k_dim * 4, c.k_dim);  // Scores will overwrite it.
            for (int j = tid; j < c.k_dim; j += n_threads)
                fresh[j] = a.k.at[(size_t)rows.tok * a.k.stride + (size_t)kv_head * a.k.head_stride + j];
            sync_block();
            prepare_heads(a.k_prepare, fresh, 1, c.k_dim, kv_head, rows.tok);
            for (int j = tid; j < c.k_dim; j += n_threads) cache_write(c, true, rows.tok, kv_head, j, fresh[j]);
            for (int j = tid; j < c.v_dim; j += n_threads)
                cache_write(c, false, rows.tok, kv_head, j,
                            a.v.at[(size_t)rows.tok * a.v.stride + (size_t)kv_head * a.v.head_stride + j]);
        }
        for (int i = tid; i < rows.n_toks * rows.n * c.k_dim; i += n_threads) {
            const int r = i / c.k_dim, tok = rows.tok + r / rows.n;
            const float x =
                a.q.at[(size_t)tok * a.q.stride + (size_t)(rows.head0 + r % rows.n) * a.q.head_stride + i % c.k_dim];
            q[i] = a.q_factor && !a.k.at ? x * a.q_factor[tok] : x;
        }
        sync_block();
        if (a.k.at) {
            prepare_heads(a.q_prepare, q, rows.n, c.k_dim, rows.head0, rows.tok);
            for (int i = tid; a.q_factor && i < rows.n * c.k_dim; i += n_threads) q[i] = q[i] * a.q_factor[rows.tok];
            sync_block();
        }
        for (int chunk = first_chunk; chunk <= last_chunk; chunk++) {
            const uint8_t* k = cache_chunk(c, rows.tok, chunk, kv_head);
            attn_scores<Type>(a, rows, k, chunk * kAttnChunk, q, score);
            sync_block();
            attn_softmax<Split>(a, rows, chunk * kAttnChunk, score, state);
            sync_block();
            attn_values<Split, Type>(a, rows, k, chunk * kAttnChunk, score, state, o);
            sync_block();
        }
        for (int i = tid; i < rows.n_toks * rows.n * c.v_dim; i += n_threads) {
            const int r = i / c.v_dim, tok = rows.tok + r / rows.n, head = rows.head0 + r % rows.n, j = i % c.v_dim;
            if constexpr (Split) {
                float* part =
                    a.partial + (((size_t)tok * a.q.n_heads + head) * a.n_chunks + block_z()) * (size_t)(c.v_dim + 2);
                store_for_others(part + 2 + j, (float)o[i]);
                if (j == 0) {
                    store_for_others(part, (float)state[r * 4]);
                    store_for_others(part + 1, (float)state[r * 4 + 1]);
                }
            } else {
                attn_store(a, tok, head, j, {state[r * 4], state[r * 4 + 1]}, o[i]);
            }
        }
        if constexpr (Split) {
            uint32_t* counter = a.counter + block_y() * c.n_kv_heads * n_slices + block_x();
            if (is_last_block(counter, last_seen - first_seen + 1, shared_array<int>(0, 1)))
                attn_merge(a, rows, first_seen, last_seen, score, state, o);
        } else {
            sync_block();
        }
    }
}

}  // namespace duet
