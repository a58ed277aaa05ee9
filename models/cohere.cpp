// models/cohere.cpp: Command R and Cohere 2: attention and feed-forward in parallel behind one layer norm without bias,
// and a tied output with a factor. In Cohere 2 three of four layers have a window, and only these have rope.
// Source: ggml-org/llama.cpp:src/models. Main path: models/arch.cpp -> [models/cohere.cpp] -> models/ops.h
#include "parts.h"

namespace duet {

duet_status describe_cohere(graph_builder& g) {
    if (!g.read_common({norm_kind::layer, 1, 1})) return g.status;
    const bool is_windowed_model = g.arch == "cohere2";
    const view x = input_embedding(g);
    block_options block{.ffn_norm = nullptr, .parallel = true, .attn = {.norms = head_norms::own_weights}};
    const int32_t rope = g.rope(),
                  window = is_windowed_model ? (int32_t)g.u32("attention.sliding_window", true, 1, 1, 1u << 30) : 0;
    for (int32_t i = 0; i < g.hp.n_layers; i++) {
        const bool is_windowed = is_windowed_model && i % 4 < 3;
        block.attn.window = is_windowed ? window : 0;
        block.attn.rope = is_windowed_model && !is_windowed ? -1 : rope;
        block_part(g, i, x, block);
    }
    return output_part(g, x, {.scale = g.f32("logit_scale", false, 1.0f, 1e-6f, 1e6f)});
}

}  // namespace duet
