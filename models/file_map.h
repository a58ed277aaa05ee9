// models/file_map.h: the bytes of a file, read-only: mapped where the system can map, otherwise read into memory.
// Owns: the rule which paths may be opened as a model file (no directory, FIFO or device). Must not know: file formats.
// Main path: models/gguf.cpp -> [models/file_map]
#pragma once
#include "os.h"
#include "status.h"

#include <cstdint>

namespace duet {

class file_map {
  public:
    file_map() = default;
    file_map(const file_map&) = delete;
    file_map& operator=(const file_map&) = delete;
    ~file_map();

    // DUET_ERR_IO says what the path is instead of a file; DUET_ERR_MEMORY. is_copy: the file is read into memory and
    // not held open.
    duet_status open(const char* path, error_text& err, bool is_copy);
    duet_status read_all(duet_read_fn read, void* user, uint64_t n_bytes, error_text& err);
    duet_status borrow(const void* data, uint64_t n_bytes);  // The bytes are neither copied nor freed.

    const uint8_t* data() const { return data_; }
    uint64_t size() const { return size_; }

    // DUET_ERR_IO when the file is shorter than when it was opened: pages past its new end would raise SIGBUS.
    duet_status check_size(const char* path, error_text& err) const;
    void will_need(const uint8_t* begin, uint64_t n_bytes) const;  // asks the system to read these bytes ahead

  private:
    enum class source { none, borrowed, allocated, mapped };
    duet_status allocate(uint64_t n_bytes, error_text& err);
    duet_status read_open_file(const char* path, uint64_t n_bytes, error_text& err);

    source source_ = source::none;
    uint8_t* data_ = nullptr;
    uint64_t size_ = 0;
    intptr_t file_ = kNoFile;
};

}  // namespace duet
