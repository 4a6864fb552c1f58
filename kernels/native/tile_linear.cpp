// x @ weight.T (+ bias) in bfloat16, as half_linear.cpp has it, by tiles.
//
//   packed  [N / 32][K / 2][32][2]     a panel: two tiles side by side, whose rows lie 128 bytes apart
//
// K is a multiple of 32 here: what is missing is zeros. All rows go by tiles: these and the instruction that multiplies
// vectors of pairs differ in the last bit, so that a switch between them would show.

#if defined(TILES)

#include "gate.h"
#include "half_linear.h"
#include "tile_product.h"

namespace {

constexpr int64_t BYTES = sizeof(BFloat16);
constexpr int64_t BLOCKS_AT_ONCE = 4;   // that a thread takes at least
constexpr int64_t INPUTS_AT_ONCE = 256;  // of a block: what is written stays in the first-level cache

TileRows by_tiles(HalfMatrix x, int64_t rows, int64_t inputs, int threads) {
    TileRows tiles(rows, inputs * BYTES);
    turnout::share_out(threads, tiles.blocks(), BLOCKS_AT_ONCE, [&](int64_t first, int64_t last) {
        for (int64_t block = first; block < last; block++)
            for (int64_t k = 0; k < inputs; k += INPUTS_AT_ONCE)
                for (int64_t row = block * BLOCK; row < std::min(rows, (block + 1) * BLOCK); row++)
                    tiles.put(row, k * BYTES / STEP, (const uint8_t*)(x.data + row * x.stride + k),
                              std::min(INPUTS_AT_ONCE, inputs - k) * BYTES);
    });
    return tiles;
}

template <typename Finish>
void multiply(const HalfWeights& weights, const TileRows& x, int64_t beside, const OutLines& out, const Finish& finish,
              int64_t begin, int64_t end, int threads) {
    if (weights.compressed) {
        const PanelsToExpand panels(weights.packed, (weights.outputs + PANEL - 1) / PANEL, x.steps);
        tile_product<Numbers::PAIRS>(x, panels, 0, x.steps, beside, out, finish).run(begin, end, threads);
    } else {
        const PlainPanels panels = {(const uint8_t*)weights.packed, x.steps};
        tile_product<Numbers::PAIRS>(x, panels, 0, x.steps, beside, out, finish).run(begin, end, threads);
    }
}

inline void load_sums(const int32_t* sums, int64_t row, const HalfBias& bias, Floats (&columns)[VECTORS]) {
    for (int v = 0; v < VECTORS; v++)
        columns[v] = load_as<Floats>(sums + row * PANEL + v * WIDTH) + bias.columns[v];
}

}  // namespace

void multiply_halves(const HalfWeights& weights, HalfMatrix x, int64_t rows, int64_t inputs, int64_t begin,
                     int64_t end, const HalfTarget& out, int threads) {
    const TileRows tiles = by_tiles(x, rows, inputs, threads);
    const auto finish = [&](int64_t row, int64_t count, int64_t panel, const int32_t* sums, const int32_t*) {
        HalfTarget to = out.column(panel * PANEL);
        to.data += row * out.stride;
        const HalfBias bias(to);
        for (int64_t r = 0; r < count; r++) {
            Floats columns[VECTORS];
            load_sums(sums, r, bias, columns);
            put(to, r, columns);
        }
    };
    const OutLines lines = {(const char*)out.data, out.stride * BYTES, PANEL * BYTES};
    multiply(weights, tiles, 0, lines, finish, begin, end, threads);
}

void multiply_gated_halves(const HalfWeights& weights, HalfMatrix x, int64_t rows, int64_t inputs, const HalfTarget& out,
                           int threads) {
    const TileRows tiles = by_tiles(x, rows, inputs, threads);
    const int64_t panels = out.columns / PANEL;
    const HalfTarget both = {out.data, out.stride, 2 * out.columns, out.bias};
    const auto finish = [&](int64_t row, int64_t count, int64_t panel, const int32_t* gates, const int32_t* ups) {
        const HalfBias of_gate(both.column(panel * PANEL)), of_up(both.column((panels + panel) * PANEL));
        BFloat16* to = out.data + row * out.stride + panel * PANEL;
        for (int64_t r = 0; r < count; r++, to += out.stride) {
            Floats gate[VECTORS], up[VECTORS];
            load_sums(gates, r, of_gate, gate), load_sums(ups, r, of_up, up);
            for (int v = 0; v < VECTORS; v++)
                store(to + v * WIDTH,
                      gated<BFloat16>(rounded_to<BFloat16>(gate[v]), rounded_to<BFloat16>(up[v])));
        }
    };
    const OutLines lines = {(const char*)out.data, out.stride * BYTES, PANEL * BYTES};
    multiply(weights, tiles, panels, lines, finish, 0, panels, threads);
}

#endif
