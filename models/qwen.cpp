// models/qwen.cpp: Qwen 2 and 3, their mixtures, the text part of their VL models (for text, their axes of position are
// one), Seed-OSS, Hunyuan, EXAONE 3, OLMoE, MiniMax M2, Mellum 2, Pangu Embedded, EuroBERT. Their blocks are llama's
// with rope on pairs d/2 apart. They differ in the norm of the heads, the name of the second norm, and the weights of
// experts. Layers of Mellum have windows.
// Source: ggml-org/llama.cpp:src/models.
// Describes only; must not know: devices. Main path: models/arch.cpp -> [models/qwen.cpp] -> models/ops.h
#include "parts.h"

namespace duet {

duet_status describe_qwen(graph_builder& g) {
    if (!g.read_common({.is_encoder = g.arch == "eurobert", .is_either = true})) return g.status;
    block_options block{.attn = {.neox = true}};
    const bool is_qwen2moe = g.arch == "qwen2moe", is_olmoe = g.arch == "olmoe", is_minimax = g.arch == "minimax-m2",
               is_mellum = g.arch == "mellum";
    windowed_layers layers{.rope_full = rope_with_factors(g)};
    if (is_mellum) {
        layers.window = g.i32("attention.sliding_window", false, 0, 0, 1 << 30);
        layers.rope =
            g.rope({.base = g.f32("rope.freq_base_swa", false, g.hp.rope_base, 1e-3f, 1e30f), .scaling = false});
        layers.read_pattern(g, 4);
    }
    if (is_mellum || g.arch.starts_with("qwen3")) block.attn.norms = head_norms::per_head;
    if (g.arch.starts_with("hunyuan")) block.attn.norms = head_norms::after_rope;
    if (is_minimax || is_olmoe) block.attn.norms = head_norms::whole;
    if (g.arch == "seed_oss") block.ffn_norm = "post_attention_norm";
    moe_options& moe = block.moe.emplace(read_moe(g, !is_qwen2moe && !is_olmoe, is_minimax));
    moe.shared_gate = is_qwen2moe;
    if (is_qwen2moe && g.hp.n_experts > 0 && !g.hp.hidden_dim.empty()) {  // The first files lack these sizes.
        const uint32_t hidden = g.hp.hidden_dim[0];
        if (!g.file.find(g.key("expert_feed_forward_length"))) moe.hidden = (int32_t)hidden / g.hp.n_experts_used;
        if (moe.shared_hidden == 0) moe.shared_hidden = (int32_t)hidden;
    }
    if (is_minimax || g.arch.starts_with("qwen3")) moe.shared_hidden = 0;
    const view x = input_embedding(g);
    windowed_blocks_part(g, x, block, layers);
    return output_part(g, x);
}

}  // namespace duet
