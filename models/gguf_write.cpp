// models/gguf_write.cpp: the GGUF v3 writer. It keeps the reader's rules, so models/gguf.cpp opens what it writes.
// Owns: the order of bytes in a new file. Must not know: architectures, how numbers are encoded.
// Main path: tools/quantize.cpp -> runtime/file.cpp -> [models/gguf_write.cpp]
#include "gguf_part.h"
#include "os.h"
#include "../quant/formats.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <system_error>

namespace duet {

namespace {

constexpr uint64_t kGgufPieceBytes = 16u << 20;  // of one write, after which a callback gets a chance to stop

template <class T> void gguf_put(std::string& to, T value) { to.append((const char*)&value, sizeof value); }

void gguf_put_string(std::string& to, std::string_view s) {
    gguf_put<uint64_t>(to, s.size());
    to.append(s);
}

// The bytes before a value: its type, and of an array the type of its elements and their number.
std::string gguf_value_begin(int32_t type, int32_t elem_type = 0, uint64_t n = 0) {
    std::string bytes;
    gguf_put(bytes, (uint32_t)type);
    if (type != DUET_KV_ARRAY) return bytes;
    gguf_put(bytes, (uint32_t)elem_type);
    gguf_put(bytes, n);
    return bytes;
}

struct gguf_file_sink {
    std::FILE* out;
    int error = 0;  // errno of the write that failed
    static int32_t write(void* user, const void* data, uint64_t n_bytes) {
        gguf_file_sink* sink = (gguf_file_sink*)user;
        errno = 0;
        if (std::fwrite(data, 1, (size_t)n_bytes, sink->out) == n_bytes) return 0;
        sink->error = errno ? errno : EIO;
        return -1;
    }
};

// Opens a file beside the path that nobody has: a file that is called PATH.part may be somebody's, even the one that
// is read for this save.
std::FILE* gguf_open_beside(const std::string& path, std::string* name) {
    constexpr int kTries = 100;
    for (int i = 0; i < kTries; i++) {
        *name = path + ".part" + (i ? std::to_string(i) : "");
        std::FILE* file = os_create(name->c_str(), true);
        if (file || errno != EEXIST) return file;
    }
    return nullptr;
}

}  // namespace

duet_status gguf_writer::set(std::string_view key, std::string bytes, error_text& err) {
    if (key.empty() || key.size() > kGgufMaxKeyBytes || gguf_bad_name(key))
        return fail(err, DUET_ERR_ARG, "key \"%s\": want 1 to %u bytes of UTF-8 without control characters",
                    printable(key).c_str(), kGgufMaxKeyBytes);
    if (key == "general.alignment") {  // The writer itself uses this value.
        const uint32_t type = gguf_load<uint32_t>((const uint8_t*)bytes.data());
        const uint32_t value = type == DUET_KV_U32 ? gguf_load<uint32_t>((const uint8_t*)bytes.data() + 4) : 0;
        if (!std::has_single_bit(value) || value < kGgufMinAlignment || value > kGgufMaxAlignment)
            return fail(err, DUET_ERR_ARG, "general.alignment: want a u32, a power of two from 8 to 2^20");
    }
    const auto it = i_entry_.find(std::string(key));
    if (it != i_entry_.end()) {
        entries_[it->second].bytes = std::move(bytes);
        return DUET_OK;
    }
    entry fresh{std::string(key), std::move(bytes)};
    if (entries_.size() == entries_.capacity()) entries_.reserve(2 * entries_.size() + 8);
    i_entry_.try_emplace(fresh.key, entries_.size());  // the last that may run out of memory: both hold it, or neither
    entries_.push_back(std::move(fresh));
    return DUET_OK;
}

duet_status gguf_writer::set_int(std::string_view key, int32_t type, int64_t value, error_text& err) {
    const bool is_bool = type == DUET_KV_BOOL;
    if (!is_bool && !gguf_is_int(type))
        return fail(err, DUET_ERR_ARG, "%s: want an integer type or bool, got type %d", printable(key).c_str(), type);
    const uint32_t n_bits = (uint32_t)kGgufKvTypes[type].n_bytes * 8;
    const bool is_signed = type == DUET_KV_I8 || type == DUET_KV_I16 || type == DUET_KV_I32 || type == DUET_KV_I64;
    const int64_t max = is_bool ? 1 : n_bits == 64 ? INT64_MAX : ((int64_t)1 << (n_bits - is_signed)) - 1;
    const int64_t min = is_signed ? -max - 1 : 0;
    if (value < min || value > max)
        return fail(err, DUET_ERR_ARG, "%s: want a value that fits %s, got %lld", printable(key).c_str(),
                    kGgufKvTypes[type].name, (long long)value);
    std::string bytes = gguf_value_begin(type);
    bytes.append((const char*)&value, n_bits / 8);
    return set(key, std::move(bytes), err);
}

duet_status gguf_writer::set_float(std::string_view key, int32_t type, double value, error_text& err) {
    if (type != DUET_KV_F32 && type != DUET_KV_F64)
        return fail(err, DUET_ERR_ARG, "%s: want type f32 or f64, got type %d", printable(key).c_str(), type);
    std::string bytes = gguf_value_begin(type);
    if (type == DUET_KV_F32) gguf_put<float>(bytes, (float)value);
    else gguf_put<double>(bytes, value);
    return set(key, std::move(bytes), err);
}

duet_status gguf_writer::set_string(std::string_view key, std::string_view value, error_text& err) {
    std::string bytes = gguf_value_begin(DUET_KV_STRING);
    gguf_put_string(bytes, value);
    return set(key, std::move(bytes), err);
}

duet_status gguf_writer::set_array(std::string_view key, int32_t type, const void* data, uint64_t n, error_text& err) {
    const bool is_known = type >= 0 && type < (int32_t)kGgufKvTypeCount && kGgufKvTypes[type].n_bytes;
    if (!is_known || (!data && n) || n > SIZE_MAX / 16)
        return fail(err, DUET_ERR_ARG, "%s: want an array of numbers or bools, got type %d, %llu elements",
                    printable(key).c_str(), type, (unsigned long long)n);
    std::string bytes = gguf_value_begin(DUET_KV_ARRAY, type, n);
    for (uint64_t i = 0; type == DUET_KV_BOOL && i < n; i++)
        if (((const uint8_t*)data)[i] > 1)
            return fail(err, DUET_ERR_ARG, "%s: want bools of 0 or 1", printable(key).c_str());
    if (n) bytes.append((const char*)data, (size_t)(n * kGgufKvTypes[type].n_bytes));
    return set(key, std::move(bytes), err);
}

duet_status gguf_writer::set_strings(std::string_view key, const std::string_view* texts, uint64_t n, error_text& err) {
    if (!texts && n)
        return fail(err, DUET_ERR_ARG, "%s: want %llu texts, got NULL", printable(key).c_str(), (unsigned long long)n);
    std::string bytes = gguf_value_begin(DUET_KV_ARRAY, DUET_KV_STRING, n);
    for (uint64_t i = 0; i < n; i++) gguf_put_string(bytes, texts[i]);
    return set(key, std::move(bytes), err);
}

duet_status gguf_writer::copy_kv(const gguf_file& from, error_text& err) {
    for (const gguf_kv& kv : from.kvs) {
        if (kv.key.starts_with("split.") || i_entry_.count(std::string(kv.key))) continue;
        std::string bytes = gguf_value_begin(kv.type, kv.array_type, kv.n_values);
        bytes.append((const char*)kv.data, (size_t)kv.n_bytes);
        DUET_TRY(set(kv.key, std::move(bytes), err));
    }
    return DUET_OK;
}

duet_status gguf_writer::add(std::string_view name, const int64_t* dims, tensor t, error_text& err) {
    const std::string shown = printable(name);
    if (name.empty() || name.size() > kGgufMaxNameBytes || gguf_bad_name(name))
        return fail(err, DUET_ERR_ARG,
                    "tensor \"%s\": want a name of 1 to %u bytes of UTF-8 without control characters", shown.c_str(),
                    kGgufMaxNameBytes);
    if (!dims || (!t.data && !t.read))
        return fail(err, DUET_ERR_ARG, "tensor %s: want dims and data, got NULL", shown.c_str());
    std::string why;
    for (int32_t i = 0; t.n_dims <= 4 && i < t.n_dims; i++) t.dims[i] = (uint64_t)dims[i];
    if (!gguf_tensor_bytes(t.type, (uint64_t)(int64_t)t.n_dims, t.dims, &t.n_bytes, &why))
        return fail(err, DUET_ERR_ARG, "tensor %s: %s", shown.c_str(), why.c_str());
    t.name = name;
    if (tensors_.size() == tensors_.capacity()) tensors_.reserve(2 * tensors_.size() + 8);
    if (!i_tensor_.try_emplace(t.name, tensors_.size()).second)
        return fail(err, DUET_ERR_ARG, "tensor %s: the name was added before", shown.c_str());
    tensors_.push_back(std::move(t));
    return DUET_OK;
}

duet_status gguf_writer::add_tensor(std::string_view name, int32_t type, int32_t n_dims, const int64_t* dims,
                                    const void* data, error_text& err) {
    return add(name, dims, {{}, type, n_dims, {1, 1, 1, 1}, 0, 0, data, nullptr, nullptr}, err);
}

duet_status gguf_writer::add_tensor_from(std::string_view name, int32_t type, int32_t n_dims, const int64_t* dims,
                                         duet_read_fn read, void* user, error_text& err) {
    return add(name, dims, {{}, type, n_dims, {1, 1, 1, 1}, 0, 0, nullptr, read, user}, err);
}

uint64_t gguf_writer::alignment() const {
    const auto it = i_entry_.find("general.alignment");
    return it == i_entry_.end() ? kGgufDefaultAlignment
                                : gguf_load<uint32_t>((const uint8_t*)entries_[it->second].bytes.data() + 4);
}

std::string gguf_writer::header() const {
    std::string bytes = "GGUF";
    uint64_t offset = 0;
    const uint64_t align = alignment();
    gguf_put<uint32_t>(bytes, 3);
    gguf_put<uint64_t>(bytes, tensors_.size());
    gguf_put<uint64_t>(bytes, entries_.size());
    for (const entry& e : entries_) {
        gguf_put_string(bytes, e.key);
        bytes += e.bytes;
    }
    for (const tensor& t : tensors_) {
        gguf_put_string(bytes, t.name);
        gguf_put<uint32_t>(bytes, (uint32_t)t.n_dims);
        for (int32_t i = 0; i < t.n_dims; i++) gguf_put<uint64_t>(bytes, t.dims[i]);
        gguf_put<uint32_t>(bytes, (uint32_t)t.type);
        gguf_put<uint64_t>(bytes, offset);
        offset += gguf_padded(t.n_bytes, align);
    }
    if (!tensors_.empty()) bytes.resize((size_t)gguf_padded(bytes.size(), align), '\0');
    return bytes;
}

uint64_t gguf_writer::size() const {
    uint64_t n_bytes = header().size();
    for (const tensor& t : tensors_) n_bytes += gguf_padded(t.n_bytes, alignment());
    return n_bytes;
}

duet_status gguf_writer::save_to(duet_write_fn write, void* user, error_text& err) const {
    if (!write) return fail(err, DUET_ERR_ARG, "want a write callback, got NULL");
    auto put = [&](const void* data, uint64_t n_bytes) {
        for (uint64_t at = 0; at < n_bytes; at += kGgufPieceBytes)
            if (const int32_t code = write(user, (const char*)data + at, std::min(kGgufPieceBytes, n_bytes - at));
                code != 0)
                return fail(err, DUET_ERR_IO, "writing failed with %d", code);
        return (duet_status)DUET_OK;
    };
    // One piece after the other is made and written.
    auto put_made = [&](const tensor& t) {
        const uint64_t block_bytes = (uint64_t)find_type(t.type)->bytes;
        std::vector<char> piece((size_t)std::min(kGgufPieceBytes / block_bytes * block_bytes, t.n_bytes));
        for (uint64_t at = 0; at < t.n_bytes; at += piece.size()) {
            const uint64_t n_bytes = std::min<uint64_t>(piece.size(), t.n_bytes - at);
            if (const int32_t code = t.read(t.user, at, piece.data(), n_bytes); code != 0)
                return fail(err, DUET_ERR_IO, "tensor %s: reading its data failed with %d", printable(t.name).c_str(),
                            code);
            DUET_TRY(put(piece.data(), n_bytes));
        }
        return (duet_status)DUET_OK;
    };
    const std::string head = header(), zeros((size_t)alignment(), '\0');
    DUET_TRY(put(head.data(), head.size()));
    for (const tensor& t : tensors_) {
        DUET_TRY(t.read ? put_made(t) : put(t.data, t.n_bytes));
        DUET_TRY(put(zeros.data(), gguf_padded(t.n_bytes, zeros.size()) - t.n_bytes));
    }
    return DUET_OK;
}

duet_status gguf_writer::save(const char* path, error_text& err) const {
    if (!path || !*path) return fail(err, DUET_ERR_ARG, "want a path to write to, got %s", path ? "\"\"" : "NULL");
    const std::string shown = printable_path(path), target = os_resolved(path);
    const bool in_place = os_is_special(path);  // a terminal, a FIFO: a rename would replace it
    std::string temporary;
    auto failed = [&](const char* what) {
        const std::string why = std::generic_category().message(errno);
        if (!in_place) os_remove(temporary.c_str());
        return fail(err, DUET_ERR_IO, "%s: %s: %s", shown.c_str(), what, why.c_str());
    };
    gguf_file_sink sink{in_place ? os_create(path, false) : gguf_open_beside(target, &temporary)};
    if (!sink.out)
        return fail(err, DUET_ERR_IO, "%s: cannot be written: %s", shown.c_str(),
                    std::generic_category().message(errno).c_str());
    duet_status status;
    try {
        status = save_to(gguf_file_sink::write, &sink, err);
    } catch (...) {
        std::fclose(sink.out);
        failed("no memory");
        throw;
    }
    const bool is_closed = std::fclose(sink.out) == 0;
    if (sink.error != 0) {
        errno = sink.error;
        return failed("writing failed");
    }
    if (status != DUET_OK) {  // the bytes of a tensor could not be had: err tells which
        if (!in_place) os_remove(temporary.c_str());
        return status;
    }
    if (!is_closed) return failed("writing failed");
    if (!in_place && os_rename(temporary.c_str(), target.c_str()) != 0) return failed("cannot be renamed into place");
    return DUET_OK;
}

}  // namespace duet
