// tests/fuzz_gguf.cpp: the libFuzzer entry of the GGUF reader (make config=fuzz fuzz). Seeds: any small .gguf file.
#include "../models/gguf.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t n_bytes) {
    duet::gguf_file file;
    duet::error_text err;
    if (file.open_memory(data, n_bytes, err) != DUET_OK) return err.text.empty() ? __builtin_trap(), 0 : 0;
    uint64_t sum = 0;
    for (const auto& kv : file.kvs) sum += kv.n_bytes ? kv.data[kv.n_bytes - 1] : 0;
    for (const auto& t : file.tensors) sum += t.data[t.n_bytes - 1];
    return sum == ~0ull;
}
