// How tiles of rows and panels make a matrix of float32: for weights that are kept as floats, and in blocks of few bits.
#pragma once

#include "tile.h"

namespace {

// Where the columns of a panel go.
struct Target {
    float* data;
    int64_t stride;
    int64_t columns;    // that there are, from the panel's first on
    const float* bias;  // to add, or null
    bool add;           // to what is there

    Target next() const { return {data + PANEL, stride, columns - PANEL, bias ? bias + PANEL : bias, add}; }
};

inline void put(const Target& out, int64_t row, const Floats (&sums)[VECTORS]) {
    float* line = out.data + row * out.stride;
    if (out.columns >= PANEL) {
        for (int v = 0; v < VECTORS; v++) {
            Floats value = sums[v];
            if (out.bias) value += load(out.bias + v * WIDTH);
            if (out.add) value += load(line + v * WIDTH);
            store(line + v * WIDTH, value);
        }
        return;
    }
    for (int64_t c = 0; c < out.columns; c++)
        line[c] = sums[c / WIDTH][c % WIDTH] + (out.bias ? out.bias[c] : 0.0f) + (out.add ? line[c] : 0.0f);
}

// Panels that lie `apart`, from the one that `out` begins with.
struct Panels {
    int64_t count, apart;
};

template <int R, int G, typename X, typename T, typename Meanwhile = Nothing>
inline void tile_rows(X x, const T* block, Panels panels, int64_t depth, Target out, Meanwhile meanwhile = {}) {
    Floats sums[G][R][VECTORS];
    tile<R, G>(x, block, panels.apart, depth, sums, meanwhile);
    for (int g = 0; g < G; g++, out = out.next())
        for (int r = 0; r < R; r++) put(out, r, sums[g][r]);
}

template <int R, typename T>
void all_panels(Matrix x, const T* block, Panels panels, int64_t depth, Target out) {
    for (; panels.count >= TOGETHER<R>; panels.count -= TOGETHER<R>, block += TOGETHER<R> * panels.apart)
        for (int g = (tile_rows<R, TOGETHER<R>>(x, block, panels, depth, out), 0); g < TOGETHER<R>; g++)
            out = out.next();
    for (; panels.count > 0; panels.count--, block += panels.apart, out = out.next())
        tile_rows<R, 1>(x, block, panels, depth, out);
}

template <typename T>
void all_rows(int64_t rows, Matrix x, const T* block, Panels panels, int64_t depth, Target out) {
    for (int64_t now; rows > 0; rows -= now) {
        now = next_rows(rows);
        for_rows(now, [&](auto count) { all_panels<count()>(x, block, panels, depth, out); });
        x.data += now * x.stride;
        out.data += now * out.stride;
    }
}

}  // namespace
