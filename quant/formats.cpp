// quant/formats.cpp: looks rows up in the table of number formats, which stands in quant/quantize.cpp.
// Main path: quant/formats.h -> [quant/formats.cpp] -> quant/quantize.cpp
#include "formats.h"

namespace duet {

const number_format* find_type(int32_t id) {
    for (const number_format& row : number_formats())
        if (row.id == id) return &row;
    return nullptr;
}

const char* type_name(int32_t id) {
    const number_format* row = find_type(id);
    return row ? row->name : "?";
}

void decode_row(int32_t type, const void* src, int64_t n, float* dst) {
    const number_format* row = find_type(type);
    if (row && row->decode) row->decode(src, (size_t)(n / row->elems), dst);
}

}  // namespace duet
