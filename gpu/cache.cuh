// gpu/cache.cuh: the attention cache: append, and chunks of kAttnChunk positions on their way to shared memory.
// A page holds, for each layer and each key/value head, the keys (k_dim, 64) transposed, then the values (64, v_dim).
// In q8_0 the codes keep these places, and f16 scales of 32 values follow. The bytes are those of cpu/attention.cpp.
// Must not know: ops, drivers. Main path: gpu/attention.cuh -> [gpu/cache.cuh] -> quant/exact.h

namespace duet {

DUET_DEVICE uint8_t* cache_chunk(const cache_args& c, int page, int kv_head) {
    return c.base + (size_t)page * c.page_bytes + (size_t)kv_head * (c.k_bytes + c.v_bytes);
}

constexpr int kUnit = 8;  // elements that a thread takes at once

// Eight elements as they lie in the cache. q8_0: their codes, and their scales in w.
template <int Type>
struct cache_unit {
    word4 w[Type == DUET_CACHE_F32 ? 2 : 1];
    uint64_t code;
};

// Loads kUnits units of each thread: of the n elements from `first` on of a chunk's keys or values, n and first being
// multiples of 8. No branch stands between the loads. Units past the end are loaded from the beginning.
template <int Type, bool IsKey, int Units>
DUET_DEVICE void load_part(const uint8_t* head, int d, int first, int n, cache_unit<Type> (&u)[Units]) {
    for (int k = 0; k < Units; k++) {
        const int at = k * kAttnPart + thread_id() * kUnit;
        const uint32_t e = (uint32_t)(first + (at < n ? at : 0));
        if constexpr (Type == DUET_CACHE_Q8_0) {
            const uint8_t* scales = head + (size_t)d * kAttnChunk;
            u[k].code = *(const uint64_t*)(head + e);
            if constexpr (IsKey)
                u[k].w[0] = *(const word4*)(scales + (e / (kBlock * kAttnChunk) * kAttnChunk + e % kAttnChunk) * 2);
            else u[k].w[0].w[0] = ((const uint32_t*)scales)[e / (2 * kBlock)] >> e / kBlock % 2 * 16;
        } else {
            for (int i = 0; i < (Type == DUET_CACHE_F32 ? 2 : 1); i++)
                u[k].w[i] = ((const word4*)head)[(Type == DUET_CACHE_F32 ? e / 4 : e / 8) + i];
        }
    }
}

// Makes part i of a tensor's `all` elements the next one, `step` elements to a part: u[0] has it. Where parts come two
// at a time, both of a pair are on their way at once, and the second is there already.
template <int Type, bool IsKey, int Ahead, int Units>
DUET_DEVICE void next_part(const uint8_t* head, int d, int all, int step, int i, cache_unit<Type> (&u)[Ahead][Units]) {
    for (int k = 0; k < Units && i % Ahead; k++) u[0][k] = u[Ahead - 1][k];
    for (int h = 0; h < Ahead && i % Ahead == 0; h++) {
        const int first = (i + h) * step, n = all - first < step ? all - first : step;
        load_part<Type, IsKey>(head, d, n > 0 ? first : 0, n, u[h]);
    }
}

// Writes them to shared memory as floats, in their order.
template <int Type, bool IsKey, int Units, class Shared>
DUET_DEVICE void store_part(const cache_unit<Type> (&u)[Units], int n, Shared stage) {
    auto half = [](const word4& w, int i) { return quick_half_to_float((uint16_t)(w.w[i / 2] >> i % 2 * 16)); };
    for (int k = 0; k < Units; k++) {
        const int at = k * kAttnPart + thread_id() * kUnit;
        if (at >= n) continue;
        for (int i = 0; i < kUnit; i += 4) {
            float v[4];
            for (int j = 0; j < 4; j++) {
                if constexpr (Type == DUET_CACHE_F16) v[j] = half(u[k].w[0], i + j);
                else if constexpr (Type == DUET_CACHE_F32) v[j] = float_of(u[k].w[i / 4].w[j]);
                else v[j] = half(u[k].w[0], IsKey ? i + j : 0) * (float)(int8_t)(u[k].code >> (i + j) * 8);
            }
            store4(stage, at + i, v);
        }
    }
}

// Writes element j of a key or value at position i of a chunk; returns what is read there. A segment has 32 of q8_0.
template <int Type>
DUET_DEVICE float cache_write(const cache_args& c, bool is_key, uint8_t* chunk, int i, int j, float x) {
    const int d = is_key ? c.k_dim : c.v_dim, at = is_key ? j * kAttnChunk + i : i * d + j;
    uint8_t* head = chunk + (is_key ? 0 : c.k_bytes);
    if constexpr (Type == DUET_CACHE_F16) {
        const uint16_t h = float_to_half(x);
        ((uint16_t*)head)[at] = h;
        return quick_half_to_float(h);
    } else if constexpr (Type == DUET_CACHE_F32) {
        ((float*)head)[at] = x;
        return x;
    } else {
        const lanes_codes<1> c32 = lanes_code((const float(&)[1])x);
        const uint16_t scale = float_to_half(c32.d);
        ((int8_t*)head)[at] = c32.code[0];
        if (j % kBlock == 0) {
            uint16_t* scales = (uint16_t*)(head + (size_t)d * kAttnChunk);
            scales[is_key ? j / kBlock * kAttnChunk + i : at / kBlock] = scale;
        }
        return quick_half_to_float(scale) * (float)c32.code[0];
    }
}

// Writes the batch's keys and values k, v (n_tok, n_kv_heads, dim) f32 to their places in the cache.
// grid (ceil(ceil(n_kv_heads / kHeadsAtOnce) * max(k_dim, v_dim) / 256), n_tok, 2: keys, values; 1 without values)
// block 256, shared 0; moves 4 + 2 (f16) bytes an element; q8_0 needs dims % 32 == 0 (runtime/session.cpp). source: own
DUET_DEVICE void kv_append(const append_args& a, const block_place& here = {}) {
    const bool is_key = here.z == 0;
    const heads_args& from = is_key ? a.k : a.v;
    const int d = is_key ? a.cache.k_dim : a.cache.v_dim, tok = here.y, e = here.x * kGpuThreads + thread_id(),
              first = e / d * kHeadsAtOnce, j = e % d, pos = a.cache.pos[tok], i = pos % kAttnChunk;
    const float* x = row_of(from, tok) + j;
    const int page = a.cache.pages[a.cache.page_start[tok] + pos / kAttnChunk];
    auto append = [&]<int Type>(cache_unit<Type>) {
        for (int h = first; h < first + kHeadsAtOnce && h < a.cache.n_kv_heads; h++)
            cache_write<Type>(a.cache, is_key, cache_chunk(a.cache, page, h), i, j, x[h * from.head_stride]);
    };
    if (a.cache.type == DUET_CACHE_F16) append(cache_unit<DUET_CACHE_F16>{});
    else if (a.cache.type == DUET_CACHE_F32) append(cache_unit<DUET_CACHE_F32>{});
    else append(cache_unit<DUET_CACHE_Q8_0>{});
}

}  // namespace duet
