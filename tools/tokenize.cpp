// tools/tokenize.cpp: the program `tokenize` turns text into token ids, printed as a JSON array, and ids into text.
// Must not know: anything that runtime.h does not say.
// Main path: [tools/tokenize.cpp] -> runtime.h -> runtime.cpp -> models/tokenizer.cpp
#include "common.h"

namespace {

struct tokenize_options {
    model_options model;
    std::string text, path;
    bool has_text = false, is_decode = false, no_bos = false, is_special = false;
};

duet_status decode(const duet_model* model, const std::string& text, const tokenize_options& options,
                   tool_error* error) {
    std::vector<int32_t> ids;
    const std::string_view bare = trimmed(text);
    const bool is_empty = bare.empty() || (bare[0] == '[' && trimmed(bare.substr(1)).starts_with(']'));
    if (!is_empty && parse_ids(text, options.has_text ? "-p" : options.path.c_str(), &ids, error)) return error->status;
    for (int32_t id : ids)
        if (!duet_token_spelling(model, id).data)
            return error->set(DUET_ERR_ARG, "id " + std::to_string(id) + ": the vocabulary has no such token");
    std::string out;
    const duet_status status = fill_sized(ids.size() * 8, &out, [&](auto* to, size_t* n_bytes) {
        return duet_detokenize(model, ids.data(), ids.size(), options.is_special, to->data(), to->size(), n_bytes);
    });
    return status == DUET_OK ? write_stdout(out, error) : error->set(status, duet_model_error(model));
}

duet_status encode(const duet_model* model, const std::string& text, const tokenize_options& options,
                   tool_error* error) {
    std::vector<int32_t> ids;
    const int32_t flags =
        (options.no_bos ? 0 : DUET_TOKENIZE_ADD_BOS) | (options.is_special ? DUET_TOKENIZE_PARSE_SPECIAL : 0);
    if (tokenize(model, text, flags, &ids, error) != DUET_OK) return error->status;
    std::string out = "[";
    for (size_t i = 0; i < ids.size(); i++) out += (i ? ", " : "") + std::to_string(ids[i]);
    return write_stdout(out + "]\n", error);
}

duet_status work(const tokenize_options& options, tool_error* error) {
    std::string text = options.text;
    if (!options.has_text && read_text(options.path, &text, error) != DUET_OK) return error->status;
    model_ptr model;
    if (open_model(options.model, &model, error) != DUET_OK) return error->status;
    return (options.is_decode ? decode : encode)(model.get(), text, options, error);
}

}  // namespace

int main(int argc, char** argv) {
    tokenize_options options;
    options.model.vocab_only = true;
    tool_args args("tokenize", "-m model.gguf (-p TEXT | -f FILE) [options]",
                   "Prints the token ids of a text as a JSON array; with --decode writes the bytes of ids.");
    add_model_path(args, &options.model);
    args.call("-p, --prompt", "TEXT", "the text, or with --decode the ids: 1,2,3 or [1, 2, 3]; - reads stdin",
              [&](const std::string& v) { return options.has_text = true, options.text = v, std::string(); });
    args.text("-f, --file", "FILE", "the same from a file; - is stdin", &options.path);
    args.flag("--decode", "ids to bytes", &options.is_decode);
    args.flag("--no-bos", "without the BOS and EOS that the model asks for", &options.no_bos);
    args.flag("--special", "control tokens by name: read in text, written by --decode", &options.is_special);
    if (int code; !args.parse(argc, argv, &code)) return code;
    if (options.model.path.empty()) return args.usage_error("no model: want -m FILE");
    if (options.has_text && !options.path.empty()) return args.usage_error("want either -p or -f");
    if (!options.has_text && options.path.empty() && !options.is_decode)
        return args.usage_error("no text: want -p TEXT or -f FILE");
    if (options.text == "-") options.has_text = false;
    if (!options.has_text && options.path.empty()) options.path = "-";
    return finish_tool("tokenize", [&](tool_error* error) { return work(options, error); });
}
