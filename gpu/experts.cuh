// gpu/experts.cuh: the choice of experts, the order of tokens by expert, and the weighted sum of their outputs.
// Around them, gpu/vector.cuh (take_rows) gathers the inputs, and gpu/matvec.cuh and gpu/matmul.cuh multiply tile by
// tile (expert_args). Must not know: ops, drivers.
// Main path: gpu/launch_experts.cpp -> gpu/kernels.def -> [gpu/experts.cuh] -> quant/exact_ops.h

namespace duet {

// out = ids of the n_used best of n experts, best first, then their weights (exact_route_scores, exact_route)
// z (n_tok, n) router logits; out (n_tok, 2 n_used); bias n, may be null
// grid (n_tok), block 256, shared (kRouteWords + 2 n) * 4 bytes; moves 4 n bytes per token; n_used, n_groups <= 256
// The place of an expert is the number of better ones. A thread counts them with n reads of shared memory.
// source: own; choice and groups: docs/numerics.md, Experts, after DeepSeek-V3 (arXiv 2412.19437)
DUET_DEVICE void expert_route(const route_args& a, const block_place& here = {}) {
    auto sum = shared_array<float>(0, kSumLanes);
    auto group = shared_array<uint32_t>(1024, 256);
    auto id = shared_array<int>(2048, 256);
    auto weight = shared_array<float>(3072, 256);
    auto score = shared_array<float>(kRouteWords * 4, a.n);
    auto key = shared_array<uint32_t>((size_t)(kRouteWords + a.n) * 4, a.n);
    const int j = thread_id(), tok = here.x, n = a.n;
    const float* z = a.z + (size_t)tok * a.z_stride;
    const bool is_softmax = !a.softmax_after && !a.sigmoid_scores;
    float top = 0.0f, lane = -float_of(0x7f800000u);
    if (is_softmax) {
        for (int i = j; i < n; i += kSumLanes) lane = z[i] > lane ? z[i] : lane;
        lane = segment_max(lane);
        if (j % kSegment == 0) sum[j / kSegment] = lane;
        sync_block();
        top = segment_max((float)sum[j % (kSumLanes / kSegment)]);
        if (z[0] != z[0]) top = z[0];
        sync_block();
        lane = 0.0f;
    }
    for (int i = j; i < n; i += kSumLanes) {
        const float s = a.softmax_after ? z[i] : a.sigmoid_scores ? exact_sigmoid(z[i]) : exact_exp(z[i] - top);
        score[i] = s;
        lane = lane + s;
    }
    const float total = is_softmax ? block_sum(sum, lane) : 1.0f;
    for (int i = j; i < n; i += kSumLanes) {
        const float s = is_softmax ? score[i] / total : score[i];
        score[i] = s;
        key[i] = exact_order(a.bias ? s + a.bias[i] : s);
    }
    sync_block();
    if (a.n_groups > 1) {  // The score of a group is the sum of its two best experts.
        const int size = n / a.n_groups;
        if (j < a.n_groups) {
            int first = j * size, second = -1;
            for (int i = first + 1; i < (j + 1) * size; i++) {
                if (key[i] > key[first]) {
                    second = first;
                    first = i;
                } else if (second < 0 || key[i] > key[second]) {
                    second = i;
                }
            }
            auto value = [&](int i) { return i < 0 ? 0.0f : a.bias ? score[i] + a.bias[i] : (float)score[i]; };
            group[j] = exact_order(value(first) + value(second));
        }
        sync_block();
        for (int i = j; i < n; i += kSumLanes) {
            const int g = i / size;
            const uint32_t mine = group[g];
            int place = 0;
            for (int h = 0; h < a.n_groups; h++) place += group[h] > mine || (group[h] == mine && h < g);
            if (place >= a.n_groups_used) key[i] = 0;
        }
        sync_block();
    }
    for (int i = j; i < n; i += kSumLanes) {
        const uint32_t mine = key[i];
        int place = 0;
        for (int q = 0; q < n; q++) place += key[q] > mine || (key[q] == mine && q < i);
        if (place >= a.n_used) continue;
        id[place] = i;
        weight[place] = score[i];
    }
    sync_block();
    float w = 0.0f, all = 0.0f;
    if (j < a.n_used) {
        w = a.softmax_after ? exact_exp(weight[j] - weight[0]) : (float)weight[j];
        sum[j] = w;
    }
    sync_block();
    if (j >= a.n_used) return;
    for (int k = 0; k < a.n_used; k++) all = all + sum[k];
    if (all < kMinRouteSum) all = kMinRouteSum;
    if (a.normalise || a.softmax_after) w = w / all;
    float* out = a.out + (size_t)tok * a.out_stride;
    out[j] = float_of((uint32_t)(int)id[j]);
    out[a.n_used + j] = w * a.scale;
    if (a.tiles) a.tiles[j] = {id[j], j, j + 1};
}

// order = the pairs (token, k) of a batch sorted by matrix; tiles = runs of at most `rows` pairs with the same matrix
// ids (n_tok, n_used), null: choice k is matrix k; order (n_tok * n_used); tiles: set to zero before the launch
// grid (ceil(n_tok * n_used / 256)), block 256, shared 1024 bytes; moves all ids per block, 4 bytes a pair, 12 a tile
// A tile's number is matrix + (rows before the matrix) / rows, or the tile's first row: launch_experts.cpp takes the
// numbering with the shorter list. Numbers that no tile has stay empty. source: own
DUET_DEVICE void expert_lists(const lists_args& a) {
    auto ids = shared_array<int>(0, kSumLanes);
    const int n = a.n_tok * a.n_used, pair = block_x() * kGpuThreads + thread_id();
    auto id_of = [&](int p) { return a.ids[(size_t)(p / a.n_used) * a.ids_stride + p % a.n_used]; };
    int mine = pair % a.n_used, before = mine * a.n_tok, rank = pair / a.n_used, count = a.n_tok;
    if (a.ids) {
        mine = pair < n ? id_of(pair) : 0;
        before = rank = count = 0;
        for (int first = 0; first < n; first += kSumLanes) {
            if (first) sync_block();
            if (first + thread_id() < n) ids[thread_id()] = id_of(first + thread_id());
            sync_block();
            const int n_here = n - first < kSumLanes ? n - first : kSumLanes;
            for (int i = 0; i < n_here; i++) {
                const int other = ids[i];
                before += other < mine;
                count += other == mine;
                rank += other == mine && first + i < pair;
            }
        }
    }
    if (pair >= n) return;
    a.order[before + rank] = pair;
    if (rank % a.rows) return;
    const int first = before + rank, end = count - rank < a.rows ? before + count : first + a.rows;
    a.tiles[a.by_matrix ? mine + before / a.rows + rank / a.rows : first] = {mine, first, end};
}

// y = scale * sum of weight[k] * x[k], k in order (exact_expert_sum); with residual added to y; with w, weight[k] is
// multiplied by w[id[k]] first; x (n_tok, n_used, n), routes (n_tok, 2 n_used), y (n_tok, n) f32
// grid (ceil(n / 256), n_tok), block 256, shared 0; moves (n_used + 1) * 4 bytes per element; source: own; numerics.md
DUET_DEVICE void expert_sum(const expert_sum_args& a, const block_place& here = {}) {
    const int i = here.x * kGpuThreads + thread_id(), tok = here.y;
    if (i >= a.x.head_dim) return;
    const float* routes = a.routes + (size_t)tok * a.routes_stride;
    const float* x = a.x.at + (size_t)tok * a.x.stride + i;
    float acc = 0.0f;
    for (int k = 0; k < a.x.n_heads; k++) {
        float weight = routes[a.x.n_heads + k];
        if (a.w) weight = weight * a.w[bits_of(routes[k])];
        acc = __builtin_fmaf(weight, x[(size_t)k * a.x.head_stride], acc);
    }
    if (a.scale != 1.0f) acc = acc * a.scale;
    float* y = a.y + (size_t)tok * a.y_stride + i;
    *y = a.residual ? *y + acc : acc;
}

}  // namespace duet
