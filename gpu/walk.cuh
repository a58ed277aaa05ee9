// gpu/walk.cuh: a token as one launch. As many blocks as the chip holds at once walk the list of the token's launches:
// a block takes the blocks b, b + n_blocks, ... of each, and a barrier of all blocks stands between two launches. No
// sum changes its order, because a launch's blocks do what they do in a launch of their own. Must not know: ops,
// drivers. Main path: gpu/recordings.cpp -> gpu/kernels.def -> [gpu/walk.cuh] -> all other .cuh

namespace duet {

// Does block k of an entry, whose arguments are those of any launch.
template <class W, class W2>
DUET_DEVICE void walk_block(const walk_entry& e, uint32_t k) {
    const block_place here{(int)(k % e.x), (int)(k / e.x % e.y), (int)(k / e.x / e.y)};
    switch (e.kernel) {
    case walk_embed: return embed<W>(*(const embed_args*)e.args, here);
    case walk_embed2: return embed<W2>(*(const embed_args*)e.args, here);
    case walk_matvec: return matvec<W, W2, 1>(*(const matrix_args*)e.args, here);
#define WALKED(name, args_type, ...)                                                                                   \
    case walk_##name: return __VA_ARGS__(*(const args_type*)e.args, here);
        DUET_WALKED(WALKED)
#undef WALKED
    }
}

// Starts to bring this block's part of the first weights of a matrix to the second cache.
template <class W>
DUET_DEVICE void fetch_weights(const walk_entry& e) {
    const matrix_args& a = *(const matrix_args*)e.args;
    const matrix_part& p = a.part[0];
    if (e.kernel != walk_matvec || a.experts.tiles || p.is_second) return;
    const uint32_t n_bricks = (uint32_t)((p.n_out + kRowTile - 1) / kRowTile * group_count(a.n_in));
    fetch_ahead({p.w, n_bricks * (uint32_t)gpu_brick<W>::kBytes, 0}, block_x());
}

// Does the entries of a list, one after another.
// grid (n_blocks), all resident at once; block 256, shared: the most of any entry; moves what they move; source: own
template <class W, class W2>
DUET_DEVICE void walk(const walk_args& a) {
    if (a.n == 0) return;  // Somebody only asks whether the driver takes such a launch.
    take_args((const walk_entry*)a.list);
    sync_block();
    for (int i = 0;;) {
        const walk_entry& e = block_args(a.list + i);
        for (uint32_t k = (uint32_t)block_x(); k < e.x * e.y * e.z; k += (uint32_t)a.n_blocks) {
            walk_block<W, W2>(e, k);
            sync_block();
        }
        if (++i == a.n) break;
        sync_grid(a.counter, (uint32_t)(i * a.n_blocks), i, [&] {
            take_args(a.list + i);
            sync_block();
            fetch_weights<W>(block_args(a.list + i));
        });
    }
    is_last_block(a.counter, a.n * a.n_blocks, shared_array<int>(0, 1));  // Only the counter is cleared.
}

}  // namespace duet
