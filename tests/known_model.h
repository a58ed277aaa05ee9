// tests/known_model.h: makes model files whose answers are known to the letter: each token has one successor. A prompt
// that ends with the token "<|go0|>" is answered by the pieces of script 0, one with "<|go1|>" by those of script 1.
// The output matrix says which token follows which; attention and feed-forward weights are zero.
#pragma once
#include "../runtime.h"

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

struct known_script {
    std::string start;                // the control token after which it begins; empty: "<|goN|>"
    std::vector<std::string> pieces;  // "<0xC3>" is a byte, and what `controls` names that token
    bool ends = true;                 // false: the last piece follows itself for ever
};

// The vocabulary: <unk>, <s>, </s> (ends an answer), 256 bytes, the controls, the starts, then the pieces. Text of
// users becomes byte tokens: all pieces differ from what the tokenizer merges.
struct known_model {
    std::vector<std::string> controls = {"<|im_start|>", "<|im_end|>", "<think>", "</think>"};
    std::vector<known_script> scripts;
    std::string chat_template;  // empty: the file has none
    int32_t n_ctx = 4096;

    // The bytes of the file; empty when memory runs out.
    std::string make() const;

  private:
    enum { kNormal = 1, kUnknown = 2, kControl = 3, kByte = 6 };
    struct tokens {
        std::vector<std::string> words = {"<unk>", "<s>", "</s>"};
        std::vector<int32_t> types = {kUnknown, kControl, kControl};
        std::vector<std::pair<int32_t, int32_t>> follows;  // a token and its successor
    };
    tokens make_tokens() const;
};

inline known_model::tokens known_model::make_tokens() const {
    tokens t;
    auto& [words, types, follows] = t;
    const auto add = [&](const std::string& word, int32_t type) {
        words.push_back(word);
        types.push_back(type);
        return (int32_t)words.size() - 1;
    };
    const auto find = [&](const std::string& word) {
        for (size_t i = 0; i < words.size(); i++)
            if (words[i] == word && (types[i] == kControl || types[i] == kByte)) return (int32_t)i;
        return -1;
    };
    for (int i = 0; i < 256; i++) {
        char name[8];
        std::snprintf(name, sizeof name, "<0x%02X>", i);
        add(name, kByte);
    }
    for (const std::string& c : controls) add(c, kControl);
    std::vector<int32_t> starts;
    for (size_t i = 0; i < scripts.size(); i++)
        starts.push_back(scripts[i].start.empty() ? add("<|go" + std::to_string(i) + "|>", kControl)
                                                  : find(scripts[i].start));
    // Every piece is a token of its own, also where two have the same text, so that each has one successor. A byte
    // or a control token may occur once in all scripts.
    for (size_t i = 0; i < scripts.size(); i++) {
        int32_t at = starts[i];
        for (const std::string& piece : scripts[i].pieces) {
            int32_t id = find(piece);
            if (id < 0) {
                std::string word;
                for (const char c : piece) word += c == ' ' ? std::string("\xe2\x96\x81") : std::string(1, c);
                id = add(word, kNormal);
            }
            follows.push_back({at, id});
            at = id;
        }
        follows.push_back({at, scripts[i].ends ? 2 : at});
    }
    return t;
}

inline std::string known_model::make() const {
    const auto [words, types, follows] = make_tokens();
    const int64_t n_vocab = (int64_t)words.size(), dim = (n_vocab + 63) / 64 * 64, head = 64;
    std::vector<float> embedding((size_t)(n_vocab * dim)), output(embedding.size()), zeros((size_t)(dim * head)),
        ones((size_t)dim, 1.0f), scores((size_t)n_vocab);
    for (int64_t i = 0; i < n_vocab; i++) embedding[(size_t)(i * dim + i)] = 1, scores[(size_t)i] = -(float)i;
    for (const auto& [from, to] : follows) output[(size_t)(to * dim + from)] = 1;
    std::vector<duet_string> strings;
    for (const std::string& w : words) strings.push_back({w.data(), w.size()});
    duet_writer* w = nullptr;
    duet_status st = duet_writer_create(&w);
    const struct {
        const char* key;
        int64_t value;
    } kInts[] = {{"llama.block_count", 1},
                 {"llama.context_length", n_ctx},
                 {"llama.embedding_length", dim},
                 {"llama.feed_forward_length", head},
                 {"llama.attention.head_count", 1},
                 {"llama.attention.head_count_kv", 1},
                 {"llama.attention.key_length", head},
                 {"llama.attention.value_length", head},
                 {"llama.rope.dimension_count", head},
                 {"tokenizer.ggml.bos_token_id", 1},
                 {"tokenizer.ggml.eos_token_id", 2},
                 {"tokenizer.ggml.unknown_token_id", 0}};
    if (!st) st = duet_writer_set_string(w, "general.architecture", "llama", 5);
    for (const auto& row : kInts)
        if (!st) st = duet_writer_set_int(w, row.key, DUET_KV_U32, row.value);
    for (const char* key : {"tokenizer.ggml.add_bos_token", "tokenizer.ggml.add_space_prefix"})
        if (!st) st = duet_writer_set_int(w, key, DUET_KV_BOOL, 0);
    if (!st) st = duet_writer_set_float(w, "llama.attention.layer_norm_rms_epsilon", DUET_KV_F32, 1e-5);
    if (!st) st = duet_writer_set_string(w, "tokenizer.ggml.model", "llama", 5);
    if (!st) st = duet_writer_set_strings(w, "tokenizer.ggml.tokens", strings.data(), strings.size());
    if (!st) st = duet_writer_set_array(w, "tokenizer.ggml.scores", DUET_KV_F32, scores.data(), scores.size());
    if (!st) st = duet_writer_set_array(w, "tokenizer.ggml.token_type", DUET_KV_I32, types.data(), types.size());
    if (!st && !chat_template.empty())
        st = duet_writer_set_string(w, "tokenizer.chat_template", chat_template.data(), chat_template.size());
    const struct {
        const char* name;
        int64_t n_cols, n_rows;  // n_rows 0: a vector
        const float* data;
    } kTensors[] = {
        {"token_embd.weight", dim, n_vocab, embedding.data()}, {"blk.0.attn_norm.weight", dim, 0, ones.data()},
        {"blk.0.attn_q.weight", dim, head, zeros.data()},      {"blk.0.attn_k.weight", dim, head, zeros.data()},
        {"blk.0.attn_v.weight", dim, head, zeros.data()},      {"blk.0.attn_output.weight", head, dim, zeros.data()},
        {"blk.0.ffn_norm.weight", dim, 0, ones.data()},        {"blk.0.ffn_gate.weight", dim, head, zeros.data()},
        {"blk.0.ffn_up.weight", dim, head, zeros.data()},      {"blk.0.ffn_down.weight", head, dim, zeros.data()},
        {"output_norm.weight", dim, 0, ones.data()},           {"output.weight", dim, n_vocab, output.data()}};
    for (const auto& t : kTensors) {
        const int64_t dims[2] = {t.n_cols, t.n_rows};
        if (!st) st = duet_writer_add_tensor(w, t.name, 0, t.n_rows ? 2 : 1, dims, t.data);
    }
    std::string file;
    const auto append = [](void* user, const void* data, uint64_t n_bytes) -> int32_t {
        ((std::string*)user)->append((const char*)data, (size_t)n_bytes);
        return 0;
    };
    if (!st) st = duet_writer_save_to(w, append, &file);
    if (st) std::fprintf(stderr, "known_model: %s\n", duet_writer_error(w));
    duet_writer_free(w);
    return st ? std::string() : file;
}
