// models/gpt.cpp: descendants of GPT-2: GPT-2, StarCoder 2, Falcon, Phi-2, GPT-NeoX, MPT have layer norms with bias,
// biases in the projections and a plain gelu feed-forward; StableLM has their norms with a gated feed-forward.
// Sources: Radford et al. 2019; ggml-org/llama.cpp:src/models for the tensors and the order of ops.
// Main path: models/arch.cpp -> [models/gpt.cpp] -> models/ops.h
#include "parts.h"

namespace duet {

duet_status describe_gpt(graph_builder& g) {
    if (!g.read_common({norm_kind::layer, 1, 1})) return g.status;
    const view x = input_embedding(g);
    const bool is_gpt2 = g.arch == "gpt2", is_mpt = g.arch == "mpt", is_stablelm = g.arch == "stablelm";
    if (is_gpt2 || (is_mpt && g.file.find_tensor("position_embd.weight"))) add_positions(g, x);
    block_options block;
    block.attn.neox = true;
    if (!is_gpt2 && !is_mpt) block.attn.rope = g.rope();
    if (is_mpt) block.attn.norms = head_norms::whole_optional;
    block.attn.alibi = g.f32("attention.max_alibi_bias", false, 0, 0, 1e3f);
    block.attn.clip_qkv = g.f32("attention.clamp_kqv", false, 0, 0, 1e6f);
    if (is_stablelm) block.attn.norms = head_norms::own_weights;
    else block.ffn.kind = ffn_kind::plain, block.ffn.act = activation::gelu;
    if (g.arch == "falcon" || g.arch == "phi2") block.parallel = true;
    if (g.arch == "gptneox") block.parallel = g.flag("use_parallel_residual", true);
    if (is_stablelm) block.parallel = !g.has(0, "ffn_norm.weight");
    // Only GPT-NeoX and the larger Falcons have a norm for each of the two parts that run side by side.
    if (g.arch == "falcon" && g.has(0, "attn_norm_2.weight")) {
        block.attn_norm = "attn_norm_2";
        block.ffn_norm = "attn_norm";
    } else if (block.parallel && g.arch != "gptneox") {
        block.ffn_norm = nullptr;
    }
    for (int32_t i = 0; i < g.hp.n_layers; i++) block_part(g, i, x, block);
    return output_part(g, x);
}

}  // namespace duet
