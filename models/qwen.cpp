// models/qwen.cpp: Qwen 2 and 3, their mixtures, the text part of their VL models (for text, their axes of position are
// one), Seed-OSS, Hunyuan, MiniMax M2. Their blocks are llama's with rope on pairs d/2 apart. They differ in the norm
// of the heads, the name of the second norm, and the weights of experts. Source: ggml-org/llama.cpp:src/models.
// Describes only; must not know: devices. Main path: models/arch.cpp -> [models/qwen.cpp] -> models/ops.h
#include "parts.h"

namespace duet {

duet_status describe_qwen(graph_builder& g) {
    if (!g.read_common()) return g.status;
    block_options block{.attn = {.neox = true, .rope = g.rope()}};
    if (g.arch.starts_with("qwen3")) block.attn.norms = head_norms::per_head;
    if (g.arch == "hunyuan-moe") block.attn.norms = head_norms::after_rope;
    if (g.arch == "minimax-m2") block.attn.norms = head_norms::whole;
    if (g.arch == "seed_oss") block.ffn_norm = "post_attention_norm";
    moe_options moe = g.hp.n_experts > 0 ? read_moe(g, g.arch != "qwen2moe", g.arch == "minimax-m2") : moe_options{};
    if (g.hp.n_experts > 0) block.moe = &moe;
    moe.shared_gate = g.arch == "qwen2moe";
    if (block.moe && moe.shared_gate && !g.hp.hidden_dim.empty()) {  // The first files lack these sizes.
        const uint32_t hidden = g.hp.hidden_dim[0];
        if (!g.file.find(g.key("expert_feed_forward_length"))) moe.hidden = (int32_t)hidden / g.hp.n_experts_used;
        if (moe.shared_hidden == 0) moe.shared_hidden = (int32_t)hidden;
    }
    if (g.arch == "minimax-m2" || g.arch.starts_with("qwen3")) moe.shared_hidden = 0;
    const view x = input_embedding(g);
    for (int32_t i = 0; i < g.hp.n_layers; i++) block_part(g, i, x, block);
    return output_part(g, x);
}

}  // namespace duet
