// models/tokenizer_vocab.cpp: reads the tokenizer.ggml.* keys of a file, checks every rule, builds the indices.
// Owns: the rules of a vocabulary. Must not know: how text is encoded.
// Main path: models/tokenizer.cpp -> [models/tokenizer_vocab.cpp] -> models/tokenizer_bpe.cpp and its siblings
//
// Keys and defaults: ggml-org/llama.cpp:src/llama-vocab.cpp, ggml-org/llama.cpp:gguf-py/gguf/constants.py.
#include "tokenizer_vocab.h"

#include "unicode.h"

#include <bit>
#include <cmath>

namespace duet {
namespace {

constexpr std::string_view kPrefix = "tokenizer.ggml.", kId = "_token_id", kIds = "_token_ids";
constexpr size_t kMaxTokenBytes = 1024;  // The time that a text takes may grow with the longest.

// Makes an error "<path>: <key>: at byte N: <rule>". Every error about the vocabulary has this form.
[[gnu::format(DUET_PRINTF_FORM, 4, 5)]] duet_status bad_key(const gguf_file& file, const gguf_kv& kv, error_text& err,
                                                            const char* rule, ...) {
    char text[600];
    DUET_PRINT_ARGS(text, rule);
    return fail(err, DUET_ERR_FORMAT, "%s: %s: at byte %llu: %s", file.path.c_str(), printable(kv.key).c_str(),
                (unsigned long long)kv.offset, text);
}

// <0xHH> -> the byte; anything else: -1.
int byte_of_spelling(std::string_view text) {
    if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return -1;
    const int high = hex_digit(text[3]), low = hex_digit(text[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

// Finds an array of one of the element types. *kv is nullptr when the array is absent and not required.
duet_status find_array(const gguf_file& file, const char* key, bool is_required, std::initializer_list<int32_t> types,
                       const char* want, size_t n, const gguf_kv** kv, error_text& err) {
    *kv = file.find(key);
    if (!*kv && is_required)
        return fail(err, DUET_ERR_FORMAT, "%s: %s: want an array of %s, got nothing", file.path.c_str(), key, want);
    if (!*kv) return DUET_OK;
    if ((*kv)->type != DUET_KV_ARRAY || std::find(types.begin(), types.end(), (*kv)->array_type) == types.end())
        return bad_key(file, **kv, err, "want an array of %s, got %svalue type %d", want,
                       (*kv)->type == DUET_KV_ARRAY ? "an array of " : "", (*kv)->value_type());
    if (n != SIZE_MAX && (*kv)->n_values != n)
        return bad_key(file, **kv, err, "want %zu entries (one for each of tokenizer.ggml.tokens), got %llu", n,
                       (unsigned long long)(*kv)->n_values);
    return DUET_OK;
}

// Tokens that end an answer, whatever the file calls their id (ggml-org/llama.cpp:src/llama-vocab.cpp,
// "end-of-generation").
// clang-format off
constexpr std::string_view kEndSpellings[] = {
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>", "<end_of_turn>",
    "<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>", "<end_of_utterance>",
    "<eos>", "<turn|>", "<|tool_response>", "<\xef\xbd\x9c" "end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>", "[e~[",
    "<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<|fim_repo|>", "<|repo_name|>", "<|file_sep|>", "<|observation|>",
};
// clang-format on

}  // namespace

uint32_t byte_level_char(uint8_t byte) {
    // openai/gpt-2:src/encoder.py, bytes_to_unicode: printable bytes stand for themselves, and the other bytes are
    // numbered from U+0100 on.
    if ((byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae) return byte;
    return byte <= 0x20 ? 0x100u + byte : byte <= 0xa0 ? 0x121u + (byte - 0x7fu) : 0x143u;
}

int byte_level_byte(uint32_t cp) {
    if (cp < 0x100) return byte_level_char((uint8_t)cp) == cp ? (int)cp : -1;
    if (cp <= 0x120) return (int)cp - 0x100;
    return cp <= 0x142 ? (int)cp - 0x121 + 0x7f : cp == 0x143 ? 0xad : -1;
}

static uint64_t hash_of(std::string_view text, uint64_t seed) {
    uint64_t h = seed ^ (text.size() * 0x9e3779b97f4a7c15u);
    size_t i = 0;
    for (; i + 8 <= text.size(); i += 8) {
        uint64_t word;
        memcpy(&word, text.data() + i, 8);
        h = (h ^ word) * 0xff51afd7ed558ccdu;
        h ^= h >> 32;
    }
    uint64_t tail = 0;
    for (; i < text.size(); ++i) tail = tail << 8 | (uint8_t)text[i];
    h = (h ^ tail) * 0xc4ceb9fe1a85ec53u;
    return h ^ h >> 29;
}

static uint64_t hash_of(uint64_t key, uint64_t seed) { return ((key ^ seed) * 0x9e3779b97f4a7c15u) >> 32; }

template <class Row> void hash_index<Row>::reserve(size_t n) {
    rows_.assign(std::bit_ceil(std::max<size_t>(16, 2 * n)), {});
    // The seed differs between runs, so that no file can be made of collisions.
    seed_ = (uint64_t)(uintptr_t)rows_.data();
}

template <class Row> const Row& hash_index<Row>::row(key_type key) const {
    const size_t mask = rows_.size() - 1;
    size_t i = (size_t)hash_of(key, seed_) & mask;
    while (rows_[i].id >= 0 && rows_[i].key != key) i = (i + 1) & mask;
    return rows_[i];
}

template <class Row> bool hash_index<Row>::insert(const Row& fresh) {
    Row& place = rows_[(size_t)(&row(fresh.key) - rows_.data())];
    if (place.id >= 0) return false;
    place = fresh;
    return true;
}

template class hash_index<text_row>;
template class hash_index<merge_row>;

void prefix_index::finish() {
    std::ranges::sort(entries_, {}, [](const text_row& e) { return std::pair(e.key, e.id); });
    for (const text_row& e : entries_) ++starts_[(uint8_t)e.key[0] + 1];
    for (int i = 0; i < 256; ++i) starts_[i + 1] += starts_[i];
}

duet_status vocabulary::load(const gguf_file& file, error_text& err) {
    std::string_view model, type;  // of the file: model, adapter, mmproj, imatrix
    DUET_TRY(file.get_string("tokenizer.ggml.model", false, &model, err));
    DUET_TRY(file.get_string("general.type", false, &type, err));
    if (type == "model") type = {};
    if (model.empty() && file.find("tokenizer.ggml.tokens"))
        return fail(err, DUET_ERR_FORMAT,
                    "%s: tokenizer.ggml.model: want the kind of the tokenizer of tokenizer.ggml.tokens, got nothing",
                    file.path.c_str());
    if (model.empty() || model == "no_vocab" || model == "none")
        return fail(err, DUET_ERR_UNSUPPORTED, "%s: tokenizer.ggml.model: the file has no vocabulary%s%s",
                    file.path.c_str(), type.empty() ? "" : "; general.type: want model, got ", printable(type).c_str());
    if (model == "llama") kind = vocab_kind::spm;
    else if (model == "gpt2" || model == "gemma4") kind = vocab_kind::bpe;
    else if (model == "t5") kind = vocab_kind::unigram;
    else if (model == "bert") kind = vocab_kind::wordpiece;
    else
        return fail(err, DUET_ERR_UNSUPPORTED, "%s: tokenizer.ggml.model: want llama, gpt2, gemma4, t5 or bert, got %s",
                    file.path.c_str(), printable(model).c_str());

    std::string_view pre_name;
    DUET_TRY(file.get_string("tokenizer.ggml.pre", false, &pre_name, err));
    if (model == "gemma4") pre_name = "gemma4";
    if (kind == vocab_kind::bpe && !pre.select(pre_name.empty() ? "default" : pre_name))
        return fail(err, DUET_ERR_UNSUPPORTED, "%s: tokenizer.ggml.pre: got %s, known are: %s", file.path.c_str(),
                    printable(pre_name).c_str(), pretokenizer::known_names().c_str());

    for (const auto part : {&vocabulary::load_tokens, &vocabulary::load_types, &vocabulary::load_scores,
                            &vocabulary::check_ids, &vocabulary::load_ids, &vocabulary::load_byte_tokens,
                            &vocabulary::load_merges, &vocabulary::load_charsmap, &vocabulary::load_options})
        DUET_TRY((this->*part)(file, err));
    // Files of Gemma 4 that deny it need BOS all the same (llama.cpp's pull request 21500).
    if (model == "gemma4") add_bos = bos >= 0;
    find_ends();
    make_pieces();
    make_indices();
    spelled_ = {};
    return DUET_OK;
}

duet_status vocabulary::load_tokens(const gguf_file& file, error_text& err) {
    const gguf_kv* kv;
    DUET_TRY(find_array(file, "tokenizer.ggml.tokens", true, {DUET_KV_STRING}, "strings", SIZE_MAX, &kv, err));
    if (kv->n_values == 0 || kv->n_values > INT32_MAX)
        return bad_key(file, *kv, err, "want 1 to 2147483647 tokens, got %llu", (unsigned long long)kv->n_values);
    for (size_t i = 0; i < kv->strings.size(); ++i) {
        std::string_view text = kv->strings[i];
        if (text.size() > kMaxTokenBytes)
            return bad_key(file, *kv, err, "entry %zu: want at most %zu bytes, got %zu", i, kMaxTokenBytes,
                           text.size());
        if (!utf8_valid(text))
            return bad_key(file, *kv, err, "entry %zu: want UTF-8, got \"%s\"", i, printable(text).c_str());
        max_bytes = std::max(max_bytes, text.size());
    }
    spellings = kv->strings;
    return DUET_OK;
}

duet_status vocabulary::load_types(const gguf_file& file, error_text& err) {
    const gguf_kv* kv;
    DUET_TRY(find_array(file, "tokenizer.ggml.token_type", false, {DUET_KV_I32, DUET_KV_U32}, "32-bit integers",
                        spellings.size(), &kv, err));
    types.assign(spellings.size(), kTokenNormal);
    is_from_types_ = kv != nullptr;
    for (size_t i = 0; kv && i < spellings.size(); ++i) {
        int64_t value = -1;
        if (!gguf_file::value_int(*kv, i, &value) || value < kTokenUndefined || value > kTokenByte)
            return bad_key(file, *kv, err, "entry %zu: want a type from 0 to 6, got %lld", i, (long long)value);
        types[i] = (uint8_t)value;
    }

    // Equal spellings would make text ambiguous. Unused tokens are exempt, because text is not looked up among them. An
    // empty token would match everywhere.
    const gguf_kv& tokens = *file.find("tokenizer.ggml.tokens");
    spelled_.reserve(spellings.size());
    for (int pass = 0; pass < 2; ++pass) {
        for (size_t i = 0; i < spellings.size(); ++i) {
            if ((types[i] == kTokenUnused) != (pass == 1)) continue;
            if (spellings[i].empty() && pass == 0)
                return bad_key(file, tokens, err, "entry %zu: want a token, got an empty string", i);
            if (!spelled_.insert({spellings[i], (int32_t)i}) && pass == 0)
                return bad_key(file, tokens, err, "entry %zu: want different tokens, got \"%s\" as in entry %d", i,
                               printable(spellings[i]).c_str(), spelled_.find(spellings[i]));
        }
    }
    return DUET_OK;
}

duet_status vocabulary::load_scores(const gguf_file& file, error_text& err) {
    const gguf_kv* kv;
    const size_t n = spellings.size();
    DUET_TRY(
        find_array(file, "tokenizer.ggml.scores", false, {DUET_KV_F32, DUET_KV_I32}, "32-bit numbers", n, &kv, err));
    scores.assign(n, 0.0f);
    float lowest = INFINITY;
    for (size_t i = 0; kv && i < n; ++i) {
        double value = NAN;
        int64_t whole = 0;  // Some converters write whole scores as integers.
        if (!gguf_file::value_float(*kv, i, &value) && gguf_file::value_int(*kv, i, &whole)) value = (double)whole;
        if (!std::isfinite(value)) return bad_key(file, *kv, err, "entry %zu: want a finite number, got %f", i, value);
        scores[i] = (float)value;
        if (types[i] == kTokenNormal) lowest = std::min(lowest, scores[i]);
    }
    unk_score = (lowest < INFINITY ? lowest : 0.0f) - 10.0f;  // google/sentencepiece:src/unigram_model.cc, kUnkPenalty
    return DUET_OK;
}

// Checks every key that is called an id: it must hold one. Marks those that end a text.
duet_status vocabulary::check_ids(const gguf_file& file, error_text& err) {
    ends.assign(spellings.size(), 0);
    for (const gguf_kv& kv : file.kvs) {
        bool is_list = kv.key.ends_with(kIds) || kv.key == "tokenizer.ggml.suppress_tokens";
        if (!kv.key.starts_with(kPrefix) || (!is_list && !kv.key.ends_with(kId))) continue;
        if ((kv.type == DUET_KV_ARRAY) != is_list)
            return bad_key(file, kv, err, "want %s", is_list ? "an array of token ids" : "one token id, no array");
        for (uint64_t i = 0; i < kv.n_values; ++i) {
            int64_t value = -1;
            int32_t type = is_list ? kv.array_type : kv.type;
            bool is_whole = type == DUET_KV_U32 || type == DUET_KV_I32 || type == DUET_KV_U64 || type == DUET_KV_I64 ||
                            (!is_list && type != DUET_KV_BOOL);
            if (!is_whole || !gguf_file::value_int(kv, i, &value))
                return bad_key(file, kv, err, "want a 32-bit or 64-bit integer, got value type %d", type);
            if (!is_list && (value == -1 || value == UINT32_MAX)) continue;  // none
            if (value < 0 || value >= n_tokens())
                return bad_key(file, kv, err, "want a token id from 0 to %d, got %lld", n_tokens() - 1,
                               (long long)value);
            std::string_view name = kv.key.substr(kPrefix.size());
            if (name == "eos_token_ids" || name == "eot_token_id" || name == "eom_token_id") ends[value] = 1;
        }
    }
    return DUET_OK;
}

// Reads the ids that have names, and the rules of BOS and EOS.
duet_status vocabulary::load_ids(const gguf_file& file, error_text& err) {
    auto id_of = [&](std::string_view name) -> int32_t {
        const gguf_kv* kv = file.find(std::string(kPrefix) + std::string(name) + std::string(kId));
        int64_t value = -1;
        return kv && gguf_file::value_int(*kv, 0, &value) ? (int32_t)value : -1;
    };
    bos = id_of("bos");
    eos = id_of("eos");
    unk = id_of("unknown");
    sep = id_of("seperator");  // (sic) in the format
    if (bos < 0) bos = id_of("cls");

    bool is_bos_named = bos >= 0, is_eos_named = eos >= 0;
    // Some kinds of files leave out these ids.
    auto fall_back = [&](vocab_kind of, int32_t* id, int32_t usual, token_type type) {
        bool is_usual = kind == of && *id < 0 && usual < n_tokens();
        if (is_usual && (is_from_types_ ? types[usual] == type : spellings[usual].starts_with('<'))) *id = usual;
    };
    fall_back(vocab_kind::spm, &bos, 1, kTokenControl);
    fall_back(vocab_kind::spm, &eos, 2, kTokenControl);
    fall_back(vocab_kind::spm, &unk, 0, kTokenUnknown);
    fall_back(vocab_kind::unigram, &eos, 1, kTokenControl);
    fall_back(vocab_kind::unigram, &unk, 2, kTokenUnknown);
    fall_back(vocab_kind::wordpiece, &bos, 101, kTokenControl);
    fall_back(vocab_kind::wordpiece, &sep, 102, kTokenControl);
    fall_back(vocab_kind::wordpiece, &unk, 100, kTokenControl);
    // A token that the file names is no text, even where the file has no types.
    if (!is_from_types_)
        for (int32_t id : {bos, eos, sep, unk})
            if (id >= 0) types[id] = id == unk ? kTokenUnknown : kTokenControl;

    uint32_t flags = kind == vocab_kind::bpe ? pre.flags() : 0;
    add_bos = kind == vocab_kind::spm || kind == vocab_kind::wordpiece || (flags & kPreAddBos);
    add_eos = kind == vocab_kind::unigram;
    add_sep = kind == vocab_kind::wordpiece || (flags & kPreAddSep);
    if (add_sep && sep < 0 && kind == vocab_kind::bpe) sep = eos;
    struct {
        const char* key;
        bool* is_on;
        int32_t id;
        bool is_named;
        const char* id_key;
    } rules[] = {
        {"tokenizer.ggml.add_bos_token", &add_bos, bos, is_bos_named, "tokenizer.ggml.bos_token_id"},
        {"tokenizer.ggml.add_eos_token", &add_eos, eos, is_eos_named, "tokenizer.ggml.eos_token_id"},
        {"tokenizer.ggml.add_sep_token", &add_sep, sep, sep >= 0, "tokenizer.ggml.seperator_token_id"},
    };
    for (const auto& rule : rules) {
        const gguf_kv* kv = file.find(rule.key);
        DUET_TRY(file.get_bool(rule.key, false, rule.is_on, err));
        if (kv && *rule.is_on && !rule.is_named)
            return bad_key(file, *kv, err, "true, but there is no %s", rule.id_key);
        if (rule.id < 0) *rule.is_on = false;
    }
    return DUET_OK;
}

duet_status vocabulary::load_byte_tokens(const gguf_file& file, error_text& err) {
    const gguf_kv& tokens = *file.find("tokenizer.ggml.tokens");
    byte_ids.fill(-1);
    int n_bytes = 0;
    for (int32_t id = 0; id < n_tokens(); ++id) {
        if (types[id] != kTokenByte) continue;
        int byte = byte_of_spelling(spellings[id]);
        if (byte < 0)
            return bad_key(file, tokens, err, "entry %d: of type byte: want <0x00> to <0xFF>, got \"%s\"", (int)id,
                           printable(spellings[id]).c_str());
        if (byte_ids[byte] >= 0)
            return bad_key(file, tokens, err,
                           "entry %d: want one token for each byte, got \"%s\", the same as entry %d", (int)id,
                           printable(spellings[id]).c_str(), byte_ids[byte]);
        byte_ids[byte] = id;
        ++n_bytes;
    }
    // Every byte is a character of the alphabet. Some vocabularies leave out bytes that never occur in UTF-8.
    if (is_byte_level()) {
        byte_ids.fill(-1);
        for (int byte = 0; byte < 256; ++byte) {
            std::string text;
            utf8_append(&text, byte_level_char((uint8_t)byte));
            int32_t id = spelled_.find(text);
            if (id >= 0 && types[id] == kTokenNormal) byte_ids[byte] = id;
        }
        return DUET_OK;
    }
    if (n_bytes == 0 && kind != vocab_kind::wordpiece) {  // The types of some files do not mark the byte tokens.
        for (int byte = 0; byte < 256; ++byte) {
            char text[8];
            snprintf(text, sizeof text, "<0x%02X>", byte);
            byte_ids[byte] = spelled_.find(text);
            n_bytes += byte_ids[byte] >= 0;
        }
        if (n_bytes < 256) {  // The tokens only look like byte tokens.
            byte_ids.fill(-1);
            n_bytes = 0;
        }
        for (int32_t id : byte_ids)
            if (id >= 0) types[id] = kTokenByte;
    }
    has_byte_fallback = n_bytes == 256;
    if (n_bytes == 0 || has_byte_fallback) return DUET_OK;
    return bad_key(file, tokens, err,
                   "want a byte token for each of the 256 bytes or for none, got %d, without <0x%02X>", n_bytes,
                   (int)(std::ranges::find(byte_ids, -1) - byte_ids.begin()));
}

duet_status vocabulary::load_merges(const gguf_file& file, error_text& err) {
    const gguf_kv* kv;
    const bool is_bpe = kind == vocab_kind::bpe, is_required = is_bpe && !(pre.flags() & kPreRankById);
    DUET_TRY(find_array(file, "tokenizer.ggml.merges", is_required, {DUET_KV_STRING}, "strings", SIZE_MAX, &kv, err));
    if (!kv || !is_bpe) return DUET_OK;
    merges.reserve(kv->strings.size());
    std::string merged;
    for (size_t i = 0; i < kv->strings.size(); ++i) {
        std::string_view text = kv->strings[i];
        size_t space = text.find(' ', 1);
        if (text.empty() || space == std::string_view::npos || space + 1 == text.size())
            return bad_key(file, *kv, err, "entry %zu: want two tokens with a space between, got \"%s\"", i,
                           printable(text).c_str());
        std::string_view left = text.substr(0, space), right = text.substr(space + 1);
        merged.assign(left).append(right);
        int32_t left_id = spelled_.find(left), right_id = spelled_.find(right), id = spelled_.find(merged);
        const std::string_view unknown = left_id < 0 ? left : right_id < 0 ? right : merged;
        if (left_id < 0 || right_id < 0 || id < 0)
            return bad_key(file, *kv, err,
                           "entry %zu: want tokens of tokenizer.ggml.tokens, got \"%s\": \"%s\" is none", i,
                           printable(text).c_str(), printable(unknown).c_str());
        if (types[id] == kTokenControl) continue;  // Text must not become a control token.
        if (!merges.insert({merge_key(left_id, right_id), id, (uint32_t)i}))
            return bad_key(file, *kv, err, "entry %zu: want each pair once, got \"%s\" again", i,
                           printable(text).c_str());
    }
    return DUET_OK;
}

duet_status vocabulary::load_charsmap(const gguf_file& file, error_text& err) {
    const gguf_kv* kv;
    DUET_TRY(find_array(file, "tokenizer.ggml.precompiled_charsmap", false, {DUET_KV_U8, DUET_KV_I8}, "bytes", SIZE_MAX,
                        &kv, err));
    if (!kv || kv->n_values == 0) return DUET_OK;
    std::string_view blob((const char*)kv->data, kv->n_values);
    uint32_t n_array = 0;
    if (blob.size() >= 4) n_array = gguf_load<uint32_t>(kv->data);
    if (blob.size() < 4 || n_array > blob.size() - 4 || n_array < 4 || n_array % 4 != 0)
        return bad_key(file, *kv, err,
                       "want 4 bytes of size, an array of that many bytes (a multiple of 4) and strings, got %zu bytes "
                       "with size %u",
                       blob.size(), n_array);
    if (blob.size() == 4 + (size_t)n_array || blob.back() != '\0')
        return bad_key(file, *kv, err,
                       "want strings that end with a zero byte behind the array, got %zu bytes that do not",
                       blob.size() - 4 - n_array);
    // A rule must not turn one character into a book.
    for (size_t begin = 4 + (size_t)n_array, end; begin < blob.size(); begin = end + 1) {
        end = blob.find('\0', begin);
        if (end - begin > kMaxRuleBytes)
            return bad_key(file, *kv, err, "want strings of at most %zu bytes, got one of %zu", kMaxRuleBytes,
                           end - begin);
    }
    if (kind == vocab_kind::unigram) charsmap = blob;
    return DUET_OK;
}

duet_status vocabulary::load_options(const gguf_file& file, error_text& err) {
    add_space_prefix = kind == vocab_kind::spm || kind == vocab_kind::unigram;
    remove_extra_spaces = kind == vocab_kind::unigram;
    bool is_prefixed = add_space_prefix;
    DUET_TRY(file.get_bool("tokenizer.ggml.add_space_prefix", false, &is_prefixed, err));
    if (add_space_prefix) add_space_prefix = is_prefixed;  // The other kinds have no such prefix.
    DUET_TRY(file.get_bool("tokenizer.ggml.remove_extra_whitespaces", false, &remove_extra_spaces, err));
    DUET_TRY(file.get_bool("tokenizer.ggml.normalizer.lowercase", false, &to_lower, err));
    std::string_view name;
    DUET_TRY(file.get_string("general.name", false, &name, err));
    std::string lower(name);
    for (char& c : lower) c |= 0x20;
    is_phi3 = lower.find("phi-3") != lower.npos || lower.find("phi3") != lower.npos;
    strip_accents = to_lower;
    return file.get_bool("tokenizer.ggml.normalizer.strip_accents", false, &strip_accents, err);
}

void vocabulary::find_ends() {
    for (std::string_view text : kEndSpellings) {
        int32_t id = spelled_.find(text);
        // A user's text must not end a turn by spelling the token that ends it, even if a careless converter gave this
        // token the type user-defined. But </s> is also a tag of HTML, and some vocabularies define it as such.
        bool is_careless = id >= 0 && types[id] == kTokenUserDefined && text != "</s>";
        if (id < 0 || (types[id] != kTokenControl && !is_careless)) continue;
        types[id] = kTokenControl;
        ends[id] = 1;
    }
    auto has = [&](std::string_view text) {
        int32_t id = spelled_.find(text);
        return id >= 0 && ends[id];
    };
    auto forget = [&](std::string_view text) {
        if (has(text)) ends[spelled_.find(text)] = 0;
    };
    // Where a turn has parts, <|end|> closes a part only. In Gemma 4, </s> is only a tag too.
    if ((has("<|return|>") && has("<|call|>")) || (has("<|calls|>") && has("<|flush|>"))) forget("<|end|>");
    if (has("<|tool_response>")) forget("</s>");
    if (eos >= 0) ends[eos] = 1;
}

void vocabulary::make_pieces() {
    piece_starts.reserve(spellings.size() + 1);
    for (int32_t id = 0; id < n_tokens(); ++id) {
        piece_starts.push_back(pieces.size());
        std::string_view text = spellings[id];
        if (is_special(id)) continue;
        if (types[id] == kTokenByte) {
            pieces += (char)byte_of_spelling(text);
        } else if (is_byte_level() && types[id] != kTokenUserDefined) {
            int n_bytes;
            for (size_t pos = 0; pos < text.size(); pos += n_bytes) {
                int byte = byte_level_byte(utf8_decode(text, pos, &n_bytes));
                if (byte >= 0) pieces += (char)byte;
                else pieces += text.substr(pos, n_bytes);
            }
        } else if (is_byte_level() || (kind == vocab_kind::wordpiece && !text.starts_with(kSpaceMark))) {
            pieces += text;
        } else {
            for (size_t pos = 0; pos < text.size();) {
                bool is_space = text.substr(pos).starts_with(kSpaceMark);
                pieces += is_space ? ' ' : text[pos];
                pos += is_space ? kSpaceMark.size() : 1;
            }
        }
    }
    piece_starts.push_back(pieces.size());
}

void vocabulary::make_indices() {
    index.reserve(spellings.size());
    for (int32_t id = 0; id < n_tokens(); ++id) {
        uint8_t type = types[id];
        bool is_text = type == kTokenNormal || type == kTokenUndefined;
        // User-defined tokens spell a space as a space or as U+2581. In text it is a space.
        std::string_view plain = type == kTokenUserDefined ? piece(id) : spellings[id];
        if (type == kTokenUserDefined && !plain.empty()) user_defined.add(plain, id);
        if ((type == kTokenUserDefined || is_special(id)) && !plain.empty()) all_special.add(plain, id);
        const bool is_merged_only = kind == vocab_kind::spm && type == kTokenUnused && !spellings[id].empty();
        if (is_text || is_merged_only) index.insert({is_byte_level() ? piece(id) : spellings[id], id});
        if ((kind == vocab_kind::unigram || kind == vocab_kind::wordpiece) && is_text) words.add(spellings[id], id);
    }
    user_defined.finish();
    all_special.finish();
    words.finish();
}

}  // namespace duet
