// gpu/kernels.h: all kernels' functions, for whoever makes entry points of gpu/kernels.def: kernels.cu and the
// emulator.
#pragma once
#include "args.h"
#include "weights.h"
#include "../quant/activate.h"
#include "../quant/exact_ops.h"

#include "vector.cuh"
#include "arrange.cuh"
#include "attention.cuh"
#include "matvec.cuh"
#include "matmul.cuh"
#include "experts.cuh"
#include "state.cuh"
