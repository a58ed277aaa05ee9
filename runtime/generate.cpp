// runtime/generate.cpp: prompt in, text out: decode, sample, show bytes once they are certain.
// Owns: the steps of a generation and when it ends. Must not know: how a batch is run, how an id is chosen.
// Main path: runtime.cpp -> [runtime/generate.cpp] -> runtime/session.cpp, models/sampler.cpp, models/tokenizer.cpp
#include "calls.h"

#include <chrono>
#include <cmath>
#include <utility>

namespace duet {

duet_status gate_create(duet_text_gate& g, const char* const* stop, int32_t n_stop) {
    return g.gate.set_stops("duet_text_gate_create", stop, n_stop, g.err);
}

duet_status gate_add(duet_text_gate& g, const char* bytes, size_t n_bytes, duet_string* text, int32_t* stopped) {
    if (!text || (!bytes && n_bytes))
        return fail(g.err, DUET_ERR_ARG, "duet_text_gate_add: %s is NULL", text ? "bytes" : "text");
    text_gate::mark before = g.gate.remember();
    const duet_status st = guarded(g.err, [&] {
        g.shown = g.gate.add({bytes ? bytes : "", n_bytes});
        return DUET_OK;
    });
    if (st != DUET_OK) {
        g.gate.take_back(before);
        return st;
    }
    *text = as_string(g.shown);
    if (stopped) *stopped = g.gate.i_stop() + 1;
    return DUET_OK;
}

duet_status gate_finish(duet_text_gate& g, duet_string* text) {
    if (!text) return fail(g.err, DUET_ERR_ARG, "duet_text_gate_finish: text is NULL");
    g.shown = g.gate.finish(true);
    *text = as_string(g.shown);
    return DUET_OK;
}

namespace {

// Kept row of the last token of seq; -1: the last decode did not leave it, or the sequence has changed since.
int32_t last_row(const duet_session& s, int32_t seq) {
    const uint64_t content = s.content[(size_t)seq];
    int32_t i = content ? (int32_t)s.kept.size() - 1 : -1;
    while (i >= 0 && (s.kept[(size_t)i].seq != seq || s.kept[(size_t)i].content != content)) i--;
    return i;
}

duet_status check_generate(duet_session& s, const duet_generate_params& p, const int32_t* ids, size_t n_ids) {
    DUET_TRY(check_sequence(s, "duet_generate", p.seq));
    if (s.model->graph.logits_buffer < 0)
        return fail(s.err, DUET_ERR_UNSUPPORTED,
                    "duet_generate: %s is an encoder: it makes vectors (duet_embed), no text",
                    s.model->graph.architecture.c_str());
    if (p.max_new_tok < -1)
        return fail(s.err, DUET_ERR_ARG, "duet_generate: max_new_tok: want -1 or more, got %d", p.max_new_tok);
    const size_t held = (size_t)s.length[(size_t)p.seq];
    if (n_ids == 0 && last_row(s, p.seq) < 0)
        return fail(s.err, held ? DUET_ERR_STATE : DUET_ERR_ARG,
                    "duet_generate: an empty prompt: the sequence holds %zu tokens and no logits to go on from", held);
    if (n_ids > 0 && !ids) return fail(s.err, DUET_ERR_ARG, "duet_generate: ids is NULL");
    if (n_ids > (size_t)s.limits.n_ctx - held)
        return fail(s.err, DUET_ERR_FULL,
                    "the prompt does not fit the context: %zu tokens%s, n_ctx is %d; raise it or shorten the prompt",
                    n_ids, held ? (" after " + std::to_string(held) + " held").c_str() : "", s.limits.n_ctx);
    for (size_t i = 0; i < n_ids; i++)
        if (ids[i] < 0 || ids[i] >= s.model->graph.n_vocab)
            return fail(s.err, DUET_ERR_ARG, "duet_generate: token %zu: want an id in 0..%d, got %d", i,
                        s.model->graph.n_vocab - 1, ids[i]);
    return DUET_OK;
}

// ---- the steps of a generation --------------------------------------------------------------------------------------

int32_t length_of(const duet_generation& g) { return g.session.length[(size_t)g.params.seq]; }

// Whether the id can be chosen where the logits are.
bool device_chooses(const duet_generation& g) {
    const duet_model& m = *g.session.model;
    return m.exec->best_id && m.suppressed_ids.empty() && !g.params.ignore_end && g.sampler.takes_best();
}

// Runs tokens of the sequence; wants_logits: of the last one.
duet_status append(duet_generation& g, const int32_t* ids, size_t n_ids, bool wants_logits) {
    const std::vector<int32_t> seqs(n_ids, g.params.seq);
    const std::vector<uint8_t> no_logits(wants_logits ? 0 : n_ids, 0);
    auto batch = defaults_of<duet_batch>();
    batch.n_tok = (int32_t)n_ids;
    batch.token = ids;
    batch.seq = seqs.data();
    if (!wants_logits) batch.want_logits = no_logits.data();
    DUET_TRY(decode(g.session, batch, {device_chooses(g), false}));
    g.content = g.session.content[(size_t)g.params.seq];
    return DUET_OK;
}

duet_status choose(duet_generation& g, int32_t* id) {
    duet_session& s = g.session;
    const int32_t i = last_row(s, g.params.seq);
    if (i < 0)
        return fail(g.err, DUET_ERR_STATE, "sequence %d: no logits are kept to go on from: another call replaced them",
                    g.params.seq);
    const executor& e = *s.model->exec;
    const logits_row& row = s.kept[(size_t)i];
    // logits that nobody has seen stay on the device; whoever read them may have changed them
    if (!row.data && device_chooses(g)) {
        DUET_TRY(e.best_id(s.exec_context, row.row, id, g.err));
        if (*id >= 0) {
            g.sampler.took_best();
            return DUET_OK;
        }
    }
    float* logits = kept_logits(s, i);
    if (!logits) return fail(g.err, DUET_ERR_DEVICE, "reading the logits from the device failed");
    std::vector<float> ends(g.params.ignore_end ? s.model->end_ids.size() : 0);  // The rows may be read again.
    for (size_t k = 0; k < ends.size(); k++) ends[k] = std::exchange(logits[s.model->end_ids[k]], -INFINITY);
    error_text why;
    const duet_status st = guarded(why, [&] { return g.sampler.choose(logits, s.model->graph.n_vocab, id, why); });
    for (size_t k = ends.size(); k-- > 0;) logits[s.model->end_ids[k]] = ends[k];
    if (st != DUET_OK)
        return fail(g.err, st, "token %d: %s%s", length_of(g), why.text.c_str(),
                    st == DUET_ERR_NAN ? "; bin/inspect --check FILE looks for broken weights" : "");
    return DUET_OK;
}

std::string_view bytes_of(const duet_generation& g, int32_t id) {
    const tokenizer& vocab = g.session.model->vocab;
    return g.params.special && vocab.is_control(id) ? vocab.spelling(id) : vocab.piece(id);
}

// Remembers the character that the text so far leaves incomplete, for the generation that goes on from here.
void keep_cut(duet_generation& g, std::string_view cut) noexcept {
    cut_character& c = g.session.cut[(size_t)g.params.seq];
    c.content = g.session.content[(size_t)g.params.seq];
    c.n_bytes = (int32_t)(cut.size() < c.bytes.size() ? cut.size() : 0);
    if (c.n_bytes > 0) memcpy(c.bytes.data(), cut.data(), (size_t)c.n_bytes);
}

// The last event: why it ended, and the text that waited for more, whatever ended it. A character that is cut off
// waits for the next generation where one can go on.
duet_status end(duet_generation& g, int32_t reason, duet_token_event* e) noexcept {
    const bool is_last = reason == DUET_STOP_END || reason == DUET_STOP_STRING || reason == DUET_STOP_CONTEXT;
    error_text none;
    const duet_status st = guarded(none, [&] {
        g.text = g.gate.finish(is_last);
        return DUET_OK;
    });
    if (st != DUET_OK) g.text.clear();
    if (is_last) keep_cut(g, {});
    g.is_over = true;
    g.result.stop_reason = reason;
    *e = {sizeof *e, -1, length_of(g), reason, g.text.c_str(), g.text.size()};
    return DUET_OK;
}

// A piece of the prompt. Its tokens count for the penalties.
duet_status run_prompt(duet_generation& g) {
    const size_t n = std::min(g.ids.size() - g.n_run, (size_t)g.session.limits.max_batch);
    const int32_t* const ids = g.ids.data() + g.n_run;
    g.sampler.history.reserve(g.sampler.history.size() + n);
    DUET_TRY(append(g, ids, n, g.n_run + n == g.ids.size()));
    g.sampler.history.insert(g.sampler.history.end(), ids, ids + n);
    g.n_run += n;
    g.result.n_prompt_tok += (int32_t)n;
    return DUET_OK;
}

// One token. It is told when the sequence holds it: what fails before leaves history, text and sequence as they were.
duet_status run_token(duet_generation& g, duet_token_event* e) {
    bool goes_on = true;
    if (g.params.ignore_end) DUET_TRY(g.sampler.may_go_on(&goes_on, g.err));
    if (!goes_on) return end(g, DUET_STOP_END, e);
    int32_t id = -1;
    DUET_TRY(choose(g, &id));
    if (!g.params.ignore_end && g.session.model->vocab.is_end(id)) {
        g.end_id = id;
        return end(g, DUET_STOP_END, e);
    }
    const int32_t pos = length_of(g);
    text_gate::mark before = g.gate.remember();
    DUET_TRY(g.sampler.accept(id, g.err));
    const duet_status st = guarded(g.err, [&] {
        g.text = g.gate.add(bytes_of(g, id));
        return append(g, &id, 1, true);
    });
    if (st != DUET_OK) {
        g.gate.take_back(before);
        g.sampler.take_back_accept();
        return st;
    }
    keep_cut(g, g.gate.cut());
    g.result.n_new_tok++;
    *e = {sizeof *e, id, pos, DUET_STOP_NONE, g.text.c_str(), g.text.size()};
    return DUET_OK;
}

duet_status step(duet_generation& g, duet_token_event* e) {
    if (g.content != g.session.content[(size_t)g.params.seq])
        return fail(g.err, DUET_ERR_STATE, "sequence %d: another call changed it during the generation", g.params.seq);
    if (g.n_run < g.ids.size()) {
        DUET_TRY(run_prompt(g));
        e->pos = length_of(g);
        return DUET_OK;
    }
    if (g.gate.stopped()) return end(g, DUET_STOP_STRING, e);
    if (g.sampler.is_done()) return end(g, DUET_STOP_END, e);
    if (g.params.max_new_tok >= 0 && g.result.n_new_tok >= g.params.max_new_tok) return end(g, DUET_STOP_LIMIT, e);
    if (g.session.cancel.exchange(0)) return fail(g.err, DUET_ERR_CANCELLED, "generation was cancelled");
    if (length_of(g) >= g.session.limits.n_ctx) return end(g, DUET_STOP_CONTEXT, e);
    return run_token(g, e);
}

// A step and its event, which is filled also after an error.
duet_status take_step(duet_generation& g, duet_token_event* e) {
    const bool is_prompt = g.n_run < g.ids.size();
    const std::pair before(g.sampler.random, g.sampler.mirostat_bound);
    *e = {sizeof *e, -1, length_of(g), DUET_STOP_NONE, "", 0};
    const auto start = std::chrono::steady_clock::now();
    const duet_status st = guarded(g.err, [&] { return step(g, e); });
    if (st != DUET_OK) {  // A token that was not told is chosen again, by the same draw, when the text goes on.
        g.sampler.random = before.first;
        g.sampler.mirostat_bound = before.second;
        end(g, st == DUET_ERR_CANCELLED ? DUET_STOP_CANCELLED : DUET_STOP_ERROR, e);
    }
    (is_prompt ? g.result.prompt_us : g.result.generate_us) += ns_since(start) / 1000;
    return st;
}

}  // namespace

duet_status begin_generation(duet_session& s, duet_sampler* sampler, const int32_t* ids, size_t n_ids,
                             const duet_generate_params* params, duet_generation** out) {
    if (!out) return fail(s.err, DUET_ERR_ARG, "duet_generate_begin: out is NULL");
    if (!sampler) return fail(s.err, DUET_ERR_ARG, "duet_generate: sampler is NULL");
    auto g = std::make_unique<duet_generation>(s, sampler->sampler);
    g->params = defaults_of<duet_generate_params>();
    DUET_TRY(read_struct("duet_generate_params", params, &g->params, s.err));
    DUET_TRY(g->gate.set_stops("duet_generate", g->params.stop, g->params.n_stop, s.err));
    DUET_TRY(check_generate(s, g->params, ids, n_ids));
    g->ids.assign(ids, ids + n_ids);
    g->result.stop_reason = DUET_STOP_NONE;
    g->content = s.content[(size_t)g->params.seq];
    const cut_character& c = s.cut[(size_t)g->params.seq];
    if (n_ids == 0 && c.content == s.content[(size_t)g->params.seq])
        g->gate.add({c.bytes.data(), (size_t)c.n_bytes});  // less than a character: no text comes of it yet
    *out = g.release();
    return DUET_OK;
}

duet_status next_of_generation(duet_generation& g, duet_token_event* event) {
    DUET_TRY(check_room("duet_token_event", event, g.err));
    duet_token_event e{sizeof e, -1, length_of(g), g.result.stop_reason, "", 0};
    const duet_status st =
        g.is_over ? fail(g.err, DUET_ERR_STATE, "duet_generate_next: the generation has ended") : take_step(g, &e);
    write_struct(e, event);
    return st;
}

duet_status result_of_generation(const duet_generation& g, duet_generate_result* out) {
    DUET_TRY(check_room("duet_generate_result", out, g.err));
    write_struct(g.result, out);
    return DUET_OK;
}

duet_status generate(duet_session& s, duet_sampler* sampler, const int32_t* ids, size_t n_ids,
                     const duet_generate_params* params, duet_token_fn on_token, void* user,
                     duet_generate_result* result) {
    if (result) {
        DUET_TRY(check_room("duet_generate_result", result, s.err));
        write_struct(duet_generate_result{0, 0, 0, DUET_STOP_ERROR, 0, 0}, result);
    }
    duet_generation* begun = nullptr;
    DUET_TRY(begin_generation(s, sampler, ids, n_ids, params, &begun));
    const auto end_with_result = [=](duet_generation* ended) {
        if (result) write_struct(ended->result, result);
        delete ended;
    };
    const std::unique_ptr<duet_generation, decltype(end_with_result)> g(begun, end_with_result);
    g->result.stop_reason = DUET_STOP_ERROR;  // in case that on_token throws
    const auto tells = [&](const duet_token_event& e) {
        return !on_token || (e.id < 0 && e.n_bytes == 0) || on_token(user, &e) == 0;
    };
    duet_status st = DUET_OK;
    for (duet_token_event e; st == DUET_OK && !g->is_over;) {
        st = take_step(*g, &e);
        if (tells(e) || g->is_over) continue;
        end(*g, DUET_STOP_CALLBACK, &e);
        tells(e);
    }
    return st;
}

}  // namespace duet
