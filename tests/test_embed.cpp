// tests/test_embed.cpp: vectors and scores of texts: every encoder against its numpy twin (tests/data), the bits of a
// text alone and among others on every instruction set and emulated GPU, texts that are too long, and what is refused.
#include "doctest.h"
#include "../cpu/kernels.h"
#include "../runtime.h"
#include "metrics.h"
#include "test_data.h"

#include <cmath>
#include <cstring>

using namespace duet;

namespace {

struct embedder {
    duet_model* m = nullptr;
    duet_session* s = nullptr;
    duet_model_info info{};
    explicit embedder(const std::string& name, const char* device = nullptr, const char* isa = nullptr, int n_seqs = 4,
                      int n_ctx = 0, int max_batch = 512, int cache = DUET_CACHE_F32, int64_t cache_tokens = 0,
                      const char* file = "model.gguf") {
        duet_model_params p = duet_model_params_default();
        p.device = device ? device : isa ? "cpu" : test_device();
        p.cpu_isa = isa;
        p.n_threads = isa ? 2 : 1;
        const duet_status opened = duet_model_open((tiny_model_folder(name) + "/" + file).c_str(), &p, &m);
        INFO(std::string(duet_model_error(m)));
        REQUIRE(opened == DUET_OK);
        info.struct_size = sizeof info;
        REQUIRE(duet_model_get_info(m, &info) == DUET_OK);
        duet_session_params q = duet_session_params_default();
        q.n_ctx = n_ctx;
        q.n_seqs = n_seqs;
        q.max_batch = max_batch;
        q.cache_type = cache;
        q.cache_tokens = cache_tokens;
        REQUIRE(duet_session_create(m, &q, &s) == DUET_OK);
    }
    embedder(const embedder&) = delete;
    ~embedder() {
        duet_session_free(s);
        duet_model_free(m);
    }

    std::vector<float> embed(const std::vector<std::vector<int32_t>>& texts,
                             const duet_embed_params* params = nullptr) {
        std::vector<int32_t> ids, n_ids;
        for (const auto& t : texts) {
            ids.insert(ids.end(), t.begin(), t.end());
            n_ids.push_back((int32_t)t.size());
        }
        std::vector<float> out(texts.size() * (size_t)info.embedding_dim);
        const duet_status st = duet_embed_ids(s, ids.data(), n_ids.data(), (int32_t)texts.size(), params, out.data());
        INFO(std::string(duet_session_error(s)));
        REQUIRE(st == DUET_OK);
        return out;
    }
};

bool equal_bits(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && memcmp(a.data(), b.data(), a.size() * 4) == 0;
}

std::vector<float> joined(std::initializer_list<std::vector<float>> parts) {
    std::vector<float> all;
    for (const auto& p : parts) all.insert(all.end(), p.begin(), p.end());
    return all;
}

}  // namespace

TEST_CASE("golden embeddings: vectors of every encoder, alone and in batches, the same bits on every instruction set") {
    int n_models = 0;
    for (const std::string& name : tiny_model_names()) {
        const std::string folder = tiny_model_folder(name);
        if (!file_exists(folder + "/pooled.f32")) continue;
        n_models++;
        CAPTURE(name);
        const std::vector<int32_t> ids = read_ids(folder + "/tokens.json");
        const std::vector<float> want = read_floats(folder + "/pooled.f32");
        embedder e(name);
        const std::vector<float> got = e.embed({ids});
        REQUIRE(got.size() == want.size());
        CHECK(max_difference(want.data(), got.data(), want.size()) <= 2e-5);
        const std::vector<int32_t> few(ids.begin(), ids.begin() + 3), rest(ids.begin() + 1, ids.end()), one{ids[1]};
        const std::vector<float> alone = joined({e.embed({few}), got, e.embed({one}), e.embed({rest}), got});
        CHECK(equal_bits(alone, e.embed({few, ids, one, rest, ids})));
        CHECK(equal_bits(alone, embedder(name, nullptr, nullptr, 2, 0, 7).embed({few, ids, one, rest, ids})));
        for (int i = 0; const cpu_kernels* k = cpu_kernels_at(i); i++) {
            if (ids.size() > 100 && std::string(k->name) == "scalar") continue;
            CAPTURE(k->name);
            CHECK(equal_bits(alone, embedder(name, nullptr, k->name).embed({few, ids, one, rest, ids})));
        }
        // The f16 cache rounds keys and values: near, and the same bits on every instruction set.
        const std::vector<float> half = embedder(name, "cpu", nullptr, 1, 0, 512, DUET_CACHE_F16).embed({ids});
        CHECK(max_difference(want.data(), half.data(), want.size()) <= 2e-3);
        CHECK(equal_bits(half, embedder(name, "cpu", "scalar", 1, 0, 512, DUET_CACHE_F16).embed({ids})));
    }
    CHECK(n_models >= 12);
}

TEST_CASE("gpu: golden embeddings on the emulator have the CPU's bits, alone and in batches") {
    for (const std::string& name : tiny_model_names()) {
        const std::string folder = tiny_model_folder(name);
        if (!file_exists(folder + "/pooled.f32")) continue;
        CAPTURE(name);
        const std::vector<int32_t> ids = read_ids(folder + "/tokens.json"), few(ids.begin(), ids.begin() + 3);
        embedder e(name, "cpu");
        const std::vector<float> want = joined({e.embed({ids}), e.embed({few})});
        for (const char* device : {"emu32", "emu64"}) {
            // Of the long ones, only that with the bias by distance: it has all that crosses a chunk's border.
            if (ids.size() > 100 && (name != "long-jina-bert-v2" || std::string(device) == "emu64")) continue;
            CAPTURE(device);
            CHECK(equal_bits(want, embedder(name, device).embed({ids, few})));
        }
    }
}

TEST_CASE("golden embeddings: scores of pairs, by every kind of head") {
    int n_models = 0;
    const duet_string texts[] = {{"d", 1}, {"dd ab", 5}, {"d", 1}};
    for (const std::string& name : tiny_model_names()) {
        const std::string folder = tiny_model_folder(name);
        if (!file_exists(folder + "/score.f32")) continue;
        n_models++;
        CAPTURE(name);
        embedder e(name);
        CHECK(e.info.is_reranker == 1);
        float got[3], again[1];
        REQUIRE(duet_rerank(e.s, "q", 1, texts, 3, got) == DUET_OK);
        CHECK(std::fabs(got[0] - read_floats(folder + "/score.f32").at(0)) <= 2e-5f);
        CHECK(got[2] == got[0]);
        REQUIRE(duet_rerank(e.s, "q", 1, texts + 1, 1, again) == DUET_OK);
        CHECK(again[0] == got[1]);
        CHECK(got[1] != got[0]);
    }
    CHECK(n_models == 3);
}

TEST_CASE("embeddings: pooling, length 1, and texts longer than the context") {
    embedder e("bert", nullptr, nullptr, 3, 16);
    const size_t dim = (size_t)e.info.embedding_dim;
    std::vector<int32_t> ids;
    for (int32_t i = 0; i < 40; i++) ids.push_back(3 + i * 7 % 90);
    duet_embed_params p = duet_embed_params_default();
    std::vector<float> v = e.embed({{ids[0], ids[1]}}, &p);
    double squares = 0;
    for (const float x : v) squares += (double)x * x;
    CHECK(squares == doctest::Approx(1).epsilon(1e-6));
    p.normalise = 0;
    std::vector<float> row[3];
    for (int32_t kind : {DUET_POOL_MEAN, DUET_POOL_FIRST, DUET_POOL_LAST}) {
        p.pooling = kind;
        row[kind - 1] = e.embed({{ids[0], ids[1]}}, &p);
    }
    for (size_t j = 0; j < dim; j++) CHECK(row[0][j] == (float)(((double)row[1][j] + (double)row[2][j]) / 2));
    p.pooling = 4;
    const int32_t n = 40;
    std::vector<float> out(dim, 7);
    CHECK(duet_embed_ids(e.s, ids.data(), &n, 1, &p, out.data()) == DUET_ERR_ARG);
    p.pooling = DUET_POOL_FILE;
    CHECK(duet_embed_ids(e.s, ids.data(), &n, 1, &p, out.data()) == DUET_ERR_FULL);
    CHECK(std::string(duet_session_error(e.s)) ==
          "text 0: 40 tokens do not fit the context of 16; ask for pieces (cut), or make it larger");
    CHECK(out[0] == 7);
    p.cut = 1;  // pieces of 13, 13 and 14 tokens
    const auto part = [&](int from, int to) {
        return e.embed({std::vector<int32_t>(ids.begin() + from, ids.begin() + to)}, &p);
    };
    const std::vector<float> a = part(0, 13), b = part(13, 26), c = part(26, 40), all = e.embed({ids}, &p);
    for (size_t j = 0; j < dim; j++)
        CHECK(all[j] == doctest::Approx((13 * a[j] + 13 * b[j] + 14 * c[j]) / 40).epsilon(1e-5));
    // Text: every piece begins and ends with the special tokens.
    const std::string text(60, 'z');
    const duet_string long_text{text.data(), text.size()};
    CHECK(duet_embed(e.s, &long_text, 1, nullptr, out.data()) == DUET_ERR_FULL);
    CHECK(duet_embed(e.s, &long_text, 1, &p, out.data()) == DUET_OK);
    CHECK(duet_seq_length(e.s, 0) == 0);
    const int32_t none = 0;
    CHECK(duet_embed_ids(e.s, ids.data(), &none, 1, &p, out.data()) == DUET_ERR_ARG);
    CHECK(duet_embed_ids(e.s, ids.data(), &n, -1, &p, out.data()) == DUET_ERR_ARG);
    CHECK(duet_embed_ids(e.s, ids.data(), &n, 0, &p, nullptr) == DUET_OK);
    ids[2] = 1000;
    CHECK(duet_embed_ids(e.s, ids.data(), &n, 1, &p, out.data()) == DUET_ERR_ARG);
}

TEST_CASE("embeddings: a decoder's texts may be longer than a batch; the vector is the last hidden state") {
    embedder e("qwen3-embedding", nullptr, nullptr, 2, 64), pieces("qwen3-embedding", nullptr, nullptr, 2, 64, 4);
    std::vector<int32_t> ids;
    for (int32_t i = 0; i < 30; i++) ids.push_back(3 + i * 11 % 90);
    duet_embed_params p = duet_embed_params_default();
    p.normalise = 0;
    for (int32_t kind : {DUET_POOL_MEAN, DUET_POOL_FIRST, DUET_POOL_LAST}) {
        p.pooling = kind;
        CHECK(equal_bits(e.embed({ids, {5, 6}}, &p), pieces.embed({ids, {5, 6}}, &p)));
    }
    const std::vector<float> v = e.embed({ids}, &p);
    duet_batch b = duet_batch_default();
    b.n_tok = 30;
    b.token = ids.data();
    REQUIRE(duet_decode(e.s, &b) == DUET_OK);
    CHECK(memcmp(duet_embedding(e.s), v.data(), v.size() * 4) == 0);
}

TEST_CASE("embeddings: an encoder makes no text, takes a text whole, and without a head it scores no pairs") {
    embedder e("bert", nullptr, nullptr, 2, 16);
    CHECK(e.info.is_encoder == 1);
    CHECK(duet_session_max_batch(e.s) == 512);
    CHECK(duet_session_max_batch(embedder("bert", nullptr, nullptr, 1, 100, 5).s) == 100);
    const int32_t ids[] = {4, 5, 6};
    duet_batch b = duet_batch_default();
    b.n_tok = 3;
    b.token = ids;
    REQUIRE(duet_decode(e.s, &b) == DUET_OK);
    CHECK(duet_logits_count(e.s) == 0);
    CHECK(duet_logits(e.s, 0) == nullptr);
    CHECK(duet_embedding(e.s) != nullptr);
    CHECK(duet_decode(e.s, &b) == DUET_ERR_STATE);
    duet_sampler* sampler = nullptr;
    REQUIRE(duet_sampler_create(1, &sampler) == DUET_OK);
    CHECK(duet_generate(e.s, sampler, ids, 3, nullptr, nullptr, nullptr, nullptr) == DUET_ERR_UNSUPPORTED);
    duet_sampler_free(sampler);
    const duet_string text{"d", 1};
    float score = 0;
    CHECK(duet_rerank(e.s, "q", 1, &text, 1, &score) == DUET_ERR_UNSUPPORTED);
    CHECK(duet_rerank(nullptr, "q", 1, &text, 1, &score) == DUET_ERR_ARG);
    duet_session_cancel(e.s);
    CHECK(duet_embed(e.s, &text, 1, nullptr, std::vector<float>(64).data()) == DUET_ERR_CANCELLED);
    CHECK(duet_embed(e.s, &text, 1, nullptr, std::vector<float>(64).data()) == DUET_OK);
}

// The logits behind a few ids.
static std::vector<float> logits_with(const std::string& name, const char* scaling, float scale, float base,
                                      int32_t original, int32_t* n_ctx_train = nullptr,
                                      const char* file = "model.gguf") {
    duet_model_params p = duet_model_params_default();
    p.device = "cpu";
    p.rope_scaling = scaling;
    p.rope_scale = scale;
    p.rope_freq_base = base;
    p.rope_original_ctx = original;
    duet_model* m = nullptr;
    duet_session* s = nullptr;
    REQUIRE(duet_model_open((tiny_model_folder(name) + "/" + file).c_str(), &p, &m) == DUET_OK);
    REQUIRE(duet_session_create(m, nullptr, &s) == DUET_OK);
    const std::vector<int32_t> ids = {1, 30, 40, 50, 60, 70, 80, 90, 33, 44};
    duet_batch b = duet_batch_default();
    b.n_tok = (int32_t)ids.size();
    b.token = ids.data();
    REQUIRE(duet_decode(s, &b) == DUET_OK);
    duet_model_info info{};
    info.struct_size = sizeof info;
    REQUIRE(duet_model_get_info(m, &info) == DUET_OK);
    if (n_ctx_train) *n_ctx_train = info.n_ctx_train;
    const std::vector<float> logits(duet_logits(s, 0), duet_logits(s, 0) + info.n_vocab);
    duet_session_free(s);
    duet_model_free(m);
    return logits;
}

TEST_CASE("rope scaling: what is asked for replaces the file's, with the same bits as a file that says so") {
    const std::vector<float> linear = logits_with("llama-rope-linear", nullptr, 0, 0, 0),
                             yarn = logits_with("llama-rope-yarn", nullptr, 0, 0, 0);
    // The two files differ in their weights, which follow from the model's name; so each is compared with itself.
    CHECK(!equal_bits(linear, logits_with("llama-rope-linear", "none", 0, 0, 0)));
    CHECK(equal_bits(linear, logits_with("llama-rope-linear", "linear", 4, 0, 0)));
    CHECK(equal_bits(yarn, logits_with("llama-rope-yarn", "yarn", 4, 1e4f, 16)));
    CHECK(!equal_bits(yarn, logits_with("llama-rope-yarn", "yarn", 4, 1e4f, 32)));
    CHECK(!equal_bits(yarn, logits_with("llama-rope-yarn", "yarn", 8, 0, 0)));
    CHECK(
        equal_bits(logits_with("llama-rope-yarn", "none", 0, 0, 0), logits_with("llama-rope-yarn", "linear", 1, 0, 0)));
    CHECK(!equal_bits(yarn, logits_with("llama-rope-yarn", nullptr, 0, 5e4f, 0)));
    int32_t n_ctx_train = 0;
    const std::vector<float> scaled = logits_with("llama-gqa", nullptr, 4, 0, 0, &n_ctx_train);
    CHECK(n_ctx_train == 1024);
    CHECK(equal_bits(scaled, logits_with("llama-gqa", "linear", 4, 0, 0)));
    struct refused {
        const char *model, *type;
        float scale;
    };
    for (const auto& [model, type, scale] :
         {refused{"llama-gqa", "cubic", 2.0f}, {"llama-gqa", "yarn", -2.0f}, {"gpt2", "yarn", 2.0f}}) {
        duet_model_params p = duet_model_params_default();
        p.rope_scaling = type;
        p.rope_scale = scale;
        duet_model* m = nullptr;
        CHECK(duet_model_open((tiny_model_folder(model) + "/model.gguf").c_str(), &p, &m) ==
              (std::string(model) == "gpt2" ? DUET_ERR_UNSUPPORTED : DUET_ERR_ARG));
        duet_model_free(m);
    }
}

// Copies the tensors whose names do not begin with `but`; "": all.
static void copy_tensors(const duet_file* f, duet_writer* w, std::string_view but) {
    for (int64_t i = 0; i < duet_file_n_tensors(f); i++) {
        duet_tensor t;
        REQUIRE(duet_file_tensor(f, i, &t) == DUET_OK);
        const std::string name(t.name.data, t.name.n_bytes);
        if (!but.empty() && name.starts_with(but)) continue;
        REQUIRE(duet_writer_add_tensor(w, name.c_str(), t.type_id, t.n_dims, t.dims, t.data) == DUET_OK);
    }
}

// Writes changed.gguf beside a model: the same with other rope keys.
static void change_rope(const std::string& name, const std::string& arch, const char* type, float factor,
                        int32_t original) {
    const std::string folder = tiny_model_folder(name), rope = arch + ".rope.scaling.";
    duet_file* f = nullptr;
    duet_writer* w = nullptr;
    REQUIRE(duet_file_open((folder + "/model.gguf").c_str(), &f) == DUET_OK);
    REQUIRE(duet_writer_create(&w) == DUET_OK);
    REQUIRE(duet_writer_set_string(w, (rope + "type").c_str(), type, strlen(type)) == DUET_OK);
    REQUIRE(duet_writer_set_float(w, (rope + "factor").c_str(), DUET_KV_F32, factor) == DUET_OK);
    REQUIRE(duet_writer_set_int(w, (rope + "original_context_length").c_str(), DUET_KV_U32, original) == DUET_OK);
    REQUIRE(duet_writer_copy_kv(w, f) == DUET_OK);
    copy_tensors(f, w, "");
    REQUIRE(duet_writer_save(w, (folder + "/changed.gguf").c_str()) == DUET_OK);
    duet_writer_free(w);
    duet_file_free(f);
}

TEST_CASE("rope scaling: what is asked for reaches the scale of attention, its temperature and the long factors") {
    struct row {
        std::string name, arch, type;
        float factor;
        int32_t original;
    };
    for (const row& r : {row{"mistral4", "mistral4", "yarn", 4, 64}, row{"deepseek2", "deepseek2", "yarn", 2, 16},
                         row{"mistral3", "mistral3", "yarn", 8, 4}, row{"phi3-longrope-long", "phi3", "yarn", 4, 128},
                         row{"phi3-longrope-long", "phi3", "linear", 4, 128}}) {
        CAPTURE(r.name);
        CAPTURE(r.type);
        change_rope(r.name, r.arch, r.type.c_str(), r.factor, r.original);
        const std::vector<float> asked = logits_with(r.name, r.type.c_str(), r.factor, 0, r.original);
        CHECK(equal_bits(asked, logits_with(r.name, nullptr, 0, 0, 0, nullptr, "changed.gguf")));
        CHECK(!equal_bits(asked, logits_with(r.name, nullptr, 0, 0, 0)));
    }
    CHECK(equal_bits(logits_with("phi3-longrope-long", nullptr, 4, 0, 0),
                     logits_with("phi3-longrope-long", "linear", 4, 0, 0)));
}

TEST_CASE("embeddings: a score that is not finite is an error that names the text") {
    const std::string folder = tiny_model_folder("bert-reranker"), path = folder + "/not-finite.gguf";
    for (const float bias : {NAN, INFINITY}) {
        duet_file* f = nullptr;
        duet_writer* w = nullptr;
        REQUIRE(duet_file_open((folder + "/model.gguf").c_str(), &f) == DUET_OK);
        REQUIRE(duet_writer_create(&w) == DUET_OK);
        REQUIRE(duet_writer_copy_kv(w, f) == DUET_OK);
        copy_tensors(f, w, "cls.output.bias");
        const int64_t one = 1;
        REQUIRE(duet_writer_add_tensor(w, "cls.output.bias", 0, 1, &one, &bias) == DUET_OK);
        REQUIRE(duet_writer_save(w, path.c_str()) == DUET_OK);
        duet_writer_free(w);
        duet_file_free(f);
        embedder e("bert-reranker", nullptr, nullptr, 2, 0, 512, DUET_CACHE_F32, 0, "not-finite.gguf");
        const duet_string texts[] = {{"d", 1}, {"dd", 2}};
        float scores[2];
        CHECK(duet_rerank(e.s, "q", 1, texts, 2, scores) == DUET_ERR_NAN);
        CHECK(std::string(duet_session_error(e.s)) == "text 0: the score is NaN or infinite");
    }
}

TEST_CASE("embeddings: a text longer than the cache is refused before anything is computed, or cut to fit") {
    for (const char* name : {"bert", "qwen3"}) {
        CAPTURE(name);
        embedder e(name, nullptr, nullptr, 2, 120, 512, DUET_CACHE_F32, 64);
        std::vector<int32_t> ids;
        for (int32_t i = 0; i < 103; i++) ids.push_back(3 + i * 7 % 90);
        const int32_t n_ids[] = {3, 100};
        std::vector<float> out(2 * (size_t)e.info.embedding_dim);
        CHECK(duet_embed_ids(e.s, ids.data(), n_ids, 2, nullptr, out.data()) == DUET_ERR_FULL);
        CHECK(std::string(duet_session_error(e.s)) ==
              "text 1: 100 tokens do not fit the cache (cache_tokens) of 64; ask for pieces (cut), or make it larger");
        duet_embed_params p = duet_embed_params_default();
        p.cut = 1;
        CHECK(duet_embed_ids(e.s, ids.data(), n_ids, 2, &p, out.data()) == DUET_OK);
    }
}

TEST_CASE("embeddings: a decoder without a head is asked by its logits of yes and no") {
    const std::string folder = tiny_model_folder("qwen3-reranker"), path = folder + "/yes-no.gguf";
    duet_file* f = nullptr;
    duet_writer* w = nullptr;
    REQUIRE(duet_file_open((folder + "/model.gguf").c_str(), &f) == DUET_OK);
    REQUIRE(duet_writer_create(&w) == DUET_OK);
    const int64_t i_tokens = duet_file_find_kv(f, "tokenizer.ggml.tokens");
    duet_kv kv;
    REQUIRE(duet_file_kv(f, i_tokens, &kv) == DUET_OK);
    std::vector<duet_string> tokens(kv.n_values);
    std::vector<int32_t> types(kv.n_values, 1);
    for (uint64_t i = 0; i < kv.n_values; i++) REQUIRE(duet_file_get_string(f, i_tokens, i, &tokens[i]) == DUET_OK);
    tokens[90] = {"yes", 3}, tokens[91] = {"no", 2};
    types[0] = 2, types[1] = types[2] = 3, types[90] = types[91] = 4;  // user-defined: whole words
    REQUIRE(duet_writer_set_strings(w, "tokenizer.ggml.tokens", tokens.data(), tokens.size()) == DUET_OK);
    REQUIRE(duet_writer_set_array(w, "tokenizer.ggml.token_type", DUET_KV_I32, types.data(), types.size()) == DUET_OK);
    REQUIRE(duet_writer_copy_kv(w, f) == DUET_OK);
    copy_tensors(f, w, "cls.");
    REQUIRE(duet_writer_save(w, path.c_str()) == DUET_OK);
    duet_writer_free(w);
    duet_file_free(f);
    duet_model* m = nullptr;
    duet_session* s = nullptr;
    REQUIRE(duet_model_open(path.c_str(), nullptr, &m) == DUET_OK);
    duet_session_params of_two = duet_session_params_default();
    of_two.n_seqs = 2;
    REQUIRE(duet_session_create(m, &of_two, &s) == DUET_OK);
    int32_t ids[8];
    size_t n_ids = 0;
    REQUIRE(duet_tokenize(m, "qd", 2, DUET_TOKENIZE_ADD_BOS, ids, 8, &n_ids) == DUET_OK);
    duet_batch b = duet_batch_default();
    b.n_tok = (int32_t)n_ids;
    b.token = ids;
    REQUIRE(duet_decode(s, &b) == DUET_OK);
    const double yes = (double)duet_logits(s, 0)[90], no = (double)duet_logits(s, 0)[91];
    const duet_string texts[] = {{"abc", 3}, {"d", 1}};
    float scores[2];
    REQUIRE(duet_seq_copy(s, 0, 1) == DUET_OK);
    REQUIRE(duet_rerank(s, "q", 1, texts, 2, scores) == DUET_OK);
    for (int seq : {0, 1}) CHECK(duet_seq_length(s, seq) == 0);
    CHECK((double)scores[1] == doctest::Approx(1 / (1 + std::exp(no - yes))).epsilon(1e-5));
    CHECK(scores[0] != scores[1]);
    duet_session_free(s);
    duet_model_free(m);
}
