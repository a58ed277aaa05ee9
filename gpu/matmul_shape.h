// gpu/matmul_shape.h: tile sizes of gpu/matmul.cuh, which the launcher needs too.
#pragma once
#include "weights.h"

namespace duet {

constexpr int kMatmulRows = 64, kMatmulToks = 64, kMatmulThreads = 256;
constexpr int kMatmulStride = kGroup / 4 + 4;   // words of a row in shared memory: 16-byte aligned, banks spread

// Word offsets in shared memory. Scales of a (row, block) are four words (ready_scale, sub and min as pairs), of a (token, block) three.
constexpr int kMatmulX = kMatmulRows * kMatmulStride;
constexpr int kMatmulScaleW = kMatmulX + kMatmulToks * kMatmulStride;
constexpr int kMatmulScaleX = kMatmulScaleW + kMatmulRows * kBlocksPerGroup * 4;
constexpr int kMatmulWords = kMatmulScaleX + kMatmulToks * kBlocksPerGroup * 3;

// Float weights: this many elements of the tile's rows and tokens at a time.
constexpr int kMatmulFloatStep = 32, kMatmulFloatWords = kMatmulFloatStep * (kMatmulRows + kMatmulToks);

}  // namespace duet
