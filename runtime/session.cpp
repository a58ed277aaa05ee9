// runtime/session.cpp: sessions: limits, memory, batches, decode, kept logits.
// Must not know: ops' insides, instruction sets, GPU drivers, which page of the cache holds what (sequences.cpp).
// Main path: runtime/generate.cpp -> [runtime/session.cpp] -> models/executor.h -> cpu/ops.cpp
#include "calls.h"
#include "../cpu/executor.h"
#include "../models/os.h"
#include "../quant/exact.h"

#include <algorithm>

namespace duet {
namespace {

// The pages of a group that all sequences can hold at most.
int64_t most_pages(const cache_group& g, const exec_limits& limits) {
    const int64_t all = pages_of(limits.n_ctx);
    const int64_t held = g.window ? std::min<int64_t>(all, pages_of((int64_t)g.window + limits.max_batch) + 1) : all;
    return held * limits.n_seqs;
}

// Checks the parameters and derives what the executor is asked for.
duet_status derive_limits(const duet_model& m, const duet_session_params& p, exec_limits* out, error_text& err) {
    if (m.vocab_only)
        return fail(err, DUET_ERR_UNSUPPORTED, "%s: opened with vocab_only: there is nothing to run",
                    m.source.file.path.c_str());
    if (!m.can_run) return fail(err, DUET_ERR_ARG, "the model is not open: opening it failed");
    const int32_t n_ctx = p.n_ctx ? p.n_ctx : std::min(m.graph.n_ctx_train, 4096);
    if (n_ctx < 1 || n_ctx > (1 << 30))
        return fail(err, DUET_ERR_ARG, "n_ctx: want 1..2^30, or 0 for the default, got %d", n_ctx);
    if (m.graph.max_ctx && n_ctx > m.graph.max_ctx)
        return fail(err, DUET_ERR_ARG, "n_ctx: the model has position embeddings for %d positions, got %d",
                    m.graph.max_ctx, n_ctx);
    if (p.n_seqs < 1 || p.n_seqs > 4096) return fail(err, DUET_ERR_ARG, "n_seqs: want 1..4096, got %d", p.n_seqs);
    if (p.max_batch < 1 || p.max_batch > 65536)
        return fail(err, DUET_ERR_ARG, "max_batch: want 1..65536, got %d", p.max_batch);
    if (p.cache_type < DUET_CACHE_F16 || p.cache_type > DUET_CACHE_Q8_0)
        return fail(err, DUET_ERR_ARG, "cache_type: want 0 (f16), 1 (f32) or 2 (q8_0), got %d", p.cache_type);
    for (const cache_layer& layer : m.graph.caches)
        if (p.cache_type == DUET_CACHE_Q8_0 && (layer.k_dim % kBlock || (!layer.v_in_k && layer.v_dim % kBlock)))
            return fail(err, DUET_ERR_UNSUPPORTED,
                        "cache type q8_0: want head sizes in multiples of 32, got %d and %d; use f16", layer.k_dim,
                        layer.v_dim);
    out->place = {m.device.c_str(),  m.params.gpu_layers,    m.params.cpu_expert_layers,
                  m.params.progress, m.params.progress_user, 0,
                  m.store,           m.params.gpu_recording, m.params.log,
                  m.params.log_user};
    out->n_ctx = n_ctx;
    out->max_batch = m.graph.both_ways ? std::max(p.max_batch, n_ctx) : p.max_batch;  // a text is computed whole
    out->n_seqs = p.n_seqs;
    out->n_state_slots = m.graph.states.empty() ? 0 : p.n_seqs;
    out->cache_type = p.cache_type;
    out->fast = m.fast;
    if (p.inputs && m.exec != &kCpuExecutor)
        return fail(err, DUET_ERR_UNSUPPORTED, "inputs of matmuls are told by device cpu only, got %s",
                    m.device_text.c_str());
    out->inputs = p.inputs;
    out->inputs_user = p.inputs_user;
    // logits of a piece stay below 64 MB, so that a large vocabulary does not cost gigabytes
    const int64_t rows = m.graph.both_ways ? out->max_batch : (64ll << 20) / (4ll * m.graph.n_vocab);
    out->max_wanted = (int32_t)std::min<int64_t>(std::max<int64_t>(rows, 8), out->max_batch);
    if (p.cache_tokens < 0)
        return fail(err, DUET_ERR_ARG, "cache_tokens: want 0 or more, got %lld", (long long)p.cache_tokens);
    for (const cache_group& g : m.graph.groups) {
        int64_t n_pages = most_pages(g, *out);
        if (p.cache_tokens && (!g.window || m.graph.groups.size() > 1))
            n_pages = std::min(n_pages, (p.cache_tokens - 1) / kAttnChunk + 1);
        if (n_pages > (1 << 30))
            return fail(err, DUET_ERR_ARG, "n_ctx %d with %d sequences: too many cache pages", n_ctx, p.n_seqs);
        out->n_pages.push_back((int32_t)n_pages);
    }
    return DUET_OK;
}

}  // namespace

duet_status plan_session(const duet_model& m, const duet_session_params* want, duet_memory_plan* out, error_text& err) {
    auto p = defaults_of<duet_session_params>();
    exec_limits limits;
    exec_plan plan;
    DUET_TRY(check_room("duet_memory_plan", out, err));
    DUET_TRY(read_struct("duet_session_params", want, &p, err));
    DUET_TRY(derive_limits(m, p, &limits, err));
    DUET_TRY(m.exec->plan(m.graph, limits, m.n_threads, &plan, err));
    const exec_memory &host = plan.host, &gpu = plan.device;
    const duet_memory_plan all{
        sizeof all,       plan.gpu_layers, plan.cpu_expert_layers,  m.weight_bytes,   host.cache_bytes,
        host.state_bytes, host.work_bytes, gpu.pinned_bytes,        gpu.weight_bytes, gpu.cache_bytes,
        gpu.state_bytes,  gpu.work_bytes,  os_describe().free_bytes};
    write_struct(all, out);
    return DUET_OK;
}

duet_status create_session(duet_session& s, const duet_model* m, const duet_session_params* params) {
    if (!m) return fail(s.err, DUET_ERR_ARG, "duet_session_create: model is NULL");
    s.model = m;
    s.params = defaults_of<duet_session_params>();
    DUET_TRY(read_struct("duet_session_params", params, &s.params, s.err));
    DUET_TRY(derive_limits(*m, s.params, &s.limits, s.err));
    // The executor is asked first: where the cache does not fit, the tables of its pages would be large, too.
    void* context = nullptr;
    DUET_TRY(m->exec->create(m->graph, s.limits, m->n_threads, m->isa.c_str(), &context, s.err));
    const auto destroy = [m](void* c) { m->exec->destroy(c); };
    std::unique_ptr<void, decltype(destroy)> owned(context, destroy);
    const size_t n_seqs = (size_t)s.limits.n_seqs;
    for (int32_t n : s.limits.n_pages) {
        s.pools.emplace_back();
        s.pools.back().start(n);
        s.pages.emplace_back(n_seqs);
    }
    s.length.assign(n_seqs, 0);
    s.ids.resize(n_seqs);
    s.content.assign(n_seqs, 0);
    s.cut.assign(n_seqs, {});
    s.exec_context = owned.release();
    return DUET_OK;
}

int64_t room_of(const duet_session& s) {
    int64_t n_free = -1;
    for (size_t g = 0; g < s.pools.size(); g++) {
        const cache_group& group = s.model->graph.groups[g];
        if (group.window && s.limits.n_pages[g] == most_pages(group, s.limits)) continue;  // it never runs out
        const int64_t n = (int64_t)s.pools[g].free_pages.size();
        n_free = n_free < 0 ? n : std::min(n_free, n);
    }
    return n_free < 0 ? (int64_t)s.limits.n_ctx * s.limits.n_seqs : n_free * kAttnChunk;
}

duet_status check_session(duet_session& s, const char* call) {
    if (s.exec_context) return DUET_OK;
    return fail(s.err, DUET_ERR_ARG, "%s: the session was not made: duet_session_create failed", call);
}

// ---- decode ---------------------------------------------------------------------------------------------------------

namespace {

// A batch with every default filled in.
struct full_batch {
    std::vector<int32_t> pos, seq;
    std::vector<uint8_t> want;  // of the token: kWantLogits, kWantEmbedding
    size_t n_logits = 0;        // tokens with kWantLogits
    std::vector<int32_t> end;   // of each sequence: its length afterwards
};
constexpr uint8_t kWantLogits = 1, kWantEmbedding = 2;

duet_status check_batch(duet_session& s, const duet_batch& b, full_batch* out) {
    if (b.n_tok < 1 || !b.token)
        return fail(s.err, DUET_ERR_ARG, "duet_decode: want at least 1 token, got %d", b.n_tok);
    const size_t n = (size_t)b.n_tok;
    out->seq.assign(n, 0);
    out->want.assign(n, 0);
    out->pos.resize(n);
    if (b.seq) out->seq.assign(b.seq, b.seq + n);
    std::vector<int32_t>& next = out->end;
    next = s.length;
    for (size_t i = 0; i < n; i++) {
        const bool is_wanted = b.want_logits ? b.want_logits[i] != 0 : i == n - 1;
        out->want[i] = is_wanted ? kWantLogits : 0;
        out->n_logits += is_wanted;
        if (b.token[i] < 0 || b.token[i] >= s.model->graph.n_vocab)
            return fail(s.err, DUET_ERR_ARG, "duet_decode: token %zu: want an id in 0..%d, got %d", i,
                        s.model->graph.n_vocab - 1, b.token[i]);
        if (out->seq[i] < 0 || out->seq[i] >= s.limits.n_seqs)
            return fail(s.err, DUET_ERR_ARG, "duet_decode: token %zu: want a sequence in 0..%d, got %d", i,
                        s.limits.n_seqs - 1, out->seq[i]);
        int32_t& p = next[(size_t)out->seq[i]];
        if (b.pos && b.pos[i] != p)
            return fail(s.err, DUET_ERR_ARG, "duet_decode: token %zu of sequence %d: want position %d, got %d", i,
                        out->seq[i], p, b.pos[i]);
        if (p >= s.limits.n_ctx)
            return fail(s.err, DUET_ERR_FULL,
                        "the context is full: sequence %d holds %d tokens, %d more do not fit %d (n_ctx)", out->seq[i],
                        s.length[(size_t)out->seq[i]], (int)std::count(out->seq.begin(), out->seq.end(), out->seq[i]),
                        s.limits.n_ctx);
        out->pos[i] = p++;
    }
    if (!s.model->graph.both_ways) return DUET_OK;
    for (size_t q = 0; q < next.size(); q++)
        if (s.length[q] > 0 && next[q] > s.length[q])
            return fail(s.err, DUET_ERR_STATE,
                        "an encoder computes a text whole: sequence %zu holds %d tokens; empty it first", q,
                        s.length[q]);
    if (b.n_tok > s.limits.max_batch)
        return fail(s.err, DUET_ERR_ARG, "an encoder's batch is not cut: want at most %d tokens (max_batch), got %d",
                    s.limits.max_batch, b.n_tok);
    return DUET_OK;
}

// Runs tokens [first, first + n) of a checked batch. *changed: the sequences that have some of them.
duet_status run_piece(duet_session& s, const duet_batch& b, const full_batch& full, int32_t first, int32_t n,
                      bool rows_later, std::vector<int32_t>* changed) {
    std::vector<int32_t> wanted, slots((size_t)s.limits.n_seqs);
    for (int32_t i = 0; i < s.limits.n_seqs; i++) slots[(size_t)i] = i;
    std::vector<int32_t> from = s.length, to = s.length;
    for (int32_t i = first; i < first + n; i++) {
        if (full.want[(size_t)i]) wanted.push_back(i - first);
        to[(size_t)full.seq[(size_t)i]] = full.pos[(size_t)i] + 1;
    }
    if (s.limits.n_state_slots && s.cancel.load()) return fail(s.err, DUET_ERR_CANCELLED, "the batch was cancelled");
    int32_t longest = 0;
    changed->clear();
    for (int32_t q = 0; q < s.limits.n_seqs; q++) {
        if (from[(size_t)q] == to[(size_t)q]) continue;
        changed->push_back(q);
        longest = std::max(longest, to[(size_t)q] - from[(size_t)q]);
        release_unseen(s, q, from[(size_t)q]);
        DUET_TRY(reserve_positions(s, q, from[(size_t)q], to[(size_t)q], true));
        reserve_ids(s, q, to[(size_t)q]);
        if (from[(size_t)q] == 0 && s.limits.n_state_slots)
            if (const duet_status st = s.model->exec->copy_page(s.exec_context, kStates, -1, q); st != DUET_OK)
                return fail(s.err, st, "clearing the state of sequence %d on the device failed", q);
    }
    std::vector<std::vector<const int32_t*>> tables(s.pages.size());
    for (size_t g = 0; g < s.pages.size(); g++)
        for (const auto& table : s.pages[g]) tables[g].push_back(table.data());
    exec_batch e;
    e.n_tok = n;
    e.token = b.token + first;
    e.pos = full.pos.data() + first;
    e.seq = full.seq.data() + first;
    e.n_wanted = (int32_t)wanted.size();
    e.wanted = wanted.data();
    e.pages = &tables;
    e.state_slot = slots.data();
    e.rows_later = rows_later;
    std::vector<int32_t> end;
    if (s.model->graph.both_ways) {
        for (int32_t i = 0; i < n; i++) end.push_back(to[(size_t)full.seq[(size_t)(first + i)]]);
        e.end = end.data();
    }
    // Recurrent layers cannot go back to before a piece that was stopped half way. So one token of each sequence is
    // always finished, and an answer that is cancelled can go on; sequences of a longer piece are emptied.
    const bool can_stop = !s.limits.n_state_slots || longest > 1;
    const duet_status status =
        guarded(s.err, [&] { return s.model->exec->run(s.exec_context, e, can_stop ? &s.cancel : nullptr, s.err); });
    if (status == DUET_OK) {
        s.length.swap(to);
        for (int32_t i = first; i < first + n; i++) s.ids[(size_t)full.seq[(size_t)i]].push_back(b.token[i]);
    } else if (s.limits.n_state_slots) {
        for (const int32_t q : *changed) clear_sequence(s, q);
    }
    return status;
}

// Most tokens from `first` that fit one piece: max_batch tokens, max_wanted rows of logits.
int32_t piece_size(const duet_session& s, const full_batch& full, int32_t first, int32_t n_tok) {
    int32_t n = 0, n_wanted = 0;
    while (first + n < n_tok && n < s.limits.max_batch) {
        if (full.want[(size_t)(first + n)] && n_wanted++ == s.limits.max_wanted) break;
        n++;
    }
    return n;
}

// Notes whose logits the piece left, and reads them where another piece follows. kept and kept_data have room.
duet_status keep_rows(duet_session& s, const full_batch& full, int32_t first, int32_t n, bool is_last_piece,
                      const std::vector<int32_t>& changed) {
    for (const int32_t seq : changed) change_content(s, seq);
    const size_t n_vocab = (size_t)s.model->graph.n_vocab;
    int32_t row = 0;
    for (int32_t i = first; i < first + n; i++) {
        const int32_t seq = full.seq[(size_t)i];
        const uint8_t want = full.want[(size_t)i];
        if (!want) continue;
        if (is_last_piece && i == first + n - 1) s.embedding_row = row;
        const bool is_end = full.pos[(size_t)i] == s.length[(size_t)seq] - 1;
        if (want & kWantLogits) s.kept.push_back({seq, is_end ? s.content[(size_t)seq] : 0, row, nullptr});
        row++;
        if (s.kept_data.empty() || !(want & kWantLogits)) continue;  // of one piece: read when they are asked for
        float* logits = kept_logits(s, (int32_t)s.kept.size() - 1);
        if (!logits) return fail(s.err, DUET_ERR_DEVICE, "reading the logits from the device failed");
        float* own = s.kept_data.data() + (s.kept.size() - 1) * n_vocab;
        memcpy(own, logits, n_vocab * sizeof(float));
        s.kept.back().data = own;
    }
    return DUET_OK;
}

duet_status run_pieces(duet_session& s, const duet_batch& b, full_batch& full, decode_options options) {
    // Whether the cache has enough pages shows before the first piece runs. Windowed layers take theirs piece by piece.
    for (int32_t q = 0; q < s.limits.n_seqs; q++)
        if (full.end[(size_t)q] > s.length[(size_t)q])
            DUET_TRY(reserve_positions(s, q, s.length[(size_t)q], full.end[(size_t)q], false));
    if (options.hidden || s.model->graph.logits_buffer < 0) {
        for (uint8_t& want : full.want) want = want ? kWantEmbedding : 0;
        full.n_logits = 0;
    }
    if (options.has_embedding) full.want.back() |= kWantEmbedding;
    // All that keeping the rows needs is allocated before the first piece runs: afterwards only the executor can fail.
    const bool one_piece = piece_size(s, full, 0, b.n_tok) == b.n_tok;
    std::vector<logits_row> kept;
    std::vector<float> kept_data;
    kept.reserve(full.n_logits);
    if (!one_piece) kept_data.resize(full.n_logits * (size_t)s.model->graph.n_vocab);
    s.kept.swap(kept);
    s.kept_data.swap(kept_data);
    s.embedding_row = -1;
    std::vector<int32_t> changed;
    changed.reserve((size_t)s.limits.n_seqs);
    for (int32_t first = 0; first < b.n_tok;) {
        const int32_t n = piece_size(s, full, first, b.n_tok);
        if (duet_status st = run_piece(s, b, full, first, n, options.rows_later, &changed); st != DUET_OK) {
            if (st == DUET_ERR_CANCELLED) s.cancel.store(0);
            return st;
        }
        DUET_TRY(keep_rows(s, full, first, n, first + n == b.n_tok, changed));
        first += n;
    }
    return DUET_OK;
}

}  // namespace

duet_status decode(duet_session& s, const duet_batch& b, decode_options options) {
    full_batch full;
    DUET_TRY(check_batch(s, b, &full));
    const duet_status status = guarded(s.err, [&] { return run_pieces(s, b, full, options); });
    if (status != DUET_OK)
        for (int32_t q = 0; q < s.limits.n_seqs; q++) drop_unused(s, q);
    return status;
}

float* kept_logits(duet_session& s, int32_t i) {
    if (i < 0 || (size_t)i >= s.kept.size()) return nullptr;
    logits_row& kept = s.kept[(size_t)i];
    if (kept.data) return kept.data;
    kept.data = s.model->exec->wanted_row(s.exec_context, s.model->graph.logits_buffer, kept.row);
    for (int64_t id : s.model->suppressed_ids)
        if (kept.data) kept.data[id] = -INFINITY;
    return kept.data;
}

const float* last_embedding(duet_session& s) {
    if (s.embedding_row < 0) return nullptr;
    return s.model->exec->wanted_row(s.exec_context, s.model->graph.embedding_buffer, s.embedding_row);
}

// ---- profile --------------------------------------------------------------------------------------------------------

duet_status take_profile(duet_session& s, int32_t* n_rows) {
    s.profile_rows.clear();
    s.profile_entries = *s.model->exec->profile_rows(s.exec_context);
    for (const profile_entry& e : s.profile_entries)
        s.profile_rows.push_back(
            {sizeof(duet_profile_row), e.op.c_str(), e.n_calls, e.time_ns / 1000, e.weight_bytes, e.n_mac});
    *n_rows = (int32_t)s.profile_rows.size();
    return DUET_OK;
}

}  // namespace duet
