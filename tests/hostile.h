// tests/hostile.h: makes GGUF files that are wrong in one chosen way, and valid files beside them. Must not know: which
// code reads them.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// A file that must be refused. want is a text that the error must contain; '|' separates alternatives.
struct hostile_case {
    std::string name, bytes, want;
};
bool hostile_says(std::string_view error, std::string_view want);

// The bytes of a GGUF file, part by part. Nothing is checked.
struct raw_gguf {
    struct tensor {
        std::string name;
        std::vector<uint64_t> dims;
        uint32_t type = 0;
        uint64_t n_bytes = 0;
        int64_t offset = -1;  // -1: where the last one ended
    };
    std::string magic = "GGUF";
    uint32_t version = 3;
    int64_t n_kv = -1, n_tensors = -1;  // written into the header; -1: the true number
    uint64_t alignment = 32;
    std::vector<std::pair<std::string, std::string>> kvs;  // key, then type and value as in the file
    std::vector<tensor> tensors;
    std::string tail;  // after the data

    raw_gguf& set(const std::string& key, std::string value);  // replaces or appends
    raw_gguf& erase(const std::string& key);
    raw_gguf& add(std::string name, std::vector<uint64_t> dims, uint32_t type, uint64_t n_bytes, int64_t offset = -1);
    tensor& at(const std::string& name);
    raw_gguf& drop(const std::string& name);  // a tensor
    std::string head() const;                 // all before the padding of the data section
    std::string bytes() const;
};

// A list of cases that is being made.
struct hostile_list {
    std::vector<hostile_case> cases;
    void add(std::string name, const raw_gguf& file, std::string want) {
        add_bytes(std::move(name), file.bytes(), std::move(want));
    }
    void add_bytes(std::string name, std::string bytes, std::string want) {
        cases.push_back({std::move(name), std::move(bytes), std::move(want)});
    }
};
inline std::string hostile_number(uint64_t v) { return std::to_string(v); }

// Values in the form they have in a file: type, then bytes.
std::string raw_type(uint32_t type, const std::string& bytes);
std::string raw_array(uint32_t elem, uint64_t n, const std::string& bytes);
std::string raw_u32(uint32_t v);
std::string raw_i32(int32_t v);
std::string raw_f32(float v);
std::string raw_bool(uint8_t v);
std::string raw_text(std::string_view v);
std::string raw_texts(const std::vector<std::string>& v);
std::string raw_f32s(const std::vector<float>& v);
std::string raw_i32s(const std::vector<int32_t>& v);

raw_gguf tiny_file();       // a few keys of all kinds, three tensors
raw_gguf tiny_llama();      // a whole model: 2 layers, dim 32, 288 tokens (SPM), F32 weights
raw_gguf tiny_llama_bpe();  // the same with a byte-level BPE vocabulary of 264 tokens

std::vector<hostile_case> hostile_file_cases();   // the reader must refuse them
std::vector<hostile_case> hostile_model_cases();  // well-formed files that duet_model_open_memory must refuse
std::vector<hostile_case> control_files();        // valid for the reader (want is empty)
std::vector<hostile_case> control_models();       // valid for duet_model_open_memory
