// models/template_functions.cpp: tests, the functions that templates know by name, and how functions get arguments.
// Source: the documentation of Jinja 3.1, "List of Builtin Tests", "List of Global Functions".
// Main path: models/template_eval -> [models/template_functions] -> template_strings, template_lists, template_numbers
#include "template_run.h"

#include <algorithm>

namespace duet {

// ---- arguments ----

bool native_call::flag(int i) { return given[i] && run.is_true(args[i]); }

int64_t native_call::integer(int i, int64_t absent) {
    if (given[i]) run.to_index(args[i], &absent);
    return absent;
}

const traced_text& native_call::text(int i, const char* absent) {
    static const traced_text kEmpty;
    if (!args[i].is_string()) args[i] = run.make(given[i] ? run.to_text(args[i]) : traced_text(absent, false));
    return args[i].is_string() ? args[i].as_text() : kEmpty;
}

const traced_text& native_call::string(int i, const char* absent) {
    if (given[i] && !args[i].is_string()) run.fail("argument " + std::to_string(i) + " has to be a string");
    return text(i, absent);
}

std::vector<value> native_call::items() {
    std::vector<value> out;
    run.collect(args[0], &out);
    return out;
}

namespace value_functions {
namespace {

value of(bool b) { return value::of_bool(b); }

template <char kOp> value compare(native_call& c) { return of(c.run.compare(kOp, c[0], c[1])); }
template <value_kind kKind> value is_kind(native_call& c) { return of(c[0].is(kKind)); }

template <int kRest> value has_rest(native_call& c) {
    const value divisor = c.given[1] ? c[1] : value::of_int(2);
    return of(c.run.equal(c.run.arithmetic('%', c[0], divisor), value::of_int(kRest)));
}

template <bool kUpper> value is_case(native_call& c) {
    c.text(0);
    const native_function* method = c.run.failed() ? nullptr : find_method(c[0], kUpper ? "isupper" : "islower");
    return method ? method->run(c) : value();
}

value is_callable(native_call& c) {
    for (object_type type : {kMacroObject, kFunctionObject, kMethodObject, kLoopObject, kJoinerObject})
        if (object_of(c[0], type)) return of(true);
    return of(c[0].is(value_kind::undefined));
}

value otherwise(native_call& c) {
    if (!c[0].is(value_kind::undefined) && (!c.flag(2) || c.run.is_true(c[0]))) return c[0];
    return c.given[1] ? c[1] : c.run.make("");
}

// ---- functions ----

constexpr int64_t kLongestRange = 100'000;  // as in the reference's sandbox

value range(native_call& c) {
    int64_t start = c.integer(0), stop = c.integer(1), step = c.integer(2, 1);
    if (!c.given[1]) std::swap(start, stop);
    if (step == 0) return c.run.fail("range: the step must not be zero");
    const __int128 span = step > 0 ? (__int128)stop - start : (__int128)start - stop;
    const __int128 stride = step > 0 ? step : -(__int128)step;
    const __int128 size = span > 0 ? (span + stride - 1) / stride : 0;
    if (size > kLongestRange) return c.run.fail("range: want at most " + std::to_string(kLongestRange) + " numbers");
    template_object* o;
    const value out = c.run.make_object(kRangeObject, {}, &o);
    o->range = {start, step, (int64_t)size}, o->stop = stop;
    return out;
}

// dict(mapping or pairs, name=value ...)
value dict(native_call& c) {
    std::vector<value_member> members;
    if (c.rest->values.size() > 1) return c.run.fail("dict: want at most one argument without a name");
    for (const value& source : c.rest->values) {
        std::vector<value> pairs, parts;
        if (source.is_map()) members = source.members();
        else if (source.is(value_kind::undefined)) return c.run.fail("dict: want a mapping or pairs");
        else if (!c.run.collect(source, &pairs)) return {};
        for (const value& pair : pairs) {
            parts.clear();
            if (!c.run.collect(pair, &parts) || parts.size() != 2) return c.run.fail("dict: want pairs");
            members.push_back({parts[0], parts[1]});
        }
    }
    for (const auto& [key, v] : c.rest->named) members.push_back({c.run.make(key), v});
    return c.run.make_map(std::move(members));
}

value make_namespace(native_call& c) {
    const value map = dict(c);
    if (c.run.failed()) return {};
    template_object* ns;
    const value out = c.run.make_object(kNamespaceObject, {}, &ns);
    c.run.keep(out);
    for (const value_member& m : map.members()) {
        ns->names.push_back(c.run.to_text(m.key).bytes);
        ns->slots.push_back(m.val);
        if (ns->names.back().starts_with('_'))
            return c.run.fail("a name on a namespace may not begin with '_': " + ns->names.back());
    }
    return out;
}

value cycler(native_call& c) {
    if (c.rest->values.empty()) return c.run.fail("cycler: want at least one item");
    return c.run.make_object(kCyclerObject, c.rest->values);
}

value strftime_now(native_call& c) {
    if (!c[0].is_string()) return c.run.fail("strftime_now: want a format");
    if (!c.run.has_room(c[0].as_string().size() * 16) || !c.run.charge(c[0].as_string().size())) return {};
    return c.run.make(format_time(c.run.now, c[0].as_string()));
}

// clang-format off
constexpr native_function kFilters[] = {
    {"default", "value default_value? boolean?", otherwise},
    {"d", "value default_value? boolean?", otherwise},
};
constexpr native_function kTests[] = {
    {"defined", "value", [](native_call& c) { return of(!c[0].is(value_kind::undefined)); }},
    {"undefined", "value", is_kind<value_kind::undefined>},
    {"none", "value", is_kind<value_kind::null>},
    {"string", "value", is_kind<value_kind::string>},
    {"mapping", "value", is_kind<value_kind::map>},
    {"boolean", "value", is_kind<value_kind::boolean>},
    {"float", "value", is_kind<value_kind::real>},
    {"integer", "value", [](native_call& c) { return of(c[0].is_int() || c[0].is(value_kind::big_integer)); }},
    {"number", "value", [](native_call& c) { return of(c[0].is_numeric()); }},
    {"true", "value", [](native_call& c) { return of(c[0].is_bool() && c[0].as_bool()); }},
    {"false", "value", [](native_call& c) { return of(c[0].is_bool() && !c[0].as_bool()); }},
    {"iterable", "value", [](native_call& c) { return of(c.run.is_iterable(c[0])); }},
    {"sequence", "value", [](native_call& c) { return of(c.run.is_indexed(c[0])); }},
    {"callable", "/obj", is_callable},
    {"sameas", "value other", [](native_call& c) { return of(c[0].is_same(c[1])); }},
    {"escaped", "value", [](native_call& c) { return of(c[0].is_string() && c[0].as_text().is_markup); }},
    {"filter", "value", [](native_call& c) { return of(c[0].is_string() && find_filter(c[0].as_string())); }},
    {"test", "value", [](native_call& c) { return of(c[0].is_string() && find_test(c[0].as_string())); }},
    {"odd", "value", has_rest<1>},
    {"even", "value", has_rest<0>},
    {"divisibleby", "value num", has_rest<0>},
    {"lower", "value", is_case<false>},
    {"upper", "value", is_case<true>},
    {"in", "value seq", compare<kIn>},
    {"eq", "/a b", compare<kEqual>},
    {"equalto", "/a b", compare<kEqual>},
    {"==", "/a b", compare<kEqual>},
    {"ne", "/a b", compare<kUnequal>},
    {"!=", "/a b", compare<kUnequal>},
    {"lt", "/a b", compare<kLess>},
    {"lessthan", "/a b", compare<kLess>},
    {"<", "/a b", compare<kLess>},
    {"le", "/a b", compare<kLessEqual>},
    {"<=", "/a b", compare<kLessEqual>},
    {"gt", "/a b", compare<kGreater>},
    {"greaterthan", "/a b", compare<kGreater>},
    {">", "/a b", compare<kGreater>},
    {"ge", "/a b", compare<kGreaterEqual>},
    {">=", "/a b", compare<kGreaterEqual>},
};
constexpr native_function kGlobals[] = {
    {"range", "/start stop? step?", range},
    {"dict", "*", dict},
    {"namespace", "*", make_namespace},
    {"cycler", "*", cycler},
    {"joiner", "sep?", [](native_call& c) {
        return c.run.make_object(kJoinerObject, {c.given[0] ? c[0] : c.run.make(", ")});
    }},
    {"raise_exception", "message", [](native_call& c) { return c.run.fail(c.text(0).bytes); }},
    {"strftime_now", "format", strftime_now},
    {"lipsum", "*", [](native_call& c) { return c.run.fail("lipsum is not supported", DUET_ERR_UNSUPPORTED); }},
};
// clang-format on

}  // namespace
}  // namespace value_functions

const native_function* find_function(std::span<const native_function> table, std::string_view name) {
    for (const native_function& f : table)
        if (f.name == name) return &f;
    return nullptr;
}

const native_function* find_filter(std::string_view name) {
    for (auto table :
         {kTextFilters, kListFilters, kNumberFilters, std::span<const native_function>(value_functions::kFilters)})
        if (const native_function* f = find_function(table, name)) return f;
    return nullptr;
}

const native_function* find_test(std::string_view name) { return find_function(value_functions::kTests, name); }
const native_function* find_global(std::string_view name) { return find_function(value_functions::kGlobals, name); }

}  // namespace duet
