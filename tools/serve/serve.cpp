// tools/serve/serve.cpp: the program `serve` answers requests over HTTP in the forms that OpenAI's clients speak.
// Owns: flags, start, signals, end. Must not know: routes, how an answer is made.
// Main path: [serve.cpp] -> http.h -> routes.cpp -> completions.cpp -> engine.h -> runtime.h
#include "chat.h"

#include <sstream>
#include <thread>

namespace {

using namespace serve;

std::vector<std::string> split(const std::string& text, char separator = ',') {
    std::vector<std::string> parts;
    std::stringstream stream(text);
    for (std::string part; std::getline(stream, part, separator);)
        if (!part.empty()) parts.push_back(part);
    return parts;
}

// "16M", "2G", "4096".
std::string read_bytes(const std::string& text, uint64_t* out) {
    const char unit = text.empty() ? 0 : text.back();
    const int shift = unit == 'K' ? 10 : unit == 'M' ? 20 : unit == 'G' ? 30 : 0;
    int64_t n = 0;
    if (!parse_int(std::string_view(text).substr(0, text.size() - (shift ? 1 : 0)), &n) || n < 0 ||
        n > INT64_MAX >> shift)
        return "want bytes, as 4096, 64K, 16M or 2G";
    *out = (uint64_t)n << shift;
    return "";
}

const std::string kKeyRule = "want up to 512 visible ASCII characters";

bool is_key(const std::string& key) {
    return !key.empty() && key.size() <= 512 && std::ranges::all_of(key, [](char c) { return c > ' ' && c < 0x7f; });
}

void add_flags(tool_args& args, server_options* o) {
    add_model_path(args, &o->model);
    args.text("--host", "ADDRESS", "where to listen: an address, a name, or unix:/path (default 127.0.0.1)", &o->host);
    args.integer("--port", "N", "port (default 8080; 0: a free one)", &o->port, 0, 65535);
    args.integer("--slots, -np, --parallel", "N", "answers made at the same time (default 8)", &o->n_slots, 1, 256);
    args.integer("-c, --ctx-size", "N",
                 "tokens every slot may hold (default 0: what the model was trained with, at most 4096)",
                 &o->model.n_ctx, 0, 1 << 30);
    args.call("-a, --alias", "NAME,...", "names of the model in requests (default: the file's name)",
              [o](const std::string& text) {
                  return o->names = split(text), std::string(o->names.empty() ? "want names" : "");
              });
    args.call("--api-key", "KEY", "requests need this key; may be repeated (also DUET_API_KEY)",
              [o](const std::string& key) { return o->keys.push_back(key), is_key(key) ? "" : kKeyRule; });
    args.text("--api-key-file", "FILE", "keys, one in a line", &o->key_file);
    args.flag("--no-key", "listen beyond the loopback without a key", &o->no_key);
    args.integer("--queue", "N", "answers that may wait for a slot (default 256)", &o->n_queue, 0, 65536);
    args.call("--max-body", "BYTES", "largest body of a request (default 16M)",
              [o](const std::string& text) { return read_bytes(text, &o->max_body_bytes); });
    args.call("--cache-bytes", "BYTES",
              "attention cache of all slots and kept prefixes (default 2G, or half of the free memory)",
              [o](const std::string& text) { return read_bytes(text, &o->cache_bytes); });
    args.integer("--chunk", "N", "prompt tokens in one step (default 0: what fits about 80 ms)", &o->chunk, 0, 65536);
    args.text("--chat-template", "FILE|NAME", "a template instead of the file's, or its name", &o->chat_template);
    args.text("--tool-parser", "auto|NAME", "how it writes calls (default auto: as its template shows)", &o->tool_form);
    args.choice("--reasoning", "auto|none", "none: thinking stays in the text, with its markers", &o->reasoning);
    args.flag("--no-page, --no-webui", "serve no page for browsers at /", &o->no_page);
    args.flag("--embeddings, --embedding, --reranking", "serve vectors and scores (default: of encoders)",
              &o->embeddings);
    args.call("--origin", "URL,...", "origins whose pages may ask, as https://chat.example.org",
              [o](const std::string& text) {
                  for (std::string origin : split(lower(text))) {
                      while (origin.ends_with('/')) origin.pop_back();
                      const size_t at = origin.find("://");
                      if (at == 0 || at == std::string::npos || origin.find('/', at + 3) != std::string::npos)
                          return std::string("want SCHEME://NAME[:PORT], as https://chat.example.org");
                      o->origins.push_back(origin);
                  }
                  return std::string();
              });
    args.integer("--drain", "SECONDS", "for running answers after SIGTERM (default 30)", &o->drain_seconds, 0, 86400);
    args.flag("--log-requests", "one line on stderr for each request", &o->log_requests);
    args.flag("--log-json", "the same as JSON", &o->log_json);
    add_device_flags(args, &o->model);
    add_rope_flags(args, &o->model);
    args.section("What a request does not say:");
    for (const auto& row : kSamplerDefaults) o->sampling.emplace_back(row.name, row.value);
    add_sampler_params(args, [o](const duet_sampler_param& row, double x) {
        duet_sampler* made = nullptr;
        if (duet_sampler_create(0, &made) != DUET_OK) return std::string("out of memory");
        o->sampling.emplace_back(row.name, x);
        return set_sampler(sampler_ptr(made).get(), row.name, x);
    });
    args.section("Exit code: 0 ended by SIGTERM or Ctrl-C, 1 failed, 2 wrong command line.\n");
}

duet_status read_keys(server_options* o, tool_error* error) {
    const char* key = std::getenv("DUET_API_KEY");
    std::string text;
    if (key && *key) o->keys.push_back(key);
    if (key && *key && !is_key(key)) return error->set(DUET_ERR_ARG, "DUET_API_KEY: " + kKeyRule);
    if (o->key_file.empty()) return DUET_OK;
    if (const duet_status status = read_text(o->key_file, &text, error)) return status;
    std::replace(text.begin(), text.end(), '\r', '\n');
    const std::vector<std::string> lines = split(text, '\n');
    if (lines.empty() || !std::all_of(lines.begin(), lines.end(), is_key))
        return error->set(DUET_ERR_FORMAT, o->key_file + ": want a key in each line: " + kKeyRule);
    o->keys.insert(o->keys.end(), lines.begin(), lines.end());
    return DUET_OK;
}

// --chat-template names a file, or else a template by name.
duet_status read_template(server_options* o, tool_error* error) {
    if (o->tool_form == "auto") o->tool_form.clear();
    if (o->chat_template.empty()) return DUET_OK;
    const std::string name = o->chat_template;
    if (os::kind_of(name) != os::file_kind::none || name.find_first_of("/\\.") != std::string::npos)
        return read_text(name, &o->chat_template, error);
    o->template_name = std::exchange(o->chat_template, "");
    return DUET_OK;
}

std::string stem_of(const std::string& path) {
    std::string name = path.substr(path.find_last_of(os::kSlashes) + 1);
    if (name.size() > 5 && name.substr(name.size() - 5) == ".gguf") name.resize(name.size() - 5);
    return name;
}

// One pool of cache pages serves all slots and the prefixes that are kept. cache_bytes bounds it, with the recurrent
// states of prefixes; the least is one full slot.
duet_status open_sequences(server* s, session_ptr* session, engine_params* engine, tool_error* error) {
    constexpr int64_t kPage = 64;
    server_options& o = s->options;
    s->n_ctx = o.model.n_ctx ? o.model.n_ctx : std::min(s->info.n_ctx_train, 4096);
    duet_session_params params = duet_session_params_default();
    params.n_ctx = s->n_ctx;
    params.max_batch = o.model.max_batch;
    params.cache_type = o.model.cache_type;
    s->plan.struct_size = sizeof s->plan;
    const auto plan = [&] {
        const duet_status status = duet_session_plan(s->model, &params, &s->plan);
        return status ? error->set(status, duet_model_error(s->model)) : DUET_OK;
    };
    const auto state = [&] { return s->plan.state_bytes + s->plan.gpu_state_bytes; };
    if (const duet_status status = plan()) return status;
    const uint64_t free = s->plan.free_bytes;
    const uint64_t bound = o.cache_bytes ? o.cache_bytes : std::min<uint64_t>(2ull << 30, free ? free / 2 : UINT64_MAX);
    engine->is_recurrent = state() > 0;
    const uint64_t n_prefixes = state() ? std::clamp<uint64_t>(bound / 4 / state(), 1, 64) : 64;
    params.n_seqs = engine->n_seqs = o.n_slots + (int32_t)n_prefixes;
    const int64_t n_least = (s->n_ctx + kPage - 1) / kPage * kPage;
    params.cache_tokens = n_least * engine->n_seqs;
    for (;;) {
        if (const duet_status status = plan()) return status;
        const uint64_t cache = s->plan.cache_bytes + s->plan.gpu_cache_bytes, one = state() / (uint64_t)engine->n_seqs;
        const uint64_t need = cache + one * n_prefixes;
        if (need <= bound || (params.cache_tokens == n_least && !o.cache_bytes)) break;
        // a quarter of the bytes is for states, at least one
        const uint64_t least = one ? std::max(cache + one, cache / 3 * 4 + 4) : need;
        if (params.cache_tokens == n_least)
            return error->set(DUET_ERR_ARG, "--cache-bytes: want at least " + std::to_string(least) +
                                                ", what one slot of " + std::to_string(s->n_ctx) + " tokens needs");
        const double share = std::min(0.98, (double)bound / (double)need);
        params.cache_tokens = std::max(n_least, (int64_t)((double)params.cache_tokens * share) / kPage * kPage);
    }
    engine->cache_tokens = params.cache_tokens;
    o.model.n_ctx = s->n_ctx;
    o.model.cache_tokens = engine->cache_tokens;
    const std::string window = std::string(s->info.architecture) + ".attention.sliding_window";
    engine->has_windows = duet_file_find_kv(duet_model_file(s->model), window.c_str()) >= 0;
    return open_session(s->model, o.model, engine->n_seqs, session, &s->plan, error);
}

// The second session, which turns texts into vectors. It is made when the first one is asked for.
duet_status plan_embedder(server* s, engine_params* engine, duet_memory_plan* plan, tool_error* error) {
    duet_session_params& p = engine->embedder = duet_session_params_default();
    engine->embeds = s->options.embeddings |= s->info.is_encoder;
    p.n_ctx = s->n_ctx;
    p.n_seqs = s->options.n_slots;
    p.cache_tokens = p.n_ctx + 64ll * p.n_seqs;
    p.cache_type = s->info.is_encoder ? DUET_CACHE_F32 : s->options.model.cache_type;
    plan->struct_size = sizeof *plan;
    const duet_status status = engine->embeds ? duet_session_plan(s->model, &p, plan) : DUET_OK;
    return status ? error->set(status, duet_model_error(s->model)) : DUET_OK;
}

void tell_plan(server* s, const engine_params& engine, const duet_memory_plan& second) {
    const duet_memory_plan& p = s->plan;
    const auto tell_rest = [](uint64_t cache, const std::string& note, uint64_t state, uint64_t work) {
        std::fprintf(stderr, "cache %.1f%s, state %.1f, work %.1f", cache / 1e6, note.c_str(), state / 1e6, work / 1e6);
    };
    const std::string room = " (" + std::to_string(engine.cache_tokens) + " tokens for " +
                             std::to_string(engine.n_slots) + " slots of up to " + std::to_string(s->n_ctx) +
                             ", and prefixes)";
    std::fprintf(stderr, "serve: memory: weights %.1f MB (mapped), ", p.weight_bytes / 1e6);
    tell_rest(p.cache_bytes, room, p.state_bytes, p.work_bytes);
    if (std::strncmp(s->info.device, "cpu", 3) != 0) {
        std::fprintf(stderr, "; GPU: %d/%d layers %.1f MB, ", p.gpu_layers, s->info.n_layers, p.gpu_weight_bytes / 1e6);
        tell_rest(p.gpu_cache_bytes, "", p.gpu_state_bytes, p.gpu_work_bytes);
    }
    const uint64_t cache = second.cache_bytes + second.gpu_cache_bytes;
    const uint64_t state = second.state_bytes + second.gpu_state_bytes;
    const uint64_t work = second.work_bytes + second.gpu_work_bytes;
    if (engine.embeds) {
        std::fprintf(stderr, "; for embeddings, when they are asked for: ");
        tell_rest(cache, " MB", state, work);
    }
    std::fputc('\n', stderr);
    // clang-format off
    const std::pair<const char*, uint64_t> kinds[] = {
        {"weights", p.weight_bytes}, {"cache", p.cache_bytes + p.gpu_cache_bytes}, {"state", p.state_bytes + p.gpu_state_bytes},
        {"work", p.work_bytes + p.gpu_work_bytes}, {"embeddings", cache + state + work}};
    // clang-format on
    for (const auto& [kind, bytes] : kinds)
        s->counts.set("duet_memory_bytes", (double)bytes, std::string("kind=\"") + kind + "\"");
    s->counts.set("duet_slots", engine.n_slots);
    s->counts.set("vllm:cache_config_info", 1,
                  "block_size=\"64\",num_gpu_blocks=\"" + std::to_string(engine.cache_tokens / 64) + "\"");
}

void read_vocabulary(server* s) {
    for (int32_t id = 0; id < s->info.n_vocab; id++) {
        if (duet_token_is_end(s->model, id)) s->end_ids.push_back(id);
        // these characters end a repeated run (defaults of the DRY proposal)
        if (view_of(duet_token_text(s->model, id)).find_first_of("\n:\"*") != std::string_view::npos)
            s->dry_breakers.push_back(id);
    }
}

// Ends when nothing is left to answer. When the time is over what runs is cancelled, and has 2 s to say so.
void drain(server* s, http_server* http, double until) {
    if (http->place().n_active == 0 || now_seconds() > until + 2) return http->stop();
    if (now_seconds() > until) s->work->cancel_all();
    http->after(std::chrono::milliseconds(20), [=] { drain(s, http, until); });
}

// Opens the model and all that depends on it, while connections are answered with 503.
duet_status load(server* s, model_ptr* model, session_ptr* session, tool_error* error) {
    server_options& o = s->options;
    engine_params params{o.n_slots, o.n_queue, o.chunk};
    if (const duet_status status = open_model(o.model, model, error)) return status;
    s->model = model->get();
    s->info = info_of(s->model);
    if (o.names.empty()) o.names.push_back(stem_of(o.model.path));
    s->id = o.names[0];
    if (const duet_status status = open_sequences(s, session, &params, error)) return status;
    duet_memory_plan embedder = {};
    if (const duet_status status = plan_embedder(s, &params, &embedder, error)) return status;
    if (const duet_status status = try_template(s, error)) return status;
    read_vocabulary(s);
    tell_plan(s, params, embedder);
    s->work = std::make_unique<engine>(s->model, session->get(), params, s->counts);
    return DUET_OK;
}

duet_status start(server* s, tool_error* error) {
    server_options& o = s->options;
    if (const duet_status status = read_keys(&o, error)) return status;
    if (const duet_status status = read_template(&o, error)) return status;
    http_handlers handlers;
    handlers.check = [&](auto& place, auto& e, int status, auto& text) { check_request(*s, place, e, status, text); };
    handlers.handle = [&](auto& e) { answer_request(*s, e); };
    model_ptr model;
    session_ptr session;
    http_server http(o.max_body_bytes, handlers);
    if (const std::string wrong = http.listen(o.host, o.port); !wrong.empty()) return error->set(DUET_ERR_IO, wrong);
    if (!http.place().is_local && o.keys.empty() && !o.no_key)
        return error->set(DUET_ERR_ARG,
                          http.place().address + " is reachable from other machines: want --api-key, or --no-key");
    duet_status status = DUET_OK;
    std::thread loader([&] {
        try {
            status = load(s, &model, &session, error);
        } catch (const std::bad_alloc&) { status = error->set(DUET_ERR_MEMORY, "out of memory"); }
        if (status != DUET_OK) return http.stop();
        s->is_loading = false;
        std::printf("serve: %s%s serves %s (%s %s, %d slots of %d tokens, %s%s)\n",
                    http.place().unix_path.empty() ? "http://" : "", http.place().address.c_str(), s->id.c_str(),
                    s->info.architecture, s->info.main_type, o.n_slots, s->n_ctx, s->info.device,
                    o.keys.empty() ? "" : ", with key");
        std::fflush(stdout);
    });
    http.run([&](int n_signals) {
        if (n_signals > 1) std::_Exit(kExitFailed);
        if (s->is_loading) {  // nothing is answered yet, and nothing interrupts the loading
            http.forget_path();
            std::_Exit(kExitGood);
        }
        s->is_draining = true;
        http.drain();
        drain(s, &http, now_seconds() + o.drain_seconds);
    });
    loader.join();
    s->work.reset();
    return status;
}

}  // namespace

int main(int argc, char** argv) {
    server s;
    tool_args args("serve", "-m model.gguf [options]", "Serves a model over HTTP in the forms of OpenAI's clients.");
    add_flags(args, &s.options);
    if (int code; !args.parse(argc, argv, &code)) return code;
    if (s.options.model.path.empty()) return args.usage_error("no model: want -m FILE"), kExitUsage;
    os::prepare_server();
    duet_status status = DUET_OK;
    const int code = finish_tool("serve", [&](tool_error* error) { return status = start(&s, error); });
    return status == DUET_ERR_ARG ? kExitUsage : code;
}
