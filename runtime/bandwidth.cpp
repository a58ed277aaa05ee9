// runtime/bandwidth.cpp: how fast the memory of a device is, or the memory that holds a model's weights.
// Must not know: families.
// Main path: runtime.cpp -> [runtime/bandwidth.cpp] -> gpu/driver.h, cpu/bandwidth.cpp
#include "devices.h"
#include "handles.h"
#include "../cpu/executor.h"
#include "../models/os.h"

#include <algorithm>

namespace duet {
namespace {

// Bytes read and written by copies from and to a device's memory, GB/s; 0: it cannot be used, or has too little
// memory.
double gpu_copy_gbps(const char* name) {
    constexpr int kPasses = 3, kCopies = 8;
    error_text err;
    int32_t index = 0;
    gpu_info info;
    void *device = nullptr, *from = nullptr, *to = nullptr;
    std::string id;
    const gpu_driver* driver = choose_gpu(name, &id, err) == DUET_OK ? find_driver(id, &index) : nullptr;
    if (!driver || driver->open(index, &device, &info, err) != DUET_OK) return 0;
    const uint64_t n = std::clamp<uint64_t>(info.free_bytes / 8, 16u << 20, 1u << 30);  // beyond all caches
    double best = 0;
    bool ok = driver->alloc(device, n, &from, err) == DUET_OK && driver->alloc(device, n, &to, err) == DUET_OK;
    for (int pass = 0; ok && pass < kPasses; pass++) {
        ok = driver->sync(device, err) == DUET_OK;
        const auto start = std::chrono::steady_clock::now();
        for (int i = 0; i < kCopies; i++) ok = ok && driver->copy(device, to, from, n, err) == DUET_OK;
        ok = ok && driver->sync(device, err) == DUET_OK;
        if (ok) best = std::max(best, 2.0 * kCopies * (double)n / (double)ns_since(start));
    }
    for (void* memory : {from, to}) driver->free(device, memory);
    driver->close(device);
    return best;
}

}  // namespace

// The patterns that were the fastest on one machine or another. The limit is the best of them: one stream alone reads
// less than several (28.0 beside 31.4 GB/s, docs/measurements/2026-11-22-streams.md), and two are a tenth faster where
// they are fetched 2 KB ahead (37.3 and 41.1, docs/measurements/2026-11-28-visits.md).
constexpr read_pattern kPatterns[] = {{1, 0}, {2, 512}, {2, 2048}, {4, 512}, {4, 2048}, {8, 512}};

double measure_bandwidth(const char* device, const duet_model* model, int32_t n_threads) {
    const uint8_t *begin = nullptr, *end = nullptr;  // of the weights, of split files those of a part in the middle
    std::span<const gguf_tensor> all;
    if (model) all = model->source.file.tensors;
    for (const gguf_tensor& t : all)
        if (t.i_file == all[all.size() / 2].i_file) {
            begin = begin ? std::min(begin, t.data) : t.data;
            end = std::max(end, t.data + t.n_bytes);
        }
    const std::span<const uint8_t> weights(begin, end);
    n_threads = n_threads > 0 ? std::min(n_threads, 1024) : os_physical_cores();
    read_pattern one{0, 0};
    int n_read = 0;
    if (!device || strcmp(device, "cpu") == 0)
        return measure_read_gbps(n_threads, kPatterns, std::size(kPatterns), weights);
    if (strncmp(device, "cpu:", 4) != 0) return gpu_copy_gbps(device);
    if (sscanf(device, "cpu:%3d+%5d%n", &one.n_streams, &one.ahead, &n_read) != 2 || device[n_read] != 0 ||
        one.n_streams < 1 || one.n_streams > 16 || one.ahead < 0)
        return 0;
    return measure_read_gbps(n_threads, &one, 1, weights);
}

}  // namespace duet
