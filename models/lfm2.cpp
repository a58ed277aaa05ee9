// models/lfm2.cpp: LFM2: short gated convolutions, and attention every few layers; lfm2moe has experts after the first
// blocks. Source: Liquid AI 2025; docs/numerics.md. Main path: models/arch.cpp -> [models/lfm2.cpp] -> models/ops.h
#include "parts.h"

namespace duet {

static void short_conv_part(graph_builder& g, int32_t i, view h, view x, int32_t n_taps) {
    const int32_t n = x.width();
    const view all = g.buffer("conv in", 3ll * n), b = g.columns(all, 0, n), c = g.columns(all, n, n),
               u = g.columns(all, 2 * n, n);
    g.matmul(i, h, all, g.block_tensor(i, "shortconv.in_proj.weight", true, n, 3ll * n));
    g.activate(i, activation::none, b, u, u);
    op& conv = g.add(op_kind::conv, i, u, u);
    conv.index = g.state((int64_t)(n_taps - 1) * n);
    conv.w = g.block_tensor(i, "shortconv.conv.weight", true, n_taps, n);
    g.activate(i, activation::none, c, u, u);
    project(g, i, u, x, "shortconv.out_proj", {});
}

duet_status describe_lfm2(graph_builder& g) {
    if (!g.read_common({.min_kv_heads = 0})) return g.status;
    const int32_t n_taps = g.i32("shortconv.l_cache", true, 2, 2, 64);
    const view x = input_embedding(g);
    const int32_t window = g.i32("attention.sliding_window", false, 0, 0, 1 << 30);
    block_options block{.attn = {.neox = true, .rope = g.rope(), .norms = head_norms::per_head, .window = window}};
    block.moe = read_moe(g, true, true);
    for (int32_t i = 0; i < g.hp.n_layers; i++) {
        const view h = norm_part(g, i, x, "attn_norm");
        if (g.hp.n_kv_heads[(size_t)i] > 0) attention_part(g, i, h, x, block.attn);
        else short_conv_part(g, i, h, x, n_taps);
        experts_or_ffn_part(g, i, norm_part(g, i, x, "ffn_norm"), x, block);
    }
    return output_part(g, x, {.norm = "token_embd_norm"});
}

}  // namespace duet
