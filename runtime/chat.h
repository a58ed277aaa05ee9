// runtime/chat.h: what stands behind the handles of chats, parsers of answers and turns, and behind their functions.
// Owns: the members of each handle. Must not know: the syntax of templates and of calls (models/chat*.h).
// Main path: runtime.cpp -> [runtime/chat.h] -> runtime/chat.cpp, chat_answer.cpp, chat_turn.cpp -> models/chat.h
#pragma once
#include "handles.h"
#include "../models/chat.h"
#include "../models/chat_parser.h"

// A conversation. The format is shared by all chats of a model that use the file's own template.
struct duet_chat {
    const duet_model* model = nullptr;
    duet::error_text err;
    std::shared_ptr<const duet::chat_format> format;  // null: the chat was not made
    duet::chat_request request;                       // all but the messages
    std::vector<duet::value> messages;
    std::vector<duet::chat_tool> tools;
    duet::chat_form form = duet::chat_form::none;
    duet::chat_thinking thinking = duet::chat_thinking::none;
    bool keeps_markers = false, has_own_time = false;
    duet::chat_prompt prompt;  // the last one that was rendered
    std::string shown;         // the last message that was shown
};

namespace duet {

// A finished or growing call of an answer.
struct answer_call {
    std::string id, name, arguments, raw;
    bool is_complete = false;
};

struct answer_event {
    int32_t kind, i_call, is_complete;
    std::string text, call_id;
};

}  // namespace duet

// An answer that is being read.
struct duet_chat_parser {
    const duet_model* model = nullptr;
    duet::error_text err;
    duet::chat_parser parser;
    duet::text_gate text, thinking, arguments;  // of the three kinds of text, which may end inside a character
    std::vector<duet::answer_event> events;
    size_t n_taken = 0;  // of events
    std::string content, reasoning, shown;
    std::vector<duet::answer_call> calls;
    size_t n_earlier_calls = 0;  // in the conversation before the answer
    int32_t n_tok = 0, n_thinking_tok = 0;
    bool is_thinking = false, has_stopped = false, has_ended = false;
};

struct duet_chat_turn {
    duet_chat& chat;
    duet_session& session;
    duet::error_text& err;  // the chat's
    duet_chat_parser parser;
    std::unique_ptr<duet_generation> generation;
    duet_status status = DUET_OK;  // of the generation
    int32_t n_prompt_tok = 0, n_reused_tok = 0, stop_reason = DUET_STOP_NONE;
    bool continues_last = false, is_kept = false, is_over = false;

    duet_chat_turn(duet_chat& c, duet_session& s) : chat(c), session(s), err(c.err) {}
};

namespace duet {

// ---- chat.cpp

duet_status create_chat(duet_chat& c, const duet_model* model, const duet_chat_params* params);
duet_status check_chat(const duet_chat& c, const char* call, error_text& err);
duet_status add_message(duet_chat& c, const char* role, const char* text, size_t n_bytes);
duet_status insert_messages(duet_chat& c, int32_t i, const char* json, size_t n_bytes);
duet_status remove_messages(duet_chat& c, int32_t i, int32_t n);
std::string_view show_message(duet_chat& c, int32_t i);
std::string_view template_of(const duet_chat& c);
duet_status render_chat(const duet_chat& c, int32_t flags, chat_prompt* out, error_text& err);
duet_status show_prompt(duet_chat& c, int32_t flags, duet_chat_prompt* out);
duet_status render_template(std::string_view source, std::string_view variables, const char* now, char* out,
                            size_t max_bytes, size_t* n_bytes, error_text& err);
value without_broken_utf8(std::string_view text);
// A list of messages, checked. what: where they come from, for messages of errors.
duet_status read_messages(const value& given, const char* what, std::vector<value>* out, error_text& err);

// ---- chat_answer.cpp

duet_status create_parser(duet_chat_parser& p, const duet_chat& chat, bool opens_thinking, const char* const* stop,
                          int32_t n_stop);
duet_status add_token(duet_chat_parser& p, int32_t id);
duet_status finish_answer(duet_chat_parser& p);
bool take_event(duet_chat_parser& p, duet_chat_event* out);
value message_of_answer(const duet_chat_parser& p);
std::string_view show_answer(duet_chat_parser& p);
duet_status create_chat_grammar(const duet_chat& c, const duet_chat_grammar_params* params, duet_grammar& out);

// ---- chat_turn.cpp

duet_status begin_turn(duet_chat& c, duet_session* session, duet_sampler* sampler, const duet_chat_turn_params* params,
                       duet_chat_turn** out);
duet_status next_of_turn(duet_chat_turn& t, duet_chat_event* event);
void keep_answer(duet_chat_turn& t);
duet_status save_chat(duet_chat& c, duet_session* s, int32_t seq, void* out, uint64_t max_bytes, uint64_t* n_bytes);
duet_status load_chat(duet_chat& c, duet_session* session, int32_t seq, const void* data, uint64_t n_bytes);

}  // namespace duet
