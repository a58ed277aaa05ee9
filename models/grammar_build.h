// models/grammar_build.h: a compiled grammar, which is the nodes that positions in a text point to.
// models/grammar_build.cpp makes it, and models/grammar_automaton.cpp walks it.
#pragma once
#include "grammar.h"

namespace duet {

// Node 0 is the end of every rule.
struct grammar_node {
    // clang-format off
    enum node_kind : uint8_t {
        accept,  // the rule is complete
        bytes,   // a byte of sets[arg], then next
        split,   // next, or arg
        call,    // rule arg, then next
        repeat,  // repeats[arg], then next
    };
    // clang-format on
    node_kind kind;
    bool is_alive = false;  // the end of its rule can be reached
    uint32_t next = 0, arg = 0;
};

struct grammar_repeat {
    uint32_t rule, min, max;
};

struct grammar_rule {
    uint32_t start;
    uint32_t name;      // number of the builder's rule
    uint32_t rank = 0;  // a rule that may call another before any byte has the lower rank
    bool is_nullable = false;
};

struct grammar_data {
    std::vector<grammar_node> nodes;
    std::vector<grammar_rule> rules;  // rule 0 is the root
    std::vector<grammar_repeat> repeats;
    std::vector<byte_set> sets;
    std::array<uint8_t, 256> class_of;  // bytes that every set treats alike share one class
    std::vector<uint8_t> class_byte;    // one byte of each class
};

inline bool byte_set_has(const byte_set& set, uint8_t byte) { return set[byte / 64] >> (byte % 64) & 1; }

}  // namespace duet
