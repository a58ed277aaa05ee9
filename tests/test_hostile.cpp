// tests/test_hostile.cpp: the corpus of wrong files. Each group of cases is one rule of the format.
// tests/test_hostile_model.cpp makes wrong models and vocabularies. The test below runs the reader on all of them.
#include "hostile.h"

#include "../models/gguf.h"
#include "doctest.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace {

template <class T> std::string raw(T v) { return std::string((const char*)&v, sizeof v); }
std::string raw_name(std::string_view s) { return raw<uint64_t>(s.size()) + std::string(s); }

constexpr unsigned long long kTop = 1ull << 63;

// Weights between -0.1 and 0.1, the same on every machine.
std::string weights(uint64_t n_bytes, uint32_t seed) {
    std::string out((size_t)n_bytes, '\0');
    for (uint64_t i = 0; i + 4 <= n_bytes; i += 4) {
        seed = seed * 1664525u + 1013904223u;
        const float v = (float)((int32_t)(seed >> 8) - (1 << 23)) / (float)(1 << 23) * 0.1f;
        std::memcpy(&out[(size_t)i], &v, 4);
    }
    return out;
}

}  // namespace

bool hostile_says(std::string_view error, std::string_view want) {
    for (size_t begin = 0; begin <= want.size();) {
        const size_t end = std::min(want.find('|', begin), want.size());
        if (error.find(want.substr(begin, end - begin)) != std::string_view::npos) return true;
        begin = end + 1;
    }
    return false;
}

std::string raw_type(uint32_t type, const std::string& bytes) { return raw(type) + bytes; }
std::string raw_array(uint32_t elem, uint64_t n, const std::string& bytes) {
    return raw<uint32_t>(9) + raw(elem) + raw(n) + bytes;
}
std::string raw_u32(uint32_t v) { return raw_type(4, raw(v)); }
std::string raw_i32(int32_t v) { return raw_type(5, raw(v)); }
std::string raw_f32(float v) { return raw_type(6, raw(v)); }
std::string raw_bool(uint8_t v) { return raw_type(7, raw(v)); }
std::string raw_text(std::string_view v) { return raw_type(8, raw_name(v)); }
std::string raw_texts(const std::vector<std::string>& v) {
    std::string bytes;
    for (const auto& s : v) bytes += raw_name(s);
    return raw_array(8, v.size(), bytes);
}
std::string raw_f32s(const std::vector<float>& v) {
    return raw_array(6, v.size(), {(const char*)v.data(), v.size() * 4});
}
std::string raw_i32s(const std::vector<int32_t>& v) {
    return raw_array(5, v.size(), {(const char*)v.data(), v.size() * 4});
}

raw_gguf& raw_gguf::set(const std::string& key, std::string value) {
    for (auto& kv : kvs)
        if (kv.first == key) {
            kv.second = std::move(value);
            return *this;
        }
    kvs.emplace_back(key, std::move(value));
    return *this;
}
raw_gguf& raw_gguf::erase(const std::string& key) {
    std::erase_if(kvs, [&](const auto& kv) { return kv.first == key; });
    return *this;
}
raw_gguf& raw_gguf::add(std::string name, std::vector<uint64_t> dims, uint32_t type, uint64_t n_bytes, int64_t offset) {
    tensors.push_back({std::move(name), std::move(dims), type, n_bytes, offset});
    return *this;
}
raw_gguf::tensor& raw_gguf::at(const std::string& name) {
    for (tensor& t : tensors)
        if (t.name == name) return t;
    return tensors.emplace_back();
}
raw_gguf& raw_gguf::drop(const std::string& name) {
    std::erase_if(tensors, [&](const tensor& t) { return t.name == name; });
    return *this;
}
std::string raw_gguf::head() const {
    std::string out = magic + raw(version) + raw<uint64_t>(n_tensors < 0 ? tensors.size() : (uint64_t)n_tensors) +
                      raw<uint64_t>(n_kv < 0 ? kvs.size() : (uint64_t)n_kv);
    uint64_t offset = 0;
    for (const auto& kv : kvs) out += raw_name(kv.first) + kv.second;
    for (const tensor& t : tensors) {
        out += raw_name(t.name) + raw<uint32_t>((uint32_t)t.dims.size());
        for (const uint64_t d : t.dims) out += raw(d);
        out += raw(t.type) + raw<uint64_t>(t.offset < 0 ? offset : (uint64_t)t.offset);
        offset += (t.n_bytes + alignment - 1) / alignment * alignment;
    }
    return out;
}
std::string raw_gguf::bytes() const {
    std::string out = head();
    if (!tensors.empty()) out.resize((out.size() + alignment - 1) / alignment * alignment, '\0');
    uint32_t seed = 1;
    for (const tensor& t : tensors) {
        // Norms and rope factors are ones, so that activations keep their size.
        if ((t.name.find("norm") != std::string::npos || t.name == "rope_freqs.weight") && t.type == 0)
            for (uint64_t i = 0; i < t.n_bytes; i += 4) out += raw(1.0f);
        else out += weights(t.n_bytes, seed++);
        out.resize((out.size() + alignment - 1) / alignment * alignment, '\0');
    }
    return out + tail;
}

raw_gguf tiny_file() {
    raw_gguf f;
    f.set("general.architecture", raw_text("llama"))
        .set("general.name", raw_text("tiny"))
        .set("a.u8", raw_type(0, raw<uint8_t>(200)));
    f.set("a.i8", raw_type(1, raw<int8_t>(-3)))
        .set("a.u16", raw_type(2, raw<uint16_t>(60000)))
        .set("a.i16", raw_type(3, raw<int16_t>(-300)));
    f.set("a.u32", raw_u32(7)).set("a.i32", raw_i32(-7)).set("a.f32", raw_f32(0.5f)).set("a.bool", raw_bool(1));
    f.set("a.u64", raw_type(10, raw<uint64_t>(1ull << 40)))
        .set("a.i64", raw_type(11, raw<int64_t>(-5)))
        .set("a.f64", raw_type(12, raw(0.25)));
    f.set("a.texts", raw_texts({"x", "", "yz"}))
        .set("a.ints", raw_i32s({1, -2, 3}))
        .set("a.bools", raw_array(7, 2, std::string("\1\0", 2)));
    f.add("one", {32, 2}, 0, 256).add("two", {64}, 2, 36).add("three", {4, 3, 2, 2}, 1, 96);
    return f;
}

namespace {

void add_header_cases(hostile_list& out) {
    const std::string good = tiny_file().bytes();
    for (size_t n = 0; n < 24; n++) out.add_bytes("1 header cut to " + hostile_number(n), good.substr(0, n), "header");
    const std::pair<const char*, const char*> contents[] = {{"FUGG", "big-endian"},
                                                            {"GGML", "older than GGUF"},
                                                            {"lmgg", "older than GGUF"},
                                                            {"GGJT", "older than GGUF"},
                                                            {"tjgg", "older than GGUF"},
                                                            {"PK\x03\x04zip", "ZIP"},
                                                            {"<!DOCTYPE html><html>", "HTML"},
                                                            {"\r\n <HTML><head>", "HTML"},
                                                            {"version https://git-lfs.github.com/spec/v1\n", "Git LFS"},
                                                            {"\x1f\x8b\x08", "compressed"},
                                                            {"{\"error\": \"not found\"}", "JSON"},
                                                            {"ELF?", "magic"},
                                                            {"gguf", "magic"}};
    for (const auto& [content, want] : contents)
        for (const size_t pad : {0, 4096})
            out.add_bytes(std::string("2 content ") + content, content + std::string(pad, ' '), want);
    out.add_bytes("2 safetensors", raw<uint64_t>(40) + "{\"__metadata__\":{\"format\":\"pt\"},\"a\":{}}      ",
                  "safetensors");
    out.add_bytes("2 zeros", std::string(4096, '\0'), "zeros");
    for (const uint32_t v : {0u, 1u, 4u, 255u, 0xffffffffu, 0x80000003u}) {
        raw_gguf f = tiny_file();
        f.version = v;
        out.add("3 version " + hostile_number(v), f, "version: want 2 or 3");
    }
    for (const uint32_t v : {0x02000000u, 0x03000000u}) {
        raw_gguf f = tiny_file();
        f.version = v;
        out.add("3 big-endian " + hostile_number(v), f, "big-endian");
    }
    for (const uint64_t n : {kTop, ~0ull - 1, kTop - 1, 1ull << 40, 1ull << 32, 100000ull, 500ull})
        for (const bool is_kv : {false, true})
            for (const bool is_small : {false, true}) {
                std::string bytes = is_small ? good.substr(0, 100) : good;
                std::memcpy(&bytes[is_kv ? 16 : 8], &n, 8);
                out.add_bytes("4 count " + hostile_number(n) + (is_kv ? " keys" : " tensors") +
                                  (is_small ? " small" : ""),
                              bytes, is_kv && !is_small ? "number of keys" : "number of tensors");
            }
    for (const int64_t n : {0, 1, 5, 15}) {
        raw_gguf f = tiny_file();
        f.n_kv = n;
        out.add("4 fewer keys " + hostile_number((uint64_t)n), f, "tensor ");
    }
    raw_gguf more_kv = tiny_file(), more_tensors = tiny_file();
    more_kv.n_kv = (int64_t)more_kv.kvs.size() + 1;
    more_tensors.n_tensors = 4;
    out.add("4 one key more", more_kv, "tensor 0|key 16");
    out.add("4 one tensor more", more_tensors, "tensor 3");
}

void add_key_cases(hostile_list& out) {
    auto with_key = [](std::string key_bytes) {  // the key's own length field is part of key_bytes
        raw_gguf f = tiny_file();
        std::string bytes = f.head();
        bytes.replace(24, 8 + strlen("general.architecture"), key_bytes);
        return bytes + std::string(4096, '\0');
    };
    for (const uint64_t n : {0ull, 65536ull, 1000000ull, 1ull << 32, kTop, ~0ull, ~0ull - 7})
        out.add_bytes("7 key length " + hostile_number(n), with_key(raw(n) + "general.architecture"), "key 0");
    raw_gguf long_key;
    long_key.set(std::string(65536, 'k'), raw_u32(1)).set("general.architecture", raw_text("llama"));
    out.add("7 key of 65536 bytes", long_key, "key 0");
    for (const char* bad : {"a\x01", "a\x1b[31m", "a\x7f", "\n", "a\xff", "a\xc0\xaf", "a\xed\xa0\x80",
                            "a\xf5\x80\x80\x80", "a\xe2\x82", "a\xc2\x9b", "a\xe2\x80\xae"}) {
        raw_gguf f = tiny_file();
        f.set(bad, raw_u32(1));
        out.add(std::string("8 key bytes ") + std::to_string((uint8_t)bad[strlen(bad) - 1]) + "/" +
                    hostile_number(strlen(bad)),
                f, "key 16");
    }
    raw_gguf nul = tiny_file();
    nul.set(std::string("a\0b", 3), raw_u32(1));
    out.add("8 key with NUL", nul, "key 16");
    for (const char* key : {"general.architecture", "a.u32", "a.texts", "a.bools"}) {
        raw_gguf f = tiny_file();
        f.kvs.emplace_back(key, raw_u32(1));
        if (std::string(key) == "general.architecture") f.kvs.back().second = raw_text("qwen2");
        out.add(std::string("9 twice ") + key, f, std::string(key) + ": at byte");
        f.kvs.back().second = f.kvs[0].second;
        out.add(std::string("9 twice with another value ") + key, f, key);
    }
    for (const uint32_t type : {13u, 14u, 255u, 0xffffffffu, 0x80000000u}) {
        raw_gguf f = tiny_file();
        f.set("a.bad", raw_type(type, std::string(8, '\1')));
        out.add("10 type " + hostile_number(type), f, "a.bad: at byte");
        f.set("a.bad", raw_array(type, 1, std::string(8, '\1')));
        out.add("12 array type " + hostile_number(type), f, "a.bad: at byte");
        f.set("a.bad", raw_array(type, 1ull << 60, std::string(8, '\1')));
        out.add("12 long array of type " + hostile_number(type), f, "a.bad: at byte");
    }
    for (const uint64_t n : {100000ull, 1ull << 31, 1ull << 32, kTop - 1, kTop, ~0ull, ~0ull - 7}) {
        raw_gguf f = tiny_file();
        f.set("a.bad", raw_type(8, raw(n) + "x"));
        out.add("11 string length " + hostile_number(n), f, "a.bad");
        f.set("a.bad", raw_array(8, 1, raw(n) + "x"));
        out.add("11 string in array " + hostile_number(n), f, "a.bad[0]");
        f.set("a.bad", raw_array(8, n, raw_name("x")));
        out.add("13 strings " + hostile_number(n), f, "a.bad");
        for (const uint32_t elem : {0u, 3u, 4u, 6u, 7u, 11u, 12u}) {
            f.set("a.bad", raw_array(elem, n, std::string(16, '\1')));
            out.add("13 array of type " + hostile_number(elem) + " length " + hostile_number(n), f, "a.bad");
        }
    }
    for (const uint64_t n :
         {1ull << 61, 1ull << 62, (1ull << 61) + 1, (1ull << 62) + 1, kTop + 1}) {  // n * size wraps to a small number
        raw_gguf f = tiny_file();
        for (const uint32_t elem : {2u, 4u, 10u}) {
            f.set("a.bad", raw_array(elem, n, std::string(8, '\1')));
            out.add("13 array of type " + hostile_number(elem) + " wraps " + hostile_number(n), f, "a.bad");
        }
    }
    std::string nested = raw<uint32_t>(9);
    for (int i = 0; i < 100000; i++) nested += raw<uint32_t>(9) + raw<uint64_t>(1);
    for (const auto& value :
         {raw_array(9, 1, raw<uint32_t>(4) + raw<uint64_t>(1) + raw(7u)), raw_array(9, 0, ""), nested}) {
        raw_gguf f = tiny_file();
        f.set("a.bad", value);
        out.add("12 array of arrays " + hostile_number(value.size()), f, "a.bad: at byte");
    }
    for (const int b : {2, 127, 128, 255}) {
        raw_gguf f = tiny_file();
        f.set("a.bad", raw_bool((uint8_t)b));
        out.add("14 bool " + hostile_number((uint64_t)b), f, "a.bad: at byte");
        f.set("a.bad", raw_array(7, 3, std::string("\0\1", 2) + (char)b));
        out.add("14 bool in array " + hostile_number((uint64_t)b), f, "a.bad: at byte");
    }
}

void add_known_key_cases(hostile_list& out) {
    // clang-format off
    const std::pair<const char*, std::vector<std::string>> wrong[] = {
        {"general.architecture", {raw_u32(1), raw_texts({"llama"}), raw_bool(1), raw_text(""), raw_text("../../x"), raw_text(std::string(1 << 20, 'a')),
                                  raw_text(std::string("lla\0ma", 6)), raw_text("a b"), raw_text("\x1b[2J"), raw_text("%s%n")}},
        {"general.name", {raw_u32(1), raw_f32(1), raw_i32s({1})}},
        {"general.file_type", {raw_text("7"), raw_f32(7)}},
        {"general.quantization_version", {raw_u32(3), raw_u32(~0u), raw_i32(-1), raw_text("2"), raw_f32(2)}},
        {"general.alignment", {raw_u32(0), raw_u32(3), raw_u32(1u << 31), raw_u32(1), raw_u32(4), raw_u32(33), raw_u32(~0u), raw_i32(32), raw_text("32"),
                               raw_f32(32), raw_type(10, raw<uint64_t>(32)), raw_i32s({32}), raw_type(2, raw<uint16_t>(32)), raw_bool(1)}},
        {"split.no", {raw_text("0"), raw_i32(-1), raw_u32(1), raw_f32(0)}},
        {"split.count", {raw_text("1"), raw_i32(-1), raw_u32(3), raw_u32(1u << 20), raw_f32(1), raw_i32s({1})}},
        {"split.tensors.count", {raw_text("3"), raw_i32(-1), raw_u32(2), raw_u32(4), raw_f32(3)}},
        {"llama.attention.sliding_window", {raw_i32(-1), raw_text("64"), raw_f32(64), raw_bool(1), raw_i32s({}), raw_i32s({4, -4})}},
        {"tokenizer.ggml.model", {raw_u32(1), raw_texts({"llama"})}},
        {"tokenizer.ggml.pre", {raw_u32(1)}},
        {"tokenizer.ggml.tokens", {raw_text("a"), raw_u32(1), raw_i32s({1}), raw_f32s({1})}},
        {"tokenizer.ggml.scores", {raw_f32(1), raw_texts({"1"})}},
        {"tokenizer.ggml.token_type", {raw_i32(1), raw_f32s({1}), raw_texts({"1"}), raw_array(7, 1, "\1")}},
        {"tokenizer.ggml.merges", {raw_text("a b"), raw_i32s({1})}},
        {"tokenizer.ggml.bos_token_id", {raw_text("1"), raw_f32(1), raw_i32s({1}), raw_bool(1)}},
        {"tokenizer.ggml.eos_token_id", {raw_text("1"), raw_f32(1), raw_i32s({1}), raw_bool(1)}},
        {"tokenizer.ggml.add_bos_token", {raw_text("1"), raw_u32(1), raw_f32(1)}},
    };
    // clang-format on
    for (const auto& [key, values] : wrong)
        for (size_t i = 0; i < values.size(); i++) {
            raw_gguf f = tiny_file();
            f.set(key, values[i]);
            out.add(std::string("15-17 ") + key + " wrong value " + hostile_number(i), f, std::string(key) + ":");
        }
}

void add_shape_cases(hostile_list& out) {
    auto patched = [](uint32_t n_dims) {  // n_dims of the first tensor overwritten
        raw_gguf f = tiny_file();
        std::string bytes = f.bytes();
        const size_t at = bytes.find(raw_name("one")) + 8 + 3;
        std::memcpy(&bytes[at], &n_dims, 4);
        return bytes;
    };
    for (const uint32_t n : {0u, 5u, 8u, 9u, 255u, 1u << 20, ~0u, 1u << 31})
        out.add_bytes("18 dims " + hostile_number(n), patched(n), "tensor one: at byte");
    for (const uint64_t d : {0ull, ~0ull, kTop, kTop - 1, 1ull << 62, ~0ull - 31})
        for (const uint32_t type : {0u, 1u, 2u, 12u, 24u}) {
            raw_gguf f = tiny_file();
            f.at("one").dims = {d};
            f.at("one").type = type;
            out.add("19 dim " + hostile_number(d) + " type " + hostile_number(type), f, "tensor one:");
            f.at("one").dims = {256, d};
            out.add("19 second dim " + hostile_number(d) + " type " + hostile_number(type), f, "tensor one:");
        }
    const uint64_t k31 = 1ull << 31, k32 = 1ull << 32, k48 = 1ull << 48;
    const std::vector<std::vector<uint64_t>> wraps = {{k32, k32},
                                                      {k31, k31, 2},
                                                      {k31, k31, 4},
                                                      {k32, k31},
                                                      {k32, k32, k32, k32},
                                                      {kTop, 2},
                                                      {32, kTop},
                                                      {k48, k48, 1, 1},
                                                      {1ull << 16, 1ull << 16, 1ull << 16, 1ull << 16},
                                                      {32, (1ull << 59) + 1},
                                                      {k32 + 32, k32 + 32},
                                                      {kTop - 32, kTop - 1},
                                                      {256, 1ull << 56, 1ull << 8}};
    const std::vector<std::vector<uint64_t>> big = {
        {1ull << 61}, {1ull << 62, 1},  {1ull << 60, 2},    {1ull << 30, 1ull << 31},
        {1ull << 40}, {1ull << 33, 32}, {(1ull << 61) + 64}};
    for (const auto& list : {wraps, big})
        for (size_t i = 0; i < list.size(); i++)
            for (const uint32_t type : {0u, 2u, 8u, 28u}) {
                raw_gguf f = tiny_file();
                f.at("two").dims = list[i];
                f.at("two").type = type;
                out.add("20-21 shape " + hostile_number(i) + " type " + hostile_number(type), f, "tensor two:");
            }
    for (const uint32_t type : {4u, 5u, 31u, 32u, 33u, 36u, 37u, 38u, 43u, 44u, 255u, 1u << 16, ~0u, 1u << 31}) {
        raw_gguf f = tiny_file();
        f.at("two").type = type;
        out.add("22 type " + hostile_number(type), f, "tensor two: at byte");
    }
    for (const uint64_t n : {1ull, 31ull, 33ull, 48ull}) {
        raw_gguf f = tiny_file();
        f.at("two").dims = {n, 2};
        out.add("23 Q4_0 row of " + hostile_number(n), f, "tensor two: at byte");
        f.at("two").type = 12;
        f.at("two").dims = {n * 32 + 32 * 7 * (n * 32 % 256 == 0), 2};
        if (f.at("two").dims[0] % 256)
            out.add("23 Q4_K row of " + hostile_number(f.at("two").dims[0]), f, "tensor two: at byte");
    }
}

void add_offset_cases(hostile_list& out) {
    for (const int64_t offset : {(int64_t)1, (int64_t)16, (int64_t)31, (int64_t)33, (int64_t)257}) {
        raw_gguf f = tiny_file();
        f.at("two").offset = offset;
        out.add("24 offset not aligned " + hostile_number((uint64_t)offset), f, "tensor two:");
    }
    for (const int64_t offset :
         {(int64_t)384, (int64_t)416, (int64_t)1 << 20, (int64_t)1 << 40, INT64_MAX - 31, INT64_MAX / 64 * 32}) {
        raw_gguf f = tiny_file();
        f.at("three").offset = offset;
        out.add("24 offset past the end " + hostile_number((uint64_t)offset), f, "tensor three:");
    }
    for (const uint64_t offset : {~0ull - 31, ~0ull - 63, kTop, ~0ull - 255}) {
        std::string bytes = tiny_file().bytes();
        const size_t at = bytes.find(raw_name("three")) + 8 + 5 + 4 + 4 * 8 + 4;
        std::memcpy(&bytes[at], &offset, 8);
        out.add_bytes("24 offset wraps " + hostile_number(offset), bytes, "tensor three:");
    }
    for (const int64_t offset : {0, 32, 64, 224}) {
        raw_gguf f = tiny_file();
        f.at("two").offset = offset;
        out.add("24 overlap at " + hostile_number((uint64_t)offset), f, "overlaps tensor");
    }
    for (const int64_t offset :
         {288, 320}) {  // the last tensor may be anywhere in the file, but bytes between belong to one
        raw_gguf f = tiny_file();
        f.at("two").offset = offset;
        f.at("three").offset = offset + 64;
        f.tail = std::string(256, 'x');
        out.add("24 gap before " + hostile_number((uint64_t)offset), f, "leaves a gap after tensor one");
    }
    raw_gguf late = tiny_file(), smaller = tiny_file();
    for (auto& t : late.tensors) t.offset = 64 + (t.name == "two" ? 256 : t.name == "three" ? 320 : 0);
    late.tail = std::string(256, 'x');
    out.add("24 data begins late", late, "tensor one");
    smaller.at("one").type = 1;
    out.add("24 F32 called F16", smaller, "tensor one");
}

void add_name_and_length_cases(hostile_list& out) {
    for (const std::string& name :
         {std::string(), std::string(65, 'n'), std::string(1000, 'n'), std::string(70000, 'n'), std::string("a\0b", 3),
          std::string("\0", 1), std::string("a\xff"), std::string("a\x1b[0m"), std::string("\xe2\x80\xae")}) {
        raw_gguf f = tiny_file();
        f.at("two").name = name;
        out.add("25 name of " + hostile_number(name.size()), f, "tensor 1:");
    }
    raw_gguf twice = tiny_file();
    twice.at("two").name = "one";
    out.add("25 twice", twice, "tensor one");
    twice.at("one").name = "%s%n%s";
    twice.at("one").name = "%s%n%s";
    out.add("25 twice with format", twice, "tensor %s%n%s");
    const std::string good = tiny_file().bytes();
    const size_t data_end = good.size();  // the last tensor fills its padding: 96 bytes
    for (const size_t cut : {1u, 2u, 31u, 32u, 64u, 96u, 97u, 200u, 300u})
        out.add_bytes("27 data cut by " + hostile_number(cut), good.substr(0, data_end - cut), "tensor ");
    const std::string head = tiny_file().head();
    for (size_t n = 24; n < head.size(); n += 7)
        out.add_bytes("1 metadata cut to " + hostile_number(n), head.substr(0, n), "memory: ");
}

}  // namespace

std::vector<hostile_case> hostile_file_cases() {
    hostile_list out;
    add_header_cases(out);
    add_key_cases(out);
    add_known_key_cases(out);
    add_shape_cases(out);
    add_offset_cases(out);
    add_name_and_length_cases(out);
    return std::move(out.cases);
}

std::vector<hostile_case> control_files() {
    hostile_list out;
    raw_gguf f = tiny_file();
    out.add("tiny file", f, "");
    f.version = 2;
    out.add("version 2", f, "");
    f = tiny_file();
    f.tail = "more bytes after the data, of a later version perhaps";
    out.add("bytes after the data", f, "");
    for (const uint32_t alignment : {8u, 16u, 32u, 64u, 4096u}) {
        f = tiny_file();
        f.alignment = alignment;
        f.set("general.alignment", raw_u32(alignment));
        out.add("alignment " + hostile_number(alignment), f, "");
    }
    f = tiny_file();
    f.tensors.clear();
    out.add("no tensors", f, "");
    f.kvs.clear();
    out.add("nothing", f, "");
    f = tiny_file();
    f.kvs.clear();
    out.add("no keys", f, "");
    f = tiny_file();
    f.tensors = {f.tensors[2], f.tensors[0], f.tensors[1]};
    out.add("another order", f, "");
    f.tensors[0].offset = 320;  // the order of the data need not be the order of the table
    f.tensors[1].offset = 0;
    f.tensors[2].offset = 256;
    out.add("table and data in different order", f, "");
    f = tiny_file();
    f.at("one").name = std::string(63, 'n');
    f.set(std::string(65535, 'k'), raw_u32(1))
        .set("caf\xc3\xa9.\xe4\xb8\xad", raw_u32(1))
        .set("a.empty", raw_texts({}))
        .set("a.empty.ints", raw_i32s({}));
    f.set("a.nan", raw_f32(std::nanf("")))
        .set("a.text", raw_text(std::string("\0\xff\x1b", 3)))
        .set("general.file_type", raw_u32(999));
    f.set("split.count", raw_type(2, raw<uint16_t>(0)))
        .set("split.no", raw_type(2, raw<uint16_t>(0)))
        .set("split.tensors.count", raw_i32(3));
    out.add("unusual but right", f, "");
    f = tiny_file();
    std::string cut = f.bytes();  // the padding after the last tensor is not needed
    f.tensors.pop_back();
    cut = f.bytes();
    cut.resize(cut.size() - (64 - 36));
    out.add_bytes("no padding at the end", cut, "");
    f = raw_gguf();
    for (int i = 0; i < 100000; i++) f.kvs.emplace_back("k" + hostile_number((uint64_t)i), raw_u32(1));
    for (int i = 0; i < 100000; i++) f.add("t" + hostile_number((uint64_t)i), {1}, 0, 4);
    out.add("6 100000 keys and tensors", f, "");
    return std::move(out.cases);
}

namespace {

// Reads everything that an opened file points to, so that a sanitizer sees a wrong pointer.
uint64_t touch(const duet::gguf_file& file) {
    uint64_t sum = 0;
    for (const auto& kv : file.kvs) {
        for (uint64_t i = 0; i < kv.n_bytes; i++) sum += kv.data[i];
        for (const auto& s : kv.strings)
            for (const char c : s) sum += (uint8_t)c;
        CHECK(file.find(kv.key) == &kv);
    }
    for (const auto& t : file.tensors) {
        for (uint64_t i = 0; i < t.n_bytes; i++) sum += t.data[i];
        CHECK(file.find_tensor(t.name) == &t);
    }
    return sum;
}

// Makes an exact copy on the heap, so that a sanitizer sees a read past its end.
duet_status open_copy(std::string_view bytes, duet::error_text& err) {
    const std::vector<char> copy(bytes.begin(), bytes.end());
    duet::gguf_file file;
    const duet_status status = file.open_memory(copy.empty() ? "" : copy.data(), copy.size(), err);
    if (status == DUET_OK) touch(file);
    return status;
}

struct small_random {
    uint64_t state;
    uint32_t next(uint32_t below) {  // splitmix64
        uint64_t z = state += 0x9e3779b97f4a7c15ull;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
        z = (z ^ z >> 27) * 0x94d049bb133111ebull;
        return (uint32_t)((z ^ z >> 31) % below);
    }
};

}  // namespace

TEST_CASE("hostile files: each is refused with an error that names the key or tensor") {
    const auto cases = hostile_file_cases();
    CHECK(cases.size() + hostile_model_cases().size() >= 400);
    for (const auto& c : cases) {
        duet::error_text err;
        const duet_status status = open_copy(c.bytes, err);
        CAPTURE(c.name);
        CAPTURE(err.text);
        CHECK(status == DUET_ERR_FORMAT);
        CHECK(err.text.starts_with("memory: "));
        CHECK(hostile_says(err.text, c.want));
        CHECK(std::none_of(err.text.begin(), err.text.end(), [](char ch) { return (uint8_t)ch < 0x20 || ch == 0x7f; }));
    }
}

TEST_CASE("hostile files: valid files beside them are opened") {
    for (const auto& list :
         {control_files(), control_models(), hostile_model_cases()})  // wrong models are right files, except for types
        for (const auto& c : list) {
            duet::error_text err;
            const duet_status status = open_copy(c.bytes, err);
            CAPTURE(c.name);
            CAPTURE(err.text);
            CHECK(status == DUET_OK);
        }
}

TEST_CASE("hostile files: every truncation is an error") {
    raw_gguf f = tiny_file();
    const std::string bytes = f.bytes();
    for (size_t n = 0; n < bytes.size(); n++) {
        duet::error_text err;
        CAPTURE(n);
        CHECK(open_copy(std::string_view(bytes).substr(0, n), err) == DUET_ERR_FORMAT);
    }
}

TEST_CASE("hostile files: every flipped bit of the metadata is an error or another valid file") {
    std::string bytes = tiny_file().bytes();
    const size_t n_head = tiny_file().head().size();
    int n_refused = 0;
    for (size_t i = 0; i < n_head * 8; i++) {
        duet::error_text err;
        bytes[i / 8] ^= (char)(1 << i % 8);
        const duet_status status = open_copy(bytes, err);
        bytes[i / 8] ^= (char)(1 << i % 8);
        CHECK((status == DUET_OK) == err.text.empty());
        CHECK((status == DUET_OK || status == DUET_ERR_FORMAT));
        n_refused += status != DUET_OK;
    }
    CHECK(n_refused > (int)n_head * 3);  // most of the metadata is lengths, types and names
}

TEST_CASE("hostile files: 30000 seeded mutations neither crash nor pass with an error unsaid") {
    const std::string good = tiny_file().bytes();
    const uint64_t odd[] = {0,   1,     2,     7,          8,          9,          13,         31,    32,        64,
                            255, 65535, 65536, 1ull << 31, 1ull << 32, 1ull << 61, 1ull << 63, ~0ull, ~0ull - 31};
    small_random random{20240607};
    int n_opened = 0;
    for (int round = 0; round < 30000; round++) {
        std::string bytes = good;
        for (uint32_t n = 1 + random.next(3); n > 0; n--) {
            const size_t at = random.next((uint32_t)bytes.size());
            switch (random.next(6)) {
            case 0: bytes[at] = (char)random.next(256); break;
            case 1: bytes[at] = (char)(bytes[at] ^ (1 << random.next(8))); break;
            case 2: {
                const uint64_t v = odd[random.next(std::size(odd))];
                std::memcpy(&bytes[std::min(at, bytes.size() - 8)], &v, random.next(2) ? 8 : 4);
                break;
            }
            case 3: bytes.erase(at, 1 + random.next(16)); break;
            case 4: bytes.insert(at, good.substr(random.next((uint32_t)good.size()), 1 + random.next(40))); break;
            case 5: bytes.resize(at + 8); break;
            }
            if (bytes.size() < 16) bytes.resize(16);
        }
        duet::error_text err;
        const duet_status status = open_copy(bytes, err);
        if ((status == DUET_OK) != err.text.empty() || (status != DUET_OK && status != DUET_ERR_FORMAT))
            FAIL("round ", round, ": ", status, " ", err.text);
        n_opened += status == DUET_OK;
    }
    CHECK(n_opened > 1000);  // mutations of values and data are no errors
    CHECK(n_opened < 20000);
}
