// runtime/file.cpp: entries and tensors of a GGUF file as runtime.h shows them.
// Must not know: models, devices, the file format.
// Main path: tools/inspect.cpp -> runtime.cpp -> [runtime/file.cpp] -> models/gguf.cpp
#include "../models/gguf_part.h"
#include "calls.h"

namespace duet {
namespace {

// An entry or a tensor of a file; what: "an entry".
template <class T>
duet_status find_row(const duet_file& file, const char* what, const std::vector<T>& rows, int64_t i, const void* out,
                     const T** row, error_text& err) {
    const int64_t n = (int64_t)rows.size();
    if (!out) return fail(err, DUET_ERR_ARG, "%s: out is NULL", file.file.path.c_str());
    if (i < 0 || i >= n)
        return fail(err, DUET_ERR_ARG, "%s: want %s in 0..%lld, got %lld", file.file.path.c_str(), what,
                    (long long)n - 1, (long long)i);
    *row = &rows[(size_t)i];
    return DUET_OK;
}

// The entry, after checking that it has a value i_value.
duet_status find_value(const duet_file& file, int64_t i, uint64_t i_value, const void* out, const gguf_kv** kv,
                       error_text& err) {
    DUET_TRY(find_row(file, "an entry", file.file.kvs, i, out, kv, err));
    if (i_value < (*kv)->n_values) return DUET_OK;
    return fail(err, DUET_ERR_ARG, "%s: %s: want a value below %llu, got %llu", file.file.path.c_str(),
                printable((*kv)->key).c_str(), (unsigned long long)(*kv)->n_values, (unsigned long long)i_value);
}

duet_status wrong_type(const duet_file& file, const gguf_kv& kv, const char* want, error_text& err) {
    return fail(err, DUET_ERR_FORMAT, "%s: %s: want %s, got %s", file.file.path.c_str(), printable(kv.key).c_str(),
                want, gguf_describe(kv).c_str());
}

}  // namespace

duet_status file_kv(const duet_file& file, int64_t i, duet_kv* out, error_text& err) {
    const gguf_kv* kv = nullptr;
    DUET_TRY(find_row(file, "an entry", file.file.kvs, i, out, &kv, err));
    *out = {as_string(kv->key), kv->type, kv->array_type, kv->n_values, kv->offset};
    return DUET_OK;
}

duet_status file_tensor(const duet_file& file, int64_t i, duet_tensor* out, error_text& err) {
    const gguf_tensor* t = nullptr;
    DUET_TRY(find_row(file, "a tensor", file.file.tensors, i, out, &t, err));
    *out = {as_string(t->name), t->type,   t->n_dims, {t->dims[0], t->dims[1], t->dims[2], t->dims[3]}, t->data,
            t->n_bytes,         t->offset, t->i_file};
    return DUET_OK;
}

duet_status file_get_int(const duet_file& file, int64_t i_kv, uint64_t i_value, int64_t* out, error_text& err) {
    const gguf_kv* kv = nullptr;
    DUET_TRY(find_value(file, i_kv, i_value, out, &kv, err));
    return gguf_file::value_int(*kv, i_value, out) ? DUET_OK : wrong_type(file, *kv, "an integer up to 2^63 - 1", err);
}

duet_status file_get_float(const duet_file& file, int64_t i_kv, uint64_t i_value, double* out, error_text& err) {
    const gguf_kv* kv = nullptr;
    DUET_TRY(find_value(file, i_kv, i_value, out, &kv, err));
    return gguf_file::value_float(*kv, i_value, out) ? DUET_OK : wrong_type(file, *kv, "a number", err);
}

duet_status file_get_string(const duet_file& file, int64_t i_kv, uint64_t i_value, duet_string* out, error_text& err) {
    const gguf_kv* kv = nullptr;
    DUET_TRY(find_value(file, i_kv, i_value, out, &kv, err));
    if (i_value >= kv->strings.size()) return wrong_type(file, *kv, "a string", err);
    *out = as_string(kv->strings[(size_t)i_value]);
    return DUET_OK;
}

}  // namespace duet
