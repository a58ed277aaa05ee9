// runtime/model.cpp: models: opening, checking, describing; text to ids and back.
// Owns: what duet_model holds. Must not know: ops' insides, instruction sets, GPU drivers.
// Main path: runtime.cpp -> [runtime/model.cpp] -> models/arch.cpp -> models/<family>.cpp
#include "calls.h"
#include "devices.h"
#include "../quant/formats.h"
#include "../cpu/executor.h"
#include "../cpu/kernels.h"
#include "../models/os.h"
#include "../quant/exact.h"

#include <algorithm>
#include <map>

namespace duet {
namespace {

void log_line(const duet_model& m, int32_t level, const std::string& text) {
    if (m.params.log) m.params.log(m.params.log_user, level, text.c_str());
}

// Touches every page of the weights once, in file order, so that the first prompt does not wait for the disk.
duet_status warm_weights(duet_model& m) {
    uint64_t done = 0;
    constexpr uint64_t kStep = 16u << 20, kPage = 4096;
    const auto tell = [&](float share) -> duet_status {
        if (!m.params.progress || m.params.progress(m.params.progress_user, share) == 0) return DUET_OK;
        return fail(m.source.err, DUET_ERR_CANCELLED, "%s: loading was cancelled", m.source.file.path.c_str());
    };
    for (const gguf_tensor& t : m.source.file.tensors) {
        m.source.file.will_need(t);
        for (uint64_t at = 0; at < t.n_bytes; at += kPage) {
            (void)*(const volatile uint8_t*)(t.data + at);
            if (at % kStep == 0) DUET_TRY(tell((float)((double)(done + at) / (double)m.weight_bytes)));
        }
        done += t.n_bytes;
    }
    return tell(1.0f);
}

uint64_t hash_bytes(uint64_t h, const void* data, size_t n) {  // FNV-1a
    for (size_t i = 0; i < n; i++) h = (h ^ ((const uint8_t*)data)[i]) * 0x100000001b3ull;
    return h;
}

// What a saved state must match: architecture, every tensor's name, type and shape, and samples of its bytes.
uint64_t model_fingerprint(const duet_model& m) {
    uint64_t h = hash_bytes(0xcbf29ce484222325ull, m.graph.architecture.data(), m.graph.architecture.size());
    for (const gguf_tensor& t : m.source.file.tensors) {
        h = hash_bytes(h, t.name.data(), t.name.size());
        h = hash_bytes(h, t.dims, sizeof t.dims);
        h = hash_bytes(h, &t.type, sizeof t.type);
        h = hash_bytes(h, t.data, (size_t)std::min<uint64_t>(t.n_bytes, 64));
    }
    return h;
}

// Decides whether mode fast has an effect: where has_code says so of an op. Says why it has none.
template <class F>
void choose_fast(duet_model& m, bool has_units, const std::string& wanted, const std::string& why_none, F has_code) {
    if (!m.params.fast) return;
    for (const op& o : m.graph.ops) m.fast = m.fast || (has_units && has_code(o));
    const std::string why = has_units ? "no " + wanted + " in this file" : why_none;
    if (m.fast) m.device_text += ", fast";
    else log_line(m, DUET_LOG_WARN, "mode fast has no effect: " + why);
}

// A GPU by name, or the one "auto" takes when all of the model can run on it. Instruction sets are the CPU's: who
// names one means the CPU.
duet_status choose_device(duet_model& m) {
    error_text& err = m.source.err;
    const std::string device = m.params.device ? m.params.device : "auto",
                      isa = m.params.cpu_isa ? m.params.cpu_isa : "auto";
    const cpu_kernels* kernels = find_cpu_kernels(isa.c_str());
    if (!kernels)
        return fail(err, DUET_ERR_DEVICE, "cpu isa '%s': this CPU runs: %s", printable(isa).c_str(), cpu_isa_names());
    if (m.params.n_threads < 0 || m.params.n_threads > 1024)
        return fail(err, DUET_ERR_ARG, "n_threads: want 0..1024, got %d", m.params.n_threads);
    m.n_threads = m.params.n_threads ? m.params.n_threads : os_physical_cores();
    m.isa = isa;
    if (m.params.gpu_recording < -1 || m.params.gpu_recording > 2)
        return fail(err, DUET_ERR_ARG, "gpu_recording: want -1, 0, 1 or 2, got %d", m.params.gpu_recording);
    if (m.params.gpu_layers < -1 || m.params.cpu_expert_layers < -1)
        return fail(err, DUET_ERR_ARG,
                    "gpu_layers, cpu_expert_layers: want -1 (as fits) or a number of layers, got %d, %d",
                    m.params.gpu_layers, m.params.cpu_expert_layers);
    if (device != "cpu" && (device != "auto" || (isa == "auto" && m.params.gpu_layers != 0))) {
        std::string id;
        gpu_info info;
        duet_status st = choose_gpu(device, &id, err);
        if (st == DUET_OK) st = gpu_check(m.graph, {}, err);
        if (st == DUET_OK) st = gpu_device_info(id.c_str(), &info, err);
        if (st == DUET_OK) {
            m.exec = &kSplitExecutor;
            m.device = m.device_text = id;
            choose_fast(m, info.has_fast, "matmul by F16 or BF16 weights and no attention of at most 128 values a head",
                        id + " has no matrix units for f16 and bf16",
                        [&](const op& o) { return has_fast_code(m.graph, o); });
            return DUET_OK;
        }
        if (st == DUET_ERR_ARG) return DUET_ERR_DEVICE;  // There is no such name.
        const std::string why = err.text;
        if (device != "auto") return fail(err, st, "device '%s' cannot be used: %s", device.c_str(), why.c_str());
        err.text.clear();
        // without a card the CPU is what everybody expects
        if (m.params.gpu_layers > 0 || may_have_card()) log_line(m, DUET_LOG_WARN, "computing on the CPU: " + why);
    }
    m.exec = &kCpuExecutor;
    m.device_text = std::string("cpu ") + kernels->name + ", " + std::to_string(m.n_threads) +
                    (m.n_threads == 1 ? " thread" : " threads");
    const uint64_t types = find_cpu_kernels(isa.c_str(), true)->rounded_types;  // bits by gguf_id
    choose_fast(
        m, types != 0, "matmul by BF16 weights",
        std::string("cpu isa ") + kernels->name + " has no bfloat16 products here (AVX512_BF16, AMX-BF16)",
        [&](const op& o) { return o.kind == op_kind::matmul && types >> m.graph.weights[(size_t)o.w].type & 1; });
    return DUET_OK;
}

// Everything after the file was opened and checked.
duet_status load_model(duet_model& m) {
    error_text& err = m.source.err;
    const gguf_file& f = m.source.file;
    std::string_view architecture, name;
    DUET_TRY(f.get_string("general.architecture", false, &architecture, err));
    if (const gguf_kv* kv = f.find("general.name"); kv && kv->type == DUET_KV_STRING) name = kv->strings[0];
    m.name = printable(name);
    m.graph.architecture = printable(architecture);
    if (f.tensors.empty() && !m.vocab_only)
        return fail(err, DUET_ERR_FORMAT, "%s: no tensors: a vocabulary-only file cannot run; want a whole model",
                    f.path.c_str());
    DUET_TRY(m.vocab.load(f, err));
    m.has_vocab = true;
    for (int32_t id = 0; id < m.vocab.n_vocab(); id++)
        if (m.vocab.is_end(id)) m.end_ids.push_back(id);
    // The vocabulary has checked the ids. A list longer than it repeats some, and each costs time with every token.
    if (const gguf_kv* kv = f.find("tokenizer.ggml.suppress_tokens"))
        for (uint64_t i = 0; i < std::min<uint64_t>(kv->n_values, (uint64_t)m.vocab.n_vocab()); i++)
            gguf_file::value_int(*kv, i, &m.suppressed_ids.emplace_back());
    if (m.vocab_only) return DUET_OK;
    const duet_model_params& p = m.params;
    rope_choice rope{p.rope_scaling ? p.rope_scaling : "", p.rope_scale, p.rope_freq_base, p.rope_original_ctx};
    if (!(rope.type.empty() || rope.type == "none" || rope.type == "linear" || rope.type == "yarn"))
        return fail(err, DUET_ERR_ARG, "rope_scaling: want none, linear or yarn, got %s", printable(rope.type).c_str());
    const auto is_sound = [](float x) { return x == 0 || (x >= 1e-3f && x <= 1e30f); };
    if (!is_sound(rope.factor) || !is_sound(rope.base) || rope.original_ctx < 0)
        return fail(err, DUET_ERR_ARG,
                    "rope_scale, rope_freq_base, rope_original_ctx: want 0 (the file's) or more, got %g, %g, %d",
                    (double)rope.factor, (double)rope.base, rope.original_ctx);
    DUET_TRY(describe_model(f, m.vocab.n_vocab(), m.graph, err, rope));
    DUET_TRY(choose_device(m));
    std::map<int32_t, uint64_t> bytes_of_type;
    for (const gguf_tensor& t : f.tensors) {
        m.n_params += (uint64_t)t.n_elems();
        m.weight_bytes += t.n_bytes;
        bytes_of_type[t.type] += t.n_bytes;
    }
    const auto most = std::max_element(bytes_of_type.begin(), bytes_of_type.end(),
                                       [](auto& a, auto& b) { return a.second < b.second; });
    m.main_type = type_name(most->first);
    uint64_t chosen = 0;  // of the caches of another rope nothing can be taken up
    if (!rope.type.empty() || rope.factor != 0 || rope.base != 0 || rope.original_ctx != 0)
        for (const rope_table& t : m.graph.ropes) chosen = hash_bytes(chosen, t.freq.data(), t.freq.size() * 8);
    m.fingerprint =
        model_fingerprint(m) + chosen + (m.fast ? 1 : 0);  // an exact session must not go on from what fast computed
    if (m.params.progress && m.exec == &kCpuExecutor) DUET_TRY(warm_weights(m));
    log_line(m, DUET_LOG_INFO,
             m.graph.architecture + " model, " + std::to_string(m.n_params / 1000000) + "M weights, mostly " +
                 m.main_type + ", on " + m.device_text);
    m.can_run = true;
    return DUET_OK;
}

}  // namespace

const char* build_info() {
    static const auto text = [] {
        std::array<char, 1024> all;
        snprintf(all.data(), all.size(), "commit %s; %s; cpu: scalar%s; gpu:%s", build_commit(),
#if defined(__clang__)
                 "clang " __clang_version__,
#else
                 "g++ " __VERSION__,
#endif
#if defined(__x86_64__)
#define ISA_X86(name, ...) ", " #name
#elif defined(__aarch64__)
#define ISA_ARM(name, ...) ", " #name
#endif
#include "../cpu/isas.def"
                 "", kGpuBuilt[0] ? kGpuBuilt : " none");
        return all;
    }();
    return text.data();
}

duet_status open_model(duet_model& m, const model_source& from, const duet_model_params* params) {
    error_text& err = m.source.err;
    m.params = defaults_of<duet_model_params>();
    DUET_TRY(read_struct("duet_model_params", params, &m.params, err));
    if (m.params.load != DUET_LOAD_MAP && m.params.load != DUET_LOAD_COPY)
        return fail(err, DUET_ERR_ARG, "duet_model_params.load: want 0 (map) or 1 (copy), got %d", m.params.load);
    m.vocab_only = m.params.vocab_only != 0;
    gguf_file& file = m.source.file;
    if (from.path) DUET_TRY(file.open(from.path, err, m.params.load == DUET_LOAD_COPY));
    else if (from.data) DUET_TRY(file.open_memory(from.data, from.n_bytes, err));
    else if (from.read) DUET_TRY(file.open_reader(from.read, from.user, from.n_bytes, err));
    else return fail(err, DUET_ERR_ARG, "%s: want a path, data or a read callback, got NULL", from.call);
    return load_model(m);
}

duet_status model_info(const duet_model& m, duet_model_info* out, error_text& err) {
    DUET_TRY(check_room("duet_model_info", out, err));
    const model_graph& g = m.graph;
    duet_model_info info{};
    info.architecture = g.architecture.c_str();
    info.name = m.name.c_str();
    info.device = m.device_text.c_str();
    info.main_type = m.main_type.c_str();
    info.n_vocab = m.has_vocab ? m.vocab.n_vocab() : 0;
    info.n_layers = g.n_layers;
    info.dim = g.dim;
    info.n_heads = g.n_heads;
    info.n_kv_heads = g.n_kv_heads;
    info.n_ctx_train = g.n_ctx_train;
    info.n_params = m.n_params;
    info.weight_bytes = m.weight_bytes;
    info.decode_bytes = g.decode_bytes;
    info.embedding_dim = g.embedding_dim;
    info.is_encoder = g.both_ways;
    info.is_reranker = !g.scorer.empty();
    write_struct(info, out);
    return DUET_OK;
}

namespace {

// What both directions of text check.
duet_status check_text_call(const duet_model& m, const char* call, bool has_in, bool has_out, bool has_count,
                            error_text& err) {
    if (!has_in || !has_out || !has_count)
        return fail(err, DUET_ERR_ARG, "%s: %s is NULL", call,
                    !has_in    ? "the input"
                    : !has_out ? "the room for the result"
                               : "the room for the result's length");
    if (m.has_vocab) return DUET_OK;
    return fail(err, DUET_ERR_UNSUPPORTED, "%s: %s: no vocabulary was read from it", call, m.source.file.path.c_str());
}

}  // namespace

duet_status tokenize(const duet_model& m, const char* text, size_t n_bytes, int32_t flags, int32_t* ids, size_t max_ids,
                     size_t* n_ids, error_text& err) {
    DUET_TRY(check_text_call(m, "duet_tokenize", text || n_bytes == 0, ids || max_ids == 0, n_ids, err));
    std::vector<int32_t> all;
    DUET_TRY(m.vocab.encode({text ? text : "", n_bytes}, (flags & DUET_TOKENIZE_ADD_BOS) != 0,
                            (flags & DUET_TOKENIZE_PARSE_SPECIAL) != 0, &all, err));
    *n_ids = all.size();
    std::copy_n(all.begin(), std::min(all.size(), max_ids), ids);
    if (all.size() <= max_ids) return DUET_OK;
    return fail(err, DUET_ERR_FULL, "duet_tokenize: the text has %zu ids, there is room for %zu", all.size(), max_ids);
}

duet_status detokenize(const duet_model& m, const int32_t* ids, size_t n_ids, int32_t special, char* out,
                       size_t max_bytes, size_t* n_bytes, error_text& err) {
    DUET_TRY(check_text_call(m, "duet_detokenize", ids || n_ids == 0, out || max_bytes == 0, n_bytes, err));
    for (size_t i = 0; i < n_ids; i++)
        if (ids[i] < 0 || ids[i] >= m.vocab.n_vocab())
            return fail(err, DUET_ERR_ARG, "duet_detokenize: token %zu: want an id in 0..%d, got %d", i,
                        m.vocab.n_vocab() - 1, ids[i]);
    std::string text;
    m.vocab.decode(ids, n_ids, special != 0, &text);
    *n_bytes = text.size();
    std::copy_n(text.begin(), std::min(text.size(), max_bytes), out);
    if (text.size() <= max_bytes) return DUET_OK;
    return fail(err, DUET_ERR_FULL, "duet_detokenize: the text has %zu bytes, there is room for %zu", text.size(),
                max_bytes);
}

}  // namespace duet
