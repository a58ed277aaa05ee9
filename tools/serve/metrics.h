// tools/serve/metrics.h: counters, gauges and histograms in the text form that Prometheus reads.
// Owns: names and buckets. Must not know: who counts.
#pragma once
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace serve {

class metrics {
  public:
    metrics();
    void add(const std::string& name, double value = 1, const std::string& labels = "");
    void set(const std::string& name, double value, const std::string& labels = "");
    void observe(const std::string& name, double value);
    std::string text() const;

  private:
    struct family {
        const char *type, *help, *copy_of;
        std::map<std::string, double> values;  // by labels, as written: code="200"
        std::vector<double> bounds;            // of a histogram
        std::vector<uint64_t> counts;
        double sum = 0;
    };
    mutable std::mutex mutex_;
    std::map<std::string, family> families_;
};

}  // namespace serve
