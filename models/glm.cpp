// models/glm.cpp: GLM-4, GLM-4.5 to 4.7, Bailing (Ling and Ring 2), dots.llm1, Hy 3, EXAONE's mixture, Trinity (afmoe):
// rope on part of the head; dense blocks first, then blocks with experts and shared experts. In the last two most
// layers have a window, and only these have rope. Source: GLM Team 2024, 2025; Ling Team 2025;
// ggml-org/llama.cpp:src/models.
// Main path: models/arch.cpp -> [models/glm.cpp] -> models/ops.h
#include "parts.h"

#include <cmath>

namespace duet {

duet_status describe_glm4(graph_builder& g) {
    if (!g.read_common()) return g.status;
    const view x = input_embedding(g);
    // In files of the models that see, whose rope has several axes, the pairs lie d/2 apart.
    const bool has_axes = g.file.find(g.key("rope.dimension_sections")) != nullptr;
    const block_options block{.attn = {.neox = has_axes, .rope = g.rope(), .out = {.post_norm = "post_attention_norm"}},
                              .ffn = {.kind = ffn_kind::fused, .out = {.post_norm = "post_ffw_norm"}}};
    for (int32_t i = 0; i < g.hp.n_layers; i++) block_part(g, i, x, block);
    return output_part(g, x);
}

duet_status describe_glm4moe(graph_builder& g) {
    if (!g.read_common()) return g.status;
    const bool is_glm = g.arch == "glm4moe", is_afmoe = g.arch == "afmoe";
    const view x = input_embedding(g, is_afmoe ? std::sqrt((float)g.hp.dim) : 1.0f);
    const head_norms norms = is_glm ? head_norms::per_head_optional : head_norms::per_head;
    block_options block{.ffn_norm = is_glm ? "post_attention_norm" : "ffn_norm"};
    moe_options& moe = block.moe.emplace(read_moe(g, true, true));
    block.attn = {.neox = true, .norms = norms, .gated = is_afmoe};
    if (is_afmoe) {
        block.attn.out.post_norm = "post_attention_norm";
        block.ffn.out.post_norm = moe.out.post_norm = "post_ffw_norm";
    }
    windowed_layers layers{.rope = rope_with_factors(g)};
    if (has_word("afmoe exaone-moe", g.arch)) layers.window = g.i32("attention.sliding_window", true, 1, 1, 1 << 30);
    else layers.rope_full = layers.rope;
    layers.read_pattern(g, 4);
    windowed_blocks_part(g, x, block, layers);
    return output_part(g, x);
}

}  // namespace duet
