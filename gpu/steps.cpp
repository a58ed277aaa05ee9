// gpu/steps.cpp: groups ops of a graph into steps that run as one launch when the batch is small, because decoding
// spends its time on launches and on reading weights. A step does the same arithmetic, and only leaves out the storing
// of results that no later op reads. Owns: the patterns. Must not know: drivers, kernels' arguments.
// Main path: gpu/launch.cpp -> [gpu/steps.cpp] -> models/ops.h
#include "context.h"

namespace duet {
namespace {

bool overlaps(const view& a, const view& b) {
    auto end = [](const view& v) { return v.offset + (v.n_heads - 1) * v.stride + v.head_dim; };
    return a.buffer >= 0 && a.buffer == b.buffer && a.offset < end(b) && b.offset < end(a);
}

bool is_plain(const view& v) { return v.buffer >= 0 && v.contiguous(); }

// Says whether an op from `from` on reads what earlier ops left in v, before another op has written all of v.
bool is_read_later(const model_graph& g, const view& v, size_t from) {
    for (size_t i = from; i < g.ops.size(); i++) {
        const op& o = g.ops[i];
        if (o.after_border) return true;  // The other device's ops may read anything.
        const bool adds = o.residual && overlaps(o.out, v);
        if (overlaps(o.in, v) || overlaps(o.in2, v) || overlaps(o.in3, v) || adds) return true;
        if (o.out.buffer == v.buffer && is_plain(o.out) && o.out.offset <= v.offset &&
            o.out.offset + o.out.width() >= v.offset + v.width())
            return false;
    }
    return v.buffer == g.logits_buffer || v.buffer == g.embedding_buffer;
}

struct planner {
    const model_graph& graph;
    const bool with_norms;

    bool is(size_t i, op_kind kind) const { return i < graph.ops.size() && graph.ops[i].kind == kind; }
    int32_t type(const op& o) const { return graph.weights[(size_t)o.w].type; }

    // Adds the norm of the step's finished rows, if the next op is one.
    void add_norm(gpu_step& s, const view& rows) const {
        const size_t i = (size_t)(s.first + s.n_ops);
        if (!with_norms || !is(i, op_kind::norm) || graph.ops[i].in.n_heads != 1) return;
        if (!same_columns(graph.ops[i].in, rows)) return;
        s.norm = (int32_t)i;
        s.n_ops++;
    }

    gpu_step matvec(size_t i) const {
        const op& o = graph.ops[i];
        gpu_step s{.kind = gpu_step_kind::matvec, .first = (int32_t)i};
        auto joins = [&](size_t k) {
            if (o.residual || !is(k, op_kind::matmul)) return false;
            const op& m = graph.ops[k];
            if (m.residual || !same_columns(m.in, o.in) || overlaps(m.out, o.in)) return false;
            for (size_t j = i; j < k; j++)
                if (overlaps(m.out, graph.ops[j].out)) return false;
            if (type(m) == type(o)) return true;
            if (s.second_type < 0 && pair_kernel(type(o), type(m)) >= 0) s.second_type = type(m);
            return s.second_type == type(m);
        };
        while (s.n_matmuls < 3 && joins(i + (size_t)s.n_matmuls)) s.n_matmuls++;
        s.n_ops = s.n_matmuls;
        if (s.n_matmuls == 1) add_norm(s, o.out);
        if (s.norm < 0 && !o.residual) add_gate(s, i);
        return s;
    }

    // Adds act(gate) * up, where gate and up are two matmuls or the halves of one, or act(up) alone.
    void add_gate(gpu_step& s, size_t i) const {
        const size_t k = i + (size_t)s.n_matmuls;
        if (!is(k, op_kind::activate) || s.second_type >= 0 || s.n_matmuls > 2) return;
        const op &a = graph.ops[k], &gate = graph.ops[i], &up = graph.ops[k - 1];
        const bool has_up = a.in2.buffer >= 0, one = s.n_matmuls == 1;
        if (!is_plain(a.in) || !is_plain(a.out) || overlaps(a.out, gate.in) || (has_up && !is_plain(a.in2))) return;
        if (one && has_up) {
            const int32_t n = gate.out.width(), half = n / 2;
            auto is_half = [&](const view& v, int32_t from) {
                return v.buffer == gate.out.buffer && v.offset == gate.out.offset + from && v.width() == half;
            };
            if (!is_half(a.in, 0) || !is_half(a.in2, half) || n % 64) return;
        } else if (!same_columns(a.in, gate.out)) {
            return;
        }
        if (!one && (!has_up || !same_columns(a.in2, up.out) || gate.out.width() != up.out.width())) return;
        // These results would no longer be stored.
        for (const view& lost : {gate.out, up.out})
            if (!same_columns(lost, a.out) && is_read_later(graph, lost, k + 1)) return;
        s.halves = one && has_up;
        s.activate = (int32_t)k;
        s.n_ops++;
    }

    gpu_step attention(size_t i) const {
        const gpu_step single{.first = (int32_t)i};
        size_t k = i;
        while (k < i + 4 && (is(k, op_kind::norm) || is(k, op_kind::rope))) k++;
        if (!is(k, op_kind::kv_append) || !is(k + 1, op_kind::attention)) return single;
        const op &append = graph.ops[k], &attend = graph.ops[k + 1];
        const cache_layer& cache = graph.caches[(size_t)attend.index];
        if (append.index != attend.index || cache.v_in_k || cache.k_dim > 64 + cache.v_dim) return single;
        gpu_step s{.kind = gpu_step_kind::attention, .first = (int32_t)i, .n_ops = (int32_t)(k + 2 - i)};
        s.append = (int32_t)k;
        s.attention = s.append + 1;
        for (size_t j = i; j < k; j++) {
            const op& o = graph.ops[j];
            const bool is_q = o.in == attend.in, is_norm = o.kind == op_kind::norm;
            if (!is_q && o.in != append.in) return single;
            int32_t &norm = is_q ? s.q_norm : s.k_norm, &rope = is_q ? s.q_rope : s.k_rope;
            if (is_norm && (o.norm != norm_kind::rms || o.b >= 0 || o.in != o.out || norm >= 0)) return single;
            if (rope >= 0) return single;  // The norm comes before the rope, and each comes once.
            (is_norm ? norm : rope) = (int32_t)j;
        }
        for (const view& lost : {attend.in, append.in})
            if (k > i && (overlaps(attend.out, lost) || is_read_later(graph, lost, k + 2))) return single;
        return overlaps(attend.in, append.in) || overlaps(attend.in, append.in2) ? single : s;
    }
};

}  // namespace

bool same_columns(const view& a, const view& b) {
    return a.buffer >= 0 && a.buffer == b.buffer && a.offset == b.offset && a.width() == b.width() && a.contiguous() &&
           b.contiguous();
}

std::vector<gpu_step> plan_gpu_steps(const model_graph& g, bool with_norms) {
    const planner p{g, with_norms};
    std::vector<gpu_step> steps;
    for (size_t i = 0; i < g.ops.size(); i += (size_t)steps.back().n_ops) {
        gpu_step s = g.ops[i].kind == op_kind::matmul ? p.matvec(i) : p.attention(i);
        for (int32_t k = s.first + 1; k < s.first + s.n_ops; k++)
            if (g.ops[(size_t)k].after_border) s = gpu_step{gpu_step_kind::single, (int32_t)i};
        steps.push_back(s);
    }
    return steps;
}

}  // namespace duet
