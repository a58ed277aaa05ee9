// quant/formats.h: the rows of quant/types.def as data: ids by name, sizes, and the conversion of rows by id. The parts
// below the C interface ask here; runtime/formats.cpp answers callers of the library.
// Must not know: tensors, files, runtime.h.
// Main path: models/arch.cpp -> [quant/formats.h] -> quant/types.def
#pragma once
#include <cstdint>

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

struct number_format {
    int32_t id;
    const char* name;      // "Q4_K"
    int32_t elems, bytes;  // of a block
    bool has_code;         // false: known by name and size only
};
// Returns null when there is no such type.
const number_format* find_type(int32_t id);
// Returns "?" when there is no such type.
const char* type_name(int32_t id);

// Converts n weights (whole blocks) to floats. The type must have code.
void decode_row(int32_t type, const void* src, int64_t n, float* dst);

}  // namespace duet
