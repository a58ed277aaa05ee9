// tools/serve/request.cpp: the fields that all requests for text share, checked, and the jobs that come of them.
#include "server.h"

#include <cmath>

namespace serve {

namespace {

constexpr size_t kMaxStops = 16, kMaxStopBytes = 1024, kMaxBiases = 1024, kMaxGrammarBytes = 1u << 20;

// The ranges of OpenAI's own fields, and the sampler that each sets. All other samplers have the table's ranges.
// clang-format off
constexpr struct { const char *field, *param; double min, max; } kOpenAiFields[] = {
    {"temperature", "temp", 0, 2}, {"frequency_penalty", "frequency_penalty", -2, 2},
    {"top_p", "top_p", 0, 1}, {"presence_penalty", "presence_penalty", -2, 2},
};
// clang-format on

// OpenAI's fields, and the table's parameters by name, of which "dry.base" is also taken as "dry_base".
void read_samplers(const fields& f, common_fields* out) {
    const auto read = [&](const std::string& field, const char* param, double min, double max) {
        if (const auto value = f.number(field.c_str(), min, max)) out->sampling.emplace_back(param, *value);
    };
    for (const auto& row : kOpenAiFields) read(row.field, row.param, row.min, row.max);
    const auto mirostat = f.number("mirostat", 0, 2);  // the switch of Ollama and llama.cpp
    if (mirostat.value_or(0) > 0) out->sampling.emplace_back("mirostat.tau", 5);
    const duet_sampler_param* row;
    for (int32_t i = 0; (row = duet_sampler_param_row(i)); i++) {
        std::string name = row->name;
        if (std::ranges::any_of(kOpenAiFields, [&](const auto& own) { return name == own.field; })) continue;
        if (mirostat == 0 && name.rfind("mirostat", 0) == 0) continue;
        const bool is_off = name == "top_k" && f.value().value("top_k", json()) == -1;  // none, as vLLM has it
        is_off ? void(out->sampling.emplace_back("top_k", 0)) : read(name, row->name, row->min_value, row->max_value);
        std::replace(name.begin(), name.end(), '.', '_');
        if (name != row->name) read(name, row->name, row->min_value, row->max_value);
    }
}

void read_biases(const server& s, const fields& f, common_fields* out) {
    const fields biases = f.inside("logit_bias");
    if (biases.value().size() > kMaxBiases) f.wrong("logit_bias", "at most " + std::to_string(kMaxBiases) + " entries");
    for (const auto& [key, value] : biases.value().items()) {
        int64_t id = 0;
        if (!parse_int(key, &id) || id < 0 || id >= s.info.n_vocab || value.is_null())
            f.wrong("logit_bias", "ids of 0.." + std::to_string(s.info.n_vocab - 1) + " and numbers");
        out->biases.emplace_back((int32_t)id, (float)*biases.number(key.c_str(), -100, 100));
    }
}

// response_format, json_schema and grammar: at most one.
void read_form(const fields& f, common_fields* out) {
    const auto schema_of = [](const fields& in, const char* name) {
        const json* schema = in.find(name);
        if (!schema || (!schema->is_object() && !schema->is_boolean())) in.wrong(name, "a schema");
        return dump(*schema);
    };
    out->gbnf = f.text("grammar").value_or("");
    const fields format = f.inside("response_format"), named = format.inside("json_schema");
    const bool has_format = f.object("response_format"), has_schema = f.find("json_schema");
    const std::string type = has_format ? format.need_choice("type", {"text", "json_object", "json_schema"}) : "text";
    if ((type != "text") + has_schema + !out->gbnf.empty() > 1)
        refuse_value("response_format", "want one of response_format, json_schema and grammar");
    named.text("name"), named.flag("strict", false);
    if (has_schema) out->json_schema = schema_of(f, "json_schema");
    else if (type == "json_schema") out->json_schema = schema_of(named, "schema");
    else if (type == "json_object")
        out->json_schema = format.find("schema") ? schema_of(format, "schema") : "{\"type\":\"object\"}";
    if (out->gbnf.size() + out->json_schema.size() > kMaxGrammarBytes)
        refuse_value("response_format", "a grammar or schema has at most 1 MiB");
    if (out->gbnf.find('\0') != std::string::npos) refuse_value("grammar", "holds a zero byte");
}

}  // namespace

void check_name(const server& s, const std::string& name) {
    for (const std::string& own : s.options.names)
        if (name == own || name == own + ":latest") return;
    refuse(404, "the model " + shown(name) + " is not served here; " + shown(s.id) + " is", "model", "model_not_found");
}

std::vector<std::string> read_stops(const fields& f, const char* name) {
    std::vector<std::string> stops;
    const json* value = f.find(name);
    if (!value) return stops;
    const json list = value->is_array() ? *value : json::array({*value});
    if (list.size() > kMaxStops) f.wrong(name, "at most 16 strings");
    for (const json& text : list) {
        const std::string stop = text.is_string() ? text.get<std::string>() : "";
        if (!text.is_string() || stop.size() > kMaxStopBytes || stop.find('\0') != std::string::npos)
            f.wrong(name, "a string or a list of strings, of at most 1024 bytes, without zero bytes");
        if (!stop.empty()) stops.push_back(stop);
    }
    return stops;
}

common_fields read_common(const server& s, const fields& f) {
    if (s.info.is_encoder) refuse(400, "this model makes vectors and no text: ask /v1/embeddings", "model");
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
    if (f.object("stream_options") && !c.is_stream) refuse_value("stream_options", "want stream to be true");
    c.include_usage = f.inside("stream_options").flag("include_usage", false);
    read_form(f, &c);
    return c;
}

int32_t read_limit(const fields& f, const char* name, int32_t least, int32_t otherwise) {
    const json* value = f.find(name);
    return value && whole_number(*value) == -1 ? -1 : (int32_t)f.integer(name, least, INT32_MAX).value_or(otherwise);
}

void check_length(const server& s, size_t n_prompt_tok, const char* param, bool needs_room) {
    if (n_prompt_tok == 0) refuse_value(param, "is empty");
    const size_t n_most = (size_t)s.n_ctx - needs_room;
    if (n_prompt_tok <= n_most) return;
    // OpenAI's words, then Anthropic's: LiteLLM, Claude Code and others know the case by them, not by the code
    refuse(400,
           "This model's maximum context length is " + std::to_string(s.n_ctx) + " tokens; prompt is too long: " +
               std::to_string(n_prompt_tok) + " tokens > " + std::to_string(n_most) + " maximum",
           param, "context_length_exceeded");
}

void refuse_status(duet_status status, const std::string& text, const std::string& param) {
    refuse(status == DUET_ERR_MEMORY || status == DUET_ERR_INTERNAL ? 500 : 400, text, param, "invalid_value");
}

std::vector<const char*> common_fields::stop_pointers() const {
    std::vector<const char*> out;
    for (const std::string& stop : stops) out.push_back(stop.c_str());
    return out;
}

job_ptr make_job(const server& s, const common_fields& c, std::vector<int32_t> prompt, int32_t i_choice,
                 const duet_grammar* grammar) {
    auto j = std::make_shared<job>();
    j->sampler = make_or_refuse(duet_sampler_error, "", [&](duet_sampler** made) {
        return duet_sampler_create(c.seed + (uint64_t)i_choice * 0x9e3779b97f4a7c15u, made);
    });
    duet_sampler* sampler = j->sampler.get();
    const auto check = [&](duet_status status, const std::string& param) {
        if (status != DUET_OK) refuse_status(status, duet_sampler_error(sampler), param);
    };
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

std::string token_name(const server& s, int32_t id) {
    const std::string_view bytes = view_of(duet_token_text(s.model, id));
    return std::string(bytes.empty() ? view_of(duet_token_spelling(s.model, id)) : bytes);
}

}  // namespace serve
