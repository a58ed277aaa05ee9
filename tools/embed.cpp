// tools/embed.cpp: the program `embed` prints a vector for each text, or the score of each text as an answer to a
// query. Owns: reading texts, the form of the output. Must not know: how vectors are computed. Main path:
// [tools/embed.cpp] -> runtime.h
#include "common.h"

namespace {

struct embed_options {
    model_options model;
    std::vector<std::string> texts;
    std::string file, query;
    int32_t n_parallel = 16, pooling = DUET_POOL_FILE;
    bool has_query = false, no_normalise = false, cut = false, raw = false, whole_file = false;
};

duet_status read_texts(embed_options& options, tool_error* error) {
    for (std::string& text : options.texts) {
        if (text != "-") continue;
        if (read_text("-", &text, error)) return error->status;
        drop_newline(&text);
    }
    if (options.file.empty()) return DUET_OK;
    std::string all;
    if (read_text(options.file, &all, error) != DUET_OK) return error->status;
    if (options.whole_file) return options.texts.push_back(std::move(all)), DUET_OK;
    for (size_t begin = 0; begin < all.size();) {
        const size_t end = std::min(all.find('\n', begin), all.size());
        options.texts.push_back(all.substr(begin, end - begin - (end > begin && all[end - 1] == '\r')));
        begin = end + 1;
    }
    return DUET_OK;
}

void print_vector(const float* v, int32_t dim, bool raw) {
    if (raw) return (void)std::fwrite(v, sizeof(float), (size_t)dim, stdout);
    for (int32_t j = 0; j < dim; j++) std::printf("%s%.9g", j ? ", " : "[", (double)v[j]);
    std::printf("]\n");
}

duet_status work(embed_options& options, tool_error* error) {
    if (read_texts(options, error) != DUET_OK) return error->status;
    model_ptr model;
    if (open_model(options.model, &model, error) != DUET_OK) return error->status;
    const duet_model_info info = info_of(model.get());
    // A text's keys and values stay for one batch only, so an encoder's cost little in full precision.
    if (options.model.cache_type < 0) options.model.cache_type = info.is_encoder ? DUET_CACHE_F32 : DUET_CACHE_F16;
    const int32_t n_ctx = options.model.n_ctx ? options.model.n_ctx : std::min(info.n_ctx_train, 4096);
    options.model.cache_tokens = std::max(n_ctx, options.model.max_batch) + 64ll * options.n_parallel;
    session_ptr session;
    if (open_session(model.get(), options.model, options.n_parallel, &session, nullptr, error)) return error->status;
    std::vector<duet_string> texts;
    for (const std::string& t : options.texts) texts.push_back({t.data(), t.size()});
    duet_embed_params params = duet_embed_params_default();
    params.pooling = options.pooling;
    params.normalise = !options.no_normalise;
    params.cut = options.cut;
    // A few batches at a time: results come while the rest is computed.
    const size_t step = options.has_query ? (size_t)options.n_parallel : (size_t)options.n_parallel * 8;
    std::vector<float> out(step * (size_t)std::max(1, info.embedding_dim));
    for (size_t i = 0; i < texts.size(); i += step) {
        const int32_t n = (int32_t)std::min(step, texts.size() - i);
        const duet_status status = options.has_query ? duet_rerank(session.get(), options.query.data(),
                                                                   options.query.size(), &texts[i], n, out.data())
                                                     : duet_embed(session.get(), &texts[i], n, &params, out.data());
        if (status != DUET_OK) {
            const std::string from = i ? " (counted from text " + std::to_string(i) + ")" : "";
            return error->set(status, duet_session_error(session.get()) + from);
        }
        for (int32_t k = 0; k < n; k++) {
            if (!options.has_query)
                print_vector(&out[(size_t)k * (size_t)info.embedding_dim], info.embedding_dim, options.raw);
            else if (options.raw) print_vector(&out[(size_t)k], 1, true);
            else std::printf("%.9g\t%s\n", (double)out[(size_t)k], options.texts[i + (size_t)k].c_str());
        }
    }
    return DUET_OK;
}

}  // namespace

int main(int argc, char** argv) {
    embed_options options;
    options.model.cache_type = -1;
    tool_args args("embed", "-m model.gguf -p TEXT | -f FILE [options]",
                   "Prints a vector for each text, or with --query how well each text answers it.");
    add_model_path(args, &options.model);
    args.call("-p, --prompt", "TEXT", "a text; may be given several times; - reads one from stdin",
              [&](const std::string& text) { return options.texts.push_back(text), std::string(); });
    args.text("-f, --file", "FILE", "texts from a file, one in each line; - is stdin", &options.file);
    args.flag("--whole", "the file is one text", &options.whole_file);
    args.call("--query", "TEXT", "print \"score, tab, text\": of rerankers",
              [&](const std::string& text) { return options.query = text, options.has_query = true, std::string(); });
    args.choice("--pooling", "file|mean|cls|last", "how a text's tokens become a vector (default file: as it says)",
                &options.pooling);
    args.flag("--no-normalise, --no-normalize", "vectors as they are (default: of length 1)", &options.no_normalise);
    args.flag("--cut", "cut texts longer than the context, and average the pieces (default: an error)", &options.cut);
    args.flag("--raw", "little-endian f32 instead of text", &options.raw);
    args.integer("-np, --parallel", "N", "texts computed at once, the bits are the same (default 16)",
                 &options.n_parallel, 1, 4096);
    args.integer("-b, --batch-size", "N", "tokens computed at once (default 512)", &options.model.max_batch, 1, 65536);
    args.integer("-c, --ctx-size", "N", "tokens of context (default 0: the model's, at most 4096)",
                 &options.model.n_ctx, 0, 1 << 30);
    add_device_flags(args, &options.model);
    add_rope_flags(args, &options.model);
    if (int code; !args.parse(argc, argv, &code)) return code;
    if (options.model.path.empty()) return args.usage_error("no model: want -m FILE");
    if (options.texts.empty() && options.file.empty()) return args.usage_error("no text: want -p or -f");
    if (options.whole_file && options.file.empty()) return args.usage_error("--whole wants -f FILE");
    if (options.has_query && (options.cut || options.no_normalise || options.pooling != DUET_POOL_FILE))
        return args.usage_error("--query prints scores; --pooling, --cut and --no-normalise are for vectors");
    if (std::ranges::count(options.texts, "-") + (options.file == "-") > 1)
        return args.usage_error("stdin can be one text only, or the file of texts");
    return finish_tool("embed", [&](tool_error* error) { return work(options, error); });
}
