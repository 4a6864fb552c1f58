#include "block_tiles.h"

#if defined(TILES)

#include <algorithm>
#include <memory>

#include "aligned.h"
#include "block_numbers.h"
#include "team.h"
#include "tile_rows.h"
#include "tiles.h"

namespace {

constexpr int64_t PANELS_AT_ONCE = 4;  // that a thread takes at least
constexpr int64_t BLOCKS_AT_ONCE = 4;  // of rows, the same
constexpr int64_t BAND = 256;          // rows of x that stay in the second-level cache
constexpr int64_t PIECE = 8;           // steps whose codes are widened once for a band: 16 KB, in the first-level cache
constexpr int64_t LINE = PANEL * 4;    // bytes of a panel's line of pairs, or of its sums
constexpr int64_t LINES = 16;          // of a tile

// Rows, up to which vectors take less time: bytes take tiles longer to widen.
template <typename B>
constexpr int FEW = std::is_same_v<B, Block8> ? 5 : 3;

// x as it is multiplied by blocks of type B.
template <typename B>
class Input {
   public:
    int64_t rows, steps;

    Input(const BFloat16* x, int64_t stride, int64_t rows, int64_t inputs, int threads)
        : rows(rows),
          steps(inputs / INPUTS<B>),
          floats_(rows <= FEW<B> ? new float[rows * inputs] : nullptr),
          tiles_(floats_ ? 0 : rows, steps * STEP),
          sums_(HAS_OFFSETS<B> ? new float[rows * steps] : nullptr) {
        turnout::share_out(threads, (rows + BLOCK - 1) / BLOCK, BLOCKS_AT_ONCE, [&](int64_t first, int64_t last) {
            for (int64_t row = first * BLOCK; row < std::min(rows, last * BLOCK); row++)
                for (int64_t step = 0; step < steps; step++) put(x + row * stride + step * INPUTS<B>, row, step);
        });
    }

    // Of few rows: the numbers of a row at a step.
    const float* numbers(int64_t row, int64_t step) const { return floats_.get() + (row * steps + step) * INPUTS<B>; }
    bool are_few() const { return (bool)floats_; }

    // Of many: two tiles, or one, of the block that begins with a row, and what they are at a step. A row has its
    // numbers in the order of the codes' pairs, and zeros behind them.
    int64_t tiles(int64_t first) const { return tiles_.tiles(first); }
    const uint8_t* at(int64_t first, int64_t step) const { return tiles_.at(first, step); }

    // The sum of a row's numbers at a step; 0, where blocks have no offsets.
    float sum_of(int64_t row, int64_t step) const { return HAS_OFFSETS<B> ? sums_[row * steps + step] : 0; }

   private:
    std::unique_ptr<float[]> floats_;
    TileRows tiles_;
    std::unique_ptr<float[]> sums_;

    void put(const BFloat16* from, int64_t row, int64_t step) const {
        if (HAS_OFFSETS<B>) sums_[row * steps + step] = sum(load(from) + load(from + WIDTH));
        if (floats_) {
            float* const to = floats_.get() + (row * steps + step) * INPUTS<B>;
            for (int64_t k = 0; k < INPUTS<B>; k += WIDTH) store(to + k, load(from + k));
            return;
        }
        uint8_t* const to = tiles_.place(row, step);
        put_pairs<B>(from, to);
        std::memset(to + 2 * INPUTS<B>, 0, STEP - 2 * INPUTS<B>);
    }
};

// The sums of a step, [rows][PANEL], of one or two tiles of x.
template <int T>
inline void multiply_step(const uint8_t* x, const uint32_t* pairs, float* sums) {
    TILE_ZERO(4);
    TILE_ZERO(5);
    TILE_LOAD(0, x, STEP);
    TILE_LOAD(2, pairs, LINE);
    TILE_LOAD(3, pairs + WIDTH, LINE);
    TILE_ADD_PAIRS(4, 0, 2);
    TILE_ADD_PAIRS(5, 0, 3);
    TILE_STORE(4, sums, LINE);
    TILE_STORE(5, sums + WIDTH, LINE);
    if constexpr (T == 2) {
        float* const next = sums + 16 * PANEL;
        TILE_ZERO(6);
        TILE_ZERO(7);
        TILE_LOAD(1, x + TILE, STEP);
        TILE_ADD_PAIRS(6, 1, 2);
        TILE_ADD_PAIRS(7, 1, 3);
        TILE_STORE(6, next, LINE);
        TILE_STORE(7, next + WIDTH, LINE);
    }
}

// What the sums of a step add to totals: [rows][PANEL], of rows that begin with `first`.
template <typename B>
inline void add_sums(const Input<B>& x, int64_t first, int64_t rows, const B* panel, int64_t step, const float* sums,
                     float* totals) {
    const B& block = panel[step * INPUTS<B> / B::INPUTS];
#pragma GCC unroll 2
    for (int v = 0; v < VECTORS; v++) {
        const Scale<B> scale(block, step * INPUTS<B> % B::INPUTS, v);
        for (int64_t row = 0; row < rows; row++) {
            float* const total = totals + row * PANEL + v * WIDTH;
            const Floats sum = load(sums + row * PANEL + v * WIDTH);
            store(total, with_block(load(total), scale, sum, x.sum_of(first + row, step)));
        }
    }
}

// Few rows by vectors, to the bits of tiles, which add up the first numbers of a step's pairs, and the second ones, and
// then both: a panel is passed from end to end, as it lies in memory.
template <int R, int G, typename B>
void few_rows(const Input<B>& x, const Blocks& layer, BFloat16* out, int64_t number) {
    const int64_t blocks = layer.blocks<B>();
    const B* panels = layer.at<B>(number, 0);
    Floats totals[G][R][VECTORS] = {};
    for (int64_t step = 0; step < x.steps; step++) {
        const B* const now = panels + step * INPUTS<B> / B::INPUTS;
        const int64_t part = step * INPUTS<B> % B::INPUTS;
        Floats sums[2][G][R][VECTORS] = {};
#pragma GCC unroll 4
        for (int64_t k = 0; k < INPUTS<B>; k += 8) {
            Eight<B> codes[G][VECTORS];
#pragma GCC unroll 2
            for (int g = 0; g < G; g++) {
                fetch_ahead<8>(now[g * blocks], part + k);
#pragma GCC unroll 2
                for (int v = 0; v < VECTORS; v++) codes[g][v] = Eight<B>(now[g * blocks], part + k, v);
            }
#pragma GCC unroll 8
            for (int s = 0; s < 8; s++)
#pragma GCC unroll 2
                for (int g = 0; g < G; g++)
#pragma GCC unroll 2
                    for (int v = 0; v < VECTORS; v++) {
                        const Floats columns = codes[g][v].input(s);
#pragma GCC unroll 4
                        for (int r = 0; r < R; r++)
                            sums[s / 4][g][r][v] += splat(x.numbers(r, step)[k + s]) * columns;
                    }
        }
#pragma GCC unroll 2
        for (int g = 0; g < G; g++)
#pragma GCC unroll 2
            for (int v = 0; v < VECTORS; v++) {
                const Scale<B> scale(now[g * blocks], part, v);
#pragma GCC unroll 4
                for (int r = 0; r < R; r++)
                    totals[g][r][v] = with_block(totals[g][r][v], scale, sums[0][g][r][v] + sums[1][g][r][v],
                                                 x.sum_of(r, step));
            }
    }
    for (int g = 0; g < G; g++)
        for (int r = 0; r < R; r++) {
            float total[PANEL];
            std::memcpy(total, totals[g][r], sizeof total);
            put(total, layer, out + r * layer.outputs, number + g);
        }
}

template <int R, typename B>
void few_rows(const Input<B>& x, const Blocks& layer, BFloat16* out, int64_t first, int64_t last) {
    constexpr int G = R <= 2 ? 2 : 1;  // panels side by side: sums enough to hide the latency of adding
    for (; first + G <= last; first += G) few_rows<R, G, B>(x, layer, out, first);
    for (; first < last; first++) few_rows<R, 1, B>(x, layer, out, first);
}

// All blocks of a band pass some steps of a panel, before the next come.
template <typename B>
void many_rows(const Input<B>& x, const Blocks& layer, BFloat16* out, int64_t first, int64_t last) {
    const WholeTiles tiles;
    alignas(64) uint32_t pairs[PIECE][LINES * PANEL] = {};  // zeros behind half a tile's lines
    alignas(64) float sums[BLOCK * PANEL];
    const std::unique_ptr<float[]> totals(new float[BAND * PANEL]);
    for (int64_t begin = 0; begin < x.rows; begin += BAND)
        for (int64_t number = first; number < last; number++) {
            const B* const panel = layer.at<B>(number, 0);
            const int64_t end = std::min(begin + BAND, x.rows);
            std::fill_n(totals.get(), (end - begin) * PANEL, 0.0f);
            for (int64_t piece = 0; piece < x.steps; piece += PIECE) {
                const int64_t steps = std::min(PIECE, x.steps - piece);
                for (int64_t at = 0; at < steps; at++) {
                    const int64_t input = (piece + at) * INPUTS<B>;
                    widen(panel[input / B::INPUTS], input % B::INPUTS, pairs[at]);
                }
                for (int64_t row = begin; row < end; row += BLOCK)
                    for (int64_t at = 0; at < steps; at++) {
                        if (x.tiles(row) == 2)
                            multiply_step<2>(x.at(row, piece + at), pairs[at], sums);
                        else
                            multiply_step<1>(x.at(row, piece + at), pairs[at], sums);
                        add_sums(x, row, std::min(BLOCK, end - row), panel, piece + at, sums,
                                 totals.get() + (row - begin) * PANEL);
                    }
            }
            for (int64_t row = begin; row < end; row++)
                put(totals.get() + (row - begin) * PANEL, layer, out + row * layer.outputs, number);
        }
}

template <typename B>
void multiply(const Input<B>& x, const Blocks& layer, BFloat16* out, int64_t first, int64_t last) {
    if (!x.are_few()) return many_rows<B>(x, layer, out, first, last);
    for_rows<FEW<B>>(x.rows, [&](auto count) { few_rows<count(), B>(x, layer, out, first, last); });
}

}  // namespace

void multiply_blocks_by_tiles(const Blocks& layer, int type, const BFloat16* x, int64_t stride, BFloat16* out,
                              int64_t rows, int64_t begin, int64_t end, int threads) {
    with_blocks(type, [&](auto* of) {
        const Input<Pointed<decltype(of)>> input(x, stride, rows, layer.inputs, threads);
        turnout::share_out(threads, end - begin, PANELS_AT_ONCE, [&](int64_t first, int64_t last) {
            multiply(input, layer, out, first + begin, last + begin);
        });
    });
}

#else

void multiply_blocks_by_tiles(const Blocks&, int, const BFloat16*, int64_t, BFloat16*, int64_t, int64_t, int64_t,
                              int) {}

#endif
