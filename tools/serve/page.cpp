// tools/serve/page.cpp: GET /: the page for browsers, a part of the program. The build makes page.inc, a raw string, of
// page.html.
// Main path: routes.cpp -> [page.cpp]
#include "server.h"

namespace serve {

namespace {

constexpr std::string_view kPage =
#include <page.inc>
    ;
constexpr std::string_view kNonceMark = "@NONCE@";

}  // namespace

// Only what carries this answer's nonce runs or styles, nothing is loaded, and requests go to this server alone.
// Trusted types forbid the functions that turn text into markup.
void get_page(server&, exchange_ptr e) {
    const std::string nonce = random_id("");
    std::string text(kPage);
    for (size_t at; (at = text.find(kNonceMark)) != text.npos;) text.replace(at, kNonceMark.size(), nonce);
    e->headers.emplace_back("Content-Security-Policy",
                            "default-src 'none'; script-src 'nonce-" + nonce + "'; style-src 'nonce-" + nonce +
                                "'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
                                "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'");
    e->headers.emplace_back("Cache-Control", "no-store");
    e->headers.emplace_back("Referrer-Policy", "no-referrer");
    e->headers.emplace_back("X-Frame-Options", "DENY");
    e->headers.emplace_back("Cross-Origin-Resource-Policy", "same-origin");
    e->answer(200, std::move(text), "text/html; charset=utf-8");
}

}  // namespace serve
