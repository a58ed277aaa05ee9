// models/schema_pattern.h: sets of strings as finite automata over characters, made from patterns.
// Must not know: schemas, JSON, grammars. models/schema*.cpp use it.
#pragma once
#include "grammar.h"

namespace duet {

constexpr size_t kMaxPatternStates = 4096;     // of an automaton; more if long lists of strings are left out
constexpr size_t kMaxPatternSteps = 1u << 17;  // of the programs of all patterns together
constexpr size_t kMaxPatternBytes = 1u << 20;  // of one pattern
constexpr uint64_t kMaxPatternWork = 800'000;  // places looked at while an automaton is made

// A deterministic automaton that begins in state 0. A character without an edge leaves the set. No states: the set is
// empty.
struct char_automaton {
    struct edge {
        uint32_t lo, hi, to;
    };
    struct state {
        bool is_end = false;
        std::vector<edge> edges;  // sorted, disjoint
    };
    std::vector<state> states;  // an end can be reached from each

    bool accepts(std::string_view utf8) const;
    bool is_empty() const { return states.empty(); }
    // Gives the lengths of the shortest and the longest member; *max is kUnlimited if there is no longest. The set must
    // not be empty.
    void lengths(uint32_t* min, uint32_t* max) const;
};

// What must hold for a string: the pattern is found in it, or it is not.
struct string_condition {
    std::string pattern;
    bool is_negated = false;
    auto operator<=>(const string_condition&) const = default;
};

// Makes the automaton of the strings for which all conditions hold. A pattern is of a subset of ECMA-262: characters,
// . [a-z] [^a-z] \d \w \s \D \W \S, the escapes \t \n \v \f \r \0 \xHH \uHHHH \u{H} \cX and those of punctuation, ( )
// (?: ) | * + ? {m} {m,} {m,n} with or without a ? behind, and ^ $ anywhere. \d and \w are ASCII. \D \W \S, and negated
// classes that contain such an escape, hold only printable ASCII, so that differences between validators' views of
// Unicode do not matter.
// DUET_ERR_UNSUPPORTED or DUET_ERR_FORMAT: "at byte N: ...". DUET_ERR_FULL: past a limit.
duet_status match_strings(const std::vector<string_condition>& conditions, char_automaton* out, error_text& err);

// Returns the pattern of a JSON schema format, anchored, or an empty text if the format is not known.
std::string format_pattern(std::string_view format);
constexpr const char* kKnownFormats = "date-time, date, time, duration, uuid, email, hostname, ipv4, ipv6, uri";
// Returns the pattern that exactly these strings match.
std::string list_pattern(const std::vector<std::string_view>& strings);

}  // namespace duet
