// tests/test_quant.cpp: number formats: conversions of small floats, decoding against vectors of llama.cpp, the integer
// view, encoders (error, extremes, importances, same bytes everywhere) and their C functions. quant/types.def gives the
// cases of each format.
#include "doctest.h"
#include "metrics.h"
#include "test_data.h"

#include "../quant/formats.h"
#include "../quant/blocks.h"
#include "../runtime.h"

#include <cfloat>
#include <cstring>
#include <map>
#include <random>
#include <vector>

namespace {

using namespace duet;

// One row of the table, in the form that the tests use.
struct format_row {
    const char* name;
    int32_t id, elems, bytes;
    double max_nmse;  // 0: plain floats
};
// clang-format off
const std::vector<format_row> kFormats = {
#define FLOAT_TYPE(id, NAME, gguf_id, bytes) {#NAME, gguf_id, 1, bytes, 0},
#define QUANT_TYPE(id, NAME, gguf_id, elems, bytes, max_nmse) {#NAME, gguf_id, elems, bytes, max_nmse},
#include "../quant/types.def"
};
namespace removed_id {
enum : int32_t {
#define REMOVED_TYPE(NAME, gguf_id) NAME = gguf_id,
#include "../quant/types.def"
};
}
namespace tensor_id {  // types that no encoder or decoder knows
enum : int32_t {
#define TENSOR_TYPE(id, NAME, gguf_id, elems, bytes) id = gguf_id,
#include "../quant/types.def"
};
}
// clang-format on

float from_bits(uint32_t b) { return float_of(b); }

std::vector<uint8_t> encode_row(const format_row& f, const std::vector<float>& x, const float* importance = nullptr) {
    std::vector<uint8_t> blocks(x.size() / (size_t)f.elems * (size_t)f.bytes);
    REQUIRE(duet_quantize_row(f.id, x.data(), (int64_t)x.size(), importance, blocks.data()) == DUET_OK);
    return blocks;
}

std::vector<float> decode_row(const format_row& f, const std::vector<uint8_t>& blocks) {
    std::vector<float> y(blocks.size() / (size_t)f.bytes * (size_t)f.elems);
    REQUIRE(duet_dequantize_row(f.id, blocks.data(), (int64_t)y.size(), y.data()) == DUET_OK);
    return y;
}

std::vector<float> round_trip(const format_row& f, const std::vector<float>& x, const float* importance = nullptr) {
    return decode_row(f, encode_row(f, x, importance));
}

std::vector<float> normal_values(size_t n, uint32_t seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::vector<float> x(n);
    for (float& v : x) v = normal(random);
    return x;
}

// Makes bell-shaped values from sums of whole numbers, so that every compiler and library gives the same bits.
std::vector<float> portable_values(size_t n) {
    std::vector<float> x(n);
    uint32_t state = 1;
    for (float& v : x) {
        int32_t sum = 0;
        for (int i = 0; i < 8; i++) sum += (int32_t)((state = state * 1664525u + 1013904223u) >> 16) - 32768;
        v = (float)sum * 0x1p-21f;
    }
    return x;
}

uint32_t fnv_hash(const std::vector<uint8_t>& bytes) {
    uint32_t h = 2166136261u;
    for (uint8_t b : bytes) h = (h ^ b) * 16777619u;
    return h;
}

std::vector<float> with_value(std::vector<float> x, size_t i, float value) {
    x[i] = value;
    return x;
}

bool is_finite(const std::vector<float>& y) {
    for (float v : y)
        if (!(std::fabs(v) <= FLT_MAX)) return false;
    return true;
}

// Blocks of random bytes.
template <class B>
std::vector<B> random_blocks(size_t n) {
    std::mt19937 random(11);
    std::vector<B> blocks(n);
    for (size_t i = 0; i < n * sizeof(B); i++) ((uint8_t*)blocks.data())[i] = (uint8_t)random();
    return blocks;
}

// unpack() must agree with decode(). Without a minimum, the three factors have 27 bits at most, and decode rounds their
// exact product once. With a minimum, decode rounds the product and then the difference, so the result is within one
// rounding of each operand of the exact value.
template <class B>
void check_unpack(const char* name) {
    int most_code = 0, most_sub = 0, n_checked = 0;
    for (const B& b : random_blocks<B>(512))
        for (int s = 0; s < B::kElems / 32; s++) {
            block32 w;
            unpack(b, s, &w);
            if (!(std::fabs(w.d) <= 1e34f) || !(std::fabs(w.m) <= 1e34f)) continue;  // NaN, and products beyond f32
            for (int i = 0; i < 32; i++) {
                const double product = (double)w.d * w.sub[i / 16] * w.q[i], minimum = (double)w.m * w.min[i / 16];
                const float value = decode(b, 32 * s + i);
                if (!B::kHasMin) REQUIRE_MESSAGE(value == (float)product, name);
                const double room = (std::fabs(product) + std::fabs(product - minimum)) * 0x1p-24;
                REQUIRE_MESSAGE(std::fabs((double)value - (product - minimum)) <= room, name);
                most_code = std::max(most_code, std::abs(w.q[i]));
                most_sub = std::max(most_sub, std::abs(w.sub[i / 16]));
                n_checked++;
            }
            if (!B::kHasMin) CHECK(w.m == 0.0f);
            if (B::kSubScales == 1) CHECK(w.sub[0] == w.sub[1]);
        }
    CHECK(n_checked > 0);
    if (kWideSubs<B>) most_sub = 1;                                  // applied in f32
    CHECK_MESSAGE(32 * most_code * most_sub * 127 < 1 << 24, name);  // sums of a block are exact in f32, too
}

}  // namespace

template <class B>
static int codes_out_of_range() {
    int n_bad = 0;
    if constexpr (requires { B::kBias; }) {
        std::mt19937 rng(21);
        for (int k = 0; k < 400; k++) {
            B block;
            for (size_t i = 0; i < sizeof block; i++) ((uint8_t*)&block)[i] = (uint8_t)rng();
            for (int i = 0; i < B::kElems; i++)
                n_bad += block.code(i) < -B::kBias || block.code(i) > B::kLargest - B::kBias;
        }
    }
    return n_bad;
}

TEST_CASE("codes plus their bias are unsigned and at most kLargest") {
#define QUANT_TYPE(id, NAME, gguf_id, elems, bytes, max_nmse)                                                          \
    CHECK_MESSAGE(codes_out_of_range<block_##id>() == 0, #NAME);
#include "../quant/types.def"
}

TEST_CASE("half floats: every pattern, and every boundary between two of them") {
    for (uint32_t h = 0; h < 65536; h++) {
        const uint32_t exponent = h >> 10 & 31, fraction = h & 1023;
        const float y = half_to_float((uint16_t)h);
        const double sign = h >> 15 ? -1 : 1;
        if (exponent == 31 && fraction) {
            CHECK(bits_of(y) == ((h & 0x8000u) << 16 | 0x7fc00000u | fraction << 13));
            CHECK(float_to_half(y) == (h | 0x200u));
            continue;
        }
        if (exponent == 31) CHECK(y == (float)(sign * INFINITY));
        else
            CHECK((double)y ==
                  sign * (exponent ? std::ldexp(1024 + fraction, (int)exponent - 25) : std::ldexp(fraction, -24)));
        CHECK(std::signbit(y) == (h >> 15 != 0));
        CHECK(float_to_half(y) == h);
        if ((h & 0x7fffu) >= 0x7c00u) continue;
        // the middle to the next larger one goes to the even of both; 65536 would follow 65504
        const double next = (h & 0x7fffu) == 0x7bffu ? sign * 65536.0 : (double)half_to_float((uint16_t)(h + 1));
        const float middle = (float)(((double)y + next) / 2);
        CHECK(float_to_half(middle) == (h & 1 ? h + 1 : h));
        CHECK(float_to_half(std::nextafterf(middle, 0.0f)) == h);
        CHECK(float_to_half(std::nextafterf(middle, (float)sign * INFINITY)) == h + 1);
    }
    CHECK(float_to_half(FLT_MAX) == 0x7c00);
    CHECK(float_to_half(-1e-45f) == 0x8000);
    CHECK(float_to_half(from_bits(0xff800001u)) == 0xfe00);
}

TEST_CASE("bfloat: ties to even, NaN stays NaN, every pattern") {
    for (uint32_t h = 0; h < 65536; h++) {
        const float y = bf16_to_float((uint16_t)h);
        CHECK(bits_of(y) == h << 16);
        if (y == y) CHECK(float_to_bf16(y) == h);
        else CHECK(float_to_bf16(y) == (h | 0x40u));
    }
    CHECK(float_to_bf16(from_bits(0x3f808000u)) == 0x3f80);
    CHECK(float_to_bf16(from_bits(0x3f818000u)) == 0x3f82);
    CHECK(float_to_bf16(from_bits(0x3f808001u)) == 0x3f81);
    CHECK(float_to_bf16(FLT_MAX) == 0x7f80);
    CHECK(float_to_bf16(from_bits(0x7f800001u)) == 0x7fc0);
}

TEST_CASE("E8M0: powers of two down to the denormals") {
    for (int e = 0; e < 256; e++) CHECK(e8m0_half_to_float((uint8_t)e) == (float)std::ldexp(1.0, e - 128));
}

TEST_CASE("UE4M3: every scale of NVFP4") {
    for (int x = 0; x < 256; x++) {
        const int e = x >> 3 & 15, fraction = x & 7;
        const double want = x == 127 ? 0 : e == 0 ? std::ldexp(fraction, -9) : std::ldexp(8 + fraction, e - 10);
        CHECK(ue4m3_units((uint8_t)x) * 0x1p-9 == want);
    }
}

TEST_CASE("decode: bit-equal with the vectors of every format") {
    int n_skipped = 0;
    for (const format_row& f : kFormats) {
        const std::string base = test_data_path(std::string("golden/dequant_vectors/") + f.name);
        if (!file_exists(base + ".bin")) {
            n_skipped += f.id != type_id::f32 && f.id != type_id::nvfp4;
            continue;
        }  // there is none for F32, NVFP4
        const std::string bin = read_file(base + ".bin"), want = read_file(base + ".f32");
        const std::vector<float> got = decode_row(f, std::vector<uint8_t>(bin.begin(), bin.end()));
        REQUIRE(got.size() * 4 == want.size());
        CHECK_MESSAGE(std::memcmp(got.data(), want.data(), want.size()) == 0, f.name);
    }
    if (n_skipped) say_skipped("decode against vectors", n_skipped, "no golden/dequant_vectors");
}

TEST_CASE("unpack: the integer view is decode's value") {
#define QUANT_TYPE(id, NAME, gguf_id, elems, bytes, max_nmse) check_unpack<block_##id>(#NAME);
#include "../quant/types.def"
}

TEST_CASE("encode: error on unit normal data within the table's bound, on outliers and offsets near it") {
    const std::vector<float> x = normal_values(1 << 15, 3);
    std::vector<float> heavy = x, shifted = x;
    for (size_t i = 0; i < x.size(); i++) {
        if (i % 97 == 3) heavy[i] *= 8;
        shifted[i] = x[i] * 0.01f + 0.05f;
    }
    for (const format_row& f : kFormats) {
        const double error = nmse(x.data(), round_trip(f, x).data(), x.size());
        INFO(std::string(f.name));
        if (f.max_nmse == 0) CHECK(error <= (f.id == type_id::f32 ? 0.0 : f.id == type_id::f16 ? 6e-8 : 4e-6));
        else CHECK(error <= f.max_nmse);
        if (f.max_nmse != 0) CHECK(error > f.max_nmse * 0.8);  // a bound that no longer bounds
        CHECK(nmse(heavy.data(), round_trip(f, heavy).data(), x.size()) <= f.max_nmse * 3 + 4e-6);
        CHECK(nmse(shifted.data(), round_trip(f, shifted).data(), x.size()) <= f.max_nmse * 1.1 + 4e-6);
    }
}

TEST_CASE("encode: values that a block can hold come back exactly") {
    std::mt19937 random(5);
    const auto check = [&](const char* name, auto code, float m) {
        for (const format_row& f : kFormats) {
            if (std::string(f.name) != name) continue;
            for (int round = 0; round < 50; round++) {
                const float d = half_to_float((uint16_t)(0x2000 + random() % 0x1000));
                std::vector<float> x(32);
                for (int i = 0; i < 32; i++) x[(size_t)i] = d * (float)code(i < 2 ? i : 2 + (int)(random() % 14)) + m;
                CHECK_MESSAGE(round_trip(f, x) == x, f.name);
            }
        }
    };
    // codes 0 and 1 are the ends of the range
    const auto ends_first = [](int low, int high) {
        return [=](int i) { return i == 0 ? low : i == 1 ? high : low + i % (high - low); };
    };
    check("Q4_0", ends_first(-8, 7), 0);
    check("Q5_0", ends_first(-16, 15), 0);
    check("Q8_0", ends_first(-127, 127), 0);
    check("Q4_1", ends_first(0, 15), -0.5f);
    check("Q5_1", ends_first(0, 31), 0.25f);
    check("IQ4_NL", [](int i) { return iq4_value(i == 1 ? 15 : i); }, 0);
}

TEST_CASE("encode: zeros, one huge value, denormals, NaN and infinity") {
    const size_t n = 512;
    for (const format_row& f : kFormats) {
        INFO(std::string(f.name));
        CHECK(round_trip(f, std::vector<float>(n, 0.0f)) == std::vector<float>(n, 0.0f));
        if (f.max_nmse == 0) continue;
        const std::vector<float> plain = normal_values(n, 8);
        const std::vector<float> y = round_trip(f, with_value(plain, 7, 1e4f));
        const bool is_nvfp4 = f.id == type_id::nvfp4,
                   is_one_bit = f.id == type_id::q1_0;  // reaches to 2688; one size for 128 weights
        if (!is_nvfp4 && !is_one_bit)
            CHECK(std::fabs(y[7] / 1e4f - 1) < (f.max_nmse < 0.05 ? 0.3f : 0.6f));  // IQ2 has no small values
        if (is_nvfp4) CHECK(y[7] == 2688);
        for (size_t i = 256; i < n; i++)
            REQUIRE(std::fabs(y[i] - plain[i]) < (f.max_nmse < 0.15 ? 2 : 3));  // other blocks do not see it
        CHECK(encode_row(f, with_value(plain, 3, NAN)) == encode_row(f, with_value(plain, 3, 0.0f)));
        for (const float odd : {INFINITY, -INFINITY, FLT_MAX, -FLT_MAX, 1e30f}) {
            const std::vector<float> z = round_trip(f, with_value(plain, 300, odd));
            CHECK(is_finite(z));
            CHECK(std::copysign(z[300], odd) == z[300]);
            CHECK(std::fabs(z[300]) >= (is_nvfp4 ? 2688 : 60000));
        }
        CHECK(is_finite(round_trip(f, std::vector<float>(n, FLT_MAX))));
        CHECK(is_finite(round_trip(f, std::vector<float>(n, INFINITY))));
        const std::vector<float> tiny(
            n,
            f.id == type_id::mxfp4 ? 0x1p-126f : 1e-42f);  // MXFP4's scales reach below the normal numbers
        CHECK(round_trip(f, tiny) == (f.id == type_id::mxfp4 ? tiny : std::vector<float>(n, 0.0f)));
        std::mt19937 random(4);
        std::vector<float> x(n);
        for (float& v : x) v = from_bits((uint32_t)random());
        CHECK(is_finite(round_trip(f, x)));
    }
}

TEST_CASE("encode: blocks of one value, or nearly, keep it") {
    for (const format_row& f : kFormats) {
        if (f.max_nmse == 0) continue;
        INFO(std::string(f.name));
        for (const float value : {1.0f, -1.0f, 0.02f})
            for (const float spread : {0.0f, 1e-3f, 0.02f}) {
                CAPTURE(value);
                CAPTURE(spread);
                std::vector<float> x(512);
                for (size_t i = 0; i < x.size(); i++) x[i] = value * (1 + spread * (float)(i % 7) / 3 - spread);
                const std::vector<float> y = round_trip(f, x);
                double error = 0, all = 0;
                for (size_t i = 0; i < x.size(); i++) {
                    error += (double)(y[i] - x[i]) * (double)(y[i] - x[i]);
                    all += (double)x[i] * (double)x[i];
                }
                CHECK(error / all < 0.15);
            }
    }
}

TEST_CASE("encode: importances do not spoil blocks of nearly one value") {
    std::vector<float> x(1024), w(x.size());
    const std::vector<float> spread = portable_values(x.size());
    for (size_t i = 0; i < x.size(); i++) w[i] = std::exp(spread[i] * 90);
    for (const format_row& f : kFormats)
        for (const float unlike : {0.0f, 0.01f}) {
            if (f.max_nmse == 0 || f.max_nmse > 0.1 || f.name[0] == 'I') continue;  // grids and ternary have few values
            for (size_t i = 0; i < x.size(); i++) x[i] = 0.37f * (1 + unlike * 40 * spread[(i + 7) % x.size()]);
            INFO(std::string(f.name));
            CAPTURE(unlike);
            const double with = nmse(x.data(), round_trip(f, x, w.data()).data(), x.size(), w.data());
            const double without = nmse(x.data(), round_trip(f, x).data(), x.size(), w.data());
            CHECK(with <= without * 1.1 + 1e-5);
        }
}

TEST_CASE("encode: weights that are whole numbers of a step keep their values") {
    const std::vector<float> noise = portable_values(1024);
    std::vector<float> x(noise.size()), w(x.size());
    for (size_t i = 0; i < x.size(); i++) w[i] = std::exp(noise[i] * 50);
    for (const format_row& f : kFormats)
        for (const int n_values : {3, 15}) {
            const std::string name = f.name;
            if (name != "Q4_1" && name != "Q5_1" && name != "Q4_K" && name != "Q5_K" &&
                (name != "Q2_K" || n_values != 3))
                continue;
            for (size_t i = 0; i < x.size(); i++)
                x[i] = 0.013f * (float)((int)(i * 7 % (size_t)n_values) - n_values / 2);
            CAPTURE(name);
            CAPTURE(n_values);
            CHECK(nmse(x.data(), round_trip(f, x).data(), x.size()) < 2e-5);
            CHECK(nmse(x.data(), round_trip(f, x, w.data()).data(), x.size(), w.data()) < 2e-5);
        }
}

TEST_CASE("encode: float formats keep what they can") {
    const std::vector<float> x = {0.0f,       -0.0f, INFINITY, -INFINITY, 65520.0f, 1e-8f, from_bits(0x7f800001u),
                                  3.14159274f};
    for (const format_row& f : kFormats) {
        if (f.max_nmse != 0) continue;
        const std::vector<float> y = round_trip(f, x);
        INFO(std::string(f.name));
        CHECK(std::signbit(y[1]));
        CHECK(y[2] == INFINITY);
        CHECK(y[3] == -INFINITY);
        CHECK(y[4] == (f.id == type_id::f16 ? INFINITY : f.id == type_id::bf16 ? 65536.0f : 65520.0f));
        CHECK(y[6] != y[6]);
        if (f.id == type_id::f32) CHECK(std::memcmp(x.data(), y.data(), x.size() * 4) == 0);
    }
}

TEST_CASE("encode: importances lower the weighted error; odd ones count as none") {
    const std::vector<float> x = normal_values(1 << 13, 6), spread = normal_values(1 << 13, 7);
    std::vector<float> w(x.size()), even(x.size(), 0.125f), none(x.size(), 0.0f), odd(x.size(), NAN),
        below(x.size(), -1.0f);
    for (size_t i = 0; i < w.size(); i++) w[i] = std::exp(spread[i] * 1.5f);
    for (const format_row& f : kFormats) {
        if (f.max_nmse == 0) continue;
        INFO(std::string(f.name));
        const double with = nmse(x.data(), round_trip(f, x, w.data()).data(), x.size(), w.data());
        const double without = nmse(x.data(), round_trip(f, x).data(), x.size(), w.data());
        if (f.id == type_id::q8_0) CHECK(with == without);  // Q8_0 does not search
        else
            CHECK(with < without * (f.id == type_id::mxfp4 ? 0.99
                                    : f.id == type_id::q1_0
                                        ? 0.995
                                        : 0.98));  // MXFP4 has but three scales to choose from, Q1_0 no codes
        const std::vector<uint8_t> plain = encode_row(f, x);
        for (const auto* same : {&even, &none, &odd, &below}) CHECK(encode_row(f, x, same->data()) == plain);
        std::vector<float> holes = w;
        for (size_t i = 0; i < holes.size(); i += 3) holes[i] = i % 2 ? 0.0f : -3.0f;
        holes[5] = FLT_MAX;
        holes[700] = INFINITY;
        CHECK(is_finite(round_trip(f, x, holes.data())));
    }
}

TEST_CASE("encode: the same bytes with every compiler and machine") {
    // clang-format off
    const std::map<std::string, uint32_t> known = {
        {"Q4_0", 1930779702u}, {"Q4_1", 85841363u}, {"Q5_0", 1666098425u}, {"Q5_1", 3539587669u},
        {"Q8_0", 2207586797u}, {"Q2_K", 3105151929u}, {"Q3_K", 1423410727u}, {"Q4_K", 2872511265u},
        {"Q5_K", 549949842u}, {"Q6_K", 474648274u}, {"IQ4_NL", 2516449912u}, {"IQ4_XS", 4253873704u},
        {"MXFP4", 2176301791u},
        {"IQ2_XXS", 3675951485u}, {"IQ2_XS", 2149164995u}, {"IQ2_S", 573713704u}, {"IQ3_XXS", 203645777u},
        {"IQ3_S", 1499829903u}, {"IQ1_S", 3816057886u}, {"IQ1_M", 2921251310u}, {"TQ1_0", 1870446182u},
        {"TQ2_0", 1238914725u}, {"Q1_0", 4172470937u}, {"NVFP4", 3083018733u},
    };
    // clang-format on
    const std::vector<float> x = portable_values(4096);
    for (const format_row& f : kFormats) {
        if (f.max_nmse == 0) continue;
        INFO(std::string(f.name));
        const auto row = known.find(f.name);
        const uint32_t hash = fnv_hash(encode_row(f, x));
        const std::string wanted = "{\"" + std::string(f.name) + "\", " + std::to_string(hash) + "u}";
        CHECK_MESSAGE((row != known.end() && row->second == hash), "want the row ", wanted);
    }
}

TEST_CASE("encode: real weights") {
    const std::string path = test_data_path("models/stories260K-f32.gguf");
    duet_file* file = nullptr;
    duet_tensor t;
    if (!file_exists(path)) return say_skipped("encode real weights", 1, "no " + path);
    REQUIRE(duet_file_open(path.c_str(), &file) == DUET_OK);
    REQUIRE(duet_file_tensor(file, duet_file_find_tensor(file, "token_embd.weight"), &t) == DUET_OK);
    const size_t n = (size_t)(t.dims[0] * t.dims[1]) / 256 * 256;
    const std::vector<float> x((const float*)t.data, (const float*)t.data + n);
    for (const format_row& f : kFormats)
        CHECK_MESSAGE(nmse(x.data(), round_trip(f, x).data(), n) <= f.max_nmse * 1.25 + 4e-6, f.name);
    duet_file_free(file);
}

TEST_CASE("number formats: the C functions") {
    CHECK(duet_type_row(-1) == nullptr);
    CHECK(duet_type_row(duet_type_count()) == nullptr);
    CHECK(duet_type_by_name(nullptr) == nullptr);
    CHECK(duet_type_by_name("") == nullptr);
    CHECK(duet_type_by_name("Q4_") == nullptr);
    CHECK(duet_type_by_name("Q4_KK") == nullptr);
    CHECK(duet_type_by_id(removed_id::Q4_2) == nullptr);
    CHECK(duet_type_by_id(-1) == nullptr);
    for (int32_t i = 0; i < duet_type_count(); i++) {
        const duet_type_info* row = duet_type_row(i);
        CHECK(duet_type_by_id(row->id) == row);
        CHECK(duet_type_by_name(row->name) == row);
        CHECK(row->elems_per_block > 0);
        CHECK(row->bytes_per_block > 0);
    }
    CHECK(duet_type_by_name("q4_k")->id == type_id::q4_K);
    CHECK(std::string(duet_type_by_name("iq4_xs")->name) == "IQ4_XS");
    CHECK(duet_type_by_name("I8")->can_quantize == 0);
    float x[256] = {};
    uint8_t blocks[512];
    CHECK(duet_quantize_row(type_id::q4_0, x, 33, nullptr, blocks) == DUET_ERR_ARG);
    CHECK(duet_quantize_row(type_id::q4_0, x, -32, nullptr, blocks) == DUET_ERR_ARG);
    CHECK(duet_quantize_row(type_id::q4_0, nullptr, 32, nullptr, blocks) == DUET_ERR_ARG);
    CHECK(duet_quantize_row(type_id::q4_0, x, 32, nullptr, nullptr) == DUET_ERR_ARG);
    CHECK(duet_quantize_row(removed_id::Q4_2, x, 32, nullptr, blocks) == DUET_ERR_ARG);
    CHECK(duet_quantize_row(type_id::q4_0, nullptr, 0, nullptr, nullptr) == DUET_OK);
    CHECK(duet_quantize_row(tensor_id::i8, x, 32, nullptr, blocks) == DUET_ERR_UNSUPPORTED);
    CHECK(duet_dequantize_row(tensor_id::i8, blocks, 32, x) == DUET_ERR_UNSUPPORTED);
    CHECK(duet_dequantize_row(type_id::q4_K, blocks, 128, x) == DUET_ERR_ARG);
}
