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
    int32_t window = (int32_t)g.u32("attention.sliding_window", false, 0, 0, 1u << 30);
    if (!is_olmo && g.hp.n_layers != 64) window = 0;  // Only EXAONE's 32B model has layers with a window.
    rope_options r;
    r.factors = g.tensor("rope_freqs.weight", false, g.hp.rope_dim / 2);
    const int32_t rope = g.rope(r);
    r.scaling = false;
    const int32_t rope_windowed = is_olmo && window ? g.rope(r) : rope;
    for (int32_t i = 0; i < g.hp.n_layers; i++) {
        const bool is_windowed = window > 0 && i % 4 < 3;
        block.attn.window = is_windowed ? window : 0;
        block.attn.rope = is_windowed ? rope_windowed : is_olmo || window == 0 ? rope : -1;
        block_part(g, i, x, block);
    }
    return output_part(g, x);
}

}  // namespace duet
