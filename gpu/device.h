// gpu/device.h: which executor a device's name stands for. Must not know: ops, kernels.
// Main path: runtime.cpp -> [gpu/device.h] -> gpu/launch.cpp
#pragma once
#include "../models/ops.h"

namespace duet {

// The executor of a GPU device ("emu32", "emu64"), or nullptr when the name is no GPU's (err is empty) or the device cannot be used (err
// says why). Its create() takes the device's name as isa.
const executor* find_gpu_executor(const char* device, error_text& err);

}  // namespace duet
