// models/grammar_automaton.h: a deterministic automaton of the states that a text can be in. States are made as they
// are met.
// Owns: states, stacks of callers, transitions. Must not know: tokens.
// Main path: models/grammar_build -> [models/grammar_automaton] -> models/grammar_mask
//
// A state is a set of items (node, frame). The node waits for a byte. The frame says where to go on when the node's
// rule is complete: it is a set of edges (node to return to, frame of that node). All calls of one rule at one place of
// the text share one frame. Equal frames and equal states are stored once. A call at the end of a rule passes on the
// edges of its own frame. So loops written as right recursion come back to the same state, and no text has more frames
// at a place than the grammar has rules.
#pragma once
#include "grammar_build.h"

#include <algorithm>
#include <list>
#include <span>
#include <utility>

namespace duet {

constexpr size_t kMaxStateItems = 1u << 16;       // ways to read the text so far that a state may hold
constexpr size_t kMaxAutomatonBytes = 96u << 20;  // of states made by one mask or one token

// Numbers equal records: open addressing over hashes. The records are stored elsewhere.
class record_index {
  public:
    template <class Equal> uint32_t find(uint64_t hash, Equal equal) const {
        for (size_t i = hash & (slots_.size() - 1); slots_[i].id != UINT32_MAX; i = (i + 1) & (slots_.size() - 1))
            if (slots_[i].hash == hash && equal(slots_[i].id)) return slots_[i].id;
        return UINT32_MAX;
    }
    // Makes room for one more, so that the next insert() cannot fail.
    void reserve_one() {
        if ((n_ + 1) * 2 > slots_.size()) grow();
    }
    void insert(uint64_t hash, uint32_t id) {
        reserve_one();
        n_++;
        put({hash, id});
    }
    void clear() {
        n_ = 0;
        slots_.assign(64, {});
    }
    size_t n_bytes() const { return slots_.size() * sizeof(slot); }

  private:
    struct slot {
        uint64_t hash = 0;
        uint32_t id = UINT32_MAX;
    };
    void put(const slot& s) {
        size_t i = s.hash & (slots_.size() - 1);
        while (slots_[i].id != UINT32_MAX) i = (i + 1) & (slots_.size() - 1);
        slots_[i] = s;
    }
    void grow() {
        std::vector<slot> old(slots_.size() * 2);
        slots_.swap(old);
        for (const slot& s : old)
            if (s.id != UINT32_MAX) put(s);
    }
    std::vector<slot> slots_ = std::vector<slot>(64);
    size_t n_ = 0;
};

// The states and frames seen so far, each stored once.
class automaton_memory {
  protected:
    struct item {
        uint32_t node, frame;
        auto operator<=>(const item&) const = default;
    };
    struct edge {
        uint32_t node;  // a repeat node, or the node after a call
        // How often a repeat node's rule was complete (without a maximum, at most its minimum), or kNotCounted.
        uint32_t count;
        uint32_t frame;
        auto operator<=>(const edge&) const = default;
    };
    struct frame_data {
        uint32_t first_edge, n_edges;
    };
    struct state_data {
        uint32_t first_item, n_items;
        uint32_t n_steps;  // made without a table
        bool can_end;
    };
    static constexpr uint32_t kUnknown = UINT32_MAX, kNotCounted = UINT32_MAX;

    std::span<const item> items_of(uint32_t state) const {
        return std::span(items_).subspan(states_[state].first_item, states_[state].n_items);
    }
    std::span<const edge> edges_of(uint32_t frame) const {
        return std::span(edges_).subspan(frames_[frame].first_edge, frames_[frame].n_edges);
    }

    std::vector<item> items_;
    std::vector<edge> edges_;
    std::vector<frame_data> frames_ = {{0, 0}};  // a frame comes after the frames that its edges name
    std::vector<state_data> states_ = {{0, 0, 0, false}};
    std::vector<uint32_t> tables_ = {kUnknown};  // for each state, where its part of next_ begins, or kUnknown
    std::vector<uint32_t> next_;
    record_index frame_index_, state_index_;
};

class grammar_automaton : automaton_memory {
  public:
    static constexpr uint32_t kDead = 0, kStart = 1;  // states; kDead has no items and no text ends there

    explicit grammar_automaton(grammar rules);

    // Returns the state after a byte. Past a limit it sets is_over() and returns kDead.
    uint32_t step(uint32_t state, uint8_t byte) {
        const uint32_t i_class = g_.class_of[byte], table = tables_[state];
        const uint32_t known = table == kUnknown ? kUnknown : next_[table + i_class];
        return known != kUnknown ? known : make_step(state, i_class);
    }
    bool can_end(uint32_t state) const { return states_[state].can_end; }
    bool has_next(uint32_t state) const { return states_[state].n_items > 0; }
    uint32_t n_classes() const { return (uint32_t)g_.class_byte.size(); }

    // Returns a state in which the same texts of at most n_bytes may follow, and the same ones may end, as in the given
    // state. Counts of repetitions that no such text can bring to a limit are made equal, so that more states coincide.
    uint32_t far_from_limits(uint32_t state, uint32_t n_bytes);

    // Returns whether a limit was met since the last call.
    bool take_is_over() { return std::exchange(is_over_, false); }
    size_t n_bytes() const;
    // Forgets all states except `places` and the start. Where memory runs out, nothing has changed.
    void forget();

    // The states that matchers are in. forget() keeps them, and may number them anew.
    std::list<uint32_t> places;

  private:
    static constexpr uint32_t kRoot = 0;  // the frame below the first rule

    uint32_t make_step(uint32_t state, uint32_t i_class);
    void begin();
    uint32_t finish();
    void reach(uint32_t node, uint32_t frame);
    void follow(bool is_return);
    void return_to(const edge& e);
    void call(uint32_t rule, const edge& e);
    // Where memory runs out in these two, nothing has changed.
    uint32_t add_frame(std::vector<edge>& edges);
    uint32_t add_state(std::vector<item>& items, bool can_end);
    std::vector<uint32_t> copy_places_from(const grammar_automaton& other);
    uint32_t far_frame(uint32_t frame, uint32_t n_bytes, int depth);

    const grammar rules_;
    const grammar_data& g_;
    bool is_over_ = false;

    // Scratch of one step.
    std::vector<item> reached_, found_;
    record_index reached_index_;
    size_t n_followed_ = 0;                 // of reached_
    std::vector<std::vector<edge>> calls_;  // by rule
    // Rules with calls behind their ranks, a heap; the lowest rank is first.
    std::vector<std::pair<uint32_t, uint32_t>> called_;
    std::vector<edge> edge_scratch_;
    bool found_end_ = false;
    uint32_t n_far_frames_ = 0;
};

}  // namespace duet
