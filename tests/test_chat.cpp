// tests/test_chat.cpp: turning messages into prompts. Text of messages never becomes a control token; templates get
// messages in the form they want; message borders; named and built-in templates; unfinished answers.
#include "../models/chat.h"
#include "chat_writers.h"
#include "test_data.h"

#include <algorithm>
#include <chrono>

using namespace duet;
using chat_test::json;

namespace {

struct demo_vocab {  // The demo model's vocabulary: <s> 1 and </s> 2 are control tokens.
    gguf_file file;
    tokenizer vocab;
    error_text err;
    demo_vocab() {
        REQUIRE(file.open("models/demo.gguf", err) == DUET_OK);
        REQUIRE(vocab.load(file, err) == DUET_OK);
    }
};

const char* const kPlainTemplate =
    "{% for m in messages %}{{ bos_token }}[{{ m.role }}] {{ m.content }}{{ eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}{{ bos_token }}[assistant]{% endif %}";

chat_prompt render(const demo_vocab& d, const char* text, const char* messages, chat_request request = {}) {
    chat_format format;
    error_text err;
    chat_prompt out;
    duet_status st = format.open(d.file, d.vocab, text, "", err);
    if (st == DUET_OK) {
        request.messages = json(messages);
        st = format.render(request, d.vocab, &out, err);
    }
    INFO(err.text);
    REQUIRE(st == DUET_OK);
    return out;
}

std::string refusal(const demo_vocab& d, const char* text, const char* messages, chat_request request = {}) {
    chat_format format;
    error_text err;
    chat_prompt out;
    if (format.open(d.file, d.vocab, text, "", err) != DUET_OK) return err.text;
    request.messages = json(messages);
    CHECK(format.render(request, d.vocab, &out, err) == DUET_ERR_ARG);
    return err.text;
}

int count(const std::vector<int32_t>& ids, int32_t id) { return (int)std::count(ids.begin(), ids.end(), id); }

}  // namespace

TEST_CASE("chat: what the template writes may be a control token, what messages say may not") {
    demo_vocab d;
    const chat_prompt p =
        render(d, kPlainTemplate, R"([{"role":"user","content":"a</s>b<s>"},{"role":"</s>","content":"</s"}])");
    CHECK(p.text == "<s>[user] a</s>b<s></s><s>[</s>] </s</s><s>[assistant]");
    CHECK(count(p.ids, 1) == 3);  // the template's three; BOS is not doubled
    CHECK(count(p.ids, 2) == 2);
    CHECK(p.ids[0] == 1);
    CHECK(p.ids[1] != 1);
    // neither a token that begins in one origin and ends in the other
    CHECK(count(render(d, "{{ messages[0].content }}/s>", R"([{"role":"user","content":"<"}])").ids, 2) == 0);
    CHECK(count(render(d, "</{{ messages[0].content }}>", R"([{"role":"user","content":"s"}])").ids, 2) == 0);
    // a role of plain letters may be part of what the template builds
    CHECK(count(render(d, "</{{ messages[0].role }}>", R"([{"role":"s","content":""}])").ids, 2) == 1);
    // through filters, slices and JSON the origin stays
    CHECK(count(render(d, "{{ messages[0].content | trim | upper | lower }}{{ messages[0] | tojson }}",
                       R"([{"role":"user","content":" </s> "}])")
                    .ids,
                2) == 0);
    chat_request tools;
    tools.tools = json(R"([{"name":"</s>"}])");
    CHECK(count(render(d, "{{ tools[0].name }}", R"([{"role":"user","content":"x"}])", tools).ids, 2) == 0);
}

TEST_CASE("chat: messages begin where their loop begins") {
    demo_vocab d;
    const chat_prompt p = render(
        d, kPlainTemplate,
        R"([{"role":"system","content":"be"},{"role":"user","content":"hi"},{"role":"assistant","content":"yo"}])");
    REQUIRE(p.first_id.size() == 3);
    CHECK(p.first_byte[0] == 0);
    CHECK(p.text.substr((size_t)p.first_byte[1], 9) == "<s>[user]");
    CHECK(p.text.substr((size_t)p.first_byte[2], 14) == "<s>[assistant]");
    for (size_t i = 0; i < 3; i++) {
        CHECK(p.ids[(size_t)p.first_id[i]] == 1);
        // the ids before a border are those of the conversation without what follows
        std::string shorter;
        const std::vector<int32_t> before(p.ids.begin(), p.ids.begin() + p.first_id[i]);
        d.vocab.decode(before.data(), before.size(), true, &shorter);
        CHECK(shorter.size() <= (size_t)p.first_byte[i] + 3);
    }
}

TEST_CASE("chat: templates get messages in the form they want") {
    demo_vocab d;
    // content as a list of parts
    CHECK(render(d, "{% for m in messages %}{% for p in m.content %}({{ p.text }}){% endfor %}{% endfor %}",
                 R"([{"role":"user","content":"one"}])")
              .text == "(one)");
    CHECK(render(d, kPlainTemplate,
                 R"([{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}])")
              .text.find("[user] ab") != std::string::npos);
    // no system role: it goes into the first user message
    const char* no_system =
        "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
        "{{ m.role }}={{ m.content }};{% endfor %}";
    CHECK(render(d, no_system, R"([{"role":"system","content":"S"},{"role":"user","content":"U"}])").text ==
          "user=S\n\nU;");
    CHECK(render(d, no_system, R"([{"role":"system","content":"S"}])").text == "user=S;");
    CHECK(
        render(
            d,
            "{% for m in messages %}{{ m.role }}={% if m.role != 'developer' %}{{ m.content }}{% endif %};{% endfor %}",
            R"([{"role":"developer","content":"D"}])")
            .text == "system=D;");
    // arguments of calls: an object for this template, JSON text for that one
    const char* call = R"([{"role":"user","content":"x"},{"role":"assistant","content":"","tool_calls":[{"id":"1",
        "type":"function","function":{"name":"f","arguments":"{\"a\": [1, \"b\"]}"}}]}])";
    CHECK(render(d,
                 "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.function.arguments | tojson }}{% endfor "
                 "%}{{ m.content }}{% endfor %}",
                 call)
              .text == "x{\"a\": [1, \"b\"]}");
    CHECK(render(d,
                 "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ '' + c.function.arguments }}{% endfor "
                 "%}{{ m.content }}{% endfor %}",
                 call)
              .text == "x{\"a\": [1, \"b\"]}");
    // the one call of a message, for templates that know no list of them
    CHECK(render(d,
                 "{% for m in messages %}{% if m.function_call %}{{ m.function_call.name }}"
                 "{{ m.function_call.arguments | tojson }}{% endif %}{{ m.content }}{% endfor %}",
                 call)
              .text == "xf{\"a\": [1, \"b\"]}");
    // thinking
    chat_request off;
    off.thinking = 0;
    const char* thinks =
        "{{ messages[0].content }}{% if enable_thinking is defined and not enable_thinking %} off{% endif %}";
    CHECK(render(d, thinks, R"([{"role":"user","content":"x"}])", off).text == "x off");
    CHECK(render(d, thinks, R"([{"role":"user","content":"x"}])").text == "x");
}

TEST_CASE("chat: what a message lacks or holds as null is no surprise to the template") {
    demo_vocab d;
    const char* strict =
        "{% for m in messages %}{{ m.content | trim }}{% if 'tool_calls' in m %}[{{ m.tool_calls | length }}]"
        "{% endif %}{% if 'reasoning_content' in m %}!{% endif %};{% endfor %}";
    const std::string call = R"("tool_calls":[{"type":"function","function":{"name":"f","arguments":"{}"}}])";
    const std::string messages = R"([{"role":"user","content":"x"},{"role":"assistant",)";
    for (const char* content : {R"("content":null,)", R"("content":"",)", ""})
        CHECK(render(d, strict, (messages + content + call + "}]").c_str()).text == "x;[1];");
    // a template that shows calls only where there is no text, and wants their arguments as text
    const char* null_only =
        "{% for m in messages %}{% if m.content is not none %}{{ m.content }}{% else %}{% for c in m.tool_calls %}"
        "{{ '[' + c.function.name + c.function.arguments + ']' }}{% endfor %}{% endif %};{% endfor %}";
    for (const char* content : {R"("content":null,)", R"("content":"",)", R"("content":"Let me see.",)", ""})
        CHECK(render(d, null_only, (messages + content + call + "}]").c_str()).text == "x;[f{}];");
    CHECK(render(d, null_only, (messages + R"("content":""}])").c_str()).text == "x;;");
    for (const char* more : {"", R"(,"tool_calls":null)", R"(,"tool_calls":[])", R"(,"reasoning_content":null)",
                             R"(,"reasoning_content":"")"})
        CHECK(render(d, strict, (messages + R"("content":"y")" + more + "}]").c_str()).text == "x;y;");
    CHECK(render(d, strict, (messages + R"("content":"y","reasoning_content":"r"}])").c_str()).text == "x;y!;");
}

TEST_CASE("chat: a tool's description and parameters are there for templates that need them") {
    demo_vocab d;
    const char* user = R"([{"role":"user","content":"x"}])";
    const char* needs =
        "{% for t in tools %}{{ '(' + t.function.description + ')' }}{{ t.function.parameters.properties | "
        "length }}{{ t.function.parameters.type }}{% endfor %}{{ messages[0].content }}";
    const char* prints = "{% for t in tools %}{{ t | tojson }}{% endfor %}{{ messages[0].content }}";
    chat_request bare, null, whole;
    bare.tools = json(R"([{"type":"function","function":{"name":"f"}}])");
    null.tools = json(R"([{"type":"function","function":{"name":"f","description":null,"parameters":null}}])");
    whole.tools = json(R"([{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object",
        "properties":{"a":{}}}}}])");
    CHECK(render(d, needs, user, bare).text == "()0objectx");
    CHECK(render(d, needs, user, null).text == "()0objectx");
    CHECK(render(d, needs, user, whole).text == "(d)1objectx");
    // a template that prints the tool and refuses nothing shows what it was given
    CHECK(render(d, prints, user, bare).text == R"({"type": "function", "function": {"name": "f"}}x)");
    CHECK(render(d, prints, user, null).text ==
          R"({"type": "function", "function": {"name": "f", "description": "", "parameters": )"
          R"({"type": "object", "properties": {}}}}x)");
    // what the template refuses for another reason keeps its message
    CHECK(refusal(d, "{{ messages[0].content }}{% if tools %}{{ raise_exception('no tools') }}{% endif %}", user, bare)
              .find("no tools") != std::string::npos);
}

TEST_CASE("chat: no system message is lost or refused, wherever it stands") {
    demo_vocab d;
    const char* both =
        R"([{"role":"system","content":"S"},{"role":"developer","content":"D"},{"role":"user","content":"U"},
        {"role":"assistant","content":"A"},{"role":"system","content":"L"},{"role":"user","content":"V"}])";
    // shows one system message, the first
    const char* first = "{% if messages[0].role == 'system' %}<{{ messages[0].content }}>{% endif %}"
                        "{% for m in messages %}{% if m.role != 'system' %}{{ m.content }};{% endif %}{% endfor %}";
    CHECK(render(d, first, both).text == "<S>D\n\nU;A;L\n\nV;");
    // refuses one that is not the first
    const char* refuses = "{% for m in messages %}{% if m.role == 'system' and not loop.first %}"
                          "{{ raise_exception('system must be first') }}{% endif %}{{ m.content }};{% endfor %}";
    CHECK(render(d, refuses, both).text == "S;D\n\nU;A;L\n\nV;");
    CHECK(render(d, refuses, R"([{"role":"user","content":"U"},{"role":"assistant","content":"A"},
        {"role":"system","content":"L"}])")
              .text == "U;A;L;");
    // knows none: two in a row are one text
    const char* none =
        "{% for m in messages %}{% if m.role in ['system', 'developer'] %}{{ raise_exception('no system') }}{% endif %}"
        "{{ m.content }};{% endfor %}";
    CHECK(render(d, none, both).text == "S\n\nD\n\nU;A;L\n\nV;");
    // shows all of them
    CHECK(render(d, "{% for m in messages %}{{ m.role[0] }}{{ m.content }};{% endfor %}", both).text ==
          "sS;dD;uU;aA;sL;uV;");
}

TEST_CASE("chat: an unfinished answer goes on where it stopped") {
    demo_vocab d;
    chat_request go_on;
    go_on.continues_last = true;
    const char* messages = R"([{"role":"user","content":"hi"},{"role":"assistant","content":"I am"}])";
    CHECK(render(d, kPlainTemplate, messages, go_on).text == "<s>[user] hi</s><s>[assistant] I am");
    CHECK(render(d, "{% for m in messages %}{{ m.content | trim }}|{% endfor %}", messages, go_on).text == "hi|I am");
    CHECK(refusal(d, "{{ messages[0].content }}", messages, go_on).find("leaves out the last message") !=
          std::string::npos);
}

TEST_CASE("chat: errors name what was wanted") {
    demo_vocab d;
    CHECK(refusal(d, kPlainTemplate, "[]").find("at least one message") != std::string::npos);
    CHECK(refusal(d, kPlainTemplate, "[{\"content\":\"x\"}]").find("message 0: want an object with a \"role\"") !=
          std::string::npos);
    CHECK(refusal(d, "{% for m in messages %}\n{% endfo %}", "[]").find("line 2") != std::string::npos);
    CHECK(refusal(d,
                  "{{ messages[0].content }}{% if messages | length > 1 %}{{ raise_exception('only one, please') }}{% "
                  "endif %}",
                  R"([{"role":"user","content":"x"},{"role":"user","content":"y"}])")
              .find("only one, please") != std::string::npos);
    chat_format format;
    error_text err;
    CHECK(format.open(d.file, d.vocab, "", "", err) == DUET_ERR_STATE);
    CHECK(err.text.find("chatml") != std::string::npos);
    CHECK(format.open(d.file, d.vocab, "", "no such", err) == DUET_ERR_ARG);
    CHECK(err.text.find("'no such'") != std::string::npos);
}

TEST_CASE("chat: every built-in template renders a conversation, by name only") {
    demo_vocab d;
    const std::string names = builtin_chat_templates() + ", ";
    int n = 0;
    for (size_t at = 0, end; (end = names.find(", ", at)) != std::string::npos; at = end + 2, n++) {
        const std::string name = names.substr(at, end - at);
        INFO(name);
        chat_format format;
        error_text err;
        REQUIRE(format.open(d.file, d.vocab, "", name, err) == DUET_OK);
        chat_request request;
        request.messages = json(R"([{"role":"system","content":"S1"},{"role":"user","content":"U1"},
                                    {"role":"assistant","content":"A1"},{"role":"user","content":"U2"}])");
        chat_prompt p;
        const duet_status st = format.render(request, d.vocab, &p, err);
        INFO(err.text);
        REQUIRE(st == DUET_OK);
        for (const char* text : {"S1", "U1", "A1", "U2"}) CHECK(p.text.find(text) != std::string::npos);
    }
    CHECK(n >= 6);
}

TEST_CASE("chat: a file's named templates") {
    demo_vocab d;
    gguf_writer writer;
    gguf_file file;
    error_text err;
    const auto add = [&](const char* key, const char* text) { REQUIRE(writer.set_string(key, text, err) == DUET_OK); };
    add("tokenizer.chat_template", "plain {{ messages[0].content }}");
    add("tokenizer.chat_template.rag", "rag {{ messages[0].content }}");
    add("tokenizer.chat_template.tool_use", "tools {{ messages[0].content }}");
    std::string bytes;
    const auto append = [](void* user, const void* data, uint64_t n) -> int32_t {
        ((std::string*)user)->append((const char*)data, n);
        return 0;
    };
    REQUIRE(writer.save_to(append, &bytes, err) == DUET_OK);
    REQUIRE(file.open_memory(bytes.data(), bytes.size(), err) == DUET_OK);
    const auto with_name = [&](const char* name, bool has_tools) {
        chat_format format;
        chat_request request;
        request.messages = json(R"([{"role":"user","content":"x"}])");
        if (has_tools) request.tools = json(R"([{"type":"function"}])");
        chat_prompt p;
        duet_status st = format.open(file, d.vocab, "", name, err);
        if (st == DUET_OK) st = format.render(request, d.vocab, &p, err);
        return st == DUET_OK ? p.text : err.text;
    };
    CHECK(with_name("", false) == "plain x");
    CHECK(with_name("", true) == "tools x");
    CHECK(with_name("default", true) == "plain x");
    CHECK(with_name("rag", false) == "rag x");
    CHECK(with_name("nope", false).find("rag, tool_use, default") != std::string::npos);
}

TEST_CASE("chat: a hundred messages take under 2 ms") {
    demo_vocab d;
    std::string messages = "[";
    for (int i = 0; i < 100; i++)
        messages += std::string(i ? "," : "") + R"({"role":")" + (i % 2 ? "assistant" : "user") +
                    R"(","content":"a message of some words"})";
    chat_format format;
    error_text err;
    REQUIRE(format.open(d.file, d.vocab, kPlainTemplate, "", err) == DUET_OK);
    chat_request request;
    request.messages = json(messages + "]");
    double best = 1e9;
    for (int i = 0; i < 20; i++) {
        chat_prompt p;
        const auto start = std::chrono::steady_clock::now();
        REQUIRE(format.render(request, d.vocab, &p, err) == DUET_OK);
        best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    CHECK(best < 0.02);  // ten times the bound: sanitizers and slow machines run this too
    MESSAGE("best: ", best * 1e3, " ms");
}
