// models/grammar_mask.cpp: vocabularies as prefix trees, masks of tokens, and the places of texts in a grammar.
// Main path: models/grammar_automaton -> [models/grammar_mask] -> models/sampler
//
// A mask is found by walking the prefix tree with the automaton's states. If the first byte of a subtree leads nowhere,
// the whole subtree is skipped. The automaton keeps all transitions, so the walk is one table look-up per node of the
// tree.
#include "grammar_automaton.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace duet {

// ---- the prefix tree ------------------------------------------------------------------------------------------------

duet_status token_tree::make(int32_t n_vocab, token_text text, const void* user, const std::vector<int32_t>& end_ids,
                             std::shared_ptr<const token_tree>* out, error_text& err) {
    static constexpr uint32_t kBands[] = {4, 8, 16, 32, UINT16_MAX};
    if (n_vocab < 1) return fail(err, DUET_ERR_ARG, "vocabulary: want at least one token, got %d", n_vocab);
    const auto tree = std::make_shared<token_tree>();
    tree->n_vocab_ = n_vocab;
    tree->is_end_.resize((size_t)n_vocab);
    tree->end_ids_ = end_ids;
    for (int32_t id : end_ids) {
        if (id < 0 || id >= n_vocab)
            return fail(err, DUET_ERR_ARG, "end token: want an id from 0 to %d, got %d", n_vocab - 1, id);
        tree->is_end_[(size_t)id] = true;
    }
    tree->offsets_.push_back(0);
    for (int32_t id = 0; id < n_vocab; id++) {
        if (!tree->is_end_[(size_t)id]) tree->bytes_.append(text(id, user));
        tree->offsets_.push_back(tree->bytes_.size());
    }
    std::vector<int32_t> sorted;
    for (int32_t id = 0; id < n_vocab; id++)
        if (!tree->text(id).empty()) sorted.push_back(id);
    const auto key = [&](int32_t id) { return std::pair(tree->text(id), id); };
    std::ranges::sort(sorted, {}, key);
    uint32_t min_bytes = 1;
    for (uint32_t max_bytes : kBands) {
        band b{max_bytes, {}, {}};
        tree->fill_band(sorted, min_bytes, &b);
        if (!b.ids.empty()) tree->bands_.push_back(std::move(b));
        min_bytes = max_bytes + 1;
    }
    *out = tree;
    return DUET_OK;
}

void token_tree::fill_band(const std::vector<int32_t>& sorted, uint32_t min_bytes, band* b) const {
    std::vector<uint32_t> open;  // nodes on the path to the last token
    std::string_view last;
    const auto close = [&](size_t depth) {
        for (; open.size() > depth; open.pop_back()) b->nodes[open.back()].end = (uint32_t)b->nodes.size();
    };
    for (int32_t id : sorted) {
        const std::string_view bytes = text(id);
        if (bytes.size() < min_bytes || bytes.size() > b->max_bytes) continue;
        const size_t n_max = std::min(bytes.size(), last.size());
        const size_t n_shared =
            (size_t)(std::mismatch(bytes.begin(), bytes.begin() + n_max, last.begin()).first - bytes.begin());
        close(n_shared);
        for (size_t i = n_shared; i < bytes.size(); i++) {
            open.push_back((uint32_t)b->nodes.size());
            b->nodes.push_back({0, (uint32_t)b->ids.size(), (uint16_t)(i + 1), (uint8_t)bytes[i]});
        }
        b->ids.push_back(id);
        last = bytes;
    }
    close(0);
    b->nodes.push_back({0, (uint32_t)b->ids.size(), 0, 0});
}

std::string_view token_tree::text(int32_t id) const {
    const size_t begin = offsets_[(size_t)id];
    return std::string_view(bytes_).substr(begin, offsets_[(size_t)id + 1] - begin);
}

void apply_mask(const token_mask& mask, float* logits, size_t n_logits) {
    for (size_t word = 0; word * 64 < n_logits; word++) {
        const size_t n = std::min<size_t>(n_logits - word * 64, 64);
        const uint64_t all = ~uint64_t(0) >> (64 - n), bits = word < mask.bits.size() ? mask.bits[word] & all : 0;
        float* const at = logits + word * 64;
        // Only the fewer ones of a word's logits are touched one by one: a branch for each of 64 takes five times as
        // long (131,072 logits of which half are allowed: 63 us, against 438 us).
        if (std::popcount(bits) > 32) {
            for (uint64_t rest = all & ~bits; rest; rest &= rest - 1) at[std::countr_zero(rest)] = -INFINITY;
            continue;
        }
        float kept[64];
        for (uint64_t rest = bits; rest; rest &= rest - 1) kept[std::countr_zero(rest)] = at[std::countr_zero(rest)];
        std::fill(at, at + n, -INFINITY);
        for (uint64_t rest = bits; rest; rest &= rest - 1) at[std::countr_zero(rest)] = kept[std::countr_zero(rest)];
    }
}

// ---- masks ----------------------------------------------------------------------------------------------------------

constraint::constraint(grammar rules, std::shared_ptr<const token_tree> tokens)
    : tokens_(std::move(tokens)), automaton_(std::make_unique<grammar_automaton>(std::move(rules))) {}

constraint::~constraint() = default;

void constraint::walk(uint32_t state, const token_tree::band& band, std::vector<uint64_t>& bits) {
    grammar_automaton& a = *automaton_;
    const token_tree::node* nodes = band.nodes.data();
    at_depth_.assign(band.max_bytes + 1, grammar_automaton::kDead);
    uint32_t* at_depth = at_depth_.data();
    at_depth[0] = state;
    const uint32_t n_nodes = (uint32_t)band.nodes.size() - 1;
    // Nodes reached one after the other hold neighbouring entries of ids, so their tokens are marked together.
    uint32_t first_id = 0;
    const auto mark = [&](uint32_t end_id) {
        for (uint32_t k = first_id; k < end_id; k++) bits[(size_t)band.ids[k] / 64] |= 1ull << (band.ids[k] % 64);
    };
    for (uint32_t i = 0; i < n_nodes;) {
        const token_tree::node& n = nodes[i];
        const uint32_t to = a.step(at_depth[n.depth - 1], n.byte);
        if (to == grammar_automaton::kDead) {
            mark(n.first_id);
            i = n.end;
            first_id = nodes[i].first_id;
            continue;
        }
        at_depth[n.depth] = to;
        i++;
    }
    mark((uint32_t)band.ids.size());
}

constraint::mask_ptr constraint::mask_of(uint32_t state) {
    if (const auto known = masks_.find(state); known != masks_.end()) return known->second;
    const auto mask = std::make_shared<token_mask>();
    mask->bits.resize(((size_t)tokens_->n_vocab_ + 63) / 64);
    const size_t n_bands = tokens_->bands_.size();
    for (size_t i = 0; i < n_bands; i++) {
        const token_tree::band& band = tokens_->bands_[i];
        const uint32_t far = automaton_->far_from_limits(state, band.max_bytes);
        if (far == state) {
            walk(state, band, mask->bits);
            continue;
        }
        const uint64_t key = far * (uint64_t)n_bands + i;
        auto known = band_masks_.find(key);
        if (known == band_masks_.end()) {
            std::vector<uint64_t> bits(mask->bits.size());
            walk(far, band, bits);
            known = band_masks_.emplace(key, std::move(bits)).first;
        }
        for (size_t w = 0; w < mask->bits.size(); w++) mask->bits[w] |= known->second[w];
    }
    if (automaton_->can_end(state))
        for (int32_t id : tokens_->end_ids_) mask->bits[(size_t)id / 64] |= uint64_t(1) << (id % 64);
    for (uint64_t word : mask->bits) mask->n_allowed += std::popcount(word);
    masks_.emplace(state, mask);
    return mask;
}

void constraint::trim() {
    const size_t mask_bytes = ((size_t)tokens_->n_vocab_ + 63) / 64 * 8;
    if (automaton_->n_bytes() + (masks_.size() + band_masks_.size()) * mask_bytes < trim_at_bytes_) return;
    masks_.clear();
    band_masks_.clear();
    automaton_->forget();
    // The states that the matchers need stay, so that they are not computed again and again.
    trim_at_bytes_ = std::max(kConstraintCacheBytes, automaton_->n_bytes() * 2);
}

// ---- places ---------------------------------------------------------------------------------------------------------

grammar_matcher::grammar_matcher(std::shared_ptr<constraint> c) : constraint_(std::move(c)) {
    const std::lock_guard lock(constraint_->mutex_);
    auto& places = constraint_->automaton_->places;
    place_ = places.insert(places.end(), grammar_automaton::kStart);
}

grammar_matcher::grammar_matcher(const grammar_matcher& other) : constraint_(other.constraint_), ended_(other.ended_) {
    const std::lock_guard lock(constraint_->mutex_);
    auto& places = constraint_->automaton_->places;
    place_ = places.insert(places.end(), *other.place_);
}

grammar_matcher& grammar_matcher::operator=(grammar_matcher other) {
    std::swap(constraint_, other.constraint_);
    std::swap(place_, other.place_);
    std::swap(ended_, other.ended_);
    return *this;
}

grammar_matcher::~grammar_matcher() {
    const std::lock_guard lock(constraint_->mutex_);
    constraint_->automaton_->places.erase(place_);
}

void grammar_matcher::reset() {
    const std::lock_guard lock(constraint_->mutex_);
    *place_ = grammar_automaton::kStart;
    ended_ = false;
}

duet_status grammar_matcher::accept(int32_t id, error_text& err) {
    const token_tree& tokens = constraint_->tokens();
    if (id < 0 || id >= tokens.n_vocab())
        return fail(err, DUET_ERR_ARG, "grammar: want an id from 0 to %d, got %d", tokens.n_vocab() - 1, id);
    if (!tokens.is_end(id)) {
        if (tokens.text(id).empty()) return fail(err, DUET_ERR_ARG, "grammar: token %d has no text", id);
        return accept_bytes(tokens.text(id), err);
    }
    if (!can_end()) return fail(err, DUET_ERR_ARG, "grammar: the text cannot end here (token %d)", id);
    ended_ = true;
    return DUET_OK;
}

duet_status grammar_matcher::accept_bytes(std::string_view bytes, error_text& err) {
    const std::lock_guard lock(constraint_->mutex_);
    constraint_->trim();
    grammar_automaton& a = *constraint_->automaton_;
    uint32_t state = ended_ ? grammar_automaton::kDead : *place_;
    for (uint8_t byte : bytes) state = a.step(state, byte);
    if (a.take_is_over()) return fail(err, DUET_ERR_FULL, "grammar: too many ways to read the text");
    if (state == grammar_automaton::kDead)
        return fail(err, DUET_ERR_ARG, "grammar: \"%s\" is not allowed here", printable(bytes).c_str());
    *place_ = state;
    return DUET_OK;
}

duet_status grammar_matcher::mask(std::shared_ptr<const token_mask>* out, error_text& err) {
    const std::lock_guard lock(constraint_->mutex_);
    if (ended_) return fail(err, DUET_ERR_ARG, "grammar: the text has ended");
    constraint_->trim();
    *out = constraint_->mask_of(*place_);
    if (constraint_->automaton_->take_is_over()) {
        constraint_->masks_.clear();
        constraint_->band_masks_.clear();
        return fail(err, DUET_ERR_FULL, "grammar: too many ways to read the text");
    }
    if ((*out)->n_allowed == 0)
        return fail(err, DUET_ERR_FORMAT, "grammar: the vocabulary has no token that may come next");
    return DUET_OK;
}

bool grammar_matcher::can_end() {
    const std::lock_guard lock(constraint_->mutex_);
    return !ended_ && constraint_->automaton_->can_end(*place_);
}

bool grammar_matcher::must_end() {
    const std::lock_guard lock(constraint_->mutex_);
    return ended_ || !constraint_->automaton_->has_next(*place_);
}

}  // namespace duet
