// x in the order in which tiles read it: [blocks][steps][2][16][64 bytes], of which the last block has one tile if 16
// rows are enough. What lies behind the last row is multiplied, too, and of no account: a row of a tile makes a row of
// the product.
#pragma once

#include <algorithm>
#include <cstring>

#include "aligned.h"

constexpr int64_t STEP = 64;     // bytes of a row that are multiplied at once
constexpr int64_t TILE = 16 * STEP;
constexpr int64_t BLOCK = 32;    // rows that are multiplied together: two tiles

struct TileRows {
    int64_t rows, padded, steps;
    uint8_t* data;  // of the thread, until it makes the next

    // bytes: of a row.
    TileRows(int64_t rows, int64_t bytes)
        : rows(rows), padded((rows + 15) / 16 * 16), steps((bytes + STEP - 1) / STEP) {
        static thread_local Scratch scratch;
        data = scratch.of<uint8_t>(padded * steps * STEP);
    }

    int64_t blocks() const { return (padded + BLOCK - 1) / BLOCK; }
    // Of the block that begins with a row.
    int64_t tiles(int64_t first) const { return first + BLOCK <= padded ? 2 : 1; }
    const uint8_t* at(int64_t first, int64_t step) const {
        return data + first * steps * STEP + step * tiles(first) * TILE;
    }
    // Where a row has its bytes of a step.
    uint8_t* place(int64_t row, int64_t step) const {
        const int64_t first = row / BLOCK * BLOCK;
        return data + first * steps * STEP + step * tiles(first) * TILE + row % BLOCK * STEP;
    }

    // Puts down the `bytes` of a row from a step on; zeros fill its last step.
    void put(int64_t row, int64_t step, const uint8_t* from, int64_t bytes) const {
        const int64_t apart = tiles(row / BLOCK * BLOCK) * TILE;
        uint8_t* to = place(row, step);
        for (; bytes >= STEP; bytes -= STEP, from += STEP, to += apart) std::memcpy(to, from, STEP);
        if (bytes <= 0) return;
        std::memcpy(to, from, bytes);
        std::memset(to + bytes, 0, STEP - bytes);
    }
};
