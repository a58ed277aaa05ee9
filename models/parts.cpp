// models/parts.cpp: see parts.h. Formulas: math.md 0.1-0.5 (Vaswani et al. 2017; Su et al. 2021; Shazeer 2020).
#include "parts.h"

#include <cmath>

namespace duet {

view input_embedding(graph_builder& g, float scale) {
    const view x = g.buffer("x", g.hp.dim);
    op& o = g.add(op_kind::embed, -1);
    o.w = g.tensor("token_embd.weight", true, g.hp.dim, g.hp.n_vocab);
    o.out = x;
    o.scale = scale;
    return x;
}

void attention_part(graph_builder& g, int32_t layer, view in, view out, const attention_options& options) {
    const size_t  i = (size_t)layer;
    const int32_t n_heads = (int32_t)g.hp.n_heads[i], n_kv = (int32_t)g.hp.n_kv_heads[i];
    const int32_t dk = g.hp.k_dim, dv = g.hp.v_dim, n_in = in.width();
    const view q = g.buffer("q", (int64_t)n_heads * dk), k = g.buffer("k", (int64_t)n_kv * dk), v = g.buffer("v", (int64_t)n_kv * dv);
    const view o = g.buffer("attn", (int64_t)n_heads * dv);
    const view qh = g.heads(q, n_heads, dk), kh = g.heads(k, n_kv, dk), vh = g.heads(v, n_kv, dv);

    g.matmul(layer, in, q, g.block_tensor(layer, "attn_q.weight", true, n_in, q.width()),
             g.block_tensor(layer, "attn_q.bias", false, q.width()));
    g.matmul(layer, in, k, g.block_tensor(layer, "attn_k.weight", true, n_in, k.width()),
             g.block_tensor(layer, "attn_k.bias", false, k.width()));
    g.matmul(layer, in, v, g.block_tensor(layer, "attn_v.weight", true, n_in, v.width()),
             g.block_tensor(layer, "attn_v.bias", false, v.width()));
    if (options.head_norms) {
        g.norm(layer, qh, qh, g.block_tensor(layer, "attn_q_norm.weight", true, dk));
        g.norm(layer, kh, kh, g.block_tensor(layer, "attn_k_norm.weight", true, dk));
    }
    if (options.rope >= 0) {
        for (const view& target : {qh, kh}) {
            op& r = g.add(op_kind::rope, layer);
            r.in = target;
            r.index = options.rope;
            r.rope_dim = g.hp.rope_dim;
            r.neox = options.neox;
        }
    }
    op& append = g.add(op_kind::kv_append, layer);
    append.in = kh;
    append.in2 = vh;
    append.index = g.cache(n_kv, dk, dv, options.window);
    const int32_t cache = append.index;

    op& a = g.add(op_kind::attention, layer);
    a.in = qh;
    a.out = g.heads(o, n_heads, dv);
    a.index = cache;
    a.scale = options.scale != 0 ? options.scale : 1.0f / std::sqrt((float)dk);
    a.cap = options.cap;
    g.matmul(layer, o, out, g.block_tensor(layer, "attn_output.weight", true, o.width(), out.width()),
             g.block_tensor(layer, "attn_output.bias", false, out.width()), true);
}

void gated_ffn_part(graph_builder& g, int32_t layer, view in, view out, activation act) {
    if (g.hp.hidden_dim.empty()) {
        g.fail_with(DUET_ERR_FORMAT, g.key("feed_forward_length") + ": missing key");
        return;
    }
    const int64_t n_in = in.width(), hidden = g.hp.hidden_dim[(size_t)layer];
    const view gate = g.buffer("gate", hidden), up = g.buffer("up", hidden);
    g.matmul(layer, in, gate, g.block_tensor(layer, "ffn_gate.weight", true, n_in, hidden),
             g.block_tensor(layer, "ffn_gate.bias", false, hidden));
    g.matmul(layer, in, up, g.block_tensor(layer, "ffn_up.weight", true, n_in, hidden),
             g.block_tensor(layer, "ffn_up.bias", false, hidden));
    op& a = g.add(op_kind::activate, layer);
    a.act = act;
    a.in = gate;
    a.in2 = up;
    a.out = gate;
    g.matmul(layer, gate, out, g.block_tensor(layer, "ffn_down.weight", true, hidden, out.width()),
             g.block_tensor(layer, "ffn_down.bias", false, out.width()), true);
}

void output_part(graph_builder& g, view x, norm_kind kind) {
    const view last = g.buffer("last", g.hp.dim, true), logits = g.buffer("logits", g.hp.n_vocab, true);
    op& gather = g.add(op_kind::gather, -1);
    gather.in = x;
    gather.out = last;
    const weight_id w = g.tensor("output_norm.weight", true, g.hp.dim);
    g.norm(-1, last, last, w, g.tensor("output_norm.bias", false, g.hp.dim), kind);
    weight_id output = g.tensor("output.weight", false, g.hp.dim, g.hp.n_vocab);
    if (output < 0) output = g.tensor("token_embd.weight", true, g.hp.dim, g.hp.n_vocab);   // tied
    g.matmul(-1, last, logits, output, g.tensor("output.bias", false, g.hp.n_vocab));
    g.graph.embedding_buffer = last.buffer;
    g.graph.logits_buffer = logits.buffer;
}

}  // namespace duet
