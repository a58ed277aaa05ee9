// tools/serve/chat.cpp: POST /v1/chat/completions and /apply-template.
// Main path: routes.cpp -> [chat.cpp] -> engine.h
#include "chat.h"

namespace serve {

namespace {

constexpr size_t kMaxMessages = 4096, kMaxTools = 256;

duet_chat_params template_params(const server& s) {
    duet_chat_params p = duet_chat_params_default();
    if (!s.options.chat_template.empty()) p.chat_template = s.options.chat_template.c_str();
    if (!s.options.template_name.empty()) p.template_name = s.options.template_name.c_str();
    if (!s.options.tool_form.empty()) p.form = s.options.tool_form.c_str();
    return p;
}

void check_messages(const fields& f) {
    for (const fields& m : need_messages(f, kMaxMessages)) {
        const std::string role = m.need_choice("role", {"system", "developer", "user", "assistant", "tool"});
        const json* content = m.find("content");
        const json* calls = m.list("tool_calls");
        const bool may_lack = (calls && !calls->empty()) || m.find("refusal") || m.find("reasoning_content");
        if (content ? content->is_array() && content->empty() : !(role == "assistant" && may_lack))
            m.wrong("content", "a text or a list of text parts, at least one");
        m.text("name");
        if (role == "tool") m.need_text("tool_call_id", "the id of the call");
        if (content) text_of_parts(*content, m.path("content"));
    }
}

// Members that are null are absent, but for those that may be: servers of tools that are written in Go send
// "required": null.
json without_nulls(json value) {
    for (auto at = value.begin(); value.is_object() && at != value.end();)
        if (at->is_null() && at.key() != "default" && at.key() != "const") at = value.erase(at);
        else *at = without_nulls(std::move(*at)), ++at;
    return value;
}

void read_tools(const fields& f, chat_fields* c) {
    const std::vector<fields> tools = f.objects("tools", "an object with type \"function\" and a function", kMaxTools);
    for (const fields& t : tools) {
        t.need_choice("type", {"function"});
        const fields function = t.inside("function");
        if (function.need_text("name", "a name").empty()) function.wrong("name", "a name");
        function.text("description"), function.object("parameters"), function.flag("strict", false);
    }
    for (const fields& t : tools) c->tools.push_back(without_nulls(t.value()));
    const json* choice = f.find("tool_choice");
    c->parallel = f.flag("parallel_tool_calls", true);
    c->tool_choice = "auto";
    if (!choice) return;
    if (tools.empty()) refuse_value("tool_choice", "want tools beside it");
    c->tool_choice = choice->is_object() ? "name" : *f.choice("tool_choice", {"auto", "none", "required"});
    if (!choice->is_object()) return;
    const fields asked = f.inside("tool_choice");
    asked.need_choice("type", {"function"});
    c->tool_name = asked.inside("function").need_text("name", "a name");
    for (const fields& t : tools)
        if (t.inside("function").text("name") == c->tool_name) return;
    refuse_value("tool_choice", "there is no tool " + shown(c->tool_name));
}

// Makes the conversation; throws what is wrong with it.
chat_ptr open_chat(const server& s, const chat_fields& c, bool has_tools = true) {
    if (!s.has_chat)
        refuse(400, s.chat_error + "; start serve with --chat-template FILE or NAME", "messages", "no_chat_template");
    duet_chat_params p = template_params(s);
    const std::string tools = c.tools.is_null() || !has_tools ? "" : dump(c.tools), variables = dump(c.variables);
    if (!tools.empty()) p.tools = tools.c_str();
    if (!c.variables.empty()) p.variables = variables.c_str();
    p.thinking = c.thinking;
    p.keeps_markers = c.keeps_markers || s.options.reasoning == 1;
    chat_ptr chat = make_or_refuse(duet_chat_error, tools.empty() ? "chat_template_kwargs" : "tools",
                                   [&](duet_chat** made) { return duet_chat_create(s.model, &p, made); });
    const std::string messages = dump(c.messages);
    const duet_status status = duet_chat_insert(chat.get(), -1, messages.data(), messages.size());
    if (status != DUET_OK) refuse_status(status, duet_chat_error(chat.get()), "messages");
    return chat;
}

grammar_ptr chat_grammar(server& s, const rendered_chat& r, const chat_fields& c, const common_fields& common) {
    const bool has_body = !common.gbnf.empty() || !common.json_schema.empty();
    const bool must_call = c.tool_choice == "required" || c.tool_choice == "name";
    // A form without calls answers with text; calls that must be made are refused.
    const bool can_call = must_call || std::strcmp(duet_chat_form(r.chat.get()), "none") != 0;
    const bool has_calls = !c.tools.is_null() && c.tool_choice != "none" && can_call;
    if (!has_calls && !has_body) return nullptr;  // the parser gives calls back as text
    const std::string choice = !has_calls ? "none" : c.tool_choice == "name" ? c.tool_name : c.tool_choice;
    const std::string key = "chat\n" + choice + (c.parallel ? "\n1" : "\n0") + (r.opens_thinking ? "1\n" : "0\n") +
                            std::to_string(c.thinking) + dump(c.tools) + "\n" + common.gbnf + "\n" + common.json_schema;
    duet_chat_grammar_params p = duet_chat_grammar_params_default();
    p.tool_choice = choice.c_str();
    p.parallel = c.parallel;
    p.opens_thinking = r.opens_thinking;
    if (!common.gbnf.empty()) p.gbnf = common.gbnf.c_str();
    if (!common.json_schema.empty()) p.json_schema = common.json_schema.c_str();
    const char* field = !common.gbnf.empty() ? "grammar" : has_body ? "response_format" : "tools";
    return s.kept_grammar(key, field, [&](duet_grammar** made) { return duet_chat_grammar(r.chat.get(), &p, made); });
}

struct chat_reply : choices_reply {
    using choices_reply::choices_reply;

    json choice(size_t i) override {
        const collected_answer& a = answers[i];
        json message = {{"role", "assistant"}, {"content", a.text}, {"refusal", nullptr}};
        if (a.text.empty() && !a.calls.empty()) message["content"] = nullptr;
        if (!a.thinking.empty()) message["reasoning_content"] = message["reasoning"] = a.thinking;
        for (const tool_call& c : a.calls) message["tool_calls"].push_back(call_json(c.id, c.name, c.arguments));
        return {{"message", std::move(message)}, {"logprobs", logprobs_of(i, a.logprobs)}};
    }

    std::string first(size_t i) override { return chunk(i, "delta", {{"role", "assistant"}, {"content", ""}}, {}); }

    std::string piece(size_t i, const answer_event& e) override {
        json delta = json::object();
        if (e.kind == DUET_CHAT_TEXT) delta["content"] = e.text;
        else if (e.kind == DUET_CHAT_THINKING) delta["reasoning_content"] = delta["reasoning"] = e.text;
        else if (e.kind == DUET_CHAT_CALL_BEGIN || e.kind == DUET_CHAT_CALL_PIECE) {
            const bool begins = e.kind == DUET_CHAT_CALL_BEGIN;
            json call = begins ? json{{"id", e.call_id}, {"type", "function"}} : json::object();
            call["index"] = e.i_call;
            call["function"] = begins ? json{{"name", e.text}, {"arguments", ""}} : json{{"arguments", e.text}};
            delta["tool_calls"] = json::array({std::move(call)});
        } else if (e.kind != DUET_CHAT_END && e.logprobs->empty()) return "";
        json logprobs = e.logprobs->empty() ? json(nullptr) : logprobs_of(i, *e.logprobs);
        return chunk(i, "delta", std::move(delta), std::move(logprobs), e.kind == DUET_CHAT_END);
    }

  private:
    json logprobs_of(size_t i, const std::vector<token_logprob>& list) const {
        if (jobs[i]->n_logprobs < 0) return nullptr;
        return {{"content", logprobs_json(list)}, {"refusal", nullptr}};
    }
};

}  // namespace

duet_status try_template(server* s, tool_error* error) {
    duet_chat_params p = template_params(*s);
    p.tools = "[{\"name\":\"any\"}]";  // so that the template for calls tells the form
    duet_chat* made = nullptr;
    const duet_status status = duet_chat_create(s->model, &p, &made);
    const chat_ptr chat(made);
    s->has_chat = status == DUET_OK;
    s->has_tools = s->has_chat && std::strcmp(duet_chat_form(made), "none") != 0;
    if (s->has_chat) return DUET_OK;
    s->chat_error = duet_chat_error(made);
    const bool was_asked = p.chat_template || p.template_name || p.form;
    if (was_asked || status == DUET_ERR_MEMORY) return error->set(status, s->chat_error);
    std::fprintf(stderr, "serve: no chat: %s (--chat-template NAME or FILE)\n", s->chat_error.c_str());
    return DUET_OK;
}

std::string template_text(const server& s) {
    const duet_file* file = duet_model_file(s.model);
    const std::string given = s.options.chat_template + s.options.template_name;
    duet_string own = {};
    if (duet_file_get_string(file, duet_file_find_kv(file, "tokenizer.chat_template"), 0, &own) != DUET_OK) own = {};
    return given.empty() ? std::string(view_of(own)) : given;
}

chat_fields read_chat(const fields& f) {
    chat_fields c;
    check_messages(f);
    c.messages = *f.list("messages");
    for (json& m : c.messages) {
        if (m.contains("reasoning")) m.emplace("reasoning_content", json(m["reasoning"]));  // answers have both names
        if (m.contains("content") && m["content"].is_array())
            for (json& part : m["content"])
                if (part["type"] == "refusal") part = {{"type", "text"}, {"text", part["refusal"]}};
    }
    read_tools(f, &c);
    const fields variables = f.inside("chat_template_kwargs");
    c.variables = variables.value();
    if (variables.find("enable_thinking")) c.thinking = variables.flag("enable_thinking", false);
    const auto effort = f.choice("reasoning_effort", {"none", "minimal", "low", "medium", "high", "xhigh", "max"});
    if (effort == "none") c.thinking = 0;
    else if (effort) c.variables["reasoning_effort"] = *effort;
    c.keeps_markers = f.choice("reasoning_format", {"auto", "deepseek", "none"}) == "none";
    return c;
}

std::vector<fields> need_messages(const fields& f, size_t n_most) {
    const std::vector<fields> messages = f.objects("messages", "a message", n_most);
    if (messages.empty()) f.wrong("messages", "a list of messages, at least one");
    return messages;
}

std::string text_of_parts(const json& content, const std::string& path) {
    if (content.is_string()) return content.get<std::string>();
    if (!content.is_array()) refuse_value(path, "want a text or a list of parts");
    std::string text;
    // Claude Code's search for tools answers with the names of those that it found.
    // clang-format off
    constexpr std::pair<const char*, const char*> kKinds[] = {
        {"text", "text"}, {"input_text", "text"}, {"output_text", "text"}, {"reasoning_text", "text"}, {"refusal", "refusal"}, {"tool_reference", "tool_name"}};
    // clang-format on
    for (const json& part : content) {
        const json type = part.is_object() ? part.value("type", json()) : json();
        const auto kind = std::ranges::find_if(kKinds, [&](const auto& row) { return type == row.first; });
        if (kind == std::end(kKinds) || !part.value(kind->second, json()).is_string())
            refuse_value(path, "only parts of text are supported, got " + shown(part), "unsupported_value");
        text += part[kind->second].get<std::string>();
    }
    return text;
}

json copy_fields(const fields& f, std::initializer_list<const char*> names) {
    json out = json::object();
    for (const char* name : names)
        if (const json* value = f.find(name)) out[name] = *value;
    return out;
}

json call_json(std::string_view id, std::string_view name, std::string_view arguments) {
    return {{"id", id}, {"type", "function"}, {"function", {{"name", name}, {"arguments", arguments}}}};
}

json call_input(const std::string& arguments) {
    json input = json::parse(arguments, nullptr, false);
    return input.is_discarded() ? json{{"_incomplete", arguments}} : input;
}

// Other prompts are likely to share the system prompt, and what stands before the last message.
static std::vector<int32_t> borders_of(const duet_chat_prompt& prompt, const json& messages) {
    std::vector<int32_t> borders;
    int32_t i = 0;
    while (i + 1 < prompt.n_messages &&
           (messages[(size_t)i]["role"] == "system" || messages[(size_t)i]["role"] == "developer"))
        i++;
    for (int32_t k : {i, prompt.n_messages - 1})
        if (const int64_t n = prompt.first_id[k]; n > 0 && (borders.empty() || n > borders.back()))
            borders.push_back((int32_t)n);
    return borders;
}

rendered_chat render_chat(const server& s, const chat_fields& c) {
    rendered_chat out = {open_chat(s, c), "", {}, {}};
    duet_chat_prompt prompt{};
    prompt.struct_size = sizeof prompt;
    // A last message of the assistant is gone on with, as by the servers that clients know.
    const json& last = c.messages.back();
    const bool goes_on = last["role"] == "assistant" && last.value("tool_calls", json()).empty();
    const duet_status status = duet_chat_render(out.chat.get(), goes_on ? DUET_CHAT_CONTINUE_LAST : 0, &prompt);
    if (status != DUET_OK) refuse_status(status, duet_chat_error(out.chat.get()), "messages");
    out.text = std::string(view_of(prompt.text));
    out.ids.assign(prompt.ids, prompt.ids + prompt.n_ids);
    out.borders = borders_of(prompt, c.messages);
    out.opens_thinking = prompt.opens_thinking;
    return out;
}

// The jobs of as many answers as are asked for.
static std::vector<job_ptr> chat_jobs(server& s, const chat_fields& c, const common_fields& common) {
    const rendered_chat r = render_chat(s, c);
    check_length(s, r.ids.size(), "messages");
    const grammar_ptr grammar = chat_grammar(s, r, c, common);
    const std::vector<const char*> stops = common.stop_pointers();
    // A call that the model writes in spite of "none" is text, as it is without tools.
    const chat_ptr without_tools = c.tool_choice == "none" ? open_chat(s, c, false) : nullptr;
    const duet_chat* reader = without_tools ? without_tools.get() : r.chat.get();
    std::vector<job_ptr> jobs;
    for (int32_t i = 0; i < common.n; i++) {
        jobs.push_back(make_job(s, common, r.ids, i, grammar.get()));
        jobs[(size_t)i]->borders = r.borders;
        jobs[(size_t)i]->parser = make_or_refuse(duet_chat_parser_error, "stop", [&](duet_chat_parser** made) {
            return duet_chat_parser_create(reader, r.opens_thinking, stops.data(), (int32_t)stops.size(), made);
        });
    }
    return jobs;
}

void submit_chat(const reply_ptr& answer, const fields& f) {
    common_fields common = read_common(answer->host, f);
    common.max_new_tok = read_limit(f, "max_completion_tokens", 1, read_limit(f, "max_tokens", 1, -1));
    const bool wants_logprobs = f.flag("logprobs", false);
    const auto n_top = f.integer("top_logprobs", 0, 20);
    if (n_top && !wants_logprobs) refuse_value("top_logprobs", "want logprobs to be true");
    if (wants_logprobs) common.n_logprobs = (int32_t)n_top.value_or(0);
    answer->jobs = chat_jobs(answer->host, read_chat(f), common);
    answer->common = std::move(common);
    answer->submit();
}

void post_chat(server& s, exchange_ptr exchange, const fields& f) {
    submit_chat(std::make_shared<chat_reply>(s, exchange, "chatcmpl-", "chat.completion", "chat.completion.chunk"), f);
}

void post_apply_template(server& s, exchange_ptr exchange, const fields& f) {
    const rendered_chat r = render_chat(s, read_chat(f));
    exchange->answer(200, dump({{"prompt", r.text}, {"tokens", r.ids}}));
}

}  // namespace serve
