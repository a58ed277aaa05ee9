// runtime/guard.h: the border of the library. Every function of runtime.cpp runs inside one of the calls below, so that
// no exception leaves the library and every failure has a text.
// Owns: what becomes of an exception, and the text of the calling thread. Must not know: models, sessions, files.
// Main path: runtime.cpp -> [runtime/guard.h] -> runtime/guard.cpp
#pragma once
#include "../models/status.h"

#include <cfenv>
#include <cstring>
#include <cxxabi.h>

namespace duet {

// The number of a shared handle (a model, a file). Numbers are never used again, so that a thread's text of a handle
// that was freed is not taken for that of a new handle at the same address.
uint64_t new_handle_number() noexcept;

// The last error of the calling thread. It needs no allocation. handle 0: the call had no handle.
void keep_thread_error(uint64_t handle, const char* text) noexcept;
const char* thread_error(uint64_t handle) noexcept;  // null: the thread's last error belongs to another handle
const char* thread_error() noexcept;                 // of a call without a handle; "" where there was none

// Called while an exception is handled: its status, and its text in err. Its own messages fit into the string itself.
duet_status caught(error_text& err) noexcept;

// The environment of floating point that all bits stand for (round to nearest), and the caller's again at the end.
struct float_environment {
    fenv_t callers;
    float_environment() { fegetenv(&callers), fesetenv(FE_DFL_ENV); }
    ~float_environment() { fesetenv(&callers); }
};

// The one guard: runs f, whose exceptions become a status. A thread that ends within a callback (pthread_exit, as
// Python's do when it ends) leaves through here.
template <class F> duet_status guarded(error_text& err, F f) {
    const float_environment here;
    try {
        return f();
#ifdef __GLIBCXX__
    } catch (const abi::__forced_unwind&) {
        throw;
#endif
    } catch (...) { return caught(err); }
}

// A call on a handle that one thread uses at a time, f(handle, args...): its text stays on the handle.
template <class Handle, class F, class... Args>
duet_status guarded_call(const char* name, Handle* handle, F f, Args... args) {
    if (handle) return guarded(handle->err, [&] { return f(*handle, args...); });
    char text[96];
    snprintf(text, sizeof text, "%s: the handle is NULL", name);
    keep_thread_error(0, text);
    return DUET_ERR_ARG;
}

// A call whose text goes to the thread, f(args..., err): on a shared handle with that number, or on none (0).
template <class F, class... Args> duet_status guarded_shared(uint64_t handle, F f, Args... args) {
    error_text err;
    const duet_status status = guarded(err, [&] { return f(args..., err); });
    if (status != DUET_OK) keep_thread_error(handle, err.text.c_str());
    return status;
}

// A call that returns a value, f(args...): `none` when it fails.
template <class T, class F, class... Args> T guarded_value(T none, F f, Args... args) {
    (void)guarded_shared(0, [&](error_text&) {
        none = f(args...);
        return DUET_OK;
    });
    return none;
}

// A caller's parameters over the defaults in *out; programs that were built earlier know fewer fields.
template <class P> duet_status read_struct(const char* name, const P* given, P* out, error_text& err) {
    if (!given) return DUET_OK;
    if (given->struct_size < sizeof(uint32_t) || given->struct_size > sizeof *out)
        return fail(err, DUET_ERR_ARG, "%s.struct_size: want %zu (duet_x_default() or sizeof sets it), got %u", name,
                    sizeof *out, given->struct_size);
    memcpy((void*)out, given, given->struct_size);
    out->struct_size = sizeof *out;
    return DUET_OK;
}

// A struct of zeros that knows its size.
template <class P> P sized() {
    P p{};
    p.struct_size = sizeof p;
    return p;
}

// The defaults of each struct of parameters; what is not named is 0.
template <class P> void set_defaults(P&) {}
inline void set_defaults(duet_model_params& p) { p.gpu_layers = p.cpu_expert_layers = p.gpu_recording = -1; }
inline void set_defaults(duet_session_params& p) {
    p.n_seqs = 1;
    p.max_batch = 512;
}
inline void set_defaults(duet_embed_params& p) { p.normalise = 1; }
inline void set_defaults(duet_generate_params& p) { p.max_new_tok = -1; }
inline void set_defaults(duet_grammar_params& p) { p.max_indent = 16; }
inline void set_defaults(duet_chat_params& p) { p.thinking = -1; }
inline void set_defaults(duet_chat_turn_params& p) { p.max_new_tok = -1; }
inline void set_defaults(duet_chat_grammar_params& p) {
    p.parallel = 1;
    p.opens_thinking = -1;
}
template <class P> P defaults_of() {
    P p = sized<P>();
    set_defaults(p);
    return p;
}

// The part of a struct that the caller has room for.
template <class P> duet_status check_room(const char* name, const P* out, error_text& err) {
    if (!out) return fail(err, DUET_ERR_ARG, "%s: want room for it, got NULL", name);
    if (out->struct_size < sizeof(uint32_t) || out->struct_size > sizeof *out)
        return fail(err, DUET_ERR_ARG, "%s.struct_size: want %zu (set it before the call), got %u", name, sizeof *out,
                    out->struct_size);
    return DUET_OK;
}
template <class P> void write_struct(P from, P* out) noexcept {
    from.struct_size = out->struct_size;
    memcpy((void*)out, &from, from.struct_size);
}

// What the duet_x_init functions do.
template <class P> void init_struct(P defaults, P* out, uint32_t struct_size) noexcept {
    if (!out || struct_size < sizeof(uint32_t)) return;
    memset((void*)out, 0, struct_size);
    defaults.struct_size = struct_size;
    memcpy((void*)out, &defaults, struct_size < sizeof defaults ? struct_size : sizeof defaults);
}

}  // namespace duet
