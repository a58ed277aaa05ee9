// models/grammar_automaton.cpp: computes the step from a state over a byte.
// Main path: models/grammar_build -> [models/grammar_automaton] -> models/grammar_mask
//
// A step has two halves. In the first half every item whose node takes the byte moves on, and complete rules return
// into their frames. In the second half the calls that were met are made. Rules of lower rank come first, so that all
// calls of a rule are known when its frame is made. A rule called in the second half cannot return in it: if the rule
// may be empty, the item has already gone on behind the call.
#include "grammar_automaton.h"

#include <functional>

namespace duet {
namespace {

uint64_t mix(uint64_t h, uint64_t x) {
    h = (h ^ x) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 29;
}
uint64_t finish_hash(uint64_t h) {
    h = (h ^ h >> 32) * 0xd6e8feb86659fd93u;
    return h ^ h >> 32;
}

// Makes room for n more elements, so that adding them cannot fail.
template <class T> void reserve_more(std::vector<T>& v, size_t n) {
    if (v.capacity() - v.size() < n) v.reserve(std::max(v.size() + n, 2 * v.size()));
}

}  // namespace

grammar_automaton::grammar_automaton(grammar rules) : rules_(std::move(rules)), g_(*rules_), calls_(g_.rules.size()) {
    begin();  // the start is state 1
    call(0, {0, kNotCounted, kRoot});
    found_end_ = g_.rules[0].is_nullable;
    if (finish() == kDead) {  // too many ways to begin: a start without any
        states_.push_back(states_[kDead]);
        tables_.push_back(kUnknown);
    }
}

// ---- one step -------------------------------------------------------------------------------------------------------

uint32_t grammar_automaton::make_step(uint32_t state, uint32_t i_class) {
    if (is_over_) return kDead;
    const uint8_t byte = g_.class_byte[i_class];
    begin();
    for (const item& it : items_of(state)) {
        const grammar_node& n = g_.nodes[it.node];
        if (byte_set_has(g_.sets[n.arg], byte)) reach(n.next, it.frame);
    }
    const uint32_t to = finish();
    if (is_over_) return kDead;
    // Most states that a walk of the vocabulary meets are left by few bytes. Only the other states get a table.
    if (tables_[state] == kUnknown && ++states_[state].n_steps > 2) {
        next_.resize(next_.size() + n_classes(), kUnknown);
        tables_[state] = (uint32_t)(next_.size() - n_classes());
    }
    if (tables_[state] != kUnknown) next_[tables_[state] + i_class] = to;
    return to;
}

void grammar_automaton::begin() {
    for (const auto& [rank, rule] : called_) calls_[rule].clear();  // these remain if memory ran out
    called_.clear();
    reached_.clear();
    reached_index_.clear();
    n_followed_ = 0;
    found_.clear();
    found_end_ = false;
}

uint32_t grammar_automaton::finish() {
    follow(true);
    while (!called_.empty()) {
        std::ranges::pop_heap(called_, std::greater());
        const uint32_t rule = called_.back().second;
        const uint32_t frame = add_frame(calls_[rule]);
        calls_[rule].clear();
        called_.pop_back();  // last: what begin() clears if memory ran out
        reach(g_.rules[rule].start, frame);
        follow(false);
    }
    if (found_.size() > kMaxStateItems || n_bytes() > kMaxAutomatonBytes) is_over_ = true;
    return is_over_ ? kDead : add_state(found_, found_end_);
}

void grammar_automaton::reach(uint32_t node, uint32_t frame) {
    if (!g_.nodes[node].is_alive) return;
    const uint64_t h = finish_hash(mix(node, frame));
    const item it = {node, frame};
    if (reached_index_.find(h, [&](uint32_t id) { return reached_[id] == it; }) != UINT32_MAX) return;
    reached_index_.insert(h, (uint32_t)reached_.size());
    reached_.push_back(it);
}

// Goes on from all reached items without taking a byte. With is_return, complete rules return.
void grammar_automaton::follow(bool is_return) {
    while (n_followed_ < reached_.size() && !is_over_) {
        const item it = reached_[n_followed_++];
        const grammar_node& n = g_.nodes[it.node];
        switch (n.kind) {
        case grammar_node::bytes: found_.push_back(it); break;
        case grammar_node::split:
            reach(n.next, it.frame);
            reach(n.arg, it.frame);
            break;
        case grammar_node::accept:
            if (!is_return) break;
            if (it.frame == kRoot) found_end_ = true;
            for (const edge& e : edges_of(it.frame)) return_to(e);
            break;
        case grammar_node::call:
            if (g_.rules[n.arg].is_nullable) reach(n.next, it.frame);
            if (g_.nodes[n.next].kind == grammar_node::accept && it.frame != kRoot) {
                for (const edge& e : edges_of(it.frame)) call(n.arg, e);
            } else {
                call(n.arg, {n.next, kNotCounted, it.frame});
            }
            break;
        case grammar_node::repeat: {
            const grammar_repeat& r = g_.repeats[n.arg];
            if (r.min == 0 || g_.rules[r.rule].is_nullable) reach(n.next, it.frame);
            call(r.rule, {it.node, 0, it.frame});
            break;
        }
        }
        if (reached_.size() > kMaxStateItems * 4) is_over_ = true;
    }
}

void grammar_automaton::return_to(const edge& e) {
    const grammar_node& n = g_.nodes[e.node];
    if (e.count == kNotCounted) return reach(e.node, e.frame);
    const grammar_repeat& r = g_.repeats[n.arg];
    const uint32_t count = e.count + 1;
    if (count >= r.min || g_.rules[r.rule].is_nullable) reach(n.next, e.frame);
    if (r.max == kUnlimited) call(r.rule, {e.node, std::min(count, r.min), e.frame});
    else if (count < r.max) call(r.rule, {e.node, count, e.frame});
}

void grammar_automaton::call(uint32_t rule, const edge& e) {
    if (calls_[rule].empty()) {
        called_.push_back({g_.rules[rule].rank, rule});
        std::ranges::push_heap(called_, std::greater());
    }
    calls_[rule].push_back(e);
    if (calls_[rule].size() > kMaxStateItems * 4) is_over_ = true;
}

// ---- frames and states, each kept once ------------------------------------------------------------------------------

uint32_t grammar_automaton::add_frame(std::vector<edge>& edges) {
    std::sort(edges.begin(), edges.end());
    edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
    uint64_t h = edges.size();
    for (const edge& e : edges) h = mix(mix(h, (uint64_t)e.node << 32 | e.frame), e.count);
    h = finish_hash(h);
    const uint32_t found = frame_index_.find(h, [&](uint32_t id) { return std::ranges::equal(edges_of(id), edges); });
    if (found != UINT32_MAX) return found;
    reserve_more(frames_, 1);
    reserve_more(edges_, edges.size());
    frame_index_.reserve_one();
    frames_.push_back({(uint32_t)edges_.size(), (uint32_t)edges.size()});
    edges_.insert(edges_.end(), edges.begin(), edges.end());
    frame_index_.insert(h, (uint32_t)frames_.size() - 1);
    return (uint32_t)frames_.size() - 1;
}

uint32_t grammar_automaton::add_state(std::vector<item>& items, bool can_end) {
    if (items.empty() && !can_end) return kDead;
    std::sort(items.begin(), items.end());
    uint64_t h = items.size() * 2 + can_end;
    for (const item& i : items) h = mix(h, (uint64_t)i.node << 32 | i.frame);
    h = finish_hash(h);
    const uint32_t found = state_index_.find(
        h, [&](uint32_t id) { return states_[id].can_end == can_end && std::ranges::equal(items_of(id), items); });
    if (found != UINT32_MAX) return found;
    reserve_more(states_, 1);
    reserve_more(tables_, 1);
    reserve_more(items_, items.size());
    state_index_.reserve_one();
    states_.push_back({(uint32_t)items_.size(), (uint32_t)items.size(), 0, can_end});
    tables_.push_back(kUnknown);
    items_.insert(items_.end(), items.begin(), items.end());
    state_index_.insert(h, (uint32_t)states_.size() - 1);
    return (uint32_t)states_.size() - 1;
}

// ---- states far from the limits of repetitions ----------------------------------------------------------------------

uint32_t grammar_automaton::far_from_limits(uint32_t state, uint32_t n_bytes) {
    if (g_.repeats.empty()) return state;
    n_far_frames_ = 0;
    std::vector<item> items(items_of(state).begin(), items_of(state).end());
    bool has_changed = false;
    for (item& i : items) {
        const uint32_t frame = far_frame(i.frame, n_bytes, 4);
        has_changed = has_changed || frame != i.frame;
        i.frame = frame;
    }
    if (!has_changed) return state;
    std::sort(items.begin(), items.end());
    items.erase(std::unique(items.begin(), items.end()), items.end());
    return add_state(items, states_[state].can_end);
}

uint32_t grammar_automaton::far_frame(uint32_t frame, uint32_t n_bytes, int depth) {
    // If a frame stays as it is, the only cost is that its masks are not shared.
    if (frame == kRoot || depth == 0 || ++n_far_frames_ > 500) return frame;
    std::vector<edge> edges(edges_of(frame).begin(), edges_of(frame).end());
    if (edges.size() > 64) return frame;
    bool has_changed = false;
    for (edge& e : edges) {
        const edge before = e;
        e.frame = far_frame(e.frame, n_bytes, depth - 1);
        if (e.count != kNotCounted) {
            const grammar_repeat& r = g_.repeats[g_.nodes[e.node].arg];
            // Each completion takes a byte. Below the minimum, 0 stands for all such counts; above it, the minimum
            // does.
            if (e.count < r.min && r.min - e.count > n_bytes) e.count = 0;
            if (e.count > r.min && r.max != kUnlimited && r.max - e.count > n_bytes) e.count = r.min;
        }
        has_changed = has_changed || !(e == before);
    }
    return has_changed ? add_frame(edges) : frame;
}

// ---- memory ---------------------------------------------------------------------------------------------------------

size_t grammar_automaton::n_bytes() const {
    return items_.size() * sizeof(item) + edges_.size() * sizeof(edge) + frames_.size() * sizeof(frame_data) +
           states_.size() * (sizeof(state_data) + 4) + next_.size() * 4 + frame_index_.n_bytes() +
           state_index_.n_bytes();
}

// Adds the states of another automaton's places to this one, which is new. Returns their numbers here.
std::vector<uint32_t> grammar_automaton::copy_places_from(const grammar_automaton& other) {
    std::vector<bool> is_kept(other.frames_.size());
    for (uint32_t s : other.places)
        for (const item& i : other.items_of(s)) is_kept[i.frame] = true;
    for (uint32_t f = (uint32_t)other.frames_.size(); f-- > 0;) {
        if (!is_kept[f]) continue;
        for (const edge& e : other.edges_of(f)) is_kept[e.frame] = true;
    }
    std::vector<uint32_t> frame_of(other.frames_.size(), kRoot), numbers;
    for (uint32_t f = 1; f < other.frames_.size(); f++) {
        if (!is_kept[f]) continue;
        edge_scratch_.assign(other.edges_of(f).begin(), other.edges_of(f).end());
        for (edge& e : edge_scratch_) e.frame = frame_of[e.frame];
        frame_of[f] = add_frame(edge_scratch_);
    }
    for (uint32_t s : other.places) {
        found_.assign(other.items_of(s).begin(), other.items_of(s).end());
        for (item& i : found_) i.frame = frame_of[i.frame];
        numbers.push_back(add_state(found_, other.states_[s].can_end));
    }
    return numbers;
}

void grammar_automaton::forget() {
    grammar_automaton fresh(rules_);
    const std::vector<uint32_t> numbers = fresh.copy_places_from(*this);
    std::swap<automaton_memory>(*this, fresh);
    auto number = numbers.begin();
    for (uint32_t& s : places) s = *number++;
}

}  // namespace duet
