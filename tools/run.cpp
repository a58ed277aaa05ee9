// tools/run.cpp: the program `run` completes a text.
// Owns: its flags, and what goes to stdout (the completion only) and to stderr. Must not know: anything behind
// runtime.h.
// Main path: [tools/run.cpp] -> runtime.h -> runtime.cpp -> models/<family>.cpp
#include "args.h"
#include "common.h"
#include "json.h"
#include "selftest.h"

#include <atomic>
#include <csignal>

namespace {

struct run_options {
    model_options model;
    sampler_ptr sampler;
    std::string prompt, prompt_file;
    bool has_prompt = false, has_seed = false;
    uint64_t seed = 0;
    int32_t n_predict = -1;
    std::vector<std::string> stops;
    std::vector<std::pair<int32_t, double>> biases;
    bool ignore_end = false, is_json = false, show_prompt = false, show_special = false, no_bos = false,
         parse_special = false;
    bool list_devices = false, is_self_test = false, has_dry = false;
};

// A signal handler may touch only these. The pointer is set while the session exists.
std::atomic<duet_session*> running_session{nullptr};
volatile std::sig_atomic_t was_interrupted = 0;

void on_interrupt(int) {
    was_interrupted = 1;
    if (duet_session* session = running_session.load()) duet_session_cancel(session);
}

int report(const run_options& options, const tool_error& error) {
    std::fprintf(stderr, "run: %s\n", error.message.c_str());
    if (options.is_json) {
        std::printf("{\"event\":\"error\",\"code\":\"%s\",\"message\":%s}\n", duet_status_name(error.status),
                    json_string(error.message).c_str());
        return finish_output("run", kExitFailed);
    }
    return kExitFailed;
}

// ---- flags ----

// Flag names that users of other programs know. They are accepted beside the name made from the parameter.
// clang-format off
constexpr struct { const char *name, *flags; } kSamplerAliases[] = {
    {"temp", ", --temperature"},
    {"typical_p", ", --typical"},
    {"dynatemp.exponent", ", --dynatemp-exp"},
    {"dry.last_n", ", --dry-penalty-last-n"},
    {"mirostat.tau", ", --mirostat-ent"},
    {"mirostat.eta", ", --mirostat-lr"},
    {"top_n_sigma", ", --top-nsigma"},
};
// clang-format on

// The values that run sets where the table's default is "off".
// clang-format off
constexpr struct { const char* name; float value; } kSamplerDefaults[] = {
    {"temp", 0.8f}, {"top_k", 40}, {"top_p", 0.95f}, {"min_p", 0.05f},
};
// clang-format on

std::string set_sampler(run_options* options, const char* name, double value) {
    if (duet_sampler_set(options->sampler.get(), name, (float)value) == DUET_OK) return "";
    const std::string error = duet_sampler_error(options->sampler.get());  // "sampler parameter temp: want .., got -1"
    const size_t begin = error.find("want "), end = error.rfind(", got ");
    return end == std::string::npos || begin >= end ? error : error.substr(begin, end - begin);
}

void add_sampler_flags(tool_args& args, run_options* options) {
    args.section("Choice of tokens (steps run in this order):");
    const duet_sampler_param* row;
    for (int32_t i = 0; (row = duet_sampler_param_row(i)); i++) {
        const std::string name = row->name;
        std::string flags = "--" + name;
        for (char& c : flags)
            if (c == '.' || c == '_') c = '-';
        float value = row->default_value;
        for (const auto& alias : kSamplerAliases)
            if (name == alias.name) flags += alias.flags;
        for (const auto& preset : kSamplerDefaults)
            if (name == preset.name) {
                value = preset.value;
                set_sampler(options, preset.name, value);
            }
        char range[96];
        std::snprintf(range, sizeof range, " (%.8g to %.8g, default %g)", row->min_value, row->max_value, value);
        args.call(flags, "X", row->help + std::string(range), [options, name](const std::string& text) -> std::string {
            double x = 0;
            if (!parse_float(text, &x)) return "want a number";
            if (name == "dry.multiplier") options->has_dry = x > 0;
            return set_sampler(options, name.c_str(), x);
        });
    }
    args.call("--mirostat", "0|2", "2: mirostat 2 with its usual target (tau 5) instead of the truncating steps",
              [options](const std::string& text) {
                  return text == "2"   ? set_sampler(options, "mirostat.tau", 5)
                         : text == "0" ? set_sampler(options, "mirostat.tau", 0)
                                       : std::string("want 0 or 2");
              });
    args.call("--logit-bias", "ID(+/-)BIAS", "adds to one token's logit, as 15043-1.5 or 15043-inf; may be repeated",
              [options](const std::string& text) {
                  const size_t sign = text.find_first_of("+-", 1);
                  int64_t id = 0;
                  double bias = 0;
                  if (sign == std::string::npos || !parse_int(text.substr(0, sign), &id) || id < 0 || id > INT32_MAX ||
                      !parse_float(text.substr(sign), &bias))
                      return std::string("want ID+BIAS or ID-BIAS");
                  options->biases.emplace_back((int32_t)id, bias);
                  return std::string();
              });
    args.call("-s, --seed", "N", "same seed, same text, on every machine (default: from the clock, printed at the end)",
              [options](const std::string& text) {
                  int64_t n = 0;
                  if (!parse_int(text, &n) || n < -1)
                      return std::string("want a whole number from 0 to 9223372036854775807, or -1 for the clock");
                  options->has_seed = n >= 0;
                  options->seed = (uint64_t)n;
                  return std::string();
              });
}

// Flags of other programs. Those of the first list would change the result, so they are refused with advice. Those of
// the second ask for what happens anyway.
void add_foreign_flags(tool_args& args) {
    auto refuse = [&](const char* names, const char* value, const char* advice) {
        args.hidden(names, value, [advice](const std::string&) { return std::string(advice); });
    };
    refuse("-r, --reverse-prompt", "TEXT", "there is no interactive mode; --stop TEXT ends the text there");
    refuse("-i, --interactive, -cnv, --conversation", "",
           "there is no interactive mode: run completes one prompt and exits");
    for (const char* names : {"--no-display-prompt", "-no-cnv, --no-conversation", "--simple-io"})
        args.hidden(names, "", [](const std::string&) { return std::string(); });
}

void add_flags(tool_args& args, run_options* o) {
    add_model_path(args, &o->model);
    args.call("-p, --prompt", "TEXT", "text to complete; - reads it from stdin", [o](const std::string& text) {
        o->has_prompt = true;
        (text == "-" ? o->prompt_file : o->prompt) = text;
        return std::string();
    });
    args.call("-f, --file", "FILE", "reads the prompt from a file; one newline at its end is dropped",
              [o](const std::string& path) {
                  o->has_prompt = true;
                  o->prompt_file = path;
                  return std::string();
              });
    args.integer("-n, --n-predict, --predict", "N",
                 "tokens to generate (default -1: until the model ends or the context is full)", &o->n_predict, -1,
                 INT32_MAX);
    args.integer("-c, --ctx-size", "N", "tokens of context (default 0: what the model was trained with, at most 4096)",
                 &o->model.n_ctx, 0, 1 << 30);
    args.integer("-b, --batch-size", "N", "prompt tokens computed at once (default 512)", &o->model.max_batch, 1,
                 1 << 20);
    add_device_flags(args, &o->model);
    args.flag("--devices", "list what can compute and what is used (also with --json), and exit", &o->list_devices);
    args.flag("--selftest", "check every kernel of the device, and a short text, against the plain C++ code; and exit",
              &o->is_self_test);
    args.section("Text:");
    args.call("--stop", "TEXT", "ends the completion before this text; may be repeated", [o](const std::string& text) {
        if (text.empty()) return std::string("want a text");
        o->stops.push_back(text);
        return std::string();
    });
    args.flag("--ignore-eos", "never end before -n tokens or a full context", &o->ignore_end);
    args.flag("--no-bos", "do not begin with the model's BOS token", &o->no_bos);
    args.flag("--parse-special", "control tokens spelled out in the prompt become those tokens", &o->parse_special);
    args.flag("--special", "print control tokens by their names", &o->show_special);
    args.flag("--verbose-prompt", "list the prompt's tokens on stderr", &o->show_prompt);
    args.flag("--json", "one JSON object per line on stdout: token, text (without a token of its own), end, error",
              &o->is_json);
    add_sampler_flags(args, o);
    add_foreign_flags(args);
    args.section("Exit code: 0 done (also after Ctrl-C, which ends the text; a second one kills), 1 failed, 2 wrong "
                 "command line.\n");
}

// ---- output ----

struct load_progress {
    double start = now_seconds();
    bool is_shown = false;
};

int32_t on_progress(void* user, float share) {
    load_progress* progress = (load_progress*)user;
    if (now_seconds() - progress->start > 0.5) {
        const int n = (int)(share * 40);
        std::fprintf(stderr, "\rloading [%.*s%*s] %3.0f %%", n, "########################################", 40 - n, "",
                     share * 100);
        progress->is_shown = true;
    }
    return was_interrupted;
}

struct output {
    bool is_json = false;
    int write_error = 0;
};

// Prints and flushes each token, so that the reader sees it as it is made. A closed pipe ends the generation.
int32_t on_token(void* user, const duet_token_event* event) {
    output* out = (output*)user;
    errno = 0;
    if (!out->is_json) std::fwrite(event->text, 1, event->n_bytes, stdout);
    else {
        const std::string text = json_string({event->text, event->n_bytes});
        if (event->id < 0) std::printf("{\"event\":\"text\",\"text\":%s}\n", text.c_str());
        else
            std::printf("{\"event\":\"token\",\"id\":%d,\"pos\":%d,\"text\":%s}\n", event->id, event->pos,
                        text.c_str());
    }
    if (std::fflush(stdout) != 0 || std::ferror(stdout)) out->write_error = errno ? errno : EIO;
    return out->write_error != 0;
}

const char* stop_name(int32_t reason) {
    constexpr const char* kNames[] = {"end", "limit", "stop", "callback", "context", "cancelled"};
    return reason >= 0 && reason < 6 ? kNames[reason] : "error";
}

// Prints the last line on stderr. The bandwidth is measured after the text is out, so that nobody waits for it.
void print_statistics(const run_options& options, const duet_model* model, const duet_session* session,
                      const duet_memory_plan& plan, const duet_generate_result& result) {
    const duet_model_info info = info_of(model);
    // The first new token comes from the prompt's logits, so the speed counts the decode steps only.
    const double n_steps = std::max(0, duet_seq_length(session, 0) - result.n_prompt_tok);
    const double prompt_speed = result.prompt_us ? result.n_prompt_tok * 1e6 / result.prompt_us : 0;
    const double speed = result.generate_us ? n_steps * 1e6 / result.generate_us : 0;
    const double gbps = speed * info.decode_bytes / 1e9;
    const double bandwidth =
        n_steps > 0 ? duet_measure_bandwidth_gbps(device_id(info.device).c_str(), options.model.n_threads) : 0;
    const double resident = proc_bytes("/proc/self/status", "VmRSS:") / 1e6;
    const double cache = (plan.cache_bytes + plan.gpu_cache_bytes) / 1e6;
    const double work = (plan.state_bytes + plan.work_bytes + plan.gpu_state_bytes + plan.gpu_work_bytes) / 1e6;
    if (options.is_json)
        std::printf("{\"event\":\"end\",\"reason\":\"%s\",\"n_prompt\":%d,\"n_generated\":%d,\"prompt_tok_per_s\":%.2f,"
                    "\"tok_per_s\":%.2f,"
                    "\"weights_gbps\":%.3f,\"bandwidth_gbps\":%.3f,\"resident_bytes\":%.0f,\"seed\":%llu}\n",
                    stop_name(result.stop_reason), result.n_prompt_tok, result.n_new_tok, prompt_speed, speed, gbps,
                    bandwidth, resident * 1e6, (unsigned long long)options.seed);
    std::fprintf(stderr, "%sprompt %d tokens, %.1f tok/s; generated %d tokens, %.1f tok/s (%s)",
                 options.is_json ? "" : "\n", result.n_prompt_tok, prompt_speed, result.n_new_tok, speed,
                 stop_name(result.stop_reason));
    const double percent =
        bandwidth_percent(gbps, bandwidth, info.decode_bytes, std::strncmp(info.device, "cpu", 3) == 0);
    if (bandwidth > 0) std::fprintf(stderr, "; weights read at %.2f GB/s, ", gbps);
    if (bandwidth > 0 && std::isnan(percent))
        std::fprintf(stderr, "from caches or faster than memory (%.1f measured)", bandwidth);
    else if (bandwidth > 0) std::fprintf(stderr, "%.0f %% of %.1f measured", percent, bandwidth);
    std::fprintf(stderr, "; memory %.1f MB weights, %.1f cache, %.1f work, %.1f resident; seed %llu\n",
                 plan.weight_bytes / 1e6, cache, work, resident, (unsigned long long)options.seed);
}

// Prints one device, as a line or a JSON object: what it is, whether it is used, and if not, why.
void print_device(void* user, const duet_device_info* d) {
    if (*(const bool*)user) {
        std::printf("{\"event\":\"device\",\"id\":\"%s\",\"name\":%s,\"chip\":\"%s\",\"driver\":%s,\"memory_bytes\":%"
                    "llu,\"free_bytes\":%llu,"
                    "\"integrated\":%s,\"usable\":%s,\"default\":%s,\"why\":%s}\n",
                    d->id, json_string(d->name).c_str(), d->chip, json_string(d->driver).c_str(),
                    (unsigned long long)d->memory_bytes, (unsigned long long)d->free_bytes,
                    d->is_integrated ? "true" : "false", d->is_usable ? "true" : "false",
                    d->is_default ? "true" : "false", json_string(d->why).c_str());
        return;
    }
    std::string line = d->id;
    line.resize(std::max<size_t>(line.size() + 1, 8), ' ');
    line += d->is_default ? "used      " : d->is_usable ? "usable    " : "not usable";
    for (const char* part : {d->name, d->chip, d->driver})
        if (*part) line += std::string("  ") + part;
    if (d->is_integrated) line += "  integrated";
    char memory[64];
    std::snprintf(memory, sizeof memory, "  %.1f GB%s", d->memory_bytes / 1e9, d->free_bytes ? "" : " memory");
    if (d->memory_bytes) line += memory;
    std::snprintf(memory, sizeof memory, " memory, %.1f GB free", d->free_bytes / 1e9);
    if (d->free_bytes) line += memory;
    std::printf("%s\n%s%s%s", line.c_str(), *d->why ? "        " : "", d->why, *d->why ? "\n" : "");
}

int print_devices(bool is_json) {
    const duet_status status = duet_list_devices(print_device, &is_json);
    if (status != DUET_OK) return std::fprintf(stderr, "run: --devices: %s\n", duet_status_name(status)), kExitFailed;
    if (!is_json) std::printf("built with %s\n", duet_build_info());
    return finish_output("run", kExitGood);
}

// ---- the work ----

duet_status prepare_sampler(const run_options& options, const duet_model* model, tool_error* error) {
    duet_sampler* sampler = options.sampler.get();
    const duet_model_info info = info_of(model);
    duet_sampler_reset(sampler, options.seed);
    for (const auto& [id, bias] : options.biases) {
        if (id >= info.n_vocab)
            return error->set(DUET_ERR_ARG, "--logit-bias: token " + std::to_string(id) +
                                                " is not in the vocabulary of " + std::to_string(info.n_vocab) +
                                                " tokens");
        if (duet_sampler_bias(sampler, id, (float)bias)) return error->set(DUET_ERR_ARG, duet_sampler_error(sampler));
    }
    // These characters end a repeated run (defaults of the DRY proposal).
    for (int32_t id = 0; options.has_dry && id < info.n_vocab; id++) {
        if (view_of(duet_token_text(model, id)).find_first_of("\n:\"*") != std::string_view::npos &&
            duet_sampler_dry_breaker(sampler, id) != DUET_OK)
            return error->set(DUET_ERR_MEMORY, duet_sampler_error(sampler));
    }
    return DUET_OK;
}

duet_status read_prompt(run_options* options, tool_error* error) {
    if (options->prompt_file.empty()) return DUET_OK;
    const duet_status status = read_text(options->prompt_file, &options->prompt, error);
    if (!options->prompt.empty() && options->prompt.back() == '\n') options->prompt.pop_back();
    return status;
}

duet_status tokenize_prompt(const run_options& options, const duet_model* model, std::vector<int32_t>* ids,
                            tool_error* error) {
    const int32_t flags =
        (options.no_bos ? 0 : DUET_TOKENIZE_ADD_BOS) | (options.parse_special ? DUET_TOKENIZE_PARSE_SPECIAL : 0);
    const duet_status status = tokenize(model, options.prompt, flags, ids, error);
    if (status != DUET_OK) return status;
    if (ids->empty())
        return error->set(
            DUET_ERR_ARG,
            "the prompt is empty and the model begins no text by itself (no BOS token): give a text with -p");
    if (options.show_prompt)
        for (size_t i = 0; i < ids->size(); i++)
            std::fprintf(stderr, "%5zu  %6d  %s\n", i, (*ids)[i],
                         json_string(view_of(duet_token_spelling(model, (*ids)[i]))).c_str());
    return DUET_OK;
}

void tell_model(const duet_model* model, const duet_session* session, const duet_memory_plan& plan) {
    const duet_model_info info = info_of(model);
    std::fprintf(stderr, "%s %s, %s, %.1f M weights, %d layers, dim %d, %d heads (%d kv), %d tokens; device %s\n",
                 info.architecture, json_string(info.name).c_str(), info.main_type, info.n_params / 1e6, info.n_layers,
                 info.dim, info.n_heads, info.n_kv_heads, info.n_vocab, info.device);
    std::fprintf(stderr, "context %d, batch %d; memory: weights %.1f MB (mapped), cache %.1f, state %.1f, work %.1f\n",
                 duet_session_n_ctx(session), duet_session_max_batch(session), plan.weight_bytes / 1e6,
                 plan.cache_bytes / 1e6, plan.state_bytes / 1e6, plan.work_bytes / 1e6);
    if (plan.pinned_bytes)
        std::fprintf(
            stderr,
            "on the GPU: %d of %d layers%s; weights %.1f MB, cache %.1f, state %.1f, work %.1f; pinned for copies "
            "%.1f\n",
            plan.gpu_layers, info.n_layers,
            plan.cpu_expert_layers
                ? (" (experts of the first " + std::to_string(plan.cpu_expert_layers) + " layers on the CPU)").c_str()
                : "",
            plan.gpu_weight_bytes / 1e6, plan.gpu_cache_bytes / 1e6, plan.gpu_state_bytes / 1e6,
            plan.gpu_work_bytes / 1e6, plan.pinned_bytes / 1e6);
}

// Tells a user who wants the GPU, in one line, that it computes no layer or only some of them.
void tell_placement(const run_options& options, const duet_model* model, const duet_memory_plan& plan) {
    const duet_model_info info = info_of(model);
    const int32_t asked = options.model.gpu_layers;
    if (std::strncmp(info.device, "cpu", 3) == 0) {
        if (asked > 0) std::fprintf(stderr, "run: no GPU is used, all layers run on the CPU; --devices tells why\n");
    } else if (plan.gpu_layers < (asked < 0 ? info.n_layers : std::min(asked, info.n_layers)))
        std::fprintf(stderr, "run: %d of %d layers fit the memory of %s, the others run on the CPU\n", plan.gpu_layers,
                     info.n_layers, info.device);
}

duet_status generate(const run_options& options, const duet_model* model, duet_session* session,
                     const duet_memory_plan& plan, const std::vector<int32_t>& ids, tool_error* error) {
    std::vector<const char*> stops;
    for (const std::string& stop : options.stops) stops.push_back(stop.c_str());
    duet_generate_params params = duet_generate_params_default();
    params.max_new_tok = options.n_predict;
    params.ignore_end = options.ignore_end;
    params.special = options.show_special;
    params.stop = stops.data();
    params.n_stop = (int32_t)stops.size();
    duet_generate_result result = {};
    result.struct_size = sizeof result;
    output out{options.is_json, 0};
    duet_status status =
        duet_generate(session, options.sampler.get(), ids.data(), ids.size(), &params, on_token, &out, &result);
    if (status == DUET_ERR_CANCELLED && was_interrupted) status = DUET_OK;
    if (out.write_error) {
        // A reader that closes the pipe early (`run | head`) is not worth a message.
        if (out.write_error != EPIPE)
            std::fprintf(stderr, "run: cannot write to stdout: %s\n", std::strerror(out.write_error));
        return DUET_ERR_IO;
    }
    if (status != DUET_OK) return error->set(status, duet_session_error(session));
    print_statistics(options, model, session, plan, result);
    return finish_output("run", kExitGood) == kExitGood ? DUET_OK : DUET_ERR_IO;
}

int complete(run_options& options) {
    tool_error error;
    model_ptr model;
    session_ptr session;
    load_progress progress;
    if (isatty(STDERR_FILENO)) {
        options.model.progress = on_progress;
        options.model.progress_user = &progress;
    }
    if (read_prompt(&options, &error) != DUET_OK) return report(options, error);
    const duet_status status = open_model(options.model, &model, &error);
    auto clear_progress = [&] {
        if (progress.is_shown) std::fprintf(stderr, "\r%60s\r", "");
        progress.is_shown = false;
    };
    clear_progress();
    if (status != DUET_OK) return report(options, error);
    std::vector<int32_t> ids;
    duet_memory_plan plan = {};
    if (tokenize_prompt(options, model.get(), &ids, &error) != DUET_OK ||
        prepare_sampler(options, model.get(), &error) != DUET_OK)
        return report(options, error);
    const duet_status opened = open_session(model.get(), options.model, 1, &session, &plan, &error);
    clear_progress();
    if (opened != DUET_OK) return report(options, error);
    tell_placement(options, model.get(), plan);
    if (options.model.is_verbose) tell_model(model.get(), session.get(), plan);
    running_session = session.get();
    if (was_interrupted) duet_session_cancel(session.get());
    const duet_status result = generate(options, model.get(), session.get(), plan, ids, &error);
    running_session = nullptr;
    if (error.status != DUET_OK) return report(options, error);
    return result == DUET_OK ? kExitGood : kExitFailed;
}

}  // namespace

int main(int argc, char** argv) {
    run_options options;
    duet_sampler* sampler = nullptr;
    if (duet_sampler_create(0, &sampler) != DUET_OK) return std::fputs("run: out of memory\n", stderr), kExitFailed;
    options.sampler.reset(sampler);
    tool_args args("run", "-m model.gguf -p \"text\" [options]",
                   "Completes a text with a model. Only the completion goes to stdout.");
    add_flags(args, &options);
    if (int code; !args.parse(argc, argv, &code)) return code;
    if (options.list_devices || options.model.device == "list") return print_devices(options.is_json);
    if (options.is_self_test)
        return finish_tool("run", [&](tool_error* error) { return self_test(options.model, error); });
    if (options.model.path.empty()) return args.usage_error("no model: want -m FILE"), kExitUsage;
    if (!options.has_prompt) return args.usage_error("no prompt: want -p TEXT, -p - (stdin) or -f FILE"), kExitUsage;
    if (!options.prompt.empty() && !options.prompt_file.empty())
        return args.usage_error("two prompts: want -p or -f, not both"), kExitUsage;
    if (!options.has_seed) {
        const auto ticks = std::chrono::system_clock::now().time_since_epoch().count();
        options.seed = (uint32_t)((uint64_t)ticks ^ (uint64_t)ticks >> 32 ^ (uint64_t)getpid() << 12);
    }
    struct sigaction action = {};
    action.sa_handler = on_interrupt;
    action.sa_flags = SA_RESETHAND;  // the second Ctrl-C kills
    sigaction(SIGINT, &action, nullptr);
    try {
        return complete(options);
    } catch (const std::bad_alloc&) {
        tool_error error;
        error.set(DUET_ERR_MEMORY, "out of memory");
        return report(options, error);
    }
}
