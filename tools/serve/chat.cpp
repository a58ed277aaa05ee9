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
    const std::vector<fields> messages = f.objects("messages", "a message", kMaxMessages);
    if (messages.empty()) f.wrong("messages", "a list of messages, at least one");
    for (const fields& m : messages) {
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

void read_tools(const fields& f, chat_fields* c) {
    const std::vector<fields> tools = f.objects("tools", "an object with type \"function\" and a function", kMaxTools);
    for (const fields& t : tools) {
        t.need_choice("type", {"function"});
        const fields function = t.inside("function");
        if (function.need_text("name", "a name").empty()) function.wrong("name", "a name");
        function.text("description");
        function.object("parameters");
        function.flag("strict", false);
    }
    if (!tools.empty()) c->tools = *f.list("tools");
    const json* choice = f.find("tool_choice");
    c->parallel = f.flag("parallel_tool_calls", true);
    c->tool_choice = "auto";
    if (!choice) return;
    if (tools.empty()) refuse_value("tool_choice", "want tools beside it");
    if (!choice->is_object()) {
        c->tool_choice = *f.choice("tool_choice", {"auto", "none", "required"});
        return;
    }
    const fields asked = f.inside("tool_choice");
    asked.need_choice("type", {"function"});
    c->tool_choice = "name";
    c->tool_name = asked.inside("function").need_text("name", "a name");
    for (const fields& t : tools)
        if (t.inside("function").text("name") == c->tool_name) return;
    refuse_value("tool_choice", "there is no tool " + shown(c->tool_name));
}

// Makes the conversation; throws what is wrong with it.
chat_ptr open_chat(const server& s, const chat_fields& c, bool has_tools = true) {
    if (!s.has_chat)
        refuse(400, s.chat_error + "; start the server with --chat-template FILE or NAME", "messages",
               "no_chat_template");
    duet_chat_params p = template_params(s);
    const std::string tools = c.tools.is_null() || !has_tools ? "" : dump(c.tools), variables = dump(c.variables);
    if (!tools.empty()) p.tools = tools.c_str();
    if (!c.variables.empty()) p.variables = variables.c_str();
    p.thinking = c.thinking;
    p.keeps_markers = c.keeps_markers || s.options.reasoning == 1;
    duet_chat* made = nullptr;
    duet_status status = duet_chat_create(s.model, &p, &made);
    chat_ptr chat(made);
    if (status != DUET_OK)
        refuse_status(status, duet_chat_error(made), tools.empty() ? "chat_template_kwargs" : "tools");
    const std::string messages = dump(c.messages);
    status = duet_chat_insert(made, -1, messages.data(), messages.size());
    if (status != DUET_OK) refuse_status(status, duet_chat_error(made), "messages");
    return chat;
}

grammar_ptr chat_grammar(server& s, const duet_chat* chat, const chat_fields& c, const common_fields& common,
                         int32_t opens_thinking) {
    const bool has_body = !common.gbnf.empty() || !common.json_schema.empty();
    const bool must_call = c.tool_choice == "required" || c.tool_choice == "name";
    // A form without calls answers with text; calls that must be made are refused.
    const bool can_call = must_call || std::strcmp(duet_chat_form(chat), "none") != 0;
    const bool has_calls = !c.tools.is_null() && c.tool_choice != "none" && can_call;
    if (!has_calls && !has_body) return nullptr;  // the parser gives calls back as text
    const std::string choice = !has_calls ? "none" : c.tool_choice == "name" ? c.tool_name : c.tool_choice;
    const std::string key = "chat\n" + choice + (c.parallel ? "\n1" : "\n0") + (opens_thinking ? "1\n" : "0\n") +
                            dump(c.tools) + "\n" + common.gbnf + "\n" + common.json_schema;
    duet_chat_grammar_params p = duet_chat_grammar_params_default();
    p.tool_choice = choice.c_str();
    p.parallel = c.parallel;
    p.opens_thinking = opens_thinking;
    if (!common.gbnf.empty()) p.gbnf = common.gbnf.c_str();
    if (!common.json_schema.empty()) p.json_schema = common.json_schema.c_str();
    const char* field = !common.gbnf.empty() ? "grammar" : has_body ? "response_format" : "tools";
    return s.kept_grammar(key, field, [&](duet_grammar** made) { return duet_chat_grammar(chat, &p, made); });
}

class chat_reply : public choices_reply {
  public:
    chat_reply(server& s, exchange_ptr e)
        : choices_reply(s, std::move(e), "chatcmpl-", "chat.completion", "chat.completion.chunk") {}

    json choice(size_t i) override {
        const collected_answer& a = answers[i];
        json message = {{"role", "assistant"},
                        {"content", a.text.empty() && !a.calls.empty() ? json(nullptr) : json(a.text)},
                        {"refusal", nullptr}};
        if (!a.thinking.empty()) message["reasoning_content"] = message["reasoning"] = a.thinking;
        for (const tool_call& call : a.calls)
            message["tool_calls"].push_back({{"id", call.id},
                                             {"type", "function"},
                                             {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
        return {{"message", std::move(message)}, {"logprobs", logprobs_of(i, a.logprobs)}};
    }
    bool has_calls(size_t i) const override { return !answers[i].calls.empty(); }

    std::string piece(size_t i, const answer_event& e) override {
        begun_.resize(jobs.size());
        std::string out;
        if (!std::exchange(begun_[i], 1))
            out = chunk(i, "delta", {{"role", "assistant"}, {"content", ""}}, nullptr, nullptr);
        json delta = json::object();
        const auto call = [&](json one, json function) {
            one["index"] = e.i_call;
            one["function"] = std::move(function);
            delta["tool_calls"] = json::array({std::move(one)});
        };
        if (e.kind == DUET_CHAT_TEXT) delta["content"] = e.text;
        else if (e.kind == DUET_CHAT_THINKING) delta["reasoning_content"] = delta["reasoning"] = e.text;
        else if (e.kind == DUET_CHAT_CALL_BEGIN)
            call({{"id", e.call_id}, {"type", "function"}}, {{"name", e.text}, {"arguments", ""}});
        else if (e.kind == DUET_CHAT_CALL_PIECE) call(json::object(), {{"arguments", e.text}});
        else if (e.kind != DUET_CHAT_END && e.logprobs->empty()) return out;
        const char* reason = e.kind == DUET_CHAT_END ? finish_reason(e.reason, has_calls(i)) : nullptr;
        json logprobs = e.logprobs->empty() ? json(nullptr) : logprobs_of(i, *e.logprobs);
        return out + chunk(i, "delta", std::move(delta), std::move(logprobs), reason);
    }

  private:
    json token_json(int32_t id, double logprob) const {
        json bytes = json::array();
        for (const char c : view_of(duet_token_text(host.model, id))) bytes.push_back((int)(uint8_t)c);
        return {{"token", token_name(host, id)}, {"logprob", logprob}, {"bytes", std::move(bytes)}};
    }
    json logprobs_of(size_t i, const std::vector<token_logprob>& list) const {
        if (jobs[i]->n_logprobs < 0) return nullptr;
        json content = json::array();
        for (const token_logprob& p : list) {
            json one = token_json(p.id, p.logprob);
            one["top_logprobs"] = json::array();
            for (const auto& [id, logprob] : p.top) one["top_logprobs"].push_back(token_json(id, logprob));
            content.push_back(std::move(one));
        }
        return {{"content", std::move(content)}, {"refusal", nullptr}};
    }

    std::vector<char> begun_;
};

}  // namespace

duet_status try_template(server* s, tool_error* error) {
    const duet_chat_params p = template_params(*s);
    duet_chat* made = nullptr;
    const duet_status status = duet_chat_create(s->model, &p, &made);
    const chat_ptr chat(made);
    s->has_chat = status == DUET_OK;
    if (status == DUET_OK) return DUET_OK;
    s->chat_error = duet_chat_error(made);
    const bool was_asked = p.chat_template || p.template_name || p.form;
    if (was_asked || status == DUET_ERR_MEMORY) return error->set(status, s->chat_error);
    std::fprintf(stderr, "serve: no chat: %s\n", s->chat_error.c_str());
    return DUET_OK;
}

chat_fields read_chat(const fields& f) {
    chat_fields c;
    check_messages(f);
    c.messages = *f.list("messages");
    read_tools(f, &c);
    if (const json* variables = f.object("chat_template_kwargs")) c.variables = *variables;
    const fields variables = f.inside("chat_template_kwargs");
    if (variables.find("enable_thinking")) c.thinking = variables.flag("enable_thinking", false);
    const auto effort = f.choice("reasoning_effort", {"none", "minimal", "low", "medium", "high", "xhigh"});
    if (effort == "none") c.thinking = 0;
    else if (effort) c.variables["reasoning_effort"] = *effort;
    c.keeps_markers = f.choice("reasoning_format", {"auto", "deepseek", "none"}) == "none";
    return c;
}

std::string text_of_parts(const json& content, const std::string& path) {
    if (content.is_string()) return content.get<std::string>();
    if (!content.is_array()) refuse_value(path, "want a text or a list of parts");
    std::string text;
    for (const json& part : content) {
        const json type = part.is_object() ? part.value("type", json()) : json();
        const bool is_text =
            type == "text" || type == "input_text" || type == "output_text" || type == "reasoning_text";
        if (!is_text || !part.value("text", json()).is_string())
            refuse_value(path, "only parts of text are supported, got " + shown(part), "unsupported_value");
        text += part["text"].get<std::string>();
    }
    return text;
}

json copy_fields(const fields& f, std::initializer_list<const char*> names) {
    json out = json::object();
    for (const char* name : names)
        if (const json* value = f.find(name)) out[name] = *value;
    return out;
}

json call_input(const tool_call& call) {
    json input = json::parse(call.arguments, nullptr, false);
    return input.is_discarded() ? json{{"_incomplete", call.arguments}} : input;
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

rendered_chat render_chat(server& s, const chat_fields& c, const common_fields& common, bool only_renders) {
    const chat_ptr chat = open_chat(s, c);
    duet_chat_prompt prompt{};
    prompt.struct_size = sizeof prompt;
    const duet_status status = duet_chat_render(chat.get(), c.continues_last ? DUET_CHAT_CONTINUE_LAST : 0, &prompt);
    if (status != DUET_OK) refuse_status(status, duet_chat_error(chat.get()), "messages");
    rendered_chat out;
    out.text = std::string(view_of(prompt.text));
    out.ids.assign(prompt.ids, prompt.ids + prompt.n_ids);
    const int32_t opens_thinking = prompt.opens_thinking;
    if (only_renders) return out;
    check_length(s, out.ids.size(), "messages");
    const grammar_ptr grammar = chat_grammar(s, chat.get(), c, common, opens_thinking);
    std::vector<const char*> stops;
    for (const std::string& stop : common.stops) stops.push_back(stop.c_str());
    const std::vector<int32_t> borders = borders_of(prompt, c.messages);
    // A call that the model writes in spite of "none" is text, as it is without tools.
    const chat_ptr without_tools = c.tool_choice == "none" ? open_chat(s, c, false) : nullptr;
    const duet_chat* reader = without_tools ? without_tools.get() : chat.get();
    for (int32_t i = 0; i < common.n; i++) {
        job_ptr j = make_job(s, common, out.ids, i, grammar.get());
        j->borders = borders;
        duet_chat_parser* parser = nullptr;
        const duet_status made =
            duet_chat_parser_create(reader, opens_thinking, stops.data(), (int32_t)stops.size(), &parser);
        j->parser.reset(parser);
        if (made != DUET_OK) refuse_status(made, duet_chat_parser_error(parser), "stop");
        out.jobs.push_back(std::move(j));
    }
    return out;
}

void submit_chat(const std::shared_ptr<reply>& answer, const json& request, std::optional<int64_t> max_new_tok,
                 bool is_stream) {
    common_fields common = read_common(answer->host, fields(request));
    common.max_new_tok = (int32_t)max_new_tok.value_or(-1);
    answer->is_stream = is_stream;
    answer->jobs = render_chat(answer->host, read_chat(fields(request)), common).jobs;
    answer->submit();
}

void post_chat(server& s, exchange_ptr exchange, const fields& f) {
    common_fields common = read_common(s, f);
    const auto old_limit = f.integer("max_tokens", 1, INT32_MAX);
    const auto limit = f.integer("max_completion_tokens", 1, INT32_MAX);
    common.max_new_tok = (int32_t)(limit ? *limit : old_limit.value_or(-1));
    const bool wants_logprobs = f.flag("logprobs", false);
    const auto n_top = f.integer("top_logprobs", 0, 20);
    if (n_top && !wants_logprobs) refuse_value("top_logprobs", "want logprobs to be true");
    if (wants_logprobs) common.n_logprobs = (int32_t)n_top.value_or(0);
    const chat_fields c = read_chat(f);
    auto answer = std::make_shared<chat_reply>(s, exchange);
    answer->is_stream = common.is_stream;
    answer->include_usage = common.include_usage;
    answer->jobs = render_chat(s, c, common).jobs;
    answer->submit();
}

void post_apply_template(server& s, exchange_ptr exchange, const fields& f) {
    const rendered_chat r = render_chat(s, read_chat(f), common_fields{}, true);
    exchange->answer(200, dump({{"prompt", r.text}, {"tokens", r.ids}}));
}

}  // namespace serve
