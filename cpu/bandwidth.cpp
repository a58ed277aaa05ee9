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

double measure_read_gbps(int n_threads, const read_pattern* patterns, int n_patterns, std::span<const uint8_t> block) {
    thread_pool pool;
    aligned_memory memory;
    std::vector<double> gbps((size_t)n_patterns * kPasses);
    if (!pool.start(n_threads)) return 0;
    if (block.size() / (size_t)n_threads < kPiece) {
        const uint64_t n_free = os_describe().free_bytes;  // 0: not known
        const size_t n_bytes = n_free / 8 >= kLargeBytes ? kLargeBytes : kBytes;
        // It has large pages. Small ones would measure the page tables: a mapped file is read up to 40 % faster.
        if ((n_free && n_free < 2 * kBytes) || !memory.allocate(n_bytes)) return 0;
        block = {(const uint8_t*)memory.data, n_bytes};
    }
    // Each thread reads a part of its own. A piece of work takes some pages of each of the part's streams. Of a large
    // block pieces far apart are read, because the time is to stay the same.
    const size_t part = block.size() / (size_t)n_threads / kPage * kPage,
                 every = std::max<size_t>(block.size() / kLargeBytes, 1);
    std::atomic<uint64_t> keep{0};
    if (uint8_t* const own = (uint8_t*)memory.data)
        pool.for_each(n_threads, [&](int, int i) { memset(own + (size_t)i * part, i, part); });
    for (int i = 0; i < n_patterns * kPasses; i++) {  // the patterns take turns
        const read_pattern& how = patterns[i % n_patterns];
        const size_t n = (size_t)how.n_streams, apart = part / n / kPage * kPage,
                     step = std::min(apart, kPiece / n / kPage * kPage);
        const size_t n_steps = (apart / step + every - 1) / every;
        const auto start = std::chrono::steady_clock::now();
        pool.for_each(n_threads * (int)n_steps, [&](int, int p) {
            const size_t at = (size_t)p / n_steps * part + (size_t)p % n_steps * every * step;
            keep += read_streams(block.data() + at, apart, step, how);
        });
        gbps[(size_t)(i % n_patterns * kPasses + i / n_patterns)] =
            (double)(step * n * n_steps * (size_t)n_threads) / (double)ns_since(start);
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
