// tests/test_place.cpp: where a model runs. Any number of layers on the emulated GPU gives the CPU's bits; the plan
// equals the allocations, to the byte; too little memory moves experts first, then layers; every allocation that can
// fail fails once; loading reports progress and can be stopped.
#include "doctest.h"
#include "test_data.h"
#include "../gpu/driver.h"
#include "../runtime.h"

#include <algorithm>
#include <cstring>
#include <vector>

using namespace duet;

namespace {

struct place_options {
    const char* device = "emu32";
    int32_t gpu_layers = -1, cpu_expert_layers = -1, n_ctx = 96, n_seqs = 1, max_batch = 7;
};

// A model with a session. status and error tell what failed.
struct placed_session {
    duet_model* m = nullptr;
    duet_session* s = nullptr;
    duet_memory_plan plan{};
    duet_model_info info{};
    duet_status status = DUET_OK;
    std::string error;

    explicit placed_session(const std::string& path, const place_options& o, duet_progress_fn progress = nullptr,
                            void* user = nullptr) {
        duet_model_params p = duet_model_params_default();
        p.device = o.device;
        p.gpu_layers = o.gpu_layers;
        p.cpu_expert_layers = o.cpu_expert_layers;
        p.n_threads = 1;
        p.progress = progress;
        p.progress_user = user;
        status = duet_model_open(path.c_str(), &p, &m);
        error = duet_model_error(m);
        info.struct_size = sizeof info;
        plan.struct_size = sizeof plan;
        if (status == DUET_OK && (status = duet_model_get_info(m, &info)) == DUET_OK) create(o);
    }
    void create(const place_options& o) {
        duet_session_params p = duet_session_params_default();
        p.n_ctx = o.n_ctx;
        p.n_seqs = o.n_seqs;
        p.max_batch = o.max_batch;
        status = duet_session_plan(m, &p, &plan);
        error = duet_model_error(m);
        if (status != DUET_OK) return;
        duet_session_free(s);
        status = duet_session_create(m, &p, &s);
        error = duet_session_error(s);
    }
    void close() {
        duet_session_free(s);
        duet_model_free(m);
        s = nullptr;
        m = nullptr;
    }
    ~placed_session() { close(); }
    placed_session(const placed_session&) = delete;

    // Appends n tokens to a sequence and returns the logits of the last row of each call.
    void feed(int32_t seq, int first, int n, std::vector<float>* out) {
        std::vector<int32_t> ids, seqs((size_t)n, seq);
        for (int i = 0; i < n; i++) ids.push_back(5 + (first + i) * 29 % 90);
        const std::vector<uint8_t> want((size_t)n, 1);
        const duet_batch b{sizeof(duet_batch), n, ids.data(), nullptr, seqs.data(), want.data()};
        REQUIRE(s != nullptr);
        const duet_status st = duet_decode(s, &b);
        INFO(std::string(duet_session_error(s)));
        REQUIRE(st == DUET_OK);
        for (int i = 0; i < n; i++) out->insert(out->end(), duet_logits(s, i), duet_logits(s, i) + info.n_vocab);
        out->insert(out->end(), duet_embedding(s), duet_embedding(s) + info.dim);
    }
};

std::string golden(const char* name) { return test_data_path(std::string("golden/") + name + "/model.gguf"); }

// Runs a prompt in pieces, a copied sequence that continues by itself, and a sequence saved and loaded into another.
// Returns all logits.
std::vector<float> exercise(placed_session& p, std::vector<uint8_t>* state) {
    std::vector<float> out;
    p.feed(0, 0, 17, &out);
    REQUIRE(duet_seq_copy(p.s, 0, 1) == DUET_OK);
    p.feed(1, 50, 3, &out);
    p.feed(0, 17, 1, &out);
    uint64_t n = 0;
    REQUIRE(duet_seq_save(p.s, 0, nullptr, 0, &n) == DUET_OK);
    state->resize(n);
    REQUIRE(duet_seq_save(p.s, 0, state->data(), n, &n) == DUET_OK);
    REQUIRE(duet_seq_load(p.s, 2, state->data(), n) == DUET_OK);
    p.feed(2, 18, 2, &out);
    return out;
}

bool same(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && memcmp(a.data(), b.data(), a.size() * 4) == 0;
}

// Returns what an open session has allocated, beside what was allocated before it.
void check_plan(const placed_session& p, const emu_usage& before) {
    const emu_usage u = emu_memory();
    CHECK(u.in_use - before.in_use ==
          p.plan.gpu_weight_bytes + p.plan.gpu_cache_bytes + p.plan.gpu_state_bytes + p.plan.gpu_work_bytes);
    CHECK(u.pinned_most - before.pinned == p.plan.pinned_bytes);
}

struct limit_guard {
    limit_guard() { emu_limit(0, 0); }
    ~limit_guard() { emu_limit(0, 0); }
};

}  // namespace

TEST_CASE(
    "place: any number of layers on the GPU gives the CPU's bits and saved states; the plan is what is allocated") {
    const limit_guard limits;
    int n_skipped = 0;
    for (const char* name : {"llama-gqa", "q-Q4_K_M", "gemma3", "gemma4", "qwen35", "granitehybrid", "lfm2", "mixtral",
                             "gpt-oss-mxfp4", "deepseek2", "nemotron_h_moe"}) {
        if (!file_exists(golden(name))) {
            n_skipped++;
            continue;
        }
        place_options o;
        o.n_seqs = 3;
        o.device = "cpu";
        placed_session cpu(golden(name), o);
        REQUIRE(cpu.error == "");
        std::vector<uint8_t> want_state, state;
        const std::vector<float> want = exercise(cpu, &want_state);
        o.device = "emu32";
        const bool is_moe = std::string(name).find("gpt-oss") == 0 ||
                            std::string(name).find("moe") != std::string::npos || !strcmp(name, "mixtral") ||
                            !strcmp(name, "deepseek2");
        for (o.gpu_layers = 0; o.gpu_layers <= cpu.info.n_layers; o.gpu_layers++)
            for (o.cpu_expert_layers = 0; o.cpu_expert_layers <= (is_moe ? cpu.info.n_layers : 0);
                 o.cpu_expert_layers += cpu.info.n_layers) {
                INFO(std::string(name), ": ", o.gpu_layers, " layers on the GPU, experts of ", o.cpu_expert_layers,
                     " on the CPU");
                emu_limit(0, 0);
                const emu_usage before = emu_memory();
                {
                    placed_session p(golden(name), o);
                    REQUIRE(p.error == "");
                    CHECK(p.plan.gpu_layers == o.gpu_layers);
                    check_plan(p, before);
                    CHECK(p.plan.cache_bytes + p.plan.gpu_cache_bytes == cpu.plan.cache_bytes);
                    CHECK(p.plan.state_bytes + p.plan.gpu_state_bytes == cpu.plan.state_bytes);
                    CHECK((p.plan.gpu_weight_bytes > 0) == (o.gpu_layers > 0));
                    CHECK(same(exercise(p, &state), want));
                    CHECK(state == want_state);
                }
                CHECK(emu_memory().in_use == before.in_use);
                CHECK(emu_memory().pinned == before.pinned);
            }
    }
    if (n_skipped) say_skipped("placement of golden models", n_skipped, "no golden data");
}

TEST_CASE("place: the more memory the device has, the more of the model it gets: first experts leave, then layers") {
    const limit_guard guard;
    for (const char* name : {"llama-gqa", "mixtral"}) {
        if (!file_exists(golden(name))) {
            say_skipped("placement by memory", 1, "no golden data");
            continue;
        }
        emu_limit(0, 0);
        placed_session whole(golden(name), {});
        REQUIRE(whole.error == "");
        REQUIRE(whole.plan.gpu_layers == whole.info.n_layers);
        std::vector<float> want, got;
        whole.feed(0, 0, 9, &want);
        const uint64_t all = emu_memory().in_use;
        whole.close();
        REQUIRE(emu_memory().in_use == 0);
        int32_t last_layers = 0, last_experts = whole.info.n_layers;
        bool experts_left = false;
        for (uint64_t limit = 40000; limit < all + all / 2; limit += all / 12) {
            emu_limit(limit, 0);
            placed_session p(golden(name), {});
            INFO(std::string(name), " in ", limit, " bytes of ", all);
            REQUIRE(p.error == "");
            CHECK(emu_memory().most <= limit);
            CHECK(p.plan.gpu_layers >= last_layers);
            if (p.plan.gpu_layers > 0 && p.plan.gpu_layers == last_layers)
                CHECK(p.plan.cpu_expert_layers <= last_experts);
            last_layers = p.plan.gpu_layers;
            last_experts = p.plan.cpu_expert_layers;
            experts_left = experts_left || (last_layers == p.info.n_layers && last_experts > 0);
            got.clear();
            p.feed(0, 0, 9, &got);
            CHECK(same(got, want));
            p.close();
            CHECK(emu_memory().in_use == 0);
        }
        CHECK(last_layers == whole.info.n_layers);
        CHECK(last_experts == 0);
        CHECK(experts_left == !strcmp(name, "mixtral"));
        // what was asked for and does not fit is an error, before anything is allocated
        emu_limit(all / 2, 0);
        place_options o;
        o.gpu_layers = 999;
        o.cpu_expert_layers = 0;
        placed_session p(golden(name), o);
        CHECK(p.status == DUET_ERR_MEMORY);
        CHECK(p.error.find("layers need") != std::string::npos);
        CHECK(emu_memory().n_allocs == 0);
    }
}

TEST_CASE("place: every allocation fails once: an error that says so, or fewer layers when the choice was open; "
          "nothing leaks") {
    const limit_guard guard;
    if (!file_exists(golden("llama-gqa"))) return say_skipped("failing allocations", 1, "no golden data");
    for (int32_t gpu_layers : {1, 2, -1}) {
        const bool open_choice = gpu_layers < 0;
        place_options o;
        o.gpu_layers = gpu_layers;
        bool failed = true;
        for (int64_t n = 1; failed; n++) {
            emu_limit(0, n);
            placed_session p(golden("llama-gqa"), o);
            INFO("allocation ", n);
            failed = emu_memory().n_allocs >= n;
            REQUIRE(n < 100);
            if (open_choice || !failed) {
                CHECK(p.error == "");
                std::vector<float> out;
                p.feed(0, 0, 3, &out);
            } else {
                CHECK(p.status == DUET_ERR_MEMORY);
                CHECK(p.error.find("no memory for") != std::string::npos);
                CHECK(p.error.find("want fewer layers on the GPU or a smaller context") != std::string::npos);
                CHECK(emu_memory().in_use == 0);
                CHECK(emu_memory().pinned == 0);
                p.create(o);  // the failed one did no harm
                CHECK(p.error == "");
            }
            p.close();
            CHECK(emu_memory().in_use == 0);
            CHECK(emu_memory().pinned == 0);
            if (!failed) CHECK(n > 8);
        }
    }
}

TEST_CASE("place: sessions share the weights; a session that finds no room moves layers when it is alone") {
    const limit_guard guard;
    if (!file_exists(golden("llama-gqa"))) return say_skipped("sessions on a GPU", 1, "no golden data");
    place_options o;
    placed_session p(golden("llama-gqa"), o);
    REQUIRE(p.error == "");
    const uint64_t one = emu_memory().in_use, session = one - p.plan.gpu_weight_bytes;
    duet_session* second = nullptr;
    duet_session_params params = duet_session_params_default();
    params.n_ctx = o.n_ctx;
    params.max_batch = o.max_batch;
    REQUIRE(duet_session_create(p.m, &params, &second) == DUET_OK);
    CHECK(emu_memory().in_use == one + session);
    emu_limit(one + session + session / 2, 0);
    duet_session* third = nullptr;
    CHECK(duet_session_create(p.m, &params, &third) == DUET_ERR_MEMORY);  // the weights are in use
    CHECK(emu_memory().in_use == one + session);
    duet_session_free(third);
    duet_session_free(second);
    CHECK(emu_memory().in_use == one);
    duet_session_free(p.s);
    p.s = nullptr;
    CHECK(emu_memory().in_use == p.plan.gpu_weight_bytes);  // they stay for the next session
    emu_limit(p.plan.gpu_weight_bytes + session / 2, 0);
    CHECK(duet_session_create(p.m, &params, &p.s) == DUET_OK);
    CHECK(duet_session_plan(p.m, &params, &p.plan) == DUET_OK);
    CHECK(p.plan.gpu_layers < p.info.n_layers);
    std::vector<float> out;
    p.feed(0, 0, 3, &out);
    p.close();
    CHECK(emu_memory().in_use == 0);
}

TEST_CASE("place: loading tells how far it is and stops when asked") {
    const limit_guard guard;
    if (!file_exists(golden("q-Q4_K_M"))) return say_skipped("loading to a GPU", 1, "no golden data");
    struct progress {
        std::vector<float> shares;
        size_t stop_at = SIZE_MAX;
        static int32_t take(void* user, float share) {
            progress& p = *(progress*)user;
            p.shares.push_back(share);
            return p.shares.size() > p.stop_at;
        }
    } told;
    {
        placed_session p(golden("q-Q4_K_M"), {}, progress::take, &told);
        CHECK(p.error == "");
        CHECK(std::is_sorted(told.shares.begin(), told.shares.end()));
        CHECK(told.shares.size() > 20);
        CHECK(told.shares.back() == 1.0f);
    }
    const size_t n = told.shares.size();
    for (size_t stop_at : {(size_t)0, n / 2, n - 1}) {
        told = {{}, stop_at};
        placed_session p(golden("q-Q4_K_M"), {}, progress::take, &told);
        CHECK(p.status == DUET_ERR_CANCELLED);
        CHECK(told.shares.size() == stop_at + 1);
        CHECK(emu_memory().in_use == 0);
        CHECK(emu_memory().pinned == 0);
    }
}

TEST_CASE("place: the cache of windowed layers is what the window needs, on either side") {
    const limit_guard guard;
    if (!file_exists(golden("long-gemma3"))) return say_skipped("windowed layers on a GPU", 1, "no golden data");
    uint64_t cache[2][2];
    for (int gpu = 0; gpu < 2; gpu++)
        for (int large = 0; large < 2; large++) {
            place_options o;
            o.device = gpu ? "emu32" : "cpu";
            o.n_ctx = large ? 32768 : 512;
            placed_session p(golden("long-gemma3"), o);
            REQUIRE(p.error == "");
            cache[gpu][large] = gpu ? p.plan.gpu_cache_bytes : p.plan.cache_bytes;
        }
    CHECK(cache[0][0] == cache[1][0]);
    CHECK(cache[0][1] == cache[1][1]);
    // of 64 times the context only the layers without a window take 64 times the pages
    CHECK(cache[1][1] < 40 * cache[1][0]);
}

TEST_CASE("place: parameters out of range") {
    for (int wrong = 0; wrong < 2; wrong++) {
        place_options o;
        (wrong ? o.gpu_layers : o.cpu_expert_layers) = -2;
        placed_session p("models/demo.gguf", o);
        CHECK(p.status == DUET_ERR_ARG);
        CHECK(p.error.find("gpu_layers") != std::string::npos);
    }
}
