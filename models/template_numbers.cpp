// models/template_numbers.cpp: the filters that yield numbers, and the methods of numbers.
// Sources: the documentation of Jinja 3.1, "List of Builtin Filters"; of Python 3.11, "Numeric Types".
// Main path: models/template_eval -> [models/template_numbers]
#include "template_run.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace duet {

// Python's int(text, base); null when it is none.
static value integer_of_text(std::string_view s, int64_t base) {
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

// Python's float(v); otherwise where it is none.
static value float_of(template_run& run, const value& v, const value& otherwise) {
    if (v.is(value_kind::undefined)) return run.refuse(v, "");
    if (v.is_number() || v.is_bool()) return value::of_double(v.as_double());
    if (!v.is_string()) return otherwise;
    std::string digits;
    const std::string_view s = v.as_string().substr(0, stripped_end(v.as_string()));
    for (size_t i = stripped_begin(s); i < s.size(); i++) {
        const bool is_inside = i > 0 && i + 1 < s.size() && is_digit(s[i - 1]) && is_digit(s[i + 1]);
        if (s[i] != '_' || !is_inside) digits += s[i];
    }
    if (digits.starts_with("+") && !digits.starts_with("+-")) digits.erase(0, 1);
    double d = 0;
    if (digits.find('(') != digits.npos || !read_double(digits, &d)) return otherwise;
    return value::of_double(d);
}

static value truncated(template_run& run, double d, const value& otherwise) {
    if (!std::isfinite(d)) return otherwise;
    if (std::fabs(d) >= 1e38) return run.overflow();
    return of_int128((__int128)d);
}

static value number_int(native_call& c) {
    const value &v = c[0], otherwise = c.given[1] ? c[1] : value::of_int(0);
    if (v.is_bool()) return value::of_int(v.as_bool());
    if (v.is_int() || v.is(value_kind::big_integer)) return v;
    if (v.is_string()) {
        const value i = integer_of_text(v.as_string(), c.integer(2, 10));
        if (i.is(value_kind::undefined)) return c.run.overflow();
        if (!i.is_null()) return i;
    }
    if (v.is(value_kind::real) && std::isinf(v.as_double())) return c.run.fail("cannot convert infinity to an integer");
    const value d = float_of(c.run, v, {});
    return d.is(value_kind::real) ? truncated(c.run, d.as_double(), otherwise) : otherwise;
}

static value number_abs(native_call& c) {
    __int128 i;
    if (c[0].is(value_kind::real)) return value::of_double(std::fabs(c[0].as_double()));
    if (to_int128(c[0], &i)) return of_int128(i < 0 ? -i : i);
    return c.run.refuse(c[0], "abs: want a number");
}

// Rounds to a multiple of a power of ten, half to even.
static value round_integer(const value& v, int64_t precision) {
    __int128 i = 0, scale = 1;
    if (precision >= 0 || !to_int128(v, &i)) return v.is_bool() ? value::of_int(v.as_bool()) : v;
    for (int64_t k = precision; k < 0 && scale < (__int128)1 << 100; k++) scale *= 10;
    __int128 rest = i % scale;
    if (rest < 0) rest += scale;
    const __int128 below = i - rest;
    const bool goes_up = rest * 2 > scale || (rest * 2 == scale && below / scale % 2 != 0);
    return of_int128(goes_up ? below + scale : below);
}

static value number_round(native_call& c) {
    const int64_t precision = c.integer(1);
    const std::string& how = c.text(2, "common").bytes;
    if (how != "common" && how != "ceil" && how != "floor")
        return c.run.fail("round: the method must be common, ceil or floor");
    if (!c[0].is_numeric()) return c.run.fail("round: want a number");
    const double d = c[0].as_double(), scale = std::pow(10.0, std::fabs((double)precision));
    if (how != "common") {
        const double factor = std::pow(10.0, (double)precision), scaled = d * factor;
        if (!std::isfinite(scaled)) return c.run.fail("round: cannot round this");
        return value::of_double(((how == "ceil" ? std::ceil(scaled) : std::floor(scaled)) + 0.0) / factor);
    }
    if (!c[0].is(value_kind::real)) return round_integer(c[0], precision);
    if (!std::isfinite(d) || precision > 330) return c[0];
    if (precision < 0)
        return value::of_double(std::isfinite(scale) ? std::nearbyint(d / scale) * scale : std::copysign(0.0, d));
    char buffer[700];  // to_chars rounds the exact value, half to even
    const auto r = std::to_chars(buffer, buffer + sizeof buffer, d, std::chars_format::fixed, (int)precision);
    double rounded = d;
    if (r.ec == std::errc()) std::from_chars(buffer, r.ptr, rounded);
    return value::of_double(rounded);
}

static value number_filesizeformat(native_call& c) {
    const value number = float_of(c.run, c[0], {});
    if (!number.is(value_kind::real)) return c.run.fail("filesizeformat: want a number");
    const bool is_binary = c.flag(1);
    const double n = number.as_double(), base = is_binary ? 1024 : 1000;
    if (n == 1) return c.run.make("1 Byte");
    if (!std::isfinite(n)) return c.run.fail("filesizeformat: want a number");
    if (n < base) return c.run.make(std::to_string((int64_t)std::max(n, -1e18)) + " Bytes");
    static constexpr std::string_view kLetters = "kMGTPEZY";
    size_t i = 0;
    double unit = base * base;
    for (; i + 1 < kLetters.size() && n >= unit; i++) unit *= base;
    char buffer[400];
    const auto r = std::to_chars(buffer, buffer + sizeof buffer, base * n / unit, std::chars_format::fixed, 1);
    const char letter = is_binary && i == 0 ? 'K' : kLetters[i];
    return c.run.make(std::string(buffer, r.ptr) + " " + letter + (is_binary ? "iB" : "B"));
}

static value number_bit_length(native_call& c) {
    __int128 i = 0;
    if (!to_int128(c[0], &i)) return c.run.overflow();
    int64_t n = 0;
    for (unsigned __int128 rest = magnitude(i); rest > 0; rest /= 2) n++;
    return value::of_int(n);
}

static value number_is_integer(native_call& c) {
    return value::of_bool(c[0].as_double() == std::floor(c[0].as_double()) && std::isfinite(c[0].as_double()));
}

// clang-format off
static constexpr native_function kNumberFilterRows[] = {
    {"int", "value default? base?", number_int},
    {"float", "value default?", [](native_call& c) {
        return float_of(c.run, c[0], c.given[1] ? c[1] : value::of_double(0));
    }},
    {"abs", "/x", number_abs},
    {"round", "value precision? method?", number_round},
    {"filesizeformat", "value binary?", number_filesizeformat},
};
static constexpr native_function kIntegerMethodRows[] = {{"bit_length", "/i", number_bit_length}};
static constexpr native_function kRealMethodRows[] = {{"is_integer", "/r", number_is_integer}};
// clang-format on

const std::span<const native_function> kNumberFilters = kNumberFilterRows;
const std::span<const native_function> kIntegerMethods = kIntegerMethodRows, kRealMethods = kRealMethodRows;

}  // namespace duet
