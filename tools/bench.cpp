// tools/bench.cpp: the program `bench` measures the prompt and generation speed of a file or of a synthetic model, and
// compares it with the memory bandwidth that it measures in the same run.
// Owns: what is timed, and how results are shown. Must not know: anything behind runtime.h.
// Main path: [tools/bench.cpp] -> runtime.h
#include "common.h"
#include "json.h"
#include "plot.h"
#include "synthetic.h"

namespace {

int32_t largest(const std::vector<int32_t>& v) { return *std::max_element(v.begin(), v.end()); }

struct bench_options {
    model_options model;
    std::string synthetic, save_path, plot_path;
    std::vector<int32_t> n_prompts{512}, n_gens, n_seqs, n_threads{0}, depths;  // empty: main sets the default
    int32_t n_reps = 5;
    bool is_json = false, with_ops = false, is_memory = false;
    bool is_plot() const { return !plot_path.empty(); }
};

double median_of(std::vector<double> v) {
    std::sort(v.begin(), v.end());
    return (v[(v.size() - 1) / 2] + v[v.size() / 2]) / 2;
}

struct bench_test {
    std::string name;
    int32_t depth = 0, n_prompt = 0, n_gen = 0, n_seqs = 1;
    std::vector<double> seconds = {}, limits = {};  // per repetition: time; mean GB/s of memory before and after it
    double median() const { return median_of(seconds); }
    double n_tok() const { return (double)(n_prompt + n_gen) * n_seqs; }
    double speed() const { return n_tok() / median(); }
    // The slowest and the fastest repetition.
    double min_speed() const { return n_tok() / *std::max_element(seconds.begin(), seconds.end()); }
    double max_speed() const { return n_tok() / *std::min_element(seconds.begin(), seconds.end()); }
};

// One model with one thread count.
struct bench_run {
    const bench_options& options;
    model_ptr model;
    session_ptr session;
    duet_memory_plan plan = {};
    duet_model_info info = {};
    double bandwidth = 0, first_token_seconds = 0;
    int32_t n_threads = 0;
    uint64_t peak_bytes = 0;  // before the bandwidth is first measured, because that needs a large block
    uint32_t random = 1;
    std::vector<int32_t> ids, seqs;
    std::vector<std::string> choices;  // what the log told of ways that were chosen by their speed

    explicit bench_run(const bench_options& o) : options(o) {}

    int32_t random_id() { return (int32_t)((random = random * 1664525u + 1013904223u) >> 8) % info.n_vocab; }

    // Appends n_tok random tokens to each of n_seqs sequences, all in one call.
    duet_status decode(int32_t n_tok, int32_t n_seqs, tool_error* error, int32_t first_seq = 0) {
        ids.resize((size_t)n_tok * (size_t)n_seqs);
        seqs.resize(ids.size());
        for (size_t i = 0; i < ids.size(); i++) {
            ids[i] = random_id();
            seqs[i] = first_seq + (int32_t)(i / (size_t)n_tok);
        }
        // A generating step wants the logits of every sequence; a prompt wants those of the last token only.
        const std::vector<uint8_t> want(n_tok == 1 ? ids.size() : 0, 1);
        duet_batch batch = duet_batch_default();
        batch.n_tok = (int32_t)ids.size();
        batch.token = ids.data();
        batch.seq = seqs.data();
        batch.want_logits = want.empty() ? nullptr : want.data();
        const duet_status status = duet_decode(session.get(), &batch);
        return status == DUET_OK ? DUET_OK : error->set(status, duet_session_error(session.get()));
    }

    // Afterwards sequences 0 .. n_seqs - 1 hold the test's depth of tokens. They share the pages of one more sequence,
    // which keeps the largest depth that was computed. It is computed again where the model cannot go back.
    duet_status rewind(const bench_test& test, tool_error* error) {
        const int32_t base = largest(options.n_seqs);
        duet_session* s = session.get();
        for (bool is_again = false;; is_again = true) {
            const int32_t n_missing = test.depth ? test.depth - duet_seq_length(s, base) : 0;
            if (n_missing > 0 && decode(n_missing, 1, error, base) != DUET_OK) return error->status;
            duet_status status = DUET_OK;
            for (int32_t i = 0; i < test.n_seqs && status == DUET_OK; i++) {
                status = test.depth ? duet_seq_copy(s, base, i) : DUET_OK;
                if (status == DUET_OK) status = duet_seq_trim(s, i, test.depth);
            }
            if (status != DUET_ERR_STATE || is_again)
                return status == DUET_OK ? DUET_OK : error->set(status, duet_session_error(s));
            if (duet_seq_trim(s, base, 0) != DUET_OK) return error->set(DUET_ERR_STATE, duet_session_error(s));
        }
    }

    duet_status run_once(const bench_test& test, double* seconds, tool_error* error) {
        if (rewind(test, error) != DUET_OK) return error->status;
        const double start = now_seconds();
        if (test.n_prompt && decode(test.n_prompt, test.n_seqs, error) != DUET_OK) return error->status;
        for (int32_t i = 0; i < test.n_gen; i++)
            if (decode(1, test.n_seqs, error) != DUET_OK) return error->status;
        *seconds = now_seconds() - start;
        return DUET_OK;
    }

    static void on_log(void* user, int32_t level, const char* text) {
        bench_run& run = *(bench_run*)user;
        if (std::strncmp(text, "chosen: ", 8) == 0) run.choices.push_back(text);
        else print_log((void*)&run.options.model.is_verbose, level, text);
    }

    // bytes: the synthetic file, or NULL to open the path.
    duet_status open(const synthetic_model* made, int32_t threads, tool_error* error) {
        model_options opened = options.model;
        opened.n_threads = n_threads = threads;
        opened.log = on_log;
        opened.log_user = this;
        const int32_t n_more = std::max(largest(options.n_prompts), largest(options.n_gens)) + 1,
                      n_seqs = largest(options.n_seqs), depth = largest(options.depths);
        opened.n_ctx = depth + n_more;
        if (depth) opened.cache_tokens = depth + n_seqs * (n_more + 128ll);  // the depth is shared, but for two pages
        const double start = now_seconds();
        if (open_model(opened, &model, error, made ? made->file : nullptr, made ? made->n_file_bytes : 0) != DUET_OK)
            return error->status;
        if (open_session(model.get(), opened, n_seqs + (depth > 0), &session, &plan, error)) return error->status;
        info = info_of(model.get());
        const double opened_seconds = now_seconds() - start;
        // The first prompt warms up. Its time and the opening's are what a user waits for.
        double seconds = 0;
        bench_test first;
        first.n_prompt = std::max(1, largest(options.n_prompts));
        if (run_once(first, &seconds, error) != DUET_OK) return error->status;
        first_token_seconds = opened_seconds + seconds;
        // What the deepest context takes counts, too.
        if (bench_test deep{"", depth, 1}; depth && run_once(deep, &seconds, error)) return error->status;
        if (!peak_bytes) peak_bytes = os::memory_peak();
        measure_bandwidth();
        return DUET_OK;
    }

    // Where the weights lie: on some machines other memory is read twice as fast.
    void measure_bandwidth() {
        bandwidth = duet_measure_bandwidth_gbps(device_id(info.device).c_str(), model.get(), n_threads);
    }

    // Generation is compared with the bandwidth measured just before and just after each repetition, because the
    // bandwidth of a shared machine changes from second to second.
    duet_status measure(bench_test* test, int32_t n_reps, tool_error* error) {
        bench_test warm_up = *test;
        warm_up.n_gen = std::min(test->n_gen, 2);
        double seconds = 0;
        if (run_once(warm_up, &seconds, error) != DUET_OK) return error->status;
        const bool is_cpu = device_id(info.device) == "cpu";
        if (test->n_gen) measure_bandwidth();
        for (int32_t i = 0; i < n_reps; i++) {
            const double before = bandwidth;
            if (run_once(*test, &seconds, error) != DUET_OK) return error->status;
            test->seconds.push_back(seconds);
            if (test->n_gen && is_cpu) measure_bandwidth();  // a card's is stable, and slow to measure
            test->limits.push_back((before + bandwidth) / 2);
        }
        return DUET_OK;
    }

    // The rate at which a generating step reads weights. One read serves all sequences.
    double gbps(const bench_test& test) const {
        return test.n_gen ? (double)info.decode_bytes * test.n_gen / test.median() / 1e9 : 0;
    }
    // Two operations for each weight that is multiplied. The embedding table of an untied model is gathered, not
    // multiplied.
    double gops(const bench_test& test) const {
        const double table = duet_file_find_tensor(duet_model_file(model.get()), "output.weight") < 0
                                 ? 0
                                 : (double)info.n_vocab * info.dim;
        return 2 * ((double)info.n_params - table) * test.speed() / 1e9;
    }
    // Percentage of the bandwidth, or NaN; the profile table uses the value measured last.
    double share(double gbps) const {
        return bandwidth_percent(gbps, bandwidth, info.decode_bytes, device_id(info.device) == "cpu");
    }
    // The median repetition counts. NaN also where a repetition exceeded the bandwidth measured around it.
    double share(const bench_test& test) const {
        std::vector<double> shares;
        for (size_t i = 0; i < test.seconds.size(); i++) {
            const double gb = (double)info.decode_bytes * test.n_gen / 1e9;
            shares.push_back(test.limits[i] > 0 ? gb / test.seconds[i] / test.limits[i] : 0);
        }
        return bandwidth_percent(median_of(shares), 1, info.decode_bytes, device_id(info.device) == "cpu");
    }
    static std::string share_text(double percent) {
        if (std::isnan(percent)) return "  caches";
        char text[32];
        std::snprintf(text, sizeof text, "%6.0f %%", percent);
        return text;
    }

    void print_model() const {
        std::printf("%s %s, %s, %.2f GB of weights, device %s, cache %.1f MB\n", info.architecture,
                    json_string(info.name).c_str(), info.main_type, info.weight_bytes / 1e9, info.device,
                    plan.cache_bytes / 1e6);
        char more[48] = "";
        if (device_id(info.device) == "cpu")
            std::snprintf(more, sizeof more, " where the weights lie, %.1f of a new block",
                          duet_measure_bandwidth_gbps("cpu", nullptr, n_threads));
        std::printf("duet %s (%s); memory bandwidth %.1f GB/s%s; first token after %.2f s; peak memory %.0f MB\n",
                    duet_version(), duet_build_info(), bandwidth, more, first_token_seconds,
                    peak_bytes / 1e6);  // for a synthetic model, includes making it
    }
    void print(const bench_test& test) const {
        char bytes[64] = "";
        if (test.n_gen) std::snprintf(bytes, sizeof bytes, "%8.2f %s", gbps(test), share_text(share(test)).c_str());
        std::printf("%-14s %8s %12.2f %10.2f - %-10.2f %17s %10.1f\n", test.name.c_str(),
                    n_threads ? std::to_string(n_threads).c_str() : "auto", test.speed(), test.min_speed(),
                    test.max_speed(), bytes, gops(test));
        std::fflush(stdout);
    }
    std::string json(const bench_test& test) const {
        char text[512], percent[32] = "null";  // null: weights were read from caches
        std::string samples;
        if (!std::isnan(share(test))) std::snprintf(percent, sizeof percent, "%.2f", share(test));
        for (double s : test.seconds) samples += (samples.empty() ? "" : ",") + std::to_string(test.n_tok() / s);
        std::snprintf(text, sizeof text,
                      "{\"test\":\"%s\",\"n_threads\":%d,\"n_prompt\":%d,\"n_gen\":%d,\"n_seqs\":%d,\"depth\":%d,"
                      "\"tok_per_s\":%.4f,\"min\":%.4f,\"max\":%.4f,\"weights_gbps\":%.4f,\"bandwidth_gbps\":%.4f,"
                      "\"bandwidth_percent\":%s,\"gops\":%.4f,\"samples\":[",
                      test.name.c_str(), n_threads, test.n_prompt, test.n_gen, test.n_seqs, test.depth, test.speed(),
                      test.min_speed(), test.max_speed(), gbps(test), median_of(test.limits), percent, gops(test));
        return text + samples + "]}";
    }

    // Shows how the time of one test is spread over the kinds of ops.
    duet_status profile(const bench_test& test, std::string* json_rows, tool_error* error) {
        double seconds = 0;
        if (rewind(test, error) != DUET_OK) return error->status;
        duet_session_profile(session.get(), 1);
        const duet_status status = run_once(test, &seconds, error);
        double total_us = 0;
        if (duet_session_profile_rows(session.get()) < 0)
            return error->set(DUET_ERR_MEMORY, duet_session_error(session.get()));
        for (int32_t i = 0; const duet_profile_row* row = duet_session_profile_row(session.get(), i); i++)
            total_us += (double)row->time_us;
        if (!options.is_json)
            std::printf("\n%s, %.1f ms, of which in ops %.1f ms\n%-24s %8s %10s %7s %8s %8s %9s\n", test.name.c_str(),
                        seconds * 1e3, total_us / 1e3, "op", "calls", "ms", "share", "GB/s", "of max", "Gop/s");
        for (int32_t i = 0; const duet_profile_row* row = duet_session_profile_row(session.get(), i); i++) {
            const double us = std::max(1.0, (double)row->time_us), gb = row->weight_bytes / us / 1e3,
                         ops = 2.0 * row->n_mac / us / 1e3;
            char text[320];
            if (!options.is_json)
                std::printf("%-24s %8llu %10.2f %5.1f %% %8.2f %s %9.1f\n", row->op, (unsigned long long)row->n_calls,
                            row->time_us / 1e3, 100 * row->time_us / std::max(1.0, total_us), gb,
                            share_text(share(gb)).c_str(), ops);
            std::snprintf(text, sizeof text,
                          "%s{\"test\":\"%s\",\"op\":%s,\"n_calls\":%llu,\"time_us\":%llu,\"gbps\":%.3f,\"gops\":%.3f}",
                          json_rows->empty() ? "" : ",", test.name.c_str(), json_string(row->op).c_str(),
                          (unsigned long long)row->n_calls, (unsigned long long)row->time_us, gb, ops);
            *json_rows += text;
        }
        duet_session_profile(session.get(), 0);
        return status;
    }
};

// All lengths, depths and batches with each other. Of a plot only those on one of its two axes.
std::vector<bench_test> tests_of(const bench_options& options) {
    std::vector<bench_test> tests;
    const auto add = [&](const char* kind, int32_t depth, int32_t n_prompt, int32_t n_gen, int32_t n_seqs) {
        const bool is_on_axes = depth == options.depths[0] || (n_gen && n_seqs == options.n_seqs[0]);
        if (n_prompt + n_gen == 0 || (options.is_plot() && !is_on_axes)) return;
        const std::string x = n_seqs > 1 ? " x" + std::to_string(n_seqs) : "",
                          at = depth ? " @ " + std::to_string(depth) : "";
        tests.push_back({kind + std::to_string(n_prompt + n_gen) + x + at, depth, n_prompt, n_gen, n_seqs});
    };
    for (int32_t depth : options.depths) {
        for (int32_t n : options.n_prompts) add("pp", depth, n, 0, 1);
        for (int32_t n_seqs : options.n_seqs)
            for (int32_t n : options.n_gens) add("tg", depth, 0, n, n_seqs);
    }
    return tests;
}

// Draws generation over context and over batch. The limit is the best that was measured beside it, because what
// disturbs a measurement makes it smaller: a step reads all weights once, and computes no faster than a prompt does.
duet_status write_plot(const bench_run& run, const std::vector<bench_test>& tests, tool_error* error) {
    double gbps = 0, prompt = 0;
    for (const bench_test& test : tests) {
        if (test.n_prompt) prompt = std::max(prompt, test.max_speed());
        for (double limit : test.limits) gbps = std::max(gbps, limit);
    }
    plot_panel over_context{"Generation: tokens a second", "tokens the context already holds", false},
        over_batch{"Generation: all sequences together", "sequences at once", true};
    for (const bench_test& test : tests) {
        const double reads = gbps * 1e9 / (double)run.info.decode_bytes * test.n_seqs,
                     limit = prompt > 0 ? std::min(prompt, reads) : reads;
        plot_point point{std::to_string(test.depth), test.speed(), test.min_speed(), test.max_speed(), limit};
        if (test.n_gen && test.n_seqs == run.options.n_seqs[0]) over_context.points.push_back(point);
        point.place = std::to_string(test.n_seqs);
        if (test.n_gen && test.depth == run.options.depths[0]) over_batch.points.push_back(point);
    }
    char note[192], more[96] = ".";
    if (prompt > 0)
        std::snprintf(more, sizeof more, ", and makes no more tokens than a prompt's %.0f a second.", prompt);
    std::snprintf(note, sizeof note, "Limit: a step reads all weights once, at the memory's %.1f GB/s%s", gbps, more);
    const std::string name = json_string(run.info.name);
    const std::string title = name.substr(1, name.size() - 2) + ", " + run.info.main_type + "; " + run.info.device +
                              "; duet " + duet_version() + ", " + duet_build_info();
    return write_file(run.options.plot_path, plot::draw(title, {over_context, over_batch}, {note}), error);
}

// Prints how fast memory is read by each pattern: streams of each thread, and bytes that are fetched ahead. The
// patterns take turns.
duet_status measure_memory(const bench_options& options, tool_error* error) {
    constexpr int kPatterns = 20, kStreams[] = {1, 2, 4, 8, 16}, kAhead[] = {0, 512, 1024, 2048};
    model_ptr model;
    model_options opened = options.model;
    opened.device = "cpu";
    if (!opened.path.empty() && open_model(opened, &model, error) != DUET_OK) return error->status;
    for (int32_t threads : options.n_threads) {
        std::vector<double> gbps[kPatterns];
        double best = 0;
        const auto name = [&](int i) {
            return "cpu:" + std::to_string(kStreams[i / 4]) + "+" + std::to_string(kAhead[i % 4]);
        };
        for (int32_t k = 0; k < options.n_reps; k++)
            for (int i = 0; i < kPatterns; i++)
                gbps[i].push_back(duet_measure_bandwidth_gbps(name(i).c_str(), model.get(), threads));
        for (const std::vector<double>& v : gbps) best = std::max(best, median_of(v));
        if (best == 0) return error->set(DUET_ERR_MEMORY, "--memory: want 400 MB of free memory");
        if (!options.is_json)
            std::printf("%-8s %8s %8s %10s %8s %19s\n", "threads", "streams", "ahead", "GB/s", "of best",
                        "slowest - fastest");
        for (int i = 0; i < kPatterns; i++) {
            const auto [slowest, fastest] = std::minmax_element(gbps[i].begin(), gbps[i].end());
            std::printf(options.is_json
                            ? "{\"n_threads\":%s,\"streams\":%d,\"ahead\":%d,\"gbps\":%.3f,\"percent\":%.1f,"
                              "\"min\":%.3f,\"max\":%.3f}\n"
                            : "%-8s %8d %8d %10.2f %6.0f %% %9.2f - %.2f\n",
                        threads || options.is_json ? std::to_string(threads).c_str() : "auto", kStreams[i / 4],
                        kAhead[i % 4], median_of(gbps[i]), 100 * median_of(gbps[i]) / best, *slowest, *fastest);
        }
    }
    return DUET_OK;
}

duet_status work(const bench_options& options, tool_error* error) {
    if (options.is_memory) return measure_memory(options, error);
    if (check_output(options.plot_path, {options.model.path}, error)) return error->status;
    synthetic_model made;
    const bool is_made = !options.synthetic.empty();
    if (is_made && (made.parse(options.synthetic, error) || made.build(error))) return error->status;
    if (!options.save_path.empty()) {
        const duet_status status = duet_writer_save(made.writer.get(), options.save_path.c_str());
        return status == DUET_OK ? DUET_OK : error->set(status, duet_writer_error(made.writer.get()));
    }
    if (is_made && made.write_to_memory(error) != DUET_OK) return error->status;
    std::string tests_json, ops_json, choices_json, model_json;
    uint64_t peak_bytes = 0;
    for (int32_t threads : options.n_threads) {
        bench_run run(options);
        run.peak_bytes = peak_bytes;
        if (run.open(is_made ? &made : nullptr, threads, error) != DUET_OK) return error->status;
        peak_bytes = run.peak_bytes;
        std::vector<bench_test> tests = tests_of(options);
        if (!options.is_json) {
            run.print_model();
            std::printf("%-14s %8s %12s %23s %8s %8s %10s\n", "test", "threads", "tok/s", "slowest - fastest", "GB/s",
                        "of max", "Gop/s");
        }
        // The points of a plot take turns, so that what disturbs the machine for a while disturbs them alike.
        for (int32_t n_turns = options.is_plot() ? options.n_reps : 1; n_turns > 0; n_turns--)
            for (bench_test& test : tests) {
                if (run.measure(&test, options.is_plot() ? 1 : options.n_reps, error) != DUET_OK) return error->status;
                if (n_turns > 1) continue;
                if (!options.is_json) run.print(test);
                tests_json += (tests_json.empty() ? "" : ",") + run.json(test);
            }
        if (options.is_plot() && write_plot(run, tests, error) != DUET_OK) return error->status;
        const bool is_cached = std::any_of(tests.begin(), tests.end(), [&](const bench_test& test) {
            return test.n_gen && std::isnan(run.share(test));
        });
        if (is_cached && !options.is_json)
            std::printf("caches: the weights fit the processor's caches (%.0f MB), or were read faster than memory: "
                        "no share of its bandwidth\n",
                        largest_cache_bytes() / 1e6);
        for (const std::string& text : run.choices) {
            if (!options.is_json) std::printf("%s\n", text.c_str());
            choices_json += (choices_json.empty() ? "" : ",") + json_string(text);
        }
        for (size_t i = 0; options.with_ops && i < tests.size(); i++)
            if (run.profile(tests[i], &ops_json, error) != DUET_OK) return error->status;
        char text[512];
        std::snprintf(
            text, sizeof text,
            "\"main_type\":\"%s\",\"n_params\":%llu,\"weight_bytes\":%llu,\"decode_bytes\":%llu,\"cache_bytes\":%llu,"
            "\"work_bytes\":%llu,\"first_token_s\":%.4f,\"peak_bytes\":%llu",
            run.info.main_type, (unsigned long long)run.info.n_params, (unsigned long long)run.info.weight_bytes,
            (unsigned long long)run.info.decode_bytes, (unsigned long long)run.plan.cache_bytes,
            (unsigned long long)run.plan.work_bytes, run.first_token_seconds, (unsigned long long)run.peak_bytes);
        model_json =
            "\"model\":" + json_string(run.info.name) + ",\"device\":" + json_string(run.info.device) + "," + text;
    }
    if (options.is_json)
        std::printf("{\"duet\":\"%s\",\"build\":%s,%s,\"tests\":[%s],\"ops\":[%s],\"choices\":[%s]}\n", duet_version(),
                    json_string(duet_build_info()).c_str(), model_json.c_str(), tests_json.c_str(), ops_json.c_str(),
                    choices_json.c_str());
    return DUET_OK;
}

}  // namespace

int main(int argc, char** argv) {
    bench_options options;
    tool_args args("bench", "(-m model.gguf | --synthetic 8b:q4_0 | --memory) [options]",
                   "Measures prompt (pp) and generation (tg) speed: medians, beside the memory bandwidth measured in "
                   "the same run.");
    add_model_path(args, &options.model);
    args.text("--synthetic", "SHAPE:FORMAT[:OUT]",
              "random weights instead of a file: 1b, 3b, 8b, 14b, 32b, 70b; OUT: format of the output matrix",
              &options.synthetic);
    args.text("--save", "FILE", "write the synthetic model as a file, and exit", &options.save_path);
    args.integers("-p, --n-prompt", "N,N", "prompt lengths (default 512; 0: none)", &options.n_prompts, 0, 1 << 20);
    args.integers("-n, --n-gen", "N,N", "numbers of new tokens (default 128; 0: none)", &options.n_gens, 0, 1 << 20);
    args.integers("--depth, -d", "N,N", "tokens the context already holds (default 0)", &options.depths, 0, 1 << 28);
    args.integers("--batch", "N,N", "sequences that generate together (default 1)", &options.n_seqs, 1, 1024);
    args.call("--plot", "FILE.svg",
              "also draw generation over context and batch (default -n 32 -d 0,512,1024,2048,4096 --batch 1,2,4,8,16)",
              [&](const std::string& v) { return options.plot_path = v, std::string(v.empty() ? "want a file" : ""); });
    args.integer("-b, --batch-size", "N", "prompt tokens at once (default 512)", &options.model.max_batch, 1, 1 << 20);
    args.integer("-r, --repetitions", "N", "repetitions of each test (default 5)", &options.n_reps, 1, 1000);
    args.integers("-t, --threads", "N,N", "threads (0: one per physical core)", &options.n_threads, 0, kMaxThreads);
    args.flag("--memory", "how fast memory, or -m's weights, are read by 1 to 16 streams a thread, prefetched or not",
              &options.is_memory);
    args.flag("--ops", "also the time of each kind of op", &options.with_ops);
    args.flag("--json", "one JSON object instead of tables", &options.is_json);
    add_device_flags(args, &options.model, false);
    if (int code; !args.parse(argc, argv, &code)) return code;
    if (!options.is_memory && options.model.path.empty() == options.synthetic.empty())
        return args.usage_error("want either -m FILE or --synthetic SHAPE:FORMAT"), kExitUsage;
    const bool is_plot = options.is_plot();
    if (options.n_gens.empty()) options.n_gens = {is_plot ? 32 : 128};
    if (options.depths.empty()) options.depths = is_plot ? std::vector{0, 512, 1024, 2048, 4096} : std::vector{0};
    if (options.n_seqs.empty()) options.n_seqs = is_plot ? std::vector{1, 2, 4, 8, 16} : std::vector{1};
    if (is_plot && (options.is_memory || !options.save_path.empty()))
        return args.usage_error("--plot draws what is measured of a model: not with --memory or --save"), kExitUsage;
    if (is_plot && (options.n_threads.size() > 1 || options.n_gens.size() > 1 || !options.n_gens[0]))
        return args.usage_error("--plot wants one number of threads (-t) and one of tokens (-n)"), kExitUsage;
    if (largest(options.n_prompts) == 0 && largest(options.n_gens) == 0)
        return args.usage_error("nothing to measure: want -p or -n above 0"), kExitUsage;
    if (!options.save_path.empty() && options.synthetic.empty())
        return args.usage_error("--save wants --synthetic"), kExitUsage;
    return finish_tool("bench", [&](tool_error* error) { return work(options, error); });
}
