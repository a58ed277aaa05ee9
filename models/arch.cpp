// models/arch.cpp: the builder with which families write their descriptions, and the choice of the family by
// models/arch.def. Owns: checks that all families share (hyper-parameters in range, tensor shapes and formats).
// Must not know: devices. Main path: runtime/model.cpp -> [models/arch.cpp] -> models/<family>.cpp -> models/ops.h
#include "arch.h"
#include "../quant/exact_math.h"
#include "../quant/formats.h"

#include <algorithm>
#include <cfloat>
#include <cmath>

namespace duet {

#define ARCH(names, describe) duet_status describe(graph_builder& g);
#include "arch.def"

namespace {

struct arch_row {
    std::string_view names;
    describe_fn describe;
};

constexpr arch_row kArchs[] = {
#define ARCH(names, describe) {names, describe},
#include "arch.def"
};

// Says whether a tensor may be ignored: old converters stored tables that follow from the hyper-parameters.
bool is_ignored(std::string_view name) {
    return name.ends_with(".input_scale") || name.ends_with(".attn_rot_embd") ||
           name.ends_with(".attn.rotary_emb.inv_freq") || name.ends_with(".rope_freqs.weight");
}

// Returns N of blk.N in a tensor's name; -1: there is none.
int32_t block_of_tensor(std::string_view name) {
    if (!name.starts_with("blk.")) return -1;
    int32_t n = 0;
    size_t i = 4;
    for (; i < name.size() && name[i] >= '0' && name[i] <= '9' && i < 8; i++) n = n * 10 + (name[i] - '0');
    return i > 4 && i < name.size() && name[i] == '.' ? n : -1;
}

// The index of the item for which is_it holds, which is added if there is none.
template <class T, class IsIt> int32_t find_or_add(std::vector<T>& items, std::type_identity_t<T> item, IsIt is_it) {
    const size_t i = (size_t)(std::ranges::find_if(items, is_it) - items.begin());
    if (i == items.size()) items.push_back(std::move(item));
    return (int32_t)i;
}

std::string shape_text(int64_t a, int64_t b, int64_t c) {
    std::string s = "(" + std::to_string(a);
    if (b != 1 || c != 1) s += ", " + std::to_string(b);
    if (c != 1) s += ", " + std::to_string(c);
    return s + ")";
}

}  // namespace

graph_builder::graph_builder(const gguf_file& f, int32_t n_vocab, model_graph& gr, error_text& e)
    : file(f), graph(gr), err(e), used(f.tensors.size(), false) {
    graph.n_vocab = hp.n_vocab = n_vocab;
}

bool graph_builder::fail_with(duet_status code, const std::string& message) {
    if (status == DUET_OK) {
        status = code;
        err.text = file.path + ": " + message;
    }
    return false;
}

bool graph_builder::wrong(const char* suffix, const char* format, ...) {
    char text[256];
    DUET_PRINT_ARGS(text, format);
    return fail_with(DUET_ERR_FORMAT, key(suffix) + ": " + text);
}

int32_t graph_builder::i32(const char* suffix, bool required, int32_t fallback, int32_t min, int32_t max) {
    uint32_t value = (uint32_t)fallback;
    if (status == DUET_OK) status = file.get_u32(key(suffix), required, (uint32_t)min, (uint32_t)max, &value, err);
    return (int32_t)value;
}

float graph_builder::f32(const char* suffix, bool required, float fallback, float min, float max) {
    if (status == DUET_OK) status = file.get_f32(key(suffix), required, min, max, &fallback, err);
    return fallback;
}

bool graph_builder::flag(const char* suffix, bool fallback) {
    if (status == DUET_OK) status = file.get_bool(key(suffix), false, &fallback, err);
    return fallback;
}

std::string_view graph_builder::string(const char* suffix, std::string_view fallback) {
    if (status == DUET_OK) status = file.get_string(key(suffix), false, &fallback, err);
    return fallback;
}

std::vector<uint32_t> graph_builder::per_layer(const char* suffix, bool required, std::vector<uint32_t> fallback,
                                               uint32_t min, uint32_t max) {
    // Some files tell nothing of the blocks that are not run, which come last.
    const std::string name = key(suffix);
    const gguf_kv* kv = file.find(name);
    const bool is_short = kv && kv->type == DUET_KV_ARRAY && kv->n_values == (uint64_t)hp.n_layers;
    const uint32_t n = (uint32_t)(is_short ? hp.n_layers : hp.n_blocks);
    if (status == DUET_OK) status = file.get_u32_per_layer(name, required, n, min, max, &fallback, err);
    while (is_short && fallback.size() < (size_t)hp.n_blocks) fallback.push_back(min);
    return fallback;
}

bool graph_builder::want_divisor(const char* suffix, int64_t part, int64_t whole) {
    if (part < 1 || whole % part != 0)
        wrong(suffix, "want a divisor of %lld, got %lld", (long long)whole, (long long)part);
    return status == DUET_OK;
}

bool graph_builder::read_common(const common_keys& keys) {
    constexpr int32_t kMaxHeads = 1 << 14, kMaxHeadDim = 4096;
    hp.n_blocks = i32("block_count", true, 1, 1, 512);
    hp.n_layers = hp.n_blocks - i32("nextn_predict_layers", false, 0, 0, hp.n_blocks - 1);
    hp.dim = i32("embedding_length", true, 1, 1, 1 << 20);
    hp.n_ctx_train = i32("context_length", true, 1, 1, 1 << 30);
    hp.n_heads = per_layer("attention.head_count", true, {}, std::min(1u, keys.min_kv_heads), kMaxHeads);
    hp.n_kv_heads = per_layer("attention.head_count_kv", false, hp.n_heads, keys.min_kv_heads, kMaxHeads);
    hp.hidden_dim = per_layer("feed_forward_length", false, {}, keys.min_hidden, 1u << 24);
    if (status != DUET_OK) return false;
    graph.n_heads = (int32_t)std::max(1u, *std::max_element(hp.n_heads.begin(), hp.n_heads.end()));
    for (uint32_t i = 0; i < hp.n_heads.size(); i++)
        if (hp.n_kv_heads[i] != 0 && (hp.n_heads[i] == 0 || hp.n_heads[i] % hp.n_kv_heads[i] != 0))
            return wrong("attention.head_count_kv", "layer %u: want a divisor of %u heads, got %u", i, hp.n_heads[i],
                         hp.n_kv_heads[i]);
    if (!file.find(key("attention.key_length")) && hp.dim % graph.n_heads != 0)
        return wrong("attention.head_count", "want a divisor of embedding_length %d, got %d", hp.dim, graph.n_heads);
    const int32_t head_dim = std::max(1, hp.dim / graph.n_heads);
    hp.k_dim = i32("attention.key_length", false, head_dim, 1, kMaxHeadDim);
    hp.v_dim = i32("attention.value_length", false, head_dim, 1, kMaxHeadDim);
    if (hp.k_dim == head_dim && head_dim > kMaxHeadDim)
        return wrong("attention.head_count", "heads of %d dims, at most 4096", head_dim);
    hp.rope_dim = i32("rope.dimension_count", false, hp.k_dim, 0, hp.k_dim);
    if (hp.rope_dim % 2 != 0) return wrong("rope.dimension_count", "want an even number, got %d", hp.rope_dim);
    hp.rope_base = f32("rope.freq_base", false, 10000.0f, 1e-3f, 1e30f);
    hp.norm = keys.norm;
    // Some files of Nemotron-H have the key of layer norms alone.
    constexpr const char *kRms = "attention.layer_norm_rms_epsilon", *kLayer = "attention.layer_norm_epsilon";
    const bool is_layer = keys.norm == norm_kind::layer || (!file.find(key(kRms)) && file.find(key(kLayer)));
    hp.eps = f32(is_layer ? kLayer : kRms, true, 0, 1e-20f, 1.0f);
    graph.both_ways = !flag("attention.causal", !keys.is_encoder);
    if (graph.both_ways != keys.is_encoder && !keys.is_either)
        return fail_with(DUET_ERR_UNSUPPORTED, key("attention.causal") + (keys.is_encoder ? ": want false, got true"
                                                                                          : ": want true, got false"));
    hp.n_experts = i32("expert_count", false, 0, 0, 65536);
    // Some files of dense models tell one expert, and nothing more.
    hp.n_experts_used = i32("expert_used_count", false, hp.n_experts == 1, 0, 65536);
    if (hp.n_experts_used > hp.n_experts || (hp.n_experts > 0 && hp.n_experts_used == 0))
        return wrong("expert_used_count", "want 1 to expert_count %d, got %d", hp.n_experts, hp.n_experts_used);
    uint32_t vocab_size = (uint32_t)hp.n_vocab;
    if (status == DUET_OK) status = file.get_u32(key("vocab_size"), false, 1, UINT32_MAX, &vocab_size, err);
    if (vocab_size != (uint32_t)hp.n_vocab)
        return wrong("vocab_size", "want the %d entries of tokenizer.ggml.tokens, got %u", hp.n_vocab, vocab_size);
    graph.dim = hp.dim;
    graph.n_layers = hp.n_layers;
    graph.n_kv_heads = (int32_t)*std::max_element(hp.n_kv_heads.begin(), hp.n_kv_heads.end());
    graph.n_ctx_train = hp.n_ctx_train;
    return status == DUET_OK;
}

weight_id graph_builder::tensor(const std::string& name, bool required, int64_t n_in, int64_t n_out, int64_t n_mats) {
    if (status != DUET_OK) return -1;
    const auto bad = [&](duet_status code, const std::string& text) {
        fail_with(code, "tensor " + name + ": " + text);
        return -1;
    };
    const gguf_tensor* t = file.find_tensor(name);
    const std::string want = "want shape " + shape_text(n_in, n_out, n_mats);
    if (!t) return required ? bad(DUET_ERR_FORMAT, "missing; " + want) : -1;
    // A single matrix may have its count as a trailing dimension of 1, and a vector may be written as a matrix of one
    // row.
    if (t->dims[0] != n_in || t->dims[1] != n_out || t->dims[2] != n_mats || t->dims[3] != 1)
        return bad(DUET_ERR_FORMAT, "at byte " + std::to_string(t->offset) + ": " + want + ", got " +
                                        shape_text(t->dims[0], t->dims[1], t->dims[2]));
    const number_format* info = find_type(t->type);
    if (!info || !info->decode)
        return bad(DUET_ERR_UNSUPPORTED, std::string("no code for number format ") + (info ? info->name : "?") +
                                             "; requantize the model to a supported one (bin/quantize)");
    used[(size_t)(t - file.tensors.data())] = true;
    const uint64_t row_bytes = (uint64_t)(n_in / info->elems) * (uint64_t)info->bytes;
    weight w{name, t->type, n_in, n_out, n_mats, t->data, t->n_bytes, row_bytes};
    return find_or_add(graph.weights, std::move(w), [&](const weight& other) { return other.name == name; });
}

weight_id graph_builder::block_tensor(int32_t layer, const std::string& name, bool required, int64_t n_in,
                                      int64_t n_out, int64_t n_mats) {
    return tensor("blk." + std::to_string(layer) + "." + name, required, n_in, n_out, n_mats);
}

// An F32 tensor. Only the matrices of matmuls and embeddings may have another format.
bool graph_builder::want_f32(weight_id id) {
    if (status != DUET_OK || id < 0) return false;
    const weight& w = graph.weights[(size_t)id];
    if (w.type == type_id::f32) return true;
    return fail_with(DUET_ERR_FORMAT, "tensor " + w.name + ": must be F32, got " + type_name(w.type));
}

const float* graph_builder::floats(weight_id id) {
    return want_f32(id) ? (const float*)graph.weights[(size_t)id].data : nullptr;
}

bool graph_builder::has(int32_t layer, const char* name) const {
    return file.find_tensor("blk." + std::to_string(layer) + "." + name) != nullptr;
}

view graph_builder::buffer(const char* name, int64_t width, bool wanted_rows) {
    view v{0, 0, 1, (int32_t)width, (int32_t)width};
    if (width > INT32_MAX / 4)
        fail_with(DUET_ERR_FORMAT, std::string("buffer ") + name + ": " + std::to_string(width) + " columns");
    v.buffer = find_or_add(graph.buffers, {name, 0, wanted_rows}, [&](const buffer_info& b) { return b.name == name; });
    buffer_info& b = graph.buffers[(size_t)v.buffer];
    b.width = std::max(b.width, (int32_t)width);
    return v;
}

view graph_builder::heads(view v, int32_t n_heads, int32_t head_dim) {
    return view{v.buffer, v.offset, n_heads, head_dim, head_dim};
}

view graph_builder::columns(view v, int32_t offset, int32_t width) {
    return view{v.buffer, v.offset + offset, 1, width, width};
}

std::string_view graph_builder::rope_scaling(double* factor) {
    // Older files call the factor "rope.scale_linear".
    const float older = f32("rope.scale_linear", false, 1.0f, 1e-6f, 1e6f),
                of_file = f32("rope.scaling.factor", false, older, 1e-6f, 1e6f);
    *factor = chosen_rope.factor != 0 ? chosen_rope.factor : of_file;
    if (!chosen_rope.type.empty()) return chosen_rope.type;
    const std::string_view type = string("rope.scaling.type", *factor != 1.0 ? "linear" : "none");
    return chosen_rope.factor != 0 && (type == "none" || type == "longrope") ? "linear" : type;
}

int32_t graph_builder::original_ctx() {
    const int32_t of_file = i32("rope.scaling.original_context_length", false, hp.n_ctx_train, 1, 1 << 30);
    return chosen_rope.original_ctx ? chosen_rope.original_ctx : of_file;
}

// Frequencies: Su et al. 2021. YaRN: Peng et al. 2023, with the correction range rounded as the models' makers round
// it.
int32_t graph_builder::rope(const rope_options& options) {
    rope_table table;
    if (options.scaling) table.magnitude = f32("rope.scaling.attn_factor", false, 1.0f, 1e-6f, 1e6f);
    const int32_t rope_dim = options.dim ? options.dim : hp.rope_dim, n = rope_dim / 2;
    if (rope_dim == 0 || status != DUET_OK) return -1;
    const float base = options.base != 0 ? options.base : chosen_rope.base != 0 ? chosen_rope.base : hp.rope_base;
    for (int32_t i = 0; i < n; i++) table.freq.push_back(exact_pow64((double)base, -2.0 * i / rope_dim));
    if (options.long_factors >= 0) table.long_freq = table.freq;
    auto divide = [&](std::vector<double>& freq, weight_id w) {
        const float* r = floats(w);
        for (int32_t i = 0; r && i < n; i++) {
            if (!(r[i] >= 1e-6f && r[i] <= FLT_MAX))
                fail_with(DUET_ERR_FORMAT, "tensor " + graph.weights[(size_t)w].name + ": factor " + std::to_string(i) +
                                               ": want 0.000001 to the largest float, got " + std::to_string(r[i]));
            freq[(size_t)i] /= (double)r[i];
        }
    };
    divide(table.freq, options.factors);
    divide(table.long_freq, options.long_factors);
    auto change = [&](auto&& changed) {
        for (auto* freq : {&table.freq, &table.long_freq})
            for (size_t i = 0; i < freq->size(); i++) (*freq)[i] = changed((*freq)[i], (int)i);
    };
    if (!table.long_freq.empty()) table.long_above = original_ctx();
    double factor = 1.0;
    const std::string_view type = options.scaling ? rope_scaling(&factor) : "none";
    if (type == "linear") {
        change([&](double f, int) { return f / factor; });
    } else if (type == "yarn") {
        const double fast = f32("rope.scaling.yarn_beta_fast", false, 32.0f, 1e-3f, 1e6f);
        const double slow = f32("rope.scaling.yarn_beta_slow", false, 1.0f, 1e-3f, 1e6f);
        const double lambda = f32("rope.scaling.yarn_log_multiplier", false, 0.0f, -1e3f, 1e3f);
        const double log_s = exact_log64(factor), d = rope_dim;
        auto beta = [&](double b) {
            return d * exact_log64(original_ctx() / (6.283185307179586477 * b)) / (2.0 * exact_log64((double)base));
        };
        const double lo = std::max(0.0, std::floor(beta(fast))), hi = std::min(d - 1.0, std::ceil(beta(slow)));
        change([&](double f, int i) {
            const double ramp = std::clamp((i - lo) / std::max(0.001, hi - lo), 0.0, 1.0), keep = 1.0 - ramp;
            return f / factor * ramp + f * keep;
        });
        table.magnitude *= 1.0 + 0.1 * log_s;
        if (lambda != 0) table.magnitude /= 1.0 + 0.1 * lambda * log_s;
    } else if (type != "none" && table.long_freq.empty() && status == DUET_OK) {
        fail_with(DUET_ERR_UNSUPPORTED,
                  key("rope.scaling.type") + ": want none, linear or yarn, got " + printable(type));
    }
    if (options.magnitude != 0) table.magnitude = options.magnitude;
    return find_or_add(graph.ropes, table, [&](const rope_table& other) { return other == table; });
}

int32_t graph_builder::state(int64_t n) {
    if (n > INT32_MAX) fail_with(DUET_ERR_FORMAT, "a recurrent state of " + std::to_string(n) + " values");
    graph.states.push_back({n});
    return (int32_t)graph.states.size() - 1;
}

int32_t graph_builder::cache(int32_t n_kv_heads, int32_t k_dim, int32_t v_dim, int32_t window, bool v_in_k) {
    const int32_t group =
        find_or_add(graph.groups, {window}, [&](const cache_group& other) { return other.window == window; });
    graph.caches.push_back({group, n_kv_heads, k_dim, v_dim, v_in_k});
    return (int32_t)graph.caches.size() - 1;
}

op& graph_builder::add(op_kind kind, int32_t layer, view in, view out, view in2) {
    return graph.ops.emplace_back(op{.kind = kind, .layer = layer, .in = in, .in2 = in2, .out = out});
}

op& graph_builder::norm(int32_t layer, view in, view out, weight_id w, weight_id b) {
    return graph.ops.emplace_back(op{
        .kind = op_kind::norm, .norm = hp.norm, .layer = layer, .in = in, .out = out, .w = w, .b = b, .eps = hp.eps});
}

op& graph_builder::matmul(int32_t layer, view in, view out, weight_id w, weight_id b, bool residual) {
    return graph.ops.emplace_back(
        op{.kind = op_kind::matmul, .residual = residual, .layer = layer, .in = in, .out = out, .w = w, .b = b});
}

void graph_builder::activate(int32_t layer, activation act, view in, view in2, view out) {
    add(op_kind::activate, layer, in, out, in2).act = act;
}

void graph_builder::add_scaled(int32_t layer, view in, view in2, view out, float factor) {
    add(op_kind::add, layer, in, out, in2).scale = factor;
}

void graph_builder::scale(int32_t layer, view in, float value) { add(op_kind::scale_cap, layer, in, in).scale = value; }

// NVFP4 files keep one more f32 scale beside a matrix. (input_scale serves 4-bit activations only.)
void graph_builder::scale_matrices() {
    const std::vector<bool> bound = used;  // gemma4 uses a tensor of such a name for something else.
    for (op& o : graph.ops) {
        if (o.kind != op_kind::matmul || o.w < 0) continue;
        std::string name = graph.weights[(size_t)o.w].name;
        if (!name.ends_with(".weight")) continue;
        name.replace(name.size() - 6, 6, "scale");
        const gguf_tensor* t = file.find_tensor(name);
        if (!t || bound[(size_t)(t - file.tensors.data())]) continue;
        const float* value = floats(tensor(name, false, 1));
        if (value && o.b >= 0) fail_with(DUET_ERR_UNSUPPORTED, "tensor " + name + ": a scale of a matrix with a bias");
        else if (value) o.scale *= *value;
    }
}

// Binds a layer behind pooling, of n_in inputs, if it is there. A square one has as many outputs.
bool graph_builder::read_pooled(const char* name, int64_t n_in, bool is_square, std::vector<pooled_layer>* to) {
    const gguf_tensor* t = file.find_tensor(std::string(name) + ".weight");
    if (!t || status != DUET_OK) return false;
    const int64_t n_out = is_square ? n_in : t->dims[1];
    if (n_out > 1 << 20)
        return fail_with(DUET_ERR_FORMAT, name + (": want at most 1048576 outputs, got " + std::to_string(n_out)));
    pooled_layer l;
    l.w = tensor(std::string(name) + ".weight", true, n_in, n_out);
    l.b = tensor(std::string(name) + ".bias", false, n_out);
    l.norm = is_square ? tensor(std::string(name) + ".norm.weight", false, n_out) : -1;
    want_f32(l.b);
    want_f32(l.norm);
    to->push_back(l);
    return status == DUET_OK;
}

// Pooling: Reimers and Gurevych 2019. The scorer: Devlin et al. 2019; its labels' rows alone (cls.output), or a layer
// with tanh before them (cls), which may also be all of it.
void graph_builder::read_pooling() {
    const int32_t kind = i32("pooling_type", false, 0, 0, (int32_t)pooling_kind::rank);
    const pooling_kind of_rank = !graph.both_ways                           ? pooling_kind::last
                                 : graph.rank_pooling == pooling_kind::none ? pooling_kind::first
                                                                            : graph.rank_pooling;
    graph.pooling = kind != 0 ? (pooling_kind)kind : graph.both_ways ? pooling_kind::mean : pooling_kind::last;
    graph.rank_pooling = (pooling_kind)i32("classifier.pooling_type", false, (int32_t)of_rank, 1, 3);
    graph.eps = hp.eps;
    int64_t width = hp.dim;
    for (const char* name : {"dense_2", "dense_3"})
        if (read_pooled(name, width, false, &graph.dense)) width = graph.weights[(size_t)graph.dense.back().w].n_out;
    graph.embedding_dim = (int32_t)width;
    if (read_pooled("cls", hp.dim, file.find_tensor("cls.output.weight") != nullptr, &graph.scorer))
        graph.scorer.back().act = graph.scorer_act;
    read_pooled("cls.output", hp.dim, false, &graph.scorer);
    const gguf_kv* labels = file.find(key("classifier.output_labels"));
    graph.softmax_scores = labels && labels->strings.size() == 2 && labels->strings[0] == "yes";
}

duet_status graph_builder::finish() {
    if (status == DUET_OK) read_pooling();
    scale_matrices();
    if (status != DUET_OK) return status;
    for (size_t i = 0; i < used.size(); i++) {
        const gguf_tensor& t = file.tensors[i];
        const int32_t block = block_of_tensor(t.name);
        const bool is_scale = t.name.ends_with("_exps.scale");
        if (!used[i] && !is_ignored(t.name) && !(block >= hp.n_layers && block < hp.n_blocks))
            fail_with(is_scale ? DUET_ERR_UNSUPPORTED : DUET_ERR_FORMAT,
                      "tensor " + printable(t.name) + ": at byte " + std::to_string(t.offset) +
                          (is_scale ? ": no code for a scale of each expert; take the model in another number format"
                                    : ": architecture " + arch + " has no tensor of this name"));
    }
    for (const op& o : graph.ops) {
        if (!has_matrix(o.kind)) want_f32(o.w);
        want_f32(o.b);
        want_f32(o.w2);
        if (o.w < 0) continue;
        const weight& w = graph.weights[(size_t)o.w];
        graph.decode_bytes += o.kind == op_kind::embed           ? w.row_bytes
                              : o.kind == op_kind::expert_matmul ? w.n_bytes / (uint64_t)w.n_mats * (uint64_t)o.n_used
                                                                 : w.n_bytes;
    }
    return status;
}

duet_status describe_model(const gguf_file& file, int32_t n_vocab, model_graph& graph, error_text& err,
                           const rope_choice& rope) {
    std::string_view name;
    DUET_TRY(file.get_string("general.architecture", true, &name, err));
    for (const arch_row& row : kArchs) {
        if (!has_word(row.names, name)) continue;
        graph_builder g(file, n_vocab, graph, err);
        g.arch = graph.architecture = name;
        g.chosen_rope = rope;
        DUET_TRY(row.describe(g));
        if (graph.ropes.empty() && (rope.factor != 0 || rope.base != 0 || !rope.type.empty()))
            return fail(err, DUET_ERR_UNSUPPORTED, "%s: rope scaling was asked for; architecture %s has no rope",
                        file.path.c_str(), g.arch.c_str());
        if (rope.factor > 1)
            graph.n_ctx_train = (int32_t)std::min<double>((double)graph.n_ctx_train * (double)rope.factor, 1 << 30);
        return DUET_OK;
    }
    std::string known;
    for (const arch_row& row : kArchs) known.append(known.empty() ? "" : " ").append(row.names);
    return fail(err, DUET_ERR_UNSUPPORTED, "%s: general.architecture: no code for '%s'; known: %s", file.path.c_str(),
                printable(name).c_str(), known.c_str());
}

}  // namespace duet
