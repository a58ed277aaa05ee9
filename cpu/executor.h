// cpu/executor.h: the CPU executor, which computes on the mapped weights as they lie. Its name for what links to it.
// Main path: runtime/session.cpp -> [cpu/executor.h] -> cpu/ops.cpp
#pragma once
#include "../models/executor.h"

namespace duet {

extern const executor kCpuExecutor;  // cpu/ops.cpp

}  // namespace duet
