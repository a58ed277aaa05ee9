// models/grammar_build.cpp: makes rules from parts, and compiles parts to the nodes of an automaton.
// Main path: models/schema or models/grammar_gbnf -> [models/grammar_build] -> models/grammar_automaton
//
// The compiler adds the entry node of a part first and fills it later, when the node behind the part is known. A list
// of tasks holds the nesting.
#include "grammar_build.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace duet {

std::vector<code_range> normal_ranges(std::vector<code_range> ranges) {
    std::vector<code_range> merged;
    std::sort(ranges.begin(), ranges.end(), [](const auto& a, const auto& b) { return a.lo < b.lo; });
    for (code_range r : ranges) {
        r.hi = std::min(r.hi, 0x10ffffu);
        if (r.lo > r.hi) continue;
        if (!merged.empty() && r.lo <= merged.back().hi + 1) merged.back().hi = std::max(merged.back().hi, r.hi);
        else merged.push_back(r);
    }
    return merged;
}

std::vector<code_range> complement_of(const std::vector<code_range>& ranges) {
    std::vector<code_range> out;
    uint32_t lo = 0;
    for (const code_range& r : normal_ranges(ranges)) {
        if (r.lo > lo) out.push_back({lo, r.lo - 1});
        lo = r.hi + 1;
    }
    if (lo <= 0x10ffff) out.push_back({lo, 0x10ffff});
    return out;
}

// ---- parts ----------------------------------------------------------------------------------------------------------

grammar_builder::expr grammar_builder::add(part_node node) {
    const size_t n = parts_.size() + lists_.size() + ranges_.size() + bytes_.size() / 8;
    if (n >= kGrammarMaxNodes) is_full_ = true;
    if (is_full_) return nothing();
    parts_.push_back(node);
    return (expr)parts_.size() - 1;
}

grammar_builder::expr grammar_builder::add_list(part_kind kind, const std::vector<expr>& parts) {
    const uint32_t first = (uint32_t)lists_.size();
    lists_.insert(lists_.end(), parts.begin(), parts.end());
    return add({kind, first, (uint32_t)parts.size()});
}

grammar_builder::expr grammar_builder::literal(std::string_view bytes) {
    if (bytes.empty()) return empty();
    const uint32_t first = (uint32_t)bytes_.size();
    bytes_.append(bytes);
    return add({part_kind::literal, first, (uint32_t)bytes.size()});
}

grammar_builder::expr grammar_builder::spelled(std::string_view bytes) {
    const size_t last_angle = bytes.rfind('>'), last_square = bytes.rfind(']');
    std::vector<expr> parts;
    size_t from = 0;
    for (size_t i = 0; i < bytes.size() && !is_full_; i++) {
        const size_t last = bytes[i] == '<' ? last_angle : bytes[i] == '[' ? last_square : std::string_view::npos;
        if (last == std::string_view::npos || last < i) continue;
        byte_set mark{};
        byte_set_add(&mark, kControlMark, kControlMark);
        parts.push_back(literal(bytes.substr(from, i - from)));
        parts.push_back(any_of({empty(), one_byte(mark)}));
        from = i;
    }
    parts.push_back(literal(bytes.substr(from)));
    return sequence(parts);
}

grammar_builder::expr grammar_builder::one_byte(const byte_set& set) {
    sets_.push_back(set);
    return add({part_kind::bytes, (uint32_t)sets_.size() - 1});
}

grammar_builder::expr grammar_builder::one_char(const std::vector<code_range>& ranges) {
    const std::vector<code_range> merged = normal_ranges(ranges);
    const uint32_t first = (uint32_t)ranges_.size();
    ranges_.insert(ranges_.end(), merged.begin(), merged.end());
    return add({part_kind::chars, first, (uint32_t)merged.size()});
}

grammar_builder::expr grammar_builder::sequence(const std::vector<expr>& parts) {
    return parts.empty() ? empty() : parts.size() == 1 ? parts[0] : add_list(part_kind::sequence, parts);
}

grammar_builder::expr grammar_builder::any_of(const std::vector<expr>& choices) {
    return choices.empty() ? nothing() : choices.size() == 1 ? choices[0] : add_list(part_kind::any_of, choices);
}

grammar_builder::expr grammar_builder::repeat(expr part, uint32_t min, uint32_t max) {
    if (min > max) return nothing();
    return max == 0 ? empty() : min == 1 && max == 1 ? part : add({part_kind::repeat, part, min, max});
}

grammar_builder::expr grammar_builder::graph(uint32_t n_states, const std::vector<graph_edge>& edges,
                                             const std::vector<uint32_t>& ends) {
    graph_data g{n_states, edges, std::vector<bool>(n_states)};
    for (uint32_t end : ends) g.is_end[end] = true;
    graphs_.push_back(std::move(g));
    return add({part_kind::graph, (uint32_t)graphs_.size() - 1});
}

grammar_builder::expr grammar_builder::one_of_texts(std::vector<std::string> texts) {
    std::sort(texts.begin(), texts.end());
    texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
    struct subtree {
        size_t begin, end, depth;  // of texts that agree in their first `depth` bytes
        uint32_t state;
    };
    std::vector<subtree> todo = {{0, texts.size(), 0, 0}};
    std::vector<graph_edge> edges;
    std::vector<uint32_t> ends;
    uint32_t n_states = 1;
    while (!todo.empty() && !is_full_) {
        subtree t = todo.back();
        todo.pop_back();
        if (t.begin < t.end && texts[t.begin].size() == t.depth) {
            ends.push_back(t.state);
            t.begin++;
        }
        for (size_t i = t.begin; i < t.end;) {
            size_t end = i + 1;
            while (end < t.end && texts[end][t.depth] == texts[i][t.depth]) end++;
            const std::string &first = texts[i], &last = texts[end - 1];
            size_t depth = t.depth + 1;
            while (depth < std::min(first.size(), last.size()) && first[depth] == last[depth]) depth++;
            const expr step = literal(std::string_view(first).substr(t.depth, depth - t.depth));
            edges.push_back({t.state, step, n_states});
            todo.push_back({i, end, depth, n_states++});
            i = end;
        }
    }
    return graph(n_states, edges, ends);
}

// The automaton of A. Aho and M. Corasick (1975). A state is the longest suffix of the text that begins a marker.
grammar_builder::expr grammar_builder::search(const std::vector<std::string>& marks, bool is_until, bool has_control) {
    struct state {
        std::array<uint32_t, 256> next{};
        uint32_t shorter = 0;  // the next shorter suffix that begins a marker
        bool is_complete = false;
    };
    std::vector<state> states(1);
    std::vector<uint32_t> order = {0};  // by length
    for (const std::string& m : marks) {
        uint32_t at = 0;
        for (uint8_t byte : m) {
            if (states[at].next[byte] == 0) {
                states[at].next[byte] = (uint32_t)states.size();
                states.emplace_back();
            }
            at = states[at].next[byte];
        }
        states[at].is_complete = true;
        if (states.size() > 1 << 15) is_full_ = true;
        if (is_full_) return nothing();
    }
    for (size_t i = 0; i < order.size(); i++) {
        const uint32_t from = order[i];
        for (size_t byte = 0; byte < 256; byte++) {
            uint32_t& to = states[from].next[byte];
            const uint32_t fallback = from == 0 ? 0 : states[states[from].shorter].next[byte];
            if (to == 0) {
                to = fallback;
                continue;
            }
            states[to].shorter = fallback;
            states[to].is_complete = states[to].is_complete || states[fallback].is_complete;
            order.push_back(to);
        }
    }
    std::vector<graph_edge> edges;
    std::vector<uint32_t> ends;
    for (uint32_t from = 0; from < states.size(); from++) {
        if (states[from].is_complete == is_until) ends.push_back(from);
        if (states[from].is_complete) continue;
        std::map<uint32_t, byte_set> targets;
        for (uint32_t byte = 0; byte < 256; byte++)
            if (has_control || byte != kControlMark)
                byte_set_add(&targets[states[from].next[byte]], (uint8_t)byte, (uint8_t)byte);
        for (const auto& [to, set] : targets)
            if (is_until || !states[to].is_complete) edges.push_back({from, one_byte(set), to});
    }
    return graph((uint32_t)states.size(), edges, ends);
}

uint32_t grammar_builder::add_rule(std::string name) {
    if (rules_.size() >= kGrammarMaxNodes) {
        is_full_ = true;
        return 0;
    }
    rules_.push_back({std::move(name)});
    return (uint32_t)rules_.size() - 1;
}

// ---- parts to nodes -------------------------------------------------------------------------------------------------

namespace {

constexpr uint32_t kDead = 1;  // the node that no text follows
constexpr uint32_t kNone = UINT32_MAX;

}  // namespace

class grammar_compiler {
  public:
    grammar_compiler(const grammar_builder& builder, error_text& err) : b_(builder), err_(err) {}

    duet_status compile(uint32_t root, std::shared_ptr<const grammar_data>* out) {
        nodes_ = {{grammar_node::accept}, {grammar_node::bytes, false, kDead, set_of({})}};
        rule_of_.assign(b_.rules_.size(), kNone);
        rule(root);
        for (size_t i = 0; i < todo_.size() && !is_full_; i++) {
            if (todo_[i] == kNone)
                return fail(err_, DUET_ERR_FORMAT, "grammar: rule %s is not defined",
                            printable(b_.rules_[g_.rules[i].name].name).c_str());
            name_ = g_.rules[i].name;
            g_.rules[i].start = compile_rule(todo_[i]);
        }
        if (is_full_ || b_.is_full_)
            return fail(err_, DUET_ERR_FULL, "grammar: want at most %zu parts", kGrammarMaxNodes);
        const std::vector<bool> is_alive = reach_end(true), is_nullable = reach_end(false);
        for (size_t i = 0; i < nodes_.size(); i++) nodes_[i].is_alive = is_alive[i];
        for (grammar_rule& r : g_.rules) r.is_nullable = is_nullable[r.start];
        if (!nodes_[g_.rules[0].start].is_alive)
            return fail(err_, DUET_ERR_FORMAT, "grammar: no text matches rule %s",
                        printable(b_.rules_[root].name).c_str());
        DUET_TRY(rank_rules());
        find_classes();
        g_.nodes = std::move(nodes_);
        *out = std::make_shared<grammar_data>(std::move(g_));
        return DUET_OK;
    }

  private:
    using expr = grammar_builder::expr;
    using kind = grammar_builder::part_kind;
    struct task {
        expr part;
        uint32_t entry, next;
    };
    struct char_nodes {
        uint32_t begin, end, result, next;
    };

    uint32_t add(grammar_node node) {
        if (nodes_.size() >= kGrammarMaxNodes) is_full_ = true;
        if (is_full_) return kDead;
        nodes_.push_back(node);
        return (uint32_t)nodes_.size() - 1;
    }

    uint32_t set_of(const byte_set& set) {
        const auto [at, is_new] = set_index_.try_emplace(set, (uint32_t)g_.sets.size());
        if (is_new) g_.sets.push_back(set);
        return at->second;
    }

    uint32_t bytes(const byte_set& set, uint32_t next) { return add({grammar_node::bytes, false, next, set_of(set)}); }

    uint32_t byte(uint8_t b, uint32_t next) {
        byte_set set{};
        byte_set_add(&set, b, b);
        return bytes(set, next);
    }

    uint32_t split(uint32_t first, uint32_t second) { return add({grammar_node::split, false, first, second}); }

    uint32_t rule(uint32_t builder_rule) {
        uint32_t& at = rule_of_[builder_rule];
        if (at == kNone) at = add_rule(b_.rules_[builder_rule].part, builder_rule);
        return at;
    }

    uint32_t add_rule(expr part, uint32_t name) {
        todo_.push_back({part});
        g_.rules.push_back({0, name});
        return (uint32_t)g_.rules.size() - 1;
    }

    // Makes the nodes of a rule. A task fills the entry node of a part whose next node is known.
    uint32_t compile_rule(expr part) {
        const uint32_t start = add({grammar_node::split});
        tasks_ = {{part, start, 0}};
        while (!tasks_.empty() && !is_full_) {
            const task t = tasks_.back();
            tasks_.pop_back();
            const grammar_node n = entry_of(b_.parts_[t.part], t);
            nodes_[t.entry] = n;
        }
        return start;
    }

    // Adds a node for a part, to be filled later.
    uint32_t later(expr part, uint32_t next) {
        tasks_.push_back({part, add({grammar_node::split}), next});
        return tasks_.back().entry;
    }

    grammar_node entry_of(const grammar_builder::part_node& p, const task& t) {
        const auto list = [&](uint32_t i) { return b_.lists_[p.a + i]; };
        uint32_t next = t.next;
        switch (p.kind) {
        case kind::nothing: return nodes_[kDead];
        case kind::empty: return {grammar_node::split, false, next, kDead};
        case kind::literal:
            for (uint32_t i = p.b; i-- > 0;) next = byte((uint8_t)b_.bytes_[p.a + i], next);
            return nodes_[next];
        case kind::bytes: return {grammar_node::bytes, false, next, set_of(b_.sets_[p.a])};
        case kind::chars: return nodes_[chars({b_.ranges_.begin() + p.a, b_.ranges_.begin() + p.a + p.b}, next)];
        case kind::call: return {grammar_node::call, false, next, rule(p.a)};
        case kind::sequence:
            for (uint32_t i = p.b; i-- > 1;) next = later(list(i), next);
            tasks_.push_back({list(0), t.entry, next});
            return nodes_[t.entry];
        case kind::any_of: {
            uint32_t rest = later(list(p.b - 1), next);
            for (uint32_t i = p.b - 1; i-- > 1;) rest = split(later(list(i), next), rest);
            return {grammar_node::split, false, later(list(0), next), rest};
        }
        case kind::repeat:
            if (p.b == 0 && p.c == 1) return {grammar_node::split, false, later(p.a, next), next};
            if (p.b == 0 && p.c == kUnlimited) return {grammar_node::split, false, later(p.a, t.entry), next};
            if (p.b == 1 && p.c == kUnlimited) {
                tasks_.push_back({p.a, t.entry, split(t.entry, next)});
                return nodes_[t.entry];
            }
            g_.repeats.push_back({add_rule(p.a, name_), p.b, p.c});
            return {grammar_node::repeat, false, next, (uint32_t)g_.repeats.size() - 1};
        case kind::graph: break;
        }
        // Each state is a split node, and its arg is the head of the chain of its choices.
        const grammar_builder::graph_data& g = b_.graphs_[p.a];
        const uint32_t states = (uint32_t)nodes_.size();
        for (uint32_t s = 0; s < g.n_states; s++) split(kDead, g.is_end[s] ? next : kDead);
        for (size_t i = 0; i < g.edges.size() && !is_full_; i++) {
            const uint32_t from = states + g.edges[i].from, choice = later(g.edges[i].part, states + g.edges[i].to);
            const uint32_t rest = nodes_[from].arg, chain = rest == kDead ? choice : split(choice, rest);
            nodes_[from].arg = chain;
        }
        return is_full_ ? nodes_[kDead] : nodes_[states];
    }

    // ---- characters as UTF-8 ----

    // Makes the node for the last n_bytes bytes of characters, as numbers of 6 bits a byte. The first of these bytes
    // has the bits of `lead` too. Equal rests of characters share a node, so few nodes stand beside each other.
    uint32_t utf8(const std::vector<code_range>& ranges, uint32_t n_bytes, uint8_t lead, uint32_t next) {
        if (n_bytes == 0) return next;
        const auto key = std::make_pair(lead << 8 | n_bytes, ranges);
        if (const auto known = utf8_.find(key); known != utf8_.end()) return known->second;
        const uint32_t shift = 6 * (n_bytes - 1), mask = (1u << shift) - 1;
        std::map<uint32_t, std::vector<code_range>> rests;  // by the first byte
        for (const code_range& r : ranges)
            for (uint32_t first = r.lo >> shift, last = r.hi >> shift, byte = first; byte <= last; byte++)
                rests[byte].push_back({byte == first ? r.lo & mask : 0, byte == last ? r.hi & mask : mask});
        std::map<std::vector<code_range>, byte_set> bytes_of;  // by what follows
        for (const auto& [byte, rest] : rests)
            byte_set_add(&bytes_of[rest], (uint8_t)(lead | byte), (uint8_t)(lead | byte));
        uint32_t result = kNone;
        for (const auto& [rest, set] : bytes_of) {
            const uint32_t node = bytes(set, utf8(rest, n_bytes - 1, 0x80, next));
            result = result == kNone ? node : split(node, result);
        }
        return utf8_[key] = result;
    }

    uint32_t chars(const std::vector<code_range>& ranges, uint32_t next) {
        static constexpr struct {
            uint32_t lo, hi, n_bytes, lead;
        } kParts[] = {{0, 0x7f, 1, 0},
                      {0x80, 0x7ff, 2, 0xc0},
                      {0x800, 0xd7ff, 3, 0xe0},
                      {0xe000, 0xffff, 3, 0xe0},
                      {0x10000, 0x10ffff, 4, 0xf0}};
        const auto [known, is_new] = chars_.try_emplace(ranges);
        if (!is_new) return copy_chars(known->second, next);
        utf8_.clear();
        const uint32_t begin = (uint32_t)nodes_.size();
        uint32_t result = kNone;
        for (const auto& part : kParts) {
            std::vector<code_range> inside;
            for (const code_range& r : ranges)
                if (r.lo <= part.hi && r.hi >= part.lo)
                    inside.push_back({std::max(part.lo, r.lo), std::min(part.hi, r.hi)});
            if (inside.empty()) continue;
            const uint32_t node = utf8(inside, part.n_bytes, (uint8_t)part.lead, next);
            result = result == kNone ? node : split(node, result);
        }
        if (result == kNone) result = kDead;
        known->second = {begin, (uint32_t)nodes_.size(), result, next};
        return result;
    }

    // Makes the nodes of a set of characters again, before another node. They refer to each other and to what follows.
    uint32_t copy_chars(const char_nodes& known, uint32_t next) {
        const uint32_t begin = (uint32_t)nodes_.size();
        const auto moved = [&](uint32_t i) { return i == known.next ? next : i - known.begin + begin; };
        for (uint32_t i = known.begin; i < known.end; i++) {
            const grammar_node n = nodes_[i];
            add({n.kind, false, moved(n.next), n.kind == grammar_node::split ? moved(n.arg) : n.arg});
        }
        return known.begin == known.end || is_full_ ? kDead : moved(known.result);
    }

    // ---- properties of nodes and rules ----

    using part = grammar_node;
    bool is_caller(const part& n) const { return n.kind == part::call || n.kind == part::repeat; }
    uint32_t callee(const part& n) const { return n.kind == part::call ? n.arg : g_.repeats[n.arg].rule; }
    bool may_repeat_never(const part& n) const { return n.kind == part::repeat && g_.repeats[n.arg].min == 0; }

    // Finds the nodes from which the end of their rule can be reached: with bytes, or without any. Works backwards from
    // the end. A call also needs that the end of its rule can be reached.
    std::vector<bool> reach_end(bool with_bytes) const {
        // Nodes to look at again when a node is found, as lists in one array.
        std::vector<uint32_t> begin(nodes_.size() + 2), waiting;
        const auto each = [&](auto put) {
            for (uint32_t i = 2; i < nodes_.size(); i++) {
                const grammar_node& n = nodes_[i];
                put(n.next, i);
                if (n.kind == grammar_node::split) put(n.arg, i);
                if (is_caller(n)) put(g_.rules[callee(n)].start, i);
            }
        };
        each([&](uint32_t node, uint32_t) { begin[node + 2]++; });
        std::partial_sum(begin.begin(), begin.end(), begin.begin());
        waiting.resize(begin.back());
        each([&](uint32_t node, uint32_t i) { waiting[begin[node + 1]++] = i; });
        std::vector<bool> has_end(nodes_.size());
        has_end[0] = true;
        std::vector<uint32_t> todo = {0};
        while (!todo.empty()) {
            const uint32_t at = todo.back();
            todo.pop_back();
            for (uint32_t k = begin[at]; k < begin[at + 1]; k++) {
                const grammar_node& n = nodes_[waiting[k]];
                bool is_good = n.kind == grammar_node::split || has_end[n.next];
                if (n.kind == grammar_node::bytes) is_good = is_good && with_bytes && g_.sets[n.arg] != byte_set{};
                if (is_caller(n) && !may_repeat_never(n)) is_good = is_good && has_end[g_.rules[callee(n)].start];
                if (!is_good || has_end[waiting[k]]) continue;
                has_end[waiting[k]] = true;
                todo.push_back(waiting[k]);
            }
        }
        return has_end;
    }

    // Numbers the rules so that a rule comes before those it may call before any byte.
    duet_status rank_rules() {
        const uint32_t n_rules = (uint32_t)g_.rules.size();
        std::vector<std::vector<uint32_t>> calls(n_rules);
        std::vector<bool> is_seen(nodes_.size());
        std::vector<uint32_t> todo;
        for (uint32_t r = 0; r < n_rules; r++) {
            todo = {g_.rules[r].start};
            while (!todo.empty()) {
                const uint32_t i = todo.back();
                const grammar_node& n = nodes_[i];
                todo.pop_back();
                if (is_seen[i] || !n.is_alive) continue;
                is_seen[i] = true;
                if (n.kind == grammar_node::split) todo.insert(todo.end(), {n.next, n.arg});
                if (!is_caller(n)) continue;
                calls[r].push_back(callee(n));
                if (may_repeat_never(n) || g_.rules[callee(n)].is_nullable) todo.push_back(n.next);
            }
        }
        enum : uint8_t { untouched, open, done };
        std::vector<uint8_t> mark(n_rules, untouched);
        uint32_t rank = n_rules;
        for (uint32_t first = 0; first < n_rules; first++) {
            if (mark[first] == untouched) todo = {first};  // the rules on the path; their last calls are followed next
            while (!todo.empty()) {
                const uint32_t r = todo.back();
                mark[r] = open;
                while (!calls[r].empty() && mark[calls[r].back()] == done) calls[r].pop_back();
                if (calls[r].empty()) {
                    mark[r] = done;
                    g_.rules[r].rank = --rank;
                    todo.pop_back();
                } else {
                    if (mark[calls[r].back()] == open) return report_cycle(todo, calls[r].back());
                    todo.push_back(calls[r].back());
                }
            }
        }
        return DUET_OK;
    }

    duet_status report_cycle(const std::vector<uint32_t>& path, uint32_t rule) {
        const auto name = [&](uint32_t r) { return printable(b_.rules_[g_.rules[r].name].name, 60); };
        size_t i = path.size();
        while (path[i - 1] != rule) i--;
        std::string names = name(rule), last = names;
        for (size_t n = 0; i < path.size() && n < 6; i++) {
            if (name(path[i]) == last) continue;
            last = name(path[i]);
            names += " -> " + last;
            n++;
        }
        if (i < path.size()) names += " -> ...";
        return fail(err_, DUET_ERR_FORMAT, "grammar: left recursion: %s -> %s", names.c_str(), name(rule).c_str());
    }

    void find_classes() {
        g_.class_of.fill(0);
        uint32_t n_classes = 1;
        for (const byte_set& set : g_.sets) {
            if (n_classes == 256) break;
            std::array<uint16_t, 512> renamed;
            renamed.fill(UINT16_MAX);
            n_classes = 0;
            for (uint32_t byte = 0; byte < 256; byte++) {
                uint16_t& to = renamed[g_.class_of[byte] * 2u + byte_set_has(set, (uint8_t)byte)];
                if (to == UINT16_MAX) to = (uint16_t)n_classes++;
                g_.class_of[byte] = (uint8_t)to;
            }
        }
        g_.class_byte.resize(n_classes);
        for (uint32_t byte = 0; byte < 256; byte++) g_.class_byte[g_.class_of[byte]] = (uint8_t)byte;
    }

    const grammar_builder& b_;
    error_text& err_;
    grammar_data g_;
    std::vector<grammar_node> nodes_;
    std::vector<task> tasks_;
    std::vector<expr> todo_;         // by rule
    std::vector<uint32_t> rule_of_;  // by rule of the builder
    uint32_t name_ = 0;
    bool is_full_ = false;
    std::map<byte_set, uint32_t> set_index_;
    std::map<std::vector<code_range>, char_nodes> chars_;               // where the nodes of a set of characters are
    std::map<std::pair<int, std::vector<code_range>>, uint32_t> utf8_;  // of one set of characters
};

duet_status grammar_builder::build(uint32_t root, grammar* out, error_text& err) const {
    return grammar_compiler(*this, err).compile(root, out);
}

}  // namespace duet
