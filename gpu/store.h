// gpu/store.h: a model's weights on a device: one copy for all its sessions. Must not know: kernels' results, files, families.
// Main path: gpu/launch.cpp -> [gpu/store.h] -> gpu/weights.h, gpu/driver.h
#pragma once
#include "driver.h"
#include "../models/ops.h"

namespace duet {

// Where each weight goes: one allocation (block) for each layer, so that a session asks for tens of them, not thousands.
struct store_layout {
    std::vector<int32_t>  block;          // of each weight of the graph; -1: no op reads it
    std::vector<uint64_t> offset;         // in its block
    std::vector<uint8_t>  is_matrix;      // rearranged (gpu/weights.h); else as it lies in the file
    std::vector<uint64_t> block_bytes;
    uint64_t              weight_bytes = 0;   // of all blocks
    uint64_t              file_bytes = 0;     // that are read
    uint64_t              piece_bytes = 0;    // of a piece of the ring; there is one on the device also, while weights are loaded
};
store_layout plan_store(const model_graph& g);
constexpr int kRingPieces = 2;

struct gpu_store {
    const gpu_driver*  driver = nullptr;
    void*              device = nullptr;
    gpu_info           info;
    std::atomic<bool>  lost{false};      // a call failed with DUET_ERR_DEVICE: no session of the model goes on
    std::vector<void*> weights;           // of each weight of the graph; null where no op reads it
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

// The store of a graph on device `index` of the driver: the one it has, or a new one, loaded with n_threads that read. The graph keeps
// it; not two calls for one graph at once. place.progress is told and asked. DUET_ERR_MEMORY, DUET_ERR_DEVICE, DUET_ERR_CANCELLED: nothing is left on the device.
duet_status get_store(const model_graph& g, const gpu_driver* driver, int32_t index, const exec_place& place, int32_t n_threads,
                      std::shared_ptr<gpu_store>* out, error_text& err);

}  // namespace duet
