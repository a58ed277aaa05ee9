// runtime/chat.cpp: conversations: their messages, checked, and the prompts that the model's template makes of them.
// Owns: what a message must be. Must not know: how an answer is read or generated.
// Main path: runtime.cpp -> [runtime/chat.cpp] -> models/chat.h
#include "chat.h"
#include "../models/os.h"
#include "../models/unicode.h"

#include <algorithm>
#include <chrono>

namespace duet {

namespace {

// Parses "2026-01-02T03:04:05".
bool parse_time(std::string_view text, template_time* out) {
    constexpr std::string_view kForm = "0000-00-00T00:00:00";
    if (text.size() != kForm.size()) return false;
    int numbers[6] = {}, i_number = 0;
    for (size_t i = 0; i < kForm.size(); i++) {
        if (kForm[i] == '0' ? !is_digit(text[i]) : text[i] != kForm[i]) return false;
        if (kForm[i] == '0') numbers[i_number] = numbers[i_number] * 10 + (text[i] - '0');
        else i_number++;
    }
    *out = {numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], numbers[5]};
    const bool is_day = (std::chrono::year(out->year) / out->month / out->day).ok();
    return out->year >= 1 && is_day && out->hour < 24 && out->minute < 60 && out->second < 60;
}

template_time local_time() {
    const std::tm t = os_local_time();
    return {t.tm_year + 1900, t.tm_mon + 1, t.tm_mday, t.tm_hour, t.tm_min, t.tm_sec};
}

duet_status choose_time(const char* now, template_time* out, error_text& err) {
    if (!now) *out = local_time();
    if (!now || parse_time(now, out)) return DUET_OK;
    return fail(err, DUET_ERR_ARG, "now: want a time as 2026-01-02T03:04:05, got '%s'", printable(now).c_str());
}

duet_status parse_field(const char* name, const char* json, value_kind kind, value* out, error_text& err) {
    if (!json) return DUET_OK;
    if (const duet_status st = parse_json(json, out, err); st != DUET_OK)
        return fail(err, st, "%s: %s", name, std::string(err.text).c_str());
    if (out->is(kind) || out->is_null()) return DUET_OK;
    return fail(err, DUET_ERR_ARG, "%s: want %s", name, kind == value_kind::list ? "a list" : "an object");
}

// Reads the tools: {"type": "function", "function": {...}}, or the function alone, which is wrapped for the template.
duet_status read_tools(duet_chat& c) {
    if (!c.request.tools.is_list()) return DUET_OK;
    std::vector<value> wrapped;
    for (const value& tool : c.request.tools.items()) {
        const value inner = member_of(tool, "function"), &function = inner.is_map() ? inner : tool;
        const value name = member_of(function, "name");
        const std::string_view text = name.is_string() ? name.as_string() : "";
        if (text.empty() || text.size() > kMaxChatName || !std::all_of(text.begin(), text.end(), is_name_byte))
            return fail(c.err, DUET_ERR_ARG, "tools: tool %zu: want a name of 1 to %zu letters, digits and _-./:$@",
                        wrapped.size(), kMaxChatName);
        bool is_taken = text == "auto" || text == "none" || text == "required";  // which tool_choice means otherwise
        for (const chat_tool& earlier : c.tools) is_taken |= earlier.name == text;
        if (is_taken)
            return fail(c.err, DUET_ERR_ARG, "tools: tool %zu: the name '%s' is taken", wrapped.size(),
                        printable(text).c_str());
        const bool is_strict = compare_keys(member_of(function, "strict"), value::of_bool(true)) == 0;
        c.tools.push_back({std::string(name.as_string()), member_of(function, "parameters"), is_strict});
        wrapped.push_back(
            inner.is_map() ? tool : value::of_map({{"type", value::of_trusted("function")}, {"function", tool}}));
    }
    c.request.tools = wrapped.empty() ? value() : value::of_list(std::move(wrapped));
    return DUET_OK;
}

// The file's own template is compiled by the first chat that uses it.
duet_status open_format(duet_chat& c, const duet_chat_params& p) {
    const duet_model& m = *c.model;
    const auto open = [&](const char* text, const char* name, std::shared_ptr<const chat_format>* out) -> duet_status {
        auto format = std::make_shared<chat_format>();
        DUET_TRY(format->open(m.source.file, m.vocab, text ? text : "", name ? name : "", c.err));
        *out = std::move(format);
        return DUET_OK;
    };
    if (p.chat_template || p.template_name) return open(p.chat_template, p.template_name, &c.format);
    const std::lock_guard lock(m.texts->mutex);
    if (!m.texts->format) DUET_TRY(open(nullptr, nullptr, &m.texts->format));
    c.format = m.texts->format;
    return DUET_OK;
}

duet_status open_chat(duet_chat& c, const duet_chat_params* params) {
    auto p = defaults_of<duet_chat_params>();
    DUET_TRY(read_struct("duet_chat_params", params, &p, c.err));
    if (!c.model->has_vocab)
        return fail(c.err, DUET_ERR_UNSUPPORTED, "duet_chat_create: no vocabulary was read from the model");
    if (p.thinking < -1 || p.thinking > 1)
        return fail(c.err, DUET_ERR_ARG, "duet_chat_params.thinking: want -1, 0 or 1, got %d", p.thinking);
    DUET_TRY(parse_field("tools", p.tools, value_kind::list, &c.request.tools, c.err));
    DUET_TRY(parse_field("documents", p.documents, value_kind::list, &c.request.documents, c.err));
    DUET_TRY(parse_field("variables", p.variables, value_kind::map, &c.request.variables, c.err));
    DUET_TRY(choose_time(p.now, &c.request.now, c.err));
    DUET_TRY(read_tools(c));
    c.has_own_time = p.now != nullptr;
    c.request.thinking = p.thinking;
    c.keeps_markers = p.keeps_markers != 0;
    DUET_TRY(open_format(c, p));
    c.form = choose_form(template_of(c));
    c.thinking = choose_thinking(template_of(c));
    if (!p.form || find_form(p.form, &c.form)) return DUET_OK;
    return fail(c.err, DUET_ERR_ARG, "form: want one of %s; got '%s'", chat_form_names().c_str(),
                printable(p.form).c_str());
}

}  // namespace

duet_status create_chat(duet_chat& c, const duet_model* model, const duet_chat_params* params) {
    if (!model) return fail(c.err, DUET_ERR_ARG, "duet_chat_create: model is NULL");
    c.model = model;
    const duet_status st = guarded(c.err, [&] { return open_chat(c, params); });
    if (st != DUET_OK) c.format.reset();
    return st;
}

duet_status check_chat(const duet_chat& c, const char* call, error_text& err) {
    return c.format ? DUET_OK : fail(err, DUET_ERR_STATE, "%s: the chat was not made", call);
}

std::string_view template_of(const duet_chat& c) { return c.format->source(!c.request.tools.is_null()); }

// ---- messages -------------------------------------------------------------------------------------------------------

value without_broken_utf8(std::string_view text) {
    if (utf8_valid(text)) return value::of_string(std::string(text));
    text_gate gate;
    std::string whole = gate.add(text);
    return value::of_string(whole += gate.finish(true));
}

namespace {

duet_status check_content(const value& content, const char* what, size_t i, error_text& err) {
    if (content.is_null() || content.is_string()) return DUET_OK;
    if (!content.is_list())
        return fail(err, DUET_ERR_ARG, "%s: message %zu: content: want text, null or a list of parts", what, i);
    for (size_t k = 0; k < content.items().size(); k++) {
        const value &part = content.items()[k], type = member_of(part, "type");
        const bool is_text = type.is_null() || (type.is_string() && type.as_string().ends_with("text"));
        if (part.is_string() || (is_text && member_of(part, "text").is_string())) continue;
        return fail(err, DUET_ERR_ARG, "%s: message %zu: content: part %zu: want {\"type\": \"text\", \"text\": ...}%s",
                    what, i, k, type.is_string() ? (", got type " + printable(type.as_string())).c_str() : "");
    }
    return DUET_OK;
}

duet_status check_message(const value& m, const char* what, size_t i, error_text& err) {
    const value role = member_of(m, "role"), calls = member_of(m, "tool_calls");
    if (!role.is_string() || role.as_string().empty())
        return fail(err, DUET_ERR_ARG, "%s: message %zu: want an object with a \"role\" of text", what, i);
    DUET_TRY(check_content(member_of(m, "content"), what, i, err));
    if (calls.is_null()) return DUET_OK;
    if (!calls.is_list()) return fail(err, DUET_ERR_ARG, "%s: message %zu: tool_calls: want a list", what, i);
    for (size_t k = 0; k < calls.items().size(); k++) {
        const value function = member_of(calls.items()[k], "function"), arguments = member_of(function, "arguments");
        if (!member_of(function, "name").is_string() ||
            !(arguments.is_string() || arguments.is_map() || arguments.is_null()))
            return fail(err, DUET_ERR_ARG,
                        "%s: message %zu: call %zu: want {\"function\": {\"name\": text, \"arguments\": JSON text}}",
                        what, i, k);
    }
    return DUET_OK;
}

}  // namespace

duet_status read_messages(const value& given, const char* what, std::vector<value>* out, error_text& err) {
    if (given.is_list()) *out = given.items();
    else out->assign(1, given);
    for (size_t i = 0; i < out->size(); i++) DUET_TRY(check_message((*out)[i], what, i, err));
    return DUET_OK;
}

duet_status add_message(duet_chat& c, const char* role, const char* text, size_t n_bytes) {
    DUET_TRY(check_chat(c, "duet_chat_add", c.err));
    if (!role || !*role || (!text && n_bytes))
        return fail(c.err, DUET_ERR_ARG, "duet_chat_add: want %s", text || !n_bytes ? "a role" : "a text, got NULL");
    c.messages.push_back(value::of_map(
        {{"role", without_broken_utf8(role)}, {"content", without_broken_utf8({text ? text : "", n_bytes})}}));
    return DUET_OK;
}

duet_status insert_messages(duet_chat& c, int32_t i, const char* json, size_t n_bytes) {
    constexpr const char* kCall = "duet_chat_insert";
    DUET_TRY(check_chat(c, kCall, c.err));
    const int32_t count = (int32_t)c.messages.size();
    if (i == -1) i = count;
    if (i < 0 || i > count || !json)
        return fail(c.err, DUET_ERR_ARG, "%s: want a place in -1..%d and JSON, got %d and %s", kCall, count, i,
                    json ? "JSON" : "NULL");
    value given;
    std::vector<value> added;
    DUET_TRY(parse_json({json, n_bytes}, &given, c.err));
    DUET_TRY(read_messages(given, kCall, &added, c.err));
    c.messages.insert(c.messages.begin() + i, added.begin(), added.end());
    return DUET_OK;
}

duet_status remove_messages(duet_chat& c, int32_t i, int32_t n) {
    const int32_t count = (int32_t)c.messages.size();
    if (i < 0 || n < 0 || i > count || n > count - i)
        return fail(c.err, DUET_ERR_ARG, "duet_chat_remove: want messages in 0..%d, got %d from %d", count, n, i);
    c.messages.erase(c.messages.begin() + i, c.messages.begin() + i + n);
    return DUET_OK;
}

std::string_view show_message(duet_chat& c, int32_t i) {
    traced_text json;
    if (i < 0 || (size_t)i >= c.messages.size() || write_json(c.messages[(size_t)i], {}, &json, c.err) != DUET_OK)
        return {};
    c.shown = std::move(json.bytes);
    return c.shown;
}

// ---- prompts --------------------------------------------------------------------------------------------------------

duet_status render_chat(const duet_chat& c, int32_t flags, chat_prompt* out, error_text& err) {
    DUET_TRY(check_chat(c, "duet_chat_render", err));
    if (flags & ~(DUET_CHAT_NO_ANSWER | DUET_CHAT_CONTINUE_LAST))
        return fail(err, DUET_ERR_ARG, "duet_chat_render: flags: want DUET_CHAT_NO_ANSWER, DUET_CHAT_CONTINUE_LAST");
    chat_request request = c.request;
    request.messages = value::of_list(c.messages);
    request.asks_answer = !(flags & DUET_CHAT_NO_ANSWER);
    request.continues_last = (flags & DUET_CHAT_CONTINUE_LAST) != 0;
    if (!c.has_own_time) request.now = local_time();
    return c.format->render(request, c.model->vocab, out, err);
}

duet_status show_prompt(duet_chat& c, int32_t flags, duet_chat_prompt* out) {
    DUET_TRY(check_room("duet_chat_prompt", out, c.err));
    chat_prompt prompt;
    DUET_TRY(render_chat(c, flags, &prompt, c.err));
    std::swap(c.prompt, prompt);
    duet_chat_prompt shown{};
    shown.opens_thinking = prompt_opens_thinking(c.prompt.text, c.thinking);
    shown.text = {c.prompt.text.data(), c.prompt.text.size()};
    shown.ids = c.prompt.ids.data();
    shown.n_ids = c.prompt.ids.size();
    shown.first_byte = c.prompt.first_byte.data();
    shown.first_id = c.prompt.first_id.data();
    shown.n_messages = (int32_t)c.prompt.first_byte.size();
    write_struct(shown, out);
    return DUET_OK;
}

duet_status render_template(std::string_view source, std::string_view variables, const char* now, char* out,
                            size_t max_bytes, size_t* n_bytes, error_text& err) {
    if (!source.data() || !variables.data() || !n_bytes || (!out && max_bytes))
        return fail(err, DUET_ERR_ARG, "duet_template_render: want a template, variables and room, got NULL");
    *n_bytes = 0;
    value given;
    template_time time;
    chat_template compiled;
    rendered_template rendered;
    DUET_TRY(chat_template::compile(source, &compiled, err));
    DUET_TRY(parse_json(variables, &given, err));
    if (!given.is_map()) return fail(err, DUET_ERR_ARG, "duet_template_render: variables: want an object");
    DUET_TRY(choose_time(now, &time, err));
    DUET_TRY(compiled.render(given, time, &rendered, err));
    const std::string& text = rendered.text.bytes;
    *n_bytes = text.size();
    std::copy_n(text.begin(), std::min<size_t>(text.size(), max_bytes), out);
    if (text.size() <= max_bytes) return DUET_OK;
    return fail(err, DUET_ERR_FULL, "duet_template_render: the text has %zu bytes, there is room for %zu", text.size(),
                max_bytes);
}

}  // namespace duet
