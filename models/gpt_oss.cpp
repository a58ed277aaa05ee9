// models/gpt_oss.cpp: gpt-oss: attention sinks, a window in every other layer, biases everywhere, and experts with
// clipped gates, weighted by a softmax over the chosen ones. Source: OpenAI 2025; ggml-org/llama.cpp:src/models.
// Main path: models/arch.cpp -> [models/gpt_oss.cpp] -> models/ops.h
#include "parts.h"

namespace duet {

duet_status describe_gpt_oss(graph_builder& g) {
    if (!g.read_common()) return g.status;
    const view x = input_embedding(g);
    moe_options moe = read_moe(g, false);
    moe.softmax_after = moe.biases = true;
    moe.shared_hidden = 0;
    moe.act = activation::swiglu_oai;
    const block_options block{.ffn_norm = "post_attention_norm", .attn = {.neox = true, .sinks = true}, .moe = moe};
    windowed_layers layers{.window = g.i32("attention.sliding_window", true, 1, 1, 1 << 30)};
    layers.rope = layers.rope_full = g.rope();
    layers.read_pattern(g, 2);
    windowed_blocks_part(g, x, block, layers);
    return output_part(g, x);
}

}  // namespace duet
