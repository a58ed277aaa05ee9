// models/arch.h: what families use to describe themselves: tensors by name and shape, buffers, ops. Host code, no devices.
// Main path: runtime.cpp -> models/arch.def -> models/<family>.cpp -> [models/arch.h] -> models/ops.h
#pragma once
#include "gguf.h"
#include "ops.h"

namespace duet {

// Hyper-parameters every transformer of the field has, read and checked by read_common (groups 29-35 of hostile files).
struct hyper {
    int32_t  n_layers = 0, dim = 0, n_vocab = 0, n_ctx_train = 0;
    std::vector<uint32_t> n_heads, n_kv_heads, hidden_dim;   // per layer
    int32_t  k_dim = 0, v_dim = 0;                           // head sizes
    int32_t  rope_dim = 0;
    float    rope_base = 10000.0f;
    float    eps = 0;
    int32_t  n_experts = 0, n_experts_used = 0;
};

// Builds a model_graph. The first error is kept (message in err); later calls do nothing and return harmless values, so that a family
// reads as straight lines and asks once, at the end, with finish().
class graph_builder {
  public:
    graph_builder(const gguf_file& file, int32_t n_vocab, model_graph& graph, error_text& err);

    const gguf_file& file;
    model_graph&     graph;
    error_text&      err;
    std::string      arch;            // value of general.architecture: prefix of the keys
    hyper            hp;
    duet_status      status = DUET_OK;

    std::string key(const char* suffix) const { return arch + "." + suffix; }
    bool     fail_with(duet_status code, const std::string& message);   // keeps the first; false
    uint32_t u32(const char* suffix, bool required, uint32_t fallback, uint32_t min, uint32_t max);
    float    f32(const char* suffix, bool required, float fallback, float min, float max);
    bool     flag(const char* suffix, bool fallback);
    std::string_view string(const char* suffix, std::string_view fallback);

    // Reads hp. eps_key: the suffix of the norm's epsilon.
    bool read_common(const char* eps_key);

    // A tensor {n_in, n_out, n_mats}; {n} vectors: n_out = 1 with n_in = n. Absent and not required: -1. Any other shape is an error.
    weight_id tensor(const std::string& name, bool required, int64_t n_in, int64_t n_out = 1, int64_t n_mats = 1);
    weight_id block_tensor(int32_t layer, const char* name, bool required, int64_t n_in, int64_t n_out = 1, int64_t n_mats = 1);
    int64_t   rows_of(const std::string& name) const;          // dims[1] of a tensor, 0 when absent

    view buffer(const char* name, int64_t width, bool wanted_rows = false);   // the same name gives the same buffer, widened if needed
    static view heads(view v, int32_t n_heads, int32_t head_dim);             // the view's columns seen as heads
    static view columns(view v, int32_t offset, int32_t width);

    // Frequencies of D rotated dims with the file's scaling (linear, yarn, factors of rope_freqs.weight); equal tables are shared.
    int32_t rope(int32_t rope_dim, float base, bool use_scaling = true, weight_id factors = -1);
    int32_t cache(int32_t n_kv_heads, int32_t k_dim, int32_t v_dim, int32_t window);   // a new cache layer

    op& add(op_kind kind, int32_t layer);                      // appends an op of that kind
    void norm(int32_t layer, view in, view out, weight_id w, weight_id b = -1, norm_kind kind = norm_kind::rms);
    void matmul(int32_t layer, view in, view out, weight_id w, weight_id b = -1, bool residual = false);

    // Marks where layer i ends, checks that every tensor of the file was used or is known to be ignored, computes sizes.
    duet_status finish();

    std::vector<bool> used;                                    // tensors of the file that were bound
};

// Describes the model in file as a graph. n_vocab: entries of the vocabulary.
using describe_fn = duet_status (*)(graph_builder& g);

// Finds the family by general.architecture (models/arch.def) and runs it. DUET_ERR_UNSUPPORTED names it and lists the known ones.
duet_status describe_model(const gguf_file& file, int32_t n_vocab, model_graph& graph, error_text& err);

}  // namespace duet
