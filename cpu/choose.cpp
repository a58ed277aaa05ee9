// cpu/choose.cpp: the choices that cpu/choose.h describes.
// Main path: cpu/ops.cpp -> [cpu/choose.cpp] -> cpu/kernels.h
#include "choose.h"

#include <algorithm>

namespace duet {

int timed_choice::turn(int n, int i) const {
    const int k = i % (4 * n);
    return n < 2 || k >= n || is_decided(n) ? -1 : k;
}

void timed_choice::tell(int candidate, uint64_t ns, uint64_t work) {
    // What comes after the last turn is not looked at, so that a decision stays: a turn takes its place before it
    // counts.
    if (work == 0 || n_begun_[candidate].fetch_add(1, std::memory_order_relaxed) >= kTurns) return;
    const float cost = (float)std::max<uint64_t>(ns, 1) / (float)work;
    float old = cost_[candidate].load(std::memory_order_relaxed);
    while ((old == 0.0f || cost < old) &&
           !cost_[candidate].compare_exchange_weak(old, cost, std::memory_order_relaxed)) {}
    n_told_[candidate].fetch_add(1, std::memory_order_release);
}

int timed_choice::best(int n) const {
    int best = 0;
    for (int k = 1; k < n; k++)
        if (cost(k) > 0.0f && (cost(best) == 0.0f || cost(k) < cost(best))) best = k;
    return best;
}

bool timed_choice::is_decided(int n) const {
    for (int k = 0; k < n; k++)
        if (n_told_[k].load(std::memory_order_acquire) < kTurns) return false;
    return true;
}

timed_choice& choice_of(choice_kind kind, int32_t type, int n_tok) {
    static constexpr int kEnds[] = {1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 32, 40, 48, 64, 80, 96, 128};
    static timed_choice table[kChoiceKinds][kMaxTypeId][std::size(kEnds) + 1];
    return table[(int)kind][type][std::lower_bound(kEnds, std::end(kEnds), n_tok) - kEnds];
}

bool matmul_ways::has(matmul_way w) const { return std::find(way, way + n, w) != way + n; }

matmul_ways ways_of_matmul(const cpu_kernels& kernels, int32_t type, int n_tok, bool can_prepare) {
    const format_kernel& f = kernels.formats[type];
    const bool is_rounded = kernels.matmul_rounded && (kernels.rounded_types >> type & 1) != 0;
    matmul_ways w;
    const auto add = [&](bool can, matmul_way way) {
        if (can) w.way[w.n++] = way;
    };
    if (!f.is_vector) {
        add(true, matmul_way::scalar);
    } else if (is_rounded && can_prepare && n_tok >= kFastLeast) {
        add(true, matmul_way::rounded);
    } else if (f.is_float) {
        add(n_tok <= f.few_tokens, matmul_way::float_few);
        add(n_tok > f.few_tokens && n_tok <= f.some_tokens, matmul_way::float_some);
        add(n_tok > kFewMost, matmul_way::float_many);
    } else {
        const bool is_few = n_tok <= f.few_tokens, panels = f.takes_panels && can_prepare && n_tok >= kPanelLeast;
        add(is_few, matmul_way::rows);
        add(!is_few && kernels.matmul_amx, matmul_way::amx);
        add(panels && !is_few, matmul_way::panels);
        add(!is_few && !panels, matmul_way::tiles);
    }
    return w;
}

std::string describe_choice(const timed_choice& c, const matmul_ways& ways) {
    static const char* const kNames[] = {"scalar",    "rows",       "tiles",      "panels", "amx",
                                         "float_few", "float_some", "float_many", "rounded"};
    const int best = c.best(ways.n);
    std::string text;
    for (int i = 0; i < ways.n; i++) {
        const int k = i == 0 ? best : i <= best ? i - 1 : i;  // the best, then the others as they stand
        text += (i ? ", " : "") + std::string(kNames[(int)ways.way[k]]) + " " + std::to_string((int)(1 / c.cost(k)));
    }
    return text + " GMAC/s of one thread";
}

}  // namespace duet
