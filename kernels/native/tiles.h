// Tiles of Intel's AMX: registers of 16 rows of 64 bytes, and products of them. Or the same arithmetic in plain C++,
// so that a machine without tiles can test what is computed by them.
#pragma once

#include "vector.h"

#if defined(TILES) && !defined(EMULATED_TILES)

#include <immintrin.h>

// All eight tiles whole, while it exists; of one thread. The registers are given back, since to keep them makes
// switching threads slower.
class WholeTiles {
   public:
    WholeTiles() {
        struct alignas(64) {
            uint8_t palette = 1, start = 0, reserved[14] = {};
            uint16_t bytes[16] = {};
            uint8_t rows[16] = {};
        } config;
        for (int t = 0; t < 8; t++) config.bytes[t] = 64, config.rows[t] = 16;
        asm volatile("" : : "r"(&config) : "memory");  // the instruction declares only the first bytes
        _tile_loadconfig(&config);
    }
    ~WholeTiles() { _tile_release(); }
    WholeTiles(const WholeTiles&) = delete;
};

// Macros, since a tile's number is part of the instruction. TILE_STREAM loads what is not read again soon: it leaves
// the first-level cache to what is.
#define TILE_ZERO(t) _tile_zero(t)
#define TILE_LOAD(t, from, stride) _tile_loadd(t, from, stride)
#define TILE_STREAM(t, from, stride) _tile_stream_loadd(t, from, stride)
#define TILE_STORE(t, to, stride) _tile_stored(t, to, stride)
#define TILE_ADD_PAIRS(c, a, b) _tile_dpbf16ps(c, a, b)
#define TILE_ADD_BYTES(c, a, b) _tile_dpbusd(c, a, b)
#define TILE_ADD_SIGNED(c, a, b) _tile_dpbssd(c, a, b)

#elif defined(TILES)

struct EmulatedTile {
    uint8_t bytes[16][64];
};
inline thread_local EmulatedTile emulated_tiles[8];

class WholeTiles {
   public:
    WholeTiles() {}
    ~WholeTiles() {}
    WholeTiles(const WholeTiles&) = delete;
};

#define TILE_ZERO(t) (emulated_tiles[t] = {})
#define TILE_LOAD(t, from, stride) load_emulated(t, from, stride)
#define TILE_STREAM(t, from, stride) load_emulated(t, from, stride)
#define TILE_STORE(t, to, stride) store_emulated(t, to, stride)
#define TILE_ADD_PAIRS(c, a, b) add_emulated_pairs(c, a, b)
#define TILE_ADD_BYTES(c, a, b) add_emulated_bytes<uint8_t>(c, a, b)
#define TILE_ADD_SIGNED(c, a, b) add_emulated_bytes<int8_t>(c, a, b)

// Rows lie `stride` bytes apart.
inline void load_emulated(int tile, const void* from, int64_t stride) {
    for (int row = 0; row < 16; row++)
        std::memcpy(emulated_tiles[tile].bytes[row], (const uint8_t*)from + row * stride, 64);
}

inline void store_emulated(int tile, void* to, int64_t stride) {
    for (int row = 0; row < 16; row++)
        std::memcpy((uint8_t*)to + row * stride, emulated_tiles[tile].bytes[row], 64);
}

// Tile c: float32 [16][16] += tile a: bfloat16 [16][32] · tile b: bfloat16 [16][16][2], inputs in pairs, of which the
// first numbers are added up, and the second, and then both.
inline void add_emulated_pairs(int c, int a, int b) {
    float sums[16];
    BFloat16 x[32], w[32];
    for (int row = 0; row < 16; row++) {
        float first[16] = {}, second[16] = {};
        std::memcpy(sums, emulated_tiles[c].bytes[row], 64);
        std::memcpy(x, emulated_tiles[a].bytes[row], 64);
        for (int pair = 0; pair < 32; pair += 2) {
            std::memcpy(w, emulated_tiles[b].bytes[pair / 2], 64);
            for (int column = 0; column < 16; column++) {
                first[column] += widen(x[pair]) * widen(w[2 * column]);
                second[column] += widen(x[pair + 1]) * widen(w[2 * column + 1]);
            }
        }
        for (int column = 0; column < 16; column++) sums[column] += first[column] + second[column];
        std::memcpy(emulated_tiles[c].bytes[row], sums, 64);
    }
}

// Tile c: int32 [16][16] += tile a: bytes [16][64], signed or not · tile b: signed bytes [16][16][4].
template <typename X>
inline void add_emulated_bytes(int c, int a, int b) {
    int32_t sums[16];
    for (int row = 0; row < 16; row++) {
        std::memcpy(sums, emulated_tiles[c].bytes[row], 64);
        for (int k = 0; k < 64; k++)
            for (int column = 0; column < 16; column++)
                sums[column] += (int)(X)emulated_tiles[a].bytes[row][k] *
                                (int8_t)emulated_tiles[b].bytes[k / 4][4 * column + k % 4];
        std::memcpy(emulated_tiles[c].bytes[row], sums, 64);
    }
}

#endif
