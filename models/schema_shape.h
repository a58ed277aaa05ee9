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

namespace duet {

// clang-format off
enum json_type : uint32_t {
    kJsonNull = 1, kJsonBool = 2, kJsonInteger = 4, kJsonReal = 8, kJsonString = 16, kJsonList = 32, kJsonMap = 64,
    kJsonNumber = kJsonInteger | kJsonReal, kJsonAny = 127,
};
// clang-format on
uint32_t json_type_of(const value& v);
uint32_t json_type_of_name(const value& name);  // 0: not the name of a type

// The value at "#" or "#/path/to/it", a JSON pointer (RFC 6901) in a URI fragment; null if there is none.
const value* find_place(const value& root, std::string_view reference);

// Give the schemas of a list's first items, a list, and the schema of the others; null for those that are not there.
// Drafts before 2020-12 have a list of schemas in `items`, and then the others in additionalItems.
inline const value* first_items(const value& schema) {
    const value* items = schema.find("items");
    return items && items->is_list() ? items : schema.find("prefixItems");
}
inline const value* other_items(const value& schema) {
    const value* items = schema.find("items");
    return items && items->is_list() ? schema.find("additionalItems") : items;
}

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
    std::vector<string_condition> patterns;  // of pattern and format
    uint32_t min_items = 0, max_items = kUnlimited, min_members = 0, max_members = kUnlimited;
    std::vector<const value*> schemas;       // all schemas, for the code that reads members and items
    std::vector<std::string_view> required;  // in order

    const value* place = nullptr;  // for messages

    bool has_values() const { return !enums.empty() || !constants.empty(); }
};

// Reads a schema that is not deep: several functions here recurse on its parts.
class schema_reader {
  public:
    schema_reader(const value& root, error_text& err, size_t& work) : root(root), err(err), work(work) {}

    // Adds a schema, and all schemas that $ref and allOf lead to.
    duet_status add(const value& schema, schema_set* set) { return add(schema, -1, 0, set); }
    // Makes all ways to choose; each resulting set has no choices. Sets without any value are left out.
    duet_status choose(const schema_set& set, std::vector<schema_set>* out);
    // Merges a set without choices.
    duet_status merge(const schema_set& set, schema_shape* out);

    // Adds the conditions that the patterns and lengths of a shape are. A maximal length that would need too large an
    // automaton is lowered.
    duet_status string_conditions(const schema_shape& shape, std::vector<string_condition>* conditions);
    // Gives the strings for which all conditions hold. A message names the place and the keyword.
    duet_status strings(const std::vector<string_condition>& conditions, const value& place, const char* keyword,
                        const char_automaton** out);
    // Give the schemas that hold for a member of that name, and for item i.
    duet_status member(const schema_shape& shape, std::string_view name, schema_set* out);
    duet_status item(const schema_shape& shape, size_t i, schema_set* out);
    duet_status names(const schema_shape& shape, schema_set* out);  // propertyNames
    // Sets *out to whether a value is valid.
    duet_status accepts(const value& v, const schema_set& set, bool* out);
    duet_status accepts(const value& v, const schema_shape& shape, bool* out);

    // Reports an error at a place: a schema, and a keyword in it or an empty text.
    duet_status fail_at(const value& schema, std::string_view keyword, duet_status status, std::string_view text);
    // Notes why a schema has no value. The first reason is kept for the message.
    void note_empty(const value& schema, std::string_view keyword, std::string_view message);

    const value& root;
    error_text& err;
    std::string why_empty;
    bool is_lenient = false;  // schema_options
    // Asks only whether a conjunction has a value: oneOf is read as anyOf, and reasons are not noted.
    bool is_probing = false;
    // Comparisons of values; two branches count as 100, a rule made for them as 30, a member as 10, a pattern as a
    // quarter of its edges.
    size_t& work;

  private:
    duet_status add(const value& schema, int32_t from, int depth, schema_set* set);
    duet_status check_keywords(const value& schema);
    duet_status resolve(const value& schema, const value& ref, const value** out);
    duet_status check_exclusive(const schema_set& set, const schema_set::choice& c);
    duet_status accepts_members(const value& v, const schema_shape& shape, bool* out);
    duet_status merge_numbers(const value& schema, schema_shape* out);
    std::string place_of(const value& schema, std::string_view keyword) const;

    std::set<const value*> checked_;
    std::map<std::vector<string_condition>, char_automaton> automata_;
};

// Returns whether a value may be valid by a conjunction. (schema.cpp)
bool may_have_value(schema_reader& reader, const schema_set& set);

}  // namespace duet
