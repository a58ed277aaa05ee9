// models/grammar_build.cpp: makes rules from parts, and compiles parts to the nodes of an automaton.
// Main path: models/schema or models/grammar_gbnf -> [models/grammar_build] -> models/grammar_automaton
//
// The compiler goes from the end of a part to its beginning: it compiles a part for a known next node. So no node is
// changed later, except the heads of loops. An explicit stack holds the nesting.
#include "grammar_build.h"

#include <algorithm>
#include <map>
#include <unordered_map>

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
    if (parts.empty()) return empty();
    return parts.size() == 1 ? parts[0] : add_list(part_kind::sequence, parts);
}

grammar_builder::expr grammar_builder::any_of(const std::vector<expr>& choices) {
    if (choices.empty()) return nothing();
    return choices.size() == 1 ? choices[0] : add_list(part_kind::any_of, choices);
}

grammar_builder::expr grammar_builder::repeat(expr part, uint32_t min, uint32_t max) {
    if (min > max) return nothing();
    if (max == 0) return empty();
    return min == 1 && max == 1 ? part : add({part_kind::repeat, part, min, max});
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

grammar_builder::expr grammar_builder::until(const std::vector<std::string>& markers) {
    return search(markers, true, true);
}

grammar_builder::expr grammar_builder::without(const std::vector<std::string>& markers, bool has_control) {
    return search(markers, false, has_control);
}

// The automaton of A. Aho and M. Corasick (1975). A state is the longest suffix of the text that begins a marker.
grammar_builder::expr grammar_builder::search(const std::vector<std::string>& markers, bool is_until,
                                              bool has_control) {
    struct state {
        std::array<uint32_t, 256> next{};
        uint32_t shorter = 0;  // the next shorter suffix that begins a marker
        bool is_complete = false;
    };
    std::vector<state> states(1);
    std::vector<uint32_t> order = {0};  // by length
    for (const std::string& m : markers) {
        uint32_t at = 0;
        for (uint8_t byte : m) {
            if (states[at].next[byte] == 0) {
                states[at].next[byte] = (uint32_t)states.size();
                states.emplace_back();
            }
            at = states[at].next[byte];
        }
        states[at].is_complete = true;
        if (states.size() > 4096) is_full_ = true;
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

void grammar_builder::define(uint32_t rule, expr part) { rules_[rule].part = part; }

grammar_builder::expr grammar_builder::call(uint32_t rule) { return add({part_kind::call, rule}); }

// ---- parts to nodes -------------------------------------------------------------------------------------------------

namespace {

constexpr uint32_t kDead = 1;  // the node that no text follows
constexpr uint32_t kNone = UINT32_MAX;
constexpr uint32_t kMaxInlineBytes = 8;  // a repeated single byte becomes nodes up to this count

}  // namespace

class grammar_compiler {
  public:
    grammar_compiler(const grammar_builder& builder, error_text& err) : b_(builder), err_(err) {
        single_sets_.fill(kNone);
    }

    duet_status compile(uint32_t root, std::shared_ptr<const grammar_data>* out) {
        nodes_ = {{grammar_node::accept}, {grammar_node::bytes, false, kDead, set_of({})}};
        rule_of_.assign(b_.rules_.size(), kNone);
        rule(root);
        for (size_t i = 0; i < todo_.size() && !is_full_; i++) {
            if (todo_[i].part == kNone) {
                const std::string name = printable(b_.rules_[g_.rules[i].name].name);
                return fail(err_, DUET_ERR_FORMAT, "grammar: rule %s is not defined", name.c_str());
            }
            name_ = g_.rules[i].name;
            g_.rules[i].start = compile_part(todo_[i].part, 0);
        }
        if (is_full_ || b_.is_full_)
            return fail(err_, DUET_ERR_FULL, "grammar: want at most %zu parts", kGrammarMaxNodes);
        find_alive();
        if (!nodes_[g_.rules[0].start].is_alive)
            return fail(err_, DUET_ERR_FORMAT, "grammar: no text matches rule %s",
                        printable(b_.rules_[root].name).c_str());
        find_nullable();
        DUET_TRY(rank_rules());
        find_classes();
        g_.nodes = std::move(nodes_);
        *out = std::make_shared<grammar_data>(std::move(g_));
        return DUET_OK;
    }

  private:
    using expr = grammar_builder::expr;
    using kind = grammar_builder::part_kind;
    struct set_hash {
        size_t operator()(const byte_set& s) const {
            uint64_t h = 0;
            for (uint64_t word : s) h = (h ^ word) * 0x9e3779b97f4a7c15u, h ^= h >> 29;
            return (size_t)h;
        }
    };
    struct pending_rule {
        expr part;
    };
    struct frame {
        expr part;
        uint32_t next;
        uint32_t i = 0;  // parts compiled so far
        uint32_t acc = 0;
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

    uint32_t bytes(uint8_t lo, uint8_t hi, uint32_t next) {
        if (lo == hi) {  // literals: the most frequent sets by far
            uint32_t& known = single_sets_[lo];
            if (known == kNone) {
                byte_set set{};
                byte_set_add(&set, lo, hi);
                known = set_of(set);
            }
            return add({grammar_node::bytes, false, next, known});
        }
        byte_set set{};
        byte_set_add(&set, lo, hi);
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

    // Compiles a part that node `next` follows. Returns the part's first node.
    uint32_t compile_part(expr part, uint32_t next) {
        std::vector<frame> stack = {{part, next}};
        uint32_t result = kDead;  // first node of the part compiled last
        while (!stack.empty() && !is_full_) {
            frame& f = stack.back();
            const auto& p = b_.parts_[f.part];
            expr child = 0;
            uint32_t child_next = 0;
            if (!step(f, p, &result, &child, &child_next)) stack.pop_back();
            else stack.push_back({child, child_next});
        }
        return result;
    }

    // Does one step of a part. True asks for a child to be compiled first; false leaves the part's first node in
    // *result.
    bool step(frame& f, const grammar_builder::part_node& p, uint32_t* result, expr* child, uint32_t* child_next) {
        switch (p.kind) {
        case kind::nothing: return *result = kDead, false;
        case kind::empty: return *result = f.next, false;
        case kind::literal:
            *result = f.next;
            for (uint32_t i = p.b; i-- > 0;)
                *result = bytes((uint8_t)b_.bytes_[p.a + i], (uint8_t)b_.bytes_[p.a + i], *result);
            return false;
        case kind::bytes: return *result = bytes(b_.sets_[p.a], f.next), false;
        case kind::chars: return *result = chars(b_.ranges_.data() + p.a, p.b, f.next), false;
        case kind::call: return *result = add({grammar_node::call, false, f.next, rule(p.a)}), false;
        case kind::sequence:
            f.acc = f.i == 0 ? f.next : *result;
            if (f.i == p.b) return *result = f.acc, false;
            *child = b_.lists_[p.a + p.b - ++f.i];
            *child_next = f.acc;
            return true;
        case kind::any_of:
            if (f.i == 1) f.acc = *result;
            if (f.i > 1) f.acc = split(*result, f.acc);
            if (f.i == p.b) return *result = f.acc, false;
            *child = b_.lists_[p.a + p.b - ++f.i];
            *child_next = f.next;
            return true;
        case kind::repeat: return step_repeat(f, p, result, child, child_next);
        case kind::graph: return step_graph(f, b_.graphs_[p.a], result, child, child_next);
        }
        return false;
    }

    bool step_repeat(frame& f, const grammar_builder::part_node& p, uint32_t* result, expr* child,
                     uint32_t* child_next) {
        const bool is_loop = p.b <= 1 && p.c == kUnlimited, is_optional = p.b == 0 && p.c == 1;
        if (f.i == 0 && (is_loop || is_optional)) {
            f.i = 1;
            f.acc = is_loop ? split(kDead, f.next) : f.next;
            *child = p.a;
            *child_next = f.acc;
            return true;
        }
        if (is_optional) return *result = split(*result, f.next), false;
        if (is_loop) {
            nodes_[f.acc].next = *result;
            if (p.b == 0) *result = f.acc;
            return false;
        }
        const auto& repeated = b_.parts_[p.a];
        if (repeated.kind == kind::bytes && p.c <= kMaxInlineBytes) {
            *result = f.next;
            for (uint32_t n = p.c; n > 0; n--) {
                *result = bytes(b_.sets_[repeated.a], *result);
                if (n > p.b) *result = split(*result, f.next);
            }
            return false;
        }
        g_.repeats.push_back({add_rule(p.a, name_), p.b, p.c});
        *result = add({grammar_node::repeat, false, f.next, (uint32_t)g_.repeats.size() - 1});
        return false;
    }

    // Each state is a split node, and its arg is the head of the chain of its choices.
    bool step_graph(frame& f, const grammar_builder::graph_data& g, uint32_t* result, expr* child,
                    uint32_t* child_next) {
        if (f.i == 0) {
            f.acc = (uint32_t)nodes_.size();
            for (uint32_t s = 0; s < g.n_states; s++) split(kDead, g.is_end[s] ? f.next : kDead);
            if (is_full_) return false;
        } else {
            grammar_node& head = nodes_[f.acc + g.edges[f.i - 1].from];
            const uint32_t chain = head.arg == kDead ? *result : split(*result, head.arg);
            nodes_[f.acc + g.edges[f.i - 1].from].arg = chain;
        }
        if (f.i == g.edges.size()) return *result = f.acc, false;
        *child = g.edges[f.i].part;
        *child_next = f.acc + g.edges[f.i].to;
        f.i++;
        return true;
    }

    // ---- characters as UTF-8 ----

    // Adds the code points lo to hi, whose encodings have n_bytes bytes. They go to the sets of first bytes, which are
    // kept by the node that follows the first byte.
    void add_utf8(uint32_t lo, uint32_t hi, uint32_t n_bytes, uint32_t next) {
        // The low bits below the first byte in which lo and hi differ must run from all zeros to all ones.
        for (uint32_t n_low = 6 * (n_bytes - 1); n_low > 0; n_low -= 6) {
            const uint32_t mask = (1u << n_low) - 1;
            if (lo >> n_low == hi >> n_low) continue;
            if (lo & mask) {
                add_utf8(lo, lo | mask, n_bytes, next);
                return add_utf8((lo | mask) + 1, hi, n_bytes, next);
            }
            if ((hi & mask) != mask) {
                add_utf8(lo, (hi & ~mask) - 1, n_bytes, next);
                return add_utf8(hi & ~mask, hi, n_bytes, next);
            }
        }
        uint32_t tail = next;
        for (uint32_t i = 0; i + 1 < n_bytes; i++) {
            const uint8_t from = (uint8_t)(0x80 | (lo >> (6 * i) & 0x3f)),
                          to = (uint8_t)(0x80 | (hi >> (6 * i) & 0x3f));
            const auto [at, is_new] = tails_.try_emplace((uint64_t)tail << 16 | from << 8 | to, 0);
            if (is_new) at->second = bytes(from, to, tail);
            tail = at->second;
        }
        static constexpr uint8_t kFirst[] = {0, 0, 0xc0, 0xe0, 0xf0};
        const uint32_t shift = 6 * (n_bytes - 1);
        byte_set_add(&first_bytes_[tail], (uint8_t)(kFirst[n_bytes] | lo >> shift),
                     (uint8_t)(kFirst[n_bytes] | hi >> shift));
    }

    uint32_t chars(const code_range* ranges, uint32_t n, uint32_t next) {
        static constexpr uint32_t kParts[][3] = {
            {0, 0x7f, 1}, {0x80, 0x7ff, 2}, {0x800, 0xd7ff, 3}, {0xe000, 0xffff, 3}, {0x10000, 0x10ffff, 4}};
        if (tails_.bucket_count() > 1024) tails_ = {};
        tails_.clear();
        first_bytes_.clear();
        for (uint32_t i = 0; i < n; i++)
            for (const auto& [lo, hi, n_bytes] : kParts) {
                const uint32_t from = std::max(lo, ranges[i].lo), to = std::min(hi, ranges[i].hi);
                if (from <= to) add_utf8(from, to, n_bytes, next);
            }
        uint32_t result = kNone;
        for (const auto& [tail, set] : first_bytes_) {
            const uint32_t node = bytes(set, tail);
            result = result == kNone ? node : split(node, result);
        }
        return result == kNone ? kDead : result;
    }

    // ---- properties of nodes and rules ----

    bool is_caller(const grammar_node& n) const {
        return n.kind == grammar_node::call || n.kind == grammar_node::repeat;
    }
    uint32_t callee(const grammar_node& n) const {
        return n.kind == grammar_node::call ? n.arg : g_.repeats[n.arg].rule;
    }
    bool may_skip(const grammar_node& n) const {
        return g_.rules[callee(n)].is_nullable || (n.kind == grammar_node::repeat && g_.repeats[n.arg].min == 0);
    }

    // Lists of numbers by key, stored in one array.
    struct index_lists {
        std::vector<uint32_t> begin, items;
        template <class Each> void fill(size_t n_keys, Each each) {
            begin.assign(n_keys + 2, 0);
            each([&](uint32_t key, uint32_t) { begin[key + 2]++; });
            for (size_t i = 2; i < begin.size(); i++) begin[i] += begin[i - 1];
            items.resize(begin.back());
            each([&](uint32_t key, uint32_t item) { items[begin[key + 1]++] = item; });
        }
    };

    // Works backwards from the ends: a node is alive when a node after it is. A call also needs the start of its rule
    // to be alive.
    void find_alive() {
        index_lists before, callers, starts;
        before.fill(nodes_.size(), [&](auto put) {
            for (uint32_t i = 1; i < nodes_.size(); i++) {
                put(nodes_[i].next, i);
                if (nodes_[i].kind == grammar_node::split) put(nodes_[i].arg, i);
            }
        });
        callers.fill(g_.rules.size(), [&](auto put) {
            for (uint32_t i = 0; i < nodes_.size(); i++)
                if (is_caller(nodes_[i])) put(callee(nodes_[i]), i);
        });
        starts.fill(nodes_.size(), [&](auto put) {
            for (uint32_t i = 0; i < g_.rules.size(); i++) put(g_.rules[i].start, i);
        });
        std::vector<bool> is_productive(g_.rules.size());
        std::vector<uint32_t> todo;
        const auto revive = [&](uint32_t i) {
            grammar_node& n = nodes_[i];
            if (n.is_alive || i == kDead) return;
            if (n.kind == grammar_node::bytes && g_.sets[n.arg] == byte_set{}) return;
            const bool is_free = n.kind == grammar_node::repeat && g_.repeats[n.arg].min == 0;
            if (is_caller(n) && !is_free && !is_productive[callee(n)]) return;
            if (is_caller(n) && !nodes_[n.next].is_alive) return;
            n.is_alive = true;
            todo.push_back(i);
        };
        revive(0);
        while (!todo.empty()) {
            const uint32_t i = todo.back();
            todo.pop_back();
            for (uint32_t k = before.begin[i]; k < before.begin[i + 1]; k++) revive(before.items[k]);
            for (uint32_t k = starts.begin[i]; k < starts.begin[i + 1]; k++) {
                const uint32_t r = starts.items[k];
                is_productive[r] = true;
                for (uint32_t c = callers.begin[r]; c < callers.begin[r + 1]; c++) revive(callers.items[c]);
            }
        }
    }

    // Walks each rule from its start without taking a byte. The nodes reached stay marked in is_first_.
    void find_nullable() {
        is_first_.assign(nodes_.size(), false);
        owner_.assign(nodes_.size(), 0);
        std::vector<std::vector<uint32_t>> waiting(g_.rules.size());
        std::vector<uint32_t> todo;
        const auto reach = [&](uint32_t node, uint32_t rule) {
            if (node == 0) {
                if (g_.rules[rule].is_nullable) return;
                g_.rules[rule].is_nullable = true;
                todo.insert(todo.end(), waiting[rule].begin(), waiting[rule].end());
            } else if (!is_first_[node] && nodes_[node].is_alive) {
                is_first_[node] = true;
                owner_[node] = rule;
                todo.push_back(node);
            }
        };
        for (uint32_t r = 0; r < g_.rules.size(); r++) reach(g_.rules[r].start, r);
        while (!todo.empty()) {
            const uint32_t i = todo.back();
            todo.pop_back();
            const grammar_node n = nodes_[i];
            if (n.kind == grammar_node::split) {
                reach(n.next, owner_[i]);
                reach(n.arg, owner_[i]);
            } else if (is_caller(n)) {
                if (may_skip(n)) reach(n.next, owner_[i]);
                else waiting[callee(n)].push_back(i);
            }
        }
    }

    // Numbers the rules so that a rule comes before those it may call before any byte.
    duet_status rank_rules() {
        index_lists calls;
        calls.fill(g_.rules.size(), [&](auto put) {
            for (uint32_t i = 0; i < nodes_.size(); i++)
                if (is_first_[i] && is_caller(nodes_[i])) put(owner_[i], callee(nodes_[i]));
        });
        enum : uint8_t { untouched, open, done };
        std::vector<uint8_t> mark(g_.rules.size(), untouched);
        std::vector<std::pair<uint32_t, uint32_t>> path;  // a rule, and the next of its calls
        uint32_t rank = (uint32_t)g_.rules.size();
        for (uint32_t first = 0; first < g_.rules.size(); first++) {
            if (mark[first] != untouched) continue;
            mark[first] = open;
            path.push_back({first, calls.begin[first]});
            while (!path.empty()) {
                auto& [r, at] = path.back();
                if (at == calls.begin[r + 1]) {
                    mark[r] = done;
                    g_.rules[r].rank = --rank;
                    path.pop_back();
                    continue;
                }
                const uint32_t called = calls.items[at++];
                if (mark[called] == open) return report_cycle(path, called);
                if (mark[called] == done) continue;
                mark[called] = open;
                path.push_back({called, calls.begin[called]});
            }
        }
        return DUET_OK;
    }

    duet_status report_cycle(const std::vector<std::pair<uint32_t, uint32_t>>& path, uint32_t rule) {
        const auto name = [&](uint32_t r) { return printable(b_.rules_[g_.rules[r].name].name, 60); };
        size_t i = path.size();
        while (path[i - 1].first != rule) i--;
        std::string names = name(rule), last = names;
        for (size_t n = 0; i < path.size() && n < 6; i++)
            if (name(path[i].first) != last) names += " -> " + (last = name(path[i].first)), n++;
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
    std::vector<pending_rule> todo_;  // by rule
    std::vector<uint32_t> rule_of_;   // by rule of the builder
    std::array<uint32_t, 256> single_sets_;
    uint32_t name_ = 0;
    bool is_full_ = false;
    std::unordered_map<byte_set, uint32_t, set_hash> set_index_;
    std::unordered_map<uint64_t, uint32_t> tails_;  // next and a range of bytes -> node
    std::map<uint32_t, byte_set> first_bytes_;      // by the node that follows the first byte
    std::vector<bool> is_first_;                    // reached from its rule's start without a byte
    std::vector<uint32_t> owner_;                   // the rule, where is_first_
};

duet_status grammar_builder::build(uint32_t root, grammar* out, error_text& err) const {
    return grammar_compiler(*this, err).compile(root, out);
}

}  // namespace duet
