// models/schema_number.h: exact ranges of numbers as parts of a grammar.
// Must not know: schemas. models/schema*.cpp use it.
#pragma once
#include "grammar.h"
#include "value.h"

#include <optional>

namespace duet {

// A number sign * whole.fraction without superfluous zeros: whole is "0" or begins with 1 to 9, fraction is empty or
// ends with 1 to 9.
struct decimal {
    bool is_negative = false;
    std::string whole = "0", fraction;
    bool is_zero() const { return whole == "0" && fraction.empty(); }
};

// Returns the digits of a finite number. For a real they are the shortest decimal that reads back as the same number.
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

    // Keeps the tighter of two bounds.
    void raise_low(const number_bound& b);
    void lower_high(const number_bound& b);
    bool is_empty() const;  // judged by its bounds alone
    bool contains(const decimal& d) const;
};

constexpr uint32_t kMaxDivisor = 100;
constexpr size_t kFreeDigits = 15;  // digits of a number without bounds, before the point and behind it

// Makes the decimal texts of exactly the numbers in the range, as JSON writes them. The range may leave the digits
// open: then there are at most 15 digits before the point (one more than a low bound has, if that is longer) and
// otherwise 15 significant digits, more where a bound has more. So two different texts near a bound are different
// doubles, and no text is endless. An exponent is used only where there are no bounds. Integers have neither point nor
// exponent. Time and memory are linear in the digits of the bounds.
grammar_builder::expr number_part(grammar_builder& b, const number_range& range);

}  // namespace duet
