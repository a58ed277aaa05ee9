// cpu/context.h: the state that the files of the CPU executor share: buffers, cache pages, recurrent state and threads
// of one session.
// Must not know: families, files.
// Main path: cpu/ops.cpp -> [cpu/context.h] -> cpu/kernels.h
#pragma once
#include "choose.h"
#include "kernels.h"
#include "threads.h"
#include "../models/layout.h"
#include "../models/os.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace duet {

// Zeroed, 64-byte aligned memory. The system provides its pages when they are first touched.
struct aligned_memory {
    void* data = nullptr;
    bool allocate(size_t n) {
        block_.reset(calloc(n + 64, 1));
        data = (void*)(((uintptr_t)block_.get() + 63) & ~(uintptr_t)63);
        if (block_) os_use_large_pages(data, n);
        return block_ != nullptr;
    }

  private:
    std::unique_ptr<void, void (*)(void*)> block_{nullptr, free};
};

// The sizes that the CPU needs beside those of models/layout.h. plan() and create() both compute them here.
struct cpu_layout : layout {
    size_t act_codes = 0, act_bytes = 0, panel_bytes = 0, gather_bytes = 0, split_bytes = 0, matmul_bytes = 0,
           thread_bytes = 0;
    int max_k = 0, max_v = 0;
    size_t max_routes = 0, max_mats = 0;  // of expert matmuls: most choices of a batch, most matrices

    size_t work_bytes(int n_threads) const {
        return buffer_bytes + act_bytes + panel_bytes + gather_bytes + split_bytes + rope_floats * 4 +
               thread_bytes * (size_t)n_threads;
    }
};

cpu_layout make_cpu_layout(const model_graph& graph, const exec_limits& limits);

// The arrays of quantized activations lie one after another from `at` on. `codes` is the number of all their values.
inline size_t act_array_bytes(size_t codes) {
    return codes + round_up(codes / 32 * 4, 64) * 2 + round_up(codes / 16 * 2, 64);
}
inline act_matrix act_arrays(uint8_t* at, size_t codes, size_t q_stride, int n_tok) {
    act_matrix a{};
    a.q = (const int8_t*)at;
    a.d = (const float*)(at += codes);
    a.t = (const float*)(at += round_up(codes / 32 * 4, 64));
    a.s16 = (const int16_t*)(at += round_up(codes / 32 * 4, 64));
    a.q_stride = q_stride;
    a.n_tok = n_tok;
    return a;
}

// Returns n_tok rows of the same arrays, from row i on.
inline act_matrix act_from(act_matrix a, size_t i, int n_tok) {
    a.x += i * a.x_stride;
    a.q += i * a.q_stride;
    a.d += i * (a.q_stride / 32);
    a.t += i * (a.q_stride / 32);
    a.s16 += i * (a.q_stride / 16);
    a.n_tok = n_tok;
    a.panels = nullptr;
    return a;
}

// The pairs (token, k) of an expert matmul in the order of their matrices. The pairs order[j] = token * n_used + k of
// matrix e have j in start[e] .. start[e + 1] - 1. The lists live as long as the session, so that a token allocates
// nothing.
struct route_lists {
    std::vector<int32_t> order, start, next, active;  // active: the matrices with pairs
};

// The rows of the batch that belong to one sequence, in order.
struct seq_rows {
    int32_t seq;
    std::vector<int> rows;
};

struct cpu_context {
    const model_graph& graph;
    exec_limits limits;
    const cpu_kernels* kernels = nullptr;
    cpu_layout layout;
    thread_pool pool;
    aligned_memory buffers, cache, states, act, panels, gathered, split, rope, scratch;
    route_lists routes;
    std::vector<seq_rows> by_seq;  // the batch's rows by sequence, for ops with recurrent state
    // For each thread, the number of the matmul that last used its scratch, and its way; a cache line apart.
    std::vector<uint64_t> scratch_user;
    uint64_t n_matmuls = 0;                 // the number of the latest matmul
    bool has_panels = false;                // `panels` holds the activations of `act`
    bool times_ways = false;                // the ways of matmuls are chosen by their speed
    std::vector<const timed_choice*> told;  // those that the log has heard of
    std::vector<uint8_t> reuses_act;        // per op: 1 for a matmul whose input is quantized already
    std::vector<int> n_together;            // per op: how many from it on run as one (run_matmuls)
    bool profiling = false;
    std::vector<profile_entry> rows;
    std::vector<int> row_of_op;

    const exec_batch* batch = nullptr;
    const std::atomic<int32_t>* cancel = nullptr;

    cpu_context(const model_graph& model, const exec_limits& lim)
        : graph(model), limits(lim), layout(make_cpu_layout(model, lim)) {}

    bool cancelled() const { return cancel && cancel->load(std::memory_order_relaxed) != 0; }
    int n_rows(const view& v) const {
        return graph.buffers[(size_t)v.buffer].wanted_rows ? batch->n_wanted : batch->n_tok;
    }
    size_t stride(const view& v) const { return layout.row_floats[(size_t)v.buffer]; }
    float* row(const view& v, int i) const {
        return (float*)((uint8_t*)buffers.data + layout.buffer_offset[(size_t)v.buffer]) + (size_t)i * stride(v) +
               v.offset;
    }
    float* head(const view& v, int i, int h) const { return row(v, i) + (size_t)h * (size_t)v.stride; }
    // The place of column j of a row, which skips what lies between the view's heads.
    float* column(const view& v, int i, int j) const { return head(v, i, j / v.head_dim) + j % v.head_dim; }
    const weight& weight_of(weight_id w) const { return graph.weights[(size_t)w]; }
    const float* vector_of(weight_id w) const { return w < 0 ? nullptr : (const float*)weight_of(w).data; }
    uint8_t* page(int group, int index) const { return layout.page(cache.data, states.data, group, index); }
    uint8_t* thread_scratch(int t) const { return (uint8_t*)scratch.data + (size_t)t * layout.thread_bytes; }

    act_matrix acts(int n_tok) const { return act_arrays((uint8_t*)act.data, layout.act_codes, layout.max_in, n_tok); }
    float* state(int32_t slot, int32_t layer) const {
        return (float*)states.data + (size_t)slot * layout.state_floats + layout.state_offset[(size_t)layer];
    }
};

// Returns what thread t takes to multiply n_rows rows of a weight, from row r0 on, by the activations. The caller adds
// the way and where the results go.
inline matmul_args piece_args(const cpu_context& c, int t, const weight& w, size_t r0, int n_rows, act_matrix a) {
    matmul_args m{};
    m.w = w.data + r0 * w.row_bytes;
    m.row_bytes = w.row_bytes;
    m.n_in = (int)w.n_in;
    m.n_rows = n_rows;
    m.a = a;
    m.scratch = c.thread_scratch(t);
    return m;
}

// Quantizes the n values of x from number j on into row i of a. j and n are multiples of 32.
inline void quantize_row(const cpu_context& c, const float* x, int j, int n, const act_matrix& a, size_t i) {
    const act_matrix r = act_from(a, i, 1);
    c.kernels->quantize(x + j, n, (int8_t*)r.q + j, (float*)r.d + j / 32, (float*)r.t + j / 32,
                        (int16_t*)r.s16 + j / 16);
}

// Calls f(i_row) for all n rows, in parallel when there is enough work.
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

// Calls f(i_row, first, n) for the columns first to first + n of all rows, where `first` is a multiple of kGroup. Long
// rows that are fewer than threads are cut, because one thread needs 1 us for 1,200 values.
template <class F>
void for_columns(cpu_context& c, int n_rows, int width, F f) {
    const int n_most = std::max(1, std::min(width / 2048, c.pool.size() / std::max(n_rows, 1))),
              step = (int)round_up((size_t)((width - 1) / n_most + 1), kGroup), n_parts = (width - 1) / step + 1;
    for_rows(c, n_rows * n_parts, (size_t)step * 4, [&](int i) {
        const int first = i % n_parts * step;
        f(i / n_parts, first, std::min(step, width - first));
    });
}

// Returns the choice among the ways of a matmul as long as it is open. Otherwise leaves the best way alone in *ways.
inline timed_choice* open_choice(const cpu_context& c, choice_kind kind, int32_t type, int n_tok, matmul_ways* ways) {
    int best = 0;
    if (c.times_ways && ways->n > 1) {
        timed_choice& choice = choice_of(kind, type, n_tok);
        if (!choice.is_decided(ways->n)) return &choice;
        best = choice.best(ways->n);
    }
    ways->way[0] = ways->way[best];
    ways->n = 1;
    return nullptr;
}

// Computes a piece of a matmul, f(way, same_input), on thread t; i_matmul is the matmul's number, which those of one
// input and format share. Three pieces in succession go one way. The first of them is not timed, because what it reads
// was not used before. Each matmul begins with another turn, as it may have few pieces.
template <class F>
void run_piece(cpu_context& c, const matmul_ways& ways, timed_choice* choice, int t, uint64_t i_matmul, int i_piece,
               uint64_t n_mac, F f) {
    const int turn = choice ? choice->turn(ways.n, i_piece / 3 + (int)(i_matmul & 0xffff)) : -1;
    const matmul_way way = ways.way[turn >= 0 ? turn : choice ? choice->best(ways.n) : 0];
    uint64_t* last = &c.scratch_user[(size_t)t * 8];
    const bool same_input = last[0] == i_matmul && last[1] == (uint64_t)way;
    last[0] = i_matmul;
    last[1] = (uint64_t)way;
    const bool is_timed = turn >= 0 && (same_input || choice->takes_first());
    const auto start = is_timed ? std::chrono::steady_clock::now() : std::chrono::steady_clock::time_point{};
    f(way, same_input);
    if (is_timed) choice->tell(turn, ns_since(start), n_mac);
}

// Returns the bytes of the chunks' results that attention over split positions keeps apart until it merges them.
size_t split_bytes(const model_graph& g, int n_ctx);
// Returns the floats of scratch that a piece of attention needs.
size_t attention_scratch_floats(const cpu_layout& l, const model_graph& g);

// Functions that are called from other files than their own.
void run_kv_append(cpu_context& c, const op& o);  // cpu/attention.cpp
void run_attention(cpu_context& c, const op& o);
void run_route(cpu_context& c, const op& o);  // cpu/experts.cpp
void run_expert_matmul(cpu_context& c, const op& o, bool reuse);
void run_expert_sum(cpu_context& c, const op& o);
void run_conv(cpu_context& c, const op& o);  // cpu/recurrent.cpp
void run_delta_net(cpu_context& c, const op& o);
void run_mamba2(cpu_context& c, const op& o);
void quantize_input(cpu_context& c, const op& o, int n_tok);  // cpu/ops.cpp
void tell_choice(cpu_context& c, choice_kind kind, int32_t type, int n_tok, const matmul_ways& ways);

}  // namespace duet
