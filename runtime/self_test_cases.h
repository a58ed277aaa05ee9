// runtime/self_test_cases.h: small graphs, one for each op and format, that run on a device and on the scalar CPU
// executor: the bits must be equal. It is test support that the library carries, because a user checks his own device
// with it (duet_self_test).
// Shared by runtime/self_test.cpp, tests/test_gpu.cpp and tests/test_drivers.cpp (emulator), tests/gpu_trace.cpp (AMD
// machine code).
// Must not know: models, sessions.
#pragma once
#include "../models/executor.h"

#include <deque>
#include <functional>
#include <random>
#include <string>
#include <vector>

namespace duet::self_test {

constexpr int kVocab = 97;

// A graph in the making: the inputs are rows of a random f32 table, the result is what logits() names.
struct graph_case {
    std::string name;
    model_graph g;
    std::deque<std::vector<uint8_t>> memory;
    std::mt19937 rng{29};
    int32_t cache_type = DUET_CACHE_F16;
    bool fast = false;     // in mode fast, which has to come near the exact results only
    bool decodes = false;  // a long prompt, then single tokens, which a GPU plays from one recording

    explicit graph_case(std::string n) : name(std::move(n)) { g.n_vocab = kVocab; }

    view buffer(int32_t width, bool wanted = false);
    weight_id matrix(int32_t type, int64_t n_in, int64_t n_out);
    weight_id floats(int64_t n_in, int64_t n_out = 1);
    op& add(op_kind kind, view in, view out, view in2 = {});
    op& norm(view in, view out, float eps, weight_id w = -1);
    op& rope(view heads, double magnitude = 1.0);  // of 16 pairs, by the graph's one table
    view input(int32_t width);
    weight_id matrices(int32_t type, int64_t n_in, int64_t n_out, int64_t n_mats);
    graph_case& logits(view y);
};

// n_heads heads of a view, the first at column `first`.
view heads_of(view v, int32_t first, int32_t n_heads, int32_t head_dim);

// All cases in turn.
void for_each_case(const std::function<void(graph_case&)>& run);

// Runs the batches on one executor; *out: the wanted rows of all of them.
duet_status run_case(const graph_case& c, const executor& e, const char* id, std::vector<float>* out, error_text& err);

// "" when the bits of the device (of "cpu" with the kernels of isa) are the scalar CPU's, else what differs. Of mode
// fast the difference has a bound: 2^-8 of the results, both as root mean squares. One result in the wrong place is
// above it.
std::string compare_case(const graph_case& c, const char* device, const char* isa = "auto");

}  // namespace duet::self_test
