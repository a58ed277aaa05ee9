// quant/gunzip.h: unpacks a gzip file in memory, as the GPU code in the program is one (gpu/code.cpp).
// Must not know: what the bytes are. Main path: gpu/code.cpp -> [quant/gunzip.h]
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace duet {

// Puts the contents of a file without a name in its header (gzip -n) in *out. Bytes that do not begin as a gzip file
// does are copied. Returns false where the file is cut or damaged.
bool gunzip(std::span<const uint8_t> packed, std::vector<uint8_t>* out);

}  // namespace duet
