// tools/template.cpp: the program `template` renders messages with a chat template. It also renders many JSON lines,
// for tests against a reference.
// Uses models/template.h and models/value.h beside runtime.h, until runtime.h has functions for chats.
// Main path: [tools/template.cpp] -> models/template
#include "../models/template.h"
#include "../models/value.h"
#include "args.h"
#include "common.h"

#include <sys/resource.h>

namespace {

struct template_options {
    std::string model_path, template_path, messages_path = "-", bos, eos;
    bool is_jsonl = false, no_prompt = false, has_origin = false;
    duet::template_time time;
};

// Parses "2026-01-02T03:04:05", or the same without the time. Returns "" if the text is one of these.
std::string parse_time(const std::string& text, duet::template_time* out) {
    int* const parts[] = {&out->year, &out->month, &out->day, &out->hour, &out->minute, &out->second};
    const int least[] = {1, 1, 1, 0, 0, 0}, most[] = {9999, 12, 31, 23, 59, 59};
    std::string form = text;
    for (char& c : form) c = c >= '0' && c <= '9' ? '0' : c;
    if (form != "0000-00-00T00:00:00" && form != "0000-00-00") return "want a time as 2026-01-02T03:04:05";
    const size_t at[] = {0, 5, 8, 11, 14, 17};
    for (int i = 0; i < (form.size() > 10 ? 6 : 3); i++) {
        *parts[i] = std::stoi(text.substr(at[i], i == 0 ? 4 : 2));
        if (*parts[i] < least[i] || *parts[i] > most[i]) return "want a time as 2026-01-02T03:04:05";
    }
    return "";
}

// The system's local time.
duet::template_time local_time() {
    const time_t now = std::time(nullptr);
    tm t = {};
    localtime_r(&now, &t);
    return {t.tm_year + 1900, t.tm_mon + 1, t.tm_mday, t.tm_hour, t.tm_min, t.tm_sec};
}

// Returns the string of a key of a GGUF file, or "" if there is none.
std::string string_of(const duet_file* file, const char* key, uint64_t i) {
    duet_string s = {};
    const int64_t i_kv = duet_file_find_kv(file, key);
    if (i_kv < 0 || duet_file_get_string(file, i_kv, i, &s) != DUET_OK) return "";
    return std::string(view_of(s));
}

std::string token_of(const duet_file* file, const char* key) {
    int64_t id = 0;
    const int64_t i_kv = duet_file_find_kv(file, key);
    if (i_kv < 0 || duet_file_get_int(file, i_kv, 0, &id) != DUET_OK || id < 0) return "";
    return string_of(file, "tokenizer.ggml.tokens", (uint64_t)id);
}

duet_status read_template(template_options* options, std::string* out, tool_error* error) {
    if (!options->template_path.empty()) return read_text(options->template_path, out, error);
    duet_file* opened = nullptr;
    const duet_status status = duet_file_open(options->model_path.c_str(), &opened);
    const file_ptr file(opened);
    if (status != DUET_OK) return error->set(status, duet_file_error(file.get()));
    *out = string_of(file.get(), "tokenizer.chat_template", 0);
    if (out->empty()) return error->set(DUET_ERR_UNSUPPORTED, options->model_path + ": the file has no chat template");
    if (options->bos.empty()) options->bos = token_of(file.get(), "tokenizer.ggml.bos_token_id");
    if (options->eos.empty()) options->eos = token_of(file.get(), "tokenizer.ggml.eos_token_id");
    return DUET_OK;
}

// Collects the variables that a template sees. input is a list of messages, or an object with messages, tools and other
// variables.
duet::value variables_of(const duet::value& input, const template_options& options) {
    std::vector<duet::value_member> members;
    auto add = [&](const char* name, duet::value v) {
        members.push_back({duet::value::of_string(name), std::move(v)});
    };
    add("messages", input.is_map() ? duet::value() : input);
    add("tools", {});
    add("documents", {});
    add("add_generation_prompt", duet::value::of_bool(!options.no_prompt));
    if (!options.bos.empty()) add("bos_token", duet::value::of_trusted(options.bos));
    if (!options.eos.empty()) add("eos_token", duet::value::of_trusted(options.eos));
    if (input.is_map()) members.insert(members.end(), input.members().begin(), input.members().end());
    return duet::value::of_map(std::move(members));
}

// Shows the text with all bytes from the messages in {{...}}, then one line for each message that says where it begins.
std::string with_origin(const duet::rendered_template& rendered) {
    std::string out;
    bool is_input = false;
    for (size_t i = 0; i < rendered.text.size(); i++) {
        if (rendered.text.is_input_at(i) != is_input) out += is_input ? "}}" : "{{";
        is_input = rendered.text.is_input_at(i);
        out += rendered.text.bytes[i];
    }
    out += is_input ? "}}\n" : "\n";
    for (size_t i = 0; i < rendered.message_starts.size(); i++)
        out += "message " + std::to_string(i) + " at byte " + std::to_string(rendered.message_starts[i]) + "\n";
    return out;
}

duet_status put(std::string_view bytes, tool_error* error) {
    const bool is_good = std::fwrite(bytes.data(), 1, bytes.size(), stdout) == bytes.size() && std::fflush(stdout) == 0;
    return is_good ? DUET_OK : error->set(DUET_ERR_IO, std::string("writing failed: ") + std::strerror(errno));
}

duet_status render_one(template_options& options, tool_error* error) {
    std::string source, json;
    if (read_template(&options, &source, error) != DUET_OK) return error->status;
    if (read_text(options.messages_path, &json, error) != DUET_OK) return error->status;
    duet::error_text err;
    duet::value input;
    duet::chat_template chat;
    duet::rendered_template rendered;
    duet_status status = duet::parse_json(json, &input, err);
    if (status == DUET_OK) status = duet::chat_template::compile(source, &chat, err);
    if (status == DUET_OK) status = chat.render(variables_of(input, options), options.time, &rendered, err);
    if (status != DUET_OK) return error->set(status, err.text);
    return put(options.has_origin ? with_origin(rendered) : rendered.text.bytes, error);
}

// ---- JSON lines ----

bool from_hex(std::string_view hex, std::string* out) {
    for (size_t i = 0; i + 1 < hex.size(); i += 2) {
        uint8_t byte = 0;
        const auto r = std::from_chars(hex.data() + i, hex.data() + i + 2, byte, 16);
        if (r.ptr != hex.data() + i + 2) return false;
        *out += (char)byte;
    }
    return hex.size() % 2 == 0;
}

// Renders one line {"t": template, or "hex": its bytes, "v": variables}. If it returns false, err says why.
bool render_line(std::string_view line, const template_options& options, std::string* out, duet::error_text& err) {
    duet::json_limits limits;
    limits.max_depth = 500;
    duet::value job;
    if (duet::parse_json(line, &job, err, limits) != DUET_OK) return false;
    const duet::value *source = job.find("t"), *hex = job.find("hex"), *variables = job.find("v");
    std::string bytes;
    if (hex && hex->is_string() && !from_hex(hex->as_string(), &bytes)) return err.text = "want hex bytes", false;
    if (source && source->is_string()) bytes = source->as_string();
    duet::chat_template chat;
    duet::rendered_template rendered;
    if (duet::chat_template::compile(bytes, &chat, err) != DUET_OK) return false;
    if (chat.render(variables ? *variables : duet::value::of_map({}), options.time, &rendered, err) != DUET_OK)
        return false;
    *out = std::move(rendered.text.bytes);
    return true;
}

double cpu_seconds(const rusage& usage) {
    return (double)usage.ru_utime.tv_sec + (double)usage.ru_stime.tv_sec +
           1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

duet_status answer_lines(const template_options& options, tool_error* error) {
    std::string input;
    if (read_text("-", &input, error) != DUET_OK) return error->status;
    for (size_t begin = 0; begin < input.size();) {
        const size_t end = std::min(input.find('\n', begin), input.size());
        rusage before = {}, after = {};
        getrusage(RUSAGE_SELF, &before);
        std::string out;
        duet::error_text err;
        const bool is_good = render_line(std::string_view(input).substr(begin, end - begin), options, &out, err);
        getrusage(RUSAGE_SELF, &after);
        std::vector<duet::value_member> members;
        auto add = [&](const char* name, duet::value v) {
            members.push_back({duet::value::of_string(name), std::move(v)});
        };
        add(is_good ? "expected" : "error", duet::value::of_string(is_good ? out : err.text));
        add("cpu", duet::value::of_double(cpu_seconds(after) - cpu_seconds(before)));
        add("maxrss_kb", duet::value::of_int(after.ru_maxrss));
        duet::traced_text line;
        duet::json_style style;
        style.ensure_ascii = true;
        if (duet::write_json(duet::value::of_map(std::move(members)), style, &line, err) != DUET_OK)
            return error->set(DUET_ERR_ARG, err.text);
        line.append("\n", false);
        if (put(line.bytes, error) != DUET_OK) return error->status;
        begin = end + 1;
    }
    return DUET_OK;
}

}  // namespace

int main(int argc, char** argv) {
    template_options options;
    options.time = local_time();
    tool_args args(
        "template", "(-m model.gguf | -t TEMPLATE) [-f messages.json] [options]",
        "Renders messages (a JSON list, or an object with messages, tools and other variables) with a chat template.");
    args.text("-m, --model", "FILE", "take the template, BOS and EOS from a GGUF file", &options.model_path);
    args.text("-t, --template", "FILE", "the template, a text file", &options.template_path);
    args.text("-f, --file", "FILE", "the messages; - is stdin (default)", &options.messages_path);
    args.flag("--no-generation-prompt", "add_generation_prompt is false", &options.no_prompt);
    args.text("--bos", "TEXT", "the variable bos_token", &options.bos);
    args.text("--eos", "TEXT", "the variable eos_token", &options.eos);
    args.call("--now", "TIME", "what strftime_now takes for now, as 2026-01-02T03:04:05 (default: the system's time)",
              [&](const std::string& text) { return parse_time(text, &options.time); });
    args.flag("--origin", "show in {{...}} what came from the messages, and where each message begins",
              &options.has_origin);
    args.flag(
        "--jsonl",
        "answer lines {\"t\": template, \"v\": variables} of stdin with {\"expected\": text} or {\"error\": text}",
        &options.is_jsonl);
    if (int code; !args.parse(argc, argv, &code)) return code;
    const int n_sources = !options.model_path.empty() + !options.template_path.empty() + options.is_jsonl;
    if (n_sources != 1) return args.usage_error("want one of -m FILE, -t FILE and --jsonl"), kExitUsage;
    return finish_tool("template", [&](tool_error* error) {
        return options.is_jsonl ? answer_lines(options, error) : render_one(options, error);
    });
}
