// models/grammar.h: rules for what a text may be, and which tokens may come next in it.
// Owns: rules and their automaton over bytes, vocabularies as prefix trees, masks of tokens. Must not know: JSON,
// models, sessions, how ids are chosen.
// Main path: models/schema or GBNF text -> [models/grammar] -> models/sampler
//
// How a constraint is made: rules come from parse_gbnf, from add_schema (schema.h), or from grammar_builder calls, in
// any mixture. build() turns them into a `grammar`. A `token_tree` is made once per vocabulary. A `constraint` joins
// both and keeps the computed states, transitions and masks. A `grammar_matcher` is the place of one text in a
// constraint.
//
// All matching is done on bytes, so a token may end inside a character. The states of a text are sets of rule
// positions, each with a stack of callers. A stack that many positions share is stored once (a graph-structured stack,
// M. Tomita, 1985), so an ambiguous grammar needs memory in proportion to the text. No function here recurses on its
// input.
#pragma once
#include "status.h"

#include <array>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace duet {

constexpr size_t kGrammarMaxText = 1u << 20;   // bytes of GBNF text
constexpr size_t kGrammarMaxNodes = 1u << 19;  // nodes of the automaton, and parts of rules
constexpr uint32_t kUnlimited = UINT32_MAX;    // maximum of a repetition without a limit

// The text of a control token begins with this byte, which UTF-8 does not have, and its spelling follows. So classes of
// characters never take control tokens; only spelled(), until() and without() do.
constexpr uint8_t kControlMark = 0xff;

struct code_range {  // of Unicode code points, both ends included
    uint32_t lo, hi;
    auto operator<=>(const code_range&) const = default;
};

// A set of code points: sorted, neighbours merged, clipped to Unicode's range.
std::vector<code_range> normal_ranges(std::vector<code_range> ranges);
std::vector<code_range> complement_of(const std::vector<code_range>& ranges);

// A set of bytes: 256 bits, one for each byte.
using byte_set = std::array<uint64_t, 4>;
inline void byte_set_add(byte_set* set, uint8_t lo, uint8_t hi) {
    for (uint32_t b = lo; b <= hi; b++) (*set)[b / 64] |= uint64_t(1) << (b % 64);
}

// ---- rules ----------------------------------------------------------------------------------------------------------

struct grammar_data;  // compiled, in grammar_build.h

// Compiled rules. They are immutable, so threads may share them.
using grammar = std::shared_ptr<const grammar_data>;

// Makes a grammar from parts. A part (`expr`) may be used in several places. It is compiled anew for each, so a part
// that is large and used often should be a rule. Memory grows with the parts; past kGrammarMaxNodes parts build()
// fails. A builder belongs to one thread.
class grammar_builder {
  public:
    using expr = uint32_t;

    size_t schema_work = 0;       // that its schemas took; see schema_reader
    expr nothing() { return 0; }  // matches no text at all
    expr empty() { return 1; }    // matches the empty text
    expr literal(std::string_view bytes);
    // Matches the bytes. A stretch of them in <> or [] may also be the control token that is spelled so.
    expr spelled(std::string_view bytes);
    expr one_byte(const byte_set& set);
    expr one_char(const std::vector<code_range>& ranges);  // in UTF-8; ranges in any order; surrogates are left out
    expr sequence(const std::vector<expr>& parts);
    expr any_of(const std::vector<expr>& choices);
    expr repeat(expr part, uint32_t min, uint32_t max = kUnlimited);  // cost does not depend on the limits
    expr optional(expr part) { return repeat(part, 0, 1); }
    expr one_of_texts(std::vector<std::string> texts);  // a prefix tree, fit for 100,000 texts

    // Matches any bytes up to and including the first place where a marker is complete. There may be at most 64
    // markers, none of them empty.
    expr until(const std::vector<std::string>& ends) { return search(ends, true, true); }
    // Matches any bytes in which no marker is complete, and control tokens only if has_control. The match may end
    // anywhere.
    expr without(const std::vector<std::string>& markers, bool has_control = true) {
        return search(markers, false, has_control);
    }

    // Makes a finite automaton whose edges are parts. States are numbered; the automaton begins in state 0.
    struct graph_edge {
        uint32_t from;
        expr part;
        uint32_t to;
    };
    expr graph(uint32_t n_states, const std::vector<graph_edge>& edges, const std::vector<uint32_t>& ends);

    // A rule may be used before it is defined. Messages show its name.
    uint32_t add_rule(std::string name);
    void define(uint32_t rule, expr part) { rules_[rule].part = part; }
    expr call(uint32_t rule) { return add({part_kind::call, rule}); }

    // Compiles all rules that the given rule can reach; messages may call it `root`. Time and memory are linear in the
    // parts. DUET_ERR_FORMAT: a rule is not defined, a rule calls itself before any byte (left recursion; the message
    // names the rules), or no text matches. DUET_ERR_FULL: there are more than kGrammarMaxNodes parts or nodes.
    duet_status build(uint32_t root, grammar* out, error_text& err) const;

    bool is_full() const { return is_full_; }

  private:
    friend class grammar_compiler;
    enum class part_kind : uint8_t { nothing, empty, literal, bytes, chars, sequence, any_of, repeat, graph, call };
    struct part_node {
        part_kind kind;
        uint32_t a = 0, b = 0, c = 0;  // literal, chars, sequence, any_of: first and count; repeat: part, min, max
    };
    struct graph_data {
        uint32_t n_states;
        std::vector<graph_edge> edges;  // by state
        std::vector<bool> is_end;
    };
    struct rule_data {
        std::string name;
        expr part = UINT32_MAX;
    };
    expr add(part_node node);
    expr add_list(part_kind kind, const std::vector<expr>& parts);
    expr search(const std::vector<std::string>& marks, bool is_until, bool has_control);

    std::vector<part_node> parts_ = {{part_kind::nothing}, {part_kind::empty}};
    std::vector<expr> lists_;
    std::vector<code_range> ranges_;
    std::vector<byte_set> sets_;
    std::vector<graph_data> graphs_;
    std::vector<rule_data> rules_;
    std::string bytes_;
    bool is_full_ = false;
};

// Adds the rules of a GBNF text and sets *root to the rule of that name. The notation is llama.cpp's
// (grammars/README.md):
//   name ::= "literal" [a-z] [^a-z] . ( ... | ... ) other-name * + ? {m} {m,} {,n} {m,n}     # a comment
// with the escapes \n \r \t \\ \" \[ \] \- \^ \xHH \uHHHH \UHHHHHHHH. A rule ends with its line, except inside
// parentheses and after ::= or |. DUET_ERR_FORMAT: "grammar: line L, column C: want ..., got ...".
duet_status parse_gbnf(std::string_view text, std::string_view root_name, grammar_builder& builder, uint32_t* root,
                       error_text& err);

// ---- vocabularies ---------------------------------------------------------------------------------------------------

// The texts of a vocabulary's tokens as prefix trees. They are immutable, so threads may share them.
class token_tree {
  public:
    // text(id, user) gives the bytes of a token, those of a control token behind kControlMark. A token with no bytes is
    // never allowed, unless it is an end token. The bytes are read before the next call.
    using token_text = std::string_view (*)(int32_t id, const void* user);

    // Time and memory are linear in the bytes of all tokens. DUET_ERR_ARG: no ids, or an end token out of range.
    static duet_status make(int32_t n_vocab, token_text text, const void* user, const std::vector<int32_t>& end_ids,
                            std::shared_ptr<const token_tree>* out, error_text& err);

    int32_t n_vocab() const { return n_vocab_; }
    int32_t n_ends() const { return (int32_t)end_ids_.size(); }
    bool is_end(int32_t id) const { return is_end_[(size_t)id]; }
    std::string_view text(int32_t id) const;

  private:
    friend class constraint;
    // Tokens are split into bands by length, and each band has a tree of its own. So a state whose text is about to
    // reach a limit shares the masks of the shorter bands with states far from the limit.
    struct node {      // in preorder
        uint32_t end;  // index of the first node outside this one's subtree
        uint32_t first_id;
        uint16_t depth;  // 1 for the first byte
        uint8_t byte;
    };
    struct band {
        uint32_t max_bytes;
        std::vector<node> nodes;  // nodes, and one past the last
        std::vector<int32_t> ids;
    };
    void fill_band(const std::vector<int32_t>& sorted, uint32_t min_bytes, band* b) const;

    int32_t n_vocab_ = 0;
    std::vector<band> bands_;
    std::vector<int32_t> end_ids_;
    std::vector<bool> is_end_;
    std::vector<size_t> offsets_;  // offset of each id in bytes_
    std::string bytes_;
};

// The tokens that may come next: one bit per id. A mask is immutable.
struct token_mask {
    std::vector<uint64_t> bits;  // (n_vocab + 63) / 64
    int32_t n_allowed = 0;
    bool allows(int32_t id) const { return bits[(size_t)id / 64] >> (id % 64) & 1; }
};

// Sets the logits of all ids outside the mask to -inf. logits has n_logits elements. Ids past the mask's vocabulary are
// forbidden.
void apply_mask(const token_mask& mask, float* logits, size_t n_logits);

// ---- matching -------------------------------------------------------------------------------------------------------

class grammar_automaton;  // the states seen so far, in grammar_automaton.h

constexpr size_t kConstraintCacheBytes = 96u << 20;

// A grammar over a vocabulary. Matchers in several threads may use it; their calls wait for each other. It keeps states
// and masks up to about kConstraintCacheBytes, and then forgets all except the places of its matchers.
class constraint {
  public:
    constraint(grammar rules, std::shared_ptr<const token_tree> tokens);
    ~constraint();
    constraint(const constraint&) = delete;
    constraint& operator=(const constraint&) = delete;
    const token_tree& tokens() const { return *tokens_; }

  private:
    friend class grammar_matcher;
    using mask_ptr = std::shared_ptr<const token_mask>;
    mask_ptr mask_of(uint32_t state);
    void walk(uint32_t state, const token_tree::band& band, std::vector<uint64_t>& bits);
    void trim();

    std::mutex mutex_;
    std::shared_ptr<const token_tree> tokens_;
    std::unique_ptr<grammar_automaton> automaton_;
    std::unordered_map<uint32_t, mask_ptr> masks_;  // by state
    std::unordered_map<uint64_t, std::vector<uint64_t>>
        band_masks_;                  // by state * n_bands + band, where they are shared
    std::vector<uint32_t> at_depth_;  // scratch
    size_t trim_at_bytes_ = kConstraintCacheBytes;
};

// The place of one text in a grammar. It belongs to one thread at a time; copies are independent.
class grammar_matcher {
  public:
    explicit grammar_matcher(std::shared_ptr<constraint> c);  // at the beginning of a text
    grammar_matcher(const grammar_matcher& other);
    grammar_matcher& operator=(grammar_matcher other);
    ~grammar_matcher();

    // Takes a token. An end token ends the text. DUET_ERR_ARG: the token is not allowed here, and the place stays as it
    // was. DUET_ERR_FULL: the text can be read in more than kMaxStateItems ways, because the grammar is ambiguous.
    duet_status accept(int32_t id, error_text& err);
    duet_status accept_bytes(std::string_view bytes, error_text& err);

    // Gives the tokens that may come next; no other token may. End tokens are allowed exactly where the text may end.
    // The same text gives the same mask on every machine. Fails as accept does, or with DUET_ERR_FORMAT when the
    // vocabulary has no token for what the grammar wants. A new state costs a walk of the vocabulary (about 2 ms for
    // 128k tokens); a state seen before costs a look-up.
    duet_status mask(std::shared_ptr<const token_mask>* out, error_text& err);

    bool can_end();  // the text may end here
    int32_t n_ends() const { return constraint_->tokens().n_ends(); }
    bool must_end();                           // nothing may follow
    bool has_ended() const { return ended_; }  // an end token was accepted
    void reset();

  private:
    std::shared_ptr<constraint> constraint_;
    std::list<uint32_t>::iterator place_;  // the state, in the automaton's list
    bool ended_ = false;
};

}  // namespace duet
