// tests/fuzz_chat_parser.cpp: the libFuzzer entry of the chat parser (make config=fuzz fuzz). The first bytes choose
// the form and the options; the rest is the text that a model wrote. Seeds: outputs like those that
// tests/test_chat_parser.cpp writes.
#include "../models/chat_parser.h"

namespace {

struct seen {
    std::string raw, trace;
    int last = -1;
};

void collect(void* user, const duet::chat_event& e) {
    seen& s = *(seen*)user;
    const bool joins = e.kind != duet::chat_event_kind::call_begin && e.kind != duet::chat_event_kind::call_end;
    if ((int)e.kind != s.last || !joins) s.trace += "\n" + std::to_string((int)e.kind) + (e.is_complete ? "+" : "-");
    s.last = (int)e.kind;
    (s.trace += e.bytes) += e.kind == duet::chat_event_kind::markup ? e.raw : "";
    s.raw += e.raw;
}

// Feeds the input in pieces whose sizes come from the seed. Seed 0 feeds one piece.
seen read_pieces(const duet::chat_parser_options& options, std::string_view input, uint32_t seed) {
    seen s;
    duet::chat_parser parser;
    parser.start(options, {&s, collect});
    for (size_t at = 0, n = input.size(); at < input.size(); at += n) {
        if (seed) seed = seed * 1664525u + 1013904223u, n = 1 + (seed >> 8) % (seed & 64 ? 3 : 17);
        parser.feed(input.substr(at, n), false);
        if (parser.n_held_bytes() > 2 * duet::kMaxChatHeld + n) __builtin_trap();
    }
    parser.finish();
    return s;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t n_bytes) {
    if (n_bytes < 3) return 0;
    duet::chat_parser_options o;
    o.form = (duet::chat_form)(data[0] % 19);
    o.thinking = (duet::chat_thinking)(data[1] % 9);
    o.split_thinking = !(data[2] & 1);
    o.thinking_is_open = data[2] & 2;
    o.parse_calls = !(data[2] & 4);
    o.any_tool = data[2] & 8;
    duet::value schema;
    duet::error_text err;
    static const char kSchema[] = R"({"properties": {"s": {"type": "string"}, "n": {"type": "integer"}, "a": {}}})";
    if (duet::parse_json(kSchema, &schema, err) != DUET_OK) __builtin_trap();
    o.tools = {{"f", schema}};
    const std::string_view input((const char*)data + 3, n_bytes - 3);
    const seen whole = read_pieces(o, input, 0);
    if (whole.raw != input) __builtin_trap();
    for (const uint32_t seed : {1u, 64u + data[2], (uint32_t)n_bytes})
        if (const seen s = read_pieces(o, input, seed); s.raw != input || s.trace != whole.trace) __builtin_trap();
    return 0;
}
