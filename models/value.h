// models/value.h: a value as JSON has it (and the few kinds that only templates have), a strict JSON parser and a
// writer.
// Owns: how values are stored and shared, the origin of every byte of a string. Must not know: templates, messages.
// Values are immutable: a copy shares the data, and many threads may read it. Destroying a deeply nested value does not
// use the call stack.
// Main path: models/chat -> [models/value] -> models/template
#pragma once
#include "status.h"

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace duet {

// Text that remembers for each byte whether it came from outside ("input": a user's message, a tool's description) or
// was written by someone trusted (the template, the special tokens). Bytes of input must never become control tokens.
struct traced_text {
    std::string bytes;
    std::vector<uint32_t> flips;     // ascending offsets inside bytes where the origin changes
    bool starts_with_input = false;  // the origin of the first byte
    bool is_markup = false;          // already escaped for HTML: the type Markup of Jinja

    traced_text() = default;
    traced_text(std::string b, bool is_input) : bytes(std::move(b)), starts_with_input(is_input && !bytes.empty()) {}
    size_t size() const { return bytes.size(); }
    bool is_input_at(size_t offset) const;
    void append(std::string_view more, bool is_input);
    void append(const traced_text& more, size_t begin = 0, size_t n_bytes = std::string::npos);
    traced_text slice(size_t begin, size_t n_bytes = std::string::npos) const;  // keeps is_markup

  private:
    void turn_to(bool is_input);  // sets the origin of the bytes appended next
};

enum class value_kind : uint8_t {
    null,
    boolean,
    integer,      // 64 bits
    big_integer,  // a longer one, kept as its decimal digits
    real,
    string,
    list,
    map,        // keeps the order of its members; a key occurs once
    tuple,      // this and the kinds below exist only inside templates, not in JSON
    undefined,  // holds a text that says what was not found
    object,     // known only to the template interpreter: a macro, a namespace, a loop
};

// Counts the bytes now held by the values that were made with it.
struct memory_meter {
    size_t used_bytes = 0, max_bytes = SIZE_MAX;
};

class value;
struct value_member;

// The shared part of a value. Only value.cpp counts references.
struct value_payload {
    std::atomic<uint32_t> n_refs{1};
    value_kind kind;
    memory_meter* meter = nullptr;
    size_t n_bytes = 0;                  // bytes charged to the meter
    value_payload* next_dead = nullptr;  // the chain of payloads being destroyed
    explicit value_payload(value_kind k) : kind(k) {}
};

struct object_payload;

class value {
  public:
    value() = default;  // null
    value(const value& other) noexcept : kind_(other.kind_), u_(other.u_) {
        if (is_shared()) u_.payload->n_refs.fetch_add(1, std::memory_order_relaxed);
    }
    value(value&& other) noexcept : kind_(other.kind_), u_(other.u_) { other.kind_ = value_kind::null; }
    value& operator=(value other) noexcept {
        std::swap(kind_, other.kind_);
        std::swap(u_, other.u_);
        return *this;
    }
    ~value() {
        if (is_shared()) release();
    }

    static value of_bool(bool b) { return value(value_kind::boolean, {.boolean = b}); }
    static value of_int(int64_t i) { return value(value_kind::integer, {.integer = i}); }
    static value of_double(double d) { return value(value_kind::real, {.real = d}); }
    static value of_big_integer(std::string digits);  // canonical: -?[1-9][0-9]*, outside of int64
    // A string from outside, so its bytes count as input; one that was written by the template or its author.
    static value of_string(std::string bytes) { return of_text(traced_text(std::move(bytes), true)); }
    static value of_trusted(std::string bytes) { return of_text(traced_text(std::move(bytes), false)); }
    static value of_text(traced_text t, memory_meter* meter = nullptr);
    static value of_list(std::vector<value> items, memory_meter* meter = nullptr, value_kind = value_kind::list);
    // Of members with the same key, the last value wins and takes the place of the first. Keys are scalars or tuples.
    static value of_map(std::vector<value_member> members, memory_meter* meter = nullptr);
    static value of_undefined(std::string what);
    static value of_object(object_payload* adopted, memory_meter* meter = nullptr);  // takes over one reference

    value_kind kind() const { return kind_; }
    bool is(value_kind k) const { return kind_ == k; }
    bool is_null() const { return is(value_kind::null); }
    bool is_bool() const { return is(value_kind::boolean); }
    bool is_int() const { return is(value_kind::integer); }
    bool is_string() const { return is(value_kind::string); }
    bool is_list() const { return is(value_kind::list); }
    bool is_map() const { return is(value_kind::map); }
    bool is_number() const { return kind_ >= value_kind::integer && kind_ <= value_kind::real; }  // not a boolean
    bool is_numeric() const { return is_number() || is_bool(); }
    bool is_sequence() const { return is_list() || is(value_kind::tuple); }

    // Each of these is for its own kind only.
    bool as_bool() const { return u_.boolean; }
    int64_t as_int() const { return u_.integer; }
    double as_double() const;  // any number or boolean
    const traced_text& as_text() const;
    std::string_view as_string() const { return as_text().bytes; }
    const std::vector<value>& items() const;  // list, tuple
    const std::vector<value_member>& members() const;
    object_payload* as_object() const { return (object_payload*)u_.payload; }

    // Returns the value of a map's key, or nullptr if there is none or this is no map. The time is logarithmic.
    const value* find(std::string_view key) const;
    const value* find(const value& key) const;

    // Returns whether both are the same object, as Python's `is` does.
    bool is_same(const value& other) const;
    const void* identity() const { return is_shared() ? u_.payload : nullptr; }

  private:
    bool is_shared() const { return kind_ == value_kind::big_integer || kind_ >= value_kind::string; }
    void release() noexcept;
    static value adopt(value_payload* payload, size_t n_bytes, memory_meter* meter);

    union storage {
        bool boolean;
        int64_t integer;
        double real;
        value_payload* payload;
    };
    value(value_kind kind, storage u) : kind_(kind), u_(u) {}

    value_kind kind_ = value_kind::null;
    storage u_ = {};
};

struct value_member {
    value key, val;
    value_member() = default;
    value_member(value k, value v) : key(std::move(k)), val(std::move(v)) {}
    value_member(const char* name, value v) : key(value::of_trusted(name)), val(std::move(v)) {}
};

// The value of a map's key; null if there is none or this is no map.
inline value member_of(const value& map, std::string_view key) {
    const value* const found = map.find(key);
    return found ? *found : value();
}

template <class T> struct payload_of : value_payload {
    payload_of(value_kind k, T d) : value_payload(k), data(std::move(d)) {}
    T data;
};
using text_payload = payload_of<traced_text>;
using list_payload = payload_of<std::vector<value>>;
struct map_payload : payload_of<std::vector<value_member>> {
    using payload_of::payload_of;
    std::vector<uint32_t> sorted;  // indices of members by key; empty for a few members
};
// An object of the interpreter. All its values stand in slots, so that destroying it does not use the call stack.
struct object_payload : value_payload {
    object_payload(int t, void (*d)(object_payload*)) : value_payload(value_kind::object), type(t), destroy(d) {}
    int type;
    void (*destroy)(object_payload*);
    std::vector<value> slots;
};

// Orders the keys of a map by kind, then by value. Numbers and booleans compare by their value.
int compare_keys(const value& a, const value& b);

// Compares as Python's == does. Each pair compared takes one step off *n_steps; at 0 the comparison stops and is false.
// The limit is needed because shared values may be huge.
bool values_equal(const value& a, const value& b, uint64_t* n_steps);

// Returns the escape of a character in JSON: \u and four digits, or two of these for a pair of surrogates.
std::string json_escape(uint32_t code_point);

// Reads a whole text as a float. What is too large is infinite, and what is too small is 0, as in Python.
bool read_double(std::string_view text, double* out);

// Returns Python's repr of a float: the shortest digits that read back the same, with an exponent as in 1e+16 and
// 1e-05. Without an exponent, numbers from 1e16 on have all their digits.
std::string double_repr(double d, bool may_have_exponent = true);

// Returns what printf prints by %.<precision><how> (e, f or g) of a finite number, with a point in every locale.
std::string real_digits(double d, char how, int precision);

struct json_limits {
    int max_depth = 64;
    size_t max_bytes = 64u << 20;
    size_t max_values = 4u << 20;  // values and keys
};

// Parses strict JSON (RFC 8259): one value, UTF-8 without lone surrogates. If a key occurs twice, the last value holds.
// An integer beyond 64 bits keeps its digits (value_kind::big_integer). Strings are input. *out is set on success only.
// DUET_ERR_FORMAT: the message is "JSON: at byte N: want ..., got ...".
duet_status parse_json(std::string_view json, value* out, error_text& err, const json_limits& limits = {});

// The parameters of Python's json.dumps.
struct json_style {
    bool ensure_ascii = false, sort_keys = false;
    bool has_indent = false;  // each item on its own line, indented by indent once per level
    std::string indent;
    std::string item_separator = ", ", key_separator = ": ";
    int max_depth = 500;
    size_t max_bytes = SIZE_MAX;
};

// Appends the value as json.dumps writes it. Bytes of strings keep their origin; all others count as input.
// DUET_ERR_ARG: a kind that JSON does not have, or too deep. DUET_ERR_FULL: more than max_bytes.
duet_status write_json(const value& v, const json_style& style, traced_text* out, error_text& err);

}  // namespace duet
