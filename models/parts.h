// models/parts.h: the pieces that most families share: norms, attention with its projections, feed-forward, experts,
// recurrent mixers, whole blocks, input and output. Options choose the variants. Formulas: docs/numerics.md.
// Main path: models/<family>.cpp -> [models/parts.h] -> models/arch.h
#pragma once
#include "arch.h"

#include <optional>

namespace duet {

// How a part's result joins the stream x: x += scale * result; with post_norm, x += scale * norm(result), where
// post_norm names the norm's tensor.
struct join {
    const char* post_norm = nullptr;
    float scale = 1.0f;
    bool assign = false;  // x = norm(result) instead, where x is a buffer of its own
};

enum class head_norms : uint8_t {
    none,
    per_head,           // attn_q_norm, attn_k_norm {d}: on every head, before rope
    per_head_optional,  // the same, if the tensors exist
    after_rope,         // on every head, after rope
    whole,              // {H d}: over the whole projection, before rope
    whole_optional,
    own_weights,  // {d, H}: every head has its own weights, if the tensors exist
};

struct attention_options {
    bool neox = false;  // rope rotates the pairs (i, i + d/2)
    int32_t rope = -1;  // rope table; -1: no rope in this layer
    head_norms norms = head_norms::none;
    // The result is multiplied by sigmoid(gate). The gate is attn_gate, or attn_q holds [query d | gate d] per head.
    bool gated = false;
    bool sinks = false;  // attn_sinks {H}
    int32_t window = 0;  // positions that a token sees; 0: all
    float scale = 0;     // 0: 1 / sqrt(k_dim)
    float cap = 0;       // soft cap of the scores
    float temperature_scale = 0, temperature_length = 0;
    float alibi = 0;     // largest ALiBi bias
    float clip_qkv = 0;  // bound of the projections, which are clipped to +- it; 0: none
    join out = {};
};

// The formula: act(gate) * up; the same with both in ffn_up {n, 2F}; act(up).
enum class ffn_kind : uint8_t { gated, fused, plain };
struct ffn_options {
    ffn_kind kind = ffn_kind::gated;
    activation act = activation::silu;
    join out = {};
};

struct moe_options {
    int32_t hidden = 0, shared_hidden = 0;
    int32_t n_groups = 0, n_groups_used = 0, latent = 0;
    bool sigmoid_scores = false, softmax_after = false, normalise = true;
    bool shared_gate = false;  // The shared expert is multiplied by sigmoid(ffn_gate_inp_shexp x).
    bool biases = false;       // The tensors ffn_gate_inp.bias and ffn_*_exps.bias exist.
    bool gated = true;         // act(gate) * up; false: act(up)
    activation act = activation::silu;
    float scale = 1.0f, router_scale = 1.0f;
    join out = {};
};
// Reads the expert_* keys, if there are experts. normalise and sigmoid hold where the file does not say.
moe_options read_moe(graph_builder& g, bool normalise, bool sigmoid = false);

struct block_options {
    const char* attn_norm = "attn_norm";  // nullptr: the part reads x itself
    const char* ffn_norm = "ffn_norm";
    bool parallel = false;  // Both parts read x as it was before the block; without ffn_norm they share one norm.
    attention_options attn = {};
    ffn_options ffn = {};
    std::optional<moe_options> moe = {};  // replaces ffn in blocks that have a router
};

// Appends x0 = scale * token_embd[token], to buffer "x", and returns the buffer.
view input_embedding(graph_builder& g, float scale = 1.0f);
// Appends a norm outside the blocks, in place.
void whole_norm(graph_builder& g, view x, const std::string& name);
// Appends the norm with that tensor name over x, to buffer `to`, and returns the buffer. Layer norms may have a bias.
view norm_part(graph_builder& g, int32_t layer, view x, const char* name, const char* to = "h");
// Adds the learned embedding of the position to x.
void add_positions(graph_builder& g, view x);
// Makes the model's rope table, with the factors that its file has: one set, or two of which one is for long contexts.
int32_t rope_with_factors(graph_builder& g);
void rope_part(graph_builder& g, int32_t layer, view heads, int32_t table, bool neox);
// Appends attention over a cache layer.
op& attention_op(graph_builder& g, int32_t layer, view q, view out, int32_t cache, const attention_options& options);
// Appends the projection of `in` with that name, and its bias if there is one, which joins x.
void project(graph_builder& g, int32_t layer, view in, view x, const std::string& name, const join& out);

// Appends attention over `in`, which joins x: attn_q, attn_k, attn_v or attn_qkv, then attn_output; biases are
// optional.
void attention_part(graph_builder& g, int32_t layer, view in, view x, const attention_options& options);
void ffn_part(graph_builder& g, int32_t layer, view in, view x, const ffn_options& options);
// Appends experts, which join x. router_in: input of the router, if it is not `in`.
void moe_part(graph_builder& g, int32_t layer, view in, view x, const moe_options& options, view router_in = {});
// Appends experts or feed-forward, as the block's options and tensors say.
void experts_or_ffn_part(graph_builder& g, int32_t layer, view in, view x, const block_options& options);
void block_part(graph_builder& g, int32_t layer, view x, const block_options& options);
// Appends Mamba-2 (Dao and Gu 2024), which joins x. docs/numerics.md describes its state.
void mamba2_part(graph_builder& g, int32_t layer, view in, view x, const join& out, bool norm_required);

// Which layers see a window only, and the ropes of these and of the others.
struct windowed_layers {
    int32_t window = 0, rope = -1, rope_full = -1;
    std::vector<uint32_t> is_windowed = {};  // of each block
    // Reads which layers those are. Where the file does not say, of `period` layers one sees all, the first or the
    // last; 0: none does.
    void read_pattern(graph_builder& g, int32_t period, bool first_sees_all = false);
};
// Reads those of an encoder, whose file may say which layers they are.
windowed_layers read_windows(graph_builder& g, int32_t period, bool first_sees_all);
// Appends a block with the window and the rope of its layer, and all such blocks.
void windowed_block_part(graph_builder& g, int32_t layer, view x, block_options o, const windowed_layers& layers);
void windowed_blocks_part(graph_builder& g, view x, const block_options& o, const windowed_layers& layers);

struct output_options {
    float scale = 1.0f, cap = 0;
    const char* norm = "output_norm";
};
// Appends the end of an encoder: wanted rows -> the norm with that name, if one is given.
view rows_part(graph_builder& g, view x, const char* norm);
// Appends the end of the model: rows whose logits are wanted -> output norm -> output matrix (token_embd if there is no
// other) -> logits; where tokens see later ones there are no logits. Nothing may follow: it finishes the description.
duet_status output_part(graph_builder& g, view x, const output_options& options = {});

}  // namespace duet
