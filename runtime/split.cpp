// runtime/split.cpp: an executor made of two: the device runs the layers that fit it, the CPU runs the others, each on
// its own cache and state. Only activations that the other side reads cross. Both sides give the same bits, so the
// choice does not change the result.
// Owns: the choice, the plan, which buffers cross when. Must not know: kernels, drivers, number formats, families.
// Main path: runtime/session.cpp -> [runtime/split.cpp] -> gpu/executor.h, cpu/ops.cpp
#include "devices.h"
#include "../models/layout.h"
#include "../cpu/executor.h"

#include <algorithm>
#include <cstring>

namespace duet {
namespace {

constexpr uint64_t kMovePiece = 4 << 20;  // pinned bytes that rows cross through

enum split_side : int { kHostSide = 0, kDeviceSide = 1 };

// Layers n_layers - gpu_layers .. n_layers - 1 are on the device, and so is what follows them. What comes before the
// first layer goes with layer 0. Experts of layers below cpu_expert_layers stay on the host.
struct placement {
    int32_t gpu_layers = 0, cpu_expert_layers = 0;
};

// Consecutive ops on one side, and the buffers that must be brought there first.
struct op_run {
    int side = kHostSide;
    int32_t first = 0, last = 0;  // ops of the side's graph
    std::vector<int32_t> moves;
};

// A model in two: each side's graph has its own ops only, and no room for what the other side keeps; numbers of
// buffers, weights, cache and state layers are the same in both.
struct split_model {
    placement place;
    model_graph part[2];
    std::vector<op_run> runs;
    std::vector<uint8_t> row_side;  // of each buffer: the side that writes it last
    std::vector<uint8_t> cache_side, state_side;
    int32_t moved_floats = 0;  // of the widest buffer that crosses
    const std::shared_ptr<exec_store> device_store = std::make_shared<exec_store>();  // of the device's part
};

// ---- which op runs where --------------------------------------------------------------------------------------------

// A matrix for each head (deepseek2) is an expert that nobody chooses, and stays in its layer.
bool has_experts(const op& o) { return o.kind == op_kind::expert_matmul && o.in2.buffer >= 0; }

// The side of each op, and of each layer's cache.
std::vector<uint8_t> choose_sides(const model_graph& g, const placement& p, std::vector<uint8_t>* cache_side) {
    const int32_t first_gpu = g.n_layers - p.gpu_layers;
    std::vector<uint8_t> sides, by_host_expert(g.buffers.size(), 0);
    cache_side->assign(g.caches.size(), kHostSide);
    int32_t layer = 0;  // of ops outside the layers: that of the op before
    for (const op& o : g.ops) {
        if (o.layer >= 0) layer = o.layer;
        int side = layer >= first_gpu ? kDeviceSide : kHostSide;
        // experts' results stay on the host until they are summed
        auto from_expert = [&](const view& v) { return v.buffer >= 0 && by_host_expert[(size_t)v.buffer]; };
        const bool follows = from_expert(o.in) || from_expert(o.in2);
        if (layer < p.cpu_expert_layers && (has_experts(o) || follows)) side = kHostSide;
        if (o.out.buffer >= 0)
            by_host_expert[(size_t)o.out.buffer] =
                side == kHostSide && o.kind != op_kind::expert_sum && (has_experts(o) || follows);
        // layers that share another's cache read it where it is
        if (o.kind == op_kind::kv_append) (*cache_side)[(size_t)o.index] = (uint8_t)side;
        if (o.kind == op_kind::attention) side = (*cache_side)[(size_t)o.index];
        sides.push_back((uint8_t)side);
    }
    return sides;
}

template <class F>
void for_columns(const view& v, F f) {
    for (int32_t h = 0; v.buffer >= 0 && h < v.n_heads; h++)
        for (int32_t i = 0; i < v.head_dim; i++) f((size_t)(v.offset + h * v.stride + i));
}

bool has_column(const view& v, int32_t buffer, int32_t column) {
    const int32_t at = column - v.offset, h = v.n_heads > 1 ? at / v.stride : 0;
    return v.buffer == buffer && at >= 0 && h < v.n_heads && at - h * v.stride < v.head_dim;
}

// Follows which columns of which buffers are valid on which side (bits), as the ops run.
struct border_finder {
    const model_graph& g;
    std::vector<std::vector<uint8_t>> valid;

    explicit border_finder(const model_graph& graph) : g(graph) {
        for (const buffer_info& b : g.buffers) valid.emplace_back((size_t)b.width, 0);
    }
    // True when the view's columns are on `side` or nowhere.
    bool is_there(const view& v, int side) {
        bool there = true;
        for_columns(v, [&](size_t i) {
            there = there && (valid[(size_t)v.buffer][i] & 1 << side || !valid[(size_t)v.buffer][i]);
        });
        return there;
    }
    // True when a column is read, by op i or later, before it is written again.
    bool is_needed(int32_t buffer, int32_t column, size_t i) const {
        for (; i < g.ops.size(); i++) {
            for (const view& v : read_by(g.ops[i]))
                if (has_column(v, buffer, column)) return true;
            if (has_column(written_by(g.ops[i]), buffer, column)) return false;
        }
        return buffer == g.logits_buffer || buffer == g.embedding_buffer;
    }
    // Whole rows cross, before op i. False when that would destroy columns that only `side` has and somebody needs.
    bool move(int32_t buffer, int side, size_t i) {
        std::vector<uint8_t>& columns = valid[(size_t)buffer];
        for (size_t c = 0; c < columns.size(); c++) {
            const bool only_here = columns[c] == 1 << side;
            if (only_here && is_needed(buffer, (int32_t)c, i)) return false;
            columns[c] = only_here || !columns[c] ? 0 : 3;
        }
        return true;
    }
    void wrote(const view& v, int side) {
        for_columns(v, [&](size_t i) { valid[(size_t)v.buffer][i] = (uint8_t)(1 << side); });
    }
};

duet_status split_graph(const model_graph& g, const placement& place, split_model* out, error_text& err) {
    split_model& m = *out;
    m.place = place;
    m.row_side.assign(g.buffers.size(), kHostSide);
    m.state_side.assign(g.states.size(), kHostSide);
    for (model_graph& part : m.part) {
        part = g;
        part.ops.clear();
    }
    const std::vector<uint8_t> sides = choose_sides(g, place, &m.cache_side);
    std::vector<uint8_t> used(g.buffers.size(), 0);
    border_finder borders(g);
    for (size_t i = 0; i < g.ops.size(); i++) {
        const op& o = g.ops[i];
        const int side = sides[i];
        model_graph& part = m.part[side];
        const bool begins = m.runs.empty() || m.runs.back().side != side;
        if (begins) m.runs.push_back({side, (int32_t)part.ops.size(), (int32_t)part.ops.size(), {}});
        part.ops.push_back(o);
        part.ops.back().after_border = begins;
        op_run& run = m.runs.back();
        run.last++;
        for (const view& v : read_by(o)) {
            if (v.buffer < 0) continue;
            used[(size_t)v.buffer] |= (uint8_t)(1 << side);
            if (borders.is_there(v, side)) continue;
            if (!borders.move(v.buffer, side, i))
                return fail(
                    err, DUET_ERR_UNSUPPORTED,
                    "layer %d: buffer %s is written on both devices; choose another number of layers on the GPU",
                    o.layer, g.buffers[(size_t)v.buffer].name.c_str());
            run.moves.push_back(v.buffer);
            m.moved_floats = std::max(m.moved_floats, g.buffers[(size_t)v.buffer].width);
        }
        const view& written = written_by(o);
        if (written.buffer >= 0) {
            used[(size_t)written.buffer] |= (uint8_t)(1 << side);
            borders.wrote(written, side);
            m.row_side[(size_t)written.buffer] = (uint8_t)side;
        }
        if (has_state(o.kind)) m.state_side[(size_t)o.index] = (uint8_t)side;
    }
    for (int side : {kHostSide, kDeviceSide}) {
        model_graph& part = m.part[side];
        for (size_t b = 0; b < used.size(); b++)
            if (!(used[b] & 1 << side)) part.buffers[b].width = 0;
        for (size_t i = 0; i < part.caches.size(); i++)
            if (m.cache_side[i] != side) part.caches[i].n_kv_heads = 0;
        for (size_t i = 0; i < part.states.size(); i++)
            if (m.state_side[i] != side) part.states[i].n_floats = 0;
        for (int32_t* rows : {&part.logits_buffer, &part.embedding_buffer})
            if (*rows >= 0 && m.row_side[(size_t)*rows] != side) *rows = -1;
    }
    return DUET_OK;
}

// ---- the plan -------------------------------------------------------------------------------------------------------

const executor& executor_of(int side) { return side == kHostSide ? kCpuExecutor : kGpuExecutor; }

uint64_t row_bytes(int32_t n_floats) { return round_up((size_t)n_floats, kFloatsPerLine) * 4; }
exec_limits part_limits(const split_model& m, exec_limits limits) {
    limits.place.store = m.device_store;
    limits.place.move_bytes = std::min(kMovePiece, row_bytes(m.moved_floats) * (uint64_t)limits.max_batch);
    return limits;
}

duet_status plan_parts(const split_model& m, const exec_limits& limits, int32_t threads, exec_plan* out,
                       error_text& err) {
    *out = {};
    for (int side : {kHostSide, kDeviceSide})
        if (!m.part[side].ops.empty())
            DUET_TRY(executor_of(side).plan(m.part[side], part_limits(m, limits), threads, out, err));
    out->gpu_layers = m.place.gpu_layers;
    out->cpu_expert_layers = m.place.cpu_expert_layers;
    return DUET_OK;
}

// All placements that the caller allows, from most to least on the device: first experts leave it, then layers.
std::vector<placement> allowed_placements(const model_graph& g, const exec_place& place) {
    const bool is_moe = std::any_of(g.ops.begin(), g.ops.end(), has_experts);
    const int32_t n = g.n_layers, most = place.gpu_layers < 0 ? n : std::min(place.gpu_layers, n);
    const int32_t fixed = is_moe ? std::min(place.cpu_expert_layers, n) : 0;
    std::vector<placement> all{{most, std::max(fixed, 0)}};
    if (is_moe && fixed < 0)
        for (int32_t k = n - most + 1; k <= n && most > 0; k++) all.push_back({most, k});
    if (place.gpu_layers < 0)
        for (int32_t i = n - 1; i >= 0; i--) all.push_back({i, all.back().cpu_expert_layers});
    return all;
}

struct choice {
    std::vector<placement> all;
    size_t at = 0;  // the first that fits
};

// What can be had of the device's free memory: drivers round allocations up, and some freeze a machine that shares its
// last memory.
uint64_t budget_of(const gpu_info& info) {
    return info.memory_bytes ? info.free_bytes - info.free_bytes / (info.is_integrated ? 8 : 32) : UINT64_MAX;
}
uint64_t need_of(const exec_memory& d) {  // all of it may be allocated at once
    return d.weight_bytes + d.cache_bytes + d.state_bytes + d.work_bytes + d.load_bytes;
}
duet_status no_room(const char* device, const exec_plan& plan, uint64_t budget, error_text& err) {
    const exec_memory& d = plan.device;
    return fail(err, DUET_ERR_MEMORY,
                "device %s: %d layers need %llu MB (weights %llu, cache and state %llu, work %llu), %llu MB can be "
                "had: want fewer layers on the GPU or a smaller context",
                device, plan.gpu_layers, (unsigned long long)(need_of(d) >> 20),
                (unsigned long long)(d.weight_bytes >> 20), (unsigned long long)((d.cache_bytes + d.state_bytes) >> 20),
                (unsigned long long)(d.work_bytes >> 20), (unsigned long long)(budget >> 20));
}

// Finds the first placement that fits the device's free memory.
duet_status choose_placement(const model_graph& g, const exec_limits& limits, int32_t n_threads, choice* out,
                             error_text& err) {
    const std::vector<placement>& all = out->all = allowed_placements(g, limits.place);
    if (all.front().gpu_layers == 0) return DUET_OK;
    gpu_info info;
    DUET_TRY(gpu_device_info(limits.place.device, &info, err));
    const uint64_t budget = budget_of(info);
    exec_plan plan;
    auto fits = [&](size_t i, bool* is) -> duet_status {
        split_model m;
        DUET_TRY(split_graph(g, all[i], &m, err));
        DUET_TRY(plan_parts(m, limits, n_threads, &plan, err));
        *is = need_of(plan.device) <= budget || m.part[kDeviceSide].ops.empty();
        return DUET_OK;
    };
    size_t lo = 0, hi = all.size();   // all before lo do not fit; hi fits
    for (bool is = true; lo < hi;) {  // the first by itself: mostly it fits
        const size_t middle = hi == all.size() && lo == 0 ? 0 : (lo + hi) / 2;
        DUET_TRY(fits(middle, &is));
        if (is) hi = middle;
        else lo = middle + 1;
    }
    out->at = lo;
    return lo < all.size() ? DUET_OK : no_room(limits.place.device, plan, budget, err);
}

// A further session of a model whose weights are on the device. Where the chip shares the computer's memory, an
// allocation may succeed and freeze the machine.
duet_status check_further(const split_model& m, const exec_limits& limits, int32_t n_threads, error_text& err) {
    gpu_info info;
    exec_plan plan;
    error_text unused;  // of a device that was lost: who uses it says so
    if (m.part[kDeviceSide].ops.empty() || gpu_device_info(limits.place.device, &info, unused) || !info.is_integrated)
        return DUET_OK;
    DUET_TRY(plan_parts(m, limits, n_threads, &plan, err));
    plan.device.weight_bytes = plan.device.load_bytes = 0;
    return need_of(plan.device) <= budget_of(info) ? DUET_OK : no_room(limits.place.device, plan, budget_of(info), err);
}

// What the model's sessions share, if there are any. The store is locked.
std::shared_ptr<split_model> kept_model(const exec_store& store) {
    return std::static_pointer_cast<split_model>(store.kept);
}

duet_status split_plan(const model_graph& g, const exec_limits& limits, int32_t threads, exec_plan* out,
                       error_text& err) {
    exec_store& store = *limits.place.store;
    const std::lock_guard<std::mutex> lock(store.lock);
    if (auto m = kept_model(store)) return plan_parts(*m, limits, threads, out, err);
    choice c;
    split_model m;
    DUET_TRY(choose_placement(g, limits, threads, &c, err));
    DUET_TRY(split_graph(g, c.all[c.at], &m, err));
    return plan_parts(m, limits, threads, out, err);
}

// ---- one session ----------------------------------------------------------------------------------------------------

struct split_context {
    const model_graph& g;
    std::shared_ptr<split_model> m;
    layout whole, of_side[2];      // cache pages and states of the whole model, and as they are
    void* ctx[2] = {};             // null: the side has no ops
    std::vector<uint8_t> scratch;  // a side's page or state
    bool profiling = false;
    profile_entry moved{"move", 0, 0, 0, 0};
    std::vector<profile_entry> rows;

    split_context(const model_graph& graph, const exec_limits& lim, std::shared_ptr<split_model> model)
        : g(graph), m(std::move(model)), whole(make_layout(graph, lim)),
          of_side{make_layout(m->part[0], lim), make_layout(m->part[1], lim)} {}
    split_context(const split_context&) = delete;
    ~split_context() {
        for (int side : {kHostSide, kDeviceSide})
            if (ctx[side]) executor_of(side).destroy(ctx[side]);
    }
};

// failed: the side that could not be made.
duet_status open_context(const model_graph& g, const exec_limits& limits, const std::shared_ptr<split_model>& m,
                         int32_t n_threads, const char* isa, std::unique_ptr<split_context>* out, split_side* failed,
                         error_text& err) {
    auto c = std::make_unique<split_context>(g, limits, m);
    for (split_side side : {kHostSide, kDeviceSide}) {
        *failed = side;
        if (!m->part[side].ops.empty())
            DUET_TRY(executor_of(side).create(m->part[side], part_limits(*m, limits), n_threads,
                                              side == kHostSide ? isa : limits.place.device, &c->ctx[side], err));
    }
    *out = std::move(c);
    return DUET_OK;
}

// An allocation may fail although the plan fits: memory is shared with others. Then fewer layers are tried, where the
// caller left that open.
duet_status split_create(const model_graph& g, const exec_limits& limits, int32_t n_threads, const char* isa,
                         void** out, error_text& err) {
    exec_store& store = *limits.place.store;
    const std::lock_guard<std::mutex> lock(store.lock);
    std::unique_ptr<split_context> c;
    split_side failed = kDeviceSide;
    if (auto m = kept_model(store)) {
        duet_status st = check_further(*m, limits, n_threads, err);
        if (st == DUET_OK) st = open_context(g, limits, m, n_threads, isa, &c, &failed, err);
        *out = c.release();
        // weights stay where they are while sessions use them; the store and this function hold one each
        if (st != DUET_ERR_MEMORY || failed == kHostSide || m.use_count() > 2) return st;
        store.kept.reset();
    }
    choice choices;
    DUET_TRY(choose_placement(g, limits, n_threads, &choices, err));
    for (size_t i = choices.at;; i++) {  // the last one ends it
        auto m = std::make_shared<split_model>();
        DUET_TRY(split_graph(g, choices.all[i], m.get(), err));
        const duet_status st = open_context(g, limits, m, n_threads, isa, &c, &failed, err);
        if (st == DUET_OK) {
            store.kept = m;
            err.text.clear();
            *out = c.release();
            return DUET_OK;
        }
        if (st != DUET_ERR_MEMORY || failed == kHostSide || i + 1 == choices.all.size()) {
            if (st == DUET_ERR_MEMORY && failed == kDeviceSide)
                err.text = std::string("device ") + limits.place.device + ", " +
                           std::to_string(choices.all[i].gpu_layers) + " layers: " + err.text +
                           "; want fewer layers on the GPU or a smaller context";
            return st;
        }
    }
}

void split_destroy(void* context) { delete (split_context*)context; }

// Brings the rows of a buffer to `side`.
duet_status move_rows(split_context& c, int32_t buffer, int side, const exec_batch& batch, error_text& err) {
    const auto start = std::chrono::steady_clock::now();
    const buffer_info& b = c.g.buffers[(size_t)buffer];
    const int32_t n_rows = b.wanted_rows ? batch.n_wanted : batch.n_tok;
    void* host = kCpuExecutor.wanted_row(c.ctx[kHostSide], buffer, 0);
    DUET_TRY(gpu_move_rows(c.ctx[kDeviceSide], buffer, n_rows, host, side == kDeviceSide, err));
    c.moved.n_calls++;
    c.moved.weight_bytes += row_bytes(b.width) * (uint64_t)n_rows;
    c.moved.time_ns += ns_since(start);
    return DUET_OK;
}

duet_status split_run(void* context, const exec_batch& batch, const std::atomic<int32_t>* cancel, error_text& err) {
    split_context& c = *(split_context*)context;
    exec_batch part = batch;
    for (const op_run& run : c.m->runs) {
        for (int32_t buffer : run.moves) DUET_TRY(move_rows(c, buffer, run.side, batch, err));
        part.first_op = run.first;
        part.last_op = run.last;
        DUET_TRY(executor_of(run.side).run(c.ctx[run.side], part, cancel, err));
    }
    return DUET_OK;
}

float* split_wanted_row(void* context, int32_t buffer, int32_t i) {
    split_context& c = *(split_context*)context;
    const int side = c.m->row_side[(size_t)buffer];
    return executor_of(side).wanted_row(c.ctx[side], buffer, i);
}

duet_status split_best_id(void* context, int32_t i, int32_t* id, error_text& err) {
    split_context& c = *(split_context*)context;
    const int side = c.m->row_side[(size_t)c.g.logits_buffer];
    *id = -1;  // of the CPU: the row is read
    return executor_of(side).best_id ? executor_of(side).best_id(c.ctx[side], i, id, err) : DUET_OK;
}

// ---- pages and states: the same numbers on both sides, each side with its own layers' part --------------------------

// The sides that have something of a page.
template <class F>
duet_status on_sides(split_context& c, int32_t group, F f) {
    for (int side : {kHostSide, kDeviceSide}) {
        const executor& e = executor_of(side);
        if (c.ctx[side] && e.page_bytes(c.ctx[side], group)) DUET_TRY(f(e, c.ctx[side], side));
    }
    return DUET_OK;
}

duet_status split_copy_page(void* context, int32_t group, int32_t from, int32_t to) {
    return on_sides(*(split_context*)context, group,
                    [&](const executor& e, void* ctx, int) { return e.copy_page(ctx, group, from, to); });
}
uint64_t split_page_bytes(void* context, int32_t group) { return ((split_context*)context)->whole.page_size(group); }

// Each layer of a side: where it lies in the whole page and in the side's, and its bytes.
template <class F>
void for_layers(const split_context& c, int32_t group, int side, F f) {
    const layout& own = c.of_side[side];
    for (size_t i = 0; group != kStates && i < c.g.caches.size(); i++) {
        const layer_place& place = c.whole.places[i];
        if (c.g.caches[i].group == group && c.m->cache_side[i] == side)
            f(place.offset, own.places[i].offset, (place.k_bytes + place.v_bytes) * (size_t)c.g.caches[i].n_kv_heads);
    }
    for (size_t i = 0; group == kStates && i < c.g.states.size(); i++)
        if (c.m->state_side[i] == side)
            f(c.whole.state_offset[i] * 4, own.state_offset[i] * 4, (size_t)c.g.states[i].n_floats * 4);
}

duet_status split_read_page(void* context, int32_t group, int32_t page, void* out) {
    split_context& c = *(split_context*)context;
    memset(out, 0, split_page_bytes(context, group));
    return on_sides(c, group, [&](const executor& e, void* ctx, int side) -> duet_status {
        c.scratch.resize(e.page_bytes(ctx, group));
        DUET_TRY(e.read_page(ctx, group, page, c.scratch.data()));
        for_layers(c, group, side, [&](size_t whole, size_t own, size_t n) {
            memcpy((uint8_t*)out + whole, c.scratch.data() + own, n);
        });
        return DUET_OK;
    });
}
duet_status split_write_page(void* context, int32_t group, int32_t page, const void* in) {
    split_context& c = *(split_context*)context;
    return on_sides(c, group, [&](const executor& e, void* ctx, int side) {
        c.scratch.assign(e.page_bytes(ctx, group), 0);
        for_layers(c, group, side, [&](size_t whole, size_t own, size_t n) {
            memcpy(c.scratch.data() + own, (const uint8_t*)in + whole, n);
        });
        return e.write_page(ctx, group, page, c.scratch.data());
    });
}

void split_profile(void* context, bool on) {
    split_context& c = *(split_context*)context;
    c.moved = {"move", 0, 0, 0, 0};
    for (int side : {kHostSide, kDeviceSide})
        if (c.ctx[side]) executor_of(side).profile(c.ctx[side], on);
}

// The device's rows are marked when both sides have some.
const std::vector<profile_entry>* split_profile_rows(void* context) {
    split_context& c = *(split_context*)context;
    c.rows.clear();
    const bool both = c.ctx[0] && c.ctx[1];
    for (int side : {kDeviceSide, kHostSide}) {
        if (!c.ctx[side]) continue;
        for (const profile_entry& e : *executor_of(side).profile_rows(c.ctx[side])) {
            c.rows.push_back(e);
            if (both && side == kDeviceSide) c.rows.back().op = "gpu " + e.op;
        }
    }
    if (c.moved.n_calls) c.rows.push_back(c.moved);
    return &c.rows;
}

}  // namespace

const executor kSplitExecutor = {"split",          split_plan,    split_create,      split_destroy,   split_run,
                                 split_wanted_row, split_best_id, split_page_bytes,  split_copy_page, split_read_page,
                                 split_write_page, split_profile, split_profile_rows};

}  // namespace duet
