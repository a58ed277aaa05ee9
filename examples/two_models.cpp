// examples/two_models.cpp: two models at once, each in a thread of its own, both told the same beginning. C++17.
//   c++ -std=c++17 examples/two_models.cpp $(pkg-config --cflags --libs duet) -o two
//   ./two a.gguf b.gguf "Once upon a time"
// Nothing is shared and nothing is locked: the library keeps no state outside its handles. Ctrl-C stops both.
#include <runtime.h>
#include <algorithm>
#include <atomic>
#include <csignal>
#include <iostream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

// What one thread has: the handles free themselves in the opposite order.
struct storyteller {
    template <auto free_handle> struct freeing {
        template <class T> void operator()(T* handle) const { free_handle(handle); }
    };
    template <class T, auto free_handle> using owned = std::unique_ptr<T, freeing<free_handle>>;
    owned<duet_model, duet_model_free> model;
    owned<duet_session, duet_session_free> session;
    owned<duet_sampler, duet_sampler_free> sampler;
    std::string text, error;

    void tell(const char* path, const std::string& beginning, int n_threads);
};

// The callbacks look at it; duet_session_cancel would stop long prompts, too.
static std::atomic<bool> is_stopped{false};

static int32_t add_text(void* text, const duet_token_event* event) {
    ((std::string*)text)->append(event->text, event->n_bytes);
    return is_stopped;
}

void storyteller::tell(const char* path, const std::string& beginning, int n_threads) {
    duet_model_params params = duet_model_params_default();
    params.n_threads = n_threads;  // of each model: together no more than the machine has cores
    duet_model* opened = nullptr;
    duet_status status = duet_model_open(path, &params, &opened);
    model.reset(opened);
    if (status != DUET_OK) return void(error = duet_model_error(opened));
    std::vector<int32_t> ids(beginning.size() + 2);
    size_t n_ids = 0;
    status = duet_tokenize(opened, beginning.data(), beginning.size(), DUET_TOKENIZE_ADD_BOS, ids.data(), ids.size(),
                           &n_ids);
    if (status != DUET_OK) return void(error = duet_model_error(opened));
    duet_session* made = nullptr;
    status = duet_session_create(opened, nullptr, &made);
    session.reset(made);
    if (status != DUET_OK) return void(error = duet_session_error(made));
    duet_sampler* steps = nullptr;
    status = duet_sampler_create(1, &steps);
    sampler.reset(steps);
    if (status != DUET_OK) return void(error = duet_sampler_error(steps));
    duet_generate_params limits = duet_generate_params_default();
    limits.max_new_tok = 64;
    status = duet_generate(made, steps, ids.data(), n_ids, &limits, add_text, &text, nullptr);
    if (status != DUET_OK) error = duet_session_error(made);
}

int main(int argc, char** argv) {
    if (argc != 4) return std::cerr << "usage: " << argv[0] << " MODEL MODEL TEXT\n", 2;
    std::signal(SIGINT, [](int) { is_stopped = true; });
    const int n_threads = (int)std::max(2u, std::thread::hardware_concurrency()) / 2;
    storyteller tellers[2];
    std::thread other([&] { tellers[1].tell(argv[2], argv[3], n_threads); });
    tellers[0].tell(argv[1], argv[3], n_threads);
    other.join();
    for (int i = 0; i < 2; i++) {
        if (!tellers[i].error.empty()) return std::cerr << tellers[i].error << "\n", 1;
        std::cout << argv[3] << tellers[i].text << "\n----\n";
    }
}
