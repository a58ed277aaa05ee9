// models/grammar_gbnf.cpp: reads GBNF text and makes rules from it.
// Main path: a grammar file -> [models/grammar_gbnf] -> models/grammar_build
#include "grammar.h"

#include "unicode.h"

#include <algorithm>
#include <charconv>
#include <unordered_map>

namespace duet {
namespace {

class gbnf_parser {
  public:
    using expr = grammar_builder::expr;

    gbnf_parser(std::string_view text, grammar_builder& builder, error_text& err)
        : text_(text), b_(builder), err_(err) {}

    duet_status parse(std::string_view root_name, uint32_t* root) {
        if (text_.size() > kGrammarMaxText)
            return fail(err_, DUET_ERR_FULL, "grammar: want at most %zu bytes, got %zu", kGrammarMaxText, text_.size());
        for (skip_blanks(true); at_ < text_.size(); skip_blanks(true)) DUET_TRY(parse_rule());
        const std::pair<const std::string_view, rule_use>* missing = nullptr;  // the first one in the text
        for (const auto& entry : rules_)
            if (!entry.second.is_defined && (!missing || entry.second.at < missing->second.at)) missing = &entry;
        if (missing) {
            at_ = missing->second.at;
            return fail_here("want rule " + printable(missing->first) + " to be defined");
        }
        const auto found = rules_.find(root_name);
        if (found == rules_.end())
            return fail(err_, DUET_ERR_FORMAT, "grammar: want a rule %s to begin with, got none",
                        printable(root_name).c_str());
        *root = found->second.rule;
        return DUET_OK;
    }

  private:
    struct rule_use {
        uint32_t rule;
        size_t at;  // of the first use
        bool is_defined;
    };
    // An open parenthesis, or the rule itself. It holds the choices that are complete and the parts of the choice being
    // read.
    struct group {
        size_t first_choice, first_part;
    };

    duet_status fail_here(const std::string& message) {
        const std::string_view before = text_.substr(0, at_);
        const size_t line = 1 + (size_t)std::count(before.begin(), before.end(), '\n'),
                     column = before.size() - (before.rfind('\n') + 1) + 1;  // npos + 1 is 0
        return fail(err_, DUET_ERR_FORMAT, "grammar: line %zu, column %zu: %s", line, column, message.c_str());
    }
    duet_status want(const std::string& what) {
        return fail_here("want " + what + ", got " +
                         (is_done() ? "the end" : "'" + printable(text_.substr(at_, 12)) + "'"));
    }

    char peek(size_t ahead = 0) const { return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0'; }
    bool is_done() const { return at_ >= text_.size(); }

    void skip_blanks(bool over_lines) {
        for (; !is_done(); at_++) {
            if (peek() == '#')
                while (!is_done() && peek() != '\n' && peek() != '\r') at_++;
            if (is_done() || !(peek() == ' ' || peek() == '\t' || (over_lines && (peek() == '\n' || peek() == '\r'))))
                return;
        }
    }

    static bool is_name_char(char c) { return is_letter_or_digit(c) || c == '-' || c == '_'; }

    std::string_view parse_name() {
        const size_t begin = at_;
        while (is_name_char(peek())) at_++;
        return text_.substr(begin, at_ - begin);
    }

    rule_use& use_rule(std::string_view name, size_t at) {
        const auto [found, is_new] = rules_.try_emplace(name, rule_use{0, at, false});
        if (is_new) found->second.rule = b_.add_rule(std::string(name));
        return found->second;
    }

    duet_status parse_rule() {
        const size_t begin = at_;
        const std::string_view name = parse_name();
        if (name.empty()) return want("a rule's name");
        rule_use& use = use_rule(name, begin);
        if (use.is_defined) {
            at_ = begin;
            return want("each rule once");
        }
        use.is_defined = true;
        skip_blanks(false);
        if (text_.substr(at_, 3) != "::=") return want("'::='");
        at_ += 3;
        expr part = 0;
        DUET_TRY(parse_choices(&part));
        b_.define(use_rule(name, begin).rule, part);
        return DUET_OK;
    }

    // Reads everything after ::= up to the end of the rule. A stack holds the open groups.
    duet_status parse_choices(expr* out) {
        groups_ = {{0, 0}};
        choices_.clear();
        parts_.clear();
        bool has_last = false;  // whether a repetition may follow
        skip_blanks(true);
        while (true) {
            const char c = peek();
            if (c == '|' || c == '(') {
                if (c == '|') close_choice();
                else groups_.push_back({choices_.size(), parts_.size()});
                at_++;
                skip_blanks(true);
                has_last = false;
                continue;
            }
            if (c == ')' && groups_.size() > 1) {
                at_++;
                close_group();
                has_last = true;
            } else if (c == '*' || c == '+' || c == '?' || c == '{') {
                if (!has_last) return want("something to repeat before this");
                DUET_TRY(parse_repeat());
            } else if (is_done() || c == '\n' || c == '\r') {
                if (groups_.size() > 1) return want("')'");
                break;
            } else {
                DUET_TRY(parse_item());
                has_last = true;
            }
            skip_blanks(groups_.size() > 1);
        }
        close_group();
        *out = parts_[0];
        return DUET_OK;
    }

    void close_choice() {
        const size_t first = groups_.back().first_part;
        choices_.push_back(b_.sequence({parts_.begin() + (ptrdiff_t)first, parts_.end()}));
        parts_.resize(first);
    }

    void close_group() {
        close_choice();
        const size_t first = groups_.back().first_choice;
        parts_.push_back(b_.any_of({choices_.begin() + (ptrdiff_t)first, choices_.end()}));
        choices_.resize(first);
        groups_.pop_back();
    }

    duet_status add(expr part) {
        parts_.push_back(part);
        return DUET_OK;
    }

    duet_status parse_item() {
        const size_t begin = at_;
        const char c = peek();
        if (c == '"') return parse_literal();
        if (c == '[') return parse_class();
        if (c == '.') {
            at_++;
            return add(b_.one_char({{0, 0x10ffff}}));
        }
        if (c == '<' || c == '!') return want("text (tokens like <name> are not supported)");
        const std::string_view name = parse_name();
        if (name.empty()) return want("a literal, a class, a group, or a rule's name");
        return add(b_.call(use_rule(name, begin).rule));
    }

    duet_status parse_literal() {
        std::string bytes;
        for (at_++; peek() != '"' || is_done();) {
            uint32_t c = 0;
            DUET_TRY(parse_char("'\"'", &c));
            utf8_append(&bytes, c);
        }
        at_++;
        return add(b_.spelled(bytes));
    }

    duet_status parse_class() {
        std::vector<code_range> ranges;
        at_++;
        const bool is_negated = peek() == '^';
        at_ += is_negated;
        while (peek() != ']' || is_done()) {
            code_range r;
            DUET_TRY(parse_char("']'", &r.lo));
            r.hi = r.lo;
            if (peek() == '-' && peek(1) != ']') {
                at_++;
                DUET_TRY(parse_char("']'", &r.hi));
                if (r.hi < r.lo) return want("the end of a range at or after its beginning before this");
            }
            ranges.push_back(r);
        }
        at_++;
        return add(b_.one_char(is_negated ? complement_of(ranges) : ranges));
    }

    // Reads one character of a literal or a class, or an escape.
    duet_status parse_char(const char* closing, uint32_t* out) {
        if (is_done() || peek() == '\n') return want(closing);
        if (peek() != '\\') {
            int n_bytes;
            *out = utf8_decode(text_, at_, &n_bytes);
            if (*out == kInvalidByte) return want("valid UTF-8");
            at_ += (size_t)n_bytes;
            return DUET_OK;
        }
        at_++;
        static constexpr std::string_view kNames = "nrt0\"\\[]-^/'.",
                                          kMeanings = std::string_view("\n\r\t\0\"\\[]-^/'.", 13);
        const char c = peek();
        const int n_digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
        if (n_digits == 0) {
            const size_t i = is_done() ? kNames.npos : kNames.find(c);
            if (i == kNames.npos) return want("an escape (n r t \" \\ [ ] - ^ xHH uHHHH UHHHHHHHH)");
            *out = (uint8_t)kMeanings[i];
            at_++;
            return DUET_OK;
        }
        at_++;
        *out = 0;
        for (int i = 0; i < n_digits; i++, at_++) {
            const int digit = hex_digit(peek());
            if (digit < 0) return want("a hexadecimal digit");
            *out = *out * 16 + (uint32_t)digit;
        }
        if (*out > 0x10ffff || (*out >= 0xd800 && *out <= 0xdfff)) return want("a Unicode character before this");
        return DUET_OK;
    }

    duet_status parse_number(uint32_t* out) {
        const char* begin = text_.data() + at_;
        const auto r = std::from_chars(begin, text_.data() + text_.size(), *out);
        if (r.ptr == begin) return want("a number");
        at_ += (size_t)(r.ptr - begin);
        return r.ec == std::errc() && *out < kUnlimited ? DUET_OK : want("a number below 4294967295");
    }

    duet_status parse_repeat() {
        const char c = text_[at_++];
        uint32_t min = c == '+', max = c == '?' ? 1 : kUnlimited;
        if (c == '{') {
            skip_blanks(true);
            if (peek() != ',') DUET_TRY(parse_number(&min));
            max = min;
            skip_blanks(true);
            if (peek() == ',') {
                at_++;
                skip_blanks(true);
                max = kUnlimited;
                if (peek() != '}') DUET_TRY(parse_number(&max));
                skip_blanks(true);
            }
            if (peek() != '}') return want("'}'");
            if (max < min) return want("a maximum of at least the minimum before this");
            at_++;
        }
        parts_.back() = b_.repeat(parts_.back(), min, max);
        return DUET_OK;
    }

    std::string_view text_;
    grammar_builder& b_;
    error_text& err_;
    size_t at_ = 0;
    std::unordered_map<std::string_view, rule_use> rules_;
    std::vector<group> groups_;
    std::vector<expr> choices_, parts_;
};

}  // namespace

duet_status parse_gbnf(std::string_view text, std::string_view root_name, grammar_builder& builder, uint32_t* root,
                       error_text& err) {
    return gbnf_parser(text, builder, err).parse(root_name, root);
}

}  // namespace duet
