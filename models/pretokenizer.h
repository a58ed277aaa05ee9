// models/pretokenizer.h: cuts text into the pieces inside which byte pairs are merged, by the patterns of
// pretokenizers.def. Owns: a small matcher for those patterns. Must not know: vocabularies. Main path:
// models/tokenizer.cpp -> models/tokenizer_bpe.cpp -> [models/pretokenizer] -> models/unicode.h
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace duet {

// What a row of pretokenizers.def says beside its patterns.
enum pretokenizer_flag : uint32_t {
    kPreNfc = 1,         // text is brought to normal form C first
    kPreWholeFirst = 2,  // a piece that is a token is taken without looking at merges
    kPreAddBos = 4,      // begins with BOS where the file does not say
    kPreAddSep = 8,      // ends with the separator where the file does not say
    kPreRawUtf8 = 16,    // tokens are spelled in UTF-8 with U+2581 for spaces, not in the byte-level alphabet
    kPreRankById = 32,   // any two tokens that make a token merge, lowest id first; merges are not needed
};

// A sequence of patterns: each cuts the pieces of the one before into matches and what lies between them.
class pretokenizer {
  public:
    pretokenizer();
    ~pretokenizer();
    pretokenizer(pretokenizer&&) noexcept;
    pretokenizer& operator=(pretokenizer&&) noexcept;

    // Takes the row with that name; false when there is none.
    bool select(std::string_view name);
    // Takes patterns of the caller's; false when one is not of the dialect.
    bool compile(const std::vector<std::string_view>& patterns);
    uint32_t flags() const { return flags_; }

    // Byte offsets where the pieces of text end, ascending; the last is text.size(). Text of at most 2^32 - 1 bytes.
    void split(std::string_view text, std::vector<uint32_t>* ends) const;

    static std::string known_names();  // for messages

  private:
    struct program;
    std::vector<program> programs_;
    uint32_t flags_ = 0;
};

}  // namespace duet
