// tests/test_generate.cpp: generation step by step, the text gate, UTF-8, sizes of structs, and models that are read
// instead of mapped. The cases run on the model that ships with Duet.
#include "doctest.h"
#include "../runtime.h"
#include "test_data.h"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#ifndef _WIN32
#include <sys/wait.h>
#endif
#include <unistd.h>

namespace {

struct demo_session {
    duet_model* m = nullptr;
    duet_session* s = nullptr;
    duet_sampler* sampler = nullptr;
    explicit demo_session(int n_ctx = 128, int max_batch = 4, float temp = 0) {
        duet_model_params p = duet_model_params_default();
        p.device = test_device();
        p.n_threads = 1;
        REQUIRE(duet_model_open("models/demo.gguf", &p, &m) == DUET_OK);
        duet_session_params q = duet_session_params_default();
        q.n_ctx = n_ctx;
        q.max_batch = max_batch;
        REQUIRE(duet_session_create(m, &q, &s) == DUET_OK);
        REQUIRE(duet_sampler_create(3, &sampler) == DUET_OK);
        REQUIRE(duet_sampler_set(sampler, "temp", temp) == DUET_OK);
    }
    ~demo_session() {
        duet_session_free(s);
        duet_sampler_free(sampler);
        duet_model_free(m);
    }
    demo_session(const demo_session&) = delete;
};

const std::vector<int32_t> kIds = {1, 419, 426, 13, 434, 260, 416};

struct seen {
    std::vector<int32_t> ids;
    std::string text;
    int n_prompt_steps = 0;
};

// Steps until the end, or until n tokens were reported.
int32_t pull(duet_generation* g, seen* out, int n = 1 << 30) {
    duet_token_event e{};
    e.struct_size = sizeof e;
    while ((int)out->ids.size() < n) {
        REQUIRE(duet_generate_next(g, &e) == DUET_OK);
        CHECK(e.text[e.n_bytes] == 0);
        out->text.append(e.text, e.n_bytes);
        if (e.id >= 0) out->ids.push_back(e.id);
        else if (e.stop_reason != DUET_STOP_NONE) return e.stop_reason;
        else out->n_prompt_steps++;
    }
    return DUET_STOP_NONE;
}

duet_generation* begin(demo_session& d, const std::vector<int32_t>& ids, int n_new) {
    duet_generate_params p = duet_generate_params_default();
    p.max_new_tok = n_new;
    p.ignore_end = 1;
    duet_generation* g = nullptr;
    const duet_status st = duet_generate_begin(d.s, d.sampler, ids.data(), ids.size(), &p, &g);
    INFO(std::string(duet_session_error(d.s)));
    REQUIRE(st == DUET_OK);
    return g;
}

}  // namespace

TEST_CASE("generation: steps tell what the callback tells, the prompt in pieces of max_batch") {
    for (const float temp : {0.0f, 0.8f}) {
        demo_session pushed(128, 4, temp), pulled(128, 4, temp);
        seen want, got;
        duet_generate_params p = duet_generate_params_default();
        p.max_new_tok = 20;
        p.ignore_end = 1;
        duet_generate_result r{}, r2{};
        r.struct_size = r2.struct_size = sizeof r;
        const auto keep = [](void* user, const duet_token_event* e) -> int32_t {
            seen& k = *(seen*)user;
            if (e->id >= 0) k.ids.push_back(e->id);
            k.text.append(e->text, e->n_bytes);
            return 0;
        };
        REQUIRE(duet_generate(pushed.s, pushed.sampler, kIds.data(), kIds.size(), &p, keep, &want, &r) == DUET_OK);
        duet_generation* g = begin(pulled, kIds, 20);
        CHECK(pull(g, &got) == DUET_STOP_LIMIT);
        CHECK(got.ids == want.ids);
        CHECK(got.text == want.text);
        CHECK(got.n_prompt_steps == 2);
        REQUIRE(duet_generation_result(g, &r2) == DUET_OK);
        CHECK(r2.n_prompt_tok == r.n_prompt_tok);
        CHECK(r2.n_new_tok == 20);
        CHECK(r2.stop_reason == DUET_STOP_LIMIT);
        duet_token_event e{};
        e.struct_size = sizeof e;
        CHECK(duet_generate_next(g, &e) == DUET_ERR_STATE);  // it has ended
        CHECK(std::string(duet_session_error(pulled.s)).find("has ended") != std::string::npos);
        duet_generation_free(g);
    }
}

TEST_CASE("generation: left at any step, the sequence goes on from there") {
    demo_session d(128, 4, 0.8f), whole_session(128, 4, 0.8f);
    seen whole, parts;
    duet_generation* g = begin(whole_session, kIds, 9);
    CHECK(pull(g, &whole) == DUET_STOP_LIMIT);
    duet_generation_free(g);
    for (int i = 0; i < 3; i++) {
        g = begin(d, i ? std::vector<int32_t>() : kIds, 9);
        CHECK(pull(g, &parts, 3 * (i + 1)) == DUET_STOP_NONE);
        CHECK(duet_seq_length(d.s, 0) == (int)kIds.size() + 3 * (i + 1));
        duet_generation_free(g);
    }
    CHECK(parts.ids == whole.ids);
    CHECK(parts.text == whole.text);
}

TEST_CASE("generation: ignore_end leaves the logits as they were, also where the cache is full") {
    demo_session d(128, 4, 0.8f);
    duet_session_params q = duet_session_params_default();
    q.n_ctx = 128;
    q.cache_tokens = 64;
    duet_session* s = nullptr;
    REQUIRE(duet_session_create(d.m, &q, &s) == DUET_OK);
    duet_generate_params p = duet_generate_params_default();
    p.max_new_tok = 100;
    p.ignore_end = 1;
    const auto go_on = [](void*, const duet_token_event*) -> int32_t { return 0; };
    CHECK(duet_generate(s, d.sampler, kIds.data(), kIds.size(), &p, go_on, nullptr, nullptr) == DUET_ERR_FULL);
    CHECK(duet_seq_length(s, 0) == 64);
    const float* logits = duet_logits(s, 0);
    REQUIRE(logits != nullptr);
    int n_ends = 0;
    for (int32_t id = 0; id < 512; id++) {
        if (!duet_token_is_end(d.m, id)) continue;
        n_ends++;
        CHECK(logits[id] > -INFINITY);
    }
    CHECK(n_ends > 0);
    duet_session_free(s);
}

TEST_CASE("generation: an exception out of the callback is an error, and the result tells what was done") {
    demo_session d;
    int n_told = 0;
    const auto refuse = [](void* user, const duet_token_event*) -> int32_t {
        if (++*(int*)user == 3) throw std::runtime_error("no more");
        return 0;
    };
    duet_generate_result r{};
    r.struct_size = sizeof r;
    CHECK(duet_generate(d.s, d.sampler, kIds.data(), kIds.size(), nullptr, refuse, &n_told, &r) == DUET_ERR_INTERNAL);
    CHECK(std::string(duet_session_error(d.s)).find("no more") != std::string::npos);
    CHECK(r.n_prompt_tok == (int)kIds.size());
    CHECK(r.n_new_tok == 3);
    CHECK(r.stop_reason == DUET_STOP_ERROR);
    CHECK(duet_seq_length(d.s, 0) == (int)kIds.size() + 3);
}

TEST_CASE("generation: cancelled and disturbed ones end with an error and say so in the last event") {
    demo_session d;
    seen k;
    duet_token_event e{};
    e.struct_size = sizeof e;
    duet_generation* g = begin(d, kIds, 50);
    CHECK(pull(g, &k, 2) == DUET_STOP_NONE);
    duet_session_cancel(d.s);
    CHECK(duet_generate_next(g, &e) == DUET_ERR_CANCELLED);
    CHECK(e.stop_reason == DUET_STOP_CANCELLED);
    CHECK(duet_seq_length(d.s, 0) == (int)kIds.size() + 2);
    duet_generation_free(g);

    g = begin(d, {}, 50);  // it can go on
    CHECK(pull(g, &k, 4) == DUET_STOP_NONE);
    REQUIRE(duet_seq_trim(d.s, 0, 5) == DUET_OK);  // somebody else changes the sequence
    CHECK(duet_generate_next(g, &e) == DUET_ERR_STATE);
    CHECK(e.stop_reason == DUET_STOP_ERROR);
    duet_generation_free(g);
    duet_generation_free(nullptr);
    CHECK(duet_generate_next(nullptr, &e) == DUET_ERR_ARG);
    CHECK(duet_generate_begin(d.s, d.sampler, nullptr, 0, nullptr, &g) == DUET_ERR_STATE);
    CHECK(g == nullptr);

    // Two generations of one sequence, and tokens between a prompt's pieces: the one that comes later is told.
    duet_generation* other = nullptr;
    REQUIRE(duet_seq_trim(d.s, 0, 0) == DUET_OK);
    g = begin(d, kIds, 50);
    seen first, second;
    CHECK(pull(g, &first, 2) == DUET_STOP_NONE);
    other = begin(d, {}, 50);
    CHECK(pull(other, &second, 1) == DUET_STOP_NONE);
    CHECK(duet_generate_next(g, &e) == DUET_ERR_STATE);
    CHECK(pull(other, &second, 2) == DUET_STOP_NONE);
    duet_generation_free(g);
    g = begin(d, kIds, 50);
    CHECK(pull(other, &second, 3) == DUET_STOP_NONE);
    CHECK(duet_generate_next(g, &e) == DUET_ERR_STATE);
    duet_generation_free(g);
    duet_generation_free(other);
}

TEST_CASE("generation: a character that a limit cuts off comes with the generation that completes it") {
    demo_session d;
    // byte tokens of an emoji are forced one after another by biases
    std::vector<int32_t> bytes;
    for (const char* name : {"<0xF0>", "<0x9F>", "<0x98>", "<0x80>"}) {
        for (int32_t id = 0; id < 4096 && bytes.size() < 4; id++) {
            const duet_string s = duet_token_spelling(d.m, id);
            if (s.data && std::string_view(s.data, s.n_bytes) == name) {
                bytes.push_back(id);
                break;
            }
        }
    }
    if (bytes.size() < 4) {
        say_skipped("cut characters", 1, "the demo model has no byte tokens");
        return;
    }
    std::string text;
    for (int i = 0; i < 4; i++) {
        for (int k = 0; k < 4; k++)
            REQUIRE(duet_sampler_bias(d.sampler, bytes[(size_t)k], k == i ? INFINITY : -INFINITY) == DUET_OK);
        seen k;
        duet_generation* g = begin(d, i ? std::vector<int32_t>() : kIds, 1);
        CHECK(pull(g, &k) == DUET_STOP_LIMIT);
        duet_generation_free(g);
        CHECK(k.text == (i == 3 ? "\xf0\x9f\x98\x80" : ""));
        text += k.text;
    }
    CHECK(text == "\xf0\x9f\x98\x80");
}

TEST_CASE("text gate: whole characters, stop strings, in any cut of the bytes") {
    const std::string bytes = "na\xc3\xafve \xf0\x9f\x98\x80 broken \xff\xe2\x82 and the STOP here";
    const std::string want = "na\xc3\xafve \xf0\x9f\x98\x80 broken \xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd and the ";
    const char* stops[] = {"never", "STOP"};
    for (size_t piece = 1; piece < bytes.size(); piece++) {
        duet_text_gate* g = nullptr;
        REQUIRE(duet_text_gate_create(stops, 2, &g) == DUET_OK);
        std::string got;
        int32_t stopped = 0;
        duet_string shown{};
        for (size_t at = 0; at < bytes.size() && !stopped; at += piece) {
            REQUIRE(duet_text_gate_add(g, bytes.data() + at, std::min(piece, bytes.size() - at), &shown, &stopped) ==
                    DUET_OK);
            got.append(shown.data, shown.n_bytes);
            for (size_t i = 0; i < shown.n_bytes;) {  // nothing but whole characters is ever shown
                const size_t n = duet_utf8_length(shown.data + i, shown.n_bytes - i);
                REQUIRE(n > 0);
                i += n;
            }
        }
        CHECK(stopped == 2);
        REQUIRE(duet_text_gate_finish(g, &shown) == DUET_OK);
        got.append(shown.data, shown.n_bytes);
        CHECK(got == want);
        duet_text_gate_free(g);
    }
    duet_text_gate* g = nullptr;
    CHECK(duet_text_gate_create(nullptr, 1, &g) == DUET_ERR_ARG);
    CHECK(std::string(duet_text_gate_error(g)).find("stop is NULL") != std::string::npos);
    duet_text_gate_free(g);
}

TEST_CASE("utf8: lengths of well-formed characters; 0 for everything else") {
    const auto length = [](std::string_view s) { return duet_utf8_length(s.data(), s.size()); };
    CHECK(duet_utf8_length(nullptr, 0) == 0);
    CHECK(length("") == 0);
    CHECK(length("a") == 1);
    CHECK(length(std::string_view("\0", 1)) == 1);
    CHECK(length("\xc3\xaf.") == 2);
    CHECK(length("\xe2\x82\xac") == 3);
    CHECK(length("\xf0\x9f\x98\x80") == 4);
    for (const char* bad : {"\x80", "\xc0\x80", "\xc3", "\xe0\x80\x80", "\xed\xa0\x80", "\xe2\x82", "\xf0\x80\x80\x80",
                            "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff", "\xf0\x9f\x98"})
        CHECK(length(bad) == 0);
}

TEST_CASE("struct_size: 0 and sizes beyond the library's are refused with a text; older programs' sizes are not") {
    demo_session d;
    duet_batch b = duet_batch_default();
    b.n_tok = 1;
    b.token = kIds.data();
    for (const uint32_t size : {0u, 3u, (uint32_t)sizeof b + 8}) {
        b.struct_size = size;
        CHECK(duet_decode(d.s, &b) == DUET_ERR_ARG);
        CHECK(std::string(duet_session_error(d.s)).find("duet_batch.struct_size") != std::string::npos);
    }
    b.struct_size = (uint32_t)offsetof(duet_batch, want_logits);  // without the last field
    CHECK(duet_decode(d.s, &b) == DUET_OK);
    CHECK(duet_logits_count(d.s) == 1);
    struct {
        duet_memory_plan plan;
        uint64_t behind;
    } room;
    memset(&room, 0x5a, sizeof room);
    room.plan.struct_size = (uint32_t)offsetof(duet_memory_plan, work_bytes);
    CHECK(duet_session_plan(d.m, nullptr, &room.plan) == DUET_OK);
    CHECK(room.plan.cache_bytes + room.plan.state_bytes > 0);
    CHECK(room.plan.work_bytes == 0x5a5a5a5a5a5a5a5aull);  // not written
    room.plan.struct_size = 0;
    CHECK(duet_session_plan(d.m, nullptr, &room.plan) == DUET_ERR_ARG);
    duet_generate_result r{};
    CHECK(duet_generate(d.s, d.sampler, kIds.data(), 1, nullptr, nullptr, nullptr, &r) == DUET_ERR_ARG);
    duet_session_params small{};
    duet_session_params_init(&small, 8);  // a program that knows two fields
    CHECK(small.struct_size == 8);
    CHECK(small.n_seqs == 0);
}

TEST_CASE("profile: rows are a picture that does not change until the next one") {
    demo_session d;
    CHECK(duet_session_profile_row(d.s, 0) == nullptr);  // nothing was taken yet
    duet_session_profile(d.s, 1);
    duet_batch b = duet_batch_default();
    b.n_tok = 3;
    b.token = kIds.data();
    REQUIRE(duet_decode(d.s, &b) == DUET_OK);
    const int32_t n = duet_session_profile_rows(d.s);
    REQUIRE(n > 3);
    const duet_profile_row* row = duet_session_profile_row(d.s, 0);
    REQUIRE(row != nullptr);
    CHECK(row->struct_size == sizeof *row);
    const uint64_t n_calls = row->n_calls;
    REQUIRE(duet_decode(d.s, &b) == DUET_OK);
    CHECK(duet_session_profile_row(d.s, 0)->n_calls == n_calls);
    CHECK(duet_session_profile_row(d.s, n) == nullptr);
    CHECK(duet_session_profile_rows(d.s) == n);
    CHECK(duet_session_profile_row(d.s, 0)->n_calls > n_calls);
    CHECK(duet_session_profile_rows(nullptr) == -1);
}

namespace {

// Opens a copy of the demo model, shortens the file, and computes. Returns 0, or the step that failed.
int compute_while_it_shrinks(const std::string& path, int32_t load) {
    std::filesystem::copy_file("models/demo.gguf", path, std::filesystem::copy_options::overwrite_existing);
    duet_model_params p = duet_model_params_default();
    p.device = "cpu";
    p.cpu_isa = "scalar";
    p.n_threads = 1;
    p.load = load;
    duet_model* m = nullptr;
    duet_session* s = nullptr;
    duet_session_params q = duet_session_params_default();
    q.n_ctx = 32;
    duet_batch b = duet_batch_default();
    b.n_tok = (int32_t)kIds.size();
    b.token = kIds.data();
    std::error_code refused;
    int step = 0;
    if (duet_model_open(path.c_str(), &p, &m) != DUET_OK) step = 1;
    else if (std::filesystem::resize_file(path, 4096, refused); refused) step = 2;
    if (step % 2 == 0) {
        if (duet_session_create(m, &q, &s) != DUET_OK) step = 3;
        else if (duet_decode(s, &b) != DUET_OK) step = 4;
        else if (!(duet_logits(s, 0)[419] == duet_logits(s, 0)[419])) step = 5;
    }
    duet_session_free(s);
    duet_model_free(m);
    return step;
}

}  // namespace

TEST_CASE("a model that was read survives its file; a mapped one does not, as runtime.h says") {
    const std::string path =
        (std::filesystem::temp_directory_path() / ("duet_shrinks_" + std::to_string(getpid()) + ".gguf")).string();
#ifdef _WIN32
    CHECK(compute_while_it_shrinks(path, DUET_LOAD_COPY) == 0);
    CHECK(compute_while_it_shrinks(path, DUET_LOAD_MAP) == 2);  // the system refuses to shorten it
#else
    const auto run = [&](int32_t load) -> int {  // in a process of its own: its exit code, or minus its signal
        const pid_t child = fork();
        if (child == 0) _exit(compute_while_it_shrinks(path, load));
        int status = 0;
        waitpid(child, &status, 0);
        return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
    };
    CHECK(run(DUET_LOAD_COPY) == 0);
#if !defined(__SANITIZE_ADDRESS__)
    CHECK(run(DUET_LOAD_MAP) == -SIGBUS);
#endif
#endif
    std::filesystem::remove(path);
    duet_model_params p = duet_model_params_default();
    p.load = 7;
    duet_model* m = nullptr;
    CHECK(duet_model_open("models/demo.gguf", &p, &m) == DUET_ERR_ARG);
    CHECK(std::string(duet_model_error(m)).find("load: want 0 (map) or 1 (copy), got 7") != std::string::npos);
    duet_model_free(m);
}
