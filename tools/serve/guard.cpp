// tools/serve/guard.cpp: who may ask: names of the host, origins of pages, keys. All of it is checked before a body is
// read.
// Main path: http.cpp -> [guard.cpp] -> routes.cpp
#include "server.h"

#include <algorithm>

namespace serve {

namespace {

// "[::1]:8080" -> "[::1]", "Name:8080" -> "name".
std::string name_of_host(const std::string& host) {
    const size_t bracket = host.rfind(']'), colon = host.rfind(':');
    const bool has_port = colon != std::string::npos && (bracket == std::string::npos || colon > bracket);
    return lower(has_port ? host.substr(0, colon) : host);
}

// Compares all bytes of the longer text, so that the time tells nothing about the key.
bool is_equal(std::string_view given, std::string_view key) {
    size_t difference = given.size() ^ key.size();
    for (size_t i = 0; i < std::max<size_t>(given.size(), 1); i++)
        difference |= (size_t)(uint8_t)(i < given.size() ? given[i] : 0) ^ (size_t)(uint8_t)key[i % key.size()];
    return difference == 0;
}

}  // namespace

// A page on a foreign name whose address was turned to this machine (rebinding) sends that name as Host. Where a key is
// needed on a public address the page does not know it, and any name may lead here. Without a Host (HTTP/1.0, as probes
// of load balancers ask) it is no page.
bool is_host_allowed(const server& s, const http_place& place, const std::string& host) {
    if (host.empty() || !place.unix_path.empty() || (!place.is_local && !s.options.keys.empty())) return true;
    const std::string name = name_of_host(host);
    std::vector<std::string> own{"localhost", "127.0.0.1", "[::1]", lower(s.options.host), name_of_host(place.address)};
    for (const std::string& origin : s.options.origins)
        if (origin.rfind("http", 0) == 0) own.push_back(name_of_host(origin.substr(origin.find("://") + 3)));
    if (std::find(own.begin(), own.end(), name) != own.end()) return true;
    const bool is_address = name[0] == '[' || name.find_first_not_of("0123456789.") == std::string::npos;
    return !place.is_local && !name.empty() && (is_address || name == lower(os::host_name()));
}

// Browsers send Origin with what a page asks for. Programs send none.
bool is_origin_allowed(const server& s, const http_request& r) {
    return r.origin.empty() || lower(r.origin) == "http://" + lower(r.host) || is_origin_listed(s, r);
}

bool is_origin_listed(const server& s, const http_request& r) {
    return std::find(s.options.origins.begin(), s.options.origins.end(), lower(r.origin)) != s.options.origins.end();
}

bool is_key_good(const server& s, const http_request& r) {
    if (s.options.keys.empty()) return true;
    const std::string bearer = lower(r.authorization.substr(0, 7)) == "bearer " ? r.authorization.substr(7) : "";
    int n_equal = 0;  // all are compared, so that the time tells nothing
    for (const std::string& key : s.options.keys) n_equal += is_equal(r.api_key, key) + is_equal(bearer, key);
    return n_equal > 0;
}

}  // namespace serve
