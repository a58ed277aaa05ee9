// tools/serve/chat.h: from messages to jobs, for all routes that take a conversation.
// Main path: chat.cpp, messages.cpp -> [chat.h] -> engine.h
#pragma once
#include "server.h"

namespace serve {

// What a conversation asks for beside the common fields, in OpenAI's shapes.
struct chat_fields {
    json messages = json::array();
    json tools;                          // null: none
    std::string tool_choice, tool_name;  // "auto", "none", "required", or "name" and it
    json variables = json::object();     // of the template
    int32_t thinking = -1;
    bool parallel = true, keeps_markers = false;
};

struct rendered_chat {
    chat_ptr chat;
    std::string text;
    std::vector<int32_t> ids, borders;  // borders: lengths that other prompts are likely to share
    bool opens_thinking = false;
};

// The messages, at least one.
std::vector<fields> need_messages(const fields& f, size_t n_most = SIZE_MAX);
// Reads messages, tools, tool_choice and what belongs to them.
chat_fields read_chat(const fields& f);
// The text of a content: a string, or a list of parts of text.
std::string text_of_parts(const json& content, const std::string& path);
// The conversation as the fields of /v1/chat/completions: those of `names` as they are, so that one place reads them.
json copy_fields(const fields& f, std::initializer_list<const char*> names);
// A call as a message of /v1/chat/completions has it.
json call_json(std::string_view id, std::string_view name, std::string_view arguments);
// The arguments of a call as a value. A call that a limit cut off has no whole arguments; they stay readable.
json call_input(const std::string& arguments);
// Renders the messages. Throws what the client is told.
rendered_chat render_chat(const server& s, const chat_fields& chat);
// Answers a conversation that is given in the fields of /v1/chat/completions.
void submit_chat(const reply_ptr& answer, const fields& f);
// Tries the template at the start: sets has_chat and has_tools, or chat_error.
duet_status try_template(server* s, tool_error* error);

}  // namespace serve
