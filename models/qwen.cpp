// models/qwen.cpp: qwen2 (biases on q, k, v) and qwen3 (a norm on every query and key head): llama's block with rope on pairs d/2 apart.
// Source: math.md section 2. Describes only; knows no device.
// Main path: models/arch.cpp -> [models/qwen.cpp] -> models/ops.h
#include "parts.h"

namespace duet {

duet_status describe_qwen(graph_builder& g) {
    if (!g.read_common("attention.layer_norm_rms_epsilon")) return g.status;
    const view x = input_embedding(g), h = g.buffer("h", g.hp.dim);
    attention_options options;
    options.neox = true;
    options.head_norms = g.arch == "qwen3";
    if (g.hp.rope_dim > 0) options.rope = g.rope(g.hp.rope_dim, g.hp.rope_base);
    for (int32_t i = 0; i < g.hp.n_layers; i++) {
        g.norm(i, x, h, g.block_tensor(i, "attn_norm.weight", true, g.hp.dim));
        attention_part(g, i, h, x, options);
        g.norm(i, x, h, g.block_tensor(i, "ffn_norm.weight", true, g.hp.dim));
        gated_ffn_part(g, i, h, x, activation::silu);
    }
    output_part(g, x);
    return g.finish();
}

}  // namespace duet
