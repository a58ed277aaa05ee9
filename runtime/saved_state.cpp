// runtime/saved_state.cpp: the state of one sequence as bytes, which another session or machine can load.
// Owns: the format: a header, then the pages of each cache group in order, then the recurrent state, then the ids
// (docs/numerics.md).
// Must not know: how an executor lays out its pages (read_page and write_page give one form for all).
// Main path: runtime.cpp -> [runtime/saved_state.cpp] -> runtime/sequences.cpp
#include "calls.h"
#include "../quant/exact.h"

#include <algorithm>

namespace duet {
uint64_t hash_words(const uint8_t* data, uint64_t n, uint64_t seed) {
    uint64_t h = 0x9e3779b97f4a7c15ull ^ n ^ seed << 40;
    for (; n >= 8; data += 8, n -= 8) {
        uint64_t w;
        memcpy(&w, data, 8);
        h = (h ^ w) * 0xff51afd7ed558ccdull;
        h ^= h >> 32;
    }
    for (; n; data++, n--) h = (h ^ *data) * 0x100000001b3ull;
    return h;
}

namespace {

constexpr char kStateMagic[8] = {'D', 'U', 'E', 'T', 'S', 'E', 'Q', '2'};

struct state_header {  // little-endian, as all machines this runs on
    char magic[8];
    uint32_t numerics_version, cache_type;
    uint64_t fingerprint;
    uint32_t n_tok, n_groups;
    uint64_t payload_bytes, payload_hash;
};

// Of the model and its angles: a long context has others in some models.
uint64_t fingerprint_of(const duet_session& s) {
    uint64_t n = s.model->fingerprint;
    for (const rope_table& t : s.model->graph.ropes) n += &t.of_context(s.limits.n_ctx) == &t.long_freq;
    return n;
}

uint64_t state_payload_bytes(const duet_session& s, int32_t n_tok) {
    uint64_t n = sizeof(int32_t) * (uint64_t)n_tok;
    if (s.limits.n_state_slots) n += s.model->exec->page_bytes(s.exec_context, kStates);
    for (size_t g = 0; g < s.pools.size(); g++)
        n += (uint64_t)std::max(0, pages_of(n_tok) - first_page(s, g, n_tok)) *
             s.model->exec->page_bytes(s.exec_context, (int32_t)g);
    return n;
}

duet_status check_state(duet_session& s, const uint8_t* data, uint64_t n_bytes, state_header* h) {
    if (n_bytes < sizeof *h || memcmp(data, kStateMagic, 8) != 0)
        return fail(s.err, DUET_ERR_FORMAT,
                    "saved state: want a header of %zu bytes that begins with DUETSEQ2, got %llu other bytes",
                    sizeof *h, (unsigned long long)n_bytes);
    memcpy(h, data, sizeof *h);
    if (h->numerics_version != (uint32_t)kNumericsVersion)
        return fail(s.err, DUET_ERR_FORMAT, "saved state: want numerics version %d, got %u", kNumericsVersion,
                    h->numerics_version);
    if (h->fingerprint != fingerprint_of(s))
        return fail(s.err, DUET_ERR_FORMAT, "saved state: of another model, rope or mode (exact, fast)");
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
    for (uint32_t i = 0; i < h->n_tok; i++) {
        int32_t id;
        memcpy(&id, data + n_bytes - sizeof id * (h->n_tok - i), sizeof id);
        if (id < 0 || id >= s.model->graph.n_vocab)
            return fail(s.err, DUET_ERR_FORMAT, "saved state: token %u: want an id in 0..%d, got %d", i,
                        s.model->graph.n_vocab - 1, id);
    }
    return DUET_OK;
}

}  // namespace

duet_status save_sequence(duet_session& s, int32_t seq, void* out, uint64_t max_bytes, uint64_t* n_bytes) {
    if (!n_bytes) return fail(s.err, DUET_ERR_ARG, "duet_seq_save: n_bytes is NULL");
    const int32_t n_tok = s.length[(size_t)seq];
    state_header h{};
    memcpy(h.magic, kStateMagic, 8);
    h.numerics_version = kNumericsVersion;
    h.cache_type = (uint32_t)s.limits.cache_type;
    h.fingerprint = fingerprint_of(s);
    h.n_tok = (uint32_t)n_tok;
    h.n_groups = (uint32_t)s.pools.size();
    h.payload_bytes = state_payload_bytes(s, n_tok);
    *n_bytes = sizeof h + h.payload_bytes;
    if (!out) return DUET_OK;
    if (max_bytes < *n_bytes)
        return fail(s.err, DUET_ERR_FULL, "duet_seq_save: the state has %llu bytes, there is room for %llu",
                    (unsigned long long)*n_bytes, (unsigned long long)max_bytes);
    const executor& exec = *s.model->exec;
    uint8_t* const payload = (uint8_t*)out + sizeof h;
    uint8_t* at = payload;
    const auto read = [&](int32_t group, int32_t page) -> duet_status {
        if (const duet_status st = exec.read_page(s.exec_context, group, page, at); st != DUET_OK)
            return fail(s.err, st, "duet_seq_save: reading sequence %d from the device failed", seq);
        at += exec.page_bytes(s.exec_context, group);
        return DUET_OK;
    };
    for (size_t g = 0; g < s.pools.size(); g++)
        for (int32_t i = first_page(s, g, n_tok); i < pages_of(n_tok); i++)
            DUET_TRY(read((int32_t)g, s.pages[g][(size_t)seq][(size_t)i]));
    if (s.limits.n_state_slots && n_tok > 0) DUET_TRY(read(kStates, seq));
    if (n_tok == 0) memset(payload, 0, h.payload_bytes);  // The slot may still hold the state of a text before.
    memcpy(at, ids_of_sequence(s, seq), sizeof(int32_t) * (size_t)n_tok);
    h.payload_hash = hash_words(payload, h.payload_bytes, h.n_tok);
    memcpy(out, &h, sizeof h);
    return DUET_OK;
}

namespace {

// Fills an empty sequence from a checked state. The tables have room.
duet_status fill_sequence(duet_session& s, int32_t seq, const uint8_t* at, int32_t n_tok) {
    const executor& exec = *s.model->exec;
    const auto write = [&](int32_t group, int32_t page) -> duet_status {
        if (const duet_status st = exec.write_page(s.exec_context, group, page, at); st != DUET_OK)
            return fail(s.err, st, "saved state: writing to the device failed; the sequence is now empty");
        at += exec.page_bytes(s.exec_context, group);
        return DUET_OK;
    };
    for (size_t g = 0; g < s.pools.size(); g++) {
        std::vector<int32_t>& table = s.pages[g][(size_t)seq];
        table.assign((size_t)first_page(s, g, n_tok), -1);
        while ((int32_t)table.size() < pages_of(n_tok)) {
            const int32_t page = s.pools[g].take();
            if (page < 0)
                return fail(s.err, DUET_ERR_FULL,
                            "saved state: the cache is full (cache_tokens); the sequence is now empty");
            table.push_back(page);
            DUET_TRY(write((int32_t)g, page));
        }
    }
    if (s.limits.n_state_slots) DUET_TRY(write(kStates, seq));
    s.ids[(size_t)seq].resize((size_t)n_tok);
    if (n_tok > 0) memcpy(s.ids[(size_t)seq].data(), at, sizeof(int32_t) * (size_t)n_tok);
    s.length[(size_t)seq] = n_tok;
    return DUET_OK;
}

}  // namespace

duet_status load_sequence(duet_session& s, int32_t seq, const void* data, uint64_t n_bytes) {
    if (!data) return fail(s.err, DUET_ERR_ARG, "duet_seq_load: data is NULL");
    state_header h;
    DUET_TRY(check_state(s, (const uint8_t*)data, n_bytes, &h));
    for (size_t g = 0; g < s.pools.size(); g++)  // what allocates comes first
        s.pages[g][(size_t)seq].reserve((size_t)pages_of(h.n_tok));
    reserve_ids(s, seq, (int32_t)h.n_tok);
    clear_sequence(s, seq);
    const duet_status st =
        guarded(s.err, [&] { return fill_sequence(s, seq, (const uint8_t*)data + sizeof h, (int32_t)h.n_tok); });
    if (st != DUET_OK) clear_sequence(s, seq);
    return st;
}

}  // namespace duet
