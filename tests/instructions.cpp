// tests/instructions.cpp: one matmul of a fixed size on AVX2. tests/instructions.sh counts its instructions. Arguments:
// TYPE_ID N_TOK.
#include "../cpu/choose.h"
#include "../runtime.h"

#include <cstdlib>
#include <vector>

// Only the instructions of this function count.
extern "C" [[gnu::noinline]] void counted(duet::matmul_fn f, const duet::matmul_args* args) { f(*args); }

int main(int argc, char** argv) {
    constexpr int n_in = 2048, n_rows = 64, kMost = 16;
    const int type = argc > 2 ? atoi(argv[1]) : 0, n_tok = argc > 2 ? atoi(argv[2]) : 0;
    const duet::cpu_kernels* k = duet::find_cpu_kernels("avx2");
    const duet_type_info* t = duet_type_by_id(type);
    if (!k || !t || n_tok < 1 || n_tok > kMost || !k->formats[type].run) return 2;
    const size_t row_bytes = (size_t)(n_in / t->elems_per_block * t->bytes_per_block);
    std::vector<uint8_t> w(row_bytes * n_rows, 0x21), scratch(duet::matmul_scratch_bytes(n_in));
    std::vector<float> x((size_t)n_in * kMost, 0.5f), d(n_in / 32 * kMost), sums(n_in / 32 * kMost),
        y((size_t)n_rows * kMost);
    std::vector<int8_t> q((size_t)n_in * kMost);
    std::vector<int16_t> s16(n_in / 16 * kMost);
    for (int i = 0; i < n_tok; i++)
        k->quantize(x.data(), n_in, &q[(size_t)i * n_in], &d[(size_t)i * n_in / 32], &sums[(size_t)i * n_in / 32],
                    &s16[(size_t)i * n_in / 16]);
    const duet::act_matrix a{x.data(), q.data(), d.data(), sums.data(), s16.data(),
                             n_in,     n_in,     n_tok,    nullptr,     nullptr};
    duet::matmul_args args{};
    args.w = w.data();
    args.row_bytes = row_bytes;
    args.n_in = n_in;
    args.n_rows = n_rows;
    args.a = a;
    args.y = y.data();
    args.y_stride = n_rows;
    args.scratch = scratch.data();
    args.way = duet::ways_of_matmul(*k, type, n_tok, false).way[0];
    counted(k->formats[type].run, &args);
    return 0;
}
