// models/mamba_hybrids.cpp: Mamba-2, Nemotron-H (a block is Mamba-2, attention or feed-forward) and Falcon-H1 (a block
// has attention and Mamba-2 side by side). Granite's hybrid is in llama.cpp. Source: NVIDIA 2025; TII 2025;
// docs/numerics.md. Main path: models/arch.cpp -> [models/mamba_hybrids.cpp] -> models/ops.h
#include "parts.h"

namespace duet {

duet_status describe_nemotron_h(graph_builder& g) {
    if (!g.read_common({.min_kv_heads = 0, .min_hidden = 0})) return g.status;
    const view x = input_embedding(g);
    moe_options moe = read_moe(g, true, true);
    moe.gated = false;
    moe.act = activation::relu2;
    moe.latent = g.i32("moe_latent_size", false, 0, 0, 1 << 20);
    const block_options block{.ffn = {ffn_kind::plain, activation::relu2}, .moe = moe};
    for (int32_t i = 0; i < g.hp.n_layers && g.status == DUET_OK; i++) {
        const bool has_ffn = !g.hp.hidden_dim.empty() && g.hp.hidden_dim[(size_t)i] > 0;
        const view h = norm_part(g, i, x, "attn_norm");
        if (!has_ffn && g.hp.n_kv_heads[(size_t)i] == 0) mamba2_part(g, i, h, x, {}, true);
        else if (!has_ffn) attention_part(g, i, h, x, {});
        else experts_or_ffn_part(g, i, h, x, block);
    }
    return output_part(g, x);
}

duet_status describe_falcon_h1(graph_builder& g) {
    if (!g.read_common()) return g.status;
    const view x = input_embedding(g);
    const attention_options attn{.neox = true, .rope = g.rope()};
    for (int32_t i = 0; i < g.hp.n_layers && g.status == DUET_OK; i++) {
        const view h = norm_part(g, i, x, "attn_norm");
        attention_part(g, i, h, x, attn);
        mamba2_part(g, i, h, x, {}, false);
        ffn_part(g, i, norm_part(g, i, x, "ffn_norm"), x, {});
    }
    return output_part(g, x);
}

}  // namespace duet
