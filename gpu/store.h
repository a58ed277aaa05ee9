// gpu/store.h: a model's device, with its kernels and weights: one for all its sessions. Must not know: kernels'
// results, files, families.
// Main path: gpu/launch.cpp -> [gpu/store.h] -> gpu/weights.h, gpu/driver.h
#pragma once
#include "driver.h"
#include "../models/executor.h"

namespace duet {

// Where each weight goes: one allocation (block) for each layer, so that a session asks for tens of them, not
// thousands.
struct store_layout {
    std::vector<int32_t> block;      // of each weight of the graph; -1: no op reads it
    std::vector<uint64_t> offset;    // in its block
    std::vector<uint8_t> is_matrix;  // rearranged (gpu/weights.h); else as it lies in the file
    std::vector<uint64_t> block_bytes;
    uint64_t weight_bytes = 0;  // of all blocks
    uint64_t file_bytes = 0;    // that are read
    uint64_t piece_bytes = 0;   // of a piece of the ring; there is one on the device also, while weights are loaded
};
store_layout plan_store(const model_graph& g);
constexpr int kRingPieces = 2;

// Kernels by their row of gpu/kernels.def. Those of a number format follow one another; after a matvec comes the one
// for 8 tokens.
enum gpu_kernel : int32_t {
#define KERNEL(name, args, threads, ...) name,
#include "kernels.def"
    kNumKernels
};
enum type_kernel : int32_t { kArrange, kEmbed, kMatvec, kMatvec8, kMatmul };
int32_t kernel_of(int32_t type, type_kernel which);
int32_t pair_kernel(int32_t type, int32_t second);  // matvec of matrices in two formats; -1: there is none

struct gpu_store {
    const gpu_driver* driver = nullptr;
    void* device = nullptr;
    gpu_info info;
    std::atomic<bool> lost{false};  // a call failed with DUET_ERR_DEVICE: no session of the model goes on
    void* kernels[kNumKernels] = {};
    std::vector<void*> weights;  // of each weight of the graph; null where no op reads it
    std::vector<void*> blocks;

    gpu_store() = default;
    gpu_store(const gpu_store&) = delete;
    gpu_store& operator=(const gpu_store&) = delete;
    ~gpu_store() {
        if (!device) return;
        for (void* b : blocks) driver->free(device, b);
        driver->close(device);
    }
};

// The device with its weights: the one that place.store keeps, or a new one without weights. Who shares place.store
// among sessions makes one call at a time.
duet_status open_store(const exec_place& place, const char* device, std::shared_ptr<gpu_store>* out, error_text& err);

// Loads the weights of a new one with n_threads that read; place.store keeps it then. place.progress is told and asked.
// DUET_ERR_MEMORY, DUET_ERR_DEVICE, DUET_ERR_CANCELLED: nothing is left on the device.
duet_status load_store(const model_graph& g, const std::shared_ptr<gpu_store>& s, const exec_place& place,
                       int32_t n_threads, error_text& err);

}  // namespace duet
