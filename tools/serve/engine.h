// tools/serve/engine.h: the one thread that owns the session. It runs all answers in one batch, piece by piece of one
// prompt beside them, and keeps the sequences of finished answers as prefixes for later prompts. Vectors of texts are
// computed by a second such thread with a session of its own.
// Owns: order, slots, prefix reuse, cancelling, texts that are certain. Must not know: HTTP, JSON.
// Main path: completions.cpp, chat.cpp -> [engine.h] -> runtime.h
#pragma once
#include "../common.h"
#include "metrics.h"

#include <atomic>

namespace serve {

struct token_logprob {
    int32_t id = -1;
    double logprob = 0;
    std::vector<std::pair<int32_t, double>> top;  // the most likely, best first
};

using gate_ptr = std::unique_ptr<duet_text_gate, handle_deleter>;
using parser_ptr = std::unique_ptr<duet_chat_parser, handle_deleter>;

// The last three leave no whole answer. refused: what was asked for cannot be done; failed: what should have been.
enum class end_reason { none, stop, stop_string, length, cancelled, refused, failed };

// What an answer brought. kind is DUET_CHAT_...; logprobs are those of the tokens that became certain with it.
struct answer_event {
    int32_t kind = DUET_CHAT_NONE, i_call = -1;
    std::string_view text = {}, call_id = {};
    const std::vector<token_logprob>* logprobs = nullptr;
    end_reason reason = end_reason::none;
    std::string error = {};  // of refused and failed
};

// One answer to one prompt. Until it is submitted it belongs to who made it, then to the engine's thread.
struct job {
    // what is asked
    std::vector<int32_t> prompt;
    sampler_ptr sampler;  // with the settings, the prompt accepted, and the grammar
    gate_ptr gate;        // one of the two turns tokens into text
    parser_ptr parser;
    int32_t max_new_tok = -1, n_logprobs = -1;
    bool uses_cache = true, wants_prompt_logprobs = false, wants_embedding = false;
    std::string query;                   // of a reranker, and
    std::vector<std::string> documents;  // what it scores; the prompt has their tokens, which are counted only
    std::vector<int32_t> borders;        // lengths of the prompt that other prompts are likely to share, ascending
    std::function<void(job&, const answer_event&)> tell;
    int32_t i_choice = 0;  // of the answers to the same prompt
    // what was done
    int32_t n_cached_tok = 0, n_new_tok = 0, n_thinking_tok = 0, i_stop = -1;  // i_stop: which stop string was met
    std::vector<token_logprob> prompt_logprobs;                                // of prompt[1], prompt[2], ...
    std::vector<float> embedding;                                              // or the scores
    double submitted_at = 0, started_at = 0, first_token_at = 0, last_token_at = 0, ended_at = 0;
    // the engine's
    std::atomic<bool> is_cancelled{false};
    std::vector<int32_t> tokens;  // the prompt and what was chosen
    int32_t seq = -1;
    bool has_begun = false, is_over = false;
    std::vector<token_logprob> waiting;  // logprobs of tokens whose text is not certain yet
};
using job_ptr = std::shared_ptr<job>;

struct engine_params {
    int32_t n_slots = 8, n_queue = 256, chunk = 0, n_seqs = 9;
    int64_t cache_tokens = 0;  // of the session
    bool is_recurrent = false, has_windows = false;
    bool embeds = false;             // whether texts are turned into vectors,
    duet_session_params embedder{};  // by such a session
};

class engine {
  public:
    engine(const duet_model* model, duet_session* session, engine_params params, metrics& m);
    ~engine();
    // Queues the answers of a request, all or none. Returns false when the queue is full. Thread: any.
    bool submit(const std::vector<job_ptr>& jobs);
    // Ends answers whose client has left. Thread: any.
    void cancel(const std::vector<job_ptr>& jobs);
    void cancel_all();

  private:
    struct loop;
    std::unique_ptr<loop> answers_, texts_;
};

}  // namespace serve
