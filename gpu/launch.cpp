// gpu/launch.cpp: runs the ops of models/ops.h on a GPU: op -> kernel, grid, shared bytes, through gpu/driver.h.
// Owns: a session's buffers and cache pages. quant/exact.h defines the results. Must not know: families, files,
// vendors. Main path: runtime/session.cpp -> models/executor.h -> [gpu/launch.cpp] -> gpu/driver.h, gpu/kernels.def
#include "context.h"
#include "executor.h"
#include "weights.h"
#include "../quant/exact_ops.h"

#include <set>

namespace duet {

// The buffers whose rows the runtime asks for.
static std::vector<int32_t> rows_read_back(const model_graph& g) {
    std::vector<int32_t> all;
    for (int32_t b : {g.logits_buffer, g.embedding_buffer})
        if (b >= 0 && (all.empty() || all[0] != b)) all.push_back(b);
    return all;
}

gpu_layout make_gpu_layout(const model_graph& g, const exec_limits& limits) {
    gpu_layout sizes;
    sizes.common = make_layout(g, limits);
    const size_t n = round_up((size_t)limits.max_batch * sizes.common.max_in, 256);
    sizes.act_bytes = gpu_context::act_codes_and_scales(n) +
                      gpu_context::act_codes_and_scales(round_up(kSmallBatch * sizes.common.max_in, 256));
    sizes.angle_bytes = round_up(sizes.common.rope_floats * 4, 256);
    sizes.max_chunks = (limits.n_ctx + kAttnChunk - 1) / kAttnChunk;
    const size_t per_group = (size_t)limits.max_batch + (size_t)limits.n_seqs * (size_t)sizes.max_chunks;
    sizes.int_count = (size_t)limits.max_batch * 4 + g.groups.size() * per_group + sequence_ints(limits);
    if (g.both_ways) sizes.int_count += g.groups.size() * (size_t)limits.max_batch;
    // One counter for each token of a tail and each tile, and for each block_x, token and group of split attention.
    sizes.counter_count = kTailCounters;
    const std::vector<gpu_step> steps = plan_gpu_steps(g, true);
    sizes.walk_bytes = (2 * steps.size() + 8) * sizeof(walk_entry);  // The most that was seen: two launches to a step.
    for (const gpu_step& s : steps) {
        const op& o = g.ops[(size_t)s.first];
        if (o.kind != op_kind::matmul || s.activate >= 0) continue;
        const int n_tiles = step_tiles(g, s), n_groups = (o.in.width() + kGroup - 1) / kGroup;
        if (n_tiles > kShareTiles || n_groups < 2 * kShareGroups) continue;
        at_least(sizes.counter_count, (size_t)(kTailCounters + n_tiles));
        at_least(sizes.share_bytes, round_up((size_t)n_tiles * (size_t)n_groups * kRowTile * 4, 256));
    }
    const size_t n_split = (size_t)std::clamp(limits.n_seqs, kSplitTokens, kSmallBatch);  // tokens
    for (const op& o : g.ops)
        if (o.kind == op_kind::attention) {
            at_least(sizes.counter_count, n_split * (size_t)o.in.n_heads * (size_t)(sizes.max_chunks / kMergeStep + 1));
            if (o.alibi != 0.0f) sizes.slope_count += round_up((size_t)o.in.n_heads, 64);
            const size_t per_head = (size_t)sizes.max_chunks * (size_t)(g.caches[(size_t)o.index].v_dim + 2);
            at_least(sizes.partial_bytes, round_up(n_split * (size_t)o.in.n_heads * per_head * 4, 256));
        }
    sizes.int_count = round_up(sizes.int_count + kMoreChunks, 64);  // Blocks without a chunk read its page, too.
    sizes.counter_count = round_up(sizes.counter_count, 64) + kBestInts;
    sizes.pinned_bytes = sizes.input_bytes();
    for (int32_t b : rows_read_back(g))
        sizes.pinned_bytes += sizes.common.row_floats[(size_t)b] * 4 * (size_t)limits.max_wanted;
    add_expert_layout(g, limits, &sizes);
    return sizes;
}

namespace {

constexpr int kMaxGpuBatch = 32768, kMaxGpuContext = (65535 - kMoreChunks) * kAttnChunk;  // limits of a grid's y, z

bool is_cancelled(const std::atomic<int32_t>* cancel) { return cancel && cancel->load(std::memory_order_relaxed) != 0; }

// Waits for the batch for which nobody has waited yet.
duet_status wait_for_batch(gpu_context& c, error_text& err) {
    if (c.is_running) DUET_TRY(c.driver->sync(c.device, err));
    c.is_running = false;
    return DUET_OK;
}

// ---- one function per kind of op ----
duet_status launch_embed(gpu_context& c, const op& o, error_text& err) {
    const weight& w = c.graph.weights[(size_t)o.w];
    const int32_t* ids = o.first_row ? nullptr : o.by_position ? c.pos : c.tokens;
    const embed_args a{c.matrix_of(o.w),       ids,     c.at(o.out),   (int)w.n_in,
                       c.stride(o.out.buffer), o.scale, c.batch->n_tok};
    return launch(c, kernel_of(w.type, kEmbed), grid_of(blocks_of(a.n_in), a.n_tok), a, err);
}

// Where the launch of op i writes its result as int8 too, if the next op takes that.
act_args codes_for_next(gpu_context& c, size_t i, const view& result) {
    if (!wants_quantized(c, (int32_t)i + 1, result)) return {};
    c.quantized = result;
    return c.acts();
}

duet_status launch_norm(gpu_context& c, size_t i, error_text& err) {
    const op& o = c.graph.ops[i];
    norm_args a = norm_of(c, o);
    c.wrote(o.out);
    if (o.out.n_heads == 1) a.act = codes_for_next(c, i, o.out);
    const int n_rows = c.n_rows(o.in), fit = 2 * c.store->info.n_units / std::max(1, o.in.n_heads * n_rows);
    if (o.in.buffer != o.out.buffer) a.n_slices = std::clamp(fit, 1, blocks_of(o.in.head_dim, kRowColumns));
    return launch(c, kernel_norm, grid_of(o.in.n_heads, n_rows, a.n_slices, kSumLanes * 4), a, err);
}

duet_status launch_rope(gpu_context& c, const op& o, error_text& err) {
    const int32_t n_freq = (int32_t)c.graph.ropes[(size_t)o.index].freq.size();
    const rope_args a{c.heads(o.in), c.angles[(size_t)o.index], n_freq, o.rope_dim / 2, o.neox, c.batch->n_tok};
    return launch(c, kernel_rope, grid_of(blocks_of(blocks_of(o.in.n_heads, kHeadsAtOnce) * a.half), a.n_tok), a, err);
}

duet_status launch_kv_append(gpu_context& c, const op& o, error_text& err) {
    const cache_args cache = cache_of(c, o.index);
    const append_args a{cache, c.heads(o.in), cache.v_in_k ? heads_args{} : c.heads(o.in2), c.batch->n_tok, 0};
    const int n = std::max(cache.k_dim, cache.v_in_k ? 0 : cache.v_dim) * blocks_of(cache.n_kv_heads, kHeadsAtOnce);
    return launch(c, kernel_kv_append, grid_of(blocks_of(n), a.n_tok, cache.v_in_k ? 1 : 2), a, err);
}

duet_status launch_elementwise(gpu_context& c, size_t i, error_text& err) {
    const op& o = c.graph.ops[i];
    const elementwise_mode mode = o.kind == op_kind::add         ? kElementwiseAdd
                                  : o.kind == op_kind::scale_cap ? kElementwiseScaleCap
                                                                 : kElementwiseActivate;
    // x * act(the first column of x2): that times x, at each column
    const bool is_turned = o.kind == op_kind::multiply;
    const view factor{o.in2.buffer, o.in2.offset, o.in.width(), 1, 0}, x2 = is_turned ? o.in : o.in2;
    const heads_args in = c.heads(is_turned ? factor : o.in), in2 = x2.buffer >= 0 ? c.heads(x2) : heads_args{};
    const elementwise_args a{
        in,      in2,  c.heads(o.out), codes_for_next(c, i, o.out), o.in.width(), c.n_rows(o.in), mode, (int32_t)o.act,
        o.scale, o.cap};
    return launch(c, kernel_elementwise, grid_of(blocks_of(a.n, kRowColumns), a.n_rows), a, err);
}

duet_status launch_op(gpu_context& c, size_t i, error_text& err) {
    const op& o = c.graph.ops[i];
    if (o.kind != op_kind::norm && o.kind != op_kind::matmul && o.kind != op_kind::attention) c.wrote(written_by(o));
    switch (o.kind) {
    case op_kind::embed: return launch_embed(c, o, err);
    case op_kind::norm: return launch_norm(c, i, err);
    case op_kind::matmul: return launch_matmuls(c, gpu_step{.first = (int32_t)i}, err);
    case op_kind::rope: return launch_rope(c, o, err);
    case op_kind::kv_append: return launch_kv_append(c, o, err);
    case op_kind::attention: return launch_attention(c, gpu_step{.attention = (int32_t)i}, err);
    case op_kind::activate:
    case op_kind::add:
    case op_kind::multiply:
    case op_kind::scale_cap: return launch_elementwise(c, i, err);
    case op_kind::gather: {
        const heads_args from{c.at(o.in), c.stride(o.in.buffer), 0, 1, o.in.width()};
        const rows_args a{from, c.wanted, {}, c.at(o.out), 1, c.stride(o.out.buffer)};
        return launch(c, kernel_rows, grid_of(c.batch->n_wanted, blocks_of(a.x.head_dim, kRowColumns)), a, err);
    }
    case op_kind::route: return launch_route(c, o, err);
    case op_kind::expert_matmul: return launch_expert_matmul(c, i, err);
    case op_kind::expert_sum: return launch_expert_sum(c, o, err);
    case op_kind::conv: return launch_conv(c, o, err);
    case op_kind::delta_net:
    case op_kind::mamba2: return launch_state_steps(c, o, err);
    }
    return DUET_OK;
}

// ---- making a session ----
duet_status send_slopes(gpu_context& c, error_text& err) {
    float* there = (float*)(c.partial + c.layout.partial_bytes);
    std::vector<float> all;
    c.slopes.assign(c.graph.ops.size(), nullptr);
    for (size_t i = 0; i < c.graph.ops.size(); i++) {
        const op& o = c.graph.ops[i];
        if (o.kind != op_kind::attention || o.alibi == 0.0f) continue;
        c.slopes[i] = there + all.size();
        for (int32_t h = 0; h < o.in.n_heads; h++)
            all.push_back(exact_alibi(h, o.in.n_heads, o.alibi, o.both_ways ? 1.0f : o.scale));
        all.resize(round_up(all.size(), 64));
    }
    return put_bytes(c, there, all.data(), all.size() * 4, c.staging, c.layout.input_bytes(), err);
}

duet_status gpu_plan(const model_graph& g, const exec_limits& limits, int32_t, exec_plan* out, error_text& err) {
    if (limits.max_batch > kMaxGpuBatch)
        return fail(err, DUET_ERR_ARG, "max_batch on a GPU: want at most %d, got %d", kMaxGpuBatch, limits.max_batch);
    if (limits.n_ctx > kMaxGpuContext)
        return fail(err, DUET_ERR_ARG, "n_ctx on a GPU: want at most %d, got %d", kMaxGpuContext, limits.n_ctx);
    DUET_TRY(gpu_check(g, limits, err));
    const gpu_layout sizes = make_gpu_layout(g, limits);
    const store_layout store = plan_store(g);
    // Rows cross to the CPU only when the ring of the weights is freed.
    out->device = {sizes.common.cache_bytes,
                   sizes.common.state_floats * 4 * (uint64_t)limits.n_state_slots,
                   sizes.work_bytes(),
                   store.weight_bytes,
                   sizes.pinned_bytes + std::max(kRingPieces * store.piece_bytes, limits.place.move_bytes),
                   store.piece_bytes};
    return DUET_OK;
}

duet_status allocate_session(gpu_context& c, const exec_memory& need, error_text& err) {
    auto alloc = [&](uint64_t n_bytes, uint8_t** out) {
        return n_bytes ? c.driver->alloc(c.device, n_bytes, (void**)out, err) : DUET_OK;
    };
    DUET_TRY(alloc(need.work_bytes, &c.buffers));
    c.act = c.buffers + c.layout.common.buffer_bytes;
    c.inputs = (int32_t*)(c.act + c.layout.act_bytes);
    c.partial = (uint8_t*)c.inputs + c.layout.input_bytes();
    c.counters = (uint32_t*)(c.partial + c.layout.partial_bytes) + c.layout.slope_count;
    c.group_sums = (float*)(c.counters + c.layout.counter_count);
    c.walk_list = (walk_entry*)((uint8_t*)c.group_sums + c.layout.share_bytes);
    c.experts = (uint8_t*)c.walk_list + c.layout.walk_bytes;
    DUET_TRY(alloc(need.cache_bytes, &c.cache));
    DUET_TRY(alloc(need.state_bytes, &c.states));
    DUET_TRY(c.driver->alloc_host(c.device, c.layout.input_bytes(), (void**)&c.staging, err));
    c.host_rows.assign(c.graph.buffers.size(), nullptr);
    for (int32_t b : rows_read_back(c.graph))
        DUET_TRY(c.driver->alloc_host(c.device, c.size_of_rows((size_t)b, c.limits.max_wanted),
                                      (void**)&c.host_rows[(size_t)b], err));
    return DUET_OK;
}

duet_status gpu_create(const model_graph& g, const exec_limits& limits, int32_t n_threads, const char* device,
                       void** out, error_text& err) {
    exec_plan plan;
    DUET_TRY(gpu_plan(g, limits, n_threads, &plan, err));
    auto c = std::make_unique<gpu_context>(g, limits);
    DUET_TRY(open_store(limits.place, device, &c->store, err));
    c->driver = c->store->driver;
    DUET_TRY(find_type_kernels(g, *c->store, err));
    DUET_TRY(c->driver->queue(c->store->device, &c->device, err));
    // Allocations come before the first weight is sent; that for crossing rows after, in the place of the ring.
    DUET_TRY(allocate_session(*c, plan.device, err));
    DUET_TRY(load_store(g, c->store, limits.place, n_threads, err));
    // Where a launch costs little, several blocks take the norm of a row sooner than the last block of a matrix does.
    c->steps = plan_gpu_steps(g, !c->store->info.starts_early && c->store->recording != gpu_recording_use::walk);
    c->steps_of_few = plan_gpu_steps(g, false);
    for (const op& o : g.ops) {
        if (o.kind == op_kind::attention && o.temperature_scale != 0.0f) c->tempered = &o;
        c->row_of_op.push_back(profile_row(c->rows, op_name(o.kind)));
    }
    DUET_TRY(send_slopes(*c, err));
    if (limits.place.move_bytes)
        DUET_TRY(c->driver->alloc_host(c->device, limits.place.move_bytes, (void**)&c->crossing, err));
    *out = c.release();
    return DUET_OK;
}

void gpu_destroy(void* context) { delete (gpu_context*)context; }

// ---- running a batch ----
duet_status launch_argmax(gpu_context& c, int32_t i, error_text& err) {
    const size_t b = (size_t)c.graph.logits_buffer;
    const float* row = (const float*)(c.rows_of(b) + c.size_of_rows(b, i));
    int32_t *best = c.best_ints(), *found = best + 64;
    const int n_vocab = c.graph.n_vocab, n_blocks = std::min(kBestBlocks, n_vocab / (kGpuThreads * 16) + 1);
    const argmax_args a{row, best, (uint32_t*)best + 1, (float*)found, found + kBestBlocks, n_vocab, n_blocks};
    return launch(c, kernel_argmax, grid_of(n_blocks, 1, 1, kGpuThreads * 8 + 4), a, err);
}

duet_status launch_step(gpu_context& c, const gpu_step& s, error_text& err) {
    if (s.kind == gpu_step_kind::attention && c.one_each) return launch_attention(c, s, err);
    int32_t n_done = 0;
    if (s.kind == gpu_step_kind::matvec) {
        gpu_step joined = s;
        if (c.batch->n_tok > kSmallBatch)  // only the matmuls, even where they have few rows
            joined = {.first = s.first, .n_ops = s.n_matmuls, .n_matmuls = s.n_matmuls, .second_type = s.second_type};
        DUET_TRY(launch_matmuls(c, joined, err));
        n_done = joined.n_ops;
    }
    for (int32_t i = n_done; i < s.n_ops; i++) DUET_TRY(launch_op(c, (size_t)(s.first + i), err));
    return DUET_OK;
}

// Adds a step's time to the profile, in the row of its first op (of the attention op where it has one).
duet_status count_step(gpu_context& c, const gpu_step& s, std::chrono::steady_clock::time_point from, error_text& err) {
    DUET_TRY(c.driver->sync(c.device, err));
    profile_entry& e = c.rows[(size_t)c.row_of_op[(size_t)(s.attention >= 0 ? s.attention : s.first)]];
    e.n_calls++;
    e.time_ns += ns_since(from);
    for (int32_t i = s.first; i < s.first + s.n_ops; i++)
        if (c.graph.ops[(size_t)i].kind == op_kind::matmul)
            e.weight_bytes += c.graph.weights[(size_t)c.graph.ops[(size_t)i].w].n_bytes;
    return DUET_OK;
}

// Copies the batch's rows of a buffer to the host's memory.
duet_status read_rows(gpu_context& c, size_t buffer, error_text& err) {
    const uint64_t n_bytes = c.size_of_rows(buffer, c.n_wanted);
    DUET_TRY(c.driver->download(c.device, c.host_rows[buffer], c.rows_of(buffer), n_bytes, err));
    c.is_running = false, c.is_read[buffer] = 1;
    return DUET_OK;
}

duet_status run_batch(gpu_context& c, const std::atomic<int32_t>* cancel, error_text& err) {
    DUET_TRY(wait_for_batch(c, err));
    c.n_wanted = c.batch->n_wanted;
    c.is_read.assign(c.graph.buffers.size(), 0);  // Rows are read when they are asked for.
    const size_t n_tok = (size_t)c.batch->n_tok;
    c.one_each = n_tok <= kSmallBatch && std::set<int32_t>(c.batch->seq, c.batch->seq + n_tok).size() == n_tok;
    if (c.batch->first_op == 0) fill_batch(c);
    const bool is_last = c.batch->last_op < 0 || (size_t)c.batch->last_op == c.graph.ops.size();
    c.finds_best = is_last && c.batch->rows_later && c.n_wanted == 1 && c.graph.logits_buffer >= 0;
    c.is_running = true;  // also after a launch that failed
    DUET_TRY(!c.profiling && c.one_each && !is_cancelled(cancel) ? run_recorded(c, err) : launch_batch(c, cancel, err));
    for (size_t b = 0; is_last && !c.batch->rows_later && b < c.host_rows.size() && !is_cancelled(cancel); b++)
        if (c.host_rows[b] && c.n_wanted) DUET_TRY(read_rows(c, b, err));
    // A greedy generation asks for the best id next, and that is the token's one wait.
    if (!is_last || !c.batch->rows_later || c.profiling || is_cancelled(cancel)) DUET_TRY(wait_for_batch(c, err));
    return is_cancelled(cancel) ? fail(err, DUET_ERR_CANCELLED, "the batch was cancelled") : DUET_OK;
}

// Runs calls to the driver, and remembers when the device is lost.
template <class F>
duet_status on_device(gpu_context& c, error_text& err, F f) {
    DUET_TRY(c.store->check(err));
    c.kept = nullptr;  // Memory may have run out while a walk was made.
    const duet_status st = f();
    if (st == DUET_ERR_DEVICE) c.store->lost = true;
    return st;
}

duet_status gpu_run(void* context, const exec_batch& batch, const std::atomic<int32_t>* cancel, error_text& err) {
    gpu_context& c = *(gpu_context*)context;
    c.batch = &batch;
    return on_device(c, err, [&] { return run_batch(c, cancel, err); });
}

float* gpu_wanted_row(void* context, int32_t buffer, int32_t i) {
    gpu_context& c = *(gpu_context*)context;
    const size_t b = (size_t)buffer;
    error_text err;
    if (!c.is_read[b] && on_device(c, err, [&] { return read_rows(c, b, err); }) != DUET_OK) return nullptr;
    return (float*)(c.host_rows[b] + c.size_of_rows(b, i));
}

duet_status gpu_best_id(void* context, int32_t i, int32_t* id, error_text& err) {
    gpu_context& c = *(gpu_context*)context;
    return on_device(c, err, [&]() -> duet_status {
        if (!c.finds_best) DUET_TRY(launch_argmax(c, i, err));
        DUET_TRY(c.driver->download(c.device, c.staging, c.best_ints(), 4, err));
        c.is_running = false;
        memcpy(id, c.staging, 4);
        return DUET_OK;
    });
}

// ---- pages and states ----
uint64_t gpu_page_bytes(void* context, int32_t g) { return ((gpu_context*)context)->layout.common.page_size(g); }

// Runs f(context, page, message). The executor's interface has no place for these messages.
template <class F>
duet_status on_page(void* context, int32_t group, int32_t page, F f) {
    gpu_context& c = *(gpu_context*)context;
    error_text err;
    return on_device(c, err, [&] { return f(c, gpu_page(c, group, page), err); });
}

duet_status gpu_copy_page(void* context, int32_t group, int32_t from, int32_t to) {
    return on_page(context, group, to, [&](gpu_context& c, std::span<uint8_t> page, error_text& err) {
        return copy_words(c, page.data(), from < 0 ? nullptr : gpu_page(c, group, from).data(), page.size(), err);
    });
}
duet_status gpu_read_page(void* context, int32_t group, int32_t page, void* out) {
    return on_page(context, group, page, [&](gpu_context& c, std::span<uint8_t> from, error_text& err) {
        return c.driver->download(c.device, out, from.data(), from.size(), err);
    });
}
duet_status gpu_write_page(void* context, int32_t group, int32_t page, const void* in) {
    return on_page(context, group, page, [&](gpu_context& c, std::span<uint8_t> to, error_text& err) {
        return put_bytes(c, to.data(), in, to.size(), c.staging, c.layout.input_bytes(), err);
    });
}

void gpu_profile(void* context, bool on) {
    gpu_context& c = *(gpu_context*)context;
    c.profiling = on;
    for (profile_entry& e : c.rows) e = {e.op, 0, 0, 0, 0};
}
const std::vector<profile_entry>* gpu_profile_rows(void* context) { return &((gpu_context*)context)->rows; }

}  // namespace

duet_status copy_words(gpu_context& c, void* to, const void* from, uint64_t n_bytes, error_text& err) {
    const int n_blocks = (int)std::clamp<uint64_t>(n_bytes / 4 / kGpuThreads, 1, 512);
    const words_args a{(const uint32_t*)from, (uint32_t*)to, n_bytes / 4, n_blocks, 0};
    return launch(c, kernel_words, grid_of(n_blocks), a, err);
}

duet_status put_bytes(gpu_context& c, void* to, const void* from, uint64_t n_bytes, void* pinned, uint64_t most,
                      error_text& err) {
    DUET_TRY(wait_for_batch(c, err));
    for (uint64_t at = 0, n; at < n_bytes; at += n) {
        n = std::min(most, n_bytes - at);
        memcpy(pinned, (const uint8_t*)from + at, n);
        DUET_TRY(copy_words(c, (uint8_t*)to + at, pinned, n, err));
        DUET_TRY(c.driver->sync(c.device, err));
    }
    return DUET_OK;
}

std::span<uint8_t> gpu_page(const gpu_context& c, int32_t group, int32_t page) {
    return {c.layout.common.page(c.cache, c.states, group, page), c.layout.common.page_size(group)};
}

void fill_batch(gpu_context& c) {
    const exec_batch& b = *c.batch;
    int32_t* at = c.staging;
    auto on_device = [&] { return c.inputs + (at - c.staging); };
    auto put = [&](const int32_t* values, int n) {
        int32_t* there = on_device();
        at = std::copy_n(values, n, at);
        return there;
    };
    c.angles.clear();
    for (const rope_table& table : c.graph.ropes) {
        const std::vector<double>& freq = table.of_context(c.limits.n_ctx);
        const size_t n = freq.size();
        c.angles.push_back((const float*)on_device());
        for (int i = 0; i < b.n_tok; i++, at += 2 * n)
            for (size_t j = 0; j < n; j++)
                exact_rope_angle(b.pos[i], freq[j], table.magnitude, (float*)at + j, (float*)at + n + j);
    }
    c.tokens = put(b.token, b.n_tok), c.pos = put(b.pos, b.n_tok);
    c.wanted = put(b.wanted, b.n_wanted);
    c.q_factor = on_device();
    for (int i = 0; c.tempered && i < b.n_tok; i++)
        *at++ = (int32_t)bits_of(
            exact_temperature(b.pos[i], c.tempered->temperature_scale, c.tempered->temperature_length));
    c.until.assign(c.graph.groups.size(), c.pos);
    for (size_t g = 0; c.graph.both_ways && g < c.until.size(); g++) {
        const int32_t window = c.graph.groups[g].window;
        c.until[g] = on_device();
        for (int i = 0; i < b.n_tok; i++) *at++ = std::min(b.end[i] - 1, window ? b.pos[i] + window - 1 : b.end[i] - 1);
    }
    if (!c.graph.states.empty()) at += put_sequences(c, at, on_device());
    std::vector<int32_t> last((size_t)c.limits.n_seqs, -1), start((size_t)c.limits.n_seqs, 0);
    c.n_chunks = 1;
    for (int i = 0; i < b.n_tok; i++) {
        const int32_t chunk = b.pos[i] / kAttnChunk;
        last[(size_t)b.seq[i]] = std::max(last[(size_t)b.seq[i]], chunk);
        while (c.n_chunks <= chunk)
            c.n_chunks = std::min(c.n_chunks * 2, c.layout.max_chunks);  // Blocks without a chunk end at once.
    }
    // The parts whose size changes come last, so that all others are where a recording expects them.
    int32_t* starts = at;
    c.page_start.clear();
    for (size_t g = 0; g < c.graph.groups.size(); g++, at += b.n_tok) c.page_start.push_back(on_device());
    const uint64_t most = (uint64_t)(at - c.staging) + c.graph.groups.size() * (size_t)(b.n_tok * c.n_chunks);
    for (size_t g = 0; g < c.graph.groups.size(); g++) {
        for (size_t q = 0; q < last.size(); q++)
            if (last[q] >= 0) start[q] = (int32_t)(put((*b.pages)[g][q], last[q] + 1) - c.inputs);
        for (int i = 0; i < b.n_tok; i++) *starts++ = start[(size_t)b.seq[i]];
    }
    c.n_words = c.one_each ? most : (uint64_t)(at - c.staging);
}

duet_status launch_batch(gpu_context& c, const std::atomic<int32_t>* cancel, error_text& err) {
    c.lists[0] = c.lists[1] = {};
    c.quantized = view{};
    c.act_now = 0;
    DUET_TRY(copy_words(c, c.inputs, c.staging, c.n_words * 4, err));
    int n_steps = 0;
    for (const gpu_step& s : c.batch->n_tok == 1 ? c.steps : c.steps_of_few) {
        if (s.first < c.batch->first_op || (c.batch->last_op >= 0 && s.first >= c.batch->last_op)) continue;
        if (is_cancelled(cancel)) break;
        const auto start = std::chrono::steady_clock::now();
        DUET_TRY(launch_step(c, s, err));
        if (c.profiling) DUET_TRY(count_step(c, s, start, err));
        // Four layers or so of a prompt, so that one that is cancelled ends soon.
        if (c.batch->n_tok > kSmallBatch && ++n_steps % 32 == 0) DUET_TRY(c.driver->sync(c.device, err));
    }
    return c.finds_best && !is_cancelled(cancel) ? launch_argmax(c, 0, err) : DUET_OK;
}

duet_status gpu_check(const model_graph& g, const exec_limits& limits, error_text& err) {
    const op* tempered = nullptr;
    for (const op& o : g.ops) {
        if (o.kind == op_kind::attention && o.temperature_scale != 0.0f) {
            if (tempered && (tempered->temperature_scale != o.temperature_scale ||
                             tempered->temperature_length != o.temperature_length))
                return fail(err, DUET_ERR_UNSUPPORTED, "attention temperatures that differ by layer: no GPU code");
            tempered = &o;
        }
        for (weight_id w : {has_matrix(o.kind) ? -1 : o.w, o.b, o.w2})
            if (w >= 0 && g.weights[(size_t)w].type != type_id::f32)
                return fail(err, DUET_ERR_UNSUPPORTED, "tensor %s: want F32", g.weights[(size_t)w].name.c_str());
        DUET_TRY(check_expert_op(g, limits, o, err));
        DUET_TRY(check_state_op(g, o, err));
        if (o.kind != op_kind::attention) continue;
        const cache_layer& l = g.caches[(size_t)o.index];
        const int d = l.v_dim, most = d % 8 ? 256 : 512;  // some positions fit a part (args.h)
        if (d % 2 || (d > most && !l.v_in_k))
            return fail(err, DUET_ERR_UNSUPPORTED, "values of %d: want an even number, at most %d, on a GPU", d, most);
        if (2 * (attn_stride(l.k_dim) + attn_stride(d) + kAttnPart) + kRowWords > 12 << 10)  // 48 kB (launch_attention)
            return fail(err, DUET_ERR_UNSUPPORTED, "keys of %d, values of %d: too long for a GPU", l.k_dim, d);
    }
    return DUET_OK;
}

duet_status gpu_move_rows(void* context, int32_t buffer, int32_t n_rows, void* host, bool to_device, error_text& err) {
    gpu_context& c = *(gpu_context*)context;
    uint8_t* there = c.rows_of((size_t)buffer);
    const uint64_t n_bytes = c.size_of_rows((size_t)buffer, n_rows);
    return on_device(c, err, [&]() -> duet_status {
        if (to_device) return put_bytes(c, there, host, n_bytes, c.crossing, c.limits.place.move_bytes, err);
        for (uint64_t at = 0, n; at < n_bytes; at += n) {
            n = std::min(c.limits.place.move_bytes, n_bytes - at);
            DUET_TRY(c.driver->download(c.device, c.crossing, there + at, n, err));
            memcpy((uint8_t*)host + at, c.crossing, n);
        }
        return DUET_OK;
    });
}

const executor kGpuExecutor = {"gpu",          gpu_plan,    gpu_create,      gpu_destroy,   gpu_run,
                               gpu_wanted_row, gpu_best_id, gpu_page_bytes,  gpu_copy_page, gpu_read_page,
                               gpu_write_page, gpu_profile, gpu_profile_rows};

}  // namespace duet
