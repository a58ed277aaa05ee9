// models/phi3.cpp: Phi-3 and Phi-4: q, k, v in one matrix, gate and up in one matrix, and separate rope factors for
// contexts longer than the model was trained for. Source: Abdin et al. 2024; ggml-org/llama.cpp:src/models.
// Main path: models/arch.cpp -> [models/phi3.cpp] -> models/ops.h
#include "parts.h"

namespace duet {

duet_status describe_phi3(graph_builder& g) {
    if (!g.read_common()) return g.status;
    const view x = input_embedding(g);
    rope_options r;
    r.long_factors = g.tensor("rope_factors_long.weight", false, g.hp.rope_dim / 2);
    r.factors = g.tensor("rope_factors_short.weight", r.long_factors >= 0, g.hp.rope_dim / 2);
    const block_options block{.attn = {.neox = true, .rope = g.rope(r)}, .ffn = {.kind = ffn_kind::fused}};
    for (int32_t i = 0; i < g.hp.n_layers; i++) block_part(g, i, x, block);
    return output_part(g, x);
}

}  // namespace duet
