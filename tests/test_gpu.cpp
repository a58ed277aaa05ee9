// tests/test_gpu.cpp: the GPU executor on the emulator, with both warp widths: every op and format against the scalar
// CPU, whole golden models against the CPU, and the errors that the emulator must find in wrong kernels.
#include "doctest.h"
#include "../cpu/executor.h"
#include "../runtime/self_test_cases.h"
#include "../runtime/devices.h"
#include "far_attention.h"
#include "test_data.h"
#include "../gpu/args.h"
#include "../gpu/executor.h"
#include "../gpu/simt.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <filesystem>

using namespace duet;

namespace {

// A model with a session. error says what failed first.
struct opened {
    duet_model* model = nullptr;
    duet_session* session = nullptr;
    duet_model_info info{};
    std::string error;

    opened(const std::string& path, const char* device, int n_ctx, int n_seqs, int max_batch, bool fast = false) {
        duet_model_params p = duet_model_params_default();
        p.device = device;
        p.fast = fast;
        p.n_threads = 1;
        if (duet_model_open(path.c_str(), &p, &model) != DUET_OK) error = duet_model_error(model);
        info.struct_size = sizeof info;
        duet_session_params s = duet_session_params_default();
        s.n_ctx = n_ctx;
        s.n_seqs = n_seqs;
        s.max_batch = max_batch;
        if (!error.empty()) return;
        (void)duet_model_get_info(model, &info);
        check(duet_session_create(model, &s, &session));
    }
    ~opened() {
        duet_session_free(session);
        duet_model_free(model);
    }
    opened(const opened&) = delete;
    void check(duet_status st) {
        if (error.empty() && st != DUET_OK) error = duet_session_error(session);
    }
    // Feeds ids, all to sequence 0 or as seqs says, and returns the logits of all.
    void decode(const std::vector<int32_t>& ids, const int32_t* seqs, std::vector<float>* out) {
        const std::vector<uint8_t> all(ids.size(), 1);
        const duet_batch b{sizeof(duet_batch), (int32_t)ids.size(), ids.data(), nullptr, seqs, all.data()};
        if (error.empty()) check(duet_decode(session, &b));
        for (int k = 0; k < b.n_tok && error.empty(); k++)
            out->insert(out->end(), duet_logits(session, k), duet_logits(session, k) + info.n_vocab);
    }
};

// Returns the logits of all positions, with the ids fed in pieces of `piece`.
std::string model_logits(const std::string& path, const char* device, const std::vector<int32_t>& ids, int piece,
                         std::vector<float>* out, bool fast = false) {
    opened o(path, device, (int)ids.size(), 1, piece, fast);
    const bool is_told = std::string_view(o.info.device ? o.info.device : "").ends_with(", fast");
    if (o.error.empty() && is_told != fast) return "device: " + std::string(o.info.device);
    for (size_t i = 0; i < ids.size(); i += (size_t)piece)
        o.decode({ids.begin() + (ptrdiff_t)i, ids.begin() + (ptrdiff_t)std::min(ids.size(), i + (size_t)piece)},
                 nullptr, out);
    return o.error;
}

}  // namespace

TEST_CASE(
    "gpu: every op and format on the emulator gives the scalar CPU's bits, at both warp widths, in any thread order") {
    const uint64_t before = emu_memory().in_use;
    uint32_t seed = 0;
    for (const char* device : {"emu32", "emu64"})
        self_test::for_each_case([&](self_test::graph_case& c) {
            emu_seed(seed++);
            INFO(std::string(device), " ", c.name);
            CHECK(self_test::compare_case(c, device) == "");
        });
    emu_seed(0);
    CHECK(emu_memory().in_use == before);  // everything was given back
}

TEST_CASE("gpu: golden models of every family on the emulator give the CPU's logits, for any cut of the prompt") {
    const uint64_t before = emu_memory().in_use;
    int n_models = 0;
    for (const std::string& folder : golden_folders()) {
        const std::string path = folder + "/model.gguf", name = std::filesystem::path(folder).filename().string();
        // longer prompts or more layers of what other cases have
        if (!file_exists(path) || name.starts_with("long-") || name == "exaone4-64layers-swa") continue;
        if (!file_exists(folder + "/logits.f32") && file_exists(folder + "/pooled.f32")) continue;  // test_embed.cpp
        n_models++;
        std::vector<int32_t> ids = read_ids(folder + "/tokens.json");
        ids.resize(std::min<size_t>(ids.size(), 20));
        std::vector<float> want;
        REQUIRE(model_logits(path, "cpu", ids, 512, &want) == "");
        struct cut {
            const char* device;
            int piece, n;
        };
        // Each family runs on both devices, whole on one of them.
        const bool is_odd = n_models % 2 != 0;
        const cut whole{is_odd ? "emu64" : "emu32", 20, 20}, pieces{"emu32", 7, 14}, single{"emu64", 1, 4};
        for (const cut& c : {whole, is_odd ? pieces : single}) {
            std::vector<float> got;
            INFO(name, " ", std::string(c.device), " piece ", c.piece);
            const std::vector<int32_t> some(ids.begin(), ids.begin() + std::min((ptrdiff_t)ids.size(), (ptrdiff_t)c.n));
            CHECK(model_logits(path, c.device, some, c.piece, &got) == "");
            REQUIRE(got.size() == want.size() / ids.size() * some.size());
            CHECK(memcmp(got.data(), want.data(), got.size() * 4) == 0);
        }
    }
    CHECK(emu_memory().in_use == before);
}

TEST_CASE("gpu: mode fast comes near the exact logits, with the same bits for any batches above 16 tokens; else it is "
          "exact") {
    for (const char* format : {"F16", "BF16"}) {
        const std::string path = tiny_model_folder("llama-gqa", format) + "/model.gguf";
        std::vector<int32_t> ids(40);
        for (int i = 0; i < 40; i++) ids[(size_t)i] = 3 + i * 7 % 50;
        std::vector<float> exact;
        REQUIRE(model_logits(path, "cpu", ids, 40, &exact) == "");
        for (const char* device : {"emu32", "emu64"}) {
            CAPTURE(std::string(device));
            std::vector<float> whole, parts, few;
            REQUIRE(model_logits(path, device, ids, 40, &whole, true) == "");
            REQUIRE(model_logits(path, device, ids, 20, &parts, true) == "");
            CHECK(whole == parts);
            double squares = 0;
            for (size_t i = 0; i < exact.size(); i++)
                squares += ((double)whole[i] - exact[i]) * ((double)whole[i] - exact[i]);
            const double rms = std::sqrt(squares / (double)exact.size());
            CHECK(rms > 1e-4);
            CHECK(rms < (format[0] == 'B' ? 8e-3 : 1e-3));  // 0.0041 and 0.0006 of logits of 2.5
            REQUIRE(model_logits(path, device, ids, 16, &few, true) == "");
            CHECK(std::equal(exact.begin(), exact.begin() + (ptrdiff_t)exact.size() / 40 * 16, few.begin()));
        }
    }
}

TEST_CASE("gpu: mode fast tells when a model has nothing for it") {
    std::string told;
    duet_model_params p = duet_model_params_default();
    p.device = "emu32";
    p.fast = 1;
    p.log = [](void* user, int32_t, const char* text) { *(std::string*)user += text; };
    p.log_user = &told;
    duet_model* model = nullptr;
    REQUIRE(duet_model_open((tiny_model_folder("command-r") + "/model.gguf").c_str(), &p, &model) == DUET_OK);
    CHECK(told.find("mode fast has no effect: no matmul by F16 or BF16 weights and no attention of") != told.npos);
    duet_model_free(model);
}

TEST_CASE("gpu: attention in mode fast is computed by a kernel of its own, only where there are tiles of its size") {
    for (int k_dim : {96, 128, 160, 40})
        for (bool alibi : {false, true}) {
            self_test::graph_case c("attention");
            c.fast = true;
            const view x = c.input(4 * k_dim), y = c.buffer(2 * k_dim);
            c.g.caches = {{0, 1, k_dim, k_dim, false}};
            c.g.groups = {{0}};
            c.add(op_kind::kv_append, self_test::heads_of(x, 2 * k_dim, 1, k_dim), {},
                  self_test::heads_of(x, 3 * k_dim, 1, k_dim))
                .index = 0;
            op& o = c.add(op_kind::attention, self_test::heads_of(x, 0, 2, k_dim), self_test::heads_of(y, 0, 2, k_dim));
            o.index = 0;
            o.scale = 0.2f;
            o.alibi = alibi ? 8.0f : 0.0f;
            c.logits(y);
            int n_fast = 0;
            emu_watch(
                [](void* user, const emu_event& e) {
                    *(int*)user += e.kernel && std::string(e.kernel) == "kernel_fast_attention";
                },
                &n_fast);
            CHECK(self_test::compare_case(c, "emu32") == "");
            emu_watch(nullptr, nullptr);
            CHECK((n_fast > 0) == (k_dim % 32 == 0 && k_dim <= 128 && !alibi));
        }
}

TEST_CASE("gpu: a split attention of more chunks than a merge reads, in one group and more, gives the CPU's bits") {
    constexpr int kGroup = (kMergeStep + 1) * kAttnChunk;
    for (const int32_t type : {DUET_CACHE_F16, DUET_CACHE_F32})
        for (const auto [n_heads, k_dim, v_dim, window, far] : {std::array{4, 64, 64, 0, 1199},
                                                                {1, 40, 40, 0, 1199},
                                                                {8, 128, 128, 0, 1199},
                                                                {2, 40, 34, 0, kGroup - 2},
                                                                {2, 40, 34, 0, kGroup - 1},
                                                                {4, 64, 64, 1100, 1199},
                                                                {4, 64, 64, 3000, 2 * kGroup + 200},
                                                                {2, 32, 32, 0, 2 * kGroup + 200}}) {
            INFO(type, " ", n_heads, " ", v_dim, " ", window, " ", far);
            error_text err;
            const self_test::graph_case c = far_attention(type, n_heads, k_dim, v_dim, window);
            const std::vector<float> want = attend_far(c, kCpuExecutor, "scalar", far, err);
            REQUIRE_MESSAGE(!want.empty(), err.text);
            REQUIRE(std::ranges::all_of(want, [](float v) { return std::isfinite(v); }));
            for (const char* device : {"emu32", "emu64"}) {
                const std::vector<float> got = attend_far(c, kGpuExecutor, device, far, err);
                REQUIRE_MESSAGE(got.size() == want.size(), err.text);
                CHECK(memcmp(got.data(), want.data(), want.size() * 4) == 0);
            }
        }
}

TEST_CASE("gpu: golden models by walks of one launch a token give the CPU's logits; what no walk can do is told") {
    int n_walked = 0, n_told = 0;
    for (const std::string& folder : golden_folders()) {
        const std::string path = folder + "/model.gguf", name = std::filesystem::path(folder).filename().string();
        if (!file_exists(path) || name.starts_with("long-") || name == "exaone4-64layers-swa") continue;
        if (!file_exists(folder + "/logits.f32") && file_exists(folder + "/pooled.f32")) continue;  // test_embed.cpp
        std::vector<float> rows[2];
        int n_walks = 0;
        std::string told;
        for (const char* device : {"cpu", n_walked % 2 ? "emu32" : "emu64"}) {
            duet_model_params p = duet_model_params_default();
            p.device = device;
            p.gpu_recording = 2;
            p.log = [](void* user, int32_t level, const char* text) {
                if (level >= DUET_LOG_WARN) *(std::string*)user += text;
            };
            p.log_user = &told;
            duet_model* model = nullptr;
            duet_session* session = nullptr;
            duet_session_params s = duet_session_params_default();
            s.n_ctx = 32;
            REQUIRE(duet_model_open(path.c_str(), &p, &model) == DUET_OK);
            REQUIRE(duet_session_create(model, &s, &session) == DUET_OK);
            duet_model_info info{};
            info.struct_size = sizeof info;
            (void)duet_model_get_info(model, &info);
            emu_watch(
                [](void* user, const emu_event& e) {
                    *(int*)user += e.kernel && strstr(e.kernel, "kernel_walk") && ((const walk_args*)e.data)->n;
                },
                &n_walks);
            for (int32_t i = 0; i < 5;
                 i++) {  // the second token is the first that is walked, the fourth is not watched
                const int32_t id = 3 + i * 7;
                duet_batch b = duet_batch_default();
                b.n_tok = 1;
                b.token = &id;
                REQUIRE(duet_decode(session, &b) == DUET_OK);
                const float* row = duet_logits(session, 0);
                std::vector<float>& all = rows[device[0] == 'e'];
                all.insert(all.end(), row, row + info.n_vocab);
            }
            emu_watch(nullptr, nullptr);
            duet_session_free(session);
            duet_model_free(model);
        }
        INFO(name, " ", told);
        CHECK(rows[0].size() == rows[1].size());
        CHECK(memcmp(rows[0].data(), rows[1].data(), rows[0].size() * 4) == 0);
        const bool is_told = told.find("one launch cannot do a token of this model") != told.npos;
        CHECK(told.empty() != is_told);
        CHECK(n_walks == (is_told ? 0 : 4));
        n_walked += !is_told;
        n_told += is_told;
    }
    CHECK(n_walked > 25);
    CHECK(n_told > 5);
}

// Returns the logits of batches that mix sequences, of a copied sequence, and of one that continues from a saved state:
// `from`, or its own state if `from` is empty.
std::string sequence_logits(const std::string& path, const char* device, const std::vector<uint8_t>& from,
                            std::vector<uint8_t>* saved, std::vector<float>* out) {
    opened o(path, device, 64, 3, 32);
    auto decode = [&](std::vector<int32_t> seqs) {
        std::vector<int32_t> ids;
        for (size_t i = 0; i < seqs.size(); i++) ids.push_back(3 + (int32_t)(out->size() + i * 7) % 50);
        o.decode(ids, seqs.data(), out);
    };
    decode({0, 0, 1, 0, 1, 1, 0, 0, 1, 0, 0, 1, 0, 0, 0, 1, 0, 1, 0});
    o.check(duet_seq_copy(o.session, 0, 2));
    decode({2, 1, 0});
    decode({0, 1, 2, 2, 2});
    uint64_t n_bytes = 0;
    o.check(duet_seq_save(o.session, 0, nullptr, 0, &n_bytes));
    saved->resize(n_bytes);
    o.check(duet_seq_save(o.session, 0, saved->data(), n_bytes, &n_bytes));
    const std::vector<uint8_t>& state = from.empty() ? *saved : from;
    o.check(duet_seq_load(o.session, 1, state.data(), state.size()));
    decode({1, 2, 0});
    decode({1});
    return o.error;
}

TEST_CASE("gpu: experts, recurrent states and heads that no kernel takes are refused by name") {
    self_test::graph_case experts("4097 experts"), state("1025 rows");
    // "auto" asks with no limits yet, and keeps to the CPU.
    const auto refusal = [](const self_test::graph_case& c) {
        error_text err;
        CHECK(gpu_check(c.g, {}, err) == DUET_ERR_UNSUPPORTED);
        CHECK(self_test::compare_case(c, "emu32") == err.text);
        return err.text;
    };
    for (int d : {17, 514}) {
        self_test::graph_case heads("values");
        const view all = heads.input(64 + d), values = heads.buffer(d);
        heads.g.caches = {{0, 1, 32, d, false}};
        heads.g.groups = {{0}};
        heads.add(op_kind::kv_append, self_test::heads_of(all, 32, 1, 32), {}, self_test::heads_of(all, 64, 1, d))
            .index = 0;
        heads.add(op_kind::attention, self_test::heads_of(all, 0, 1, 32), values).index = 0;
        heads.logits(values);
        CHECK(refusal(heads) == "values of " + std::to_string(d) + ": want an even number, at most 256, on a GPU");
    }
    self_test::graph_case keys("keys");  // A row would want more than the 48 kB that CUDA gives.
    const view both = keys.input(3 * 3840), value = keys.buffer(256);
    keys.g.caches = {{0, 1, 3840, 256, false}};
    keys.g.groups = {{0}};
    keys.add(op_kind::kv_append, self_test::heads_of(both, 3840, 1, 3840), {}, self_test::heads_of(both, 7680, 1, 256))
        .index = 0;
    keys.add(op_kind::attention, self_test::heads_of(both, 0, 1, 3840), value).index = 0;
    keys.logits(value);
    CHECK(refusal(keys) == "keys of 3840, values of 256: too long for a GPU");
    const view z = experts.input(4097), routes = experts.buffer(2);
    op& route = experts.add(op_kind::route, z, routes);
    route.n_used = 1;
    experts.logits(routes);
    CHECK(refusal(experts) == "4097 experts: want at most 4096 on a GPU");
    const view x = state.input(2 * 1025 + 1), step = state.input(1), y = state.buffer(1);
    op& o = state.add(op_kind::mamba2, x, y);
    o.in2 = step;
    o.n_groups = 1;
    o.w = state.floats(1);
    o.b = state.floats(1);
    o.w2 = state.floats(1);
    o.index = 0;
    state.g.states = {{1025}};
    state.logits(y);
    CHECK(refusal(state) == "recurrent state of 1025 rows: want at most 1024 on a GPU");
}

TEST_CASE("gpu: mixed and copied sequences give the CPU's logits, and go on from states that the CPU saved, and the "
          "CPU from theirs") {
    int n_skipped = 0;
    for (const char* name : {"granitehybrid-moe", "lfm2", "qwen35moe", "deepseek2"}) {
        const std::string path = test_data_path(std::string("golden/") + name) + "/model.gguf";
        if (!file_exists(path)) {
            n_skipped++;
            continue;
        }
        INFO(std::string(name));
        std::vector<uint8_t> state;
        std::vector<float> want;
        REQUIRE(sequence_logits(path, "cpu", {}, &state, &want) == "");
        for (const char* device : {"emu32", "emu64"}) {
            std::vector<uint8_t> its_state, again;
            std::vector<float> got, on_cpu;
            CHECK(sequence_logits(path, device, state, &its_state, &got) == "");
            CHECK(its_state == state);
            CHECK(sequence_logits(path, "cpu", its_state, &again, &on_cpu) == "");
            REQUIRE(got.size() == want.size());
            CHECK(memcmp(got.data(), want.data(), want.size() * 4) == 0);
            CHECK(memcmp(on_cpu.data(), want.data(), want.size() * 4) == 0);
        }
    }
    if (n_skipped) say_skipped("gpu sequences", n_skipped, "no golden data");
}

TEST_CASE("self test: every case is told, nothing differs on the CPU, it can be stopped") {
    int n[3] = {};
    const auto count = [](void* user, const char* name, const char* difference) -> int32_t {
        int* k = (int*)user;
        k[0]++;
        k[1] += difference != nullptr;
        return name[0] == 0 || (k[2] && k[0] == k[2]);
    };
    CHECK(duet_self_test("cpu", nullptr, count, n) == DUET_OK);
    CHECK(n[0] > 50);
    CHECK(n[1] == 0);
    int stopping[3] = {0, 0, 2};
    CHECK(duet_self_test("emu32", nullptr, count, stopping) == DUET_ERR_CANCELLED);
    CHECK(stopping[0] == 2);
    CHECK(duet_self_test("emu33", nullptr, count, n) == DUET_ERR_DEVICE);
    CHECK(duet_self_test("cpu", "sse2", count, n) == DUET_ERR_DEVICE);
    CHECK(duet_self_test(nullptr, nullptr, count, n) == DUET_ERR_ARG);
    CHECK(duet_self_test("cpu", nullptr, nullptr, n) == DUET_ERR_ARG);
    for (const char* device : {"cpu", "emu32"}) CHECK(duet_measure_bandwidth_gbps(device, nullptr, 1) > 0.01);
    for (const char* pattern : {"cpu:1+0", "cpu:16+1024"})
        CHECK(duet_measure_bandwidth_gbps(pattern, nullptr, 3) > 0.01);
    for (const char* wrong : {"emu33", "cpu:0+0", "cpu:17+0", "cpu:4", "cpu:4+0 ", "cpu:4+-1", "cpu:"})
        CHECK(duet_measure_bandwidth_gbps(wrong, nullptr, 1) == 0);
    duet_model* model = nullptr;
    REQUIRE(duet_model_open("models/demo.gguf", nullptr, &model) == DUET_OK);
    // One and two threads read the weights, for three a part is less than 1 MB.
    for (int n_threads : {1, 2, 3}) CHECK(duet_measure_bandwidth_gbps("cpu", model, n_threads) > 0.01);
    CHECK(duet_measure_bandwidth_gbps("emu33", model, 1) == 0);
    duet_model_free(model);
}

TEST_CASE(
    "gpu: decoding takes at most five launches a layer, seven with several tokens and where launches start early, and "
    "plays a recording while the shape holds; neighbours change no bit") {
    struct counts {
        int launches = 0, plays = 0, splits = 0;  // splits: of attention of five tokens
        int clears = 0;                           // of pages that a sequence takes, every 64 tokens
        const uint8_t* ahead = nullptr;           // the weights that the launch before brings to the second cache
        int used = 0, unused = 0;                 // Whether the next matrix is the one that was brought.
        int further = 0;  // Matrices behind the next one of which attention brings weights, too.
        std::map<const uint8_t*, uint64_t> blocks = {};  // memory of the device
        ahead_args from_attention = {};
        void watch(const emu_event& e) {
            if (!strcmp(e.what, "alloc")) blocks[(const uint8_t*)e.at] = e.n_bytes;
            auto check = [&](const ahead_args& a) {
                if (a.n_bytes == 0) return;
                REQUIRE(blocks.upper_bound(a.at) != blocks.begin());
                const auto block = std::prev(blocks.upper_bound(a.at));
                CHECK(a.at + a.n_bytes <= block->first + block->second);
            };
            const bool is_clear = e.kernel && strstr(e.kernel, "kernel_words") && !((const words_args*)e.data)->from;
            clears += is_clear;
            launches += e.what[0] == 'l' && !is_clear;
            plays += e.what[0] == 'p';
            const bool is_split = e.kernel && strstr(e.kernel, "attention_split");
            splits += is_split && e.grid.y == 5;
            if (is_split) {
                const auto& a = *(const attention_args*)e.data;
                ahead = e.grid.z > (uint32_t)a.n_chunks ? a.ahead.at : nullptr;
                check(from_attention = ahead ? a.ahead : ahead_args{});
            } else if (e.kernel && strstr(e.kernel, "matvec_")) {
                const auto& a = *(const matrix_args*)e.data;
                if (ahead) ++(a.part[0].w == ahead ? used : unused);
                ahead = a.ahead.n_bytes ? a.ahead.at : nullptr;
                check(a.ahead);
                const uint8_t* from = from_attention.at;
                further += a.part[0].w > from && a.part[0].w < from + from_attention.n_bytes;
            }
        }
    };
    int n_skipped = 0;
    emu_dry(false, 16);  // so many units that five tokens leave some idle
    for (const char* name : {"llama-gqa", "qwen3", "q-Q4_K_M"}) {
        const std::string path = test_data_path(std::string("golden/") + name) + "/model.gguf";
        if (!file_exists(path)) {
            n_skipped++;
            continue;
        }
        INFO(std::string(name));
        duet_model_params p = duet_model_params_default();
        p.device = "emu32";
        duet_model* model = nullptr;
        REQUIRE(duet_model_open(path.c_str(), &p, &model) == DUET_OK);
        counts opened;
        duet_model_info info{};
        info.struct_size = sizeof info;
        (void)duet_model_get_info(model, &info);
        {  // A prompt: matrices of one input and one format share a launch, and activations come quantized.
            struct prompt_counts {
                int matmuls = 0, rows = 0;
            } n;
            duet_session_params s = duet_session_params_default();
            s.n_ctx = 64;
            duet_session* session = nullptr;
            emu_watch([](void* user, const emu_event& e) { ((counts*)user)->watch(e); }, &opened);
            const duet_status is_there = duet_session_create(model, &s, &session);
            emu_watch(nullptr, nullptr);
            REQUIRE(is_there == DUET_OK);
            std::vector<int32_t> ids(24, 5);
            duet_batch b = duet_batch_default();
            b.n_tok = (int32_t)ids.size();
            b.token = ids.data();
            emu_watch(
                [](void* user, const emu_event& e) {
                    ((prompt_counts*)user)->matmuls += e.kernel && strstr(e.kernel, "kernel_matmul");
                    ((prompt_counts*)user)->rows += e.kernel && strstr(e.kernel, "kernel_rows");
                },
                &n);
            const duet_status st = duet_decode(session, &b);
            emu_watch(nullptr, nullptr);
            REQUIRE(st == DUET_OK);
            CHECK(n.matmuls >= 4 * info.n_layers);
            CHECK(n.matmuls <= 5 * info.n_layers);
            CHECK(n.rows <= info.n_layers + 2);  // what attention gives, and the wanted rows
            duet_session_free(session);
        }
        std::vector<float> rows[3];  // of sequence 0: alone, and between others
        for (int n_seqs : {1, 3, 5}) {
            duet_session_params s = duet_session_params_default();
            s.n_ctx = 160;
            s.n_seqs = n_seqs;
            s.max_batch = 5;
            duet_session* session = nullptr;
            REQUIRE(duet_session_create(model, &s, &session) == DUET_OK);
            const int n_steps = 70;
            for (int i = 0; i < n_steps; i++) {
                const int32_t ids[5] = {3 + i * 7 % 50, 5 + i, 60 - i % 50, 7, 9 + i % 3}, seqs[5] = {0, 1, 2, 3, 4};
                const uint8_t want[5] = {1, 1, 1, 1, 1};
                duet_batch b = duet_batch_default();
                b.n_tok = i % 10 == 9 ? 1 : n_seqs;
                b.token = ids;
                b.seq = seqs;
                b.want_logits = want;
                counts n;
                n.blocks = opened.blocks;
                emu_watch([](void* user, const emu_event& e) { ((counts*)user)->watch(e); }, &n);
                const duet_status st = duet_decode(session, &b);
                emu_watch(nullptr, nullptr);
                REQUIRE(st == DUET_OK);
                CHECK(n.launches <= (b.n_tok == 1 ? 5 : 7) * info.n_layers + 6);  // norms alone
                if (n_seqs == 1) CHECK(n.clears == (i % 64 == 0));
                if (n_seqs == 1)
                    CHECK(n.plays == (i != 0 && i != 64));  // a shape that comes again; chunks of the cache: 1, then 2
                CHECK((n.splits > 0) == (b.n_tok == 5 && i >= 64));
                // What a norm's row and, where it is split, attention leave time for; nobody waits for the last down.
                CHECK(n.used == (b.n_tok == 1 ? (i < 64 ? 2 : 3) * info.n_layers - 1 : 0));
                CHECK(n.unused == 0);
                CHECK(n.further == (b.n_tok == 1 && i >= 64 ? 2 * info.n_layers : 0));  // gate and up, down
                const float* row = duet_logits(session, 0);
                rows[n_seqs / 2].insert(rows[n_seqs / 2].end(), row, row + info.n_vocab);
            }
            duet_session_free(session);
        }
        for (int k : {1, 2}) CHECK(memcmp(rows[0].data(), rows[k].data(), rows[0].size() * 4) == 0);
        duet_model_free(model);
        // Launches of emu64 start early, so that norms are launches of their own.
        p.device = "emu64";
        REQUIRE(duet_model_open(path.c_str(), &p, &model) == DUET_OK);
        duet_session_params s = duet_session_params_default();
        s.n_ctx = 64;
        duet_session* session = nullptr;
        REQUIRE(duet_session_create(model, &s, &session) == DUET_OK);
        const int32_t id = 3;
        duet_batch b = duet_batch_default();
        b.n_tok = 1;
        b.token = &id;
        int norms = 0;
        emu_watch([](void* user, const emu_event& e) { *(int*)user += e.kernel && !strcmp(e.kernel, "kernel_norm"); },
                  &norms);
        const duet_status st = duet_decode(session, &b);
        emu_watch(nullptr, nullptr);
        REQUIRE(st == DUET_OK);
        CHECK(norms == 2 * info.n_layers + 1);
        CHECK(memcmp(duet_logits(session, 0), rows[0].data(), (size_t)info.n_vocab * 4) == 0);
        duet_session_free(session);
        duet_model_free(model);
    }
    emu_dry(false, 4);
    if (n_skipped) say_skipped("gpu launches of a decode step", n_skipped, "no golden data");
}

TEST_CASE("gpu: greedy generation moves four bytes a token and takes the CPU's ids; ties go to the lowest id, broken "
          "logits to nobody") {
    const std::string path = test_data_path("golden/llama-gqa/model.gguf");
    if (!file_exists(path)) return say_skipped("gpu greedy generation", 1, "no golden data");
    std::vector<int32_t> ids[2];
    for (const bool is_gpu : {false, true}) {
        duet_model_params p = duet_model_params_default();
        p.device = is_gpu ? "emu64" : "cpu";
        duet_model* model = nullptr;
        duet_session* session = nullptr;
        duet_sampler* sampler = nullptr;
        REQUIRE(duet_model_open(path.c_str(), &p, &model) == DUET_OK);
        duet_session_params s = duet_session_params_default();
        s.n_ctx = 32;
        REQUIRE(duet_session_create(model, &s, &session) == DUET_OK);
        REQUIRE(duet_sampler_create(7, &sampler) == DUET_OK);
        REQUIRE(duet_sampler_set(sampler, "temp", 0) == DUET_OK);
        REQUIRE(duet_sampler_set(sampler, "top_k", 40) == DUET_OK);
        uint64_t n_bytes = 0;
        emu_watch(
            [](void* user, const emu_event& e) {
                if (e.what[0] == 'd') *(uint64_t*)user += e.n_bytes;
            },
            &n_bytes);
        duet_generate_params g = duet_generate_params_default();
        g.max_new_tok = 8;
        const int32_t prompt[3] = {5, 9, 30};
        const auto keep = [](void* user, const duet_token_event* e) -> int32_t {
            return ((std::vector<int32_t>*)user)->push_back(e->id), 0;
        };
        duet_generate_result r{};
        r.struct_size = sizeof r;
        CHECK(duet_generate(session, sampler, prompt, 3, &g, keep, &ids[is_gpu], &r) == DUET_OK);
        emu_watch(nullptr, nullptr);
        CHECK(r.n_new_tok > 0);
        if (is_gpu) CHECK(n_bytes == 4 * (uint64_t)(r.n_new_tok + (r.stop_reason == DUET_STOP_END)));
        duet_sampler_free(sampler);
        duet_session_free(session);
        duet_model_free(model);
    }
    CHECK(ids[0] == ids[1]);

    const float inf = INFINITY;
    struct row_case {
        std::vector<float> values;
        int32_t want;
    };
    // More than three blocks take at once, so that a block comes to a second round.
    const size_t n_values = 3 * 4096 + 700;
    std::vector<float> ties(n_values, 1.5f), late(n_values, -3.0f), broken(n_values, 2.0f), lost(n_values, 2.0f);
    ties[5000] = ties[600] = ties[9000] = 2.0f;
    late[n_values - 1] = -2.0f;
    broken[300] = NAN;
    lost[2] = inf;
    for (const row_case& c : {row_case{ties, 600},
                              {late, (int32_t)n_values - 1},
                              {broken, -1},
                              {lost, -1},
                              {std::vector<float>(40, -inf), -1},
                              {{-inf, -7.0f, -inf}, 1}}) {
        error_text err;
        void *device = nullptr, *kernel = nullptr, *memory = nullptr;
        gpu_info info;
        REQUIRE(kEmu32Driver.open(0, &device, &info, err) == DUET_OK);
        REQUIRE(kEmu32Driver.kernel(device, "common", "kernel_argmax", &kernel, &info.tile_threads, err) == DUET_OK);
        REQUIRE(kEmu32Driver.alloc(device, c.values.size() * 4 + 64, &memory, err) == DUET_OK);
        int32_t* ints = (int32_t*)memory;
        memcpy(ints + 16, c.values.data(), c.values.size() * 4);
        for (const int n_blocks : {1, 3}) {
            ints[1] = 0;
            const argmax_args a{(const float*)ints + 16,  ints,    (uint32_t*)ints + 1, (float*)ints + 2, ints + 8,
                                (int32_t)c.values.size(), n_blocks};
            CHECK(kEmu32Driver.launch(device, kernel, {(uint32_t)n_blocks, 1, 1, 256, 2052}, &a, sizeof a, err) ==
                  DUET_OK);
            CHECK(ints[0] == c.want);
            CHECK(ints[1] == 0);
        }
        kEmu32Driver.free(device, memory);
        kEmu32Driver.close(device);
    }
}

TEST_CASE("gpu: the self test plays one recording at 20 positions or more; launches cut as short as they can be change "
          "no bit") {
    gpu_test_setup setup;
    setup.launch_products = 1;
    self_test::for_each_case([&](self_test::graph_case& c) {
        const bool is_recorded = c.name == "decoding by a recording";
        if (!is_recorded && c.name.find("attention") == c.name.npos && c.name.find("expert") == c.name.npos &&
            c.name.find("Q4_0") == c.name.npos && c.name.find("F16") == c.name.npos &&
            c.name.find("fast") == c.name.npos)
            return;
        int n[3] = {};  // plays, launches of attention, of matmuls
        const auto count = [](void* user, const emu_event& e) {
            ((int*)user)[0] += e.what[0] == 'p';
            ((int*)user)[1] += e.kernel && strstr(e.kernel, "attention") && e.grid.y == 1;
            ((int*)user)[2] +=
                e.kernel && (strstr(e.kernel, "kernel_matmul") || strstr(e.kernel, "kernel_fast")) && e.grid.x == 1;
        };
        const gpu_test_setup* before = is_recorded ? nullptr : gpu_test(&setup);
        emu_watch(count, n);
        CHECK(self_test::compare_case(c, "emu32") == "");
        emu_watch(nullptr, nullptr);
        if (!is_recorded) gpu_test(before);
        INFO(c.name);
        if (is_recorded) {
            std::vector<float> rows;
            error_text err;
            CHECK(n[0] > 20);
            CHECK(self_test::run_case(c, kGpuExecutor, "emu64", &rows, err) == DUET_OK);
            CHECK(std::all_of(rows.begin(), rows.end(), [](float v) { return v == v; }));
        }
        if (c.name.find("attention") == 0) CHECK(n[1] >= 10);
        else if (c.name.find("matmul Q4_0") == 0 || c.name.find("fast") == 0) CHECK(n[2] >= 2);
    });
}

TEST_CASE("gpu: more blocks share a tile where more fit a unit, which changes no bit") {
    int n_cases = 0;
    self_test::for_each_case([&](self_test::graph_case& c) {
        if (c.name.find("matmul Q4_0 rounds") != 0) return;  // two tiles of 34 groups
        n_cases++;
        for (const int32_t vec_blocks : {2, 4}) {
            uint32_t most = 0;  // blocks of a tile
            const auto see = [](void* user, const emu_event& e) {
                if (!e.kernel || !strstr(e.kernel, "kernel_matvec_")) return;
                *(uint32_t*)user = std::max(*(uint32_t*)user, e.grid.z);
            };
            emu_dry(false, 2, vec_blocks);
            emu_watch(see, &most);
            CHECK(self_test::compare_case(c, "emu32") == "");
            emu_watch(nullptr, nullptr);
            CHECK(most == (uint32_t)vec_blocks);
        }
    });
    emu_dry(false, 4);
    CHECK(n_cases == 1);
}

TEST_CASE("gpu: device names") {
    error_text err;
    int32_t index = 0;
    gpu_info info;
    CHECK(find_driver("emu32", &index) == &kEmu32Driver);
    CHECK(find_driver("emu64:0", &index) == &kEmu64Driver);
    for (const char* name : {"", "emu", "emu33", "emu32:", "emu32:x", "emu32:0000", "emu32:-1"})
        CHECK(find_driver(name, &index) == nullptr);
    CHECK(gpu_device_info("emu32:1", &info, err) == DUET_ERR_DEVICE);
    CHECK(err.text == "emu32:1: this machine has 1 emulated devices");
}

TEST_CASE("gpu: the emulator finds half-reached barriers, shared memory out of range and races") {
    struct wrong_kernel {
        const char* name;
        void (*body)(const void*);
        const char* message;
    };
    // clang-format off
    const wrong_kernel kernels[] = {
        {"half", [](const void*) { if (thread_id() < 40) sync_block(); }, "barrier that not all threads reach"},
        {"lanes", [](const void*) { if (thread_id() % 32 < 7) shuffle_xor(1u, 1); }, "exchange that not all lanes"},
        {"range", [](const void*) { shared_array<float>(0, 16)[16] = 1.0f; }, "shared memory index 16 (of 16)"},
        {"bytes", [](const void*) { shared_array<float>(0, 1000)[0] = 1.0f; }, "shared memory up to byte 4000 (of 256)"},
        {"write", [](const void*) { shared_array<int>(0, 64)[thread_id() / 2] = 1; }, "race on word"},
        {"read", [](const void*) { auto s = shared_array<int>(0, 64); s[thread_id()] = 1; (void)(int)s[thread_id() ^ 1]; }, "race on word"},
        {"good", [](const void*) { auto s = shared_array<int>(0, 64); s[thread_id()] = 1; sync_block(); (void)(int)s[thread_id() ^ 1]; }, ""},
    };
    // clang-format on
    for (const gpu_driver* driver : {&kEmu32Driver, &kEmu64Driver})
        for (const wrong_kernel& k : kernels)
            for (uint32_t seed = 0; seed < 3; seed++) {
                error_text err;
                void* device = nullptr;
                gpu_info info;
                REQUIRE(driver->open(0, &device, &info, err) == DUET_OK);
                emu_seed(seed);
                const duet_status st = emu_run(device, k.name, k.body, {2, 1, 1, 64, 256}, err);
                INFO(std::string(k.name), ": ", err.text);
                CHECK(st == (k.message[0] ? DUET_ERR_DEVICE : DUET_OK));
                CHECK(err.text.find(k.message) != std::string::npos);
                if (k.message[0]) CHECK(err.text.find("line") != std::string::npos);
                driver->close(device);
            }
    emu_seed(0);
}
