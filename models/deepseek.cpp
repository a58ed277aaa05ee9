// models/deepseek.cpp: multi-head latent attention: DeepSeek V2, V3, R1, Kimi K2, Mistral 4, PLM. The cache holds one
// compressed vector and one rotated key for all heads; queries and results pass through attn_k_b and attn_v_b (the
// absorbed form). Source: DeepSeek-AI 2024; ggml-org/llama.cpp:src/models.
// Main path: models/arch.cpp -> [models/deepseek.cpp] -> models/ops.h
#include "parts.h"
#include "../quant/exact_math.h"
#include "../quant/formats.h"

#include <cmath>
#include <cstring>

namespace duet {
namespace {

struct latent_sizes {
    int32_t q_rank, rank, d_k, d_v, rope;
    int32_t plain() const { return d_k - rope; }
};

bool read_latent(graph_builder& g, latent_sizes* s) {
    s->q_rank = g.i32("attention.q_lora_rank", false, 0, 0, 1 << 16);
    s->rank = g.i32("attention.kv_lora_rank", true, 1, 1, 4096);
    // Older files, with attn_kv_b, lack the keys of the compressed form.
    s->d_k = g.i32("attention.key_length_mla", false, g.hp.k_dim, 0, 4096);
    s->d_v = g.i32("attention.value_length_mla", false, g.hp.v_dim, 1, 4096);
    s->rope = g.hp.rope_dim;
    if (s->rope < 2) return g.wrong("rope.dimension_count", "want at least 2, got %d", s->rope);
    if (s->d_k <= s->rope)
        return g.wrong("attention.key_length_mla", "want more than rope.dimension_count %d, got %d", s->rope, s->d_k);
    return g.status == DUET_OK;
}

// out[head] = w[head] in[head]
void per_head_matmul(graph_builder& g, int32_t i, view in, view out, weight_id w) {
    op& o = g.add(op_kind::expert_matmul, i, in, out);
    o.n_used = in.n_heads;
    o.w = w;
}

// Splits attn_kv_b of older files {rank, heads * (plain + d_v)}, where the rows of a head's keys come before those of
// its values. Values are copied as they are. Keys are needed transposed and become F32; for an F32 file they are the
// numbers of attn_k_b.
void split_kv_b(graph_builder& g, int32_t i, int32_t n_heads, const latent_sizes& s, weight_id* k_b, weight_id* v_b) {
    const int64_t n_rows = s.plain() + s.d_v;
    *v_b = g.block_tensor(i, "attn_kv_b.weight", true, s.rank, n_heads * n_rows);
    if (g.status != DUET_OK) return;
    const weight both = g.graph.weights[(size_t)*v_b];
    const size_t plain = (size_t)s.plain(), rank = (size_t)s.rank, v_bytes = (size_t)s.d_v * both.row_bytes;
    auto keys = std::make_shared<std::vector<uint8_t>>((size_t)n_heads * rank * plain * sizeof(float));
    auto values = std::make_shared<std::vector<uint8_t>>((size_t)n_heads * v_bytes);
    std::vector<float> row(rank);
    for (size_t h = 0; h < (size_t)n_heads; h++) {
        const uint8_t* at = both.data + h * (size_t)n_rows * both.row_bytes;
        float* to = (float*)keys->data() + h * rank * plain;
        for (size_t j = 0; j < plain; j++, at += both.row_bytes) {
            decode_row(both.type, at, s.rank, row.data());
            for (size_t c = 0; c < rank; c++) to[c * plain + j] = row[c];
        }
        memcpy(values->data() + h * v_bytes, at, v_bytes);
    }
    g.graph.weights[(size_t)*v_b] = {both.name, both.type,      s.rank,         s.d_v,
                                     n_heads,   values->data(), values->size(), both.row_bytes};
    *k_b = (weight_id)g.graph.weights.size();
    g.graph.weights.push_back({both.name + " (keys)", type_id::f32, s.plain(), s.rank, n_heads, keys->data(),
                               keys->size(), plain * sizeof(float)});
    g.graph.made.insert(g.graph.made.end(), {std::move(keys), std::move(values)});
}

void latent_attention(graph_builder& g, int32_t i, view h, view x, const latent_sizes& s,
                      const attention_options& options) {
    const int32_t n_heads = (int32_t)g.hp.n_heads[(size_t)i], n_q = n_heads * s.d_k, n_k = s.rank + s.rope;
    const view q = g.heads(g.buffer("q", n_q), n_heads, s.d_k), k = g.buffer("k", n_k);
    if (s.q_rank > 0) {
        const view a = g.buffer("q latent", s.q_rank);
        g.matmul(i, h, a, g.block_tensor(i, "attn_q_a.weight", true, h.width(), s.q_rank));
        g.norm(i, a, a, g.block_tensor(i, "attn_q_a_norm.weight", true, s.q_rank));
        g.matmul(i, a, q, g.block_tensor(i, "attn_q_b.weight", true, s.q_rank, n_q));
    } else {
        g.matmul(i, h, q, g.block_tensor(i, "attn_q.weight", true, h.width(), n_q));
    }
    g.matmul(i, h, k, g.block_tensor(i, "attn_kv_a_mqa.weight", true, h.width(), n_k));
    const view c = g.columns(k, 0, s.rank);
    g.norm(i, c, c, g.block_tensor(i, "attn_kv_a_norm.weight", true, s.rank));
    rope_part(g, i, g.columns(k, s.rank, s.rope), options.rope, false);

    // The query of a head over the cache: [attn_k_b times its plain part | its rotated part].
    const view wide = g.heads(g.buffer("q wide", (int64_t)n_heads * n_k), n_heads, n_k);
    view plain = q, rotated = q, wide_c = wide, wide_rope = wide;
    plain.head_dim = s.plain();
    rotated.head_dim = wide_rope.head_dim = s.rope;
    rotated.offset += s.plain();
    wide_c.head_dim = s.rank;
    wide_rope.offset += s.rank;
    weight_id k_b = -1, v_b = -1;
    if (g.has(i, "attn_kv_b.weight")) {
        split_kv_b(g, i, n_heads, s, &k_b, &v_b);
    } else {
        k_b = g.block_tensor(i, "attn_k_b.weight", true, s.plain(), s.rank, n_heads);
        v_b = g.block_tensor(i, "attn_v_b.weight", true, s.rank, s.d_v, n_heads);
    }
    per_head_matmul(g, i, plain, wide_c, k_b);
    g.activate(i, activation::none, rotated, view{}, wide_rope);
    rope_part(g, i, wide_rope, options.rope, false);

    const int32_t cache = g.add(op_kind::kv_append, i, k).index = g.cache(1, n_k, s.rank, 0, true);
    const view seen = g.heads(g.buffer("attn latent", (int64_t)n_heads * s.rank), n_heads, s.rank);
    attention_op(g, i, wide, seen, cache, options);
    const view o = g.heads(g.buffer("attn", (int64_t)n_heads * s.d_v), n_heads, s.d_v);
    per_head_matmul(g, i, seen, o, v_b);
    project(g, i, o, x, "attn_output", {});
}

}  // namespace

duet_status describe_deepseek(graph_builder& g) {
    latent_sizes s{};
    if (!g.read_common() || !read_latent(g, &s)) return g.status;
    attention_options attn;
    rope_options rope;
    double mu = 1.0, factor = 1.0;
    if (g.rope_scaling(&factor) == "yarn") {
        const double log_s = exact_log64(factor);
        const double kappa = g.f32("rope.scaling.yarn_log_multiplier", false, 0.0f, -1e3f, 1e3f);
        const double m = kappa == 0 || g.arch == "mistral4" ? (1.0 + 0.1 * log_s) / (1.0 + kappa * log_s) : 1.0;
        rope.magnitude = m * g.f32("rope.scaling.attn_factor", false, 1.0f, 1e-6f, 1e6f);
        mu = rope.magnitude * (1.0 + kappa * log_s);
    }
    attn.rope = g.rope(rope);
    attn.scale = (float)(mu * mu / std::sqrt((double)s.d_k));
    attn.temperature_scale = g.f32("attention.temperature_scale", false, 0, 0, 1e3f);
    attn.temperature_length = (float)g.i32("attention.temperature_length", attn.temperature_scale != 0, 1, 1, 1 << 30);
    // Files of GLM-4.7 Flash do not say how experts are scored. Where a bias chooses them, the scores are sigmoids.
    const bool has_bias = g.has(g.hp.n_layers - 1, "exp_probs_b.bias");
    block_options block{.moe = read_moe(g, g.arch == "mistral4", has_bias)};
    if (g.arch == "plm") block.ffn = {ffn_kind::plain, activation::relu2};
    if (g.status != DUET_OK) return g.status;
    const view x = input_embedding(g);
    for (int32_t i = 0; i < g.hp.n_layers; i++) {
        latent_attention(g, i, norm_part(g, i, x, "attn_norm"), x, s, attn);
        experts_or_ffn_part(g, i, norm_part(g, i, x, "ffn_norm"), x, block);
    }
    return output_part(g, x);
}

}  // namespace duet
