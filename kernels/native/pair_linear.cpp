// Products of bfloat16 numbers by vectors of pairs, added up as floats and rounded once at the end. CPUs that have
// units for it multiply and add a pair in one instruction.
//
// A panel is passed from end to end, so that sums stay in registers: a row's results do not depend on the others.

#if !defined(TILES)

#include <algorithm>

#include "half_linear.h"
#include "team.h"

namespace {

constexpr int64_t PANELS_AT_ONCE = 4;  // that a thread takes at least

constexpr int64_t BAND = 16 * ROWS;  // of x that stay in the second-level cache

template <int R, int G>
inline void tile_rows(HalfMatrix x, const PairPanels& panels, const HalfTarget& out) {
    Floats sums[G][R][VECTORS];
    tile<R, G>(x, panels, sums);
    for (int g = 0; g < G; g++) {
        const HalfTarget columns = out.column(g * PANEL);
        const HalfBias bias(columns);
        for (int r = 0; r < R; r++) {
            for (int v = 0; v < VECTORS; v++) sums[g][r][v] += bias.columns[v];
            put(columns, r, sums[g][r]);
        }
    }
}

template <int R>
void all_panels(HalfMatrix x, const PairPanels& panels, const HalfTarget& out) {
    constexpr int G = TOGETHER<R>;
    int64_t panel = 0;
    for (; panel + G <= panels.count; panel += G) tile_rows<R, G>(x, panels.from(panel), out.column(panel * PANEL));
    for (; panel < panels.count; panel++) tile_rows<R, 1>(x, panels.from(panel), out.column(panel * PANEL));
}

void all_rows(int64_t rows, HalfMatrix x, const PairPanels& panels, HalfTarget out) {
    for (int64_t now; rows > 0; rows -= now) {
        now = next_rows(rows);
        for_rows(now, [&](auto count) { all_panels<count()>(x, panels, out); });
        x.data += now * x.stride;
        out.data += now * out.stride;
    }
}

// Few rows go through the panels side by side. Of many, all pass one panel before the next comes.
void pass(int64_t rows, HalfMatrix x, const PairPanels& panels, const HalfTarget& out) {
    if (rows <= ROWS) return all_rows(rows, x, panels, out);
    for (int64_t panel = 0; panel < panels.count; panel++) {
        PairPanels one = panels.from(panel);
        one.count = 1;
        all_rows(rows, x, one, out.column(panel * PANEL));
    }
}

}  // namespace

void multiply_halves(const HalfWeights& weights, HalfMatrix x, int64_t rows, int64_t inputs, int64_t begin,
                     int64_t end, const HalfTarget& out, int threads) {
    const PairPanels all = {(const BFloat16*)weights.packed, end, (inputs + 1) / 2 * 2 * PANEL, inputs};
    turnout::share_out(threads, end - begin, PANELS_AT_ONCE, [&](int64_t first, int64_t last) {
        first += begin, last += begin;
        PairPanels own = all.from(first);
        own.count = last - first;
        for (int64_t band = 0; band < rows; band += BAND) {
            HalfTarget to = out.column(first * PANEL);
            to.data += band * out.stride;
            pass(std::min(BAND, rows - band), {x.data + band * x.stride, x.stride}, own, to);
        }
    });
}

#endif
