// tests/test_constraints.cpp: grammars and schemas through the public header: what comes out matches, whatever the
// model, the seed and the threads; errors name their place; triggers, ends, stop strings, biases; who owns what.
#include "doctest.h"
#include "../models/value.h"
#include "../runtime.h"
#include "test_data.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <thread>

namespace {

struct text_model {
    duet_model* m = nullptr;
    explicit text_model(int n_threads = 1) {
        duet_model_params p = duet_model_params_default();
        p.device = test_device();
        p.n_threads = n_threads;
        REQUIRE(duet_model_open("models/demo.gguf", &p, &m) == DUET_OK);
    }
    // A vocabulary without a model: single bytes, some words, and control tokens.
    explicit text_model(const std::vector<const char*>& control) {
        std::vector<std::string> texts = {"<unk>", "<s>", "</s>"};
        std::vector<int32_t> types = {2, 3, 3};
        for (int byte = 0; byte < 256; byte++, types.push_back(6)) {
            char name[8];
            snprintf(name, sizeof name, "<0x%02X>", byte);
            texts.push_back(name);
        }
        for (const char* text : control) texts.push_back(text), types.push_back(3);
        for (const char* text : {"call", "{\"a\":", "true", "tool_", "><", "}x"})
            texts.push_back(text), types.push_back(1);
        std::vector<duet_string> strings;
        for (const std::string& t : texts) strings.push_back({t.data(), t.size()});
        const std::vector<float> scores(texts.size(), 0);
        duet_writer* w = nullptr;
        REQUIRE(duet_writer_create(&w) == DUET_OK);
        REQUIRE(duet_writer_set_string(w, "general.architecture", "llama", 5) == DUET_OK);
        REQUIRE(duet_writer_set_string(w, "tokenizer.ggml.model", "llama", 5) == DUET_OK);
        REQUIRE(duet_writer_set_strings(w, "tokenizer.ggml.tokens", strings.data(), strings.size()) == DUET_OK);
        REQUIRE(duet_writer_set_array(w, "tokenizer.ggml.token_type", DUET_KV_I32, types.data(), types.size()) ==
                DUET_OK);
        REQUIRE(duet_writer_set_array(w, "tokenizer.ggml.scores", DUET_KV_F32, scores.data(), scores.size()) ==
                DUET_OK);
        REQUIRE(duet_writer_set_int(w, "tokenizer.ggml.eos_token_id", DUET_KV_U32, 2) == DUET_OK);
        std::string bytes;
        const auto append = [](void* user, const void* data, uint64_t n) -> int32_t {
            ((std::string*)user)->append((const char*)data, (size_t)n);
            return 0;
        };
        REQUIRE(duet_writer_save_to(w, append, &bytes) == DUET_OK);
        duet_writer_free(w);
        duet_model_params p = duet_model_params_default();
        p.vocab_only = 1;
        p.load = DUET_LOAD_COPY;
        const auto read = [](void* user, uint64_t at, void* dst, uint64_t n) -> int32_t {
            memcpy(dst, ((std::string*)user)->data() + at, (size_t)n);
            return 0;
        };
        const duet_status st = duet_model_open_reader(read, &bytes, bytes.size(), &p, &m);
        REQUIRE_MESSAGE(st == DUET_OK, std::string(duet_model_error(m)));
    }
    ~text_model() { duet_model_free(m); }
    text_model(const text_model&) = delete;

    int32_t n_vocab() const {
        duet_model_info info{};
        info.struct_size = sizeof info;
        REQUIRE(duet_model_get_info(m, &info) == DUET_OK);
        return info.n_vocab;
    }
    // The ids of a text, its control tokens as such; without the space that SPM puts before it.
    std::vector<int32_t> ids(const std::string& text) const {
        std::vector<int32_t> out(text.size() + 8);
        size_t n = 0;
        REQUIRE(duet_tokenize(m, text.data(), text.size(), DUET_TOKENIZE_PARSE_SPECIAL, out.data(), out.size(), &n) ==
                DUET_OK);
        out.resize(n);
        return out;
    }
};

struct made_grammar {
    duet_grammar* g = nullptr;
    duet_status status;
    std::string error;
    made_grammar(const duet_model* m, const duet_grammar_params& p)
        : status(duet_grammar_create(m, &p, &g)), error(duet_grammar_error(g)) {}
    ~made_grammar() { duet_grammar_free(g); }
    made_grammar(const made_grammar&) = delete;
};

duet_grammar_params gbnf(const char* rules) {
    duet_grammar_params p = duet_grammar_params_default();
    p.gbnf = rules;
    return p;
}

duet_grammar_params schema(const char* json, int32_t max_indent = 16) {
    duet_grammar_params p = duet_grammar_params_default();
    p.json_schema = json;
    p.max_indent = max_indent;
    return p;
}

struct made_sampler {
    duet_sampler* s = nullptr;
    explicit made_sampler(uint64_t seed = 1, float temp = 1, const duet_grammar* g = nullptr) {
        REQUIRE(duet_sampler_create(seed, &s) == DUET_OK);
        REQUIRE(duet_sampler_set(s, "temp", temp) == DUET_OK);
        REQUIRE(duet_sampler_grammar(s, g) == DUET_OK);
    }
    ~made_sampler() { duet_sampler_free(s); }
    made_sampler(const made_sampler&) = delete;
};

struct made_session {
    duet_session* s = nullptr;
    explicit made_session(const text_model& m, duet_input_fn inputs = nullptr, void* user = nullptr) {
        duet_session_params p = duet_session_params_default();
        p.n_ctx = 256;
        p.max_batch = 8;
        p.inputs = inputs;
        p.inputs_user = user;
        REQUIRE(duet_session_create(m.m, &p, &s) == DUET_OK);
    }
    ~made_session() { duet_session_free(s); }
    made_session(const made_session&) = delete;
};

struct answer {
    duet_status status = DUET_OK;
    int32_t stop_reason = DUET_STOP_NONE, n_new = 0;
    std::string text;
};

const int32_t kDemoPrompt[] = {1, 419, 426, 13, 434, 260, 416};

answer generate(const made_session& s, const made_sampler& sampler,
                duet_generate_params p = duet_generate_params_default()) {
    answer a;
    const auto keep = [](void* user, const duet_token_event* e) -> int32_t {
        ((answer*)user)->text.append(e->text, e->n_bytes);
        return 0;
    };
    duet_generate_result r{};
    r.struct_size = sizeof r;
    REQUIRE(duet_seq_trim(s.s, 0, 0) == DUET_OK);
    a.status = duet_generate(s.s, sampler.s, kDemoPrompt, 7, &p, keep, &a, &r);
    a.stop_reason = r.stop_reason;
    a.n_new = r.n_new_tok;
    return a;
}

bool parses(const std::string& json, duet::value* out) {
    duet::error_text err;
    return duet::parse_json(json, out, err) == DUET_OK;
}

// Whether the sampler would take an id now.
bool allows(const made_sampler& sampler, int32_t id, int32_t n_vocab) {
    std::vector<float> logits((size_t)n_vocab, -INFINITY);
    logits[(size_t)id] = 0;
    int32_t got = -1;
    return duet_sampler_choose(sampler.s, logits.data(), n_vocab, &got) == DUET_OK && got == id;
}

// Accepts the tokens of a text; the number of those that were taken.
size_t accept(const made_sampler& sampler, const std::vector<int32_t>& ids) {
    size_t n = 0;
    while (n < ids.size() && duet_sampler_accept(sampler.s, ids[n]) == DUET_OK) n++;
    return n;
}

const char* const kPerson = R"({"type": "object", "additionalProperties": false,
    "required": ["name", "age", "tags", "kind"],
    "properties": {"name": {"type": "string", "minLength": 1, "maxLength": 8},
                   "age": {"type": "integer", "minimum": 0, "maximum": 150},
                   "tags": {"type": "array", "maxItems": 3, "items": {"enum": ["red", "\u00fc\"", 7, null]}},
                   "kind": {"const": "person"}}})";

}  // namespace

TEST_CASE("constraints: a schema's answers are valid at temperature 2, the same with 1 and 2 threads") {
    const text_model one(1), two(2);
    const made_session s(one), s2(two);
    std::string last;
    int n_different = 0;
    for (uint64_t seed = 1; seed <= 12; seed++) {
        const made_grammar g(one.m, schema(kPerson, seed % 2 ? 4 : 0)), g2(two.m, schema(kPerson, seed % 2 ? 4 : 0));
        REQUIRE_MESSAGE(g.status == DUET_OK, g.error);
        const answer a = generate(s, made_sampler(seed, 2, g.g));
        CAPTURE(a.text);
        REQUIRE(a.status == DUET_OK);
        CHECK(a.stop_reason == DUET_STOP_END);
        CHECK(generate(s2, made_sampler(seed, 2, g2.g)).text == a.text);
        n_different += a.text != last;
        last = a.text;
        duet::value v;
        REQUIRE(parses(a.text, &v));
        REQUIRE(v.is_map());
        CHECK(v.members().size() == 4);
        REQUIRE(v.find("name"));
        CHECK(v.find("name")->is_string());
        REQUIRE(v.find("age"));
        CHECK((v.find("age")->is_int() && v.find("age")->as_int() >= 0 && v.find("age")->as_int() <= 150));
        REQUIRE(v.find("kind"));
        CHECK(v.find("kind")->as_string() == "person");
        REQUIRE(v.find("tags"));
        CHECK((v.find("tags")->is_list() && v.find("tags")->items().size() <= 3));
        if (seed % 2 == 0) CHECK(a.text.find('\n') == std::string::npos);
    }
    CHECK(n_different > 6);
}

TEST_CASE("constraints: errors name what is wrong and where; what was not made constrains nothing") {
    const text_model m({});
    const char* triggers[] = {"<a>", ""};
    const char* other[] = {"<a>"};
    duet_grammar_params none = duet_grammar_params_default(), both = gbnf("root ::= \"a\""), indent = schema("{}", -1),
                        empty = gbnf("root ::= \"<a>\""), never = gbnf("root ::= \"b\""), many = empty, no_list = empty,
                        no_root = gbnf("root ::= \"a\""), size = none;
    both.json_schema = "{}";
    empty.triggers = triggers, empty.n_triggers = 2;
    never.triggers = other, never.n_triggers = 1;
    many.triggers = triggers, many.n_triggers = 65;
    no_list.n_triggers = 1;
    no_root.root = "start";
    size.struct_size = 4096;
    const std::string deep = std::string(150, '[') + std::string(150, ']'),
                      deep_schema =
                          [] {
                              std::string text;
                              for (int i = 0; i < 120; i++) text += "{\"items\":";
                              return text + "true" + std::string(120, '}');
                          }(),
                      long_text((1 << 20) + 1, ' ');
    std::string choices = "root ::= \"a\"";
    for (int i = 0; i < 70000; i++) choices += "|[a-c]";
    struct {
        duet_grammar_params params;
        duet_status status;
        const char* text;
    } const cases[] = {
        {none, DUET_ERR_ARG, "want one of gbnf and json_schema, got none"},
        {both, DUET_ERR_ARG, "got both"},
        {indent, DUET_ERR_ARG, "max_indent: want 0..1024, got -1"},
        {empty, DUET_ERR_ARG, "trigger 1 is empty"},
        {never, DUET_ERR_ARG, "trigger \"<a>\": no text of the grammar begins with it"},
        {many, DUET_ERR_ARG, "n_triggers: want 0..64, got 65"},
        {no_list, DUET_ERR_ARG, "triggers is NULL"},
        {size, DUET_ERR_ARG, "struct_size"},
        {no_root, DUET_ERR_FORMAT, "want a rule start to begin with"},
        {gbnf("root ::= \"a\"\nx = 1"), DUET_ERR_FORMAT, "grammar: line 2, column 3: want '::='"},
        {gbnf("root ::= \"a\" root"), DUET_ERR_FORMAT, "no text matches rule root"},
        {gbnf(long_text.c_str()), DUET_ERR_FULL, "1048576"},
        {gbnf(choices.c_str()), DUET_ERR_FULL, "grammar: too many ways to begin the text"},
        {schema("{\"type\":"), DUET_ERR_FORMAT, "JSON: at byte 8"},
        {schema("{\"properties\": {\"a\": {\"minimum\": \"12\"}}}"), DUET_ERR_FORMAT,
         "schema: #/properties/a/minimum: want a number"},
        {schema("{\"type\": \"integer\", \"minimum\": 3, \"maximum\": 2}"), DUET_ERR_FORMAT,
         "no value is valid: #: the minimum is above the maximum"},
        {schema("{\"items\": {\"not\": {}}}"), DUET_ERR_UNSUPPORTED, "schema: #/items/not"},
        {schema(deep_schema.c_str()), DUET_ERR_FULL, "schema: "},
        {schema(deep.c_str()), DUET_ERR_FULL, "schema: "},
        {schema(long_text.c_str()), DUET_ERR_FULL, "1048576"},
    };
    for (const auto& c : cases) {
        const made_grammar g(m.m, c.params);
        CAPTURE(g.error);
        REQUIRE(g.g);
        CHECK(g.status == c.status);
        CHECK_MESSAGE(g.error.find(c.text) != std::string::npos, std::string(c.text));
    }
    duet_model* missing = nullptr;
    CHECK(duet_model_open("no such file.gguf", nullptr, &missing) == DUET_ERR_IO);
    CHECK(made_grammar(missing, gbnf("root ::= \"a\"")).status == DUET_ERR_UNSUPPORTED);
    duet_model_free(missing);
    CHECK(made_grammar(nullptr, gbnf("root ::= \"a\"")).status == DUET_ERR_ARG);
    const made_grammar bad(m.m, none);
    made_sampler sampler;
    CHECK(duet_sampler_grammar(sampler.s, bad.g) == DUET_ERR_ARG);
    CHECK(std::string(duet_sampler_error(sampler.s)).find("was not made") != std::string::npos);
    CHECK(allows(sampler, 300 % m.n_vocab(), m.n_vocab()));
    CHECK(duet_sampler_is_done(sampler.s) == 0);
    CHECK(duet_sampler_is_done(nullptr) == 0);
    CHECK(duet_sampler_grammar(nullptr, bad.g) == DUET_ERR_ARG);
}

TEST_CASE("constraints: a refused id changes nothing; ends; the text begins again with reset; NULL frees") {
    const text_model m({});
    const made_grammar g(m.m, gbnf("root ::= \"ab\" (\"c\" \"d\"?)?"));
    REQUIRE_MESSAGE(g.status == DUET_OK, g.error);
    const int32_t a = 3 + 'a', b = 3 + 'b', c = 3 + 'c', d = 3 + 'd', end = 2, n = m.n_vocab();
    const made_sampler s(1, 0, g.g);
    CHECK((allows(s, a, n) && !allows(s, b, n) && !allows(s, end, n)));
    CHECK(duet_sampler_accept(s.s, b) == DUET_ERR_ARG);
    CHECK(duet_sampler_accept(s.s, end) == DUET_ERR_ARG);
    CHECK(duet_sampler_accept(s.s, 1) == DUET_ERR_ARG);
    CHECK(duet_sampler_accept(s.s, n) == DUET_ERR_ARG);
    CHECK(std::string(duet_sampler_error(s.s)).find("grammar: ") == 0);
    CHECK(accept(s, {a, b}) == 2);
    CHECK((allows(s, c, n) && allows(s, end, n) && !allows(s, a, n)));
    CHECK(duet_sampler_is_done(s.s) == 0);
    CHECK(accept(s, {c, d}) == 2);
    CHECK(duet_sampler_is_done(s.s) == 1);
    CHECK((allows(s, end, n) && !allows(s, d, n)));
    CHECK(accept(s, {end}) == 1);
    CHECK(duet_sampler_is_done(s.s) == 1);
    int32_t id = 0;
    const std::vector<float> logits((size_t)n, 0);
    CHECK(duet_sampler_choose(s.s, logits.data(), n, &id) == DUET_ERR_ARG);
    duet_sampler_reset(s.s, 1);
    CHECK(duet_sampler_is_done(s.s) == 0);
    CHECK((allows(s, a, n) && !allows(s, c, n)));
    REQUIRE(accept(s, {a, b, end}) == 3);
    REQUIRE(duet_sampler_grammar(s.s, g.g) == DUET_OK);
    CHECK(accept(s, {a}) == 1);
    // nothing that the grammar allows is above -inf
    std::vector<float> only_a((size_t)n, -INFINITY);
    only_a[(size_t)a] = 0;
    CHECK(duet_sampler_choose(s.s, only_a.data(), n, &id) == DUET_ERR_NAN);
    CHECK(std::string(duet_sampler_error(s.s)).find("grammar") != std::string::npos);
    // a bias forces only what is allowed
    REQUIRE(duet_sampler_bias(s.s, a, INFINITY) == DUET_OK);
    REQUIRE(duet_sampler_choose(s.s, logits.data(), n, &id) == DUET_OK);
    CHECK(id == b);
    REQUIRE(duet_sampler_grammar(s.s, nullptr) == DUET_OK);
    REQUIRE(duet_sampler_choose(s.s, logits.data(), n, &id) == DUET_OK);
    CHECK(id == a);
    CHECK(accept(s, {d, d, end}) == 3);
    CHECK(duet_sampler_is_done(s.s) == 0);
}

TEST_CASE("constraints: text is free until a trigger; control tokens are free text and markers, never JSON") {
    const text_model m({"<tool_call>", "</tool_call>", "<think>"});
    const int32_t n = m.n_vocab(), open = 259, close = 260, think = 261, end = 2;
    const auto bytes = [](const std::string& text) {
        std::vector<int32_t> ids;
        for (const char c : text) ids.push_back(3 + (uint8_t)c);
        return ids;
    };
    const char* triggers[] = {"<tool_call>", "[["};
    duet_grammar_params p = gbnf(R"(root ::= "<tool_call>" "{" [^}]* "}" "</tool_call>" | "[[" [0-9] "]]")");
    p.triggers = triggers;
    p.n_triggers = 2;
    const made_grammar g(m.m, p);
    REQUIRE_MESSAGE(g.status == DUET_OK, g.error);
    for (const bool is_control : {true, false}) {
        const made_sampler s(1, 0, g.g);
        CHECK(accept(s, bytes("any <tool text [ \xff")) == 17);  // the byte 0xff is no text
        CHECK(accept(s, {think}) == 1);
        CHECK((allows(s, end, n) && allows(s, 0 + 1, n)));
        if (is_control) CHECK(accept(s, {open}) == 1);
        else CHECK(accept(s, bytes("<tool_call>")) == 11);
        CHECK((!allows(s, end, n) && !allows(s, think, n) && allows(s, 3 + '{', n) && !allows(s, 3 + '[', n)));
        CHECK(accept(s, bytes("{ x")) == 3);
        CHECK(!allows(s, think, n));
        CHECK(!allows(s, close, n));
        CHECK(accept(s, bytes("}")) == 1);
        CHECK((allows(s, close, n) && allows(s, 3 + '<', n) && !allows(s, open, n)));
        if (is_control) CHECK(accept(s, {close}) == 1);
        else CHECK(accept(s, bytes("</tool_call>")) == 12);
        CHECK(duet_sampler_is_done(s.s) == 1);
    }
    const made_sampler second(1, 0, g.g);
    CHECK(accept(second, bytes("[ [[7]]x")) == 7);
    // the beginning of a trigger inside a token: "><" ends free text before "tool_call>"
    const made_sampler third(1, 0, g.g);
    CHECK(accept(third, {266}) == 1);
    CHECK(accept(third, bytes("tool_call>x")) == 10);
    // a string of JSON holds what a control token spells, but never the token
    const made_grammar json(m.m, schema("{\"const\": \"<think>\"}"));
    const made_sampler fourth(1, 0, json.g);
    CHECK(accept(fourth, bytes("\"")) == 1);
    CHECK(!allows(fourth, think, n));
    CHECK(accept(fourth, bytes("<think>\"")) == 8);
    CHECK(duet_sampler_is_done(fourth.s) == 1);
}

TEST_CASE("constraints: a generation ends when nothing may follow, and its last token is in the sequence") {
    const text_model m;
    const made_session s(m);
    const made_grammar g(m.m, gbnf("root ::= \" Hello \" (\"Ann\" | \"Bob\") \".\""));
    const made_sampler sampler(3, 1, g.g);
    duet_generate_params p = duet_generate_params_default();
    for (const int i : {0, 1, 2}) {
        p.ignore_end = i == 1;
        REQUIRE(duet_sampler_set(sampler.s, "temp", i == 2 ? 0 : 1) == DUET_OK);  // at 0 a device would choose alone
        REQUIRE(duet_sampler_grammar(sampler.s, g.g) == DUET_OK);
        const answer a = generate(s, sampler, p);
        CHECK(a.status == DUET_OK);
        CHECK((a.text == " Hello Ann." || a.text == " Hello Bob."));
        CHECK(a.stop_reason == DUET_STOP_END);
        CHECK(duet_seq_length(s.s, 0) == 7 + a.n_new);
        CHECK(duet_sampler_is_done(sampler.s) == 1);
    }
    // at its end already: the prompt runs, and nothing is chosen
    const answer again = generate(s, sampler);
    CHECK((again.stop_reason == DUET_STOP_END && again.n_new == 0 && again.text.empty()));
    // the limit is met with the last token
    p.ignore_end = 0;
    duet_sampler_reset(sampler.s, 3);
    p.max_new_tok = generate(s, sampler, p).n_new;
    duet_sampler_reset(sampler.s, 3);
    const answer whole = generate(s, sampler, p);
    CHECK((whole.stop_reason == DUET_STOP_END && whole.n_new == p.max_new_tok));
    duet_sampler_reset(sampler.s, 3);
    p.max_new_tok--;
    CHECK(generate(s, sampler, p).stop_reason == DUET_STOP_LIMIT);
}

TEST_CASE("constraints: ignore_end, biases, penalties and stop strings keep to the grammar") {
    const text_model m;
    const made_session s(m);
    const made_grammar g(m.m, gbnf("root ::= (\"<\" [a-z] [a-z]? \">\"){2,9}"));
    const std::vector<int32_t> end = {duet_token_eos(m.m)};
    {  // the end is forced as soon as it is allowed
        const made_sampler sampler(5, 1, g.g);
        REQUIRE(duet_sampler_bias(sampler.s, end[0], INFINITY) == DUET_OK);
        const answer a = generate(s, sampler);
        CHECK(a.stop_reason == DUET_STOP_END);
        CHECK(std::count(a.text.begin(), a.text.end(), '>') == 2);
        CHECK(duet_sampler_is_done(sampler.s) == 0);
    }
    {  // ... and forbidden until nothing else is
        const made_sampler sampler(5, 1, g.g);
        REQUIRE(duet_sampler_bias(sampler.s, end[0], 1000) == DUET_OK);
        duet_generate_params p = duet_generate_params_default();
        p.ignore_end = 1;
        const answer a = generate(s, sampler, p);
        CHECK(a.stop_reason == DUET_STOP_END);
        CHECK(std::count(a.text.begin(), a.text.end(), '>') == 9);
    }
    {  // a forbidden letter, and penalties
        const made_sampler sampler(5, 1, g.g);
        REQUIRE(duet_sampler_set(sampler.s, "repeat_penalty", 2) == DUET_OK);
        REQUIRE(duet_sampler_set(sampler.s, "top_k", 5) == DUET_OK);
        std::string text;
        for (int32_t id = 0; id < m.n_vocab(); id++) {
            const duet_string piece = duet_token_text(m.m, id);
            if (std::string(piece.data, piece.n_bytes).find_first_of("aeiou") != std::string::npos)
                REQUIRE(duet_sampler_bias(sampler.s, id, -INFINITY) == DUET_OK);
        }
        const answer a = generate(s, sampler);
        CAPTURE(a.text);
        CHECK(a.status == DUET_OK);
        CHECK(a.stop_reason == DUET_STOP_END);
        CHECK(a.text.find_first_of("aeiou") == std::string::npos);
        CHECK(a.text.size() >= 6);
    }
    {
        const made_grammar words(m.m, gbnf("root ::= \"one two three four\""));
        const char* stop[] = {"thr"};
        duet_generate_params p = duet_generate_params_default();
        p.stop = stop;
        p.n_stop = 1;
        const answer a = generate(s, made_sampler(5, 1, words.g), p);
        CHECK(a.stop_reason == DUET_STOP_STRING);
        CHECK(a.text == "one two ");
    }
}

TEST_CASE("constraints: ignore_end where the vocabulary has nothing else ends the text") {
    std::string bytes = read_file("models/demo.gguf");
    const std::string key = "tokenizer.ggml.token_type";
    const size_t types = bytes.find(key) + key.size() + 4 + 4 + 8;
    size_t at = 0;
    for (size_t id = 3; id < 3 + 256; id++) {  // the tokens of single bytes become others, so none is the byte 0x01
        REQUIRE(bytes[types + 4 * id] == 6);
        bytes[types + 4 * id] = 5;
        at = bytes.find("<0x", at);
        bytes[at + 2] = 'y';
    }
    duet_model* m = nullptr;
    duet_session* s = nullptr;
    duet_model_params q = duet_model_params_default();
    q.device = test_device();
    const duet_status st = duet_model_open_memory(bytes.data(), bytes.size(), &q, &m);
    REQUIRE_MESSAGE(st == DUET_OK, std::string(duet_model_error(m)));
    REQUIRE(duet_session_create(m, nullptr, &s) == DUET_OK);
    {
        const made_grammar g(m, gbnf("root ::= \"abc\" \"\\x01\"*"));
        const made_sampler sampler(5, 1, g.g);
        duet_generate_params p = duet_generate_params_default();
        p.ignore_end = 1;
        duet_generate_result r{};
        r.struct_size = sizeof r;
        CHECK(duet_generate(s, sampler.s, kDemoPrompt, 7, &p, nullptr, nullptr, &r) == DUET_OK);
        CHECK(r.stop_reason == DUET_STOP_END);
        CHECK(duet_sampler_is_done(sampler.s) == 0);
        const made_grammar never(m, gbnf("root ::= \"abc\" \"\\x01\""));
        REQUIRE(duet_sampler_grammar(sampler.s, never.g) == DUET_OK);
        REQUIRE(duet_seq_trim(s, 0, 0) == DUET_OK);
        CHECK(duet_generate(s, sampler.s, kDemoPrompt, 7, nullptr, nullptr, nullptr, &r) == DUET_ERR_FORMAT);
        CHECK(std::string(duet_session_error(s)).find("no token that may come next") != std::string::npos);
    }
    duet_session_free(s);
    duet_model_free(m);
}

TEST_CASE("constraints: a token that was cancelled half way is no part of the grammar's text") {
    struct stopper {
        duet_session* s = nullptr;
        int n_left = -1;
    } stop;
    const text_model m;
    const auto inputs = [](void* user, const char*, int32_t, int32_t, const float*, int64_t) {
        stopper& st = *(stopper*)user;
        if (st.n_left > 0 && --st.n_left == 0) duet_session_cancel(st.s);
    };
    duet_session_params sp = duet_session_params_default();
    sp.inputs = inputs;
    sp.inputs_user = &stop;
    duet_session* probe = nullptr;
    const duet_status st = duet_session_create(m.m, &sp, &probe);
    duet_session_free(probe);
    if (st == DUET_ERR_UNSUPPORTED) return say_skipped("constraints: cancel", 1, "inputs are told on the CPU only");
    const made_session s(m, inputs, &stop);
    stop.s = s.s;
    const made_grammar g(m.m, gbnf("root ::= \"one two three four five\""));
    const made_sampler sampler(5, 1, g.g);
    std::string text;
    std::vector<int32_t> ids(kDemoPrompt, kDemoPrompt + 7);
    bool was_cancelled = false;
    for (int round = 0; round < 40 && duet_sampler_is_done(sampler.s) == 0; round++) {
        duet_generation* gen = nullptr;
        REQUIRE(duet_generate_begin(s.s, sampler.s, ids.data(), ids.size(), nullptr, &gen) == DUET_OK);
        duet_token_event e{};
        e.struct_size = sizeof e;
        REQUIRE(duet_generate_next(gen, &e) == DUET_OK);  // the prompt
        for (int i = 0; i < 2 && e.stop_reason == DUET_STOP_NONE; i++) {
            stop.n_left = i == 1 ? 5 : -1;
            const duet_status next = duet_generate_next(gen, &e);
            was_cancelled = was_cancelled || next == DUET_ERR_CANCELLED;
            text.append(e.text, e.n_bytes);
        }
        stop.n_left = -1;
        duet_generation_free(gen);
        // goes on from the last token, which is no news for the grammar
        const int32_t length = duet_seq_length(s.s, 0);
        ids.assign(1, duet_seq_ids(s.s, 0)[length - 1]);
        REQUIRE(duet_seq_trim(s.s, 0, length - 1) == DUET_OK);
    }
    CHECK(was_cancelled);
    CHECK(text == "one two three four five");
}

TEST_CASE("constraints: samplers outlive grammars, grammars outlive models, threads share them") {
    duet_grammar* g = nullptr;
    {
        const text_model gone({"<tool_call>"});
        const duet_grammar_params p =
            schema("{\"type\": \"array\", \"items\": {\"type\": \"boolean\"}, \"maxItems\": 20}");
        REQUIRE(duet_grammar_create(gone.m, &p, &g) == DUET_OK);
    }
    const text_model m({"<tool_call>"});
    const int32_t n = m.n_vocab();
    const std::vector<float> logits((size_t)n, 0);
    std::string made[4];
    std::vector<std::thread> threads;
    const made_sampler alone(7, 1, g);
    for (int i = 0; i < 4; i++)
        threads.emplace_back([&, i] {
            duet_sampler* s = nullptr;
            if (duet_sampler_create(7 + i / 2, &s) != DUET_OK || duet_sampler_grammar(s, g) != DUET_OK) return;
            for (int k = 0; k < 300 && !duet_sampler_is_done(s); k++) {
                int32_t id = -1;
                if (duet_sampler_choose(s, logits.data(), n, &id) != DUET_OK) break;
                if (duet_sampler_accept(s, id) != DUET_OK) break;
                const duet_string text = duet_token_text(m.m, id);
                made[i].append(text.data, text.n_bytes);
            }
            if (!duet_sampler_is_done(s)) made[i].clear();
            duet_sampler_free(s);
        });
    for (std::thread& t : threads) t.join();
    duet_grammar_free(g);
    duet::value v;
    for (const std::string& text : made) CHECK_MESSAGE((parses(text, &v) && v.is_list()), text);
    CHECK(made[0] == made[1]);
    CHECK(made[2] == made[3]);
    CHECK(made[0] != made[2]);
    CHECK(accept(alone, {3 + '[', 3 + '1'}) == 1);  // the grammar was freed
    CHECK(accept(alone, {3 + ']'}) == 1);
    CHECK(duet_sampler_is_done(alone.s) == 1);
}
