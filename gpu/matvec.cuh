// gpu/matvec.cuh: matrix times one vector or a few (decode). A call reads the weights once. A lane owns a row, and a
// segment 32 rows; the segments of a block divide the groups of these rows among them. Must not know: ops, drivers.
// Main path: gpu/launch.cpp -> gpu/kernels.def -> [gpu/matvec.cuh] -> gpu/weights.h

namespace duet {

// A dot that started at 0, or at the bits of a float that is large against it: 12582912, or that divided by 1 << kTop
// for a dot that is 1 << kTop times as large. Then its bits are those of that float + dot while |dot| < 2^22 (it is
// below 2^19), and one exact subtraction makes it a float. A conversion costs twice as much.
constexpr int kRaised = 0x4b400000;
template <int Start>
struct started_int {
    int bits;
    DUET_DEVICE explicit operator int() const { return bits - Start; }
    DUET_DEVICE explicit operator float() const {
        return Start ? float_of((uint32_t)bits) - float_of((uint32_t)Start) : (float)bits;
    }
};

// Adds one block of 32 to a group sum, by the f32 steps of exact_block_dot (quant/exact.h), from dots that are already
// there. dot[1] counts only where a block has two sub-scales. Int: int or started_int.
template <class B, class Int>
DUET_DEVICE float combine(const ready_scale& w, const Int (&dot)[2], float da, float t, const int (&sums)[2],
                          float acc) {
    if constexpr (kWideSubs<B>) {
        acc = __builtin_fmaf(w.d * da, (float)dot[0], acc);
        acc = __builtin_fmaf(w.m * da, (float)dot[1], acc);
    } else if constexpr (B::kSubScales == 2) {
        acc = __builtin_fmaf(w.d * da, (float)(w.sub[0] * (int)dot[0] + w.sub[1] * (int)dot[1]), acc);
        if constexpr (B::kHasMin) {
            acc = __builtin_fmaf(-(w.m * (float)w.min[0]), da * (float)sums[0], acc);
            acc = __builtin_fmaf(-(w.m * (float)w.min[1]), da * (float)sums[1], acc);
        }
    } else {
        acc = __builtin_fmaf(w.d * da, (float)dot[0], acc);
        if constexpr (B::kHasMin) acc = __builtin_fmaf(w.m, t, acc);
    }
    return acc;
}

// The matrix of a block.
DUET_DEVICE matrix_part part_of(const matrix_args& a, int x) {
    matrix_part p = a.part[0];
    if (a.n_parts > 1 && x >= a.part[1].first_block) p = a.part[1];
    if (a.n_parts > 2 && x >= a.part[2].first_block) p = a.part[2];
    return p;
}

// Returns the block's first token; n_tok or more: it has nothing to do. With experts its tile chooses matrix and n_tok.
DUET_DEVICE int first_token(const expert_args& e, int per_block, matrix_part& p, int& n_tok,
                            const block_place& here = {}) {
    if (!e.tiles) return here.y * per_block;
    const expert_tile t = e.tiles[here.y];
    p.w += (size_t)t.matrix * e.matrix_bytes;
    if (p.bias) p.bias += (size_t)t.matrix * (size_t)p.n_out;
    n_tok = t.end;
    return t.first;
}

// Finishes one result: bias, then scale. store_result adds the residual. This is the order of the op list.
DUET_DEVICE float finish_result(const matrix_part& p, int row, float total) {
    const float v = p.bias ? total + p.bias[row] : total;
    return p.scale != 1.0f ? v * p.scale : v;
}
DUET_DEVICE void store_result(const expert_args& e, const matrix_part& p, int row, int tok, float total) {
    const float v = finish_result(p, row, total);
    const int pair = e.order ? e.order[tok] : tok;
    float* y = p.y + row;
    if (e.tiles) y += (size_t)(pair / e.n_used) * p.y_stride + (size_t)(pair % e.n_used) * e.y_head_stride;
    else y += (size_t)tok * p.y_stride;
    store_for_others(y, p.residual ? *y + v : v);  // for the norm of the tail
}

// The first of a group's blocks in a token's activations. It stays below 2^31 for 64 GB of them.
DUET_DEVICE uint32_t first_block(const act_args& a, int tok, int group) {
    return (uint32_t)tok * ((uint32_t)a.q_stride / kBlock) + (uint32_t)(group * kBlocksPerGroup);
}

// Calls put(i, row, sum) with the sums of one group of one row for n_tok tokens, at most NB. Codes and scales are made
// ready once, then a loop goes token by token. The other order (block by block, all tokens inside) kept the addresses
// of eight tokens in registers, spilled on NVIDIA, and took six times the code.
template <class B, int NB, class Args, class Put>
DUET_DEVICE void group_quant(const Args& a, const uint8_t* brick, int row, int group, int tok0, int n_tok, Put put) {
    using C = gpu_codes<B>;
    block_words<B> blocks[kBlocksPerGroup];
    uint32_t s[gpu_scales<B>::kWords], codes[kBlocksPerGroup][8];
    load_brick<B>(brick, row, blocks);
    load_scales<B>(brick, row, s);
    if constexpr (C::kIsTable) hold_all(blocks);
    loads_before();
    // Activations of one token come when codes are ready: fewer registers. Where they are no scalars, as two segments
    // make a warp, they come with the weights, to wait for both at once, and codes are made for two blocks at a time.
    constexpr bool kTogether = NB == 1 && kHasWideWarps, kAtOnce = NB > 1 || kTogether;
    for (int j = 0; j < kBlocksPerGroup * 8 && !kTogether; j++)
        codes[j / 8][j % 8] = block_word(blocks[j / 8], j % 8, !C::kIsTable);
    loads_before();
    wait_for_launches();  // Weights never change, so that those of the first group come while the launch before ends.
    const int n_blocks = (a.n_in - group * kGroup) / kBlock;  // 4 or more, but in the last group of a row
    auto sum = [&](int tok) {
        const uint32_t first = first_block(a.act, tok, group);
        word4 q[kBlocksPerGroup][2];
        act_scale scale[kBlocksPerGroup];
        // A block that is not there is computed with the activations of block 0 and thrown away: a branch would let the
        // compilers wait for the weights of each block by itself.
        auto load = [&](int b) {
            const uint32_t at = first + (b < n_blocks ? (uint32_t)b : 0u);
            const word4* from = (const word4*)a.act.q + at * 2;
            q[b][0] = load_constant(from);
            q[b][1] = load_constant(from + 1);
            scale[b] = __builtin_bit_cast(act_scale, load_constant((const word4*)(a.act.scale + at)));
        };
        for (int b = 0; b < kBlocksPerGroup && kAtOnce; b++) load(b);  // a wait for each token and not for each block
        if (kAtOnce) loads_before();
        float acc = 0.0f;
        DUET_UNROLL
        for (int b = 0; b < kBlocksPerGroup; b++) {
            if (!kAtOnce) load(b);
            for (int j = 0; j < 8 && kTogether; j++) codes[b][j] = block_word(blocks[b], j, !C::kIsTable);
            const bool is_there = b < n_blocks;
            const act_scale x = scale[b];
            int sums[2], dot[2] = {0, 0};
            unpack_pair(x.sums, sums);
            for (int j = 0; j < 4; j++) dot[0] = dot4(codes[b][j], q[b][0].w[j], dot[0]);
            for (int j = 0; j < 4; j++) dot[1] = dot4(codes[b][4 + j], q[b][1].w[j], dot[1]);
            if constexpr (B::kSubScales == 1) dot[0] += dot[1];
            if constexpr (C::kBias != 0) {  // In integers: sum (code - bias) q = sum code q - bias sum q.
                dot[0] -= C::kBias * (B::kSubScales == 1 ? sums[0] + sums[1] : sums[0]);
                dot[1] -= C::kBias * sums[1];
            }
            const float next = combine<B>(read_scale<B>(s, b), dot, x.d, x.t, sums, acc);
            acc = is_there ? next : acc;
            if (kTogether && b % 2) loads_before();
        }
        return acc;
    };
    for (int i = 0; i < (NB == 1 ? 1 : n_tok); i++) put(i, row, sum(tok0 + i));
}

#if DUET_FRAGMENTS
// Adds one block of 32 to the sums of two rows with two tokens, of which r and token are the scales. bias: is
// subtracted from the codes in w, in integers: sum (code - bias) x = sum code x - bias sum x.
template <class B>
DUET_DEVICE void add_fragments(const uint32_t (&w)[4], uint32_t bias, const uint32_t (&x)[2], const ready_scale (&r)[2],
                               const act_scale (&token)[2], float (&sum)[4]) {
    constexpr int kStart = B::kSubScales == 2 && !kWideSubs<B> ? 0 : kRaised - (kTop<B> << 23);
    int dot[2][4] = {};
    for (int half = 0; half < B::kSubScales; half++) {
        const uint32_t minus = (0u - bias & 255u) * (B::kSubScales == 1 ? 0x101u : half ? 0x100u : 1u);
        int start[2] = {kStart, kStart};
        for (int i = 0; i < 2 && bias; i++) start[i] = dot2(token[i].sums, minus, start[i]);
        if constexpr (B::kSubScales == 1) fragment_dot(w, x, start, dot[0]);
        else fragment_dot(w, x, start, dot[half], half);
    }
    for (int e = 0; e < 4; e++) {
        int sums[2];
        unpack_pair(token[e % 2].sums, sums);
        const started_int<kStart> both[2] = {{dot[0][e]}, {dot[1][e]}};
        sum[e] = combine<B>(r[e / 2], both, token[e % 2].d, token[e % 2].t, sums, sum[e]);
    }
}

// The same for 32 rows and at most 8 tokens by the matrix units (gpu/simt.h, fragments). Lane 4g + t brings words of
// rows g, g + 8, g + 16, g + 24 and of token g, and gets their sums with tokens 2t, 2t + 1. The emulator lacks it.
template <class B, class Args, class Put>
DUET_DEVICE void group_fragments(const Args& a, const uint8_t* brick, int group, int tok0, int n_tok, Put put) {
    using C = gpu_codes<B>;
    const int lane = thread_id() & 31, g = lane >> 2, t = lane & 3;
    plane_words<C::kLow> low[4];
    plane_words<C::kHigh> high[4];
    uint32_t s[4][gpu_scales<B>::kWords];
    for (int i = 0; i < 4; i++) {
        low[i].load(brick + g * 16 + i * 128, t);
        high[i].load(brick + g * 16 + i * 128 + C::kLow * kRowTile * 16, t);
        load_scales<B>(brick, g + 8 * i, s[i]);
    }
    wait_for_launches();
    // Of the last token, where there is none.
    auto first = [&](int i) { return first_block(a.act, tok0 + (i < n_tok ? i : n_tok - 1), group); };
    const uint32_t* x = (const uint32_t*)((const word4*)a.act.q + first(g) * 2) + t;
    const act_scale *scale = a.act.scale + first(2 * t), *scale2 = a.act.scale + first(2 * t + 1);
    float sum[2][4] = {};
    DUET_UNROLL
    for (int b = 0; b < kBlocksPerGroup; b++) {
        // A block that is not there has weights or scales of 0 (gpu/arrange.cuh) and meets block 0, so it adds a zero.
        // Its sign shows in no total, because totals begin as +0.
        const int at = b < (a.n_in - group * kGroup) / kBlock ? b : 0;
        const uint32_t words[2] = {x[at * (kBlock / 4)], x[at * (kBlock / 4) + 4]};
        const act_scale token[2] = {scale[at], scale2[at]};
        for (int half = 0; half < 2; half++) {
            uint32_t w[4];
            ready_scale r[2];
            for (int k = 0; k < 4; k++) {
                const int i = 2 * half + k % 2;
                lane_words<B> lane{};
                lane.low[k >= 2 && C::kLow == 8] = low[i].word(b, t, k >= 2);
                if constexpr (C::kHigh > 0) lane.high = high[i].word(b, t, k >= 2);
                w[k] = fragment_word<B>(lane, t, k >= 2, !C::kIsTable);
                r[k % 2] = read_scale<B>(s[i], b);
            }
            add_fragments<B>(w, kTop<B> ? 0 : C::kBias, words, r, token, sum[half]);
        }
    }
    for (int k = 0; k < 8; k++) put(2 * t + k % 2, g + 8 * (k / 2), sum[k / 4][k % 4]);
}
#endif

// The same for float weights: fma in the order of elements, each weight with all tokens. A lane has kPiecesAtOnce
// pieces on their way, those of a cut group that are not there too, which are zeros.
template <class F, int NB, class Args, class Put>
DUET_DEVICE void group_float(const Args& a, const uint8_t* brick, int row, int group, int tok0, int n_tok, Put put) {
    using U = gpu_brick<F>;
    constexpr int kPiecesAtOnce = NB == 1         ? 8
                                  : kHasWideWarps ? 2
                                                  : 4,
                  kAtOnce = kPiecesAtOnce * U::kPerPiece, kStep = 4;
    float acc[NB] = {};
    const int first = group * kGroup, n = a.n_in - first < kGroup ? a.n_in - first : kGroup;
    for (int p0 = 0; p0 * U::kPerPiece < n; p0 += kPiecesAtOnce) {
        float_piece<F> piece[kPiecesAtOnce];
        const uint8_t* pieces = brick + (size_t)(p0 * kRowTile + row) * 16;
        for (int i = 0; i < kPiecesAtOnce; i++)
            piece[i] = __builtin_bit_cast(float_piece<F>, load_stream(pieces + i * kRowTile * 16));
        loads_before();
        wait_for_launches();
        const float* x = a.x + first + p0 * U::kPerPiece;
        // Adds some elements from k on. Those of all tokens are waited for at once.
        auto add = [&](int k, int n_elems) {
            float v[NB][kStep];
            for (int i = 0; i < NB; i++) {
                const int tok = tok0 + (i < n_tok ? i : n_tok - 1);
                for (int j = 0; j < n_elems; j++) v[i][j] = load_constant(x + (size_t)tok * a.x_stride + k + j);
            }
            if (NB > 1) loads_before();
            for (int j = 0; j < n_elems; j++) {
                const float w = device_float(piece[(k + j) / U::kPerPiece].v[(k + j) % U::kPerPiece]);
                for (int i = 0; i < NB; i++) acc[i] = __builtin_fmaf(w, v[i][j], acc[i]);
            }
            if (NB > 1) loads_before();  // else too many registers
        };
        const int n_here = n - p0 * U::kPerPiece;
        if (n_here >= kAtOnce) {
            DUET_UNROLL
            for (int k = 0; k < kAtOnce; k += kStep) add(k, kStep);
        } else {
            DUET_UNROLL
            for (int k = 0; k < kAtOnce; k++)
                if (k < n_here) add(k, 1);
        }
    }
    for (int i = 0; i < NB; i++) put(i, row, acc[i]);
}

// Where the sum of a row with token i lies among 32: lanes that store rows of four pairs of tokens meet no bank twice.
DUET_DEVICE int sum_place(int i, int row) { return kHasFragments ? row ^ i / 2 % 4 * 8 : row; }

// Adds the sums of n groups, which all segments have put to shared memory, to the total of this lane's row.
template <class Shared>
DUET_DEVICE float add_groups(const matrix_args& a, Shared part, int slot, int n_tok, int n, bool goes_on, float total) {
    sync_block();
    if (slot < n_tok)
        for (int g = 0; g < n; g++)
            total = total + part[(slot * a.round_groups + g) * kRowTile + sum_place(slot, thread_id() % kRowTile)];
    if (goes_on) sync_block();
    return total;
}

constexpr int kShareLoads = 8;  // group sums that a thread reads at once

// Finds the totals of 32 rows, a row to a lane: segment i < NB gets those of token tok0 + i, if that token exists.
// A segment takes the groups slot, slot + n_slots, ... Partials go to shared memory as [token][group][row], and one
// lane per row and token adds them in order. Where blocks share a tile, each takes a range of groups, partials go to
// device memory, and the last of the blocks reads them all. Returns false for the others. All threads must call it.
template <class W, int NB, class Shared>
DUET_DEVICE bool tile_totals(const matrix_args& a, const block_place& here, const uint8_t* w, int tile, int tok0,
                             int n_all, Shared part, float* result) {
    const int row = thread_id() % kRowTile, slot = uniform_in_segment(thread_id() / kRowTile);
    constexpr int kSlots = kGpuThreads / kRowTile;
    const int n_groups = group_count(a.n_in), n_tok = NB > 1 && n_all - tok0 < NB ? n_all - tok0 : NB;
    const bool is_shared = NB == 1 && a.n_shares > 1;
    const int first = is_shared ? n_groups * here.z / a.n_shares : 0,
              end = is_shared ? n_groups * (here.z + 1) / a.n_shares : n_groups;
    const uint8_t* bricks = w + (size_t)tile * (size_t)n_groups * gpu_brick<W>::kBytes;
    float* sums = a.group_sums + (size_t)here.x * (size_t)n_groups * kRowTile;
    float total = 0.0f;
    for (int g0 = first; g0 < end; g0 += a.round_groups) {
        const int n_here = end - g0 < a.round_groups ? end - g0 : a.round_groups;
        for (int g = slot; g < n_here; g += kSlots) {
            const uint8_t* brick = bricks + (size_t)(g0 + g) * gpu_brick<W>::kBytes;
            auto put = [&](int i, int r, float sum) {
                part[(i * a.round_groups + g) * kRowTile + sum_place(i, r)] = sum;
            };
            if constexpr (!kIsBlock<W>) group_float<W, NB>(a, brick, row, g0 + g, tok0, n_tok, put);
#if DUET_FRAGMENTS
            else if constexpr (NB > 1 && kHasFragments) group_fragments<W>(a, brick, g0 + g, tok0, n_tok, put);
#endif
            // The lane's own row: with the one that comes back, gfx942 spills two scalars more (mxfp4).
            else group_quant<W, NB>(a, brick, row, g0 + g, tok0, n_tok, [&](int i, int, float s) { put(i, row, s); });
        }
        wait_for_launches();  // for segments that have no group
        if (!is_shared) total = add_groups(a, part, slot, n_tok, n_here, g0 + a.round_groups < n_groups, total);
        for (int g = slot; is_shared && g < n_here; g += kSlots)
            store_for_others(sums + (size_t)(g0 + g) * kRowTile + row, (float)part[g * kRowTile + row]);
    }
    if (is_shared) {
        if (!is_last_block(a.tile_counters + here.x, a.n_shares, shared_array<int>(0, 1))) return false;
        sync_block();
        for (int g0 = 0; g0 < n_groups; g0 += a.round_groups) {
            const int n_here = n_groups - g0 < a.round_groups ? n_groups - g0 : a.round_groups;
            for (int k0 = slot; k0 < n_here; k0 += kShareLoads * kSlots) {
                float v[kShareLoads];
                for (int k = 0; k < kShareLoads; k++) {
                    const int g = g0 + k0 + k * kSlots;
                    v[k] = sums[(size_t)(g < n_groups ? g : n_groups - 1) * kRowTile + row];
                }
                loads_before();
                DUET_UNROLL  // Rounds are whole multiples, so that no branch is needed. What is too much nobody adds.
                    for (int k = 0; k < kShareLoads; k++) part[(k0 + k * kSlots) * kRowTile + row] = v[k];
            }
            total = add_groups(a, part, slot, n_tok, n_here, g0 + a.round_groups < n_groups, total);
        }
    }
    *result = total;
    return true;
}

// y[i][r] = dot(W[r], x[i]) for up to three matrices: results of quant/exact.h exact_dot, exact_dot_float; or
// y = act(gate) * up, where two matrices give gate and up
// W (n_out, n_in) in the bricks of weights.h; x (n_tok, n_in) int8 blocks or f32; y (n_tok, n_out) f32
// grid (sum of ceil(n_out / 32) over the parts, or of one part when gated; ceil(n_tok / NB); n_shares), block 256
//     with experts: grid (.., tiles), at most NB rows to a tile, one part
// shared max(NB * round_groups * 128, 1028 with a tail) bytes; any warp width; moves gpu_weight_bytes(W) per NB tokens
// W2 is the format of the parts that are is_second. The block that finishes last does the tail, because a norm needs
// whole rows. source: own; order of sums: docs/numerics.md; quant/blocks.h reads the formats, and its head names ggml's
template <class W, class W2, int NB>
DUET_DEVICE void matvec(const matrix_args& a, const block_place& here = {}) {
    auto part = shared_array<float>(0, NB * a.round_groups * kRowTile);
    matrix_part p = part_of(a, here.x);        // Where parts are gated, the second begins behind the grid.
    if (a.experts.tiles) wait_for_launches();  // The tile says which weights to read.
    int n_tok = a.n_tok;
    const int slot = uniform_in_segment(thread_id() / kRowTile), tok0 = first_token(a.experts, NB, p, n_tok, here),
              tok = tok0 + slot;
    if (tok0 >= n_tok) return;
    const int tile = here.x - p.first_block, r = tile * kRowTile + thread_id() % kRowTile;
    // Parts of two formats are never gated (gpu/steps.cpp).
    const bool has_up = a.gated && a.n_parts > 1;
    const uint8_t* w = p.w;
    float total = 0.0f, gate = 0.0f;
    for (bool again = has_up;; again = false) {  // A loop, because the sums are most of the code.
        const bool is_done = __is_same(W, W2) || !p.is_second
                                 ? tile_totals<W, NB>(a, here, w, tile, tok0, n_tok, part, &total)
                                 : tile_totals<W2, NB>(a, here, w, tile, tok0, n_tok, part, &total);
        if (!is_done) return;  // Another block of the tile goes on.
        if (!again) break;
        gate = total;
        w = a.part[1].w;
        sync_block();
    }
    if (slot < NB && tok < n_tok) {
        if (!a.gated) {
            if (r < p.n_out) store_result(a.experts, p, r, tok, total);
        } else {
            float v = 0.0f;
            if (r < p.n_out) {
                gate = finish_result(p, r, has_up ? gate : total);
                const float up = has_up ? finish_result(a.part[1], r, total) : 0.0f;
                // Two calls, because an address that may be null would keep `up` in memory.
                v = has_up ? exact_activate((activation)a.activation, gate, &up)
                           : exact_activate((activation)a.activation, gate, nullptr);
                store_for_others(p.y + (size_t)tok * p.y_stride + r, v);
            }
            if (a.result.q) segment_quantize(v, a.result, tok, r);  // n_out % 32 == 0: launch_steps.cpp sees to it.
        }
    }
    if (NB > 1 || !a.tail.in.at) return;
    if (!is_last_block(a.counter + here.y, a.n_blocks, shared_array<int>(kSumLanes * 4, 1)))
        return fetch_ahead((&a.ahead)[late(0)], here.x);  // All arguments are late by this (docs/gpu_internals.md).
    norm<2>(a.tail, {0, tok0, 0});
}

// out[i] = row id[i] of W, times scale: values as quant/blocks.h decode(); W as above; out (n_tok, stride) f32
// grid (ceil(n_in / 256), n_tok), block 256, shared 0; moves a row of W per token; source: own
template <class W>
DUET_DEVICE void embed(const embed_args& a, const block_place& here = {}) {
    const int j = here.x * kGpuThreads + thread_id(), id = a.id ? a.id[here.y] : 0;
    if (j >= a.n_in) return;
    const int b = j % kGroup / kBlock, i = j % kBlock, row = id % kRowTile;
    const uint8_t* brick = brick_of<W, const uint8_t>(a.w, id / kRowTile, j / kGroup, group_count(a.n_in));
    float v;
    if constexpr (!kIsBlock<W>) {
        constexpr int kPerPiece = gpu_brick<W>::kPerPiece;
        v = to_float(((const W*)(brick + (size_t)(j % kGroup / kPerPiece * kRowTile + row) * 16))[j % kPerPiece]);
    } else {
        using C = gpu_codes<W>;
        const lane_words<W> lane = load_lane<W>(brick, row, b, i / 4 % 4);
        const uint32_t word = lane_word<W>(lane, i / 4 % 4, i >= 16, !C::kIsTable);
        uint32_t s[gpu_scales<W>::kWords];
        load_scales<W>(brick, row, s);
        ready_scale r{};
        DUET_UNROLL
        for (int k = 0; k < kBlocksPerGroup; k++)  // A constant index keeps registers from being indexed by a variable.
            if (k == b) r = read_scale<W>(s, k);
        const int code = (int)(int8_t)(word >> 8 * (i % 4)) - C::kBias;
        const bool is_upper = i >= 16;  // Without two sub-scales they are 1. r.m is minus the minimum of 32 weights.
        v = (kWideSubs<W> && is_upper ? r.m : r.d) * (float)(is_upper ? r.sub[1] : r.sub[0]) * (float)code;
        if constexpr (W::kHasMin) v = W::kSubScales == 1 ? v + r.m : v - r.m * (float)(is_upper ? r.min[1] : r.min[0]);
    }
    a.out[(size_t)here.y * a.stride + j] = a.scale != 1.0f ? v * a.scale : v;
}

}  // namespace duet
