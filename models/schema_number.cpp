// models/schema_number.cpp: makes automata over digits from ranges of decimal numbers.
// Main path: models/schema -> [models/schema_number] -> models/grammar_build
//
// A number is read digit by digit. While its digits equal those of a bound, it is "tight" to that bound, and the
// bound's next digit limits its next digit. After that the bound no longer limits it.
#include "schema_number.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

namespace duet {
namespace {

using expr = grammar_builder::expr;

// Without bounds; kFreeDigits before the point and behind it.
constexpr char kFreeNumber[] = R"(
integer ::= "-"? ("0" | [1-9] [0-9]{0,14})
number ::= integer ("." [0-9]{1,15})? ([eE] [+-]? [0-9]{1,2})?
)";

// Numbers of 0 and more, between two bounds, whose signs do not count.
class magnitude_graph {
  public:
    magnitude_graph(grammar_builder& b, const number_bound& low, const number_bound& high, size_t max_fraction,
                    uint32_t divisor)
        : b_(b), low_(low), high_(high), max_fraction_(max_fraction), divisor_(divisor) {}

    expr make() {
        if (low_.at.whole.size() > high_.at.whole.size()) return b_.nothing();
        state_of({start, 0, 0, false, false});
        for (size_t i = 0; i < todo_.size(); i++) expand(todo_[i], (uint32_t)i);
        return b_.graph((uint32_t)todo_.size(), edges_, ends_);
    }

  private:
    enum section : uint8_t { start, whole, point, fraction };
    struct place {
        section where;
        size_t n;  // whole: digits still to come; fraction: digits done
        uint32_t residue;
        bool is_low_tight, is_high_tight;
        auto operator<=>(const place&) const = default;
    };

    uint32_t state_of(place p) {
        // Nothing that follows can be below a bound whose remaining digits are zeros.
        if (p.where == fraction && p.is_low_tight && p.n >= low_.at.fraction.size() && !low_.is_exclusive)
            p.is_low_tight = false;
        const auto [at, is_new] = known_.try_emplace(p, (uint32_t)todo_.size());
        if (is_new) todo_.push_back(p);
        return at->second;
    }

    static int digit(const std::string& digits, size_t i) { return i < digits.size() ? digits[i] - '0' : 0; }

    bool may_end(const place& p, size_t n_fraction) const {
        const bool is_low = !p.is_low_tight || (n_fraction >= low_.at.fraction.size() && !low_.is_exclusive);
        const bool is_high = !p.is_high_tight || n_fraction < high_.at.fraction.size() || !high_.is_exclusive;
        return is_low && is_high && p.residue == 0;
    }

    // Adds edges for the digits first to 9 at a place whose bounds' digits are given.
    void add_digits(uint32_t from, const place& to, int first, int low, int high) {
        const int lo = to.is_low_tight ? std::max(low, first) : first, hi = to.is_high_tight ? high : 9;
        for (int d = lo; d <= hi;) {
            place p = to;
            p.is_low_tight = to.is_low_tight && d == low;
            p.is_high_tight = to.is_high_tight && d == high;
            p.residue = (to.residue * 10 + (uint32_t)d) % divisor_;
            int last = d;  // digits that are free of both bounds go together
            if (!p.is_low_tight && !p.is_high_tight && divisor_ == 1) last = to.is_high_tight ? hi - 1 : hi;
            edges_.push_back({from, b_.one_char({{uint32_t('0' + d), uint32_t('0' + last)}}), state_of(p)});
            d = last + 1;
        }
    }

    void expand(const place& p, uint32_t from) {
        const std::string &low = low_.at.whole, &high = high_.at.whole;
        switch (p.where) {
        case start:
            for (size_t n = low.size(); n <= high.size(); n++)
                add_digits(from, {whole, n - 1, 0, n == low.size(), n == high.size()}, n > 1, digit(low, 0),
                           digit(high, 0));
            break;
        case whole:
            if (p.n > 0) {
                add_digits(from, {whole, p.n - 1, p.residue, p.is_low_tight, p.is_high_tight}, 0,
                           digit(low, low.size() - p.n), digit(high, high.size() - p.n));
                break;
            }
            if (may_end(p, 0)) ends_.push_back(from);
            if (max_fraction_ > 0)
                edges_.push_back({from, b_.literal("."), state_of({point, 0, 0, p.is_low_tight, p.is_high_tight})});
            break;
        case point:
        case fraction:
            if (p.where == fraction && may_end(p, p.n)) ends_.push_back(from);
            if (p.n < max_fraction_)
                add_digits(from, {fraction, p.n + 1, 0, p.is_low_tight, p.is_high_tight}, 0,
                           digit(low_.at.fraction, p.n), digit(high_.at.fraction, p.n));
            break;
        }
    }

    grammar_builder& b_;
    const number_bound low_, high_;
    const size_t max_fraction_;
    const uint32_t divisor_;
    std::map<place, uint32_t> known_;
    std::vector<place> todo_;
    std::vector<grammar_builder::graph_edge> edges_;
    std::vector<uint32_t> ends_;
};

size_t significant_whole(const decimal& d) { return d.whole == "0" ? 0 : d.whole.size(); }

// Replaces an exclusive bound by the next double inside, which is inclusive. This is for bounds so long that a number
// beside the bound might read back as the bound.
number_bound next_inside(const number_bound& b, bool is_low) {
    const std::string text = (b.at.is_negative ? "-" : "") + b.at.whole + "." + b.at.fraction + "0";
    double d = 0;
    read_double(text, &d);
    d = std::nextafter(d, is_low ? HUGE_VAL : -HUGE_VAL);
    return std::isfinite(d) ? number_bound{to_decimal(value::of_double(d)), false} : b;
}

}  // namespace

decimal to_decimal(const value& number) {
    const std::string all = number.is(value_kind::big_integer) ? std::string(number.as_string())
                            : number.is_int()                  ? std::to_string(number.as_int())
                                                               : double_repr(number.as_double(), false);
    std::string_view text = all;
    decimal d;
    d.is_negative = text[0] == '-';
    text.remove_prefix(d.is_negative);
    const size_t point = std::min(text.find('.'), text.size());
    d.whole = text.substr(0, point);
    d.fraction = text.substr(std::min(point + 1, text.size()));
    d.fraction.resize(d.fraction.find_last_not_of('0') + 1);
    if (d.is_zero()) d.is_negative = false;
    return d;
}

int compare(const decimal& a, const decimal& b) {
    if (a.is_negative != b.is_negative) return a.is_negative ? -1 : 1;
    int order = a.whole.size() != b.whole.size() ? a.whole.size() < b.whole.size() ? -1 : 1 : a.whole.compare(b.whole);
    if (order == 0) order = a.fraction.compare(b.fraction);  // no zeros at the end: a prefix is smaller
    order = order < 0 ? -1 : order > 0;
    return a.is_negative ? -order : order;
}

void number_range::raise_low(const number_bound& b) {
    const int order = low ? compare(b.at, low->at) : 1;
    if (order > 0 || (order == 0 && b.is_exclusive)) low = b;
}

void number_range::lower_high(const number_bound& b) {
    const int order = high ? compare(b.at, high->at) : -1;
    if (order < 0 || (order == 0 && b.is_exclusive)) high = b;
}

bool number_range::is_empty() const {
    if (!low || !high) return false;
    const int order = compare(low->at, high->at);
    return order > 0 || (order == 0 && (low->is_exclusive || high->is_exclusive));
}

bool number_range::contains(const decimal& d) const {
    const int above = low ? compare(d, low->at) : 1, below = high ? compare(d, high->at) : -1;
    if (above < 0 || (above == 0 && low->is_exclusive) || below > 0 || (below == 0 && high->is_exclusive)) return false;
    if (is_integer && !d.fraction.empty()) return false;
    if (divisor == 1) return true;
    uint32_t residue = 0;
    for (char c : d.whole) residue = (residue * 10 + (uint32_t)(c - '0')) % divisor;
    return residue == 0 && d.fraction.empty();
}

grammar_builder::expr number_part(grammar_builder& b, const number_range& range) {
    if (range.is_empty()) return b.nothing();
    const expr minus = b.literal("-");
    if (!range.low && !range.high && range.divisor == 1) {
        uint32_t rule = 0;
        error_text unused;  // the text is good
        parse_gbnf(kFreeNumber, range.is_integer ? "integer" : "number", b, &rule, unused);
        return b.call(rule);
    }
    std::optional<number_bound> low = range.low, high = range.high;
    // How many digits behind the point.
    size_t n_whole = 0, max_fraction = 0;
    for (const auto* bound : {&low, &high})
        if (*bound) n_whole = std::max(n_whole, significant_whole((*bound)->at));
    if (!range.is_integer && n_whole <= kFreeDigits) {
        max_fraction = kFreeDigits - n_whole;
        for (const auto* bound : {&low, &high})
            if (*bound) max_fraction = std::max(max_fraction, (*bound)->at.fraction.size());
        for (auto* bound : {&low, &high}) {
            if (!*bound || !(*bound)->is_exclusive || (*bound)->at.is_zero()) continue;
            if (significant_whole((*bound)->at) + max_fraction <= kFreeDigits) continue;
            *bound = next_inside(**bound, bound == &low);
            max_fraction = std::max(max_fraction, (*bound)->at.fraction.size());
        }
    }
    const size_t n_free = std::max(kFreeDigits, n_whole + 1);
    const decimal largest{false, std::string(n_free, '9'), ""}, smallest{true, std::string(n_free, '9'), ""}, zero;
    if (!low) low = number_bound{smallest, false};
    if (!high) high = number_bound{largest, false};
    std::vector<expr> choices;
    if (!high->at.is_negative) {
        const number_bound from = low->at.is_negative ? number_bound{zero, false} : *low;
        choices.push_back(magnitude_graph(b, from, *high, max_fraction, range.divisor).make());
    }
    if (low->at.is_negative) {
        const number_bound from = high->at.is_negative ? *high : number_bound{zero, true};  // no -0
        choices.push_back(b.sequence({minus, magnitude_graph(b, from, *low, max_fraction, range.divisor).make()}));
    }
    return b.any_of(choices);
}

}  // namespace duet
