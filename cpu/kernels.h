// cpu/kernels.h: the table of functions each instruction set fills, and what they are given. One table is chosen when
// an executor is made (cpu/dispatch.cpp). Every function gives the bits of quant/exact.h; kernels_scalar.cpp calls it
// literally.
// Must not know: ops, families, threads. All pointers of vectors are 64-byte aligned unless said otherwise.
// Main path: cpu/ops.cpp -> [cpu/kernels.h] -> cpu/kernels_<isa>.cpp -> quant/exact.h
#pragma once
#include "../quant/exact_ops.h"

#include <cstddef>
#include <cstdint>

namespace duet {

constexpr int kTileRows = 16;   // rows of weights a matmul kernel works on at once; pieces of work are multiples of it
constexpr int kMaxTypeId = 64;  // type ids of GGUF are below this

// Tokens in panels for matmuls of more than a few (cpu_kernels::panel_least): as few panels of at most kPanelTokens as
// will do, of sizes as equal as can be, so that one token more never costs a whole panel more. A panel's block of 32:
// codes, their d and t, and minus the sums of all codes and of their second half.
constexpr int kPanelLeast = 3, kPanelTokens = 6;  // of one panel
constexpr int kPanelBlocks = 16;  // of a row: all panels of these follow each other before those of the next ones
struct act_panel {
    int8_t q[kPanelTokens][32];
    float d[kPanelTokens], t[kPanelTokens];
    int32_t neg_sum[kPanelTokens], neg_second[kPanelTokens];
};
constexpr int kFastLeast = 12;  // tokens from which mode fast rounds activations (docs/numerics.md)
constexpr int count_panels(int n_tok) { return (n_tok + kPanelTokens - 1) / kPanelTokens; }
constexpr int panel_token(int n_tok, int i) {
    return (int)((int64_t)n_tok * i / count_panels(n_tok));
}  // the first of panel i
// Of n_panels panels of n_blocks blocks, panel i's blocks from b0 (a multiple of kPanelBlocks) on.
constexpr size_t panel_offset(int n_panels, int n_blocks, int i, int b0) {
    return (size_t)b0 * (size_t)n_panels +
           (size_t)i * (size_t)(n_blocks - b0 < kPanelBlocks ? n_blocks - b0 : kPanelBlocks);
}

// Quantized (or plain) activations of n_tok vectors of n_in values: token i's part of each array begins at i * its
// stride.
struct act_matrix {
    const float* x;      // f32 values: stride x_stride (floats; rows need not be aligned)
    const int8_t* q;     // stride q_stride bytes (a multiple of 64)
    const float* d;      // stride q_stride / 32
    const float* t;      // stride q_stride / 32
    const int16_t* s16;  // stride q_stride / 16
    size_t x_stride, q_stride;
    int n_tok;
    const act_panel* panels;  // the same once more, or null
    const uint16_t* rounded;  // mode fast: x as bfloat16, stride q_stride, rows up to a multiple of kTileRows; or null
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
    bool same_input;    // the last call with this scratch was for other rows of the same matrix and the same `a`
    bool adds = false;  // to what y holds; only where there are panels
};
using matmul_fn = void (*)(const matmul_args& args);

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

// Chunks by themselves, n of them, each step further, merged in order with what was merged before. o: whole vectors,
// v_dim at least.
struct attn_merge_args {
    attn_state* state;  // sum == 0: nothing merged yet
    float* o;
    const attn_state* chunk_state;
    const float* chunk_o;
    size_t state_step, o_step;
    int n, v_dim;
};

// Causal convolution of n channels over tokens in order (exact_conv, then act). y[i] may be x[i].
struct conv_args {
    const float* w;     // (n_taps, n)
    const float* bias;  // n; may be null
    float* state;       // n_taps - 1 rows, state_stride apart, oldest first: moved on
    size_t state_stride;
    int n_taps, n, n_tok, act;
    const float* const* x;  // n_tok rows
    float* const* y;
};
constexpr int kConvChannels = 256;  // at most, of one call

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
    const char* name;              // "avx512"
    matmul_fn matmul[kMaxTypeId];  // by type id; nullptr: no code for the format
    void (*quantize)(const float* x, int n, int8_t* q, float* d, float* t, int16_t* s16);  // n % 32 == 0
    uint8_t panel_least[kMaxTypeId];  // by type id: from how many tokens its matmul takes panels; 0: never
    int panel_most = 0x7fffffff;      // to how many; more than this is for AMX, which takes 32 rows at once too
    void (*pack_panel)(const act_matrix& a, int i, int n_blocks, act_panel* panels);  // panel i of all tokens
    uint64_t rounded_types;  // mode fast: the formats whose matmul takes rounded activations
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

// The table for a name (nullptr or "auto": the best this machine has), with mode fast where it is wanted and there is
// one. nullptr when unknown or the machine cannot run it.
const cpu_kernels* find_cpu_kernels(const char* isa, bool fast = false);
// The i-th best table this machine can run; after the scalar one nullptr.
const cpu_kernels* cpu_kernels_at(int i);
// Names this machine can run, best first, ", " between.
const char* cpu_isa_names();

// Bytes of scratch a matmul kernel may use: unpacked weights of kTileRows rows with their scales, activations
// rearranged for a few tokens, totals of 512 tokens by 32 or 64 rows. What a kernel lays out in it is asserted there.
inline size_t matmul_scratch_bytes(int n_in) { return (size_t)n_in * 32 + (192u << 10); }

// Shared by the instruction sets' files: the scalar functions, used where an ISA has nothing better.
extern const cpu_kernels kScalarKernels;

}  // namespace duet
