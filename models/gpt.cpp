// models/gpt.cpp: descendants of GPT-2: GPT-2, StarCoder 2, Falcon, Phi-2, GPT-NeoX, MPT have layer norms with bias,
// biases in the projections and a plain gelu feed-forward; StableLM has their norms with a gated feed-forward.
// Sources: Radford et al. 2019; ggml-org/llama.cpp:src/models for the tensors and the order of ops.
// Main path: models/arch.cpp -> [models/gpt.cpp] -> models/ops.h
#include "parts.h"

namespace duet {
namespace {

duet_status describe_gpt_blocks(graph_builder& g, view x, const block_options& block) {
    for (int32_t i = 0; i < g.hp.n_layers; i++) block_part(g, i, x, block);
    output_part(g, x);
    return g.finish();
}

block_options gpt_block(graph_builder& g, bool has_rope) {
    block_options block;
    block.ffn.kind = ffn_kind::plain;
    block.ffn.act = activation::gelu;
    block.attn.neox = true;
    if (has_rope) block.attn.rope = g.rope();
    return block;
}

}  // namespace

duet_status describe_gpt2(graph_builder& g) {
    if (!g.read_common({norm_kind::layer, 1, 1})) return g.status;
    const view x = input_embedding(g);
    add_positions(g, x);
    return describe_gpt_blocks(g, x, gpt_block(g, false));
}

// Positions enter as a bias of the scores (ALiBi).
duet_status describe_mpt(graph_builder& g) {
    if (!g.read_common({norm_kind::layer, 1, 1})) return g.status;
    const view x = input_embedding(g);
    if (g.file.find_tensor("position_embd.weight")) add_positions(g, x);
    block_options block = gpt_block(g, false);
    block.attn.norms = head_norms::whole_optional;
    block.attn.alibi = g.f32("attention.max_alibi_bias", false, 0, 0, 1e3f);
    block.attn.clip_qkv = g.f32("attention.clamp_kqv", false, 0, 0, 1e6f);
    return describe_gpt_blocks(g, x, block);
}

duet_status describe_starcoder2(graph_builder& g) {
    if (!g.read_common({norm_kind::layer, 1, 1})) return g.status;
    const view x = input_embedding(g);
    return describe_gpt_blocks(g, x, gpt_block(g, true));
}

// Attention and feed-forward read the same norm; in the larger Falcon models each has its own.
duet_status describe_falcon(graph_builder& g) {
    if (!g.read_common({norm_kind::layer, 1, 1})) return g.status;
    const view x = input_embedding(g);
    block_options block = gpt_block(g, true);
    block.parallel = true;
    const bool two_norms = g.has(0, "attn_norm_2.weight");
    block.attn_norm = two_norms ? "attn_norm_2" : "attn_norm";
    block.ffn_norm = two_norms ? "attn_norm" : nullptr;
    return describe_gpt_blocks(g, x, block);
}

duet_status describe_phi2(graph_builder& g) {
    if (!g.read_common({norm_kind::layer, 1, 1})) return g.status;
    const view x = input_embedding(g);
    block_options block = gpt_block(g, true);
    block.parallel = true;
    block.ffn_norm = nullptr;
    return describe_gpt_blocks(g, x, block);
}

duet_status describe_gptneox(graph_builder& g) {
    if (!g.read_common({norm_kind::layer, 1, 1})) return g.status;
    const view x = input_embedding(g);
    block_options block = gpt_block(g, true);
    block.parallel = g.flag("use_parallel_residual", true);
    return describe_gpt_blocks(g, x, block);
}

duet_status describe_stablelm(graph_builder& g) {
    if (!g.read_common({norm_kind::layer, 1, 1})) return g.status;
    const view x = input_embedding(g);
    block_options block = gpt_block(g, true);
    block.ffn = {};
    block.attn.norms = head_norms::own_weights;
    block.parallel = !g.has(0, "ffn_norm.weight");
    if (block.parallel) block.ffn_norm = nullptr;
    return describe_gpt_blocks(g, x, block);
}

}  // namespace duet
