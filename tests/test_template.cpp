// tests/test_template.cpp: JSON values, the language of chat templates, the origin of bytes, where messages begin, and
// hostile templates.
#include "../models/template.h"
#include "doctest.h"

#include <bit>
#include <chrono>
#include <clocale>
#include <cmath>
#include <random>

namespace {

using duet::value;

value json(const std::string& text) {
    value v;
    duet::error_text err;
    CHECK_MESSAGE(duet::parse_json(text, &v, err) == DUET_OK, err.text);
    return v;
}

std::string json_error(const std::string& text) {
    value v;
    duet::error_text err;
    CHECK(duet::parse_json(text, &v, err) == DUET_ERR_FORMAT);
    return err.text;
}

std::string dumped(const value& v, const duet::json_style& style = {}) {
    duet::traced_text out;
    duet::error_text err;
    CHECK(duet::write_json(v, style, &out, err) == DUET_OK);
    return out.bytes;
}

const char* const kVariables = R"({"x": 3, "s": "a<b>", "l": [3, 1, 2], "d": {"b": 1, "items": 2},
    "messages": [{"role": "system", "content": "S"}, {"role": "user", "content": "U<|x|>"}, {"role": "assistant", "content": " A "}]})";

duet_status render(const std::string& source, const value& variables, duet::rendered_template* out,
                   duet::error_text& err, const duet::template_limits& limits = {}) {
    duet::chat_template chat;
    const duet_status status = duet::chat_template::compile(source, &chat, err, limits);
    return status != DUET_OK ? status : chat.render(variables, {2026, 1, 2, 3, 4, 5}, out, err);
}

// Returns the text, or the message of the error.
std::string rendered(const std::string& source) {
    duet::rendered_template out;
    duet::error_text err;
    return render(source, json(kVariables), &out, err) == DUET_OK ? out.text.bytes : err.text;
}

// Returns the text with { } around all bytes that are input.
std::string marked(const std::string& source) {
    duet::rendered_template out;
    duet::error_text err;
    CHECK_MESSAGE(render(source, json(kVariables), &out, err) == DUET_OK, err.text);
    std::string text;
    bool is_input = false;
    for (size_t i = 0; i < out.text.size(); i++) {
        if (out.text.is_input_at(i) != is_input) text += is_input ? "}" : "{";
        is_input = out.text.is_input_at(i);
        text += out.text.bytes[i];
    }
    return text + (is_input ? "}" : "");
}

struct language_case {
    const char *source, *expected;
};

}  // namespace

TEST_CASE("JSON: what is read comes out again") {
    for (const char* text :
         {"null", "true", "-5", "9223372036854775807", "12345678901234567890", "[1.5, 1e+22, 1e-07, -0.0, 5e-324]",
          "{\"a\": [], \"b\": {}}", "\"\\\"\\\\\\n\\u0001é😀\""})
        CHECK(dumped(json(text)) == text);
    CHECK(dumped(json("{\"a\": 1, \"b\": 2, \"a\": 3}")) == "{\"a\": 3, \"b\": 2}");
    CHECK(dumped(json("\"\\ud83d\\ude00\"")) == "\"😀\"");
    CHECK(dumped(json("[1e999, -1e999]")) == "[Infinity, -Infinity]");
    const value big =
        json("{\"k0\":0,\"k1\":1,\"k2\":2,\"k3\":3,\"k4\":4,\"k5\":5,\"k6\":6,\"k7\":7,\"k8\":8,\"k9\":9}");
    for (int i = 0; i < 10; i++) REQUIRE(big.find("k" + std::to_string(i))->as_int() == i);
    CHECK(big.find("k") == nullptr);
    CHECK(big.find("k99") == nullptr);
}

TEST_CASE("numbers: the digits of a float are those of Python's repr, and read back") {
    // Hard ones: ends of the range, the borders of exponents, and powers of two whose shortest digits are not the
    // nearest of so many, because doubles below are twice as near.
    const struct {
        double d;
        const char* text;
    } cases[] = {
        {0.0, "0.0"},
        {-0.0, "-0.0"},
        {0.1, "0.1"},
        {0.1 + 0.2, "0.30000000000000004"},
        {1 / 3.0, "0.3333333333333333"},
        {123456789.125, "123456789.125"},
        {0x1p-1074, "5e-324"},
        {-0x1p-1073, "-1e-323"},
        {0x58p-1074, "4.35e-322"},
        {0x0.fffffffffffffp-1022, "2.225073858507201e-308"},
        {0x1p-1022, "2.2250738585072014e-308"},
        {0x1.fffffffffffffp+1023, "1.7976931348623157e+308"},
        {0x1p-20, "9.5367431640625e-07"},
        {1e-5, "1e-05"},
        {0x1.a36e2eb1c432cp-14, "9.999999999999999e-05"},
        {0x1.a36e2eb1c432dp-14, "0.0001"},
        {0x1.a36e2eb1c432ep-14, "0.00010000000000000002"},
        {0x1.fffffffffffffp+52, "9007199254740991.0"},
        {0x1p+53, "9007199254740992.0"},
        {0x1.1c37937e07fffp+53, "9999999999999998.0"},
        {0x1.1c37937e08p+53, "1e+16"},
        {0x1.1c37937e08001p+53, "1.0000000000000002e+16"},
        {-0x1p+63, "-9.223372036854776e+18"},
        {1e22, "1e+22"},
        {0x1.52d02c7e14af5p+76, "9.999999999999997e+22"},
        {0x1.52d02c7e14af6p+76, "1e+23"},
        {0x1.52d02c7e14af7p+76, "1.0000000000000001e+23"},
        {0x1p-1017, "7.120236347223045e-307"},
        {0x1p-44, "5.684341886080802e-14"},
        {0x1p-24, "5.960464477539063e-08"},
        {0x1p+89, "6.189700196426902e+26"},
        {0x1p+976, "6.386688990511104e+293"},
    };
    const auto check_all = [&] {
        for (const auto& [d, text] : cases) {
            double back = 1;
            CHECK(duet::double_repr(d) == text);
            CHECK(duet::read_double(text, &back));
            CHECK_MESSAGE(std::bit_cast<uint64_t>(back) == std::bit_cast<uint64_t>(d), text);
        }
        CHECK(duet::double_repr(1e16, false) == "10000000000000000.0");
        CHECK(duet::double_repr(1e-5, false) == "0.00001");
        CHECK(duet::double_repr(-0x1p+63, false) == "-9223372036854775808.0");
        CHECK(duet::real_digits(2.5, 'f', 0) == "2");
        CHECK(duet::real_digits(-0.125, 'e', 2) == "-1.25e-01");
        CHECK(duet::real_digits(1e300, 'g', 3) == "1e+300");
    };
    check_all();
    std::mt19937_64 random(1);
    for (int i = 0; i < 20000; i++) {
        const double d = std::bit_cast<double>(random() >> random() % 60);
        if (!std::isfinite(d)) continue;
        const std::string text = duet::double_repr(d), digits = text.substr(0, text.find('e'));
        double back = 0;
        CHECK(duet::read_double(text, &back));
        CHECK_MESSAGE(std::bit_cast<uint64_t>(back) == std::bit_cast<uint64_t>(d), text);
        if (d > 0 && d < 1e-4 && digits.size() > 2) {  // "1.25e-07" has three digits, and two are too few
            CHECK(duet::read_double(duet::real_digits(d, 'e', (int)digits.size() - 3), &back));
            CHECK_MESSAGE(back != d, text);
        }
    }
    double d = 7;
    for (const char* text : {"1e400", "inf", "Infinity"}) CHECK((duet::read_double(text, &d) && d == HUGE_VAL));
    CHECK((duet::read_double("-1e-400", &d) && d == 0 && std::signbit(d)));
    CHECK((duet::read_double("2.4e-324", &d) && d == 0));
    for (const char* text :
         {"", "+1", " 1", "1 ", "1,5", "0x1", "1e", "e5", "--1", "1.2.3", "nan(1)", "1_0", ".", "in"})
        CHECK_FALSE(duet::read_double(text, &d));

    const std::string before = std::setlocale(LC_NUMERIC, nullptr);
    if (std::setlocale(LC_NUMERIC, "de_DE.UTF-8") || std::setlocale(LC_NUMERIC, "de_DE")) check_all();
    else MESSAGE("no locale whose decimal point is a comma: not tested");
    std::setlocale(LC_NUMERIC, before.c_str());
}

TEST_CASE("JSON: styles of writing") {
    const value v = json("{\"b\": [1, {\"c\": \"é\"}], \"a\": 2}");
    duet::json_style style;
    style.sort_keys = style.ensure_ascii = true;
    CHECK(dumped(v, style) == "{\"a\": 2, \"b\": [1, {\"c\": \"\\u00e9\"}]}");
    style = {};
    style.has_indent = true;
    style.indent = "  ";
    style.item_separator = ",";
    CHECK(dumped(v, style) == "{\n  \"b\": [\n    1,\n    {\n      \"c\": \"é\"\n    }\n  ],\n  \"a\": 2\n}");
}

TEST_CASE("JSON: errors name the byte and what was wanted") {
    CHECK(json_error("[1,") == "JSON: at byte 3: want a value, got the end");
    CHECK(json_error("{\"a\" 1}") == "JSON: at byte 5: want ':', got '1}'");
    CHECK(json_error("[1] x") == "JSON: at byte 4: want the end, got 'x'");
    for (const char* text :
         {"", "01", "1.", "1e", "-", "nul", "\"a", "\"\\x\"", "\"\\u12\"", "\"\\ud800\"", "\"\\udc00\"", "\"\xff\"",
          "\"\n\"", "[1 2]", "{1: 2}", "{\"a\": 1,}", "NaN", "'a'", "\"\xed\xa0\x80\""})
        CHECK(json_error(text).starts_with("JSON: at byte "));
    CHECK(json_error(std::string(100, '[') + std::string(100, ']')) == "JSON: at byte 65: want at most 64 levels");
    duet::error_text err;
    value v;
    CHECK(duet::parse_json("[1,2,3]", &v, err, {.max_depth = 64, .max_bytes = 6, .max_values = 10}) == DUET_ERR_FORMAT);
    CHECK(duet::parse_json("[1,2,3]", &v, err, {.max_depth = 64, .max_bytes = 60, .max_values = 3}) == DUET_ERR_FORMAT);
}

TEST_CASE("values: deep ones are destroyed, shared ones compared, without stack or long time") {
    value deep;
    for (int i = 0; i < 1'000'000; i++) deep = value::of_list({deep});
    deep = value();
    value shared = value::of_int(1), other = value::of_int(1);
    for (int i = 0; i < 60; i++) {
        shared = value::of_list({shared, shared});
        other = value::of_list({other, other});
    }
    uint64_t n_steps = 1000;
    CHECK(!duet::values_equal(shared, other, &n_steps));
    CHECK(n_steps == 0);
}

TEST_CASE("values: memory is counted while it is held") {
    duet::memory_meter meter;
    {
        const value v =
            value::of_list({value::of_text(duet::traced_text(std::string(1000, 'a'), true), &meter)}, &meter);
        const value copy = v;
        CHECK(meter.used_bytes > 1000);
        CHECK(meter.used_bytes < 3000);
    }
    CHECK(meter.used_bytes == 0);
}

TEST_CASE("templates: the language, part by part") {
    static const language_case kCases[] = {
        {"{{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 / 2 }} {{ 2 ** 3 ** 2 }} {{ 1e16 }} {{ 2 ** 100 }}",
         "3 -4 2 3.5 64 1e+16 1267650600228229401496703205376"},
        {"{{ 'a' 'b' ~ 1 ~ none }} {{ 'ab' * 2 }} {{ [1] + [2] }} {{ (1,) }}", "ab1None abab [1, 2] (1,)"},
        {"{{ 1 < x <= 3 and not x == 4 }} {{ 2 in l }} {{ 'z' not in s }}", "True True True"},
        {"{{ x if x > 2 else 'n' }}{{ 'y' if false }}", "3"},
        {"{{ d.items is callable }} {{ d['items'] }} {{ d.b }} {{ d.nope is defined }}", "True 2 1 False"},
        {"{{ l[1:] }} {{ l[::-1] }} {{ 'häß'[-2:] }} {{ l[-1] }} {{ l[9] is defined }}", "[1, 2] [2, 1, 3] äß 2 False"},
        {"{{ ['it\\'s', \"q\\\"\", 1.0, true, none, {'k': []}] }}", "[\"it's\", 'q\"', 1.0, True, None, {'k': []}]"},
        {"{% for a in l if a > 1 %}{{ loop.index }}{{ a }}{{ loop.last }} {% else %}none{% endfor %}",
         "13False 22True "},
        {"{% for a in [] %}x{% else %}none{% endfor %}", "none"},
        {"{% for a in l %}{% if a == 1 %}{% continue %}{% endif %}{{ a }}{% endfor %}|{% for a in l %}{% if a == 1 "
         "%}{% break %}{% endif %}{{ a }}{% endfor %}",
         "32|3"},
        {"{% for a in [1, [2, [3]]] recursive %}{% if a is iterable %}({{ loop(a) }}){% else %}{{ a }}{{ loop.depth "
         "}}{% endif %}{% endfor %}",
         "11(22(33))"},
        {"{% for a in 'aab' %}{{ loop.changed(a) }}{{ loop.cycle('x', 'y') }}{{ loop.previtem is defined }} {% endfor "
         "%}",
         "TruexFalse FalseyTrue TruexTrue "},
        {"{% set ns = namespace(n=0) %}{% for a in l %}{% set ns.n = ns.n + a %}{% set y = a %}{% endfor %}{{ ns.n "
         "}}{{ y is defined }}",
         "6False"},
        {"{% macro f(a, b=a) %}{{ a }}{{ b }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1) }} {{ f(1, 2, 3, k=4) }}",
         "11(){} 12(3,){'k': 4}"},
        {"{% macro f() %}<{{ caller(1) }}>{% endmacro %}{% call(a) f() %}{{ a + 1 }}{% endcall %}", "<2>"},
        {"{% set t %}a{{ x }}{% endset %}{{ t }}{% set t | upper %}b{% endset %}{{ t }}{% filter upper %}c{% endfilter "
         "%}",
         "a3BC"},
        {"{% with a = 1, b = x %}{{ a }}{{ b }}{% endwith %}{{ a is defined }}", "13False"},
        {"{% autoescape true %}{{ s }}{{ s|safe }}{% endautoescape %}{{ s }}", "a&lt;b&gt;a<b>a<b>"},
        {"{% generation %}{{ x }}{% endgeneration %}{% raw %}{{ x }}{% endraw %}", "3{{ x }}"},
        {"a {%- if true -%} b {%- endif %}\n c\n{# d #}\n  {% set y = 1 %}\ne\n", "ab c\ne"},
        {"{{ '%s|%5.1f|%-3d|%x' % ('a', 2.25, 7, 255) }}", "a|  2.2|7  |ff"},
        {"{{ '{}-{k:>3}-{0!r:^5}'.format('a', k=1) if false else '{0}-{k:>3}'.format('a', k=1) }}", "a-  1"},
        {"{{ ' a,b '.strip().split(',') }} {{ 'x'.join(['1', '2']) }} {{ 'aXb'.find('X') }} {{ 'Straße'.upper() }} {{ "
         "'ΑΣ'.lower() }}",
         "['a', 'b'] 1x2 1 STRASSE ας"},
        {"{{ l|sort|join('-') }} {{ messages|map(attribute='role')|list|length }} {{ messages|selectattr('role', 'eq', "
         "'user')|map(attribute='content')|first }}",
         "1-2-3 3 U<|x|>"},
        {"{{ d|tojson }} {{ d|tojson(indent=1) }} {{ [1, 'é']|tojson(separators=(',', ':'), ensure_ascii=true) }}",
         "{\"b\": 1, \"items\": 2} {\n \"b\": 1,\n \"items\": 2\n} [1,\"\\u00e9\"]"},
        {"{{ nope }}{{ nope|default('d') }}{{ nope is undefined }}{{ nope|list }}", "dTrue[]"},
        {"{{ strftime_now('%d %b %Y %H:%M') }} {{ range(3)|list }} {{ dict(a=1) }}",
         "02 Jan 2026 03:04 [0, 1, 2] {'a': 1}"},
        // letters that the C library of Windows does not know, and others that are made of them
        {"{{ strftime_now('%D|%F|%T|%R|%C|%e|%k|%l|%-d|%u|%w|%j|%n|%t|%h|%c|%x|%X|%r|%q|%%') }}",
         "01/02/26|2026-01-02|03:04:05|03:04|20| 2| 3| 3|2|5|5|002|\n|\t|Jan|Fri Jan  2 03:04:05 2026|01/02/26|"
         "03:04:05|03:04:05 AM|%q|%"},
        {"{% for m in l %}{{ x }}{% endfor %}{% set x = 1 %}{{ x }}", "1"},
        {"{{ (x|nosuch) if false else 'fine' }}", "fine"},
    };
    for (const language_case& c : kCases) CHECK_MESSAGE(rendered(c.source) == c.expected, c.source);
}

TEST_CASE("templates: errors name the line and the cause") {
    static const language_case kCases[] = {
        {"\n\n{{ raise_exception('no ' ~ s) }}", "template line 3: no a<b>"},
        {"\n{{ nope.x }}", "template line 2: 'nope' is undefined"},
        {"{{ 1 + 'a' }}", "template line 1: unsupported operands for +"},
        {"{{ x|nosuch }}", "template line 1: no filter named 'nosuch'"},
        {"{% if false %}{{ x|nosuch }}{% endif %}\n{% if true %}{{ x|nosuch }}{% endif %}",
         "template line 2: no filter named 'nosuch'"},
        {"{{ x", "template line 1: want '}}', got the end of the template"},
        {"{% if x %}\n\n", "template line 2: want 'elif', got the end of the template"},
        {"{% nosuch %}", "template line 1: unknown tag 'nosuch'"},
        {"a\n{% include 'f' %}", "template line 2: 'include' is not supported"},
        {"{{ l.append(1) }}", "template line 1: access to attribute 'append' is unsafe"},
        {"{{ ''.__class__.__mro__ }}", "template line 1: 'str object' has no attribute '__class__'"},
        {"{% break %}", "template line 1: 'break' or 'continue' outside of a loop"},
    };
    for (const language_case& c : kCases) CHECK_MESSAGE(rendered(c.source) == c.expected, c.source);
    duet::rendered_template out;
    duet::error_text err;
    CHECK(render("{{ raise_exception('') }}", value(), &out, err) == DUET_ERR_ARG);
    CHECK(render("{% extends 'a' %}", value(), &out, err) == DUET_ERR_UNSUPPORTED);
    CHECK(render("{{", value(), &out, err) == DUET_ERR_FORMAT);
    CHECK(render("{{ 'a' * 1000000000 }}", value(), &out, err) == DUET_ERR_FULL);
    CHECK(render("\xff", value(), &out, err) == DUET_ERR_FORMAT);
    CHECK(duet::chat_template().render(value(), {}, &out, err) == DUET_ERR_STATE);
}

TEST_CASE("templates: the origin of bytes survives what is done to strings") {
    static const language_case kCases[] = {
        {"<{{ s }}>", "<{a<b>}>"},
        {"{{ 'x' + s + 'y' }}{{ x }}{{ true }}", "x{a<b>}y3True"},
        {"{{ s[1:] ~ s|upper }}", "{<b>A<B>}"},
        {"{{ (s + '|')|replace('<', '[') }}", "{a}[{b>}|"},
        {"{{ ('  ' + s + '  ')|trim }}{{ s.split('<')|join('!') }}", "{a<b>a}!{b>}"},
        {"{{ '%s=%d' % (s, 5) }}{{ '{}.'.format(s) }}", "{a<b>}=5{a<b>}."},
        {"{{ {'k': s}|tojson }}", "{{\"}k{\": \"a<b>\"}}"},
        {"{{ [s] }}{% set t %}[{{ s }}]{% endset %}{{ t }}", "{['a<b>']}[{a<b>}]"},
        {"{% macro f(v) %}({{ v }}){% endmacro %}{{ f(s) }}{% for c in s %}{{ c }},{% endfor %}",
         "({a<b>}){a},{<},{b},{>},"},
        {"{{ d.keys()|join }}{{ s.center(8, '*') }}{{ s|e }}", "{bitems}**{a<b>}**{a&lt;b&gt;}"},
    };
    for (const language_case& c : kCases) CHECK_MESSAGE(marked(c.source) == c.expected, c.source);
    duet::rendered_template out;
    duet::error_text err;
    const value variables = value::of_map(
        {{value::of_string("bos"), value::of_trusted("<s>")}, {value::of_string("u"), value::of_string("<s>")}});
    REQUIRE(render("{{ bos }}{{ u }}", variables, &out, err) == DUET_OK);
    CHECK(out.text.flips == std::vector<uint32_t>{3});
    CHECK(!out.text.starts_with_input);
}

TEST_CASE("templates: where each message begins") {
    struct start_case {
        const char* source;
        std::vector<int64_t> starts;
    };
    static const start_case kCases[] = {
        {"ab{% for m in messages %}[{{ m.content }}]{% endfor %}", {2, 5, 13}},
        {"{% for m in messages[1:] %}{{ m.content|trim }}{% endfor %}", {-1, 0, 6}},
        // the first loop writes nothing; the second one counts
        {"{% for m in messages|reverse %}{% set y = m %}{% endfor %}x{% for m in messages %}{{ m.role }}{% endfor %}",
         {1, 7, 11}},
        // the system message is looked at, but not written
        {"x{% for m in messages %}{% if m.role != 'system' %}{{ m.role }}{% endif %}{% endfor %}", {1, 1, 5}},
        {"{{ messages[0].content }}", {-1, -1, -1}},
        {"{% for m in messages|selectattr('role', 'eq', 'user') %}{% set ns = namespace(a=[m]) %}{% for k in ns.a "
         "%}-{{ k.role }}{% endfor %}{% endfor %}",
         {-1, 0, -1}},
        {"ab{% set t %}cd{% for m in messages %}e{% endfor %}{% endset %}{{ t }}", {2, 2, 2}},
        // other objects than the messages, even where they are equal
        {"{% for m in [{'role': 'system', 'content': 'S'}] %}{{ m.role }}{% endfor %}", {-1, -1, -1}},
    };
    for (const start_case& c : kCases) {
        duet::rendered_template out;
        duet::error_text err;
        CHECK_MESSAGE(render(c.source, json(kVariables), &out, err) == DUET_OK, err.text);
        CHECK_MESSAGE(out.message_starts == c.starts, c.source);
    }
}

TEST_CASE("templates: harmful ones end soon, with an error that says why") {
    auto many = [](const std::string& s, size_t n) {
        std::string out;
        for (size_t i = 0; i < n; i++) out += s;
        return out;
    };
    const std::string harmful[] = {
        many("{% for a in range(100000) %}", 5) + "x" + many("{% endfor %}", 5),
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% macro f(a=f()) %}{{ a }}{% endmacro %}{{ f() }}",
        "{% set ns = namespace(s='x') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ ns.s }}",
        "{% set ns = namespace(s=[1]) %}{% for i in range(60) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s }}",
        "{% set ns = namespace(s=[1]) %}{% for i in range(90000) %}{% set ns.s = [ns.s] %}{% endfor %}{{ ns.s|tojson "
        "}}",
        "{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}",
        "{{ 9 ** 9 ** 9 ** 9 }}",
        "{{ '%1000000000d' % 1 }}",
        "{{ 'a'.ljust(10**9) }}",
        "{{ [1]|slice(10**9)|list }}",
        "{{ [[1]]|tojson(indent=10**9) }}",
        "{{ range(10**9) }}",
        "{% set t = ' ' * 1000000 %}{% for i in range(1000) %}{{ t|trim }}{% endfor %}",
        "{% set t = ' ' * 1000000 %}{% for i in range(1000) %}{% set x = t.split() %}{% endfor %}",
        "{% set t = ' ' * 1000000 %}{% for i in range(1000) %}{{ t|int }}{% endfor %}",
        "{% set t = ' ' * 1000000 %}{% for i in range(1000) %}{{ t|float }}{% endfor %}",
        "{% set t = ('b',) * 90000 %}{% for i in range(1000) %}{% set x = 'a'.startswith(t) %}{% endfor %}",
        "{% set t = [1] * 90000 %}{% for i in range(1000) %}{% set x = t.count(1) %}{% endfor %}",
        "{{ ('a' * 300000).strip('b' * 300000) }}",
        "{% set t = 'a' * 1000000 %}{{ range(100000)|map(attribute=t)|list|length }}",
        "{{ " + many("(", 100000) + "1" + many(")", 100000) + " }}",
        "{{ " + many("not ", 100000) + "x }}",
        "{{ 1" + many("+1", 100000) + " }}",
        "{{ 'a'" + many("|trim", 100000) + " }}",
        many("{% if true %}", 100000),
        many("{{", 500000),
        many("a", 2u << 20),
    };
    for (const std::string& source : harmful) {
        duet::rendered_template out;
        duet::error_text err;
        duet::template_limits limits;
        limits.max_steps = 1'000'000;
        CHECK_MESSAGE(render(source, value(), &out, err, limits) != DUET_OK, source.substr(0, 60));
        CHECK_MESSAGE(err.text.starts_with("template line "), err.text);
    }
}

TEST_CASE("templates: keys have one order, whatever the numbers in them; names that are not there cost little") {
    const std::string keys =
        "{(48,4):0,(n,31):1,(30,41):2,(13,6):3,(24,27):4,(49,0):5,(17,46):6,(37,6):7,(1,1):8,(n,34):"
        "9,(n,24):10,(27,46):11,(n,14):12,(31,35):13,(n,14):14,(48,29):15,(1,26):16,(35,41):17}";
    CHECK(rendered("{% set n = 'nan'|float %}{{ " + keys + "|items|list|length }}") == "17");
    CHECK(rendered("{% set n = 'nan'|float %}{{ " + keys + "|urlencode|length > 99 }}") == "True");
    CHECK(rendered("{{ {9007199254740992: 1, 9007199254740993: 2, 9007199254740992.0: 3}|length }}") == "2");
    CHECK(rendered("{{ {1e300: 1, 1: 2, 1.0: 3, 18446744073709551616: 4, 18446744073709551617: 5}|length }}") == "4");
    CHECK(rendered("{% set t = 'a' * 100000 %}{{ range(5000)|map(attribute=t)|list|length }}") == "5000");
}

TEST_CASE("templates: what refers to itself is freed") {  // seen by the address sanitizer
    for (const char* source : {"{% set ns = namespace() %}{% set ns.a = [ns] %}",
                               "{% for i in [1] %}{% macro f() %}{{ f }}{% endmacro %}{% endfor %}",
                               "{% for i in [1, 2] %}{{ loop.changed(loop) }}{% set l = loop %}{% endfor %}"})
        CHECK(!rendered(source).starts_with("template line"));
}

TEST_CASE("templates: one compiled template renders many times, and costs little") {
    std::string messages = "[";
    for (int i = 0; i < 100; i++)
        messages += std::string(i ? "," : "") + "{\"role\": \"" + (i % 2 ? "assistant" : "user") +
                    "\", \"content\": \" some text \"}";
    const value variables = value::of_map({{value::of_string("messages"), json(messages + "]")}});
    duet::chat_template chat;
    duet::error_text err;
    REQUIRE(duet::chat_template::compile(
                "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('x') }}"
                "{% endif %}{{ '<|' + m['role'] + '|>' + m.content|trim + '\n' }}{% endfor %}",
                &chat, err) == DUET_OK);
    duet::rendered_template first, out;
    REQUIRE(chat.render(variables, {}, &first, err) == DUET_OK);
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < 20; i++) {
        REQUIRE(chat.render(variables, {}, &out, err) == DUET_OK);
        REQUIRE(out.text.bytes == first.text.bytes);
    }
    const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count() / 20;
    CHECK(ms < 200);  // 0.2 when measured; generous, for sanitizers and busy machines
}
