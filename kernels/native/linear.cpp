// x @ weight.T (+ bias), with weights packed once into the order in which they are read.
//
//   packed  [K / DEPTH][N / PANEL][depth][PANEL]     a panel: PANEL output columns side by side
//
// One block of a panel stays in the first-level cache while all rows of x pass it (Goto and van de Geijn,
// "Anatomy of High-Performance Matrix Multiplication", 2008). Weights that are bfloat16 numbers are kept as
// such, half the memory to read, and widened on the way: products and sums are float32.

#include <algorithm>

#include "linears.h"
#include "panel_rows.h"
#include "team.h"

namespace {

constexpr int64_t DEPTH = 256;
constexpr int64_t BAND = 16 * ROWS;  // of x that stay in the second-level cache
constexpr int64_t PANELS_AT_ONCE = 4, NUMBERS_AT_ONCE = 1 << 16;  // that a thread takes at least

// All rows pass a panel, while the next one is fetched a part at a time: a model's weights are in no cache.
template <typename T>
void pass_one(int64_t rows, Matrix x, const T* block, int64_t apart, int64_t depth, Target out) {
    constexpr int64_t LINE = 64;
    const int64_t bytes = apart * (int64_t)sizeof(T), tiles = (rows + ROWS - 1) / ROWS;
    const int64_t part = (bytes / tiles + LINE - 1) / LINE * LINE;
    const char* const next = (const char*)(block + apart);
    for (int64_t now, fetched = 0; rows > 0; rows -= now) {
        for (const int64_t end = std::min(bytes, fetched + part); fetched < end; fetched += LINE)
            __builtin_prefetch(next + fetched, 0, 2);
        now = next_rows(rows);
        some_rows<ROWS>(now, x, block, {1, apart}, depth, out);
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
};

// The panels from `first` to before `last`.
template <typename T>
void some_panels(const T* packed, Matrix x, const float* bias, float* out, Shape shape, bool add, int64_t first,
                 int64_t last) {
    const int64_t panels = (shape.outputs + PANEL - 1) / PANEL;
    for (int64_t band = 0; band < shape.rows; band += BAND)
        for (int64_t k = 0; k < shape.inputs; k += DEPTH) {
            const int64_t depth = std::min(DEPTH, shape.inputs - k);
            const int64_t rows = std::min(BAND, shape.rows - band);
            const Target target = {
                out + band * shape.outputs + first * PANEL,
                shape.outputs,
                shape.outputs - first * PANEL,
                k == 0 && bias ? bias + first * PANEL : nullptr,
                add || k > 0,
            };
            const T* block = packed + k * panels * PANEL + first * depth * PANEL;
            pass(rows, {x.data + band * x.stride + k, x.stride}, block, {last - first, depth * PANEL}, depth,
                 target);
        }
}

template <typename T>
void multiply(const T* packed, Matrix x, const float* bias, float* out, Shape shape, bool add, int threads) {
    const int64_t panels = (shape.outputs + PANEL - 1) / PANEL;
    turnout::share_out(threads, panels, PANELS_AT_ONCE, [&](int64_t first, int64_t last) {
        some_panels(packed, x, bias, out, shape, add, first, last);
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
        some_panels((const BFloat16*)packed, {x, inputs}, bias, out, shape, false, first, last);
    else
        some_panels((const float*)packed, {x, inputs}, bias, out, shape, false, first, last);
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
    const Shape shape = {rows, inputs, outputs};
    if (half)
        multiply((const BFloat16*)packed, {x, stride}, bias, out, shape, add, threads);
    else
        multiply((const float*)packed, {x, stride}, bias, out, shape, add, threads);
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
