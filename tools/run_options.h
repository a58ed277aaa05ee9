// tools/run_options.h: the command line of `run`.
// Owns: flags, their names and ranges. Must not know: what is done with them.
#pragma once
#include "common.h"

struct run_options {
    model_options model;
    sampler_ptr sampler;
    std::string prompt, prompt_file;
    bool has_prompt = false, has_seed = false;
    uint64_t seed = 0;
    int32_t n_predict = -1;
    std::vector<std::string> stops;
    std::vector<std::pair<int32_t, double>> biases;
    bool ignore_end = false, is_json = false, show_prompt = false, show_special = false, no_bos = false;
    bool parse_special = false, list_devices = false, is_self_test = false, has_dry = false;
    std::string grammar, grammar_file, json_schema, prompt_cache;
    bool is_raw = false, is_chat = false, has_system = false, show_template = false, show_thinking = false;
    std::string system, messages, tools, tool_choice, chat_template;
    int32_t thinking = -1, overflow = -1;
    std::string chat_flag, text_flag;  // the last flags that only chats, and that only completions have
};

enum { kOverflowError = 0, kOverflowDropTurns = 1 };

inline void add_sampler_flags(tool_args& args, run_options* options) {
    args.section("Choice of tokens (steps run in this order):");
    for (const auto& preset : kSamplerDefaults) set_sampler(options->sampler.get(), preset.name, preset.value);
    add_sampler_params(args, [options](const duet_sampler_param& row, double x) {
        if (row.name == std::string_view("dry.multiplier")) options->has_dry = x > 0;
        return set_sampler(options->sampler.get(), row.name, x);
    });
    args.call("--mirostat", "0|2", "2: mirostat 2 with its usual target (tau 5) instead of the truncating steps",
              [options](const std::string& text) {
                  return text == "2"   ? set_sampler(options->sampler.get(), "mirostat.tau", 5)
                         : text == "0" ? set_sampler(options->sampler.get(), "mirostat.tau", 0)
                                       : std::string("want 0 or 2");
              });
    args.call("--logit-bias", "ID(+/-)BIAS", "adds to one token's logit, as 15043-1.5 or 15043-inf; may be repeated",
              [options](const std::string& text) {
                  const size_t sign = text.find_first_of("+-", 1);
                  int64_t id = 0;
                  double bias = 0;
                  if (sign == std::string::npos || !parse_int(text.substr(0, sign), &id) || id < 0 || id > INT32_MAX ||
                      !parse_float(text.substr(sign), &bias))
                      return std::string("want ID+BIAS or ID-BIAS");
                  return options->biases.emplace_back((int32_t)id, bias), std::string();
              });
    args.call("-s, --seed", "N", "same seed, same text, on every machine (default: from the clock, printed at the end)",
              [options](const std::string& text) {
                  int64_t n = 0;
                  if (!parse_int(text, &n) || n < -1)
                      return std::string("want a whole number from 0 to 9223372036854775807, or -1 for the clock");
                  return options->has_seed = n >= 0, options->seed = (uint64_t)n, std::string();
              });
}

// What the model may write, and what is kept between runs.
inline void add_output_flags(tool_args& args, run_options* o) {
    args.section("What the text may be (docs/chat.md):");
    args.text("--grammar", "TEXT", "a grammar in GBNF, which the text, or the answer, keeps to", &o->grammar);
    args.text("--grammar-file", "FILE", "the same from a file", &o->grammar_file);
    args.text("-j, --json-schema", "TEXT|@FILE", "a JSON schema; {} is any JSON", &o->json_schema);
    args.text("--prompt-cache", "FILE",
              "go on from the state in this file where the prompt begins in the same way, and keep the new state there",
              &o->prompt_cache);
}

inline void add_chat_flags(tool_args& args, run_options* o) {
    // Adds a flag that only chats have.
    auto add = [&](const char* names, const char* value, const char* help, tool_args::take_fn take) {
        const std::string name = names;
        args.call(names, value, help, [=](const std::string& text) {
            o->chat_flag = name.substr(0, name.find(','));
            return take(text);
        });
    };
    auto text = [&](const char* names, const char* value, const char* help, std::string* out) {
        add(names, value, help, [out](const std::string& v) { return *out = v, v.empty() ? "want a text" : ""; });
    };
    args.section("Chat (the file's chat template makes the prompt, where it has one; docs/chat.md):");
    args.flag("--raw, -no-cnv, --no-conversation", "complete the text as it is, without the template", &o->is_raw);
    add("--chat, -cnv, --conversation", "", "an interactive chat; /help lists its commands",
        [o](const std::string&) { return o->is_chat = true, std::string(); });
    add("--system, -sys, --system-prompt", "TEXT", "the system message",
        [o](const std::string& v) { return o->has_system = true, o->system = v, std::string(); });
    text("--messages", "FILE", "messages before the prompt, a JSON list in OpenAI's form; - is stdin", &o->messages);
    text("--tools", "FILE", "functions the model may call, a JSON list; calls are printed as lines of JSON", &o->tools);
    text("--tool-choice", "auto|none|required|NAME", "whether it must call one (default auto)", &o->tool_choice);
    add("--think", "on|off", "whether it thinks before it answers (default: as the template has it)",
        [o](const std::string& v) {
            o->thinking = v == "on";
            return std::string(v == "on" || v == "off" ? "" : "want on or off");
        });
    args.flag("--show-thinking", "print what it thinks, too", &o->show_thinking);
    text("--chat-template", "FILE|NAME", "another template: a file, one of the model's by name, or a built-in one",
         &o->chat_template);
    add("--show-template", "", "print the template and exit",
        [o](const std::string&) { return o->show_template = true, std::string(); });
    add("--ctx-overflow", "error|drop-turns",
        "what to do when the context is full (default in --chat drop-turns: the oldest ones; else error)",
        [o](const std::string& v) {
            o->overflow = v == "error" ? kOverflowError : kOverflowDropTurns;
            return std::string(v == "error" || v == "drop-turns" ? "" : "want error or drop-turns");
        });
}

inline void add_flags(tool_args& args, run_options* o) {
    add_model_path(args, &o->model);
    args.call("-p, --prompt", "TEXT", "the question, or the text to complete; - reads it from stdin",
              [o](const std::string& text) { return o->has_prompt = true, o->prompt = text, std::string(); });
    args.call("-f, --file", "FILE", "reads the prompt from a file; one newline at its end is dropped",
              [o](const std::string& path) { return o->has_prompt = true, o->prompt_file = path, std::string(); });
    args.integer("-n, --n-predict, --predict", "N",
                 "tokens to generate (default -1: to the model's end or a full context)", &o->n_predict, -1, INT32_MAX);
    args.integer("-c, --ctx-size", "N", "tokens of context (default 0: what the model was trained with, at most 4096)",
                 &o->model.n_ctx, 0, 1 << 30);
    args.integer("-b, --batch-size", "N", "prompt tokens at once (default 512)", &o->model.max_batch, 1, 1 << 20);
    add_device_flags(args, &o->model);
    add_rope_flags(args, &o->model);
    args.flag("--devices", "list what can compute and what is used (also with --json), and exit", &o->list_devices);
    args.flag("--selftest", "check every kernel of the device, and a short text, against the plain C++ code; and exit",
              &o->is_self_test);
    args.section("Text:");
    args.call("--stop", "TEXT", "ends the text before this; may be repeated", [o](const std::string& text) {
        return o->stops.push_back(text), std::string(text.empty() ? "want a text" : "");
    });
    args.flag("--ignore-eos", "never end before -n tokens or a full context", &o->ignore_end);
    auto flag = [&](const char* name, const char* help, bool* out) {
        args.call(name, "", help, [=](const std::string&) { return *out = true, o->text_flag = name, std::string(); });
    };
    flag("--no-bos", "do not begin with the model's BOS token (completions only)", &o->no_bos);
    flag("--parse-special", "control tokens spelled out in the prompt become those tokens (completions only)",
         &o->parse_special);
    flag("--special", "print control tokens by their names (completions only)", &o->show_special);
    args.flag("--verbose-prompt", "list the prompt's tokens on stderr", &o->show_prompt);
    args.flag("--json",
              "one JSON object per line on stdout: token, text, thinking, call_begin, call_piece, call_end, end, error",
              &o->is_json);
    add_chat_flags(args, o);
    add_output_flags(args, o);
    add_sampler_flags(args, o);
    args.section("Exit code: 0 done (also after Ctrl-C, which ends the text; a second one kills), 1 failed, 2 wrong "
                 "command line.\n");
}
