/* examples/complete.c: completes a text and prints it as it comes. C99; the whole program an app needs.
 *   cc examples/complete.c $(pkg-config --cflags --libs duet) -o complete && ./complete model.gguf "Once upon a time"
 */
#include <runtime.h>
#include <stdio.h>
#include <string.h>

static int failed(const char* what, const char* why) {
    fprintf(stderr, "%s: %s\n", what, why);
    return 1;
}

static int complete(duet_model* model, duet_session* session, duet_sampler* sampler, const char* prompt) {
    int32_t ids[512];
    size_t n_ids;
    if (duet_tokenize(model, prompt, strlen(prompt), DUET_TOKENIZE_ADD_BOS, ids, 512, &n_ids) != DUET_OK)
        return failed("prompt", duet_model_error(model));

    duet_generation* generation;
    duet_token_event event = {0};
    event.struct_size = sizeof event;
    duet_status status = duet_generate_begin(session, sampler, ids, n_ids, NULL, &generation);
    while (status == DUET_OK) {
        status = duet_generate_next(generation, &event); /* one step: an event loop may do something else between two */
        fwrite(event.text, 1, event.n_bytes, stdout);    /* whole characters of UTF-8, also when the step failed */
        fflush(stdout);
        if (event.stop_reason != DUET_STOP_NONE) break;
    }
    duet_generation_free(generation); /* at any step: what was told stays in the session */
    return status == DUET_OK ? puts("") == EOF : failed("generation", duet_session_error(session));
}

int main(int argc, char** argv) {
    duet_model* model = NULL;
    duet_session* session = NULL;
    duet_sampler* sampler = NULL;
    int result = 1;
    if (argc != 3) return fprintf(stderr, "usage: %s MODEL PROMPT\n", argv[0]), 2;
    if (duet_model_open(argv[1], NULL, &model) != DUET_OK) failed("model", duet_model_error(model));
    else if (duet_session_create(model, NULL, &session) != DUET_OK) failed("session", duet_session_error(session));
    else if (duet_sampler_create(1, &sampler) != DUET_OK || duet_sampler_set(sampler, "temp", 0.7f) != DUET_OK)
        failed("sampler", duet_sampler_error(sampler));
    else result = complete(model, session, sampler, argv[2]);
    duet_sampler_free(sampler); /* each accepts NULL */
    duet_session_free(session);
    duet_model_free(model);
    return result;
}
