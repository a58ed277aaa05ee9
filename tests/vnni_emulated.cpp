// tests/vnni_emulated.cpp: the kernels of AVX-VNNI with its one instruction written for AVX2, so that machines without
// it can test them.
#if defined(__x86_64__)
#include <immintrin.h>

namespace {

// Adds four products of unsigned by signed bytes to each lane, as VPDPBUSD does: nothing saturates.
[[gnu::target("avx2")]] inline __m256i dpbusd(__m256i acc, __m256i u, __m256i s) {
    const __m256i low = _mm256_madd_epi16(_mm256_cvtepu8_epi16(_mm256_castsi256_si128(u)),
                                          _mm256_cvtepi8_epi16(_mm256_castsi256_si128(s))),
                  high = _mm256_madd_epi16(_mm256_cvtepu8_epi16(_mm256_extracti128_si256(u, 1)),
                                           _mm256_cvtepi8_epi16(_mm256_extracti128_si256(s, 1)));
    return _mm256_add_epi32(acc, _mm256_permute4x64_epi64(_mm256_hadd_epi32(low, high), 0xd8));
}

}  // namespace

#undef _mm256_dpbusd_avx_epi32
#define _mm256_dpbusd_avx_epi32(acc, u, s) dpbusd(acc, u, s)
#define kAvxVnni                           kAvxVnniEmulated
#define avxvnni_tiles                      avxvnni_emulated
#include "../cpu/kernels_avxvnni.cpp"
#endif
