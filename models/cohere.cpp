// models/cohere.cpp: Command R, Cohere 2 and its mixture: attention and feed-forward in parallel behind one norm
// without bias, and a tied output with a factor. In Cohere 2 three of four layers have a window, and only these have
// rope, with the first dense layers of the mixture, whose experts and shared experts are averaged. Source:
// ggml-org/llama.cpp:src/models. Main path: models/arch.cpp -> [models/cohere.cpp] -> models/ops.h
#include "parts.h"

namespace duet {

duet_status describe_cohere(graph_builder& g) {
    const bool is_moe = g.arch == "cohere2moe", is_rms = g.file.find(g.key("attention.layer_norm_rms_epsilon"));
    if (!g.read_common({.norm = is_moe && is_rms ? norm_kind::rms : norm_kind::layer})) return g.status;
    const view x = input_embedding(g);
    moe_options moe = read_moe(g, false, true);
    if (moe.shared_hidden) moe.out.scale = 0.5f;
    const block_options block{
        .ffn_norm = nullptr, .parallel = true, .attn = {.norms = head_norms::own_weights}, .moe = moe};
    windowed_layers layers{.rope = g.rope()};
    if (g.arch != "command-r") layers.window = g.i32("attention.sliding_window", true, 1, 1, 1 << 30);
    layers.read_pattern(g, 4, is_moe);
    const int32_t n_dense = is_moe ? g.i32("leading_dense_block_count", true, 0, 0, 512) : 0;
    for (int32_t i = 0; i < g.hp.n_layers && g.status == DUET_OK; i++) {
        layers.rope_full = layers.window == 0 || i < n_dense ? layers.rope : -1;
        windowed_block_part(g, i, x, block, layers);
    }
    return output_part(g, x, {.scale = g.f32("logit_scale", false, 1.0f, 1e-6f, 1e6f)});
}

}  // namespace duet
