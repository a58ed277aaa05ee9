// tools/run.cpp: the program `run` answers with a chat model, or completes a text.
// Owns: what is opened in which order, and completions. Chats are in run_chat.h, flags in run_options.h, what is
// printed in run_output.h. Must not know: anything behind runtime.h. Main path: [tools/run.cpp] -> runtime.h ->
// runtime.cpp -> models/<family>.cpp
#include "run_chat.h"
#include "selftest.h"

namespace {

// Prints one device, as a line or a JSON object: what it is, whether it is used, and if not, why.
void print_device(void* user, const duet_device_info* d) {
    if (*(const bool*)user) {
        std::printf("{\"event\":\"device\",\"id\":\"%s\",\"name\":%s,\"chip\":\"%s\",\"driver\":%s,"
                    "\"memory_bytes\":%llu,\"free_bytes\":%llu,\"integrated\":%s,\"usable\":%s,\"default\":%s,"
                    "\"why\":%s}\n",
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
            return error->set(DUET_ERR_ARG, "--logit-bias: token " + std::to_string(id) + ": the vocabulary has " +
                                                std::to_string(info.n_vocab) + " tokens");
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
    const std::string path = options->prompt == "-" ? "-" : options->prompt_file;
    if (path.empty()) return DUET_OK;
    const duet_status status = read_text(path, &options->prompt, error);
    drop_newline(&options->prompt);
    return status;
}

duet_status tokenize_prompt(const run_options& options, const duet_model* model, std::vector<int32_t>* ids,
                            tool_error* error) {
    const int32_t flags =
        (options.no_bos ? 0 : DUET_TOKENIZE_ADD_BOS) | (options.parse_special ? DUET_TOKENIZE_PARSE_SPECIAL : 0);
    const duet_status status = tokenize(model, options.prompt, flags, ids, error);
    if (status != DUET_OK) return status;
    if (ids->empty())
        return error->set(DUET_ERR_ARG,
                          "the prompt is empty, and the model has no BOS token to begin with: give a text with -p");
    if (options.show_prompt)
        for (size_t i = 0; i < ids->size(); i++) print_token(model, i, (*ids)[i]);
    return DUET_OK;
}

// Reads the texts of --grammar-file and of --json-schema @FILE.
duet_status read_constraints(run_options* options, tool_error* error) {
    const bool is_schema = options->json_schema.starts_with('@');
    const std::string path = is_schema ? options->json_schema.substr(1) : options->grammar_file;
    std::string* text = is_schema ? &options->json_schema : &options->grammar;
    if (path.empty() || read_text(path, text, error)) return error->status;
    if (text->find('\0') != text->npos) return error->set(DUET_ERR_FORMAT, path + ": want a text, found a NUL byte");
    return text->empty() ? error->set(DUET_ERR_ARG, path + ": empty, want a grammar or a schema") : DUET_OK;
}

// Keeps a completion to the grammar or schema.
duet_status constrain(const run_options& options, const duet_model* model, tool_error* error) {
    if (options.grammar.empty() && options.json_schema.empty()) return DUET_OK;
    duet_grammar_params params = duet_grammar_params_default();
    params.gbnf = options.grammar.empty() ? nullptr : options.grammar.c_str();
    params.json_schema = options.json_schema.empty() ? nullptr : options.json_schema.c_str();
    duet_grammar* made = nullptr;
    const duet_status status = duet_grammar_create(model, &params, &made);
    const grammar_ptr grammar(made);
    if (status) return error->set(status, duet_grammar_error(made));
    if (duet_sampler_grammar(options.sampler.get(), made) == DUET_OK) return DUET_OK;
    return error->set(DUET_ERR_MEMORY, duet_sampler_error(options.sampler.get()));
}

// Completes the prompt. Of a sequence that came from a file what is the same as the prompt stays, but for the last
// token, whose logits the file does not have.
duet_status complete(const run_options& options, const duet_model* model, duet_session* session,
                     const std::vector<int32_t>& ids, run_statistics* statistics, tool_error* error) {
    const int32_t n_reused = std::max(0, duet_seq_reuse(session, 0, ids.data(), ids.size() - 1));
    for (int32_t i = 0; i < n_reused; i++)  // for the penalties
        if (duet_sampler_accept(options.sampler.get(), ids[(size_t)i]) != DUET_OK)
            return error->set(DUET_ERR_MEMORY, duet_sampler_error(options.sampler.get()));
    if (constrain(options, model, error)) return error->status;
    std::vector<const char*> stops;
    for (const std::string& stop : options.stops) stops.push_back(stop.c_str());
    duet_generate_params params = duet_generate_params_default();
    params.max_new_tok = options.n_predict;
    params.ignore_end = options.ignore_end;
    params.special = options.show_special;
    params.stop = stops.data();
    params.n_stop = (int32_t)stops.size();
    auto result = sized<duet_generate_result>();
    output out;
    out.is_json = options.is_json;
    duet_status status = duet_generate(session, options.sampler.get(), ids.data() + n_reused,
                                       ids.size() - (size_t)n_reused, &params, on_token, &out, &result);
    if (status == DUET_ERR_CANCELLED && was_interrupted) status = DUET_OK;
    if (out.write_error) return out.failure();
    if (status != DUET_OK) return error->set(status, duet_session_error(session));
    const int32_t n_prompt_tok = result.n_prompt_tok + n_reused, n_steps = duet_seq_length(session, 0) - n_prompt_tok;
    *statistics = {n_prompt_tok,       n_reused,         result.n_new_tok,  n_steps,
                   result.stop_reason, result.prompt_us, result.generate_us};
    return DUET_OK;
}

// Makes the chat, where one is wanted and the model has a template. *chat stays NULL for a completion.
duet_status prepare_chat(const run_options& options, const duet_model* model, chat_ptr* chat, tool_error* error) {
    if (options.is_raw) return DUET_OK;
    const duet_status status = make_chat(options, model, chat, error);
    if (status == DUET_ERR_STATE && options.chat_flag.empty()) return chat->reset(), *error = {}, DUET_OK;
    if (status == DUET_ERR_STATE)
        return error->set(status, options.chat_flag + ": " + error->message +
                                      " (--chat-template NAME or FILE); --raw, or no flag of chats, completes a text");
    if (status != DUET_OK)
        return error->set(status, error->message + (options.chat_flag.empty() ? " (--raw completes the text)" : ""));
    if (!options.text_flag.empty())
        return error->set(DUET_ERR_ARG,
                          options.text_flag + " is for completions: add --raw, which leaves out the chat template");
    if (options.chat_flag.empty())
        std::fprintf(stderr, "run: answers with the model's chat template; --raw completes the text as it is\n");
    // A bias forbids the end; the library's own flag is for completions.
    for (int32_t id = 0; options.ignore_end && id < info_of(model).n_vocab; id++)
        if (duet_token_is_end(model, id) && duet_sampler_bias(options.sampler.get(), id, -INFINITY) != DUET_OK)
            return error->set(DUET_ERR_MEMORY, duet_sampler_error(options.sampler.get()));
    return DUET_OK;
}

duet_status work(run_options& options, tool_error* error) {
    model_ptr model;
    chat_ptr chat;
    session_ptr session;
    load_progress progress;
    duet_memory_plan plan = {};
    std::vector<int32_t> ids;
    if (os::is_terminal(2)) {
        options.model.progress = on_progress;
        options.model.progress_user = &progress;
    }
    if (read_prompt(&options, error) || read_constraints(&options, error) ||
        prompt_cache::check(options.prompt_cache, error))
        return error->status;
    options.model.vocab_only = options.show_template;
    const duet_status status = open_model(options.model, &model, error);
    progress.clear();
    if (status != DUET_OK) return status;
    if (prepare_sampler(options, model.get(), error) || prepare_chat(options, model.get(), &chat, error))
        return error->status;
    if (options.show_template) return output().put(view_of(duet_chat_template(chat.get()))), DUET_OK;
    if (!chat && !options.has_prompt) return error->set(DUET_ERR_ARG, "no prompt: want -p TEXT or -f FILE");
    if (!chat && tokenize_prompt(options, model.get(), &ids, error)) return error->status;
    const duet_status opened = open_session(model.get(), options.model, 1, &session, &plan, error);
    progress.clear();
    if (opened != DUET_OK) return opened;
    tell_placement(options, model.get(), plan);
    if (options.model.is_verbose) tell_model(options, model.get(), session.get(), plan);
    const prompt_cache cache(options.prompt_cache, session.get());
    if (cache.load(error)) return error->status;
    if (!options.is_chat) running_session = session.get();
    if (was_interrupted) duet_session_cancel(session.get());
    duet_status result = DUET_OK;
    run_statistics statistics;
    if (!chat) result = complete(options, model.get(), session.get(), ids, &statistics, error);
    else {
        chat_program program(options, model.get(), plan, session.get(), chat.get());
        result = program.add_messages(error);
        if (!result) result = options.is_chat ? program.answer_lines(error) : program.answer_once(error);
        statistics = program.statistics();
    }
    running_session = nullptr;
    if (result != DUET_OK) return result;
    const duet_status saved = cache.save(error);
    if (!options.is_chat) print_statistics(options, model.get(), plan, statistics);
    return saved;
}

// Tells what is wrong with the flags together; "" when nothing is.
std::string contradiction(const run_options& o) {
    if (o.model.path.empty()) return "no model: want -m FILE";
    if (!o.prompt.empty() && !o.prompt_file.empty()) return "two prompts: want -p or -f, not both";
    if (o.is_raw && !o.chat_flag.empty()) return "--raw completes a text, " + o.chat_flag + " is for chats: not both";
    if (!o.tool_choice.empty() && o.tools.empty()) return "--tool-choice wants --tools FILE";
    if (!o.grammar.empty() + !o.grammar_file.empty() + !o.json_schema.empty() > 1)
        return "want one of --grammar, --grammar-file and --json-schema";
    const int n_stdin = (o.prompt == "-" || o.prompt_file == "-") + (o.messages == "-") + (o.tools == "-") +
                        (o.grammar_file == "-") + (o.json_schema == "@-");
    if (n_stdin > 0 && n_stdin + o.is_chat > 1)
        return "stdin can be one thing only: the prompt, the messages, the tools, a grammar or schema, or the lines of "
               "--chat";
    if (!o.has_prompt && !o.is_chat && o.messages.empty() && !o.show_template)
        return "no prompt: want -p TEXT, -p - (stdin), -f FILE, or --chat";
    return "";
}

}  // namespace

int main(int argc, char** argv) {
    run_options options;
    duet_sampler* sampler = nullptr;
    if (duet_sampler_create(0, &sampler) != DUET_OK) return std::fputs("run: out of memory\n", stderr), kExitFailed;
    options.sampler.reset(sampler);
    tool_args args("run", "-m model.gguf -p \"text\" [options]",
                   "Answers a question with a chat model, or completes a text. Only the text goes to stdout.");
    add_flags(args, &options);
    if (int code; !args.parse(argc, argv, &code)) return code;
    if (options.list_devices || options.model.device == "list") return print_devices(options.is_json);
    if (options.is_self_test)
        return finish_tool("run", [&](tool_error* error) { return self_test(options.model, error); });
    if (const std::string wrong = contradiction(options); !wrong.empty()) return args.usage_error(wrong);
    if (!options.has_seed) {
        const auto ticks = std::chrono::system_clock::now().time_since_epoch().count();
        options.seed = (uint32_t)((uint64_t)ticks ^ (uint64_t)ticks >> 32 ^ os::process_id() << 12);
    }
    os::on_interrupt(on_interrupt, !options.is_chat);  // the second Ctrl-C kills; in a chat each ends an answer
    os::report_large_files();
    tool_error error;
    try {
        if (work(options, &error) == DUET_OK) return finish_output("run", kExitGood);
    } catch (const std::bad_alloc&) { error.set(DUET_ERR_MEMORY, "out of memory"); }
    return error.status == DUET_OK ? kExitFailed : report(options, error);
}
