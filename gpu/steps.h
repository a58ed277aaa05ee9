// gpu/steps.h: which ops of a graph run as one launch when a batch is small: what decoding costs is launches and reads of weights.
// A step changes no bit: it does the same arithmetic, and results that nobody reads later are not stored. Owns: the patterns.
// Must not know: drivers, kernels' arguments.
// Main path: gpu/launch.cpp -> [gpu/steps.h] -> models/ops.h
#pragma once
#include "../models/ops.h"

namespace duet {

enum class gpu_step_kind : uint8_t { single, matvec, attention };

// Ops first .. first + n_ops - 1 of the graph. Indices of ops, -1: none.
struct gpu_step {
    gpu_step_kind kind = gpu_step_kind::single;
    int32_t first = 0, n_ops = 1;
    // matvec: up to three matmuls of one input, or gate (and up) with their activation; then the norm of the finished rows
    int32_t n_matmuls = 1, activate = -1, norm = -1;
    bool    halves = false;            // gate and up are the halves of one matrix
    int32_t second_type = -1;          // format of the later matmuls when it is another than the first's
    // attention: head norms and rope of queries and keys, append, attention
    int32_t q_norm = -1, k_norm = -1, q_rope = -1, k_rope = -1, append = -1, attention = -1;
};

std::vector<gpu_step> plan_gpu_steps(const model_graph& g);

bool same_columns(const view& a, const view& b);

}  // namespace duet
