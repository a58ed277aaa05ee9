// models/gguf.h: a GGUF file (v2, v3; single or split) as checked metadata and tensors over a read-only mapping, and a
// writer. Owns: the format's rules. Must not know: architectures, devices, how numbers are decoded (it knows only the
// block sizes of quant/types.def). Main path: runtime/model.cpp -> [models/gguf] -> models/<family>.cpp
#pragma once
#include "status.h"

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace duet {

// One metadata entry. A scalar has n_values = 1. The bytes at `data` lie inside the file; the reader has checked that.
struct gguf_kv {
    std::string_view key;
    int32_t type = 0;         // DUET_KV_...
    int32_t array_type = -1;  // element type of an array
    uint64_t n_values = 1;
    const uint8_t* data = nullptr;          // the value, little-endian, unaligned; a string is u64 n_bytes, then bytes
    uint64_t n_bytes = 0;                   // length of data
    uint64_t offset = 0;                    // place of the value in its file
    std::vector<std::string_view> strings;  // for a string and for an array of strings, in order

    int32_t value_type() const { return type == DUET_KV_ARRAY ? array_type : type; }  // of each value
};

struct gguf_tensor {
    std::string_view name;
    int32_t type = 0;  // file id of the number format
    int32_t n_dims = 0;
    int64_t dims[4] = {1, 1, 1, 1};  // fastest dimension first
    const uint8_t* data = nullptr;
    uint64_t n_bytes = 0;
    uint64_t offset = 0;  // place of the data in its file
    int32_t i_file = 0;
    int64_t n_elems() const { return dims[0] * dims[1] * dims[2] * dims[3]; }  // no overflow: open() checks
};

// The value at p, which need not be aligned.
template <class T> T gguf_load(const uint8_t* p) {
    T value;
    std::memcpy(&value, p, sizeof value);
    return value;
}

struct gguf_parts;  // gguf.cpp: the mappings

// An opened file. It can be moved only, and unmaps when it is destroyed. All views point into the mapping and live as
// long as the file.
class gguf_file {
  public:
    gguf_file();
    gguf_file(gguf_file&&) = default;
    gguf_file& operator=(gguf_file&&) = default;

    // Each of the three checks the whole file. They return DUET_ERR_IO, DUET_ERR_FORMAT or DUET_ERR_MEMORY, with the
    // message in err. A format error reads "<path>: <key or tensor>: at byte N: <rule>: want ..., got ...".
    duet_status open(const char* path, error_text& err, bool is_copy = false);  // is_copy: read, not mapped
    // The bytes are not copied and must outlive the file.
    duet_status open_memory(const void* data, uint64_t n_bytes, error_text& err);
    // The bytes are copied.
    duet_status open_reader(duet_read_fn read, void* user, uint64_t n_bytes, error_text& err);

    uint32_t version = 0;
    std::string path;                  // as given; "memory" or "reader" for the other two
    std::vector<gguf_kv> kvs;          // in file order; for split files those of the first part
    std::vector<gguf_tensor> tensors;  // in file order, part after part
    int32_t n_parts = 1;

    const gguf_kv* find(std::string_view key) const;  // nullptr: absent; takes logarithmic time
    const gguf_tensor* find_tensor(std::string_view name) const;

    // Typed reads for hyper-parameters. *out keeps its value when the key is absent and not required. DUET_ERR_FORMAT:
    // the key is absent though required, has another type, or is out of [min, max]; the message names key, offset,
    // wanted and found.
    duet_status get_u32(std::string_view key, bool required, uint32_t min, uint32_t max, uint32_t* out,
                        error_text& err) const;
    // NaN is refused.
    duet_status get_f32(std::string_view key, bool required, float min, float max, float* out, error_text& err) const;
    duet_status get_bool(std::string_view key, bool required, bool* out, error_text& err) const;
    duet_status get_string(std::string_view key, bool required, std::string_view* out, error_text& err) const;
    // Reads a scalar, which is repeated n times, or an array with one entry for each of n layers. Another length of the
    // array is an error.
    duet_status get_u32_per_layer(std::string_view key, bool required, uint32_t n, uint32_t min, uint32_t max,
                                  std::vector<uint32_t>* out, error_text& err) const;
    // Converts value i of an entry. False: the value has another type or does not fit.
    static bool value_int(const gguf_kv& kv, uint64_t i, int64_t* out);
    static bool value_float(const gguf_kv& kv, uint64_t i, double* out);

    // Asks the system to read the tensor's bytes ahead. Pages that are in memory stay there.
    void will_need(const gguf_tensor& tensor) const;

  private:
    template <class Load>
    duet_status open_from(const char* name, const char* later_path, bool is_copy, Load load, error_text& err);
    std::shared_ptr<gguf_parts> parts_;  // never null, but after a move
};

// Checks that reader and writer share: 1 to 4 dims of at least 1 each, no overflow, rows of whole blocks, a type that
// exists. The dims that there are not are 1. Sets *n_bytes to the size of the tensor. False: *why says rule, wanted and
// found.
bool gguf_tensor_bytes(int64_t type, uint64_t n_dims, const uint64_t (&dims)[4], uint64_t* n_bytes, std::string* why);

// Collects keys and tensors in any order, then writes a v3 file. A key that is set twice keeps its place and takes the
// new value.
class gguf_writer {
  public:
    // DUET_ERR_ARG with the message in err: a bad key or type, a value that does not fit, a tensor that was added
    // before, a shape against the rules.
    duet_status set_int(std::string_view key, int32_t type, int64_t value, error_text& err);   // integers and bool
    duet_status set_float(std::string_view key, int32_t type, double value, error_text& err);  // F32 and F64
    duet_status set_string(std::string_view key, std::string_view value, error_text& err);
    duet_status set_array(std::string_view key, int32_t elem_type, const void* data, uint64_t n, error_text& err);
    duet_status set_strings(std::string_view key, const std::string_view* strings, uint64_t n, error_text& err);
    // Copies every key of the file that is not set yet, except the split.* keys, because one file is written.
    duet_status copy_kv(const gguf_file& from, error_text& err);
    // `data` must stay valid until the save.
    duet_status add_tensor(std::string_view name, int32_t type, int32_t n_dims, const int64_t* dims, const void* data,
                           error_text& err);
    // The data comes from read, in order, at every save.
    duet_status add_tensor_from(std::string_view name, int32_t type, int32_t n_dims, const int64_t* dims,
                                duet_read_fn read, void* user, error_text& err);

    uint64_t size() const;  // bytes of the file
    // Writes beside the path, and renames when everything is written. A failed save leaves no half file, and leaves an
    // old file as it was.
    duet_status save(const char* path, error_text& err) const;
    duet_status save_to(duet_write_fn write, void* user, error_text& err) const;

  private:
    struct entry {
        std::string key, bytes;  // bytes: the type, then the value, as in the file
    };
    struct tensor {
        std::string name;
        int32_t type, n_dims;
        uint64_t dims[4], n_bytes, offset;
        const void* data;  // null: from read
        duet_read_fn read;
        void* user;
    };
    duet_status add(std::string_view name, const int64_t* dims, tensor t, error_text& err);
    duet_status set(std::string_view key, std::string bytes, error_text& err);
    uint64_t alignment() const;
    std::string header() const;  // all bytes before the data section

    std::vector<entry> entries_;
    std::vector<tensor> tensors_;
    std::unordered_map<std::string, size_t> i_entry_, i_tensor_;
};

}  // namespace duet
