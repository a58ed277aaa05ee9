// gpu/context.h: what the files of the GPU executor share: the kernels, buffers, cache pages and states of one session
// on a device. Must not know: families, files, vendors.
// Main path: gpu/launch.cpp -> [gpu/context.h] -> gpu/driver.h, gpu/store.h
#pragma once
#include "args.h"
#include "store.h"
#include "../models/layout.h"
#include "../quant/exact.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

namespace duet {

enum class gpu_step_kind : uint8_t { single, matvec, attention };

// A step: ops first .. first + n_ops - 1, which run as one launch (gpu/steps.cpp). Others are indices of ops; -1: none.
struct gpu_step {
    gpu_step_kind kind = gpu_step_kind::single;
    int32_t first = 0, n_ops = 1;
    // A matvec step has up to three matmuls of one input, or gate (and up) with their activation; then perhaps a norm.
    int32_t n_matmuls = 1, activate = -1, norm = -1;
    bool halves = false;       // Gate and up are the halves of one matrix.
    int32_t second_type = -1;  // format of the later matmuls where it differs from the first's
    // An attention step has the norms of heads and the rope of queries and keys, the append, and the attention.
    int32_t q_norm = -1, k_norm = -1, q_rope = -1, k_rope = -1, append = -1, attention = -1;
};
// with_norms: norms join matrices. One block makes them one after another, so those of several tokens run alone.
std::vector<gpu_step> plan_gpu_steps(const model_graph& g, bool with_norms);
bool same_columns(const view& a, const view& b);

constexpr int kSplitTokens = 4;   // most tokens for which attention is always split over chunks
constexpr int kMoreChunks = 272;  // most blocks of a head that only bring weights ahead, in the grid's z
constexpr int kSmallBatch = 16;   // most tokens for which matrix-vector kernels serve and ops run as steps
// Where a matrix times one token has so few tiles that half of the card would idle, blocks share the groups of a tile.
constexpr int kMostShares = 4;     // most blocks of a tile
constexpr int kShareGroups = 8;    // least groups of a block: one for each segment
constexpr int kShareTiles = 304;   // most tiles of such a product: the compute units of an MI300X
constexpr int kTailCounters = 64;  // the first counters: of tails; those of tiles follow
constexpr int kBestBlocks = 64;    // most blocks that look for the best id
// The last counters: the best id and its counter of blocks, the counter of a walk, then what each block has found.
constexpr int kBestInts = 64 + 2 * kBestBlocks, kBestWalk = 32;
constexpr size_t kMostRecordings = 32;  // most recordings of a session: 8 slots and three lengths of context are 24

// Sizes of a session's memory on the device, beside the layout of buffers and pages that all executors share.
struct gpu_layout {
    layout common;  // what all executors share
    size_t act_bytes = 0, angle_bytes = 0, int_count = 0, partial_bytes = 0, slope_count = 0, counter_count = 0,
           list_pairs = 0, list_bytes = 0, gather_bytes = 0, share_bytes = 0, walk_bytes = 0;
    size_t pinned_bytes = 0;  // the computer's memory: batches on their way to the device, rows on their way back
    int max_chunks = 0;
    size_t input_bytes() const { return angle_bytes + int_count * 4; }
    size_t work_bytes() const {
        return common.buffer_bytes + act_bytes + input_bytes() + partial_bytes + (slope_count + counter_count) * 4 +
               2 * list_bytes + gather_bytes + share_bytes + walk_bytes;
    }
};

// The shape of a small batch: what its launches depend on beside the contents of device memory.
struct batch_shape {
    int32_t first_op = 0, last_op = -1, n_tok = 0, n_wanted = 0, n_chunks = 0;
    bool finds_best = false;
    bool operator==(const batch_shape&) const = default;
};
struct gpu_recording {
    batch_shape shape;
    void* recording = nullptr;
    void* walk = nullptr;               // not null: the kernel that does the launches of `list` instead
    std::vector<walk_entry> list = {};  // of kernels (enum gpu_kernel), or of what the walk calls them
    uint32_t shared_bytes = 0;          // the most of the list
    uint64_t last_use = 0;
    int32_t n_unproven = 0;  // so many of the next plays are computed again without the recording
};

gpu_layout make_gpu_layout(const model_graph& g, const exec_limits& limits);  // gpu/launch.cpp
inline void at_least(size_t& size, size_t least) { size = std::max(size, least); }

// Key of a cached token-by-expert order (gpu/experts.cuh): valid for this router output and tile size.
struct expert_list {
    const float* ids = nullptr;
    int32_t n_mats = 0, n_used = 0, rows = 0;  // rows == 0: there is none
    bool has_order = false;                    // false: row k is choice k
};

struct gpu_context {
    const model_graph& graph;
    exec_limits limits;
    const gpu_driver* driver = nullptr;
    void* device = nullptr;  // This session's queue on the store's device.
    std::shared_ptr<gpu_store> store;
    gpu_layout layout;
    uint8_t *buffers = nullptr, *act = nullptr, *partial = nullptr;
    std::vector<float*> slopes;  // per op: ALiBi's slopes of the heads, on the device; null: none
    uint8_t *cache = nullptr, *states = nullptr;
    // What a batch brings: rope angles, then integers, without gaps; pinned, and on the device.
    int32_t *staging = nullptr, *inputs = nullptr;
    uint64_t n_words = 0;              // of the batch, and of any other one of its shape
    bool is_running = false;           // Nobody has waited for the batch yet: its launches may still read the staging.
    std::vector<const float*> angles;  // per rope table, on the device
    uint8_t* crossing = nullptr;       // pinned: rows on their way to or from another executor
    std::vector<uint8_t*> host_rows;   // pinned memory for each buffer that is read back
    std::vector<uint8_t> is_read;      // per buffer: this batch's rows have arrived
    int32_t n_wanted = 0;
    std::vector<gpu_step> steps, steps_of_few;  // of one token, and of more, without norms
    uint32_t* counters = nullptr;               // blocks that are done; zeros between launches
    float* group_sums = nullptr;                // of blocks that share a tile
    int act_now = 0;                            // which of the two act buffers is in use
    view quantized;           // These columns are in acts() as int8. A launch that reads them may write next_acts().
    int32_t n_chunks = 0;     // chunks of the batch's longest sequence, rounded up
    bool one_each = false;    // No token of the batch sees another.
    bool finds_best = false;  // The batch ends with the search for the best id, for which a greedy generation will ask.
    batch_shape last_shape;
    bool is_again = false;  // The batch has the shape of the last one.
    std::vector<gpu_recording> recordings;
    uint64_t n_plays = 0, n_failed = 0;          // of recordings
    bool no_recording = false, no_walk = false;  // One could not be made in this session.
    gpu_recording* kept = nullptr;               // not null: launches are kept in its list, not run
    walk_entry* walk_list = nullptr;             // on the device: the list of walk_shape
    batch_shape walk_shape;
    std::vector<int32_t*> until;       // per group, on the device: until of attention_args
    std::vector<int32_t*> page_start;  // per group, on the device: page_start of cache_args, a place in `ints`
    int32_t *tokens = nullptr, *pos = nullptr, *wanted = nullptr, *q_factor = nullptr;
    const op* tempered = nullptr;  // one attention op for the temperature, which all attention ops share
    uint8_t* experts = nullptr;    // two lists, then gathered inputs
    expert_list lists[2];          // [0]: order for the latest route; [1]: order for the ops without one
    seqs_args seqs{};              // the batch's sequences on the device, for recurrent states
    int n_active = 0;              // sequences in seqs
    bool profiling = false;
    std::vector<profile_entry> rows;
    std::vector<int> row_of_op;
    const exec_batch* batch = nullptr;

    gpu_context(const model_graph& g, const exec_limits& lim)
        : graph(g), limits(lim), layout(make_gpu_layout(g, lim)) {}
    gpu_context(const gpu_context&) = delete;
    ~gpu_context() {
        if (!device) return;
        error_text unused;
        if (is_running) driver->sync(device, unused);
        for (const gpu_recording& r : recordings) driver->free_recording(device, r.recording);
        for (uint8_t* p : host_rows) driver->free_host(device, p);
        driver->free_host(device, staging);
        driver->free_host(device, crossing);
        for (uint8_t* p : {buffers, cache, states}) driver->free(device, p);
        driver->close(device);
    }

    int n_rows(const view& v) const {
        return graph.buffers[(size_t)v.buffer].wanted_rows ? batch->n_wanted : batch->n_tok;
    }
    int stride(int32_t buffer) const { return (int)layout.common.row_floats[(size_t)buffer]; }
    uint64_t size_of_rows(size_t buffer, int n) const { return layout.common.row_floats[buffer] * 4 * (uint64_t)n; }
    uint8_t* rows_of(size_t buffer) const { return buffers + layout.common.buffer_offset[buffer]; }
    float* at(const view& v) const { return (float*)rows_of((size_t)v.buffer) + v.offset; }
    int32_t* best_ints() const { return (int32_t*)counters + layout.counter_count - kBestInts; }
    heads_args heads(const view& v) const { return {at(v), stride(v.buffer), v.stride, v.n_heads, v.head_dim}; }
    const float* vector_of(weight_id w) const { return w < 0 ? nullptr : (const float*)store->weights[(size_t)w]; }
    const uint8_t* matrix_of(weight_id w) const { return (const uint8_t*)store->weights[(size_t)w]; }

    // Quantized activations: codes, then scales, of max_batch rows; behind them the same for another small batch.
    act_args acts() const {
        const size_t n_in = layout.common.max_in, first = round_up((size_t)limits.max_batch * n_in, 256);
        int8_t* q = (int8_t*)act + (act_now ? act_codes_and_scales(first) : 0);
        return {q, (act_scale*)(q + (act_now ? round_up(kSmallBatch * n_in, 256) : first)), (int32_t)n_in, 0};
    }
    static size_t act_codes_and_scales(size_t n) { return n + n / kBlock * sizeof(act_scale); }
    // Where a launch that may read acts() writes `result` as int8: the other place, which is acts() from now on.
    act_args next_acts(const view& result) {
        act_now ^= 1;
        quantized = result;
        return acts();
    }
    void wrote(const view& v) {
        if (v.buffer == quantized.buffer) quantized = view{};
    }
};

// Copies n_bytes (a multiple of 4) from device memory or pinned memory, or zeros where `from` is null: by a kernel,
// because a recording may see old data after a driver's copy.
duet_status copy_words(gpu_context& c, void* to, const void* from, uint64_t n_bytes, error_text& err);
// The same from any memory, through pinned memory of `most` bytes. Waits.
duet_status put_bytes(gpu_context& c, void* to, const void* from, uint64_t n_bytes, void* pinned, uint64_t most,
                      error_text& err);
std::span<uint8_t> gpu_page(const gpu_context& c, int32_t group, int32_t page);
// Writes the batch to the staging memory, and where its parts will be on the device to the context.
void fill_batch(gpu_context& c);
// Launches the copy of the batch to the device, the steps in its range of ops, and the search where finds_best says so.
duet_status launch_batch(gpu_context& c, const std::atomic<int32_t>* cancel, error_text& err);
// gpu/recordings.cpp: runs a batch by a recording where that is possible.
duet_status run_recorded(gpu_context& c, error_text& err);

// gpu/launch_steps.cpp
// Tiles of 32 rows of a step's matrices, of one of them where gate and up run together.
int step_tiles(const model_graph& g, const gpu_step& s);
cache_args cache_of(const gpu_context& c, int32_t index);
norm_args norm_of(const gpu_context& c, const op& o);
// Quantizes a matmul's input to c.acts(), if it is not there yet.
duet_status quantize_input(gpu_context& c, const op& matmul, error_text& err);
// Says whether op i is a matmul that takes `result` as int8.
bool wants_quantized(const gpu_context& c, int32_t i, const view& result);
// The arguments of n matmuls of one input from op `first` on, whose inputs are n_tok rows one after another.
matrix_args matrices_of(const gpu_context& c, int32_t first, int32_t n, int n_tok, int rows_per_block);
// The matmuls of a step, and what it joins with them where the batch is small.
duet_status launch_matmuls(gpu_context& c, const gpu_step& s, error_text& err);
duet_status launch_attention(gpu_context& c, const gpu_step& s, error_text& err);

inline int blocks_of(int n, int per_block = kGpuThreads) { return (n + per_block - 1) / per_block; }
inline gpu_grid grid_of(int x, int y = 1, int z = 1, int shared_bytes = 0, int threads = kGpuThreads) {
    return {(uint32_t)x, (uint32_t)y, (uint32_t)z, (uint32_t)threads, (uint32_t)shared_bytes};
}

template <class Args>
duet_status launch(gpu_context& c, int32_t kernel, const gpu_grid& grid, const Args& args, error_text& err) {
    static_assert(std::is_trivially_copyable_v<Args> && sizeof(Args) <= kWalkArgBytes);
    if (grid.x == 0 || grid.y == 0) return DUET_OK;
    if (c.kept) {
        walk_entry& e = c.kept->list.emplace_back(walk_entry{kernel, grid.x, grid.y, grid.z, {}});
        memcpy(e.args, &args, sizeof args);
        c.kept->shared_bytes = std::max(c.kept->shared_bytes, grid.shared_bytes);
        return DUET_OK;
    }
    return c.driver->launch(c.device, c.store->kernels[kernel], grid, &args, sizeof args, err);
}

// Launches a matmul by the kernel for tiles of at most per_tile tokens: 1, 8 or kMatmulToks. In gpu/launch_steps.cpp.
duet_status launch_tiles(gpu_context& c, int32_t type, matrix_args& a, int per_tile, int n_tiles, error_text& err);

// gpu/launch_experts.cpp
void add_expert_layout(const model_graph& g, const exec_limits& limits, gpu_layout* sizes);
duet_status check_expert_op(const model_graph& g, const exec_limits& limits, const op& o, error_text& err);
duet_status launch_route(gpu_context& c, const op& o, error_text& err);
duet_status launch_expert_matmul(gpu_context& c, size_t i, error_text& err);
duet_status launch_expert_sum(gpu_context& c, const op& o, error_text& err);
// gpu/launch_states.cpp
size_t sequence_ints(const exec_limits& limits);
int put_sequences(gpu_context& c, int32_t* at, const int32_t* on_device);
duet_status check_state_op(const model_graph& g, const op& o, error_text& err);
duet_status launch_conv(gpu_context& c, const op& o, error_text& err);
duet_status launch_state_steps(gpu_context& c, const op& o, error_text& err);

}  // namespace duet
