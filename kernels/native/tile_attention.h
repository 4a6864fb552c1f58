// Attention in bfloat16 by tiles (tiles.h), for every number of rows, so that a row's bits do not depend on others:
// weights of positions are rounded to bfloat16, as those of FlashAttention on GPUs are, and added up as floats.
#pragma once

#include "aligned.h"
#include "attention_desk.h"
#include "tiles.h"

#if defined(TILES)

// Panels are two tiles side by side, as those of tile_linear.cpp: keys [POSITIONS / PANEL][key_wide / 2][PANEL][2],
// values [wide / PANEL][POSITIONS / 2][PANEL][2]. All of it stays in the first two levels of cache.
//
// Of few rows, keys are read where they lie, as rows of a tile, and queries are turned instead: products are the same to
// the bit, and a tile need not wait for what was just written.
struct TileDesk : Sums {
    static constexpr int64_t ROWS_AT_ONCE = 32, DEPTH = 32;

    using Registers = WholeTiles;

    int64_t key_dim, key_wide;
    float scale;
    AlignedVector<BFloat16> queries;  // [parts * QUERIES][key_wide], and rows to read behind a KV head's last ones
    AlignedVector<BFloat16> keys, weights, values;
    AlignedVector<BFloat16> turned;  // few queries: [KV heads][key_wide / 2][FEW_ROWS][2]
    AlignedVector<float> seen;       // of a block of positions: [QUERIES][wide]
    AlignedVector<BFloat16> widened_keys, widened_values;  // of codes: [POSITIONS][key_dim or dim]

    TileDesk(int64_t key_dim, int64_t value_dim, float scale, int64_t parts)
        : Sums(value_dim, parts),
          key_dim(key_dim),
          key_wide(up(key_dim, PANEL)),
          scale(scale),
          queries((parts * QUERIES + ROWS_AT_ONCE) * key_wide),
          keys(POSITIONS * key_wide),
          weights(QUERIES * POSITIONS),
          values(POSITIONS * wide),
          turned(QUERIES * FEW_ROWS * key_wide),
          seen(QUERIES * std::max(wide, POSITIONS)) {}

    void put_query(const BFloat16* from, int64_t row) { std::copy_n(from, key_dim, &queries[row * key_wide]); }

    // rows: of each KV head.
    void turn_queries(int64_t kv_heads, int64_t rows) {
        few = rows <= FEW_ROWS && key_dim % DEPTH == 0;
        if (!few) return;
        rows_each = rows;
        for (int64_t head = 0; head < kv_heads; head++)
            for (int64_t d = 0; d < key_dim; d += DEPTH) {
                Floats square[WIDTH] = {};  // of words, which are only moved
                for (int64_t r = 0; r < rows; r++)
                    square[r] = load_as<Floats>(&queries[(head * rows + r) * key_wide + d]);
                transpose<1>(square);
                std::memcpy(&turned[(head * key_wide + d) * FEW_ROWS], square, sizeof square);
            }
    }

    void put(const Rows<BFloat16>& of_keys, const Rows<BFloat16>& of_values, int64_t) {
        in_place = few && of_keys.line ? &of_keys : nullptr;
        if (!in_place) put_keys(of_keys, key_dim, key_wide, keys.data());
        put_value_pairs(of_values);
    }

    template <typename Code>
    void put(const Rows<Code>& of_keys, const Rows<Code>& of_values, int64_t rows) {
        widen_rows(of_keys, key_dim, widened_keys, keys_widened);
        widen_rows(of_values, dim, widened_values, values_widened);
        put(keys_widened, values_widened, rows);
    }

    void score(int64_t first, int64_t rows, int64_t count) {
        if (in_place) return score_in_place(first, rows);
        multiply(rows, {&queries[first * key_wide], key_wide}, keys.data(), up(count, PANEL), scores.data(),
                 POSITIONS);
        for (int64_t i = 0; i < rows * POSITIONS; i += WIDTH) store(&scores[i], load(&scores[i]) * scale);
    }

    // All positions of a block are multiplied, those behind the last with zeros: tiles take the smallest sums for
    // zeros, so that one product more would show.
    template <typename KV>
    void add_values(int64_t first, int64_t rows, const Rows<KV>&) {
        for (int64_t i = 0; i < rows * POSITIONS; i += WIDTH) store(&weights[i], load(&scores[i]));
        multiply(rows, {weights.data(), POSITIONS}, values.data(), wide, seen.data(), wide);
        float* const to = sums_of(first);
        for (int64_t i = 0; i < rows * wide; i += WIDTH) store(to + i, load(to + i) + load(&seen[i]));
    }

   private:
    static constexpr int64_t FEW_ROWS = 16;

    bool few = false;
    int64_t rows_each = 0;                     // of a KV head, if there are few
    const Rows<BFloat16>* in_place = nullptr;  // keys that are read where they lie
    Rows<BFloat16> keys_widened, values_widened;

    // `made`: the rows as bfloat16, one behind the other in `numbers`.
    template <typename Code>
    static void widen_rows(const Rows<Code>& rows, int64_t width, AlignedVector<BFloat16>& numbers,
                           Rows<BFloat16>& made) {
        numbers.resize(POSITIONS * width);
        made.count = rows.count, made.coming = 0, made.line = width;
        for (int64_t i = 0; i < rows.count; i++) {
            BFloat16* const to = &numbers[i * width];
            made.now[i] = made.next[i] = to;
            int64_t d = 0;
            for (; d + 2 * WIDTH <= width; d += 2 * WIDTH) {
                rows.fetch_some(i, 1, d);
                const Floats pairs = load_pairs(rows.now[i] + d);
                std::memcpy(to + d, &pairs, sizeof pairs);
            }
            for (; d < width; d++) to[d] = as_half(rows.now[i][d]);
        }
    }

    struct Run {
        const BFloat16* rows;
        int64_t line;  // bytes from one to the next
    };

    // The keys of RUN positions. Behind the last there may be no memory: its run, if it is not whole, is copied.
    Run run(int64_t number) {
        const Rows<BFloat16>& at = *in_place;
        const int64_t first = number * RUN, count = at.count - first;
        if (count >= RUN) return {at.now[first], at.line * (int64_t)sizeof(BFloat16)};
        for (int64_t i = 0; i < count; i++) std::copy_n(at.now[first + i], key_dim, &keys[i * key_wide]);
        return {keys.data(), key_wide * (int64_t)sizeof(BFloat16)};
    }

    // Four runs of keys by the queries of a KV head: [POSITIONS][FEW_ROWS], and turned again.
    void score_in_place(int64_t first, int64_t rows) {
        static_assert(WIDTH == FEW_ROWS && RUN == 16 && POSITIONS == 4 * RUN);
        const Rows<BFloat16>& at = *in_place;
        const BFloat16* const by = &turned[first / rows_each * key_wide * FEW_ROWS];
        const int64_t runs = up(at.count, RUN) / RUN;
        const Run run_of[] = {run(0), run(1), run(2), run(3)};
        TILE_ZERO(4);
        TILE_ZERO(5);
        TILE_ZERO(6);
        TILE_ZERO(7);
        for (int64_t d = 0; d < key_dim; d += DEPTH) {
            TILE_LOAD(2, by + d * FEW_ROWS, 64);
            TILE_LOAD(0, run_of[0].rows + d, run_of[0].line);
            TILE_ADD_PAIRS(4, 0, 2);
            if (runs > 1) {
                TILE_LOAD(1, run_of[1].rows + d, run_of[1].line);
                TILE_ADD_PAIRS(5, 1, 2);
            }
            if (runs > 2) {
                TILE_LOAD(0, run_of[2].rows + d, run_of[2].line);
                TILE_ADD_PAIRS(6, 0, 2);
            }
            if (runs > 3) {
                TILE_LOAD(1, run_of[3].rows + d, run_of[3].line);
                TILE_ADD_PAIRS(7, 1, 2);
            }
            for (int64_t i = 0; i < at.count; i++) at.fetch_some(i, 1, d);
        }
        TILE_STORE(4, &seen[0], 64);
        TILE_STORE(5, &seen[RUN * FEW_ROWS], 64);
        TILE_STORE(6, &seen[2 * RUN * FEW_ROWS], 64);
        TILE_STORE(7, &seen[3 * RUN * FEW_ROWS], 64);
        for (int64_t number = 0; number < runs; number++) {
            Floats square[WIDTH];
#pragma GCC unroll 16
            for (int i = 0; i < WIDTH; i++) square[i] = load(&seen[(number * RUN + i) * FEW_ROWS]);
            transpose<1>(square);
            for (int64_t r = 0; r < rows; r++) store(&scores[r * POSITIONS + number * RUN], square[r] * scale);
        }
    }

    // out[rows][columns] = x[rows][x.stride] · panels [columns / PANEL][x.stride / 2][PANEL][2], of rows in whole
    // tiles: what `rows` leaves of the last of them is there, and of no account.
    static void multiply(int64_t rows, HalfMatrix x, const BFloat16* panels, int64_t columns, float* out,
                         int64_t stride) {
        for (int64_t column = 0; column < columns; column += PANEL, panels += x.stride * PANEL) {
            int64_t row = 0;
            for (; row + 16 < rows; row += ROWS_AT_ONCE)
                multiply_panel<2>(x.data + row * x.stride, x.stride, panels, out + row * stride + column, stride);
            if (row < rows)
                multiply_panel<1>(x.data + row * x.stride, x.stride, panels, out + row * stride + column, stride);
        }
    }

    template <int T>
    static void multiply_panel(const BFloat16* x, int64_t inputs, const BFloat16* panel, float* out, int64_t stride) {
        const int64_t line = inputs * sizeof(BFloat16), out_line = stride * sizeof(float);
        TILE_ZERO(4);
        TILE_ZERO(5);
        if constexpr (T == 2) {
            TILE_ZERO(6);
            TILE_ZERO(7);
        }
        for (int64_t k = 0; k < inputs; k += DEPTH) {
            TILE_LOAD(0, x + k, line);
            TILE_LOAD(2, panel + k * PANEL, 128);
            TILE_ADD_PAIRS(4, 0, 2);
            TILE_LOAD(3, panel + k * PANEL + 32, 128);
            TILE_ADD_PAIRS(5, 0, 3);
            if constexpr (T == 2) {
                TILE_LOAD(1, x + 16 * inputs + k, line);
                TILE_ADD_PAIRS(6, 1, 2);
                TILE_ADD_PAIRS(7, 1, 3);
            }
        }
        TILE_STORE(4, out, out_line);
        TILE_STORE(5, out + 16, out_line);
        if constexpr (T == 2) {
            TILE_STORE(6, out + 16 * stride, out_line);
            TILE_STORE(7, out + 16 * stride + 16, out_line);
        }
    }

    // Values of two positions come into one word, the first in the low half.
    void put_value_pairs(const Rows<BFloat16>& positions) {
        static const BFloat16 nothing[1024] = {};
        const int64_t count = positions.count;
        for (int64_t i = 0; i < POSITIONS; i += 2) {
            const BFloat16* const low = i < count ? positions.now[i] : nothing;
            const BFloat16* const high = i + 1 < count ? positions.now[i + 1] : nothing;
            for (int64_t d = 0; d < dim; d += WIDTH) {
                positions.fetch_some(i, 2, d);
                BFloat16* const to = &values[(d / PANEL * POSITIONS / 2 + i / 2) * 2 * PANEL + d % PANEL * 2];
                if (d + WIDTH <= dim) {
                    const Words pairs = (Words)load(high + d) | (Words)load(low + d) >> 16;
                    std::memcpy(to, &pairs, sizeof pairs);
                    continue;
                }
                for (int64_t c = 0; d + c < dim; c++) to[2 * c] = low[d + c], to[2 * c + 1] = high[d + c];
            }
        }
    }
};

#endif
