// tools/serve/engine.h: the one thread that owns the session. It runs all answers in one batch, piece by piece of one
// prompt beside them, and keeps the sequences of finished answers as prefixes for later prompts. Vectors of texts are
// computed by a second thread with a session of its own.
// Owns: order, slots, prefix reuse, cancelling, texts that are certain. Must not know: HTTP, JSON.
// Main path: completions.cpp, chat.cpp -> [engine.h] -> runtime.h
#pragma once
#include "../common.h"
#include "metrics.h"

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

namespace serve {

struct token_logprob {
    int32_t id = -1;
    double logprob = 0;
    std::vector<std::pair<int32_t, double>> top;  // the most likely, best first
};

using gate_ptr = std::unique_ptr<duet_text_gate, handle_deleter>;
using parser_ptr = std::unique_ptr<duet_chat_parser, handle_deleter>;

enum class end_reason { none, stop, stop_string, length, cancelled, failed };

// What an answer brought. kind is DUET_CHAT_...; logprobs are those of the tokens that became certain with it.
struct answer_event {
    int32_t kind = DUET_CHAT_NONE, i_call = -1;
    std::string_view text = {}, call_id = {};
    const std::vector<token_logprob>* logprobs = nullptr;
    end_reason reason = end_reason::none;
    std::string error = {};  // of failed
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
    std::vector<int32_t> borders;  // lengths of the prompt that other prompts are likely to share, ascending
    std::function<void(job&, const answer_event&)> tell;
    int32_t i_choice = 0;  // of the answers to the same prompt
    // what was done
    int32_t n_cached_tok = 0, n_new_tok = 0, n_thinking_tok = 0, i_stop = -1;  // i_stop: which stop string was met
    std::vector<token_logprob> prompt_logprobs;                                // of prompt[1], prompt[2], ...
    std::vector<float> embedding;
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
    struct sequence {
        job* user = nullptr;  // null: it is kept as a prefix for later prompts
        uint64_t used_at = 0;
    };
    struct row {
        job* owner;
        int32_t n_tok;
    };

    void run();
    void run_texts();
    bool open_embedder(std::string* error);
    void take_texts();
    void embed_texts();
    void end_texts(end_reason reason, const std::string& error);
    void start(job& j);
    void take_jobs();
    void drop_ended();
    void step();
    bool begin(job& j);
    int32_t reuse(job& j);
    size_t common(int32_t seq, const job& j) const;
    bool waits_for_prefix(const job& j) const;
    void keep_border(const job& j);
    int32_t oldest_free(int32_t except, bool is_held = false) const;
    bool drop_oldest(int32_t except);
    bool shorten(int32_t seq);
    void make_room();
    void tell_usage();
    void add_rows(job& j, int32_t n_tok);
    bool add_pieces();
    int32_t piece_size(bool has_streams, bool is_alone) const;
    void learn(double us, int32_t n_streams, int32_t n_prompt_tok);
    void after_decode();
    void take_prompt_logits(job& j, int32_t first, int32_t n_tok, int32_t* i_logits);
    void take_logits(job& j, const float* logits);
    void show(job& j, int32_t id);
    void tell_text(job& j, std::string_view text);
    void end(job& j, end_reason reason, const std::string& error = "");
    bool tell_parsed(job& j);
    void tell(job& j, answer_event event);
    void fail_all(const std::string& error);
    int32_t held(const job& j) const { return duet_seq_length(session_, j.seq); }
    bool keeps_borders() const { return params_.is_recurrent || params_.has_windows; }
    bool is_writing(const job& j) const { return j.seq >= 0 && held(j) + 1 == (int32_t)j.tokens.size(); }
    token_logprob logprob_of(const float* logits, int32_t id, int32_t n_top) const;

    const duet_model* model_;
    duet_session* session_;
    engine_params params_;
    metrics& metrics_;
    int32_t n_vocab_, n_ctx_, max_batch_;
    std::vector<sequence> seqs_;
    std::vector<job_ptr> running_;
    std::vector<row> rows_;
    std::vector<int32_t> batch_ids_, batch_seqs_;
    std::vector<uint8_t> batch_wants_;
    uint64_t clock_ = 0;
    double us_streams_ = 0, us_beside_ = 0, us_alone_ = 0;  // see learn; 0: not known yet
    bool waits_for_room_ = false;                           // a prompt found no room, and nothing has ended since

    session_ptr embedder_;  // made by the second thread when the first vector is asked for

    std::mutex mutex_;
    std::condition_variable wake_, wake_texts_;
    std::deque<job_ptr> queue_, text_queue_;
    std::vector<job_ptr> texts_;  // whose vectors are being computed: only the second thread adds to them
    bool is_stopped_ = false, cancels_all_ = false;
    std::atomic<int32_t> n_open_{0};                // answers that run or wait
    std::atomic<const job*> lone_reader_{nullptr};  // a prompt that is read alone: its decode may be interrupted
    std::thread thread_, text_thread_;
};

}  // namespace serve
