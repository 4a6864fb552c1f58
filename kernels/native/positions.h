// Some positions of a context: their keys and values, and products with them. Those that many rows share are
// copied into panels first, as tile.h has them; few rows read values where they lie.
#pragma once

#include <algorithm>
#include <utility>

#include "pairs.h"
#include "stored.h"
#include "transpose.h"

constexpr int64_t POSITIONS = 64;  // looked at together
constexpr int64_t RUN = 16;        // of them, which lie side by side if a block of the pool has a multiple of so many

// Keys or values of a KV head at the positions that are looked at together, and at those that will be next. A line of
// the latter is fetched beside each of the former that is read: many at once would keep waiting what is read now.
template <typename T>
struct Rows {
    static constexpr int64_t LINE = 64 / sizeof(T);  // numbers that come together

    const T* now[POSITIONS];
    const T* next[POSITIONS];  // where fewer come, any
    int64_t count, coming;
    int64_t line;  // numbers from a position to the next, of each RUN of them; 0: they may lie anywhere

    // Of the row at `position`, what is next from `column` on. Always inlined, as is all that only fetches, or GCC
    // takes it for something that does nothing.
    [[gnu::always_inline]] void fetch(int64_t position, int64_t column) const {
        __builtin_prefetch(next[position] + column, 0, 2);
    }

    // The same of some rows, if a line begins at `column`.
    [[gnu::always_inline]] void fetch_some(int64_t first, int64_t rows, int64_t column) const {
        if (column % LINE == 0)
            for (int64_t i = 0; i < rows; i++) fetch(first + i, column);
    }

    // What comes at positions beyond those that there are now.
    [[gnu::always_inline]] void fetch_rest(int64_t dim) const {
        for (int64_t i = count; i < coming; i++)
            for (int64_t column = 0; column < dim; column += LINE) fetch(i, column);
    }
};

// Each lane of x, or the lane STEP further on, whichever is larger; behind the last lane comes the first.
template <int STEP, int... LANES>
inline Floats larger_neighbour(Floats x, std::integer_sequence<int, LANES...>) {
    return larger(x, __builtin_shufflevector(x, x, ((LANES + STEP) % WIDTH)...));
}

template <int STEP = WIDTH / 2>
inline float largest_of(Floats x) {
    if constexpr (STEP == 0)
        return x[0];
    else
        return largest_of<STEP / 2>(larger_neighbour<STEP>(x, std::make_integer_sequence<int, WIDTH>{}));
}

template <typename T>
inline void widen_row(const T* from, float* to, int64_t count) {
    int64_t i = 0;
    for (; i + WIDTH <= count; i += WIDTH) store(to + i, load(from + i));
    for (; i < count; i++) to[i] = widen(from[i]);
}

template <typename T>
void put_keys(const Rows<T>& rows, int64_t dim, float* keys) {
    static const T nothing[1024] = {};
    for (int64_t first = 0; first < rows.count; first += WIDTH) {
        float* panel = keys + first / PANEL * dim * PANEL + first % PANEL;
        const T* row[WIDTH];
        for (int64_t i = 0; i < WIDTH; i++) row[i] = first + i < rows.count ? rows.now[first + i] : nothing;
        int64_t d = 0;
        for (; d + WIDTH <= dim; d += WIDTH) {
            rows.fetch_some(first, WIDTH, d);
            Floats square[WIDTH];
#pragma GCC unroll 16
            for (int i = 0; i < WIDTH; i++) square[i] = load(row[i] + d);
            transpose<1>(square);
#pragma GCC unroll 16
            for (int i = 0; i < WIDTH; i++) store(panel + (d + i) * PANEL, square[i]);
        }
        for (; d < dim; d++)
            for (int i = 0; i < WIDTH; i++) panel[d * PANEL + i] = widen(row[i][d]);
    }
}

// The same of pairs, for products of bfloat16 numbers: panels [depth / 2][PANEL][2], `depth` rounded up to a pair.
// What lies beyond `dim` is left alone.
template <typename T>
void put_keys(const Rows<T>& rows, int64_t dim, int64_t depth, BFloat16* keys) {
    static const T nothing[1024] = {};
    const int64_t pairs = (dim + 1) / 2, apart = (depth + 1) / 2 * PANEL;
    for (int64_t first = 0; first < rows.count; first += WIDTH) {
        BFloat16* panel = keys + 2 * (first / PANEL * apart + first % PANEL);
        const T* row[WIDTH];
        for (int64_t i = 0; i < WIDTH; i++) row[i] = first + i < rows.count ? rows.now[first + i] : nothing;
        int64_t k = 0;
        for (; 2 * (k + WIDTH) <= dim; k += WIDTH) {
            rows.fetch_some(first, WIDTH, 2 * k);
            Floats square[WIDTH];  // of words, which are only moved
#pragma GCC unroll 16
            for (int i = 0; i < WIDTH; i++) square[i] = load_pairs(row[i] + 2 * k);
            transpose<1>(square);
#pragma GCC unroll 16
            for (int i = 0; i < WIDTH; i++) std::memcpy(panel + (k + i) * 2 * PANEL, &square[i], sizeof square[i]);
        }
        for (; k < pairs; k++)
            for (int i = 0; i < WIDTH; i++) {
                panel[(k * PANEL + i) * 2] = as_half(row[i][2 * k]);
                panel[(k * PANEL + i) * 2 + 1] = 2 * k + 1 < dim ? as_half(row[i][2 * k + 1]) : BFloat16{0};
            }
    }
}

template <typename T>
void put_values(const Rows<T>& rows, int64_t dim, float* values) {
    for (int64_t position = 0; position < rows.count; position++)
        for (int64_t d = 0; d < dim; d += PANEL) {
            for (int v = 0; v < VECTORS; v++) rows.fetch_some(position, 1, d + v * WIDTH);
            widen_row(rows.now[position] + d, values + d * POSITIONS + position * PANEL, std::min(PANEL, dim - d));
        }
}

// out[rows][G * PANEL] (+)= x[rows][depth] · panels.
template <int R, int G>
inline void product_tile(Matrix x, const float* panels, int64_t apart, int64_t depth, float* out, int64_t stride,
                         bool add) {
    Floats sums[G][R][VECTORS];
    tile<R, G>(x, panels, apart, depth, sums);
    for (int g = 0; g < G; g++)
        for (int r = 0; r < R; r++)
            for (int v = 0; v < VECTORS; v++) {
                float* to = out + r * stride + g * PANEL + v * WIDTH;
                store(to, add ? load(to) + sums[g][r][v] : sums[g][r][v]);
            }
}

struct Product {
    int64_t apart, depth, columns, stride;  // from panel to panel; of x; of out, whole panels; of out's rows
    bool add;
};

template <int R>
void product_rows(Matrix x, const float* panels, float* out, const Product& by) {
    constexpr int G = TOGETHER<R>;
    int64_t c = 0;
    for (; c + G * PANEL <= by.columns; c += G * PANEL, panels += G * by.apart)
        product_tile<R, G>(x, panels, by.apart, by.depth, out + c, by.stride, by.add);
    for (; c < by.columns; c += PANEL, panels += by.apart)
        product_tile<R, 1>(x, panels, by.apart, by.depth, out + c, by.stride, by.add);
}

template <int R>
void product_rows(HalfMatrix x, const PairPanels& panels, float scale, float* out, int64_t stride) {
    for (int64_t panel = 0; panel < panels.count; panel++) {
        Floats sums[1][R][VECTORS];
        tile<R, 1>(x, panels.from(panel), sums);
        for (int r = 0; r < R; r++)
            for (int v = 0; v < VECTORS; v++)
                store(out + r * stride + panel * PANEL + v * WIDTH, sums[0][r][v] * scale);
    }
}

// out[rows][panels * PANEL] = scale * x[rows][dim] · panels.
inline void product(int64_t rows, HalfMatrix x, const PairPanels& panels, float scale, float* out, int64_t stride) {
    for (int64_t now; rows > 0; rows -= now) {
        now = next_rows(rows);
        for_rows(now, [&](auto count) { product_rows<count()>(x, panels, scale, out, stride); });
        x.data += now * x.stride;
        out += now * stride;
    }
}

// out[rows][columns] (+)= x[rows][depth] · panels.
inline void product(int64_t rows, Matrix x, const float* panels, float* out, const Product& by) {
    for (int64_t now; rows > 0; rows -= now) {
        now = next_rows(rows);
        for_rows(now, [&](auto count) { product_rows<count()>(x, panels, out, by); });
        x.data += now * x.stride;
        out += now * by.stride;
    }
}

// sums[R][V * WIDTH] += scores[R][count] · values[count], from `column` on.
template <int R, int V, typename T>
inline void weigh_columns(const float* scores, const Rows<T>& values, int64_t column, float* to, int64_t stride) {
    constexpr int64_t LINE = Rows<T>::LINE;
    Floats sums[R][V] = {};
    for (int64_t i = 0; i < values.count; i++) {
        Floats score[R];
#pragma GCC unroll 16
        for (int r = 0; r < R; r++) score[r] = splat(scores[r * POSITIONS + i]);
#pragma GCC unroll 8
        for (int v = 0; v < V; v++) {
            if (v * WIDTH % LINE == 0 && (V * WIDTH % LINE == 0 || column % LINE == 0))
                values.fetch(i, column + v * WIDTH);
            const Floats value = load(values.now[i] + column + v * WIDTH);
#pragma GCC unroll 16
            for (int r = 0; r < R; r++) sums[r][v] += score[r] * value;
        }
    }
    for (int r = 0; r < R; r++)
        for (int v = 0; v < V; v++) {
            float* at = to + r * stride + column + v * WIDTH;
            store(at, load(at) + sums[r][v]);
        }
}

template <int R, typename T>
void weigh_rows(const float* scores, const Rows<T>& values, int64_t dim, float* sums, int64_t stride) {
    constexpr int V = R == 1 ? 8 : R <= 3 ? 4 : 2;  // sums enough to hide the latency of adding
    int64_t column = 0;
    for (; column + V * WIDTH <= dim; column += V * WIDTH) weigh_columns<R, V>(scores, values, column, sums, stride);
    for (; column < dim; column += PANEL) weigh_columns<R, VECTORS>(scores, values, column, sums, stride);
}

// As `product` with values that were put side by side, to the bit; nothing is copied. `dim`: whole panels. (Of one
// sum alone, GCC would round each product before it is added.)
template <typename T>
void weigh(int64_t rows, const float* scores, const Rows<T>& values, int64_t dim, float* sums, int64_t stride) {
    for (int64_t now; rows > 0; rows -= now) {
        now = next_rows(rows);
        for_rows(now, [&](auto count) { weigh_rows<count()>(scores, values, dim, sums, stride); });
        scores += now * POSITIONS;
        sums += now * stride;
    }
}
