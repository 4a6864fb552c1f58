// Rows that are laid side by side, tile by tile, before they are multiplied: a tile reads one line of memory then, where
// it would read as many as it has rows, and those of some strides would drive one another out of the cache.
#pragma once

#include <memory>

#include "tile.h"
#include "transpose.h"

// R rows of x become [depth][R]. What lies behind them in `to`, up to a vector, is written over.
template <int R>
void lay_tile(Matrix x, int64_t depth, float* to) {
    int64_t k = 0;
    if constexpr (R <= WIDTH)
        for (; k + WIDTH <= depth; k += WIDTH) {
            Floats square[WIDTH] = {};
#pragma GCC unroll 16
            for (int r = 0; r < R; r++) square[r] = load(x.data + r * x.stride + k);
            transpose<1>(square);
#pragma GCC unroll 16
            for (int i = 0; i < WIDTH; i++) store(to + (k + i) * R, square[i]);
        }
    for (; k < depth; k++)
        for (int r = 0; r < R; r++) to[k * R + r] = x.at(r, k);
}

// The fewest rows that `next_rows` takes of as many as need `tiles` tiles or more.
constexpr int least_rows(int64_t tiles) { return (int)(((tiles - 1) * ROWS + 1) / tiles); }

// Calls `work` with a number of rows that is known when it runs, as a constant; of LEAST to ROWS.
template <int LEAST, int R = (int)ROWS, typename Work>
inline void for_rows_from(int64_t rows, const Work& work) {
    if (R == LEAST || rows == R)
        work(std::integral_constant<int, R>{});
    else if constexpr (R > LEAST)
        for_rows_from<LEAST, R - 1>(rows, work);
}

// Lays `rows` rows of x, 3 * ROWS or more, side by side, each tile behind the one before.
inline void lay_side_by_side(Matrix x, int64_t rows, int64_t depth, float* to) {
    for (int64_t now; rows > 0; rows -= now) {
        now = next_rows(rows);
        for_rows_from<least_rows(4)>(now, [&](auto count) { lay_tile<count()>(x, depth, to); });
        x.data += now * x.stride;
        to += now * depth;
    }
}

// A thread's room for that, kept for the next time.
inline float* room_for_rows(int64_t numbers) {
    thread_local std::unique_ptr<float[]> room;
    thread_local int64_t size = 0;
    if (size < numbers + WIDTH) {
        size = numbers + WIDTH;
        room.reset(new float[size]);
    }
    return room.get();
}
