// quant/cpu_context.h: what the CPU executor's files share: buffers, cache pages, recurrent state and threads of one session.
// Main path: quant/cpu_ops.cpp -> [quant/cpu_context.h] -> quant/cpu_kernels.h
#pragma once
#include "cpu_kernels.h"
#include "threads.h"
#include "../models/ops.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace duet {

constexpr int kFloatsPerLine = 16;   // rows of buffers begin on cache lines

inline size_t round_up(size_t n, size_t step) { return (n + step - 1) / step * step; }

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

inline bool is_quantized(int32_t type) { return type != 0 && type != 1 && type != 30; }

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

layout make_layout(const model_graph& graph, const exec_limits& limits);

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

// Bytes of one cached head's chunk of `dim` values a position.
size_t cache_head_bytes(int cache_type, int dim);
// Floats of scratch an attention piece needs.
size_t attention_scratch_floats(const layout& l, const model_graph& g);

// Ops with files of their own.
void run_kv_append(cpu_context& c, const op& o);   // quant/cpu_attention.cpp
void run_attention(cpu_context& c, const op& o);

}  // namespace duet
