// tests/test_sequences.cpp: the ids that sequences hold, through everything that changes them, and how much of a
// sequence a new prompt can keep: all models, recurrent ones, windowed ones.
#include "doctest.h"
#include "../runtime/calls.h"
#include "test_data.h"

namespace {

struct seq_session {
    duet_model* m = nullptr;
    duet_session* s = nullptr;
    int32_t n_vocab = 0;
    explicit seq_session(const std::string& path, int n_ctx = 256, int n_seqs = 4, int max_batch = 16,
                         int64_t cache_tokens = 0) {
        duet_model_params p = duet_model_params_default();
        p.device = test_device();
        p.n_threads = 1;
        REQUIRE(duet_model_open(path.c_str(), &p, &m) == DUET_OK);
        duet_session_params q = duet_session_params_default();
        q.n_ctx = n_ctx;
        q.n_seqs = n_seqs;
        q.max_batch = max_batch;
        q.cache_tokens = cache_tokens;
        REQUIRE(duet_session_create(m, &q, &s) == DUET_OK);
        duet_model_info info{};
        info.struct_size = sizeof info;
        REQUIRE(duet_model_get_info(m, &info) == DUET_OK);
        n_vocab = info.n_vocab;
    }
    ~seq_session() {
        duet_session_free(s);
        duet_model_free(m);
    }
    seq_session(const seq_session&) = delete;

    std::vector<int32_t> ids(int n, int first = 0) const {
        std::vector<int32_t> out;
        for (int i = 0; i < n; i++) out.push_back((first + i * 37) % (n_vocab - 3) + 3);
        return out;
    }
    duet_status feed(const std::vector<int32_t>& ids, int32_t seq = 0) const {
        const std::vector<int32_t> seqs(ids.size(), seq);
        const duet_batch b{sizeof(duet_batch), (int32_t)ids.size(), ids.data(), nullptr, seqs.data(), nullptr};
        return duet_decode(s, &b);
    }
    std::vector<int32_t> held(int32_t seq = 0) const {
        const int32_t* ids = duet_seq_ids(s, seq);
        REQUIRE(ids != nullptr);
        return {ids, ids + duet_seq_length(s, seq)};
    }
    std::vector<float> logits() const { return {duet_logits(s, 0), duet_logits(s, 0) + n_vocab}; }
    std::vector<uint8_t> save(int32_t seq) const {
        uint64_t n = 0;
        REQUIRE(duet_seq_save(s, seq, nullptr, 0, &n) == DUET_OK);
        std::vector<uint8_t> state(n);
        REQUIRE(duet_seq_save(s, seq, state.data(), n, &n) == DUET_OK);
        return state;
    }
};

std::vector<int32_t> joined(std::vector<int32_t> a, const std::vector<int32_t>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}
std::vector<int32_t> first(const std::vector<int32_t>& a, size_t n) { return {a.begin(), a.begin() + (long)n}; }

}  // namespace

TEST_CASE("sequences know their ids through decoding, trimming, copying, saving and loading") {
    const seq_session a("models/demo.gguf"), b("models/demo.gguf", 300, 2, 64);
    CHECK(duet_seq_ids(a.s, 4) == nullptr);
    CHECK(duet_seq_ids(a.s, -1) == nullptr);
    CHECK(duet_seq_ids(nullptr, 0) == nullptr);
    CHECK(a.held().empty());
    const std::vector<int32_t> ids = a.ids(100), more = a.ids(30, 7);
    REQUIRE(a.feed(ids) == DUET_OK);  // in pieces of 16
    CHECK(a.held() == ids);
    // two sequences take turns in a batch
    std::vector<int32_t> token, seq;
    for (size_t i = 0; i < more.size(); i++) {
        token.push_back(more[i]), seq.push_back(2);
        if (i < 10) token.push_back(ids[i]), seq.push_back(0);
    }
    const duet_batch mixed{sizeof(duet_batch), (int32_t)token.size(), token.data(), nullptr, seq.data(), nullptr};
    REQUIRE(duet_decode(a.s, &mixed) == DUET_OK);
    CHECK(a.held(0) == joined(ids, first(ids, 10)));
    CHECK(a.held(2) == more);
    // what fails changes nothing
    CHECK(a.feed({5, a.n_vocab}) == DUET_ERR_ARG);
    CHECK(a.feed(a.ids(200)) == DUET_ERR_FULL);
    duet_session_cancel(a.s);
    CHECK(a.feed(more) == DUET_ERR_CANCELLED);
    CHECK(a.held() == joined(joined(ids, first(ids, 10)), first(more, (size_t)duet_seq_length(a.s, 0) - 110)));
    REQUIRE(duet_seq_trim(a.s, 0, 70) == DUET_OK);
    CHECK(a.held() == first(ids, 70));
    REQUIRE(a.feed(more) == DUET_OK);
    REQUIRE(duet_seq_copy(a.s, 0, 1) == DUET_OK);
    REQUIRE(duet_seq_copy(a.s, 2, 0) == DUET_OK);
    CHECK(a.held(1) == joined(first(ids, 70), more));
    CHECK(a.held(0) == more);
    const std::vector<uint8_t> state = a.save(1);
    CHECK(memcmp(state.data(), "DUETSEQ2", 8) == 0);
    REQUIRE(duet_seq_load(b.s, 1, state.data(), state.size()) == DUET_OK);
    CHECK(b.held(1) == joined(first(ids, 70), more));
    CHECK(b.held(0).empty());
    // a whole state with an id that the model does not have
    std::vector<uint8_t> bad = state;
    const int32_t id = b.n_vocab;
    memcpy(bad.data() + bad.size() - 8, &id, 4);
    const uint64_t hash = duet::hash_words(bad.data() + 48, bad.size() - 48, 100);
    memcpy(bad.data() + 40, &hash, 8);
    CHECK(duet_seq_load(b.s, 1, bad.data(), bad.size()) == DUET_ERR_FORMAT);
    CHECK(std::string(duet_session_error(b.s)).find("token 98: want an id") != std::string::npos);
    CHECK(duet_seq_length(b.s, 1) == 100);
    REQUIRE(duet_seq_trim(b.s, 1, 0) == DUET_OK);
    CHECK(b.held(1).empty());
    const std::vector<uint8_t> nothing = b.save(1);
    CHECK(duet_seq_load(b.s, 0, nothing.data(), nothing.size()) == DUET_OK);
    CHECK(b.held(0).empty());
}

TEST_CASE("sequences know the ids that a generation chose") {
    const seq_session a("models/demo.gguf");
    duet_sampler* sampler = nullptr;
    REQUIRE(duet_sampler_create(1, &sampler) == DUET_OK);
    duet_generate_params p = duet_generate_params_default();
    p.max_new_tok = 12;
    p.ignore_end = 1;
    std::vector<int32_t> told = a.ids(20);
    const auto keep = [](void* user, const duet_token_event* e) -> int32_t {
        if (e->id >= 0) ((std::vector<int32_t>*)user)->push_back(e->id);
        return 0;
    };
    REQUIRE(duet_generate(a.s, sampler, a.ids(20).data(), 20, &p, keep, &told, nullptr) == DUET_OK);
    CHECK(told.size() == 32);
    CHECK(a.held() == told);
    duet_sampler_free(sampler);
}

TEST_CASE("a prompt keeps what it shares with a sequence, and the rest gives the same bits") {
    const seq_session a("models/demo.gguf"), fresh("models/demo.gguf");
    const std::vector<int32_t> ids = a.ids(90), other = joined(first(ids, 70), a.ids(10, 5));
    REQUIRE(a.feed(ids) == DUET_OK);
    CHECK(duet_seq_reuse(a.s, 7, ids.data(), ids.size()) == -1);
    CHECK(duet_seq_reuse(nullptr, 0, ids.data(), ids.size()) == -1);
    CHECK(duet_seq_reuse(a.s, 0, nullptr, 1) == -1);
    CHECK(a.held() == ids);
    CHECK(duet_seq_reuse(a.s, 0, joined(ids, {5, 6}).data(), 92) == 90);
    CHECK(a.held() == ids);
    CHECK(duet_seq_reuse(a.s, 0, other.data(), other.size()) == 70);
    CHECK(a.held() == first(ids, 70));
    REQUIRE(a.feed({other.begin() + 70, other.end()}) == DUET_OK);
    REQUIRE(fresh.feed(other) == DUET_OK);
    CHECK(a.logits() == fresh.logits());
    CHECK(duet_seq_reuse(a.s, 0, other.data(), 64) == 64);
    CHECK(duet_seq_reuse(a.s, 0, a.ids(9, 1).data(), 9) == 0);
    CHECK(duet_seq_length(a.s, 0) == 0);
    REQUIRE(a.feed(ids) == DUET_OK);
    CHECK(duet_seq_reuse(a.s, 0, nullptr, 0) == 0);
    CHECK(duet_seq_length(a.s, 0) == 0);
}

TEST_CASE("recurrent sequences keep all or nothing") {
    for (const char* name : {"qwen35", "granitehybrid", "lfm2"}) {
        CAPTURE(name);
        const seq_session a(tiny_model_folder(name) + "/model.gguf", 256, 2);
        const std::vector<int32_t> ids = a.ids(40), longer = joined(ids, a.ids(3, 9));
        REQUIRE(a.feed(ids) == DUET_OK);
        REQUIRE(duet_seq_copy(a.s, 0, 1) == DUET_OK);
        CHECK(a.held(1) == ids);
        CHECK(duet_seq_reuse(a.s, 0, longer.data(), longer.size()) == 40);
        REQUIRE(a.feed({longer.begin() + 40, longer.end()}) == DUET_OK);
        const std::vector<float> want = a.logits();
        CHECK(duet_seq_reuse(a.s, 0, longer.data(), 42) == 0);  // of its 43
        CHECK(a.held(0).empty());
        REQUIRE(a.feed(longer) == DUET_OK);
        CHECK(a.logits() == want);
        const std::vector<uint8_t> state = a.save(0);
        REQUIRE(duet_seq_load(a.s, 1, state.data(), state.size()) == DUET_OK);
        CHECK(a.held(1) == longer);
        // a piece that was stopped half way leaves neither tokens nor ids
        duet_session_cancel(a.s);
        CHECK(a.feed(ids, 1) == DUET_ERR_CANCELLED);
        CHECK(a.held(1).size() == (size_t)duet_seq_length(a.s, 1));
    }
}

TEST_CASE("windowed sequences keep what their windows can go back to, or nothing") {
    const seq_session a(tiny_model_folder("gemma3") + "/model.gguf", 2048, 1, 64),
        fresh(tiny_model_folder("gemma3") + "/model.gguf", 2048, 1, 64);
    const std::vector<int32_t> ids = a.ids(1000);
    REQUIRE(a.feed(ids) == DUET_OK);
    CHECK(duet_seq_reuse(a.s, 0, ids.data(), 990) == 990);  // the pages of its last batch are still there
    std::vector<int32_t> other = joined(first(ids, 980), a.ids(20, 3));
    CHECK(duet_seq_reuse(a.s, 0, other.data(), other.size()) == 980);
    REQUIRE(a.feed({other.begin() + 980, other.end()}) == DUET_OK);
    REQUIRE(fresh.feed(other) == DUET_OK);
    CHECK(a.logits() == fresh.logits());
    CHECK(duet_seq_reuse(a.s, 0, other.data(), 100) == 0);
    CHECK(a.held().empty());
    REQUIRE(a.feed(other) == DUET_OK);
    CHECK(a.logits() == fresh.logits());
}

TEST_CASE("sequences take their pages from one pool; a batch for which it is too small changes nothing") {
    for (const char* name : {"", "gemma3", "qwen35"}) {
        CAPTURE(name);
        const std::string path = *name ? tiny_model_folder(name) + "/model.gguf" : "models/demo.gguf";
        const seq_session a(path, 256, 4, 16, 384), fresh(path, 256, 1, 64);  // six pages
        CHECK(duet_session_room(a.s) == 384);
        const std::vector<int32_t> ids = a.ids(250);
        REQUIRE(a.feed(ids, 0) == DUET_OK);
        CHECK(duet_session_room(a.s) == 128);
        REQUIRE(a.feed(first(ids, 64), 1) == DUET_OK);
        CHECK(duet_session_room(a.s) == 64);
        // two sequences of a batch, of which one finds no room; and a batch whose last pieces find none
        std::vector<int32_t> token, seq;
        for (int i = 0; i < 10; i++)
            for (int32_t q : {1, 2}) token.push_back(ids[(size_t)i]), seq.push_back(q);
        const duet_batch two{sizeof(duet_batch), (int32_t)token.size(), token.data(), nullptr, seq.data(), nullptr};
        CHECK(duet_decode(a.s, &two) == DUET_ERR_FULL);
        CHECK(std::string(duet_session_error(a.s))
                  .find("the cache is full: sequence 2 wants a page for position 0, "
                        "all 6 pages of 64 tokens are taken") != std::string::npos);
        CHECK(a.feed(first(ids, 65), 2) == DUET_ERR_FULL);
        CHECK(a.held(0) == ids);
        CHECK(a.held(1) == first(ids, 64));
        CHECK(a.held(2).empty());
        CHECK(duet_session_room(a.s) == 64);
        // what was trimmed makes room, and the bits are those of a session with room for all
        REQUIRE(duet_seq_trim(a.s, 0, 0) == DUET_OK);
        REQUIRE(duet_decode(a.s, &two) == DUET_OK);
        REQUIRE(fresh.feed(first(ids, 10)) == DUET_OK);
        CHECK(a.logits() == fresh.logits());
        CHECK(duet_session_room(a.s) == 192);
        // a shared page counts once; writing into it takes one more
        REQUIRE(duet_seq_copy(a.s, 1, 3) == DUET_OK);
        CHECK(duet_session_room(a.s) == 192);
        REQUIRE(a.feed({7}, 3) == DUET_OK);
        CHECK(duet_session_room(a.s) == 128);
        // a saved state needs room, too
        const std::vector<uint8_t> state = a.save(1);
        REQUIRE(a.feed(first(ids, 128), 0) == DUET_OK);
        CHECK(duet_session_room(a.s) == 0);
        CHECK(duet_seq_load(a.s, 2, state.data(), state.size()) == DUET_ERR_FULL);
        CHECK(a.held(2).empty());
        // the plan is of the pool, not of all sequences
        duet_session_params small = duet_session_params_default(), large = small;
        small.n_ctx = large.n_ctx = 256;
        small.n_seqs = large.n_seqs = 4;
        small.cache_tokens = 384;
        duet_memory_plan six{}, all{};
        six.struct_size = all.struct_size = sizeof six;
        REQUIRE(duet_session_plan(a.m, &small, &six) == DUET_OK);
        REQUIRE(duet_session_plan(a.m, &large, &all) == DUET_OK);
        if (std::string(name) != "gemma3")  // whose windowed layers need fewer pages
            CHECK(16 * (six.cache_bytes + six.gpu_cache_bytes) == 6 * (all.cache_bytes + all.gpu_cache_bytes));
        small.cache_tokens = -1;
        CHECK(duet_session_plan(a.m, &small, &six) == DUET_ERR_ARG);
    }
}

TEST_CASE("a saved state has nothing of other sequences") {
    const seq_session a("models/demo.gguf", 256, 2, 64), fresh("models/demo.gguf", 256, 1, 64);
    const std::vector<int32_t> ids = a.ids(60);
    REQUIRE(a.feed(ids, 1) == DUET_OK);
    REQUIRE(duet_seq_trim(a.s, 1, 0) == DUET_OK);
    REQUIRE(a.feed(first(ids, 3), 0) == DUET_OK);
    REQUIRE(fresh.feed(first(ids, 3)) == DUET_OK);
    CHECK(a.save(0) == fresh.save(0));
}

TEST_CASE("a generation that finds no page ends with an error, and goes on when there is room") {
    for (const float temp : {0.0f, 1.0f}) {  // with a draw, the text is that of a cache with room, too
        const seq_session a("models/demo.gguf", 256, 2, 16, 256), fresh("models/demo.gguf");
        duet_sampler* sampler = nullptr;
        REQUIRE(duet_sampler_create(3, &sampler) == DUET_OK);
        REQUIRE(duet_sampler_set(sampler, "temp", temp) == DUET_OK);
        REQUIRE(duet_sampler_set(sampler, "mirostat.tau", 5 * temp) == DUET_OK);
        const auto answer = [&](const seq_session& s, int32_t n, std::vector<int32_t> ids) {
            duet_generate_params p = duet_generate_params_default();
            p.max_new_tok = n;
            p.ignore_end = 1;
            return duet_generate(s.s, sampler, ids.data(), ids.size(), &p, nullptr, nullptr, nullptr);
        };
        REQUIRE(a.feed(a.ids(120), 1) == DUET_OK);
        CHECK(answer(a, 40, a.ids(100)) == DUET_ERR_FULL);
        CHECK(duet_seq_length(a.s, 0) == 128);
        CHECK(answer(a, 12, {}) == DUET_ERR_FULL);
        REQUIRE(duet_seq_trim(a.s, 1, 0) == DUET_OK);
        CHECK(answer(a, 12, {}) == DUET_OK);
        duet_sampler_reset(sampler, 3);
        CHECK(answer(fresh, 40, a.ids(100)) == DUET_OK);
        CHECK(a.held() == fresh.held());
        duet_sampler_free(sampler);
    }
}

TEST_CASE("sequences: nothing of a recurrent model's text is saved with an empty sequence") {
    const seq_session a(tiny_model_folder("qwen35") + "/model.gguf", 64);
    const std::vector<uint8_t> fresh = a.save(1);
    REQUIRE(a.feed(a.ids(5)) == DUET_OK);
    REQUIRE(duet_seq_trim(a.s, 0, 0) == DUET_OK);
    CHECK(a.save(0) == fresh);
    REQUIRE(duet_seq_copy(a.s, 0, 1) == DUET_OK);
    CHECK(a.save(1) == fresh);
}

TEST_CASE("sequences: a full cache changes nothing, also where all layers have a window") {
    const std::vector<std::string> change = {"u .attention.sliding_window 40", "u .context_length 512"};
    for (const std::string name : {"lfm2", "gemma3"}) {
        CAPTURE(name);
        const seq_session a(changed_model_folder(name, change) + "/model.gguf", 512, 2, 64, 128);
        REQUIRE(a.feed(a.ids(10), 1) == DUET_OK);
        const int32_t room = duet_session_room(a.s) > 0 ? (int32_t)duet_session_room(a.s) : 0;
        const duet_status st = a.feed(a.ids(100), 0);
        CHECK((st == DUET_OK ? duet_seq_length(a.s, 0) == 100 : st == DUET_ERR_FULL && duet_seq_length(a.s, 0) == 0));
        CHECK((st == DUET_OK) == (room >= 100));
    }
}
