// tests/chat_writers.h: how every family of chat models writes text, thinking and calls, and what the chat parser reads
// from it. Must not know: the test cases.
#pragma once
#include "../models/chat_parser.h"
#include "../models/chat_values.h"
#include "doctest.h"

#include <algorithm>
#include <functional>

namespace chat_test {

using namespace duet;

struct seen_call {
    std::string name, arguments, id;
    bool is_complete = false, has_end = false;
};

struct seen {
    std::string text, thinking, raw, trace;  // trace: the events, neighbours of one kind merged
    std::vector<seen_call> calls;
    int last_kind = -1;
};

inline void collect(void* user, const chat_event& e) {
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
    case chat_event_kind::text: s.text += e.bytes; break;
    case chat_event_kind::thinking: s.thinking += e.bytes; break;
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
    case chat_event_kind::markup: CHECK(e.bytes.empty()); break;
    }
    if (e.kind == chat_event_kind::text || e.kind == chat_event_kind::thinking) CHECK(e.bytes == e.raw);
}

// n_bytes is the size of the pieces; 0 means random sizes.
inline seen read_pieces(const chat_parser_options& options, std::string_view input, size_t n_bytes, uint32_t seed = 1) {
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

// Reads the text whole, byte by byte and in random pieces. The events must be the same.
inline seen read_all_ways(const chat_parser_options& options, std::string_view input) {
    const seen whole = read_pieces(options, input, input.size() + 1);
    CHECK(read_pieces(options, input, 1).trace == whole.trace);
    for (uint32_t seed = 1; seed <= 4; seed++) CHECK(read_pieces(options, input, 0, seed).trace == whole.trace);
    return whole;
}

inline value json(std::string_view text) {
    value v;
    error_text err;
    REQUIRE_MESSAGE(parse_json(text, &v, err) == DUET_OK, err.text);
    return v;
}

inline std::string json_text(const value& v) {
    traced_text out;
    error_text err;
    REQUIRE(write_json(v, {}, &out, err) == DUET_OK);
    return out.bytes;
}

inline chat_parser_options options_of(chat_form form, chat_thinking thinking) {
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
    std::string name, arguments;  // JSON with ", " and ": " between
};

// How a family writes: turns calls, text and thinking into the model's output.
struct writer {
    std::string title;
    chat_form form;
    chat_thinking thinking;
    std::string think_open, think_close;
    std::function<std::string(const std::vector<wanted_call>&)> calls;
    std::string text_end = "\n";  // between text and calls
    const char* markers = "";     // text for the test of markers in strings
    std::string text_begin = "";
    std::string think(const std::string& s) const { return think_open + s + think_close; }
};

inline std::string with_tags(const wanted_call& c, const std::string& open, const std::string& middle,
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

inline void write_literal(const value& v, bool gemma, bool arguments, std::string* out) {
    const auto quoted = [&](std::string_view s) {
        if (gemma) {
            *out += "<|\"|>" + std::string(s) + "<|\"|>";
            return;
        }
        *out += '\'';
        for (const char c : s) {
            if (c == '\n') *out += "\\n";
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
            if (gemma || arguments) *out += std::string(m.key.as_string()) + (gemma ? ":" : "=");
            else quoted(m.key.as_string()), *out += ": ";
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
    } else if (v.is_string()) quoted(v.as_string());
    else if (v.is_bool()) *out += gemma ? (v.as_bool() ? "true" : "false") : (v.as_bool() ? "True" : "False");
    else if (v.is_null()) *out += gemma ? "null" : "None";
    else *out += json_text(v);
}

inline std::string literal(const wanted_call& c, bool gemma) {
    std::string out;
    write_literal(json(c.arguments), gemma, true, &out);
    return out;
}

// Writes one piece for each call: a + name + b + arguments + c. sep joins the pieces.
inline std::string join(const std::vector<wanted_call>& calls, const std::string& a, const std::string& b,
                        const std::string& c, const std::string& sep) {
    std::string out;
    for (size_t i = 0; i < calls.size(); i++) out += (i ? sep : "") + a + calls[i].name + b + calls[i].arguments + c;
    return out;
}

using calls_t = const std::vector<wanted_call>&;

inline std::vector<writer> all_writers() {
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
        {"minicpm5", f::minicpm, t::think, "<think>\n", "\n</think>\n\n",
         tags("<function name=\"", "\">", "<param name=\"", "\">", "</param>", "</function>", "", "\n", ""), "\n",
         "</param> and </function>, <param name="},
        {"minicpm5, CDATA", f::minicpm, t::none, "", "",
         tags("<function name=\"", "\">", "<param name=\"", "\"><![CDATA[", "]]></param>", "</function>", "", "\n", ""),
         "\n", "</param></function> ]] > ]]> <![CDATA["},
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
        {"gigachat 3.5", f::deepseek, t::think, "<think>", "</think>\n\n",
         tags("<｜GCML｜invoke name=\"", "\">\n", "<｜GCML｜parameter name=\"", "DSML", "</｜GCML｜parameter>\n",
              "</｜GCML｜invoke>\n", "<｜GCML｜tool_calls>\n", "", "</｜GCML｜tool_calls>"),
         "\n\n", "</｜GCML｜parameter> and </｜GCML｜invoke>"},
        {"solar", f::solar, t::solar, "<|think|>", "<|end|><|begin|>assistant",
         [=](calls_t c) {
             return "<|tool_calls|>" +
                    join(c, "<|tool_call:begin|>7<|tool_call:name|>", "<|tool_call:args|>", "<|tool_call:end|>", "");
         },
         "<|end|><|begin|>assistant", "<|tool_call:end|><|tool_calls|>", "<|content|>"},
        {"yandex", f::mistral, t::none, "", "", [=](calls_t c) { return join(c, "[TOOL_CALL_START]", "\n", "", ""); },
         "\n", "[TOOL_CALL_START]ping"},
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
        {"pythonic, Olmo 3", f::pythonic, t::think, "<think>", "</think>",
         literals("<function_calls>", "</function_calls>", false, "", "(", ")", "\n"), "", "</function_calls>"},
        {"functiongemma", f::gemma, t::none, "", "",
         [=](calls_t c) {
             std::string out = literals("", "", true, "<start_function_call>call:", "{", "}<end_function_call>", "")(c);
             for (size_t at = 0; (at = out.find("<|\"|>", at)) != std::string::npos;) out.replace(at, 5, "<escape>");
             return out;
         },
         "", "<end_function_call> <es \" '"},
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
        {"gigachat 3.1", f::gigachat, t::none, "", "",
         [=](calls_t c) { return join(c, "<|function_call|>" + q, args, "}<|message_sep|>\n\n", ""); },
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

inline const wanted_call kPlain = {"get_weather", R"({"city": "Paris", "days": 3})"};
inline const wanted_call kNote = {"note", R"({"text": "Buy milk"})"};

inline void check_calls(const seen& s, const std::vector<wanted_call>& wanted) {
    REQUIRE(s.calls.size() == wanted.size());
    for (size_t i = 0; i < wanted.size(); i++) {
        CHECK(s.calls[i].name == wanted[i].name);
        CHECK(s.calls[i].arguments == wanted[i].arguments);
        CHECK(s.calls[i].is_complete);
    }
}

}  // namespace chat_test
