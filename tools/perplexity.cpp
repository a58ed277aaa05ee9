// tools/perplexity.cpp: the program `perplexity` measures how well a model predicts a text, by the definition that
// users compare with.
// Owns: the windows and the sums. Must not know: anything behind runtime.h.
// Main path: [tools/perplexity.cpp] -> runtime.h
//
// Definition (llama.cpp:tools/perplexity/perplexity.cpp). The text is tokenized once, with BOS if the model asks for
// it.
//   windows   n_ctx tokens each, one after the other. BOS replaces a window's first token. The first half is context
//             only; tokens n_ctx/2 .. n_ctx-2 each predict the next token. The result is exp(mean nll); its error is
//             the error of the mean times the result.
//   stride    windows of n_ctx + stride/2 tokens, which begin stride tokens apart. BOS stands only where the text has
//             it. The last `stride` tokens are predicted.
#include "common.h"

#include <map>

namespace {

struct perplexity_options {
    model_options model;
    std::string text_path;
    int32_t stride = 0, n_chunks = -1;
    std::string imatrix_path;
    bool is_json = false;
};

// Collects an importance matrix. For each matrix of each tensor it holds the sums of squares of the inputs and the
// number of inputs. The file has the GGUF form of llama.cpp:tools/imatrix/imatrix.cpp.
struct importance_matrix {
    struct entry {
        int64_t n_in = 0;
        std::vector<double> sums;
        std::vector<float> counts;
    };
    std::map<std::string, entry> entries;

    static void add(void* user, const char* tensor, int32_t i_mat, int32_t n_mats, const float* x, int64_t n_in) {
        entry& e = ((importance_matrix*)user)->entries[tensor];
        if (e.sums.empty()) {
            e.n_in = n_in;
            e.sums.resize((size_t)(n_in * n_mats));
            e.counts.resize((size_t)n_mats);
        }
        e.counts[(size_t)i_mat]++;
        double* sums = e.sums.data() + (size_t)i_mat * (size_t)n_in;
        for (int64_t i = 0; i < n_in; i++) sums[i] += (double)x[i] * x[i];
    }

    duet_status save(const perplexity_options& options, int32_t n_chunks, int32_t chunk_size, tool_error* error) const {
        duet_writer* w = nullptr;
        if (const duet_status status = duet_writer_create(&w)) return error->set(status, "");
        writer_ptr writer(w);
        const duet_string dataset = {options.text_path.data(), options.text_path.size()};
        std::vector<std::vector<float>> values;
        duet_status status = duet_writer_set_string(w, "general.type", "imatrix", 7);
        if (status == DUET_OK) status = duet_writer_set_strings(w, "imatrix.datasets", &dataset, 1);
        if (status == DUET_OK) status = duet_writer_set_int(w, "imatrix.chunk_count", DUET_KV_U32, n_chunks);
        if (status == DUET_OK) status = duet_writer_set_int(w, "imatrix.chunk_size", DUET_KV_U32, chunk_size);
        for (const auto& [name, e] : entries) {
            const int64_t n_mats = (int64_t)e.counts.size(), sum_dims[] = {e.n_in, n_mats}, count_dims[] = {1, n_mats};
            values.emplace_back(e.sums.begin(), e.sums.end());
            if (status == DUET_OK)
                status = duet_writer_add_tensor(w, (name + ".in_sum2").c_str(), 0, 2, sum_dims, values.back().data());
            if (status == DUET_OK)
                status = duet_writer_add_tensor(w, (name + ".counts").c_str(), 0, 2, count_dims, e.counts.data());
        }
        if (status == DUET_OK) status = duet_writer_save(w, options.imatrix_path.c_str());
        return status == DUET_OK ? DUET_OK : error->set(status, duet_writer_error(w));
    }
};

// Returns -log of the softmax's value at id, in f64. The largest logit is subtracted first.
double negative_log_likelihood(const float* logits, int32_t n_vocab, int32_t id) {
    const float max = *std::max_element(logits, logits + n_vocab);
    double sum = 0;
    for (int32_t i = 0; i < n_vocab; i++) sum += std::exp((double)logits[i] - max);
    return std::log(sum) - ((double)logits[id] - max);
}

struct score {
    int64_t n = 0;
    double sum = 0, sum_squares = 0;
    double perplexity() const { return std::exp(sum / (double)n); }
    double error() const {
        const double mean = sum / (double)n, variance = sum_squares / (double)n - mean * mean;
        return n > 1 && variance > 0 ? std::sqrt(variance / (double)(n - 1)) * perplexity() : 0;
    }
};

// Runs one window; positions first .. n - 2 predict the token after them. This function cuts the window into chunks, so
// that only one chunk's logits are kept.
duet_status score_window(duet_session* session, int32_t n_vocab, int32_t bos, const int32_t* tokens, int32_t n,
                         int32_t first, int32_t chunk, score* total, tool_error* error) {
    if (const duet_status status = duet_seq_trim(session, 0, 0)) return error->set(status, duet_session_error(session));
    std::vector<int32_t> ids(tokens, tokens + n);
    if (bos >= 0) ids[0] = bos;
    std::vector<uint8_t> want((size_t)chunk);
    for (int32_t begin = 0; begin < n; begin += chunk) {
        duet_batch batch = duet_batch_default();
        batch.n_tok = std::min(chunk, n - begin);
        batch.token = ids.data() + begin;
        batch.want_logits = want.data();
        for (int32_t i = 0; i < batch.n_tok; i++) want[(size_t)i] = begin + i >= first && begin + i < n - 1;
        if (const duet_status st = duet_decode(session, &batch)) return error->set(st, duet_session_error(session));
        for (int32_t i = 0, i_wanted = 0; i < batch.n_tok; i++) {
            if (!want[(size_t)i]) continue;
            const float* logits = duet_logits(session, i_wanted++);
            if (!logits) return error->set(DUET_ERR_STATE, "no logits for position " + std::to_string(begin + i));
            const double nll = negative_log_likelihood(logits, n_vocab, tokens[begin + i + 1]);
            if (std::isnan(nll))
                return error->set(DUET_ERR_NAN, "position " + std::to_string(begin + i) + ": the logits hold NaN");
            total->sum += nll;
            total->sum_squares += nll * nll;
            total->n++;
        }
    }
    return DUET_OK;
}

duet_status work(perplexity_options& options, tool_error* error) {
    std::string text;
    if (read_text(options.text_path, &text, error) != DUET_OK) return error->status;
    if (check_output(options.imatrix_path, {options.model.path, options.text_path}, error)) return error->status;
    drop_newline(&text);
    const int32_t context = options.model.n_ctx, n_ctx = context + options.stride / 2;
    options.model.n_ctx = n_ctx;
    options.model.max_batch = std::min(options.model.max_batch, n_ctx);
    // Only the CPU shows the inputs of its products.
    if (!options.imatrix_path.empty() && options.model.device == "auto") options.model.device = "cpu";
    model_ptr model;
    session_ptr session;
    std::vector<int32_t> ids;
    if (open_model(options.model, &model, error) != DUET_OK) return error->status;
    if (tokenize(model.get(), text, DUET_TOKENIZE_ADD_BOS, &ids, error) != DUET_OK) return error->status;
    if ((int64_t)ids.size() < 2 * (int64_t)n_ctx)
        return error->set(DUET_ERR_ARG, options.text_path + ": want at least " + std::to_string(2 * (int64_t)n_ctx) +
                                            " tokens for a context of " + std::to_string(n_ctx) + ", the text has " +
                                            std::to_string(ids.size()) + ": take a longer text or -c");
    importance_matrix importance;
    if (!options.imatrix_path.empty()) {
        options.model.inputs = importance_matrix::add;
        options.model.inputs_user = &importance;
    }
    if (open_session(model.get(), options.model, 1, &session, nullptr, error) != DUET_OK) return error->status;
    const duet_model_info info = info_of(model.get());

    const int32_t bos = ids[0] == duet_token_bos(model.get()) && options.stride == 0 ? ids[0] : -1;
    const int32_t n_possible =
        (int32_t)(options.stride ? ((int64_t)ids.size() - n_ctx + options.stride - 1) / options.stride
                                 : (int64_t)ids.size() / n_ctx);
    const int32_t n_windows = options.n_chunks < 0 ? n_possible : std::min(options.n_chunks, n_possible);
    const int32_t first = options.stride ? n_ctx - options.stride - 1 : n_ctx / 2;
    score total;
    const double start = now_seconds();
    for (int32_t i = 0; i < n_windows; i++) {
        const size_t begin = (size_t)i * (size_t)(options.stride ? options.stride : n_ctx);
        const int32_t n = (int32_t)std::min((size_t)n_ctx, ids.size() - begin);
        if (score_window(session.get(), info.n_vocab, bos, ids.data() + begin, n, first, options.model.max_batch,
                         &total, error) != DUET_OK)
            return error->status;
        if (!options.is_json) std::fprintf(stderr, "[%d]%.4f,", i + 1, total.perplexity()), std::fflush(stderr);
    }
    const double seconds = now_seconds() - start;
    if (!options.imatrix_path.empty() && importance.save(options, n_windows, n_ctx, error)) return error->status;
    const auto number = [](double x) { return std::isfinite(x) ? std::to_string(x) : "null"; };  // JSON has no infinity
    if (options.is_json)
        std::printf("{\"perplexity\":%s,\"error\":%s,\"n_scored\":%lld,\"n_windows\":%d,\"n_tokens\":%zu,\"n_ctx\":%d,"
                    "\"seconds\":%.3f}\n",
                    number(total.perplexity()).c_str(), number(total.error()).c_str(), (long long)total.n, n_windows,
                    ids.size(), n_ctx, seconds);
    else {
        std::fprintf(stderr, "\n%lld tokens scored in %d windows of %d, %.1f s\n", (long long)total.n, n_windows, n_ctx,
                     seconds);
        std::printf("PPL = %.4f +/- %.5f\n", total.perplexity(), total.error());
    }
    return DUET_OK;
}

}  // namespace

int main(int argc, char** argv) {
    perplexity_options options;
    options.model.n_ctx = 512;
    tool_args args("perplexity", "-m model.gguf -f text [options]",
                   "Measures how well a model predicts a text (llama.cpp's definition).");
    add_model_path(args, &options.model);
    args.text("-f, --file", "FILE", "the text; - is stdin; one newline at its end is dropped", &options.text_path);
    args.integer("-c, --ctx-size", "N", "tokens of a window (default 512)", &options.model.n_ctx, 4, 1 << 30);
    args.integer("--stride, --ppl-stride", "N",
                 "windows this far apart instead of one after the other (default 0: off)", &options.stride, 0, 1 << 20);
    args.integer("--chunks", "N", "windows to run (default -1: all)", &options.n_chunks, -1, INT32_MAX);
    args.integer("-b, --batch-size", "N", "tokens computed at once: the result is the same (default 512)",
                 &options.model.max_batch, 1, 1 << 20);
    args.text("--imatrix", "OUT.gguf",
              "writes an importance matrix, for bin/quantize --imatrix: what each weight is multiplied by",
              &options.imatrix_path);
    args.flag("--json", "the result as a JSON object", &options.is_json);
    add_device_flags(args, &options.model);
    add_rope_flags(args, &options.model);
    if (int code; !args.parse(argc, argv, &code)) return code;
    if (options.model.path.empty()) return args.usage_error("no model: want -m FILE");
    if (options.text_path.empty()) return args.usage_error("no text: want -f FILE");
    if (options.n_chunks == 0) return args.usage_error("--chunks: want -1 or at least 1, got '0'");
    if (options.stride >= options.model.n_ctx) return args.usage_error("--stride: want less than -c");
    return finish_tool("perplexity", [&](tool_error* error) { return work(options, error); });
}
