// tests/test_kernels.cpp: every instruction set of this machine against the scalar definition, bit for bit: all
// formats, odd sizes, row tails, batch sizes, special values.
#include "doctest.h"
#include "../cpu/choose.h"
#include "../cpu/executor.h"
#include "../quant/activate.h"
#include "../quant/formats.h"
#include "../cpu/kernels.h"
#include "../cpu/threads.h"
#include "test_data.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

using namespace duet;

#if defined(__x86_64__)
namespace duet {
extern const tile_table kAmxEmulated;      // tests/amx_emulated.cpp
extern const tile_table kAvxVnniEmulated;  // tests/vnni_emulated.cpp
extern const fast_table kAmxEmulatedFast;
}  // namespace duet
#endif

namespace {

#if defined(__x86_64__)
// Returns this machine's AVX-512 kernels with AMX's tiles as plain code, or null without AVX-512.
const cpu_kernels* amx_emulated(bool fast) {
    static cpu_kernels tables[2];
    const cpu_kernels* avx512 = find_cpu_kernels("avx512");
    if (!avx512) return nullptr;
    cpu_kernels& k = tables[fast];
    k = *avx512;
    k.name = "amx (emulated)";
    (tile_table&)k = kAmxEmulated;
    if (fast) {
        k.matmul_rounded = kAmxEmulatedFast.matmul_rounded;
        k.rounded_types = kAmxEmulatedFast.rounded_types;
        k.round_row = kAmxEmulatedFast.round_row;
    }
    return &k;
}

// Returns this machine's AVX2 kernels with the instruction of AVX-VNNI as plain code, or null without AVX2.
const cpu_kernels* vnni_emulated() {
    static cpu_kernels k;
    const cpu_kernels* avx2 = find_cpu_kernels("avx2");
    if (!avx2) return nullptr;
    k = *avx2;
    k.name = "avxvnni (emulated)";
    (tile_table&)k = kAvxVnniEmulated;
    return &k;
}
#endif

std::vector<const cpu_kernels*> vector_kernels() {
    std::vector<const cpu_kernels*> all;
    for (int i = 0; const cpu_kernels* k = cpu_kernels_at(i); i++)
        if (std::string(k->name) != "scalar") all.push_back(k);
#if defined(__x86_64__)
    if (const cpu_kernels* k = amx_emulated(false)) all.push_back(k);
    if (const cpu_kernels* k = vnni_emulated()) all.push_back(k);
#endif
    return all;
}

// Makes blocks of random bytes with ordinary numbers as scales, so that every code occurs.
std::vector<uint8_t> random_weights(int32_t type, int n_rows, int n_in, std::mt19937& rng) {
    const duet_type_info* info = duet_type_by_id(type);
    const size_t row_bytes = (size_t)(n_in / info->elems_per_block) * (size_t)info->bytes_per_block;
    std::vector<uint8_t> w((size_t)n_rows * row_bytes);
    for (uint8_t& b : w) b = (uint8_t)rng();
    std::vector<float> probe((size_t)info->elems_per_block);
    const auto has_special = [&](const uint8_t* block) {
        decode_row(type, block, info->elems_per_block, probe.data());
        for (float v : probe)
            if (!(v > -1e6f && v < 1e6f)) return true;
        return false;
    };
    for (size_t at = 0; at < w.size(); at += (size_t)info->bytes_per_block)
        while (has_special(&w[at]))
            for (int i = 0; i < info->bytes_per_block; i++) w[at + (size_t)i] = (uint8_t)rng();
    return w;
}

struct activations {
    std::vector<float> x, d, t;
    std::vector<int8_t> q;
    std::vector<int16_t> s16;
    act_matrix m{};

    activations(int n_in, int n_tok, std::mt19937& rng) {
        const size_t stride = ((size_t)n_in + 63) / 64 * 64, n = stride * (size_t)n_tok;
        x.resize(n);
        q.assign(n, 0);
        d.assign(n / 32, 0);
        t.assign(n / 32, 0);
        s16.assign(n / 16, 0);
        std::normal_distribution<float> normal;
        for (float& v : x) v = normal(rng);
        if (n_in >= 64) memset(x.data() + 32, 0, 32 * 4);  // a block of zeros
        m = {x.data(), q.data(), d.data(), t.data(), s16.data(), stride, stride, n_tok, nullptr, nullptr};
        for (int i = 0; i < n_tok && n_in % 32 == 0; i++) {
            const size_t at = (size_t)i * stride;
            kScalarKernels.quantize(x.data() + at, n_in, q.data() + at, d.data() + at / 32, t.data() + at / 32,
                                    s16.data() + at / 16);
        }
    }
};

// Computes the matmul in one of its ways; adds: to -1.
std::vector<float> matmul_result(const cpu_kernels& k, int32_t type, const std::vector<uint8_t>& w, int n_rows,
                                 int n_in, act_matrix a, matmul_way way, bool adds = false) {
    const int n_blocks = n_in / 32, n_panels = way == matmul_way::panels ? count_panels(a.n_tok) : 0;
    std::vector<act_panel> panels((size_t)n_panels * (size_t)n_blocks);
    for (int i = 0; i < n_panels; i++) k.pack_panel(a, i, n_blocks, panels.data());
    if (n_panels > 0) a.panels = panels.data();
    std::vector<float> y((size_t)n_rows * (size_t)a.n_tok, -1.0f);
    std::vector<uint8_t> scratch(matmul_scratch_bytes(n_in), 0xff),
        odd(w.size() + 1);  // weights at no alignment; nothing readable after them
    memcpy(odd.data() + 1, w.data(), w.size());
    matmul_args m{};
    m.w = odd.data() + 1;
    m.row_bytes = w.size() / (size_t)n_rows;
    m.n_in = n_in;
    m.n_rows = n_rows;
    m.a = a;
    m.y = y.data();
    m.y_stride = (size_t)n_rows;
    m.scratch = scratch.data();
    m.way = way;
    m.adds = adds;
    run_matmul(k, type, m);
    if (adds) return y;
    const std::vector<float> first = y;  // again with what the scratch holds now
    m.same_input = true;
    y.assign(y.size(), -1.0f);
    run_matmul(k, type, m);
    CHECK(memcmp(first.data(), y.data(), y.size() * 4) == 0);
    return y;
}

// The same by the scalar definition.
std::vector<float> scalar_result(int32_t type, const std::vector<uint8_t>& w, int n_rows, int n_in, act_matrix a) {
    return matmul_result(kScalarKernels, type, w, n_rows, n_in, a, matmul_way::scalar);
}

// Checks every way that can compute this matmul.
void check_ways(const cpu_kernels& k, int32_t type, const std::vector<uint8_t>& w, int n_rows, int n_in, act_matrix a,
                const std::vector<float>& want) {
    const matmul_ways ways = ways_of_matmul(k, type, a.n_tok, true),
                      alone = ways_of_matmul(k, type, a.n_tok, false);  // an expert's
    REQUIRE(ways.n > 0);
    REQUIRE(alone.n > 0);
    std::vector<float> added(want);
    for (float& y : added) y = -1.0f + y;
    for (int i = 0; i < ways.n + alone.n; i++) {
        const matmul_way way = i < ways.n ? ways.way[i] : alone.way[i - ways.n];
        if (i >= ways.n && ways.has(way)) continue;
        // the tables without AMX and AVX-VNNI have the same code
        if ((k.matmul_amx && way != matmul_way::amx) || (k.matmul_vnni && way != matmul_way::tiles)) continue;
        INFO(std::string(k.name), " way ", (int)way);
        const auto got = matmul_result(k, type, w, n_rows, n_in, a, way);
        CHECK(memcmp(want.data(), got.data(), want.size() * 4) == 0);
        if (way == matmul_way::panels || way == matmul_way::amx)
            CHECK(added == matmul_result(k, type, w, n_rows, n_in, a, way, true));
    }
}

void check_type(int32_t type, const char* name, int step) {
    std::mt19937 rng(17);
    for (int n_in : {step, 3 * step, 8 * step, step == 32 || step == 64 ? 2048 + 7 * step : 17 * step})
        for (int n_rows : {1, 16, 62})
            for (int n_tok : {1, 2, 3, 4, 5, 6, 7, 8, 9, 23, 37}) {
                const std::vector<uint8_t> w = random_weights(type, n_rows, n_in, rng);
                const activations a(n_in, n_tok, rng);
                const auto want = scalar_result(type, w, n_rows, n_in, a.m);
                INFO(std::string(name), " n_in ", n_in, " n_rows ", n_rows, " n_tok ", n_tok);
                for (const cpu_kernels* k : vector_kernels()) check_ways(*k, type, w, n_rows, n_in, a.m, want);
            }
}

}  // namespace

TEST_CASE("matmul: every format and instruction set gives the scalar bits") {
#define FLOAT_TYPE(id, NAME, gguf_id, bytes)                  check_type(gguf_id, #NAME, 27);
#define QUANT_TYPE(id, NAME, gguf_id, elems, bytes, max_nmse) check_type(gguf_id, #NAME, elems);
#include "../quant/types.def"
}

TEST_CASE("matmul: points of grids by gathers and without them") {
    const bool was_fast = fast_gathers;
    for (bool is_fast : {true, false}) {
        fast_gathers = is_fast;
        for (const char* name : {"IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S"})
            check_type(duet_type_by_name(name)->id, name, 256);
    }
    fast_gathers = was_fast;
}

TEST_CASE("matmul: float rows of many groups, rows for several vectors") {
    std::mt19937 rng(7);
    for (int32_t type : {0, 1, 30})
        for (int n_in : {2048, 5632 + 27})
            for (int n_tok : {1, 2, 3, 4, 5, 6, 11, 12, 13}) {
                const std::vector<uint8_t> w = random_weights(type, 83, n_in, rng);
                const activations a(n_in, n_tok, rng);
                INFO("type ", type, " n_in ", n_in, " n_tok ", n_tok);
                const auto want = scalar_result(type, w, 83, n_in, a.m);
                for (const cpu_kernels* k : vector_kernels()) check_ways(*k, type, w, 83, n_in, a.m, want);
            }
}

TEST_CASE("matmul: more tokens than totals are kept for") {
    std::mt19937 rng(5);
    for (const cpu_kernels* k : vector_kernels())
        for (int32_t type : {0, 2, 14}) {
            const std::vector<uint8_t> w = random_weights(type, 3, 768, rng);
            const activations a(768, 1030, rng);
            check_ways(*k, type, w, 3, 768, a.m, scalar_result(type, w, 3, 768, a.m));
        }
}

// With and without AVX512_BF16 and AMX-BF16 these are 0 to 3.
std::vector<const cpu_kernels*> fast_kernels() {
    std::vector<const cpu_kernels*> all;
    for (int i = 0; const cpu_kernels* k = cpu_kernels_at(i); i++)
        if (const cpu_kernels* f = find_cpu_kernels(k->name, true); f->matmul_rounded) all.push_back(f);
#if defined(__x86_64__)
    if (!all.empty()) all.push_back(amx_emulated(true));
#endif
    if (all.empty()) say_skipped("rounding to bfloat16", 1, "this CPU has no AVX512_BF16");
    return all;
}

TEST_CASE("mode fast: rounding to bfloat16 is to nearest even, padded with zeros") {
    std::mt19937 rng(12);
    for (const cpu_kernels* k : fast_kernels()) {
        CHECK(k->rounded_types == 1ull << duet_type_by_name("BF16")->id);
        for (int n : {1, 15, 16, 17, 32, 33, 2005}) {
            std::vector<float> x((size_t)n);
            for (int i = 0; i < n; i++) {
                uint32_t bits = (rng() & 0x807fffffu) | (100 + rng() % 50) << 23;
                if (i % 5 == 0) bits = (bits & 0xffff0000u) | 0x8000u;  // a tie
                memcpy(&x[(size_t)i], &bits, 4);
            }
            if (n > 20) x[3] = INFINITY, x[4] = NAN, x[5] = 3.4e38f, x[6] = -0.0f;
            std::vector<uint16_t> y((size_t)n + 64, 0x5555), want((size_t)n);
            k->round_row(x.data(), n, y.data());
            (void)duet_quantize_row(duet_type_by_name("BF16")->id, x.data(), n, nullptr, want.data());
            for (int i = 0; i < n; i++)
                CHECK(((x[(size_t)i] != x[(size_t)i] && (y[(size_t)i] & 0x7fff) > 0x7f80) ||
                       y[(size_t)i] == want[(size_t)i]));
            for (int i = n; i < (n + 31) / 32 * 32; i++) CHECK(y[(size_t)i] == 0);
            CHECK(y[(size_t)((n + 31) / 32 * 32)] == 0x5555);
        }
    }
}

TEST_CASE("mode fast: matmul by BF16 within the bound of its sums, the same bits for any tokens and rows beside") {
    std::mt19937 rng(13);
    const int32_t type = duet_type_by_name("BF16")->id;
    for (const cpu_kernels* k : fast_kernels())
        for (int n_in : {1, 2, 31, 257, 300, 2048 + 27})
            for (int n_rows : {1, 16, 83}) {
                const int n_tok = n_in == 300 && n_rows == 1 ? 1030 : n_in < 1000 ? 85 : 45;
                const std::vector<uint8_t> w = random_weights(type, n_rows, n_in, rng);
                const activations a(n_in, n_tok, rng);
                INFO(std::string(k->name), " n_in ", n_in, " n_rows ", n_rows);
                const auto run = [&](int t0, int n, int r0, int rows,
                                     bool is_rounded) {  // rows beyond those asked for: NaN
                    const size_t stride = a.m.q_stride, row_bytes = (size_t)n_in * 2;
                    std::vector<uint16_t> rounded((size_t)(n + 15) / 16 * 16 * stride, 0x7fff);
                    for (int i = 0; i < n; i++)
                        k->round_row(a.x.data() + (size_t)(t0 + i) * a.m.x_stride, n_in, &rounded[(size_t)i * stride]);
                    act_matrix part = a.m;
                    part.x += (size_t)t0 * part.x_stride;
                    part.n_tok = n;
                    part.rounded = is_rounded ? rounded.data() : nullptr;
                    std::vector<float> y((size_t)(rows * n), -1.0f);
                    std::vector<uint8_t> scratch(matmul_scratch_bytes(n_in), 0xff);
                    const std::vector<uint8_t> only(w.begin() + r0 * (ptrdiff_t)row_bytes,
                                                    w.begin() + (r0 + rows) * (ptrdiff_t)row_bytes);
                    matmul_args m{};
                    m.w = only.data();
                    m.row_bytes = row_bytes;
                    m.n_in = n_in;
                    m.n_rows = rows;
                    m.a = part;
                    m.y = y.data();
                    m.y_stride = (size_t)rows;
                    m.scratch = scratch.data();
                    // what is too few tokens to be chosen has to give the same bits too
                    m.way = is_rounded ? matmul_way::rounded : ways_of_matmul(*k, type, n, false).way[0];
                    run_matmul(*k, type, m);
                    return y;
                };
                const std::vector<float> all = run(0, n_tok, 0, n_rows, true);
                int n_beyond = 0;
                std::vector<float> v((size_t)(n_rows * n_in)), x((size_t)n_in);
                std::vector<uint16_t> rounded((size_t)n_in);
                (void)duet_dequantize_row(type, w.data(), n_rows * n_in, v.data());
                for (int t = 0; t < n_tok; t++) {
                    (void)duet_quantize_row(type, &a.x[(size_t)t * a.m.x_stride], n_in, nullptr, rounded.data());
                    (void)duet_dequantize_row(type, rounded.data(), n_in, x.data());
                    for (int r = 0; r < n_rows; r++) {
                        double sum = 0, sizes = 0;
                        for (int j = 0; j < n_in; j++) {
                            const double product = (double)x[(size_t)j] * v[(size_t)(r * n_in + j)];
                            sum += product;
                            sizes += std::fabs(product);
                        }
                        // each of n_in products and sums is rounded once (twice, where they are not fused), to 2^-24
                        n_beyond += !(std::fabs(all[(size_t)(t * n_rows + r)] - sum) <=
                                      (n_in + 4) * std::ldexp(sizes, -23) + 1e-30);
                    }
                }
                CHECK(n_beyond == 0);
                for (const auto& [t0, n] : {std::pair{0, 12}, {5, 17}, {n_tok - 45, 45}, {n_tok - 1, 1}}) {
                    const int r0 = n_rows / 3, rows = n_rows - r0;
                    const std::vector<float> part = run(t0, n, r0, rows, true);
                    for (int t = 0; t < n; t++)
                        CHECK(memcmp(&part[(size_t)(t * rows)], &all[(size_t)((t0 + t) * n_rows + r0)],
                                     (size_t)rows * 4) == 0);
                }
                CHECK(run(0, n_tok, 0, n_rows, false) == scalar_result(type, w, n_rows, n_in, a.m));
            }
}

TEST_CASE("quantize: bits, zero blocks, tiny, huge, inf and NaN blocks") {
    std::mt19937 rng(3);
    std::normal_distribution<float> normal;
    const int n = 32 * 40;
    std::vector<float> x(n);
    for (int i = 0; i < n; i++) x[(size_t)i] = normal(rng) * std::ldexp(1.0f, i / 32 * 6 - 120);
    memset(x.data(), 0, 128);
    x[70] = INFINITY;
    x[100] = NAN;
    x[140] = -0.0f;
    const auto run = [&](const cpu_kernels& k) {
        std::vector<uint8_t> out(n + n / 32 * 8 + n / 16 * 2);
        float* d = (float*)(out.data() + n);
        k.quantize(x.data(), n, (int8_t*)out.data(), d, d + n / 32, (int16_t*)(d + n / 16));
        return out;
    };
    const auto want = run(kScalarKernels);
    for (const cpu_kernels* k : vector_kernels()) CHECK(run(*k) == want);
    // by hand: blocks that one of the scales meets exactly
    for (int largest : {127, 125, 123}) {
        int8_t q[32];
        float d, t, ramp[32];
        int16_t s16[2];
        for (int i = 0; i < 32; i++) ramp[i] = (float)(largest - 3 * i);
        exact_quantize_block(ramp, q, &d, &t, s16);
        CHECK(d == 1.0f);
        CHECK(q[0] == largest);
        CHECK(q[31] == largest - 93);
        CHECK(t == (float)(s16[0] + s16[1]));
    }
}

TEST_CASE("norm, activations, half conversions: bits") {
    std::mt19937 rng(4);
    std::normal_distribution<float> normal;
    for (int n : {1, 8, 16, 31, 64, 256, 300, 2048, 5632}) {
        std::vector<float> x((size_t)n), w((size_t)n), a((size_t)n), b((size_t)n);
        for (int i = 0; i < n; i++) x[(size_t)i] = normal(rng) * 20.0f, w[(size_t)i] = normal(rng);
        if (n > 20)
            x[3] = 200.0f, x[4] = -200.0f, x[5] = 0.0f, x[6] = -0.0f, x[7] = 1e-30f, x[8] = 88.71f, x[9] = -87.32f;
        for (const cpu_kernels* k : vector_kernels()) {
            INFO(std::string(k->name), " n ", n);
            kScalarKernels.rms_norm(x.data(), w.data(), n, 1e-5f, a.data());
            k->rms_norm(x.data(), w.data(), n, 1e-5f, b.data());
            CHECK(memcmp(a.data(), b.data(), (size_t)n * 4) == 0);
            for (int act = 0; act < kActivations; act++) {
                kScalarKernels.activate(act, x.data(), w.data(), n, a.data());
                k->activate(act, x.data(), w.data(), n, b.data());
                CHECK(memcmp(a.data(), b.data(), (size_t)n * 4) == 0);
                kScalarKernels.activate(act, x.data(), nullptr, n, a.data());
                k->activate(act, x.data(), nullptr, n, b.data());
                CHECK(memcmp(a.data(), b.data(), (size_t)n * 4) == 0);
            }
        }
    }
    std::vector<uint16_t> h(65536);
    std::vector<float> f(65536), g(65536);
    for (size_t i = 0; i < h.size(); i++) h[i] = (uint16_t)i;
    kScalarKernels.half_to_float(h.data(), h.size(), f.data());
    for (const cpu_kernels* k : vector_kernels()) {
        k->half_to_float(h.data(), h.size(), g.data());
        CHECK(memcmp(f.data(), g.data(), f.size() * 4) == 0);
    }
    // codes of a q8_0 cache: a scale for each of 64 neighbours, or one for 32
    std::vector<int8_t> codes(kBlock * kAttnChunk);
    for (size_t i = 0; i < codes.size(); i++) codes[i] = (int8_t)(i * 37);
    for (float& v : f) v = normal(rng);
    for (const cpu_kernels* k : vector_kernels())
        for (const bool is_key : {true, false}) {
            k->codes_to_float(codes.data(), f.data(), is_key, 0, g.data());
            for (size_t i = 0; i < codes.size(); i++)
                REQUIRE(g[i] == f[is_key ? i % kAttnChunk : i / kBlock] * (float)codes[i]);
        }
}

TEST_CASE("attention chunks: bits, windows, caps, merging, odd sizes") {
    std::mt19937 rng(6);
    std::normal_distribution<float> normal;
    const int dims[][2] = {{1, 3},     {32, 32},  {64, 64},   {72, 40},  {80, 80},
                           {128, 128}, {129, 57}, {192, 128}, {256, 256}};
    for (const auto& [dim, v_dim] : dims)
        for (int n_rows : {1, 4, 7, 21})
            for (float cap : {0.0f, 30.0f}) {
                const bool is_half = n_rows != 4;
                std::vector<float> q((size_t)(n_rows * dim)), k((size_t)dim * kAttnChunk * 3),
                    v((size_t)v_dim * kAttnChunk * 3);
                for (auto* x : {&q, &k, &v})
                    for (float& e : *x) e = normal(rng);
                if (n_rows == 7) q[0] = INFINITY, v[0] = -INFINITY;  // of position 0, which row 0 alone sees
                // A NaN among the keys of position 2, which row 0 alone sees: a payload in its lowest bits stays a NaN.
                if (n_rows == 4) k[2] = std::bit_cast<float>(0x7fc00035u);
                std::vector<uint16_t> half_k(k.size()), half_v(v.size());
                std::transform(k.begin(), k.end(), half_k.begin(), float_to_half);
                std::transform(v.begin(), v.end(), half_v.begin(), float_to_half);
                const auto run = [&](const cpu_kernels& kernels) {
                    std::vector<float> o((size_t)(n_rows * v_dim)), scratch((size_t)(kAttnChunk + v_dim + 16));
                    std::vector<attn_state> st((size_t)n_rows, {0.0f, 0.0f});
                    std::vector<int> first((size_t)n_rows), n_pos((size_t)n_rows);
                    for (int c = 0; c < 3; c++) {
                        for (int r = 0; r < n_rows; r++) {
                            first[(size_t)r] = c == 0 ? (r * 9) % 70 : 0;    // row 15 sees nothing
                            n_pos[(size_t)r] = c == 2 ? r - 1 : kAttnChunk;  // nor do rows 0 and 1
                        }
                        const size_t k_at = (size_t)(c * dim * kAttnChunk), v_at = (size_t)(c * v_dim * kAttnChunk);
                        kernels.attn_chunk({q.data(), (size_t)dim, n_rows, first.data(), n_pos.data(),
                                            is_half ? (const void*)(half_k.data() + k_at) : k.data() + k_at,
                                            is_half ? (const void*)(half_v.data() + v_at) : v.data() + v_at, dim, v_dim,
                                            0.125f, cap, st.data(), o.data(), (size_t)v_dim, scratch.data(), is_half,
                                            0});
                    }
                    for (const attn_state& s : st)  // nothing depends on the maximum beside a NaN
                        o.push_back(n_rows != 4 || s.sum == s.sum ? s.max : NAN), o.push_back(s.sum);
                    for (float& x : o) x = x != x ? NAN : x;  // a NaN's payload is not fixed
                    return o;
                };
                const auto want = run(kScalarKernels);
                for (const cpu_kernels* kernels : vector_kernels()) {
                    INFO(std::string(kernels->name), " dim ", dim, " values ", v_dim, " rows ", n_rows, " cap ", cap);
                    const auto got = run(*kernels);
                    CHECK(memcmp(want.data(), got.data(), want.size() * 4) == 0);
                }
            }
}

TEST_CASE("attention: positions shared out among threads, bits") {
    struct shape {
        int n_heads, n_kv_heads, k_dim, v_dim, n_pos, window;
    };
    // more chunks than are merged at once; more than there is room for; a window
    for (const shape& s : {shape{6, 2, 32, 40, 4300, 0}, {64, 1, 64, 512, 2100, 0}, {4, 1, 40, 32, 2000, 1500}}) {
        model_graph g;
        const int widths[] = {s.n_heads * s.k_dim, s.n_kv_heads * s.k_dim, s.n_kv_heads * s.v_dim, s.n_heads * s.v_dim};
        for (int width : widths) g.buffers.push_back({"", width, false});
        g.groups.push_back({s.window});
        g.caches.push_back({0, s.n_kv_heads, s.k_dim, s.v_dim, false});
        op append, attend;
        append.kind = op_kind::kv_append;
        attend.kind = op_kind::attention;
        append.index = attend.index = 0;
        append.in = {1, 0, s.n_kv_heads, s.k_dim, s.k_dim};
        append.in2 = {2, 0, s.n_kv_heads, s.v_dim, s.v_dim};
        attend.in = {0, 0, s.n_heads, s.k_dim, s.k_dim};
        attend.out = {3, 0, s.n_heads, s.v_dim, s.v_dim};
        attend.scale = 0.125f;
        g.ops = {append, attend};
        exec_limits limits;
        limits.n_ctx = s.n_pos;
        limits.max_batch = 1;
        limits.cache_type = DUET_CACHE_F16;
        limits.n_pages = {(s.n_pos + kAttnChunk - 1) / kAttnChunk};
        std::vector<int32_t> pages((size_t)limits.n_pages[0]);
        for (size_t i = 0; i < pages.size(); i++) pages[i] = (int32_t)(pages.size() - 1 - i);
        const std::vector<std::vector<const int32_t*>> table{{pages.data()}};
        const auto run = [&](const char* isa, int n_threads) {
            error_text err;
            void* c = nullptr;
            REQUIRE(kCpuExecutor.create(g, limits, n_threads, isa, &c, err) == DUET_OK);
            std::mt19937 rng(9);
            int32_t pos = 0, seq = 0;
            exec_batch batch;
            batch.n_tok = 1;
            batch.pos = &pos;
            batch.seq = &seq;
            batch.pages = &table;
            for (; pos < s.n_pos; pos++) {
                for (int b = 0; b < 3; b++)
                    for (int j = 0; j < widths[b]; j++)
                        kCpuExecutor.wanted_row(c, b, 0)[j] = (float)(rng() % 2001) * 0.002f - 2.0f;
                batch.last_op = pos + 1 == s.n_pos ? 2 : 1;
                REQUIRE(kCpuExecutor.run(c, batch, nullptr, err) == DUET_OK);
            }
            const float* out = kCpuExecutor.wanted_row(c, 3, 0);
            const std::vector<float> got(out, out + widths[3]);
            kCpuExecutor.destroy(c);
            return got;
        };
        const std::vector<float> want = run("auto", 1);
        CHECK(run("auto", 3) == want);
        CHECK(run("auto", 40) == want);
        CHECK(run("scalar", 5) == want);
    }
}

TEST_CASE("matmuls of one input run as one work: formats side by side, long rows cut, bits") {
    std::mt19937 rng(12);
    struct matrix {
        const char* type;
        int n_out;
        bool has_bias, residual;
        float scale;
    };
    // more than run together at once; rows that no piece divides; codes, then floats
    const matrix matrices[] = {{"Q4_0", 200, true, false, 1},  {"Q4_0", 48, false, false, 0.5f},
                               {"Q6_K", 72, false, true, 1},   {"IQ2_S", 40, false, false, 1},
                               {"Q8_0", 33, false, false, 1},  {"F16", 200, false, true, 1},
                               {"BF16", 40, true, true, 2.0f}, {"F32", 9, false, false, 1}};
    for (const int n_in : {256, 4352, 6400}) {  // 6400 / 3 is no whole number of groups
        model_graph g;
        std::vector<std::vector<uint8_t>> bytes;
        std::vector<float> bias(200);
        for (float& b : bias) b = (float)(rng() % 2001) * 0.002f - 2.0f;
        g.buffers = {{"", n_in, false}, {"", n_in, false}};
        op act;
        act.kind = op_kind::activate;
        act.act = activation::silu;
        act.in = {0, 0, 1, n_in, n_in};
        act.out = {1, 0, 1, n_in, n_in};
        g.ops = {act};
        for (const matrix& m : matrices) {
            const int32_t type = duet_type_by_name(m.type)->id;
            bytes.push_back(random_weights(type, m.n_out, n_in, rng));
            const uint64_t n = bytes.back().size();
            g.weights.push_back({"w", type, n_in, m.n_out, 1, bytes.back().data(), n, n / (uint64_t)m.n_out});
            op o;
            o.kind = op_kind::matmul;
            o.w = (weight_id)g.weights.size() - 1;
            o.in = act.out;
            o.out = {(int32_t)g.buffers.size(), 0, 1, m.n_out, m.n_out};
            o.residual = m.residual;
            o.scale = m.scale;
            g.buffers.push_back({"", m.n_out, false});
            g.ops.push_back(o);
        }
        for (size_t i = 0; i < std::size(matrices); i++) {
            if (!matrices[i].has_bias) continue;
            g.ops[i + 1].b = (weight_id)g.weights.size();
            g.weights.push_back({"b", duet_type_by_name("F32")->id, 200, 1, 1, (const uint8_t*)bias.data(), 800, 800});
        }
        op again = g.ops[1];  // adds to what the matmul before it writes, so that it must wait for it
        again.residual = true;
        g.ops.insert(g.ops.begin() + 2, again);
        const auto run = [&](const char* isa, int n_threads, int n_tok, bool apart) {
            exec_limits limits;  // no room for more than these tokens
            limits.n_ctx = limits.max_batch = n_tok;
            error_text err;
            void* c = nullptr;
            REQUIRE(kCpuExecutor.create(g, limits, n_threads, isa, &c, err) == DUET_OK);
            kCpuExecutor.profile(c, apart);
            std::mt19937 values(9);
            for (int b = 0; b < (int)g.buffers.size(); b++)
                for (int i = 0; i < n_tok; i++)
                    for (int j = 0; j < g.buffers[(size_t)b].width && b != 1; j++)
                        kCpuExecutor.wanted_row(c, b, i)[j] = (float)(values() % 2001) * 0.002f - 2.0f;
            exec_batch batch;
            batch.n_tok = n_tok;
            REQUIRE(kCpuExecutor.run(c, batch, nullptr, err) == DUET_OK);
            std::vector<uint32_t> got;
            for (int b = 1; b < (int)g.buffers.size(); b++)
                for (int i = 0; i < n_tok; i++)
                    for (int j = 0; j < g.buffers[(size_t)b].width; j++)
                        got.push_back(bits_of(kCpuExecutor.wanted_row(c, b, i)[j]));
            kCpuExecutor.destroy(c);
            return got;
        };
        for (const int n_tok : {1, 3, 5, 8, 40}) {
            INFO(n_in, " values, ", n_tok, " tokens");
            const auto want = run("scalar", 1, n_tok, true);
            for (int i = 0; const cpu_kernels* k = cpu_kernels_at(i); i++)
                for (const int n_threads : {1, 3, 7}) CHECK(run(k->name, n_threads, n_tok, false) == want);
            for (int i = 0; i < 4; i++) CHECK(run("auto", 3, n_tok, false) == want);  // ways take turns
        }
    }
}

TEST_CASE("threads: every piece is done once, whatever the number of pieces") {
    duet::thread_pool pool;
    REQUIRE(pool.start(3));
    std::mt19937 rng(8);
    for (int job = 0; job < 3000; job++) {
        const int n = job == 0 ? 200000 : (int)(rng() % 40);  // more than a range has room for; fewer than threads
        std::vector<int> times((size_t)n, 0);
        pool.for_each(n, [&](int t, int i) { times[(size_t)i] += t >= 0 && t < 3 ? 1 : 100; });
        REQUIRE(std::count(times.begin(), times.end(), 1) == n);
    }
}
