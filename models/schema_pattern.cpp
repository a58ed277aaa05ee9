// models/schema_pattern.cpp: turns regular expressions into deterministic automata, and combines these.
// Main path: models/schema -> [models/schema_pattern] -> models/grammar_build
//
// A pattern becomes a tree. The tree becomes an automaton with empty steps (K. Thompson, 1968). That automaton becomes
// the deterministic one of its sets of places. Each stage counts its nodes or states, so a pattern whose automaton
// explodes ends with an error.
#include "schema_pattern.h"

#include "unicode.h"

#include <algorithm>
#include <map>

namespace duet {
namespace {

constexpr uint32_t kLastChar = 0x10ffff;
constexpr size_t kMaxPatternNodes = 8192;  // of the automaton with empty steps
constexpr uint64_t kMaxPatternWork = 1'500'000;
constexpr int kMaxPatternDepth = 64;  // of groups

struct tree_node {
    enum node_kind : uint8_t { chars, sequence, any_of, repeat, begin, end };
    node_kind kind;
    std::vector<code_range> ranges;
    std::vector<uint32_t> children;
    uint32_t min = 0, max = 0;
};

class regex_parser {
  public:
    regex_parser(std::string_view text, error_text& err) : text_(text), err_(err) {}

    duet_status parse(uint32_t* root) {
        DUET_TRY(parse_choices(root, 0));
        return at_ < text_.size() ? want("a '(' before this") : DUET_OK;
    }
    std::vector<tree_node> nodes;

  private:
    duet_status want(const char* what, duet_status status = DUET_ERR_FORMAT) {
        const std::string got = at_ < text_.size() ? "'" + printable(text_.substr(at_, 8)) + "'" : "the end";
        return fail(err_, status, "at byte %zu: want %s, got %s", at_, what, got.c_str());
    }
    char peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
    bool take(char c) {
        if (at_ >= text_.size() || text_[at_] != c) return false;
        at_++;
        return true;
    }
    uint32_t add(tree_node n) {
        nodes.push_back(std::move(n));
        return (uint32_t)nodes.size() - 1;
    }

    duet_status parse_choices(uint32_t* out, int depth) {
        if (depth > kMaxPatternDepth) return want("at most 64 groups inside each other");
        tree_node choices{tree_node::any_of, {}, {}};
        do {
            tree_node parts{tree_node::sequence, {}, {}};
            while (at_ < text_.size() && peek() != '|' && peek() != ')') {
                uint32_t part = 0;
                bool is_place = false;  // ^ and $ cannot be repeated
                DUET_TRY(parse_part(&part, &is_place, depth));
                if (!is_place) DUET_TRY(parse_repeat(&part));
                parts.children.push_back(part);
            }
            choices.children.push_back(add(std::move(parts)));
        } while (take('|'));
        *out = choices.children.size() == 1 ? choices.children[0] : add(std::move(choices));
        return DUET_OK;
    }

    duet_status parse_part(uint32_t* out, bool* is_place, int depth) {
        const char c = peek();
        if (c == '^' || c == '$') {
            at_++;
            *is_place = true;
            *out = add({c == '^' ? tree_node::begin : tree_node::end, {}, {}});
            return DUET_OK;
        }
        if (take('(')) {
            if (peek() == '?') {
                if (peek(1) != ':')
                    return want("a plain group or (?: (no look-around, no names)", DUET_ERR_UNSUPPORTED);
                at_ += 2;
            }
            DUET_TRY(parse_choices(out, depth + 1));
            return take(')') ? DUET_OK : want("')'");
        }
        std::vector<code_range> ranges;
        if (take('[')) {
            DUET_TRY(parse_class(&ranges));
        } else if (take('.')) {
            ranges = complement_of({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}});
        } else if (c == '*' || c == '+' || c == '?' || c == '{') {
            return want("something to repeat before this");
        } else {
            DUET_TRY(parse_char(&ranges));
        }
        *out = add({tree_node::chars, std::move(ranges), {}});
        return DUET_OK;
    }

    duet_status parse_class(std::vector<code_range>* out) {
        const bool is_negated = take('^');
        is_escape_class_ = false;
        while (peek() != ']' || at_ >= text_.size()) {
            if (at_ >= text_.size()) return want("']'");
            std::vector<code_range> one, last;
            DUET_TRY(parse_char(&one));
            const bool is_single = one.size() == 1 && one[0].lo == one[0].hi;
            if (is_single && peek() == '-' && peek(1) != ']' && at_ + 1 < text_.size()) {
                at_++;
                DUET_TRY(parse_char(&last));
                if (last.size() != 1 || last[0].lo != last[0].hi || last[0].lo < one[0].lo)
                    return want("the end of a range at or after its beginning before this");
                one[0].hi = last[0].hi;
            }
            out->insert(out->end(), one.begin(), one.end());
        }
        at_++;
        if (!is_negated) return DUET_OK;
        *out = complement_of(*out);
        if (is_escape_class_) *out = printable_ascii(*out);
        return DUET_OK;
    }

    static std::vector<code_range> printable_ascii(const std::vector<code_range>& ranges) {
        std::vector<code_range> out;
        for (const code_range& r : ranges)
            if (std::max(r.lo, 0x20u) <= std::min(r.hi, 0x7eu))
                out.push_back({std::max(r.lo, 0x20u), std::min(r.hi, 0x7eu)});
        return out;
    }

    bool parse_hex(int n_digits, uint32_t* out) {
        *out = 0;
        for (int i = 0; i < n_digits; i++, at_++) {
            const char d = peek(), lower = (char)(d | 0x20);
            if (d >= '0' && d <= '9') *out = *out * 16 + (uint32_t)(d - '0');
            else if (lower >= 'a' && lower <= 'f') *out = *out * 16 + (uint32_t)(lower - 'a' + 10);
            else return false;
        }
        return true;
    }

    // One character or escape, inside or outside of a class.
    duet_status parse_char(std::vector<code_range>* out) {
        if (!take('\\')) {
            int n_bytes;
            const uint32_t c = utf8_decode(text_, at_, &n_bytes);
            if (c == kInvalidByte) return want("valid UTF-8");
            at_ += (size_t)n_bytes;
            *out = {{c, c}};
            return DUET_OK;
        }
        const std::vector<code_range> digits = {{'0', '9'}}, word = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}},
                                      blanks = {{'\t', '\r'}, {' ', ' '}};
        static constexpr std::string_view kNames = "tnvfr0", kMeanings = std::string_view("\t\n\v\f\r\0", 6);
        const char c = peek();
        if (std::string_view("dDwWsS").find(c) != std::string_view::npos && c != '\0') {
            const auto& set = (c | 0x20) == 'd' ? digits : (c | 0x20) == 'w' ? word : blanks;
            *out = c >= 'a' ? set : printable_ascii(complement_of(set));
            is_escape_class_ = true;
            at_++;
            return DUET_OK;
        }
        uint32_t cp = 0;
        if (const size_t i = kNames.find(c); at_ < text_.size() && i != kNames.npos) {
            cp = (uint8_t)kMeanings[i];
            at_++;
        } else if (c == 'x' || c == 'u') {
            at_++;
            if (c == 'u' && take('{')) {
                while (peek() != '}' && cp <= kLastChar) {
                    uint32_t digit = 0;
                    if (!parse_hex(1, &digit)) return want("a hexadecimal digit");
                    cp = cp * 16 + digit;
                }
                at_++;
            } else if (!parse_hex(c == 'x' ? 2 : 4, &cp)) {
                return want("a hexadecimal digit");
            }
            uint32_t low = 0;
            if (cp >= 0xd800 && cp <= 0xdbff && take('\\') && take('u') && parse_hex(4, &low))
                cp = 0x10000 + ((cp - 0xd800) << 10) + (low - 0xdc00);
            if (cp > kLastChar || (cp >= 0xd800 && cp <= 0xdfff)) return want("a character before this");
        } else if (c == 'c' && (peek(1) | 0x20) >= 'a' && (peek(1) | 0x20) <= 'z') {
            cp = (uint32_t)(peek(1) & 0x1f);
            at_ += 2;
        } else if (c > ' ' && c < 0x7f && !(c >= '0' && c <= '9') && !((c | 0x20) >= 'a' && (c | 0x20) <= 'z')) {
            cp = (uint8_t)c;
            at_++;
        } else {
            return want("a supported escape (no back-references, \\b, \\p)", DUET_ERR_UNSUPPORTED);
        }
        *out = {{cp, cp}};
        return DUET_OK;
    }

    bool parse_count(uint32_t* out) {
        uint64_t n = 0;
        if (peek() < '0' || peek() > '9') return false;
        for (; peek() >= '0' && peek() <= '9'; at_++)
            n = std::min<uint64_t>(n * 10 + (uint64_t)(peek() - '0'), kUnlimited - 1);
        *out = (uint32_t)n;
        return true;
    }

    duet_status parse_repeat(uint32_t* part) {
        uint32_t min = 0, max = kUnlimited;
        if (take('+')) min = 1;
        else if (take('?')) max = 1;
        else if (take('{')) {
            if (!parse_count(&min)) return want("a number");
            max = min;
            if (take(',')) {
                max = kUnlimited;
                if (peek() != '}' && !parse_count(&max)) return want("a number");
            }
            if (max < min) return want("a maximum of at least the minimum before this");
            if (!take('}')) return want("'}'");
        } else if (!take('*')) {
            return DUET_OK;
        }
        take('?');  // greedy or lazy makes no difference here
        if (peek() == '*' || peek() == '+' || peek() == '?' || peek() == '{') return want("one repetition, not two");
        tree_node n{tree_node::repeat, {}, {*part}};
        n.min = min;
        n.max = max;
        *part = add(std::move(n));
        return DUET_OK;
    }

    std::string_view text_;
    error_text& err_;
    size_t at_ = 0;
    bool is_escape_class_ = false;
};

// ---- the tree to an automaton with empty steps, and that to a deterministic one ----

class pattern_compiler {
  public:
    pattern_compiler(const std::vector<tree_node>& tree, error_text& err) : tree_(tree), err_(err) {}

    duet_status compile(uint32_t root, char_automaton* out) {
        nodes_.push_back({place::match, 0, 0, 0});
        const uint32_t start = add_tree(root, 0);
        // A pattern may be found anywhere: any characters may stand before it.
        const uint32_t any = add({place::chars, 0, 0, class_of({{0, kLastChar}})});
        const uint32_t loop = add({place::split, any, start, 0});
        nodes_[any].next = loop;
        if (is_over_) return too_large();
        find_intervals();
        DUET_TRY(find_states(loop, out));
        out->trim();
        return DUET_OK;
    }

  private:
    struct place {
        enum place_kind : uint8_t { match, chars, split, begin, end };
        place_kind kind;
        uint32_t next, other, i_class;
    };
    struct found_state {
        std::vector<uint32_t> places;  // of kind chars and end
        bool is_match = false;         // any text may follow
        bool is_end = false;           // the text may end here
    };

    duet_status too_large() {
        return fail(err_, DUET_ERR_FULL, "want a pattern whose automaton has at most %zu states", kMaxPatternStates);
    }

    uint32_t add(place p) {
        if (nodes_.size() >= kMaxPatternNodes) is_over_ = true;
        if (is_over_) return 0;
        nodes_.push_back(p);
        return (uint32_t)nodes_.size() - 1;
    }

    uint32_t class_of(const std::vector<code_range>& ranges) {
        classes_.push_back(normal_ranges(ranges));
        return (uint32_t)classes_.size() - 1;
    }

    // Nested no deeper than the groups, which are at most kMaxPatternDepth.
    uint32_t add_tree(uint32_t i, uint32_t next) {
        const tree_node& n = tree_[i];
        if (is_over_) return 0;
        switch (n.kind) {
        case tree_node::chars: return add({place::chars, next, 0, class_of(n.ranges)});
        case tree_node::begin: return add({place::begin, next, 0, 0});
        case tree_node::end: return add({place::end, next, 0, 0});
        case tree_node::sequence:
            for (size_t k = n.children.size(); k-- > 0;) next = add_tree(n.children[k], next);
            return next;
        case tree_node::any_of: {
            uint32_t start = add_tree(n.children.back(), next);
            for (size_t k = n.children.size() - 1; k-- > 0;)
                start = add({place::split, add_tree(n.children[k], next), start, 0});
            return start;
        }
        case tree_node::repeat: break;
        }
        uint32_t start = next;
        if (n.max == kUnlimited) {
            start = add({place::split, 0, next, 0});
            const uint32_t body = add_tree(n.children[0], start);
            nodes_[start].next = body;
        }
        for (uint32_t k = n.max == kUnlimited ? n.min : n.max; k > 0 && !is_over_; k--) {
            const size_t n_before = nodes_.size();
            const uint32_t body = add_tree(n.children[0], start);
            if (nodes_.size() == n_before) break;  // the repeated part is empty
            start = k > n.min ? add({place::split, body, next, 0}) : body;
        }
        return start;
    }

    // Cuts the range of characters at every place where a class begins or ends.
    void find_intervals() {
        std::vector<uint32_t> cuts = {0};
        for (const auto& ranges : classes_)
            for (const code_range& r : ranges) {
                cuts.push_back(r.lo);
                if (r.hi < kLastChar) cuts.push_back(r.hi + 1);
            }
        std::sort(cuts.begin(), cuts.end());
        cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
        cuts_ = std::move(cuts);
    }

    bool class_has(uint32_t i_class, uint32_t c) const {
        const auto& ranges = classes_[i_class];
        const auto after =
            std::upper_bound(ranges.begin(), ranges.end(), c, [](uint32_t x, const code_range& r) { return x < r.lo; });
        return after != ranges.begin() && c <= std::prev(after)->hi;
    }

    found_state close(std::vector<uint32_t> todo, bool is_start) {
        found_state out;
        mark_.resize(nodes_.size());
        // 1: reached as the text goes on; 2: only when it ends here.
        std::vector<uint32_t> touched;
        for (uint8_t round = 1; round <= 2; round++) {
            std::vector<uint32_t> at_end;
            while (!todo.empty()) {
                const uint32_t i = todo.back();
                todo.pop_back();
                work_++;
                if (mark_[i]) continue;
                mark_[i] = round;
                touched.push_back(i);
                const place& p = nodes_[i];
                if (p.kind == place::match) (round == 1 ? out.is_match : out.is_end) = true;
                if (p.kind == place::split) {
                    todo.push_back(p.next);
                    todo.push_back(p.other);
                }
                if (p.kind == place::begin && is_start) todo.push_back(p.next);
                if (p.kind == place::end) (round == 1 ? at_end : todo).push_back(p.next);
                if (round == 1 && (p.kind == place::chars || p.kind == place::end)) out.places.push_back(i);
            }
            todo = std::move(at_end);
        }
        for (uint32_t i : touched) mark_[i] = 0;
        std::sort(out.places.begin(), out.places.end());
        if (out.is_match) out.places.clear();
        out.is_end = out.is_end || out.is_match;
        return out;
    }

    duet_status find_states(uint32_t start, char_automaton* out) {
        std::map<std::pair<bool, std::vector<uint32_t>>, uint32_t> known;  // is_match and places -> state
        std::vector<found_state> todo;
        const auto state_of = [&](found_state s) {
            // Whether ^ may hold matters only at the start, and no edge leads back to the start.
            const auto [at, is_new] = known.try_emplace({s.is_match, s.places}, (uint32_t)todo.size());
            if (is_new) {
                out->states.push_back({s.is_end, {}});
                todo.push_back(std::move(s));
            }
            return at->second;
        };
        out->states.clear();
        const found_state first = close({start}, true);
        out->states.push_back({first.is_end, {}});
        todo.push_back(first);
        for (size_t i = 0; i < todo.size(); i++) {
            if (todo.size() > kMaxPatternStates || work_ > kMaxPatternWork) return too_large();
            if (todo[i].is_match) {
                out->states[i].edges = {{0, kLastChar, (uint32_t)i}};
                continue;
            }
            std::map<std::vector<uint32_t>, uint32_t> to_of;  // places after the character -> state
            for (size_t k = 0; k < cuts_.size(); k++) {
                std::vector<uint32_t> next;
                for (uint32_t p : todo[i].places)
                    if (nodes_[p].kind == place::chars && class_has(nodes_[p].i_class, cuts_[k]))
                        next.push_back(nodes_[p].next);
                work_ += todo[i].places.size() + 1;
                if (next.empty()) continue;
                const auto [at, is_new] = to_of.try_emplace(next, 0);
                if (is_new) at->second = state_of(close(next, false));
                const uint32_t hi = k + 1 < cuts_.size() ? cuts_[k + 1] - 1 : kLastChar;
                auto& edges = out->states[i].edges;
                if (!edges.empty() && edges.back().to == at->second && edges.back().hi + 1 == cuts_[k])
                    edges.back().hi = hi;
                else edges.push_back({cuts_[k], hi, at->second});
            }
        }
        return DUET_OK;
    }

    const std::vector<tree_node>& tree_;
    error_text& err_;
    std::vector<place> nodes_;
    std::vector<std::vector<code_range>> classes_;
    std::vector<uint32_t> cuts_;
    std::vector<uint8_t> mark_;
    uint64_t work_ = 0;
    bool is_over_ = false;
};

}  // namespace

duet_status compile_pattern(std::string_view pattern, char_automaton* out, error_text& err) {
    if (pattern.size() > kMaxPatternBytes)
        return fail(err, DUET_ERR_FULL, "want at most %zu bytes, got %zu", kMaxPatternBytes, pattern.size());
    regex_parser parser(pattern, err);
    uint32_t root = 0;
    DUET_TRY(parser.parse(&root));
    return pattern_compiler(parser.nodes, err).compile(root, out);
}

// ---- formats --------------------------------------------------------------------------------------------------------

// The formats follow RFC 3339 with the days that months have, RFC 9562, RFC 5321 without quoted names, RFC 4291, and
// RFC 3986 with an authority.
std::string format_pattern(std::string_view format) {
    const std::string leap_year = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)",
                      year = "(?:000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})",
                      date = "(?:" + year +
                             "-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|" +
                             "[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))|" + leap_year + "-02-29)",
                      hour = "(?:[01][0-9]|2[0-3])",
                      time = hour + ":[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,9})?(?:Z|[+-]" + hour + ":[0-5][0-9])",
                      byte = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])",
                      label = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,30}[A-Za-z0-9])?", h = "[0-9A-Fa-f]{1,4}",
                      uri_char = "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})";
    std::string p;
    if (format == "date") p = date;
    if (format == "time") p = time;
    if (format == "date-time") p = date + "T" + time;
    if (format == "uuid") p = "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}";
    if (format == "ipv4") p = byte + "(?:\\." + byte + "){3}";
    if (format == "email")
        p = "[A-Za-z0-9_%+-]{1,20}(?:\\.[A-Za-z0-9_%+-]{1,20}){0,2}@(?:" + label + "\\.){1,3}[A-Za-z]{2,10}";
    if (format == "uri")
        p = "[A-Za-z][A-Za-z0-9+-]*://(?:" + label + "\\.){0,3}" + label + "(?::[0-9]{1,4})?(?:/" + uri_char +
            "*)*(?:\\?(?:" + uri_char + "|[/?])*)?(?:#(?:" + uri_char + "|[/?])*)?";
    if (format == "ipv6") {
        p = "(?:" + h + ":){7}" + h + "|::(?:" + h + "(?::" + h + "){0,6})?";
        for (int n = 1; n <= 7; n++) {  // n groups before ::
            const std::string before = h + "(?::" + h + "){" + std::to_string(n - 1) + "}::";
            p += "|" + before + (n == 7 ? "" : "(?:" + h + "(?::" + h + "){0," + std::to_string(6 - n) + "})?");
        }
    }
    return p.empty() ? p : "^(?:" + p + ")$";
}

const char* known_formats() { return "date-time, date, time, uuid, email, ipv4, ipv6, uri"; }

// ---- automata -------------------------------------------------------------------------------------------------------

bool char_automaton::accepts(std::string_view utf8) const {
    if (states.empty()) return false;
    uint32_t at = 0;
    for (size_t i = 0; i < utf8.size();) {
        int n_bytes;
        const uint32_t c = utf8_decode(utf8, i, &n_bytes);
        i += (size_t)n_bytes;
        const auto& edges = states[at].edges;
        const auto e = std::find_if(edges.begin(), edges.end(), [&](const edge& x) { return c >= x.lo && c <= x.hi; });
        if (e == edges.end()) return false;
        at = e->to;
    }
    return states[at].is_end;
}

void char_automaton::lengths(uint32_t* min, uint32_t* max) const {
    // The longest member first: a trimmed automaton lacks one exactly when it has a loop.
    std::vector<uint32_t> n_in(states.size()), longest(states.size()), shortest(states.size(), kUnlimited), todo = {0};
    for (const state& s : states)
        for (const edge& e : s.edges) n_in[e.to]++;
    *min = *max = 0;
    size_t n_done = 0;
    if (n_in[0] > 0) todo.clear();
    while (!todo.empty()) {
        const uint32_t at = todo.back();
        todo.pop_back();
        n_done++;
        if (states[at].is_end) *max = std::max(*max, longest[at]);
        for (const edge& e : states[at].edges) {
            longest[e.to] = std::max(longest[e.to], longest[at] + 1);
            if (--n_in[e.to] == 0) todo.push_back(e.to);
        }
    }
    if (n_done < states.size()) *max = kUnlimited;
    shortest[0] = 0;
    todo = {0};
    for (size_t i = 0; i < todo.size(); i++) {
        if (states[todo[i]].is_end) {
            *min = shortest[todo[i]];
            return;
        }
        for (const edge& e : states[todo[i]].edges) {
            if (shortest[e.to] != kUnlimited) continue;
            shortest[e.to] = shortest[todo[i]] + 1;
            todo.push_back(e.to);
        }
    }
}

void char_automaton::trim() {
    std::vector<std::vector<uint32_t>> before(states.size());
    std::vector<bool> is_live(states.size());
    std::vector<uint32_t> todo, renamed(states.size());
    for (uint32_t i = 0; i < states.size(); i++) {
        for (const edge& e : states[i].edges) before[e.to].push_back(i);
        if (states[i].is_end) todo.push_back(i);
    }
    for (uint32_t i : todo) is_live[i] = true;
    while (!todo.empty()) {
        const uint32_t i = todo.back();
        todo.pop_back();
        for (uint32_t b : before[i]) {
            if (is_live[b]) continue;
            is_live[b] = true;
            todo.push_back(b);
        }
    }
    if (states.empty() || !is_live[0]) return states.clear();
    uint32_t n = 0;
    for (uint32_t i = 0; i < states.size(); i++) renamed[i] = is_live[i] ? n++ : 0;
    for (uint32_t i = 0; i < states.size(); i++) {
        if (!is_live[i]) continue;
        std::vector<edge> edges;
        for (const edge& e : states[i].edges)
            if (is_live[e.to]) edges.push_back({e.lo, e.hi, renamed[e.to]});
        states[renamed[i]] = {states[i].is_end, std::move(edges)};
    }
    states.resize(n);
}

char_automaton complement(const char_automaton& a) {
    char_automaton out = a;
    const uint32_t rest = (uint32_t)out.states.size();  // what the set was left for
    for (auto& s : out.states) {
        s.is_end = !s.is_end;
        std::vector<char_automaton::edge> edges;
        uint32_t lo = 0;
        for (const auto& e : s.edges) {
            if (e.lo > lo) edges.push_back({lo, e.lo - 1, rest});
            edges.push_back(e);
            lo = e.hi + 1;
        }
        if (lo <= kLastChar) edges.push_back({lo, kLastChar, rest});
        s.edges = std::move(edges);
    }
    out.states.push_back({true, {{0, kLastChar, rest}}});
    out.trim();
    return out;
}

char_automaton strings_of_length(uint32_t min, uint32_t max) {
    char_automaton out;
    const uint32_t last = max == kUnlimited ? min : max;
    for (uint32_t n = 0; n <= last; n++) {
        out.states.push_back({n >= min, {}});
        if (n < last) out.states[n].edges.push_back({0, kLastChar, n + 1});
    }
    if (max == kUnlimited) out.states[last].edges.push_back({0, kLastChar, last});
    return out;
}

char_automaton strings_of_residue(uint32_t residue, uint32_t modulus) {
    char_automaton out;
    for (uint32_t n = 0; n < modulus; n++) out.states.push_back({n == residue, {{0, kLastChar, (n + 1) % modulus}}});
    return out;
}

char_automaton strings_of_chars(const std::vector<code_range>& chars) {
    char_automaton out;
    out.states.push_back({true, {}});
    for (const code_range& r : normal_ranges(chars)) out.states[0].edges.push_back({r.lo, r.hi, 0});
    return out;
}

char_automaton one_of_strings(const std::vector<std::string>& strings) {
    std::vector<std::map<uint32_t, uint32_t>> next(1);
    std::vector<bool> is_end(1);
    for (const std::string& s : strings) {
        uint32_t at = 0;
        for (size_t i = 0; i < s.size();) {
            int n_bytes;
            const uint32_t c = utf8_decode(s, i, &n_bytes);
            i += (size_t)n_bytes;
            const auto [to, is_new] = next[at].try_emplace(c, (uint32_t)next.size());
            at = to->second;
            if (!is_new) continue;
            next.emplace_back();
            is_end.push_back(false);
        }
        is_end[at] = true;
    }
    char_automaton out;
    for (size_t i = 0; i < next.size(); i++) {
        out.states.push_back({is_end[i], {}});
        for (const auto& [c, to] : next[i]) out.states[i].edges.push_back({c, c, to});
    }
    out.trim();
    return out;
}

bool intersect(const char_automaton& a, const char_automaton& b, char_automaton* out) {
    char_automaton result;
    std::map<std::pair<uint32_t, uint32_t>, uint32_t> known;
    std::vector<std::pair<uint32_t, uint32_t>> todo;
    const auto state_of = [&](uint32_t i, uint32_t k) {
        const auto [at, is_new] = known.try_emplace({i, k}, (uint32_t)todo.size());
        if (is_new) {
            todo.push_back({i, k});
            result.states.push_back({a.states[i].is_end && b.states[k].is_end, {}});
        }
        return at->second;
    };
    if (!a.is_empty() && !b.is_empty()) state_of(0, 0);
    for (size_t s = 0; s < todo.size(); s++) {
        // Automata of property names may need many states, but few pairs of these are met.
        if (todo.size() > std::max(kMaxPatternStates, a.states.size() + b.states.size())) return false;
        const auto& x = a.states[todo[s].first].edges;
        const auto& y = b.states[todo[s].second].edges;
        for (size_t i = 0, k = 0; i < x.size() && k < y.size();) {
            const uint32_t lo = std::max(x[i].lo, y[k].lo), hi = std::min(x[i].hi, y[k].hi);
            if (lo <= hi) {
                const uint32_t to = state_of(x[i].to, y[k].to);
                result.states[s].edges.push_back({lo, hi, to});
            }
            (x[i].hi < y[k].hi ? i : k)++;
        }
    }
    result.trim();
    *out = std::move(result);
    return true;
}

}  // namespace duet
