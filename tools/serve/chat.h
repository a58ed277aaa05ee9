// tools/serve/chat.h: from messages to jobs, for all routes that take a conversation.
// Main path: chat.cpp, messages.cpp -> [chat.h] -> engine.h
#pragma once
#include "server.h"

namespace serve {

// What a conversation asks for beside the common fields, in OpenAI's shapes.
struct chat_fields {
    json messages = json::array();
    json tools;               // null: none
    std::string tool_choice;  // "auto", "none", "required", or with a name below
    std::string tool_name;
    json variables = json::object();  // of the template
    int32_t thinking = -1;
    bool parallel = true, keeps_markers = false, continues_last = false;
};

struct rendered_chat {
    std::vector<job_ptr> jobs;
    std::string text;
    std::vector<int32_t> ids;
};

// Reads messages, tools, tool_choice and what belongs to them.
chat_fields read_chat(const fields& f);
// Renders the messages and makes common.n jobs; with only_renders none. Throws what the client is told.
rendered_chat render_chat(server& s, const chat_fields& chat, const common_fields& common, bool only_renders = false);
// Tries the template at the start: sets has_chat or chat_error.
duet_status try_template(server* s, tool_error* error);

}  // namespace serve
