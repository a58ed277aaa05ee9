// models/bert.cpp: encoders: BERT (also RoBERTa's files), Nomic BERT (also with experts) and Jina BERT 3 with rope,
// Jina BERT 2 with ALiBi, ModernBERT with rope and windows. Their tokens see later ones, and they make vectors, not
// text. Sources: Devlin et al. 2019, Warner et al. 2024; ggml-org/llama.cpp:src/models for the tensors and the order of
// ops. Main path: models/arch.cpp -> [models/bert.cpp] -> models/ops.h
#include "parts.h"

#include <algorithm>

namespace duet {

// The norms stand behind attention and feed-forward: x = norm(x + attn(x)), x = norm(x + ffn(x)).
static void post_norm_block(graph_builder& g, int32_t layer, view x, const block_options& block) {
    const auto norm = [&](const std::string& name) {
        g.norm(layer, x, x, g.block_tensor(layer, name + ".weight", true, x.width()),
               g.block_tensor(layer, name + ".bias", false, x.width()));
    };
    const bool again = g.has(layer, "attn_norm_2.weight");  // Jina's model for code adds the block's input once more.
    const view before = again ? g.buffer("before", x.width()) : view{};
    if (again) g.add(op_kind::scale_cap, layer, x, before);
    attention_part(g, layer, x, x, block.attn);
    norm("attn_output_norm");
    if (again) {
        g.add_scaled(layer, x, before, x);
        norm("attn_norm_2");
    }
    experts_or_ffn_part(g, layer, x, x, block);
    norm("layer_output_norm");
}

duet_status describe_bert(graph_builder& g) {
    if (!g.read_common({.norm = norm_kind::layer, .is_encoder = true})) return g.status;
    const view x = input_embedding(g);
    if (const gguf_tensor* kinds = g.file.find_tensor("token_types.weight")) {  // A text is of the first kind.
        const view kind = g.buffer("kind", g.hp.dim);
        op& embed = g.add(op_kind::embed, -1, {}, kind);
        embed.first_row = true;
        embed.w = g.tensor("token_types.weight", true, g.hp.dim, std::min<int64_t>(kinds->dims[1], 1 << 16));
        g.add_scaled(-1, x, kind, x);
    }
    if (g.arch == "bert") add_positions(g, x);
    whole_norm(g, x, "token_embd_norm");
    block_options block{.attn = {.neox = true, .norms = head_norms::whole_optional}};
    if (g.arch.starts_with("nomic") || g.arch == "jina-bert-v3") block.attn.rope = g.rope();
    if (g.arch == "jina-bert-v2") block.attn.alibi = g.f32("attention.max_alibi_bias", false, 8.0f, 0, 1e3f);
    block.moe = read_moe(g, false);
    block.moe->gated = false;
    block.moe->act = activation::gelu;
    for (int32_t i = 0; i < g.hp.n_layers && g.status == DUET_OK; i++) {
        if (g.arch != "nomic-bert") block.ffn.act = activation::gelu;
        const gguf_tensor* up = g.file.find_tensor("blk." + std::to_string(i) + ".ffn_up.weight");
        const bool is_fused = !g.hp.hidden_dim.empty() && up && up->dims[1] == 2 * (int64_t)g.hp.hidden_dim[(size_t)i];
        block.ffn.kind = g.has(i, "ffn_gate.weight") ? ffn_kind::gated : is_fused ? ffn_kind::fused : ffn_kind::plain;
        post_norm_block(g, i, x, block);
    }
    rows_part(g, x, nullptr);
    return g.finish();
}

duet_status describe_modern_bert(graph_builder& g) {
    if (!g.read_common({.norm = norm_kind::layer, .is_encoder = true})) return g.status;
    const view x = input_embedding(g);
    whole_norm(g, x, "token_embd_norm");
    block_options block{.attn = {.neox = true}, .ffn = {.kind = ffn_kind::fused, .act = activation::gelu}};
    const std::string_view act = g.string("hidden_activation", "gelu");
    if (act == "silu") block.ffn.act = activation::silu;
    else if (!act.starts_with("gelu"))
        g.fail_with(DUET_ERR_UNSUPPORTED, g.key("hidden_activation") + ": want gelu or silu, got " + printable(act));
    const windowed_layers windows = read_windows(g, 3, true);
    for (int32_t i = 0; i < g.hp.n_layers && g.status == DUET_OK; i++) {
        // The first block has no norm of its own: the one of the embedding stands before it.
        block.attn_norm = i > 0 || g.has(0, "attn_norm.weight") ? "attn_norm" : nullptr;
        windowed_block_part(g, i, x, block, windows);
    }
    g.graph.rank_pooling = pooling_kind::mean;
    g.graph.scorer_act = pooled_act::gelu;
    rows_part(g, x, "output_norm");
    return g.finish();
}

}  // namespace duet
