// quant/formats.cpp: the table that quant/formats.h describes.
// Main path: quant/formats.h -> [quant/formats.cpp] -> quant/quantize.h
#include "formats.h"
#include "quantize.h"

namespace duet {

static constexpr number_format kNumberFormats[] = {
#define FLOAT_TYPE(id, NAME, gguf_id, bytes)                  {gguf_id, #NAME, 1, bytes, true},
#define QUANT_TYPE(id, NAME, gguf_id, elems, bytes, max_nmse) {gguf_id, #NAME, elems, bytes, true},
#define TENSOR_TYPE(id, NAME, gguf_id, elems, bytes)          {gguf_id, #NAME, elems, bytes, false},
#include "types.def"
};

const number_format* find_type(int32_t id) {
    for (const number_format& row : kNumberFormats)
        if (row.id == id) return &row;
    return nullptr;
}

const char* type_name(int32_t id) {
    const number_format* row = find_type(id);
    return row ? row->name : "?";
}

void decode_row(int32_t type, const void* src, int64_t n, float* dst) {
    const number_format* row = find_type(type);
    const codec* c = find_codec(type);
    if (row && c) c->decode(src, (size_t)(n / row->elems), dst);
}

}  // namespace duet
