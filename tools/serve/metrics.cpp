// tools/serve/metrics.cpp: counters, gauges and histograms.
#include "metrics.h"

#include <algorithm>
#include <cstdio>

namespace serve {

struct metric_row {
    const char *name, *type, *help;
    bool has_labels = false;
    const std::vector<double>* bounds = nullptr;
    const char* copy_of = nullptr;
};

namespace {

const std::vector<double> kSeconds = {0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300};
const std::vector<double> kTokens = {1, 4, 16, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 131072};

// clang-format off
const metric_row kRows[] = {
    {"duet_requests_running", "gauge", "Answers that are being made"},
    {"duet_requests_waiting", "gauge", "Answers that wait for a slot"},
    {"duet_slots", "gauge", "Answers that can be made at the same time"},
    {"duet_kv_cache_usage_ratio", "gauge", "Share of the attention cache that running answers and kept prefixes hold"},
    {"duet_memory_bytes", "gauge", "Memory as planned at the start", true},
    {"duet_requests_total", "counter", "Requests by the status of their answer", true},
    {"duet_prompt_tokens_total", "counter", "Tokens of prompts, also those found in the cache"},
    {"duet_prompt_tokens_cached_total", "counter", "Tokens of prompts that were found in the cache"},
    {"duet_generation_tokens_total", "counter", "Tokens of answers"},
    {"duet_cancelled_total", "counter", "Answers whose client left before their end"},
    {"duet_put_back_total", "counter", "Answers that gave back their pages of the full cache and were computed again"},
    {"duet_prefix_misses_total", "counter", "Prompts that shared a beginning with the cache and could not use it, by reason", true},
    {"duet_time_to_first_token_seconds", "histogram", "From the request to its first token", false, &kSeconds},
    {"duet_time_between_tokens_seconds", "histogram", "From a token to the next of the same answer", false, &kSeconds},
    {"duet_queue_time_seconds", "histogram", "From the request to its slot", false, &kSeconds},
    {"duet_request_seconds", "histogram", "From the request to the end of its answer", false, &kSeconds},
    {"duet_request_prompt_tokens", "histogram", "Tokens of a prompt", false, &kTokens},
    {"duet_request_generation_tokens", "histogram", "Tokens of an answer", false, &kTokens},
    // the names that inference gateways on Kubernetes scrape
    {"vllm:num_requests_running", "gauge", "As duet_requests_running", false, nullptr, "duet_requests_running"},
    {"vllm:num_requests_waiting", "gauge", "As duet_requests_waiting", false, nullptr, "duet_requests_waiting"},
    {"vllm:kv_cache_usage_perc", "gauge", "As duet_kv_cache_usage_ratio", false, nullptr, "duet_kv_cache_usage_ratio"},
    {"vllm:cache_config_info", "gauge", "Tokens of a cache page and number of pages", true},
};
// clang-format on

std::string number(double value) {
    char text[40];
    std::snprintf(text, sizeof text, "%.15g", value);
    return text;
}

}  // namespace

metrics::metrics() {
    for (const metric_row& row : kRows) {
        family& f = families_[row.name];
        f.row = &row;
        if (row.bounds) f.counts.resize(row.bounds->size() + 1);
        else if (!row.has_labels && !row.copy_of) f.values[""] = 0;
    }
}

void metrics::add(const std::string& name, double value, const std::string& labels) {
    const std::lock_guard lock(mutex_);
    families_.at(name).values[labels] += value;
}

void metrics::set(const std::string& name, double value, const std::string& labels) {
    const std::lock_guard lock(mutex_);
    families_.at(name).values[labels] = value;
}

void metrics::observe(const std::string& name, double value) {
    const std::lock_guard lock(mutex_);
    family& f = families_.at(name);
    const std::vector<double>& bounds = *f.row->bounds;
    f.counts[(size_t)(std::lower_bound(bounds.begin(), bounds.end(), value) - bounds.begin())]++;
    f.sum += value;
}

std::string metrics::text() const {
    const std::lock_guard lock(mutex_);
    std::string out;
    for (const auto& [name, f] : families_) {
        out += "# HELP " + name + " " + f.row->help + "\n# TYPE " + name + " " + f.row->type + "\n";
        for (const auto& [labels, value] : f.row->copy_of ? families_.at(f.row->copy_of).values : f.values)
            out += name + (labels.empty() ? "" : "{" + labels + "}") + " " + number(value) + "\n";
        uint64_t n = 0;
        for (size_t i = 0; i < f.counts.size(); i++) {
            const std::string bound = i + 1 < f.counts.size() ? number((*f.row->bounds)[i]) : "+Inf";
            out += name + "_bucket{le=\"" + bound + "\"} " + std::to_string(n += f.counts[i]) + "\n";
        }
        if (f.counts.size()) out += name + "_sum " + number(f.sum) + "\n" + name + "_count " + std::to_string(n) + "\n";
    }
    return out;
}

}  // namespace serve
