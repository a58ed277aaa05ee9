// models/template_format.cpp: values as text by a format: the operator %, str.format, strftime.
// Source: the documentation of Python 3.11, "printf-style String Formatting" and "Format Specification Mini-Language";
// strftime as the C library has it in the locale "C".
// Main path: models/template_values -> [models/template_format]
#include "template_run.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace duet {
namespace {

struct format_spec {
    std::string fill = " ";
    char align = 0;  // < > ^ =, 0: that of the kind
    char sign = '-';
    bool is_alternate = false;
    size_t width = 0;
    char grouping = 0;
    int precision = -1;
    char type = 0;
};

constexpr int kMaxPrecision = 1000;

traced_text padded(template_run& run, const traced_text& body, const format_spec& spec, char align, size_t n_sign = 0) {
    return padded(run, body, (int64_t)std::min<size_t>(spec.width, INT64_MAX), spec.align ? spec.align : align,
                  spec.fill, n_sign);
}

std::string grouped(const std::string& digits, char separator, size_t every) {
    std::string out;
    for (size_t i = 0; i < digits.size(); i++) {
        if (separator && i > 0 && (digits.size() - i) % every == 0) out += separator;
        out += digits[i];
    }
    return out;
}

traced_text finish_number(template_run& run, bool is_negative, const std::string& prefix, const std::string& digits,
                          const format_spec& spec) {
    const std::string sign = is_negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
    return padded(run, traced_text(sign + prefix + digits, false), spec, '>', sign.size() + prefix.size());
}

traced_text format_integer(template_run& run, const value& v, const format_spec& spec) {
    const char type = spec.type ? spec.type : 'd';
    const unsigned base = type == 'x' || type == 'X' ? 16 : type == 'o' ? 8 : type == 'b' ? 2 : 10;
    std::string digits;
    __int128 i = 0;
    if (to_int128(v, &i)) {
        const std::string_view symbols = type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef";
        unsigned __int128 rest = magnitude(i);
        do digits += symbols[(unsigned)(rest % base)];
        while ((rest /= base) > 0);
        std::reverse(digits.begin(), digits.end());
    } else if (v.is(value_kind::big_integer) && base == 10) {
        i = v.as_string()[0] == '-' ? -1 : 1;
        digits = v.as_string().substr(i < 0);
    } else {
        run.fail("want an integer to format");
    }
    if (spec.precision > (int)digits.size() && spec.precision <= kMaxPrecision)
        digits.insert(0, (size_t)spec.precision - digits.size(), '0');
    const std::string prefix = spec.is_alternate && base != 10 ? std::string("0") + type : "";
    return finish_number(run, i < 0, prefix, grouped(digits, spec.grouping, base == 10 ? 3 : 4), spec);
}

std::string real_digits(double d, char type, int precision) {
    std::string buffer((size_t)precision + 350, '\0');
    const auto how = type == 'f'   ? std::chars_format::fixed
                     : type == 'e' ? std::chars_format::scientific
                                   : std::chars_format::general;
    const auto r = std::to_chars(buffer.data(), buffer.data() + buffer.size(), d, how, precision);
    buffer.resize(r.ec == std::errc() ? (size_t)(r.ptr - buffer.data()) : 0);
    return buffer;
}

traced_text format_real(template_run& run, double d, const format_spec& spec) {
    char type = spec.type ? (char)(spec.type | 32) : 0;
    if (spec.type == '%') type = 'f', d *= 100;
    if (spec.precision > kMaxPrecision) return run.fail("want a smaller precision", DUET_ERR_FULL), traced_text();
    const bool is_negative = std::signbit(d) && !std::isnan(d);
    const double size = std::fabs(d);
    std::string digits;
    if (!std::isfinite(size)) digits = std::isnan(size) ? "nan" : "inf";
    else if (type)
        digits = real_digits(size, type,
                             spec.precision < 0         ? 6
                             : spec.type && type == 'g' ? std::max(spec.precision, 1)
                                                        : spec.precision);
    else if (spec.precision < 0) digits = double_repr(size);
    else {
        // as g, but with a digit after the point, and an exponent where that digit has no place
        const int precision = std::max(spec.precision, 1);
        const std::string scientific = real_digits(size, 'e', precision - 1);
        int exponent = 0;
        std::from_chars(scientific.data() + scientific.find('e') + 2, scientific.data() + scientific.size(), exponent);
        const bool is_small = scientific[scientific.find('e') + 1] == '-';
        digits = real_digits(size, 'g', precision);
        if (!is_small && exponent >= precision - 1 && size != 0) {
            digits = scientific.substr(0, scientific.find('e'));
            while (digits.find('.') != digits.npos && (digits.back() == '0' || digits.back() == '.')) digits.pop_back();
            digits += scientific.substr(scientific.find('e'));
        } else if (digits.find_first_of(".e") == digits.npos) {
            digits += ".0";
        }
    }
    if (spec.grouping) {
        const size_t n_whole = std::min(digits.find_first_of(".e"), digits.size());
        digits = grouped(digits.substr(0, n_whole), spec.grouping, 3) + digits.substr(n_whole);
    }
    if (spec.type >= 'A' && spec.type <= 'Z')
        for (char& c : digits)
            if (c >= 'a' && c <= 'z') c = (char)(c - 32);
    return finish_number(run, is_negative, "", digits + (spec.type == '%' ? "%" : ""), spec);
}

traced_text first_chars(const traced_text& t, int n) { return n < 0 ? t : t.slice(0, char_offset(t.bytes, (size_t)n)); }

// Reads decimal digits; false: there are too many.
bool read_number(std::string_view format, size_t* at, size_t* out) {
    const auto r = std::from_chars(format.data() + *at, format.data() + format.size(), *out);
    *at = (size_t)(r.ptr - format.data());
    return r.ec != std::errc::result_out_of_range;
}

bool has_digit(std::string_view s, size_t at) { return at < s.size() && s[at] >= '0' && s[at] <= '9'; }

// ---- the operator %
// --------------------------------------------------------------------------------------------------

class percent_formatter {
  public:
    percent_formatter(template_run& run, const traced_text& format, const value& arguments)
        : run_(run), format_(format), arguments_(arguments) {}

    traced_text format() {
        traced_text out;
        const std::string_view f = format_.bytes;
        for (size_t at = 0; at < f.size() && !run_.failed();) {
            const size_t percent = std::min(f.find('%', at), f.size());
            out.append(format_, at, percent - at);
            at = percent + 1;
            if (percent < f.size() && run_.has_room(out.size())) out.append(conversion(f, &at));
        }
        const bool is_tuple = arguments_.is(value_kind::tuple);
        const bool may_stay = !is_tuple && !arguments_.is_string() && run_.is_indexed(arguments_);
        if (is_tuple ? n_used_ < arguments_.items().size() : !may_stay && n_used_ == 0)
            run_.fail("not all arguments converted during string formatting");
        return out;
    }

  private:
    value next_argument() {
        if (arguments_.is(value_kind::tuple)) {
            if (n_used_ < arguments_.items().size()) return arguments_.items()[n_used_++];
        } else if (n_used_++ == 0) {
            return arguments_;
        }
        return run_.fail("not enough arguments for format string");
    }

    size_t number_or_star(std::string_view f, size_t* at, bool* is_negative) {
        size_t n = 0;
        if (*at < f.size() && f[*at] == '*') {
            ++*at;
            int64_t i = 0;
            run_.to_index(next_argument(), &i);
            *is_negative = i < 0;
            return i < 0 ? (size_t)-i : (size_t)i;
        }
        if (!read_number(f, at, &n)) run_.fail("a number of the format is too large", DUET_ERR_FULL);
        return n;
    }

    traced_text conversion(std::string_view f, size_t* at) {
        value argument;
        bool has_argument = false, has_zero = false, is_left = false;
        if (*at < f.size() && f[*at] == '(') {
            const size_t end = f.find(')', *at);
            if (end == f.npos) return run_.fail("incomplete format key"), traced_text();
            const value* found = arguments_.find(f.substr(*at + 1, end - *at - 1));
            if (!found)
                return run_.fail("the format wants a mapping with the key " +
                                 std::string(f.substr(*at, end + 1 - *at))),
                       traced_text();
            argument = *found;
            has_argument = true;
            n_used_ = std::max<size_t>(n_used_, 1);
            *at = end + 1;
        }
        format_spec spec;
        for (; *at < f.size() && std::string_view("-+ #0").find(f[*at]) != std::string_view::npos; ++*at) {
            is_left |= f[*at] == '-';
            has_zero |= f[*at] == '0';
            spec.is_alternate |= f[*at] == '#';
            if (f[*at] == '+' || (f[*at] == ' ' && spec.sign != '+')) spec.sign = f[*at];
        }
        bool is_negative = false;
        spec.width = number_or_star(f, at, &is_negative);
        is_left |= is_negative;
        if (*at < f.size() && f[*at] == '.') {
            ++*at;
            const size_t n = number_or_star(f, at, &is_negative);
            spec.precision = is_negative ? 0 : (int)std::min<size_t>(n, 1u << 30);
        }
        while (*at < f.size() && (f[*at] == 'l' || f[*at] == 'h' || f[*at] == 'L')) ++*at;
        if (*at == f.size()) return run_.fail("incomplete format"), traced_text();
        const char type = f[(*at)++];
        if (type == '%') return traced_text("%", false);
        if (!has_argument) argument = next_argument();
        if (is_left) spec.align = '<';
        return convert(type, argument, spec, has_zero && !is_left);
    }

    traced_text convert(char type, const value& v, format_spec& spec, bool has_zero) {
        if (run_.failed()) return {};
        if (type == 's' || type == 'r' || type == 'a') {
            traced_text t;
            if (type == 's') t = run_.to_text(v);
            else if (type == 'a' && v.is_string()) append_string_repr(v.as_text(), &t, true);
            else run_.print_repr(v, &t);
            return padded(run_, first_chars(t, spec.precision), spec, '>');
        }
        if (type == 'c') {
            if (v.is_string() && count_chars(v.as_string()) == 1) return padded(run_, v.as_text(), spec, '>');
            int64_t cp = -1;
            if (!v.is_int() || (cp = v.as_int()) < 0 || cp > 0x10ffff || (cp >= 0xd800 && cp < 0xe000))
                return run_.fail("%c wants a character"), traced_text();
            std::string bytes;
            utf8_append(&bytes, (uint32_t)cp);
            return padded(run_, traced_text(bytes, false), spec, '>');
        }
        if (has_zero) spec.fill = "0", spec.align = '=';
        if (!v.is_number() && !v.is_bool())
            return run_.fail(std::string("%") + type + " format: a number is required"), traced_text();
        if (type == 'd' || type == 'i' || type == 'u') {
            spec.type = 'd';
            if (!v.is(value_kind::real)) return format_integer(run_, v, spec);
            const double d = std::trunc(v.as_double());
            if (!(std::fabs(d) < 1e38)) return run_.fail("cannot convert the float to an integer"), traced_text();
            return format_integer(run_, of_int128((__int128)d), spec);
        }
        spec.type = type;
        if (type == 'x' || type == 'X' || type == 'o') return format_integer(run_, v, spec);
        if (std::string_view("eEfFgG").find(type) != std::string_view::npos)
            return format_real(run_, v.as_double(), spec);
        return run_.fail(std::string("unsupported format character '") + type + "'"), traced_text();
    }

    template_run& run_;
    const traced_text& format_;
    const value& arguments_;
    size_t n_used_ = 0;
};

// ---- str.format
// ------------------------------------------------------------------------------------------------------

class brace_formatter {
  public:
    brace_formatter(template_run& run, const call_arguments& arguments) : run_(run), arguments_(arguments) {}

    traced_text format(const traced_text& t, int depth) {
        traced_text out;
        const std::string_view f = t.bytes;
        if (depth > 2) run_.fail("a format is nested too deeply");
        for (size_t at = 0; at < f.size() && !run_.failed();) {
            const size_t brace = std::min(f.find_first_of("{}", at), f.size());
            out.append(t, at, brace - at);
            at = brace;
            if (at == f.size() || !run_.has_room(out.size())) break;
            if (at + 1 < f.size() && f[at + 1] == f[at]) {
                out.append(t, at, 1);
                at += 2;
            } else if (f[at] == '}') {
                run_.fail("single '}' in a format");
            } else {
                size_t end = at + 1;  // of the field, behind its bracket
                for (int level = 1; end < f.size() && level > 0; end++)
                    level += f[end] == '{' ? 1 : f[end] == '}' ? -1 : 0;
                if (f[end - 1] != '}') run_.fail("single '{' in a format");
                else out.append(field(t.slice(at + 1, end - at - 2), depth));
                at = end;
            }
        }
        return out;
    }

  private:
    traced_text field(const traced_text& t, int depth) {
        const std::string_view f = t.bytes;
        size_t end = 0;  // of the name; a ':' or '!' in brackets belongs to it
        for (bool is_bracketed = false; end < f.size() && (is_bracketed || (f[end] != ':' && f[end] != '!')); end++)
            is_bracketed = f[end] == '[' || (is_bracketed && f[end] != ']');
        value v = look_up(f.substr(0, end));
        if (end < f.size() && f[end] == '!') {
            const char conversion = end + 1 < f.size() ? f[end + 1] : ' ';
            traced_text out;
            if (conversion == 's') out = run_.to_text(v);
            else if (conversion == 'a' && v.is_string()) append_string_repr(v.as_text(), &out, true);
            else if (conversion == 'r' || conversion == 'a') run_.print_repr(v, &out);
            else run_.fail("unknown conversion in a format");
            v = run_.make(std::move(out));
            end = std::min(end + 2, f.size());
        }
        if (end < f.size() && f[end] != ':') return run_.fail("want ':' after a conversion"), traced_text();
        const traced_text spec = end < f.size() ? format(t.slice(end + 1), depth + 1) : traced_text();
        return run_.failed() ? traced_text() : by_spec(v, spec.bytes);
    }

    value look_up(std::string_view path) {
        const size_t n_first = std::min(path.find_first_of(".["), path.size());
        const std::string_view first = path.substr(0, n_first);
        path.remove_prefix(n_first);
        value v;
        if (first.empty() || has_digit(first, 0)) {
            size_t i = n_automatic_, at = 0;
            if (first.empty() ? is_numbered_ : n_automatic_ > 0) return run_.fail("a format mixes '{}' and '{0}'");
            if (first.empty()) n_automatic_++;
            else is_numbered_ = true;
            if (!first.empty() && !read_number(first, &at, &i)) i = SIZE_MAX;
            if (i >= arguments_.values.size()) return run_.fail("a format wants more arguments than there are");
            v = arguments_.values[i];
        } else {
            const auto at = std::find_if(arguments_.named.begin(), arguments_.named.end(),
                                         [&](const auto& a) { return a.first == first; });
            if (at == arguments_.named.end())
                return run_.fail("a format wants an argument '" + std::string(first) + "'");
            v = at->second;
        }
        while (!path.empty() && !run_.failed()) {
            const bool is_item = path[0] == '[';
            const size_t end = std::min(is_item ? path.find(']') : path.find_first_of(".[", 1), path.size());
            const std::string_view key = path.substr(1, end - 1);
            if (is_item && end == path.size()) return run_.fail("want ']' in a format");
            path.remove_prefix(end + is_item);
            if (!is_item) v = run_.get_attribute(v, key);
            else
                v = run_.get_item(v,
                                  has_digit(key, 0) ? integer_of_digits(key, 10) : value::of_trusted(std::string(key)));
        }
        return v;
    }

    bool parse(std::string_view s, format_spec* spec) {
        static constexpr std::string_view kAligns = "<>^=";
        size_t at = 0;
        const size_t n_fill = s.empty() ? 0 : char_bytes(s, 0);
        if (n_fill < s.size() && kAligns.find(s[n_fill]) != kAligns.npos) {
            spec->fill = s.substr(0, n_fill);
            spec->align = s[n_fill];
            at = n_fill + 1;
        } else if (!s.empty() && kAligns.find(s[0]) != kAligns.npos) {
            spec->align = s[at++];
        }
        if (at < s.size() && (s[at] == '+' || s[at] == '-' || s[at] == ' ')) spec->sign = s[at++];
        if (at < s.size() && s[at] == '#') spec->is_alternate = true, at++;
        if (at < s.size() && s[at] == '0') {
            if (!spec->align) spec->fill = "0", spec->align = '=';
            at++;
        }
        if (has_digit(s, at) && !read_number(s, &at, &spec->width)) return false;
        if (at < s.size() && (s[at] == ',' || s[at] == '_')) spec->grouping = s[at++];
        if (at < s.size() && s[at] == '.') {
            size_t precision = 0;
            if (!has_digit(s, ++at) || !read_number(s, &at, &precision)) return false;
            spec->precision = (int)std::min<size_t>(precision, 1u << 30);
        }
        if (at < s.size()) spec->type = s[at++];
        return at == s.size();
    }

    traced_text by_spec(const value& v, const std::string& text) {
        if (text.empty()) return run_.to_text(v);
        format_spec spec;
        if (!parse(text, &spec)) return run_.fail("invalid format specifier"), traced_text();
        if (v.is_string()) {
            if ((spec.type && spec.type != 's') || spec.align == '=' || spec.grouping || spec.sign != '-') {
                if (spec.fill != "0" || spec.type) return run_.fail("this format is not for a string"), traced_text();
                spec.align = '<';  // "05" fills with zeros
            }
            return padded(run_, first_chars(v.as_text(), spec.precision), spec, '<');
        }
        const bool is_real_type = spec.type && std::string_view("eEfFgG%n").find(spec.type) != std::string_view::npos &&
                                  (spec.type != 'n' || v.is(value_kind::real));
        if (v.is(value_kind::real) || (is_real_type && (v.is_number() || v.is_bool()))) {
            if (spec.type && !is_real_type) return run_.fail("this format is not for a float"), traced_text();
            if (spec.type == 'n') spec.type = 'g';
            return format_real(run_, v.as_double(), spec);
        }
        if (!v.is_number() && !v.is_bool()) return run_.fail("a format is not for this kind of value"), traced_text();
        if (spec.precision >= 0 || (spec.type && std::string_view("dxXobcn").find(spec.type) == std::string_view::npos))
            return run_.fail("this format is not for an integer"), traced_text();
        if (spec.type == 'c') {
            std::string bytes;
            if (!v.is_int() || v.as_int() < 0 || v.as_int() > 0x10ffff)
                return run_.fail("want a code point"), traced_text();
            utf8_append(&bytes, (uint32_t)v.as_int());
            return padded(run_, traced_text(bytes, false), spec, '<');
        }
        return format_integer(run_, v, spec);
    }

    template_run& run_;
    const call_arguments& arguments_;
    size_t n_automatic_ = 0;
    bool is_numbered_ = false;
};

// ---- strftime
// --------------------------------------------------------------------------------------------------------

constexpr std::string_view kDays[] = {"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"};
constexpr std::string_view kMonths[] = {"January", "February", "March",     "April",   "May",      "June",
                                        "July",    "August",   "September", "October", "November", "December"};

// Days since 1970-01-01 (H. Hinnant, "chrono-Compatible Low-Level Date Algorithms").
int64_t days_of(int64_t year, int month, int day) {
    year -= month <= 2;
    const int64_t era = (year >= 0 ? year : year - 399) / 400, of_era = year - era * 400;
    const int64_t of_year = (153 * (month + (month > 2 ? -3 : 9)) + 2) / 5 + day - 1;
    return era * 146097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719468;
}

struct time_parts {
    template_time t;
    int64_t days = days_of(t.year, t.month, t.day);
    int weekday = (int)(((days + 4) % 7 + 7) % 7);  // 0: Sunday
    int yearday = (int)(days - days_of(t.year, 1, 1));

    int iso_week(int64_t* year) const {  // the week of this Thursday
        const int64_t thursday = days - (weekday + 6) % 7 + 3;
        *year = t.year;
        if (thursday < days_of(t.year, 1, 1)) --*year;
        else if (thursday >= days_of(t.year + 1, 1, 1)) ++*year;
        return (int)((thursday - days_of(*year, 1, 1)) / 7 + 1);
    }
};

std::string number(int64_t n, size_t width, char fill = '0') {
    std::string out = std::to_string(n);
    return out.size() < width ? std::string(width - out.size(), fill) + out : out;
}

std::string time_part(const time_parts& p, char c) {
    const template_time& t = p.t;
    int64_t iso_year;
    const int hour12 = t.hour % 12 == 0 ? 12 : t.hour % 12;
    switch (c) {
    case 'Y': return number(t.year, 1);
    case 'm': return number(t.month, 2);
    case 'd': return number(t.day, 2);
    case 'e': return number(t.day, 2, ' ');
    case 'H': return number(t.hour, 2);
    case 'k': return number(t.hour, 2, ' ');
    case 'I': return number(hour12, 2);
    case 'l': return number(hour12, 2, ' ');
    case 'M': return number(t.minute, 2);
    case 'S': return number(t.second, 2);
    case 'f': return "000000";
    case 'y': return number(((t.year % 100) + 100) % 100, 2);
    case 'C': return number(t.year / 100, 2);
    case 'j': return number(p.yearday + 1, 3);
    case 'B': return std::string(kMonths[(t.month + 11) % 12]);
    case 'b':
    case 'h': return std::string(kMonths[(t.month + 11) % 12].substr(0, 3));
    case 'A': return std::string(kDays[p.weekday]);
    case 'a': return std::string(kDays[p.weekday].substr(0, 3));
    case 'p': return t.hour < 12 ? "AM" : "PM";
    case 'P': return t.hour < 12 ? "am" : "pm";
    case 'u': return number(p.weekday == 0 ? 7 : p.weekday, 1);
    case 'w': return number(p.weekday, 1);
    case 'U': return number((p.yearday + 7 - p.weekday) / 7, 2);
    case 'W': return number((p.yearday + 7 - (p.weekday + 6) % 7) / 7, 2);
    case 'V': return number(p.iso_week(&iso_year), 2);
    case 'G': return p.iso_week(&iso_year), number(iso_year, 1);
    case 'g': return p.iso_week(&iso_year), number(iso_year % 100, 2);
    case 's': return number(p.days * 86400 + t.hour * 3600 + t.minute * 60 + t.second, 1);
    case 'n': return "\n";
    case 't': return "\t";
    case '%': return "%";
    case 'z':
    case 'Z': return "";  // a time without a zone
    default: return std::string("%") + c;
    }
}

}  // namespace

traced_text format_percent(template_run& run, const traced_text& format, const value& arguments) {
    return percent_formatter(run, format, arguments).format();
}

traced_text format_braces(template_run& run, const traced_text& format, const call_arguments& arguments) {
    return brace_formatter(run, arguments).format(format, 0);
}

std::string format_time(const template_time& time, std::string_view format) {
    static constexpr std::pair<char, std::string_view> kCompound[] = {
        {'D', "%m/%d/%y"}, {'F', "%Y-%m-%d"},    {'T', "%H:%M:%S"},
        {'R', "%H:%M"},    {'r', "%I:%M:%S %p"}, {'c', "%a %b %e %H:%M:%S %Y"},
        {'x', "%m/%d/%y"}, {'X', "%H:%M:%S"}};
    const time_parts parts{time};
    std::string out;
    for (size_t i = 0; i < format.size(); i++) {
        if (format[i] != '%' || i + 1 == format.size()) {
            out += format[i];
            continue;
        }
        char c = format[++i];
        const bool is_unpadded = c == '-' && i + 1 < format.size();
        if (is_unpadded) c = format[++i];
        const auto* compound =
            std::find_if(std::begin(kCompound), std::end(kCompound), [&](const auto& row) { return row.first == c; });
        std::string part = compound != std::end(kCompound) ? format_time(time, compound->second) : time_part(parts, c);
        if (is_unpadded) part.erase(0, std::min(part.find_first_not_of("0 "), part.size() - 1));
        out += part;
    }
    return out;
}

}  // namespace duet
