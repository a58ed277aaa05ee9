// models/template_strings.cpp: the methods of strings, and the filters that yield text.
// Sources: the documentation of Python 3.11, "Built-in Types"; of Jinja 3.1, "List of Builtin Filters".
// Main path: models/template_eval -> [models/template_strings]
#include "template_run.h"

#include <algorithm>

namespace duet {

// t with so much of fill that it has width characters. align: < > ^ as in a format, = (between the sign of n_sign bytes
// and the rest), or c, which is str.center.
traced_text padded(template_run& run, const traced_text& t, int64_t width, char align, std::string_view fill,
                   size_t n_sign) {
    const int64_t n_chars = (int64_t)count_chars(t.bytes);
    if (width <= n_chars || !run.charge(t.size() / 64)) return t;
    const size_t n = (size_t)(width - n_chars);
    if (n > run.limits.max_memory_bytes) run.fail("the result is too large", DUET_ERR_FULL);
    if (run.failed() || !run.has_room(t.size() + n * fill.size())) return t;
    const size_t n_left = align == '<' ? 0 : align == '^' ? n / 2 : align == 'c' ? n / 2 + (n & (size_t)width & 1) : n;
    traced_text out = t.slice(0, align == '=' ? n_sign : 0);
    for (size_t i = 0; i < n_left; i++) out.append(fill, false);
    out.append(t, align == '=' ? n_sign : 0);
    for (size_t i = n_left; i < n; i++) out.append(fill, false);
    return out;
}

namespace string_functions {
namespace {

template <python_case kCase> value changed_case(native_call& c) {
    const traced_text& t = c.text(0);
    return c.run.charge(t.size()) ? c.run.make(change_case(t, kCase)) : value();
}

template <bool kLeft, bool kRight> value strip(native_call& c) {
    if (!c.run.charge_search(c.text(0).bytes, c.has(1) ? c.string(1).bytes : "")) return {};
    return c.run.make(strip_text(c.text(0), c.has(1) ? &c.string(1) : nullptr, kLeft, kRight));
}

template <char kAlign> value pad(native_call& c) {
    const int64_t width = c.integer(1, 80);
    const std::string& fill = c.string(2, " ").bytes;
    if (count_chars(fill) != 1) return c.run.fail("the fill character must be exactly one character long");
    return c.run.make(padded(c.run, c.text(0), width, kAlign, fill));
}

// ---- cutting ----

template <bool kFromRight> value split(native_call& c) {
    const bool has_separator = c.has(1);
    const std::string_view separator = has_separator ? std::string_view(c.string(1).bytes) : "";
    if (!c.run.charge(c.text(0).size() / 16)) return {};
    const traced_text t = has_separator ? c.text(0) : strip_text(c.text(0), nullptr, !kFromRight, kFromRight);
    const std::string_view s = t.bytes;
    if (has_separator && separator.empty()) return c.run.fail("empty separator");
    c.run.charge_search(s, separator);
    std::vector<value> items;
    size_t begin = 0, end = s.size(), cut, after;  // [cut, after) separates an item from the rest, [begin, end)
    for (int64_t n_left = c.integer(2, -1); n_left != 0 && !c.run.failed() && (has_separator || begin < end);
         n_left--) {
        if (has_separator) {
            cut = kFromRight ? s.substr(0, end).rfind(separator) : s.find(separator, begin);
            if (cut == s.npos) break;
            after = cut + separator.size();
        } else if (kFromRight) {
            for (after = end; after > 0 && stripped_end(s.substr(0, after)) == after;) after = char_before(s, after);
            cut = stripped_end(s.substr(0, after));
        } else {
            for (cut = begin; cut < end && stripped_begin(s.substr(cut)) == 0;) cut += char_bytes(s, cut);
            after = cut + stripped_begin(s.substr(cut));
        }
        items.push_back(c.run.make(kFromRight ? t.slice(after, end - after) : t.slice(begin, cut - begin)));
        (kFromRight ? end : begin) = kFromRight ? cut : after;
    }
    if (has_separator || begin < end) items.push_back(c.run.make(t.slice(begin, end - begin)));
    if (kFromRight) std::reverse(items.begin(), items.end());
    return c.run.make_list(std::move(items));
}

template <bool kLast> value partition(native_call& c) {
    const traced_text &separator = c.string(1), &t = c.text(0);
    if (separator.bytes.empty()) return c.run.fail("empty separator");
    if (!c.run.charge_search(t.bytes, separator.bytes)) return {};
    size_t begin = kLast ? t.bytes.rfind(separator.bytes) : t.bytes.find(separator.bytes), size = separator.size();
    if (begin == std::string::npos) begin = kLast ? 0 : t.size(), size = 0;
    return c.run.make_tuple(
        {c.run.make(t.slice(0, begin)), c.run.make(t.slice(begin, size)), c.run.make(t.slice(begin + size))});
}

value splitlines(native_call& c) {
    const traced_text& t = c.text(0);
    std::vector<value> items;
    if (!c.run.has_room(t.size() * 8)) return {};
    for (const text_line& line : split_lines(t.bytes)) {
        if (c.run.failed()) break;
        items.push_back(c.run.make(t.slice(line.begin, line.n_bytes + (c.flag(1) ? line.n_end : 0))));
    }
    return c.run.make_list(std::move(items));
}

template <bool kEnd> value remove_affix(native_call& c) {
    const traced_text &affix = c.string(1), &t = c.text(0);
    const bool has = kEnd ? t.bytes.ends_with(affix.bytes) : t.bytes.starts_with(affix.bytes);
    return c.run.make(!has ? t : t.slice(kEnd ? 0 : affix.size(), t.size() - affix.size()));
}

// ---- searching ----

// The part of the text that the arguments 2 and 3 (start and end, in characters) name. false: nothing, or an error.
bool part_of(native_call& c, std::string_view* part, int64_t* first_char) {
    *part = c.text(0).bytes;
    *first_char = 0;
    if (!c.given[2] && !c.given[3]) return true;
    const int64_t n_chars = c.run.length(c[0]);
    slice_range at;
    if (c[2].is_int() && c[2].as_int() > n_chars) return false;
    if (!c.run.to_slice(c[2], c[3], {}, n_chars, &at)) return c.run.reject("slice indices must be integers or None");
    part->remove_prefix(char_offset(*part, (size_t)at.first));
    *part = part->substr(0, char_offset(*part, (size_t)at.size));
    *first_char = at.first;
    return true;
}

enum class search { find, index, count };
template <search kWhat, bool kLast> value find(native_call& c) {
    const traced_text& needle = c.string(1);
    std::string_view s;
    int64_t first_char, n = 0;
    if (part_of(c, &s, &first_char)) {
        if (!c.run.charge_search(s, needle.bytes)) return {};
        if (kWhat == search::count) {
            if (needle.bytes.empty()) return value::of_int((int64_t)count_chars(s) + 1);
            for (size_t at = 0; (at = s.find(needle.bytes, at)) != s.npos; at += needle.size()) n++;
            return value::of_int(n);
        }
        const size_t found = kLast ? s.rfind(needle.bytes) : s.find(needle.bytes);
        if (found != s.npos) return value::of_int(first_char + (int64_t)count_chars(s.substr(0, found)));
    }
    return kWhat == search::index ? c.run.fail("substring not found") : value::of_int(kWhat == search::count ? 0 : -1);
}

template <bool kEnd> value has_affix(native_call& c) {
    std::string_view s;
    int64_t first_char;
    if (!part_of(c, &s, &first_char) || !c.run.charge(c[1].is(value_kind::tuple) ? c[1].items().size() : 1))
        return value::of_bool(false);
    for (const value& w : c[1].is(value_kind::tuple) ? c[1].items() : std::vector<value>{c[1]}) {
        if (!w.is_string()) return c.run.fail("want a string or a tuple of strings");
        if (kEnd ? s.ends_with(w.as_string()) : s.starts_with(w.as_string())) return value::of_bool(true);
    }
    return value::of_bool(false);
}

// ---- building ----

// The filter takes any value for a string, and none for the count.
template <bool kFilter> value replace(native_call& c) {
    const traced_text &t = c.text(0), &from = kFilter ? c.text(1) : c.string(1);
    const traced_text& to = kFilter ? c.text(2) : c.string(2);
    int64_t n_left = kFilter && !c.has(3) ? -1 : c.integer(3, -1);
    const traced_text inserted = t.is_markup && !to.is_markup ? escape_html(to) : to;
    traced_text out = t.slice(0, 0);
    c.run.charge_search(t.bytes, from.bytes);
    size_t at = 0;
    for (; n_left != 0 && c.run.has_room(out.size() + t.size() + inserted.size()); n_left--) {
        const size_t found = t.bytes.find(from.bytes, at);
        if (found == std::string::npos) break;
        out.append(t, at, found - at);
        out.append(inserted);
        at = found + from.size();
        if (!from.bytes.empty()) continue;
        if (at == t.size()) break;  // else nothing stands before each character and at the end
        out.append(t, at, char_bytes(t.bytes, at));
        at += char_bytes(t.bytes, at);
    }
    out.append(t, at);
    return c.run.make(std::move(out));
}

value join(native_call& c, const value& iterable, const traced_text& separator, const value& path, bool only_strings) {
    traced_text out;
    out.is_markup = separator.is_markup;
    if (!c.run.is_iterable(iterable)) return c.run.fail("want something iterable to join");
    size_t at = 0;
    bool is_first = true;
    for (value item; c.run.next_item(iterable, &at, &item); is_first = false) {
        if (only_strings && !item.is_string()) return c.run.fail("want strings to join");
        const traced_text part = c.run.to_text(c.run.get_path(item, path));
        if (!c.run.charge(1) || !c.run.has_room(out.size() + separator.size() + part.size())) break;
        if (!is_first) out.append(separator);
        out.append(out.is_markup && !part.is_markup ? escape_html(part) : part);
    }
    return c.run.make(std::move(out));
}

value zfill(native_call& c) {
    const traced_text& t = c.text(0);
    const size_t n_sign = t.bytes.starts_with('-') || t.bytes.starts_with('+');
    return c.run.make(padded(c.run, t, c.integer(1), '=', "0", n_sign));
}

value expandtabs(native_call& c) {
    const traced_text& t = c.text(0);
    const int64_t size = std::max<int64_t>(c.integer(1, 8), 0);
    traced_text out = t.slice(0, 0);
    int64_t column = 0;
    for (size_t i = 0; i < t.size() && !c.run.failed(); i++) {
        if (t.bytes[i] != '\t') {
            out.append(t, i, 1);
            if ((t.bytes[i] & 0xc0) != 0x80) column = t.bytes[i] == '\n' || t.bytes[i] == '\r' ? 0 : column + 1;
            continue;
        }
        const int64_t n = size > 0 ? size - column % size : 0;
        if (!c.run.has_room(out.size() + (size_t)n)) return {};
        out.append(std::string((size_t)n, ' '), t.is_input_at(i));
        column += n;
    }
    return c.run.make(std::move(out));
}

value format_map(native_call& c) {
    call_arguments arguments;
    if (!c[1].is_map()) return c.run.fail("want a mapping");
    for (const value_member& m : c[1].members())
        if (m.key.is_string()) arguments.named.emplace_back(std::string(m.key.as_string()), m.val);
    return c.run.make(format_braces(c.run, c.text(0), arguments));
}

value encode(native_call& c) {
    const std::string& encoding = c.string(1, "utf-8").bytes;
    c.string(2);
    if (encoding != "utf-8" && encoding != "utf8" && encoding != "UTF-8")
        return c.run.fail("only utf-8 is supported", DUET_ERR_UNSUPPORTED);
    return c.run.make_object(kBytesObject, {c[0]});
}

value translate(native_call& c) {
    const traced_text& t = c.text(0);
    if (!c[1].is_map()) return c.run.fail("want a mapping");
    traced_text out;
    for (size_t at = 0; at < t.size() && c.run.charge(1);) {
        const size_t begin = at;
        const value* to = c[1].find(value::of_int(next_char(t.bytes, &at)));
        std::string bytes;
        if (!to) out.append(t, begin, at - begin);
        else if (to->is_string() && c.run.has_room(out.size() + to->as_string().size())) out.append(to->as_text());
        else if (to->is_int() && to->as_int() >= 0 && to->as_int() < 0xd800)
            utf8_append(&bytes, (uint32_t)to->as_int()), out.append(bytes, t.is_input_at(begin));
        else if (!to->is_null()) return c.run.fail("want characters to translate to");
    }
    return c.run.make(std::move(out));
}

// ---- what a string is made of ----

template <class Test> value all_chars(native_call& c, Test test, bool of_empty = false) {
    const std::string_view s = c.text(0).bytes;
    if (!c.run.charge(s.size() / 8)) return {};
    for (size_t at = 0; at < s.size();)
        if (!test(next_char(s, &at))) return value::of_bool(false);
    return value::of_bool(of_empty || !s.empty());
}

template <uint32_t kBits> value is_of(native_call& c) {
    return all_chars(c, [](uint32_t cp) { return (unicode_bits(cp) & kBits) != 0; });
}

constexpr uint32_t kUpperBits = kUniLu | kUniLt;

template <bool kUpper> value is_case(native_call& c) {
    bool has_cased = false;
    const value none_wrong = all_chars(c, [&](uint32_t cp) {
        const uint32_t bits = unicode_bits(cp);
        has_cased |= (bits & (kUpper ? kUniLu : kUniLl)) != 0;
        return !(bits & (kUpper ? (uint32_t)kUniLl | kUniLt : kUpperBits));
    });
    return value::of_bool(c.run.is_true(none_wrong) && has_cased);
}

value istitle(native_call& c) {
    bool is_in_word = false, has_cased = false;
    const value none_wrong = all_chars(c, [&](uint32_t cp) {
        const bool is_upper = unicode_bits(cp) & kUpperBits, is_lower = unicode_bits(cp) & kUniLl;
        const bool is_good = is_upper ? !is_in_word : !is_lower || is_in_word;
        is_in_word = is_upper || is_lower;
        has_cased |= is_in_word;
        return is_good;
    });
    return value::of_bool(c.run.is_true(none_wrong) && has_cased);
}

value isidentifier(native_call& c) {
    uint32_t wanted = kUniL;  // the first character may not be a digit
    return all_chars(c, [&](uint32_t cp) {
        const bool is_good = cp == '_' || (unicode_bits(cp) & wanted);
        wanted = kUniL | kUniNd | kUniMn | kUniPc;
        return is_good;
    });
}

// ---- filters that yield text ----

// The first letter of each word large, the others small; words begin behind blanks and - ( { [ <.
value title(native_call& c) {
    const traced_text& t = c.text(0);
    traced_text out = t.slice(0, 0);
    auto is_separator = [&](size_t at) {
        const uint32_t cp = next_char(t.bytes, &at);
        return is_python_space(cp) || cp == '-' || cp == '(' || cp == '{' || cp == '[' || cp == '<';
    };
    for (size_t at = 0; at < t.size() && c.run.charge(1);) {
        const size_t begin = at, n_first = char_bytes(t.bytes, at);
        for (const bool is_between = is_separator(at); at < t.size() && is_separator(at) == is_between;)
            at += char_bytes(t.bytes, at);
        out.append(change_case(t.slice(begin, n_first), python_case::upper));
        out.append(change_case(t.slice(begin + n_first, at - begin - n_first), python_case::lower));
    }
    return c.run.make(std::move(out));
}

value format(native_call& c) {
    std::vector<value_member> members;
    for (const auto& [key, v] : c.rest->named) members.push_back({c.run.make(key), v});
    if (!members.empty() && !c.rest->values.empty()) return c.run.fail("format: want positional or named arguments");
    return c.run.make(format_percent(
        c.run, c.text(0), members.empty() ? c.run.make_tuple(c.rest->values) : c.run.make_map(std::move(members))));
}

// An argument that is a text, or the number of blanks that it stands for.
traced_text indent_of(native_call& c, int i, int64_t otherwise) {
    if (c[i].is_string()) return c[i].as_text();
    const size_t width = (size_t)std::max<int64_t>(c.integer(i, otherwise), 0);
    return traced_text(c.run.has_room(width) ? std::string(width, ' ') : "", false);
}

value indent(native_call& c) {
    if (!c[0].is_string()) return c.run.fail("indent: want a string");
    traced_text t = c[0].as_text(), out = t.slice(0, 0);
    const traced_text indent = indent_of(c, 1, 4);
    t.append("\n", false);
    for (const text_line& line : split_lines(t.bytes)) {
        if (!c.run.charge(1) || !c.run.has_room(out.size() + indent.size() + line.n_bytes)) return {};
        if (line.begin > 0) out.append("\n", false);
        if (line.begin == 0 ? c.flag(2) : c.flag(3) || line.n_bytes > 0) out.append(indent);
        out.append(t, line.begin, line.n_bytes);
    }
    return c.run.make(std::move(out));
}

value truncate(native_call& c) {
    const traced_text& end = c.text(3, "...");
    const int64_t n_max = c.integer(1, 255), leeway = c.has(4) ? c.integer(4) : 5;
    const int64_t n_end = (int64_t)count_chars(end.bytes);
    if (n_max < n_end || leeway < 0) return c.run.fail("truncate: want a larger length");
    if (c.run.length(c[0]) <= n_max + leeway) return c[0];
    if (!c[0].is_string()) return c.run.fail("truncate: want a string");
    traced_text out = c[0].as_text().slice(0, char_offset(c[0].as_string(), (size_t)(n_max - n_end)));
    if (!c.flag(2)) out = out.slice(0, out.bytes.rfind(' '));
    out.append(end);
    return c.run.make(std::move(out));
}

value wordcount(native_call& c) {
    const std::string_view s = c.text(0).bytes;
    int64_t n = 0;
    bool was_word = false;
    for (size_t at = 0; at < s.size() && c.run.charge(1);) {
        const uint32_t cp = next_char(s, &at);
        const bool is_word = cp == '_' || (unicode_bits(cp) & kUniL) || unicode_is_numeric(cp);
        n += is_word && !was_word;
        was_word = is_word;
    }
    return value::of_int(n);
}

void append_quoted_url(const traced_text& t, bool of_query, traced_text* out) {
    for (size_t i = 0; i < t.size(); i++) {
        const char c = t.bytes[i];
        const uint8_t b = (uint8_t)c;
        std::string part(1, c);
        if (of_query && c == ' ') part = "+";
        else if (!is_letter_or_digit(c) && std::string_view(of_query ? "_.-~" : "_.-~/").find(c) == std::string::npos)
            part = {'%', "0123456789ABCDEF"[b >> 4], "0123456789ABCDEF"[b & 15]};
        out->append(part, t.is_input_at(i));
    }
}

value urlencode(native_call& c) {
    traced_text out;
    if (c[0].is_string() || !c.run.is_iterable(c[0])) {
        if (c.run.charge(c.text(0).size())) append_quoted_url(c.text(0), false, &out);
        return c.run.make(std::move(out));
    }
    for (const value& item : c.items()) {
        std::vector<value> pair = {item};
        if (const value* v = c[0].is_map() ? c[0].find(item) : nullptr) pair.push_back(*v);
        else if (pair.clear(); !c.run.collect(item, &pair) || pair.size() != 2)
            return c.run.fail("urlencode: want pairs");
        const traced_text k = c.run.to_text(pair[0]), t = c.run.to_text(pair[1]);
        if (!c.run.has_room(out.size() + 3 * (k.size() + t.size())) || !c.run.charge(k.size() + t.size())) return {};
        if (out.size() > 0) out.append("&", false);
        append_quoted_url(k, true, &out);
        out.append("=", false);
        append_quoted_url(t, true, &out);
    }
    return c.run.make(std::move(out));
}

// Text without comments and tags, with single blanks, and with the commonest entities resolved.
value striptags(native_call& c) {
    const traced_text& t = c.text(0);
    traced_text bare, out;
    if (!c.run.charge(t.size() / 4)) return {};
    for (size_t at = 0; at < t.size();) {
        const std::string_view close = t.bytes.compare(at, 4, "<!--") == 0 ? "-->" : ">";
        const size_t end = t.bytes[at] == '<' ? t.bytes.find(close, at) : std::string::npos;
        const size_t next = end == t.bytes.npos ? std::min(t.bytes.find('<', at + 1), t.size()) : end + close.size();
        if (end == std::string::npos) bare.append(t, at, next - at);
        if (t.bytes[at] == '<' && end == std::string::npos && !c.run.charge((t.size() - at) / 64)) return {};
        at = next;
    }
    static constexpr std::pair<std::string_view, std::string_view> kEntities[] = {
        {"&lt;", "<"},  {"&gt;", ">"},        {"&quot;", "\""}, {"&#34;", "\""},
        {"&#39;", "'"}, {"&nbsp;", "\u00a0"}, {"&amp;", "&"}};
    bool is_blank = false;
    for (size_t at = 0; at < bare.size();) {
        const size_t begin = at;
        if (is_python_space(next_char(bare.bytes, &at))) {
            is_blank = true;
            continue;
        }
        if (std::exchange(is_blank, false) && out.size() > 0) out.append(" ", false);
        std::string_view bytes = std::string_view(bare.bytes).substr(begin, at - begin);
        for (const auto& [entity, meaning] : kEntities)
            if (bare.bytes.compare(begin, entity.size(), entity) == 0) bytes = meaning, at = begin + entity.size();
        out.append(bytes, bare.is_input_at(begin));
    }
    return c.run.make(std::move(out));
}

// tojson of Hugging Face's transformers: Python's json.dumps.
value tojson(native_call& c) {
    json_style style;
    style.ensure_ascii = c.flag(1);
    style.has_indent = c.has(2);
    if (style.has_indent) style.indent = indent_of(c, 2, 0).bytes, style.item_separator = ",";
    if (c.has(3)) {
        std::vector<value> separators;
        c.run.collect(c[3], &separators);
        if (separators.size() != 2 || !separators[0].is_string() || !separators[1].is_string())
            return c.run.fail("tojson: want two separators");
        style.item_separator = separators[0].as_string();
        style.key_separator = separators[1].as_string();
    }
    style.sort_keys = c.flag(4);
    style.max_bytes = c.run.meter.max_bytes - std::min(c.run.meter.used_bytes, c.run.meter.max_bytes);
    traced_text out;
    error_text err;
    if (duet_status s = write_json(c[0], style, &out, err); s != DUET_OK) return c.run.fail("tojson: " + err.text, s);
    return c.run.make(std::move(out));
}

value safe(native_call& c) {
    traced_text t = c.text(0);
    t.is_markup = true;
    return c.run.make(std::move(t));
}

template <bool kAgain> value escape(native_call& c) {
    return c.run.make(c.text(0).is_markup && !kAgain ? c.text(0) : escape_html(c.text(0)));
}

// clang-format off
constexpr native_function kFilters[] = {
    {"upper", "s", changed_case<python_case::upper>},
    {"lower", "s", changed_case<python_case::lower>},
    {"capitalize", "s", changed_case<python_case::capitalize>},
    {"title", "s", title},
    {"trim", "value chars?", strip<true, true>},
    {"replace", "s old new count?", replace<true>},
    {"string", "s", [](native_call& c) { return c.text(0), c[0]; }},
    {"safe", "value", safe},
    {"escape e", "s", escape<false>},
    {"forceescape", "value", escape<true>},
    {"format", "value *", format},
    {"indent", "s width? first? blank?", indent},
    {"center", "value width?", pad<'c'>},
    {"truncate", "s length? killwords? end? leeway?", truncate},
    {"wordcount", "s", wordcount},
    {"urlencode", "value", urlencode},
    {"striptags", "value", striptags},
    {"join", "value d? attribute?", [](native_call& c) { return join(c, c[0], c.text(1), c[2], false); }},
    {"tojson", "x ensure_ascii? indent? separators? sort_keys?", tojson},
};

constexpr native_function kMethods[] = {
    {"strip", "/s chars?", strip<true, true>},
    {"lstrip", "/s chars?", strip<true, false>},
    {"rstrip", "/s chars?", strip<false, true>},
    {"split", "s sep? maxsplit?", split<false>},
    {"rsplit", "s sep? maxsplit?", split<true>},
    {"splitlines", "s keepends?", splitlines},
    {"partition", "/s sep", partition<false>},
    {"rpartition", "/s sep", partition<true>},
    {"startswith", "/s prefix start? end?", has_affix<false>},
    {"endswith", "/s suffix start? end?", has_affix<true>},
    {"removeprefix", "/s prefix", remove_affix<false>},
    {"removesuffix", "/s suffix", remove_affix<true>},
    {"replace", "/s old new count?", replace<false>},
    {"join", "/s iterable", [](native_call& c) { return join(c, c[1], c.text(0), {}, true); }},
    {"find", "/s sub start? end?", find<search::find, false>},
    {"rfind", "/s sub start? end?", find<search::find, true>},
    {"index", "/s sub start? end?", find<search::index, false>},
    {"rindex", "/s sub start? end?", find<search::index, true>},
    {"count", "/s sub start? end?", find<search::count, false>},
    {"upper", "/s", changed_case<python_case::upper>},
    {"lower", "/s", changed_case<python_case::lower>},
    {"title", "/s", changed_case<python_case::title>},
    {"capitalize", "/s", changed_case<python_case::capitalize>},
    {"swapcase", "/s", changed_case<python_case::swap>},
    {"casefold", "/s", changed_case<python_case::fold>},
    {"ljust", "/s width fill?", pad<'<'>},
    {"rjust", "/s width fill?", pad<'>'>},
    {"center", "/s width fill?", pad<'c'>},
    {"zfill", "/s width", zfill},
    {"expandtabs", "s tabsize?", expandtabs},
    {"format", "s *", [](native_call& c) { return c.run.make(format_braces(c.run, c.text(0), *c.rest)); }},
    {"format_map", "/s mapping", format_map},
    {"encode", "s encoding? errors?", encode},
    {"translate", "/s table", translate},
    {"isalpha", "/s", is_of<kUniL>},
    {"isdecimal", "/s", is_of<kUniNd>},
    {"isdigit", "/s", [](native_call& c) { return all_chars(c, unicode_is_digit); }},
    {"isnumeric", "/s", [](native_call& c) { return all_chars(c, unicode_is_numeric); }},
    {"isalnum", "/s", [](native_call& c) {
        return all_chars(c, [](uint32_t cp) { return (unicode_bits(cp) & kUniL) || unicode_is_numeric(cp); });
    }},
    {"isspace", "/s", [](native_call& c) { return all_chars(c, is_python_space); }},
    {"isascii", "/s", [](native_call& c) { return all_chars(c, [](uint32_t cp) { return cp < 0x80; }, true); }},
    {"isprintable", "/s", [](native_call& c) { return all_chars(c, is_python_printable, true); }},
    {"isupper", "/s", is_case<true>},
    {"islower", "/s", is_case<false>},
    {"istitle", "/s", istitle},
    {"isidentifier", "/s", isidentifier},
};
// clang-format on

}  // namespace
}  // namespace string_functions

const std::span<const native_function> kTextFilters = string_functions::kFilters;
const std::span<const native_function> kStringMethods = string_functions::kMethods;

}  // namespace duet
