// tools/run_chat.h: `run` with a chat template: one answer, or an interactive chat.
// Owns: the turns of a conversation, its commands, and how answers look. Must not know: templates and forms of calls
// (the library's duet_chat knows them), keys (line_editor.h).
#pragma once
#include "line_editor.h"
#include "run_cache.h"
#include "run_output.h"

// How an answer looks on stdout: its text; thinking when it is asked for, dimmed on a terminal; calls as lines of JSON.
struct answer_output : output {
    struct call {
        std::string id, name, arguments;
        bool is_complete = false;
    };
    bool shows_thinking = false, has_colours = false, is_line_begun = false, is_thinking = false;
    std::vector<call> calls;

    void add(const duet_chat_event& event) {
        const std::string_view text = view_of(event.text);
        if (event.kind == DUET_CHAT_THINKING && !shows_thinking && !is_json) return;
        if (!is_json && is_thinking != (event.kind == DUET_CHAT_THINKING)) change_part(!is_thinking);
        if (event.kind == DUET_CHAT_CALL_BEGIN)
            calls.push_back({std::string(view_of(event.call_id)), std::string(text), ""});
        if (event.kind == DUET_CHAT_CALL_PIECE && !calls.empty()) calls.back().arguments += text;
        if (event.kind == DUET_CHAT_CALL_END && !calls.empty()) calls.back().is_complete = event.is_complete;
        if (is_json) add_json(event);
        else if (event.kind == DUET_CHAT_CALL_END && !calls.empty()) put_call(calls.back());
        else if ((event.kind == DUET_CHAT_TEXT || event.kind == DUET_CHAT_THINKING) && !text.empty()) {
            put_text(text);
            is_line_begun = text.back() != '\n';
        }
    }
    void end_line() {
        if (is_line_begun) put("\n");
        is_line_begun = false;
    }

  private:
    void change_part(bool begins_thinking) {
        if (!begins_thinking) end_line();
        if (has_colours) put(begins_thinking ? "\x1b[2m" : "\x1b[22m");
        is_thinking = begins_thinking;
    }
    // Arguments are JSON, so a newline in them stands between two values. Those that were cut off are no JSON.
    void put_call(const call& c) {
        std::string arguments = c.arguments;
        for (char& byte : arguments)
            if (byte == '\n' || byte == '\r') byte = ' ';
        end_line();
        put_text("{\"id\":" + json_string(c.id) + ",\"name\":" + json_string(c.name) +
                 (c.is_complete ? ",\"arguments\":" + arguments : ",\"cut_off\":" + json_string(arguments)) + "}\n");
    }
    void add_json(const duet_chat_event& event) {
        const std::string call = ",\"call\":" + std::to_string(event.i_call);
        const std::string text = ",\"text\":" + json_string(view_of(event.text)) + "}\n";
        if (event.kind == DUET_CHAT_TEXT) put("{\"event\":\"text\"" + text);
        if (event.kind == DUET_CHAT_THINKING) put("{\"event\":\"thinking\"" + text);
        if (event.kind == DUET_CHAT_CALL_BEGIN)
            put("{\"event\":\"call_begin\"" + call + ",\"id\":" + json_string(view_of(event.call_id)) +
                ",\"name\":" + json_string(view_of(event.text)) + "}\n");
        if (event.kind == DUET_CHAT_CALL_PIECE) put("{\"event\":\"call_piece\"" + call + text);
        if (event.kind == DUET_CHAT_CALL_END)
            put("{\"event\":\"call_end\"" + call + ",\"complete\":" + (event.is_complete ? "true" : "false") + "}\n");
    }
};

// Makes the conversation. DUET_ERR_STATE: the model has no template, and none was named.
inline duet_status make_chat(const run_options& options, const duet_model* model, chat_ptr* out, tool_error* error) {
    duet_chat_params params = duet_chat_params_default();
    std::string source, tools;
    if (!options.chat_template.empty()) {
        const bool is_path = options.chat_template.find_first_of("/\\.") != std::string::npos;  // no name has these
        const bool is_file = is_path || os::kind_of(options.chat_template) == os::file_kind::regular;
        if (!is_file) params.template_name = options.chat_template.c_str();
        else if (read_text(options.chat_template, &source, error)) return error->status;
        else params.chat_template = source.c_str();
    }
    if (!options.tools.empty()) {
        if (read_text(options.tools, &tools, error)) return error->status;
        params.tools = tools.c_str();
    }
    params.thinking = options.thinking;
    duet_chat* chat = nullptr;
    const duet_status status = duet_chat_create(model, &params, &chat);
    out->reset(chat);
    return status == DUET_OK ? DUET_OK : error->set(status, duet_chat_error(chat));
}

class chat_program {
  public:
    chat_program(const run_options& options, const duet_model* model, const duet_memory_plan& plan,
                 duet_session* session, duet_chat* chat)
        : options_(options), model_(model), plan_(plan), session_(session), chat_(chat), n_left_(options.n_predict) {
        out_.is_json = options.is_json;
        const auto is_set = [](const char* name, const char* value) {
            const char* const found = std::getenv(name);
            return found && *found && (!value || std::string_view(found) == value);
        };
        out_.has_colours =
            out_.is_terminal && !is_set("NO_COLOR", nullptr) && !is_set("TERM", "dumb") && !options.is_json;
        out_.shows_thinking = options.show_thinking || (options.is_chat && out_.is_terminal);
        drops_turns_ = options.overflow == kOverflowDropTurns || (options.overflow < 0 && options.is_chat);
    }

    // Adds the system message, and the messages of a file.
    duet_status add_messages(tool_error* error) {
        std::string json;
        if (options_.has_system && set_system(options_.system) != DUET_OK) return wrong(error, DUET_ERR_ARG);
        if (options_.messages.empty()) return DUET_OK;
        if (read_text(options_.messages, &json, error) != DUET_OK) return error->status;
        const duet_status status = duet_chat_insert(chat_, -1, json.data(), json.size());
        return status ? error->set(status, options_.messages + ": " + duet_chat_error(chat_)) : DUET_OK;
    }

    // Answers once.
    duet_status answer_once(tool_error* error) {
        const int32_t n = duet_chat_count(chat_);
        const bool goes_on = !options_.has_prompt && n > 0 && role_of(n - 1) == "assistant";
        if (options_.has_prompt && add("user", options_.prompt, error) != DUET_OK) return error->status;
        return answer(goes_on ? DUET_CHAT_CONTINUE_LAST : 0, error);
    }
    const run_statistics& statistics() const { return last_; }

    // Answers line by line until the input ends. A failed answer ends it where nobody can read about it and go on.
    duet_status answer_lines(tool_error* error) {
        terminal_lines lines;
        if (lines.is_terminal()) say("/help lists the commands, Ctrl-C stops an answer, Ctrl-D ends the chat");
        bool has_line = options_.has_prompt, was_empty_interrupt = false;
        for (std::string line = options_.prompt;; has_line = false) {
            if (!has_line) {
                if (was_interrupted && !lines.is_terminal()) return DUET_OK;
                const std::string prompt =
                    out_.calls.empty() ? "> " : visible_text("result of " + out_.calls.front().name) + "> ";
                const line_editor::outcome outcome = lines.read(prompt, out_.has_colours, &line);
                was_interrupted = 0;  // a signal that came before the question does not end its answer
                if (outcome == line_editor::kEnd) return DUET_OK;
                if (outcome == line_editor::kInterrupt) {
                    if (!lines.is_terminal() || (was_empty_interrupt && line.empty())) return DUET_OK;
                    was_empty_interrupt = line.empty();
                    if (was_empty_interrupt) say("Ctrl-C again, or Ctrl-D, ends the chat");
                    continue;
                }
            }
            was_empty_interrupt = false;
            if (out_.write_error || (line.substr(0, line.find(' ')) == "/quit" && !has_line)) return out_.failure();
            if (line.find_first_not_of(" \t\n") == line.npos && out_.calls.empty()) continue;
            duet_status status = DUET_OK;
            if (line.starts_with("/") && !line.starts_with("//") && !has_line) status = command(line, error);
            else status = take_line(line.starts_with("//") && !has_line ? line.substr(1) : line, error);
            if (status == DUET_OK) continue;
            if (!lines.is_terminal() || out_.write_error) return status;
            report(options_, *error);
        }
    }

  private:
    static void say(const std::string& text) { std::fprintf(stderr, "run: %s\n", visible_text(text).c_str()); }
    duet_status wrong(tool_error* error, duet_status status) { return error->set(status, duet_chat_error(chat_)); }

    duet_status add(const char* role, const std::string& text, tool_error* error) {
        const duet_status status = duet_chat_add(chat_, role, text.data(), text.size());
        return status ? wrong(error, status) : DUET_OK;
    }
    std::string role_of(int32_t i) { return json_text(json_find(view_of(duet_chat_message(chat_, i)), "role")); }
    bool is_system(int32_t i) {
        const std::string role = role_of(i);
        return role == "system" || role == "developer";
    }
    int32_t last_user() {
        int32_t i = duet_chat_count(chat_) - 1;
        while (i >= 0 && role_of(i) != "user") i--;
        return i;
    }
    duet_status remove_from(int32_t i) { return duet_chat_remove(chat_, i, duet_chat_count(chat_) - i); }

    duet_status set_system(const std::string& text) {
        const std::string json = "{\"role\":\"system\",\"content\":" + json_string(text) + "}";
        if (duet_chat_count(chat_) > 0 && role_of(0) == "system")
            if (const duet_status status = duet_chat_remove(chat_, 0, 1)) return status;
        return text.empty() ? DUET_OK : duet_chat_insert(chat_, 0, json.data(), json.size());
    }

    // Takes what the user wrote: a message, or the result of a call.
    duet_status take_line(const std::string& line, tool_error* error) {
        if (out_.calls.empty()) {
            if (add("user", line, error) != DUET_OK) return error->status;
        } else {
            const answer_output::call call = out_.calls.front();
            const std::string json = "{\"role\":\"tool\",\"tool_call_id\":" + json_string(call.id) +
                                     ",\"name\":" + json_string(call.name) + ",\"content\":" + json_string(line) + "}";
            if (const duet_status status = duet_chat_insert(chat_, -1, json.data(), json.size()))
                return wrong(error, status);
            out_.calls.erase(out_.calls.begin());
            if (!out_.calls.empty()) return DUET_OK;
        }
        return answer(0, error);
    }

    // Removes the oldest turn: a message that is no system's, and all up to the next of the user. The last turn stays.
    bool drop_turn() {
        int32_t first = 0;
        const int32_t n = duet_chat_count(chat_);
        while (first < n && is_system(first)) first++;
        int32_t end = first + 1;
        while (end < n && role_of(end) != "user") end++;
        return end < n && duet_chat_remove(chat_, first, end - first) == DUET_OK;
    }

    // Renders the messages. When the context has too little room for an answer and turns may be dropped, the oldest
    // ones go until a quarter of it is free: what follows them is computed anew, and not at every question.
    duet_status render(int32_t flags, int32_t n_dropped, duet_chat_prompt* prompt, tool_error* error) {
        const size_t n_ctx = (size_t)duet_session_n_ctx(session_);
        const size_t answer = n_left_ < 0 ? 256 : (size_t)std::max(n_left_, 1);
        for (;;) {
            if (const duet_status status = duet_chat_render(chat_, flags, prompt)) return wrong(error, status);
            const size_t room = n_dropped ? n_ctx / 4 : std::min(answer, n_ctx / 8);
            if (!drops_turns_ || prompt->n_ids + room <= n_ctx || !drop_turn()) break;
            n_dropped++;
        }
        if (n_dropped)
            say("the context of " + std::to_string(n_ctx) + " tokens is full: the oldest " +
                (n_dropped == 1 ? "turn is" : std::to_string(n_dropped) + " turns are") + " dropped");
        if (options_.show_prompt)
            for (size_t i = 0; i < prompt->n_ids; i++) print_token(model_, i, prompt->ids[i]);
        return DUET_OK;
    }

    // Keeps the answer to the grammar or schema, and calls to their tools.
    duet_status constrain(int32_t opens_thinking, tool_error* error) {
        if (options_.grammar.empty() && options_.json_schema.empty() && options_.tools.empty()) return DUET_OK;
        if (!grammar_ || grammar_opens_thinking_ != opens_thinking) {
            duet_chat_grammar_params params = duet_chat_grammar_params_default();
            params.tool_choice = options_.tool_choice.empty() ? nullptr : options_.tool_choice.c_str();
            params.opens_thinking = opens_thinking;
            params.gbnf = options_.grammar.empty() ? nullptr : options_.grammar.c_str();
            params.json_schema = options_.json_schema.empty() ? nullptr : options_.json_schema.c_str();
            duet_grammar* grammar = nullptr;
            const duet_status status = duet_chat_grammar(chat_, &params, &grammar);
            grammar_.reset(grammar);
            if (status) return error->set(status, duet_grammar_error(grammar)), grammar_.reset(), status;
            grammar_opens_thinking_ = opens_thinking;
        }
        const duet_status status = duet_sampler_grammar(options_.sampler.get(), grammar_.get());
        return status ? error->set(status, duet_sampler_error(options_.sampler.get())) : DUET_OK;
    }

    // Prints the events of a turn. is_cut: the context was full before the answer ended.
    duet_status play(int32_t flags, bool* is_cut, tool_error* error) {
        std::vector<const char*> stops;
        for (const std::string& stop : options_.stops) stops.push_back(stop.c_str());
        duet_chat_turn_params params = duet_chat_turn_params_default();
        params.max_new_tok = n_left_;
        params.flags = flags;
        params.stop = stops.data();
        params.n_stop = (int32_t)stops.size();
        duet_chat_turn* made = nullptr;
        duet_status status = duet_chat_begin(chat_, session_, options_.sampler.get(), &params, &made);
        const turn_ptr turn(made);
        auto event = sized<duet_chat_event>();
        const double begin = now_seconds();
        double first = begin;
        while (status == DUET_OK && event.kind != DUET_CHAT_END && !out_.write_error) {
            status = duet_chat_next(made, &event);
            if (event.kind == DUET_CHAT_PROMPT) first = now_seconds();
            out_.add(event);
        }
        if (made) {
            last_.n_prompt_tok = event.n_prompt_tok;
            last_.n_reused_tok = event.n_reused_tok;
            last_.n_new_tok += event.kind == DUET_CHAT_END ? event.n_done_tok : 0;
            last_.n_steps = duet_seq_length(session_, 0) - event.n_prompt_tok;
            last_.stop_reason = event.stop_reason;
            last_.prompt_us = (uint64_t)((first - begin) * 1e6);
            last_.generate_us = (uint64_t)((now_seconds() - first) * 1e6);
        }
        *is_cut = status == DUET_OK && event.stop_reason == DUET_STOP_CONTEXT;
        return status ? wrong(error, status) : DUET_OK;
    }

    // Answers the messages. Ctrl-C ends the answer and is no failure; one that came too late for the answer before ends
    // nothing. What was begun in a full context goes on after the oldest turns were dropped.
    duet_status answer(int32_t flags, tool_error* error) {
        const int32_t n_messages = duet_chat_count(chat_);
        auto prompt = sized<duet_chat_prompt>();
        bool is_cut = false;
        last_ = {};
        out_.calls.clear();
        n_left_ = options_.n_predict;
        running_session = session_;
        if (was_interrupted) duet_session_cancel(session_);
        duet_status status = render(flags, 0, &prompt, error);
        if (!status) status = constrain(prompt.opens_thinking, error);
        if (!status) status = play(flags, &is_cut, error);
        if (status == DUET_ERR_CANCELLED && !was_interrupted) {
            if (duet_chat_count(chat_) > n_messages) (void)!remove_from(n_messages);
            status = play(flags, &is_cut, error);
        }
        while (is_cut && drops_turns_ && !grammar_ && out_.calls.empty() && last_.n_new_tok > 0 && n_left_ != 0 &&
               drop_turn()) {
            if (n_left_ > 0) n_left_ = std::max(0, options_.n_predict - last_.n_new_tok);
            tool_error ignored;  // some templates cannot go on inside a message: the answer then ends here
            is_cut = false;
            if (render(DUET_CHAT_CONTINUE_LAST, 1, &prompt, &ignored) == DUET_OK &&
                play(DUET_CHAT_CONTINUE_LAST, &is_cut, &ignored) == DUET_ERR_CANCELLED)
                status = DUET_ERR_CANCELLED;
        }
        running_session = nullptr;
        std::erase_if(out_.calls, [](const auto& call) { return !call.is_complete; });  // nobody can answer those
        if (status == DUET_ERR_CANCELLED && was_interrupted) {
            status = DUET_OK;
            was_interrupted = 0;
        }
        // What was not answered can be asked again.
        if (status != DUET_OK && options_.is_chat && duet_chat_count(chat_) == n_messages && n_messages > 0)
            (void)!remove_from(n_messages - 1);
        if (out_.is_thinking) out_.add({});
        if (options_.is_chat && !options_.is_json) out_.end_line();
        if (options_.is_chat && options_.is_json) print_statistics(options_, model_, plan_, last_);
        return out_.write_error ? out_.failure() : status;
    }

    // ---- commands ----

    duet_status save(const std::string& path, tool_error* error) {
        std::string bytes;
        if (!is_saved_state(path, "DUETCHT"))
            return error->set(DUET_ERR_FORMAT, path + ": want a saved conversation or a new file, found another file");
        const duet_status status =
            saved_bytes([this](auto... to) { return duet_chat_save(chat_, session_, 0, to...); }, &bytes);
        if (status) return wrong(error, status);
        if (const duet_status written = write_file(path, bytes, error, true)) return written;
        return say("saved to " + path), DUET_OK;
    }
    duet_status load(const std::string& path, tool_error* error) {
        std::string bytes;
        if (read_text(path, &bytes, error, prompt_cache::kMaxBytes) != DUET_OK) return error->status;
        const duet_status status = duet_chat_load(chat_, session_, 0, bytes.data(), bytes.size());
        if (status) return error->set(status, path + ": " + duet_chat_error(chat_));
        say(std::to_string(duet_chat_count(chat_)) + " messages loaded");
        return DUET_OK;
    }
    void help() const {
        std::fputs("/reset        forget the conversation; the system message stays\n"
                   "/undo         forget the last question and its answer\n"
                   "/regen        answer the last question again\n"
                   "/system TEXT  another system message; without a text none\n"
                   "/save FILE    keep the conversation, with what was computed\n"
                   "/load FILE    go on with a conversation that was saved\n"
                   "/stats        speed of the last answer, and how full the context is\n"
                   "/quit         end (also Ctrl-D)\n"
                   "A backslash at the end of a line, or Alt-Enter, begins another line. // at the beginning is a /.\n",
                   stderr);
    }
    duet_status command(const std::string& line, tool_error* error) {
        const size_t end = std::min(line.find(' '), line.size());
        const std::string name = line.substr(0, end);
        const std::string text = line.substr(std::min(line.find_first_not_of(' ', end), line.size()));
        const int32_t user = last_user();
        duet_status status = DUET_OK;
        if (name == "/help") help();
        else if (name == "/stats") {
            if (!options_.is_json && last_.n_prompt_tok > 0) print_statistics(options_, model_, plan_, last_);
            say(std::to_string(duet_chat_count(chat_)) + " messages; the context holds " +
                std::to_string(duet_seq_length(session_, 0)) + " of " + std::to_string(duet_session_n_ctx(session_)) +
                " tokens");
        } else if (name == "/system") {
            status = set_system(text);
            if (!status) say(text.empty() ? "no system message" : "the system message is set");
        } else if ((name == "/save" || name == "/load") && (text.empty() || text == "-")) say(name + " wants a file");
        else if (name == "/save") return save(text, error);
        else if (name == "/load") return out_.calls.clear(), load(text, error);
        else if (name == "/reset") {
            int32_t first = 0;
            while (first < duet_chat_count(chat_) && is_system(first)) first++;
            status = remove_from(first);
            out_.calls.clear();
            if (!status) say("the conversation is empty");
        } else if (name == "/undo" || name == "/regen") {
            if (user < 0) return say("there is no question yet"), DUET_OK;
            status = remove_from(user + (name == "/regen"));
            out_.calls.clear();
            if (!status && name == "/regen") return answer(0, error);
            if (!status) say("forgotten; " + std::to_string(user) + " messages are left");
        } else say(name + " is no command; /help lists them, // at the beginning of a line is a /");
        return status ? wrong(error, status) : DUET_OK;
    }

    const run_options& options_;
    const duet_model* model_;
    const duet_memory_plan& plan_;
    duet_session* session_;
    duet_chat* chat_;
    grammar_ptr grammar_;
    int32_t grammar_opens_thinking_ = 0, n_left_;
    bool drops_turns_ = false;
    answer_output out_;
    run_statistics last_;
};
