// models/chat_values.h: reads the values of a call's arguments byte by byte. It checks JSON, turns Python's and Gemma's
// literals into JSON, and finds the types that a schema allows.
// Must not know: the markers of a form. models/chat_calls uses it.
#pragma once
#include "schema_shape.h"

namespace duet {

inline constexpr size_t kMaxLiteralDepth = 128;  // of nested lists and objects; deeper ones do not parse

inline bool is_blank(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

// Appends the byte as it is written inside a JSON string. Bytes from 0x80 on stay as they are, in valid and in broken
// UTF-8.
void append_json_byte(char c, std::string* out);

// A strict JSON checker that is fed one byte at a time.
class json_scanner {
  public:
    enum class step : uint8_t {
        more,
        key_begin,    // the byte is the quote before a key
        key_end,      // the byte is the quote behind it
        value_begin,  // the byte is the first one of a value
        value_end,    // the byte is the last one of a string, list or object
        bad,          // no JSON value goes on like this; the byte does not count
    };
    void reset() { *this = {}; }
    step push(char c);
    bool is_done() const { return state_ == state::done; }  // a list, object or string has ended
    bool is_in_string() const { return state_ == state::string; }
    size_t depth() const { return stack_.size(); }

  private:
    enum class state : uint8_t { value, item, first_key, key, colon, comma, string, escape, hex, number, word, done };
    step open(char c);
    step end_value();
    step push_number(char c);

    state state_ = state::value;
    bool is_key_ = false;
    uint8_t n_left_ = 0;          // hex digits
    char number_ = 0;             // the part of a number that was read last
    const char* rest_ = nullptr;  // rest of true, false or null
    std::string stack_;           // open brackets
};

// Turns literals into JSON text, byte by byte. The output so far is always the beginning of valid JSON. The quotes of
// Gemma are <|"|>, those of FunctionGemma <escape>.
class literal_reader {
  public:
    enum class step : uint8_t { more, done, bad };
    // opened '(': arguments as in f(a=1), whose bracket was read; '{': an object whose bracket was read; 0: any value.
    // gemma: keys are bare, and <|"|> stands around strings.
    void reset(char opened, bool gemma, std::string* out);
    // done: the byte closes what `opened` stands for. bad: the byte does not count.
    step push(char c, std::string* out);
    // Ends the input of a value (opened = 0). Returns whether the value was whole.
    bool finish(std::string* out);
    // Writes the bytes of a string that are held back, because the output is cut here.
    void flush(std::string* out);

  private:
    enum class state : uint8_t { first, value, key, word_key, colon, quote, string, escape, digits, word, after, done };
    step push_string(char c, std::string* out);
    step push_escape(char c, std::string* out);
    void begin_item(std::string* out);
    step close(char c, std::string* out);
    void end_string(std::string* out);
    bool end_bare(std::string* out);

    state state_ = state::first;
    bool gemma_ = false, is_key_ = false;
    char quote_ = 0;  // '"' or '\''; '<' for Gemma's
    const char* gemma_quote_ = "";
    uint8_t n_quotes_ = 1;   // 3: a long string
    uint8_t n_matched_ = 0;  // bytes of a closing quote that were read
    uint8_t n_left_ = 0;     // digits of an escape
    uint32_t code_ = 0;
    std::string stack_;      // open brackets; 'K' for the one of arguments
    std::string has_items_;  // of each bracket: 'y' or 'n'
    std::string bare_;
};

// Returns the JSON types that a schema allows (schema_shape.h); 0 if the schema does not say. An integer is any number.
// root is the schema that "#/..." references start from.
uint32_t schema_types(const value& root, const value& schema);

}  // namespace duet
