// tools/quantize.cpp: writes a model in another number format: which tensor gets which format (the table of recipes),
// and the work by rows on all cores. Must not know: how a format is searched for (duet_quantize_row does), anything
// that runtime.h does not say.
// Main path: [tools/quantize.cpp] -> runtime.h -> runtime/formats.cpp, models/gguf_write.cpp
#include "common.h"
#include "json.h"

#include <atomic>
#include <sys/mman.h>
#include <thread>

namespace {

// ---- recipes: the mixes users know --------------------------------------------------------------------------------
// Facts from llama.cpp:src/llama-quant.cpp and, for the file types, llama.cpp:include/llama.h.

struct mix {
    const char* name;
    const char* base;   // format of every tensor that no rule names
    int32_t file_type;  // general.file_type
};
// clang-format off
constexpr mix kMixes[] = {
    {"F32", "F32", 0},          {"F16", "F16", 1},          {"BF16", "BF16", 32},       {"Q4_0", "Q4_0", 2},
    {"Q4_1", "Q4_1", 3},        {"Q5_0", "Q5_0", 8},        {"Q5_1", "Q5_1", 9},        {"Q8_0", "Q8_0", 7},
    {"Q2_K", "Q2_K", 10},       {"Q2_K_S", "Q2_K", 21},     {"Q3_K_S", "Q3_K", 11},     {"Q3_K_M", "Q3_K", 12},
    {"Q3_K_L", "Q3_K", 13},     {"Q4_K_S", "Q4_K", 14},     {"Q4_K_M", "Q4_K", 15},     {"Q5_K_S", "Q5_K", 16},
    {"Q5_K_M", "Q5_K", 17},     {"Q6_K", "Q6_K", 18},       {"IQ4_NL", "IQ4_NL", 25},   {"IQ4_XS", "IQ4_XS", 30},
    {"MXFP4", "MXFP4", 38},     {"MXFP4_MOE", "MXFP4", 38}, {"NVFP4", "NVFP4", 39},     {"Q1_0", "Q1_0", 40},
    {"IQ1_S", "IQ1_S", 24},     {"IQ1_M", "IQ1_M", 31},     {"IQ2_XXS", "IQ2_XXS", 19}, {"IQ2_XS", "IQ2_XS", 20},
    {"IQ2_S", "IQ2_XS", 28},    {"IQ2_M", "IQ2_S", 29},     {"IQ3_XXS", "IQ3_XXS", 23}, {"IQ3_XS", "IQ3_S", 22},
    {"IQ3_S", "IQ3_S", 26},     {"IQ3_M", "IQ3_S", 27},     {"TQ1_0", "TQ1_0", 36},     {"TQ2_0", "TQ2_0", 37},
};
// clang-format on
// Other names of mixes.
constexpr struct {
    const char *name, *mix;
} kAliases[] = {{"Q3_K", "Q3_K_M"}, {"Q4_K", "Q4_K_M"}, {"Q5_K", "Q5_K_M"}};

enum class role { output, token_embd, attn_q, attn_v, attn_k, attn_output, ffn_down, other, any };

// Which role a tensor has: the first row whose text its name holds. Without output.weight, token_embd.weight is the
// output as well.
// clang-format off
constexpr struct { const char* part; role what; } kRoles[] = {
    {"attn_qkv.weight", role::attn_v}, {"attn_kv_b.weight", role::attn_v}, {"attn_v.weight", role::attn_v},
    {"attn_k.weight", role::attn_k},   {"attn_q.weight", role::attn_q},   {"attn_output.weight", role::attn_output}, {"ffn_down", role::ffn_down},
};
// clang-format on

enum class when {
    always,
    odd_row,    // the row is not whole blocks of the base format
    is_expert,  // three dimensions: the matrices of all experts
    experts_4,  // at least 4 experts
    experts_8,  // 8 experts share each attention: it is small beside them
    gqa_4,      // at least 4 query heads per key head: keys and values are small
    layers_80,  // 80 layers with grouped heads (70B): likewise
    more_bits,  // the first and last eighth of the layers, and every third between
    first_2,
    first_4,  // layers
    first_16th,
    first_8th,
};

// The first row that fits decides. "*" stands for every mix.
struct rule {
    const char* mixes;
    role what;
    when at;
    const char* format;
};
// clang-format off
constexpr rule kRules[] = {
    {"Q8_0 MXFP4_MOE",                                        role::output,      when::always,     "Q8_0"},
    {"*",                                                     role::output,      when::odd_row,    "Q8_0"},
    {"IQ1_S IQ1_M IQ2_XXS IQ2_XS IQ2_S IQ2_M IQ3_XXS",        role::output,      when::always,     "Q5_K"},
    {"*",                                                     role::output,      when::always,     "Q6_K"},
    {"MXFP4_MOE",                                             role::any,         when::is_expert,  "MXFP4"},
    {"MXFP4_MOE",                                             role::any,         when::always,     "Q8_0"},
    {"IQ1_S IQ1_M IQ2_XXS IQ2_XS",                            role::token_embd,  when::always,     "Q2_K"},
    {"IQ2_S IQ2_M IQ3_XXS",                                   role::token_embd,  when::always,     "IQ3_S"},
    {"TQ1_0 TQ2_0",                                           role::token_embd,  when::always,     "Q4_K"},
    {"IQ1_S IQ1_M IQ2_XXS IQ2_XS IQ2_S IQ2_M",                role::attn_v,      when::gqa_4,      "Q4_K"},
    {"IQ1_S IQ1_M IQ2_XXS IQ2_XS IQ2_S IQ2_M",                role::attn_v,      when::experts_4,  "Q4_K"},
    {"IQ2_S IQ2_M",                                           role::attn_v,      when::always,     "IQ3_S"},
    {"IQ1_S IQ1_M IQ2_XXS IQ2_XS IQ2_S IQ2_M",                role::attn_v,      when::always,     "Q2_K"},
    {"IQ1_S IQ1_M IQ2_XXS IQ2_XS IQ2_S IQ2_M",                role::attn_k,      when::experts_8,  "Q4_K"},
    {"IQ2_S IQ2_M",                                           role::ffn_down,    when::first_8th,  "IQ3_S"},
    {"IQ1_S IQ1_M IQ2_XXS IQ2_XS IQ2_S IQ2_M",                role::ffn_down,    when::first_8th,  "Q2_K"},
    {"IQ1_S IQ1_M IQ2_XXS IQ2_XS IQ2_S IQ2_M",                role::attn_output, when::experts_8,  "Q5_K"},
    {"IQ1_S IQ1_M",                                           role::attn_output, when::always,     "IQ2_XXS"},
    {"IQ2_S IQ2_M",                                           role::attn_output, when::always,     "IQ3_S"},
    {"*",                                                     role::attn_v,      when::experts_8,  "Q8_0"},
    {"*",                                                     role::attn_k,      when::experts_8,  "Q8_0"},
    {"Q4_K_M Q5_K_M",                                         role::attn_v,      when::more_bits,  "Q6_K"},
    {"Q2_K Q2_K_S Q3_K_S Q3_K_M Q4_K_S Q4_K_M IQ3_XXS IQ3_XS IQ3_S IQ3_M", role::attn_v, when::layers_80,  "Q5_K"},
    {"Q2_K Q2_K_S IQ3_XXS IQ3_XS IQ3_S",                      role::attn_v,      when::gqa_4,      "Q4_K"},
    {"Q2_K",                                                  role::attn_v,      when::always,     "Q3_K"},
    {"Q3_K_M",                                                role::attn_v,      when::first_2,    "Q5_K"},
    {"Q3_K_M",                                                role::attn_v,      when::always,     "Q4_K"},
    {"Q3_K_L",                                                role::attn_v,      when::always,     "Q5_K"},
    {"Q4_K_S",                                                role::attn_v,      when::first_4,    "Q5_K"},
    {"IQ4_NL IQ4_XS",                                        role::attn_v,      when::gqa_4,      "Q5_K"},
    {"IQ3_XXS",                                               role::attn_v,      when::always,     "IQ3_S"},
    {"IQ3_M",                                                 role::attn_v,      when::always,     "Q4_K"},
    {"IQ3_XS",                                                role::attn_k,      when::always,     "IQ3_XXS"},
    {"IQ3_XS",                                                role::attn_q,      when::always,     "IQ3_XXS"},
    {"IQ3_XXS",                                               role::attn_k,      when::always,     "IQ2_S"},
    {"IQ3_XXS",                                               role::attn_q,      when::always,     "IQ2_S"},
    {"IQ3_XXS IQ3_M",                                         role::ffn_down,    when::first_8th,  "Q4_K"},
    {"IQ3_XXS",                                               role::ffn_down,    when::always,     "Q3_K"},
    {"Q2_K",                                                  role::ffn_down,    when::always,     "Q3_K"},
    {"Q2_K_S",                                                role::ffn_down,    when::first_8th,  "Q4_K"},
    {"Q3_K_M",                                                role::ffn_down,    when::first_16th, "Q5_K"},
    {"Q3_K_M",                                                role::ffn_down,    when::always,     "Q4_K"},
    {"Q3_K_L",                                                role::ffn_down,    when::always,     "Q5_K"},
    {"Q4_K_S IQ4_NL IQ4_XS",                                  role::ffn_down,    when::first_8th,  "Q5_K"},
    {"Q4_K_M Q5_K_M",                                         role::ffn_down,    when::more_bits,  "Q6_K"},
    {"Q2_K Q3_K_S Q3_K_M Q4_K_S Q4_K_M IQ4_NL IQ4_XS",        role::attn_output, when::experts_8,  "Q5_K"},
    {"IQ3_XXS IQ3_XS IQ3_S IQ3_M",                            role::attn_output, when::experts_8,  "Q5_K"},
    {"IQ3_XXS",                                               role::attn_output, when::always,     "IQ3_S"},
    {"IQ3_M",                                                 role::attn_output, when::always,     "Q4_K"},
    {"Q3_K_L",                                                role::attn_output, when::experts_8,  "Q3_K"},
    {"Q2_K",                                                  role::attn_output, when::always,     "Q3_K"},
    {"Q3_K_M",                                                role::attn_output, when::always,     "Q4_K"},
    {"Q3_K_L",                                                role::attn_output, when::always,     "Q5_K"},
};
// clang-format on

// What stands in for a format of 256 when a row is not a multiple of it. Rows that are no multiple of 32 become F16.
// clang-format off
constexpr struct { const char *from, *to; } kFallbacks[] = {
    {"Q2_K", "Q4_0"}, {"Q3_K", "Q4_0"}, {"Q4_K", "Q5_0"}, {"Q5_K", "Q5_1"}, {"Q6_K", "Q8_0"}, {"IQ4_XS", "IQ4_NL"},
    {"TQ1_0", "Q4_0"}, {"TQ2_0", "Q4_0"}, {"Q1_0", "Q4_0"}, {"NVFP4", "MXFP4"}, {"IQ1_S", "IQ4_NL"}, {"IQ1_M", "IQ4_NL"},
    {"IQ2_XXS", "IQ4_NL"}, {"IQ2_XS", "IQ4_NL"}, {"IQ2_S", "IQ4_NL"}, {"IQ3_XXS", "IQ4_NL"}, {"IQ3_S", "IQ4_NL"},
};
// clang-format on

// Kept as they are beside all with fewer than two dimensions or another ending than "weight": small, or read by ops
// that take no blocks.
constexpr const char* kKept[] = {
    "_norm.weight",
    "ffn_gate_inp.weight",
    "ffn_gate_tid2eid.weight",
    "altup",
    "laurel",
    "per_layer_model_proj",
    "position_embd",
    "token_types",
    "ssm_conv1d",
    "shortconv.conv.weight",
    "indexer.k_proj.weight",
    "indexer.q_proj.weight",
    "time_mix_first.weight",
    "time_mix_w0.weight",
    "time_mix_w1.weight",
    "time_mix_w2.weight",
    "time_mix_v0.weight",
    "time_mix_v1.weight",
    "time_mix_v2.weight",
    "time_mix_a0.weight",
    "time_mix_a1.weight",
    "time_mix_a2.weight",
    "time_mix_g1.weight",
    "time_mix_g2.weight",
    "time_mix_decay_w1.weight",
    "time_mix_decay_w2.weight",
    "time_mix_lerp_fused.weight",
    "attn_rel_b.weight",
    "sam.pos_embd",
    "sam.neck.",
    "sam.net_",
    ".rel_pos",
    ".patch_embd",
    ".patch_merger",
    "a.rvq.codebook",
    "mm.a.code_embd",
};

// ---- the plan: a format for every tensor --------------------------------------------------------------------------

struct override_rule {
    std::string pattern;
    const duet_type_info* type;
};

struct quantize_options {
    std::string in, out, type;
    const mix* chosen = nullptr;
    int32_t n_threads = 0;
    bool is_pure = false, is_quiet = false;
    std::vector<override_rule> overrides;
    std::string imatrix_path;
    duet_file* imatrix = nullptr;
};

struct planned_tensor {
    duet_tensor t{};
    std::string name;
    const duet_type_info *from = nullptr, *to = nullptr;
    role what = role::other;
    int64_t i_layer = 0, n_layers = 0;  // attn_v: counted among its like, others: of the model
    uint64_t to_bytes = 0;
};

struct model_facts {
    int64_t n_layers = 0, n_experts = 0, n_heads = 0, n_kv_heads = 0;
    bool has_output = false;
};

bool is_same_word(std::string_view a, std::string_view b) {
    return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](char x, char y) {
               return std::toupper((unsigned char)x) == std::toupper((unsigned char)y);
           });
}

const mix* find_mix(std::string_view name) {
    for (const auto& alias : kAliases)
        if (is_same_word(name, alias.name)) name = alias.mix;
    for (const mix& m : kMixes)
        if (is_same_word(name, m.name)) return &m;
    return nullptr;
}

// Is name one of the words of the list?
bool is_listed(const char* list, std::string_view name) {
    for (std::string_view rest = list; !rest.empty();) {
        const size_t end = std::min(rest.find(' '), rest.size());
        if (rest.substr(0, end) == name || rest.substr(0, end) == "*") return true;
        rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    return false;
}

// '*' any text, '?' any character.
bool matches_glob(std::string_view pattern, std::string_view name) {
    size_t p = 0, n = 0, star = std::string_view::npos, resume = 0;
    while (n < name.size()) {
        if (p < pattern.size() && pattern[p] == '*') star = p++, resume = n;
        else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) p++, n++;
        else if (star != std::string_view::npos) p = star + 1, n = ++resume;
        else return false;
    }
    while (p < pattern.size() && pattern[p] == '*') p++;
    return p == pattern.size();
}

bool matches(const std::string& pattern, const std::string& name) {
    return pattern.find_first_of("*?") == std::string::npos ? name.find(pattern) != std::string::npos
                                                            : matches_glob(pattern, name);
}

// A hyper-parameter of the model, 0 when there is none; of one entry per layer the first that is not 0.
int64_t hyper_parameter(const duet_file* file, const std::string& arch, const char* name) {
    const int64_t i = duet_file_find_kv(file, (arch + "." + name).c_str());
    duet_kv kv;
    int64_t value = 0;
    if (i < 0 || duet_file_kv(file, i, &kv) != DUET_OK) return 0;
    for (uint64_t v = 0; v < kv.n_values && value == 0; v++)
        if (duet_file_get_int(file, i, v, &value) != DUET_OK) return 0;
    return value;
}

model_facts read_facts(const duet_file* file) {
    model_facts facts;
    duet_string arch_text{};
    const int64_t i_arch = duet_file_find_kv(file, "general.architecture");
    if (i_arch >= 0) (void)duet_file_get_string(file, i_arch, 0, &arch_text);
    const std::string arch(view_of(arch_text));
    facts.n_layers = hyper_parameter(file, arch, "block_count");
    facts.n_experts = hyper_parameter(file, arch, "expert_count");
    facts.n_heads = hyper_parameter(file, arch, "attention.head_count");
    facts.n_kv_heads = hyper_parameter(file, arch, "attention.head_count_kv");
    facts.has_output = duet_file_find_tensor(file, "output.weight") >= 0;
    return facts;
}

bool holds(when at, const planned_tensor& p, const model_facts& facts, const duet_type_info& base) {
    const int64_t i = p.i_layer, n = p.n_layers;
    switch (at) {
    case when::always: return true;
    case when::odd_row: return p.t.dims[0] % base.elems_per_block != 0;
    case when::is_expert: return p.t.dims[2] > 1;
    case when::experts_4: return facts.n_experts >= 4;
    case when::experts_8: return facts.n_experts == 8;
    case when::gqa_4: return facts.n_kv_heads > 0 && facts.n_heads / facts.n_kv_heads >= 4;
    case when::layers_80: return facts.n_layers == 80 && facts.n_kv_heads > 0 && facts.n_heads != facts.n_kv_heads;
    case when::more_bits: return i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2;
    case when::first_2: return i < 2;
    case when::first_4: return i < 4;
    case when::first_16th: return i < n / 16;
    case when::first_8th: return i < n / 8;
    }
    return false;
}

// May this tensor change its format at all?
bool is_matrix(const planned_tensor& p) {
    const bool is_integer = !p.from->can_quantize && p.from->elems_per_block == 1;
    return (p.t.dims[1] > 1 || p.t.dims[2] > 1 || p.t.dims[3] > 1) && !is_integer;
}
bool is_kept(const planned_tensor& p) {
    for (const char* part : kKept)
        if (p.name.find(part) != std::string::npos) return true;
    return p.name.size() < 6 || p.name.compare(p.name.size() - 6, 6, "weight") != 0;
}

const duet_type_info* choose_format(const planned_tensor& p, const model_facts& facts,
                                    const quantize_options& options) {
    if (!is_matrix(p)) return p.from;
    const duet_type_info* type = duet_type_by_name(options.chosen->base);
    bool is_overridden = false;
    for (const override_rule& o : options.overrides)
        if (!is_overridden && matches(o.pattern, p.name)) type = o.type, is_overridden = true;
    if (!is_overridden && is_kept(p)) return p.from;
    if (!is_overridden && !options.is_pure && type->elems_per_block > 1)
        for (const rule& r : kRules) {
            if (!is_listed(r.mixes, options.chosen->name) || (r.what != role::any && r.what != p.what)) continue;
            if (!holds(r.at, p, facts, *type)) continue;
            type = duet_type_by_name(r.format);
            break;
        }
    for (const auto& fallback : kFallbacks)
        if (p.t.dims[0] % type->elems_per_block != 0 && is_same_word(type->name, fallback.from))
            type = duet_type_by_name(fallback.to);
    return p.t.dims[0] % type->elems_per_block != 0 ? duet_type_by_name("F16") : type;
}

duet_status make_plan(const duet_file* file, const quantize_options& options, std::vector<planned_tensor>* plan,
                      tool_error* error) {
    const model_facts facts = read_facts(file);
    std::vector<int64_t> attn_v_layers;
    for (int64_t i = 0; i < duet_file_n_tensors(file); i++) {
        planned_tensor p;
        if (const duet_status status = duet_file_tensor(file, i, &p.t))
            return error->set(status, duet_file_error(file));
        p.name.assign(p.t.name.data, (size_t)p.t.name.n_bytes);
        p.from = duet_type_by_id(p.t.type_id);
        if (!p.from) return error->set(DUET_ERR_UNSUPPORTED, "tensor " + json_string(p.name) + ": unknown format");
        for (size_t r = std::size(kRoles); r-- > 0;)
            if (p.name.find(kRoles[r].part) != std::string::npos) p.what = kRoles[r].what;
        if (p.name == (facts.has_output ? "output.weight" : "token_embd.weight")) p.what = role::output;
        else if (p.name == "token_embd.weight") p.what = role::token_embd;
        long long i_layer = 0;
        if (std::sscanf(p.name.c_str(), "blk.%lld.", &i_layer) == 1) p.i_layer = i_layer;
        p.n_layers = facts.n_layers;
        if (p.what == role::attn_v) attn_v_layers.push_back(p.i_layer);
        plan->push_back(std::move(p));
    }
    for (const override_rule& o : options.overrides)
        if (std::none_of(plan->begin(), plan->end(),
                         [&](const planned_tensor& p) { return matches(o.pattern, p.name); }))
            return error->set(DUET_ERR_ARG, "--type " + o.pattern + ": no tensor has such a name");
    std::sort(attn_v_layers.begin(), attn_v_layers.end());
    for (planned_tensor& p : *plan) {
        if (p.what == role::attn_v) {  // not every layer of a hybrid has attention
            p.i_layer = std::lower_bound(attn_v_layers.begin(), attn_v_layers.end(), p.i_layer) - attn_v_layers.begin();
            p.n_layers = (int64_t)attn_v_layers.size();
        }
        p.to = choose_format(p, facts, options);
        if (p.to == p.from) p.to_bytes = p.t.n_bytes;
        else
            p.to_bytes = p.t.n_bytes / (uint64_t)p.from->bytes_per_block * (uint64_t)p.from->elems_per_block /
                         (uint64_t)p.to->elems_per_block * (uint64_t)p.to->bytes_per_block;
        if (p.to != p.from && !p.from->can_quantize)
            return error->set(DUET_ERR_UNSUPPORTED, "tensor " + json_string(p.name) +
                                                        ": want to change its format, but this build cannot read " +
                                                        p.from->name);
    }
    return DUET_OK;
}

// ---- the work -----------------------------------------------------------------------------------------------------

// Room for the new tensors until the file is saved: pages of an unlinked file beside the output, so that the system
// can put them on disk and a model larger than the memory can be made. Its blocks are reserved first: a full disk is
// an error here, not a signal later.
class scratch_space {
  public:
    ~scratch_space() {
        if (data_ != MAP_FAILED) ::munmap(data_, n_bytes_);
    }
    duet_status reserve(const std::string& beside, uint64_t n_bytes, tool_error* error) {
        if (n_bytes == 0) return DUET_OK;
        std::string path = beside + ".XXXXXX";
        const int fd = ::mkstemp(path.data());
        if (fd < 0) return error->set(DUET_ERR_IO, beside + ": cannot be written: " + std::strerror(errno));
        ::unlink(path.c_str());
        int code = ::posix_fallocate(fd, 0, (off_t)n_bytes);
        if (code == 0) {
            data_ = ::mmap(nullptr, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
            if (data_ == MAP_FAILED) code = errno;
        }
        ::close(fd);
        n_bytes_ = n_bytes;
        if (code == 0) return DUET_OK;
        return error->set(DUET_ERR_IO, beside + ": no room for " + std::to_string(n_bytes) +
                                           " bytes beside it: " + std::strerror(code));
    }
    uint8_t* data() const { return (uint8_t*)data_; }

  private:
    void* data_ = MAP_FAILED;
    uint64_t n_bytes_ = 0;
};

// Converts the rows of one tensor on n_threads threads. *n_odd: values that are not finite before or (F16) after.
duet_status convert(const planned_tensor& p, const std::vector<float>& importance, int32_t n_threads, uint8_t* dst,
                    uint64_t* n_odd) {
    constexpr int64_t kElemsAtOnce = 1 << 16;
    const int64_t n_cols = p.t.dims[0], n_rows = p.t.dims[1] * p.t.dims[2] * p.t.dims[3];
    const int64_t rows_at_once = std::max<int64_t>(1, kElemsAtOnce / n_cols);
    const size_t from_row = (size_t)(n_cols / p.from->elems_per_block * p.from->bytes_per_block);
    const size_t to_row = (size_t)(n_cols / p.to->elems_per_block * p.to->bytes_per_block);
    std::atomic<int64_t> next_row{0};
    std::atomic<uint64_t> odd{0};
    std::atomic<duet_status> result{DUET_OK};
    const auto work = [&] {
        try {
            std::vector<float> values((size_t)(std::min(rows_at_once, n_rows) * n_cols)), weights;
            if (!importance.empty()) weights.resize(values.size());
            for (int64_t row; result == DUET_OK && (row = next_row.fetch_add(rows_at_once)) < n_rows;) {
                const int64_t n_elems = std::min(rows_at_once, n_rows - row) * n_cols;
                duet_status status = duet_dequantize_row(p.from->id, (const uint8_t*)p.t.data + (size_t)row * from_row,
                                                         n_elems, values.data());
                for (int64_t r = 0; r < n_elems / n_cols && !importance.empty();
                     r++)  // a row of weights for each matrix
                    std::copy_n(importance.begin() + (row + r) / p.t.dims[1] * n_cols, n_cols,
                                weights.begin() + r * n_cols);
                if (status == DUET_OK)
                    status =
                        duet_quantize_row(p.to->id, values.data(), n_elems,
                                          importance.empty() ? nullptr : weights.data(), dst + (size_t)row * to_row);
                if (status != DUET_OK) result = status;
                const float limit = is_same_word(p.to->name, "F16") ? 65504.0f : 3.4028235e38f;
                uint64_t n = 0;
                for (int64_t i = 0; i < n_elems; i++) n += !(std::fabs(values[(size_t)i]) <= limit);
                odd += n;
            }
        } catch (const std::bad_alloc&) { result = DUET_ERR_MEMORY; }
    };
    std::vector<std::thread> threads;
    for (int32_t t = 1; t < n_threads; t++) {
        try {
            threads.emplace_back(work);
        } catch (const std::system_error&) {
            break;  // fewer threads do
        }
    }
    work();
    for (std::thread& thread : threads) thread.join();
    *n_odd = odd;
    return result;
}

// A tensor's rows of importance, one for each of its matrices: sums / counts. Empty: the matrix does not know the
// tensor.
// Format: llama.cpp:tools/imatrix/imatrix.cpp, tools/quantize/quantize.cpp.
duet_status read_importance(const quantize_options& options, const planned_tensor& p, std::vector<float>* out,
                            tool_error* error) {
    out->clear();
    if (!options.imatrix || p.to->elems_per_block == 1) return DUET_OK;
    const int64_t i_sums = duet_file_find_tensor(options.imatrix, (p.name + ".in_sum2").c_str());
    const int64_t i_counts = duet_file_find_tensor(options.imatrix, (p.name + ".counts").c_str());
    if (i_sums < 0 || i_counts < 0) {
        std::fprintf(stderr, "note: tensor %s: no entry in %s: all its weights count alike\n",
                     json_string(p.name).c_str(), options.imatrix_path.c_str());
        return DUET_OK;
    }
    duet_tensor sums{}, counts{};
    const int64_t n_cols = p.t.dims[0], n_mats = p.t.dims[2] * p.t.dims[3];
    (void)duet_file_tensor(options.imatrix, i_sums, &sums);
    (void)duet_file_tensor(options.imatrix, i_counts, &counts);
    const int64_t n_sums = sums.dims[1] * sums.dims[2] * sums.dims[3];
    const int64_t n_counts = counts.dims[0] * counts.dims[1] * counts.dims[2] * counts.dims[3];
    if (sums.type_id != 0 || counts.type_id != 0 || sums.dims[0] != n_cols || n_sums != n_mats || n_counts != n_mats)
        return error->set(DUET_ERR_FORMAT, options.imatrix_path + ": tensor " + json_string(p.name) +
                                               ": want F32 sums of " + std::to_string(n_cols) + " x " +
                                               std::to_string(n_mats) + " and as many counts, got " +
                                               std::to_string(sums.dims[0]) + " x " + std::to_string(n_sums) + " and " +
                                               std::to_string(n_counts) + ": made for another model");
    const float *from = (const float*)sums.data, *n = (const float*)counts.data;
    out->assign(from, from + n_cols * n_mats);
    for (int64_t i = 0; i < n_cols * n_mats; i++) {  // an expert that no token chose: all alike
        float& v = (*out)[(size_t)i];
        v = n[i / n_cols] > 0 ? v / n[i / n_cols] : 1.0f;
        if (!(v >= 0 && std::isfinite(v)))
            return error->set(DUET_ERR_FORMAT, options.imatrix_path + ": tensor " + json_string(p.name) + ": sum " +
                                                   std::to_string(i) + ": want a finite number of 0 or more");
    }
    return DUET_OK;
}

duet_status open_imatrix(const quantize_options& options, duet_file** out, tool_error* error) {
    if (const duet_status status = duet_file_open(options.imatrix_path.c_str(), out))
        return error->set(status,
                          std::string(*out ? duet_file_error(*out) : "") +
                              " (want an importance matrix in the GGUF form, as bin/perplexity --imatrix writes it)");
    duet_string type{};
    const int64_t i_type = duet_file_find_kv(*out, "general.type");
    if (i_type >= 0) (void)duet_file_get_string(*out, i_type, 0, &type);
    if (view_of(type) != "imatrix")
        return error->set(DUET_ERR_FORMAT,
                          options.imatrix_path + ": general.type: want imatrix, got " + json_string(view_of(type)));
    return DUET_OK;
}

std::string shape_of(const duet_tensor& t) {
    std::string text;
    for (int32_t d = 0; d < t.n_dims; d++) text += (d ? " x " : "") + std::to_string(t.dims[d]);
    return text;
}

duet_status write_model(const duet_file* file, const std::vector<planned_tensor>& plan, const quantize_options& options,
                        tool_error* error) {
    uint64_t scratch_bytes = 0, from_bytes = 0, to_bytes = 0;
    size_t n_requantized = 0;
    for (const planned_tensor& p : plan) {
        if (p.to != p.from) scratch_bytes += p.to_bytes;
        n_requantized += p.to != p.from && p.from->elems_per_block > 1;
        from_bytes += p.t.n_bytes;
        to_bytes += p.to_bytes;
    }
    if (n_requantized)
        std::fprintf(stderr, "note: %zu tensors are quantized already; they are decoded first, their losses stay\n",
                     n_requantized);
    scratch_space scratch;
    if (const duet_status status = scratch.reserve(options.out, scratch_bytes, error)) return status;
    duet_writer* made = nullptr;
    duet_status status = duet_writer_create(&made);
    writer_ptr writer(made);
    if (!made) return error->set(DUET_ERR_MEMORY, "");
    if (status == DUET_OK) status = duet_writer_copy_kv(made, file);
    if (status == DUET_OK) status = duet_writer_set_int(made, "general.quantization_version", DUET_KV_U32, 2);
    if (status == DUET_OK)
        status = duet_writer_set_int(made, "general.file_type", DUET_KV_U32, options.chosen->file_type);
    if (status == DUET_OK && options.imatrix)
        status = duet_writer_set_string(made, "quantize.imatrix.file", options.imatrix_path.data(),
                                        options.imatrix_path.size());
    const double began = now_seconds();
    const int32_t n_threads =
        options.n_threads ? options.n_threads : std::max(1, (int32_t)std::thread::hardware_concurrency());
    uint8_t* dst = scratch.data();
    for (size_t i = 0; i < plan.size() && status == DUET_OK; i++) {
        const planned_tensor& p = plan[i];
        uint64_t n_odd = 0;
        if (!options.is_quiet)
            std::fprintf(stderr, "[%4zu/%zu] %-36s %18s  %7s -> %-7s %9.2f MB\n", i + 1, plan.size(),
                         json_string(p.name).c_str(), shape_of(p.t).c_str(), p.from->name,
                         p.to == p.from ? "same" : p.to->name, (double)p.to_bytes / 1e6);
        if (p.to != p.from) {
            std::vector<float> importance;
            if (const duet_status failed = read_importance(options, p, &importance, error)) return failed;
            if (const duet_status failed = convert(p, importance, n_threads, dst, &n_odd))
                return error->set(failed, "tensor " + json_string(p.name) + ": " + duet_status_name(failed));
            if (n_odd)
                std::fprintf(stderr, "warning: tensor %s: %llu values are NaN, infinite, or beyond the format\n",
                             json_string(p.name).c_str(), (unsigned long long)n_odd);
        }
        status = duet_writer_add_tensor(made, p.name.c_str(), p.to->id, p.t.n_dims, p.t.dims,
                                        p.to == p.from ? p.t.data : dst);
        if (p.to != p.from) dst += p.to_bytes;
    }
    if (status == DUET_OK) status = duet_writer_save(made, options.out.c_str());
    if (status != DUET_OK) return error->set(status, duet_writer_error(made));
    std::fprintf(stderr, "%s: %s, %zu tensors, %.2f MB -> %.2f MB in %.1f s\n", options.out.c_str(),
                 options.chosen->name, plan.size(), (double)from_bytes / 1e6, (double)to_bytes / 1e6,
                 now_seconds() - began);
    return DUET_OK;
}

// "GLOB=TYPE"; returns what is wrong with it.
std::string add_override(const std::string& text, quantize_options* options) {
    const size_t equals = text.rfind('=');
    const duet_type_info* type = equals == std::string::npos ? nullptr : duet_type_by_name(text.c_str() + equals + 1);
    if (equals == 0 || !type || !type->can_quantize)
        return "want NAME=TYPE with a format that can be made, such as attn_v=Q8_0";
    options->overrides.push_back({text.substr(0, equals), type});
    return "";
}

bool is_same_file(const std::string& a, const std::string& b) {
    struct stat sa, sb;
    return ::stat(a.c_str(), &sa) == 0 && ::stat(b.c_str(), &sb) == 0 && sa.st_dev == sb.st_dev &&
           sa.st_ino == sb.st_ino;
}

}  // namespace

int main(int argc, char** argv) {
    quantize_options options;
    std::string names;
    for (const mix& m : kMixes) names += (names.empty() ? "" : " ") + std::string(m.name);
    tool_args args("quantize", "IN.gguf OUT.gguf TYPE [options]", "Writes a model in another number format.");
    args.positional("IN.gguf", "the model to read; F32, F16 or BF16 is best, quantized ones are decoded first",
                    &options.in);
    args.positional("OUT.gguf", "the file to write", &options.out);
    args.positional("TYPE", names + "; Q3_K, Q4_K, Q5_K mean the _M mix", &options.type);
    args.integer("-t, --threads", "N", "threads (0: all)", &options.n_threads, 0, kMaxThreads);
    args.call("--type, --tensor-type", "NAME=TYPE",
              "format of the tensors whose name holds NAME (or fits it, with * and ?); may be repeated, the first that "
              "fits counts",
              [&](const std::string& v) { return add_override(v, &options); });
    args.text("--imatrix", "FILE",
              "importance matrix (bin/perplexity --imatrix, or llama.cpp's in the GGUF form): what the text "
              "used most becomes most exact",
              &options.imatrix_path);
    args.flag("--pure", "TYPE for every matrix, instead of the mix's recipe", &options.is_pure);
    args.flag("-q, --quiet", "do not list the tensors", &options.is_quiet);
    int code = kExitGood;
    if (!args.parse(argc, argv, &code)) return code;
    options.chosen = find_mix(options.type);
    if (!options.chosen)
        return args.usage_error("unknown TYPE '" + options.type + "', want one of " + names), kExitUsage;
    if (is_same_file(options.in, options.out))
        return args.usage_error("OUT.gguf is IN.gguf: " + options.out), kExitUsage;
    return finish_tool("quantize", [&](tool_error* error) {
        duet_file* opened = nullptr;
        const duet_status status = duet_file_open(options.in.c_str(), &opened);
        file_ptr file(opened);
        if (status != DUET_OK) return error->set(status, opened ? duet_file_error(opened) : "");
        duet_file* matrix = nullptr;
        if (!options.imatrix_path.empty() && open_imatrix(options, &matrix, error) != DUET_OK)
            return duet_file_free(matrix), error->status;
        file_ptr imatrix(matrix);
        options.imatrix = matrix;
        std::vector<planned_tensor> plan;
        if (const duet_status planned = make_plan(opened, options, &plan, error)) return planned;
        return write_model(opened, plan, options, error);
    });
}
