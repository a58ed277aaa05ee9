// models/gemma.cpp: Gemma 1-3: embeddings times sqrt(n) and gelu gates; norms after each half and layers with a window
// between full ones (2, 3); soft caps (2); head norms and another rope base for layers with a window (3).
// Source: Gemma Team 2024, 2025; ggml-org/llama.cpp:src/models.
// Main path: models/arch.cpp -> [models/gemma.cpp] -> models/ops.h
#include "parts.h"

#include <cmath>

namespace duet {

// Gemma 3 as an encoder: attention goes both ways, and nothing makes logits.
duet_status describe_gemma_embedding(graph_builder& g) {
    if (!g.read_common({norm_kind::rms, 1, 1, true})) return g.status;
    const view x = input_embedding(g, std::sqrt((float)g.hp.dim));
    block_options block;
    block.attn.neox = true;
    block.attn.norms = head_norms::per_head;
    block.attn.out.post_norm = "post_attention_norm";
    block.ffn.act = activation::gelu;
    block.ffn.out.post_norm = "post_ffw_norm";
    const windowed_layers windows = read_windows(g, 6, false);
    for (int32_t i = 0; i < g.hp.n_layers && g.status == DUET_OK; i++) {
        block.attn.window = windows.of(i) ? windows.window : 0;
        block.attn.rope = windows.of(i) ? windows.rope : windows.rope_full;
        block_part(g, i, x, block);
    }
    rows_part(g, x, "output_norm");
    return g.finish();
}

duet_status describe_gemma(graph_builder& g) {
    if (!g.read_common()) return g.status;
    const int generation = g.arch == "gemma3" ? 3 : g.arch == "gemma2" ? 2 : 1;
    const view x = input_embedding(g, std::sqrt((float)g.hp.dim));
    block_options block;
    block.attn.neox = true;
    block.ffn.act = activation::gelu;
    output_options out;
    int32_t window = 0, period = 0, rope_full = g.rope(), rope_window = rope_full;
    if (generation >= 2) {
        block.attn.out.post_norm = "post_attention_norm";
        block.ffn.out.post_norm = "post_ffw_norm";
        window = (int32_t)g.u32("attention.sliding_window", false, 4096, 1, 1u << 30);
        period = (int32_t)g.per_layer("attention.sliding_window_pattern", false, generation == 2 ? 2 : 6, 1, 512)[0];
        // The 27B models scale by the model's width.
        const bool is_largest = g.hp.n_layers == (generation == 2 ? 46 : 62);
        if (is_largest) block.attn.scale = 1.0f / std::sqrt((float)g.hp.dim / (float)g.hp.n_heads[0]);
        out.cap = g.f32("final_logit_softcapping", false, generation == 2 ? 30.0f : 0.0f, 0, 1e6f);
    }
    if (generation == 2) block.attn.cap = g.f32("attn_logit_softcapping", false, 50.0f, 0, 1e6f);
    if (generation == 3) {
        block.attn.norms = head_norms::per_head;
        rope_options r;
        r.base = g.f32("rope.freq_base_swa", false, 10000.0f, 1e-3f, 1e30f);
        r.scaling = false;
        rope_window = g.rope(r);
    }
    for (int32_t i = 0; i < g.hp.n_layers; i++) {
        const bool is_windowed = period > 1 && i % period < period - 1;
        block.attn.window = is_windowed ? window : 0;
        block.attn.rope = is_windowed ? rope_window : rope_full;
        block_part(g, i, x, block);
    }
    return output_part(g, x, out);
}

}  // namespace duet
