// models/chat.h: turns the messages of a conversation into the text of a chat model's template, and into ids.
// Owns: which template of a file is used, what templates expect of messages, which bytes may become control tokens.
// Must not know: sessions, sampling, how an answer is read (models/chat_parser.h).
// Main path: runtime/chat.cpp -> [models/chat.h] -> models/template.h, models/tokenizer.h
#pragma once
#include "template.h"
#include "tokenizer.h"

namespace duet {

// The input of one rendering. Messages are maps as OpenAI's clients send them: role, content (text, null, or a list of
// text parts), tool_calls, tool_call_id, name, reasoning_content, and whatever else a template looks for.
struct chat_request {
    value messages;               // a list of maps
    value tools, documents;       // lists, or null where there are none
    value variables;              // a map of more variables of the template, or null
    int32_t thinking = -1;        // 1 on, 0 off, -1 the template's default
    bool asks_answer = true;      // ends with the beginning of the assistant's answer
    bool continues_last = false;  // ends inside the last message, which is unfinished
    template_time now;
};

struct chat_prompt {
    std::string text;
    std::vector<int32_t> ids;
    // For each message, the byte and the number of ids where it begins; -1 if the template leaves the message out or
    // writes it elsewhere. A message that was folded into another one begins where that one does.
    std::vector<int64_t> first_byte, first_id;
};

// The template of a model file, ready to render. After open() it is read-only, and any thread may make const calls.
class chat_format {
  public:
    // text: a template of the caller's; empty: the file's own.
    // name: one of several named templates of the file ("default", "tool_use", ...), or a built-in one
    // (models/chat_templates.def), which is used only if named. Empty: "tool_use" for requests with tools if the file
    // has it, else the default.
    // DUET_ERR_STATE: the file has no template. DUET_ERR_ARG: no template has that name (the message lists them).
    // DUET_ERR_FORMAT, DUET_ERR_UNSUPPORTED: the template itself is at fault; the message has its line.
    duet_status open(const gguf_file& file, const tokenizer& vocab, std::string_view text, std::string_view name,
                     error_text& err);

    // Returns the template for a request with or without tools.
    std::string_view source(bool has_tools) const { return choose(has_tools).source; }

    // DUET_ERR_ARG: the messages are not a list of maps, or the template refuses them (the message quotes it).
    duet_status render(const chat_request& request, const tokenizer& vocab, chat_prompt* out, error_text& err) const;

  private:
    // A template, and how it treats probes, which open() renders.
    struct probed_template {
        std::string source;
        chat_template compiled;
        bool wants_parts = false;            // content only as a list of parts
        bool has_system = true;              // else a system message is folded into the next user message
        bool has_later_system = true;        // else one that is not the first is folded, too
        bool has_developer = true;           // else a developer message becomes a system message
        bool wants_text_arguments = false;   // arguments of a call as JSON text
        bool wants_one_call = false;         // a call as the message's function_call (YandexGPT)
        bool wants_null = false;             // calls are shown only where the message's content is null (DeepSeek R1)
        const char* thinking_key = nullptr;  // where it looks for reasoning_content, if not there
    };
    const probed_template& choose(bool has_tools) const {
        return has_tools && !for_tools_.source.empty() ? for_tools_ : plain_;
    }
    duet_status compile(probed_template* out, error_text& err);
    value variables_of(const chat_request& request) const;
    value adapt_messages(const value& messages, const probed_template& t, std::vector<size_t>* origin) const;

    std::string bos_, eos_;
    probed_template plain_, for_tools_;  // for_tools_ is empty where one template serves all requests
};

// The names of the built-in templates, separated by ", ".
std::string builtin_chat_templates();

}  // namespace duet
