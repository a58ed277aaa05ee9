// models/tokenizer_unigram.cpp: unigram tokenizers (T5, XLM-R): the most probable sequence of tokens, after the
// normalization that the vocabulary brings. Owns: unigram, its normalization. Must not know: special tokens.
// Main path: models/tokenizer.cpp -> [models/tokenizer_unigram.cpp] -> models/tokenizer_vocab.h
//
// Algorithms: google/sentencepiece:src/unigram_model.cc (Viterbi, penalty of the unknown), src/normalizer.cc (spaces,
// longest rule first); s-yata/darts-clone:include/darts.h (the double array of the rules). Every index into the array
// is checked, because it comes from the file.
#include "tokenizer_vocab.h"
#include "unicode.h"

namespace duet {
namespace {

// The rules of a precompiled charsmap. The loader has checked its sizes, and that the strings end with a zero byte.
class charsmap_view {
  public:
    explicit charsmap_view(std::string_view blob) {
        if (blob.empty()) return;
        n_units_ = gguf_load<uint32_t>((const uint8_t*)blob.data()) / 4;
        units_ = (const uint8_t*)blob.data() + 4;
        strings_ = blob.substr(4 + 4 * n_units_);
    }

    // Finds the longest rule that text begins with: *n_bytes of the text become *replacement. False: no rule applies.
    bool longest(std::string_view text, size_t* n_bytes, std::string_view* replacement) const {
        bool is_found = false;
        size_t node = 0;
        uint32_t unit;
        if (!read_unit(0, &unit)) return false;
        node ^= offset(unit);
        for (size_t i = 0; i < std::min(text.size(), kMaxRuleBytes); ++i) {
            node ^= (uint8_t)text[i];
            if (!read_unit(node, &unit) || (unit & 0x800000ffu) != (uint8_t)text[i]) break;
            bool has_leaf = unit >> 8 & 1;
            node ^= offset(unit);
            if (!has_leaf) continue;
            uint32_t leaf;
            if (!read_unit(node, &leaf) || (leaf & 0x7fffffffu) >= strings_.size()) break;
            *n_bytes = i + 1;
            *replacement = strings_.substr(leaf & 0x7fffffffu);
            *replacement = replacement->substr(0, replacement->find('\0'));
            is_found = true;
        }
        return is_found;
    }

  private:
    static uint32_t offset(uint32_t unit) { return (unit >> 10) << ((unit & 0x200u) >> 6); }
    bool read_unit(size_t i, uint32_t* unit) const {
        if (i >= n_units_) return false;
        *unit = gguf_load<uint32_t>(units_ + 4 * i);
        return true;
    }

    const uint8_t* units_ = nullptr;
    size_t n_units_ = 0;
    std::string_view strings_;
};

}  // namespace

// Applies the rules, and turns spaces into marks.
std::string vocabulary::normalized(std::string_view text, bool is_prefixed) const {
    charsmap_view rules(charsmap);
    std::string out = is_prefixed ? std::string(kSpaceMark) : std::string();
    size_t n_prefix = out.size();
    bool was_space = remove_extra_spaces;
    for (size_t pos = 0; pos < text.size();) {
        size_t n_bytes = 0;
        std::string_view part;
        if (!rules.longest(text.substr(pos), &n_bytes, &part)) {
            n_bytes = char_bytes(text, pos);
            part = text.substr(pos, n_bytes);
        }
        pos += n_bytes;
        for (char c : part) {
            if (c != ' ') out += c;
            else if (!was_space) out += kSpaceMark;
            was_space = c == ' ' && remove_extra_spaces;
        }
    }
    if (remove_extra_spaces && out.size() > n_prefix && was_space) out.resize(out.size() - kSpaceMark.size());
    if (out.size() == n_prefix && remove_extra_spaces) out.clear();  // The text was nothing but spaces.
    return out;
}

void vocabulary::encode_unigram(std::string_view raw, bool is_prefixed, std::vector<int32_t>* ids) const {
    std::string text = normalized(raw, is_prefixed);
    struct best_end {  // the best way to reach a byte
        double score = 0;
        uint32_t start = 0;
        int32_t id = -1;  // -1: not reached yet; -2: by an unknown character
    };
    std::vector<best_end> best(text.size() + 1);
    std::string_view all = text;
    for (size_t pos = 0; pos < all.size();) {
        const size_t n_char = char_bytes(all, pos);
        bool has_char = false;
        auto offer = [&](size_t n_bytes, int32_t id, double score) {
            best_end& end = best[pos + n_bytes];
            if (best[pos].score + score > end.score || end.id == -1) end = {best[pos].score + score, (uint32_t)pos, id};
        };
        words.prefixes(all.substr(pos), [&](size_t n_bytes, int32_t id) {
            has_char |= n_bytes == n_char;
            offer(n_bytes, id, scores[id]);
        });
        if (!has_char) offer(n_char, -2, unk_score);
        pos += n_char;
    }
    std::vector<uint32_t> path;
    for (uint32_t end = (uint32_t)all.size(); end > 0; end = best[end].start) path.push_back(end);
    bool was_unknown = false;
    for (auto end = path.rbegin(); end != path.rend(); ++end)
        append_token(best[*end].id, all.substr(best[*end].start, *end - best[*end].start), &was_unknown, ids);
}

}  // namespace duet
