// tools/serve/engine.cpp: batches of running answers and a piece of one prompt, step by step.
// Main path: completions.cpp, chat.cpp -> [engine.cpp] -> runtime.h
#include "engine.h"

#include <cmath>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>

namespace serve {

namespace {

// A step with pieces of prompts takes about this long: beside answers that are written, which should not wait for more
// than 100 ms; without them; and with nothing but a piece of one prompt, which can be interrupted. The last has at
// least kLonePiece tokens: a short prompt is read at once, as it would be in process.
constexpr double kStepUs = 80e3, kReadUs = 100e3, kLoneStepUs = 250e3;
constexpr int32_t kLonePiece = 128;
// Matrix units take so many rows at a time: 17 rows took as long as 32 (docs/measurements/2026-11-23-server.md). A step
// with answers and a piece of a prompt has a multiple of them where that takes little longer.
constexpr int32_t kTile = 16;
constexpr int32_t kDropTok = 512;   // taken at a time from what has to give back pages
constexpr int kTextsNice = 5;       // of the threads that compute vectors (docs/embeddings.md has the measurements)
constexpr int32_t kLogitRows = 64;  // most rows of logits that are kept for a prompt's log probabilities

}  // namespace

// A thread, its session and its queue. There is one for answers, and one for vectors of texts, whose session is made
// when the first vector is asked for.
struct engine::loop {
    struct sequence {
        job* user = nullptr;  // null: it is kept as a prefix for later prompts
        uint64_t used_at = 0;
    };
    struct row {
        job* owner;
        int32_t n_tok;
    };

    const duet_model* model_;
    duet_session* session_;
    session_ptr own_session_;  // of texts
    engine_params params_;
    metrics& metrics_;
    const bool is_for_texts_;
    int32_t n_vocab_, n_ctx_, max_batch_;
    std::vector<sequence> seqs_;
    std::vector<job_ptr> running_;
    std::vector<row> rows_;
    std::vector<int32_t> batch_ids_, batch_seqs_;
    std::vector<uint8_t> batch_wants_;
    uint64_t clock_ = 0;
    double us_streams_ = 0, us_beside_ = 0, us_alone_ = 0;  // see learn; 0: not known yet
    bool fills_tiles_ = true;                               // until such a step took too long, for each prompt
    bool waits_for_room_ = false;                           // a prompt found no room, and nothing has ended since

    std::mutex mutex_;
    std::condition_variable wake_;
    std::deque<job_ptr> queue_;
    std::vector<job*> interruptible_;  // what is being computed, if that may be interrupted: it is done again
    bool is_stopped_ = false, cancels_all_ = false;
    std::atomic<int32_t> n_open_{0};  // answers that run or wait
    std::thread thread_;

    int32_t held(const job& j) const { return duet_seq_length(session_, j.seq); }
    bool keeps_borders() const { return params_.is_recurrent || params_.has_windows; }
    bool is_writing(const job& j) const { return j.seq >= 0 && held(j) + 1 == (int32_t)j.tokens.size(); }

    loop(const duet_model* model, duet_session* session, engine_params params, metrics& m)
        : model_(model), session_(session), params_(params), metrics_(m), is_for_texts_(!session),
          n_vocab_(info_of(model).n_vocab), n_ctx_(session ? duet_session_n_ctx(session) : 0),
          max_batch_(session ? duet_session_max_batch(session) : params.embedder.max_batch),
          seqs_((size_t)params.n_seqs) {
        thread_ = std::thread([this] { run(); });
    }

    ~loop() {
        {
            const std::lock_guard lock(mutex_);
            is_stopped_ = true;
            if (!interruptible_.empty()) duet_session_cancel(session_);
        }
        wake_.notify_one();
        thread_.join();
    }

    // ---- called from other threads ----

    bool submit(const std::vector<job_ptr>& jobs) {
        {
            const std::lock_guard lock(mutex_);
            if (is_stopped_ || n_open_ >= params_.n_slots + params_.n_queue) return false;
            n_open_ += (int32_t)jobs.size();
            for (const job_ptr& j : jobs) {
                j->submitted_at = now_seconds();
                j->tokens = j->prompt;
                if (!keeps_borders()) j->borders.clear();
                else if (j->prompt.size() > 32) j->borders.push_back((int32_t)j->prompt.size() - 1);
                queue_.push_back(j);
            }
            metrics_.add("duet_requests_waiting", (double)jobs.size());
        }
        wake_.notify_one();
        return true;
    }

    void cancel(const std::vector<job_ptr>& jobs) {
        bool is_free = false;
        {
            const std::lock_guard lock(mutex_);
            const auto is_ours = [&](const job_ptr& j) { return std::find(jobs.begin(), jobs.end(), j) != jobs.end(); };
            for (const job_ptr& j : jobs) j->is_cancelled = true;
            interrupt();
            // A request that waits as a whole leaves at once. Another one is told by the thread that owns it alone.
            is_free = std::count_if(queue_.begin(), queue_.end(), is_ours) == (ptrdiff_t)jobs.size();
            if (is_free) std::erase_if(queue_, is_ours);
        }
        for (const job_ptr& j : jobs)
            if (is_free) end(*j, end_reason::cancelled);
        wake_.notify_one();
    }

    void cancel_all() {
        const std::lock_guard lock(mutex_);
        cancels_all_ = true;
        for (job* j : interruptible_) j->is_cancelled = true;
        interrupt();
        wake_.notify_one();
    }

    // Stops what is computed for one who has left. Under the mutex.
    void interrupt() {
        const auto has_left = [](const job* j) { return j->is_cancelled.load(); };
        if (std::any_of(interruptible_.begin(), interruptible_.end(), has_left)) duet_session_cancel(session_);
    }

    // ---- the thread ----

    void run() {
#ifdef __linux__
        // Here a nice value is a thread's own, and the threads of the session that it makes inherit it.
        if (is_for_texts_ && !info_of(model_).is_encoder && ::nice(kTextsNice) == -1) errno = 0;
#endif
        for (;;) {
            {
                std::unique_lock lock(mutex_);
                wake_.wait(lock, [&] { return is_stopped_ || !queue_.empty() || !running_.empty(); });
                if (is_stopped_) break;
            }
            try {
                take_jobs();
                is_for_texts_ ? embed() : step();
            } catch (const std::exception& e) { fail_all(e.what()); }
        }
        cancel_all();
        take_jobs();
    }

    // Moves answers from the queue to free slots, and ends those whose client has left.
    void take_jobs() {
        std::vector<job_ptr> left;
        {
            const std::lock_guard lock(mutex_);
            const bool all = std::exchange(cancels_all_, false);
            const auto has_left = [&](const job_ptr& j) {
                if (!all && !j->is_cancelled) return false;
                left.push_back(j);
                return true;
            };
            std::erase_if(queue_, has_left);
            for (const job_ptr& j : running_) has_left(j);
            for (const job_ptr& j : left) j->is_cancelled = true;
        }
        for (const job_ptr& j : left) end(*j, end_reason::cancelled);
        drop_ended();
        const std::lock_guard lock(mutex_);
        size_t n_tok = 0;
        for (const size_t n_before = running_.size(); !queue_.empty(); queue_.pop_front()) {
            // Of texts about one batch, when none are left: what one who leaves makes others compute again is bounded.
            // What is scored is a batch of its own.
            n_tok += queue_.front()->documents.empty() ? queue_.front()->prompt.size() : (size_t)max_batch_ + 1;
            if (is_for_texts_ ? n_before || (!running_.empty() && n_tok > (size_t)max_batch_)
                              : (int32_t)running_.size() == params_.n_slots)
                break;
            running_.push_back(queue_.front());  // a place is taken; end() gives it back
            const double now = running_.back()->started_at = now_seconds();
            metrics_.observe("duet_queue_time_seconds", now - running_.back()->submitted_at);
            metrics_.add("duet_requests_waiting", -1);
            metrics_.add("duet_requests_running");
        }
    }

    // What is computed next may be interrupted when one of these leaves, until the lock is given back.
    void may_interrupt(std::vector<job*> jobs) {
        const std::lock_guard lock(mutex_);
        interruptible_ = std::move(jobs);
        interrupt();
    }

    void drop_ended() {
        std::erase_if(running_, [](const job_ptr& j) { return j->is_over; });
    }

    // ---- vectors ----

    void embed() {
        if (running_.empty()) return;
        if (!session_) {  // one that could not be made is tried again by the next request
            duet_session* made = nullptr;
            const duet_status status = duet_session_create(model_, &params_.embedder, &made);
            session_ptr session(made);
            if (status != DUET_OK) return fail_all(made ? duet_session_error(made) : duet_status_name(status));
            own_session_ = std::move(session);
            session_ = made;
        }
        std::vector<int32_t> ids, n_ids;
        std::vector<job*> jobs;
        for (const job_ptr& j : running_) {
            ids.insert(ids.end(), j->prompt.begin(), j->prompt.end());
            n_ids.push_back((int32_t)j->prompt.size());
            jobs.push_back(j.get());
        }
        const job& first = *jobs[0];
        std::vector<duet_string> documents;
        for (const std::string& text : first.documents) documents.push_back({text.data(), text.size()});
        const int32_t n = (int32_t)(documents.empty() ? jobs.size() : documents.size());
        const size_t dim = documents.empty() ? (size_t)info_of(model_).embedding_dim : documents.size();
        std::vector<float> out(jobs.size() * dim);
        may_interrupt(jobs);
        const duet_status status =
            documents.empty()
                ? duet_embed_ids(session_, ids.data(), n_ids.data(), n, nullptr, out.data())
                : duet_rerank(session_, first.query.data(), first.query.size(), documents.data(), n, out.data());
        may_interrupt({});
        if (status == DUET_ERR_CANCELLED) return;  // those who left go, the others are computed again
        const bool is_refused = status == DUET_ERR_FULL || status == DUET_ERR_UNSUPPORTED;
        const end_reason why = is_refused ? end_reason::refused : end_reason::failed;
        if (status != DUET_OK) return fail_all(duet_session_error(session_), why);
        for (size_t i = 0; i < jobs.size(); i++) {
            jobs[i]->embedding.assign(out.begin() + (ptrdiff_t)(i * dim), out.begin() + (ptrdiff_t)((i + 1) * dim));
            end(*jobs[i], end_reason::stop);
        }
        drop_ended();
    }

    // ---- prefixes ----

    // How many tokens a sequence has in common with an answer, the last one excepted, which is run for its logits.
    size_t common(int32_t seq, const job& j) const {
        return n_same(duet_seq_ids(session_, seq), j, (size_t)duet_seq_length(session_, seq));
    }
    static size_t n_same(const int32_t* ids, const job& j, size_t n_ids) {
        return (size_t)(std::mismatch(ids, ids + std::min(n_ids, j.tokens.size() - 1), j.tokens.begin()).first - ids);
    }

    // The sequence without an answer that was not used for longest; is_held: of those that hold something.
    int32_t oldest_free(int32_t except, bool is_held = false) const {
        int32_t oldest = -1;
        for (int32_t i = 0; i < (int32_t)seqs_.size(); i++) {
            if (i == except || seqs_[(size_t)i].user || (is_held && duet_seq_length(session_, i) == 0)) continue;
            if (oldest < 0 || seqs_[(size_t)i].used_at < seqs_[(size_t)oldest].used_at) oldest = i;
        }
        return oldest;
    }

    // Gives the answer a sequence that holds as much of its tokens as any can. A sequence that holds little else is
    // taken over; of others a copy is made, which shares their pages, in the one that was not used for longest.
    // Recurrent states cannot go back, so that only whole sequences serve; those that were kept at borders are there
    // for that.
    int32_t reuse(job& j) {
        const bool can_reuse = j.uses_cache && !j.wants_prompt_logprobs;
        std::vector<std::pair<size_t, int32_t>> found;
        for (int32_t i = 0; i < (int32_t)seqs_.size() && can_reuse; i++) {
            const job* user = seqs_[(size_t)i].user;
            const size_t n = user && (!user->uses_cache || user->is_cancelled) ? 0 : common(i, j);
            if (n > 0) found.emplace_back(n, i);
        }
        std::sort(found.rbegin(), found.rend());
        int32_t target = -1, n_reused = 0;
        for (size_t k = 0; k < found.size() && n_reused == 0; k++) {
            const auto [n, source] = found[k];
            const size_t n_other = (size_t)duet_seq_length(session_, source) - n;
            if (params_.is_recurrent && n_other > 0) continue;
            const bool takes_over =
                !keeps_borders() && !seqs_[(size_t)source].user && n_other <= std::max<size_t>(64, n / 4);
            target = takes_over ? source : oldest_free(source);
            seqs_[(size_t)source].used_at = ++clock_;
            if (target == source || duet_seq_copy(session_, source, target) == DUET_OK)
                n_reused = duet_seq_reuse(session_, target, j.tokens.data(), j.tokens.size() - 1);
        }
        if (!found.empty() && (size_t)n_reused + 64 < found[0].first)
            metrics_.add("duet_prefix_misses_total", 1,
                         params_.is_recurrent ? "reason=\"recurrent_state\"" : "reason=\"window\"");
        if (n_reused > 0) return target;
        target = oldest_free(-1);
        return duet_seq_trim(session_, target, 0) == DUET_OK ? target : -1;
    }

    // Whether another answer is reading a beginning that both share, so that waiting costs less than reading it, too.
    bool waits_for_prefix(const job& j) const {
        if (!j.uses_cache || j.wants_prompt_logprobs) return false;
        for (const job_ptr& other : running_) {
            if (other->seq < 0 || is_writing(*other) || !other->uses_cache || other->is_cancelled) continue;
            size_t n = n_same(other->tokens.data(), j, other->tokens.size());
            if (params_.is_recurrent) {  // only what it keeps at its borders serves
                size_t n_kept = 0;
                for (int32_t border : other->borders)
                    if ((size_t)border <= n) n_kept = (size_t)border;
                n = n_kept;
            }
            if ((int64_t)n >= held(*other) + 32) return true;
        }
        return false;
    }

    // Keeps the state of a prompt that has been read up to one of its borders.
    void keep_border(const job& j) {
        if (!j.uses_cache || !std::binary_search(j.borders.begin(), j.borders.end(), held(j))) return;
        const int32_t target = oldest_free(-1);
        if (duet_seq_copy(session_, j.seq, target) == DUET_OK) seqs_[(size_t)target].used_at = ++clock_;
    }

    // ---- room ----

    // Takes pages from the end of the prefix that was not used for longest: prompts share beginnings. States that
    // cannot go back are dropped whole. Returns false when there is none.
    bool drop_oldest(int32_t except) {
        const int32_t oldest = oldest_free(except, true);
        return oldest >= 0 && shorten(oldest);
    }

    bool shorten(int32_t seq) {
        const int32_t n_left = keeps_borders() ? 0 : std::max(0, duet_seq_length(session_, seq) - kDropTok);
        return duet_seq_trim(session_, seq, n_left) == DUET_OK;
    }

    // The cache is full. Kept prefixes go first. When there are none left, the answer that began last gives back pages,
    // waits, and computes what they held again from its own tokens, with the same bits. What it still holds is a prefix
    // like others.
    void make_room() {
        if (drop_oldest(-1)) return;
        job* youngest = nullptr;
        int n_begun = 0;
        for (const job_ptr& j : running_)
            if (j->seq >= 0) youngest = j.get(), n_begun++;
        if (n_begun < 2) return fail_all(duet_session_error(session_));
        const int32_t seq = youngest->seq;
        const bool is_shared = youngest->uses_cache && !youngest->wants_prompt_logprobs;
        seqs_[(size_t)seq] = {nullptr, ++clock_};
        if (is_shared ? !shorten(seq) : duet_seq_trim(session_, seq, 0) != DUET_OK)
            return fail_all(duet_session_error(session_));
        youngest->seq = -1;
        youngest->prompt_logprobs.clear();
        waits_for_room_ = true;
        metrics_.add("duet_put_back_total");
    }

    // Gives an answer its sequence, if the cache has room for all of its tokens and a page for each that runs.
    bool begin(job& j) {
        const int32_t seq = reuse(j);
        if (seq < 0) return end(j, end_reason::failed, duet_session_error(session_)), false;
        constexpr int64_t kPage = 64;
        const int64_t n_begun = std::ranges::count_if(running_, [](const job_ptr& r) { return r->seq >= 0; });
        const int64_t n_held = duet_seq_length(session_, seq),
                      n_want = (int64_t)j.tokens.size() - n_held + kPage * (n_begun + 2);
        while (n_begun > 0 && duet_session_room(session_) < n_want)
            if (!drop_oldest(seq)) {
                seqs_[(size_t)seq].used_at = ++clock_;
                waits_for_room_ = true;
                return false;
            }
        j.seq = seq;
        seqs_[(size_t)seq] = {&j, ++clock_};
        fills_tiles_ = true;
        if (std::exchange(j.has_begun, true)) return true;  // it was put back
        j.n_cached_tok = (int32_t)n_held;
        metrics_.add("duet_prompt_tokens_total", (double)j.prompt.size());
        metrics_.add("duet_prompt_tokens_cached_total", j.n_cached_tok);
        metrics_.observe("duet_request_prompt_tokens", (double)j.prompt.size());
        return true;
    }

    void tell_usage() {
        const double share = 1 - (double)duet_session_room(session_) / (double)params_.cache_tokens;
        metrics_.set("duet_kv_cache_usage_ratio", std::max(0.0, share));
    }

    // ---- a step ----

    // Prompt tokens of a step. Beside running answers they may add what is left of the step's time, and half of what
    // the answers take where that is long already.
    int32_t piece_size(int32_t n_streams, bool is_alone) const {
        if (params_.chunk > 0) return params_.chunk;
        const bool has_streams = n_streams > 0;
        const double us = has_streams && us_beside_ > 0 ? us_beside_ : us_alone_ * (has_streams ? 3 : 1);
        const double least = is_alone ? kLonePiece : has_streams && us > 0 ? 1 : 8;
        const double time_alone = is_alone ? kLoneStepUs : kReadUs;
        const double time = has_streams ? std::max(kStepUs, 1.5 * us_streams_) - us_streams_ : time_alone;
        const int32_t n = (int32_t)std::clamp(us > 0 ? time / us : least, least, 65536.0);
        if (!has_streams || !fills_tiles_) return n;
        return std::max(n, (n * 9 / 8 + n_streams + kTile / 2) / kTile * kTile - n_streams);
    }

    // Learns what tokens cost: those of answers, of prompts beside them, and of prompts alone.
    void learn(double us, int32_t n_streams, int32_t n_prompt_tok) {
        const auto mix = [](double& mean, double now) { mean = mean > 0 ? 0.6 * mean + 0.4 * now : now; };
        if (n_prompt_tok == 0) mix(us_streams_, us);
        else if (n_streams > 0) {
            mix(us_beside_, std::max(us - us_streams_, us / 10) / n_prompt_tok);
            if (us > kReadUs) fills_tiles_ = false;
        } else if (n_prompt_tok >= 8) mix(us_alone_, us / n_prompt_tok);
    }

    void add_rows(job& j, int32_t n_tok) {
        const int32_t n_held = held(j);
        const bool is_last = n_held + n_tok == (int32_t)j.tokens.size();
        for (int32_t i = 0; i < n_tok; i++) {
            batch_ids_.push_back(j.tokens[(size_t)(n_held + i)]);
            batch_seqs_.push_back(j.seq);
            batch_wants_.push_back(j.wants_prompt_logprobs && n_held + i + 1 < (int32_t)j.prompt.size());
        }
        if (is_last) batch_wants_.back() = 1;
        rows_.push_back({&j, n_tok});
    }

    // Pieces of prompts, in order of arrival, beside the answers that are written.
    void add_pieces() {
        const int32_t n_streams = (int32_t)rows_.size();
        const bool is_alone = n_streams == 0 && running_.size() == 1;
        int32_t n_left = std::min(piece_size(n_streams, is_alone), max_batch_ - n_streams);
        const auto reads = [&](const job_ptr& j) {
            if (j->is_over || j->is_cancelled || is_writing(*j)) return false;
            return j->seq >= 0 || (!waits_for_room_ && !waits_for_prefix(*j));
        };
        ptrdiff_t n_readers = std::count_if(running_.begin(), running_.end(), reads);
        for (const job_ptr& p : running_) {
            job& j = *p;
            if (n_left <= 0) break;
            if (!reads(p) || (j.seq < 0 && !begin(j))) continue;
            const int32_t n_held = held(j);
            // A prompt leaves half to later ones, so that a long one does not hold up short ones.
            int32_t n = std::min(--n_readers > 0 ? (n_left + 1) / 2 : n_left, (int32_t)j.tokens.size() - n_held);
            if (j.wants_prompt_logprobs) n = std::min(n, kLogitRows);
            const auto border = std::upper_bound(j.borders.begin(), j.borders.end(), n_held);
            if (border != j.borders.end()) n = std::min(n, *border - n_held);
            add_rows(j, n);
            n_left -= n;
        }
    }

    void step() {
        rows_.clear();
        batch_ids_.clear();
        batch_seqs_.clear();
        batch_wants_.clear();
        for (const job_ptr& j : running_)
            if (is_writing(*j)) add_rows(*j, 1);
        const int32_t n_streams = (int32_t)rows_.size();
        add_pieces();
        if (rows_.empty()) return drop_ended();
        const bool is_alone = running_.size() == 1;  // then nobody else loses what is interrupted
        duet_batch batch = duet_batch_default();
        batch.n_tok = (int32_t)batch_ids_.size();
        batch.token = batch_ids_.data();
        batch.seq = batch_seqs_.data();
        batch.want_logits = batch_wants_.data();
        if (is_alone) may_interrupt({rows_[0].owner});
        const double start = now_seconds();
        const duet_status status = duet_decode(session_, &batch);
        if (is_alone) may_interrupt({});
        if (status == DUET_ERR_CANCELLED) return;  // the sequences tell what was done; the rest is done again
        if (status == DUET_ERR_FULL) return make_room();
        if (status != DUET_OK) return fail_all(duet_session_error(session_));
        learn((now_seconds() - start) * 1e6, n_streams, batch.n_tok - n_streams);

        int32_t i_logits = 0;
        for (const row& r : rows_) {
            job& j = *r.owner;
            keep_border(j);
            if (j.is_over) continue;
            const int32_t n_held = held(j), first = n_held - r.n_tok;
            for (int32_t i = first; j.wants_prompt_logprobs && i < n_held && i + 1 < (int32_t)j.prompt.size(); i++)
                if (const float* logits = duet_logits(session_, i_logits++))
                    j.prompt_logprobs.push_back(logprob_of(logits, j.prompt[(size_t)i + 1], std::max(0, j.n_logprobs)));
            if (n_held < (int32_t)j.tokens.size()) continue;
            const float* logits = duet_logits(session_, i_logits++);
            if (logits) take_logits(j, logits);
            else end(j, end_reason::failed, duet_session_error(session_));
        }
        tell_usage();
        drop_ended();
    }

    // Chooses the next token of an answer, and tells what became certain.
    void take_logits(job& j, const float* logits) {
        if (j.max_new_tok == 0 || (int32_t)j.tokens.size() >= n_ctx_) return end(j, end_reason::length);
        int32_t id = -1;
        if (duet_sampler_choose(j.sampler.get(), logits, n_vocab_, &id) != DUET_OK)
            return end(j, end_reason::failed, duet_sampler_error(j.sampler.get()));
        if (duet_token_is_end(model_, id)) return end(j, end_reason::stop);
        if (duet_sampler_accept(j.sampler.get(), id) != DUET_OK)
            return end(j, end_reason::failed, duet_sampler_error(j.sampler.get()));
        if (j.n_logprobs >= 0) j.waiting.push_back(logprob_of(logits, id, j.n_logprobs));
        const double now = now_seconds();
        if (++j.n_new_tok > 1) metrics_.observe("duet_time_between_tokens_seconds", now - j.last_token_at);
        else metrics_.observe("duet_time_to_first_token_seconds", (j.first_token_at = now) - j.submitted_at);
        j.last_token_at = now;
        j.tokens.push_back(id);
        metrics_.add("duet_generation_tokens_total");
        show(j, id);
        if (j.is_over) return;
        if (duet_sampler_is_done(j.sampler.get())) return end(j, end_reason::stop);
        if (j.n_new_tok == j.max_new_tok || (int32_t)j.tokens.size() >= n_ctx_) end(j, end_reason::length);
    }

    // The log probability of an id and of the n_top most likely, in the distribution that the model gave. Sums are
    // taken in one order, in double, so that they are the same in every batch.
    token_logprob logprob_of(const float* logits, int32_t id, int32_t n_top) const {
        const double largest = *std::max_element(logits, logits + n_vocab_);
        double sum = 0;
        for (int32_t i = 0; i < n_vocab_; i++) sum += std::exp((double)logits[i] - largest);
        const double log_sum = largest + std::log(sum);
        token_logprob out{id, (double)logits[id] - log_sum, {}};
        const auto is_better = [&](int32_t a, int32_t b) {
            return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
        };
        std::vector<int32_t> ids((size_t)(n_top > 0 ? n_vocab_ : 0));
        std::iota(ids.begin(), ids.end(), 0);
        const auto end = ids.begin() + std::min(n_top, (int32_t)ids.size());
        std::partial_sort(ids.begin(), end, ids.end(), is_better);
        for (auto i = ids.begin(); i != end; ++i) out.top.emplace_back(*i, (double)logits[*i] - log_sum);
        return out;
    }

    // ---- texts ----

    void show(job& j, int32_t id) {
        bool is_stopped = false;
        if (j.parser) {
            if (duet_chat_parser_add(j.parser.get(), id) != DUET_OK)
                return end(j, end_reason::failed, duet_chat_parser_error(j.parser.get()));
            is_stopped = tell_parsed(j);
        } else {
            const std::string_view bytes = view_of(duet_token_text(model_, id));
            duet_string text = {};
            int32_t stop = 0;
            if (duet_text_gate_add(j.gate.get(), bytes.data(), bytes.size(), &text, &stop) != DUET_OK)
                return end(j, end_reason::failed, duet_text_gate_error(j.gate.get()));
            if (text.n_bytes > 0) tell(j, {DUET_CHAT_TEXT, -1, view_of(text)});
            is_stopped = stop > 0;
            j.i_stop = stop - 1;
        }
        if (!is_stopped) return;
        j.waiting.clear();  // the tokens of a stop string are not part of the answer
        end(j, end_reason::stop_string);
    }

    // Tells what the parser has made certain. Returns whether a stop string was met.
    bool tell_parsed(job& j) {
        duet_chat_event e{};
        e.struct_size = sizeof e;
        while (duet_chat_parser_next(j.parser.get(), &e) == DUET_OK && e.kind != DUET_CHAT_NONE) {
            j.n_thinking_tok = e.n_thinking_tok;
            if (e.kind == DUET_CHAT_END) return j.i_stop = e.i_stop, true;
            tell(j, {e.kind, e.i_call, view_of(e.text), view_of(e.call_id)});
        }
        return false;
    }

    void tell(job& j, answer_event event) {
        event.logprobs = &j.waiting;
        if (j.tell) j.tell(j, event);
        j.waiting.clear();
    }

    // Ends an answer: tells what waited for more, and leaves its sequence as a prefix for others.
    void end(job& j, end_reason reason, const std::string& error = "") {
        if (j.is_over) return;
        const bool is_whole = reason == end_reason::stop || reason == end_reason::length;
        duet_string rest = {};
        if (is_whole && j.parser && !duet_chat_parser_finish(j.parser.get()) && tell_parsed(j))
            reason = end_reason::stop_string;
        if (is_whole && j.gate && duet_text_gate_finish(j.gate.get(), &rest) == DUET_OK && rest.n_bytes > 0)
            tell(j, {DUET_CHAT_TEXT, -1, view_of(rest)});
        j.is_over = true;
        n_open_--;
        j.ended_at = now_seconds();
        if (j.seq >= 0) {
            seqs_[(size_t)j.seq] = {nullptr, ++clock_};
            if ((!j.uses_cache || reason == end_reason::failed) && duet_seq_trim(session_, j.seq, 0) == DUET_OK)
                seqs_[(size_t)j.seq] = {};
            waits_for_room_ = false;
            tell_usage();
        }
        // who has the answer finds it counted
        metrics_.add(j.started_at > 0 ? "duet_requests_running" : "duet_requests_waiting", -1);
        if (reason == end_reason::cancelled) metrics_.add("duet_cancelled_total");
        if (!is_for_texts_) metrics_.observe("duet_request_generation_tokens", j.n_new_tok);
        tell(j, {DUET_CHAT_END, -1, {}, {}, nullptr, reason, error});
        j.tell = nullptr;
    }

    void fail_all(const std::string& error, end_reason reason = end_reason::failed) {
        for (const job_ptr& j : running_) end(*j, reason, error);
        running_.clear();
    }
};

engine::engine(const duet_model* model, duet_session* session, engine_params params, metrics& m)
    : answers_(std::make_unique<loop>(model, session, params, m)),
      texts_(params.embeds ? std::make_unique<loop>(model, nullptr, params, m) : nullptr) {}
engine::~engine() = default;
bool engine::submit(const std::vector<job_ptr>& jobs) {
    return (jobs[0]->wants_embedding ? texts_ : answers_)->submit(jobs);
}
void engine::cancel(const std::vector<job_ptr>& jobs) { (jobs[0]->wants_embedding ? texts_ : answers_)->cancel(jobs); }
void engine::cancel_all() {
    for (const auto& loop : {answers_.get(), texts_.get()})
        if (loop) loop->cancel_all();
}

}  // namespace serve
