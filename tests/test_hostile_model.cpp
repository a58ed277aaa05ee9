// tests/test_hostile_model.cpp: whole tiny models, and copies with one hyper-parameter, tensor or vocabulary entry that
// contradicts the rest. Each is a well-formed file, so only opening it as a model can refuse it.
#include "hostile.h"

#include "../runtime.h"
#include "doctest.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace {

constexpr uint32_t kDim = 32, kLayers = 2, kHeads = 2, kKvHeads = 1, kFfn = 64;
const float kNan = std::numeric_limits<float>::quiet_NaN(), kInf = std::numeric_limits<float>::infinity();

// Returns the UTF-8 of the character that stands for a byte in byte-level BPE (gpt-2's bytes_to_unicode).
std::string bpe_byte(int byte) {
    static const std::vector<int> code = [] {
        std::vector<int> c(256);
        int next = 256;
        for (int b = 0; b < 256; b++)
            c[b] = (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || b >= 0xae ? b : next++;
        return c;
    }();
    const int c = code[byte];
    return c < 0x80 ? std::string(1, (char)c) : std::string{(char)(0xc0 | c >> 6), (char)(0x80 | (c & 63))};
}

raw_gguf llama_without_vocab(uint64_t n_vocab) {
    raw_gguf f;
    f.set("general.architecture", raw_text("llama"))
        .set("general.name", raw_text("tiny llama"))
        .set("general.file_type", raw_u32(0));
    f.set("llama.block_count", raw_u32(kLayers))
        .set("llama.context_length", raw_u32(128))
        .set("llama.embedding_length", raw_u32(kDim));
    f.set("llama.feed_forward_length", raw_u32(kFfn)).set("llama.attention.head_count", raw_u32(kHeads));
    f.set("llama.attention.head_count_kv", raw_u32(kKvHeads))
        .set("llama.attention.layer_norm_rms_epsilon", raw_f32(1e-5f));
    f.set("llama.rope.dimension_count", raw_u32(kDim / kHeads)).set("llama.rope.freq_base", raw_f32(10000.0f));
    f.set("llama.vocab_size", raw_u32((uint32_t)n_vocab));
    auto matrix = [&](const std::string& name, uint64_t n_in, uint64_t n_out) {
        f.add(name, {n_in, n_out}, 0, n_in * n_out * 4);
    };
    matrix("token_embd.weight", kDim, n_vocab);
    f.add("output_norm.weight", {kDim}, 0, kDim * 4);
    matrix("output.weight", kDim, n_vocab);
    const uint64_t kv_dim = kDim / kHeads * kKvHeads;
    for (uint32_t i = 0; i < kLayers; i++) {
        const std::string blk = "blk." + hostile_number(i) + ".";
        f.add(blk + "attn_norm.weight", {kDim}, 0, kDim * 4).add(blk + "ffn_norm.weight", {kDim}, 0, kDim * 4);
        matrix(blk + "attn_q.weight", kDim, kDim);
        matrix(blk + "attn_k.weight", kDim, kv_dim);
        matrix(blk + "attn_v.weight", kDim, kv_dim);
        matrix(blk + "attn_output.weight", kDim, kDim);
        matrix(blk + "ffn_gate.weight", kDim, kFfn);
        matrix(blk + "ffn_up.weight", kDim, kFfn);
        matrix(blk + "ffn_down.weight", kFfn, kDim);
    }
    return f;
}

std::vector<std::string> spm_tokens() {
    std::vector<std::string> tokens = {"<unk>", "<s>", "</s>"};
    for (int b = 0; b < 256; b++) {
        char text[8];
        snprintf(text, sizeof text, "<0x%02X>", b);
        tokens.push_back(text);
    }
    for (const char* t : {"\xe2\x96\x81",
                          "a",
                          "b",
                          "c",
                          "d",
                          "e",
                          "h",
                          "i",
                          "l",
                          "n",
                          "o",
                          "r",
                          "s",
                          "t",
                          "w",
                          "th",
                          "he",
                          "the",
                          "an",
                          "and",
                          "\xe2\x96\x81t",
                          "\xe2\x96\x81the",
                          "in",
                          "er",
                          "re",
                          "on",
                          "at",
                          "st",
                          "lo"})
        tokens.push_back(t);
    return tokens;  // 3 + 256 + 29
}
std::vector<float> spm_scores(size_t n) {
    std::vector<float> scores(n, 0.0f);
    for (size_t i = 259; i < n; i++) scores[i] = -(float)(i - 258);
    return scores;
}
std::vector<int32_t> spm_types(size_t n) {
    std::vector<int32_t> types(n, 1);
    for (size_t i = 0; i < 259 && i < n; i++) types[i] = i == 0 ? 2 : i < 3 ? 3 : 6;
    return types;
}
std::vector<std::string> bpe_tokens() {
    std::vector<std::string> tokens;
    for (int b = 0; b < 256; b++) tokens.push_back(bpe_byte(b));
    for (const char* t : {"th", "the", "in", "\xc4\xa0t", "\xc4\xa0the", "er", "on", "<|end|>"}) tokens.push_back(t);
    return tokens;
}

const std::string kTokens = "tokenizer.ggml.tokens", kScores = "tokenizer.ggml.scores",
                  kTypes = "tokenizer.ggml.token_type", kMerges = "tokenizer.ggml.merges";

}  // namespace

raw_gguf tiny_llama() {
    const auto tokens = spm_tokens();
    raw_gguf f = llama_without_vocab(tokens.size());
    f.set("tokenizer.ggml.model", raw_text("llama"))
        .set("tokenizer.ggml.pre", raw_text("default"))
        .set(kTokens, raw_texts(tokens));
    f.set(kScores, raw_f32s(spm_scores(tokens.size()))).set(kTypes, raw_i32s(spm_types(tokens.size())));
    f.set("tokenizer.ggml.bos_token_id", raw_u32(1)).set("tokenizer.ggml.eos_token_id", raw_u32(2));
    f.set("tokenizer.ggml.unknown_token_id", raw_u32(0)).set("tokenizer.ggml.add_bos_token", raw_bool(1));
    return f;
}

raw_gguf tiny_llama_bpe() {
    const auto tokens = bpe_tokens();
    raw_gguf f = llama_without_vocab(tokens.size());
    std::vector<int32_t> types(tokens.size(), 1);
    types.back() = 3;
    f.set("tokenizer.ggml.model", raw_text("gpt2"))
        .set("tokenizer.ggml.pre", raw_text("gpt-2"))
        .set(kTokens, raw_texts(tokens));
    f.set(kTypes, raw_i32s(types));
    f.set(kMerges, raw_texts({"t h", "th e", "i n", "\xc4\xa0 t", "\xc4\xa0 the", "e r", "o n"}));
    f.set("tokenizer.ggml.eos_token_id", raw_u32(263)).set("tokenizer.ggml.bos_token_id", raw_u32(263));
    return f;
}

namespace {

// Makes a file whose data fits the changed shape or type, so that only the model is wrong.
raw_gguf with_tensor(const std::string& name, std::vector<uint64_t> dims, uint32_t type) {
    raw_gguf f = tiny_llama();
    raw_gguf::tensor& t = f.at(name);
    uint64_t n_elems = 1;
    for (const uint64_t d : dims) n_elems *= d;
    t.n_bytes = type == 8   ? n_elems / 32 * 34
                : type == 9 ? n_elems / 32 * 36
                            : n_elems * (type == 24   ? 1
                                         : type == 28 ? 8
                                                      : 4);
    t.dims = std::move(dims);
    t.type = type;
    return f;
}

void add_tensor_model_cases(hostile_list& out) {
    const raw_gguf good = tiny_llama();
    for (const auto& t : good.tensors) {
        const bool is_vector = t.dims.size() == 1;
        raw_gguf f = tiny_llama();
        f.drop(t.name);
        if (t.name != "output.weight")  // without it the embedding serves twice
            out.add("26 missing " + t.name, f, t.name);
        auto dims = t.dims;
        dims[0] *= 2;
        out.add("26 longer " + t.name, with_tensor(t.name, dims, 0), t.name);
        dims = t.dims;
        dims.back() -= 1;
        out.add("26 one less in " + t.name, with_tensor(t.name, dims, 0), t.name);
        dims = {is_vector ? 2 : t.dims[1], t.dims[0]};
        if (dims != t.dims) out.add("26 transposed " + t.name, with_tensor(t.name, dims, 0), t.name);
        dims = t.dims;
        dims.push_back(2);
        out.add("26 another dimension " + t.name, with_tensor(t.name, dims, 0), t.name);
        for (const uint32_t type : {9u, 24u, 26u, 28u})  // Q8_1, I8, I32, F64
            out.add("26 type " + hostile_number(type) + " of " + t.name, with_tensor(t.name, t.dims, type), t.name);
        if (is_vector) out.add("26 quantized " + t.name, with_tensor(t.name, t.dims, 8), t.name);
    }
    for (const char* name :
         {"unknown.weight", "blk.2.attn_norm.weight", "blk.0.attn_qq.weight", "blk.00.attn_norm.weight",
          "blk.-1.attn_norm.weight", "blk.0.attn_norm.weight2", "output_norm.bias2", "%s%n"}) {
        raw_gguf f = tiny_llama();
        f.add(name, {kDim}, 0, kDim * 4);
        out.add(std::string("26 unknown ") + name, f, name);
    }
    raw_gguf none = tiny_llama();
    none.tensors.clear();
    out.add("5 no tensors", none, "tensor");
}

void add_key_model_cases(hostile_list& out) {
    const char* const ints[] = {
        "block_count",          "context_length",          "embedding_length",     "feed_forward_length",
        "attention.head_count", "attention.head_count_kv", "rope.dimension_count", "vocab_size"};
    const char* const floats[] = {"attention.layer_norm_rms_epsilon", "rope.freq_base"};
    auto with = [](const std::string& key, std::string value) {
        raw_gguf f = tiny_llama();
        f.set("llama." + key, std::move(value));
        return f;
    };
    for (const std::string key : ints) {
        const std::string values[] = {raw_text("2"),    raw_f32(2),  raw_bool(1),  raw_texts({"2", "2"}),
                                      raw_f32s({2, 2}), raw_i32(-1), raw_i32s({}), raw_i32s({-1, -1})};
        for (size_t i = 0; i < std::size(values); i++)
            out.add("15 llama." + key + " as value " + hostile_number(i), with(key, values[i]), "llama." + key);
        for (const uint32_t v : {0u, 1u << 31, ~0u})
            if (v || key != "rope.dimension_count")
                out.add("29-34 llama." + key + " = " + hostile_number(v), with(key, raw_u32(v)), "llama." + key);
    }
    for (const std::string key : floats) {
        const std::string values[] = {raw_text("2"), raw_u32(2),    raw_f32s({2, 2}), raw_f32(0),
                                      raw_f32(-1),   raw_f32(kNan), raw_f32(kInf),    raw_f32(-kInf)};
        for (size_t i = 0; i < std::size(values); i++)
            out.add("31-32 llama." + key + " as value " + hostile_number(i), with(key, values[i]), "llama." + key);
    }
    for (const char* key : {"block_count", "context_length", "embedding_length", "attention.head_count",
                            "attention.layer_norm_rms_epsilon"}) {
        raw_gguf f = tiny_llama();
        f.erase(std::string("llama.") + key);
        out.add(std::string("15 missing llama.") + key, f, std::string("llama.") + key);
    }
    // clang-format off
    struct { const char* key; std::string value; const char* want; } const wrong[] = {
        {"block_count", raw_u32(1), "blk.1."}, {"block_count", raw_u32(3), "blk.2."}, {"block_count", raw_u32(513), "block_count"},
        {"embedding_length", raw_u32(33), "embedding_length|embd"}, {"embedding_length", raw_u32(64), "embd"}, {"embedding_length", raw_u32(16), "embd|rope"},
        {"feed_forward_length", raw_u32(63), "ffn"}, {"feed_forward_length", raw_u32(128), "ffn"},
        {"feed_forward_length", raw_i32s({64, 32}), "blk.1.ffn"}, {"feed_forward_length", raw_i32s({64}), "feed_forward_length"},
        {"attention.head_count", raw_u32(3), "head_count"}, {"attention.head_count", raw_u32(4), "attn|head|rope"}, {"attention.head_count", raw_i32s({2}), "head_count"},
        {"attention.head_count", raw_i32s({2, 2, 2}), "head_count"},
        {"attention.head_count_kv", raw_u32(2), "attn_k"}, {"attention.head_count_kv", raw_u32(3), "head_count_kv"},
        {"attention.head_count_kv", raw_u32(4), "head_count_kv"}, {"attention.head_count_kv", raw_i32s({1}), "head_count_kv"},
        {"attention.head_count_kv", raw_i32s({1, 0}), "head_count_kv"}, {"attention.head_count_kv", raw_i32s({1, 2}), "blk.1.attn_k"},
        {"attention.head_count_kv", raw_i32s({1, 1, 1}), "head_count_kv"},
        {"attention.key_length", raw_u32(0), "key_length"}, {"attention.key_length", raw_u32(1u << 20), "key_length"},
        {"attention.key_length", raw_u32(8), "attn|rope"}, {"attention.key_length", raw_u32(32), "attn"}, {"attention.key_length", raw_text("16"), "key_length"},
        {"attention.value_length", raw_u32(0), "value_length"}, {"attention.value_length", raw_u32(~0u), "value_length"},
        {"attention.value_length", raw_u32(32), "attn"},
        {"rope.dimension_count", raw_u32(15), "rope.dimension_count"}, {"rope.dimension_count", raw_u32(18), "rope.dimension_count"},
        {"rope.scaling.type", raw_text("nosuch"), "rope.scaling.type"}, {"rope.scaling.type", raw_u32(1), "rope.scaling.type"},
        {"rope.scaling.factor", raw_f32(0), "rope.scaling.factor"}, {"rope.scaling.factor", raw_f32(kNan), "rope.scaling.factor"},
        {"rope.scaling.factor", raw_f32(-2), "rope.scaling.factor"}, {"rope.scaling.factor", raw_f32(kInf), "rope.scaling.factor"},
        {"rope.scaling.factor", raw_text("2"), "rope.scaling.factor"}, {"rope.scale_linear", raw_f32(kNan), "rope.scale_linear"},
        {"attention.causal", raw_u32(0), "attention.causal"},
        {"expert_used_count", raw_u32(2), "expert"}, {"expert_count", raw_u32(4), "expert"}, {"expert_count", raw_u32(1u << 31), "expert"},
        {"vocab_size", raw_u32(287), "vocab_size"}, {"vocab_size", raw_u32(289), "vocab_size"}};
    // clang-format on
    for (const auto& w : wrong)
        out.add(std::string("29-35 ") + w.key + " for " + w.want + " " + hostile_number(out.cases.size()),
                with(w.key, w.value), w.want);
    raw_gguf f = with("expert_count", raw_u32(4));
    f.set("llama.expert_used_count", raw_u32(5));
    out.add("33 5 of 4 experts", f, "expert");
    f = with("rope.scaling.type", raw_text("yarn"));
    f.set("llama.rope.scaling.factor", raw_f32(4)).set("llama.rope.scaling.original_context_length", raw_u32(0));
    out.add("31 yarn from a context of 0", f, "original_context_length");
    f = tiny_llama();
    f.add("rope_freqs.weight", {kDim / kHeads}, 0, kDim / kHeads * 4);
    out.add("31 twice as many rope factors", f, "rope_freqs");
    f = tiny_llama();
    f.erase("general.architecture");
    out.add("16 no architecture", f, "general.architecture");
    f.set("general.architecture", raw_text("nosuch"));
    out.add("16 unknown architecture", f, "nosuch");
    f.set("general.architecture", raw_text("qwen3"));
    out.add("16 keys of another architecture", f, "qwen3.");
}

void add_vocab_model_cases(hostile_list& out) {
    const auto tokens = spm_tokens();
    const size_t n = tokens.size();
    auto with_token = [&](size_t i, std::string text) {
        auto changed = tokens;
        raw_gguf f = tiny_llama();
        changed[i] = std::move(text);
        f.set(kTokens, raw_texts(changed));
        return f;
    };
    auto with_type = [&](size_t i, int32_t type) {
        auto types = spm_types(n);
        raw_gguf f = tiny_llama();
        types[i] = type;
        f.set(kTypes, raw_i32s(types));
        return f;
    };
    auto with_n = [&](size_t n_tokens, size_t n_scores, size_t n_types) {
        auto changed = tokens;
        raw_gguf f = tiny_llama();
        while (changed.size() < n_tokens) changed.push_back("new" + hostile_number(changed.size()));
        changed.resize(n_tokens);
        f.set(kTokens, raw_texts(changed))
            .set(kScores, raw_f32s(spm_scores(n_scores)))
            .set(kTypes, raw_i32s(spm_types(n_types)));
        return f;
    };
    auto with = [](const std::string& key, std::string value) {
        raw_gguf f = tiny_llama();
        f.set("tokenizer.ggml." + key, std::move(value));
        return f;
    };
    for (const size_t m : {(size_t)0, n - 1, n + 1, 2 * n}) {
        out.add("36 scores " + hostile_number(m), with_n(n, m, n), "scores");
        out.add("36 types " + hostile_number(m), with_n(n, n, m), "token_type");
        out.add("40 vocabulary of " + hostile_number(m), with_n(m, m, m), "token_embd|tokens|vocab");
        raw_gguf f = with_n(m, m, m);
        f.erase("llama.vocab_size");
        out.add("40 vocabulary without vocab_size of " + hostile_number(m), f, "token_embd|tokens");
    }
    for (const int32_t type : {-1, 99, INT32_MIN})
        out.add("36 token type " + std::to_string(type), with_type(270, type), "token_type");
    out.add("36 duplicate", with_token(270, "a"), "tokens");
    out.add("36 duplicate of a control token", with_token(2, "<s>"), "tokens");
    out.add("36 empty", with_token(270, ""), "tokens");
    out.add("36 bad UTF-8", with_token(270, "\xff\xfe"), "tokens");
    for (const float score : {kNan, kInf}) {
        auto scores = spm_scores(n);
        raw_gguf f = tiny_llama();
        scores[270] = score;
        f.set(kScores, raw_f32s(scores));
        out.add("36 score " + std::to_string(score), f, "scores");
    }
    for (const char* key : {"bos_token_id", "eos_token_id", "padding_token_id", "unknown_token_id", "eot_token_id",
                            "eom_token_id", "seperator_token_id"})
        for (const uint32_t id : {(uint32_t)n, (uint32_t)n + 1, 1u << 31, ~0u - 1})
            out.add(std::string("37 ") + key + " " + hostile_number(id), with(key, raw_u32(id)), key);
    for (const char* bad : {"<0x-1>", "<0xZZ>", "<0x1>", "<0x100>", "<0x>", "x", "<0x1G>"})
        out.add(std::string("39 byte token ") + bad, with_token(68, bad), "tokens|byte");
    {
        auto types = spm_types(n);
        auto changed = tokens;
        types[68] = 1;
        changed[68] = "zz";
        raw_gguf f = tiny_llama();
        f.set(kTokens, raw_texts(changed)).set(kTypes, raw_i32s(types));
        out.add("39 a byte token is missing", f, "tokens|byte");
    }
    {
        auto changed = tokens;
        changed.back() = std::string(1025, 'a');
        raw_gguf f = tiny_llama();
        f.set(kTokens, raw_texts(changed));
        out.add("39 a token of 1025 bytes", f, "at most 1024 bytes");
    }
    raw_gguf f = tiny_llama();
    for (const char* key : {"tokenizer.ggml.tokens", "tokenizer.ggml.model"}) {
        f = tiny_llama();
        f.erase(key);
        out.add(std::string("36 missing ") + key, f, key);
    }
    out.add("36 unknown model", with("model", raw_text("nosuch")), "nosuch");
    f = tiny_llama();
    f.at("output.weight").dims[1] = n + 1;
    f.at("output.weight").n_bytes += kDim * 4;
    out.add("40 a row more in output", f, "output.weight");
}

void add_bpe_cases(hostile_list& out) {
    auto bpe = [](const std::string& key, std::string value) {
        raw_gguf file = tiny_llama_bpe();
        file.set("tokenizer.ggml." + key, std::move(value));
        return file;
    };
    for (const char* bad : {"th", "", " ", "a ", " a", "q zz", "zz q"})
        out.add(std::string("38 merge '") + bad + "'", bpe("merges", raw_texts({"t h", bad})), "merges");
    raw_gguf f = tiny_llama_bpe();
    f.erase("tokenizer.ggml.merges");
    out.add("38 no merges", f, "merges");
    out.add("36 unknown pre", bpe("pre", raw_text("nosuch")), "nosuch");
    f = bpe("model", raw_text("t5"));
    f.set(kScores, raw_f32s(spm_scores(264))).set("tokenizer.ggml.precompiled_charsmap", raw_array(0, 3, "abc"));
    out.add("39 charsmap of 3 bytes", f, "charsmap");
}

}  // namespace

std::vector<hostile_case> hostile_model_cases() {
    hostile_list out;
    add_tensor_model_cases(out);
    add_key_model_cases(out);
    add_vocab_model_cases(out);
    add_bpe_cases(out);
    return std::move(out.cases);
}

std::vector<hostile_case> control_models() {
    hostile_list out;
    out.add("tiny llama", tiny_llama(), "");
    out.add("tiny llama, BPE", tiny_llama_bpe(), "");
    raw_gguf f = tiny_llama();
    f.version = 2;
    f.tail = "more";
    f.drop("output.weight");
    out.add("version 2, tied output, bytes after the data", f, "");
    f = tiny_llama();
    f.set("llama.attention.head_count_kv", raw_i32s({1, 1})).set("llama.feed_forward_length", raw_i32s({64, 64}));
    f.set("llama.block_count", raw_i32(2)).set("llama.unknown.key", raw_text("x")).set("general.file_type", raw_u32(7));
    out.add("per-layer arrays, other integer types", f, "");
    f = tiny_llama();
    f.erase("llama.vocab_size")
        .erase("llama.rope.freq_base")
        .erase("llama.rope.dimension_count")
        .erase("tokenizer.ggml.add_bos_token");
    out.add("without optional keys", f, "");
    f = tiny_llama();
    f.alignment = 64;
    f.set("general.alignment", raw_u32(64)).add("rope_freqs.weight", {kDim / kHeads / 2}, 0, kDim / kHeads * 2);
    out.add("alignment 64, rope factors", f, "");
    return std::move(out.cases);
}

TEST_CASE("hostile models: each is refused with an error that names the key or tensor") {
    for (const auto& list : {hostile_model_cases(), control_models()})
        for (const auto& c : list) {
            duet_model* model = nullptr;
            duet_model_params params = duet_model_params_default();
            params.n_threads = 1;
            const duet_status status = duet_model_open_memory(c.bytes.data(), c.bytes.size(), &params, &model);
            const std::string error = model ? duet_model_error(model) : "no model";
            CAPTURE(c.name);
            CAPTURE(error);
            if (c.want.empty()) {
                CHECK(status == DUET_OK);
            } else {
                CHECK((status == DUET_ERR_FORMAT || status == DUET_ERR_UNSUPPORTED));
                CHECK(hostile_says(error, c.want));
            }
            duet_model_free(model);
        }
}
