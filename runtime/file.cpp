// runtime/file.cpp: the file half of runtime.h: status names, duet_file_*, duet_writer_*. Thin over models/gguf:
// checks arguments, keeps the error, lets no exception out. Must not know: models, devices. Main path:
// tools/inspect.cpp -> runtime.h -> [runtime/file.cpp] -> models/gguf.cpp
#include "file_handle.h"

#include <cstring>
#include <new>

struct duet_writer {
    duet::gguf_writer writer;
    duet::error_text err;
};

namespace {

template <class T> duet_status file_create(T** out) {
    if (!out) return DUET_ERR_ARG;
    *out = new (std::nothrow) T;
    return *out ? DUET_OK : DUET_ERR_MEMORY;
}

duet_string file_string(std::string_view s) { return {s.data(), s.size()}; }

const duet::gguf_kv* file_entry(const duet_file* file, int64_t i) {
    return file && i >= 0 && i < (int64_t)file->file.kvs.size() ? &file->file.kvs[(size_t)i] : nullptr;
}

template <class Body> duet_status writer_call(duet_writer* writer, const char* key, Body body) {
    if (!writer) return DUET_ERR_ARG;
    return duet::guarded(writer->err, [&] {
        return key ? body() : duet::fail(writer->err, DUET_ERR_ARG, "want a key or name, got NULL");
    });
}

}  // namespace

const char* duet_status_name(duet_status status) {
    constexpr const char* kNames[] = {"DUET_OK",         "DUET_ERR_ARG",         "DUET_ERR_IO",
                                      "DUET_ERR_FORMAT", "DUET_ERR_UNSUPPORTED", "DUET_ERR_MEMORY",
                                      "DUET_ERR_FULL",   "DUET_ERR_DEVICE",      "DUET_ERR_CANCELLED",
                                      "DUET_ERR_NAN",    "DUET_ERR_STATE"};
    return status <= DUET_OK && status >= DUET_ERR_STATE ? kNames[-status] : "unknown status";
}

duet_status duet_file_open(const char* path, duet_file** out) {
    if (const duet_status s = file_create(out); s != DUET_OK) return s;
    return duet::guarded((*out)->err, [&] { return (*out)->file.open(path, (*out)->err); });
}

void duet_file_free(duet_file* file) { delete file; }
const char* duet_file_error(const duet_file* file) { return file ? file->err.text.c_str() : "no file: out of memory"; }
int32_t duet_file_version(const duet_file* file) { return file ? (int32_t)file->file.version : 0; }
int64_t duet_file_n_kv(const duet_file* file) { return file ? (int64_t)file->file.kvs.size() : 0; }
int64_t duet_file_n_tensors(const duet_file* file) { return file ? (int64_t)file->file.tensors.size() : 0; }
int32_t duet_file_n_parts(const duet_file* file) { return file ? file->file.n_parts : 0; }

duet_status duet_file_kv(const duet_file* file, int64_t i, duet_kv* out) {
    const duet::gguf_kv* kv = file_entry(file, i);
    if (!kv || !out) return DUET_ERR_ARG;
    *out = {file_string(kv->key), kv->type, kv->array_type, kv->n_values, kv->offset};
    return DUET_OK;
}

duet_status duet_file_tensor(const duet_file* file, int64_t i, duet_tensor* out) {
    if (!file || !out || i < 0 || i >= (int64_t)file->file.tensors.size()) return DUET_ERR_ARG;
    const duet::gguf_tensor& t = file->file.tensors[(size_t)i];
    *out = {file_string(t.name), t.type,   t.n_dims, {t.dims[0], t.dims[1], t.dims[2], t.dims[3]}, t.data,
            t.n_bytes,           t.offset, t.i_file};
    return DUET_OK;
}

int64_t duet_file_find_kv(const duet_file* file, const char* key) {
    const duet::gguf_kv* kv = file && key ? file->file.find(key) : nullptr;
    return kv ? kv - file->file.kvs.data() : -1;
}

int64_t duet_file_find_tensor(const duet_file* file, const char* name) {
    const duet::gguf_tensor* t = file && name ? file->file.find_tensor(name) : nullptr;
    return t ? t - file->file.tensors.data() : -1;
}

duet_status duet_file_get_int(const duet_file* file, int64_t i_kv, uint64_t i_value, int64_t* out) {
    const duet::gguf_kv* kv = file_entry(file, i_kv);
    if (!kv || !out || i_value >= kv->n_values) return DUET_ERR_ARG;
    return duet::gguf_file::value_int(*kv, i_value, out) ? DUET_OK : DUET_ERR_FORMAT;
}

duet_status duet_file_get_float(const duet_file* file, int64_t i_kv, uint64_t i_value, double* out) {
    const duet::gguf_kv* kv = file_entry(file, i_kv);
    if (!kv || !out || i_value >= kv->n_values) return DUET_ERR_ARG;
    return duet::gguf_file::value_float(*kv, i_value, out) ? DUET_OK : DUET_ERR_FORMAT;
}

duet_status duet_file_get_string(const duet_file* file, int64_t i_kv, uint64_t i_value, duet_string* out) {
    const duet::gguf_kv* kv = file_entry(file, i_kv);
    if (!kv || !out || i_value >= kv->n_values) return DUET_ERR_ARG;
    if (i_value >= kv->strings.size()) return DUET_ERR_FORMAT;
    *out = file_string(kv->strings[(size_t)i_value]);
    return DUET_OK;
}

duet_status duet_writer_create(duet_writer** out) { return file_create(out); }
void duet_writer_free(duet_writer* writer) { delete writer; }
const char* duet_writer_error(const duet_writer* writer) {
    return writer ? writer->err.text.c_str() : "no writer: out of memory";
}

duet_status duet_writer_set_int(duet_writer* writer, const char* key, int32_t kv_type, int64_t value) {
    return writer_call(writer, key, [&] { return writer->writer.set_int(key, kv_type, value, writer->err); });
}

duet_status duet_writer_set_float(duet_writer* writer, const char* key, int32_t kv_type, double value) {
    return writer_call(writer, key, [&] { return writer->writer.set_float(key, kv_type, value, writer->err); });
}

duet_status duet_writer_set_string(duet_writer* writer, const char* key, const char* data, uint64_t n_bytes) {
    return writer_call(writer, data || n_bytes == 0 ? key : nullptr, [&] {
        return writer->writer.set_string(key, {data ? data : "", (size_t)n_bytes}, writer->err);
    });
}

duet_status duet_writer_set_array(duet_writer* writer, const char* key, int32_t elem_type, const void* data,
                                  uint64_t n) {
    return writer_call(writer, key, [&] { return writer->writer.set_array(key, elem_type, data, n, writer->err); });
}

duet_status duet_writer_set_strings(duet_writer* writer, const char* key, const duet_string* strings, uint64_t n) {
    return writer_call(writer, strings || n == 0 ? key : nullptr, [&] {
        std::vector<std::string_view> views;
        for (uint64_t i = 0; i < n; i++)
            views.emplace_back(strings[i].data ? strings[i].data : "", (size_t)strings[i].n_bytes);
        return writer->writer.set_strings(key, views.data(), n, writer->err);
    });
}

duet_status duet_writer_copy_kv(duet_writer* writer, const duet_file* from) {
    return writer_call(writer, from ? "" : nullptr, [&] { return writer->writer.copy_kv(from->file, writer->err); });
}

duet_status duet_writer_add_tensor(duet_writer* writer, const char* name, int32_t type_id, int32_t n_dims,
                                   const int64_t* dims, const void* data) {
    return writer_call(writer, name,
                       [&] { return writer->writer.add_tensor(name, type_id, n_dims, dims, data, writer->err); });
}

duet_status duet_writer_save(duet_writer* writer, const char* path) {
    return writer_call(writer, "", [&] { return writer->writer.save(path, writer->err); });
}

duet_status duet_writer_save_to(duet_writer* writer, duet_write_fn write, void* user) {
    return writer_call(writer, "", [&] { return writer->writer.save_to(write, user, writer->err); });
}

uint64_t duet_writer_size(const duet_writer* writer) {
    uint64_t n_bytes = 0;
    duet::error_text err;
    if (writer)
        duet::guarded(err, [&] {
            n_bytes = writer->writer.size();
            return DUET_OK;
        });
    return n_bytes;
}
