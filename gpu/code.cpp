// gpu/code.cpp: the machine code of the kernels as bytes of the program, one piece for each chip it was built for, and the choice among them.
// The build names the pieces: DUET_GPU_CODE is a list of GPU_CODE(chip) whose bytes lie in files DUET_GPU_FOLDER "<chip>.co".
// Must not know: what the kernels do. Main path: gpu/driver_vendor.cpp -> [gpu/code.cpp]
#include "driver.h"

#include <cstdlib>

#if !defined(DUET_GPU_CODE)
#define DUET_GPU_CODE
#endif
#if !defined(DUET_CUDA_VERSION)
#define DUET_CUDA_VERSION 0   // of the compiler that made the code, as a driver counts: a driver of an older major version cannot load it
#endif

// A zero behind the bytes ends the text of intermediate code.
#define GPU_CODE(chip)                                                                                                                       \
    __asm__(".pushsection .rodata\n.balign 64\nduet_code_" #chip ":\n.incbin \"" DUET_GPU_FOLDER #chip ".co\"\nduet_code_end_" #chip ":\n" \
            ".byte 0\n.popsection");                                                                                                       \
    extern "C" const uint8_t duet_code_##chip[] __attribute__((visibility("hidden")));                                                     \
    extern "C" const uint8_t duet_code_end_##chip[] __attribute__((visibility("hidden")));
DUET_GPU_CODE
#undef GPU_CODE

namespace duet {
namespace {

thread_local const gpu_test_setup* gpu_test_now = nullptr;

bool is_cuda_code(std::string_view chip) { return chip[0] != 'g'; }

// Both halves of the number behind a chip's name: "sm_103" 10 and 3.
int chip_number(std::string_view chip) { return atoi(chip.substr(chip.find('_') + 1).data()); }

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
#define GPU_CODE(chip) {#chip, duet_code_##chip, (uint64_t)(duet_code_end_##chip - duet_code_##chip), is_cuda_code(#chip) ? DUET_CUDA_VERSION : 0},
    static const gpu_code kBuilt[] = {DUET_GPU_CODE {"", nullptr, 0, 0}};
#undef GPU_CODE
    const gpu_test_setup& setup = gpu_setup();
    *n = setup.code ? setup.n_code : (int32_t)(sizeof kBuilt / sizeof *kBuilt) - 1;
    return setup.code ? setup.code : kBuilt;
}

const gpu_code* find_gpu_code(std::string_view chip) {
    int32_t n = 0;
    const gpu_code* code = all_code(&n);
    const gpu_code* best = nullptr;
    for (int32_t i = 0; i < n; i++) {
        if (chip == code[i].chip) return &code[i];
        if (chip.substr(0, 3) != "sm_" || !is_cuda_code(code[i].chip)) continue;
        const int want = chip_number(chip), have = chip_number(code[i].chip);
        const bool is_text = code[i].chip[0] == 'c';
        if (have > want || (!is_text && have / 10 != want / 10)) continue;
        const bool best_is_text = best && best->chip[0] == 'c';
        if (!best || (is_text == best_is_text ? have > chip_number(best->chip) : best_is_text)) best = &code[i];
    }
    return best;
}

std::string gpu_code_list() {
    int32_t n = 0;
    const gpu_code* code = all_code(&n);
    std::string list;
    for (int32_t i = 0; i < n; i++) list += (i ? " " : "") + std::string(code[i].chip);
    return n ? list : "none";
}

}  // namespace duet
