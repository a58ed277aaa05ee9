// models/gguf_part.cpp: the GGUF reader: header, metadata, tensor table. It checks every length against the bytes that
// are left before the length is used or sizes an allocation. Nothing recurses. The work is linear in the file, up to a
// logarithm for sorting offsets.
// Owns: the rules of the format. Must not know: split files, architectures, devices, how numbers are decoded.
// Main path: models/gguf.cpp -> [models/gguf_part.cpp]
// Format: docs/gguf.md of ggml-org/ggml, ggml/src/gguf.cpp of ggml-org/llama.cpp, read as specifications.
#include "gguf_part.h"
#include "unicode.h"
#include "../quant/formats.h"

#include <algorithm>
#include <bit>
#include <utility>

static_assert(std::endian::native == std::endian::little,
              "values are read from the mapping as they lie: little-endian machines only");

namespace duet {

const gguf_kv_type kGgufKvTypes[kGgufKvTypeCount] = {{"u8", 1},  {"i8", 1},  {"u16", 2},  {"i16", 2},    {"u32", 4},
                                                     {"i32", 4}, {"f32", 4}, {"bool", 1}, {"string", 0}, {"array", 0},
                                                     {"u64", 8}, {"i64", 8}, {"f64", 8}};

bool gguf_is_int(int32_t type) {
    return (type >= DUET_KV_U8 && type <= DUET_KV_I32) || type == DUET_KV_U64 || type == DUET_KV_I64;
}

namespace {

// The smallest entries of a file. They bound the counts in its header.
constexpr uint64_t kGgufMinKvBytes = 8 + 1 + 4 + 1, kGgufMinTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;
// Once an entry is read, it costs five times its smallest size in the file. These limits bound files of nothing but
// entries. No real file comes near: the largest vocabularies have 300 thousand tokens, the largest models 3 thousand
// tensors.
constexpr uint64_t kGgufMaxKvs = 1u << 21, kGgufMaxTensors = 1u << 20, kGgufMaxStrings = 1u << 23;
constexpr uint32_t kGgufQuantizationVersion = 2;  // version of the block layouts in quant/types.def

// Keys that mean the same in every file. A value of another kind is an error even when nothing reads the key. A key
// that begins with a dot may follow the name of any architecture; it is checked even for families that do not read it.
// want: s string, i integer, n integers not below 0, b bool, u exactly u32; capitals are arrays (S strings, I integers,
// F floats).
// clang-format off
struct gguf_known_key { const char* key; char want; };
constexpr gguf_known_key kGgufKnownKeys[] = {
    {"general.architecture", 's'}, {"general.name", 's'}, {"general.type", 's'}, {"general.file_type", 'i'},
    {"general.quantization_version", 'i'}, {"general.alignment", 'u'}, {"split.no", 'i'}, {"split.count", 'i'},
    {"split.tensors.count", 'i'}, {"tokenizer.ggml.model", 's'}, {"tokenizer.ggml.pre", 's'}, {"tokenizer.ggml.tokens", 'S'},
    {"tokenizer.ggml.scores", 'F'}, {"tokenizer.ggml.token_type", 'I'}, {"tokenizer.ggml.merges", 'S'},
    {"tokenizer.ggml.bos_token_id", 'i'}, {"tokenizer.ggml.eos_token_id", 'i'}, {"tokenizer.ggml.unknown_token_id", 'i'},
    {"tokenizer.ggml.padding_token_id", 'i'}, {"tokenizer.ggml.add_bos_token", 'b'}, {"tokenizer.ggml.add_eos_token", 'b'},
    {"tokenizer.ggml.add_space_prefix", 'b'}, {"tokenizer.chat_template", 's'}, {".attention.sliding_window", 'n'},
};
// clang-format on

// Says whether a value is of a wanted kind, and names the kind.
bool gguf_is_kind(const gguf_kv& kv, char want, const char** name) {
    const int32_t elem = kv.value_type();
    int64_t value = 0;
    // clang-format off
    switch (want) {
        case 's': *name = "a string"; return kv.type == DUET_KV_STRING;
        case 'i': *name = "an integer"; return gguf_is_int(kv.type);
        case 'b': *name = "a bool"; return kv.type == DUET_KV_BOOL;
        case 'u': *name = "a u32"; return kv.type == DUET_KV_U32;
        case 'S': *name = "an array of strings"; return kv.array_type == DUET_KV_STRING;
        case 'I': *name = "an array of integers"; return gguf_is_int(kv.array_type);
        case 'F': *name = "an array of numbers"; return kv.array_type == DUET_KV_F32 || kv.array_type == DUET_KV_F64 || kv.array_type == DUET_KV_I32;
        case 'n':
            *name = "integers not below 0";
            for (uint64_t i = 0; i < kv.n_values; i++)
                if (!gguf_is_int(elem) || !gguf_file::value_int(kv, i, &value) || value < 0) return false;
            return kv.n_values > 0;
    }
    // clang-format on
    return false;
}

// Says whether a character could steer a terminal or turn the direction of writing: C0, DEL, C1, bidirectional marks,
// line separators.
bool gguf_is_unprintable(uint32_t code_point) {
    return code_point < 0x20 || (code_point >= 0x7f && code_point < 0xa0) ||  // C0, DEL, C1
           code_point == 0x200e || code_point == 0x200f ||                    // marks left-to-right, right-to-left
           (code_point >= 0x2028 && code_point <= 0x202e) ||                  // separators, embeddings, overrides
           (code_point >= 0x2066 && code_point <= 0x2069);                    // isolates
}

// Names the content of a file that is not GGUF, as far as its start tells; nullptr: unknown.
const char* gguf_other_content(std::string_view s) {
    const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? (char)(c + 32) : c; };
    const auto begins = [&](std::string_view want) {
        return std::ranges::equal(s.substr(0, want.size()), want, {}, lower);
    };
    if (begins("fugg")) return "a big-endian GGUF file: want little-endian";
    for (const char* magic : {"ggml", "lmgg", "ggmf", "fmgg", "ggjt", "tjgg", "ggla", "algg"})
        if (begins(magic)) return "a file of a format older than GGUF (ggml, ggmf, ggjt): convert the model again";
    if (begins("version https://git-lfs"))
        return "a Git LFS pointer, not the file itself: fetch it with 'git lfs pull'";
    if (begins("pk\x03\x04")) return "a ZIP archive (PyTorch models are ZIP files, too): unpack or convert it first";
    if (s.size() >= 9 && s[8] == '{') return "a safetensors file: convert it to GGUF first";
    if (begins("\x1f\x8b") || begins("\x28\xb5\x2f\xfd") || begins("7z\xbc\xaf"))
        return "a compressed file: unpack it first";
    if (s.size() >= 4 && begins(std::string_view("\0\0\0\0", 4))) return "zeros: probably an unfinished download";
    if (begins("\xef\xbb\xbf")) s.remove_prefix(3);
    while (!s.empty() && (s[0] == ' ' || (s[0] >= '\t' && s[0] <= '\r'))) s.remove_prefix(1);
    if (begins("<!doctype") || begins("<html") || begins("<head") || begins("<!--") || begins("<?xml"))
        return "an HTML page: probably a failed download";
    return begins("{") || begins("[") ? "JSON text: probably an error message of a failed download" : nullptr;
}

}  // namespace

const char* gguf_bad_name(std::string_view s) {
    for (size_t i = 0; i < s.size();) {
        const uint32_t code_point = next_char(s, &i);
        if (code_point == kInvalidByte) return "the name is not valid UTF-8";
        if (gguf_is_unprintable(code_point)) return "the name holds a control character";
    }
    return nullptr;
}

std::string gguf_describe(const gguf_kv& kv) {
    if (kv.type == DUET_KV_ARRAY)
        return "an array of " + std::to_string(kv.n_values) + " " + kGgufKvTypes[kv.array_type].name;
    if (kv.type == DUET_KV_STRING) return "the string \"" + printable(kv.strings[0], 40) + "\"";
    char text[64];
    int64_t i = 0;
    double d = 0;
    if (kv.type == DUET_KV_BOOL) return *kv.data ? "the bool true" : "the bool false";
    if (gguf_file::value_int(kv, 0, &i))
        snprintf(text, sizeof text, "the %s %lld", kGgufKvTypes[kv.type].name, (long long)i);
    else if (gguf_file::value_float(kv, 0, &d))
        snprintf(text, sizeof text, "the %s %.9g", kGgufKvTypes[kv.type].name, d);
    else snprintf(text, sizeof text, "a %s above 2^63 - 1", kGgufKvTypes[kv.type].name);
    return text;
}

static std::string escaped(std::string_view bytes, size_t max_bytes, bool is_path) {
    std::string out;
    int n_bytes = 0;
    for (size_t i = 0; i < bytes.size(); i += (size_t)n_bytes) {
        const uint32_t code_point = utf8_decode(bytes, i, &n_bytes);
        const std::string_view character = bytes.substr(i, (size_t)n_bytes);
        if (i + character.size() > max_bytes) return out + "...";
        const bool is_plain = character != "\"" && (is_path || character != "\\");
        if (code_point != kInvalidByte && is_plain && !gguf_is_unprintable(code_point)) {
            out += character;
            continue;
        }
        for (char byte : character) {
            char hex[8];
            snprintf(hex, sizeof hex, "\\x%02X", (unsigned)(uint8_t)byte);
            out += hex;
        }
    }
    return out;
}

std::string printable(std::string_view bytes, size_t max_bytes) { return escaped(bytes, max_bytes, false); }
std::string printable_path(std::string_view path) { return escaped(path, 300, true); }

bool gguf_tensor_bytes(int64_t type, uint64_t n_dims, const uint64_t (&dims)[4], uint64_t* n_bytes, std::string* why) {
    char text[200];
    auto bad = [&](const char* format, auto... args) {
        snprintf(text, sizeof text, format, args...);
        *why = text;
        return false;
    };
    const number_format* row = find_type((int32_t)type);
    if (!row) {
        const auto all = number_formats();
        const auto last = std::max_element(all.begin(), all.end(), [](auto& a, auto& b) { return a.id < b.id; });
        return bad("unknown type: want one of the %d ids from 0 to %d, got %lld", (int)all.size(), last->id,
                   (long long)type);
    }
    if (row->elems == 0)
        return bad("type %d (%s) was removed from the format: make the file again", row->id, row->name);
    if (n_dims < 1 || n_dims > 4) return bad("number of dimensions: want 1 to 4, got %llu", (unsigned long long)n_dims);
    uint64_t n_elems = 1;
    for (uint64_t i = 0; i < n_dims; i++) {
        if (dims[i] == 0 || dims[i] > INT64_MAX)
            return bad("dimension %llu: want 1 to 2^63 - 1, got %lld", (unsigned long long)i, (long long)dims[i]);
        if (__builtin_mul_overflow(n_elems, dims[i], &n_elems) || n_elems > INT64_MAX)
            return bad(
                "the product of the dimensions overflows: want less than 2^63 elements, got %llu x %llu x %llu x %llu",
                (unsigned long long)dims[0], (unsigned long long)dims[1], (unsigned long long)dims[2],
                (unsigned long long)dims[3]);
    }
    if (dims[0] % row->elems != 0)
        return bad("rows of %s must be whole blocks: want a multiple of %llu, got %llu", row->name,
                   (unsigned long long)row->elems, (unsigned long long)dims[0]);
    if (__builtin_mul_overflow(n_elems / row->elems, row->bytes, n_bytes) || *n_bytes > INT64_MAX)
        return bad("the size overflows: want less than 2^63 bytes, got %llu blocks of %llu",
                   (unsigned long long)(n_elems / row->elems), (unsigned long long)row->bytes);
    return true;
}

duet_status gguf_part::read_header(uint64_t* n_kv, uint64_t* n_tensors) {
    what = "header";
    const std::string_view start((const char*)data, (size_t)std::min<uint64_t>(size, 256));
    if (start.substr(0, 4) != std::string_view("GGUF").substr(0, start.size())) {
        const char* other = gguf_other_content(start);
        return bad(0, "no GGUF file: want the magic \"GGUF\", got %s",
                   other ? other : ("\"" + printable(start.substr(0, 4)) + "\"").c_str());
    }
    if (size < 24) return bad(size, "the file ends inside the header: want 24 bytes, got %d", (int)size);
    at = 4;
    DUET_TRY(read("the version", &version));
    if (version != 2 && version != 3) {
        if (version != 0 && (version & 0xffff) == 0)
            return bad(4, "big-endian file (version %u with its bytes swapped): want little-endian", version >> 24);
        return bad(4, "version: want 2 or 3, got %u", version);
    }
    DUET_TRY(read("the tensor count", n_tensors));
    DUET_TRY(read("the key count", n_kv));
    const uint64_t max_tensors = std::min(left() / kGgufMinTensorBytes, kGgufMaxTensors);
    const uint64_t max_kvs = std::min(left() / kGgufMinKvBytes, kGgufMaxKvs);
    const std::string whole = " (what a file of " + std::to_string(size) + " bytes can hold)";
    if (*n_tensors > max_tensors) return beyond(8, "number of tensors", max_tensors, whole, *n_tensors);
    return *n_kv > max_kvs ? beyond(16, "number of keys", max_kvs, whole, *n_kv) : DUET_OK;
}

duet_status gguf_part::read_value(gguf_kv& kv) {
    uint64_t size_each = kGgufKvTypes[kv.type].n_bytes;
    int32_t type = kv.type;
    if (type == DUET_KV_ARRAY) {
        uint32_t elem = 0;
        DUET_TRY(read("the array's type", &elem));
        if (elem == DUET_KV_ARRAY) return bad(at - 4, "array of arrays: want scalars or strings as elements");
        if (elem >= kGgufKvTypeCount) return bad(at - 4, "unknown element type: want 0 to 12, got %u", elem);
        DUET_TRY(read("the array's length", &kv.n_values));
        type = kv.array_type = (int32_t)elem;
        size_each = type == DUET_KV_STRING ? 8 : kGgufKvTypes[type].n_bytes;
        if (kv.n_values > left() / size_each)
            return beyond(at - 8, "the array is longer than the rest of the file", left() / size_each,
                          std::string(" elements of ") + kGgufKvTypes[type].name, kv.n_values);
    }
    kv.data = data + at;
    kv.offset = at;
    if (type == DUET_KV_STRING) {
        const bool is_array = kv.type == DUET_KV_ARRAY;
        if (is_array) n_strings += kv.n_values;
        if (n_strings > kGgufMaxStrings) return beyond(at, "strings in arrays", kGgufMaxStrings, "", n_strings);
        kv.strings.resize((size_t)kv.n_values);
        for (uint64_t i = 0; i < kv.n_values; i++) {
            i_element = is_array ? (int64_t)i : -1;
            DUET_TRY(read_string("the string", UINT64_MAX, &kv.strings[(size_t)i]));
        }
        i_element = -1;
        kv.n_bytes = at - kv.offset;
        return DUET_OK;
    }
    kv.n_bytes = kv.n_values * size_each;
    if (left() < kv.n_bytes) return ended("the value", kv.n_bytes);
    for (uint64_t i = at; type == DUET_KV_BOOL && i < at + kv.n_bytes; i++)
        if (data[i] > 1) return bad(i, "bool: want 0 or 1, got %d", data[i]);
    at += kv.n_bytes;
    return DUET_OK;
}

duet_status gguf_part::read_kv(uint64_t i) {
    gguf_kv kv;
    what = "key " + std::to_string(i);
    DUET_TRY(read_name(kGgufMaxKeyBytes, &kv.key));
    what = printable(kv.key);
    uint32_t type = 0;
    DUET_TRY(read("the value's type", &type));
    if (type >= kGgufKvTypeCount) return bad(at - 4, "unknown value type: want 0 to 12, got %u", type);
    kv.type = (int32_t)type;
    DUET_TRY(read_value(kv));
    kvs.push_back(std::move(kv));
    return DUET_OK;
}

duet_status gguf_part::check_known_keys() {
    for (const gguf_kv& kv : kvs)
        for (const gguf_known_key& known : kGgufKnownKeys) {
            if (known.key[0] == '.' ? !kv.key.ends_with(known.key) : kv.key != known.key) continue;
            auto wrong = [&](const std::string& want) {
                what = printable(kv.key);
                return bad(kv.offset, "want %s, got %s", want.c_str(), gguf_describe(kv).c_str());
            };
            const char* kind = "";
            if (!gguf_is_kind(kv, known.want, &kind)) return wrong(kind);
            int64_t value = 0;
            if (kv.key == "general.alignment") {
                alignment = gguf_load<uint32_t>(kv.data);
                if (!std::has_single_bit(alignment) || alignment < kGgufMinAlignment || alignment > kGgufMaxAlignment)
                    return wrong("a power of two from 8 to 2^20");
            }
            if (kv.key == "general.quantization_version" &&
                (!gguf_file::value_int(kv, 0, &value) || value < 0 || value > kGgufQuantizationVersion))
                return wrong("at most " + std::to_string(kGgufQuantizationVersion) + " (the block layouts known here)");
            if (kv.key == "general.architecture") {
                const std::string_view s = kv.strings[0];
                const bool is_word = std::all_of(s.begin(), s.end(), [](char c) {
                    return is_letter_or_digit(c) || c == '-' || c == '_' || c == '.';
                });
                if (!is_word || s.empty() || s.size() > 64) return wrong("1 to 64 letters, digits, '-', '_', '.'");
            }
        }
    return DUET_OK;
}

duet_status gguf_part::read_tensor(uint64_t i) {
    gguf_tensor t;
    what = "tensor " + std::to_string(i);
    DUET_TRY(read_name(kGgufMaxNameBytes, &t.name));
    what = "tensor " + printable(t.name);
    const uint64_t begin = at;
    uint32_t n_dims = 0, type = 0;
    DUET_TRY(read("the number of dimensions", &n_dims));
    if (n_dims < 1 || n_dims > 4) return bad(begin, "number of dimensions: want 1 to 4, got %u", n_dims);
    uint64_t dims[4] = {1, 1, 1, 1};
    for (uint32_t d = 0; d < n_dims; d++) DUET_TRY(read("the dimensions", &dims[d]));
    DUET_TRY(read("the type", &type));
    std::string why;
    if (!gguf_tensor_bytes(type, n_dims, dims, &t.n_bytes, &why)) return bad(begin, "%s", why.c_str());
    offsets_at.push_back(at);
    DUET_TRY(read("the offset", &t.offset));
    std::copy(dims, dims + 4, t.dims);
    t.n_dims = (int32_t)n_dims;
    t.type = (int32_t)type;
    t.i_file = i_file;
    tensors.push_back(t);
    return DUET_OK;
}

// Makes offsets absolute, and checks that each tensor's bytes lie in the file, aligned, and apart from other tensors.
duet_status gguf_part::place_tensors() {
    if (tensors.empty()) return DUET_OK;
    const uint64_t begin = gguf_padded(at, alignment);
    what = "tensor " + printable(tensors[0].name);
    if (begin > size)
        return bad(at, "the data section is missing: want it at byte %llu, the file ends at %llu",
                   (unsigned long long)begin, (unsigned long long)size);
    for (size_t i = 0; i < tensors.size(); i++) {
        gguf_tensor& t = tensors[i];
        what = "tensor " + printable(t.name);
        if (t.offset % alignment != 0)
            return bad(offsets_at[i], "the offset is not aligned: want a multiple of %u, got %llu", alignment,
                       (unsigned long long)t.offset);
        if (t.offset > size - begin || t.n_bytes > size - begin - t.offset)
            return bad(
                offsets_at[i],
                "the data ends outside the file: want %llu bytes at offset %llu of the data section, which has %llu",
                (unsigned long long)t.n_bytes, (unsigned long long)t.offset, (unsigned long long)(size - begin));
        t.offset += begin;
        t.data = data + t.offset;
    }
    const std::vector<uint32_t> order = gguf_sorted(tensors, &gguf_tensor::offset);
    // Only padding may lie between tensors. Bytes that belong to no tensor mean a wrong type or shape.
    uint64_t want = begin;
    for (size_t i = 0; i < order.size(); i++) {
        const gguf_tensor& t = tensors[order[i]];
        const std::string after = i ? what : "the start of the data section";
        what = "tensor " + printable(t.name);
        if (t.offset != want)
            return bad(offsets_at[order[i]], "%s%s: want offset %llu, got %llu",
                       t.offset < want ? "overlaps " : "leaves a gap after ", after.c_str(),
                       (unsigned long long)(want - begin), (unsigned long long)(t.offset - begin));
        want = t.offset + gguf_padded(t.n_bytes, alignment);
    }
    return DUET_OK;
}

duet_status gguf_part::read_all() {
    uint64_t n_kv = 0, n_tensors = 0;
    DUET_TRY(read_header(&n_kv, &n_tensors));
    kvs.reserve((size_t)n_kv);
    for (uint64_t i = 0; i < n_kv; i++) DUET_TRY(read_kv(i));
    DUET_TRY(check_known_keys());
    const uint64_t max_tensors = left() / kGgufMinTensorBytes;  // This bound is tighter, now that the metadata is read.
    what = "header";
    if (n_tensors > max_tensors)
        return beyond(8, "number of tensors", max_tensors,
                      " (what the " + std::to_string(left()) + " bytes after the metadata can hold)", n_tensors);
    tensors.reserve((size_t)n_tensors);
    for (uint64_t i = 0; i < n_tensors; i++) DUET_TRY(read_tensor(i));
    return place_tensors();
}

}  // namespace duet
