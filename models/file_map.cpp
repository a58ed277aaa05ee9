// models/file_map.cpp: the only place that maps files. Must not know: file formats.
// Main path: models/gguf.cpp -> [models/file_map.cpp]
#include "file_map.h"

#include <new>

namespace duet {

constexpr std::align_val_t kMapAlign{64};

file_map::~file_map() {
    if (source_ == source::allocated) ::operator delete(data_, kMapAlign);
    if (source_ == source::mapped) os_unmap(data_, size_);
    if (file_ != kNoFile) os_close(file_);
}

duet_status file_map::allocate(uint64_t n_bytes, error_text& err) {
    void* bytes = n_bytes <= SIZE_MAX / 2 ? ::operator new((size_t)n_bytes + 1, kMapAlign, std::nothrow) : nullptr;
    if (!bytes) return fail(err, DUET_ERR_MEMORY, "no memory for a file of %llu bytes", (unsigned long long)n_bytes);
    os_use_large_pages(bytes, n_bytes);
    data_ = (uint8_t*)bytes;
    size_ = n_bytes;
    source_ = source::allocated;
    return DUET_OK;
}

duet_status file_map::borrow(const void* data, uint64_t n_bytes) {
    data_ = (uint8_t*)data;
    size_ = n_bytes;
    source_ = source::borrowed;
    return DUET_OK;
}

duet_status file_map::read_all(duet_read_fn read, void* user, uint64_t n_bytes, error_text& err) {
    DUET_TRY(allocate(n_bytes, err));
    const int32_t code = n_bytes ? read(user, 0, data_, n_bytes) : 0;
    if (code != 0) return fail(err, DUET_ERR_IO, "the read callback failed with %d", code);
    return DUET_OK;
}

duet_status file_map::read_open_file(const char* path, uint64_t n_bytes, error_text& err) {
    DUET_TRY(allocate(n_bytes, err));
    for (uint64_t at = 0; at < n_bytes;) {
        const int64_t n = os_read_at(file_, at, data_ + at, n_bytes - at);
        if (n < 0)
            return fail(err, DUET_ERR_IO, "%s: cannot be read: %s", printable_path(path).c_str(),
                        os_error_text().c_str());
        if (n == 0)
            return fail(err, DUET_ERR_IO, "%s: the file became shorter while it was read: want %llu bytes, got %llu",
                        printable_path(path).c_str(), (unsigned long long)n_bytes, (unsigned long long)at);
        at += (uint64_t)n;
    }
    os_close(file_);
    file_ = kNoFile;
    return DUET_OK;
}

duet_status file_map::open(const char* path, error_text& err, bool is_copy) {
    const std::string shown = printable_path(path);
    os_file file;
    const bool is_open = os_open(path, &file);
    file_ = file.handle;
    if (!is_open) return fail(err, DUET_ERR_IO, "%s: cannot be opened: %s", shown.c_str(), os_error_text().c_str());
    if (file.kind) return fail(err, DUET_ERR_IO, "%s: want a GGUF file, got %s", shown.c_str(), file.kind);
    if (file.n_bytes == 0)
        return fail(err, DUET_ERR_IO, "%s: want a GGUF file, got an empty file (0 bytes)", shown.c_str());
    if (file.n_bytes > SIZE_MAX / 2)
        return fail(err, DUET_ERR_MEMORY, "%s: %llu bytes are more than this system can map", shown.c_str(),
                    (unsigned long long)file.n_bytes);
    if (is_copy) return read_open_file(path, file.n_bytes, err);
    bool is_memory = false;
    void* bytes = os_map(file_, file.n_bytes, &is_memory);
    if (!bytes)
        return fail(err, is_memory ? DUET_ERR_MEMORY : DUET_ERR_IO, "%s: cannot be mapped: %s", shown.c_str(),
                    os_error_text().c_str());
    data_ = (uint8_t*)bytes;
    size_ = file.n_bytes;
    source_ = source::mapped;
    return DUET_OK;
}

duet_status file_map::check_size(const char* path, error_text& err) const {
    uint64_t n_bytes = 0;
    if (source_ != source::mapped || (os_file_size(file_, &n_bytes) && n_bytes >= size_)) return DUET_OK;
    return fail(err, DUET_ERR_IO, "%s: the file became shorter while it was read: want %llu bytes, got %llu",
                printable_path(path).c_str(), (unsigned long long)size_, (unsigned long long)n_bytes);
}

void file_map::will_need(const uint8_t* begin, uint64_t n_bytes) const {
    if (source_ == source::mapped && n_bytes != 0) os_will_need(begin, n_bytes);
}

}  // namespace duet
