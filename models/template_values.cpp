// models/template_values.cpp: what Python does with values: truth, printing, order, iteration, arithmetic.
// Source: the documentation of Python 3.11, "Built-in Types" and "Expressions".
// Main path: models/template_eval -> [models/template_values]
#include "template_run.h"

#include <algorithm>
#include <cmath>

namespace duet {

// ---- truth, length, order ----

bool template_run::is_true(const value& v) {
    if (v.is_numeric()) return v.as_double() != 0;
    if (v.is_string()) return !v.as_string().empty();
    return !v.is_null() && length(v, false) != 0;  // of what is undefined it is 0
}

int64_t template_run::length(const value& v, bool may_fail) {
    if (v.is(value_kind::undefined)) return 0;
    if (v.is_string()) return charge(v.as_string().size() / 64) ? (int64_t)count_chars(v.as_string()) : 0;
    if (v.is_sequence()) return (int64_t)v.items().size();
    if (v.is_map()) return (int64_t)v.members().size();
    if (v.is(value_kind::object)) {
        template_object* o = object_of(v);
        if (o->type == kRangeObject) return o->range.size;
        if (o->type == kViewObject) return (int64_t)o->slots[0].members().size();
        if (o->type == kBytesObject) return (int64_t)o->slots[0].as_string().size();
        if (o->type == kLoopObject) return loop_length(o);
    }
    if (may_fail) fail("this has no length");
    return -1;
}

bool template_run::is_hashable(const value& v, int level) {
    if (v.is_list() || v.is_map() || level > 16) return false;
    return !v.is(value_kind::tuple) || std::all_of(v.items().begin(), v.items().end(),
                                                   [&](const value& item) { return is_hashable(item, level + 1); });
}

bool template_run::compare(char op, const value& a, const value& b) {
    switch (op) {
    case kEqual: return equal(a, b);
    case kUnequal: return !equal(a, b);
    case kLess: return less(a, b);
    case kLessEqual: return less(a, b) || equal(a, b);
    case kGreater: return less(b, a);
    case kGreaterEqual: return less(b, a) || equal(a, b);
    case kIn: return contains(b, a);
    default: return !contains(b, a);
    }
}

bool template_run::equal(const value& a, const value& b) {
    if (failed() || (a.is_string() && b.is_string() && !charge(a.as_string().size() / 64))) return false;
    const template_object *x = object_of(a, kRangeObject), *y = object_of(b, kRangeObject);
    if (x && y) {
        const slice_range &r = x->range, &q = y->range;
        return r.size == q.size && (r.size == 0 || (r.first == q.first && (r.size == 1 || r.step == q.step)));
    }
    const bool is_equal = values_equal(a, b, &n_steps);
    if (n_steps == 0) charge(1);
    return is_equal;
}

bool template_run::less(const value& a, const value& b) {
    nesting level(this);
    if (!charge(1)) return false;
    if (a.is_numeric() && b.is_numeric()) {
        __int128 x, y;
        return to_int128(a, &x) && to_int128(b, &y) ? x < y : a.as_double() < b.as_double();
    }
    if (a.is_string() && b.is_string()) return charge(a.as_string().size() / 64) && a.as_string() < b.as_string();
    if (a.is_sequence() && a.kind() == b.kind()) {
        for (size_t i = 0; i < a.items().size() && i < b.items().size(); i++)
            if (!equal(a.items()[i], b.items()[i])) return less(a.items()[i], b.items()[i]);
        return a.items().size() < b.items().size();
    }
    refuse(a.is(value_kind::undefined) ? a : b, "these values have no order");
    return false;
}

bool template_run::contains(const value& container, const value& item) {
    if (failed()) return false;
    if (container.is_string()) {
        if (!item.is_string()) return reject("want a string to search for in a string");
        return charge_search(container.as_string(), item.as_string()) &&
               container.as_string().find(item.as_string()) != std::string_view::npos;
    }
    const template_object* view = object_of(container, kViewObject);
    const bool is_keys = view && view->how == 'k';
    if (container.is_map() || is_keys) {
        if (!is_hashable(item)) return reject("unhashable type: this cannot be a key");
        return (is_keys ? view->slots[0] : container).find(item) != nullptr;
    }
    if (!is_iterable(container)) return reject("want something to search in");
    size_t at = 0;
    for (value next; next_item(container, &at, &next);)
        if (next.is_same(item) || equal(next, item)) return true;
    return false;
}

// ---- printing ----

traced_text template_run::to_text(const value& v) {
    if (v.is_string()) return v.as_text();
    traced_text out;
    print(v, &out);
    return out;
}

void template_run::print(const value& v, traced_text* out) {
    switch (v.kind()) {
    case value_kind::null: return out->append("None", false);
    case value_kind::boolean: return out->append(v.as_bool() ? "True" : "False", false);
    case value_kind::integer: return out->append(std::to_string(v.as_int()), false);
    case value_kind::big_integer: return out->append(v.as_string(), false);
    case value_kind::real: return out->append(double_repr(v.as_double()), false);
    case value_kind::string: return out->append(v.as_text());
    case value_kind::undefined: return;
    default: print_repr(v, out);
    }
}

// The repr of bytes.
static std::string bytes_repr(std::string_view bytes) {
    static constexpr std::string_view kHex = "0123456789abcdef", kNames = "'\\nrt", kMeanings = "'\\\n\r\t";
    std::string out = "b'";
    for (const char c : bytes) {
        const uint8_t b = (uint8_t)c;
        if (const size_t at = kMeanings.find(c); at != kMeanings.npos) out += {'\\', kNames[at]};
        else if (b < 0x20 || b >= 0x7f) out += {'\\', 'x', kHex[b >> 4], kHex[b & 15]};
        else out += c;
    }
    return out + "'";
}

// The brackets and commas of a list or map count as input, for they come from outside as its strings do.
void template_run::print_repr(const value& v, traced_text* out, int level) {
    if (level > 200) return (void)fail("nested too deeply to print", DUET_ERR_FULL);
    if (!charge(1) || !has_room(out->size() + (v.is_string() ? v.as_string().size() : 0))) return;
    bool is_first = true;
    auto print_part = [&](const value& part, const value* after_colon = nullptr) {
        if (!std::exchange(is_first, false)) out->append(", ", true);
        print_repr(part, out, level + 1);
        if (!after_colon) return;
        out->append(": ", true);
        print_repr(*after_colon, out, level + 1);
    };
    auto print_items = [&](std::string_view open, std::string_view close) {
        out->append(open, true);
        size_t at = 0;
        for (value item; !failed() && next_item(v, &at, &item);) print_part(item);
        out->append(close, true);
    };
    switch (v.kind()) {
    case value_kind::string:
        if (v.as_text().is_markup) out->append("Markup(", true);
        append_string_repr(v.as_text(), out);
        return out->append(v.as_text().is_markup ? ")" : "", true);
    case value_kind::list: return print_items("[", "]");
    case value_kind::tuple: return print_items("(", v.items().size() == 1 ? ",)" : ")");
    case value_kind::undefined: return out->append("Undefined", false);
    case value_kind::map:
        out->append("{", true);
        for (size_t i = 0; i < v.members().size() && !failed(); i++)
            print_part(v.members()[i].key, &v.members()[i].val);
        return out->append("}", true);
    case value_kind::object: break;
    default: return print(v, out);
    }
    template_object* o = object_of(v);
    switch (o->type) {
    case kRangeObject:
        out->append("range(" + std::to_string(o->range.first) + ", " + std::to_string(o->stop), false);
        return out->append(o->range.step != 1 ? ", " + std::to_string(o->range.step) + ")" : ")", false);
    case kViewObject:
        return print_items(o->how == 'k' ? "dict_keys([" : o->how == 'v' ? "dict_values([" : "dict_items([", "])");
    case kNamespaceObject:
        out->append("<Namespace {", true);
        for (size_t i = 0; i < o->slots.size() && !failed(); i++) print_part(make(o->names[i]), &o->slots[i]);
        return out->append("}>", true);
    case kLoopObject:
        return out->append("<LoopContext " + std::to_string(o->index0 + 1) + "/" + std::to_string(loop_length(o)) + ">",
                           false);
    case kMacroObject: return out->append("<Macro '" + tree.names[(size_t)o->node->name] + "'>", false);
    case kBytesObject: return out->append(bytes_repr(o->slots[0].as_string()), true);
    case kGeneratorObject: return out->append("<generator object>", false);
    default: return out->append("<object>", false);
    }
}

// ---- iteration ----

bool template_run::is_indexed(const value& v) {
    return v.is_string() || v.is_sequence() || v.is_map() || v.is(value_kind::undefined) ||
           object_of(v, kRangeObject) || object_of(v, kBytesObject);
}

bool template_run::is_iterable(const value& v) {
    return is_indexed(v) || object_of(v, kViewObject) || object_of(v, kGeneratorObject) || object_of(v, kLoopObject);
}

bool template_run::next_item(const value& source, size_t* at, value* out) {
    if (failed() || source.is(value_kind::undefined)) return false;
    const size_t i = *at;
    if (source.is_string()) {
        if (i >= source.as_string().size()) return false;
        *at += char_bytes(source.as_string(), i);
        traced_text c = source.as_text().slice(i, *at - i);
        c.is_markup = false;
        *out = make(std::move(c));
        return !failed();
    }
    ++*at;
    if (source.is_sequence()) return i < source.items().size() && (*out = source.items()[i], true);
    if (source.is_map()) return i < source.members().size() && (*out = source.members()[i].key, true);
    if (!is_iterable(source)) return reject("this is not iterable");
    template_object* o = object_of(source);
    switch (o->type) {
    case kGeneratorObject: return next_generated(o, out);
    case kLoopObject: return advance(o) && (*out = make_tuple({o->slots[kLoopNow], source}), true);
    case kRangeObject:
        return (int64_t)i < o->range.size && (*out = value::of_int(o->range.first + (int64_t)i * o->range.step), true);
    case kBytesObject: {
        const std::string_view bytes = o->slots[0].as_string();
        return i < bytes.size() && (*out = value::of_int((uint8_t)bytes[i]), true);
    }
    default: {
        const auto& members = o->slots[0].members();
        if (i >= members.size()) return false;
        if (o->how == 'i') *out = make_tuple({members[i].key, members[i].val});
        else *out = o->how == 'k' ? members[i].key : members[i].val;
        return true;
    }
    }
}

bool template_run::next_generated(template_object* g, value* out) {
    nesting level(this);
    for (value item; charge(1) && next_item(g->slots[0], &g->at, &item);) {
        value result = get_path(item, g->slots[1]);
        if (g->how == 'a' && result.is(value_kind::undefined) && g->slots.size() > 2) result = g->slots[2];
        if (g->how == 'f' || g->how == 't') {
            if (!g->function) return reject("no filter or test of that name");
            call_arguments arguments;
            const size_t n_positional = g->slots.size() - g->names.size();
            arguments.values.push_back(std::move(result));
            for (size_t i = 2; i < n_positional; i++) arguments.values.push_back(g->slots[i]);
            for (size_t i = n_positional; i < g->slots.size(); i++)
                arguments.named.emplace_back(g->names[i - n_positional], g->slots[i]);
            result = call_native(*g->function, arguments);
        }
        const bool is_selected = (g->how != 's' && g->how != 't') || is_true(result) == g->wanted;
        if (failed()) return false;
        if (!is_selected) continue;
        *out = g->how == 'a' || g->how == 'f' ? result : item;
        return true;
    }
    return false;
}

bool template_run::collect(const value& source, std::vector<value>* out) {
    if (!failed() && !is_iterable(source)) fail("this is not iterable");
    size_t at = 0;
    const int64_t n = object_of(source, kLoopObject) ? 0 : std::max<int64_t>(length(source, false), 0);
    if (!has_room((size_t)n * sizeof(value))) return false;
    for (value item; next_item(source, &at, &item) && charge(1);) {
        if (out->size() == out->capacity() && !has_room(2 * out->size() * sizeof(value))) break;
        out->push_back(item);
    }
    return !failed();
}

// ---- arithmetic ----

bool template_run::to_index(const value& v, int64_t* out) {
    __int128 i;
    const bool is_index = to_int128(v, &i) && i >= INT64_MIN && i <= INT64_MAX;
    if (is_index) *out = (int64_t)i;
    else refuse(v, "want an integer of 64 bits");
    return is_index;
}

bool template_run::to_slice(const value& start, const value& stop, const value& step, int64_t size, slice_range* out) {
    __int128 parts[3] = {0, 0, 1};
    const value* values[3] = {&start, &stop, &step};
    for (int i = 0; i < 3; i++) {
        if (values[i]->is_null()) continue;
        if (values[i]->is(value_kind::big_integer)) parts[i] = values[i]->as_string()[0] == '-' ? INT64_MIN : INT64_MAX;
        else if (!to_int128(*values[i], &parts[i])) return false;
    }
    if (parts[2] == 0) return reject("slice step cannot be zero");
    const bool is_backward = parts[2] < 0;
    const __int128 lowest = is_backward ? -1 : 0, highest = is_backward ? size - 1 : size;
    auto clamp = [&](const value& v, __int128 i, __int128 otherwise) {
        return v.is_null() ? otherwise : std::clamp(i < 0 ? i + size : i, lowest, highest);
    };
    const __int128 first = clamp(start, parts[0], is_backward ? highest : lowest);
    const __int128 last = clamp(stop, parts[1], is_backward ? lowest : highest);
    const __int128 span = is_backward ? first - last : last - first, stride = is_backward ? -parts[2] : parts[2];
    const __int128 n = span > 0 ? (span + stride - 1) / stride : 0;
    *out = {(int64_t)first, n > 1 ? (int64_t)parts[2] : 1, (int64_t)n};
    return true;
}

static bool multiply(__int128 a, __int128 b, __int128* out) {
    const __int128 size_a = a < 0 ? -a : a, size_b = b < 0 ? -b : b, most = ~((__int128)1 << 127);
    if (size_a != 0 && size_b > most / size_a) return false;
    *out = a * b;
    return true;
}

static value divide_integers(template_run& run, char op, __int128 a, __int128 b) {
    if (b == 0) return run.fail("division by zero");
    if (op == '/') return value::of_double((double)a / (double)b);
    __int128 quotient = a / b, rest = a % b;
    if (rest != 0 && (rest < 0) != (b < 0)) quotient--, rest += b;
    return of_int128(op == '%' ? rest : quotient);
}

static value power_of_integers(template_run& run, __int128 base, __int128 exponent) {
    if (exponent < 0) {
        if (base == 0) return run.fail("division by zero: 0 to a negative power");
        return value::of_double(std::pow((double)base, (double)exponent));
    }
    __int128 result = 1;
    while (exponent > 0) {
        if (exponent % 2 == 1 && !multiply(result, base, &result)) return run.overflow();
        exponent /= 2;
        if (exponent > 0 && !multiply(base, base, &base)) return run.overflow();
    }
    return of_int128(result);
}

static value compute_real(template_run& run, char op, double a, double b) {
    if (b == 0 && (op == '/' || op == '%' || op == 'D')) return run.fail("division by zero");
    switch (op) {
    case '+': return value::of_double(a + b);
    case '-': return value::of_double(a - b);
    case '*': return value::of_double(a * b);
    case '/': return value::of_double(a / b);
    case 'P': {
        if (a == 0 && b < 0) return run.fail("division by zero: 0 to a negative power");
        if (a < 0 && b != std::floor(b)) return run.fail("complex numbers are not supported", DUET_ERR_UNSUPPORTED);
        const double d = std::pow(a, b);
        if (std::isinf(d) && !std::isinf(a) && !std::isinf(b)) return run.fail("the result is too large");
        return value::of_double(d);
    }
    default: break;
    }
    double rest = std::fmod(a, b), quotient = (a - rest) / b;
    if (rest != 0 && (rest < 0) != (b < 0)) rest += b, quotient -= 1;
    if (rest == 0) rest = std::copysign(0.0, b);
    if (op == '%') return value::of_double(rest);
    double whole = std::floor(quotient);
    if (quotient - whole > 0.5) whole += 1;
    return value::of_double(quotient == 0 ? std::copysign(0.0, a / b) : whole);
}

static value repeat(template_run& run, const value& sequence, const value& count) {
    int64_t n = 0;
    run.to_index(count, &n);
    const size_t size = sequence.is_string() ? sequence.as_string().size() : sequence.items().size() * sizeof(value);
    n = size == 0 ? 0 : std::max<int64_t>(n, 0);
    if ((uint64_t)n > run.limits.max_memory_bytes || !run.has_room(size * (size_t)n))
        return run.fail("the result is too large", DUET_ERR_FULL);
    if (sequence.is_string()) {
        traced_text out = sequence.as_text().slice(0, 0);
        out.bytes.reserve(size * (size_t)n);
        for (int64_t i = 0; i < n; i++) out.append(sequence.as_text());
        return run.make(std::move(out));
    }
    std::vector<value> items;
    items.reserve(sequence.items().size() * (size_t)n);
    for (int64_t i = 0; i < n; i++) items.insert(items.end(), sequence.items().begin(), sequence.items().end());
    return run.make_sequence(std::move(items), sequence.kind());
}

static value add_sequences(template_run& run, const value& a, const value& b) {
    if (!a.is_string()) {
        if (!run.has_room((a.items().size() + b.items().size()) * sizeof(value))) return {};
        std::vector<value> items = a.items();
        items.insert(items.end(), b.items().begin(), b.items().end());
        return run.make_sequence(std::move(items), a.kind());
    }
    const traced_text &x = a.as_text(), &y = b.as_text();
    if (!run.has_room(x.size() + y.size())) return {};
    traced_text out;
    out.bytes.reserve(x.size() + y.size());
    out.is_markup = x.is_markup || y.is_markup;
    out.append(out.is_markup && !x.is_markup ? escape_html(x) : x);
    out.append(out.is_markup && !y.is_markup ? escape_html(y) : y);
    return run.make(std::move(out));
}

value template_run::arithmetic(char op, const value& a, const value& b) {
    if (op == '%' && a.is_string()) return make(format_percent(*this, a.as_text(), b));
    if (a.is(value_kind::undefined) || b.is(value_kind::undefined))
        return refuse(a.is(value_kind::undefined) ? a : b, "");
    if (op == '*' && (a.is_string() || a.is_sequence()) && b.is_numeric()) return repeat(*this, a, b);
    if (op == '*' && (b.is_string() || b.is_sequence()) && a.is_numeric()) return repeat(*this, b, a);
    if (op == '+' && a.kind() == b.kind() && (a.is_string() || a.is_sequence())) return add_sequences(*this, a, b);
    if (!a.is_numeric() || !b.is_numeric())
        return fail("unsupported operands for " + (op == 'P' ? "**" : op == 'D' ? "//" : std::string(1, op)));
    if (a.is(value_kind::real) || b.is(value_kind::real)) return compute_real(*this, op, a.as_double(), b.as_double());
    __int128 x, y, result = 0;
    if (!to_int128(a, &x) || !to_int128(b, &y)) return overflow();
    if (op == '/' || op == '%' || op == 'D') return divide_integers(*this, op, x, y);
    if (op == 'P') return power_of_integers(*this, x, y);
    const bool is_over = op == '+'   ? __builtin_add_overflow(x, y, &result)
                         : op == '-' ? __builtin_sub_overflow(x, y, &result)
                                     : !multiply(x, y, &result);
    return is_over ? overflow() : of_int128(result);
}

}  // namespace duet
