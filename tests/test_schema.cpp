// tests/test_schema.cpp: JSON schemas and the texts they must and must not allow, ranges of numbers against plain
// comparison, patterns against a plain definition, and schemas that are refused. tests/schema_check.py validates random
// outputs.
#include "../models/sampler.h"
#include "../models/schema.h"
#include "../models/schema_number.h"
#include "../models/schema_pattern.h"
#include "doctest.h"

#include <chrono>
#include <cmath>

using namespace duet;

namespace {

value parse(const std::string& json) {
    value v;
    error_text err;
    REQUIRE_MESSAGE(parse_json(json, &v, err) == DUET_OK, err.text);
    return v;
}

std::shared_ptr<constraint> compile(const std::string& schema, const schema_options& options = {}) {
    static const auto text = [](int32_t id, const void*) {
        static const char* const kTexts[] = {"a", ""};
        return std::string_view(kTexts[id]);
    };
    std::shared_ptr<const token_tree> tree;
    grammar g;
    error_text err;
    REQUIRE(token_tree::make(2, text, nullptr, {1}, &tree, err) == DUET_OK);
    REQUIRE_MESSAGE(compile_schema(parse(schema), options, &g, err) == DUET_OK, schema << ": " << err.text);
    return std::make_shared<constraint>(g, tree);
}

bool is_text(const std::shared_ptr<constraint>& c, std::string_view text) {
    grammar_matcher m(c);
    error_text err;
    return m.accept_bytes(text, err) == DUET_OK && m.can_end();
}

std::string refusal(const std::string& schema) {
    grammar g;
    error_text err;
    return compile_schema(parse(schema), {}, &g, err) == DUET_OK ? "" : err.text;
}

// Returns a random text of a grammar, made byte by byte, or an empty text if it did not end soon.
std::string random_text(const std::shared_ptr<constraint>& c, sampler_random& random) {
    grammar_matcher m(c);
    error_text err;
    std::string out;
    while (out.size() < 2000 && !(m.can_end() && (m.must_end() || random.uniform() < 0.3))) {
        std::vector<char> bytes;
        for (int byte = 0; byte < 256; byte++) {
            grammar_matcher copy = m;
            const char b = (char)byte;
            if (copy.accept_bytes({&b, 1}, err) == DUET_OK) bytes.push_back(b);
        }
        REQUIRE(!bytes.empty());
        out += bytes[(size_t)(random.uniform() * (double)bytes.size())];
        REQUIRE(m.accept_bytes({&out.back(), 1}, err) == DUET_OK);
    }
    return m.can_end() ? out : "";
}

struct schema_case {
    const char* schema;
    std::vector<const char*> yes, no;
};

}  // namespace

TEST_CASE("schemas: texts they allow") {
    const schema_case cases[] = {
        {"{}",
         {"null", "[1, {\"a\": []}]", "\"x\"", "-0.5e-3", "{}", "{\"\":1}"},
         {"", "nul", "01", "1.", "[1,]", "{a:1}", "\"\t\"", " 1", "1 "}},
        {R"({"type":"string"})",
         {R"("")", R"("\u00e4\n\"")", R"("\ud83d\ude00")", "\"\xc3\xa4\""},
         {R"("\ud83d")", R"("\x")", "\"\xff\"", "null"}},
        {R"({"type":"string","minLength":1,"maxLength":2})",
         {R"("a")", R"("\u00e4\n")", R"("\ud83d\ude00b")", "\"\xf0\x9f\x98\x80x\""},
         {R"("")", R"("abc")"}},
        {R"({"type":["integer","null"]})", {"12", "-3", "0", "null"}, {"1.0", "1e3", "true"}},
        {R"({"enum":[1,"a",[true]]})", {"1", "\"a\"", "[true]"}, {"2", "\"b\"", "[]"}},
        {R"({"type":"object","properties":{"a":{"type":"null"},"b":{"type":"null"}},"required":["b"]})",
         {R"({"b":null})", R"({"a":null,"b":null})", "{ \"a\": null,\n  \"b\": null\n}"},
         {"{}", R"({"a":null})", R"({"b":null,"a":null})", R"({"b":null,"c":1})", R"({"b":null,})"}},
        {R"({"type":"object","properties":{"a":{"type":"null"}},"additionalProperties":{"type":"boolean"}})",
         {"{}", R"({"a":null,"b":true})", R"({"aa":true,"":false})"},
         {R"({"a":true})", R"({"b":null})", R"({"a":null,"a":true})", R"({"\u0061":true})"}},
        {R"({"type":"object","properties":{"":{"type":"null"},"a":{}},"additionalProperties":{"type":"boolean"}})",
         {"{}", R"({"":null,"b":true})"},
         {R"({"":true})"}},
        {R"({"type":"object","patternProperties":{"^x":{"const":1}},"additionalProperties":false})",
         {"{}", R"({"x":1,"xy":1})"},
         {R"({"y":1})", R"({"x":2})"}},
        {R"({"type":"object","propertyNames":{"enum":["p","q"]},"additionalProperties":{"const":0}})",
         {"{}", R"({"p":0,"q":0})", R"({"q":0})"},
         {R"({"r":0})", R"({"p":0,"p":0})"}},
        {R"({"type":"object","properties":{"a":{"const":1},"b":{"const":1},"c":{"const":1}},"minProperties":1,"maxProperties":2})",
         {R"({"a":1})", R"({"a":1,"c":1})", R"({"c":1})"},
         {"{}", R"({"a":1,"b":1,"c":1})"}},
        {R"({"type":"object","required":["b"],"minProperties":2,"maxProperties":3})",
         {R"({"b":1,"x":2})", R"({"b":1,"x":2,"y":3})"},
         {R"({"b":1})", R"({"x":1,"y":2})", R"({"b":1,"x":2,"y":3,"z":4})"}},
        {R"({"type":"array","prefixItems":[{"const":1},{"const":2}],"items":{"const":3},"maxItems":3})",
         {"[]", "[1]", "[1,2]", "[1,2,3]"},
         {"[2]", "[1,2,3,3]", "[1,3]"}},
        // As drafts before 2020-12 have tuples, and schemas of zod and of MCP's tools.
        {R"({"type":"array","items":[{"const":1},{"const":2}],"minItems":1})",
         {"[1]", "[1,2]"},
         {"[]", "[2]", "[1,2,3]"}},
        {R"({"type":"array","items":[{"const":1}],"additionalItems":{"const":2}})",
         {"[1]", "[1,2,2]"},
         {"[2]", "[1,1]"}},
        {R"({"type":"array","items":{"const":1},"additionalItems":false})", {"[]", "[1,1]"}, {"[2]"}},
        {R"({"type":"array","items":{"const":0},"minItems":2,"maxItems":3})",
         {"[0,0]", "[0,0, 0]"},
         {"[]", "[0]", "[0,0,0,0]"}},
        {R"({"$defs":{"n":{"type":"array","items":{"$ref":"#/$defs/n"}}},"$ref":"#/$defs/n"})",
         {"[]", "[[],[[]]]"},
         {"[1]", "[[]"}},
        {R"({"anyOf":[{"type":"integer"},{"type":"boolean"}],"enum":[1,true,"x"]})", {"1", "true"}, {"\"x\"", "false"}},
        {R"({"allOf":[{"minimum":3},{"maximum":5}],"type":"integer"})", {"3", "4", "5"}, {"2", "6"}},
        {R"({"oneOf":[{"type":"object","properties":{"t":{"const":"a"},"v":{"type":"null"}},"required":["t","v"]},{"type":"object","properties":{"t":{"const":"b"}},"required":["t"]}]})",
         {R"({"t":"a","v":null})", R"({"t":"b"})"},
         {R"({"t":"a"})", R"({"t":"c"})"}},
    };
    for (const schema_case& t : cases) {
        const auto c = compile(t.schema);
        for (const char* text : t.yes) CHECK_MESSAGE(is_text(c, text), t.schema << " " << text);
        for (const char* text : t.no) CHECK_MESSAGE(!is_text(c, text), t.schema << " " << text);
    }
}

TEST_CASE("schemas: white space is bounded, and none without an indent") {
    const char* schema = R"({"type":"object","properties":{"a":{"type":"array"}},"required":["a"]})";
    const auto some = compile(schema, {2}), none = compile(schema, {0});
    CHECK(is_text(some, "{\n  \"a\":\n\t\t[\n  ]\n}"));
    CHECK(!is_text(some, "{\n   \"a\":[]}"));
    CHECK(!is_text(some, "{  \"a\":[]}"));
    CHECK(is_text(none, "{\"a\":[]}"));
    CHECK(!is_text(none, "{\"a\": []}"));
}

TEST_CASE("ranges of numbers are exact for integers near their bounds") {
    sampler_random random(1);
    for (int round = 0; round < 300; round++) {
        const int64_t span = round % 3 == 0 ? 20 : round % 3 == 1 ? 300 : 20'000;
        const int64_t a = (int64_t)(random.uniform() * 2 * double(span)) - span,
                      b = a + (int64_t)(random.uniform() * double(span) / 2);
        const bool is_open_low = random.uniform() < 0.3, is_open_high = random.uniform() < 0.3;
        if (a + is_open_low > b - is_open_high) continue;
        const int64_t divisor = 1 + (int64_t)(random.uniform() * 4);
        const std::string schema = std::string("{\"type\":\"integer\",\"") +
                                   (is_open_low ? "exclusiveMinimum" : "minimum") + "\":" + std::to_string(a) + ",\"" +
                                   (is_open_high ? "exclusiveMaximum" : "maximum") + "\":" + std::to_string(b) +
                                   ",\"multipleOf\":" + std::to_string(divisor) + "}";
        const auto is_in = [&](int64_t i) { return i >= a + is_open_low && i <= b - is_open_high && i % divisor == 0; };
        bool has_any = false;
        for (int64_t i = a; i <= b; i++) has_any = has_any || is_in(i);
        if (!has_any) {
            CHECK_MESSAGE(refusal(schema).find("no value is valid") != std::string::npos, schema);
            continue;
        }
        const auto c = compile(schema);
        for (int64_t i : {a - 1, a, a + 1, a + 2, a + 3, b - 2, b - 1, b, b + 1, a * 10, b * 10, a / 10, b / 10,
                          int64_t(0), -a, -b, (a + b) / 2})
            CHECK_MESSAGE(is_text(c, std::to_string(i)) == is_in(i), schema << " " << i);
    }
}

TEST_CASE("ranges of numbers hold as doubles, and every text of a range is inside it") {
    sampler_random random(2);
    const double scales[] = {1e-3, 1, 1e3, 1e9, 1e16};
    for (int round = 0; round < 60; round++) {
        double low = (random.uniform() - 0.5) * scales[round % 5],
               high = low + random.uniform() * scales[round % 5] * (round % 2 ? 1e-3 : 1);
        if (round % 7 == 0) low = 0;
        if (!(low < high)) continue;
        const bool is_open = round % 3 == 0;
        const std::string schema = std::string("{\"type\":\"number\",\"") +
                                   (is_open ? "exclusiveMinimum\":" : "minimum\":") + double_repr(low) +
                                   (is_open ? ",\"exclusiveMaximum\":" : ",\"maximum\":") + double_repr(high) + "}";
        const auto c = compile(schema);
        for (int i = 0; i < 20; i++) {
            const std::string text = random_text(c, random);
            const double x = parse(text).as_double();
            CHECK_MESSAGE((is_open ? x > low && x < high : x >= low && x <= high), schema << " " << text);
        }
        const std::string bound = double_repr(low);
        // Beside a bound of 16 digits there are only integers.
        if (round % 5 != 4 && bound.find('e') == bound.npos) CHECK_MESSAGE(is_text(c, bound) == !is_open, schema);
    }
}

TEST_CASE("patterns: what they find") {
    struct pattern_case {
        const char* pattern;
        std::vector<const char*> yes, no;
    };
    const pattern_case cases[] = {
        {"a", {"a", "xay"}, {"", "b"}},
        {"^a$", {"a"}, {"ab", "ba", ""}},
        {"^(a|bc)*$", {"", "abca"}, {"b", "ac"}},
        {"(^a|b$)", {"ax", "xb", "a"}, {"xa", "bx"}},
        {"^$", {""}, {"a"}},
        {"a{2,3}$", {"aa", "baaa", "aaaa"}, {"a", "aab"}},
        {"^[^a-c\\n]+$", {"d", "\xc3\xa4"}, {"a", "\n", ""}},
        {"^\\d\\w\\s$", {"1_ ", "0a\t"}, {"a1 ", "11"}},
        // Validators differ in which letters, digits and blanks are beyond ASCII.
        {"^\\S+$", {"a", "\xc3\xa9", "\xe6\x97\xa5"}, {" ", "\n", "\xc2\xa0", "\xe3\x80\x80", "\xef\xbb\xbf"}},
        {"^[^\\s@]+$", {"\xc3\xa9"}, {"@", "\xe2\x80\x83"}},
        {"^\\D\\W[^\\w]$", {"a- "}, {"1--", "\xc3\xa9--"}},
        {"^\\u00e4\\x41\\t$",
         {"\xc3\xa4"
          "A\t"},
         {"a"}},
        {"^.$", {"\xe2\x82\xac", "a"}, {"", "\n", "ab"}},
        {"^(a*)*b$", {"b", "aab"}, {"a"}},
        {"x^", {}, {"x", ""}},
        {"^\\ [\\ -]$", {"  ", " -"}, {" ", "a-"}},
    };
    for (const auto& t : cases) {
        char_automaton a, other, both;
        error_text err;
        REQUIRE_MESSAGE(match_strings({{t.pattern}}, &a, err) == DUET_OK, err.text);
        REQUIRE_MESSAGE(match_strings({{t.pattern, true}}, &other, err) == DUET_OK, err.text);
        for (const char* text : t.yes)
            CHECK_MESSAGE((a.accepts(text) && !other.accepts(text)), t.pattern << " " << text);
        for (const char* text : t.no)
            CHECK_MESSAGE((!a.accepts(text) && other.accepts(text)), t.pattern << " " << text);
        REQUIRE(match_strings({{t.pattern}, {t.pattern, true}}, &both, err) == DUET_OK);
        CHECK(both.is_empty());
    }
    const std::pair<const char*, std::vector<const char*>> valid[] = {
        {"date", {"2024-02-29", "2000-02-29", "0001-01-01", "9999-12-31"}},
        {"ipv6", {"::", "::1", "1:2:3:4:5:6:7:8", "fe80::1:2", "1::", "1:2:3:4:5:6:7::"}},
        {"time", {"23:59:59Z", "00:00:00.5+01:30"}},
        {"uri", {"https://a.example/b?c=d#e", "http://localhost:8080/"}},
        {"email", {"a.b+c@example.org"}},
        {"uuid", {"123e4567-e89b-12d3-a456-426614174000"}},
        {"duration", {"P3D", "P1Y2M10DT2H30M", "PT0S", "P2M", "P4W", "PT36H"}},
        {"hostname", {"localhost", "a-1.example.org", "xn--80ak6aa92e.com"}},
        {"ipv4", {"0.0.0.0", "255.1.20.199"}}};
    const std::pair<const char*, std::vector<const char*>> invalid[] = {
        {"date", {"2023-02-29", "1900-02-29", "2024-04-31", "0000-01-01", "2024-13-01"}},
        {"ipv6", {"1", ":::", "1:2:3:4:5:6:7", "1::2::3", "12345::"}},
        {"time", {"24:00:00Z", "12:00:00", "12:00Z"}},
        {"uri", {"a", "//x", "http:// "}},
        {"email", {"a", "@b.cc", "a@b"}},
        {"uuid", {"123e4567"}},
        {"duration", {"P", "PT", "P1", "P1D2H", "P1Y3D", "PT1H1S", "P1W1D", "1D"}},
        {"hostname", {"", "-a", "a-", "a..b", "a_b", "a.", "1.2.3.4"}},
        {"ipv4", {"256.1.1.1", "1.2.3", "01.2.3.4"}}};
    for (const auto* list : {&valid, &invalid})
        for (const auto& [format, texts] : *list) {
            char_automaton a;
            error_text err;
            REQUIRE_MESSAGE(match_strings({{format_pattern(format)}}, &a, err) == DUET_OK, err.text);
            for (const char* text : texts) CHECK_MESSAGE(a.accepts(text) == (list == &valid), format << " " << text);
        }
}

TEST_CASE("schemas that are refused name the place") {
    const std::pair<const char*, const char*> cases[] = {
        {"3", "want a schema"},
        {"false", "no value is valid"},
        {R"({"properties":{"a":{"not":{}}}})", "schema: #/properties/a/not: this keyword is not supported"},
        {R"({"type":"integer","minimum":3,"maximum":2})", "the minimum is above the maximum"},
        {R"({"enum":[]})", "#/enum: it is empty"},
        {R"({"$ref":"#"})", "leads back to itself"},
        {R"({"$ref":"#/$defs/x"})", "#/$ref: want a place that is there, got \"#/$defs/x\""},
        {R"({"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]})", "no value is valid"},
        {R"({"oneOf":[{"type":"integer"},{"type":"number"}]})",
         "#/oneOf: want branches that exclude each other; 0 and 1"},
        {R"x({"type":"string","pattern":"(?=a)"})x", "#/pattern: at byte 1: want a plain group"},
        {R"({"type":"string","format":"idn-hostname"})", "#/format: want one of date-time"},
        {R"({"type":"array","uniqueItems":true})", "#/uniqueItems"},
        {R"x({"type":"string","pattern":"\\ud83d\\u0041"})x", "want a character before this"},
        {R"({"minLength":-1})", "#/minLength: want a whole number"},
        {R"x({"type":"string","pattern":"(a|b)*a(a|b){30}"})x",
         "want a pattern whose automaton has at most 4096 states"},
    };
    for (const auto& [schema, message] : cases) {
        const std::string got = refusal(schema);
        CHECK_MESSAGE(got.find(message) != got.npos, schema << ": " << got);
    }
}

TEST_CASE("schemas that cost more than their size are refused soon") {
    const auto list = [](int n, auto text) {
        std::string out;
        for (int i = 0; i < n; i++) out += (i ? "," : "") + text(std::to_string(i));
        return out;
    };
    const auto pattern = [](const std::string& i) {
        return "\"p" + i + "\":{\"pattern\":\"^[acegikmoqsuwyACEGIKMOQSUWY02468]{" + std::to_string(4000 - stoi(i)) +
               "}\"}";
    };
    const std::string wide = "{\"allOf\":[" + list(1000, [](auto) { return std::string("{}"); }) + "],\"anyOf\":[" +
                             list(2000, [](const std::string& i) { return "{\"const\":" + i + "}"; }) + "]}";
    const std::string names = "{\"type\":\"object\",\"required\":[" +
                              list(2000, [](const std::string& i) { return "\"n" + i + "\""; }) + "]}";
    const auto of_x = [](const std::string& x, const std::string& rest) {
        return "{\"$defs\":{\"X\":" + x + "}," + rest + "}";
    };
    const std::pair<std::string, const char*> cases[] = {
        {"{\"properties\":{" + list(160, pattern) + "}}", "want patterns of fewer states"},
        {of_x(wide, "\"properties\":{" +
                        list(60,
                             [](const std::string& i) {
                                 return "\"p" + i + "\":{\"$ref\":\"#/$defs/X\",\"title\":\"" + i + "\"}";
                             }) +
                        "}"),
         "want at most 2048 ways"},
        {of_x(names, "\"oneOf\":[" +
                         list(90,
                              [](const std::string& i) {
                                  return "{\"$ref\":\"#/$defs/X\",\"properties\":{\"k\":{\"const\":" + i +
                                         "}},\"required\":[\"k\"]}";
                              }) +
                         "]"),
         "oneOf has too much to compare"},
    };
    for (const auto& [schema, message] : cases) {
        const auto start = std::chrono::steady_clock::now();
        const std::string got = refusal(schema);
        const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        MESSAGE("refused after ", seconds, " s: ", got);
        CHECK_MESSAGE(got.find(message) != got.npos, schema.substr(0, 60) << ": " << got);
    }
}

TEST_CASE("a schema inside a grammar made by calls: a tool call between markers") {
    grammar_builder b;
    error_text err;
    grammar g;
    grammar_builder::expr arguments;
    REQUIRE(add_schema(parse(R"({"type":"object","properties":{"city":{"type":"string"}},"required":["city"]})"), {}, b,
                       &arguments, err) == DUET_OK);
    const uint32_t root = b.add_rule("root");
    const auto call = b.sequence({b.until({"<tool_call>"}), b.literal("{\"name\": \"weather\", \"arguments\": "),
                                  arguments, b.literal("}</tool_call>")});
    b.define(root, b.sequence({b.repeat(call, 0), b.without({"<tool_call>"})}));
    REQUIRE_MESSAGE(b.build(root, &g, err) == DUET_OK, err.text);
    static const auto text = [](int32_t, const void*) { return std::string_view("a"); };
    std::shared_ptr<const token_tree> tree;
    REQUIRE(token_tree::make(1, text, nullptr, {}, &tree, err) == DUET_OK);
    const auto c = std::make_shared<constraint>(g, tree);
    CHECK(is_text(c, "Hello."));
    CHECK(is_text(c, R"(I look. <tool_call>{"name": "weather", "arguments": {"city": "Bonn"}}</tool_call>)"));
    CHECK(!is_text(c, R"(<tool_call>{"name": "weather", "arguments": {}}</tool_call>)"));
}
