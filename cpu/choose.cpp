// cpu/choose.cpp: the choice that cpu/choose.h describes.
// Main path: cpu/ops.cpp -> [cpu/choose.cpp] -> cpu/kernels.h
#include "choose.h"

namespace duet {

matmul_way choose_matmul(const cpu_kernels& kernels, int32_t type, int n_tok, bool can_prepare) {
    const format_kernel& f = kernels.formats[type];
    if (!f.is_vector) return matmul_way::scalar;
    if (f.is_float) {
        const bool is_rounded = kernels.matmul_rounded && (kernels.rounded_types >> type & 1) != 0;
        if (is_rounded && can_prepare && n_tok >= kFastLeast) return matmul_way::rounded;
        if (n_tok <= f.few_tokens) return matmul_way::float_few;
        return n_tok <= f.some_tokens ? matmul_way::float_some : matmul_way::float_many;
    }
    if (n_tok <= f.few_tokens) return matmul_way::rows;
    if (kernels.matmul_amx && n_tok >= kAmxLeast) return matmul_way::amx;
    return f.takes_panels && can_prepare && n_tok >= kPanelLeast ? matmul_way::panels : matmul_way::tiles;
}

int most_panel_tokens(const cpu_kernels& kernels, int32_t type, int max_tok) {
    const int most = kernels.matmul_amx && max_tok >= kAmxLeast ? kAmxLeast - 1 : max_tok;
    return choose_matmul(kernels, type, most, true) == matmul_way::panels ? most : 0;
}

}  // namespace duet
