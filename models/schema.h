// models/schema.h: turns a JSON schema into the rules of a grammar.
// Owns: the list of JSON schema keywords (draft 2020-12) that are kept to. Must not know: tokens, models.
// Main path: models/value (the parsed schema) -> [models/schema] -> models/grammar_build
//
// Every text of the grammar is JSON that is valid by the schema. The converse does not hold; these limits leave out
// some valid JSON:
// - Members come in the order in which `properties` names them, then names that only `required` has, then others.
// - Members that `properties` does not name come only where additionalProperties or patternProperties stands in the
//   schema, where there are no `properties`, or where minProperties needs them. The same holds for items behind
//   prefixItems. Their names have no escapes but \" and \\; the first minProperties of them differ in length.
// - Strings of enum, const, pattern and format, and names, are written with the fewest escapes. A maxLength beside a
//   pattern is lowered where both together would need too many states.
// - Numbers have a bounded number of digits (schema_number.h), white space is bounded (schema_options).
//
// Kept to: type, enum, const, properties, required, additionalProperties, patternProperties, propertyNames,
// minProperties, maxProperties, items, prefixItems, additionalItems (beside a list in items, as older drafts have it),
// minItems, maxItems, uniqueItems (of at most one item), minLength, maxLength, pattern and format (schema_pattern.h),
// minimum, maximum, exclusiveMinimum, exclusiveMaximum, multipleOf (of integers, up to 100), anyOf, allOf, oneOf whose
// branches exclude each other, $ref inside the schema, true and false. Any other keyword that JSON schema has and that
// limits the value is an error that names its place. Keywords that describe, and names that JSON schema does not know,
// are skipped.
#pragma once
#include "grammar.h"
#include "value.h"

namespace duet {

struct schema_options {
    // The white space between the parts of a value: one space, or a new line and at most this many spaces or tabs. 0:
    // no white space.
    uint32_t max_indent = 16;
    const value* root = nullptr;  // what $ref begins at; null: the schema itself
    // What is not kept to is left out instead of refused: oneOf is read as anyOf, and a pattern that cannot be matched
    // or is too large leaves its string free. Still refused: $ref elsewhere, and a minProperties that no names serve.
    bool is_lenient = false;
};

constexpr int kSchemaMaxDepth = 100;          // depth of the schema as a value; also of allOf and $ref within one value
constexpr size_t kSchemaMaxBranches = 2048;   // ways to choose among all anyOf and oneOf that hold for one value
constexpr size_t kSchemaMaxMerged = 1024;     // schemas that hold for one value at once
constexpr size_t kSchemaMaxNameClasses = 64;  // sets of names that patternProperties tell apart
constexpr uint32_t kSchemaMaxDistinct = 64;   // members without a name in the schema that minProperties may need
constexpr size_t kSchemaMaxCounted = 1u << 16;  // members times how many of them minProperties and maxProperties count

// Adds rules for the values of a schema; *out matches one value. The schema is read during the call only. Time and
// memory are linear in the schema, apart from the products that the limits above bound.
// DUET_ERR_FORMAT: not a schema, or no value is valid. DUET_ERR_UNSUPPORTED: a keyword that is not kept to.
// DUET_ERR_FULL: past a limit. Messages: "schema: #/properties/a/minimum: want ..., got ...".
duet_status add_schema(const value& schema, const schema_options& options, grammar_builder& builder,
                       grammar_builder::expr* out, error_text& err);

// Does the same and returns a grammar of its own.
duet_status compile_schema(const value& schema, const schema_options& options, grammar* out, error_text& err);

}  // namespace duet
