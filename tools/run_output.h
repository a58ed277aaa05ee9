// tools/run_output.h: what `run` prints: the model's text, progress, statistics, errors.
// Owns: what goes to stdout (the text only) and to stderr. Must not know: how text is made.
#pragma once
#include "json.h"
#include "run_options.h"

#include <atomic>

// A signal handler may touch only these. The pointer is set while there is something to stop.
inline std::atomic<duet_session*> running_session{nullptr};
inline volatile std::sig_atomic_t was_interrupted = 0;

inline void on_interrupt(int) {
    was_interrupted = 1;
    if (duet_session* session = running_session.load()) duet_session_cancel(session);
}

struct load_progress {
    double start = now_seconds();
    bool is_shown = false;

    void clear() {
        if (is_shown) std::fprintf(stderr, "\r%60s\r", "");
        is_shown = false;
    }
};

inline int32_t on_progress(void* user, float share) {
    load_progress* progress = (load_progress*)user;
    if (now_seconds() - progress->start > 0.5) {
        const int n = (int)(share * 40);
        std::fprintf(stderr, "\rloading [%.*s%*s] %3.0f %%", n, "########################################", 40 - n, "",
                     share * 100);
        progress->is_shown = true;
    }
    return was_interrupted;
}

// Returns the text with control characters other than newline and tab in a visible form: what a model writes must not
// drive the terminal.
inline std::string visible_text(std::string_view text) {
    std::string out;
    for (size_t i = 0; i < text.size(); i++) {
        const uint8_t c = (uint8_t)text[i], c1 = c == 0xc2 && i + 1 < text.size() ? (uint8_t)text[i + 1] : 0;
        char form[8];
        if (c1 >= 0x80 && c1 < 0xa0) {
            std::snprintf(form, sizeof form, "<%02x>", c1);
            out += form;
            i++;
        } else if ((c < 0x20 && c != '\n' && c != '\t') || c == 0x7f) out += {'^', (char)(c ^ 0x40)};
        else out += (char)c;
    }
    return out;
}

// What goes to stdout. The text of a model is flushed piece by piece, so that the reader sees it as it is made.
struct output {
    bool is_json = false, is_terminal = os::is_terminal(1);
    int write_error = 0;

    void put(std::string_view text) {
        errno = 0;
        std::fwrite(text.data(), 1, text.size(), stdout);
        if ((std::fflush(stdout) != 0 || std::ferror(stdout)) && !write_error) write_error = errno ? errno : EIO;
    }
    void put_text(std::string_view text) { put(is_terminal ? visible_text(text) : std::string(text)); }
    // Tells that stdout takes no more. A reader that closes the pipe early (`run | head`) is not worth a message.
    duet_status failure() const {
        if (write_error && write_error != EPIPE)
            std::fprintf(stderr, "run: cannot write to stdout: %s\n", std::strerror(write_error));
        return write_error ? DUET_ERR_IO : DUET_OK;
    }
};

// Prints each token. A closed pipe ends the generation.
inline int32_t on_token(void* user, const duet_token_event* event) {
    output* out = (output*)user;
    const std::string_view text(event->text, event->n_bytes);
    const std::string ids = ",\"id\":" + std::to_string(event->id) + ",\"pos\":" + std::to_string(event->pos);
    if (!out->is_json) out->put_text(text);
    else
        out->put((event->id < 0 ? "{\"event\":\"text\"" : "{\"event\":\"token\"" + ids) +
                 ",\"text\":" + json_string(text) + "}\n");
    return out->write_error != 0;
}

inline int report(const run_options& options, const tool_error& error) {
    std::fprintf(stderr, "run: %s\n", visible_text(error.message).c_str());
    if (!options.is_json) return kExitFailed;
    std::printf("{\"event\":\"error\",\"code\":\"%s\",\"message\":%s}\n", duet_status_name(error.status),
                json_string(error.message).c_str());
    return finish_output("run", kExitFailed);
}

inline const char* stop_name(int32_t reason) {
    constexpr const char* kNames[] = {"end", "limit", "stop", "callback", "context", "cancelled"};
    return reason >= 0 && reason < 6 ? kNames[reason] : "error";
}

// What the last line says. The first new token comes from the prompt's logits, so n_steps may be one less than
// n_new_tok.
struct run_statistics {
    int32_t n_prompt_tok = 0, n_reused_tok = 0, n_new_tok = 0, n_steps = 0, stop_reason = DUET_STOP_NONE;
    uint64_t prompt_us = 0, generate_us = 0;
};

// Prints the last line on stderr. The bandwidth is measured only for -v, because that takes a moment, for small models
// 640 MB too, and not after Ctrl-C, which is to end the program at once.
inline void print_statistics(const run_options& options, const duet_model* model, const duet_memory_plan& plan,
                             const run_statistics& result) {
    const duet_model_info info = info_of(model);
    // The speed counts the decode steps only.
    const double n_steps = std::max(0, result.n_steps);
    const double prompt_speed =
        result.prompt_us ? (result.n_prompt_tok - result.n_reused_tok) * 1e6 / result.prompt_us : 0;
    const double speed = result.generate_us ? n_steps * 1e6 / result.generate_us : 0;
    const double gbps = speed * info.decode_bytes / 1e9;
    const double bandwidth =
        n_steps > 0 && !was_interrupted && options.model.is_verbose
            ? duet_measure_bandwidth_gbps(device_id(info.device).c_str(), model, options.model.n_threads)
            : 0;
    const double resident = os::memory_used() / 1e6, cache = (plan.cache_bytes + plan.gpu_cache_bytes) / 1e6;
    const double work = (plan.state_bytes + plan.work_bytes + plan.gpu_state_bytes + plan.gpu_work_bytes) / 1e6;
    if (options.is_json)
        std::printf("{\"event\":\"end\",\"reason\":\"%s\",\"n_prompt\":%d,\"n_generated\":%d,\"n_reused\":%d,"
                    "\"prompt_tok_per_s\":%.2f,\"tok_per_s\":%.2f,"
                    "\"weights_gbps\":%.3f,\"bandwidth_gbps\":%.3f,\"resident_bytes\":%.0f,\"seed\":%llu}\n",
                    stop_name(result.stop_reason), result.n_prompt_tok, result.n_new_tok, result.n_reused_tok,
                    prompt_speed, speed, gbps, bandwidth, resident * 1e6, (unsigned long long)options.seed);
    std::fflush(stdout);
    const std::string reused = result.n_reused_tok ? " (" + std::to_string(result.n_reused_tok) + " known)" : "";
    std::fprintf(stderr, "%sprompt %d tokens%s, %.1f tok/s; generated %d tokens, %.1f tok/s (%s)",
                 options.is_json || options.is_chat ? "" : "\n", result.n_prompt_tok, reused.c_str(), prompt_speed,
                 result.n_new_tok, speed, stop_name(result.stop_reason));
    const double percent =
        bandwidth_percent(gbps, bandwidth, info.decode_bytes, std::strncmp(info.device, "cpu", 3) == 0);
    if (bandwidth > 0) std::fprintf(stderr, "; weights read at %.2f GB/s, ", gbps);
    if (bandwidth > 0 && std::isnan(percent))
        std::fprintf(stderr, "from caches or faster than memory (%.1f measured)", bandwidth);
    else if (bandwidth > 0) std::fprintf(stderr, "%.0f %% of %.1f measured", percent, bandwidth);
    std::fprintf(stderr, "; memory %.1f MB weights, %.1f cache, %.1f work, %.1f resident; seed %llu\n",
                 plan.weight_bytes / 1e6, cache, work, resident, (unsigned long long)options.seed);
}

// Prints a token of the prompt (--verbose-prompt).
inline void print_token(const duet_model* model, size_t i, int32_t id) {
    std::fprintf(stderr, "%5zu  %6d  %s\n", i, id, json_string(view_of(duet_token_spelling(model, id))).c_str());
}

inline void tell_model(const run_options& options, const duet_model* model, const duet_session* session,
                       const duet_memory_plan& plan) {
    const duet_model_info info = info_of(model);
    std::fprintf(stderr, "%s %s, %s, %.1f M weights, %d layers, dim %d, %d heads (%d kv), %d tokens; device %s\n",
                 info.architecture, json_string(info.name).c_str(), info.main_type, info.n_params / 1e6, info.n_layers,
                 info.dim, info.n_heads, info.n_kv_heads, info.n_vocab, info.device);
    std::fprintf(stderr, "context %d, batch %d; memory: weights %.1f MB%s, cache %.1f, state %.1f, work %.1f\n",
                 duet_session_n_ctx(session), duet_session_max_batch(session), plan.weight_bytes / 1e6,
                 options.model.is_copy ? "" : " (mapped)", plan.cache_bytes / 1e6, plan.state_bytes / 1e6,
                 plan.work_bytes / 1e6);
    if (plan.pinned_bytes)
        std::fprintf(
            stderr, "on the GPU: %d of %d layers%s; weights %.1f MB, cache %.1f, state %.1f, work %.1f; pinned %.1f\n",
            plan.gpu_layers, info.n_layers,
            plan.cpu_expert_layers
                ? (" (experts of the first " + std::to_string(plan.cpu_expert_layers) + " layers on the CPU)").c_str()
                : "",
            plan.gpu_weight_bytes / 1e6, plan.gpu_cache_bytes / 1e6, plan.gpu_state_bytes / 1e6,
            plan.gpu_work_bytes / 1e6, plan.pinned_bytes / 1e6);
}

// Tells a user who wants the GPU, in one line, that it computes no layer or only some of them.
inline void tell_placement(const run_options& options, const duet_model* model, const duet_memory_plan& plan) {
    const duet_model_info info = info_of(model);
    const int32_t asked = options.model.gpu_layers;
    if (std::strncmp(info.device, "cpu", 3) == 0) {
        if (asked > 0) std::fprintf(stderr, "run: no GPU is used, all layers run on the CPU; --devices tells why\n");
    } else if (plan.gpu_layers < (asked < 0 ? info.n_layers : std::min(asked, info.n_layers)))
        std::fprintf(stderr, "run: %d of %d layers fit the memory of %s, the others run on the CPU\n", plan.gpu_layers,
                     info.n_layers, info.device);
}
