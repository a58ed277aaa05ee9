// cpu/choose.h: chooses the way in which a matmul is computed. All thresholds stand here. Every way but `rounded` gives
// the same bits; only the speed differs.
// Must not know: ops, threads.
// Main path: cpu/ops.cpp -> [cpu/choose.h] -> cpu/kernels.h
#pragma once
#include "kernels.h"

namespace duet {

// How cpu/simd/row_codes.inc reads the codes of four blocks for the way `rows`: the contents of the first and of the
// second vector.
enum class row_order : uint8_t {
    none,       // the format has no code in row_codes.inc and is read by columns of four rows
    by_halves,  // the first halves of blocks 0..3 | their second halves
    natural,    // blocks 0, 1 | blocks 2, 3
    crossed,    // blocks 0, 2 | blocks 1, 3
};

// Returns the most tokens for which the way `rows` is faster than tiles and panels. Kernels are instantiated for 1 up
// to this number of tokens.
constexpr int row_tokens(row_order order, bool has_min) {
    if (order == row_order::by_halves) return 4;
    return order == row_order::natural && !has_min ? 3 : 2;
}

constexpr int kAmxLeast = 6;    // fewest tokens for which AMX is faster than the vector kernels
constexpr int kFastLeast = 12;  // fewest tokens for which mode fast rounds activations (docs/numerics.md)
constexpr int kFloatFew = 4;    // float weights: most tokens for which memory is the limit
constexpr int kFloatSome = 12;  // float weights: most tokens for which tiles do not pay, at 16 lanes

// can_prepare: the activations may first be packed into panels or rounded. The matmuls of experts cannot do this,
// because each expert has tokens of its own.
matmul_way choose_matmul(const cpu_kernels& kernels, int32_t type, int n_tok, bool can_prepare);

// Returns the largest number of tokens, up to max_tok, for which panels are chosen; 0: for none.
int most_panel_tokens(const cpu_kernels& kernels, int32_t type, int max_tok);

}  // namespace duet
