// tools/logits.cpp: the program `logits` takes token ids and writes the logits of every position as raw little-endian
// f32 (n_tok x n_vocab). Tests compare executors and files with it bit by bit.
// Owns: reading ids, writing the file piece by piece. Must not know: text.
// Main path: [tools/logits.cpp] -> runtime.h
#include "common.h"

namespace {

struct logits_options {
    model_options model;
    std::string ids_text, ids_file, out_path;
    std::vector<int32_t> ids;
    int32_t chunk = 0;
};

// Only one chunk of logits is in memory at a time.
duet_status write_logits(duet_session* session, const std::vector<int32_t>& ids, int32_t chunk, int32_t n_vocab,
                         FILE* file, tool_error* error) {
    const std::vector<uint8_t> want_all((size_t)chunk, 1);
    for (size_t begin = 0; begin < ids.size(); begin += (size_t)chunk) {
        duet_batch batch = duet_batch_default();
        batch.n_tok = (int32_t)std::min((size_t)chunk, ids.size() - begin);
        batch.token = ids.data() + begin;
        batch.want_logits = want_all.data();
        if (const duet_status st = duet_decode(session, &batch)) return error->set(st, duet_session_error(session));
        for (int32_t i = 0; i < batch.n_tok; i++) {
            const float* row = duet_logits(session, i);
            if (!row) return error->set(DUET_ERR_STATE, "no logits for position " + std::to_string(begin + (size_t)i));
            if (std::fwrite(row, sizeof(float), (size_t)n_vocab, file) != (size_t)n_vocab)
                return error->set(DUET_ERR_IO, std::string("writing failed: ") + std::strerror(errno));
        }
    }
    return DUET_OK;
}

duet_status work(logits_options& options, tool_error* error) {
    std::vector<int32_t>& ids = options.ids;
    std::string text;
    if (ids.empty() && (read_text(options.ids_file, &text, error) != DUET_OK ||
                        parse_ids(text, options.ids_file.c_str(), &ids, error) != DUET_OK))
        return error->status;
    if (options.model.n_ctx == 0) options.model.n_ctx = (int32_t)ids.size();
    if ((size_t)options.model.n_ctx < ids.size())
        return error->set(DUET_ERR_FULL, std::to_string(ids.size()) + " ids do not fit a context of " +
                                             std::to_string(options.model.n_ctx) + " (-c)");
    const int32_t chunk = std::min((int32_t)ids.size(), options.chunk ? options.chunk : 512);
    options.model.max_batch = chunk;
    model_ptr model;
    session_ptr session;
    if (open_model(options.model, &model, error) != DUET_OK) return error->status;
    if (open_session(model.get(), options.model, 1, &session, nullptr, error) != DUET_OK) return error->status;
    const duet_model_info info = info_of(model.get());
    if (options.model.is_verbose)
        std::fprintf(stderr, "%zu ids, %d at a time, %d logits each; device %s\n", ids.size(), chunk, info.n_vocab,
                     info.device);
    const bool is_stdout = options.out_path == "-";
    for (const std::string& in : {options.model.path, options.ids_file})
        if (os::is_same_file(options.out_path, in)) return error->set(DUET_ERR_ARG, in + ": is read, not written");
    // Half a file would look like a result, so a part beside it is written and renamed; not for devices and pipes.
    const bool in_place = is_stdout || os::kind_of(options.out_path) > os::file_kind::regular;
    const std::string target = in_place ? options.out_path : os::resolved(options.out_path);
    const std::string part = in_place ? target : target + ".part" + std::to_string(os::process_id());
    FILE* file = is_stdout ? stdout : os::create(part);
    if (!file) return error->set(DUET_ERR_IO, options.out_path + ": cannot be written: " + std::strerror(errno));
    write_logits(session.get(), ids, chunk, info.n_vocab, file, error);
    bool is_good = (is_stdout ? std::fflush(file) : std::fclose(file)) == 0 && !error->status;
    is_good = is_good && (in_place || os::rename(part, target));
    if (!is_good && !error->status)
        error->set(DUET_ERR_IO, options.out_path + ": writing failed: " + std::strerror(errno));
    if (error->status && !in_place) os::remove(part);
    return error->status;
}

}  // namespace

int main(int argc, char** argv) {
    logits_options options;
    tool_args args("logits", "-m model.gguf --ids 1,2,3 -o out.f32 [options]",
                   "Writes the logits of every position as raw little-endian f32, n_tok x n_vocab.");
    add_model_path(args, &options.model);
    args.text("--ids", "N,N,...", "token ids, positions 0, 1, ...", &options.ids_text);
    args.text("--ids-file", "FILE",
              "ids from a file: numbers, a JSON array, or an object with \"tokens\" or \"ids\"; - is stdin",
              &options.ids_file);
    args.text("-o, --output", "FILE", "file to write; - is stdout", &options.out_path);
    args.integer("--chunk, -b, --batch-size", "N",
                 "ids computed at once: the bits are the same (default: all, at most 512)", &options.chunk, 0, 1 << 20);
    args.integer("-c, --ctx-size", "N", "tokens of context (default 0: all ids)", &options.model.n_ctx, 0, 1 << 30);
    add_device_flags(args, &options.model);
    if (int code; !args.parse(argc, argv, &code)) return code;
    if (options.model.path.empty()) return args.usage_error("no model: want -m FILE");
    if (options.out_path.empty()) return args.usage_error("no output: want -o FILE");
    if (options.ids_text.empty() == options.ids_file.empty())
        return args.usage_error("want either --ids or --ids-file");
    tool_error wrong;
    if (options.ids_file.empty() && parse_ids(options.ids_text, "--ids", &options.ids, &wrong) != DUET_OK)
        return args.usage_error(wrong.message);
    return finish_tool("logits", [&](tool_error* error) { return work(options, error); });
}
