// tests/gpu_first_hour.cpp: what a user's first hour with a card tries beside the self test (tests/gpu.sh runs it).
//   gpu_first_hour ids DEVICE SHAPE:FORMAT N    prints N greedily chosen ids, for comparison with another run's
//   gpu_first_hour threads DEVICE SHAPE:FORMAT N
//                  one thread generates N ids, which are recorded and played, while another opens, uses and frees
//                  sessions of the same model; the ids of both are those of a session alone
//   gpu_first_hour memory DEVICE SHAPE:FORMAT N
//                  sessions fill the memory until 50 MB or less are left; a session that was there before computes a
//                  batch of a new shape: the right ids or a clear error, and the right ids when the memory is free
//                  again
// With DUET_BREAK=1 the last id that is compared (of ids: where decoding is recorded) is changed, to see that a
// difference is told. Exit status 0: as it
// should be, 1: not, with the reason on stderr.
#include "../tools/synthetic.h"
#include "../gpu/driver.h"

#include <atomic>
#include <thread>

namespace {

using ids = std::vector<int32_t>;
constexpr uint64_t kLeftBytes = 50 << 20;

struct bench_model {
    synthetic_model made;
    model_ptr model;
    int32_t n_words = 0;
    std::string error;

    bool open(const char* device, const char* spec) {
        tool_error failed;
        if (made.parse(spec, &failed) == DUET_OK && made.build(&failed) == DUET_OK) made.write_to_memory(&failed);
        if (failed.status != DUET_OK) return error = failed.message, false;
        duet_model_params p = duet_model_params_default();
        p.device = device;
        static bool is_verbose = false;
        p.log = print_log;  // says when decoding goes another way than asked for
        p.log_user = &is_verbose;
        p.gpu_layers = made.shape.n_layers + 1;  // all: what does not fit is an error, and does not go to the CPU
        duet_model* opened = nullptr;
        const duet_status status = duet_model_open_memory(made.file, made.n_file_bytes, &p, &opened);
        model.reset(opened);
        n_words = made.shape.n_vocab;
        if (status != DUET_OK) error = opened ? duet_model_error(opened) : duet_status_name(status);
        return status == DUET_OK;
    }
};

duet_status create(const bench_model& m, int32_t n_ctx, session_ptr* out, std::string* error) {
    duet_session_params p = duet_session_params_default();
    p.n_ctx = n_ctx;
    duet_session* made = nullptr;
    const duet_status status = duet_session_create(m.model.get(), &p, &made);
    out->reset(made);
    if (status != DUET_OK) *error = made ? duet_session_error(made) : duet_status_name(status);
    return status;
}

// Empties the session, decodes a prompt of n_prompt tokens and generates n ids greedily.
duet_status generate(const bench_model& m, duet_session* session, int32_t n_prompt, int32_t n, ids* out,
                     std::string* error) {
    out->clear();
    duet_sampler* made = nullptr;
    duet_status status = duet_seq_trim(session, 0, 0);
    if (status == DUET_OK) status = duet_sampler_create(1, &made);
    const sampler_ptr sampler(made);
    if (status == DUET_OK) status = duet_sampler_set(made, "temp", 0);
    ids prompt;
    for (int32_t i = 0; i < n_prompt; i++) prompt.push_back(3 + i * 7 % (m.n_words - 3));
    duet_generate_params g = duet_generate_params_default();
    g.max_new_tok = n;
    g.ignore_end = 1;
    const auto keep = [](void* user, const duet_token_event* event) -> int32_t {
        if (event->id >= 0) ((ids*)user)->push_back(event->id);
        return 0;
    };
    if (status == DUET_OK) status = duet_generate(session, made, prompt.data(), n_prompt, &g, keep, out, nullptr);
    if (status != DUET_OK) *error = std::string(duet_status_name(status)) + ": " + duet_session_error(session);
    return status;
}

int wrong(const std::string& text) { return fprintf(stderr, "gpu_first_hour: %s\n", text.c_str()), 1; }

// Compares as many ids as there are. Returns an empty text, or the first difference.
std::string difference(const ids& want, ids got) {
    const char* is_broken = getenv("DUET_BREAK");
    if (is_broken && !got.empty()) got.back() ^= 1;
    for (size_t i = 0; i < got.size(); i++)
        if (i >= want.size() || got[i] != want[i])
            return "id " + std::to_string(i) + " of " + std::to_string(got.size()) + ": want " +
                   (i < want.size() ? std::to_string(want[i]) : "none") + " got " + std::to_string(got[i]);
    return got.empty() ? "no ids" : "";
}

int try_threads(const bench_model& m, duet_session* alone, int32_t n) {
    ids want, got, others;
    std::string error, other_error;
    if (generate(m, alone, 20, n, &want, &error) != DUET_OK) return wrong("alone: " + error);
    std::atomic<bool> is_done{false};
    int n_sessions = 0;
    std::thread other([&] {
        do {
            session_ptr session;
            // Other sizes each time, so that memory is taken and given back while the first thread records.
            if (create(m, n + 64 + 256 * (n_sessions % 8), &session, &other_error) != DUET_OK ||
                generate(m, session.get(), 20, std::min(n, 8), &others, &other_error) != DUET_OK)
                return;
            other_error = difference(want, others);
            n_sessions++;
        } while (!is_done && other_error.empty());
    });
    session_ptr session;
    duet_status status = create(m, n + 64, &session, &error);
    if (status == DUET_OK) status = generate(m, session.get(), 20, n, &got, &error);
    is_done = true;
    other.join();
    if (status != DUET_OK) return wrong("first thread: " + error);
    if (const std::string d = difference(want, got); !d.empty()) return wrong("first thread: " + d);
    if (!other_error.empty()) return wrong("second thread, session " + std::to_string(n_sessions) + ": " + other_error);
    return printf("%zu ids beside %d sessions, as alone\n", got.size(), n_sessions), 0;
}

int try_memory(const bench_model& m, duet_session* first, int32_t n) {
    ids want, want_new, got;
    std::string error;
    if (generate(m, first, 20, n, &want, &error) != DUET_OK) return wrong("with free memory: " + error);
    {
        session_ptr session;
        if (create(m, n + 128, &session, &error) != DUET_OK ||
            generate(m, session.get(), 90, n, &want_new, &error) != DUET_OK)
            return wrong("with free memory: " + error);
    }
    // Positions of a session double until one does not fit, then halve until the smallest does not.
    std::vector<session_ptr> fill;
    const uint64_t per_position =
        4ull * (uint64_t)m.made.shape.n_layers * (uint64_t)m.made.shape.n_kv_heads * (uint64_t)m.made.shape.head_dim;
    for (int64_t n_ctx = 4096; n_ctx >= 64;) {
        session_ptr session;
        const duet_status status = create(m, (int32_t)n_ctx, &session, &error);
        if (status == DUET_OK) fill.push_back(std::move(session));
        else if (status != DUET_ERR_MEMORY)
            return wrong("a session of " + std::to_string(n_ctx) + " positions: " + error);
        if (fill.size() > 4096) return wrong("4,096 sessions did not fill the memory");
        if (status == DUET_OK) n_ctx = std::min<int64_t>(n_ctx * 2, 1 << 20);
        else if ((uint64_t)n_ctx * per_position <= kLeftBytes / 8) break;
        else n_ctx /= 2;
    }
    const std::string last = error;
    const duet_status status = generate(m, first, 90, n, &got, &error);  // another prompt: a shape that was not there
    if (status != DUET_OK && status != DUET_ERR_MEMORY) return wrong("with full memory: " + error);
    if (const std::string d = status == DUET_OK ? difference(want_new, got) : ""; !d.empty())
        return wrong("with full memory: " + d);
    const size_t n_fill = fill.size();
    fill.clear();
    if (generate(m, first, 20, n, &got, &error) != DUET_OK) return wrong("after full memory: " + error);
    if (const std::string d = difference(want, got); !d.empty()) return wrong("after full memory: " + d);
    return printf("%zu sessions, then \"%s\"; a new shape: %s; then the same ids\n", n_fill, last.c_str(),
                  duet_status_name(status)),
           0;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 5) return wrong("usage: ids|threads|memory DEVICE SHAPE:FORMAT N");
    const std::string what = argv[1];
    const int32_t n = atoi(argv[4]);
    bench_model m;
    std::string error;
    if (!m.open(argv[2], argv[3])) return wrong(m.error);
    session_ptr session;
    if (create(m, n + 128, &session, &error) != DUET_OK) return wrong(error);
    // An emulated device has as much memory as the computer: it gets a limit.
    if (what == "memory" && std::string(argv[2]).substr(0, 3) == "emu")
        duet::emu_limit(duet::emu_memory().in_use + (100 << 20), 0);
    if (what == "threads") return try_threads(m, session.get(), n);
    if (what == "memory") return try_memory(m, session.get(), n);
    ids got;
    if (generate(m, session.get(), 20, n, &got, &error) != DUET_OK) return wrong(error);
    const char* is_recorded = getenv("DUET_GPU_RECORDING");
    if (getenv("DUET_BREAK") && is_recorded && *is_recorded == '1') got.back() ^= 1;
    for (int32_t id : got) printf("%d\n", id);
    return 0;
}
