// gpu/executor.h: the GPU executor as the runtime sees it. Must not know: the CPU's executor, which device is chosen.
// Main path: runtime/split.cpp -> [gpu/executor.h] -> gpu/launch.cpp
#pragma once
#include "driver.h"
#include "../models/executor.h"

namespace duet {

extern const executor kGpuExecutor;  // gpu/launch.cpp; create() takes the device's id as isa

// Has every op of the graph code on GPUs?
duet_status gpu_check(const model_graph& g, error_text& err);

// The first n_rows rows of a buffer from `host` to the device, or back, through the place.move_bytes that the session
// has for it.
duet_status gpu_move_rows(void* context, int32_t buffer, int32_t n_rows, void* host, bool to_device, error_text& err);

// An id's driver and index; nullptr when it is no GPU's.
const gpu_driver* find_driver(std::string_view id, int32_t* index);  // gpu/store.cpp

}  // namespace duet
