// gpu/kernels.cu: makes an entry point of every row of gpu/kernels.def. It is compiled once per chip, by nvcc for CUDA
// and by clang for HIP. Main path: gpu/launch.cpp -> gpu/kernels.def -> [gpu/kernels.cu] -> gpu/*.cuh
#include "kernels.h"

namespace duet {

#define KERNEL(name, args, threads, ...) DUET_KERNEL(name, args, threads, __VA_ARGS__)
#include "kernels.def"

}  // namespace duet
