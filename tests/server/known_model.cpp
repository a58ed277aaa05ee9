// tests/server/known_model.cpp: writes the model that the server's tests ask. Its answers are known to the letter: a
// prompt that ends with <|goN|> is answered by script N, one that ends with <think> by the thinking script.
// usage: known_model FILE
#include "../known_model.h"

#include <fstream>

namespace {

// The variable "script" chooses the answer; enable_thinking the thinking one. The forms of calls and of thinking are
// those that the template shows.
constexpr const char* kTemplate =
    "{%- if tools %}<|im_start|>tools\n{{ tools | tojson }} <tool_call><|im_end|>\n{% endif -%}"
    "{%- for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{%- for c in m.tool_calls or [] %}<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}<|im_end|>\n"
    "{% endfor -%}"
    "{%- if add_generation_prompt %}<|im_start|>assistant\n{% if enable_thinking %}<think>"
    "{% elif script == 1 %}<|go1|>{% elif script == 2 %}<|go2|>{% elif script == 3 %}<|go3|>"
    "{% elif script == 4 %}<|go4|>{% elif script == 5 %}<|go5|>{% elif script == 7 %}<|go7|>"
    "{% elif script == 8 %}<|go8|>{% elif script == 9 %}<|go9|>"
    "{% elif script == 10 %}<|go10|>{% else %}<|go0|>{% endif %}{% endif -%}{# </think> #}";

}  // namespace

int main(int argc, char** argv) {
    if (argc != 2) return std::fprintf(stderr, "usage: known_model FILE\n"), 2;
    known_model known;
    known.chat_template = kTemplate;
    known.scripts = {
        {"", {"Hel", "lo", " wor", "ld", "!"}},
        {"", {"abc", "ST", "OP", "def"}},
        {"", {"a", "<0xE2>", "<0x82>", "<0xAC>", "b"}},
        {"",
         {"<tool_call>\n", "{\"name\": \"look\", ", "\"arguments\": ", "{\"at\":", " \"here\"}", "}\n</tool_call>"}},
        {"", {"x"}, false},
        {"", {"{\"age\"", ": ", "4", "2", "}"}},
        {"<think>", {"hm,", " well", "</think>", "fine"}},
        // what would harm a page that took it as markup
        {"",
         {"<img src=x onerror=window.harm=1>\n\n", "<script>window.harm=2</script>\n\n",
          "[one](javascript:window.harm=3) ", "[two](data:text/html,<script>window.harm=4</script>) ",
          "![three](http://elsewhere.example/pixel.png) ", "[four](https://elsewhere.example/?a=1&b=2) ",
          "[five](JaVaScRiPt:window.harm=5) ", "<javascript:window.harm=6> ", "<svg/onload=window.harm=7>\n\n",
          "<style>*{display:none}</style>\n\n", "<a href=\"javascript:window.harm=8\">six</a>\n\n",
          "**<iframe src=http://elsewhere.example></iframe>**\n\n", "| <img src=x onerror=window.harm=9> | b |\n",
          "|---|---|\n", "| `<b>` | [x](vbscript:1) |\n\n", "```html\"><img src=x onerror=window.harm=10>\n",
          "</code></pre><script>window.harm=11</script>\n", "```\n\n", "last words"}},
        // the forms of text that the page shows
        {"",
         {"## A heading\n\n",
          "Some **bold** and *slanted* words, `code`, and a ",
          "[link](https://example.org/). ",
          "2 * 3 * 4, snake_case_name, a \\* b.\n\n",
          "1. first\n",
          "2. second\n",
          "   - inner\n",
          "   - other\n\n",
          "```python\n",
          "def twice(x):\n",
          "    return 2 * x  # <b>not bold</b>\n",
          "```\n",
          "\n| name | value |\n",
          "|:---|---:|\n",
          "| one | 1 |\n",
          "| two | 22 |\n\n",
          "> A quote\n",
          "> of two lines\n\n",
          "- [x] done\n",
          "- [ ] open\n\n",
          "The end."}},
        {"", {}},  // an answer without text
        // two calls
        {"",
         {"<tool_call>\n{", "\"name\": \"look\", ", "\"arguments\": {\"at\":", " \"there\"}}", "\n</tool_call>\n",
          "<tool_call>\n{\"name\": ", "\"look\", \"arguments\":", " {\"at\": \"ab\"}}", "\n</tool_call>"}},
    };
    const std::string bytes = known.make();
    std::ofstream file(argv[1], std::ios::binary);
    file.write(bytes.data(), (std::streamsize)bytes.size());
    return bytes.empty() || !file.flush() ? 1 : 0;
}
