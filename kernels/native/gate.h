// What lies between the products of a gated MLP: silu(gate) * up, rounded as PyTorch's two operators are.
#pragma once

#include "vector.h"

template <typename T>
inline Floats gated(Floats gate, Floats up) {
    return rounded_to<T>(gate / (1.0f + exponential(smaller(-gate, splat(88.0f))))) * up;
}
