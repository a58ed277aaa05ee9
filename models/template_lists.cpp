// models/template_lists.cpp: filters and methods of lists, maps and the objects of the interpreter.
// Sources: the documentation of Jinja 3.1, "List of Builtin Filters"; of Python 3.11, "Built-in Types".
// Main path: models/template_eval -> [models/template_lists]
#include "template_run.h"

#include <algorithm>
#include <set>

namespace duet {
namespace list_functions {
namespace {

// What a filter compares of an item: an attribute of it, strings without their case.
value key_of(native_call& c, const value& item, const value& path, int i_case_sensitive) {
    const value v = c.run.get_path(item, path);
    if (!v.is_string() || c.flag(i_case_sensitive) || !c.run.charge(v.as_string().size())) return v;
    return c.run.make(change_case(v.as_text(), python_case::lower));
}

struct keyed_item {
    value key, item;
};

void sort_items(native_call& c, std::vector<keyed_item>* items, bool is_reverse) {
    std::stable_sort(items->begin(), items->end(), [&](const keyed_item& a, const keyed_item& b) {
        return !c.run.failed() && (is_reverse ? c.run.less(b.key, a.key) : c.run.less(a.key, b.key));
    });
}

value sorted_list(native_call& c, std::vector<keyed_item> items, bool is_reverse) {
    sort_items(c, &items, is_reverse);
    std::vector<value> out;
    for (keyed_item& i : items) out.push_back(std::move(i.item));
    return c.run.make_list(std::move(out));
}

value generator(native_call& c, std::vector<value> items) {
    return c.run.make_object(kGeneratorObject, {c.run.make_list(std::move(items)), value()});
}

// ---- filters ----

value first(native_call& c) {
    size_t at = 0;
    value item;
    if (!c.run.is_iterable(c[0])) return c.run.fail("first: this is not iterable");
    return c.run.next_item(c[0], &at, &item) ? item : c.run.undefined("No first item, sequence was empty.");
}

value last(native_call& c) {
    if (object_of(c[0], kGeneratorObject)) return c.run.fail("last: a generator is not reversible");
    if (c[0].is_sequence() && !c[0].items().empty()) return c[0].items().back();
    const std::vector<value> items = c.items();
    return items.empty() ? c.run.undefined("No last item, sequence was empty.") : items.back();
}

value random(native_call& c) {  // without chance: the first
    const std::vector<value> items = c.items();
    return items.empty() ? c.run.undefined("No random item, sequence was empty.") : items[0];
}

value reverse(native_call& c) {
    if (c[0].is_string()) return c.run.get_slice(c[0], {}, {}, value::of_int(-1));
    std::vector<value> items = c.items();
    std::reverse(items.begin(), items.end());
    return object_of(c[0], kGeneratorObject) ? c.run.make_list(std::move(items)) : generator(c, std::move(items));
}

// attribute may name several, with commas between them.
value sort(native_call& c) {
    std::vector<value> paths = {c[3]};
    if (c[3].is_string()) {
        std::string_view rest = c[3].as_string();
        for (size_t comma; (comma = rest.find(',')) != rest.npos; rest.remove_prefix(comma + 1))
            paths.insert(paths.end() - 1, c.run.make(std::string(rest.substr(0, comma))));
        paths.back() = c.run.make(std::string(rest));
    }
    std::vector<keyed_item> keyed;
    for (const value& item : c.items()) {
        std::vector<value> keys;
        for (const value& path : paths) keys.push_back(key_of(c, item, path, 2));
        if (c.run.failed()) return {};
        keyed.push_back({c.run.make_list(std::move(keys)), item});
    }
    return sorted_list(c, std::move(keyed), c.flag(1));
}

value dictsort(native_call& c) {
    const std::string& by = c.text(2, "key").bytes;
    if (!c[0].is_map()) return c.run.fail("dictsort: want a mapping");
    if (by != "key" && by != "value") return c.run.fail("dictsort: want to sort by 'key' or 'value'");
    std::vector<keyed_item> keyed;
    for (const value_member& m : c[0].members())
        keyed.push_back({key_of(c, by == "key" ? m.key : m.val, {}, 1), c.run.make_tuple({m.key, m.val})});
    return sorted_list(c, std::move(keyed), c.flag(3));
}

value groupby(native_call& c) {
    std::vector<value> groups;
    std::vector<keyed_item> keyed;
    auto attribute_of = [&](const value& item) {
        const value v = c.run.get_path(item, c[1]);
        return v.is(value_kind::undefined) && c.has(2) ? c[2] : v;
    };
    for (const value& item : c.items()) keyed.push_back({key_of(c, attribute_of(item), {}, 3), item});
    sort_items(c, &keyed, false);
    for (size_t i = 0, end; i < keyed.size() && !c.run.failed(); i = end) {
        std::vector<value> members = {keyed[i].item};
        for (end = i + 1; end < keyed.size() && c.run.equal(keyed[end].key, keyed[i].key); end++)
            members.push_back(keyed[end].item);
        groups.push_back(c.run.make_tuple({attribute_of(keyed[i].item), c.run.make_list(std::move(members))}));
    }
    return c.run.make_list(std::move(groups));
}

value unique(native_call& c) {
    auto is_before = [](const value& a, const value& b) { return compare_keys(a, b) < 0; };
    std::set<value, decltype(is_before)> seen;
    std::vector<value> out;
    for (const value& item : c.items()) {
        const value key = key_of(c, item, c[2], 1);
        if (!c.run.is_hashable(key)) return c.run.fail("unique: unhashable type");
        if (c.run.charge(4) && c.run.has_room(seen.size() * 64) && seen.insert(key).second) out.push_back(item);
    }
    return generator(c, std::move(out));
}

value sum(native_call& c) {
    value total = c.given[2] ? c[2] : value::of_int(0);
    if (total.is_string()) return c.run.fail("sum: cannot sum strings");
    for (const value& item : c.items()) {
        if (c.run.failed()) break;
        total = c.run.arithmetic('+', total, c.run.get_path(item, c[1]));
    }
    return total;
}

template <bool kMax> value extreme(native_call& c) {
    std::vector<keyed_item> best;
    for (const value& item : c.items()) {
        const value key = key_of(c, item, c[2], 1);
        if (c.run.failed()) return {};
        if (best.empty()) best.push_back({key, item});
        else if (kMax ? c.run.less(best[0].key, key) : c.run.less(key, best[0].key)) best[0] = {key, item};
    }
    return best.empty() ? c.run.undefined("No aggregated item, sequence was empty.") : best[0].item;
}

value batch(native_call& c) {
    std::vector<value> lists, part;
    const int64_t n = c.integer(1);
    for (const value& item : c.items()) {
        if ((int64_t)part.size() == n) lists.push_back(c.run.make_list(std::exchange(part, {})));
        part.push_back(item);
    }
    if (part.empty()) return generator(c, std::move(lists));
    if (c.has(2) && n > 0 && c.run.has_room((size_t)std::min<int64_t>(n, INT64_MAX / 16) * sizeof(value)))
        part.resize(std::max(part.size(), (size_t)n), c[2]);
    lists.push_back(c.run.make_list(std::move(part)));
    return generator(c, std::move(lists));
}

value slice(native_call& c) {
    const std::vector<value> items = c.items();
    const int64_t n = c.integer(1), size = (int64_t)items.size();
    if (n == 0) return c.run.fail("slice: want at least one slice");
    if (n > 0 && !c.run.has_room((size_t)std::min<int64_t>(n, INT64_MAX / 256) * 128)) return {};
    std::vector<value> lists;
    auto at = items.begin();
    for (int64_t i = 0; i < n && c.run.charge(1); i++) {
        const bool is_longer = i < size % n;
        std::vector<value> part(at, at + size / n + is_longer);
        at += size / n + is_longer;
        if (c.has(2) && !is_longer) part.push_back(c[2]);
        lists.push_back(c.run.make_list(std::move(part)));
    }
    return generator(c, std::move(lists));
}

value items(native_call& c) {
    std::vector<value> pairs;
    if (!c[0].is_map() && !c[0].is(value_kind::undefined))
        return c.run.fail("items: can only get item pairs from a mapping");
    for (const value& key : c.items()) {
        if (c.run.failed()) break;
        if (const value* v = c[0].find(key)) pairs.push_back(c.run.make_tuple({key, *v}));
    }
    return generator(c, std::move(pairs));
}

value attr(native_call& c) {
    const std::string& name = c.text(1).bytes;
    return !c[0].is_map() || find_method(c[0], name) ? c.run.get_attribute(c[0], name) : c.run.no_attribute(c[0], name);
}

// ---- filters that compute their items when they are asked for them ----

// slots: what false, none or 0 has instead of items is none at all, as in the reference; a path; the arguments from
// n_used on.
value lazy(native_call& c, char how, const value& path, size_t n_used, template_object** out) {
    std::vector<value> slots = {c.run.is_true(c[0]) ? c[0] : c.run.make_list({}), path};
    slots.insert(slots.end(), c.rest->values.begin() + (long)n_used, c.rest->values.end());
    for (auto& [key, v] : c.rest->named) slots.push_back(v);
    const value generator = c.run.make_object(kGeneratorObject, std::move(slots), out);
    for (auto& [key, v] : c.rest->named) (*out)->names.push_back(key);
    (*out)->how = how;
    return generator;
}

value map(native_call& c) {
    template_object* g;
    if (!c.rest->values.empty()) {
        const value out = lazy(c, 'f', {}, 1, &g);
        if (c.rest->values[0].is_string()) g->function = find_filter(c.rest->values[0].as_string());
        return out;
    }
    value attribute, otherwise;
    size_t n_known = 0;
    for (const auto& [key, v] : std::exchange(c.rest->named, {})) {
        n_known += key == "attribute" ? 1 : key == "default" ? 2 : 100;
        if (key != "default") attribute = v;
        else if (otherwise = v; !v.is_null()) c.rest->values = {v};
    }
    if (n_known != 1 && n_known != 3) return c.run.fail("map: want the name of a filter, or attribute=");
    return lazy(c, 'a', attribute, 0, &g);
}

template <bool kWanted, bool kAttribute> value select(native_call& c) {
    const auto& values = c.rest->values;
    if (kAttribute && values.empty()) return c.run.fail("selectattr: want the name of an attribute");
    const bool has_test = values.size() > kAttribute;
    template_object* g;
    const value out = lazy(c, has_test ? 't' : 's', kAttribute ? values[0] : value(), kAttribute + has_test, &g);
    g->wanted = kWanted;
    if (has_test && values[kAttribute].is_string()) g->function = find_test(values[kAttribute].as_string());
    return out;
}

// ---- methods ----

value count(native_call& c) {
    int64_t n = 0;
    for (const value& item : c[0].items()) n += c.run.charge(1) && (item.is_same(c[1]) || c.run.equal(item, c[1]));
    return value::of_int(n);
}

value index(native_call& c) {
    slice_range at;
    if (!c.run.to_slice(c[2], c[3], {}, (int64_t)c[0].items().size(), &at))
        return c.run.fail("slice indices must be integers");
    for (int64_t i = at.first; i < at.first + at.size; i++)
        if (const value& x = c[0].items()[(size_t)i]; c.run.charge(1) && (x.is_same(c[1]) || c.run.equal(x, c[1])))
            return value::of_int(i);
    return c.run.fail("the value is not in the list");
}

value get(native_call& c) {
    if (!c.run.is_hashable(c[1])) return c.run.fail("unhashable type: this cannot be a key");
    const value* found = c[0].find(c[1]);
    return found ? *found : c[2];
}

template <char kPart> value view(native_call& c) {
    template_object* o;
    const value out = c.run.make_object(kViewObject, {c[0]}, &o);
    o->how = kPart;
    return out;
}

value next(native_call& c) {
    template_object* cycler = object_of(c[0]);
    return cycler->slots[cycler->at++ % cycler->slots.size()];
}

value cycle(native_call& c) {
    if (c.rest->values.empty()) return c.run.fail("no items for cycling given");
    return c.rest->values[(size_t)std::max<int64_t>(object_of(c[0])->index0, 0) % c.rest->values.size()];
}

value changed(native_call& c) {
    template_object* loop = object_of(c[0]);
    const value now = c.run.make_tuple(c.rest->values);
    if (loop->has_changed && c.run.equal(loop->slots[kLoopChanged], now)) return value::of_bool(false);
    loop->has_changed = true;
    loop->slots[kLoopChanged] = now;
    return value::of_bool(true);
}

// clang-format off
constexpr native_function kFilters[] = {
    {"length count", "/obj", [](native_call& c) { return value::of_int(c.run.length(c[0])); }},
    {"list", "value", [](native_call& c) { return c.run.make_list(c.items()); }},
    {"first", "seq", first},
    {"last", "seq", last},
    {"random", "seq", random},
    {"reverse", "value", reverse},
    {"sort", "value reverse? case_sensitive? attribute?", sort},
    {"dictsort", "value case_sensitive? by? reverse?", dictsort},
    {"groupby", "value attribute default? case_sensitive?", groupby},
    {"unique", "value case_sensitive? attribute?", unique},
    {"sum", "iterable attribute? start?", sum},
    {"min", "value case_sensitive? attribute?", extreme<false>},
    {"max", "value case_sensitive? attribute?", extreme<true>},
    {"batch", "value linecount fill_with?", batch},
    {"slice", "value slices fill_with?", slice},
    {"items", "value", items},
    {"attr", "obj name", attr},
    {"map", "value *", map},
    {"select", "value *", select<true, false>},
    {"reject", "value *", select<false, false>},
    {"selectattr", "value *", select<true, true>},
    {"rejectattr", "value *", select<false, true>},
};
constexpr native_function kListMethods[] = {
    {"index", "/l value start? stop?", index},
    {"count", "/l value", count},
    {"copy", "/l", [](native_call& c) { return c.run.make_list(c[0].items()); }},  // the last one: tuples have none
};
constexpr native_function kMapMethods[] = {
    {"get", "/d key default?", get},
    {"items", "/d", view<'i'>},
    {"keys", "/d", view<'k'>},
    {"values", "/d", view<'v'>},
    {"copy", "/d", [](native_call& c) { return c.run.make_map(c[0].members()); }},
};
constexpr native_function kCyclerMethods[] = {
    {"next", "/c", next},
    {"reset", "/c", [](native_call& c) { return object_of(c[0])->at = 0, value(); }},
};
constexpr native_function kLoopMethods[] = {
    {"cycle", "/l *", cycle},
    {"changed", "/l *", changed},
};
constexpr native_function kBytesMethods[] = {
    {"decode", "b encoding? errors?", [](native_call& c) { return c[0].as_object()->slots[0]; }},
};
// clang-format on

std::span<const native_function> methods_of(const value& v) {
    if (v.is_map()) return kMapMethods;
    if (v.is_string()) return kStringMethods;
    if (v.is_list()) return kListMethods;
    if (v.is(value_kind::tuple)) return std::span(kListMethods).first(2);
    if (v.is(value_kind::real)) return kRealMethods;
    if (v.is_numeric()) return kIntegerMethods;
    if (object_of(v, kCyclerObject)) return kCyclerMethods;
    if (object_of(v, kLoopObject)) return kLoopMethods;
    if (object_of(v, kBytesObject)) return kBytesMethods;
    return {};
}

}  // namespace
}  // namespace list_functions

const std::span<const native_function> kListFilters = list_functions::kFilters;

const native_function* find_method(const value& self, std::string_view name) {
    return find_function(list_functions::methods_of(self), name);
}

// Methods of Python that change a list or a map: the reference's sandbox refuses them.
bool is_forbidden_method(const value& self, std::string_view name) {
    if (self.is_list()) return has_word("append clear extend insert pop remove reverse sort", name);
    return self.is_map() && has_word("clear pop popitem setdefault update fromkeys", name);
}

}  // namespace duet
