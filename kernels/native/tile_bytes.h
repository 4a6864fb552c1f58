// Sums of products of 16-bit numbers by tiles of bytes.
#pragma once

#include "tile.h"
#include "tile_rows.h"
#include "tiles.h"

constexpr int64_t TILE_ROWS = 16;

#if defined(TILES)

constexpr bool HAS_TILES = true;
constexpr int64_t BYTES_UNIT = STEP;

// sums: int32 [2][TILE_ROWS][PANEL] of the low bytes and of the high ones, which have the sign; parts: a block of
// TileRows from a step on; codes: signed bytes, [steps][STEP / 4][PANEL][4].
inline void multiply_parts(const uint8_t* parts, const int8_t* codes, int64_t steps, int32_t* sums) {
    static_assert(PANEL == 32);
    const int64_t line = PANEL * sizeof(int32_t);
    int32_t* const high = sums + TILE_ROWS * PANEL;
    TILE_ZERO(4);
    TILE_ZERO(5);
    TILE_ZERO(6);
    TILE_ZERO(7);
    for (int64_t step = 0; step < steps; step++, parts += 2 * TILE, codes += STEP * PANEL) {
        TILE_LOAD(0, parts, STEP);
        TILE_LOAD(1, parts + TILE, STEP);
        TILE_LOAD(2, codes, line);
        TILE_LOAD(3, codes + STEP, line);
        TILE_ADD_BYTES(4, 0, 2);
        TILE_ADD_BYTES(5, 0, 3);
        TILE_ADD_SIGNED(6, 1, 2);
        TILE_ADD_SIGNED(7, 1, 3);
    }
    TILE_STORE(4, sums, line);
    TILE_STORE(5, sums + 16, line);
    TILE_STORE(6, high, line);
    TILE_STORE(7, high + 16, line);
}

#else

constexpr bool HAS_TILES = false;
constexpr int64_t BYTES_UNIT = 8;

#endif
