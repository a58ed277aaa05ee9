// runtime.cpp: every function of runtime.h, and nothing else. Each one runs inside the guard (runtime/guard.h), so that
// no exception leaves the library; tests/exports.py checks that. What a call does stands in runtime/<subject>.cpp.
// Owns: which handle keeps the text of a call's error. Must not know: how anything is done.
// Main path: tools/run.cpp -> runtime.h -> [runtime.cpp] -> runtime/generate.cpp -> runtime/session.cpp
#include "runtime/calls.h"
#include "runtime/chat.h"
#include "runtime/devices.h"
#include "models/unicode.h"
#include "quant/exact.h"

#include <functional>

using namespace duet;

namespace {

duet_status null_argument(const char* call, const char* name, error_text& err) {
    return fail(err, DUET_ERR_ARG, "%s: %s is NULL", call, name);
}

// The file of a handle that threads share: a file, or a model, whose number and text of opening stand there.
const duet_file* file_of(const duet_file* file) { return file; }
const duet_file* file_of(const duet_model* model) { return model ? &model->source : nullptr; }

template <class Handle> error_text& error_of(Handle& handle) { return handle.err; }
error_text& error_of(duet_model& model) { return model.source.err; }

// Makes a handle and fills it: fill(handle, args...). The handle is stored also when that fails, so that the text can
// be read from it.
template <class Handle, class Fill, class... Args>
duet_status create(const char* call, Handle** out, Fill fill, Args... args) {
    return guarded_shared(0, [&](error_text& err) -> duet_status {
        if (!out) return null_argument(call, "out", err);
        *out = nullptr;
        Handle* const handle = new Handle;
        *out = handle;
        return guarded(error_of(*handle), [&] { return fill(*handle, args...); });
    });
}

// A call on a file or a model, which threads share: f(handle, args..., err).
template <class Handle, class F, class... Args>
duet_status with_shared(const char* call, const char* name, const Handle* handle, F f, Args... args) {
    const duet_file* file = file_of(handle);
    return guarded_shared(file ? file->number : 0, [&](error_text& err) -> duet_status {
        return handle ? f(*handle, args..., err) : null_argument(call, name, err);
    });
}

// The text of a handle's last error. Files and models are shared by threads; any other handle has one thread at a time.
template <class Handle> const char* text_of_error(const Handle* handle) noexcept {
    return handle ? handle->err.text.c_str() : thread_error();
}
const char* text_of_error(const duet_file* file) noexcept {
    const char* text = thread_error(file ? file->number : 0);
    return text ? text : file ? file->err.text.c_str() : "";
}
const char* text_of_error(const duet_model* model) noexcept { return text_of_error(file_of(model)); }

// A call on a writer, as a rule of one of its members: f(writer, args..., err).
template <class F, class... Args>
duet_status with_writer(const char* call, duet_writer* writer, const void* key, F f, Args... args) {
    return guarded_call(call, writer, [&](duet_writer& w) -> duet_status {
        return key ? std::invoke(f, w.writer, args..., w.err)
                   : fail(w.err, DUET_ERR_ARG, "%s: want a key, name or data, got NULL", call);
    });
}

// A call on a session that was made, and one on a sequence of it: f(session, seq, args...).
template <class F, class... Args>
duet_status with_session(const char* call, duet_session* session, F f, Args... args) {
    return guarded_call(call, session, [&](duet_session& s) -> duet_status {
        DUET_TRY(check_session(s, call));
        return f(s, args...);
    });
}
template <class F, class... Args>
duet_status with_sequence(const char* call, duet_session* session, int32_t seq, F f, Args... args) {
    return with_session(call, session, [&](duet_session& s) -> duet_status {
        DUET_TRY(check_sequence(s, call, seq));
        return f(s, seq, args...);
    });
}

constexpr const duet_type_info* kNoType = nullptr;

template <class F> void guarded_void(F f) {
    (void)guarded_shared(0, [&](error_text&) {
        f();
        return DUET_OK;
    });
}

}  // namespace

// Defines the function that fills a struct with the defaults.
#define DUET_INIT(type)                                                                                                \
    void type##_init(type* out, uint32_t struct_size) {                                                                \
        guarded_void([=] { init_struct(defaults_of<type>(), out, struct_size); });                                     \
    }

// Defines the functions that free a handle and tell the text of its last error.
#define DUET_HANDLE(type)                                                                                              \
    void type##_free(type* handle) {                                                                                   \
        guarded_void([=] { delete handle; });                                                                          \
    }                                                                                                                  \
    const char* type##_error(const type* handle) {                                                                     \
        return guarded_value("", [=] { return text_of_error(handle); });                                               \
    }

extern "C" {

// ---- status ---------------------------------------------------------------------------------------------------------

const char* duet_status_name(duet_status status) {
    return guarded_value("unknown status", [=] {
        constexpr const char* kNames[] = {"DUET_OK",         "DUET_ERR_ARG",         "DUET_ERR_IO",
                                          "DUET_ERR_FORMAT", "DUET_ERR_UNSUPPORTED", "DUET_ERR_MEMORY",
                                          "DUET_ERR_FULL",   "DUET_ERR_DEVICE",      "DUET_ERR_CANCELLED",
                                          "DUET_ERR_NAN",    "DUET_ERR_STATE",       "DUET_ERR_INTERNAL"};
        return status <= DUET_OK && status >= DUET_ERR_INTERNAL ? kNames[-status] : "unknown status";
    });
}

#define DUET_TEXT_OF(x)                        #x
#define DUET_VERSION_TEXT(major, minor, patch) DUET_TEXT_OF(major) "." DUET_TEXT_OF(minor) "." DUET_TEXT_OF(patch)

const char* duet_version(void) {
    return guarded_value("",
                         [] { return DUET_VERSION_TEXT(DUET_VERSION_MAJOR, DUET_VERSION_MINOR, DUET_VERSION_PATCH); });
}

const char* duet_build_info(void) { return guarded_value("", build_info); }
int32_t duet_numerics_version(void) {
    return guarded_value(0, [] { return kNumericsVersion; });
}

size_t duet_utf8_length(const char* text, size_t n_bytes) {
    return guarded_value((size_t)0, [=] { return text ? utf8_length({text, n_bytes}) : 0; });
}

// ---- number formats -------------------------------------------------------------------------------------------------

int32_t duet_type_count(void) { return guarded_value(0, count_types); }

const duet_type_info* duet_type_row(int32_t i_row) { return guarded_value(kNoType, type_row, i_row); }

const duet_type_info* duet_type_by_name(const char* name) { return guarded_value(kNoType, type_by_name, name); }

const duet_type_info* duet_type_by_id(int32_t id) { return guarded_value(kNoType, type_by_id, id); }

duet_status duet_quantize_row(int32_t type_id, const float* src, int64_t n_elems, const float* importance, void* dst) {
    return guarded_shared(0, quantize_row, type_id, src, n_elems, importance, dst);
}

duet_status duet_dequantize_row(int32_t type_id, const void* src, int64_t n_elems, float* dst) {
    return guarded_shared(0, dequantize_row, type_id, src, n_elems, dst);
}

// ---- files ----------------------------------------------------------------------------------------------------------

duet_status duet_file_open(const char* path, duet_file** out) {
    return create(__func__, out, [=](duet_file& f) {
        return path ? f.file.open(path, f.err) : null_argument("duet_file_open", "path", f.err);
    });
}

DUET_HANDLE(duet_file)

int32_t duet_file_version(const duet_file* file) {
    return guarded_value(0, [=] { return file ? (int32_t)file->file.version : 0; });
}

int64_t duet_file_n_kv(const duet_file* file) {
    return guarded_value((int64_t)0, [=] { return file ? (int64_t)file->file.kvs.size() : 0; });
}

int64_t duet_file_n_tensors(const duet_file* file) {
    return guarded_value((int64_t)0, [=] { return file ? (int64_t)file->file.tensors.size() : 0; });
}

int32_t duet_file_n_parts(const duet_file* file) {
    return guarded_value(0, [=] { return file ? file->file.n_parts : 0; });
}

duet_status duet_file_kv(const duet_file* file, int64_t i, duet_kv* out) {
    return with_shared(__func__, "file", file, file_kv, i, out);
}

duet_status duet_file_tensor(const duet_file* file, int64_t i, duet_tensor* out) {
    return with_shared(__func__, "file", file, file_tensor, i, out);
}

int64_t duet_file_find_kv(const duet_file* file, const char* key) {
    return guarded_value((int64_t)-1, [=]() -> int64_t {
        const gguf_kv* kv = file && key ? file->file.find(key) : nullptr;
        return kv ? kv - file->file.kvs.data() : -1;
    });
}

int64_t duet_file_find_tensor(const duet_file* file, const char* name) {
    return guarded_value((int64_t)-1, [=]() -> int64_t {
        const gguf_tensor* t = file && name ? file->file.find_tensor(name) : nullptr;
        return t ? t - file->file.tensors.data() : -1;
    });
}

duet_status duet_file_get_int(const duet_file* file, int64_t i_kv, uint64_t i_value, int64_t* out) {
    return with_shared(__func__, "file", file, file_get_int, i_kv, i_value, out);
}

duet_status duet_file_get_float(const duet_file* file, int64_t i_kv, uint64_t i_value, double* out) {
    return with_shared(__func__, "file", file, file_get_float, i_kv, i_value, out);
}

duet_status duet_file_get_string(const duet_file* file, int64_t i_kv, uint64_t i_value, duet_string* out) {
    return with_shared(__func__, "file", file, file_get_string, i_kv, i_value, out);
}

duet_status duet_writer_create(duet_writer** out) {
    return create(__func__, out, [](duet_writer&) { return DUET_OK; });
}

DUET_HANDLE(duet_writer)

duet_status duet_writer_set_int(duet_writer* writer, const char* key, int32_t kv_type, int64_t value) {
    return with_writer(__func__, writer, key, &gguf_writer::set_int, key, kv_type, value);
}

duet_status duet_writer_set_float(duet_writer* writer, const char* key, int32_t kv_type, double value) {
    return with_writer(__func__, writer, key, &gguf_writer::set_float, key, kv_type, value);
}

duet_status duet_writer_set_string(duet_writer* writer, const char* key, const char* data, uint64_t n_bytes) {
    return with_writer(__func__, writer, data || n_bytes == 0 ? key : nullptr, &gguf_writer::set_string, key,
                       as_view(data, n_bytes));
}

duet_status duet_writer_set_array(duet_writer* writer, const char* key, int32_t type, const void* data, uint64_t n) {
    return with_writer(__func__, writer, key, &gguf_writer::set_array, key, type, data, n);
}

duet_status duet_writer_set_strings(duet_writer* writer, const char* key, const duet_string* strings, uint64_t n) {
    return with_writer(__func__, writer, strings || n == 0 ? key : nullptr, [=](gguf_writer& w, error_text& err) {
        std::vector<std::string_view> views;
        for (uint64_t i = 0; i < n; i++) views.push_back(as_view(strings[i].data, strings[i].n_bytes));
        return w.set_strings(key, views.data(), n, err);
    });
}

duet_status duet_writer_copy_kv(duet_writer* writer, const duet_file* from) {
    return with_writer(__func__, writer, from ? "" : nullptr,
                       [=](gguf_writer& w, error_text& err) { return w.copy_kv(from->file, err); });
}

duet_status duet_writer_add_tensor(duet_writer* writer, const char* name, int32_t type_id, int32_t n_dims,
                                   const int64_t* dims, const void* data) {
    return with_writer(__func__, writer, name, &gguf_writer::add_tensor, name, type_id, n_dims, dims, data);
}

duet_status duet_writer_add_tensor_from(duet_writer* writer, const char* name, int32_t type_id, int32_t n_dims,
                                        const int64_t* dims, duet_read_fn read, void* user) {
    return with_writer(__func__, writer, name, &gguf_writer::add_tensor_from, name, type_id, n_dims, dims, read, user);
}

duet_status duet_writer_save(duet_writer* writer, const char* path) {
    return with_writer(__func__, writer, path, &gguf_writer::save, path);
}

duet_status duet_writer_save_to(duet_writer* writer, duet_write_fn write, void* user) {
    return with_writer(__func__, writer, write ? "" : nullptr, &gguf_writer::save_to, write, user);
}

uint64_t duet_writer_size(const duet_writer* writer) {
    return guarded_value((uint64_t)0, [=] { return writer ? writer->writer.size() : 0; });
}

// ---- devices --------------------------------------------------------------------------------------------------------

duet_status duet_list_devices(duet_device_fn each, void* user) {
    return guarded_shared(0, [=](error_text& err) {
        return each ? tell_devices(each, user, err) : null_argument("duet_list_devices", "each", err);
    });
}

duet_status duet_self_test(const char* device, const char* cpu_isa, duet_self_test_fn report, void* user) {
    return guarded_shared(0, [=](error_text& err) {
        if (!device || !report) return null_argument("duet_self_test", device ? "report" : "device", err);
        return run_self_test(device, cpu_isa, report, user, err);
    });
}

double duet_measure_bandwidth_gbps(const char* device, const duet_model* model, int32_t n_threads) {
    return guarded_value(0.0, measure_bandwidth, device, model, n_threads);
}

// ---- models ---------------------------------------------------------------------------------------------------------

DUET_INIT(duet_model_params)

duet_status duet_model_open(const char* path, const duet_model_params* params, duet_model** out) {
    return create(__func__, out, open_model, model_source{.path = path, .call = __func__}, params);
}

duet_status duet_model_open_memory(const void* data, uint64_t n_bytes, const duet_model_params* p, duet_model** out) {
    return create(__func__, out, open_model, model_source{.data = data, .n_bytes = n_bytes, .call = __func__}, p);
}

duet_status duet_model_open_reader(duet_read_fn read, void* user, uint64_t n_bytes, const duet_model_params* params,
                                   duet_model** out) {
    return create(__func__, out, open_model,
                  model_source{.read = read, .user = user, .n_bytes = n_bytes, .call = __func__}, params);
}

DUET_HANDLE(duet_model)

duet_status duet_model_get_info(const duet_model* model, duet_model_info* out) {
    return with_shared(__func__, "model", model, model_info, out);
}

const duet_file* duet_model_file(const duet_model* model) {
    return guarded_value((const duet_file*)nullptr, [=] { return model ? &model->source : nullptr; });
}

// ---- text -----------------------------------------------------------------------------------------------------------

duet_status duet_tokenize(const duet_model* model, const char* text, size_t n_bytes, int32_t flags, int32_t* ids,
                          size_t max_ids, size_t* n_ids) {
    return with_shared(__func__, "model", model, tokenize, text, n_bytes, flags, ids, max_ids, n_ids);
}

duet_status duet_detokenize(const duet_model* model, const int32_t* ids, size_t n_ids, int32_t special, char* out,
                            size_t max_bytes, size_t* n_bytes) {
    return with_shared(__func__, "model", model, detokenize, ids, n_ids, special, out, max_bytes, n_bytes);
}

duet_string duet_token_text(const duet_model* model, int32_t id) {
    return guarded_value(duet_string{},
                         [=] { return model && model->has_vocab ? as_string(model->vocab.piece(id)) : duet_string{}; });
}

duet_string duet_token_spelling(const duet_model* model, int32_t id) {
    return guarded_value(duet_string{}, [=] {
        return model && model->has_vocab ? as_string(model->vocab.spelling(id)) : duet_string{};
    });
}

int32_t duet_token_bos(const duet_model* model) {
    return guarded_value(-1, [=] { return model && model->has_vocab ? model->vocab.bos() : -1; });
}

int32_t duet_token_eos(const duet_model* model) {
    return guarded_value(-1, [=] { return model && model->has_vocab ? model->vocab.eos() : -1; });
}

int32_t duet_token_is_end(const duet_model* model, int32_t id) {
    return guarded_value(0, [=] { return model && model->has_vocab && model->vocab.is_end(id) ? 1 : 0; });
}

int32_t duet_token_is_control(const duet_model* model, int32_t id) {
    return guarded_value(0, [=] { return model && model->has_vocab && model->vocab.is_control(id) ? 1 : 0; });
}

// ---- sessions -------------------------------------------------------------------------------------------------------

DUET_INIT(duet_session_params)

DUET_INIT(duet_batch)

duet_status duet_session_plan(const duet_model* model, const duet_session_params* params, duet_memory_plan* out) {
    return with_shared(__func__, "model", model, plan_session, params, out);
}

duet_status duet_session_create(const duet_model* model, const duet_session_params* params, duet_session** out) {
    return create(__func__, out, create_session, model, params);
}

DUET_HANDLE(duet_session)

int32_t duet_session_n_ctx(const duet_session* session) {
    return guarded_value(0, [=] { return session ? session->limits.n_ctx : 0; });
}

int32_t duet_session_max_batch(const duet_session* session) {
    return guarded_value(0, [=] { return session ? session->limits.max_batch : 0; });
}

int64_t duet_session_room(const duet_session* session) {
    return guarded_value((int64_t)0, [=] { return session && session->exec_context ? room_of(*session) : 0; });
}

duet_status duet_decode(duet_session* session, const duet_batch* batch) {
    return with_session(__func__, session, [=](duet_session& s) -> duet_status {
        if (!batch) return null_argument("duet_decode", "batch", s.err);
        auto b = defaults_of<duet_batch>();
        DUET_TRY(read_struct("duet_batch", batch, &b, s.err));
        return decode(s, b, {});
    });
}

float* duet_logits(duet_session* session, int32_t i) {
    return guarded_value((float*)nullptr, [=] { return session ? kept_logits(*session, i) : nullptr; });
}

int32_t duet_logits_count(const duet_session* session) {
    return guarded_value(0, [=] { return session ? (int32_t)session->kept.size() : 0; });
}

const float* duet_embedding(duet_session* session) {
    return guarded_value((const float*)nullptr, [=] { return session ? last_embedding(*session) : nullptr; });
}

DUET_INIT(duet_embed_params)

duet_status duet_embed(duet_session* session, const duet_string* texts, int32_t n_texts,
                       const duet_embed_params* params, float* out) {
    return guarded_call(__func__, session, embed, texts, n_texts, params, out);
}

duet_status duet_embed_ids(duet_session* session, const int32_t* ids, const int32_t* n_ids, int32_t n_texts,
                           const duet_embed_params* params, float* out) {
    return guarded_call(__func__, session, embed_ids, ids, n_ids, n_texts, params, out);
}

duet_status duet_rerank(duet_session* session, const char* query, size_t n_query_bytes, const duet_string* texts,
                        int32_t n_texts, float* scores) {
    return guarded_call(__func__, session, rerank, as_view(query, n_query_bytes), texts, n_texts, scores);
}

// No more than a store: a signal handler may call this.
void duet_session_cancel(duet_session* session) {
    guarded_void([=] {
        if (session) session->cancel.store(1);
    });
}

int32_t duet_seq_length(const duet_session* s, int32_t seq) {
    return guarded_value(-1, [=] { return s && has_sequence(*s, seq) ? s->length[(size_t)seq] : -1; });
}

const int32_t* duet_seq_ids(const duet_session* session, int32_t seq) {
    return guarded_value((const int32_t*)nullptr, [=] {
        return session && has_sequence(*session, seq) ? ids_of_sequence(*session, seq) : nullptr;
    });
}

int32_t duet_seq_reuse(duet_session* session, int32_t seq, const int32_t* ids, size_t n_ids) {
    return guarded_value(-1, [=] {
        const bool is_good = session && has_sequence(*session, seq) && (ids || n_ids == 0);
        return is_good ? reuse_sequence(*session, seq, ids, n_ids) : -1;
    });
}

duet_status duet_seq_trim(duet_session* session, int32_t seq, int32_t n_tok) {
    return with_sequence(__func__, session, seq, trim_sequence, n_tok);
}

duet_status duet_seq_copy(duet_session* session, int32_t src, int32_t dst) {
    return with_sequence(__func__, session, src, [=](duet_session& s, int32_t) -> duet_status {
        DUET_TRY(check_sequence(s, "duet_seq_copy", dst));
        return copy_sequence(s, src, dst);
    });
}

duet_status duet_seq_save(duet_session* session, int32_t seq, void* out, uint64_t max_bytes, uint64_t* n_bytes) {
    return with_sequence(__func__, session, seq, save_sequence, out, max_bytes, n_bytes);
}

duet_status duet_seq_load(duet_session* session, int32_t seq, const void* data, uint64_t n_bytes) {
    return with_sequence(__func__, session, seq, load_sequence, data, n_bytes);
}

// ---- sampling -------------------------------------------------------------------------------------------------------

duet_status duet_sampler_create(uint64_t seed, duet_sampler** out) {
    return create(__func__, out, [=](duet_sampler& s) {
        s.sampler.reset(seed);
        return DUET_OK;
    });
}

DUET_HANDLE(duet_sampler)

const duet_sampler_param* duet_sampler_param_row(int32_t i_row) {
    return guarded_value((const duet_sampler_param*)nullptr, [=] { return sampler_param_row(i_row); });
}

duet_status duet_sampler_set(duet_sampler* sampler, const char* name, float value) {
    return guarded_call(__func__, sampler, [=](duet_sampler& s) {
        return name ? s.sampler.set(name, value, s.err) : null_argument("duet_sampler_set", "name", s.err);
    });
}

duet_status duet_sampler_bias(duet_sampler* sampler, int32_t id, float bias) {
    return guarded_call(__func__, sampler, [=](duet_sampler& s) { return s.sampler.set_bias(id, bias, s.err); });
}

duet_status duet_sampler_dry_breaker(duet_sampler* sampler, int32_t id) {
    return guarded_call(__func__, sampler, [=](duet_sampler& s) { return s.sampler.add_dry_breaker(id, s.err); });
}

duet_status duet_sampler_choose(duet_sampler* sampler, const float* logits, int32_t n, int32_t* id) {
    return guarded_call(__func__, sampler, [=](duet_sampler& s) { return s.sampler.choose(logits, n, id, s.err); });
}

duet_status duet_sampler_accept(duet_sampler* sampler, int32_t id) {
    return guarded_call(__func__, sampler, [=](duet_sampler& s) { return s.sampler.accept(id, s.err); });
}

void duet_sampler_reset(duet_sampler* sampler, uint64_t seed) {
    guarded_void([=] {
        if (sampler) sampler->sampler.reset(seed);
    });
}

// ---- constraints ----------------------------------------------------------------------------------------------------

DUET_INIT(duet_grammar_params)

duet_status duet_grammar_create(const duet_model* model, const duet_grammar_params* params, duet_grammar** out) {
    return create(__func__, out, [=](duet_grammar& g) { return create_grammar(model, params, g); });
}

DUET_HANDLE(duet_grammar)

duet_status duet_sampler_grammar(duet_sampler* sampler, const duet_grammar* grammar) {
    return guarded_call(__func__, sampler, set_grammar, grammar);
}

int32_t duet_sampler_is_done(duet_sampler* sampler) {
    return guarded_value(0, [=] { return sampler && sampler->sampler.is_done() ? 1 : 0; });
}

// ---- text that is certain -------------------------------------------------------------------------------------------

duet_status duet_text_gate_create(const char* const* stop, int32_t n_stop, duet_text_gate** out) {
    return create(__func__, out, gate_create, stop, n_stop);
}

DUET_HANDLE(duet_text_gate)

duet_status duet_text_gate_add(duet_text_gate* gate, const char* bytes, size_t n, duet_string* text, int32_t* stopped) {
    return guarded_call(__func__, gate, gate_add, bytes, n, text, stopped);
}

duet_status duet_text_gate_finish(duet_text_gate* gate, duet_string* text) {
    return guarded_call(__func__, gate, gate_finish, text);
}

// ---- generating -----------------------------------------------------------------------------------------------------

DUET_INIT(duet_generate_params)

duet_status duet_generate_begin(duet_session* session, duet_sampler* sampler, const int32_t* ids, size_t n_ids,
                                const duet_generate_params* params, duet_generation** out) {
    if (out) *out = nullptr;
    return with_session(__func__, session, begin_generation, sampler, ids, n_ids, params, out);
}

duet_status duet_generate_next(duet_generation* generation, duet_token_event* event) {
    return guarded_call(__func__, generation, next_of_generation, event);
}

duet_status duet_generation_result(const duet_generation* generation, duet_generate_result* out) {
    return guarded_call(__func__, generation, result_of_generation, out);
}

void duet_generation_free(duet_generation* generation) {
    guarded_void([=] { delete generation; });
}

duet_status duet_generate(duet_session* session, duet_sampler* sampler, const int32_t* ids, size_t n_ids,
                          const duet_generate_params* params, duet_token_fn on_token, void* user,
                          duet_generate_result* result) {
    return with_session(__func__, session, generate, sampler, ids, n_ids, params, on_token, user, result);
}

// ---- chat -----------------------------------------------------------------------------------------------------------

DUET_INIT(duet_chat_params)

duet_status duet_chat_create(const duet_model* model, const duet_chat_params* params, duet_chat** out) {
    return create(__func__, out, create_chat, model, params);
}

DUET_HANDLE(duet_chat)

duet_status duet_chat_add(duet_chat* chat, const char* role, const char* text, size_t n_bytes) {
    return guarded_call(__func__, chat, add_message, role, text, n_bytes);
}

duet_status duet_chat_insert(duet_chat* chat, int32_t i, const char* json, size_t n_bytes) {
    return guarded_call(__func__, chat, insert_messages, i, json, n_bytes);
}

duet_status duet_chat_remove(duet_chat* chat, int32_t i, int32_t n) {
    return guarded_call(__func__, chat, remove_messages, i, n);
}

int32_t duet_chat_count(const duet_chat* chat) {
    return guarded_value(0, [=] { return chat ? (int32_t)chat->messages.size() : 0; });
}

duet_string duet_chat_message(duet_chat* chat, int32_t i) {
    return guarded_value(duet_string{}, [=] { return chat ? as_string(show_message(*chat, i)) : duet_string{}; });
}

duet_string duet_chat_template(const duet_chat* chat) {
    return guarded_value(duet_string{},
                         [=] { return chat && chat->format ? as_string(template_of(*chat)) : duet_string{}; });
}

const char* duet_chat_form(const duet_chat* chat) {
    return guarded_value((const char*)nullptr, [=] { return chat && chat->format ? form_name(chat->form) : nullptr; });
}

duet_status duet_chat_render(duet_chat* chat, int32_t flags, duet_chat_prompt* out) {
    return guarded_call(__func__, chat, show_prompt, flags, out);
}

duet_status duet_template_render(const char* chat_template, size_t n_template_bytes, const char* variables,
                                 size_t n_variables_bytes, const char* now, char* out, size_t max_bytes,
                                 size_t* n_bytes) {
    return guarded_shared(0, [=](error_text& err) {
        return render_template({chat_template, n_template_bytes}, {variables, n_variables_bytes}, now, out, max_bytes,
                               n_bytes, err);
    });
}

duet_status duet_chat_parser_create(const duet_chat* chat, int32_t opens_thinking, const char* const* stop,
                                    int32_t n_stop, duet_chat_parser** out) {
    return create(__func__, out, [=](duet_chat_parser& p) -> duet_status {
        if (!chat) return null_argument("duet_chat_parser_create", "chat", p.err);
        return create_parser(p, *chat, opens_thinking != 0, stop, n_stop);
    });
}

DUET_HANDLE(duet_chat_parser)

duet_status duet_chat_parser_add(duet_chat_parser* parser, int32_t id) {
    return guarded_call(__func__, parser, add_token, id);
}

duet_status duet_chat_parser_finish(duet_chat_parser* parser) { return guarded_call(__func__, parser, finish_answer); }

duet_status duet_chat_parser_next(duet_chat_parser* parser, duet_chat_event* event) {
    return guarded_call(__func__, parser, [=](duet_chat_parser& p) -> duet_status {
        DUET_TRY(check_room("duet_chat_event", event, p.err));
        take_event(p, event);
        return DUET_OK;
    });
}

duet_string duet_chat_parser_message(duet_chat_parser* parser) {
    return guarded_value(duet_string{}, [=] { return parser ? as_string(show_answer(*parser)) : duet_string{}; });
}

DUET_INIT(duet_chat_grammar_params)

duet_status duet_chat_grammar(const duet_chat* chat, const duet_chat_grammar_params* params, duet_grammar** out) {
    return create(__func__, out, [=](duet_grammar& g) -> duet_status {
        if (!chat) return null_argument("duet_chat_grammar", "chat", g.err);
        return create_chat_grammar(*chat, params, g);
    });
}

DUET_INIT(duet_chat_turn_params)

duet_status duet_chat_begin(duet_chat* chat, duet_session* session, duet_sampler* sampler,
                            const duet_chat_turn_params* params, duet_chat_turn** out) {
    if (out) *out = nullptr;
    return guarded_call(__func__, chat, begin_turn, session, sampler, params, out);
}

duet_status duet_chat_next(duet_chat_turn* turn, duet_chat_event* event) {
    return guarded_call(__func__, turn, next_of_turn, event);
}

void duet_chat_turn_free(duet_chat_turn* turn) {
    guarded_void([=] {
        const std::unique_ptr<duet_chat_turn> owned(turn);
        if (turn) keep_answer(*turn);
    });
}

duet_status duet_chat_save(duet_chat* chat, duet_session* session, int32_t seq, void* out, uint64_t max_bytes,
                           uint64_t* n_bytes) {
    return guarded_call(__func__, chat, save_chat, session, seq, out, max_bytes, n_bytes);
}

duet_status duet_chat_load(duet_chat* chat, duet_session* session, int32_t seq, const void* data, uint64_t n_bytes) {
    return guarded_call(__func__, chat, load_chat, session, seq, data, n_bytes);
}

// ---- measuring ------------------------------------------------------------------------------------------------------

void duet_session_profile(duet_session* session, int32_t on) {
    guarded_void([=] {
        if (session && session->exec_context) session->model->exec->profile(session->exec_context, on != 0);
    });
}

int32_t duet_session_profile_rows(duet_session* session) {
    int32_t n_rows = -1;
    (void)with_session(__func__, session, take_profile, &n_rows);
    return n_rows;
}

const duet_profile_row* duet_session_profile_row(const duet_session* session, int32_t i_row) {
    return guarded_value((const duet_profile_row*)nullptr, [=] {
        const bool is_there = session && i_row >= 0 && (size_t)i_row < session->profile_rows.size();
        return is_there ? &session->profile_rows[(size_t)i_row] : nullptr;
    });
}

}  // extern "C"
