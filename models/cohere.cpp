// models/cohere.cpp: Command R and Cohere 2: attention and feed-forward in parallel behind one layer norm without bias,
// and a tied output with a factor. In Cohere 2 three of four layers have a window, and only these have rope.
// Source: ggml-org/llama.cpp:src/models. Main path: models/arch.cpp -> [models/cohere.cpp] -> models/ops.h
#include "parts.h"

namespace duet {

duet_status describe_cohere(graph_builder& g) {
    if (!g.read_common({norm_kind::layer, 1, 1})) return g.status;
    const view x = input_embedding(g);
    const block_options block{.ffn_norm = nullptr, .parallel = true, .attn = {.norms = head_norms::own_weights}};
    windowed_layers layers{.rope = g.rope()};
    if (g.arch == "cohere2") layers.window = (int32_t)g.u32("attention.sliding_window", true, 1, 1, 1u << 30);
    else layers.rope_full = layers.rope;
    layers.read_pattern(g, 4);
    windowed_blocks_part(g, x, block, layers);
    return output_part(g, x, {.scale = g.f32("logit_scale", false, 1.0f, 1e-6f, 1e6f)});
}

}  // namespace duet
