// A layer of integers, and its x as integers: whole numbers, and what 1 stands for in each row.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "integers.h"
#include "team.h"
#include "tile.h"
#include "tile_bytes.h"
#include "tile_rows.h"

// Inputs whose sums are exact: 256 * 127 * 32767 < 2^31, of bytes 65536 * 127 * 255. As integers.py has them.
constexpr int64_t PIECE = 256, PIECE_OF_BYTES = 65536;

constexpr int ZERO = 1 << (UNSIGNED_BITS - 1);

struct Layer {
    const void* packed;
    // A panel's lie together, as its codes do: what is read in order is there when it is wanted.
    const int32_t* shift;        // [panels][pieces][PANEL]
    const void *scale, *offset;  // [panels][groups][PANEL]
    const float* bias;           // [panels * PANEL]
    int64_t depth, outputs, group;
    int in_word;  // numbers of x in a word: 4 of 8 bits, or 2 of 16

    int64_t panels() const { return (outputs + PANEL - 1) / PANEL; }
    int64_t piece() const { return std::min(in_word == 4 ? PIECE_OF_BYTES : PIECE, group); }
    int64_t pieces() const { return (depth + piece() - 1) / piece(); }
    int64_t groups() const { return (depth + group - 1) / group; }
};

// How x lies:
//
//   WORDS   by tiles of rows, [words][rows]: for vectors. Of 16 bits, four numbers are the words (0, 2) and (1, 3)
//   BYTES   as TileRows
//   PARTS   as TileRows, of which a block is the low and the high bytes of 16 rows of 16 bits
enum class Order { WORDS, BYTES, PARTS };

// Rows of 16 bits from which on tiles are expected to take less time than vectors: as long as for 16 rows.
constexpr int64_t WORTH_TILES = 8;

// Sums of 16 bits are exact, and the same by vectors as by tiles: the number of rows may decide.
inline Order order_of(const Layer& layer, int64_t rows) {
    if (!HAS_TILES) return Order::WORDS;
    if (layer.in_word == 4) return Order::BYTES;
    return rows >= WORTH_TILES ? Order::PARTS : Order::WORDS;
}

// Rows of x that are multiplied together.
struct Tile {
    int64_t first, rows;
    int32_t* words;  // of WORDS alone
};

using Tiles = const Tile*;

// x as integers.
struct Input {
    Order order;
    std::unique_ptr<int32_t[]> words;  // by tiles
    TileRows by_tiles;
    std::unique_ptr<float[]> unit;    // [rows]
    std::unique_ptr<float[]> totals;  // [rows][pieces]
    std::vector<Tile> tiles;
};

// T: what a word has of; `zero` is added to each. The words of a row lie `apart`.
template <typename T, typename X>
void round_row(const X* x, int64_t size, float factor, T zero, int32_t* words, int64_t apart, int64_t depth) {
    constexpr int64_t IN = sizeof(int32_t) / sizeof(T);
    typedef T Kept __attribute__((vector_size(WIDTH * sizeof(T))));
    const float magic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to a whole number
    int64_t i = 0;
    for (; i + WIDTH <= size; i += WIDTH) {
        const Floats whole = (load(x + i) * factor + magic) - magic;
        const Kept kept = __builtin_convertvector(__builtin_convertvector(whole, Ints), Kept) + zero;
        int32_t made[WIDTH / IN];
        std::memcpy(made, &kept, sizeof kept);
        for (int w = 0; w < WIDTH / IN; w++) words[(i / IN + w) * apart] = made[w];
    }
    T last[WIDTH] = {};
    for (int64_t k = i; k < depth; k += IN) {
        for (int64_t j = 0; j < IN; j++)
            last[j] = (T)(k + j < size ? (int)((widen(x[k + j]) * factor + magic) - magic) + zero : zero);
        std::memcpy(words + k / IN * apart, last, sizeof(int32_t));
    }
}

inline float total(const int16_t* numbers, int64_t begin, int64_t end) {
    int32_t sum = 0;
    for (int64_t k = begin; k < end; k++) sum += numbers[k];
    return (float)sum;
}

inline void put_words(const int16_t* numbers, int64_t depth, int32_t* words, int64_t apart) {
    for (int64_t k = 0; k < depth; k += 4, words += 2 * apart) {
        const uint32_t first = load_as<uint32_t>(numbers + k), second = load_as<uint32_t>(numbers + k + 2);
        words[0] = (int32_t)((first & 0xffff) | second << 16);
        words[apart] = (int32_t)(first >> 16 | (second & 0xffff0000u));
    }
}

// Row r of a tile of 16 rows: its low bytes, and its high ones.
inline void put_parts(const int16_t* numbers, int64_t depth, const TileRows& to, int64_t tile, int64_t r) {
    for (int64_t k = 0; k < depth; k += STEP) {
        uint8_t *const low = to.place(tile * BLOCK + r, k / STEP), *const high = low + TILE;
        const int64_t count = std::min(STEP, depth - k);
        for (int64_t i = 0; i < count; i++)
            low[i] = (uint8_t)numbers[k + i], high[i] = (uint8_t)(numbers[k + i] >> 8);
        std::fill(low + count, low + STEP, 0), std::fill(high + count, high + STEP, 0);
    }
}

// Row r of a tile, as 16 bits; numbers: room for the row.
template <typename X>
inline void round_to_16_bits(const X* x, int64_t size, float factor, const Layer& layer, const Input& to, int64_t tile,
                             int64_t r, int16_t* numbers) {
    const Tile& of = to.tiles[tile];
    round_row<int16_t>(x, size, factor, 0, (int32_t*)numbers, 1, layer.depth);
    for (int64_t piece = 0; layer.offset && piece < layer.pieces(); piece++) {
        const int64_t begin = piece * layer.piece(), end = std::min(layer.depth, begin + layer.piece());
        to.totals[(of.first + r) * layer.pieces() + piece] = total(numbers, begin, end);
    }
    if (to.order == Order::PARTS)
        put_parts(numbers, layer.depth, to.by_tiles, tile, r);
    else
        put_words(numbers, layer.depth, of.words + r, of.rows);
}

template <typename X>
inline void round_tile(const X* x, int64_t stride, int64_t size, float levels, const float* most_of, const Layer& layer,
                       const Input& to, int64_t tile, int16_t* numbers) {
    const Tile& of = to.tiles[tile];
    for (int64_t r = 0; r < of.rows; r++) {
        const int64_t row = of.first + r;
        const X* from = x + row * stride;
        const float most = most_of ? most_of[row] : largest(from, size);
        const float factor = most - most == 0.0f ? levels / most : 0.0f;
        to.unit[row] = most / levels;
        if (layer.in_word == 2) {
            round_to_16_bits(from, size, factor, layer, to, tile, r, numbers);
        } else if (to.order == Order::BYTES) {
            round_row<uint8_t>(from, size, factor, ZERO, (int32_t*)numbers, 1, layer.depth);
            to.by_tiles.put(row, 0, (const uint8_t*)numbers, layer.depth);
        } else {
            round_row<uint8_t>(from, size, factor, ZERO, of.words + r, of.rows, layer.depth);
        }
    }
}

inline Input room_for(const Layer& layer, int64_t rows) {
    const Order order = order_of(layer, rows);
    const int64_t words = layer.depth / layer.in_word, tiles = (rows + TILE_ROWS - 1) / TILE_ROWS;
    Input input = {order,
                   std::unique_ptr<int32_t[]>(order == Order::WORDS ? new int32_t[rows * words] : nullptr),
                   TileRows(order == Order::WORDS ? 0 : order == Order::BYTES ? rows : tiles * BLOCK, layer.depth),
                   std::unique_ptr<float[]>(new float[rows]),
                   std::unique_ptr<float[]>(new float[rows * layer.pieces()]),
                   {}};
    for (int64_t row = 0, now; row < rows; row += now) {
        now = order == Order::WORDS ? next_rows(rows - row) : std::min(TILE_ROWS, rows - row);
        input.tiles.push_back({row, now, input.words ? input.words.get() + row * words : nullptr});
    }
    return input;
}

// most_of: what rows are rounded by; null: the largest of each.
template <typename X>
void round_rows(const X* x, int64_t stride, int64_t size, float levels, const float* most_of, const Layer& layer,
                const Input& to, int threads) {
    turnout::share_out(threads, to.tiles.size(), 1, [&](int64_t first, int64_t last) {
        const std::unique_ptr<int16_t[]> numbers(new int16_t[layer.depth]);
        for (int64_t tile = first; tile < last; tile++)
            round_tile(x, stride, size, levels, most_of, layer, to, tile, numbers.get());
    });
}
