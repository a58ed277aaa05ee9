// models/post_norm.cpp: OLMo 2 and 3 and EXAONE 4: a norm after attention and one after feed-forward, none before;
// norms of queries and keys; layers with a window and a rope of their own. Source: OLMo Team 2024; LG AI Research 2025;
// ggml-org/llama.cpp:src/models. Main path: models/arch.cpp -> [models/post_norm.cpp] -> models/ops.h
#include "parts.h"

namespace duet {

duet_status describe_post_norm(graph_builder& g) {
    if (!g.read_common()) return g.status;
    const bool is_olmo = g.arch == "olmo2";
    const view x = input_embedding(g);
    const head_norms norms = is_olmo ? head_norms::whole : head_norms::per_head;
    block_options block{.attn_norm = nullptr, .ffn_norm = nullptr};
    block.attn = {.neox = true, .norms = norms, .out = {.post_norm = "post_attention_norm"}};
    block.ffn.out.post_norm = "post_ffw_norm";
    rope_options rope{.factors = g.tensor("rope_freqs.weight", false, g.hp.rope_dim / 2)};
    double factor = 1.0;
    if (is_olmo)  // Files of OLMo 3 say YaRN's whole magnitude, not a factor of one.
        rope.magnitude =
            g.rope_scaling(&factor) == "yarn" ? g.f32("rope.scaling.attn_factor", false, 0, 1e-6f, 1e6f) : 1.0f;
    windowed_layers layers{.rope = g.rope(rope)};
    // Of EXAONE only the 32B model has layers with a window.
    const int32_t window = g.i32("attention.sliding_window", false, is_olmo ? 0 : 4096, 0, 1 << 30);
    if (is_olmo || g.hp.n_layers == 64) layers.window = window;
    if (is_olmo || layers.window == 0) layers.rope_full = layers.rope;
    rope.scaling = false;
    rope.magnitude = 0;
    if (is_olmo && layers.window) layers.rope = g.rope(rope);
    layers.read_pattern(g, 4);
    windowed_blocks_part(g, x, block, layers);
    return output_part(g, x);
}

}  // namespace duet
