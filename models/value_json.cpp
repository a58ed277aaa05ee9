// models/value_json.cpp: parses JSON text into values, and writes values as JSON text.
// Sources: RFC 8259; the output is that of Python's json.dumps.
// Main path: models/chat -> [models/value_json] -> models/template
#include "unicode.h"
#include "value.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace duet {
namespace {

class json_parser {
  public:
    json_parser(std::string_view json, const json_limits& limits, error_text& err)
        : json_(json), limits_(limits), err_(err) {}

    duet_status parse(value* out) {
        if (json_.size() > limits_.max_bytes)
            return fail(err_, DUET_ERR_FORMAT, "JSON: want at most %zu bytes, got %zu", limits_.max_bytes,
                        json_.size());
        value v;
        DUET_TRY(parse_value(&v, 0));
        skip_blanks();
        if (at_ < json_.size()) return want("the end");
        *out = std::move(v);
        return DUET_OK;
    }

  private:
    duet_status want(const char* what) {
        const std::string got = at_ < json_.size() ? "'" + printable(json_.substr(at_, 20), 20) + "'" : "the end";
        return wrong(what + (", got " + got));
    }
    duet_status wrong(const std::string& what) {
        return fail(err_, DUET_ERR_FORMAT, "JSON: at byte %zu: want %s", at_, what.c_str());
    }

    char peek() const { return at_ < json_.size() ? json_[at_] : '\0'; }

    void skip_blanks() { at_ = std::min(json_.find_first_not_of(" \t\n\r", at_), json_.size()); }

    bool take_any(std::string_view chars) {
        if (at_ >= json_.size() || chars.find(json_[at_]) == chars.npos) return false;
        at_++;
        return true;
    }

    bool take(char c) {
        skip_blanks();
        return take_any({&c, 1});
    }

    duet_status parse_value(value* out, int depth) {
        skip_blanks();
        if (++n_values_ > limits_.max_values) return wrong("at most " + std::to_string(limits_.max_values) + " values");
        if (depth > limits_.max_depth) return wrong("at most " + std::to_string(limits_.max_depth) + " levels");
        switch (peek()) {
        case '{': return parse_map(out, depth);
        case '[': return parse_list(out, depth);
        case '"': return parse_string(out);
        case 't': *out = value::of_bool(true); return parse_word("true");
        case 'f': *out = value::of_bool(false); return parse_word("false");
        case 'n': *out = value(); return parse_word("null");
        default: return parse_number(out);
        }
    }

    duet_status parse_word(std::string_view word) {
        if (json_.substr(at_, word.size()) != word) return want("a value");
        at_ += word.size();
        return DUET_OK;
    }

    // What stands between brackets, with commas between the items.
    template <class Parse> duet_status parse_items(char close, const char* after_item, Parse parse_item) {
        at_++;
        if (take(close)) return DUET_OK;
        do { DUET_TRY(parse_item()); } while (take(','));
        return take(close) ? DUET_OK : want(after_item);
    }

    duet_status parse_list(value* out, int depth) {
        std::vector<value> items;
        DUET_TRY(parse_items(']', "',' or ']'", [&] {
            items.emplace_back();
            return parse_value(&items.back(), depth + 1);
        }));
        *out = value::of_list(std::move(items));
        return DUET_OK;
    }

    duet_status parse_map(value* out, int depth) {
        std::vector<value_member> members;
        DUET_TRY(parse_items('}', "',' or '}'", [&] {
            skip_blanks();
            if (peek() != '"') return want("a key in quotes");
            members.emplace_back();
            DUET_TRY(parse_string(&members.back().key));
            if (!take(':')) return want("':'");
            n_values_++;
            return parse_value(&members.back().val, depth + 1);
        }));
        *out = value::of_map(std::move(members));
        return DUET_OK;
    }

    bool parse_hex4(uint32_t* out) {
        if (json_.size() - at_ < 4) return false;
        const char* begin = json_.data() + at_;
        const auto r = std::from_chars(begin, begin + 4, *out, 16);
        if (r.ptr != begin + 4 || *begin == '-') return false;
        at_ += 4;
        return true;
    }

    duet_status parse_escape(std::string* out) {
        static constexpr std::string_view kNames = "\"\\/bfnrt", kMeanings = "\"\\/\b\f\n\r\t";
        if (const size_t i = kNames.find(peek()); i != kNames.npos) {
            *out += kMeanings[i];
            at_++;
            return DUET_OK;
        }
        if (!take_any("u")) return want("an escape");
        uint32_t cp = 0, low = 0;
        if (!parse_hex4(&cp)) return want("four hexadecimal digits");
        if (cp >= 0xd800 && cp <= 0xdbff) {
            if (json_.substr(at_, 2) != "\\u") return want("the second half of a surrogate pair");
            at_ += 2;
            if (!parse_hex4(&low)) return want("four hexadecimal digits");
            if (low < 0xdc00 || low > 0xdfff) return want("the second half of a surrogate pair before this");
            cp = 0x10000 + ((cp - 0xd800) << 10) + (low - 0xdc00);
        } else if (cp >= 0xdc00 && cp <= 0xdfff) {
            return want("no lone surrogate before this");
        }
        utf8_append(out, cp);
        return DUET_OK;
    }

    duet_status parse_string(value* out) {
        std::string s;
        for (at_++; !take_any("\"");) {
            const size_t begin = at_;
            while (at_ < json_.size() && (uint8_t)json_[at_] >= 0x20 && (uint8_t)json_[at_] < 0x80 &&
                   json_[at_] != '"' && json_[at_] != '\\')
                at_++;
            int n_bytes = 0;
            if (at_ == json_.size()) return want("'\"'");
            if ((uint8_t)json_[at_] < 0x20) return want("control characters as escapes");
            if ((uint8_t)json_[at_] >= 0x80 && utf8_decode(json_, at_, &n_bytes) == kInvalidByte)
                return want("valid UTF-8");
            at_ += (size_t)n_bytes;
            s.append(json_, begin, at_ - begin);
            if (take_any("\\")) DUET_TRY(parse_escape(&s));
        }
        *out = value::of_string(std::move(s));
        return DUET_OK;
    }

    bool skip_digits() {
        const size_t begin = at_;
        at_ = std::min(json_.find_first_not_of("0123456789", at_), json_.size());
        return at_ > begin;
    }

    duet_status parse_number(value* out) {
        const size_t begin = at_;
        take_any("-");
        const bool is_zero = peek() == '0';
        const size_t first = at_;
        const bool has_digits = skip_digits();
        if (!has_digits || (is_zero && at_ > first + 1)) {
            at_ = begin;
            return want(has_digits ? "no leading zeros" : "a value");
        }
        const size_t end = at_;
        if (take_any(".") && !skip_digits()) return want("digits");
        if (take_any("eE")) {
            take_any("+-");
            if (!skip_digits()) return want("digits");
        }
        const std::string_view digits = json_.substr(begin, at_ - begin);
        if (at_ > end) {
            double d = 0;
            read_double(digits, &d);
            *out = value::of_double(d);
            return DUET_OK;
        }
        int64_t i = 0;
        const auto r = std::from_chars(digits.data(), digits.data() + digits.size(), i);
        *out = r.ec == std::errc() ? value::of_int(i) : value::of_big_integer(std::string(digits));
        return DUET_OK;
    }

    std::string_view json_;
    const json_limits& limits_;
    error_text& err_;
    size_t at_ = 0, n_values_ = 0;
};

class json_writer {
  public:
    json_writer(const json_style& style, traced_text* out, error_text& err) : style_(style), out_(out), err_(err) {}

    duet_status write(const value& v, int depth) {
        if (out_->size() > style_.max_bytes)
            return fail(err_, DUET_ERR_FULL, "JSON: want at most %zu bytes", style_.max_bytes);
        if (depth > style_.max_depth) return fail(err_, DUET_ERR_ARG, "JSON: want at most %d levels", style_.max_depth);
        switch (v.kind()) {
        case value_kind::string: return write_string(v.as_text());
        case value_kind::list:
        case value_kind::tuple:
            return write_items("[]", v.items().size(), depth, [&](size_t i) { return write(v.items()[i], depth + 1); });
        case value_kind::map: return write_map(v.members(), depth);
        case value_kind::undefined:
            return fail(err_, DUET_ERR_ARG, "Object of type Undefined is not JSON serializable");
        case value_kind::object: return fail(err_, DUET_ERR_ARG, "the object is not JSON serializable");
        default: out_->append(scalar(v), true); return DUET_OK;
        }
    }

  private:
    static std::string scalar(const value& v) {
        switch (v.kind()) {
        case value_kind::null: return "null";
        case value_kind::boolean: return v.as_bool() ? "true" : "false";
        case value_kind::integer: return std::to_string(v.as_int());
        case value_kind::big_integer: return std::string(v.as_string());
        default: break;
        }
        const double d = v.as_double();
        return std::isnan(d) ? "NaN" : std::isinf(d) ? (d < 0 ? "-Infinity" : "Infinity") : double_repr(d);
    }

    void new_line(int depth) {
        if (!style_.has_indent) return;
        std::string line = "\n";
        for (int i = 0; i < depth && line.size() <= style_.max_bytes; i++) line += style_.indent;
        out_->append(line, true);
    }

    template <class Write> duet_status write_items(const char* brackets, size_t n, int depth, Write write_item) {
        out_->append({brackets, 1}, true);
        for (size_t i = 0; i < n; i++) {
            if (i > 0) out_->append(style_.item_separator, true);
            new_line(depth + 1);
            DUET_TRY(write_item(i));
        }
        if (n > 0) new_line(depth);
        out_->append({brackets + 1, 1}, true);
        return DUET_OK;
    }

    duet_status write_map(const std::vector<value_member>& members, int depth) {
        std::vector<const value_member*> order;
        for (const value_member& m : members) {
            if (!m.key.is_string() && (int)m.key.kind() > (int)value_kind::real)
                return fail(err_, DUET_ERR_ARG, "JSON: want a string or a number as key");
            if (style_.sort_keys && m.key.is_string() != members[0].key.is_string())
                return fail(err_, DUET_ERR_ARG, "JSON: want keys of one kind to sort them");
            order.push_back(&m);
        }
        if (style_.sort_keys)
            std::sort(order.begin(), order.end(), [](auto* a, auto* b) { return compare_keys(a->key, b->key) < 0; });
        return write_items("{}", order.size(), depth, [&](size_t i) {
            const value& key = order[i]->key;
            if (key.is_string()) write_string(key.as_text());
            else out_->append("\"" + scalar(key) + "\"", true);
            out_->append(style_.key_separator, true);
            return write(order[i]->val, depth + 1);
        });
    }

    duet_status write_string(const traced_text& s) {
        static constexpr std::string_view kNames = "\"\\bfnrt", kMeanings = "\"\\\b\f\n\r\t";
        out_->append("\"", true);
        size_t done = 0;  // bytes that need no escape are copied in one piece
        for (size_t i = 0; i < s.size();) {
            const uint8_t c = (uint8_t)s.bytes[i];
            int n_bytes = 1;
            if (c >= 0x20 && c != '"' && c != '\\' && (c < 0x7f || !style_.ensure_ascii)) {
                i++;
                continue;
            }
            std::string escape = "\\";
            if (const size_t at = kMeanings.find((char)c); at != kMeanings.npos) escape += kNames[at];
            else escape = json_escape(utf8_decode(s.bytes, i, &n_bytes));
            out_->append(s, done, i - done);
            out_->append(escape, s.is_input_at(i));
            done = i += (size_t)n_bytes;
        }
        out_->append(s, done, s.size() - done);
        out_->append("\"", true);
        return DUET_OK;
    }

    const json_style& style_;
    traced_text* out_;
    error_text& err_;
};

// Returns the decimal point of the program's locale, which C's functions print and read. C++'s know no locale, but have
// 0.16 MB of tables for it.
std::string decimal_point() {
    char half[16];
    return {half + 1, (size_t)std::snprintf(half, sizeof half, "%.1f", 0.5) - 2};
}

// Returns the digits of the shortest decimal that reads back as d, which is finite and not negative. Of several it is
// the nearest. The first digit counts 10^exponent.
std::string shortest_digits(double d, int* exponent) {
    std::string text;
    double back = -1;
    // 15 digits give back every decimal of so many, unless a double has fewer; 17 give back every double.
    for (int precision = d < 1e-300 ? 0 : 14; back != d && precision < 17; precision++) {
        text = real_digits(d, 'e', precision);
        read_double(text, &back);
        if (back == d || precision != 15) continue;
        // Below a power of two doubles are twice as near, so that the decimal above may do where the nearest does not.
        size_t i = text.find('e') - 1;
        while (text[i] == '9') text[i--] = '0';
        text[i]++;
        read_double(text, &back);
    }
    const size_t e = text.find('e');
    *exponent = (int)std::strtol(text.c_str() + e + 1, nullptr, 10);
    text.resize(e);
    std::erase(text, '.');
    text.resize(std::max<size_t>(1, text.find_last_not_of('0') + 1));
    return text;
}

}  // namespace

std::string json_escape(uint32_t cp) {
    auto unit = [](uint32_t u) {
        std::string out = "\\u";
        for (int shift = 12; shift >= 0; shift -= 4) out += "0123456789abcdef"[u >> shift & 15];
        return out;
    };
    if (cp >= kInvalidByte) return unit(0xfffd);
    return cp < 0x10000 ? unit(cp) : unit(0xd7c0 + (cp >> 10)) + unit(0xdc00 + (cp & 0x3ff));
}

bool read_double(std::string_view text, double* out) {
    if (text.starts_with('+') || text.find_first_not_of("+-.0123456789aefintyAEFINTY") != text.npos) return false;
    std::string c_text(text);
    if (const size_t point = text.find('.'); point != text.npos) c_text.replace(point, 1, decimal_point());
    char* end = nullptr;
    *out = std::strtod(c_text.c_str(), &end);
    return !text.empty() && end == c_text.c_str() + c_text.size();
}

std::string real_digits(double d, char how, int precision) {
    const char format[] = {'%', '.', '*', how, 0};
    std::string text((size_t)precision + 350, '\0');
    text.resize((size_t)std::max(0, std::snprintf(text.data(), text.size(), format, precision, d)));
    const std::string point = decimal_point();
    if (const size_t at = text.find(point); at != text.npos) text.replace(at, point.size(), ".");
    return text;
}

std::string double_repr(double d, bool may_have_exponent) {
    if (!std::isfinite(d)) return std::isnan(d) ? "nan" : d < 0 ? "-inf" : "inf";
    if (!may_have_exponent && std::fabs(d) >= 1e16) return real_digits(d, 'f', 1);
    int exponent = 0;
    std::string digits = shortest_digits(std::fabs(d), &exponent);
    const std::string sign = std::signbit(d) ? "-" : "";
    if (may_have_exponent && (exponent < -4 || exponent >= 16)) {
        if (digits.size() > 1) digits.insert(1, ".");
        const std::string size = std::to_string(std::abs(exponent));
        return sign + digits + (exponent < 0 ? "e-" : "e+") + (size.size() < 2 ? "0" : "") + size;
    }
    if (exponent < 0) return sign + "0." + std::string((size_t)(-exponent - 1), '0') + digits;
    digits.resize(std::max(digits.size(), (size_t)exponent + 2), '0');
    return sign + digits.insert((size_t)exponent + 1, ".");
}

duet_status parse_json(std::string_view json, value* out, error_text& err, const json_limits& limits) {
    return json_parser(json, limits, err).parse(out);
}

duet_status write_json(const value& v, const json_style& style, traced_text* out, error_text& err) {
    return json_writer(style, out, err).write(v, 0);
}

}  // namespace duet
