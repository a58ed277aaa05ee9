// quant/quantize.h: converts rows of floats to blocks of a number format and back, for every format with code.
// Must not know: tensors, files, which tensor gets which format (tools/quantize.cpp has the recipes).
// Main path: runtime.h -> runtime/formats.cpp -> [quant/quantize.h] -> quant/quantize.cpp -> quant/blocks.h
#pragma once
#include "blocks.h"

#include <cstddef>

namespace duet {

// An encoder minimises the sum of importance[i] * (x[i] - y[i])^2 in each block (importance null: all weigh the same)
// and gives the same bytes on every machine. Any input is allowed: a NaN counts as 0, and a value beyond the reach of
// the format's scales becomes the largest in reach (F16: infinity, as IEEE converts). A block whose importances are
// negative, NaN or all zero is treated as if none were given. Blocks whose scale is below half of the least half float
// (about 3e-8) become zero, except in MXFP4, whose scales go down to 2^-128. F16 and BF16 keep NaN and infinity; F32
// keeps every bit. Memory of blocks needs no alignment. find_codec returns null when the type has no code.
struct codec {
    int32_t type_id;
    void (*encode)(const float* x, size_t n_blocks, const float* importance, void* dst);
    void (*decode)(const void* src, size_t n_blocks, float* y);
};
const codec* find_codec(int32_t type_id);

}  // namespace duet
