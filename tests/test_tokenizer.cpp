// tests/test_tokenizer.cpp: tokenizers against the answers of the original programs (real vocabularies and golden
// cases), against plain definitions, and on vocabularies that contradict themselves; pre-tokenizer patterns and Unicode
// forms.
#include "../models/pretokenizer.h"
#include "../models/tokenizer.h"
#include "../models/unicode.h"
#include "doctest.h"
#include "hostile.h"
#include "test_data.h"

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <map>
#include <random>
#include <sstream>

using namespace duet;

namespace {

using id_list = std::vector<int32_t>;

#if defined(__SANITIZE_ADDRESS__) || !defined(__OPTIMIZE__)
constexpr size_t kLongBytes = 300'000;
#else
constexpr size_t kLongBytes = 5'000'000;
#endif
constexpr double kLongSeconds = 20;  // processor time; a quadratic step would take hours

// A tokenizer, with the file that it points into.
struct vocab_under_test {
    std::string bytes;
    gguf_file file;
    tokenizer tok;
    error_text err;
    duet_status status = DUET_OK;

    explicit vocab_under_test(const raw_gguf& raw) : bytes(raw.bytes()) {
        status = file.open_memory(bytes.data(), bytes.size(), err);
        if (status == DUET_OK) status = tok.load(file, err);
    }
    explicit vocab_under_test(const std::string& path) {
        status = file.open(path.c_str(), err);
        if (status == DUET_OK) status = tok.load(file, err);
    }
    id_list ids(std::string_view text, bool add_bos_eos = false, bool parse_special = false) {
        id_list out;
        REQUIRE(tok.encode(text, add_bos_eos, parse_special, &out, err) == DUET_OK);
        return out;
    }
    std::string text(const id_list& list, bool special = false) {
        std::string out;
        tok.decode(list.data(), list.size(), special, &out);
        return out;
    }
    int32_t id(std::string_view spelling) {
        for (int32_t i = 0; i < tok.n_vocab(); i++)
            if (tok.spelling(i) == spelling) return i;
        return -1;
    }
};

const char kTokens[] = "tokenizer.ggml.tokens", kTypes[] = "tokenizer.ggml.token_type",
           kScores[] = "tokenizer.ggml.scores", kMerges[] = "tokenizer.ggml.merges";

raw_gguf vocab_file(const char* model, const std::vector<std::string>& tokens, const std::vector<int32_t>& types) {
    raw_gguf f;
    f.set("general.architecture", raw_text("llama")).set("tokenizer.ggml.model", raw_text(model));
    return f.set(kTokens, raw_texts(tokens)).set(kTypes, raw_i32s(types));
}

std::string byte_spelling(int byte) {  // spelling in GPT-2's alphabet
    const bool is_plain = (byte > 32 && byte < 127) || (byte > 160 && byte < 173) || byte > 173;
    const uint32_t cp = (uint32_t)(is_plain ? byte : byte <= 32 ? 256 + byte : byte < 161 ? 289 + byte - 127 : 323);
    std::string out;
    utf8_append(&out, cp);
    return out;
}

// Makes 256 byte tokens, the results of the merges, then control and user-defined tokens.
raw_gguf bpe_file(const std::vector<std::string>& merges, const char* pre = "gpt-2") {
    std::vector<std::string> tokens;
    for (int b = 0; b < 256; b++) tokens.push_back(byte_spelling(b));
    for (const std::string& m : merges) {
        std::string both = m;
        both.erase(both.find(' ', 1), 1);
        if (std::find(tokens.begin(), tokens.end(), both) == tokens.end()) tokens.push_back(both);
    }
    std::vector<int32_t> types(tokens.size(), 1);
    for (const char* t : {"<s>", "</s>", "<|eot_id|>", "<|observation|>"}) tokens.push_back(t), types.push_back(3);
    for (const char* t : {"<tool>", "<tool>x", "<|im_end|>"}) tokens.push_back(t), types.push_back(4);
    const uint32_t n = (uint32_t)tokens.size();
    raw_gguf f = vocab_file("gpt2", tokens, types);
    f.set("tokenizer.ggml.bos_token_id", raw_u32(n - 7)).set("tokenizer.ggml.eos_token_id", raw_u32(n - 6));
    return f.set("tokenizer.ggml.pre", raw_text(pre)).set(kMerges, raw_texts(merges));
}

const std::vector<std::string> kSomeMerges = {"a b", "b c", "ab c", "c c", "a a", "aa aa", "bc cc", "ab ab", "cc ab"};

raw_gguf spm_file(bool with_bytes = true) {
    std::vector<std::string> tokens = {"<unk>", "<s>", "</s>"};
    std::vector<int32_t> types = {2, 3, 3};
    for (int b = 0; b < 256 && with_bytes; b++) {
        char text[8];
        snprintf(text, sizeof text, "<0x%02X>", b);
        tokens.push_back(text), types.push_back(6);
    }
    std::vector<float> scores(tokens.size(), 0);
    const std::pair<const char*, float> words[] = {{"\xe2\x96\x81", -9},
                                                   {"a", -9},
                                                   {"b", -9},
                                                   {"c", -9},
                                                   {"ab", -1},
                                                   {"bc", -1},
                                                   {"abc", -3},
                                                   {"\xe2\x96\x81"
                                                    "a",
                                                    -2},
                                                   {"cc", -4},
                                                   {"abcc", -5}};
    for (auto& [text, score] : words) tokens.push_back(text), types.push_back(1), scores.push_back(score);
    raw_gguf f = vocab_file("llama", tokens, types);
    return f.set(kScores, raw_f32s(scores)).set("tokenizer.ggml.bos_token_id", raw_u32(1));
}

// Returns all numbers of the first array behind the key in a JSON text.
id_list json_ints(const std::string& json, const std::string& key = "") {
    const size_t at = key.empty() ? 0 : json.find("\"" + key + "\"");
    const size_t begin = json.find('[', at), end = json.find(']', begin);
    std::string list = json.substr(begin + 1, end - begin - 1);
    std::replace(list.begin(), list.end(), ',', ' ');
    std::istringstream in(list);
    id_list out;
    for (int32_t id; in >> id;) out.push_back(id);
    return out;
}

std::string json_text(const std::string& json, const std::string& key) {
    std::string out;
    for (size_t i = json.find('"', json.find(':', json.find("\"" + key + "\""))) + 1; json[i] != '"'; i++) {
        if (json[i] != '\\') {
            out += json[i];
        } else if (json[++i] == 'u') {
            utf8_append(&out, (uint32_t)std::stoul(json.substr(i + 1, 4), nullptr, 16));
            i += 4;
        } else {
            out += json[i] == 'n' ? '\n' : json[i] == 't' ? '\t' : json[i] == 'r' ? '\r' : json[i];
        }
    }
    return out;
}

// Makes valid UTF-8 of many scripts, in form C if asked for.
std::string random_text(std::mt19937& rng, size_t n_chars) {
    static const char* const parts[] = {" ",
                                        "  ",
                                        "\n",
                                        "\r\n",
                                        "\t",
                                        "'s",
                                        "'LL",
                                        "a",
                                        "B",
                                        "word",
                                        " The",
                                        "1",
                                        "23",
                                        "!",
                                        "...",
                                        "\xc3\xa9",
                                        "\xe4\xb8\xad",
                                        "\xe3\x81\xb2",
                                        "\xed\x95\x9c",
                                        "\xd0\xb6",
                                        "\xd8\xa7",
                                        "\xc2\xbd",
                                        "\xf0\x9f\x98\x80",
                                        "\xe2\x80\x8d",
                                        "\xe3\x80\x80",
                                        "_",
                                        "{"};
    std::string out;
    for (size_t i = 0; i < n_chars; i++) out += parts[rng() % std::size(parts)];
    return out;
}

// The definition of BPE, in quadratic time: the pair of the lowest rank merges first, and of equal ranks the leftmost
// pair.
id_list plain_bpe(vocab_under_test& v, const std::vector<std::string>& merges, const std::string& word) {
    std::map<std::string, size_t> ranks;
    for (size_t i = 0; i < merges.size(); i++) ranks.emplace(merges[i], i);
    std::vector<std::string> parts;
    for (char c : word) parts.push_back(std::string(1, c));
    for (;;) {
        size_t best = SIZE_MAX, at = 0;
        for (size_t i = 0; i + 1 < parts.size(); i++) {
            const auto found = ranks.find(parts[i] + " " + parts[i + 1]);
            if (found != ranks.end() && found->second < best) best = found->second, at = i;
        }
        if (best == SIZE_MAX) break;
        parts[at] += parts[at + 1];
        parts.erase(parts.begin() + (ptrdiff_t)at + 1);
    }
    id_list out;
    for (const std::string& p : parts) out.push_back(v.id(p));
    return out;
}

std::vector<std::string> pieces(const char* pre_name, const std::string& text) {
    pretokenizer pre;
    REQUIRE(pre.select(pre_name));
    std::vector<uint32_t> ends;
    pre.split(text, &ends);
    std::vector<std::string> out;
    size_t begin = 0;
    for (uint32_t end : ends) out.push_back(text.substr(begin, end - begin)), begin = end;
    CHECK(begin == text.size());
    return out;
}

using texts = std::vector<std::string>;

}  // namespace

TEST_CASE("tokenizer: real vocabularies, every case") {
    const std::filesystem::path folder = test_data_path("vocabs");
    if (!std::filesystem::is_directory(folder)) return say_skipped("real vocabularies", 660, "no " + folder.string());
    const std::string separator = "\n__ggml_vocab_test__\n";
    int n_cases = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
        if (entry.path().extension() != ".gguf") continue;
        const std::string path = entry.path().string();
        CAPTURE(path);
        vocab_under_test v(path);
        REQUIRE_MESSAGE(v.status == DUET_OK, v.err.text);
        std::string inputs = read_file(path + ".inp");
        std::istringstream outputs(read_file(path + ".out"));
        for (std::string line; std::getline(outputs, line); n_cases++) {
            const size_t end = std::min(inputs.find(separator), inputs.size());
            const std::string input = inputs.substr(0, end);
            inputs.erase(0, end + separator.size());
            std::istringstream numbers(line);
            id_list want;
            for (int32_t id; numbers >> id;) want.push_back(id);
            CAPTURE(input);
            CHECK(v.ids(input) == want);
        }
    }
    CHECK(n_cases >= 660);
}

TEST_CASE("tokenizer: real byte-level vocabularies give back every text") {
    int n_found = 0;
    for (const char* name : {"ggml-vocab-gpt-2", "ggml-vocab-llama-bpe", "ggml-vocab-llama-spm"}) {
        const std::string path = test_data_path(std::string("vocabs/") + name + ".gguf");
        if (!file_exists(path)) continue;
        n_found++;
        vocab_under_test v(path);
        REQUIRE(v.status == DUET_OK);
        std::mt19937 rng(7);
        for (int i = 0; i < 200; i++) {
            const std::string text = random_text(rng, 1 + rng() % 60);
            CHECK(v.text(v.ids(text, true), false) == text);
        }
        std::string bytes;
        for (int i = 0; i < 3000; i++) bytes += (char)rng();
        CHECK(v.text(v.ids(bytes)) == bytes);
    }
    if (n_found < 3) say_skipped("byte-level vocabularies", 3 - n_found, "no vocabs");
}

TEST_CASE("tokenizer: golden cases") {
    const std::filesystem::path folder = test_data_path("golden");
    if (!std::filesystem::is_directory(folder)) return say_skipped("golden tokens", 55, "no " + folder.string());
    int n_cases = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
        const std::string path = entry.path().string();
        if (!file_exists(path + "/model.gguf")) continue;
        CAPTURE(path);
        const std::string meta = read_file(path + "/meta.json");
        if (meta.find("\"text\"") == std::string::npos) continue;
        n_cases++;
        vocab_under_test v(path + "/model.gguf");
        REQUIRE_MESSAGE(v.status == DUET_OK, v.err.text);
        const id_list want = json_ints(read_file(path + "/tokens.json"));
        id_list got = v.ids(json_text(meta, "text"), true);
        REQUIRE(got.size() >= want.size());
        got.resize(want.size());
        CHECK(got == want);
    }
    CHECK(n_cases > 0);
}

TEST_CASE("tokenizer: normal forms") {
    CHECK(unicode_nfc("e\xcc\x81") == "\xc3\xa9");
    CHECK(unicode_nfc("e\xcc\xa7\xcc\x81") == "\xc8\xa9\xcc\x81");  // marks of other classes do not block
    CHECK(unicode_nfc("a\xcc\x81\xcc\x81") == "\xc3\xa1\xcc\x81");  // those of the same class do
    CHECK(unicode_nfc("\xe1\x84\x92\xe1\x85\xa1\xe1\x86\xab") == "\xed\x95\x9c");  // Hangul
    CHECK(unicode_nfc("\xe2\x84\xab") == "\xc3\x85");                              // Angstrom sign
    CHECK(unicode_nfd("\xe1\xba\xad") == "a\xcc\xa3\xcc\x82");                     // two steps, in order of class
    CHECK(unicode_nfc("\xff"
                      "e\xcc\x81\x80\xe2\x82") == "\xff\xc3\xa9\x80\xe2\x82");  // invalid bytes stay
    CHECK(unicode_lower(0x414) == 0x434);
    CHECK((unicode_bits(0x4e2d) & (kUniHan | kUniLo)) == (kUniHan | kUniLo));
    CHECK_FALSE(utf8_valid("\xed\xa0\x80"));      // a surrogate
    CHECK_FALSE(utf8_valid("\xc0\x80"));          // too long
    CHECK_FALSE(utf8_valid("\xf4\x90\x80\x80"));  // beyond U+10FFFF
}

TEST_CASE("tokenizer: every pre-tokenizer compiles, loses nothing and stays linear") {
    std::istringstream names(pretokenizer::known_names());
    std::mt19937 rng(3);
    int n_names = 0;
    for (std::string name; names >> name; n_names++) {
        CAPTURE(name);
        pieces(name.c_str(), random_text(rng, 50));
        pretokenizer pre;
        REQUIRE(pre.select(name));
        std::vector<uint32_t> ends;
        const clock_t begin = clock();
        for (const char* unit : {"a", "A", "1", " ", "\n", "'", "\xff", "\xe4\xb8\xad", "\xcc\x81", " \n",
                                 "\xe4\xb8\xad"
                                 "AA"}) {
            std::string text;
            while (text.size() < kLongBytes / 100) text += unit;
            pre.split(text + "a", &ends);
            CHECK(ends.back() == text.size() + 1);
        }
        CHECK((double)(clock() - begin) / CLOCKS_PER_SEC < kLongSeconds);
    }
    CHECK(n_names > 70);
    pretokenizer pre;
    CHECK_FALSE(pre.select("nothing"));
    CHECK_FALSE(pre.select(""));
    for (const char* bad : {"(a", "[a", "a)", "\\p{Nope}", "\\p{L", "(?:ab)*", "*a", "[&&[a]", "\\x{g}"})
        CHECK_FALSE(pre.compile({bad}));
}

TEST_CASE("tokenizer: patterns cut as their engines do") {
    CHECK(pieces("gpt-2", "I've  gone, 'T") == texts{"I", "'ve", " ", " gone", ",", " '", "T"});
    CHECK(pieces("llama-bpe", "I'VE 12345\n\n x") == texts{"I", "'VE", " ", "123", "45", "\n\n", " x"});
    CHECK(pieces("llama-bpe", "it'\xc5\xbf ok") == texts{"it", "'\xc5\xbf", " ok"});  // long s is an s
    CHECK(pieces("qwen2", "12") == texts{"1", "2"});
    CHECK(pieces("qwen2", "e\xcc\x81t") == texts{"e", "\xcc\x81t"});  // a mark is no letter there
    CHECK(pieces("qwen35", "e\xcc\x81t") == texts{"e\xcc\x81t"});     // here it is
    CHECK(pieces("gpt-4o", "helloWorld e\xcc\x81t's") == texts{"hello", "World", " e\xcc\x81t's"});
    CHECK(pieces("tekken", "helloWorld's 12") == texts{"hello", "World", "'s", " ", "1", "2"});
    CHECK(pieces("kimi-k2", "abc\xe4\xb8\xad\xe6\x96\x87"
                            "def") == texts{"abc", "\xe4\xb8\xad\xe6\x96\x87", "def"});
    CHECK(pieces("falcon", "a.b 12345") == texts{"a", ".", "b", " ", "123", "45"});
    CHECK(pieces("starcoder", "x 12") == texts{"x", " ", "1", "2"});
    CHECK(pieces("superbpe", "x 1234567 y") == texts{"x ", "1", "234", "567", " y"});
    CHECK(pieces("tiny_aya", "1234567") == texts{"1", "234", "567"});
    CHECK(pieces("exaone-moe", "a b  c") == texts{"a b", " ", " c"});
    CHECK(pieces("gemma4", "a\xe2\x96\x81"
                           "b\n\nc") == texts{"a\xe2\x96\x81"
                                              "b",
                                              "\n\n", "c"});
    CHECK(pieces("deepseek-llm", "a b  \n1") == texts{"a", " b", "  ", "\n", "1"});
}

TEST_CASE("tokenizer: merges follow the definition") {
    vocab_under_test v(bpe_file(kSomeMerges));
    REQUIRE_MESSAGE(v.status == DUET_OK, v.err.text);
    std::mt19937 rng(11);
    for (int i = 0; i < 600; i++) {  // on both sides of the length where the queue takes over
        std::string word;
        for (size_t n = 1 + rng() % 70; n > 0; n--) word += (char)('a' + rng() % 3);
        CAPTURE(word);
        const id_list got = v.ids(word);
        CHECK(got == plain_bpe(v, kSomeMerges, word));
        CHECK(v.text(got) == word);
    }
    // "abab" ranks before its parts do: later merges may come first again.
    const std::vector<std::string> odd = {"abab c", "ab ab", "c c", "a b"};
    raw_gguf f = bpe_file(odd);
    vocab_under_test w(f);
    REQUIRE_MESSAGE(w.status == DUET_OK, w.err.text);
    for (int i = 0; i < 300; i++) {
        std::string word;
        for (size_t n = 1 + rng() % 90; n > 0; n--) word += (char)('a' + rng() % 3);
        CHECK(w.ids(word) == plain_bpe(w, odd, word));
    }
}

TEST_CASE("tokenizer: a piece that is a token is taken whole where the model's own tokenizer does so") {
    // "b c" comes first, so merges alone never reach "abc". tiktoken looks for the whole piece before it merges.
    const std::vector<std::string> merges = {"b c", "a b", "ab c"};
    for (const char* pre : {"llama-bpe", "gpt-4o", "glm4", "glm5", "chatglm-bpe", "gpt-2", "qwen2"}) {
        CAPTURE(pre);
        vocab_under_test v(bpe_file(merges, pre));
        REQUIRE_MESSAGE(v.status == DUET_OK, v.err.text);
        const bool is_merged = std::string(pre) == "gpt-2" || std::string(pre) == "qwen2";
        CHECK(v.ids("abc") == (is_merged ? id_list{v.id("a"), v.id("bc")} : id_list{v.id("abc")}));
    }
}

TEST_CASE("tokenizer: long words take near-linear time") {
    vocab_under_test bpe(bpe_file(kSomeMerges, "llama-bpe")), spm(spm_file()), unknown(spm_file(false));
    REQUIRE(bpe.status == DUET_OK);
    std::string random;
    std::mt19937 rng(5);
    while (random.size() < kLongBytes) random += (char)('a' + rng() % 3);
    auto check = [](vocab_under_test& v, const std::string& text) {
        const clock_t begin = clock();
        const id_list ids = v.ids(text, false, true);
        CHECK((double)(clock() - begin) / CLOCKS_PER_SEC < kLongSeconds);
        return v.text(ids) == text;
    };
    CHECK(check(bpe, random));
    CHECK(check(spm, random));
    for (const char* unit : {"a", " ", "\xff", "<", "1"}) {
        std::string text;
        while (text.size() < kLongBytes / 5) text += unit;
        CHECK(check(bpe, text));
        CHECK(check(spm, text));
        check(unknown, text);
    }
}

TEST_CASE("tokenizer: special tokens, BOS and EOS") {
    vocab_under_test v(bpe_file(kSomeMerges, "llama-bpe").set("tokenizer.ggml.add_eos_token", raw_bool(1)));
    REQUIRE_MESSAGE(v.status == DUET_OK, v.err.text);
    const int32_t bos = v.tok.bos(), eos = v.tok.eos();
    CHECK(v.tok.spelling(bos) == "<s>");
    CHECK(v.ids("ab", true) == id_list{bos, v.id("ab"), eos});
    CHECK(v.ids("", true) == id_list{bos, eos});
    CHECK(v.ids("").empty());
    CHECK(v.ids("<s>ab</s>", true, true) == id_list{bos, v.id("ab"), eos});  // never twice
    CHECK(v.ids("<s>ab", false, true) == id_list{bos, v.id("ab")});
    CHECK(v.ids("<s><s>", true, true) == id_list{bos, bos, eos});
    // Spelled by a user, control tokens are text.
    for (int32_t id : v.ids("<s>ab</s><|eot_id|><|im_end|>")) CHECK_FALSE(v.tok.is_control(id));
    CHECK(v.text(v.ids("<s>ab<|im_end|>")) == "<s>ab<|im_end|>");
    // User-defined tokens are found in any text, the longest first.
    CHECK(v.ids("a<tool>xb<tool>") == id_list{v.id("a"), v.id("<tool>x"), v.id("b"), v.id("<tool>")});
    CHECK(v.tok.piece(v.id("<tool>")) == "<tool>");
    // Control tokens have no text of their own.
    CHECK(v.tok.piece(bos).empty());
    CHECK(v.text({bos, v.id("ab"), eos}) == "ab");
    CHECK(v.text({bos, v.id("ab"), eos}, true) == "<s>ab</s>");
    for (const char* end : {"</s>", "<|eot_id|>", "<|observation|>", "<|im_end|>"}) {
        CHECK(v.tok.is_end(v.id(end)));
        CHECK(v.tok.is_control(v.id(end)));
    }
    CHECK_FALSE(v.tok.is_end(bos));
    for (int32_t id : {-1, v.tok.n_vocab(), INT32_MAX, INT32_MIN}) {
        CHECK(v.tok.piece(id).empty());
        CHECK(v.tok.spelling(id).empty());
        CHECK_FALSE(v.tok.is_end(id));
    }
    CHECK(v.text({-1, INT32_MAX, v.id("ab")}) == "ab");

    vocab_under_test plain(bpe_file(kSomeMerges));  // gpt-2 adds nothing unless told
    CHECK(plain.ids("ab", true) == id_list{plain.id("ab")});
    vocab_under_test quiet(spm_file().set("tokenizer.ggml.add_bos_token", raw_bool(0)));
    CHECK(quiet.ids("b", true) == quiet.ids("b"));
    tokenizer empty;
    id_list ids = {1};
    error_text err;
    CHECK(empty.encode("x", true, true, &ids, err) == DUET_ERR_ARG);
    CHECK(empty.n_vocab() == 0);
    CHECK(empty.bos() == -1);
    CHECK(empty.piece(0).empty());
}

TEST_CASE("tokenizer: SPM") {
    vocab_under_test v(spm_file());
    REQUIRE_MESSAGE(v.status == DUET_OK, v.err.text);
    const int32_t space = v.id("\xe2\x96\x81");
    CHECK(v.ids("b", true) == id_list{1, space, v.id("b")});
    CHECK(v.ids("a") == id_list{v.id("\xe2\x96\x81"
                                     "a")});
    CHECK(v.ids("babc") == id_list{space, v.id("b"), v.id("abc")});  // ab and bc are equal: the left one, then abc
    CHECK(v.ids("bcc") == id_list{space, v.id("bc"), v.id("c")});    // abcc is out of reach: no pair leads there
    CHECK(v.ids("b d\xc3\xa9") == id_list{space, v.id("b"), space, v.id("<0x64>"), v.id("<0xC3>"), v.id("<0xA9>")});
    CHECK(v.ids("<s>").size() == 4);  // space, <, s, >
    CHECK(v.text(v.ids("  a b")) == "  a b");
    CHECK(v.text({1,
                  v.id("\xe2\x96\x81"
                       "a"),
                  v.id("\xe2\x96\x81"
                       "a")}) == "a a");
    CHECK(v.tok.piece(v.id("\xe2\x96\x81"
                           "a")) == " a");
    CHECK(v.tok.piece(v.id("<0x41>")) == "A");

    vocab_under_test no_prefix(spm_file().set("tokenizer.ggml.add_space_prefix", raw_bool(0)));
    CHECK(no_prefix.ids("a") == id_list{no_prefix.id("a")});
    CHECK(no_prefix.text(no_prefix.ids(" a")) == " a");
    vocab_under_test tidy(spm_file().set("tokenizer.ggml.remove_extra_whitespaces", raw_bool(1)));
    CHECK(tidy.ids("  b   b  ") == tidy.ids("b b"));
    CHECK(tidy.ids("   ").empty());
    vocab_under_test no_bytes(spm_file(false));  // unknown neighbours are one
    CHECK(no_bytes.ids("dd\xc3\xa9"
                       "bd") == id_list{no_bytes.id("\xe2\x96\x81"), 0, no_bytes.id("b"), 0});
    // A piece that merged to an unused token is taken apart again.
    raw_gguf f = spm_file(false);
    std::vector<int32_t> types(13, 1);
    types[0] = 2, types[1] = types[2] = 3, types[9] = 5;  // abc
    vocab_under_test unused(f.set(kTypes, raw_i32s(types)));
    REQUIRE_MESSAGE(unused.status == DUET_OK, unused.err.text);
    CHECK(unused.ids("babc") == id_list{unused.id("\xe2\x96\x81"), unused.id("b"), unused.id("ab"), unused.id("c")});
}

namespace {

// One rule of a precompiled charsmap, written by hand: the byte 'Q' becomes "a".
std::string tiny_charsmap() {
    std::string array(512 * 4, '\0'), out;
    auto put = [&](size_t i, uint32_t unit) {
        for (int k = 0; k < 4; k++) array[i * 4 + (size_t)k] = (char)(unit >> 8 * k);
    };
    const uint32_t at = 256 ^ 'Q';
    put(0, 256u << 10);
    put(at, (at ^ 400u) << 10 | 1u << 8 | 'Q');
    put(400, 0x80000000u);
    for (int k = 0; k < 4; k++) out += (char)(array.size() >> 8 * k);
    return out + array + std::string("a\0", 2);
}

raw_gguf unigram_file() {
    const std::vector<std::string> tokens = {"<pad>",
                                             "</s>",
                                             "<unk>",
                                             "\xe2\x96\x81",
                                             "a",
                                             "b",
                                             "ab",
                                             "aba",
                                             "\xe2\x96\x81"
                                             "b"};
    raw_gguf f = vocab_file("t5", tokens, {3, 3, 2, 1, 1, 1, 1, 1, 1});
    f.set(kScores, raw_f32s({0, 0, 0, -2, -3, -3, -4, -6, -2.5f}));
    const std::string map = tiny_charsmap();
    return f.set("tokenizer.ggml.precompiled_charsmap", raw_array(0, map.size(), map));
}

}  // namespace

TEST_CASE("tokenizer: unigram") {
    vocab_under_test v(unigram_file());
    REQUIRE_MESSAGE(v.status == DUET_OK, v.err.text);
    CHECK(v.ids("ab", true) == id_list{3, 6, 1});  // EOS by default
    CHECK(v.ids("aba") == id_list{3, 7});          // -6 beats -4 + -3
    CHECK(v.ids("b") == id_list{8});
    CHECK(v.ids("QbQ") == v.ids("aba"));                                    // the charsmap
    CHECK(v.ids("  a \xc3\xa9\xc3\xa9 a  ") == id_list{3, 4, 3, 2, 3, 4});  // unknowns are one, spaces are tidied
    CHECK(v.ids("   ").empty());
    CHECK(v.text(v.ids("b ab")) == "b ab");
}

TEST_CASE("tokenizer: WordPiece") {
    const std::string mark = "\xe2\x96\x81";
    std::vector<std::string> tokens = {"[PAD]",    "[UNK]", "[CLS]",        "[SEP]",    mark + "un",
                                       "aff",      "able",  mark + "hello", mark + ",", mark + "\xe4\xb8\xad",
                                       mark + "a", "a",     mark + "hel"};
    std::vector<int32_t> types(tokens.size(), 1);
    for (size_t i = 0; i < 4; i++) types[i] = 3;
    raw_gguf f = vocab_file("bert", tokens, types);
    f.set("tokenizer.ggml.unknown_token_id", raw_u32(1)).set("tokenizer.ggml.cls_token_id", raw_u32(2));
    f.set("tokenizer.ggml.seperator_token_id", raw_u32(3));
    vocab_under_test v(f);
    REQUIRE_MESSAGE(v.status == DUET_OK, v.err.text);
    CHECK(v.ids("unaffable", true) == id_list{2, 4, 5, 6, 3});
    CHECK(v.ids("H\xc3\x89llo,  UNaffable") == id_list{7, 8, 4, 5, 6});  // lower case, no accents
    CHECK(v.ids("unaffablex a") == id_list{1, 10});                      // a word is known whole or not at all
    CHECK(v.ids("a\xe4\xb8\xad"
                "a") == id_list{10, 9, 10});
    CHECK(v.ids(std::string(100, 'a')).size() == 100);
    CHECK(v.ids(std::string(101, 'a')) == id_list{1});
    CHECK(v.ids("\x01"
                "a\xef\xbf\xbd\xff") == id_list{10});
    CHECK(v.text(v.ids("hello, unaffable", true)) == "hello , unaffable");
    vocab_under_test cased(f.set("tokenizer.ggml.normalizer.lowercase", raw_bool(0)));
    CHECK(cased.ids("Hello hello") == id_list{1, 7});
}

TEST_CASE("tokenizer: BPE over characters with spaces marked") {
    std::vector<std::string> tokens = {"<unk>",
                                       "<s>",
                                       "a",
                                       "b",
                                       "\xe2\x96\x81",
                                       "\xe2\x96\x81"
                                       "a",
                                       "\n",
                                       "\n\n",
                                       "\xc3\xa9"};
    std::vector<int32_t> types(tokens.size(), 1);
    types[0] = 2, types[1] = 3;
    raw_gguf f = vocab_file("gemma4", tokens, types).set(kMerges, raw_texts({"\xe2\x96\x81 a"}));
    f.set("tokenizer.ggml.bos_token_id", raw_u32(1)).set("tokenizer.ggml.unknown_token_id", raw_u32(0));
    vocab_under_test v(f);
    REQUIRE_MESSAGE(v.status == DUET_OK, v.err.text);
    CHECK(v.ids("b a\n\n\xc3\xa9zz") == id_list{3, 5, 7, 8, 0});
    CHECK(v.text(v.ids("b a\n\n")) == "b a\n\n");
    CHECK(v.ids("b", true) == id_list{1, 3});  // a BOS, whether the file says nothing or denies it
    vocab_under_test denied(f.set("tokenizer.ggml.add_bos_token", raw_bool(0)));
    CHECK(denied.ids("b", true) == id_list{1, 3});
    vocab_under_test none(f.erase("tokenizer.ggml.bos_token_id"));
    CHECK(none.ids("b", true) == id_list{3});
}

TEST_CASE("tokenizer: the spaces behind special tokens of Phi-3 are no text") {
    const std::vector<std::string> tokens = {"<unk>",
                                             "<s>",
                                             "</s>",
                                             "<|endoftext|>",
                                             "<|user|>",
                                             "<|tool|>",
                                             "\n",
                                             "a",
                                             "\xe2\x96\x81",
                                             "\xe2\x96\x81"
                                             "a"};
    raw_gguf f = vocab_file("llama", tokens, {2, 3, 3, 3, 3, 4, 1, 1, 1, 1});
    const std::string text = "<|user|> \n\t a\n<|tool|>\na</s>\n<s>\n<|endoftext|>\na\n";
    struct row {
        std::string name;
        id_list want;
    };
    for (const row& r : {row{"Phi-3 Mini", {4, 9, 6, 5, 9, 2, 1, 8, 6, 3, 8, 6, 7, 6}},
                         row{"PHI3", {4, 9, 6, 5, 9, 2, 1, 8, 6, 3, 8, 6, 7, 6}},
                         row{"Llama", {4, 8, 8, 6, 0, 9, 6, 5, 8, 6, 7, 2, 8, 6, 1, 8, 6, 3, 8, 6, 7, 6}}}) {
        CAPTURE(r.name);
        vocab_under_test v(f.set("general.name", raw_text(r.name.c_str())));
        REQUIRE_MESSAGE(v.status == DUET_OK, v.err.text);
        CHECK(v.ids(text, false, true) == r.want);
        CHECK(v.ids("<|user|>", false, true) == id_list{4});
        CHECK(v.ids("<|user|>\n", false, true).size() == (r.name[0] == 'L' ? 3 : 1));
    }
    const std::string path = test_data_path("vocabs/ggml-vocab-phi-3.gguf");
    if (!file_exists(path)) return say_skipped("spaces behind special tokens of Phi-3", 1, "no " + path);
    vocab_under_test real(path);
    CHECK(real.ids("<|user|>\nHello<|end|>\n<|assistant|>\n", false, true) == id_list{32010, 15043, 32007, 32001});
}

TEST_CASE("tokenizer: a vocabulary without merges where ids are ranks") {
    raw_gguf f = bpe_file(kSomeMerges, "kimi-k2");
    f.erase(kMerges);
    vocab_under_test v(f);
    REQUIRE_MESSAGE(v.status == DUET_OK, v.err.text);
    CHECK(v.ids("abc") == id_list{v.id("abc")});
    CHECK(v.ids("aab") == id_list{v.id("a"), v.id("ab")});
}

namespace {

struct vocab_case {
    const char* name;
    raw_gguf file;
    const char* want;  // in the message
    duet_status status = DUET_ERR_FORMAT;
};

std::vector<vocab_case> hostile_vocabularies() {
    std::vector<vocab_case> out;
    auto id_key = [](const char* name) { return "tokenizer.ggml." + std::string(name) + "_token_id"; };
    auto add = [&](const char* name, raw_gguf f, const char* want, duet_status status = DUET_ERR_FORMAT) {
        out.push_back({name, std::move(f), want, status});
    };
    const std::vector<std::string> three = {"<unk>", "a", "b"};
    auto tiny = [&](std::vector<std::string> tokens, std::vector<int32_t> types) {
        return vocab_file("llama", tokens, types);
    };
    add("no tokens", tiny({}, {}), kTokens);
    add("tokens of numbers", tiny(three, {1, 1, 1}).set(kTokens, raw_i32s({1, 2, 3})), kTokens);
    add("tokens absent", tiny(three, {1, 1, 1}).erase(kTokens), kTokens);
    add("model absent", tiny(three, {1, 1, 1}).erase("tokenizer.ggml.model"), "tokenizer.ggml.model");
    add("nothing at all", raw_gguf().set("general.architecture", raw_text("llama")), "no vocabulary",
        DUET_ERR_UNSUPPORTED);
    add("no model", raw_gguf().set("general.type", raw_text("imatrix")),
        "the file has no vocabulary; general.type: want model, got imatrix", DUET_ERR_UNSUPPORTED);
    add("no_vocab", tiny(three, {1, 1, 1}).set("tokenizer.ggml.model", raw_text("no_vocab")), "no vocabulary",
        DUET_ERR_UNSUPPORTED);
    add("unknown model", tiny(three, {1, 1, 1}).set("tokenizer.ggml.model", raw_text("rwkv")), "rwkv",
        DUET_ERR_UNSUPPORTED);
    add("unknown pre", bpe_file(kSomeMerges, "strange"), "strange", DUET_ERR_UNSUPPORTED);
    add("empty token", tiny({"<unk>", "", "b"}, {2, 1, 1}), "entry 1");
    add("duplicate", tiny({"<unk>", "a", "a"}, {2, 1, 1}), "entry 2");
    add("duplicate control", tiny({"<unk>", "a", "a"}, {2, 1, 3}), "entry 2");
    add("bad UTF-8", tiny({"<unk>", "a", "\xc3"}, {2, 1, 1}), "entry 2");
    add("huge token", tiny({"<unk>", "a", std::string((1 << 20) + 1, 'x')}, {2, 1, 1}), "entry 2");
    add("few types", tiny(three, {1, 1}), kTypes);
    add("many types", tiny(three, {1, 1, 1, 1}), kTypes);
    add("type 7", tiny(three, {1, 7, 1}), kTypes);
    add("type -1", tiny(three, {1, -1, 1}), kTypes);
    add("types of bytes", tiny(three, {}).set(kTypes, raw_array(1, 3, std::string(3, '\1'))), kTypes);
    add("types not an array", tiny(three, {}).set(kTypes, raw_i32(1)), kTypes);
    add("few scores", tiny(three, {1, 1, 1}).set(kScores, raw_f32s({0, 0})), kScores);
    add("scores of bytes", tiny(three, {1, 1, 1}).set(kScores, raw_array(0, 3, "abc")), kScores);
    add("NaN score", tiny(three, {1, 1, 1}).set(kScores, raw_f32s({0, NAN, 0})), kScores);
    add("infinite score", tiny(three, {1, 1, 1}).set(kScores, raw_f32s({0, INFINITY, 0})), kScores);
    for (const char* name : {"bos", "eos", "padding", "unknown", "eot", "eom", "cls", "mask", "seperator", "fim_pre"}) {
        add("id out of range", tiny(three, {1, 1, 1}).set(id_key(name), raw_u32(3)), name);
        add("negative id", tiny(three, {1, 1, 1}).set(id_key(name), raw_i32(-2)), name);
        add("id is text", tiny(three, {1, 1, 1}).set(id_key(name), raw_text("1")), name);
    }
    add("suppressed bytes", tiny(three, {1, 1, 1}).set("tokenizer.ggml.suppress_tokens", raw_array(0, 1, "\1")),
        "suppress_tokens");
    add("suppressed out of range", tiny(three, {1, 1, 1}).set("tokenizer.ggml.suppress_tokens", raw_i32s({9})),
        "suppress_tokens");
    add("BOS without id", spm_file().set("tokenizer.ggml.add_bos_token", raw_bool(1)).erase(id_key("bos")),
        "add_bos_token");
    add("EOS without id", spm_file().set("tokenizer.ggml.add_eos_token", raw_bool(1)), "add_eos_token");
    add("add_bos is a number", spm_file().set("tokenizer.ggml.add_bos_token", raw_u32(1)), "add_bos_token");
    add("space prefix is a number", spm_file().set("tokenizer.ggml.add_space_prefix", raw_u32(1)), "add_space_prefix");
    for (const char* byte : {"<0x-1>", "<0xZZ>", "<0x1>", "<0x001>", "0x41", "<0X41>"})
        add("byte token", tiny({"<unk>", "a", byte}, {2, 1, 6}), "entry 2");
    add("byte twice", tiny({"<unk>", "<0x4a>", "<0x4A>"}, {2, 6, 6}), "entry 2");
    add("some bytes missing", tiny({"<unk>", "<0x40>", "<0x41>"}, {2, 6, 6}), "without <0x00>");
    for (const char* merge : {"", " ", "a", "ab", "a ", " a", "a zz", "zz a", "a q", "a  b"}) {
        auto merges = kSomeMerges;
        merges.push_back(merge);
        add("merge", bpe_file(kSomeMerges).set(kMerges, raw_texts(merges)), "entry 9");
    }
    add("merge twice", bpe_file(kSomeMerges).set(kMerges, raw_texts({"a b", "b c", "a b"})), "entry 2");
    add("merges of numbers", bpe_file(kSomeMerges).set(kMerges, raw_i32s({1})), kMerges);
    add("no merges", bpe_file(kSomeMerges).erase(kMerges), kMerges);
    const std::string map = tiny_charsmap();
    for (const std::string& blob :
         {std::string("\1"), std::string("\1\2\3"), std::string(4, '\0'), std::string(8, '\xff'), map.substr(0, 100),
          map.substr(0, map.size() - 1), map.substr(0, 4 + 2048), std::string("\x05\0\0\0aaaaaa\0", 11)})
        add("charsmap", unigram_file().set("tokenizer.ggml.precompiled_charsmap", raw_array(0, blob.size(), blob)),
            "charsmap");
    add("charsmap of long strings",
        unigram_file().set("tokenizer.ggml.precompiled_charsmap",
                           raw_array(0, map.size() + 300, map + std::string(299, 'x') + '\0')),
        "256 bytes");
    add("charsmap of numbers", unigram_file().set("tokenizer.ggml.precompiled_charsmap", raw_i32s({1, 2, 3})),
        "charsmap");
    return out;
}

}  // namespace

TEST_CASE("tokenizer: scores may be whole numbers of 32 bits") {
    const auto file = [] { return vocab_file("llama", {"<unk>", "a", "b", "ab", "ba"}, {2, 1, 1, 1, 1}); };
    vocab_under_test first(file().set(kScores, raw_i32s({0, -9, -9, -1, -2}))),
        second(file().set(kScores, raw_i32s({0, -9, -9, -2, -1}))),
        as_floats(file().set(kScores, raw_f32s({0, -9, -9, -2, -1})));
    INFO(first.err.text);
    REQUIRE(first.status == DUET_OK);
    REQUIRE(second.status == DUET_OK);
    CHECK(first.ids("bab") != second.ids("bab"));
    CHECK(second.ids("bab") == as_floats.ids("bab"));
}

TEST_CASE("tokenizer: vocabularies that contradict themselves") {
    for (vocab_case& c : hostile_vocabularies()) {
        CAPTURE(c.name);
        CAPTURE(c.want);
        vocab_under_test v(c.file);
        CHECK(v.status == c.status);
        CHECK_MESSAGE(v.err.text.find(c.want) != std::string::npos, v.err.text);
        CHECK(v.err.text.size() < 1000 + pretokenizer::known_names().size());
    }
}

TEST_CASE("tokenizer: odd vocabularies that are valid") {
    const std::vector<std::string> three = {"<unk>", "a", "b"};
    vocab_under_test bare(vocab_file("llama", three, {}).erase(kTypes));  // neither types nor scores nor ids
    REQUIRE_MESSAGE(bare.status == DUET_OK, bare.err.text);
    CHECK(bare.ids("ab", true) == id_list{0, 1, 2});  // the unknown space, no BOS
    // Some converters write that there is no such token.
    for (const auto& none : {raw_i32(-1), raw_u32(UINT32_MAX)}) {
        raw_gguf f = vocab_file("llama", three, {2, 1, 1}).set("tokenizer.ggml.bos_token_id", none);
        vocab_under_test v(f.set("tokenizer.ggml.padding_token_id", none).set("tokenizer.ggml.eot_token_id", none));
        REQUIRE_MESSAGE(v.status == DUET_OK, v.err.text);
        CHECK(v.tok.bos() == -1);
        CHECK(v.ids("ab", true) == id_list{0, 1, 2});
    }
    vocab_under_test unused(vocab_file("llama", {"<unk>", "a", "x", "x", ""}, {2, 1, 5, 5, 5}));
    CHECK_MESSAGE(unused.status == DUET_OK, unused.err.text);
    vocab_under_test no_merges(bpe_file({}));
    REQUIRE_MESSAGE(no_merges.status == DUET_OK, no_merges.err.text);
    CHECK(no_merges.ids("ab") == id_list{'a', 'b'});
    raw_gguf f = bpe_file({"a b", "ab c"});  // merges that lead to a control token are not followed
    std::vector<int32_t> types(265, 1);
    types[257] = 3;
    vocab_under_test guarded(f.set(kTypes, raw_i32s(types)));
    REQUIRE_MESSAGE(guarded.status == DUET_OK, guarded.err.text);
    CHECK(guarded.ids("abc") == id_list{guarded.id("ab"), 'c'});
    vocab_under_test no_pre(bpe_file(kSomeMerges).erase("tokenizer.ggml.pre"));
    CHECK_MESSAGE(no_pre.status == DUET_OK, no_pre.err.text);
    // A charsmap may lead in a circle: a rule has an end all the same.
    std::string circle = tiny_charsmap();
    const uint32_t back = (uint32_t)'Q' << 10 | 'Q';
    for (int k = 0; k < 4; k++) circle[4 + 4 * (256 ^ 'Q') + k] = (char)(back >> 8 * k);
    vocab_under_test endless(
        unigram_file().set("tokenizer.ggml.precompiled_charsmap", raw_array(0, circle.size(), circle)));
    const clock_t begin = clock();
    CHECK(endless.ids(std::string(300'000, 'Q')).size() == 2);  // a space and something unknown
    CHECK((double)(clock() - begin) / CLOCKS_PER_SEC < kLongSeconds);
    // Units of a charsmap may point anywhere: reading stays inside.
    std::mt19937 rng(2);
    for (int i = 0; i < 300; i++) {
        std::string map = tiny_charsmap();
        for (int k = 0; k < 200; k++) map[4 + rng() % 2048] = (char)rng();
        vocab_under_test v(unigram_file().set("tokenizer.ggml.precompiled_charsmap", raw_array(0, map.size(), map)));
        REQUIRE(v.status == DUET_OK);
        std::string text;
        for (int k = 0; k < 50; k++) text += (char)rng();
        v.ids(text);
    }
}
