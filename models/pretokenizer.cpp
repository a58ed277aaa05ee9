// models/pretokenizer.cpp: compiles the patterns of pretokenizers.def and runs them over classes of characters.
// Owns: the pattern dialect. Must not know: vocabularies.
// Main path: models/tokenizer_bpe.cpp -> [models/pretokenizer.cpp] -> models/unicode.h
//
// Patterns mean what they mean to the original engines: the search backtracks, and the first alternative that leads to
// a match wins. A pattern has at most 31 distinct character sets. Each character of the text becomes a mask of the sets
// that hold it, and the program tests bits. The search stays linear for two reasons: repeats of a set remember where
// their last run ended, and a repeated group is allowed only where it gives nothing back.
#include "pretokenizer.h"

#include "status.h"
#include "unicode.h"

#include <algorithm>
#include <utility>

namespace duet {
namespace {

struct pattern_set {
    std::vector<std::pair<uint32_t, uint32_t>> ranges = {};  // first, last code point
    uint32_t bits = 0;                                       // of unicode_bit
    bool is_negated = false;
    int within = -1;  // index of a set that must hold the character too (&&)
    bool operator==(const pattern_set&) const = default;
};

enum pattern_op : uint8_t {
    kOpRepeat,  // takes min to max characters of a set, in steps, then goes on behind itself
    kOpGroup,   // runs the program at `branch` min to max times and gives nothing back
    kOpSplit,   // tries `branch`, then `other`
    kOpJump,    // goes to `branch`
    kOpLook,    // The program at `branch` must match here (or must not). Takes nothing.
    kOpEnd,     // end of the piece; the patterns ask for it only in pieces without newlines
    kOpEdge,    // the edge between a word character and another, or the end
    kOpMatch,
};

constexpr uint32_t kNoLimit = UINT32_MAX;
constexpr uint32_t kAnything = UINT32_MAX;  // a mask of sets that says nothing about what may come next

struct pattern_inst {
    pattern_op op;
    bool is_atomic = false;  // kOpRepeat: gives nothing back
    bool is_negated = false;
    uint32_t mask = 0;  // kOpRepeat, kOpEdge: the set; kOpSplit: sets with which the branch may begin
    uint32_t min = 1, max = 1, step = 1;
    uint32_t branch = 0, other = 0;  // where the program goes on
};

bool set_contains(const std::vector<pattern_set>& sets, size_t i_set, uint32_t cp, uint32_t bits) {
    const pattern_set& set = sets[i_set];
    bool is_in = (bits & set.bits) != 0;
    for (size_t i = 0; i < set.ranges.size() && !is_in; ++i)
        is_in = cp >= set.ranges[i].first && cp <= set.ranges[i].second;
    return is_in != set.is_negated && (set.within < 0 || set_contains(sets, set.within, cp, bits));
}

// Parses one pattern by recursive descent. The patterns are the project's own, so nesting is shallow.
class pattern_parser {
  public:
    pattern_parser(std::string_view text, std::vector<pattern_set>* sets, std::vector<pattern_inst>* code)
        : text_(text), sets_(*sets), code_(*code) {}

    bool parse() {
        if (!parse_alternatives() || pos_ != text_.size()) return false;
        code_.push_back({kOpMatch});
        for (pattern_inst& inst : code_)
            if (inst.op == kOpSplit) inst.mask = first_sets(inst.branch);
        return sets_.size() < 32;
    }

    // Returns the sets of which one must hold the first character of a match, or kAnything.
    uint32_t first_sets(uint32_t pc) const {
        const pattern_inst& inst = code_[pc];
        switch (inst.op) {
        case kOpRepeat: {
            if (inst.min > 0) return inst.mask;
            uint32_t rest = first_sets(pc + 1);
            return rest == kAnything ? rest : rest | inst.mask;
        }
        case kOpGroup: return inst.min > 0 ? first_sets(inst.branch) : kAnything;
        case kOpSplit: return first_sets(inst.branch) | first_sets(inst.other);
        case kOpJump: return first_sets(inst.branch);
        default: return kAnything;
        }
    }

  private:
    char peek() const { return pos_ < text_.size() ? text_[pos_] : '\0'; }
    bool accept(std::string_view want) {
        if (text_.substr(pos_, want.size()) != want) return false;
        pos_ += want.size();
        return true;
    }
    uint32_t here() const { return (uint32_t)code_.size(); }  // where the next instruction will stand
    bool append(const pattern_inst& inst) {  // returns true, so that a caller can report success in the same line
        code_.push_back(inst);
        return true;
    }

    bool parse_alternatives() {
        std::vector<uint32_t> jumps;
        for (;;) {
            const uint32_t split = here();
            code_.push_back({.op = kOpSplit, .branch = split + 1});
            if (!parse_sequence()) return false;
            if (!accept("|")) {  // the last alternative: there is nothing to choose
                code_[split].op = kOpJump;
                break;
            }
            jumps.push_back(here());
            code_.push_back({kOpJump});
            code_[split].other = here();
        }
        for (uint32_t i : jumps) code_[i].branch = here();
        return true;
    }

    bool parse_sequence() {
        while (pos_ < text_.size() && peek() != '|' && peek() != ')')
            if (!parse_item()) return false;
        return true;
    }

    bool parse_item() {
        if (accept("(?=")) return parse_look(false);
        if (accept("(?!")) return parse_look(true);
        if (accept("(?:")) return parse_group(is_case_blind_);
        if (accept("(?i:")) return parse_group(true);
        if (accept("$")) return append({kOpEnd});
        if (accept("\\b")) {
            const pattern_set word{.bits = kUniL | kUniM | kUniN | kUniPc};
            return append({.op = kOpEdge, .mask = set_mask(word)});
        }
        if (peek() == '(' || peek() == '*' || peek() == '+' || peek() == '?') return false;
        pattern_set set;
        if (!(accept("[") ? parse_class(&set) : parse_element(&set))) return false;
        pattern_inst inst{.op = kOpRepeat, .mask = set_mask(set)};
        parse_quantifier(&inst);
        return append(inst);
    }

    bool parse_look(bool is_negated) {
        const uint32_t at = here();
        code_.push_back({.op = kOpLook, .is_negated = is_negated, .branch = at + 1});
        if (!parse_alternatives() || !accept(")")) return false;
        code_.push_back({kOpMatch});
        code_[at].other = here();
        return true;
    }

    bool parse_group(bool is_case_blind) {
        bool was_case_blind = std::exchange(is_case_blind_, is_case_blind);
        const uint32_t at = here();
        code_.push_back({kOpGroup});
        if (!parse_alternatives() || !accept(")")) return false;
        is_case_blind_ = was_case_blind;

        pattern_inst group{.op = kOpGroup, .branch = at + 1};
        parse_quantifier(&group);
        const uint32_t n_body = here() - at;  // counts kOpGroup, kOpJump, ...
        const pattern_inst& only = code_.back();
        if (group.min == 1 && group.max == 1) {
            code_[at] = {.op = kOpJump, .branch = at + 1};
        } else if (group.is_atomic && n_body == 3 && only.op == kOpRepeat && only.min == only.max) {
            pattern_inst repeat = only;  // (?:X{3})++ is a run of X in steps of 3.
            repeat.step = only.min;
            repeat.min = group.min * repeat.step;
            repeat.max = group.max == kNoLimit ? kNoLimit : group.max * repeat.step;
            repeat.is_atomic = true;
            code_.resize(at);
            code_.push_back(repeat);
        } else if (group.is_atomic) {
            code_.push_back({kOpMatch});
            group.other = here();
            code_[at] = group;
        } else if (group.min == 0 && group.max == 1) {
            code_[at] = {.op = kOpSplit, .branch = at + 1, .other = here()};
        } else {
            return false;
        }
        return true;
    }

    void parse_quantifier(pattern_inst* inst) {
        auto number = [&] {
            uint32_t value = 0;
            while (is_digit(peek())) value = value * 10 + (uint32_t)(text_[pos_++] - '0');
            return value;
        };
        if (accept("{")) {
            inst->min = inst->max = number();
            if (accept(",")) inst->max = number();
            accept("}");
        } else if (const char kind = peek(); kind == '?' || kind == '+' || kind == '*') {
            ++pos_;
            if (kind != '+') inst->min = 0;
            if (kind != '?') inst->max = kNoLimit;
            inst->is_atomic = accept("+");
        }
    }

    // Parses a class behind its "[".
    bool parse_class(pattern_set* set) {
        set->is_negated = accept("^");
        while (!accept("]")) {
            if (pos_ >= text_.size()) return false;
            if (accept("&&[")) {
                pattern_set within;
                if (!parse_class(&within)) return false;
                set->within = set_index(within);
                continue;
            }
            if (!parse_element(set)) return false;
            if (peek() == '-' && pos_ + 1 < text_.size() && text_[pos_ + 1] != ']') {
                ++pos_;
                pattern_set last;
                if (!parse_element(&last) || last.ranges.empty() || set->ranges.empty()) return false;
                set->ranges.back().second = last.ranges[0].first;
            }
        }
        return true;
    }

    // Adds one character, escape or property to the set.
    bool parse_element(pattern_set* set) {
        static constexpr struct {
            std::string_view name;
            uint32_t bits;
            bool is_negated = false;
        } kProperties[] = {{"\\p{L}", kUniL},   {"\\p{Lu}", kUniLu},     {"\\p{Ll}", kUniLl},   {"\\p{Lt}", kUniLt},
                           {"\\p{Lm}", kUniLm}, {"\\p{Lo}", kUniLo},     {"\\p{M}", kUniM},     {"\\p{N}", kUniN},
                           {"\\p{P}", kUniP},   {"\\p{S}", kUniS},       {"\\p{Han}", kUniHan}, {"\\s", kUniSpace},
                           {"\\d", kUniNd},     {"\\S", kUniSpace, true}};
        for (const auto& property : kProperties)
            if (accept(property.name)) {
                set->bits |= property.bits;
                set->is_negated |= property.is_negated;
                return true;
            }
        if (accept("\\p{")) return false;
        uint32_t cp = 0;
        if (accept("\\x{")) {  // for characters that editors would normalize
            for (; !accept("}"); ++pos_) {
                if (hex_digit(peek()) < 0) return false;
                cp = cp * 16 + (uint32_t)hex_digit(peek());
            }
        } else {
            const bool is_escape = accept("\\");
            if (pos_ >= text_.size()) return false;
            cp = next_char(text_, &pos_);
            if (is_escape) cp = cp == 'r' ? '\r' : cp == 'n' ? '\n' : cp == 't' ? '\t' : cp;
        }
        set->ranges.push_back({cp, cp});
        if (is_case_blind_ && cp >= 'a' && cp <= 'z') {
            set->ranges.push_back({cp - 32, cp - 32});
            if (cp == 's') set->ranges.push_back({0x17f, 0x17f});    // Long s folds to s,
            if (cp == 'k') set->ranges.push_back({0x212a, 0x212a});  // and the Kelvin sign folds to k.
        }
        return true;
    }

    int set_index(const pattern_set& set) {
        auto found = std::find(sets_.begin(), sets_.end(), set);
        if (found == sets_.end()) found = sets_.insert(found, set);
        return (int)(found - sets_.begin());
    }
    uint32_t set_mask(const pattern_set& set) { return 1u << (set_index(set) & 31); }

    std::string_view text_;
    size_t pos_ = 0;
    bool is_case_blind_ = false;
    std::vector<pattern_set>& sets_;
    std::vector<pattern_inst>& code_;
};

// One run of a program over one text.
class pattern_matcher {
  public:
    pattern_matcher(const std::vector<pattern_inst>& code, const std::vector<uint32_t>& masks)
        : code_(code), masks_(masks), runs_(code.size()) {}

    void limit(size_t begin, size_t end) {
        begin_ = begin;
        end_ = end;
    }

    // Returns the end of the match that begins at pos, or SIZE_MAX.
    size_t match(uint32_t pc, size_t pos) {
        size_t base = frames_.size();
        for (;;) {
            const pattern_inst& inst = code_[pc];
            bool is_ok = true;
            switch (inst.op) {
            case kOpMatch: frames_.resize(base); return pos;
            case kOpJump: pc = inst.branch; break;
            case kOpSplit: {
                bool may_match = inst.mask == kAnything || (pos < end_ && (masks_[pos] & inst.mask));
                if (may_match) frames_.push_back({inst.other, pos, 0, 0});
                pc = may_match ? inst.branch : inst.other;
                break;
            }
            case kOpRepeat: {
                size_t n = run_length(pc, inst, pos);
                n -= n % inst.step;
                if (!(is_ok = n >= inst.min)) break;
                ++pc;
                if (n > inst.min && !inst.is_atomic)
                    frames_.push_back({pc, pos + n, (n - inst.min) / inst.step, inst.step});
                pos += n;
                break;
            }
            case kOpGroup: {
                uint32_t n = 0;
                for (size_t to; n < inst.max && (to = match(inst.branch, pos)) != SIZE_MAX && to > pos; ++n) pos = to;
                is_ok = n >= inst.min;
                pc = inst.other;
                break;
            }
            case kOpLook:
                is_ok = (match(inst.branch, pos) != SIZE_MAX) != inst.is_negated;
                pc = inst.other;
                break;
            case kOpEnd:
                is_ok = pos == end_;
                ++pc;
                break;
            case kOpEdge: {
                bool before = pos > begin_ && (masks_[pos - 1] & inst.mask);
                bool after = pos < end_ && (masks_[pos] & inst.mask);
                is_ok = before != after;
                ++pc;
                break;
            }
            }
            if (is_ok) continue;
            if (frames_.size() == base) return SIZE_MAX;
            frame& last = frames_.back();
            pc = last.pc;
            pos = last.pos -= last.step;
            if (last.n_left-- <= 1) frames_.pop_back();
        }
    }

  private:
    struct frame {
        uint32_t pc;
        size_t pos;
        size_t n_left;  // how often a repeat can still give back
        uint32_t step;  // 0: of a split, which is taken once
    };
    struct known_run {
        size_t begin = 1, end = 0;
    };

    size_t run_length(uint32_t pc, const pattern_inst& inst, size_t pos) {
        known_run& run = runs_[pc];
        if (pos < run.begin || pos >= run.end) {
            size_t last = inst.max == kNoLimit ? end_ : std::min<size_t>(end_, pos + inst.max);
            size_t end = pos;
            while (end < last && (masks_[end] & inst.mask)) ++end;
            if (inst.max != kNoLimit) return end - pos;
            run = {pos, end};
        }
        return run.end > pos ? run.end - pos : 0;
    }

    const std::vector<pattern_inst>& code_;
    const std::vector<uint32_t>& masks_;
    std::vector<frame> frames_;
    std::vector<known_run> runs_;
    size_t begin_ = 0, end_ = 0;
};

#define PATTERN(name, text) constexpr std::string_view pattern_##name = text;
#define PRETOKENIZER(...)
#include "pretokenizers.def"

struct pretokenizer_row {
    std::string_view names;
    uint32_t flags;
    std::vector<std::string_view> patterns;
};

const std::vector<pretokenizer_row>& pretokenizer_rows() {
    static const std::vector<pretokenizer_row> rows = {
#define PATTERN(name, text)
#define PRETOKENIZER(names, flags, ...) {names, flags, {__VA_ARGS__}},
#include "pretokenizers.def"
    };
    return rows;
}

}  // namespace

struct pretokenizer::program {
    std::vector<pattern_set> sets;
    std::vector<pattern_inst> code;
    uint32_t ascii_masks[128];
    uint32_t first;  // sets with which a match may begin

    uint32_t mask_of(uint32_t cp) const {
        uint32_t bits = unicode_bits(cp), mask = 0;
        for (size_t i = 0; i < sets.size(); ++i) mask |= (uint32_t)set_contains(sets, i, cp, bits) << i;
        return mask;
    }

    // Cuts every piece of ends_in at the matches of this program.
    void cut(const std::vector<uint32_t>& masks, const std::vector<uint32_t>& ends_in,
             std::vector<uint32_t>* ends_out) const {
        pattern_matcher matcher(code, masks);
        size_t begin = 0;
        for (uint32_t end : ends_in) {
            matcher.limit(begin, end);
            size_t done = begin;  // end of the last piece
            auto piece = [&](size_t at) {
                if (at > done) ends_out->push_back((uint32_t)at);
                done = std::max(done, at);
            };
            for (size_t pos = begin; pos < end;) {
                size_t match_end = first == kAnything || (masks[pos] & first) ? matcher.match(0, pos) : SIZE_MAX;
                if (match_end != SIZE_MAX) {
                    piece(pos);
                    piece(match_end);
                }
                pos = match_end != SIZE_MAX && match_end > pos ? match_end : pos + 1;
            }
            piece(end);
            begin = end;
        }
    }
};

bool pretokenizer::compile(const std::vector<std::string_view>& patterns) {
    programs_.clear();
    for (std::string_view pattern : patterns) {
        auto p = std::make_shared<program>();
        pattern_parser parser(pattern, &p->sets, &p->code);
        if (!parser.parse()) return false;
        p->first = parser.first_sets(0);
        for (uint32_t cp = 0; cp < 128; ++cp) p->ascii_masks[cp] = p->mask_of(cp);
        programs_.push_back(std::move(p));
    }
    return true;
}

bool pretokenizer::select(std::string_view name) {
    for (const pretokenizer_row& row : pretokenizer_rows())
        if (has_word(row.names, name)) {
            flags_ = row.flags;
            return compile(row.patterns);
        }
    return false;
}

std::string pretokenizer::known_names() {
    std::string out;
    for (const pretokenizer_row& row : pretokenizer_rows()) out += (out.empty() ? "" : " ") + std::string(row.names);
    return out;
}

void pretokenizer::split(std::string_view text, std::vector<uint32_t>* ends) const {
    std::vector<uint32_t> offsets, chars;  // for each character: its first byte, its code point
    for (size_t pos = 0; pos < text.size();) {
        offsets.push_back((uint32_t)pos);
        chars.push_back(next_char(text, &pos));
    }
    ends->clear();
    if (text.empty()) return;
    ends->push_back((uint32_t)chars.size());
    std::vector<uint32_t> masks(chars.size()), cut;
    for (const auto& p : programs_) {
        for (size_t i = 0; i < chars.size(); ++i)
            masks[i] = chars[i] < 128 ? p->ascii_masks[chars[i]] : p->mask_of(chars[i]);
        cut.clear();
        p->cut(masks, *ends, &cut);
        ends->swap(cut);
    }
    offsets.push_back((uint32_t)text.size());
    for (uint32_t& end : *ends) end = offsets[end];
}

}  // namespace duet
