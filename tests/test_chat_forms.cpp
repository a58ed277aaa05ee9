// tests/test_chat_forms.cpp: which form a real template has, how the calls that it renders are read back, and what
// constrained calls look like.
#include "../models/chat_grammar.h"
#include "chat_writers.h"
#include "test_data.h"

#include <chrono>
#include <filesystem>
#include <map>

using namespace chat_test;

TEST_CASE("chat forms: the form of real templates") {
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
        {"mistral", chat_thinking::none, "yandex--YandexGPT-5-Lite-8B-instruct"},
        {"mistral", chat_thinking::mistral, "mistralai-Ministral-3-14B-Reasoning-2512"},
        {"nemotron-v2", chat_thinking::think, "NVIDIA-Nemotron-Nano-v2"},
        {"none", chat_thinking::think,
         "llama-cpp-rwkv-world openinstruct-r1_simple_chat "
         "openinstruct-r1_simple_chat_postpend_think openinstruct-r1_simple_chat_postpend_think_orz_style"},
        {"pythonic", chat_thinking::none,
         "vllm-tool_chat_template_llama3.2_pythonic-c934 vllm-tool_chat_template_llama3.2_pythonic "
         "vllm-tool_chat_template_llama4_pythonic"},
        {"pythonic", chat_thinking::minicpm, "openbmb--MiniCPM3-4B"},
        {"pythonic", chat_thinking::think,
         "LFM2.5-Instruct LiquidAI--LFM2.5-VL-450M openinstruct-olmo_thinker_remove_intermediate_thinking"},
        {"tool-calls-list", chat_thinking::none,
         "ai21labs--AI21-Jamba-Large-1.6 axolotl-jamba microsoft--Phi-4-mini-instruct"},
        {"tool-calls-list", chat_thinking::apriel, "unsloth-Apriel-1.5"},
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
        say_skipped("chat forms of real templates", 1, "no " + folder);
        return;
    }
    // All forms that are not named below have no tools, or write calls in a form without a row here.
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

// Real templates show how their models write calls. What a template renders for calls is read back.
TEST_CASE("chat forms: calls as real templates render them are read back") {
    const std::string folder = test_data_path("templates/");
    if (!file_exists(folder + "conversations.json")) {
        say_skipped("chat forms of real templates", 1, "no " + folder);
        return;
    }
    // These write calls by ids instead of names, Python without quotes, or a wrong quote. No reader could undo that.
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
        // A template that joins the arguments to other strings wants them as text.
        const auto joins = [](const value& c) {
            const value* error = c.find("error");
            return c.find("conversation")->as_string() == "tool_call" && !c.find("expected") && error &&
                   error->find("message")->as_string().starts_with("can only concatenate str");
        };
        const auto& all_cases = cases.find("cases")->items();
        const bool wants_text = std::any_of(all_cases.begin(), all_cases.end(), joins);
        n_string += wants_text;
        for (const value& c : all_cases) {
            const std::string id(c.find("conversation")->as_string());
            const value* expected = c.find("expected");
            if ((id != "tool_call" && id != "tool_calls_two" && id != "tool_call_str_args") || !expected) continue;
            if ((id == "tool_call_str_args") != wants_text) continue;
            const value& conversation = *conversations.find(id);
            o.tools.clear();
            for (const value& t : conversation.find("tools")->items())
                o.tools.push_back({std::string(t.find("function")->find("name")->as_string()),
                                   *t.find("function")->find("parameters")});
            const auto& messages = conversation.find("messages")->items();
            const std::string_view said = messages[0].find("content")->as_string(), all = expected->as_string();
            const value& calls = *messages[1].find("tool_calls");
            // Skips templates that render no calls at all, or only one of two.
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

TEST_CASE("chat forms: short snippets, names") {
    CHECK(choose_form("{{ '<tool_call>' }}") == chat_form::hermes);
    CHECK(choose_form("<tool_call> <function=x>") == chat_form::xml);
    CHECK(choose_form("<seed:tool_call>") == chat_form::xml);
    CHECK(choose_form("<function name=\"f\"><param name=\"a\">v</param></function>") ==
          chat_form::minicpm);  // MiniCPM5
    CHECK(choose_form("<tool_call> <arg_key> <arg_value>") == chat_form::glm);
    CHECK(choose_form("'<|tool_call>call:' + name") == chat_form::gemma);
    CHECK(choose_form("'<start_function_call>call:' + name") == chat_form::gemma);
    CHECK(choose_form("within <function_calls></function_calls> XML tags") == chat_form::pythonic);           // Olmo 3
    CHECK(choose_form("'<|header_start|>' {\"name\": function name, \"parameters\":") == chat_form::llama3);  // Llama 4
    CHECK(choose_form("<|channel|>final<|message|>") == chat_form::harmony);
    CHECK(choose_form("<|python_tag|>") == chat_form::llama3);
    CHECK(choose_form("[TOOL_CALLS]") == chat_form::mistral);
    CHECK(choose_form("｜DSML｜") == chat_form::deepseek);
    CHECK(choose_form("'function call' role_sep '<｜GCML｜tool_calls>'") == chat_form::deepseek);  // GigaChat 3.5
    CHECK(choose_form("<|tool_call:begin|>") == chat_form::solar);
    CHECK(choose_form("{% for m in messages %}{{ m.content }}{% endfor %}") == chat_form::none);
    CHECK(choose_form("") == chat_form::none);
    CHECK(choose_thinking("split('</think>')") == chat_thinking::think);
    CHECK(choose_thinking("<seed:think></seed:think>") == chat_thinking::seed);
    CHECK(choose_thinking("<channel|> <|think|>") == chat_thinking::gemma);
    CHECK(choose_thinking("<|begin|>assistant<|think|><|end|>") == chat_thinking::solar);
    CHECK(choose_thinking("'Here are my reasoning steps:' '[BEGIN FINAL RESPONSE]'") == chat_thinking::apriel);
    chat_form form = chat_form::none;
    for (const char* name : {"hermes", "xml-parameters", "glm", "llama3", "pythonic", "mistral", "deepseek", "harmony",
                             "solar-open", "kimi-k2", "minimax-m2", "minicpm5", "gemma4", "command-r", "nemotron-v2"}) {
        CHECK(find_form(name, &form));
        CHECK(std::string(form_name(form)) == name);
    }
    CHECK(!find_form("no such", &form));
}

// A text with the beginnings of all forms.
static const char* const kAllTriggers =
#define CHAT_SHAPE(form, trigger, ...) trigger " "
#include "../models/chat_forms.def"
#undef CHAT_SHAPE
    ;

// Compiles the grammar of calls over single bytes.
static std::shared_ptr<constraint> constraint_of(chat_form form, const std::vector<chat_tool>& tools, bool parallel,
                                                 std::vector<std::string>* triggers) {
    grammar_builder b;
    error_text err;
    grammar_builder::expr calls;
    grammar g;
    REQUIRE_MESSAGE(add_calls(form, kAllTriggers, tools, parallel, b, &calls, triggers, err) == DUET_OK, err.text);
    const uint32_t root = b.add_rule("root");
    b.define(root, calls);
    REQUIRE_MESSAGE(b.build(root, &g, err) == DUET_OK, err.text);
    std::shared_ptr<const token_tree> bytes;
    const auto text_of = [](int32_t id, const void* all) { return std::string_view((const char*)all + id, 1); };
    std::string all;
    for (int c = 0; c < 256; c++) all += (char)c;
    REQUIRE(token_tree::make(256, text_of, all.data(), {0}, &bytes, err) == DUET_OK);
    return std::make_shared<constraint>(g, bytes);
}

// Returns whether the grammar of calls takes the whole text.
static bool takes(chat_form form, const std::vector<chat_tool>& tools, bool parallel, std::string_view text,
                  std::vector<std::string>* triggers) {
    grammar_matcher m(constraint_of(form, tools, parallel, triggers));
    error_text err;
    return m.accept_bytes(text, err) == DUET_OK && m.can_end();
}

TEST_CASE("chat forms: the grammar of calls takes what models write, and nothing else") {
    // These forms have models that also write in another way than the grammar makes.
    static const char* const kOther[] = {"hermes, tight",  "xml, one section",   "xml, begin forgotten",
                                         "mistral, ids",   "llama3, python tag", "llama3, nested",
                                         "command-r, old", "pythonic, MiniCPM",  "atem, headers",
                                         "granite 3",      "mistral, list",      "tool_calls list",
                                         "gigachat",       "gigachat 3.1",       "harmony, recipient first",
                                         "minicpm5, CDATA"};
    for (const writer& w : all_writers()) {
        CAPTURE(w.title);
        if (std::find(std::begin(kOther), std::end(kOther), w.title) != std::end(kOther)) continue;
        const std::vector<chat_tool> tools = options_of(w.form, w.thinking).tools;
        std::vector<std::string> triggers;
        // Strings are made in double quotes; the end marker of harmony's calls is a token that ends the answer.
        const auto write = [&](calls_t calls) {
            std::string text = w.calls(calls);
            if (w.form == chat_form::pythonic) std::replace(text.begin(), text.end(), '\'', '"');
            if (w.form == chat_form::harmony) text.resize(text.rfind("<|call|>"));
            return text;
        };
        const wanted_call full = {"get_weather", R"({"city": "Paris", "days": 3, "tags": ["a"]})"};
        for (const auto& calls : std::vector<std::vector<wanted_call>>{{kPlain}, {full}, {kNote}, {{"ping", "{}"}}}) {
            const std::string text = write(calls);
            CAPTURE(text);
            CHECK(takes(w.form, tools, true, text, &triggers));
            CHECK(takes(w.form, tools, false, text, &triggers));
            const auto begins = [&](const std::string& t) { return text.compare(0, t.size(), t) == 0; };
            CHECK(std::any_of(triggers.begin(), triggers.end(), begins));
            CHECK(!takes(w.form, tools, true, text + "x", &triggers));
            CHECK(!takes(w.form, tools, true, text.substr(0, text.size() / 2), &triggers));
        }
        const bool one_only = w.form == chat_form::harmony;
        CHECK(takes(w.form, tools, true, write({kPlain, kNote}), &triggers) != one_only);
        CHECK(!takes(w.form, tools, false, write({kPlain, kNote}), &triggers));
        CHECK(!takes(w.form, {tools[1]}, true, write({kPlain}), &triggers));
        CHECK(!takes(w.form, tools, true, write({{"get_weather", R"({"days": 3})"}}), &triggers));
        CHECK(!takes(w.form, tools, true, write({{"get_weather", R"({"city": "a", "days": [3]})"}}), &triggers));
    }
    std::vector<std::string> triggers;
    CHECK(takes(chat_form::gemma, {{"f", json(R"({"properties": {"a": {}, "b": {"type": "string"}}})")}}, true,
                "<|tool_call>call:f{a:{x:[1,<|\"|>y<|\"|>]}, b:<|\"|>z<|\"|>}<tool_call|>", &triggers));
    // the numbers of a conversation's calls pass 9
    CHECK(takes(chat_form::kimi, {{"f", {}}}, true,
                "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:12<|tool_call_argument_begin|>{}"
                "<|tool_call_end|><|tool_calls_section_end|>",
                &triggers));
    CHECK(takes(chat_form::pythonic,
                {{"f", json(R"({"properties": {"a": {"type": "boolean"}, "b": {"type": ["null", "string"]}}})")}}, true,
                "[f(a=True), f(b=None), f(a=False, b=\"x\"), f()]", &triggers));
    CHECK(takes(chat_form::xml, {{"f", json(R"({"$defs": {"c": {"enum": ["r", "g"], "type": "string"}},
        "properties": {"a": {"$ref": "#/$defs/c"}, "b": {"enum": ["r", "g"]}, "c": {"$ref": "#/$defs/n"}}})")}},
                true, "<tool_call>\n<function=f>\n<parameter=b>\ng\n</parameter>\n</function>\n</tool_call>",
                &triggers));
    // Listed values that are no strings; a list behind a reference; nullable or not.
    const auto xml_takes = [&](const char* schema, const char* text) {
        return takes(chat_form::xml, {{"f", json(schema)}}, true,
                     std::string("<tool_call>\n<function=f>\n<parameter=a>\n") + text +
                         "\n</parameter>\n</function>\n</tool_call>",
                     &triggers);
    };
    const char* listed = R"({"properties": {"a": {"type": "string", "enum": ["r", null, 81985529216486895, "g"]}}})";
    CHECK(xml_takes(listed, "g"));
    CHECK(!xml_takes(listed, "x"));
    CHECK(!xml_takes(R"({"$defs": {"c": {"enum": ["r"]}}, "properties": {"a": {"$ref": "#/$defs/c"}}})", "x"));
    CHECK(!xml_takes(R"({"properties": {"a": {"type": "integer", "nullable": false}}})", "null"));
    for (const char* either : {R"({"type": ["string", "null"], "enum": ["r", null]})", R"({"const": "r"})"}) {
        const std::string schema = std::string(R"({"properties": {"a": )") + either + "}}";
        CHECK(xml_takes(schema.c_str(), "r"));
        CHECK(!xml_takes(schema.c_str(), "x"));
        CHECK(xml_takes(schema.c_str(), "null") == (either[2] == 't'));
    }
    CHECK(xml_takes(R"({"properties": {"a": {"$ref": "#/properties/b"}, "b": {"type": "integer"}}})", "5"));
    // The parser reads objects alone, whatever a tool says of its parameters.
    for (const char* arguments : {"{}", "true", "null"})
        for (const char* schema : {"{}", R"({"type": ["object", "null"]})"}) {
            CHECK(takes(chat_form::hermes, {{"f", json(schema)}}, true,
                        std::string("<tool_call>\n{\"name\": \"f\", \"arguments\": ") + arguments + "}\n</tool_call>",
                        &triggers) == (arguments[0] == '{'));
            CHECK(takes(chat_form::tool_list, {{"f", json(schema)}}, true,
                        std::string("<|tool_call|>[{\"name\": \"f\", \"arguments\": ") + arguments + "}]<|/tool_call|>",
                        &triggers) == (arguments[0] == '{'));
        }
    for (const char* value : {"true", "false", "null", "12", "<|\"|>x<|\"|>"})
        CHECK(takes(chat_form::gemma, {{"f", json(R"({"properties": {"a": {"type": "boolean"}}})")}}, true,
                    std::string("<|tool_call>call:f{a:") + value + "}<tool_call|>",
                    &triggers) == (value[0] == 't' || value[0] == 'f'));
    grammar_builder b;
    grammar_builder::expr out;
    error_text err;
    std::vector<chat_tool> many;
    for (int i = 0; i < 200; i++) many.push_back({std::string(36, 'n') + std::to_string(1000 + i), {}});
    CHECK(add_calls(chat_form::pythonic, kAllTriggers, many, true, b, &out, &triggers, err) == DUET_OK);
    // a template's own way is enough, and costs less
    many.resize(100);
    std::string properties;
    for (int i = 0; i < 12; i++)
        properties += (i ? ", \"" : "\"") + std::to_string(i) + R"(": {"type": "string", "pattern": "^[a-z]{1,20}$"})";
    for (chat_tool& t : many) t.parameters = json("{\"properties\": {" + properties + "}}");
    for (const char* text : {"<tool_call>", "<seed:tool_call>", "", kAllTriggers}) {
        grammar_builder one;
        grammar g;
        const bool is_own = std::string_view(text).starts_with('<') && text != kAllTriggers;
        duet_status st = add_calls(chat_form::xml, text, many, true, one, &out, &triggers, err);
        if (st == DUET_OK) {
            const uint32_t root = one.add_rule("root");
            one.define(root, out);
            st = one.build(root, &g, err);
        }
        CHECK(st == (is_own ? DUET_OK : DUET_ERR_FULL));
        if (is_own) CHECK(triggers == std::vector<std::string>{text});
    }
    CHECK(add_calls(chat_form::hermes, "", {}, true, b, &out, &triggers, err) == DUET_ERR_ARG);
    CHECK(add_calls(chat_form::none, "", {{"f", {}}}, true, b, &out, &triggers, err) == DUET_ERR_UNSUPPORTED);
    CHECK(err.text.find("none") != std::string::npos);
}

// Clients send the tools of many servers with each request.
TEST_CASE("chat forms: of a tool's schema, what cannot be kept to is left out, and the rest is kept to") {
    const value schema = json(R"({"type": "object", "required": ["host"], "not": {"required": ["x"]}, "$defs": {
        "n": {"type": "integer"}, "odd": {"type": "string", "pattern": "^(?=.*[A-Z]).+$"}}, "properties": {
        "host": {"type": "string", "format": "idn-hostname", "enum": ["a", "b"]},
        "tags": {"type": "array", "uniqueItems": true, "items": {"type": "object", "if": {}, "required": ["k"],
            "properties": {"k": {"type": "boolean"}}}},
        "n": {"$ref": "#/$defs/n"}, "odd": {"$ref": "#/$defs/odd"}}})");
    std::vector<std::string> triggers;
    const auto good = [&](bool as_tags, const std::string& text) {
        return as_tags ? takes(chat_form::xml, {{"f", schema}}, false,
                               "<tool_call>\n<function=f>\n" + text + "</function>\n</tool_call>", &triggers)
                       : takes(chat_form::hermes, {{"f", schema}}, false,
                               "<tool_call>\n{\"name\": \"f\", \"arguments\": " + text + "}\n</tool_call>", &triggers);
    };
    CHECK(good(false, R"({"host": "b", "tags": [{"k": true}, {"k": true}], "n": 3, "odd": "x"})"));
    CHECK(!good(false, R"({"host": "c"})"));
    CHECK(!good(false, R"({"tags": []})"));
    CHECK(!good(false, R"({"host": "b", "tags": "x"})"));
    CHECK(!good(false, R"({"host": "b", "tags": [{"k": 1}]})"));
    CHECK(!good(false, R"({"host": "b", "n": 0.5})"));
    CHECK(good(true, "<parameter=host>\na\n</parameter>\n<parameter=n>\n3\n</parameter>\n"));
    CHECK(!good(true, "<parameter=host>\nc\n</parameter>\n"));
    CHECK(!good(true, "<parameter=host>\na\n</parameter>\n<parameter=n>\nx\n</parameter>\n"));
    // branches that may both hold, names, steps, patterns that are too large; many of them take no longer
    const auto takes_value = [&](const char* property, const char* text) {
        return takes(chat_form::hermes, {{"f", json(std::string(R"({"properties": {"a": )") + property + "}}")}}, false,
                     std::string("<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": ") + text + "}}\n</tool_call>",
                     &triggers);
    };
    const char* either = R"({"oneOf": [{"type": "number", "multipleOf": 0.1}, {"type": "integer"}]})";
    CHECK(takes_value(either, "0.1"));
    CHECK(!takes_value(either, "true"));
    const char* names =
        R"({"type": "object", "propertyNames": {"enum": ["a"]}, "additionalProperties": {"type": "null"}})";
    CHECK(takes_value(names, R"({"a": null})"));
    CHECK(!takes_value(names, R"({"a": 1})"));
    CHECK(takes_value(R"({"type": "string", "pattern": "^(([a-z]{1,60}[0-9]{1,60}){1,60})$", "maxLength": 2})",
                      "\"ab\""));
    CHECK(!takes_value(R"({"type": "string", "pattern": "^(([a-z]{1,60}[0-9]{1,60}){1,60})$", "maxLength": 2})",
                       "\"abc\""));
    std::string many;
    for (int i = 0; i < 2000; i++)
        many += (i ? ", \"" : "\"") + std::to_string(i) + R"x(": {"type": "string", "pattern": "^(?=a)"})x";
    const auto start = std::chrono::steady_clock::now();
    CHECK(takes(chat_form::hermes, {{"f", json("{\"properties\": {" + many + "}}")}}, false,
                "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"7\": \"x\"}}\n</tool_call>", &triggers));
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(3));
    // a strict tool's schema is kept to as a whole, or refused; so is what is no schema
    const auto status_of = [&](const value& parameters, bool is_strict, error_text& err) {
        grammar_builder b;
        grammar_builder::expr out;
        return add_calls(chat_form::hermes, "", {{"f", parameters, is_strict}}, true, b, &out, &triggers, err);
    };
    error_text err;
    CHECK(status_of(schema, true, err) == DUET_ERR_UNSUPPORTED);
    CHECK(err.text.find("#/not") != std::string::npos);
    CHECK(status_of(json(R"({"properties": {"a": {"type": "strange"}}})"), false, err) == DUET_ERR_FORMAT);
    CHECK(err.text.find("#/properties/a/type") != std::string::npos);
}

TEST_CASE("chat forms: random texts of the grammar of calls are read as whole calls") {
    static const char* const kClosers[] = {
        "</parameter>\n",         "\n</parameter>\n",    "</arg_value>", "</arg_value>\n",
        "</｜DSML｜parameter>\n", "</atem:parameter>\n", "<|\"|>",       "<escape>"};
    uint32_t seed = 3;
    const auto next = [&](uint32_t n) { return seed = seed * 1664525u + 1013904223u, (seed >> 8) % n; };
    std::map<chat_form, int> n_ended;
    for (const writer& w : all_writers()) {
        const chat_parser_options o = options_of(w.form, w.thinking);
        std::vector<std::string> triggers;
        if (n_ended.count(w.form)) continue;
        const std::shared_ptr<constraint> c = constraint_of(w.form, o.tools, true, &triggers);
        for (int round = 0; round < 40; round++) {
            grammar_matcher m(c);
            error_text err;
            std::string text;
            while (text.size() < 1500 && !(m.can_end() && next(3) == 0)) {
                std::shared_ptr<const token_mask> mask;
                REQUIRE(m.mask(&mask, err) == DUET_OK);
                std::string piece, allowed;
                for (int b = 1; b < 256; b++)
                    if (mask->allows(b)) allowed += (char)b;
                if (allowed.size() == 1 && !m.can_end()) piece = allowed;  // whatever is chosen
                std::erase_if(allowed, [](char b) { return (uint8_t)b >= 127; });
                if (piece.empty() && next(4) == 0) {  // what ends a value
                    const std::string close = kClosers[next(std::size(kClosers))];
                    grammar_matcher copy = m;
                    if (copy.accept_bytes(close, err) == DUET_OK) piece = close;
                }
                if (piece.empty() && allowed.empty()) break;
                std::string ends;
                for (const char b : allowed)
                    if (std::string_view("\"}])<,").find(b) != std::string_view::npos) ends += b;
                if (piece.empty())
                    piece = ends.empty() || next(2) ? allowed.substr(next((uint32_t)allowed.size()), 1)
                                                    : ends.substr(next((uint32_t)ends.size()), 1);
                REQUIRE(m.accept_bytes(piece, err) == DUET_OK);
                text += piece;
            }
            n_ended[w.form] += m.can_end();
            if (!m.can_end()) continue;
            CAPTURE(w.title);
            CAPTURE(text);
            const seen s = read_all_ways(o, text);
            CHECK(s.text == "");
            CHECK(!s.calls.empty());
            for (const seen_call& call : s.calls) {
                CHECK(call.is_complete);
                CHECK(json(call.arguments).is_map());
            }
        }
    }
    for (const auto& [form, n] : n_ended) {
        CAPTURE(std::string(form_name(form)));
        CHECK(n >= 10);
    }
}
