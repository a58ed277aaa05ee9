// runtime/generate.cpp: prompt in, text out: decode, sample, bytes held back until they are whole characters and no
// stop string.
// Main path: tools/run.cpp -> [runtime/generate.cpp] -> runtime/session.cpp, models/sampler.cpp, models/tokenizer.cpp
#include "handles.h"
#include "../models/sampler.h"

#include <chrono>
#include <cmath>

namespace duet {
namespace {

// Length of the UTF-8 character that begins at text[at]: > 0 whole, 0 incomplete but could become one, -1 not UTF-8
// (one byte to replace).
int utf8_length(const std::string& text, size_t at) {
    const uint8_t c = (uint8_t)text[at];
    if (c < 0x80) return 1;
    const int n = c >= 0xc2 && c <= 0xdf ? 2 : c >= 0xe0 && c <= 0xef ? 3 : c >= 0xf0 && c <= 0xf4 ? 4 : -1;
    if (n < 0) return -1;
    for (int i = 1; i < n; i++) {
        if (at + (size_t)i >= text.size()) return 0;
        const uint8_t d = (uint8_t)text[at + (size_t)i];
        uint8_t low = 0x80, high = 0xbf;  // overlong forms, surrogates and values past U+10FFFF are no characters
        if (i == 1) low = c == 0xe0 ? 0xa0 : c == 0xf0 ? 0x90 : low, high = c == 0xed ? 0x9f : c == 0xf4 ? 0x8f : high;
        if (d < low || d > high) return -1;
    }
    return n;
}

// Turns token bytes into text that is certain: whole characters, free of stop strings and of what may become one.
class text_gate {
  public:
    explicit text_gate(const duet_generate_params& p) {
        for (int32_t i = 0; i < p.n_stop; i++)
            if (p.stop[i] && p.stop[i][0]) stops_.push_back(p.stop[i]);
    }

    // Adds bytes; returns the text that may be shown now. stopped() tells whether a stop string was met.
    std::string add(std::string_view bytes) {
        raw_ += bytes;
        move_whole_characters(false);
        return take(false);
    }

    // What is left at the end; an incomplete character becomes U+FFFD.
    std::string finish() {
        move_whole_characters(true);
        return take(true);
    }

    bool stopped() const { return stopped_; }

  private:
    void move_whole_characters(bool last) {
        size_t at = 0;
        while (at < raw_.size()) {
            const int n = utf8_length(raw_, at);
            if (n == 0 && !last) break;
            if (n > 0) text_.append(raw_, at, (size_t)n);
            else text_ += "\xef\xbf\xbd";
            at += n > 0 ? (size_t)n : 1;
        }
        raw_.erase(0, at);
    }

    std::string take(bool last) {
        if (stopped_) return {};
        size_t cut = std::string::npos;
        for (const std::string& stop : stops_) cut = std::min(cut, text_.find(stop));
        size_t safe = text_.size();
        if (cut != std::string::npos) {
            stopped_ = true;
            safe = cut;
        } else if (!last) {
            for (const std::string& stop : stops_)  // the longest end of the text that begins a stop string waits
                for (size_t n = std::min(stop.size() - 1, text_.size()); n > 0; n--)
                    if (text_.compare(text_.size() - n, n, stop, 0, n) == 0) {
                        safe = std::min(safe, text_.size() - n);
                        break;
                    }
            while (safe > 0 && safe < text_.size() && ((uint8_t)text_[safe] & 0xc0) == 0x80) safe--;
        }
        std::string out = text_.substr(0, safe);
        text_.erase(0, safe);
        return out;
    }

    std::vector<std::string> stops_;
    std::string raw_, text_;  // bytes not yet whole; text not yet shown
    bool stopped_ = false;
};

uint64_t now_us() {
    return (uint64_t)std::chrono::duration_cast<std::chrono::microseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

// Kept row of the last token of seq, if the last decode has it; else -1.
int32_t last_row(const duet_session& s, int32_t seq) {
    int32_t i = (int32_t)s.kept.size() - 1;
    while (i >= 0 && (s.kept[(size_t)i].seq != seq || s.kept[(size_t)i].pos != s.length[(size_t)seq] - 1)) i--;
    return i;
}

// Whether the id can be chosen where the logits are.
bool device_chooses(const duet_session& s, duet_sampler& sampler, const duet_generate_params& p) {
    return s.model->exec->best_id && !p.ignore_end && sampler_of(sampler).takes_best();
}

duet_status append(duet_session& s, int32_t seq, const int32_t* ids, size_t n_ids, bool rows_later) {
    std::vector<int32_t> seqs(n_ids, seq);
    duet_batch batch{};
    batch.n_tok = (int32_t)n_ids;
    batch.token = ids;
    batch.seq = seqs.data();
    return decode(s, batch, rows_later);
}

duet_status check_generate(duet_session& s, const duet_generate_params& p, const int32_t* ids, size_t n_ids) {
    if (p.seq < 0 || p.seq >= s.limits.n_seqs)
        return fail(s.err, DUET_ERR_ARG, "duet_generate: want a sequence in 0..%d, got %d", s.limits.n_seqs - 1, p.seq);
    if (p.max_new_tok < -1)
        return fail(s.err, DUET_ERR_ARG, "duet_generate: max_new_tok: want -1 or more, got %d", p.max_new_tok);
    if (p.n_stop < 0 || (p.n_stop > 0 && !p.stop))
        return fail(s.err, DUET_ERR_ARG, "duet_generate: n_stop is %d, stop is %s", p.n_stop, p.stop ? "set" : "NULL");
    const size_t held = (size_t)s.length[(size_t)p.seq];
    if (n_ids == 0 && last_row(s, p.seq) < 0)
        return fail(s.err, held ? DUET_ERR_STATE : DUET_ERR_ARG,
                    "duet_generate: an empty prompt: the sequence holds %zu tokens and no logits to go on from", held);
    if (n_ids > 0 && !ids) return fail(s.err, DUET_ERR_ARG, "duet_generate: ids is NULL");
    if (held + n_ids > (size_t)s.limits.n_ctx)
        return fail(
            s.err, DUET_ERR_FULL,
            "the prompt does not fit the context: %zu tokens%s, n_ctx is %d; raise it (-c) or shorten the prompt",
            n_ids, held ? (" after " + std::to_string(held) + " held").c_str() : "", s.limits.n_ctx);
    return DUET_OK;
}

struct generation {
    duet_session& s;
    duet_sampler* sampler;
    const duet_generate_params& p;
    duet_token_fn on_token;
    void* user;
    duet_generate_result& result;
    text_gate gate;

    // Calls back; true: go on.
    bool emit(int32_t id, int32_t pos, const std::string& text) {
        const duet_token_event event{id, pos, text.c_str(), text.size()};
        return !on_token || on_token(user, &event) == 0;
    }

    std::string_view bytes_of(int32_t id) const {
        return p.special && s.model->vocab.is_control(id) ? s.model->vocab.spelling(id) : s.model->vocab.piece(id);
    }

    duet_status choose(int32_t* id) {
        const int32_t i = last_row(s, p.seq);
        if (i < 0) return fail(s.err, DUET_ERR_STATE, "duet_generate: no logits to choose from");
        const executor& e = *s.model->exec;
        const logits_row& row = s.kept[(size_t)i];
        // logits that nobody has seen stay on the device; whoever read them may have changed them
        if (!row.data && device_chooses(s, *sampler, p)) {
            DUET_TRY(e.best_id(s.exec_context, row.row, id, s.err));
            if (*id >= 0) return sampler_of(*sampler).took_best(), DUET_OK;
        }
        float* logits = kept_logits(s, (size_t)i);
        if (!logits) return fail(s.err, DUET_ERR_DEVICE, "reading the logits from the device failed");
        if (p.ignore_end)
            for (int32_t end : s.model->end_ids) logits[end] = -INFINITY;
        if (duet_status st = duet_sampler_choose(sampler, logits, s.model->graph.n_vocab, id); st != DUET_OK)
            return fail(s.err, st, "token %d: %s%s", s.length[(size_t)p.seq], duet_sampler_error(sampler),
                        st == DUET_ERR_NAN ? "; bin/inspect --check FILE looks for broken weights" : "");
        return DUET_OK;
    }

    duet_status loop() {
        for (;;) {
            if (p.max_new_tok >= 0 && result.n_new_tok >= p.max_new_tok) {
                result.stop_reason = DUET_STOP_LIMIT;
                return DUET_OK;
            }
            if (s.cancel.exchange(0)) {
                result.stop_reason = DUET_STOP_CANCELLED;
                return fail(s.err, DUET_ERR_CANCELLED, "generation was cancelled");
            }
            int32_t id = -1;
            DUET_TRY(choose(&id));
            if (!p.ignore_end && s.model->vocab.is_end(id)) {
                result.stop_reason = DUET_STOP_END;
                return DUET_OK;
            }
            DUET_TRY(duet_sampler_accept(sampler, id));
            const int32_t pos = s.length[(size_t)p.seq];
            result.n_new_tok++;
            const std::string text = gate.add(bytes_of(id));
            if (!emit(id, pos, text)) {
                result.stop_reason = DUET_STOP_CALLBACK;
                return DUET_OK;
            }
            if (gate.stopped()) {
                result.stop_reason = DUET_STOP_STRING;
                return DUET_OK;
            }
            if (p.max_new_tok >= 0 && result.n_new_tok >= p.max_new_tok) {
                result.stop_reason = DUET_STOP_LIMIT;
                return DUET_OK;
            }
            if (pos >= s.limits.n_ctx) {
                result.stop_reason = DUET_STOP_CONTEXT;
                return DUET_OK;
            }
            if (duet_status st = append(s, p.seq, &id, 1, device_chooses(s, *sampler, p)); st != DUET_OK) {
                if (st == DUET_ERR_CANCELLED) result.stop_reason = DUET_STOP_CANCELLED;
                return st;
            }
        }
    }
};

duet_status generate(duet_session& s, duet_sampler* sampler, const int32_t* ids, size_t n_ids,
                     const duet_generate_params& p, duet_token_fn on_token, void* user, duet_generate_result& result) {
    DUET_TRY(check_generate(s, p, ids, n_ids));
    const uint64_t start = now_us();
    result.n_prompt_tok = (int32_t)n_ids;
    if (n_ids > 0) {
        if (duet_status st = append(s, p.seq, ids, n_ids, device_chooses(s, *sampler, p)); st != DUET_OK) {
            if (st == DUET_ERR_CANCELLED) result.stop_reason = DUET_STOP_CANCELLED;
            return st;
        }
        for (size_t i = 0; i < n_ids; i++) DUET_TRY(duet_sampler_accept(sampler, ids[i]));
    }
    const uint64_t middle = now_us();
    result.prompt_us = middle - start;
    generation g{s, sampler, p, on_token, user, result, text_gate(p)};
    const duet_status status = g.loop();
    // text that was waiting for more is shown, whatever ended the generation
    if (const std::string rest = g.gate.finish(); !rest.empty()) g.emit(-1, s.length[(size_t)p.seq], rest);
    result.generate_us = now_us() - middle;
    return status;
}

}  // namespace
}  // namespace duet

using namespace duet;

extern "C" {

duet_generate_params duet_generate_params_default(void) {
    duet_generate_params p{};
    p.struct_size = sizeof p;
    p.max_new_tok = -1;
    return p;
}

duet_status duet_generate(duet_session* session, duet_sampler* sampler, const int32_t* ids, size_t n_ids,
                          const duet_generate_params* params, duet_token_fn on_token, void* user,
                          duet_generate_result* result) {
    duet_generate_result local{};
    if (!result) result = &local;
    *result = {};
    if (!session || !sampler || !session->exec_context) return DUET_ERR_ARG;
    duet_generate_params p = duet_generate_params_default();
    DUET_TRY(read_params("duet_generate_params", params, &p, session->err));
    return guarded(session->err, [&] { return generate(*session, sampler, ids, n_ids, p, on_token, user, *result); });
}

}  // extern "C"
