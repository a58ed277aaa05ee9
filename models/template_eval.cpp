// models/template_eval.cpp: expressions, attributes and items, calls.
// What looks up a name on a value follows the sandbox of the reference: methods come before the keys of a map for a.b,
// after them for a['b']; names that begin with two underscores and methods that change a value are never found.
// Main path: models/template_run -> [models/template_eval] -> models/template_values, template_functions
#include "template_run.h"

#include <algorithm>

namespace duet {

// ---- expressions ----

value template_run::eval(const template_node* n) {
    nesting level(this);
    if (!level.is_good || !charge(1)) return undefined("");
    switch (n->kind) {
    case node_kind::constant: return n->constant;
    case node_kind::name: return lookup(n->name);
    case node_kind::captured: return captured_;
    case node_kind::list:
    case node_kind::tuple:
    case node_kind::map: return eval_items(n);
    case node_kind::attribute: return get_attribute(eval(n->kids[0]), n->text());
    case node_kind::item: return eval_item(n);
    case node_kind::slice: return fail("a slice stands where none may stand");
    case node_kind::call: return eval_call(n);
    case node_kind::filter:
    case node_kind::test: {
        call_arguments arguments;
        eval_arguments(n, &arguments);
        if (n->function) return failed() ? undefined("") : call_native(*n->function, arguments);
        return fail((n->kind == node_kind::test ? "no test named '" : "no filter named '") + std::string(n->text()) +
                    "'");
    }
    case node_kind::unary: return eval_unary(n);
    case node_kind::binary: {
        const value left = eval(n->kids[0]), right = eval(n->kids[1]);
        line = n->line;
        return failed() ? undefined("") : arithmetic((char)n->op, left, right);
    }
    case node_kind::compare: return eval_compare(n);
    case node_kind::both:
    case node_kind::either: {
        const value left = eval(n->kids[0]);
        return is_true(left) == (n->kind == node_kind::both) ? eval(n->kids[1]) : left;
    }
    case node_kind::choice:
        if (is_true(eval(n->kids[0]))) return eval(n->kids[1]);
        return n->kids[2] ? eval(n->kids[2])
                          : undefined("the condition of an inline 'if' is false and there is no 'else'");
    case node_kind::concat: return eval_concat(n);
    default: return fail("a statement stands where an expression is wanted");
    }
}

value template_run::eval_items(const template_node* n) {
    std::vector<value> items;
    items.reserve(n->kids.size());
    for (const template_node* kid : n->kids) items.push_back(eval(kid));
    if (n->kind != node_kind::map)
        return make_sequence(std::move(items), n->kind == node_kind::list ? value_kind::list : value_kind::tuple);
    std::vector<value_member> members;
    for (size_t i = 0; i + 1 < items.size(); i += 2) members.push_back({items[i], items[i + 1]});
    return make_map(std::move(members));
}

// Whether an expression has no variables. The reference computes it when it compiles, and then a slice that cannot be
// taken is undefined instead of an error.
static bool is_foldable(const template_node* n) {
    if (n->kind == node_kind::name || n->kind == node_kind::call || n->kind == node_kind::captured) return false;
    return std::ranges::all_of(n->kids, [](const template_node* kid) { return !kid || is_foldable(kid); });
}

static bool is_sliceable(const value& v) { return v.is_sequence() || v.is_string() || object_of(v, kRangeObject); }

static bool can_slice(const value& object, const value parts[3]) {
    return is_sliceable(object) && std::all_of(parts, parts + 3, [](const value& v) {
               return v.is_null() || v.is_bool() || (v.is_number() && !v.is(value_kind::real));
           });
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
    for (size_t i = 0; i < 3; i++)
        if (subscript->kids[i]) parts[i] = eval(subscript->kids[i]);
    if (is_foldable(n) && !can_slice(object, parts)) return no_attribute(object, "[:]");
    return get_slice(object, parts[0], parts[1], parts[2]);
}

value template_run::eval_unary(const template_node* n) {
    const value operand = eval(n->kids[0]);
    if (n->op == '!') return value::of_bool(!is_true(operand));
    __int128 i;
    if (operand.is(value_kind::real)) return n->op == '-' ? value::of_double(-operand.as_double()) : operand;
    return to_int128(operand, &i) ? of_int128(n->op == '-' ? -i : i) : refuse(operand, "want a number after the sign");
}

value template_run::eval_compare(const template_node* n) {
    value left = eval(n->kids[0]);
    for (size_t i = 1; i < n->kids.size() && !failed(); i++) {
        value right = eval(n->kids[i]);
        line = n->line;
        if (!compare(n->text()[i - 1], left, right)) return value::of_bool(false);
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

// ---- calls ----

// Appends the arguments of a call; of a filter or test its operand comes first.
void template_run::eval_arguments(const template_node* n, call_arguments* out) {
    const size_t n_positional = n->kids.size() - n->names.size();
    out->values.reserve(n->kids.size());
    for (size_t i = n->kind == node_kind::call; i < n_positional; i++) out->values.push_back(eval(n->kids[i]));
    if (n->star) collect(eval(n->star), &out->values);
    for (size_t i = 0; i < n->names.size(); i++)
        out->named.emplace_back(tree.names[(size_t)n->names[i]], eval(n->kids[n_positional + i]));
    if (n->star_star) {
        const value more = eval(n->star_star);
        if (!more.is_map()) return (void)fail("want a mapping after '**'");
        for (const value_member& m : more.members())
            if (!m.key.is_string()) fail("want strings as keys after '**'");
            else out->named.emplace_back(std::string(m.key.as_string()), m.val);
    }
    line = n->line;
}

value template_run::eval_call(const template_node* n, const value* caller) {
    const template_node* target = n->kids[0];
    call_arguments arguments;
    value function;
    if (target->kind == node_kind::attribute) {
        const value object = eval(target->kids[0]);
        const native_function* method = find_method(object, target->text());
        if (method && !caller) {  // without an object made of the method
            arguments.values.push_back(object);
            eval_arguments(n, &arguments);
            return failed() ? undefined("") : call_native(*method, arguments);
        }
        function = get_attribute(object, target->text());
    } else {
        function = eval(target);
    }
    eval_arguments(n, &arguments);
    if (caller) arguments.named.emplace_back("caller", *caller);
    return call(function, arguments);
}

value template_run::call(const value& function, call_arguments& arguments) {
    if (failed() || !function.is(value_kind::object)) return refuse(function, "this is not callable");
    template_object* object = object_of(function);
    switch (object->type) {
    case kMacroObject: return call_macro(function, arguments);
    case kMethodObject: arguments.values.insert(arguments.values.begin(), object->slots[0]); [[fallthrough]];
    case kFunctionObject: return call_native(*object->function, arguments);
    case kLoopObject: return call_loop(function, arguments);
    case kJoinerObject: return object->at++ == 0 ? make("") : object->slots[0];
    default: return fail("this is not callable");
    }
}

value template_run::call_native(const native_function& function, call_arguments& arguments) {
    if (!charge(1)) return undefined("");
    auto wrong = [&](const std::string& what) {
        return fail(std::string(function.names.substr(0, function.names.find(' '))) + ": " + what);
    };
    native_call c{*this, {}};
    std::string_view parameters = function.parameters;
    const bool may_name = !parameters.starts_with('/');
    parameters.remove_prefix(!may_name);
    size_t n_named = 0, i = 0;
    for (; !parameters.empty(); i++) {
        const size_t end = std::min(parameters.find(' '), parameters.size());
        std::string_view name = parameters.substr(0, end);
        parameters.remove_prefix(std::min(end + 1, parameters.size()));
        if (name == "*") {
            arguments.values.erase(arguments.values.begin(), arguments.values.begin() + (long)i);
            c.rest = &arguments;
            return function.run(c);
        }
        const bool is_optional = name.ends_with('?');
        name.remove_suffix(is_optional);
        if ((c.given[i] = i < arguments.values.size())) c.args[i] = std::move(arguments.values[i]);
        for (auto& [key, v] : arguments.named)
            if (may_name && key == name) {
                if (c.given[i]) return wrong("got argument '" + key + "' twice");
                c.args[i] = v;
                c.given[i] = true;
                n_named++;
            }
        if (!c.given[i] && !is_optional) return wrong("want an argument '" + std::string(name) + "'");
    }
    if (arguments.values.size() > i || arguments.named.size() > n_named)
        return wrong("got more arguments than it takes, or one of another name");
    return function.run(c);
}

// ---- attributes and items ----

value template_run::no_attribute(const value& object, std::string_view name) {
    static constexpr std::string_view kTypes[] = {"None",         "bool object", "int object",  "int object",
                                                  "float object", "str object",  "list object", "dict object",
                                                  "tuple object", "undefined",   "object"};
    return undefined("'" + std::string(kTypes[(size_t)object.kind()]) + "' has no attribute '" + printable(name) + "'");
}

value template_run::get_attribute(const value& object, std::string_view name) {
    if (object.is(value_kind::undefined)) return refuse(object, "");
    if (object.is(value_kind::object)) {
        value found = object_attribute(object, name);
        if (!found.is(value_kind::undefined)) return found;
    }
    if (const native_function* method = find_method(object, name)) {
        template_object* bound;
        const value out = make_object(kMethodObject, {object}, &bound);
        bound->function = method;
        return out;
    }
    if (is_forbidden_method(object, name))
        return undefined("access to attribute '" + std::string(name) + "' is unsafe");
    if (const value* v = object.find(name)) return *v;
    const bool is_pair = object.is(value_kind::tuple) && object.items().size() == 2;  // what groupby yields
    if (is_pair && (name == "grouper" || name == "list")) return object.items()[name == "list"];
    return no_attribute(object, name);
}

value template_run::object_attribute(const value& object, std::string_view name) {
    template_object* o = object_of(object);
    switch (o->type) {
    case kNamespaceObject: {
        const auto at = std::find(o->names.begin(), o->names.end(), name);
        charge(o->names.size() / 16);
        if (at != o->names.end()) return o->slots[(size_t)(at - o->names.begin())];
        break;
    }
    case kLoopObject: return loop_attribute(o, name);
    case kCyclerObject:
        if (name == "current") return o->slots[o->at % o->slots.size()];
        break;
    case kMacroObject: {
        if (name == "name") return make(tree.names[(size_t)o->node->name]);
        if (name == "catch_kwargs") return value::of_bool(o->node->op & kMacroKwargs);
        if (name == "catch_varargs") return value::of_bool(o->node->op & kMacroVarargs);
        if (name == "caller") return value::of_bool(o->node->op & kMacroCaller);
        if (name != "arguments") break;
        std::vector<value> names;
        for (int32_t id : o->node->names) names.push_back(make(tree.names[(size_t)id]));
        return make_tuple(std::move(names));
    }
    default: break;
    }
    return no_attribute(object, name);
}

int64_t template_run::loop_length(template_object* loop) {
    if (loop->length >= 0) return loop->length;
    const int64_t n = loop->has_condition ? -1 : length(loop->slots[kLoopSource], false);
    if (n >= 0) return loop->length = n;
    std::vector<value> rest;
    for (value item; fetch(loop, &item) && has_room(rest.size() * sizeof(value));) rest.push_back(item);
    loop->length = loop->index0 + 1 + loop->has_after + (int64_t)rest.size();
    loop->slots[kLoopSource] = make_list(std::move(rest));
    loop->at = 0;
    loop->has_condition = false;
    return loop->length;
}

value template_run::loop_attribute(template_object* loop, std::string_view name) {
    if (name == "index0") return value::of_int(loop->index0);
    if (name == "index") return value::of_int(loop->index0 + 1);
    if (name == "first") return value::of_bool(loop->index0 == 0);
    if (name == "last" || name == "nextitem") {
        if (!loop->has_after) {
            value item;
            loop->has_after = fetch(loop, &item);
            loop->slots[kLoopAfter] = std::move(item);
        }
        if (name == "last") return value::of_bool(!loop->has_after);
        return loop->has_after ? loop->slots[kLoopAfter] : undefined("there is no next item");
    }
    if (name == "previtem") return loop->has_before ? loop->slots[kLoopBefore] : undefined("there is no previous item");
    if (name == "length") return value::of_int(loop_length(loop));
    if (name == "revindex") return value::of_int(loop_length(loop) - loop->index0);
    if (name == "revindex0") return value::of_int(loop_length(loop) - loop->index0 - 1);
    if (name == "depth") return value::of_int(loop->depth0 + 1);
    if (name == "depth0") return value::of_int(loop->depth0);
    return undefined("'loop' has no attribute '" + std::string(name) + "'");
}

value template_run::get_item(const value& object, const value& key) {
    if (object.is(value_kind::undefined)) return refuse(object, "");
    if (object.is_map()) {
        if (const value* v = is_hashable(key) ? object.find(key) : nullptr) return *v;
        if (key.is_string() && find_method(object, key.as_string())) return get_attribute(object, key.as_string());
        return no_attribute(object, to_text(key).bytes);
    }
    if (key.is_string()) return get_attribute(object, key.as_string());
    if ((key.is_int() || key.is_bool()) && is_indexed(object)) {
        const int64_t i = key.is_bool() ? key.as_bool() : key.as_int(), n = length(object);
        size_t at = (size_t)(i < 0 ? i + n : i);
        if (at >= (size_t)n) return no_attribute(object, to_text(key).bytes);
        if (object.is_string()) {
            charge((at = char_offset(object.as_string(), at)) / 64);
            return make(object.as_text().slice(at, char_bytes(object.as_string(), at)));
        }
        value item;
        next_item(object, &at, &item);
        return item;
    }
    return no_attribute(object, to_text(key).bytes);
}

value template_run::get_path(value object, const value& path) {
    if (path.is_null()) return object;
    if (!path.is_string()) return get_item(object, path);
    std::string_view rest = path.as_string();
    while (charge(rest.size() / 64)) {
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
    slice_range at;
    if (!is_sliceable(object)) return refuse(object, "this cannot be sliced");
    if (!to_slice(start, stop, step, length(object), &at)) return fail("slice indices must be integers or None");
    if (object.is_string()) {
        const traced_text& t = object.as_text();
        if (at.step == 1) {
            const size_t begin = char_offset(t.bytes, (size_t)at.first);
            return make(t.slice(begin, char_offset(std::string_view(t.bytes).substr(begin), (size_t)at.size)));
        }
        std::vector<size_t> offsets;  // of all characters
        if (!has_room(t.size() * 10)) return undefined("");
        for (size_t i = 0; i < t.size(); i += char_bytes(t.bytes, i)) offsets.push_back(i);
        traced_text out = t.slice(0, 0);
        for (; at.size > 0; at.size--, at.first += at.step) {
            const size_t begin = offsets[(size_t)at.first];
            out.append(t, begin, char_bytes(t.bytes, begin));
        }
        return make(std::move(out));
    }
    if (const template_object* whole = object_of(object, kRangeObject)) {
        template_object* part;
        const value out = make_object(kRangeObject, {}, &part);
        part->range = {whole->range.first + at.first * whole->range.step, whole->range.step * at.step, at.size};
        part->stop = part->range.first + at.size * part->range.step;
        return out;
    }
    if (!has_room((size_t)at.size * sizeof(value))) return undefined("");
    std::vector<value> items;
    items.reserve((size_t)at.size);
    for (; at.size > 0; at.size--, at.first += at.step) items.push_back(object.items()[(size_t)at.first]);
    return make_sequence(std::move(items), object.kind());
}

}  // namespace duet
