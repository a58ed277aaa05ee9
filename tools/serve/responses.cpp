// tools/serve/responses.cpp: POST /v1/responses, OpenAI's newer interface, without state: nothing is stored.
// Main path: routes.cpp -> [responses.cpp] -> chat.h -> engine.h
#include "chat.h"

namespace serve {

namespace {

// An item of the input becomes a message. Calls belong to the message of the assistant before them, and a message of
// the assistant or a call to what was thought before it.
void add_item(const fields& i, json* messages) {
    const std::string type = i.text("type").value_or("message");
    const bool joins = !messages->empty() && messages->back()["role"] == "assistant";
    const auto parts = [&](const char* name) {
        const json* content = i.find(name);
        if (!content || (type == "message" && content->empty())) i.wrong(name, "a text or a list of parts");
        return text_of_parts(*content, i.path(name));
    };
    if (type == "message") {
        const std::string role = i.need_choice("role", {"system", "developer", "user", "assistant"});
        const bool has_thoughts = joins && role == "assistant" && messages->back().size() == 2 &&
                                  messages->back().contains("reasoning_content");
        if (!has_thoughts) messages->push_back({{"role", role}});
        messages->back()["content"] = parts("content");
    } else if (type == "function_call") {
        if (!joins) messages->push_back({{"role", "assistant"}});
        json call = call_json(i.need_text("call_id"), i.need_text("name"), i.need_text("arguments"));
        messages->back()["tool_calls"].push_back(std::move(call));
    } else if (type == "function_call_output") {
        messages->push_back({{"role", "tool"}, {"tool_call_id", i.need_text("call_id")}, {"content", parts("output")}});
    } else if (type == "reasoning") {  // one that is encrypted, or only summed up, has no content
        if (const json* told = i.list("content"); told && !told->empty())
            messages->push_back({{"role", "assistant"}, {"reasoning_content", parts("content")}});
    } else if (type == "item_reference") {  // by which the AI SDK names what an earlier answer brought
        refuse_value(i.path("id"), "nothing is stored here: want the item itself, as it comes with store: false");
    } else i.wrong("type", "message, function_call, function_call_output or reasoning");
}

// Fields of /v1/chat/completions, and what they are called here.
// clang-format off
constexpr std::pair<const char*, const char*> kOwnNames[] = {
    {"messages", "input"}, {"reasoning_effort", "reasoning.effort"},
    {"response_format.json_schema", "text.format"}, {"response_format", "text.format"},
};
// clang-format on

// The request in the fields of /v1/chat/completions, so that one place reads them.
json as_chat(const fields& f) {
    json out = copy_fields(f, {"temperature", "top_p", "top_k", "min_p", "seed", "parallel_tool_calls", "cache_prompt",
                               "chat_template_kwargs", "stream"});
    out["messages"] = json::array();
    if (const auto instructions = f.text("instructions"))
        out["messages"].push_back({{"role", "system"}, {"content", *instructions}});
    const json* input = f.find("input");
    if (!input || (!input->is_string() && !input->is_array()) || *input == json::array())
        f.wrong("input", "a text or a list of items");
    if (input->is_string()) out["messages"].push_back({{"role", "user"}, {"content", *input}});
    else
        for (const fields& item : f.objects("input", "an item")) add_item(item, &out["messages"]);
    // Codex names searches and others that OpenAI runs beside its functions: the model does not hear of them.
    for (const fields& tool : f.objects("tools", "a function"))
        if (tool.need_text("type") == "function")
            out["tools"].push_back({{"type", "function"},
                                    {"function", copy_fields(tool, {"name", "description", "parameters", "strict"})}});
    if (const json* tools = f.find("tools"); tools && !tools->empty() && !out.contains("tools"))
        refuse_value("tools", "only functions are supported, got " + shown((*tools)[0]), "unsupported_value");
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
    out["max_tokens"] = read_limit(f, "max_output_tokens", 1, -1);
    // Log probabilities of the text come when they are asked for: top_logprobs alone changes nothing.
    const int64_t n_top = f.integer("top_logprobs", 0, 20).value_or(0);
    const json* include = f.list("include");
    if (include && std::find(include->begin(), include->end(), "message.output_text.logprobs") != include->end())
        out.update({{"logprobs", true}, {"top_logprobs", n_top}});
    return out;
}

struct response_reply : reply {
    using reply::reply;
    const std::string id = random_id("resp_");
    const int64_t created = unix_time();
    json asked;  // fields that go back as they came

    json whole() override {
        tell_whole();
        if (items_.empty() && item_.is_null()) piece(0, {DUET_CHAT_TEXT, -1, ""});
        close(status());
        return response(status());
    }

    std::string first(size_t) override {
        const json begun = response("in_progress");
        const std::string made = event("response.created", {{"response", begun}});
        return made + event("response.in_progress", {{"response", begun}});
    }

    // clang-format off
    std::string piece(size_t, const answer_event& e) override {
        if (e.kind == DUET_CHAT_TEXT) {
            std::string out;
            if (!is_open("message")) {
                out = open({{"id", random_id("msg_")}, {"type", "message"}, {"status", "in_progress"}, {"role", "assistant"},
                            {"content", json::array()}});
                out += event("response.content_part.added", place({{"content_index", 0}, {"part", text_part()}}));
            }
            const std::vector<token_logprob>& all = answers[0].text_logprobs;
            json logprobs = logprobs_json(all, std::exchange(n_logprobs_, all.size()));
            logprobs_.insert(logprobs_.end(), logprobs.begin(), logprobs.end());
            return out + delta(e.text, {{"content_index", 0}, {"delta", e.text}, {"logprobs", std::move(logprobs)}});
        }
        if (e.kind == DUET_CHAT_THINKING) {
            std::string out;
            if (!is_open("reasoning"))
                out = open({{"id", random_id("rs_")}, {"type", "reasoning"}, {"summary", json::array()}, {"content", json::array()}});
            return out + delta(e.text, {{"content_index", 0}, {"delta", e.text}});
        }
        if (e.kind == DUET_CHAT_CALL_BEGIN)
            return open({{"id", random_id("fc_")}, {"type", "function_call"}, {"status", "in_progress"}, {"call_id", e.call_id},
                         {"name", e.text}, {"arguments", ""}});
        return e.kind == DUET_CHAT_CALL_PIECE ? delta(e.text, {{"delta", e.text}}) : "";
    }
    // clang-format on

    std::string last() override {
        std::string end = items_.empty() && item_.is_null() ? piece(0, {DUET_CHAT_TEXT, -1, ""}) : "";
        end += close(status());
        json done = whole();
        const std::string name = "response." + done["status"].get<std::string>();
        return end + event(name.c_str(), {{"response", std::move(done)}});
    }

    std::string stream_error(const std::string& message) override {
        return event("error", {{"code", "server_error"}, {"message", message}, {"param", nullptr}});
    }

  private:
    // Of the answer, and of the item that its end finds open.
    const char* status() const { return answers[0].reason == end_reason::length ? "incomplete" : "completed"; }
    // clang-format off
    json response(const std::string& status) const {
        json out = {{"id", id}, {"object", "response"}, {"created_at", created}, {"status", status}, {"error", nullptr},
                    {"incomplete_details", nullptr}, {"model", host.id}, {"output", items_}, {"store", false},
                    {"previous_response_id", nullptr}};
        out.update(asked);
        if (status == "in_progress") return out;
        if (status == "incomplete") out["incomplete_details"] = {{"reason", "max_output_tokens"}};
        const usage_counts u = count_usage(jobs);
        out["usage"] = {{"input_tokens", u.n_prompt}, {"input_tokens_details", {{"cached_tokens", u.n_cached}}},
                        {"output_tokens", u.n_new}, {"output_tokens_details", {{"reasoning_tokens", u.n_thinking}}},
                        {"total_tokens", u.n_prompt + u.n_new}};
        return out;
    }
    json text_part() const {
        return {{"type", "output_text"}, {"text", text_}, {"annotations", json::array()}, {"logprobs", logprobs_}};
    }
    // clang-format on
    std::string event(const char* name, json body) {
        body["sequence_number"] = n_events_++;
        return sse(name, body);
    }
    // The events that tell a kind's text begin alike: with these words, then ".delta" or ".done".
    std::string text_event(const char* end, json body) {
        const std::string words = is_open("message")     ? "output_text"
                                  : is_open("reasoning") ? "reasoning_text"
                                                         : "function_call_arguments";
        return event(("response." + words + end).c_str(), place(std::move(body)));
    }
    // Which item an event is about.
    json place(json body) const {
        json out = {{"item_id", item_["id"]}, {"output_index", items_.size()}};
        out.update(body);
        return out;
    }
    bool is_open(const char* type) const { return !item_.is_null() && item_["type"] == type; }
    std::string open(json item) {
        const std::string end = close("completed");
        item_ = std::move(item);
        return end + event("response.output_item.added", {{"output_index", items_.size()}, {"item", item_}});
    }
    std::string delta(std::string_view text, json body) {
        text_ += text;
        return text_event(".delta", std::move(body));
    }
    // Tells that the open item is whole, and keeps it.
    std::string close(const char* status) {
        if (item_.is_null()) return "";
        if (item_.contains("status")) item_["status"] = status;
        std::string out;
        if (is_open("message")) {
            item_["content"].push_back(text_part());
            out = text_event(".done", {{"content_index", 0}, {"text", text_}, {"logprobs", logprobs_}});
            out += event("response.content_part.done", place({{"content_index", 0}, {"part", text_part()}}));
        } else if (is_open("reasoning")) {
            item_["content"].push_back({{"type", "reasoning_text"}, {"text", text_}});
            out = text_event(".done", {{"content_index", 0}, {"text", text_}});
        } else {
            item_["arguments"] = text_;
            out = text_event(".done", {{"name", item_["name"]}, {"arguments", text_}});
        }
        out += event("response.output_item.done", {{"output_index", items_.size()}, {"item", item_}});
        items_.push_back(std::exchange(item_, nullptr));
        logprobs_ = json::array();
        text_.clear();
        return out;
    }

    // Those that are whole; the open one, null: none; and what it has.
    json items_ = json::array(), item_, logprobs_ = json::array();
    std::string text_;
    size_t n_logprobs_ = 0;  // those that were told
    int n_events_ = 0;
};

}  // namespace

void post_responses(server& s, exchange_ptr exchange, const fields& f) {
    for (const char* name : {"previous_response_id", "conversation", "prompt"})
        if (f.find(name)) refuse_value(name, "nothing is stored here", "unsupported_value");
    if (f.flag("background", false)) refuse_value("background", "nothing is stored here", "unsupported_value");
    f.object("metadata"), f.flag("store", false), f.inside("stream_options").flag("include_obfuscation", false);
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
        submit_chat(answer, fields(as_chat(f)));
    } catch (api_error& e) {  // names what was wrong as this interface does
        for (const auto& [name, own] : kOwnNames)
            for (std::string* text : {&e.param, &e.message})
                if (text->rfind(name, 0) == 0) text->replace(0, std::strlen(name), own);
        throw;
    }
}

}  // namespace serve
