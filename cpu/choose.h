// cpu/choose.h: which way a matmul is computed: all thresholds, in one place. The bits are the same in every way but
// `rounded`; only the speed differs.
// Must not know: ops, threads. Main path: cpu/ops.cpp -> [cpu/choose.h] -> cpu/kernels.h
#pragma once
#include "kernels.h"

namespace duet {

// How cpu/simd/row_codes.inc reads a format's codes for the way `rows`.
enum class row_order : uint8_t {
    none,       // by columns of four rows: the format has no code in row_codes.inc
    by_halves,  // first halves of blocks 0..3 | second halves
    natural,    // blocks 0, 1 | 2, 3
    crossed,    // blocks 0, 2 | 1, 3
};

// Up to how many tokens the way `rows` is faster than tiles and panels. A kernel instantiates as many.
constexpr int row_tokens(row_order order, bool has_min) {
    if (order == row_order::by_halves) return 4;
    return order == row_order::natural && !has_min ? 3 : 2;
}

constexpr int kAmxLeast = 6;    // tokens from which AMX is faster than the vector kernels
constexpr int kFastLeast = 12;  // tokens from which mode fast rounds activations (docs/numerics.md)
constexpr int kFloatFew = 4;    // float weights: up to so many tokens memory is the limit
constexpr int kFloatSome = 12;  // float weights: up to so many tokens tiles do not pay, at 16 lanes

// can_prepare: the activations may be packed into panels or rounded first. Experts' matmuls cannot: each expert has
// tokens of its own.
matmul_way choose_matmul(const cpu_kernels& kernels, int32_t type, int n_tok, bool can_prepare);

// The largest number of tokens up to max_tok that are computed by panels; 0: none are.
int most_panel_tokens(const cpu_kernels& kernels, int32_t type, int max_tok);

}  // namespace duet
