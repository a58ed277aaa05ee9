// models/schema_number.h: exact ranges of numbers as parts of a grammar.
// Must not know: schemas. Used by models/schema*.cpp
#pragma once
#include "grammar.h"
#include "value.h"

#include <optional>

namespace duet {

// sign * whole.fraction, without zeros that say nothing: whole is "0" or begins with 1 to 9, fraction ends with 1 to 9.
struct decimal {
    bool is_negative = false;
    std::string whole = "0", fraction;
    bool is_zero() const { return whole == "0" && fraction.empty(); }
};

// The digits of a finite number. A real stands for the shortest decimal that reads back as it.
decimal to_decimal(const value& number);
int compare(const decimal& a, const decimal& b);  // -1, 0, 1

struct number_bound {
    decimal at;
    bool is_exclusive = false;
};

struct number_range {
    std::optional<number_bound> low, high;
    uint32_t divisor = 1;  // of integers; at most kMaxDivisor
    bool is_integer = false;

    // The tighter of two bounds stays.
    void raise_low(const number_bound& b);
    void lower_high(const number_bound& b);
    bool is_empty() const;  // by its bounds alone
    bool contains(const decimal& d) const;
};

constexpr uint32_t kMaxDivisor = 100;
constexpr size_t kFreeDigits = 15;  // of a number without bounds: before the point and behind it

// Decimal texts of exactly the numbers in the range, as JSON writes them. Limits that the range does not give: 15
// digits before the point (one more than a low bound has, if that is longer), 15 significant digits otherwise, and more
// where a bound has more. So two different texts near a bound are different doubles, and no text runs for ever. An
// exponent is only used where there are no bounds. Integers have neither point nor exponent. Linear in the digits of
// the bounds.
grammar_builder::expr number_part(grammar_builder& b, const number_range& range);

}  // namespace duet
