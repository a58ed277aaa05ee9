// tests/test_grammar.cpp: GBNF texts against what they match, grammars made by calls, hostile grammars, and masks of
// tokens against trying every token alone.
#include "../models/gguf.h"
#include "../models/grammar.h"
#include "../models/sampler.h"
#include "../models/tokenizer.h"
#include "doctest.h"
#include "test_data.h"

#include <chrono>
#include <cmath>
#include <functional>
#include <thread>

using namespace duet;

namespace {

using text_list = std::vector<std::string>;

std::string_view list_text(int32_t id, const void* user) { return (*(const text_list*)user)[(size_t)id]; }

// A vocabulary of the given texts; an empty text is an end token.
std::shared_ptr<const token_tree> make_tree(const text_list& texts) {
    std::vector<int32_t> ends;
    for (size_t i = 0; i < texts.size(); i++)
        if (texts[i].empty()) ends.push_back((int32_t)i);
    std::shared_ptr<const token_tree> tree;
    error_text err;
    REQUIRE(token_tree::make((int32_t)texts.size(), list_text, &texts, ends, &tree, err) == DUET_OK);
    return tree;
}

// All single bytes, some longer texts, and an end token as the last.
text_list small_vocabulary() {
    text_list texts;
    for (int byte = 0; byte < 256; byte++) texts.push_back(std::string(1, (char)byte));
    for (const char* more : {"ab", "abc", "abcabcabcabcabc", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "\"a", "\":", "}}",
                             "\xc3\xa4\xc3", "\xe2\x82", "true", " {", "12", "ab", "b\"", "aaaa", "1.", "[[[["})
        texts.push_back(more);
    texts.push_back("");
    return texts;
}

duet_status build_gbnf(std::string_view text, grammar* out, error_text& err) {
    grammar_builder b;
    uint32_t root = 0;
    DUET_TRY(parse_gbnf(text, "root", b, &root, err));
    return b.build(root, out, err);
}

std::string gbnf_error(std::string_view text) {
    grammar g;
    error_text err;
    return build_gbnf(text, &g, err) == DUET_OK ? "" : err.text;
}

std::shared_ptr<constraint> make_constraint(const grammar& g) {
    static const text_list texts = small_vocabulary();
    static const auto tree = make_tree(texts);
    return std::make_shared<constraint>(g, tree);
}

std::shared_ptr<constraint> gbnf(std::string_view text) {
    grammar g;
    error_text err;
    REQUIRE_MESSAGE(build_gbnf(text, &g, err) == DUET_OK, err.text);
    return make_constraint(g);
}

// 'y': the text matches; 'p': it begins one that does; 'n': neither.
char match(const std::shared_ptr<constraint>& c, std::string_view text) {
    grammar_matcher m(c);
    error_text err;
    for (const char byte : text)
        if (m.accept_bytes({&byte, 1}, err) != DUET_OK) return 'n';
    return m.can_end() ? 'y' : 'p';
}

struct match_case {
    const char* rules;
    text_list yes, partial, no;
};

void check_masks(const std::shared_ptr<constraint>& c, std::string_view text) {
    grammar_matcher m(c);
    error_text err;
    for (size_t i = 0; i <= text.size(); i++) {
        std::shared_ptr<const token_mask> mask;
        REQUIRE(m.mask(&mask, err) == DUET_OK);
        int32_t n = 0;
        for (int32_t id = 0; id < c->tokens().n_vocab(); id++) {
            grammar_matcher copy = m;
            const bool is_allowed = copy.accept(id, err) == DUET_OK;
            REQUIRE_MESSAGE(mask->allows(id) == is_allowed, "token ", id, " after ", std::string(text.substr(0, i)));
            REQUIRE(m.allows(id) == is_allowed);
            n += is_allowed;
        }
        REQUIRE(mask->n_allowed == n);
        if (i < text.size()) REQUIRE(m.accept_bytes(text.substr(i, 1), err) == DUET_OK);
    }
}

} // namespace

TEST_CASE("GBNF: what texts match") {
    const match_case cases[] = {
        {"root ::= \"ab\"", {"ab"}, {"", "a"}, {"b", "abc", "ac"}},
        {"root ::= \"a\" | \"bc\" |", {"a", "bc", ""}, {"b"}, {"c", "ab"}},
        {"root ::= [a-c]+ # comment\n", {"a", "cab"}, {""}, {"d"}},
        {"root ::= [^a-c\\n]", {"d", "\xc3\xa4", "\xf0\x9f\x98\x80"}, {"", "\xf0\x9f"}, {"a", "\n", "\x80", "\xc0\x80"}},
        {"root ::= .", {"x", "\n", "\xe2\x82\xac"}, {"\xe2\x82"}, {"xx", "\xff", "\xed\xa0"}},
        {"root ::= [\\x41\\u00e4\\U0001F600\\]\\-]", {"A", "\xc3\xa4", "\xf0\x9f\x98\x80", "]", "-"}, {}, {"a"}},
        {"root ::= [a-]", {"a", "-"}, {}, {"b"}},
        {"root ::= \"\\\"\\\\\\n\"", {"\"\\\n"}, {"\""}, {"\\"}},
        {"root ::= \"a\"* \"b\"? \"c\"+", {"c", "aabcc"}, {"", "aab"}, {"bb", "ca"}},
        {"root ::= (\"a\"*)*", {"", "aaaa"}, {}, {"b"}},
        {"root ::= ((\"a\"?)+ (\"b\"*)+)* \"c\"", {"c", "abbac"}, {"ab"}, {"cc"}},
        {"root ::= \"a\"{3}", {"aaa"}, {"aa"}, {"aaaa"}},
        {"root ::= \"ab\"{2,}", {"abab", "ababab"}, {"ab", "aba"}, {"aa"}},
        {"root ::= (\"ab\"){,2} \"c\"", {"c", "abc", "ababc"}, {"abab"}, {"ababab"}},
        {"root ::= (\"ab\" | \"a\"){2,3}", {"aa", "aba", "abab", "ababab", "aaa"}, {"a", "ab"}, {"aaaa", "b"}},
        {"root ::= (\"a\"?){2,3} \"b\"", {"b", "ab", "aaab"}, {"aaa"}, {"aaaab"}},
        {"root ::= (\"a\"{2}){2}", {"aaaa"}, {"aaa"}, {"aaaaa"}},
        {"root ::= \"a\"{1,1000000000}", {"a", "aaaaaaaaaaaaaaaaaaaa"}, {""}, {"b"}},
        {"root ::= \"a\"{0,0} \"b\"", {"b"}, {""}, {"a"}},
        {"root ::= \"(\" root \")\" | \"x\"", {"x", "((x))"}, {"((x"}, {"(x))", ")"}},
        {"root ::= a b\na ::= \"x\" a | \"\"\nb ::= \"y\"\n", {"y", "xxy"}, {"xx"}, {"yx"}},
        {"root ::= s \"!\"\ns ::= \"a\" s \"b\" | \"a\" s \"c\" | \"\"", {"!", "ab!", "aacb!"}, {"aa", "aab"}, {"a!", "abb"}},
        {"root ::= (\n \"a\" # inside\n | \"b\"\n )\n", {"a", "b"}, {}, {"c"}},
        {"root ::= \"a\" |\n \"b\"\nother-1 ::= \"c\"", {"a", "b"}, {}, {"c"}},
        {"root ::= e \"$\"\ne ::= t (\"+\" t)*\nt ::= [0-9]+ | \"(\" e \")\"", {"1$", "(1+2)+33$"}, {"((1"}, {"+", "1)"}},
        {"root ::= n n n \"z\"\nn ::= \"a\" | \"\" | m\nm ::= \"b\"?", {"z", "az", "abz", "bbbz"}, {"bab"}, {"aaaa"}},
    };
    for (const match_case& t : cases) {
        CAPTURE(t.rules);
        const auto c = gbnf(t.rules);
        for (const auto& text : t.yes) CHECK_MESSAGE(match(c, text) == 'y', text);
        for (const auto& text : t.partial) CHECK_MESSAGE(match(c, text) == 'p', text);
        for (const auto& text : t.no) CHECK_MESSAGE(match(c, text) == 'n', text);
        for (const auto& text : t.yes) check_masks(c, text);
    }
}

TEST_CASE("GBNF: texts that are refused name the place") {
    const std::pair<std::string, const char*> cases[] = {
        {"", "want a rule root to begin with, got none"},
        {"x ::= \"a\"", "want a rule root"},
        {"root ::= a", "line 1, column 10: want rule a to be defined"},
        {"root ::= \"a\nb\"", "want '\"', got '\\x0Ab"},
        {"root ::= [a", "want ']'"},
        {"root ::= [z-a]", "want the end of a range"},
        {"root ::= (\"a\"", "want ')'"},
        {"root ::= \"a\")", "want a literal, a class, a group, or a rule's name, got ')'"},
        {"root ::= *", "want something to repeat"},
        {"root ::= \"a\"{3,2}", "want a maximum of at least the minimum"},
        {"root ::= \"a\"{4294967295}", "want a number below 4294967295"},
        {"root ::= \"a\"{x}", "want a number"},
        {"root ::= \"a\"{1", "want '}'"},
        {"root = \"a\"", "want '::='"},
        {"root ::= \"a\"\nroot ::= \"b\"", "line 2, column 1: want each rule once"},
        {"root ::= \"\\q\"", "want an escape"},
        {"root ::= \"\\ud800\"", "want a Unicode character"},
        {"root ::= \"\xff\"", "want valid UTF-8"},
        {"root ::= <tool>", "tokens like <name> are not supported"},
        {"root ::= root \"a\" | \"b\"", "left recursion: root -> root"},
        {"root ::= x\nx ::= y?\ny ::= z* x \"b\"\nz ::= \"\"", "left recursion: x -> y -> x"},
        {"root ::= \"a\" root", "no text matches rule root"},
        {"root ::= []", "no text matches rule root"},
        {"root ::= a\na ::= b \"x\"\nb ::= \"y\" a", "no text matches rule root"},
    };
    for (const auto& [rules, message] : cases) {
        CAPTURE(rules);
        const std::string got = gbnf_error(rules);
        CHECK_MESSAGE(got.find(message) != got.npos, got);
    }
}

TEST_CASE("GBNF: hostile grammars compile or are refused within 0.1 s, and their masks stay cheap") {
    const auto repeated = [](const char* text, size_t n) {
        std::string out;
        for (size_t i = 0; i < n; i++) out += text;
        return out;
    };
    const size_t n = 60'000;
    std::string chain = "root ::= r0\n", left = "root ::= r0\n", wide = "root ::= \"a\"", nested = "root ::= ";
    for (int i = 0; i < 20'000; i++) chain += "r" + std::to_string(i) + " ::= r" + std::to_string(i + 1) + "\n";
    left = chain + "r20000 ::= r0 \"a\"";
    chain += "r20000 ::= \"a\"";
    for (int i = 0; i < 20'000; i++) wide += " | \"" + std::to_string(i) + "\" \"x\"?";
    for (int i = 0; i < 12; i++) nested += "(";
    nested += "\"a\"";
    for (int i = 0; i < 12; i++) nested += "){0,2147483647}";
    const std::pair<std::string, std::string> cases[] = {
        {"root ::= " + repeated("(", n), "want ')'"},
        {"root ::= " + repeated("(", n) + "\"a\"" + repeated(")", n), ""},
        {"root ::= " + repeated("(\"b\" ", n) + "\"a\"" + repeated(")", n), ""},
        {"root ::= " + repeated("(", n) + "\"a\"" + repeated(")*", n), ""},
        {"root ::= " + repeated("(", n) + "\"a\"" + repeated(")?", n), ""},
        {nested, ""},
        {"root ::= \"a\"{0,2147483648}", ""},
        {"root ::= ((\"a\"*)*)*", ""},
        {"root ::= \"a\"" + repeated("?", n), ""},
        {"root ::= " + repeated("|", n), ""},
        {"root ::= \"" + repeated("a", 2 * n) + "\"", ""},
        {chain, ""},
        {left, "no text matches"},
        {wide, ""},
        {repeated("x", kGrammarMaxText + 1), "want at most 1048576 bytes"},
        {"root ::= " + repeated("[^\"]", 100'000), "want at most 524288 parts"},
        {"root ::= [^\"]{1000}{1000}{1000}{1000}", ""},
    };
    for (const auto& [rules, message] : cases) {
        CAPTURE(rules.substr(0, 60));
        grammar g;
        error_text err;
        const auto begin = std::chrono::steady_clock::now();
        const duet_status status = build_gbnf(rules, &g, err);
        const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
#if !defined(__SANITIZE_ADDRESS__) && defined(__OPTIMIZE__)
        CHECK(seconds < 0.1);
#endif
        CHECK_MESSAGE((status == DUET_OK) == message.empty(), err.text);
        if (status != DUET_OK) {
            CHECK_MESSAGE(err.text.find(message) != err.text.npos, err.text);
            continue;
        }
        const auto c = make_constraint(g);
        grammar_matcher m(c);
        std::shared_ptr<const token_mask> mask;
        CHECK(m.mask(&mask, err) == DUET_OK);
    }
}
