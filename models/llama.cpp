// models/llama.cpp: Llama 1-3.x and Mixtral, Mistral 3, InternLM 2, SmolLM 3, Ernie 4.5, Arcee, Xverse, Baichuan,
// Refact, DeepSeek 1, Bailing (Ling 1), Maincoder, Deci (Nemotron 49B to 253B), Granite, MiniCPM: pre-norm blocks, rope
// on neighbouring pairs, grouped attention, swiglu or experts. Source: Touvron et al. 2023;
// ggml-org/llama.cpp:src/models. Describes only; must not know: devices. Main path: models/arch.cpp ->
// [models/llama.cpp] -> models/ops.h
#include "parts.h"

#include <cmath>

namespace duet {

// A block of Deci may lack attention, feed-forward or both, or has one matrix in the place of attention.
static void deci_block_part(graph_builder& g, int32_t i, view x, const attention_options& attn) {
    const bool has_heads = g.hp.n_heads[(size_t)i] > 0;
    const view h = has_heads ? norm_part(g, i, x, "attn_norm") : x;
    if (g.hp.n_kv_heads[(size_t)i] > 0) attention_part(g, i, h, x, attn);
    else if (has_heads) project(g, i, h, x, "attn_output", {});
    if (g.hp.hidden_dim.empty() || g.hp.hidden_dim[(size_t)i] > 0)
        ffn_part(g, i, norm_part(g, i, x, "ffn_norm"), x, {});
}

duet_status describe_llama(graph_builder& g) {
    const uint32_t least = g.arch == "deci" ? 0 : 1;  // heads and columns of a block
    if (!g.read_common({.min_kv_heads = least, .min_hidden = least, .is_either = true})) return g.status;
    const view x = input_embedding(g);
    block_options block;
    const bool is_smollm = g.arch == "smollm3", normalise = !has_word("deepseek bailingmoe", g.arch);
    // Refact and the 13B models of Baichuan have ALiBi instead of rope.
    const bool has_alibi = g.arch == "refact" || (g.arch == "baichuan" && g.hp.n_layers == 40);
    const int32_t rope = has_alibi ? -1 : rope_with_factors(g);
    if (has_alibi) block.attn.alibi = 8.0f;
    if (g.arch == "maincoder") block.attn.norms = head_norms::after_rope;
    if (g.arch == "arcee") block.ffn = {.kind = ffn_kind::plain, .act = activation::relu2};
    block.attn.temperature_scale = g.f32("attention.temperature_scale", false, 0, 0, 1e3f);
    if (block.attn.temperature_scale != 0) block.attn.temperature_length = (float)g.original_ctx();
    block.moe = read_moe(g, normalise);
    for (int32_t i = 0; i < g.hp.n_layers; i++) {
        block.attn.rope = is_smollm && (i + 1) % 4 == 0 ? -1 : rope;  // Every fourth layer of SmolLM 3 has no rope.
        if (least == 0) deci_block_part(g, i, x, block.attn);
        else block_part(g, i, x, block);
    }
    return output_part(g, x);
}

duet_status describe_granite(graph_builder& g) {
    if (!g.read_common({.min_kv_heads = 0})) return g.status;
    // The first files of MiniCPM lack these scales: its configuration has scale_emb 12, scale_depth 1.4 and 256 for the
    // width that the logits are measured by.
    const bool is_cpm = g.arch == "minicpm";
    const float depth = is_cpm ? 1.4f / std::sqrt((float)g.hp.n_layers) : 1.0f, width = is_cpm ? (float)g.hp.dim : 256;
    const view x = input_embedding(g, g.f32("embedding_scale", false, is_cpm ? 12.0f : 1.0f, 1e-6f, 1e6f));
    const join out{.scale = g.f32("residual_scale", false, depth, 1e-6f, 1e6f)};
    moe_options moe = read_moe(g, true);
    moe.out = out;
    block_options block{.ffn = {.out = out}, .moe = moe};
    block.attn = {.scale = g.f32("attention.scale", false, 0, 0, 1e6f), .out = out};
    if (g.flag("rope.scaling.finetuned", true)) block.attn.rope = rope_with_factors(g);
    for (int32_t i = 0; i < g.hp.n_layers && g.status == DUET_OK; i++) {
        const view h = norm_part(g, i, x, "attn_norm");
        if (g.hp.n_kv_heads[(size_t)i] > 0) attention_part(g, i, h, x, block.attn);
        else mamba2_part(g, i, h, x, out, true);
        experts_or_ffn_part(g, i, norm_part(g, i, x, "ffn_norm"), x, block);
    }
    return output_part(g, x, {.scale = 1.0f / g.f32("logit_scale", false, width / 256, 1e-6f, 1e6f)});
}

}  // namespace duet
