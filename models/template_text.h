// models/template_text.h: what Python's strings know, on UTF-8: blanks, characters, cases, quoting.
// Must not know: templates.
// Used by models/template_*.cpp
#pragma once
#include "unicode.h"
#include "value.h"

#include <string>
#include <string_view>

namespace duet {

bool is_python_space(uint32_t code_point);   // str.isspace
size_t stripped_end(std::string_view text);  // the length without blanks at the end
size_t stripped_begin(std::string_view text);

// Where the character begins that ends at end > 0.
inline size_t char_before(std::string_view text, size_t end) {
    do end--;
    while (end > 0 && ((uint8_t)text[end] & 0xc0) == 0x80);
    return end;
}
// The byte offset of the i-th character, text.size() when there are fewer.
size_t char_offset(std::string_view text, size_t i_char);

// The text between the quotes of a literal, its escapes resolved as Python's; false: an escape is not valid.
bool unescape_string(std::string_view literal, std::string* out);

// The value of a digit or letter in any letter case; 99: it is none.
inline int digit_of(char c) { return is_digit(c) ? c - '0' : is_letter_or_digit(c) ? (c | 32) - 'a' + 10 : 99; }
// An integer of digits in a base: int64 where it fits, else its decimal digits. Undefined where it has more than 127
// bits; decimal digits are kept whole whatever their number.
value integer_of_digits(std::string_view digits, int base);
// Python's int(text, base); null when it is none.
value integer_of_text(std::string_view text, int64_t base);
// The number that a literal of a template stands for.
value number_of_literal(std::string_view text);
// __int128 and back. false: not an integer or boolean, or too long.
bool to_int128(const value& v, __int128* out);
value of_int128(__int128 i);
std::string digits_of(unsigned __int128 number, unsigned base);  // which is at most 16
// Without the sign; defined for every integer.
inline unsigned __int128 magnitude(__int128 i) {
    const auto u = (unsigned __int128)i;
    return i < 0 ? ~u + 1 : u;
}

enum class python_case { lower, upper, capitalize, title, swap, fold };
// Changes the case and keeps the origin of every character.
traced_text change_case(const traced_text& t, python_case to);

// Quoted as Python's repr; the quotes count as input.
void append_string_repr(const traced_text& t, traced_text* out, bool ascii_only = false);
traced_text escape_html(const traced_text& t);

bool is_python_printable(uint32_t code_point);

traced_text strip_text(const traced_text& t, const traced_text* chars, bool left, bool right);  // chars nullptr: blanks
struct text_line {
    size_t begin, n_bytes, n_end;  // without the line end, which has n_end bytes
};
std::vector<text_line> split_lines(std::string_view text);  // str.splitlines

}  // namespace duet
