// tools/serve/api.h: what all routes share: JSON, errors in OpenAI's form, fields of a request that are checked.
// Must not know: sockets, the engine.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace serve {

using json = nlohmann::ordered_json;

// An error that the client is told. It is thrown inside a route and answered at one place (routes.cpp).
struct api_error {
    int status = 500;
    std::string message, param = "", code = "";
};

[[noreturn]] void refuse(int status, std::string message, std::string param = "", std::string code = "");
// A 400 for a value at this place of the request: "PATH: WHY".
[[noreturn]] void refuse_value(const std::string& path, const std::string& why, const char* code = "invalid_value");
json error_json(const api_error& error);

// Text of one line; bytes that are no UTF-8 become U+FFFD.
std::string dump(const json& value);

constexpr int kMaxJsonDepth = 64, kMaxJsonMembers = 2048;
// Reads a body. Throws a 400 that says what is wrong.
json parse_body(const std::string& body);

// Whole numbers as JSON has them: 5 and 5.0, not true and not "5".
std::optional<int64_t> whole_number(const json& value);

// The fields of an object. A null counts as absent; a value of the wrong kind or out of range throws a 400.
class fields {
  public:
    explicit fields(const json& object, std::string path = "") : object_(object), path_(std::move(path)) {}
    const json* find(const char* name) const;
    std::optional<std::string> text(const char* name) const;
    std::string need_text(const char* name, const char* wanted = "a string") const;
    // One of these texts, or nothing.
    std::optional<std::string> choice(const char* name, std::initializer_list<const char*> of) const;
    std::string need_choice(const char* name, std::initializer_list<const char*> of) const;
    std::optional<int64_t> integer(const char* name, int64_t min, int64_t max) const;
    std::optional<double> number(const char* name, double min, double max) const;
    bool flag(const char* name, bool otherwise) const;
    const json* list(const char* name) const;
    const json* object(const char* name) const;
    // The fields of an object inside, or of nothing.
    fields inside(const char* name) const;
    // The items of a list, each of them an object: at most n_most.
    std::vector<fields> objects(const char* name, const char* wanted, size_t n_most = SIZE_MAX) const;
    std::string path(const char* name) const { return path_ + name; }
    const json& value() const { return object_; }
    [[noreturn]] void wrong(const char* name, const std::string& wanted) const;

  private:
    const json* typed(const char* name, bool (json::*is_it)() const noexcept, const char* wanted) const;
    const json& object_;
    std::string path_;
};

// A short description of a value for an error, at most 60 bytes.
std::string shown(const json& value);

std::string lower(std::string text);        // of ASCII
std::string random_id(const char* prefix);  // "chatcmpl-" and 24 characters
uint64_t random_seed();
int64_t unix_time();

// An event of a stream of Server-Sent Events; one with a type, which is also a member.
std::string sse(const json& value);
std::string sse(const char* type, const json& members);

}  // namespace serve
