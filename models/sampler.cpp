// models/sampler.cpp: the table of sampling steps, and the steps.
// Owns: the only list of sampling parameters; tools print their flags and help from it. Must not know: models,
// sessions, text.
// Main path: runtime/generate.cpp -> [models/sampler] -> models/tokenizer.cpp
//
// A new step is a function and its rows here. The steps follow the definitions that users know from llama.cpp
// (llama.cpp:src/llama-sampling.cpp, read as a description), so that settings carry over.
#include "sampler.h"
#include "grammar.h"

#include "../quant/exact_math.h"

#include <algorithm>
#include <bit>
#include <cfloat>

namespace duet {
namespace {

constexpr double kSamplerLn2 = 0.6931471805599453;

// ---- steps on all logits ----

// Returns how many accepted ids the penalties look at: the last n, -1: all.
size_t sampler_window(const sampler& s, float last_n) {
    return last_n < 0 ? s.history.size() : std::min(s.history.size(), size_t(last_n));
}

// Keeps the result of a penalty finite, because a penalty must neither forbid nor force. Only a bias does.
float sampler_finite(double logit) { return float(std::clamp(logit, -double(FLT_MAX), double(FLT_MAX))); }

// repeat_penalty (N. S. Keskar et al.: CTRL, 2019), frequency penalty and presence penalty, in one pass over the ids of
// the window.
void step_penalties(sampler& s, const float* p) {
    const float repeat = p[0], frequency = p[2], presence = p[3];
    const size_t n = sampler_window(s, p[1]), n_vocab = s.logits.size();
    if (n == 0 || (repeat == 1 && frequency == 0 && presence == 0)) return;
    const int32_t* ids = s.history.data() + s.history.size() - n;
    for (size_t i = 0; i < n; i++)
        if (size_t(ids[i]) < n_vocab) s.count[ids[i]]++;
    for (size_t i = 0; i < n; i++) {
        if (size_t(ids[i]) >= n_vocab || s.count[ids[i]] == 0) continue;
        float& logit = s.logits[ids[i]];
        if (logit > -INFINITY) {
            // A negative logit is multiplied, because a division would raise it.
            const double scaled = logit > 0 ? double(logit) / repeat : double(logit) * repeat;
            logit = sampler_finite(scaled - (double(frequency) * s.count[ids[i]] + presence));
        }
        s.count[ids[i]] = 0;
    }
}

// length[j] = how many ids the history, read backwards from j ids before its end, has in common with the history read
// backwards from its end; at most `limit`. The Z algorithm takes linear time (D. Gusfield: Algorithms on Strings, Trees
// and Sequences, 1997, section 1.4).
void sampler_run_lengths(const int32_t* last, int32_t n, int32_t limit, std::vector<int32_t>& length) {
    length.assign(n, 0);
    for (int32_t j = 1, left = 0, right = 0; j < n; j++) {
        int32_t z = j < right ? std::min(right - j, length[j - left]) : 0;
        while (j + z < n && last[-z] == last[-(j + z)]) z++;
        length[j] = z;
        if (j + z > right) {
            left = j;
            right = j + z;
        }
    }
    for (int32_t& z : length) z = std::min(z, limit);
}

double sampler_power(double base, int32_t n) {
    double power = 1;
    for (; n > 0; n >>= 1, base *= base)
        if (n & 1) power *= base;
    return power;
}

// DRY (p-e-w: oobabooga/text-generation-webui pull request 5677): lowers an id that would lengthen a repeated run of
// ids by multiplier * base^(length of the run - allowed length). Breakers end a run and are never lowered.
void step_dry(sampler& s, const float* p) {
    const double multiplier = p[0], base = p[1];
    const int32_t allowed = int32_t(p[2]), n = int32_t(std::min<size_t>(sampler_window(s, p[3]), INT32_MAX));
    if (multiplier == 0 || n <= allowed) return;
    const int32_t* last = s.history.data() + s.history.size() - 1;
    const auto& breakers = s.dry_breakers;
    const auto is_breaker = [&](int32_t id) { return std::binary_search(breakers.begin(), breakers.end(), id); };
    int32_t limit = 0;  // A run reaches back to the latest breaker at most.
    while (limit < n && !is_breaker(last[-limit])) limit++;
    if (limit < allowed) return;
    sampler_run_lengths(last, n, limit, s.run_length);
    const auto follower = [&](int32_t j) { return size_t(last[1 - j]) < s.logits.size() ? last[1 - j] : -1; };
    // count: the longest run before each id.
    for (int32_t j = 1; j < n; j++)
        if (const int32_t id = follower(j); id >= 0) s.count[id] = std::max(s.count[id], s.run_length[j]);
    for (int32_t j = 1; j < n; j++) {
        const int32_t id = follower(j);
        if (id < 0 || s.count[id] == 0) continue;
        if (s.count[id] >= allowed && s.logits[id] > -INFINITY && !is_breaker(id))
            s.logits[id] = sampler_finite(s.logits[id] - multiplier * sampler_power(base, s.count[id] - allowed));
        s.count[id] = 0;
    }
}

// Top-n-sigma (C. Tang et al., 2024): keeps logits that are at most n standard deviations below the largest.
void step_top_n_sigma(sampler& s, const float* p) {
    if (p[0] == 0) return;
    double sum = 0, sum_squares = 0, largest = -INFINITY;
    size_t n = 0;
    for (const float x : s.logits)
        if (x > -INFINITY) {
            sum += x;
            largest = std::max(largest, double(x));
            n++;
        }
    for (const float x : s.logits)
        if (x > -INFINITY) sum_squares += (x - sum / double(n)) * (x - sum / double(n));
    const double least = largest - p[0] * __builtin_sqrt(sum_squares / double(n));
    for (float& x : s.logits)
        if (x < least) x = -INFINITY;
}

// Keeps the k best; 0: all. Makes the list of candidates from the logits. It holds the k best so far in a heap, so that
// most logits cost one comparison.
void step_top_k(sampler& s, const float* p) {
    const size_t n = s.logits.size(), k = p[0] == 0 ? n : size_t(p[0]);
    s.candidates.clear();
    if (k >= n) {
        for (size_t id = 0; id < n; id++)
            if (s.logits[id] > -INFINITY) s.candidates.push_back({s.logits[id], 0, int32_t(id)});
        return;
    }
    auto& heap = s.ranking;  // the worst of the best is on top
    heap.clear();
    size_t id = 0;
    for (; heap.size() < k && id < n; id++)
        if (s.logits[id] > -INFINITY) heap.push_back({-double(s.logits[id]), id});
    std::make_heap(heap.begin(), heap.end());
    // A later id with an equal logit is worse, so only a larger logit gets in.
    for (float bound = heap.empty() ? 0 : float(-heap[0].key); id < n; id++) {
        if (!(s.logits[id] > bound)) continue;
        std::pop_heap(heap.begin(), heap.end());
        heap.back() = {-double(s.logits[id]), id};
        std::push_heap(heap.begin(), heap.end());
        bound = float(-heap[0].key);
    }
    std::ranges::sort(heap, {}, &sampler::ranked::index);
    for (const auto& r : heap) s.candidates.push_back({-r.key, 0, int32_t(r.index)});
}

// ---- steps on the candidates ----

// Returns the sum of -p ln p. ln p = logit - largest - ln total, so one logarithm serves all.
double sampler_entropy(sampler& s, double* ln_norm) {
    const double total = s.weigh();
    *ln_norm = s.candidates[s.best()].logit + exact_log64(total);
    double entropy = 0;
    for (const auto& c : s.candidates)
        if (c.weight > 0) entropy -= c.weight / total * (c.logit - *ln_norm);
    return entropy;
}

// Locally typical sampling (C. Meister et al., 2022): keeps the candidates whose surprise is nearest to the entropy.
void step_typical_p(sampler& s, const float* p) {
    if (p[0] == 1) return;
    double ln_norm;
    const double entropy = sampler_entropy(s, &ln_norm);
    s.keep_share(p[0], [=](const sampler_candidate& c) { return __builtin_fabs(ln_norm - c.logit - entropy); });
}

// Nucleus sampling (A. Holtzman et al., 2019).
void step_top_p(sampler& s, const float* p) {
    if (p[0] == 1) return;
    s.keep_share(p[0], [](const sampler_candidate& c) { return -c.logit; });
}

// Keeps the candidates that are at least min_p times as likely as the best.
void step_min_p(sampler& s, const float* p) {
    if (p[0] == 0) return;
    const double least = s.candidates[s.best()].logit + exact_log64(p[0]);
    s.keep_if([=](const sampler_candidate& c) { return c.logit >= least; });
}

// XTC (p-e-w: oobabooga/text-generation-webui pull request 6335): with the given probability, only the worst of all
// candidates at or above the threshold stays, so that the text takes a likely way that is not the likeliest.
void step_xtc(sampler& s, const float* p) {
    if (p[0] == 0 || s.random.uniform() >= p[0]) return;
    const double least = s.weigh() * p[1];
    const auto& all = s.candidates;
    size_t worst = 0, n_above = 0;
    for (size_t i = 0; i < all.size(); i++)
        if (all[i].weight >= least && (n_above++ == 0 || all[i].logit <= all[worst].logit)) worst = i;
    if (n_above < 2) return;
    s.keep_if([=, kept = all[worst].id](const sampler_candidate& c) { return c.weight < least || c.id == kept; });
    s.logits_changed();  // The best is gone, and weights are relative to the best.
}

// Divides the logits by the temperature. With a range, the temperature lies in [temp - range, temp + range]: it follows
// the share of the candidates' entropy in its maximum, to the power of the exponent (S. Zhu et al.: EDT, 2024, in
// llama.cpp's form). Temperature 0 chooses the best.
void step_temp(sampler& s, const float* p) {
    double temp = p[0];
    if (temp > 0 && p[1] > 0 && s.candidates.size() > 1) {
        double ln_norm;
        const double share = sampler_entropy(s, &ln_norm) / exact_log64(double(s.candidates.size()));
        const double low = std::max(0.0, temp - p[1]), high = temp + p[1];
        temp = low + (high - low) * (share > 0 ? exact_pow64(std::min(share, 1.0), p[2]) : p[2] == 0);
    }
    if (temp == 1) return;
    if (temp < 1e-30) {  // The temperature is 0, or so small that the division might overflow.
        s.keep_if([best = s.candidates[s.best()].id](const sampler_candidate& c) { return c.id == best; });
        return;
    }
    for (auto& c : s.candidates) c.logit /= temp;
    s.logits_changed();
}

// Mirostat 2 (S. Basu et al., 2020): drops candidates that surprise more than a bound. sampler::choose moves the bound
// towards tau.
void step_mirostat(sampler& s, const float* p) {
    if (p[0] == 0) return;
    if (s.mirostat_bound < 0) s.mirostat_bound = 2 * double(p[0]);
    const double least = s.weigh() * exact_exp64(-s.mirostat_bound * kSamplerLn2);
    const int32_t best = s.candidates[s.best()].id;
    s.keep_if([=](const sampler_candidate& c) { return c.weight >= least || c.id == best; });
}

// ---- the table ----

// What a row is: one more parameter of the step above; a step that shapes logits; a step that cuts the list.
enum sampler_row_kind { kSamplerMore, kSamplerShapes, kSamplerCuts };

struct sampler_row {
    duet_sampler_param param;
    bool is_whole = false;  // takes only whole numbers
    sampler_row_kind kind = kSamplerMore;
    void (*run)(sampler& s, const float* values) = nullptr;  // gets the values of this row and of those after it
};

// Rows run in this order. Penalties come first because they are defined on raw logits. The cuts come before the
// temperature, so that the temperature does not change what is cut. top_k is the first step on single candidates
// because it makes the others cheap. XTC takes from what the cuts found good. The temperature only shapes the final
// draw. Biases are added before the first row. While mirostat is on, the rows that cut run at their defaults, where
// they do nothing, because mirostat is the cut then.
// clang-format off
constexpr sampler_row kSamplerRows[] = {
    {{"repeat_penalty", "divides positive logits of recent tokens, multiplies negative ones (1: off)", 1, 0.01f, 100},
     false, kSamplerShapes, step_penalties},
    {{"repeat_last_n", "tokens that count as recent for the three penalties (0: none, -1: all)", 64, -1, 16777216}, true},
    {{"frequency_penalty", "taken from a logit for each time its token is among the recent (0: off)", 0, -100, 100}},
    {{"presence_penalty", "taken from a logit once when its token is among the recent (0: off)", 0, -100, 100}},
    {{"dry.multiplier", "strength of the penalty on tokens that would lengthen a repeated run (0: off)", 0, 0, 1000},
     false, kSamplerShapes, step_dry},
    {{"dry.base", "growth of the penalty with each token of the run", 1.75f, 1, 100}},
    {{"dry.allowed_length", "shortest run that is penalized", 2, 1, 16777216}, true},
    {{"dry.last_n", "tokens searched for runs (0: none, -1: all)", -1, -1, 16777216}, true},
    {{"top_n_sigma", "keeps logits within n standard deviations of the largest (0: off)", 0, 0, 1000},
     false, kSamplerCuts, step_top_n_sigma},
    {{"top_k", "keeps the k best (0: off)", 0, 0, 16777216}, true, kSamplerCuts, step_top_k},
    {{"typical_p", "keeps the most typical up to this share of probability (1: off)", 1, 0, 1},
     false, kSamplerCuts, step_typical_p},
    {{"top_p", "keeps the best up to this share of probability (1: off)", 1, 0, 1},
     false, kSamplerCuts, step_top_p},
    {{"min_p", "keeps what is at least this times as likely as the best (0: off)", 0, 0, 1},
     false, kSamplerCuts, step_min_p},
    {{"xtc.probability", "chance that the best are dropped (0: off)", 0, 0, 1},
     false, kSamplerCuts, step_xtc},
    {{"xtc.threshold", "of those at least this likely, only the last stays", 0.1f, 0, 1}},
    {{"temp", "below 1 prefers the likely, above 1 the unlikely (1: off, 0: always the best)", 1, 0, 100},
     false, kSamplerShapes, step_temp},
    {{"dynatemp.range", "the temperature follows the entropy within this range (0: off)", 0, 0, 100}},
    {{"dynatemp.exponent", "how the temperature follows the entropy", 1, 0, 100}},
    {{"mirostat.tau", "surprise aimed at, in bits, instead of the cuts (0: off)", 0, 0, 100},
     false, kSamplerShapes, step_mirostat},
    {{"mirostat.eta", "how fast mirostat corrects", 0.1f, 0, 10}},
};
// clang-format on
constexpr size_t kSamplerRowCount = sizeof kSamplerRows / sizeof kSamplerRows[0];

// Returns the row of a name, or the number of rows if there is none.
constexpr size_t sampler_row_of(std::string_view name) {
    const auto has_name = [name](const sampler_row& row) { return row.param.name == name; };
    return size_t(std::ranges::find_if(kSamplerRows, has_name) - kSamplerRows);
}
constexpr size_t kMirostatRow = sampler_row_of("mirostat.tau");

uint64_t sampler_splitmix(uint64_t* state) {
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

}  // namespace

// ---- the random generator ----

sampler_random::sampler_random(uint64_t seed) {
    for (uint64_t& word : state_) word = sampler_splitmix(&seed);
}

uint64_t sampler_random::next() {
    uint64_t* s = state_;
    const uint64_t result = std::rotl(s[1] * 5, 7) * 9, t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = std::rotl(s[3], 45);
    return result;
}

// ---- the sampler ----

sampler::sampler(uint64_t seed) : random(seed) {
    for (const sampler_row& row : kSamplerRows) values_.push_back(row.param.default_value);
}

sampler::~sampler() = default;

duet_status sampler::set(const char* name, float value, error_text& err) {
    const size_t i_row = sampler_row_of(name);
    if (i_row == kSamplerRowCount) {
        std::string known;
        for (const sampler_row& row : kSamplerRows) known += std::string(known.empty() ? "" : ", ") + row.param.name;
        return fail(err, DUET_ERR_ARG, "sampler parameter \"%.64s\": unknown; there are %s", name, known.c_str());
    }
    const sampler_row& row = kSamplerRows[i_row];
    const bool in_range = value >= row.param.min_value && value <= row.param.max_value;  // false for NaN
    if (!in_range || (row.is_whole && value != float(int32_t(value))))
        return fail(err, DUET_ERR_ARG, "sampler parameter %s: want a %snumber from %g to %.8g, got %g", name,
                    row.is_whole ? "whole " : "", double(row.param.min_value), double(row.param.max_value),
                    double(value));
    values_[i_row] = value;
    if (i_row == kMirostatRow) mirostat_bound = -1;
    return DUET_OK;
}

duet_status sampler::set_bias(int32_t id, float bias, error_text& err) {
    if (id < 0 || bias != bias)
        return fail(err, DUET_ERR_ARG, "bias: want an id of 0 or more and a number, got id %d and %g", id,
                    double(bias));
    const auto at = std::ranges::lower_bound(biases_, id, {}, &id_bias::id);
    if (at != biases_.end() && at->id == id) at->bias = bias;
    else biases_.insert(at, {id, bias});
    return DUET_OK;
}

duet_status sampler::add_dry_breaker(int32_t id, error_text& err) {
    if (id < 0) return fail(err, DUET_ERR_ARG, "dry breaker: want an id of 0 or more, got %d", id);
    const auto at = std::lower_bound(dry_breakers.begin(), dry_breakers.end(), id);
    if (at == dry_breakers.end() || *at != id) dry_breakers.insert(at, id);
    return DUET_OK;
}

duet_status sampler::accept(int32_t id, error_text& err) {
    if (id < 0) return fail(err, DUET_ERR_ARG, "accept: want an id of 0 or more, got %d", id);
    if (history.size() == history.capacity()) history.reserve(2 * history.size() + 16);
    if (text_) {
        *before_ = *text_;
        DUET_TRY(text_->accept(id, err));
    }
    history.push_back(id);
    return DUET_OK;
}

void sampler::take_back_accept() noexcept {
    history.pop_back();
    text_.swap(before_);
}

void sampler::set_grammar(std::shared_ptr<constraint> grammar) {
    auto text = grammar ? std::make_unique<grammar_matcher>(grammar) : nullptr;
    before_ = grammar ? std::make_unique<grammar_matcher>(grammar) : nullptr;
    text_ = std::move(text);
}

void sampler::restart_grammar() {
    if (text_) text_->reset();
}

bool sampler::is_done() { return text_ && text_->must_end(); }

duet_status sampler::may_go_on(bool* out, error_text& err) {
    *out = true;
    if (!text_) return DUET_OK;
    std::shared_ptr<const token_mask> mask;
    DUET_TRY(text_->mask(&mask, err));
    *out = !text_->can_end() || mask->n_allowed > text_->n_ends();
    return DUET_OK;
}

void sampler::reset(uint64_t seed) {
    restart_grammar();
    history.clear();
    random = sampler_random(seed);
    mirostat_bound = -1;
}

double sampler::weigh() {
    double total = 0;
    if (weights_known_) {
        for (const auto& c : candidates) total += c.weight;
        return total;
    }
    const double largest = candidates[best()].logit;
    for (auto& c : candidates) total += c.weight = exact_exp64(c.logit - largest);
    weights_known_ = true;
    return total;
}

size_t sampler::best() const {
    return size_t(std::ranges::max_element(candidates, {}, &sampler_candidate::logit) - candidates.begin());
}

template <class Key> void sampler::keep_share(double share, Key key) {
    const double want = share * weigh();
    ranking.clear();
    for (size_t i = 0; i < candidates.size(); i++) ranking.push_back({key(candidates[i]), i});
    // Sorts piece by piece, because the prefix is usually short while the list may be the whole vocabulary.
    size_t n_kept = 0, n_sorted = 0, piece = 64;
    for (double sum = 0; n_kept == 0 || (sum < want && n_kept < ranking.size()); n_kept++) {
        if (n_kept == n_sorted) {
            n_sorted = std::min(n_sorted + piece, ranking.size());
            piece *= 4;
            std::nth_element(ranking.begin() + n_kept, ranking.begin() + n_sorted - 1, ranking.end());
            std::sort(ranking.begin() + n_kept, ranking.begin() + n_sorted);
        }
        sum += candidates[ranking[n_kept].index].weight;
    }
    std::ranges::sort(ranking.begin(), ranking.begin() + n_kept, {}, &ranked::index);
    for (size_t i = 0; i < n_kept; i++) candidates[i] = candidates[ranking[i].index];
    candidates.resize(n_kept);
}

// Picks the candidate into whose part of [0, total) u * total falls, and moves mirostat's bound.
size_t sampler::pick(double u) {
    const double total = weigh(), want = u * total;
    size_t i_picked = 0;
    double sum = candidates[0].weight;
    while (!(want < sum) && ++i_picked < candidates.size()) sum += candidates[i_picked].weight;
    if (i_picked == candidates.size()) i_picked = best();  // rounding leaves `want` at the very end
    if (const float* p = &values_[kMirostatRow]; p[0] > 0) {
        const double surprise = -exact_log64(candidates[i_picked].weight / total) / kSamplerLn2;
        mirostat_bound = std::max(0.0, mirostat_bound - p[1] * (surprise - p[0]));
    }
    return i_picked;
}

bool sampler::takes_best() const {
    bool is_best = biases_.empty() && !text_;
    for (size_t i = 0; i < kSamplerRowCount; i++) {
        const sampler_row& row = kSamplerRows[i];
        const bool keeps_best =
            row.run == step_top_n_sigma || row.run == step_top_k || row.run == step_top_p || row.run == step_min_p;
        if (row.run == step_temp) is_best = is_best && values_[i] == 0;
        else if (!keeps_best) is_best = is_best && values_[i] == row.param.default_value;
    }
    return is_best;
}

duet_status sampler::choose(const float* all_logits, int32_t n_vocab, int32_t* id, error_text& err) {
    if (!all_logits || !id || n_vocab < 1)
        return fail(err, DUET_ERR_ARG, "choose: want logits, an id and n_vocab of 1 or more, got n_vocab %d", n_vocab);
    const auto is_bad = [](float x) { return !(x < INFINITY); };  // Only a bias may force an id.
    if (const size_t n_bad = size_t(std::count_if(all_logits, all_logits + n_vocab, is_bad))) {
        const int32_t at = int32_t(std::find_if(all_logits, all_logits + n_vocab, is_bad) - all_logits);
        return fail(err, DUET_ERR_NAN, "%zu of %d logits are NaN or +inf, the first at id %d", n_bad, n_vocab, at);
    }
    logits.assign(all_logits, all_logits + n_vocab);
    count.resize(n_vocab);
    // An infinite bias forbids or forces, whatever the logit is.
    for (const id_bias& b : biases_)
        if (b.id < n_vocab) logits[b.id] = b.bias - b.bias == 0 ? logits[b.id] + b.bias : b.bias;
    if (text_) {
        std::shared_ptr<const token_mask> mask;
        DUET_TRY(text_->mask(&mask, err));
        apply_mask(*mask, logits.data(), logits.size());
    }
    const auto largest = std::max_element(logits.begin(), logits.end());
    if (*largest == -INFINITY)
        return fail(err, DUET_ERR_NAN, "none of %d logits is above -inf%s", n_vocab,
                    text_ ? " where the grammar allows the id" : "");

    const double u = random.uniform();
    if (*largest == INFINITY) {
        *id = int32_t(largest - logits.begin());
        return DUET_OK;
    }
    weights_known_ = false;
    const bool is_mirostat = values_[kMirostatRow] > 0;
    float defaults[kSamplerRowCount];
    for (size_t i = 0; i < kSamplerRowCount; i++) defaults[i] = kSamplerRows[i].param.default_value;
    for (size_t i = 0; i < kSamplerRowCount; i++) {
        const sampler_row& row = kSamplerRows[i];
        if (row.run) row.run(*this, (row.kind == kSamplerCuts && is_mirostat ? defaults : values_.data()) + i);
    }
    *id = candidates[pick(u)].id;
    return DUET_OK;
}

const duet_sampler_param* sampler_param_row(int32_t i_row) {
    return i_row >= 0 && size_t(i_row) < kSamplerRowCount ? &kSamplerRows[i_row].param : nullptr;
}

}  // namespace duet
