// tests/fuzz_grammar.cpp: the libFuzzer entry of GBNF texts and of the automaton (make config=fuzz fuzz). The input up
// to a zero byte is the grammar. The bytes behind it are matched until one does not fit. Seeds: the grammars of
// tests/test_grammar.cpp.
#include "../models/grammar.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t n_bytes) {
    const std::string_view all((const char*)data, n_bytes);
    const size_t n_grammar = std::min(all.find('\0'), n_bytes);
    duet::grammar_builder builder;
    duet::grammar grammar;
    duet::error_text err;
    uint32_t root = 0;
    if (duet::parse_gbnf(all.substr(0, n_grammar), "root", builder, &root, err) != DUET_OK ||
        builder.build(root, &grammar, err) != DUET_OK)
        return err.text.empty() ? __builtin_trap(), 0 : 0;
    static const auto text = [](int32_t id, const void*) {
        return std::string_view("abc\"{}[]0 \n\xc3\xa4", 13).substr((size_t)id);
    };
    std::shared_ptr<const duet::token_tree> tokens;
    if (duet::token_tree::make(14, text, nullptr, {13}, &tokens, err) != DUET_OK) __builtin_trap();
    const auto constraint = std::make_shared<duet::constraint>(grammar, tokens);
    duet::grammar_matcher matcher(constraint);
    std::shared_ptr<const duet::token_mask> mask;
    for (size_t i = n_grammar + 1; i < n_bytes && i < n_grammar + 200 && !matcher.has_ended(); i++) {
        const duet_status status = matcher.mask(&mask, err);
        if (status == DUET_OK && mask->allows(13) != matcher.can_end()) __builtin_trap();
        if (matcher.must_end() && !matcher.can_end()) __builtin_trap();
        if (matcher.accept_bytes(all.substr(i, 1), err) != DUET_OK && matcher.accept(data[i] % 14, err) != DUET_OK)
            break;
    }
    return 0;
}
