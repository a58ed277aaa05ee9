// tests/test_chat_parser.cpp: what chat models write, in every form, whole and in pieces. Checks the events, and that
// nothing is lost.
#include "chat_writers.h"

using namespace chat_test;

TEST_CASE(
    "chat parser: every form: one call, two, none, text, thinking, nested, escaped, unicode, markers in strings") {
    for (const writer& w : all_writers()) {
        CAPTURE(w.title);
        const chat_parser_options o = options_of(w.form, w.thinking);
        const std::vector<std::vector<wanted_call>> sets = {
            {kPlain},
            {kPlain, kNote},
            {{"ping", "{}"}},
            {{"get_weather",
              R"({"city": "Rome", "options": {"hourly": true, "fields": ["a", {"b": null}], "n": -0.0015}, "tags": [], "exact": false})"}},
            {{"note", R"({"text": "a \"b\" \\ 'c'\nd\te"})"}},
            {{"note", R"({"text": "été 北京 🙂 \\u00e9"})"}, {"ping", "{}"}, kPlain},
            {{"note", R"({"text": ""})"}},
            {{"get_weather", R"({"city": "3", "when": "null and void"})"}},
        };
        for (const auto& calls : sets) {
            if (w.form == chat_form::gigachat && calls.size() > 1) continue;
            std::string out = w.calls(calls);
            CAPTURE(out);
            seen s = read_all_ways(o, out);
            check_calls(s, calls);
            CHECK(s.text == "");
            out = w.text_begin + "I look." + w.text_end + w.calls(calls);
            s = read_all_ways(o, out);
            check_calls(s, calls);
            CHECK(s.text == "I look.");
            if (w.think_open.empty()) continue;
            s = read_all_ways(o, w.think("First, a\nthought.") + w.text_begin + "So:" + w.text_end + w.calls(calls));
            check_calls(s, calls);
            CHECK(s.text == "So:");
            CHECK(s.thinking == "First, a\nthought.");
        }
        const wanted_call marked = {"note", "{\"text\": \"a " + [&] {
                                        std::string m;
                                        for (const char* p = w.markers; *p; p++) append_json_byte(*p, &m);
                                        return m;
                                    }() + " b\"}"};
        check_calls(read_all_ways(o, w.calls({marked})), {marked});
        // None, and text after a call.
        CHECK(read_all_ways(o, "Just text.\n").text == "Just text.\n");
        const seen after = read_all_ways(o, w.calls({kPlain}) + "\nDone.");
        check_calls(after, {kPlain});
        CHECK(after.text == "Done.");
    }
}

TEST_CASE("chat parser: every form: cut short at every byte") {
    for (const writer& w : all_writers()) {
        CAPTURE(w.title);
        const chat_parser_options o = options_of(w.form, w.thinking);
        const wanted_call full = {"get_weather",
                                  R"({"city": "Pa\"ris", "options": {"a": [1, true, "x"]}, "days": 12})"};
        const std::string out = w.think("Hm.") + w.text_begin + "Yes" + w.text_end + w.calls({full});
        const seen whole = read_all_ways(o, out);
        check_calls(whole, {full});
        for (size_t n = 0; n <= out.size(); n++) {
            CAPTURE(n);
            const std::string_view part = std::string_view(out).substr(0, n);
            const seen s = read_pieces(o, part, n + 1);
            CHECK(read_pieces(o, part, 1).trace == s.trace);
            CHECK(read_pieces(o, part, 0, (uint32_t)n).trace == s.trace);
            CHECK(s.thinking.size() <= whole.thinking.size() + w.think_close.size());
            REQUIRE(s.calls.size() <= 1);
            if (s.calls.empty()) continue;
            CHECK(s.calls[0].name == full.name);
            if (s.calls[0].is_complete) CHECK(s.calls[0].arguments == full.arguments);
            // What came of the arguments is how they begin; a value that was cut may stand unconverted at the end.
            const std::string& a = s.calls[0].arguments;
            const size_t n_same =
                (size_t)(std::mismatch(a.begin(), a.end(), full.arguments.begin(), full.arguments.end()).first -
                         a.begin());
            CHECK(a.size() - n_same <= 24);
        }
    }
}

TEST_CASE("chat parser: every form: what does not parse is text, whole; calls switched off are text") {
    for (const writer& w : all_writers()) {
        CAPTURE(w.title);
        chat_parser_options o = options_of(w.form, w.thinking);
        // A tool that does not exist; the ends of calls may be text or markup, the rest is text.
        const std::string unknown = w.calls({{"no_such_tool", R"({"city": "Paris"})"}});
        const seen s = read_all_ways(o, "So: " + unknown);
        CHECK(s.calls.empty());
        if (w.form != chat_form::atem) CHECK(s.text == ("So: " + unknown).substr(0, s.text.size()));
        CHECK(s.text.find("Paris") != std::string::npos);
        o.any_tool = true;
        CHECK(read_all_ways(o, "So:\n" + unknown).calls.size() == 1);
        o.parse_calls = false;
        const std::string call = w.calls({kPlain});
        const seen off = read_all_ways(o, call);
        CHECK(off.calls.empty());
        if (w.form != chat_form::gigachat && w.form != chat_form::harmony && w.title != "atem, headers")
            CHECK(off.text == call);
        // Half markers and blanks.
        o.parse_calls = true;
        for (size_t n = 1; n < 12 && n < call.size(); n++) {
            const std::string half = "x\n\n " + call.substr(0, n) + " ~ y";
            const seen h = read_all_ways(o, half);
            if (h.calls.empty()) CHECK(h.text == half);
        }
    }
}

TEST_CASE("chat parser: every form: any bytes in any place lose nothing and end in time") {
    uint32_t seed = 7;
    const auto next = [&] { return seed = seed * 1664525u + 1013904223u, seed >> 8; };
    for (const writer& w : all_writers()) {
        CAPTURE(w.title);
        const chat_parser_options o = options_of(w.form, w.thinking);
        const std::string good = w.think("t") + w.text_begin + "text" + w.text_end + w.calls({kPlain, kNote});
        for (int round = 0; round < 120; round++) {
            std::string bad = good;
            for (uint32_t n = 1 + next() % 3; n--;) {
                const size_t at = next() % bad.size();
                if (next() % 3 == 0) bad[at] = (char)next();
                else if (next() % 2) bad.erase(at, 1 + next() % 8);
                else bad.insert(at, good.substr(next() % good.size(), next() % 20));
                if (bad.empty()) bad = "x";
            }
            CAPTURE(bad);
            const seen s = read_pieces(o, bad, bad.size());
            CHECK(read_pieces(o, bad, 1).trace == s.trace);
            CHECK(read_pieces(o, bad, 0, next()).trace == s.trace);
        }
    }
}

TEST_CASE("chat parser: thinking: open in the prompt, never closed, switched off, in odd places") {
    chat_parser_options o = options_of(chat_form::hermes, chat_thinking::think);
    CHECK(prompt_opens_thinking("<|im_start|>assistant\n<think>\n", chat_thinking::think));
    CHECK(prompt_opens_thinking("<think>", chat_thinking::think));
    CHECK(!prompt_opens_thinking("<|im_start|>assistant\n<think>\n\n</think>\n\n", chat_thinking::think));
    CHECK(!prompt_opens_thinking("", chat_thinking::think));
    CHECK(!prompt_opens_thinking("", chat_thinking::none));
    CHECK(!prompt_opens_thinking("x[THINK]", chat_thinking::think));
    CHECK(prompt_opens_thinking("x[THINK]", chat_thinking::mistral));
    CHECK(prompt_opens_thinking("\n<|begin_assistant|>\nHere are my reasoning steps:\n", chat_thinking::apriel));
    o.thinking_is_open = true;
    seen s = read_all_ways(o, "\nA thought.\n</think>\n\nAn answer.");
    CHECK(s.thinking == "A thought.");
    CHECK(s.text == "An answer.");
    const std::string open = "Never closed <tool_call>\n{\"name\": \"ping\", \"arguments\": {}}\n</tool_call> </thi";
    s = read_all_ways(o, open);
    CHECK(s.calls.empty());
    CHECK(s.thinking == open);
    CHECK(read_all_ways(o, "</think>x").text == "x");
    CHECK(read_all_ways(o, "a <think> b</think>x").thinking == "a <think> b");
    // A call of Kimi ends thinking.
    chat_parser_options kimi = options_of(chat_form::kimi, chat_thinking::think);
    kimi.thinking_is_open = true;
    s = read_all_ways(
        kimi, "Hm <|tool_calls_section_begin|> hm <|tool_calls_section_begin|><|tool_call_begin|>functions.ping:3"
              "<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>");
    CHECK(s.thinking == "Hm <|tool_calls_section_begin|> hm");
    REQUIRE(s.calls.size() == 1);
    CHECK(s.calls[0].id == "functions.ping:3");
    CHECK(s.calls[0].name == "ping");
    chat_parser_options kept = options_of(chat_form::solar, chat_thinking::solar);
    kept.split_thinking = false;
    CHECK(read_all_ways(kept, "<|think|>a<|end|><|begin|>assistant<|content|>b").text ==
          "<|think|>a<|end|><|begin|>assistantb");
    chat_parser_options apriel = options_of(chat_form::tool_list, chat_thinking::apriel);
    apriel.thinking_is_open = true;
    s = read_all_ways(apriel, "I add.\n[BEGIN FINAL RESPONSE]\nFour\n[END FINAL RESPONSE]\n");
    CHECK(s.thinking == "I add.");
    CHECK(s.text == "Four");
    // Solar's answer is a message of its own behind its thinking.
    const chat_parser_options solar = options_of(chat_form::solar, chat_thinking::solar);
    s = read_all_ways(solar, "<|think|>Hm.<|end|><|begin|>assistant<|content|>Hello.");
    CHECK(s.thinking == "Hm.");
    CHECK(s.text == "Hello.");
    s = read_all_ways(solar,
                      "<|think|>Hm.<|end|><|begin|>assistant<|tool_calls|><|tool_call:begin|>a1b2<|tool_call:name|>"
                      "ping<|tool_call:args|>{}<|tool_call:end|>");
    REQUIRE(s.calls.size() == 1);
    CHECK(s.calls[0].id == "a1b2");
    CHECK(s.text.empty());
    o.thinking_is_open = false;
    s = read_all_ways(o, "\n\n<think>\n\n</think>\n\nHello <think>no</think>");
    CHECK(s.thinking == "");
    CHECK(s.text == "Hello <think>no</think>");
    CHECK(read_all_ways(o, "\n</think>\n\nHi").text == "Hi");
    CHECK(read_all_ways(o, "Hi </think> there").text == "Hi </think> there");
    s = read_all_ways(
        o, "<think>a</think> x <tool_call>{\"name\": \"ping\", \"arguments\": {}}</tool_call>\n<think>b</think>y");
    CHECK(s.thinking == "ab");
    CHECK(s.text == "xy");
    CHECK(s.calls.size() == 1);
    o.split_thinking = false;
    CHECK(read_all_ways(o, "<think>\na\n</think>\nb").text == "<think>\na\n</think>\nb");
    o.split_thinking = true;
    o.thinking = chat_thinking::none;
    CHECK(read_all_ways(o, "<think>a</think>b").text == "<think>a</think>b");
}

TEST_CASE("chat parser: control tokens") {
    seen s;
    chat_parser parser;
    const auto feed = [&](const chat_parser_options& o, const std::vector<std::string>& pieces) {
        s = {};
        parser.start(o, {&s, collect});
        std::string all;
        for (const std::string& p : pieces) {
            const bool control = p[0] == '!';
            parser.feed(std::string_view(p).substr(control), control);
            all += p.substr(control);
        }
        parser.finish();
        CHECK(s.raw == all);
    };
    chat_parser_options o = options_of(chat_form::hermes, chat_thinking::think);
    feed(o, {"Hi", " ", "!<|im_end|>", "\nthere", "!<|eot|>"});
    CHECK(s.text == "Hi \nthere");
    feed(o, {"Text and ", "!<think>", "\nthen", "!</think>", "\n", "!<tool_call>", "\n{\"name\": \"ping\", ",
             "\"arguments\": {}}\n", "!</tool_call>"});
    CHECK(s.text == "Text and");
    CHECK(s.thinking == "then");
    CHECK(s.calls.size() == 1);
    feed(options_of(chat_form::llama3, chat_thinking::none),  // as Llama 4 begins
         {"!<|python_start|>", "!<|python_end|>", "{\"name\": \"ping\", \"parameters\": {}}"});
    CHECK(s.calls.size() == 1);
    CHECK(s.text.empty());
    o.parse_calls = o.split_thinking = false;
    feed(o, {"!<think>", "a", "!</think>", "b", "!<tool_call>", "c", "!</tool_call>", "!<|x|>"});
    CHECK(s.text == "<think>a</think>b<tool_call>c</tool_call>");
}

TEST_CASE("chat parser: what models write that is not quite the form") {
    using f = chat_form;
    struct row {
        f form;
        std::string input, text;
        std::vector<wanted_call> calls;
    };
    const std::vector<row> rows = {
        // JSON: order of members, further members, several calls between one pair of markers, no arguments
        {f::hermes,
         R"(<tool_call>{"arguments": {"text": "}"}, "name": "note"}</tool_call>)",
         "",
         {{"note", R"({"text": "}"})"}}},
        {f::hermes,
         R"(<tool_call>{"id": "x", "name": "note", "arguments": {}, "z": [1, {"name": 2}]}</tool_call>)",
         "",
         {{"note", "{}"}}},
        {f::hermes,
         R"(<tool_call>[{"name": "ping"}, {"name": "ping", "arguments": {}}]</tool_call>)",
         "",
         {{"ping", "{}"}, {"ping", "{}"}}},
        // names of arguments with blanks and signs
        {f::gemma,
         "<|tool_call>call:note{search query:<|\"|>a<|\"|>,$top:2}<tool_call|>",
         "",
         {{"note", R"({"search query": "a", "$top": 2})"}}},
        {f::pythonic, "[note(search  query = 'a', @x=1)]", "", {{"note", R"({"search  query": "a", "@x": 1})"}}},
        {f::hermes,
         "<tool_call>\n{\"name\": \"note\", \"arguments\": {\"text\": \"a\nb\"}}\n</tool_call>",
         "",
         {{"note", R"({"text": "a\nb"})"}}},
        {f::hermes,
         "<tool_call>\n{\"arguments\": {\"text\": \"a\tb\"}, \"name\": \"note\"}\n</tool_call>",
         "",
         {{"note", R"({"text": "a\tb"})"}}},
        {f::hermes, R"(<tool_call>{"name": "ping", "arguments": {}})", "", {{"ping", "{}"}}},
        {f::hermes,
         R"(<tool_call>{"name": "ping", "arguments": "{}"}</tool_call>)",
         R"(<tool_call>{"name": "ping", "arguments": "{}"}</tool_call>)",
         {}},
        {f::hermes, "<tool_call> is a marker", "<tool_call> is a marker", {}},
        {f::hermes,
         R"(<tool_call><tool_call>{"name": "ping", "arguments": {}}</tool_call> </tool_call>)",
         "<tool_call></tool_call>",
         {{"ping", "{}"}}},
        {f::hermes, "<tool_call>{\"name\": \"ping\", \"arguments\": {}}</tool_call>\n\n\n", "", {{"ping", "{}"}}},
        // tags: values by the schema
        {f::xml,
         "<tool_call><function=get_weather><parameter=city>7</parameter><parameter=days>7</"
         "parameter><parameter=exact>True</parameter>"
         "<parameter=when>null</parameter><parameter=tags>['a', None]</parameter><parameter=other>[1]</parameter>"
         "<parameter=more>x y</parameter></function></tool_call>",
         "",
         {{"get_weather",
           R"({"city": "7", "days": 7, "exact": true, "when": null, "tags": ["a", null], "other": [1], "more": "x y"})"}}},
        {f::xml,
         "<tool_call>\n<function=get_weather>\n<parameter=city>\n\n a "
         "\n\n</parameter>\n<parameter=days>\nmany\n</parameter>\n</function>\n</tool_call>",
         "",
         {{"get_weather", R"({"city": "\n a \n", "days": "many"})"}}},
        {f::xml, "<tool_call>\n{\"name\": \"ping\", \"arguments\": {}}\n</tool_call>", "", {{"ping", "{}"}}},
        {f::xml, "<function=note>{\"text\": \"a\"}</function>", "", {{"note", R"({"text": "a"})"}}},
        {f::xml, "<tool_call>\n<function=ping>\n</tool_call>", "", {{"ping", "{}"}}},
        {f::glm, "<tool_call>ping</tool_call>", "", {{"ping", "{}"}}},
        {f::glm,
         "<tool_call>ping\n</tool_call>\n<tool_call>pong\n</tool_call>",
         "<tool_call>pong\n</tool_call>",
         {{"ping", "{}"}}},
        // a name before its arguments; bare brackets at the start of a line
        {f::mistral, "[TOOL_CALLS]note{\"text\": \"a\"}", "", {{"note", R"({"text": "a"})"}}},
        {f::mistral, "[TOOL_CALLS][]", "[TOOL_CALLS][]", {}},
        {f::llama3, R"({"name": "Bob", "parameters": {}})", R"({"name": "Bob", "parameters": {}})", {}},
        {f::llama3,
         R"([{"name": "ping", "arguments": {}}, {"name": "ping", "arguments": {}}])",
         "",
         {{"ping", "{}"}, {"ping", "{}"}}},
        {f::llama3, "<|python_tag|>print(1)", "<|python_tag|>print(1)", {}},
        {f::llama3, R"(Here: {"name": "ping", "parameters": {}})", R"(Here: {"name": "ping", "parameters": {}})", {}},
        {f::llama3, "{\n  \"a\": 1\n}", "{\n  \"a\": 1\n}", {}},
        {f::pythonic,
         "[ping(), note(text=\"it's\\t\\x41\\u00e9\\U0001f642\\\n\\d\"), note(text='''a\"b''')]",
         "",
         {{"ping", "{}"},
          {"note", R"({"text": "it's\t\u0041\u00e9\ud83d\ude42\\d"})"},
          {"note", R"({"text": "a\"b"})"}}},
        {f::pythonic,
         "[get_weather(city = \"\", days=+1_000, options={'a': (1, .5, 5.), }, tags=[[], {}, 1e3,],)]",
         "",
         {{"get_weather", R"({"city": "", "days": 1000, "options": {"a": [1, 0.5, 5.0]}, "tags": [[], {}, 1e3]})"}}},
        {f::pythonic, "[1, 2]\n[a](b)\n[ping]", "[1, 2]\n[a](b)\n[ping]", {}},
        {f::pythonic, "[note(\"a\")]", "[note(\"a\")]", {}},
        {f::gemma,
         "<|tool_call>call:get_weather{city:<|\"|>a<|\"b<|<|\"|>,options:{x:{y:[<|\"|><|\"|>,1]},\xc3\xa9[0]:2},exact:"
         "true}<tool_"
         "call|>",
         "",
         {{"get_weather", R"({"city": "a<|\"b<|", "options": {"x": {"y": ["", 1]}, "é[0]": 2}, "exact": true})"}}},
        {f::deepseek,
         "<｜DSML｜function_calls><｜DSML｜invoke name=\"note\">{\"text\": "
         "\"a\"}</｜DSML｜invoke></｜DSML｜function_calls>",
         "",
         {{"note", R"({"text": "a"})"}}},
        {f::harmony,
         "<|channel|>commentary<|message|>Let me see.<|end|><|start|>assistant<|channel|>commentary "
         "to=functions.ping<|message|>{}<|call|>",
         "Let me see.",
         {{"ping", "{}"}}},
        {f::harmony,
         "<|channel|>commentary to=browser.open<|message|>{}<|call|>",
         "<|channel|>commentary to=browser.open<|message|>{}",
         {}},
        {f::harmony, "plain <|message|>x", "plainx", {}},
        {f::none,
         R"(<tool_call>{"name": "ping", "arguments": {}}</tool_call>)",
         R"(<tool_call>{"name": "ping", "arguments": {}}</tool_call>)",
         {}},
    };
    for (const row& r : rows) {
        CAPTURE(r.input);
        const seen s = read_all_ways(options_of(r.form, chat_thinking::think), r.input);
        CHECK(s.text == r.text);
        check_calls(s, r.calls);
    }
}

TEST_CASE("chat parser: arguments that break: what was passed on stays, the rest is text") {
    const auto read = [](chat_form form, const char* input) {
        const seen s = read_all_ways(options_of(form, chat_thinking::none), input);
        REQUIRE(s.calls.size() == 1);
        CHECK(!s.calls[0].is_complete);
        return s;
    };
    seen s = read(chat_form::hermes, R"(<tool_call>{"name": "note", "arguments": {"text": tru!}}</tool_call>)");
    CHECK(s.calls[0].arguments == "{\"text\": tru");
    CHECK(s.text == "!}}</tool_call>");
    s = read(chat_form::xml, "<function=note><parameter=text>a</parameter>\n<parameter=b>c</parameter></function \n");
    CHECK(s.calls[0].arguments == "{\"text\": \"a\", \"b\": c</parameter></function \n");
    s = read(chat_form::glm, "<tool_call>note\n<arg_key>text</arg_key> none");
    CHECK(s.calls[0].arguments == "");
    CHECK(s.text == "\n<arg_key>text</arg_key> none");
    s = read(chat_form::pythonic, "[note(text=\"a\", b=?)] c");
    CHECK(s.calls[0].arguments == "{\"text\": \"a\", \"b\": ");
    CHECK(s.text == "?)] c");
}

TEST_CASE("chat parser: long inputs: bounded hold, linear time") {
    const auto repeat = [](std::string_view s) {
        std::string out;
        while (out.size() < 200000) out += s;
        return out;
    };
    struct row {
        chat_form form;
        std::string input;
    };
    const std::string args = R"({"name": "note", "arguments": {"text": )", tags = "<tool_call><function=get_weather>";
    const std::vector<row> rows = {
        {chat_form::hermes, repeat("<tool_call>")},
        {chat_form::hermes, repeat("<tool_call>{\"name\": \"")},
        {chat_form::hermes, repeat("\n \t")},
        {chat_form::hermes, "<tool_call>" + args + "\"" + repeat("\n</tool_call>\\n")},
        {chat_form::hermes, "<tool_call>" + args + repeat("[")},
        {chat_form::hermes, "<tool_call>{" + repeat(" ")},
        {chat_form::xml, tags + "<parameter=city>" + repeat("</parameter> \n")},
        {chat_form::xml, tags + "<parameter=days>" + repeat("1") + "</parameter></function>"},
        {chat_form::xml, tags + "<parameter=options>{" + repeat("\n") + "}</parameter></function>"},
        {chat_form::pythonic, "[note(text=" + repeat("[")},
        {chat_form::pythonic, repeat("[note\n[")},
        {chat_form::pythonic, repeat("[ping(),,,,")},
        {chat_form::llama3, repeat("{\"name\": \"ping\"};")},
        {chat_form::gemma, "<|tool_call>call:note{text:<|\"|>" + repeat("<|\"|")},
        {chat_form::harmony, repeat("<|channel|>")},
        {chat_form::mistral, repeat("[TOOL_CALLS]a")},
    };
    for (const row& r : rows) {
        CAPTURE(r.input.substr(0, 60));
        seen s;
        chat_parser parser;
        parser.start(options_of(r.form, chat_thinking::think), {&s, collect});
        size_t most = 0;
        for (const char& c : r.input) {
            parser.feed({&c, 1}, false);
            most = std::max(most, parser.n_held_bytes());
        }
        parser.finish();
        CHECK(s.raw == r.input);
        CHECK(read_pieces(options_of(r.form, chat_thinking::think), r.input, r.input.size()).trace == s.trace);
        CHECK(most <= kMaxChatHeld + kMaxChatName + 2 * kMaxChatBlanks);
    }
}
