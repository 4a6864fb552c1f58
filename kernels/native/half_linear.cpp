// x @ weight.T (+ bias), everything in bfloat16: inputs go in pairs, products are added up as floats, and rounded
// once at the end. CPUs that have units for it multiply and add a pair in one instruction.
//
//   packed  [N / PANEL][K / 2][PANEL][2]     a panel: PANEL output columns side by side
//
// A panel is passed from end to end, so that sums stay in registers: a row's results do not depend on the others.

#include <algorithm>

#include "pairs.h"
#include "team.h"

namespace {

constexpr int64_t PANELS_AT_ONCE = 4;  // that a thread takes at least

constexpr int64_t BAND = 16 * ROWS;  // of x that stay in the second-level cache

// Where the columns of a panel go.
struct Target {
    BFloat16* data;
    int64_t stride;
    int64_t columns;       // that there are, from the panel's first on
    const BFloat16* bias;  // to add, or null

    Target column(int64_t count) const {
        return {data + count, stride, columns - count, bias ? bias + count : nullptr};
    }
};

inline void put(const Target& out, int64_t row, const Floats (&sums)[VECTORS]) {
    BFloat16 part[PANEL];
    BFloat16* const line = out.data + row * out.stride;
    BFloat16* const to = out.columns >= PANEL ? line : part;
    BFloat16 bias[PANEL] = {};
    if (out.bias) std::copy_n(out.bias, std::min(PANEL, out.columns), bias);
    for (int v = 0; v < VECTORS; v++) store(to + v * WIDTH, sums[v] + load(bias + v * WIDTH));
    if (to == part) std::copy_n(part, out.columns, line);
}

template <int R, int G>
inline void tile_rows(HalfMatrix x, const PairPanels& panels, const Target& out) {
    Floats sums[G][R][VECTORS];
    tile<R, G>(x, panels, sums);
    for (int g = 0; g < G; g++)
        for (int r = 0; r < R; r++) put(out.column(g * PANEL), r, sums[g][r]);
}

template <int R>
void all_panels(int64_t rows, HalfMatrix x, const PairPanels& panels, const Target& out) {
    if constexpr (R > 0) {
        if (rows != R) return all_panels<R - 1>(rows, x, panels, out);
        constexpr int G = TOGETHER<R>;
        int64_t panel = 0;
        for (; panel + G <= panels.count; panel += G)
            tile_rows<R, G>(x, panels.from(panel), out.column(panel * PANEL));
        for (; panel < panels.count; panel++) tile_rows<R, 1>(x, panels.from(panel), out.column(panel * PANEL));
    }
}

void all_rows(int64_t rows, HalfMatrix x, const PairPanels& panels, Target out) {
    for (int64_t now; rows > 0; rows -= now) {
        now = next_rows(rows);
        all_panels<ROWS>(now, x, panels, out);
        x.data += now * x.stride;
        out.data += now * out.stride;
    }
}

// Few rows go through the panels side by side. Of many, all pass one panel before the next comes.
void pass(int64_t rows, HalfMatrix x, const PairPanels& panels, const Target& out) {
    if (rows <= ROWS) return all_rows(rows, x, panels, out);
    for (int64_t panel = 0; panel < panels.count; panel++) {
        PairPanels one = panels.from(panel);
        one.count = 1;
        all_rows(rows, x, one, out.column(panel * PANEL));
    }
}

struct Table {
    int64_t inputs;

    int64_t pairs() const { return (inputs + 1) / 2; }
    // Where a row of the weight has its first pair; the next ones lie 2 * PANEL behind one another.
    int64_t place(int64_t output) const { return output / PANEL * pairs() * 2 * PANEL + output % PANEL * 2; }
};

}  // namespace

extern "C" {

// weight: bfloat16 [outputs][inputs], to be output columns `first` and on of `packed`, which is zeros.
void turnout_half_pack(const uint16_t* weight, uint16_t* packed, int64_t inputs, int64_t outputs, int64_t first,
                       int threads) {
    const Table table = {inputs};
    const int64_t begin = first / PANEL, end = (first + outputs + PANEL - 1) / PANEL;
    turnout::share_out(threads, end - begin, 1, [&](int64_t from, int64_t till) {
        for (int64_t output = std::max(first, (begin + from) * PANEL);
             output < std::min(first + outputs, (begin + till) * PANEL); output++) {
            const uint16_t* row = weight + (output - first) * inputs;
            uint16_t* to = packed + table.place(output);
            for (int64_t k = 0; k < inputs; k++) to[k / 2 * 2 * PANEL + k % 2] = row[k];
        }
    });
}

// out: bfloat16 [rows][outputs]; x: bfloat16 [rows][inputs], rows `stride` apart; bias: bfloat16, or null.
void turnout_half_linear(const void* packed, const void* x, const void* bias, void* out, int64_t rows,
                         int64_t inputs, int64_t outputs, int64_t stride, int threads) {
    const int64_t count = (outputs + PANEL - 1) / PANEL;
    const PairPanels panels = {(const BFloat16*)packed, count, Table{inputs}.pairs() * 2 * PANEL, inputs};
    const Target target = {(BFloat16*)out, outputs, outputs, (const BFloat16*)bias};
    turnout::share_out(threads, count, PANELS_AT_ONCE, [&](int64_t first, int64_t last) {
        PairPanels own = panels.from(first);
        own.count = last - first;
        for (int64_t band = 0; band < rows; band += BAND) {
            Target to = target.column(first * PANEL);
            to.data += band * outputs;
            pass(std::min(BAND, rows - band), {(const BFloat16*)x + band * stride, stride}, own, to);
        }
    });
}

// out: bfloat16 [count][inputs], the rows `tokens` of the weight that was packed.
void turnout_half_gather(const uint16_t* packed, const int64_t* tokens, uint16_t* out, int64_t count,
                         int64_t inputs) {
    const Table table = {inputs};
    for (int64_t row = 0; row < count; row++) {
        const uint16_t* from = packed + table.place(tokens[row]);
        for (int64_t k = 0; k < inputs; k++) out[row * inputs + k] = from[k / 2 * 2 * PANEL + k % 2];
    }
}
}
