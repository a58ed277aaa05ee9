// runtime/formats.cpp: the table of number formats as runtime.h shows it, and the conversion of rows.
// Owns: the rows of duet_type_info, made from quant/types.def. Must not know: how a format is laid out, or how its
// scales are searched for.
// Main path: runtime.cpp -> [runtime/formats.cpp] -> quant/formats.h
#include "calls.h"
#include "../quant/formats.h"

#include <algorithm>

namespace duet {
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

// Arguments that both directions check. *out: the row of the type, with code.
duet_status check_row(const char* call, int32_t id, const void* src, int64_t n_elems, const void* dst,
                      const number_format** out, error_text& err) {
    const number_format* type = find_type(id);
    *out = type;
    if (!type || type->elems == 0) return fail(err, DUET_ERR_ARG, "%s: there is no number format %d", call, id);
    if (n_elems < 0 || n_elems % type->elems != 0)
        return fail(err, DUET_ERR_ARG, "%s: want a multiple of %d elements for %s, got %lld", call, type->elems,
                    type->name, (long long)n_elems);
    if (n_elems > 0 && (!src || !dst)) return fail(err, DUET_ERR_ARG, "%s: %s is NULL", call, src ? "dst" : "src");
    if (!type->decode) return fail(err, DUET_ERR_UNSUPPORTED, "%s: this build has no code for %s", call, type->name);
    return DUET_OK;
}

}  // namespace

int32_t count_types() { return kTypeRowCount; }

const duet_type_info* type_row(int32_t i_row) {
    return i_row >= 0 && i_row < kTypeRowCount ? &kTypeRows[i_row] : nullptr;
}

const duet_type_info* type_by_id(int32_t id) {
    for (const duet_type_info& row : kTypeRows)
        if (row.id == id) return &row;
    return nullptr;
}

const duet_type_info* type_by_name(const char* name) {
    if (!name) return nullptr;
    const std::string_view wanted = name;
    for (const duet_type_info& row : kTypeRows)
        if (std::ranges::equal(wanted, std::string_view(row.name), {}, type_name_upper, type_name_upper)) return &row;
    return nullptr;
}

duet_status quantize_row(int32_t type_id, const float* src, int64_t n_elems, const float* importance, void* dst,
                         error_text& err) {
    const number_format* type = nullptr;
    DUET_TRY(check_row("duet_quantize_row", type_id, src, n_elems, dst, &type, err));
    type->encode(src, (size_t)(n_elems / type->elems), importance, dst);
    return DUET_OK;
}

duet_status dequantize_row(int32_t type_id, const void* src, int64_t n_elems, float* dst, error_text& err) {
    const number_format* type = nullptr;
    DUET_TRY(check_row("duet_dequantize_row", type_id, src, n_elems, dst, &type, err));
    type->decode(src, (size_t)(n_elems / type->elems), dst);
    return DUET_OK;
}

}  // namespace duet
