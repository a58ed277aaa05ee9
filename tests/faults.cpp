// tests/faults.cpp: a program of its own that makes the nth allocation of every exported function fail, for n = 1, 2,
// ... until the call succeeds. Each n runs in a process of its own. After each failure this must hold: the call
// returned a status, or its "none" value; an error status has a text; the same call on the same handles now succeeds,
// and the handles can be freed; no allocation is left over.
//
//   faults [CALL] [STEP]    tests all calls, or those whose name contains CALL; STEP > 1 tries about every STEPth n
//
// DUET_TEST_DEVICE names another device than the CPU. Only allocations by operator new, such as those of the standard
// library, fail; memory from malloc (files, page cache) does not.
#include "../runtime.h"

#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <new>
#include <string>
#include <vector>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

long n_until_failure = -1;  // allocations that still succeed; -1: all do
bool has_failed = false;
long n_live = 0;

void* allocate(size_t n, size_t align) {
    if (n_until_failure == 0) {
        has_failed = true;
        n_until_failure = -1;
        return nullptr;
    }
    if (n_until_failure > 0) n_until_failure--;
    void* block = nullptr;
    if (align <= 16) block = malloc(n ? n : 1);
    else if (posix_memalign(&block, align, n ? n : 1) != 0) block = nullptr;
    if (block) n_live++;
    return block;
}

void* allocate_or_throw(size_t n, size_t align) {
    if (void* block = allocate(n, align)) return block;
    throw std::bad_alloc();
}

void release(void* block) {
    if (block) n_live--;
    free(block);
}

}  // namespace

// clang-format off
void* operator new(size_t n) { return allocate_or_throw(n, 0); }
void* operator new[](size_t n) { return allocate_or_throw(n, 0); }
void* operator new(size_t n, std::align_val_t a) { return allocate_or_throw(n, (size_t)a); }
void* operator new[](size_t n, std::align_val_t a) { return allocate_or_throw(n, (size_t)a); }
void* operator new(size_t n, const std::nothrow_t&) noexcept { return allocate(n, 0); }
void* operator new[](size_t n, const std::nothrow_t&) noexcept { return allocate(n, 0); }
void* operator new(size_t n, std::align_val_t a, const std::nothrow_t&) noexcept { return allocate(n, (size_t)a); }
void* operator new[](size_t n, std::align_val_t a, const std::nothrow_t&) noexcept { return allocate(n, (size_t)a); }
void operator delete(void* p) noexcept { release(p); }
void operator delete[](void* p) noexcept { release(p); }
void operator delete(void* p, size_t) noexcept { release(p); }
void operator delete[](void* p, size_t) noexcept { release(p); }
void operator delete(void* p, std::align_val_t) noexcept { release(p); }
void operator delete[](void* p, std::align_val_t) noexcept { release(p); }
void operator delete(void* p, size_t, std::align_val_t) noexcept { release(p); }
void operator delete[](void* p, size_t, std::align_val_t) noexcept { release(p); }
void operator delete(void* p, const std::nothrow_t&) noexcept { release(p); }
void operator delete[](void* p, const std::nothrow_t&) noexcept { release(p); }
void operator delete(void* p, std::align_val_t, const std::nothrow_t&) noexcept { release(p); }
void operator delete[](void* p, std::align_val_t, const std::nothrow_t&) noexcept { release(p); }
// clang-format on

namespace {

const char* kDemo = "models/demo.gguf";
constexpr duet_status kNone = 1;  // a function without a status returned its "none" value

void check(bool is_good, const char* what) {
    if (is_good) return;
    fprintf(stderr, "  failed: %s\n", what);
    _exit(3);
}

// The handles that a call is made on. All of them work.
struct world {
    duet_model* model = nullptr;
    duet_session* session = nullptr;
    duet_sampler* sampler = nullptr;
    duet_grammar* grammar = nullptr;      // of any text
    duet_sampler* constrained = nullptr;  // by that grammar
    duet_generation* generation = nullptr;
    duet_text_gate* gate = nullptr;
    duet_writer* writer = nullptr;
    duet_file* file = nullptr;
    duet_chat* chat = nullptr;
    duet_chat_turn* turn = nullptr;
    std::vector<uint8_t> state;  // of sequence 0
    std::vector<uint8_t> saved;  // the chat
    std::vector<float> logits;
    std::string file_bytes;
};

const int32_t kIds[] = {1, 419, 426, 13, 434, 260, 416, 300, 301, 302};

duet_batch batch_of(int32_t n) {
    duet_batch b = duet_batch_default();
    b.n_tok = n;
    b.token = kIds;
    return b;
}

int32_t read_bytes(void* user, uint64_t offset, void* dst, uint64_t n) {
    memcpy(dst, ((world*)user)->file_bytes.data() + offset, n);
    return 0;
}

duet_model_params test_params() {
    const char* device = getenv("DUET_TEST_DEVICE");
    duet_model_params p = duet_model_params_default();
    p.device = device ? device : "cpu";
    p.n_threads = 1;
    return p;
}

// Opens a model by f and frees it. An error must have a text, on the handle or, where there is none, on the thread.
template <class Open> duet_status open_and_free(Open open) {
    duet_model* m = nullptr;
    const duet_status st = open(&m);
    check(m || st == DUET_ERR_MEMORY, "a handle, or DUET_ERR_MEMORY");
    check(st == DUET_OK || duet_model_error(m)[0], "a text");
    duet_model_free(m);
    return st;
}

template <class Handle>
duet_status made(duet_status st, Handle* handle, const char* (*error)(const Handle*), void (*freed)(Handle*)) {
    check(st == DUET_OK || error(handle)[0], "a text");
    freed(handle);
    return st;
}

template <class Handle> duet_status told(duet_status st, const Handle* handle, const char* (*error)(const Handle*)) {
    check(st == DUET_OK || error(handle)[0], "a text");
    return st;
}
duet_status on_session(world& w, duet_status st) { return told(st, w.session, duet_session_error); }
duet_status on_sampler(world& w, duet_status st) { return told(st, w.sampler, duet_sampler_error); }
duet_status on_writer(world& w, duet_status st) { return told(st, w.writer, duet_writer_error); }
duet_status on_model(world& w, duet_status st) { return told<duet_model>(st, w.model, duet_model_error); }
duet_status on_gate(world& w, duet_status st) { return told(st, w.gate, duet_text_gate_error); }
duet_status on_chat(world& w, duet_status st) { return told(st, w.chat, duet_chat_error); }
duet_status by_thread(world&, duet_status st) { return told<duet_model>(st, nullptr, duet_model_error); }

int32_t refuse_nothing(void*, const void*, uint64_t) { return 0; }

constexpr const char* kTemplate =
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{# <tool_call> </think> #}";
constexpr const char* kTools = "[{\"name\": \"look\", \"parameters\": {\"properties\": {\"at\": {\"type\": "
                               "\"string\"}}}}]";

duet_status make_chat(world& w, duet_chat** out) {
    duet_chat_params p = duet_chat_params_default();
    p.chat_template = kTemplate;
    p.tools = kTools;
    return duet_chat_create(w.model, &p, out);
}

duet_status begin_turn(world& w, duet_chat_turn** out) {
    duet_chat_turn_params p = duet_chat_turn_params_default();
    p.max_new_tok = 4;
    return on_chat(w, duet_chat_begin(w.chat, w.session, w.sampler, &p, out));
}

struct call {
    const char* name;
    duet_status (*run)(world& w);
};

duet_status plan_call(world& w) {
    duet_memory_plan plan = {};
    plan.struct_size = sizeof plan;
    return on_model(w, duet_session_plan(w.model, nullptr, &plan));
}

duet_status create_call(world& w) {
    duet_session* s = nullptr;
    duet_session_params p = duet_session_params_default();
    p.n_ctx = 64;
    const duet_status st = duet_session_create(w.model, &p, &s);
    check(s || st == DUET_ERR_MEMORY, "a handle, or DUET_ERR_MEMORY");
    return made(st, s, duet_session_error, duet_session_free);
}

duet_status decode_call(world& w) {
    const duet_batch b = batch_of(9);  // in pieces of 4
    return on_session(w, duet_decode(w.session, &b));
}

duet_status decode_8(world& w, int32_t seq) {
    const int32_t seqs[8] = {seq, seq, seq, seq, seq, seq, seq, seq};
    duet_batch b = batch_of(8);
    b.seq = seqs;
    return duet_decode(w.session, &b);
}

// The second token of a shape, which an emulated device records or walks. What is loaded afterwards has to arrive.
duet_status recorded_call(int32_t recording) {
    const long n = n_until_failure;
    n_until_failure = -1;
    duet_model_params p = test_params();
    p.device = "emu32";
    p.gpu_recording = recording;
    duet_session_params q = duet_session_params_default();
    q.n_ctx = 64;
    duet_model* model = nullptr;
    duet_session* s = nullptr;
    check(duet_model_open(kDemo, &p, &model) == DUET_OK, "the model opens on the emulator");
    check(duet_session_create(model, &q, &s) == DUET_OK, "the session is made there");
    duet_batch text = batch_of(3);
    const duet_batch token = batch_of(1);
    check(duet_decode(s, &text) == DUET_OK, "a text");
    uint64_t n_bytes = 0;
    check(duet_seq_save(s, 0, nullptr, 0, &n_bytes) == DUET_OK, "the state's size");
    std::vector<uint8_t> state(n_bytes);
    check(duet_seq_save(s, 0, state.data(), n_bytes, &n_bytes) == DUET_OK, "the state");
    check(duet_decode(s, &token) == DUET_OK, "the first token of the shape");
    const std::vector<float> want(duet_logits(s, 0), duet_logits(s, 0) + 512);
    text.token = kIds + 3;
    check(duet_seq_trim(s, 0, 0) == DUET_OK && duet_decode(s, &text) == DUET_OK, "another text");
    n_until_failure = n;
    const duet_status st = duet_decode(s, &token);
    n_until_failure = -1;
    check(duet_seq_load(s, 0, state.data(), n_bytes) == DUET_OK && duet_decode(s, &token) == DUET_OK, "loaded");
    check(memcmp(duet_logits(s, 0), want.data(), want.size() * sizeof(float)) == 0, "the text that was loaded");
    duet_session_free(s);
    duet_model_free(model);
    return st;
}

duet_status generate_call(world& w) {
    const char* stop[] = {"never this"};
    duet_generate_params p = duet_generate_params_default();
    p.max_new_tok = 6;
    p.ignore_end = 1;
    p.stop = stop;
    p.n_stop = 1;
    duet_generate_result r = {};
    r.struct_size = sizeof r;
    struct counter {
        int n = 0;
    } told_ids;
    const int32_t before = duet_seq_length(w.session, 0);
    const auto count = [](void* user, const duet_token_event* e) -> int32_t {
        ((counter*)user)->n += e->id >= 0;
        return 0;
    };
    const duet_status st = duet_generate(w.session, w.sampler, kIds, 7, &p, count, &told_ids, &r);
    const int32_t length = duet_seq_length(w.session, 0);
    // what was told is in the sequence, and nothing else of the text
    if (r.n_prompt_tok == 7) check(length == before + 7 + told_ids.n && r.n_new_tok == told_ids.n, "the tokens told");
    check(st == DUET_OK || r.stop_reason == DUET_STOP_ERROR, "stop_reason ERROR");
    if (const float* logits = duet_logits(w.session, 0))  // ignore_end forbids end tokens for the choice alone
        for (int32_t id = 0; id < 512; id++)
            check(!duet_token_is_end(w.model, id) || logits[id] > -INFINITY, "end tokens have their logits again");
    check(duet_seq_trim(w.session, 0, before) == DUET_OK, "trimmed");
    return on_session(w, st);
}

duet_status begin_call(world& w) {
    duet_generation* g = nullptr;
    const duet_status st = duet_generate_begin(w.session, w.sampler, kIds, 3, nullptr, &g);
    check((g != nullptr) == (st == DUET_OK), "a generation, or an error");
    duet_generation_free(g);
    return on_session(w, st);
}

duet_status load_call(world& w) {  // more often than there would be pages, if some were lost
    const duet_status st = duet_seq_load(w.session, 1, w.state.data(), w.state.size());
    if (st != DUET_OK)
        check(duet_seq_length(w.session, 1) == 0 || duet_seq_length(w.session, 1) == 7, "whole or empty");
    return on_session(w, st);
}

duet_status create_grammar_call(world& w, const char* gbnf, const char* schema) {
    const char* triggers[] = {"<tool>"};
    duet_grammar_params p = duet_grammar_params_default();
    p.gbnf = gbnf;
    p.json_schema = schema;
    if (gbnf) p.triggers = triggers, p.n_triggers = 1;
    duet_grammar* g = nullptr;
    const duet_status st = duet_grammar_create(w.model, &p, &g);
    check(g || st == DUET_ERR_MEMORY, "a handle, or DUET_ERR_MEMORY");
    check(st == DUET_OK || duet_sampler_grammar(w.sampler, g) != DUET_OK || !g, "what was not made is refused");
    return made(st, g, duet_grammar_error, duet_grammar_free);
}

duet_status constrained_generate_call(world& w) {
    duet_generate_params p = duet_generate_params_default();
    p.max_new_tok = 4;
    p.ignore_end = 1;
    const int32_t before = duet_seq_length(w.session, 0);
    duet_status st = told(duet_sampler_grammar(w.constrained, w.grammar), w.constrained, duet_sampler_error);
    if (st != DUET_OK) return st;
    st = on_session(w, duet_generate(w.session, w.constrained, kIds, 3, &p, nullptr, nullptr, nullptr));
    check(duet_seq_trim(w.session, 0, before) == DUET_OK, "trimmed");
    return st;
}

const call kCalls[] = {
    {"duet_file_open",
     [](world&) {
         duet_file* f = nullptr;
         const duet_status st = duet_file_open(kDemo, &f);
         return made(st, f, duet_file_error, duet_file_free);
     }},
    {"duet_file_open of nothing",
     [](world&) {
         duet_file* f = nullptr;
         const duet_status st = duet_file_open("no such file", &f);
         check(st != DUET_OK && duet_file_error(f)[0], "an error with a text");
         duet_file_free(f);
         return st == DUET_ERR_IO ? DUET_OK : st;
     }},
    {"duet_model_open",
     [](world&) {
         const duet_model_params p = test_params();
         return open_and_free([&](duet_model** m) { return duet_model_open(kDemo, &p, m); });
     }},
    {"duet_model_open, copied",
     [](world&) {
         duet_model_params p = test_params();
         p.load = DUET_LOAD_COPY;
         return open_and_free([&](duet_model** m) { return duet_model_open(kDemo, &p, m); });
     }},
    {"duet_model_open, bad parameters",
     [](world&) {
         duet_model_params p = test_params();
         p.struct_size = 4096;
         const duet_status st = open_and_free([&](duet_model** m) { return duet_model_open(kDemo, &p, m); });
         return st == DUET_ERR_ARG ? DUET_OK : st;
     }},
    {"duet_model_open_memory",
     [](world& w) {
         const duet_model_params p = test_params();
         return open_and_free(
             [&](duet_model** m) { return duet_model_open_memory(w.file_bytes.data(), w.file_bytes.size(), &p, m); });
     }},
    {"duet_model_open_reader",
     [](world& w) {
         const duet_model_params p = test_params();
         return open_and_free(
             [&](duet_model** m) { return duet_model_open_reader(read_bytes, &w, w.file_bytes.size(), &p, m); });
     }},
    {"duet_model_get_info",
     [](world& w) {
         duet_model_info info = {};
         info.struct_size = sizeof info;
         return on_model(w, duet_model_get_info(w.model, &info));
     }},
    {"duet_tokenize",
     [](world& w) {
         int32_t ids[64];
         size_t n = 0;
         return on_model(w, duet_tokenize(w.model, "Once upon a time there was", 26, 3, ids, 64, &n));
     }},
    {"duet_detokenize",
     [](world& w) {
         char text[256];
         size_t n = 0;
         return on_model(w, duet_detokenize(w.model, kIds, 10, 1, text, sizeof text, &n));
     }},
    {"duet_token_text", [](world& w) { return duet_token_text(w.model, 419).data ? DUET_OK : kNone; }},
    {"duet_token_spelling", [](world& w) { return duet_token_spelling(w.model, 419).data ? DUET_OK : kNone; }},
    {"duet_session_plan", plan_call},
    {"duet_session_create", create_call},
    {"duet_decode", decode_call},
    {"duet_decode of a new sequence", [](world& w) { return on_session(w, decode_8(w, 1)); }},
    {"duet_decode that is recorded", [](world&) { return recorded_call(1); }},
    {"duet_decode that is walked", [](world&) { return recorded_call(2); }},
    {"duet_logits", [](world& w) { return duet_logits(w.session, 0) ? DUET_OK : kNone; }},
    {"duet_embedding", [](world& w) { return duet_embedding(w.session) ? DUET_OK : kNone; }},
    {"duet_embed",
     [](world& w) {
         static float out[2 * 4096];
         const duet_string texts[] = {{"a text", 6}, {"b", 1}};
         return on_session(w, duet_embed(w.session, texts, 2, nullptr, out));
     }},
    {"duet_embed_ids",
     [](world& w) {
         static float out[2 * 4096];
         const int32_t n_ids[] = {6, 1};
         duet_embed_params p = duet_embed_params_default();
         p.pooling = DUET_POOL_MEAN;
         return on_session(w, duet_embed_ids(w.session, kIds, n_ids, 2, &p, out));
     }},
    {"duet_rerank",  // the model has no head: as far as it gets
     [](world& w) {
         float score = 0;
         const duet_string text{"a text", 6};
         const duet_status status = duet_rerank(w.session, "a query", 7, &text, 1, &score);
         return on_session(w, status == DUET_ERR_UNSUPPORTED ? DUET_OK : status);
     }},
    {"duet_seq_trim", [](world& w) { return on_session(w, duet_seq_trim(w.session, 0, 3)); }},
    {"duet_seq_copy", [](world& w) { return on_session(w, duet_seq_copy(w.session, 0, 1)); }},
    {"duet_seq_save",
     [](world& w) {
         uint64_t n = 0;
         return on_session(w, duet_seq_save(w.session, 0, w.state.data(), w.state.size(), &n));
     }},
    {"duet_seq_load", load_call},
    {"duet_seq_ids", [](world& w) { return duet_seq_ids(w.session, 0)[6] == kIds[6] ? DUET_OK : kNone; }},
    {"duet_session_room", [](world& w) { return duet_session_room(w.session) > 0 ? DUET_OK : kNone; }},
    {"duet_seq_reuse", [](world& w) { return duet_seq_reuse(w.session, 0, kIds, 5) == 5 ? DUET_OK : kNone; }},
    {"duet_generate", generate_call},
    {"duet_generate with a grammar", constrained_generate_call},
    {"duet_generate_begin", begin_call},
    {"duet_generate_next",
     [](world& w) {
         duet_token_event e = {};
         e.struct_size = sizeof e;
         return on_session(w, duet_generate_next(w.generation, &e));
     }},
    {"duet_chat_create",
     [](world& w) {
         duet_chat* c = nullptr;
         const duet_status st = make_chat(w, &c);
         return made(st, c, duet_chat_error, duet_chat_free);
     }},
    {"duet_chat_add", [](world& w) { return on_chat(w, duet_chat_add(w.chat, "user", "a text of some bytes", 20)); }},
    {"duet_chat_insert",
     [](world& w) {
         const char* json = "[{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"x\"}]}]";
         return on_chat(w, duet_chat_insert(w.chat, 0, json, strlen(json)));
     }},
    {"duet_chat_remove", [](world& w) { return on_chat(w, duet_chat_remove(w.chat, 0, 0)); }},
    {"duet_chat_message", [](world& w) { return duet_chat_message(w.chat, 0).data ? DUET_OK : kNone; }},
    {"duet_chat_render",
     [](world& w) {
         duet_chat_prompt p = {};
         p.struct_size = sizeof p;
         return on_chat(w, duet_chat_render(w.chat, 0, &p));
     }},
    {"duet_template_render",
     [](world& w) {
         char text[64];
         size_t n = 0;
         return by_thread(w, duet_template_render("{{ a }}", 7, "{\"a\": [1]}", 10, nullptr, text, sizeof text, &n));
     }},
    {"duet_chat_parser_create",
     [](world& w) {
         duet_chat_parser* p = nullptr;
         const char* stop[] = {"a stop string that is long enough to be allocated"};
         const duet_status st = duet_chat_parser_create(w.chat, 0, stop, 1, &p);
         return made(st, p, duet_chat_parser_error, duet_chat_parser_free);
     }},
    {"duet_chat_parser_add",
     [](world& w) {
         duet_chat_parser* p = nullptr;
         duet_status st = duet_chat_parser_create(w.chat, 0, nullptr, 0, &p);
         if (st == DUET_OK) st = duet_chat_parser_add(p, 419);
         if (st == DUET_OK) st = duet_chat_parser_finish(p);
         const bool has_message = st != DUET_OK || duet_chat_parser_message(p).data;
         st = made(st, p, duet_chat_parser_error, duet_chat_parser_free);
         return has_message ? st : kNone;
     }},
    {"duet_chat_grammar",
     [](world& w) {
         duet_grammar* g = nullptr;
         const duet_status st = duet_chat_grammar(w.chat, nullptr, &g);
         return made(st, g, duet_grammar_error, duet_grammar_free);
     }},
    {"duet_chat_begin",
     [](world& w) {
         duet_chat_turn* t = nullptr;
         const duet_status st = begin_turn(w, &t);
         check(st == DUET_OK || !t, "no turn after an error");
         duet_chat_turn_free(t);
         return st;
     }},
    {"duet_chat_next",
     [](world& w) {
         duet_chat_event e = {};
         duet_status st = w.turn ? DUET_OK : begin_turn(w, &w.turn);
         while (st == DUET_OK && e.kind != DUET_CHAT_END) {
             e.struct_size = sizeof e;
             st = on_chat(w, duet_chat_next(w.turn, &e));
         }
         duet_chat_turn_free(w.turn);
         w.turn = nullptr;
         return st;
     }},
    {"duet_chat_save",
     [](world& w) {
         uint64_t n = 0;
         return on_chat(w, duet_chat_save(w.chat, w.session, 0, w.saved.data(), w.saved.size(), &n));
     }},
    {"duet_chat_load",
     [](world& w) { return on_chat(w, duet_chat_load(w.chat, w.session, 0, w.saved.data(), w.saved.size())); }},
    {"duet_session_profile_rows", [](world& w) { return duet_session_profile_rows(w.session) > 0 ? DUET_OK : kNone; }},
    {"duet_sampler_create",
     [](world&) {
         duet_sampler* s = nullptr;
         const duet_status st = duet_sampler_create(1, &s);
         return made(st, s, duet_sampler_error, duet_sampler_free);
     }},
    {"duet_sampler_set", [](world& w) { return on_sampler(w, duet_sampler_set(w.sampler, "top_k", 40)); }},
    {"duet_sampler_set of nothing",
     [](world& w) {
         const duet_status st = on_sampler(w, duet_sampler_set(w.sampler, "no such step", 40));
         return st == DUET_ERR_ARG ? DUET_OK : st;
     }},
    {"duet_sampler_bias", [](world& w) { return on_sampler(w, duet_sampler_bias(w.sampler, 77, 1)); }},
    {"duet_sampler_dry_breaker", [](world& w) { return on_sampler(w, duet_sampler_dry_breaker(w.sampler, 77)); }},
    {"duet_sampler_choose",
     [](world& w) {
         int32_t id = 0;
         return on_sampler(w, duet_sampler_choose(w.sampler, w.logits.data(), (int32_t)w.logits.size(), &id));
     }},
    {"duet_sampler_accept", [](world& w) { return on_sampler(w, duet_sampler_accept(w.sampler, 77)); }},
    {"duet_grammar_create",
     [](world& w) { return create_grammar_call(w, "root ::= \"<tool>\" [a-z]{2,5} \"</tool>\"", nullptr); }},
    {"duet_grammar_create, the first of a model",
     [](world&) {
         duet_model_params p = test_params();
         p.vocab_only = 1;
         world w;
         duet_status st = duet_model_open(kDemo, &p, &w.model);
         check(duet_sampler_create(1, &w.sampler) == DUET_OK || !w.sampler, "a sampler, or none");
         if (st == DUET_OK) st = w.sampler ? create_grammar_call(w, "root ::= \"<tool>\"", nullptr) : DUET_ERR_MEMORY;
         duet_sampler_free(w.sampler);
         duet_model_free(w.model);
         return st;
     }},
    {"duet_grammar_create of a schema",
     [](world& w) {
         const char* schema = "{\"properties\": {\"a\": {\"type\": \"integer\"}, \"b\": {\"enum\": [\"x\", 1]}}}";
         return create_grammar_call(w, nullptr, schema);
     }},
    {"duet_grammar_create of nonsense",
     [](world& w) {
         const duet_status st = create_grammar_call(w, nullptr, "{\"minimum\": \"a text of some length\"}");
         return st == DUET_ERR_FORMAT ? DUET_OK : st;
     }},
    {"duet_sampler_grammar", [](world& w) { return on_sampler(w, duet_sampler_grammar(w.sampler, w.grammar)); }},
    {"duet_sampler_choose by a grammar",
     [](world& w) {
         int32_t id = 0;
         return told(duet_sampler_choose(w.constrained, w.logits.data(), (int32_t)w.logits.size(), &id), w.constrained,
                     duet_sampler_error);
     }},
    {"duet_sampler_accept by a grammar",
     [](world& w) { return told(duet_sampler_accept(w.constrained, 300), w.constrained, duet_sampler_error); }},
    {"duet_sampler_accept of nested text",  // what the grammar learns on the way stays with it, also if memory runs out
     [](world& w) {
         int32_t ids[64];
         size_t n = 0;
         const char text[] = "axxxxxaxxxxyyybyyyyxyyyz";
         duet_status st = on_model(w, duet_tokenize(w.model, text, sizeof text - 1, 0, ids, 64, &n));
         if (st == DUET_OK)
             st = told(duet_sampler_grammar(w.constrained, w.grammar), w.constrained, duet_sampler_error);
         for (size_t i = 0; i < n && st == DUET_OK; i++)
             st = told(duet_sampler_accept(w.constrained, ids[i]), w.constrained, duet_sampler_error);
         return st;
     }},
    {"duet_sampler_is_done", [](world& w) { return duet_sampler_is_done(w.constrained) == 0 ? DUET_OK : kNone; }},
    {"duet_text_gate_create",
     [](world&) {
         const char* stop[] = {"a stop string that is long enough to be allocated"};
         duet_text_gate* g = nullptr;
         const duet_status st = duet_text_gate_create(stop, 1, &g);
         return made(st, g, duet_text_gate_error, duet_text_gate_free);
     }},
    {"duet_text_gate_add",
     [](world& w) {
         const char* text = "a text that is long enough to be allocated, and then some more of it";
         duet_string shown;
         return on_gate(w, duet_text_gate_add(w.gate, text, strlen(text), &shown, nullptr));
     }},
    {"duet_text_gate_finish",
     [](world& w) {
         duet_string shown;
         return on_gate(w, duet_text_gate_finish(w.gate, &shown));
     }},
    {"duet_writer_create",
     [](world&) {
         duet_writer* x = nullptr;
         const duet_status st = duet_writer_create(&x);
         return made(st, x, duet_writer_error, duet_writer_free);
     }},
    {"duet_writer_set_int",
     [](world& w) { return on_writer(w, duet_writer_set_int(w.writer, "a.key.that.is.long.1", DUET_KV_U32, 7)); }},
    {"duet_writer_set_float",
     [](world& w) { return on_writer(w, duet_writer_set_float(w.writer, "a.key.that.is.long.2", DUET_KV_F32, 7)); }},
    {"duet_writer_set_string",
     [](world& w) { return on_writer(w, duet_writer_set_string(w.writer, "a.key.that.is.long.3", "value", 5)); }},
    {"duet_writer_set_array",
     [](world& w) {
         return on_writer(w, duet_writer_set_array(w.writer, "a.key.that.is.long.4", DUET_KV_I32, kIds, 10));
     }},
    {"duet_writer_set_strings",
     [](world& w) {
         const duet_string texts[] = {{"one", 3}, {"another that is longer", 22}};
         return on_writer(w, duet_writer_set_strings(w.writer, "a.key.that.is.long.5", texts, 2));
     }},
    {"duet_writer_copy_kv", [](world& w) { return on_writer(w, duet_writer_copy_kv(w.writer, w.file)); }},
    {"duet_writer_add_tensor",
     [](world& w) {
         const int64_t dims[] = {10, 1};
         static int n = 0;  // the name is taken once it was added
         char name[40];
         snprintf(name, sizeof name, "a.tensor.of.ten.%d", n++);
         return on_writer(w, duet_writer_add_tensor(w.writer, name, 0, 1, dims, w.logits.data()));
     }},
    {"duet_writer_save",
     [](world& w) {
         char path[64];
         snprintf(path, sizeof path, "/tmp/duet_faults_%d.gguf", (int)getpid());
         const duet_status st = duet_writer_save(w.writer, path);
         check(st == DUET_OK || access(path, F_OK) != 0, "no half file");
         unlink(path);
         return on_writer(w, st);
     }},
    {"duet_writer_save_to",
     [](world& w) { return on_writer(w, duet_writer_save_to(w.writer, refuse_nothing, nullptr)); }},
    {"duet_writer_size", [](world& w) { return duet_writer_size(w.writer) > 0 ? DUET_OK : kNone; }},
    {"duet_file_get_int",
     [](world& w) {
         int64_t value = 0;
         return duet_file_get_int(w.file, -1, 0, &value) == DUET_ERR_ARG && duet_file_error(w.file)[0] ? DUET_OK
                                                                                                       : kNone;
     }},
    {"duet_list_devices",
     [](world& w) { return by_thread(w, duet_list_devices([](void*, const duet_device_info*) {}, nullptr)); }},
    {"duet_self_test",
     [](world& w) {  // its first cases: all of them would take minutes
         int n = 0;
         const duet_status st = duet_self_test(
             "cpu", "scalar", [](void* user, const char*, const char*) -> int32_t { return ++*(int*)user >= 1; }, &n);
         return st == DUET_ERR_CANCELLED ? DUET_OK : by_thread(w, st);
     }},
    {"duet_measure_bandwidth_gbps",
     [](world&) { return duet_measure_bandwidth_gbps("emu32", nullptr, 1) >= 0 ? DUET_OK : kNone; }},
};

void build(world& w) {
    FILE* f = fopen(kDemo, "rb");
    check(f != nullptr, "the demo model");
    char block[65536];
    for (size_t n; (n = fread(block, 1, sizeof block, f)) > 0;) w.file_bytes.append(block, n);
    fclose(f);
    const duet_model_params p = test_params();
    check(duet_model_open(kDemo, &p, &w.model) == DUET_OK, "the model opens");
    duet_session_params s = duet_session_params_default();
    s.n_ctx = 128;
    s.n_seqs = 2;
    s.max_batch = 4;
    check(duet_session_create(w.model, &s, &w.session) == DUET_OK, "the session is made");
    check(duet_sampler_create(1, &w.sampler) == DUET_OK, "the sampler is made");
    duet_grammar_params rules = duet_grammar_params_default();
    rules.gbnf = "root ::= ([^x] | \"x\" root \"y\")*";
    check(duet_grammar_create(w.model, &rules, &w.grammar) == DUET_OK, "the grammar is made");
    check(duet_sampler_create(1, &w.constrained) == DUET_OK, "the other sampler is made");
    check(duet_sampler_grammar(w.constrained, w.grammar) == DUET_OK, "it is constrained");
    check(duet_text_gate_create(nullptr, 0, &w.gate) == DUET_OK, "the gate is made");
    check(duet_writer_create(&w.writer) == DUET_OK, "the writer is made");
    check(duet_file_open(kDemo, &w.file) == DUET_OK, "the file opens");
    const duet_batch b = batch_of(7);
    duet_session_profile(w.session, 1);
    check(duet_decode(w.session, &b) == DUET_OK, "decode");
    duet_model_info info = {};
    info.struct_size = sizeof info;
    check(duet_model_get_info(w.model, &info) == DUET_OK, "info");
    w.logits.assign(duet_logits(w.session, 0), duet_logits(w.session, 0) + info.n_vocab);
    uint64_t n = 0;
    check(duet_seq_save(w.session, 0, nullptr, 0, &n) == DUET_OK, "the state's size");
    w.state.resize(n);
    check(duet_seq_save(w.session, 0, w.state.data(), n, &n) == DUET_OK, "the state");
    duet_generate_params g = duet_generate_params_default();
    g.ignore_end = 1;
    check(duet_generate_begin(w.session, w.sampler, nullptr, 0, &g, &w.generation) == DUET_OK, "a generation begins");
    check(make_chat(w, &w.chat) == DUET_OK, "the chat is made");
    check(duet_chat_add(w.chat, "user", "Once upon a time", 16) == DUET_OK, "a message");
    check(duet_chat_save(w.chat, w.session, 0, nullptr, 0, &n) == DUET_OK, "the chat's size");
    w.saved.resize(n);
    check(duet_chat_save(w.chat, w.session, 0, w.saved.data(), n, &n) == DUET_OK, "the chat is saved");
}

void destroy(world& w) {
    duet_chat_turn_free(w.turn);
    duet_chat_free(w.chat);
    duet_generation_free(w.generation);
    duet_session_free(w.session);
    duet_grammar_free(w.grammar);
    duet_sampler_free(w.constrained);
    duet_sampler_free(w.sampler);
    duet_text_gate_free(w.gate);
    duet_writer_free(w.writer);
    duet_file_free(w.file);
    duet_model_free(w.model);
}

// Runs in one process: the nth allocation of the call fails. Exit codes: 0 the allocation failed and all is well, 10
// the call makes fewer allocations, 3 something is wrong.
[[noreturn]] void run_one(const call& c, world& w, long n, long n_before) {
    n_until_failure = n - 1;
    has_failed = false;
    const duet_status st = c.run(w);
    n_until_failure = -1;
    if (!has_failed) _exit(st == DUET_OK ? 10 : 3);
    check(st == DUET_OK || st == DUET_ERR_MEMORY || st == kNone, "OK, DUET_ERR_MEMORY, or the value for none");
    // the same call works now, but for a generation, which has ended
    if (strcmp(c.name, "duet_generate_next") != 0) check(c.run(w) == DUET_OK, "the same call works afterwards");
    // the handles work, and no page of the cache is lost: each sequence holds as many tokens as the context says
    check(duet_seq_trim(w.session, 0, 0) == DUET_OK && duet_seq_trim(w.session, 1, 0) == DUET_OK, "emptied");
    const bool takes_pages = strstr(c.name, "duet_decode") || strstr(c.name, "duet_seq");
    for (int32_t seq : {0, 1})
        for (int i = 0; i < (takes_pages ? 16 : 2); i++) check(decode_8(w, seq) == DUET_OK, "128 tokens fit");
    destroy(w);
    {
        world empty;  // takes the vectors
        std::swap(empty, w);
    }
    check(n_live == n_before, "all memory was given back");
    _exit(0);
}

// What all workers have found, in shared memory.
struct fault_totals {
    std::atomic<size_t> next_call{0};
    std::atomic<int> n_calls{0}, n_wrong{0};
    std::atomic<long> n_processes{0};
};

void try_call(const call& c, long asked, fault_totals& totals) {
    // All n of the self test take 10 minutes, and calls that render templates often or compile a grammar allocate
    // thousands of times, and emulated devices are slow: of these a sample is taken, and `1` asks for all.
    const bool is_long =
        strstr(c.name, "duet_chat_create") || strstr(c.name, "grammar") || strstr(c.name, "is recorded");
    const long step = asked > 0                               ? asked
                      : strcmp(c.name, "duet_self_test") == 0 ? 25
                      : strstr(c.name, "is walked")           ? 3
                      : is_long                               ? 40
                                                              : 1;
    long n = 1, n_tried = 0;
    for (bool is_end = false; !is_end; n += step <= 1 || n < 4 ? 1 : 1 + rand() % (2 * step - 1), n_tried++) {
        fflush(stdout);
        const pid_t child = fork();
        if (child == 0) {
            alarm(60);
            const long n_before = n_live;
            world w;
            build(w);
            run_one(c, w, n, n_before);
        }
        int status = 0;
        waitpid(child, &status, 0);
        is_end = WIFEXITED(status) && WEXITSTATUS(status) == 10;
        if (is_end || (WIFEXITED(status) && WEXITSTATUS(status) == 0)) continue;
        printf("%s: allocation %ld: %s %d\n", c.name, n, WIFSIGNALED(status) ? "signal" : "exit",
               WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
        if (++totals.n_wrong > 40) break;
    }
    totals.n_processes += n_tried;
    printf("%-34s %ld allocations\n", c.name, n_tried - 1);
}

}  // namespace

int main(int argc, char** argv) {
    const char* only = argc > 1 ? argv[1] : "";
    const long asked = argc > 2 ? atol(argv[2]) : 0;
    void* shared = mmap(nullptr, sizeof(fault_totals), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) return 1;
    fault_totals& totals = *new (shared) fault_totals;
    // A worker for each processor, which takes the next call.
    std::vector<pid_t> workers((size_t)sysconf(_SC_NPROCESSORS_ONLN));
    for (pid_t& worker : workers) {
        if ((worker = fork()) != 0) continue;
        for (size_t i; (i = totals.next_call++) < std::size(kCalls) && totals.n_wrong <= 40;) {
            if (!strstr(kCalls[i].name, only)) continue;
            totals.n_calls++;
            try_call(kCalls[i], asked, totals);
        }
        fflush(stdout);
        _exit(0);
    }
    for (const pid_t worker : workers) {
        int status = 0;
        if (worker < 0 || waitpid(worker, &status, 0) < 0 || status != 0) totals.n_wrong++;
    }
    printf("faults: %d calls, %ld processes, %d wrong\n", totals.n_calls.load(), totals.n_processes.load(),
           totals.n_wrong.load());
    return totals.n_wrong || !totals.n_calls ? 1 : 0;
}
