// models/template_text.cpp: what Python's strings know, on UTF-8.
// Source: the documentation of Python 3.11, "Text Sequence Type" and "String and Bytes literals".
#include "template_text.h"

#include <algorithm>
#include <charconv>

namespace duet {

bool is_python_space(uint32_t cp) {
    if (cp < 0x80) return cp == ' ' || (cp >= 9 && cp <= 13) || (cp >= 0x1c && cp <= 0x1f);
    return (unicode_bits(cp) & kUniSpace) != 0;
}

bool is_python_printable(uint32_t cp) {
    if (cp < 0x7f) return cp >= 0x20;
    return !(unicode_bits(cp) & (kUniCc | kUniCf | kUniCo | kUniCn | kUniSpace)) && cp != 0x7f && cp < kInvalidByte;
}

size_t stripped_end(std::string_view text) {
    for (size_t end = text.size();;) {
        size_t at = end > 0 ? char_before(text, end) : 0;
        if (end == 0 || !is_python_space(next_char(text, &at)) || at != end) return end;
        end = char_before(text, end);
    }
}

size_t stripped_begin(std::string_view text) {
    for (size_t at = 0;;) {
        const size_t begin = at;
        if (at == text.size() || !is_python_space(next_char(text, &at))) return begin;
    }
}

size_t char_offset(std::string_view text, size_t i_char) {
    for (size_t i = 0; i < text.size(); i++)
        if (((uint8_t)text[i] & 0xc0) != 0x80 && i_char-- == 0) return i;
    return text.size();
}

// \xe9, \u00e9 or \U0001f600
static std::string escape_text(uint32_t cp) {
    std::string out = cp < 0x100 ? "\\x" : cp < 0x10000 ? "\\u" : "\\U";
    for (int shift = cp < 0x100 ? 4 : cp < 0x10000 ? 12 : 28; shift >= 0; shift -= 4)
        out += "0123456789abcdef"[cp >> shift & 15];
    return out;
}

bool unescape_string(std::string_view literal, std::string* out) {
    static constexpr std::string_view kNames = "\\'\"abfnrtv", kMeanings = "\\'\"\a\b\f\n\r\t\v";
    for (size_t at = 0; at < literal.size();) {
        const char c = literal[at++];
        if (c != '\\' || at == literal.size()) {
            *out += c;
            continue;
        }
        const uint32_t escaped = next_char(literal, &at);
        // Digits of the base, at most n of them; false: not a character, or too few.
        auto append_number = [&](int base, size_t n, bool is_exact) {
            uint32_t cp = 0;
            const size_t end = at + n;
            for (; at < end && at < literal.size() && digit_of(literal[at]) < base; at++)
                cp = cp * (uint32_t)base + (uint32_t)digit_of(literal[at]);
            if ((is_exact && at < end) || cp > 0x10ffff || (cp >= 0xd800 && cp < 0xe000)) return false;
            utf8_append(out, cp);
            return true;
        };
        const char e = escaped < 0x80 ? (char)escaped : '\0';
        const size_t i_name = kNames.find(e), n_digits = e == 'x' ? 2 : e == 'u' ? 4 : e == 'U' ? 8 : 0;
        if (e == 'N' || (n_digits > 0 && !append_number(16, n_digits, true))) return false;
        // The reference turns a character beyond ASCII into an escape, and the backslash into itself.
        if (escaped >= 0x80) *out += escape_text(escaped);
        else if (i_name != kNames.npos) *out += kMeanings[i_name];
        else if (e >= '0' && e <= '7') at--, append_number(8, 3, false);
        else if (n_digits == 0 && e != '\n') *out += {'\\', e};
    }
    return true;
}

// ---- integers ----

std::string digits_of(unsigned __int128 number, unsigned base) {
    std::string digits;
    do digits += "0123456789abcdef"[(unsigned)(number % base)];
    while ((number /= base) > 0);
    std::reverse(digits.begin(), digits.end());
    return digits;
}

value of_int128(__int128 i) {
    if (i >= INT64_MIN && i <= INT64_MAX) return value::of_int((int64_t)i);
    return value::of_big_integer((i < 0 ? "-" : "") + digits_of(magnitude(i), 10));
}

bool to_int128(const value& v, __int128* out) {
    if (v.is_bool() || v.is_int()) *out = v.is_bool() ? v.as_bool() : v.as_int();
    if (!v.is(value_kind::big_integer)) return v.is_bool() || v.is_int();
    const std::string_view digits = v.as_string();
    const bool is_negative = digits[0] == '-';
    if (digits.size() > 38u + is_negative) return false;
    __int128 i = 0;
    for (char c : digits.substr(is_negative)) i = i * 10 + (c - '0');
    *out = is_negative ? -i : i;
    return true;
}

value integer_of_digits(std::string_view digits, int base) {
    const bool is_negative = !digits.empty() && digits[0] == '-';
    std::string_view significant = digits.substr(is_negative);
    significant.remove_prefix(std::min(significant.find_first_not_of("0_"), significant.size()));
    int64_t small = 0;
    const auto r = std::from_chars(significant.data(), significant.data() + significant.size(), small, base);
    if (r.ec == std::errc()) return value::of_int(is_negative ? -small : small);
    if (significant.empty()) return value::of_int(0);
    if (base == 10) {
        std::string text = (is_negative ? "-" : "") + std::string(significant);
        return text == "-9223372036854775808" ? value::of_int(INT64_MIN) : value::of_big_integer(std::move(text));
    }
    unsigned __int128 large = 0;
    for (char c : significant) {
        if (large >> 120) return value::of_undefined("integer overflow");
        large = large * (unsigned)base + (unsigned)digit_of(c);
    }
    return of_int128(is_negative ? -(__int128)large : (__int128)large);
}

value integer_of_text(std::string_view s, int64_t base) {
    s = s.substr(0, stripped_end(s));
    s.remove_prefix(stripped_begin(s));
    const bool is_negative = s.starts_with('-');
    s.remove_prefix(is_negative || s.starts_with('+'));
    const char letter = s.size() > 2 && s[0] == '0' ? (char)(s[1] | 32) : ' ';
    const int64_t prefix_base = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
    if (prefix_base != 0 && (base == prefix_base || base == 0)) {
        s.remove_prefix(2);
        s.remove_prefix(s.starts_with('_'));
        base = prefix_base;
    }
    if (base == 0) base = s.size() > 1 && s[0] == '0' && s.find_first_not_of("0_") != s.npos ? -1 : 10;
    if (base < 2 || base > 36) return {};
    std::string digits;
    for (size_t i = 0; i < s.size(); i++) {
        if (s[i] == '_' && i > 0 && i + 1 < s.size() && s[i - 1] != '_') continue;
        if (digit_of(s[i]) >= base) return {};
        digits += s[i];
    }
    return digits.empty() ? value() : integer_of_digits((is_negative ? "-" : "") + digits, (int)base);
}

value number_of_literal(std::string_view text) {
    value whole = integer_of_text(text, 0);
    if (!whole.is_null()) return whole;
    std::string digits(text);
    std::erase(digits, '_');
    double d = 0;
    read_double(digits, &d);
    return value::of_double(d);
}

// ---- cases ----

static bool is_cased(uint32_t cp) { return (unicode_bits(cp) & (kUniLu | kUniLl | kUniLt)) != 0; }
static bool is_case_ignorable(uint32_t cp) {
    return (unicode_bits(cp) & (kUniMn | kUniCf | kUniLm)) || cp == '\'' || cp == '.' || cp == ':' || cp == '^' ||
           cp == '`' || cp == 0xa8 || cp == 0xad || cp == 0xaf || cp == 0xb4 || cp == 0xb7 || cp == 0xb8 ||
           cp == 0x2019;
}

// Whether the capital sigma at pos ends a word (The Unicode Standard, section 3.13, Final_Sigma).
static bool is_final_sigma(std::string_view text, size_t pos) {
    uint32_t cp = '.';  // is ignored
    for (size_t begin = pos; begin > 0 && is_case_ignorable(cp);) {
        size_t at = begin = char_before(text, begin);
        cp = next_char(text, &at);
    }
    if (is_case_ignorable(cp) || !is_cased(cp)) return false;
    cp = '.';
    for (size_t at = pos + 2; at < text.size() && is_case_ignorable(cp);) cp = next_char(text, &at);
    return is_case_ignorable(cp) || !is_cased(cp);
}

traced_text change_case(const traced_text& t, python_case to) {
    traced_text out = t.slice(0, 0);
    out.bytes.reserve(t.size());
    bool is_in_word = false;
    for (size_t at = 0; at < t.size();) {
        const size_t begin = at;
        const uint32_t cp = next_char(t.bytes, &at);
        unicode_case which = unicode_case::lower;
        if (to == python_case::upper) which = unicode_case::upper;
        if (to == python_case::fold) which = unicode_case::fold;
        if ((to == python_case::capitalize && begin == 0) || (to == python_case::title && !is_in_word))
            which = unicode_case::title;
        if (to == python_case::swap && !(unicode_bits(cp) & kUniLu)) which = unicode_case::upper;
        is_in_word = is_cased(cp);
        std::string changed;
        if (cp >= kInvalidByte) changed = t.bytes[begin];
        else if (cp == 0x3a3 && which == unicode_case::lower) changed = is_final_sigma(t.bytes, begin) ? "ς" : "σ";
        else unicode_append_case(&changed, cp, which);
        out.append(changed, t.is_input_at(begin));
    }
    return out;
}

// ---- quoting ----

void append_string_repr(const traced_text& t, traced_text* out, bool ascii_only) {
    const bool has_single = t.bytes.find('\'') != std::string::npos;
    const char quote = has_single && t.bytes.find('"') == std::string::npos ? '"' : '\'';
    out->append({&quote, 1}, true);
    size_t done = 0;  // bytes that need no escape are copied in one piece
    for (size_t at = 0; at < t.size();) {
        const size_t begin = at;
        const uint32_t cp = next_char(t.bytes, &at);
        std::string escape;
        if (cp == (uint8_t)quote || cp == '\\') escape = {'\\', (char)cp};
        else if (cp == '\n') escape = "\\n";
        else if (cp == '\r') escape = "\\r";
        else if (cp == '\t') escape = "\\t";
        else if (!is_python_printable(cp) || (ascii_only && cp >= 0x80)) escape = escape_text(cp);
        else continue;
        out->append(t, done, begin - done);
        out->append(escape, t.is_input_at(begin));
        done = at;
    }
    out->append(t, done, t.size() - done);
    out->append({&quote, 1}, true);
}

traced_text escape_html(const traced_text& t) {
    static constexpr std::pair<char, std::string_view> kEscapes[] = {
        {'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'\'', "&#39;"}, {'"', "&#34;"}};
    traced_text out;
    size_t done = 0;
    for (size_t i = 0; i < t.size(); i++)
        for (const auto& [c, escape] : kEscapes)
            if (t.bytes[i] == c) {
                out.append(t, done, i - done);
                out.append(escape, t.is_input_at(i));
                done = i + 1;
            }
    out.append(t, done, t.size() - done);
    out.is_markup = true;
    return out;
}

// ---- cutting ----

traced_text strip_text(const traced_text& t, const traced_text* chars, bool left, bool right) {
    const std::string_view s = t.bytes;
    size_t begin = 0, end = !chars && right ? stripped_end(s) : s.size();
    if (!chars && left) begin = std::min(stripped_begin(s), end);
    auto is_stripped = [&](size_t at) { return chars && chars->bytes.find(s.substr(at, char_bytes(s, at))) != s.npos; };
    while (left && begin < end && is_stripped(begin)) begin += char_bytes(s, begin);
    while (right && end > begin && is_stripped(char_before(s, end))) end = char_before(s, end);
    return t.slice(begin, end - begin);
}

std::vector<text_line> split_lines(std::string_view text) {
    std::vector<text_line> lines;
    size_t begin = 0;
    for (size_t at = 0; at < text.size();) {
        const size_t end = at;
        const uint32_t cp = next_char(text, &at);
        if (cp - 10 > 3 && cp - 0x1c > 2 && cp != 0x85 && cp != 0x2028 && cp != 0x2029) continue;
        at += cp == '\r' && at < text.size() && text[at] == '\n';
        lines.push_back({begin, end - begin, at - end});
        begin = at;
    }
    if (begin < text.size()) lines.push_back({begin, text.size() - begin, 0});
    return lines;
}

}  // namespace duet
