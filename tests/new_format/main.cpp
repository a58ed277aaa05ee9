// tests/new_format/main.cpp: runs the made-up formats of this folder on every executor that this machine has: their
// matmuls and embeddings must give the bits of quant/exact.h, and encoding must keep to max_nmse of their rows.
// Built and run by tests/new_format.sh, from a copy of the sources with three files changed.
#include "runtime/self_test_cases.h"
#include "cpu/choose.h"
#include "quant/formats.h"

#include <cstdio>
#include <cstring>

using namespace duet;

namespace duet {
#if defined(__x86_64__)
extern const tile_table kAmxEmulated, kAvxVnniEmulated;  // tests/amx_emulated.cpp, tests/vnni_emulated.cpp
#endif
}  // namespace duet

namespace {

int n_wrong = 0, n_run = 0;

void check(bool is_good, const std::string& what) {
    n_run++;
    if (is_good) return;
    n_wrong++;
    printf("wrong: %s\n", what.c_str());
}

bool is_made_up(int32_t type) { return type >= type_id::made_8 && type <= type_id::made_K; }

// Encoded and decoded again: the error over the values' squares.
double round_trip(int32_t type, int elems) {
    std::mt19937 rng(1);
    std::normal_distribution<float> normal;
    std::vector<float> x((size_t)elems * 64), y(x.size());
    for (float& v : x) v = normal(rng);
    std::vector<uint8_t> blocks(x.size() / (size_t)elems * (size_t)find_type(type)->bytes);
    find_type(type)->encode(x.data(), x.size() / (size_t)elems, nullptr, blocks.data());
    decode_row(type, blocks.data(), (int64_t)x.size(), y.data());
    double error = 0, squares = 0;
    for (size_t i = 0; i < x.size(); i++) {
        error += (double)(x[i] - y[i]) * (x[i] - y[i]);
        squares += (double)x[i] * x[i];
    }
    return error / squares;
}

// A table's matmuls, in the way that is chosen, against exact_dot.
template <class B>
void check_matmul(const cpu_kernels& k, int32_t type, const char* name) {
    constexpr int n_in = 768, n_rows = 21;
    std::mt19937 rng(2);
    self_test::graph_case blocks("");
    blocks.matrix(type, n_in, n_rows);
    const std::vector<uint8_t>& w = blocks.memory.back();
    for (int n_tok : {1, 2, 3, 5, 6, 17}) {
        const size_t n = (size_t)n_in * (size_t)n_tok;
        std::vector<float> x(n), d(n / 32), t(n / 32), y((size_t)(n_rows * n_tok));
        std::vector<int8_t> q(n);
        std::vector<int16_t> s16(n / 16);
        std::vector<uint8_t> scratch(matmul_scratch_bytes(n_in));
        std::normal_distribution<float> normal;
        for (float& v : x) v = normal(rng);
        k.quantize(x.data(), (int)n, q.data(), d.data(), t.data(), s16.data());
        matmul_args m{};
        m.w = w.data();
        m.row_bytes = w.size() / n_rows;
        m.n_in = n_in;
        m.n_rows = n_rows;
        m.a = {x.data(), q.data(), d.data(), t.data(), s16.data(), n_in, n_in, n_tok, nullptr, nullptr};
        m.y = y.data();
        m.y_stride = n_rows;
        m.scratch = scratch.data();
        m.way = ways_of_matmul(k, type, n_tok, false).way[0];
        run_matmul(k, type, m);
        bool same = true;
        for (int i = 0; i < n_tok; i++)
            for (int r = 0; r < n_rows; r++) {
                const size_t at = (size_t)i * n_in;
                const act_row a{nullptr, &q[at], &d[at / 32], &t[at / 32], &s16[at / 16]};
                const float want = exact_dot((const B*)(w.data() + (size_t)r * m.row_bytes), n_in, a);
                same = same && memcmp(&want, &y[(size_t)(i * n_rows + r)], 4) == 0;
            }
        check(same, std::string(k.name) + " " + name + " " + std::to_string(n_tok) + " tokens");
    }
}

}  // namespace

int main() {
    std::vector<cpu_kernels> tables;
    for (int i = 0; const cpu_kernels* k = cpu_kernels_at(i); i++) tables.push_back(*k);
#if defined(__x86_64__)
    if (const cpu_kernels* avx512 = find_cpu_kernels("avx512")) {
        tables.push_back(*avx512);
        tables.back().name = "amx (emulated)";
        (tile_table&)tables.back() = kAmxEmulated;
    }
    if (const cpu_kernels* avx2 = find_cpu_kernels("avx2")) {
        tables.push_back(*avx2);
        tables.back().name = "avxvnni (emulated)";
        (tile_table&)tables.back() = kAvxVnniEmulated;
    }
#endif
    std::string names;
    for (const cpu_kernels& k : tables) {
        names += std::string(k.name) + ", ";
#define QUANT_TYPE(id, NAME, gguf_id, elems, bytes, max_nmse)                                                          \
    if (is_made_up(gguf_id)) check_matmul<block_##id>(k, gguf_id, #NAME);
#include "quant/types.def"
    }
#define QUANT_TYPE(id, NAME, gguf_id, elems, bytes, max_nmse)                                                          \
    if (is_made_up(gguf_id)) check(round_trip(gguf_id, elems) < max_nmse, "round trip of " #NAME);
#include "quant/types.def"
    self_test::for_each_case([&](self_test::graph_case& c) {
        if (c.name.find("MADE_") == std::string::npos) return;
        for (int i = 0; const cpu_kernels* k = cpu_kernels_at(i); i++) {
            const std::string difference = self_test::compare_case(c, "cpu", k->name);
            check(difference.empty(), std::string(k->name) + " " + c.name + ": " + difference);
        }
        for (const char* device : {"emu32", "emu64"}) {
            const std::string difference = self_test::compare_case(c, device);
            check(difference.empty(), std::string(device) + " " + c.name + ": " + difference);
        }
    });
    printf("new format: %d checks of 3 formats on %semu32, emu64: %d wrong\n", n_run, names.c_str(), n_wrong);
    return n_wrong == 0 && n_run > 0 ? 0 : 1;
}
