// cpu/executor.h: names the CPU executor for those who link to it. The executor computes on the mapped weights without
// copying them.
// Main path: runtime/session.cpp -> [cpu/executor.h] -> cpu/ops.cpp
#pragma once
#include "../models/executor.h"

namespace duet {

extern const executor kCpuExecutor;  // cpu/ops.cpp

}  // namespace duet
