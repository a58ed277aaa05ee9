// models/pretokenizer.h: cuts text into pieces, by the patterns of pretokenizers.def; byte pairs are merged inside a
// piece only. Owns: a small matcher for these patterns. Must not know: vocabularies.
// Main path: models/tokenizer.cpp -> models/tokenizer_bpe.cpp -> [models/pretokenizer] -> models/unicode.h
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace duet {

// Flags of a row of pretokenizers.def, beside its patterns.
enum pretokenizer_flag : uint32_t {
    kPreNfc = 1,         // Text is brought to normal form C first.
    kPreWholeFirst = 2,  // A piece that is a token is taken as it is, without merges.
    kPreAddBos = 4,      // Text begins with BOS unless the file says otherwise.
    kPreAddSep = 8,      // Text ends with the separator unless the file says otherwise.
    kPreRawUtf8 = 16,    // Tokens are spelled in UTF-8 with U+2581 for spaces, not in the byte-level alphabet.
    kPreRankById = 32,   // Two tokens that make a token merge, lowest id first. No list of merges is needed.
};

// A sequence of patterns. Each one cuts the pieces of the one before into its matches and what lies between them.
class pretokenizer {
  public:
    // Takes the row with that name. False: there is none.
    bool select(std::string_view name);
    // Takes the caller's patterns. False: a pattern is not of the dialect.
    bool compile(const std::vector<std::string_view>& patterns);
    uint32_t flags() const { return flags_; }

    // Sets *ends to the byte offsets where the pieces of text end, ascending; the last is text.size(). The text has at
    // most 2^32 - 1 bytes.
    void split(std::string_view text, std::vector<uint32_t>* ends) const;

    static std::string known_names();  // for messages

  private:
    struct program;
    std::vector<std::shared_ptr<const program>> programs_;
    uint32_t flags_ = 0;
};

}  // namespace duet
