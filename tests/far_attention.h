// tests/far_attention.h: attention of tokens behind thousands of positions, which nobody computes first: the pages are
// filled with random keys and values.
#pragma once
#include "../quant/exact.h"
#include "../runtime/self_test_cases.h"

#include <memory>
#include <numeric>
#include <random>

namespace duet {

// Attention of n_heads heads that share one of keys and values.
inline self_test::graph_case far_attention(int32_t cache_type, int n_heads, int k_dim, int v_dim, int window) {
    self_test::graph_case c("far attention");
    c.cache_type = cache_type;
    const view x = c.input((n_heads + 1) * k_dim + v_dim), y = c.buffer(n_heads * v_dim);
    c.g.caches = {{0, 1, k_dim, v_dim, false}};
    c.g.groups = {{window}};
    c.add(op_kind::kv_append, self_test::heads_of(x, n_heads * k_dim, 1, k_dim), {},
          self_test::heads_of(x, (n_heads + 1) * k_dim, 1, v_dim))
        .index = 0;
    op& o =
        c.add(op_kind::attention, self_test::heads_of(x, 0, n_heads, k_dim), self_test::heads_of(y, 0, n_heads, v_dim));
    o.index = 0;
    o.scale = 0.2f;
    c.logits(y);
    return c;
}

// Returns the results of a token, then of two, behind `far` positions; none when something failed, which err tells.
inline std::vector<float> attend_far(const self_test::graph_case& c, const executor& e, const char* id, int32_t far,
                                     error_text& err) {
    constexpr int kPages = 68;
    exec_limits limits;
    limits.n_ctx = kPages * kAttnChunk;
    limits.n_seqs = 1;
    limits.max_batch = limits.max_wanted = 4;
    limits.cache_type = c.cache_type;
    limits.n_pages.assign(1, kPages);
    void* context = nullptr;
    if (e.create(c.g, limits, 1, id, &context, err) != DUET_OK) return {};
    const std::unique_ptr<void, void (*)(void*)> owned(context, e.destroy);
    std::mt19937 rng(7);
    std::vector<int32_t> table(kPages);
    std::iota(table.begin(), table.end(), 0);
    std::shuffle(table.begin(), table.end(), rng);
    for (const int32_t page : table) {
        std::vector<uint8_t> bytes(e.page_bytes(context, 0));
        for (size_t i = 0; i < bytes.size(); i += 2) {  // halves, or halves of floats, of 2^-5 to 2^3
            bytes[i] = (uint8_t)rng();
            bytes[i + 1] = (uint8_t)((c.cache_type == DUET_CACHE_F32 ? 0x3c : 0x28) + rng() % 16 + rng() % 2 * 128);
        }
        if (e.write_page(context, 0, page, bytes.data()) != DUET_OK) return {};
    }
    const std::vector<std::vector<const int32_t*>> pages{{table.data()}};
    const int32_t token[] = {3, 5}, pos[] = {far, far + 1}, seq[] = {0, 0}, slot[] = {0}, wanted[] = {0, 1};
    const int32_t end[] = {far + 2, far + 2};
    std::vector<float> out;
    for (const int n : {1, 2}) {
        exec_batch b{n, token, pos, seq, n, wanted, &pages, slot};
        b.end = end;
        if (e.run(context, b, nullptr, err) != DUET_OK) return {};
        for (int i = 0; i < n; i++) {
            const float* row = e.wanted_row(context, c.g.logits_buffer, i);
            out.insert(out.end(), row, row + c.g.buffers[(size_t)c.g.logits_buffer].width);
        }
    }
    return out;
}

}  // namespace duet
