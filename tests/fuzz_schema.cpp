// tests/fuzz_schema.cpp: the libFuzzer entry of JSON schemas (make config=fuzz fuzz). The input is a schema. Its
// grammar is followed by always taking the first byte that is allowed; it must come to an end or go on for 300 bytes.
// Seeds: tests/schema_check.py.
#include "../models/schema.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t n_bytes) {
    duet::value schema;
    duet::grammar grammar;
    duet::error_text err;
    if (duet::parse_json({(const char*)data, n_bytes}, &schema, err) != DUET_OK ||
        duet::compile_schema(schema, {}, &grammar, err) != DUET_OK)
        return err.text.empty() ? __builtin_trap(), 0 : 0;
    static const auto text = [](int32_t id, const void*) {
        return std::string_view("\"}]0,:{[ 1-.eatrufalsn\\", 24).substr((size_t)id, 1);
    };
    std::shared_ptr<const duet::token_tree> tokens;
    if (duet::token_tree::make(25, text, nullptr, {24}, &tokens, err) != DUET_OK) __builtin_trap();
    const auto constraint = std::make_shared<duet::constraint>(grammar, tokens);
    duet::grammar_matcher matcher(constraint);
    std::string made;
    for (int i = 0; i < 300 && !matcher.must_end(); i++) {
        bool is_found = false;
        for (int byte = 0; byte < 256 && !is_found; byte++) {
            const char c = (char)((byte + '"') % 256);
            is_found = matcher.accept_bytes({&c, 1}, err) == DUET_OK;
            if (is_found) made += c;
        }
        if (!is_found) __builtin_trap();
    }
    duet::value out;
    duet::json_limits limits;
    limits.max_depth = 1000;
    if (matcher.must_end() && duet::parse_json(made, &out, err, limits) != DUET_OK) __builtin_trap();
    return 0;
}
