// tools/serve/messages.cpp: POST /v1/messages and /v1/messages/count_tokens, as Anthropic's clients speak.
// Main path: routes.cpp -> [messages.cpp] -> chat.h -> engine.h
#include "chat.h"

namespace serve {

namespace {

// A block of a message becomes a part of OpenAI's message, or a message of its own (the result of a call).
void add_block(const json& block, const std::string& path, json* message, json* results) {
    if (!block.is_object()) refuse(400, path + ": want an object", path, "invalid_value");
    const fields b(block, path + ".");
    const std::string type = b.text("type").value_or("");
    const auto text = [&](const char* name) {
        const auto value = b.text(name);
        if (!value) b.wrong(name, "a string");
        return *value;
    };
    if (type == "text") {
        (*message)["content"] = (*message)["content"].get<std::string>() + text("text");
    } else if (type == "thinking") {
        (*message)["reasoning_content"] = message->value("reasoning_content", "") + text("thinking");
    } else if (type == "tool_use") {
        const json* input = b.object("input");
        (*message)["tool_calls"].push_back(
            {{"id", text("id")},
             {"type", "function"},
             {"function", {{"name", text("name")}, {"arguments", input ? dump(*input) : "{}"}}}});
    } else if (type == "tool_result") {
        const json* content = b.find("content");
        results->push_back({{"role", "tool"},
                            {"tool_call_id", text("tool_use_id")},
                            {"content", content ? text_of_parts(*content, path + ".content") : ""}});
    } else if (type != "redacted_thinking") b.wrong("type", "text, thinking, tool_use or tool_result");
}

json read_messages(const fields& f) {
    json out = json::array();
    if (const json* system = f.find("system"))
        out.push_back({{"role", "system"}, {"content", text_of_parts(*system, "system")}});
    const json* messages = f.list("messages");
    if (!messages || messages->empty()) f.wrong("messages", "a list of messages, at least one");
    for (size_t i = 0; i < messages->size(); i++) {
        const std::string path = "messages[" + std::to_string(i) + "]";
        if (!(*messages)[i].is_object()) refuse(400, path + ": want an object", path, "invalid_value");
        const fields m((*messages)[i], path + ".");
        const auto role = m.text("role");
        if (!role || (*role != "user" && *role != "assistant")) m.wrong("role", "user or assistant");
        const json* content = m.find("content");
        if (!content || (!content->is_string() && !content->is_array()))
            m.wrong("content", "a text or a list of blocks");
        json message = {{"role", *role}, {"content", content->is_string() ? content->get<std::string>() : ""}};
        json results = json::array();
        for (size_t k = 0; content->is_array() && k < content->size(); k++)
            add_block((*content)[k], path + ".content[" + std::to_string(k) + "]", &message, &results);
        const bool is_only_results = !results.empty() && message["content"] == "";
        for (json& result : results) out.push_back(std::move(result));
        if (!is_only_results) out.push_back(std::move(message));
    }
    return out;
}

// The request in OpenAI's fields, so that one place reads them.
json as_openai(const fields& f) {
    json out = copy_fields(f, {"temperature", "top_p", "top_k", "seed", "cache_prompt", "chat_template_kwargs"});
    out["messages"] = read_messages(f);
    if (const json* tools = f.list("tools")) {
        out["tools"] = json::array();
        for (const json& tool : *tools) {
            if (!tool.is_object()) f.wrong("tools", "objects with a name and an input_schema");
            const fields t(tool, "tools[].");
            const auto name = t.text("name");
            const json* schema = t.object("input_schema");
            if (!name || !schema) t.wrong(name ? "input_schema" : "name", "a name and an input_schema");
            out["tools"].push_back(
                {{"type", "function"},
                 {"function",
                  {{"name", *name}, {"description", t.text("description").value_or("")}, {"parameters", *schema}}}});
        }
    }
    if (const json* choice = f.object("tool_choice")) {
        const fields c(*choice, "tool_choice.");
        const std::string type = c.text("type").value_or("");
        if (c.flag("disable_parallel_tool_use", false)) out["parallel_tool_calls"] = false;
        if (type == "auto" || type == "none") out["tool_choice"] = type;
        else if (type == "any") out["tool_choice"] = "required";
        else if (type == "tool")
            out["tool_choice"] = {{"type", "function"}, {"function", {{"name", c.text("name").value_or("")}}}};
        else c.wrong("type", "auto, any, tool or none");
    }
    if (const json* thinking = f.object("thinking")) {
        const std::string type = fields(*thinking, "thinking.").text("type").value_or("");
        if (type != "enabled" && type != "disabled" && type != "adaptive")
            fields(*thinking, "thinking.").wrong("type", "enabled, adaptive or disabled");
        out["chat_template_kwargs"]["enable_thinking"] = type != "disabled";
    }
    return out;
}

class message_reply : public reply {
  public:
    using reply::reply;
    std::string id = random_id("msg_");
    std::vector<std::string> stops;

    json whole() override {
        const collected_answer& a = answers[0];
        json content = json::array();
        if (!a.thinking.empty()) content.push_back({{"type", "thinking"}, {"thinking", a.thinking}, {"signature", ""}});
        if (!a.text.empty()) content.push_back({{"type", "text"}, {"text", a.text}});
        for (const tool_call& call : a.calls)
            content.push_back(
                {{"type", "tool_use"}, {"id", call.id}, {"name", call.name}, {"input", call_input(call)}});
        json out = message(std::move(content));
        out["stop_reason"] = stop_reason();
        out["stop_sequence"] = stop_sequence();
        out["usage"] = usage();
        return out;
    }

    std::string piece(size_t, const answer_event& e) override {
        std::string out;
        if (!std::exchange(has_begun_, true)) {
            json start = message(json::array());
            start["usage"] = usage();
            out = event("message_start", {{"message", std::move(start)}});
        }
        if (e.kind == DUET_CHAT_TEXT) {
            out += open("text", {{"type", "text"}, {"text", ""}});
            out += delta({{"type", "text_delta"}, {"text", e.text}});
        } else if (e.kind == DUET_CHAT_THINKING) {
            out += open("thinking", {{"type", "thinking"}, {"thinking", ""}, {"signature", ""}});
            out += delta({{"type", "thinking_delta"}, {"thinking", e.text}});
        } else if (e.kind == DUET_CHAT_CALL_BEGIN)
            out += open("tool_use",
                        {{"type", "tool_use"}, {"id", e.call_id}, {"name", e.text}, {"input", json::object()}});
        else if (e.kind == DUET_CHAT_CALL_PIECE) out += delta({{"type", "input_json_delta"}, {"partial_json", e.text}});
        return out;
    }

    std::string last() override {
        return close() +
               event("message_delta", {{"delta", {{"stop_reason", stop_reason()}, {"stop_sequence", stop_sequence()}}},
                                       {"usage", usage()}}) +
               event("message_stop", json::object());
    }

    std::string stream_error(const std::string& text) override {
        return event("error", {{"error", {{"type", "api_error"}, {"message", text}}}});
    }
    const char* keep_alive() const override { return "event: ping\ndata: {\"type\":\"ping\"}\n\n"; }

  private:
    static std::string event(const char* name, json body) {
        json out = {{"type", name}};
        out.update(body);
        return sse(name, out);
    }
    json message(json content) const {
        return {{"id", id},
                {"type", "message"},
                {"role", "assistant"},
                {"model", host.id},
                {"content", std::move(content)},
                {"stop_reason", nullptr},
                {"stop_sequence", nullptr}};
    }
    std::string open(const char* kind, json block) {
        if (open_ == kind && open_ != "tool_use") return "";
        std::string out = close();
        open_ = kind;
        return out + event("content_block_start", {{"index", i_block_}, {"content_block", std::move(block)}});
    }
    std::string close() {
        if (open_.empty()) return "";
        open_.clear();
        return event("content_block_stop", {{"index", i_block_++}});
    }
    std::string delta(json body) const {
        return event("content_block_delta", {{"index", i_block_}, {"delta", std::move(body)}});
    }
    const char* stop_reason() const {
        const collected_answer& a = answers[0];
        return a.reason == end_reason::length        ? "max_tokens"
               : a.reason == end_reason::stop_string ? "stop_sequence"
               : !a.calls.empty()                    ? "tool_use"
                                                     : "end_turn";
    }
    json stop_sequence() const {
        const int32_t i = jobs[0]->i_stop;
        return answers[0].reason == end_reason::stop_string && i >= 0 ? json(stops[(size_t)i]) : json(nullptr);
    }
    json usage() const {
        const usage_counts u = count_usage(jobs);
        return {{"input_tokens", u.n_prompt},
                {"cache_creation_input_tokens", 0},
                {"cache_read_input_tokens", 0},
                {"output_tokens", u.n_new}};
    }

    bool has_begun_ = false;
    std::string open_;
    int i_block_ = 0;
};

}  // namespace

void post_messages(server& s, exchange_ptr exchange, const fields& f) {
    const auto limit = f.integer("max_tokens", 1, INT32_MAX);
    if (!limit) f.wrong("max_tokens", "a whole number");
    f.number("temperature", 0, 1);
    f.object("metadata");
    f.list("stop_sequences");
    const json request = as_openai(f);
    common_fields common = read_common(s, fields(request));
    common.max_new_tok = (int32_t)*limit;
    common.stops = read_stops(f, "stop_sequences");
    auto answer = std::make_shared<message_reply>(s, exchange);
    answer->stops = common.stops;
    answer->is_stream = f.flag("stream", false);
    answer->jobs = render_chat(s, read_chat(fields(request)), common).jobs;
    answer->submit();
}

void post_count_tokens(server& s, exchange_ptr exchange, const fields& f) {
    const json request = as_openai(f);
    const rendered_chat r = render_chat(s, read_chat(fields(request)), common_fields{}, true);
    exchange->answer(200, dump({{"input_tokens", r.ids.size()}}));
}

}  // namespace serve
