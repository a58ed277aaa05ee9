// models/parts.cpp: implements parts.h. Formulas: docs/numerics.md (Vaswani et al. 2017; Su et al. 2021; Shazeer 2020;
// Fedus et al. 2021; Dao and Gu 2024). Main path: models/<family>.cpp -> [models/parts.cpp] -> models/arch.h
#include "parts.h"

#include <cmath>

namespace duet {
namespace {

// Where a part writes between open_join and close_join: into the stream, or into a buffer that is normed and added.
struct join_target {
    view out;
    bool residual;
    float scale;
};

join_target open_join(graph_builder& g, view x, const join& j) {
    if (j.assign) return {x, false, 1.0f};
    if (j.post_norm) return {g.buffer("y", x.width()), false, 1.0f};
    return {x, true, j.scale};
}

void close_join(graph_builder& g, int32_t layer, view x, const join& j) {
    if (!j.post_norm) return;
    const view y = j.assign ? x : g.buffer("y", x.width());
    g.norm(layer, y, y, g.block_tensor(layer, std::string(j.post_norm) + ".weight", true, x.width()));
    if (!j.assign) g.add_scaled(layer, x, y, x, j.scale);
}

void matmul_to(graph_builder& g, int32_t layer, view in, const join_target& to, weight_id w, weight_id b = -1) {
    g.matmul(layer, in, to.out, w, b, to.residual).scale = to.scale;
}

// Appends the projection with that name, and its bias if there is one.
void named_matmul(graph_builder& g, int32_t layer, view in, view out, const std::string& name) {
    g.matmul(layer, in, out, g.block_tensor(layer, name + ".weight", true, in.width(), out.width()),
             g.block_tensor(layer, name + ".bias", false, out.width()));
}

// Appends act(gate) * up, or act(up) where there is no gate. The names of the tensors end with the suffix.
view gate_part(graph_builder& g, int32_t layer, view in, int64_t hidden, activation act, bool gated,
               const std::string& suffix) {
    const view gate = g.buffer("gate", hidden), up = gated ? g.buffer("up", hidden) : view{};
    named_matmul(g, layer, in, gate, (gated ? "ffn_gate" : "ffn_up") + suffix);
    if (gated) named_matmul(g, layer, in, up, "ffn_up" + suffix);
    g.activate(layer, act, gate, up, gate);
    return gate;
}

struct projections {
    view q, k, v, gate;
};

projections project_qkv(graph_builder& g, int32_t layer, view in, const attention_options& options) {
    const size_t i = (size_t)layer;
    const int32_t n_heads = (int32_t)g.hp.n_heads[i], n_kv = (int32_t)g.hp.n_kv_heads[i], dk = g.hp.k_dim,
                  dv = g.hp.v_dim;
    if (n_kv == 0) g.wrong("attention.head_count_kv", "layer %d: want at least 1, got 0", layer);
    if (options.gated && dk != dv) g.wrong("attention.value_length", "want key_length %d, got %d", dk, dv);
    const bool gate_in_q = options.gated && !g.has(layer, "attn_gate.weight");
    const int32_t nq = n_heads * dk * (gate_in_q ? 2 : 1), nk = n_kv * dk, nv = n_kv * dv;
    view q, k, v;
    if (g.has(layer, "attn_qkv.weight")) {
        const view all = g.buffer("qkv", (int64_t)nq + nk + nv);
        named_matmul(g, layer, in, all, "attn_qkv");
        q = g.columns(all, 0, nq);
        k = g.columns(all, nq, nk);
        v = g.columns(all, nq + nk, nv);
    } else {
        q = g.buffer("q", nq);
        k = g.buffer("k", nk);
        v = g.buffer("v", nv);
        named_matmul(g, layer, in, q, "attn_q");
        named_matmul(g, layer, in, k, "attn_k");
        named_matmul(g, layer, in, v, "attn_v");
    }
    projections p{g.heads(q, n_heads, dk), g.heads(k, n_kv, dk), g.heads(v, n_kv, dv), {}};
    if (gate_in_q) {
        p.q.stride = 2 * dk;
        p.gate = p.q;
        p.gate.offset += dk;
    } else if (options.gated) {
        p.gate = g.buffer("attn gate", (int64_t)n_heads * dv);
        named_matmul(g, layer, in, p.gate, "attn_gate");
    }
    return p;
}

weight_id norm_bias(graph_builder& g, int32_t layer, const std::string& name, int64_t width) {
    return g.hp.norm == norm_kind::layer ? g.block_tensor(layer, name + ".bias", false, width) : -1;
}

void head_norms_part(graph_builder& g, int32_t layer, view heads, const char* name, head_norms kind) {
    if (kind == head_norms::none) return;
    const bool is_whole = kind == head_norms::whole || kind == head_norms::whole_optional,
               is_own = kind == head_norms::own_weights,
               is_optional = is_own || kind == head_norms::per_head_optional || kind == head_norms::whole_optional;
    const view rows = is_whole ? g.heads(heads, 1, heads.width()) : heads;
    const weight_id w =
        g.block_tensor(layer, std::string(name) + ".weight", !is_optional, rows.head_dim, is_own ? heads.n_heads : 1);
    if (w < 0) return;
    const weight_id b = is_whole ? norm_bias(g, layer, name, rows.width()) : -1;
    g.norm(layer, rows, rows, w, b).w_stride = is_own ? rows.head_dim : 0;
}

}  // namespace

view input_embedding(graph_builder& g, float scale) {
    const view x = g.buffer("x", g.hp.dim);
    op& o = g.add(op_kind::embed, -1, {}, x);
    o.w = g.tensor("token_embd.weight", true, g.hp.dim, g.hp.n_vocab);
    o.scale = scale;
    return x;
}

void whole_norm(graph_builder& g, view x, const std::string& name) {
    const weight_id w = g.tensor(name + ".weight", !g.hp.bare_norms, x.width());
    g.norm(-1, x, x, w, g.hp.norm == norm_kind::layer ? g.tensor(name + ".bias", false, x.width()) : -1);
}

void add_positions(graph_builder& g, view x) {
    const view p = g.buffer("position", g.hp.dim);
    op& embed = g.add(op_kind::embed, -1, {}, p);
    embed.by_position = true;
    embed.w = g.tensor("position_embd.weight", true, g.hp.dim, g.hp.n_ctx_train);
    g.graph.max_ctx = g.hp.n_ctx_train;
    g.add_scaled(-1, x, p, x);
}

view norm_part(graph_builder& g, int32_t layer, view x, const char* name, const char* to) {
    const view h = g.buffer(to, x.width());
    const std::string base = name;
    // Some converters leave out the suffix.
    const bool is_bare = !g.has(layer, (base + ".weight").c_str()) && g.has(layer, name);
    const weight_id w = g.block_tensor(layer, is_bare ? base : base + ".weight", !g.hp.bare_norms, x.width());
    g.norm(layer, x, h, w, norm_bias(g, layer, base, x.width()));
    return h;
}

int32_t rope_with_factors(graph_builder& g) {
    const int32_t n = g.hp.rope_dim / 2;
    rope_options r;
    if (n > 0) r.long_factors = g.tensor("rope_factors_long.weight", false, n);
    const bool is_long = r.long_factors >= 0;
    if (n > 0) r.factors = g.tensor(is_long ? "rope_factors_short.weight" : "rope_freqs.weight", is_long, n);
    return g.rope(r);
}

void rope_part(graph_builder& g, int32_t layer, view heads, int32_t table, bool neox) {
    if (table < 0) return;
    op& r = g.add(op_kind::rope, layer, heads);
    r.index = table;
    r.rope_dim = (int32_t)g.graph.ropes[(size_t)table].freq.size() * 2;
    r.neox = neox;
}

op& attention_op(graph_builder& g, int32_t layer, view q, view out, int32_t cache, const attention_options& options) {
    op& a = g.add(op_kind::attention, layer, q, out);
    a.index = cache;
    a.scale = options.scale != 0 ? options.scale : 1.0f / std::sqrt((float)q.head_dim);
    a.cap = options.cap;
    a.alibi = options.alibi;
    a.both_ways = g.graph.both_ways;
    a.temperature_scale = options.temperature_scale;
    a.temperature_length = options.temperature_length;
    if (options.sinks) a.w = g.block_tensor(layer, "attn_sinks.weight", true, q.n_heads);
    return a;
}

void project(graph_builder& g, int32_t layer, view in, view x, const std::string& name, const join& out) {
    matmul_to(g, layer, in, open_join(g, x, out), g.block_tensor(layer, name + ".weight", true, in.width(), x.width()),
              g.block_tensor(layer, name + ".bias", false, x.width()));
    close_join(g, layer, x, out);
}

void attention_part(graph_builder& g, int32_t layer, view in, view x, const attention_options& options) {
    const projections p = project_qkv(g, layer, in, options);
    if (g.status != DUET_OK) return;
    const int32_t n_heads = p.q.n_heads, dv = g.hp.v_dim;
    for (const view& v : {p.q, p.k, p.v})
        if (options.clip_qkv != 0) g.add(op_kind::scale_cap, layer, v, v).cap = -options.clip_qkv;
    const auto norms = [&] {
        head_norms_part(g, layer, p.q, "attn_q_norm", options.norms);
        head_norms_part(g, layer, p.k, "attn_k_norm", options.norms);
    };
    if (options.norms != head_norms::after_rope) norms();
    for (const view& v : {p.q, p.k}) rope_part(g, layer, v, options.rope, options.neox);
    if (options.norms == head_norms::after_rope) norms();
    const int32_t cache = g.cache(p.k.n_heads, p.k.head_dim, dv, options.window);
    g.add(op_kind::kv_append, layer, p.k, {}, p.v).index = cache;
    const view o = g.buffer("attn", (int64_t)n_heads * dv);
    attention_op(g, layer, p.q, g.heads(o, n_heads, dv), cache, options);
    if (options.gated) g.activate(layer, activation::sigmoid, p.gate, o, o);
    project(g, layer, o, x, "attn_output", options.out);
}

void ffn_part(graph_builder& g, int32_t layer, view in, view x, const ffn_options& options) {
    if (g.hp.hidden_dim.empty()) return (void)g.wrong("feed_forward_length", "missing key");
    const int64_t hidden = g.hp.hidden_dim[(size_t)layer];
    view result;
    if (options.kind == ffn_kind::fused) {
        const view both = g.buffer("gate up", 2 * hidden);
        named_matmul(g, layer, in, both, "ffn_up");
        result = g.columns(both, 0, (int32_t)hidden);
        g.activate(layer, options.act, result, g.columns(both, (int32_t)hidden, (int32_t)hidden), result);
    } else {
        result = gate_part(g, layer, in, hidden, options.act, options.kind == ffn_kind::gated, "");
    }
    project(g, layer, result, x, "ffn_down", options.out);
}

// ---- experts ----

moe_options read_moe(graph_builder& g, bool normalise, bool sigmoid) {
    moe_options m;
    if (g.hp.n_experts == 0) return m;
    const int32_t hidden = g.hp.hidden_dim.empty() ? 0 : (int32_t)g.hp.hidden_dim[0];
    m.hidden = g.i32("expert_feed_forward_length", hidden == 0, hidden, 1, 1 << 24);
    const uint32_t shared = (uint32_t)g.i32("expert_shared_count", false, 0, 0, 1024) * (uint32_t)m.hidden;
    m.shared_hidden = g.i32("expert_shared_feed_forward_length", false, (int32_t)shared, 0, 1 << 24);
    const int32_t scores = g.i32("expert_gating_func", false, sigmoid ? 2 : 1, 0, 3);  // 0: the file does not say
    m.sigmoid_scores = scores == 2 || (scores == 0 && sigmoid);
    m.softmax_after = scores == 3;
    m.normalise = g.flag("expert_weights_norm", normalise);
    m.scale = g.f32("expert_weights_scale", false, 1.0f, 0.0f, 1e6f);
    if (m.scale == 0) m.scale = 1.0f;
    m.n_groups = g.i32("expert_group_count", false, 1, 0, kMaxExpertGroups);
    m.n_groups_used = g.i32("expert_group_used_count", false, m.n_groups, 0, std::max(1, m.n_groups));
    if (g.status != DUET_OK) return m;
    const int32_t n = g.hp.n_experts, used = g.hp.n_experts_used;
    if (used > kMaxExpertsUsed) g.wrong("expert_used_count", "want at most %d, got %d", kMaxExpertsUsed, used);
    else if (m.n_groups > 1 && g.want_divisor("expert_group_count", m.n_groups, n) &&
             n / m.n_groups * m.n_groups_used < used)
        g.wrong("expert_group_used_count", "want groups that hold %d experts, got %d of %d", used, m.n_groups_used,
                n / m.n_groups);
    return m;
}

namespace {

// Appends out[k] = w[chosen k] in (+ bias). All heads have one size.
void expert_matmul_part(graph_builder& g, int32_t layer, view in, view routes, view out, const std::string& name,
                        int64_t n_in, int64_t n_out, bool has_bias) {
    op& o = g.add(op_kind::expert_matmul, layer, in, out, routes);
    o.n_used = g.hp.n_experts_used;
    o.w = g.block_tensor(layer, name + ".weight", true, n_in, n_out, g.hp.n_experts);
    if (has_bias) o.b = g.block_tensor(layer, name + ".bias", true, n_out, g.hp.n_experts);
}

// Appends the outputs of the chosen experts, one head each.
view experts_part(graph_builder& g, int32_t layer, view in, view routes, const moe_options& m) {
    const int32_t used = g.hp.n_experts_used, n_in = in.width(), hidden = m.hidden;
    view result;
    if (m.gated && g.has(layer, "ffn_gate_up_exps.weight")) {
        const view both = g.heads(g.buffer("expert gate up", 2ll * used * hidden), used, 2 * hidden);
        expert_matmul_part(g, layer, in, routes, both, "ffn_gate_up_exps", n_in, 2 * hidden, m.biases);
        view gate = both, up = both;
        gate.head_dim = up.head_dim = hidden;
        up.offset += hidden;
        result = g.heads(g.buffer("expert gate", (int64_t)used * hidden), used, hidden);
        g.activate(layer, m.act, gate, up, result);
    } else {
        result = g.heads(g.buffer("expert gate", (int64_t)used * hidden), used, hidden);
        const view up = m.gated ? g.heads(g.buffer("expert up", (int64_t)used * hidden), used, hidden) : result;
        if (m.gated) expert_matmul_part(g, layer, in, routes, result, "ffn_gate_exps", n_in, hidden, m.biases);
        expert_matmul_part(g, layer, in, routes, up, "ffn_up_exps", n_in, hidden, m.biases);
        g.activate(layer, m.act, result, m.gated ? up : view{}, result);
    }
    const view out = g.heads(g.buffer("expert out", (int64_t)used * n_in), used, n_in);
    expert_matmul_part(g, layer, result, routes, out, "ffn_down_exps", hidden, n_in, m.biases);
    return out;
}

void shared_expert_part(graph_builder& g, int32_t layer, view in, const join_target& to, const moe_options& m) {
    const int64_t hidden = m.shared_hidden;
    const view gate = gate_part(g, layer, in, hidden, m.act, m.gated, "_shexp");
    const weight_id down = g.block_tensor(layer, "ffn_down_shexp.weight", true, hidden, to.out.width());
    if (!m.shared_gate) return matmul_to(g, layer, gate, {to.out, true, to.scale}, down);
    const view shared = g.buffer("shared out", to.out.width()), factor = g.buffer("shared gate", 1);
    g.matmul(layer, gate, shared, down);
    g.matmul(layer, in, factor, g.block_tensor(layer, "ffn_gate_inp_shexp.weight", true, in.width()));
    g.add(op_kind::multiply, layer, shared, shared, factor).act = activation::sigmoid;
    g.add_scaled(layer, to.out, shared, to.out, to.scale);
}

}  // namespace

void moe_part(graph_builder& g, int32_t layer, view in, view x, const moe_options& m, view router_in) {
    const int32_t n = g.hp.n_experts, used = g.hp.n_experts_used;
    if (n == 0) g.wrong("expert_count", "missing key");
    if (g.status != DUET_OK) return;
    const view logits = g.buffer("router", n), routes = g.buffer("routes", 2ll * used);
    g.matmul(layer, router_in.buffer < 0 ? in : router_in, logits,
             g.block_tensor(layer, "ffn_gate_inp.weight", true, in.width(), n),
             m.biases ? g.block_tensor(layer, "ffn_gate_inp.bias", true, n) : -1)
        .scale = m.router_scale;
    op& r = g.add(op_kind::route, layer, logits, routes);
    r.b = g.block_tensor(layer, g.has(layer, "exp_probs_b") ? "exp_probs_b" : "exp_probs_b.bias", false, n);
    r.n_used = used;
    r.n_groups = m.n_groups;
    r.n_groups_used = m.n_groups_used;
    r.sigmoid_scores = m.sigmoid_scores;
    r.softmax_after = m.softmax_after;
    r.normalise = m.normalise;
    r.scale = m.scale;
    view experts_in = in;
    if (m.latent) {
        experts_in = g.buffer("latent", m.latent);
        named_matmul(g, layer, in, experts_in, "ffn_latent_down");
    }
    const view outs = experts_part(g, layer, experts_in, routes, m);
    const join_target to = open_join(g, x, m.out);
    op& sum = g.add(op_kind::expert_sum, layer, outs, m.latent ? experts_in : to.out, routes);
    sum.residual = !m.latent && to.residual;
    sum.scale = m.latent ? 1.0f : to.scale;
    sum.n_used = used;
    sum.w = g.block_tensor(layer, "ffn_down_exps.scale", false, n);
    if (m.latent)
        matmul_to(g, layer, experts_in, to, g.block_tensor(layer, "ffn_latent_up.weight", true, m.latent, x.width()));
    if (m.shared_hidden) shared_expert_part(g, layer, in, to, m);
    close_join(g, layer, x, m.out);
}

void experts_or_ffn_part(graph_builder& g, int32_t layer, view h, view x, const block_options& o) {
    if (o.moe && g.has(layer, "ffn_gate_inp.weight")) moe_part(g, layer, h, x, *o.moe);
    else ffn_part(g, layer, h, x, o.ffn);
}

void block_part(graph_builder& g, int32_t layer, view x, const block_options& o) {
    view h = o.attn_norm ? norm_part(g, layer, x, o.attn_norm) : x;
    const view attn_in = h;
    if (o.parallel && o.ffn_norm) h = norm_part(g, layer, x, o.ffn_norm, "h2");
    attention_part(g, layer, attn_in, x, o.attn);
    if (!o.parallel) h = o.ffn_norm ? norm_part(g, layer, x, o.ffn_norm) : x;
    experts_or_ffn_part(g, layer, h, x, o);
}

void mamba2_part(graph_builder& g, int32_t layer, view in, view x, const join& out, bool norm_required) {
    const int32_t k = g.i32("ssm.conv_kernel", true, 2, 2, 64);
    const int32_t inner = g.i32("ssm.inner_size", true, 1, 1, 1 << 20);
    const int32_t n_state = g.i32("ssm.state_size", true, 1, 1, 4096);
    const int32_t groups = g.i32("ssm.group_count", true, 1, 1, 1024);
    const int32_t n_heads = g.i32("ssm.time_step_rank", true, 1, 1, 65536);
    if (!g.want_divisor("ssm.time_step_rank", n_heads, inner) || !g.want_divisor("ssm.group_count", groups, n_heads) ||
        !g.want_divisor("ssm.group_count", groups, inner))
        return;
    const int32_t conv_dim = inner + 2 * groups * n_state, n_all = inner + conv_dim + n_heads;
    const view all = g.buffer("ssm in", n_all), y = g.buffer("ssm out", inner);
    const view z = g.columns(all, 0, inner), xbc = g.columns(all, inner, conv_dim),
               dt = g.columns(all, inner + conv_dim, n_heads);
    named_matmul(g, layer, in, all, "ssm_in");
    op& conv = g.add(op_kind::conv, layer, xbc, xbc);
    conv.act = activation::silu;
    conv.index = g.state((int64_t)(k - 1) * conv_dim);
    conv.w = g.block_tensor(layer, "ssm_conv1d.weight", true, k, conv_dim);
    conv.b = g.block_tensor(layer, "ssm_conv1d.bias", false, conv_dim);
    op& step = g.add(op_kind::mamba2, layer, xbc, y, dt);
    step.n_groups = groups;
    step.index = g.state((int64_t)inner * n_state);
    step.w = g.block_tensor(layer, "ssm_a", true, 1, n_heads);
    step.b = g.block_tensor(layer, "ssm_dt.bias", true, n_heads);
    step.w2 = g.block_tensor(layer, "ssm_d", true, 1, n_heads);
    g.activate(layer, activation::silu, z, y, y);
    const weight_id norm = g.block_tensor(layer, "ssm_norm.weight", norm_required, inner / groups, groups);
    const view parts = g.heads(y, groups, inner / groups);
    if (norm >= 0) g.norm(layer, parts, parts, norm).w_stride = parts.head_dim;
    project(g, layer, y, x, "ssm_out", out);
}

void windowed_layers::read_pattern(graph_builder& g, int32_t period, bool first_sees_all) {
    const gguf_kv* kv = g.file.find(g.key("attention.sliding_window_pattern"));  // the period, or a flag for each block
    const bool is_array = kv && kv->type == DUET_KV_ARRAY;
    if (is_array) is_windowed = g.per_layer("attention.sliding_window_pattern", true, {}, 0, 1);
    else period = g.i32("attention.sliding_window_pattern", false, period, 0, 512);
    for (int32_t i = 0; i < g.hp.n_blocks && !is_array; i++)
        is_windowed.push_back(period == 0 || i % period != (first_sees_all ? 0 : period - 1));
}

windowed_layers read_windows(graph_builder& g, int32_t period, bool first_sees_all) {
    // The file counts both sides: a position sees half of its window before and behind itself.
    const int32_t both = g.i32("attention.sliding_window", false, 0, 0, 1 << 30);
    windowed_layers l{.window = both ? both / 2 + 1 : 0, .rope_full = g.rope()};
    l.rope = g.rope({.base = g.f32("rope.freq_base_swa", false, 10000.0f, 1e-3f, 1e30f), .scaling = false});
    l.read_pattern(g, period, first_sees_all);
    return l;
}

void windowed_block_part(graph_builder& g, int32_t layer, view x, block_options o, const windowed_layers& layers) {
    const bool is_windowed = layers.window > 0 && layers.is_windowed[(size_t)layer] != 0;
    o.attn.window = is_windowed ? layers.window : 0;
    o.attn.rope = is_windowed ? layers.rope : layers.rope_full;
    block_part(g, layer, x, o);
}

void windowed_blocks_part(graph_builder& g, view x, const block_options& o, const windowed_layers& layers) {
    for (int32_t i = 0; i < g.hp.n_layers && g.status == DUET_OK; i++) windowed_block_part(g, i, x, o, layers);
}

view rows_part(graph_builder& g, view x, const char* norm) {
    const view last = g.buffer("last", g.hp.dim, true);
    g.add(op_kind::gather, -1, x, last);
    if (norm) whole_norm(g, last, norm);
    g.graph.embedding_buffer = last.buffer;
    return last;
}

duet_status output_part(graph_builder& g, view x, const output_options& options) {
    const view last = rows_part(g, x, options.norm);
    weight_id output = g.tensor("output.weight", false, g.hp.dim, g.hp.n_vocab);
    if (g.graph.both_ways) return g.finish();
    const view logits = g.buffer("logits", g.hp.n_vocab, true);
    if (output < 0) output = g.tensor("token_embd.weight", true, g.hp.dim, g.hp.n_vocab);  // tied
    g.matmul(-1, last, logits, output, g.tensor("output.bias", false, g.hp.n_vocab)).scale = options.scale;
    if (options.cap != 0) g.add(op_kind::scale_cap, -1, logits, logits).cap = options.cap;
    g.graph.logits_buffer = logits.buffer;
    return g.finish();
}

}  // namespace duet
