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

    size_t after_blanks(size_t i) const {
        while (i < source_.size()) {
            int n_bytes;
            if (!is_python_space(utf8_decode(source_, i, &n_bytes))) break;
            i += (size_t)n_bytes;
        }
        return i;
    }

    // Where a tag that closes with this sign and bracket at i ends, 0 when it does not stand there.
    size_t after_close(size_t i, std::string_view close, bool trims) const {
        if (has(i, close)) return i + 2 + (trims && at(i + 2) == '\n');
        if (at(i) == '-' && has(i + 1, close)) return after_blanks(i + 3);
        return at(i) == '+' && trims && has(i + 1, close) ? i + 3 : 0;
    }

    // The text before a tag, cut as the tag's sign says.
    std::string_view cut(std::string_view text, char sign, bool is_block) const {
        if (sign == '-') return text.substr(0, stripped_end(text));
        if (sign == '+' || !is_block) return text;
        const size_t line_begin = text.rfind('\n') + 1;  // 0 when there is none
        if (line_begin == 0 && !line_starting_) return text;
        return stripped_end(text.substr(line_begin)) == 0 ? text.substr(0, line_begin) : text;
    }

    // Text up to the next tag, and the tag.
    duet_status lex_data() {
        size_t begin = at_;
        for (;; begin++) {
            begin = source_.find('{', begin);
            if (begin == source_.npos || begin + 1 == source_.size()) {
                push(token_kind::data, source_.substr(at_));
                go_to(source_.size());
                return DUET_OK;
            }
            if (const char c = source_[begin + 1]; c == '{' || c == '%' || c == '#') break;
        }
        const char kind = source_[begin + 1];
        const char sign = at(begin + 2) == '-' || at(begin + 2) == '+' ? source_[begin + 2] : ' ';
        const std::string_view text = cut(source_.substr(at_, begin - at_), sign, kind != '{');
        if (!text.empty()) push(token_kind::data, text);
        go_to(begin + 2 + (sign != ' '));
        if (kind == '#') return lex_comment();
        if (kind == '%')
            if (const size_t end = raw_tag_end(at_, "raw"); end != 0) return go_to(end), lex_raw();
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
        if (!has(i, word)) return 0;
        i = after_blanks(i + word.size());
        if (word == "raw") return at(i) == '-' && has(i + 1, "%}") ? after_blanks(i + 3) : has(i, "%}") ? i + 2 : 0;
        return after_close(i, "%}", true);
    }

    duet_status lex_raw() {
        for (size_t begin = at_;; begin += 2) {
            begin = source_.find("{%", begin);
            if (begin == source_.npos) return wrong("want 'endraw', got the end");
            const char sign = at(begin + 2) == '-' || at(begin + 2) == '+' ? source_[begin + 2] : ' ';
            const size_t end = raw_tag_end(begin + 2 + (sign != ' '), "endraw");
            if (end == 0) continue;
            const std::string_view text = cut(source_.substr(at_, begin - at_), sign, true);
            if (!text.empty()) push(token_kind::data, text);
            go_to(end);
            return DUET_OK;
        }
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
            else if (c >= '0' && c <= '9') lex_number();
            else if (const size_t end = after_name(); end > at_) take(token_kind::name, end);
            else DUET_TRY(lex_operator(&brackets));
        }
        return DUET_OK;
    }

    void take(token_kind kind, size_t end) {
        push(kind, source_.substr(at_, end - at_));
        go_to(end);
    }

    size_t after_name() const {
        size_t i = at_;
        while (i < source_.size()) {
            int n_bytes;
            const uint32_t cp = utf8_decode(source_, i, &n_bytes);
            if (cp != '_' && !(unicode_bits(cp) & (kUniL | kUniN))) break;
            i += (size_t)n_bytes;
        }
        return i;
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
    template <class IsDigit> size_t after_digits(size_t i, IsDigit is_digit) const {
        if (!is_digit(at(i))) return i;
        while (is_digit(at(i + 1)) || (at(i + 1) == '_' && is_digit(at(i + 2)))) i += at(i + 1) == '_' ? 2 : 1;
        return i + 1;
    }

    void lex_number() {
        auto is_decimal = [](char c) { return c >= '0' && c <= '9'; };
        auto is_hex = [&](char c) { return is_decimal(c) || ((c | 32) >= 'a' && (c | 32) <= 'f'); };
        size_t end = after_digits(at_, is_decimal);
        if (at_ == 0 || source_[at_ - 1] != '.') {  // not the 1 of a.0.1
            size_t real_end = at(end) == '.' ? after_digits(end + 1, is_decimal) : end;
            if (real_end == end + 1) real_end = end;  // a dot without digits
            if ((at(real_end) | 32) == 'e') {
                const size_t exponent = real_end + 1 + (at(real_end + 1) == '+' || at(real_end + 1) == '-');
                if (const size_t e = after_digits(exponent, is_decimal); e > exponent) real_end = e;
            }
            if (real_end > end) return take(token_kind::real, real_end);
        }
        const char base = (char)(at(at_ + 1) | 32);
        const size_t first = at_ + 2 + (at(at_ + 2) == '_');
        if (at(at_) == '0' && base == 'x' && is_hex(at(first))) end = after_digits(first, is_hex);
        else if (at(at_) == '0' && (base == 'b' || base == 'o') && at(first) >= '0' &&
                 at(first) < (base == 'b' ? '2' : '8'))
            end = after_digits(first, [&](char c) { return c >= '0' && c < (base == 'b' ? '2' : '8'); });
        else if (at(at_) == '0') end = after_digits(at_, [](char c) { return c == '0'; });
        take(token_kind::integer, end);
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
            if (has(at_, op)) return take(token_kind::op, at_ + 2), DUET_OK;
        if (c == '\0' || std::string_view("+-/*%~[](){}><=.:|,;").find(c) == std::string_view::npos) {
            int n_bytes;
            utf8_decode(source_, at_, &n_bytes);
            return wrong("unexpected '" + printable(source_.substr(at_, (size_t)n_bytes)) + "'");
        }
        take(token_kind::op, at_ + 1);
        return DUET_OK;
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

duet_status lex_template(std::string_view source, const template_limits& limits, std::vector<template_token>* out,
                         error_text& err) {
    return template_lexer(source, limits, out, err).lex();
}

}  // namespace duet
