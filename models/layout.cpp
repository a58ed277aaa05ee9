// models/layout.cpp: computes the sizes and offsets that models/layout.h describes.
// Main path: models/ops.h -> [models/layout.cpp] -> cpu/ops.cpp, gpu/launch.cpp
#include "layout.h"
#include "../quant/exact.h"

#include <algorithm>

namespace duet {

// The bytes of one cached head. Keys are stored transposed as (k_dim, kAttnChunk), values as (kAttnChunk, v_dim). In
// q8_0 the codes come first, then one f16 scale for each 32 codes.
static size_t cache_head_bytes(int cache_type, int dim) {
    const size_t n = (size_t)dim * kAttnChunk;
    return cache_type == DUET_CACHE_F32 ? n * 4 : cache_type == DUET_CACHE_F16 ? n * 2 : n + n / kBlock * 2;
}

layout make_layout(const model_graph& g, const exec_limits& limits) {
    layout l;
    for (const buffer_info& b : g.buffers) {
        l.row_floats.push_back(round_up((size_t)b.width, kFloatsPerLine));
        l.buffer_offset.push_back(l.buffer_bytes);
        l.buffer_bytes += l.row_floats.back() * 4 * (size_t)(b.wanted_rows ? limits.max_wanted : limits.max_batch);
    }
    l.page_bytes.assign(g.groups.size(), 0);
    for (const cache_layer& c : g.caches) {
        size_t& at = l.page_bytes[(size_t)c.group];
        layer_place p{at, cache_head_bytes(limits.cache_type, c.k_dim),
                      c.v_in_k ? 0 : cache_head_bytes(limits.cache_type, c.v_dim)};
        at += round_up((p.k_bytes + p.v_bytes) * (size_t)c.n_kv_heads, 64);
        l.places.push_back(p);
    }
    for (size_t i = 0; i < g.groups.size(); i++) {
        l.group_offset.push_back(l.cache_bytes);
        l.cache_bytes += l.page_bytes[i] * (size_t)limits.n_pages[i];
    }
    for (const state_layer& s : g.states) {
        l.state_offset.push_back(l.state_floats);
        l.state_floats += round_up((size_t)s.n_floats, kFloatsPerLine);
    }
    for (const op& o : g.ops)
        if (o.kind == op_kind::matmul || (o.kind == op_kind::expert_matmul && o.in.n_heads == 1))
            l.max_in = std::max(l.max_in, round_up((size_t)o.in.width(), 64));
    for (const rope_table& r : g.ropes) {
        l.rope_offset.push_back(l.rope_floats);
        l.rope_floats += r.freq.size() * 2 * (size_t)limits.max_batch;
    }
    return l;
}

}  // namespace duet
