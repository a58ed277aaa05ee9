// gpu/store.h: the open device of a model with its kernels and weights. All sessions of the model share one store.
// Must not know: kernels' results, files, families.
// Main path: gpu/launch.cpp -> [gpu/store.h] -> gpu/weights.h, gpu/driver.h
#pragma once
#include "driver.h"
#include "../models/executor.h"

namespace duet {

// The place of each weight. The weights of one layer share one allocation, a block: tens for a model, not thousands.
struct weight_place {
    int32_t block = -1;      // -1: no op reads the weight
    uint64_t offset = 0;     // in the block
    bool is_matrix = false;  // The weight is rearranged (gpu/weights.h). Others lie as in the file.
};
struct store_layout {
    std::vector<weight_place> places;  // of each weight of the graph
    std::vector<uint64_t> block_bytes;
    uint64_t weight_bytes = 0;  // size of all blocks together
    uint64_t file_bytes = 0;    // size of the weights in the file that ops read
    uint64_t piece_bytes = 0;   // size of a piece of the ring; during loading the device holds one too
};
store_layout plan_store(const model_graph& g);
constexpr int kRingPieces = 2;

// Kernels by their row of gpu/kernels.def. Those of a format follow one another, matvec for 8 tokens behind that for 1.
enum gpu_kernel : int32_t {
#define KERNEL(name, args, threads, ...) name,
#include "kernels.def"
    kNumKernels
};
enum type_kernel : int32_t { kArrange, kEmbed, kMatvec, kMatvec8, kMatmul, kFast };  // kFast: of plain floats
int32_t kernel_of(int32_t type, type_kernel which);
int32_t pair_kernel(int32_t type, int32_t second);  // a matvec for matrices in two formats; -1: there is none

struct gpu_store {
    const gpu_driver* driver = nullptr;
    void* device = nullptr;
    gpu_info info;
    std::atomic<gpu_recording_use> recording{gpu_recording_use::watched};
    std::atomic<bool> lost{false};          // A call returned DUET_ERR_DEVICE; no session of the model can go on.
    uint64_t launch_products = UINT64_MAX;  // The most multiplications of one launch of attention.
    void* kernels[kNumKernels] = {};
    std::vector<void*> weights;  // address of each weight of the graph; null where no op reads it
    std::vector<void*> blocks;

    duet_status check(error_text& err) const {
        const char* text =
            "%s: the device was lost by an earlier error; open the model again, in a new process where that fails";
        return lost ? fail(err, DUET_ERR_DEVICE, text, info.name) : DUET_OK;
    }
    ~gpu_store() {
        if (!device) return;
        for (void* b : blocks) driver->free(device, b);
        driver->close(device);
    }
};

// Gives the device that place.store keeps, or a new one without weights. Sessions that share it call one at a time.
duet_status open_store(const exec_place& place, const char* device, std::shared_ptr<gpu_store>* out, error_text& err);

// Finds the kernels of the formats that the graph's matrices have, beside those that open_store found for all models.
duet_status find_type_kernels(const model_graph& g, gpu_store& s, error_text& err);

// Loads the weights of a new store with n_threads reading threads; from then on place.store keeps it. It reports to
// place.progress, which may cancel. After DUET_ERR_MEMORY, _DEVICE or _CANCELLED nothing is left on the device.
duet_status load_store(const model_graph& g, const std::shared_ptr<gpu_store>& s, const exec_place& place,
                       int32_t n_threads, error_text& err);

}  // namespace duet
