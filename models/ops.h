// models/ops.h: a model as a flat list of ops over activation buffers. Families describe their models in this form;
// executors run it.
// Owns: the meaning of each op, whose results quant/exact.h defines. Must not know: architectures, executors, file
// formats.
// Read next: models/ops.def, the table of what each op computes.
// Main path: models/<family>.cpp -> [models/ops.h] -> models/executor.h
#pragma once
#include "../quant/activate.h"

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace duet {

// ---- what ops work on ----

// Columns of an activation buffer, which holds (n_rows, width) f32. They are n_heads runs of head_dim columns. The
// first run begins at `offset`, and the runs begin `stride` columns apart. A plain range of columns is one head. A view
// with buffer -1 is absent.
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

// A matrix of weights as the file holds it: n_out rows of n_in weights. Experts have n_mats such matrices, one after
// another. A vector (norm, bias) has n_out = 1. A weight_id is an index of model_graph::weights; -1 means that there is
// no weight.
using weight_id = int32_t;
struct weight {
    std::string name;
    int32_t type = 0;  // file id of the number format
    int64_t n_in = 0, n_out = 1, n_mats = 1;
    const uint8_t* data = nullptr;  // mapped memory of the file
    uint64_t n_bytes = 0;
    uint64_t row_bytes = 0;
};

// ---- the ops ----

// models/ops.def says what each op computes.
enum class op_kind : uint8_t {
#define OP(id, name, written, has_state, has_matrix) id,
#include "ops.def"
};

// A row of the table, without what the op writes (written_by).
struct op_row {
    const char* name;  // for messages and profiles
    bool has_state;    // reads and writes the recurrent state of the tokens' sequences
    bool has_matrix;   // w is a matrix in any number format; vectors are F32
};
inline const op_row& row_of(op_kind kind) {
    static constexpr op_row kRows[] = {
#define OP(id, name, written, has_state, has_matrix) {name, has_state != 0, has_matrix != 0},
#include "ops.def"
    };
    return kRows[(int)kind];
}
inline const char* op_name(op_kind kind) { return row_of(kind).name; }
inline bool has_state(op_kind kind) { return row_of(kind).has_state; }
inline bool has_matrix(op_kind kind) { return row_of(kind).has_matrix; }

constexpr int32_t kMaxExpertsUsed = 256, kMaxExpertGroups = 256;

enum class norm_kind : uint8_t { rms, layer, l2 };

// One op. models/ops.def names the fields that each kind uses; the others are unused. The rows are the tokens of the
// batch; behind `gather` they are the tokens whose logits are wanted.
struct op {
    op_kind kind = op_kind::add;
    norm_kind norm = norm_kind::rms;
    activation act = activation::none;
    bool neox = false;         // rope: rotates pairs (i, i + rope_dim/2); else (2i, 2i+1)
    bool residual = false;     // matmul, expert_sum: adds the result to out
    bool by_position = false;  // embed: takes the row of the position, not of the token
    bool first_row = false;    // embed: takes row 0 for every token
    bool both_ways = false;    // attention: a token sees later ones, too, up to the end of its sequence
    bool normalise = false;    // route: divides the weights by their sum
    bool sigmoid_scores = false, softmax_after = false;  // route: scores by sigmoid; softmax over the chosen only
    bool after_border =
        false;  // first op after the other device's ops (runtime/split.cpp): facts cached about buffers no longer hold
    bool tiled_heads = false;  // delta_net: head r uses query and key head r mod n_groups, else r * n_groups / n_heads
    int32_t layer = -1;        // block of the model, for messages and placement; -1: outside the blocks
    int32_t index = -1;        // number of the rope table, the cache layer or the state layer
    view in = {}, in2 = {}, in3 = {}, out = {};
    weight_id w = -1, b = -1, w2 = -1;
    int32_t w_stride = 0;  // norm: elements from one head's weights to the next head's; 0: all heads share them
    int32_t rope_dim = 0;
    int32_t n_used = 0, n_groups = 0, n_groups_used = 0;
    float eps = 0, scale = 1, cap = 0;
    float temperature_scale = 0;  // attention: q * (1 + t ln(floor(pos / temperature_length) + 1)); 0: q stays
    float temperature_length = 0;
    float alibi = 0;  // attention: largest ALiBi bias per position (exact_alibi); 0: no bias
};

// The view that an op writes. Its buffer is -1 when the op writes only a cache.
inline const view& written_by(const op& o) {
    switch (o.kind) {
#define OP(id, name, written, has_state, has_matrix)                                                                   \
    case op_kind::id: return o.written;
#include "ops.def"
    }
    return o.out;
}

// The views that an op reads; absent ones have buffer -1.
inline std::array<view, 4> read_by(const op& o) { return {o.in, o.in2, o.in3, o.residual ? o.out : view{}}; }

// ---- the model ----

// The angles of one rope variant: dims 2i and 2i+1 (or i and i + n/2) are rotated by pos * freq[i]; cos and sin are
// multiplied by magnitude.
struct rope_table {
    std::vector<double> freq;
    double magnitude = 1.0;
    std::vector<double> long_freq;  // replaces freq in sessions of more than long_above positions, unless it is empty
    int32_t long_above = 0;
    const std::vector<double>& of_context(int32_t n_ctx) const {
        return !long_freq.empty() && n_ctx > long_above ? long_freq : freq;
    }
    bool operator==(const rope_table&) const = default;
};

// The attention cache of one layer. Layers of one group share page tables, so they keep and give back the same
// positions.
struct cache_layer {
    int32_t group = 0;
    int32_t n_kv_heads = 0;
    int32_t k_dim = 0, v_dim = 0;  // per head
    bool v_in_k = false;           // the values are the first v_dim columns of the keys; kv_append has no in2
};
struct cache_group {
    // Position p sees positions q with p - q < window, where attention goes both ways also q - p < window; 0: all.
    int32_t window = 0;
};

// The recurrent state of one layer: f32 numbers, all zero at the start of a sequence.
struct state_layer {
    int64_t n_floats = 0;
};

struct buffer_info {
    std::string name;
    int32_t width = 0;
    bool wanted_rows = false;  // one row per wanted token, not per token
};

// How one vector for a text is made of its rows in embedding_buffer. The numbers are those of the file format.
enum class pooling_kind : int32_t { none, mean, first, last, rank };

// A layer behind pooling, which the host computes: y = norm(act(w x + b)), each part where it is there.
enum class pooled_act : uint8_t { none, tanh, gelu };
struct pooled_layer {
    weight_id w = -1, b = -1, norm = -1;
    pooled_act act = pooled_act::none;
};

struct model_graph {
    std::string architecture;
    int32_t n_vocab = 0, dim = 0, n_layers = 0, n_heads = 0, n_kv_heads = 0, n_ctx_train = 0;
    int32_t max_ctx = 0;  // number of positions that have weights; 0: no limit
    std::vector<weight> weights;
    std::vector<std::shared_ptr<std::vector<uint8_t>>>
        made;  // data of weights that the file stores in another layout than ops want
    std::vector<buffer_info> buffers;
    std::vector<op> ops;
    std::vector<rope_table> ropes;
    std::vector<cache_layer> caches;
    std::vector<cache_group> groups;
    std::vector<state_layer> states;
    int32_t logits_buffer = -1;     // wanted rows, n_vocab wide
    int32_t embedding_buffer = -1;  // wanted rows, dim wide, after the output norm
    bool both_ways = false;         // an encoder: a text is computed whole, in one batch
    pooling_kind pooling = pooling_kind::last, rank_pooling = pooling_kind::none;
    int32_t embedding_dim = 0;
    std::vector<pooled_layer> dense;   // of embeddings
    std::vector<pooled_layer> scorer;  // of relevance; empty: the model is no reranker
    pooled_act scorer_act = pooled_act::tanh;
    bool softmax_scores = false;  // the labels of the scorer are alternatives
    float eps = 0;                // of the scorer's norms
    uint64_t decode_bytes = 0;    // weight bytes read for one token
};

}  // namespace duet
