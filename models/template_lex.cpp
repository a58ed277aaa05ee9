// models/template_lex.cpp: the source of a template as tokens. White space around tags is cut here: trim_blocks (the
// line end after a block tag goes), lstrip_blocks (blanks before a block tag that begins its line go), and the signs -
// and +. Source: the documentation of Jinja 3.1, "Whitespace Control"; details asked of the reference. Main path:
// models/template -> [models/template_lex] -> models/template_parse
#include "template_text.h"
#include "template_tree.h"
#include "unicode.h"

#include <algorithm>

namespace duet {
namespace {

class template_lexer {
  public:
    template_lexer(std::string_view source, const template_limits& limits, std::vector<template_token>* out,
                   error_text& err)
        : source_(source), limits_(limits), out_(out), err_(err) {}

    duet_status lex() {
        while (at_ < source_.size()) DUET_TRY(lex_data());
        push(token_kind::end, {});
        return DUET_OK;
    }

  private:
    duet_status wrong(const std::string& what) {
        return fail(err_, DUET_ERR_FORMAT, "template line %u: %s", line_, what.c_str());
    }

    void push(token_kind kind, std::string_view text) { out_->push_back({kind, line_, text}); }

    char at(size_t i) const { return i < source_.size() ? source_[i] : '\0'; }
    bool has(size_t i, std::string_view word) const {
        return source_.substr(std::min(i, source_.size()), word.size()) == word;
    }

    void go_to(size_t end) {
        line_ += (uint32_t)std::count(source_.begin() + (long)at_, source_.begin() + (long)end, '\n');
        if (end > at_) line_starting_ = source_[end - 1] == '\n';
        at_ = end;
    }

    size_t after_blanks(size_t i) const { return i + stripped_begin(source_.substr(std::min(i, source_.size()))); }

    duet_status take(token_kind kind, size_t end) {
        push(kind, source_.substr(at_, end - at_));
        go_to(end);
        return DUET_OK;
    }

    // The sign of a tag whose bracket begins at i; 0: it has none.
    char sign_at(size_t i) const { return at(i + 2) == '-' || at(i + 2) == '+' ? at(i + 2) : 0; }

    // Where a tag that closes with this sign and bracket at i ends, 0 when it does not stand there.
    size_t after_close(size_t i, std::string_view close, bool trims) const {
        if (has(i, close)) return i + 2 + (trims && at(i + 2) == '\n');
        if (at(i) == '-' && has(i + 1, close)) return after_blanks(i + 3);
        return at(i) == '+' && trims && has(i + 1, close) ? i + 3 : 0;
    }

    // The text before a tag that begins at end, cut as the tag's sign says.
    void push_data(size_t end, bool is_block) {
        const char sign = sign_at(end);
        std::string_view text = source_.substr(at_, end - at_);
        const size_t line_begin = text.rfind('\n') + 1;  // 0 when there is none
        if (sign == '-') text = text.substr(0, stripped_end(text));
        else if (!sign && is_block && (line_begin > 0 || line_starting_) && stripped_end(text.substr(line_begin)) == 0)
            text = text.substr(0, line_begin);
        if (!text.empty()) push(token_kind::data, text);
    }

    // Text up to the next tag, and the tag.
    duet_status lex_data() {
        static constexpr std::string_view kKinds = "{%#";
        size_t open = source_.find('{', at_);
        while (open < source_.size() && kKinds.find(at(open + 1)) == kKinds.npos) open = source_.find('{', open + 1);
        if (open >= source_.size()) return take(token_kind::data, source_.size());
        const char kind = source_[open + 1];
        push_data(open, kind != '{');
        go_to(open + 2 + (sign_at(open) != 0));
        if (kind == '#') return lex_comment();
        if (const size_t end = kind == '%' ? raw_tag_end(at_, "raw") : 0; end != 0) return lex_raw(end);
        push(kind == '%' ? token_kind::block_begin : token_kind::print_begin, {});
        return lex_tag(kind == '%');
    }

    duet_status lex_comment() {
        const size_t end = source_.find("#}", at_);
        if (end == source_.npos) return wrong("want '#}', got the end");
        const bool has_sign = end > at_ && (source_[end - 1] == '-' || source_[end - 1] == '+');
        go_to(after_close(end - has_sign, "#}", true));
        return DUET_OK;
    }

    // Where `raw %}` or `endraw %}` at i ends, 0 when something else stands there.
    size_t raw_tag_end(size_t i, std::string_view word) const {
        i = after_blanks(i);
        return has(i, word) ? after_close(after_blanks(i + word.size()), "%}", word == "endraw") : 0;
    }

    duet_status lex_raw(size_t text_begin) {
        go_to(text_begin);
        for (size_t begin = at_; (begin = source_.find("{%", begin)) != source_.npos; begin += 2)
            if (const size_t end = raw_tag_end(begin + 2 + (sign_at(begin) != 0), "endraw"); end != 0) {
                push_data(begin, true);
                go_to(end);
                return DUET_OK;
            }
        return wrong("want 'endraw', got the end");
    }

    duet_status lex_tag(bool is_block) {
        std::string brackets;  // the closing ones that are wanted
        while (at_ < source_.size()) {
            if (out_->size() > limits_.max_tokens)
                return wrong("want at most " + std::to_string(limits_.max_tokens) + " tokens");
            if (brackets.empty())
                if (const size_t end = after_close(at_, is_block ? "%}" : "}}", is_block); end != 0) {
                    push(is_block ? token_kind::block_end : token_kind::print_end, {});
                    go_to(end);
                    return DUET_OK;
                }
            if (const size_t end = after_blanks(at_); end > at_) {
                go_to(end);
                continue;
            }
            const char c = source_[at_];
            if (c == '\'' || c == '"') DUET_TRY(lex_string(c));
            else if (is_digit(c)) lex_number();
            else if (const size_t end = after_name(); end > at_) take(token_kind::name, end);
            else DUET_TRY(lex_operator(&brackets));
        }
        return DUET_OK;
    }

    size_t after_name() const {
        for (size_t i = at_;;) {
            const size_t begin = i;
            const uint32_t cp = i < source_.size() ? next_char(source_, &i) : 0;
            if (cp != '_' && !(unicode_bits(cp) & (kUniL | kUniN))) return begin;
        }
    }

    duet_status lex_string(char quote) {
        for (size_t i = at_ + 1; i < source_.size(); i++) {
            if (source_[i] == '\\') i++;
            else if (source_[i] == quote) {
                push(token_kind::string, source_.substr(at_ + 1, i - at_ - 1));
                go_to(i + 1);
                return DUET_OK;
            }
        }
        return wrong("a string does not end");
    }

    // Digits with single underscores between them.
    size_t after_digits(size_t i, int base) const {
        const auto is_wanted = [&](size_t k) { return digit_of(at(k)) < base; };
        if (!is_wanted(i)) return i;
        while (is_wanted(i + 1) || (at(i + 1) == '_' && is_wanted(i + 2))) i += at(i + 1) == '_' ? 2 : 1;
        return i + 1;
    }

    duet_status lex_number() {
        size_t end = after_digits(at_, 10);
        if (at_ == 0 || source_[at_ - 1] != '.') {  // not the 1 of a.0.1
            size_t real_end = at(end) == '.' ? after_digits(end + 1, 10) : end;
            if (real_end == end + 1) real_end = end;  // a dot without digits
            if ((at(real_end) | 32) == 'e') {
                const size_t exponent = real_end + 1 + (at(real_end + 1) == '+' || at(real_end + 1) == '-');
                if (const size_t e = after_digits(exponent, 10); e > exponent) real_end = e;
            }
            if (real_end > end) return take(token_kind::real, real_end);
        }
        const char letter = at(at_) == '0' ? (char)(at(at_ + 1) | 32) : 0;
        const int base = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
        const size_t first = at_ + 2 + (at(at_ + 2) == '_');
        if (base != 0 && digit_of(at(first)) < base) end = after_digits(first, base);
        else if (at(at_) == '0') end = after_digits(at_, 1);
        return take(token_kind::integer, end);
    }

    duet_status lex_operator(std::string* brackets) {
        static constexpr std::string_view kDouble[] = {"//", "**", "==", "!=", ">=", "<="};
        const char c = source_[at_];
        if (c == '(' || c == '[' || c == '{') *brackets += c == '(' ? ')' : c == '[' ? ']' : '}';
        if (c == ')' || c == ']' || c == '}') {
            if (brackets->empty()) return wrong(std::string("unexpected '") + c + "'");
            if (brackets->back() != c)
                return wrong(std::string("unexpected '") + c + "', want '" + brackets->back() + "'");
            brackets->pop_back();
        }
        for (std::string_view op : kDouble)
            if (has(at_, op)) return take(token_kind::op, at_ + 2);
        if (std::string_view("+-/*%~[](){}><=.:|,;").find(c) == std::string_view::npos)
            return wrong("unexpected '" + printable(source_.substr(at_, char_bytes(source_, at_))) + "'");
        return take(token_kind::op, at_ + 1);
    }

    std::string_view source_;
    const template_limits& limits_;
    std::vector<template_token>* out_;
    error_text& err_;
    size_t at_ = 0;
    uint32_t line_ = 1;
    bool line_starting_ = true;
};

}  // namespace

std::string describe(const template_token& t) {
    switch (t.kind) {
    case token_kind::end: return "the end of the template";
    case token_kind::print_end: return "'}}'";
    case token_kind::block_end: return "'%}'";
    case token_kind::data:
    case token_kind::print_begin:
    case token_kind::block_begin: return "text";
    default: return "'" + printable(t.text) + "'";
    }
}

std::string with_line_ends(std::string_view source) {
    std::string out;
    out.reserve(source.size());
    for (size_t i = 0; i < source.size(); i++) {
        if (source[i] != '\r') out += source[i];
        else if (i + 1 == source.size() || source[i + 1] != '\n') out += '\n';
    }
    if (!out.empty() && out.back() == '\n') out.pop_back();
    return out;
}

duet_status lex_template(std::string_view source, const template_limits& limits, std::vector<template_token>* out,
                         error_text& err) {
    return template_lexer(source, limits, out, err).lex();
}

}  // namespace duet
