// Where the results of a linear layer in bfloat16 go.
#pragma once

#include <algorithm>

#include "pairs.h"

// Where the columns of a panel go.
struct HalfTarget {
    BFloat16* data;
    int64_t stride;
    int64_t columns;       // that there are, from the panel's first on
    const BFloat16* bias;  // to add, or null

    HalfTarget column(int64_t count) const {
        return {data + count, stride, columns - count, bias ? bias + count : nullptr};
    }
};

// What is added to the columns of a panel.
struct HalfBias {
    Floats columns[VECTORS];

    explicit HalfBias(const HalfTarget& out) {
        BFloat16 bias[PANEL] = {};
        if (out.bias) std::copy_n(out.bias, std::min(PANEL, out.columns), bias);
        for (int v = 0; v < VECTORS; v++) columns[v] = load(bias + v * WIDTH);
    }
};

inline void put(const HalfTarget& out, int64_t row, const Floats (&columns)[VECTORS]) {
    BFloat16 part[PANEL];
    BFloat16* const line = out.data + row * out.stride;
    BFloat16* const to = out.columns >= PANEL ? line : part;
    for (int v = 0; v < VECTORS; v++) store(to + v * WIDTH, columns[v]);
    if (to == part) std::copy_n(part, out.columns, line);
}

// Inputs of a packed layer come in multiples of this; missing ones are zeros.
#if defined(TILES)
constexpr int64_t HALF_UNIT = 32;
#else
constexpr int64_t HALF_UNIT = 2;
#endif

// Packed weights, as half_linear.cpp has them or, for tiles alone, as compressed_halves.h.
struct HalfWeights {
    const void* packed;
    bool compressed;
    int64_t outputs;
};

// out = x[rows][inputs] · packed panels (+ bias), those from `first` to before `last`: in tile_linear.cpp or, where
// there are no tiles, in pair_linear.cpp.
void multiply_halves(const HalfWeights& weights, HalfMatrix x, int64_t rows, int64_t inputs, int64_t first, int64_t last,
                     const HalfTarget& out, int threads);

#if defined(TILES)
// out[rows][columns] = silu(gate) * up, of a layer of as many gates and then as many ups, in whole panels; `out` has the
// bias of both.
void multiply_gated_halves(const HalfWeights& weights, HalfMatrix x, int64_t rows, int64_t inputs, const HalfTarget& out,
                           int threads);
#endif
