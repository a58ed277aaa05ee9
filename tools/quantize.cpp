// tools/quantize.cpp: the program `quantize` writes a model in another number format.
// Owns: the work by pieces on all cores, progress, and what happens to the file when something fails. Must not know:
// which tensor gets which format (tools/quantize_mix.h says), how a format is searched for (duet_quantize_row does),
// anything that runtime.h does not say.
// Main path: [tools/quantize.cpp] -> runtime.h -> runtime/formats.cpp, models/gguf_write.cpp
//
// The writer of runtime.h asks for the bytes of the new file, one piece of a tensor after the other. Each piece is cut
// into chunks. A thread takes the next chunk, decodes it, encodes it, and puts the blocks where they belong. So only a
// few pieces are in memory at a time, whatever the model's size, and the bytes do not depend on the number of threads.
#include "quantize_mix.h"

#include <atomic>
#include <csignal>
#include <thread>

namespace {

constexpr int64_t kChunkElems = 1 << 16;  // a multiple of every block; 0.5 to 60 ms of work

// ---- signals ------------------------------------------------------------------------------------------------------

// The signal that asked the program to end; 0: none. The work polls it, and removes what was written.
volatile std::sig_atomic_t ending_signal = 0;
void on_signal(int number) { ending_signal = number; }

// ---- progress -----------------------------------------------------------------------------------------------------

// Shows on stderr how much of the input is done and how much time is left. A terminal gets one line that is
// overwritten; other outputs get a new line every ten seconds.
class progress_line {
  public:
    progress_line(bool is_quiet, uint64_t n_bytes) : is_quiet_(is_quiet), n_bytes_((double)n_bytes) {}

    void tell(const std::string& what, double n_done_bytes) {
        const double now = now_seconds();
        if (is_quiet_ || now - told_ < (is_terminal_ ? 0.2 : 10.0)) return;
        told_ = now;
        const double share = n_bytes_ > 0 ? n_done_bytes / n_bytes_ : 0, spent = now - began_;
        char left[48] = "";
        if (share > 0 && spent > 1) {
            const int64_t seconds = (int64_t)(spent * (1 - share) / share + 0.5);
            std::snprintf(left, sizeof left, ", %lld:%02d left", (long long)(seconds / 60), (int)(seconds % 60));
        }
        char text[96];
        std::snprintf(text, sizeof text, "%3.0f %%%s  %.40s", 100 * share, left, what.c_str());
        std::fprintf(stderr, is_terminal_ ? "\r%-78s" : "%s\n", text);
        is_shown_ = is_terminal_;
    }
    // Erases the progress line, before another line is written.
    void clear() {
        if (is_shown_) std::fprintf(stderr, "\r%78s\r", "");
        is_shown_ = false;
    }
    double seconds() const { return now_seconds() - began_; }

  private:
    bool is_quiet_, is_terminal_ = os::is_terminal(2), is_shown_ = false;
    double n_bytes_, began_ = now_seconds(), told_ = began_;
};

// ---- the work -----------------------------------------------------------------------------------------------------

// Reads a tensor's importance: sums / counts, a row for each of its matrices. The result is empty if the importance
// matrix does not have the tensor.
// Format: llama.cpp:tools/imatrix/imatrix.cpp, tools/quantize/quantize.cpp.
duet_status read_importance(const quantize_options& options, const planned_tensor& p, std::vector<float>* out,
                            tool_error* error) {
    out->clear();
    if (!options.imatrix || p.to->elems_per_block == 1) return DUET_OK;
    const int64_t i_sums = duet_file_find_tensor(options.imatrix, (p.name + ".in_sum2").c_str());
    const int64_t i_counts = duet_file_find_tensor(options.imatrix, (p.name + ".counts").c_str());
    if (i_sums < 0 || i_counts < 0) {
        if (!options.is_quiet)
            std::fprintf(stderr, "note: tensor %s: no entry in %s: all its weights count alike\n",
                         json_string(p.name).c_str(), options.imatrix_path.c_str());
        return DUET_OK;
    }
    duet_tensor sums{}, counts{};
    const int64_t n_cols = p.t.dims[0], n_mats = p.t.dims[2] * p.t.dims[3];
    for (const auto& [i, tensor] : {std::pair{i_sums, &sums}, std::pair{i_counts, &counts}})
        if (const duet_status status = duet_file_tensor(options.imatrix, i, tensor))
            return error->set(status, duet_file_error(options.imatrix));
    const int64_t n_sums = sums.dims[1] * sums.dims[2] * sums.dims[3];
    const int64_t n_counts = counts.dims[0] * counts.dims[1] * counts.dims[2] * counts.dims[3];
    if (sums.type_id != 0 || counts.type_id != 0 || sums.dims[0] != n_cols || n_sums != n_mats || n_counts != n_mats)
        return error->set(DUET_ERR_FORMAT, options.imatrix_path + ": tensor " + json_string(p.name) +
                                               ": want F32 sums of " + std::to_string(n_cols) + " x " +
                                               std::to_string(n_mats) + " and as many counts, got " +
                                               std::to_string(sums.dims[0]) + " x " + std::to_string(n_sums) + " and " +
                                               std::to_string(n_counts) + ": made for another model");
    const float *from = (const float*)sums.data, *n = (const float*)counts.data;
    out->assign(from, from + n_cols * n_mats);
    for (int64_t i = 0; i < n_cols * n_mats; i++) {  // an expert that no token chose: all its weights count alike
        float& v = (*out)[(size_t)i];
        v = n[i / n_cols] > 0 ? v / n[i / n_cols] : 1.0f;
        if (!(v >= 0 && std::isfinite(v)))
            return error->set(DUET_ERR_FORMAT, options.imatrix_path + ": tensor " + json_string(p.name) + ": sum " +
                                                   std::to_string(i) + ": want a finite number of 0 or more");
    }
    return DUET_OK;
}

duet_status open_imatrix(const quantize_options& options, duet_file** out, tool_error* error) {
    if (const duet_status status = duet_file_open(options.imatrix_path.c_str(), out))
        return error->set(status,
                          std::string(*out ? duet_file_error(*out) : "") +
                              " (want an importance matrix in the GGUF form, as bin/perplexity --imatrix writes it)");
    duet_string type{};
    const int64_t i_type = duet_file_find_kv(*out, "general.type");
    if (i_type < 0 || duet_file_get_string(*out, i_type, 0, &type) != DUET_OK || view_of(type) != "imatrix")
        return error->set(DUET_ERR_FORMAT,
                          options.imatrix_path + ": general.type: want imatrix, got " + json_string(view_of(type)));
    return DUET_OK;
}

struct quantize_work;

// One tensor of the new file, in the form that duet_writer_add_tensor_from takes.
struct tensor_source {
    quantize_work* work;
    const planned_tensor* planned;
};

struct quantize_work {
    const quantize_options& options;
    tool_error* error;
    progress_line progress;
    int32_t n_threads = 1;
    std::vector<tensor_source> sources = {};
    std::vector<float> importance = {};  // importance of the tensor that is being written
    std::atomic<uint64_t> n_odd{0};      // values of that tensor that are not finite before or (F16) after
    double n_done_bytes = 0;             // bytes of the input done before this piece

    static int32_t read(void* user, uint64_t offset, void* dst, uint64_t n_bytes) {
        const tensor_source& source = *(const tensor_source*)user;
        try {
            return source.work->make(*source.planned, offset, (uint8_t*)dst, n_bytes);
        } catch (const std::bad_alloc&) { return source.work->error->set(DUET_ERR_MEMORY, "out of memory"); }
    }

    duet_status make(const planned_tensor& p, uint64_t offset, uint8_t* dst, uint64_t n_bytes);
    duet_status convert(const planned_tensor& p, int64_t first_elem, int64_t n_elems, uint8_t* dst);
    duet_status convert_chunk(const planned_tensor& p, int64_t first_elem, int64_t n_elems, uint8_t* dst,
                              std::vector<float>* values, std::vector<float>* weights);
};

// Decodes whole blocks around the wanted elements, then encodes these. first_elem begins a block of the new format.
duet_status quantize_work::convert_chunk(const planned_tensor& p, int64_t first_elem, int64_t n_elems, uint8_t* dst,
                                         std::vector<float>* values, std::vector<float>* weights) {
    const int64_t from_elems = p.from->elems_per_block, first_block = first_elem / from_elems,
                  n_blocks = (first_elem + n_elems + from_elems - 1) / from_elems - first_block;
    values->resize((size_t)(n_blocks * from_elems));
    if (const duet_status status =
            duet_dequantize_row(p.from->id, (const uint8_t*)p.t.data + first_block * p.from->bytes_per_block,
                                n_blocks * from_elems, values->data()))
        return status;
    const float* x = values->data() + (first_elem - first_block * from_elems);
    if (!importance.empty()) {  // one row of importance for each matrix
        weights->resize((size_t)n_elems);
        const int64_t n_cols = p.t.dims[0];
        for (int64_t i = 0; i < n_elems;) {
            const int64_t row = (first_elem + i) / n_cols, column = (first_elem + i) % n_cols,
                          n = std::min(n_cols - column, n_elems - i);
            std::copy_n(importance.begin() + row / p.t.dims[1] * n_cols + column, n, weights->begin() + i);
            i += n;
        }
    }
    const float limit = is_same_word(p.to->name, "F16") ? 65504.0f : 3.4028235e38f;
    uint64_t n = 0;
    for (int64_t i = 0; i < n_elems; i++) n += !(std::fabs(x[i]) <= limit);
    n_odd += n;
    return duet_quantize_row(p.to->id, x, n_elems, importance.empty() ? nullptr : weights->data(), dst);
}

// The calling thread works too, and shows the progress.
duet_status quantize_work::convert(const planned_tensor& p, int64_t first_elem, int64_t n_elems, uint8_t* dst) {
    std::atomic<int64_t> next{0}, n_done{0};
    std::atomic<duet_status> result{DUET_OK};
    const auto work = [&](bool is_telling) {
        try {
            std::vector<float> values, weights;
            for (int64_t at; result == DUET_OK && (at = next.fetch_add(kChunkElems)) < n_elems;) {
                const int64_t n = std::min(kChunkElems, n_elems - at);
                uint8_t* to = dst + at / p.to->elems_per_block * p.to->bytes_per_block;
                if (const duet_status st = convert_chunk(p, first_elem + at, n, to, &values, &weights)) result = st;
                if (ending_signal) result = DUET_ERR_CANCELLED;
                n_done += n;
                if (is_telling)
                    progress.tell(p.name,
                                  n_done_bytes + (double)n_done * p.from->bytes_per_block / p.from->elems_per_block);
            }
        } catch (const std::bad_alloc&) { result = DUET_ERR_MEMORY; }
    };
    std::vector<std::thread> threads;
    for (int64_t t = 1; t < std::min<int64_t>(n_threads, (n_elems + kChunkElems - 1) / kChunkElems); t++) {
        try {
            threads.emplace_back(work, false);
        } catch (const std::exception&) {
            break;  // fewer threads do the work
        }
    }
    work(true);
    for (std::thread& thread : threads) thread.join();
    return result;
}

// Gives the bytes of the new file from `offset` of a tensor on, as whole blocks of the new format.
duet_status quantize_work::make(const planned_tensor& p, uint64_t offset, uint8_t* dst, uint64_t n_bytes) {
    const bool is_same = p.to == p.from;
    const int64_t to_elems = p.to->elems_per_block, to_bytes = p.to->bytes_per_block;
    const int64_t first_elem = (int64_t)offset / to_bytes * to_elems, n_elems = (int64_t)n_bytes / to_bytes * to_elems;
    if (offset == 0) {
        n_odd = 0;
        if (options.is_verbose && !options.is_quiet) {
            progress.clear();
            std::fprintf(stderr, "%-36s %18s  %7s -> %-7s %9.2f MB\n", json_string(p.name).c_str(),
                         shape_text(p.t).c_str(), p.from->name, is_same ? "same" : p.to->name,
                         (double)p.to_bytes / 1e6);
        }
        progress.clear();
        if (const duet_status st = is_same ? DUET_OK : read_importance(options, p, &importance, error)) return st;
    }
    duet_status status = ending_signal ? DUET_ERR_CANCELLED : DUET_OK;
    if (status == DUET_OK && is_same) std::memcpy(dst, (const uint8_t*)p.t.data + offset, n_bytes);
    else if (status == DUET_OK) status = convert(p, first_elem, n_elems, dst);
    if (status != DUET_OK)
        return error->set(status, status == DUET_ERR_CANCELLED
                                      ? "interrupted: " + options.out + " was not written"
                                      : "tensor " + json_string(p.name) + ": " + duet_status_name(status));
    n_done_bytes += (double)n_elems / p.from->elems_per_block * p.from->bytes_per_block;
    progress.tell(p.name, n_done_bytes);
    if (n_odd && offset + n_bytes == p.to_bytes) {
        progress.clear();
        std::fprintf(stderr, "warning: tensor %s: %llu values are NaN, infinite, or beyond the format\n",
                     json_string(p.name).c_str(), (unsigned long long)n_odd.load());
    }
    return DUET_OK;
}

// Reports a full disk before the work, not after it. Where the system does not say how much is free, the write itself
// will fail.
duet_status check_room(const std::string& path, uint64_t n_bytes, tool_error* error) {
    const os::file_kind kind = os::kind_of(path);
    const uint64_t n_free = os::disk_free(path);
    if ((kind != os::file_kind::none && kind != os::file_kind::regular) || n_free >= n_bytes) return DUET_OK;
    char text[96];
    std::snprintf(text, sizeof text, ": want room for %.2f MB, the disk has %.2f MB left", (double)n_bytes / 1e6,
                  (double)n_free / 1e6);
    return error->set(DUET_ERR_IO, path + text);
}

duet_status set_keys(duet_writer* writer, const duet_file* file, const quantize_options& options) {
    duet_status status = duet_writer_copy_kv(writer, file);
    if (!status) status = duet_writer_set_int(writer, "general.quantization_version", DUET_KV_U32, 2);
    if (!status) status = duet_writer_set_int(writer, "general.file_type", DUET_KV_U32, options.chosen->file_type);
    if (!status && options.imatrix)
        status = duet_writer_set_string(writer, "quantize.imatrix.file", options.imatrix_path.data(),
                                        options.imatrix_path.size());
    return status;
}

// The library's count keeps to the CPU limit of a container.
int32_t core_count() {
    int32_t n = 1;
    const auto take = [](void* user, const duet_device_info* device) {
        if (std::string_view(device->id) == "cpu") *(int32_t*)user = std::max(1, std::atoi(device->driver));
    };
    return duet_list_devices(take, &n) == DUET_OK ? n : 1;
}

duet_status write_model(const duet_file* file, const std::vector<planned_tensor>& plan, const quantize_options& options,
                        tool_error* error) {
    uint64_t from_bytes = 0, to_bytes = 0;
    size_t n_requantized = 0, n_odd = 0;
    std::string instead;
    for (const planned_tensor& p : plan) {
        n_requantized += p.to != p.from && p.from->elems_per_block > 1;
        from_bytes += p.t.n_bytes;
        to_bytes += p.to_bytes;
        if (!p.wanted || p.to == p.wanted) continue;
        n_odd++;
        if (!is_listed(instead.c_str(), p.to->name)) instead += " " + std::string(p.to->name);
    }
    if (n_odd && !options.is_quiet)
        std::fprintf(stderr, "note: %zu tensors have rows that are no multiple of their format's block; instead:%s\n",
                     n_odd, instead.c_str());
    if (n_requantized && !options.is_quiet)
        std::fprintf(stderr, "note: %zu tensors are quantized already; they are decoded first, their losses stay\n",
                     n_requantized);
    duet_writer* made = nullptr;
    duet_status status = duet_writer_create(&made);
    const writer_ptr writer(made);
    if (status != DUET_OK) return error->set(status, "");
    status = set_keys(made, file, options);
    quantize_work work{options, error, progress_line(options.is_quiet, from_bytes)};
    work.n_threads = options.n_threads ? options.n_threads : core_count();
    for (const planned_tensor& p : plan) work.sources.push_back({&work, &p});
    for (tensor_source& source : work.sources) {
        const planned_tensor& p = *source.planned;
        if (status == DUET_OK)
            status = duet_writer_add_tensor_from(made, p.name.c_str(), p.to->id, p.t.n_dims, p.t.dims,
                                                 quantize_work::read, &source);
    }
    const std::string target = os::resolved(options.out), part = target + ".part";
    if (!options.is_quiet && os::kind_of(part) == os::file_kind::regular && !os::is_same_file(part, options.in))
        std::fprintf(stderr, "note: %s is there: a killed run left it, or another program writes it\n", part.c_str());
    if (status == DUET_OK && check_room(target, duet_writer_size(made), error) != DUET_OK) return error->status;
    if (status == DUET_OK) status = duet_writer_save(made, options.out.c_str());
    work.progress.clear();
    if (error->status != DUET_OK) return error->status;  // a source has already set the error
    if (status != DUET_OK) return error->set(status, duet_writer_error(made));
    if (!options.is_quiet)
        std::fprintf(stderr, "%s: %s, %zu tensors, %.2f MB -> %.2f MB in %.1f s\n", options.out.c_str(),
                     options.chosen->name, plan.size(), (double)from_bytes / 1e6, (double)to_bytes / 1e6,
                     work.progress.seconds());
    return DUET_OK;
}

// Parses "GLOB=TYPE". Returns "", or what is wrong with it.
std::string add_override(const std::string& text, quantize_options* options) {
    const size_t equals = text.rfind('=');
    const duet_type_info* type = equals == std::string::npos ? nullptr : duet_type_by_name(text.c_str() + equals + 1);
    if (equals == 0 || !type || !type->can_quantize)
        return "want NAME=TYPE with a format that can be made, such as attn_v=Q8_0";
    options->overrides.push_back({text.substr(0, equals), type});
    return "";
}

// Returns whether out is the input file itself, or one part of a split input: NAME-00001-of-00003.gguf.
bool is_input(const std::string& in, const std::string& out) {
    constexpr size_t kTail = 20;  // "-00001-of-00003.gguf"
    int part = 0, n_parts = 0;
    if (in.size() > kTail && std::sscanf(in.c_str() + in.size() - kTail, "-%5d-of-%5d.gguf", &part, &n_parts) == 2)
        for (int i = 1; i <= n_parts; i++) {
            char name[32];
            std::snprintf(name, sizeof name, "-%05d-of-%05d.gguf", i, n_parts);
            if (os::is_same_file(in.substr(0, in.size() - kTail) + name, out)) return true;
        }
    return os::is_same_file(in, out);
}

}  // namespace

int main(int argc, char** argv) {
    quantize_options options;
    std::string names;
    for (const mix& m : kMixes) names += (names.empty() ? "" : " ") + std::string(m.name);
    tool_args args("quantize", "IN.gguf OUT.gguf TYPE [options]", "Writes a model in another number format.");
    args.positional("IN.gguf", "the model to read; F32, F16 or BF16 is best, others are decoded first", &options.in);
    args.positional("OUT.gguf", "the file to write", &options.out);
    args.positional("TYPE", names + "; Q3_K, Q4_K, Q5_K mean the _M mix", &options.type);
    args.integer("-t, --threads", "N", "threads (0: one per physical core)", &options.n_threads, 0, kMaxThreads);
    args.call("--type, --tensor-type", "NAME=TYPE",
              "format of the tensors whose name holds NAME (or fits it, with * and ?); may be repeated, the first that "
              "fits counts",
              [&](const std::string& v) { return add_override(v, &options); });
    args.text("--imatrix", "FILE",
              "importance matrix (bin/perplexity --imatrix, or llama.cpp's in the GGUF form): what the text "
              "used most becomes most exact",
              &options.imatrix_path);
    args.flag("--pure", "TYPE for every matrix, instead of the mix's recipe", &options.is_pure);
    args.flag("-v, --verbose", "list the tensors", &options.is_verbose);
    args.flag("-q, --quiet", "no progress and no summary; warnings and errors only", &options.is_quiet);
    if (int code; !args.parse(argc, argv, &code)) return code;
    options.chosen = find_mix(options.type);
    if (!options.chosen) return args.usage_error("unknown TYPE '" + options.type + "', want one of " + names);
    if (options.out == "-") return args.usage_error("OUT.gguf: want a file, stdout cannot be written");
    for (const auto& [in, what] :
         {std::pair{options.in, "IN.gguf: "}, std::pair{options.imatrix_path, "the importance matrix: "}})
        if (is_input(in, options.out)) return args.usage_error("OUT.gguf is " + (what + options.out));
    os::on_end(on_signal);
    const int code = finish_tool("quantize", [&](tool_error* error) {
        duet_file* opened = nullptr;
        const duet_status status = duet_file_open(options.in.c_str(), &opened);
        file_ptr file(opened);
        if (status != DUET_OK) return error->set(status, opened ? duet_file_error(opened) : "");
        duet_file* matrix = nullptr;
        if (!options.imatrix_path.empty()) open_imatrix(options, &matrix, error);
        file_ptr imatrix(options.imatrix = matrix);
        std::vector<planned_tensor> plan;
        if (error->status || make_plan(opened, options, &plan, error)) return error->status;
        return write_model(opened, plan, options, error);
    });
    if (ending_signal && code != kExitGood) {  // the exit status tells the shell which signal ended the program
        std::signal(ending_signal, SIG_DFL);
        std::raise(ending_signal);
    }
    return code;
}
