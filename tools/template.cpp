// tools/template.cpp: the program `template` renders messages with a chat template. It also renders many JSON lines,
// for tests against a reference.
// Main path: [tools/template.cpp] -> runtime.h -> models/template
#include "common.h"
#include "json.h"

namespace {

struct template_options {
    model_options model;
    std::string template_path, messages_path = "-", bos, eos, now;
    bool is_jsonl = false, no_prompt = false, shows_ids = false;
};

// Renders a template with variables, which are JSON.
duet_status render(std::string_view source, std::string_view variables, const template_options& options,
                   std::string* out, tool_error* error) {
    const char* now = options.now.empty() ? nullptr : options.now.c_str();
    const duet_status status = fill_sized(1 << 16, out, [&](auto* to, size_t* n_bytes) {
        return duet_template_render(source.data(), source.size(), variables.data(), variables.size(), now, to->data(),
                                    to->size(), n_bytes);
    });
    return status == DUET_OK ? DUET_OK : error->set(status, duet_chat_error(nullptr));
}

// Returns the variables that a template sees. input is a list of messages, or an object with messages, tools and other
// variables, to which the others are added.
std::string variables_of(std::string_view input, const template_options& options) {
    const bool is_object = input.starts_with('{') && input.ends_with('}');
    std::string out = is_object ? std::string(input, 0, input.size() - 1) : "{\"messages\":" + std::string(input);
    bool is_empty = is_object && json_members(input).empty();
    auto add = [&](const char* name, const std::string& value) {
        if (is_object && !json_find(input, name).empty()) return;
        out += (is_empty ? "\"" : ",\"") + std::string(name) + "\":" + value;
        is_empty = false;
    };
    add("tools", "null");
    add("documents", "null");
    add("add_generation_prompt", options.no_prompt ? "false" : "true");
    if (!options.bos.empty()) add("bos_token", json_string(options.bos));
    if (!options.eos.empty()) add("eos_token", json_string(options.eos));
    return out + "}";
}

// Renders messages as a chat with the model does.
duet_status render_chat(const template_options& options, std::string_view input, tool_error* error) {
    model_ptr model;
    if (open_model(options.model, &model, error)) return error->status;
    const bool is_object = input.starts_with('{');
    std::string variables = "{";
    for (const json_member& m : json_members(is_object ? input : ""))
        if (m.name != "messages" && m.name != "tools" && m.name != "documents" && m.name != "add_generation_prompt")
            variables += (variables.size() > 1 ? "," : "") + json_string(m.name) + ":" + std::string(m.value);
    variables += "}";
    const bool has_answer = !options.no_prompt && !(is_object && json_find(input, "add_generation_prompt") == "false");
    const std::string messages(is_object ? json_find(input, "messages") : input);
    const std::string tools(is_object ? json_find(input, "tools") : "");
    const std::string documents(is_object ? json_find(input, "documents") : "");
    duet_chat_params params = duet_chat_params_default();
    params.tools = tools.empty() ? nullptr : tools.c_str();
    params.documents = documents.empty() ? nullptr : documents.c_str();
    params.variables = variables.c_str();
    params.now = options.now.empty() ? nullptr : options.now.c_str();
    duet_chat* made = nullptr;
    auto prompt = sized<duet_chat_prompt>();
    duet_status status = duet_chat_create(model.get(), &params, &made);
    const chat_ptr chat(made);
    if (!status) status = duet_chat_insert(made, -1, messages.data(), messages.size());
    if (!status) status = duet_chat_render(made, has_answer ? 0 : DUET_CHAT_NO_ANSWER, &prompt);
    if (status) return error->set(status, duet_chat_error(made));
    if (!options.shows_ids) return write_stdout(view_of(prompt.text), error);
    std::string ids = "[";
    for (size_t i = 0; i < prompt.n_ids; i++) ids += (i ? ", " : "") + std::to_string(prompt.ids[i]);
    return write_stdout(ids + "]\n", error);
}

duet_status render_one(template_options& options, tool_error* error) {
    std::string source, input, out;
    if (read_text(options.messages_path, &input, error) != DUET_OK) return error->status;
    // Broken JSON is told by its places in the file. A list is no object, as variables are, and good.
    if (render(" ", input, options, &out, error) == DUET_ERR_ARG) *error = {};
    if (error->status) return error->status;
    if (options.template_path.empty()) return render_chat(options, trimmed(input), error);
    if (read_text(options.template_path, &source, error) != DUET_OK) return error->status;
    if (render(source, variables_of(trimmed(input), options), options, &out, error) != DUET_OK) return error->status;
    return write_stdout(out, error);
}

// ---- JSON lines ----

bool from_hex(std::string_view hex, std::string* out) {
    for (size_t i = 0; i + 1 < hex.size(); i += 2) {
        uint8_t byte = 0;
        if (std::from_chars(hex.data() + i, hex.data() + i + 2, byte, 16).ptr != hex.data() + i + 2) return false;
        *out += (char)byte;
    }
    return hex.size() % 2 == 0;
}

// Renders one line {"t": template, or "hex": its bytes, "v": variables}.
duet_status render_line(std::string_view line, const template_options& options, std::string* out, tool_error* error) {
    const std::string_view text = json_find(line, "t"), hex = json_find(line, "hex"), variables = json_find(line, "v");
    std::string source = hex.empty() ? json_text(text) : "";
    if ((text.empty() && hex.empty()) || !from_hex(json_text(hex), &source))
        return error->set(DUET_ERR_FORMAT, "want {\"t\": template, or \"hex\": its bytes, \"v\": variables}");
    return render(source, variables.empty() ? "{}" : variables, options, out, error);
}

duet_status answer_lines(const template_options& options, tool_error* error) {
    std::string input;
    if (read_text("-", &input, error) != DUET_OK) return error->status;
    for (size_t begin = 0; begin < input.size();) {
        const size_t end = std::min(input.find('\n', begin), input.size());
        const os::usage before = os::usage_now();
        std::string out;
        tool_error wrong;
        const bool is_good =
            render_line(std::string_view(input).substr(begin, end - begin), options, &out, &wrong) == DUET_OK;
        const os::usage after = os::usage_now();
        char numbers[96];
        std::snprintf(numbers, sizeof numbers, ",\"cpu\":%.6f,\"maxrss_kb\":%ld}\n",
                      after.cpu_seconds - before.cpu_seconds, after.peak_kib);
        const std::string answer = json_string(is_good ? out : wrong.message);
        if (write_stdout((is_good ? "{\"expected\":" : "{\"error\":") + answer + numbers, error)) return error->status;
        begin = end + 1;
    }
    return DUET_OK;
}

}  // namespace

int main(int argc, char** argv) {
    template_options options;
    options.model.vocab_only = true;
    tool_args args(
        "template", "(-m model.gguf | -t TEMPLATE) [-f messages.json] [options]",
        "Renders messages (a JSON list, or an object with messages, tools and other variables) with a chat template.");
    args.text("-m, --model", "FILE", "render as a chat with this model does", &options.model.path);
    args.text("-t, --template", "FILE", "the template, a text file", &options.template_path);
    args.text("-f, --file", "FILE", "the messages; - is stdin (default)", &options.messages_path);
    args.flag("--no-generation-prompt", "end at the last message (add_generation_prompt is false)", &options.no_prompt);
    args.flag("--ids", "print the prompt's token ids (with -m)", &options.shows_ids);
    args.text("--bos", "TEXT", "the variable bos_token (with -t)", &options.bos);
    args.text("--eos", "TEXT", "the variable eos_token (with -t)", &options.eos);
    args.text("--now", "TIME", "what strftime_now takes for now, as 2026-01-02T03:04:05 (default: the system's time)",
              &options.now);
    args.flag(
        "--jsonl",
        "answer lines {\"t\": template, \"v\": variables} of stdin with {\"expected\": text} or {\"error\": text}",
        &options.is_jsonl);
    if (int code; !args.parse(argc, argv, &code)) return code;
    const int n_sources = !options.model.path.empty() + !options.template_path.empty() + options.is_jsonl;
    if (n_sources != 1) return args.usage_error("want one of -m FILE, -t FILE and --jsonl");
    if (options.shows_ids && options.model.path.empty()) return args.usage_error("--ids wants -m FILE");
    if (!options.model.path.empty() && !(options.bos + options.eos).empty())
        return args.usage_error("--bos and --eos want -t FILE");
    return finish_tool("template", [&](tool_error* error) {
        return options.is_jsonl ? answer_lines(options, error) : render_one(options, error);
    });
}
