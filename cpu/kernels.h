// cpu/kernels.h: the table of functions that each instruction set fills, and the structs that these functions take. One
// table is chosen when an executor is made (cpu/dispatch.cpp). Every function gives the bits of quant/exact.h, which
// kernels_scalar.cpp calls literally.
// Must not know: ops, families, threads. Pointers of vectors are 64-byte aligned unless their comment says otherwise.
// Main path: cpu/ops.cpp -> [cpu/kernels.h] -> cpu/kernels_<isa>.cpp -> quant/exact.h
#pragma once
#include "../quant/exact_ops.h"

#include <cstddef>
#include <cstdint>

namespace duet {

constexpr int kTileRows = 16;   // rows of weights a matmul kernel works on at once; pieces of work are multiples of it
constexpr int kMaxTypeId = 64;  // type ids of GGUF are below this

// The ways to compute one matmul. choose_matmul (cpu/choose.h) names one of them, and the kernel obeys.
enum class matmul_way : uint8_t {
    scalar,      // any format: the definition of quant/exact.h, weight by weight
    rows,        // quantized weights, a few tokens: rows are read from front to back
    tiles,       // quantized weights: 16 (8) rows are unpacked into a tile, which all tokens use
    panels,      // quantized weights: tiles times panels of 3 to 6 tokens (act_panel)
    amx,         // quantized weights: tiles times 32 tokens on AMX's int8 units
    float_few,   // float weights, up to 4 tokens: groups of a row are lanes
    float_some,  // float weights, up to 12 tokens: rows are lanes
    float_many,  // float weights: tiles of f32
    rounded,     // mode fast: BF16 weights times activations rounded to bfloat16
};

// A panel is a tile of 3 to 6 tokens. n tokens are split into ceil(n / 6) panels of nearly equal size, so that adding
// one token never adds a mostly empty panel. A panel's block of 32 holds the tokens' codes, their d and t, and minus
// the sums of all codes and of their second half.
constexpr int kPanelLeast = 3, kPanelTokens = 6;  // tokens of one panel
// Panels are stored in slabs of 16 blocks: first slab 0 of every panel, then slab 1 of every panel, and so on.
constexpr int kPanelBlocks = 16;
struct act_panel {
    int8_t q[kPanelTokens][32];
    float d[kPanelTokens], t[kPanelTokens];
    int32_t neg_sum[kPanelTokens], neg_second[kPanelTokens];
};
constexpr int count_panels(int n_tok) { return (n_tok + kPanelTokens - 1) / kPanelTokens; }
// The first token of panel i.
constexpr int panel_token(int n_tok, int i) { return (int)((int64_t)n_tok * i / count_panels(n_tok)); }
// Where panel i's blocks from b0 (a multiple of kPanelBlocks) begin, of n_panels panels of n_blocks blocks.
constexpr size_t panel_offset(int n_panels, int n_blocks, int i, int b0) {
    return (size_t)b0 * (size_t)n_panels +
           (size_t)i * (size_t)(n_blocks - b0 < kPanelBlocks ? n_blocks - b0 : kPanelBlocks);
}

// Quantized (or plain) activations of n_tok vectors of n_in values. Token i's part of each array begins at i times the
// array's stride.
struct act_matrix {
    const float* x;      // f32 values: stride x_stride (floats; rows need not be aligned)
    const int8_t* q;     // stride q_stride bytes (a multiple of 64)
    const float* d;      // stride q_stride / 32
    const float* t;      // stride q_stride / 32
    const int16_t* s16;  // stride q_stride / 16
    size_t x_stride, q_stride;
    int n_tok;
    const act_panel* panels;  // the same codes once more, for the way panels; else null
    const uint16_t* rounded;  // x as bfloat16, for the way rounded: stride q_stride, tokens up to a multiple of
                              // kTileRows; else null
};

// y[i_tok * y_stride + r] = dot(row r, token i_tok) for n_rows rows from w (rows row_bytes apart, unaligned).
struct matmul_args {
    const uint8_t* w;
    size_t row_bytes;
    int n_in, n_rows;
    act_matrix a;
    float* y;
    size_t y_stride;
    void* scratch;      // matmul_scratch_bytes(n_in) bytes of this thread
    matmul_way way;     // what choose_matmul said for this table, format and n_tok
    bool same_input;    // the last call with this scratch was for other rows of the same matrix and the same `a`
    bool adds = false;  // results are added to what y holds; only for the way panels
};
using matmul_fn = void (*)(const matmul_args& args);

// How tiles are made of one format's rows (cpu/simd/unpack_tile.inc), for AMX, whose kernels depend on the format by
// these numbers only.
struct tile_source {
    // Unpacks unit i_unit (256 weights, n_blocks blocks of them) of the rows from r0 on. It fetches what lies `ahead`
    // bytes further; 0: the rows after the next ones.
    void (*make)(const matmul_args& args, int r0, int i_unit, int n_blocks, void* tile, size_t ahead);
    size_t unit_bytes;  // of 256 weights of a row
    int bias;           // codes in a tile are q + bias
    int n_subs;         // sub-scales of 32 weights: 1 or 2
    bool has_min, wide_subs;
};

// What an instruction set has for one format.
struct format_kernel {
    matmul_fn run;   // null: no code for the format. Serves all ways but amx and rounded.
    bool is_vector;  // false: the way scalar is the only one
    bool is_float;
    bool takes_panels;
    uint8_t few_tokens;   // up to so many tokens are read by rows (float weights: float_few)
    uint8_t some_tokens;  // float weights: float_some up to so many; 0: never
    tile_source tile;     // quantized weights at 16 lanes, for AMX
};

// One chunk of the attention cache, decoded to f32 or as it is stored (is_half: f16), for one key/value head.
// k (k_dim, kAttnChunk): transposed, so that positions are lanes; v (kAttnChunk, v_dim).
struct attn_chunk_args {
    const float* q;  // n_rows query vectors, q_stride apart
    size_t q_stride;
    int n_rows;
    const int* first;  // for each row: positions first[i] <= p < n_pos[i] of the chunk are seen
    const int* n_pos;
    const void* k;
    const void* v;
    int k_dim, v_dim;
    float scale, cap;
    attn_state* state;  // n_rows; state.sum == 0: nothing merged yet
    float* o;           // n_rows vectors, o_stride apart: merged in place
    size_t o_stride;
    float* scratch;  // kAttnChunk + v_dim floats
    bool is_half;
    ptrdiff_t ahead;  // bytes from k and v to what is read next
};

// Merges n chunks, which were computed by themselves and lie `step` apart, in order with what was merged before. o has
// whole vectors, v_dim values at least.
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
    const float* bias;  // n; may be null
    float* state;       // n_taps - 1 rows, state_stride apart, oldest first: moved on
    size_t state_stride;
    int n_taps, n, n_tok, act;
    const float* const* x;  // n_tok rows
    float* const* y;
};
constexpr int kConvChannels = 256;  // most channels of one call

// Tokens in order over one head's recurrent state m (n_rows, n_cols): exact_state_step for every column.
struct state_token {
    const float *k, *q, *v;  // n_rows, n_rows, n_cols
    float* y;                // n_cols
    float decay, beta;
};
struct state_args {
    float* m;
    int n_rows, n_cols, n_tok;
    const state_token* tok;
    state_rule rule;
};

struct cpu_kernels {
    const char* name;                                                      // "avx512"
    format_kernel formats[kMaxTypeId];                                     // by type id
    void (*matmul_amx)(const matmul_args& args, const tile_source& tile);  // null: no AMX
    matmul_fn matmul_rounded;                                              // null: no mode fast
    uint64_t rounded_types;  // bits of the type ids that matmul_rounded takes
    void (*quantize)(const float* x, int n, int8_t* q, float* d, float* t, int16_t* s16);  // n % 32 == 0
    void (*pack_panel)(const act_matrix& a, int i, int n_blocks, act_panel* panels);       // panel i of all tokens
    void (*round_row)(const float* x, int n, uint16_t* y);  // n values; zeros up to a multiple of 32
    void (*rms_norm)(const float* x, const float* w, int n, float eps,
                     float* y);  // unaligned; w may be null; y may be x
    void (*activate)(int act, const float* x, const float* x2, int n,
                     float* y);  // act: enum activation; x2 may be null
    void (*rotate)(float* x, int half, bool neox, const float* cos_a, const float* sin_a);  // exact_rotate_head
    void (*attn_chunk)(const attn_chunk_args& args);
    void (*attn_merge)(const attn_merge_args& args);
    void (*route_scores)(const float* z, const route_rule& rule, float* score);
    // y = (residual: y +) scale * sum over k in order of weight[k] * x[k], fma from 0; x: n_used vectors of n,
    // x_stride apart
    void (*weighted_sum)(const float* x, size_t x_stride, const float* weight, int n_used, int n, float scale,
                         bool residual, float* y);
    void (*conv)(const conv_args& args);
    void (*state_steps)(const state_args& args);
    void (*half_to_float)(const uint16_t* x, size_t n, float* y);
    void (*float_to_half)(const float* x, size_t n, uint16_t* y);
};

// Computes one piece of a matmul by weights of that type in the way that args names.
inline void run_matmul(const cpu_kernels& kernels, int32_t type, const matmul_args& args) {
    if (args.way == matmul_way::amx) return kernels.matmul_amx(args, kernels.formats[type].tile);
    if (args.way == matmul_way::rounded) return kernels.matmul_rounded(args);
    kernels.formats[type].run(args);
}

// The table for a name (nullptr or "auto": the best this machine has), with mode fast where it is wanted and there is
// one. nullptr when unknown or the machine cannot run it.
const cpu_kernels* find_cpu_kernels(const char* isa, bool fast = false);
// The i-th best table this machine can run; after the scalar one nullptr.
const cpu_kernels* cpu_kernels_at(int i);
// Names this machine can run, best first, ", " between.
const char* cpu_isa_names();

// Bytes of scratch that a matmul kernel may use: unpacked weights of kTileRows rows with their scales, activations
// rearranged for a few tokens, totals of 512 tokens by 32 or 64 rows. Each kernel asserts that its layout fits.
inline size_t matmul_scratch_bytes(int n_in) { return (size_t)n_in * 32 + (192u << 10); }

// ---- what a table is put together from (cpu/isas.def says which instruction set takes which) -----------------------

// The scalar functions: a whole table, whose rows and functions serve wherever an instruction set has nothing better.
extern const cpu_kernels kScalarKernels;
// A part with the vector code of some formats. Rows without code are null.
struct format_table {
    format_kernel formats[kMaxTypeId];
};
// The part of mode fast.
struct fast_table {
    matmul_fn matmul_rounded;
    uint64_t rounded_types;
    void (*round_row)(const float* x, int n, uint16_t* y);
};
// The part of AMX.
struct amx_table {
    void (*matmul_amx)(const matmul_args& args, const tile_source& tile);
};

}  // namespace duet
