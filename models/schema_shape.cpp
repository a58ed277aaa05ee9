// models/schema_shape.cpp: reads the keywords of schemas, merges schemas, and decides whether a schema accepts a value.
// Main path: models/schema -> [models/schema_shape] -> models/schema_number, models/schema_pattern
#include "schema_shape.h"

#include "unicode.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>

namespace duet {

uint32_t json_type_of_name(const value& name) {
    static constexpr std::pair<std::string_view, uint32_t> kNames[] = {
        {"null", kJsonNull},     {"boolean", kJsonBool}, {"integer", kJsonInteger}, {"number", kJsonNumber},
        {"string", kJsonString}, {"array", kJsonList},   {"object", kJsonMap},
    };
    if (name.is_string())
        for (const auto& [text, type] : kNames)
            if (name.as_string() == text) return type;
    return 0;
}

uint32_t json_type_of(const value& v) {
    switch (v.kind()) {
    case value_kind::null: return kJsonNull;
    case value_kind::boolean: return kJsonBool;
    case value_kind::string: return kJsonString;
    case value_kind::list: return kJsonList;
    case value_kind::map: return kJsonMap;
    default: return to_decimal(v).fraction.empty() ? kJsonInteger : kJsonReal;
    }
}

const value* find_place(const value& root, std::string_view reference) {
    const value* found = &root;
    for (size_t at = 1; at < reference.size() && found;) {
        std::string name;
        for (at++; at < reference.size() && reference[at] != '/'; at++) {
            const char c = reference[at], next = at + 1 < reference.size() ? reference[at + 1] : '\0';
            if (c == '%' && at + 2 < reference.size() && hex_digit(next) >= 0 && hex_digit(reference[at + 2]) >= 0) {
                name += (char)(hex_digit(next) * 16 + hex_digit(reference[at + 2]));
                at += 2;
            } else if (c == '~' && (next == '0' || next == '1')) {
                name += next == '0' ? '~' : '/';
                at++;
            } else {
                name += c;
            }
        }
        size_t i = 0;
        const char* end = name.data() + name.size();
        if (!found->is_list()) found = found->find(name);
        else if (!name.empty() && std::from_chars(name.data(), end, i).ptr == end && i < found->items().size())
            found = &found->items()[i];
        else found = nullptr;
    }
    return found;
}

namespace {

constexpr size_t kMaxWork = 1'000'000;  // comparisons of values in all; see schema_reader::work
constexpr size_t kMaxDigits = 400;      // of a bound; doubles need 309 before the point

// ---- what the value of a keyword must be ----------------------------------------------------------------------------

bool is_finite_number(const value& v) {
    return v.is_number() && (!v.is(value_kind::real) || std::isfinite(v.as_double()));
}

bool is_schema(const value& v) { return v.is_map() || v.is_bool(); }

// Reads a whole number that is not negative; 2.0 counts as one. Counts beyond the type's range become the largest.
bool to_count(const value& v, uint32_t* out) {
    if (!is_finite_number(v)) return false;
    const decimal d = to_decimal(v);
    if (d.is_negative || !d.fraction.empty()) return false;
    *out = kUnlimited - 1;
    if (d.whole.size() < 10) std::from_chars(d.whole.data(), d.whole.data() + d.whole.size(), *out);
    return true;
}

uint32_t count_or(const value& schema, std::string_view keyword, uint32_t otherwise) {
    const value* v = schema.find(keyword);
    if (v) to_count(*v, &otherwise);
    return otherwise;
}

template <class Check> bool is_list_of(const value& v, Check check) {
    return v.is_list() && std::ranges::all_of(v.items(), check);
}

bool is_bound(const value& v) {
    return is_finite_number(v) && !(v.is(value_kind::big_integer) && v.as_string().size() > kMaxDigits);
}
bool is_count(const value& v) {
    uint32_t n;
    return to_count(v, &n);
}
bool is_schema_list(const value& v) { return is_list_of(v, is_schema) && !v.items().empty(); }
bool is_schema_map(const value& v) {
    return v.is_map() && std::ranges::all_of(v.members(), is_schema, &value_member::val);
}
bool is_text_list(const value& v) { return is_list_of(v, &value::is_string); }
bool is_type(const value& v) { return json_type_of_name(v) || (is_list_of(v, json_type_of_name) && v.items().size()); }

// The keywords that limit a value. Those without a check are not kept to; some are of an older draft.
// clang-format off
const struct {
    bool (*is_good)(const value&);
    const char *want, *names;
} kKeywords[] = {
    {is_schema, "a schema (an object, true, or false)", "additionalItems additionalProperties propertyNames"},
    {[](const value& v) { return is_schema(v) || is_schema_list(v); }, "a schema, or a list of schemas", "items"},
    {is_schema_list, "a list of schemas that is not empty", "prefixItems anyOf oneOf allOf"},
    {is_schema_map, "an object of schemas", "properties patternProperties"},
    {is_count, "a whole number of 0 or more", "minProperties maxProperties minItems maxItems minLength maxLength"},
    {is_bound, "a number within the range of doubles (and of at most 400 digits)",
     "minimum maximum exclusiveMinimum exclusiveMaximum multipleOf"},
    {[](const value& v) { return v.is_string(); }, "a string", "pattern format $ref"},
    {[](const value& v) { return v.is_list(); }, "a list", "enum"},
    {[](const value& v) { return v.is_bool(); }, "true or false", "uniqueItems"},
    {is_text_list, "a list of strings", "required"},
    {is_type, "null, boolean, integer, number, string, array, object, or a list of these", "type"},
    {nullptr, "", "not if then else dependentRequired dependentSchemas dependencies contains minContains maxContains "
                  "unevaluatedProperties unevaluatedItems $dynamicRef $recursiveRef extends disallow divisibleBy"},
};
// clang-format on

// Looks for a part of a value by its address, and writes the path to the part to *out.
bool find_path(const value& v, const value* wanted, std::string* out) {
    if (&v == wanted) return true;
    const size_t size = out->size();
    if (v.is_list()) {
        for (size_t i = 0; i < v.items().size(); i++) {
            *out += "/" + std::to_string(i);
            if (find_path(v.items()[i], wanted, out)) return true;
            out->resize(size);
        }
    } else if (v.is_map()) {
        for (const value_member& m : v.members()) {
            *out += "/" + (m.key.is_string() ? printable(m.key.as_string(), 40) : std::string("?"));
            if (find_path(m.val, wanted, out)) return true;
            out->resize(size);
        }
    }
    return false;
}

// Compares as JSON schema does: 1 and 1.0 are equal, 1 and true are not.
bool json_equal(const value& a, const value& b) {
    if (a.is_int() && b.is_int()) return a.as_int() == b.as_int();
    if (a.is(value_kind::real) && b.is(value_kind::real)) return a.as_double() == b.as_double();
    if (a.is_number() && b.is_number())
        return is_finite_number(a) && is_finite_number(b) && compare(to_decimal(a), to_decimal(b)) == 0;
    if (a.kind() != b.kind()) return false;
    if (a.is_bool()) return a.as_bool() == b.as_bool();
    if (a.is_string()) return a.as_string() == b.as_string();
    if (a.is_list()) return std::ranges::equal(a.items(), b.items(), json_equal);
    if (!a.is_map()) return true;
    return a.members().size() == b.members().size() &&
           std::all_of(a.members().begin(), a.members().end(), [&](const value_member& m) {
               const value* other = b.find(m.key);
               return other && json_equal(m.val, *other);
           });
}

}  // namespace

// ---- errors ---------------------------------------------------------------------------------------------------------

std::string schema_reader::place_of(const value& schema, std::string_view keyword) const {
    std::string path = "#";
    find_path(root, &schema, &path);
    if (path.size() > 200) path = path.substr(0, 100) + "..." + path.substr(path.size() - 97);
    return (path += keyword.empty() ? "" : "/") += keyword;
}

duet_status schema_reader::fail_at(const value& schema, std::string_view keyword, duet_status status,
                                   std::string_view text) {
    return fail(err, status, "schema: %s: %.*s", place_of(schema, keyword).c_str(), (int)text.size(), text.data());
}

void schema_reader::note_empty(const value& schema, std::string_view keyword, std::string_view message) {
    if (why_empty.empty() && !is_probing) (why_empty = place_of(schema, keyword) + ": ") += message;
}

// ---- reading --------------------------------------------------------------------------------------------------------

duet_status schema_reader::check_keywords(const value& schema) {
    if (!checked_.insert(&schema).second) return DUET_OK;
    for (const value_member& m : schema.members()) {
        if (!m.key.is_string()) continue;
        const std::string_view name = m.key.as_string();
        for (const auto& k : kKeywords) {
            if (!has_word(k.names, name)) continue;
            if (k.is_good && !k.is_good(m.val))
                return fail_at(schema, name, DUET_ERR_FORMAT, std::string("want ") + k.want);
            const bool is_free = name.starts_with("unevaluated") && m.val.is_bool() && m.val.as_bool();
            if (!k.is_good && !is_free && !is_lenient)
                return fail_at(schema, name, DUET_ERR_UNSUPPORTED, "this keyword is not supported");
        }
    }
    return DUET_OK;
}

duet_status schema_reader::resolve(const value& schema, const value& ref, const value** out) {
    const std::string_view path = ref.as_string();
    const auto fail_ref = [&](duet_status status, const char* what) {
        return fail_at(schema, "$ref", status, std::string("want ") + what + ", got \"" + printable(path) + "\"");
    };
    if (path != "#" && !path.starts_with("#/")) return fail_ref(DUET_ERR_UNSUPPORTED, "a place in this schema (#/...)");
    *out = find_place(root, path);
    return *out ? DUET_OK : fail_ref(DUET_ERR_FORMAT, "a place that is there");
}

duet_status schema_reader::add(const value& schema, int32_t from, int depth, schema_set* set) {
    if (depth > kSchemaMaxDepth)
        return fail_at(schema, "", DUET_ERR_FULL,
                       "want at most " + std::to_string(kSchemaMaxDepth) + " of $ref and allOf in a row");
    if (schema.is_bool()) {
        if (!schema.as_bool()) set->is_never = true;
        return DUET_OK;
    }
    if (!schema.is_map()) return fail_at(schema, "", DUET_ERR_FORMAT, "want a schema (an object, true, or false)");
    DUET_TRY(check_keywords(schema));
    for (int32_t i = from; i >= 0; i = set->schemas[(size_t)i].from)
        if (set->schemas[(size_t)i].schema == &schema)
            return fail_at(schema, "", DUET_ERR_FORMAT, "the schema leads back to itself without a value between");
    for (const auto& e : set->schemas)
        if (e.schema == &schema) return DUET_OK;
    if (set->schemas.size() >= kSchemaMaxMerged)
        return fail_at(schema, "", DUET_ERR_FULL,
                       "want at most " + std::to_string(kSchemaMaxMerged) + " schemas for one value");
    set->schemas.push_back({&schema, from});
    const int32_t self = (int32_t)set->schemas.size() - 1;
    if (const value* ref = schema.find("$ref")) {
        const value* target = nullptr;
        DUET_TRY(resolve(schema, *ref, &target));
        DUET_TRY(add(*target, self, depth + 1, set));
    }
    if (const value* all = schema.find("allOf"))
        for (const value& each : all->items()) DUET_TRY(add(each, self, depth + 1, set));
    if (const value* any = schema.find("anyOf")) set->choices.push_back({any, self, false});
    if (const value* one = schema.find("oneOf")) set->choices.push_back({one, self, true});
    return DUET_OK;
}

duet_status schema_reader::choose(const schema_set& set, std::vector<schema_set>* out) {
    std::vector<schema_set> todo = {set};  // the last is next
    size_t n_steps = 0;
    while (!todo.empty()) {
        schema_set s = std::move(todo.back());
        todo.pop_back();
        if (s.is_never) continue;
        if (s.choices.empty()) {
            out->push_back(std::move(s));
            continue;
        }
        const schema_set::choice c = s.choices.back();
        const value& owner = *s.schemas[(size_t)c.from].schema;
        s.choices.pop_back();
        if (c.is_exclusive && !is_probing && !is_lenient) DUET_TRY(check_exclusive(s, c));
        const auto& branches = c.branches->items();
        for (size_t i = branches.size(); i-- > 0;) {
            if (++n_steps > kSchemaMaxBranches || (work += s.schemas.size()) > kMaxWork)
                return fail_at(owner, c.is_exclusive ? "oneOf" : "anyOf", DUET_ERR_FULL,
                               "want at most " + std::to_string(kSchemaMaxBranches) + " ways to choose among branches");
            todo.push_back(s);
            DUET_TRY(add(branches[i], c.from, 0, &todo.back()));
        }
    }
    return DUET_OK;
}

// Any two branches must exclude each other beside the other schemas of the set.
duet_status schema_reader::check_exclusive(const schema_set& set, const schema_set::choice& c) {
    const value& owner = *set.schemas[(size_t)c.from].schema;
    const auto& branches = c.branches->items();
    for (size_t i = 0; i < branches.size(); i++)
        for (size_t k = 0; k < i; k++) {
            schema_set both = set;
            DUET_TRY(add(branches[k], c.from, 0, &both));
            DUET_TRY(add(branches[i], c.from, 0, &both));
            const bool overlap = may_have_value(*this, both);
            if ((work += 100) > kMaxWork) return fail(err, DUET_ERR_FULL, "schema: oneOf has too much to compare");
            if (overlap)
                return fail_at(owner, "oneOf", DUET_ERR_UNSUPPORTED,
                               "want branches that exclude each other; " + std::to_string(k) + " and " +
                                   std::to_string(i) + " may hold at once");
        }
    return DUET_OK;
}

// ---- merging --------------------------------------------------------------------------------------------------------

duet_status schema_reader::merge_numbers(const value& schema, schema_shape* out) {
    for (const bool is_exclusive : {false, true}) {
        if (const value* v = schema.find(is_exclusive ? "exclusiveMinimum" : "minimum"))
            out->numbers.raise_low({to_decimal(*v), is_exclusive});
        if (const value* v = schema.find(is_exclusive ? "exclusiveMaximum" : "maximum"))
            out->numbers.lower_high({to_decimal(*v), is_exclusive});
    }
    if (const value* multiple = schema.find("multipleOf")) {
        uint32_t n = 0;
        const bool is_whole = to_count(*multiple, &n) && n > 0;
        const bool is_kept = is_whole && (uint64_t)n * out->numbers.divisor <= kMaxDivisor;
        if (!is_kept && is_lenient) return DUET_OK;
        if (!is_kept)
            return fail_at(schema, "multipleOf", DUET_ERR_UNSUPPORTED,
                           "want a whole number from 1 to " + std::to_string(kMaxDivisor));
        out->numbers.divisor = std::lcm(n, out->numbers.divisor);
        out->types &= ~(uint32_t)kJsonReal;
    }
    return DUET_OK;
}

duet_status schema_reader::merge(const schema_set& set, schema_shape* out) {
    *out = {};
    if (set.is_never) out->types = 0;
    out->place = set.schemas.empty() ? &root : set.schemas[0].schema;
    std::set<std::string_view> required;
    for (const auto& e : set.schemas) {
        const value& s = *e.schema;
        out->schemas.push_back(&s);
        if (const value* type = s.find("type")) {
            uint32_t types = json_type_of_name(*type);
            if (type->is_list())
                for (const value& name : type->items()) types |= json_type_of_name(name);
            out->types &= types;
            if (out->types == 0) note_empty(s, "type", "no type is left");
        }
        if (const value* values = s.find("enum")) {
            out->enums.push_back(&values->items());
            if (values->items().empty()) note_empty(s, "enum", "it is empty");
        }
        if (const value* constant = s.find("const")) out->constants.push_back(constant);
        DUET_TRY(merge_numbers(s, out));
        const auto raise = [&](const char* low, const char* high, uint32_t* min, uint32_t* max, uint32_t type) {
            *min = std::max(*min, count_or(s, low, 0));
            *max = std::min(*max, count_or(s, high, kUnlimited));
            if (*min <= *max) return;
            out->types &= ~type;
            note_empty(s, "", low + (" " + std::to_string(*min)) + " is above " + high + " " + std::to_string(*max));
        };
        raise("minLength", "maxLength", &out->min_length, &out->max_length, kJsonString);
        raise("minItems", "maxItems", &out->min_items, &out->max_items, kJsonList);
        raise("minProperties", "maxProperties", &out->min_members, &out->max_members, kJsonMap);
        if (const value* p = s.find("pattern")) out->patterns.push_back({std::string(p->as_string())});
        if (const value* f = s.find("format")) out->patterns.push_back({format_pattern(f->as_string())});
        if (const value* names = s.find("required"))
            for (const value& name : names->items())
                if (required.insert(name.as_string()).second) out->required.push_back(name.as_string());
    }
    for (const value* s : out->schemas) {  // a keyword matters only if the type allows its values
        if (is_lenient) break;
        const value *format = s->find("format"), *unique = s->find("uniqueItems");
        if (format && (out->types & kJsonString) && !out->has_values() && format_pattern(format->as_string()).empty())
            return fail_at(*s, "format", DUET_ERR_UNSUPPORTED,
                           std::string("want one of ") + kKnownFormats + ", got " + printable(format->as_string()));
        if (unique && unique->as_bool() && out->max_items > 1 && (out->types & kJsonList))
            return fail_at(*s, "uniqueItems", DUET_ERR_UNSUPPORTED,
                           "this keyword is supported with maxItems of at most 1 only");
    }
    if (out->numbers.is_empty()) {
        out->types &= ~(uint32_t)kJsonNumber;
        for (const value* s : out->schemas)
            if (s->find("minimum") || s->find("exclusiveMinimum"))
                note_empty(*s, "", "the minimum is above the maximum");
    }
    out->numbers.is_integer = !(out->types & kJsonReal);
    return DUET_OK;
}

duet_status schema_reader::strings(const std::vector<string_condition>& conditions, const value& place,
                                   const char* keyword, const char_automaton** out) {
    const auto [at, is_new] = automata_.try_emplace(conditions);
    *out = &at->second;
    if (!is_new) return DUET_OK;
    error_text message;
    duet_status status = match_strings(conditions, &at->second, message);
    if (status == DUET_ERR_UNSUPPORTED && is_lenient) status = match_strings({}, &at->second, message);
    for (const char_automaton::state& s : at->second.states) work += (s.edges.size() + 3) / 4;
    if (status == DUET_OK && work > kMaxWork)
        status = fail(message, DUET_ERR_FULL, "want patterns of fewer states and classes in all");
    if (status == DUET_OK) return DUET_OK;
    automata_.erase(at);
    return fail_at(place, keyword, status, message.text);
}

duet_status schema_reader::string_conditions(const schema_shape& shape, std::vector<string_condition>* conditions) {
    const size_t n_before = conditions->size();
    const char_automaton* all = nullptr;
    conditions->insert(conditions->end(), shape.patterns.begin(), shape.patterns.end());
    if (is_lenient && strings(*conditions, *shape.place, "pattern", &all) == DUET_ERR_FULL)
        conditions->resize(n_before);
    if (shape.min_length == 0 && shape.max_length == kUnlimited) return DUET_OK;
    DUET_TRY(strings(*conditions, *shape.place, "pattern", &all));
    if (all->is_empty()) return DUET_OK;
    uint32_t shortest, longest, max = shape.max_length;
    all->lengths(&shortest, &longest);
    if (shortest >= shape.min_length && longest <= max) return DUET_OK;
    if (max != kUnlimited) max = std::min(max, std::max((uint32_t)kMaxPatternStates / 2, shape.min_length));
    for (const uint32_t min = shape.min_length; min < kMaxPatternStates;) {
        const std::string last = max == kUnlimited ? "" : std::to_string(max);
        conditions->push_back({"^[^]{" + std::to_string(min) + "," + last + "}$"});
        if (strings(*conditions, *shape.place, "pattern", &all) == DUET_OK) return DUET_OK;
        if (max == kUnlimited || max == min) break;
        conditions->pop_back();
        max = min + (max - min) / 2;
    }
    return fail_at(*shape.place, "", DUET_ERR_FULL,
                   "want patterns and lengths that together have at most " + std::to_string(kMaxPatternStates) +
                       " states");
}

// ---- members and items ----------------------------------------------------------------------------------------------

duet_status schema_reader::member(const schema_shape& shape, std::string_view name, schema_set* out) {
    work += is_probing ? 10 : 0;
    for (const value* s : shape.schemas) {
        const value *properties = s->find("properties"), *patterns = s->find("patternProperties"),
                    *rest = s->find("additionalProperties");
        const value* named = properties ? properties->find(name) : nullptr;
        if (named) DUET_TRY(add(*named, out));
        if (named) rest = nullptr;
        for (size_t i = 0; patterns && i < patterns->members().size(); i++) {
            const value_member& m = patterns->members()[i];
            const char_automaton* names = nullptr;
            DUET_TRY(strings({{std::string(m.key.as_string())}}, *s, "patternProperties", &names));
            if (!names->accepts(name)) continue;
            DUET_TRY(add(m.val, out));
            rest = nullptr;
        }
        if (rest) DUET_TRY(add(*rest, out));
    }
    return DUET_OK;
}

duet_status schema_reader::item(const schema_shape& shape, size_t i, schema_set* out) {
    for (const value* s : shape.schemas) {
        const value *prefix = first_items(*s), *rest = other_items(*s);
        if (prefix && i < prefix->items().size()) DUET_TRY(add(prefix->items()[i], out));
        else if (rest) DUET_TRY(add(*rest, out));
    }
    return DUET_OK;
}

duet_status schema_reader::names(const schema_shape& shape, schema_set* out) {
    for (const value* s : shape.schemas)
        if (const value* n = s->find("propertyNames")) DUET_TRY(add(*n, out));
    return DUET_OK;
}

// ---- what a schema accepts ------------------------------------------------------------------------------------------

duet_status schema_reader::accepts(const value& v, const schema_set& set, bool* out) {
    std::vector<schema_set> ways;
    DUET_TRY(choose(set, &ways));
    *out = false;
    for (size_t i = 0; i < ways.size() && !*out; i++) {
        schema_shape shape;
        DUET_TRY(merge(ways[i], &shape));
        DUET_TRY(accepts(v, shape, out));
    }
    return DUET_OK;
}

duet_status schema_reader::accepts(const value& v, const schema_shape& shape, bool* out) {
    *out = false;
    if (v.is(value_kind::real) && !is_finite_number(v)) return DUET_OK;
    const uint32_t type = json_type_of(v);
    const auto is_equal = [&](const value& x) { return json_equal(x, v); };
    for (const auto* list : shape.enums) work += list->size();
    if (work > kMaxWork) return fail(err, DUET_ERR_FULL, "schema: enum has too many values to compare");
    const auto is_in = [&](const auto* list) { return std::any_of(list->begin(), list->end(), is_equal); };
    *out = (shape.types & type) && std::all_of(shape.enums.begin(), shape.enums.end(), is_in) &&
           std::all_of(shape.constants.begin(), shape.constants.end(), [&](const value* c) { return is_equal(*c); });
    if (!*out) return DUET_OK;
    if (v.is_number()) *out = shape.numbers.contains(to_decimal(v));
    if (type == kJsonMap || type == kJsonList) return accepts_members(v, shape, out);
    if (type != kJsonString) return DUET_OK;
    const size_t n = count_chars(v.as_string());
    *out = n >= shape.min_length && n <= shape.max_length;
    for (const string_condition& pattern : shape.patterns) {
        const char_automaton* found = nullptr;
        DUET_TRY(strings({pattern}, root, "pattern", &found));
        *out = *out && found->accepts(v.as_string());
    }
    return DUET_OK;
}

duet_status schema_reader::accepts_members(const value& v, const schema_shape& shape, bool* out) {
    schema_set name_set;
    DUET_TRY(names(shape, &name_set));
    const size_t n = v.is_list() ? v.items().size() : v.members().size();
    if (v.is_list()) *out = n >= shape.min_items && n <= shape.max_items;
    else *out = n >= shape.min_members && n <= shape.max_members;
    for (std::string_view name : shape.required) *out = *out && (v.is_list() || v.find(name));
    for (size_t i = 0; i < n && *out; i++) {
        schema_set set;
        if (v.is_list()) {
            DUET_TRY(item(shape, i, &set));
            DUET_TRY(accepts(v.items()[i], set, out));
            continue;
        }
        const value_member& m = v.members()[i];
        DUET_TRY(accepts(m.key, name_set, out));
        DUET_TRY(member(shape, m.key.as_string(), &set));
        if (*out) DUET_TRY(accepts(m.val, set, out));
    }
    return DUET_OK;
}

}  // namespace duet
