// tools/serve/messages.cpp: POST /v1/messages and /v1/messages/count_tokens, as Anthropic's clients speak.
// Main path: routes.cpp -> [messages.cpp] -> chat.h -> engine.h
#include "chat.h"

namespace serve {

namespace {

// A block of a message becomes a part of OpenAI's message, or a message of its own (the result of a call).
void add_block(const fields& b, json* message, json* results) {
    const std::string type = b.text("type").value_or("");
    if (type == "text") {
        (*message)["content"] = (*message)["content"].get<std::string>() + b.need_text("text");
    } else if (type == "thinking") {
        (*message)["reasoning_content"] = message->value("reasoning_content", "") + b.need_text("thinking");
    } else if (type == "tool_use") {
        const std::string arguments = dump(b.inside("input").value());
        (*message)["tool_calls"].push_back({{"id", b.need_text("id")},
                                            {"type", "function"},
                                            {"function", {{"name", b.need_text("name")}, {"arguments", arguments}}}});
    } else if (type == "tool_result") {
        const json* content = b.find("content");
        results->push_back({{"role", "tool"},
                            {"tool_call_id", b.need_text("tool_use_id")},
                            {"content", content ? text_of_parts(*content, b.path("content")) : ""}});
    } else if (type != "redacted_thinking") b.wrong("type", "text, thinking, tool_use or tool_result");
}

json read_messages(const fields& f) {
    json out = json::array();
    if (const json* system = f.find("system"))
        out.push_back({{"role", "system"}, {"content", text_of_parts(*system, "system")}});
    const std::vector<fields> messages = f.objects("messages", "a message");
    if (messages.empty()) f.wrong("messages", "a list of messages, at least one");
    for (const fields& m : messages) {
        json message = {{"role", m.need_choice("role", {"user", "assistant"})}, {"content", ""}};
        json results = json::array();
        const json* content = m.find("content");
        if (content && content->is_string()) message["content"] = *content;
        else if (!content || !content->is_array() || content->empty()) m.wrong("content", "a text or a list of blocks");
        else
            for (const fields& block : m.objects("content", "a block")) add_block(block, &message, &results);
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
    f.list("stop_sequences");
    out["stop"] = read_stops(f, "stop_sequences");
    for (const fields& t : f.objects("tools", "an object with a name and an input_schema")) {
        const std::string name = t.need_text("name", "a name");
        const json* schema = t.object("input_schema");
        if (!schema) t.wrong("input_schema", "a schema");
        json function = {{"name", name}, {"description", t.text("description").value_or("")}, {"parameters", *schema}};
        out["tools"].push_back({{"type", "function"}, {"function", std::move(function)}});
    }
    if (f.object("tool_choice")) {
        const fields c = f.inside("tool_choice");
        const std::string type = c.need_choice("type", {"auto", "any", "tool", "none"});
        if (c.flag("disable_parallel_tool_use", false)) out["parallel_tool_calls"] = false;
        if (type == "tool") out["tool_choice"] = {{"type", "function"}, {"function", {{"name", c.need_text("name")}}}};
        else out["tool_choice"] = type == "any" ? "required" : type;
    }
    if (f.object("thinking")) {
        const fields thinking = f.inside("thinking");
        thinking.integer("budget_tokens", 1, INT32_MAX);
        const bool is_on = thinking.need_choice("type", {"enabled", "adaptive", "disabled"}) != "disabled";
        out["chat_template_kwargs"]["enable_thinking"] = is_on;
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
            out = sse("message_start", {{"message", std::move(start)}});
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
               sse("message_delta", {{"delta", {{"stop_reason", stop_reason()}, {"stop_sequence", stop_sequence()}}},
                                     {"usage", usage()}}) +
               sse("message_stop", json::object());
    }

    std::string stream_error(const std::string& text) override {
        return sse("error", {{"error", {{"type", "api_error"}, {"message", text}}}});
    }
    const char* keep_alive() const override { return "event: ping\ndata: {\"type\":\"ping\"}\n\n"; }

  private:
    json message(json content) const {
        // clang-format off
        return {{"id", id}, {"type", "message"}, {"role", "assistant"}, {"model", host.id},
                {"content", std::move(content)}, {"stop_reason", nullptr}, {"stop_sequence", nullptr}};
        // clang-format on
    }
    std::string open(const char* kind, json block) {
        if (open_ == kind && open_ != "tool_use") return "";
        std::string out = close();
        open_ = kind;
        return out + sse("content_block_start", {{"index", i_block_}, {"content_block", std::move(block)}});
    }
    std::string close() {
        if (open_.empty()) return "";
        open_.clear();
        return sse("content_block_stop", {{"index", i_block_++}});
    }
    std::string delta(json body) const {
        return sse("content_block_delta", {{"index", i_block_}, {"delta", std::move(body)}});
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
    const json request = as_openai(f);
    auto answer = std::make_shared<message_reply>(s, exchange);
    answer->stops = read_stops(f, "stop_sequences");
    submit_chat(answer, request, limit, f.flag("stream", false));
}

void post_count_tokens(server& s, exchange_ptr exchange, const fields& f) {
    const json request = as_openai(f);
    const rendered_chat r = render_chat(s, read_chat(fields(request)), common_fields{}, true);
    exchange->answer(200, dump({{"input_tokens", r.ids.size()}}));
}

}  // namespace serve
