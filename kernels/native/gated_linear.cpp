// The first layer of a gated MLP together with the gate: of what the layer puts out, which is the most that a step
// writes, nothing goes to memory.

#include "half_linear.h"
#include "linears.h"

#if defined(TILES)

bool gated_bytes(const Linear& layer, const void* x, void* out, int64_t rows, int threads);  // in integer_linear.cpp

bool gated_linear(const Linear& layer, const void* x, void* out, int64_t rows, int threads) {
    const int64_t size = layer.outputs / 2;
    if (size % PANEL) return false;
    if (layer.kind == INTEGERS) return gated_bytes(layer, x, out, rows, threads);
    if (!of_halves(layer)) return false;
    const HalfTarget target = {(BFloat16*)out, size, size, (const BFloat16*)layer.bias};
    const HalfWeights weights = {layer.numbers, layer.kind == COMPRESSED_HALVES, layer.outputs};
    multiply_gated_halves(weights, {(const BFloat16*)x, layer.inputs}, rows, layer.inputs, target, threads);
    return true;
}

#else

bool gated_linear(const Linear&, const void*, void*, int64_t, int) { return false; }

#endif
