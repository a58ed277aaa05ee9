// models/template_methods.cpp: the methods of strings, lists, maps and the other kinds. Those of Python that change a
// list or a map are forbidden, as in the reference's sandbox.
// Source: the documentation of Python 3.11, "Built-in Types".
// Main path: models/template_eval -> [models/template_methods]
#include "template_run.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace duet {
namespace {

const traced_text& self_text(const native_call& c) { return c.self->as_text(); }

// The text of an argument that has to be a string; nullptr after an error.
const traced_text* text_of(native_call& c, int i) {
    if (c[i].is_string()) return &c[i].as_text();
    c.run.fail("argument " + std::to_string(i + 1) + " has to be a string");
    return nullptr;
}

// The same, but none and nothing are nullptr without an error.
const traced_text* optional_text_of(native_call& c, int i) {
    return c.given[i] && !c[i].is_null() ? text_of(c, i) : nullptr;
}

// ---- strings
// ---------------------------------------------------------------------------------------------------------

template <bool kLeft, bool kRight> value string_strip(native_call& c) {
    const traced_text* chars = optional_text_of(c, 0);
    return c.run.make(strip_text(self_text(c), chars, kLeft, kRight));
}

template <python_case kCase> value string_case(native_call& c) {
    return c.run.charge(self_text(c).size()) ? c.run.make(change_case(self_text(c), kCase)) : value();
}

// Pieces of the text between separators, at most n_left cuts. From the right: the pieces in reverse.
void split_at(template_run& run, const traced_text& t, std::string_view separator, bool from_right, int64_t n_left,
              std::vector<value>* out) {
    size_t begin = 0, end = t.size();
    if (from_right) {
        for (size_t found; n_left != 0 && end >= separator.size() && !run.failed() &&
                           (found = t.bytes.rfind(separator, end - separator.size())) != std::string::npos;
             n_left--) {
            out->push_back(run.make(t.slice(found + separator.size(), end - found - separator.size())));
            end = found;
        }
    } else {
        const text_searcher searcher(separator);
        for (size_t found; n_left != 0 && !run.failed() && (found = searcher.find(t.bytes, begin)) != std::string::npos;
             n_left--) {
            out->push_back(run.make(t.slice(begin, found - begin)));
            begin = found + separator.size();
        }
    }
    out->push_back(run.make(t.slice(begin, end - begin)));
}

// Where the word that ends at end begins.
size_t word_begin(std::string_view s, size_t end) {
    int n_bytes;
    while (end > 0) {
        size_t before = end - 1;
        while (before > 0 && ((uint8_t)s[before] & 0xc0) == 0x80) before--;
        if (is_python_space(utf8_decode(s, before, &n_bytes))) break;
        end = before;
    }
    return end;
}

void split_blanks(template_run& run, const traced_text& t, bool from_right, int64_t n_left, std::vector<value>* out) {
    const traced_text rest = strip_text(t, nullptr, !from_right, from_right);
    const std::string_view s = rest.bytes;
    size_t begin = 0, end = s.size();
    int n_bytes;
    for (; begin < end && !run.failed(); n_left--) {
        if (n_left == 0) {
            out->push_back(run.make(rest.slice(begin, end - begin)));
            return;
        }
        if (from_right) {
            const size_t first = word_begin(s, end);
            out->push_back(run.make(rest.slice(first, end - first)));
            end = stripped_end(s.substr(0, first));
        } else {
            size_t at = begin;
            while (at < end && !is_python_space(utf8_decode(s, at, &n_bytes))) at += (size_t)n_bytes;
            out->push_back(run.make(rest.slice(begin, at - begin)));
            begin = at + stripped_begin(s.substr(at));
        }
    }
}

template <bool kFromRight> value string_split(native_call& c) {
    const traced_text* separator = optional_text_of(c, 0);
    const int64_t n_max = integer_of(c, 1, -1);
    if (c.run.failed()) return {};
    if (separator && separator->bytes.empty()) return c.run.fail("empty separator");
    std::vector<value> items;
    if (separator && kFromRight && !c.run.charge(separator->size() / 64 * self_text(c).size())) return {};
    if (separator) split_at(c.run, self_text(c), separator->bytes, kFromRight, n_max, &items);
    else split_blanks(c.run, self_text(c), kFromRight, n_max, &items);
    if (kFromRight) std::reverse(items.begin(), items.end());
    return c.run.make_list(std::move(items));
}

value string_splitlines(native_call& c) {
    const bool keeps_ends = c.given[0] && c.run.is_true(c[0]);
    std::vector<size_t> end_sizes;
    std::vector<value> items;
    if (!c.run.has_room(self_text(c).size() * 8)) return {};
    for (const auto& [begin, n_bytes] : split_lines(self_text(c).bytes, &end_sizes)) {
        items.push_back(c.run.make(self_text(c).slice(begin, n_bytes + (keeps_ends ? end_sizes[items.size()] : 0))));
        if (c.run.failed()) break;
    }
    return c.run.make_list(std::move(items));
}

template <bool kLast> value string_partition(native_call& c) {
    const traced_text *separator = text_of(c, 0), &t = self_text(c);
    if (!separator) return {};
    if (separator->bytes.empty()) return c.run.fail("empty separator");
    if (!c.run.charge(separator->size() / 64 * t.size())) return {};
    const size_t found = kLast ? t.bytes.rfind(separator->bytes) : t.bytes.find(separator->bytes);
    const value whole = c.run.make(t), nothing = c.run.make(t.slice(0, 0));
    if (found == std::string::npos)
        return kLast ? c.run.make_tuple({nothing, nothing, whole}) : c.run.make_tuple({whole, nothing, nothing});
    return c.run.make_tuple({c.run.make(t.slice(0, found)), c.run.make(t.slice(found, separator->size())),
                             c.run.make(t.slice(found + separator->size()))});
}

// The part of the text that the arguments i and i + 1 (start and end, in characters) name. false: nothing, or an error.
bool part_of(native_call& c, int i, size_t* begin, size_t* end, int64_t* first_char) {
    const std::string_view s = self_text(c).bytes;
    *begin = 0, *end = s.size(), *first_char = 0;
    if (!c.given[i] && !c.given[i + 1]) return true;
    int64_t at[3];
    const int64_t n_chars = c.run.length(*c.self);
    if (c[i].is_int() && c[i].as_int() > n_chars) return false;
    if (!c.run.to_slice(c[i], c[i + 1], {}, n_chars, at))
        return c.run.fail("slice indices must be integers or None"), false;
    *first_char = at[0];
    *begin = char_offset(s, (size_t)at[0]);
    *end = *begin + char_offset(s.substr(*begin), (size_t)at[2]);
    return true;
}

enum class search { find, index, count };
template <search kWhat, bool kLast> value string_search(native_call& c) {
    const traced_text* needle = text_of(c, 0);
    size_t begin, end;
    int64_t first_char;
    const bool has_part = needle && part_of(c, 1, &begin, &end, &first_char);
    if (c.run.failed()) return {};
    size_t found = std::string_view::npos;
    if (has_part) {
        const std::string_view s = std::string_view(self_text(c).bytes).substr(begin, end - begin);
        if (!c.run.charge(s.size() / 64 + (kLast ? needle->size() / 64 * s.size() : 0))) return {};
        const text_searcher searcher(needle->bytes);
        if (kWhat == search::count) {
            int64_t n = needle->bytes.empty() ? (int64_t)count_chars(s) + 1 : 0;
            for (size_t at = 0; !needle->bytes.empty() && (at = searcher.find(s, at)) != s.npos; at += needle->size())
                n++;
            return value::of_int(n);
        }
        found = kLast ? s.rfind(needle->bytes) : searcher.find(s, 0);
        if (found != s.npos) return value::of_int(first_char + (int64_t)count_chars(s.substr(0, found)));
    }
    if (kWhat == search::count) return value::of_int(0);
    return kWhat == search::index ? c.run.fail("substring not found") : value::of_int(-1);
}

template <bool kEnd> value string_starts(native_call& c) {
    size_t begin, end;
    int64_t first_char;
    if (!part_of(c, 1, &begin, &end, &first_char)) return value::of_bool(false);
    const std::string_view s = std::string_view(self_text(c).bytes).substr(begin, end - begin);
    std::vector<value> wanted = {c[0]};
    if (c[0].is(value_kind::tuple)) wanted = c[0].items();
    for (const value& w : wanted) {
        if (!w.is_string()) return c.run.fail("want a string or a tuple of strings");
        if (kEnd ? s.ends_with(w.as_string()) : s.starts_with(w.as_string())) return value::of_bool(true);
    }
    return value::of_bool(false);
}

template <bool kEnd> value string_remove(native_call& c) {
    const traced_text *affix = text_of(c, 0), &t = self_text(c);
    if (!affix) return {};
    const bool has = kEnd ? t.bytes.ends_with(affix->bytes) : t.bytes.starts_with(affix->bytes);
    return c.run.make(!has ? t : t.slice(kEnd ? 0 : affix->size(), t.size() - affix->size()));
}

value string_replace(native_call& c) {
    const traced_text *from = text_of(c, 0), *to = text_of(c, 1);
    const int64_t n_max = integer_of(c, 2, -1);
    return c.run.failed() ? value() : replace_checked(c.run, self_text(c), *from, *to, n_max);
}

value string_join(native_call& c) { return join_values(c.run, c[0], self_text(c), {}, true); }

// ljust, rjust, center
template <char kWhere> value string_pad(native_call& c) {
    const int64_t width = integer_of(c, 0, 0), n = c.run.length(*c.self);
    const traced_text* fill = optional_text_of(c, 1);
    if (c.run.failed()) return {};
    if (fill && count_chars(fill->bytes) != 1)
        return c.run.fail("the fill character must be exactly one character long");
    return pad_checked(c.run, self_text(c), width, n, kWhere, fill ? fill->bytes : " ");
}

value string_zfill(native_call& c) {
    const traced_text& t = self_text(c);
    const int64_t width = integer_of(c, 0, 0), n = c.run.length(*c.self);
    const size_t n_sign = !t.bytes.empty() && (t.bytes[0] == '-' || t.bytes[0] == '+');
    const value digits = pad_checked(c.run, t.slice(n_sign), std::max<int64_t>(width, 0) - (int64_t)n_sign,
                                     n - (int64_t)n_sign, 'r', "0");
    if (c.run.failed()) return {};
    traced_text out = t.slice(0, n_sign);
    out.append(digits.as_text());
    return c.run.make(std::move(out));
}

value string_expandtabs(native_call& c) {
    const traced_text& t = self_text(c);
    const int64_t size = std::max<int64_t>(integer_of(c, 0, 8), 0);
    traced_text out;
    out.is_markup = t.is_markup;
    int64_t column = 0;
    for (size_t i = 0; i < t.size() && !c.run.failed(); i++) {
        if (t.bytes[i] != '\t') {
            out.append(t, i, 1);
            if (((uint8_t)t.bytes[i] & 0xc0) != 0x80)
                column = t.bytes[i] == '\n' || t.bytes[i] == '\r' ? 0 : column + 1;
            continue;
        }
        const int64_t n = size > 0 ? size - column % size : 0;
        if (!c.run.has_room(out.size() + (size_t)n)) return {};
        out.append(std::string((size_t)n, ' '), t.is_input_at(i));
        column += n;
    }
    return c.run.make(std::move(out));
}

value string_format(native_call& c) { return c.run.make(format_braces(c.run, self_text(c), *c.rest)); }

value string_format_map(native_call& c) {
    call_arguments arguments;
    if (!c[0].is_map()) return c.run.fail("want a mapping");
    for (const value_member& m : c[0].members())
        if (m.key.is_string()) arguments.named.emplace_back(std::string(m.key.as_string()), m.val);
    return c.run.make(format_braces(c.run, self_text(c), arguments));
}

value string_encode(native_call& c) {
    for (int i = 0; i < 2; i++)
        if (c.given[i] && !c[i].is_string()) return c.run.fail("want the name of an encoding");
    if (c.given[0] && c[0].as_string() != "utf-8" && c[0].as_string() != "utf8" && c[0].as_string() != "UTF-8")
        return c.run.fail("only utf-8 is supported", DUET_ERR_UNSUPPORTED);
    auto* bytes = new_object<object_payload>(kBytesObject);
    bytes->slots.push_back(*c.self);
    return c.run.make_object(bytes);
}

value string_translate(native_call& c) {
    const traced_text& t = self_text(c);
    if (!c[0].is_map()) return c.run.fail("want a mapping");
    traced_text out;
    int n_bytes;
    for (size_t i = 0; i < t.size() && c.run.charge(1); i += (size_t)n_bytes) {
        const value* to = c[0].find(value::of_int(utf8_decode(t.bytes, i, &n_bytes)));
        std::string bytes;
        if (!to) out.append(t, i, (size_t)n_bytes);
        else if (to->is_string() && c.run.has_room(out.size() + to->as_string().size())) out.append(to->as_text());
        else if (to->is_int() && to->as_int() >= 0 && to->as_int() < 0xd800)
            utf8_append(&bytes, (uint32_t)to->as_int()), out.append(bytes, t.is_input_at(i));
        else if (!to->is_null()) return c.run.fail("want characters to translate to");
    }
    return c.run.make(std::move(out));
}

// ---- what a string is made of ----

template <class Test> value all_chars(native_call& c, Test test, bool of_empty = false) {
    const std::string_view s = self_text(c).bytes;
    int n_bytes;
    if (!c.run.charge(s.size() / 8)) return {};
    for (size_t i = 0; i < s.size(); i += (size_t)n_bytes)
        if (!test(utf8_decode(s, i, &n_bytes))) return value::of_bool(false);
    return value::of_bool(of_empty || !s.empty());
}

constexpr uint32_t kUpperBits = kUniLu | kUniLt;

template <bool kUpper> value string_is_case(native_call& c) {
    bool has_cased = false;
    const value none_wrong = all_chars(c, [&](uint32_t cp) {
        const uint32_t bits = unicode_bits(cp);
        has_cased |= (bits & (kUpper ? kUniLu : kUniLl)) != 0;
        return !(bits & (kUpper ? (uint32_t)kUniLl | kUniLt : kUpperBits));
    });
    return value::of_bool(none_wrong.is_bool() && none_wrong.as_bool() && has_cased);
}

value string_istitle(native_call& c) {
    bool is_in_word = false, has_cased = false;
    const value none_wrong = all_chars(c, [&](uint32_t cp) {
        const bool is_upper = unicode_bits(cp) & kUpperBits, is_lower = unicode_bits(cp) & kUniLl;
        const bool is_good = is_upper ? !is_in_word : !is_lower || is_in_word;
        is_in_word = is_upper || is_lower;
        has_cased |= is_in_word;
        return is_good;
    });
    return value::of_bool(none_wrong.is_bool() && none_wrong.as_bool() && has_cased);
}

value string_isidentifier(native_call& c) {
    bool is_first = true;
    return all_chars(c, [&](uint32_t cp) {
        const bool may_begin = cp == '_' || (unicode_bits(cp) & kUniL);
        const bool is_good = may_begin || (!is_first && (unicode_bits(cp) & (kUniNd | kUniMn | kUniPc)));
        is_first = false;
        return is_good;
    });
}

value string_isalpha(native_call& c) {
    return all_chars(c, [](uint32_t cp) { return (unicode_bits(cp) & kUniL) != 0; });
}
value string_isdecimal(native_call& c) {
    return all_chars(c, [](uint32_t cp) { return (unicode_bits(cp) & kUniNd) != 0; });
}
value string_isdigit(native_call& c) { return all_chars(c, unicode_is_digit); }
value string_isnumeric(native_call& c) { return all_chars(c, unicode_is_numeric); }
value string_isalnum(native_call& c) {
    return all_chars(c, [](uint32_t cp) { return (unicode_bits(cp) & kUniL) || unicode_is_numeric(cp); });
}
value string_isspace(native_call& c) { return all_chars(c, is_python_space); }
value string_isascii(native_call& c) {
    return all_chars(c, [](uint32_t cp) { return cp < 0x80; }, true);
}
value string_isprintable(native_call& c) { return all_chars(c, is_python_printable, true); }

constexpr native_function kStringMethods[] = {
    {"strip", "/chars?", string_strip<true, true>},
    {"lstrip", "/chars?", string_strip<true, false>},
    {"rstrip", "/chars?", string_strip<false, true>},
    {"split", "sep? maxsplit?", string_split<false>},
    {"rsplit", "sep? maxsplit?", string_split<true>},
    {"splitlines", "keepends?", string_splitlines},
    {"partition", "/sep", string_partition<false>},
    {"rpartition", "/sep", string_partition<true>},
    {"startswith", "/prefix start? end?", string_starts<false>},
    {"endswith", "/suffix start? end?", string_starts<true>},
    {"removeprefix", "/prefix", string_remove<false>},
    {"removesuffix", "/suffix", string_remove<true>},
    {"replace", "/old new count?", string_replace},
    {"join", "/iterable", string_join},
    {"find", "/sub start? end?", string_search<search::find, false>},
    {"rfind", "/sub start? end?", string_search<search::find, true>},
    {"index", "/sub start? end?", string_search<search::index, false>},
    {"rindex", "/sub start? end?", string_search<search::index, true>},
    {"count", "/sub start? end?", string_search<search::count, false>},
    {"upper", "", string_case<python_case::upper>},
    {"lower", "", string_case<python_case::lower>},
    {"title", "", string_case<python_case::title>},
    {"capitalize", "", string_case<python_case::capitalize>},
    {"swapcase", "", string_case<python_case::swap>},
    {"casefold", "", string_case<python_case::fold>},
    {"ljust", "/width fill?", string_pad<'l'>},
    {"rjust", "/width fill?", string_pad<'r'>},
    {"center", "/width fill?", string_pad<'c'>},
    {"zfill", "/width", string_zfill},
    {"expandtabs", "tabsize?", string_expandtabs},
    {"format", "*", string_format},
    {"format_map", "/mapping", string_format_map},
    {"encode", "encoding? errors?", string_encode},
    {"translate", "/table", string_translate},
    {"isalpha", "", string_isalpha},
    {"isdecimal", "", string_isdecimal},
    {"isdigit", "", string_isdigit},
    {"isnumeric", "", string_isnumeric},
    {"isalnum", "", string_isalnum},
    {"isspace", "", string_isspace},
    {"isascii", "", string_isascii},
    {"isprintable", "", string_isprintable},
    {"isupper", "", string_is_case<true>},
    {"islower", "", string_is_case<false>},
    {"istitle", "", string_istitle},
    {"isidentifier", "", string_isidentifier},
};

// ---- lists and maps
// --------------------------------------------------------------------------------------------------

value list_count(native_call& c) {
    int64_t n = 0;
    for (const value& item : c.self->items()) n += item.is_same(c[0]) || c.run.equal(item, c[0]);
    return value::of_int(n);
}

value list_index(native_call& c) {
    int64_t at[3];
    if (!c.run.to_slice(c[1], c[2], {}, (int64_t)c.self->items().size(), at))
        return c.run.fail("slice indices must be integers");
    for (int64_t i = at[0]; i < at[0] + at[2]; i++)
        if (const value& item = c.self->items()[(size_t)i]; item.is_same(c[0]) || c.run.equal(item, c[0]))
            return value::of_int(i);
    return c.run.fail("the value is not in the list");
}

value list_copy(native_call& c) { return c.run.make_list(c.self->items()); }

value map_get(native_call& c) {
    if (!c.run.is_hashable(c[0])) return c.run.fail("unhashable type: this cannot be a key");
    const value* found = c.self->find(c[0]);
    return found ? *found : c[1];
}

template <char kPart> value map_view(native_call& c) {
    auto* view = new_object<view_object>(kViewObject);
    view->part = kPart;
    view->slots.push_back(*c.self);
    return c.run.make_object(view);
}

value map_copy(native_call& c) { return c.run.make_map(c.self->members()); }

constexpr native_function kListMethods[] = {
    {"index", "/value start? stop?", list_index},
    {"count", "/value", list_count},
    {"copy", "", list_copy},
};
constexpr native_function kMapMethods[] = {
    {"get", "/key default?", map_get}, {"items", "", map_view<'i'>}, {"keys", "", map_view<'k'>},
    {"values", "", map_view<'v'>},     {"copy", "", map_copy},
};

// ---- numbers and objects
// ---------------------------------------------------------------------------------------------

value number_itself(native_call& c) { return c.self->is_bool() ? value::of_int(c.self->as_bool()) : *c.self; }

value number_is_integer(native_call& c) {
    return value::of_bool(c.self->as_double() == std::floor(c.self->as_double()) && std::isfinite(c.self->as_double()));
}

template <bool kOnes> value integer_bits(native_call& c) {
    __int128 i = 0;
    if (!to_int128(*c.self, &i)) return c.run.fail("integer overflow", DUET_ERR_UNSUPPORTED);
    int64_t n = 0;
    for (unsigned __int128 rest = magnitude(i); rest > 0; rest /= 2) n += kOnes ? (int64_t)(rest & 1) : 1;
    return value::of_int(n);
}

value cycler_next(native_call& c) {
    auto* cycler = (counter_object*)c.self->as_object();
    return cycler->slots[cycler->at++ % cycler->slots.size()];
}

value cycler_reset(native_call& c) {
    ((counter_object*)c.self->as_object())->at = 0;
    return {};
}

value loop_cycle(native_call& c) {
    if (c.rest->values.empty()) return c.run.fail("no items for cycling given");
    return c.rest->values[(size_t)std::max<int64_t>(((const loop_object*)c.self->as_object())->index0, 0) %
                          c.rest->values.size()];
}

value loop_changed(native_call& c) {
    auto* loop = (loop_object*)c.self->as_object();
    const value now = c.run.make_tuple(c.rest->values);
    if (loop->has_changed && c.run.equal(loop->slots[loop_object::kChanged], now)) return value::of_bool(false);
    loop->has_changed = true;
    loop->slots[loop_object::kChanged] = now;
    return value::of_bool(true);
}

value bytes_decode(native_call& c) { return c.self->as_object()->slots[0]; }

constexpr native_function kIntegerMethods[] = {
    {"bit_length", "", integer_bits<false>},
    {"bit_count", "", integer_bits<true>},
    {"conjugate", "", number_itself},
};
constexpr native_function kRealMethods[] = {{"is_integer", "", number_is_integer}, {"conjugate", "", number_itself}};
constexpr native_function kCyclerMethods[] = {{"next", "", cycler_next}, {"reset", "", cycler_reset}};
constexpr native_function kLoopMethods[] = {{"cycle", "*", loop_cycle}, {"changed", "*", loop_changed}};
constexpr native_function kBytesMethods[] = {{"decode", "encoding? errors?", bytes_decode}};

std::span<const native_function> methods_of(const value& v) {
    switch (v.kind()) {
    case value_kind::string: return kStringMethods;
    case value_kind::list: return kListMethods;
    case value_kind::tuple: return std::span(kListMethods).first(2);
    case value_kind::map: return kMapMethods;
    case value_kind::boolean:
    case value_kind::integer:
    case value_kind::big_integer: return kIntegerMethods;
    case value_kind::real: return kRealMethods;
    case value_kind::object: break;
    default: return {};
    }
    switch (v.as_object()->type) {
    case kCyclerObject: return kCyclerMethods;
    case kLoopObject: return kLoopMethods;
    case kBytesObject: return kBytesMethods;
    default: return {};
    }
}

}  // namespace

const native_function* find_method(const value& self, std::string_view name) {
    for (const native_function& method : methods_of(self))
        if (method.name == name) return &method;
    return nullptr;
}

bool is_forbidden_method(const value& self, std::string_view name) {
    static constexpr std::string_view kOfLists[] = {"append", "clear",  "extend",  "insert",
                                                    "pop",    "remove", "reverse", "sort"};
    static constexpr std::string_view kOfMaps[] = {"clear", "pop", "popitem", "setdefault", "update", "fromkeys"};
    if (self.is_list()) return std::find(std::begin(kOfLists), std::end(kOfLists), name) != std::end(kOfLists);
    return self.is_map() && std::find(std::begin(kOfMaps), std::end(kOfMaps), name) != std::end(kOfMaps);
}

}  // namespace duet
