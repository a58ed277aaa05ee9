// cpu/executor.h: names the CPU executor, and the measure of memory speed, for those who link to them. The executor
// computes on the mapped weights without copying them. Main path: runtime/session.cpp -> [cpu/executor.h] ->
// cpu/ops.cpp
#pragma once
#include "../models/executor.h"

#include <span>

namespace duet {

extern const executor kCpuExecutor;  // cpu/ops.cpp

// How each thread reads memory: by so many streams, which lie far apart, and with fetches so many bytes ahead (0:
// none).
struct read_pattern {
    int n_streams, ahead;
};
// Returns the GB/s of the fastest of the patterns, each measured by its median, or 0 when there is not enough memory
// or too few threads (cpu/bandwidth.cpp). The block is read where it lies; one of less than 1 MB a thread stands for
// memory of the function's own.
double measure_read_gbps(int n_threads, const read_pattern* patterns, int n_patterns, std::span<const uint8_t> block);

}  // namespace duet
