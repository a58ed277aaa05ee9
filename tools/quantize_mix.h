// tools/quantize_mix.h: chooses the number format of each tensor. The mixes that users know by name stand here as
// tables, with the code that makes a plan for a file.
// Owns: the tables. Must not know: how a format is made, what is written.
// Main path: tools/quantize.cpp -> [tools/quantize_mix.h] -> runtime.h
#pragma once
#include "common.h"
#include "json.h"

// ---- recipes: the mixes that users know ---------------------------------------------------------------------------
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
// clang-format off
constexpr struct { const char *name, *mix; } kAliases[] = {{"Q3_K", "Q3_K_M"}, {"Q4_K", "Q4_K_M"}, {"Q5_K", "Q5_K_M"}};
// clang-format on

enum class role { output, token_embd, attn_q, attn_v, attn_k, attn_output, ffn_down, ffn_in, other, any };

// A tensor has the role of the first row whose text occurs in its name. In a model without output.weight,
// token_embd.weight is also the output. A table of embeddings for each layer has the role of token_embd.weight.
// clang-format off
constexpr struct { const char* part; role what; } kRoles[] = {
    {"attn_qkv.weight", role::attn_v}, {"attn_kv_b.weight", role::attn_v}, {"attn_v.weight", role::attn_v},
    {"attn_k.weight", role::attn_k},   {"attn_q.weight", role::attn_q},   {"attn_output.weight", role::attn_output}, {"ffn_down", role::ffn_down},
    {"ffn_up", role::ffn_in}, {"ffn_gate", role::ffn_in},
};
// clang-format on

enum class when {
    always,
    odd_row,    // the row does not divide into blocks of the base format
    is_expert,  // three dimensions: the matrices of all experts
    experts_4,  // at least 4 experts
    experts_8,  // 8 experts share each attention, so attention is small beside them
    gqa_4,      // at least 4 query heads per key head, so keys and values are small
    layers_80,  // 80 layers with grouped heads (70B), so keys and values are small
    more_bits,  // the first and last eighth of the layers, and every third between
    first_2,
    first_4,  // layers
    first_16th,
    first_8th,
    first_8th_experts,  // first_8th, and with 8 experts more_bits
    middle,             // neither the first nor the last eighth
    guided_8th,         // first_8th, with an importance matrix
    unguided,           // without an importance matrix
    unguided_8th,       // first_8th, without one
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
    {"IQ3_XXS",                                               role::attn_v,      when::unguided,   "IQ3_S"},
    {"IQ3_M",                                                 role::attn_v,      when::always,     "Q4_K"},
    {"IQ3_XS",                                                role::attn_k,      when::always,     "IQ3_XXS"},
    {"IQ3_XS",                                                role::attn_q,      when::always,     "IQ3_XXS"},
    {"IQ3_XXS",                                               role::attn_k,      when::always,     "IQ2_S"},
    {"IQ3_XXS",                                               role::attn_q,      when::always,     "IQ2_S"},
    {"IQ3_XS",                                                role::ffn_in,      when::middle,     "IQ3_XXS"},
    {"IQ3_M",                                                 role::ffn_down,    when::first_8th_experts, "Q4_K"},
    {"IQ3_XXS",                                               role::ffn_down,    when::unguided_8th, "Q4_K"},
    {"IQ3_XXS",                                               role::ffn_down,    when::unguided,   "Q3_K"},
    {"Q4_0",                                                  role::ffn_down,    when::guided_8th, "Q4_1"},
    {"Q5_0",                                                  role::ffn_down,    when::guided_8th, "Q5_1"},
    {"Q2_K",                                                  role::ffn_down,    when::always,     "Q3_K"},
    {"Q2_K_S",                                                role::ffn_down,    when::first_8th,  "Q4_K"},
    {"Q3_K_M",                                                role::ffn_down,    when::first_16th, "Q5_K"},
    {"Q3_K_M",                                                role::ffn_down,    when::always,     "Q4_K"},
    {"Q3_K_L",                                                role::ffn_down,    when::always,     "Q5_K"},
    {"Q4_K_S",                                                role::ffn_down,    when::first_8th,  "Q5_K"},
    {"IQ4_NL IQ4_XS",                                         role::ffn_down,    when::unguided_8th, "Q5_K"},
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

// If a row is not a multiple of a format's block, this table names the format used instead. Rows that are no multiple
// of 32 become F16.
// clang-format off
constexpr struct { const char *from, *to; } kFallbacks[] = {
    {"Q2_K", "Q4_0"}, {"Q3_K", "Q4_0"}, {"Q4_K", "Q5_0"}, {"Q5_K", "Q5_1"}, {"Q6_K", "Q8_0"}, {"IQ4_XS", "IQ4_NL"},
    {"TQ1_0", "Q4_0"}, {"TQ2_0", "Q4_0"}, {"Q1_0", "Q4_0"}, {"NVFP4", "MXFP4"}, {"IQ1_S", "IQ4_NL"}, {"IQ1_M", "IQ4_NL"},
    {"IQ2_XXS", "IQ4_NL"}, {"IQ2_XS", "IQ4_NL"}, {"IQ2_S", "IQ4_NL"}, {"IQ3_XXS", "IQ4_NL"}, {"IQ3_S", "IQ4_NL"},
};
// clang-format on

// Tensors whose name contains one of these texts keep their format: they are small, or their ops do not take blocks.
// Tensors of fewer than two dimensions, and those whose name does not end in "weight", keep theirs too.
// clang-format off
constexpr const char* kKept[] = {
    "_norm.weight", "ffn_gate_inp.weight", "ffn_gate_tid2eid.weight", "altup", "laurel", "per_layer_model_proj",
    "position_embd", "token_types", "ssm_conv1d", "shortconv.conv.weight", "indexer.k_proj.weight",
    "indexer.q_proj.weight", "time_mix_first.weight", "time_mix_w0.weight", "time_mix_w1.weight",
    "time_mix_w2.weight", "time_mix_v0.weight", "time_mix_v1.weight", "time_mix_v2.weight", "time_mix_a0.weight",
    "time_mix_a1.weight", "time_mix_a2.weight", "time_mix_g1.weight", "time_mix_g2.weight",
    "time_mix_decay_w1.weight", "time_mix_decay_w2.weight", "time_mix_lerp_fused.weight", "attn_rel_b.weight",
    "sam.pos_embd", "sam.neck.", "sam.net_", ".rel_pos", ".patch_embd", ".patch_merger", "a.rvq.codebook",
    "mm.a.code_embd",
};
// clang-format on

// ---- the plan: a format for every tensor --------------------------------------------------------------------------

struct override_rule {
    std::string pattern;
    const duet_type_info* type;
};

struct quantize_options {
    std::string in, out, type;
    const mix* chosen = nullptr;
    int32_t n_threads = 0;
    bool is_pure = false, is_quiet = false, is_verbose = false;
    std::vector<override_rule> overrides;
    std::string imatrix_path;
    duet_file* imatrix = nullptr;
};

struct planned_tensor {
    duet_tensor t{};
    std::string name;
    const duet_type_info *from = nullptr, *to = nullptr, *wanted = nullptr;  // wanted: if its block divides the rows
    role what = role::other;
    int64_t i_layer = 0, n_layers = 0;  // attn_v: position among the attn_v tensors; other roles: layer of the model
    uint64_t to_bytes = 0;
};

struct model_facts {
    int64_t n_layers = 0, n_experts = 0, n_heads = 0, n_kv_heads = 0;
    bool has_output = false, has_imatrix = false;
};

inline bool is_same_word(std::string_view a, std::string_view b) {
    return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), [](char x, char y) {
               return std::toupper((unsigned char)x) == std::toupper((unsigned char)y);
           });
}

inline const mix* find_mix(std::string_view name) {
    for (const auto& alias : kAliases)
        if (is_same_word(name, alias.name)) name = alias.mix;
    for (const mix& m : kMixes)
        if (is_same_word(name, m.name)) return &m;
    return nullptr;
}

// Returns whether name is one of the words of the list.
inline bool is_listed(const char* list, std::string_view name) {
    for (const std::string_view word : parts_of(list, " "))
        if (word == name || word == "*") return true;
    return false;
}

// Matches a pattern: '*' stands for any text, '?' for any character.
inline bool matches_glob(std::string_view pattern, std::string_view name) {
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

// A name with a point begins one of the parts between points: output.weight is no part of attn_output.weight.
inline bool matches(const std::string& pattern, const std::string& name) {
    if (pattern.find_first_of("*?") != pattern.npos) return matches_glob(pattern, name);
    const char* before = pattern[0] != '.' && pattern.find('.') != pattern.npos ? "." : "";
    return ("." + name).find(before + pattern) != name.npos;
}

// Returns a hyper-parameter of the model, or 0 if there is none. If it has one entry per layer, returns the first that
// is not 0.
inline int64_t hyper_parameter(const duet_file* file, const std::string& arch, const char* name) {
    const int64_t i = duet_file_find_kv(file, (arch + "." + name).c_str());
    duet_kv kv;
    int64_t value = 0;
    if (i < 0 || duet_file_kv(file, i, &kv) != DUET_OK) return 0;
    for (uint64_t v = 0; v < kv.n_values && value == 0; v++)
        if (duet_file_get_int(file, i, v, &value) != DUET_OK) return 0;
    return value;
}

inline model_facts read_facts(const duet_file* file) {
    model_facts facts;
    duet_string arch_text{};
    const int64_t i_arch = duet_file_find_kv(file, "general.architecture");
    if (i_arch < 0 || duet_file_get_string(file, i_arch, 0, &arch_text) != DUET_OK) arch_text = {};
    const std::string arch(view_of(arch_text));
    facts.n_layers = hyper_parameter(file, arch, "block_count");
    facts.n_experts = hyper_parameter(file, arch, "expert_count");
    facts.n_heads = hyper_parameter(file, arch, "attention.head_count");
    facts.n_kv_heads = hyper_parameter(file, arch, "attention.head_count_kv");
    facts.has_output = duet_file_find_tensor(file, "output.weight") >= 0;
    return facts;
}

inline bool holds(when at, const planned_tensor& p, const model_facts& facts, const duet_type_info& base) {
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
    case when::first_8th_experts: return i < n / 8 || (facts.n_experts == 8 && holds(when::more_bits, p, facts, base));
    case when::middle: return i >= n / 8 && i < 7 * n / 8;
    case when::guided_8th: return facts.has_imatrix && i < n / 8;
    case when::unguided: return !facts.has_imatrix;
    case when::unguided_8th: return !facts.has_imatrix && i < n / 8;
    }
    return false;
}

// Returns whether this tensor may change its format at all.
inline bool is_matrix(const planned_tensor& p) {
    const bool is_integer = !p.from->can_quantize && p.from->elems_per_block == 1;
    return (p.t.dims[1] > 1 || p.t.dims[2] > 1 || p.t.dims[3] > 1) && !is_integer;
}
inline bool is_kept(const planned_tensor& p) {
    for (const char* part : kKept)
        if (p.name.find(part) != std::string::npos) return true;
    return p.name.size() < 6 || p.name.compare(p.name.size() - 6, 6, "weight") != 0;
}

inline const duet_type_info* choose_format(planned_tensor& p, const model_facts& facts,
                                           const quantize_options& options) {
    if (!is_matrix(p)) return p.from;
    const auto fits = [&](const override_rule& o) { return matches(o.pattern, p.name); };
    const auto own = std::ranges::find_if(options.overrides, fits);
    const bool is_overridden = own != options.overrides.end();
    const duet_type_info* type = is_overridden ? own->type : duet_type_by_name(options.chosen->base);
    if (!is_overridden && is_kept(p)) return p.from;
    if (!is_overridden && !options.is_pure && type->elems_per_block > 1)
        for (const rule& r : kRules) {
            if (!is_listed(r.mixes, options.chosen->name) || (r.what != role::any && r.what != p.what)) continue;
            if (!holds(r.at, p, facts, *type)) continue;
            type = duet_type_by_name(r.format);
            break;
        }
    p.wanted = type;
    for (const auto& fallback : kFallbacks)
        if (p.t.dims[0] % type->elems_per_block != 0 && is_same_word(type->name, fallback.from))
            type = duet_type_by_name(fallback.to);
    return p.t.dims[0] % type->elems_per_block != 0 ? duet_type_by_name("F16") : type;
}

inline duet_status make_plan(const duet_file* file, const quantize_options& options, std::vector<planned_tensor>* plan,
                             tool_error* error) {
    model_facts facts = read_facts(file);
    facts.has_imatrix = options.imatrix != nullptr;
    std::vector<int64_t> attn_v_layers;
    for (int64_t i = 0; i < duet_file_n_tensors(file); i++) {
        planned_tensor p;
        if (const duet_status st = duet_file_tensor(file, i, &p.t)) return error->set(st, duet_file_error(file));
        p.name.assign(p.t.name.data, (size_t)p.t.name.n_bytes);
        p.from = duet_type_by_id(p.t.type_id);
        if (!p.from) return error->set(DUET_ERR_UNSUPPORTED, "tensor " + json_string(p.name) + ": unknown format");
        for (size_t r = std::size(kRoles); r-- > 0;)
            if (p.name.find(kRoles[r].part) != std::string::npos) p.what = kRoles[r].what;
        const bool is_embd = p.name == "token_embd.weight" || p.name == "per_layer_token_embd.weight";
        if (p.name == "output.weight" || (is_embd && !facts.has_output)) p.what = role::output;
        else if (is_embd) p.what = role::token_embd;
        long long i_layer = 0;
        if (std::sscanf(p.name.c_str(), "blk.%lld.", &i_layer) == 1) p.i_layer = i_layer;
        p.n_layers = facts.n_layers;
        if (p.what == role::attn_v) attn_v_layers.push_back(p.i_layer);
        plan->push_back(std::move(p));
    }
    for (const override_rule& o : options.overrides)
        if (std::none_of(plan->begin(), plan->end(),
                         [&](const auto& p) { return is_matrix(p) && matches(o.pattern, p.name); }))
            return error->set(DUET_ERR_ARG, "--type " + o.pattern + ": no tensor of two dimensions has such a name");
    std::sort(attn_v_layers.begin(), attn_v_layers.end());
    size_t n_guided = 0, n_unguided = 0;  // by the importance matrix, of what is quantized
    for (planned_tensor& p : *plan) {
        if (p.what == role::attn_v) {  // not every layer of a hybrid model has attention
            p.i_layer = std::lower_bound(attn_v_layers.begin(), attn_v_layers.end(), p.i_layer) - attn_v_layers.begin();
            p.n_layers = (int64_t)attn_v_layers.size();
        }
        p.to = choose_format(p, facts, options);
        p.to_bytes = p.t.n_bytes / (uint64_t)p.from->bytes_per_block * (uint64_t)p.from->elems_per_block /
                     (uint64_t)p.to->elems_per_block * (uint64_t)p.to->bytes_per_block;
        if (p.to != p.from && !p.from->can_quantize)
            return error->set(DUET_ERR_UNSUPPORTED, "tensor " + json_string(p.name) +
                                                        ": want to change its format, but this build cannot read " +
                                                        p.from->name);
        if (options.imatrix && p.to != p.from && p.to->elems_per_block > 1)
            ++(duet_file_find_tensor(options.imatrix, (p.name + ".in_sum2").c_str()) < 0 ? n_unguided : n_guided);
    }
    if (n_unguided && !n_guided)
        return error->set(DUET_ERR_FORMAT, options.imatrix_path + ": has no entry for any of the " +
                                               std::to_string(n_unguided) + " tensors: made for another model");
    return DUET_OK;
}
