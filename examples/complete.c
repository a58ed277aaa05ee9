/* examples/complete.c: completes a text and prints it as it comes. C99; the whole program an app needs.
 *   cc examples/complete.c $(pkg-config --cflags --libs duet) -o complete && ./complete model.gguf "Once upon a time"
 */
#include <runtime.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char** argv) {
    duet_model* model = NULL;
    duet_session* session = NULL;
    duet_sampler* sampler = NULL;
    duet_generation* generation = NULL;
    duet_token_event event = {0};
    const char* error = NULL; /* the text stands with the object whose function failed */
    int32_t ids[512];
    size_t n_ids;
    event.struct_size = sizeof event;
    if (argc != 3) return fprintf(stderr, "usage: %s MODEL PROMPT\n", argv[0]), 2;
    if (duet_model_open(argv[1], NULL, &model) != DUET_OK) error = duet_model_error(model);
    else if (duet_tokenize(model, argv[2], strlen(argv[2]), DUET_TOKENIZE_ADD_BOS, ids, 512, &n_ids) != DUET_OK)
        error = duet_model_error(model);
    else if (duet_session_create(model, NULL, &session) != DUET_OK) error = duet_session_error(session);
    else if (duet_sampler_create(1, &sampler) != DUET_OK || duet_sampler_set(sampler, "temp", 0.7f) != DUET_OK)
        error = duet_sampler_error(sampler);
    else if (duet_generate_begin(session, sampler, ids, n_ids, NULL, &generation) != DUET_OK)
        error = duet_session_error(session);
    while (!error) { /* an event loop may do something else between two steps */
        if (duet_generate_next(generation, &event) != DUET_OK) error = duet_session_error(session);
        fwrite(event.text, 1, event.n_bytes, stdout); /* whole characters of UTF-8, also when the step failed */
        fflush(stdout);
        if (event.stop_reason != DUET_STOP_NONE) break;
    }
    if (error) fprintf(stderr, "%s: %s\n", argv[0], error);
    duet_generation_free(generation); /* at any step: what was told stays in the session */
    duet_sampler_free(sampler);       /* each accepts NULL */
    duet_session_free(session);
    duet_model_free(model);
    puts("");
    return error || fflush(stdout) != 0 || ferror(stdout); /* a full disk is an error, too */
}
