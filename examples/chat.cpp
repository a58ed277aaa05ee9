// examples/chat.cpp: a chat with history, streaming and a stop button, with handles that free themselves. C++17.
//   c++ -std=c++17 examples/chat.cpp $(pkg-config --cflags --libs duet) -o chat && ./chat model.gguf
// A second argument names a built-in template (chatml, ...), for files without one.
#include <runtime.h>
#include <csignal>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>

// A handle, its creation, and the text of a failed one: creation stores the handle also when it fails.
template <auto free_handle> struct freeing {
    template <class T> void operator()(T* handle) const { free_handle(handle); }
};
template <class T, auto free_handle, auto error_text> struct owned : std::unique_ptr<T, freeing<free_handle>> {
    template <class Create, class... Args> explicit owned(Create create, Args... args) {
        T* made = nullptr;
        const duet_status status = create(args..., &made);
        this->reset(made);
        check(status);
    }
    void check(duet_status status) const {
        if (status != DUET_OK) throw std::runtime_error(error_text(this->get()));
    }
};
using owned_model = owned<duet_model, duet_model_free, duet_model_error>;
using owned_session = owned<duet_session, duet_session_free, duet_session_error>;
using owned_sampler = owned<duet_sampler, duet_sampler_free, duet_sampler_error>;
using owned_chat = owned<duet_chat, duet_chat_free, duet_chat_error>;

static duet_session* volatile answering = nullptr;  // for the signal handler

static void on_stop(int signal_number) {
    std::signal(signal_number, answering ? on_stop : SIG_DFL);
    if (answering) duet_session_cancel(answering);  // any thread may call this, and a signal handler
    else std::raise(signal_number);                 // at the prompt it ends the program
}

// Answers the messages; the answer joins them, also when it was stopped.
static void answer(const owned_chat& chat, duet_session* session, duet_sampler* sampler) {
    duet_chat_turn* begun = nullptr;
    chat.check(duet_chat_begin(chat.get(), session, sampler, nullptr, &begun));
    const std::unique_ptr<duet_chat_turn, freeing<duet_chat_turn_free>> turn(begun);
    duet_chat_event event{};
    event.struct_size = sizeof event;
    answering = session;
    while (event.kind != DUET_CHAT_END) {
        const duet_status status = duet_chat_next(turn.get(), &event);
        if (event.kind == DUET_CHAT_TEXT) std::cout.write(event.text.data, (std::streamsize)event.text.n_bytes).flush();
        if (status != DUET_ERR_CANCELLED) chat.check(status);
    }
    answering = nullptr;
    std::cout << std::endl;
}

int main(int argc, char** argv) try {
    if (argc < 2) return std::cerr << "usage: " << argv[0] << " MODEL [TEMPLATE]\n", 2;
    const owned_model model(duet_model_open, argv[1], nullptr);
    const owned_session session(duet_session_create, model.get(), nullptr);
    const owned_sampler sampler(duet_sampler_create, 1);
    sampler.check(duet_sampler_set(sampler.get(), "temp", 0.7f));
    duet_chat_params params = duet_chat_params_default();
    if (argc > 2) params.template_name = argv[2];
    const owned_chat chat(duet_chat_create, model.get(), &params);
    std::signal(SIGINT, on_stop);
    for (std::string line; std::cout << "> " << std::flush && std::getline(std::cin, line);) {
        chat.check(duet_chat_add(chat.get(), "user", line.data(), line.size()));
        answer(chat, session.get(), sampler.get());
    }
} catch (const std::exception& e) { return std::cerr << e.what() << "\n", 1; }
