// models/file_map.cpp: the only place that maps files. Must not know: file formats.
// Main path: models/gguf.cpp -> [models/file_map.cpp]
#include "file_map.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>
#include <system_error>
#include <utility>

#ifndef _WIN32
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#endif

namespace duet {

namespace {

constexpr std::align_val_t kMapAlign{64};
constexpr size_t kMapPathBytes = 300;  // length of a path in messages

std::string map_errno_text(int code) { return std::generic_category().message(code); }

}  // namespace

file_map::~file_map() {
    if (source_ == source::allocated) ::operator delete(data_, kMapAlign);
#ifndef _WIN32
    if (source_ == source::mapped) munmap(data_, (size_t)size_);
    if (fd_ >= 0) close(fd_);
#endif
}

file_map::file_map(file_map&& other) noexcept { *this = std::move(other); }

file_map& file_map::operator=(file_map&& other) noexcept {
    std::swap(source_, other.source_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(fd_, other.fd_);
    return *this;
}

duet_status file_map::allocate(uint64_t n_bytes, error_text& err) {
    void* bytes = n_bytes <= SIZE_MAX / 2 ? ::operator new((size_t)n_bytes + 1, kMapAlign, std::nothrow) : nullptr;
    if (!bytes) return fail(err, DUET_ERR_MEMORY, "no memory for a file of %llu bytes", (unsigned long long)n_bytes);
    data_ = (uint8_t*)bytes;
    size_ = n_bytes;
    source_ = source::allocated;
    return DUET_OK;
}

void file_map::borrow(const void* data, uint64_t n_bytes) {
    data_ = (uint8_t*)data;
    size_ = n_bytes;
    source_ = source::borrowed;
}

duet_status file_map::read_all(duet_read_fn read, void* user, uint64_t n_bytes, error_text& err) {
    DUET_TRY(allocate(n_bytes, err));
    const int32_t code = n_bytes ? read(user, 0, data_, n_bytes) : 0;
    if (code != 0) return fail(err, DUET_ERR_IO, "the read callback failed with %d", code);
    return DUET_OK;
}

#ifndef _WIN32

duet_status file_map::read_open_file(const char* path, uint64_t n_bytes, error_text& err) {
    DUET_TRY(allocate(n_bytes, err));
    for (uint64_t at = 0; at < n_bytes;) {
        const ssize_t n = pread(fd_, data_ + at, (size_t)std::min<uint64_t>(n_bytes - at, 1u << 30), (off_t)at);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0)
            return fail(err, DUET_ERR_IO, "%s: cannot be read: %s", printable(path, kMapPathBytes).c_str(),
                        map_errno_text(errno).c_str());
        if (n == 0)
            return fail(err, DUET_ERR_IO, "%s: the file became shorter while it was read: want %llu bytes, got %llu",
                        printable(path, kMapPathBytes).c_str(), (unsigned long long)n_bytes, (unsigned long long)at);
        at += (uint64_t)n;
    }
    close(fd_);
    fd_ = -1;
    return DUET_OK;
}

// Names what a path is instead of a regular file; nullptr: it is one.
static const char* other_than_file(mode_t mode) {
    if (S_ISREG(mode)) return nullptr;
    if (S_ISDIR(mode)) return "a directory";
    if (S_ISFIFO(mode)) return "a FIFO (named pipe)";
    if (S_ISCHR(mode)) return "a character device";
    if (S_ISBLK(mode)) return "a block device";
    if (S_ISSOCK(mode)) return "a socket";
    return "no regular file";
}

duet_status file_map::open(const char* path, error_text& err, bool is_copy) {
    const std::string shown = printable(path, kMapPathBytes);
    // With O_NONBLOCK, opening a FIFO does not wait for a writer. It does not matter for a regular file.
    fd_ = ::open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd_ < 0)
        return fail(err, DUET_ERR_IO, "%s: cannot be opened: %s", shown.c_str(), map_errno_text(errno).c_str());
    struct stat info;
    if (fstat(fd_, &info) != 0)
        return fail(err, DUET_ERR_IO, "%s: cannot be examined: %s", shown.c_str(), map_errno_text(errno).c_str());
    const char* kind = other_than_file(info.st_mode);
    if (kind) return fail(err, DUET_ERR_IO, "%s: want a GGUF file, got %s", shown.c_str(), kind);
    if (info.st_size <= 0)
        return fail(err, DUET_ERR_IO, "%s: want a GGUF file, got an empty file (0 bytes)", shown.c_str());
    if ((uint64_t)info.st_size > SIZE_MAX / 2)
        return fail(err, DUET_ERR_MEMORY, "%s: %lld bytes are more than this system can map", shown.c_str(),
                    (long long)info.st_size);
    if (is_copy) return read_open_file(path, (uint64_t)info.st_size, err);
    void* bytes = mmap(nullptr, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd_, 0);
    if (bytes == MAP_FAILED)
        return fail(err, errno == ENOMEM ? DUET_ERR_MEMORY : DUET_ERR_IO, "%s: cannot be mapped: %s", shown.c_str(),
                    map_errno_text(errno).c_str());
    data_ = (uint8_t*)bytes;
    size_ = (uint64_t)info.st_size;
    source_ = source::mapped;
#if defined(MADV_HUGEPAGE)  // Later reads from disk come in huge pages, where the file system has them.
    madvise(bytes, (size_t)info.st_size, MADV_HUGEPAGE);
#endif
    return DUET_OK;
}

duet_status file_map::check_size(const char* path, error_text& err) const {
    struct stat info;
    if (source_ != source::mapped || (fstat(fd_, &info) == 0 && (uint64_t)info.st_size >= size_)) return DUET_OK;
    return fail(err, DUET_ERR_IO, "%s: the file became shorter while it was read: want %llu bytes, got %lld",
                printable(path, kMapPathBytes).c_str(), (unsigned long long)size_, (long long)info.st_size);
}

void file_map::will_need(const uint8_t* begin, uint64_t n_bytes) const {
    if (source_ != source::mapped || n_bytes == 0) return;
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), at = (uint64_t)(begin - data_), first = at / page * page;
    madvise(data_ + first, (size_t)(at - first + n_bytes), MADV_WILLNEED);
}

#else  // There is no mapping here yet: the file is read into memory.

duet_status file_map::open(const char* path, error_text& err, bool) {
    const std::string shown = printable(path, kMapPathBytes);
    std::FILE* in = std::fopen(path, "rb");
    if (!in) return fail(err, DUET_ERR_IO, "%s: cannot be opened: %s", shown.c_str(), map_errno_text(errno).c_str());
    _fseeki64(in, 0, SEEK_END);
    const int64_t size = _ftelli64(in);
    _fseeki64(in, 0, SEEK_SET);
    duet_status status =
        size > 0 ? allocate((uint64_t)size, err)
                 : fail(err, DUET_ERR_IO, "%s: want a GGUF file, got an empty file (0 bytes)", shown.c_str());
    if (status == DUET_OK && std::fread(data_, 1, (size_t)size, in) != (size_t)size)
        status = fail(err, DUET_ERR_IO, "%s: cannot be read: %s", shown.c_str(), map_errno_text(errno).c_str());
    std::fclose(in);
    return status;
}

duet_status file_map::check_size(const char*, error_text&) const { return DUET_OK; }
void file_map::will_need(const uint8_t*, uint64_t) const {}

#endif

}  // namespace duet
