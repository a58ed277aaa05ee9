// gpu/attention.cuh: the attention cache: append, and attention over chunks of kAttnChunk positions. Must not know: ops, drivers.
// Layout of a page's layer: for each key/value head the keys (k_dim, 64) transposed, then the values (64, v_dim); in q8_0 the codes keep
// these places and f16 scales of 32 values follow (the same bytes as the CPU's: quant/cpu_attention.cpp).
// Main path: gpu/launch.cpp -> gpu/kernels.def -> [gpu/attention.cuh] -> quant/exact.h

namespace duet {

constexpr int kCacheF16 = 0, kCacheF32 = 1, kCacheQ8 = 2;   // DUET_CACHE_... of runtime.h; launch.cpp asserts it
constexpr int kHeadsPerBlock = 8;

DUET_DEVICE uint8_t* cache_chunk(const cache_args& c, int tok, int chunk, int kv_head) {
    const int page = c.pages[c.page_start[tok] + chunk];
    return c.base + (size_t)page * c.page_bytes + (size_t)kv_head * (c.k_bytes + c.v_bytes);
}

// Element j of position i of a chunk's keys or values, d a head.
DUET_DEVICE float cached(int type, const uint8_t* head, int d, bool is_key, int i, int j) {
    const int at = is_key ? j * kAttnChunk + i : i * d + j;
    if (type == kCacheF16) return quick_half_to_float(((const uint16_t*)head)[at]);
    if (type == kCacheF32) return ((const float*)head)[at];
    const uint16_t* scales = (const uint16_t*)(head + (size_t)d * kAttnChunk);
    const int s = is_key ? j / kBlock * kAttnChunk + i : at / kBlock;
    return quick_half_to_float(scales[s]) * (float)((const int8_t*)head)[at];
}

// Keys and values of the batch to their places.  k, v (n_tok, n_kv_heads, dim) f32
// grid (ceil(n_kv_heads * max(k_dim, v_dim) / 256), n_tok, 2: keys, values; 1 without values), block 256, shared 0; moves 4 + 2 (f16) bytes per element
// q8_0: needs dims % 32 == 0 (launch.cpp checks), so that a segment holds one block;  source: own
DUET_DEVICE void kv_append(const append_args& a) {
    const bool is_key = block_z() == 0;
    const int d = is_key ? a.cache.k_dim : a.cache.v_dim, tok = block_y(), pos = a.cache.pos[tok], i = pos % kAttnChunk;
    const int e = block_x() * block_size() + thread_id(), h = e / d, j = e % d;
    if (h >= a.cache.n_kv_heads) return;
    const float x = is_key ? a.k.at[(size_t)tok * a.k.stride + (size_t)h * a.k.head_stride + j]
                           : a.v.at[(size_t)tok * a.v.stride + (size_t)h * a.v.head_stride + j];
    uint8_t* head = cache_chunk(a.cache, tok, pos / kAttnChunk, h) + (is_key ? 0 : a.cache.k_bytes);
    const int at = is_key ? j * kAttnChunk + i : i * d + j;
    if (a.cache.type == kCacheF16) {
        ((uint16_t*)head)[at] = float_to_half(x);
    } else if (a.cache.type == kCacheF32) {
        ((float*)head)[at] = x;
    } else {
        const uint32_t amax_bits = segment_max(bits_of(x) & 0x7fffffffu);   // as exact_quantize_block
        const bool bad = amax_bits >= 0x7f800000u, zero = amax_bits < 0x0d800000u;
        const float amax = float_of(amax_bits), inverse = bad || zero ? 0.0f : 127.0f / amax;
        ((int8_t*)head)[at] = (int8_t)(bad ? 0 : (int)exact_rint(x * inverse));
        if (j % kBlock == 0) {
            uint16_t* scales = (uint16_t*)(head + (size_t)d * kAttnChunk);
            scales[is_key ? j / kBlock * kAttnChunk + i : at / kBlock] = float_to_half(bad ? float_of(0x7fc00000u) : zero ? 0.0f : amax / 127.0f);
        }
    }
}

// out = attention of q over the cache (exact_attn_chunk, merged in order, sink, finish)
// q (n_tok, n_heads, k_dim), out (n_tok, n_heads, v_dim) f32; n_heads / n_kv_heads query heads share a key/value head
// grid (n_kv_heads * ceil(group / heads_per_block), n_tok, Split ? n_chunks : 1), block 256
// shared heads_per_block * (k_dim + 64 + v_dim + 4) * 4 bytes; moves the chunks' keys and values once per block
// Split: a block does one chunk and leaves (max, sum, values) for attention_merge; else it walks all chunks in order.  source: own;
// chunk by chunk softmax as Milakov and Gimelshein (arXiv 1805.02867)
template <bool Split>
DUET_DEVICE void attention(const attention_args& a) {
    const cache_args& c = a.cache;
    const int group = a.q.n_heads / c.n_kv_heads, n_slices = (group + a.heads_per_block - 1) / a.heads_per_block;
    const int kv_head = block_x() / n_slices, in_group = block_x() % n_slices * a.heads_per_block, tok = block_y();
    const int n = group - in_group < a.heads_per_block ? group - in_group : a.heads_per_block, head0 = kv_head * group + in_group;
    auto q = shared_array<float>(0, a.heads_per_block * c.k_dim);
    auto score = shared_array<float>((size_t)a.heads_per_block * c.k_dim * 4, a.heads_per_block * kAttnChunk);
    auto o = shared_array<float>((size_t)a.heads_per_block * (c.k_dim + kAttnChunk) * 4, a.heads_per_block * c.v_dim);
    auto state = shared_array<float>((size_t)a.heads_per_block * (c.k_dim + kAttnChunk + c.v_dim) * 4, a.heads_per_block * 4);
    const int tid = thread_id(), n_threads = block_size();
    for (int i = tid; i < n * c.k_dim; i += n_threads) {
        const float x = a.q.at[(size_t)tok * a.q.stride + (size_t)(head0 + i / c.k_dim) * a.q.head_stride + i % c.k_dim];
        q[i] = a.q_factor ? x * a.q_factor[tok] : x;
    }
    sync_block();
    const int pos = c.pos[tok], seen_from = a.window && pos - a.window + 1 > 0 ? pos - a.window + 1 : 0;
    const int first_chunk = Split ? block_z() : seen_from / kAttnChunk, last_chunk = Split ? block_z() : pos / kAttnChunk;
    if (Split && (first_chunk < seen_from / kAttnChunk || last_chunk > pos / kAttnChunk)) return;   // all threads of the block
    bool is_first = true;
    for (int chunk = first_chunk; chunk <= last_chunk; chunk++) {
        const int base = chunk * kAttnChunk, first = seen_from > base ? seen_from - base : 0;
        const int n_pos = pos + 1 - base < kAttnChunk ? pos + 1 - base : kAttnChunk;
        const uint8_t* k = cache_chunk(c, tok, chunk, kv_head);
        const uint8_t* v = k + c.k_bytes;
        for (int i = tid; i < n * kAttnChunk; i += n_threads) {
            const int h = i / kAttnChunk, p = i % kAttnChunk;
            float total = 0.0f;
            if (p >= first && p < n_pos)
                for (int g = 0; g < c.k_dim; g += kGroup) {
                    float acc = 0.0f;
                    for (int j = g; j < g + kGroup && j < c.k_dim; j++)
                        acc = __builtin_fmaf(cached(c.type, k, c.k_dim, true, p, j), q[h * c.k_dim + j], acc);
                    // ALiBi: one more element of the key, its position; after k_dim % kGroup == 0 a group by itself
                    if (a.slopes && c.k_dim - g < kGroup) acc = __builtin_fmaf((float)(base + p), a.slopes[head0 + h], acc);
                    total = total + acc;
                }
            if (a.slopes && c.k_dim % kGroup == 0) total = total + __builtin_fmaf((float)(base + p), a.slopes[head0 + h], 0.0f);
            score[i] = exact_attn_score(total, a.scale, a.cap);
        }
        sync_block();
        // a segment takes a head: lane l holds positions l and l + 32
        for (int h = tid / kSegment; h < n; h += n_threads / kSegment) {
            const int l = tid % kSegment;
            const float low = -float_of(0x7f800000u);
            const bool seen0 = l >= first && l < n_pos, seen1 = l + 32 >= first && l + 32 < n_pos;
            const float s0 = seen0 ? (float)score[h * kAttnChunk + l] : low, s1 = seen1 ? (float)score[h * kAttnChunk + l + 32] : low;
            const float m = segment_max(s1 > s0 ? s1 : s0);
            const float p0 = seen0 ? exact_exp(s0 - m) : 0.0f, p1 = seen1 ? exact_exp(s1 - m) : 0.0f;
            score[h * kAttnChunk + l] = p0;
            score[h * kAttnChunk + l + 32] = p1;
            attn_state st{m, segment_sum(p0 + p1)};
            if (l != 0) continue;
            // state: max, sum, and the factors of the old and the new values
            if (is_first) {
                state[h * 4] = st.max;
                state[h * 4 + 1] = st.sum;
                continue;
            }
            const attn_state old{state[h * 4], state[h * 4 + 1]};   // exact_attn_merge
            const float top = st.max > old.max ? st.max : old.max, f0 = exact_exp(old.max - top), f1 = exact_exp(st.max - top);
            state[h * 4] = top;
            state[h * 4 + 1] = __builtin_fmaf(old.sum, f0, st.sum * f1);
            state[h * 4 + 2] = f0;
            state[h * 4 + 3] = f1;
        }
        sync_block();
        for (int i = tid; i < n * c.v_dim; i += n_threads) {
            const int h = i / c.v_dim, j = i % c.v_dim;
            float acc = 0.0f;
            for (int p = first; p < n_pos; p++)
                acc = __builtin_fmaf(score[h * kAttnChunk + p],
                                     c.v_in_k ? cached(c.type, k, c.k_dim, true, p, j) : cached(c.type, v, c.v_dim, false, p, j), acc);
            o[i] = is_first ? acc : __builtin_fmaf(o[i], state[h * 4 + 2], acc * state[h * 4 + 3]);
        }
        sync_block();
        is_first = false;
    }
    for (int i = tid; i < n * c.v_dim; i += n_threads) {
        const int h = i / c.v_dim, j = i % c.v_dim;
        if constexpr (Split) {
            float* part = a.partial + (((size_t)tok * a.q.n_heads + head0 + h) * a.n_chunks + block_z()) * (size_t)(c.v_dim + 2);
            part[2 + j] = o[i];
            if (j == 0) {
                part[0] = state[h * 4];
                part[1] = state[h * 4 + 1];
            }
        } else {
            attn_state st{state[h * 4], state[h * 4 + 1]};
            float v = o[i];
            if (a.sinks) exact_attn_sink(&st, &v, a.sinks[head0 + h], 1);
            exact_attn_finish(st, &v, 1, a.out.at + (size_t)tok * a.out.stride + (size_t)(head0 + h) * a.out.head_stride + j);
        }
    }
}

// Merges the chunks of attention<true> in order.  grid (n_heads, n_tok), block 256, shared 0; moves n_chunks * (v_dim + 2) * 4 bytes
// Every thread repeats the state's few steps for its own columns.  source: own
DUET_DEVICE void attention_merge(const attention_args& a) {
    const int head = block_x(), tok = block_y(), pos = a.cache.pos[tok], d = a.cache.v_dim;
    const int seen_from = a.window && pos - a.window + 1 > 0 ? pos - a.window + 1 : 0;
    const float* part = a.partial + ((size_t)tok * a.q.n_heads + head) * a.n_chunks * (size_t)(d + 2);
    for (int j = thread_id(); j < d; j += block_size()) {
        attn_state st{};
        float o = 0.0f;
        for (int chunk = seen_from / kAttnChunk; chunk <= pos / kAttnChunk; chunk++) {
            const float* p = part + (size_t)chunk * (d + 2);
            const attn_state next{p[0], p[1]};
            if (chunk == seen_from / kAttnChunk) {
                st = next;
                o = p[2 + j];
            } else {
                exact_attn_merge(&st, &o, next, p + 2 + j, 1);
            }
        }
        if (a.sinks) exact_attn_sink(&st, &o, a.sinks[head], 1);
        exact_attn_finish(st, &o, 1, a.out.at + (size_t)tok * a.out.stride + (size_t)head * a.out.head_stride + j);
    }
}

}  // namespace duet
