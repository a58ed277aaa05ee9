// models/delta_net.cpp: Qwen3-Next and Qwen 3.5 (dense and with experts): layers of gated delta net, and gated
// attention in every fourth layer. Source: Yang et al. 2024 (Gated Delta Networks); docs/numerics.md.
// Main path: models/arch.cpp -> [models/delta_net.cpp] -> models/ops.h
#include "parts.h"

namespace duet {
namespace {

struct delta_sizes {
    int32_t n_taps, d, n_key_heads, n_value_heads;
    int32_t key_dim() const { return d * n_key_heads; }
    int32_t value_dim() const { return d * n_value_heads; }
    int32_t conv_dim() const { return 2 * key_dim() + value_dim(); }
};

bool read_sizes(graph_builder& g, delta_sizes* s) {
    s->n_taps = g.i32("ssm.conv_kernel", true, 2, 2, 64);
    s->d = g.i32("ssm.state_size", true, 1, 1, 4096);
    s->n_key_heads = g.i32("ssm.group_count", true, 1, 1, 4096);
    s->n_value_heads = g.i32("ssm.time_step_rank", true, 1, 1, 4096);
    const int32_t inner = g.i32("ssm.inner_size", true, 1, 1, 1 << 24);
    if (inner != s->value_dim())
        g.wrong("ssm.inner_size", "want ssm.state_size * ssm.time_step_rank = %d, got %d", s->value_dim(), inner);
    return g.want_divisor("ssm.group_count", s->n_key_heads, s->n_value_heads);
}

// Puts queries, keys and values of the layer into one buffer, and the output gate into another.
view input_projections(graph_builder& g, int32_t i, view h, const delta_sizes& s, view* gate) {
    const view qkv = g.buffer("delta qkv", s.conv_dim());
    *gate = g.buffer("delta gate", s.value_dim());
    if (!g.has(i, "ssm_in.weight")) {
        g.matmul(i, h, qkv, g.block_tensor(i, "attn_qkv.weight", true, h.width(), s.conv_dim()));
        g.matmul(i, h, *gate, g.block_tensor(i, "attn_gate.weight", true, h.width(), s.value_dim()));
        return qkv;
    }
    // Files of the first converter hold for every key head [q | k | its value heads | their gates].
    const int32_t values = s.value_dim() / s.n_key_heads, run = 2 * s.d + 2 * values;
    const view all = g.buffer("delta in", (int64_t)run * s.n_key_heads);
    g.matmul(i, h, all, g.block_tensor(i, "ssm_in.weight", true, h.width(), all.width()));
    auto part = [&](int32_t offset, int32_t width) { return view{all.buffer, offset, s.n_key_heads, width, run}; };
    auto copy = [&](view from, view to) { g.activate(i, activation::none, from, view{}, to); };
    copy(part(0, s.d), g.columns(qkv, 0, s.key_dim()));
    copy(part(s.d, s.d), g.columns(qkv, s.key_dim(), s.key_dim()));
    copy(part(2 * s.d, values), g.columns(qkv, 2 * s.key_dim(), s.value_dim()));
    copy(part(2 * s.d + values, values), *gate);
    return qkv;
}

void delta_part(graph_builder& g, int32_t i, view h, view x, const delta_sizes& s, bool is_next) {
    const int32_t n = s.n_value_heads;
    view gate;
    const view qkv = input_projections(g, i, h, s, &gate);
    view beta, decay;
    if (is_next) {  // For every key head: [beta of its value heads | decay of these heads].
        const int32_t per_key = n / s.n_key_heads;
        const view both = g.buffer("delta ba", 2 * n);
        g.matmul(i, h, both, g.block_tensor(i, "ssm_ba.weight", true, h.width(), 2 * n));
        beta = view{both.buffer, 0, s.n_key_heads, per_key, 2 * per_key};
        decay = view{both.buffer, per_key, s.n_key_heads, per_key, 2 * per_key};
    } else {
        beta = g.buffer("delta beta", n);
        decay = g.buffer("delta decay", n);
        g.matmul(i, h, beta, g.block_tensor(i, "ssm_beta.weight", true, h.width(), n));
        g.matmul(i, h, decay, g.block_tensor(i, "ssm_alpha.weight", true, h.width(), n));
    }
    op& conv = g.add(op_kind::conv, i, qkv, qkv);
    conv.act = activation::silu;
    conv.index = g.state((int64_t)(s.n_taps - 1) * s.conv_dim());
    conv.w = g.block_tensor(i, "ssm_conv1d.weight", true, s.n_taps, s.conv_dim());
    const view keys = g.heads(g.columns(qkv, 0, 2 * s.key_dim()), 2 * s.n_key_heads, s.d);
    g.norm(i, keys, keys, -1).norm = norm_kind::l2;
    const view o = g.buffer("delta out", s.value_dim());
    op& step = g.add(op_kind::delta_net, i, qkv, o, beta);
    step.in3 = decay;
    step.n_groups = s.n_key_heads;
    step.tiled_heads = !is_next;  // The converter of Qwen 3.5 stores the value heads in tiled order.
    step.scale = 1.0f / __builtin_sqrtf((float)s.d);
    step.index = g.state((int64_t)s.value_dim() * s.d);
    step.w = g.block_tensor(i, "ssm_a", true, n);
    step.b = g.block_tensor(i, "ssm_dt.bias", true, n);
    g.norm(i, g.heads(o, n, s.d), g.heads(o, n, s.d), g.block_tensor(i, "ssm_norm.weight", true, s.d));
    g.activate(i, activation::silu, gate, o, o);
    project(g, i, o, x, "ssm_out", {});
}

}  // namespace

duet_status describe_delta_net(graph_builder& g) {
    if (!g.read_common({.min_kv_heads = 0})) return g.status;
    delta_sizes s{};
    if (!read_sizes(g, &s)) return g.status;
    const view x = input_embedding(g);
    moe_options moe = read_moe(g, true);
    moe.shared_gate = true;
    block_options block{.ffn_norm = "post_attention_norm", .moe = moe};
    block.attn = {.neox = true, .rope = g.rope(), .norms = head_norms::per_head, .gated = true};
    for (int32_t i = 0; i < g.hp.n_layers && g.status == DUET_OK; i++) {
        const view h = norm_part(g, i, x, "attn_norm");
        if (!g.has(i, "ssm_out.weight")) attention_part(g, i, h, x, block.attn);
        else delta_part(g, i, h, x, s, g.arch == "qwen3next");
        experts_or_ffn_part(g, i, norm_part(g, i, x, block.ffn_norm), x, block);
    }
    return output_part(g, x);
}

}  // namespace duet
