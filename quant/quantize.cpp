// quant/quantize.cpp: the encoders of every format with code: they search scales, choose codes and pack blocks. Their
// promises stand in quant/formats.h. Owns: the table of number formats.
// Must not know: tensors, files, kernels.
// Main path: runtime/formats.cpp -> [quant/quantize.cpp] -> quant/blocks.h
//
// How a block is found. The error sum w (x - d q)^2 is lowered in two alternating ways. With the codes fixed, the best
// scale is the least squares fit d = sum w x q / sum w q^2; with the scale fixed, each code is the nearest one. A scan
// of scales that map the largest value to about the end of the code range gives the start, and two such turns follow.
// Formats with a minimum do the same with two unknowns. In blocks of 256 the scales of the sub-blocks are then coded in
// the same way (each weighs with the curvature sum w q^2 of its error). After that, neighbouring integer scales are
// tried on the real error, and the common f16 scale is fitted again to all codes and integer scales.
#include "blocks.h"
#include "formats.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <type_traits>

namespace duet {
namespace {

#include "quantize_grids.inc"

// ---- input --------------------------------------------------------------------------------------------------------

// kTinyScale is far below the least half float (6e-8): a block below it is zero in every format with f16 scales.
// kLargeInput is beyond the reach of these formats (Q6_K: 65504 * 128 * 32), and its sums of squares are finite.
constexpr float kTinyScale = 1e-12f, kLargeInput = 3e8f;

// Copies n values and weights, and makes them safe for the arithmetic below. formats.h says what odd input becomes.
void clean_input(const float* x, const float* importance, int n, float* xs, float* ws) {
    float top = 0.0f;
    for (int i = 0; i < n; i += 4) {
        f4 v = load4(x + i);
        v = v == v ? v : all4(0.0f);
        clamp_lanes(v, -kLargeInput, kLargeInput);
        store4(xs + i, v);
    }
    for (int i = 0; importance && i < n; i++)
        if (importance[i] > top) top = importance[i];
    const bool is_weighted = top > 0.0f && top <= FLT_MAX;
    for (int i = 0; i < n; i++) ws[i] = !is_weighted ? 1.0f : importance[i] > 0.0f ? importance[i] / top : 0.0f;
}

uint16_t to_half_scale(float d) { return float_to_half(d > 65504.0f ? 65504.0f : d < -65504.0f ? -65504.0f : d); }

float inverse_or_zero(float d) { return d != 0.0f ? 1.0f / d : 0.0f; }

#include "quantize_scan.inc"

// ---- one scale: x ~ d * q -----------------------------------------------------------------------------------------

struct scale_fit {
    float d = 0.0f, curvature = 0.0f;  // curvature is sum w q^2, half the second derivative of the error in d
};

struct scale_sums {
    float xq, qq;
    float gain() const { return qq > 0.0f ? xq * xq / qq : 0.0f; }  // the fall of the error from sum w x^2
};

template <class G, int N>
scale_sums sums_of_scale(const float* x, const float* w, float inverse) {
    f4 xq = all4(0.0f), qq = all4(0.0f);
    for (int i = 0; i < N; i += 4) {
        const f4 xi = load4(x + i), q = nearest4<G>(xi * inverse), wq = load4(w + i) * q;
        xq += wq * xi;
        qq += wq * q;
    }
    return {sum4(xq), sum4(qq)};
}

// Each candidate maps the largest value to an end of the code range times 1 + (step - kBelow) * kWidth. A factor above
// 1 cuts this value off in favour of the others.
template <class G, int N>
scale_fit fit_scale(const float* x, const float* w) {
    constexpr int kSteps = 20, kBelow = 7;
    constexpr float kWidth = G::kHi - G::kLo < 20 ? 0.03f : G::kHi - G::kLo < 80 ? 0.012f : 0.006f;
    float sizes[N];  // negative, for first_least
    for (int i = 0; i < N; i += 4) {
        const f4 v = load4(x + i);
        store4(sizes + i, v > 0.0f ? -v : v);
    }
    const float top = x[first_least(sizes, N)];
    if (fabsf(top) < kTinyScale) return {};
    constexpr int kEnds[] = {G::kLo, G::kHi}, kCount = kSteps * ((G::kLo != 0) + (G::kHi != 0));
    scale_scan<kCount> scan;
    int n = 0;
    for (const int end : kEnds)
        for (int s = 0; end != 0 && s < kSteps; s++)
            scan.inverse[n++] = (float)end * (1.0f + (float)(s - kBelow) * kWidth) / top;
    while (n < padded_count(kCount)) scan.inverse[n++] = 0.0f;
    run_scales<G, N>(x, w, scan);
    const int i_best = first_least(scan.loss, padded_count(kCount));
    scale_sums best{scan.xq[i_best], scan.qq[i_best]};
    if (!(best.gain() > 0.0f)) return {};
    for (int turn = 0; turn < 2; turn++) {
        const scale_sums sums = sums_of_scale<G, N>(x, w, inverse_or_zero(best.xq / best.qq));
        if (!(sums.gain() > best.gain())) break;
        best = sums;
    }
    return {best.xq / best.qq, best.qq};
}

// Chooses codes (as grid values) for a settled scale and returns the error.
template <class G, int N>
float choose_codes(const float* x, const float* w, float d, float m, float* q) {
    const float inverse = inverse_or_zero(d);
    f4 error = all4(0.0f);
#pragma GCC unroll 8
    for (int i = 0; i < N; i += 4) {
        const f4 xi = load4(x + i) + m, qi = nearest4<G>(xi * inverse), e = xi - qi * d;
        error += load4(w + i) * e * e;
        store4(q + i, qi);
    }
    return sum4(error);
}

#include "quantize_points.inc"

// ---- scale and minimum: x ~ d * q - m, q = 0 .. L -----------------------------------------------------------------

struct affine_fit {
    float d = 0.0f, m = 0.0f, curvature = 0.0f, weight = 0.0f;  // weight is sum w, the curvature in m
};

struct affine_sums {
    float d = 0.0f, m = 0.0f, error = FLT_MAX, qq = 0.0f;
};

// Fits d and m by least squares to the codes nearest to (x - low) * inverse. Signed: m may be negative.
template <int L, int N, bool Signed>
affine_sums sums_of_affine(const float* x, const float* w, float low, float inverse, const affine_totals& sum) {
    f4 q_v = all4(0.0f), qq_v = all4(0.0f), xq_v = all4(0.0f);
    for (int i = 0; i < N; i += 4) {
        const f4 xi = load4(x + i), q = nearest4<linear_grid<0, L>>((xi - low) * inverse), wq = load4(w + i) * q;
        q_v += wq;
        qq_v += wq * q;
        xq_v += wq * xi;
    }
    affine_sums s{.qq = sum4(qq_v)};
    fit_to_codes<Signed>(sum4(q_v), s.qq, sum4(xq_v), sum, s.d, s.m, s.error);
    return s;
}

// Scans ranges that leave out up to kCut steps of the values at each end. The last lanes take ranges of fewer codes:
// weights that are whole numbers of some step (trained so, or quantized before) then keep their values.
template <int L, int N, bool Signed>
affine_fit fit_affine(const float* x, const float* w) {
    constexpr int kCut = L < 4 ? 6 : 5, kLess = L == 15 ? 1 : 2;
    constexpr float kWidth = L < 4 ? 0.05f : L < 16 ? 0.022f : 0.012f;
    float low = x[0], high = x[0];
    affine_totals sum;
    for (int i = 0; i < N; i++) {
        low = std::min(low, x[i]);
        high = std::max(high, x[i]);
        sum.w += w[i];
        sum.wx += w[i] * x[i];
        sum.wxx += w[i] * x[i] * x[i];
    }
    if (!Signed && low > 0.0f) low = 0.0f;
    const float range = high - low;
    if (range < kTinyScale) return {0.0f, -low, 0.0f, sum.w};
    affine_scan<kCut*(kCut + 1)> scan;
    int n = 0;
    for (int a = 0; a < kCut; a++)
        for (int b = -1; b < kCut; b++, n++) {
            scan.low[n] = low + (float)a * kWidth * range;
            scan.inverse[n] = (float)L / (range * (1.0f - (float)(a + b) * kWidth));
        }
    for (int i = n, steps = L - 1; i < padded_count(n); i++, steps -= kLess)
        scan.low[i] = low, scan.inverse[i] = (float)steps / range;
    run_ranges<L, N, Signed>(x, w, sum, scan);
    const int i_best = first_least(scan.error, padded_count(n));
    affine_sums best{scan.d[i_best], scan.m[i_best], scan.error[i_best], scan.qq[i_best]};
    if (best.error == FLT_MAX) return {range / (float)L, -low, sum.w * (float)(L * L), sum.w};  // all codes are L
    for (int turn = 0; turn < 2; turn++) {
        const affine_sums s = sums_of_affine<L, N, Signed>(x, w, -best.m, 1.0f / best.d, sum);
        if (!(s.error < best.error)) break;
        best = s;
    }
    return {best.d, best.m, best.qq, sum.w};
}

#include "quantize_pack.inc"

// ---- blocks of 256 ------------------------------------------------------------------------------------------------

template <class G> constexpr bool kIsBook = requires { G::kIsBook; };

// Chooses codes and integer scales for settled common scales, and returns the error. It tries the integers nearest to
// the wanted sub-scales and their neighbours. want_m is null in formats without a minimum.
template <class G, class S, int N>
float choose_super(const float* x, const float* w, const float* want_d, const float* want_m, float fraction,
                   super_codes* out) {
    const float d = half_to_float(out->d) * fraction, m = half_to_float(out->dmin);
    const float inverse_d = inverse_or_zero(d), inverse_m = inverse_or_zero(m);
    float total = 0.0f;
    for (int k = 0; k < 256 / N; k++) {
        const int near_d = (int)nearest4<S>(all4(want_d[k] * inverse_d))[0];
        const int near_m = want_m ? (int)nearest4<S>(all4(want_m[k] * inverse_m))[0] : 0;
        int subs[9], mins[9], n = 0;
        error_scan<9> scan;
        for (int sub = near_d - S::kStep; sub <= near_d + S::kStep; sub += S::kStep)
            for (int min = want_m ? near_m - 1 : 0; min <= (want_m ? near_m + 1 : 0); min++) {
                if (sub < S::kLo || sub > S::kHi || (want_m && (min < S::kLo || min > S::kHi))) continue;
                subs[n] = sub;
                mins[n] = min;
                scan.d[n] = d * (float)sub;
                scan.m[n++] = m * (float)min;
            }
        for (int i = n; i < padded_count(9); i++) scan.d[i] = scan.d[0], scan.m[i] = scan.m[0];
        float codes[kIsBook<G> ? 9 * N : 1];
        if constexpr (kIsBook<G>) {
            for (int i = 0; i < n; i++)
                scan.error[i] = choose_codes<G, N>(x + k * N, w + k * N, scan.d[i], scan.m[i], codes + i * N);
        } else run_errors<G, N>(x + k * N, w + k * N, scan, n);
        for (int i = n; i < padded_count(9); i++) scan.error[i] = FLT_MAX;
        const int i_best = first_least(scan.error, padded_count(9));
        total += scan.error[i_best];
        out->sub[k] = subs[i_best];
        out->min[k] = mins[i_best];
        if constexpr (kIsBook<G>) memcpy(out->q + k * N, codes + i_best * N, N * sizeof(float));
        else choose_codes<G, N>(x + k * N, w + k * N, scan.d[i_best], scan.m[i_best], out->q + k * N);
    }
    return total;
}

// Fits the common scales to all chosen codes: least squares for x ~ d * (sub q) - m * min. Returns false when it finds
// no other usable scales.
template <int N>
bool refit_super(const float* x, const float* w, bool has_min, float fraction, super_codes* s) {
    double uu = 0, uv = 0, vv = 0, xu = 0, xv = 0;
    for (int i = 0; i < 256; i++) {
        const double u = (double)s->sub[i / N] * s->q[i], v = has_min ? -s->min[i / N] : 0;
        uu += w[i] * u * u;
        uv += w[i] * u * v;
        vv += w[i] * v * v;
        xu += w[i] * x[i] * u;
        xv += w[i] * x[i] * v;
    }
    const double det = uu * vv - uv * uv;
    double d = uu > 0 ? xu / uu : 0, m = 0;
    if (has_min && det > 1e-9 * uu * vv) d = (xu * vv - xv * uv) / det, m = (xv * uu - xu * uv) / det;
    if (has_min && (d < 0 || m < 0)) return false;
    const uint16_t half_d = to_half_scale((float)d / fraction), half_m = to_half_scale((float)m);
    if (half_d == s->d && half_m == s->dmin) return false;
    s->d = half_d;
    s->dmin = half_m;
    return true;
}

// Formats with blocks of 256 and integer sub-scales: the grid of the codes, the grid of the sub-scales (and minimums),
// and the weights per sub-scale. The best scale of a sub-block may be negative, so sub-scales have a sign unless there
// is a minimum or the codes have as many values below 0 as above. quantize_pack.inc packs what is found.
template <class Codes, class Subs, int PerSub>
struct super_rule {
    using G = Codes;
    using S = Subs;
    static constexpr int N = PerSub;
};
template <class B> struct rule_of;
template <> struct rule_of<block_q2_K> : super_rule<linear_grid<0, 3>, linear_grid<0, 15>, 16> {};
template <> struct rule_of<block_q3_K> : super_rule<linear_grid<-4, 3>, linear_grid<-32, 31>, 16> {};
template <> struct rule_of<block_q4_K> : super_rule<linear_grid<0, 15>, linear_grid<0, 63>, 32> {};
template <> struct rule_of<block_q5_K> : super_rule<linear_grid<0, 31>, linear_grid<0, 63>, 32> {};
template <> struct rule_of<block_q6_K> : super_rule<linear_grid<-32, 31>, linear_grid<-128, 127>, 16> {};
template <> struct rule_of<block_iq4_xs> : super_rule<iq4_grid, linear_grid<-32, 31>, 32> {};
template <> struct rule_of<block_iq2_xxs> : super_rule<iq2_xxs_book, odd_grid<31>, 32> {};
template <> struct rule_of<block_iq2_xs> : super_rule<iq2_xs_book, odd_grid<31>, 16> {};
template <> struct rule_of<block_iq2_s> : super_rule<iq2_s_book, odd_grid<31>, 16> {};
template <> struct rule_of<block_iq3_xxs> : super_rule<iq3_xxs_book, odd_grid<31>, 32> {};
template <> struct rule_of<block_iq3_s> : super_rule<iq3_s_book, odd_grid<31>, 32> {};
template <> struct rule_of<block_iq1_s> : super_rule<iq1_s_book, odd_grid<15>, 32> {};
template <> struct rule_of<block_iq1_m> : super_rule<iq1_m_book, odd_grid<15>, 16> {};

template <class B>
    requires requires { typename rule_of<B>::G; }
void encode(const float* x_in, const float* importance, B* dst) {
    using G = typename rule_of<B>::G;
    using S = typename rule_of<B>::S;
    constexpr int N = rule_of<B>::N, n_sub = 256 / N;
    float x[256], w[256], want_d[n_sub], want_m[n_sub], weight_d[n_sub], weight_m[n_sub];
    clean_input(x_in, importance, 256, x, w);
    for (int k = 0; k < n_sub; k++) {
        if constexpr (B::kHasMin) {
            const affine_fit f = fit_affine<G::kHi, N, false>(x + k * N, w + k * N);
            want_d[k] = f.d;
            want_m[k] = f.m;
            weight_d[k] = f.curvature;
            weight_m[k] = f.weight;
        } else {
            const scale_fit f = fit_scale<G, N>(x + k * N, w + k * N);
            want_d[k] = f.d;
            weight_d[k] = f.curvature;
        }
    }
    const float* wanted_m = B::kHasMin ? want_m : nullptr;
    super_codes best{}, next{};
    next.d = to_half_scale(fit_scale<S, n_sub>(want_d, weight_d).d / kFraction<B>);
    if (B::kHasMin) next.dmin = to_half_scale(fit_scale<S, n_sub>(want_m, weight_m).d);
    float best_error = choose_super<G, S, N>(x, w, want_d, wanted_m, kFraction<B>, &next);
    best = next;
    for (int turn = 0; turn < 2 && refit_super<N>(x, w, B::kHasMin, kFraction<B>, &next); turn++) {
        const float error = choose_super<G, S, N>(x, w, want_d, wanted_m, kFraction<B>, &next);
        if (!(error < best_error)) break;
        best_error = error;
        best = next;
    }
    if constexpr (requires { G::index(0.0f); })
        for (int i = 0; i < 256; i++) best.c[i] = (uint8_t)G::index(best.q[i]);
    if constexpr (requires { dst->d; }) dst->d = best.d;
    if constexpr (requires { dst->dmin; }) dst->dmin = best.dmin;
    pack(best, dst);
}

// ---- blocks of 32 -------------------------------------------------------------------------------------------------

template <class B>
void pack32(const uint8_t* c, B* dst) {
    if constexpr (requires { dst->qh; }) put_fifth_bits32(dst->qh, c);
    put_nibbles32(dst->qs, c);
}

// Formats with blocks of 32: the codes of those with a scale, or with a scale and a minimum. Blocks without nibbles in
// qs and fifth bits in qh have a pack32 of their own.
template <class B> struct codes_of;
template <> struct codes_of<block_q4_0> : std::type_identity<linear_grid<-8, 7>> {};
template <> struct codes_of<block_q4_1> : std::type_identity<linear_grid<0, 15>> {};
template <> struct codes_of<block_q5_0> : std::type_identity<linear_grid<-16, 15>> {};
template <> struct codes_of<block_q5_1> : std::type_identity<linear_grid<0, 31>> {};
template <> struct codes_of<block_iq4_nl> : std::type_identity<iq4_grid> {};

template <class B>
    requires requires { typename codes_of<B>::type; }
void encode(const float* x_in, const float* importance, B* dst) {
    using G = typename codes_of<B>::type;
    float x[32], w[32], q[32], m = 0.0f;
    uint8_t c[32];
    clean_input(x_in, importance, 32, x, w);
    if constexpr (requires { dst->m; }) {
        const affine_fit f = fit_affine<G::kHi, 32, true>(x, w);
        dst->d = to_half_scale(f.d);
        dst->m = to_half_scale(-f.m);
        m = -half_to_float(dst->m);
    } else dst->d = to_half_scale(fit_scale<G, 32>(x, w).d);
    choose_codes<G, 32>(x, w, half_to_float(dst->d), m, q);
    for (int i = 0; i < 32; i++) c[i] = (uint8_t)G::index(q[i]);
    pack32(c, dst);
}

void encode(const float* x, const float*, float_f32* dst) { memcpy(dst, x, sizeof *dst); }
void encode(const float* x, const float*, float_f16* dst) { dst->bits = float_to_half(*x); }
void encode(const float* x, const float*, float_bf16* dst) { dst->bits = float_to_bf16(*x); }

// With eight bits a search gains too little: the largest value becomes the end of the range. -128 stays unused, as
// readers expect.
void encode(const float* x_in, const float*, block_q8_0* dst) {
    float x[32], w[32], q[32], top = 0.0f;
    clean_input(x_in, nullptr, 32, x, w);
    for (int i = 0; i < 32; i++) top = fabsf(x[i]) > top ? fabsf(x[i]) : top;
    dst->d = to_half_scale(top / 127.0f);
    choose_codes<linear_grid<-127, 127>, 32>(x, w, half_to_float(dst->d), 0.0f, q);
    for (int i = 0; i < 32; i++) dst->qs[i] = (int8_t)q[i];
}

// The scale is a power of two. The one that maps the largest value to between 4 and 8 (the range ends at 6) is tried,
// and so are its neighbours. Values are first brought to below 1, so that no square over- or underflows whatever the
// exponent is.
void encode(const float* x_in, const float* importance, block_mxfp4* dst) {
    float x[32], w[32], q[32], top = 0.0f;
    clean_input(x_in, importance, 32, x, w);
    for (int i = 0; i < 32; i++) {
        x[i] = x_in[i] != x_in[i] ? 0.0f : x_in[i] > FLT_MAX ? FLT_MAX : x_in[i] < -FLT_MAX ? -FLT_MAX : x_in[i];
        top = fabsf(x[i]) > top ? fabsf(x[i]) : top;
    }
    int exponent = 0;
    if (top > 0.0f) frexpf(top, &exponent);  // top = 2^exponent * [0.5, 1)
    for (int i = 0; i < 32; i++) x[i] = ldexpf(x[i], -exponent);
    float best = FLT_MAX;
    for (int e = exponent + 123; e <= exponent + 125; e++) {  // exponent - 1 - 2 + 127, and one more on each side
        const int scale = top == 0.0f || e < 0 ? 0 : e > 252 ? 252 : e;  // 12 * 2^(252 - 128) is the last finite value
        const float error = choose_codes<fp4_grid, 32>(x, w, ldexpf(1.0f, scale - 128 - exponent), 0.0f, q);
        if (!(error < best)) continue;
        best = error;
        dst->e = (uint8_t)scale;
        uint8_t c[32];
        for (int i = 0; i < 32; i++) c[i] = (uint8_t)fp4_grid::index(q[i]);
        put_nibbles32(dst->qs, c);
    }
}

// At any scale, the weights that are not 0 are those with |x| above a threshold. So the best scale is the least squares
// fit to the largest n values, for some n.
template <class B>
void encode_ternary(const float* x_in, const float* importance, B* dst, uint8_t* c) {
    float x[256], w[256], q[256], best = 0.0f, d = 0.0f;
    uint8_t order[256];
    clean_input(x_in, importance, 256, x, w);
    for (int i = 0; i < 256; i++) order[i] = (uint8_t)i;
    std::sort(order, order + 256, [&](uint8_t a, uint8_t b) {
        const float size_a = fabsf(x[a]), size_b = fabsf(x[b]);
        return size_a > size_b || (size_a == size_b && a < b);
    });
    float wx = 0.0f, ww = 0.0f;
    for (int i = 0; i < 256; i++) {
        wx += w[order[i]] * fabsf(x[order[i]]);
        ww += w[order[i]];
        const float gain = ww > 0.0f ? wx * wx / ww : 0.0f;
        if (gain > best) {
            best = gain;
            d = wx / ww;
        }
    }
    dst->d = to_half_scale(d);
    choose_codes<linear_grid<-1, 1>, 256>(x, w, half_to_float(dst->d), 0.0f, q);
    for (int i = 0; i < 256; i++) c[i] = (uint8_t)(q[i] + 1.0f);
}
void encode(const float* x, const float* importance, block_tq2_0* dst) {
    uint8_t c[256];
    encode_ternary(x, importance, dst, c);
    put_bits256<2>(dst->qs, c, 0);
}
void encode(const float* x, const float* importance, block_tq1_0* dst) {
    uint8_t c[256];
    encode_ternary(x, importance, dst, c);
    // The byte over 256 is the fraction of the digits, rounded up.
    const auto put = [](const uint8_t* first, int step, int n_digits) {
        int number = 0;
        for (int n = 0; n < 5; n++) number = number * 3 + (n < n_digits ? first[n * step] : 0);
        return (uint8_t)((number * 256 + 242) / 243);
    };
    for (int i = 0; i < 32; i++) dst->qs[i] = put(c + i, 32, 5);
    for (int i = 0; i < 16; i++) dst->qs[32 + i] = put(c + 160 + i, 16, 5);
    for (int i = 0; i < 4; i++) dst->qh[i] = put(c + 240 + i, 4, 4);
}

void encode(const float* x_in, const float* importance, block_q1_0* dst) {
    float x[128], w[128], wx = 0.0f, ww = 0.0f;
    clean_input(x_in, importance, 128, x, w);
    memset(dst->qs, 0, sizeof dst->qs);
    for (int i = 0; i < 128; i++) {
        wx += w[i] * fabsf(x[i]);
        ww += w[i];
        dst->qs[i / 8] |= (uint8_t)((x[i] >= 0.0f) << i % 8);
    }
    dst->d = to_half_scale(wx / ww);
}

// Tries the scales around the one that maps the largest value to the end of the range.
void encode(const float* x_in, const float* importance, block_nvfp4* dst) {
    float x[64], w[64], q[16];
    clean_input(x_in, importance, 64, x, w);
    for (int k = 0; k < 4; k++) {
        const float* xs = x + 16 * k;
        float top = 0.0f, best = FLT_MAX;
        for (int i = 0; i < 16; i++) top = fabsf(xs[i]) > top ? fabsf(xs[i]) : top;
        const float end = top / 12.0f * (1.0f / block_nvfp4::kFraction);
        for (int s = 0; s < 127; s++) {
            if (s < 126 && (float)ue4m3_units((uint8_t)(s + 1)) < 0.6f * end) continue;
            const float scale = (float)ue4m3_units((uint8_t)s) * block_nvfp4::kFraction;
            const float error = choose_codes<fp4_grid, 16>(xs, w + 16 * k, scale, 0.0f, q);
            if (error < best) {
                best = error;
                dst->d[k] = (uint8_t)s;
                for (int i = 0; i < 8; i++)
                    dst->qs[8 * k + i] = (uint8_t)(fp4_grid::index(q[i]) | fp4_grid::index(q[8 + i]) << 4);
            }
            if ((float)ue4m3_units((uint8_t)s) > 1.6f * end) break;
        }
    }
}

// ---- rows ---------------------------------------------------------------------------------------------------------

template <class B>
void encode_blocks(const float* x, size_t n_blocks, const float* importance, void* dst) {
    for (size_t i = 0; i < n_blocks; i++) {
        const size_t at = i * (size_t)B::kElems;
        encode(x + at, importance ? importance + at : nullptr, (B*)dst + i);
    }
}

template <class B>
void decode_blocks(const void* src, size_t n_blocks, float* y) {
    for (size_t i = 0; i < n_blocks; i++)
        for (int j = 0; j < B::kElems; j++) y[i * (size_t)B::kElems + (size_t)j] = decode(((const B*)src)[i], j);
}

constexpr number_format kNumberFormats[] = {
#define FLOAT_TYPE(id, NAME, gguf_id, bytes)                                                                           \
    {gguf_id, #NAME, 1, bytes, encode_blocks<float_##id>, decode_blocks<float_##id>},
#define QUANT_TYPE(id, NAME, gguf_id, elems, bytes, max_nmse)                                                          \
    {gguf_id, #NAME, elems, bytes, encode_blocks<block_##id>, decode_blocks<block_##id>},
#define TENSOR_TYPE(id, NAME, gguf_id, elems, bytes) {gguf_id, #NAME, elems, bytes},
#define REMOVED_TYPE(NAME, gguf_id)                  {gguf_id, #NAME, 0, 0},
#include "types.def"
};

}  // namespace

std::span<const number_format> number_formats() { return kNumberFormats; }

}  // namespace duet
