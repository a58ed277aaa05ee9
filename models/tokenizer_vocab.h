// models/tokenizer_vocab.h: the vocabulary of a file, checked and indexed, with the algorithms that turn a stretch of
// text into ids. Owns: the rules that a tokenizer's metadata must keep. Must not know: models, chat templates, the
// handles of runtime.h. Main path: models/tokenizer.cpp -> [models/tokenizer_vocab] -> models/tokenizer_bpe.cpp,
// tokenizer_unigram.cpp, tokenizer_wordpiece.cpp
#pragma once
#include "gguf.h"
#include "pretokenizer.h"

#include <algorithm>
#include <array>

namespace duet {

enum class vocab_kind { spm, bpe, unigram, wordpiece };

// Values of tokenizer.ggml.token_type.
// clang-format off
enum token_type : uint8_t {
    kTokenUndefined, kTokenNormal, kTokenUnknown, kTokenControl, kTokenUserDefined, kTokenUnused, kTokenByte
};
// clang-format on

constexpr std::string_view kSpaceMark = "\xe2\x96\x81";  // U+2581, with which SPM and unigram tokens spell a space

constexpr size_t kMaxRuleBytes = 256;  // of either side of a rule of a charsmap; the longest of NFKC has 33

// Rows that are found by a key: a token by its text, and what two neighbours merge to by their ids.
struct text_row {
    std::string_view key;
    int32_t id = -1;  // -1: none
};
struct merge_row {
    uint64_t key;  // merge_key
    int32_t id = -1;
    uint32_t rank = 0;
};
inline uint64_t merge_key(int32_t left, int32_t right) { return (uint64_t)(uint32_t)left << 32 | (uint32_t)right; }

// Finds rows by open addressing, once space for them is reserved. The texts must outlive it.
template <class Row> class hash_index {
  public:
    using key_type = decltype(Row::key);

    void reserve(size_t n);
    bool insert(const Row& row);         // false: the key has a row already, which stays
    const Row& row(key_type key) const;  // a free one: there is none
    int32_t find(key_type key) const { return row(key).id; }

  private:
    std::vector<Row> rows_;  // a power of two; at most half of them are in use
    uint64_t seed_ = 0;
};

// Finds all entries with which a text begins, by narrowing a range of the sorted entries byte by byte.
class prefix_index {
  public:
    void add(std::string_view text, int32_t id) { entries_.push_back({text, id}); }
    void finish();

    // Calls found(n_bytes, id) for every entry that is a prefix of text, shortest first.
    template <class Found> void prefixes(std::string_view text, Found&& found) const {
        if (text.empty()) return;
        auto low = entries_.begin() + starts_[(uint8_t)text[0]],
             high = entries_.begin() + starts_[(uint8_t)text[0] + 1];
        for (size_t n = 1; low < high; ++n) {
            for (; low < high && low->key.size() == n; ++low) found(n, low->id);
            if (n == text.size()) return;
            const auto byte = [n](const text_row& e) { return (uint8_t)e.key[n]; };
            low = std::ranges::lower_bound(low, high, (uint8_t)text[n], {}, byte);
            high = std::ranges::upper_bound(low, high, (uint8_t)text[n], {}, byte);
        }
    }

  private:
    std::vector<text_row> entries_;
    uint32_t starts_[257] = {};
};

struct vocabulary {
    duet_status load(const gguf_file& file, error_text& err);

    // Append the ids of a stretch of text that has no special tokens.
    void encode_bpe(std::string_view text, std::vector<int32_t>* ids) const;
    void encode_spm(std::string_view text, bool is_prefixed, std::vector<int32_t>* ids) const;
    void encode_unigram(std::string_view text, bool is_prefixed, std::vector<int32_t>* ids) const;
    void encode_wordpiece(std::string_view text, std::vector<int32_t>* ids) const;

    int32_t n_tokens() const { return (int32_t)spellings.size(); }
    std::string_view piece(int32_t id) const {
        return std::string_view(pieces).substr(piece_starts[id], piece_starts[id + 1] - piece_starts[id]);
    }
    // Phi-3: the spaces behind most special tokens are no text.
    bool takes_spaces(int32_t id) const {
        return is_phi3 && id != bos && id != unk && spellings[(size_t)id] != "<|endoftext|>";
    }
    int32_t last() const { return add_eos ? eos : add_sep ? sep : -1; }  // what stands behind a text; -1: nothing
    bool is_special(int32_t id) const { return types[id] == kTokenControl || types[id] == kTokenUnknown; }

    vocab_kind kind = vocab_kind::spm;
    std::vector<std::string_view> spellings;
    std::vector<uint8_t> types;         // token_type
    std::vector<float> scores;          // spm and unigram
    std::vector<uint8_t> ends;          // 1: the token ends a generation
    std::string pieces;                 // bytes of all tokens
    std::vector<size_t> piece_starts;   // n_tokens + 1
    std::array<int32_t, 256> byte_ids;  // the token of each byte, -1: none
    bool has_byte_fallback = false;     // spm, unigram, raw bpe: all 256 byte tokens exist
    int32_t bos = -1, eos = -1, unk = -1, sep = -1;
    bool add_bos = false, add_eos = false, add_sep = false;  // only where there is such a token
    bool add_space_prefix = false, remove_extra_spaces = false;
    bool to_lower = true, strip_accents = true;  // wordpiece only
    bool is_phi3 = false;

    hash_index<text_row> index;              // results of merges: bpe by bytes, spm by spelling
    hash_index<merge_row> merges;            // bpe only
    pretokenizer pre;                        // bpe only
    prefix_index words;                      // unigram and wordpiece
    prefix_index user_defined, all_special;  // found in text before all else; all_special has control tokens too
    std::string_view charsmap;  // unigram: u32 size, double array of that many bytes, strings that end with NUL
    float unk_score = 0;
    size_t max_bytes = 0;  // length of the longest token

  private:
    bool is_byte_level() const { return kind == vocab_kind::bpe && !(pre.flags() & kPreRawUtf8); }
    duet_status load_tokens(const gguf_file& file, error_text& err);
    duet_status load_types(const gguf_file& file, error_text& err);
    duet_status load_scores(const gguf_file& file, error_text& err);
    duet_status load_byte_tokens(const gguf_file& file, error_text& err);
    duet_status check_ids(const gguf_file& file, error_text& err);
    duet_status load_ids(const gguf_file& file, error_text& err);
    duet_status load_merges(const gguf_file& file, error_text& err);
    duet_status load_charsmap(const gguf_file& file, error_text& err);
    duet_status load_options(const gguf_file& file, error_text& err);
    void find_ends();
    void make_pieces();
    void make_indices();
    void merge_pieces(std::string_view text, std::vector<int32_t>* ids) const;
    std::string normalized(std::string_view text, bool is_prefixed) const;
    // Appends the token, or what the text of an unknown one (-1) becomes.
    void append_token(int32_t id, std::string_view text, bool* was_unknown, std::vector<int32_t>* ids) const;

    hash_index<text_row> spelled_;  // every token by its spelling; the lowest id of equal spellings
    bool is_from_types_ = false;
};

// The byte-level alphabet of GPT-2, in which each byte has a printable character.
uint32_t byte_level_char(uint8_t byte);
int byte_level_byte(uint32_t code_point);  // -1: not in the alphabet

}  // namespace duet
