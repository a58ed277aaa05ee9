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
    int32_t reasoning = 0;  // 1: none
    int32_t port = 8080, n_slots = 8, n_queue = 256, drain_seconds = 30, chunk = 0;
    uint64_t max_body_bytes = 16u << 20, cache_bytes = 0;
    std::vector<std::string> aliases, keys, origins;
    std::vector<std::pair<std::string, double>> sampling;  // set by flags, or the defaults of run
    bool no_key = false, embeddings = false, no_page = false, log_requests = false, log_json = false;
};

using grammar_ptr = std::shared_ptr<duet_grammar>;

struct server {
    server_options options;
    duet_model* model = nullptr;
    duet_model_info info = {};
    duet_memory_plan plan = {};
    int32_t n_ctx = 0;
    std::string id;  // of the model
    int64_t created = unix_time();
    std::vector<int32_t> end_ids, dry_breakers;
    bool has_chat = false;
    std::string chat_error;  // why there is no chat
    metrics counts;
    std::unique_ptr<engine> work;
    std::atomic<bool> is_loading{true}, is_draining{false};

    // Compiles a grammar, or takes it from the 64 that were used last. Throws what is wrong with it. Thread: any.
    grammar_ptr kept_grammar(const std::string& key, const char* field,
                             const std::function<duet_status(duet_grammar**)>& make);

  private:
    std::mutex grammars_mutex_;
    std::list<std::pair<std::string, grammar_ptr>> grammars_;
};

// An answer as a whole.
struct tool_call {
    std::string id, name, arguments;
};
struct collected_answer {
    std::string text, thinking;
    std::vector<tool_call> calls;
    std::vector<token_logprob> logprobs;
    end_reason reason = end_reason::none;
    std::string error;
};

// The answers to one request: jobs, and what becomes of their events. Functions that are overridden run on the engine's
// thread.
class reply : public std::enable_shared_from_this<reply> {
  public:
    reply(server& s, exchange_ptr e) : host(s), exchange(std::move(e)) {}
    virtual ~reply() = default;

    server& host;
    exchange_ptr exchange;
    bool is_stream = false;
    std::vector<job_ptr> jobs;
    std::vector<collected_answer> answers;

    // Queues the jobs; throws a 429 when there is no room.
    void submit();

  protected:
    virtual json whole() = 0;                                              // the answer in one piece
    virtual std::string piece(size_t, const answer_event&) { return ""; }  // of a stream, "" for nothing
    virtual std::string last() { return ""; }                              // the end of a stream
    virtual std::string stream_error(const std::string& message) { return sse(error_json({500, message, "", ""})); }
    virtual const char* stream_type() const { return "text/event-stream; charset=utf-8"; }
    virtual const char* keep_alive() const { return ": waiting\n\n"; }

  private:
    void take(size_t i_job, answer_event e);
    size_t n_left_ = 0;
    bool has_failed_ = false;
};

// Answers in OpenAI's older shapes: choices, chunks of them, and at the end the usage if it was asked for.
class choices_reply : public reply {
  public:
    choices_reply(server& s, exchange_ptr e, const char* id_prefix, const char* whole_name, const char* chunk_name)
        : reply(s, std::move(e)), id(random_id(id_prefix)), names_{whole_name, chunk_name} {}
    const std::string id;
    bool include_usage = false;

  protected:
    virtual json choice(size_t i_job) = 0;  // without index and finish_reason
    virtual bool has_calls(size_t) const { return false; }
    json whole() override;
    std::string last() override;
    // A chunk whose choice has one member, and logprobs; reason: nullptr while it goes on.
    std::string chunk(size_t i_job, const char* name, json value, json logprobs, const char* reason) const;

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
const char* finish_reason(end_reason reason, bool has_calls = false);

// ---- reading requests (request.cpp) ----

// What every request that generates may ask for.
struct common_fields {
    std::vector<std::pair<std::string, double>> sampling;
    std::vector<std::pair<int32_t, float>> biases;
    std::vector<std::string> stops;
    uint64_t seed = 0;
    int32_t max_new_tok = -1, n = 1, n_logprobs = -1;
    bool uses_cache = true, ignore_end = false, is_stream = false, include_usage = false;
    std::string gbnf, json_schema;  // of grammar, json_schema and response_format
};

// The model's id and its aliases; refuses a name that is none of them.
std::vector<std::string> names_of(const server& s);
void check_name(const server& s, const std::string& name);
common_fields read_common(const server& s, const fields& f);
std::vector<std::string> read_stops(const fields& f, const char* name);
// Refuses a prompt, the value of field param, that leaves no room for a token.
void check_length(const server& s, size_t n_prompt_tok, const char* param, bool needs_room = true);
// Makes choice i of an answer: its sampler with the prompt as history.
job_ptr make_job(const server& s, const common_fields& common, std::vector<int32_t> prompt, int32_t i_choice,
                 const duet_grammar* grammar);
// The same with a gate for plain text; the grammar that the fields ask for, or none.
job_ptr make_text_job(const server& s, const common_fields& common, std::vector<int32_t> prompt, int32_t i_choice,
                      const duet_grammar* grammar);
grammar_ptr text_grammar(server& s, const common_fields& common);
// Whether a field of this name sets a sampler.
bool is_sampler_field(std::string_view name);
std::vector<int32_t> tokenize_text(const server& s, const std::string& text, int32_t flags);
// Turns the status of a failed call on the request's own data into an error for the client.
[[noreturn]] void refuse_status(duet_status status, const std::string& text, const std::string& param = "");
// A token's bytes, or its spelling where it has none.
std::string token_name(const server& s, int32_t id);

// ---- routes ----

void get_page(server& s, exchange_ptr exchange);
void post_completions(server& s, exchange_ptr exchange, const fields& f);
void post_chat(server& s, exchange_ptr exchange, const fields& f);
void post_apply_template(server& s, exchange_ptr exchange, const fields& f);
void post_embeddings(server& s, exchange_ptr exchange, const fields& f);
void post_responses(server& s, exchange_ptr exchange, const fields& f);
void post_messages(server& s, exchange_ptr exchange, const fields& f);
void post_count_tokens(server& s, exchange_ptr exchange, const fields& f);
void post_ollama_chat(server& s, exchange_ptr exchange, const fields& f);
void post_ollama_generate(server& s, exchange_ptr exchange, const fields& f);
void post_ollama_show(server& s, exchange_ptr exchange, const fields& f);
void get_ollama_tags(server& s, exchange_ptr exchange);
void get_ollama_version(server& s, exchange_ptr exchange);
void post_tokenize(server& s, exchange_ptr exchange, const fields& f);
void post_detokenize(server& s, exchange_ptr exchange, const fields& f);

// Looks at a request's head, or words what its framing is refused with; answers whole requests.
http_refusal check_request(server& s, const http_server& http, http_request& request, int status,
                           const std::string& message);
class router {
  public:
    explicit router(server& s);
    ~router();
    void handle(exchange_ptr exchange);
    void finish();  // waits for the workers

  private:
    struct pool;
    server& server_;
    std::unique_ptr<pool> pool_;
};

}  // namespace serve
