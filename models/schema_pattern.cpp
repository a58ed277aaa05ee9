// models/schema_pattern.cpp: turns regular expressions into deterministic automata.
// Main path: models/schema -> [models/schema_pattern] -> models/grammar_build
//
// A pattern becomes a program whose steps take a character or none (K. Thompson, 1968). The programs of all conditions
// run side by side; each set of places in them becomes a state. Every stage counts its steps, so patterns whose
// automaton explodes end with an error.
#include "schema_pattern.h"

#include "unicode.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

namespace duet {
namespace {

constexpr uint32_t kLastChar = 0x10ffff;
constexpr int kMaxPatternDepth = 64;  // of groups

// A step names others by their distance, so that a part of a program can be copied.
struct pattern_step {
    enum step_kind : uint8_t {
        chars,  // one character of class a, then the next step
        split,  // a steps further, or b if it is not 0
        begin,  // the next step, if no character stands before
        end,    // b steps further, which is the next one, if no character follows
        match,  // the pattern was found
    };
    step_kind kind;
    int32_t a = 0, b = 0;
};

struct pattern_program {
    std::vector<pattern_step> steps;
    std::map<std::vector<code_range>, int32_t> classes;

    pattern_step char_of(std::vector<code_range> ranges) {
        const auto at = classes.try_emplace(normal_ranges(std::move(ranges)), (int32_t)classes.size()).first;
        return {pattern_step::chars, at->second};
    }
};

duet_status too_large(error_text& err) {
    return fail(err, DUET_ERR_FULL, "want a pattern whose automaton has at most %zu states", kMaxPatternStates);
}

class regex_parser {
  public:
    using step = pattern_step;

    // Appends to the program.
    regex_parser(std::string_view text, pattern_program& program, error_text& err)
        : text_(text), steps_(program.steps), program_(program), err_(err) {}

    duet_status parse() {
        if (text_.size() > kMaxPatternBytes)
            return fail(err_, DUET_ERR_FULL, "want at most %zu bytes, got %zu", kMaxPatternBytes, text_.size());
        DUET_TRY(parse_choices(0));
        return at_ < text_.size() ? want("a '(' before this") : DUET_OK;
    }

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

    duet_status parse_choices(int depth) {
        if (depth > kMaxPatternDepth) return want("at most 64 groups inside each other");
        std::vector<size_t> jumps;  // behind the choices, except the last
        for (size_t begin = steps_.size();; begin = steps_.size()) {
            while (at_ < text_.size() && peek() != '|' && peek() != ')') DUET_TRY(parse_part(depth));
            if (!take('|')) break;
            const int32_t n_steps = (int32_t)(steps_.size() - begin);
            steps_.insert(steps_.begin() + (ptrdiff_t)begin, {step::split, 1, n_steps + 2});
            jumps.push_back(steps_.size());
            steps_.push_back({step::split});
        }
        for (size_t j : jumps) steps_[j].a = (int32_t)(steps_.size() - j);
        return DUET_OK;
    }

    duet_status parse_part(int depth) {
        const size_t begin = steps_.size();
        const char c = peek();
        if (c == '^' || c == '$') {  // these cannot be repeated
            at_++;
            steps_.push_back(c == '^' ? step{step::begin} : step{step::end, 0, 1});
            return DUET_OK;
        }
        std::vector<code_range> ranges;
        if (take('(')) {
            if (peek() == '?') {
                if (peek(1) != ':') return want("a plain group or (?: (no look-around or names)", DUET_ERR_UNSUPPORTED);
                at_ += 2;
            }
            DUET_TRY(parse_choices(depth + 1));
            return take(')') ? parse_repeat(begin) : want("')'");
        }
        if (c == '*' || c == '+' || c == '?' || c == '{') return want("something to repeat before this");
        if (take('[')) DUET_TRY(parse_class(&ranges));
        else if (take('.')) ranges = complement_of({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}});
        else DUET_TRY(parse_char(&ranges));
        steps_.push_back(program_.char_of(std::move(ranges)));
        return parse_repeat(begin);
    }

    duet_status parse_class(std::vector<code_range>* out) {
        const bool is_negated = take('^');
        escapes_ = 0;
        while (!take(']')) {
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
        if (is_negated) *out = escapes_ ? all_except(*out, escapes_ > 1) : complement_of(*out);
        return DUET_OK;
    }

    // Without what some validators take for the ranges' kind: blanks, or with is_ascii digits and letters.
    static std::vector<code_range> all_except(std::vector<code_range> ranges, bool is_ascii) {
        static constexpr code_range kOthers[] = {{0, 0x1f},        {0x1680, 0x1680}, {0x2000, 0x200f}, {0x2028, 0x202f},
                                                 {0x205f, 0x2064}, {0x3000, 0x3000}, {0xfeff, 0xfeff}};
        ranges.push_back({0x7f, is_ascii ? kLastChar : 0xa0});
        ranges.insert(ranges.end(), std::begin(kOthers), std::end(kOthers));
        return complement_of(ranges);
    }

    bool parse_hex(int n_digits, uint32_t* out) {
        for (*out = 0; n_digits > 0 && hex_digit(peek()) >= 0; n_digits--)
            *out = *out * 16 + (uint32_t)hex_digit(text_[at_++]);
        return n_digits == 0;
    }

    // One character or escape, inside or outside of a class.
    duet_status parse_char(std::vector<code_range>* out) {
        uint32_t c = 0;
        if (!take('\\')) {
            int n_bytes;
            c = utf8_decode(text_, at_, &n_bytes);
            if (c == kInvalidByte) return want("valid UTF-8");
            at_ += (size_t)n_bytes;
            *out = {{c, c}};
            return DUET_OK;
        }
        static constexpr std::string_view kNames = "tnvfr0", kMeanings = std::string_view("\t\n\v\f\r\0", 6);
        if (at_ >= text_.size()) return want("a character behind this");
        const char name = text_[at_++], lower = (char)(name | 0x20);
        if (lower == 'd' || lower == 'w' || lower == 's') {
            if (lower == 's') *out = {{'\t', '\r'}, {' ', ' '}};
            else *out = {{'0', '9'}};
            if (lower == 'w') out->insert(out->end(), {{'A', 'Z'}, {'_', '_'}, {'a', 'z'}});
            if (name != lower) *out = all_except(*out, lower != 's');
            escapes_ = std::max(escapes_, lower == 's' ? 1 : 2);
            return DUET_OK;
        }
        if (const size_t i = kNames.find(name); i != kNames.npos) {
            c = (uint8_t)kMeanings[i];
        } else if (name == 'u' && take('{')) {
            for (uint32_t digit = 0; !take('}'); c = c * 16 + digit)
                if (c > kLastChar || !parse_hex(1, &digit)) return want("a hexadecimal digit");
        } else if (name == 'x' || name == 'u') {
            if (!parse_hex(name == 'x' ? 2 : 4, &c)) return want("a hexadecimal digit");
            uint32_t low = 0;
            if (c >= 0xd800 && c <= 0xdbff && take('\\') && take('u') && parse_hex(4, &low) && low >> 10 == 0x37)
                c = 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00);
        } else if (name == 'c' && (peek() | 0x20) >= 'a' && (peek() | 0x20) <= 'z') {
            c = (uint32_t)(text_[at_++] & 0x1f);
        } else if (name >= ' ' && name < 0x7f && !(name >= '0' && name <= '9') && !(lower >= 'a' && lower <= 'z')) {
            c = (uint8_t)name;
        } else {
            at_--;
            return want("a supported escape (no back-references, \\b, \\p)", DUET_ERR_UNSUPPORTED);
        }
        if (c > kLastChar || (c >= 0xd800 && c <= 0xdfff)) return want("a character before this");
        *out = {{c, c}};
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

    // Repeats the steps from `begin` on, if a repetition comes next.
    duet_status parse_repeat(size_t begin) {
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
            min = max = 1;
        }
        if (min != 1 || max != 1) take('?');  // greedy or lazy makes no difference here
        if (peek() == '*' || peek() == '+' || peek() == '?' || peek() == '{') return want("one repetition, not two");
        if (min == 1 && max == 1) return DUET_OK;
        const std::vector<step> body(steps_.begin() + (ptrdiff_t)begin, steps_.end());
        const uint64_t n_copies = max == kUnlimited ? (uint64_t)min + 1 : max, n_steps = body.size() + 1;
        if (begin + n_copies * n_steps > kMaxPatternSteps) return too_large(err_);
        if (body.empty()) return DUET_OK;
        const auto add_body = [&] { steps_.insert(steps_.end(), body.begin(), body.end()); };
        steps_.resize(begin);
        for (uint32_t i = 0; i < min; i++) add_body();
        const int32_t n = (int32_t)n_steps;
        if (max == kUnlimited) {
            steps_.push_back({step::split, 1, n + 1});
            add_body();
            steps_.push_back({step::split, -n});
            return DUET_OK;
        }
        for (uint32_t i = min; i < max; i++) {
            steps_.push_back({step::split, 1, n * (int32_t)(max - i)});
            add_body();
        }
        return DUET_OK;
    }

    std::string_view text_;
    std::vector<step>& steps_;
    pattern_program& program_;
    error_text& err_;
    size_t at_ = 0;
    int escapes_ = 0;  // in the class: 1 for \s, 2 for \d or \w
};

// ---- programs to an automaton ---------------------------------------------------------------------------------------

class automaton_maker {
  public:
    explicit automaton_maker(error_text& err) : err_(err) {}

    duet_status make(const std::vector<string_condition>& conditions, char_automaton* out) {
        size_t max_states = kMaxPatternStates;
        place_list starts;
        for (const string_condition& c : conditions) {
            const uint32_t begin = (uint32_t)steps_.size();
            DUET_TRY(regex_parser(c.pattern, program_, err_).parse());
            if (begin == steps_.size() || steps_[begin].kind != step::begin)  // any characters may stand before it
                steps_.insert(steps_.begin() + begin,
                              {{step::split, 1, 3}, program_.char_of({{0, kLastChar}}), {step::split, -2}});
            steps_.push_back({step::match});
            if (steps_.size() > kMaxPatternSteps) return too_large(err_);
            parts_.push_back({(uint32_t)steps_.size(), c.is_negated});
            if (c.is_negated) max_states = std::max(max_states, 2 * (steps_.size() - begin));
            starts.push_back(begin);
        }
        classes_.resize(program_.classes.size());
        next_of_.resize(classes_.size() + 1);
        for (const auto& [ranges, i] : program_.classes) classes_[(size_t)i] = &ranges;
        mark_.resize(steps_.size());
        out->states.clear();
        state_of(starts, true, out);
        known_.clear();  // no edge leads back to the start, where ^ holds
        for (size_t i = 0; i < todo_.size(); i++) {
            if (todo_.size() > max_states || work_ > kMaxPatternWork) return too_large(err_);
            add_edges(place_list(todo_[i]), (uint32_t)i, out);  // of a copy: the list grows
        }
        trim(out);
        return DUET_OK;
    }

  private:
    using step = pattern_step;
    static constexpr uint32_t kNone = UINT32_MAX;
    static constexpr int32_t kEveryClass = -1;  // of a pattern that was found
    struct part {
        uint32_t end;  // behind its last step, which is its match
        bool is_negated;
    };
    using place_list = std::vector<uint32_t>;

    // Returns the state in which the text is at all these places, or kNone if some condition can no longer hold.
    uint32_t state_of(place_list& todo, bool is_start, char_automaton* out) {
        // A place's mark is go_on if it is reached as the text goes on, and one more if only when the text ends here.
        const uint32_t go_on = last_mark_ += 2;
        found_.clear();
        for (uint32_t mark = go_on; mark <= go_on + 1; mark++, std::swap(todo, at_end_))
            while (!todo.empty()) {
                uint32_t i = todo.back();
                todo.pop_back();
                for (; mark_[i] < go_on; work_++) {
                    mark_[i] = mark;
                    const step& s = steps_[i];
                    if (s.b != 0) (s.kind == step::end && mark == go_on ? at_end_ : todo).push_back(i + (uint32_t)s.b);
                    if (mark == go_on && s.kind != step::split && s.kind != step::begin) found_.push_back(i);
                    i += s.kind == step::split ? (uint32_t)s.a : uint32_t(s.kind == step::begin && is_start);
                }
            }
        std::sort(found_.begin(), found_.end());
        bool is_end = true, is_dead = false;
        size_t i = 0, n = 0;
        for (const part& p : parts_) {
            const uint32_t mark = mark_[p.end - 1];
            const size_t n_before = n;
            for (; i < found_.size() && found_[i] < p.end; i++)  // nothing else matters once a pattern was found
                if (mark != go_on || found_[i] == p.end - 1) found_[n++] = found_[i];
            is_dead = is_dead || (p.is_negated ? mark == go_on : n == n_before);
            is_end = is_end && (mark >= go_on) != p.is_negated;
        }
        if (is_dead) return kNone;
        found_.resize(n);
        // If the list is new, its bytes go on where they are: in todo_.
        const auto [at, is_new] = known_.try_emplace({(const char*)found_.data(), n * 4}, (uint32_t)todo_.size());
        if (!is_new) return at->second;
        todo_.push_back(std::move(found_));
        out->states.push_back({is_end, {}});
        return at->second;
    }

    int32_t class_of(uint32_t place) const { return steps_[place].kind == step::match ? kEveryClass : steps_[place].a; }

    void add_edges(const place_list& places, uint32_t from, char_automaton* out) {
        std::vector<std::pair<uint32_t, int32_t>> changes;  // characters where a class begins or has ended
        std::vector<int32_t> active;                        // classes
        for (uint32_t p : places) {
            if (steps_[p].kind == step::end) continue;
            const int32_t i = class_of(p);
            place_list& next = next_of_[(size_t)(i + 1)];
            next.push_back(i == kEveryClass ? p : p + 1);
            if (next.size() > 1) continue;
            if (i == kEveryClass) active.push_back(i);
            else
                for (const auto& r : *classes_[(size_t)i]) changes.insert(changes.end(), {{r.lo, i}, {r.hi + 1, i}});
        }
        std::sort(changes.begin(), changes.end());
        std::map<std::vector<int32_t>, uint32_t> to_of;  // by active classes
        std::vector<char_automaton::edge> list;
        place_list next;
        for (uint32_t lo = 0, i = 0; lo <= kLastChar;) {
            for (; i < changes.size() && changes[i].first == lo; i++)
                if (!std::erase(active, changes[i].second))
                    active.insert(std::upper_bound(active.begin(), active.end(), changes[i].second), changes[i].second);
            const uint32_t hi = i < changes.size() ? changes[i].first - 1 : kLastChar;
            work_ += active.size() + 1;
            const auto [at, is_new] = to_of.try_emplace(active, kNone);
            if (is_new) {
                for (int32_t c : active)
                    next.insert(next.end(), next_of_[(size_t)(c + 1)].rbegin(), next_of_[(size_t)(c + 1)].rend());
                at->second = state_of(next, false, out);
            }
            const uint32_t to = at->second;
            if (to != kNone && !list.empty() && list.back().to == to && list.back().hi + 1 == lo) list.back().hi = hi;
            else if (to != kNone) list.push_back({lo, hi, to});
            lo = hi + 1;
        }
        for (uint32_t p : places)
            if (steps_[p].kind != step::end) next_of_[(size_t)(class_of(p) + 1)].clear();
        out->states[from].edges = std::move(list);
    }

    // Drops the states from which no end can be reached.
    static void trim(char_automaton* a) {
        auto& states = a->states;
        std::vector<std::vector<uint32_t>> before(states.size());
        std::vector<uint32_t> todo, renamed(states.size(), kNone);
        for (uint32_t i = 0; i < states.size(); i++) {
            for (const auto& e : states[i].edges) before[e.to].push_back(i);
            if (states[i].is_end) todo.push_back(i);
        }
        while (!todo.empty()) {
            const uint32_t i = todo.back();
            todo.pop_back();
            if (renamed[i] != kNone) continue;
            renamed[i] = 0;
            todo.insert(todo.end(), before[i].begin(), before[i].end());
        }
        if (states.empty() || renamed[0] == kNone) return states.clear();
        uint32_t n = 0;
        for (uint32_t& r : renamed)
            if (r != kNone) r = n++;
        for (uint32_t i = 0; i < states.size(); i++) {
            if (renamed[i] == kNone) continue;
            std::erase_if(states[i].edges, [&](const auto& e) { return renamed[e.to] == kNone; });
            for (auto& e : states[i].edges) e.to = renamed[e.to];
            if (renamed[i] != i) states[renamed[i]] = std::move(states[i]);
        }
        states.resize(n);
    }

    error_text& err_;
    pattern_program program_;
    std::vector<step>& steps_ = program_.steps;
    std::vector<const std::vector<code_range>*> classes_;
    std::vector<part> parts_;
    std::vector<uint32_t> mark_;  // by step; those of earlier calls are smaller
    uint32_t last_mark_ = 0;
    std::vector<place_list> todo_;                          // by state
    std::unordered_map<std::string_view, uint32_t> known_;  // by the bytes of a list of todo_
    place_list found_, at_end_;
    std::vector<place_list> next_of_;  // by class, behind that of kEveryClass
    uint64_t work_ = 0;
};

}  // namespace

duet_status match_strings(const std::vector<string_condition>& conditions, char_automaton* out, error_text& err) {
    return automaton_maker(err).make(conditions, out);
}

bool char_automaton::accepts(std::string_view utf8) const {
    uint32_t at = 0;
    for (size_t i = 0; i < utf8.size() && !is_empty();) {
        const uint32_t c = next_char(utf8, &i);
        const auto& edges = states[at].edges;
        const auto e = std::find_if(edges.begin(), edges.end(), [&](const edge& x) { return c >= x.lo && c <= x.hi; });
        if (e == edges.end()) return false;
        at = e->to;
    }
    return !is_empty() && states[at].is_end;
}

void char_automaton::lengths(uint32_t* min, uint32_t* max) const {
    // The longest member by the order of the states: there is none exactly if there is a loop.
    std::vector<uint32_t> n_in(states.size()), longest(states.size()), shortest(states.size(), kUnlimited), todo = {0};
    for (const state& s : states)
        for (const edge& e : s.edges) n_in[e.to]++;
    if (n_in[0] > 0) todo.clear();
    for (size_t i = 0; i < todo.size(); i++)
        for (const edge& e : states[todo[i]].edges) {
            longest[e.to] = std::max(longest[e.to], longest[todo[i]] + 1);
            if (--n_in[e.to] == 0) todo.push_back(e.to);
        }
    *max = todo.size() < states.size() ? kUnlimited : *std::max_element(longest.begin(), longest.end());
    *min = kUnlimited;
    shortest[0] = 0;
    todo = {0};
    for (size_t i = 0; i < todo.size() && *min == kUnlimited; i++) {
        if (states[todo[i]].is_end) *min = shortest[todo[i]];
        for (const edge& e : states[todo[i]].edges) {
            if (shortest[e.to] != kUnlimited) continue;
            shortest[e.to] = shortest[todo[i]] + 1;
            todo.push_back(e.to);
        }
    }
}

// ---- patterns made here ---------------------------------------------------------------------------------------------

std::string list_pattern(const std::vector<std::string_view>& strings) {
    std::string out = "^(?:";
    for (const std::string_view& s : strings) {
        if (&s != &strings[0]) out += '|';
        for (char c : s) {
            if (std::string_view("\\^$.*+?()[]{}|").find(c) != std::string_view::npos) out += '\\';
            out += c;
        }
    }
    return out + ")$";
}

// The formats follow RFC 3339 with the days that months have, RFC 9562, RFC 5321 without quoted names, RFC 1123, RFC
// 4291, and RFC 3986 with an authority.
std::string format_pattern(std::string_view format) {
    const std::string leap_year = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)",
                      year = "(?:000[1-9]|00[1-9][0-9]|0[1-9][0-9]{2}|[1-9][0-9]{3})",
                      date = "(?:" + year +
                             "-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|" +
                             "[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))|" + leap_year + "-02-29)",
                      hour = "(?:[01][0-9]|2[0-3])",
                      time = hour + ":[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,9})?(?:Z|[+-]" + hour + ":[0-5][0-9])",
                      byte = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])",
                      tail = "(?:[A-Za-z0-9-]{0,30}[A-Za-z0-9])?", label = "[A-Za-z0-9]" + tail, h = "[0-9A-Fa-f]{1,4}",
                      span = "T(?:\\d{1,9}H(?:\\d{1,9}M(?:\\d{1,9}S)?)?|\\d{1,9}M(?:\\d{1,9}S)?|\\d{1,9}S)",
                      uri_char = "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})";
    std::string p;
    if (format == "date") p = date;
    if (format == "time") p = time;
    if (format == "date-time") p = date + "T" + time;
    if (format == "uuid") p = "[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}";
    if (format == "ipv4") p = byte + "(?:\\." + byte + "){3}";
    if (format == "duration")  // no unit is left out between two
        p = "P(?:(?:\\d{1,4}Y(?:\\d{1,4}M(?:\\d{1,4}D)?)?|\\d{1,4}M(?:\\d{1,4}D)?|\\d{1,9}D)(?:" + span + ")?|" + span +
            "|\\d{1,9}W)";
    if (format == "hostname") p = "(?:" + label + "\\.){0,3}[A-Za-z]" + tail;
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

}  // namespace duet
