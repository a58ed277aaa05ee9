// models/merge_queue.h: merges neighbours of a sequence, the best pair first, in near-linear time. BPE and SPM are
// built on it. Owns: the order of merges. Must not know: what the symbols are.
// Main path: models/tokenizer_bpe.cpp -> [models/merge_queue.h]
#pragma once
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <queue>
#include <vector>

namespace duet {

constexpr uint32_t kNoRank = UINT32_MAX, kNoSymbol = UINT32_MAX;

struct merge_symbol {
    uint32_t prev, next;      // kNoSymbol at the ends
    uint32_t start;           // first byte
    int32_t id;               // token, or -1
    uint32_t rank = kNoRank;  // rank of the merge with the next symbol
    int32_t merged = -1;      // token that this merge gives
};

// A priority queue of keys, smallest first. Nearly every merge makes pairs that rank behind the pair just taken. A
// radix heap serves these without comparing (Ahuja, Mehlhorn, Orlin, Tarjan: Faster algorithms for the shortest path
// problem, 1990); the exceptions wait in a binary heap. Measured on a word of 5 MB: a third of the time of a binary
// heap alone, whose levels miss the cache.
class merge_queue {
  public:
    void push(uint64_t key) {
        if (key < last_) early_.push(key);
        else buckets_[std::bit_width(key ^ last_)].push_back(key);
    }
    bool pop(uint64_t* key) {
        if (!early_.empty()) {
            *key = early_.top();
            early_.pop();
            return true;
        }
        size_t i = 0;
        while (i < kBuckets && buckets_[i].empty()) ++i;
        if (i == kBuckets) return false;
        if (i > 0) {
            std::vector<uint64_t>& from = buckets_[i];
            last_ = std::ranges::min(from);
            for (uint64_t k : from) buckets_[std::bit_width(k ^ last_)].push_back(k);
            from.clear();
        }
        *key = buckets_[0].back();
        buckets_[0].pop_back();
        return true;
    }

  private:
    static constexpr size_t kBuckets = 65;
    std::vector<uint64_t> buckets_[kBuckets];  // bucket i: keys whose highest bit that differs from last_ is bit i - 1
    uint64_t last_ = 0;
    std::priority_queue<uint64_t, std::vector<uint64_t>, std::greater<uint64_t>> early_;
};

// Merges until no pair has a rank. rank_pair(i, j) sets rank and merged of symbol i for the pair of neighbours i and j.
// The lowest rank goes first, and the leftmost of equal ranks. A symbol that was merged into its left neighbour gets
// next == its own index.
template <class RankPair> void merge_symbols(std::vector<merge_symbol>& symbols, RankPair&& rank_pair) {
    constexpr size_t kScanAtMost = 24;  // Up to this length, looking at all pairs each time beats a queue.
    auto update = [&](uint32_t i) {
        symbols[i].rank = kNoRank;
        if (symbols[i].next != kNoSymbol) rank_pair(i, symbols[i].next);
        return symbols[i].rank;
    };
    auto merge = [&](uint32_t i) {
        merge_symbol& left = symbols[i];
        uint32_t gone = left.next;
        left.id = left.merged;
        left.next = symbols[gone].next;
        if (left.next != kNoSymbol) symbols[left.next].prev = i;
        symbols[gone].next = gone;
        symbols[gone].rank = kNoRank;
    };
    if (symbols.size() <= kScanAtMost) {
        for (uint32_t i = 0; i < symbols.size(); ++i) update(i);
        for (;;) {
            uint32_t best = 0, best_rank = kNoRank;
            for (uint32_t i = 0; i != kNoSymbol && i < symbols.size(); i = symbols[i].next)
                if (symbols[i].rank < best_rank) {
                    best_rank = symbols[i].rank;
                    best = i;
                }
            if (best_rank == kNoRank) return;
            merge(best);
            update(best);
            if (symbols[best].prev != kNoSymbol) update(symbols[best].prev);
        }
    }
    merge_queue queue;
    auto push = [&](uint32_t i) {
        uint32_t rank = update(i);
        if (rank != kNoRank) queue.push((uint64_t)rank << 32 | i);
    };
    for (uint32_t i = 0; i < symbols.size(); ++i) push(i);
    for (uint64_t key; queue.pop(&key);) {
        uint32_t i = (uint32_t)key;
        if (symbols[i].rank != (uint32_t)(key >> 32)) continue;  // The pair has changed since.
        merge(i);
        push(i);
        if (symbols[i].prev != kNoSymbol) push(symbols[i].prev);
    }
}

}  // namespace duet
