// models/schema_pattern.h: sets of strings as finite automata over characters: patterns, formats, lengths, names.
// Must not know: schemas, JSON, grammars. models/schema*.cpp use it.
#pragma once
#include "grammar.h"

namespace duet {

constexpr size_t kMaxPatternStates = 4096;  // of an automaton made from a pattern, or from two automata
constexpr size_t kMaxPatternBytes = 1u << 16;

// A deterministic automaton that begins in state 0. A character without an edge leaves the set.
struct char_automaton {
    struct edge {
        uint32_t lo, hi, to;
    };
    struct state {
        bool is_end = false;
        std::vector<edge> edges;  // sorted, disjoint
    };
    std::vector<state> states;

    bool accepts(std::string_view utf8) const;
    bool is_empty() const { return states.empty(); }  // after trim()
    // Gives the lengths of the shortest and the longest member; *max is kUnlimited if there is no longest. The set must
    // not be empty.
    void lengths(uint32_t* min, uint32_t* max) const;
    // Drops states from which no end can be reached.
    void trim();
};

// Returns the strings in which a pattern is found. It takes a subset of ECMA-262: characters, . [a-z] [^a-z] \d \w \s
// \D \W \S, the escapes \t \n \v \f \r \0 \xHH \uHHHH \u{H} \cX and those of punctuation, ( ) (?: ) | * + ? {m} {m,}
// {m,n} with or without a ? behind, and ^ $ anywhere. \d and \w are ASCII. \D \W \S, and negated classes that contain
// such an escape, hold only printable ASCII, so that differences between validators' views of Unicode do not matter.
// DUET_ERR_UNSUPPORTED or DUET_ERR_FORMAT: "at byte N: ...". DUET_ERR_FULL: more than kMaxPatternStates states.
duet_status compile_pattern(std::string_view pattern, char_automaton* out, error_text& err);

// Returns the pattern of a JSON schema format, anchored, or an empty text if the format is not known.
std::string format_pattern(std::string_view format);
const char* known_formats();

char_automaton complement(const char_automaton& a);
char_automaton strings_of_length(uint32_t min, uint32_t max);           // kUnlimited: any; linear in the limits
char_automaton strings_of_residue(uint32_t residue, uint32_t modulus);  // of the length
char_automaton strings_of_chars(const std::vector<code_range>& chars);
char_automaton one_of_strings(const std::vector<std::string>& strings);
// Returns false if there are more than kMaxPatternStates states.
bool intersect(const char_automaton& a, const char_automaton& b, char_automaton* out);

}  // namespace duet
