// gpu/kernels.cu: makes entry points of the kernels: built by nvcc, and by clang as HIP, once per target.
// Main path: gpu/launch.cpp -> gpu/kernels.def -> [gpu/kernels.cu] -> gpu/*.cuh
#include "kernels.h"

namespace duet {

#define KERNEL(name, args, threads, ...) DUET_KERNEL(name, args, threads, __VA_ARGS__)
#include "kernels.def"

}  // namespace duet
