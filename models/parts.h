// models/parts.h: the pieces most families share, as parameters: attention with its projections, gated feed-forward, input and output.
// Main path: models/<family>.cpp -> [models/parts.h] -> models/arch.h
#pragma once
#include "arch.h"

namespace duet {

struct attention_options {
    bool      neox = false;          // rope pairs (i, i + d/2)
    int32_t   rope = -1;             // rope table; -1: no rope in this layer
    bool      head_norms = false;    // attn_q_norm, attn_k_norm {d} on every head before rope
    int32_t   window = 0;            // positions a token sees; 0: all
    float     scale = 0;             // 0: 1 / sqrt(k_dim)
    float     cap = 0;               // soft cap of the scores
};

// x0 = scale * token_embd[token] -> buffer "x"; returns it.
view input_embedding(graph_builder& g, float scale = 1.0f);

// out += attn_output * attention(attn_q in, attn_k in, attn_v in). Binds attn_q, attn_k, attn_v, attn_output and their optional biases.
void attention_part(graph_builder& g, int32_t layer, view in, view out, const attention_options& options);

// out += ffn_down (act(ffn_gate in) * (ffn_up in)), with optional biases.
void gated_ffn_part(graph_builder& g, int32_t layer, view in, view out, activation act);

// Rows whose logits are wanted -> output norm -> output matrix (token_embd when there is none) -> logits.
void output_part(graph_builder& g, view x, norm_kind kind = norm_kind::rms);

}  // namespace duet
