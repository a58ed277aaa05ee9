// models/arch.h: the builder with which families describe themselves: tensors by name and shape, buffers, ops.
// Must not know: devices.
// Main path: runtime/model.cpp -> models/arch.def -> models/<family>.cpp -> [models/arch.h] -> models/ops.h
#pragma once
#include "gguf.h"
#include "ops.h"

namespace duet {

// Hyper-parameters that every transformer has. read_common reads and checks them.
struct hyper {
    int32_t n_layers = 0, dim = 0, n_vocab = 0, n_ctx_train = 0;  // n_layers: the blocks that are run
    int32_t n_blocks = 0;  // block_count: n_layers and the blocks that predict further tokens
    std::vector<uint32_t> n_heads, n_kv_heads, hidden_dim;  // one entry for each block
    int32_t k_dim = 0, v_dim = 0;                           // head sizes
    int32_t rope_dim = 0;
    float rope_base = 10000.0f;
    float eps = 0;
    norm_kind norm = norm_kind::rms;  // kind of all norms that do not say otherwise
    bool bare_norms = false;          // norms outside the parts have no weights
    int32_t n_experts = 0, n_experts_used = 0;
};

// What a family tells read_common about its file.
struct common_keys {
    norm_kind norm = norm_kind::rms;  // also decides the key of epsilon
    uint32_t min_kv_heads = 1;        // 0: there are layers without attention
    uint32_t min_hidden = 1;          // 0: there are layers without feed-forward
    bool is_encoder = false;          // tokens see later ones, too
    bool is_either = false;           // whether they do, the file says
};

// Options of one rope table. 0 stands for the file's value.
struct rope_options {
    int32_t dim = 0;
    float base = 0;
    bool scaling = true;          // apply linear or yarn scaling where the file says so
    weight_id factors = -1;       // vector by which frequencies are divided
    weight_id long_factors = -1;  // vector that replaces factors in contexts longer than the original one
    double magnitude = 0;         // replaces the magnitude of the scaling
};

// What replaces the file's rope scaling. Empty and 0 stand for the file's value.
struct rope_choice {
    std::string_view type;  // "none", "linear", "yarn"
    float factor = 0, base = 0;
    int32_t original_ctx = 0;
};

// Builds a model_graph. The builder keeps the first error, with its message in err; later calls then do nothing and
// return harmless values. So a family is written as straight lines and asks once, at the end, with finish().
class graph_builder {
  public:
    graph_builder(const gguf_file& file, int32_t n_vocab, model_graph& graph, error_text& err);

    const gguf_file& file;
    model_graph& graph;
    error_text& err;
    std::string arch;  // value of general.architecture, which is the prefix of the keys
    hyper hp;
    rope_choice chosen_rope;
    duet_status status = DUET_OK;

    std::string key(const char* suffix) const { return arch + "." + suffix; }
    bool fail_with(duet_status code, const std::string& message);  // keeps the first error; returns false
    // An error DUET_ERR_FORMAT at that key; returns false.
    __attribute__((format(DUET_PRINTF_FORM, 3, 4))) bool wrong(const char* suffix, const char* format, ...);
    int32_t i32(const char* suffix, bool required, int32_t fallback, int32_t min, int32_t max);
    float f32(const char* suffix, bool required, float fallback, float min, float max);
    bool flag(const char* suffix, bool fallback);
    std::string_view string(const char* suffix, std::string_view fallback);

    // One value for each of the n_blocks blocks.
    std::vector<uint32_t> per_layer(const char* suffix, bool required, std::vector<uint32_t> fallback, uint32_t min,
                                    uint32_t max);

    bool read_common(const common_keys& keys = {});  // fills hp
    // Makes an error at that key unless part divides whole.
    bool want_divisor(const char* suffix, int64_t part, int64_t whole);

    // Binds a tensor {n_in, n_out, n_mats}; a vector {n} has n_in = n and n_out = 1. Returns -1 for an absent tensor
    // that is not required. Another shape is an error; so is another format than F32 where ops read elements (finish
    // checks).
    weight_id tensor(const std::string& name, bool required, int64_t n_in, int64_t n_out = 1, int64_t n_mats = 1);
    weight_id block_tensor(int32_t layer, const std::string& name, bool required, int64_t n_in, int64_t n_out = 1,
                           int64_t n_mats = 1);
    bool want_f32(weight_id w);        // false: the tensor is absent, or an error was made
    const float* floats(weight_id w);  // an F32 tensor that the description itself needs; nullptr: w is -1
    bool has(int32_t layer, const char* name) const;

    // A buffer by its name. The same name gives the same buffer, widened if necessary.
    view buffer(const char* name, int64_t width, bool wanted_rows = false);
    static view heads(view v, int32_t n_heads, int32_t head_dim);  // the view's columns, seen as heads
    static view columns(view v, int32_t offset, int32_t width);

    // Makes a rope table with the file's scaling, or gives an equal one that exists. rope_freqs.weight is applied only
    // if the options name it in `factors`.
    int32_t rope(const rope_options& options = {});
    // What the user chose, or else the file's: the kind of scaling ("none", "linear", "yarn", or one unknown here) and
    // its factor, and how many positions the model had before it was stretched.
    std::string_view rope_scaling(double* factor);
    int32_t original_ctx();
    // Adds a cache layer.
    int32_t cache(int32_t n_kv_heads, int32_t k_dim, int32_t v_dim, int32_t window, bool v_in_k = false);
    int32_t state(int64_t n_floats);  // adds a state layer

    op& add(op_kind kind, int32_t layer, view in, view out = {}, view in2 = {});  // appends an op
    op& norm(int32_t layer, view in, view out, weight_id w, weight_id b = -1);
    op& matmul(int32_t layer, view in, view out, weight_id w, weight_id b = -1, bool residual = false);
    // These three append out = act(in) * in2 (without in2: act(in)), out = in + scale * in2, and in = in * value.
    void activate(int32_t layer, activation act, view in, view in2, view out);
    void add_scaled(int32_t layer, view in, view in2, view out, float scale = 1.0f);
    void scale(int32_t layer, view in, float value);

    void scale_matrices();
    void read_pooling();  // how rows become one vector, and the layers behind it
    bool read_pooled(const char* name, int64_t n_in, bool is_square, std::vector<pooled_layer>* to);

    // Checks that every tensor of the file was used or may be ignored, and computes sizes.
    duet_status finish();

    std::vector<bool> used;  // tensors of the file that are bound
};

// A family: describes the model of the builder's file as a graph.
using describe_fn = duet_status (*)(graph_builder& g);

// Finds the family by general.architecture (models/arch.def) and runs it. n_vocab is the size of the vocabulary.
// DUET_ERR_UNSUPPORTED names the architecture and lists the known ones.
duet_status describe_model(const gguf_file& file, int32_t n_vocab, model_graph& graph, error_text& err,
                           const rope_choice& rope = {});

}  // namespace duet
