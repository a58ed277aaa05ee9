// tools/serve/api.cpp: JSON, errors, checked fields.
#include "api.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <random>

namespace serve {

namespace {

// clang-format off
constexpr std::pair<int, const char*> kErrorTypes[] = {
    {401, "authentication_error"}, {403, "permission_error"}, {404, "not_found_error"}, {429, "rate_limit_error"},
    {500, "server_error"}, {501, "not_supported_error"}, {503, "unavailable_error"},
};
// clang-format on

const char* error_type(int of_status) {
    const auto found = std::ranges::find(kErrorTypes, of_status, &std::pair<int, const char*>::first);
    return found == std::end(kErrorTypes) ? "invalid_request_error" : found->second;
}

// Refuses what is nested deeply, and objects of many members: each name is looked for among those before it. The
// parser's own callback is no place for this: with one, the parser looks through a whole list after each of its items.
void check_shape(const std::string& text) {
    std::vector<int> n_members(1);  // of the values that are open
    bool is_string = false;
    for (size_t i = 0; i < text.size(); i++) {
        const char c = text[i];
        if (c == '"') is_string = !is_string;
        else if (is_string) i += c == '\\';
        else if (c == ':') n_members.back()++;
        else if (c == '{' || c == '[') n_members.push_back(0);
        else if ((c == '}' || c == ']') && n_members.size() > 1) n_members.pop_back();
        if (n_members.size() > kMaxJsonDepth + 1)
            refuse(400, "the body is nested deeper than " + std::to_string(kMaxJsonDepth) + " levels");
        if (n_members.back() > kMaxJsonMembers)
            refuse(400, "the body has an object of more than " + std::to_string(kMaxJsonMembers) + " members");
    }
}

}  // namespace

void refuse(int status, std::string message, std::string param, std::string code) {
    throw api_error{status, std::move(message), std::move(param), std::move(code)};
}

void refuse_value(const std::string& path, const std::string& why, const char* code) {
    refuse(400, path + ": " + why, path, code);
}

// clang-format off
json error_json(const api_error& e) {
    return {{"error", {{"message", e.message}, {"type", error_type(e.status)},
                       {"param", e.param.empty() ? json() : json(e.param)}, {"code", e.code.empty() ? json() : json(e.code)}}}};
}
// clang-format on

std::string dump(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

json parse_body(const std::string& body) {
    // the parser takes a zero byte for the end of the text
    if (const size_t at = body.find('\0'); at != std::string::npos)
        refuse(400, "the body is not JSON: byte " + std::to_string(at + 1));
    check_shape(body);
    try {
        json value = json::parse(body);
        if (!value.is_object()) refuse(400, "the body: want a JSON object, got " + shown(value));
        return value;
    } catch (const json::parse_error& e) {
        const char* why = std::strstr(e.what(), "surrogate") ? ": half of a surrogate pair" : "";
        refuse(400, "the body is not JSON: byte " + std::to_string(e.byte) + why);
    } catch (const json::exception&) { refuse(400, "the body is not JSON: a number is too large"); }
}

std::optional<int64_t> whole_number(const json& value) {
    if (value.is_number_float()) {
        const double x = value.get<double>();
        return std::floor(x) == x && std::fabs(x) <= 9e15 ? std::optional<int64_t>((int64_t)x) : std::nullopt;
    }
    const bool is_too_large = value.is_number_unsigned() && value.get<uint64_t>() > (uint64_t)INT64_MAX;
    return value.is_number_integer() && !is_too_large ? std::optional<int64_t>(value.get<int64_t>()) : std::nullopt;
}

std::string shown(const json& value) {
    std::string text = dump(value);
    if (text.size() <= 60) return text;
    size_t n = 57;
    while (n > 0 && ((uint8_t)text[n] & 0xc0) == 0x80) n--;  // whole characters
    return text.substr(0, n) + "...";
}

const json* fields::find(const char* name) const {
    const auto found = object_.find(name);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
}

void fields::wrong(const char* name, const std::string& wanted) const {
    const json* value = find(name);
    refuse_value(path(name), "want " + wanted + ", got " + (value ? shown(*value) : "nothing"));
}

const json* fields::typed(const char* name, bool (json::*is_it)() const noexcept, const char* wanted) const {
    const json* value = find(name);
    if (value && !(value->*is_it)()) wrong(name, wanted);
    return value;
}

const json* fields::list(const char* name) const { return typed(name, &json::is_array, "a list"); }
const json* fields::object(const char* name) const { return typed(name, &json::is_object, "an object"); }

std::optional<std::string> fields::text(const char* name) const {
    const json* value = typed(name, &json::is_string, "a string");
    return value ? value->get<std::string>() : std::optional<std::string>();
}

bool fields::flag(const char* name, bool otherwise) const {
    const json* value = typed(name, &json::is_boolean, "true or false");
    return value ? value->get<bool>() : otherwise;
}

std::string fields::need_text(const char* name, const char* wanted) const {
    const auto value = text(name);
    if (!value) wrong(name, wanted);
    return *value;
}

std::optional<std::string> fields::choice(const char* name, std::initializer_list<const char*> of) const {
    const auto value = text(name);
    if (!value || std::find(of.begin(), of.end(), *value) != of.end()) return value;
    std::string wanted = "one of";
    for (const char* one : of) wanted += (one == *of.begin() ? " " : ", ") + std::string(one);
    wrong(name, wanted);
}

std::string fields::need_choice(const char* name, std::initializer_list<const char*> of) const {
    return need_text(name), *choice(name, of);
}

std::optional<int64_t> fields::integer(const char* name, int64_t min, int64_t max) const {
    const json* value = find(name);
    if (!value) return std::nullopt;
    const std::optional<int64_t> n = whole_number(*value);
    if (!n || *n < min || *n > max)
        wrong(name, "a whole number from " + std::to_string(min) + " to " + std::to_string(max));
    return n;
}

std::optional<double> fields::number(const char* name, double min, double max) const {
    const json* value = find(name);
    if (!value) return std::nullopt;
    if (!value->is_number() || !(value->get<double>() >= min && value->get<double>() <= max)) {
        char range[64];
        std::snprintf(range, sizeof range, "a number from %g to %g", min, max);
        wrong(name, range);
    }
    return value->get<double>();
}

fields fields::inside(const char* name) const {
    static const json kNothing = json::object();
    const json* value = object(name);
    return fields(value ? *value : kNothing, path(name) + ".");
}

std::vector<fields> fields::objects(const char* name, const char* wanted, size_t n_most) const {
    std::vector<fields> out;
    const json* value = list(name);
    if (value && value->size() > n_most) wrong(name, "at most " + std::to_string(n_most) + " items");
    for (size_t i = 0; value && i < value->size(); i++) {
        const std::string at = path(name) + "[" + std::to_string(i) + "]";
        if (!(*value)[i].is_object()) refuse_value(at, std::string("want ") + wanted + ", got " + shown((*value)[i]));
        out.emplace_back((*value)[i], at + ".");
    }
    return out;
}

std::string lower(std::string text) {
    for (char& c : text) c = (char)(c >= 'A' && c <= 'Z' ? c + 32 : c);
    return text;
}

std::string random_id(const char* prefix) {
    static const char kLetters[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    std::string id = prefix;
    uint64_t bits = 0;  // 63 of them, of which eight letters take 48
    for (int i = 0; i < 24; i++, bits /= 62) id += kLetters[(bits = i % 8 ? bits : random_seed()) % 62];
    return id;
}

uint64_t random_seed() {
    // Making one asks the processor what it can (cpuid): an id of 24 of them took 0.5 ms in a virtual machine.
    thread_local std::random_device device;
    return ((uint64_t)device() << 32 | device()) >> 1;
}

int64_t unix_time() { return (int64_t)std::time(nullptr); }

std::string sse(const json& value) { return "data: " + dump(value) + "\n\n"; }
std::string sse(const char* type, const json& members) {
    json out = {{"type", type}};
    out.update(members);
    return std::string("event: ") + type + "\n" + sse(out);
}

}  // namespace serve
