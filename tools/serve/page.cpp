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
    std::string text;
    text.reserve(kPage.size() + 64);
    for (size_t begin = 0; begin < kPage.size();) {
        const size_t mark = std::min(kPage.find(kNonceMark, begin), kPage.size());
        text += kPage.substr(begin, mark - begin);
        if (mark < kPage.size()) text += nonce;
        begin = mark + kNonceMark.size();
    }
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
