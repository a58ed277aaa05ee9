// tests/gpu_trace.cpp: writes all requests of the GPU executor to its driver. tests/gpu_replay.py repeats them with the
// code of a chip.
//   gpu_trace cases OUT [sample]   the small graphs of runtime/self_test_cases.h and far_attention.h, checked against
//                                  the CPU on the way;
//                                  sample: only the formats in gpu_sample.def
//   gpu_trace fast OUT             those of mode fast, whose results are near the CPU's
//   gpu_trace MODEL.gguf OUT N [walk]   the first N tokens of a model as one prompt, then four that the model chooses;
//                                  walk: the launches of a token are walked in one, and four more tokens behind
//                                  2,112 positions that the CPU has computed
//   gpu_trace shape OUT DEVICE FORMAT N_LAYERS N_TOK N_SEQ CONTEXT N_UNITS VEC_BLOCKS
//                                  DEVICE: emu32, or emu64, where norms of one token are launches of their own;
//                                  FORMAT: q4_0, or f16-fast for mode fast;
//                                  the launches of one batch of an 8B model of random weights, cut to N_LAYERS layers
//                                  and kCutVocab words: N_TOK tokens for each of N_SEQ sequences, the last at position
//                                  CONTEXT - 1. Nothing is run, and only small uploads are written, so what a kernel
//                                  reads is zeros: benchmarks/gpu_counts.py counts instructions, it compares nothing.
// A record holds: kind (1 byte), address, source address, number of bytes (8 bytes each), grid x y z threads shared (4
// bytes each), name (32 bytes), then the bytes of an upload, a download or a launch's arguments. Numbers are
// little-endian.
#include "far_attention.h"
#include "../cpu/executor.h"
#include "../gpu/args.h"
#include "../gpu/driver.h"
#include "../gpu/executor.h"
#include "../tools/synthetic.h"

namespace {

struct trace_file {
    FILE* file = nullptr;
    bool ok = true;
    bool is_dry = false, is_begun = true;  // is_dry: allocations always, the rest once is_begun, no large uploads
};
constexpr int32_t kCutVocab = 16384;
constexpr uint64_t kLargeUpload = 1 << 20;

void write_event(void* user, const duet::emu_event& e) {
    trace_file& t = *(trace_file*)user;
    const bool has_bytes = e.what[0] == 'u' || e.what[0] == 'd' || e.what[0] == 'l';
    if (t.is_dry && e.what[0] != 'a' && (!t.is_begun || (e.what[0] == 'u' && e.n_bytes > kLargeUpload))) return;
    uint8_t head[77] = {};
    const uint64_t at = (uint64_t)(uintptr_t)e.at, from = (uint64_t)(uintptr_t)e.data;
    // The kind is the first letter of alloc, free, upload, copy, launch or download; clear is z.
    head[0] = e.what[0] == 'c' && e.what[1] == 'l' ? 'z' : (uint8_t)e.what[0];
    memcpy(head + 1, &at, 8);
    memcpy(head + 9, &from, 8);
    memcpy(head + 17, &e.n_bytes, 8);
    memcpy(head + 25, &e.grid, 20);
    if (e.kernel) snprintf((char*)head + 45, 32, "%s", e.kernel);
    t.ok = t.ok && fwrite(head, sizeof head, 1, t.file) == 1;
    if (has_bytes && e.n_bytes) t.ok = t.ok && fwrite(e.data, e.n_bytes, 1, t.file) == 1;
}

bool in_sample(int32_t type) {
    switch (type) {
#define FLOAT_TYPE(id, NAME, gguf_id, bytes)                  case gguf_id:
#define QUANT_TYPE(id, NAME, gguf_id, elems, bytes, max_nmse) case gguf_id:
#include "../gpu/sample.def"
        return true;
    default: return false;
    }
}

constexpr int kFarPosition = (duet::kMergeStep + 2) * duet::kAttnChunk;  // attention merges two groups of chunks there

// Gives the state of kFarPosition tokens, which the CPU computes.
duet_status far_state(const char* path, std::vector<uint8_t>* state) {
    duet_model_params p = duet_model_params_default();
    p.device = "cpu";
    duet_session_params s = duet_session_params_default();
    s.n_ctx = kFarPosition;
    s.max_batch = kFarPosition;
    duet_model* model = nullptr;
    duet_session* session = nullptr;
    duet_status st = duet_model_open(path, &p, &model);
    if (st == DUET_OK) st = duet_session_create(model, &s, &session);
    std::vector<int32_t> ids;
    for (int i = 0; i < kFarPosition; i++) ids.push_back(3 + i * i % 97);
    duet_batch b = duet_batch_default();
    b.token = ids.data();
    b.n_tok = kFarPosition;
    if (st == DUET_OK) st = duet_decode(session, &b);
    uint64_t n_bytes = 0;
    if (st == DUET_OK) st = duet_seq_save(session, 0, nullptr, 0, &n_bytes);
    state->resize(n_bytes);
    if (st == DUET_OK) st = duet_seq_save(session, 0, state->data(), n_bytes, &n_bytes);
    if (st != DUET_OK)
        fprintf(stderr, "gpu_trace: the CPU's state: %s\n", session ? duet_session_error(session) : path);
    duet_session_free(session);
    duet_model_free(model);
    return st;
}

int run_model(const char* path, int n, bool walks) {
    duet_model_params p = duet_model_params_default();
    p.device = "emu32";
    if (walks) p.gpu_recording = 2;
    duet_model* model = nullptr;
    duet_session* session = nullptr;
    duet_session_params s = duet_session_params_default();
    s.n_ctx = (walks ? kFarPosition : n) + 4;
    s.max_batch = n;
    std::vector<uint8_t> far;
    duet_status st = walks ? far_state(path, &far) : DUET_OK;
    if (st == DUET_OK) st = duet_model_open(path, &p, &model);
    if (st == DUET_OK) st = duet_session_create(model, &s, &session);
    std::vector<int32_t> ids;
    for (int i = 0; i <= n; i++) ids.push_back(3 + i * 7 % 50);
    duet_batch b = duet_batch_default();
    b.token = ids.data();
    b.n_tok = n;
    if (st == DUET_OK) st = duet_decode(session, &b);
    if (st == DUET_OK && !duet_logits(session, 0)) st = DUET_ERR_DEVICE;
    // The device chooses three tokens, the second and third by the kernels of a recording; then the logits are read.
    duet_sampler* sampler = nullptr;
    if (st == DUET_OK) st = duet_sampler_create(1, &sampler);
    if (st == DUET_OK) st = duet_sampler_set(sampler, "temp", 0);
    duet_generate_params g = duet_generate_params_default();
    g.max_new_tok = 4;
    if (st == DUET_OK) st = duet_generate(session, sampler, nullptr, 0, &g, nullptr, nullptr, nullptr);
    if (st == DUET_OK && !duet_logits(session, 0)) st = DUET_ERR_DEVICE;
    if (walks) {
        if (st == DUET_OK) st = duet_seq_load(session, 0, far.data(), far.size());
        if (st == DUET_OK) st = duet_generate(session, sampler, ids.data(), 1, &g, nullptr, nullptr, nullptr);
        if (st == DUET_OK && !duet_logits(session, 0)) st = DUET_ERR_DEVICE;
    }
    duet_sampler_free(sampler);
    if (st != DUET_OK)
        fprintf(stderr, "gpu_trace: %s %s\n", duet_model_error(model), session ? duet_session_error(session) : "");
    duet_session_free(session);
    duet_model_free(model);
    return st == DUET_OK ? 0 : 1;
}

// Decodes n_tok tokens of each sequence, of which the last stands at position `context` - 1.
duet_status decode_at(duet_session* session, int32_t n_tok, int32_t n_seq, int32_t context, trace_file* t) {
    std::vector<int32_t> ids, seqs;
    std::vector<uint8_t> wanted;
    duet_batch b = duet_batch_default();
    auto decode = [&](int32_t n_each) {
        ids.assign((size_t)n_each * (size_t)n_seq, 5);
        seqs.clear();
        wanted.clear();
        for (int32_t s = 0; s < n_seq; s++)
            for (int32_t i = 0; i < n_each; i++) seqs.push_back(s), wanted.push_back(i == n_each - 1);
        b.token = ids.data();
        b.seq = seqs.data();
        b.want_logits = wanted.data();
        b.n_tok = (int32_t)ids.size();
        return duet_decode(session, &b);
    };
    if (context > n_tok)
        if (const duet_status st = decode(context - n_tok)) return st;
    t->is_begun = true;
    return decode(n_tok);
}

int run_shape(const char* device, std::string format, const int32_t (&n)[6], trace_file* t) {
    const bool is_fast = format.ends_with("-fast");
    if (is_fast) format.resize(format.size() - 5);
    const auto [n_layers, n_tok, n_seq, context, n_units, vec_blocks] = n;
    synthetic_model made;
    tool_error error;
    if (made.parse("8b:" + format, &error) == DUET_OK) {
        made.shape.n_layers = n_layers;
        made.shape.n_vocab = kCutVocab;
        if (made.build(&error) == DUET_OK) made.write_to_memory(&error);
    }
    if (error.status != DUET_OK) return fprintf(stderr, "gpu_trace: %s\n", error.message.c_str()), 1;
    t->is_dry = true;
    t->is_begun = false;
    duet::emu_dry(true, n_units, vec_blocks);
    duet_model_params p = duet_model_params_default();
    p.device = device;
    p.gpu_recording = 0;
    p.n_threads = 1;
    p.fast = is_fast;
    duet_model* model = nullptr;
    duet_session* session = nullptr;
    duet_session_params s = duet_session_params_default();
    s.n_ctx = context + 1;
    s.n_seqs = n_seq;
    duet_status st = duet_model_open_memory(made.file, made.n_file_bytes, &p, &model);
    if (st == DUET_OK) st = duet_session_create(model, &s, &session);
    if (st == DUET_OK) st = decode_at(session, n_tok, n_seq, context, t);
    // Greedy generation looks for the largest logit on the device.
    duet_sampler* sampler = nullptr;
    if (st == DUET_OK && n_tok == 1 && n_seq == 1) {
        duet_generate_params g = duet_generate_params_default();
        g.max_new_tok = 1;
        st = duet_sampler_create(1, &sampler);
        if (st == DUET_OK) st = duet_sampler_set(sampler, "temp", 0);
        if (st == DUET_OK) st = duet_generate(session, sampler, nullptr, 0, &g, nullptr, nullptr, nullptr);
    }
    duet_sampler_free(sampler);
    if (st != DUET_OK)
        fprintf(stderr, "gpu_trace: %s %s\n", duet_model_error(model), session ? duet_session_error(session) : "");
    t->is_begun = false;
    duet_session_free(session);
    duet_model_free(model);
    return st == DUET_OK ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 3) {
        fprintf(stderr, "usage: gpu_trace cases OUT | gpu_trace MODEL OUT N\n");
        return 2;
    }
    trace_file t;
    t.file = fopen(argv[2], "wb");
    if (!t.file) {
        fprintf(stderr, "gpu_trace: %s: cannot write\n", argv[2]);
        return 1;
    }
    duet::emu_watch(write_event, &t);
    int failed = 0;
    const bool is_fast = std::string(argv[1]) == "fast";
    if (is_fast || std::string(argv[1]) == "cases") {
        duet::self_test::for_each_case([&](duet::self_test::graph_case& c) {
            if (c.fast != is_fast) return;
            for (const duet::weight& w : c.g.weights)
                if (argc > 3 && !in_sample(w.type)) return;
            const std::string wrong = duet::self_test::compare_case(c, "emu32");
            if (!wrong.empty()) failed = 1, fprintf(stderr, "gpu_trace: %s: %s\n", c.name.c_str(), wrong.c_str());
        });
        // Three groups of chunks, of which one begins behind a window's first chunk.
        duet::error_text err;
        for (const int window : {0, 3000}) {
            if (is_fast) break;
            const auto c = duet::far_attention(DUET_CACHE_F16, 2, 32, 32, window);
            const int far = 2 * (duet::kMergeStep + 1) * duet::kAttnChunk + 200;
            if (duet::attend_far(c, duet::kGpuExecutor, "emu32", far, err) !=
                duet::attend_far(c, duet::kCpuExecutor, "scalar", far, err))
                failed = 1,
                fprintf(stderr, "gpu_trace: far attention: other bits than the CPU's %s\n", err.text.c_str());
        }
    } else if (std::string(argv[1]) == "shape" && argc == 11) {
        int32_t n[6];
        for (int i = 0; i < 6; i++) n[i] = atoi(argv[5 + i]);
        failed = run_shape(argv[3], argv[4], n, &t);
    } else {
        failed = run_model(argv[1], argc > 3 ? atoi(argv[3]) : 8, argc > 4);
    }
    duet::emu_watch(nullptr, nullptr);
    return fclose(t.file) == 0 && t.ok ? failed : 1;
}
