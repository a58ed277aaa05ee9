// models/llama.cpp: Llama 1-3.x, Mistral, TinyLlama, SmolLM and all that call themselves "llama": pre-norm blocks, rope on neighbouring
// pairs, grouped attention, swiglu. Source: Touvron et al. 2023; math.md section 2. Describes only; knows no device.
// Main path: models/arch.cpp -> [models/llama.cpp] -> models/ops.h
#include "parts.h"

namespace duet {

duet_status describe_llama(graph_builder& g) {
    if (!g.read_common("attention.layer_norm_rms_epsilon")) return g.status;
    if (g.hp.n_experts > 0) {
        g.fail_with(DUET_ERR_UNSUPPORTED, g.key("expert_count") + ": no code yet for llama with experts");
        return g.status;
    }
    const view x = input_embedding(g), h = g.buffer("h", g.hp.dim);
    attention_options options;
    if (g.hp.rope_dim > 0)
        options.rope = g.rope(g.hp.rope_dim, g.hp.rope_base, true, g.tensor("rope_freqs.weight", false, g.hp.rope_dim / 2));
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
