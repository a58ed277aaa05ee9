// gpu/matmul.cuh: matrix times many vectors (prefill), on int8 matrix units or dot instructions. Must not know: ops,
// drivers. Main path: gpu/launch.cpp -> gpu/kernels.def -> [gpu/matmul.cuh] -> gpu/weights.h, gpu/simt.h (tile_dot)

namespace duet {

// What a block computes: rows of a matrix from row0 on, with tokens first .. n_tok - 1.
struct block_tile {
    matrix_part part;
    int n_tok, first, row0;
};
DUET_DEVICE block_tile tile_of_block(const matrix_args& a) {
    // Blocks of the same rows run beside each other: one of them brings the weights to the second cache.
    const block_place here{block_y(), block_x(), 0};
    block_tile b{part_of(a, here.x), a.n_tok, 0, 0};
    b.first = first_token(a.experts, kMatmulToks, b.part, b.n_tok, here);
    b.row0 = (here.x - b.part.first_block) * kMatmulRows;
    return b;
}

// What a thread brings of a group to shared memory: 32 weights of a row, 32 codes of a token, and their scales.
template <class B>
struct brought_group {
    block_words<B> block{};
    uint32_t scales[gpu_scales<B>::kWords] = {};
    word4 codes[2] = {};
    act_scale token{};
};
static_assert(kMatmulThreads == kMatmulRows * kBlocksPerGroup && kMatmulRows == kMatmulToks);

template <class B>
DUET_DEVICE brought_group<B> bring(const matrix_args& a, const block_tile& at, int group) {
    const int i = thread_id() % kMatmulRows, b = thread_id() / kMatmulRows, tile = (at.row0 + i) / kRowTile,
              t = at.first + i;
    brought_group<B> v;
    if (tile * kRowTile < at.part.n_out) {
        const uint8_t* brick = brick_of<B, const uint8_t>(at.part.w, tile, group, group_count(a.n_in));
        v.block = load_block<B>(brick, i % kRowTile, b);
        load_scales<B>(brick, i % kRowTile, v.scales);
    }
    if (t < at.n_tok && group * kBlocksPerGroup + b < a.n_in / kBlock) {
        const size_t from = (size_t)t * (size_t)(a.act.q_stride / kBlock) + (size_t)(group * kBlocksPerGroup + b);
        for (int k = 0; k < 2; k++) v.codes[k] = ((const word4*)a.act.q)[from * 2 + k];
        v.token = a.act.scale[from];
    }
    return v;
}

template <class B, class Words>
DUET_DEVICE void put(const brought_group<B>& v, Words w, Words x, Words scale_w, Words scale_x) {
    const int i = thread_id() % kMatmulRows, b = thread_id() / kMatmulRows, to = i * kMatmulStride + b * 8;
    for (int j = 0; j < 8; j++) w[to + j] = block_word(v.block, j);
    for (int j = 0; j < 8; j++) x[to + j] = v.codes[j / 4].w[j % 4];
    ready_scale r{};
    DUET_UNROLL
    for (int k = 0; k < kBlocksPerGroup; k++)  // A constant index keeps registers from being indexed by a variable.
        if (k == b) r = read_scale<B>(v.scales, k);
    const int to_w = (b * kMatmulRows + i) * 4, to_x = (b * kMatmulToks + i) * 3;
    scale_w[to_w] = bits_of(r.d);
    if constexpr (B::kHasMin || kWideSubs<B>) scale_w[to_w + 1] = bits_of(r.m);
    if constexpr (B::kSubScales == 2) scale_w[to_w + 2] = pack_pair(r.sub[0], r.sub[1]);
    if constexpr (B::kSubScales == 2 && B::kHasMin) scale_w[to_w + 3] = pack_pair(r.min[0], r.min[1]);
    scale_x[to_x] = bits_of(v.token.d);
    if constexpr (B::kHasMin) scale_x[to_x + 1] = bits_of(v.token.t);
    if constexpr (B::kHasMin && B::kSubScales == 2) scale_x[to_x + 2] = v.token.sums;
}

#if DUET_FRAGMENTS
// Words for a group's tokens: codes, 16 bytes c of token i at place c ^ i % 8 of its eight; d, t, sums of each block.
constexpr int kStageScales = kMatmulToks * kGroup / 4, kStageWords = kStageScales + 3 * kBlocksPerGroup * kMatmulToks;
static_assert(2 * kStageWords <= kMatmulWords);

// As matmul_quant, where weights pass from memory to the matrix units in registers (gpu/simt.h, fragments); not in the
// emulator. Four warps have 16 rows x 64 tokens each. While a group is computed, tokens of the next are copied to the
// other half of shared memory. A lane's words of weights and scales take the place of those that have just been used.
template <class B>
DUET_DEVICE void matmul_fragments(const matrix_args& a) {
    block_tile at = tile_of_block(a);
    if (at.first >= at.n_tok) return;
    auto stages = shared_array<uint32_t>(0, 2 * kStageWords);
    constexpr int kTiles = kMatmulToks / 8, kOfToken = 1 + B::kHasMin * B::kSubScales;
    // With masks the compiler knows which bits are there, and what is an offset of a load.
    const int lane = thread_id() & 31, warp = thread_id() >> 5 & 3, g = lane >> 2, t = lane & 3;
    const int n_groups = group_count(a.n_in), here = at.row0 / kRowTile + warp / 2,
              last_tile = (at.part.n_out - 1) / kRowTile, tile = here < last_tile ? here : last_tile,
              row = warp % 2 * 16 + g;  // and row + 8
    const uint8_t* brick = brick_of<B, const uint8_t>(at.part.w, tile, 0, n_groups);
    // Bytes in shared memory: the lane's line of tokens, and what a thread brings, two blocks of a token. What is not
    // there nobody stores, or it is zeros on both sides. A lane's four tokens of 16 have their scales side by side.
    uint32_t half = 0, base = (uint32_t)__cvta_generic_to_shared(stages), brought = thread_id() >> 1 & 63,
             first_b = thread_id() % 2 * 2, n_here = (uint32_t)(at.n_tok - at.first),
             line = base + (lane / 16 * 8 + lane % 8) * kGroup + (lane / 8 % 2 ^ lane % 8) * 16,
             to_line = base + brought * kGroup + (2 * first_b ^ brought % 8) * 16,
             place = (brought & ~15u) + (brought & 6) * 2 + brought / 8 % 2 * 2 + brought % 2,
             to_scale = base + (kStageScales + first_b * kMatmulToks + place) * 4;
    uint32_t block_at = first_block(a.act, at.first + (int)(brought < n_here ? brought : n_here - 1), 0) + first_b;
    auto start_tokens = [&](uint32_t to_half, int n_left) {
        const int8_t* q = a.act.q + (size_t)block_at * kBlock;
        for (int k = 0; k < 2; k++) {
            const bool is_there = (int)first_b < n_left - k;
            for (int i = 0; i < 2; i++)
                start_copy<16>(to_line + to_half ^ (2 * k + i) * 16, q + k * kBlock + i * 16, is_there);
            for (int i = 0; i < kOfToken; i++)
                start_copy<4>(to_scale + to_half + (i * kBlocksPerGroup + k) * kMatmulToks * 4,
                              (const uint32_t*)(a.act.scale + block_at + k) + i, is_there);
        }
        block_at += kBlocksPerGroup;
    };
    float total[kTiles][4] = {};
    constexpr int kAhead = gpu_codes<B>::kHigh ? 2 : kBlocksPerGroup;  // blocks on their way: as many as do not spill
    lane_words<B> block[kAhead][2];
    uint32_t scale[2][gpu_scales<B>::kWords];
    for (int i = 0; i < kAhead * 2; i++) block[i / 2][i % 2] = load_lane<B>(brick, row + i % 2 * 8, i / 2, t);
    for (int i = 0; i < 2; i++) load_scales<B>(brick, row + 8 * i, scale[i]);
    start_tokens(half, a.n_in / kBlock);
    for (int n_left = a.n_in / kBlock; n_left > 0; n_left -= kBlocksPerGroup) {
        wait_for_copies();
        sync_block();
        if (n_left > kBlocksPerGroup) start_tokens(kStageWords * 4 - half, n_left - kBlocksPerGroup);
        float acc[kTiles][4];  // From -0 on the first fma is a product. Totals begin as +0.
        for (int i = 0; i < kTiles * 4; i++) acc[i / 4][i % 4] = -0.0f;
        DUET_UNROLL
        for (int b = 0; b < kBlocksPerGroup; b++) {
            __syncwarp();  // ptxas would begin with the next block, and spill.
            if (b == kBlocksPerGroup - kAhead) brick += n_left > kBlocksPerGroup ? gpu_brick<B>::kBytes : 0;
            uint32_t w[4];
            ready_scale r[2];
            for (int i = 0; i < 2; i++) {
                r[i] = read_scale<B>(scale[i], b);
                w[i] = fragment_word<B>(block[b % kAhead][i], t, false, false);
                w[2 + i] = fragment_word<B>(block[b % kAhead][i], t, true, false);
                block[b % kAhead][i] = load_lane<B>(brick, row + 8 * i, (b + kAhead) % kBlocksPerGroup, t);
                if (b == kBlocksPerGroup - 1) load_scales<B>(brick, row + 8 * i, scale[i]);
            }
            for (int tile2 = 0; tile2 < kTiles; tile2 += 2) {
                if constexpr (kWideSubs<B>) __syncwarp();  // Nor with the next tiles.
                uint32_t x[2][2];
                load_lines((line + half ^ b * 32) + tile2 * 8 * kGroup, x);
                float of[3][4] = {};  // d, t and sums of the lane's tokens
                const int from = (int)(half / 4) + kStageScales + 4 * t + b * kMatmulToks + tile2 * 8;
                for (int i = 0; i < kOfToken; i++)
                    load_words((const float*)stages, from + i * kBlocksPerGroup * kMatmulToks, of[i]);
                act_scale token[2][2];
                for (int k = 0; k < 4; k++) token[k / 2][k % 2] = {of[0][k], of[1][k], bits_of(of[2][k]), 0};
                for (int k = 0; k < 2; k++) add_fragments<B>(w, 0, x[k], r, token[k], acc[tile2 + k]);
            }
        }
        for (int i = 0; i < kTiles * 4; i++) total[i / 4][i % 4] = total[i / 4][i % 4] + acc[i / 4][i % 4];
        half = kStageWords * 4 - half;
    }
    at = tile_of_block(a);  // Nothing of it takes a register before.
    for (int i = 0; i < kTiles * 4; i++) {
        const int r = at.row0 + warp * 16 + g + i % 4 / 2 * 8, tok = at.first + i / 4 * 8 + 2 * t + i % 2;
        if (r < at.part.n_out && tok < at.n_tok) store_result(a.experts, at.part, r, tok, total[i / 4][i % 4]);
    }
}
#endif

// Stores a warp's tiles of 16 x 16 results, whose first row and token in the block these are.
DUET_DEVICE void store_tiles(const expert_args& e, const block_tile& at, int row0, int tok0, const float (&total)[16]) {
    for (int i = 0; i < 16; i++) {
        const int k = i % tile_elems(), row = at.row0 + row0 + tile_row(k),
                  tok = at.first + tok0 + i / tile_elems() * 16 + tile_token(k);
        if (row < at.part.n_out && tok < at.n_tok) store_result(e, at.part, row, tok, total[i]);
    }
}

// y[i][r] = dot(W[r], x[i]) for up to three matrices: results of quant/exact.h exact_dot
// W (n_out, n_in) in the bricks of weights.h; x (n_tok, n_in) int8 blocks; y (n_tok, n_out) f32
// grid (sum of ceil(n_out / 64) over the parts, ceil(n_tok / 64)), block kTileThreads,
//     shared kMatmulWords * 4 bytes; any warp width; moves W once per 64 tokens, x once per 64 rows
// The 16 tiles of 16 x 16 are dealt to the block's warps; the tiles of one warp share their rows. An output has one
// group sum and one total: a block of 32 costs its matrix instruction, two multiply-adds and a conversion, a group one
// add. source: own; order of sums: docs/numerics.md; quant/blocks.h reads the formats, and its head names ggml's
template <class B>
DUET_DEVICE void matmul_quant(const matrix_args& a) {
    wait_for_launches();
#if DUET_FRAGMENTS
    if constexpr (kHasFragments) return matmul_fragments<B>(a);
#endif
    const block_tile at = tile_of_block(a);
    if (at.first >= at.n_tok) return;
    auto w = shared_array<uint32_t>(0, kMatmulX);
    auto x = shared_array<uint32_t>((size_t)kMatmulX * 4, kMatmulScaleW - kMatmulX);
    auto scale_w = shared_array<uint32_t>((size_t)kMatmulScaleW * 4, kMatmulScaleX - kMatmulScaleW);
    auto scale_x = shared_array<uint32_t>((size_t)kMatmulScaleX * 4, kMatmulWords - kMatmulScaleX);
    const int n_groups = group_count(a.n_in);
    const int warp = thread_id() / warp_width(), n_tiles = warp_width() / 16;  // n_tiles: tiles of this warp
    const int row0 = warp * n_tiles / 4 * 16, tok0 = warp * n_tiles % 4 * 16;
    float total[16] = {}, acc[16];  // n_tiles tiles of tile_elems() outputs make 16 at either warp width.
    brought_group<B> next = bring<B>(a, at, 0);
    for (int group = 0; group < n_groups; group++) {
        if (group) sync_block();
        put(next, w, x, scale_w, scale_x);
        sync_block();
        if (group + 1 < n_groups) next = bring<B>(a, at, group + 1);  // comes while this group is computed
        loads_before();
        for (int i = 0; i < 16; i++) acc[i] = 0.0f;
        const int n_left = a.n_in / kBlock - group * kBlocksPerGroup,
                  n_blocks = n_left < kBlocksPerGroup ? n_left : kBlocksPerGroup;
        for (int b = 0; b < n_blocks; b++) {
            for (int tile = 0; tile < n_tiles; tile++) {
                int dot0[8] = {}, dot1[8] = {};
                const int t0 = tok0 + tile * 16, w_at = row0 * kMatmulStride + b * 8, x_at = t0 * kMatmulStride + b * 8;
                if constexpr (B::kSubScales == 2) {
                    tile_dot<16>(w, w_at, x, x_at, kMatmulStride, dot0);
                    tile_dot<16>(w, w_at + 4, x, x_at + 4, kMatmulStride, dot1);
                } else {
                    tile_dot<32>(w, w_at, x, x_at, kMatmulStride, dot0);
                }
                for (int e = 0; e < tile_elems(); e++) {
                    const int at_w = (b * kMatmulRows + row0 + tile_row(e)) * 4,
                              at_x = (b * kMatmulToks + t0 + tile_token(e)) * 3;
                    ready_scale r{float_of(scale_w[at_w]), 0.0f, {}, {}};
                    int s16[2] = {0, 0};
                    float t = 0.0f;
                    if constexpr (B::kHasMin || kWideSubs<B>) r.m = float_of(scale_w[at_w + 1]);
                    if constexpr (B::kSubScales == 2) unpack_pair(scale_w[at_w + 2], r.sub);
                    if constexpr (B::kSubScales == 2 && B::kHasMin) {
                        unpack_pair(scale_w[at_w + 3], r.min);
                        unpack_pair(scale_x[at_x + 2], s16);
                    }
                    if constexpr (B::kHasMin) t = float_of(scale_x[at_x + 1]);
                    const int dot[2] = {dot0[e], dot1[e]};
                    float& sum = acc[tile * tile_elems() + e];
                    sum = combine<B>(r, dot, float_of(scale_x[at_x]), t, s16, sum);
                }
            }
        }
        for (int i = 0; i < 16; i++) total[i] = total[i] + acc[i];
    }
    store_tiles(a.experts, at, row0, tok0, total);
}

// y[i][r] = dot(W[r], x[i]) for float weights: results of quant/exact.h exact_dot_float
// W (n_out, n_in) in the bricks of weights.h; x, y (n_tok, n) f32
// grid and what moves as above; block 256, shared kMatmulFloatWords * 4 bytes
// A thread has 4 rows x 4 tokens: 8 words of shared memory feed 16 fma. Tiles: [element][row or token]. source: own
template <class F>
DUET_DEVICE void matmul_float(const matrix_args& a) {
    using U = gpu_brick<F>;
    // Elements that a thread brings of one row and of one token.
    constexpr int kEach = kMatmulFloatStep / (kMatmulThreads / kMatmulRows);
    static_assert(kMatmulRows == kMatmulToks && kEach % U::kPerPiece == 0);
    wait_for_launches();
    const block_tile at = tile_of_block(a);
    if (at.first >= at.n_tok) return;
    auto w = shared_array<float>(0, kMatmulFloatStep * kMatmulRows);
    auto x = shared_array<float>((size_t)kMatmulFloatStep * kMatmulRows * 4, kMatmulFloatStep * kMatmulToks);
    const int n_groups = group_count(a.n_in), line = thread_id() % kMatmulRows, k0 = thread_id() / kMatmulRows * kEach;
    const int tile = (at.row0 + line) / kRowTile, tok = at.first + line;
    const int row_at = thread_id() / 16 * 4, tok_at = thread_id() % 16 * 4;
    const float* token = a.x + (size_t)tok * (size_t)a.x_stride + k0;
    const bool is_aligned = ((uintptr_t)token | (uintptr_t)a.x_stride * 4) % sizeof(word4) == 0;
    float_piece<F> piece[kEach / U::kPerPiece];
    float next[kEach];
    auto load = [&](int k) {
        const uint8_t* brick = brick_of<F, const uint8_t>(at.part.w, tile, k / kGroup, n_groups);
        for (int p = 0; p < kEach / U::kPerPiece; p++) {
            const int from = ((k % kGroup + k0) / U::kPerPiece + p) * kRowTile + line % kRowTile;
            piece[p] = {};
            if (tile * kRowTile < at.part.n_out)
                piece[p] = __builtin_bit_cast(float_piece<F>, load_stream(brick + (size_t)from * 16));
        }
        const int n = tok < at.n_tok ? a.n_in - k - k0 : 0, is_whole = is_aligned && n >= kEach;  // n: that are there
        if (is_whole) __builtin_memcpy(next, __builtin_assume_aligned(token + k, sizeof(word4)), sizeof next);
        for (int i = 0; i < kEach && !is_whole; i++) next[i] = i < n ? token[k + i] : 0.0f;
    };
    float total[16] = {}, acc[16] = {};
    load(0);
    for (int k = 0; k < a.n_in; k += kMatmulFloatStep) {
        if (k) sync_block();
        DUET_UNROLL
        for (int i = 0; i < kEach; i++) {
            w[(k0 + i) * kMatmulRows + line] = device_float(piece[i / U::kPerPiece].v[i % U::kPerPiece]);
            x[(k0 + i) * kMatmulToks + line] = next[i];
        }
        sync_block();
        if (k + kMatmulFloatStep < a.n_in) load(k + kMatmulFloatStep);  // comes while this step is computed
        for (int i = 0; i < kMatmulFloatStep && k + i < a.n_in; i++) {
            float row[4], col[4];
            load_words(w, i * kMatmulRows + row_at, row);
            load_words(x, i * kMatmulToks + tok_at, col);
            for (int j = 0; j < 16; j++) acc[j] = __builtin_fmaf(row[j / 4], col[j % 4], acc[j]);
        }
        if ((k + kMatmulFloatStep) % kGroup != 0 && k + kMatmulFloatStep < a.n_in) continue;
        for (int i = 0; i < 16; i++) {  // the group's end
            total[i] = total[i] + acc[i];
            acc[i] = 0.0f;
        }
    }
    for (int i = 0; i < 16; i++) {
        const int r = at.row0 + row_at + i / 4, t = at.first + tok_at + i % 4;
        if (r < at.part.n_out && t < at.n_tok) store_result(a.experts, at.part, r, t, total[i]);
    }
}

// The same in mode fast, where the chip has units for it: activations rounded to the format of the weights (of f16 at
// most 65504), products exact, sums in f32 in an order of the matrix units. A step is 64 elements; those of the next
// are loaded while it is computed. grid as above, shared kMatmulTileWords * 4 bytes; source: own
template <class F>
DUET_DEVICE void matmul_tiles(const matrix_args& a) {
    wait_for_launches();
    const block_tile at = tile_of_block(a);  // Experts' matmuls never come here (launch_tiles).
    constexpr int kHalf = kMatmulRows * kTileStride;
    static_assert(kMatmulRows == kMatmulToks && kMatmulThreads == 4 * kMatmulRows);
    auto w = shared_array<float>(0, 2 * kHalf), x = shared_array<float>((size_t)2 * kHalf * 4, 2 * kHalf);
    // A thread brings 8 of each 32 elements of a row and of a token. What is not there nobody stores.
    const int line = thread_id() / 4, part = thread_id() % 4, put = line * kTileStride + part * 4;
    const int here = (at.row0 + line) / kRowTile, last_tile = (at.part.n_out - 1) / kRowTile,
              tok = at.first + line < a.n_tok ? at.first + line : a.n_tok - 1;
    const uint8_t* pieces =
        brick_of<F, const uint8_t>(at.part.w, here < last_tile ? here : last_tile, 0, group_count(a.n_in)) +
        (part * kRowTile + line % kRowTile) * 16;
    const float* from = a.x + (size_t)tok * (size_t)a.x_stride;
    word4 next_w[2], next_x[2][2];
    auto load = [&](int k) {
        for (int i = 0; i < 2; i++) {
            const int first = k + i * 32 + part * 8;
            next_w[i] = load_stream(pieces + (size_t)(k / 32 + i) * 4 * kRowTile * 16);
            for (int j = 0; j < 2; j++) next_x[i][j] = first < a.n_in ? ((const word4*)(from + first))[j] : word4{};
        }
    };
    const int warp = thread_id() / warp_width(), n_tiles = warp_width() / 16;
    const int row0 = warp * n_tiles / 4 * 16, tok0 = warp * n_tiles % 4 * 16;
    float total[16] = {};
    load(0);
    for (int k = 0; k < a.n_in; k += 64) {
        if (k) sync_block();
        for (int i = 0; i < 2; i++) {
            float both[2][4];
            for (int j = 0; j < 4; j++) {
                const uint32_t* v = next_x[i][j / 2].w + j % 2 * 2;
                both[0][j] = float_of(next_w[i].w[j]);
                both[1][j] = float_of(round_pair<F>(float_of(v[0]), float_of(v[1])));
            }
            store4(w, i * kHalf + put, both[0]);
            store4(x, i * kHalf + put, both[1]);
        }
        sync_block();
        if (k + 64 < a.n_in) load(k + 64);
        for (int i = 0; i < 2; i++)
            for (int tile = 0; tile < n_tiles; tile++)
                tile_product<F>(w, i * kHalf + row0 * kTileStride, x, i * kHalf + (tok0 + tile * 16) * kTileStride,
                                total + tile * tile_elems());
    }
    store_tiles(a.experts, at, row0, tok0, total);
}

// Code without the units, which a newer chip may run, computes exactly. F32 is never launched.
template <class F>
DUET_DEVICE void matmul_fast(const matrix_args& a) {
    if constexpr (kHasFloatTiles && !__is_same(F, float_f32)) matmul_tiles<F>(a);
    else if constexpr (!__is_same(F, float_f32)) matmul_float<F>(a);
}

}  // namespace duet
