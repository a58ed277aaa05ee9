// tools/serve/reply.cpp: the events of a request's answers, collected or streamed.
#include "server.h"

namespace serve {

void reply::submit() {
    n_left_ = jobs.size();
    answers.resize(jobs.size());
    for (size_t i = 0; i < jobs.size(); i++)
        jobs[i]->tell = [self = shared_from_this(), i](job&, const answer_event& e) { self->take(i, e); };
    exchange->on_gone([jobs = jobs, &engine = *host.work] { engine.cancel(jobs); });
    if (is_stream) exchange->expects_stream(stream_type(), keep_alive());
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
    if (e.logprobs) a.logprobs.insert(a.logprobs.end(), e.logprobs->begin(), e.logprobs->end());
    if (e.kind == DUET_CHAT_TEXT) a.text += e.text;
    else if (e.kind == DUET_CHAT_THINKING) a.thinking += e.text;
    else if (e.kind == DUET_CHAT_CALL_BEGIN) a.calls.push_back({std::string(e.call_id), std::string(e.text), ""});
    else if (e.kind == DUET_CHAT_CALL_PIECE && !a.calls.empty()) a.calls.back().arguments += e.text;
    else if (e.kind == DUET_CHAT_END) {
        a.reason = e.reason;
        a.error = e.error;
        n_left_--;
        const bool is_cancelled = e.reason == end_reason::cancelled;  // the client has left, or the server ends
        if ((is_cancelled || e.reason == end_reason::failed) && !std::exchange(has_failed_, true)) {
            host.work->cancel(jobs);
            const std::string why = is_cancelled ? "the answer was cancelled: the server ends" : e.error;
            if (is_stream) {
                exchange->write(stream_error(why));
                exchange->finish();
            } else exchange->answer(is_cancelled ? 503 : 500, error_body(is_cancelled ? 503 : 500, why));
        }
    }
    if (has_failed_) return;
    if (n_left_ == 0) {
        const usage_counts u = count_usage(jobs);
        const job& j = *jobs[0];
        const double first = j.first_token_at > 0 ? j.first_token_at : j.ended_at;
        char text[200];
        std::snprintf(text, sizeof text,
                      ",\"prompt_tokens\":%lld,\"cached_tokens\":%lld,\"answer_tokens\":%lld,\"queue_ms\":%.1f,"
                      "\"first_token_ms\":%.1f",
                      (long long)u.n_prompt, (long long)u.n_cached, (long long)u.n_new,
                      (std::max(j.started_at, j.submitted_at) - j.submitted_at) * 1e3, (first - j.submitted_at) * 1e3);
        exchange->log_fields = text;
    }
    if (is_stream) {
        std::string text = piece(i_job, e);
        if (n_left_ == 0) text += last();
        exchange->write(std::move(text));
        if (n_left_ == 0) exchange->finish();
    } else if (n_left_ == 0) exchange->answer(200, dump(whole()));
}

json choices_reply::head(bool is_chunk, json choices) const {
    return {{"id", id},
            {"object", names_[is_chunk]},
            {"created", created_},
            {"model", host.id},
            {"system_fingerprint", std::string("duet-") + duet_version()},
            {"choices", std::move(choices)}};
}

json choices_reply::whole() {
    json choices = json::array();
    for (size_t i = 0; i < jobs.size(); i++) {
        choices.push_back(choice(i));
        choices.back()["index"] = i;
        choices.back()["finish_reason"] = finish_reason(answers[i].reason, has_calls(i));
    }
    json out = head(false, std::move(choices));
    out["usage"] = usage_json(jobs);
    return out;
}

std::string choices_reply::chunk(size_t i, const char* name, json value, json logprobs, const char* reason) const {
    json out = head(true, json::array({{{"index", i},
                                        {name, std::move(value)},
                                        {"logprobs", std::move(logprobs)},
                                        {"finish_reason", reason ? json(reason) : json(nullptr)}}}));
    if (include_usage) out["usage"] = nullptr;
    return sse(out);
}

std::string choices_reply::last() {
    std::string out;
    if (include_usage) {
        json chunk = head(true, json::array());
        chunk["usage"] = usage_json(jobs);
        out = sse(chunk);
    }
    return out + "data: [DONE]\n\n";
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

json usage_json(const std::vector<job_ptr>& jobs) {
    const usage_counts u = count_usage(jobs);
    return {{"prompt_tokens", u.n_prompt},
            {"completion_tokens", u.n_new},
            {"total_tokens", u.n_prompt + u.n_new},
            {"prompt_tokens_details", {{"cached_tokens", u.n_cached}}},
            {"completion_tokens_details", {{"reasoning_tokens", u.n_thinking}}}};
}

const char* finish_reason(end_reason reason, bool has_calls) {
    return reason == end_reason::length ? "length" : has_calls ? "tool_calls" : "stop";
}

grammar_ptr server::kept_grammar(const std::string& key, const char* field,
                                 const std::function<duet_status(duet_grammar**)>& make) {
    {
        const std::lock_guard lock(grammars_mutex_);
        for (auto i = grammars_.begin(); i != grammars_.end(); ++i)
            if (i->first == key) {
                grammars_.splice(grammars_.begin(), grammars_, i);
                return i->second;
            }
    }
    duet_grammar* made = nullptr;
    const duet_status status = make(&made);
    grammar_ptr grammar(made, handle_deleter());
    if (status != DUET_OK) refuse_status(status, duet_grammar_error(made), field);
    const std::lock_guard lock(grammars_mutex_);
    grammars_.emplace_front(key, grammar);
    if (grammars_.size() > 64) grammars_.pop_back();
    return grammar;
}

}  // namespace serve
