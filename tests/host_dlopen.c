/* tests/host_dlopen.c: a program that opens the shared library at run time and keeps its symbols to itself
 * (RTLD_LOCAL), and that has symbols of a C++ library of its own, as Electron and game engines do. When the library
 * calls one of these, the program says so and fails. usage: host_dlopen LIBDUET.SO MODEL
 */
#define _GNU_SOURCE
#include "../runtime.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OWN(name)                                                                                                      \
    __attribute__((visibility("default"))) void name(void);                                                            \
    void name(void) {                                                                                                  \
        fputs("host_dlopen: the library called the program's own " #name "\n", stderr);                                \
        abort();                                                                                                       \
    }
OWN(_Znwm)   /* operator new(unsigned long) */
OWN(_Znam)   /* operator new[](unsigned long) */
OWN(_ZdlPv)  /* operator delete(void*) */
OWN(_ZdlPvm) /* operator delete(void*, unsigned long) */
OWN(_ZdaPv)  /* operator delete[](void*) */
OWN(_ZSt17__throw_bad_allocv)
OWN(_ZSt20__throw_length_errorPKc)
OWN(_ZNSt6thread15_M_start_threadESt10unique_ptrINS_6_StateESt14default_deleteIS1_EEPFvvE)
OWN(_ZNSt18condition_variable10notify_allEv)
OWN(__cxa_throw)
OWN(__cxa_allocate_exception)
OWN(__cxa_begin_catch)
OWN(__gxx_personality_v0)

#define GET(name) __typeof__(&name) name##_ = (__typeof__(&name))dlsym(library, #name)

static int failed(const char* what, const char* why) {
    fprintf(stderr, "host_dlopen: %s: %s\n", what, why ? why : "?");
    return 1;
}

static int round_of(const char* path, const char* file) {
    void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) return failed("dlopen", dlerror());
    if (dlsym(RTLD_DEFAULT, "duet_version")) return failed(path, "its symbols are not its own");
    GET(duet_model_open);
    GET(duet_model_free);
    GET(duet_model_error);
    GET(duet_tokenize);
    GET(duet_session_create);
    GET(duet_session_free);
    GET(duet_session_error);
    GET(duet_sampler_create);
    GET(duet_sampler_free);
    GET(duet_generate);
    if (!duet_model_open_ || !duet_generate_ || !duet_sampler_free_) return failed("dlsym", dlerror());

    duet_model *model = NULL, *none = NULL;
    duet_session *session = NULL, *huge = NULL;
    duet_sampler* sampler = NULL;
    duet_session_params params = {0};
    params.struct_size = sizeof params; /* n_seqs and max_batch are 0: an error */
    int32_t ids[16];
    size_t n_ids = 0;
    duet_generate_result result = {0};
    result.struct_size = sizeof result;
    int wrong = 0;
    if (duet_model_open_("no such file", NULL, &none) != DUET_ERR_IO) wrong = failed("model", "want DUET_ERR_IO");
    duet_model_free_(none);
    if (duet_model_open_(file, NULL, &model) != DUET_OK) wrong = failed("model", duet_model_error_(model));
    else if (duet_tokenize_(model, "Once upon", 9, DUET_TOKENIZE_ADD_BOS, ids, 16, &n_ids) != DUET_OK)
        wrong = failed("prompt", duet_model_error_(model));
    else if (duet_session_create_(model, &params, &huge) != DUET_ERR_ARG)
        wrong = failed("session", "want DUET_ERR_ARG");
    else if (duet_session_create_(model, NULL, &session) != DUET_OK)
        wrong = failed("session", duet_session_error_(session));
    else if (duet_sampler_create_(1, &sampler) != DUET_OK) wrong = failed("sampler", "not made");
    else {
        duet_generate_params limits = {0};
        limits.struct_size = sizeof limits;
        limits.max_new_tok = 8;
        if (duet_generate_(session, sampler, ids, n_ids, &limits, NULL, NULL, &result) != DUET_OK ||
            result.n_new_tok < 1)
            wrong = failed("generation", duet_session_error_(session));
    }
    duet_sampler_free_(sampler);
    duet_session_free_(huge);
    duet_session_free_(session);
    duet_model_free_(model);
    if (dlclose(library)) return failed("dlclose", dlerror());
    return wrong;
}

int main(int argc, char** argv) {
    if (argc != 3) return fprintf(stderr, "usage: %s LIBDUET.SO MODEL\n", argv[0]), 2;
    for (int i = 0; i < 3; i++)
        if (round_of(argv[1], argv[2])) return 1;
    puts("host_dlopen: good, 3 rounds");
    return 0;
}
