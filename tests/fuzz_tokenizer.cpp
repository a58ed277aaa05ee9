// tests/fuzz_tokenizer.cpp: the libFuzzer entry of vocabularies and tokenizers (make config=fuzz fuzz). The input is a
// GGUF file, and its bytes are also the text. Seeds: small vocabulary files like those that tests/test_tokenizer.cpp
// makes.
#include "../models/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t n_bytes) {
    duet::gguf_file file;
    duet::error_text err;
    duet::tokenizer tok;
    if (file.open_memory(data, n_bytes, err) != DUET_OK || tok.load(file, err) != DUET_OK)
        return err.text.empty() ? __builtin_trap(), 0 : 0;
    std::vector<int32_t> ids;
    std::string text;
    for (int flags = 0; flags < 4; flags++) {
        if (tok.encode({(const char*)data, n_bytes}, flags & 1, flags & 2, &ids, err) != DUET_OK) __builtin_trap();
        for (int32_t id : ids)
            if (id < 0 || id >= tok.n_vocab()) __builtin_trap();
        tok.decode(ids.data(), ids.size(), flags & 1, &text);
    }
    return 0;
}
