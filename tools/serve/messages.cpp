// tools/serve/messages.cpp: POST /v1/messages and /v1/messages/count_tokens, as Anthropic's clients speak.
// Main path: routes.cpp -> [messages.cpp] -> chat.h -> engine.h
#include "chat.h"

namespace serve {

namespace {

// A block of a message becomes a part of OpenAI's message, or a message of its own (the result of a call).
void add_block(const fields& b, json* message, json* results) {
    const std::string type = b.text("type").value_or("");
    if (type == "text") {
        message->at("content").get_ref<std::string&>() += b.need_text("text");
    } else if (type == "thinking") {
        message->emplace("reasoning_content", "").first->get_ref<std::string&>() += b.need_text("thinking");
    } else if (type == "tool_use") {
        const std::string arguments = dump(b.inside("input").value());
        (*message)["tool_calls"].push_back(call_json(b.need_text("id"), b.need_text("name"), arguments));
    } else if (type == "tool_result") {
        const json* content = b.find("content");
        const std::string text = content ? text_of_parts(*content, b.path("content")) : "";
        results->push_back({{"role", "tool"}, {"tool_call_id", b.need_text("tool_use_id")}, {"content", text}});
    } else if (type != "redacted_thinking" && type != "tool_addition" && type != "tool_removal")
        b.wrong("type", "text, thinking, tool_use or tool_result");
}

json read_messages(const fields& f) {
    json out = json::array();
    if (const json* system = f.find("system"))
        out.push_back({{"role", "system"}, {"content", text_of_parts(*system, "system")}});
    for (const fields& m : need_messages(f)) {
        // What the system says between turns is told by the user: many templates hear the system at the beginning only.
        const bool instructs = m.need_choice("role", {"user", "assistant", "system"}) == "system";
        if (instructs && (out.empty() || out.back()["role"] == "system")) m.wrong("role", "user or assistant at first");
        json message = {{"role", instructs ? "user" : *m.text("role")}, {"content", ""}}, results = json::array();
        const json* content = m.find("content");
        if (content && content->is_string()) message["content"] = *content;
        else if (!content || !content->is_array() || content->empty()) m.wrong("content", "a text or a list of blocks");
        else
            for (const fields& block : m.objects("content", "a block")) add_block(block, &message, &results);
        const bool says_nothing = (instructs || !results.empty()) && message["content"] == "";
        for (json& result : results) out.push_back(std::move(result));
        if (says_nothing) continue;
        // A user's texts in a row are one, as Anthropic has it: some templates want the roles to alternate.
        if (message["role"] == "user" && !out.empty() && out.back()["role"] == "user")
            out.back()["content"].get_ref<std::string&>() += "\n\n" + message["content"].get<std::string>();
        else out.push_back(std::move(message));
    }
    return out;
}

// The request in OpenAI's fields, so that one place reads them.
json as_openai(const fields& f) {
    json out =
        copy_fields(f, {"temperature", "top_p", "top_k", "seed", "stream", "cache_prompt", "chat_template_kwargs"});
    out["messages"] = read_messages(f);
    f.list("stop_sequences"), f.object("chat_template_kwargs");
    out["stop"] = read_stops(f, "stop_sequences");
    for (const fields& t : f.objects("tools", "an object with a name and an input_schema")) {
        const std::string name = t.need_text("name", "a name");
        const json* schema = t.object("input_schema");
        if (!schema) t.wrong("input_schema", "a schema");
        json function = {{"name", name}, {"description", t.text("description").value_or("")}, {"parameters", *schema}};
        function.update(copy_fields(t, {"strict"}));
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
    const fields config = f.inside("output_config");
    // LiteLLM sends the format at its older place.
    const fields format = config.object("format") ? config.inside("format") : f.inside("output_format");
    if (const auto effort = config.choice("effort", {"low", "medium", "high", "xhigh", "max"}))
        out["reasoning_effort"] = *effort;
    if (config.object("format") || f.object("output_format"))
        out["response_format"] = {{"type", format.need_choice("type", {"json_schema"})},
                                  {"json_schema", copy_fields(format, {"schema"})}};
    return out;
}

struct message_reply : reply {
    using reply::reply;
    const std::string id = random_id("msg_");

    json whole() override {
        tell_whole();
        close();
        json out = message(blocks_);
        out.update(ending());
        return out;
    }

    std::string first(size_t) override { return sse("message_start", {{"message", message(json::array())}}); }

    std::string piece(size_t, const answer_event& e) override {
        if (e.kind == DUET_CHAT_TEXT) {
            const std::string begin = open({{"type", "text"}, {"text", ""}});
            return begin + delta("text_delta", "text", e.text);
        }
        if (e.kind == DUET_CHAT_THINKING) {
            const std::string begin = open({{"type", "thinking"}, {"thinking", ""}, {"signature", ""}});
            return begin + delta("thinking_delta", "thinking", e.text);
        }
        if (e.kind == DUET_CHAT_CALL_BEGIN)
            return open({{"type", "tool_use"}, {"id", e.call_id}, {"name", e.text}, {"input", json::object()}});
        return e.kind == DUET_CHAT_CALL_PIECE ? delta("input_json_delta", "partial_json", e.text) : "";
    }

    std::string last() override {
        return close() + sse("message_delta", {{"delta", ending()}, {"usage", usage()}}) +
               sse("message_stop", json::object());
    }

    std::string stream_error(const std::string& text) override {
        return sse("error", {{"error", {{"type", "api_error"}, {"message", text}}}});
    }
    const char* keep_alive() const override { return "event: ping\ndata: {\"type\":\"ping\"}\n\n"; }

  private:
    // clang-format off
    json message(const json& content) const {
        return {{"id", id}, {"type", "message"}, {"role", "assistant"}, {"model", host.id}, {"content", content},
                {"stop_reason", nullptr}, {"stop_sequence", nullptr}, {"usage", usage()}};
    }
    json usage() const {
        const usage_counts u = count_usage(jobs);
        return {{"input_tokens", u.n_prompt}, {"cache_creation_input_tokens", 0}, {"cache_read_input_tokens", 0},
                {"output_tokens", u.n_new}};
    }
    // clang-format on
    // Begins a block, unless its kind is open: a text goes on, a call does not.
    std::string open(json block) {
        if (!block_.is_null() && block_["type"] == block["type"] && block["type"] != "tool_use") return "";
        const std::string end = close();
        block_ = std::move(block);
        return end + sse("content_block_start", {{"index", blocks_.size()}, {"content_block", block_}});
    }
    std::string delta(const char* type, const char* member, std::string_view text) {
        text_ += text;
        return sse("content_block_delta", {{"index", blocks_.size()}, {"delta", {{"type", type}, {member, text}}}});
    }
    // Ends the open block and keeps it.
    std::string close() {
        if (block_.is_null()) return "";
        const std::string type = block_["type"];
        if (type == "tool_use") block_["input"] = call_input(text_);
        else block_[type] = text_;
        text_.clear();
        blocks_.push_back(std::exchange(block_, nullptr));
        return sse("content_block_stop", {{"index", blocks_.size() - 1}});
    }
    json ending() const {
        const collected_answer& a = answers[0];
        const int32_t i = jobs[0]->i_stop;
        const char* reason = i >= 0 ? "stop_sequence" : a.calls.empty() ? "end_turn" : "tool_use";
        if (a.reason == end_reason::length) reason = "max_tokens";
        return {{"stop_reason", reason}, {"stop_sequence", i < 0 ? json() : json(common.stops[(size_t)i])}};
    }

    json blocks_ = json::array(), block_;  // those that are whole, and the open one, null: none
    std::string text_;                     // of the open one
};

}  // namespace

void post_messages(server& s, exchange_ptr exchange, const fields& f) {
    const int32_t limit = read_limit(f, "max_tokens", 1, 0);
    if (!limit) f.wrong("max_tokens", "a whole number");
    f.number("temperature", 0, 1), f.object("metadata");
    json request = as_openai(f);
    request["max_tokens"] = limit;
    submit_chat(std::make_shared<message_reply>(s, exchange), fields(request));
}

void post_count_tokens(server& s, exchange_ptr exchange, const fields& f) {
    exchange->answer(200, dump({{"input_tokens", render_chat(s, read_chat(fields(as_openai(f)))).ids.size()}}));
}

}  // namespace serve
