// models/schema.cpp: turns the shapes of values into parts of a grammar.
// Main path: models/value -> [models/schema] -> models/grammar_build
//
// Each conjunction of schemas (schema_shape.h) that holds for some value becomes one rule, made once. So recursion in a
// schema becomes recursion of rules. A list of pending conjunctions replaces recursion in the code.
#include "schema.h"

#include "schema_shape.h"

#include <algorithm>

namespace duet {
namespace {

using expr = grammar_builder::expr;

// A character of a string, as JSON may write it. A pair of surrogates is one character.
constexpr char kCharacter[] = R"(
character ::= [^\x00-\x1f"\\] | "\\" (["\\/bfnrt] | "u" (unit | high "\\u" [Dd] [C-Fc-f] hex hex))
unit ::= [0-9A-CEFa-cef] hex hex hex | [Dd] [0-7] hex hex
high ::= [Dd] [89ABab] hex hex
hex ::= [0-9A-Fa-f]
)";

constexpr const char* kPrintable = "^[ -~]*$";

class schema_compiler {
  public:
    schema_compiler(schema_reader& reader, const schema_options& options, grammar_builder& builder)
        : options_(options), b_(builder), err_(reader.err), reader_(reader) {}

    duet_status compile(const schema_set& set, expr* out) {
        make_common_rules();
        *out = rule_of(set);
        for (size_t i = 0; i < todo_.size(); i++) {
            const pending p = todo_[i];  // a copy: the list grows
            expr part = 0;
            DUET_TRY(compile_set(p.set, &part));
            if (reader_.is_probing) reader_.work += 30;
            b_.define(p.rule, part);
            if (b_.is_full()) return fail(err_, DUET_ERR_FULL, "schema: want at most %zu parts", kGrammarMaxNodes);
        }
        return DUET_OK;
    }

  private:
    using graph_edge = grammar_builder::graph_edge;
    struct pending {
        schema_set set;
        uint32_t rule;
    };
    struct member_part {
        expr pair;
        bool is_required;
    };

    // ---- rules ----

    expr named_rule(const char* name, expr part) {
        const uint32_t rule = b_.add_rule(name);
        b_.define(rule, part);
        return b_.call(rule);
    }

    void make_common_rules() {
        if (options_.max_indent > 0) {
            const expr blanks = b_.repeat(b_.one_char({{' ', ' '}, {'\t', '\t'}}), 0, options_.max_indent);
            const expr indent = b_.sequence({b_.literal("\n"), blanks});
            space_ = named_rule("space", b_.any_of({b_.empty(), b_.literal(" "), indent}));
        }
        comma_ = b_.sequence({b_.literal(","), space_});
        if (reader_.is_probing) {  // what strings hold does not matter
            any_char_ = b_.literal("c");
        } else {
            uint32_t rule = 0;
            error_text unused;  // the text is good
            parse_gbnf(kCharacter, "character", b_, &rule, unused);
            any_char_ = b_.call(rule);
        }
        any_string_ = named_rule("string", in_quotes(b_.repeat(any_char_, 0)));
    }

    expr in_quotes(expr part) { return b_.sequence({b_.literal("\""), part, b_.literal("\"")}); }

    // Returns the rule for a conjunction. Equal conjunctions share one rule.
    expr rule_of(const schema_set& set) {
        std::vector<const void*> key;
        for (const auto& e : set.schemas) key.push_back(e.schema);
        for (const auto& c : set.choices) key.push_back(c.branches);
        std::sort(key.begin(), key.end());
        if (set.is_never) return b_.nothing();
        const auto [at, is_new] = rules_.try_emplace(std::move(key), 0);
        if (is_new) {
            at->second = b_.add_rule("value");
            todo_.push_back({set, at->second});
        }
        return b_.call(at->second);
    }

    duet_status compile_set(const schema_set& set, expr* out) {
        std::vector<schema_set> ways;
        DUET_TRY(reader_.choose(set, &ways));
        std::vector<expr> choices;
        for (const schema_set& way : ways) {
            if (!set.choices.empty()) {
                choices.push_back(rule_of(way));
                continue;
            }
            schema_shape shape;
            DUET_TRY(reader_.merge(way, &shape));
            DUET_TRY(compile_shape(shape, &choices.emplace_back()));
        }
        *out = b_.any_of(choices);
        return DUET_OK;
    }

    duet_status compile_shape(const schema_shape& shape, expr* out) {
        if (shape.has_values()) return compile_values(shape, out);
        std::vector<expr> choices;
        if (shape.types & kJsonMap) DUET_TRY(compile_map(shape, &choices.emplace_back()));
        if (shape.types & kJsonList) DUET_TRY(compile_list(shape, &choices.emplace_back()));
        if (shape.types & kJsonString) DUET_TRY(compile_string(shape, &choices.emplace_back()));
        if (shape.types & kJsonNumber) choices.push_back(number_part(b_, shape.numbers));
        if (shape.types & kJsonBool) choices.push_back(b_.one_of_texts({"true", "false"}));
        if (shape.types & kJsonNull) choices.push_back(b_.literal("null"));
        *out = b_.any_of(choices);
        return DUET_OK;
    }

    duet_status compile_values(const schema_shape& shape, expr* out) {
        std::vector<const value*> values = shape.constants;
        schema_shape rest = shape;  // all limits on a value of the list, except being in the list
        if (values.empty()) {
            for (const value& v : *shape.enums[0]) values.push_back(&v);
            rest.enums.erase(rest.enums.begin());
        }
        std::vector<std::string> texts;
        for (const value* v : values) {
            bool is_valid = false;
            DUET_TRY(reader_.accepts(*v, rest, &is_valid));
            if (!is_valid) continue;
            traced_text text;
            DUET_TRY(write_json(*v, {}, &text, err_));
            texts.push_back(std::move(text.bytes));
        }
        if (texts.empty()) reader_.note_empty(*shape.place, "", "no value of enum or const is valid");
        *out = b_.one_of_texts(std::move(texts));
        return DUET_OK;
    }

    // ---- strings ----

    static std::string quoted(std::string_view text) {
        traced_text out;
        error_text unused;  // unused, because a string can always be written
        write_json(value::of_string(std::string(text)), {}, &out, unused);
        return out.bytes;
    }

    // Matches one of the characters, written in JSON with the fewest escapes. A set with more than plain ASCII becomes
    // a rule that all its uses share.
    expr char_part(const std::vector<code_range>& ranges) {
        const auto [at, is_new] = chars_.try_emplace(ranges, 0);
        if (!is_new) return at->second;
        std::vector<code_range> others = complement_of(ranges);
        others.insert(others.end(), {{0, 0x1f}, {'"', '"'}, {'\\', '\\'}});
        std::vector<expr> choices;
        const std::vector<code_range> plain = complement_of(others);
        if (!plain.empty()) choices.push_back(b_.one_char(plain));
        std::vector<std::string> escaped;
        for (const code_range& r : ranges)
            for (uint32_t c = r.lo; c <= std::min(r.hi, (uint32_t)'\\'); c++) {
                if (c >= 0x20 && c != '"' && c != '\\') continue;
                const std::string text = quoted(std::string(1, (char)c));
                escaped.push_back(text.substr(1, text.size() - 2));
            }
        if (!escaped.empty()) choices.push_back(b_.one_of_texts(escaped));
        at->second = b_.any_of(choices);
        if (!escaped.empty() || plain.back().hi > 0x7f) at->second = named_rule("character", at->second);
        return at->second;
    }

    // Matches the strings of an automaton.
    expr automaton_part(const char_automaton& a) {
        std::vector<graph_edge> edges;
        std::vector<uint32_t> ends;
        for (uint32_t s = 0; s < a.states.size(); s++) {
            std::map<uint32_t, std::vector<code_range>> targets;
            for (const auto& e : a.states[s].edges) targets[e.to].push_back({e.lo, e.hi});
            for (const auto& [to, ranges] : targets) edges.push_back({s, char_part(ranges), to});
            if (a.states[s].is_end) ends.push_back(s);
        }
        return a.is_empty() ? b_.nothing() : in_quotes(b_.graph((uint32_t)a.states.size(), edges, ends));
    }

    duet_status compile_string(const schema_shape& shape, expr* out) {
        *out = any_string_;
        if (!shape.patterns.empty()) {
            std::vector<string_condition> conditions;
            const char_automaton* strings = nullptr;
            DUET_TRY(reader_.string_conditions(shape, &conditions));
            DUET_TRY(reader_.strings(conditions, *shape.place, "pattern", &strings));
            if (strings->is_empty()) reader_.note_empty(*shape.place, "pattern", "no string matches it");
            *out = automaton_part(*strings);
        } else if (shape.min_length > 0 || shape.max_length != kUnlimited) {
            *out = in_quotes(b_.repeat(any_char_, shape.min_length, shape.max_length));
        }
        return DUET_OK;
    }

    // ---- lists ----

    duet_status compile_list(const schema_shape& shape, expr* out) {
        size_t n_prefix = 0;
        bool has_rest = false, has_prefix = false;
        for (const value* s : shape.schemas) {
            const value* prefix = first_items(*s);
            if (prefix) n_prefix = std::max(n_prefix, prefix->items().size());
            has_prefix = has_prefix || prefix;
            has_rest = has_rest || other_items(*s);
        }
        uint32_t max = reader_.is_probing ? shape.min_items : shape.max_items;
        if (has_prefix && !has_rest) max = std::min(max, std::max((uint32_t)n_prefix, shape.min_items));
        // State i means that i items were written. The last state repeats the items behind the prefix.
        const uint32_t n_states = (uint32_t)std::min<size_t>(std::max<size_t>(n_prefix, 1), max), end = n_states + 1;
        const expr close = b_.sequence({space_, b_.literal("]")});
        std::vector<graph_edge> edges;
        for (uint32_t i = 0; i <= n_states; i++) {
            if (i >= shape.min_items) edges.push_back({i, close, end});
            if (i == max) break;
            schema_set set;
            DUET_TRY(reader_.item(shape, i, &set));
            const expr item = rule_of(set), next = i == 0 ? item : b_.sequence({comma_, item});
            if (i < n_states) {
                edges.push_back({i, next, i + 1});
                continue;
            }
            const uint32_t low = shape.min_items > i ? shape.min_items - i : 1;
            const expr rest = b_.repeat(next, low, max == kUnlimited ? kUnlimited : max - i);
            edges.push_back({i, b_.sequence({rest, close}), end});
        }
        *out = b_.sequence({b_.literal("["), space_, b_.graph(end + 1, edges, {end})});
        return DUET_OK;
    }

    // ---- objects ----

    // Names that the schema does not list, whose members obey the same schemas.
    struct name_class {
        std::vector<string_condition> names;
        schema_set members;
    };

    expr pair_part(expr name, expr member) { return b_.sequence({name, b_.literal(":"), space_, member}); }

    // Returns the members by name, in order: those of `properties`, then those that only `required` has.
    duet_status compile_members(const schema_shape& shape, const schema_set& names,
                                const std::vector<std::string_view>& order, std::vector<member_part>* out) {
        const std::set<std::string_view> required(shape.required.begin(), shape.required.end());
        for (std::string_view name : order) {
            const bool is_required = required.count(name) > 0;
            if (reader_.is_probing && !is_required && shape.min_members <= required.size()) continue;
            bool is_valid = false;
            DUET_TRY(reader_.accepts(value::of_string(std::string(name)), names, &is_valid));
            schema_set set;
            DUET_TRY(reader_.member(shape, name, &set));
            is_valid = is_valid && !set.is_never;
            if (is_required && !is_valid)
                reader_.note_empty(*shape.place, "required", "a member \"" + printable(name) + "\" is never valid");
            if (is_valid) out->push_back({pair_part(b_.literal(quoted(name)), rule_of(set)), is_required});
            else if (is_required) out->push_back({b_.nothing(), true});
        }
        return DUET_OK;
    }

    duet_status too_many(const schema_shape& shape, const char* keyword, const char* what) {
        return reader_.fail_at(*shape.place, keyword, DUET_ERR_FULL, what);
    }

    // Adds the names for which one more condition holds, unless there are none.
    duet_status add_names(const name_class& c, std::vector<string_condition> more, const value& place,
                          std::vector<name_class>* out) {
        more.insert(more.begin(), c.names.begin(), c.names.end());
        const char_automaton* strings = nullptr;
        DUET_TRY(reader_.strings(more, place, "patternProperties", &strings));
        if (!strings->is_empty()) out->push_back({std::move(more), c.members});
        return DUET_OK;
    }

    duet_status find_name_classes(const schema_shape& shape, const schema_set& names,
                                  const std::vector<std::string_view>& known, std::vector<name_class>* out) {
        std::vector<schema_set> ways;
        DUET_TRY(reader_.choose(names, &ways));
        if (ways.empty()) return DUET_OK;
        schema_shape name_shape;
        DUET_TRY(reader_.merge(ways[0], &name_shape));
        if (!reader_.is_lenient && (ways.size() > 1 || name_shape.has_values()))
            return reader_.fail_at(*shape.place, "propertyNames", DUET_ERR_UNSUPPORTED,
                                   "anyOf and oneOf are not supported here");
        if (!(name_shape.types & kJsonString)) return DUET_OK;
        std::vector<string_condition> all = {{"^[ -\\u{10ffff}]*$"}};
        if (!known.empty()) all.push_back({list_pattern(known), true});
        DUET_TRY(reader_.string_conditions(name_shape, &all));
        DUET_TRY(add_names({}, all, *shape.place, out));
        for (const value* s : shape.schemas) {
            const value *patterns = s->find("patternProperties"), *rest = s->find("additionalProperties");
            std::vector<name_class> matched;
            for (size_t p = 0; patterns && p < patterns->members().size(); p++) {
                const value_member& m = patterns->members()[p];
                const std::string pattern(m.key.as_string());
                std::vector<name_class> both;
                for (auto* list : {&matched, out}) {
                    std::vector<name_class> others;
                    for (const name_class& c : *list) {
                        const size_t n = both.size();
                        DUET_TRY(add_names(c, {{pattern}}, *s, &both));
                        if (both.size() > n) DUET_TRY(reader_.add(m.val, &both.back().members));
                        // Validators differ in how a pattern treats other characters.
                        DUET_TRY(add_names(c, {{pattern, true}, {kPrintable}}, *s, &others));
                    }
                    *list = std::move(others);
                }
                matched.insert(matched.end(), both.begin(), both.end());
                if (matched.size() + out->size() > kSchemaMaxNameClasses)
                    return too_many(shape, "patternProperties", "want fewer patterns");
            }
            for (name_class& c : *out)
                if (rest) DUET_TRY(reader_.add(*rest, &c.members));
            out->insert(out->end(), matched.begin(), matched.end());
        }
        std::erase_if(*out, [](const name_class& c) { return c.members.is_never; });
        return DUET_OK;
    }

    // Matches any one of the members without a name in the schema, if the name's length is i more than a multiple of n.
    duet_status other_member(const schema_shape& shape, const std::vector<name_class>& classes, uint32_t i, uint32_t n,
                             expr* out) {
        std::vector<expr> choices;
        for (const name_class& c : classes) {
            std::vector<string_condition> names = c.names;
            if (n > 1) names.push_back({"^(?:[^]{" + std::to_string(n) + "})*[^]{" + std::to_string(i) + "}$"});
            const char_automaton* strings = nullptr;
            DUET_TRY(reader_.strings(names, *shape.place, "minProperties", &strings));
            if (!strings->is_empty()) choices.push_back(pair_part(automaton_part(*strings), rule_of(c.members)));
        }
        if (choices.empty())
            return reader_.fail_at(*shape.place, "minProperties", DUET_ERR_UNSUPPORTED,
                                   "want names of each length that " + std::to_string(n) + " different members need");
        *out = named_rule("member", b_.any_of(choices));
        return DUET_OK;
    }

    // The members without a name in the schema, which may follow the named ones, as many as minProperties and
    // maxProperties want.
    struct other_members {
        bool are_allowed = false;
        expr any = 0;
        std::vector<expr> distinct;  // with names that differ, as many as minProperties may need
    };

    // Matches at least low and at most high members without a name in the schema. is_first: no member stands before
    // them.
    expr others_part(const other_members& others, uint32_t low, uint32_t high, bool is_first) {
        if (low > high || (low > 0 && !others.are_allowed)) return b_.nothing();
        if (high == 0 || !others.are_allowed) return b_.empty();
        std::vector<expr> parts;
        for (uint32_t i = 0; i < std::max(low, 1u); i++) {
            const expr one = low > 1 ? others.distinct[i] : others.any;
            parts.push_back(i == 0 && is_first ? one : b_.sequence({comma_, one}));
        }
        const uint32_t n_more = high == kUnlimited ? high : high - std::max(low, 1u);
        parts.push_back(b_.repeat(b_.sequence({comma_, others.any}), 0, n_more));
        return low > 0 ? b_.sequence(parts) : b_.optional(b_.sequence(parts));
    }

    duet_status compile_map(const schema_shape& shape, expr* out) {
        std::vector<std::string_view> order;
        std::set<std::string_view> seen;
        const auto put = [&](const value& name) {
            if (name.is_string() && seen.insert(name.as_string()).second) order.push_back(name.as_string());
        };
        bool has_properties = false, wants_others = false, is_listed = false;
        for (const value* s : shape.schemas) {
            const value *properties = s->find("properties"), *rest = s->find("additionalProperties");
            has_properties = has_properties || properties;
            wants_others |= s->find("patternProperties") || (rest && !(rest->is_bool() && !rest->as_bool()));
            for (size_t i = 0; properties && i < properties->members().size(); i++) put(properties->members()[i].key);
        }
        schema_set names;
        DUET_TRY(reader_.names(shape, &names));
        for (const auto& e : names.schemas) {  // names that propertyNames lists are like those of `properties`
            const value *list = e.schema->find("enum"), *constant = e.schema->find("const");
            is_listed = is_listed || list || constant;
            for (size_t i = 0; list && i < list->items().size(); i++) put(list->items()[i]);
            if (constant) put(*constant);
        }
        for (std::string_view name : shape.required)
            if (seen.insert(name).second) order.push_back(name);
        std::vector<member_part> members;
        DUET_TRY(compile_members(shape, names, order, &members));

        other_members others;
        const uint32_t n_required =
            (uint32_t)std::count_if(members.begin(), members.end(), [](const auto& m) { return m.is_required; });
        const bool needs_others = shape.min_members > members.size();
        if (!is_listed && (needs_others || (!reader_.is_probing && (wants_others || !has_properties)))) {
            std::vector<name_class> classes;
            DUET_TRY(find_name_classes(shape, names, order, &classes));
            others.are_allowed = !classes.empty();
            if (others.are_allowed) DUET_TRY(other_member(shape, classes, 0, 1, &others.any));
            const uint32_t n_missing = shape.min_members > n_required ? shape.min_members - n_required : 0;
            if (others.are_allowed && n_missing > kSchemaMaxDistinct)
                return too_many(shape, "minProperties", "want fewer members without a name in the schema");
            for (uint32_t i = 0; others.are_allowed && n_missing > 1 && i < n_missing; i++)
                DUET_TRY(other_member(shape, classes, i, n_missing, &others.distinct.emplace_back()));
        }
        if (needs_others && !others.are_allowed)
            reader_.note_empty(*shape.place, "minProperties",
                               "want " + std::to_string(shape.min_members) + " members, got at most " +
                                   std::to_string(members.size()));
        return map_graph(shape, members, n_required, others, out);
    }

    // State (i, n) means that the first i members were passed and n of them were written. Counts that make no
    // difference share a state.
    duet_status map_graph(const schema_shape& shape, const std::vector<member_part>& members, uint32_t n_required,
                          const other_members& others, expr* out) {
        const uint32_t n_members = (uint32_t)members.size(), min = shape.min_members, max = shape.max_members;
        const bool has_min = min > n_required, has_max = max != kUnlimited && (others.are_allowed || max < n_members);
        uint32_t n_counts = 2;  // none, some
        if (has_min) n_counts = std::max(n_counts, std::min(min, n_members) + 1);
        if (has_max) n_counts = std::max(n_counts, std::min(max, n_members) + 1);
        if (((uint64_t)n_members + 1) * n_counts > kSchemaMaxCounted)
            return too_many(shape, has_min ? "minProperties" : "maxProperties", "want fewer properties to count");
        const auto at = [&](uint32_t i, uint32_t n) { return i * n_counts + std::min(n, n_counts - 1); };
        const uint32_t end = (n_members + 1) * n_counts;
        std::vector<graph_edge> edges;
        for (uint32_t i = 0; i < n_members; i++) {
            const expr pair = members[i].pair, next = b_.sequence({comma_, pair});
            for (uint32_t n = 0; n < n_counts && n <= i; n++) {
                if (!members[i].is_required) edges.push_back({at(i, n), b_.empty(), at(i + 1, n)});
                if (!has_max || n < max) edges.push_back({at(i, n), n == 0 ? pair : next, at(i + 1, n + 1)});
            }
        }
        uint32_t n = std::min(n_required, n_counts - 1);
        for (; n < n_counts && n <= n_members && (!has_max || n <= max); n++) {
            const uint32_t low = has_min && min > n ? min - n : 0;
            const expr part = others_part(others, low, has_max ? max - n : kUnlimited, n == 0);
            edges.push_back({at(n_members, n), part, end});
        }
        *out = b_.sequence({b_.literal("{"), space_, b_.graph(end + 1, edges, {end}), space_, b_.literal("}")});
        return DUET_OK;
    }

    const schema_options& options_;
    grammar_builder& b_;
    error_text& err_;
    schema_reader& reader_;
    std::map<std::vector<const void*>, uint32_t> rules_;
    std::vector<pending> todo_;
    std::map<std::vector<code_range>, expr> chars_;
    expr space_ = 1, comma_ = 0, any_char_ = 0, any_string_ = 0;  // space_ is the empty text without white space
};

// Compiles a conjunction; *out calls its rule. *compiled is not set if no value is valid.
duet_status compile_set(schema_reader& reader, const schema_set& set, const schema_options& options,
                        grammar_builder& builder, expr* out, grammar* compiled, error_text& build_error) {
    DUET_TRY(schema_compiler(reader, options, builder).compile(set, out));
    const uint32_t rule = builder.add_rule("schema");
    builder.define(rule, *out);
    *out = builder.call(rule);
    return builder.build(rule, compiled, build_error);
}

bool is_deep(const value& v, int limit) {
    if (limit == 0) return true;
    const auto is_deeper = [&](const value& part) { return is_deep(part, limit - 1); };
    if (v.is_list()) return std::ranges::any_of(v.items(), is_deeper);
    return v.is_map() && std::ranges::any_of(v.members(), is_deeper, &value_member::val);
}

bool is_without_text(const error_text& err) { return err.text.find("no text matches") != err.text.npos; }

duet_status add_checked(const value& schema, const schema_options& options, grammar_builder& builder, expr* out,
                        grammar* compiled, error_text& err) {
    schema_reader reader(options.root ? *options.root : schema, err, builder.schema_work);
    schema_set set;
    error_text build_error;
    reader.is_lenient = options.is_lenient;
    if (is_deep(schema, kSchemaMaxDepth))
        return fail(err, DUET_ERR_FULL, "schema: want at most %d levels inside each other", kSchemaMaxDepth);
    DUET_TRY(reader.add(schema, &set));
    const duet_status status = compile_set(reader, set, options, builder, out, compiled, build_error);
    if (status == DUET_OK || build_error.text.empty()) return status;
    if (!is_without_text(build_error)) return fail(err, status, "schema: %s", build_error.text.c_str());
    const char* why = reader.why_empty.empty() ? "limits that exclude each other, or a schema that needs itself"
                                               : reader.why_empty.c_str();
    return fail(err, status, "schema: no value is valid: %s", why);
}

}  // namespace

bool may_have_value(schema_reader& reader, const schema_set& set) {
    grammar_builder builder;
    grammar unused;
    expr part;
    error_text build_error;
    reader.is_probing = true;
    compile_set(reader, set, {0}, builder, &part, &unused, build_error);
    reader.is_probing = false;
    return !is_without_text(build_error);
}

duet_status add_schema(const value& schema, const schema_options& options, grammar_builder& builder,
                       grammar_builder::expr* out, error_text& err) {
    grammar unused;
    return add_checked(schema, options, builder, out, &unused, err);
}

duet_status compile_schema(const value& schema, const schema_options& options, grammar* out, error_text& err) {
    grammar_builder builder;
    expr part;
    return add_checked(schema, options, builder, &part, out, err);
}

}  // namespace duet
