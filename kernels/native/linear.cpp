// x @ weight.T (+ bias), with weights packed once into the order in which they are read.
//
//   packed  [K / DEPTH][N / PANEL][depth][PANEL]     a panel: PANEL output columns side by side
//
// One block of a panel stays in a near cache while rows of x pass it (Goto and van de Geijn, "Anatomy of
// High-Performance Matrix Multiplication", 2008); many rows are laid side by side before. Weights that are bfloat16
// numbers are kept as such, half the memory to read, and widened on the way: products and sums are float32.

#include <algorithm>

#include "fetch.h"
#include "linears.h"
#include "panel_rows.h"
#include "side_by_side.h"
#include "team.h"

namespace {

constexpr int64_t DEPTH = 256;
constexpr int64_t BAND = 16 * ROWS;                        // of x that stay in the second-level cache
constexpr int64_t SIDE_BY_SIDE = 112 / ROWS;               // tiles that do, laid side by side,
constexpr int64_t CHUNK = (WIDTH == 16 ? 4 : 2) * DEPTH;   // with so many of their inputs
constexpr int64_t MANY = 3 * ROWS, ENOUGH = 3;             // rows, and panels, from which on to lay them so pays
constexpr int64_t PANELS_AT_ONCE = 4, TILES_AT_ONCE = 4, NUMBERS_AT_ONCE = 1 << 16;  // that a thread takes at least

template <typename T>
Fetch fetch_for(const Target& out, int64_t rows, const T* next, int64_t depth, TileOf tile) {
    return {Lines::of(out.data, out.stride, rows), next, PANEL * (int64_t)sizeof(T), depth, tile};
}

// More than ROWS rows pass a panel, while the next one is fetched: a model's weights are in no cache.
template <typename T>
void pass_one(int64_t rows, Matrix x, const T* block, int64_t apart, int64_t depth, Target out) {
    const int64_t tiles = (rows + ROWS - 1) / ROWS;
    for (int64_t now, number = 0; rows > 0; rows -= now, number++) {
        now = next_rows(rows);
        const Fetch fetch = fetch_for(out, now, block + apart, depth, {number, tiles});
        for_rows_from<least_rows(2)>(now, [&](auto count) {
            tile_rows<count(), 1>(x, block, {1, apart}, depth, out, fetch);
        });
        x.data += now * x.stride;
        out.data += now * out.stride;
    }
}

// Few rows go through the panels side by side. Of many, all pass one panel before the next comes.
template <typename T>
void pass(int64_t rows, Matrix x, const T* block, Panels panels, int64_t depth, Target out) {
    if (rows <= ROWS) return all_rows(rows, x, block, panels, depth, out);
    for (; panels.count > 0; panels.count--, block += panels.apart, out = out.next())
        pass_one(rows, x, block, panels.apart, depth, out);
}

struct Shape {
    int64_t rows, inputs, outputs;

    int64_t panels() const { return (outputs + PANEL - 1) / PANEL; }
};

// A product, of which parts are computed; `add`: to what `out` holds.
template <typename T>
struct Product {
    const T* packed;
    Matrix x;
    const float* bias;
    float* out;
    Shape shape;
    bool add;
    Finish after = nullptr;  // what to do with numbers of `out` once they are there

    // Where a panel's block of inputs from `k` on begins.
    const T* block(int64_t k, int64_t panel) const {
        return packed + k * shape.panels() * PANEL + panel * depth(k) * PANEL;
    }
    int64_t depth(int64_t k) const { return std::min(DEPTH, shape.inputs - k); }
    Target target(int64_t row, int64_t k, int64_t panel) const {
        const int64_t column = panel * PANEL;
        return {out + row * shape.outputs + column, shape.outputs, shape.outputs - column,
                k == 0 && bias ? bias + column : nullptr, add || k > 0};
    }
    void finish(int64_t row, int64_t rows, int64_t first, int64_t last) const {
        const int64_t begin = first * PANEL, end = std::min(shape.outputs, last * PANEL);
        if (after) after(out + row * shape.outputs + begin, rows, end - begin, shape.outputs);
    }
};

// Rows from `row` on with all panels, a block of inputs at a time.
template <typename T>
void pass_few(const Product<T>& all, int64_t row, int64_t rows, int64_t first, int64_t last) {
    for (int64_t k = 0; k < all.shape.inputs; k += DEPTH) {
        const int64_t depth = all.depth(k);
        pass(rows, {all.x.data + row * all.x.stride + k, all.x.stride}, all.block(k, first),
             {last - first, depth * PANEL}, depth, all.target(row, k, first));
    }
}

// A tile of a panel, all its inputs from `begin` to `end`.
template <int R, typename T>
void pass_tile(const Product<T>& all, const float* x, int64_t row, int64_t begin, int64_t end, int64_t panel,
               int64_t number, int64_t tiles) {
    for (int64_t k = begin; k < end; k += DEPTH) {
        const int64_t depth = all.depth(k), apart = depth * PANEL;
        const T* const block = all.block(k, panel);
        const Target out = all.target(row, k, panel);
        const Fetch fetch = fetch_for(out, R, block + apart, depth, {number, tiles});
        tile_rows<R, 1>(SideBySide<R>{x}, block, {1, apart}, depth, out, fetch);
        x += depth * R;
    }
}

// The same of MANY rows or more, laid side by side, so many inputs at a time as stay in the second-level cache with them.
template <typename T>
void pass_many(const Product<T>& all, int64_t row, int64_t rows, int64_t first, int64_t last) {
    const int64_t tiles = (rows + ROWS - 1) / ROWS;
    float* const room = room_for_rows(rows * std::min(CHUNK, all.shape.inputs));
    for (int64_t begin = 0; begin < all.shape.inputs; begin += CHUNK) {
        const int64_t end = std::min(begin + CHUNK, all.shape.inputs);
        lay_side_by_side({all.x.data + row * all.x.stride + begin, all.x.stride}, rows, end - begin, room);
        for (int64_t panel = first; panel < last; panel++) {
            const float* x = room;
            for (int64_t number = 0, at = row, now; at < row + rows; number++, at += now, x += now * (end - begin)) {
                now = next_rows(row + rows - at);
                for_rows_from<least_rows(4)>(now, [&](auto count) {
                    pass_tile<count()>(all, x, at, begin, end, panel, number, tiles);
                });
            }
            if (end == all.shape.inputs) all.finish(row, rows, panel, panel + 1);
        }
    }
}

// The rows from `row` on, as many as in `rows`, with the panels from `first` to before `last`.
template <typename T>
void some_panels(const Product<T>& all, int64_t row, int64_t rows, int64_t first, int64_t last) {
    const bool many = rows >= MANY && last - first >= ENOUGH;
    const int64_t tiles = (rows + ROWS - 1) / ROWS, bands = (tiles + SIDE_BY_SIDE - 1) / SIDE_BY_SIDE;
    const int64_t band = many ? (tiles + bands - 1) / bands * ROWS : BAND;
    for (const int64_t end = row + rows; row < end; row += band) {
        const int64_t now = std::min(band, end - row);
        if (many && now >= MANY) {
            pass_many(all, row, now, first, last);
        } else {
            pass_few(all, row, now, first, last);
            all.finish(row, now, first, last);
        }
    }
}

// Threads share panels, of which each reads its own; where rows are many, these, of which each lays its own.
template <typename T>
void multiply(const Product<T>& all, int threads) {
    const int64_t rows = all.shape.rows, tiles = (rows + ROWS - 1) / ROWS, panels = all.shape.panels();
    if (tiles < threads * SIDE_BY_SIDE)
        return turnout::share_out(threads, panels, PANELS_AT_ONCE, [&](int64_t first, int64_t last) {
            some_panels(all, 0, rows, first, last);
        });
    turnout::share_out(threads, tiles, TILES_AT_ONCE, [&](int64_t first, int64_t last) {
        some_panels(all, first * ROWS, std::min(rows, last * ROWS) - first * ROWS, 0, panels);
    });
}

template <typename T>
struct Table {
    int64_t inputs, panels;

    // Where in `packed` a row of the weight has its numbers from input `k` on, PANEL apart from one another.
    int64_t place(int64_t output, int64_t k, int64_t depth) const {
        return k * panels * PANEL + output / PANEL * depth * PANEL + place_of<T>(output % PANEL);
    }
};

template <typename T>
void pack_row(const float* row, T* packed, Table<T> table, int64_t output) {
    for (int64_t k = 0; k < table.inputs; k += DEPTH) {
        const int64_t depth = std::min(DEPTH, table.inputs - k);
        T* to = packed + table.place(output, k, depth);
        for (int64_t i = 0; i < depth; i++) narrow(row[k + i], to + i * PANEL);
    }
}

template <typename T>
void pack(const float* weight, T* packed, Table<T> table, int64_t outputs, int64_t first, int threads) {
    const int64_t begin = first / PANEL, end = (first + outputs + PANEL - 1) / PANEL;
    turnout::share_out(threads, end - begin, 1, [&](int64_t from, int64_t to) {
        for (int64_t output = std::max(first, (begin + from) * PANEL);
             output < std::min(first + outputs, (begin + to) * PANEL); output++)
            pack_row(weight + (output - first) * table.inputs, packed, table, output);
    });
}

template <typename T>
void gather(const T* packed, const int64_t* tokens, float* out, int64_t count, Table<T> table) {
    for (int64_t row = 0; row < count; row++)
        for (int64_t k = 0; k < table.inputs; k += DEPTH) {
            const int64_t depth = std::min(DEPTH, table.inputs - k);
            const T* from = packed + table.place(tokens[row], k, depth);
            float* to = out + row * table.inputs + k;
            for (int64_t i = 0; i < depth; i++) to[i] = widen(from[i * PANEL]);
        }
}

}  // namespace

void float_panels(const void* packed, const float* x, const float* bias, float* out, int64_t rows, int64_t inputs,
                  int64_t outputs, int half, int64_t first, int64_t last) {
    const Shape shape = {rows, inputs, outputs};
    if (half)
        some_panels<BFloat16>({(const BFloat16*)packed, {x, inputs}, bias, out, shape, false}, 0, rows, first, last);
    else
        some_panels<float>({(const float*)packed, {x, inputs}, bias, out, shape, false}, 0, rows, first, last);
}

void float_linear(const void* packed, const float* x, const float* bias, float* out, int64_t rows, int64_t inputs,
                  int64_t outputs, int64_t stride, int half, bool add, int threads, Finish after) {
    const Shape shape = {rows, inputs, outputs};
    if (half)
        multiply<BFloat16>({(const BFloat16*)packed, {x, stride}, bias, out, shape, add, after}, threads);
    else
        multiply<float>({(const float*)packed, {x, stride}, bias, out, shape, add, after}, threads);
}

extern "C" {

int64_t turnout_panel() { return PANEL; }

// Would every one of `count` numbers survive bfloat16?
int turnout_is_bfloat16(const uint32_t* numbers, int64_t count, int threads) {
    std::atomic<uint32_t> lost{0};
    turnout::share_out(threads, count, NUMBERS_AT_ONCE, [&](int64_t first, int64_t last) {
        uint32_t here = 0;
        for (int64_t i = first; i < last; i++) here |= numbers[i] & 0xffffu;
        lost |= here;
    });
    return lost == 0;
}

// weight: float32 [outputs][inputs], to be output columns `first` and on of the `panels` of `packed`, whose
// columns beyond the last are to be zeros already.
void turnout_pack(const float* weight, void* packed, int64_t inputs, int64_t outputs, int64_t first,
                  int64_t panels, int half, int threads) {
    if (half)
        pack(weight, (BFloat16*)packed, {inputs, panels}, outputs, first, threads);
    else
        pack(weight, (float*)packed, {inputs, panels}, outputs, first, threads);
}

// out: float32 [rows][outputs]; x: float32 [rows][inputs], rows `stride` apart; `add`: to what `out` holds.
void turnout_linear(const void* packed, const float* x, const float* bias, float* out, int64_t rows,
                    int64_t inputs, int64_t outputs, int64_t stride, int half, int add, int threads) {
    float_linear(packed, x, bias, out, rows, inputs, outputs, stride, half, add != 0, threads, nullptr);
}

// out: float32 [count][inputs], the rows `tokens` of the weight that was packed.
void turnout_gather(const void* packed, const int64_t* tokens, float* out, int64_t count, int64_t inputs,
                    int64_t panels, int half) {
    if (half)
        gather((const BFloat16*)packed, tokens, out, count, {inputs, panels});
    else
        gather((const float*)packed, tokens, out, count, {inputs, panels});
}
}
