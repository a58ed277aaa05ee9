// models/chat_values.cpp: checks JSON and turns literals into JSON, byte by byte (see chat_values.h).
#include "chat_values.h"
#include "unicode.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace duet {

void append_json_byte(char c, std::string* out) {
    if (c == '"' || c == '\\') (*out += '\\') += c;
    else if (c == '\n') *out += "\\n";
    else if (c == '\r') *out += "\\r";
    else if (c == '\t') *out += "\\t";
    else if ((uint8_t)c < 0x20) *out += json_escape((uint8_t)c);
    else *out += c;
}

// ---- JSON -----------------------------------------------------------------------------------------------------------

json_scanner::step json_scanner::open(char c) {
    if (c == '"') state_ = state::string, is_key_ = false;
    else if (c == '{' || c == '[') {
        if (stack_.size() == kMaxLiteralDepth) return step::bad;
        stack_ += c;
        state_ = c == '{' ? state::first_key : state::item;
    } else if (c == '-' || is_digit(c)) state_ = state::number, number_ = c == '-' || c == '0' ? c : '1';
    else {
        rest_ = c == 't' ? "rue" : c == 'f' ? "alse" : c == 'n' ? "ull" : nullptr;
        if (!rest_) return step::bad;
        state_ = state::word;
    }
    return step::value_begin;
}

json_scanner::step json_scanner::end_value() {
    state_ = stack_.empty() ? state::done : state::comma;
    return step::value_end;
}

// number_ is the part read last: '-', '0', '1' (digits), '.', 'f' (digits behind the point), 'e', '+' or 'x' (digits of
// the exponent).
json_scanner::step json_scanner::push_number(char c) {
    char next = 0;
    if (is_digit(c)) {
        if (number_ == '-') next = c == '0' ? '0' : '1';
        else if (number_ != '0') next = number_ == '.' ? 'f' : number_ == 'e' || number_ == '+' ? 'x' : number_;
    } else if (c == '.' && (number_ == '0' || number_ == '1')) next = '.';
    else if ((c == 'e' || c == 'E') && strchr("01f", number_)) next = 'e';
    else if ((c == '+' || c == '-') && number_ == 'e') next = '+';
    if (next) {
        number_ = next;
        return step::more;
    }
    if (is_digit(c) || !strchr("01fx", number_)) return step::bad;
    end_value();
    return is_done() ? step::bad : push(c);
}

json_scanner::step json_scanner::push(char c) {
    switch (state_) {
    case state::string:
        if (c == '\\') state_ = state::escape;
        if (c != '"') return step::more;
        if (!is_key_) return end_value();
        state_ = state::colon;
        return step::key_end;
    case state::escape:
        if (!c || !strchr("\"\\/bfnrtu", c)) return step::bad;
        n_left_ = 4;
        state_ = c == 'u' ? state::hex : state::string;
        return step::more;
    case state::hex:
        if (hex_digit(c) < 0) return step::bad;
        if (--n_left_ == 0) state_ = state::string;
        return step::more;
    case state::number: return push_number(c);
    case state::word:
        if (c != *rest_) return step::bad;
        if (!*++rest_) end_value();
        return step::more;
    case state::done: return step::bad;
    default: break;
    }
    if (is_blank(c)) return step::more;
    const bool closes = !stack_.empty() && c == (stack_.back() == '{' ? '}' : ']');
    switch (state_) {
    case state::value: return open(c);
    case state::item:
    case state::first_key:
    case state::comma:
        if (closes) {
            stack_.pop_back();
            return end_value();
        }
        if (state_ == state::item) return open(c);
        if (state_ == state::first_key) break;
        if (c != ',') return step::bad;
        state_ = stack_.back() == '{' ? state::key : state::value;
        return step::more;
    case state::colon:
        if (c != ':') return step::bad;
        state_ = state::value;
        return step::more;
    default: break;
    }
    if (c != '"') return step::bad;  // a key
    state_ = state::string;
    is_key_ = true;
    return step::key_begin;
}

// ---- literals -------------------------------------------------------------------------------------------------------

static const char kGemmaQuote[] = "<|\"|>", kFunctionGemmaQuote[] = "<escape>";

static bool is_bare_byte(char c) { return is_letter_or_digit(c) || c == '_' || (uint8_t)c >= 0x80; }

void literal_reader::reset(char opened, bool gemma, std::string* out) {
    *this = {};
    gemma_ = gemma;
    if (!opened) return;
    stack_ = opened == '(' ? 'K' : '{';
    has_items_ = "n";
    state_ = state::key;
    *out += '{';
}

// Writes the comma before an item.
void literal_reader::begin_item(std::string* out) {
    if (stack_.empty()) return;
    if (has_items_.back() == 'y') *out += ", ";
    has_items_.back() = 'y';
}

literal_reader::step literal_reader::close(char c, std::string* out) {
    const char open = stack_.empty() ? 0 : stack_.back(), want = open == '{' ? '}' : open == '[' ? ']' : open ? ')' : 0;
    if (!want || c != want) return step::bad;
    *out += open == 'K' || open == '{' ? '}' : ']';
    stack_.pop_back();
    has_items_.pop_back();
    state_ = stack_.empty() ? state::done : state::after;
    return stack_.empty() ? step::done : step::more;
}

void literal_reader::end_string(std::string* out) {
    *out += '"';
    n_matched_ = 0;
    state_ = is_key_ ? state::colon : stack_.empty() ? state::done : state::after;
    if (is_key_) *out += ": ";
}

// Writes a number or a word as JSON has it, or nothing.
bool literal_reader::end_bare(std::string* out) {
    static const char* const kWords[][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"},
                                            {"true", "true"}, {"false", "false"}, {"null", "null"}};
    for (const auto& w : kWords)
        if (bare_ == w[0]) return *out += w[1], true;
    std::string n;
    for (size_t i = 0; i < bare_.size(); i++) {
        const char c = bare_[i], before = i ? bare_[i - 1] : 0, next = i + 1 < bare_.size() ? bare_[i + 1] : 0;
        if (c == '_' && is_digit(before) && is_digit(next)) continue;
        if (c == '+' && i == 0) continue;
        if (c == '.' && !is_digit(before)) n += '0';
        n += c;
        if (c == '.' && !is_digit(next)) n += '0';
    }
    json_scanner check;
    for (const char c : "[" + n + "]")
        if (check.push(c) == json_scanner::step::bad) return false;
    if (n.empty() || !(is_digit(n[0]) || n[0] == '-')) return false;
    *out += n;
    return true;
}

literal_reader::step literal_reader::push_escape(char c, std::string* out) {
    if (state_ == state::digits) {
        const int digit = hex_digit(c);
        if (digit < 0) return step::bad;
        code_ = code_ * 16 + (uint32_t)digit;
        if (--n_left_ != 0) return step::more;
        state_ = state::string;
        if (code_ > 0x10ffff) return step::bad;
        *out += json_escape(code_);
        return step::more;
    }
    state_ = state::string;
    static const char kFrom[] = "nrtbfav0", kTo[] = "\n\r\t\b\f\a\v";
    n_left_ = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (n_left_) code_ = 0, state_ = state::digits;
    else if (c == '\n') return step::more;  // a line that goes on
    else if (const char* p = c ? strchr(kFrom, c) : nullptr) append_json_byte(kTo[p - kFrom], out);
    else {
        if (!strchr("\\'\"/", c) || !c) append_json_byte('\\', out);
        append_json_byte(c, out);
    }
    return step::more;
}

literal_reader::step literal_reader::push_string(char c, std::string* out) {
    if (state_ == state::quote) {
        if (quote_ == '<') {
            if (n_matched_ == 1 && c == 'e') gemma_quote_ = kFunctionGemmaQuote;
            if (c != gemma_quote_[n_matched_]) return step::bad;
            if (!gemma_quote_[++n_matched_]) state_ = state::string, n_matched_ = 0;
            return step::more;
        }
        if (c == quote_ && ++n_matched_ == 2) n_quotes_ = 3;
        if (c == quote_ && n_matched_ == 1) return step::more;
        const bool is_empty = c != quote_ && n_matched_ == 1;
        n_matched_ = 0;
        state_ = state::string;
        if (n_quotes_ == 3) return step::more;
        if (is_empty) end_string(out);
        return push(c, out);
    }
    const char want = quote_ == '<' ? gemma_quote_[n_matched_] : quote_;
    if (c == want) {
        if (++n_matched_ == (quote_ == '<' ? strlen(gemma_quote_) : n_quotes_)) end_string(out);
        return state_ == state::done ? step::done : step::more;
    }
    flush(out);
    if (quote_ == '<' && c == '<') n_matched_ = 1;
    else if (quote_ != '<' && c == '\\') state_ = state::escape;
    else append_json_byte(c, out);
    return step::more;
}

void literal_reader::flush(std::string* out) {
    if (state_ != state::string) return;
    for (uint8_t i = 0; i < n_matched_; i++) append_json_byte(quote_ == '<' ? gemma_quote_[i] : quote_, out);
    n_matched_ = 0;
}

literal_reader::step literal_reader::push(char c, std::string* out) {
    switch (state_) {
    case state::quote:
    case state::string: return push_string(c, out);
    case state::escape:
    case state::digits: return push_escape(c, out);
    case state::done: return is_blank(c) && stack_.empty() ? step::more : step::bad;
    case state::word_key:  // Blanks inside a name are a part of it: the names of some tools' arguments have them.
        if (std::string_view("\"\\,=:").find(c) == std::string_view::npos) {
            if (is_blank(c) ? ++n_left_ > 64 : (uint8_t)c < ' ') return step::bad;
            if (!is_blank(c)) out->append(std::exchange(n_left_, 0), ' ') += c;
            return step::more;
        }
        n_left_ = 0;
        *out += "\": ";
        state_ = state::colon;
        break;
    case state::word:
        if (is_bare_byte(c) || c == '.' || c == '+' || c == '-') {
            bare_ += c;
            return bare_.size() > 64 ? step::bad : step::more;
        }
        if (!end_bare(out)) return step::bad;
        state_ = stack_.empty() ? state::done : state::after;
        break;
    default: break;
    }
    if (is_blank(c)) return step::more;
    if (state_ == state::colon) {
        if (c != (stack_.back() == 'K' ? '=' : ':')) return step::bad;
        state_ = state::first;
        return step::more;
    }
    if (state_ == state::after) {
        if (c != ',') return close(c, out);
        state_ = stack_.back() == '{' || stack_.back() == 'K' ? state::key : state::value;
        return step::more;
    }
    if (state_ != state::first && (c == ']' || c == ')' || c == '}')) return close(c, out);
    is_key_ = state_ == state::key;
    const bool is_quote = gemma_ ? c == '<' : (c == '"' || c == '\'') && !(is_key_ && stack_.back() == 'K');
    if (is_key_ && !is_quote && !is_bare_byte(c) && c != '$' && c != '@' && c != '-') return step::bad;
    if (state_ != state::first) begin_item(out);
    if (is_quote) {
        *out += '"';
        quote_ = c, gemma_quote_ = kGemmaQuote;
        n_quotes_ = 1;
        n_matched_ = c == '<';
        state_ = state::quote;
    } else if (is_key_) {
        (*out += '"') += c;
        state_ = state::word_key;
    } else if (c == '[' || c == '{' || (c == '(' && !gemma_)) {
        if (stack_.size() == kMaxLiteralDepth) return step::bad;
        stack_ += c;
        has_items_ += 'n';
        *out += c == '{' ? '{' : '[';
        state_ = c == '{' ? state::key : state::value;
    } else {
        if (!is_bare_byte(c) && c != '-' && c != '+' && c != '.') return step::bad;
        bare_ = c;
        state_ = state::word;
    }
    return step::more;
}

bool literal_reader::finish(std::string* out) {
    if (state_ == state::quote && quote_ != '<' && n_matched_ == 1) end_string(out);
    if (state_ == state::word && stack_.empty() && end_bare(out)) state_ = state::done;
    return state_ == state::done;
}

// ---- schemas --------------------------------------------------------------------------------------------------------

static uint32_t whole_type(uint32_t type) { return type & kJsonNumber ? kJsonNumber : type; }

static uint32_t types_of(const value& root, const value& schema, int depth, int* n_left) {
    if (!schema.is_map() || depth == 8 || --*n_left < 0) return 0;
    uint32_t types = 0;
    if (const value* ref = schema.find("$ref"); ref && ref->is_string() && ref->as_string().starts_with("#/"))
        if (const value* to = find_place(root, ref->as_string())) types |= types_of(root, *to, depth + 1, n_left);
    if (const value* type = schema.find("type")) {
        if (type->is_list())
            for (const value& t : type->items()) types |= whole_type(json_type_of_name(t));
        else types |= whole_type(json_type_of_name(*type));
    }
    if (types) return types | (compare_keys(member_of(schema, "nullable"), value::of_bool(true)) == 0 ? kJsonNull : 0u);
    if (const value* one = schema.find("const")) return whole_type(json_type_of(*one));
    if (const value* list = schema.find("enum"); list && list->is_list())
        for (const value& v : list->items()) types |= whole_type(json_type_of(v));
    for (const char* key : {"anyOf", "oneOf", "allOf"}) {
        const value* list = types ? nullptr : schema.find(key);
        if (!list || !list->is_list()) continue;
        for (const value& s : list->items()) {
            const uint32_t t = types_of(root, s, depth + 1, n_left);
            if (!t && key[1] != 'l') return 0;  // a branch that allows anything
            types |= t;
        }
    }
    return types;
}

uint32_t schema_types(const value& root, const value& schema) {
    int n_left = 256;  // limit of the schemas looked at
    return types_of(root, schema, 0, &n_left);
}

}  // namespace duet
