// gpu/kernels.h: the functions of all kernels, for the two files that make entry points of gpu/kernels.def: kernels.cu
// for a chip, driver_emu.cpp for the emulator. Main path: gpu/kernels.cu -> [gpu/kernels.h] -> gpu/*.cuh
#pragma once
#include "args.h"
#include "weights.h"
#include "../quant/activate.h"
#include "../quant/exact_ops.h"

#include "vector.cuh"
#include "arrange.cuh"
#include "cache.cuh"
#include "attention.cuh"
#include "matvec.cuh"
#include "matmul.cuh"
#include "experts.cuh"
#include "state.cuh"
#include "walk.cuh"
