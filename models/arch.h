// models/arch.h: what families use to describe themselves: tensors by name and shape, buffers, ops. Host code, no
// devices. Main path: runtime.cpp -> models/arch.def -> models/<family>.cpp -> [models/arch.h] -> models/ops.h
#pragma once
#include "gguf.h"
#include "ops.h"

namespace duet {

// Hyper-parameters every transformer of the field has, read and checked by read_common (groups 29-35 of hostile
// files).
struct hyper {
    int32_t n_layers = 0, dim = 0, n_vocab = 0, n_ctx_train = 0;  // n_layers: those that are run
    int32_t n_blocks = 0;  // block_count: n_layers and those that predict further tokens
    std::vector<uint32_t> n_heads, n_kv_heads, hidden_dim;  // per block
    int32_t k_dim = 0, v_dim = 0;                           // head sizes
    int32_t rope_dim = 0;
    float rope_base = 10000.0f;
    float eps = 0;
    norm_kind norm = norm_kind::rms;  // of all norms that do not say otherwise
    int32_t n_experts = 0, n_experts_used = 0;
};

// What read_common expects.
struct common_keys {
    norm_kind norm = norm_kind::rms;  // and so the key of epsilon
    uint32_t min_kv_heads = 1;        // 0: layers without attention
    uint32_t min_hidden = 1;          // 0: layers without feed-forward
};

// One rope variant; 0: the file's value.
struct rope_options {
    int32_t dim = 0;
    float base = 0;
    bool scaling = true;          // linear or yarn, as the file says
    weight_id factors = -1;       // frequencies are divided by these
    weight_id long_factors = -1;  // by these instead in contexts longer than the original one
    double magnitude = 0;         // instead of the scaling's own
};

// Builds a model_graph. The first error is kept (message in err); later calls do nothing and return harmless values,
// so that a family reads as straight lines and asks once, at the end, with finish().
class graph_builder {
  public:
    graph_builder(const gguf_file& file, int32_t n_vocab, model_graph& graph, error_text& err);

    const gguf_file& file;
    model_graph& graph;
    error_text& err;
    std::string arch;  // value of general.architecture: prefix of the keys
    hyper hp;
    duet_status status = DUET_OK;

    std::string key(const char* suffix) const { return arch + "." + suffix; }
    bool fail_with(duet_status code, const std::string& message);  // keeps the first; false
    __attribute__((format(printf, 3, 4))) bool wrong(const char* suffix, const char* format,
                                                     ...);  // DUET_ERR_FORMAT at that key
    uint32_t u32(const char* suffix, bool required, uint32_t fallback, uint32_t min, uint32_t max);
    float f32(const char* suffix, bool required, float fallback, float min, float max);
    bool flag(const char* suffix, bool fallback);
    std::string_view string(const char* suffix, std::string_view fallback);

    std::vector<uint32_t> per_layer(const char* suffix, bool required, uint32_t fallback, uint32_t min,
                                    uint32_t max);  // n_blocks

    bool read_common(const common_keys& keys = {});  // reads hp
    bool want_divisor(const char* suffix, int64_t part,
                      int64_t whole);  // an error at that key unless part divides whole

    // A tensor {n_in, n_out, n_mats}; {n} vectors: n_out = 1 with n_in = n. Absent and not required: -1. Any other
    // shape is an error, and so is another format than F32 where ops read it by element (finish).
    weight_id tensor(const std::string& name, bool required, int64_t n_in, int64_t n_out = 1, int64_t n_mats = 1);
    weight_id block_tensor(int32_t layer, const char* name, bool required, int64_t n_in, int64_t n_out = 1,
                           int64_t n_mats = 1);
    bool want_f32(weight_id w);        // false: absent or an error
    const float* floats(weight_id w);  // of an F32 tensor that the description itself needs; nullptr: w is -1
    bool has(int32_t layer, const char* name) const;

    view buffer(const char* name, int64_t width,
                bool wanted_rows = false);  // the same name gives the same buffer, widened if needed
    static view heads(view v, int32_t n_heads, int32_t head_dim);  // the view's columns seen as heads
    static view columns(view v, int32_t offset, int32_t width);

    // Frequencies of the rotated dims with the file's scaling; equal tables are shared. Default factors:
    // rope_freqs.weight, if any.
    int32_t rope(const rope_options& options = {});
    int32_t cache(int32_t n_kv_heads, int32_t k_dim, int32_t v_dim, int32_t window,
                  bool v_in_k = false);  // a new cache layer
    int32_t state(int64_t n_floats);     // a new state layer

    op& add(op_kind kind, int32_t layer, view in, view out = {}, view in2 = {});  // appends an op
    op& norm(int32_t layer, view in, view out, weight_id w, weight_id b = -1);
    op& matmul(int32_t layer, view in, view out, weight_id w, weight_id b = -1, bool residual = false);
    // out = act(in) * in2, out = act(in), out = in + scale * in2, out = in * scale
    op& activate(int32_t layer, activation act, view in, view in2, view out);
    void add_scaled(int32_t layer, view in, view in2, view out, float scale = 1.0f);
    void scale(int32_t layer, view in, float factor);

    void scale_matrices();

    // Checks that every tensor of the file was used or is known to be ignored, computes sizes.
    duet_status finish();

    std::vector<bool> used;  // tensors of the file that were bound
};

// Describes the model in file as a graph. n_vocab: entries of the vocabulary.
using describe_fn = duet_status (*)(graph_builder& g);

// Finds the family by general.architecture (models/arch.def) and runs it. DUET_ERR_UNSUPPORTED names it and lists the
// known ones.
duet_status describe_model(const gguf_file& file, int32_t n_vocab, model_graph& graph, error_text& err);

}  // namespace duet
