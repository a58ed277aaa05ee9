// models/gpt.cpp: descendants of GPT-2: GPT-2, StarCoder 1 and 2, CodeShell, Falcon, Phi-2, GPT-NeoX, MPT, BLOOM have
// layer norms with bias, biases in the projections and a plain gelu feed-forward; that of Nemotron and Jais 2 is a
// squared relu. StableLM, Orion, Jais and OLMo have a gated one, and OLMo's norms have no weights.
// Sources: Radford et al. 2019; ggml-org/llama.cpp:src/models for the tensors and the order of ops.
// Main path: models/arch.cpp -> [models/gpt.cpp] -> models/ops.h
#include "parts.h"

namespace duet {

duet_status describe_gpt(graph_builder& g) {
    if (!g.read_common({.norm = norm_kind::layer})) return g.status;
    const view x = input_embedding(g);
    const bool is_mpt = g.arch == "mpt", is_stablelm = g.arch == "stablelm", is_bloom = g.arch == "bloom";
    if (has_word("gpt2 starcoder", g.arch) || (is_mpt && g.file.find_tensor("position_embd.weight")))
        add_positions(g, x);
    if (is_bloom) whole_norm(g, x, "token_embd_norm");
    block_options block;
    g.hp.bare_norms = g.arch == "olmo";
    block.attn.neox = !g.hp.bare_norms;
    if (!has_word("gpt2 starcoder mpt bloom jais", g.arch)) block.attn.rope = g.rope();
    if (g.arch == "jais") block.attn.scale = 1.0f / (float)g.hp.k_dim;
    if (is_mpt) block.attn.norms = head_norms::whole_optional;
    block.attn.alibi = g.f32("attention.max_alibi_bias", false, is_bloom ? 8.0f : 0, 0, 1e3f);
    block.attn.clip_qkv = g.f32("attention.clamp_kqv", false, 0, 0, 1e6f);
    if (is_stablelm) block.attn.norms = head_norms::own_weights;
    if (!has_word("stablelm orion jais olmo", g.arch)) block.ffn = {ffn_kind::plain, activation::gelu};
    if (has_word("nemotron jais2", g.arch)) block.ffn.act = activation::relu2;
    if (has_word("falcon phi2", g.arch)) block.parallel = true;
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
