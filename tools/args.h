// tools/args.h: the command line of all tools. Each program has one table of flags. Parsing, errors and the help text
// come from that table.
// Owns: the syntax of flags and numbers, the form of errors. Must not know: what a tool does with its flags.
// Exit codes of all tools: 0 the work is done, 1 it failed (file, model, memory), 2 the command line is wrong.
//
//     tool_args args("quantize", "IN.gguf OUT.gguf TYPE [options]", "Writes a model in another number format.");
//     args.positional("IN.gguf", "file to read", &in);
//     args.integer("-t, --threads", "N", "threads (0: all)", &n_threads, 0, 1024);
//     args.flag("--pure", "one format for all tensors", &is_pure);
//     if (int code; !args.parse(argc, argv, &code)) return code;
#pragma once
#include "../runtime.h"
#include "os.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

enum { kExitGood = 0, kExitFailed = 1, kExitUsage = 2 };

// Returns the exit code of a program that has written all its output. If stdout did not take all of it (a full disk),
// it prints one line and the code is a failure.
inline int finish_output(const char* tool, int code) {
    errno = 0;
    if (std::fflush(stdout) == 0 && !std::ferror(stdout)) return code;
    std::fprintf(stderr, "%s: cannot write to stdout%s%s\n", tool, errno ? ": " : "",
                 errno ? std::strerror(errno) : "");
    std::clearerr(stdout);  // reports the failure only once
    return kExitFailed;
}

// Cuts a text at each separator. An empty text is one empty part.
inline std::vector<std::string_view> parts_of(std::string_view text, std::string_view separator) {
    std::vector<std::string_view> parts;
    for (size_t end; (end = text.find(separator)) != text.npos; text.remove_prefix(end + separator.size()))
        parts.push_back(text.substr(0, end));
    parts.push_back(text);
    return parts;
}

// Strict numbers: the whole text must be a number, without blanks, hex or trailing characters.
inline bool parse_int(std::string_view text, int64_t* out) {
    if (!text.empty() && text[0] == '+') text.remove_prefix(1);
    const auto r = std::from_chars(text.data(), text.data() + text.size(), *out);
    return r.ec == std::errc() && r.ptr == text.data() + text.size() && !text.empty();
}

// libc++ has from_chars of numbers with a point from version 20 on; Apple's is older.
inline bool parse_float(const std::string& text, double* out) {
    char* end = nullptr;
    const bool is_plain = !text.empty() && text.find_first_not_of("+-.0123456789aefintyAEFINTY") == text.npos;
    return *out = std::strtod(text.c_str(), &end), is_plain && !*end && !std::isnan(*out);
}

// Flags of llama.cpp's programs, which are looked up where a program has no flag of that name. With advice they are
// refused, because the result would be another than was asked for; without advice they ask for what happens anyway.
// clang-format off
constexpr struct { const char *names, *advice; } kForeignFlags[] = {
    {"--jinja --simple-io --no-display-prompt --prompt-cache-all --no-warmup -cb --cont-batching --metrics --allow-requantize", ""},
    {"--color -fa --flash-attn --mlock --numa", "there is nothing to choose: leave it out"},
    {"-i --interactive -r --reverse-prompt", "--chat is the interactive mode, --stop TEXT ends a text there"},
    {"-st --single-turn", "-p without --chat asks once"},
    {"-e --escape", "texts are taken as they are: a new line in -p comes from the shell, as $'a\\nb', or from -f FILE"},
    {"-ctv --cache-type-v", "-ctk is for keys and values"},
    {"-tb --threads-batch -ub --ubatch-size", "-t is for prompts, too, and -b is what is computed at once"},
    {"-hf --hf-repo -mu --model-url", "nothing is downloaded: -m names a file"},
    {"-mg --main-gpu -sm --split-mode -ts --tensor-split -dev --list-devices", "one device computes: --device names it, run --devices lists them"},
    {"-ot --override-tensor -cmoe --cpu-moe", "-ncmoe N keeps the experts of the first N layers on the CPU"},
    {"-md --model-draft --mmproj --lora --control-vector", "drafts, images, adapters and control vectors are not supported"},
    {"--output-tensor-type --token-embedding-type --leave-output-tensor", "--type NAME=TYPE chooses a tensor's format, as output.weight=Q6_K"},
    {"--dry-run", "-v lists the tensors' formats, and /dev/null as OUT.gguf writes nothing"},
    {"--keep-split", "one file is written, whatever the parts of the input"},
    {"--override-kv", "a file's keys are taken as they are"},
};
// clang-format on

class tool_args {
  public:
    // Takes the flag's value ("" for flags without one). Returns "", or a text that says what is wrong with the value.
    using take_fn = std::function<std::string(const std::string& value)>;

    tool_args(const char* tool, const char* usage, const char* about) : tool_(tool), usage_(usage), about_(about) {}

    // names: "-n, --n-predict, --predict". value: the name of the value in the help, "" for a flag without one.
    void call(const std::string& names, const char* value, const std::string& help, take_fn take) {
        option opt{{}, value, help, std::move(take), names};
        for (const std::string_view name : parts_of(names, ", ")) opt.names.emplace_back(name);
        options_.push_back(std::move(opt));
    }
    void text(const char* names, const char* value, const std::string& help, std::string* out) {
        call(names, value, help, [out](const std::string& v) { return *out = v, v.empty() ? "want a text" : ""; });
    }
    void flag(const char* names, const std::string& help, bool* out) {
        call(names, "", help, [out](const std::string&) { return *out = true, std::string(); });
    }
    template <class T>
    void integer(const char* names, const char* value, const std::string& help, T* out, int64_t min, int64_t max) {
        call(names, value, help, [=](const std::string& v) {
            int64_t n = 0;
            if (!parse_int(v, &n) || n < min || n > max)
                return "want a whole number from " + std::to_string(min) + " to " + std::to_string(max);
            return *out = (T)n, std::string();
        });
    }
    // A comma-separated list of whole numbers.
    void integers(const char* names, const char* value, const std::string& help, std::vector<int32_t>* out, int64_t min,
                  int64_t max) {
        call(names, value, help, [=](const std::string& v) {
            out->clear();
            for (const std::string_view word : parts_of(v, ",")) {
                int64_t n = 0;
                if (!parse_int(word, &n) || n < min || n > max)
                    return "want whole numbers from " + std::to_string(min) + " to " + std::to_string(max) +
                           ", separated by commas";
                out->push_back((int32_t)n);
            }
            return std::string();
        });
    }
    // Accepts one of the words, which '|' separates ("f16|f32|q8_0"); *out becomes the word's index in that list.
    void choice(const char* names, const char* words, const std::string& help, int32_t* out) {
        call(names, words, help, [=](const std::string& v) {
            const std::vector<std::string_view> all = parts_of(words, "|");
            const auto found = std::find(all.begin(), all.end(), v);
            if (found == all.end()) return std::string("want one of ") + words;
            *out = (int32_t)(found - all.begin());
            return std::string();
        });
    }
    // Adds an argument without a flag. They come in order, and all are required.
    void positional(const char* name, const std::string& help, std::string* out) {
        positionals_.push_back({name, help, out});
    }
    // Adds a headline to the help, before the options that follow.
    void section(const char* title) { options_.push_back({{}, "", title, nullptr, ""}); }

    // Reads the command line. Returns false if the program must end now with *exit_code (0 after help and version; 2
    // after an error, which stderr has shown).
    bool parse(int argc, char** argv, int* exit_code) {
        const auto wrong = [&](const std::string& message) { return *exit_code = usage_error(message), false; };
        size_t n_positional = 0;
        bool only_positional = false;
        const std::vector<std::string> words = os::arguments(argc, argv);
        for (size_t i = 0; i < words.size(); i++) {
            std::string arg = words[i];
            if (only_positional || arg == "-" || arg.empty() || arg[0] != '-') {
                if (n_positional == positionals_.size())
                    return wrong("unexpected argument '" + arg + "'" + quote_hint(i, words));
                *positionals_[n_positional++].out = arg;
                continue;
            }
            only_positional = arg == "--";
            if (only_positional) continue;
            if (arg == "-h" || arg == "--help" || arg == "--version") {
                arg == "--version" ? (void)std::printf("duet %s\n%s\n", duet_version(), duet_build_info())
                                   : print_help();
                *exit_code = finish_output(tool_, kExitGood);
                return false;
            }
            std::string value;
            const size_t equals = arg.rfind("--", 0) == 0 ? arg.find('=') : std::string::npos;
            if (equals != std::string::npos) {
                value = arg.substr(equals + 1);
                arg.resize(equals);
            }
            const option* opt = find(arg);
            const char* advice = opt ? nullptr : advice_of(arg);
            if (advice && !*advice) continue;
            if (!opt) return wrong(advice ? arg + ": " + advice : "unknown flag '" + arg + "'" + nearest(arg));
            if (!*opt->value && equals != std::string::npos) return wrong(arg + " takes no value");
            if (*opt->value && equals == std::string::npos) {
                if (i + 1 >= words.size()) return wrong(arg + " needs a value: " + opt->value);
                value = words[++i];
                if (find(value) || value == "-h" || value == "--help" || value == "--version")
                    return wrong(arg + " needs a value (" + opt->value + "), found the flag '" + value + "'" +
                                 as_value_hint(*opt, value));
            }
            if (const std::string why = opt->take(value); !why.empty())
                return wrong(arg + ": " + why + (*opt->value ? ", got '" + value + "'" : ""));
        }
        if (n_positional < positionals_.size()) return wrong("missing " + positionals_[n_positional].name);
        return true;
    }

    // Prints the error of a wrong command line on stderr. Returns the program's exit code.
    int usage_error(const std::string& message) const {
        std::fprintf(stderr, "%s: %s; usage: %s %s (-h: all options)\n", tool_, message.c_str(), tool_, usage_);
        return kExitUsage;
    }

  private:
    struct option {
        std::vector<std::string> names;
        const char* value;
        std::string help;
        take_fn take;
        std::string spelling;
    };
    struct positional_arg {
        std::string name, help;
        std::string* out;
    };

    // '_' and '-' mean the same after the first two characters.
    static std::string canonical(std::string name) {
        for (size_t i = 2; i < name.size(); i++)
            if (name[i] == '_') name[i] = '-';
        return name;
    }
    const option* find(const std::string& name) const {
        for (const option& opt : options_)
            for (const std::string& known : opt.names)
                if (canonical(known) == canonical(name)) return &opt;
        return nullptr;
    }
    // Returns the advice for another program's flag; NULL for a flag that nobody knows.
    static const char* advice_of(const std::string& name) {
        for (const auto& [names, advice] : kForeignFlags)
            if ((" " + std::string(names) + " ").find(" " + canonical(name) + " ") != std::string::npos) return advice;
        return nullptr;
    }
    // Says how to give a flag a value that looks like a flag.
    static std::string as_value_hint(const option& opt, const std::string& value) {
        for (const std::string& name : opt.names)
            if (name.rfind("--", 0) == 0) return "; if that is the value, write '" + name + "=" + value + "'";
        return "";
    }
    static std::string quote_hint(size_t i, const std::vector<std::string>& words) {
        const std::string_view arg = words[i], before = i > 1 ? words[i - 2] : std::string_view();
        if (before == "-p" || before == "--prompt") return " (a text of several words needs quotes)";
        return arg.ends_with(".gguf") ? " (is a flag missing before it, such as -m?)" : "";
    }
    // Returns the known flag with the smallest edit distance, if that distance is small beside the name.
    std::string nearest(const std::string& name) const {
        std::string best;
        size_t best_distance = std::min<size_t>(4, (name.size() + 2) / 3);
        std::vector<size_t> row;
        auto try_name = [&](const std::string& known) {
            row.resize(known.size() + 1);
            for (size_t j = 0; j < row.size(); j++) row[j] = j;
            for (size_t i = 0; i < name.size(); i++) {
                size_t diagonal = i;
                row[0] = i + 1;
                for (size_t j = 0; j < known.size(); j++) {
                    const size_t replaced = diagonal + (name[i] != known[j]);
                    diagonal = row[j + 1];
                    row[j + 1] = std::min({row[j] + 1, row[j + 1] + 1, replaced});
                }
            }
            if (row.back() < best_distance) best_distance = row.back(), best = known;
        };
        for (const option& opt : options_)
            for (const std::string& known : opt.names) try_name(known);
        try_name("--help");
        try_name("--version");
        return best.empty() ? "" : ": did you mean " + best + "?";
    }
    void print_help() const {
        std::printf("%s\n\nusage: %s %s\n\n", about_, tool_, usage_);
        auto line = [](const std::string& left, const std::string& help) {
            std::printf(left.size() <= 32 ? "  %-32s  %s\n" : "  %s\n%36s%s\n", left.c_str(),
                        left.size() <= 32 ? help.c_str() : "", help.c_str());
        };
        for (const auto& p : positionals_) line(p.name, p.help);
        for (const option& opt : options_)
            if (!opt.take) std::printf("\n%s\n", opt.help.c_str());
            else if (!opt.spelling.empty()) line(opt.spelling + (*opt.value ? " " : "") + opt.value, opt.help);
        line("-h, --help", "this text");
        line("--version", "version and what was built in");
    }

    const char *tool_, *usage_, *about_;
    std::vector<option> options_;
    std::vector<positional_arg> positionals_;
};
