// Attention over block tables: keys and values are read where they lie, a block of positions at a time, with
// the softmax carried along (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018; Dao et
// al., "FlashAttention", 2022). The heads that share a KV head go together, so that it is read once for them.

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "tile.h"

namespace {

constexpr int64_t POSITIONS = 64;  // looked at together
constexpr int64_t QUERIES = 64;    // rows of a tile: tokens times heads of a KV head

struct Pool {
    int64_t block_size, kv_heads, dim;
};

struct Step {
    const int64_t *rows, *lengths, *starts, *tables;  // of each chunk; of tables: [chunks][most]
    int64_t chunks, most, heads, stride;
    float scale;
};

struct Tile {
    int64_t chunk, kv_head, first, tokens;
};

template <int STEP, bool HIGH, int... LANES>
inline Floats interleave(Floats a, Floats b, std::integer_sequence<int, LANES...>) {
    if constexpr (HIGH)
        return __builtin_shufflevector(a, b, ((LANES & STEP) ? WIDTH + LANES : LANES + STEP)...);
    else
        return __builtin_shufflevector(a, b, ((LANES & STEP) ? WIDTH + LANES - STEP : LANES)...);
}

template <int STEP>
inline void transpose(Floats (&x)[WIDTH]) {
    if constexpr (STEP < WIDTH) {
        constexpr auto lanes = std::make_integer_sequence<int, WIDTH>{};
#pragma GCC unroll 16
        for (int i = 0; i < WIDTH; i++)
            if (!(i & STEP)) {
                const Floats low = interleave<STEP, false>(x[i], x[i + STEP], lanes);
                x[i + STEP] = interleave<STEP, true>(x[i], x[i + STEP], lanes);
                x[i] = low;
            }
        transpose<2 * STEP>(x);
    }
}

int64_t up(int64_t count, int64_t multiple) { return (count + multiple - 1) / multiple * multiple; }

// What a thread works with. Panels as in tile.h: keys [POSITIONS / PANEL][dim][PANEL], values
// [wide / PANEL][POSITIONS][PANEL], where `wide` is dim rounded up to whole panels.
struct Desk {
    int64_t wide;
    std::vector<float> queries, keys, values, scores, sums;
    float largest[QUERIES], total[QUERIES];

    explicit Desk(int64_t dim)
        : wide(up(dim, PANEL)),
          queries(QUERIES * dim),
          keys(POSITIONS * dim),
          values(POSITIONS * wide),
          scores(QUERIES * POSITIONS),
          sums(QUERIES * wide) {}
};

template <typename T>
inline void widen_row(const T* from, float* to, int64_t count) {
    int64_t i = 0;
    for (; i + WIDTH <= count; i += WIDTH) store(to + i, load(from + i));
    for (; i < count; i++) to[i] = widen(from[i]);
}

template <typename T>
void put_keys(const T* const* rows, int64_t count, int64_t dim, float* keys) {
    static const T nothing[1024] = {};
    for (int64_t first = 0; first < count; first += WIDTH) {
        float* panel = keys + first / PANEL * dim * PANEL + first % PANEL;
        const T* row[WIDTH];
        for (int64_t i = 0; i < WIDTH; i++) row[i] = first + i < count ? rows[first + i] : nothing;
        int64_t d = 0;
        for (; d + WIDTH <= dim; d += WIDTH) {
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

template <typename T>
void put_values(const T* const* rows, int64_t count, int64_t dim, float* values) {
    for (int64_t position = 0; position < count; position++)
        for (int64_t d = 0; d < dim; d += PANEL)
            widen_row(rows[position] + d, values + d * POSITIONS + position * PANEL, std::min(PANEL, dim - d));
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
void product_rows(int64_t rows, Matrix x, const float* panels, float* out, const Product& by) {
    if constexpr (R > 0) {
        if (rows != R) return product_rows<R - 1>(rows, x, panels, out, by);
        constexpr int G = TOGETHER<R>;
        int64_t c = 0;
        for (; c + G * PANEL <= by.columns; c += G * PANEL, panels += G * by.apart)
            product_tile<R, G>(x, panels, by.apart, by.depth, out + c, by.stride, by.add);
        for (; c < by.columns; c += PANEL, panels += by.apart)
            product_tile<R, 1>(x, panels, by.apart, by.depth, out + c, by.stride, by.add);
    }
}

// out[rows][columns] (+)= x[rows][depth] · panels.
void product(int64_t rows, Matrix x, const float* panels, float* out, const Product& by) {
    for (int64_t now; rows > 0; rows -= now) {
        now = next_rows(rows);
        product_rows<ROWS>(now, x, panels, out, by);
        x.data += now * x.stride;
        out += now * by.stride;
    }
}

// The softmax of a row of scores goes on: what was summed up so far is scaled to the new largest score.
void soften(float* scores, int64_t visible, float* sums, int64_t wide, float& largest, float& total) {
    float most = largest;
    for (int64_t i = 0; i < visible; i++) most = std::max(most, scores[i]);
    for (int64_t i = visible; i < POSITIONS; i++) scores[i] = -std::numeric_limits<float>::infinity();
    Floats added = {};
    for (int64_t i = 0; i < POSITIONS; i += WIDTH) {
        const Floats weight = exponential(load(scores + i) - most);
        store(scores + i, weight);
        added += weight;
    }
    if (most != largest) {
        const float factor = std::exp(largest - most);
        total *= factor;
        for (int64_t i = 0; i < wide; i += WIDTH) store(sums + i, load(sums + i) * factor);
    }
    total += sum(added);
    largest = most;
}

template <typename T>
inline const T* row_of(const T* all, const Pool& pool, const int64_t* table, int64_t position, int64_t head) {
    const int64_t slot = table[position / pool.block_size] + position % pool.block_size;
    return all + (slot * pool.kv_heads + head) * pool.dim;
}

template <typename T>
inline void fetch(const T* row, int64_t count) {
    constexpr int64_t LINE = 64 / sizeof(T);
    for (int64_t i = 0; i < count; i += LINE) __builtin_prefetch(row + i, 0, 2);
}

template <typename Q, typename KV>
void attend(const Q* q, const KV* keys, const KV* values, Q* out, const Step& step, const Pool& pool, Tile at,
            Desk& desk) {
    const int64_t share = step.heads / pool.kv_heads, dim = pool.dim, rows = at.tokens * share;
    const int64_t top = step.rows[at.chunk] + at.first, start = step.starts[at.chunk] + at.first;
    for (int64_t r = 0; r < rows; r++) {
        const Q* from = q + (top + r / share) * step.stride + (at.kv_head * share + r % share) * dim;
        for (int64_t d = 0; d < dim; d++) desk.queries[r * dim + d] = widen(from[d]) * step.scale;
    }
    std::fill(desk.sums.begin(), desk.sums.begin() + rows * desk.wide, 0.0f);
    std::fill(desk.largest, desk.largest + rows, -std::numeric_limits<float>::infinity());
    std::fill(desk.total, desk.total + rows, 0.0f);
    const int64_t end = start + at.tokens;  // of what the last token sees
    const KV *k[POSITIONS], *v[POSITIONS];
    for (int64_t first = 0; first < end; first += POSITIONS) {
        const int64_t count = std::min(POSITIONS, end - first);
        const int64_t* table = step.tables + at.chunk * step.most;
        for (int64_t i = 0; i < count; i++) {
            k[i] = row_of(keys, pool, table, first + i, at.kv_head);
            v[i] = row_of(values, pool, table, first + i, at.kv_head);
        }
        for (int64_t i = first + POSITIONS; i < std::min(end, first + 2 * POSITIONS); i++) {
            fetch(row_of(keys, pool, table, i, at.kv_head), dim);
            fetch(row_of(values, pool, table, i, at.kv_head), dim);
        }
        put_keys(k, count, dim, desk.keys.data());
        put_values(v, count, dim, desk.values.data());
        const int64_t columns = up(count, PANEL);
        product(rows, {desk.queries.data(), dim}, desk.keys.data(), desk.scores.data(),
                {dim * PANEL, dim, columns, POSITIONS, false});
        for (int64_t r = 0; r < rows; r++) {
            const int64_t visible = std::min(count, start + r / share + 1 - first);
            if (visible > 0)
                soften(&desk.scores[r * POSITIONS], visible, &desk.sums[r * desk.wide], desk.wide,
                       desk.largest[r], desk.total[r]);
            else
                std::fill_n(&desk.scores[r * POSITIONS], POSITIONS, 0.0f);
        }
        product(rows, {desk.scores.data(), POSITIONS}, desk.values.data(), desk.sums.data(),
                {POSITIONS * PANEL, count, desk.wide, desk.wide, true});
    }
    for (int64_t r = 0; r < rows; r++) {
        Q* to = out + ((top + r / share) * step.heads + at.kv_head * share + r % share) * dim;
        for (int64_t d = 0; d < dim; d++) narrow(desk.sums[r * desk.wide + d] / desk.total[r], to + d);
    }
}

// The longest contexts first, so that no thread is left with one at the end.
std::vector<Tile> tiles_of(const Step& step, int64_t kv_heads) {
    const int64_t tokens = std::max<int64_t>(1, QUERIES / (step.heads / kv_heads));
    std::vector<Tile> tiles;
    for (int64_t chunk = 0; chunk < step.chunks; chunk++)
        for (int64_t first = 0; first < step.lengths[chunk]; first += tokens)
            for (int64_t head = 0; head < kv_heads; head++)
                tiles.push_back({chunk, head, first, std::min(tokens, step.lengths[chunk] - first)});
    std::stable_sort(tiles.begin(), tiles.end(), [&](const Tile& a, const Tile& b) {
        return step.starts[a.chunk] + a.first > step.starts[b.chunk] + b.first;
    });
    return tiles;
}

template <typename Q, typename KV>
void run(const void* q, const void* keys, const void* values, void* out, const Step& step, const Pool& pool,
         int threads) {
    const std::vector<Tile> tiles = tiles_of(step, pool.kv_heads);
#pragma omp parallel num_threads(threads) if (tiles.size() > 1)
    {
        Desk desk(pool.dim);
#pragma omp for schedule(dynamic)
        for (size_t i = 0; i < tiles.size(); i++)
            attend((const Q*)q, (const KV*)keys, (const KV*)values, (Q*)out, step, pool, tiles[i], desk);
    }
}

template <typename T, typename KV>
void write(const T* rows, KV* pool, const int64_t* slots, int64_t tokens, int64_t size, int64_t stride) {
    for (int64_t token = 0; token < tokens; token++) {
        const T* from = rows + token * stride;
        KV* to = pool + slots[token] * size;
        for (int64_t i = 0; i < size; i++) narrow(widen(from[i]), to + i);
    }
}

}  // namespace

extern "C" {

// rows: [tokens][size], `stride` numbers apart, each into its slot of pool: [slots][size].
void turnout_write(const void* rows, void* pool, const int64_t* slots, int64_t tokens, int64_t size,
                   int64_t stride, int half, int pool_half) {
    if (half)
        pool_half ? write((const BFloat16*)rows, (BFloat16*)pool, slots, tokens, size, stride)
                  : write((const BFloat16*)rows, (float*)pool, slots, tokens, size, stride);
    else
        pool_half ? write((const float*)rows, (BFloat16*)pool, slots, tokens, size, stride)
                  : write((const float*)rows, (float*)pool, slots, tokens, size, stride);
}

// One layer of a step. q: [tokens][heads][dim], tokens `stride` numbers apart; keys, values:
// [slots][kv_heads][dim]; out: [tokens][heads][dim]. A chunk's tokens are `lengths` rows from `rows` on, at
// positions from `starts` on; `tables`: [chunks][most], the slots where its blocks begin. *_half: bfloat16,
// else float32. Heads share KV heads evenly, 64 to one at most; dim is 1024 at most.
void turnout_attend(const void* q, const void* keys, const void* values, void* out, const int64_t* rows,
                    const int64_t* lengths, const int64_t* starts, const int64_t* tables, int64_t chunks,
                    int64_t most, int64_t heads, int64_t kv_heads, int64_t dim, int64_t stride,
                    int64_t block_size, float scale, int q_half, int kv_half, int threads) {
    const Step step = {rows, lengths, starts, tables, chunks, most, heads, stride, scale};
    const Pool pool = {block_size, kv_heads, dim};
    if (q_half)
        kv_half ? run<BFloat16, BFloat16>(q, keys, values, out, step, pool, threads)
                : run<BFloat16, float>(q, keys, values, out, step, pool, threads);
    else
        kv_half ? run<float, BFloat16>(q, keys, values, out, step, pool, threads)
                : run<float, float>(q, keys, values, out, step, pool, threads);
}
}
