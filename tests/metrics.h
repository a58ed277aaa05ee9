// tests/metrics.h: the error measures, defined once. x is the wanted value, y the result; sums are in double.
#pragma once
#include <cmath>
#include <cstddef>

// Returns sum w (x - y)^2 / sum w x^2, where a null w means 1. Returns 0 if both sums are 0, infinity if only the lower
// sum is 0.
inline double nmse(const float* x, const float* y, size_t n, const float* w = nullptr) {
    double error = 0, power = 0;
    for (size_t i = 0; i < n; i++) {
        const double weight = w ? (double)w[i] : 1.0, difference = (double)x[i] - (double)y[i];
        error += weight * difference * difference;
        power += weight * (double)x[i] * (double)x[i];
    }
    return error == 0 ? 0 : error / power;
}

// Returns sqrt(sum (x - y)^2 / n).
inline double rms_difference(const float* x, const float* y, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
    return n ? std::sqrt(sum / (double)n) : 0;
}

// Returns max |x - y|, or NaN if any difference is NaN.
inline double max_difference(const float* x, const float* y, size_t n) {
    double most = 0;
    for (size_t i = 0; i < n; i++) {
        const double difference = std::fabs((double)x[i] - (double)y[i]);
        if (!(difference <= most)) most = difference;
        if (difference != difference) return difference;
    }
    return most;
}
