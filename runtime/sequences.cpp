// runtime/sequences.cpp: the sequences of a session: their cache pages, trimming, copying.
// Owns: which page holds what, and the ids of the tokens. Must not know: what the executor keeps in a page.
// Main path: runtime/session.cpp -> [runtime/sequences.cpp] -> models/executor.h
#include "calls.h"
#include "../quant/exact.h"

#include <algorithm>

namespace duet {

int32_t pages_of(int64_t n_tok) { return (int32_t)((n_tok + kAttnChunk - 1) / kAttnChunk); }

int32_t first_page(const duet_session& s, size_t g, int32_t n_tok) {
    const int32_t window = s.model->graph.groups[g].window;
    return window ? std::max(0, n_tok - window + 1) / kAttnChunk : 0;
}

bool has_sequence(const duet_session& s, int32_t seq) { return s.exec_context && seq >= 0 && seq < s.limits.n_seqs; }

duet_status check_sequence(duet_session& s, const char* call, int32_t seq) {
    if (has_sequence(s, seq)) return DUET_OK;
    return fail(s.err, DUET_ERR_ARG, "%s: want a sequence in 0..%d, got %d", call, s.limits.n_seqs - 1, seq);
}

void change_content(duet_session& s, int32_t seq) noexcept { s.content[(size_t)seq] = ++s.n_contents; }

// Goes back to a position that nothing forbids.
static void shorten(duet_session& s, int32_t seq, int32_t n_tok) noexcept {
    s.length[(size_t)seq] = n_tok;
    drop_unused(s, seq);
    s.ids[(size_t)seq].resize((size_t)n_tok);
    change_content(s, seq);
}

void clear_sequence(duet_session& s, int32_t seq) noexcept { shorten(s, seq, 0); }

void release_unseen(duet_session& s, int32_t seq, int32_t from) noexcept {
    for (size_t g = 0; g < s.pools.size(); g++) {
        if (!s.model->graph.groups[g].window) continue;
        std::vector<int32_t>& table = s.pages[g][(size_t)seq];
        const int32_t n_unseen = first_page(s, g, from);
        for (int32_t i = 0; i < n_unseen && i < (int32_t)table.size(); i++) {
            s.pools[g].release(table[(size_t)i]);
            table[(size_t)i] = -1;
        }
    }
}

duet_status reserve_positions(duet_session& s, int32_t seq, int32_t from, int32_t to, bool with_windows) {
    for (size_t g = 0; g < s.pools.size(); g++) {
        if (s.model->graph.groups[g].window && !with_windows) continue;
        std::vector<int32_t>& table = s.pages[g][(size_t)seq];
        // room in the table comes first: a page that was taken must not be lost
        if (const size_t n = (size_t)pages_of(to); n > table.capacity()) table.reserve(std::max(n, 2 * table.size()));
        for (int32_t i = from / kAttnChunk; i < pages_of(to); i++) {
            const bool exists = i < (int32_t)table.size();
            if (exists && s.pools[g].n_users[(size_t)table[(size_t)i]] == 1) continue;
            const int32_t page = s.pools[g].take();
            if (page < 0)
                return fail(s.err, DUET_ERR_FULL,
                            "the cache is full: sequence %d wants a page for position %d, all %d pages of %d tokens "
                            "are taken (cache_tokens)",
                            seq, std::max(from, i * kAttnChunk), s.limits.n_pages[g], kAttnChunk);
            // Nothing of other sequences stays in a page: saved states hold it whole.
            const int32_t from_page = exists ? table[(size_t)i] : -1;
            const duet_status st =
                guarded(s.err, [&] { return s.model->exec->copy_page(s.exec_context, (int32_t)g, from_page, page); });
            if (st != DUET_OK) {
                s.pools[g].release(page);
                return fail(s.err, st, "sequence %d: filling a cache page failed", seq);
            }
            if (exists) s.pools[g].release(from_page);
            else table.push_back(-1);
            table[(size_t)i] = page;
        }
    }
    return DUET_OK;
}

void drop_unused(duet_session& s, int32_t seq) noexcept {
    for (size_t g = 0; g < s.pools.size(); g++) {
        std::vector<int32_t>& table = s.pages[g][(size_t)seq];
        for (; (int32_t)table.size() > pages_of(s.length[(size_t)seq]); table.pop_back())
            s.pools[g].release(table.back());
    }
}

void reserve_ids(duet_session& s, int32_t seq, int32_t n_tok) {
    std::vector<int32_t>& ids = s.ids[(size_t)seq];
    if (const size_t n = (size_t)n_tok; n > ids.capacity()) ids.reserve(std::max(n, 2 * ids.size()));
}

const int32_t* ids_of_sequence(const duet_session& s, int32_t seq) noexcept {
    static const int32_t kNoIds = 0;
    return s.ids[(size_t)seq].empty() ? &kNoIds : s.ids[(size_t)seq].data();
}

namespace {

// The first position that windowed layers have given back although tokens after n_tok would see it; -1: none.
int32_t given_back(const duet_session& s, int32_t seq, int32_t n_tok) noexcept {
    for (size_t g = 0; g < s.pools.size(); g++) {
        const std::vector<int32_t>& table = s.pages[g][(size_t)seq];
        for (int32_t i = first_page(s, g, n_tok); i < pages_of(n_tok); i++)
            if (table[(size_t)i] < 0) return i * kAttnChunk;
    }
    return -1;
}

}  // namespace

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
    if (const int32_t position = given_back(s, seq, n_tok); position >= 0)
        return fail(s.err, DUET_ERR_STATE, "duet_seq_trim: windowed layers have given back position %d; trim to 0",
                    position);
    shorten(s, seq, n_tok);
    return DUET_OK;
}

int32_t reuse_sequence(duet_session& s, int32_t seq, const int32_t* ids, size_t n_ids) noexcept {
    const std::vector<int32_t>& held = s.ids[(size_t)seq];
    const size_t n_max = std::min(held.size(), n_ids);
    size_t n = 0;
    while (n < n_max && held[n] == ids[n]) n++;
    if (n == held.size()) return (int32_t)n;
    // Where windows forbid a position, they forbid every earlier one, too.
    if (s.limits.n_state_slots || given_back(s, seq, (int32_t)n) >= 0) n = 0;
    shorten(s, seq, (int32_t)n);
    return (int32_t)n;
}

duet_status copy_sequence(duet_session& s, int32_t src, int32_t dst) {
    if (src == dst) return DUET_OK;
    for (size_t g = 0; g < s.pools.size(); g++)  // what allocates comes first
        s.pages[g][(size_t)dst].reserve(s.pages[g][(size_t)src].size());
    reserve_ids(s, dst, s.length[(size_t)src]);
    clear_sequence(s, dst);
    if (s.limits.n_state_slots)
        if (const duet_status st = s.model->exec->copy_page(s.exec_context, kStates, src, dst); st != DUET_OK)
            return fail(s.err, st, "duet_seq_copy: copying the recurrent state of sequence %d failed", src);
    for (size_t g = 0; g < s.pools.size(); g++) {
        s.pages[g][(size_t)dst] = s.pages[g][(size_t)src];
        for (int32_t page : s.pages[g][(size_t)src])
            if (page >= 0) s.pools[g].n_users[(size_t)page]++;
    }
    s.length[(size_t)dst] = s.length[(size_t)src];
    s.ids[(size_t)dst] = s.ids[(size_t)src];
    return DUET_OK;
}

}  // namespace duet
