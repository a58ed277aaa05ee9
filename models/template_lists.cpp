// models/template_lists.cpp: filters on sequences and maps, tests, and the functions that templates know by name.
// Source: the documentation of Jinja 3.1, "List of Builtin Filters", "List of Builtin Tests", "List of Global
// Functions". Main path: models/template_eval -> [models/template_lists]
#include "template_run.h"

#include <algorithm>
#include <set>

namespace duet {
namespace {

bool items_of(native_call& c, std::vector<value>* out) { return c.run.collect(c[0], out); }

// What a filter compares of an item: an attribute of it, strings without their case.
value key_of(template_run& run, const value& item, const value& path, bool is_case_sensitive) {
    const value v = run.get_path(item, path);
    return v.is_string() && !is_case_sensitive && run.charge(v.as_string().size())
               ? run.make(change_case(v.as_text(), python_case::lower))
               : v;
}

struct keyed_item {
    value key, item;
};

void sort_items(template_run& run, std::vector<keyed_item>* items, bool is_reverse) {
    std::stable_sort(items->begin(), items->end(), [&](const keyed_item& a, const keyed_item& b) {
        return !run.failed() && (is_reverse ? run.less(b.key, a.key) : run.less(a.key, b.key));
    });
}

value list_of(template_run& run, std::vector<keyed_item>& items) {
    std::vector<value> out;
    for (keyed_item& i : items) out.push_back(std::move(i.item));
    return run.make_list(std::move(out));
}

// ---- filters
// ---------------------------------------------------------------------------------------------------------

value filter_list(native_call& c) {
    std::vector<value> items;
    return items_of(c, &items) ? c.run.make_list(std::move(items)) : value();
}

value filter_first(native_call& c) {
    size_t at = 0;
    value item;
    if (!c.run.is_iterable(c[0])) return c.run.fail("first: this is not iterable");
    return c.run.next_item(c[0], &at, &item) ? item : c.run.undefined("No first item, sequence was empty.");
}

bool is_generator(const value& v) { return v.is(value_kind::object) && v.as_object()->type == kGeneratorObject; }

value filter_last(native_call& c) {
    if (is_generator(c[0])) return c.run.fail("last: a generator is not reversible");
    std::vector<value> items;
    if (c[0].is_list() || c[0].is(value_kind::tuple)) {
        if (!c[0].items().empty()) return c[0].items().back();
    } else if (items_of(c, &items) && !items.empty()) {
        return items.back();
    }
    return c.run.undefined("No last item, sequence was empty.");
}

value filter_reverse(native_call& c) {
    if (c[0].is_string()) return c.run.get_slice(c[0], {}, {}, value::of_int(-1));
    std::vector<value> items;
    if (!items_of(c, &items)) return {};
    std::reverse(items.begin(), items.end());
    value list = c.run.make_list(std::move(items));
    return is_generator(c[0]) ? list : c.run.make_generator(std::move(list));
}

// attribute may name several, with commas between them.
value filter_sort(native_call& c) {
    std::vector<value> items, paths = {c[3]};
    if (!items_of(c, &items)) return {};
    if (c[3].is_string()) {
        paths.clear();
        for (std::string_view rest = c[3].as_string();;) {
            const size_t end = std::min(rest.find(','), rest.size());
            paths.push_back(c.run.make(std::string(rest.substr(0, end))));
            if (end == rest.size()) break;
            rest.remove_prefix(end + 1);
        }
    }
    std::vector<keyed_item> keyed;
    for (const value& item : items) {
        std::vector<value> keys;
        for (const value& path : paths) keys.push_back(key_of(c.run, item, path, flag_of(c, 2)));
        if (c.run.failed()) return {};
        keyed.push_back({c.run.make_list(std::move(keys)), item});
    }
    sort_items(c.run, &keyed, flag_of(c, 1));
    return list_of(c.run, keyed);
}

value filter_dictsort(native_call& c) {
    if (!c[0].is_map()) return c.run.fail("dictsort: want a mapping");
    const std::string by = c.given[2] ? c.run.to_text(c[2]).bytes : "key";
    if (by != "key" && by != "value") return c.run.fail("dictsort: want to sort by 'key' or 'value'");
    std::vector<keyed_item> keyed;
    for (const value_member& m : c[0].members())
        keyed.push_back(
            {key_of(c.run, by == "key" ? m.key : m.val, {}, flag_of(c, 1)), c.run.make_tuple({m.key, m.val})});
    sort_items(c.run, &keyed, flag_of(c, 3));
    return list_of(c.run, keyed);
}

value filter_groupby(native_call& c) {
    std::vector<value> items, groups;
    if (!items_of(c, &items)) return {};
    auto attribute_of = [&](const value& item) {
        const value v = c.run.get_path(item, c[1]);
        return v.is(value_kind::undefined) && c.given[2] && !c[2].is_null() ? c[2] : v;
    };
    std::vector<keyed_item> keyed;
    for (const value& item : items) keyed.push_back({key_of(c.run, attribute_of(item), {}, flag_of(c, 3)), item});
    sort_items(c.run, &keyed, false);
    for (size_t i = 0, end; i < keyed.size() && !c.run.failed(); i = end) {
        std::vector<value> members;
        for (end = i; end < keyed.size() && c.run.equal(keyed[end].key, keyed[i].key); end++)
            members.push_back(keyed[end].item);
        end = std::max(end, i + 1);
        const value list = c.run.make_list(std::move(members));
        groups.push_back(c.run.make_tuple({attribute_of(keyed[i].item), list}));
    }
    return c.run.make_list(std::move(groups));
}

struct key_order {
    bool operator()(const value& a, const value& b) const { return compare_keys(a, b) < 0; }
};

value filter_unique(native_call& c) {
    std::vector<value> items, out;
    std::set<value, key_order> seen;
    if (!items_of(c, &items)) return {};
    for (const value& item : items) {
        const value key = key_of(c.run, item, c[2], flag_of(c, 1));
        if (c.run.failed()) return {};
        if (!c.run.is_hashable(key)) return c.run.fail("unique: unhashable type");
        if (c.run.charge(4) && c.run.has_room(seen.size() * 64) && seen.insert(key).second) out.push_back(item);
    }
    return c.run.make_generator(c.run.make_list(std::move(out)));
}

value filter_sum(native_call& c) {
    std::vector<value> items;
    value sum = c.given[2] ? c[2] : value::of_int(0);
    if (!items_of(c, &items)) return {};
    if (sum.is_string()) return c.run.fail("sum: cannot sum strings");
    for (const value& item : items) {
        sum = c.run.arithmetic('+', sum, c.run.get_path(item, c[1]));
        if (c.run.failed()) break;
    }
    return sum;
}

template <bool kMax> value filter_extreme(native_call& c) {
    std::vector<value> items;
    if (!items_of(c, &items)) return {};
    if (items.empty()) return c.run.undefined("No aggregated item, sequence was empty.");
    value best = items[0], best_key = key_of(c.run, items[0], c[2], flag_of(c, 1));
    for (size_t i = 1; i < items.size() && !c.run.failed(); i++) {
        const value key = key_of(c.run, items[i], c[2], flag_of(c, 1));
        if (kMax ? c.run.less(best_key, key) : c.run.less(key, best_key)) best = items[i], best_key = key;
    }
    return best;
}

value filter_batch(native_call& c) {
    std::vector<value> items, lists, part;
    int64_t n = 0;
    if (!c.run.to_index(c[1], &n) || !items_of(c, &items)) return {};
    for (const value& item : items) {
        if ((int64_t)part.size() == n) lists.push_back(c.run.make_list(std::exchange(part, {})));
        part.push_back(item);
    }
    if (!part.empty()) {
        if (c.given[2] && !c[2].is_null() && c.run.has_room((size_t)std::max<int64_t>(n, 0)))
            while ((int64_t)part.size() < n && c.run.has_room(part.size() * sizeof(value))) part.push_back(c[2]);
        lists.push_back(c.run.make_list(std::move(part)));
    }
    return c.run.make_generator(c.run.make_list(std::move(lists)));
}

value filter_slice(native_call& c) {
    std::vector<value> items, lists;
    int64_t n = 0;
    if (!c.run.to_index(c[1], &n) || !items_of(c, &items)) return {};
    if (n == 0) return c.run.fail("slice: want at least one slice");
    if (n > 0 && !c.run.has_room((size_t)std::min<int64_t>(n, INT64_MAX / 256) * 128)) return {};
    const int64_t size = (int64_t)items.size(), every = n > 0 ? size / n : 0, n_longer = n > 0 ? size % n : 0;
    auto at = items.begin();
    for (int64_t i = 0; i < n && c.run.charge(1); i++) {
        std::vector<value> part(at, at + (every + (i < n_longer)));
        at += every + (i < n_longer);
        if (c.given[2] && !c[2].is_null() && i >= n_longer) part.push_back(c[2]);
        lists.push_back(c.run.make_list(std::move(part)));
    }
    return c.run.make_generator(c.run.make_list(std::move(lists)));
}

value filter_items(native_call& c) {
    std::vector<value> pairs;
    if (!c[0].is_map() && !c[0].is(value_kind::undefined))
        return c.run.fail("items: can only get item pairs from a mapping");
    if (c[0].is_map())
        for (const value_member& m : c[0].members()) {
            if (c.run.failed()) return {};
            pairs.push_back(c.run.make_tuple({m.key, m.val}));
        }
    return c.run.make_generator(c.run.make_list(std::move(pairs)));
}

value filter_attr(native_call& c) {
    const std::string name = c.run.to_text(c[1]).bytes;
    if (!c[0].is_map() || find_method(c[0], name)) return c.run.get_attribute(c[0], name);
    return c.run.no_attribute(c[0], name);
}

value filter_random(native_call& c) {  // without chance: the first
    std::vector<value> items;
    if (!items_of(c, &items)) return {};
    return items.empty() ? c.run.undefined("No random item, sequence was empty.") : items[0];
}

// What false, none or 0 has instead of items is none at all, as in the reference.
value source_of(native_call& c) { return c.run.is_true(c[0]) ? c[0] : c.run.make_list({}); }

value generator_of(native_call& c, generator_object* g, size_t n_used) {
    for (size_t i = n_used; i < c.rest->values.size(); i++) g->slots.push_back(c.rest->values[i]);
    for (auto& [key, v] : c.rest->named) {
        g->names.push_back(key);
        g->slots.push_back(v);
    }
    return c.run.make_object(g);
}

value filter_map(native_call& c) {
    auto* g = new_object<generator_object>(kGeneratorObject);
    g->slots.push_back(source_of(c));
    value attribute, otherwise;
    bool has_attribute = false;
    for (const auto& [key, v] : c.rest->named) {
        if (key == "attribute") attribute = v, has_attribute = true;
        else if (key == "default") otherwise = v;
    }
    if (c.rest->values.empty()) {
        if (!has_attribute || c.rest->named.size() > 1u + !otherwise.is_null())
            c.run.fail("map: want the name of a filter, or attribute=");
        g->how = generator_object::kMapAttribute;
        g->slots.push_back(attribute);
        if (!otherwise.is_null()) g->slots.push_back(otherwise);
        return c.run.make_object(g);
    }
    g->how = generator_object::kMapFilter;
    if (c.rest->values[0].is_string()) g->i_function = find_filter(c.rest->values[0].as_string());
    return generator_of(c, g, 1);
}

template <bool kWanted, bool kAttribute> value filter_select(native_call& c) {
    const auto& values = c.rest->values;
    if (kAttribute && values.empty()) return c.run.fail("selectattr: want the name of an attribute");
    auto* g = new_object<generator_object>(kGeneratorObject);
    g->how = generator_object::kSelect;
    g->wanted = kWanted;
    g->has_attribute = kAttribute;
    g->slots.push_back(source_of(c));
    if (kAttribute) g->slots.push_back(values[0]);
    const size_t i_test = kAttribute ? 1 : 0;
    g->has_test = values.size() > i_test;
    if (g->has_test && values[i_test].is_string()) g->i_function = find_test(values[i_test].as_string());
    return generator_of(c, g, i_test + g->has_test);
}

constexpr native_function kListFilters[] = {
    {"list", "value", filter_list},
    {"first", "seq", filter_first},
    {"last", "seq", filter_last},
    {"reverse", "value", filter_reverse},
    {"sort", "value reverse? case_sensitive? attribute?", filter_sort},
    {"dictsort", "value case_sensitive? by? reverse?", filter_dictsort},
    {"groupby", "value attribute default? case_sensitive?", filter_groupby},
    {"unique", "value case_sensitive? attribute?", filter_unique},
    {"sum", "iterable attribute? start?", filter_sum},
    {"min", "value case_sensitive? attribute?", filter_extreme<false>},
    {"max", "value case_sensitive? attribute?", filter_extreme<true>},
    {"batch", "value linecount fill_with?", filter_batch},
    {"slice", "value slices fill_with?", filter_slice},
    {"items", "value", filter_items},
    {"attr", "obj name", filter_attr},
    {"random", "seq", filter_random},
    {"map", "value *", filter_map},
    {"select", "value *", filter_select<true, false>},
    {"reject", "value *", filter_select<false, false>},
    {"selectattr", "value *", filter_select<true, true>},
    {"rejectattr", "value *", filter_select<false, true>},
};

// ---- tests
// -----------------------------------------------------------------------------------------------------------

template <char kOp> value test_compare(native_call& c) {
    bool is_met = false;
    switch (kOp) {
    case kEqual: is_met = c.run.equal(c[0], c[1]); break;
    case kUnequal: is_met = !c.run.equal(c[0], c[1]); break;
    case kLess: is_met = c.run.less(c[0], c[1]); break;
    case kLessEqual: is_met = c.run.less(c[0], c[1]) || c.run.equal(c[0], c[1]); break;
    case kGreater: is_met = c.run.less(c[1], c[0]); break;
    case kGreaterEqual: is_met = c.run.less(c[1], c[0]) || c.run.equal(c[0], c[1]); break;
    default: is_met = c.run.contains(c[1], c[0]);
    }
    return value::of_bool(is_met);
}

template <value_kind kKind> value test_kind(native_call& c) { return value::of_bool(c[0].is(kKind)); }
template <bool kWhich> value test_bool(native_call& c) {
    return value::of_bool(c[0].is_bool() && c[0].as_bool() == kWhich);
}
value test_defined(native_call& c) { return value::of_bool(!c[0].is(value_kind::undefined)); }
value test_number(native_call& c) { return value::of_bool(c[0].is_number() || c[0].is_bool()); }
value test_integer(native_call& c) { return value::of_bool(c[0].is_int() || c[0].is(value_kind::big_integer)); }
value test_iterable(native_call& c) { return value::of_bool(c.run.is_iterable(c[0])); }
value test_sameas(native_call& c) { return value::of_bool(c[0].is_same(c[1])); }
value test_escaped(native_call& c) { return value::of_bool(c[0].is_string() && c[0].as_text().is_markup); }
value test_filter(native_call& c) { return value::of_bool(c[0].is_string() && find_filter(c[0].as_string()) >= 0); }
value test_test(native_call& c) { return value::of_bool(c[0].is_string() && find_test(c[0].as_string()) >= 0); }

value test_sequence(native_call& c) { return value::of_bool(c.run.is_indexed(c[0])); }

value test_callable(native_call& c) {
    if (!c[0].is(value_kind::object)) return value::of_bool(c[0].is(value_kind::undefined));
    const int type = c[0].as_object()->type;
    return value::of_bool(type == kMacroObject || type == kFunctionObject || type == kMethodObject ||
                          type == kLoopObject || type == kJoinerObject);
}

template <int kRest> value test_parity(native_call& c) {
    return value::of_bool(c.run.equal(c.run.arithmetic('%', c[0], value::of_int(2)), value::of_int(kRest)));
}

value test_divisibleby(native_call& c) {
    return value::of_bool(c.run.equal(c.run.arithmetic('%', c[0], c[1]), value::of_int(0)));
}

template <bool kUpper> value test_case(native_call& c) {
    const value text = c.run.make(c.run.to_text(c[0]));
    call_arguments none;
    const native_function* method = c.run.failed() ? nullptr : find_method(text, kUpper ? "isupper" : "islower");
    return method ? c.run.call_native(*method, &text, none) : value();
}

constexpr native_function kTests[] = {
    {"defined", "value", test_defined},
    {"undefined", "value", test_kind<value_kind::undefined>},
    {"none", "value", test_kind<value_kind::null>},
    {"string", "value", test_kind<value_kind::string>},
    {"mapping", "value", test_kind<value_kind::map>},
    {"boolean", "value", test_kind<value_kind::boolean>},
    {"float", "value", test_kind<value_kind::real>},
    {"integer", "value", test_integer},
    {"number", "value", test_number},
    {"true", "value", test_bool<true>},
    {"false", "value", test_bool<false>},
    {"iterable", "value", test_iterable},
    {"sequence", "value", test_sequence},
    {"callable", "/obj", test_callable},
    {"sameas", "value other", test_sameas},
    {"escaped", "value", test_escaped},
    {"filter", "value", test_filter},
    {"test", "value", test_test},
    {"odd", "value", test_parity<1>},
    {"even", "value", test_parity<0>},
    {"divisibleby", "value num", test_divisibleby},
    {"lower", "value", test_case<false>},
    {"upper", "value", test_case<true>},
    {"in", "value seq", test_compare<kIn>},
    {"eq", "/a b", test_compare<kEqual>},
    {"equalto", "/a b", test_compare<kEqual>},
    {"==", "/a b", test_compare<kEqual>},
    {"ne", "/a b", test_compare<kUnequal>},
    {"!=", "/a b", test_compare<kUnequal>},
    {"lt", "/a b", test_compare<kLess>},
    {"lessthan", "/a b", test_compare<kLess>},
    {"<", "/a b", test_compare<kLess>},
    {"le", "/a b", test_compare<kLessEqual>},
    {"<=", "/a b", test_compare<kLessEqual>},
    {"gt", "/a b", test_compare<kGreater>},
    {"greaterthan", "/a b", test_compare<kGreater>},
    {">", "/a b", test_compare<kGreater>},
    {"ge", "/a b", test_compare<kGreaterEqual>},
    {">=", "/a b", test_compare<kGreaterEqual>},
};

// ---- functions known by name
// -----------------------------------------------------------------------------------------

constexpr int64_t kLongestRange = 100'000;  // as in the reference's sandbox

value global_range(native_call& c) {
    int64_t parts[3] = {0, 0, 1};
    for (int i = 0; i < 3; i++)
        if (c.given[i] && !c.run.to_index(c[i], &parts[i])) return {};
    if (!c.given[1]) std::swap(parts[0], parts[1]);
    if (parts[2] == 0) return c.run.fail("range: the step must not be zero");
    const __int128 span = parts[2] > 0 ? (__int128)parts[1] - parts[0] : (__int128)parts[0] - parts[1];
    const __int128 stride = parts[2] > 0 ? parts[2] : -(__int128)parts[2];
    const __int128 size = span > 0 ? (span + stride - 1) / stride : 0;
    if (size > kLongestRange) return c.run.fail("range: want at most " + std::to_string(kLongestRange) + " numbers");
    auto* range = new_object<range_object>(kRangeObject);
    range->start = parts[0], range->stop = parts[1], range->step = parts[2], range->size = (int64_t)size;
    return c.run.make_object(range);
}

// dict(mapping or pairs, name=value ...)
bool members_of(native_call& c, std::vector<value_member>* out) {
    if (c.rest->values.size() > 1) return c.run.fail("dict: want at most one argument without a name"), false;
    if (!c.rest->values.empty() && c.rest->values[0].is_map()) {
        *out = c.rest->values[0].members();
    } else if (!c.rest->values.empty()) {
        std::vector<value> pairs;
        if (c.rest->values[0].is(value_kind::undefined)) return c.run.fail("dict: want a mapping or pairs"), false;
        if (!c.run.collect(c.rest->values[0], &pairs)) return false;
        for (const value& pair : pairs) {
            std::vector<value> parts;
            if (!c.run.collect(pair, &parts)) return false;
            if (parts.size() != 2) return c.run.fail("dict: want pairs"), false;
            out->push_back({parts[0], parts[1]});
        }
    }
    for (const auto& [key, v] : c.rest->named) out->push_back({c.run.make(key), v});
    return !c.run.failed();
}

value global_dict(native_call& c) {
    std::vector<value_member> members;
    return members_of(c, &members) ? c.run.make_map(std::move(members)) : value();
}

value global_namespace(native_call& c) {
    const value map = global_dict(c);
    if (c.run.failed()) return {};
    auto* ns = new_object<namespace_object>(kNamespaceObject);
    const value out = c.run.make_object(ns);
    c.run.keep(out);
    for (const value_member& m : map.members()) {
        ns->names.push_back(c.run.to_text(m.key).bytes);
        ns->slots.push_back(m.val);
        if (ns->names.back().starts_with('_'))
            return c.run.fail("a name on a namespace may not begin with '_': " + ns->names.back());
    }
    return out;
}

value global_cycler(native_call& c) {
    if (c.rest->values.empty()) return c.run.fail("cycler: want at least one item");
    auto* cycler = new_object<counter_object>(kCyclerObject);
    cycler->slots = c.rest->values;
    return c.run.make_object(cycler);
}

value global_joiner(native_call& c) {
    auto* joiner = new_object<counter_object>(kJoinerObject);
    joiner->slots.push_back(c.given[0] ? c[0] : c.run.make(", "));
    return c.run.make_object(joiner);
}

value global_raise_exception(native_call& c) { return c.run.fail(c.run.to_text(c[0]).bytes); }

value global_strftime_now(native_call& c) {
    if (!c[0].is_string()) return c.run.fail("strftime_now: want a format");
    if (!c.run.has_room(c[0].as_string().size() * 16) || !c.run.charge(c[0].as_string().size())) return {};
    return c.run.make(format_time(c.run.now, c[0].as_string()));
}

value global_lipsum(native_call& c) { return c.run.fail("lipsum is not supported", DUET_ERR_UNSUPPORTED); }

constexpr native_function kGlobals[] = {
    {"range", "/start stop? step?", global_range},
    {"dict", "*", global_dict},
    {"namespace", "*", global_namespace},
    {"cycler", "*", global_cycler},
    {"joiner", "sep?", global_joiner},
    {"raise_exception", "message", global_raise_exception},
    {"strftime_now", "format", global_strftime_now},
    {"lipsum", "*", global_lipsum},
};

int32_t index_of(std::span<const native_function> table, std::string_view name) {
    const auto at = std::find_if(table.begin(), table.end(), [&](const native_function& f) { return f.name == name; });
    return at != table.end() ? (int32_t)(at - table.begin()) : -1;
}

}  // namespace

int32_t find_filter(std::string_view name) {
    const int32_t i = index_of(text_filters(), name), k = index_of(kListFilters, name);
    return i >= 0 ? i : k >= 0 ? k + (int32_t)text_filters().size() : -1;
}

const native_function& filter_at(int32_t i) {
    const int32_t n_text = (int32_t)text_filters().size();
    return i < n_text ? text_filters()[(size_t)i] : kListFilters[i - n_text];
}

int32_t find_test(std::string_view name) { return index_of(kTests, name); }
const native_function& test_at(int32_t i) { return kTests[i]; }

const native_function* find_global(std::string_view name) {
    const int32_t i = index_of(kGlobals, name);
    return i >= 0 ? &kGlobals[i] : nullptr;
}

}  // namespace duet
