// gpu/arrange.cuh: rearranges rows of the file into the order of gpu/weights.h. It runs on the device while the next
// rows are copied. On the host it would take longer than the copy: the same loops on one core arranged 0.5 GB/s of Q4_0
// and 0.04 GB/s of Q4_K. Everything follows from code() and scale() of quant/blocks.h; a new format needs nothing here.
// Must not know: ops, drivers. Main path: gpu/store.cpp -> gpu/kernels.def -> [gpu/arrange.cuh] -> quant/blocks.h

namespace duet {

template <class B>
DUET_DEVICE uint32_t stored_code(const B& block, int i) {
    using C = gpu_codes<B>;
    const int v = block.code(i);
    if constexpr (C::kIsTable) {
        for (int k = 0; k < 16; k++)
            if (C::value(k) == v) return (uint32_t)k;
        return 0;
    }
    return (uint32_t)(v + C::kBias) & 255u;
}

// Puts the scales of the group's b-th 32 weights, from weight `first` of `block` on, into the group's words s.
template <class B>
DUET_DEVICE void put_scales(const B& block, int first, int b, uint32_t* s) {
    using S = gpu_scales<B>;
    const block_scale k0 = block.scale(first / 16), k1 = block.scale(first / 16 + 1);
    const uint32_t d = float_to_half(k0.d * (1.0f / kFraction<B>));
    if constexpr (S::kPower) {
        const uint32_t bits = bits_of(k0.d), e = bits >= 0x00800000u ? (bits >> 23) + 1 : bits == 0x00200000u ? 0 : 1;
        s[0] |= e << 8 * b;
    } else if constexpr (S::kSmall && !S::kMin) {
        s[b / 2] |= d << 16 * (b % 2);
    } else if constexpr (S::kSmall) {
        s[b] = d | (uint32_t)float_to_half(-k0.m) << 16;
    } else if constexpr (kWideSubs<B>) {
        s[b / 2] |= (uint32_t)(block.d[first / 16] | block.d[first / 16 + 1] << 8) << 16 * (b % 2);
    } else {
        s[0] = d | (S::kMin ? (uint32_t)float_to_half(k0.m) << 16 : 0);
        if constexpr (kPlain<B>) return;
        if constexpr (S::kTwo) {
            const uint32_t b0 = (uint32_t)(uint8_t)(S::kMin ? k0.sub | k0.min << 4 : k0.sub);
            const uint32_t b1 = (uint32_t)(uint8_t)(S::kMin ? k1.sub | k1.min << 4 : k1.sub);
            s[1 + b / 2] |= (b0 | b1 << 8) << 16 * (b % 2);
        } else {
            s[1] |= (uint32_t)(uint8_t)k0.sub << 8 * b;
            if constexpr (S::kMin) s[2] |= (uint32_t)k0.min << 8 * b;
        }
    }
}

// Rearranges rows of the file into bricks of gpu/weights.h, a thread a row of a brick. What is past the ends becomes 0.
// from (n_rows, n_in) weights W, rows row_bytes apart; to (ceil(n_rows / 32), n_groups) bricks
// grid (ceil(n_groups / 8), ceil(n_rows / 32)), block 256, shared 0; reads and writes each row once
// source: own; quant/blocks.h reads the formats, and its head names ggml's
template <class W>
DUET_DEVICE void arrange(const arrange_args& a) {
    using U = gpu_brick<W>;
    const int lane = thread_id() % kRowTile, row = block_y() * kRowTile + lane, n_groups = group_count(a.n_in);
    const int group = block_x() * (kGpuThreads / kRowTile) + thread_id() / kRowTile;
    if (group >= n_groups) return;
    uint8_t* brick = brick_of<W, uint8_t>(a.to, block_y(), group, n_groups);
    const W* from = (const W*)(a.from + (size_t)row * a.row_bytes);
    if constexpr (!kIsBlock<W>) {
        from += (size_t)group * kGroup;
        for (int i = 0; i < kGroup; i++) {
            W* to = (W*)(brick + (size_t)(i / U::kPerPiece * kRowTile + lane) * 16) + i % U::kPerPiece;
            *to = row < a.n_rows && group * kGroup + i < a.n_in ? from[i] : W{};
        }
    } else {
        using C = gpu_codes<W>;
        uint32_t s[gpu_scales<W>::kWords] = {};
        for (int b = 0; b < kBlocksPerGroup; b++) {
            const int at = group * kGroup + b * kBlock;
            uint32_t w[U::kBits] = {};
            if (row < a.n_rows && at < a.n_in) {
                const W& block = from[at / W::kElems];
                DUET_UNROLL
                for (int i = 0; i < kBlock; i++) {
                    const uint32_t code = stored_code(block, at % W::kElems + i);
                    const int j = i / 4;
                    w[j % C::kLow] |= (code & ((1u << C::kLow) - 1u)) << (8 * (i % 4) + C::kLow * (j / C::kLow));
                    if constexpr (C::kHigh > 0)
                        w[C::kLow + j % C::kHigh] |= (code >> C::kLow) << (8 * (i % 4) + C::kHigh * (j / C::kHigh));
                }
                put_scales(block, at % W::kElems, b, s);
            }
            for (int k = 0; k < U::kBits; k++) *stored_word<W>((uint32_t*)brick, lane, b, k) = w[k];
        }
        uint32_t* scales = (uint32_t*)(brick + U::kScalesAt);
        for (int k = 0; k < gpu_scales<W>::kWords; k++) scales[k * kRowTile + lane] = s[k];
    }
}

}  // namespace duet
