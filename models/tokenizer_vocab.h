// models/tokenizer_vocab.h: the vocabulary of a file, checked and indexed, with the algorithms that turn a stretch of
// text into ids. Owns: the rules that a tokenizer's metadata must keep. Must not know: models, chat templates, the
// handles of runtime.h. Main path: models/tokenizer.cpp -> [models/tokenizer_vocab] -> models/tokenizer_bpe.cpp,
// tokenizer_unigram.cpp, tokenizer_wordpiece.cpp
#pragma once
#include "gguf.h"
#include "pretokenizer.h"

#include <cstring>

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

// Text -> id, by open addressing. The views in it must outlive it.
class string_index {
  public:
    void reserve(size_t n);
    int32_t insert(std::string_view text, int32_t id);  // returns the id that the text has already, or -1
    int32_t find(std::string_view text) const;          // -1: none

  private:
    struct slot {
        std::string_view text;
        int32_t id = -1;
    };
    size_t hash(std::string_view text) const;
    size_t place_of(std::string_view text) const;  // its slot, or the free one for it
    std::vector<slot> slots_;                      // a power of two; at most half of them are in use
    uint64_t seed_ = 0;
};

// (left id, right id) -> rank and id of the merged token.
class merge_index {
  public:
    struct merge {
        uint32_t rank;
        int32_t id;
    };
    void reserve(size_t n);
    bool insert(int32_t left, int32_t right, merge m);  // false: the pair exists already
    const merge* find(int32_t left, int32_t right) const;

  private:
    struct slot {
        uint64_t key = UINT64_MAX;
        merge value{};
    };
    static uint64_t key_of(int32_t left, int32_t right) { return (uint64_t)(uint32_t)left << 32 | (uint32_t)right; }
    size_t place_of(uint64_t key) const {  // its slot, or the free one for it
        size_t i = (size_t)((key * 0x9e3779b97f4a7c15u) >> shift_);
        while (slots_[i].key != UINT64_MAX && slots_[i].key != key) i = (i + 1) & (slots_.size() - 1);
        return i;
    }
    std::vector<slot> slots_;
    int shift_ = 63;
};

// Finds all entries with which a text begins, by narrowing a range of the sorted entries byte by byte.
class prefix_index {
  public:
    void add(std::string_view text, int32_t id) { entries_.push_back({text, id}); }
    void finish();
    bool is_empty() const { return entries_.empty(); }
    bool may_begin(char byte) const { return starts_[(uint8_t)byte] != starts_[(uint8_t)byte + 1]; }

    // Calls found(n_bytes, id) for every entry that is a prefix of text, shortest first.
    template <class Found> void prefixes(std::string_view text, Found&& found) const {
        if (text.empty() || entries_.empty()) return;
        uint32_t low = starts_[(uint8_t)text[0]], high = starts_[(uint8_t)text[0] + 1];
        for (size_t n = 1; low < high; ++n) {
            for (; low < high && entries_[low].text.size() == n; ++low) found(n, entries_[low].id);
            if (n == text.size() || low == high) return;
            low = bound(low, high, n, (uint8_t)text[n], false);
            high = bound(low, high, n, (uint8_t)text[n], true);
        }
    }

  private:
    struct entry {
        std::string_view text;
        int32_t id;
    };
    // Returns the first entry of [low, high) whose byte n is at least `byte` (is_above: greater than `byte`).
    uint32_t bound(uint32_t low, uint32_t high, size_t n, uint8_t byte, bool is_above) const {
        while (low < high) {
            uint32_t middle = low + (high - low) / 2;
            uint8_t at = (uint8_t)entries_[middle].text[n];
            if (is_above ? at <= byte : at < byte) low = middle + 1;
            else high = middle;
        }
        return low;
    }
    std::vector<entry> entries_;
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
    bool is_special(int32_t id) const { return types[id] == kTokenControl || types[id] == kTokenUnknown; }

    vocab_kind kind = vocab_kind::spm;
    std::vector<std::string_view> spellings;
    std::vector<uint8_t> types;        // token_type
    std::vector<float> scores;         // spm and unigram
    std::vector<uint8_t> ends;         // 1: the token ends a generation
    std::string pieces;                // bytes of all tokens
    std::vector<size_t> piece_starts;  // n_tokens + 1
    int32_t byte_ids[256];             // the token of each byte, -1: none
    bool has_byte_fallback = false;    // spm, unigram, raw bpe: all 256 byte tokens exist
    int32_t bos = -1, eos = -1, unk = -1, sep = -1;
    bool add_bos = false, add_eos = false, add_sep = false;
    bool add_space_prefix = false, remove_extra_spaces = false;
    bool to_lower = true, strip_accents = true;  // wordpiece only
    bool is_phi3 = false;

    string_index index;                      // results of merges: bpe by bytes, spm by spelling
    merge_index merges;                      // bpe only
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
    void append_unknown(std::string_view text, bool* was_unknown, std::vector<int32_t>* ids) const;

    string_index spelled_;  // every token by its spelling; the lowest id of equal spellings
    bool is_from_types_ = false;
};

// The byte-level alphabet of GPT-2, in which each byte has a printable character.
uint32_t byte_level_char(uint8_t byte);
int byte_level_byte(uint32_t code_point);  // -1: not in the alphabet

}  // namespace duet
