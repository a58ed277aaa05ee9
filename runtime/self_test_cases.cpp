// runtime/self_test_cases.cpp: see self_test_cases.h.
#include "self_test_cases.h"
#include "../cpu/executor.h"
#include "../gpu/executor.h"
#include "../quant/formats.h"

#include <cmath>
#include <cstring>
#include <memory>

namespace duet::self_test {
namespace {

// Blocks whose bytes are random and whose values are ordinary numbers: every code is met.
std::vector<uint8_t> random_blocks(int32_t type, size_t n_weights, std::mt19937& rng) {
    const number_format* info = find_type(type);
    const size_t block = (size_t)info->bytes;
    std::vector<uint8_t> w(n_weights / (size_t)info->elems * block);
    std::vector<float> probe((size_t)info->elems);
    for (size_t at = 0; at < w.size(); at += block)
        for (bool good = false; !good;) {
            for (size_t i = 0; i < block; i++) w[at + i] = (uint8_t)rng();
            decode_row(type, &w[at], info->elems, probe.data());
            good = true;
            for (float v : probe) good = good && v > -1e6f && v < 1e6f;
        }
    return w;
}

}  // namespace

view graph_case::buffer(int32_t width, bool wanted) {
    g.buffers.push_back({"b", width, wanted});
    return {(int32_t)g.buffers.size() - 1, 0, 1, width, width};
}

weight_id graph_case::matrix(int32_t type, int64_t n_in, int64_t n_out) {
    memory.push_back(random_blocks(type, (size_t)(n_in * n_out), rng));
    const std::vector<uint8_t>& bytes = memory.back();
    g.weights.push_back({"w", type, n_in, n_out, 1, bytes.data(), bytes.size(), bytes.size() / (uint64_t)n_out});
    return (weight_id)g.weights.size() - 1;
}

weight_id graph_case::floats(int64_t n_in, int64_t n_out) {
    std::normal_distribution<float> normal;
    const weight_id w = matrix(type_id::f32, n_in, n_out);
    for (int64_t i = 0; i < n_in * n_out; i++) ((float*)memory.back().data())[i] = normal(rng);
    return w;
}

op& graph_case::add(op_kind kind, view in, view out, view in2) {
    return g.ops.emplace_back(op{.kind = kind, .in = in, .in2 = in2, .out = out});
}

op& graph_case::norm(view in, view out, float eps, weight_id w) {
    op& o = add(op_kind::norm, in, out);
    o.eps = eps;
    o.w = w;
    return o;
}

op& graph_case::rope(view heads, double magnitude) {
    rope_table table;
    for (int i = 0; i < 16; i++) table.freq.push_back(std::pow(10000.0, -i / 16.0));
    table.magnitude = magnitude;
    g.ropes = {table};
    op& o = add(op_kind::rope, heads, {});
    o.index = 0;
    o.rope_dim = 32;
    return o;
}

// Random rows, one of zeros, one with a block of zeros.
view graph_case::input(int32_t width) {
    const weight_id w = floats(width, kVocab);
    float* table = (float*)memory.back().data();
    memset(table, 0, (size_t)width * 4);
    memset(table + width + width / 2, 0, (size_t)width / 2 * 4);
    const view out = buffer(width);
    add(op_kind::embed, {}, out).w = w;
    return out;
}

weight_id graph_case::matrices(int32_t type, int64_t n_in, int64_t n_out, int64_t n_mats) {
    const weight_id w = type == type_id::f32 ? floats(n_in, n_out * n_mats) : matrix(type, n_in, n_out * n_mats);
    g.weights.back().n_out = n_out;
    g.weights.back().n_mats = n_mats;
    return w;
}

graph_case& graph_case::logits(view y) {
    const view out = buffer(y.width(), true);
    g.logits_buffer = out.buffer;
    add(op_kind::gather, y, out);
    return *this;
}

view heads_of(view v, int32_t first, int32_t n_heads, int32_t head_dim) {
    return {v.buffer, v.offset + first, n_heads, head_dim, head_dim};
}

namespace {

// Routing by every rule, and matmuls by the chosen experts: shared input twice, own inputs, a matrix for each head,
// sums.
void for_each_expert_case(const std::function<void(graph_case&)>& run) {
    struct route_case {
        int n, used, groups, groups_used;
        bool sigmoid, after, normalise, bias;
    };
    for (const route_case& s : {route_case{300, 9, 1, 1, false, false, false, false},
                                {16, 4, 4, 2, true, false, true, true},
                                {7, 7, 1, 1, false, true, false, true},
                                {60, 3, 20, 5, false, false, true, false}}) {
        graph_case c("route " + std::to_string(s.n));
        const view z = c.input(s.n), routes = c.buffer(2 * s.used);
        op& o = c.add(op_kind::route, z, routes);
        if (s.bias) o.b = c.floats(s.n);
        o.n_used = s.used;
        o.n_groups = s.groups;
        o.n_groups_used = s.groups_used;
        o.sigmoid_scores = s.sigmoid;
        o.softmax_after = s.after;
        o.normalise = s.normalise;
        o.scale = 1.7f;
        run(c.logits(routes));
    }
    struct expert_case {
        const char* name;
        int type, down_type, n, used, n_in, hidden;
        bool bias;
    };
    for (const expert_case& s : {expert_case{"F32", type_id::f32, type_id::f16, 5, 3, 50, 37, true},
                                 {"Q4_0", type_id::q4_0, type_id::q8_0, 6, 2, 160, 64, false},
                                 {"Q6_K", type_id::q6_K, type_id::q6_K, 2, 2, 256, 256, true},
                                 {"MXFP4", type_id::mxfp4, type_id::q4_0, 40, 3, 64, 32, true},
                                 {"of one", type_id::q8_0, type_id::f32, 4, 1, 32, 96, false}}) {
        graph_case c(std::string("experts ") + s.name);
        const view x = c.input(s.n_in), z = c.input(s.n), routes = c.buffer(2 * s.used);
        const view gate = heads_of(c.buffer(s.used * s.hidden), 0, s.used, s.hidden),
                   up = heads_of(c.buffer(s.used * s.hidden), 0, s.used, s.hidden);
        const view out = heads_of(c.buffer(s.used * s.n_in), 0, s.used, s.n_in);
        c.add(op_kind::route, z, routes).n_used = s.used;
        for (const auto& [from, to, type] : {std::tuple{x, gate, s.type}, {x, up, s.type}, {gate, out, s.down_type}}) {
            op& o = c.add(op_kind::expert_matmul, from, to, routes);
            o.n_used = s.used;
            o.w = c.matrices(type, from.head_dim, to.head_dim, s.n);
            if (s.bias) o.b = c.floats(to.head_dim, s.n);
            if (to.buffer == up.buffer) c.add(op_kind::activate, gate, gate, up);
        }
        op& sum = c.add(op_kind::expert_sum, out, x, routes);
        sum.n_used = s.used;
        sum.residual = s.bias;
        if (s.bias) {
            sum.scale = 0.6f;
            sum.w = c.floats(s.n);
        }
        run(c.logits(x));
    }
    for (int type : {type_id::f32, type_id::q4_0}) {
        graph_case c("a matrix for each head, type " + std::to_string(type));
        const view x = c.input(3 * 64), y = c.buffer(3 * 45);
        op& o = c.add(op_kind::expert_matmul, heads_of(x, 0, 3, 64), heads_of(y, 0, 3, 45));
        o.n_used = 3;
        o.w = c.matrices(type, 64, 45, 3);
        run(c.logits(y));
    }
}

// Convolutions and recurrent states, sizes that divide and do not.
void for_each_state_case(const std::function<void(graph_case&)>& run) {
    for (int n_taps : {2, 3, 4, 17}) {
        graph_case c("conv taps " + std::to_string(n_taps));
        const int n = n_taps == 3 || n_taps == 4 ? 48 : 150;  // vectors of channels, and a rest
        const view x = c.input(n);
        op& o = c.add(op_kind::conv, x, x);
        o.w = c.floats(n_taps, n);
        if (n_taps != 2) {
            o.b = c.floats(n);
            o.act = n_taps == 3 ? activation::softplus : activation::silu;
        }
        o.index = 0;
        c.g.states = {{(int64_t)(n_taps - 1) * n}};
        run(c.logits(x));
    }
    struct state_case {
        bool is_delta;
        int n_heads, n_groups, n_rows, n_cols;
        bool tiled;
    };
    for (const state_case& s : {state_case{true, 4, 2, 48, 48, false},
                                {true, 4, 2, 13, 13, true},
                                {false, 4, 1, 16, 40, false},
                                {false, 2, 2, 7, 5, false},
                                {false, 1, 1, 300, 9, false}}) {
        graph_case c((s.is_delta ? "delta net " : "mamba2 ") + std::to_string(s.n_rows));
        const view x = c.input(2 * s.n_groups * s.n_rows + s.n_heads * s.n_cols), steps = c.input(2 * s.n_heads),
                   y = c.buffer(s.n_heads * s.n_cols);
        if (s.is_delta) {  // without norms the state grows beyond all bounds
            const view keys = heads_of(x, 0, 2 * s.n_groups, s.n_rows);
            c.norm(keys, keys, 1e-6f).norm = norm_kind::l2;
        }
        op& o = c.add(s.is_delta ? op_kind::delta_net : op_kind::mamba2, x, y);
        o.in2 = s.is_delta ? view{steps.buffer, 0, s.n_groups, s.n_heads / s.n_groups, 2 * s.n_heads / s.n_groups}
                           : heads_of(steps, 0, 1, s.n_heads);
        if (s.is_delta) {
            o.in3 = o.in2;
            o.in3.offset = s.n_heads / s.n_groups;
            o.scale = 0.3f;
        }
        o.n_groups = s.n_groups;
        o.tiled_heads = s.tiled;
        o.w = c.floats(s.n_heads);
        for (int h = 0; h < s.n_heads; h++) ((float*)c.memory.back().data())[h] = -0.3f * (float)(h + 1);
        o.b = c.floats(s.n_heads);
        if (!s.is_delta) o.w2 = c.floats(s.n_heads);
        o.index = 1;
        c.g.states = {{5}, {(int64_t)s.n_heads * s.n_rows * s.n_cols}};
        run(c.logits(y));
    }
}

// Products and rows of every format.
void for_each_format_case(const std::function<void(graph_case&)>& run) {
    auto matmul_case = [&](int32_t type, const char* name, int n_in, int n_out) {
        graph_case c(std::string("matmul ") + name + " n_in " + std::to_string(n_in));
        const view x = c.input(n_in), y = c.buffer(n_out);
        c.add(op_kind::matmul, x, y).w = c.matrix(type, n_in, n_out);
        op& again = c.add(op_kind::matmul, x, y);  // input quantized already; bias, scale, residual
        again.w = c.matrix(type, n_in, n_out);
        again.residual = true;
        again.scale = 0.37f;
        again.b = c.floats(n_out);
        run(c.logits(y));
        graph_case e(std::string("embed ") + name);
        const view rows = e.buffer(n_in);
        op& o = e.add(op_kind::embed, {}, rows);
        const weight_id table = e.matrix(type, n_in, kVocab);
        o.w = table;
        o.scale = 1.7f;
        const view first = e.buffer(n_in);
        op& of_first = e.add(op_kind::embed, {}, first);
        of_first.w = table;
        of_first.first_row = true;
        e.add(op_kind::add, rows, rows, first);
        run(e.logits(rows));
    };
#define FLOAT_TYPE(id, NAME, gguf_id, bytes) matmul_case(gguf_id, #NAME, 203, 45);
#define QUANT_TYPE(id, NAME, gguf_id, elems, bytes, max_nmse)                                                          \
    matmul_case(gguf_id, #NAME, elems == 32 ? 5 * 32 : 256, 45);
#include "../quant/types.def"
    matmul_case(type_id::q4_0, "Q4_0 rounds", 33 * 128 + 32, 33);
    for (int type : {type_id::f16, type_id::bf16}) {  // more rows than a block has, steps of 64 that are cut
        graph_case c("fast matmul of type " + std::to_string(type));
        c.fast = true;
        const view x = c.input(200), y = c.buffer(70);
        for (bool again : {false, true}) {
            std::vector<float> values(200 * 70);
            std::normal_distribution<float> normal;
            for (float& v : values) v = normal(c.rng);
            op& o = c.add(op_kind::matmul, x, y);
            o.w = c.matrix(type, 200, 70);
            find_type(type)->encode(values.data(), values.size(), nullptr, c.memory.back().data());
            o.residual = again;
        }
        run(c.logits(y));
    }
    for (int type : {(int)type_id::f16, (int)type_id::q8_0}) {  // so few rows that blocks share a tile; then a norm
        graph_case c("few rows of type " + std::to_string(type));
        const view x = c.input(17 * 128), y = c.buffer(64), h = c.buffer(64), z = c.buffer(64);
        c.add(op_kind::matmul, x, y).w = c.matrix(type, 17 * 128, 64);
        c.norm(y, h, 1e-5f, c.floats(64));
        c.add(op_kind::matmul, h, z).w = c.matrix(type_id::q4_0, 64, 64);
        run(c.logits(z));
    }
    for (int type : {type_id::q4_K, type_id::q5_K, type_id::q6_K, type_id::f16}) {  // values: Q6_K beside K formats
        graph_case c("queries, keys and values of type " + std::to_string(type));
        const view x = c.input(256), y = c.buffer(245);
        const int last = type == type_id::f16 ? type : type_id::q6_K;
        for (auto [at, n] : {std::pair{0, 130}, {130, 45}, {175, 70}})
            c.add(op_kind::matmul, x, heads_of(y, at, 1, n)).w = c.matrix(at == 175 ? last : type, 256, n);
        run(c.logits(y));
    }
}

// Norms of every kind, rotations.
void for_each_norm_case(const std::function<void(graph_case&)>& run) {
    for (int kind = 0; kind < 3; kind++)
        for (int n : {48, 300, 1100}) {  // of 1,100, blocks that share a row where that is the only one
            graph_case c("norm " + std::to_string(kind) + " n " + std::to_string(n));
            const view x = c.input(3 * n), y = c.buffer(3 * n);
            op& o = c.norm(heads_of(x, 0, 3, n), heads_of(y, 0, 3, n), 1e-5f);
            o.norm = (norm_kind)kind;
            if (kind < 2) {
                o.w = c.floats(3 * n);
                o.w_stride = n;
            }
            if (kind == 1) o.b = c.floats(n);
            run(c.logits(y));
        }
    {
        graph_case c("norm with quantization");
        const view x = c.input(2080), h = c.buffer(2080), y = c.buffer(40);  // more than a block makes of a row
        c.norm(x, h, 1e-6f, c.floats(2080));
        c.add(op_kind::matmul, h, y).w = c.matrix(type_id::q8_0, 2080, 40);
        run(c.logits(y));
    }
    for (bool neox : {false, true}) {
        graph_case c(neox ? "rope neox" : "rope");
        const view x = c.input(2 * 48);
        c.rope(heads_of(x, 0, 2, 48), 1.1).neox = neox;
        run(c.logits(x));
    }
}

// Attention: heads, windows, caps, sinks, cache types.
void for_each_attention_case(const std::function<void(graph_case&)>& run) {
    struct attention_case {
        int n_heads, n_kv, k_dim, v_dim, window;
        float cap;
        bool sinks;
        int cache;
        bool v_in_k;
        float alibi;
        bool both_ways = false, fast = false;
    };
    for (const attention_case& s : {attention_case{4, 2, 136, 264, 0, 0, false, DUET_CACHE_F16, false, 0},
                                    {5, 1, 160, 192, 0, 0, true, DUET_CACHE_F32, false, 0},
                                    {9, 1, 64, 96, 70, 30.0f, false, DUET_CACHE_Q8_0, false, 0},
                                    {2, 2, 20, 24, 5, 0, true, DUET_CACHE_F16, false, 0},
                                    {4, 1, 176, 160, 0, 0, false, DUET_CACHE_F16, true, 0},
                                    {3, 1, 64, 20, 0, 0, false, DUET_CACHE_Q8_0, true, 0},
                                    {6, 2, 128, 16, 0, 0, false, DUET_CACHE_F32, false, 8},
                                    {3, 3, 40, 48, 9, 20.0f, false, DUET_CACHE_F16, false, 4},
                                    {2, 1, 18, 22, 0, 0, false, DUET_CACHE_F16, false, 0},
                                    {4, 2, 36, 32, 0, 0, false, DUET_CACHE_F32, false, 0, true},
                                    {3, 3, 44, 20, 7, 0, true, DUET_CACHE_F16, false, 0, true},
                                    {6, 2, 52, 16, 0, 0, false, DUET_CACHE_F16, false, 8, true},
                                    {3, 1, 60, 24, 40, 9.0f, false, DUET_CACHE_F32, false, 8, true},
                                    {8, 2, 128, 128, 0, 0, true, DUET_CACHE_F16, false, 0, false, true},
                                    {7, 1, 64, 48, 40, 9.0f, false, DUET_CACHE_F16, false, 0, false, true},
                                    {2, 2, 32, 112, 20, 0, false, DUET_CACHE_F16, false, 0, true, true}}) {
        graph_case c((s.both_ways ? "attention both ways k_dim " : "attention k_dim ") + std::to_string(s.k_dim));
        c.g.both_ways = s.both_ways;
        c.fast = s.fast;
        c.cache_type = s.cache;
        const int q = s.n_heads * s.k_dim, k = s.n_kv * s.k_dim, v = s.n_kv * s.v_dim;
        const view x = c.input(q + k + v), y = c.buffer(s.n_heads * s.v_dim);
        c.g.caches = {{0, s.n_kv, s.k_dim, s.v_dim, s.v_in_k}};
        c.g.groups = {{s.window}};
        const view values = s.v_in_k ? view{} : heads_of(x, q + k, s.n_kv, s.v_dim);
        c.add(op_kind::kv_append, heads_of(x, q, s.n_kv, s.k_dim), {}, values).index = 0;
        op& o = c.add(op_kind::attention, heads_of(x, 0, s.n_heads, s.k_dim), heads_of(y, 0, s.n_heads, s.v_dim));
        o.index = 0;
        o.scale = 0.2f;
        o.cap = s.cap;
        o.alibi = s.alibi;
        o.both_ways = s.both_ways;
        if (s.v_in_k) {
            o.temperature_scale = 0.1f;
            o.temperature_length = 16;
        }
        if (s.sinks) o.w = c.floats(s.n_heads);
        run(c.logits(y));
    }
}

// A layer of a model, token by token: one recording is played at 21 positions, across the border of a cache page.
void for_each_decode_case(const std::function<void(graph_case&)>& run) {
    graph_case c("decoding by a recording");
    c.decodes = true;
    // Random scales may be infinite, and NaN would hide all differences.
    const auto small_matrix = [&](int64_t n_in, int64_t n_out) {
        const weight_id w = c.matrix(type_id::q4_0, n_in, n_out);
        for (size_t i = 0; i < c.memory.back().size(); i += 18) memcpy(&c.memory.back()[i], "\x00\x28", 2);  // 1/32
        return w;
    };
    const view x = c.input(64), h = c.buffer(64), qkv = c.buffer(256), y = c.buffer(128);
    c.norm(x, h, 1e-5f, c.floats(64));
    for (int i = 0; i < 3; i++)
        c.add(op_kind::matmul, h, heads_of(qkv, i ? 64 + 64 * i : 0, 1, i ? 64 : 128)).w =
            small_matrix(64, i ? 64 : 128);
    c.rope(heads_of(qkv, 0, 4, 32));
    c.rope(heads_of(qkv, 128, 2, 32));
    c.g.caches = {{0, 2, 32, 32, false}};
    c.g.groups = {{0}};
    c.add(op_kind::kv_append, heads_of(qkv, 128, 2, 32), {}, heads_of(qkv, 192, 2, 32)).index = 0;
    op& attend = c.add(op_kind::attention, heads_of(qkv, 0, 4, 32), heads_of(y, 0, 4, 32));
    attend.index = 0;
    attend.scale = 0.2f;
    op& o = c.add(op_kind::matmul, y, x);
    o.w = small_matrix(128, 64);
    o.residual = true;
    run(c.logits(x));
}

// Activations, sums, factors.
void for_each_activation_case(const std::function<void(graph_case&)>& run) {
    for (int act = 0; act < kActivations; act++) {
        graph_case c("activation " + std::to_string(act));
        const view x = c.input(2 * 96), y = c.buffer(96);
        c.add(op_kind::activate, heads_of(x, 0, 1, 96), y, heads_of(x, 96, 1, 96)).act = (activation)act;
        c.add(op_kind::add, y, y, heads_of(x, 0, 1, 96)).scale = act % 2 ? 0.3f : 1.0f;
        if (act == 1) {  // views of heads of different sizes, one factor for a row
            c.add(op_kind::multiply, heads_of(x, 0, 2, 48), heads_of(y, 0, 3, 32), heads_of(x, 100, 1, 1)).act =
                activation::sigmoid;
        }
        op& cap = c.add(op_kind::scale_cap, y, y);
        cap.scale = 1.3f;
        cap.cap = act % 3 == 2 ? -0.7f : act % 3 ? 5.0f : 0.0f;
        run(c.logits(y));
    }
}

}  // namespace

void for_each_case(const std::function<void(graph_case&)>& run) {
    for (const auto cases : {for_each_expert_case, for_each_state_case, for_each_format_case, for_each_norm_case,
                             for_each_attention_case, for_each_decode_case, for_each_activation_case})
        cases(run);
}

duet_status run_case(const graph_case& c, const executor& e, const char* id, std::vector<float>* out, error_text& err) {
    std::vector<int> sizes = {70, 3, 1, 20, 16, 9, 2, 1};  // 9 and 16: two launches of 8 tokens, or tiles of 8
    exec_limits limits;
    limits.n_ctx = 128;
    if (c.decodes) {
        sizes = {70, 70, 70, 18};
        sizes.resize(26, 1);
        limits.n_ctx = 256;
        limits.place.recording = (int32_t)gpu_recording_use::trusted;  // A wrong play shall be seen.
    }
    limits.max_batch = limits.max_wanted = 70;
    limits.n_seqs = 2;
    limits.cache_type = c.cache_type;
    limits.fast = c.fast;
    limits.n_state_slots = c.g.states.empty() ? 0 : 4;
    limits.n_pages.assign(c.g.groups.size(), 8);
    void* context = nullptr;
    DUET_TRY(e.create(c.g, limits, 1, id, &context, err));
    const std::unique_ptr<void, void (*)(void*)> owned(context, e.destroy);
    const int32_t tables[2][4] = {{3, 1, 7, 5}, {0, 4, 2, 6}};
    const std::vector<std::vector<const int32_t*>> pages(c.g.groups.size(), {tables[0], tables[1]});
    std::mt19937 rng(3);
    int length[2] = {0, 0};
    int32_t slots[2] = {2, 0};
    std::vector<float> state(e.page_bytes(context, kStates) / 4);
    // Pages hold what other sequences left there, at worst NaN.
    for (size_t g = 0; g < c.g.groups.size(); g++) {
        const std::vector<uint8_t> left(e.page_bytes(context, (int32_t)g), 0xff);
        for (int i = 0; i < 4; i++) DUET_TRY(e.write_page(context, (int32_t)g, tables[i / 2][i % 2], left.data()));
    }
    for (int n : sizes) {
        // The first batch of one token goes on with a copy, and with what was read and written back.
        if (limits.n_state_slots && n == 1 && slots[0] == 2) {
            DUET_TRY(e.copy_page(context, kStates, 2, 3));
            DUET_TRY(e.read_page(context, kStates, 0, state.data()));
            DUET_TRY(e.write_page(context, kStates, 1, state.data()));
            DUET_TRY(e.copy_page(context, kStates, -1, 2));
            out->insert(out->end(), state.begin(), state.end());
            slots[0] = 3;
            slots[1] = 1;
        }
        std::vector<int32_t> token, pos, seq, wanted;
        for (int i = 0; i < n; i++) {
            const int s = n > 1 && i % 5 == 4;
            token.push_back((int32_t)(rng() % kVocab));
            seq.push_back(s);
            pos.push_back(length[s]++);
            if (n < 20 || i % 3 == 0) wanted.push_back(i);
        }
        exec_batch b{n, token.data(), pos.data(), seq.data(), (int32_t)wanted.size(), wanted.data(), &pages, slots};
        std::vector<int32_t> end;
        for (const int32_t s : seq) end.push_back(length[s]);
        b.end = end.data();
        DUET_TRY(e.run(context, b, nullptr, err));
        const int width = c.g.buffers[(size_t)c.g.logits_buffer].width;
        for (int i = 0; i < (int)wanted.size(); i++) {
            const float* row = e.wanted_row(context, c.g.logits_buffer, i);
            out->insert(out->end(), row, row + width);
        }
    }
    return DUET_OK;
}

std::string compare_case(const graph_case& c, const char* device, const char* isa) {
    error_text err;
    std::vector<float> want, got;
    if (run_case(c, kCpuExecutor, "scalar", &want, err) != DUET_OK) return "cpu: " + err.text;
    const bool is_cpu = strcmp(device, "cpu") == 0;
    if (run_case(c, is_cpu ? kCpuExecutor : kGpuExecutor, is_cpu ? isa : device, &got, err) != DUET_OK) return err.text;
    if (want.size() != got.size()) return "sizes differ";
    if (c.fast) {
        double difference = 0, size = 0;
        for (size_t i = 0; i < want.size(); i++) {
            difference += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
            size += (double)want[i] * want[i];
        }
        const double share = std::sqrt(difference / size);
        return share < 1.0 / 256 ? "" : "differs by " + std::to_string(share) + " of the exact results";
    }
    for (size_t i = 0; i < want.size(); i++)
        if (memcmp(&want[i], &got[i], 4) != 0)
            return "value " + std::to_string(i) + " of " + std::to_string(want.size()) + ": want " +
                   std::to_string(want[i]) + " got " + std::to_string(got[i]);
    return "";
}

}  // namespace duet::self_test
