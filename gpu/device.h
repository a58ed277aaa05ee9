// gpu/device.h: which executor a device's name stands for. Must not know: ops, kernels.
// Main path: runtime.cpp -> [gpu/device.h] -> gpu/launch.cpp
#pragma once
#include "../models/ops.h"

namespace duet {

struct gpu_info;

// The executor of a GPU device ("emu32", "emu64"), or nullptr when the name is no GPU's (err is empty) or the device cannot be used (err
// says why). Its create() takes the device's name as isa.
const executor* find_gpu_executor(const char* device, error_text& err);
extern const executor kGpuExecutor;   // gpu/launch.cpp: all ops of a graph on limits.place.device, which create() takes as isa also

// What a device is and has free now. DUET_ERR_DEVICE: it cannot be used.
duet_status gpu_device_info(const char* device, gpu_info* out, error_text& err);

}  // namespace duet
