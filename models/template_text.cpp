// models/template_text.cpp: what Python's strings know, on UTF-8.
// Source: the documentation of Python 3.11, "Text Sequence Type" and "String and Bytes literals".
#include "template_text.h"

#include <algorithm>
#include <charconv>
#include <cstring>

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
    size_t end = text.size();
    while (end > 0) {
        size_t begin = end - 1;
        while (begin > 0 && end - begin < 4 && ((uint8_t)text[begin] & 0xc0) == 0x80) begin--;
        int n_bytes;
        if (!is_python_space(utf8_decode(text, begin, &n_bytes))) break;
        end = begin;
    }
    return end;
}

size_t stripped_begin(std::string_view text) {
    size_t begin = 0;
    int n_bytes;
    while (begin < text.size() && is_python_space(utf8_decode(text, begin, &n_bytes))) begin += (size_t)n_bytes;
    return begin;
}

size_t count_chars(std::string_view text) {
    size_t n = 0;
    for (char c : text) n += ((uint8_t)c & 0xc0) != 0x80;
    return n;
}

size_t char_offset(std::string_view text, size_t i_char) {
    for (size_t i = 0; i < text.size(); i++)
        if (((uint8_t)text[i] & 0xc0) != 0x80 && i_char-- == 0) return i;
    return text.size();
}

static std::string hex_text(uint32_t cp, int n_digits) {
    std::string out;
    for (int shift = (n_digits - 1) * 4; shift >= 0; shift -= 4) out += "0123456789abcdef"[cp >> shift & 15];
    return out;
}

// \xe9, é or \U0001f600
static std::string escape_text(uint32_t cp) {
    if (cp < 0x100) return "\\x" + hex_text(cp, 2);
    return cp < 0x10000 ? "\\u" + hex_text(cp, 4) : "\\U" + hex_text(cp, 8);
}

bool unescape_string(std::string_view literal, std::string* out) {
    static constexpr std::string_view kNames = "\\'\"abfnrtv", kMeanings = "\\'\"\a\b\f\n\r\t\v";
    for (size_t i = 0; i < literal.size(); i++) {
        if (literal[i] != '\\' || i + 1 == literal.size()) {
            *out += literal[i];
            continue;
        }
        const char c = literal[++i];
        if (const size_t at = kNames.find(c); at != kNames.npos) {
            *out += kMeanings[at];
        } else if (c == '\n') {
            continue;
        } else if (c == 'x' || c == 'u' || c == 'U') {
            const size_t n_digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
            uint32_t cp = 0;
            for (size_t k = 0; k < n_digits; k++) {
                const int digit = i + 1 < literal.size() ? hex_digit(literal[i + 1]) : -1;
                if (digit < 0) return false;
                cp = cp << 4 | (uint32_t)digit;
                i++;
            }
            if (cp > 0x10ffff || (cp >= 0xd800 && cp < 0xe000)) return false;
            utf8_append(out, cp);
        } else if (c >= '0' && c <= '7') {
            uint32_t cp = (uint32_t)(c - '0');
            for (int k = 0; k < 2 && i + 1 < literal.size() && literal[i + 1] >= '0' && literal[i + 1] <= '7'; k++)
                cp = cp * 8 + (uint32_t)(literal[++i] - '0');
            utf8_append(out, cp);
        } else if (c == 'N') {
            return false;
        } else if ((uint8_t)c >=
                   0x80) {  // the reference turns the character into an escape, and the backslash into itself
            int n_bytes;
            *out += "\\" + escape_text(utf8_decode(literal, i, &n_bytes)).substr(1);
            i += (size_t)n_bytes - 1;
        } else {
            *out += '\\';
            *out += c;
        }
    }
    return true;
}

// ---- integers
// --------------------------------------------------------------------------------------------------------

value of_int128(__int128 i) {
    if (i >= INT64_MIN && i <= INT64_MAX) return value::of_int((int64_t)i);
    std::string digits;
    for (unsigned __int128 rest = magnitude(i); rest > 0; rest /= 10) digits += (char)('0' + (int)(rest % 10));
    if (i < 0) digits += '-';
    std::reverse(digits.begin(), digits.end());
    return value::of_big_integer(std::move(digits));
}

bool to_int128(const value& v, __int128* out) {
    if (v.is_bool() || v.is_int()) return *out = v.is_bool() ? v.as_bool() : v.as_int(), true;
    if (!v.is(value_kind::big_integer)) return false;
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

// ---- cases
// -----------------------------------------------------------------------------------------------------------

static bool is_cased(uint32_t cp) { return (unicode_bits(cp) & (kUniLu | kUniLl | kUniLt)) != 0; }
static bool is_case_ignorable(uint32_t cp) {
    return (unicode_bits(cp) & (kUniMn | kUniCf | kUniLm)) || cp == '\'' || cp == '.' || cp == ':' || cp == '^' ||
           cp == '`' || cp == 0xa8 || cp == 0xad || cp == 0xaf || cp == 0xb4 || cp == 0xb7 || cp == 0xb8 ||
           cp == 0x2019;
}

// Whether the capital sigma at pos ends a word (The Unicode Standard, section 3.13, Final_Sigma).
static bool is_final_sigma(std::string_view text, size_t pos) {
    int n_bytes;
    size_t begin = pos;
    bool is_after_letter = false;
    while (begin > 0 && !is_after_letter) {
        do begin--;
        while (begin > 0 && ((uint8_t)text[begin] & 0xc0) == 0x80);
        const uint32_t cp = utf8_decode(text, begin, &n_bytes);
        if (is_case_ignorable(cp)) continue;
        if (!is_cased(cp)) return false;
        is_after_letter = true;
    }
    for (size_t end = pos + 2; is_after_letter && end < text.size(); end += (size_t)n_bytes) {
        const uint32_t cp = utf8_decode(text, end, &n_bytes);
        if (!is_case_ignorable(cp)) return !is_cased(cp);
    }
    return is_after_letter;
}

traced_text change_case(const traced_text& t, python_case to) {
    traced_text out;
    out.bytes.reserve(t.size());
    out.is_markup = t.is_markup;
    bool is_in_word = false;
    int n_bytes;
    for (size_t i = 0; i < t.size(); i += (size_t)n_bytes) {
        const uint32_t cp = utf8_decode(t.bytes, i, &n_bytes);
        unicode_case which = unicode_case::lower;
        if (to == python_case::upper) which = unicode_case::upper;
        if (to == python_case::fold) which = unicode_case::fold;
        if ((to == python_case::capitalize && i == 0) || (to == python_case::title && !is_in_word))
            which = unicode_case::title;
        if (to == python_case::swap) which = unicode_bits(cp) & kUniLu ? unicode_case::lower : unicode_case::upper;
        is_in_word = is_cased(cp);
        std::string changed;
        if (cp >= kInvalidByte) changed = t.bytes[i];
        else if (cp == 0x3a3 && which == unicode_case::lower) changed = is_final_sigma(t.bytes, i) ? "ς" : "σ";
        else unicode_append_case(&changed, cp, which);
        out.append(changed, t.is_input_at(i));
    }
    return out;
}

// ---- quoting
// ---------------------------------------------------------------------------------------------------------

void append_string_repr(const traced_text& t, traced_text* out, bool ascii_only) {
    const bool has_single = t.bytes.find('\'') != std::string::npos;
    const char quote = has_single && t.bytes.find('"') == std::string::npos ? '"' : '\'';
    out->append(std::string(1, quote), true);
    size_t done = 0;  // bytes that need no escape are copied in one piece
    int n_bytes;
    for (size_t i = 0; i < t.size(); i += (size_t)n_bytes) {
        const uint32_t cp = utf8_decode(t.bytes, i, &n_bytes);
        std::string escape;
        if (cp == (uint8_t)quote || cp == '\\') escape = std::string("\\") + (char)cp;
        else if (cp == '\n' || cp == '\r' || cp == '\t')
            escape = std::string("\\") + (cp == '\n' ? 'n' : cp == '\r' ? 'r' : 't');
        else if (!is_python_printable(cp) || (ascii_only && cp >= 0x80)) escape = escape_text(cp);
        else continue;
        out->append(t, done, i - done);
        out->append(escape, t.is_input_at(i));
        done = i + (size_t)n_bytes;
    }
    out->append(t, done, t.size() - done);
    out->append(std::string(1, quote), true);
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

// ---- searching and cutting
// --------------------------------------------------------------------------------------------

constexpr size_t kShortNeedle = 32;  // found by comparing at each place

text_searcher::text_searcher(std::string_view needle) : needle_(needle) {
    if (needle.size() <= kShortNeedle) return;
    fallback_.resize(needle.size() + 1);
    for (uint32_t i = 1, n = 0; i < needle.size(); i++) {
        while (n > 0 && needle[i] != needle[n]) n = fallback_[n];
        n += needle[i] == needle[n];
        fallback_[i + 1] = n;
    }
}

size_t text_searcher::find(std::string_view hay, size_t begin) const {
    if (fallback_.empty()) return hay.find(needle_, begin);
    for (size_t i = begin, n = 0; i < hay.size(); i++) {
        while (n > 0 && hay[i] != needle_[n]) n = fallback_[n];
        n += hay[i] == needle_[n];
        if (n == needle_.size()) return i + 1 - n;
    }
    return std::string_view::npos;
}

traced_text strip_text(const traced_text& t, const traced_text* chars, bool left, bool right) {
    const std::string_view s = t.bytes;
    size_t begin = 0, end = s.size();
    if (!chars) {
        if (right) end = stripped_end(s);
        if (left) begin = std::min(stripped_begin(s), end);
        return t.slice(begin, end - begin);
    }
    auto is_stripped = [&](size_t at) {
        return chars->bytes.find(s.substr(at, char_bytes(s, at))) != std::string::npos;
    };
    while (left && begin < end && is_stripped(begin)) begin += char_bytes(s, begin);
    while (right && end > begin) {
        size_t last = end - 1;
        while (last > begin && ((uint8_t)s[last] & 0xc0) == 0x80) last--;
        if (!is_stripped(last)) break;
        end = last;
    }
    return t.slice(begin, end - begin);
}

traced_text replace_text(const traced_text& t, const traced_text& from, const traced_text& to, int64_t max_count) {
    traced_text out;
    out.is_markup = t.is_markup;
    size_t at = 0;
    if (from.bytes.empty()) {  // before every character and at the end
        for (; max_count != 0; max_count--) {
            out.append(to);
            if (at == t.size()) return out;
            const size_t n_bytes = char_bytes(t.bytes, at);
            out.append(t, at, n_bytes);
            at += n_bytes;
        }
    } else {
        const text_searcher searcher(from.bytes);
        for (size_t found; max_count != 0 && (found = searcher.find(t.bytes, at)) != std::string::npos; max_count--) {
            out.append(t, at, found - at);
            out.append(to);
            at = found + from.size();
        }
    }
    out.append(t, at);
    return out;
}

std::vector<text_line> split_lines(std::string_view text) {
    std::vector<text_line> lines;
    size_t begin = 0;
    for (size_t at = 0; at < text.size();) {
        const size_t end = at;
        const uint32_t cp = next_char(text, &at);
        if (!((cp >= 10 && cp <= 13) || (cp >= 0x1c && cp <= 0x1e) || cp == 0x85 || cp == 0x2028 || cp == 0x2029))
            continue;
        at += cp == '\r' && at < text.size() && text[at] == '\n';
        lines.push_back({begin, end - begin, at - end});
        begin = at;
    }
    if (begin < text.size()) lines.push_back({begin, text.size() - begin, 0});
    return lines;
}

}  // namespace duet
