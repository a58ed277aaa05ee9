// runtime/devices.h: what GPUs there are, which of them is used, and why not the others; and the executor that uses
// one beside the CPU.
// Must not know: kernels.
// Main path: runtime/model.cpp -> [runtime/devices.h] -> runtime/device_choice.cpp, runtime/split.cpp
#pragma once
#include "../gpu/executor.h"

namespace duet {

// A device of a driver, or a driver without one.
struct gpu_found {
    std::string id;  // "cuda:0", "emu32"; "cuda": the driver has none
    gpu_info info;
    bool is_usable = false, is_default = false;  // default: "auto" takes it
    std::string why;                             // it is not usable, or not used unless it is named, and what to do
};

// All of them, or those of one driver, without touching any: names and attributes only.
std::vector<gpu_found> list_gpus(std::string_view only = "");
bool is_emulator(std::string_view id);

// The best of those that can be used, of one driver ("": of any); null: there is none.
gpu_found* best_gpu(std::vector<gpu_found>& all, std::string_view driver);

// Whether the machine has a card that a user may expect to be used: the PCI bus shows one of AMD or NVIDIA, or a driver
// finds a device.
bool may_have_card();

// A device's name ("auto", "cuda", "hip:1", "emu32") to the id of one that can be used. DUET_ERR_ARG: no such name;
// DUET_ERR_DEVICE: none can be used (err says why).
duet_status choose_gpu(std::string_view name, std::string* id, error_text& err);

// What a device is and has free now. DUET_ERR_DEVICE: it cannot be used.
duet_status gpu_device_info(const char* id, gpu_info* out, error_text& err);

// That device beside the CPU, each with a part of the ops: limits.place says which device and how many layers, isa and
// n_threads are the CPU's.
// With all layers on the device the CPU's part is empty, with none the device is not touched.
extern const executor kSplitExecutor;  // runtime/split.cpp

// ---- what runtime.cpp calls: device_list.cpp, bandwidth.cpp, self_test.cpp

duet_status tell_devices(duet_device_fn each, void* user, error_text& err);
double measure_bandwidth(const char* device, const duet_model* model, int32_t n_threads);
duet_status run_self_test(const char* device, const char* cpu_isa, duet_self_test_fn tell, void* user, error_text& err);

}  // namespace duet
