// tools/serve/request.cpp: the fields that all requests for text share, checked, and the jobs that come of them.
#include "server.h"

#include <cmath>

namespace serve {

namespace {

constexpr size_t kMaxStops = 16, kMaxStopBytes = 1024, kMaxBiases = 1024, kMaxGrammarBytes = 1u << 20;

// The ranges of OpenAI's own fields, and the sampler that each sets. All other samplers have the table's ranges.
// clang-format off
constexpr struct { const char *field, *param; double min, max; } kOpenAiFields[] = {
    {"temperature", "temp", 0, 2},
    {"top_p", "top_p", 0, 1},
    {"frequency_penalty", "frequency_penalty", -2, 2},
    {"presence_penalty", "presence_penalty", -2, 2},
};
// clang-format on

bool is_openai_field(std::string_view name) {
    for (const auto& row : kOpenAiFields)
        if (name == row.field) return true;
    return false;
}

// The table's parameters by name: "dry.base" is also taken as "dry_base".
void read_samplers(const fields& f, common_fields* out) {
    for (const auto& row : kOpenAiFields)
        if (const auto value = f.number(row.field, row.min, row.max)) out->sampling.emplace_back(row.param, *value);
    const duet_sampler_param* row;
    for (int32_t i = 0; (row = duet_sampler_param_row(i)); i++) {
        std::string name = row->name;
        for (int k = 0; k < 2; k++) {
            if (!is_openai_field(name))
                if (const auto value = f.number(name.c_str(), row->min_value, row->max_value))
                    out->sampling.emplace_back(row->name, *value);
            if (name.find('.') == std::string::npos) break;
            name[name.find('.')] = '_';
        }
    }
}

void read_biases(const server& s, const fields& f, common_fields* out) {
    const json* biases = f.object("logit_bias");
    if (!biases) return;
    if (biases->size() > kMaxBiases) f.wrong("logit_bias", "at most " + std::to_string(kMaxBiases) + " entries");
    for (const auto& [key, value] : biases->items()) {
        int64_t id = 0;
        if (!parse_int(key, &id) || id < 0 || id >= s.info.n_vocab)
            refuse(400, "logit_bias: want ids of 0.." + std::to_string(s.info.n_vocab - 1) + ", got " + shown(key),
                   "logit_bias", "invalid_value");
        if (!value.is_number() || !(std::fabs(value.get<double>()) <= 100))
            refuse(400, "logit_bias: want numbers from -100 to 100, got " + shown(value), "logit_bias",
                   "invalid_value");
        out->biases.emplace_back((int32_t)id, (float)value.get<double>());
    }
}

// response_format, json_schema and grammar: at most one.
void read_form(const fields& f, common_fields* out) {
    int n = 0;
    if (const json* format = f.object("response_format")) {
        const fields inner(*format, "response_format.");
        const std::string type = inner.text("type").value_or("");
        if (type == "json_object") {
            const json* schema = inner.object("schema");
            out->json_schema = schema ? dump(*schema) : "{\"type\":\"object\"}";
        } else if (type == "json_schema") {
            const json* named = inner.object("json_schema");
            if (!named) inner.wrong("json_schema", "an object");
            const fields its(*named, "response_format.json_schema.");
            const json* schema = its.find("schema");
            if (!schema || (!schema->is_object() && !schema->is_boolean())) its.wrong("schema", "a schema");
            its.text("name");
            its.flag("strict", false);
            out->json_schema = dump(*schema);
        } else if (type != "text") inner.wrong("type", "\"text\", \"json_object\" or \"json_schema\"");
        n += type != "text";
    }
    if (const json* schema = f.find("json_schema")) {
        if (!schema->is_object() && !schema->is_boolean()) f.wrong("json_schema", "a schema");
        out->json_schema = dump(*schema);
        n++;
    }
    if (const auto gbnf = f.text("grammar"); gbnf && !gbnf->empty()) {
        out->gbnf = *gbnf;
        n++;
    }
    if (n > 1) refuse(400, "want one of response_format, json_schema and grammar", "response_format", "invalid_value");
    if (out->gbnf.size() + out->json_schema.size() > kMaxGrammarBytes)
        refuse(400, "a grammar or schema has at most 1 MiB", "response_format", "invalid_value");
    if (out->gbnf.find('\0') != std::string::npos)
        refuse(400, "grammar: holds a zero byte", "grammar", "invalid_value");
}

}  // namespace

bool is_sampler_field(std::string_view name) {
    if (is_openai_field(name)) return true;
    const duet_sampler_param* row;
    for (int32_t i = 0; (row = duet_sampler_param_row(i)); i++) {
        std::string own = row->name;
        if (name == own) return true;
        if (const size_t dot = own.find('.'); dot != std::string::npos) own[dot] = '_';
        if (name == own) return true;
    }
    return false;
}

void check_model(const server& s, const fields& f) {
    auto name = f.text("model");
    if (name && name->size() > 7 && name->substr(name->size() - 7) == ":latest") name->resize(name->size() - 7);
    if (!name || *name == s.id) return;
    for (const std::string& alias : s.options.aliases)
        if (*name == alias) return;
    refuse(404, "the model " + shown(*name) + " is not served here; " + shown(s.id) + " is", "model",
           "model_not_found");
}

std::vector<std::string> read_stops(const fields& f, const char* name) {
    std::vector<std::string> stops;
    const json* value = f.find(name);
    if (!value) return stops;
    const auto add = [&](const json& text) {
        if (!text.is_string()) f.wrong(name, "a string or a list of strings");
        const std::string stop = text.get<std::string>();
        if (stop.size() > kMaxStopBytes) f.wrong(name, "strings of at most 1024 bytes");
        if (stop.find('\0') != std::string::npos) f.wrong(name, "strings without zero bytes");
        if (!stop.empty()) stops.push_back(stop);
    };
    if (!value->is_array()) add(*value);
    else {
        if (value->size() > kMaxStops) f.wrong(name, "at most 16 strings");
        for (const json& text : *value) add(text);
    }
    return stops;
}

common_fields read_common(const server& s, const fields& f) {
    common_fields c;
    c.sampling = s.options.sampling;
    read_samplers(f, &c);
    read_biases(s, f, &c);
    c.stops = read_stops(f, "stop");
    const auto seed = f.integer("seed", INT64_MIN, INT64_MAX);
    c.seed = seed && *seed != -1 ? (uint64_t)*seed : random_seed();
    c.n = (int32_t)f.integer("n", 1, 16).value_or(1);
    c.uses_cache = f.flag("cache_prompt", true);
    c.ignore_end = f.flag("ignore_eos", false);
    c.is_stream = f.flag("stream", false);
    if (const json* options = f.object("stream_options")) {
        if (!c.is_stream) refuse(400, "stream_options: want stream to be true", "stream_options", "invalid_value");
        c.include_usage = fields(*options, "stream_options.").flag("include_usage", false);
    }
    read_form(f, &c);
    return c;
}

void check_length(const server& s, size_t n_prompt_tok, bool needs_room) {
    if (n_prompt_tok == 0) refuse(400, "the prompt is empty", "prompt", "invalid_value");
    if (n_prompt_tok + (needs_room ? 1 : 0) <= (size_t)s.n_ctx) return;
    // OpenAI's words: LiteLLM and others know the case by them, not by the code, and then ask a model that holds more
    refuse(400,
           "This model's maximum context length is " + std::to_string(s.n_ctx) + " tokens" +
               (needs_room ? " with the answer" : "") + "; the prompt has " + std::to_string(n_prompt_tok) + " tokens",
           "prompt", "context_length_exceeded");
}

void refuse_status(duet_status status, const std::string& text, const std::string& param) {
    refuse(status == DUET_ERR_MEMORY || status == DUET_ERR_INTERNAL ? 500 : 400, text, param, "invalid_value");
}

job_ptr make_job(const server& s, const common_fields& c, std::vector<int32_t> prompt, int32_t i_choice,
                 const duet_grammar* grammar) {
    auto j = std::make_shared<job>();
    duet_sampler* sampler = nullptr;
    const duet_status made = duet_sampler_create(c.seed + (uint64_t)i_choice * 0x9e3779b97f4a7c15u, &sampler);
    j->sampler.reset(sampler);
    const auto check = [&](duet_status status, const std::string& param) {
        if (status != DUET_OK) refuse_status(status, duet_sampler_error(sampler), param);
    };
    check(made, "");
    bool has_dry = false;
    for (const auto& [name, value] : c.sampling) {
        check(duet_sampler_set(sampler, name.c_str(), (float)value), name);
        if (name == "dry.multiplier") has_dry = value > 0;
    }
    for (const auto& [id, bias] : c.biases) check(duet_sampler_bias(sampler, id, bias), "logit_bias");
    if (c.ignore_end)
        for (int32_t id : s.end_ids) check(duet_sampler_bias(sampler, id, -INFINITY), "ignore_eos");
    if (has_dry)
        for (int32_t id : s.dry_breakers) check(duet_sampler_dry_breaker(sampler, id), "dry.multiplier");
    for (int32_t id : prompt) check(duet_sampler_accept(sampler, id), "prompt");
    if (grammar) check(duet_sampler_grammar(sampler, grammar), "grammar");
    j->prompt = std::move(prompt);
    j->i_choice = i_choice;
    j->max_new_tok = c.max_new_tok;
    j->n_logprobs = c.n_logprobs;
    j->uses_cache = c.uses_cache;
    return j;
}

std::vector<int32_t> tokenize_text(const server& s, const std::string& text, int32_t flags) {
    std::vector<int32_t> ids;
    tool_error error;
    if (tokenize(s.model, text, flags, &ids, &error) != DUET_OK) refuse_status(error.status, error.message, "prompt");
    return ids;
}

json token_bytes(std::string_view bytes) {
    json list = json::array();
    for (const char c : bytes) list.push_back((int)(uint8_t)c);
    return list;
}

}  // namespace serve
