// x @ weight.T (+ bias), with weights in blocks. x is not rounded: sums are the same, to the bit, as of the float32
// weights code * scale that linear.cpp would pack, in the same order; but for what block_tiles.cpp and block_pairs.cpp
// multiply.

#include <algorithm>
#include <memory>

#include "block_pairs.h"
#include "block_tiles.h"
#include "block_weights.h"
#include "kernels.h"
#include "linears.h"
#include "panel_rows.h"
#include "team.h"
#include "tile_bytes.h"

namespace {

constexpr int64_t DEPTH = 256;                 // inputs that are summed before they are added to others: as linear.cpp
constexpr int64_t BAND = 16 * ROWS;            // of x that stay in the second-level cache
constexpr int64_t PANELS_AT_ONCE = 4;          // that a thread takes at least

// As tile.h's, of blocks.
template <int R, int G, typename B>
inline void tile_blocks(Matrix x, const B* panels, int64_t apart, int64_t depth, Floats (&out)[G][R][VECTORS]) {
    Floats sums[G][R][VECTORS] = {};
    for (int64_t begin = 0; begin < depth; begin += B::INPUTS, panels++)
        for (int64_t part = 0; part < B::INPUTS; part += B::SHARED) {
            Weights<B> weights[G][VECTORS];
#pragma GCC unroll 4
            for (int g = 0; g < G; g++)
#pragma GCC unroll 4
                for (int v = 0; v < VECTORS; v++) weights[g][v] = Weights<B>(panels[g * apart], part, v);
            for (int64_t k = part; k < part + B::SHARED; k += Placed<B>::STEP) {
                Placed<B> codes[G][VECTORS];
#pragma GCC unroll 4
                for (int g = 0; g < G; g++) {
                    const B& block = panels[g * apart];
                    if constexpr (R <= FETCHED) fetch_ahead<Placed<B>::STEP>(block, k);
#pragma GCC unroll 4
                    for (int v = 0; v < VECTORS; v++) codes[g][v] = Placed<B>(block, k, v);
                }
#pragma GCC unroll 8
                for (int s = 0; s < Placed<B>::STEP; s++)
#pragma GCC unroll 4
                    for (int g = 0; g < G; g++) {
                        Floats columns[VECTORS];
#pragma GCC unroll 4
                        for (int v = 0; v < VECTORS; v++) columns[v] = weights[g][v].of(codes[g][v].at(s), s);
#pragma GCC unroll 16
                        for (int r = 0; r < R; r++) {
                            const Floats value = splat(x.data[r * x.stride + begin + k + s]);
#pragma GCC unroll 4
                            for (int v = 0; v < VECTORS; v++) sums[g][r][v] += value * columns[v];
                        }
                    }
            }
        }
    std::memcpy(&out, &sums, sizeof sums);
}

Target target_of(const Blocks& layer, float* out, int64_t panel, int64_t k) {
    const float* const bias = k == 0 && layer.bias ? layer.bias + panel * PANEL : nullptr;
    return {out + panel * PANEL, layer.outputs, layer.outputs - panel * PANEL, bias, k > 0};
}

template <int R, int G, typename B>
void few_columns(Matrix x, const Blocks& layer, float* out, int64_t panel) {
    for (int64_t k = 0; k < layer.inputs; k += DEPTH) {
        Floats sums[G][R][VECTORS];
        tile_blocks<R, G>({x.data + k, x.stride}, layer.at<B>(panel, k), layer.blocks<B>(),
                          std::min(DEPTH, layer.inputs - k), sums);
        Target target = target_of(layer, out, panel, k);
        for (int g = 0; g < G; g++, target = target.next())
            for (int r = 0; r < R; r++) put(target, r, sums[g][r]);
    }
}

// Panels to go through at once: fewer than TOGETHER where registers are few, and what widens codes needs some.
template <int R, typename B>
constexpr int SIDE = WIDTH == 16 ? TOGETHER<R> : R == 1 && !std::is_same_v<B, Block6K> ? 2 : 1;

// Few rows go through panels from end to end, as they lie in memory.
template <int R, typename B>
void few_rows(Matrix x, const Blocks& layer, float* out, int64_t panel, int64_t last) {
    for (; panel + SIDE<R, B> <= last; panel += SIDE<R, B>) few_columns<R, SIDE<R, B>, B>(x, layer, out, panel);
    for (; panel < last; panel++) few_columns<R, 1, B>(x, layer, out, panel);
}

template <typename B>
void widen_panel(const B* blocks, int64_t depth, float* to) {
    for (int64_t begin = 0; begin < depth; begin += B::INPUTS, blocks++)
        for (int64_t part = 0; part < B::INPUTS; part += B::SHARED)
            for (int v = 0; v < VECTORS; v++) {
                const Weights<B> weights(*blocks, part, v);
                for (int64_t k = part; k < part + B::SHARED; k += Placed<B>::STEP) {
                    const Placed<B> codes(*blocks, k, v);
                    for (int s = 0; s < Placed<B>::STEP; s++)
                        store(to + (begin + k + s) * PANEL + v * WIDTH, weights.of(codes.at(s), s));
                }
            }
}

// Of many rows, all pass a piece of a panel, widened once for all of them, before the next comes.
template <typename B>
void many_rows(int64_t rows, Matrix x, const Blocks& layer, float* out, int64_t first, int64_t last) {
    alignas(64) float wide[DEPTH * PANEL];
    for (int64_t band = 0; band < rows; band += BAND)
        for (int64_t k = 0; k < layer.inputs; k += DEPTH)
            for (int64_t panel = first; panel < last; panel++) {
                const int64_t depth = std::min(DEPTH, layer.inputs - k);
                widen_panel(layer.at<B>(panel, k), depth, wide);
                const Matrix part = {x.data + band * x.stride + k, x.stride};
                all_rows(std::min(BAND, rows - band), part, wide, {1, 0}, depth,
                         target_of(layer, out + band * layer.outputs, panel, k));
            }
}

template <typename B>
void multiply(int64_t rows, Matrix x, const Blocks& layer, float* out, int64_t first, int64_t last) {
    if (rows > ROWS)
        many_rows<B>(rows, x, layer, out, first, last);
    else
        for_rows(rows, [&](auto count) { few_rows<count(), B>(x, layer, out, first, last); });
}

void multiply(int64_t rows, Matrix x, const Blocks& layer, float* out, int type, int64_t first, int64_t last) {
    with_blocks(type, [&](auto* of) { multiply<Pointed<decltype(of)>>(rows, x, layer, out, first, last); });
}

// Rows of bfloat16, widened, with room for the sums behind them.
std::unique_ptr<float[]> widened_rows(const BFloat16* x, int64_t rows, int64_t stride, const Blocks& layer) {
    std::unique_ptr<float[]> room(new float[rows * (layer.inputs + layer.outputs)]);
    for (int64_t row = 0; row < rows; row++)
        for (int64_t k = 0; k < layer.inputs; k += WIDTH)
            store(room.get() + row * layer.inputs + k, load(x + row * stride + k));
    return room;
}

template <typename B>
void gather(const B* packed, const int64_t* tokens, float* out, int64_t count, int64_t inputs) {
    for (int64_t row = 0; row < count; row++) {
        const B* block = packed + tokens[row] / PANEL * (inputs / B::INPUTS);
        const int64_t column = tokens[row] % PANEL, lane = column % WIDTH;
        const int v = (int)(column / WIDTH);
        for (int64_t part = 0; part < inputs; part += B::SHARED) {
            const B& of = block[part / B::INPUTS];
            const Weights<B> weights(of, part % B::INPUTS, v);
            for (int64_t k = part; k < part + B::SHARED; k += Placed<B>::STEP) {
                const Placed<B> codes(of, k % B::INPUTS, v);
                for (int s = 0; s < Placed<B>::STEP; s++) out[row * inputs + k + s] = weights.of(codes.at(s), s)[lane];
            }
        }
    }
}

// Those outputs that are in panels from `begin` to before `end`. x: rows `stride` apart; both are bfloat16 if `half`.
void compute(const Blocks& layer, int type, const void* x, int64_t stride, void* out, int64_t rows, int half,
             int64_t begin, int64_t end, int threads) {
    if (half && HAS_TILES)
        return multiply_blocks_by_tiles(layer, type, (const BFloat16*)x, stride, (BFloat16*)out, rows, begin, end,
                                        threads);
    if (half && HAS_PAIRS)
        return multiply_blocks_by_pairs(layer, type, (const BFloat16*)x, stride, (BFloat16*)out, rows, begin, end,
                                        threads);
    Matrix wide = {(const float*)x, stride};
    float* sums = (float*)out;
    std::unique_ptr<float[]> room;
    if (half) {
        room = widened_rows((const BFloat16*)x, rows, stride, layer);
        wide = {room.get(), layer.inputs}, sums = room.get() + rows * layer.inputs;
    }
    turnout::share_out(threads, end - begin, PANELS_AT_ONCE, [&](int64_t first, int64_t last) {
        first += begin, last += begin;
        multiply(rows, wide, layer, sums, type, first, last);
        for (int64_t row = 0; half && row < rows; row++)
            for (int64_t i = first * PANEL; i < std::min(last * PANEL, layer.outputs); i++)
                narrow(sums[row * layer.outputs + i], (BFloat16*)out + row * layer.outputs + i);
    });
}

}  // namespace

void block_panels(const Linear& linear, const void* x, void* out, int64_t rows, int half, int64_t first, int64_t last) {
    const Blocks layer = {linear.numbers, (const float*)linear.bias, linear.inputs, linear.outputs};
    compute(layer, (int)(linear.kind - BLOCKS), x, linear.inputs, out, rows, half, first, last, 1);
}

extern "C" {

// out: [rows][outputs]; x: [rows][inputs], rows `stride` apart; both bfloat16 if `half`, else float32; bias:
// float32, or null; type: of blocks.
void turnout_block_linear(const void* packed, const float* bias, const void* x, void* out, int64_t rows,
                          int64_t inputs, int64_t outputs, int64_t stride, int type, int half, int threads) {
    const Blocks layer = {packed, bias, inputs, outputs};
    compute(layer, type, x, stride, out, rows, half, 0, layer.panels(), threads);
}

// out: float32 [count][inputs], the rows `tokens` of the weight that was packed.
void turnout_block_gather(const void* packed, const int64_t* tokens, float* out, int64_t count, int64_t inputs,
                          int type) {
    with_blocks(type, [&](auto* of) { gather((decltype(of))packed, tokens, out, count, inputs); });
}
}
