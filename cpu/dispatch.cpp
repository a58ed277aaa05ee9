// cpu/dispatch.cpp: which instruction sets this machine runs: the CPU and the operating system are both asked (CPUID
// and XGETBV; on ARM what Linux says).
// Main path: cpu/ops.cpp -> [cpu/dispatch.cpp] -> cpu/kernels_<isa>.cpp
#include "kernels.h"

#include <cstring>
#if defined(__x86_64__)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

namespace duet {

#if defined(__x86_64__)
extern const cpu_kernels kAvx2Kernels, kAvx512Kernels, kAvx512Fast, kAmxKernels,
    kAmxFast;  // cpu/kernels_avx2.cpp, cpu/kernels_avx512.cpp
#elif defined(__aarch64__)
extern const cpu_kernels kNeonKernels, kDotprodKernels, kI8mmKernels;
#endif

namespace {

#if defined(__x86_64__)
struct cpu_features {
    bool avx2 = false, avx512 = false, amx = false, bf16 = false, amx_bf16 = false;
};

// Linux gives the tiles' registers only to a process that asked for them (arch_prctl ARCH_REQ_XCOMP_PERM,
// linux:Documentation/arch/x86/xstate.rst).
bool ask_for_tiles() {
#if defined(__linux__)
    return syscall(SYS_arch_prctl, 0x1023, 18) == 0;
#else
    return false;
#endif
}

cpu_features ask_cpu() {
    cpu_features f;
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return f;
    const bool fma = c >> 12 & 1, osxsave = c >> 27 & 1, avx = c >> 28 & 1, f16c = c >> 29 & 1;
    if (!osxsave || !avx) return f;
    unsigned low = 0, high = 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return f;
    f.avx2 = fma && f16c && (b >> 5 & 1) && (low & 0x06) == 0x06;
    // F, DQ, BW, VL and VNNI; the system keeps opmask and all of zmm
    f.avx512 = f.avx2 && (b >> 16 & 1) && (b >> 17 & 1) && (b >> 30 & 1) && (b >> 31 & 1) && (c >> 11 & 1) &&
               (low & 0xe6) == 0xe6;
    // AMX-TILE, AMX-INT8; the system keeps tile configuration and data
    f.amx = f.avx512 && (d >> 24 & 1) && (d >> 25 & 1) && (low & 0x60000) == 0x60000 && ask_for_tiles();
    const bool has_tiles_bf16 = d >> 22 & 1;
    f.bf16 = f.avx512 && __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a >> 5 & 1);  // AVX512_BF16
    f.amx_bf16 = f.amx && f.bf16 && has_tiles_bf16;
    return f;
}
#endif

// What this machine runs, best first.
struct isa_list {
    const cpu_kernels* table[8] = {};
    const cpu_kernels* fast[8] = {};
    char names[64] = "auto";
    int n = 0;
    void add(bool runs, const cpu_kernels& k, const cpu_kernels* with_fast = nullptr) {
        if (!runs) return;
        fast[n] = with_fast ? with_fast : &k;
        table[n++] = &k;
        strcat(strcat(names, ", "), k.name);
    }
};

const isa_list& isas() {
    static const isa_list all = [] {
        isa_list l;
#if defined(__x86_64__)
        const cpu_features f = ask_cpu();
        l.add(f.amx, kAmxKernels, f.amx_bf16 ? &kAmxFast : nullptr);
        l.add(f.avx512, kAvx512Kernels, f.bf16 ? &kAvx512Fast : nullptr);
        l.add(f.avx2, kAvx2Kernels);
#elif defined(__aarch64__)
#if defined(__linux__)  // HWCAP2_I8MM, HWCAP_ASIMDDP: linux:arch/arm64/include/uapi/asm/hwcap.h
        const bool dotprod = getauxval(AT_HWCAP) >> 20 & 1;
        l.add(dotprod && (getauxval(AT_HWCAP2) >> 13 & 1), kI8mmKernels);
        l.add(dotprod, kDotprodKernels);
#endif
        l.add(true, kNeonKernels);
#endif
        l.add(true, kScalarKernels);
        return l;
    }();
    return all;
}

}  // namespace

const cpu_kernels* find_cpu_kernels(const char* isa, bool fast) {
    const isa_list& l = isas();
    for (int i = 0; i < l.n; i++)
        if (!isa || strcmp(isa, "auto") == 0 || strcmp(isa, l.table[i]->name) == 0)
            return fast ? l.fast[i] : l.table[i];
    return nullptr;
}

const cpu_kernels* cpu_kernels_at(int i) { return i < isas().n ? isas().table[i] : nullptr; }

const char* cpu_isa_names() { return isas().names; }

}  // namespace duet
