// tools/serve/api.cpp: JSON, errors, checked fields.
#include "api.h"

#include <chrono>
#include <cmath>
#include <mutex>
#include <random>

namespace serve {

namespace {

const char* error_type(int status) {
    switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 429: return "rate_limit_error";
    case 500: return "server_error";
    case 501: return "not_supported_error";
    case 503: return "unavailable_error";
    default: return "invalid_request_error";
    }
}

json text_or_null(const std::string& text) { return text.empty() ? json(nullptr) : json(text); }

uint64_t next_random() {
    static std::mutex mutex;
    static std::mt19937_64 generator = [] {
        std::random_device device;
        std::seed_seq seeds{device(), device(), device(), device()};
        return std::mt19937_64(seeds);
    }();
    const std::lock_guard lock(mutex);
    return generator();
}

// The deepest nesting of brackets outside of strings. It is checked before anything is built.
int depth_of(std::string_view text) {
    int depth = 0, deepest = 0;
    bool is_string = false;
    for (size_t i = 0; i < text.size(); i++) {
        const char c = text[i];
        if (is_string) {
            if (c == '\\') i++;
            else if (c == '"') is_string = false;
        } else if (c == '"') is_string = true;
        else if (c == '{' || c == '[') deepest = std::max(deepest, ++depth);
        else if (c == '}' || c == ']') depth--;
    }
    return deepest;
}

}  // namespace

void refuse(int status, const std::string& message, const std::string& param, const std::string& code) {
    throw api_error{status, message, param, code, ""};
}

json error_json(const api_error& e) {
    const std::string type = e.type.empty() ? error_type(e.status) : e.type;
    return {
        {"error",
         {{"message", e.message}, {"type", type}, {"param", text_or_null(e.param)}, {"code", text_or_null(e.code)}}}};
}

std::string error_body(int status, const std::string& message, const std::string& param, const std::string& code) {
    return dump(error_json({status, message, param, code, ""}));
}

std::string dump(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

json parse_body(const std::string& body) {
    if (depth_of(body) > kMaxJsonDepth)
        refuse(400, "the body is nested deeper than " + std::to_string(kMaxJsonDepth) + " levels");
    try {
        json value = json::parse(body);
        if (!value.is_object()) refuse(400, "the body: want a JSON object, got " + shown(value));
        return value;
    } catch (const json::parse_error& e) {
        refuse(400, "the body is not JSON: byte " + std::to_string(e.byte));
    } catch (const json::exception&) { refuse(400, "the body is not JSON: a number is too large"); }
}

std::optional<int64_t> whole_number(const json& value) {
    if (value.is_number_unsigned()) {
        const uint64_t n = value.get<uint64_t>();
        return n > (uint64_t)INT64_MAX ? std::nullopt : std::optional<int64_t>((int64_t)n);
    }
    if (value.is_number_integer()) return value.get<int64_t>();
    if (!value.is_number_float()) return std::nullopt;
    const double x = value.get<double>();
    if (std::floor(x) != x || std::fabs(x) > 9e15) return std::nullopt;
    return (int64_t)x;
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
    refuse(400, path(name) + ": want " + wanted + ", got " + (value ? shown(*value) : "nothing"), path(name),
           "invalid_value");
}

std::optional<std::string> fields::text(const char* name) const {
    const json* value = find(name);
    if (!value) return std::nullopt;
    if (!value->is_string()) wrong(name, "a string");
    return value->get<std::string>();
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

bool fields::flag(const char* name, bool otherwise) const {
    const json* value = find(name);
    if (!value) return otherwise;
    if (!value->is_boolean()) wrong(name, "true or false");
    return value->get<bool>();
}

const json* fields::list(const char* name) const {
    const json* value = find(name);
    if (value && !value->is_array()) wrong(name, "a list");
    return value;
}

const json* fields::object(const char* name) const {
    const json* value = find(name);
    if (value && !value->is_object()) wrong(name, "an object");
    return value;
}

std::string random_id(const char* prefix) {
    static const char kLetters[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_-";
    std::string id = prefix;
    for (int i = 0; i < 3; i++) {
        uint64_t bits = next_random();
        for (int k = 0; k < 8; k++, bits >>= 6) id += kLetters[(bits & 63) % 62];
    }
    return id;
}

uint64_t random_seed() { return next_random() >> 1; }

int64_t unix_time() {
    return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
        .count();
}

std::string sse(const json& value) { return "data: " + dump(value) + "\n\n"; }
std::string sse(const char* event, const json& value) {
    return std::string("event: ") + event + "\ndata: " + dump(value) + "\n\n";
}

}  // namespace serve
