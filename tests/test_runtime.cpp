// tests/test_runtime.cpp: sessions through the public header: the same bits for every split, batch, neighbour, thread
// count and instruction set; saved, copied and trimmed sequences; limits, errors, cancel; generation with stop strings.
// The cases run on the model that ships with Duet.
#include "doctest.h"
#include "../cpu/kernels.h"
#include "../runtime.h"
#include "test_data.h"

#include <algorithm>
#include <atomic>
#include <cfenv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <vector>
#ifdef __GLIBC__
#include <pthread.h>
#endif

using namespace duet;

namespace {

const char* kDemo = "models/demo.gguf";

struct open_model {
    duet_model* m = nullptr;
    explicit open_model(const char* isa = nullptr, int threads = 0) {
        duet_model_params p = duet_model_params_default();
        p.cpu_isa = isa;
        if (!isa) p.device = test_device();
        p.n_threads = threads;
        const duet_status st = duet_model_open(kDemo, &p, &m);
        INFO(std::string(duet_model_error(m)));
        REQUIRE(st == DUET_OK);
    }
    ~open_model() { duet_model_free(m); }
};

struct open_session {
    duet_session* s = nullptr;
    explicit open_session(const open_model& m, int n_ctx = 256, int n_seqs = 1, int max_batch = 64,
                          int cache = DUET_CACHE_F16) {
        duet_session_params p = duet_session_params_default();
        p.n_ctx = n_ctx;
        p.n_seqs = n_seqs;
        p.max_batch = max_batch;
        p.cache_type = cache;
        REQUIRE(duet_session_create(m.m, &p, &s) == DUET_OK);
    }
    ~open_session() { duet_session_free(s); }
};

int32_t n_vocab(const open_model& m) {
    duet_model_info info{};
    info.struct_size = sizeof info;
    REQUIRE(duet_model_get_info(m.m, &info) == DUET_OK);
    return info.n_vocab;
}

std::vector<int32_t> some_ids(int n, int first = 300) {
    std::vector<int32_t> ids;
    for (int i = 0; i < n; i++) ids.push_back(first + (i * 37) % 400);
    return ids;
}

// Returns the logits of every token of ids in sequence seq, fed in calls of `chunk` tokens.
std::vector<float> all_logits(const open_model& m, duet_session* s, const std::vector<int32_t>& ids, int chunk,
                              int32_t seq = 0) {
    std::vector<float> out;
    const size_t v = (size_t)n_vocab(m);
    for (size_t at = 0; at < ids.size(); at += (size_t)chunk) {
        const int n = (int)std::min(ids.size() - at, (size_t)chunk);
        const std::vector<uint8_t> want((size_t)n, 1);
        const std::vector<int32_t> seqs((size_t)n, seq);
        const duet_batch b{sizeof(duet_batch), n, ids.data() + at, nullptr, seqs.data(), want.data()};
        REQUIRE(duet_decode(s, &b) == DUET_OK);
        REQUIRE(duet_logits_count(s) == n);
        for (int i = 0; i < n; i++) out.insert(out.end(), duet_logits(s, i), duet_logits(s, i) + v);
    }
    return out;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && memcmp(a.data(), b.data(), a.size() * 4) == 0;
}

}  // namespace

TEST_CASE("the same bits for every split of the prompt, thread count and instruction set") {
    const std::vector<int32_t> ids = some_ids(150);
    for (int cache : {DUET_CACHE_F16, DUET_CACHE_F32, DUET_CACHE_Q8_0}) {
        const open_model plain;
        const std::vector<float> want = all_logits(plain, open_session(plain, 256, 1, 64, cache).s, ids, 33);
        for (int i = 0; const cpu_kernels* k = cpu_kernels_at(i); i++)
            for (int threads : {1, 2, 3})
                for (int chunk : {150, 64, 7, 1}) {
                    if (std::string(k->name) == "scalar" && (threads != 1 || chunk == 7 || chunk == 64))
                        continue;  // slow, and the others are compared with it
                    const open_model m(k->name, threads);
                    const open_session s(m, 256, 1, chunk == 150 ? 512 : 64, cache);
                    const std::vector<float> got = all_logits(m, s.s, ids, chunk);
                    INFO(std::string(k->name), " threads ", threads, " chunk ", chunk, " cache ", cache);
                    CHECK(same_bits(want, got));
                }
    }
}

TEST_CASE("neighbours in the batch change nothing") {
    const open_model m;
    const std::vector<int32_t> a = some_ids(70, 300), b = some_ids(90, 333);
    const open_session alone(m), mixed(m, 256, 3);
    const std::vector<float> want_a = all_logits(m, alone.s, a, 70);
    REQUIRE(duet_seq_trim(alone.s, 0, 0) == DUET_OK);
    const std::vector<float> want_b = all_logits(m, alone.s, b, 90);
    // sequences 2 and 0 take turns in one batch, with other positions in each call
    std::vector<float> got_a, got_b;
    const size_t v = (size_t)n_vocab(m);
    size_t at_a = 0, at_b = 0;
    while (at_a < a.size() || at_b < b.size()) {
        std::vector<int32_t> token, seq, pos;
        for (size_t i = 0; i < 11 && at_a < a.size(); i++)
            token.push_back(a[at_a]), seq.push_back(2), pos.push_back((int32_t)at_a++);
        for (size_t i = 0; i < 13 && at_b < b.size(); i++)
            token.insert(token.begin(), 0), seq.insert(seq.begin(), 0), pos.insert(pos.begin(), 0), at_b++;
        const size_t nb = (size_t)std::count(seq.begin(), seq.end(), 0);
        for (size_t i = 0; i < nb; i++) token[i] = b[at_b - nb + i], pos[i] = (int32_t)(at_b - nb + i);
        const std::vector<uint8_t> want(token.size(), 1);
        const duet_batch batch{sizeof(duet_batch), (int32_t)token.size(), token.data(), pos.data(), seq.data(),
                               want.data()};
        REQUIRE(duet_decode(mixed.s, &batch) == DUET_OK);
        for (size_t i = 0; i < token.size(); i++) {
            auto& out = seq[i] == 2 ? got_a : got_b;
            out.insert(out.end(), duet_logits(mixed.s, (int32_t)i), duet_logits(mixed.s, (int32_t)i) + v);
        }
    }
    CHECK(same_bits(want_a, got_a));
    CHECK(same_bits(want_b, got_b));
}

TEST_CASE("copied, trimmed and saved sequences go on with the same bits") {
    const open_model m;
    const std::vector<int32_t> ids = some_ids(100), tail(ids.begin() + 60, ids.end()),
                               head(ids.begin(), ids.begin() + 60);
    const open_session whole(m), s(m, 256, 3), other(m, 512, 2, 32);
    const std::vector<float> all = all_logits(m, whole.s, ids, 100);
    const std::vector<float> want(all.begin() + 60 * n_vocab(m), all.end());

    all_logits(m, s.s, head, 60);
    REQUIRE(duet_seq_copy(s.s, 0, 1) == DUET_OK);
    uint64_t n_bytes = 0, n_again = 0;
    REQUIRE(duet_seq_save(s.s, 0, nullptr, 0, &n_bytes) == DUET_OK);
    std::vector<uint8_t> state(n_bytes);
    CHECK(duet_seq_save(s.s, 0, state.data(), n_bytes - 1, &n_again) == DUET_ERR_FULL);
    REQUIRE(duet_seq_save(s.s, 0, state.data(), n_bytes, &n_again) == DUET_OK);
    CHECK(same_bits(want, all_logits(m, s.s, tail, 40, 0)));
    CHECK(same_bits(want, all_logits(m, s.s, tail, 9, 1)));  // the copy shares pages until it writes
    REQUIRE(duet_seq_trim(s.s, 0, 60) == DUET_OK);
    CHECK(duet_seq_length(s.s, 0) == 60);
    CHECK(same_bits(want, all_logits(m, s.s, tail, 3, 0)));
    REQUIRE(duet_seq_load(s.s, 2, state.data(), n_bytes) == DUET_OK);
    CHECK(same_bits(want, all_logits(m, s.s, tail, 40, 2)));
    REQUIRE(duet_seq_load(other.s, 1, state.data(), n_bytes) == DUET_OK);  // another session, other limits
    CHECK(same_bits(want, all_logits(m, other.s, tail, 40, 1)));

    // damaged, cut, foreign: an error, and the sequence stays as it was
    const int32_t before = duet_seq_length(other.s, 1);
    std::vector<uint8_t> bad = state;
    bad[bad.size() / 2] ^= 1;
    CHECK(duet_seq_load(other.s, 1, bad.data(), n_bytes) == DUET_ERR_FORMAT);
    for (uint64_t n : {(uint64_t)0, (uint64_t)7, (uint64_t)40, n_bytes - 1})
        CHECK(duet_seq_load(other.s, 1, state.data(), n) == DUET_ERR_FORMAT);
    bad = state;
    bad[8]++;  // numerics version
    CHECK(duet_seq_load(other.s, 1, bad.data(), n_bytes) == DUET_ERR_FORMAT);
    bad = state;
    bad[24] ^= 1;  // another length that needs as many bytes
    CHECK(duet_seq_load(other.s, 1, bad.data(), n_bytes) == DUET_ERR_FORMAT);
    CHECK(duet_seq_length(other.s, 1) == before);
    const open_session small(m, 32), f32(m, 256, 1, 64, DUET_CACHE_F32);
    CHECK(duet_seq_load(small.s, 0, state.data(), n_bytes) == DUET_ERR_FULL);
    CHECK(duet_seq_load(f32.s, 0, state.data(), n_bytes) == DUET_ERR_FORMAT);
}

TEST_CASE("limits and wrong arguments are errors that change nothing") {
    const open_model m;
    const open_session s(m, 40, 2, 16);
    const std::vector<int32_t> ids = some_ids(41);
    duet_batch b{sizeof(duet_batch), 41, ids.data(), nullptr, nullptr, nullptr};
    CHECK(duet_decode(s.s, &b) == DUET_ERR_FULL);
    CHECK(std::string(duet_session_error(s.s)).find("40") != std::string::npos);
    CHECK(duet_seq_length(s.s, 0) == 0);
    b.n_tok = 40;
    CHECK(duet_decode(s.s, &b) == DUET_OK);
    b.n_tok = 1;
    CHECK(duet_decode(s.s, &b) == DUET_ERR_FULL);
    CHECK(duet_seq_length(s.s, 0) == 40);
    b.n_tok = 0;
    CHECK(duet_decode(s.s, &b) == DUET_ERR_ARG);
    int32_t id = -1, seq = 0, pos = 0;
    b = {sizeof b, 1, &id, nullptr, nullptr, nullptr};
    CHECK(duet_decode(s.s, &b) == DUET_ERR_ARG);
    id = n_vocab(m);
    CHECK(duet_decode(s.s, &b) == DUET_ERR_ARG);
    id = 5, seq = 2, b.seq = &seq;
    CHECK(duet_decode(s.s, &b) == DUET_ERR_ARG);
    seq = 1, pos = 3, b.pos = &pos;
    CHECK(duet_decode(s.s, &b) == DUET_ERR_ARG);
    pos = 0;
    CHECK(duet_decode(s.s, &b) == DUET_OK);
    CHECK(duet_logits(s.s, 1) == nullptr);
    CHECK(duet_logits(s.s, -1) == nullptr);
    CHECK(duet_seq_length(s.s, 9) == -1);
    CHECK(duet_seq_trim(s.s, 0, 41) == DUET_ERR_ARG);
    CHECK(duet_seq_trim(s.s, 5, 0) == DUET_ERR_ARG);
    CHECK(duet_decode(nullptr, &b) == DUET_ERR_ARG);
    for (auto change :
         {+[](duet_session_params& p) { p.n_ctx = -1; }, +[](duet_session_params& p) { p.n_ctx = 0x7fffffff; },
          +[](duet_session_params& p) { p.n_seqs = 0; }, +[](duet_session_params& p) { p.max_batch = 0; },
          +[](duet_session_params& p) { p.cache_type = 3; }, +[](duet_session_params& p) { p.struct_size = 4096; }}) {
        duet_session_params p = duet_session_params_default();
        change(p);
        duet_session* bad = nullptr;
        CHECK(duet_session_create(m.m, &p, &bad) == DUET_ERR_ARG);
        CHECK(std::string(duet_session_error(bad)) != "");
        duet_session_free(bad);
        duet_memory_plan plan{};
        plan.struct_size = sizeof plan;
        CHECK(duet_session_plan(m.m, &p, &plan) == DUET_ERR_ARG);
    }
    duet_session_params p = duet_session_params_default();
    p.n_ctx = 1 << 30;
    p.n_seqs = 4096;
    duet_session* huge = nullptr;
    const duet_status st = duet_session_create(m.m, &p, &huge);
    CHECK((st == DUET_ERR_MEMORY || st == DUET_ERR_ARG));
    duet_session_free(huge);
}

TEST_CASE("cache_tokens as large as can be is no limit") {
    const open_model m;
    duet_session_params p = duet_session_params_default();
    p.n_ctx = 128;
    p.cache_tokens = INT64_MAX;
    duet_session* s = nullptr;
    REQUIRE(duet_session_create(m.m, &p, &s) == DUET_OK);
    const std::vector<int32_t> ids = some_ids(128);
    duet_batch b = duet_batch_default();
    b.n_tok = (int32_t)ids.size();
    b.token = ids.data();
    CHECK(duet_decode(s, &b) == DUET_OK);
    duet_session_free(s);
}

TEST_CASE("a saved state is not taken by a session whose length gives its positions other angles") {
    const std::string path = test_data_path("golden/phi3-longrope-long") + "/model.gguf";
    if (!file_exists(path)) return say_skipped("saved states of long ropes", 1, "no " + path);
    duet_model_params mp = duet_model_params_default();
    mp.device = test_device();
    duet_model* m = nullptr;
    REQUIRE(duet_model_open(path.c_str(), &mp, &m) == DUET_OK);
    duet_session* s[3] = {};  // of 64, 128 and 256 positions; the file says that angles change above 128
    for (int i = 0; i < 3; i++) {
        duet_session_params p = duet_session_params_default();
        p.n_ctx = 64 << i;
        REQUIRE(duet_session_create(m, &p, &s[i]) == DUET_OK);
    }
    const int32_t ids[3] = {3, 4, 5};
    duet_batch b = duet_batch_default();
    b.n_tok = 3;
    b.token = ids;
    for (int from = 0; from < 3; from++) {
        REQUIRE(duet_decode(s[from], &b) == DUET_OK);
        uint64_t n_bytes = 0;
        REQUIRE(duet_seq_save(s[from], 0, nullptr, 0, &n_bytes) == DUET_OK);
        std::vector<uint8_t> state(n_bytes);
        REQUIRE(duet_seq_save(s[from], 0, state.data(), n_bytes, &n_bytes) == DUET_OK);
        REQUIRE(duet_seq_trim(s[from], 0, 0) == DUET_OK);
        for (int to = 0; to < 3; to++) {
            CAPTURE(from);
            CAPTURE(to);
            const bool is_good = (from == 2) == (to == 2);
            CHECK(duet_seq_load(s[to], 0, state.data(), n_bytes) == (is_good ? DUET_OK : DUET_ERR_FORMAT));
            CHECK((is_good || std::string(duet_session_error(s[to])).find("rope") != std::string::npos));
            REQUIRE(duet_seq_trim(s[to], 0, 0) == DUET_OK);
        }
    }
    for (duet_session* each : s) duet_session_free(each);
    duet_model_free(m);
}

TEST_CASE("more logits than one piece keeps") {
    const open_model m;
    const open_session s(m, 512, 1, 8);
    const open_session big(m, 512, 1, 512);
    const std::vector<int32_t> ids = some_ids(50);
    CHECK(same_bits(all_logits(m, s.s, ids, 50), all_logits(m, big.s, ids, 50)));
    const float* e = duet_embedding(s.s);
    REQUIRE(e != nullptr);
    CHECK(memcmp(e, duet_embedding(big.s), 64) == 0);
}

TEST_CASE("generate: the same text for the same seed, stop strings, limits, callbacks") {
    const open_model m;
    const open_session s(m, 200);
    const std::string prompt = "Once upon a time";
    std::vector<int32_t> ids(64);
    size_t n_ids = 0;
    REQUIRE(duet_tokenize(m.m, prompt.data(), prompt.size(), DUET_TOKENIZE_ADD_BOS, ids.data(), ids.size(), &n_ids) ==
            DUET_OK);
    struct sink {
        std::string text;
        int n = 0, stop_after = -1;
    };
    const auto collect = [](void* user, const duet_token_event* e) -> int32_t {
        sink* k = (sink*)user;
        k->text.append(e->text, e->n_bytes);
        k->n += e->id >= 0;
        return k->stop_after >= 0 && k->n >= k->stop_after;
    };
    const auto generate = [&](duet_generate_params p, sink* k, uint64_t seed, duet_generate_result* r) {
        duet_sampler* sampler = nullptr;
        REQUIRE(duet_sampler_create(seed, &sampler) == DUET_OK);
        REQUIRE(duet_sampler_set(sampler, "temp", seed ? 0.8f : 0.0f) == DUET_OK);
        REQUIRE(duet_seq_trim(s.s, 0, 0) == DUET_OK);
        const duet_status st = duet_generate(s.s, sampler, ids.data(), n_ids, &p, collect, k, r);
        duet_sampler_free(sampler);
        return st;
    };
    duet_generate_params p = duet_generate_params_default();
    p.max_new_tok = 30;
    duet_generate_result r{};
    r.struct_size = sizeof r;
    sink a, b, c;
    CHECK(generate(p, &a, 7, &r) == DUET_OK);
    CHECK(generate(p, &b, 7, &r) == DUET_OK);
    CHECK(generate(p, &c, 8, &r) == DUET_OK);
    CHECK(a.text == b.text);
    CHECK(a.text != c.text);
    CHECK(a.n == 30);
    CHECK(r.stop_reason == DUET_STOP_LIMIT);
    CHECK(r.n_prompt_tok == (int32_t)n_ids);

    const std::string stop = a.text.substr(10, 6);
    const char* stops[] = {"\x01never", stop.c_str()};
    p.stop = stops;
    p.n_stop = 2;
    sink d;
    CHECK(generate(p, &d, 7, &r) == DUET_OK);
    CHECK(r.stop_reason == DUET_STOP_STRING);
    CHECK(d.text == a.text.substr(0, a.text.find(stop)));
    p.n_stop = 0;

    sink e;
    e.stop_after = 4;
    CHECK(generate(p, &e, 7, &r) == DUET_OK);
    CHECK(r.stop_reason == DUET_STOP_CALLBACK);
    CHECK(r.n_new_tok == 4);

    sink f;
    p.max_new_tok = 0;
    CHECK(generate(p, &f, 7, &r) == DUET_OK);
    CHECK(f.n == 0);

    sink g;
    p.max_new_tok = -1;
    p.ignore_end = 1;
    CHECK(generate(p, &g, 0, &r) == DUET_OK);
    CHECK(r.stop_reason == DUET_STOP_CONTEXT);
    CHECK(duet_seq_length(s.s, 0) == 200);
}

TEST_CASE("generate: a prompt that does not fit, and none") {
    const open_model m;
    const open_session s(m, 200);
    std::vector<int32_t> too_long(201, 5);
    duet_sampler* sampler = nullptr;
    REQUIRE(duet_sampler_create(1, &sampler) == DUET_OK);
    CHECK(duet_generate(s.s, sampler, too_long.data(), too_long.size(), nullptr, nullptr, nullptr, nullptr) ==
          DUET_ERR_FULL);
    const std::string message = duet_session_error(s.s);
    CHECK(message.find("201") != std::string::npos);
    CHECK(message.find("200") != std::string::npos);
    CHECK(duet_generate(s.s, sampler, nullptr, 0, nullptr, nullptr, nullptr, nullptr) == DUET_ERR_ARG);
    // a length that is a mistake is no length that fits when it is added to what the sequence holds
    duet_generate_params p = duet_generate_params_default();
    p.max_new_tok = 0;
    REQUIRE(duet_generate(s.s, sampler, too_long.data(), 2, &p, nullptr, nullptr, nullptr) == DUET_OK);
    CHECK(duet_generate(s.s, sampler, too_long.data(), SIZE_MAX, &p, nullptr, nullptr, nullptr) == DUET_ERR_FULL);
    duet_sampler_free(sampler);
}

TEST_CASE("the same bits whatever way of rounding the caller has, which stays") {
    const open_model m;
    const std::vector<int32_t> ids = some_ids(20);
    const duet_batch b{sizeof(duet_batch), 20, ids.data(), nullptr, nullptr, nullptr};
    std::vector<std::vector<float>> rows;
    for (const int mode : {FE_TONEAREST, FE_UPWARD, FE_TOWARDZERO}) {
        REQUIRE(fesetround(mode) == 0);
        const open_session s(m, 200);
        const duet_status st = duet_decode(s.s, &b);
        const int after = fegetround();
        fesetround(FE_TONEAREST);
        REQUIRE(st == DUET_OK);
        CHECK(after == mode);
        rows.emplace_back(duet_logits(s.s, 0), duet_logits(s.s, 0) + n_vocab(m));
    }
    CHECK(same_bits(rows[0], rows[1]));
    CHECK(same_bits(rows[0], rows[2]));
}

#ifdef __GLIBC__
TEST_CASE("a thread may end within a callback") {
    const open_model m;
    const open_session s(m, 200);
    pthread_t thread;
    const auto run = [](void* session) -> void* {
        const int32_t id = 1;
        duet_sampler* sampler = nullptr;
        (void)!duet_sampler_create(1, &sampler);
        const duet_generate_params p = duet_generate_params_default();
        const auto leave = [](void* user, const duet_token_event*) -> int32_t {
            duet_sampler_free((duet_sampler*)user);
            pthread_exit(user);
        };
        (void)!duet_generate((duet_session*)session, sampler, &id, 1, &p, leave, sampler, nullptr);
        return nullptr;
    };
    REQUIRE(pthread_create(&thread, nullptr, run, s.s) == 0);
    void* left = nullptr;
    REQUIRE(pthread_join(thread, &left) == 0);
    CHECK(left != nullptr);
}
#endif

TEST_CASE("weights that make the logits overflow are an error, not a text") {
    duet_file* file = nullptr;
    REQUIRE(duet_file_open(kDemo, &file) == DUET_OK);
    const std::string good = read_file(kDemo);
    for (const auto& [name, value] : {std::pair("output_norm.weight", INFINITY),
                                      {"output_norm.weight", 3e38f},
                                      {"blk.0.attn_norm.weight", 3e38f},
                                      {"blk.1.ffn_norm.weight", -INFINITY}}) {
        CAPTURE(name);
        duet_tensor t{};
        REQUIRE(duet_file_tensor(file, duet_file_find_tensor(file, name), &t) == DUET_OK);
        std::string bytes = good;
        for (uint64_t i = 0; i < t.n_bytes; i += 4) memcpy(bytes.data() + t.offset + i, &value, 4);
        duet_model* m = nullptr;
        duet_session* s = nullptr;
        duet_sampler* sampler = nullptr;
        REQUIRE(duet_model_open_memory(bytes.data(), bytes.size(), nullptr, &m) == DUET_OK);
        REQUIRE(duet_session_create(m, nullptr, &s) == DUET_OK);
        REQUIRE(duet_sampler_create(1, &sampler) == DUET_OK);
        const int32_t ids[] = {1, 300, 301};
        CHECK(duet_generate(s, sampler, ids, 3, nullptr, nullptr, nullptr, nullptr) == DUET_ERR_NAN);
        CHECK(std::string(duet_session_error(s)).find("inspect --check") != std::string::npos);
        const int32_t n_ids = 3;
        std::vector<float> vector(192);
        CHECK(duet_embed_ids(s, ids, &n_ids, 1, nullptr, vector.data()) == DUET_ERR_NAN);
        CHECK(std::string(duet_session_error(s)) == "text 0: the vector holds NaN or infinity");
        duet_sampler_free(sampler);
        duet_session_free(s);
        duet_model_free(m);
    }
    duet_file_free(file);
}

TEST_CASE("cancel from another thread stops a long prompt soon") {
    const open_model m(nullptr, 2);
    const open_session s(m, 1 << 15, 1, 512);
    const std::vector<int32_t> ids = some_ids(20000);
    std::atomic<bool> started{false};
    std::thread canceller([&] {
        while (!started) std::this_thread::yield();
        std::this_thread::sleep_for(std::chrono::milliseconds(30));
        duet_session_cancel(s.s);
    });
    const duet_batch b{sizeof(duet_batch), (int32_t)ids.size(), ids.data(), nullptr, nullptr, nullptr};
    started = true;
    const duet_status st = duet_decode(s.s, &b);
    canceller.join();
    CHECK(st == DUET_ERR_CANCELLED);
    const int32_t held = duet_seq_length(s.s, 0);
    CHECK(held % 512 == 0);
    CHECK(held < 20000);
    // what it holds is whole: going on gives the bits of an undisturbed run
    const std::vector<int32_t> more(ids.begin() + held, ids.begin() + held + 3), front(ids.begin(), ids.begin() + held);
    const std::vector<float> got = all_logits(m, s.s, more, 3);
    const open_session fresh(m, 1 << 15, 1, 512);
    if (held > 0) {
        const duet_batch again{sizeof(duet_batch), held, front.data(), nullptr, nullptr, nullptr};
        REQUIRE(duet_decode(fresh.s, &again) == DUET_OK);
    }
    CHECK(same_bits(got, all_logits(m, fresh.s, more, 3)));
}

TEST_CASE("models from a path, a block of memory and a callback are the same; the plan is kept") {
    const open_model m;
    FILE* f = fopen(kDemo, "rb");
    REQUIRE(f != nullptr);
    std::vector<char> bytes(8 << 20);
    bytes.resize(fread(bytes.data(), 1, bytes.size(), f));
    fclose(f);
    const auto read = [](void* user, uint64_t offset, void* dst, uint64_t n) -> int32_t {
        const auto& all = *(std::vector<char>*)user;
        if (offset + n > all.size()) return 1;
        memcpy(dst, all.data() + offset, n);
        return 0;
    };
    duet_model *memory = nullptr, *reader = nullptr;
    REQUIRE(duet_model_open_memory(bytes.data(), bytes.size(), nullptr, &memory) == DUET_OK);
    REQUIRE(duet_model_open_reader(read, &bytes, bytes.size(), nullptr, &reader) == DUET_OK);
    const std::vector<int32_t> ids = some_ids(20);
    const duet_batch b{sizeof(duet_batch), 20, ids.data(), nullptr, nullptr, nullptr};
    std::vector<std::vector<float>> rows;
    for (duet_model* one : {m.m, memory, reader}) {
        duet_session* s = nullptr;
        REQUIRE(duet_session_create(one, nullptr, &s) == DUET_OK);
        REQUIRE(duet_decode(s, &b) == DUET_OK);
        rows.emplace_back(duet_logits(s, 0), duet_logits(s, 0) + n_vocab(m));
        duet_session_free(s);
    }
    CHECK(same_bits(rows[0], rows[1]));
    CHECK(same_bits(rows[0], rows[2]));
    duet_model_free(memory);
    duet_model_free(reader);

    int calls = 0;
    duet_model_params p = duet_model_params_default();
    p.progress_user = &calls;
    p.progress = [](void* user, float share) -> int32_t { return share >= 0 && ++*(int*)user >= 1; };
    duet_model* cancelled = nullptr;
    CHECK(duet_model_open(kDemo, &p, &cancelled) == DUET_ERR_CANCELLED);
    CHECK(calls == 1);
    // a model that was not opened to its end makes no session, whatever was read of it
    duet_session_params small = duet_session_params_default();
    small.n_ctx = 16;
    duet_memory_plan plan{};
    plan.struct_size = sizeof plan;
    duet_session* none = nullptr;
    CHECK(duet_session_plan(cancelled, &small, &plan) == DUET_ERR_ARG);
    CHECK(duet_session_create(cancelled, &small, &none) == DUET_ERR_ARG);
    duet_session_free(none);
    duet_model_free(cancelled);
    duet_model* missing = nullptr;
    CHECK(duet_model_open("models/no such file.gguf", nullptr, &missing) == DUET_ERR_IO);
    CHECK(duet_session_create(missing, &small, &none) == DUET_ERR_ARG);
    CHECK(std::string(duet_session_error(none)) == "the model is not open: opening it failed");
    duet_session_free(none);
    duet_model_free(missing);

    REQUIRE(duet_session_plan(m.m, nullptr, &plan) == DUET_OK);
    CHECK(plan.weight_bytes > 1000000);
    CHECK(plan.cache_bytes + plan.gpu_cache_bytes > 0);
    CHECK(plan.work_bytes + plan.gpu_work_bytes > 0);
}
