// models/tokenizer_wordpiece.cpp: BERT's tokenizer: cleans words and cuts each, from the left, into the longest tokens.
// Owns: WordPiece and its normalization. Must not know: special tokens.
// Main path: models/tokenizer.cpp -> [models/tokenizer_wordpiece.cpp] -> models/tokenizer_vocab.h
//
// Algorithms: google-research/bert:tokenization.py; huggingface/tokenizers:tokenizers/src/normalizers/bert.rs,
// models/wordpiece. In GGUF the first token of a word begins with U+2581, and the tokens that continue a word have lost
// their ##.
#include "tokenizer_vocab.h"
#include "unicode.h"

namespace duet {
namespace {

constexpr size_t kMaxWordChars = 100;  // longer words are unknown (max_input_chars_per_word)

bool is_wordpiece_cjk(uint32_t cp) {
    return (cp >= 0x4e00 && cp <= 0x9fff) || (cp >= 0x3400 && cp <= 0x4dbf) || (cp >= 0x20000 && cp <= 0x2a6df) ||
           (cp >= 0x2a700 && cp <= 0x2b73f) || (cp >= 0x2b740 && cp <= 0x2b81f) || (cp >= 0x2b920 && cp <= 0x2ceaf) ||
           (cp >= 0xf900 && cp <= 0xfaff) || (cp >= 0x2f800 && cp <= 0x2fa1f);
}

bool is_wordpiece_punctuation(uint32_t cp, uint32_t bits) {
    return (cp > ' ' && cp < 0x7f && !is_letter_or_digit((char)cp)) || (bits & kUniP);
}

}  // namespace

void vocabulary::encode_wordpiece(std::string_view raw, std::vector<int32_t>* ids) const {
    std::string word(kSpaceMark);
    size_t n_chars = 0;
    auto end_word = [&] {
        if (n_chars == 0) return;
        size_t n_before = ids->size();
        bool is_known = n_chars <= kMaxWordChars;
        for (size_t pos = 0; pos < word.size() && is_known;) {
            size_t longest = 0;
            int32_t id = -1;
            std::string_view rest = std::string_view(word).substr(pos);
            if (pos == 0 || !rest.starts_with(kSpaceMark))
                words.prefixes(rest, [&](size_t n_bytes, int32_t found) {
                    longest = n_bytes;
                    id = found;
                });
            is_known = id >= 0 && (pos > 0 || longest > kSpaceMark.size());
            if (is_known) ids->push_back(id);
            pos += longest;
        }
        if (!is_known) {
            ids->resize(n_before);
            if (unk >= 0) ids->push_back(unk);
        }
        word.resize(kSpaceMark.size());
        n_chars = 0;
    };
    auto put = [&](uint32_t cp) {
        utf8_append(&word, cp);
        ++n_chars;
    };

    const std::string text = strip_accents ? unicode_nfd(raw) : std::string(raw);
    for (size_t pos = 0; pos < text.size();) {
        uint32_t cp = next_char(text, &pos), bits = unicode_bits(cp);
        if (cp == '\t' || cp == '\n' || cp == '\r' || ((bits & kUniSpace) && !(bits & kUniCc))) {
            end_word();
        } else if (cp == kInvalidByte || cp == 0xfffd || (bits & (kUniCc | kUniCf | kUniCo)) ||
                   (strip_accents && (bits & kUniMn))) {
            continue;
        } else if (is_wordpiece_cjk(cp) || is_wordpiece_punctuation(cp, bits)) {
            end_word();
            put(cp);
            end_word();
        } else if (to_lower) {
            put(unicode_lower(cp));
            if (cp == 0x130) put(0x307);  // This is the one letter whose lower case is two characters.
        } else {
            put(cp);
        }
    }
    end_word();
}

}  // namespace duet
