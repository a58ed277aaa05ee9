// models/executor.h: the seam between the runtime and the executors: a batch, limits, a memory plan, and the functions
// that every executor has. Must not know: architectures, drivers, instruction sets.
// Main path: runtime/session.cpp -> [models/executor.h] -> cpu/ops.cpp or gpu/launch.cpp
#pragma once
#include "ops.h"
#include "status.h"

#include <atomic>
#include <chrono>
#include <mutex>

namespace duet {

// A batch as an executor sees it. A page holds kAttnChunk positions of all layers of one cache group. Position p of
// sequence s has page pages[g][s][p / kAttnChunk] in group g. The runtime has checked all tables.
struct exec_batch {
    int32_t n_tok = 0;
    const int32_t* token = nullptr;
    const int32_t* pos = nullptr;
    const int32_t* seq = nullptr;
    int32_t n_wanted = 0;
    const int32_t* wanted = nullptr;  // row numbers of the tokens whose logits are wanted
    const std::vector<std::vector<const int32_t*>>* pages = nullptr;
    const int32_t* state_slot = nullptr;  // state slot of each sequence
    const int32_t* end = nullptr;         // of each token the length of its sequence behind the batch
    bool rows_later = false;              // The wanted rows may stay on the device until wanted_row asks for them.
    // The ops to run are [first_op, last_op); last_op -1 means to the end. A batch may run in several parts, in order;
    // its other fields do not change between the parts.
    int32_t first_op = 0, last_op = -1;
};

// What an executor keeps for all sessions of one model: the weights on a device, and the list of layers that are there.
// The model owns the store, so two models never share a lock.
struct exec_store {
    std::mutex lock;  // held while the store is read or filled, so also while weights are sent to a device
    std::shared_ptr<void> kept;
};

// Where a session runs, and who is told how loading goes on.
struct exec_place {
    const char* device = nullptr;         // "emu32", "cuda:1"
    int32_t gpu_layers = -1;              // layers on the device; -1: as many as fit
    int32_t cpu_expert_layers = -1;       // layers whose experts stay on the CPU; -1: as few as possible
    duet_progress_fn progress = nullptr;  // called while weights are loaded
    void* progress_user = nullptr;
    uint64_t move_bytes = 0;            // size of the pinned memory for rows that cross to and from another executor
    std::shared_ptr<exec_store> store;  // null: a session keeps everything for itself
    int32_t recording = -1;             // gpu_recording_use; -1: as the environment or the driver says
    duet_log_fn log = nullptr;          // told when recordings are given up
    void* log_user = nullptr;
};

struct exec_limits {
    exec_place place;
    int32_t n_ctx = 0, max_batch = 0, n_seqs = 0, n_state_slots = 0;
    int32_t max_wanted = 0;          // rows of buffers with wanted_rows
    int32_t cache_type = 0;          // DUET_CACHE_...
    bool fast = false;               // Use mode fast where there is one (docs/numerics.md).
    std::vector<int32_t> n_pages;    // of each cache group
    duet_input_fn inputs = nullptr;  // called with every input row of matmuls (CPU only)
    void* inputs_user = nullptr;
};

struct exec_memory {
    uint64_t cache_bytes = 0, state_bytes = 0, work_bytes = 0;
    uint64_t weight_bytes = 0;  // memory allocated for weights; 0 where they are used as mapped
    uint64_t pinned_bytes = 0;  // the computer's pinned memory for copies to and from a device, at its largest
    uint64_t load_bytes = 0;    // extra memory needed only while weights are loaded
};
struct exec_plan {
    exec_memory host, device;
    int32_t gpu_layers = 0, cpu_expert_layers = 0;  // as in exec_place, but decided
};

constexpr int32_t kStates = -1;

struct profile_entry {
    std::string op;
    uint64_t n_calls = 0, time_ns = 0, weight_bytes = 0, n_mac = 0;
};

// Returns the index of the row with that name, and adds the row if it is missing.
inline int profile_row(std::vector<profile_entry>& rows, const std::string& name) {
    for (size_t i = 0; i < rows.size(); i++)
        if (rows[i].op == name) return (int)i;
    rows.push_back({name, 0, 0, 0, 0});
    return (int)rows.size() - 1;
}

// An executor: a table of functions over a context of its own. A context belongs to one session. The graph must outlive
// the context.
struct executor {
    const char* name;
    // Says exactly how many bytes create() will allocate.
    duet_status (*plan)(const model_graph& graph, const exec_limits& limits, int32_t n_threads, exec_plan* out,
                        error_text& err);
    duet_status (*create)(const model_graph& graph, const exec_limits& limits, int32_t n_threads, const char* isa,
                          void** out, error_text& err);
    void (*destroy)(void* context);
    // Runs all ops. It polls `cancel` between pieces of work; after DUET_ERR_CANCELLED the cache's contents for these
    // positions are undefined.
    duet_status (*run)(void* context, const exec_batch& batch, const std::atomic<int32_t>* cancel, error_text& err);
    // Returns row i of the wanted rows of a buffer (logits, embedding), in host memory until the next run. Returns null
    // when reading the row failed.
    float* (*wanted_row)(void* context, int32_t buffer, int32_t i);
    // Sets *id to the id of the largest logit of row i, the lowest id among equals. Sets -1 when a logit is NaN or
    // +inf, or none is above -inf. The pointer best_id is null when it would cost as much as reading the whole row.
    duet_status (*best_id)(void* context, int32_t i, int32_t* id, error_text& err);
    // A sequence holds pages of cache groups. For "group" kStates a page is the recurrent state of one slot.
    uint64_t (*page_bytes)(void* context, int32_t group);
    duet_status (*copy_page)(void* context, int32_t group, int32_t from, int32_t to);  // from -1: fills with zeros
    // Reads or writes a page's bytes, in a form that does not depend on the executor (docs/numerics.md).
    duet_status (*read_page)(void* context, int32_t group, int32_t page, void* out);
    duet_status (*write_page)(void* context, int32_t group, int32_t page, const void* in);
    void (*profile)(void* context, bool on);  // clears the profile and switches it on or off
    const std::vector<profile_entry>* (*profile_rows)(void* context);
};

// Nanoseconds since `start`, by the clock of the profiles.
inline uint64_t ns_since(std::chrono::steady_clock::time_point start) {
    return (uint64_t)((std::chrono::steady_clock::now() - start) / std::chrono::nanoseconds(1));
}

}  // namespace duet
