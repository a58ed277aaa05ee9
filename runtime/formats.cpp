// runtime/formats.cpp: the number formats of runtime.h: duet_type_* and the conversion of rows. The table itself
// is quant/types.def.
// Must not know: how a format is searched for or laid out.
// Main path: runtime.h -> [runtime/formats.cpp] -> quant/quantize.h
#include "../runtime.h"
#include "../quant/quantize.h"

namespace {

constexpr duet_type_info kTypeRows[] = {
#define TENSOR_TYPE(id, NAME, gguf_id, elems, bytes)          {gguf_id, #NAME, elems, bytes, 0, 0},
#define FLOAT_TYPE(id, NAME, gguf_id, bytes)                  {gguf_id, #NAME, 1, bytes, 1, 1},
#define QUANT_TYPE(id, NAME, gguf_id, elems, bytes, max_nmse) {gguf_id, #NAME, elems, bytes, 1, 1},
#include "../quant/types.def"
};
constexpr int32_t kTypeRowCount = (int32_t)(sizeof kTypeRows / sizeof *kTypeRows);

// Names hold ASCII letters only; locale has no say.
char type_name_upper(char c) { return c >= 'a' && c <= 'z' ? (char)(c - 'a' + 'A') : c; }

// Arguments that both directions check. *n_blocks: how many the elements make; *c: what does it.
duet_status check_row(int32_t type_id, const void* src, int64_t n_elems, const void* dst, size_t* n_blocks,
                      const duet::codec** c) {
    const duet_type_info* type = duet_type_by_id(type_id);
    if (!type || n_elems < 0 || n_elems % type->elems_per_block != 0) return DUET_ERR_ARG;
    if (n_elems > 0 && (!src || !dst)) return DUET_ERR_ARG;
    *n_blocks = (size_t)(n_elems / type->elems_per_block);
    *c = duet::find_codec(type_id);
    return *c ? DUET_OK : DUET_ERR_UNSUPPORTED;
}

}  // namespace

int32_t duet_type_count(void) { return kTypeRowCount; }

const duet_type_info* duet_type_row(int32_t i_row) {
    return i_row >= 0 && i_row < kTypeRowCount ? &kTypeRows[i_row] : nullptr;
}

const duet_type_info* duet_type_by_id(int32_t id) {
    for (const duet_type_info& row : kTypeRows)
        if (row.id == id) return &row;
    return nullptr;
}

const duet_type_info* duet_type_by_name(const char* name) {
    if (!name) return nullptr;
    for (const duet_type_info& row : kTypeRows) {
        size_t i = 0;
        while (name[i] && type_name_upper(name[i]) == type_name_upper(row.name[i])) i++;
        if (!name[i] && !row.name[i]) return &row;
    }
    return nullptr;
}

duet_status duet_quantize_row(int32_t type_id, const float* src, int64_t n_elems, const float* importance, void* dst) {
    size_t n_blocks = 0;
    const duet::codec* codec = nullptr;
    if (const duet_status status = check_row(type_id, src, n_elems, dst, &n_blocks, &codec); status != DUET_OK)
        return status;
    codec->encode(src, n_blocks, importance, dst);
    return DUET_OK;
}

duet_status duet_dequantize_row(int32_t type_id, const void* src, int64_t n_elems, float* dst) {
    size_t n_blocks = 0;
    const duet::codec* codec = nullptr;
    if (const duet_status status = check_row(type_id, src, n_elems, dst, &n_blocks, &codec); status != DUET_OK)
        return status;
    codec->decode(src, n_blocks, dst);
    return DUET_OK;
}
