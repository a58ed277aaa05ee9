// gpu/weights.h: the order in which weights lie in a GPU's memory, and the functions with which kernels read them.
// The codes of a group are 16-byte pieces, the scales lie apart, and each lane reads one row.
// Owns: the order and how it is read. Must not know: ops, drivers.
// Main path: gpu/store.cpp -> gpu/arrange.cuh -> [gpu/weights.h] -> gpu/matvec.cuh, gpu/matmul.cuh
//
// A matrix (n_out, n_in) is cut into bricks of kRowTile = 32 rows x 128 weights (one group of quant/exact.h):
//
//     brick (row tile, group) at ((row tile) * n_groups + group) * brick_bytes
//     brick: pieces [bits per code][32 rows][16 bytes], then scale words [n_scale_words][32 rows][4 bytes]
//
// The 32 lanes of a segment, one row each, load 512 contiguous bytes at a time and need the same activations, and a
// tile of a matrix multiplication is contiguous too. Zeros fill the rows up to a multiple of 32.
//
// Codes are unsigned and are stored in planes of 1, 2, 4 or 8 bits. The 32 codes of a block are eight words of four. In
// a plane of L bits, word j is part of the block's stored word j % L, from bit L * (j / L) of each byte, so that one
// shift and one mask give four codes in four bytes.
#pragma once
#include "simt.h"
#include "../quant/formats.h"

namespace duet {

constexpr int kRowTile = 32, kBlocksPerGroup = kGroup / kBlock;

// What is special about a format's codes. A format that is not named below is stored as plain int8.
template <class B>
struct gpu_codes {
    static constexpr int kLow = 8, kHigh = 0, kBias = 0;  // weight = (low | high << kLow) - kBias
    static constexpr bool kIsTable = false;               // weight = value(low)
};
template <class B, int Low, int High, bool IsTable = false>
struct gpu_planes {
    static constexpr int kLow = Low, kHigh = High, kBias = IsTable ? 0 : B::kBias;
    static constexpr bool kIsTable = IsTable;
};
// Formats whose codes are numbers of a table.
template <class B, int Low, int High, int (*Table)(int)>
struct gpu_table : gpu_planes<B, Low, High, true> {
    DUET_HD static constexpr int value(int code) { return Table(code); }
};
template <> struct gpu_codes<block_q4_0> : gpu_planes<block_q4_0, 4, 0> {};
template <> struct gpu_codes<block_q4_1> : gpu_planes<block_q4_1, 4, 0> {};
template <> struct gpu_codes<block_q5_0> : gpu_planes<block_q5_0, 4, 1> {};
template <> struct gpu_codes<block_q5_1> : gpu_planes<block_q5_1, 4, 1> {};
template <> struct gpu_codes<block_q2_K> : gpu_planes<block_q2_K, 2, 0> {};
template <> struct gpu_codes<block_q3_K> : gpu_planes<block_q3_K, 2, 1> {};
template <> struct gpu_codes<block_q4_K> : gpu_planes<block_q4_K, 4, 0> {};
template <> struct gpu_codes<block_q5_K> : gpu_planes<block_q5_K, 4, 1> {};
template <> struct gpu_codes<block_q6_K> : gpu_planes<block_q6_K, 4, 2> {};
template <> struct gpu_codes<block_iq4_nl> : gpu_table<block_iq4_nl, 4, 0, iq4_value> {};
template <> struct gpu_codes<block_iq4_xs> : gpu_table<block_iq4_xs, 4, 0, iq4_value> {};
template <> struct gpu_codes<block_mxfp4> : gpu_table<block_mxfp4, 4, 0, fp4_value> {};
template <> struct gpu_codes<block_nvfp4> : gpu_table<block_nvfp4, 4, 0, fp4_value> {};
template <> struct gpu_codes<block_tq1_0> : gpu_planes<block_tq1_0, 2, 0> {};
template <> struct gpu_codes<block_tq2_0> : gpu_planes<block_tq2_0, 2, 0> {};
// Formats with kLevels: the positive values, then the negative ones, by a table. IQ formats store the values of their
// points and not the points' numbers, so that no grid lies in memory.
template <class B, int Low, int High>
struct gpu_levels : gpu_planes<B, Low, High, true> {
    struct list {
        int n = (int)sizeof B::kLevels, size[8] = {};
    };
    static constexpr list make_list() {
        list l;
        for (int i = 0; i < l.n; i++) l.size[i] = B::kLevels[i];
        return l;
    }
    DUET_HD static constexpr int value(int code) {
        constexpr list level = make_list();
        constexpr int half = 1 << (Low + High - 1);
        return code % half >= level.n ? 0 : code < half ? level.size[code % half] : -level.size[code % half];
    }
};
template <> struct gpu_codes<block_q1_0> : gpu_levels<block_q1_0, 1, 0> {};
template <> struct gpu_codes<block_iq2_xxs> : gpu_levels<block_iq2_xxs, 2, 1> {};
template <> struct gpu_codes<block_iq2_xs> : gpu_levels<block_iq2_xs, 2, 1> {};
template <> struct gpu_codes<block_iq2_s> : gpu_levels<block_iq2_s, 2, 1> {};
template <> struct gpu_codes<block_iq3_xxs> : gpu_levels<block_iq3_xxs, 4, 0> {};
template <> struct gpu_codes<block_iq3_s> : gpu_levels<block_iq3_s, 4, 0> {};
template <> struct gpu_codes<block_iq1_s> : gpu_levels<block_iq1_s, 2, 1> {};
template <> struct gpu_codes<block_iq1_m> : gpu_levels<block_iq1_m, 2, 1> {};

template <class B>
DUET_HD constexpr word4 table_words() {
    word4 t{};
    for (int i = 0; i < 16; i++) t.w[i / 4] |= (uint32_t)(uint8_t)gpu_codes<B>::value(i) << (i % 4 * 8);
    return t;
}

// How the scales of a group are stored.
//   blocks of 32 weights: d of 4 blocks as f16: 2 words; as powers of two (E8M0): 1 word; with minimums d | m: 4 words
//   larger blocks: d | dmin in one word, then sub-scales of a byte each in 1 or 2 words, then minimums in 1 word; where
//   a block has two minimums, they take the high halves of the bytes of the sub-scales
//   without sub-scales: d alone in 1 word; NVFP4: its 8 scales unchanged in 2 words
template <class B>
struct gpu_scales {
    static constexpr bool kSmall = B::kElems == 32, kMin = B::kHasMin, kTwo = B::kSubScales == 2;
    static constexpr bool kPower = kPowerScale<B>;  // The scale is one byte.
    static constexpr int kOfSmall = kPower ? 1 : kMin ? 4 : 2, kOfLarge = kPlain<B> ? 1 : kTwo || kMin ? 3 : 2;
    static constexpr int kWords = kSmall ? kOfSmall : kWideSubs<B> ? 2 : kOfLarge;
};

template <class W>
constexpr bool kIsBlock = requires { W::kHasMin; };  // else a float type

template <class B>
struct gpu_brick {
    static constexpr int kBits = gpu_codes<B>::kLow + gpu_codes<B>::kHigh;
    static constexpr size_t kScalesAt = (size_t)kBits * kRowTile * 16;
    static constexpr size_t kBytes = kScalesAt + (size_t)gpu_scales<B>::kWords * kRowTile * 4;
};
template <class F>
    requires(!kIsBlock<F>)
struct gpu_brick<F> {
    static constexpr int kPerPiece = 16 / (int)sizeof(F), kPieces = kGroup / kPerPiece;
    static constexpr size_t kBytes = (size_t)kPieces * kRowTile * 16;
};

// The scales of one block of 32, ready for use. Where 32 weights share one sub-scale, d = d * sub and m = -(m * min),
// both rounded as in exact.h; others use sub and min. With wide sub-scales, d and m are the scales of both halves.
struct ready_scale {
    float d, m;
    int sub[2], min[2];
};

template <class B>
DUET_DEVICE ready_scale read_scale(const uint32_t (&s)[gpu_scales<B>::kWords], int block) {
    using S = gpu_scales<B>;
    ready_scale r{0.0f, 0.0f, {1, 1}, {0, 0}};
    if constexpr (S::kPower) {
        r.d = e8m0_half_to_float((uint8_t)(s[0] >> 8 * block));
    } else if constexpr (S::kSmall && !S::kMin) {
        r.d = quick_half_to_float((uint16_t)(s[block / 2] >> 16 * (block % 2)));
    } else if constexpr (S::kSmall) {
        r.d = quick_half_to_float((uint16_t)s[block]);
        r.m = quick_half_to_float((uint16_t)(s[block] >> 16));  // value = d * code + m
    } else if constexpr (kWideSubs<B>) {
        const uint32_t pair = s[block / 2] >> 16 * (block % 2);
        r.d = kFraction<B> * (float)ue4m3_units((uint8_t)pair);
        r.m = kFraction<B> * (float)ue4m3_units((uint8_t)(pair >> 8));
    } else {
        const float d = quick_half_to_float((uint16_t)s[0]) * kFraction<B>;
        if constexpr (kPlain<B>) {
            r.d = d;
        } else if constexpr (S::kTwo) {
            const uint32_t pair = s[1 + block / 2] >> 16 * (block % 2);
            r.d = d;
            for (int k = 0; k < 2; k++) {
                const uint32_t b = pair >> 8 * k & 255;
                r.sub[k] = S::kMin ? (int)(b & 15) : (int)(int8_t)b;
                if (S::kMin) r.min[k] = (int)(b >> 4);
            }
            if (S::kMin) r.m = quick_half_to_float((uint16_t)(s[0] >> 16));
        } else {
            r.d = d * (float)(int8_t)(s[1] >> 8 * block);
            if constexpr (S::kMin)
                r.m = -(quick_half_to_float((uint16_t)(s[0] >> 16)) * (float)(s[2] >> 8 * block & 255));
        }
    }
    return r;
}

// The stored words of one block of 32: the low plane, then the high one.
template <class B>
struct block_words {
    uint32_t w[gpu_brick<B>::kBits];
};

// Returns word j (weights 4j .. 4j + 3) of a block, out of the stored words that have its codes, as signed weights (the
// bias is subtracted, or the table is looked up), or with `is_biased` its codes.
template <class B>
DUET_DEVICE uint32_t stored_codes(uint32_t low, uint32_t high, int j, bool is_biased) {
    using C = gpu_codes<B>;
    uint32_t v = low >> (C::kLow * (j / C::kLow)) & 0x01010101u * ((1u << C::kLow) - 1u);
    if constexpr (C::kHigh > 0)
        v |= (high >> (C::kHigh * (j / C::kHigh)) & 0x01010101u * ((1u << C::kHigh) - 1u)) << C::kLow;
    if (is_biased) return v;
    if constexpr (C::kIsTable) return table16(table_words<B>(), v);
    // Codes are below 128, so with the top bit set no byte borrows from the next.
    return C::kBias != 0 ? ((v | 0x80808080u) - 0x01010101u * C::kBias) ^ 0x80808080u : v;
}
template <class B>
DUET_DEVICE uint32_t block_word(const block_words<B>& block, int j, bool is_biased = false) {
    using C = gpu_codes<B>;
    const uint32_t low = block.w[j % C::kLow];
    if constexpr (C::kHigh > 0) return stored_codes<B>(low, block.w[C::kLow + j % C::kHigh], j, is_biased);
    else return stored_codes<B>(low, 0, j, is_biased);
}

// Loads row `row` (0..31) of a brick, all blocks of it.
template <class B> DUET_DEVICE void load_brick(const uint8_t* brick, int row, block_words<B> (&to)[kBlocksPerGroup]) {
    using C = gpu_codes<B>;
    DUET_UNROLL
    for (int c = 0; c < gpu_brick<B>::kBits; c++) {
        const word4 v = load_stream(brick + (size_t)row * 16 + c * kRowTile * 16);  // one address and constants
        DUET_UNROLL
        for (int k = 0; k < 4; k++) {
            const int i = 4 * c + k, j = i - 4 * C::kLow;  // word of the group, and word of its high planes
            if (j < 0) to[i / C::kLow].w[i % C::kLow] = v.w[k];
            else if constexpr (C::kHigh > 0) to[j / C::kHigh].w[C::kLow + j % C::kHigh] = v.w[k];
        }
    }
}

// Lets no word be used before all are there: ptxas would begin to look up codes before it asks for the last piece.
template <class B>
DUET_DEVICE void hold_all(block_words<B> (&blocks)[kBlocksPerGroup]) {
    uint32_t mask = ~0u;
    for (int i = 0; i < kBlocksPerGroup * gpu_brick<B>::kBits; i++) mask &= blocks[i % 4].w[i / 4];
    for (int i = 0; i < kBlocksPerGroup * gpu_brick<B>::kBits; i++)
        blocks[i % 4].w[i / 4] = after(blocks[i % 4].w[i / 4], mask);
}

// The place of word k of the brick's block b.
template <class B, class Word>
DUET_DEVICE Word* stored_word(Word* brick, int row, int b, int k) {
    using C = gpu_codes<B>;
    const int i = k < C::kLow ? b * C::kLow + k : 4 * C::kLow + b * C::kHigh + k - C::kLow;  // word of the group
    return brick + (size_t)(i / 4 * kRowTile + row) * 4 + i % 4;
}

template <class B>
DUET_DEVICE block_words<B> load_block(const uint8_t* brick, int row, int b) {
    block_words<B> block;
    for (int k = 0; k < gpu_brick<B>::kBits; k++) block.w[k] = *stored_word<B>((const uint32_t*)brick, row, b, k);
    return block;
}

// What a lane needs of a block for words j and j + 4 (j < 4): the stored words that have them.
template <class B>
struct lane_words {
    static constexpr int kLows = gpu_codes<B>::kLow == 8 ? 2 : 1;
    uint32_t low[kLows], high;
};
template <class B>
DUET_DEVICE lane_words<B> load_lane(const uint8_t* brick, int row, int b, int j) {
    constexpr int L = gpu_codes<B>::kLow, H = gpu_codes<B>::kHigh;
    const uint32_t *from = (const uint32_t*)brick + row * 4, *low = from + j % (L < 4 ? L : 4);
    lane_words<B> lane{};  // Of both planes: an address of the lane, and a constant.
    for (int i = 0; i < lane_words<B>::kLows; i++) lane.low[i] = low[(b * L / 4 + i) * kRowTile * 4 + b * L % 4];
    if constexpr (H > 0) lane.high = (from + j % H)[(b * H / 4 + L) * kRowTile * 4 + b * H % 4];
    return lane;
}
// Returns word j, or with `second` word j + 4.
template <class B> DUET_DEVICE uint32_t lane_word(const lane_words<B>& at, int j, bool second, bool is_biased = false) {
    const uint32_t low = second && gpu_codes<B>::kLow == 8 ? at.low[lane_words<B>::kLows - 1] : at.low[0];
    return stored_codes<B>(low, at.high, j + 4 * second, is_biased);
}
// Codes may be multiplied as the top bits of their bytes, whose sign subtracts the bias. The dot is 1 << kTop as large.
template <class B, class C = gpu_codes<B>>
constexpr int kTop = B::kSubScales == 1 && C::kBias * 2 == 1 << (C::kLow + C::kHigh) ? 8 - C::kLow - C::kHigh : 0;
template <class B>
DUET_DEVICE uint32_t fragment_word(const lane_words<B>& lane, int j, bool second, bool is_biased) {
    if constexpr (kTop<B> == 4 && !gpu_codes<B>::kHigh) return signed_tops(second ? lane.low[0] : lane.low[0] << 4);
    const uint32_t w = lane_word<B>(lane, j, second, is_biased || kTop<B>);
    return kTop<B> ? w << kTop<B> ^ 0x80808080u : w;
}

// A plane's words of a group that a lane needs of a row for words t and t + 4 of its blocks: word t of each 16-byte
// piece, or all of the piece where it has words of several blocks.
template <int Bits>
struct plane_words {
    uint32_t w[Bits >= 4 ? Bits : 8];
    // from: of the row and the first piece. One address and constants give all.
    DUET_DEVICE void load(const uint8_t* from, int t) {
        for (int p = 0; p < Bits; p++)
            if constexpr (Bits >= 4) w[p] = load_stream_word((const uint32_t*)from + t + p * kRowTile * 4);
            else *(word4*)(w + p * 4) = load_stream(from + p * kRowTile * 16);
    }
    DUET_DEVICE uint32_t word(int b, int t, bool second) const {
        if constexpr (Bits == 2) return t % 2 ? w[2 * b + 1] : w[2 * b];
        return w[Bits == 8 ? 2 * b + second : b];
    }
};

template <class B>
DUET_DEVICE void load_scales(const uint8_t* brick, int row, uint32_t (&s)[gpu_scales<B>::kWords]) {
    const uint32_t* scales = (const uint32_t*)(brick + gpu_brick<B>::kScalesAt) + row;
    for (int k = 0; k < gpu_scales<B>::kWords; k++) s[k] = load_stream_word(scales + k * kRowTile);
}

template <class F>
struct float_piece {
    F v[16 / sizeof(F)];
};
template <class F> DUET_DEVICE float device_float(F x) { return to_float(x); }
DUET_DEVICE float device_float(float_f16 x) { return quick_half_to_float(x.bits); }

DUET_DEVICE int group_count(int n_in) { return (n_in + kGroup - 1) / kGroup; }

template <class W, class Byte>
DUET_DEVICE Byte* brick_of(Byte* w, int tile, int group, int n_groups) {
    return w + ((size_t)tile * (size_t)n_groups + (size_t)group) * gpu_brick<W>::kBytes;
}

// Bytes of a matrix of n_out rows of n_in in this layout; 0: there is no code for the format.
inline size_t gpu_weight_bytes(int32_t type, int64_t n_in, int64_t n_out) {
    const size_t n_bricks = (size_t)((n_in + kGroup - 1) / kGroup) * (size_t)((n_out + kRowTile - 1) / kRowTile);
    switch (type) {
#define FLOAT_TYPE(id, NAME, gguf_id, bytes)                                                                           \
    case gguf_id: return n_bricks * gpu_brick<float_##id>::kBytes;
#define QUANT_TYPE(id, NAME, gguf_id, elems, bytes, max_nmse)                                                          \
    case gguf_id: return n_bricks * gpu_brick<block_##id>::kBytes;
#include "../quant/types.def"
    default: return 0;
    }
}

// Threads of a kernel of one token, as kernels.def has them: four blocks fit a unit of sm_90 where no register spills.
constexpr int vec_threads(int32_t type) {
    return is_quantized(type) && type != type_id::q4_0 && type != type_id::q4_K && type != type_id::q6_K ? 256 : 2304;
}

// ---- tiles of gpu/matmul.cuh, for the launcher too ----
constexpr int kMatmulRows = 64, kMatmulToks = 64, kMatmulThreads = 256;
constexpr int kMatmulStride = kGroup / 4 + 4;  // words of a row in shared memory: 16-byte aligned, over all banks

// Word offsets in shared memory. Scales of a (row, block) are four words (ready_scale), those of (token, block) three.
constexpr int kMatmulX = kMatmulRows * kMatmulStride;
constexpr int kMatmulScaleW = kMatmulX + kMatmulToks * kMatmulStride;
constexpr int kMatmulScaleX = kMatmulScaleW + kMatmulRows * kBlocksPerGroup * 4;
constexpr int kMatmulWords = kMatmulScaleX + kMatmulToks * kBlocksPerGroup * 3;

// Float weights come this many elements at a time, for all rows and tokens of the tile.
constexpr int kMatmulFloatStep = 32, kMatmulFloatWords = kMatmulFloatStep * (kMatmulRows + kMatmulToks);
// Words of a step of mode fast, 64 elements of each line (gpu/simt.h), by the longest kTileStride of all chips.
constexpr int kMatmulTileWords = 2 * (kMatmulRows + kMatmulToks) * kTileStride;

}  // namespace duet
