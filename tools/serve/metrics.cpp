// tools/serve/metrics.cpp: counters, gauges and histograms.
#include "metrics.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>

namespace serve {

namespace {

const std::vector<double> kSeconds = {0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300};
const std::vector<double> kTokens = {1, 4, 16, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 131072};

struct family_row {
    const char *name, *type, *help;
    const std::vector<double>* bounds = nullptr;
    const char* copy_of = nullptr;
};

// clang-format off
const family_row kFamilies[] = {
    {"duet_requests_running", "gauge", "Answers that are being made"},
    {"duet_requests_waiting", "gauge", "Answers that wait for a slot"},
    {"duet_slots", "gauge", "Answers that can be made at the same time"},
    {"duet_kv_cache_usage_ratio", "gauge", "Share of the attention cache that running answers and kept prefixes hold"},
    {"duet_memory_bytes", "gauge", "Memory as planned at the start"},
    {"duet_requests_total", "counter", "Requests by the status of their answer"},
    {"duet_prompt_tokens_total", "counter", "Tokens of prompts, also those found in the cache"},
    {"duet_prompt_tokens_cached_total", "counter", "Tokens of prompts that were found in the cache"},
    {"duet_generation_tokens_total", "counter", "Tokens of answers"},
    {"duet_cancelled_total", "counter", "Answers whose client left before their end"},
    {"duet_put_back_total", "counter", "Answers that gave back their pages of the full cache and were computed again"},
    {"duet_prefix_misses_total", "counter", "Prompts that shared a beginning with the cache and could not use it, by reason"},
    {"duet_time_to_first_token_seconds", "histogram", "From the request to its first token", &kSeconds},
    {"duet_time_between_tokens_seconds", "histogram", "From a token to the next of the same answer", &kSeconds},
    {"duet_queue_time_seconds", "histogram", "From the request to its slot", &kSeconds},
    {"duet_request_seconds", "histogram", "From the request to the end of its answer", &kSeconds},
    {"duet_request_prompt_tokens", "histogram", "Tokens of a prompt", &kTokens},
    {"duet_request_generation_tokens", "histogram", "Tokens of an answer", &kTokens},
    // the names that inference gateways on Kubernetes scrape
    {"vllm:num_requests_running", "gauge", "As duet_requests_running", nullptr, "duet_requests_running"},
    {"vllm:num_requests_waiting", "gauge", "As duet_requests_waiting", nullptr, "duet_requests_waiting"},
    {"vllm:kv_cache_usage_perc", "gauge", "As duet_kv_cache_usage_ratio", nullptr, "duet_kv_cache_usage_ratio"},
    {"vllm:cache_config_info", "gauge", "Tokens of a cache page and number of pages"},
};
// clang-format on

std::string number(double value) {
    char text[40];
    std::snprintf(text, sizeof text, "%.15g", value);
    return text;
}

}  // namespace

metrics::metrics() {
    for (const family_row& row : kFamilies) {
        family& f = families_[row.name];
        f.type = row.type;
        f.help = row.help;
        f.copy_of = row.copy_of;
        if (row.bounds) {
            f.bounds = *row.bounds;
            f.counts.resize(row.bounds->size() + 1);
        }
    }
    for (const char* name : {"duet_requests_running", "duet_requests_waiting", "duet_prompt_tokens_total",
                             "duet_prompt_tokens_cached_total", "duet_generation_tokens_total", "duet_cancelled_total",
                             "duet_put_back_total", "duet_kv_cache_usage_ratio"})
        families_[name].values[""] = 0;
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
    f.counts[(size_t)(std::lower_bound(f.bounds.begin(), f.bounds.end(), value) - f.bounds.begin())]++;
    f.sum += value;
}

std::string metrics::text() const {
    const std::lock_guard lock(mutex_);
    std::string out;
    for (const auto& [name, f] : families_) {
        out += "# HELP " + name + " " + f.help + "\n# TYPE " + name + " " + f.type + "\n";
        for (const auto& [labels, value] : f.copy_of ? families_.at(f.copy_of).values : f.values)
            out += name + (labels.empty() ? "" : "{" + labels + "}") + " " + number(value) + "\n";
        uint64_t n = 0;
        for (size_t i = 0; i < f.counts.size(); i++) {
            n += f.counts[i];
            out += name + "_bucket{le=\"" + (i < f.bounds.size() ? number(f.bounds[i]) : "+Inf") + "\"} " +
                   std::to_string(n) + "\n";
        }
        if (!f.counts.empty())
            out += name + "_sum " + number(f.sum) + "\n" + name + "_count " + std::to_string(n) + "\n";
    }
    return out;
}

}  // namespace serve
