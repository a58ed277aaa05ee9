// gpu/store.h: a model's weights on a device: one copy for all its sessions. Must not know: kernels, ops' results, files.
// Main path: gpu/launch.cpp -> [gpu/store.h] -> gpu/weights.h, gpu/driver.h
#pragma once
#include "driver.h"
#include "../models/ops.h"

namespace duet {

struct gpu_store {
    const gpu_driver*  driver = nullptr;
    void*              device = nullptr;
    gpu_info           info;
    std::vector<void*> weights;          // of each weight of the graph; null where no op reads it

    gpu_store() = default;
    gpu_store(const gpu_store&) = delete;
    gpu_store& operator=(const gpu_store&) = delete;
    ~gpu_store() {
        if (!device) return;
        for (void* w : weights) driver->free(device, w);
        driver->close(device);
    }
};

// The store of a graph on device `index` of the driver: the one its sessions have, or a new one.
duet_status get_store(const model_graph& g, const gpu_driver* driver, int32_t index, std::shared_ptr<gpu_store>* out, error_text& err);

}  // namespace duet
