// tests/test_chat_parser.cpp: what chat models write, in every form, whole and in pieces: the events, and that nothing
// is lost. Real templates are read from the test data; models' outputs are written by the writers below.
#include "../models/chat_parser.h"
#include "../models/chat_values.h"
#include "doctest.h"
#include "hostile.h"
#include "test_data.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>

using namespace duet;

namespace {

struct seen_call {
    std::string name, arguments, id;
    bool is_complete = false, has_end = false;
};

struct seen {
    std::string text, thinking, raw, trace; // trace: the events, neighbours of one kind merged
    std::vector<seen_call> calls;
    int last_kind = -1;
};

void collect(void* user, const chat_event& e) {
    seen& s = *(seen*)user;
    s.raw += e.raw;
    const bool joins = e.kind != chat_event_kind::call_begin && e.kind != chat_event_kind::call_end;
    if ((int)e.kind != s.last_kind || !joins)
        s.trace += "\n" + std::string("TKBAEM").substr((size_t)e.kind, 1) + std::to_string(e.i_call) +
                   (e.is_complete ? "+" : "") + ":";
    s.last_kind = (int)e.kind;
    s.trace += e.bytes;
    if (e.kind == chat_event_kind::markup) s.trace += e.raw;
    switch (e.kind) {
    case chat_event_kind::text:
        s.text += e.bytes;
        break;
    case chat_event_kind::thinking:
        s.thinking += e.bytes;
        break;
    case chat_event_kind::call_begin:
        REQUIRE((size_t)e.i_call == s.calls.size());
        s.calls.push_back({std::string(e.bytes), "", std::string(e.id)});
        break;
    case chat_event_kind::call_arguments:
        REQUIRE((size_t)e.i_call + 1 == s.calls.size());
        CHECK(!s.calls.back().has_end);
        s.calls.back().arguments += e.bytes;
        break;
    case chat_event_kind::call_end:
        REQUIRE((size_t)e.i_call + 1 == s.calls.size());
        CHECK(!s.calls.back().has_end);
        s.calls.back().has_end = true;
        s.calls.back().is_complete = e.is_complete;
        break;
    case chat_event_kind::markup:
        CHECK(e.bytes.empty());
        break;
    }
    if (e.kind == chat_event_kind::text || e.kind == chat_event_kind::thinking) CHECK(e.bytes == e.raw);
}

// n_bytes: pieces of so many bytes; 0: of random sizes.
seen read_pieces(const chat_parser_options& options, std::string_view input, size_t n_bytes, uint32_t seed = 1) {
    seen s;
    chat_parser parser;
    parser.start(options, {&s, collect});
    for (size_t at = 0; at < input.size();) {
        seed = seed * 1664525u + 1013904223u;
        const size_t n = n_bytes ? n_bytes : 1 + (seed >> 16) % 9;
        parser.feed(input.substr(at, n), false);
        at += n;
    }
    parser.finish();
    CHECK(s.raw == input);
    for (const seen_call& c : s.calls) CHECK(c.has_end);
    return s;
}

// Read whole, byte by byte and in random pieces: the same events.
seen read_all_ways(const chat_parser_options& options, std::string_view input) {
    const seen whole = read_pieces(options, input, input.size() + 1);
    CHECK(read_pieces(options, input, 1).trace == whole.trace);
    for (uint32_t seed = 1; seed <= 4; seed++) CHECK(read_pieces(options, input, 0, seed).trace == whole.trace);
    return whole;
}

value json(std::string_view text) {
    value v;
    error_text err;
    REQUIRE_MESSAGE(parse_json(text, &v, err) == DUET_OK, err.text);
    return v;
}

std::string json_text(const value& v) {
    traced_text out;
    error_text err;
    REQUIRE(write_json(v, {}, &out, err) == DUET_OK);
    return out.bytes;
}

chat_parser_options options_of(chat_form form, chat_thinking thinking) {
    static const std::vector<chat_tool> kTools = {
        {"get_weather",
         json(R"({"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"},
            "exact": {"type": "boolean"}, "options": {"type": "object"}, "tags": {"type": "array"},
            "when": {"type": ["string", "null"]}}, "required": ["city"]})")},
        {"note", json(R"({"type": "object", "properties": {"text": {"type": "string"}}})")},
        {"ping", json(R"({"type": "object", "properties": {}})")},
    };
    chat_parser_options o;
    o.form = form;
    o.thinking = thinking;
    o.parse_calls = true;
    o.tools = kTools;
    return o;
}

struct wanted_call {
    std::string name, arguments; // JSON with ", " and ": " between
};

// How a family writes: from calls, text and thinking to the model's output.
struct writer {
    std::string title;
    chat_form form;
    chat_thinking thinking;
    std::string think_open, think_close;
    std::function<std::string(const std::vector<wanted_call>&)> calls;
    std::string text_end = "\n"; // between text and calls
    const char* markers = "";    // text for the test of markers in strings
    std::string text_begin = "";
    std::string think(const std::string& s) const { return think_open + s + think_close; }
};

std::string with_tags(const wanted_call& c, const std::string& open, const std::string& middle,
                      const std::string& close) {
    std::string out;
    const value v = json(c.arguments);
    for (const value_member& m : v.members()) {
        const std::string text = m.val.is_string() ? std::string(m.val.as_string()) : json_text(m.val);
        std::string mid = middle;
        if (mid == "DSML") mid = std::string("\" string=\"") + (m.val.is_string() ? "true" : "false") + "\">";
        out += open + std::string(m.key.as_string()) + mid + text + close;
    }
    return out;
}

void write_literal(const value& v, bool gemma, bool arguments, std::string* out) {
    const auto quoted = [&](std::string_view s) {
        if (gemma) {
            *out += "<|\"|>" + std::string(s) + "<|\"|>";
            return;
        }
        *out += '\'';
        for (const char c : s) {
            if (c == '\n')
                *out += "\\n";
            else {
                if (c == '\'' || c == '\\') *out += '\\';
                *out += c;
            }
        }
        *out += '\'';
    };
    if (v.is_map()) {
        if (!arguments) *out += '{';
        for (size_t i = 0; i < v.members().size(); i++) {
            const value_member& m = v.members()[i];
            if (i) *out += gemma ? "," : ", ";
            if (gemma || arguments)
                *out += std::string(m.key.as_string()) + (gemma ? ":" : "=");
            else
                quoted(m.key.as_string()), *out += ": ";
            write_literal(m.val, gemma, false, out);
        }
        if (!arguments) *out += '}';
    } else if (v.is_list()) {
        *out += '[';
        for (size_t i = 0; i < v.items().size(); i++) {
            if (i) *out += gemma ? "," : ", ";
            write_literal(v.items()[i], gemma, false, out);
        }
        *out += ']';
    } else if (v.is_string())
        quoted(v.as_string());
    else if (v.is_bool())
        *out += gemma ? (v.as_bool() ? "true" : "false") : (v.as_bool() ? "True" : "False");
    else if (v.is_null())
        *out += gemma ? "null" : "None";
    else
        *out += json_text(v);
}

std::string literal(const wanted_call& c, bool gemma) {
    std::string out;
    write_literal(json(c.arguments), gemma, true, &out);
    return out;
}

// One piece for each call: a + name + b + arguments + c, joined by sep.
std::string join(const std::vector<wanted_call>& calls, const std::string& a, const std::string& b,
                 const std::string& c, const std::string& sep) {
    std::string out;
    for (size_t i = 0; i < calls.size(); i++) out += (i ? sep : "") + a + calls[i].name + b + calls[i].arguments + c;
    return out;
}

using calls_t = const std::vector<wanted_call>&;

std::vector<writer> all_writers() {
    using f = chat_form;
    using t = chat_thinking;
    const std::string q = "{\"name\": \"", args = "\", \"arguments\": ";
    const auto tags = [](std::string a, std::string b, std::string po, std::string pm, std::string pc, std::string end,
                         std::string before, std::string sep, std::string after) {
        return [=](calls_t calls) {
            std::string out = before;
            for (size_t i = 0; i < calls.size(); i++)
                out += (i ? sep : "") + a + calls[i].name + b + with_tags(calls[i], po, pm, pc) + end;
            return out + after;
        };
    };
    const auto literals = [](std::string before, std::string after, bool gemma, std::string a, std::string b,
                             std::string c, std::string sep) {
        return [=](calls_t calls) {
            std::string out = before;
            for (size_t i = 0; i < calls.size(); i++)
                out += (i ? sep : "") + a + calls[i].name + b + literal(calls[i], gemma) + c;
            return out + after;
        };
    };
    return {
        {"hermes", f::hermes, t::think, "<think>\n", "\n</think>\n\n",
         [=](calls_t c) { return join(c, "<tool_call>\n" + q, args, "}\n</tool_call>", "\n"); }, "\n",
         "<tool_call> </tool_call> </think> {\"name\""},
        {"hermes, tight", f::hermes, t::none, "", "",
         [=](calls_t c) { return join(c, "<tool_call>" + q, args, "}</tool_call>", ""); }, "", "</tool_call>"},
        {"xml", f::xml, t::think, "<think>\n", "\n</think>\n\n",
         tags("<tool_call>\n<function=", ">\n", "<parameter=", ">\n", "\n</parameter>\n", "</function>\n</tool_call>",
              "", "\n", ""),
         "\n\n", "</parameter> and </function> </tool_call> <parameter=x> <tool_call>"},
        {"xml, one section", f::xml, t::none, "", "",
         tags("<function=", ">\n", "<parameter=", ">\n", "\n</parameter>\n", "</function>", "<tool_call>\n", "\n",
              "\n</tool_call>"),
         "\n", "</function>"},
        {"xml, begin forgotten", f::xml, t::none, "", "",
         tags("<function=", ">\n", "<parameter=", ">\n", "\n</parameter>\n", "</function>\n</tool_call>", "", "\n", ""),
         "\n", "</tool_call>"},
        {"seed", f::xml, t::seed, "<seed:think>", "</seed:think>",
         tags("<seed:tool_call>\n<function=", ">\n", "<parameter=", ">", "</parameter>\n",
              "</function>\n</seed:tool_call>", "", "\n", ""),
         "\n", "</seed:tool_call> </seed:think>"},
        {"minimax", f::minimax, t::think, "<think>\n", "\n</think>\n\n",
         tags("<invoke name=\"", "\">\n", "<parameter name=\"", "\">", "</parameter>\n", "</invoke>\n",
              "<minimax:tool_call>\n", "", "</minimax:tool_call>"),
         "\n\n", "</parameter> and </invoke> </minimax:tool_call>"},
        {"glm 4.5", f::glm, t::think, "<think>", "</think>\n",
         tags("<tool_call>", "\n", "<arg_key>", "</arg_key>\n<arg_value>", "</arg_value>\n", "</tool_call>", "", "\n",
              ""),
         "\n", "</arg_value> and </tool_call> <arg_key>"},
        {"glm 4.7", f::glm, t::think, "<think>", "</think>",
         tags("<tool_call>", "", "<arg_key>", "</arg_key><arg_value>", "</arg_value>", "</tool_call>", "", "", ""), "",
         "</arg_value>, </tool_call>"},
        {"deepseek v3", f::deepseek, t::none, "", "",
         [=](calls_t c) {
             return "<｜tool▁calls▁begin｜>" +
                    join(c, "<｜tool▁call▁begin｜>function<｜tool▁sep｜>", "\n```json\n", "\n```<｜tool▁call▁end｜>",
                         "\n") +
                    "<｜tool▁calls▁end｜>";
         },
         "", "<｜tool▁call▁end｜> ```"},
        {"deepseek v3.1", f::deepseek, t::think, "<think>", "</think>",
         [=](calls_t c) {
             return "<｜tool▁calls▁begin｜>" +
                    join(c, "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>", "") +
                    "<｜tool▁calls▁end｜>";
         },
         "", "<｜tool▁call▁end｜><｜tool▁calls▁end｜>"},
        {"deepseek v3.2", f::deepseek, t::think, "<think>", "</think>\n\n",
         tags("<｜DSML｜invoke name=\"", "\">\n", "<｜DSML｜parameter name=\"", "DSML", "</｜DSML｜parameter>\n",
              "</｜DSML｜invoke>\n", "<｜DSML｜function_calls>\n", "", "</｜DSML｜function_calls>"),
         "\n\n", "</｜DSML｜parameter> and </｜DSML｜invoke>"},
        {"kimi", f::kimi, t::think, "<think>", "</think>",
         [=](calls_t c) {
             return "<|tool_calls_section_begin|>" +
                    join(c, "<|tool_call_begin|>functions.", ":0<|tool_call_argument_begin|>", "<|tool_call_end|>",
                         "") +
                    "<|tool_calls_section_end|>";
         },
         "", "<|tool_call_end|>"},
        {"mistral, list", f::mistral, t::none, "", "",
         [=](calls_t c) { return "[TOOL_CALLS] [" + join(c, q, args, ", \"id\": \"123456789\"}", ", ") + "]"; }, "",
         "[TOOL_CALLS] ] }"},
        {"mistral, names", f::mistral, t::mistral, "[THINK]", "[/THINK]",
         [=](calls_t c) { return join(c, "[TOOL_CALLS]", "[ARGS]", "", ""); }, "", "[TOOL_CALLS]f[ARGS] [/THINK]"},
        {"mistral, ids", f::mistral, t::none, "", "",
         [=](calls_t c) { return join(c, "[TOOL_CALLS]", "[CALL_ID]abcdefghi[ARGS]", "", ""); }, "", "[ARGS]"},
        {"llama3", f::llama3, t::none, "", "", [=](calls_t c) { return join(c, q, "\", \"parameters\": ", "}", "; "); },
         "\n", "}; {\"name\": \"ping\"}"},
        {"llama3, python tag", f::llama3, t::none, "", "",
         [=](calls_t c) {
             return "<|python_tag|>" +
                    join(c, "{\"type\": \"function\", \"name\": \"", "\", \"parameters\": ", "}", ";");
         },
         "", "<|python_tag|>"},
        {"llama3, nested", f::llama3, t::none, "", "",
         [=](calls_t c) {
             return join(c, "{\"type\": \"function\", \"function\": {\"name\": \"", "\", \"parameters\": ", "}}", "\n");
         },
         "\n", "}}"},
        {"pythonic", f::pythonic, t::none, "", "", literals("[", "]", false, "", "(", ")", ", "), "\n", "')] f(a=1)"},
        {"pythonic, LFM2", f::pythonic, t::think, "<think>", "</think>",
         literals("<|tool_call_start|>[", "]<|tool_call_end|>", false, "", "(", ")", ", "), "", "<|tool_call_end|>"},
        {"pythonic, MiniCPM", f::pythonic, t::minicpm, "<|thought_start|>\n", "\n<|thought_end|>\n",
         literals("<|tool_call_start|>\n```python\n", "\n```\n<|tool_call_end|>", false, "", "(", ")", "\n"), "\n",
         "```"},
        {"gemma4", f::gemma, t::gemma, "<|channel>thought\n", "\n<channel|>",
         literals("", "", true, "<|tool_call>call:", "{", "}<tool_call|>", ""), "", "<tool_call|> <|\" '"},
        {"command-r", f::command_r, t::cohere, "<|START_THINKING|>", "<|END_THINKING|>",
         [=](calls_t c) {
             return "<|START_ACTION|>[\n    " +
                    join(c, "{\"tool_call_id\": \"0\", \"tool_name\": \"", "\", \"parameters\": ", "}", ",\n    ") +
                    "\n]<|END_ACTION|>";
         },
         "", "<|END_ACTION|>"},
        {"command-r, old", f::command_r, t::none, "", "",
         [=](calls_t c) {
             return "Action: ```json\n[" + join(c, "{\"tool_name\": \"", "\", \"parameters\": ", "}", ", ") + "]\n```";
         },
         "\n", "```"},
        {"nemotron", f::nemotron, t::think, "<think>\n", "\n</think>\n\n",
         [=](calls_t c) { return "<TOOLCALL>[" + join(c, q, args, "}", ", ") + "]</TOOLCALL>"; }, "\n", "]</TOOLCALL>"},
        {"apertus", f::apertus, t::apertus, "<|inner_prefix|>", "<|inner_suffix|>",
         [=](calls_t c) { return "<|tools_prefix|>[" + join(c, "{\"", "\": ", "}", ", ") + "]<|tools_suffix|>"; }, "",
         "<|tools_suffix|>"},
        {"granite 3", f::granite, t::granite, "Here is my thought process:\n", "\nHere is my response:\n",
         [=](calls_t c) { return "<|tool_call|>[" + join(c, q, args, "}", ", ") + "]"; }, "", "<|tool_call|>"},
        {"tool_calls list", f::tool_list, t::none, "", "",
         [=](calls_t c) { return "<tool_calls>[" + join(c, q, args, "}", ",\n") + "]</tool_calls>"; }, "\n",
         "</tool_calls>"},
        {"gigachat", f::gigachat, t::none, "", "",
         [=](calls_t c) { return join(c, "function call<|role_sep|>\n" + q, args, "}<|message_sep|>\n\n", ""); },
         "<|message_sep|>\n\n", "<|message_sep|>"},
        {"atem", f::atem, t::none, "", "",
         tags("<atem:invoke name=\"", "\">\n", "<atem:parameter name=\"", "\">", "</atem:parameter>\n",
              "</atem:invoke>\n", "<atem:function_calls>\n", "", "</atem:function_calls>"),
         "\n", "</atem:parameter> and </atem:invoke>"},
        {"atem, headers", f::atem, t::none, " to=self<|message|>", "<|eom|><|start|>assistant",
         tags("<atem:invoke name=\"", "\">\n", "<atem:parameter name=\"", "\">", "</atem:parameter>\n",
              "</atem:invoke>\n", "<|start|>assistant to=x<|message|><atem:function_calls>\n", "",
              "</atem:function_calls><|eot|>"),
         "<|eom|>", "<|eom|> <|start|>", "<|start|>assistant to=user<|message|>"},
        {"harmony", f::harmony, t::none, "<|channel|>analysis<|message|>", "<|end|><|start|>assistant",
         [=](calls_t c) {
             return join(c, "<|channel|>commentary to=functions.", " <|constrain|>json<|message|>", "<|call|>",
                         "<|start|>assistant");
         },
         "<|end|><|start|>assistant", "<|call|> <|end|> <|channel|>", "<|channel|>final<|message|>"},
        {"harmony, recipient first", f::harmony, t::none, "<|channel|>analysis<|message|>", "<|end|>",
         [=](calls_t c) {
             return join(c, "<|start|>assistant to=functions.", "<|channel|>commentary json<|message|>", "<|call|>",
                         "");
         },
         "<|end|>", "<|call|>", "<|start|>assistant<|channel|>commentary<|message|>"},
    };
}

const wanted_call kPlain = {"get_weather", R"({"city": "Paris", "days": 3})"};
const wanted_call kNote = {"note", R"({"text": "Buy milk"})"};

void check_calls(const seen& s, const std::vector<wanted_call>& wanted) {
    REQUIRE(s.calls.size() == wanted.size());
    for (size_t i = 0; i < wanted.size(); i++) {
        CHECK(s.calls[i].name == wanted[i].name);
        CHECK(s.calls[i].arguments == wanted[i].arguments);
        CHECK(s.calls[i].is_complete);
    }
}

} // namespace

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
                if (next() % 3 == 0)
                    bad[at] = (char)next();
                else if (next() % 2)
                    bad.erase(at, 1 + next() % 8);
                else
                    bad.insert(at, good.substr(next() % good.size(), next() % 20));
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
         "<|tool_call>call:get_weather{city:<|\"|>a<|\"b<|<|\"|>,options:{x:{y:[<|\"|><|\"|>,1]}},exact:true}<tool_"
         "call|>",
         "",
         {{"get_weather", R"({"city": "a<|\"b<|", "options": {"x": {"y": ["", 1]}}, "exact": true})"}}},
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

TEST_CASE("chat parser: the form of real templates") {
    struct row {
        const char* form;
        chat_thinking thinking;
        std::string names;
    };
    static const std::vector<row> kRows = {
        {"apertus", chat_thinking::apertus, "Apertus-8B-Instruct"},
        {"atem", chat_thinking::none, "ollama-glimmer_chat_template"},
        {"command-r", chat_thinking::none, "CohereForAI--c4ai-command-r-v01"},
        {"command-r", chat_thinking::cohere, "Cohere2MoE"},
        {"deepseek", chat_thinking::none, "mistralrs-deepseek_tool_call"},
        {"deepseek", chat_thinking::think,
         "axolotl-deepseek_v3 deepseek-ai-DeepSeek-R1-Distill-Llama-8B llama-cpp-deepseek-r1 "
         "ollama-deepseek-r1-latest ollama-deepseek-v3.1-latest trl-deepseekv3_training"},
        {"gigachat", chat_thinking::none, "GigaChat3-10B-A1.8B GigaChat3.1-10B-A1.8B"},
        {"glm", chat_thinking::think,
         "GLM-4.7-Flash GLM-5.2 ollama-laguna_v2_chat_template ollama-laguna_v8_chat_template zai-org--GLM-5.1"},
        {"granite3", chat_thinking::none,
         "fireworks-ai--firefunction-v1 ibm-granite--granite-3.1-3b-a800m-instruct "
         "ibm-granite--granite-3.x-tool-call ollama-granite3.2-vision-2b vllm-tool_chat_template_granite "
         "vllm-tool_chat_template_granite_20b_fc"},
        {"granite3", chat_thinking::granite, "ibm-granite--granite-3.2-2b-instruct"},
        {"harmony", chat_thinking::none, "openai-gpt-oss-120b ortx-gpt-oss unsloth-gptoss_template"},
        {"hermes", chat_thinking::none,
         "NousResearch--Hermes-2-Pro-Llama-3-8B-JSON-Schema NousResearch-Hermes-3-Llama-3.1-8B-tool_use "
         "Qwen-Qwen2.5-7B-Instruct chujiezheng-qwen2.5-instruct ollama-cogito-14b ollama-rnj-1-latest "
         "ortx-qwen2.5-synthetic trl-qwen3_instruct_2507 trl-qwen3_instruct_2507_training trl-qwen3_vl "
         "trl-qwen3_vl_training vllm-tool_chat_template_hermes"},
        {"hermes", chat_thinking::think,
         "Bielik-11B-v3.0-Instruct Qwen-Qwen3-0.6B axolotl-exaone4 axolotl-qwen3 axolotl-qwen3_5 smollm3-sft-sft "
         "unsloth-qwen3_template"},
        {"kimi-k2", chat_thinking::none, "moonshotai-Kimi-K2"},
        {"kimi-k2", chat_thinking::think, "Kimi-K2-Thinking moonshotai--Kimi-K2-Thinking"},
        {"llama3", chat_thinking::none,
         "vllm-tool_chat_template_llama3.1_json "
         "vllm-tool_chat_template_llama3.2_json vllm-tool_chat_template_xlam_llama"},
        {"minimax-m2", chat_thinking::think, "MiniMax-M2"},
        {"mistral", chat_thinking::none,
         "Mistral-Small-3.2-24B-Instruct-2506 axolotl-mistral_v2v3 mistralai--Mistral-7B-Instruct-v0.3-JSON-Schema "
         "mistralai--Mistral-7B-Instruct-v0.3 mistralai--Mistral-Nemo-Instruct-2407 "
         "mistralai-Mistral-Nemo-Instruct-2407 mistralrs-mistral_nemo_tool_call mistralrs-mistral_small_tool_call "
         "vllm-tool_chat_template_mistral3 vllm-tool_chat_template_mistral_parallel"},
        {"mistral", chat_thinking::mistral, "mistralai-Ministral-3-14B-Reasoning-2512"},
        {"nemotron-v2", chat_thinking::think, "NVIDIA-Nemotron-Nano-v2"},
        {"none", chat_thinking::think,
         "llama-cpp-rwkv-world openinstruct-olmo_thinker_remove_intermediate_thinking openinstruct-r1_simple_chat "
         "openinstruct-r1_simple_chat_postpend_think openinstruct-r1_simple_chat_postpend_think_orz_style"},
        {"pythonic", chat_thinking::none,
         "vllm-tool_chat_template_llama3.2_pythonic-c934 vllm-tool_chat_template_llama3.2_pythonic "
         "vllm-tool_chat_template_llama4_pythonic"},
        {"pythonic", chat_thinking::minicpm, "openbmb--MiniCPM3-4B"},
        {"pythonic", chat_thinking::think, "LFM2.5-Instruct LiquidAI--LFM2.5-VL-450M"},
        {"tool-calls-list", chat_thinking::none,
         "ai21labs--AI21-Jamba-Large-1.6 axolotl-jamba microsoft--Phi-4-mini-instruct unsloth-Apriel-1.5"},
        {"xml-parameters", chat_thinking::none,
         "Qwen-Qwen3-Coder-30B-A3B-Instruct Qwen3-Coder meetkai-functionary-medium-v3.1 ollama-qwen3-coder-30b "
         "trl-tiny_aya_chat_template"},
        {"xml-parameters", chat_thinking::think,
         "Qwen3.5-4B community-4wZPFui9-substantial_swan_144-qwen35-no_thinking "
         "community-allanchan339-vllm-qwen35-enhanced community-allanchan339-vllm-qwen36-enhanced "
         "community-fakezeta-9e8e039c-qwen36-merged community-froggeric-Qwen-Fixed-Chat-Templates-qwen36-2179960 "
         "community-froggeric-Qwen-Fixed-Chat-Templates-v18 community-froggeric-Qwen-Fixed-Chat-Templates-v20 "
         "community-froggeric-Qwen-Fixed-Chat-Templates-v21.3 community-jscott3201-e4b15588-qwen36-custom "
         "ollama-nemotron3nano_chat_template patcarter883-vllm-rocm qwen3.6-patched-35B-A3B"},
    };
    const std::string folder = test_data_path("templates/templates/");
    if (!file_exists(folder + "MiniMax-M2.jinja")) {
        MESSAGE("skipped: no real templates");
        return;
    }
    // All that are not named below have no tools, or write calls in a form without a row here.
    std::map<std::string, std::pair<std::string, chat_thinking>> wanted;
    for (const row& r : kRows)
        for (size_t at = 0, end = 0; end != std::string::npos; at = end + 1) {
            end = r.names.find(' ', at);
            wanted[r.names.substr(at, end - at)] = {r.form, r.thinking};
        }
    size_t n_templates = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
        const std::string name = entry.path().stem().string(), text = read_file(entry.path().string());
        CAPTURE(name);
        n_templates++;
        const auto it = wanted.find(name);
        const auto want =
            it == wanted.end() ? std::pair<std::string, chat_thinking>{"none", chat_thinking::none} : it->second;
        CHECK(std::string(form_name(choose_form(text))) == want.first);
        CHECK((int)choose_thinking(text) == (int)want.second);
    }
    CHECK(n_templates == 192);
}

// Real templates show how their models write calls: what they render for calls is read back.
TEST_CASE("chat parser: calls as real templates render them are read back") {
    const std::string folder = test_data_path("templates/");
    if (!file_exists(folder + "conversations.json")) {
        MESSAGE("skipped: no real templates");
        return;
    }
    // Calls by their ids instead of their names, Python without quotes, a wrong quote: no reader could undo these.
    static const char* const kLossy[] = {"moonshotai--Kimi-K2-Thinking", "vllm-tool_chat_template_llama3.2_pythonic",
                                         "vllm-tool_chat_template_llama3.2_pythonic-c934", "LiquidAI--LFM2.5-VL-450M",
                                         "vllm-tool_chat_template_llama4_pythonic"};
    const value conversations = json(read_file(folder + "conversations.json"));
    size_t n_read = 0, n_string = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder + "templates")) {
        const std::string name = entry.path().stem().string(), text = read_file(entry.path().string());
        CAPTURE(name);
        chat_parser_options o;
        o.form = choose_form(text);
        o.thinking = choose_thinking(text);
        o.parse_calls = true;
        if (o.form == chat_form::none) continue;
        const value cases = json(read_file(folder + "cases/" + name + ".json"));
        for (const value& c : cases.find("cases")->items()) {
            const std::string id(c.find("conversation")->as_string());
            const value* expected = c.find("expected");
            if (id == "tool_call" && !expected && c.find("error")) {
                const bool joins = c.find("error")->find("message")->as_string().find("can only concatenate str") == 0;
                n_string += joins;
                CHECK(wants_string_arguments(text) == joins);
            }
            if ((id != "tool_call" && id != "tool_calls_two" && id != "tool_call_str_args") || !expected) continue;
            if ((id == "tool_call_str_args") != wants_string_arguments(text)) continue;
            const value& conversation = *conversations.find(id);
            o.tools.clear();
            for (const value& t : conversation.find("tools")->items())
                o.tools.push_back({std::string(t.find("function")->find("name")->as_string()),
                                   *t.find("function")->find("parameters")});
            const auto& messages = conversation.find("messages")->items();
            const std::string_view said = messages[0].find("content")->as_string(), all = expected->as_string();
            const value& calls = *messages[1].find("tool_calls");
            // Templates that do not render calls at all, or only one of them.
            const std::string_view output = all.substr(std::min(all.rfind(said) + said.size(), all.size()));
            if (output.find(id == "tool_calls_two" ? "Chez"
                            : id == "tool_call"    ? "Paris"
                                                   : "Nice") == std::string_view::npos)
                continue;
            if (std::find(std::begin(kLossy), std::end(kLossy), name) != std::end(kLossy)) continue;
            CAPTURE(std::string(output));
            const seen s = read_all_ways(o, output);
            CHECK(s.calls.size() == calls.items().size());
            for (size_t i = 0; i < std::min(s.calls.size(), calls.items().size()); i++) {
                const value& want = *calls.items()[i].find("function");
                CHECK(s.calls[i].name == want.find("name")->as_string());
                CHECK(s.calls[i].is_complete);
                const value* arguments = want.find("arguments");
                const value object = arguments->is_string() ? json(arguments->as_string()) : *arguments;
                CHECK(json_text(json(s.calls[i].arguments)) == json_text(object));
            }
            n_read++;
        }
    }
    MESSAGE("calls read back: ", n_read, ", templates that want strings: ", n_string);
    CHECK(n_read >= 100);
}

TEST_CASE("chat parser: forms of short snippets, names") {
    CHECK(choose_form("{{ '<tool_call>' }}") == chat_form::hermes);
    CHECK(choose_form("<tool_call> <function=x>") == chat_form::xml);
    CHECK(choose_form("<seed:tool_call>") == chat_form::xml);
    CHECK(choose_form("<tool_call> <arg_key> <arg_value>") == chat_form::glm);
    CHECK(choose_form("'<|tool_call>call:' + name") == chat_form::gemma);
    CHECK(choose_form("<|channel|>final<|message|>") == chat_form::harmony);
    CHECK(choose_form("<|python_tag|>") == chat_form::llama3);
    CHECK(choose_form("[TOOL_CALLS]") == chat_form::mistral);
    CHECK(choose_form("｜DSML｜") == chat_form::deepseek);
    CHECK(choose_form("{% for m in messages %}{{ m.content }}{% endfor %}") == chat_form::none);
    CHECK(choose_form("") == chat_form::none);
    CHECK(choose_thinking("split('</think>')") == chat_thinking::think);
    CHECK(choose_thinking("<seed:think></seed:think>") == chat_thinking::seed);
    CHECK(choose_thinking("<channel|>") == chat_thinking::gemma);
    chat_form form = chat_form::none;
    for (const char* name : {"hermes", "xml-parameters", "glm", "llama3", "pythonic", "mistral", "deepseek", "harmony",
                             "kimi-k2", "minimax-m2", "gemma4", "command-r", "nemotron-v2"}) {
        CHECK(find_form(name, &form));
        CHECK(std::string(form_name(form)) == name);
    }
    CHECK(!find_form("no such", &form));
    CHECK(wants_string_arguments("{{ '{\"name\": ' + call['function']['arguments'] + '}' }}"));
    CHECK(!wants_string_arguments("{{ '{' ~ (call.arguments | tojson) }}"));
    CHECK(!wants_string_arguments("{{ content }}"));
}

// A text of a shape: the first choice everywhere, given values.
static std::string sample(const call_shape& s, size_t choice) {
    using kind = call_shape::kind;
    std::string out;
    switch (s.what) {
    case kind::literal:
        return s.bytes;
    case kind::json:
        return s.schema.find("properties")->members().empty() ? "{}" : "{\"text\": \"v\", \"city\": \"v\"}";
    case kind::tagged_value:
        return (schema_types(s.schema, s.schema) & kJsonNumber) ? "1" : "v";
    case kind::python:
        return "'v'";
    case kind::gemma:
        return "<|\"|>v<|\"|>";
    case kind::sequence:
        for (const call_shape& p : s.parts) out += sample(p, choice);
        return out;
    case kind::alternatives:
        return sample(s.parts[choice % s.parts.size()], choice);
    case kind::optional:
        return choice % 2 ? sample(s.parts[0], choice) : "";
    case kind::repeat:
        return sample(s.parts[0], choice) + sample(s.parts[1], 0) + sample(s.parts[0], choice + 1);
    }
    return out;
}

TEST_CASE("chat parser: what the shape of a call allows is read as a call") {
    for (const writer& w : all_writers()) {
        CAPTURE(w.title);
        const chat_parser_options o = options_of(w.form, w.thinking);
        call_grammar g;
        error_text err;
        REQUIRE(describe_calls(w.form, o.tools, true, &g, err) == DUET_OK);
        CHECK(!g.triggers.empty());
        REQUIRE(g.shape.what == call_shape::kind::alternatives);
        for (const call_shape& row : g.shape.parts)
            for (size_t choice = 0; choice < 6; choice++) {
                const std::string text = sample(row, choice);
                CAPTURE(text);
                const auto begins = [&](const std::string& t) { return text.compare(0, t.size(), t) == 0; };
                CHECK(std::any_of(g.triggers.begin(), g.triggers.end(), begins));
                const seen s = read_all_ways(o, text);
                CHECK(s.text == "");
                CHECK(s.calls.size() >= 1);
                for (const seen_call& c : s.calls) {
                    CHECK(c.is_complete);
                    CHECK(json(c.arguments).is_map());
                }
            }
        // One tool by name, no second call.
        REQUIRE(describe_calls(w.form, {o.tools[2]}, false, &g, err) == DUET_OK);
        for (const call_shape& row : g.shape.parts) {
            const seen s = read_all_ways(o, sample(row, 0));
            REQUIRE(s.calls.size() == 1);
            CHECK(s.calls[0].name == "ping");
            CHECK(s.calls[0].arguments == "{}");
        }
    }
    call_grammar g;
    error_text err;
    CHECK(describe_calls(chat_form::hermes, {}, true, &g, err) == DUET_ERR_ARG);
    CHECK(describe_calls(chat_form::none, {{"f", {}}}, true, &g, err) == DUET_ERR_UNSUPPORTED);
    CHECK(err.text.find("none") != std::string::npos);
}
