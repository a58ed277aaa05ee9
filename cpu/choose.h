// cpu/choose.h: chooses the way in which a matmul is computed. The ways that can compute it take turns on the real
// work, and the fastest is kept for the process (timed_choice). Every way but `rounded` gives the same bits, so a
// choice only changes the speed. With --cpu-isa nothing is timed: the first of the ways is taken. Must not know: ops,
// threads, clocks. Main path: cpu/ops.cpp -> [cpu/choose.h] -> cpu/kernels.h
#pragma once
#include "kernels.h"

#include <atomic>
#include <string>

namespace duet {

// ---- candidates take turns -----------------------------------------------------------------------------------------
//
// The work is cut into pieces, which any number of threads compute. On some pieces a candidate has its turn: the piece
// is timed, and tell() takes its time. All other pieces go to the best candidate that is known so far:
//
//     timed_choice& choice = choice_of(choice_kind::matmul, type, n_tok);
//     const int turn = choice.turn(n, i), k = turn >= 0 ? turn : choice.best(n);    // i: the piece's number
//     ... candidate k does piece i ...
//     if (turn >= 0) choice.tell(k, ns, work);                                      // work: of the piece, in any unit
//
// A candidate counts with its best of kTurns pieces, because a neighbour of the machine can make a piece only slower.
// All members may be called by several threads at once. A caller need not tell every turn: run_piece (cpu/context.h)
// makes a turn of three pieces and leaves out the first (takes_first).
class timed_choice {
  public:
    static constexpr int kMost = 4;        // candidates
    static constexpr int kTurns = 24;      // timed pieces of each candidate
    static constexpr int kPatience = 400;  // first pieces that are left out at most (takes_first)

    // Returns the candidate, of n, whose turn piece i is; -1: nobody's, or all have had their turns. A quarter of the
    // pieces are turns, so that they are spread over the work and losers cost little.
    int turn(int n, int i) const;
    void tell(int candidate, uint64_t ns, uint64_t work);
    // Returns the candidate with the least time for a unit of work, 0 before any was timed.
    int best(int n) const;
    bool is_decided(int n) const;
    // Whether a thread's first piece of a turn counts, which finds its data in no cache: where threads have one piece
    // each there are no others, so it does after kPatience were left out.
    bool takes_first() { return n_left_out_.fetch_add(1, std::memory_order_relaxed) >= kPatience; }
    // Returns the best time of a candidate for a unit of work in ns; 0: not timed.
    float cost(int candidate) const { return cost_[candidate].load(std::memory_order_relaxed); }

  private:
    std::atomic<float> cost_[kMost] = {};
    std::atomic<int> n_begun_[kMost] = {}, n_told_[kMost] = {}, n_left_out_ = 0;
};

enum class choice_kind : uint8_t { matmul, experts };
constexpr int kChoiceKinds = 2;

// Returns the process's choice for work of a kind with weights of this type. Tokens are one class each up to 8; the
// others are classes of a fifth to a third, because a way that is best for 17 tokens may be a quarter slower for 32.
timed_choice& choice_of(choice_kind kind, int32_t type, int n_tok);

// ---- the ways of a matmul ------------------------------------------------------------------------------------------

constexpr int kFewMost = 4;     // most tokens for which memory is the limit
constexpr int kFewTiles = 8;    // most tiles of a piece of kFewMost tokens
constexpr int kFastLeast = 12;  // fewest tokens for which mode fast rounds activations (docs/numerics.md)

// The ways that can compute a matmul, all with the same bits. The first is the best guess.
struct matmul_ways {
    matmul_way way[timed_choice::kMost];
    int n = 0;
    bool has(matmul_way w) const;
};

// can_prepare: the activations may first be packed into panels or rounded. The matmuls of experts cannot do this,
// because each expert has tokens of its own.
matmul_ways ways_of_matmul(const cpu_kernels& kernels, int32_t type, int n_tok, bool can_prepare);

// Returns how fast the ways were, the best one first: "amx 312, panels 240 GMAC/s of one thread".
std::string describe_choice(const timed_choice& choice, const matmul_ways& ways);

}  // namespace duet
