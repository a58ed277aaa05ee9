// models/template_values.cpp: what Python does with values: truth, printing, order, iteration, arithmetic.
// Source: the documentation of Python 3.11, "Built-in Types" and "Expressions".
// Main path: models/template_eval -> [models/template_values]
#include "template_run.h"

#include <algorithm>
#include <cmath>

namespace duet {

static bool is_object(const value& v, object_type type) {
    return v.is(value_kind::object) && v.as_object()->type == type;
}
static bool is_sequence(const value& v) { return v.is_list() || v.is(value_kind::tuple); }
static bool is_numeric(const value& v) { return v.is_number() || v.is_bool(); }

// ---- truth, length, order
// --------------------------------------------------------------------------------------------

bool template_run::is_true(const value& v) {
    switch (v.kind()) {
    case value_kind::null:
    case value_kind::undefined: return false;
    case value_kind::boolean: return v.as_bool();
    case value_kind::integer: return v.as_int() != 0;
    case value_kind::big_integer: return true;
    case value_kind::real: return v.as_double() != 0;
    case value_kind::string: return !v.as_string().empty();
    default: return length(v, false) != 0;
    }
}

int64_t template_run::length(const value& v, bool may_fail) {
    switch (v.kind()) {
    case value_kind::undefined: return 0;
    case value_kind::string: return charge(v.as_string().size() / 64) ? (int64_t)count_chars(v.as_string()) : 0;
    case value_kind::list:
    case value_kind::tuple: return (int64_t)v.items().size();
    case value_kind::map: return (int64_t)v.members().size();
    default: break;
    }
    if (is_object(v, kRangeObject)) return ((const range_object*)v.as_object())->size;
    if (is_object(v, kViewObject)) return (int64_t)v.as_object()->slots[0].members().size();
    if (is_object(v, kBytesObject)) return (int64_t)v.as_object()->slots[0].as_string().size();
    if (is_object(v, kLoopObject)) return loop_length((loop_object*)v.as_object());
    if (may_fail) fail("this has no length");
    return -1;
}

bool template_run::is_hashable(const value& v, int level) {
    if (v.is_list() || v.is_map() || level > 16) return false;
    if (v.is(value_kind::tuple))
        for (const value& item : v.items())
            if (!is_hashable(item, level + 1)) return false;
    return true;
}

bool template_run::equal(const value& a, const value& b) {
    if (failed()) return false;
    if (a.is_string() && b.is_string() && !charge(a.as_string().size() / 64)) return false;
    if (is_object(a, kRangeObject) && is_object(b, kRangeObject)) {
        const auto *x = (const range_object*)a.as_object(), *y = (const range_object*)b.as_object();
        return x->size == y->size && (x->size == 0 || (x->start == y->start && (x->size == 1 || x->step == y->step)));
    }
    const bool is_equal = values_equal(a, b, &n_steps);
    if (n_steps == 0) charge(1);
    return is_equal;
}

bool template_run::less(const value& a, const value& b) {
    nesting level(this);
    if (!charge(1)) return false;
    if (is_numeric(a) && is_numeric(b)) {
        __int128 x, y;
        if (to_int128(a, &x) && to_int128(b, &y)) return x < y;
        return a.as_double() < b.as_double();
    }
    if (a.is_string() && b.is_string()) return charge(a.as_string().size() / 64) && a.as_string() < b.as_string();
    if (is_sequence(a) && a.kind() == b.kind()) {
        for (size_t i = 0; i < a.items().size() && i < b.items().size(); i++)
            if (!equal(a.items()[i], b.items()[i])) return less(a.items()[i], b.items()[i]);
        return a.items().size() < b.items().size();
    }
    for (const value* v : {&a, &b})
        if (v->is(value_kind::undefined)) fail(std::string(v->as_string()));
    fail("these values have no order");
    return false;
}

bool template_run::contains(const value& container, const value& item) {
    if (failed()) return false;
    if (container.is_string()) {
        if (!item.is_string()) return fail("want a string to search for in a string"), false;
        charge(container.as_string().size() / 16);
        return text_searcher(item.as_string()).find(container.as_string(), 0) != std::string_view::npos;
    }
    const bool is_keys = is_object(container, kViewObject) && ((const view_object*)container.as_object())->part == 'k';
    if (container.is_map() || is_keys) {
        if (!is_hashable(item)) return fail("unhashable type: this cannot be a key"), false;
        return (is_keys ? container.as_object()->slots[0] : container).find(item) != nullptr;
    }
    if (!is_iterable(container)) return fail("want something to search in"), false;
    size_t at = 0;
    for (value next; next_item(container, &at, &next);)
        if (next.is_same(item) || equal(next, item)) return true;
    return false;
}

// ---- printing
// --------------------------------------------------------------------------------------------------------

traced_text template_run::to_text(const value& v) {
    if (v.is_string()) return v.as_text();
    traced_text out;
    print(v, &out);
    return out;
}

void template_run::print(const value& v, traced_text* out) {
    switch (v.kind()) {
    case value_kind::null: out->append("None", false); break;
    case value_kind::boolean: out->append(v.as_bool() ? "True" : "False", false); break;
    case value_kind::integer: out->append(std::to_string(v.as_int()), false); break;
    case value_kind::big_integer: out->append(v.as_string(), false); break;
    case value_kind::real: out->append(double_repr(v.as_double()), false); break;
    case value_kind::string: out->append(v.as_text()); break;
    case value_kind::undefined: break;
    default: print_repr(v, out);
    }
}

// The brackets and commas of a list or map count as input, for they come from outside as its strings do.
void template_run::print_repr(const value& v, traced_text* out, int level) {
    if (level > 200) return (void)fail("nested too deeply to print", DUET_ERR_FULL);
    if (!charge(1) || !has_room(out->size() + (v.is_string() ? v.as_string().size() : 0))) return;
    auto print_items = [&](std::string_view open, std::string_view close) {
        out->append(open, true);
        size_t at = 0;
        bool is_first = true;
        for (value item; !failed() && next_item(v, &at, &item); is_first = false) {
            if (!is_first) out->append(", ", true);
            print_repr(item, out, level + 1);
        }
        out->append(close, true);
    };
    auto print_member = [&](const value& key, const value& val, bool is_first) {
        if (!is_first) out->append(", ", true);
        print_repr(key, out, level + 1);
        out->append(": ", true);
        print_repr(val, out, level + 1);
    };
    switch (v.kind()) {
    case value_kind::string:
        if (v.as_text().is_markup) out->append("Markup(", true);
        append_string_repr(v.as_text(), out);
        if (v.as_text().is_markup) out->append(")", true);
        return;
    case value_kind::list: return print_items("[", "]");
    case value_kind::tuple: return print_items("(", v.items().size() == 1 ? ",)" : ")");
    case value_kind::undefined: return out->append("Undefined", false);
    case value_kind::map:
        out->append("{", true);
        for (size_t i = 0; i < v.members().size() && !failed(); i++)
            print_member(v.members()[i].key, v.members()[i].val, i == 0);
        return out->append("}", true);
    case value_kind::object: break;
    default: return print(v, out);
    }
    const object_payload* o = v.as_object();
    switch (o->type) {
    case kRangeObject: {
        const auto* r = (const range_object*)o;
        out->append("range(" + std::to_string(r->start) + ", " + std::to_string(r->stop), false);
        return out->append(r->step != 1 ? ", " + std::to_string(r->step) + ")" : ")", false);
    }
    case kViewObject: {
        const char part = ((const view_object*)o)->part;
        return print_items(part == 'k' ? "dict_keys([" : part == 'v' ? "dict_values([" : "dict_items([", "])");
    }
    case kNamespaceObject:
        out->append("<Namespace {", true);
        for (size_t i = 0; i < o->slots.size() && !failed(); i++)
            print_member(make(((const namespace_object*)o)->names[i]), o->slots[i], i == 0);
        return out->append("}>", true);
    case kLoopObject: {
        auto* loop = (loop_object*)o;
        return out->append(
            "<LoopContext " + std::to_string(loop->index0 + 1) + "/" + std::to_string(loop_length(loop)) + ">", false);
    }
    case kMacroObject: {
        const int32_t name = ((const macro_object*)o)->node->name;
        return out->append("<Macro '" + (name >= 0 ? tree.names[(size_t)name] : "") + "'>", false);
    }
    case kBytesObject: {
        std::string quoted = "b'";
        for (const char c : o->slots[0].as_string()) {
            static constexpr std::string_view kHex = "0123456789abcdef", kNames = "'\\nrt", kMeanings = "'\\\n\r\t";
            const size_t at = kMeanings.find(c);
            if (at != kMeanings.npos) quoted += {'\\', kNames[at]};
            else if ((uint8_t)c < 0x20 || (uint8_t)c >= 0x7f)
                quoted += {'\\', 'x', kHex[(uint8_t)c >> 4], kHex[(uint8_t)c & 15]};
            else quoted += c;
        }
        return out->append(quoted + "'", true);
    }
    case kGeneratorObject: return out->append("<generator object>", false);
    default: return out->append("<object>", false);
    }
}

// ---- iteration
// -------------------------------------------------------------------------------------------------------

bool template_run::is_iterable(const value& v) {
    switch (v.kind()) {
    case value_kind::string:
    case value_kind::list:
    case value_kind::tuple:
    case value_kind::map:
    case value_kind::undefined: return true;
    case value_kind::object: {
        const int type = v.as_object()->type;
        return type == kRangeObject || type == kViewObject || type == kGeneratorObject || type == kBytesObject ||
               type == kLoopObject;
    }
    default: return false;
    }
}

bool template_run::is_indexed(const value& v) {
    if (!v.is(value_kind::object)) return is_iterable(v);
    return v.as_object()->type == kRangeObject || v.as_object()->type == kBytesObject;
}

bool template_run::next_item(const value& source, size_t* at, value* out) {
    if (failed()) return false;
    const size_t i = *at;
    switch (source.kind()) {
    case value_kind::undefined: return false;
    case value_kind::list:
    case value_kind::tuple:
        if (i >= source.items().size()) return false;
        *out = source.items()[i];
        break;
    case value_kind::map:
        if (i >= source.members().size()) return false;
        *out = source.members()[i].key;
        break;
    case value_kind::string: {
        if (i >= source.as_string().size()) return false;
        const size_t n_bytes = char_bytes(source.as_string(), i);
        traced_text c = source.as_text().slice(i, n_bytes);
        c.is_markup = false;
        *out = make(std::move(c));
        *at += n_bytes;
        return !failed();
    }
    default: {
        if (!source.is(value_kind::object)) return fail("this is not iterable"), false;
        object_payload* o = source.as_object();
        if (o->type == kGeneratorObject) return next_generated((generator_object*)o, out);
        if (o->type == kRangeObject) {
            const auto* r = (const range_object*)o;
            if ((int64_t)i >= r->size) return false;
            *out = value::of_int(r->start + (int64_t)i * r->step);
        } else if (o->type == kViewObject) {
            const auto& members = o->slots[0].members();
            if (i >= members.size()) return false;
            const char part = ((const view_object*)o)->part;
            if (part == 'i') *out = make_tuple({members[i].key, members[i].val});
            else *out = part == 'k' ? members[i].key : members[i].val;
        } else if (o->type == kBytesObject) {
            const std::string_view bytes = o->slots[0].as_string();
            if (i >= bytes.size()) return false;
            *out = value::of_int((uint8_t)bytes[i]);
        } else if (o->type == kLoopObject) {
            auto* loop = (loop_object*)o;
            if (!advance(loop)) return false;
            *out = make_tuple({loop->slots[loop_object::kNow], source});
        } else {
            return fail("this is not iterable"), false;
        }
    }
    }
    ++*at;
    return true;
}

bool template_run::next_generated(generator_object* g, value* out) {
    nesting level(this);
    value item;
    while (charge(1) && next_item(g->slots[0], &g->at, &item)) {
        if (g->how == generator_object::kPlain) return *out = item, true;
        const size_t first = g->how == generator_object::kMapAttribute || g->has_attribute ? 2 : 1;
        if (g->how == generator_object::kMapAttribute) {
            *out = get_path(item, g->slots[1]);
            if (out->is(value_kind::undefined) && g->slots.size() > 2) *out = g->slots[2];
            return !failed();
        }
        call_arguments arguments;
        const size_t n_positional = g->slots.size() - g->names.size();
        if (g->how == generator_object::kMapFilter) arguments.values.push_back(item);
        for (size_t i = first; i < n_positional; i++) arguments.values.push_back(g->slots[i]);
        for (size_t i = 0; i < g->names.size(); i++)
            arguments.named.emplace_back(g->names[i], g->slots[n_positional + i]);
        if (g->i_function < 0 && (g->how == generator_object::kMapFilter || g->has_test))
            return fail("no filter or test of that name"), false;
        if (g->how == generator_object::kMapFilter) {
            *out = call_native(filter_at(g->i_function), nullptr, arguments);
            return !failed();
        }
        const value tested = g->has_attribute ? get_path(item, g->slots[1]) : item;
        const bool is_met = call_test(g->i_function, tested, arguments);
        if (failed()) return false;
        if (is_met == g->wanted) return *out = item, true;
    }
    return false;
}

bool template_run::collect(const value& source, std::vector<value>* out) {
    if (!failed() && !is_iterable(source)) fail("this is not iterable");
    size_t at = 0;
    const int64_t n = source.is(value_kind::object) && source.as_object()->type == kLoopObject
                          ? 0
                          : std::max<int64_t>(length(source, false), 0);
    if (!has_room((size_t)n * sizeof(value))) return false;
    for (value item; next_item(source, &at, &item);) {
        if (!charge(1)) break;
        if (out->size() == out->capacity() && !has_room(2 * out->size() * sizeof(value))) break;
        out->push_back(item);
    }
    return !failed();
}

// ---- arithmetic
// ------------------------------------------------------------------------------------------------------

bool template_run::to_index(const value& v, int64_t* out) {
    __int128 i;
    if (to_int128(v, &i) && i >= INT64_MIN && i <= INT64_MAX) return *out = (int64_t)i, true;
    if (!failed()) fail(v.is(value_kind::undefined) ? std::string(v.as_string()) : "want an integer of 64 bits");
    return false;
}

// The rules of Python's slice.indices. out: first, step, how many. false: not integers, or step is 0 (an error).
bool template_run::to_slice(const value& start, const value& stop, const value& step, int64_t size, int64_t out[3]) {
    __int128 parts[3] = {0, 0, 1};
    const value* values[3] = {&start, &stop, &step};
    for (int i = 0; i < 3; i++) {
        if (values[i]->is_null()) continue;
        if (values[i]->is(value_kind::big_integer)) parts[i] = values[i]->as_string()[0] == '-' ? INT64_MIN : INT64_MAX;
        else if (!to_int128(*values[i], &parts[i])) return false;
    }
    if (parts[2] == 0) return fail("slice step cannot be zero"), false;
    const bool is_backward = parts[2] < 0;
    const __int128 lowest = is_backward ? -1 : 0, highest = is_backward ? size - 1 : size;
    auto clamp = [&](const value& v, __int128 i, __int128 otherwise) {
        if (v.is_null()) return otherwise;
        return std::clamp(i < 0 ? i + size : i, lowest, highest);
    };
    const __int128 first = clamp(start, parts[0], is_backward ? highest : lowest);
    const __int128 last = clamp(stop, parts[1], is_backward ? lowest : highest);
    const __int128 span = is_backward ? first - last : last - first, stride = is_backward ? -parts[2] : parts[2];
    const __int128 n = span > 0 ? (span + stride - 1) / stride : 0;
    out[0] = (int64_t)first;
    out[1] = n > 1 ? (int64_t)parts[2] : 1;
    out[2] = (int64_t)n;
    return true;
}

static bool multiply(__int128 a, __int128 b, __int128* out) {
    const __int128 size_a = a < 0 ? -a : a, size_b = b < 0 ? -b : b;
    const __int128 most = ~((__int128)1 << 127);
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
        if (exponent % 2 == 1 && !multiply(result, base, &result))
            return run.fail("integer overflow", DUET_ERR_UNSUPPORTED);
        exponent /= 2;
        if (exponent > 0 && !multiply(base, base, &base)) return run.fail("integer overflow", DUET_ERR_UNSUPPORTED);
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
    int64_t n;
    if (!run.to_index(count, &n)) return run.undefined("");
    n = std::max<int64_t>(n, 0);
    const size_t size = sequence.is_string() ? sequence.as_string().size() : sequence.items().size() * sizeof(value);
    if (n == 0 || size == 0) n = 0;
    if ((uint64_t)n > run.limits.max_memory_bytes || !run.has_room(size * (size_t)n))
        return run.fail("the result is too large", DUET_ERR_FULL);
    if (sequence.is_string()) {
        traced_text out;
        out.is_markup = sequence.as_text().is_markup;
        out.bytes.reserve(size * (size_t)n);
        for (int64_t i = 0; i < n; i++) out.append(sequence.as_text());
        return run.make(std::move(out));
    }
    std::vector<value> items;
    items.reserve(sequence.items().size() * (size_t)n);
    for (int64_t i = 0; i < n; i++) items.insert(items.end(), sequence.items().begin(), sequence.items().end());
    return sequence.is_list() ? run.make_list(std::move(items)) : run.make_tuple(std::move(items));
}

static value add_sequences(template_run& run, const value& a, const value& b) {
    if (!a.is_string()) {
        if (!run.has_room((a.items().size() + b.items().size()) * sizeof(value))) return run.undefined("");
        std::vector<value> items;
        items.reserve(a.items().size() + b.items().size());
        items = a.items();
        items.insert(items.end(), b.items().begin(), b.items().end());
        return a.is_list() ? run.make_list(std::move(items)) : run.make_tuple(std::move(items));
    }
    const traced_text &x = a.as_text(), &y = b.as_text();
    if (!run.has_room(x.size() + y.size())) return run.undefined("");
    traced_text out;
    out.bytes.reserve(x.size() + y.size());
    out.is_markup = x.is_markup || y.is_markup;
    out.append(out.is_markup && !x.is_markup ? escape_html(x) : x);
    out.append(out.is_markup && !y.is_markup ? escape_html(y) : y);
    return run.make(std::move(out));
}

value template_run::arithmetic(char op, const value& a, const value& b) {
    if (op == '%' && a.is_string()) return make(format_percent(*this, a.as_text(), b));
    for (const value* v : {&a, &b})
        if (v->is(value_kind::undefined)) return fail(std::string(v->as_string()));
    if (op == '*' && (a.is_string() || is_sequence(a)) && is_numeric(b)) return repeat(*this, a, b);
    if (op == '*' && (b.is_string() || is_sequence(b)) && is_numeric(a)) return repeat(*this, b, a);
    if (op == '+' && a.kind() == b.kind() && (a.is_string() || is_sequence(a))) return add_sequences(*this, a, b);
    if (!is_numeric(a) || !is_numeric(b)) {
        const std::string name = op == 'P' ? "**" : op == 'D' ? "//" : std::string(1, op);
        return fail("unsupported operands for " + name);
    }
    if (a.is(value_kind::real) || b.is(value_kind::real)) return compute_real(*this, op, a.as_double(), b.as_double());
    __int128 x, y, result = 0;
    if (!to_int128(a, &x) || !to_int128(b, &y)) return fail("integer overflow", DUET_ERR_UNSUPPORTED);
    if (op == '/' || op == '%' || op == 'D') return divide_integers(*this, op, x, y);
    if (op == 'P') return power_of_integers(*this, x, y);
    const bool is_over = op == '+'   ? __builtin_add_overflow(x, y, &result)
                         : op == '-' ? __builtin_sub_overflow(x, y, &result)
                                     : !multiply(x, y, &result);
    return is_over ? fail("integer overflow", DUET_ERR_UNSUPPORTED) : of_int128(result);
}

}  // namespace duet
