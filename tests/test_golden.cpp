// tests/test_golden.cpp: number formats and tokenizers against the results of other programs, which lie in tests/data:
// decoded blocks of every format, a model computed in every format, every kind of vocabulary, every pre-tokenizer.
// tests/test_models.cpp tests the families.
#include "doctest.h"
#include "../cpu/kernels.h"
#include "../models/tokenizer.h"
#include "../runtime.h"
#include "hostile.h"
#include "metrics.h"
#include "test_data.h"

#include <cmath>
#include <cstring>
#include <map>
#include <set>
#include <sstream>

using namespace duet;

namespace {

// Returns FNV-1a over the bits of floats; any NaN counts as 7fc00000.
uint32_t hash_of(const std::vector<float>& x) {
    uint32_t h = 2166136261u;
    for (float v : x) {
        uint32_t bits;
        memcpy(&bits, &v, 4);
        if (std::isnan(v)) bits = 0x7fc00000;
        for (int i = 0; i < 4; i++) h = (h ^ (uint8_t)(bits >> 8 * i)) * 16777619u;
    }
    return h;
}

bool same_value(float a, float b) { return a == b || (std::isnan(a) && std::isnan(b)); }

// All formats that types.def has code for, except F32, which is not encoded.
std::vector<std::string> coded_formats() {
    return {
#define FLOAT_TYPE(id, NAME, gguf_id, bytes)                  #NAME,
#define QUANT_TYPE(id, NAME, gguf_id, elems, bytes, max_nmse) #NAME,
#include "../quant/types.def"
    };
}

struct opened_model {
    duet_model* m = nullptr;
    duet_session* s = nullptr;
    int n_vocab = 0;
    explicit opened_model(const std::string& path, const char* isa = nullptr) {
        duet_model_params p = duet_model_params_default();
        p.cpu_isa = isa;
        if (!isa) p.device = test_device();
        const duet_status opened = duet_model_open(path.c_str(), &p, &m);
        INFO(std::string(duet_model_error(m)));
        REQUIRE(opened == DUET_OK);
        duet_model_info info{};
        info.struct_size = sizeof info;
        REQUIRE(duet_model_get_info(m, &info) == DUET_OK);
        n_vocab = info.n_vocab;
        duet_session_params q = duet_session_params_default();
        q.n_ctx = 64;
        q.n_seqs = 2;
        q.cache_type = DUET_CACHE_F32;
        REQUIRE(duet_session_create(m, &q, &s) == DUET_OK);
    }
    opened_model(const opened_model&) = delete;
    ~opened_model() {
        duet_session_free(s);
        duet_model_free(m);
    }
    // Returns the last token's logits, with the ids fed `step` at a time.
    std::vector<float> feed(const std::vector<int32_t>& ids, size_t step, int32_t seq = 0) {
        std::vector<int32_t> seqs(ids.size(), seq);
        for (size_t at = 0; at < ids.size(); at += step) {
            const int32_t n_tok = (int32_t)std::min(step, ids.size() - at);
            const duet_batch b{sizeof(duet_batch), n_tok, &ids[at], nullptr, seqs.data(), nullptr};
            const duet_status status = duet_decode(s, &b);
            INFO(std::string(duet_session_error(s)));
            REQUIRE(status == DUET_OK);
        }
        const float* last = duet_logits(s, 0);
        REQUIRE(last != nullptr);
        return {last, last + n_vocab};
    }
};

// Decodes a line of vocabularies.txt, which spells bytes that are not printable as \xHH.
std::string unescape(const std::string& s) {
    std::string out;
    for (size_t i = 0; i < s.size(); i++)
        if (s[i] != '\\') out += s[i];
        else out += (char)std::stoi(s.substr(i + 2, 2), nullptr, 16), i += 3;
    return out;
}

struct tiny_vocabulary {
    std::string model;
    std::vector<std::string> tokens, merges;
    std::vector<int32_t> types;
    std::vector<float> scores;
    std::string charsmap;
    std::vector<std::pair<std::string, uint32_t>> keys;

    // pre-tokenizer of a byte-level BPE
    std::string bytes(const std::string& pre) const {
        raw_gguf f;
        f.set("general.architecture", raw_text("llama")).set("tokenizer.ggml.model", raw_text(model));
        f.set("tokenizer.ggml.tokens", raw_texts(tokens)).set("tokenizer.ggml.token_type", raw_i32s(types));
        f.set("tokenizer.ggml.scores", raw_f32s(scores));
        if (!merges.empty()) f.set("tokenizer.ggml.merges", raw_texts(merges));
        if (!charsmap.empty()) f.set("tokenizer.ggml.precompiled_charsmap", raw_array(0, charsmap.size(), charsmap));
        if (model == "gpt2") f.set("tokenizer.ggml.pre", raw_text(pre));
        for (const auto& [key, id] : keys) f.set("tokenizer.ggml." + key, raw_u32(id));
        return f.bytes();
    }
};

struct opened_vocabulary {
    std::string bytes;
    gguf_file file;
    tokenizer tok;
    error_text err;
    explicit opened_vocabulary(std::string b) : bytes(std::move(b)) {
        REQUIRE_MESSAGE(file.open_memory(bytes.data(), bytes.size(), err) == DUET_OK, err.text);
        REQUIRE_MESSAGE(tok.load(file, err) == DUET_OK, err.text);
    }
};

struct answer {
    size_t i_vocabulary, i_text;
    std::string rows;  // names of pre-tokenizers, with commas
    std::vector<int32_t> ids;
};

struct all_vocabularies {
    std::vector<std::string> texts;
    std::vector<tiny_vocabulary> vocabularies;
    std::vector<answer> answers;

    all_vocabularies() {
        std::istringstream in(read_file("tests/data/vocabularies.txt"));
        for (std::string line; std::getline(in, line);) read(line);
        REQUIRE(vocabularies.size() == 5);
    }

  private:
    void read(const std::string& line) {
        std::istringstream words(line);
        std::string kind, a, b;
        words >> kind >> a;
        if (kind == "text") return texts.push_back(unescape(a));
        if (kind == "vocab") return vocabularies.push_back({a, {}, {}, {}, {}, {}, {}});
        tiny_vocabulary& v = vocabularies.back();
        words >> b;
        if (kind == "key") v.keys.push_back({a, (uint32_t)std::stoul(b)});
        if (kind == "charsmap") v.charsmap = unescape(a);
        if (kind == "merge") v.merges.push_back(unescape(a) + " " + unescape(b));
        if (kind == "token") {
            std::string text;
            words >> text;
            v.types.push_back(std::stoi(a));
            v.scores.push_back(std::stof(b));
            v.tokens.push_back(unescape(text));
        }
        if (kind == "ids") {
            answer& to = answers.emplace_back(answer{vocabularies.size() - 1, std::stoul(a), b, {}});
            words >> a;
            for (int32_t id; words >> id;) to.ids.push_back(id);
        }
    }
};

}  // namespace

TEST_CASE("golden formats: blocks of random bytes decode to the values of the gguf package") {
    std::set<std::string> missing;
    for (const std::string& name : coded_formats())
        if (name != "F32") missing.insert(name);
    std::istringstream in(read_file("tests/data/formats.txt"));
    std::string name, hash, first[2];
    for (size_t n_blocks, n_elems; in >> name >> n_blocks >> n_elems >> hash >> first[0] >> first[1];) {
        CAPTURE(name);
        const duet_type_info* type = duet_type_by_name(name.c_str());
        REQUIRE(type != nullptr);
        REQUIRE(n_blocks * (size_t)type->elems_per_block == n_elems);
        const std::vector<uint8_t> blocks = golden_bytes("format/" + name, n_blocks * (size_t)type->bytes_per_block);
        std::vector<float> x(n_elems);
        REQUIRE(duet_dequantize_row(type->id, blocks.data(), (int64_t)n_elems, x.data()) == DUET_OK);
        for (size_t i : {0, 1}) CHECK(same_value(x[i], std::strtof(first[i].c_str(), nullptr)));
        CHECK(hash_of(x) == std::stoul(hash, nullptr, 16));
        missing.erase(name);
    }
    for (const std::string& without : missing) CHECK_MESSAGE(without == "", "no values for ", without);
}

TEST_CASE("golden formats: a model in every format is near its decoded weights in F32, with the same bits for any "
          "instruction set, any split and after saving") {
    const std::string plain = tiny_model_folder("formats");
    const std::vector<int32_t> ids = read_ids(plain + "/tokens.json");
    for (const std::string& name : coded_formats()) {
        CAPTURE(name);
        const std::string path = tiny_model_folder("formats", name) + "/model.gguf";
        opened_model model(path), decoded(tiny_model_folder("formats", name + " decoded") + "/model.gguf");
        const std::vector<float> got = model.feed(ids, 512), want = decoded.feed(ids, 512);
        // Blocks are multiplied by activations of 8 bits.
        CHECK(nmse(want.data(), got.data(), got.size()) <= (name == "F32"                     ? 0
                                                            : name == "F16" || name == "BF16" ? 1e-6
                                                                                              : 2e-4));
        for (int i = 0; const cpu_kernels* k = cpu_kernels_at(i); i++)
            CHECK(opened_model(path, k->name).feed(ids, 512) == got);
        CHECK(opened_model(path).feed(ids, 5) == got);
        const std::vector<int32_t> begin(ids.begin(), ids.end() - 3), rest(ids.end() - 3, ids.end());
        opened_model from(path), to(path);
        from.feed(begin, 512);
        uint64_t n_bytes = 0;
        REQUIRE(duet_seq_save(from.s, 0, nullptr, 0, &n_bytes) == DUET_OK);
        std::vector<uint8_t> saved(n_bytes);
        REQUIRE(duet_seq_save(from.s, 0, saved.data(), n_bytes, &n_bytes) == DUET_OK);
        REQUIRE(duet_seq_load(to.s, 1, saved.data(), n_bytes) == DUET_OK);
        CHECK(to.feed(rest, 1, 1) == got);
    }
}

TEST_CASE("golden tokenizers: every kind of vocabulary and every pre-tokenizer gives the ids of other programs") {
    const all_vocabularies all;
    std::map<std::string, int> n_texts;
    std::map<std::string, opened_vocabulary> opened;
    for (const answer& a : all.answers) {
        const tiny_vocabulary& v = all.vocabularies[a.i_vocabulary];
        std::istringstream rows(a.rows);
        for (std::string row; std::getline(rows, row, ',');) {
            CAPTURE(v.model);
            CAPTURE(row);
            CAPTURE(a.i_text);
            opened_vocabulary& o = opened.try_emplace(v.model + "/" + row, v.bytes(row)).first->second;
            std::vector<int32_t> ids;
            REQUIRE(o.tok.encode(all.texts[a.i_text], false, false, &ids, o.err) == DUET_OK);
            CHECK(ids == a.ids);
            n_texts[row == "-" ? v.model : row]++;
        }
    }
    std::set<std::string> names = {"llama", "t5", "bert", "gemma4"};
#define PATTERN(name, text)
#define PRETOKENIZER(row_names, ...)                                                                                   \
    names.insert(std::string(row_names, std::string_view(row_names).find(' ') == std::string_view::npos                \
                                            ? std::strlen(row_names)                                                   \
                                            : std::string_view(row_names).find(' ')));
#include "../models/pretokenizers.def"
    for (const std::string& name : names) CHECK_MESSAGE(n_texts[name] == (int)all.texts.size(), name);
}
