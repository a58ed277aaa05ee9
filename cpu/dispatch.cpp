// cpu/dispatch.cpp: finds out which instruction sets this machine runs, and puts their tables together. It asks the CPU
// and the operating system (CPUID and XGETBV; on ARM Linux or macOS answers for both).
// Must not know: ops, families.
// Main path: cpu/ops.cpp -> [cpu/dispatch.cpp] -> cpu/kernels_<isa>.cpp
#include "kernels.h"
#include "../models/os.h"

#include <algorithm>
#include <cstring>
#include <initializer_list>
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

namespace {

struct cpu_features {
    bool avx2 = false, avxvnni = false, avx512 = false, amx = false, bf16 = false, amx_bf16 = false;
    bool neon = true, dotprod = false, i8mm = false;  // every 64-bit ARM has NEON
};

#if defined(__x86_64__)

// Linux gives the tile registers only to a process that asks for them (arch_prctl ARCH_REQ_XCOMP_PERM,
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
    unsigned a = 0, b = 0, c = 0, d = 0, low = 0, high = 0;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return f;
    const bool fma = c >> 12 & 1, osxsave = c >> 27 & 1, avx = c >> 28 & 1, f16c = c >> 29 & 1;
    if (!osxsave || !avx) return f;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return f;
    f.avx2 = fma && f16c && (b >> 5 & 1) && (low & 0x06) == 0x06;
    // The CPU has F, DQ, BW, VL and VNNI; the system keeps opmask and all of zmm.
    f.avx512 = f.avx2 && (b >> 16 & 1) && (b >> 17 & 1) && (b >> 30 & 1) && (b >> 31 & 1) && (c >> 11 & 1) &&
               (low & 0xe6) == 0xe6;
    // The CPU has AMX-TILE and AMX-INT8; the system keeps tile configuration and data.
    f.amx = f.avx512 && (d >> 24 & 1) && (d >> 25 & 1) && (low & 0x60000) == 0x60000 && ask_for_tiles();
    const bool has_tiles_bf16 = d >> 22 & 1;
    // AVX512_FP16. The mitigation of gather data sampling slows gathers down on Intel's processors before the first one
    // that has it (linux:Documentation/admin-guide/hw-vuln/gather_data_sampling.rst). AMD's were not measured.
    fast_gathers = d >> 23 & 1;
    if (!__get_cpuid_count(7, 1, &a, &b, &c, &d)) return f;
    f.avxvnni = f.avx2 && (a >> 4 & 1);
    f.bf16 = f.avx512 && (a >> 5 & 1);  // AVX512_BF16
    f.amx_bf16 = f.amx && f.bf16 && has_tiles_bf16;
    return f;
}
#elif defined(__aarch64__)
cpu_features ask_cpu() {
    cpu_features f;
#if defined(__linux__)  // HWCAP_ASIMDDP, HWCAP2_I8MM: linux:arch/arm64/include/uapi/asm/hwcap.h
    f.dotprod = getauxval(AT_HWCAP) >> 20 & 1;
    f.i8mm = f.dotprod && (getauxval(AT_HWCAP2) >> 13 & 1);
#elif defined(__APPLE__)
    f.dotprod = os_system_number("hw.optional.arm.FEAT_DotProd");
    f.i8mm = f.dotprod && os_system_number("hw.optional.arm.FEAT_I8MM");
#endif
    return f;
}
#endif

// The names of all tables: a machine runs no more of them.
constexpr std::string_view kAllNames = "auto, scalar"
#define ISA_X86(name, ...) ", " #name
#define ISA_ARM(name, ...) ", " #name
#include "isas.def"
    ;
constexpr int kMostIsas = (int)std::ranges::count(kAllNames, ',');

// The tables that this machine runs, best first. Each is put together once, from the parts in its row of isas.def.
struct isa_list {
    cpu_kernels table[kMostIsas], fast[kMostIsas];
    char names[kAllNames.size() + 1] = "auto";
    int n = 0;

    void add(const char* name, const cpu_kernels& vectors, std::initializer_list<const format_table*> formats,
             const tile_table* tiles = nullptr, const fast_table* with_fast = nullptr) {
        cpu_kernels& k = table[n];
        k = vectors;
        k.name = name;
        for (int i = 0; i < kMaxTypeId; i++) {
            if (!k.formats[i].run) k.formats[i] = kScalarKernels.formats[i];
            for (const format_table* part : formats)
                if (part->formats[i].run) k.formats[i] = part->formats[i];
        }
        if (tiles) (tile_table&)k = *tiles;
        fast[n] = k;
        if (with_fast) (fast_table&)fast[n] = *with_fast;
        n++;
        strcat(strcat(names, ", "), name);
    }

    isa_list() {
#define FORMATS(...) {__VA_ARGS__}
#if defined(__x86_64__)
        const cpu_features f = ask_cpu();
#define ISA_X86(name, feature, vectors, formats, tiles, fast_feature, fast_table)                                      \
    if (f.feature) add(#name, vectors, formats, tiles, f.fast_feature ? fast_table : nullptr);
#elif defined(__aarch64__)
        const cpu_features f = ask_cpu();
#define ISA_ARM(name, feature, vectors, formats)                                                                       \
    if (f.feature) add(#name, vectors, formats);
#endif
#include "isas.def"
#undef FORMATS
        add("scalar", kScalarKernels, {});
    }
};

const isa_list& isas() {
    static const isa_list all;
    return all;
}

}  // namespace

const cpu_kernels* find_cpu_kernels(const char* isa, bool fast) {
    const isa_list& l = isas();
    for (int i = 0; i < l.n; i++)
        if (!isa || strcmp(isa, "auto") == 0 || strcmp(isa, l.table[i].name) == 0)
            return fast ? &l.fast[i] : &l.table[i];
    return nullptr;
}

const cpu_kernels* cpu_kernels_at(int i) { return i < isas().n ? &isas().table[i] : nullptr; }

const char* cpu_isa_names() { return isas().names; }

}  // namespace duet
