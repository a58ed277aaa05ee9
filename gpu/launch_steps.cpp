// gpu/launch_steps.cpp: launches the steps of gpu/steps.cpp: matrix-vector products and attention, each with the ops
// around it or as a step of one op, and matmuls by tiles of 1, 8 or 64 tokens. Must not know: families, vendors.
// Main path: gpu/launch.cpp -> [gpu/launch_steps.cpp] -> gpu/driver.h, gpu/kernels.def
#include "context.h"
#include "executor.h"
#include "weights.h"

#include <algorithm>

namespace duet {

int step_tiles(const model_graph& g, const gpu_step& s) {
    int n = 0;
    for (int i = 0; i < s.n_matmuls; i++) {
        const weight& w = g.weights[(size_t)g.ops[(size_t)(s.first + i)].w];
        if (i == 0 || s.activate < 0) n += blocks_of((int)w.n_out / (s.halves ? 2 : 1), kRowTile);
    }
    return n;
}

cache_args cache_of(const gpu_context& c, int32_t index) {
    const cache_layer& layer = c.graph.caches[(size_t)index];
    const layer_place& place = c.layout.common.places[(size_t)index];
    const size_t group = (size_t)layer.group;
    return cache_args({c.cache + c.layout.common.group_offset[group] + place.offset, c.inputs, c.page_start[group],
                       c.pos, c.layout.common.page_bytes[group], place.k_bytes, place.v_bytes, c.limits.cache_type,
                       layer.n_kv_heads, layer.k_dim, layer.v_dim, layer.v_in_k, 0});
}

norm_args norm_of(const gpu_context& c, const op& o) {
    return {c.heads(o.in), c.heads(o.out), c.vector_of(o.w), c.vector_of(o.b), o.w_stride, (int32_t)o.norm, o.eps, 1,
            act_args{}};
}

duet_status quantize_input(gpu_context& c, const op& o, error_text& err) {
    if (!is_quantized(c.graph.weights[(size_t)o.w].type) || same_columns(c.quantized, o.in)) return DUET_OK;
    const rows_args a{{c.at(o.in), c.stride(o.in.buffer), 0, 1, o.in.width()}, nullptr, c.acts(), nullptr, 1, 0};
    c.quantized = o.in;
    return launch(c, kernel_rows, grid_of(c.n_rows(o.in), blocks_of(a.x.head_dim, kRowColumns)), a, err);
}

bool wants_quantized(const gpu_context& c, int32_t i, const view& result) {
    if ((size_t)i >= c.graph.ops.size()) return false;
    const op& o = c.graph.ops[(size_t)i];
    return o.kind == op_kind::matmul && is_quantized(c.graph.weights[(size_t)o.w].type) && same_columns(o.in, result);
}

namespace {

head_prepare prepare_of(const gpu_context& c, int32_t norm, int32_t rope) {
    head_prepare p{};
    if (norm >= 0) {
        const op& o = c.graph.ops[(size_t)norm];
        p.has_norm = 1, p.w = c.vector_of(o.w);
        p.w_stride = o.w_stride, p.eps = o.eps;
    }
    if (rope >= 0) {
        const op& o = c.graph.ops[(size_t)rope];
        p.angles = c.angles[(size_t)o.index];
        p.n_freq = (int32_t)c.graph.ropes[(size_t)o.index].freq.size();
        p.half = o.rope_dim / 2, p.neox = o.neox;
    }
    return p;
}

// Weights of the first matmul from op i on, and of its layer's others behind them in memory: no more than three blocks
// of each unit bring, as caches are small; seven of MI300X and MI355X, which have 256 MB behind their second caches.
ahead_args ahead_from(const gpu_context& c, int32_t i) {
    const auto last = c.graph.ops.end();
    const auto first = std::ranges::find(c.graph.ops.begin() + i, last, op_kind::matmul, &op::kind);
    if (first == last || c.batch->n_tok > 1 || !c.matrix_of(first->w)) return {};
    const uint64_t n_units = (uint64_t)c.store->info.n_units, most = (n_units > 255 ? 7 : 3) * n_units * kFetchBytes;
    const uint8_t *from = c.matrix_of(first->w), *end = from;
    for (auto o = first; o != last && o->layer == first->layer && o->n_used == 0; o++) {
        if (o->kind != op_kind::matmul) continue;
        const weight& w = c.graph.weights[(size_t)o->w];
        const uint64_t gap = (uintptr_t)c.matrix_of(o->w) - (uintptr_t)end;  // of vectors
        if (gap <= 4 * kFetchBytes) end += gap + gpu_weight_bytes(w.type, w.n_in, w.n_out);
    }
    return {from, (uint32_t)std::min(most, (uint64_t)(end - from)), 0};
}

// Launches a matrix-vector kernel for tiles of at most per_tile tokens.
duet_status launch_rows(gpu_context& c, int32_t kernel, matrix_args& a, int per_tile, int n_tiles, error_text& err) {
    // Blocks that share a tile read sums by 64 groups (gpu/matvec.cuh).
    a.round_groups = std::min((int)round_up((size_t)(a.n_in + kGroup - 1) / kGroup, a.n_shares > 1 ? 64 : 1),
                              per_tile == 1 ? 128 : 16);
    const int shared = std::max(per_tile * a.round_groups * kRowTile * 4, a.tail.in.at ? kSumLanes * 4 + 4 : 0);
    return launch(c, kernel, grid_of(a.n_blocks, n_tiles, a.n_shares, shared), a, err);
}

// How many blocks share the groups of a tile: as many as the chip runs at once.
int shares_of(const gpu_context& c, const matrix_args& a, int32_t type) {
    const int n_groups = (a.n_in + kGroup - 1) / kGroup;
    // The room is for whole steps. A matrix of a step that runs by itself may want more.
    const bool has_room = (size_t)a.n_blocks * (size_t)n_groups * kRowTile * 4 <= c.layout.share_bytes &&
                          (size_t)(kTailCounters + a.n_blocks) <= c.layout.counter_count - kBestInts;
    if (a.n_tok != 1 || a.gated || !has_room) return 1;
    const int n_at_once = (vec_threads(type) > 2048 ? c.store->info.vec_blocks : 2) * c.store->info.n_units;
    return std::max(1, std::min({n_at_once / a.n_blocks, n_groups / kShareGroups, kMostShares}));
}

}  // namespace

matrix_args matrices_of(const gpu_context& c, int32_t first, int32_t n, int n_tok, int rows_per_block) {
    const op& o = c.graph.ops[(size_t)first];
    const weight& w = c.graph.weights[(size_t)o.w];
    matrix_args a{};
    a.act = c.acts();
    a.x = c.at(o.in);
    a.n_in = (int)w.n_in;
    a.n_tok = n_tok;
    a.x_stride = c.stride(o.in.buffer);
    a.n_parts = n;
    for (int32_t i = 0; i < n; i++) {
        const op& m = c.graph.ops[(size_t)(first + i)];
        const weight& mw = c.graph.weights[(size_t)m.w];
        a.part[i] = {c.matrix_of(m.w), c.vector_of(m.b), c.at(m.out), (int)mw.n_out,    c.stride(m.out.buffer),
                     m.residual,       m.scale,          a.n_blocks,  mw.type != w.type};
        a.n_blocks += blocks_of((int)mw.n_out, rows_per_block);
    }
    return a;
}

static duet_status launch_matvec(gpu_context& c, const gpu_step& s, int n_tok, error_text& err) {
    const op& o = c.graph.ops[(size_t)s.first];
    const weight& w = c.graph.weights[(size_t)o.w];
    matrix_args a = matrices_of(c, s.first, s.n_matmuls, n_tok, kRowTile);
    a.counter = c.counters;
    view result = s.activate >= 0 ? c.graph.ops[(size_t)s.activate].out : o.out;
    if (s.activate >= 0) {
        a.gated = true;
        a.activation = (int32_t)c.graph.ops[(size_t)s.activate].act;
        matrix_part &gate = a.part[0], &up = a.part[1];
        if (s.halves) {
            a.n_parts = 2;
            gate.n_out /= 2;
            up = gate;
            up.w += gpu_weight_bytes(w.type, w.n_in, gate.n_out);
            if (up.bias) up.bias += gate.n_out;
        }
        up.first_block = a.n_blocks = blocks_of(gate.n_out, kRowTile);
        gate.y = c.at(result), gate.y_stride = c.stride(result.buffer);
    }
    a.n_shares = shares_of(c, a, w.type);
    a.tile_counters = c.counters + kTailCounters;
    a.group_sums = c.group_sums;
    c.wrote(result);
    if (s.norm >= 0) {
        const op& norm = c.graph.ops[(size_t)s.norm];
        result = norm.out;
        c.wrote(result);
        a.tail = norm_of(c, norm);
        a.ahead = ahead_from(c, s.first + s.n_ops);
    }
    const bool has_codes = s.norm >= 0 || (a.gated && a.part[0].n_out % kBlock == 0);
    if (has_codes && wants_quantized(c, s.first + s.n_ops, result))
        (s.norm >= 0 ? a.tail.act : a.result) = c.next_acts(result);
    const int32_t kernel = s.second_type < 0 ? kernel_of(w.type, kMatvec) : pair_kernel(w.type, s.second_type);
    return launch_rows(c, kernel + (n_tok > 1), a, n_tok == 1 ? 1 : 8, blocks_of(n_tok, n_tok == 1 ? 1 : 8), err);
}

duet_status launch_matmuls(gpu_context& c, const gpu_step& s, error_text& err) {
    const auto type = [&](int32_t i) { return c.graph.weights[(size_t)c.graph.ops[(size_t)(s.first + i)].w].type; };
    const op& o = c.graph.ops[(size_t)s.first];
    const int n_tok = c.n_rows(o.in);
    if (n_tok == 0) return DUET_OK;
    DUET_TRY(quantize_input(c, o, err));
    for (int32_t i = 0; i < s.n_matmuls; i++) c.wrote(c.graph.ops[(size_t)(s.first + i)].out);
    if (n_tok <= kSmallBatch) return launch_matvec(c, s, n_tok, err);
    for (int32_t i = 0, n; i < s.n_matmuls; i += n) {  // A launch for each format.
        for (n = 1; i + n < s.n_matmuls && type(i + n) == type(i);) n++;
        matrix_args a = matrices_of(c, s.first + i, n, n_tok, kMatmulRows);
        DUET_TRY(launch_tiles(c, type(i), a, kMatmulToks, blocks_of(n_tok, kMatmulToks), err));
    }
    return DUET_OK;
}

// How many rows of blocks one launch may take where each computes n_products.
static int tiles_per_launch(const gpu_context& c, uint64_t n_products) {
    return (int)std::clamp<uint64_t>(c.store->launch_products / std::max<uint64_t>(n_products, 1), 1, UINT16_MAX);
}

static act_args acts_from(act_args a, int tok) {
    if (a.q) a.q += (size_t)tok * (size_t)a.q_stride;
    if (a.q) a.scale += (size_t)tok * (size_t)a.q_stride / kBlock;
    return a;
}
static heads_args heads_from(heads_args a, int tok) {
    if (a.at) a.at += (size_t)tok * (size_t)a.stride;
    return a;
}

// The arguments of the tiles from `tile` on.
static matrix_args matrices_from(matrix_args a, int tile) {
    const int tok = tile * kMatmulToks;
    if (a.experts.tiles) {
        a.experts.tiles += tile;
        return a;
    }
    a.act = acts_from(a.act, tok);
    if (a.x) a.x += (size_t)tok * (size_t)a.x_stride;
    for (matrix_part& p : a.part) p.y += (size_t)tok * (size_t)p.y_stride;
    a.n_tok -= tok;
    return a;
}

// The arguments of n tokens from tok on.
static attention_args attention_from(attention_args a, int tok, int n) {
    a.cache.page_start += tok;
    a.cache.pos += tok;
    a.until += tok;
    a.q = heads_from(a.q, tok), a.out = heads_from(a.out, tok);
    a.k = heads_from(a.k, tok), a.v = heads_from(a.v, tok);
    if (a.q_prepare.angles) a.q_prepare.angles += (size_t)tok * 2 * (size_t)a.q_prepare.n_freq;
    if (a.k_prepare.angles) a.k_prepare.angles += (size_t)tok * 2 * (size_t)a.k_prepare.n_freq;
    a.result = acts_from(a.result, tok);
    if (a.q_factor) a.q_factor += tok;
    a.n_tok = n;
    return a;
}

static bool has_fast_type(int32_t type) { return type == type_id::f16 || type == type_id::bf16; }
bool has_fast_code(const model_graph& g, const op& o) {
    if (o.kind == op_kind::matmul) return has_fast_type(g.weights[(size_t)o.w].type);
    if (o.kind != op_kind::attention || o.alibi != 0.0f) return false;
    const cache_layer& c = g.caches[(size_t)o.index];
    return !c.v_in_k && c.k_dim % 32 == 0 && c.v_dim % 16 == 0 && std::max(c.k_dim, c.v_dim) <= kFastDim;
}

duet_status launch_tiles(gpu_context& c, int32_t type, matrix_args& a, int per_tile, int n_tiles, error_text& err) {
    if (per_tile < kMatmulToks)
        return launch_rows(c, kernel_of(type, per_tile == 1 ? kMatvec : kMatvec8), a, per_tile, n_tiles, err);
    // A product costs an eighth of one of attention, or a quarter with float weights.
    const bool quantized = is_quantized(type);
    const uint64_t n_products =
        (uint64_t)kMatmulToks * (size_t)a.n_in * (size_t)a.n_blocks * kMatmulRows / (quantized ? 8 : 4);
    // Not experts: whether they come here depends on their tokens, and so would the bits on how a batch is cut.
    const bool is_fast = c.limits.fast && c.store->info.has_fast && !a.experts.tiles && has_fast_type(type) &&
                         a.n_in % 8 == 0 && a.x_stride % 4 == 0 && (uintptr_t)(const float*)a.x % sizeof(word4) == 0;
    const int step = tiles_per_launch(c, n_products), n_words = quantized ? kMatmulWords
                                                                : is_fast ? kMatmulTileWords
                                                                          : kMatmulFloatWords;
    for (int y = 0; y < n_tiles; y += step) {
        const gpu_grid grid = grid_of(std::min(step, n_tiles - y), a.n_blocks, 1, n_words * 4,
                                      quantized ? c.store->info.tile_threads : kMatmulThreads);
        DUET_TRY(launch(c, kernel_of(type, is_fast ? kFast : kMatmul), grid, matrices_from(a, y), err));
    }
    return DUET_OK;
}

duet_status launch_attention(gpu_context& c, const gpu_step& s, error_text& err) {
    const op& o = c.graph.ops[(size_t)s.attention];
    attention_args a{};
    a.cache = cache_of(c, o.index);
    a.q = c.heads(o.in), a.out = c.heads(o.out);
    a.sinks = c.vector_of(o.w);
    a.slopes = c.slopes[(size_t)s.attention];
    a.q_factor = o.temperature_scale != 0.0f ? (const float*)c.q_factor : nullptr;
    a.counter = c.counters;
    a.partial = (float*)c.partial;
    a.scale = o.scale, a.cap = o.cap;
    const size_t group_of_layer = (size_t)c.graph.caches[(size_t)o.index].group;
    a.window = c.graph.groups[group_of_layer].window;
    a.until = o.both_ways ? c.until[group_of_layer] : c.pos;
    a.both_ways = o.both_ways;
    a.n_tok = c.batch->n_tok, a.n_chunks = c.n_chunks;
    if (s.append >= 0) {
        const op& append = c.graph.ops[(size_t)s.append];
        a.k = c.heads(append.in), a.v = c.heads(append.in2);
        a.q_prepare = prepare_of(c, s.q_norm, s.q_rope);
        a.k_prepare = prepare_of(c, s.k_norm, s.k_rope);
        c.wrote(append.in);
    }
    c.wrote(o.in);
    c.wrote(o.out);
    if (a.n_tok <= kSmallBatch && a.cache.v_dim % kBlock == 0 && wants_quantized(c, s.attention + 1, o.out))
        a.result = c.next_acts(o.out);
    const int group = o.in.n_heads / a.cache.n_kv_heads, k_dim = a.cache.k_dim, v_dim = a.cache.v_dim;
    // With a token of each sequence, also where blocks that walk all chunks would leave units idle.
    const bool is_few = s.append >= 0 && a.n_tok * a.cache.n_kv_heads < 2 * c.store->info.n_units;
    const bool split = (a.n_chunks > 1 || c.kept) && (a.n_tok <= kSplitTokens || is_few);
    // Rows that a block's threads take at once, and that fit its 48 kB of shared memory beside the stage.
    const int width = a.cache.v_in_k ? kGpuThreads / 2 : v_dim, wide = (split ? 1 : 2) * kGpuThreads;
    const bool is_fast = c.limits.fast && c.store->info.has_fast && a.n_tok > kSmallBatch && s.append < 0 &&
                         a.cache.type == DUET_CACHE_F16 && has_fast_code(c.graph, o);
    int most = is_fast ? kFastRows : std::min(16, kAttnRows * std::max(1, wide / width));
    const auto floats = [&](int rows) {  // Regions of attention(): q, key and value, o, score, state, stage.
        return (rows + !is_fast) * (attn_stride(k_dim) + attn_stride(v_dim)) + rows * kRowWords + a.stage;
    };
    a.stage = is_fast ? fast_stage(k_dim, v_dim) : attn_units(a.cache.type) * kAttnPart;
    while (most > 1 && floats(most) > 12 << 10) most--;
    a.heads_per_block = std::min({group, 8, most});
    // Heads have blocks of their own while there are no more blocks than units.
    const int n_here = a.n_tok * a.n_chunks * a.cache.n_kv_heads, n_units = c.store->info.n_units;
    for (int& n = a.heads_per_block; split && n > 1 && n_here * blocks_of(group, n) <= n_units;) n = (n + 1) / 2;
    a.toks_per_block = split || s.append >= 0 ? 1 : std::max(1, most / a.heads_per_block);
    a.group = group;
    a.n_slices = blocks_of(group, a.heads_per_block);
    const int at_once = a.cache.v_in_k ? kAttnChunk : std::min(a.stage / v_dim, kAttnChunk);
    a.value_step = v_dim % 8 ? at_once / 8 * 8 : at_once / 4 * 4;  // Each part begins at a multiple of 8 elements.
    a.few_rows = 2 * (wide / std::min(v_dim, wide));
    a.ahead = ahead_from(c, s.attention + 1);
    const uint64_t n_products = (uint64_t)a.toks_per_block * (size_t)o.in.n_heads *
                                (size_t)(a.cache.k_dim + a.cache.v_dim) * (size_t)a.n_chunks * kAttnChunk;
    const int n_tok = a.n_tok, step = split ? n_tok : tiles_per_launch(c, n_products) * a.toks_per_block,
              shared = floats(a.heads_per_block * a.toks_per_block) * 4;
    static_assert(kernel_attention_f32 == kernel_attention_f16 + 2 * DUET_CACHE_F32 &&
                  kernel_attention_q8_0 == kernel_attention_f16 + 2 * DUET_CACHE_Q8_0 &&
                  kernel_attention_split_q8_0 == kernel_attention_q8_0 + 1);
    // The kernels stand in kernels.def in the order of the cache types.
    for (int tok = 0; tok < n_tok; tok += step) {
        const attention_args part = attention_from(a, tok, std::min(step, n_tok - tok));
        const int x = a.cache.n_kv_heads * a.n_slices, y = blocks_of(part.n_tok, a.toks_per_block),
                  more = std::min(blocks_of((int)a.ahead.n_bytes, x * kFetchBytes), kMoreChunks);
        const gpu_grid grid = grid_of(x, y, split ? a.n_chunks + more : 1, shared);
        const int32_t exact = kernel_attention_f16 + 2 * a.cache.type + split;
        DUET_TRY(launch(c, is_fast ? kernel_fast_attention : exact, grid, part, err));
    }
    return DUET_OK;
}

}  // namespace duet
