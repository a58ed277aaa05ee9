// gpu/executor.h: the GPU executor as the runtime sees it. Must not know: the CPU's executor, how a device is chosen.
// Main path: runtime/split.cpp -> [gpu/executor.h] -> gpu/launch.cpp
#pragma once
#include "driver.h"
#include "../models/executor.h"

namespace duet {

extern const executor kGpuExecutor;  // gpu/launch.cpp; its create() takes a device's id as `isa`

// Says whether every op of the graph can run on GPUs; limits {}: within some limits.
duet_status gpu_check(const model_graph& g, const exec_limits& limits, error_text& err);

// Says whether mode fast has code for an op, on a device with has_fast and with a cache of f16 (gpu/launch_steps.cpp).
bool has_fast_code(const model_graph& g, const op& o);

// Copies the first n_rows rows of a buffer from `host` to the device, or back, through pinned memory.
duet_status gpu_move_rows(void* context, int32_t buffer, int32_t n_rows, void* host, bool to_device, error_text& err);

// The driver and the device's index that an id names ("cuda:1"); nullptr when the id names no GPU.
const gpu_driver* find_driver(std::string_view id, int32_t* index);  // gpu/store.cpp

}  // namespace duet
