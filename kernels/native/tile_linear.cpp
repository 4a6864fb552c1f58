// x @ weight.T (+ bias) in bfloat16, as half_linear.cpp has it, by tiles.
//
//   packed  [N / 32][K / 2][32][2]     a panel: two tiles side by side, whose rows lie 128 bytes apart
//
// K is a multiple of 32 here: what is missing is zeros. Every number of rows goes the same way, and a row's products
// are added up in the same order: its results do not depend on the others. (Tiles and the instruction that multiplies
// vectors of pairs differ in the last bit, so that a switch between them would show.)

#if defined(TILES)

#include <algorithm>
#include <memory>

#include "half_linear.h"
#include "team.h"
#include "tiles.h"

namespace {

static_assert(PANEL == 32);
constexpr int64_t DEPTH = 1024;       // inputs of a panel's block: 64 KB, which the second-level cache keeps
constexpr int64_t TILE = 16 * 32;     // numbers
constexpr int64_t SOON = 64;          // inputs between what is read of x and what is fetched for later
constexpr int64_t PANELS_AT_ONCE = 1, TILES_AT_ONCE = 8;  // that a thread takes at least

// x in the order in which tiles are read: [rows / 16][K / 32][16][32]; zeros fill the last rows and inputs.
struct Rows {
    std::unique_ptr<BFloat16[]> data;
    int64_t rows, padded, depth;

    Rows(HalfMatrix x, int64_t rows, int64_t inputs, int threads)
        : rows(rows), padded((rows + 15) / 16 * 16), depth((inputs + 31) / 32 * 32) {
        data.reset(new BFloat16[padded * depth]);
        turnout::share_out(threads, padded / 16, TILES_AT_ONCE, [&](int64_t first, int64_t last) {
            for (int64_t row = first * 16; row < last * 16; row++) put(x, row, inputs);
        });
    }

    void put(HalfMatrix x, int64_t row, int64_t inputs) const {
        BFloat16* to = data.get() + row / 16 * 16 * depth + row % 16 * 32;
        const BFloat16* from = x.data + row * x.stride;
        for (int64_t k = 0; k < depth; k += 32, to += TILE) {
            const int64_t count = row < rows ? std::min<int64_t>(32, inputs - k) : 0;
            std::copy_n(from + k, count, to);
            std::fill(to + count, to + 32, BFloat16{0});
        }
    }

    const BFloat16* at(int64_t row, int64_t k) const { return data.get() + row * depth + k * 16; }
};

// Adds to sums [16 * T][PANEL] the products of T tiles of x, which lie `apart`, with a panel's block.
template <int T>
inline void add_block(const BFloat16* x, int64_t apart, const BFloat16* panel, int64_t depth, float* sums, bool first) {
    const int64_t line = PANEL * sizeof(float);
    float* const next = sums + 16 * PANEL;
    if (first) {
        TILE_ZERO(4);
        TILE_ZERO(5);
        if constexpr (T == 2) {
            TILE_ZERO(6);
            TILE_ZERO(7);
        }
    } else {
        TILE_LOAD(4, sums, line);
        TILE_LOAD(5, sums + 16, line);
        if constexpr (T == 2) {
            TILE_LOAD(6, next, line);
            TILE_LOAD(7, next + 16, line);
        }
    }
    for (int64_t k = 0; k < depth; k += 32) {
        TILE_LOAD(0, x + k * 16, 64);
        TILE_LOAD(2, panel + k * PANEL, 128);
        TILE_ADD_PAIRS(4, 0, 2);
        TILE_LOAD(3, panel + k * PANEL + 32, 128);
        TILE_ADD_PAIRS(5, 0, 3);
        if constexpr (T == 2) {
            TILE_LOAD(1, x + apart + k * 16, 64);
            TILE_ADD_PAIRS(6, 1, 2);
            TILE_ADD_PAIRS(7, 1, 3);
            for (int64_t i = 0; i < TILE; i += 32) {
                __builtin_prefetch(x + (k + SOON) * 16 + i);
                __builtin_prefetch(x + apart + (k + SOON) * 16 + i);
            }
        }
    }
    TILE_STORE(4, sums, line);
    TILE_STORE(5, sums + 16, line);
    if constexpr (T == 2) {
        TILE_STORE(6, next, line);
        TILE_STORE(7, next + 16, line);
    }
}

void finish(const float* sums, int64_t first, int64_t last, const HalfTarget& out) {
    for (int64_t row = first; row < last; row++) {
        const float* line = sums + row * PANEL;
        Floats columns[VECTORS];
        for (int v = 0; v < VECTORS; v++) columns[v] = load(line + v * WIDTH);
        put(out, row, columns);
    }
}

// Rows are finished as soon as they are added up: what their results wait for, lines of memory far apart, comes while
// the next tiles are multiplied.
void multiply_panel(const Rows& x, const BFloat16* panel, float* sums, const HalfTarget& out) {
    for (int64_t k = 0; k < x.depth; k += DEPTH, panel += DEPTH * PANEL) {
        const int64_t depth = std::min(DEPTH, x.depth - k), apart = 16 * x.depth;
        const bool last = k + depth == x.depth;
        for (int64_t row = 0; row < x.padded; row += 32) {
            float* const block = sums + row * PANEL;
            if (row + 32 <= x.padded)
                add_block<2>(x.at(row, k), apart, panel, depth, block, k == 0);
            else
                add_block<1>(x.at(row, k), apart, panel, depth, block, k == 0);
            if (last) finish(sums, row, std::min(row + 32, x.rows), out);
        }
    }
}

}  // namespace

void multiply_halves(const BFloat16* packed, HalfMatrix x, int64_t rows, int64_t inputs, int64_t begin,
                     int64_t end, const HalfTarget& out, int threads) {
    const Rows tiles(x, rows, inputs, threads);
    turnout::share_out(threads, end - begin, PANELS_AT_ONCE, [&](int64_t first, int64_t last) {
        const WholeTiles registers;
        const std::unique_ptr<float[]> sums(new float[tiles.padded * PANEL]);
        for (int64_t panel = begin + first; panel < begin + last; panel++)
            multiply_panel(tiles, packed + panel * tiles.depth * PANEL, sums.get(), out.column(panel * PANEL));
    });
}

#endif
