// models/value.cpp: how values are stored, shared, compared and destroyed.
// Main path: models/chat -> [models/value] -> models/template
#include "value.h"

#include "unicode.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace duet {

// ---- traced text ----

bool traced_text::is_input_at(size_t offset) const {
    const size_t n_flips = (size_t)(std::upper_bound(flips.begin(), flips.end(), offset) - flips.begin());
    return starts_with_input != (n_flips % 2 == 1);
}

void traced_text::turn_to(bool is_input) {
    if (bytes.empty()) starts_with_input = is_input;
    else if ((starts_with_input != (flips.size() % 2 == 1)) != is_input) flips.push_back((uint32_t)bytes.size());
}

void traced_text::append(std::string_view more, bool is_input) {
    if (more.empty()) return;
    turn_to(is_input);
    bytes.append(more);
}

void traced_text::append(const traced_text& more, size_t begin, size_t n_bytes) {
    n_bytes = std::min(n_bytes, more.size() - begin);
    if (n_bytes == 0) return;
    turn_to(more.flips.empty() ? more.starts_with_input : more.is_input_at(begin));
    const size_t end = begin + n_bytes, base = bytes.size();
    auto flip = std::upper_bound(more.flips.begin(), more.flips.end(), begin);
    for (; flip != more.flips.end() && *flip < end; ++flip) flips.push_back((uint32_t)(base + (*flip - begin)));
    bytes.append(more.bytes, begin, n_bytes);
}

traced_text traced_text::slice(size_t begin, size_t n_bytes) const {
    traced_text out;
    out.append(*this, begin, n_bytes);
    out.is_markup = is_markup;
    return out;
}

// ---- storage ----

value value::adopt(value_payload* payload, size_t n_bytes, memory_meter* meter) {
    payload->meter = meter;
    payload->n_bytes = n_bytes;
    if (meter) meter->used_bytes += n_bytes;
    return value(payload->kind, {.payload = payload});
}

value value::of_text(traced_text t, memory_meter* meter) {
    const size_t n_bytes = sizeof(text_payload) + t.bytes.capacity() + t.flips.capacity() * sizeof(uint32_t);
    return adopt(new text_payload(value_kind::string, std::move(t)), n_bytes, meter);
}

value value::of_big_integer(std::string digits) {
    return adopt(new text_payload(value_kind::big_integer, {std::move(digits), false}), 0, nullptr);
}

value value::of_undefined(std::string what) {
    return adopt(new text_payload(value_kind::undefined, {std::move(what), false}), 0, nullptr);
}

value value::of_list(std::vector<value> items, memory_meter* meter, value_kind kind) {
    auto* payload = new list_payload(kind, std::move(items));
    return adopt(payload, sizeof(list_payload) + payload->data.capacity() * sizeof(value), meter);
}

constexpr size_t kUnsortedMembers = 8;  // a smaller map is searched from its first member

value value::of_map(std::vector<value_member> members, memory_meter* meter) {
    std::vector<uint32_t> sorted(members.size());
    std::iota(sorted.begin(), sorted.end(), 0);
    auto order = [&](uint32_t a, uint32_t b) { return compare_keys(members[a].key, members[b].key); };
    std::sort(sorted.begin(), sorted.end(), [&](uint32_t a, uint32_t b) {
        const int c = order(a, b);
        return c != 0 ? c < 0 : a < b;
    });
    std::vector<bool> is_twin(members.size());
    bool has_twins = false;
    for (size_t i = 1, first = 0; i < sorted.size(); i++) {  // members of one key follow each other
        if (order(sorted[first], sorted[i]) != 0) {
            first = i;
            continue;
        }
        members[sorted[first]].val = std::move(members[sorted[i]].val);
        is_twin[sorted[i]] = has_twins = true;
    }
    if (has_twins) {
        std::vector<value_member> kept;
        for (size_t i = 0; i < members.size(); i++)
            if (!is_twin[i]) kept.push_back(std::move(members[i]));
        return of_map(std::move(kept), meter);
    }
    auto* payload = new map_payload(value_kind::map, std::move(members));
    if (payload->data.size() > kUnsortedMembers) payload->sorted = std::move(sorted);
    return adopt(payload, sizeof(map_payload) + payload->data.capacity() * (sizeof(value_member) + 4), meter);
}

value value::of_object(object_payload* adopted, memory_meter* meter) {  // 256 bytes is about what an object takes
    return adopt(adopted, 256, meter);
}

double value::as_double() const {
    if (is(value_kind::boolean)) return u_.boolean;
    if (is(value_kind::integer)) return (double)u_.integer;
    if (is(value_kind::real)) return u_.real;
    double d = 0;
    read_double(as_string(), &d);
    return d;
}

const traced_text& value::as_text() const { return ((const text_payload*)u_.payload)->data; }
const std::vector<value>& value::items() const { return ((const list_payload*)u_.payload)->data; }
const std::vector<value_member>& value::members() const { return ((const map_payload*)u_.payload)->data; }

template <class Compare> static const value* find_member(const map_payload& map, Compare compare) {
    if (map.sorted.empty()) {
        for (const value_member& m : map.data)
            if (compare(m.key) == 0) return &m.val;
        return nullptr;
    }
    auto at = std::partition_point(map.sorted.begin(), map.sorted.end(),
                                   [&](uint32_t i) { return compare(map.data[i].key) < 0; });
    return at != map.sorted.end() && compare(map.data[*at].key) == 0 ? &map.data[*at].val : nullptr;
}

static int sign_of(int c) { return (c > 0) - (c < 0); }

// The order of kinds among keys. All numbers and booleans are one kind.
static int key_rank(value_kind kind) {
    return kind >= value_kind::boolean && kind <= value_kind::real ? 1 : kind == value_kind::null ? 0 : 1 + (int)kind;
}

const value* value::find(std::string_view key) const {
    if (!is_map()) return nullptr;
    return find_member(*(const map_payload*)u_.payload, [&](const value& k) {
        return k.is_string() ? sign_of(k.as_string().compare(key)) : key_rank(k.kind()) - key_rank(value_kind::string);
    });
}

const value* value::find(const value& key) const {
    if (key.is_string()) return find(key.as_string());
    if (!is_map()) return nullptr;
    return find_member(*(const map_payload*)u_.payload, [&](const value& k) { return compare_keys(k, key); });
}

bool value::is_same(const value& other) const {
    if (kind_ != other.kind_) return false;
    if (kind_ == value_kind::boolean) return u_.boolean == other.u_.boolean;
    if (kind_ == value_kind::real) return u_.real == other.u_.real;
    return kind_ == value_kind::null || u_.integer == other.u_.integer;  // or the same payload
}

// Deep values are destroyed level by level, without recursion. A payload without references is put on a chain, and the
// payloads that only it refers to follow it there.
void value::release() noexcept {
    value_payload* dead = nullptr;
    auto drop = [&dead](value& v) {
        if (!v.is_shared()) return;
        v.kind_ = value_kind::null;
        if (v.u_.payload->n_refs.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
        v.u_.payload->next_dead = dead;
        dead = v.u_.payload;
    };
    drop(*this);
    while (dead) {
        value_payload* payload = dead;
        dead = payload->next_dead;
        if (payload->meter) payload->meter->used_bytes -= payload->n_bytes;
        switch (payload->kind) {
        case value_kind::list:
        case value_kind::tuple:
            for (value& item : ((list_payload*)payload)->data) drop(item);
            delete (list_payload*)payload;
            break;
        case value_kind::map:
            for (value_member& m : ((map_payload*)payload)->data) drop(m.key), drop(m.val);
            delete (map_payload*)payload;
            break;
        case value_kind::object:
            for (value& slot : ((object_payload*)payload)->slots) drop(slot);
            ((object_payload*)payload)->destroy((object_payload*)payload);
            break;
        default: delete (text_payload*)payload;
        }
    }
}

// ---- comparing ----

template <class T> static int order_of(const T& a, const T& b) { return (a > b) - (a < b); }

// An order of all numbers, for sorting: NaN comes first and equals itself. Numbers that are one double are told apart
// exactly, and integers of more than 64 bits come behind others of their double.
static int compare_numbers(const value& a, const value& b) {
    const double p = a.as_double(), q = b.as_double();
    if (p != q) return std::isnan(p) || std::isnan(q) ? std::isnan(q) - std::isnan(p) : order_of(p, q);
    const bool a_is_big = a.is(value_kind::big_integer), b_is_big = b.is(value_kind::big_integer);
    if (a_is_big != b_is_big) return order_of(a_is_big, b_is_big);
    const auto exact = [p](const value& v) {
        return v.is(value_kind::integer) ? (__int128)v.as_int() : std::fabs(p) < 1e19 ? (__int128)p : 0;
    };
    if (!a_is_big) return order_of(exact(a), exact(b));
    const std::string_view x = a.as_string(), y = b.as_string();
    const bool is_negative = x[0] == '-';
    if (is_negative != (y[0] == '-')) return is_negative ? -1 : 1;
    const int c = x.size() != y.size() ? order_of(x.size(), y.size()) : sign_of(x.compare(y));
    return is_negative ? -c : c;
}

int compare_keys(const value& a, const value& b) {
    const int rank = key_rank(a.kind()) - key_rank(b.kind());
    if (rank != 0) return rank;
    if (a.is_numeric()) return compare_numbers(a, b);
    if (a.is_string()) return sign_of(a.as_string().compare(b.as_string()));
    if (a.is_null() || a.is(value_kind::undefined)) return 0;
    if (!a.is(value_kind::tuple)) return order_of(a.identity(), b.identity());
    for (size_t i = 0; i < a.items().size() && i < b.items().size(); i++)
        if (int c = compare_keys(a.items()[i], b.items()[i]); c != 0) return c;
    return order_of(a.items().size(), b.items().size());
}

static bool equal_to(const value& a, const value& b, uint64_t* n_steps, int depth) {
    if (depth > 500) *n_steps = 0;
    if (*n_steps == 0) return false;
    --*n_steps;
    if (key_rank(a.kind()) != key_rank(b.kind())) return false;
    if (a.is(value_kind::real) || b.is(value_kind::real)) return a.as_double() == b.as_double();
    if (a.is_numeric()) return compare_numbers(a, b) == 0;
    if (a.is_null() || a.is(value_kind::undefined) || a.is_same(b)) return true;
    if (a.is_string()) return a.as_string() == b.as_string();
    if (a.is_sequence())
        return std::ranges::equal(a.items(), b.items(),
                                  [&](const value& x, const value& y) { return equal_to(x, y, n_steps, depth + 1); });
    if (!a.is_map() || a.members().size() != b.members().size()) return false;
    return std::all_of(a.members().begin(), a.members().end(), [&](const value_member& m) {
        const value* other = b.find(m.key);
        return other && equal_to(m.val, *other, n_steps, depth + 1);
    });
}

bool values_equal(const value& a, const value& b, uint64_t* n_steps) { return equal_to(a, b, n_steps, 0); }

}  // namespace duet
