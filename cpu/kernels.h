// cpu/kernels.h: the table of functions that each instruction set fills, and the structs that these functions take. An
// executor gets its table when it is made (cpu/dispatch.cpp). Every function gives the bits of quant/exact.h, which
// kernels_scalar.cpp calls literally. Pointers to vectors are 64-byte aligned unless their comment says otherwise.
// Must not know: ops, families, threads.
// Main path: cpu/ops.cpp -> [cpu/kernels.h] -> cpu/kernels_<isa>.cpp -> quant/exact.h
#pragma once
#include "../quant/exact_ops.h"

#include <cstddef>
#include <cstdint>

namespace duet {

constexpr int kTileRows = 16;   // rows of weights in a tile at 16 lanes; pieces of work are multiples of it
constexpr int kMaxTypeId = 64;  // type ids of GGUF are below this

// The ways to compute a matmul. The caller names one of ways_of_matmul (cpu/choose.h), and the kernel obeys.
enum class matmul_way : uint8_t {
    scalar,      // any format: quant/exact.h, weight by weight
    rows,        // quantized weights, a few tokens: rows are read from front to back
    tiles,       // quantized weights: 16 (or 8) rows are unpacked into a tile, which all tokens use
    panels,      // quantized weights: tiles times panels of 3 to 6 tokens (act_panel)
    amx,         // quantized weights: tiles times 32 tokens on AMX's int8 units
    float_few,   // float weights, up to 4 tokens: groups of a row are lanes
    float_some,  // float weights, up to 8 tokens: rows are lanes
    float_many,  // float weights: tiles of f32
    rounded,     // mode fast: BF16 weights times activations rounded to bfloat16
};

// A panel is a tile of 3 to 6 tokens. n tokens are split into ceil(n / 6) panels of nearly equal size, so that adding
// one token never adds a mostly empty panel. An act_panel is one block of 32 of a panel. It holds the tokens' codes,
// their d and t, the negated sums of all codes, and those of the codes' second halves.
constexpr int kPanelLeast = 3, kPanelTokens = 6;  // fewest and most tokens of a panel
// Panels are stored in slabs of 16 blocks: first slab 0 of every panel, then slab 1 of every panel, and so on.
constexpr int kPanelBlocks = 16;
struct act_panel {
    int8_t q[kPanelTokens][32];
    float d[kPanelTokens], t[kPanelTokens];
    int32_t neg_sum[kPanelTokens], neg_second[kPanelTokens];
};
constexpr int count_panels(int n_tok) { return (n_tok + kPanelTokens - 1) / kPanelTokens; }
// Returns the first token of panel i.
constexpr int panel_token(int n_tok, int i) { return (int)((int64_t)n_tok * i / count_panels(n_tok)); }
// Returns where the slab of panel i that begins at block b0 (a multiple of kPanelBlocks) is stored, among n_panels
// panels of n_blocks blocks.
constexpr size_t panel_offset(int n_panels, int n_blocks, int i, int b0) {
    return (size_t)b0 * (size_t)n_panels +
           (size_t)i * (size_t)(n_blocks - b0 < kPanelBlocks ? n_blocks - b0 : kPanelBlocks);
}

// The quantized (or plain) activations of n_tok tokens, n_in values each. In each array, token i begins at i times the
// array's stride.
struct act_matrix {
    const float* x;      // f32 values: stride x_stride floats; rows may be unaligned
    const int8_t* q;     // stride q_stride bytes (a multiple of 64)
    const float* d;      // stride q_stride / 32
    const float* t;      // stride q_stride / 32
    const int16_t* s16;  // stride q_stride / 16
    size_t x_stride, q_stride;
    int n_tok;
    const act_panel* panels;  // the same codes in panels, for the way panels; else null
    // x as bfloat16, for the way rounded; else null. The stride is q_stride, and there is room for tokens up to a
    // multiple of kTileRows.
    const uint16_t* rounded;
};

// y[i_tok * y_stride + r] = dot(row r, token i_tok) for the n_rows rows from w on (row_bytes apart, unaligned).
struct matmul_args {
    const uint8_t* w;
    size_t row_bytes;
    int n_in, n_rows;
    act_matrix a;
    float* y;
    size_t y_stride;
    void* scratch;      // matmul_scratch_bytes(n_in) bytes of this thread
    matmul_way way;     // one of ways_of_matmul for this table, format and n_tok
    bool same_input;    // the last call with this scratch had other rows of the same format and the same `a`
    bool adds = false;  // results are added to y; only for the ways panels and amx
};
using matmul_fn = void (*)(const matmul_args& args);

// Fetches rows of weights into the second cache in parts, between which earlier rows are unpacked and multiplied. Four
// streams read them in order. Were they fetched 16 rows at a time, or only while rows are unpacked, 4 to 8 tokens would
// be a fifth to a third slower (docs/measurements/2026-11-23-cpu.md).
struct stream_fetch {
    static constexpr size_t kStreams = 4;
    const uint8_t* at;
    size_t apart, each, done = 0;  // bytes from stream to stream, of a stream in one part, and of a stream until now
    // Fetches n rows from r0 on; they may lie past the end of the piece.
    stream_fetch(const matmul_args& m, int r0, int n, int n_parts)
        : at(m.w + (size_t)r0 * m.row_bytes), apart(((size_t)n * m.row_bytes / kStreams + 63) / 64 * 64),
          each(apart / (size_t)n_parts + 1) {}
    // always inline: g++ takes a function that only prefetches for one without effect, and drops its calls
    [[gnu::always_inline]] inline void part(int n) {
        const size_t end = done + (size_t)n * each;
        for (size_t i = (done + 63) / 64 * 64; i < end && i < apart; i += 64)
            for (size_t s = 0; s < kStreams; s++) __builtin_prefetch(at + s * apart + i, 0, 2);
        done = end;
    }
};

// How one format's rows are unpacked into tiles (cpu/simd/unpack_tile.inc). The kernels of AMX and AVX-VNNI use these
// fields, and depend on the format through nothing else.
struct tile_source {
    // Unpacks n_blocks blocks of 32 of unit i_unit (256 weights) of the rows from r0 on, and does a part of `fetch` for
    // each block.
    void (*make)(const matmul_args& args, int r0, int i_unit, int n_blocks, void* tile, stream_fetch& fetch);
    size_t unit_bytes;   // bytes of a unit of one row
    int bias;            // codes in a tile are q + bias
    int n_subs, n_mins;  // of 32 weights: sub-scales that are not in the codes (1 or 2), minimums (0, 1 or 2)
    bool wide_subs;
};

// The code of an instruction set for one format.
struct format_kernel {
    matmul_fn run;   // serves all ways but amx and rounded; null: no code for the format
    bool is_vector;  // false: only the way scalar exists
    bool is_float;
    bool takes_panels;
    uint8_t few_tokens;       // most tokens for the way rows (float weights: float_few)
    uint8_t some_tokens;      // float weights: most tokens for the way float_some; 0: never
    const tile_source* tile;  // quantized weights; for AMX
};

// One chunk of the attention cache for one key/value head, decoded to f32 or, with is_half, in its stored f16.
// k (k_dim, kAttnChunk) is transposed, so that positions are lanes; v is (kAttnChunk, v_dim).
struct attn_chunk_args {
    const float* q;  // n_rows query vectors, q_stride apart
    size_t q_stride;
    int n_rows;
    const int* first;  // row i sees the positions first[i] <= p < n_pos[i] of the chunk
    const int* n_pos;
    const void* k;
    const void* v;
    int k_dim, v_dim;
    float scale, cap;
    attn_state* state;  // n_rows states; sum == 0: nothing merged yet
    float* o;           // n_rows vectors, o_stride apart, merged in place
    size_t o_stride;
    float* scratch;  // kAttnChunk + v_dim floats
    bool is_half;
    ptrdiff_t ahead;  // bytes from k to the next chunk's keys, which its values follow: data to fetch
    // ALiBi where tokens see both ways (exact_alibi_both): of each row the slope, and its position less the chunk's
    // first one; null: none.
    const float* slope = nullptr;
    const int* at = nullptr;
};

// Merges n chunks into (state, o) in order. The chunks were computed apart; their states lie state_step and their
// vectors o_step apart. Vectors have whole SIMD vectors of room, at least v_dim values.
struct attn_merge_args {
    attn_state* state;  // sum == 0: nothing merged yet
    float* o;
    const attn_state* chunk_state;
    const float* chunk_o;
    size_t state_step, o_step;
    int n, v_dim;
};

// A causal convolution of n channels over tokens in order (exact_conv, then act). y[i] may be x[i].
struct conv_args {
    const float* w;     // (n_taps, n)
    const float* bias;  // n values; may be null
    float* state;       // n_taps - 1 rows, state_stride apart, oldest first; the call moves them on
    size_t state_stride;
    int n_taps, n, n_tok, act;
    const float* const* x;  // n_tok rows
    float* const* y;
};
constexpr int kConvChannels = 256;  // most channels of one call

// Runs tokens in order over one head's recurrent state m (n_rows, n_cols): exact_state_step for every column.
struct state_token {
    const float *k, *q, *v;  // n_rows, n_rows and n_cols values
    float* y;                // n_cols values
    float decay, beta;
};
struct state_args {
    float* m;
    int n_rows, n_cols, n_tok;
    const state_token* tok;
    state_rule rule;
};

// Matmuls by the tiles of any format, on units that the format's own code does not use; null: none. AVX-VNNI has one
// for the way tiles.
struct tile_table {
    void (*matmul_amx)(const matmul_args& args, const tile_source& tile);
    void (*matmul_vnni)(const matmul_args& args, const tile_source& tile);
};
// The functions of mode fast; null: none.
struct fast_table {
    matmul_fn matmul_rounded;
    uint64_t rounded_types;                                 // bits of the type ids that matmul_rounded takes
    void (*round_row)(const float* x, int n, uint16_t* y);  // writes n values, then zeros up to a multiple of 32
};

struct cpu_kernels : tile_table, fast_table {
    const char* name;                                                                      // "avx512"
    format_kernel formats[kMaxTypeId];                                                     // by type id
    void (*quantize)(const float* x, int n, int8_t* q, float* d, float* t, int16_t* s16);  // n % 32 == 0
    void (*pack_panel)(const act_matrix& a, int i, int n_blocks, act_panel* panels);  // packs panel i of all tokens
    // Pointers may be unaligned; w may be null; y may be x.
    void (*rms_norm)(const float* x, const float* w, int n, float eps, float* y);
    // act is an enum activation; x2 may be null.
    void (*activate)(int act, const float* x, const float* x2, int n, float* y);
    void (*rotate)(float* x, int half, bool neox, const float* cos_a, const float* sin_a);  // exact_rotate_head
    void (*attn_chunk)(const attn_chunk_args& args);
    void (*attn_merge)(const attn_merge_args& args);
    void (*route_scores)(const float* z, const route_rule& rule, float* score);
    // y = scale * sum of weight[k] * x[k]; with residual, this is added to y. The sum is an fma chain over k in order
    // from 0. x has n_used vectors of n values, x_stride apart.
    void (*weighted_sum)(const float* x, size_t x_stride, const float* weight, int n_used, int n, float scale,
                         bool residual, float* y);
    void (*conv)(const conv_args& args);
    void (*state_steps)(const state_args& args);
    void (*half_to_float)(const uint16_t* x, size_t n, float* y);
    void (*codes_to_float)(const int8_t* codes, const float* scale, bool is_key, ptrdiff_t ahead, float* y);
};

// Writes kBlock * kAttnChunk values of a q8_0 cache. A key's scale serves 32 dims of a position, a value's scale 32
// neighbouring elements. `ahead` is how many bytes further on the codes lie that are wanted next.
inline void cache_to_float(const int8_t* codes, const float* scale, bool is_key, ptrdiff_t ahead, float* __restrict y) {
    for (size_t i = 0; i < kBlock * kAttnChunk; i += kBlock) {
        if (i % kAttnChunk == 0) __builtin_prefetch(codes + i + ahead);
        if (is_key)
            for (size_t e = 0; e < kBlock; e++) y[i + e] = scale[i % kAttnChunk + e] * (float)codes[i + e];
        else
            for (size_t e = 0; e < kBlock; e++) y[i + e] = scale[i / kBlock] * (float)codes[i + e];
    }
}

// Computes one piece of a matmul by weights of this type in the way that args names.
inline void run_matmul(const cpu_kernels& kernels, int32_t type, const matmul_args& args) {
    if (args.way == matmul_way::amx) return kernels.matmul_amx(args, *kernels.formats[type].tile);
    if (args.way == matmul_way::rounded) return kernels.matmul_rounded(args);
    if (args.way == matmul_way::tiles && kernels.matmul_vnni)
        return kernels.matmul_vnni(args, *kernels.formats[type].tile);
    kernels.formats[type].run(args);
}

// Returns the table with this name (nullptr or "auto": the best that this machine runs), or nullptr when the name is
// unknown or the machine cannot run it. With `fast`, the table has mode fast where the machine does.
const cpu_kernels* find_cpu_kernels(const char* isa, bool fast = false);
// Returns the i-th best table that this machine can run, and nullptr after the scalar one.
const cpu_kernels* cpu_kernels_at(int i);
// Returns the names that --cpu-isa takes on this machine: "auto", then the tables, best first, with ", " between.
const char* cpu_isa_names();

// Returns the bytes of scratch that a matmul kernel may use: for unpacked weights of kTileRows rows with their scales,
// for activations rearranged for a few tokens, and for totals of 512 tokens by 32 or 64 rows. Each kernel asserts that
// its layout fits.
inline size_t matmul_scratch_bytes(int n_in) { return (size_t)n_in * 32 + (192u << 10); }

// ---- the parts of a table (cpu/isas.def says which instruction set takes which) ------------------------------------

// The scalar table is complete. Its rows and functions serve wherever an instruction set has nothing better.
extern const cpu_kernels kScalarKernels;
// The vector code of some formats. Rows without code have run == null.
struct format_table {
    format_kernel formats[kMaxTypeId];
};
// Whether AVX-512 gathers are as fast as single loads; the same bits either way. find_cpu_kernels sets it.
inline bool fast_gathers = false;
// At 16 lanes: matmuls by tiles and by panels of any format, of which one copy serves all files.
void avx512_tiles(const matmul_args& m, const tile_source& source);
void avx512_panels(const matmul_args& m, const tile_source& source);
// The tables that the kernel files define.
extern const cpu_kernels kAvx512Vectors, kAvx2Vectors, kNeonVectors, kDotprodVectors, kI8mmVectors;
extern const format_table kAvx512Small, kAvx512Large, kAvx512Grids, kAvx2Formats, kNeonFormats, kDotprodFormats,
    kI8mmFormats;
extern const tile_table kAmx, kAvxVnni;
extern const fast_table kAvx512Fast, kAmxFast;

}  // namespace duet
