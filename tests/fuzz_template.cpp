// tests/fuzz_template.cpp: the libFuzzer entry of JSON and chat templates (make config=fuzz fuzz). The input is one
// line of JSON, which holds the variables, and then a template. Seeds: any chat template.
#include "../models/template.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t n_bytes) {
    const std::string_view input((const char*)data, n_bytes);
    const size_t line_end = std::min(input.find('\n'), n_bytes);
    duet::error_text err;
    duet::value variables;
    if (duet::parse_json(input.substr(0, line_end), &variables, err) != DUET_OK)
        duet::parse_json(R"({"messages": [{"role": "user", "content": "a<b>"}], "n": 3})", &variables, err);
    duet::template_limits limits;
    limits.max_steps = 200'000;
    limits.max_memory_bytes = 8u << 20;
    limits.max_output_bytes = 1u << 20;
    duet::chat_template chat;
    duet::rendered_template out;
    if (duet::chat_template::compile(input.substr(line_end), &chat, err, limits) != DUET_OK) return 0;
    if (chat.render(variables, {}, &out, err) != DUET_OK) return err.text.empty() ? __builtin_trap(), 0 : 0;
    for (size_t i = 1; i < out.text.flips.size(); i++)
        if (out.text.flips[i] <= out.text.flips[i - 1] || out.text.flips[i] >= out.text.size()) __builtin_trap();
    return 0;
}
