// tools/serve/guard.h: who may ask. See guard.cpp.
#pragma once
#include "server.h"

namespace serve {

bool is_host_allowed(const server& s, const http_server& http, const std::string& host);
bool is_origin_allowed(const server& s, const http_request& r);
bool is_origin_listed(const server& s, const http_request& r);
bool is_key_good(const server& s, const http_request& r);

}  // namespace serve
