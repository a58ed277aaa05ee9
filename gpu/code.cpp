// gpu/code.cpp: the machine code of the kernels as bytes of the program, one piece for each chip that was built in, and
// the choice among them. DUET_GPU_CODE is a list of GPU_CODE(chip), whose bytes are DUET_GPU_FOLDER "<chip>.co.gz".
// Must not know: what the kernels do. Main path: gpu/driver_cuda_hip.cpp -> [gpu/code.cpp]
#include "driver.h"
#include "../quant/gunzip.h"

#include <cstdlib>
#include <cstring>
#include <utility>

#if !defined(DUET_GPU_CODE)
#define DUET_GPU_CODE
#endif
// The compiler's version, as a driver counts: 13010. A driver wants its major version, for intermediate code the minor.
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

const gpu_test_setup* gpu_test(const gpu_test_setup* setup) { return std::exchange(gpu_test_now, setup); }
const gpu_test_setup& gpu_setup() {
    static const gpu_test_setup kNone{};
    return gpu_test_now ? *gpu_test_now : kNone;
}

static std::span<const gpu_code> all_code() {
#define GPU_CODE(chip) {#chip, duet_code_##chip, (uint64_t)(duet_code_end_##chip - duet_code_##chip), driver_of(#chip)},
    static const gpu_code kBuilt[] = {DUET_GPU_CODE{"", nullptr, 0, 0}};
#undef GPU_CODE
    const gpu_test_setup& setup = gpu_setup();
    return setup.code ? std::span(setup.code, (size_t)setup.n_code) : std::span(kBuilt, std::size(kBuilt) - 1);
}

const gpu_code* find_gpu_code(std::string_view chip, std::string_view part, bool any_text) {
    constexpr int kOrin = 87;
    const gpu_code* best = nullptr;
    for (const gpu_code& code : all_code()) {
        if (chip == code.chip && !any_text) return &code;
        if (chip.starts_with("gfx") && family_of(chip) == code.chip) best = &code;
        if (!chip.starts_with("sm_") || code.chip[0] == 'g') continue;
        const int want = chip_number(chip), have = chip_number(code.chip);
        const bool is_text = code.chip[0] == 'c', is_other = want == kOrin || have == kOrin || have / 10 != want / 10;
        if (have > want || (!is_text && (any_text || is_other)) || (is_text && !has_part(code.chip, part))) continue;
        const bool best_is_text = best && best->chip[0] == 'c';
        if (!best || (is_text == best_is_text ? have > chip_number(best->chip) : best_is_text)) best = &code;
    }
    return best;
}

std::string gpu_code_list() {
    std::string list;
    for (const gpu_code& code : all_code()) {
        const std::string_view chip = code.chip;
        if (chip[0] != 'g' && !has_part(chip, "common")) continue;
        list += (list.empty() ? "" : " ") + std::string(chip.substr(0, chip[0] == 'c' ? part_at(chip) : chip.npos));
    }
    return all_code().empty() ? "none" : list;
}

bool unpack_gpu_code(const gpu_code& code, std::vector<uint8_t>* out) {
    if (!gunzip({code.data, code.n_bytes}, out)) return false;
    out->push_back(0);  // The zero ends the text of intermediate code.
    return true;
}

}  // namespace duet
