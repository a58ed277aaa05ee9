// gpu/device.h: what GPUs there are, which of them is used, and why not the others. Must not know: ops, kernels.
// Main path: runtime.cpp -> [gpu/device.h] -> gpu/launch.cpp
#pragma once
#include "driver.h"
#include "../models/ops.h"

#include <vector>

namespace duet {

// A device of a driver, or a driver without one.
struct gpu_found {
    std::string id;          // "cuda:0", "emu32"; "cuda": the driver has none
    gpu_info    info;
    bool        is_usable = false, is_default = false;   // default: "auto" takes it
    std::string why;         // it is not usable, or not used unless it is named, and what to do
};

// All of them, without touching any: names and attributes only.
std::vector<gpu_found> list_gpus();

// A device's name ("auto", "cuda", "hip:1", "emu32") to the id of one that can be used. DUET_ERR_ARG: no such name; DUET_ERR_DEVICE: none can
// be used (err says why).
duet_status choose_gpu(std::string_view name, std::string* id, error_text& err);

// What a device is and has free now. DUET_ERR_DEVICE: it cannot be used.
duet_status gpu_device_info(const char* id, gpu_info* out, error_text& err);

// An id's driver and index; nullptr when it is no GPU's.
const gpu_driver* find_driver(std::string_view id, int32_t* index);

// Bytes read and written by copies from and to a device's memory, GB/s; 0: it cannot be used, or has too little memory.
double gpu_copy_gbps(const char* id);

// That device beside the CPU, each with a part of the ops: limits.place says which device and how many layers, isa and n_threads are the CPU's.
// With all layers on the device the CPU's part is empty, with none the device is not touched.
extern const executor kSplitExecutor;                              // gpu/split.cpp
extern const executor kGpuExecutor;                                // gpu/launch.cpp; create() takes the id as isa
duet_status gpu_check(const model_graph& g, error_text& err);      // gpu/launch.cpp: has every op of the graph code on GPUs?

}  // namespace duet
