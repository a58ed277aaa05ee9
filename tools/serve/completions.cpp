// tools/serve/completions.cpp: POST /v1/completions, and /v1/embeddings, /tokenize, /detokenize.
// Main path: routes.cpp -> [completions.cpp] -> engine.h
#include "server.h"

namespace serve {

namespace {

constexpr size_t kMaxPrompts = 256, kMaxAnswers = 512;

std::string text_of_ids(const server& s, const std::vector<int32_t>& ids, bool special) {
    std::string text(ids.size() * 16 + 64, '\0');
    size_t n = 0;
    duet_status status = duet_detokenize(s.model, ids.data(), ids.size(), special, text.data(), text.size(), &n);
    if (status == DUET_ERR_FULL) {
        text.resize(n);
        status = duet_detokenize(s.model, ids.data(), ids.size(), special, text.data(), text.size(), &n);
    }
    if (status != DUET_OK) refuse_status(status, duet_model_error(s.model));
    text.resize(n);
    return text;
}

std::string name_of_token(const server& s, int32_t id) {
    const std::string_view bytes = view_of(duet_token_text(s.model, id));
    return std::string(bytes.empty() ? view_of(duet_token_spelling(s.model, id)) : bytes);
}

std::vector<int32_t> read_ids(const server& s, const json& list, const char* param) {
    std::vector<int32_t> ids;
    for (const json& value : list) {
        const auto id = whole_number(value);
        if (!id || *id < 0 || *id >= s.info.n_vocab)
            refuse(400,
                   std::string(param) + ": want ids of 0.." + std::to_string(s.info.n_vocab - 1) + ", got " +
                       shown(value),
                   param, "invalid_value");
        ids.push_back((int32_t)*id);
    }
    return ids;
}

struct prompt {
    std::vector<int32_t> ids;
    std::string text;
};

// A text, a list of texts, a list of ids, or a list of lists of ids.
std::vector<prompt> read_prompts(const server& s, const fields& f, const char* name) {
    std::vector<prompt> out;
    const json* value = f.find(name);
    const auto add_text = [&](const json& text) {
        out.push_back({tokenize_text(s, text.get<std::string>(), DUET_TOKENIZE_ADD_BOS | DUET_TOKENIZE_PARSE_SPECIAL),
                       text.get<std::string>()});
    };
    const auto add_ids = [&](const json& list) {
        std::vector<int32_t> ids = read_ids(s, list, name);
        std::string text = text_of_ids(s, ids, false);
        out.push_back({std::move(ids), std::move(text)});
    };
    const char* wanted = "a text, ids, or a list of either";
    if (!value) f.wrong(name, wanted);
    if (value->is_string()) add_text(*value);
    else if (!value->is_array() || value->empty()) f.wrong(name, wanted);
    else if ((*value)[0].is_number()) add_ids(*value);
    else {
        if (value->size() > kMaxPrompts) f.wrong(name, "at most 256 prompts");
        for (const json& one : *value)
            if (one.is_string()) add_text(one);
            else if (one.is_array() && !one.empty()) add_ids(one);
            else f.wrong(name, wanted);
    }
    return out;
}

class completion_reply : public choices_reply {
  public:
    completion_reply(server& s, exchange_ptr e)
        : choices_reply(s, std::move(e), "cmpl-", "text_completion", "text_completion") {}
    std::vector<std::string> echoes;  // of each job, "" without echo
    bool has_echo = false;

    json choice(size_t i) override {
        text_bytes_.assign(jobs.size(), 0);
        json logprobs = empty_logprobs(i);
        if (has_echo) add_prompt_logprobs(i, &logprobs);
        add_logprobs(i, answers[i].logprobs, &logprobs);
        return {{"text", echoes[i] + answers[i].text}, {"logprobs", std::move(logprobs)}};
    }

    std::string piece(size_t i, const answer_event& e) override {
        text_bytes_.resize(jobs.size());
        has_echoed_.resize(jobs.size());
        std::string out;
        if (has_echo && !std::exchange(has_echoed_[i], 1)) {
            json logprobs = empty_logprobs(i);
            add_prompt_logprobs(i, &logprobs);
            out = chunk(i, "text", echoes[i], std::move(logprobs), nullptr);
        }
        json logprobs = empty_logprobs(i);
        add_logprobs(i, *e.logprobs, &logprobs);
        const bool is_end = e.kind == DUET_CHAT_END;
        return out +
               chunk(i, "text", is_end ? "" : e.text, std::move(logprobs), is_end ? finish_reason(e.reason) : nullptr);
    }

  private:
    json empty_logprobs(size_t i) const {
        if (jobs[i]->n_logprobs < 0) return nullptr;
        return {{"tokens", json::array()},
                {"token_logprobs", json::array()},
                {"top_logprobs", json::array()},
                {"text_offset", json::array()}};
    }
    void add_token(size_t i, const std::string& name, const token_logprob* p, json* out) {
        (*out)["tokens"].push_back(name);
        (*out)["token_logprobs"].push_back(p ? json(p->logprob) : json(nullptr));
        (*out)["text_offset"].push_back(text_bytes_[i]);
        json top = json::object();
        if (p)
            for (const auto& [id, logprob] : p->top) top[dump_name(id)] = logprob;
        (*out)["top_logprobs"].push_back(p && jobs[i]->n_logprobs > 0 ? std::move(top) : json(nullptr));
        text_bytes_[i] += name.size();
    }
    void add_logprobs(size_t i, const std::vector<token_logprob>& list, json* out) {
        if (!out->is_null())
            for (const token_logprob& p : list) add_token(i, dump_name(p.id), &p, out);
    }
    void add_prompt_logprobs(size_t i, json* out) {
        if (out->is_null()) return;
        const job& j = *jobs[i];
        for (size_t k = 0; k < j.prompt.size(); k++)
            add_token(i, dump_name(j.prompt[k]),
                      k && k <= j.prompt_logprobs.size() ? &j.prompt_logprobs[k - 1] : nullptr, out);
    }
    std::string dump_name(int32_t id) const { return name_of_token(host, id); }

    std::vector<size_t> text_bytes_;  // of each job, told so far
    std::vector<char> has_echoed_;
};

}  // namespace

grammar_ptr text_grammar(server& s, const common_fields& c) {
    if (c.gbnf.empty() && c.json_schema.empty()) return nullptr;
    const std::string key = "text\n" + c.gbnf + "\n" + c.json_schema;
    duet_grammar_params params = duet_grammar_params_default();
    params.gbnf = c.gbnf.empty() ? nullptr : c.gbnf.c_str();
    params.json_schema = c.json_schema.empty() ? nullptr : c.json_schema.c_str();
    return s.kept_grammar(key, c.gbnf.empty() ? "response_format" : "grammar",
                          [&](duet_grammar** made) { return duet_grammar_create(s.model, &params, made); });
}

job_ptr make_text_job(const server& s, const common_fields& c, std::vector<int32_t> prompt, int32_t i_choice,
                      const duet_grammar* grammar) {
    job_ptr j = make_job(s, c, std::move(prompt), i_choice, grammar);
    std::vector<const char*> stops;
    for (const std::string& stop : c.stops) stops.push_back(stop.c_str());
    duet_text_gate* gate = nullptr;
    const duet_status status = duet_text_gate_create(stops.data(), (int32_t)stops.size(), &gate);
    j->gate.reset(gate);
    if (status != DUET_OK) refuse_status(status, duet_text_gate_error(gate), "stop");
    return j;
}

void post_completions(server& s, exchange_ptr exchange, const fields& f) {
    common_fields c = read_common(s, f);
    c.max_new_tok = (int32_t)f.integer("max_tokens", 0, INT32_MAX).value_or(16);
    c.n_logprobs = (int32_t)f.integer("logprobs", 0, 20).value_or(-1);
    const bool has_echo = f.flag("echo", false);
    if (const auto best_of = f.integer("best_of", 1, 16); best_of && *best_of != c.n)
        refuse(400, "best_of: want the same as n, or nothing", "best_of", "invalid_value");
    if (const auto suffix = f.text("suffix"); suffix && !suffix->empty())
        refuse(400, "suffix: is not supported", "suffix", "unsupported_value");
    const std::vector<prompt> prompts = read_prompts(s, f, "prompt");
    if (prompts.size() * (size_t)c.n > kMaxAnswers) f.wrong("n", "at most 512 answers to all prompts together");
    for (const prompt& p : prompts) check_length(s, p.ids.size(), c.max_new_tok > 0);
    const grammar_ptr grammar = text_grammar(s, c);
    auto answer = std::make_shared<completion_reply>(s, exchange);
    answer->is_stream = c.is_stream;
    answer->include_usage = c.include_usage;
    answer->has_echo = has_echo;
    for (const prompt& p : prompts)
        for (int32_t i = 0; i < c.n; i++) {
            job_ptr j = make_text_job(s, c, p.ids, i, grammar.get());
            j->wants_prompt_logprobs = has_echo && c.n_logprobs >= 0;
            answer->jobs.push_back(std::move(j));
            answer->echoes.push_back(has_echo ? p.text : "");
        }
    answer->submit();
}

// ---- embeddings ----

namespace {

class embedding_reply : public reply {
  public:
    using reply::reply;
    bool is_base64 = false;
    json whole() override {
        json data = json::array();
        for (size_t i = 0; i < jobs.size(); i++) {
            const std::vector<float>& v = jobs[i]->embedding;
            data.push_back(
                {{"object", "embedding"}, {"index", i}, {"embedding", is_base64 ? json(base64(v)) : json(v)}});
        }
        const usage_counts u = count_usage(jobs);
        return {{"object", "list"},
                {"data", std::move(data)},
                {"model", host.id},
                {"usage", {{"prompt_tokens", u.n_prompt}, {"total_tokens", u.n_prompt}}}};
    }
    std::string piece(size_t, const answer_event&) override { return ""; }
    std::string last() override { return ""; }

  private:
    static std::string base64(const std::vector<float>& values) {
        static const char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        const auto* bytes = (const uint8_t*)values.data();
        const size_t n = values.size() * sizeof(float);
        std::string out;
        for (size_t i = 0; i < n; i += 3) {
            const uint32_t word = (uint32_t)bytes[i] << 16 | (i + 1 < n ? (uint32_t)bytes[i + 1] << 8 : 0) |
                                  (i + 2 < n ? (uint32_t)bytes[i + 2] : 0);
            for (size_t k = 0; k < 4; k++) out += i + k <= n ? kDigits[word >> (18 - 6 * k) & 63] : '=';
        }
        return out;
    }
};

}  // namespace

void post_embeddings(server& s, exchange_ptr exchange, const fields& f) {
    if (!s.options.embeddings) refuse(501, "embeddings are off: start the server with --embeddings");
    const std::string form = f.text("encoding_format").value_or("float");
    if (form != "float" && form != "base64") f.wrong("encoding_format", "\"float\" or \"base64\"");
    if (const auto n = f.integer("dimensions", 1, INT32_MAX); n && *n != s.info.embedding_dim)
        f.wrong("dimensions", std::to_string(s.info.embedding_dim) + " or nothing");
    auto answer = std::make_shared<embedding_reply>(s, exchange);
    answer->is_base64 = form == "base64";
    for (const prompt& p : read_prompts(s, f, "input")) {
        check_length(s, p.ids.size(), false);
        job_ptr j = make_job(s, common_fields{}, p.ids, 0, nullptr);
        j->wants_embedding = true;
        answer->jobs.push_back(std::move(j));
    }
    answer->submit();
}

// ---- tokens ----

void post_tokenize(server& s, exchange_ptr exchange, const fields& f) {
    const auto text = f.text("content");
    const auto prompt_text = f.text("prompt");  // as other servers name it
    if (!text && !prompt_text) f.wrong("content", "a string");
    const int32_t flags = (f.flag("add_special", false) ? DUET_TOKENIZE_ADD_BOS : 0) |
                          (f.flag("parse_special", false) ? DUET_TOKENIZE_PARSE_SPECIAL : 0);
    const std::vector<int32_t> ids = tokenize_text(s, text ? *text : *prompt_text, flags);
    json tokens = json::array();
    const bool with_pieces = f.flag("with_pieces", false);
    for (int32_t id : ids) {
        if (with_pieces) tokens.push_back({{"id", id}, {"piece", name_of_token(s, id)}});
        else tokens.push_back(id);
    }
    exchange->answer(200, dump({{"tokens", std::move(tokens)}, {"count", ids.size()}, {"max_model_len", s.n_ctx}}));
}

void post_detokenize(server& s, exchange_ptr exchange, const fields& f) {
    const json* tokens = f.list("tokens");
    if (!tokens) f.wrong("tokens", "a list of ids");
    const std::string text = text_of_ids(s, read_ids(s, *tokens, "tokens"), f.flag("special", false));
    exchange->answer(200, dump({{"content", text}, {"prompt", text}}));
}

}  // namespace serve
