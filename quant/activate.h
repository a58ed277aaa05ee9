// quant/activate.h: the activation functions, scalar, chosen by an enum. They are part of the numeric contract and use
// quant/exact_math.h.
// Must not know: ops, devices.
// Main path: cpu/ops.cpp -> [quant/activate.h] -> quant/exact_math.h
#pragma once
#include "exact_math.h"

#include <cstdint>

namespace duet {

enum class activation : uint8_t { none, silu, gelu, sigmoid, relu2, swiglu_oai, softplus };
constexpr int kActivations = (int)activation::softplus + 1;  // softplus is the last one

// y = act(x) * x2, or act(x) when x2 is null.
DUET_HD inline float exact_activate(activation act, float x, const float* x2) {
    float v = x;
    switch (act) {
    case activation::none: break;
    case activation::silu: v = exact_silu(x); break;
    case activation::gelu: v = exact_gelu(x); break;
    case activation::sigmoid: v = exact_sigmoid(x); break;
    case activation::relu2: v = x > 0.0f ? x * x : 0.0f; break;
    case activation::swiglu_oai: {  // gpt-oss clips both parts, makes the gate's sigmoid steeper and adds 1 to the up
                                    // part
        const float g = x > 7.0f ? 7.0f : x, u = !x2 ? 0.0f : *x2 > 7.0f ? 7.0f : *x2 < -7.0f ? -7.0f : *x2;
        return (g / (1.0f + exact_exp(-1.702f * g))) * (u + 1.0f);
    }
    case activation::softplus: v = exact_softplus(x); break;
    }
    return x2 ? v * *x2 : v;
}

}  // namespace duet
