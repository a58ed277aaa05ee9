// gpu/args.h: one plain struct per kernel, with a shape beside each field, for kernels, launcher, emulator and drivers.
// Rows of buffers are `stride` floats apart. Must not know: ops, drivers.
// Main path: gpu/launch.cpp -> [gpu/args.h] -> gpu/*.cuh
#pragma once
#include "../runtime.h"  // DUET_CACHE_...
#include "simt.h"

#include <cstdint>

namespace duet {

constexpr int kGpuThreads = 256;  // threads of every block, but of recurrent states (gpu/state.cuh)

// The structs are tables, which keep their columns.
// clang-format off

// The scale and sums of 32 codes, in one load: d and t of exact_quantize_block, and the sums of both halves.
struct alignas(16) act_scale {
    float    d, t;
    uint32_t sums, unused;  // sums: int16: codes 0..15 low, 16..31 high
};

// Activations as int8 blocks of 32, one row after another: q (n, q_stride), scale (n, q_stride / 32).
struct act_args {
    device_ptr<int8_t>    q;
    device_ptr<act_scale> scale;
    int32_t               q_stride, unused;
};

// Columns of a buffer seen as heads: element j of head h of row i is at[i * stride + h * head_stride + j].
struct heads_args {
    device_ptr<float> at;
    int32_t           stride, head_stride, n_heads, head_dim;
};

// Words for the device: a batch from pinned memory, rows or pages that were written there, or zeros.
struct words_args {
    device_ptr<const uint32_t> from;  // n; null: zeros
    device_ptr<uint32_t>       to;    // n
    uint64_t                   n;
    int32_t                    n_blocks, unused;
};

// Weights that a launch behind this one reads: blocks with nothing left to do bring them to the second cache meanwhile.
struct ahead_args { device_ptr<const uint8_t> at; uint32_t n_bytes, unused; };
constexpr int kFetchLine = 64, kFetchBytes = kGpuThreads * kFetchLine;  // a thread's part of it, a block's

struct embed_args {
    device_ptr<const uint8_t> w;    // (n_vocab, n_in) as gpu/weights.h lays it out
    device_ptr<const int32_t> id;   // n_tok; null: row 0 for all
    device_ptr<float>         out;  // (n_tok, stride)
    int32_t                   n_in, stride;
    float                     scale;
    int32_t                   n_tok;
};

struct norm_args {
    heads_args              in, out;
    device_ptr<const float> w, b;  // head_dim, or heads w_stride apart; b, of layer norm alone: head_dim; may be null
    int32_t                 w_stride, kind;
    float                   eps;
    int32_t                 n_slices = 1;  // blocks that share a row: the grid's z
    act_args                act;           // q not null: also the result as int8 (one head, head_dim % 32 == 0)
};

// Rows first .. end - 1 of a matmul's input belong to one of several matrices.
struct expert_tile {
    int32_t matrix, first, end;
};

// A matmul by several matrices: each block_y takes a tile.
struct expert_args {
    device_ptr<const expert_tile> tiles;  // null: one matrix; block_y takes as many tokens as the kernel can
    device_ptr<const int32_t>     order;  // the pair (token * n_used + k) of each row; null: row k is pair k
    uint64_t                      matrix_bytes;
    int32_t                       n_used, y_head_stride;
};

// One matrix of a launch. Its row tiles are the blocks from first_block on in the grid's x.
struct matrix_part {
    device_ptr<const uint8_t> w;                       // (n_out, n_in) as gpu/weights.h lays it out
    device_ptr<const float>   bias;                    // n_out; may be null
    device_ptr<float>         y;                       // (n_tok, y_stride)
    int32_t                   n_out, y_stride;
    int32_t                   residual;                // y += result
    float                     scale;
    int32_t                   first_block, is_second;  // is_second: the matrix has the second format of a kernel for two
};

// Up to three matrices times the same activations, and what the launch does with the results; gpu/matmul.cuh stores them.
struct matrix_args {
    act_args                act;                // quantized weights: (n_tok, n_in)
    device_ptr<const float> x;                  // float weights: (n_tok, x_stride)
    device_ptr<uint32_t>    counter;            // one for each block_y: for the tail
    device_ptr<uint32_t>    tile_counters;      // n_blocks: of the blocks that share a tile
    device_ptr<float>       group_sums;         // (n_blocks, groups, 32): of blocks that share a tile
    act_args                result;             // q not null: a gated y also as int8
    norm_args               tail;               // in.at not null: the last block takes the norm of the finished rows
    matrix_part             part[3];
    int32_t                 n_parts, n_blocks;  // n_blocks: the grid's x
    int32_t                 n_in, n_tok, x_stride;
    int32_t                 round_groups;       // groups whose partials are in shared memory at one time
    // y of part 0 = act(part 0) * part 1, or act(part 0) where there is one part; both parts have the same blocks.
    int32_t                 gated;
    int32_t                 activation;         // enum activation
    int32_t                 n_shares = 1, unused = 0;  // n_shares: the grid's z; more than one: blocks share a tile (one token, not gated)
    expert_args             experts;            // not null: one part only
    ahead_args              ahead;              // with a tail
};

struct rope_args {
    heads_args              x;
    device_ptr<const float> angles;  // (n_tok, 2, n_freq): cosines, sines
    int32_t                 n_freq, half, neox, n_tok;
};

// The place of a cache layer's pages. Position p of token i lies in page pages[page_start[i] + p / 64].
struct cache_args {
    device_ptr<uint8_t>       base;            // this layer in the first page
    device_ptr<const int32_t> pages;
    device_ptr<const int32_t> page_start;
    device_ptr<const int32_t> pos;             // n_tok
    uint64_t                  page_bytes, k_bytes, v_bytes;
    int32_t                   type;            // DUET_CACHE_...
    int32_t                   n_kv_heads, k_dim, v_dim;
    int32_t                   v_in_k, unused;  // v_in_k: the values are the first v_dim elements of the keys; none are appended
};

struct append_args {
    cache_args cache;
    heads_args k, v;
    int32_t    n_tok, unused;
};

// What attention does to queries or keys before it uses them: rms norm of each head, then rope.
struct head_prepare {
    device_ptr<const float> w;       // head_dim, or heads w_stride apart; may be null
    device_ptr<const float> angles;  // (n_tok, 2, n_freq); null: no rope
    int32_t                 has_norm, w_stride;
    float                   eps;
    int32_t                 n_freq, half, neox;
};

struct attention_args {
    cache_args                cache;
    heads_args                q, out;
    heads_args                k, v;                  // of the tokens, appended first by this launch; k.at null: they are there
    head_prepare              q_prepare, k_prepare;  // used with k.at only
    act_args                  result;                // q not null: out also as int8 (v_dim % 32 == 0)
    device_ptr<uint32_t>      counter;               // split: for each x and y of the grid n_chunks / kMergeStep + 1
    device_ptr<const float>   sinks;                 // n_heads; may be null
    device_ptr<const float>   slopes;                // n_heads: ALiBi's slopes (exact_alibi); may be null
    device_ptr<const int32_t> until;                 // n_tok: the last positions that the tokens see
    device_ptr<const float>   q_factor;              // n_tok: factors of the queries; may be null
    device_ptr<float>         partial;               // split: (n_tok, n_heads, n_chunks, v_dim + 2): max, sum, weighted values
    float                     scale, cap;
    int32_t                   window, n_tok, n_chunks, heads_per_block, toks_per_block;
    int32_t                   both_ways;             // slopes are those of exact_alibi_both
    int32_t                   stage;                 // floats of shared memory for parts of keys and values: a multiple of kAttnPart
    int32_t                   value_step;            // positions of values in such a part
    int32_t                   group, n_slices;       // heads of a key/value head, and blocks that share them
    int32_t                   few_rows;              // that a block's values take with two to a thread
    ahead_args                ahead;                 // split: for the blocks from n_chunks on in the grid's z
};
// A block's threads bring 8 or 16 elements of keys or values each, a part. A thread adds up so many rows of a column.
// One of rope and kv_append takes kHeadsAtOnce heads.
constexpr int kAttnPart = kGpuThreads * 8, kAttnRows = 4, kHeadsAtOnce = 4;
constexpr int kMergeStep = 31;  // chunks of a group of a split attention, beside what the groups before it have become
constexpr int kRowWords = kAttnChunk + 8;  // of a row: scores, then maximum, sum, factors of old and new values, bounds
DUET_HD constexpr int attn_units(int cache_type) { return cache_type == DUET_CACHE_F16 ? 2 : 1; }
// In mode fast a block has a tile of rows, heads of at most kFastDim values, and in shared memory lines (gpu/simt.h) of
// queries, weights of positions and a chunk's keys or values: so many floats, by the longest kTileStride of all chips.
constexpr int kFastRows = 16, kFastDim = 128;
DUET_HD constexpr int fast_stage(int k_dim, int v_dim) {
    return (kAttnChunk / 32 * (k_dim > v_dim ? k_dim : v_dim) + (k_dim + kAttnChunk) / 32 * kFastRows) * kTileStride;
}
DUET_HD constexpr int attn_stride(int d) { return (d + 3) / 4 * 4; }

// The columns of the three views are paired in order, even where their heads differ.
struct elementwise_args {
    heads_args x, x2, y;  // x2.at may be null
    act_args   codes;     // q not null: y also as int8 (n % 32 == 0)
    int32_t    n, n_rows;
    int32_t    mode;      // elementwise_mode
    int32_t    act;       // enum activation
    float      scale, cap;
};
enum elementwise_mode : int32_t { kElementwiseActivate, kElementwiseAdd, kElementwiseScaleCap };

// Row j of the result: of row order[j] / n_used of x head order[j] % n_used or the only one, as int8 blocks or unchanged.
constexpr int kRowColumns = 4 * kGpuThreads;  // of a row that a block takes
struct rows_args {
    heads_args                x;
    device_ptr<const int32_t> order;  // null: row j is j
    act_args                  act;    // q null: floats go to out
    device_ptr<float>         out;    // (rows, out_stride)
    int32_t                   n_used, out_stride;
};

// Rows of weights as in the file, to be rearranged into the bricks of gpu/weights.h.
struct arrange_args {
    device_ptr<const uint8_t> from;  // (n_rows, row_bytes)
    device_ptr<uint8_t>       to;
    uint64_t                  row_bytes;
    int32_t                   n_in, n_rows;
};

struct route_args {
    device_ptr<const float> z;      // (n_tok, z_stride)
    device_ptr<const float> bias;   // n; may be null
    device_ptr<float>       out;    // (n_tok, out_stride)
    device_ptr<expert_tile> tiles;  // for one token: its choices; null: none
    int32_t                 n, z_stride, out_stride, n_used, n_groups, n_groups_used;
    int32_t                 sigmoid_scores, softmax_after, normalise;
    float                   scale;
};
constexpr int kRouteWords = 1024;  // words of shared memory, beside two for each expert

struct lists_args {
    device_ptr<const int32_t> ids;    // (n_tok, ids_stride); null: choice k is matrix k
    device_ptr<int32_t>       order;  // n_tok * n_used
    device_ptr<expert_tile>   tiles;  // zeros before
    int32_t                   n_tok, n_used, ids_stride, rows;
    int32_t                   by_matrix, unused;
};

struct expert_sum_args {
    heads_args              x;
    device_ptr<const float> routes;  // (n_tok, routes_stride)
    device_ptr<const float> w;       // one for each expert; may be null
    device_ptr<float>       y;
    int32_t                 routes_stride, y_stride, residual;
    float                   scale;
};

// A batch's tokens by sequence: rows[first[i]] .. rows[first[i + 1] - 1] are the tokens of the i-th sequence, in order.
struct seqs_args {
    device_ptr<const int32_t> first, slot, rows;  // slot: of the sequence's recurrent state
};

struct conv_gpu_args {
    device_ptr<const float> x;      // (n_tok, x_stride)
    device_ptr<float>       y;      // (n_tok, y_stride)
    device_ptr<const float> w;      // (n, n_taps)
    device_ptr<const float> bias;   // n; may be null
    device_ptr<float>       state;  // the state of slot 0: (n_taps - 1, n)
    uint64_t                slot_floats;
    seqs_args               seqs;
    int32_t                 x_stride, y_stride, n, n_taps;
    int32_t                 act, unused;
};

struct state_gpu_args {
    device_ptr<const float> x;                  // (n_tok, x_stride)
    device_ptr<float>       y;                  // (n_tok, y_stride)
    heads_args              step, decay;        // n_heads columns that give beta and decay, or Mamba-2's step
    device_ptr<const float> rate, bias, skip;   // n_heads; skip: Mamba-2 only
    device_ptr<float>       state;              // the state of slot 0: (n_heads, n_rows, n_cols)
    uint64_t                slot_floats;
    seqs_args               seqs;
    int32_t                 x_stride, y_stride, n_heads, n_groups, n_rows, n_cols;
    int32_t                 tiled_heads, cols;  // cols: columns to a block, 8 or 32
    float                   scale;
    int32_t                 row_stride;         // of the state in shared memory
};

struct argmax_args {
    device_ptr<const float> x;        // n
    device_ptr<int32_t>     out;      // 1: the lowest index of the largest value
    device_ptr<uint32_t>    counter;  // 1
    device_ptr<float>       best;     // n_blocks
    device_ptr<int32_t>     index;    // n_blocks
    int32_t                 n, n_blocks;
};

// A launch of a token in device memory, and the list of them (gpu/walk.cuh).
constexpr int kWalkArgBytes = 480;
struct alignas(16) walk_entry {
    int32_t  kernel;   // walk_kernel
    uint32_t x, y, z;  // the grid
    uint8_t  args[kWalkArgBytes];
};
struct walk_args {
    constant_ptr<const walk_entry> list;         // n
    device_ptr<uint32_t>           counter;      // of blocks that have done an entry
    int32_t                        n, n_blocks;  // n_blocks: the grid's x, all of them resident
};
// What a walk can do beside matrices: X(name, arguments, function...) is kernel_name.
#define DUET_WALKED(X)                                                                  \
    X(words, words_args, put_words)                                                     \
    X(norm, norm_args, norm<1>)                                                          \
    X(rope, rope_args, rope)                                                            \
    X(elementwise, elementwise_args, elementwise)                                       \
    X(rows, rows_args, take_rows)                                                       \
    X(argmax, argmax_args, argmax)                                                      \
    X(kv_append, append_args, kv_append)                                                \
    X(attention_split_f16, attention_args, attention<true, DUET_CACHE_F16, false, kHasWideWarps>) \
    X(expert_route, route_args, expert_route)                                           \
    X(expert_sum, expert_sum_args, expert_sum)
#define WALKED(name, ...) walk_##name,
enum walk_kernel : int32_t { walk_none = -1, walk_embed, walk_embed2, walk_matvec, DUET_WALKED(WALKED) };
#undef WALKED
// clang-format on

}  // namespace duet
