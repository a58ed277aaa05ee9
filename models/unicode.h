// models/unicode.h: what text needs of Unicode: UTF-8, general categories, lower case, canonical normal forms. Every
// function accepts any bytes. Owns: the generated tables (unicode_data.inc), the only UTF-8 decoder of this folder.
// Must not know: tokenizers, files.
// Main path: models/pretokenizer.cpp, models/tokenizer*.cpp, models/gguf_part.cpp -> [models/unicode]
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace duet {

// One bit for each general category, in the order of unicode_data.py, and two properties that tokenizers ask for.
// clang-format off
enum unicode_bit : uint32_t {
    kUniLu = 1u << 0, kUniLl = 1u << 1, kUniLt = 1u << 2, kUniLm = 1u << 3, kUniLo = 1u << 4, kUniL = 0x1fu,
    kUniMn = 1u << 5, kUniM = 0xe0u,
    kUniNd = 1u << 8, kUniN = 0x700u,
    kUniPc = 1u << 11, kUniP = 0x3f800u,
    kUniS = 0x3c0000u, kUniZ = 0x1c00000u,
    kUniCc = 1u << 25, kUniCf = 1u << 26, kUniCo = 1u << 28, kUniCn = 1u << 29,
    kUniHan = 1u << 30,   // script Han
    kUniSpace = 1u << 31, // White_Space
};
// clang-format on

// Of ASCII, whatever the locale is.
inline bool is_digit(char c) { return c >= '0' && c <= '9'; }
inline bool is_letter_or_digit(char c) { return is_digit(c) || ((c | 32) >= 'a' && (c | 32) <= 'z'); }

// The value of a hexadecimal digit; -1: it is none.
inline int hex_digit(char c) {
    if (is_digit(c)) return c - '0';
    const char lower = (char)(c | 32);
    return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

// Stands for a byte that is no valid UTF-8: larger than any code point, of category Cn, equal to no character.
constexpr uint32_t kInvalidByte = 0x110000;

// Decodes the character at text[pos], pos < text.size(). Returns its code point and sets *n_bytes; for an invalid byte
// it returns kInvalidByte with *n_bytes = 1.
uint32_t utf8_decode(std::string_view text, size_t pos, int* n_bytes);
inline size_t char_bytes(std::string_view text, size_t pos) {  // of the character at pos
    int n_bytes;
    utf8_decode(text, pos, &n_bytes);
    return (size_t)n_bytes;
}
// The code point at *at, which moves on behind it.
inline uint32_t next_char(std::string_view text, size_t* at) {
    int n_bytes;
    const uint32_t cp = utf8_decode(text, *at, &n_bytes);
    *at += (size_t)n_bytes;
    return cp;
}
void utf8_append(std::string* out, uint32_t code_point);
bool utf8_valid(std::string_view text);
size_t count_chars(std::string_view text);  // bytes that do not continue a character
// Bytes of the well-formed character that text begins with; 0: it begins with none, or is empty.
size_t utf8_length(std::string_view text);
// Whether text is the beginning of a character that more bytes could complete.
bool utf8_is_cut(std::string_view text);

uint32_t unicode_bits(uint32_t code_point);
uint32_t unicode_lower(uint32_t code_point);  // simple mapping

// Appends a character in another case, which may be several characters, as Python's str.lower, upper, title and
// casefold have it. code_point is valid.
enum class unicode_case : char { lower = 'l', upper = 'u', title = 't', fold = 'f' };
void unicode_append_case(std::string* out, uint32_t code_point, unicode_case which);
// Python's isdigit and isnumeric; isdecimal is the category Nd.
bool unicode_is_digit(uint32_t code_point);
bool unicode_is_numeric(uint32_t code_point);

// Canonical normal forms. Invalid bytes stay as they are.
std::string unicode_nfc(std::string_view text);
std::string unicode_nfd(std::string_view text);

}  // namespace duet
