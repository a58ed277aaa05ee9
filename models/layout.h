// models/layout.h: where a session's rows, cache pages and recurrent states lie in memory. All executors use the same
// layout, so a session saved on one executor can continue on another.
// Owns: sizes that follow from graph and limits alone. Must not know: devices, threads.
// Main path: models/ops.h -> [models/layout.h] -> cpu/ops.cpp, gpu/launch.cpp
#pragma once
#include "executor.h"
#include "../quant/formats.h"

namespace duet {

constexpr int kFloatsPerLine = 16;  // rows of buffers begin on cache lines

inline size_t round_up(size_t n, size_t step) { return (n + step - 1) / step * step; }

struct layer_place {  // where a cache layer's heads lie in a page of its group
    size_t offset = 0, k_bytes = 0, v_bytes = 0;
};

struct layout {
    std::vector<size_t> row_floats, buffer_offset;  // of each buffer
    size_t buffer_bytes = 0;
    std::vector<layer_place> places;
    std::vector<size_t> page_bytes, group_offset;  // of each group: bytes of a page, place of its first page
    size_t cache_bytes = 0, state_floats = 0;
    std::vector<size_t> state_offset;
    size_t max_in = 0;  // widest matmul input, rounded to 64
    std::vector<size_t> rope_offset;
    size_t rope_floats = 0;

    size_t page_size(int32_t group) const { return group == kStates ? state_floats * 4 : page_bytes[(size_t)group]; }
    // A page of a session's cache, or of its states.
    uint8_t* page(void* cache, void* states, int32_t group, int32_t index) const {
        uint8_t* const first = group == kStates ? (uint8_t*)states : (uint8_t*)cache + group_offset[(size_t)group];
        return first + (size_t)index * page_size(group);
    }
};

layout make_layout(const model_graph& graph, const exec_limits& limits);

}  // namespace duet
