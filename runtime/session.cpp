// runtime/session.cpp: sessions: cache pages and recurrent state of sequences, batches, decode, saved state. Owns:
// which page holds what.
// Must not know: ops' insides, instruction sets, GPU drivers.
// Main path: tools/run.cpp -> runtime/generate.cpp -> [runtime/session.cpp] -> models/ops.h (executor) -> cpu/ops.cpp
#include "handles.h"
#include "../cpu/executor.h"
#include "../quant/exact.h"

#include <algorithm>
#include <cstdio>

namespace duet {
namespace {

int32_t div_up(int64_t a, int64_t b) { return (int32_t)((a + b - 1) / b); }

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
    out->place = {m.device.c_str(), m.params.gpu_layers, m.params.cpu_expert_layers, m.params.progress,
                  m.params.progress_user};
    out->n_ctx = n_ctx;
    out->max_batch = p.max_batch;
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
    const int64_t rows = (64ll << 20) / (4ll * m.graph.n_vocab);
    out->max_wanted = (int32_t)std::clamp<int64_t>(rows, 8, std::max(8, p.max_batch));
    out->max_wanted = std::min(out->max_wanted, p.max_batch);
    for (const cache_group& g : m.graph.groups) {
        const int64_t whole = div_up(n_ctx, kAttnChunk);
        const int64_t held =
            g.window ? std::min<int64_t>(whole, div_up((int64_t)g.window + p.max_batch, kAttnChunk) + 1) : whole;
        if (held * p.n_seqs > (1 << 30))
            return fail(err, DUET_ERR_ARG, "n_ctx %d with %d sequences: too many cache pages", n_ctx, p.n_seqs);
        out->n_pages.push_back((int32_t)(held * p.n_seqs));
    }
    return DUET_OK;
}

// Gives back the pages of windowed groups that no token from position `from` on can see.
void release_unseen(duet_session& s, int32_t seq, int32_t from) {
    for (size_t g = 0; g < s.pools.size(); g++) {
        const int32_t window = s.model->graph.groups[g].window;
        if (!window) continue;
        std::vector<int32_t>& table = s.pages[g][(size_t)seq];
        const int32_t n_unseen = std::max(0, from - window + 1) / kAttnChunk;
        for (int32_t i = 0; i < n_unseen && i < (int32_t)table.size(); i++) {
            s.pools[g].release(table[(size_t)i]);
            table[(size_t)i] = -1;
        }
    }
}

// Makes positions [from, to) of a sequence writable: pages of its own, shared ones copied.
duet_status reserve_positions(duet_session& s, int32_t seq, int32_t from, int32_t to) {
    for (size_t g = 0; g < s.pools.size(); g++) {
        std::vector<int32_t>& table = s.pages[g][(size_t)seq];
        for (int32_t i = from / kAttnChunk; i <= (to - 1) / kAttnChunk; i++) {
            const bool exists = i < (int32_t)table.size();
            if (exists && s.pools[g].n_users[(size_t)table[(size_t)i]] == 1) continue;
            const int32_t page = s.pools[g].take();
            if (page < 0)
                return fail(s.err, DUET_ERR_FULL, "sequence %d: no free cache page for position %d", seq,
                            i * kAttnChunk);
            if (exists) {
                if (duet_status st = s.model->exec->copy_page(s.exec_context, (int32_t)g, table[(size_t)i], page);
                    st != DUET_OK) {
                    s.pools[g].release(page);
                    return fail(s.err, st, "sequence %d: copying a shared cache page failed", seq);
                }
                s.pools[g].release(table[(size_t)i]);
                table[(size_t)i] = page;
            } else {
                table.push_back(page);
            }
        }
    }
    return DUET_OK;
}

// A batch with every default filled in.
struct full_batch {
    std::vector<int32_t> pos, seq;
    std::vector<uint8_t> want;
};

duet_status check_batch(duet_session& s, const duet_batch& b, full_batch* out) {
    if (b.n_tok < 1 || !b.token)
        return fail(s.err, DUET_ERR_ARG, "duet_decode: want at least 1 token, got %d", b.n_tok);
    const size_t n = (size_t)b.n_tok;
    out->seq.assign(n, 0);
    out->want.assign(n, 0);
    out->pos.resize(n);
    if (b.seq) out->seq.assign(b.seq, b.seq + n);
    if (b.want_logits) out->want.assign(b.want_logits, b.want_logits + n);
    else out->want[n - 1] = 1;
    std::vector<int32_t> next = s.length;
    for (size_t i = 0; i < n; i++) {
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
    return DUET_OK;
}

// Runs tokens [first, first + n) of a checked batch.
duet_status run_piece(duet_session& s, const duet_batch& b, const full_batch& full, int32_t first, int32_t n,
                      bool rows_later) {
    std::vector<int32_t> wanted, slots((size_t)s.limits.n_seqs);
    for (int32_t i = 0; i < s.limits.n_seqs; i++) slots[(size_t)i] = i;
    std::vector<int32_t> from = s.length, to = s.length;
    for (int32_t i = first; i < first + n; i++) {
        if (full.want[(size_t)i]) wanted.push_back(i - first);
        to[(size_t)full.seq[(size_t)i]] = full.pos[(size_t)i] + 1;
    }
    if (s.limits.n_state_slots && s.cancel.load()) return fail(s.err, DUET_ERR_CANCELLED, "the batch was cancelled");
    int32_t longest = 0;
    for (int32_t q = 0; q < s.limits.n_seqs; q++) {
        if (from[(size_t)q] == to[(size_t)q]) continue;
        longest = std::max(longest, to[(size_t)q] - from[(size_t)q]);
        release_unseen(s, q, from[(size_t)q]);
        DUET_TRY(reserve_positions(s, q, from[(size_t)q], to[(size_t)q]));
        if (from[(size_t)q] == 0 && s.limits.n_state_slots)
            DUET_TRY(s.model->exec->copy_page(s.exec_context, kStates, -1, q));
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
    // Recurrent layers cannot go back to before a piece that was stopped half way. So one token of each sequence is
    // always finished, and an answer that is cancelled can go on; sequences of a longer piece are emptied.
    const bool can_stop = !s.limits.n_state_slots || longest > 1;
    const duet_status status = s.model->exec->run(s.exec_context, e, can_stop ? &s.cancel : nullptr, s.err);
    if (status == DUET_OK) s.length = to;
    for (int32_t q = 0; status != DUET_OK && s.limits.n_state_slots && q < s.limits.n_seqs; q++)
        if (from[(size_t)q] != to[(size_t)q]) clear_sequence(s, q);
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

}  // namespace

float* kept_logits(duet_session& s, size_t i) {
    logits_row& kept = s.kept[i];
    if (!kept.data) kept.data = s.model->exec->wanted_row(s.exec_context, s.model->graph.logits_buffer, kept.row);
    return kept.data;
}

duet_status decode(duet_session& s, const duet_batch& b, bool rows_later) {
    full_batch full;
    DUET_TRY(check_batch(s, b, &full));
    s.kept.clear();
    s.embedding.clear();
    s.embedding_row = -1;
    const size_t n_vocab = (size_t)s.model->graph.n_vocab, dim = (size_t)s.model->graph.dim;
    const size_t n_wanted = (size_t)std::count_if(full.want.begin(), full.want.end(), [](uint8_t w) { return w != 0; });
    const bool one_piece = piece_size(s, full, 0, b.n_tok) == b.n_tok;
    if (!one_piece) s.kept_data.resize(n_wanted * n_vocab);
    for (int32_t first = 0; first < b.n_tok;) {
        const int32_t n = piece_size(s, full, first, b.n_tok);
        if (duet_status st = run_piece(s, b, full, first, n, rows_later); st != DUET_OK) {
            if (st == DUET_ERR_CANCELLED) s.cancel.store(0);
            return st;
        }
        int32_t row = 0;
        for (int32_t i = first; i < first + n; i++) {
            if (!full.want[(size_t)i]) continue;
            s.kept.push_back({full.seq[(size_t)i], full.pos[(size_t)i], row++, nullptr});
            if (one_piece) continue;  // read when they are asked for
            float* logits = kept_logits(s, s.kept.size() - 1);
            if (!logits) return fail(s.err, DUET_ERR_DEVICE, "reading the logits from the device failed");
            float* own = s.kept_data.data() + (s.kept.size() - 1) * n_vocab;
            memcpy(own, logits, n_vocab * sizeof(float));
            s.kept.back().data = own;
        }
        if (row > 0) s.embedding_row = row - 1;
        if (const float* e = one_piece || row == 0 ? nullptr : duet_embedding(&s))
            s.embedding.assign(e, e + dim), s.embedding_row = -1;
        first += n;
    }
    return DUET_OK;
}

namespace {

// ---- saved state
//  ----------------------------------------------------------------------------------------------------

constexpr char kStateMagic[8] = {'D', 'U', 'E', 'T', 'S', 'E', 'Q', '1'};

struct state_header {  // little-endian, as all machines this runs on
    char magic[8];
    uint32_t numerics_version, cache_type;
    uint64_t fingerprint;
    uint32_t n_tok, n_groups;
    uint64_t payload_bytes, payload_hash;
};

// A word at a time: a state can be gigabytes. The length in tokens goes in too, as nothing else in the header vouches
// for it.
uint64_t hash_words(const uint8_t* data, uint64_t n, uint32_t n_tok) {
    uint64_t h = 0x9e3779b97f4a7c15ull ^ n ^ (uint64_t)n_tok << 40;
    for (; n >= 8; data += 8, n -= 8) {
        uint64_t w;
        memcpy(&w, data, 8);
        h = (h ^ w) * 0xff51afd7ed558ccdull;
        h ^= h >> 32;
    }
    for (; n; data++, n--) h = (h ^ *data) * 0x100000001b3ull;
    return h;
}

// First page of group g that tokens after n_tok can see.
int32_t first_page(const duet_session& s, size_t g, int32_t n_tok) {
    const int32_t window = s.model->graph.groups[g].window;
    return window ? std::max(0, n_tok - window + 1) / kAttnChunk : 0;
}

uint64_t state_payload_bytes(const duet_session& s, int32_t n_tok) {
    uint64_t n = s.limits.n_state_slots ? s.model->exec->page_bytes(s.exec_context, kStates) : 0;
    for (size_t g = 0; g < s.pools.size(); g++)
        n += (uint64_t)std::max(0, div_up(n_tok, kAttnChunk) - first_page(s, g, n_tok)) *
             s.model->exec->page_bytes(s.exec_context, (int32_t)g);
    return n;
}

duet_status save_sequence(const duet_session& s, int32_t seq, uint8_t* out) {
    const int32_t n_tok = s.length[(size_t)seq];
    state_header h{};
    memcpy(h.magic, kStateMagic, 8);
    h.numerics_version = kNumericsVersion;
    h.cache_type = (uint32_t)s.limits.cache_type;
    h.fingerprint = s.model->fingerprint;
    h.n_tok = (uint32_t)n_tok;
    h.n_groups = (uint32_t)s.pools.size();
    h.payload_bytes = state_payload_bytes(s, n_tok);
    uint8_t* at = out + sizeof h;
    for (size_t g = 0; g < s.pools.size(); g++) {
        for (int32_t i = first_page(s, g, n_tok); i < div_up(n_tok, kAttnChunk); i++) {
            DUET_TRY(s.model->exec->read_page(s.exec_context, (int32_t)g, s.pages[g][(size_t)seq][(size_t)i], at));
            at += s.model->exec->page_bytes(s.exec_context, (int32_t)g);
        }
    }
    if (s.limits.n_state_slots) DUET_TRY(s.model->exec->read_page(s.exec_context, kStates, seq, at));
    h.payload_hash = hash_words(out + sizeof h, h.payload_bytes, h.n_tok);
    memcpy(out, &h, sizeof h);
    return DUET_OK;
}

duet_status check_state(duet_session& s, const uint8_t* data, uint64_t n_bytes, state_header* h) {
    if (n_bytes < sizeof *h || memcmp(data, kStateMagic, 8) != 0)
        return fail(s.err, DUET_ERR_FORMAT,
                    "saved state: want a header of %zu bytes that begins with DUETSEQ1, got %llu other bytes",
                    sizeof *h, (unsigned long long)n_bytes);
    memcpy(h, data, sizeof *h);
    if (h->numerics_version != (uint32_t)kNumericsVersion)
        return fail(s.err, DUET_ERR_FORMAT, "saved state: want numerics version %d, got %u", kNumericsVersion,
                    h->numerics_version);
    if (h->fingerprint != s.model->fingerprint)
        return fail(s.err, DUET_ERR_FORMAT, "saved state: of another model, or of the other mode (exact, fast)");
    if (h->cache_type != (uint32_t)s.limits.cache_type)
        return fail(s.err, DUET_ERR_FORMAT, "saved state: want cache type %d, got %u", s.limits.cache_type,
                    h->cache_type);
    if (h->n_tok > (uint32_t)s.limits.n_ctx)
        return fail(s.err, DUET_ERR_FULL, "saved state: %u tokens do not fit %d (n_ctx)", h->n_tok, s.limits.n_ctx);
    const uint64_t want = state_payload_bytes(s, (int32_t)h->n_tok);
    if (h->n_groups != s.pools.size() || h->payload_bytes != want || n_bytes - sizeof *h != want)
        return fail(s.err, DUET_ERR_FORMAT, "saved state: want %llu bytes after the header, got %llu",
                    (unsigned long long)want, (unsigned long long)(n_bytes - sizeof *h));
    if (hash_words(data + sizeof *h, want, h->n_tok) != h->payload_hash)
        return fail(s.err, DUET_ERR_FORMAT, "saved state: damaged (its hash differs)");
    return DUET_OK;
}

duet_status load_sequence(duet_session& s, int32_t seq, const uint8_t* data, uint64_t n_bytes) {
    state_header h;
    DUET_TRY(check_state(s, data, n_bytes, &h));
    clear_sequence(s, seq);
    const uint8_t* at = data + sizeof h;
    const int32_t n_tok = (int32_t)h.n_tok;
    for (size_t g = 0; g < s.pools.size(); g++) {
        std::vector<int32_t>& table = s.pages[g][(size_t)seq];
        table.assign((size_t)first_page(s, g, n_tok), -1);
        while ((int32_t)table.size() < div_up(n_tok, kAttnChunk)) {
            table.push_back(s.pools[g].take());
            if (table.back() < 0) {
                table.pop_back();
                clear_sequence(s, seq);
                return fail(s.err, DUET_ERR_FULL, "saved state: no free cache page; the sequence is now empty");
            }
            DUET_TRY(s.model->exec->write_page(s.exec_context, (int32_t)g, table.back(), at));
            at += s.model->exec->page_bytes(s.exec_context, (int32_t)g);
        }
    }
    if (s.limits.n_state_slots) DUET_TRY(s.model->exec->write_page(s.exec_context, kStates, seq, at));
    s.length[(size_t)seq] = n_tok;
    return DUET_OK;
}

duet_status trim_sequence(duet_session& s, int32_t seq, int32_t n_tok) {
    const int32_t length = s.length[(size_t)seq];
    if (n_tok < 0 || n_tok > length)
        return fail(s.err, DUET_ERR_ARG, "duet_seq_trim: want 0..%d tokens, got %d", length, n_tok);
    if (n_tok == length) return DUET_OK;
    if (n_tok == 0) {
        clear_sequence(s, seq);
        return DUET_OK;
    }
    if (s.limits.n_state_slots)
        return fail(
            s.err, DUET_ERR_STATE,
            "duet_seq_trim: recurrent layers cannot go back from position %d to %d; trim to 0 or save a state there",
            length, n_tok);
    for (size_t g = 0; g < s.pools.size(); g++) {
        const std::vector<int32_t>& table = s.pages[g][(size_t)seq];
        for (int32_t i = first_page(s, g, n_tok); i < div_up(n_tok, kAttnChunk); i++)
            if (table[(size_t)i] < 0)
                return fail(s.err, DUET_ERR_STATE,
                            "duet_seq_trim: windowed layers have given back position %d; trim to 0", i * kAttnChunk);
    }
    for (size_t g = 0; g < s.pools.size(); g++) {
        std::vector<int32_t>& table = s.pages[g][(size_t)seq];
        while ((int32_t)table.size() > div_up(n_tok, kAttnChunk)) {
            s.pools[g].release(table.back());
            table.pop_back();
        }
    }
    s.length[(size_t)seq] = n_tok;
    return DUET_OK;
}

bool seq_in_range(const duet_session* s, int32_t seq) {
    return s && s->exec_context && seq >= 0 && seq < s->limits.n_seqs;
}

}  // namespace

void clear_sequence(duet_session& s, int32_t seq) {
    for (size_t g = 0; g < s.pools.size(); g++) {
        for (int32_t page : s.pages[g][(size_t)seq]) s.pools[g].release(page);
        s.pages[g][(size_t)seq].clear();
    }
    s.length[(size_t)seq] = 0;
}

}  // namespace duet

using namespace duet;

extern "C" {

duet_session_params duet_session_params_default(void) {
    duet_session_params p{};
    p.struct_size = sizeof p;
    p.n_seqs = 1;
    p.max_batch = 512;
    p.cache_type = DUET_CACHE_F16;
    return p;
}

duet_status duet_session_plan(const duet_model* model, const duet_session_params* params, duet_memory_plan* out) {
    if (!model || !out) return DUET_ERR_ARG;
    return guarded(model->error(), [&]() -> duet_status {
        duet_session_params p = duet_session_params_default();
        exec_limits limits;
        exec_plan plan;
        DUET_TRY(read_params("duet_session_params", params, &p, model->error()));
        DUET_TRY(derive_limits(*model, p, &limits, model->error()));
        DUET_TRY(model->exec->plan(model->graph, limits, model->n_threads, &plan, model->error()));
        const exec_memory &h = plan.host, &d = plan.device;
        *out = {model->weight_bytes, h.cache_bytes,   h.state_bytes,         h.work_bytes,
                d.pinned_bytes,      d.weight_bytes,  d.cache_bytes,         d.state_bytes,
                d.work_bytes,        plan.gpu_layers, plan.cpu_expert_layers};
        return DUET_OK;
    });
}

duet_status duet_session_create(const duet_model* model, const duet_session_params* params, duet_session** out) {
    if (!out) return DUET_ERR_ARG;
    *out = nullptr;
    if (!model) return DUET_ERR_ARG;
    duet_session* s = new (std::nothrow) duet_session;
    if (!s) return DUET_ERR_MEMORY;
    *out = s;
    s->model = model;
    return guarded(s->err, [&]() -> duet_status {
        s->params = duet_session_params_default();
        DUET_TRY(read_params("duet_session_params", params, &s->params, s->err));
        DUET_TRY(derive_limits(*model, s->params, &s->limits, s->err));
        for (int32_t n : s->limits.n_pages) {
            page_pool pool;
            pool.n_users.assign((size_t)n, 0);
            for (int32_t i = n; i-- > 0;) pool.free_pages.push_back(i);
            s->pools.push_back(std::move(pool));
            s->pages.emplace_back((size_t)s->limits.n_seqs);
        }
        s->length.assign((size_t)s->limits.n_seqs, 0);
        return model->exec->create(model->graph, s->limits, model->n_threads, model->isa.c_str(), &s->exec_context,
                                   s->err);
    });
}

void duet_session_free(duet_session* session) { delete session; }
const char* duet_session_error(const duet_session* session) {
    return session ? session->err.text.c_str() : "session is NULL";
}
int32_t duet_session_n_ctx(const duet_session* session) { return session ? session->limits.n_ctx : 0; }
int32_t duet_session_max_batch(const duet_session* session) { return session ? session->limits.max_batch : 0; }

duet_status duet_decode(duet_session* session, const duet_batch* batch) {
    if (!session || !batch || !session->exec_context) return DUET_ERR_ARG;
    return guarded(session->err, [&] { return decode(*session, *batch, false); });
}

float* duet_logits(duet_session* session, int32_t i) {
    return session && i >= 0 && i < (int32_t)session->kept.size() ? kept_logits(*session, (size_t)i) : nullptr;
}

int32_t duet_logits_count(const duet_session* session) { return session ? (int32_t)session->kept.size() : 0; }
const float* duet_embedding(duet_session* session) {
    if (!session || (session->embedding.empty() && session->embedding_row < 0)) return nullptr;
    if (session->embedding_row < 0) return session->embedding.data();
    return session->model->exec->wanted_row(session->exec_context, session->model->graph.embedding_buffer,
                                            session->embedding_row);
}

void duet_session_cancel(duet_session* session) {
    if (session) session->cancel.store(1);
}

int32_t duet_seq_length(const duet_session* session, int32_t seq) {
    return seq_in_range(session, seq) ? session->length[(size_t)seq] : -1;
}

duet_status duet_seq_trim(duet_session* session, int32_t seq, int32_t n_tok) {
    if (!seq_in_range(session, seq)) return DUET_ERR_ARG;
    return guarded(session->err, [&] { return trim_sequence(*session, seq, n_tok); });
}

duet_status duet_seq_copy(duet_session* session, int32_t src, int32_t dst) {
    if (!seq_in_range(session, src) || !seq_in_range(session, dst)) return DUET_ERR_ARG;
    if (src == dst) return DUET_OK;
    return guarded(session->err, [&]() -> duet_status {
        duet_session& s = *session;
        clear_sequence(s, dst);
        for (size_t g = 0; g < s.pools.size(); g++) {
            s.pages[g][(size_t)dst] = s.pages[g][(size_t)src];
            for (int32_t page : s.pages[g][(size_t)src])
                if (page >= 0) s.pools[g].n_users[(size_t)page]++;
        }
        if (s.limits.n_state_slots) DUET_TRY(s.model->exec->copy_page(s.exec_context, kStates, src, dst));
        s.length[(size_t)dst] = s.length[(size_t)src];
        return DUET_OK;
    });
}

duet_status duet_seq_save(const duet_session* session, int32_t seq, void* out, uint64_t max_bytes, uint64_t* n_bytes) {
    if (!seq_in_range(session, seq) || !n_bytes) return DUET_ERR_ARG;
    *n_bytes = sizeof(state_header) + state_payload_bytes(*session, session->length[(size_t)seq]);
    if (!out) return DUET_OK;
    if (max_bytes < *n_bytes) return DUET_ERR_FULL;
    return save_sequence(*session, seq, (uint8_t*)out);
}

duet_status duet_seq_load(duet_session* session, int32_t seq, const void* data, uint64_t n_bytes) {
    if (!seq_in_range(session, seq) || !data) return DUET_ERR_ARG;
    return guarded(session->err, [&] { return load_sequence(*session, seq, (const uint8_t*)data, n_bytes); });
}

void duet_session_profile(duet_session* session, int32_t on) {
    if (session && session->exec_context) session->model->exec->profile(session->exec_context, on != 0);
}

const duet_profile_row* duet_session_profile_row(duet_session* session, int32_t i_row) {
    if (!session || !session->exec_context || i_row < 0) return nullptr;
    if (i_row == 0) {  // a fresh walk: copy what was collected
        const std::vector<profile_entry>* rows = session->model->exec->profile_rows(session->exec_context);
        session->profile_rows.clear();
        for (const profile_entry& e : *rows)
            session->profile_rows.push_back({e.op.c_str(), e.n_calls, e.time_ns / 1000, e.weight_bytes, e.n_mac});
    }
    return i_row < (int32_t)session->profile_rows.size() ? &session->profile_rows[(size_t)i_row] : nullptr;
}

}  // extern "C"
