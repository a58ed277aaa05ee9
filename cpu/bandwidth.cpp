// cpu/bandwidth.cpp: measures the read bandwidth of this machine's memory. Generation is compared with this limit.
// Must not know: families, ops.
// Main path: runtime/bandwidth.cpp -> [cpu/bandwidth.cpp] -> cpu/context.h
#include "context.h"
#include "executor.h"

namespace duet {
namespace {

// Bytes of the block where memory is scarce: larger than the last-level cache of most machines. Elsewhere it is larger
// than the 480 MB that some servers have: there the smaller one read a seventh faster than memory does.
constexpr size_t kBytes = 192u << 20, kLargeBytes = 640u << 20;
constexpr size_t kVisit = 256;  // bytes of a stream that are read in turn with the others
constexpr size_t kPage = 4096, kPiece = 1u << 20;
constexpr int kPasses = 3;

// Reads n bytes of each stream; the streams lie `apart` bytes apart. The result keeps the compiler from dropping the
// loads.
uint64_t read_streams(const uint8_t* at, size_t apart, size_t n, const read_pattern& p) {
    uint64_t sum[8] = {};
    for (size_t i = 0; i < n; i += kVisit)
        for (int s = 0; s < p.n_streams; s++) {
            const uint8_t* from = at + (size_t)s * apart + i;
            for (size_t k = 0; k < kVisit && p.ahead > 0; k += 64) __builtin_prefetch(from + (size_t)p.ahead + k);
            for (size_t k = 0; k < kVisit / 8; k += 8)
                for (size_t j = 0; j < 8; j++) sum[j] += ((const uint64_t*)from)[k + j];
        }
    return sum[0] + sum[1] + sum[2] + sum[3] + sum[4] + sum[5] + sum[6] + sum[7];
}

}  // namespace

double measure_read_gbps(int n_threads, const read_pattern* patterns, int n_patterns) {
    const uint64_t n_free = os_describe().free_bytes;  // 0: not known
    if (n_free && n_free < 2 * kBytes) return 0;
    const size_t n_bytes = n_free / 8 >= kLargeBytes ? kLargeBytes : kBytes;
    thread_pool pool;
    std::vector<double> gbps((size_t)n_patterns * kPasses);
    // It has large pages. Small ones would measure the page tables: a mapped file is read up to 40 % faster.
    aligned_memory memory;
    if (!memory.allocate(n_bytes) || !pool.start(n_threads)) return 0;
    uint8_t* const data = (uint8_t*)memory.data;
    // Each thread reads a part of its own. A piece of work takes some pages of each of the part's streams.
    const size_t part = n_bytes / (size_t)n_threads / kPage * kPage;
    std::atomic<uint64_t> keep{0};
    pool.for_each(n_threads, [&](int, int i) { memset(data + (size_t)i * part, i, part); });
    for (int i = 0; i < n_patterns * kPasses; i++) {  // the patterns take turns
        const read_pattern& how = patterns[i % n_patterns];
        const size_t n = (size_t)how.n_streams, apart = part / n / kPage * kPage,
                     step = std::min(apart, kPiece / n / kPage * kPage);
        const int n_steps = (int)(apart / step);
        const auto start = std::chrono::steady_clock::now();
        pool.for_each(n_threads * n_steps, [&](int, int p) {
            keep += read_streams(data + (size_t)(p / n_steps) * part + (size_t)(p % n_steps) * step, apart, step, how);
        });
        gbps[(size_t)(i % n_patterns * kPasses + i / n_patterns)] =
            (double)(step * n * (size_t)(n_threads * n_steps)) / (double)ns_since(start);
    }
    // Each pattern's median is taken, because the speeds compared with it are not best moments either.
    double best = 0;
    for (auto at = gbps.begin(); at != gbps.end(); at += kPasses) {
        std::nth_element(at, at + kPasses / 2, at + kPasses);
        best = std::max(best, at[kPasses / 2]);
    }
    return best;
}

}  // namespace duet
