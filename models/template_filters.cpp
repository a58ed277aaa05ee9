// models/template_filters.cpp: filters that yield text or numbers, and what methods share with them.
// Source: the documentation of Jinja 3.1, "List of Builtin Filters"; tojson is that of Hugging Face's transformers.
// Main path: models/template_eval -> [models/template_filters]
#include "template_run.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace duet {

value join_values(template_run& run, const value& iterable, const traced_text& separator, const value& path,
                  bool only_strings) {
    traced_text out;
    out.is_markup = separator.is_markup;
    if (!run.is_iterable(iterable)) return run.fail("want something iterable to join");
    size_t at = 0;
    bool is_first = true;
    for (value item; run.next_item(iterable, &at, &item); is_first = false) {
        if (only_strings && !item.is_string()) return run.fail("want strings to join");
        const traced_text part = run.to_text(run.get_path(item, path));
        if (!run.charge(1) || !run.has_room(out.size() + separator.size() + part.size())) break;
        if (!is_first) out.append(separator);
        out.append(out.is_markup && !part.is_markup ? escape_html(part) : part);
    }
    return run.make(std::move(out));
}

value replace_checked(template_run& run, const traced_text& t, const traced_text& from, const traced_text& to,
                      int64_t max_count) {
    if (!run.charge(t.size() / 16)) return {};
    size_t n = from.bytes.empty() ? t.size() + 1 : 0;  // how often it stands there
    const text_searcher searcher(from.bytes);
    for (size_t at = 0; !from.bytes.empty() && (at = searcher.find(t.bytes, at)) != std::string::npos;
         at += from.size())
        n++;
    if (max_count >= 0) n = std::min(n, (size_t)max_count);
    if (to.size() > 0 && n > run.limits.max_memory_bytes / to.size())
        return run.fail("the result is too large", DUET_ERR_FULL);
    if (!run.has_room(t.size() + n * to.size())) return {};
    return run.make(replace_text(t, from, t.is_markup && !to.is_markup ? escape_html(to) : to, max_count));
}

value pad_checked(template_run& run, const traced_text& t, int64_t width, int64_t n_chars, char where,
                  std::string_view fill) {
    if (width <= n_chars) return run.make(t);
    const size_t n = (size_t)(width - n_chars);
    if (n > run.limits.max_memory_bytes || !run.has_room(t.size() + n * fill.size()))
        return run.fail("the result is too large", DUET_ERR_FULL);
    const size_t n_left = where == 'l' ? 0 : where == 'r' ? n : n / 2 + (n & (size_t)width & 1);
    return run.make(pad_text(t, n_left, n - n_left, fill));
}

namespace {

bool is_given(const native_call& c, int i) { return c.given[i] && !c[i].is_null(); }

traced_text text_or(native_call& c, int i, const char* otherwise) {
    return c.given[i] ? c.run.to_text(c[i]) : traced_text(otherwise, false);
}

// ---- text
// ------------------------------------------------------------------------------------------------------------

template <python_case kCase> value filter_case(native_call& c) {
    const traced_text t = c.run.to_text(c[0]);
    return c.run.charge(t.size()) ? c.run.make(change_case(t, kCase)) : value();
}

// The first letter of each word large, the others small; words begin behind blanks and - ( { [ <.
value filter_title(native_call& c) {
    const traced_text t = c.run.to_text(c[0]);
    traced_text out;
    out.is_markup = t.is_markup;
    int n_bytes;
    auto begins_word = [&](size_t at) {
        const uint32_t cp = utf8_decode(t.bytes, at, &n_bytes);
        return is_python_space(cp) || cp == '-' || cp == '(' || cp == '{' || cp == '[' || cp == '<';
    };
    for (size_t at = 0; at < t.size() && c.run.charge(1);) {
        const size_t begin = at;
        const bool is_separator = begins_word(at);
        while (at < t.size() && begins_word(at) == is_separator) at += (size_t)n_bytes;
        const size_t n_first = char_bytes(t.bytes, begin);
        out.append(change_case(t.slice(begin, n_first), python_case::upper));
        out.append(change_case(t.slice(begin + n_first, at - begin - n_first), python_case::lower));
    }
    return c.run.make(std::move(out));
}

value filter_trim(native_call& c) {
    traced_text chars;
    if (is_given(c, 1)) chars = c.run.to_text(c[1]);
    return c.run.make(strip_text(c.run.to_text(c[0]), is_given(c, 1) ? &chars : nullptr, true, true));
}

value filter_replace(native_call& c) {
    const int64_t n_max = is_given(c, 3) ? integer_of(c, 3, -1) : -1;
    return replace_checked(c.run, c.run.to_text(c[0]), c.run.to_text(c[1]), c.run.to_text(c[2]), n_max);
}

value filter_string(native_call& c) { return c[0].is_string() ? c[0] : c.run.make(c.run.to_text(c[0])); }

value filter_safe(native_call& c) {
    traced_text t = c.run.to_text(c[0]);
    t.is_markup = true;
    return c.run.make(std::move(t));
}

template <bool kAgain> value filter_escape(native_call& c) {
    const traced_text t = c.run.to_text(c[0]);
    return c.run.make(t.is_markup && !kAgain ? t : escape_html(t));
}

value filter_format(native_call& c) {
    const traced_text format = c.run.to_text(c[0]);
    if (c.rest->named.empty()) return c.run.make(format_percent(c.run, format, c.run.make_tuple(c.rest->values)));
    if (!c.rest->values.empty()) return c.run.fail("format: want either positional or named arguments");
    std::vector<value_member> members;
    for (const auto& [key, v] : c.rest->named) members.push_back({c.run.make(key), v});
    return c.run.make(format_percent(c.run, format, c.run.make_map(std::move(members))));
}

value filter_indent(native_call& c) {
    if (!c[0].is_string()) return c.run.fail("indent: want a string");
    traced_text t = c[0].as_text(), indent, out;
    if (c[1].is_string()) {
        indent = c[1].as_text();
    } else {
        const int64_t width = std::max<int64_t>(integer_of(c, 1, 4), 0);
        if (!c.run.has_room((size_t)width)) return {};
        indent.append(std::string((size_t)width, ' '), false);
    }
    const bool indents_first = flag_of(c, 2), indents_blank = flag_of(c, 3);
    t.append("\n", false);
    bool is_first = true;
    for (const auto& [begin, n_bytes] : split_lines(t.bytes)) {
        if (!c.run.charge(1) || !c.run.has_room(out.size() + indent.size() + n_bytes)) return {};
        if (!is_first) out.append("\n", false);
        if (is_first ? indents_first : indents_blank || n_bytes > 0) out.append(indent);
        out.append(t, begin, n_bytes);
        is_first = false;
    }
    out.is_markup = t.is_markup;
    return c.run.make(std::move(out));
}

value filter_center(native_call& c) {
    const value text = filter_string(c);
    const int64_t width = integer_of(c, 1, 80);
    return c.run.failed() ? value() : pad_checked(c.run, text.as_text(), width, c.run.length(text), 'c', " ");
}

value filter_truncate(native_call& c) {
    const value& text = c[0];
    const traced_text end = text_or(c, 3, "...");
    const int64_t n_max = integer_of(c, 1, 255), leeway = is_given(c, 4) ? integer_of(c, 4, 5) : 5;
    const int64_t n_end = (int64_t)count_chars(end.bytes);
    if (c.run.failed()) return {};
    if (n_max < n_end || leeway < 0) return c.run.fail("truncate: want a larger length");
    if (c.run.length(text) <= n_max + leeway) return text;
    if (!text.is_string()) return c.run.fail("truncate: want a string");
    traced_text out = text.as_text().slice(0, char_offset(text.as_string(), (size_t)(n_max - n_end)));
    if (!flag_of(c, 2))
        if (const size_t blank = out.bytes.rfind(' '); blank != std::string::npos) out = out.slice(0, blank);
    out.append(end);
    return c.run.make(std::move(out));
}

value filter_wordcount(native_call& c) {
    const traced_text t = c.run.to_text(c[0]);
    int64_t n = 0;
    int n_bytes;
    bool is_in_word = false;
    for (size_t i = 0; i < t.size() && c.run.charge(1); i += (size_t)n_bytes) {
        const uint32_t cp = utf8_decode(t.bytes, i, &n_bytes);
        const bool is_word = cp == '_' || (unicode_bits(cp) & kUniL) || unicode_is_numeric(cp);
        n += is_word && !is_in_word;
        is_in_word = is_word;
    }
    return value::of_int(n);
}

traced_text quoted_url(const traced_text& t, bool of_query) {
    traced_text out;
    for (size_t i = 0; i < t.size(); i++) {
        const uint8_t b = (uint8_t)t.bytes[i];
        const bool is_alnum = (b >= '0' && b <= '9') || ((b | 32) >= 'a' && (b | 32) <= 'z');
        std::string part(1, (char)b);
        if (of_query && b == ' ') part = "+";
        else if (!is_alnum && b != '_' && b != '.' && b != '-' && b != '~' && (b != '/' || of_query))
            part = {'%', "0123456789ABCDEF"[b >> 4], "0123456789ABCDEF"[b & 15]};
        out.append(part, t.is_input_at(i));
    }
    return out;
}

value filter_urlencode(native_call& c) {
    if (c[0].is_string() || !c.run.is_iterable(c[0])) {
        const traced_text t = c.run.to_text(c[0]);
        return c.run.charge(t.size()) ? c.run.make(quoted_url(t, false)) : value();
    }
    traced_text out;
    std::vector<value> keys;
    if (!c.run.collect(c[0], &keys)) return {};
    for (value& key : keys) {
        value v = c[0].is_map() ? *c[0].find(key) : value();
        if (!c[0].is_map()) {
            std::vector<value> pair;
            if (!c.run.collect(key, &pair) || pair.size() != 2) return c.run.fail("urlencode: want pairs");
            key = pair[0], v = pair[1];
        }
        const traced_text k = c.run.to_text(key), t = c.run.to_text(v);
        if (!c.run.has_room(out.size() + 3 * (k.size() + t.size())) || !c.run.charge(k.size() + t.size())) return {};
        if (out.size() > 0) out.append("&", false);
        out.append(quoted_url(k, true));
        out.append("=", false);
        out.append(quoted_url(t, true));
    }
    return c.run.make(std::move(out));
}

// Text without comments and tags, with single blanks, and with the commonest entities resolved.
value filter_striptags(native_call& c) {
    const traced_text t = c.run.to_text(c[0]);
    traced_text bare;
    if (!c.run.charge(t.size() / 4)) return {};
    for (size_t at = 0; at < t.size();) {
        const bool is_comment = t.bytes.compare(at, 4, "<!--") == 0;
        const size_t end = t.bytes[at] != '<' ? std::string::npos
                           : is_comment       ? t.bytes.find("-->", at)
                                              : t.bytes.find('>', at);
        if (end == std::string::npos) {
            const size_t next = std::min(t.bytes.find('<', at + 1), t.size());
            if (t.bytes[at] == '<' && !c.run.charge((t.size() - at) / 64)) return {};
            bare.append(t, at, next - at);
            at = next;
        } else {
            at = end + (is_comment ? 3 : 1);
        }
    }
    static constexpr std::pair<std::string_view, std::string_view> kEntities[] = {
        {"&lt;", "<"},  {"&gt;", ">"},        {"&quot;", "\""}, {"&#34;", "\""},
        {"&#39;", "'"}, {"&nbsp;", "\u00a0"}, {"&amp;", "&"}};
    traced_text out;
    bool is_blank = false;
    int n_bytes;
    for (size_t i = 0; i < bare.size(); i += (size_t)n_bytes) {
        if (is_python_space(utf8_decode(bare.bytes, i, &n_bytes))) {
            is_blank = true;
            continue;
        }
        if (is_blank && out.size() > 0) out.append(" ", false);
        is_blank = false;
        const auto* entity = std::find_if(std::begin(kEntities), std::end(kEntities), [&](const auto& e) {
            return bare.bytes.compare(i, e.first.size(), e.first) == 0;
        });
        if (entity == std::end(kEntities)) {
            out.append(bare, i, (size_t)n_bytes);
        } else {
            out.append(entity->second, bare.is_input_at(i));
            n_bytes = (int)entity->first.size();
        }
    }
    return c.run.make(std::move(out));
}

value filter_xmlattr(native_call& c) {
    traced_text out;
    if (!c[0].is_map()) return c.run.fail("xmlattr: want a mapping");
    const bool has_blank = !c.given[1] || c.run.is_true(c[1]);
    for (const value_member& m : c[0].members()) {
        if (m.val.is_null() || m.val.is(value_kind::undefined)) continue;
        const traced_text key = c.run.to_text(m.key), val = c.run.to_text(m.val);
        if (key.bytes.find_first_of(" />=\t\n\f\r\v") != std::string::npos)
            return c.run.fail("xmlattr: invalid character in a name");
        if (!c.run.has_room(out.size() + 6 * val.size())) return {};
        if (has_blank || out.size() > 0) out.append(" ", false);
        out.append(escape_html(key));
        out.append("=\"", false);
        out.append(val.is_markup ? val : escape_html(val));
        out.append("\"", false);
    }
    out.is_markup = c.run.is_autoescape;
    return c.run.make(std::move(out));
}

value filter_join(native_call& c) { return join_values(c.run, c[0], text_or(c, 1, ""), c[2], false); }

value filter_tojson(native_call& c) {
    json_style style;
    style.ensure_ascii = flag_of(c, 1);
    style.has_indent = is_given(c, 2);
    if (style.has_indent && c[2].is_string()) {
        style.indent = c[2].as_string();
    } else if (style.has_indent) {
        const int64_t width = std::max<int64_t>(integer_of(c, 2, 0), 0);
        if (!c.run.has_room((size_t)width)) return {};
        style.indent = std::string((size_t)width, ' ');
    }
    if (style.has_indent) style.item_separator = ",";
    if (is_given(c, 3)) {
        std::vector<value> separators;
        if (!c.run.collect(c[3], &separators)) return {};
        if (separators.size() != 2 || !separators[0].is_string() || !separators[1].is_string())
            return c.run.fail("tojson: want two separators");
        style.item_separator = separators[0].as_string();
        style.key_separator = separators[1].as_string();
    }
    style.sort_keys = flag_of(c, 4);
    style.max_bytes = c.run.meter.max_bytes - std::min(c.run.meter.used_bytes, c.run.meter.max_bytes);
    traced_text out;
    error_text err;
    if (duet_status s = write_json(c[0], style, &out, err); s != DUET_OK) return c.run.fail("tojson: " + err.text, s);
    return c.run.make(std::move(out));
}

value filter_filesizeformat(native_call& c) {
    const value number = filter_float_of(c.run, c[0], value());
    if (c.run.failed() || number.is_null()) return c.run.fail("filesizeformat: want a number");
    const bool is_binary = flag_of(c, 1);
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

// ---- numbers
// ---------------------------------------------------------------------------------------------------------

value filter_length(native_call& c) { return value::of_int(c.run.length(c[0])); }

value filter_default(native_call& c) {
    const bool is_wanted = c[0].is(value_kind::undefined) || (flag_of(c, 2) && !c.run.is_true(c[0]));
    if (!is_wanted) return c[0];
    return c.given[1] ? c[1] : c.run.make("");
}

// Python's int(text, base); null when it is none.
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
        const char c = s[i] >= 'A' && s[i] <= 'Z' ? (char)(s[i] | 32) : s[i];
        const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'z' ? c - 'a' + 10 : 99;
        if (digit >= base) return {};
        digits += c;
    }
    return digits.empty() ? value() : integer_of_digits((is_negative ? "-" : "") + digits, (int)base);
}

}  // namespace

value filter_float_of(template_run& run, const value& v, const value& otherwise) {
    if (v.is(value_kind::undefined)) return run.fail(std::string(v.as_string()));
    if (v.is_number() || v.is_bool()) return value::of_double(v.as_double());
    if (!v.is_string()) return otherwise;
    std::string digits;
    const std::string_view s = v.as_string().substr(0, stripped_end(v.as_string()));
    for (size_t i = stripped_begin(s); i < s.size(); i++) {
        const bool is_inside =
            i > 0 && i + 1 < s.size() && s[i - 1] >= '0' && s[i - 1] <= '9' && s[i + 1] >= '0' && s[i + 1] <= '9';
        if (s[i] != '_' || !is_inside) digits += s[i];
    }
    if (digits.starts_with("+") && !digits.starts_with("+-")) digits.erase(0, 1);
    double d = 0;
    const auto r = std::from_chars(digits.data(), digits.data() + digits.size(), d);
    if (r.ptr != digits.data() + digits.size() || digits.empty() || digits.find('(') != digits.npos) return otherwise;
    if (r.ec == std::errc::result_out_of_range)
        d = digits.find("e-") != digits.npos || digits.find("E-") != digits.npos ? 0 : HUGE_VAL;
    return value::of_double(d == HUGE_VAL && digits[0] == '-' ? -d : d);
}

namespace {

value truncated(template_run& run, double d, const value& otherwise) {
    if (!std::isfinite(d)) return otherwise;
    if (std::fabs(d) >= 1e38) return run.fail("integer overflow", DUET_ERR_UNSUPPORTED);
    return of_int128((__int128)d);
}

value filter_int(native_call& c) {
    const value otherwise = c.given[1] ? c[1] : value::of_int(0);
    const value& v = c[0];
    if (v.is(value_kind::undefined)) return c.run.fail(std::string(v.as_string()));
    if (v.is_bool()) return value::of_int(v.as_bool());
    if (v.is_int() || v.is(value_kind::big_integer)) return v;
    if (v.is(value_kind::real)) {
        if (std::isinf(v.as_double())) return c.run.fail("cannot convert infinity to an integer");
        return truncated(c.run, v.as_double(), otherwise);
    }
    if (!v.is_string()) return otherwise;
    const value i = integer_of_text(v.as_string(), integer_of(c, 2, 10));
    if (i.is(value_kind::undefined)) return c.run.fail("integer overflow", DUET_ERR_UNSUPPORTED);
    if (!i.is_null()) return i;
    const value d = filter_float_of(c.run, v, value());
    return d.is_null() || c.run.failed() ? otherwise : truncated(c.run, d.as_double(), otherwise);
}

value filter_float(native_call& c) { return filter_float_of(c.run, c[0], c.given[1] ? c[1] : value::of_double(0)); }

value filter_abs(native_call& c) {
    __int128 i;
    if (c[0].is(value_kind::real)) return value::of_double(std::fabs(c[0].as_double()));
    if (to_int128(c[0], &i)) return of_int128(i < 0 ? -i : i);
    return c.run.fail(c[0].is(value_kind::undefined) ? std::string(c[0].as_string()) : "abs: want a number");
}

value filter_round(native_call& c) {
    const int64_t precision = integer_of(c, 1, 0);
    const std::string how = text_or(c, 2, "common").bytes;
    if (how != "common" && how != "ceil" && how != "floor")
        return c.run.fail("round: the method must be common, ceil or floor");
    if (!c[0].is_number() && !c[0].is_bool()) return c.run.fail("round: want a number");
    const double d = c[0].as_double();
    if (how != "common") {
        const double scale = std::pow(10.0, (double)precision), scaled = d * scale;
        if (!std::isfinite(scaled)) return c.run.fail("round: cannot round this");
        return value::of_double(((how == "ceil" ? std::ceil(scaled) : std::floor(scaled)) + 0.0) / scale);
    }
    if (!c[0].is(value_kind::real)) {
        __int128 i = 0, scale = 1;
        if (precision >= 0 || !to_int128(c[0], &i)) return c[0].is_bool() ? value::of_int(c[0].as_bool()) : c[0];
        for (int64_t k = precision; k < 0 && scale < (__int128)1 << 100; k++) scale *= 10;
        __int128 rest = i % scale;
        if (rest < 0) rest += scale;
        const __int128 below = i - rest;
        const bool goes_up = rest * 2 > scale || (rest * 2 == scale && below / scale % 2 != 0);
        return of_int128(goes_up ? below + scale : below);
    }
    if (!std::isfinite(d) || precision > 330) return c[0];
    if (precision < 0) {
        const double scale = std::pow(10.0, (double)-precision);
        return value::of_double(std::isfinite(scale) ? std::nearbyint(d / scale) * scale : std::copysign(0.0, d));
    }
    char buffer[700];  // to_chars rounds the exact value, half to even
    const auto r = std::to_chars(buffer, buffer + sizeof buffer, d, std::chars_format::fixed, (int)precision);
    double rounded = d;
    if (r.ec == std::errc()) std::from_chars(buffer, r.ptr, rounded);
    return value::of_double(rounded);
}

constexpr native_function kTextFilters[] = {
    {"upper", "s", filter_case<python_case::upper>},
    {"lower", "s", filter_case<python_case::lower>},
    {"capitalize", "s", filter_case<python_case::capitalize>},
    {"title", "s", filter_title},
    {"trim", "value chars?", filter_trim},
    {"replace", "s old new count?", filter_replace},
    {"string", "s", filter_string},
    {"safe", "value", filter_safe},
    {"escape", "s", filter_escape<false>},
    {"e", "s", filter_escape<false>},
    {"forceescape", "value", filter_escape<true>},
    {"format", "value *", filter_format},
    {"indent", "s width? first? blank?", filter_indent},
    {"center", "value width?", filter_center},
    {"truncate", "s length? killwords? end? leeway?", filter_truncate},
    {"wordcount", "s", filter_wordcount},
    {"urlencode", "value", filter_urlencode},
    {"striptags", "value", filter_striptags},
    {"xmlattr", "d autospace?", filter_xmlattr},
    {"join", "value d? attribute?", filter_join},
    {"tojson", "x ensure_ascii? indent? separators? sort_keys?", filter_tojson},
    {"filesizeformat", "value binary?", filter_filesizeformat},
    {"length", "/obj", filter_length},
    {"count", "/obj", filter_length},
    {"default", "value default_value? boolean?", filter_default},
    {"d", "value default_value? boolean?", filter_default},
    {"int", "value default? base?", filter_int},
    {"float", "value default?", filter_float},
    {"abs", "/x", filter_abs},
    {"round", "value precision? method?", filter_round},
};

}  // namespace

std::span<const native_function> text_filters() { return kTextFilters; }

}  // namespace duet
