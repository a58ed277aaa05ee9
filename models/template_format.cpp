// models/template_format.cpp: values as text by a format: the operator %, str.format, strftime.
// Source: the documentation of Python 3.11, "printf-style String Formatting" and "Format Specification Mini-Language";
// strftime as the C library has it in the locale "C".
// Main path: models/template_values -> [models/template_format]
#include "template_run.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <ctime>

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

bool is_one_of(char c, std::string_view chars) { return chars.find(c) != chars.npos; }

std::string grouped(const std::string& digits, char separator, size_t every) {
    std::string out;
    for (size_t i = 0; i < digits.size(); i++) {
        if (separator && i > 0 && (digits.size() - i) % every == 0) out += separator;
        out += digits[i];
    }
    return out;
}

// The digits of a format without a type but with a precision: as g, but with a digit after the point, and an exponent
// where that digit has no place.
std::string general_digits(double size, int precision) {
    const std::string scientific = real_digits(size, 'e', precision - 1);
    const size_t e = scientific.find('e');
    const int exponent = std::stoi(scientific.substr(e + 2));
    if (scientific[e + 1] == '+' && exponent >= precision - 1 && size != 0) {
        std::string digits = scientific.substr(0, e);
        while (digits.find('.') != digits.npos && is_one_of(digits.back(), "0.")) digits.pop_back();
        return digits + scientific.substr(e);
    }
    const std::string digits = real_digits(size, 'g', precision);
    return digits.find_first_of(".e") == digits.npos ? digits + ".0" : digits;
}

bool has_digit(std::string_view s, size_t at) { return at < s.size() && is_digit(s[at]); }

// Reads decimal digits; false: they are too many.
bool read_number(std::string_view format, size_t* at, size_t* out) {
    const auto r = std::from_chars(format.data() + *at, format.data() + format.size(), *out);
    *at = (size_t)(r.ptr - format.data());
    return r.ec != std::errc::result_out_of_range;
}

// What both kinds of formats do with a value.
class value_formatter {
  protected:
    explicit value_formatter(template_run& run) : run_(run) {}

    traced_text wrong(const std::string& what, duet_status code = DUET_ERR_ARG) {
        run_.fail(what, code);
        return {};
    }

    traced_text padded(const traced_text& t, const format_spec& spec, char align, size_t n_sign = 0) {
        const int64_t width = (int64_t)std::min<size_t>(spec.width, INT64_MAX);
        return duet::padded(run_, t, width, spec.align ? spec.align : align, spec.fill, n_sign);
    }

    traced_text cut_and_padded(const traced_text& t, const format_spec& spec, char align) {
        return padded(spec.precision < 0 ? t : t.slice(0, char_offset(t.bytes, (size_t)spec.precision)), spec, align);
    }

    traced_text number(bool is_negative, const std::string& prefix, std::string digits, const format_spec& spec) {
        if (spec.type >= 'A' && spec.type <= 'Z')
            for (char& c : digits) c = c >= 'a' && c <= 'z' ? (char)(c - 32) : c;
        const std::string sign = (is_negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign)) + prefix;
        return padded(traced_text(sign + digits, false), spec, '>', sign.size());
    }

    traced_text integer(const value& v, const format_spec& spec) {
        const unsigned base = is_one_of(spec.type, "xX") ? 16 : spec.type == 'o' ? 8 : spec.type == 'b' ? 2 : 10;
        std::string digits;
        __int128 i = 0;
        if (to_int128(v, &i)) {
            digits = digits_of(magnitude(i), base);
        } else if (v.is(value_kind::big_integer) && base == 10) {
            i = v.as_string()[0] == '-' ? -1 : 1;
            digits = v.as_string().substr(i < 0);
        } else {
            return wrong("want an integer to format");
        }
        if (spec.precision > (int)digits.size() && spec.precision <= kMaxPrecision)
            digits.insert(0, (size_t)spec.precision - digits.size(), '0');
        const std::string prefix = spec.is_alternate && base != 10 ? std::string("0") + spec.type : "";
        return number(i < 0, prefix, grouped(digits, spec.grouping, base == 10 ? 3 : 4), spec);
    }

    traced_text real(double d, const format_spec& spec) {
        const char type = spec.type == '%' ? 'f' : spec.type ? (char)(spec.type | 32) : 0;
        if (spec.precision > kMaxPrecision) return wrong("want a smaller precision", DUET_ERR_FULL);
        const double size = std::fabs(spec.type == '%' ? d * 100 : d);
        const int precision = type ? (spec.precision < 0 ? 6 : spec.precision) : std::max(spec.precision, 1);
        std::string digits;
        if (std::isnan(size)) digits = "nan";
        else if (std::isinf(size)) digits = "inf";
        else if (is_one_of(type, "efg")) digits = real_digits(size, type, std::max(precision, type == 'g' ? 1 : 0));
        else digits = spec.precision < 0 ? double_repr(size) : general_digits(size, precision);
        if (spec.grouping) {
            const size_t n_whole = std::min(digits.find_first_of(".e"), digits.size());
            digits = grouped(digits.substr(0, n_whole), spec.grouping, 3) + digits.substr(n_whole);
        }
        return number(std::signbit(d) && !std::isnan(d), "", digits + (spec.type == '%' ? "%" : ""), spec);
    }

    traced_text character(const value& v, const format_spec& spec, char align) {
        const int64_t cp = v.is_int() ? v.as_int() : -1;
        if (cp < 0 || cp > 0x10ffff || (cp >= 0xd800 && cp < 0xe000)) return wrong("want a character or its number");
        std::string bytes;
        utf8_append(&bytes, (uint32_t)cp);
        return padded(traced_text(bytes, false), spec, align);
    }

    // The conversions s, r and a.
    traced_text converted(const value& v, char how) {
        if (how == 's') return run_.to_text(v);
        traced_text out;
        if (how == 'a' && v.is_string()) append_string_repr(v.as_text(), &out, true);
        else run_.print_repr(v, &out);
        return out;
    }

    template_run& run_;
};

// ---- the operator % ----

class percent_formatter : value_formatter {
  public:
    percent_formatter(template_run& run, const traced_text& format, const value& arguments)
        : value_formatter(run), format_(format), text_(format.bytes), arguments_(arguments) {}

    traced_text format() {
        traced_text out;
        while (at_ < text_.size() && !run_.failed()) {
            const size_t percent = std::min(text_.find('%', at_), text_.size());
            out.append(format_, at_, percent - at_);
            at_ = percent + 1;
            if (percent < text_.size() && run_.has_room(out.size())) out.append(conversion());
        }
        const bool is_tuple = arguments_.is(value_kind::tuple);
        const bool may_stay = !is_tuple && !arguments_.is_string() && run_.is_indexed(arguments_);
        if (is_tuple ? n_used_ < arguments_.items().size() : !may_stay && n_used_ == 0)
            run_.fail("not all arguments converted during string formatting");
        return out;
    }

  private:
    value next_argument() {
        const size_t i = n_used_++;
        if (!arguments_.is(value_kind::tuple) && i == 0) return arguments_;
        if (arguments_.is(value_kind::tuple) && i < arguments_.items().size()) return arguments_.items()[i];
        return run_.fail("not enough arguments for format string");
    }

    bool take(char c) { return at_ < text_.size() && text_[at_] == c && ++at_; }

    int64_t number_or_star() {
        int64_t i = 0;
        size_t n = 0;
        if (take('*')) return run_.to_index(next_argument(), &i), i;
        if (!read_number(text_, &at_, &n)) run_.fail("a number of the format is too large", DUET_ERR_FULL);
        return (int64_t)std::min<size_t>(n, INT64_MAX);
    }

    traced_text conversion() {
        value argument;
        const bool has_key = take('(');
        if (has_key) {
            const size_t end = text_.find(')', at_);
            if (end == text_.npos) return wrong("incomplete format key");
            const std::string_view key = text_.substr(at_, end - at_);
            const value* found = arguments_.find(key);
            if (!found) return wrong("the format wants a mapping with the key (" + std::string(key) + ")");
            argument = *found;
            n_used_ = std::max<size_t>(n_used_, 1);
            at_ = end + 1;
        }
        format_spec spec;
        bool has_zero = false;
        for (; at_ < text_.size() && is_one_of(text_[at_], "-+ #0"); at_++) {
            if (text_[at_] == '-') spec.align = '<';
            has_zero |= text_[at_] == '0';
            spec.is_alternate |= text_[at_] == '#';
            if (text_[at_] == '+' || (text_[at_] == ' ' && spec.sign != '+')) spec.sign = text_[at_];
        }
        const int64_t width = number_or_star();
        if (width < 0) spec.align = '<';
        spec.width = width < 0 ? 0 - (size_t)width : (size_t)width;
        if (take('.')) spec.precision = (int)std::clamp<int64_t>(number_or_star(), 0, 1 << 30);
        while (at_ < text_.size() && is_one_of(text_[at_], "lhL")) at_++;
        if (at_ == text_.size()) return wrong("incomplete format");
        spec.type = text_[at_++];
        if (spec.type == '%') return traced_text("%", false);
        if (!has_key) argument = next_argument();
        return run_.failed() ? traced_text() : convert(argument, spec, has_zero && !spec.align);
    }

    traced_text convert(const value& v, format_spec& spec, bool has_zero) {
        if (is_one_of(spec.type, "sra")) return cut_and_padded(converted(v, spec.type), spec, '>');
        if (spec.type == 'c' && v.is_string() && count_chars(v.as_string()) == 1) return padded(v.as_text(), spec, '>');
        if (spec.type == 'c') return character(v, spec, '>');
        if (has_zero) spec.fill = "0", spec.align = '=';
        if (!v.is_numeric()) return wrong(std::string("%") + spec.type + " format: a number is required");
        if (is_one_of(spec.type, "diu")) {
            const double d = v.is(value_kind::real) ? std::trunc(v.as_double()) : 0;
            if (!(std::fabs(d) < 1e38)) return wrong("cannot convert the float to an integer");
            return integer(v.is(value_kind::real) ? of_int128((__int128)d) : v, spec);
        }
        if (is_one_of(spec.type, "xXo")) return integer(v, spec);
        if (is_one_of(spec.type, "eEfFgG")) return real(v.as_double(), spec);
        return wrong(std::string("unsupported format character '") + spec.type + "'");
    }

    const traced_text& format_;
    const std::string_view text_;  // its bytes
    const value& arguments_;
    size_t at_ = 0, n_used_ = 0;
};

// ---- str.format ----

class brace_formatter : value_formatter {
  public:
    brace_formatter(template_run& run, const call_arguments& arguments) : value_formatter(run), arguments_(arguments) {}

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
                continue;
            }
            if (f[at] == '}') return wrong("single '}' in a format");
            size_t end = at + 1;  // of the field, behind its bracket
            for (int level = 1; end < f.size() && level > 0; end++) level += (f[end] == '{') - (f[end] == '}');
            if (f[end - 1] != '}') return wrong("single '{' in a format");
            out.append(field(t.slice(at + 1, end - at - 2), depth));
            at = end;
        }
        return out;
    }

  private:
    traced_text field(const traced_text& t, int depth) {
        const std::string_view f = t.bytes;
        size_t end = 0;  // of the name; a ':' or '!' in brackets belongs to it
        for (bool is_bracketed = false; end < f.size() && (is_bracketed || !is_one_of(f[end], ":!")); end++)
            is_bracketed = f[end] == '[' || (is_bracketed && f[end] != ']');
        value v = look_up(f.substr(0, end));
        if (end < f.size() && f[end] == '!') {
            const char conversion = end + 1 < f.size() ? f[end + 1] : ' ';
            if (!is_one_of(conversion, "sra")) return wrong("unknown conversion in a format");
            v = run_.make(converted(v, conversion));
            end = std::min(end + 2, f.size());
        }
        if (end < f.size() && f[end] != ':') return wrong("want ':' after a conversion");
        const traced_text spec = end < f.size() ? format(t.slice(end + 1), depth + 1) : traced_text();
        return run_.failed() ? traced_text() : by_spec(v, spec.bytes);
    }

    value first_argument(std::string_view name) {
        if (!name.empty() && !has_digit(name, 0)) {
            for (const auto& [key, v] : arguments_.named)
                if (key == name) return v;
            return run_.fail("a format wants an argument '" + std::string(name) + "'");
        }
        size_t i = n_automatic_, at = 0;
        if (name.empty() ? is_numbered_ : n_automatic_ > 0) return run_.fail("a format mixes '{}' and '{0}'");
        if (name.empty()) n_automatic_++;
        else is_numbered_ = true;
        if (!name.empty() && !read_number(name, &at, &i)) i = SIZE_MAX;
        return i < arguments_.values.size() ? arguments_.values[i]
                                            : run_.fail("a format wants more arguments than there are");
    }

    value look_up(std::string_view path) {
        const size_t n_first = std::min(path.find_first_of(".["), path.size());
        value v = first_argument(path.substr(0, n_first));
        path.remove_prefix(n_first);
        while (!path.empty() && !run_.failed()) {
            const bool is_item = path[0] == '[';
            const size_t end = std::min(is_item ? path.find(']') : path.find_first_of(".[", 1), path.size());
            const std::string_view key = path.substr(1, end - 1);
            if (is_item && end == path.size()) return run_.fail("want ']' in a format");
            path.remove_prefix(end + is_item);
            if (!is_item) v = run_.get_attribute(v, key);
            else if (has_digit(key, 0)) v = run_.get_item(v, integer_of_digits(key, 10));
            else v = run_.get_item(v, value::of_trusted(std::string(key)));
        }
        return v;
    }

    static bool parse(std::string_view s, format_spec* spec) {
        size_t at = 0;
        const size_t n_fill = s.empty() ? 0 : char_bytes(s, 0);
        auto take = [&](std::string_view chars, char* out) {
            const bool has = at < s.size() && is_one_of(s[at], chars);
            if (has) *out = s[at++];
            return has;
        };
        if (n_fill < s.size() && is_one_of(s[n_fill], "<>^=")) spec->fill = s.substr(0, at = n_fill);
        take("<>^=", &spec->align);
        take("+- ", &spec->sign);
        char alternate = 0, zero = 0, point = 0;
        spec->is_alternate = take("#", &alternate);
        if (take("0", &zero) && !spec->align) spec->fill = "0", spec->align = '=';
        if (has_digit(s, at) && !read_number(s, &at, &spec->width)) return false;
        take(",_", &spec->grouping);
        if (take(".", &point)) {
            size_t precision = 0;
            if (!has_digit(s, at) || !read_number(s, &at, &precision)) return false;
            spec->precision = (int)std::min<size_t>(precision, 1u << 30);
        }
        if (at < s.size()) spec->type = s[at++];
        return at == s.size();
    }

    traced_text by_spec(const value& v, const std::string& text) {
        if (text.empty()) return run_.to_text(v);
        format_spec spec;
        if (!parse(text, &spec)) return wrong("invalid format specifier");
        if (v.is_string()) {
            if ((spec.type && spec.type != 's') || spec.align == '=' || spec.grouping || spec.sign != '-') {
                if (spec.fill != "0" || spec.type) return wrong("this format is not for a string");
                spec.align = '<';  // "05" fills with zeros
            }
            return cut_and_padded(v.as_text(), spec, '<');
        }
        if (!v.is_numeric()) return wrong("a format is not for this kind of value");
        const bool is_real = v.is(value_kind::real);
        if (is_real && spec.type == 'n') spec.type = 'g';
        if (spec.type ? is_one_of(spec.type, "eEfFgG%") : is_real) return real(v.as_double(), spec);
        if (is_real || spec.precision >= 0 || (spec.type && !is_one_of(spec.type, "dxXobcn")))
            return wrong("this format is not for this kind of number");
        return spec.type == 'c' ? character(v, spec, '<') : integer(v, spec);
    }

    const call_arguments& arguments_;
    size_t n_automatic_ = 0;
    bool is_numbered_ = false;
};

// ---- strftime ----

constexpr const char* kDays[] = {"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"};

// One letter of a format. The C library's strftime does numbers only: its names are those of the host's locale, and
// that of Windows has only the letters of C89 (so it gives nothing for the weeks of ISO 8601: G, V and g).
std::string time_part(const tm& t, int64_t seconds, char c) {
    static constexpr const char* kMonths[] = {"January", "February", "March",     "April",   "May",      "June",
                                              "July",    "August",   "September", "October", "November", "December"};
    switch (c) {
    case 'A': return kDays[t.tm_wday];
    case 'B': return kMonths[t.tm_mon];
    case 'a': return std::string(kDays[t.tm_wday], 3);
    case 'b':
    case 'h': return std::string(kMonths[t.tm_mon], 3);
    case 'p': return t.tm_hour < 12 ? "AM" : "PM";
    case 'P': return t.tm_hour < 12 ? "am" : "pm";
    case 'f': return "000000";
    case 'u': return std::to_string((t.tm_wday + 6) % 7 + 1);
    case 's': return std::to_string(seconds);
    case 'z':
    case 'Z': return "";  // a time without a zone
    }
    const char format[] = {'%', c == 'k' ? 'H' : c == 'l' ? 'I' : c == 'e' ? 'd' : c == 'C' ? 'Y' : c, '\0'};
    if (!is_one_of(c, "CGHIMSUVWYdegjklmwy%")) return format;
    char text[64];
    std::string out(text, std::strftime(text, sizeof text, format, &t));
    if (is_one_of(c, "ekl") && out[0] == '0') out[0] = ' ';
    return c == 'C' ? out.substr(0, 2) : out;
}

}  // namespace

traced_text format_percent(template_run& run, const traced_text& format, const value& arguments) {
    return percent_formatter(run, format, arguments).format();
}

traced_text format_braces(template_run& run, const traced_text& format, const call_arguments& arguments) {
    return brace_formatter(run, arguments).format(format, 0);
}

std::string format_time(const template_time& time, std::string_view format) {
    static constexpr std::string_view kCompound = "DxTXFRrntc";
    static constexpr const char* kMeanings[] = {
        "%m/%d/%y", "%m/%d/%y",    "%H:%M:%S", "%H:%M:%S", "%Y-%m-%d",
        "%H:%M",    "%I:%M:%S %p", "\n",       "\t",       "%a %b %e %H:%M:%S %Y"};
    using namespace std::chrono;
    const int month = std::clamp(time.month, 1, 12);
    const sys_days day = year(time.year) / month / 1, begin = year(time.year) / 1 / 1, today = day + days(time.day - 1);
    tm t = {};
    t.tm_sec = time.second, t.tm_min = time.minute, t.tm_hour = time.hour;
    t.tm_mday = time.day, t.tm_mon = month - 1, t.tm_year = time.year - 1900;
    t.tm_wday = (int)weekday(today).c_encoding();
    t.tm_yday = (int)(today - begin).count();
    const int64_t seconds = ((today.time_since_epoch().count() * 24 + t.tm_hour) * 60 + t.tm_min) * 60 + t.tm_sec;
    std::string out;
    for (size_t i = 0; i < format.size(); i++) {
        if (format[i] != '%' || i + 1 == format.size()) {
            out += format[i];
            continue;
        }
        char c = format[++i];
        const bool is_unpadded = c == '-' && i + 1 < format.size();
        if (is_unpadded) c = format[++i];
        const size_t at = kCompound.find(c);
        std::string part = at == kCompound.npos ? time_part(t, seconds, c) : format_time(time, kMeanings[at]);
        if (is_unpadded) part.erase(0, std::min(part.find_first_not_of("0 "), part.size() - 1));
        out += part;
    }
    return out;
}

}  // namespace duet
