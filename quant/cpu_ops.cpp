// quant/cpu_ops.cpp: the ops of models/ops.h on the CPU: what is computed by which piece of work. Results: quant/exact.h.
// Owns: activation buffers, cache pages, recurrent state, the thread pool of one session. Must not know: families, files.
// Main path: runtime_session.cpp -> models/ops.h -> [quant/cpu_ops.cpp] -> quant/cpu_kernels.h
#include "cpu_kernels.h"
#include "threads.h"
#include "../models/ops.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <new>

namespace duet {
namespace {

constexpr int kFloatsPerLine = 16;   // rows of buffers begin on cache lines
constexpr int kTokenBlock = 16;      // tokens one piece of attention works on

size_t round_up(size_t n, size_t step) { return (n + step - 1) / step * step; }

// Zeroed, 64-byte aligned memory that the system gives page by page when it is touched.
struct aligned_memory {
    void*  data = nullptr;
    size_t n_bytes = 0;
    aligned_memory() = default;
    aligned_memory(const aligned_memory&) = delete;
    aligned_memory& operator=(const aligned_memory&) = delete;
    ~aligned_memory() { free(block_); }
    bool allocate(size_t n) {
        n_bytes = n;
        block_ = calloc(n + 64, 1);
        data = (void*)(((uintptr_t)block_ + 63) & ~(uintptr_t)63);
        return block_ != nullptr;
    }

  private:
    void* block_ = nullptr;
};

// Bytes of one cached head: keys (k_dim, kAttnChunk) transposed, values (kAttnChunk, v_dim); q8_0 codes are followed by f16 scales of 32.
size_t cache_head_bytes(int cache_type, int dim) {
    const size_t n = (size_t)dim * kAttnChunk;
    return cache_type == DUET_CACHE_F32 ? n * 4 : cache_type == DUET_CACHE_F16 ? n * 2 : n + n / kBlock * 2;
}

bool is_quantized(int32_t type) { return type != 0 && type != 1 && type != 30; }

struct layer_place {       // where a cache layer's heads lie in a page of its group
    size_t offset = 0, k_bytes = 0, v_bytes = 0;
};

// All sizes that follow from graph, limits and threads: one computation for plan() and create().
struct layout {
    std::vector<size_t>      row_floats, buffer_offset;   // of each buffer
    size_t                   buffer_bytes = 0;
    std::vector<layer_place> places;
    std::vector<size_t>      page_bytes;                  // of each group
    size_t                   cache_bytes = 0, state_floats = 0;
    std::vector<size_t>      state_offset;
    size_t                   max_in = 0;                  // widest matmul input, rounded to 64
    size_t                   act_bytes = 0, thread_bytes = 0, rope_floats = 0;
    std::vector<size_t>      rope_offset;
    int                      max_k = 0, max_v = 0;

    size_t work_bytes(int n_threads) const { return buffer_bytes + act_bytes + rope_floats * 4 + thread_bytes * (size_t)n_threads; }
};

size_t attention_scratch_floats(const layout& l, const model_graph& g) {
    int group = 1;
    for (const op& o : g.ops)
        if (o.kind == op_kind::attention) group = std::max(group, o.in.n_heads / g.caches[(size_t)o.index].n_kv_heads);
    const size_t rows = (size_t)kTokenBlock * (size_t)group;
    return round_up((size_t)l.max_k * kAttnChunk, 16) + round_up((size_t)l.max_v * kAttnChunk, 16) +
           rows * (round_up((size_t)l.max_k, 16) + round_up((size_t)l.max_v, 16) + 2 + 2) + kAttnChunk + (size_t)l.max_v + 64;
}

layout make_layout(const model_graph& g, const exec_limits& limits) {
    layout l;
    for (const buffer_info& b : g.buffers) {
        l.row_floats.push_back(round_up((size_t)b.width, kFloatsPerLine));
        l.buffer_offset.push_back(l.buffer_bytes);
        l.buffer_bytes += l.row_floats.back() * 4 * (size_t)(b.wanted_rows ? limits.max_wanted : limits.max_batch);
    }
    l.page_bytes.assign(g.groups.size(), 0);
    for (const cache_layer& c : g.caches) {
        size_t& at = l.page_bytes[(size_t)c.group];
        layer_place p{at, cache_head_bytes(limits.cache_type, c.k_dim), cache_head_bytes(limits.cache_type, c.v_dim)};
        at += round_up((p.k_bytes + p.v_bytes) * (size_t)c.n_kv_heads, 64);
        l.places.push_back(p);
        l.max_k = std::max(l.max_k, c.k_dim);
        l.max_v = std::max(l.max_v, c.v_dim);
    }
    for (size_t i = 0; i < g.groups.size(); i++) l.cache_bytes += l.page_bytes[i] * (size_t)limits.n_pages[i];
    for (const state_layer& s : g.states) {
        l.state_offset.push_back(l.state_floats);
        l.state_floats += round_up((size_t)s.n_floats, kFloatsPerLine);
    }
    for (const op& o : g.ops)
        if (o.kind == op_kind::matmul) l.max_in = std::max(l.max_in, round_up((size_t)o.in.width(), 64));
    const size_t n = (size_t)limits.max_batch * l.max_in;
    l.act_bytes = n + round_up(n / 32 * 4, 64) * 2 + round_up(n / 16 * 2, 64);
    for (const rope_table& r : g.ropes) {
        l.rope_offset.push_back(l.rope_floats);
        l.rope_floats += r.freq.size() * 2 * (size_t)limits.max_batch;
    }
    const size_t tile = (size_t)limits.max_batch * 4 * kTileRows * 4;   // results of a piece before they are added to the residual
    l.thread_bytes = round_up(std::max(matmul_scratch_bytes((int)l.max_in) + tile, attention_scratch_floats(l, g) * 4), 4096);
    return l;
}

struct cpu_context {
    const model_graph& g;
    exec_limits        limits;
    const cpu_kernels* k;
    layout             l;
    thread_pool        pool;
    aligned_memory     buffers, cache, states, act, rope, scratch;
    std::vector<uint8_t*>  group_pages;      // first page of each group
    std::vector<uint8_t>   reuses_act;       // per op: a matmul whose input is quantized already
    bool                   profiling = false;
    std::vector<profile_entry> rows;
    std::vector<int>       row_of_op;

    const exec_batch*           batch = nullptr;
    const std::atomic<int32_t>* cancel = nullptr;

    cpu_context(const model_graph& graph, const exec_limits& lim) : g(graph), limits(lim), k(nullptr), l(make_layout(graph, lim)) {}

    bool   cancelled() const { return cancel && cancel->load(std::memory_order_relaxed) != 0; }
    int    n_rows(const view& v) const { return g.buffers[(size_t)v.buffer].wanted_rows ? batch->n_wanted : batch->n_tok; }
    size_t stride(const view& v) const { return l.row_floats[(size_t)v.buffer]; }
    float* row(const view& v, int i) const {
        return (float*)((uint8_t*)buffers.data + l.buffer_offset[(size_t)v.buffer]) + (size_t)i * stride(v) + v.offset;
    }
    const float* vector_of(weight_id w) const { return w < 0 ? nullptr : (const float*)g.weights[(size_t)w].data; }
    uint8_t* page(int group, int index) const { return group_pages[(size_t)group] + (size_t)index * l.page_bytes[(size_t)group]; }
    uint8_t* thread_scratch(int t) const { return (uint8_t*)scratch.data + (size_t)t * l.thread_bytes; }

    act_matrix acts(int n_tok) const {
        const size_t n = (size_t)limits.max_batch * l.max_in;
        uint8_t* at = (uint8_t*)act.data;
        act_matrix a{};
        a.q = (const int8_t*)at;
        a.d = (const float*)(at += n);
        a.t = (const float*)(at += round_up(n / 32 * 4, 64));
        a.s16 = (const int16_t*)(at += round_up(n / 32 * 4, 64));
        a.q_stride = l.max_in;
        a.n_tok = n_tok;
        return a;
    }
};

// ---- one function per kind of op ------------------------------------------------------------------------------------------------------

// Calls f(i_row) for all rows, in parallel when there is enough work.
template <class F>
void for_rows(cpu_context& c, int n, size_t work_per_row, F f) {
    if ((size_t)n * work_per_row < 16384) {
        for (int i = 0; i < n; i++) f(i);
        return;
    }
    c.pool.for_each(n, [&](int, int i) {
        if (!c.cancelled()) f(i);
    });
}

void run_embed(cpu_context& c, const op& o) {
    const weight& w = c.g.weights[(size_t)o.w];
    for_rows(c, c.batch->n_tok, (size_t)w.n_in * 4, [&](int i) {
        const int32_t id = o.by_position ? c.batch->pos[i] : c.batch->token[i];
        float* out = c.row(o.out, i);
        duet_dequantize_row(w.type, w.data + (size_t)id * w.row_bytes, w.n_in, out);
        if (o.scale != 1.0f)
            for (int64_t j = 0; j < w.n_in; j++) out[j] = out[j] * o.scale;
    });
}

void run_norm(cpu_context& c, const op& o) {
    const float *w = c.vector_of(o.w), *b = c.vector_of(o.b);
    const int d = o.in.head_dim;
    for_rows(c, c.n_rows(o.in), (size_t)o.in.width() * 2, [&](int i) {
        for (int h = 0; h < o.in.n_heads; h++) {
            const float* x = c.row(o.in, i) + (size_t)h * (size_t)o.in.stride;
            float*       y = c.row(o.out, i) + (size_t)h * (size_t)o.out.stride;
            const float* wh = w ? w + (size_t)h * (size_t)o.w_stride : nullptr;
            if (o.norm == norm_kind::rms) c.k->rms_norm(x, wh, d, o.eps, y);
            else if (o.norm == norm_kind::layer) exact_layer_norm(x, wh, b, d, o.eps, y);
            else exact_l2_norm(x, d, o.eps, y);
        }
    });
}

void quantize_input(cpu_context& c, const op& o, int n_tok) {
    const act_matrix a = c.acts(n_tok);
    const int n = o.in.width();
    for_rows(c, n_tok, (size_t)n * 2, [&](int i) {
        c.k->quantize(c.row(o.in, i), n, (int8_t*)a.q + (size_t)i * a.q_stride, (float*)a.d + (size_t)i * (a.q_stride / 32),
                      (float*)a.t + (size_t)i * (a.q_stride / 32), (int16_t*)a.s16 + (size_t)i * (a.q_stride / 16));
    });
}

void run_matmul(cpu_context& c, const op& o, bool reuse) {
    const weight& w = c.g.weights[(size_t)o.w];
    const int n_tok = c.n_rows(o.in), n_out = (int)w.n_out;
    if (n_tok == 0) return;
    if (is_quantized(w.type) && !reuse) quantize_input(c, o, n_tok);
    const float* bias = c.vector_of(o.b);
    // pieces of 16..64 rows, at least eight for each thread where the matrix has them
    int tiles = 4;
    while (tiles > 1 && n_out / (tiles * kTileRows) < 8 * c.pool.size()) tiles /= 2;
    const int rows_per_piece = tiles * kTileRows, n_pieces = (n_out + rows_per_piece - 1) / rows_per_piece;
    c.pool.for_each(n_pieces, [&](int t, int i_piece) {
        if (c.cancelled()) return;
        const int r0 = i_piece * rows_per_piece, n = std::min(rows_per_piece, n_out - r0);
        matmul_args m{};
        m.w = w.data + (size_t)r0 * w.row_bytes;
        m.row_bytes = w.row_bytes;
        m.n_in = (int)w.n_in;
        m.n_rows = n;
        m.a = c.acts(n_tok);
        m.a.x = c.row(o.in, 0);
        m.a.x_stride = c.stride(o.in);
        m.scratch = c.thread_scratch(t);
        float* tile = (float*)(c.thread_scratch(t) + matmul_scratch_bytes((int)c.l.max_in));
        m.y = o.residual ? tile : c.row(o.out, 0) + r0;
        m.y_stride = o.residual ? (size_t)rows_per_piece : c.stride(o.out);
        c.k->matmul[w.type](m);
        if (!o.residual && !bias && o.scale == 1.0f) return;
        for (int i = 0; i < n_tok; i++) {
            float* y = m.y + (size_t)i * m.y_stride;
            float* out = c.row(o.out, i) + r0;
            for (int r = 0; r < n; r++) {
                float v = bias ? y[r] + bias[r0 + r] : y[r];
                if (o.scale != 1.0f) v = v * o.scale;
                out[r] = o.residual ? out[r] + v : v;
            }
        }
    });
}

// Angles of the batch's positions, once per batch for each table.
void make_angles(cpu_context& c) {
    for (size_t t = 0; t < c.g.ropes.size(); t++) {
        const rope_table& table = c.g.ropes[t];
        const size_t n = table.freq.size();
        for_rows(c, c.batch->n_tok, n * 128, [&](int i) {
            float* at = (float*)c.rope.data + c.l.rope_offset[t] + (size_t)i * n * 2;
            for (size_t j = 0; j < n; j++) exact_rope_angle(c.batch->pos[i], table.freq[j], table.magnitude, at + j, at + n + j);
        });
    }
}

void run_rope(cpu_context& c, const op& o) {
    const size_t n = c.g.ropes[(size_t)o.index].freq.size();
    const int half = o.rope_dim / 2;
    for_rows(c, c.batch->n_tok, (size_t)o.in.width(), [&](int i) {
        const float* cos_a = (const float*)c.rope.data + c.l.rope_offset[(size_t)o.index] + (size_t)i * n * 2;
        const float* sin_a = cos_a + n;
        for (int h = 0; h < o.in.n_heads; h++) {
            float* x = c.row(o.in, i) + (size_t)h * (size_t)o.in.stride;
            for (int j = 0; j < half; j++)
                exact_rotate(o.neox ? x + j : x + 2 * j, o.neox ? x + j + half : x + 2 * j + 1, cos_a[j], sin_a[j]);
        }
    });
}

// Writes one head's d values of a token into a chunk: element j goes to index j * step + at.
void store_cached(const cpu_context& c, uint8_t* head, const float* x, int d, size_t step, size_t at) {
    if (c.limits.cache_type == DUET_CACHE_F32) {
        for (int j = 0; j < d; j++) ((float*)head)[(size_t)j * step + at] = x[j];
    } else if (c.limits.cache_type == DUET_CACHE_F16) {
        for (int j = 0; j < d; j++) ((uint16_t*)head)[(size_t)j * step + at] = float_to_half(x[j]);
    } else {
        // codes keep the place of the elements; scales of 32 values follow, in the same order with 1/32 of the elements
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

// A chunk's head as f32 in the same order: keys (d, 64) transposed, or values (64, d).
const float* load_cached(const cpu_context& c, const uint8_t* head, int d, bool transposed, float* out) {
    const size_t n = (size_t)d * kAttnChunk;
    if (c.limits.cache_type == DUET_CACHE_F32) return (const float*)head;
    if (c.limits.cache_type == DUET_CACHE_F16) {
        c.k->half_to_float((const uint16_t*)head, n, out);
        return out;
    }
    const uint16_t* scales = (const uint16_t*)(head + n);
    for (size_t i = 0; i < n; i++) {
        const size_t s = transposed ? i / kAttnChunk / kBlock * kAttnChunk + i % kAttnChunk : i / kBlock;
        out[i] = half_to_float(scales[s]) * (float)((const int8_t*)head)[i];
    }
    return out;
}

uint8_t* cached_chunk(const cpu_context& c, int cache, int seq, int chunk) {
    const int group = c.g.caches[(size_t)cache].group;
    return c.page(group, (*c.batch->pages)[(size_t)group][(size_t)seq][chunk]) + c.l.places[(size_t)cache].offset;
}

void run_kv_append(cpu_context& c, const op& o) {
    const cache_layer& layer = c.g.caches[(size_t)o.index];
    const layer_place& place = c.l.places[(size_t)o.index];
    for_rows(c, c.batch->n_tok, (size_t)(o.in.width() + o.in2.width()) * 4, [&](int i) {
        const int pos = c.batch->pos[i], at = pos % kAttnChunk;
        uint8_t* chunk = cached_chunk(c, o.index, c.batch->seq[i], pos / kAttnChunk);
        for (int h = 0; h < layer.n_kv_heads; h++) {
            uint8_t* head = chunk + (size_t)h * (place.k_bytes + place.v_bytes);
            store_cached(c, head, c.row(o.in, i) + (size_t)h * (size_t)o.in.stride, layer.k_dim, kAttnChunk, (size_t)at);
            store_cached(c, head + place.k_bytes, c.row(o.in2, i) + (size_t)h * (size_t)o.in2.stride, layer.v_dim, 1,
                         (size_t)at * (size_t)layer.v_dim);
        }
    });
}

// Up to kTokenBlock tokens that follow each other in one sequence.
struct token_run {
    int first, n;
};

// Attention of one run of tokens over one key/value head: all its query heads share each decoded chunk.
void attend(cpu_context& c, const op& o, const token_run& run, int kv_head, uint8_t* scratch) {
    const cache_layer& layer = c.g.caches[(size_t)o.index];
    const layer_place& place = c.l.places[(size_t)o.index];
    const int group = o.in.n_heads / layer.n_kv_heads, n_rows = run.n * group, window = c.g.groups[(size_t)layer.group].window;
    const size_t q_stride = round_up((size_t)layer.k_dim, 16), o_stride = round_up((size_t)layer.v_dim, 16);
    float* k_chunk = (float*)scratch;
    float* v_chunk = k_chunk + round_up((size_t)layer.k_dim * kAttnChunk, 16);
    float* q = v_chunk + round_up((size_t)layer.v_dim * kAttnChunk, 16);
    float* acc = q + (size_t)n_rows * q_stride;
    attn_state* state = (attn_state*)(acc + (size_t)n_rows * o_stride);
    int* first = (int*)(state + n_rows);
    int* n_pos = first + n_rows;
    float* rest = (float*)(n_pos + n_rows);
    for (int r = 0; r < n_rows; r++) {
        const int i = run.first + r / group, h = kv_head * group + r % group;
        memcpy(q + (size_t)r * q_stride, c.row(o.in, i) + (size_t)h * (size_t)o.in.stride, (size_t)layer.k_dim * 4);
        state[r] = {0.0f, 0.0f};
    }
    const int seq = c.batch->seq[run.first], p0 = c.batch->pos[run.first], p1 = c.batch->pos[run.first + run.n - 1];
    for (int chunk = window ? std::max(0, p0 - window + 1) / kAttnChunk : 0; chunk <= p1 / kAttnChunk; chunk++) {
        const int base = chunk * kAttnChunk;
        for (int r = 0; r < n_rows; r++) {
            const int pos = c.batch->pos[run.first + r / group];
            first[r] = window ? std::max(0, pos - window + 1 - base) : 0;
            n_pos[r] = std::min(kAttnChunk, pos + 1 - base);
        }
        const uint8_t* head = cached_chunk(c, o.index, seq, chunk) + (size_t)kv_head * (place.k_bytes + place.v_bytes);
        attn_chunk_args a{};
        a.q = q;
        a.q_stride = q_stride;
        a.n_rows = n_rows;
        a.first = first;
        a.n_pos = n_pos;
        a.k = load_cached(c, head, layer.k_dim, true, k_chunk);
        a.v = load_cached(c, head + place.k_bytes, layer.v_dim, false, v_chunk);
        a.k_dim = layer.k_dim;
        a.v_dim = layer.v_dim;
        a.scale = o.scale;
        a.cap = o.cap;
        a.state = state;
        a.o = acc;
        a.o_stride = o_stride;
        a.scratch = rest;
        c.k->attn_chunk(a);
    }
    const float* sinks = c.vector_of(o.w);
    for (int r = 0; r < n_rows; r++) {
        const int i = run.first + r / group, h = kv_head * group + r % group;
        float* ro = acc + (size_t)r * o_stride;
        if (sinks) exact_attn_sink(&state[r], ro, sinks[h], layer.v_dim);
        exact_attn_finish(state[r], ro, layer.v_dim, c.row(o.out, i) + (size_t)h * (size_t)o.out.stride);
    }
}

void run_attention(cpu_context& c, const op& o) {
    const int n_kv = c.g.caches[(size_t)o.index].n_kv_heads;
    std::vector<token_run> runs;
    for (int i = 0; i < c.batch->n_tok; i++) {
        token_run* last = runs.empty() ? nullptr : &runs.back();
        if (last && last->n < kTokenBlock && c.batch->seq[i] == c.batch->seq[last->first]) last->n++;
        else runs.push_back({i, 1});
    }
    c.pool.for_each((int)runs.size() * n_kv, [&](int t, int piece) {
        if (!c.cancelled()) attend(c, o, runs[(size_t)(piece / n_kv)], piece % n_kv, c.thread_scratch(t));
    });
}

void run_elementwise(cpu_context& c, const op& o) {
    const int n = o.in.width();
    for_rows(c, c.n_rows(o.in), (size_t)n * 4, [&](int i) {
        const float* x = c.row(o.in, i);
        const float* x2 = o.in2.buffer >= 0 ? c.row(o.in2, i) : nullptr;
        float* y = c.row(o.out, i);
        if (o.kind == op_kind::activate) {
            c.k->activate((int)o.act, x, x2, n, y);
        } else if (o.kind == op_kind::add) {
            for (int j = 0; j < n; j++) y[j] = o.scale == 1.0f ? x[j] + x2[j] : __builtin_fmaf(o.scale, x2[j], x[j]);
        } else {
            for (int j = 0; j < n; j++) {
                const float v = x[j] * o.scale;
                y[j] = o.cap == 0.0f ? v : o.cap * exact_tanh(v / o.cap);
            }
        }
    });
}

void run_gather(cpu_context& c, const op& o) {
    for (int i = 0; i < c.batch->n_wanted; i++)
        memcpy(c.row(o.out, i), c.row(o.in, c.batch->wanted[i]), (size_t)o.in.width() * 4);
}

void run_op(cpu_context& c, size_t i) {
    const op& o = c.g.ops[i];
    switch (o.kind) {
        case op_kind::embed: return run_embed(c, o);
        case op_kind::norm: return run_norm(c, o);
        case op_kind::matmul: return run_matmul(c, o, c.reuses_act[i] != 0);
        case op_kind::rope: return run_rope(c, o);
        case op_kind::kv_append: return run_kv_append(c, o);
        case op_kind::attention: return run_attention(c, o);
        case op_kind::activate:
        case op_kind::add:
        case op_kind::scale_cap: return run_elementwise(c, o);
        case op_kind::gather: return run_gather(c, o);
        default: return;   // refused by create()
    }
}

const char* op_name(op_kind kind) {
    constexpr const char* kNames[] = {"embed", "norm", "matmul", "rope", "kv append", "attention", "activate", "add", "multiply",
                                      "scale", "gather", "route", "expert matmul", "expert sum", "conv", "delta net", "mamba2"};
    return kNames[(int)kind];
}

// Which matmuls find their input quantized by an earlier one; names of profile rows.
void prepare(cpu_context& c) {
    view quantized;
    for (const op& o : c.g.ops) {
        bool reuse = false;
        std::string name = op_name(o.kind);
        if (o.kind == op_kind::matmul) {
            const weight& w = c.g.weights[(size_t)o.w];
            name += std::string(" ") + duet_type_by_id(w.type)->name;
            if (is_quantized(w.type)) {
                reuse = quantized.buffer == o.in.buffer && quantized.offset == o.in.offset && quantized.width() == o.in.width();
                quantized = o.in;
            }
        }
        const view& written = o.kind == op_kind::rope ? o.in : o.out;
        if (written.buffer == quantized.buffer) quantized = view{};
        c.reuses_act.push_back(reuse);
        auto it = std::find_if(c.rows.begin(), c.rows.end(), [&](const profile_entry& e) { return e.op == name; });
        c.row_of_op.push_back((int)(it - c.rows.begin()));
        if (it == c.rows.end()) c.rows.push_back({name, 0, 0, 0, 0});
    }
}

void count_profile(cpu_context& c, size_t i, uint64_t ns) {
    const op& o = c.g.ops[i];
    profile_entry& e = c.rows[(size_t)c.row_of_op[i]];
    e.n_calls++;
    e.time_ns += ns;
    if (o.kind == op_kind::matmul) {
        const weight& w = c.g.weights[(size_t)o.w];
        e.weight_bytes += w.n_bytes;
        e.n_mac += (uint64_t)(w.n_in * w.n_out) * (uint64_t)c.n_rows(o.in);
    } else if (o.kind == op_kind::attention) {
        const cache_layer& layer = c.g.caches[(size_t)o.index];
        for (int t = 0; t < c.batch->n_tok; t++) {
            const uint64_t n = (uint64_t)c.batch->pos[t] + 1;
            e.n_mac += n * (uint64_t)(o.in.n_heads * (layer.k_dim + layer.v_dim));
            e.weight_bytes += n / kAttnChunk * (c.l.places[(size_t)o.index].k_bytes + c.l.places[(size_t)o.index].v_bytes) * (uint64_t)layer.n_kv_heads;
        }
    }
}

// ---- the executor's functions -----------------------------------------------------------------------------------------------------------

duet_status cpu_plan(const model_graph& g, const exec_limits& limits, int32_t n_threads, exec_memory* out, error_text& err) {
    for (const cache_layer& layer : g.caches)
        if (limits.cache_type == DUET_CACHE_Q8_0 && (layer.k_dim % kBlock || layer.v_dim % kBlock))
            return fail(err, DUET_ERR_UNSUPPORTED, "cache type q8_0: want head sizes in multiples of 32, got %d and %d; use f16", layer.k_dim, layer.v_dim);
    const layout l = make_layout(g, limits);
    *out = {l.cache_bytes, l.state_floats * 4 * (uint64_t)limits.n_state_slots, l.work_bytes(n_threads)};
    return DUET_OK;
}

duet_status cpu_create(const model_graph& g, const exec_limits& limits, int32_t n_threads, const char* isa, void** out, error_text& err) {
    exec_memory need;
    DUET_TRY(cpu_plan(g, limits, n_threads, &need, err));
    auto c = std::make_unique<cpu_context>(g, limits);
    c->k = find_cpu_kernels(isa);
    if (!c->k) return fail(err, DUET_ERR_DEVICE, "cpu isa %s: this machine runs: %s", isa, cpu_isa_names());
    for (const op& o : g.ops) {
        if (o.kind == op_kind::multiply || o.kind >= op_kind::route)
            return fail(err, DUET_ERR_UNSUPPORTED, "op %s: no code yet on the CPU", op_name(o.kind));
        if (o.kind == op_kind::matmul && !c->k->matmul[g.weights[(size_t)o.w].type])
            return fail(err, DUET_ERR_UNSUPPORTED, "tensor %s: no kernel for its number format", g.weights[(size_t)o.w].name.c_str());
    }
    const size_t states = c->l.state_floats * 4 * (size_t)limits.n_state_slots;
    if (!c->buffers.allocate(c->l.buffer_bytes) || !c->cache.allocate(c->l.cache_bytes) || !c->states.allocate(states) ||
        !c->act.allocate(c->l.act_bytes) || !c->rope.allocate(c->l.rope_floats * 4) ||
        !c->scratch.allocate(c->l.thread_bytes * (size_t)n_threads))
        return fail(err, DUET_ERR_MEMORY, "no memory for a session: cache %llu MB, work buffers %llu MB; lower the context or the batch",
                    (unsigned long long)(need.cache_bytes >> 20), (unsigned long long)(need.work_bytes >> 20));
    uint8_t* at = (uint8_t*)c->cache.data;
    for (size_t i = 0; i < g.groups.size(); i++) {
        c->group_pages.push_back(at);
        at += c->l.page_bytes[i] * (size_t)limits.n_pages[i];
    }
    prepare(*c);
    if (!c->pool.start(n_threads)) return fail(err, DUET_ERR_MEMORY, "the system gives no %d threads", n_threads);
    *out = c.release();
    return DUET_OK;
}

void cpu_destroy(void* context) { delete (cpu_context*)context; }

duet_status cpu_run(void* context, const exec_batch& batch, const std::atomic<int32_t>* cancel, error_text& err) {
    cpu_context& c = *(cpu_context*)context;
    c.batch = &batch;
    c.cancel = cancel;
    make_angles(c);
    for (size_t i = 0; i < c.g.ops.size(); i++) {
        if (c.cancelled()) return fail(err, DUET_ERR_CANCELLED, "the batch was cancelled");
        if (!c.profiling) {
            run_op(c, i);
            continue;
        }
        const auto start = std::chrono::steady_clock::now();
        run_op(c, i);
        count_profile(c, i, (uint64_t)std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - start).count());
    }
    if (c.cancelled()) return fail(err, DUET_ERR_CANCELLED, "the batch was cancelled");
    return DUET_OK;
}

float* cpu_wanted_row(void* context, int32_t buffer, int32_t i) {
    cpu_context& c = *(cpu_context*)context;
    return c.row(view{buffer, 0, 1, 0, 0}, i);
}

duet_status cpu_copy_page(void* context, int32_t group, int32_t from, int32_t to) {
    cpu_context& c = *(cpu_context*)context;
    memcpy(c.page(group, to), c.page(group, from), c.l.page_bytes[(size_t)group]);
    return DUET_OK;
}

float* state_of(cpu_context& c, int32_t slot) { return (float*)c.states.data + (size_t)slot * c.l.state_floats; }

duet_status cpu_copy_state(void* context, int32_t from, int32_t to) {
    cpu_context& c = *(cpu_context*)context;
    if (from < 0) memset(state_of(c, to), 0, c.l.state_floats * 4);
    else memcpy(state_of(c, to), state_of(c, from), c.l.state_floats * 4);
    return DUET_OK;
}

uint64_t cpu_page_bytes(void* context, int32_t group) { return ((cpu_context*)context)->l.page_bytes[(size_t)group]; }

duet_status cpu_read_page(void* context, int32_t group, int32_t page, void* out) {
    memcpy(out, ((cpu_context*)context)->page(group, page), cpu_page_bytes(context, group));
    return DUET_OK;
}

duet_status cpu_write_page(void* context, int32_t group, int32_t page, const void* in) {
    memcpy(((cpu_context*)context)->page(group, page), in, cpu_page_bytes(context, group));
    return DUET_OK;
}

uint64_t cpu_state_bytes(void* context) { return ((cpu_context*)context)->l.state_floats * 4; }

duet_status cpu_read_state(void* context, int32_t slot, void* out) {
    memcpy(out, state_of(*(cpu_context*)context, slot), cpu_state_bytes(context));
    return DUET_OK;
}

duet_status cpu_write_state(void* context, int32_t slot, const void* in) {
    memcpy(state_of(*(cpu_context*)context, slot), in, cpu_state_bytes(context));
    return DUET_OK;
}

void cpu_profile(void* context, bool on) {
    cpu_context& c = *(cpu_context*)context;
    c.profiling = on;
    for (profile_entry& e : c.rows) e = {e.op, 0, 0, 0, 0};
}

const std::vector<profile_entry>* cpu_profile_rows(void* context) { return &((cpu_context*)context)->rows; }

}  // namespace

const executor kCpuExecutor = {
    "cpu",          cpu_plan,      cpu_create,     cpu_destroy,     cpu_run,        cpu_wanted_row,  cpu_copy_page,   cpu_copy_state,
    cpu_page_bytes, cpu_read_page, cpu_write_page, cpu_state_bytes, cpu_read_state, cpu_write_state, cpu_profile,     cpu_profile_rows};

}  // namespace duet
