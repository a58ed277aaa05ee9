// models/parts.h: the pieces most families share, as parameters: norms, attention with its projections, feed-forward,
// experts, recurrent mixers, whole blocks, input and output. Formulas: parts.cpp, docs/numerics.md. Main path:
// models/<family>.cpp -> [models/parts.h] -> models/arch.h
#pragma once
#include "arch.h"

namespace duet {

// How a part's result joins the stream x: x += scale * result, or x += scale * norm(result) with the norm of that
// name.
struct join {
    const char* post_norm = nullptr;
    float scale = 1.0f;
    bool assign = false;  // x = norm(result) instead: x is a buffer of its own
};

enum class head_norms : uint8_t {
    none,
    per_head,           // attn_q_norm, attn_k_norm {d} on every head before rope
    per_head_optional,  // the same where the tensors are there
    after_rope,         // per head, after rope
    whole,              // {H d}: over the whole projection, before rope
    whole_optional,
    own_weights,  // {d, H}: per head, each with its own weights, where the tensors are there
};

struct attention_options {
    bool neox = false;  // rope pairs (i, i + d/2)
    int32_t rope = -1;  // rope table; -1: no rope in this layer
    head_norms norms = head_norms::none;
    bool gated = false;  // attn_q holds [query d | gate d] per head; the result is times sigmoid(gate)
    bool sinks = false;  // attn_sinks {H}
    int32_t window = 0;  // positions a token sees; 0: all
    float scale = 0;     // 0: 1 / sqrt(k_dim)
    float cap = 0;       // soft cap of the scores
    float temperature_scale = 0, temperature_length = 0;
    float alibi = 0;     // largest ALiBi bias
    float clip_qkv = 0;  // projections are clipped to +- this
    join out;
};

enum class ffn_kind : uint8_t { gated, fused, plain };  // act(gate) * up; both in ffn_up {n, 2F}; act(up)
struct ffn_options {
    ffn_kind kind = ffn_kind::gated;
    activation act = activation::silu;
    int64_t hidden = 0;  // 0: feed_forward_length of the layer
    join out;
};

struct moe_options {
    int32_t hidden = 0, shared_hidden = 0;
    int32_t n_groups = 0, n_groups_used = 0, latent = 0;
    bool sigmoid_scores = false, softmax_after = false, normalise = true;
    bool shared_gate = false;  // shared expert times sigmoid(ffn_gate_inp_shexp x)
    bool biases = false;       // ffn_gate_inp.bias, ffn_*_exps.bias
    bool gated = true;         // act(gate) * up; else act(up)
    activation act = activation::silu;
    float scale = 1.0f, router_scale = 1.0f;
    join out;
};
// From the expert_* keys; normalise and sigmoid: what holds when the file does not say.
moe_options read_moe(graph_builder& g, bool normalise, bool sigmoid = false);

struct block_options {
    const char* attn_norm = "attn_norm";  // nullptr: the part reads x itself
    const char* ffn_norm = "ffn_norm";
    bool parallel = false;  // both parts read x as it was before the block; without ffn_norm one norm serves both
    attention_options attn;
    ffn_options ffn;
    const moe_options* moe = nullptr;  // instead of ffn
};

// x0 = scale * token_embd[token] -> buffer "x"; returns it.
view input_embedding(graph_builder& g, float scale = 1.0f);
// The norm of that name over x -> buffer `to`; returns it. Layer norms may have a bias.
view norm_part(graph_builder& g, int32_t layer, view x, const char* name, const char* to = "h");
void rope_part(graph_builder& g, int32_t layer, view heads, int32_t table, bool neox);
// attention op over a cache layer
op& attention_op(graph_builder& g, int32_t layer, view q, view out, int32_t cache, const attention_options& options);
// x joined by w in (+ b)
void project(graph_builder& g, int32_t layer, view in, view x, weight_id w, weight_id b, const join& out);

// x joined by attn_output attention(q, k, v) of in: attn_q, attn_k, attn_v or attn_qkv, with optional biases.
void attention_part(graph_builder& g, int32_t layer, view in, view x, const attention_options& options);
void ffn_part(graph_builder& g, int32_t layer, view in, view x, const ffn_options& options);
// router_in: what the router reads, when it is not in.
void moe_part(graph_builder& g, int32_t layer, view in, view x, const moe_options& options, view router_in = {});
void experts_or_ffn_part(graph_builder& g, int32_t layer, view in, view x,
                         const block_options& options);  // as the block has
void block_part(graph_builder& g, int32_t layer, view x, const block_options& options);
// Mamba-2 (Dao and Gu 2024); its state: docs/numerics.md.
void mamba2_part(graph_builder& g, int32_t layer, view in, view x, const join& out, bool norm_required);

struct output_options {
    float scale = 1.0f, cap = 0;
    const char* norm = "output_norm";
};
// Rows whose logits are wanted -> output norm -> output matrix (token_embd when there is none) -> logits.
void output_part(graph_builder& g, view x, const output_options& options = {});

}  // namespace duet
