// A tile of a matrix product, held in registers.
#pragma once

#include <type_traits>

#include "vector.h"

constexpr int VECTORS = 2;
constexpr int64_t PANEL = VECTORS * WIDTH;
constexpr int64_t ROWS = WIDTH == 16 ? 14 : 6;  // of x at once: as many sums as fit the registers
constexpr int64_t AHEAD = 2048;                 // bytes between what is read and what is fetched for later
constexpr int FETCHED = 6;                      // rows, up to which it pays to fetch

struct Matrix {
    const float* data;
    int64_t stride;

    float at(int64_t row, int64_t k) const { return data[row * stride + k]; }
};

// The rows of a tile, [depth][R]: what they have at a depth lies side by side.
template <int R>
struct SideBySide {
    const float* data;

    float at(int64_t row, int64_t k) const { return data[k * R + row]; }
};

// The columns of a panel's line. Those of bfloat16 lie in pairs, one of each vector: a word holds the two, and
// either is widened by one instruction.

inline void load_columns(const float* line, Floats (&columns)[VECTORS]) {
    for (int v = 0; v < VECTORS; v++) columns[v] = load(line + v * WIDTH);
}

inline void load_columns(const BFloat16* line, Floats (&columns)[VECTORS]) {
    static_assert(VECTORS == 2);
    Words pairs;
    std::memcpy(&pairs, line, sizeof pairs);
    columns[0] = (Floats)(pairs << 16);
    columns[1] = (Floats)(pairs & 0xffff0000u);
}

// Where a column lies in its line.
template <typename T>
constexpr int64_t place_of(int64_t column) {
    return sizeof(T) == sizeof(float) ? column : column % WIDTH * VECTORS + column / WIDTH;
}

// Panels to go through at once, so that few rows too have sums enough to hide the latency of adding.
template <int R>
constexpr int TOGETHER = R == 1 ? 4 : R == 2 ? 2 : 1;

struct Nothing {
    void operator()(int64_t) const {}
};

// out[R][PANEL] of x[R][depth] and each of G panels [depth][PANEL], which lie `apart` numbers from one another.
// Products are added up in the order of depth whatever R and G are: a row's results do not depend on the others.
// `meanwhile` is called at each depth.
template <int R, int G, typename X, typename T, typename Meanwhile = Nothing>
inline void tile(X x, const T* panels, int64_t apart, int64_t depth, Floats (&out)[G][R][VECTORS],
                 Meanwhile meanwhile = {}) {
    constexpr int64_t LEAD = AHEAD / (PANEL * sizeof(T));
    Floats sums[G][R][VECTORS] = {};
    for (int64_t k = 0; k < depth; k++) {
        meanwhile(k);
        // Behind a panel's end come those that are being read already, and then what will be read next.
        const int64_t soon = (k + LEAD) * PANEL + (k + LEAD < depth ? 0 : (G - 1) * apart);
#pragma GCC unroll 4
        for (int g = 0; g < G; g++) {
            const T* line = panels + g * apart + k * PANEL;
            if constexpr (R <= FETCHED) __builtin_prefetch(panels + g * apart + soon);
            Floats columns[VECTORS];
            load_columns(line, columns);
#pragma GCC unroll 16
            for (int r = 0; r < R; r++) {
                const Floats value = splat(x.at(r, k));
#pragma GCC unroll 4
                for (int v = 0; v < VECTORS; v++) sums[g][r][v] += value * columns[v];
            }
        }
    }
#pragma GCC unroll 4
    for (int g = 0; g < G; g++)
#pragma GCC unroll 16
        for (int r = 0; r < R; r++)
#pragma GCC unroll 4
            for (int v = 0; v < VECTORS; v++) out[g][r][v] = sums[g][r][v];
}

// How many rows to take next of those that are left, so that all tiles are nearly alike.
inline int64_t next_rows(int64_t left) {
    const int64_t tiles = (left + ROWS - 1) / ROWS;
    return (left + tiles - 1) / tiles;
}

// Calls `work` with the number of rows, at most R, as a constant.
template <int R = (int)ROWS, typename Work>
inline void for_rows(int64_t rows, const Work& work) {
    if constexpr (R > 0) {
        if (rows == R)
            work(std::integral_constant<int, R>{});
        else
            for_rows<R - 1>(rows, work);
    }
}
