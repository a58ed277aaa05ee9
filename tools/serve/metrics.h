// tools/serve/metrics.h: counters, gauges and histograms in the text form that Prometheus reads.
// Owns: names and buckets. Must not know: who counts.
#pragma once
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace serve {

struct metric_row;

class metrics {
  public:
    metrics();
    void add(const std::string& name, double value = 1, const std::string& labels = "");
    void set(const std::string& name, double value, const std::string& labels = "");
    void observe(const std::string& name, double value);
    std::string text() const;

  private:
    struct family {
        const metric_row* row = nullptr;
        std::map<std::string, double> values;  // by labels, as written: code="200"
        std::vector<uint64_t> counts;          // of a histogram
        double sum = 0;
    };
    mutable std::mutex mutex_;
    std::map<std::string, family> families_;
};

}  // namespace serve
