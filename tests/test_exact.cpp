// tests/test_exact.cpp: the functions that the numeric contract defines, against the C library in higher precision
// (error bounds), and the definitions on cases worked out by hand.
#include "doctest.h"
#include "../quant/activate.h"
#include "../cpu/kernels.h"
#include "../quant/exact.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

using namespace duet;

namespace {

// Returns the error of got, in units of the last place of the f32 nearest to want.
double ulps(float got, double want) {
    const float near = (float)want;
    return std::fabs((double)got - want) / std::ldexp(1.0, std::max(-149, std::ilogb(near == 0 ? 1e-38f : near) - 23));
}

template <class F, class G>
double worst(float low, float high, F f, G reference) {
    double worst_ulps = 0;
    const int n = 400000;
    for (int i = 0; i <= n; i++) {
        const float x = low + (high - low) * (float)i / (float)n;
        worst_ulps = std::max(worst_ulps, ulps(f(x), reference((double)x)));
    }
    return worst_ulps;
}

}  // namespace

TEST_CASE("f32 functions: error in units of the last place") {
    const double e = worst(-87.3f, 88.7f, exact_exp, [](double x) { return std::exp(x); });
    const double t = worst(-12.0f, 12.0f, exact_tanh, [](double x) { return std::tanh(x); });
    const double s = worst(-30.0f, 30.0f, exact_sigmoid, [](double x) { return 1 / (1 + std::exp(-x)); });
    const double silu = worst(-30.0f, 30.0f, exact_silu, [](double x) { return x / (1 + std::exp(-x)); });
    const double soft = worst(-20.0f, 20.0f, exact_softplus, [](double x) { return std::log1p(std::exp(x)); });
    MESSAGE("worst error in ulp: exp ", e, ", tanh ", t, ", sigmoid ", s, ", silu ", silu, ", softplus ", soft);
    CHECK(e < 1.5);
    CHECK(t < 4.0);
    CHECK(s < 3.5);
    CHECK(silu < 4.0);
    CHECK(soft < 3.0);
    double gelu = 0;  // absolute: near its zero at the left the relative error of any f32 formula grows
    for (float x = -10; x < 10; x += 1e-4f) {
        const double d = x, want = 0.5 * d * (1 + std::tanh(0.79788456080286535588 * (d + 0.044715 * d * d * d)));
        gelu = std::max(gelu, std::fabs(exact_gelu(x) - want));
    }
    CHECK(gelu < 1e-6);
}

namespace {

uint64_t bits(float x) { return std::isnan(x) ? 1 : duet::bits_of(x); }
uint64_t bits(double x) { return std::isnan(x) ? 1 : duet::bits_of(x); }

// Numbers whose sums and products meet: equal magnitudes, halves of the last place, the largest, the smallest, zeros.
template <class T> std::vector<T> awkward_numbers() {
    std::vector<T> out;
    const T tiny = std::numeric_limits<T>::denorm_min(), small = std::numeric_limits<T>::min(),
            eps = std::numeric_limits<T>::epsilon(), large = std::numeric_limits<T>::max();
    for (T x : {(T)0, (T)1, 1 + eps, 1 - eps / 2, (T)3, (T)1.5, eps, eps / 2, tiny, 3 * tiny, small, small - tiny,
                large, large / 2, (T)INFINITY, (T)NAN, std::sqrt(large), std::sqrt(small), small * 3})
        out.push_back(x), out.push_back(-x);
    return out;
}

// Compares soft_fma with the C library's fma, which rounds once or is the processor's instruction.
template <class T, class U> void compare_fma(int n_random) {
    const std::vector<T> awkward = awkward_numbers<T>();
    int n_wrong = 0;
    const auto check = [&](T x, T y, T z) {
        const T got = soft_fma(x, y, z), want = std::fma(x, y, z);
        if (bits(got) == bits(want)) return;
        if (n_wrong++ == 0) MESSAGE("soft_fma(", x, ", ", y, ", ", z, "): want ", want, ", got ", got);
    };
    for (T x : awkward)
        for (T y : awkward)
            for (T z : awkward) check(x, y, z);
    std::mt19937_64 rng(1);
    constexpr int kPlaces = sizeof(T) == 4 ? 24 : 53;
    for (int i = 0; i < n_random; i++) {
        const auto any = [&] {
            T x;
            const U b = (U)rng();
            memcpy(&x, &b, sizeof x);
            return x;
        };
        const auto near_one = [&] { return std::ldexp((T)(rng() >> 11), -53 + (int)(rng() % 4)); };
        check(any(), any(), any());
        const T x = near_one(), y = near_one();
        check(x, y, std::ldexp((T)(rng() % 2 ? 1 : -1) * near_one(), (int)(rng() % 120) - 60));
        check(x, y, -x * y);                                                                // what the rounding took
        check(x, (T)1, std::ldexp(x, -kPlaces - (int)(rng() % 3)) * (rng() % 2 ? 1 : -1));  // near half a place
        check(std::ldexp(x, -60), std::ldexp(y, std::numeric_limits<T>::min_exponent + 50), any() * 0 + (T)0);
    }
    CHECK(n_wrong == 0);
}

}  // namespace

TEST_CASE("fma without the processor's instruction rounds once") {
    compare_fma<float, uint32_t>(300000);
    compare_fma<double, uint64_t>(300000);
}

TEST_CASE("f32 functions at the edges") {
    CHECK(exact_exp(0.0f) == 1.0f);
    CHECK(exact_exp(-1000.0f) == 0.0f);
    CHECK(exact_exp(-INFINITY) == 0.0f);
    CHECK(exact_exp(1000.0f) == INFINITY);
    CHECK(std::isnan(exact_exp(NAN)));
    CHECK(exact_tanh(100.0f) == 1.0f);
    CHECK(exact_tanh(-100.0f) == -1.0f);
    CHECK(std::isnan(exact_tanh(NAN)));
    CHECK(exact_silu(-200.0f) == 0.0f);
    CHECK(exact_softplus(100.0f) == 100.0f);
    CHECK(exact_softplus(-100.0f) == 0.0f);
    CHECK(std::isnan(exact_softplus(NAN)));
    CHECK(exact_rint(2.5f) == 2.0f);
    CHECK(exact_rint(-3.5f) == -4.0f);
}

TEST_CASE("f64 functions: the same bits on every system") {
    uint64_t hash = 0;
    for (int i = 0; i <= 100000; i++) {
        double s, c;
        exact_sincos64((i - 50000) * 6.1, &s, &c);
        const double x = exact_exp64((i - 50000) * 0.014);
        for (double result : {x, exact_log64(x), exact_pow64(10000.0, -1e-5 * i), s, c})
            hash = hash * 6364136223846793005u + bits_of(result);
    }
    CHECK(hash == 13111521179249809016u);
}

TEST_CASE("f64 functions: relative error") {
    double e = 0, l = 0, sc = 0;
    std::mt19937_64 rng(1);
    std::uniform_real_distribution<double> wide(-700, 700), angle(-3e5, 3e5);
    for (int i = 0; i < 200000; i++) {
        const double x = wide(rng), a = angle(rng), p = std::exp(wide(rng));
        e = std::max(e, std::fabs(exact_exp64(x) / std::exp(x) - 1));
        l = std::max(l, std::fabs(exact_log64(p) - std::log(p)) / std::max(1e-3, std::fabs(std::log(p))));
        double s, c;
        exact_sincos64(a, &s, &c);
        sc = std::max({sc, std::fabs(s - std::sin(a)), std::fabs(c - std::cos(a))});
    }
    CHECK(e < 5e-16);
    CHECK(l < 5e-16);
#if !defined(__MINGW32__)  // the sine and cosine of its C library are off by 4.4e-16
    CHECK(sc < 3e-16);
#endif
    CHECK(exact_log64(1.0) == 0.0);
    CHECK(exact_log64(0.0) == -INFINITY);
    CHECK(std::isnan(exact_log64(-1.0)));
    CHECK(exact_exp64(0.0) == 1.0);
    CHECK(exact_pow64(10000.0, -0.5) == doctest::Approx(0.01).epsilon(1e-15));
}

TEST_CASE("sums follow the lanes") {
    // 300 terms: lane j holds term j + term j + 256, then halves are added; in f32 the order shows
    std::vector<float> x(300);
    std::mt19937 rng(2);
    for (float& v : x) v = std::ldexp((float)rng(), -20 - (int)(rng() % 20));
    float lane[256];
    for (int j = 0; j < 256; j++) lane[j] = 0.0f + x[(size_t)j];
    for (int j = 0; j < 44; j++) lane[j] = lane[j] + x[(size_t)(256 + j)];
    for (int h : {128, 64, 32, 16, 8, 4, 2, 1})
        for (int j = 0; j < h; j++) lane[j] = lane[j] + lane[j + h];
    CHECK(exact_sum(300, [&](int i) { return x[(size_t)i]; }) == lane[0]);
}

TEST_CASE("a row's dot follows its groups") {
    std::mt19937 rng(3);
    std::normal_distribution<float> normal;
    std::vector<float_f32> w(300);
    std::vector<float> x(300);
    for (size_t i = 0; i < 300; i++) w[i].bits = normal(rng), x[i] = normal(rng);
    float total = 0;
    for (int g = 0; g < 300; g += 128) {
        float acc = 0;
        for (int i = g; i < std::min(300, g + 128); i++) acc = std::fma(w[(size_t)i].bits, x[(size_t)i], acc);
        total = total + acc;
    }
    CHECK(exact_dot_float(w.data(), 300, x.data()) == total);
}

TEST_CASE("norms of rows that overflow are NaN, on every instruction set") {
    std::vector<float> x(64, 1.0f), y(64);
    x[7] = 1e20f;
    for (int i = 0; const cpu_kernels* k = cpu_kernels_at(i); i++) {
        k->rms_norm(x.data(), nullptr, 64, 1e-5f, y.data());
        for (float v : y) CHECK(std::isnan(v));
    }
    exact_layer_norm(x.data(), nullptr, nullptr, 64, 1e-5f, y.data());
    CHECK(std::isnan(y[0]));
    exact_l2_norm(x.data(), 64, 1e-5f, y.data());
    CHECK(std::isnan(y[0]));
}

TEST_CASE("attention in chunks is attention") {
    // three chunks merged against one softmax in f64, with a sink
    std::mt19937 rng(4);
    std::normal_distribution<float> normal;
    const int n = 150, d = 8;
    std::vector<float> score(192), v((size_t)(n * d));
    for (float& e : score) e = 3 * normal(rng);
    for (float& e : v) e = normal(rng);
    attn_state all{}, part{};
    float o[8], o1[8], out[8];
    for (int c = 0; c < 3; c++) {
        const auto value = [&](int i, int j) { return v[(size_t)((c * 64 + i) * d + j)]; };
        exact_attn_chunk(score.data() + c * 64, 0, std::min(64, n - c * 64), d, value, c ? &part : &all, c ? o1 : o);
        if (c) exact_attn_merge(&all, o, part, o1, d);
    }
    const float sink = 2.5f;
    exact_attn_sink(&all, o, sink, d);
    exact_attn_finish(all, o, d, out);
    double sum = std::exp((double)sink), want[8] = {};
    for (int i = 0; i < n; i++) {
        const double p = std::exp((double)score[(size_t)i]);
        sum += p;
        for (int j = 0; j < d; j++) want[j] += p * (double)v[(size_t)(i * d + j)];
    }
    for (int j = 0; j < d; j++) CHECK(out[j] == doctest::Approx(want[j] / sum).epsilon(1e-5));
}
