// gpu/code.cpp: the machine code of the kernels as bytes of the program, one piece for each chip that was built in, and
// the choice among them. DUET_GPU_CODE is a list of GPU_CODE(chip), whose bytes are DUET_GPU_FOLDER "<chip>.co.gz".
// Must not know: what the kernels do. Main path: gpu/driver_cuda_hip.cpp -> [gpu/code.cpp]
#include "driver.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#if !defined(DUET_GPU_CODE)
#define DUET_GPU_CODE
#endif
// Version of the compiler that made the code, as a driver counts: 13010. A driver of an older major version cannot load
// it; intermediate code also wants the minor version.
#if !defined(DUET_CUDA_VERSION)
#define DUET_CUDA_VERSION 0
#endif

#if defined(_WIN32)  // its object format has no stack of sections
#define DUET_CODE_BEGIN ".section .rdata,\"dr\"\n"
#define DUET_CODE_END   ".text"
#else
#define DUET_CODE_BEGIN ".pushsection .rodata\n"
#define DUET_CODE_END   ".popsection"
#endif

#define GPU_CODE(chip)                                                                                                 \
    __asm__(DUET_CODE_BEGIN ".balign 64\nduet_code_" #chip ":\n.incbin \"" DUET_GPU_FOLDER #chip                       \
                            ".co.gz\"\nduet_code_end_" #chip ":\n"                                                     \
                            ".byte 0\n" DUET_CODE_END);                                                                \
    extern "C" const uint8_t duet_code_##chip[] __attribute__((visibility("hidden")));                                 \
    extern "C" const uint8_t duet_code_end_##chip[] __attribute__((visibility("hidden")));
DUET_GPU_CODE
#undef GPU_CODE

namespace duet {
namespace {

thread_local const gpu_test_setup* gpu_test_now = nullptr;

bool is_cuda_code(std::string_view chip) { return chip[0] != 'g'; }

// The number in a chip's name: 103 for "sm_103".
int chip_number(std::string_view chip) { return atoi(chip.substr(chip.find('_') + 1).data()); }

size_t part_at(std::string_view code) { return code.find('_', code.find('_') + 1); }
// Whether CUDA code named `code` has the part that is wanted: "sm_90" has all, "compute_80_q4_K" has one.
bool has_part(std::string_view code, std::string_view part) {
    return part_at(code) == code.npos || code.substr(part_at(code) + 1) == part;
}

// The AMD family that a chip is of: "gfx11_generic". As LLVM's AMDGPUUsage lists them.
std::string_view family_of(std::string_view chip) {
    if (chip.size() == 6 && chip.substr(0, 5) == "gfx90" && chip[5] != '8' && chip[5] != 'a') return "gfx9_generic";
    constexpr const char* kFamilies[][2] = {{"gfx94", "gfx9_4_generic"},   {"gfx95", "gfx9_4_generic"},
                                            {"gfx101", "gfx10_1_generic"}, {"gfx103", "gfx10_3_generic"},
                                            {"gfx110", "gfx11_generic"},   {"gfx115", "gfx11_generic"},
                                            {"gfx120", "gfx12_generic"}};
    for (const auto& f : kFamilies)
        if (chip.size() == strlen(f[0]) + 1 && chip.starts_with(f[0])) return f[1];
    return "";
}

// The oldest driver that loads the code.
[[maybe_unused]] constexpr int32_t driver_of(std::string_view chip) {
    if (chip[0] == 'g') return chip.back() == 'c' && chip.size() > 8 ? 60300000 : 0;  // generic
    return chip[0] == 'c' ? DUET_CUDA_VERSION : DUET_CUDA_VERSION / 1000 * 1000;
}

}  // namespace

#define GPU_CODE(chip) " " #chip
const char kGpuBuilt[] = "" DUET_GPU_CODE;
#undef GPU_CODE

const gpu_test_setup* gpu_test(const gpu_test_setup* setup) {
    const gpu_test_setup* before = gpu_test_now;
    gpu_test_now = setup;
    return before;
}
const gpu_test_setup& gpu_setup() {
    static const gpu_test_setup kNone{};
    return gpu_test_now ? *gpu_test_now : kNone;
}

static const gpu_code* all_code(int32_t* n) {
#define GPU_CODE(chip) {#chip, duet_code_##chip, (uint64_t)(duet_code_end_##chip - duet_code_##chip), driver_of(#chip)},
    static const gpu_code kBuilt[] = {DUET_GPU_CODE{"", nullptr, 0, 0}};
#undef GPU_CODE
    const gpu_test_setup& setup = gpu_setup();
    *n = setup.code ? setup.n_code : (int32_t)(sizeof kBuilt / sizeof *kBuilt) - 1;
    return setup.code ? setup.code : kBuilt;
}

const gpu_code* find_gpu_code(std::string_view chip, std::string_view part, bool any_text) {
    constexpr int kOrin = 87;
    int32_t n = 0;
    const gpu_code* code = all_code(&n);
    const gpu_code* best = nullptr;
    for (int32_t i = 0; i < n; i++) {
        if (chip == code[i].chip && !any_text) return &code[i];
        if (chip.starts_with("gfx") && family_of(chip) == code[i].chip) best = &code[i];
        if (!chip.starts_with("sm_") || !is_cuda_code(code[i].chip)) continue;
        const int want = chip_number(chip), have = chip_number(code[i].chip);
        const bool is_text = code[i].chip[0] == 'c',
                   is_other = want == kOrin || have == kOrin || have / 10 != want / 10;
        if (have > want || (!is_text && (any_text || is_other)) || (is_text && !has_part(code[i].chip, part))) continue;
        const bool best_is_text = best && best->chip[0] == 'c';
        if (!best || (is_text == best_is_text ? have > chip_number(best->chip) : best_is_text)) best = &code[i];
    }
    return best;
}

std::string gpu_code_list() {
    int32_t n = 0;
    const gpu_code* code = all_code(&n);
    std::string list;
    for (int32_t i = 0; i < n; i++) {
        const std::string_view chip = code[i].chip;
        if (is_cuda_code(chip) && !has_part(chip, "common")) continue;
        list += (i ? " " : "") + std::string(chip.substr(0, chip[0] == 'c' ? part_at(chip) : chip.npos));
    }
    return n ? list : "none";
}

// ---- unpacking: RFC 1951 and 1952 ----

namespace {

struct code_unpacker {
    const uint8_t *at, *end;
    std::vector<uint8_t>& out;
    uint32_t hold = 0;
    int n_held = 0;
    bool ok = true;

    int bits(int n) {
        while (n_held < n) {
            if (at == end) {
                ok = false;
                return 0;
            }
            hold |= (uint32_t)*at++ << n_held;
            n_held += 8;
        }
        const int v = (int)(hold & ((1u << n) - 1));
        hold >>= n;
        n_held -= n;
        return v;
    }

    // A canonical Huffman code: the symbols in order of length and value.
    struct code_table {
        int count[16] = {};
        uint16_t symbol[288] = {};
        void make(const uint8_t* length, int n) {
            int first[16] = {};
            for (int i = 0; i < n; i++) count[length[i]]++;
            count[0] = 0;
            for (int k = 1; k < 15; k++) first[k + 1] = first[k] + count[k];
            for (int i = 0; i < n; i++)
                if (length[i]) symbol[first[length[i]]++] = (uint16_t)i;
        }
    };
    int next(const code_table& t) {
        for (int k = 1, code = 0, first = 0, index = 0; k < 16 && ok; k++) {
            code |= bits(1);
            if (code - first < t.count[k]) return t.symbol[index + code - first];
            index += t.count[k];
            first = (first + t.count[k]) << 1;
            code <<= 1;
        }
        ok = false;
        return 0;
    }

    // Each of these unpacks a part of the format: a stored block, the code tables of a block, a compressed block.
    void stored() {
        hold = 0;
        n_held = 0;
        const int n = bits(16), inverse = bits(16);
        ok = ok && n == (inverse ^ 0xffff) && end - at >= n;
        if (!ok) return;
        out.insert(out.end(), at, at + n);
        at += n;
    }
    void lengths(code_table* literals, code_table* distances) {
        uint8_t length[320] = {};
        const int n_literals = bits(5) + 257, n_distances = bits(5) + 1, n_lengths = bits(4) + 4;
        constexpr uint8_t kOrder[19] = {16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15};
        for (int i = 0; i < n_lengths; i++) length[kOrder[i]] = (uint8_t)bits(3);
        code_table t;
        t.make(length, 19);
        for (int i = 0; i < n_literals + n_distances && ok;) {
            const int s = next(t);
            // A symbol below 16 is a length; 16 repeats the last length, 17 and 18 repeat zero.
            const uint8_t value = s < 16 ? (uint8_t)s : s == 16 && i > 0 ? length[i - 1] : 0;
            int n = s < 16 ? 1 : s == 18 ? 11 + bits(7) : 3 + bits(s - 14);
            for (; n > 0 && i < n_literals + n_distances; n--) length[i++] = value;
        }
        literals->make(length, std::min(n_literals, 288));
        distances->make(length + n_literals, n_distances);
    }
    void block(const code_table& literals, const code_table& distances) {
        for (int s; ok && (s = next(literals)) != 256;) {
            if (s < 256) {
                out.push_back((uint8_t)s);
                continue;
            }
            const int a = s - 257, n_extra = a < 8 || a == 28 ? 0 : (a - 4) / 4;
            int n = a < 8 ? a + 3 : a == 28 ? 258 : ((4 + a % 4) << n_extra) + 3 + bits(n_extra);
            const int b = next(distances), far = b < 4 ? 0 : (b - 2) / 2;
            const size_t back = b < 4 ? (size_t)b + 1 : (size_t)(((2 + b % 2) << far) + 1 + bits(far));
            ok = ok && a <= 28 && b <= 29 && back <= out.size();
            if (!ok) return;
            for (; n > 0; n--) out.push_back(out[out.size() - back]);
        }
    }
    bool run() {
        bool is_last = false;
        while (ok && !is_last) {
            is_last = bits(1) != 0;
            const int kind = bits(2);
            code_table literals, distances;
            if (kind == 0) {
                stored();
                continue;
            }
            if (kind == 1) {
                uint8_t length[288];
                for (int i = 0; i < 288; i++) length[i] = i < 144 ? 8 : i < 256 ? 9 : i < 280 ? 7 : 8;
                literals.make(length, 288);
                std::fill(length, length + 30, (uint8_t)5);
                distances.make(length, 30);
            } else {
                lengths(&literals, &distances);
            }
            ok = ok && kind != 3;
            block(literals, distances);
        }
        return ok;
    }
};

}  // namespace

bool unpack_gpu_code(const gpu_code& code, std::vector<uint8_t>* out) {
    out->clear();
    if (code.n_bytes < 18 || code.data[0] != 0x1f || code.data[1] != 0x8b) {
        out->assign(code.data, code.data + code.n_bytes);
    } else {
        uint32_t n_bytes = 0, want = 0, sum = ~0u;
        memcpy(&want, code.data + code.n_bytes - 8, 4);
        memcpy(&n_bytes, code.data + code.n_bytes - 4, 4);
        out->reserve((size_t)n_bytes + 1);
        // gzip -n writes a header of 10 bytes, without a name.
        code_unpacker u{code.data + 10, code.data + code.n_bytes - 8, *out};
        if (code.data[3] != 0 || !u.run() || out->size() != n_bytes) return false;
        for (uint8_t byte : *out) {
            sum ^= byte;
            for (int k = 0; k < 8; k++) sum = sum >> 1 ^ (sum & 1 ? 0xedb88320u : 0);
        }
        if (~sum != want) return false;
    }
    out->push_back(0);  // The zero ends the text of intermediate code.
    return true;
}

}  // namespace duet
