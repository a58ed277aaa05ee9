// gpu/attention.cuh: attention over chunks of kAttnChunk positions of the cache, and the same in mode fast.
// Must not know: ops, drivers. Main path: gpu/launch.cpp -> gpu/kernels.def -> [gpu/attention.cuh] -> gpu/cache.cuh

namespace duet {

// What a thread takes at once: elements of a key in shared memory, parts of queries, positions of values. Scores
// of rows that are not there are written, and read by attn_values, up to kBehind words behind the others in the stage.
constexpr int kRun = 16, kQueryLoads = 4, kTurn = kHasFragments || kHasWideWarps ? 8 : 4, kBehind = 15 * kRowWords;
static_assert(kBehind <= kAttnPart);

constexpr int kAngleThreads = kGpuThreads / 4;  // A quarter each brings cosines and sines of queries, then of keys.
// Room for so many of each; all four fit the stage.
DUET_DEVICE int attn_half(const attention_args& a) {
    const int half = a.k_prepare.half > a.q_prepare.half ? a.k_prepare.half : a.q_prepare.half;
    return half > kAngleThreads ? half : kAngleThreads;
}

// Applies norm and rope to n heads of d floats in shared memory, `stride` apart, as norm and rope would. A segment
// takes a head; head0 is the model's number of the first one. With has_key one more head follows, key kv_head. angles:
// cosines and sines of queries, then of keys, attn_half(a) each.
template <class Shared>
DUET_DEVICE void prepare_heads(const attention_args& a, Shared x, int n, bool has_key, int head0, int kv_head,
                               Shared angles) {
    const int d = a.cache.k_dim, stride = attn_stride(d), l = thread_id() % kSegment, n_all = n + has_key;
    const head_prepare &pq = a.q_prepare, &pk = a.k_prepare;
    const int half = attn_half(a);
    sync_block();
    if (pq.has_norm || pk.has_norm) {
        for (int h = thread_id() / kSegment; h < n_all; h += kGpuThreads / kSegment) {
            const head_prepare& now = h >= n ? pk : pq;
            if (!now.has_norm) continue;
            float lane[kSumLanes / kSegment];  // lanes l, l + 32, ... of exact_sum
            for (int k = 0; k < kSumLanes / kSegment; k++) {
                lane[k] = 0.0f;
                for (int i = l + k * kSegment; i < d; i += kSumLanes) {
                    const float v = x[h * stride + i];
                    lane[k] = lane[k] + v * v;
                }
            }
            for (int m = kSumLanes / kSegment / 2; m > 0; m /= 2)
                for (int k = 0; k < m; k++) lane[k] = lane[k] + lane[k + m];
            const float scale = exact_norm_scale(segment_sum(lane[0]) / (float)d, now.eps);
            const float* w = now.w ? now.w + (size_t)(h >= n ? kv_head : head0 + h) * now.w_stride : nullptr;
            for (int i = l; i < d; i += kSegment) {
                const float v = x[h * stride + i] * scale;
                x[h * stride + i] = w ? v * w[i] : v;
            }
        }
        sync_block();
    }
    for (int h = thread_id() / kSegment; h < n_all; h += kGpuThreads / kSegment) {
        const head_prepare& now = h >= n ? pk : pq;
        const int at = h >= n ? 2 * half : 0, n_pairs = now.angles ? now.half : 0;
        for (int j = l; j < n_pairs; j += kSegment) {
            const int u = h * stride + (now.neox ? j : 2 * j), v = now.neox ? u + n_pairs : u + 1;
            float first = x[u], second = x[v];
            exact_rotate(&first, &second, angles[at + j], angles[at + half + j]);
            x[u] = first;
            x[v] = second;
        }
    }
    sync_block();
}

// A block's rows: n heads of n_toks tokens of one sequence. Row r is head head0 + r % n of token tok + r / n. The first
// token sees the positions from low on, the last those below end.
struct attn_rows {
    int tok, n_toks, n, head0, low, end;
};
template <class Shared>
struct attn_memory {
    Shared q, score, o, state, stage;
};
DUET_DEVICE int attn_seen_from(const attention_args& a, int pos) {
    return a.window && pos - a.window + 1 > 0 ? pos - a.window + 1 : 0;
}
// The first position that row r sees, and the one behind its last.
struct attn_bounds {
    int first, end;
};
template <bool Split, class Shared>
DUET_DEVICE attn_bounds bounds_of(const attn_rows& rows, Shared state, int r) {
    if constexpr (Split) return {rows.low, rows.end};
    else return {(int)bits_of((float)state[r * kRowWords + 4]), (int)bits_of((float)state[r * kRowWords + 5])};
}

// Writes the finished value of column j of head `head`, and its int8 form when the result is wanted so.
DUET_DEVICE void attn_store(const attention_args& a, int tok, int head, int j, attn_state st, float o) {
    if (a.sinks) exact_attn_sink(&st, &o, a.sinks[head], 1);
    float v;
    exact_attn_finish(st, &o, 1, &v);
    a.out.at[(size_t)tok * a.out.stride + (size_t)head * a.out.head_stride + j] = v;
    if (a.result.q) segment_quantize(v, a.result, tok, head * a.cache.v_dim + j);
}

// Chunks that the merge reads at once, and columns of a thread: with two gfx11 would have fewer warps to a unit.
constexpr int kMergeChunks = kAttnChunk / 4, kMergeCols = kHasFragments || kHasWideWarps ? 2 : 1;
using merge_word = decltype([] {
    if constexpr (kMergeCols == 2) return uint64_t{};
    else return uint32_t{};
}());

// Merges a group of a split attention's chunks, in order (exact_attn_merge), to the results, or where chunks follow to
// the place of its last one. Maxima, sums and a thread's columns of kMergeChunks chunks are on their way together; a
// lane for each chunk makes its factors meanwhile. A head's 64 words of `part`: the chunks' maxima, sums, factors of
// what is merged already, and factors of the chunk. state: (max, sum). A segment has a head, of at most 8, and v_dim is
// even (launch.cpp).
template <class Shared>
DUET_DEVICE void attn_merge(const attention_args& a, const attn_rows& rows, int first_chunk, int n, bool is_end,
                            Shared part, Shared state, Shared o) {
    const int d = a.cache.v_dim, wide = d + 2, all = rows.n * d, tid = thread_id() + late(0), lane = tid % kSegment,
              segment = tid / kSegment, at = segment * kRowWords;
    float* heads =
        a.partial + (((size_t)rows.tok * a.q.n_heads + rows.head0) * a.n_chunks + first_chunk) * (size_t)wide;
    for (int c0 = 0; c0 < n; c0 += kMergeChunks) {
        const int n_here = n - c0 < kMergeChunks ? n - c0 : kMergeChunks;
        const bool is_first = c0 == 0, is_here = segment < rows.n && lane < n_here;
        DUET_ROLLED
        for (int i0 = 0; i0 < all; i0 += kMergeCols * kGpuThreads) {
            const bool is_there = i0 + kMergeCols * tid < all;
            const int i = is_there ? i0 + kMergeCols * tid : 0, r = i / d;
            uint32_t from = (uint32_t)((r * a.n_chunks + c0) * wide + 2 + i - r * d);
            const uint32_t at_own = (uint32_t)((is_here ? segment * a.n_chunks + c0 + lane : 0) * wide);
            const uint64_t own = *(const uint64_t*)(heads + at_own);
            float sum[kMergeCols];
            merge_word v[kMergeChunks];
            for (int k = 0; k < kMergeChunks; k++) {
                v[k] = *(const merge_word*)(heads + from);
                from += (uint32_t)(k + 1 < n_here ? wide : 0);
            }
            loads_before();
            if (i0 == 0) {
                for (int k = 0; k < 2 && is_here; k++)
                    part[at + k * kMergeChunks + lane] = float_of((uint32_t)(own >> 32 * k));
                sync_block();
                if (is_here) {
                    float before = is_first ? (float)part[at] : (float)state[at], now = before;
                    DUET_ROLLED
                    for (int k = 0; k <= lane; k++) {
                        const float m = part[at + k];
                        before = now;
                        now = m > now ? m : now;
                    }
                    part[at + 2 * kMergeChunks + lane] = exact_exp(before - now);
                    part[at + 3 * kMergeChunks + lane] = exact_exp(float_of((uint32_t)own) - now);
                }
                sync_block();
                if (is_here && lane == 0) {
                    float most = is_first ? (float)part[at] : (float)state[at],
                          total = is_first ? (float)part[at + kMergeChunks] : (float)state[at + 1];
                    DUET_ROLLED
                    for (int k = at + is_first; k < at + n_here; k++) {
                        most = part[k] > most ? (float)part[k] : most;
                        total = __builtin_fmaf(total, part[k + 2 * kMergeChunks],
                                               part[k + kMergeChunks] * part[k + 3 * kMergeChunks]);
                    }
                    state[at] = most;
                    state[at + 1] = total;
                }
            }
            auto value = [&](int k, int e) { return float_of((uint32_t)(v[k] >> 32 * e)); };
            for (int e = 0; e < kMergeCols; e++) sum[e] = is_first || !is_there ? value(0, e) : (float)o[i + e];
            auto fold = [&](int k) {
                const int f = r * kRowWords + 2 * kMergeChunks + k;
                for (int e = 0; e < kMergeCols && (k > 0 || !is_first); e++)
                    sum[e] = __builtin_fmaf(sum[e], part[f], value(k, e) * part[f + kMergeChunks]);
            };
            for (int k = 0; k < n_here && kHasWideWarps; k++) fold(k);  // Copies would keep more scalars in a walk.
            DUET_UNROLL
            for (int k = 0; k < kMergeChunks && !kHasWideWarps && k < late(n_here); k++) fold(k);
            for (int e = 0; e < kMergeCols && is_there; e++) o[i + e] = sum[e];
        }
        sync_block();
    }
    DUET_ROLLED
    for (int i = tid; i < all; i += kGpuThreads) {
        const int r = i / d, j = i - r * d, from = r * kRowWords;
        if (is_end) attn_store(a, rows.tok, rows.head0 + r, j, {state[from], state[from + 1]}, o[i]);
        float* to = heads + (size_t)(r * a.n_chunks + n - 1) * (size_t)wide + j;
        if (!is_end) store_for_others(to + 2, (float)o[i]);
        if (!is_end && j < 2) store_for_others(to, (float)state[from + j]);
    }
}

// Adds the products of N elements of a thread's keys, `step` apart from `at` on, with the R rows at q_at.
template <int N, int R, int W, class Shared>
DUET_DEVICE void add_scores(Shared stage, int at, Shared q, const int (&q_at)[R], int j, float (&acc)[R][W]) {
    float key[N][W];
    for (int u = 0; u < N; u++) load_words(stage, at + u * kAttnChunk, key[u]);
    constexpr int n = N < 4 ? N : 4;
    for (int u = 0; u < N; u += n)
        for (int i = 0; i < R; i++) {
            float x[n];
            load_words(q, q_at[i] + j + u, x);
            for (int k = 0; k < n * W; k++)
                acc[i][k % W] = __builtin_fmaf(key[u + k / W][k % W], x[k / W], acc[i][k % W]);
        }
}

// Computes the scores of the rows over a chunk. A thread has W positions and every `step`th row, at most R; rows beyond
// the last repeat it. The keys come part by part through `stage`; u has the first part, then the first of the values.
template <int Type, int R, int W, int Ahead, int Units, class Shared, class Load>
DUET_DEVICE void attn_scores(const attention_args& a, const attn_rows& rows, const uint8_t* head, int base,
                             int fresh_at, cache_unit<Type> (&u)[Ahead][Units], const attn_memory<Shared>& m,
                             Load load_values) {
    const Shared q = m.q, score = m.score, stage = m.stage;
    const cache_args& c = a.cache;
    constexpr int kThreads = kAttnChunk / W, kStep = kRun / (kHasWideWarps ? W : 1);
    const int p = thread_id() % kThreads * W, step = kGpuThreads / kThreads, n_rows = rows.n_toks * rows.n,
              r0 = uniform_in_segment(thread_id() / kThreads), stride = attn_stride(c.k_dim),
              n_step = a.stage / kAttnChunk;
    int q_at[R];
    for (int i = 0; i < R; i++) q_at[i] = (r0 + i * step < n_rows ? r0 + i * step : n_rows - 1) * stride;
    float total[R][W] = {}, acc[R][W] = {};
    for (int first = 0, part = 1; first < c.k_dim; first += n_step, part++) {
        const int n = c.k_dim - first < n_step ? c.k_dim - first : n_step, next = first + n;
        store_part<Type, true>(u[0], n * kAttnChunk, stage);
        sync_block();
        if (fresh_at >= 0) {
            DUET_ROLLED
            for (int j = thread_id(); j < n; j += kGpuThreads)
                stage[j * kAttnChunk + fresh_at] = q[rows.n * stride + first + j];
            sync_block();
        }
        if (next < c.k_dim) next_part<Type, true>(head, c.k_dim, c.k_dim * kAttnChunk, a.stage, part, u);
        else load_values();
        int j = 0;
        DUET_ROLLED
        for (; j + kStep <= n; j += kStep) add_scores<kStep>(stage, j * kAttnChunk + p, q, q_at, first + j, acc);
        DUET_ROLLED
        for (; j < n; j++) add_scores<1>(stage, j * kAttnChunk + p, q, q_at, first + j, acc);
        sync_block();
        if (next % kGroup != 0 && next < c.k_dim) continue;
        // ALiBi: the position is one more element of the key, in the last group or in a group of its own.
        const bool is_last = a.slopes && !a.both_ways && next == c.k_dim, is_whole = c.k_dim % kGroup == 0;
        for (int i = 0; i < R; i++) {
            const int r = r0 + i * step < n_rows ? r0 + i * step : n_rows - 1;
            float slope = 0.0f;  // A load that may be missing is waited for here, and the values not yet.
            if (is_last) slope = a.slopes[rows.head0 + (Ahead > 1 ? r : r % rows.n)];
            for (int e = 0; e < W; e++) {
                float &sum = total[i][e], &now = acc[i][e];
                const float at = (float)(base + p + e);
                if (!is_last) sum = sum + now;
                else if (is_whole) sum = (sum + now) + __builtin_fmaf(at, slope, 0.0f);
                else sum = sum + __builtin_fmaf(at, slope, now);
                now = 0.0f;
            }
        }
    }
    for (int e = 0; e < R * W; e++) {
        const int r = r0 + e / W * step, at = p + e % W, tok = rows.tok + (r < n_rows ? r : 0) / rows.n;
        float s = exact_attn_score(total[e / W][e % W], a.scale, a.cap);
        if (a.slopes && a.both_ways) s = exact_alibi_both(s, a.slopes[rows.head0 + r % rows.n], c.pos[tok] - base - at);
        score[r * kRowWords + at] = s;
    }
}

// Takes the softmax of a chunk's scores. A segment takes a row, and lane l holds positions l and l + 32. `state` gets
// max, sum, and factors of old and new values; the latter is 2 without old ones, -1 where the row sees nothing here.
template <bool Split, class Shared>
DUET_DEVICE void attn_softmax(const attn_rows& rows, int base, Shared score, Shared state) {
    const float low = -float_of(0x7f800000u);
    for (int r = uniform_in_segment(thread_id() / kSegment); r < rows.n_toks * rows.n; r += kGpuThreads / kSegment) {
        const auto [first, end] = bounds_of<Split>(rows, state, r);
        const int l = thread_id() % kSegment, at = base + l;
        if (!Split && (base >= end || base + kAttnChunk <= first)) {
            if (l == 0) state[r * kRowWords + 3] = -1.0f;
            continue;
        }
        const bool seen0 = at >= first && at < end, seen1 = at + 32 >= first && at + 32 < end;
        const float s0 = seen0 ? (float)score[r * kRowWords + l] : low,
                    s1 = seen1 ? (float)score[r * kRowWords + l + 32] : low;
        const float m = segment_max(s1 > s0 ? s1 : s0);
        const float p0 = seen0 ? exact_exp(s0 - m) : 0.0f, p1 = seen1 ? exact_exp(s1 - m) : 0.0f;
        score[r * kRowWords + l] = p0;
        score[r * kRowWords + l + 32] = p1;
        const attn_state st{m, segment_sum(p0 + p1)};
        if (l != 0) continue;
        if (Split || base <= first) {  // This is the row's first chunk.
            state[r * kRowWords] = st.max;
            state[r * kRowWords + 1] = st.sum;
            state[r * kRowWords + 3] = 2.0f;
            continue;
        }
        const attn_state old{state[r * kRowWords], state[r * kRowWords + 1]};  // as exact_attn_merge
        const float top = st.max > old.max ? st.max : old.max, f0 = exact_exp(old.max - top),
                    f1 = exact_exp(st.max - top);
        state[r * kRowWords] = top;
        state[r * kRowWords + 1] = __builtin_fmaf(old.sum, f0, st.sum * f1);
        state[r * kRowWords + 2] = f0;
        state[r * kRowWords + 3] = f1;
    }
}

// Adds up the weighted values of a chunk. A thread has W columns of R rows; what it adds up for rows behind the last
// is not kept. Values come by parts through `stage`, of positions, or columns where they are the keys; u has the first.
template <bool Split, int Type, int R, bool InKeys, int W, int Ahead, int Units, class Shared>
DUET_DEVICE void attn_values(const attention_args& a, const attn_rows& rows, const uint8_t* head, int base,
                             int fresh_at, cache_unit<Type> (&u)[Ahead][Units], const attn_memory<Shared>& m) {
    const Shared score = m.score, state = m.state, o = m.o, stage = m.stage;
    const cache_args& c = a.cache;
    const int d = c.v_dim, n_rows = rows.n_toks * rows.n, n_step = a.value_step,
              n_wide = InKeys ? a.stage / kAttnChunk : W * kGpuThreads, own = (rows.n + !InKeys) * attn_stride(c.k_dim);
    for (int c0 = 0, part = 1; c0 < d; c0 += n_wide) {
        const int n_cols = d - c0 < n_wide ? d - c0 : n_wide, n_threads = n_cols / W, group = thread_id() / n_threads,
                  col = (thread_id() - group * n_threads) * W, r0 = group * R;
        // The first row ends first, and the last row begins last.
        const auto [latest, last_end] = bounds_of<Split>(rows, state, n_rows - 1);
        const int low = latest - base, last = last_end - base, high = bounds_of<Split>(rows, state, 0).end - base;
        float acc[R][W] = {};
        for (int p0 = 0; p0 < kAttnChunk; p0 += n_step) {
            const int n = kAttnChunk - p0 < n_step ? kAttnChunk - p0 : n_step;
            store_part<Type, InKeys>(u[0], InKeys ? n_cols * kAttnChunk : n * d, stage);
            sync_block();
            if (fresh_at >= p0 && fresh_at < p0 + n) {
                DUET_ROLLED
                for (int j = thread_id(); j < (InKeys ? n_cols : d); j += kGpuThreads)
                    stage[InKeys ? j * kAttnChunk + fresh_at : (fresh_at - p0) * d + j] = m.q[own + c0 * InKeys + j];
                sync_block();
            }
            const bool is_end = p0 + n == kAttnChunk;
            if (is_end && !InKeys) part = 0;
            if (!is_end || c0 + n_cols < d)
                next_part<Type, InKeys>(head, InKeys ? c.k_dim : d, d * kAttnChunk, InKeys ? a.stage : n_step * d, part,
                                        u);
            part++;
            const int top = high < p0 + n ? high : p0 + n, value_at = InKeys ? col * kAttnChunk : c0 + col - p0 * d,
                      end = last < p0 + n ? last : p0 + n;
            DUET_ROLLED
            for (int p = p0; p < end && r0 < n_rows;) {
                float w[4];
                if (p >= low && p + kTurn <= top && p % 4 == 0) {  // All rows see them.
                    DUET_UNROLL
                    for (int run = 0; run < 2 && (run == 0 || kTurn == 8 || p + 4 <= top); run++, p += 4) {
                        float v[4][W];
                        loads_before();
                        for (int e = 0; e < W && InKeys; e++) {
                            load_words(stage, value_at + e * kAttnChunk + p, w);
                            for (int k = 0; k < 4; k++) v[k][e] = w[k];
                        }
                        for (int k = 0, at = value_at + p * d; k < 4 && !InKeys; k++, at += d)
                            load_words(stage, at, v[k]);
                        for (int i = 0; i < R; i++) {
                            load_words(score, (r0 + i) * kRowWords + p, w);
                            for (int k = 0; k < 4 * W; k++)
                                acc[i][k % W] = __builtin_fmaf(w[k / W], v[k / W][k % W], acc[i][k % W]);
                        }
                    }
                    continue;
                }
                for (int e = 0; e < W; e++) w[e] = stage[value_at + (InKeys ? e * kAttnChunk + p : p * d + e)];
                for (int i = 0; i < R; i++) {
                    const auto [first, end] = bounds_of<Split>(rows, state, r0 + (n_rows - r0 > i) * i);
                    const float weight = score[(r0 + i) * kRowWords + p];
                    for (int e = 0; e < W && base + p >= first && base + p < end; e++)
                        acc[i][e] = __builtin_fmaf(weight, w[e], acc[i][e]);
                }
                p++;
            }
            sync_block();
        }
        for (int i = 0; i < R && r0 + i < n_rows; i++) {
            const int r = r0 + i, to = r * d + c0 + col;
            const float factor = Split ? 2.0f : (float)state[r * kRowWords + 3];
            if (factor < 0.0f) continue;  // The row sees nothing of this chunk.
            for (int e = 0; e < W; e++)
                if (factor > 1.0f) o[to + e] = acc[i][e];
                else o[to + e] = __builtin_fmaf(o[to + e], state[r * kRowWords + 2], acc[i][e] * factor);
        }
    }
}

// ---- mode fast ----
// Loads a chunk's keys or values, (n_k, n_lines) f16 in the cache, for store_lines. There are at most 1,024 units of 8.
DUET_DEVICE void load_lines(const uint8_t* from, int n_k, int n_lines, word4 (&u)[2][2]) {
    for (int j = 0; j < 2; j++) {
        const int i = thread_id() + j * kGpuThreads, at = i < n_k * n_lines / 16 ? i : 0;
        const int k = at % n_k / 2 * 2, line = (at / n_k * 2 + at % 2) * 8;
        for (int odd = 0; odd < 2; odd++) u[j][odd] = ((const word4*)from)[((k + odd) * n_lines + line) / 8];
    }
    loads_before();
}

// Writes them to shared memory as lines of tile_product, 32 elements k to a tile, after all lines the next 32. Elements
// from n on are zeros: nobody may have written them, and 0 times what lies there may be NaN.
template <class Shared>
DUET_DEVICE void store_lines(const word4 (&u)[2][2], int n_k, int n, int n_lines, Shared stage, int first) {
    for (int j = 0; j < 2; j++) {
        const int i = thread_id() + j * kGpuThreads, k = i % n_k / 2, line = (i / n_k * 2 + i % 2) * 8;
        const uint32_t there = 2 * k + 1 < n ? ~0u : 2 * k < n ? 0xffffu : 0u;
        for (int e = 0; e < 8 && i < n_k * n_lines / 16; e++)
            stage[first + (k / 16 * n_lines + line + e) * kTileStride + k % 16] = float_of(
                pack_pair((int)(u[j][0].w[e / 2] >> e % 2 * 16), (int)(u[j][1].w[e / 2] >> e % 2 * 16)) & there);
    }
}

// Walks the chunks as attention does, but the products of queries with keys and of weights with values are those of the
// units for float tiles, with queries and weights rounded to f16. Rows that do not exist repeat the last one.
template <class Shared>
DUET_DEVICE void attn_tiles(const attention_args& a, const attn_rows& rows, const int32_t* pages, int first_chunk,
                            int last_chunk, int kv_head, const attn_memory<Shared>& m) {
    const cache_args& c = a.cache;
    const Shared stage = m.stage;
    const int n_rows = rows.n_toks * rows.n, stride = attn_stride(c.k_dim), warp = thread_id() / warp_width(),
              n_warps = kGpuThreads / warp_width(), weights = c.k_dim / 32 * kFastRows * kTileStride,
              lines = weights + kAttnChunk / 32 * kFastRows * kTileStride;
    // Writes pair k of each row to its line.
    auto put_rows = [&](int first, int n_pairs, Shared from, int from_stride) {
        DUET_ROLLED
        for (int i = thread_id(); i < kFastRows * n_pairs; i += kGpuThreads) {
            const int r = i / n_pairs, k = i % n_pairs, at = (r < n_rows ? r : n_rows - 1) * from_stride + 2 * k;
            stage[first + (k / 16 * kFastRows + r) * kTileStride + k % 16] =
                float_of(round_pair<float_f16>(from[at], from[at + 1]));
        }
    };
    put_rows(0, c.k_dim / 2, m.q, stride);
    const uint8_t* head = cache_chunk(c, pages[first_chunk], kv_head);
    word4 u[2][2];
    load_lines(head, c.k_dim, kAttnChunk, u);
    for (int chunk = first_chunk; chunk <= last_chunk; chunk++) {
        const int base = chunk * kAttnChunk;
        store_lines(u, c.k_dim, c.k_dim, kAttnChunk, stage, lines);
        load_lines(head + c.k_bytes, kAttnChunk, c.v_dim, u);
        sync_block();
        for (int t = warp; t < kAttnChunk / 16; t += n_warps) {
            float qk[8] = {};
            for (int k = 0; k < c.k_dim / 32; k++)
                tile_product<float_f16>(stage, lines + (k * kAttnChunk + t * 16) * kTileStride, stage,
                                        k * kFastRows * kTileStride, qk);
            for (int e = 0; e < tile_elems(); e++)
                if (tile_token(e) < n_rows)
                    m.score[tile_token(e) * kRowWords + t * 16 + tile_row(e)] = exact_attn_score(qk[e], a.scale, a.cap);
        }
        sync_block();
        store_lines(u, kAttnChunk, rows.end - base, c.v_dim, stage, lines);
        if (chunk < last_chunk) load_lines(head = cache_chunk(c, pages[chunk + 1], kv_head), c.k_dim, kAttnChunk, u);
        attn_softmax<false>(rows, base, m.score, m.state);
        sync_block();
        put_rows(weights, kAttnChunk / 2, m.score, kRowWords);
        sync_block();
        for (int t = warp; t < c.v_dim / 16; t += n_warps) {
            float sum[8] = {};
            for (int k = 0; k < kAttnChunk / 32; k++)
                tile_product<float_f16>(stage, lines + (k * c.v_dim + t * 16) * kTileStride, stage,
                                        weights + k * kFastRows * kTileStride, sum);
            for (int e = 0; e < tile_elems(); e++) {
                const int r = tile_token(e), at = r * c.v_dim + t * 16 + tile_row(e);
                if (r >= n_rows) continue;
                const float factor = m.state[r * kRowWords + 3];
                if (factor > 1.0f) m.o[at] = sum[e];
                else if (factor >= 0.0f) m.o[at] = __builtin_fmaf(m.o[at], m.state[r * kRowWords + 2], sum[e] * factor);
            }
        }
        sync_block();
    }
}

// out = attention of q over the cache (exact_attn_chunk; chunks merged in order; sink; finish)
// q (n_tok, n_heads, k_dim), out (n_tok, n_heads, v_dim) f32; n_heads / n_kv_heads query heads share a key/value head
// grid (n_kv_heads * ceil(group / heads_per_block), ceil(n_tok / toks_per_block), n_chunks or more if Split), block 256
// shared: launch_attention counts it; moves the chunks' keys and values once per block, and the f32 of its rows
// Type is the cache's. With Split a block does one chunk of one token and leaves (max, sum, values); the last block of
// a group of chunks, kMergeStep + 1, merges them. Its keys are on their way while queries are made ready, its values
// while scores are computed. Without Split a block walks all chunks in order, for the rows of several tokens. With k.at
// (one token to a block, and no token sees another) the kernel also prepares queries and keys, and the block with the
// token's own chunk appends key and value to the cache; it takes them from shared memory. Blocks that share a key/value
// head append the same bytes, and only read other ones. Fast: mode fast, where the chip has units for it (f16, k.at
// null, at most kFastRows rows, dims of at most 128). Grouped: chunks are merged by groups.
// source: own; softmax chunk by chunk as Milakov and Gimelshein (arXiv 1805.02867)
template <bool Split, int Type, bool Fast = false, bool Grouped = true>
DUET_DEVICE void attention(const attention_args& a, const block_place& here = {}) {
    const cache_args& c = a.cache;
    const int group = a.group, n_slices = a.n_slices, kv_head = n_slices == 1 ? here.x : here.x / n_slices,
              in_group = (here.x - kv_head * n_slices) * a.heads_per_block, tid = thread_id(), lane = tid % kSegment,
              segment = uniform_in_segment(tid / kSegment), n_segments = kGpuThreads / kSegment,
              n_threads = kGpuThreads, stride = attn_stride(c.k_dim), v_stride = attn_stride(c.v_dim);
    constexpr int W = Split ? 1 : 2;  // positions of a thread in scores, columns of values
    const int most = a.heads_per_block * a.toks_per_block, tok_end = here.y * a.toks_per_block + a.toks_per_block;
    const int n_left = group - in_group, n_heads = n_left < a.heads_per_block ? n_left : a.heads_per_block;
    attn_rows rows{here.y * a.toks_per_block, 1, n_heads, kv_head * group + in_group, 0, 0};
    auto room = [at = (size_t)0](int n) mutable { return (at += (size_t)n) * 4 - (size_t)n * 4; };
    const int n_q = Fast ? most * stride : (most + 1) * stride + v_stride, n_score = most * kRowWords;
    auto q = shared_array<float>(room(n_q), n_q);  // and the token's own key and value
    auto o = shared_array<float>(room(most * v_stride), most * v_stride);
    auto score = shared_array<float>(room(n_score), n_score + kBehind);  // and behind a row's scores its state
    auto state = shared_array<float>(room(0) - (size_t)(n_score - kAttnChunk) * 4, n_score + kBehind - kAttnChunk);
    auto stage = shared_array<float>(room(0), a.stage);
    const int quarter = tid / kAngleThreads, i_angle = tid % kAngleThreads;
    const head_prepare& own = quarter >= 2 ? a.k_prepare : a.q_prepare;
    const int n_angles = !Fast && own.angles ? own.half : 0;
    for (; rows.tok < tok_end && rows.tok < a.n_tok; rows.tok += rows.n_toks) {
        // The block takes tokens of one sequence together. Their page tables begin at one place.
        const int page0 = c.page_start[rows.tok], pos = c.pos[rows.tok], until = a.until[rows.tok];
        loads_before();  // One wait for the three.
        rows.low = attn_seen_from(a, pos);
        const int first_seen = rows.low / kAttnChunk, first_chunk = Split ? here.z : first_seen;
        const int page = c.pages[page0 + first_chunk];  // A chunk that is not there has a number, too.
        const size_t angle_at = ((size_t)rows.tok * 2 + quarter % 2) * own.n_freq;
        const float angle = (i_angle < n_angles ? own.angles : a.q.at)[i_angle < n_angles ? angle_at + i_angle : 0];
        loads_before();
        rows.n_toks = 1;
        while (!Split && rows.tok + rows.n_toks < tok_end && rows.tok + rows.n_toks < a.n_tok &&
               c.page_start[rows.tok + rows.n_toks] == page0)
            rows.n_toks++;
        rows.end = (Split ? until : a.until[rows.tok + rows.n_toks - 1]) + 1;
        const int last_seen = (rows.end - 1) / kAttnChunk, last_chunk = Split ? here.z : last_seen;
        if (Split && (first_chunk < first_seen || last_chunk > last_seen))  // All threads of the block return.
            return fetch_ahead(a.ahead, (here.z - last_seen - 1) * c.n_kv_heads * n_slices + here.x);
        const bool is_own = a.k.at && last_chunk == last_seen;
        const int n_rows = rows.n_toks * rows.n, n_own = !is_own ? 0 : c.v_in_k ? 1 : 2, key0 = rows.n * stride;
        DUET_ROLLED
        for (int r = segment; r < n_rows + n_own; r += n_segments) {
            const bool is_q = r < n_rows;
            const heads_args& from = is_q ? a.q : r == n_rows ? a.k : a.v;
            const int tok = rows.tok + (Split || !is_q ? 0 : r / rows.n), d = r > n_rows ? c.v_dim : c.k_dim,
                      head = is_q ? rows.head0 + r - (tok - rows.tok) * rows.n : kv_head;
            const float* x = from.at + (size_t)tok * from.stride + (size_t)head * from.head_stride;
            DUET_ROLLED
            for (int j0 = lane; j0 < d; j0 += kQueryLoads * kSegment) {
                float v[kQueryLoads];
                for (int k = 0; k < kQueryLoads; k++) v[k] = x[j0 + k * kSegment < d ? j0 + k * kSegment : j0];
                loads_before();
                for (int k = 0; k < kQueryLoads; k++)
                    if (j0 + k * kSegment < d) q[r * stride + j0 + k * kSegment] = v[k];
            }
        }
        if (const int r = tid; !Split && r < n_rows) {
            const int tok = rows.tok + r / rows.n;
            state[r * kRowWords + 4] = float_of((uint32_t)attn_seen_from(a, c.pos[tok]));
            state[r * kRowWords + 5] = float_of((uint32_t)a.until[tok] + 1);
        }
        stage[quarter * attn_half(a) + i_angle] = angle;
        DUET_ROLLED
        for (int j = i_angle + kAngleThreads; j < n_angles; j += kAngleThreads)
            stage[quarter * attn_half(a) + j] = own.angles[angle_at + j];
        uint8_t* head = cache_chunk(c, page, kv_head);
        const attn_memory<decltype(q)> m{q, score, o, state, stage};
        cache_unit<Type> u[Split ? 2 : 1][attn_units(Type)];
        auto load_keys = [&] { next_part<Type, true>(head, c.k_dim, c.k_dim * kAttnChunk, a.stage, 0, u); };
        auto load_values = [&] {
            const int all = c.v_dim * kAttnChunk;
            if (c.v_in_k) next_part<Type, true>(head, c.k_dim, all, a.stage, 0, u);
            else next_part<Type, false>(head + c.k_bytes, c.v_dim, all, a.value_step * c.v_dim, 0, u);
        };
        // Where blocks share the head, each reads what it has written, because others write the same.
        const bool is_late = !Split || (is_own && n_slices > 1);
        if (!is_late) load_keys();
        if (!Fast && a.k.at) prepare_heads(a, q, rows.n, is_own, rows.head0, kv_head, stage);
        else sync_block();
        DUET_ROLLED
        for (int i = tid; a.q_factor && i < n_rows * stride; i += n_threads)
            if (i % stride < c.k_dim) q[i] = q[i] * a.q_factor[rows.tok + i / (rows.n * stride)];
        DUET_ROLLED
        for (int e = tid; e < (n_own ? c.k_dim + (n_own - 1) * c.v_dim : 0); e += n_threads) {
            const bool is_key = e < c.k_dim;
            const int j = is_key ? e : e - c.k_dim, at = key0 + (is_key ? 0 : stride) + j;
            const int tok = rows.tok, now = c.pos[tok];  // Values that are at hand would be kept for all of the kernel.
            uint8_t* chunk = Split ? head : cache_chunk(c, c.pages[c.page_start[tok] + now / kAttnChunk], kv_head);
            q[at] = cache_write<Type>(c, is_key, chunk, now % kAttnChunk, j, q[at]);
        }
        if (is_late) sync_block();
        if constexpr (Fast) attn_tiles(a, rows, c.pages + page0, first_chunk, last_chunk, kv_head, m);
        else if (is_late) load_keys();
        for (int chunk = first_chunk; chunk <= last_chunk && !Fast; chunk++) {
            const int base = chunk * kAttnChunk,
                      fresh_at = is_own && (Split || chunk == pos / kAttnChunk) ? pos % kAttnChunk : -1;
            if (n_rows * kAttnChunk <= W * kGpuThreads)
                attn_scores<Type, 1, W>(a, rows, head, base, fresh_at, u, m, load_values);
            else attn_scores<Type, 2, W>(a, rows, head, base, fresh_at, u, m, load_values);
            sync_block();
            attn_softmax<Split>(rows, base, score, state);
            sync_block();
            const uint8_t* values = c.v_in_k ? head : head + c.k_bytes;
            if (c.v_in_k) attn_values<Split, Type, kAttnRows, true, W>(a, rows, values, base, fresh_at, u, m);
            else if (n_rows > a.few_rows)
                attn_values<Split, Type, kAttnRows, false, W>(a, rows, values, base, fresh_at, u, m);
            else attn_values<Split, Type, 2, false, W>(a, rows, values, base, fresh_at, u, m);
            if (Split || chunk == last_chunk) break;
            head = cache_chunk(c, c.pages[page0 + chunk + 1], kv_head);
            load_keys();
        }
        sync_block();
        DUET_ROLLED
        for (int r = segment; r < n_rows; r += n_segments) {
            const int tok = rows.tok + (Split ? 0 : r / rows.n), head = rows.head0 + r - (tok - rows.tok) * rows.n;
            float* to = a.partial + (((size_t)tok * a.q.n_heads + head) * a.n_chunks + here.z) * (size_t)(c.v_dim + 2);
            DUET_ROLLED
            for (int j = lane; j < c.v_dim; j += kSegment) {
                const float v = o[r * c.v_dim + j];
                if (Split) store_for_others(to + 2 + j, v);
                else attn_store(a, tok, head, j, {state[r * kRowWords], state[r * kRowWords + 1]}, v);
            }
            if (Split && lane < 2) store_for_others(to + lane, (float)state[r * kRowWords + lane]);
        }
        if constexpr (Split) {
            // A group begins with what those before it have become, whose merge comes to its counter as its chunks do.
            const int i_chunk = here.z - first_seen;
            for (int g = Grouped ? (i_chunk - (i_chunk > 0)) / kMergeStep : 0, is_end = 0; !is_end; g++) {
                const int from = first_seen + g * kMergeStep;
                is_end = !Grouped || last_seen - from <= kMergeStep;
                const int n = (is_end ? last_seen : from + kMergeStep) - from + 1;
                uint32_t* counters =
                    a.counter + (late(here.y) * c.n_kv_heads * n_slices + here.x) * (a.n_chunks / kMergeStep + 1);
                if (!is_last_block(counters + late(g), n, shared_array<int>(0, 1))) break;
                attn_merge(a, rows, from, n, is_end, score, state, o);
            }
            return;  // The split has one token to a block: without a loop nothing is computed before it is wanted.
        }
        sync_block();
    }
}

}  // namespace duet
