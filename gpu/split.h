// gpu/split.h: one model on a GPU and the CPU: which ops run where, decided before anything is allocated. Must not know: kernels, formats.
// Main path: runtime_session.cpp -> [gpu/split.h] -> gpu/launch.cpp and quant/cpu_ops.cpp
#pragma once
#include "../models/ops.h"

namespace duet {

enum split_side : int { kHostSide = 0, kDeviceSide = 1 };

// Layers n_layers - gpu_layers .. n_layers - 1 are on the device, and what follows them; what comes before the first is with layer 0.
// Experts of layers below cpu_expert_layers stay on the host.
struct placement {
    int32_t gpu_layers = 0, cpu_expert_layers = 0;
};

// Consecutive ops on one side, and the buffers that must be brought there first.
struct op_run {
    int                  side = kHostSide;
    int32_t              first = 0, last = 0;   // ops of the side's graph
    std::vector<int32_t> moves;
};

// A model in two: each side's graph has its own ops only, and no room for what the other side keeps; numbers of buffers, weights, cache
// and state layers are the same in both.
struct split_model {
    placement            place;
    model_graph          part[2];
    std::vector<op_run>  runs;
    std::vector<uint8_t> row_side;      // of each buffer: the side that writes it last
    std::vector<uint8_t> cache_side, state_side;
    int32_t              moved_floats = 0;   // of the widest buffer that crosses
};
duet_status split_graph(const model_graph& g, const placement& place, split_model* out, error_text& err);

// The executor of limits.place.device beside the CPU: isa and n_threads are the CPU's. With all layers on the device the CPU's part is
// empty, with none the device is not touched.
extern const executor kSplitExecutor;

}  // namespace duet
