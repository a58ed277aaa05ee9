// tools/serve/completions.cpp: POST /v1/completions, /completion, and /v1/embeddings, /api/embed, /v1/rerank,
// /tokenize, /detokenize. Main path: routes.cpp -> [completions.cpp] -> engine.h
#include "server.h"

namespace serve {

namespace {

// Of texts to embed OpenAI takes 2,048, and clients send a thousand.
constexpr size_t kMaxPrompts = 256, kMaxAnswers = 512, kMaxInputs = 2048;

std::string text_of_ids(const server& s, const std::vector<int32_t>& ids, bool special) {
    std::string text;
    const duet_status status = fill_sized(ids.size() * 16 + 64, &text, [&](auto* to, size_t* n) {
        return duet_detokenize(s.model, ids.data(), ids.size(), special, to->data(), to->size(), n);
    });
    if (status != DUET_OK) refuse_status(status, duet_model_error(s.model));
    return text;
}

std::vector<int32_t> read_ids(const server& s, const json& list, const char* param) {
    std::vector<int32_t> ids;
    for (const json& value : list) {
        const auto id = whole_number(value);
        if (!id || *id < 0 || *id >= s.info.n_vocab)
            refuse_value(param, "want ids of 0.." + std::to_string(s.info.n_vocab - 1) + ", got " + shown(value));
        ids.push_back((int32_t)*id);
    }
    return ids;
}

bool is_utf8(const std::string& text) {
    for (size_t i = 0, n = 0; i < text.size(); i += n)
        if ((n = duet_utf8_length(text.data() + i, text.size() - i)) == 0) return false;
    return true;
}

struct prompt {
    std::vector<int32_t> ids;
    std::string text;
};

// A text, a list of texts, a list of ids, or a list of lists of ids.
std::vector<prompt> read_prompts(const server& s, const fields& f, const char* name, size_t n_most) {
    std::vector<prompt> out;
    const int32_t flags = DUET_TOKENIZE_ADD_BOS | (n_most < kMaxInputs) * DUET_TOKENIZE_PARSE_SPECIAL;
    const json* value = f.find(name);
    const bool is_list = value && value->is_array() && !value->empty() && !(*value)[0].is_number();
    if (is_list && value->size() > n_most) f.wrong(name, "at most " + std::to_string(n_most) + " texts");
    for (const json& one : is_list ? *value : json::array({value ? *value : json()})) {
        prompt p;
        if (one.is_string()) {
            p.text = one.get<std::string>();
            p.ids = tokenize_text(s, p.text, flags);
        } else if (one.is_array() && !one.empty()) {
            p.ids = read_ids(s, one, name);
            p.text = text_of_ids(s, p.ids, false);
        } else f.wrong(name, "a text, ids, or a list of either");
        out.push_back(std::move(p));
    }
    return out;
}

struct completion_reply : choices_reply {
    using choices_reply::choices_reply;
    std::vector<std::string> echoes;  // of each job, with echo

    json choice(size_t i) override {
        return {{"text", (echoes.empty() ? "" : echoes[i]) + answers[i].text},
                {"logprobs", logprobs_of(i, !echoes.empty(), answers[i].logprobs)}};
    }

    std::string first(size_t i) override {
        return echoes.empty() ? "" : chunk(i, "text", echoes[i], logprobs_of(i, true, {}));
    }

    std::string piece(size_t i, const answer_event& e) override {
        const bool is_end = e.kind == DUET_CHAT_END;
        return chunk(i, "text", is_end ? "" : e.text, logprobs_of(i, false, *e.logprobs), is_end);
    }

  private:
    static int64_t n_chars(const std::string& text) {
        return std::count_if(text.begin(), text.end(), [](char c) { return ((uint8_t)c & 0xc0) != 0x80; });
    }
    int64_t n_chars(int32_t id) const { return n_chars(token_name(host, id)); }
    // A part of a character is told by its spelling in the file, as "<0xE2>": names are keys.
    std::string name_of(int32_t id) const {
        const std::string name = token_name(host, id);
        return is_utf8(name) ? name : std::string(view_of(duet_token_spelling(host.model, id)));
    }
    // The older form: a list for each member. text_offset counts characters.
    json logprobs_of(size_t i, bool with_prompt, const std::vector<token_logprob>& list) {
        const job& j = *jobs[i];
        if (j.n_logprobs < 0) return nullptr;
        told_chars_.resize(jobs.size());
        json out = json::object();
        for (const char* name : {"tokens", "token_logprobs", "top_logprobs", "text_offset"}) out[name] = json::array();
        const auto add = [&](int32_t id, const token_logprob* p) {
            json top = json::object();
            if (p)
                for (const auto& [other, logprob] : p->top) top[name_of(other)] = logprob;
            out["tokens"].push_back(name_of(id));
            out["token_logprobs"].push_back(p ? json(p->logprob) : json(nullptr));
            out["top_logprobs"].push_back(p && j.n_logprobs > 0 ? std::move(top) : json(nullptr));
            out["text_offset"].push_back(std::max<int64_t>(0, told_chars_[i]));
            told_chars_[i] += n_chars(id);
        };
        // The prompt's tokens may have more characters than its text: <s>, and a space at the beginning.
        if (with_prompt) told_chars_[i] = n_chars(echoes[i]);
        for (size_t k = 0; with_prompt && k < j.prompt.size(); k++) told_chars_[i] -= n_chars(j.prompt[k]);
        for (size_t k = 0; with_prompt && k < j.prompt.size(); k++)
            add(j.prompt[k], k && k <= j.prompt_logprobs.size() ? &j.prompt_logprobs[k - 1] : nullptr);
        for (const token_logprob& p : list) add(p.id, &p);
        return out;
    }

    std::vector<int64_t> told_chars_;  // of each job
};

// As llama.cpp's own clients know it: no choices, and the reason of the end beside the text.
struct content_reply : reply {
    using reply::reply;
    json whole() override {
        json all = json::array();
        for (size_t i = 0; i < jobs.size(); i++) all.push_back(told(i, answers[i].text, DUET_CHAT_END));
        return all.size() == 1 ? all[0] : all;
    }
    std::string piece(size_t i, const answer_event& e) override { return sse(told(i, e.text, e.kind)); }

  private:
    json told(size_t i, std::string_view text, int32_t kind) const {
        const job& j = *jobs[i];
        const bool is_end = kind == DUET_CHAT_END;
        json out = {{"index", i}, {"content", text}, {"stop", is_end}, {"tokens_predicted", j.n_new_tok}};
        if (!is_end) return out;
        const bool is_word = j.i_stop >= 0, is_cut = answers[i].reason == end_reason::length;
        // clang-format off
        out.update({{"model", host.id}, {"tokens_evaluated", j.prompt.size()}, {"tokens_cached", j.n_cached_tok}, {"truncated", false},
                    {"stop_type", is_word ? "word" : is_cut ? "limit" : "eos"}, {"stopping_word", is_word ? common.stops[(size_t)j.i_stop] : ""}});
        // clang-format on
        return out;
    }
};

grammar_ptr text_grammar(server& s, const common_fields& c) {
    if (c.gbnf.empty() && c.json_schema.empty()) return nullptr;
    const std::string key = "text\n" + c.gbnf + "\n" + c.json_schema;
    duet_grammar_params params = duet_grammar_params_default();
    params.gbnf = c.gbnf.empty() ? nullptr : c.gbnf.c_str();
    params.json_schema = c.json_schema.empty() ? nullptr : c.json_schema.c_str();
    return s.kept_grammar(key, c.gbnf.empty() ? "response_format" : "grammar",
                          [&](duet_grammar** made) { return duet_grammar_create(s.model, &params, made); });
}

}  // namespace

void submit_completion(const reply_ptr& answer, const fields& f, std::vector<std::string>* echoes, int32_t limit) {
    server& s = answer->host;
    common_fields c = read_common(s, f);
    c.max_new_tok = read_limit(f, "max_tokens", 0, read_limit(f, "n_predict", 0, limit));
    c.n_logprobs = (int32_t)f.integer("logprobs", 0, 20).value_or(-1);
    if (f.integer("best_of", 1, 16).value_or(c.n) != c.n) f.wrong("best_of", "the same as n, or nothing");
    if (!f.text("suffix").value_or("").empty()) refuse_value("suffix", "is not supported", "unsupported_value");
    const std::vector<prompt> prompts = read_prompts(s, f, "prompt", kMaxPrompts);
    if (prompts.size() * (size_t)c.n > kMaxAnswers) f.wrong("n", "at most 512 answers to all prompts together");
    for (const prompt& p : prompts) check_length(s, p.ids.size(), "prompt", c.max_new_tok != 0);
    const grammar_ptr grammar = text_grammar(s, c);
    const std::vector<const char*> stops = c.stop_pointers();
    for (const prompt& p : prompts)
        for (int32_t i = 0; i < c.n; i++) {
            job_ptr j = make_job(s, c, p.ids, i, grammar.get());
            j->gate = make_or_refuse(duet_text_gate_error, "stop", [&](duet_text_gate** made) {
                return duet_text_gate_create(stops.data(), (int32_t)stops.size(), made);
            });
            j->wants_prompt_logprobs = echoes && c.n_logprobs >= 0;
            answer->jobs.push_back(std::move(j));
            if (echoes) echoes->push_back(p.text);
        }
    answer->common = std::move(c);
    answer->submit();
}

void post_completions(server& s, exchange_ptr exchange, const fields& f) {
    auto answer = std::make_shared<completion_reply>(s, exchange, "cmpl-", "text_completion", "text_completion");
    submit_completion(answer, f, f.flag("echo", false) ? &answer->echoes : nullptr, 16);
}

void post_completion(server& s, exchange_ptr exchange, const fields& f) {
    submit_completion(std::make_shared<content_reply>(s, exchange), f, nullptr, -1);
}

// ---- embeddings ----

namespace {

// Vectors of texts, or scores of documents.
struct embedding_reply : reply {
    using reply::reply;
    bool as_text = false, shows_texts = false, is_tei = false;  // is_tei: in the form of Text Embeddings Inference
    size_t n_top = 0;                                           // documents that are told
    json whole() override {
        const std::string& path = exchange->request.path;
        if (path == "/api/embeddings") return {{"embedding", jobs[0]->embedding}};
        const bool is_ollama = path == "/api/embed", has_scores = !jobs[0]->documents.empty();
        if (is_tei) return ranking();
        json data = has_scores ? ranking() : json::array();
        for (size_t i = 0; i < jobs.size() && !has_scores; i++) {
            const std::vector<float>& v = jobs[i]->embedding;
            data.push_back({{"object", "embedding"}, {"index", i}, {"embedding", as_text ? json(base64(v)) : json(v)}});
            if (is_ollama) data.back() = v;
        }
        const usage_counts u = count_usage(jobs);
        // clang-format off
        if (is_ollama) return {{"model", host.id}, {"embeddings", std::move(data)}, {"prompt_eval_count", u.n_prompt}};
        return {{"object", "list"}, {has_scores ? "results" : "data", std::move(data)}, {"model", host.id},
                {"usage", {{"prompt_tokens", u.n_prompt}, {"total_tokens", u.n_prompt}}}};
        // clang-format on
    }

  private:
    // The documents that were asked for, best first.
    json ranking() const {
        const job& j = *jobs[0];
        const char* score = is_tei ? "score" : "relevance_score";
        json all = json::array();
        for (size_t i = 0; i < j.documents.size(); i++) {
            const json text = {{"text", j.documents[i]}};
            all.push_back({{"index", i}, {score, j.embedding[i]}});
            if (shows_texts) all.back().update(is_tei ? text : json{{"document", text}});
        }
        std::stable_sort(all.begin(), all.end(), [&](const json& a, const json& b) { return a[score] > b[score]; });
        if (all.size() > n_top) all.erase(all.begin() + (ptrdiff_t)n_top, all.end());
        return all;
    }
    static std::string base64(const std::vector<float>& values) {
        static const char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        const auto* bytes = (const uint8_t*)values.data();
        const size_t n = values.size() * sizeof(float);
        const auto at = [&](size_t i) { return i < n ? (uint32_t)bytes[i] : 0; };
        std::string out;
        for (size_t bit = 0; bit < n * 8; bit += 6)
            out += kDigits[(at(bit / 8) << 8 | at(bit / 8 + 1)) >> (10 - bit % 8) & 63];
        return out.append((3 - n % 3) % 3, '=');
    }
};

// A job for the thread that computes vectors.
job_ptr text_job(const server& s, std::vector<int32_t> ids) {
    if (!s.options.embeddings) refuse(501, "embeddings are off: start the server with --embeddings");
    auto j = std::make_shared<job>();
    j->prompt = std::move(ids);
    j->wants_embedding = true;
    return j;
}

}  // namespace

void post_embeddings(server& s, exchange_ptr exchange, const fields& f) {
    if (const auto n = f.integer("dimensions", 1, INT32_MAX); n && *n != s.info.embedding_dim)
        f.wrong("dimensions", std::to_string(s.info.embedding_dim) + " or nothing");
    auto answer = std::make_shared<embedding_reply>(s, exchange);
    answer->as_text = f.choice("encoding_format", {"float", "base64"}) == "base64";
    const bool is_one = exchange->request.path == "/api/embeddings";  // Ollama's older form
    const char* name = is_one ? (f.need_text("prompt"), "prompt") : "input";
    for (const prompt& p : read_prompts(s, f, name, kMaxInputs)) {
        check_length(s, p.ids.size(), name, false);
        answer->jobs.push_back(text_job(s, p.ids));
    }
    answer->submit();
}

void post_rerank(server& s, exchange_ptr exchange, const fields& f) {
    auto answer = std::make_shared<embedding_reply>(s, exchange);
    answer->n_top = (size_t)f.integer("top_n", 1, INT32_MAX).value_or(INT32_MAX);
    answer->is_tei = f.find("texts");
    answer->shows_texts = f.flag(answer->is_tei ? "return_text" : "return_documents", false);
    const std::string query = f.need_text("query");
    const job_ptr j = text_job(s, tokenize_text(s, query, 0));
    j->query = query;
    for (const prompt& p : read_prompts(s, f, answer->is_tei ? "texts" : "documents", kMaxInputs)) {
        j->documents.push_back(p.text);
        j->prompt.insert(j->prompt.end(), p.ids.begin(), p.ids.end());
    }
    answer->jobs.push_back(j);
    answer->submit();
}

// ---- tokens ----

void post_tokenize(server& s, exchange_ptr exchange, const fields& f) {
    const std::string text = f.need_text(f.find("prompt") ? "prompt" : "content");  // other servers call it prompt
    const int32_t flags = (f.flag("add_special", false) ? DUET_TOKENIZE_ADD_BOS : 0) |
                          (f.flag("parse_special", false) ? DUET_TOKENIZE_PARSE_SPECIAL : 0);
    const std::vector<int32_t> ids = tokenize_text(s, text, flags);
    std::string list = "{\"tokens\":[";  // text, because JSON's values take a hundred times as much
    const bool with_pieces = f.flag("with_pieces", false);
    for (const int32_t& id : ids) {
        const std::string name = token_name(s, id);
        // a part of a character is a list of bytes
        const json piece = is_utf8(name) ? json(name) : json(std::vector<uint8_t>(name.begin(), name.end()));
        list += (&id > &ids[0] ? "," : "") + (with_pieces ? dump({{"id", id}, {"piece", piece}}) : std::to_string(id));
    }
    exchange->answer(200, list + "]," + dump({{"count", ids.size()}, {"max_model_len", s.n_ctx}}).substr(1));
}

void post_detokenize(server& s, exchange_ptr exchange, const fields& f) {
    const json* tokens = f.list("tokens");
    if (!tokens) f.wrong("tokens", "a list of ids");
    const std::string text = text_of_ids(s, read_ids(s, *tokens, "tokens"), f.flag("special", false));
    exchange->answer(200, dump({{"content", text}, {"prompt", text}}));
}

}  // namespace serve
