#!/usr/bin/env python3
"""Validates random outputs of tests/schema_sample.cpp with the jsonschema package.

Usage: schema_check.py SAMPLE_PROGRAM [VOCABULARY.gguf]      needs: jsonschema 4 or newer

SCHEMAS must each give only valid texts, for five seeds. REFUSED are schemas that must end with an error that holds the
given text; HOSTILE are JSON texts that must end within 0.1 s (on a slow machine 0.15 s), well or with an error. One that
took longer is tried four times more, and its best time counts as much less as the best time of the sample program's
yardstick, taken between the tries, is longer than YARDSTICK_US: neighbours of a shared machine make both slower. Prints
a count of each; exits with 1 when one fails.
"""
import json
import subprocess
import sys

import jsonschema

SEEDS, MAX_TOKENS, MAX_US = 5, 700, 150_000
YARDSTICK_US = 95_000  # its best of 24 on two virtual cores of a Zen 3 server was 92_000


def o(properties, required=(), **more):
    return {"type": "object", "properties": properties, "required": list(required), **more}


S, I, N, B = {"type": "string"}, {"type": "integer"}, {"type": "number"}, {"type": "boolean"}

SCHEMAS = [
    # types
    {}, True, {"type": "null"}, B, I, N, S, {"type": "array"}, {"type": "object"},
    {"type": ["string", "null"]}, {"type": ["integer", "boolean", "null"]}, {"type": ["object", "array"]},
    {"type": ["number", "integer"]}, {"title": "t", "description": "d", "default": 1, "examples": [1], "$comment": "c"},
    # enum, const
    {"enum": [1, "a", None, True, False, 1.5, {"a": [1, {"b": None}]}, [], {}]}, {"enum": ["\"\\\n\u20ac\U0001f600\u0001"]},
    {"const": {"a": {"b": [1, 2, "x"]}}}, {"const": 0}, {"const": False}, {"const": "\U0001f600"}, {"const": None},
    {"type": "string", "enum": ["red", "green", 3]}, {"enum": [1, 2, 3], "minimum": 2}, {"type": "integer", "enum": [1, 1.0, 2.5]},
    {"enum": ["a", "bb", "ccc"], "minLength": 2}, {"enum": ["ab", "cd"], "pattern": "^a"}, {"enum": [[1], [1, 2]], "minItems": 2},
    {"enum": [{"a": 1}, {"b": 1}], "required": ["b"]}, {"enum": ["x" * i for i in range(300)]}, {"const": 1e100}, {"enum": [123456789012345678901234567890, -0.0, 1e-7]},
    {"enum": [1, True], "type": "boolean"}, {"enum": [0, False], "const": 0},
    # strings
    {"type": "string", "minLength": 3}, {"type": "string", "maxLength": 3}, {"type": "string", "minLength": 2, "maxLength": 2},
    {"type": "string", "maxLength": 0}, {"type": "string", "minLength": 40, "maxLength": 60}, {"type": "string", "maxLength": 1000000000},
    {"minLength": 4}, {"type": ["string", "integer"], "maxLength": 4, "minimum": 7},
    # patterns
    *[{"type": "string", "pattern": p} for p in (
        "^a$", "^a", "a$", "a", "", "^$", "^(a|b)+$", "^[a-z]{3}$", "^[A-Z][a-z]*$", "^\\d{3}-\\d{4}$", "\\w+", "^\\w+@\\w+\\.com$", "^[^a-z]*$",
        "^(foo|bar|baz){1,3}$", "^.{2,5}$", "x.y", "^(?:a|b)?c*$", "^\\s*$", "^\\S+$", "^\\D\\W$", "^[\\w.-]+$", "^[^\\d]+$", "^(a+|b+)*$",
        "^(a*)*$", "^\\u00e4+$", "^[\\u4e00-\\u9fff]{1,4}$", "^\\x41\\n\\t$", "^(^a|b$)", "a|^b|c$", "^a.*z$", "^\\$[0-9]+(\\.[0-9]{2})?$",
        "^#([0-9a-fA-F]{6}|[0-9a-fA-F]{3})$", "^\\/[^/]+\\/$", "^\"quoted\\\\\"$", "^[\"\\\\]{4}$", "^\U0001f600{2}$", "^a{0}b{2,}c??$", "^[-a]+[b-]$",
        "^(((((a)))))$", "^[0-9]{1,3}(,[0-9]{3})*$", "(?:)", "\\.\\*\\+\\?\\(\\)\\[\\]\\{\\}\\|\\^\\$")],
    {"type": "string", "pattern": "^[a-z]+$", "minLength": 3, "maxLength": 8}, {"type": "string", "pattern": "b", "maxLength": 4},
    {"type": "string", "pattern": "^(ab)*$", "minLength": 5}, {"allOf": [{"pattern": "^a"}, {"pattern": "z$"}], "type": "string", "maxLength": 6},
    {"pattern": "^a+$"}, {"type": "string", "pattern": "^.*$", "maxLength": 100}, {"type": "string", "pattern": "\U0001f600", "minLength": 3},
    # formats
    *[{"type": "string", "format": f} for f in ("date-time", "date", "time", "duration", "uuid", "email", "hostname", "ipv4", "ipv6", "uri")],
    {"type": "string", "format": "date", "pattern": "^20"}, {"type": "string", "format": "date", "pattern": "-02-29$"},
    {"type": "string", "format": "ipv4", "maxLength": 8}, {"type": "string", "format": "uri", "pattern": "^https://", "maxLength": 40},
    {"type": "integer", "format": "int32"}, {"format": "uuid"}, {"type": "string", "format": "email", "minLength": 20, "maxLength": 30},
    # integers
    *[{"type": "integer", **b} for b in (
        {"minimum": 0}, {"maximum": 0}, {"minimum": 1}, {"maximum": -1}, {"minimum": -5, "maximum": 5}, {"minimum": 99, "maximum": 1001},
        {"exclusiveMinimum": 9, "exclusiveMaximum": 11}, {"minimum": 0.5, "maximum": 1.5}, {"minimum": 123456789012345678901234567890},
        {"maximum": -9007199254740993}, {"minimum": 9007199254740991, "maximum": 9007199254740993}, {"minimum": 1e23, "maximum": 2e23},
        {"exclusiveMaximum": 1e23, "minimum": 1e22}, {"exclusiveMinimum": 1e23}, {"minimum": 100, "maximum": 100}, {"minimum": -10.5, "maximum": -9.5}, {"exclusiveMinimum": -1, "maximum": 255},
        {"minimum": 1, "maximum": 65535}, {"multipleOf": 5}, {"multipleOf": 7, "minimum": -50, "maximum": 50}, {"multipleOf": 100, "minimum": 1},
        {"multipleOf": 1}, {"minimum": -1000000, "exclusiveMaximum": -999}, {"minimum": 1e300}, {"maximum": 18446744073709551615, "minimum": 18446744073709551600})],
    # numbers
    *[{"type": "number", **b} for b in (
        {"minimum": 0}, {"maximum": 0}, {"exclusiveMinimum": 0}, {"exclusiveMaximum": 0}, {"minimum": 0, "maximum": 1}, {"exclusiveMinimum": 0, "exclusiveMaximum": 1},
        {"exclusiveMinimum": 0.1, "exclusiveMaximum": 0.2}, {"minimum": -0.5, "maximum": 0.25}, {"minimum": 3.14159, "maximum": 3.14160},
        {"exclusiveMinimum": 0.12345678901234567, "maximum": 0.12345678901234572}, {"exclusiveMinimum": 1e-20, "maximum": 1e-19}, {"minimum": 1e15, "maximum": 1e16},
        {"minimum": 123456789.123, "maximum": 123456789.1231}, {"maximum": 1e23, "minimum": 9e22}, {"minimum": 9007199254740993, "maximum": 9007199254740999},
        {"exclusiveMinimum": -2, "exclusiveMaximum": -1}, {"minimum": -1.5, "exclusiveMaximum": -1.4}, {"minimum": 2.5, "maximum": 2.5}, {"exclusiveMinimum": 99.99},
        {"exclusiveMaximum": 1000, "minimum": 999.999}, {"multipleOf": 3, "maximum": 20, "minimum": 0}, {"minimum": 1e300}, {"exclusiveMinimum": 4503599627370495.5, "maximum": 4503599627370497},
        {"exclusiveMinimum": 5e-324, "maximum": 1}, {"exclusiveMinimum": -1e-10, "exclusiveMaximum": 1e-10})],
    {"minimum": 10}, {"exclusiveMaximum": -3.5},
    # objects
    o({"a": S, "b": I}, ["a", "b"]), o({"a": S, "b": I}), o({"a": S, "b": I}, ["b"]), o({"a": S}, ["z", "a"]), o({}, ["q"]),
    o({"a": I}, ["a"], additionalProperties=False), o({"a": I}, additionalProperties=True), o({"a": I, "ab": B}, ["a"], additionalProperties=N),
    {"type": "object", "additionalProperties": I}, {"type": "object", "additionalProperties": False}, {"type": "object", "minProperties": 2},
    {"type": "object", "minProperties": 5, "maxProperties": 6, "additionalProperties": B}, {"type": "object", "maxProperties": 0}, {"type": "object", "maxProperties": 1},
    o({"a": I, "b": I, "c": I, "d": I}, minProperties=2), o({"a": I, "b": I, "c": I, "d": I}, maxProperties=2), o({"a": I, "b": I, "c": I, "d": I}, ["b"], minProperties=2, maxProperties=3),
    o({"a": I}, minProperties=3), o({"a": I}, minProperties=3, additionalProperties=S), o({"a": I, "b": I, "c": I}, minProperties=3),
    o({"": I, "\"": S, "\\": S, "\n": I, "\u00e4\u00f6": B, "\U0001f600": B, "a/b~c%d": I}, ["", "\"", "\n", "\U0001f600"]),
    o({"a": False, "b": I}, ["b"]), o({"a": True}, ["a"]), o({"a": {"type": "string", "minLength": 3, "maxLength": 1}, "b": I}, ["b"]),
    {"type": "object", "patternProperties": {"^x": I}, "additionalProperties": False}, {"type": "object", "patternProperties": {"^x": I, "y$": {"minimum": 3}}, "additionalProperties": False},
    {"type": "object", "patternProperties": {"^\\d+$": S}}, {"type": "object", "patternProperties": {"^x": I}, "additionalProperties": S, "minProperties": 2},
    o({"xa": {"maximum": 5}, "b": S}, ["xa"], patternProperties={"^x": I}), o({"a": I}, patternProperties={"a": {"minimum": 0}, "b": B}, additionalProperties=False, minProperties=3),
    {"type": "object", "propertyNames": {"pattern": "^[a-z]{2,4}$"}, "additionalProperties": I}, {"type": "object", "propertyNames": {"maxLength": 3}, "minProperties": 2},
    {"type": "object", "propertyNames": {"enum": ["p", "q", "r"]}, "additionalProperties": B, "minProperties": 2}, {"type": "object", "propertyNames": {"const": "only"}},
    {"type": "object", "propertyNames": {"minLength": 2, "pattern": "^k"}, "minProperties": 4, "additionalProperties": {"type": "null"}}, {"type": "object", "propertyNames": False},
    {"type": "object", "propertyNames": {"format": "date"}, "minProperties": 1, "additionalProperties": I}, o({"long": I, "ab": I}, propertyNames={"maxLength": 2}),
    o({"p%d" % i: I for i in range(60)}, ["p7", "p33"]), o({"p%d" % i: I for i in range(12)}, minProperties=6, maxProperties=7), {"required": ["a"], "properties": {"a": I}},
    {"type": "object", "required": ["a", "a", "b"], "additionalProperties": {"enum": [1]}}, {"properties": {"a": S}, "minProperties": 1, "type": "object", "maxProperties": 1},
    # arrays
    {"type": "array", "items": I}, {"type": "array", "items": I, "minItems": 2, "maxItems": 4}, {"type": "array", "maxItems": 0}, {"type": "array", "minItems": 3},
    {"type": "array", "items": False}, {"type": "array", "items": {"type": "array", "items": {"type": "array", "items": B, "maxItems": 2}, "maxItems": 2}},
    {"type": "array", "prefixItems": [I, S, B]}, {"type": "array", "prefixItems": [I, S], "items": False}, {"type": "array", "prefixItems": [I, S], "items": B, "minItems": 4},
    {"type": "array", "prefixItems": [I, S], "minItems": 3, "maxItems": 5}, {"type": "array", "prefixItems": [I, False, S]}, {"type": "array", "prefixItems": [I], "maxItems": 1, "minItems": 1},
    {"type": "array", "items": {"enum": [1]}, "minItems": 100, "maxItems": 100}, {"type": "array", "items": B, "maxItems": 1000000000}, {"type": "array", "uniqueItems": True, "maxItems": 1},
    {"type": "array", "uniqueItems": False, "items": I}, {"type": "array", "items": {"type": "string", "format": "uuid"}, "minItems": 1, "maxItems": 2}, {"items": I, "minItems": 1},
    {"type": "array", "prefixItems": [o({"k": I}, ["k"]), {"type": "array", "items": N, "maxItems": 3}], "minItems": 2},
    # combinations
    {"anyOf": [I, S]}, {"anyOf": [{"type": "integer", "minimum": 5}, {"type": "integer", "maximum": -5}]}, {"anyOf": [o({"a": I}, ["a"]), o({"b": S}, ["b"])]},
    o({"a": I, "b": I}, anyOf=[{"required": ["a"]}, {"required": ["b"]}]), {"type": "string", "anyOf": [{"maxLength": 2}, {"minLength": 5, "maxLength": 6}]}, {"anyOf": [True, I]},
    {"anyOf": [False, I]}, {"anyOf": [{"anyOf": [I, B]}, {"anyOf": [S, {"type": "null"}]}]}, {"allOf": [{"anyOf": [I, S]}, {"anyOf": [S, B]}]}, {"anyOf": [{"const": i} for i in range(40)]},
    {"oneOf": [I, S]}, {"oneOf": [{"type": "integer", "maximum": 3}, {"type": "integer", "minimum": 4}]}, {"oneOf": [{"const": 1}, {"const": 2}]}, {"oneOf": [{"enum": [1, 2]}, {"enum": [3, "a"]}, S | {"maxLength": 0}]},
    {"oneOf": [o({"t": {"const": "a"}, "x": I}, ["t", "x"]), o({"t": {"const": "b"}, "y": S}, ["t", "y"])]}, {"oneOf": [o({"a": I}, ["a"], additionalProperties=False), o({"b": I}, ["b"], additionalProperties=False)]},
    o({"k": {"enum": ["x", "y"]}}, ["k"], oneOf=[{"properties": {"k": {"const": "x"}, "v": I}, "required": ["v"]}, {"properties": {"k": {"const": "y"}, "v": S}, "required": ["v"]}]),
    {"oneOf": [{"type": "array", "maxItems": 1}, {"type": "array", "minItems": 2, "items": I}]}, {"oneOf": [{"type": "string", "pattern": "^a"}, {"type": "string", "pattern": "^b"}]},
    {"oneOf": [{"type": "string", "format": "date"}, {"type": "string", "format": "uuid"}, {"type": "null"}]}, {"oneOf": [{"type": "array", "prefixItems": [{"const": 1}], "minItems": 1}, {"type": "array", "prefixItems": [{"const": 2}], "minItems": 1}]},
    {"oneOf": [o({"t": {"enum": ["a", "b"]}}, ["t"]), o({"t": {"enum": ["c"]}}, ["t"]), o({"t": I}, ["t"])]}, {"oneOf": [{"type": "object", "maxProperties": 0}, {"type": "object", "minProperties": 1}]},
    {"allOf": [{"type": "integer"}, {"minimum": 3}, {"maximum": 9}]}, {"allOf": [o({"a": I}, ["a"]), o({"b": S}, ["b"])]}, {"allOf": [o({"a": I}), o({"a": {"minimum": 4}}, ["a"])]},
    {"allOf": [{"allOf": [{"allOf": [B]}]}]}, {"allOf": [{"enum": [1, 2, 3]}, {"enum": [2, 3, 4]}]}, {"allOf": [{"type": ["string", "integer"]}, {"type": ["integer", "null"]}]},
    {"allOf": [{"items": I}, {"prefixItems": [{"minimum": 2}], "minItems": 1}], "type": "array"}, {"allOf": [o({"a": I, "b": I}, additionalProperties=True), {"maxProperties": 1}]},
    # references
    {"$defs": {"x": I}, "$ref": "#/$defs/x"}, {"definitions": {"x": S}, "type": "array", "items": {"$ref": "#/definitions/x"}}, {"$defs": {"x": I}, "$ref": "#/$defs/x", "minimum": 5},
    {"$defs": {"a/b": I, "c~d": S, "e f": B}, "type": "array", "prefixItems": [{"$ref": "#/$defs/a~1b"}, {"$ref": "#/$defs/c~0d"}, {"$ref": "#/$defs/e%20f"}], "minItems": 3},
    {"$defs": {"n": o({"v": I, "next": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/n"}]}}, ["v", "next"])}, "$ref": "#/$defs/n"},
    {"$defs": {"t": o({"l": {"$ref": "#/$defs/t"}, "r": {"$ref": "#/$defs/t"}, "v": B}, ["v"])}, "$ref": "#/$defs/t"}, o({"v": B, "kids": {"type": "array", "items": {"$ref": "#"}, "maxItems": 2}}, ["v"]),
    {"$defs": {"a": o({"b": {"$ref": "#/$defs/b"}}), "b": o({"a": {"$ref": "#/$defs/a"}})}, "$ref": "#/$defs/a"}, {"properties": {"a": I, "b": {"$ref": "#/properties/a"}}, "required": ["b"], "type": "object"},
    {"$defs": {"s": {"anyOf": [S, {"type": "array", "items": {"$ref": "#/$defs/s"}}]}}, "$ref": "#/$defs/s"}, {"prefixItems": [I, {"$ref": "#/prefixItems/0"}], "type": "array", "minItems": 2},
    {"$defs": {"b": o({"id": I}, ["id"])}, "allOf": [{"$ref": "#/$defs/b"}, o({"name": S}, ["name"])]}, {"$defs": {"x": {"$ref": "#/$defs/y"}, "y": {"$ref": "#/$defs/z"}, "z": B}, "$ref": "#/$defs/x"},
    o({"op": {"const": "+"}, "args": {"type": "array", "items": {"anyOf": [N, {"$ref": "#"}]}, "minItems": 2, "maxItems": 2}}, ["op", "args"]), {"$defs": {"e": {"type": "object", "additionalProperties": {"$ref": "#/$defs/e"}}}, "$ref": "#/$defs/e"},
    {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "https://example.com/s", **o({"productId": I, "price": {"type": "number", "exclusiveMinimum": 0}, "tags": {"type": "array", "items": S, "minItems": 1}, "dimensions": o({"l": N, "w": N}, ["l", "w"])}, ["productId", "price"])},
]

# name of a keyword or a part of the message that must be in the error
REFUSED = [
    (False, "no value is valid"), ({"type": "integer", "minimum": 3, "maximum": 2}, "minimum"), ({"type": "string", "minLength": 3, "maxLength": 2}, "minLength"),
    ({"type": "array", "minItems": 2, "maxItems": 1}, "minItems"), ({"type": "object", "minProperties": 2, "maxProperties": 1}, "minProperties"), ({"enum": []}, "enum"),
    ({"$ref": "#"}, "leads back to itself"), ({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}, "leads back to itself"),
    (o({"a": {"$ref": "#"}}, ["a"]), "no value is valid"), ({"anyOf": [{"$ref": "#"}, I]}, "leads back"), ({"allOf": [I, S]}, "type"), ({"type": "integer", "enum": ["a"]}, "no value of enum"),
    ({"not": {}}, "#/not: this keyword"), (o({"a": {"not": I}}), "#/properties/a/not"), ({"if": I, "then": {"minimum": 1}}, "#/if"), ({"dependentRequired": {"a": ["b"]}}, "dependentRequired"),
    ({"type": "array", "contains": I}, "contains"), ({"type": "array", "uniqueItems": True}, "uniqueItems"), ({"unevaluatedProperties": False}, "unevaluatedProperties"),
    ({"type": "number", "multipleOf": 0.1}, "multipleOf"), ({"type": "string", "format": "idn-hostname"}, "format"), ({"type": "string", "pattern": "(?=a)"}, "pattern"), ({"type": "string", "pattern": "(a"}, "want ')'"),
    ({"type": "string", "pattern": "(a)\\1"}, "escape"), ({"type": "string", "pattern": "\\bfoo"}, "escape"), ({"oneOf": [I, N]}, "oneOf"), ({"oneOf": [o({"a": I}), o({"b": I})]}, "0 and 1 may hold"),
    ({"$ref": "https://example.com/x"}, "$ref"), ({"$ref": "#/$defs/none"}, "a place that is there"), ({"$ref": "other.json#/a"}, "$ref"), ({"type": "strin"}, "#/type"), ({"type": 3}, "#/type"), ({"minLength": -1}, "minLength"),
    ({"minLength": "1"}, "minLength"), ({"required": "a"}, "required"), ({"properties": []}, "properties"), ({"properties": {"a": 1}}, "properties"), ({"items": [3]}, "items"), ({"anyOf": []}, "anyOf"), ({"anyOf": I}, "anyOf"),
    ({"minimum": "1"}, "minimum"), ({"exclusiveMinimum": True, "minimum": 1}, "exclusiveMinimum"), (o({"a": False}, ["a"]), "required"), ({"type": "object", "minProperties": 3, "properties": {"a": I}, "additionalProperties": False}, "minProperties"),
    ({"type": "object", "propertyNames": {"enum": ["a", "b"]}, "minProperties": 3}, "no value is valid"), ({"type": "string", "pattern": "^a$", "minLength": 2}, "no value is valid"), ({"type": "integer", "minimum": 0.2, "maximum": 0.8}, "no value"),
    ({"type": "array", "items": False, "minItems": 1}, "no value"), (3, "want a schema"), ([], "want a schema"), ({"type": "integer", "exclusiveMinimum": 1, "maximum": 1}, "minimum"), ({"type": "object", "patternProperties": {"(": I}}, "pattern"),
    ({"type": "object", "dependentSchemas": {}}, "dependentSchemas"), ({"$dynamicRef": "#a"}, "$dynamicRef"), ({"type": "string", "pattern": 3}, "pattern"), ({"pattern": "a{3,2}", "type": "string"}, "maximum of at least"),
]


def nest(n, opening, inner, closing):
    return opening * n + inner + closing * n


def hostile():
    """JSON texts of jobs; none of them may take long."""
    job = lambda schema: json.dumps({"schema": schema, "seeds": 1, "max_tokens": 50})
    raw = lambda text: '{"seeds": 1, "max_tokens": 50, "schema": %s}' % text
    pattern = lambda p, **more: job({"type": "string", "pattern": p, **more})
    yield raw(nest(100_000, '{"items":', "{}", "}"))
    yield raw(nest(500, '{"items":', "{}", "}"))
    yield raw(nest(95, '{"items":', "{}", "}"))
    yield raw(nest(400, '{"allOf":[', "{}", "]}"))
    yield raw(nest(60_000, "[", "", "]"))
    yield raw(nest(45, '{"anyOf":[{},', "{}", "]}"))
    yield raw(nest(30, '{"properties":{"a":', "{}", "}}"))
    yield job({"enum": ["value %d" % i for i in range(20_000)]})
    yield job({"enum": list(range(20_000))})
    yield job({"allOf": [{"enum": list(range(5_000))}, {"enum": list(range(2_500, 7_500))}]})
    yield job({"anyOf": [{"const": i} for i in range(5_000)]})
    yield job({"oneOf": [{"const": i} for i in range(300)]})
    yield job({"oneOf": [o({"t": {"const": i}}, ["t"]) for i in range(60)]})
    yield job({"allOf": [{"anyOf": [{"minimum": i}, {"maximum": i}]} for i in range(40)]})
    yield job({"allOf": [{"anyOf": [S, I, B, N]} for _ in range(20)]})
    yield job({"allOf": [{"minimum": i} for i in range(2_000)]})
    yield job(o({"p%d" % i: S for i in range(3_000)}, ["p%d" % i for i in range(3_000)]))
    yield job(o({"p%d" % i: S for i in range(2_000)}))
    yield job(o({"p%d" % i: S for i in range(1_000)}, minProperties=500))
    yield job(o({"p%d" % i: S for i in range(300)}, minProperties=100, maxProperties=200))
    yield job(o({"p%d" % i: S for i in range(1_000)}, additionalProperties=S))
    yield job({"$defs": {"d%d" % i: {"$ref": "#/$defs/d%d" % (i + 1)} for i in range(1_000)} | {"d1000": S}, "$ref": "#/$defs/d0"})
    yield job({"$defs": {"d%d" % i: o({"n": {"$ref": "#/$defs/d%d" % (i + 1)}}) for i in range(1_000)} | {"d1000": S}, "$ref": "#/$defs/d0"})
    yield job({"$defs": {"d%d" % i: {"anyOf": [{"$ref": "#/$defs/d%d" % (i + 1)}] * 2} for i in range(30)} | {"d30": S}, "$ref": "#/$defs/d0"})
    yield job({"$defs": {"d%d" % i: {"allOf": [{"$ref": "#/$defs/d%d" % (i + 1)}] * 2} for i in range(30)} | {"d30": S}, "$ref": "#/$defs/d0"})
    yield job({"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"})
    yield job({"$ref": "#" + "/a" * 50_000})
    yield job({"$ref": "#/" + "~" * 50_000})
    yield pattern("(" * 60_000)
    yield pattern("(" * 60_000 + ")" * 60_000)
    yield pattern("(" * 60 + "a" + ")" * 60)
    yield pattern("(" * 60 + "a" + ")*" * 60)
    yield pattern("(a|a)*b")
    yield pattern("(a*)*b")
    yield pattern("^(a+)+$")
    yield pattern("(a|b)*a(a|b){30}")
    yield pattern("^L\\/[^/]+..............w...}}}}}}}}}}}}}}}}}}}}}}...n..\t...........")
    yield pattern("(a|b)*a(a|b){9}")
    yield pattern("(a|b|c|d|e|f|g|h)*a.{8}[a-z]{20}")
    yield pattern("(.*)(.*)(.*)(.*)(.*)x")
    yield pattern("a{1000000000}")
    yield pattern("(a{1000}){1000}")
    yield pattern("((((a{30}){30}){30}){30}){30}")
    yield pattern("((a?){100}){40}")
    yield pattern("x" * 65_000)
    yield pattern("x" * 70_000)
    yield pattern("x" * 4_000)
    yield pattern("|".join("abc%d" % i for i in range(500)))
    yield pattern("[%s]" % "".join(chr(0x4e00 + 2 * i) for i in range(5_000)))
    yield pattern("(%s)*" % "|".join("[%s]" % chr(0x4e00 + 2 * i) for i in range(500)))
    yield pattern("^.{1,2000}$")
    yield pattern("^.*$", minLength=3_000)
    yield pattern("^[a-z]*$", maxLength=1_000_000_000)
    yield pattern("\\w*\\s*\\w*\\s*\\w*\\s*$", maxLength=200)
    yield job({"type": "string", "minLength": 1_000_000_000})
    yield job({"type": "string", "minLength": 10**30, "maxLength": 10**31})
    yield job({"type": "array", "minItems": 10**9, "items": {"type": "array", "minItems": 10**9}})
    yield job({"type": "object", "minProperties": 10**9})
    yield job({"type": "object", "minProperties": 60})
    yield job({"type": "integer", "minimum": 10**300, "maximum": 10**301})
    yield raw('{"type": "number", "minimum": 1e400}')
    yield raw('{"type": "number", "minimum": %s}' % ("9" * 100_000))
    yield raw('{"type": "number", "exclusiveMinimum": 4.9e-324, "maximum": 1e308}')
    yield job({"type": "object", "patternProperties": {"^%s" % chr(97 + i): I for i in range(26)}})
    yield job({"type": "object", "patternProperties": {chr(97 + i): I for i in range(12)}})
    yield job({"type": "object", "patternProperties": {"(a|b)*a(a|b){8}%d" % i: I for i in range(3)}})
    yield job({"type": "object", "propertyNames": {"pattern": "(a|b)*a(a|b){9}"}, "properties": {"a" * 500: I}, "additionalProperties": I})
    yield job({"const": [["x"] * 1000] * 20})
    yield job({"const": "x" * 1_000_000})
    yield job({"required": ["r%d" % i for i in range(3_000)], "type": "object"})
    yield job({"type": ["string"] * 10_000})
    yield job({"prefixItems": [I] * 3_000, "type": "array", "minItems": 2_000})
    yield job({"format": "date-time", "pattern": "^2", "minLength": 21, "type": "string"})
    yield job({"allOf": [{"format": f} for f in ("uri", "email")], "type": "string"})
    yield job({"a" * 100_000: 1, "$ref": "#/" + "a" * 100_000})
    yield raw('{"\\u0000": 1, "properties": {"\\u0000": {"const": "\\u0000"}}, "required": ["\\u0000"]}')
    yield raw('{"enum": ["\\ud800"]}')
    yield raw("{")
    yield raw("")
    yield raw('{"type": "string", "type": "integer"}')


def run_jobs(program, jobs):
    return subprocess.run(program, input="\n".join(jobs) + "\n", capture_output=True, text=True, errors="replace")


def main():
    program = sys.argv[1:]
    jobs = [json.dumps({"schema": s, "seeds": SEEDS, "max_tokens": MAX_TOKENS}) for s in SCHEMAS]
    jobs += [json.dumps({"schema": s, "seeds": 1, "max_tokens": 10}) for s, _ in REFUSED]
    hostile_jobs = list(hostile())
    run = run_jobs(program, jobs + hostile_jobs)
    answers = [json.loads(line) for line in run.stdout.split("\n") if line]
    n_jobs = len(jobs) + len(hostile_jobs)
    if run.returncode != 0 or len(answers) != n_jobs:
        print("the program ended with %d after %d of %d jobs: %s" % (run.returncode, len(answers), n_jobs, run.stderr[-2000:]))
        index = len(answers)
        print("at:", (jobs + hostile_jobs)[index][:300] if index < n_jobs else "")
        return 1
    n_bad = n_texts = n_unfinished = n_never = 0

    def bad(what, schema, *more):
        nonlocal n_bad
        n_bad += 1
        print(what, json.dumps(schema)[:300], *more)

    validator_class = jsonschema.Draft202012Validator
    for schema, answer in zip(SCHEMAS, answers):
        if "error" in answer:
            bad("refused:", schema, answer["error"])
            continue
        validator = validator_class(schema, format_checker=getattr(validator_class, "FORMAT_CHECKER", jsonschema.FormatChecker()))
        n_never += not any(answer["ended"])
        for text, is_ended in zip(answer["texts"], answer["ended"]):
            if not is_ended:
                n_unfinished += 1
                continue
            n_texts += 1
            try:
                validator.validate(json.loads(text))
            except Exception as error:  # of either
                bad("invalid:", schema, repr(text)[:300], str(error)[:200])
    for (schema, message), answer in zip(REFUSED, answers[len(SCHEMAS):]):
        if message not in answer.get("error", ""):
            bad("not refused as it should be:", schema, message, str(answer)[:200])
    slowest, n_refused = 0, 0
    for job, answer in zip(hostile_jobs, answers[len(jobs):]):
        if answer["us"] > MAX_US:
            tries = [run_jobs(program, ['{"yardstick": true}', job]).stdout.split("\n")[:2] for _ in range(4)]
            yardstick, us = (min(json.loads(line)["us"] for line in lines) for lines in zip(*tries))
            answer["us"] = min(answer["us"], us) / max(1, yardstick / YARDSTICK_US)
        slowest = max(slowest, answer["us"])
        n_refused += "error" in answer
        if answer["us"] > MAX_US or "while generating" in answer.get("error", ""):
            bad("slow or failed:", job[:200], answer["us"], answer.get("error", ""))
    for job, answer in zip(jobs + hostile_jobs, answers):
        if answer.get("max_us", 0) > 10_000:
            print("slow mask:", job[:150], "... %.1f ms" % (answer["max_us"] / 1e3))
    timed = [a for a in answers if "median_us" in a]
    print("%d schemas, %d finished texts, %d unfinished, %d schemas without a finished text" % (len(SCHEMAS), n_texts, n_unfinished, n_never))
    print("%d schemas refused as they should be" % len(REFUSED))
    print("%d hostile schemas, %d refused, the slowest took %.1f ms" % (len(hostile_jobs), n_refused, slowest / 1e3))
    print("masks: worst median %.1f us, slowest %.1f ms" % (max(a["median_us"] for a in timed), max(a["max_us"] for a in timed) / 1e3))
    print("%d failures" % n_bad)
    return n_bad > 0


sys.exit(main())
