// models/gemma.cpp: Gemma 1-3: embeddings times sqrt(n) and gelu gates; norms after each half and layers with a window
// between full ones (2, 3); soft caps (2); head norms and another rope base for layers with a window (3); an encoder
// (3). Source: Gemma Team 2024, 2025; ggml-org/llama.cpp:src/models. Main path: models/arch.cpp -> [models/gemma.cpp]
// -> models/ops.h
#include "parts.h"

#include <cmath>

namespace duet {

duet_status describe_gemma(graph_builder& g) {
    const bool is_encoder = g.arch == "gemma-embedding";  // Gemma 3 whose attention goes both ways; makes no logits
    if (!g.read_common({.is_encoder = is_encoder})) return g.status;
    const int generation = g.arch == "gemma" ? 1 : g.arch == "gemma2" ? 2 : 3;
    const view x = input_embedding(g, std::sqrt((float)g.hp.dim));
    block_options block{.attn = {.neox = true}, .ffn = {.act = activation::gelu}};
    if (generation >= 2) {
        block.attn.out.post_norm = "post_attention_norm";
        block.ffn.out.post_norm = "post_ffw_norm";
    }
    if (generation == 3) block.attn.norms = head_norms::per_head;
    if (is_encoder) {
        windowed_blocks_part(g, x, block, read_windows(g, 6, false));
        rows_part(g, x, "output_norm");
        return g.finish();
    }
    windowed_layers layers{.rope_full = g.rope()};
    output_options out;
    if (generation >= 2) {
        layers.window = g.i32("attention.sliding_window", false, generation == 2 ? 4096 : 0, 0, 1 << 30);
        layers.rope = layers.rope_full;
        layers.read_pattern(g, generation == 2 ? 2 : 6);
        // The 27B models scale by the model's width.
        const bool is_largest = g.hp.n_layers == (generation == 2 ? 46 : 62);
        if (is_largest) block.attn.scale = 1.0f / std::sqrt((float)g.hp.dim / (float)g.hp.n_heads[0]);
        out.cap = g.f32("final_logit_softcapping", false, generation == 2 ? 30.0f : 0.0f, 0, 1e6f);
    }
    if (generation == 2) block.attn.cap = g.f32("attn_logit_softcapping", false, 50.0f, 0, 1e6f);
    if (generation == 3)
        layers.rope = g.rope({.base = g.f32("rope.freq_base_swa", false, 10000.0f, 1e-3f, 1e30f), .scaling = false});
    windowed_blocks_part(g, x, block, layers);
    return output_part(g, x, out);
}

}  // namespace duet
