// models/ops.h: the seam between families and executors: a model as a flat list of ops over activation buffers, and what an executor
// is given to run it. Owns: the meaning of each op (results: quant/exact.h). Must not know: architectures, devices, file formats.
// Main path: models/<family>.cpp -> [models/ops.h] -> quant/cpu_ops.cpp or gpu/launch.cpp
#pragma once
#include "status.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace duet {

// ---- what ops work on ---------------------------------------------------------------------------------------------------------------

// Columns of an activation buffer (n_rows, width) f32: n_heads runs of head_dim columns, `stride` apart, the first at `offset`.
// A plain range is one head. buffer -1: absent.
struct view {
    int32_t buffer = -1;
    int32_t offset = 0;
    int32_t n_heads = 1;
    int32_t head_dim = 0;
    int32_t stride = 0;
    int32_t width() const { return n_heads * head_dim; }
    bool contiguous() const { return n_heads == 1 || stride == head_dim; }
    bool operator==(const view&) const = default;
};

// A matrix of weights, as it lies in the file: n_out rows of n_in weights (n_mats of them, one after another, for experts).
// A vector (norm, bias) has n_out = 1. Index of model_graph::weights; -1: absent.
using weight_id = int32_t;
struct weight {
    std::string    name;
    int32_t        type = 0;         // file id of the number format
    int64_t        n_in = 0, n_out = 1, n_mats = 1;
    const uint8_t* data = nullptr;   // mapped
    uint64_t       n_bytes = 0;
    uint64_t       row_bytes = 0;
};

// ---- the ops ------------------------------------------------------------------------------------------------------------------------

enum class op_kind : uint8_t {
    embed,        // out = row `token` of w (n_vocab rows), times scale; position: row `pos` of w instead
    norm,         // out = norm(in) per head of in's view, with w and b (per element of a head; w_stride: each head has its own)
    matmul,       // out = w in (+ b) (+ res when residual: out += ), then * scale when scale != 1
    rope,         // in place on in's heads: dims 0..rope_dim-1 rotated by table `index` at the token's position
    kv_append,    // heads of in (keys) and in2 (values) go to cache layer `index` at the token's position
    attention,    // out = attention of in (queries) over cache layer `index`; w: sinks (n_heads)
    activate,     // out = act(in) * in2; without in2: act(in). Views of any heads, as many columns each
    add,          // out = in + scale * in2  (fma when scale != 1)
    multiply,     // out = in * act(in2), in2 one column: one factor for the whole row
    scale_cap,    // out = cap(scale * in), cap c > 0: c tanh(x / c); c < 0: clipped to -|c| .. |c|
    gather,       // out = rows of in for which logits are wanted; out's buffer has one row for each of these
    route,        // in: router logits (n_experts), b: bias of the choice -> out: n_used ids (int32 bits), then n_used weights * scale
    expert_matmul,// out[k] = w[e_k] in[k] (+ b[e_k]), e_k the n_used experts chosen in in2 (a route's out); without in2: e_k = k.
                  // in and out: n_used heads; in of one head: shared by all k
    expert_sum,   // out = scale * sum over k in order of weight_k * in[k] (weight_k times w[e_k] first), weights in in2; residual: out +=
    conv,         // causal depthwise convolution over time with the sequence's window, then act: state layer `index`
                  // (n_taps - 1, n) oldest first, w (n_taps, n), b. out may be in
    delta_net,    // gated delta rule: in = [q: n_groups heads | k: n_groups heads | v: n_heads], all of size d; in2, in3 = beta and decay
                  // inputs (n_heads each); w = a, b = bias of the decay; state layer `index`: n_heads times (d, d)
    mamba2,       // selective state space step: in = [x: n_heads | B: n_groups | C: n_groups], in2 = step inputs (n_heads), w = a,
                  // b = bias of the step, w2 = d; state layer `index`: n_heads times (state size, head size)
};

inline const char* op_name(op_kind kind) {   // in messages and profiles
    constexpr const char* kNames[] = {"embed", "norm", "matmul", "rope", "kv append", "attention", "activate", "add", "multiply",
                                      "scale", "gather", "route", "expert matmul", "expert sum", "conv", "delta net", "mamba2"};
    return kNames[(int)kind];
}

constexpr int32_t kMaxExpertsUsed = 256, kMaxExpertGroups = 256;

enum class norm_kind : uint8_t { rms, layer, l2 };
enum class activation : uint8_t { none, silu, gelu, sigmoid, relu2, swiglu_oai, softplus };

// One op. Fields that a kind does not name above are unused. Rows are the batch's tokens, or the wanted ones after `gather`.
struct op {
    op_kind    kind = op_kind::add;
    norm_kind  norm = norm_kind::rms;
    activation act = activation::none;
    bool       neox = false;          // rope: pairs (i, i + rope_dim/2); else (2i, 2i+1)
    bool       residual = false;      // matmul: out += result
    bool       by_position = false;   // embed: row of the position, not the token
    bool       normalise = false;     // route: weights divided by their sum
    bool       sigmoid_scores = false, softmax_after = false;   // route: scores by sigmoid; by softmax over the chosen only
    bool       after_border = false;  // other ops ran elsewhere before it (runtime_split.cpp): nothing is known of what buffers held
    bool       tiled_heads = false;   // delta_net: head r uses query and key head r mod n_groups, else r * n_groups / n_heads
    int32_t    layer = -1;            // block of the model, for messages and placement; -1: outside the blocks
    int32_t    index = -1;            // rope table, cache layer or state layer
    view       in, in2, in3, out;
    weight_id  w = -1, b = -1, w2 = -1;
    int32_t    w_stride = 0;          // norm: elements from one head's weights to the next (0: shared)
    int32_t    rope_dim = 0;
    int32_t    n_used = 0, n_groups = 0, n_groups_used = 0;
    float      eps = 0, scale = 1, cap = 0;
    float      temperature_scale = 0; // attention: q * (1 + t ln(floor(pos / temperature_length) + 1)), 0: none
    float      temperature_length = 0;
    float      alibi = 0;             // attention: largest bias per position of ALiBi, 0: none (exact_alibi)
};

// ---- the model ------------------------------------------------------------------------------------------------------------------------

// Angles of one rope variant: dims 2i, 2i+1 (or i, i + n/2) turn by pos * freq[i]; cos and sin are multiplied by magnitude.
struct rope_table {
    std::vector<double> freq;
    double              magnitude = 1.0;
    std::vector<double> long_freq;    // used instead of freq by sessions of more than long_above positions, when not empty
    int32_t             long_above = 0;
    const std::vector<double>& of_context(int32_t n_ctx) const { return !long_freq.empty() && n_ctx > long_above ? long_freq : freq; }
    bool operator==(const rope_table&) const = default;
};

// Attention cache of one layer. Layers of one group share page tables: the same positions are kept or given back.
struct cache_layer {
    int32_t group = 0;
    int32_t n_kv_heads = 0;
    int32_t k_dim = 0, v_dim = 0;     // per head
    bool    v_in_k = false;           // values are the first v_dim of the keys: kv_append has no in2
};
struct cache_group {
    int32_t window = 0;               // positions q with p - q < window are seen; 0: all
};

// Recurrent state of one layer: f32, zero at the start of a sequence.
struct state_layer {
    int64_t n_floats = 0;
};

struct buffer_info {
    std::string name;
    int32_t     width = 0;
    bool        wanted_rows = false;  // one row for each wanted token, not for each token
};

struct model_graph {
    std::string              architecture;
    int32_t                  n_vocab = 0, dim = 0, n_layers = 0, n_heads = 0, n_kv_heads = 0, n_ctx_train = 0;
    int32_t                  max_ctx = 0;            // positions there are weights for; 0: any number
    std::vector<weight>      weights;
    std::vector<std::shared_ptr<std::vector<uint8_t>>> made;   // data of weights that do not lie in the file as ops want them
    std::vector<buffer_info> buffers;
    std::vector<op>          ops;
    std::vector<rope_table>  ropes;
    std::vector<cache_layer> caches;
    std::vector<cache_group> groups;
    std::vector<state_layer> states;
    int32_t                  logits_buffer = -1;     // wanted rows, n_vocab wide
    int32_t                  embedding_buffer = -1;  // wanted rows, dim wide, after the output norm
    uint64_t                 decode_bytes = 0;       // weight bytes read for one token
    mutable std::shared_ptr<void> device_store;      // what an executor keeps for all sessions: weights on a device (gpu/store.cpp)
};

// ---- running it -----------------------------------------------------------------------------------------------------------------------

// A batch as an executor sees it. Pages: for cache group g, sequence s, position p the page is pages[g][s][p / kAttnChunk].
// A page holds kAttnChunk positions of all layers of its group. All tables are checked by the runtime.
struct exec_batch {
    int32_t        n_tok = 0;
    const int32_t* token = nullptr;
    const int32_t* pos = nullptr;
    const int32_t* seq = nullptr;
    int32_t        n_wanted = 0;
    const int32_t* wanted = nullptr;                 // rows of the tokens whose logits are wanted
    const std::vector<std::vector<const int32_t*>>* pages = nullptr;
    const int32_t* state_slot = nullptr;             // state slot of each sequence
    bool           rows_later = false;               // wanted rows may stay on the device until wanted_row asks for them
    // Ops [first_op, last_op) only (-1: all). A batch may be run in several parts, in order; what it is does not change between them.
    int32_t        first_op = 0, last_op = -1;
};

// What executors of devices are asked for, and whom they tell.
struct exec_place {
    const char*      device = nullptr;               // "emu32", "cuda:1"
    int32_t          gpu_layers = -1;                // layers on the device; -1: as many as fit
    int32_t          cpu_expert_layers = -1;         // layers whose experts are on the CPU; -1: as few as possible
    duet_progress_fn progress = nullptr;             // of loading weights
    void*            progress_user = nullptr;
    uint64_t         move_bytes = 0;                 // pinned, for rows that cross to and from another executor
};

struct exec_limits {
    exec_place place;
    int32_t n_ctx = 0, max_batch = 0, n_seqs = 0, n_state_slots = 0;
    int32_t max_wanted = 0;                          // rows of buffers with wanted_rows
    int32_t cache_type = 0;                          // DUET_CACHE_...
    bool fast = false;                               // mode fast, where there is one (docs/numerics.md)
    std::vector<int32_t> n_pages;                    // of each cache group
    duet_input_fn inputs = nullptr;                  // told every input row of matmuls (CPU only)
    void*         inputs_user = nullptr;
};

struct exec_memory {
    uint64_t cache_bytes = 0, state_bytes = 0, work_bytes = 0;
    uint64_t weight_bytes = 0;                       // allocated for weights: none where they are used as they are mapped
    uint64_t pinned_bytes = 0;                       // of the computer's memory, for copies to and from a device, at most at once
    uint64_t load_bytes = 0;                         // more, while weights are loaded
};
struct exec_plan {
    exec_memory host, device;
    int32_t     gpu_layers = 0, cpu_expert_layers = 0;   // as in exec_place, decided
};

constexpr int32_t kStates = -1;

struct profile_entry {
    std::string op;
    uint64_t    n_calls = 0, time_ns = 0, weight_bytes = 0, n_mac = 0;
};

// An executor: functions over its own context. A context belongs to one session; the graph outlives it.
struct executor {
    const char* name;
    // Bytes that create() will allocate, exactly.
    duet_status (*plan)(const model_graph& graph, const exec_limits& limits, int32_t n_threads, exec_plan* out, error_text& err);
    duet_status (*create)(const model_graph& graph, const exec_limits& limits, int32_t n_threads, const char* isa, void** out,
                          error_text& err);
    void (*destroy)(void* context);
    // Runs all ops. cancel is polled between pieces of work; DUET_ERR_CANCELLED leaves the cache's contents of these positions undefined.
    duet_status (*run)(void* context, const exec_batch& batch, const std::atomic<int32_t>* cancel, error_text& err);
    // Row i of the wanted rows of a buffer (logits, embedding), in host memory until the next run.
    float* (*wanted_row)(void* context, int32_t buffer, int32_t i);     // null: reading it failed
    // Of row i of the logits the id of the largest, the lowest of equal ones; -1 when one is NaN or +inf, or none is above -inf.
    // Null: as dear as reading the row.
    duet_status (*best_id)(void* context, int32_t i, int32_t* id, error_text& err);
    // What sequences hold: pages of a cache group; of "group" kStates a page is the recurrent state of a slot.
    uint64_t (*page_bytes)(void* context, int32_t group);
    duet_status (*copy_page)(void* context, int32_t group, int32_t from, int32_t to);   // from -1: zeros
    // Its bytes in a form that does not depend on the executor (docs/numerics.md).
    duet_status (*read_page)(void* context, int32_t group, int32_t page, void* out);
    duet_status (*write_page)(void* context, int32_t group, int32_t page, const void* in);
    void (*profile)(void* context, bool on);                              // clears and switches
    const std::vector<profile_entry>* (*profile_rows)(void* context);
};

extern const executor kCpuExecutor;   // quant/cpu_ops.cpp

}  // namespace duet
