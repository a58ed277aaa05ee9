// quant/formats.h: the rows of quant/types.def as data: ids by name, sizes, and the conversion of rows. The parts below
// the C interface ask here; runtime/formats.cpp answers callers of the library.
// Must not know: tensors, files, which tensor gets which format (tools/quantize.cpp has the recipes), runtime.h.
// Main path: models/arch.cpp -> [quant/formats.h] -> quant/quantize.cpp -> quant/types.def
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

namespace duet {

// The ids that files contain: type_id::q4_K is 12.
namespace type_id {
#define FLOAT_TYPE(id, NAME, gguf_id, bytes)                  constexpr int32_t id = gguf_id;
#define QUANT_TYPE(id, NAME, gguf_id, elems, bytes, max_nmse) constexpr int32_t id = gguf_id;
#define TENSOR_TYPE(id, NAME, gguf_id, elems, bytes)          constexpr int32_t id = gguf_id;
#include "types.def"
}  // namespace type_id

// Matmuls by weights of a quantized type take quantized activations; matmuls by plain floats take f32.
constexpr bool is_quantized(int32_t type) {
#define FLOAT_TYPE(id, NAME, gguf_id, bytes)                                                                           \
    if (type == gguf_id) return false;
#include "types.def"
    return true;
}

// An encoder minimises the sum of importance[i] * (x[i] - y[i])^2 in each block (importance null: all weigh the same)
// and gives the same bytes on every machine. Any input is allowed: a NaN counts as 0, and a value beyond the reach of
// the format's scales becomes the largest in reach (F16: infinity, as IEEE converts). A block whose importances are
// negative, NaN or all zero is treated as if none were given. Blocks whose scale is below half of the least half float
// (about 3e-8) become zero, except in MXFP4, whose scales go down to 2^-128. F16 and BF16 keep NaN and infinity; F32
// keeps every bit. Memory of blocks needs no alignment.
struct number_format {
    int32_t id;
    const char* name;      // "Q4_K"
    int32_t elems, bytes;  // of a block; 0: the type was removed from the file format
    // Both are null where the type is known by name and size only.
    void (*encode)(const float* x, size_t n_blocks, const float* importance, void* dst) = nullptr;
    void (*decode)(const void* src, size_t n_blocks, float* y) = nullptr;
};
// Returns all rows, those of removed types too.
std::span<const number_format> number_formats();
// Returns null when there is no such type.
const number_format* find_type(int32_t id);
// Returns "?" when there is no such type.
const char* type_name(int32_t id);

// Converts n weights (whole blocks) to floats. The type must have code.
void decode_row(int32_t type, const void* src, int64_t n, float* dst);

}  // namespace duet
