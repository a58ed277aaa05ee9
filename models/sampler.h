// models/sampler.h: turns one row of logits into one id, by an ordered table of steps (in sampler.cpp).
// Owns: the steps, the history of accepted ids, the random generator, the place in a grammar. Must not know: models,
// sessions, what tokens spell.
// Main path: runtime/generate.cpp -> [models/sampler] -> models/tokenizer.cpp
//
// The same seed, settings and logits give the same ids on every machine. Therefore:
// - Numbers come from xoshiro256** seeded by splitmix64 (D. Blackman, S. Vigna: "Scrambled Linear Pseudorandom Number
//   Generators", 2021); u = (next >> 11) * 2^-53. Every choice draws one u, and a second one when xtc runs.
// - exp and log are those of quant/exact_math.h; all sums are f64.
// - Candidates always stand in order of id, and sums over them run in this order. "Best first" means by logit, then
//   by lower id.
// - The choice is the first id whose running sum of weights, in order of id, is above u * total.
#pragma once
#include "status.h"

#include <cstdint>
#include <memory>
#include <vector>

namespace duet {

class constraint;  // grammar.h
class grammar_matcher;

struct sampler_candidate {
    double logit;
    double weight;  // exp(logit - largest logit), once sampler::weigh() ran
    int32_t id;
};

// The random generator. Any 64-bit seed is good.
class sampler_random {
  public:
    explicit sampler_random(uint64_t seed = 0);
    uint64_t next();
    double uniform() { return double(next() >> 11) * 0x1p-53; }  // in [0, 1)

  private:
    uint64_t state_[4];
};

// The state of a sampler. Its memory grows with the largest vocabulary and with the history; otherwise a choice
// allocates nothing.
class sampler {
  public:
    explicit sampler(uint64_t seed);
    ~sampler();

    // The functions of runtime.h without handles. They let std::bad_alloc pass.
    duet_status set(const char* name, float value, error_text& err);
    duet_status set_bias(int32_t id, float bias, error_text& err);  // A later bias of an id replaces an earlier one.
    duet_status add_dry_breaker(int32_t id, error_text& err);
    duet_status choose(const float* logits, int32_t n_vocab, int32_t* id, error_text& err);
    duet_status accept(int32_t id, error_text& err);
    void take_back_accept() noexcept;                       // of the last accept(), at most once
    void restart_grammar();                                 // a new text begins
    void set_grammar(std::shared_ptr<constraint> grammar);  // null: none
    bool is_done();                                         // nothing may follow in the grammar's text
    // *out: there is no grammar, or it allows more than to end the text.
    duet_status may_go_on(bool* out, error_text& err);
    // True if choose() would take the largest of finite logits, and the lowest id among equals. Whoever takes that id
    // without choose() calls took_best().
    bool takes_best() const;
    void took_best() { random.uniform(); }
    void reset(uint64_t seed);

    // ---- for the steps ----

    struct ranked {
        double key;
        size_t index;
        bool operator<(const ranked& other) const { return key != other.key ? key < other.key : index < other.index; }
    };

    // The logits while steps run on all of them (the rows up to top_k). Each id has one; -inf forbids the id.
    std::vector<float> logits;
    // The candidates that are left afterwards, in order of id: at least one, all with finite logits.
    std::vector<sampler_candidate> candidates;
    std::vector<int32_t> history;
    std::vector<int32_t> dry_breakers;  // sorted
    std::vector<int32_t> count;         // n_vocab zeros; a step that writes here restores the zeros
    std::vector<int32_t> run_length;    // scratch memory of dry
    std::vector<ranked> ranking;        // scratch memory of top_k and keep_share
    sampler_random random;

    // Computes the weights where they are missing, and returns their sum.
    double weigh();
    void logits_changed() { weights_known_ = false; }
    size_t best() const;  // index of the best candidate

    // Keeps the candidates for which keep(candidate) holds.
    template <class Keep> void keep_if(Keep keep) {
        size_t n = 0;
        for (const sampler_candidate& c : candidates)
            if (keep(c)) candidates[n++] = c;
        candidates.resize(n);
    }

    // Sorts by rising key(candidate), then by id, and keeps the shortest prefix with at least `share` of the total
    // weight.
    template <class Key> void keep_share(double share, Key key);

    // Mirostat's bound of surprise, in bits; below 0: not started.
    double mirostat_bound = -1;

  private:
    struct id_bias {
        int32_t id;
        float bias;
    };

    size_t pick(double u);
    std::vector<id_bias> biases_;  // sorted by id
    std::vector<float> values_;    // one per row of the table
    bool weights_known_ = false;
    std::unique_ptr<grammar_matcher> text_;    // the accepted ids in the grammar; null: there is none
    std::unique_ptr<grammar_matcher> before_;  // text_ before the last accept()
};

// Returns row i_row of the table, or null past the last row.
const duet_sampler_param* sampler_param_row(int32_t i_row);

}  // namespace duet
