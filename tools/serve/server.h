// tools/serve/server.h: what all routes see: the model, the engine, the options; and the answer to a request in the
// making. Each route reads a request into jobs and turns their events into its own shapes.
// Main path: http.h -> routes.cpp -> [server.h] -> engine.h
#pragma once
#include "api.h"
#include "engine.h"
#include "http.h"

#include <list>

namespace serve {

struct server_options {
    model_options model;
    std::string host = "127.0.0.1", key_file, chat_template, template_name, tool_form;
    int32_t port = 8080, n_slots = 8, n_queue = 256, drain_seconds = 30, chunk = 0, reasoning = 0;  // reasoning 1: none
    uint64_t max_body_bytes = 16u << 20, cache_bytes = 0;
    std::vector<std::string> names, keys, origins;         // names: of the model, at least one when it is open
    std::vector<std::pair<std::string, double>> sampling;  // set by flags, or the defaults of run
    bool no_key = false, embeddings = false, no_page = false, log_requests = false, log_json = false;
};

using grammar_ptr = std::shared_ptr<duet_grammar>;
using grammar_maker = std::function<duet_status(duet_grammar**)>;
// Each keeps up to about 96 MiB of states and masks (docs/grammar.md).
constexpr size_t kKeptGrammars = 8;

struct server {
    server_options options;
    duet_model* model = nullptr;
    duet_model_info info = {};
    duet_memory_plan plan = {};
    int32_t n_ctx = 0;
    std::string id;  // of the model: its first name
    int64_t created = unix_time();
    std::vector<int32_t> end_ids, dry_breakers;
    bool has_chat = false, has_tools = false;  // has_tools: answers with calls can be read
    std::string chat_error;                    // why there is no chat
    metrics counts;
    std::unique_ptr<engine> work;
    std::atomic<bool> is_loading{true}, is_draining{false};

    // Compiles a grammar, or takes it from the kKeptGrammars that were used last. Throws what is wrong with it. Thread:
    // any.
    grammar_ptr kept_grammar(const std::string& key, const char* field, const grammar_maker& make);

  private:
    std::mutex grammars_mutex_;
    std::list<std::pair<std::string, grammar_ptr>> grammars_;
};

// What every request that generates may ask for.
struct common_fields {
    std::vector<std::pair<std::string, double>> sampling;
    std::vector<std::pair<int32_t, float>> biases;
    std::vector<std::string> stops;
    uint64_t seed = 0;
    int32_t max_new_tok = -1, n = 1, n_logprobs = -1;
    bool uses_cache = true, ignore_end = false, is_stream = false, include_usage = false;
    std::string gbnf, json_schema;  // of grammar, json_schema and response_format
    std::vector<const char*> stop_pointers() const;
};

// An answer as a whole.
struct tool_call {
    std::string id, name, arguments;
};
struct collected_answer {
    std::string text, thinking;
    std::vector<tool_call> calls;
    std::vector<token_logprob> logprobs, text_logprobs;  // of all tokens, and of those of the text
    end_reason reason = end_reason::none;
};

// The answers to one request: jobs, and what becomes of their events. Functions that are overridden run on the engine's
// thread.
class reply : public std::enable_shared_from_this<reply> {
  public:
    reply(server& s, exchange_ptr e) : host(s), exchange(std::move(e)) {}
    virtual ~reply() = default;

    server& host;
    exchange_ptr exchange;
    common_fields common;
    std::vector<job_ptr> jobs;
    std::vector<collected_answer> answers;

    // Queues the jobs; throws a 429 when there is no room.
    void submit();

  protected:
    virtual json whole() = 0;  // the answer in one piece
    // Of a stream, "" for nothing: what stands before an answer's first event, what an event adds, and the end.
    virtual std::string first(size_t) { return ""; }
    virtual std::string piece(size_t, const answer_event&) { return ""; }
    virtual std::string last() { return ""; }
    virtual std::string stream_error(const std::string& message) { return sse(error_json({500, message, "", ""})); }
    virtual const char* stream_type() const { return "text/event-stream; charset=utf-8"; }
    virtual const char* keep_alive() const { return ": waiting\n\n"; }
    // Tells piece() an answer that is not streamed in as few events as can be: thinking, text, calls.
    void tell_whole();
    // Log probabilities, but the first n_told, as /v1/chat/completions shows them.
    json logprobs_json(const std::vector<token_logprob>& list, size_t n_told = 0) const;

  private:
    void take(size_t i_job, answer_event e);
    void fail(const answer_event& e);
    void tell_log() const;
    size_t n_left_ = 0;
    bool has_failed_ = false;
    std::vector<char> has_begun_;
};

using reply_ptr = std::shared_ptr<reply>;

// Answers in OpenAI's older shapes: choices, chunks of them, and at the end the usage if it was asked for.
class choices_reply : public reply {
  public:
    choices_reply(server& s, exchange_ptr e, const char* id_prefix, const char* whole_name, const char* chunk_name)
        : reply(s, std::move(e)), id(random_id(id_prefix)), names_{whole_name, chunk_name} {}
    const std::string id;

  protected:
    virtual json choice(size_t i_job) = 0;  // without index and finish_reason
    json whole() override;
    std::string last() override;
    const char* reason_of(size_t i_job) const;
    // A chunk whose choice has one member, and logprobs; is_end: with the reason why it ends.
    std::string chunk(size_t i_job, const char* name, json value, json logprobs, bool is_end = false) const;

  private:
    json head(bool is_chunk, json choices) const;
    const char* names_[2];
    const int64_t created_ = unix_time();
};

// Tokens of all answers of a request.
struct usage_counts {
    int64_t n_prompt = 0, n_cached = 0, n_new = 0, n_thinking = 0;
};
usage_counts count_usage(const std::vector<job_ptr>& jobs);
json usage_json(const std::vector<job_ptr>& jobs);

// ---- reading requests (request.cpp) ----

// Refuses a name that is none of the model's.
void check_name(const server& s, const std::string& name);
common_fields read_common(const server& s, const fields& f);
std::vector<std::string> read_stops(const fields& f, const char* name);
// The most tokens of an answer, or -1, also in the request: no limit.
int32_t read_limit(const fields& f, const char* name, int32_t least, int32_t otherwise);
// Refuses a prompt, the value of field param, that leaves no room for a token.
void check_length(const server& s, size_t n_prompt_tok, const char* param, bool needs_room = true);
// Makes choice i of an answer: its sampler with the prompt as history.
job_ptr make_job(const server& s, const common_fields& common, std::vector<int32_t> prompt, int32_t i_choice,
                 const duet_grammar* grammar);
// Answers prompts that are given in the fields of /v1/completions. echoes: gets the text of each job's prompt, or null.
// limit: the most tokens where the request has no limit; -1: none.
void submit_completion(const reply_ptr& answer, const fields& f, std::vector<std::string>* echoes, int32_t limit);
std::vector<int32_t> tokenize_text(const server& s, const std::string& text, int32_t flags);
// Turns the status of a failed call on the request's own data into an error for the client.
[[noreturn]] void refuse_status(duet_status status, const std::string& text, const std::string& param = "");
// Returns what a function of the library makes, or throws what is wrong with the request's field param.
template <class object, class make_fn>
std::unique_ptr<object, handle_deleter> make_or_refuse(const char* (*error_of)(const object*), const std::string& param,
                                                       make_fn make) {
    object* made = nullptr;
    const duet_status status = make(&made);
    std::unique_ptr<object, handle_deleter> owner(made);
    if (status != DUET_OK) refuse_status(status, error_of(made), param);
    return owner;
}
// The chat template that is used, "" for none.
std::string template_text(const server& s);
// A token's bytes, or its spelling where it has none.
std::string token_name(const server& s, int32_t id);

// ---- who may ask (guard.cpp) ----

bool is_host_allowed(const server& s, const http_place& place, const std::string& host);
bool is_origin_allowed(const server& s, const http_request& r);
bool is_origin_listed(const server& s, const http_request& r);
bool is_key_good(const server& s, const http_request& r);

// ---- routes ----

using get_route = void(server& s, exchange_ptr exchange);
using post_route = void(server& s, exchange_ptr exchange, const fields& f);
get_route get_page, get_ollama_models, get_ollama_version;
post_route post_chat, post_completions, post_responses, post_messages, post_count_tokens, post_embeddings, post_rerank;
post_route post_apply_template, post_tokenize, post_detokenize, post_ollama_chat, post_ollama_generate,
    post_ollama_show, post_completion;

// Looks at a request's head, or words what is wrong with its framing; answers what is refused.
void check_request(server& s, const http_place& place, const exchange_ptr& e, int status, const std::string& message);
// Answers a whole request.
void answer_request(server& s, const exchange_ptr& exchange);
// Runs what answers a request; what it throws is the answer.
void answer_with(const exchange_ptr& exchange, const std::function<void()>& work);
// An error in the shape that the clients of a route know.
std::string error_of_route(std::string_view path, const api_error& e);

}  // namespace serve
