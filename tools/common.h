// tools/common.h: what the programs share. All choose model, context and device by the same flags, open them and report
// errors in the same form, read texts and lists of ids, compare speeds with the memory's bandwidth, and end in the same
// way.
// Uses runtime.h and tools/os.h only. Must not know: what is computed.
#pragma once
#include "../runtime.h"
#include "args.h"

#include <bit>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <functional>
#include <memory>
#include <new>

static_assert(std::endian::native == std::endian::little, "floats are written to files as they lie in memory");

struct handle_deleter {
    void operator()(duet_model* p) const { duet_model_free(p); }
    void operator()(duet_session* p) const { duet_session_free(p); }
    void operator()(duet_sampler* p) const { duet_sampler_free(p); }
    void operator()(duet_writer* p) const { duet_writer_free(p); }
    void operator()(duet_file* p) const { duet_file_free(p); }
    void operator()(duet_chat* p) const { duet_chat_free(p); }
    void operator()(duet_chat_turn* p) const { duet_chat_turn_free(p); }
    void operator()(duet_grammar* p) const { duet_grammar_free(p); }
    void operator()(duet_text_gate* p) const { duet_text_gate_free(p); }
    void operator()(duet_chat_parser* p) const { duet_chat_parser_free(p); }
};
using model_ptr = std::unique_ptr<duet_model, handle_deleter>;
using session_ptr = std::unique_ptr<duet_session, handle_deleter>;
using sampler_ptr = std::unique_ptr<duet_sampler, handle_deleter>;
using writer_ptr = std::unique_ptr<duet_writer, handle_deleter>;
using file_ptr = std::unique_ptr<duet_file, handle_deleter>;
using chat_ptr = std::unique_ptr<duet_chat, handle_deleter>;
using turn_ptr = std::unique_ptr<duet_chat_turn, handle_deleter>;
using grammar_ptr = std::unique_ptr<duet_grammar, handle_deleter>;

inline std::string_view view_of(const duet_string& s) { return {s.data ? s.data : "", (size_t)s.n_bytes}; }

// A struct of zeros that knows its size, for what the library fills.
template <class T> T sized() {
    T out = {};
    out.struct_size = sizeof out;
    return out;
}

inline double now_seconds() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// The first error, in the form that a tool prints.
struct tool_error {
    duet_status status = DUET_OK;
    std::string message;
    duet_status set(duet_status code, const std::string& text) {
        status = code;
        message = text.empty() ? duet_status_name(code) : text;
        if (code == DUET_ERR_FULL && text.find("n_ctx") != text.npos) message += " (-c N is n_ctx)";
        return code;
    }
};

// Ends a program: runs its work, prints the error, returns the exit code.
template <class work_fn> int finish_tool(const char* tool, work_fn work) {
    tool_error error;
    os::report_large_files();
    try {
        if (work(&error) == DUET_OK) return finish_output(tool, kExitGood);
    } catch (const std::bad_alloc&) { error.set(DUET_ERR_MEMORY, "out of memory"); }
    std::fprintf(stderr, "%s: %s\n", tool, error.message.c_str());
    return kExitFailed;
}

struct model_options {
    std::string path, device = "auto", isa = "auto";
    int32_t n_threads = 0, n_ctx = 0, max_batch = 512, cache_type = DUET_CACHE_F16;
    int32_t gpu_layers = -1, cpu_expert_layers = -1, rope_original_ctx = 0;
    std::string rope_scaling;
    double rope_scale = 0, rope_freq_base = 0;
    int64_t cache_tokens = 0;
    bool is_verbose = false, vocab_only = false, fast = false, is_copy = false;
    duet_progress_fn progress = nullptr;
    void* progress_user = nullptr;
    duet_log_fn log = nullptr;  // null: print_log
    void* log_user = nullptr;
    duet_input_fn inputs = nullptr;
    void* inputs_user = nullptr;
};

inline void add_model_path(tool_args& args, model_options* options) {
    args.text("-m, --model", "FILE", "the model, a GGUF file (of a split model the first part)", &options->path);
}

constexpr int32_t kMaxThreads = 1024;

inline void add_device_flags(tool_args& args, model_options* options, bool with_threads = true) {
    if (with_threads)
        args.integer("-t, --threads", "N", "threads (0: one per physical core)", &options->n_threads, 0, kMaxThreads);
    args.choice("-ctk, --cache-type, --cache-type-k", "f16|f32|q8_0",
                "number format of the attention cache (default f16; encoders' vectors: f32)", &options->cache_type);
    args.text("--device", "NAME",
              "where to compute: auto, cpu, cuda, hip, or a device of run --devices, as cuda:1 (default auto)",
              &options->device);
    args.call("-ngl, --gpu-layers, --n-gpu-layers", "auto|N",
              "layers on the GPU, the others on the CPU (default auto: as many as fit)",
              [options](const std::string& text) {
                  int64_t n = -1;
                  if (text != "auto" && text != "all" && (!parse_int(text, &n) || n < -1 || n > INT32_MAX))
                      return std::string("want auto or a number of layers");
                  return options->gpu_layers = text == "all" ? INT32_MAX : (int32_t)n, std::string();
              });
    args.integer("-ncmoe, --n-cpu-moe", "N", "experts of the first N layers on the CPU (default -1: as few as needed)",
                 &options->cpu_expert_layers, -1, INT32_MAX);
    args.text("--cpu-isa", "ISA",
              "auto, or an instruction set that --version lists: the bits are the same (default auto)", &options->isa);
    args.flag("--fast",
              "prompts of BF16 weights (GPUs: also F16 and attention) faster, less exactly, where units allow it",
              &options->fast);
    args.flag("--no-mmap", "read the file into memory, in large pages: it may change meanwhile", &options->is_copy);
    args.flag("-v, --verbose", "tell more on stderr", &options->is_verbose);
}

// For contexts longer than the model was trained with.
inline void add_rope_flags(tool_args& args, model_options* options) {
    args.text("--rope-scaling", "none|linear|yarn", "how positions are squeezed (default: as the file says)",
              &options->rope_scaling);
    const auto number = [&](const char* name, const char* help, double* out) {
        args.call(name, "N", help, [out](const std::string& text) {
            return parse_float(text, out) && *out >= 0 ? std::string() : std::string("want a number of 0 or more");
        });
    };
    number("--rope-scale", "the context grows by this factor (default 0: the file's)", &options->rope_scale);
    number("--rope-freq-base", "rope's base frequency (default 0: the file's)", &options->rope_freq_base);
    args.integer("--yarn-orig-ctx", "N", "tokens of context before yarn (default 0: the file's)",
                 &options->rope_original_ctx, 0, 1 << 30);
}

inline void print_log(void* user, int32_t level, const char* text) {
    if (level >= DUET_LOG_WARN || *(const bool*)user)
        std::fprintf(stderr, "%s%s\n", level >= DUET_LOG_WARN ? "warning: " : "", text);
}

inline duet_model_params model_params_of(const model_options& options) {
    duet_model_params params = duet_model_params_default();
    params.vocab_only = options.vocab_only;
    params.device = options.device.c_str();
    params.cpu_isa = options.isa.c_str();
    params.n_threads = options.n_threads;
    params.gpu_layers = options.gpu_layers;
    params.cpu_expert_layers = options.cpu_expert_layers;
    params.fast = options.fast;
    params.load = options.is_copy ? DUET_LOAD_COPY : DUET_LOAD_MAP;
    params.rope_scaling = options.rope_scaling.empty() ? nullptr : options.rope_scaling.c_str();
    params.rope_scale = (float)options.rope_scale;
    params.rope_freq_base = (float)options.rope_freq_base;
    params.rope_original_ctx = options.rope_original_ctx;
    params.progress = options.progress;
    params.progress_user = options.progress_user;
    params.log = options.log ? options.log : print_log;
    params.log_user = options.log ? options.log_user : (void*)&options.is_verbose;
    return params;
}

inline duet_model_info info_of(const duet_model* model) {
    auto info = sized<duet_model_info>();
    if (duet_model_get_info(model, &info) != DUET_OK) info = {};
    return info;
}

// Returns the name, such as "cuda:0", from the text that describes a model's device.
inline std::string device_id(const char* text) { return std::string(text, std::strcspn(text, " ,")); }

// Opens the options' file, or the n_bytes of a file in memory.
inline duet_status open_model(const model_options& options, model_ptr* out, tool_error* error,
                              const void* memory = nullptr, uint64_t n_bytes = 0) {
    const duet_model_params params = model_params_of(options);
    duet_model* model = nullptr;
    const duet_status status = memory ? duet_model_open_memory(memory, n_bytes, &params, &model)
                                      : duet_model_open(options.path.c_str(), &params, &model);
    out->reset(model);
    return status == DUET_OK ? DUET_OK : error->set(status, model ? duet_model_error(model) : "");
}

// Creates the session, after checking that enough memory is available: a system that overcommits memory would kill the
// process later. plan may be NULL.
inline duet_status open_session(const duet_model* model, const model_options& options, int32_t n_seqs, session_ptr* out,
                                duet_memory_plan* plan, tool_error* error) {
    duet_memory_plan own = {};
    if (!plan) plan = &own;
    duet_session_params params = duet_session_params_default();
    params.n_ctx = options.n_ctx;
    params.n_seqs = n_seqs;
    params.max_batch = options.max_batch;
    params.cache_type = options.cache_type;
    params.cache_tokens = options.cache_tokens;
    params.inputs = options.inputs;
    params.inputs_user = options.inputs_user;
    plan->struct_size = sizeof *plan;
    if (const duet_status status = duet_session_plan(model, &params, plan))
        return error->set(status, duet_model_error(model));
    if (const int32_t n = info_of(model).n_ctx_train; params.n_ctx > n)
        std::fprintf(stderr, "warning: a context of %d tokens; the model was trained with %d and may fail beyond\n",
                     params.n_ctx, n);
    const uint64_t need = plan->cache_bytes + plan->state_bytes + plan->work_bytes + plan->pinned_bytes;
    if (plan->free_bytes && need > plan->free_bytes) {
        char text[256];
        std::snprintf(
            text, sizeof text,
            "the session needs %.2f GB beside the model (cache %.2f, state %.2f, work %.2f), the system has %.2f GB"
            " left: take a smaller context (-c) or batch (-b)",
            need / 1e9, plan->cache_bytes / 1e9, plan->state_bytes / 1e9, plan->work_bytes / 1e9,
            plan->free_bytes / 1e9);
        return error->set(DUET_ERR_MEMORY, text);
    }
    duet_session* session = nullptr;
    const duet_status status = duet_session_create(model, &params, &session);
    out->reset(session);
    if (status != DUET_OK) return error->set(status, session ? duet_session_error(session) : duet_model_error(model));
    // A GPU may have taken less than planned.
    if (const duet_status planned = duet_session_plan(model, &params, plan))
        return error->set(planned, duet_model_error(model));
    return DUET_OK;
}

constexpr size_t kMaxTextBytes = (size_t)256 << 20;

// Reads the whole file; the path "-" means stdin. The file is opened without blocking, so a FIFO without a writer reads
// as empty instead of blocking for ever. The mark that editors of Windows put before UTF-8 is left out; UTF-16, which
// `>` of its PowerShell 5 writes, is refused, because all its bytes would be taken for a text.
inline duet_status read_text(const std::string& path, std::string* out, tool_error* error,
                             size_t max_bytes = kMaxTextBytes) {
    const bool is_stdin = path == "-";
    if (!is_stdin && os::kind_of(path) == os::file_kind::folder)
        return error->set(DUET_ERR_IO, path + ": is a directory, want a text file");
    const int fd = is_stdin ? 0 : os::open_to_read(path);
    if (fd < 0) return error->set(DUET_ERR_IO, path + ": cannot be read: " + std::strerror(errno));
    std::unique_ptr<const int, void (*)(const int*)> closer(&fd, [](const int* p) { *p ? os::close(*p) : void(); });
    out->clear();
    for (std::vector<char> buffer(1 << 16);;) {
        const int64_t n = os::read(fd, buffer.data(), buffer.size());
        if (n == 0 && (out->starts_with("\xff\xfe") || out->starts_with("\xfe\xff")))
            return error->set(DUET_ERR_FORMAT, path + ": want UTF-8, got UTF-16");
        if (n == 0) return out->erase(0, out->starts_with("\xef\xbb\xbf") ? 3 : 0), DUET_OK;
        if (n < 0) return error->set(DUET_ERR_IO, path + ": cannot be read: " + std::strerror(errno));
        if (out->size() + (size_t)n > max_bytes)
            return error->set(DUET_ERR_IO, path + ": longer than " + std::to_string(max_bytes >> 20) + " MiB");
        out->append(buffer.data(), (size_t)n);
    }
}

// Drops one end of line from the end of a text: "\n" or "\r\n".
inline void drop_newline(std::string* text) {
    if (text->ends_with('\n')) text->resize(text->size() - 1 - text->ends_with("\r\n"));
}

// The values of sampling that run and serve set where the library's default is "off".
// clang-format off
constexpr struct { const char* name; double value; } kSamplerDefaults[] = {
    {"temp", 0.8}, {"top_k", 40}, {"top_p", 0.95}, {"min_p", 0.05},
};
// clang-format on

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

// A flag for each parameter of the sampler table. set(row, value) returns "", or what is wanted.
inline void add_sampler_params(tool_args& args,
                               const std::function<std::string(const duet_sampler_param& row, double value)>& set) {
    const duet_sampler_param* row;
    for (int32_t i = 0; (row = duet_sampler_param_row(i)); i++) {
        const std::string name = row->name;
        std::string flags = "--" + name;
        for (char& c : flags)
            if (c == '.' || c == '_') c = '-';
        double value = row->default_value;
        for (const auto& alias : kSamplerAliases)
            if (name == alias.name) flags += alias.flags;
        for (const auto& preset : kSamplerDefaults)
            if (name == preset.name) value = preset.value;
        char range[96];
        std::snprintf(range, sizeof range, " (%g to %.8g, default %g)", row->min_value, row->max_value, value);
        args.call(flags, "X", row->help + std::string(range), [set, row](const std::string& text) -> std::string {
            double x = 0;
            return parse_float(text, &x) ? set(*row, x) : "want a number";
        });
    }
}

// What a flag says of a value that the sampler does not take; empty where it takes it.
inline std::string set_sampler(duet_sampler* sampler, const char* name, double value) {
    if (duet_sampler_set(sampler, name, (float)value) == DUET_OK) return "";
    const std::string error = duet_sampler_error(sampler);  // "sampler parameter temp: want .., got -1"
    const size_t begin = error.find("want "), end = error.rfind(", got ");
    return end == std::string::npos || begin >= end ? error : error.substr(begin, end - begin);
}

// Writes a file beside the path and renames it: a failure leaves no half file, and an older file as it was.
inline duet_status write_file(const std::string& path, std::string_view bytes, tool_error* error,
                              bool is_private = false) {
    const int why = os::replace_file(path, bytes, is_private);
    return why == 0 ? DUET_OK : error->set(DUET_ERR_IO, path + ": cannot be written: " + std::strerror(why));
}

// Tells before the work what cannot be written after it, or would be written over an input. path may be empty.
inline duet_status check_output(const std::string& path, std::initializer_list<std::string> inputs, tool_error* error) {
    if (path.empty()) return DUET_OK;
    for (const std::string& in : inputs)
        if (os::is_same_file(in, path)) return error->set(DUET_ERR_ARG, path + ": is read, so it is not written");
    if (path == "-" || os::kind_of(path) > os::file_kind::regular)
        return error->set(DUET_ERR_IO, path + ": want a file, found a directory, a device or stdout");
    const std::string beside = os::resolved(path) + ".part" + std::to_string(os::process_id());
    if (const int why = os::replace_file(beside, "", false))
        return error->set(DUET_ERR_IO, path + ": cannot be written: " + std::strerror(why));
    return os::remove(beside), DUET_OK;
}

inline duet_status write_stdout(std::string_view bytes, tool_error* error) {
    const bool is_good = std::fwrite(bytes.data(), 1, bytes.size(), stdout) == bytes.size() && std::fflush(stdout) == 0;
    return is_good ? DUET_OK : error->set(DUET_ERR_IO, std::string("writing failed: ") + std::strerror(errno));
}

// Resizes *out to what fill(out, &size) wrote. Where that finds the guess too small, a second call gets the size that
// the first one returned.
template <class container, class fill_fn> duet_status fill_sized(size_t guess, container* out, fill_fn fill) {
    duet_status status = DUET_ERR_FULL;
    for (size_t n = guess, tries = 0; status == DUET_ERR_FULL && tries < 2; tries++) {
        out->resize(n);
        status = fill(out, &n);
        out->resize(status == DUET_OK ? n : 0);
    }
    return status;
}

inline duet_status tokenize(const duet_model* model, const std::string& text, int32_t flags, std::vector<int32_t>* ids,
                            tool_error* error) {
    const duet_status status = fill_sized(text.size() + 16, ids, [&](auto* out, size_t* n_ids) {
        return duet_tokenize(model, text.data(), text.size(), flags, out->data(), out->size(), n_ids);
    });
    return status == DUET_OK ? DUET_OK : error->set(status, duet_model_error(model));
}

// Bytes of this processor's largest cache; 8 MB if the system does not say. A model that fits is read from the cache,
// not from memory.
inline uint64_t largest_cache_bytes() {
    const uint64_t n_bytes = os::largest_cache_bytes();
    return n_bytes ? n_bytes : 8u << 20;
}

// Returns the percentage of the memory bandwidth that reading weights used. Returns NaN where the percentage means
// nothing: the n_bytes of one pass fit the processor's caches, or the rate was above the bandwidth.
inline double bandwidth_percent(double gbps, double bandwidth, uint64_t n_bytes, bool is_cpu) {
    if (bandwidth <= 0 || gbps > bandwidth || (is_cpu && n_bytes <= largest_cache_bytes())) return NAN;
    return 100 * gbps / bandwidth;
}

// Returns a tensor's dimensions: 256 x 512.
inline std::string shape_text(const duet_tensor& t, const char* between = " x ") {
    std::string text;
    for (int32_t d = 0; d < t.n_dims; d++) text += (d ? between : "") + std::to_string(t.dims[d]);
    return text;
}

// Returns the text without blanks around it.
inline std::string_view trimmed(std::string_view text) {
    constexpr const char* kBlanks = " \t\r\n";
    text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
    return text.substr(0, text.find_last_not_of(kBlanks) + 1);
}

// Reads numbers that are separated by commas or blanks. They stand bare, as a JSON array, or as the array "tokens" or
// "ids" of a JSON object. An empty place between two commas is an error, because a number was forgotten.
inline duet_status parse_ids(std::string_view text, const char* source, std::vector<int32_t>* ids, tool_error* error) {
    auto wrong = [&](const std::string& what) {
        return error->set(DUET_ERR_FORMAT, std::string(source) + ": " + what);
    };
    text = trimmed(text);
    const bool is_object = !text.empty() && text[0] == '{';
    if (is_object) {
        size_t at = text.find("\"tokens\"");
        if (at == std::string_view::npos) at = text.find("\"ids\"");
        const size_t bracket = text.find('[', at);
        if (bracket == text.npos) return wrong("want an array \"tokens\" or \"ids\" in the object, found none");
        text.remove_prefix(bracket);
    }
    if (!text.empty() && text[0] == '[') {
        const size_t end = text.find(']');
        if (end == std::string_view::npos) return wrong("the array of ids has no end");
        if (!is_object && end + 1 < text.size()) return wrong("want nothing after the array of ids");
        text = text.substr(1, end - 1);
    }
    for (bool is_after_comma = false;;) {
        text = trimmed(text);
        const bool is_comma = !text.empty() && text[0] == ',';
        if ((is_after_comma && (is_comma || text.empty())) || (is_comma && ids->empty()))
            return wrong("id " + std::to_string(ids->size()) + ": want a number " +
                         (is_after_comma ? "after the comma" : "before the comma"));
        if (text.empty()) break;
        is_after_comma = is_comma;
        if (is_comma) {
            text.remove_prefix(1);
            continue;
        }
        const std::string_view word = text.substr(0, text.find_first_of(" \t\r\n,"));
        int64_t id = 0;
        if (!parse_int(word, &id) || id < 0 || id > INT32_MAX)
            return wrong("id " + std::to_string(ids->size()) + ": want a whole number from 0 to 2147483647, got '" +
                         std::string(word.substr(0, 40)) + "'");
        ids->push_back((int32_t)id);
        text.remove_prefix(word.size());
    }
    return ids->empty() ? wrong("want at least one id, found none") : DUET_OK;
}
