// tests/amx_emulated.cpp: the AMX kernels with the tile instructions written as plain code, so that any machine with
// AVX-512 can test them. The test program ends if a shape is one that the hardware would refuse, or if the tiles of a
// product do not fit together.
#if defined(__x86_64__)
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

struct emulated_tile {
    int rows = 0, row_bytes = 0;
    int8_t byte[16][64];
};
thread_local emulated_tile g_tiles[8];
thread_local bool g_is_configured = false;

void check_tile(bool is_good, const char* rule) {
    if (is_good) return;
    fprintf(stderr, "AMX: %s\n", rule);
    abort();
}

void tile_configure(const void* p) {
    const uint8_t* c = (const uint8_t*)p;
    check_tile(c[0] == 1 && c[1] == 0, "palette 1, start row 0");
    for (int t = 0; t < 8; t++) {
        uint16_t row_bytes;
        memcpy(&row_bytes, c + 16 + t * 2, 2);
        check_tile(c[48 + t] <= 16 && row_bytes <= 64 && (c[48 + t] == 0) == (row_bytes == 0),
                   "at most 16 rows of 64 bytes");
        g_tiles[t] = {c[48 + t], row_bytes, {}};
    }
    g_is_configured = true;
}

void tile_move(int t, void* to, const void* from, size_t stride) {
    check_tile(g_is_configured && g_tiles[t].rows > 0, "a tile that was configured");
    for (int r = 0; r < g_tiles[t].rows; r++) {
        if (to) memcpy((char*)to + (size_t)r * stride, g_tiles[t].byte[r], (size_t)g_tiles[t].row_bytes);
        else memcpy(g_tiles[t].byte[r], (const char*)from + (size_t)r * stride, (size_t)g_tiles[t].row_bytes);
    }
}

void tile_dot(int c, int a, int b) {
    emulated_tile &out = g_tiles[c], &left = g_tiles[a], &right = g_tiles[b];
    check_tile(out.rows == left.rows && out.row_bytes == right.row_bytes && left.row_bytes == right.rows * 4,
               "shapes of a product that fit");
    for (int m = 0; m < out.rows; m++)
        for (int n = 0; n < out.row_bytes / 4; n++) {
            int32_t sum;
            memcpy(&sum, &out.byte[m][n * 4], 4);
            for (int k = 0; k < left.row_bytes; k++) sum += left.byte[m][k] * right.byte[k / 4][n * 4 + k % 4];
            memcpy(&out.byte[m][n * 4], &sum, 4);
        }
}

// Multiplies pairs of bfloat16 and adds them in f32. Even and odd products are summed apart, then added. Results too
// small for a normal number become 0.
float flushed(float x) { return __builtin_fabsf(x) < 0x1p-126f ? __builtin_copysignf(0.0f, x) : x; }
void tile_dot_bf16(int c, int a, int b) {
    emulated_tile &out = g_tiles[c], &left = g_tiles[a], &right = g_tiles[b];
    check_tile(out.rows == left.rows && out.row_bytes == right.row_bytes && left.row_bytes == right.rows * 4,
               "shapes of a product that fit");
    const auto value = [](const emulated_tile& t, int row, int i) {
        const uint32_t bits = (uint32_t)(uint8_t)t.byte[row][i * 2] << 16 | (uint32_t)(uint8_t)t.byte[row][i * 2 + 1]
                                                                                << 24;
        float x;
        memcpy(&x, &bits, 4);
        return flushed(x);
    };
    for (int m = 0; m < out.rows; m++)
        for (int n = 0; n < out.row_bytes / 4; n++) {
            float sum[2] = {0, 0}, total;
            for (int k = 0; k < left.row_bytes / 4; k++)
                for (int i = 0; i < 2; i++)
                    sum[i] = flushed(__builtin_fmaf(value(left, m, k * 2 + i), value(right, k, n * 2 + i), sum[i]));
            memcpy(&total, &out.byte[m][n * 4], 4);
            total = flushed(flushed(total) + flushed(sum[0] + sum[1]));
            memcpy(&out.byte[m][n * 4], &total, 4);
        }
}

}  // namespace

#define DUET_AMX_EMULATED
#define kAmx                          kAmxEmulated
#define kAmxFast                      kAmxEmulatedFast
#define amx_tiles                     amx_emulated
#define DUET_TILE_LOAD(t, p, stride)  tile_move(t, nullptr, p, stride)
#define DUET_TILE_STORE(t, p, stride) tile_move(t, p, nullptr, stride)
#define DUET_TILE_ZERO(t)             memset(g_tiles[t].byte, 0, sizeof g_tiles[t].byte)
#define DUET_TILE_DOT(c, a, b)        tile_dot(c, a, b)
#define DUET_TILE_DOT_BF16(c, a, b)   tile_dot_bf16(c, a, b)
#define DUET_TILE_CONFIGURE(p)        tile_configure(p)
#define DUET_TILE_RELEASE()           (g_is_configured = false)
#include "../cpu/kernels_amx.cpp"
#endif
