// cpu/attention.cpp: the attention cache and attention on the CPU. It puts keys and values into pages and hands chunks
// of 64 positions to the kernels. Results: quant/exact.h.
// Must not know: families, files.
// Main path: cpu/ops.cpp -> [cpu/attention.cpp] -> cpu/kernels.h
#include "context.h"

namespace duet {

constexpr int kTokenBlock = 16;           // most tokens of one piece of attention
constexpr int kHeadBlock = 16;            // most query heads of a piece, which share a key/value head
constexpr size_t kSplitFloats = 1 << 20;  // room for the results of chunks that wait to be merged
constexpr int kHalfRows = 16;  // up to so many rows convert f16 as they compute; more share a converted chunk

namespace {
// split_floats: the floats of one chunk's results, n_heads states and vectors; the merged results take as many.
// split_chunks: the most chunks whose results are kept apart at once.
size_t split_floats(const op& o, const cache_layer& layer) {
    return (size_t)o.in.n_heads * (2 + round_up((size_t)layer.v_dim, 16));
}
int split_chunks(const op& o, const cache_layer& layer, int n_ctx) {
    return std::min((n_ctx + kAttnChunk - 1) / kAttnChunk, std::max(8, (int)(kSplitFloats / split_floats(o, layer))));
}
}  // namespace

size_t split_bytes(const model_graph& g, int n_ctx) {
    size_t n = 0;
    for (const op& o : g.ops)
        if (o.kind == op_kind::attention) {
            const cache_layer& layer = g.caches[(size_t)o.index];
            n = std::max(n, ((size_t)split_chunks(o, layer, n_ctx) + 1) * split_floats(o, layer) * 4);
        }
    return n;
}

size_t attention_scratch_floats(const cpu_layout& l, const model_graph& g) {
    int group = 1;
    for (const op& o : g.ops)
        if (o.kind == op_kind::attention)
            group = std::max(group, std::min(kHeadBlock, o.in.n_heads / g.caches[(size_t)o.index].n_kv_heads));
    const size_t rows = (size_t)kTokenBlock * (size_t)group;
    return round_up((size_t)l.max_k * kAttnChunk, 16) + round_up((size_t)l.max_v * kAttnChunk, 16) +
           rows * (round_up((size_t)l.max_k, 16) + round_up((size_t)l.max_v, 16) + 2 + 4) + kAttnChunk +
           (size_t)l.max_v + 64;
}

namespace {

// Writes one head's d values of a token into a chunk. Element j goes to index j * step + at.
void store_cached(const cpu_context& c, uint8_t* head, const float* x, int d, size_t step, size_t at) {
    if (c.limits.cache_type == DUET_CACHE_F32) {
        for (int j = 0; j < d; j++) ((float*)head)[(size_t)j * step + at] = x[j];
    } else if (c.limits.cache_type == DUET_CACHE_F16) {
        for (int j = 0; j < d; j++) ((uint16_t*)head)[(size_t)j * step + at] = float_to_half(x[j]);
    } else {
        // Codes lie as the elements would. One scale for every 32 values follows them, in the same order.
        uint16_t* scales = (uint16_t*)(head + (size_t)d * kAttnChunk);
        const size_t scale_step = step == 1 ? 1 : step, scale_at = step == 1 ? at / kBlock : at;
        for (int b = 0; b < d / kBlock; b++) {
            int8_t q[kBlock];
            float ds, ts;
            int16_t s16[2];
            exact_quantize_block(x + b * kBlock, q, &ds, &ts, s16);
            for (int j = 0; j < kBlock; j++) ((int8_t*)head)[(size_t)(b * kBlock + j) * step + at] = q[j];
            scales[(size_t)b * scale_step + scale_at] = float_to_half(ds);
        }
    }
}

// Returns a chunk's head as f32 in the same order: keys (d, 64) transposed, or values (64, d).
// Of q8_0, what lies `ahead` bytes further on is fetched meanwhile.
const float* load_cached(const cpu_context& c, const uint8_t* head, int d, bool is_key, ptrdiff_t ahead, float* out) {
    const size_t n = (size_t)d * kAttnChunk;
    if (c.limits.cache_type == DUET_CACHE_F32) return (const float*)head;
    if (c.limits.cache_type == DUET_CACHE_F16) {
        c.kernels->half_to_float((const uint16_t*)head, n, out);
        return out;
    }
    for (size_t i = 0; i < n; i += kBlock * kAttnChunk) {
        alignas(64) float scale[kAttnChunk];
        c.kernels->half_to_float((const uint16_t*)(head + n) + i / kBlock, kAttnChunk, scale);
        c.kernels->codes_to_float((const int8_t*)head + i, scale, is_key, ahead, out + i);
    }
    return out;
}

uint8_t* cached_chunk(const cpu_context& c, int cache, int seq, int chunk) {
    const int group = c.graph.caches[(size_t)cache].group;
    return c.page(group, (*c.batch->pages)[(size_t)group][(size_t)seq][chunk]) + c.layout.places[(size_t)cache].offset;
}

}  // namespace

void run_kv_append(cpu_context& c, const op& o) {
    const cache_layer& layer = c.graph.caches[(size_t)o.index];
    const layer_place& place = c.layout.places[(size_t)o.index];
    for_rows(c, c.batch->n_tok, (size_t)(o.in.width() + o.in2.width()) * 4, [&](int i) {
        const int pos = c.batch->pos[i], at = pos % kAttnChunk;
        uint8_t* chunk = cached_chunk(c, o.index, c.batch->seq[i], pos / kAttnChunk);
        for (int h = 0; h < layer.n_kv_heads; h++) {
            uint8_t* head = chunk + (size_t)h * (place.k_bytes + place.v_bytes);
            store_cached(c, head, c.head(o.in, i, h), layer.k_dim, kAttnChunk, at);
            if (layer.v_in_k) continue;
            store_cached(c, head + place.k_bytes, c.head(o.in2, i, h), layer.v_dim, 1,
                         (size_t)at * (size_t)layer.v_dim);
        }
    });
}

namespace {

// Up to kTokenBlock tokens that follow each other in one sequence.
struct token_run {
    int first, n;
};

// Transposes the first n rows of a decoded key chunk (dims, 64) to values (64, n).
const float* transpose_chunk(const float* k, int n, float* out) {
    for (int i = 0; i < kAttnChunk; i++)
        for (int j = 0; j < n; j++) out[(size_t)i * (size_t)n + (size_t)j] = k[(size_t)j * kAttnChunk + (size_t)i];
    return out;
}

// The chunks first to last of the positions. With `state` and `o`, each chunk's results are kept apart there; without
// them, each chunk is merged at once.
struct chunk_range {
    int first, last;
    attn_state* state = nullptr;  // (chunks, n_heads)
    float* o = nullptr;
};

void finish_head(const cpu_context& c, const op& o, int i_row, int h, attn_state* state, float* values, int n) {
    if (const float* sinks = c.vector_of(o.w)) exact_attn_sink(state, values, sinks[h], n);
    exact_attn_finish(*state, values, n, c.head(o.out, i_row, h));
}

// The last position that token i of the batch sees.
int last_seen(const cpu_context& c, const op& o, int i) {
    const int pos = c.batch->pos[i], window = c.graph.groups[(size_t)c.graph.caches[(size_t)o.index].group].window;
    if (!o.both_ways) return pos;
    return window ? std::min(c.batch->end[i] - 1, pos + window - 1) : c.batch->end[i] - 1;
}

// Computes attention of one run of tokens and `group` query heads, from first_head on, over one key/value head. They
// share each decoded chunk.
void attend(cpu_context& c, const op& o, const token_run& run, int kv_head, int first_head, int group,
            const chunk_range& range, uint8_t* scratch) {
    const cache_layer& layer = c.graph.caches[(size_t)o.index];
    const layer_place& place = c.layout.places[(size_t)o.index];
    const int n_rows = run.n * group, window = c.graph.groups[(size_t)layer.group].window;
    const bool is_row = o.alibi != 0.0f && !o.both_ways;  // ALiBi as one more element of queries and keys
    const int k_dim = layer.k_dim + is_row;
    const size_t q_stride = round_up((size_t)k_dim, 16), o_stride = round_up((size_t)layer.v_dim, 16);
    float* k_chunk = (float*)scratch;
    float* v_chunk = k_chunk + round_up((size_t)k_dim * kAttnChunk, 16);
    float* q = v_chunk + round_up((size_t)layer.v_dim * kAttnChunk, 16);
    float* acc = q + (size_t)n_rows * q_stride;
    attn_state* state = (attn_state*)(acc + (size_t)n_rows * o_stride);
    int* first = (int*)(state + n_rows);
    int* n_pos = first + n_rows;
    int* at = n_pos + n_rows;
    float* slope = (float*)(at + n_rows);
    float* rest = slope + n_rows;
    for (int r = 0; r < n_rows; r++) {
        const int i = run.first + r / group, h = first_head + r % group;
        float* qr = q + (size_t)r * q_stride;
        memcpy(qr, c.head(o.in, i, h), (size_t)layer.k_dim * 4);
        if (o.temperature_scale != 0.0f) {
            const float f = exact_temperature(c.batch->pos[i], o.temperature_scale, o.temperature_length);
            for (int j = 0; j < layer.k_dim; j++) qr[j] = qr[j] * f;
        }
        if (is_row) qr[layer.k_dim] = exact_alibi(h, o.in.n_heads, o.alibi, o.scale);
        else if (o.alibi != 0.0f) slope[r] = exact_alibi(h, o.in.n_heads, o.alibi, 1.0f);
        state[r] = {0.0f, 0.0f};
    }
    const int seq = c.batch->seq[run.first];
    const auto head_of = [&](int chunk) {
        return cached_chunk(c, o.index, seq, chunk) + (size_t)kv_head * (place.k_bytes + place.v_bytes);
    };
    const bool is_half = c.limits.cache_type == DUET_CACHE_F16 && n_rows <= kHalfRows && !layer.v_in_k && !is_row;
    for (int chunk = range.first; chunk <= range.last && !c.cancelled(); chunk++) {
        const int base = chunk * kAttnChunk;
        for (int r = 0; r < n_rows; r++) {
            const int pos = c.batch->pos[run.first + r / group];
            first[r] = window ? std::max(0, pos - window + 1 - base) : 0;
            n_pos[r] = std::min(kAttnChunk, last_seen(c, o, run.first + r / group) + 1 - base);
            at[r] = pos - base;
        }
        const uint8_t* head = head_of(chunk);
        attn_chunk_args a{};
        a.q = q;
        a.q_stride = q_stride;
        a.n_rows = n_rows;
        a.first = first;
        a.n_pos = n_pos;
        a.is_half = is_half;
        const ptrdiff_t ahead = chunk < range.last ? head_of(chunk + 1) - head : 0;
        a.k = is_half ? (const void*)head : load_cached(c, head, layer.k_dim, true, ahead, k_chunk);
        a.v = is_half        ? (const void*)(head + place.k_bytes)
              : layer.v_in_k ? transpose_chunk((const float*)a.k, layer.v_dim, v_chunk)
                             : load_cached(c, head + place.k_bytes, layer.v_dim, false, ahead, v_chunk);
        if (a.k == head) a.ahead = ahead;
        if (is_row) {  // a row of positions follows the keys; the f32 cache has no room for it
            if (a.k != k_chunk) memcpy(k_chunk, a.k, (size_t)layer.k_dim * kAttnChunk * 4);
            a.k = k_chunk;
            for (int i = 0; i < kAttnChunk; i++) k_chunk[layer.k_dim * kAttnChunk + i] = (float)(base + i);
        }
        a.k_dim = k_dim;
        a.v_dim = layer.v_dim;
        a.scale = o.scale;
        a.cap = o.cap;
        a.slope = o.alibi != 0.0f && !is_row ? slope : nullptr;
        a.at = at;
        a.state = state;
        a.o = acc;
        a.o_stride = o_stride;
        a.scratch = rest;
        if (range.state) {
            const size_t at = (size_t)(chunk - range.first) * (size_t)o.in.n_heads + (size_t)first_head;
            a.state = range.state + at;
            a.o = range.o + at * o_stride;
            for (int r = 0; r < n_rows; r++) a.state[r] = {0.0f, 0.0f};
        }
        c.kernels->attn_chunk(a);
    }
    for (int r = 0; r < n_rows && !range.state; r++)
        finish_head(c, o, run.first + r / group, first_head + r % group, &state[r], acc + (size_t)r * o_stride,
                    layer.v_dim);
}

// Shares out one token's positions among the threads. In each round, the threads compute chunks apart, whose results
// are then merged in order.
template <class Attend>
void attend_split(cpu_context& c, const op& o, int i_row, int n_blocks, const chunk_range& all, Attend attend_block) {
    const cache_layer& layer = c.graph.caches[(size_t)o.index];
    const size_t n_heads = (size_t)o.in.n_heads, o_stride = round_up((size_t)layer.v_dim, 16);
    const int n_most = split_chunks(o, layer, c.limits.n_ctx);
    float* whole_o = (float*)c.split.data;  // the vectors, which are aligned, come before the states
    float* part_o = whole_o + n_heads * o_stride;
    attn_state* whole = (attn_state*)(part_o + n_heads * o_stride * (size_t)n_most);
    attn_state* part = whole + n_heads;
    for (size_t h = 0; h < n_heads; h++) whole[h] = {0.0f, 0.0f};
    for (int first = all.first; first <= all.last; first += n_most) {
        const int n = std::min(n_most, all.last + 1 - first), step = std::max(1, n * n_blocks / (4 * c.pool.size())),
                  n_spans = (n + step - 1) / step;
        c.pool.for_each(n_blocks * n_spans, [&](int t, int piece) {
            const size_t at = (size_t)(piece / n_blocks * step) * n_heads;
            const int from = first + piece / n_blocks * step;
            attend_block(t, piece % n_blocks,
                         chunk_range{from, std::min(from + step, first + n) - 1, part + at, part_o + at * o_stride});
        });
        c.pool.for_each((int)n_heads, [&](int, int h) {
            float* ho = whole_o + (size_t)h * o_stride;
            c.kernels->attn_merge(
                {whole + h, ho, part + h, part_o + (size_t)h * o_stride, n_heads, n_heads * o_stride, n, layer.v_dim});
            if (first + n > all.last) finish_head(c, o, i_row, h, whole + h, ho, layer.v_dim);
        });
    }
}

}  // namespace

void run_attention(cpu_context& c, const op& o) {
    const int group = o.in.n_heads / c.graph.caches[(size_t)o.index].n_kv_heads,
              per_group = (group + kHeadBlock - 1) / kHeadBlock;
    const int n_blocks = o.in.n_heads / group * per_group;
    std::vector<token_run> runs;
    for (int i = 0; i < c.batch->n_tok; i++) {
        token_run* last = runs.empty() ? nullptr : &runs.back();
        if (last && last->n < kTokenBlock && c.batch->seq[i] == c.batch->seq[last->first]) last->n++;
        else runs.push_back({i, 1});
    }
    const auto attend_block = [&](int t, const token_run& run, int block, const chunk_range& range) {
        const int kv_head = block / per_group, first = block % per_group * kHeadBlock;
        if (!c.cancelled())
            attend(c, o, run, kv_head, kv_head * group + first, std::min(kHeadBlock, group - first), range,
                   c.thread_scratch(t));
    };
    const int window = c.graph.groups[(size_t)c.graph.caches[(size_t)o.index].group].window;
    const auto chunks_of = [&](const token_run& run) {
        const int last = last_seen(c, o, run.first + run.n - 1);
        return chunk_range{window ? std::max(0, c.batch->pos[run.first] - window + 1) / kAttnChunk : 0,
                           last / kAttnChunk};
    };
    if (const chunk_range range = c.batch->n_tok == 1 ? chunks_of(runs[0]) : chunk_range{0, 0};
        range.last > range.first && n_blocks < 2 * c.pool.size() && c.pool.size() > 1)
        return attend_split(c, o, 0, n_blocks, range,
                            [&](int t, int block, const chunk_range& part) { attend_block(t, runs[0], block, part); });
    c.pool.for_each((int)runs.size() * n_blocks, [&](int t, int piece) {
        const token_run& run = runs[(size_t)(piece / n_blocks)];
        attend_block(t, run, piece % n_blocks, chunks_of(run));
    });
}

}  // namespace duet
