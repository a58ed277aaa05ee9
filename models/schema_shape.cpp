// models/schema_shape.cpp: reads the keywords of schemas, merges schemas, and decides whether a schema accepts a value.
// Main path: models/schema -> [models/schema_shape] -> models/schema_number, models/schema_pattern
#include "schema_shape.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace duet {
namespace {

constexpr size_t kMaxWork = 1'000'000;  // comparisons of values in all, 500 for two branches
constexpr size_t kMaxDigits = 400;      // of a bound; doubles need 309 before the point

// What a keyword's value must be.
enum class want_kind : uint8_t { schema, schemas, schema_map, count, number, text, names, type, list, anything, flag };

struct keyword_row {
    std::string_view name;
    want_kind want;
};

constexpr keyword_row kKeywords[] = {
    {"type", want_kind::type},
    {"enum", want_kind::list},
    {"const", want_kind::anything},
    {"properties", want_kind::schema_map},
    {"required", want_kind::names},
    {"additionalProperties", want_kind::schema},
    {"patternProperties", want_kind::schema_map},
    {"propertyNames", want_kind::schema},
    {"minProperties", want_kind::count},
    {"maxProperties", want_kind::count},
    {"items", want_kind::schema},
    {"prefixItems", want_kind::schemas},
    {"minItems", want_kind::count},
    {"maxItems", want_kind::count},
    {"uniqueItems", want_kind::flag},
    {"minLength", want_kind::count},
    {"maxLength", want_kind::count},
    {"pattern", want_kind::text},
    {"format", want_kind::text},
    {"minimum", want_kind::number},
    {"maximum", want_kind::number},
    {"exclusiveMinimum", want_kind::number},
    {"exclusiveMaximum", want_kind::number},
    {"multipleOf", want_kind::number},
    {"anyOf", want_kind::schemas},
    {"oneOf", want_kind::schemas},
    {"allOf", want_kind::schemas},
    {"$ref", want_kind::text},
};

// Keywords that limit the value, of this draft or an older one, but are not kept to.
constexpr std::string_view kUnsupported[] = {
    "not",
    "if",
    "then",
    "else",
    "dependentRequired",
    "dependentSchemas",
    "dependencies",
    "contains",
    "minContains",
    "maxContains",
    "unevaluatedProperties",
    "unevaluatedItems",
    "additionalItems",
    "$dynamicRef",
    "$recursiveRef",
    "extends",
    "disallow",
    "divisibleBy",
};

constexpr std::pair<std::string_view, uint32_t> kTypeNames[] = {
    {"null", kJsonNull},     {"boolean", kJsonBool}, {"integer", kJsonInteger}, {"number", kJsonInteger | kJsonReal},
    {"string", kJsonString}, {"array", kJsonList},   {"object", kJsonMap},
};

uint32_t type_of_name(const value& name) {
    if (name.is_string())
        for (const auto& [text, type] : kTypeNames)
            if (name.as_string() == text) return type;
    return 0;
}

uint32_t type_of(const value& v) {
    switch (v.kind()) {
    case value_kind::null: return kJsonNull;
    case value_kind::boolean: return kJsonBool;
    case value_kind::string: return kJsonString;
    case value_kind::list: return kJsonList;
    case value_kind::map: return kJsonMap;
    default: return to_decimal(v).fraction.empty() ? kJsonInteger : kJsonReal;
    }
}

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

bool is_deep(const value& v, int limit) {
    if (limit == 0) return true;
    if (v.is_list())
        return std::any_of(v.items().begin(), v.items().end(), [&](const value& i) { return is_deep(i, limit - 1); });
    return v.is_map() && std::any_of(v.members().begin(), v.members().end(),
                                     [&](const value_member& m) { return is_deep(m.val, limit - 1); });
}

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

size_t n_chars(std::string_view utf8) {
    return (size_t)std::count_if(utf8.begin(), utf8.end(), [](char c) { return (c & 0xc0) != 0x80; });
}

}  // namespace

bool json_equal(const value& a, const value& b) {
    if (a.is_int() && b.is_int()) return a.as_int() == b.as_int();
    if (a.is(value_kind::real) && b.is(value_kind::real)) return a.as_double() == b.as_double();
    if (a.is_number() && b.is_number())
        return is_finite_number(a) && is_finite_number(b) && compare(to_decimal(a), to_decimal(b)) == 0;
    if (a.kind() != b.kind()) return false;
    if (a.is_bool()) return a.as_bool() == b.as_bool();
    if (a.is_string()) return a.as_string() == b.as_string();
    if (a.is_list())
        return std::equal(a.items().begin(), a.items().end(), b.items().begin(), b.items().end(), json_equal);
    if (!a.is_map()) return true;
    return a.members().size() == b.members().size() &&
           std::all_of(a.members().begin(), a.members().end(), [&](const value_member& m) {
               const value* other = b.find(m.key);
               return other && json_equal(m.val, *other);
           });
}

// ---- errors ---------------------------------------------------------------------------------------------------------

std::string schema_reader::place_of(const value& schema) const {
    std::string path = "#";
    find_path(root_, &schema, &path);
    return path.size() > 200 ? path.substr(0, 100) + "..." + path.substr(path.size() - 97) : path;
}

duet_status schema_reader::fail_at(const value& schema, const char* keyword, duet_status status, const char* format,
                                   ...) {
    char message[400];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    return fail(err_, status, "schema: %s%s%s: %s", place_of(schema).c_str(), keyword ? "/" : "",
                keyword ? keyword : "", message);
}

void schema_reader::note_empty(const value& schema, const char* keyword, const char* format, ...) {
    if (!why_empty_.empty()) return;
    char message[400];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    why_empty_ = place_of(schema) + (keyword ? "/" + std::string(keyword) : "") + ": " + message;
}

// ---- reading --------------------------------------------------------------------------------------------------------

duet_status schema_reader::check() {
    if (is_deep(root_, kSchemaMaxDepth))
        return fail(err_, DUET_ERR_FULL, "schema: want at most %d levels inside each other", kSchemaMaxDepth);
    return DUET_OK;
}

duet_status schema_reader::check_keyword(const value& schema, std::string_view keyword, const value& v) {
    const std::string name(keyword);
    const auto want = [&](const char* what) { return fail_at(schema, name.c_str(), DUET_ERR_FORMAT, "want %s", what); };
    const bool is_free = keyword.substr(0, 11) == "unevaluated" && v.is_bool() && v.as_bool();
    for (std::string_view other : kUnsupported)
        if (keyword == other && !is_free)
            return fail_at(schema, name.c_str(), DUET_ERR_UNSUPPORTED, "this keyword is not supported");
    const auto row =
        std::find_if(std::begin(kKeywords), std::end(kKeywords), [&](const auto& r) { return r.name == keyword; });
    if (row == std::end(kKeywords)) return DUET_OK;
    uint32_t n;
    switch (row->want) {
    case want_kind::schema: return is_schema(v) ? DUET_OK : want("a schema (an object, true, or false)");
    case want_kind::schemas:
        if (!v.is_list() || v.items().empty()) return want("a list of schemas that is not empty");
        return std::all_of(v.items().begin(), v.items().end(), is_schema) ? DUET_OK : want("a list of schemas");
    case want_kind::schema_map:
        if (!v.is_map()) return want("an object of schemas");
        for (const value_member& m : v.members())
            if (!m.key.is_string() || !is_schema(m.val)) return want("an object of schemas");
        return DUET_OK;
    case want_kind::count: return to_count(v, &n) ? DUET_OK : want("a whole number of 0 or more");
    case want_kind::number:
        if (v.is(value_kind::big_integer) && v.as_string().size() > kMaxDigits)
            return want("a number of at most 400 digits");
        return is_finite_number(v) ? DUET_OK : want("a number within the range of doubles");
    case want_kind::text: return v.is_string() ? DUET_OK : want("a string");
    case want_kind::names:
        if (!v.is_list()) return want("a list of strings");
        return std::all_of(v.items().begin(), v.items().end(), [](const value& i) { return i.is_string(); })
                   ? DUET_OK
                   : want("a list of strings");
    case want_kind::type:
        if (v.is_list() && !v.items().empty() &&
            std::all_of(v.items().begin(), v.items().end(), [](const value& i) { return type_of_name(i) != 0; }))
            return DUET_OK;
        return type_of_name(v) ? DUET_OK
                               : want("null, boolean, integer, number, string, array, object, or a list of these");
    case want_kind::list: return v.is_list() ? DUET_OK : want("a list");
    case want_kind::flag: return v.is_bool() ? DUET_OK : want("true or false");
    case want_kind::anything: return DUET_OK;
    }
    return DUET_OK;
}

duet_status schema_reader::check_keywords(const value& schema) {
    if (!checked_.insert(&schema).second) return DUET_OK;
    for (const value_member& m : schema.members())
        if (m.key.is_string()) DUET_TRY(check_keyword(schema, m.key.as_string(), m.val));
    return DUET_OK;
}

// "#", "#/path/to/it": a JSON pointer (RFC 6901) in a URI fragment.
duet_status schema_reader::resolve(const value& schema, const value& ref, const value** out) {
    std::string_view rest = ref.as_string();
    const auto fail_ref = [&](duet_status status, const char* what) {
        return fail_at(schema, "$ref", status, "want %s, got \"%s\"", what, printable(ref.as_string()).c_str());
    };
    if (rest.empty() || rest[0] != '#' || (rest.size() > 1 && rest[1] != '/'))
        return fail_ref(DUET_ERR_UNSUPPORTED, "a place in this schema (#/...)");
    rest.remove_prefix(1);
    const value* at = &root_;
    while (!rest.empty()) {
        rest.remove_prefix(1);
        std::string name;
        for (; !rest.empty() && rest[0] != '/'; rest.remove_prefix(1)) {
            uint8_t byte = 0;
            if (rest[0] == '%' && rest.size() > 2 && std::from_chars(&rest[1], &rest[3], byte, 16).ptr == &rest[3]) {
                name += (char)byte;
                rest.remove_prefix(2);
            } else if (rest[0] == '~' && rest.size() > 1 && (rest[1] == '0' || rest[1] == '1')) {
                name += rest[1] == '0' ? '~' : '/';
                rest.remove_prefix(1);
            } else {
                name += rest[0];
            }
        }
        size_t i = 0;
        if (at->is_list() &&
            std::from_chars(name.data(), name.data() + name.size(), i).ptr == name.data() + name.size() &&
            !name.empty() && i < at->items().size())
            at = &at->items()[i];
        else if (at->is_map()) at = at->find(name);
        else at = nullptr;
        if (!at) return fail_ref(DUET_ERR_FORMAT, "a place that is there");
    }
    *out = at;
    return DUET_OK;
}

duet_status schema_reader::add(const value& schema, int32_t from, int depth, schema_set* set) {
    if (depth > kSchemaMaxDepth)
        return fail_at(schema, nullptr, DUET_ERR_FULL, "want at most %d of $ref and allOf in a row", kSchemaMaxDepth);
    if (schema.is_bool()) {
        if (!schema.as_bool()) set->is_never = true;
        return DUET_OK;
    }
    if (!schema.is_map()) return fail_at(schema, nullptr, DUET_ERR_FORMAT, "want a schema (an object, true, or false)");
    DUET_TRY(check_keywords(schema));
    for (int32_t i = from; i >= 0; i = set->schemas[(size_t)i].from)
        if (set->schemas[(size_t)i].schema == &schema)
            return fail_at(schema, nullptr, DUET_ERR_FORMAT, "the schema leads back to itself without a value between");
    for (const auto& e : set->schemas)
        if (e.schema == &schema) return DUET_OK;
    if (set->schemas.size() >= kSchemaMaxMerged)
        return fail_at(schema, nullptr, DUET_ERR_FULL, "want at most %zu schemas for one value", kSchemaMaxMerged);
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
        if (c.is_exclusive) DUET_TRY(check_exclusive(s, c));
        const auto& branches = c.branches->items();
        for (size_t i = branches.size(); i-- > 0;) {
            if (++n_steps > kSchemaMaxBranches)
                return fail_at(owner, c.is_exclusive ? "oneOf" : "anyOf", DUET_ERR_FULL,
                               "want at most %zu ways to choose among branches", kSchemaMaxBranches);
            todo.push_back(s);
            DUET_TRY(add(branches[i], c.from, 0, &todo.back()));
        }
    }
    return DUET_OK;
}

// ---- merging --------------------------------------------------------------------------------------------------------

duet_status schema_reader::merge_numbers(const value& schema, schema_shape* out) {
    const auto bound = [&](const char* keyword, bool is_exclusive, number_bound* b) {
        const value* v = schema.find(keyword);
        if (v) *b = {to_decimal(*v), is_exclusive};
        return v != nullptr;
    };
    number_bound b;
    if (bound("minimum", false, &b)) out->numbers.raise_low(b);
    if (bound("exclusiveMinimum", true, &b)) out->numbers.raise_low(b);
    if (bound("maximum", false, &b)) out->numbers.lower_high(b);
    if (bound("exclusiveMaximum", true, &b)) out->numbers.lower_high(b);
    if (const value* multiple = schema.find("multipleOf")) {
        uint32_t n = 0;
        const bool is_whole = to_count(*multiple, &n) && n > 0;
        if (!is_whole || (uint64_t)n * out->numbers.divisor > kMaxDivisor)
            return fail_at(schema, "multipleOf", DUET_ERR_UNSUPPORTED, "want a whole number from 1 to %u", kMaxDivisor);
        uint32_t common = n, other = out->numbers.divisor;  // Euclid
        while (other) std::swap(common %= other, other);
        out->numbers.divisor = n / common * out->numbers.divisor;
        out->types &= ~(uint32_t)kJsonReal;
    }
    return DUET_OK;
}

duet_status schema_reader::merge(const schema_set& set, schema_shape* out) {
    *out = {};
    if (set.is_never) out->types = 0;
    for (const auto& e : set.schemas) {
        const value& s = *e.schema;
        out->schemas.push_back(&s);
        if (const value* type = s.find("type")) {
            uint32_t types = type_of_name(*type);
            if (type->is_list())
                for (const value& name : type->items()) types |= type_of_name(name);
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
            note_empty(s, nullptr, "%s %u is above %s %u", low, *min, high, *max);
        };
        raise("minLength", "maxLength", &out->min_length, &out->max_length, kJsonString);
        raise("minItems", "maxItems", &out->min_items, &out->max_items, kJsonList);
        raise("minProperties", "maxProperties", &out->min_members, &out->max_members, kJsonMap);
        if (const value* p = s.find("pattern")) out->patterns.push_back({std::string(p->as_string()), false});
        if (const value* f = s.find("format")) out->patterns.push_back({std::string(f->as_string()), true});
        if (const value* names = s.find("required"))
            for (const value& name : names->items())
                if (out->required_set.insert(name.as_string()).second) out->required.push_back(name.as_string());
    }
    for (const value* s : out->schemas) {  // a keyword matters only if the type allows its values
        const value *format = s->find("format"), *unique = s->find("uniqueItems");
        if (format && (out->types & kJsonString) && !out->has_values() && format_pattern(format->as_string()).empty())
            return fail_at(*s, "format", DUET_ERR_UNSUPPORTED, "want one of %s, got %s", known_formats(),
                           printable(format->as_string()).c_str());
        if (unique && unique->as_bool() && out->max_items > 1 && (out->types & kJsonList))
            return fail_at(*s, "uniqueItems", DUET_ERR_UNSUPPORTED,
                           "this keyword is supported with maxItems of at most 1 only");
    }
    if (out->numbers.is_empty()) {
        out->types &= ~(uint32_t)(kJsonInteger | kJsonReal);
        for (const value* s : out->schemas)
            if (s->find("minimum") || s->find("exclusiveMinimum"))
                note_empty(*s, nullptr, "the minimum is above the maximum");
    }
    out->numbers.is_integer = !(out->types & kJsonReal);
    return DUET_OK;
}

duet_status schema_reader::pattern(std::string_view text, bool is_format, const value& place,
                                   const char_automaton** out) {
    const auto [at, is_new] = patterns_.try_emplace({std::string(text), is_format});
    if (is_new) {
        error_text err;
        const std::string expression = is_format ? format_pattern(text) : std::string(text);
        const duet_status status = compile_pattern(expression, &at->second, err);
        if (status != DUET_OK) return fail_at(place, "pattern", status, "%s", err.text.c_str());
        if (at->second.is_empty()) note_empty(place, "pattern", "no string matches it");
    }
    *out = &at->second;
    return DUET_OK;
}

duet_status schema_reader::strings(const schema_shape& shape, char_automaton* out) {
    const value& place = shape.schemas.empty() ? root_ : *shape.schemas[0];
    const auto keep = [&](const char_automaton& more) -> duet_status {
        char_automaton both;
        if (!intersect(*out, more, &both))
            return fail_at(place, nullptr, DUET_ERR_FULL,
                           "want patterns and lengths that together have at most %zu states", kMaxPatternStates);
        *out = std::move(both);
        return DUET_OK;
    };
    *out = strings_of_chars({{0, 0x10ffff}});
    for (const auto& [text, is_format] : shape.patterns) {
        const char_automaton* one = nullptr;
        DUET_TRY(pattern(text, is_format, place, &one));
        DUET_TRY(keep(*one));
    }
    if (out->is_empty()) return DUET_OK;
    uint32_t shortest, longest;
    out->lengths(&shortest, &longest);
    if (shortest >= shape.min_length && longest <= shape.max_length) return DUET_OK;
    const uint32_t n_states = shape.max_length == kUnlimited ? shape.min_length : shape.max_length;
    if (n_states > kMaxPatternStates) return keep(strings_of_length(0, (uint32_t)kMaxPatternStates * 2));
    return keep(strings_of_length(shape.min_length, shape.max_length));
}

// ---- members and items ----------------------------------------------------------------------------------------------

duet_status schema_reader::member(const schema_shape& shape, std::string_view name, schema_set* out) {
    for (const value* s : shape.schemas) {
        bool is_named = false;
        const value* properties = s->find("properties");
        if (const value* p = properties ? properties->find(name) : nullptr) {
            is_named = true;
            DUET_TRY(add(*p, out));
        }
        if (const value* patterns = s->find("patternProperties"))
            for (const value_member& m : patterns->members()) {
                const char_automaton* names = nullptr;
                DUET_TRY(pattern(m.key.as_string(), false, *s, &names));
                if (!names->accepts(name)) continue;
                is_named = true;
                DUET_TRY(add(m.val, out));
            }
        const value* rest = s->find("additionalProperties");
        if (rest && !is_named) DUET_TRY(add(*rest, out));
    }
    return DUET_OK;
}

duet_status schema_reader::item(const schema_shape& shape, size_t i, schema_set* out) {
    for (const value* s : shape.schemas) {
        const value *prefix = s->find("prefixItems"), *rest = s->find("items");
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

duet_status schema_reader::accepts(const value& v, const schema_set& set, bool* out, int depth) {
    std::vector<schema_set> ways;
    DUET_TRY(choose(set, &ways));
    *out = false;
    for (const schema_set& way : ways) {
        schema_shape shape;
        DUET_TRY(merge(way, &shape));
        DUET_TRY(accepts(v, shape, out, depth));
        if (*out) return DUET_OK;
    }
    return DUET_OK;
}

duet_status schema_reader::accepts(const value& v, const schema_shape& shape, bool* out, int depth) {
    *out = false;
    if (v.is(value_kind::real) && !is_finite_number(v)) return DUET_OK;
    const uint32_t type = type_of(v);
    if (!(shape.types & type)) return DUET_OK;
    for (const auto* list : shape.enums) work_ += list->size();
    if (work_ > kMaxWork) return fail(err_, DUET_ERR_FULL, "schema: enum has too many values to compare");
    for (const auto* list : shape.enums)
        if (std::none_of(list->begin(), list->end(), [&](const value& x) { return json_equal(x, v); })) return DUET_OK;
    for (const value* constant : shape.constants)
        if (!json_equal(*constant, v)) return DUET_OK;
    if (v.is_number()) {
        *out = shape.numbers.contains(to_decimal(v));
        return DUET_OK;
    }
    if (type == kJsonMap || type == kJsonList) return accepts_members(v, shape, out, depth);
    *out = true;
    if (type != kJsonString) return DUET_OK;
    const size_t n = n_chars(v.as_string());
    *out = n >= shape.min_length && n <= shape.max_length;
    for (const auto& [text, is_format] : shape.patterns) {
        const char_automaton* strings = nullptr;
        DUET_TRY(pattern(text, is_format, root_, &strings));
        *out = *out && strings->accepts(v.as_string());
    }
    return DUET_OK;
}

duet_status schema_reader::accepts_members(const value& v, const schema_shape& shape, bool* out, int depth) {
    if (v.is_list()) {
        const size_t n = v.items().size();
        *out = n >= shape.min_items && n <= shape.max_items;
        for (size_t i = 0; i < n && *out; i++) {
            schema_set set;
            DUET_TRY(item(shape, i, &set));
            DUET_TRY(accepts(v.items()[i], set, out, depth + 1));
        }
        return DUET_OK;
    }
    const size_t n = v.members().size();
    *out = n >= shape.min_members && n <= shape.max_members;
    for (std::string_view name : shape.required) *out = *out && v.find(name);
    for (size_t i = 0; i < n && *out; i++) {
        const value_member& m = v.members()[i];
        schema_set set, name_set;
        DUET_TRY(names(shape, &name_set));
        DUET_TRY(accepts(m.key, name_set, out, depth + 1));
        if (!*out) break;
        DUET_TRY(member(shape, m.key.as_string(), &set));
        DUET_TRY(accepts(m.val, set, out, depth + 1));
    }
    return DUET_OK;
}

// ---- branches that exclude each other -------------------------------------------------------------------------------

duet_status schema_reader::check_exclusive(const schema_set& set, const schema_set::choice& c) {
    const value& owner = *set.schemas[(size_t)c.from].schema;
    const auto& branches = c.branches->items();
    std::vector<std::vector<schema_shape>> shapes(branches.size());
    for (size_t i = 0; i < branches.size(); i++) {
        schema_set branch = set;
        DUET_TRY(add(branches[i], c.from, 0, &branch));
        DUET_TRY(shapes_of(branch, &shapes[i]));
        for (size_t k = 0; k < i; k++) {
            bool is_disjoint = false;
            DUET_TRY(disjoint(shapes[k], shapes[i], 0, &is_disjoint));
            if (!is_disjoint)
                return fail_at(owner, "oneOf", DUET_ERR_UNSUPPORTED,
                               "want branches that exclude each other; %zu and %zu may hold at once", k, i);
        }
    }
    return DUET_OK;
}

duet_status schema_reader::shapes_of(const schema_set& set, std::vector<schema_shape>* out) {
    std::vector<schema_set> ways;
    DUET_TRY(choose(set, &ways));
    out->resize(ways.size());
    for (size_t i = 0; i < ways.size(); i++) DUET_TRY(merge(ways[i], &(*out)[i]));
    return DUET_OK;
}

duet_status schema_reader::disjoint(const std::vector<schema_shape>& as, const std::vector<schema_shape>& bs, int depth,
                                    bool* out) {
    *out = true;
    for (const schema_shape& a : as)
        for (const schema_shape& b : bs) {
            work_ += 500;
            if (work_ > kMaxWork) return fail(err_, DUET_ERR_FULL, "schema: oneOf has too many branches to compare");
            if (*out) DUET_TRY(disjoint(a, b, depth, out));
        }
    return DUET_OK;
}

duet_status schema_reader::disjoint(const schema_set& a, const schema_set& b, int depth, bool* out) {
    std::vector<schema_shape> as, bs;
    DUET_TRY(shapes_of(a, &as));
    DUET_TRY(shapes_of(b, &bs));
    return disjoint(as, bs, depth, out);
}

duet_status schema_reader::disjoint(const schema_shape& a, const schema_shape& b, int depth, bool* out) {
    const uint32_t types = a.types & b.types;
    *out = types == 0;
    if (types == 0 || depth > 3) return DUET_OK;
    if (a.has_values()) return disjoint_values(a, b, depth, out);
    if (b.has_values()) return disjoint_values(b, a, depth, out);
    if (types & (kJsonNull | kJsonBool)) return DUET_OK;
    if (types & (kJsonInteger | kJsonReal)) {
        number_range both = a.numbers;
        if (b.numbers.low) both.raise_low(*b.numbers.low);
        if (b.numbers.high) both.lower_high(*b.numbers.high);
        if (!both.is_empty()) return DUET_OK;
    }
    if ((types & kJsonString) && a.min_length <= b.max_length && b.min_length <= a.max_length) {
        char_automaton x, y, both;
        DUET_TRY(strings(a, &x));
        DUET_TRY(strings(b, &y));
        if (!intersect(x, y, &both) || !both.is_empty()) return DUET_OK;
    }
    *out = true;
    if (types & kJsonList) DUET_TRY(disjoint_lists(a, b, depth, out));
    if (*out && (types & kJsonMap)) DUET_TRY(disjoint_maps(a, b, depth, out));
    return DUET_OK;
}

duet_status schema_reader::disjoint_values(const schema_shape& a, const schema_shape& b, int depth, bool* out) {
    std::vector<const value*> values = a.constants;
    if (values.empty())
        for (const value& v : *a.enums[0]) values.push_back(&v);
    *out = true;
    for (const value* v : values) {
        bool is_of_a = false, is_of_b = false;
        DUET_TRY(accepts(*v, a, &is_of_a, depth));
        if (is_of_a) DUET_TRY(accepts(*v, b, &is_of_b, depth));
        if (is_of_b) *out = false;
    }
    return DUET_OK;
}

duet_status schema_reader::disjoint_lists(const schema_shape& a, const schema_shape& b, int depth, bool* out) {
    *out = a.min_items > b.max_items || b.min_items > a.max_items;
    for (size_t i = 0; i < std::min(std::max(a.min_items, b.min_items), 8u) && !*out; i++) {
        schema_set x, y;
        DUET_TRY(item(a, i, &x));
        DUET_TRY(item(b, i, &y));
        DUET_TRY(disjoint(x, y, depth + 1, out));
    }
    return DUET_OK;
}

duet_status schema_reader::disjoint_maps(const schema_shape& a, const schema_shape& b, int depth, bool* out) {
    *out = a.min_members > b.max_members || b.min_members > a.max_members;
    for (const schema_shape* shape : {&a, &b})
        for (std::string_view name : shape->required) {
            if (*out) return DUET_OK;
            schema_set x, y;
            DUET_TRY(member(a, name, &x));
            DUET_TRY(member(b, name, &y));
            DUET_TRY(disjoint(x, y, depth + 1, out));
        }
    return DUET_OK;
}

}  // namespace duet
