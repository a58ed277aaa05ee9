// models/gguf_part.h: reads the bytes of one GGUF file into checked metadata and tensors, and holds what the reader and
// the writer share. Owns: only views into the given bytes. Must not know: split files, architectures, devices.
// Main path: models/gguf.cpp -> [models/gguf_part]
#pragma once
#include "gguf.h"

#include <algorithm>
#include <numeric>

namespace duet {

constexpr uint32_t kGgufMaxKeyBytes = 65535;
constexpr uint32_t kGgufMaxNameBytes = 63;  // of a tensor; the readers that everybody uses have no room for a 64th byte
constexpr uint32_t kGgufMinAlignment = 8, kGgufMaxAlignment = 1u << 20, kGgufDefaultAlignment = 32;
constexpr uint32_t kGgufKvTypeCount = 13;

struct gguf_kv_type {
    const char* name;
    uint64_t n_bytes;  // size of a scalar; 0: string or array
};
extern const gguf_kv_type kGgufKvTypes[kGgufKvTypeCount];

inline uint64_t gguf_padded(uint64_t n, uint64_t alignment) { return (n + alignment - 1) / alignment * alignment; }
bool gguf_is_int(int32_t kv_type);
std::string gguf_describe(const gguf_kv& kv);      // for messages: "the u32 7", "an array of 3 f32"
const char* gguf_bad_name(std::string_view name);  // the rule that a key or tensor name breaks; nullptr: none

// The indexes of the items in order of a member; of equal ones the first comes first.
template <class T, class Member> std::vector<uint32_t> gguf_sorted(const std::vector<T>& items, Member T::* by) {
    std::vector<uint32_t> order(items.size());
    std::iota(order.begin(), order.end(), 0u);
    std::ranges::sort(order, {}, [&](uint32_t i) { return std::pair(items[i].*by, i); });
    return order;
}

// Reads one part of a file into vectors of its own.
struct gguf_part {
    const std::string& path;  // as messages show it
    const uint8_t* data;
    const uint64_t size;
    const int32_t i_file;
    error_text& err;
    uint64_t at = 0;         // the next byte
    std::string what = {};   // what is read, for messages: "header", a key, a tensor
    int64_t i_element = -1;  // of the array that is read; -1: none
    uint32_t version = 0, alignment = kGgufDefaultAlignment;
    uint64_t n_strings = 0;
    std::vector<gguf_kv> kvs = {};
    std::vector<gguf_tensor> tensors = {};
    std::vector<uint64_t> offsets_at = {};  // where in the file the offset of each tensor stands

    uint64_t left() const { return size - at; }

    [[gnu::format(DUET_PRINTF_FORM, 3, 4)]] duet_status bad(uint64_t offset, const char* rule, ...) const {
        char text[700];
        DUET_PRINT_ARGS(text, rule);
        const std::string element = i_element < 0 ? "" : "[" + std::to_string(i_element) + "]";
        return fail(err, DUET_ERR_FORMAT, "%s: %s%s: at byte %llu: %s", path.c_str(), what.c_str(), element.c_str(),
                    (unsigned long long)offset, text);
    }
    duet_status beyond(uint64_t offset, const std::string& rule, uint64_t most, const std::string& unit,
                       uint64_t got) const {
        return bad(offset, "%s: want at most %llu%s, got %llu", rule.c_str(), (unsigned long long)most, unit.c_str(),
                   (unsigned long long)got);
    }
    duet_status ended(const char* part, uint64_t want) const {
        return bad(at, "the file ends inside %s: want %llu bytes, got %llu", part, (unsigned long long)want,
                   (unsigned long long)left());
    }
    template <class T> duet_status read(const char* part, T* out) {
        if (left() < sizeof(T)) return ended(part, sizeof(T));
        *out = gguf_load<T>(data + at);
        at += sizeof(T);
        return DUET_OK;
    }
    duet_status read_string(const char* part, uint64_t max, std::string_view* out) {
        const uint64_t begin = at;
        uint64_t n = 0;
        DUET_TRY(read(part, &n));
        if (n > left())
            return beyond(begin, std::string(part) + " is longer than the rest of the file", left(), " bytes", n);
        if (n > max) return beyond(begin, std::string(part) + " is too long", max, " bytes", n);
        *out = std::string_view((const char*)data + at, (size_t)n);
        at += n;
        return DUET_OK;
    }
    duet_status read_name(uint64_t max, std::string_view* out) {
        const uint64_t begin = at;
        DUET_TRY(read_string("the name", max, out));
        if (out->empty()) return bad(begin, "the name is empty: want 1 to %llu bytes, got 0", (unsigned long long)max);
        if (const char* rule = gguf_bad_name(*out))
            return bad(begin + 8, "%s: got \"%s\"", rule, printable(*out).c_str());
        return DUET_OK;
    }

    duet_status read_header(uint64_t* n_kv, uint64_t* n_tensors);
    duet_status read_kv(uint64_t i);
    duet_status read_value(gguf_kv& kv);
    duet_status read_tensor(uint64_t i);
    duet_status check_known_keys();
    duet_status place_tensors();
    duet_status read_all();
};

}  // namespace duet
