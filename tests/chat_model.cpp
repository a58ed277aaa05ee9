// tests/chat_model.cpp: writes a small model file with a chat template, whose answers are known: chat_model OUT.gguf.
// The first word of the last message chooses the answer (see kAnswers). tests/test_cli_chat.py talks to it.
#include "known_model.h"

#include <cstring>

namespace {

// The template chooses by these words. The answer to the result of a call is that of "result".
const struct {
    const char* word;
    std::vector<std::string> pieces;
    bool ends;
} kAnswers[] = {
    {"hello", {"Hello", " world", "."}, true},
    {"long", {"All work", " and no play"}, false},
    {"think", {"<think>", "I wonder", ".\n", "</think>", "Forty", "-two"}, true},
    {"call",
     {"Let me see.", "<tool_call>\n", "{\"name\": \"weather\", \"arguments\": ", "{\"city\": \"Paris\"}",
      "}\n</tool_call>"},
     true},
    {"escape",
     {"red\x1b[31m", "beep\x07",
      "c1\xc2\x9b"
      "2J",
      "\ttab\r", "\nend"},
     true},
    {"wide", {"\xe6\xbc\xa2", "\xe5\xad\x97 \xf0\x9f\x98\x80", " caf\xc3\xa9"}, true},
    {"result", {"It", " is", " sunny", "!"}, true},
};

constexpr const char* kTemplate =
    "{%- if tools %}{{ 'Tools: ' + tools | tojson + ' Write <tool_call>{\"name\": ..., \"arguments\": "
    "...}</tool_call>' }}"
    "{%- endif %}"
    "{%- for m in messages %}{{ '<|im_start|>' + m.role + ' ' + (m.content or '') }}"
    "{%- for c in m.tool_calls or [] %}{{ '<tool_call>' + c.function.name + '</tool_call>' }}{% endfor %}"
    "{%- if not loop.last or m.role != 'assistant' or add_generation_prompt %}{{ '<|im_end|>' }}{% endif %}"
    "{%- endfor %}"
    "{%- if enable_thinking is defined and not enable_thinking %}{{ '<think></think>' }}{% endif %}"
    "{%- if add_generation_prompt %}{% set last = messages | last %}"
    "{{ '<|im_start|>assistant ' + starts.get('result' if last.role == 'tool' else last.content.split(' ')[0], "
    "'<|go0|>') }}"
    "{%- endif %}";

}  // namespace

int main(int argc, char** argv) {
    if (argc != 2) return std::fprintf(stderr, "usage: %s OUT.gguf\n", argv[0]), 2;
    known_model model;
    std::string starts;
    for (const auto& answer : kAnswers) {
        starts += std::string(starts.empty() ? "" : ", ") + "'" + answer.word + "': '<|go" +
                  std::to_string(model.scripts.size()) + "|>'";
        model.scripts.push_back({"", answer.pieces, answer.ends});
    }
    model.chat_template = "{% set starts = {" + starts + "} %}" + kTemplate;
    model.n_ctx = 1 << 20;
    const std::string bytes = model.make();
    FILE* file = bytes.empty() ? nullptr : std::fopen(argv[1], "wb");
    if (!file) return std::perror(argv[1]), 1;
    const bool is_good = std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size();
    return std::fclose(file) == 0 && is_good ? 0 : 1;
}
