// models/phi3.cpp: Phi-3, Phi-4 and ChatGLM (to GLM-4-9B): q, k, v in one matrix, gate and up in one matrix. Phi has
// separate rope factors for contexts longer than the model was trained for; ChatGLM turns neighbouring pairs. Source:
// Abdin et al. 2024; ggml-org/llama.cpp:src/models. Main path: models/arch.cpp -> [models/phi3.cpp] -> models/ops.h
#include "parts.h"

namespace duet {

duet_status describe_phi3(graph_builder& g) {
    if (!g.read_common()) return g.status;
    const view x = input_embedding(g);
    const attention_options attn{.neox = g.arch == "phi3", .rope = rope_with_factors(g)};
    const block_options block{.attn = attn, .ffn = {.kind = ffn_kind::fused}};
    for (int32_t i = 0; i < g.hp.n_layers; i++) block_part(g, i, x, block);
    return output_part(g, x);
}

}  // namespace duet
