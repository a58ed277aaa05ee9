// tools/serve/responses.cpp: POST /v1/responses, OpenAI's newer interface, without state: nothing is stored.
// Main path: routes.cpp -> [responses.cpp] -> chat.h -> engine.h
#include "chat.h"

namespace serve {

namespace {

// An item of the input becomes a message. Calls that follow each other belong to one message of the assistant.
void add_item(const fields& i, json* messages) {
    const std::string type = i.text("type").value_or("message");
    const auto parts = [&](const char* name) {
        const json* content = i.find(name);
        if (!content || (type == "message" && content->empty())) i.wrong(name, "a text or a list of parts");
        return text_of_parts(*content, i.path(name));
    };
    if (type == "message") {
        const std::string role = i.need_choice("role", {"system", "developer", "user", "assistant"});
        messages->push_back({{"role", role}, {"content", parts("content")}});
    } else if (type == "function_call") {
        const bool joins = !messages->empty() && messages->back().contains("tool_calls");
        if (!joins) messages->push_back({{"role", "assistant"}, {"content", nullptr}, {"tool_calls", json::array()}});
        json function = {{"name", i.need_text("name")}, {"arguments", i.need_text("arguments")}};
        messages->back()["tool_calls"].push_back(
            {{"id", i.need_text("call_id")}, {"type", "function"}, {"function", std::move(function)}});
    } else if (type == "function_call_output") {
        messages->push_back({{"role", "tool"}, {"tool_call_id", i.need_text("call_id")}, {"content", parts("output")}});
    } else if (type != "reasoning") i.wrong("type", "message, function_call, function_call_output or reasoning");
}

// Fields of /v1/chat/completions, and what they are called here.
constexpr std::pair<const char*, const char*> kOwnNames[] = {{"messages", "input"},
                                                             {"response_format.json_schema", "text.format"},
                                                             {"response_format", "text.format"},
                                                             {"reasoning_effort", "reasoning.effort"}};

// The request in the fields of /v1/chat/completions, so that one place reads them.
json as_chat(const fields& f) {
    json out = copy_fields(f, {"temperature", "top_p", "top_k", "min_p", "seed", "parallel_tool_calls", "cache_prompt",
                               "chat_template_kwargs"});
    out["messages"] = json::array();
    if (const auto instructions = f.text("instructions"))
        out["messages"].push_back({{"role", "system"}, {"content", *instructions}});
    const json* input = f.find("input");
    if (!input || (!input->is_string() && !input->is_array()) || *input == json::array())
        f.wrong("input", "a text or a list of items");
    if (input->is_string()) out["messages"].push_back({{"role", "user"}, {"content", *input}});
    else
        for (const fields& item : f.objects("input", "an item")) add_item(item, &out["messages"]);
    for (const fields& tool : f.objects("tools", "a function")) {
        if (tool.text("type") != "function")
            refuse_value("tools", "only functions are supported, got " + shown(tool.value()), "unsupported_value");
        out["tools"].push_back(
            {{"type", "function"}, {"function", copy_fields(tool, {"name", "description", "parameters", "strict"})}});
    }
    if (const json* choice = f.find("tool_choice")) {
        out["tool_choice"] = *choice;
        if (choice->is_object())
            out["tool_choice"] = {{"type", "function"}, {"function", {{"name", choice->value("name", json())}}}};
        else if (!out.contains("tools") && (*choice == "auto" || *choice == "none")) out.erase("tool_choice");
    }
    if (const json* format = f.inside("text").object("format")) {
        out["response_format"] = *format;
        if (format->value("type", json()) == "json_schema") out["response_format"]["json_schema"] = *format;
    }
    if (const json* effort = f.inside("reasoning").find("effort")) out["reasoning_effort"] = *effort;
    return out;
}

class response_reply : public reply {
  public:
    using reply::reply;
    std::string id = random_id("resp_");
    int64_t created = unix_time();
    json asked;  // fields that go back as they came

    json whole() override {
        const collected_answer& a = answers[0];
        if (items_.empty()) {
            if (!a.thinking.empty()) items_.push_back(reasoning_item(a.thinking));
            if (!a.text.empty() || a.calls.empty()) items_.push_back(message_item(a.text, "completed"));
            for (const tool_call& call : a.calls) items_.push_back(call_item(call, "completed"));
            if (items_.back().contains("status")) items_.back()["status"] = status();
        }
        const bool is_cut = a.reason == end_reason::length;
        json out = head(status(), items_);
        if (is_cut) out["incomplete_details"] = {{"reason", "max_output_tokens"}};
        const usage_counts u = count_usage(jobs);
        out["usage"] = {{"input_tokens", u.n_prompt},
                        {"input_tokens_details", {{"cached_tokens", u.n_cached}}},
                        {"output_tokens", u.n_new},
                        {"output_tokens_details", {{"reasoning_tokens", u.n_thinking}}},
                        {"total_tokens", u.n_prompt + u.n_new}};
        return out;
    }

    std::string piece(size_t, const answer_event& e) override {
        std::string out;
        if (n_events_ == 0) {
            out += event("response.created", {{"response", head("in_progress", json::array())}});
            out += event("response.in_progress", {{"response", head("in_progress", json::array())}});
        }
        if (e.kind == DUET_CHAT_TEXT) {
            if (open_ != "message") {
                out += open("message", message_item("", "in_progress"));
                out += event("response.content_part.added", place({{"content_index", 0}, {"part", text_part("")}}));
            }
            text_ += e.text;
            out += event("response.output_text.delta",
                         place({{"content_index", 0}, {"delta", e.text}, {"logprobs", json::array()}}));
        } else if (e.kind == DUET_CHAT_THINKING) {
            if (open_ != "reasoning") out += open("reasoning", reasoning_item(""));
            text_ += e.text;
            out += event("response.reasoning_text.delta", place({{"content_index", 0}, {"delta", e.text}}));
        } else if (e.kind == DUET_CHAT_CALL_BEGIN) {
            call_ = {std::string(e.call_id), std::string(e.text), ""};
            out += open("call", call_item(call_, "in_progress"));
        } else if (e.kind == DUET_CHAT_CALL_PIECE) {
            call_.arguments += e.text;
            out += event("response.function_call_arguments.delta", place({{"delta", e.text}}));
        }
        return out;
    }

    std::string last() override {
        std::string out = close();
        json done = whole();
        const char* name = done["status"] == "completed" ? "response.completed" : "response.incomplete";
        return out + event(name, {{"response", std::move(done)}});
    }

    std::string stream_error(const std::string& message) override {
        return event("error", {{"code", "server_error"}, {"message", message}, {"param", nullptr}});
    }

  private:
    // Of the answer, and of the item that its end finds open.
    const char* status() const { return answers[0].reason == end_reason::length ? "incomplete" : "completed"; }
    // clang-format off
    json head(const char* status, const json& output) const {
        json out = {{"id", id}, {"object", "response"}, {"created_at", created}, {"status", status}, {"error", nullptr},
                    {"incomplete_details", nullptr}, {"model", host.id}, {"output", output}, {"store", false},
                    {"previous_response_id", nullptr}};
        out.update(asked);
        return out;
    }
    static json text_part(std::string_view text) {
        return {{"type", "output_text"}, {"text", text}, {"annotations", json::array()}, {"logprobs", json::array()}};
    }
    static json message_item(std::string_view text, const char* status) {
        return {{"id", random_id("msg_")}, {"type", "message"}, {"status", status}, {"role", "assistant"},
                {"content", json::array({text_part(text)})}};
    }
    static json reasoning_item(std::string_view text) {
        return {{"id", random_id("rs_")}, {"type", "reasoning"}, {"summary", json::array()},
                {"content", json::array({{{"type", "reasoning_text"}, {"text", text}}})}};
    }
    static json call_item(const tool_call& call, const char* status) {
        return {{"id", random_id("fc_")}, {"type", "function_call"}, {"status", status}, {"call_id", call.id},
                {"name", call.name}, {"arguments", call.arguments}};
    }
    // clang-format on
    std::string event(const char* name, json body) {
        body["sequence_number"] = n_events_++;
        return sse(name, body);
    }
    // Which item an event is about.
    json place(json body) const {
        json out = {{"item_id", item_id_}, {"output_index", items_.size()}};
        out.update(body);
        return out;
    }
    std::string open(const char* kind, json item) {
        std::string out = close();
        open_ = kind;
        item_id_ = item["id"];
        if (item.contains("content")) item["content"] = json::array();
        return out + event("response.output_item.added", {{"output_index", items_.size()}, {"item", std::move(item)}});
    }
    // Tells that the open item is whole, and keeps it.
    std::string close() {
        if (open_.empty()) return "";
        std::string out;
        json item;
        if (open_ == "message") {
            item = message_item(text_, status());
            out += event("response.output_text.done",
                         place({{"content_index", 0}, {"text", text_}, {"logprobs", json::array()}}));
            out += event("response.content_part.done", place({{"content_index", 0}, {"part", text_part(text_)}}));
        } else if (open_ == "reasoning") {
            item = reasoning_item(text_);
            out += event("response.reasoning_text.done", place({{"content_index", 0}, {"text", text_}}));
        } else {
            item = call_item(call_, status());
            out += event("response.function_call_arguments.done",
                         place({{"name", call_.name}, {"arguments", call_.arguments}}));
        }
        item["id"] = item_id_;
        out += event("response.output_item.done", {{"output_index", items_.size()}, {"item", item}});
        items_.push_back(std::move(item));
        open_.clear();
        text_.clear();
        return out;
    }

    json items_ = json::array();
    std::string open_, item_id_, text_;
    tool_call call_;
    int n_events_ = 0;
};

}  // namespace

void post_responses(server& s, exchange_ptr exchange, const fields& f) {
    for (const char* name : {"previous_response_id", "conversation", "prompt"})
        if (f.find(name)) refuse_value(name, "nothing is stored here", "unsupported_value");
    if (f.flag("background", false)) refuse_value("background", "nothing is stored here", "unsupported_value");
    f.object("metadata");
    f.list("include");
    f.flag("store", false);
    f.integer("top_logprobs", 0, 20);
    f.choice("truncation", {"auto", "disabled"});  // nothing is ever cut
    auto answer = std::make_shared<response_reply>(s, exchange);
    // clang-format off
    answer->asked = {{"instructions", nullptr}, {"max_output_tokens", nullptr}, {"metadata", json::object()},
                     {"parallel_tool_calls", true}, {"temperature", nullptr}, {"top_p", nullptr}, {"tool_choice", "auto"},
                     {"tools", json::array()}, {"text", {{"format", {{"type", "text"}}}}}, {"truncation", "disabled"},
                     {"background", false}, {"reasoning", {{"effort", nullptr}, {"summary", nullptr}}}};
    // clang-format on
    for (auto& [name, value] : answer->asked.items())
        if (const json* given = f.find(name.c_str())) value = *given;
    try {
        submit_chat(answer, as_chat(f), f.integer("max_output_tokens", 1, INT32_MAX), f.flag("stream", false));
    } catch (api_error& e) {  // names what was wrong as this interface does
        for (const auto& [name, own] : kOwnNames)
            for (std::string* text : {&e.param, &e.message})
                if (text->rfind(name, 0) == 0) text->replace(0, std::strlen(name), own);
        throw;
    }
}

}  // namespace serve
