// tools/serve/ollama.cpp: as much of Ollama's interface as its clients need: /api/chat, /api/generate, /api/tags,
// /api/ps, /api/show, /api/version. /api/embed is in completions.cpp.
// Main path: routes.cpp -> [ollama.cpp] -> chat.h -> engine.h
#include "chat.h"

#include <ctime>

namespace serve {

namespace {

std::string time_text() {
    static std::mutex one_at_a_time;  // gmtime keeps its result in one place
    const std::lock_guard<std::mutex> lock(one_at_a_time);
    char text[40];
    const std::time_t now = std::time(nullptr);
    std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now));
    return text;
}

// clang-format off
json details(const server& s) {
    return {{"parent_model", ""}, {"format", "gguf"}, {"family", s.info.architecture},
            {"families", json::array({s.info.architecture})}, {"parameter_size", std::to_string(s.info.n_params / 1000000) + "M"},
            {"quantization_level", s.info.main_type}};
}
// clang-format on

// Options have the names of samplers, but for num_predict. There is one answer.
json as_chat_request(const fields& f) {
    json out = (f.inside("options").object("chat_template_kwargs"), f.inside("options").value());
    out.erase("n");
    out["stream"] = f.flag("stream", true);
    // 0 and -1: no limit; -2: until the context is full, which is the same here
    if (const json limit = out.value("num_predict", json()); !limit.is_null() && whole_number(limit).value_or(1) > 0)
        out["max_tokens"] = limit;
    if (const json* format = f.find("format")) {
        if (*format == "json") out["response_format"] = {{"type", "json_object"}};
        else if (format->is_object()) out["json_schema"] = *format;
        else if (*format != "") f.wrong("format", "\"json\" or a schema");
    }
    const int64_t n_top = f.integer("top_logprobs", 0, 20).value_or(0);
    if (f.flag("logprobs", false)) out.update({{"logprobs", true}, {"top_logprobs", n_top}});
    if (const json* tools = f.list("tools")) out["tools"] = *tools;
    if (const json* think = f.find("think")) {
        if (think->is_string()) out["reasoning_effort"] = *think;
        else if (think->is_boolean()) out["chat_template_kwargs"]["enable_thinking"] = *think;
        else f.wrong("think", "true, false, or an effort");
    }
    return out;
}

void refuse_images(const fields& f) {
    if (const json* images = f.list("images"); images && !images->empty())
        refuse_value(f.path("images"), "images are not supported", "unsupported_value");
}

// Messages with calls whose arguments are objects.
json openai_messages(const fields& f) {
    json out = json::array();
    std::vector<json> ids;  // of the calls, in whose order results without one come
    size_t n_results = 0;
    // some templates want nine characters
    const auto id = [](size_t n) { return json("call" + std::to_string(100000 + n % 100000).substr(1)); };
    for (const fields& asked : f.objects("messages", "a message")) {
        refuse_images(asked);
        json m = asked.value();
        if (!asked.find("content")) m["content"] = "";  // as an answer without text is sent back
        if (m.contains("thinking")) m["reasoning_content"] = m["thinking"];
        if (m.value("role", json()) == "tool" && !m.contains("tool_call_id"))
            m["tool_call_id"] = n_results < ids.size() ? ids[n_results++] : id(n_results++);
        size_t i_call = 0;
        for (const fields& told : asked.objects("tool_calls", "a call with a function")) {
            json& call = m["tool_calls"][i_call++];
            const json* arguments = told.inside("function").find("arguments");
            if (arguments && !arguments->is_string()) call["function"]["arguments"] = dump(*arguments);
            call["type"] = "function";
            if (!call.contains("id")) call["id"] = id(ids.size());
            ids.push_back(call["id"]);
        }
        out.push_back(std::move(m));
    }
    return out;
}

struct ollama_reply : reply {
    using reply::reply;
    json whole() override {
        const collected_answer& a = answers[0];
        return finished(line(a.text, a.thinking, a.calls));
    }
    // Calls are told whole.
    std::string piece(size_t, const answer_event& e) override {
        if (e.kind == DUET_CHAT_TEXT) return text_of(line(e.text, "", {}));
        if (e.kind == DUET_CHAT_THINKING) return text_of(line("", e.text, {}));
        return e.kind == DUET_CHAT_CALL_END ? text_of(line("", "", {answers[0].calls.back()})) : "";
    }
    std::string last() override { return text_of(finished(line("", "", {}))); }
    // A request without a prompt loads the model elsewhere, or unloads it.
    void answer_load(const fields& f) {
        json out = line("", "", {});
        const json* time = f.find("keep_alive");
        out.update({{"done", true}, {"done_reason", time && (*time == 0 || *time == "0s") ? "unload" : "load"}});
        exchange->answer(200, dump(out));
    }
    std::string stream_error(const std::string& message) override { return text_of({{"error", message}}); }
    const char* stream_type() const override { return "application/x-ndjson"; }
    const char* keep_alive() const override { return ""; }

  private:
    static std::string text_of(const json& value) { return dump(value) + "\n"; }
    size_t n_logprobs_ = 0;  // those that were told
    json line(std::string_view text, std::string_view thinking, const std::vector<tool_call>& calls) {
        json out = {{"model", host.id}, {"created_at", time_text()}};
        if (const size_t n = answers.empty() ? 0 : answers[0].logprobs.size(); n_logprobs_ < n)
            out["logprobs"] = logprobs_json(answers[0].logprobs, std::exchange(n_logprobs_, n));
        const bool is_chat = exchange->request.path == "/api/chat";
        json told = is_chat ? json{{"role", "assistant"}, {"content", text}} : json{{"response", text}};
        if (!thinking.empty()) told["thinking"] = thinking;
        // The index counts the answer's calls. LiteLLM wants it outside of the function, and joins calls without one.
        for (size_t i = answers.empty() ? 0 : answers[0].calls.size() - calls.size(); const tool_call& call : calls) {
            json function = {{"index", i}, {"name", call.name}, {"arguments", call_input(call.arguments)}};
            told["tool_calls"].push_back({{"id", call.id}, {"index", i++}, {"function", std::move(function)}});
        }
        out.update(is_chat ? json{{"message", std::move(told)}} : told);
        out["done"] = false;
        return out;
    }
    // clang-format off
    json finished(json out) const {
        const job& j = *jobs[0];
        const auto ns = [](double seconds) { return (int64_t)(std::max(0.0, seconds) * 1e9); };
        const double first = j.first_token_at > 0 ? j.first_token_at : j.ended_at;
        out.update({{"done", true}, {"done_reason", answers[0].reason == end_reason::length ? "length" : "stop"},
                    {"total_duration", ns(j.ended_at - j.submitted_at)}, {"load_duration", 0},
                    {"prompt_eval_count", j.prompt.size()}, {"prompt_eval_duration", ns(first - j.started_at)},
                    {"eval_count", j.n_new_tok}, {"eval_duration", ns(j.ended_at - first)}});
        return out;
    }
    // clang-format on
};

void answer_chat(const std::shared_ptr<ollama_reply>& answer, const fields& f, json messages) {
    if (messages.empty()) return answer->answer_load(f);
    json request = as_chat_request(f);
    request["messages"] = std::move(messages);
    submit_chat(answer, fields(request));
}

}  // namespace

void post_ollama_chat(server& s, exchange_ptr exchange, const fields& f) {
    answer_chat(std::make_shared<ollama_reply>(s, exchange), f, openai_messages(f));
}

void post_ollama_generate(server& s, exchange_ptr exchange, const fields& f) {
    const auto answer = std::make_shared<ollama_reply>(s, exchange);
    const std::string prompt = f.text("prompt").value_or("");
    refuse_images(f), f.text("template");
    if (!f.text("suffix").value_or("").empty()) refuse_value("suffix", "is not supported", "unsupported_value");
    if (prompt.empty()) return answer->answer_load(f);
    if (s.has_chat && !f.flag("raw", false)) {
        json messages = json::array();
        if (const auto system = f.text("system")) messages.push_back({{"role", "system"}, {"content", *system}});
        messages.push_back({{"role", "user"}, {"content", prompt}});
        return answer_chat(answer, f, std::move(messages));
    }
    if (!f.text("system").value_or("").empty()) refuse_value("system", "wants a chat template", "unsupported_value");
    json request = as_chat_request(f);
    request["prompt"] = prompt;
    if (request.contains("top_logprobs")) request["logprobs"] = request["top_logprobs"];
    submit_completion(answer, fields(request), nullptr, -1);
}

// clang-format off
// /api/tags and /api/ps: the one model is there, and loaded for ever.
void get_ollama_models(server& s, exchange_ptr exchange) {
    json model = {{"name", s.id}, {"model", s.id}, {"modified_at", time_text()}, {"size", s.info.weight_bytes},
                  {"digest", std::string(64, '0')}, {"details", details(s)}, {"expires_at", "2318-01-01T00:00:00Z"},
                  {"size_vram", s.plan.gpu_weight_bytes}, {"context_length", s.n_ctx}};
    exchange->answer(200, dump({{"models", json::array({std::move(model)})}}));
}

void post_ollama_show(server& s, exchange_ptr exchange, const fields& f) {
    if (const auto name = f.text("name")) check_name(s, *name);  // as older clients call the model
    const std::string architecture = s.info.architecture;
    json capabilities = json::array({s.info.is_encoder ? "embedding" : "completion"});
    if (s.has_tools) capabilities.push_back("tools");
    if (s.has_chat && template_text(s).find("think") != std::string::npos) capabilities.push_back("thinking");
    json about = {{"general.architecture", architecture}, {"general.basename", s.id},
                  {"general.parameter_count", s.info.n_params}, {architecture + ".context_length", s.n_ctx},
                  {architecture + ".embedding_length", s.info.dim}};
    exchange->answer(200, dump({{"modelfile", ""}, {"parameters", ""}, {"template", template_text(s)}, {"details", details(s)},
                                {"model_info", std::move(about)}, {"capabilities", std::move(capabilities)}}));
}
// clang-format on

// Whose interface this is: Copilot and others ask nothing of an Ollama that is too old for them (0.6.4).
void get_ollama_version(server&, exchange_ptr exchange) { exchange->answer(200, "{\"version\":\"0.12.6\"}"); }

}  // namespace serve
