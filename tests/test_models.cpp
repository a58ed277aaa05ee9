// tests/test_models.cpp: every family against its golden case (logits of an independent runtime, checked in f64); the
// same bits for every split, instruction set and thread count; recurrent state and windows through sessions; the
// contract of experts and states; models whose hyper-parameters contradict each other.
#include "doctest.h"
#include "../quant/activate.h"
#include "../models/gguf.h"
#include "../cpu/kernels.h"
#include "../runtime.h"
#include "metrics.h"
#include "test_data.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <random>
#include <set>
#include <sstream>
#include <thread>
#include <unistd.h>

using namespace duet;

namespace {

struct golden_case {
    std::string name, folder;
    std::vector<int32_t> ids;
    std::vector<float> logits;  // logits of the last rows
    int n_ctx = 256;
    double limit = 1e-3;  // largest allowed difference from those logits
};

golden_case read_folder(const std::string& folder) {
    const std::string name = std::filesystem::path(folder).filename().string();
    golden_case c;
    c.name = name;
    c.folder = folder;
    c.ids = read_ids(c.folder + "/tokens.json");
    c.logits = read_floats(c.folder + "/logits.f32");
    if (name.starts_with("long-")) c.n_ctx = 1024, c.limit = 2e-3;
    if (folder == tiny_model_folder(name)) c.limit = 1e-4;     // half of the limit is for the rounding of models.txt
    if (name == "gpt2" || name == "starcoder") c.n_ctx = 128;  // their learned positions
    return c;
}

golden_case read_case(const std::string& name) { return read_folder(test_data_path("golden/" + name)); }

struct golden_model {
    duet_model* m = nullptr;
    duet_status status;
    std::string error;
    std::string told;  // warnings
    explicit golden_model(const std::string& folder, const char* isa = nullptr, int threads = 1, bool fast = false,
                          const char* device = nullptr) {
        duet_model_params p = duet_model_params_default();
        p.cpu_isa = isa;
        p.fast = fast;
        p.log_user = &told;
        p.log = [](void* user, int32_t level, const char* text) {
            if (level == DUET_LOG_WARN) *(std::string*)user += text;
        };
        if (!isa) p.device = device ? device : test_device();
        p.n_threads = threads;
        status = duet_model_open((folder + "/model.gguf").c_str(), &p, &m);
        error = duet_model_error(m);
    }
    golden_model(const golden_model&) = delete;
    ~golden_model() { duet_model_free(m); }
    int n_vocab() const {
        duet_model_info info{};
        info.struct_size = sizeof info;
        REQUIRE(duet_model_get_info(m, &info) == DUET_OK);
        return info.n_vocab;
    }
};

struct golden_session {
    duet_session* s = nullptr;
    explicit golden_session(const golden_model& m, int n_ctx, int n_seqs = 1, int max_batch = 512,
                            int cache = DUET_CACHE_F32) {
        duet_session_params p = duet_session_params_default();
        p.n_ctx = n_ctx;
        p.n_seqs = n_seqs;
        p.max_batch = max_batch;
        p.cache_type = cache;
        const duet_status st = duet_session_create(m.m, &p, &s);
        INFO(std::string(duet_session_error(s)));
        REQUIRE(st == DUET_OK);
    }
    golden_session(const golden_session&) = delete;
    ~golden_session() { duet_session_free(s); }
};

// Feeds ids to a sequence: `first` of them in one call, then `step` at a time. Returns the logits of all.
std::vector<float> feed(const golden_model& m, duet_session* s, const std::vector<int32_t>& ids, size_t first,
                        size_t step, int seq = 0) {
    std::vector<float> out;
    const size_t v = (size_t)m.n_vocab();
    for (size_t at = 0; at < ids.size();) {
        const size_t n = std::min(ids.size() - at, at == 0 ? first : step);
        const std::vector<uint8_t> want(n, 1);
        const std::vector<int32_t> seqs(n, seq);
        const duet_batch b{sizeof(duet_batch), (int32_t)n, ids.data() + at, nullptr, seqs.data(), want.data()};
        const duet_status st = duet_decode(s, &b);
        INFO(std::string(duet_session_error(s)));
        REQUIRE(st == DUET_OK);
        for (size_t i = 0; i < n; i++)
            out.insert(out.end(), duet_logits(s, (int32_t)i), duet_logits(s, (int32_t)i) + v);
        at += n;
    }
    return out;
}

bool equal_bits(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && memcmp(a.data(), b.data(), a.size() * 4) == 0;
}

}  // namespace

TEST_CASE("golden cases: logits of every family, in one piece and in chunks, on every instruction set") {
    int n_skipped = 0;
    std::string unknown;
    for (const std::string& folder : golden_folders()) {
        const golden_case c = read_folder(folder);
        const std::string& name = c.name;
        CAPTURE(folder);
        if (c.logits.empty() && file_exists(folder + "/pooled.f32")) continue;  // tests/test_embed.cpp
        const golden_model m(c.folder);
        if (m.status == DUET_ERR_UNSUPPORTED && m.error.find("no code for '") != std::string::npos) {
            n_skipped++;
            unknown += " " + name;
            continue;
        }
        REQUIRE_MESSAGE(m.status == DUET_OK, m.error);
        const std::vector<float> all = feed(m, golden_session(m, c.n_ctx).s, c.ids, 512, 512);
        REQUIRE(all.size() >= c.logits.size());
        REQUIRE(all.size() == c.ids.size() * (size_t)m.n_vocab());
        const float* got = all.data() + all.size() - c.logits.size();
        const std::string native = c.folder + "/logits_llamacpp_native.f32";
        if (file_exists(native) && name != "q-F16") {
            // activations of 8 bits: no further from the exact logits than llama.cpp
            CHECK(rms_difference(c.logits.data(), got, c.logits.size()) <=
                  rms_difference(c.logits.data(), read_floats(native).data(), c.logits.size()));
        } else {
            CHECK(max_difference(c.logits.data(), got, c.logits.size()) <= c.limit);
        }
        const bool is_long = c.ids.size() > 100;
        CHECK(equal_bits(all, feed(m, golden_session(m, c.n_ctx).s, c.ids, 7, 7)));
        if (!is_long) CHECK(equal_bits(all, feed(m, golden_session(m, c.n_ctx).s, c.ids, 1, 1)));
        if (name.starts_with("chunked-")) CHECK(equal_bits(all, feed(m, golden_session(m, c.n_ctx).s, c.ids, 33, 1)));
        for (int i = 0; const cpu_kernels* k = cpu_kernels_at(i); i++) {
            if (is_long && std::string(k->name) == "scalar") continue;
            const golden_model other(c.folder, k->name, 2);
            CAPTURE(k->name);
            CHECK(equal_bits(all, feed(other, golden_session(other, c.n_ctx).s, c.ids, 512, 512)));
        }
    }
    if (n_skipped) say_skipped("golden cases", n_skipped, "no code for the architectures of" + unknown);
}

TEST_CASE("golden cases: every family of arch.def has a tiny model with logits") {
    std::set<std::string> proved;
    for (const std::string& name : tiny_model_names()) {
        const golden_case c = read_folder(tiny_model_folder(name));
        const golden_model m(c.folder);
        duet_string arch{nullptr, 0};
        const duet_file* file = duet_model_file(m.m);
        REQUIRE(duet_file_get_string(file, duet_file_find_kv(file, "general.architecture"), 0, &arch) == DUET_OK);
        if (!c.logits.empty() || file_exists(c.folder + "/pooled.f32"))
            proved.insert(std::string(arch.data, arch.n_bytes));
    }
    std::istringstream names(
#define ARCH(names, describe) names " "
#include "../models/arch.def"
    );
    for (std::string name; names >> name;) CHECK_MESSAGE(proved.count(name) == 1, name);
}

// Logits of the case's ids by a changed model; empty where it does not open.
std::vector<float> changed_logits(const std::string& name, const std::vector<std::string>& changes,
                                  std::string* error = nullptr) {
    const golden_model m(changed_model_folder(name, changes));
    if (error) *error = m.error;
    if (m.status != DUET_OK) return {};
    return feed(m, golden_session(m, 64).s, read_folder(tiny_model_folder(name)).ids, 64, 1);
}

TEST_CASE("families: what a key means that a file may lack or change") {
    // gemma3 without a window sees all everywhere (Rnj-1); exaone4 of 64 layers has the 32B model's window
    const std::vector<float> all_full =
        changed_logits("gemma3", {"- .attention.sliding_window", "u .attention.sliding_window_pattern 1"});
    CHECK(!all_full.empty());
    CHECK(equal_bits(changed_logits("gemma3", {"- .attention.sliding_window"}), all_full));
    CHECK(equal_bits(changed_logits("gemma3", {"u .attention.sliding_window 0"}), all_full));
    CHECK(!equal_bits(changed_logits("gemma3", {"u .attention.sliding_window 4096"}), all_full));
    CHECK(equal_bits(changed_logits("exaone4-64layers-swa", {"- .attention.sliding_window"}),
                     changed_logits("exaone4-64layers-swa", {"u .attention.sliding_window 4096"})));
    // which layers have the window: the family's period, the file's, or a flag for each block
    const struct {
        const char *model, *period, *flags, *other;
    } patterns[] = {{"gemma2", "2", "1 0 1", "0 1 0"},
                    {"gemma3", "6", "1 1 1 1 1 0", "1 0 1 1 1 1"},
                    {"gpt-oss", "2", "1 0", "0 1"},
                    {"cohere2", "4", "1 1 1 0", "1 0 1 1"},
                    {"olmo3", "4", "1 1 1 0", "0 1 1 1"}};
    for (const auto& p : patterns) {
        INFO(p.model);
        const std::string u = "u .attention.sliding_window_pattern ", b = "B .attention.sliding_window_pattern ";
        const std::vector<float> usual = changed_logits(p.model, {});
        REQUIRE(!usual.empty());
        CHECK(equal_bits(changed_logits(p.model, {u + p.period}), usual));
        CHECK(equal_bits(changed_logits(p.model, {b + p.flags}), usual));
        const std::vector<float> other = changed_logits(p.model, {b + p.other});
        CHECK(!other.empty());
        CHECK(!equal_bits(other, usual));
    }
    // The array may tell nothing of the blocks behind the 64, which predict further tokens and are not run.
    std::string flags = "B .attention.sliding_window_pattern";
    for (int i = 0; i < 64; i++) flags += i % 4 < 3 ? " 1" : " 0";
    const std::vector<float> alone = changed_logits("exaone4-64layers-swa", {});
    REQUIRE(!alone.empty());
    for (const std::string& shape : {flags, flags + " 1"})
        CHECK(equal_bits(
            changed_logits("exaone4-64layers-swa", {shape, "u .block_count 65", "u .nextn_predict_layers 1"}), alone));
    // The magnitude in files of OLMo 3 is that of YaRN.
    CHECK(!equal_bits(changed_logits("olmo3", {"- .rope.scaling.attn_factor"}), changed_logits("olmo3", {})));
    const std::vector<float> plain = changed_logits("olmo3", {"s .rope.scaling.type none"});
    REQUIRE(!plain.empty());
    CHECK(equal_bits(changed_logits("olmo3", {"s .rope.scaling.type none", "- .rope.scaling.attn_factor"}), plain));
    // Whether tokens see later ones is the file's to say in the families of Llama and Qwen, but not with recurrent
    // layers or windows. The vector of an encoder needs no output matrix, and none is missed.
    std::string error;
    for (const char* name : {"lfm2", "qwen35", "gemma3", "granite"}) {
        CHECK(changed_logits(name, {"b .attention.causal 0"}, &error).empty());
        CHECK_MESSAGE(error.find("attention.causal: want true, got false") != std::string::npos, error);
    }
    CHECK(changed_logits("bert", {"b .attention.causal 1"}, &error).empty());
    CHECK_MESSAGE(error.find("attention.causal: want false, got true") != std::string::npos, error);
    for (const char* act : {"relu", "quick_gelu"}) {
        const golden_model other(changed_model_folder("modern-bert", {std::string("s .hidden_activation ") + act}));
        CHECK(other.status == DUET_ERR_UNSUPPORTED);
        CHECK_MESSAGE(other.error.find(std::string("want gelu or silu, got ") + act) != std::string::npos, other.error);
    }
    for (const char* name : {"llama-gqa", "qwen3"}) {
        const golden_model both(changed_model_folder(name, {"b .attention.causal 0"}));
        CHECK_MESSAGE(both.status == DUET_OK, both.error);
        duet_model_info info{};
        info.struct_size = sizeof info;
        REQUIRE(duet_model_get_info(both.m, &info) == DUET_OK);
        CHECK(info.is_encoder == 1);
    }
    CHECK(equal_bits(
        changed_logits("nemotron_h", {"- .attention.layer_norm_rms_epsilon", "f .attention.layer_norm_epsilon 1e-05"}),
        changed_logits("nemotron_h", {})));
    // The first files of MiniCPM lack the scales of its configuration: 12, 1.4 / sqrt(layers) and width / 256.
    const std::vector<std::string> told = {"f .embedding_scale 12", "f .residual_scale 0.8082903623580933",
                                           "f .logit_scale 0.25"};
    CHECK(equal_bits(changed_logits("minicpm", {"- .embedding_scale", "- .residual_scale", "- .logit_scale"}),
                     changed_logits("minicpm", told)));
    CHECK(!equal_bits(changed_logits("minicpm", told), changed_logits("minicpm", {})));
    // A dense model's file may tell one expert, with or without its use. Only blocks without keys may lack heads.
    const std::vector<std::string> one = {"u .expert_count 1"}, used = {"u .expert_count 1", "u .expert_used_count 1"};
    for (const auto& change : {one, used})
        CHECK(equal_bits(changed_logits("hunyuan-dense", change), changed_logits("hunyuan-dense", {})));
    CHECK(changed_logits("hunyuan-dense", {"u .expert_count 2"}, &error).empty());
    CHECK_MESSAGE(error.find("expert_used_count: want 1 to expert_count 2, got 0") != std::string::npos, error);
    CHECK(changed_logits("deci", {"U .attention.head_count 0 0 4 0 4"}, &error).empty());
    CHECK_MESSAGE(error.find("attention.head_count_kv: layer 1: want a divisor of 0 heads") != std::string::npos,
                  error);
    // where a bias chooses the experts of deepseek2, their scores are sigmoids though no key says so (GLM-4.7 Flash)
    const std::vector<float> sigmoid = changed_logits("deepseek2", {});
    CHECK(!sigmoid.empty());
    for (const char* change : {"- .expert_gating_func", "u .expert_gating_func 0"})
        CHECK(equal_bits(changed_logits("deepseek2", {change}), sigmoid));
    CHECK(!equal_bits(changed_logits("deepseek2", {"u .expert_gating_func 1"}), sigmoid));
    // YaRN without its multiplier scales angles and scores by 1 + 0.1 ln 4; attn_factor, which is read with it, too
    const std::string none = "- .rope.scaling.yarn_log_multiplier", tiny = "f .rope.scaling.yarn_log_multiplier 1e-12",
                      by_4 = "f .rope.scaling.attn_factor 1.1386294361119891";
    const std::vector<float> got = changed_logits("deepseek2", {none}),
                             want = changed_logits("deepseek2", {tiny, by_4}),
                             other = changed_logits("deepseek2", {tiny});
    REQUIRE(got.size() == want.size());
    REQUIRE(got.size() == other.size());
    double worst = 0, apart = 0;
    for (size_t i = 0; i < got.size(); i++) {
        worst = std::max(worst, std::fabs((double)got[i] - want[i]));
        apart = std::max(apart, std::fabs((double)got[i] - other[i]));
    }
    CHECK(worst < 1e-4);
    CHECK(apart > 1e-2);
    CHECK(!equal_bits(changed_logits("mistral4", {by_4}), changed_logits("mistral4", {})));
}

TEST_CASE("tokens that the file suppresses have the logit -inf, in every row, and are never generated") {
    const std::vector<float> plain = changed_logits("gemma4", {});
    REQUIRE(!plain.empty());
    const std::vector<int32_t> ids = read_folder(tiny_model_folder("gemma4")).ids;
    const size_t n_vocab = plain.size() / ids.size();
    // The prompt ends where neither of the two best tokens ends the text.
    size_t n_prompt = 0;
    int32_t best = 0, second = 0;
    while (std::min(best, second) < 3) {
        REQUIRE(n_prompt < ids.size());
        std::vector<float> row(plain.data() + n_prompt * n_vocab, plain.data() + (n_prompt + 1) * n_vocab);
        n_prompt++;
        best = (int32_t)(std::max_element(row.begin(), row.end()) - row.begin());
        row[(size_t)best] = row[7] = -INFINITY;
        second = (int32_t)(std::max_element(row.begin(), row.end()) - row.begin());
    }
    const std::string line = "U tokenizer.ggml.suppress_tokens 7 " + std::to_string(best),
                      folder = changed_model_folder("gemma4", {line});
    for (const char* device : {"cpu", "emu32"}) {
        const golden_model m(folder, nullptr, 1, false, device);
        REQUIRE_MESSAGE(m.status == DUET_OK, m.error);
        for (const int max_batch : {64, 5}) {  // one piece, and rows that are kept from several
            const std::vector<float> got = feed(m, golden_session(m, 64, 1, max_batch).s, ids, ids.size(), 1);
            REQUIRE(got.size() == plain.size());
            std::vector<float> want = plain;
            for (size_t row = 0; row < want.size(); row += n_vocab)
                want[row + 7] = want[row + (size_t)best] = -INFINITY;
            CHECK(equal_bits(got, want));
        }
        golden_session g(m, 64);
        duet_sampler* greedy = nullptr;
        REQUIRE(duet_sampler_create(1, &greedy) == DUET_OK);
        REQUIRE(duet_sampler_set(greedy, "temp", 0) == DUET_OK);
        duet_generation* generation = nullptr;
        REQUIRE(duet_generate_begin(g.s, greedy, ids.data(), n_prompt, nullptr, &generation) == DUET_OK);
        duet_token_event e{};
        e.struct_size = sizeof e;
        e.id = e.stop_reason = -1;  // none yet
        while (e.id < 0 && e.stop_reason == DUET_STOP_NONE) REQUIRE(duet_generate_next(generation, &e) == DUET_OK);
        CHECK(e.id == second);
        duet_generation_free(generation);
        duet_sampler_free(greedy);
    }
}

TEST_CASE("families: a gate of another width than what it gates is refused") {
    std::string error;
    for (const char* name : {"qwen35", "qwen35moe", "qwen3next"}) {
        const std::vector<float> got =
            changed_logits(name,
                           {"u .attention.key_length 256", "u .attention.value_length 1", "w attn_q.weight 64 2048",
                            "w attn_k.weight 64 512", "w attn_v.weight 64 2", "w attn_q_norm.weight 256",
                            "w attn_k_norm.weight 256", "w attn_output.weight 4 64"},
                           &error);
        INFO(error);
        CHECK(got.empty());
        CHECK(error.find("value_length: want key_length 256, got 1") != std::string::npos);
    }
}

// Writes the model's file as older converters did: keys and values of each head are joined in attn_kv_b, and no key
// describes the compressed cache.
void write_with_joined_kv(const std::string& from, const std::string& to) {
    gguf_file f;
    gguf_writer w;
    error_text err;
    REQUIRE(f.open(from.c_str(), err) == DUET_OK);
    uint32_t d_k = 0, d_v = 0;
    REQUIRE(f.get_u32("deepseek2.attention.key_length_mla", true, 1, 512, &d_k, err) == DUET_OK);
    REQUIRE(f.get_u32("deepseek2.attention.value_length_mla", true, 1, 512, &d_v, err) == DUET_OK);
    w.set_int("deepseek2.attention.key_length", DUET_KV_U32, d_k, err);
    w.set_int("deepseek2.attention.value_length", DUET_KV_U32, d_v, err);
    w.set_int("deepseek2.attention.head_count_kv", DUET_KV_U32, 4, err);
    std::erase_if(f.kvs, [](const gguf_kv& kv) { return kv.key.ends_with("_mla"); });
    REQUIRE(w.copy_kv(f, err) == DUET_OK);
    std::vector<std::vector<float>> joined;
    for (const gguf_tensor& t : f.tensors) {
        std::string name(t.name);
        if (name.ends_with("attn_v_b.weight")) continue;
        if (!name.ends_with("attn_k_b.weight")) {
            REQUIRE(w.add_tensor(name, t.type, t.n_dims, t.dims, t.data, err) == DUET_OK);
            continue;
        }
        name.replace(name.size() - 10, 10, "v_b.weight");
        const gguf_tensor* v = f.find_tensor(name);
        REQUIRE(v);
        const int64_t plain = t.dims[0], rank = t.dims[1], heads = t.dims[2], n_v = v->dims[1];
        std::vector<float>& both = joined.emplace_back();
        for (int64_t h = 0; h < heads; h++) {
            for (int64_t i = 0; i < plain; i++)
                for (int64_t c = 0; c < rank; c++) both.push_back(((const float*)t.data)[(h * rank + c) * plain + i]);
            both.insert(both.end(), (const float*)v->data + h * n_v * rank,
                        (const float*)v->data + (h + 1) * n_v * rank);
        }
        name.replace(name.size() - 10, 10, "kv_b.weight");
        const int64_t dims[] = {rank, heads * (plain + n_v)};
        REQUIRE(w.add_tensor(name, 0, 2, dims, both.data(), err) == DUET_OK);
    }
    REQUIRE_MESSAGE(w.save(to.c_str(), err) == DUET_OK, err.text);
}

TEST_CASE("keys and values joined in attn_kv_b, as older files have them, give the bits of the split form") {
    const golden_case c = read_case("deepseek2");
    if (c.ids.empty()) return say_skipped("attn_kv_b", 1, "no " + c.folder);
    const auto folder = std::filesystem::temp_directory_path() / ("duet-joined-" + std::to_string(getpid()));
    std::filesystem::create_directory(folder);
    write_with_joined_kv(c.folder + "/model.gguf", (folder / "model.gguf").string());
    {
        const golden_model split(c.folder), joined(folder.string());
        REQUIRE_MESSAGE(joined.status == DUET_OK, joined.error);
        CHECK(equal_bits(feed(split, golden_session(split, 256).s, c.ids, 7, 5),
                         feed(joined, golden_session(joined, 256).s, c.ids, 512, 512)));
    }
    std::filesystem::remove_all(folder);
}

// A folder for a test's files. It is removed after what was declared behind it: an open file keeps a folder on Windows.
struct test_folder {
    const std::filesystem::path path;
    explicit test_folder(const char* name)
        : path(std::filesystem::temp_directory_path() / (name + std::to_string(getpid()))) {
        std::filesystem::create_directories(path);
    }
    ~test_folder() {
        std::error_code ignored;
        std::filesystem::remove_all(path, ignored);
    }
};

// mixed: quantized matmuls before and after one by BF16 that reads the same input
void check_fast(const golden_case& c, bool is_mixed) {
    const test_folder made("duet-fast-");
    const std::filesystem::path& folder = made.path;
    {
        gguf_file f;
        gguf_writer w;
        error_text err;
        REQUIRE(f.open((c.folder + "/model.gguf").c_str(), err) == DUET_OK);
        REQUIRE(w.copy_kv(f, err) == DUET_OK);
        std::vector<std::vector<uint16_t>> rounded;
        std::vector<float> x;
        for (const gguf_tensor& t : f.tensors) {
            const std::string name(t.name);
            const int32_t type = t.n_dims < 2 ? t.type
                                 : is_mixed && (name.find("attn_q.") != name.npos || name.find("attn_v.") != name.npos)
                                     ? 2
                                     : 30;
            if (t.n_dims > 1) {
                rounded.emplace_back(t.n_elems());
                x.resize(t.n_elems());
                REQUIRE(duet_dequantize_row(t.type, t.data, (int64_t)x.size(), x.data()) == DUET_OK);
                REQUIRE(duet_quantize_row(type, x.data(), (int64_t)x.size(), nullptr, rounded.back().data()) ==
                        DUET_OK);
            }
            REQUIRE(w.add_tensor(name, type, t.n_dims, t.dims,
                                 t.n_dims > 1 ? (const void*)rounded.back().data() : t.data, err) == DUET_OK);
        }
        REQUIRE_MESSAGE(w.save((folder / "model.gguf").string().c_str(), err) == DUET_OK, err.text);
    }
    const auto device_of = [](const golden_model& m) {
        duet_model_info info{};
        info.struct_size = sizeof info;
        REQUIRE(duet_model_get_info(m.m, &info) == DUET_OK);
        return std::string(info.device);
    };
    const golden_model exact(folder.string(), "auto");
    const std::vector<float> want = feed(exact, golden_session(exact, 256).s, c.ids, 512, 512);
    for (int i = 0; const cpu_kernels* k = cpu_kernels_at(i); i++) {
        const golden_model one(folder.string(), k->name, 1, true), three(folder.string(), k->name, 3, true),
            f16(c.folder, k->name, 1, true);
        const bool has_fast = find_cpu_kernels(k->name, true)->rounded_types != 0;
        CAPTURE(k->name);
        const std::vector<float> all = feed(one, golden_session(one, 256).s, c.ids, 512, 512);
        CHECK(equal_bits(all, feed(three, golden_session(three, 256).s, c.ids, 512, 512)));
        CHECK(f16.told.find("mode fast has no effect: no matmul by BF16") == (has_fast ? 0 : std::string::npos));
        if (!has_fast) {
            CHECK(one.told.find("mode fast has no effect: cpu isa ") == 0);
            CHECK(equal_bits(all, want));
            continue;
        }
        CHECK(one.told == "");
        CHECK(device_of(one).ends_with(", fast"));
        CHECK(equal_bits(all, feed(one, golden_session(one, 256).s, c.ids, 20,
                                   14)));  // all batches have as many tokens as fast is used for
        double squares = 0;
        for (size_t j = 0; j < all.size(); j++) squares += ((double)all[j] - want[j]) * ((double)all[j] - want[j]);
        const double rms = std::sqrt(squares / (double)all.size());
        CHECK(rms > 1e-3);
        // llama.cpp's own on the large file in BF16: 0.0123; mixed, codes that round the other way add to it
        CHECK(rms < (is_mixed ? 0.03 : c.limit < 1e-3 ? 0.025 : 0.0135));
        // what fast has computed is not taken up by an exact session
        golden_session from(one, 256), to(exact, 256), back(three, 256);
        feed(one, from.s, c.ids, 512, 512);
        uint64_t n_bytes = 0;
        REQUIRE(duet_seq_save(from.s, 0, nullptr, 0, &n_bytes) == DUET_OK);
        std::vector<uint8_t> saved(n_bytes);
        REQUIRE(duet_seq_save(from.s, 0, saved.data(), n_bytes, &n_bytes) == DUET_OK);
        CHECK(duet_seq_load(to.s, 0, saved.data(), n_bytes) == DUET_ERR_FORMAT);
        CHECK(duet_seq_load(back.s, 0, saved.data(), n_bytes) == DUET_OK);
    }
}

TEST_CASE("mode fast: a model in BF16 stays near the exact logits, with the same bits for any threads and batches; "
          "else it is told and exact") {
    const golden_case c = read_case("q-F16");
    if (c.ids.empty()) return say_skipped("mode fast", 1, "no " + c.folder);
    for (const bool is_mixed : {false, true}) check_fast(c, is_mixed);
}

struct seen_inputs {
    struct tensor {
        std::vector<int> counts;
        double sum = 0;
        int64_t n_in = 0;
    };
    std::map<std::string, tensor> tensors;
    static void add(void* user, const char* name, int32_t i_mat, int32_t n_mats, const float* x, int64_t n_in) {
        tensor& t = ((seen_inputs*)user)->tensors[name];
        t.counts.resize((size_t)n_mats);
        t.counts[(size_t)i_mat]++;
        t.n_in = n_in;
        for (int64_t i = 0; i < n_in; i++) t.sum += (double)x[i] * x[i];
    }
};

TEST_CASE("inputs of matmuls are told: each row once, experts' rows to the experts that were chosen, same logits") {
    const golden_case c = read_case("mixtral");
    if (c.ids.empty()) return say_skipped("inputs of matmuls", 1, "no " + c.folder);
    const golden_model m(c.folder, "auto");  // on the CPU: no device tells
    duet_session_params p = duet_session_params_default();
    seen_inputs seen;
    p.n_ctx = 256;
    p.cache_type = DUET_CACHE_F32;
    p.inputs = seen_inputs::add;
    p.inputs_user = &seen;
    duet_session* s = nullptr;
    REQUIRE(duet_session_create(m.m, &p, &s) == DUET_OK);
    CHECK(equal_bits(feed(m, s, c.ids, 9, 4), feed(m, golden_session(m, 256).s, c.ids, 512, 512)));
    const int n_tok = (int)c.ids.size();
    int n_experts_tensors = 0;
    for (const auto& [name, t] : seen.tensors) {
        CAPTURE(name);
        const duet_file* file = duet_model_file(m.m);
        duet_tensor info{};
        REQUIRE(duet_file_tensor(file, duet_file_find_tensor(file, name.c_str()), &info) == DUET_OK);
        CHECK(t.n_in == info.dims[0]);
        CHECK((int64_t)t.counts.size() == info.dims[2]);
        const bool is_experts = name.find("_exps") != std::string::npos;
        n_experts_tensors += is_experts;
        int n = 0;
        for (int count : t.counts) n += count;
        CHECK(n == n_tok * (is_experts ? 2 : 1));
        if (is_experts) CHECK(*std::max_element(t.counts.begin(), t.counts.end()) < n_tok * 2);
    }
    CHECK(n_experts_tensors > 0);
    CHECK(seen.tensors["blk.0.ffn_gate_exps.weight"].counts == seen.tensors["blk.0.ffn_down_exps.weight"].counts);
    CHECK(seen.tensors["blk.0.ffn_gate_exps.weight"].sum == seen.tensors["blk.0.ffn_up_exps.weight"].sum);
    // what the output matrix reads is the embedding
    seen.tensors.clear();
    const duet_batch one{sizeof(duet_batch), 1, c.ids.data(), nullptr, nullptr, nullptr};
    REQUIRE(duet_decode(s, &one) == DUET_OK);
    double sum = 0;
    for (int64_t i = 0; i < seen.tensors["output.weight"].n_in; i++)
        sum += (double)duet_embedding(s)[i] * duet_embedding(s)[i];
    CHECK(seen.tensors["output.weight"].sum == sum);
    duet_session_free(s);
}

TEST_CASE("golden cases: the embedding of the last token") {
    const golden_case c = read_case("qwen3-embedding");
    if (c.ids.empty()) return say_skipped("embedding", 1, "no " + c.folder);
    const golden_model m(c.folder);
    REQUIRE(m.status == DUET_OK);
    const golden_session s(m, 256);
    feed(m, s.s, c.ids, 512, 512);
    const std::vector<float> want = read_floats(c.folder + "/embedding_last.f32");
    REQUIRE(duet_embedding(s.s) != nullptr);
    CHECK(max_difference(want.data(), duet_embedding(s.s), want.size()) <= 1e-3);
}

TEST_CASE("hybrids: copied and saved sequences go on with the same bits; mixed batches change nothing; what cannot be "
          "trimmed says so") {
    for (const char* name : {"qwen35", "granitehybrid", "lfm2", "falcon-h1", "nemotron_h_moe", "mamba2", "gpt-oss",
                             "gemma4", "deepseek2", "deci"}) {
        const golden_case c = read_case(name);
        if (c.ids.empty()) {
            say_skipped("hybrid sessions", 1, "no " + c.folder);
            continue;
        }
        CAPTURE(name);
        const bool has_state = !has_word("gpt-oss gemma4 deepseek2 deci", name);
        const golden_model m(c.folder);
        const golden_session s(m, 256, 4, 64);
        const std::vector<float> want = feed(m, s.s, c.ids, 64, 64);
        const size_t v = (size_t)m.n_vocab(), half = c.ids.size() / 2;
        const std::vector<int32_t> begin(c.ids.begin(), c.ids.begin() + (long)half),
            rest(c.ids.begin() + (long)half, c.ids.end());
        const std::vector<float> want_rest(want.begin() + (long)(half * v), want.end());
        feed(m, s.s, begin, 5, 3, 1);
        REQUIRE(duet_seq_copy(s.s, 1, 2) == DUET_OK);
        uint64_t n_bytes = 0;
        REQUIRE(duet_seq_save(s.s, 1, nullptr, 0, &n_bytes) == DUET_OK);
        std::vector<uint8_t> saved(n_bytes);
        REQUIRE(duet_seq_save(s.s, 1, saved.data(), n_bytes, &n_bytes) == DUET_OK);
        CHECK(equal_bits(want_rest, feed(m, s.s, rest, 64, 64, 1)));
        CHECK(equal_bits(want_rest, feed(m, s.s, rest, 1, 1, 2)));
        REQUIRE(duet_seq_load(s.s, 3, saved.data(), n_bytes) == DUET_OK);
        CHECK(duet_seq_length(s.s, 3) == (int32_t)half);
        CHECK(equal_bits(want_rest, feed(m, s.s, rest, 2, 9, 3)));
        if (has_state) {
            CHECK(duet_seq_trim(s.s, 3, 3) == DUET_ERR_STATE);
            CHECK(std::string(duet_session_error(s.s)).find("recurrent") != std::string::npos);
            CHECK(duet_seq_length(s.s, 3) == (int32_t)c.ids.size());
        }
        // a trimmed sequence begins anew; two sequences take turns token by token in one batch, one of them 11
        // positions ahead
        for (int q : {0, 1, 2}) REQUIRE(duet_seq_trim(s.s, q, 0) == DUET_OK);
        std::vector<float> mixed = feed(m, s.s, {c.ids.begin(), c.ids.begin() + 11}, 11, 1, 1), other;
        for (size_t at = 0; at + 11 < c.ids.size();) {
            const size_t n = std::min<size_t>(at % 2 ? 13 : 4, c.ids.size() - 11 - at);
            std::vector<int32_t> token, seq;
            for (size_t i = 0; i < n; i++) {
                token.push_back(c.ids[at + 11 + i]), seq.push_back(1);
                token.push_back(c.ids[at + i]), seq.push_back(2);
            }
            const std::vector<uint8_t> all(token.size(), 1);
            const duet_batch b{sizeof(duet_batch), (int32_t)token.size(), token.data(), nullptr, seq.data(),
                               all.data()};
            REQUIRE(duet_decode(s.s, &b) == DUET_OK);
            for (int32_t i = 0; i < b.n_tok; i++) {
                std::vector<float>& to = i % 2 ? other : mixed;
                to.insert(to.end(), duet_logits(s.s, i), duet_logits(s.s, i) + v);
            }
            at += n;
        }
        CHECK(equal_bits(want, mixed));
        CHECK(equal_bits({want.begin(), want.end() - (long)(11 * v)}, other));
    }
}

TEST_CASE("hybrids: cancelling leaves no half-updated state") {
    const golden_case c = read_case("long-qwen35");
    if (c.ids.empty()) return say_skipped("hybrid cancel", 1, "no " + c.folder);
    const golden_model m(c.folder, "scalar");
    const golden_session s(m, 1024, 2);
    const std::vector<int32_t> begin(c.ids.begin(), c.ids.begin() + 20), rest(c.ids.begin() + 20, c.ids.end());
    feed(m, s.s, begin, 20, 1, 1);
    const std::vector<float> want = feed(m, s.s, rest, 512, 512, 1);
    bool was_stopped = false;
    for (int attempt = 0; attempt < 20 && !was_stopped; attempt++) {
        REQUIRE(duet_seq_trim(s.s, 0, 0) == DUET_OK);
        feed(m, s.s, begin, 20, 1);
        std::thread stopper([&] {
            std::this_thread::sleep_for(std::chrono::milliseconds(1 + attempt));
            duet_session_cancel(s.s);
        });
        const duet_batch b{sizeof(duet_batch), (int32_t)rest.size(), rest.data(), nullptr, nullptr, nullptr};
        was_stopped = duet_decode(s.s, &b) == DUET_ERR_CANCELLED;
        stopper.join();
        if (!was_stopped) {  // it came too late: the flag stops the next call before it begins
            const duet_batch one{sizeof(duet_batch), 1, rest.data(), nullptr, nullptr, nullptr};
            CHECK(duet_decode(s.s, &one) == DUET_ERR_CANCELLED);
        }
    }
    REQUIRE(was_stopped);
    const int32_t length = duet_seq_length(s.s, 0);
    CHECK((length == 0 || length == 20));
    if (length == 0) feed(m, s.s, begin, 20, 1);
    CHECK(equal_bits(want, feed(m, s.s, rest, 512, 512)));
}

TEST_CASE(
    "windowed layers: the plan of gemma3 at 32k positions is what its windows need, and the session keeps to it") {
    const golden_case c = read_case("long-gemma3");
    if (c.ids.empty()) return say_skipped("windows", 1, "no " + c.folder);
    const golden_model m(c.folder);
    REQUIRE(m.status == DUET_OK);
    auto number = [&](const char* key) {
        const duet_file* file = duet_model_file(m.m);
        int64_t value = 0;
        REQUIRE(duet_file_get_int(file, duet_file_find_kv(file, key), 0, &value) == DUET_OK);
        return (uint64_t)value;
    };
    const uint64_t layers = number("gemma3.block_count"), window = number("gemma3.attention.sliding_window");
    const uint64_t head_bytes = 2 * 2 * number("gemma3.attention.key_length") *
                                number("gemma3.attention.head_count_kv");  // f16 keys and values
    const uint64_t batch = 64, n_ctx = 32768, chunk = kAttnChunk, n_full = layers / 6, page = head_bytes * chunk;
    duet_session_params p = duet_session_params_default();
    p.n_ctx = (int32_t)n_ctx;
    p.max_batch = (int32_t)batch;
    duet_memory_plan plan{};
    plan.struct_size = sizeof plan;
    REQUIRE(duet_session_plan(m.m, &p, &plan) == DUET_OK);
    const uint64_t windowed_pages = (window + batch + chunk - 1) / chunk + 1;
    CHECK(plan.cache_bytes + plan.gpu_cache_bytes ==
          n_full * (n_ctx / chunk) * page + (layers - n_full) * windowed_pages * page);
    // pages given back serve again: a session as small as its plan runs far beyond the window
    const golden_session s(m, 4096, 1, 64, DUET_CACHE_F16);
    std::vector<int32_t> ids;
    while (ids.size() < 2000) ids.insert(ids.end(), c.ids.begin(), c.ids.end());
    const duet_batch b{sizeof(duet_batch), (int32_t)ids.size(), ids.data(), nullptr, nullptr, nullptr};
    const duet_status st = duet_decode(s.s, &b);
    CHECK_MESSAGE(st == DUET_OK, std::string(duet_session_error(s.s)));
    CHECK(duet_seq_trim(s.s, 0, 100) == DUET_ERR_STATE);
}

// ---- the contract of experts and states ----

namespace {

struct routed {
    std::vector<int32_t> id;
    std::vector<float> weight;
};

routed route(const std::vector<float>& z, route_rule rule, const float* bias = nullptr) {
    std::vector<float> score(z.size());
    std::vector<uint32_t> key(z.size());
    routed r{std::vector<int32_t>((size_t)rule.n_used), std::vector<float>((size_t)rule.n_used)};
    rule.n_experts = (int)z.size();
    exact_route_scores(z.data(), rule, score.data());
    exact_route(score.data(), bias, rule, key.data(), r.id.data(), r.weight.data());
    return r;
}

std::vector<float> normal_floats(size_t n, std::mt19937& rng) {
    std::normal_distribution<float> d;
    std::vector<float> x(n);
    for (float& v : x) v = d(rng);
    return x;
}

}  // namespace

TEST_CASE("routing: ties go to the lower expert, biases only choose, groups shut out, NaN is never preferred") {
    const route_rule softmax{0, 2, 1, 1, false, false, true, 1.0f};
    CHECK(route({1, 3, 3, 3}, softmax).id == std::vector<int32_t>{1, 2});
    CHECK(route({0, 0, 0, 0}, softmax).weight == std::vector<float>{0.5f, 0.5f});
    route_rule sigmoid = softmax;
    sigmoid.sigmoid_scores = true;
    sigmoid.normalise = false;
    sigmoid.scale = 2.0f;
    const float bias[4] = {0, 0, 0, 5};
    const routed biased = route({0, 2, -1, -3}, sigmoid, bias);
    CHECK(biased.id == std::vector<int32_t>{3, 1});
    CHECK(biased.weight[0] == 2.0f * exact_sigmoid(-3));
    // groups {0,1} {2,3} {4,5}: the two best of a group count, so the second beats the one that has the single best
    // expert
    route_rule groups = sigmoid;
    groups.n_groups = 3;
    groups.n_groups_used = 1;
    CHECK(route({9, -9, 3, 2, -9, -9}, groups).id == std::vector<int32_t>{2, 3});
    route_rule after = softmax;
    after.softmax_after = true;
    const routed chosen = route({1, 4, 2, 4}, after);
    CHECK(chosen.id == std::vector<int32_t>{1, 3});
    CHECK(chosen.weight == std::vector<float>{0.5f, 0.5f});
    const float nan = std::numeric_limits<float>::quiet_NaN();
    CHECK(route({nan, 1, nan, 2}, sigmoid).id == std::vector<int32_t>{3, 1});
    const routed all_nan = route({nan, nan, nan, nan}, softmax);
    CHECK(all_nan.id == std::vector<int32_t>{0, 1});
    sigmoid.normalise = true;
    for (float w : route({-200, -200, -200, -200}, sigmoid).weight) CHECK(w == 0.0f);  // not NaN
}

TEST_CASE("kernels of experts and states: every instruction set gives the scalar definition's bits") {
    std::mt19937 rng(5);
    for (int i_isa = 0; const cpu_kernels* k = cpu_kernels_at(i_isa); i_isa++) {
        CAPTURE(k->name);
        for (int n : {1, 7, 16, 60, 64, 128, 384}) {
            const std::vector<float> z = normal_floats((size_t)n, rng);
            for (int mode : {0, 1, 2}) {
                const route_rule rule{n, 1, 1, 1, mode == 1, mode == 2, true, 1.0f};
                std::vector<float> a((size_t)n), b((size_t)n);
                k->route_scores(z.data(), rule, a.data());
                exact_route_scores(z.data(), rule, b.data());
                CHECK(equal_bits(a, b));
            }
            for (int act = 0; act < kActivations; act++) {
                const std::vector<float> x2 = normal_floats((size_t)n, rng);
                for (const float* second : {(const float*)nullptr, x2.data()}) {
                    std::vector<float> x = normal_floats((size_t)n, rng), a((size_t)n), b((size_t)n);
                    for (float& v : x) v *= 8;
                    k->activate(act, x.data(), second, n, a.data());
                    kScalarKernels.activate(act, x.data(), second, n, b.data());
                    CHECK(equal_bits(a, b));
                }
            }
            const std::vector<float> parts = normal_floats(5 * (size_t)n, rng), weight = normal_floats(5, rng);
            for (bool residual : {false, true}) {
                std::vector<float> a = normal_floats((size_t)n, rng), b = a;
                k->weighted_sum(parts.data(), (size_t)n, weight.data(), 5, n, 0.7f, residual, a.data());
                kScalarKernels.weighted_sum(parts.data(), (size_t)n, weight.data(), 5, n, 0.7f, residual, b.data());
                CHECK(equal_bits(a, b));
            }
        }
        for (int n_taps : {2, 3, 4, 9})
            for (int n : {16, 48, 100, 256}) {
                const int n_tok = 6;
                const std::vector<float> w = normal_floats((size_t)(n * n_taps), rng),
                                         bias = normal_floats((size_t)n, rng);
                std::vector<float> state = normal_floats((size_t)(n * (n_taps - 1)), rng),
                                   rows = normal_floats((size_t)(n * n_tok), rng);
                std::vector<float> states[2] = {state, state}, all[2] = {rows, rows};
                for (int i : {0, 1}) {
                    std::vector<float*> at;
                    for (int t = 0; t < n_tok; t++) at.push_back(all[i].data() + t * n);
                    const conv_args a{w.data(), bias.data(), states[i].data(),      (size_t)n, n_taps,
                                      n,        n_tok,       (int)activation::silu, at.data(), at.data()};
                    (i ? kScalarKernels : *k).conv(a);
                }
                CHECK(equal_bits(states[0], states[1]));
                CHECK(equal_bits(all[0], all[1]));
            }
        for (bool is_delta : {false, true})
            for (int n_rows : {1, 6, 16, 128})
                for (int n_cols : {1, 16, 20, 64}) {
                    const int n_tok = 5;
                    const std::vector<float> x = normal_floats((size_t)(n_tok * (2 * n_rows + n_cols)), rng);
                    std::vector<float> m = normal_floats((size_t)(n_rows * n_cols), rng), ms[2] = {m, m}, ys[2];
                    for (int i : {0, 1}) {
                        ys[i].resize((size_t)(n_tok * n_cols));
                        std::vector<state_token> tok;
                        for (int t = 0; t < n_tok; t++) {
                            const float* at = x.data() + t * (2 * n_rows + n_cols);
                            tok.push_back({at, at + n_rows, at + 2 * n_rows, ys[i].data() + t * n_cols, 0.9f, 0.3f});
                        }
                        (i ? kScalarKernels : *k)
                            .state_steps({ms[i].data(), n_rows, n_cols, n_tok, tok.data(), {is_delta, 0.25f, 1.5f}});
                    }
                    CHECK(equal_bits(ms[0], ms[1]));
                    CHECK(equal_bits(ys[0], ys[1]));
                }
    }
}

// ---- contradicting hyper-parameters ----

TEST_CASE("hyper-parameters of experts, hybrids and windows that contradict each other are errors that name the key") {
    const struct {
        const char *model, *key;
        uint32_t value;
    } cases[] = {
        {"qwen3moe", "expert_used_count", 9},
        {"qwen3moe", "expert_used_count", 0},
        {"qwen3moe", "expert_count", 7},
        {"qwen3moe", "expert_feed_forward_length", 47},
        {"bailingmoe2", "expert_group_count", 3},
        {"bailingmoe2", "expert_group_used_count", 5},
        {"bailingmoe2", "expert_group_used_count", 0},
        {"bailingmoe2", "expert_gating_func", 9},
        {"qwen35", "ssm.group_count", 3},
        {"qwen35", "ssm.state_size", 0},
        {"qwen35", "ssm.inner_size", 65},
        {"qwen35", "ssm.conv_kernel", 1},
        {"granitehybrid", "ssm.time_step_rank", 5},
        {"granitehybrid", "ssm.group_count", 5},
        {"granitehybrid", "ssm.state_size", 1u << 31},
        {"lfm2", "shortconv.l_cache", 0},
        {"gemma3", "attention.sliding_window", 2000000000},
        {"gpt-oss", "attention.sliding_window", 0},
        {"deepseek2", "attention.key_length_mla", 8},
        {"deepseek2", "attention.kv_lora_rank", 31},
        {"deepseek2", "rope.dimension_count", 0},
        {"gemma4", "attention.shared_kv_layers", 5},
        {"gemma4", "attention.shared_kv_layers", 6},
        {"glm4moe", "nextn_predict_layers", 3},
    };
    for (const auto& t : cases) {
        std::string bytes = read_file(test_data_path(std::string("golden/") + t.model + "/model.gguf"));
        if (bytes.empty()) {
            say_skipped("contradicting hyper-parameters", 1, std::string("no golden/") + t.model);
            continue;
        }
        const std::string key = std::string(t.model == std::string("gpt-oss") ? "gpt-oss" : t.model) + "." + t.key;
        CAPTURE(key);
        CAPTURE(t.value);
        const size_t at = bytes.find(key);
        REQUIRE(at != std::string::npos);
        const uint32_t u32_type = 4;
        REQUIRE(memcmp(bytes.data() + at + key.size(), &u32_type, 4) == 0);
        memcpy(bytes.data() + at + key.size() + 4, &t.value, 4);
        duet_model* m = nullptr;
        duet_model_params p = duet_model_params_default();
        const duet_status st = duet_model_open_memory(bytes.data(), bytes.size(), &p, &m);
        const std::string error = duet_model_error(m);
        CAPTURE(error);
        CHECK((st == DUET_ERR_FORMAT || st == DUET_ERR_UNSUPPORTED));
        const bool names_key = error.find(t.key) != std::string::npos,
                   names_tensor = error.find("tensor ") != std::string::npos;
        CHECK((names_key || names_tensor));
        duet_model_free(m);
    }
}

TEST_CASE("positions beyond learned ones are refused before anything runs") {
    const golden_case c = read_case("gpt2");
    if (c.ids.empty()) return say_skipped("learned positions", 1, "no " + c.folder);
    const golden_model m(c.folder);
    duet_session_params p = duet_session_params_default();
    p.n_ctx = 129;
    duet_session* s = nullptr;
    CHECK(duet_session_create(m.m, &p, &s) == DUET_ERR_ARG);
    CHECK(std::string(duet_session_error(s)).find("128 positions") != std::string::npos);
    duet_session_free(s);
}

TEST_CASE("a scale beside a matrix: half the weights, times 2, are the same bits") {
    const golden_case c = read_case("llama-gqa");
    if (c.ids.empty()) return say_skipped("scales of matrices", 1, "no " + c.folder);
    const test_folder made("duet-scale-");
    const std::string path = made.path.string();
    duet_file* f = nullptr;
    duet_writer* w = nullptr;
    REQUIRE(duet_file_open((c.folder + "/model.gguf").c_str(), &f) == DUET_OK);
    REQUIRE(duet_writer_create(&w) == DUET_OK);
    REQUIRE(duet_writer_copy_kv(w, f) == DUET_OK);
    const float two = 2.0f;
    const int64_t one = 1;
    std::vector<std::vector<float>> halves;
    for (int64_t i = 0; i < duet_file_n_tensors(f); i++) {
        duet_tensor t;
        REQUIRE(duet_file_tensor(f, i, &t) == DUET_OK);
        const std::string name(t.name.data, t.name.n_bytes);
        const void* data = t.data;
        if (name == "blk.0.attn_q.weight" || name == "blk.1.ffn_down.weight") {
            REQUIRE(t.type_id == 0);
            halves.emplace_back((const float*)t.data, (const float*)t.data + t.n_bytes / 4);
            for (float& v : halves.back()) v *= 0.5f;
            data = halves.back().data();
            const std::string base = name.substr(0, name.size() - 6);
            REQUIRE(duet_writer_add_tensor(w, (base + "scale").c_str(), 0, 1, &one, &two) == DUET_OK);
            REQUIRE(duet_writer_add_tensor(w, (base + "input_scale").c_str(), 0, 1, &one, &two) == DUET_OK);
        }
        REQUIRE(duet_writer_add_tensor(w, name.c_str(), t.type_id, t.n_dims, t.dims, data) == DUET_OK);
    }
    REQUIRE(halves.size() == 2);
    REQUIRE(duet_writer_save(w, (path + "/model.gguf").c_str()) == DUET_OK);
    duet_writer_free(w);
    duet_file_free(f);
    const golden_model plain(c.folder), scaled(path);
    CAPTURE(scaled.error);
    REQUIRE(scaled.status == DUET_OK);
    golden_session a(plain, 64), b(scaled, 64);
    const std::vector<int32_t> ids(c.ids.begin(), c.ids.begin() + 12);
    CHECK(feed(plain, a.s, ids, 12, 1) == feed(scaled, b.s, ids, 12, 1));
}

TEST_CASE("a scale of each expert's matrix, which NVFP4 files of mixtures have, is refused by its name") {
    const test_folder made("duet-scale-");
    const std::string name = "blk.0.ffn_up_exps.scale", folder = made.path.string();
    gguf_file f;
    gguf_writer w;
    error_text err;
    REQUIRE(f.open((tiny_model_folder("qwen3moe") + "/model.gguf").c_str(), err) == DUET_OK);
    REQUIRE(w.copy_kv(f, err) == DUET_OK);
    for (const gguf_tensor& t : f.tensors)
        REQUIRE(w.add_tensor(t.name, t.type, t.n_dims, t.dims, t.data, err) == DUET_OK);
    const std::vector<float> ones(8, 1.0f);
    const int64_t n = (int64_t)ones.size();
    REQUIRE(w.add_tensor(name, 0, 1, &n, ones.data(), err) == DUET_OK);
    REQUIRE_MESSAGE(w.save((folder + "/model.gguf").c_str(), err) == DUET_OK, err.text);
    const golden_model m(folder);
    CHECK(m.status == DUET_ERR_UNSUPPORTED);
    CHECK_MESSAGE(m.error.find("tensor " + name) != std::string::npos, m.error);
    CHECK_MESSAGE(m.error.find("no code for a scale of each expert") != std::string::npos, m.error);
}
