// models/ops.h: a model as a flat list of ops over activation buffers: what a family describes and an executor runs.
// Owns: the meaning of each op (results: quant/exact.h). Must not know: architectures, executors, file formats.
// Main path: models/<family>.cpp -> [models/ops.h] -> models/executor.h
#pragma once
#include "../quant/activate.h"

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace duet {

// ---- what ops work on
//  -----------------------------------------------------------------------------------------------

// Columns of an activation buffer (n_rows, width) f32: n_heads runs of head_dim columns, `stride` apart, the first at
// `offset`.
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

// A matrix of weights, as it lies in the file: n_out rows of n_in weights (n_mats of them, one after another, for
// experts).
// A vector (norm, bias) has n_out = 1. Index of model_graph::weights; -1: absent.
using weight_id = int32_t;
struct weight {
    std::string name;
    int32_t type = 0;  // file id of the number format
    int64_t n_in = 0, n_out = 1, n_mats = 1;
    const uint8_t* data = nullptr;  // mapped
    uint64_t n_bytes = 0;
    uint64_t row_bytes = 0;
};

// ---- the ops
//  --------------------------------------------------------------------------------------------------------

// What each op computes: models/ops.def.
enum class op_kind : uint8_t {
#define OP(id, name, written, has_state) id,
#include "ops.def"
};

inline const char* op_name(op_kind kind) {  // in messages and profiles
    constexpr const char* kNames[] = {
#define OP(id, name, written, has_state) name,
#include "ops.def"
    };
    return kNames[(int)kind];
}

// True for ops that read and write the recurrent state of the tokens' sequences.
inline bool has_state(op_kind kind) {
    constexpr bool kHasState[] = {
#define OP(id, name, written, has_state) has_state != 0,
#include "ops.def"
    };
    return kHasState[(int)kind];
}

constexpr int32_t kMaxExpertsUsed = 256, kMaxExpertGroups = 256;

enum class norm_kind : uint8_t { rms, layer, l2 };

// One op. Fields that a kind does not name above are unused. Rows are the batch's tokens, or the wanted ones after
// `gather`.
struct op {
    op_kind kind = op_kind::add;
    norm_kind norm = norm_kind::rms;
    activation act = activation::none;
    bool neox = false;                                   // rope: pairs (i, i + rope_dim/2); else (2i, 2i+1)
    bool residual = false;                               // matmul: out += result
    bool by_position = false;                            // embed: row of the position, not the token
    bool normalise = false;                              // route: weights divided by their sum
    bool sigmoid_scores = false, softmax_after = false;  // route: scores by sigmoid; by softmax over the chosen only
    bool after_border =
        false;  // other ops ran elsewhere before it (runtime/split.cpp): nothing is known of what buffers held
    bool tiled_heads = false;  // delta_net: head r uses query and key head r mod n_groups, else r * n_groups / n_heads
    int32_t layer = -1;        // block of the model, for messages and placement; -1: outside the blocks
    int32_t index = -1;        // rope table, cache layer or state layer
    view in, in2, in3, out;
    weight_id w = -1, b = -1, w2 = -1;
    int32_t w_stride = 0;  // norm: elements from one head's weights to the next (0: shared)
    int32_t rope_dim = 0;
    int32_t n_used = 0, n_groups = 0, n_groups_used = 0;
    float eps = 0, scale = 1, cap = 0;
    float temperature_scale = 0;  // attention: q * (1 + t ln(floor(pos / temperature_length) + 1)), 0: none
    float temperature_length = 0;
    float alibi = 0;  // attention: largest bias per position of ALiBi, 0: none (exact_alibi)
};

// The view that an op writes; its buffer is -1 when the op writes a cache only.
inline const view& written_by(const op& o) {
    switch (o.kind) {
#define OP(id, name, written, has_state)                                                                               \
    case op_kind::id: return o.written;
#include "ops.def"
    }
    return o.out;
}

// The views that an op reads; absent ones have buffer -1.
inline std::array<view, 4> read_by(const op& o) { return {o.in, o.in2, o.in3, o.residual ? o.out : view{}}; }

// ---- the model
//  ------------------------------------------------------------------------------------------------------

// Angles of one rope variant: dims 2i, 2i+1 (or i, i + n/2) turn by pos * freq[i]; cos and sin are multiplied by
// magnitude.
struct rope_table {
    std::vector<double> freq;
    double magnitude = 1.0;
    std::vector<double>
        long_freq;  // used instead of freq by sessions of more than long_above positions, when not empty
    int32_t long_above = 0;
    const std::vector<double>& of_context(int32_t n_ctx) const {
        return !long_freq.empty() && n_ctx > long_above ? long_freq : freq;
    }
    bool operator==(const rope_table&) const = default;
};

// Attention cache of one layer. Layers of one group share page tables: the same positions are kept or given back.
struct cache_layer {
    int32_t group = 0;
    int32_t n_kv_heads = 0;
    int32_t k_dim = 0, v_dim = 0;  // per head
    bool v_in_k = false;           // values are the first v_dim of the keys: kv_append has no in2
};
struct cache_group {
    int32_t window = 0;  // positions q with p - q < window are seen; 0: all
};

// Recurrent state of one layer: f32, zero at the start of a sequence.
struct state_layer {
    int64_t n_floats = 0;
};

struct buffer_info {
    std::string name;
    int32_t width = 0;
    bool wanted_rows = false;  // one row for each wanted token, not for each token
};

struct model_graph {
    std::string architecture;
    int32_t n_vocab = 0, dim = 0, n_layers = 0, n_heads = 0, n_kv_heads = 0, n_ctx_train = 0;
    int32_t max_ctx = 0;  // positions there are weights for; 0: any number
    std::vector<weight> weights;
    std::vector<std::shared_ptr<std::vector<uint8_t>>>
        made;  // data of weights that do not lie in the file as ops want them
    std::vector<buffer_info> buffers;
    std::vector<op> ops;
    std::vector<rope_table> ropes;
    std::vector<cache_layer> caches;
    std::vector<cache_group> groups;
    std::vector<state_layer> states;
    int32_t logits_buffer = -1;     // wanted rows, n_vocab wide
    int32_t embedding_buffer = -1;  // wanted rows, dim wide, after the output norm
    uint64_t decode_bytes = 0;      // weight bytes read for one token
};

}  // namespace duet
