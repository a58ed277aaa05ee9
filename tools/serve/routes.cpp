// tools/serve/routes.cpp: the table of routes, what is checked before a body is read, and the short answers.
// Main path: http.h -> [routes.cpp] -> completions.cpp, chat.cpp
#include "server.h"

namespace serve {

namespace {

// clang-format off
json model_json(const server& s, const std::string& id) {
    return {{"id", id}, {"object", "model"}, {"created", s.created}, {"owned_by", "duet"},
            {"max_model_len", s.n_ctx}, {"context_length", s.n_ctx},
            {"capabilities", {{"completion", !s.info.is_encoder}, {"chat", s.has_chat}, {"tools", s.has_tools},
                              {"structured_output", !s.info.is_encoder}, {"embeddings", s.options.embeddings}}},
            {"meta", {{"architecture", s.info.architecture}, {"type", s.info.main_type}, {"n_params", s.info.n_params},
                      {"n_vocab", s.info.n_vocab}, {"n_embd", s.info.dim}, {"n_ctx_train", s.info.n_ctx_train},
                      {"size", s.info.weight_bytes}}}};
}
// clang-format on

void get_models(server& s, exchange_ptr e) {
    json data = json::array();
    for (const std::string& name : s.options.names) data.push_back(model_json(s, name));
    e->answer(200, dump({{"object", "list"}, {"data", std::move(data)}}));
}

std::string percent_decoded(const std::string& text) {
    std::string out;
    for (const char *at = text.data(), *end = at + text.size(); at < end; at++) {
        uint8_t byte = 0;
        const bool is_coded = *at == '%' && end - at > 2 && std::from_chars(at + 1, at + 3, byte, 16).ptr == at + 3;
        out += is_coded ? (char)byte : *at;
        if (is_coded) at += 2;
    }
    return out;
}

void get_model(server& s, exchange_ptr e) {
    const std::string id = percent_decoded(e->request.path.substr(e->request.path.find("/models/") + 8));
    check_name(s, id);
    e->answer(200, dump(model_json(s, id)));
}

void get_props(server& s, exchange_ptr e) {
    json sampling = json::object();
    for (const auto& [name, value] : s.options.sampling) sampling[name] = value;
    const auto spelling = [&](int32_t id) { return std::string(view_of(duet_token_spelling(s.model, id))); };
    // clang-format off
    e->answer(200, dump({{"default_generation_settings", {{"n_ctx", s.n_ctx}, {"params", std::move(sampling)}}},
                         {"total_slots", s.options.n_slots}, {"model_alias", s.id}, {"n_ctx", s.n_ctx},
                         {"has_chat_template", s.has_chat}, {"chat_template", template_text(s)},
                         {"bos_token", spelling(duet_token_bos(s.model))}, {"eos_token", spelling(duet_token_eos(s.model))},
                         {"model_path", s.options.model.path}, {"modalities", {{"vision", false}, {"audio", false}}}, {"device", s.info.device},
                         {"build_info", std::string("duet ") + duet_version() + ", " + duet_build_info()}}));
}

void get_version(server&, exchange_ptr e) {
    e->answer(200, dump({{"version", duet_version()}, {"numerics", duet_numerics_version()}, {"build", duet_build_info()}}));
}
// clang-format on

void get_metrics(server& s, exchange_ptr e) {
    e->answer(200, s.counts.text(), "text/plain; version=0.0.4; charset=utf-8");
}

// /health and /readyz, and /livez, which is also answered while the model is loading or the server ends.
void get_ready(server& s, exchange_ptr e) {
    if ((!s.is_draining && !s.is_loading) || e->request.path == "/livez") return e->answer(200, "{\"status\":\"ok\"}");
    e->answer(503, dump(error_json({503, s.is_loading ? "the model is loading" : "the server is ending"})));
}

// Either get or post. is_public: without a key, and also while the server ends.
struct route {
    const char* path;
    get_route* get;
    post_route* post = nullptr;
    bool is_public = false;
};

constexpr route kRoutes[] = {
    {"/", get_page, nullptr, true},
    {"/health", get_ready, nullptr, true},
    {"/livez", get_ready, nullptr, true},
    {"/readyz", get_ready, nullptr, true},
    {"/version", get_version},
    {"/props", get_props},
    {"/metrics", get_metrics},
    {"/v1/models", get_models},
    {"/v1/models/", get_model},  // and the rest of the path is the name
    {"/completion", nullptr, post_completion},
    {"/v1/completions", nullptr, post_completions},
    {"/v1/chat/completions", nullptr, post_chat},
    {"/apply-template", nullptr, post_apply_template},
    {"/v1/responses", nullptr, post_responses},
    {"/v1/messages", nullptr, post_messages},
    {"/v1/messages/count_tokens", nullptr, post_count_tokens},
    {"/api/chat", nullptr, post_ollama_chat},
    {"/api/generate", nullptr, post_ollama_generate},
    {"/api/show", nullptr, post_ollama_show},
    {"/api/tags", get_ollama_models},
    {"/api/ps", get_ollama_models},
    {"/api/version", get_ollama_version},
    {"/api/embed", nullptr, post_embeddings},
    {"/api/embeddings", nullptr, post_embeddings},
    {"/v1/embeddings", nullptr, post_embeddings},
    {"/v1/rerank", nullptr, post_rerank},
    {"/v2/rerank", nullptr, post_rerank},
    {"/v1/reranking", nullptr, post_rerank},
    {"/tokenize", nullptr, post_tokenize},
    {"/detokenize", nullptr, post_detokenize},
};

const route* route_of(std::string_view path) {
    for (const route& r : kRoutes) {
        std::string_view own = r.path;
        if (own.substr(0, 4) == "/v1/" && path.substr(0, 4) != "/v1/") own.remove_prefix(3);  // many leave it out
        const bool has_name = own.back() == '/' && own.size() > 1;
        if (has_name ? path.size() > own.size() && path.substr(0, own.size()) == own : path == own) return &r;
    }
    return nullptr;
}

const char* allowed_methods(const route& r) { return r.get ? "GET, HEAD, OPTIONS" : "POST, OPTIONS"; }

// The id of a request that the client gave, if it is a plain word, else a new one.
std::string id_of(const std::string& given) {
    constexpr const char* kPlain = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_.:";
    const bool is_plain = !given.empty() && given.size() <= 128 && given.find_first_not_of(kPlain) == given.npos;
    return is_plain ? given : random_id("req-");
}

void log_request(const server& s, const http_exchange& e, double ms) {
    if (!s.options.log_json && !s.options.log_requests) return;
    const http_request& r = e.request;
    std::fprintf(stderr,
                 s.options.log_json ? "{\"id\":%s,\"method\":%s,\"path\":%s,\"code\":%d,\"ms\":%.1f%s}\n"
                                    : "%s %s %s %d %.1f ms%s\n",
                 s.options.log_json ? dump(r.request_id).c_str() : r.request_id.c_str(), dump(r.method).c_str(),
                 dump(r.path).c_str(), e.status(), ms, e.log_fields.c_str());
}

// What is wrong with the head of a request, in the order in which a stranger may learn it; status 0: nothing.
api_error head_error(const server& s, const http_place& place, const http_request& r, http_headers* headers) {
    if (!is_host_allowed(s, place, r.host))
        return {403, "this server has not the name that Host gives; --origin adds one", "", "host_not_allowed"};
    if (!is_origin_allowed(s, r))
        return {403, "pages of this origin may not ask; --origin adds one", "", "origin_not_allowed"};
    const route* found = route_of(r.path);
    if (found && found->get == get_page && s.options.no_page && r.method != "HEAD") found = nullptr;
    const bool is_public = found && found->is_public;
    if (!is_public && r.method != "OPTIONS" && !is_key_good(s, r)) {
        headers->emplace_back("WWW-Authenticate", "Bearer");
        return {401, "want a key: Authorization: Bearer KEY, or x-api-key: KEY", "", "invalid_api_key"};
    }
    if (!found) return {404, "no such route: " + r.path.substr(0, 200), "", "not_found"};
    const std::string method = r.method == "HEAD" ? "GET" : r.method;
    if (method != "OPTIONS" && method != (found->get ? "GET" : "POST")) {
        headers->emplace_back("Allow", allowed_methods(*found));
        return {405, std::string("want one of ") + allowed_methods(*found), "", "method_not_allowed"};
    }
    if ((s.is_draining || s.is_loading) && !is_public) {
        headers->emplace_back("Retry-After", "5");
        return {503, s.is_loading ? "the model is loading" : "the server is ending", "", "unavailable"};
    }
    // LiteLLM and others send Ollama's requests without a type. What a page posts has an origin.
    const std::string type = lower(r.content_type.substr(0, r.content_type.find_first_of("; \t")));
    if (r.method == "POST" && type != "application/json" && !(r.content_type.empty() && r.origin.empty()))
        return {415, "Content-Type: want application/json", "", "unsupported_media_type"};
    if (!r.content_encoding.empty() && lower(r.content_encoding) != "identity")
        return {415, "Content-Encoding: want none", "", "unsupported_media_type"};
    return {0, ""};
}

// What all answers have: an id, and what pages of other origins need. They are counted and told when they end.
void begin_answer(server& s, http_exchange& e) {
    e.request.request_id = id_of(e.request.request_id);
    e.headers.emplace_back("X-Request-Id", e.request.request_id);
    if (!e.request.origin.empty() && is_origin_listed(s, e.request)) {
        e.headers.emplace_back("Access-Control-Allow-Origin", e.request.origin);
        e.headers.emplace_back("Access-Control-Expose-Headers", "X-Request-Id, Retry-After");
        e.headers.emplace_back("Vary", "Origin");
    }
    e.on_end = [&s](http_exchange& ended) {
        const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - ended.arrived;
        s.counts.add("duet_requests_total", 1, "code=\"" + std::to_string(ended.status()) + "\"");
        // probes and scrapes come often and would hide how long answers take
        if (ended.request.method == "POST") s.counts.observe("duet_request_seconds", time.count() / 1000);
        log_request(s, ended, time.count());
    };
}

}  // namespace

// Anthropic's clients know a type outside and other names, Ollama's a text.
std::string error_of_route(std::string_view path, const api_error& e) {
    if (path.substr(0, 5) == "/api/") return dump({{"error", e.message}});
    json body = error_json(e);
    if (path.rfind("/messages", 3) == path.npos) return dump(body);
    body["type"] = "error";
    if (e.status == 413) body["error"]["type"] = "request_too_large";
    if (e.status >= 500) body["error"]["type"] = e.status == 503 ? "overloaded_error" : "api_error";
    return dump(body);
}

void check_request(server& s, const http_place& place, const exchange_ptr& e, int status, const std::string& message) {
    const api_error wrong = status ? api_error{status, message} : head_error(s, place, e->request, &e->headers);
    if (!wrong.status) return;
    begin_answer(s, *e);
    e->answer(wrong.status, error_of_route(e->request.path, wrong));
}

void answer_request(server& s, const exchange_ptr& exchange) {
    begin_answer(s, *exchange);
    const route* found = route_of(exchange->request.path);
    if (exchange->request.method == "OPTIONS") {
        exchange->headers.emplace_back("Allow", allowed_methods(*found));
        if (is_origin_listed(s, exchange->request)) {
            exchange->headers.emplace_back("Access-Control-Allow-Methods", allowed_methods(*found));
            // clients send many of their own, new ones with each version; * does not stand for Authorization
            exchange->headers.emplace_back("Access-Control-Allow-Headers", "*, authorization");
        }
        return exchange->answer(204, "");
    }
    answer_with(exchange, [&] {
        if (found->get) return found->get(s, exchange);
        const json body = parse_body(std::exchange(exchange->request.body, ""));
        if (const auto name = fields(body).text("model")) check_name(s, *name);
        found->post(s, exchange, fields(body));
    });
}

void answer_with(const exchange_ptr& exchange, const std::function<void()>& work) {
    auto fail = [&](const api_error& e) { exchange->answer(e.status, error_of_route(exchange->request.path, e)); };
    try {
        work();
    } catch (const api_error& e) { fail(e); } catch (const std::bad_alloc&) {
        fail({500, "out of memory"});
    } catch (const std::exception& e) { fail({500, e.what()}); }
}

}  // namespace serve
