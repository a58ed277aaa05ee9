// gpu/weights.cpp: rearranges GGUF rows into the order of gpu/weights.h, on the host, one tile of 32 rows at a time.
// Everything follows from code() and scale() of quant/blocks.h, so a new format needs nothing here.
// Main path: gpu/launch.cpp -> [gpu/weights.cpp] -> quant/blocks.h
#include "weights.h"

#include <cstring>

namespace duet {
namespace {

template <class B>
int stored_code(const B& block, int i) {
    using C = gpu_codes<B>;
    const int v = block.code(i);
    if constexpr (C::kIsTable) {
        for (int k = 0; k < 16; k++)
            if (table_value(&block, k) == v) return k;
        return 0;
    }
    return (v + C::kBias) & 255;
}

// Writes the b-th block of 32 of a group: its codes into the planes' pieces of this row.
template <class B>
void put_codes(const B& block, int first, int b, int row, uint8_t* unit) {
    using C = gpu_codes<B>;
    auto put = [&](int plane_word, int bits, int at_bit, uint32_t value, int lane) {   // plane_word: word of the group, 4 to a piece
        uint8_t* byte = unit + (size_t)(plane_word / 4 * kRowTile + row) * 16 + (size_t)(plane_word % 4) * 4 + (size_t)lane;
        *byte = (uint8_t)(*byte | (value & ((1u << bits) - 1u)) << at_bit);
    };
    for (int i = 0; i < kBlock; i++) {
        const uint32_t code = (uint32_t)stored_code(block, first + i);
        const int j = i / 4;
        put(b * C::kLow + j % C::kLow, C::kLow, C::kLow * (j / C::kLow), code, i % 4);
        if constexpr (C::kHigh > 0)
            put(4 * C::kLow + b * C::kHigh + j % C::kHigh, C::kHigh, C::kHigh * (j / C::kHigh), code >> C::kLow, i % 4);
    }
}

template <class B>
void put_scales(const B& block, int first, int b, uint32_t* s) {
    using S = gpu_scales<B>;
    const block_scale k0 = block.scale(first / 16), k1 = block.scale(first / 16 + 1);
    const uint32_t d = float_to_half(k0.d);
    if constexpr (S::kPower) {
        const uint32_t bits = bits_of(k0.d), e = bits >= 0x00800000u ? (bits >> 23) + 1 : bits == 0x00200000u ? 0 : 1;
        s[0] |= e << 8 * b;
    } else if constexpr (S::kSmall && !S::kMin) {
        s[b / 2] |= d << 16 * (b % 2);
    } else if constexpr (S::kSmall) {
        s[b] = d | (uint32_t)float_to_half(-k0.m) << 16;
    } else {
        s[0] = d | (S::kMin ? (uint32_t)float_to_half(k0.m) << 16 : 0);
        if constexpr (S::kTwo) {
            auto byte = [](const block_scale& k) { return (uint32_t)(uint8_t)(S::kMin ? k.sub | k.min << 4 : k.sub); };
            s[1 + b / 2] |= (byte(k0) | byte(k1) << 8) << 16 * (b % 2);
        } else {
            s[1] |= (uint32_t)(uint8_t)k0.sub << 8 * b;
            if constexpr (S::kMin) s[2] |= (uint32_t)k0.min << 8 * b;
        }
    }
}

struct tile_source {
    const uint8_t* data;
    size_t         row_bytes;
    int            n_in, n_rows;   // rows of this tile
};

template <class B>
void arrange_quant(const tile_source& t, uint8_t* out) {
    const int n_groups = (t.n_in + kGroup - 1) / kGroup;
    memset(out, 0, (size_t)n_groups * gpu_unit<B>::kBytes);
    for (int row = 0; row < t.n_rows; row++) {
        const B* blocks = (const B*)(t.data + (size_t)row * t.row_bytes);
        for (int i = 0; i < t.n_in; i += kBlock) {
            uint8_t* unit = out + (size_t)(i / kGroup) * gpu_unit<B>::kBytes;
            const int b = i % kGroup / kBlock;
            put_codes(blocks[i / B::kElems], i % B::kElems, b, row, unit);
            uint32_t s[gpu_scales<B>::kWords];
            uint32_t* stored = (uint32_t*)(unit + gpu_unit<B>::kScalesAt);
            for (int k = 0; k < gpu_scales<B>::kWords; k++) s[k] = stored[k * kRowTile + row];
            put_scales(blocks[i / B::kElems], i % B::kElems, b, s);
            for (int k = 0; k < gpu_scales<B>::kWords; k++) stored[k * kRowTile + row] = s[k];
        }
    }
}

template <class F>
void arrange_float(const tile_source& t, uint8_t* out) {
    using U = gpu_float_unit<F>;
    const int n_groups = (t.n_in + kGroup - 1) / kGroup;
    memset(out, 0, (size_t)n_groups * U::kBytes);
    for (int row = 0; row < t.n_rows; row++)
        for (int i = 0; i < t.n_in; i++) {
            const int piece = i % kGroup / U::kPerPiece;
            uint8_t* at = out + (size_t)(i / kGroup) * U::kBytes + (size_t)(piece * kRowTile + row) * 16 + (size_t)(i % U::kPerPiece) * sizeof(F);
            memcpy(at, t.data + (size_t)row * t.row_bytes + (size_t)i * sizeof(F), sizeof(F));
        }
}

}  // namespace

size_t gpu_weight_bytes(int32_t type, int64_t n_in, int64_t n_out) {
    const size_t n_units = (size_t)((n_in + kGroup - 1) / kGroup) * (size_t)((n_out + kRowTile - 1) / kRowTile);
    switch (type) {
#define FLOAT_TYPE(id, NAME, gguf_id, bytes) case gguf_id: return n_units * gpu_float_unit<float_##id>::kBytes;
#define QUANT_TYPE(id, NAME, gguf_id, elems, bytes, max_nmse) case gguf_id: return n_units * gpu_unit<block_##id>::kBytes;
#include "../quant/types.def"
        default: return 0;
    }
}

void gpu_arrange_tile(int32_t type, const uint8_t* data, size_t row_bytes, int64_t n_in, int64_t n_out, int64_t tile, uint8_t* out) {
    const int64_t first = tile * kRowTile, n_rows = n_out - first < kRowTile ? n_out - first : kRowTile;
    const tile_source t{data + (size_t)first * row_bytes, row_bytes, (int)n_in, (int)n_rows};
    switch (type) {
#define FLOAT_TYPE(id, NAME, gguf_id, bytes) case gguf_id: return arrange_float<float_##id>(t, out);
#define QUANT_TYPE(id, NAME, gguf_id, elems, bytes, max_nmse) case gguf_id: return arrange_quant<block_##id>(t, out);
#include "../quant/types.def"
        default: return;
    }
}

}  // namespace duet
