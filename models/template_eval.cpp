// models/template_eval.cpp: expressions, attributes and items, calls.
// What looks up a name on a value follows the sandbox of the reference: methods come before the keys of a map for a.b,
// after them for a['b']; names that begin with two underscores and methods that change a value are never found.
// Main path: models/template_run -> [models/template_eval] -> models/template_values, template_filters,
// template_methods
#include "template_run.h"

#include <algorithm>

namespace duet {

// ---- expressions
// -----------------------------------------------------------------------------------------------------

value template_run::eval(const template_node* n) {
    nesting level(this);
    if (!level.is_good || !charge(1)) return undefined("");
    switch (n->kind) {
    case node_kind::constant: return n->constant;
    case node_kind::name: return lookup(n->name);
    case node_kind::captured: return captured_;
    case node_kind::list:
    case node_kind::tuple: return eval_list(n);
    case node_kind::map: return eval_map(n);
    case node_kind::attribute: return get_attribute(eval(n->kids[0]), n->text());
    case node_kind::item: return eval_item(n);
    case node_kind::slice: return fail("a slice stands where none may stand");
    case node_kind::call: return eval_call(n);
    case node_kind::filter: return eval_filter(n);
    case node_kind::test: return eval_test(n);
    case node_kind::unary: return eval_unary(n);
    case node_kind::binary: {
        const value left = eval(n->kids[0]), right = eval(n->kids[1]);
        line = n->line;
        return failed() ? undefined("") : arithmetic((char)n->op, left, right);
    }
    case node_kind::compare: return eval_compare(n);
    case node_kind::both: {
        const value left = eval(n->kids[0]);
        return is_true(left) ? eval(n->kids[1]) : left;
    }
    case node_kind::either: {
        const value left = eval(n->kids[0]);
        return is_true(left) ? left : eval(n->kids[1]);
    }
    case node_kind::choice:
        if (is_true(eval(n->kids[0]))) return eval(n->kids[1]);
        return n->kids[2] ? eval(n->kids[2])
                          : undefined("the condition of an inline 'if' is false and there is no 'else'");
    case node_kind::concat: return eval_concat(n);
    default: return fail("a statement stands where an expression is wanted");
    }
}

value template_run::eval_list(const template_node* n) {
    std::vector<value> items;
    items.reserve(n->kids.size());
    for (const template_node* kid : n->kids) items.push_back(eval(kid));
    return n->kind == node_kind::list ? make_list(std::move(items)) : make_tuple(std::move(items));
}

value template_run::eval_map(const template_node* n) {
    std::vector<value_member> members;
    for (size_t i = 0; i + 1 < n->kids.size(); i += 2) {
        value key = eval(n->kids[i]);
        members.push_back({std::move(key), eval(n->kids[i + 1])});
    }
    return make_map(std::move(members));
}

// Whether an expression has no variables. The reference computes it when it compiles, and then a slice that cannot be
// taken is undefined instead of an error.
static bool is_foldable(const template_node* n) {
    if (n->kind == node_kind::name || n->kind == node_kind::call || n->kind == node_kind::captured) return false;
    return std::all_of(n->kids.begin(), n->kids.end(),
                       [](const template_node* kid) { return !kid || is_foldable(kid); });
}

static bool is_sliceable(const value& v) {
    return v.is_list() || v.is(value_kind::tuple) || v.is_string() ||
           (v.is(value_kind::object) && v.as_object()->type == kRangeObject);
}

static bool can_slice(const value& object, const value parts[3]) {
    auto is_index = [](const value& v) {
        return v.is_null() || v.is_int() || v.is_bool() || v.is(value_kind::big_integer);
    };
    return is_sliceable(object) && is_index(parts[0]) && is_index(parts[1]) && is_index(parts[2]);
}

value template_run::eval_item(const template_node* n) {
    const value object = eval(n->kids[0]);
    const template_node* subscript = n->kids[1];
    if (subscript->kind != node_kind::slice) {
        const value key = eval(subscript);
        line = n->line;
        return get_item(object, key);
    }
    value parts[3];
    for (int i = 0; i < 3; i++)
        if (subscript->kids[(size_t)i]) parts[i] = eval(subscript->kids[(size_t)i]);
    if (is_foldable(n) && !can_slice(object, parts)) return no_attribute(object, "[:]");
    return get_slice(object, parts[0], parts[1], parts[2]);
}

value template_run::eval_unary(const template_node* n) {
    const value operand = eval(n->kids[0]);
    if (n->op == '!') return value::of_bool(!is_true(operand));
    if (operand.is(value_kind::real))
        return value::of_double(n->op == '-' ? -operand.as_double() : operand.as_double());
    __int128 i;
    if (to_int128(operand, &i)) return of_int128(n->op == '-' ? -i : i);
    if (operand.is(value_kind::undefined)) return fail(std::string(operand.as_string()));
    return fail("want a number after the sign");
}

value template_run::eval_compare(const template_node* n) {
    value left = eval(n->kids[0]);
    for (size_t i = 1; i < n->kids.size() && !failed(); i++) {
        value right = eval(n->kids[i]);
        bool is_met = false;
        line = n->line;
        switch (n->text()[i - 1]) {
        case kEqual: is_met = equal(left, right); break;
        case kUnequal: is_met = !equal(left, right); break;
        case kLess: is_met = less(left, right); break;
        case kLessEqual: is_met = less(left, right) || equal(left, right); break;
        case kGreater: is_met = less(right, left); break;
        case kGreaterEqual: is_met = less(right, left) || equal(left, right); break;
        case kIn: is_met = contains(right, left); break;
        default: is_met = !contains(right, left);
        }
        if (!is_met) return value::of_bool(false);
        left = std::move(right);
    }
    return value::of_bool(true);
}

value template_run::eval_concat(const template_node* n) {
    traced_text out;
    for (const template_node* kid : n->kids) {
        const traced_text part = to_text(eval(kid));
        if (!has_room(out.size() + part.size())) return undefined("");
        out.append(is_autoescape && !part.is_markup ? escape_html(part) : part);
    }
    out.is_markup = is_autoescape;
    return make(std::move(out));
}

// ---- calls
// -----------------------------------------------------------------------------------------------------------

// The arguments of a call; of a filter or test its operand comes first.
void template_run::eval_arguments(const template_node* n, call_arguments* out) {
    const size_t n_positional = n->kids.size() - n->names.size();
    out->values.reserve(n->kids.size());
    for (size_t i = n->kind == node_kind::call ? 1 : 0; i < n_positional; i++) out->values.push_back(eval(n->kids[i]));
    if (n->star) {
        std::vector<value> more;
        collect(eval(n->star), &more);
        for (value& v : more) out->values.push_back(std::move(v));
    }
    for (size_t i = 0; i < n->names.size(); i++)
        out->named.emplace_back(tree.names[(size_t)n->names[i]], eval(n->kids[n_positional + i]));
    if (n->star_star) {
        const value more = eval(n->star_star);
        if (!more.is_map()) fail("want a mapping after '**'");
        else
            for (const value_member& m : more.members())
                if (!m.key.is_string()) fail("want strings as keys after '**'");
                else out->named.emplace_back(std::string(m.key.as_string()), m.val);
    }
    line = n->line;
}

value template_run::eval_call(const template_node* n, const value* caller) {
    const template_node* target = n->kids[0];
    call_arguments arguments;
    if (target->kind == node_kind::attribute && !caller) {  // a method, without an object made of it
        const value object = eval(target->kids[0]);
        if (const native_function* method = find_method(object, target->text())) {
            eval_arguments(n, &arguments);
            return failed() ? undefined("") : call_native(*method, &object, arguments);
        }
        const value function = get_attribute(object, target->text());
        eval_arguments(n, &arguments);
        return call(function, arguments);
    }
    const value function = eval(target);
    eval_arguments(n, &arguments);
    if (caller) arguments.named.emplace_back("caller", *caller);
    return call(function, arguments);
}

value template_run::eval_filter(const template_node* n) {
    call_arguments arguments;
    eval_arguments(n, &arguments);
    if (n->i_function < 0) return fail("no filter named '" + std::string(n->text()) + "'");
    return failed() ? undefined("") : call_native(filter_at(n->i_function), nullptr, arguments);
}

value template_run::eval_test(const template_node* n) {
    call_arguments arguments;
    eval_arguments(n, &arguments);
    if (n->i_function < 0) return fail("no test named '" + std::string(n->text()) + "'");
    return failed() ? undefined("") : call_native(test_at(n->i_function), nullptr, arguments);
}

bool template_run::call_test(int32_t i_test, const value& operand, call_arguments& arguments) {
    if (i_test < 0) return is_true(operand);
    call_arguments all = arguments;
    all.values.insert(all.values.begin(), operand);
    return is_true(call_native(test_at(i_test), nullptr, all));
}

value template_run::call(const value& function, call_arguments& arguments) {
    if (failed()) return undefined("");
    if (function.is(value_kind::undefined)) return fail(std::string(function.as_string()));
    if (function.is(value_kind::object)) {
        const object_payload* object = function.as_object();
        switch (object->type) {
        case kMacroObject: return call_macro(function, arguments);
        case kFunctionObject: return call_native(*((const function_object*)object)->function, nullptr, arguments);
        case kMethodObject:
            return call_native(*((const function_object*)object)->function, &object->slots[0], arguments);
        case kLoopObject: return call_loop(function, arguments);
        case kJoinerObject: {
            const value separator = object->slots[0];
            return ((counter_object*)object)->at++ == 0 ? make("") : separator;
        }
        default: break;
        }
    }
    return fail("this is not callable");
}

value template_run::call_native(const native_function& function, const value* self, call_arguments& arguments) {
    if (!charge(1)) return undefined("");
    native_call c{*this, self, {}};
    std::string_view parameters = function.parameters;
    bool may_name = true;
    if (parameters.starts_with("/")) {
        may_name = false;
        parameters.remove_prefix(1);
    }
    size_t n_named = 0, i = 0;
    bool takes_rest = false;
    for (; !parameters.empty(); i++) {
        const size_t end = std::min(parameters.find(' '), parameters.size());
        std::string_view name = parameters.substr(0, end);
        parameters.remove_prefix(std::min(end + 1, parameters.size()));
        if (name == "*") {
            takes_rest = true;
            c.rest = &arguments;
            if (i > 0)
                arguments.values.erase(arguments.values.begin(),
                                       arguments.values.begin() + (long)std::min(i, arguments.values.size()));
            break;
        }
        const bool is_optional = name.ends_with('?');
        name.remove_suffix(is_optional);
        if (i < arguments.values.size()) {
            c.args[i] = arguments.values[i];
            c.given[i] = true;
        }
        for (auto& [key, v] : arguments.named)
            if (may_name && key == name) {
                if (c.given[i]) return fail(std::string(function.name) + ": got argument '" + key + "' twice");
                c.args[i] = v;
                c.given[i] = true;
                n_named++;
            }
        if (!c.given[i] && !is_optional)
            return fail(std::string(function.name) + ": want an argument '" + std::string(name) + "'");
    }
    if (!takes_rest && (arguments.values.size() > i || arguments.named.size() > n_named))
        return fail(std::string(function.name) + ": got more arguments than it takes, or one of another name");
    return function.run(c);
}

// ---- attributes and items
// --------------------------------------------------------------------------------------------

static std::string type_words(const value& v) {
    static constexpr std::string_view kNames[] = {"None",         "bool object", "int object",  "int object",
                                                  "float object", "str object",  "list object", "dict object",
                                                  "tuple object", "undefined",   "object"};
    return std::string(kNames[(size_t)v.kind()]);
}

value template_run::no_attribute(const value& object, std::string_view name) {
    return undefined("'" + type_words(object) + "' has no attribute '" + std::string(name) + "'");
}

value template_run::native_method(const value& self, const native_function* method) {
    auto* object = new_object<function_object>(kMethodObject);
    object->function = method;
    object->slots.push_back(self);
    return make_object(object);
}

value template_run::get_attribute(const value& object, std::string_view name) {
    if (object.is(value_kind::undefined)) return failed() ? object : fail(std::string(object.as_string()));
    if (object.is(value_kind::object)) {
        value found = object_attribute(object, name);
        if (!found.is(value_kind::undefined)) return found;
    }
    if (const native_function* method = find_method(object, name)) return native_method(object, method);
    if (is_forbidden_method(object, name))
        return undefined("access to attribute '" + std::string(name) + "' is unsafe");
    if (const value* v = object.find(name)) return *v;
    if (object.is_number() || object.is_bool() || object.is(value_kind::tuple)) return scalar_attribute(object, name);
    return no_attribute(object, name);
}

value template_run::scalar_attribute(const value& object, std::string_view name) {
    if (object.is(value_kind::tuple)) {  // what groupby yields
        if (object.items().size() == 2 && (name == "grouper" || name == "list")) return object.items()[name == "list"];
        return no_attribute(object, name);
    }
    const bool is_real = object.is(value_kind::real);
    if (name == "real" || (name == "numerator" && !is_real))
        return object.is_bool() ? value::of_int(object.as_bool()) : object;
    if (name == "imag") return is_real ? value::of_double(0) : value::of_int(0);
    if (name == "denominator" && !is_real) return value::of_int(1);
    return no_attribute(object, name);
}

value template_run::object_attribute(const value& object, std::string_view name) {
    object_payload* o = object.as_object();
    if (o->type == kNamespaceObject) {
        const auto& names = ((const namespace_object*)o)->names;
        const auto at = std::find(names.begin(), names.end(), name);
        charge(names.size() / 16);
        return at != names.end() ? o->slots[(size_t)(at - names.begin())] : no_attribute(object, name);
    }
    if (o->type == kLoopObject) return loop_attribute((loop_object*)o, object, name);
    if (o->type == kCyclerObject && name == "current")
        return o->slots[((const counter_object*)o)->at % o->slots.size()];
    if (o->type == kRangeObject) {
        const auto* r = (const range_object*)o;
        if (name == "start" || name == "stop" || name == "step")
            return value::of_int(name == "start" ? r->start : name == "stop" ? r->stop : r->step);
    }
    if (o->type == kMacroObject) {
        const template_node* n = ((const macro_object*)o)->node;
        if (name == "name") return make(n->name >= 0 ? tree.names[(size_t)n->name] : "");
        if (name == "catch_kwargs") return value::of_bool(n->op & kMacroKwargs);
        if (name == "catch_varargs") return value::of_bool(n->op & kMacroVarargs);
        if (name == "caller") return value::of_bool(n->op & kMacroCaller);
        if (name == "arguments") {
            std::vector<value> names;
            for (int32_t id : n->names) names.push_back(make(tree.names[(size_t)id]));
            return make_tuple(std::move(names));
        }
    }
    return no_attribute(object, name);
}

int64_t template_run::loop_length(loop_object* loop) {
    if (loop->length >= 0) return loop->length;
    const int64_t n = loop->has_condition ? -1 : length(loop->slots[loop_object::kSource], false);
    if (n >= 0) return loop->length = n;
    std::vector<value> rest;
    for (value item; fetch(loop, &item);) {
        rest.push_back(item);
        if (!has_room(rest.size() * sizeof(value))) break;
    }
    loop->length = loop->index0 + 1 + loop->has_after + (int64_t)rest.size();
    loop->slots[loop_object::kSource] = make_list(std::move(rest));
    loop->at = 0;
    loop->has_condition = false;
    return loop->length;
}

value template_run::loop_attribute(loop_object* loop, const value& self, std::string_view name) {
    if (name == "index0") return value::of_int(loop->index0);
    if (name == "index") return value::of_int(loop->index0 + 1);
    if (name == "first") return value::of_bool(loop->index0 == 0);
    if (name == "last" || name == "nextitem") {
        value item;
        if (!loop->has_after && fetch(loop, &item)) {
            loop->slots[loop_object::kAfter] = std::move(item);
            loop->has_after = true;
        }
        if (name == "last") return value::of_bool(!loop->has_after);
        return loop->has_after ? loop->slots[loop_object::kAfter] : undefined("there is no next item");
    }
    if (name == "previtem")
        return loop->has_before ? loop->slots[loop_object::kBefore] : undefined("there is no previous item");
    if (name == "length") return value::of_int(loop_length(loop));
    if (name == "revindex") return value::of_int(loop_length(loop) - loop->index0);
    if (name == "revindex0") return value::of_int(loop_length(loop) - loop->index0 - 1);
    if (name == "depth") return value::of_int(loop->depth0 + 1);
    if (name == "depth0") return value::of_int(loop->depth0);
    return no_attribute(self, name);
}

value template_run::get_item(const value& object, const value& key) {
    if (object.is(value_kind::undefined)) return failed() ? object : fail(std::string(object.as_string()));
    if (object.is_map() && is_hashable(key))
        if (const value* v = object.find(key)) return *v;
    if (key.is_int() || key.is_bool()) {
        const int64_t i = key.is_bool() ? key.as_bool() : key.as_int();
        const int64_t n = length(object, false);
        const int64_t at = i < 0 && n >= 0 ? i + n : i;
        if (!object.is_map() && at >= 0 && at < n) {
            if (object.is_list() || object.is(value_kind::tuple)) return object.items()[(size_t)at];
            if (object.is_string()) {
                const size_t begin = char_offset(object.as_string(), (size_t)at);
                charge(begin / 64);
                return make(object.as_text().slice(begin, char_bytes(object.as_string(), begin)));
            }
            if (object.as_object()->type == kRangeObject) {
                const auto* r = (const range_object*)object.as_object();
                return value::of_int(r->start + at * r->step);
            }
        }
    }
    if (key.is_string() && !object.is_map()) return get_attribute(object, key.as_string());
    if (key.is_string())
        if (const native_function* method = find_method(object, key.as_string())) return native_method(object, method);
    return no_attribute(object, to_text(key).bytes);
}

value template_run::get_path(value object, const value& path) {
    if (path.is_null()) return object;
    if (!path.is_string()) return get_item(object, path);
    std::string_view rest = path.as_string();
    while (!failed()) {
        const size_t end = std::min(rest.find('.'), rest.size());
        const std::string_view part = rest.substr(0, end);
        const bool is_number = !part.empty() && part.find_first_not_of("0123456789") == part.npos;
        object = get_item(object, is_number ? integer_of_digits(part, 10) : value::of_trusted(std::string(part)));
        if (end == rest.size()) break;
        rest.remove_prefix(end + 1);
    }
    return object;
}

value template_run::get_slice(const value& object, const value& start, const value& stop, const value& step) {
    if (object.is(value_kind::undefined)) return failed() ? object : fail(std::string(object.as_string()));
    int64_t at[3];  // first, step, how many
    if (!is_sliceable(object)) return fail("this cannot be sliced");
    if (!to_slice(start, stop, step, length(object), at)) return fail("slice indices must be integers or None");
    if (object.is_string()) {
        const traced_text& t = object.as_text();
        if (at[1] == 1 || at[2] <= 1) {
            const size_t begin = char_offset(t.bytes, (size_t)at[0]);
            const size_t n_bytes = char_offset(std::string_view(t.bytes).substr(begin), (size_t)at[2]);
            return make(t.slice(begin, n_bytes));
        }
        std::vector<uint32_t> offsets;  // of all characters
        if (!has_room(t.size() * 6)) return undefined("");
        for (size_t i = 0; i < t.size(); i += char_bytes(t.bytes, i)) offsets.push_back((uint32_t)i);
        traced_text out;
        out.is_markup = t.is_markup;
        for (int64_t i = 0; i < at[2]; i++) {
            const size_t begin = offsets[(size_t)(at[0] + i * at[1])];
            out.append(t, begin, char_bytes(t.bytes, begin));
        }
        return make(std::move(out));
    }
    if (object.is(value_kind::object)) {
        const auto* r = (const range_object*)object.as_object();
        auto* part = new_object<range_object>(kRangeObject);
        part->start = r->start + at[0] * r->step;
        part->step = r->step * at[1];
        part->size = at[2];
        part->stop = part->start + part->size * part->step;
        return make_object(part);
    }
    if (!has_room((size_t)at[2] * sizeof(value))) return undefined("");
    std::vector<value> items;
    items.reserve((size_t)at[2]);
    for (int64_t i = 0; i < at[2]; i++) items.push_back(object.items()[(size_t)(at[0] + i * at[1])]);
    return object.is_list() ? make_list(std::move(items)) : make_tuple(std::move(items));
}

}  // namespace duet
