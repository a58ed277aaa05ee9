// models/unicode.cpp: lookups in the tables of unicode_data.inc, UTF-8, and the canonical normal forms.
// Main path: models/pretokenizer.cpp, models/tokenizer*.cpp, models/gguf_part.cpp -> [models/unicode.cpp]
// Algorithms: The Unicode Standard, chapter 3 (UTF-8 table 3-7; D109-D117 normal forms; section 3.12 Hangul).
#include "unicode.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <vector>

namespace duet {
namespace {

struct code_range {
    uint32_t first, last;
};
// A code point has 21 bits.
struct class_range {
    uint64_t first : 21, last : 21, value : 8;
};
struct case_range {
    uint64_t first : 21, last : 21;
    int64_t step : 4, delta : 18;
};
struct special_case {
    uint32_t code_point;
    char which;
    uint32_t first, second, third;  // 0: none
};
struct decomposition {
    uint64_t code_point : 21, first : 21, second : 21;
};

#include "unicode_data.inc"

// Categories of the code points below the Han radicals, one byte each. A binary search serves the others.
constexpr uint32_t kDirect = 0x2e80;
constexpr std::array<uint8_t, kDirect> kDirectCategories = [] {
    std::array<uint8_t, kDirect> out{};
    size_t i_run = 0;
    for (uint32_t cp = 0; cp < kDirect; ++cp) {
        if ((kCategoryRuns[i_run + 1] >> 5) == cp) ++i_run;
        out[cp] = kCategoryRuns[i_run] & 31;
    }
    return out;
}();

template <class Range, size_t kCount> const Range* find_range(const Range (&table)[kCount], uint32_t cp) {
    const Range* range = std::ranges::upper_bound(table, cp, {}, [](const Range& r) { return (uint32_t)r.first; });
    return range != table && cp <= range[-1].last ? range - 1 : nullptr;
}

constexpr uint32_t kHangulS = 0xac00, kHangulL = 0x1100, kHangulV = 0x1161, kHangulT = 0x11a7;
constexpr uint32_t kHangulLs = 19, kHangulVs = 21, kHangulTs = 28;

// A character of a text that is being normalized: its code point (or kInvalidByte + the byte) and its combining class.
struct normal_char {
    uint32_t cp;
    uint8_t combining;
};

uint8_t combining_class(uint32_t cp) {
    const class_range* range = cp < 0x300 ? nullptr : find_range(kCombiningClasses, cp);
    return range ? range->value : 0;
}

void append_decomposed(std::vector<normal_char>* out, uint32_t cp) {
    if (cp - kHangulS < kHangulLs * kHangulVs * kHangulTs) {
        uint32_t s = cp - kHangulS;
        out->push_back({kHangulL + s / (kHangulVs * kHangulTs), 0});
        out->push_back({kHangulV + s / kHangulTs % kHangulVs, 0});
        if (s % kHangulTs) out->push_back({kHangulT + s % kHangulTs, 0});
        return;
    }
    // The first of a pair may decompose again, the second never does; the deepest chain in Unicode has four steps.
    uint32_t seconds[8];
    int n_seconds = 0;
    for (;;) {
        const decomposition* end = std::end(kDecompositions);
        const auto code_point = [](const decomposition& d) { return (uint32_t)d.code_point; };
        const decomposition* row = cp < 0xc0 ? end : std::ranges::lower_bound(kDecompositions, cp, {}, code_point);
        if (row == end || row->code_point != cp || n_seconds == 8) break;
        if (row->second) seconds[n_seconds++] = row->second;
        cp = row->first;
    }
    out->push_back({cp, combining_class(cp)});
    while (n_seconds > 0) {
        uint32_t second = seconds[--n_seconds];
        out->push_back({second, combining_class(second)});
    }
}

std::vector<normal_char> decomposed(std::string_view text) {
    std::vector<normal_char> out;
    out.reserve(text.size());
    for (size_t pos = 0; pos < text.size();) {
        const uint8_t first = (uint8_t)text[pos];
        const uint32_t cp = next_char(text, &pos);
        if (cp == kInvalidByte) out.push_back({kInvalidByte + first, 0});
        else append_decomposed(&out, cp);
    }
    for (size_t i = 0; i < out.size();) {  // Marks between starters are sorted by their class.
        size_t end = i;
        while (end < out.size() && out[end].combining) ++end;
        std::ranges::stable_sort(out.begin() + i, out.begin() + end, {}, &normal_char::combining);
        i = end + 1;
    }
    return out;
}

// Returns the character that a and b compose to, or 0.
uint32_t composed_pair(uint32_t a, uint32_t b) {
    if (a - kHangulL < kHangulLs && b - kHangulV < kHangulVs)
        return kHangulS + ((a - kHangulL) * kHangulVs + (b - kHangulV)) * kHangulTs;
    if (a - kHangulS < kHangulLs * kHangulVs * kHangulTs && (a - kHangulS) % kHangulTs == 0 &&
        b - kHangulT - 1 < kHangulTs - 1)
        return a + (b - kHangulT);
    const std::pair want(a, b);
    auto pair_of = [](uint16_t i) {
        return std::pair<uint32_t, uint32_t>(kDecompositions[i].first, kDecompositions[i].second);
    };
    const uint16_t* row = std::ranges::lower_bound(kCompositions, want, {}, pair_of);
    return row != std::end(kCompositions) && pair_of(*row) == want ? kDecompositions[*row].code_point : 0;
}

std::string encoded(const std::vector<normal_char>& chars) {
    std::string out;
    out.reserve(chars.size());
    for (normal_char c : chars) {
        if (c.cp >= kInvalidByte) out += (char)(c.cp - kInvalidByte);
        else utf8_append(&out, c.cp);
    }
    return out;
}

}  // namespace

uint32_t utf8_decode(std::string_view text, size_t pos, int* n_bytes) {
    const uint8_t* p = (const uint8_t*)text.data() + pos;
    *n_bytes = 1;
    if (p[0] < 0x80) return p[0];
    constexpr uint32_t kLeast[] = {0, 0x80, 0x800, 0x10000};  // what fewer bytes can hold is not written in more
    const int n_more = p[0] < 0xe0 ? 1 : p[0] < 0xf0 ? 2 : 3;
    if (p[0] < 0xc2 || p[0] > 0xf4 || text.size() - pos <= (size_t)n_more) return kInvalidByte;
    uint32_t cp = p[0] & (0x3fu >> n_more);
    for (int i = 1; i <= n_more; i++) {
        if ((p[i] & 0xc0) != 0x80) return kInvalidByte;
        cp = cp << 6 | (p[i] & 0x3fu);
    }
    if (cp < kLeast[n_more] || (cp >= 0xd800 && cp <= 0xdfff) || cp > 0x10ffff) return kInvalidByte;
    *n_bytes = n_more + 1;
    return cp;
}

void utf8_append(std::string* out, uint32_t cp) {
    constexpr uint8_t kLead[] = {0, 0xc0, 0xe0, 0xf0};
    const int n_more = cp < 0x80 ? 0 : cp < 0x800 ? 1 : cp < 0x10000 ? 2 : 3;  // bytes of 6 bits behind the first
    *out += (char)(kLead[n_more] | cp >> 6 * n_more);
    for (int i = n_more; i-- > 0;) *out += (char)(0x80 | (cp >> 6 * i & 0x3f));
}

bool utf8_valid(std::string_view text) {
    for (size_t pos = 0; pos < text.size();)
        if (next_char(text, &pos) == kInvalidByte) return false;
    return true;
}

size_t count_chars(std::string_view text) {
    return (size_t)std::count_if(text.begin(), text.end(), [](char c) { return ((uint8_t)c & 0xc0) != 0x80; });
}

size_t utf8_length(std::string_view text) {
    int n_bytes;
    return text.empty() || utf8_decode(text, 0, &n_bytes) == kInvalidByte ? 0 : (size_t)n_bytes;
}

bool utf8_is_cut(std::string_view text) {
    if (text.empty() || text.size() > 3) return false;
    for (const char last : {'\x80', '\xbf'}) {  // every second byte that some first byte allows lies between
        char whole[4] = {last, last, last, last};
        for (size_t i = 0; i < text.size(); i++) whole[i] = text[i];
        if (utf8_length({whole, 4}) > text.size()) return true;
    }
    return false;
}

uint32_t unicode_bits(uint32_t cp) {
    const auto with_space = [cp](uint32_t bits) {  // White_Space: the separators, and six control characters
        return bits & kUniZ || (cp >= 9 && cp <= 13) || cp == 0x85 ? bits | kUniSpace : bits;
    };
    if (cp < kDirect) return with_space(1u << kDirectCategories[cp]);
    if (cp >= kInvalidByte) return kUniCn;
    const uint32_t* run = std::upper_bound(kCategoryRuns, std::end(kCategoryRuns), cp << 5 | 31);
    return with_space(1u << (run[-1] & 31)) | (find_range(kHanRanges, cp) ? (uint32_t)kUniHan : 0u);
}

template <size_t kCount> static bool map_case(const case_range (&table)[kCount], uint32_t* cp) {
    const case_range* range = find_range(table, *cp);
    if (!range || (*cp - range->first) % (uint32_t)range->step != 0) return false;
    *cp += (uint32_t)range->delta;
    return true;
}

uint32_t unicode_lower(uint32_t cp) {
    if (cp < 0x80) return cp >= 'A' && cp <= 'Z' ? cp + 32 : cp;
    map_case(kLowerRanges, &cp);
    return cp;
}

void unicode_append_case(std::string* out, uint32_t cp, unicode_case which) {
    if (cp >= 0x80)
        for (const special_case& row : kSpecialCases)
            if (row.code_point == cp && row.which == (char)which) {
                for (uint32_t part : {row.first, row.second, row.third})
                    if (part) utf8_append(out, part);
                return;
            }
    const bool is_done = (which == unicode_case::title && map_case(kTitleRanges, &cp)) ||
                         (which == unicode_case::fold && map_case(kFoldRanges, &cp));
    if (!is_done && (which == unicode_case::lower || which == unicode_case::fold)) cp = unicode_lower(cp);
    else if (!is_done) map_case(kUpperRanges, &cp);
    utf8_append(out, cp);
}

bool unicode_is_digit(uint32_t cp) {
    return (unicode_bits(cp) & kUniNd) || (cp >= 0x80 && find_range(kDigitRanges, cp));
}

bool unicode_is_numeric(uint32_t cp) {
    return (unicode_bits(cp) & kUniN) || (cp >= 0x80 && find_range(kNumericLetters, cp));
}

std::string unicode_nfd(std::string_view text) { return encoded(decomposed(text)); }

std::string unicode_nfc(std::string_view text) {
    // Text below U+0300 is in normal form C already: no such character composes with another, and each that decomposes
    // composes to itself again. Most texts end here.
    if (std::ranges::all_of(text, [](char c) { return (uint8_t)c < 0xcc; })) return std::string(text);

    std::vector<normal_char> chars = decomposed(text);
    size_t n_out = 0;
    size_t starter = SIZE_MAX;  // index of the last starter written
    uint8_t last_class = 0;     // class of the last character written after it
    for (size_t i = 0; i < chars.size(); ++i) {
        normal_char c = chars[i];
        bool is_blocked = n_out != starter + 1 && (last_class >= c.combining);
        uint32_t pair = starter != SIZE_MAX && !is_blocked ? composed_pair(chars[starter].cp, c.cp) : 0;
        if (pair) {
            chars[starter].cp = pair;
            continue;
        }
        if (c.combining == 0) starter = n_out;
        last_class = c.combining;
        chars[n_out++] = c;
    }
    chars.resize(n_out);
    return encoded(chars);
}

}  // namespace duet
