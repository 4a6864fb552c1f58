// Sums of products of bytes by tiles.
#pragma once

#include "tile.h"
#include "tiles.h"

constexpr int64_t TILE_ROWS = 16;

#if defined(TILES)

constexpr bool HAS_TILES = true;
constexpr int64_t BYTES_UNIT = 64;

// Tiles of x that pass the codes together: of unsigned bytes, or the low bytes and the signed high ones of 16 bits.
enum class Of { ONE, TWO, PARTS };

// sums: int32 [16 * tiles][PANEL] = tiles of x, bytes whose rows lie `stride` apart, with a panel's codes:
// [depth / 4][PANEL][4]; depth: a multiple of BYTES_UNIT.
template <Of X>
inline void multiply_bytes(const uint8_t* x, int64_t stride, const int8_t* codes, int64_t depth, int32_t* sums) {
    static_assert(PANEL == 32);
    const int64_t line = PANEL * sizeof(int32_t);
    TILE_ZERO(4);
    TILE_ZERO(5);
    if constexpr (X != Of::ONE) {
        TILE_ZERO(6);
        TILE_ZERO(7);
    }
    for (int64_t k = 0; k < depth; k += BYTES_UNIT) {
        TILE_LOAD(0, x + k, stride);
        TILE_LOAD(2, codes + k * PANEL, line);
        TILE_ADD_BYTES(4, 0, 2);
        TILE_LOAD(3, codes + k * PANEL + 64, line);
        TILE_ADD_BYTES(5, 0, 3);
        if constexpr (X != Of::ONE) TILE_LOAD(1, x + TILE_ROWS * stride + k, stride);
        if constexpr (X == Of::TWO) {
            TILE_ADD_BYTES(6, 1, 2);
            TILE_ADD_BYTES(7, 1, 3);
        } else if constexpr (X == Of::PARTS) {
            TILE_ADD_SIGNED(6, 1, 2);
            TILE_ADD_SIGNED(7, 1, 3);
        }
    }
    TILE_STORE(4, sums, line);
    TILE_STORE(5, sums + 16, line);
    if constexpr (X != Of::ONE) {
        TILE_STORE(6, sums + TILE_ROWS * PANEL, line);
        TILE_STORE(7, sums + TILE_ROWS * PANEL + 16, line);
    }
}

#else

constexpr bool HAS_TILES = false;
constexpr int64_t BYTES_UNIT = 8;

#endif
