// gpu/walk.cuh: a token as one launch. As many blocks as the chip holds at once walk the list of the token's launches:
// a block takes the blocks b, b + n_blocks, ... of each, and a barrier of all blocks stands between two launches.
// No sum changes its order, because a launch's blocks do what they do in a launch of their own.
// Must not know: ops, drivers.
// Main path: gpu/recordings.cpp -> gpu/kernels.def -> [gpu/walk.cuh] -> all other .cuh

namespace duet {

// Does block `here` of an entry. args: arguments of any launch.
template <class W, class W2>
DUET_DEVICE void walk_block(const walk_entry& e, const block_place& here) {
    switch (e.kernel) {
    case walk_embed: return embed<W>(*(const embed_args*)e.args, here);
    case walk_embed2: return embed<W2>(*(const embed_args*)e.args, here);
    case walk_matvec: return matvec<W, W2, 1>(*(const matvec_args*)e.args, here);
#define WALKED(name, args_type, ...)                                                                                   \
    case walk_##name: return __VA_ARGS__(*(const args_type*)e.args, here);
        DUET_WALKED(WALKED)
#undef WALKED
    }
}

// Does the entries of a list, one after another.
// grid (n_blocks), all resident at once; block 256, shared: the most of any entry; moves what the entries move
// source: own
template <class W, class W2>
DUET_DEVICE void walk(const walk_args& a) {
    if (a.n == 0) return;  // Somebody only asks whether the driver takes such a launch.
    for (int i = 0;;) {
        const walk_entry& e = block_args(a.list + i);
        const int n_x = (int)e.x, n_y = (int)e.y, n = n_x * n_y * (int)e.z;
        for (int k = block_x(); k < n; k += a.n_blocks) {
            walk_block<W, W2>(e, {k % n_x, k / n_x % n_y, k / n_x / n_y});
            sync_block();
        }
        if (++i == a.n) break;
        sync_grid(a.counter, (uint32_t)(i * a.n_blocks), i, [&] {});
    }
    is_last_block(a.counter, a.n * a.n_blocks, shared_array<int>(0, 1));  // Only the counter is cleared.
}

}  // namespace duet
