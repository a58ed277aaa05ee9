// cpu/ops.cpp: the ops of models/ops.h on the CPU. It cuts each op into pieces of work and calls the kernels. It owns
// the walk over the list of ops and the executor's functions. Results: quant/exact.h.
// Must not know: families, files.
// Main path: runtime/session.cpp -> models/ops.h -> [cpu/ops.cpp] -> cpu/kernels.h
#include "../quant/activate.h"
#include "choose.h"
#include "context.h"
#include "executor.h"

#include <memory>

namespace duet {

constexpr int kMostTogether = 4;  // matmuls of one input that run as one

cpu_layout make_cpu_layout(const model_graph& g, const exec_limits& limits) {
    cpu_layout l{make_layout(g, limits)};
    for (const cache_layer& c : g.caches) {
        l.max_k = std::max(l.max_k, c.k_dim + 1);  // ALiBi adds one element
        l.max_v = std::max(l.max_v, c.v_dim);
    }
    // An odd number of cache lines: otherwise the codes of 32 tokens fall into a few sets of the first-level cache
    // (with rows of 4096, into one set).
    l.max_in |= 64;
    const size_t batch = (size_t)limits.max_batch;
    size_t experts = 0, widest = l.max_in;
    for (const op& o : g.ops) {
        if (o.kind == op_kind::route) experts = std::max(experts, (size_t)o.in.width());
        if (o.kind != op_kind::expert_matmul) continue;
        const size_t routes = batch * (size_t)o.n_used, n_in = round_up((size_t)o.in.head_dim, 64);
        widest = std::max(widest, n_in);
        l.max_routes = std::max(l.max_routes, routes);
        l.max_mats = std::max(l.max_mats, (size_t)g.weights[(size_t)o.w].n_mats);
        if (o.in.n_heads > 1) l.act_codes = std::max(l.act_codes, routes * n_in);
        if (!is_quantized(g.weights[(size_t)o.w].type)) l.gather_bytes = std::max(l.gather_bytes, routes * n_in * 4);
        else if (o.in.n_heads == 1) l.gather_bytes = std::max(l.gather_bytes, act_array_bytes(routes * n_in));
    }
    l.act_codes = std::max(l.act_codes, batch * l.max_in);
    l.act_bytes = act_array_bytes(l.act_codes);
    for (const op& o : g.ops) {
        if (o.kind != op_kind::matmul) continue;
        for (int i = 0; const cpu_kernels* k = cpu_kernels_at(i); i++) {  // any table may be chosen later
            if (!k->formats[g.weights[(size_t)o.w].type].takes_panels) continue;
            const size_t n_blocks = (size_t)count_panels(limits.max_batch) * ((size_t)o.in.width() / kBlock);
            l.panel_bytes = std::max(l.panel_bytes, n_blocks * sizeof(act_panel));
        }
    }
    if (limits.fast) l.panel_bytes = std::max(l.panel_bytes, round_up(batch, kTileRows) * l.max_in * sizeof(uint16_t));
    const size_t others = std::max(experts * 8, g.states.empty() ? 0 : batch * sizeof(state_token));
    // The results of a piece, before they are added to the residual.
    const size_t tile = std::max((size_t)limits.max_batch * 4, (size_t)kFewMost * kFewTiles) * kTileRows * 4;
    l.split_bytes = split_bytes(g, limits.n_ctx);
    l.matmul_bytes = round_up(matmul_scratch_bytes((int)widest), 64);
    l.thread_bytes = round_up(std::max({l.matmul_bytes + tile, attention_scratch_floats(l, g) * 4, others}), 4096);
    return l;
}

void quantize_input(cpu_context& c, const op& o, int n_tok) {
    const act_matrix a = c.acts(n_tok);
    for_columns(c, n_tok, o.in.width(),
                [&](int i, int first, int n) { quantize_row(c, c.row(o.in, i), first, n, a, (size_t)i); });
    c.has_panels = false;
}

// Tells the session's log a choice that it has not heard of.
void tell_choice(cpu_context& c, choice_kind kind, int32_t type, int n_tok, const matmul_ways& ways) {
    if (!c.times_ways || !c.limits.place.log || ways.n < 2) return;
    const timed_choice& made = choice_of(kind, type, n_tok);
    if (!made.is_decided(ways.n) || std::ranges::count(c.told, &made)) return;
    c.told.push_back(&made);
    const std::string text = std::string("chosen: ") + (kind == choice_kind::experts ? "experts " : "matmul ") +
                             type_name(type) + ", " + std::to_string(n_tok) + " tokens: " + describe_choice(made, ways);
    c.limits.place.log(c.limits.place.log_user, DUET_LOG_INFO, text.c_str());
}

namespace {

// ---- one function per kind of op -----------------------------------------------------------------------------------

void run_embed(cpu_context& c, const op& o) {
    const weight& w = c.weight_of(o.w);
    for_rows(c, c.batch->n_tok, (size_t)w.n_in * 4, [&](int i) {
        const int32_t id = o.first_row ? 0 : o.by_position ? c.batch->pos[i] : c.batch->token[i];
        float* out = c.row(o.out, i);
        decode_row(w.type, w.data + (size_t)id * w.row_bytes, w.n_in, out);
        if (o.scale != 1.0f)
            for (int64_t j = 0; j < w.n_in; j++) out[j] = out[j] * o.scale;
    });
}

void run_norm(cpu_context& c, const op& o) {
    const float *w = c.vector_of(o.w), *b = c.vector_of(o.b);
    const int d = o.in.head_dim;
    for_rows(c, c.n_rows(o.in), (size_t)o.in.width() * 2, [&](int i) {
        for (int h = 0; h < o.in.n_heads; h++) {
            const float* x = c.head(o.in, i, h);
            float* y = c.head(o.out, i, h);
            const float* wh = w ? w + (size_t)h * (size_t)o.w_stride : nullptr;
            if (o.norm == norm_kind::rms) c.kernels->rms_norm(x, wh, d, o.eps, y);
            else if (o.norm == norm_kind::layer) exact_layer_norm(x, wh, b, d, o.eps, y);
            else exact_l2_norm(x, d, o.eps, y);
        }
    });
}

// One of the matmuls of one input, whose pieces follow those of the one before it.
struct matmul_job {
    matmul_ways ways;
    timed_choice* choice;
    uint64_t number;
    int first;  // piece
};

// Brings the activations, quantized or not, into the form that a matmul's ways want.
void prepare_input(cpu_context& c, const op& o, const matmul_ways& ways, act_matrix* a) {
    const int n_tok = c.n_rows(o.in), n_in = o.in.width();
    if (ways.has(matmul_way::panels)) {
        act_panel* panels = (act_panel*)c.panels.data;
        if (!c.has_panels)
            c.pool.for_each(count_panels(n_tok), [&](int, int i) { c.kernels->pack_panel(*a, i, n_in / 32, panels); });
        c.has_panels = true;
        a->panels = panels;
    }
    if (ways.has(matmul_way::rounded) && !a->rounded) {
        uint16_t* rounded = (uint16_t*)c.panels.data;
        for_rows(c, n_tok, (size_t)n_in,
                 [&](int i) { c.kernels->round_row(c.row(o.in, i), n_in, rounded + (size_t)i * a->q_stride); });
        c.has_panels = false;
        a->rounded = rounded;
    }
}

// Computes n matmuls of one input as one piece of work, because threads wait for each other at the end of each.
void run_matmuls(cpu_context& c, const op* ops, int n, bool reuse) {
    const int n_tok = c.n_rows(ops->in);
    if (n_tok == 0) return;
    if (is_quantized(c.weight_of(ops->w).type) && !reuse) quantize_input(c, *ops, n_tok);
    matmul_job jobs[kMostTogether];
    act_matrix a = c.acts(n_tok);
    a.x = c.row(ops->in, 0);
    a.x_stride = c.stride(ops->in);
    bool is_few = true, by_32 = false;
    int n_out = 0;
    for (int k = 0; k < n; k++) {
        const weight& w = c.weight_of(ops[k].w);
        matmul_ways& ways = jobs[k].ways = ways_of_matmul(*c.kernels, w.type, n_tok, true);
        jobs[k].choice = open_choice(c, choice_kind::matmul, w.type, n_tok, &ways);
        jobs[k].number = k > 0 && w.type == c.weight_of(ops[k - 1].w).type ? c.n_matmuls : ++c.n_matmuls;
        prepare_input(c, ops[k], ways, &a);
        is_few = is_few && (ways.has(matmul_way::rows) || (c.kernels->formats[w.type].is_float && n_tok <= kFewMost));
        by_32 = by_32 || ways.has(matmul_way::panels) || ways.has(matmul_way::amx);
        n_out += (int)w.n_out;
    }
    // A piece has 16 to 64 rows, and each thread gets at least eight pieces where the matrices are large enough. Panels
    // and AMX have 32, because most of their kernels take 32 at once. For few tokens, pieces of up to 32 rows are taken
    // four at a time, and fewer at the end: longer streams are faster (docs/measurements/2026-11-22-generation.md), and
    // threads that end together wait less.
    int tiles = by_32 || is_few ? 2 : 4;
    while (!by_32 && tiles > 1 && n_out / (tiles * kTileRows) < (is_few ? 4 : 8) * c.pool.size()) tiles /= 2;
    const int most = is_few ? kFewTiles / tiles : 1, piece_rows = tiles * kTileRows;
    int n_pieces = 0;
    for (int k = 0; k < n; k++) {
        jobs[k].first = n_pieces;
        n_pieces += ((int)c.weight_of(ops[k].w).n_out - 1) / piece_rows + 1;
    }
    const auto compute = [&](const op& o, int t, int r0, int n_rows, matmul_way way, bool same_input) {
        const weight& w = c.weight_of(o.w);
        const float* bias = c.vector_of(o.b);
        matmul_args m = piece_args(c, t, w, (size_t)r0, n_rows, a);
        m.way = way;
        m.same_input = same_input;
        float* tile = (float*)(c.thread_scratch(t) + c.layout.matmul_bytes);
        const bool plain = !bias && o.scale == 1.0f;
        m.adds = plain && o.residual && (way == matmul_way::panels || way == matmul_way::amx);
        const bool apart = o.residual && !m.adds;
        m.y = apart ? tile : c.row(o.out, 0) + r0;
        m.y_stride = apart ? (size_t)(most * piece_rows) : c.stride(o.out);
        run_matmul(*c.kernels, w.type, m);
        for (int i = 0; i < n_tok && (apart || !plain); i++) {
            const float* y = m.y + (size_t)i * m.y_stride;
            float* out = c.row(o.out, i) + r0;
            for (int r = 0; r < n_rows; r++) {
                float v = bias ? y[r] + bias[r0 + r] : y[r];
                if (o.scale != 1.0f) v = v * o.scale;
                out[r] = o.residual ? out[r] + v : v;
            }
        }
    };
    c.pool.for_parts(n_pieces, most, [&](int t, int first, int end) {
        for (int k = 0; k < n && !c.cancelled(); k++) {
            const weight& w = c.weight_of(ops[k].w);
            const int r0 = std::max(first - jobs[k].first, 0) * piece_rows,
                      n_rows = std::min((end - jobs[k].first) * piece_rows, (int)w.n_out) - r0;
            if (n_rows <= 0) continue;
            run_piece(c, jobs[k].ways, jobs[k].choice, t, jobs[k].number, first / most,
                      (uint64_t)n_rows * (uint64_t)w.n_in * (uint64_t)n_tok,
                      [&](matmul_way way, bool same_input) { compute(ops[k], t, r0, n_rows, way, same_input); });
        }
    });
    for (int k = 0; k < n; k++)
        if (const int32_t type = c.weight_of(ops[k].w).type; c.limits.place.log)
            tell_choice(c, choice_kind::matmul, type, n_tok, ways_of_matmul(*c.kernels, type, n_tok, true));
}

// Computes the angles of the batch's positions, once per batch for each table.
void make_angles(cpu_context& c) {
    for (size_t t = 0; t < c.graph.ropes.size(); t++) {
        const rope_table& table = c.graph.ropes[t];
        const std::vector<double>& freq = table.of_context(c.limits.n_ctx);
        const size_t n = freq.size();
        for_rows(c, c.batch->n_tok, n * 128, [&](int i) {
            float* at = (float*)c.rope.data + c.layout.rope_offset[t] + (size_t)i * n * 2;
            for (size_t j = 0; j < n; j++)
                exact_rope_angle(c.batch->pos[i], freq[j], table.magnitude, at + j, at + n + j);
        });
    }
}

void run_rope(cpu_context& c, const op& o) {
    const size_t n = c.graph.ropes[(size_t)o.index].freq.size();
    for_rows(c, c.batch->n_tok, (size_t)o.in.width(), [&](int i) {
        const float* cos_a = (const float*)c.rope.data + c.layout.rope_offset[(size_t)o.index] + (size_t)i * n * 2;
        const float* sin_a = cos_a + n;
        for (int h = 0; h < o.in.n_heads; h++)
            c.kernels->rotate(c.head(o.in, i, h), o.rope_dim / 2, o.neox, cos_a, sin_a);
    });
}

void elementwise(const cpu_context& c, const op& o, const float* x, const float* x2, int n, float* y) {
    if (o.kind == op_kind::activate) {
        c.kernels->activate((int)o.act, x, x2, n, y);
    } else if (o.kind == op_kind::add) {
        for (int j = 0; j < n; j++) y[j] = exact_add(x[j], x2[j], o.scale);
    } else if (o.kind == op_kind::multiply) {
        const float f = exact_activate(o.act, *x2, nullptr);
        for (int j = 0; j < n; j++) y[j] = x[j] * f;
    } else {
        for (int j = 0; j < n; j++) y[j] = exact_scale_cap(x[j], o.scale, o.cap);
    }
}

// The views may have heads of different sizes, as long as their numbers of columns agree. A step ends where a head ends
// in any of the views.
void run_elementwise(cpu_context& c, const op& o) {
    const bool has_in2 = o.in2.buffer >= 0, one_factor = o.kind == op_kind::multiply;
    auto run = [](const view& v, int j) { return v.contiguous() ? v.width() : v.head_dim - j % v.head_dim; };
    for_columns(c, c.n_rows(o.in), o.in.width(), [&](int i, int first, int n) {
        for (int j = first, step; j < first + n; j += step) {
            step = std::min({first + n - j, run(o.in, j), run(o.out, j)});
            if (has_in2 && !one_factor) step = std::min(step, run(o.in2, j));
            const float* x2 = has_in2 ? c.column(o.in2, i, one_factor ? 0 : j) : nullptr;
            elementwise(c, o, c.column(o.in, i, j), x2, step, c.column(o.out, i, j));
        }
    });
}

void run_gather(cpu_context& c, const op& o) {
    for (int i = 0; i < c.batch->n_wanted; i++)
        memcpy(c.row(o.out, i), c.row(o.in, c.batch->wanted[i]), (size_t)o.in.width() * 4);
}

bool is_matmul(const op& o) { return o.kind == op_kind::matmul || o.kind == op_kind::expert_matmul; }

// Tells the session's listener each row that a matmul is about to read, with the matrix that reads it.
void tell_inputs(const cpu_context& c, const op& o) {
    const weight& w = c.weight_of(o.w);
    for (int i = 0; i < c.n_rows(o.in); i++)
        for (int k = 0; k < std::max(1, o.n_used); k++) {
            const int32_t mat = o.in2.buffer < 0 ? k : ((const int32_t*)c.row(o.in2, i))[k];
            const float* x = c.head(o.in, i, o.in.n_heads == 1 ? 0 : k);
            c.limits.inputs(c.limits.inputs_user, w.name.c_str(), mat, (int32_t)w.n_mats, x, w.n_in);
        }
}

// Runs n ops from i on: matmuls of one input, or one op.
void run_ops(cpu_context& c, size_t i, int n) {
    const op& o = c.graph.ops[i];
    for (int k = 0; k < n && c.limits.inputs && is_matmul(o); k++) tell_inputs(c, c.graph.ops[i + (size_t)k]);
    switch (o.kind) {
    case op_kind::embed: return run_embed(c, o);
    case op_kind::norm: return run_norm(c, o);
    case op_kind::matmul: return run_matmuls(c, &o, n, c.reuses_act[i] != 0);
    case op_kind::rope: return run_rope(c, o);
    case op_kind::kv_append: return run_kv_append(c, o);
    case op_kind::attention: return run_attention(c, o);
    case op_kind::activate:
    case op_kind::add:
    case op_kind::multiply:
    case op_kind::scale_cap: return run_elementwise(c, o);
    case op_kind::gather: return run_gather(c, o);
    case op_kind::route: return run_route(c, o);
    case op_kind::expert_matmul: return run_expert_matmul(c, o, c.reuses_act[i] != 0);
    case op_kind::expert_sum: return run_expert_sum(c, o);
    case op_kind::conv: return run_conv(c, o);
    case op_kind::delta_net: return run_delta_net(c, o);
    case op_kind::mamba2: return run_mamba2(c, o);
    }
}

bool same_view(const view& a, const view& b) {
    return a.buffer == b.buffer && a.offset == b.offset && a.width() == b.width();
}

// May matmul `o` be computed together with the op before it? It must read nothing that matmuls before it write.
bool goes_with(const cpu_context& c, const op& o, const op& before) {
    return o.kind == op_kind::matmul && before.kind == op_kind::matmul && !o.after_border && !o.residual &&
           same_view(o.in, before.in) && before.out.buffer != o.in.buffer &&
           is_quantized(c.weight_of(o.w).type) == is_quantized(c.weight_of(before.w).type);
}

// Finds the matmuls whose input an earlier one has quantized and those of one input, and names the profile's rows.
void prepare(cpu_context& c) {
    c.n_together.assign(c.graph.ops.size(), 1);
    for (size_t i = c.graph.ops.size(); i-- > 1;)
        if (goes_with(c, c.graph.ops[i], c.graph.ops[i - 1]) && c.n_together[i] < kMostTogether)
            c.n_together[i - 1] = c.n_together[i] + 1;
    view quantized;
    for (const op& o : c.graph.ops) {
        bool reuse = false;
        if (o.after_border) quantized = view{};
        std::string name = op_name(o.kind);
        if (is_matmul(o)) {
            const weight& w = c.weight_of(o.w);
            name += std::string(" ") + type_name(w.type);
            if (is_quantized(w.type) && o.kind == op_kind::expert_matmul && o.in.n_heads > 1) {
                quantized = view{};  // its rows overwrite `act`
            } else if (is_quantized(w.type)) {
                reuse = same_view(quantized, o.in);
                quantized = o.in;
            }
        }
        if (written_by(o).buffer == quantized.buffer) quantized = view{};
        c.reuses_act.push_back(reuse);
        c.row_of_op.push_back(profile_row(c.rows, name));
    }
}

void count_profile(cpu_context& c, size_t i, uint64_t ns) {
    const op& o = c.graph.ops[i];
    profile_entry& e = c.rows[(size_t)c.row_of_op[i]];
    e.n_calls++;
    e.time_ns += ns;
    if (is_matmul(o)) {
        const weight& w = c.weight_of(o.w);
        const uint64_t n = (uint64_t)std::max(1, o.n_used) * (uint64_t)c.n_rows(o.in);
        e.weight_bytes += w.n_bytes / (uint64_t)w.n_mats * std::min(n, (uint64_t)w.n_mats);
        e.n_mac += (uint64_t)(w.n_in * w.n_out) * n;
    } else if (o.kind == op_kind::attention) {
        const cache_layer& layer = c.graph.caches[(size_t)o.index];
        const layer_place& place = c.layout.places[(size_t)o.index];
        for (int t = 0; t < c.batch->n_tok; t++) {
            const uint64_t n = (uint64_t)c.batch->pos[t] + 1;
            e.n_mac += n * (uint64_t)(o.in.n_heads * (layer.k_dim + layer.v_dim));
            e.weight_bytes += n / kAttnChunk * (place.k_bytes + place.v_bytes) * (uint64_t)layer.n_kv_heads;
        }
    }
}

// ---- the executor's functions --------------------------------------------------------------------------------------

duet_status cpu_plan(const model_graph& g, const exec_limits& limits, int32_t n_threads, exec_plan* out, error_text&) {
    const cpu_layout l = make_cpu_layout(g, limits);
    out->host = {l.cache_bytes, l.state_floats * 4 * (uint64_t)limits.n_state_slots, l.work_bytes(n_threads), 0, 0};
    return DUET_OK;
}

duet_status cpu_create(const model_graph& g, const exec_limits& limits, int32_t n_threads, const char* isa, void** out,
                       error_text& err) {
    auto c = std::make_unique<cpu_context>(g, limits);
    c->kernels = find_cpu_kernels(isa, limits.fast);
    if (!c->kernels) return fail(err, DUET_ERR_DEVICE, "cpu isa %s: this CPU runs: %s", isa, cpu_isa_names());
    for (const op& o : g.ops)
        if (is_matmul(o) && !c->kernels->formats[c->weight_of(o.w).type].run)
            return fail(err, DUET_ERR_UNSUPPORTED, "tensor %s: no kernel for its number format",
                        c->weight_of(o.w).name.c_str());
    const size_t states = c->layout.state_floats * 4 * (size_t)limits.n_state_slots;
    if (!c->buffers.allocate(c->layout.buffer_bytes) || !c->cache.allocate(c->layout.cache_bytes) ||
        !c->states.allocate(states) || !c->act.allocate(c->layout.act_bytes) ||
        !c->panels.allocate(c->layout.panel_bytes) || !c->gathered.allocate(c->layout.gather_bytes) ||
        !c->split.allocate(c->layout.split_bytes) || !c->rope.allocate(c->layout.rope_floats * 4) ||
        !c->scratch.allocate(c->layout.thread_bytes * (size_t)n_threads))
        return fail(err, DUET_ERR_MEMORY,
                    "no memory for a session: cache %llu MB, work buffers %llu MB; lower the context or the batch",
                    (unsigned long long)c->layout.cache_bytes >> 20,
                    (unsigned long long)c->layout.work_bytes(n_threads) >> 20);
    prepare(*c);
    c->times_ways = !isa || strcmp(isa, "auto") == 0;
    c->scratch_user.assign((size_t)n_threads * 8, 0);
    if (!c->pool.start(n_threads)) return fail(err, DUET_ERR_MEMORY, "the system gives no %d threads", n_threads);
    *out = c.release();
    return DUET_OK;
}

void cpu_destroy(void* context) { delete (cpu_context*)context; }

void group_by_sequence(cpu_context& c) {
    c.by_seq.clear();
    for (int i = 0; i < c.batch->n_tok; i++) {
        auto it = std::ranges::find(c.by_seq, c.batch->seq[i], &seq_rows::seq);
        if (it == c.by_seq.end()) it = c.by_seq.insert(it, {c.batch->seq[i], {}});
        it->rows.push_back(i);
    }
}

duet_status cpu_run(void* context, const exec_batch& batch, const std::atomic<int32_t>* cancel, error_text& err) {
    cpu_context& c = *(cpu_context*)context;
    c.batch = &batch;
    c.cancel = cancel;
    if (batch.first_op == 0) {
        make_angles(c);
        if (!c.graph.states.empty()) group_by_sequence(c);
    }
    const size_t last = batch.last_op < 0 ? c.graph.ops.size() : (size_t)batch.last_op;
    for (size_t i = (size_t)batch.first_op, n; i < last && !c.cancelled(); i += n) {
        const auto start = c.profiling ? std::chrono::steady_clock::now() : std::chrono::steady_clock::time_point{};
        n = c.profiling ? 1 : std::min((size_t)c.n_together[i], last - i);  // A profile tells the time of each op.
        run_ops(c, i, (int)n);
        if (c.profiling) count_profile(c, i, ns_since(start));
    }
    return c.cancelled() ? fail(err, DUET_ERR_CANCELLED, "the batch was cancelled") : DUET_OK;
}

float* cpu_wanted_row(void* context, int32_t buffer, int32_t i) {
    return ((cpu_context*)context)->row(view{buffer, 0, 1, 0, 0}, i);
}

uint64_t cpu_page_bytes(void* context, int32_t group) { return ((cpu_context*)context)->layout.page_size(group); }

duet_status cpu_copy_page(void* context, int32_t group, int32_t from, int32_t to) {
    cpu_context& c = *(cpu_context*)context;
    if (from < 0) memset(c.page(group, to), 0, c.layout.page_size(group));
    else memcpy(c.page(group, to), c.page(group, from), c.layout.page_size(group));
    return DUET_OK;
}

duet_status cpu_read_page(void* context, int32_t group, int32_t page, void* out) {
    memcpy(out, ((cpu_context*)context)->page(group, page), cpu_page_bytes(context, group));
    return DUET_OK;
}

duet_status cpu_write_page(void* context, int32_t group, int32_t page, const void* in) {
    memcpy(((cpu_context*)context)->page(group, page), in, cpu_page_bytes(context, group));
    return DUET_OK;
}

void cpu_profile(void* context, bool on) {
    cpu_context& c = *(cpu_context*)context;
    c.profiling = on;
    for (profile_entry& e : c.rows) e = {e.op, 0, 0, 0, 0};
}

const std::vector<profile_entry>* cpu_profile_rows(void* context) { return &((cpu_context*)context)->rows; }

}  // namespace

const executor kCpuExecutor = {"cpu",          cpu_plan,    cpu_create,      cpu_destroy,   cpu_run,
                               cpu_wanted_row, nullptr,     cpu_page_bytes,  cpu_copy_page, cpu_read_page,
                               cpu_write_page, cpu_profile, cpu_profile_rows};

}  // namespace duet
