/* examples/chat.c: a chat with history. Answers are printed as they come; Ctrl-C stops one, as a stop button would.
 *   cc examples/chat.c $(pkg-config --cflags --libs duet) -o chat && ./chat model.gguf
 * C99. A second argument names a built-in template (chatml, ...), for files without one.
 */
#include <runtime.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static duet_session* session;
static volatile sig_atomic_t is_answering;

static void on_stop(int signal_number) {
    signal(signal_number, is_answering ? on_stop : SIG_DFL);
    if (is_answering) duet_session_cancel(session); /* any thread may call this, and a signal handler */
    else raise(signal_number);                      /* at the prompt it ends the program */
}

static int failed(const char* what, const char* why) {
    fprintf(stderr, "%s: %s\n", what, why);
    return 1;
}

/* Answers the messages; the answer joins them, also when it was stopped. */
static duet_status answer(duet_chat* chat, duet_sampler* sampler) {
    duet_chat_turn* turn;
    duet_chat_event event = {0};
    event.struct_size = sizeof event;
    duet_status status = duet_chat_begin(chat, session, sampler, NULL, &turn);
    is_answering = 1;
    while (status == DUET_OK && event.kind != DUET_CHAT_END) {
        status = duet_chat_next(turn, &event); /* one step: an event loop may do something else between two */
        if (event.kind == DUET_CHAT_TEXT) fwrite(event.text.data, 1, (size_t)event.text.n_bytes, stdout);
        fflush(stdout);
    }
    is_answering = 0;
    duet_chat_turn_free(turn);
    puts("");
    return status == DUET_ERR_CANCELLED ? DUET_OK : status;
}

static int talk(duet_chat* chat, duet_sampler* sampler) {
    char line[4096];
    signal(SIGINT, on_stop);
    while (fputs("> ", stdout) != EOF && fflush(stdout) == 0 && fgets(line, sizeof line, stdin)) {
        if (strlen(line) == sizeof line - 1 && !strchr(line, '\n')) return failed("chat", "a line is too long");
        if (duet_chat_add(chat, "user", line, strcspn(line, "\n")) != DUET_OK || answer(chat, sampler) != DUET_OK)
            return failed("chat", duet_chat_error(chat));
    }
    return 0;
}

int main(int argc, char** argv) {
    duet_model* model = NULL;
    duet_sampler* sampler = NULL;
    duet_chat* chat = NULL;
    duet_chat_params params = duet_chat_params_default();
    int result = 1;
    if (argc < 2) return fprintf(stderr, "usage: %s MODEL [TEMPLATE]\n", argv[0]), 2;
    if (argc > 2) params.template_name = argv[2];
    if (duet_model_open(argv[1], NULL, &model) != DUET_OK) failed("model", duet_model_error(model));
    else if (duet_session_create(model, NULL, &session) != DUET_OK) failed("session", duet_session_error(session));
    else if (duet_sampler_create(1, &sampler) != DUET_OK || duet_sampler_set(sampler, "temp", 0.7f) != DUET_OK)
        failed("sampler", duet_sampler_error(sampler));
    else if (duet_chat_create(model, &params, &chat) != DUET_OK) failed("chat", duet_chat_error(chat));
    else result = talk(chat, sampler);
    duet_chat_free(chat); /* each accepts NULL */
    duet_sampler_free(sampler);
    duet_session_free(session);
    duet_model_free(model);
    return result;
}
