// tests/test_sampler.cpp: the sampler against golden ids (tests/make_sampler_golden.py), each step against its plain
// definition, and the edges of its parameters through the C functions.
#include "doctest.h"

#include "../models/sampler.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <set>
#include <utility>
#include <vector>

namespace {

using settings_list = std::vector<std::pair<const char*, float>>;

// Makes logits with many ties, from -3 to 5.
std::vector<float> golden_logits(int n_vocab) {
    std::vector<float> logits;
    for (uint32_t i = 0; i < uint32_t(n_vocab); i++) logits.push_back(float((i * 2654435761u) >> 18) / 2048 - 3);
    return logits;
}

std::vector<float> random_logits(duet::sampler_random& random, int n_vocab, float scale) {
    std::vector<float> logits(n_vocab);
    for (float& x : logits) x = float(int(random.uniform() * 4096)) / 4096 * scale;
    return logits;
}

void apply(duet::sampler& s, const settings_list& settings) {
    duet::error_text err;
    for (const auto& [name, value] : settings) REQUIRE_MESSAGE(s.set(name, value, err) == DUET_OK, err.text);
}

int32_t choose(duet::sampler& s, const std::vector<float>& logits) {
    duet::error_text err;
    int32_t id = -1;
    REQUIRE_MESSAGE(s.choose(logits.data(), int32_t(logits.size()), &id, err) == DUET_OK, err.text);
    return id;
}

std::vector<int32_t> left_over(const duet::sampler& s) {
    std::vector<int32_t> ids;
    for (const auto& c : s.candidates) ids.push_back(c.id);
    return ids;
}

std::vector<double> softmax(const std::vector<float>& logits) {
    const double largest = *std::max_element(logits.begin(), logits.end());
    std::vector<double> p;
    double total = 0;
    for (const float x : logits) p.push_back(std::exp(x - largest)), total += p.back();
    for (double& x : p) x /= total;
    return p;
}

std::vector<int32_t> sorted_by(size_t n, const std::function<double(int32_t)>& key) {
    std::vector<int32_t> ids(n);
    for (size_t i = 0; i < n; i++) ids[i] = int32_t(i);
    std::sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) { return key(a) != key(b) ? key(a) < key(b) : a < b; });
    return ids;
}

std::vector<int32_t> prefix_of_share(const std::vector<int32_t>& order, const std::vector<double>& p, double share) {
    std::vector<int32_t> kept;
    double mass = 0;
    for (const int32_t id : order) {
        kept.push_back(id);
        if ((mass += p[id]) >= share) break;
    }
    std::sort(kept.begin(), kept.end());
    return kept;
}

struct golden_case {
    settings_list settings;
    int n_vocab;
    std::vector<int32_t> ids;
};

// clang-format off
const golden_case kGoldenCases[] = {
    {{}, 300,
     {236, 21, 199, 131, 55, 126, 131, 220, 139, 228, 278, 283, 21, 226, 223, 42, 270, 145, 84, 35, 3, 194, 55, 275}},
    {{{"temp", 0}}, 300,
     {144, 144, 144, 144, 144, 144, 144, 144, 144, 144, 144, 144, 144, 144, 144, 144, 144, 144, 144, 144, 144, 144, 144, 144}},
    {{{"temp", 0.8f}, {"top_k", 40}, {"top_p", 0.95f}, {"min_p", 0.05f}}, 300,
     {288, 207, 71, 50, 262, 29, 296, 199, 50, 220, 241, 131, 144, 55, 21, 110, 16, 275, 144, 139, 144, 220, 21, 131}},
    {{{"repeat_penalty", 1.3f}, {"repeat_last_n", 8}, {"frequency_penalty", 0.4f}, {"presence_penalty", 0.7f}, {"temp", 0}}, 300,
     {144, 288, 55, 199, 110, 254, 21, 165, 76, 144, 288, 55, 199, 110, 254, 21, 165, 76, 144, 288, 55, 199, 110, 254}},
    {{{"dry.multiplier", 0.8f}, {"dry.base", 1.75f}, {"dry.allowed_length", 2}, {"top_k", 4}}, 9,
     {3, 8, 8, 3, 8, 3, 8, 6, 3, 1, 1, 8, 8, 6, 8, 8, 8, 8, 6, 6, 8, 6, 3, 3}},
    {{{"top_n_sigma", 1.5f}}, 300,
     {207, 296, 155, 131, 126, 131, 202, 16, 58, 21, 283, 194, 21, 291, 194, 144, 53, 288, 58, 131, 288, 113, 152, 131}},
    {{{"typical_p", 0.6f}}, 300,
     {220, 278, 270, 92, 126, 262, 11, 45, 126, 291, 299, 241, 186, 160, 152, 63, 241, 100, 220, 152, 155, 16, 207, 270}},
    {{{"top_p", 0.7f}, {"temp", 1.5f}}, 300,
     {254, 55, 3, 228, 254, 165, 8, 144, 296, 42, 42, 254, 139, 71, 63, 118, 126, 152, 186, 207, 37, 92, 55, 228}},
    {{{"min_p", 0.2f}}, 300,
     {63, 288, 84, 291, 241, 228, 199, 84, 8, 42, 254, 165, 3, 215, 29, 139, 84, 165, 168, 110, 97, 160, 16, 199}},
    {{{"xtc.probability", 0.5f}, {"xtc.threshold", 0.1f}, {"temp", 0.7f}}, 9,
     {3, 3, 3, 3, 8, 8, 3, 8, 3, 3, 3, 3, 3, 3, 3, 3, 8, 3, 6, 3, 3, 3, 8, 8}},
    {{{"temp", 1}, {"dynatemp.range", 0.8f}, {"dynatemp.exponent", 1.5f}}, 300,
     {173, 288, 155, 21, 113, 168, 189, 270, 8, 202, 58, 299, 220, 163, 29, 299, 215, 288, 257, 155, 42, 278, 110, 241}},
    {{{"mirostat.tau", 3}, {"mirostat.eta", 0.2f}}, 300,
     {165, 55, 110, 254, 165, 199, 254, 144, 288, 165, 165, 288, 110, 254, 288, 144, 55, 165, 254, 288, 110, 55, 199, 55}},
};
// clang-format on

}  // namespace

TEST_CASE("sampler: golden ids") {
    uint64_t seed = 1000;
    for (const golden_case& c : kGoldenCases) {
        duet::sampler s(seed);
        duet::error_text err;
        apply(s, c.settings);
        for (const auto& [name, value] : c.settings)
            if (!std::strcmp(name, "dry.multiplier")) REQUIRE(s.add_dry_breaker(3, err) == DUET_OK);
        for (int round = 0; round < 2; round++) {  // reset brings everything back
            std::vector<int32_t> got;
            for (size_t i = 0; i < c.ids.size(); i++) {
                got.push_back(choose(s, golden_logits(c.n_vocab)));
                REQUIRE(s.accept(got.back(), err) == DUET_OK);
            }
            CHECK_MESSAGE(got == c.ids, "case " << seed - 1000 << " round " << round);
            s.reset(seed);
        }
        seed++;
    }
}

TEST_CASE("sampler: cuts keep what their definition keeps") {
    duet::sampler_random random(7);
    for (const int n_vocab : {1, 2, 17, 300, 5000}) {
        for (const float scale : {0.0f, 0.01f, 8.0f, 30.0f}) {
            const auto logits = random_logits(random, n_vocab, scale);
            const auto p = softmax(logits);
            const auto best_first = sorted_by(logits.size(), [&](int32_t i) { return -logits[i]; });
            const double largest = logits[best_first[0]];
            CAPTURE(n_vocab);
            CAPTURE(scale);
            for (const int k : {1, 3, 40, 4999, 100000}) {
                duet::sampler s(1);
                apply(s, {{"top_k", float(k)}});
                choose(s, logits);
                auto want = std::vector<int32_t>(best_first.begin(), best_first.begin() + std::min(k, n_vocab));
                std::sort(want.begin(), want.end());
                CHECK(left_over(s) == want);
            }
            for (const float share : {0.0f, 0.13f, 0.503f, 0.93f}) {
                duet::sampler top_p(1), typical(1), both(1), min_p(1);
                apply(top_p, {{"top_p", share}});
                choose(top_p, logits);
                CHECK(left_over(top_p) == prefix_of_share(best_first, p, share));

                double entropy = 0;
                for (const double x : p) entropy -= x * std::log(x);
                apply(typical, {{"typical_p", share}});
                choose(typical, logits);
                const auto kept = left_over(typical);
                double mass = 0, farthest = 0, nearest_out = 1e300, least = 2;
                for (const int32_t id : kept) {
                    mass += p[id], least = std::min(least, p[id]);
                    farthest = std::max(farthest, std::fabs(-std::log(p[id]) - entropy));
                }
                for (int32_t id = 0; id < n_vocab; id++)
                    if (!std::binary_search(kept.begin(), kept.end(), id))
                        nearest_out = std::min(nearest_out, std::fabs(-std::log(p[id]) - entropy));
                CHECK(mass >= share - 1e-12);
                CHECK(farthest <= nearest_out + 1e-9);

                if (share > 0) {
                    apply(min_p, {{"min_p", share}});
                    choose(min_p, logits);
                    std::vector<int32_t> want;
                    for (int32_t id = 0; id < n_vocab; id++)
                        if (logits[id] >= largest + std::log(double(share))) want.push_back(id);
                    CHECK(left_over(min_p) == want);
                }
            }
        }
    }
}

TEST_CASE("sampler: top_n_sigma, xtc and temperature on small lists") {
    const std::vector<float> logits = {1, 2, 3, 4, 10, -INFINITY};  // mean 4, deviation sqrt(10) = 3.162
    duet::sampler sigma(1);
    apply(sigma, {{"top_n_sigma", 2}});
    choose(sigma, logits);
    CHECK(left_over(sigma) == std::vector<int32_t>{3, 4});  // 10 - 6.32 = 3.68

    const std::vector<float> ln = {std::log(0.3f), std::log(0.4f), std::log(0.2f), std::log(0.08f), std::log(0.02f)};
    duet::sampler xtc(1);
    apply(xtc, {{"xtc.probability", 1}, {"xtc.threshold", 0.15f}});
    choose(xtc, ln);
    CHECK(left_over(xtc) == std::vector<int32_t>{2, 3, 4});
    apply(xtc, {{"xtc.threshold", 0.35f}});
    choose(xtc, ln);
    CHECK(left_over(xtc).size() == 5);  // only one is above: it stays
    apply(xtc, {{"xtc.threshold", 0}});
    choose(xtc, ln);
    CHECK(left_over(xtc) == std::vector<int32_t>{4});
    int n_cut = 0;
    apply(xtc, {{"xtc.threshold", 0.15f}, {"xtc.probability", 0.25f}});
    for (int i = 0; i < 4000; i++) choose(xtc, ln), n_cut += left_over(xtc).size() == 3;
    CHECK(n_cut > 890);  // 1000 +- 4 deviations of 27.4
    CHECK(n_cut < 1110);

    duet::sampler temp(1);
    apply(temp, {{"temp", 0.5f}});
    choose(temp, logits);
    CHECK(temp.candidates[3].logit == 8);
    apply(temp, {{"temp", 1}, {"dynatemp.range", 0.5f}});
    choose(temp, {0, 0, 0, 0});  // the largest entropy: temperature 1.5
    CHECK(temp.candidates[0].logit == 0);
    choose(temp, {3, 3, 3, 3});
    CHECK(temp.candidates[2].logit == doctest::Approx(2));
    choose(temp, {300, 3, 3, 3});  // none: temperature 0.5
    CHECK(temp.candidates[0].logit == doctest::Approx(600));
}

TEST_CASE("sampler: draws follow the probabilities") {
    const std::vector<float> logits = {std::log(0.1f), std::log(0.2f), std::log(0.3f), std::log(0.4f), -INFINITY};
    duet::sampler s(42);
    int n[5] = {};
    for (int i = 0; i < 20000; i++) n[choose(s, logits)]++;
    for (int id = 0; id < 4; id++) {
        const double p = 0.1 * (id + 1);
        CHECK(std::fabs(n[id] - 20000 * p) < 4 * std::sqrt(20000 * p * (1 - p)));
    }
    CHECK(n[4] == 0);
}

TEST_CASE("sampler: penalties") {
    duet::error_text err;
    duet::sampler s(1);
    apply(s, {{"repeat_penalty", 2}, {"repeat_last_n", 3}, {"frequency_penalty", 0.5f}, {"presence_penalty", 0.25f}});
    for (const int32_t id : {3, 0, 1, 1, 99}) REQUIRE(s.accept(id, err) == DUET_OK);  // 3, 0: too old; 99: outside
    choose(s, {4, 4, -4, 4});
    CHECK(s.logits == std::vector<float>{4, 0.75f, -4, 4});
    REQUIRE(s.accept(2, err) == DUET_OK);
    choose(s, {4, 4, -4, 4});
    CHECK(s.logits == std::vector<float>{4, 1.25f, -8.75f, 4});
    apply(s, {{"repeat_last_n", -1}});
    choose(s, {4, 4, -4, 4});
    CHECK(s.logits == std::vector<float>{1.25f, 0.75f, -8.75f, 1.25f});
    apply(s, {{"repeat_last_n", 0}});
    choose(s, {4, 4, -4, 4});
    CHECK(s.logits == std::vector<float>{4, 4, -4, 4});
    // a penalty never forbids the last that is left, nor makes an infinity
    apply(s, {{"repeat_last_n", -1}, {"repeat_penalty", 100}});
    CHECK(choose(s, {-3e38f, -INFINITY}) == 0);
    apply(s, {{"repeat_penalty", 0.01f}});
    CHECK(choose(s, {3e38f, 3e38f, -INFINITY}) >= 0);
    CHECK(std::isfinite(s.logits[0]));
}

TEST_CASE("sampler: dry") {
    duet::error_text err;
    {
        duet::sampler s(1);
        apply(s, {{"dry.multiplier", 1}, {"dry.base", 2}});
        for (const int32_t id : {1, 2, 3, 4, 9, 1, 2, 3}) REQUIRE(s.accept(id, err) == DUET_OK);
        choose(s, std::vector<float>(6, 0.0f));
        CHECK(s.logits == std::vector<float>{0, 0, 0, 0, -2, 0});  // 1 2 3 stood before 4: 2^(3-2)
        REQUIRE(s.add_dry_breaker(1, err) == DUET_OK);
        choose(s, std::vector<float>(6, 0.0f));
        CHECK(s.logits[4] == -1);  // the run is 2 3 now
        REQUIRE(s.add_dry_breaker(4, err) == DUET_OK);
        choose(s, std::vector<float>(6, 0.0f));
        CHECK(s.logits[4] == 0);  // a breaker is not lowered
    }
    // against the quadratic definition, on histories with many repeats
    duet::sampler_random random(3);
    for (int round = 0; round < 300; round++) {
        const int n_vocab = 2 + int(random.uniform() * 4), n = int(random.uniform() * 60);
        const int allowed = 1 + int(random.uniform() * 3), breaker = round % 2 ? 0 : 100;
        const int last_n = round % 3 ? -1 : int(random.uniform() * 40);
        duet::sampler s(1);
        apply(s, {{"dry.multiplier", 0.5f}, {"dry.base", 2}});
        apply(s, {{"dry.allowed_length", float(allowed)}, {"dry.last_n", float(last_n)}});
        REQUIRE(s.add_dry_breaker(breaker, err) == DUET_OK);
        std::vector<int32_t> history;
        for (int i = 0; i < n; i++) {
            history.push_back(int32_t(random.uniform() * n_vocab));
            REQUIRE(s.accept(history.back(), err) == DUET_OK);
        }
        if (last_n >= 0 && last_n < n) history.erase(history.begin(), history.end() - last_n);
        std::vector<int> longest(n_vocab);
        for (int end = 0; end + 1 < int(history.size()); end++) {
            int length = 0;
            while (length <= end && history[end - length] == history[history.size() - 1 - length] &&
                   history[end - length] != breaker)
                length++;
            longest[history[end + 1]] = std::max(longest[history[end + 1]], length);
        }
        choose(s, std::vector<float>(n_vocab, 1.0f));
        for (int32_t id = 0; id < n_vocab; id++) {
            const bool lowered = longest[id] >= allowed && id != breaker;
            CHECK(s.logits[id] == (lowered ? float(1 - 0.5 * std::pow(2.0, longest[id] - allowed)) : 1.0f));
        }
    }
    duet::sampler s(1);  // linear: a history of one repeated id, far beyond what quadratic time would bear
    apply(s, {{"dry.multiplier", 0.8f}});
    for (int i = 0; i < 300000; i++) REQUIRE(s.accept(5, err) == DUET_OK);
    CHECK(choose(s, golden_logits(300)) != 5);
    CHECK(s.logits[5] == -std::numeric_limits<float>::max());
}

TEST_CASE("sampler: mirostat holds the surprise at tau") {
    for (const float tau : {2.0f, 4.0f}) {
        duet::sampler s(5);
        apply(s, {{"mirostat.tau", tau}, {"top_k", 1}});  // the cuts are off while it is on
        std::vector<float> logits;
        for (int i = 0; i < 2000; i++) logits.push_back(-1.1f * std::log(float(i + 1)));  // Zipf's law
        const auto p = softmax(logits);
        double mean = 0;
        for (int i = 0; i < 4000; i++) {
            const int32_t id = choose(s, logits);
            double total = 0;
            for (const auto& c : s.candidates) total += p[c.id];
            if (i >= 1000) mean -= std::log2(p[id] / total) / 3000;
        }
        CHECK(mean == doctest::Approx(tau).epsilon(0.03));
    }
}

TEST_CASE("sampler: infinities, NaN and bias") {
    const float inf = INFINITY, nan = std::nanf("");
    duet_sampler* s = nullptr;
    REQUIRE(duet_sampler_create(1, &s) == DUET_OK);
    int32_t id = -7;
    const float with_nan[] = {1, nan, 3}, all_out[] = {-inf, -inf}, forced[] = {0, inf, inf}, one[] = {-5};
    CHECK(duet_sampler_choose(s, with_nan, 3, &id) == DUET_ERR_NAN);
    CHECK(std::string(duet_sampler_error(s)) == "1 of 3 logits are NaN or +inf, the first at id 1");
    CHECK(duet_sampler_choose(s, all_out, 2, &id) == DUET_ERR_NAN);
    CHECK(std::string(duet_sampler_error(s)) == "none of 2 logits is above -inf");
    CHECK(id == -7);
    CHECK(duet_sampler_choose(s, forced, 3, &id) == DUET_ERR_NAN);  // an overflow in the model is no choice
    CHECK(std::string(duet_sampler_error(s)) == "2 of 3 logits are NaN or +inf, the first at id 1");
    CHECK(id == -7);
    CHECK(duet_sampler_choose(s, one, 1, &id) == DUET_OK);
    CHECK(id == 0);

    const float flat[] = {0, 0, 0, 0};
    REQUIRE(duet_sampler_bias(s, 2, 50) == DUET_OK);
    CHECK((duet_sampler_choose(s, flat, 4, &id) == DUET_OK && id == 2));
    REQUIRE(duet_sampler_bias(s, 2, -inf) == DUET_OK);
    REQUIRE(duet_sampler_bias(s, 0, -inf) == DUET_OK);
    REQUIRE(duet_sampler_bias(s, 3, -inf) == DUET_OK);
    REQUIRE(duet_sampler_bias(s, 1000, 9) == DUET_OK);
    for (int i = 0; i < 50; i++) CHECK((duet_sampler_choose(s, flat, 4, &id) == DUET_OK && id == 1));
    REQUIRE(duet_sampler_bias(s, 1, -inf) == DUET_OK);
    CHECK(duet_sampler_choose(s, flat, 4, &id) == DUET_ERR_NAN);

    REQUIRE(duet_sampler_bias(s, 3, inf) == DUET_OK);
    CHECK((duet_sampler_choose(s, flat, 4, &id) == DUET_OK && id == 3));
    CHECK(duet_sampler_bias(s, -1, 0) == DUET_ERR_ARG);
    CHECK(duet_sampler_bias(s, 1, nan) == DUET_ERR_ARG);
    duet_sampler_free(s);
}

TEST_CASE("sampler: arguments and the table") {
    duet_sampler* s = nullptr;
    REQUIRE(duet_sampler_create(1, &s) == DUET_OK);
    int32_t id = 0;
    const float logits[] = {0, 1};
    CHECK(duet_sampler_create(1, nullptr) == DUET_ERR_ARG);
    CHECK(duet_sampler_choose(nullptr, logits, 2, &id) == DUET_ERR_ARG);
    CHECK(duet_sampler_choose(s, nullptr, 2, &id) == DUET_ERR_ARG);
    CHECK(duet_sampler_choose(s, logits, 0, &id) == DUET_ERR_ARG);
    CHECK(duet_sampler_choose(s, logits, -1, &id) == DUET_ERR_ARG);
    CHECK(duet_sampler_choose(s, logits, 2, nullptr) == DUET_ERR_ARG);
    CHECK(duet_sampler_accept(s, -1) == DUET_ERR_ARG);
    CHECK(duet_sampler_accept(nullptr, 1) == DUET_ERR_ARG);
    CHECK(duet_sampler_dry_breaker(s, -1) == DUET_ERR_ARG);
    CHECK(duet_sampler_set(s, nullptr, 1) == DUET_ERR_ARG);
    CHECK(duet_sampler_set(s, "top_kk", 1) == DUET_ERR_ARG);
    CHECK(std::strstr(duet_sampler_error(s), "\"top_kk\": unknown; there are repeat_penalty, "));
    CHECK(duet_sampler_set(s, "top_k", 1.5f) == DUET_ERR_ARG);
    CHECK(std::string(duet_sampler_error(s)) ==
          "sampler parameter top_k: want a whole number from 0 to 16777216, got 1.5");
    duet_sampler_free(nullptr);
    duet_sampler_reset(nullptr, 1);

    std::set<std::string> names;
    for (int32_t i = 0; const duet_sampler_param* row = duet_sampler_param_row(i); i++) {
        CAPTURE(row->name);
        CHECK(names.insert(row->name).second);
        CHECK(std::strlen(row->help) > 10);
        CHECK((row->default_value >= row->min_value && row->default_value <= row->max_value));
        for (const float good : {row->min_value, row->max_value, row->default_value})
            CHECK(duet_sampler_set(s, row->name, good) == DUET_OK);
        for (const float bad : {std::nanf(""), INFINITY, -INFINITY, row->min_value - 1, row->max_value * 1.01f})
            CHECK(duet_sampler_set(s, row->name, bad) == DUET_ERR_ARG);
    }
    CHECK(names.size() == 20);
    CHECK(duet_sampler_param_row(-1) == nullptr);
    CHECK(duet_sampler_param_row(20) == nullptr);
    duet_sampler_free(s);

    // every extreme alone and in pairs chooses something, from a list and from a single id
    const auto set_extreme = [](duet::sampler& to, int32_t i, bool low) {
        duet::error_text err;
        const duet_sampler_param* row = duet_sampler_param_row(i);
        REQUIRE(to.set(row->name, low ? row->min_value : row->max_value, err) == DUET_OK);
    };
    for (int32_t a = 0; a < 40; a++)
        for (int32_t b = 0; b <= a; b++) {
            duet::sampler both(9);
            duet::error_text err;
            for (const int32_t h : {1, 1, 0, 1, 1}) REQUIRE(both.accept(h, err) == DUET_OK);
            set_extreme(both, a / 2, a % 2);
            set_extreme(both, b / 2, b % 2);
            for (const auto& row : {std::vector<float>{0.5f}, {3e38f, -3e38f, 0, -INFINITY}, golden_logits(50)})
                for (int i = 0; i < 2; i++) {
                    const int32_t got = choose(both, row);
                    CHECK((got >= 0 && size_t(got) < row.size() && row[got] > -INFINITY));
                }
        }
}

TEST_CASE("sampler: a second choice needs no memory") {
    duet::sampler s(1);
    apply(s, {{"top_k", 40}, {"top_p", 0.9f}});
    const auto logits = golden_logits(20000);
    choose(s, logits);
    const size_t before[] = {s.logits.capacity(), s.candidates.capacity(), s.count.capacity(), s.ranking.capacity()};
    for (int i = 0; i < 20; i++) choose(s, logits);
    CHECK(before[0] == s.logits.capacity());
    CHECK(before[1] == s.candidates.capacity());
    CHECK(before[2] == s.count.capacity());
    CHECK(before[3] == s.ranking.capacity());
}
