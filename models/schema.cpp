// models/schema.cpp: turns the shapes of values into parts of a grammar.
// Main path: models/value -> [models/schema] -> models/grammar_build
//
// Each conjunction of schemas (schema_shape.h) that holds for some value becomes one rule, made once. So recursion in a
// schema becomes recursion of rules. A list of pending conjunctions replaces recursion in the code.
#include "schema.h"

#include "schema_shape.h"
#include "unicode.h"

#include <algorithm>
#include <cmath>

namespace duet {
namespace {

using expr = grammar_builder::expr;

class schema_compiler {
  public:
    schema_compiler(const value& root, const schema_options& options, grammar_builder& builder, error_text& err)
        : root_(root), options_(options), b_(builder), err_(err), reader_(root, err) {}

    duet_status compile(expr* out) {
        DUET_TRY(reader_.check());
        make_common_rules();
        schema_set set;
        DUET_TRY(reader_.add(root_, &set));
        *out = rule_of(set);
        for (size_t i = 0; i < todo_.size(); i++) {
            const pending p = todo_[i];  // a copy: the list grows
            expr part = 0;
            DUET_TRY(compile_set(p.set, &part));
            b_.define(p.rule, part);
            if (b_.is_full()) return fail(err_, DUET_ERR_FULL, "schema: want at most %zu parts", kGrammarMaxNodes);
        }
        return DUET_OK;
    }

    const std::string& why_empty() const { return reader_.why_empty(); }

  private:
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
        byte_set blank{};
        byte_set_add(&blank, ' ', ' ');
        byte_set_add(&blank, '\t', '\t');
        if (options_.max_indent > 0) {
            const expr indent = b_.sequence({b_.literal("\n"), b_.repeat(b_.one_byte(blank), 0, options_.max_indent)});
            space_ = named_rule("space", b_.any_of({b_.empty(), b_.literal(" "), indent}));
        }
        byte_set hex{}, first{}, after_d{}, high{}, low{}, simple{};
        for (byte_set* set : {&hex, &first, &low}) {
            byte_set_add(set, '0', '9');
            byte_set_add(set, 'A', 'F');
            byte_set_add(set, 'a', 'f');
        }
        for (char d : {'d', 'D'}) first[1] &= ~(uint64_t(1) << (d - 64));
        byte_set_add(&after_d, '0', '7');
        for (char c : {'8', '9', 'a', 'b', 'A', 'B'}) byte_set_add(&high, (uint8_t)c, (uint8_t)c);
        low = {};
        for (char c : {'c', 'd', 'e', 'f', 'C', 'D', 'E', 'F'}) byte_set_add(&low, (uint8_t)c, (uint8_t)c);
        for (char c : std::string_view("\"\\/bfnrt")) byte_set_add(&simple, (uint8_t)c, (uint8_t)c);
        byte_set d{};
        byte_set_add(&d, 'd', 'd');
        byte_set_add(&d, 'D', 'D');
        const expr h = b_.one_byte(hex), one_d = b_.one_byte(d), u = b_.literal("u");
        const expr plain = b_.sequence({u, b_.one_byte(first), h, h, h});
        const expr below = b_.sequence({u, one_d, b_.one_byte(after_d), h, h});
        const expr pair =
            b_.sequence({u, one_d, b_.one_byte(high), h, h, b_.literal("\\u"), one_d, b_.one_byte(low), h, h});
        const expr escape = b_.sequence({b_.literal("\\"), b_.any_of({b_.one_byte(simple), plain, below, pair})});
        any_char_ = named_rule("character",
                               b_.any_of({b_.one_char(complement_of({{0, 0x1f}, {'"', '"'}, {'\\', '\\'}})), escape}));
        any_string_ = named_rule("string", b_.sequence({b_.literal("\""), b_.repeat(any_char_, 0), b_.literal("\"")}));
    }

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
        if (shape.types & (kJsonInteger | kJsonReal)) choices.push_back(number_part(b_, shape.numbers));
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
        if (texts.empty() && !shape.schemas.empty())
            reader_.note_empty(*shape.schemas[0], nullptr, "no value of enum or const is valid");
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

    // Matches one of the characters, written in JSON with the fewest escapes. Characters outside ASCII, and the
    // escapes, become rules that all uses share.
    expr char_part(const std::vector<code_range>& ranges) {
        std::vector<code_range> ascii, others;
        std::vector<std::string> escaped;
        for (const code_range& r : ranges) {
            for (uint32_t c = r.lo; c <= std::min(r.hi, (uint32_t)'\\'); c++) {
                if (c >= 0x20 && c != '"' && c != '\\') continue;
                const std::string text = quoted(std::string(1, (char)c));
                escaped.push_back(text.substr(1, text.size() - 2));
            }
            for (const code_range& piece : {code_range{0x20, '!'}, code_range{'#', '['}, code_range{']', 0x7f}})
                if (std::max(piece.lo, r.lo) <= std::min(piece.hi, r.hi))
                    ascii.push_back({std::max(piece.lo, r.lo), std::min(piece.hi, r.hi)});
            if (r.hi >= 0x80) others.push_back({std::max(r.lo, 0x80u), r.hi});
        }
        std::vector<expr> choices;
        if (!ascii.empty()) choices.push_back(b_.one_char(ascii));
        if (!others.empty()) {
            std::vector<uint32_t> key;
            for (const code_range& r : others) key.insert(key.end(), {r.lo, r.hi});
            const auto [at, is_new] = others_.try_emplace(std::move(key), 0);
            if (is_new) at->second = named_rule("character", b_.one_char(others));
            choices.push_back(at->second);
        }
        if (!escaped.empty()) {
            const auto [at, is_new] = escapes_.try_emplace(escaped, 0);
            if (is_new) at->second = named_rule("escape", b_.one_of_texts(escaped));
            choices.push_back(at->second);
        }
        return b_.any_of(choices);
    }

    // Matches the strings of an automaton, in quotes.
    expr automaton_part(const char_automaton& a) {
        std::vector<grammar_builder::graph_edge> edges;
        std::vector<uint32_t> ends;
        for (uint32_t s = 0; s < a.states.size(); s++) {
            std::map<uint32_t, std::vector<code_range>> targets;
            for (const auto& e : a.states[s].edges) targets[e.to].push_back({e.lo, e.hi});
            for (const auto& [to, ranges] : targets) edges.push_back({s, char_part(ranges), to});
            if (a.states[s].is_end) ends.push_back(s);
        }
        if (a.is_empty()) return b_.nothing();
        return b_.sequence({b_.literal("\""), b_.graph((uint32_t)a.states.size(), edges, ends), b_.literal("\"")});
    }

    duet_status compile_string(const schema_shape& shape, expr* out) {
        if (!shape.patterns.empty()) {
            char_automaton strings;
            DUET_TRY(reader_.strings(shape, &strings));
            *out = automaton_part(strings);
            return DUET_OK;
        }
        *out = any_string_;
        if (shape.min_length > 0 || shape.max_length != kUnlimited)
            *out = b_.sequence(
                {b_.literal("\""), b_.repeat(any_char_, shape.min_length, shape.max_length), b_.literal("\"")});
        return DUET_OK;
    }

    // ---- lists ----

    expr comma() { return b_.sequence({b_.literal(","), space_}); }

    duet_status compile_list(const schema_shape& shape, expr* out) {
        size_t n_prefix = 0;
        bool has_rest = false, has_prefix = false;
        for (const value* s : shape.schemas) {
            const value* prefix = s->find("prefixItems");
            if (prefix) n_prefix = std::max(n_prefix, prefix->items().size());
            has_prefix = has_prefix || prefix;
            has_rest = has_rest || s->find("items");
        }
        uint32_t max = shape.max_items;
        if (has_prefix && !has_rest) max = std::min(max, std::max((uint32_t)n_prefix, shape.min_items));
        // State i means that i items were written. The last state repeats the items behind the prefix.
        const size_t n_states = std::min<size_t>(std::max<size_t>(n_prefix, 1), max);
        const expr close = b_.sequence({space_, b_.literal("]")});
        const uint32_t end = (uint32_t)n_states + 1;
        std::vector<grammar_builder::graph_edge> edges;
        for (size_t i = 0; i <= n_states; i++) {
            if (i >= shape.min_items) edges.push_back({(uint32_t)i, close, end});
            schema_set set;
            DUET_TRY(reader_.item(shape, i, &set));
            if (i < n_states) {
                const expr item = rule_of(set);
                edges.push_back({(uint32_t)i, i == 0 ? item : b_.sequence({comma(), item}), (uint32_t)i + 1});
            } else if (max > n_states && n_states > 0) {
                const uint32_t low = shape.min_items > i ? shape.min_items - (uint32_t)i : 1;
                const uint32_t high = max == kUnlimited ? kUnlimited : max - (uint32_t)i;
                const expr rest = b_.repeat(b_.sequence({comma(), rule_of(set)}), low, high);
                edges.push_back({(uint32_t)i, b_.sequence({rest, close}), end});
            }
        }
        *out = b_.sequence({b_.literal("["), space_, b_.graph(end + 1, edges, {end})});
        return DUET_OK;
    }

    // ---- maps ----

    // Names that no schema mentions, as disjoint sets. Each set has the schemas that hold for its members.
    struct name_class {
        char_automaton names;
        schema_set members;
    };

    expr pair_part(expr name, expr member) { return b_.sequence({name, b_.literal(":"), space_, member}); }

    // Returns the members by name, in order: those of `properties`, then those that only `required` has.
    duet_status compile_members(const schema_shape& shape, const schema_set& names,
                                const std::vector<std::string_view>& order, std::vector<member_part>* out) {
        for (std::string_view name : order) {
            bool is_valid = false;
            DUET_TRY(reader_.accepts(value::of_string(std::string(name)), names, &is_valid));
            const bool is_required = shape.is_required(name);
            schema_set set;
            DUET_TRY(reader_.member(shape, name, &set));
            if (is_required && (!is_valid || set.is_never))
                reader_.note_empty(*shape.schemas[0], "required", "a member \"%s\" is never valid",
                                   printable(name).c_str());
            if (!is_valid || set.is_never) {
                if (is_required) out->push_back({b_.nothing(), true});
                continue;
            }
            out->push_back({pair_part(b_.literal(quoted(name)), rule_of(set)), is_required});
        }
        return DUET_OK;
    }

    duet_status too_many_names(const schema_shape& shape, const char* keyword, const char* what) {
        return reader_.fail_at(*shape.schemas[0], keyword, DUET_ERR_FULL, "want %s", what);
    }

    duet_status find_name_classes(const schema_shape& shape, const schema_set& names,
                                  const std::vector<std::string_view>& known, std::vector<name_class>* out) {
        name_class all{strings_of_chars({{0x20, 0x10ffff}}), {}};
        std::vector<std::string> known_names(known.begin(), known.end());
        if (!known_names.empty()) intersect(all.names, complement(one_of_strings(known_names)), &all.names);
        std::vector<schema_set> ways;
        DUET_TRY(reader_.choose(names, &ways));
        if (ways.empty()) return DUET_OK;
        schema_shape name_shape;
        DUET_TRY(reader_.merge(ways[0], &name_shape));
        if (ways.size() > 1 || name_shape.has_values())
            return reader_.fail_at(*shape.schemas[0], "propertyNames", DUET_ERR_UNSUPPORTED,
                                   "anyOf and oneOf are not supported here");
        if (!(name_shape.types & kJsonString)) return DUET_OK;
        char_automaton allowed;
        DUET_TRY(reader_.strings(name_shape, &allowed));
        if (!intersect(all.names, allowed, &all.names))
            return too_many_names(shape, "propertyNames", "a simpler pattern of names, or fewer properties");
        out->push_back(std::move(all));
        for (const value* s : shape.schemas) {
            const value *patterns = s->find("patternProperties"), *rest = s->find("additionalProperties");
            std::vector<bool> is_matched(out->size(), false);
            for (size_t p = 0; patterns && p < patterns->members().size(); p++) {
                const value_member& m = patterns->members()[p];
                const char_automaton* pattern = nullptr;
                DUET_TRY(reader_.pattern(m.key.as_string(), false, *s, &pattern));
                // Validators differ in how a pattern treats other characters.
                char_automaton others;
                if (!intersect(complement(*pattern), strings_of_chars({{0x20, 0x7e}}), &others))
                    return too_many_names(shape, "patternProperties", "simpler patterns");
                const size_t n_before = out->size();
                for (size_t i = 0; i < n_before; i++) {
                    name_class match{{}, (*out)[i].members}, other{{}, (*out)[i].members};
                    if (!intersect((*out)[i].names, *pattern, &match.names) ||
                        !intersect((*out)[i].names, others, &other.names))
                        return too_many_names(shape, "patternProperties", "simpler patterns");
                    DUET_TRY(reader_.add(m.val, &match.members));
                    (*out)[i] = std::move(other);
                    out->push_back(std::move(match));
                    is_matched.push_back(true);
                }
                for (size_t i = out->size(); i-- > 0;) {
                    if (!(*out)[i].names.is_empty()) continue;
                    out->erase(out->begin() + (ptrdiff_t)i);
                    is_matched.erase(is_matched.begin() + (ptrdiff_t)i);
                }
                if (out->size() > kSchemaMaxNameClasses)
                    return too_many_names(shape, "patternProperties", "fewer patterns");
            }
            for (size_t i = 0; rest && i < out->size(); i++)
                if (!is_matched[i]) DUET_TRY(reader_.add(*rest, &(*out)[i].members));
        }
        return DUET_OK;
    }

    // Matches any one of the members without a name in the schema. If modulus is above 1, the length of the member's
    // name must have that residue.
    duet_status other_member(const schema_shape& shape, const std::vector<name_class>& classes, uint32_t residue,
                             uint32_t modulus, expr* out) {
        std::vector<expr> choices;
        for (const name_class& c : classes) {
            char_automaton names = c.names;
            if (c.members.is_never) continue;
            if (modulus > 1 && !intersect(names, strings_of_residue(residue, modulus), &names))
                return too_many_names(shape, "minProperties", "simpler patterns of names");
            if (!names.is_empty()) choices.push_back(pair_part(automaton_part(names), rule_of(c.members)));
        }
        if (choices.empty() && modulus > 1)
            return reader_.fail_at(*shape.schemas[0], "minProperties", DUET_ERR_UNSUPPORTED,
                                   "want names of each length that %u different members need", modulus);
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
        if (!others.are_allowed) return low == 0 ? b_.empty() : b_.nothing();
        if (low > high) return b_.nothing();
        const expr more = b_.sequence({comma(), others.any});
        const auto less = [](uint32_t limit, uint32_t n) { return limit == kUnlimited ? limit : limit - n; };
        std::vector<expr> parts;
        for (uint32_t i = 0; i < low; i++) {
            const expr one = low > 1 ? others.distinct[i] : others.any;
            parts.push_back(i == 0 && is_first ? one : b_.sequence({comma(), one}));
        }
        if (low == 0 && is_first) {
            if (high == 0) return b_.empty();
            return b_.optional(b_.sequence({others.any, b_.repeat(more, 0, less(high, 1))}));
        }
        parts.push_back(b_.repeat(more, 0, less(high, low)));
        return b_.sequence(parts);
    }

    duet_status compile_map(const schema_shape& shape, expr* out) {
        std::vector<std::string_view> order;
        std::set<std::string_view> seen;
        bool has_properties = false, wants_others = false;
        for (const value* s : shape.schemas) {
            const value *properties = s->find("properties"), *rest = s->find("additionalProperties");
            has_properties = has_properties || properties;
            wants_others =
                wants_others || s->find("patternProperties") || (rest && !(rest->is_bool() && !rest->as_bool()));
            for (size_t i = 0; properties && i < properties->members().size(); i++)
                if (seen.insert(properties->members()[i].key.as_string()).second)
                    order.push_back(properties->members()[i].key.as_string());
        }
        schema_set names;
        DUET_TRY(reader_.names(shape, &names));
        const bool is_listed = add_listed_names(names, &seen, &order);
        for (std::string_view name : shape.required)
            if (seen.insert(name).second) order.push_back(name);
        std::vector<member_part> members;
        DUET_TRY(compile_members(shape, names, order, &members));

        other_members others;
        const uint32_t n_required =
            (uint32_t)std::count_if(members.begin(), members.end(), [](const auto& m) { return m.is_required; });
        const bool needs_others = shape.min_members > members.size();
        if (!is_listed && (needs_others || wants_others || !has_properties)) {
            std::vector<name_class> classes;
            DUET_TRY(find_name_classes(shape, names, order, &classes));
            others.are_allowed = std::any_of(classes.begin(), classes.end(),
                                             [](const auto& c) { return !c.members.is_never && !c.names.is_empty(); });
            if (others.are_allowed) DUET_TRY(other_member(shape, classes, 0, 1, &others.any));
            const uint32_t n_missing = shape.min_members > n_required ? shape.min_members - n_required : 0;
            if (others.are_allowed && n_missing > kSchemaMaxDistinct)
                return too_many_names(shape, "minProperties", "fewer members without a name in the schema");
            for (uint32_t i = 0; others.are_allowed && n_missing > 1 && i < n_missing; i++)
                DUET_TRY(other_member(shape, classes, i, n_missing, &others.distinct.emplace_back()));
        }
        if (needs_others && !others.are_allowed && !shape.schemas.empty())
            reader_.note_empty(*shape.schemas[0], "minProperties", "want %u members, got at most %zu",
                               shape.min_members, members.size());
        return map_graph(shape, members, n_required, others, out);
    }

    // Returns whether propertyNames lists all names. Such names are members like those of `properties`.
    static bool add_listed_names(const schema_set& names, std::set<std::string_view>* seen,
                                 std::vector<std::string_view>* order) {
        bool is_listed = false;
        const auto put = [&](const value& v) {
            if (v.is_string() && seen->insert(v.as_string()).second) order->push_back(v.as_string());
        };
        for (const auto& e : names.schemas) {
            if (const value* list = e.schema->find("enum")) {
                is_listed = true;
                for (const value& v : list->items()) put(v);
            }
            if (const value* constant = e.schema->find("const")) {
                is_listed = true;
                put(*constant);
            }
        }
        return is_listed;
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
            return too_many_names(shape, has_min ? "minProperties" : "maxProperties", "fewer properties to count");
        const auto at = [&](uint32_t i, uint32_t n) { return i * n_counts + std::min(n, n_counts - 1); };
        const uint32_t end = (n_members + 1) * n_counts;
        std::vector<grammar_builder::graph_edge> edges;
        const expr comma_part = comma();
        for (uint32_t i = 0; i < n_members; i++)
            for (uint32_t n = 0; n < n_counts && n <= i; n++) {
                if (!members[i].is_required) edges.push_back({at(i, n), b_.empty(), at(i + 1, n)});
                if (has_max && n >= max) continue;
                edges.push_back({at(i, n), n == 0 ? members[i].pair : b_.sequence({comma_part, members[i].pair}),
                                 at(i + 1, n + 1)});
            }
        for (uint32_t n = 0; n < n_counts && n <= n_members; n++) {
            const uint32_t low = has_min && min > n ? min - n : 0, high = !has_max ? kUnlimited : max > n ? max - n : 0;
            if (has_max && n > max) continue;
            edges.push_back({at(n_members, n), others_part(others, low, high, n == 0), end});
        }
        *out = b_.sequence({b_.literal("{"), space_, b_.graph(end + 1, edges, {end}), space_, b_.literal("}")});
        return DUET_OK;
    }

    const value& root_;
    const schema_options& options_;
    grammar_builder& b_;
    error_text& err_;
    schema_reader reader_;
    std::map<std::vector<const void*>, uint32_t> rules_;
    std::vector<pending> todo_;
    std::map<std::vector<uint32_t>, expr> others_;      // by ranges of characters
    std::map<std::vector<std::string>, expr> escapes_;  // by their texts
    expr space_ = 1, any_char_ = 0, any_string_ = 0;    // space_ is the empty text without white space
};

duet_status add_checked(const value& schema, const schema_options& options, grammar_builder& builder, expr* out,
                        grammar* compiled, error_text& err) {
    schema_compiler compiler(schema, options, builder, err);
    DUET_TRY(compiler.compile(out));
    const uint32_t rule = builder.add_rule("schema");
    builder.define(rule, *out);
    *out = builder.call(rule);
    error_text build_error;
    const duet_status status = builder.build(rule, compiled, build_error);
    if (status == DUET_OK) return DUET_OK;
    if (build_error.text.find("no text matches") != build_error.text.npos) {
        const std::string& why = compiler.why_empty();
        return fail(err, status, "schema: no value is valid%s%s", why.empty() ? "" : ": ",
                    why.empty() ? " (limits that exclude each other, or a schema that needs itself)" : why.c_str());
    }
    return fail(err, status, "schema: %s", build_error.text.c_str());
}

}  // namespace

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
