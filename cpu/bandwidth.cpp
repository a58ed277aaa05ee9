// cpu/bandwidth.cpp: measures the read bandwidth of this machine's memory. Generation is compared with this limit.
// Must not know: families, ops.
// Main path: runtime/bandwidth.cpp -> [cpu/bandwidth.cpp] -> cpu/threads.h
#include "threads.h"
#include "../models/executor.h"
#include "../models/os.h"

#include <algorithm>
#include <cstring>
#include <new>

namespace duet {
namespace {

constexpr size_t kBytes = 192u << 20;  // larger than the last-level cache of most machines
constexpr size_t kPiece = 1u << 20;
constexpr std::align_val_t kHugePage{2u << 20};
constexpr int kPasses = 5;

// Reads a piece. The result keeps the compiler from dropping the loads.
uint64_t read_piece(const uint64_t* data) {
    uint64_t sum[8] = {};
    for (size_t i = 0; i < kPiece / 8; i += 8)
        for (size_t k = 0; k < 8; k++) sum[k] += data[i + k];
    return sum[0] + sum[1] + sum[2] + sum[3] + sum[4] + sum[5] + sum[6] + sum[7];
}

}  // namespace

double measure_read_gbps(int n_threads) {
    thread_pool pool;
    // Not every C library has aligned_alloc.
    uint8_t* data = (uint8_t*)::operator new(kBytes, kHugePage, std::nothrow);
    if (!data || !pool.start(n_threads)) {
        ::operator delete(data, kHugePage);
        return 0;
    }
    // Small pages would measure the page tables: a mapped file is read up to 40 % faster than small pages.
    os_use_large_pages(data, kBytes);
    const int n_pieces = (int)(kBytes / kPiece);
    std::atomic<uint64_t> keep{0};
    pool.for_each(n_pieces, [&](int, int i) { memset(data + (size_t)i * kPiece, i, kPiece); });
    double gbps[kPasses];
    for (double& pass : gbps) {
        const auto start = std::chrono::steady_clock::now();
        pool.for_each(n_pieces, [&](int, int i) { keep += read_piece((const uint64_t*)(data + (size_t)i * kPiece)); });
        pass = (double)kBytes / (double)ns_since(start);
    }
    ::operator delete(data, kHugePage);
    // The median is taken, because the speeds compared with it are not best moments either.
    std::nth_element(gbps, gbps + kPasses / 2, gbps + kPasses);
    return gbps[kPasses / 2];
}

}  // namespace duet
