// models/gemma4.cpp: Gemma 4: two head sizes (layers with a window and full ones), late layers that share the keys and
// values of earlier ones, values normed without weights, an extra input per layer, and in some models experts beside
// the dense feed-forward. Source: ggml-org/llama.cpp:src/models.
// Main path: models/arch.cpp -> [models/gemma4.cpp] -> models/ops.h
#include "parts.h"

#include <cmath>

namespace duet {
namespace {

struct gemma4_model {
    std::vector<uint32_t> is_windowed;
    int32_t window = 0, n_owners = 0, per_layer = 0;
    int32_t dim_full = 0, dim_windowed = 0, rope_full = -1, rope_windowed = -1;
    int32_t cache_full = -1, cache_windowed = -1;  // cache of the last layer of each kind that owns its keys
    moe_options moe;
};

// The input that each layer adds: u_i = (norm(proj x0 / sqrt(n)) + sqrt(e) embedding_i) / sqrt 2. All layers side by
// side.
view layer_inputs(graph_builder& g, view x, int32_t e) {
    const int64_t width = (int64_t)e * g.hp.n_blocks;
    const view u = g.buffer("layer inputs", width), emb = g.buffer("layer embeddings", width);
    op& embed = g.add(op_kind::embed, -1, {}, emb);
    embed.w = g.tensor("per_layer_token_embd.weight", true, width, g.hp.n_vocab);
    embed.scale = std::sqrt((float)e);
    g.matmul(-1, x, u, g.tensor("per_layer_model_proj.weight", true, g.hp.dim, width)).scale =
        1.0f / std::sqrt((float)g.hp.dim);
    const view rows = g.heads(u, g.hp.n_blocks, e);
    g.norm(-1, rows, rows, g.tensor("per_layer_proj_norm.weight", true, e));
    g.add_scaled(-1, u, emb, u);
    g.scale(-1, u, 1.0f / std::sqrt(2.0f));
    return u;
}

void gemma4_attention(graph_builder& g, int32_t i, view x, gemma4_model& m) {
    const bool windowed = m.is_windowed[(size_t)i] != 0;
    const int32_t d = windowed ? m.dim_windowed : m.dim_full, rope = windowed ? m.rope_windowed : m.rope_full;
    const int32_t n_heads = (int32_t)g.hp.n_heads[(size_t)i], n_kv = (int32_t)g.hp.n_kv_heads[(size_t)i];
    int32_t& cache = windowed ? m.cache_windowed : m.cache_full;
    const view h = norm_part(g, i, x, "attn_norm"), q = g.heads(g.buffer("q", (int64_t)n_heads * d), n_heads, d);
    g.matmul(i, h, q, g.block_tensor(i, "attn_q.weight", true, h.width(), q.width()));
    g.norm(i, q, q, g.block_tensor(i, "attn_q_norm.weight", true, d));
    rope_part(g, i, q, rope, true);
    if (i < m.n_owners) {
        const view k = g.heads(g.buffer("k", (int64_t)n_kv * d), n_kv, d),
                   v = g.heads(g.buffer("v", (int64_t)n_kv * d), n_kv, d);
        g.matmul(i, h, k, g.block_tensor(i, "attn_k.weight", true, h.width(), k.width()));
        const weight_id wv = g.block_tensor(i, "attn_v.weight", false, h.width(), v.width());
        if (wv >= 0) g.matmul(i, h, v, wv);
        g.norm(i, wv >= 0 ? v : k, v, -1);
        g.norm(i, k, k, g.block_tensor(i, "attn_k_norm.weight", true, d));
        rope_part(g, i, k, rope, true);
        cache = g.cache(n_kv, d, d, windowed ? m.window : 0);
        g.add(op_kind::kv_append, i, k, {}, v).index = cache;
    }
    if (cache < 0 || g.graph.caches[(size_t)cache].n_kv_heads != n_kv || g.graph.caches[(size_t)cache].k_dim != d)
        return (void)g.wrong("attention.shared_kv_layers", "layer %d finds no earlier layer with such keys", i);
    const view o = g.heads(g.buffer("attn", (int64_t)n_heads * d), n_heads, d);
    attention_op(g, i, q, o, cache, {.scale = 1.0f});  // The head norms carry the scale.
    project(g, i, o, x, "attn_output", {.post_norm = "post_attention_norm"});
}

void gemma4_ffn(graph_builder& g, int32_t i, view x, const gemma4_model& m) {
    ffn_options dense{.act = activation::gelu, .out = {.post_norm = "post_ffw_norm"}};
    if (!g.has(i, "ffn_gate_inp.weight")) {
        ffn_part(g, i, norm_part(g, i, x, "ffn_norm"), x, dense);
        return;
    }
    const view f = g.buffer("f", x.width()), r = g.buffer("router in", x.width());
    dense.out = {"post_ffw_norm_1", 1.0f, true};
    ffn_part(g, i, norm_part(g, i, x, "ffn_norm"), f, dense);
    g.norm(i, x, r, g.block_tensor(i, "ffn_gate_inp.scale", true, x.width()));
    moe_part(g, i, norm_part(g, i, x, "pre_ffw_norm_2"), f, m.moe, r);
    g.norm(i, f, f, g.block_tensor(i, "post_ffw_norm.weight", true, x.width()));
    g.add_scaled(i, x, f, x);
}

// Appends x += norm(proj (gelu(inp_gate x) * u_i)), then multiplies x by the layer's factor.
void gemma4_layer_end(graph_builder& g, int32_t i, view x, view inputs, int32_t e) {
    if (e > 0) {
        const view gate = g.buffer("layer gate", e);
        g.matmul(i, x, gate, g.block_tensor(i, "inp_gate.weight", true, x.width(), e));
        g.activate(i, activation::gelu, gate, g.columns(inputs, i * e, e), gate);
        project(g, i, gate, x, "proj", {.post_norm = "post_norm"});
    }
    if (const float* by = g.floats(g.block_tensor(i, "layer_output_scale.weight", false, 1))) g.scale(i, x, *by);
}

}  // namespace

duet_status describe_gemma4(graph_builder& g) {
    if (!g.read_common()) return g.status;
    gemma4_model m;
    m.is_windowed = g.per_layer("attention.sliding_window_pattern", true, {}, 0, 1);
    m.window = g.i32("attention.sliding_window", true, 1, 1, 1 << 30);
    m.per_layer = g.i32("embedding_length_per_layer_input", false, 0, 0, 1 << 16);
    m.n_owners = g.hp.n_layers - g.i32("attention.shared_kv_layers", false, 0, 0, g.hp.n_layers - 1);
    m.dim_full = g.hp.k_dim;
    m.dim_windowed = g.i32("attention.key_length_swa", false, m.dim_full, 1, 4096);
    const int32_t v_windowed = g.i32("attention.value_length_swa", false, m.dim_windowed, 1, 4096);
    if (g.hp.v_dim != m.dim_full || v_windowed != m.dim_windowed)
        g.wrong("attention.value_length", "want values as long as keys");
    const int32_t n_rotated = g.i32("rope.dimension_count_swa", false, m.dim_windowed, 2, m.dim_windowed);
    m.rope_full = g.rope({.factors = g.tensor("rope_freqs.weight", false, g.hp.rope_dim / 2)});
    m.rope_windowed = g.rope({.dim = n_rotated / 2 * 2,
                              .base = g.f32("rope.freq_base_swa", false, 10000.0f, 1e-3f, 1e30f),
                              .scaling = false});
    m.moe = read_moe(g, true);
    m.moe.act = activation::gelu;
    m.moe.router_scale = 1.0f / std::sqrt((float)g.hp.dim);
    m.moe.out.post_norm = "post_ffw_norm_2";
    if (g.status != DUET_OK) return g.status;
    const view x = input_embedding(g, std::sqrt((float)g.hp.dim));
    const view inputs = m.per_layer > 0 ? layer_inputs(g, x, m.per_layer) : view{};
    for (int32_t i = 0; i < g.hp.n_layers && g.status == DUET_OK; i++) {
        gemma4_attention(g, i, x, m);
        gemma4_ffn(g, i, x, m);
        gemma4_layer_end(g, i, x, inputs, m.per_layer);
    }
    return output_part(g, x, {.cap = g.f32("final_logit_softcapping", false, 0, 0, 1e6f)});
}

}  // namespace duet
