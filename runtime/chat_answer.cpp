// runtime/chat_answer.cpp: reads an answer token by token, and makes the grammar that an answer is kept to.
// Owns: the queue of events, the answer as a message. Must not know: how calls are written (models/chat_parser.h,
// models/chat_grammar.h), how tokens are chosen.
// Main path: runtime/chat_turn.cpp -> [runtime/chat_answer.cpp] -> models/chat_parser.h
#include "calls.h"
#include "chat.h"
#include "../models/chat_grammar.h"

namespace duet {
namespace {

void push(duet_chat_parser& p, int32_t kind, std::string text, int32_t i_call = -1) {
    if (!text.empty()) p.events.push_back({kind, i_call, 0, std::move(text), {}});
}

// Tells a piece of the text or of the thinking.
void show(duet_chat_parser& p, bool is_thinking, std::string piece) {
    (is_thinking ? p.reasoning : p.content) += piece;
    push(p, is_thinking ? DUET_CHAT_THINKING : DUET_CHAT_TEXT, std::move(piece));
}

// Text of one kind ends where another kind begins, so what a gate held back comes out.
void end_text(duet_chat_parser& p) { show(p, false, p.text.finish(true)); }
void end_thinking(duet_chat_parser& p) { show(p, true, p.thinking.finish(true)); }

void add_arguments(duet_chat_parser& p, std::string piece) {
    p.calls.back().arguments += piece;
    push(p, DUET_CHAT_CALL_PIECE, std::move(piece), (int32_t)p.calls.size() - 1);
}

void begin_call(duet_chat_parser& p, const chat_event& e) {
    end_text(p);
    end_thinking(p);
    char id[16];  // nine letters and digits: some templates insist on that
    snprintf(id, sizeof id, "call%05zu", (p.n_earlier_calls + p.calls.size()) % 100000);
    const std::string name(e.bytes), call_id(without_broken_utf8(e.id.empty() ? id : e.id).as_string());
    p.calls.push_back({call_id, name, {}, std::string(e.raw), false});
    p.events.push_back({DUET_CHAT_CALL_BEGIN, (int32_t)p.calls.size() - 1, 0, name, call_id});
}

// A call that broke off, and whose arguments are no JSON, cannot go back into a template: in the message it is text.
void end_call(duet_chat_parser& p, bool is_complete) {
    add_arguments(p, p.arguments.finish(true));
    answer_call& call = p.calls.back();
    call.is_complete = is_complete;
    if (!is_complete) {
        value ignored;
        error_text why;
        call.is_complete = parse_json(call.arguments, &ignored, why) == DUET_OK && ignored.is_map();
        if (!call.is_complete) p.content += without_broken_utf8(call.raw).as_string();
    }
    p.events.push_back({DUET_CHAT_CALL_END, (int32_t)p.calls.size() - 1, is_complete, {}, {}});
}

void on_event(void* user, const chat_event& e) {
    duet_chat_parser& p = *(duet_chat_parser*)user;
    if (p.has_stopped) return;
    if (e.kind == chat_event_kind::call_arguments || e.kind == chat_event_kind::call_end) p.calls.back().raw += e.raw;
    switch (e.kind) {
    case chat_event_kind::text:
        end_thinking(p);
        show(p, false, p.text.add(e.bytes));
        p.has_stopped = p.text.stopped();
        break;
    case chat_event_kind::thinking:
        end_text(p);
        show(p, true, p.thinking.add(e.bytes));
        break;
    case chat_event_kind::call_begin: begin_call(p, e); break;
    case chat_event_kind::call_arguments: add_arguments(p, p.arguments.add(e.bytes)); break;
    case chat_event_kind::call_end: end_call(p, e.is_complete); break;
    case chat_event_kind::markup: break;
    }
}

// The number behind the highest id of the form call00001 in the messages.
size_t next_call_number(const std::vector<value>& messages) {
    size_t next = 0;
    for (const value& m : messages) {
        const value calls = member_of(m, "tool_calls");
        if (!calls.is_list()) continue;
        for (const value& call : calls.items()) {
            const value id = member_of(call, "id");
            size_t number = 0;
            if (id.is_string() && sscanf(std::string(id.as_string()).c_str(), "call%5zu", &number) == 1)
                next = std::max(next, number + 1);
        }
    }
    return next;
}

// Events that were taken are dropped, so that the queue does not grow.
void drop_taken(duet_chat_parser& p) noexcept {
    if (p.n_taken < p.events.size()) return;
    p.events.clear();
    p.n_taken = 0;
}

}  // namespace

duet_status create_parser(duet_chat_parser& p, const duet_chat& chat, bool opens_thinking, const char* const* stop,
                          int32_t n_stop) {
    DUET_TRY(check_chat(chat, "duet_chat_parser_create", p.err));
    DUET_TRY(p.text.set_stops("stop", stop, n_stop, p.err));
    p.model = chat.model;
    p.n_earlier_calls = next_call_number(chat.messages);
    chat_parser_options options;
    options.form = chat.form;
    options.thinking = chat.thinking;
    options.split_thinking = !chat.keeps_markers;
    options.thinking_is_open = opens_thinking;
    options.parse_calls = !chat.tools.empty();
    options.tools = chat.tools;
    p.parser.start(std::move(options), {&p, on_event});
    p.is_thinking = opens_thinking && !chat.keeps_markers;
    return DUET_OK;
}

duet_status add_token(duet_chat_parser& p, int32_t id) {
    constexpr const char* kCall = "duet_chat_parser_add";
    if (!p.model || p.has_ended || p.has_stopped) return fail(p.err, DUET_ERR_STATE, "%s: the answer has ended", kCall);
    const tokenizer& vocab = p.model->vocab;
    if (id < 0 || id >= vocab.n_vocab())
        return fail(p.err, DUET_ERR_ARG, "%s: want an id in 0..%d, got %d", kCall, vocab.n_vocab() - 1, id);
    drop_taken(p);
    p.has_ended = true;  // if memory runs out inside
    const bool was_thinking = p.parser.is_thinking(), is_control = vocab.is_control(id);
    p.parser.feed(is_control ? vocab.spelling(id) : vocab.piece(id), is_control);
    p.has_ended = false;
    p.n_tok++;
    p.n_thinking_tok += was_thinking || p.parser.is_thinking();
    return DUET_OK;
}

duet_status finish_answer(duet_chat_parser& p) {
    if (!p.model || p.has_ended) return fail(p.err, DUET_ERR_STATE, "duet_chat_parser_finish: the answer has ended");
    drop_taken(p);
    p.has_ended = true;
    if (!p.has_stopped) p.parser.finish();
    if (p.has_stopped) return DUET_OK;
    end_thinking(p);
    end_text(p);
    p.has_stopped = p.text.stopped();
    return DUET_OK;
}

bool take_event(duet_chat_parser& p, duet_chat_event* out) {
    duet_chat_event e{};
    e.i_call = e.i_stop = -1;
    e.stop_reason = DUET_STOP_NONE;
    e.n_done_tok = p.n_tok;
    e.n_thinking_tok = p.n_thinking_tok;
    const bool has_event = p.n_taken < p.events.size();
    if (has_event) {
        const answer_event& taken = p.events[p.n_taken++];
        e.kind = taken.kind;
        e.i_call = taken.i_call;
        e.is_complete = taken.is_complete;
        e.text = {taken.text.data(), taken.text.size()};
        e.call_id = {taken.call_id.data(), taken.call_id.size()};
    } else if (p.has_stopped) {
        e.kind = DUET_CHAT_END;
        e.stop_reason = DUET_STOP_STRING;
        e.i_stop = p.text.i_stop();
    }
    write_struct(e, out);
    return has_event;
}

value message_of_answer(const duet_chat_parser& p) {
    const auto text = [](const std::string& s) { return value::of_string(s); };
    std::vector<value_member> message = {{"role", value::of_trusted("assistant")}, {"content", text(p.content)}};
    if (!p.reasoning.empty()) message.emplace_back("reasoning_content", text(p.reasoning));
    std::vector<value> calls;
    for (const answer_call& call : p.calls) {
        if (!call.is_complete) continue;
        const value function = value::of_map({{"name", text(call.name)}, {"arguments", text(call.arguments)}});
        calls.push_back(
            value::of_map({{"id", text(call.id)}, {"type", value::of_trusted("function")}, {"function", function}}));
    }
    if (!calls.empty()) message.emplace_back("tool_calls", value::of_list(std::move(calls)));
    return value::of_map(std::move(message));
}

std::string_view show_answer(duet_chat_parser& p) {
    traced_text json;
    if (write_json(message_of_answer(p), {}, &json, p.err) != DUET_OK) return {};
    p.shown = std::move(json.bytes);
    return p.shown;
}

// ---- the grammar of an answer ---------------------------------------------------------------------------------------

namespace {

using expr = grammar_builder::expr;

struct answer_parts {
    expr thinking, calls, body;
    bool has_calls = false, has_body = false;
    std::vector<std::string> triggers;
};

// What may stand before the text or the calls. A model whose messages have headers thinks in messages of its own.
expr thinking_part(const duet_chat& c, bool is_open, grammar_builder& b) {
    const expr blanks = b.repeat(b.one_char({{' ', ' '}, {'\n', '\n'}}), 0, kMaxChatBlanks);
    if (c.form == chat_form::harmony) {
        const expr one = b.sequence(
            {b.spelled("<|channel|>analysis<|message|>"), b.until({"<|end|>"}), b.spelled("<|start|>assistant")});
        return b.repeat(one, 0);
    }
    const thinking_markers& markers = thinking_markers_of(c.thinking);
    if (markers.open.empty() || (!is_open && c.request.thinking == 0)) return b.empty();
    const expr rest = b.sequence({b.until({std::string(markers.close)}), blanks});
    return is_open ? rest : b.optional(b.sequence({blanks, b.spelled(markers.open), rest}));
}

duet_status body_part(const duet_chat& c, const duet_chat_grammar_params& p, grammar_builder& b, answer_parts* parts,
                      error_text& err) {
    if (p.gbnf && p.json_schema)
        return fail(err, DUET_ERR_ARG, "duet_chat_grammar: want gbnf or json_schema, got both");
    parts->has_body = p.gbnf || p.json_schema;
    auto rules = defaults_of<duet_grammar_params>();
    rules.gbnf = p.gbnf;
    rules.json_schema = p.json_schema;
    if (parts->has_body) DUET_TRY(add_body(rules, b, &parts->body, err));
    const bool is_solar = c.form == chat_form::solar;
    if (parts->has_body && (is_solar || c.form == chat_form::harmony))
        parts->body = b.sequence({b.spelled(is_solar ? "<|content|>" : "<|channel|>final<|message|>"), parts->body});
    return DUET_OK;
}

duet_status call_part(const duet_chat& c, std::string_view choice, bool parallel, grammar_builder& b,
                      answer_parts* parts, error_text& err) {
    std::vector<chat_tool> tools;
    const bool is_named = choice != "auto" && choice != "required" && choice != "none";
    for (const chat_tool& tool : c.tools)
        if (!is_named || tool.name == choice) tools.push_back(tool);
    if (tools.empty() && (is_named || choice == "required"))
        return fail(err, DUET_ERR_ARG, "tool_choice: %s '%s'", is_named ? "there is no tool" : "there are no tools for",
                    printable(choice).c_str());
    if (tools.empty() || (choice == "none" && parts->has_body)) return DUET_OK;
    parts->has_calls = true;
    return add_calls(c.form, template_of(c), tools, parallel && !is_named, b, &parts->calls, &parts->triggers, err);
}

}  // namespace

duet_status create_chat_grammar(const duet_chat& c, const duet_chat_grammar_params* params, duet_grammar& out) {
    error_text& err = out.err;
    auto p = defaults_of<duet_chat_grammar_params>();
    DUET_TRY(check_chat(c, "duet_chat_grammar", err));
    DUET_TRY(read_struct("duet_chat_grammar_params", params, &p, err));
    if (p.opens_thinking < 0) {
        chat_prompt prompt;
        DUET_TRY(render_chat(c, 0, &prompt, err));
        p.opens_thinking = prompt_opens_thinking(prompt.text, c.thinking);
    }
    const std::string_view choice = p.tool_choice ? p.tool_choice : "auto";
    grammar_builder b;
    answer_parts parts{};
    DUET_TRY(body_part(c, p, b, &parts, err));
    DUET_TRY(call_part(c, choice, p.parallel != 0, b, &parts, err));
    if (!parts.has_body && !parts.has_calls)
        return fail(err, DUET_ERR_ARG, "duet_chat_grammar: want tools, gbnf or json_schema: else nothing is kept to");
    const bool may_call = choice == "auto" && parts.has_calls;
    expr answer = parts.calls;  // required, or one that was named
    if (choice == "none" || choice == "auto") {
        const expr text = parts.has_body ? parts.body : b.without(parts.triggers);
        if (!may_call) answer = text;
        else if (parts.has_body) answer = b.any_of({text, parts.calls});
        else answer = b.sequence({text, b.optional(parts.calls)});
    }
    return make_grammar(*c.model, b, b.sequence({thinking_part(c, p.opens_thinking != 0, b), answer}), &out, err);
}

}  // namespace duet
