/* tests/test_abi.c: the public interface from plain C99: what compiles, links, and answers sensibly to wrong arguments.
 * Usage: test_abi [MODEL.gguf]; without one, the demo model is used where it is there. */
#include "../runtime.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int n_failed = 0;

static void check(int is_good, const char* what, int line) {
    if (is_good) return;
    fprintf(stderr, "tests/test_abi.c:%d: failed: %s\n", line, what);
    n_failed++;
}
#define CHECK(what) check((what) ? 1 : 0, #what, __LINE__)

static int32_t count_token(void* user, const duet_token_event* event) {
    *(size_t*)user += event->n_bytes;
    return event->text[event->n_bytes] != 0; /* terminated, else stop */
}

static void refuse_warnings(void* user, int32_t level, const char* text) {
    (void)user;
    CHECK(level < DUET_LOG_WARN || strstr(text, "fast") == NULL);
}

static int32_t read_block(void* user, uint64_t offset, void* dst, uint64_t n_bytes) {
    memcpy(dst, (const char*)user + offset, (size_t)n_bytes);
    return 0;
}

static void check_constants(void) {
    CHECK(strcmp(duet_version(), "0.1.0") == 0);
    CHECK(strcmp(duet_status_name(DUET_OK), "DUET_OK") == 0);
    CHECK(strcmp(duet_status_name(DUET_ERR_STATE), "DUET_ERR_STATE") == 0);
    CHECK(strcmp(duet_status_name(77), "unknown status") == 0);
    CHECK(strlen(duet_build_info()) > 0);
    CHECK(duet_numerics_version() >= 1);
    CHECK(duet_type_by_name("q4_0") != NULL && duet_type_by_name("q4_0") == duet_type_by_id(2));
    CHECK(duet_type_by_name("nonsense") == NULL && duet_type_by_id(-1) == NULL && duet_type_row(-1) == NULL);
    CHECK(duet_type_row(duet_type_count()) == NULL);
    CHECK(duet_sampler_param_row(0) != NULL && duet_sampler_param_row(10000) == NULL);
}

static void check_wrong_arguments(void) {
    duet_model* model = NULL;
    duet_file* file = NULL;
    CHECK(duet_model_open("no such file.gguf", NULL, &model) == DUET_ERR_IO);
    CHECK(model != NULL && strstr(duet_model_error(model), "no such file.gguf") != NULL);
    duet_model_free(model);
    model = NULL;
    CHECK(duet_model_open("tests", NULL, &model) == DUET_ERR_IO);
    duet_model_free(model);
    CHECK(duet_model_open(NULL, NULL, &model) == DUET_ERR_ARG);
    duet_model_free(model);
    CHECK(duet_model_open("x", NULL, NULL) == DUET_ERR_ARG);
    CHECK(duet_model_open_memory("GGUF", 4, NULL, &model) == DUET_ERR_FORMAT);
    duet_model_free(model);
    CHECK(duet_file_open("no such file.gguf", &file) == DUET_ERR_IO);
    duet_file_free(file);
    duet_model_free(NULL);
    duet_file_free(NULL);
    duet_session_free(NULL);
    duet_sampler_free(NULL);
    CHECK(duet_sampler_create(1, NULL) == DUET_ERR_ARG);
    CHECK(duet_decode(NULL, NULL) == DUET_ERR_ARG);
    CHECK(duet_seq_ids(NULL, 0) == NULL && duet_seq_reuse(NULL, 0, NULL, 0) == -1);
    CHECK(duet_grammar_create(NULL, NULL, NULL) == DUET_ERR_ARG);
    CHECK(duet_sampler_grammar(NULL, NULL) == DUET_ERR_ARG && strlen(duet_grammar_error(NULL)) > 0);
    CHECK(duet_sampler_is_done(NULL) == 0);
    duet_grammar_free(NULL);
}

static void check_grammar(const duet_model* model, duet_session* session, duet_sampler* sampler, const int32_t* ids,
                          size_t n_ids) {
    duet_grammar_params params = duet_grammar_params_default();
    duet_grammar* grammar = NULL;
    duet_generate_result result;
    size_t n_written = 0;
    CHECK(params.struct_size == sizeof params && params.max_indent == 16);
    CHECK(duet_grammar_create(model, &params, &grammar) == DUET_ERR_ARG && strlen(duet_grammar_error(grammar)) > 0);
    CHECK(duet_sampler_grammar(sampler, grammar) == DUET_ERR_ARG);
    duet_grammar_free(grammar);
    params.json_schema = "{\"enum\": [\"yes\"]}";
    CHECK(duet_grammar_create(model, &params, &grammar) == DUET_OK);
    CHECK(duet_sampler_grammar(sampler, grammar) == DUET_OK && duet_sampler_is_done(sampler) == 0);
    duet_grammar_free(grammar);
    CHECK(duet_seq_reuse(session, 0, NULL, 0) == 0 && duet_seq_length(session, 0) == 0);
    result.struct_size = sizeof result;
    CHECK(duet_generate(session, sampler, ids, n_ids, NULL, count_token, &n_written, &result) == DUET_OK);
    CHECK(result.stop_reason == DUET_STOP_END && n_written == 5 && duet_sampler_is_done(sampler) == 1);
    CHECK(duet_seq_reuse(session, 0, ids, n_ids) == (int32_t)n_ids && duet_seq_ids(session, 0)[0] == ids[0]);
    CHECK(duet_seq_reuse(session, 0, NULL, 0) == 0);
    CHECK(duet_sampler_grammar(sampler, NULL) == DUET_OK);
}

static void check_generation(const duet_model* model) {
    const char prompt[] = "Once upon a time";
    int32_t ids[64], id = -1;
    char text[256];
    size_t n_ids = 0, n_bytes = 0, n_written = 0;
    duet_session_params params = duet_session_params_default();
    duet_memory_plan plan;
    duet_session* session = NULL;
    duet_sampler* sampler = NULL;
    duet_generate_params generate = duet_generate_params_default();
    duet_generate_result result;
    duet_batch batch;

    plan.struct_size = sizeof plan;
    result.struct_size = sizeof result;
    CHECK(params.struct_size == sizeof params && generate.struct_size == sizeof generate);
    CHECK(duet_tokenize(model, prompt, strlen(prompt), DUET_TOKENIZE_ADD_BOS, ids, 64, &n_ids) == DUET_OK);
    CHECK(n_ids > 1 && n_ids <= 64);
    CHECK(duet_tokenize(model, prompt, strlen(prompt), 0, ids, 0, &n_ids) == DUET_ERR_FULL);
    CHECK(duet_tokenize(model, prompt, strlen(prompt), 0, ids, 64, &n_ids) == DUET_OK);
    CHECK(duet_detokenize(model, ids, n_ids, 0, text, sizeof text, &n_bytes) == DUET_OK);
    CHECK(n_bytes == strlen(prompt) && memcmp(text, prompt, n_bytes) == 0);

    params.n_ctx = 0x7fffffff;
    CHECK(duet_session_create(model, &params, &session) == DUET_ERR_ARG);
    duet_session_free(session);
    session = NULL;
    params.n_ctx = 48;
    CHECK(duet_session_plan(model, &params, &plan) == DUET_OK && plan.weight_bytes > 0 && plan.cache_bytes > 0);
    CHECK(duet_session_create(model, &params, &session) == DUET_OK);
    CHECK(duet_session_n_ctx(session) == 48);

    batch = duet_batch_default();
    CHECK(duet_decode(session, &batch) == DUET_ERR_ARG);
    batch.n_tok = (int32_t)n_ids;
    batch.token = ids;
    CHECK(duet_decode(session, &batch) == DUET_OK);
    CHECK(duet_logits_count(session) == 1 && duet_logits(session, 0) != NULL && duet_logits(session, 1) == NULL);
    CHECK(duet_seq_length(session, 0) == (int32_t)n_ids && duet_seq_length(session, 1) == -1);
    CHECK(duet_sampler_create(1, &sampler) == DUET_OK);
    CHECK(duet_sampler_set(sampler, "temp", 0) == DUET_OK);
    CHECK(duet_sampler_set(sampler, "no such step", 0) == DUET_ERR_ARG);
    CHECK(strstr(duet_sampler_error(sampler), "no such step") != NULL);
    {
        duet_model_info info;
        info.struct_size = sizeof info;
        CHECK(duet_model_get_info(model, &info) == DUET_OK && info.n_vocab > 0);
        CHECK(duet_sampler_choose(sampler, duet_logits(session, 0), info.n_vocab, &id) == DUET_OK);
        CHECK(id >= 0 && id < info.n_vocab);
        id = info.n_vocab;
        batch.token = &id;
        batch.n_tok = 1;
        CHECK(duet_decode(session, &batch) == DUET_ERR_ARG && strlen(duet_session_error(session)) > 0);
    }
    CHECK(duet_seq_trim(session, 0, 0) == DUET_OK && duet_seq_length(session, 0) == 0);
    generate.max_new_tok = 8;
    generate.ignore_end = 1;
    CHECK(duet_generate(session, sampler, ids, n_ids, &generate, count_token, &n_written, &result) == DUET_OK);
    CHECK(result.n_prompt_tok == (int32_t)n_ids && result.n_new_tok == 8 && result.stop_reason == DUET_STOP_LIMIT);
    CHECK(n_written > 0);
    check_grammar(model, session, sampler, ids, n_ids);
    duet_session_cancel(session);
    CHECK(duet_generate(session, sampler, ids, n_ids, &generate, NULL, NULL, NULL) == DUET_ERR_CANCELLED);
    duet_sampler_free(sampler);
    duet_session_free(session);
}

int main(int argc, char** argv) {
    const char* path = argc > 1 ? argv[1] : "models/demo.gguf";
    FILE* file = fopen(path, "rb");
    duet_model* model = NULL;
    duet_model_params older;
    check_constants();
    check_wrong_arguments();
    if (file) {
        char* block;
        long n_bytes;
        fseek(file, 0, SEEK_END);
        n_bytes = ftell(file);
        rewind(file);
        block = (char*)malloc((size_t)n_bytes);
        CHECK(block && fread(block, 1, (size_t)n_bytes, file) == (size_t)n_bytes);
        fclose(file);
        CHECK(duet_model_open(path, NULL, &model) == DUET_OK);
        check_generation(model);
        duet_model_free(model);
        CHECK(duet_model_open_memory(block, (uint64_t)n_bytes, NULL, &model) == DUET_OK);
        duet_model_free(model);
        older = duet_model_params_default(); /* a program built before the last fields were there */
        older.struct_size = (uint32_t)offsetof(duet_model_params, fast);
        older.log = refuse_warnings;
        older.fast = 1;
        CHECK(duet_model_open_memory(block, (uint64_t)n_bytes, &older, &model) == DUET_OK);
        duet_model_free(model);
        CHECK(duet_model_open_memory(block, (uint64_t)n_bytes - 1, NULL, &model) == DUET_ERR_FORMAT);
        duet_model_free(model);
        CHECK(duet_model_open_reader(read_block, block, (uint64_t)n_bytes, NULL, &model) == DUET_OK);
        free(block);
        check_generation(model);
        duet_model_free(model);
    } else {
        fprintf(stderr, "skipped: test_abi: the cases with a model: no %s\n", path);
    }
    printf("test_abi: %s\n", n_failed ? "FAILED" : "passed");
    return n_failed != 0;
}
