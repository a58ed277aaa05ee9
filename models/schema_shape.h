// models/schema_shape.h: what a schema asks of a value, gathered from all schemas that hold for the value at once.
// Must not know: grammars. models/schema.cpp uses it.
//
// A conjunction is a set of schemas that must all hold. Following $ref and allOf adds schemas to it. Choosing a branch
// of each anyOf and oneOf turns it into several conjunctions without choices. Each of these merges into a shape.
#pragma once
#include "schema.h"
#include "schema_number.h"
#include "schema_pattern.h"

#include <map>
#include <set>
#include <unordered_map>

namespace duet {

// clang-format off
enum json_type : uint32_t {
    kJsonNull = 1, kJsonBool = 2, kJsonInteger = 4, kJsonReal = 8, kJsonString = 16, kJsonList = 32, kJsonMap = 64,
    kJsonAny = 127, // a number is kJsonInteger | kJsonReal
};
// clang-format on

struct schema_set {
    struct entry {
        const value* schema;  // a map
        int32_t from;         // the entry that led to this one, or -1
    };
    struct choice {
        const value* branches;  // a list
        int32_t from;
        bool is_exclusive;  // oneOf
    };
    std::vector<entry> schemas;
    std::vector<choice> choices;
    bool is_never = false;  // the schema `false` is among the schemas
};

struct schema_shape {
    uint32_t types = kJsonAny;
    std::vector<const std::vector<value>*> enums;  // a value must be in each list
    std::vector<const value*> constants;
    number_range numbers;
    uint32_t min_length = 0, max_length = kUnlimited;
    std::vector<std::pair<std::string, bool>> patterns;  // text, and whether it names a format
    uint32_t min_items = 0, max_items = kUnlimited, min_members = 0, max_members = kUnlimited;
    std::vector<const value*> schemas;       // all schemas, for the code that reads members and items
    std::vector<std::string_view> required;  // in order
    std::set<std::string_view> required_set;

    bool has_values() const { return !enums.empty() || !constants.empty(); }
    bool is_required(std::string_view name) const { return required_set.count(name) > 0; }
};

class schema_reader {
  public:
    schema_reader(const value& root, error_text& err) : root_(root), err_(err) {}

    // Checks the rules for the schema as a whole. It must be called first.
    duet_status check();

    // Adds a schema, and all schemas that $ref and allOf lead to.
    duet_status add(const value& schema, schema_set* set) { return add(schema, -1, 0, set); }
    // Makes all ways to choose; each resulting set has no choices. Sets without any value are left out.
    duet_status choose(const schema_set& set, std::vector<schema_set>* out);
    // Merges a set without choices.
    duet_status merge(const schema_set& set, schema_shape* out);

    // Gives the strings that match all patterns, formats and lengths of a shape.
    duet_status strings(const schema_shape& shape, char_automaton* out);
    // Give the schemas that hold for a member of that name, and for item i.
    duet_status member(const schema_shape& shape, std::string_view name, schema_set* out);
    duet_status item(const schema_shape& shape, size_t i, schema_set* out);
    duet_status names(const schema_shape& shape, schema_set* out);  // propertyNames
    // Set *out to whether a value is valid.
    duet_status accepts(const value& v, const schema_set& set, bool* out, int depth = 0);
    duet_status accepts(const value& v, const schema_shape& shape, bool* out, int depth = 0);
    duet_status pattern(std::string_view text, bool is_format, const value& place, const char_automaton** out);

    // Reports an error at a place: a schema, and a keyword in it or nullptr.
    [[gnu::format(printf, 5, 6)]] duet_status fail_at(const value& schema, const char* keyword, duet_status status,
                                                      const char* format, ...);
    // Notes why a schema has no value. The first reason is kept for the message.
    [[gnu::format(printf, 4, 5)]] void note_empty(const value& schema, const char* keyword, const char* format, ...);
    const std::string& why_empty() const { return why_empty_; }

  private:
    duet_status add(const value& schema, int32_t from, int depth, schema_set* set);
    duet_status check_keywords(const value& schema);
    duet_status check_keyword(const value& schema, std::string_view keyword, const value& v);
    duet_status resolve(const value& schema, const value& ref, const value** out);
    duet_status check_exclusive(const schema_set& set, const schema_set::choice& c);
    duet_status shapes_of(const schema_set& set, std::vector<schema_shape>* out);
    duet_status disjoint(const std::vector<schema_shape>& as, const std::vector<schema_shape>& bs, int depth,
                         bool* out);
    duet_status disjoint(const schema_set& a, const schema_set& b, int depth, bool* out);
    duet_status disjoint(const schema_shape& a, const schema_shape& b, int depth, bool* out);
    duet_status disjoint_values(const schema_shape& a, const schema_shape& b, int depth, bool* out);
    duet_status disjoint_maps(const schema_shape& a, const schema_shape& b, int depth, bool* out);
    duet_status disjoint_lists(const schema_shape& a, const schema_shape& b, int depth, bool* out);
    duet_status accepts_members(const value& v, const schema_shape& shape, bool* out, int depth);
    duet_status merge_numbers(const value& schema, schema_shape* out);
    std::string place_of(const value& schema) const;

    const value& root_;
    error_text& err_;
    std::set<const value*> checked_;
    std::map<std::pair<std::string, bool>, char_automaton> patterns_;  // by text; true: a format
    std::string why_empty_;
    size_t work_ = 0;  // comparisons of values and of branches
};

// Compares as JSON schema does: 1 and 1.0 are equal, 1 and true are not.
bool json_equal(const value& a, const value& b);

}  // namespace duet
