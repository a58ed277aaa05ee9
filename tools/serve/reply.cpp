// tools/serve/reply.cpp: the events of a request's answers, collected or streamed.
#include "server.h"

namespace serve {

void reply::submit() {
    n_left_ = jobs.size();
    answers.resize(jobs.size());
    has_begun_.resize(jobs.size());
    for (size_t i = 0; i < jobs.size(); i++)
        jobs[i]->tell = [self = shared_from_this(), i](job&, const answer_event& e) { self->take(i, e); };
    exchange->on_gone([jobs = jobs, &engine = *host.work] { engine.cancel(jobs); });
    if (common.is_stream) exchange->expects_stream(stream_type(), keep_alive());
    if (host.work->submit(jobs)) return;
    for (const job_ptr& j : jobs) j->tell = nullptr;
    exchange->headers.emplace_back("Retry-After", "1");
    refuse(429, "the queue is full: " + std::to_string(host.options.n_queue) + " answers wait", "", "queue_full");
}

void reply::take(size_t i_job, answer_event e) {
    collected_answer& a = answers[i_job];
    // The library numbers the calls of a conversation; clients keep the calls of many. Nine letters and digits: some
    // templates take no others.
    std::string own_id;
    if (e.kind == DUET_CHAT_CALL_BEGIN && e.call_id.size() == 9 && e.call_id.substr(0, 4) == "call")
        e.call_id = own_id = random_id("call").substr(0, 9);
    if (e.logprobs && !e.logprobs->empty()) {
        const size_t n_told = a.logprobs.size(), n_thinking = (size_t)jobs[i_job]->n_thinking_tok;
        a.logprobs.insert(a.logprobs.end(), e.logprobs->begin(), e.logprobs->end());
        if (e.kind == DUET_CHAT_TEXT)  // the token that ends the thinking comes with the text behind it
            for (size_t i = std::max(n_told, n_thinking); i < a.logprobs.size(); i++)
                a.text_logprobs.push_back(a.logprobs[i]);
    }
    if (e.kind == DUET_CHAT_TEXT) a.text += e.text;
    else if (e.kind == DUET_CHAT_THINKING) a.thinking += e.text;
    else if (e.kind == DUET_CHAT_CALL_BEGIN) a.calls.push_back({std::string(e.call_id), std::string(e.text), ""});
    else if (e.kind == DUET_CHAT_CALL_PIECE && !a.calls.empty()) a.calls.back().arguments += e.text;
    else if (e.kind == DUET_CHAT_END) {
        a.reason = e.reason;
        n_left_--;
        if (e.reason >= end_reason::cancelled) fail(e);
    }
    if (has_failed_) return;
    if (n_left_ == 0) tell_log();
    if (common.is_stream) {
        std::string text = std::exchange(has_begun_[i_job], 1) ? "" : first(i_job);
        text += piece(i_job, e);
        if (n_left_ == 0) text += last();
        exchange->write(std::move(text));
        if (n_left_ == 0) exchange->finish();
    } else if (n_left_ == 0) {
        // Thousands of log probabilities take seconds as JSON, for which no other answer waits.
        const auto work = [self = shared_from_this()] { self->exchange->answer(200, dump(self->whole())); };
        common.n_logprobs < 0 ? work() : exchange->run_aside([=, this] { answer_with(exchange, work); });
    }
}

// One answer has failed, or was cancelled because its client has left or the server ends: the others end, too.
void reply::fail(const answer_event& e) {
    if (std::exchange(has_failed_, true)) return;
    tell_log();
    for (const job_ptr& j : jobs) j->is_cancelled = true;  // seen before the next step
    const bool is_cancelled = e.reason == end_reason::cancelled;
    const std::string why = is_cancelled ? "the answer was cancelled: the server ends" : e.error;
    // 499: the client has left
    const int status = is_cancelled ? host.is_draining ? 503 : 499 : e.reason == end_reason::refused ? 400 : 500;
    if (common.is_stream && status != 499) return exchange->write(stream_error(why)), exchange->finish();
    exchange->answer(status, error_of_route(exchange->request.path, {status, why}));
}

void reply::tell_log() const {
    const usage_counts u = count_usage(jobs);
    const job& j = *jobs[0];
    const double first = j.first_token_at > 0 ? j.first_token_at : j.ended_at;
    const auto ms = [&](double until) { return std::round(std::max(0.0, until - j.submitted_at) * 1e4) / 10; };
    // clang-format off
    const json told = {{"prompt_tokens", u.n_prompt}, {"cached_tokens", u.n_cached}, {"answer_tokens", u.n_new},
                       {"queue_ms", ms(j.started_at)}, {"first_token_ms", ms(first)}};
    // clang-format on
    exchange->log_fields = "," + dump(told).substr(1);
    exchange->log_fields.pop_back();
}

void reply::tell_whole() {
    if (common.is_stream) return;  // it was told
    const collected_answer& a = answers[0];
    if (!a.thinking.empty()) piece(0, {DUET_CHAT_THINKING, -1, a.thinking});
    if (!a.text.empty()) piece(0, {DUET_CHAT_TEXT, -1, a.text});
    for (const tool_call& call : a.calls) {
        piece(0, {DUET_CHAT_CALL_BEGIN, -1, call.name, call.id});
        piece(0, {DUET_CHAT_CALL_PIECE, -1, call.arguments});
    }
}

static json token_json(const server& s, int32_t id, double logprob) {
    const std::string_view text = view_of(duet_token_text(s.model, id));
    const std::vector<uint8_t> bytes(text.begin(), text.end());
    return {{"token", token_name(s, id)}, {"logprob", logprob}, {"bytes", bytes}};
}

json reply::logprobs_json(const std::vector<token_logprob>& list, size_t n_told) const {
    json out = json::array();
    for (auto p = list.begin() + (ptrdiff_t)n_told; p != list.end(); ++p) {
        out.push_back(token_json(host, p->id, p->logprob));
        out.back()["top_logprobs"] = json::array();
        for (const auto& [id, logprob] : p->top) out.back()["top_logprobs"].push_back(token_json(host, id, logprob));
    }
    return out;
}

// clang-format off
json choices_reply::head(bool is_chunk, json choices) const {
    return {{"id", id}, {"object", names_[is_chunk]}, {"created", created_}, {"model", host.id},
            {"system_fingerprint", std::string("duet-") + duet_version()}, {"choices", std::move(choices)}};
}
// clang-format on

const char* choices_reply::reason_of(size_t i) const {
    return answers[i].reason == end_reason::length ? "length" : answers[i].calls.empty() ? "stop" : "tool_calls";
}

json choices_reply::whole() {
    json choices = json::array();
    for (size_t i = 0; i < jobs.size(); i++) {
        choices.push_back(choice(i));
        choices.back()["index"] = i;
        choices.back()["finish_reason"] = reason_of(i);
    }
    json out = head(false, std::move(choices));
    out["usage"] = usage_json(jobs);
    return out;
}

std::string choices_reply::chunk(size_t i, const char* name, json value, json logprobs, bool is_end) const {
    json choice = {{"index", i}, {name, std::move(value)}, {"logprobs", std::move(logprobs)}};
    choice["finish_reason"] = is_end ? json(reason_of(i)) : json(nullptr);
    json out = head(true, json::array({std::move(choice)}));
    if (common.include_usage) out["usage"] = nullptr;
    return sse(out);
}

std::string choices_reply::last() {
    json chunk = head(true, json::array());
    chunk["usage"] = usage_json(jobs);
    return (common.include_usage ? sse(chunk) : "") + "data: [DONE]\n\n";
}

usage_counts count_usage(const std::vector<job_ptr>& jobs) {
    usage_counts u;
    for (const job_ptr& j : jobs) {
        u.n_new += j->n_new_tok;
        u.n_thinking += j->n_thinking_tok;
        if (j->i_choice > 0) continue;  // the choices of one prompt count it once
        u.n_prompt += (int64_t)j->prompt.size();
        u.n_cached += j->n_cached_tok;
    }
    return u;
}

// clang-format off
json usage_json(const std::vector<job_ptr>& jobs) {
    const usage_counts u = count_usage(jobs);
    return {{"prompt_tokens", u.n_prompt}, {"completion_tokens", u.n_new}, {"total_tokens", u.n_prompt + u.n_new},
            {"prompt_tokens_details", {{"cached_tokens", u.n_cached}}},
            {"completion_tokens_details", {{"reasoning_tokens", u.n_thinking}}}};
}
// clang-format on

grammar_ptr server::kept_grammar(const std::string& key, const char* field, const grammar_maker& make) {
    {
        const std::lock_guard lock(grammars_mutex_);
        const auto found = std::ranges::find_if(grammars_, [&](auto& kept) { return kept.first == key; });
        if (found != grammars_.end()) return grammars_.splice(grammars_.begin(), grammars_, found), found->second;
    }
    const grammar_ptr grammar = make_or_refuse(duet_grammar_error, field, make);
    const std::lock_guard lock(grammars_mutex_);
    grammars_.emplace_front(key, grammar);
    if (grammars_.size() > kKeptGrammars) grammars_.pop_back();
    return grammar;
}

}  // namespace serve
