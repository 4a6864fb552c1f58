// x @ weight.T (+ bias), with weights of 8 or 4 bits, and x rounded to integers, a scale for each row.
//
//   Fours     int8    [N / PANEL][K / 4][PANEL][4]     x: unsigned bytes, of which ZERO stands for 0
//   Pairs     int8    [N / PANEL][K / 2][PANEL][2]     x: 16 bits; a panel: PANEL output columns side by side
//   Nibbles   uint16  [N / PANEL][K / 8][PANEL][2]     x: 16 bits; nibble s: input 8k + 2s, or 8k + 2s + 1
//
// K is a multiple of 8 here, for Fours of BYTES_UNIT: what is missing is zeros. Sums of products are exact over a piece of K; pieces are
// added up as floats, always in the same order: a row's results do not depend on how many rows there are. x and
// what comes out are float32 or bfloat16.
// weight = (code - CENTER) * scale + offset, for each output and group of inputs.

#include <algorithm>
#include <memory>
#include <vector>

#include "integers.h"
#include "linears.h"
#include "team.h"
#include "tile.h"
#include "tile_bytes.h"

namespace {

constexpr int64_t PANELS_AT_ONCE = 4;  // that a thread takes at least

// Inputs whose sums are exact: 256 * 127 * 32767 < 2^31, of bytes 65536 * 127 * 255. As integers.py has them.
constexpr int64_t PIECE = 256, PIECE_OF_BYTES = 65536;
constexpr int64_t BAND = 16;    // tiles of x that stay in the second-level cache, of a piece
constexpr int64_t WIDENED = 3;  // tiles, from which on it pays to widen codes once for all of them

constexpr int ZERO = 1 << (UNSIGNED_BITS - 1);

// STEP: inputs that are read at once; IN_WORD: numbers in a word of x; SHARE: codes in an element.
struct Fours {
    static constexpr int64_t STEP = 4, IN_WORD = 4, SHARE = 1;
    static constexpr float CENTER = 0;
    using Scale = float;
    int8_t code;
};
struct Pairs {
    static constexpr int64_t STEP = 2, IN_WORD = 2, SHARE = 1;
    static constexpr float CENTER = 0;
    using Scale = float;
    int8_t code;
};
struct Wide {  // pairs, widened
    static constexpr int64_t STEP = 2, IN_WORD = 2, SHARE = 1;
    int16_t code;
};
struct Nibbles {
    static constexpr int64_t STEP = 8, IN_WORD = 2, SHARE = 4;
    static constexpr float CENTER = 8;  // so that offsets are small, and lose little as bfloat16
    using Scale = BFloat16;
    uint16_t codes;
};

// What a step reads of WIDTH columns, and of that the weights for word s.
inline Bytes read(const Fours* at) { return load_as<Bytes>(at); }
inline Shorts read(const Pairs* at) { return __builtin_convertvector(load_as<HalfBytes>(at), Shorts); }
inline Shorts read(const Wide* at) { return load_as<Shorts>(at); }
inline Codes read(const Nibbles* at) { return load_as<Codes>(at); }

inline Bytes columns_of(Bytes read, int) { return read; }
inline Shorts columns_of(Shorts read, int) { return read; }
inline Shorts columns_of(Codes read, int s) { return (Shorts)((read >> (4 * s)) & 15); }

// sums[G][R] of x[words][R] and each of G panels, which lie `apart`; left: what a panel has until its end.
template <int R, int G, typename W>
inline void tile(const int32_t* x, const W* panels, int64_t apart, int64_t depth, int64_t left,
                 Ints (&out)[G][R][VECTORS]) {
    constexpr int64_t ELEMENTS = W::STEP * PANEL / W::SHARE, LEAD = AHEAD / sizeof(W);
    constexpr int WORDS = W::STEP / W::IN_WORD;
    Ints sums[G][R][VECTORS] = {};
    for (int64_t k = 0; k < depth; k += W::STEP, panels += ELEMENTS, x += WORDS * R, left -= ELEMENTS) {
        // Behind a panel's end come those that are being read already, and then what will be read next.
        const int64_t soon = LEAD + (LEAD < left ? 0 : (G - 1) * apart);
#pragma GCC unroll 4
        for (int g = 0; g < G; g++) {
            const W* at = panels + g * apart;
            if constexpr (R <= 4) __builtin_prefetch(at + soon);
            decltype(read(at)) codes[VECTORS];
#pragma GCC unroll 4
            for (int v = 0; v < VECTORS; v++) codes[v] = read(at + v * ELEMENTS / VECTORS);
#pragma GCC unroll 4
            for (int s = 0; s < WORDS; s++) {
                decltype(columns_of(codes[0], s)) columns[VECTORS];
#pragma GCC unroll 4
                for (int v = 0; v < VECTORS; v++) columns[v] = columns_of(codes[v], s);
#pragma GCC unroll 16
                for (int r = 0; r < R; r++) {
                    const Ints word = splat(x[s * R + r]);
#pragma GCC unroll 4
                    for (int v = 0; v < VECTORS; v++)
                        sums[g][r][v] = add_products(sums[g][r][v], columns[v], word);
                }
            }
        }
    }
    std::memcpy(&out, &sums, sizeof sums);
}

// What a piece's sums become: where they go, and what they are multiplied with.
template <typename S>
struct Target {
    float* data;       // [rows][columns]: of pieces before the last
    BFloat16* halves;  // and where the last one's go, in bfloat16; null: to `data`, too
    int64_t stride;
    int64_t columns;       // that there are, from the panel's first on
    const int32_t* shift;  // of a panel's columns: what is to be added to sums, or null
    const S* scale;        // of a panel's columns
    const S* offset;       // of a panel's columns, or null
    int64_t shift_apart, scale_apart;  // from one panel to the next
    const float* bias;     // of columns, or null
    const float* unit;     // of rows: what 1 stands for
    const float* totals;   // of rows, `apart` from one another: the sum of the piece's x
    int64_t apart;
    float center;
    bool first, last;  // of the pieces

    Target column(int64_t count) const {
        Target next = *this;
        const int64_t panels = count / PANEL;
        next.data += count, next.halves += halves ? count : 0;
        next.columns -= count, next.scale += panels * scale_apart;
        if (shift) next.shift += panels * shift_apart;
        if (offset) next.offset += panels * scale_apart;
        if (bias) next.bias += count;
        return next;
    }

    Target row(int64_t count) const {
        Target next = *this;
        next.data += count * stride, next.halves += halves ? count * stride : 0;
        next.unit += count, next.totals += count * apart;
        return next;
    }
};

inline void narrow_row(const float* from, BFloat16* to, int64_t count) {
    if (count == PANEL)
        for (int v = 0; v < VECTORS; v++) store(to + v * WIDTH, load(from + v * WIDTH));
    else
        for (int64_t i = 0; i < count; i++) narrow(from[i], to + i);
}

template <typename S>
inline void put(const Target<S>& out, int64_t row, const Ints (&sums)[VECTORS]) {
    float* line = out.data + row * out.stride;
    const bool whole = out.columns >= PANEL;
    float part[PANEL] = {};
    if (!whole) std::copy(line, line + out.columns, part);
    float* to = whole ? line : part;
    for (int v = 0; v < VECTORS; v++) {
        const Ints sum = out.shift ? sums[v] + load_as<Ints>(out.shift + v * WIDTH) : sums[v];
        const Floats scale = load(out.scale + v * WIDTH);
        Floats value = __builtin_convertvector(sum, Floats) * scale;
        if (out.offset) {
            const Floats offset = load(out.offset + v * WIDTH) - out.center * scale;
            value += out.totals[row * out.apart] * offset;
        }
        if (!out.first) value += load(to + v * WIDTH);
        if (out.last) {
            value *= splat(out.unit[row]);
            if (out.bias) value += load(out.bias + v * WIDTH);
        }
        store(to + v * WIDTH, value);
    }
    const int64_t columns = std::min(PANEL, out.columns);
    if (out.last && out.halves)
        narrow_row(to, out.halves + row * out.stride, columns);
    else if (!whole)
        std::copy(part, part + columns, line);
}

#if defined(TILES)
void put_rows(const int32_t* sums, int64_t rows, const Target<float>& out) {
    for (int64_t row = 0; row < rows; row++) {
        Ints columns[VECTORS];
        std::memcpy(columns, sums + row * PANEL, sizeof columns);
        put(out, row, columns);
    }
}
#endif

// Panels that lie `apart`, and the inputs of a piece of them.
template <typename W>
struct Block {
    const W* data;
    int64_t count, apart, depth, left;
};

template <int R, int G, typename W, typename S>
inline void tile_rows(const int32_t* x, const Block<W>& block, int64_t panel, const Target<S>& out) {
    Ints sums[G][R][VECTORS];
    tile<R, G>(x, block.data + panel * block.apart, block.apart, block.depth, block.left, sums);
    for (int g = 0; g < G; g++) {
        const Target<S> columns = out.column((panel + g) * PANEL);
        for (int r = 0; r < R; r++) put(columns, r, sums[g][r]);
    }
}

// Panels to go through at once. Each word of x for a step has a register, which nibbles have four of.
template <typename W, int R>
constexpr int at_once() {
    return W::STEP / W::IN_WORD > 1 ? std::min(TOGETHER<R>, 2) : TOGETHER<R>;
}

template <int R, typename W, typename S>
void all_panels(const int32_t* x, const Block<W>& block, const Target<S>& out) {
    constexpr int G = at_once<W, R>();
    int64_t panel = 0;
    for (; panel + G <= block.count; panel += G) tile_rows<R, G>(x, block, panel, out);
    for (; panel < block.count; panel++) tile_rows<R, 1>(x, block, panel, out);
}

template <int R, typename W, typename S>
void some_rows(int64_t rows, const int32_t* x, const Block<W>& block, const Target<S>& out) {
    if constexpr (R > 0) {
        if (rows == R)
            all_panels<R>(x, block, out);
        else
            some_rows<R - 1>(rows, x, block, out);
    }
}

// Rows of x that are multiplied together: words [words][rows], or of bytes by tiles [TILE_ROWS][words].
struct Tile {
    int64_t first, rows;
    int32_t* words;
    int64_t row_apart, word_apart;  // from a word to that of the next row, and to the next of the row
};

using Tiles = const Tile*;

// k: where in x the piece begins.
template <typename W, typename S>
void all_tiles(Tiles tiles, int64_t count, int64_t k, const Block<W>& block, const Target<S>& out) {
    for (Tiles x = tiles; x < tiles + count; x++)
        some_rows<ROWS>(x->rows, x->words + k / W::IN_WORD * x->rows, block, out.row(x->first));
}

// One panel of a piece, as 16-bit numbers.
template <typename W>
const Wide* widened(const Block<W>& block, Wide* wide) {
    const W* from = block.data;
    for (int64_t k = 0; k < block.depth; k += W::STEP, from += W::STEP * PANEL / W::SHARE)
        for (int s = 0; s < W::STEP / 2; s++)
            for (int v = 0; v < VECTORS; v++) {
                const Shorts columns = columns_of(read(from + v * W::STEP * WIDTH / W::SHARE), s);
                std::memcpy(wide + (k + 2 * s) * PANEL + v * 2 * WIDTH, &columns, sizeof columns);
            }
    return wide;
}

template <typename W, typename S>
void pass(Tiles tiles, int64_t count, int64_t k, const Block<W>& block, const Target<S>& out) {
    alignas(64) Wide wide[PIECE * PANEL];
    if (count == 1) return all_tiles(tiles, 1, k, block, out);
    for (int64_t panel = 0; panel < block.count; panel++) {
        const Block<W> one = {block.data + panel * block.apart, 1, block.apart, block.depth, block.left};
        const Target<S> columns = out.column(panel * PANEL);
        if constexpr (W::IN_WORD == 2)
            if (count >= WIDENED) {
                all_tiles(tiles, count, k, Block<Wide>{widened(one, wide), 1, 0, block.depth, 0}, columns);
                continue;
            }
        all_tiles(tiles, count, k, one, columns);
    }
}

struct Layer {
    const void* packed;
    // A panel's lie together, as its codes do: what is read in order is there when it is wanted.
    const int32_t* shift;        // [panels][pieces][PANEL]
    const void *scale, *offset;  // [panels][groups][PANEL]
    const float* bias;           // [panels * PANEL]
    int64_t depth, outputs, group;
    int in_word;

    int64_t panels() const { return (outputs + PANEL - 1) / PANEL; }
    int64_t piece() const { return std::min(in_word == 4 ? PIECE_OF_BYTES : PIECE, group); }
    int64_t pieces() const { return (depth + piece() - 1) / piece(); }
    int64_t groups() const { return (depth + group - 1) / group; }
};

struct Output {
    float* sums;
    BFloat16* halves;  // null: `sums` are it
};

// x as integers.
struct Input {
    std::unique_ptr<int32_t[]> words;  // by tiles
    std::unique_ptr<float[]> unit;     // [rows]
    std::unique_ptr<float[]> totals;   // [rows][pieces]
    std::vector<Tile> tiles;
};

// Where the sums of a piece go, from a panel on.
template <typename W>
Target<typename W::Scale> target_of(const Layer& layer, const Input& x, const Output& out, int64_t piece,
                                    int64_t panel) {
    using S = typename W::Scale;
    const int64_t pieces = layer.pieces(), groups = layer.groups();
    const int64_t line = (panel * groups + piece * layer.piece() / layer.group) * PANEL;
    return {
        out.sums + panel * PANEL,
        out.halves ? out.halves + panel * PANEL : nullptr,
        layer.outputs,
        layer.outputs - panel * PANEL,
        layer.shift ? layer.shift + (panel * pieces + piece) * PANEL : nullptr,
        (const S*)layer.scale + line,
        layer.offset ? (const S*)layer.offset + line : nullptr,
        pieces * PANEL,
        groups * PANEL,
        layer.bias ? layer.bias + panel * PANEL : nullptr,
        x.unit.get(),
        x.totals.get() + piece,
        pieces,
        W::CENTER,
        piece == 0,
        piece + 1 == pieces,
    };
}

template <typename W>
void multiply_piece(const Layer& layer, const Input& x, const Output& out, int64_t piece, int64_t tile, int64_t tiles,
                    int64_t panel, int64_t panels) {
    const int64_t k = piece * layer.piece();
    const int64_t apart = layer.depth * PANEL / W::SHARE;
    const W* data = (const W*)layer.packed + panel * apart + k * PANEL / W::SHARE;
    const Block<W> block = {data, panels, apart, std::min(layer.piece(), layer.depth - k),
                            apart - k * PANEL / W::SHARE};
    pass(x.tiles.data() + tile, tiles, k, block, target_of<W>(layer, x, out, piece, panel));
}

// Few rows go through panels from end to end, as they lie in memory. Of many, all pass a piece of a panel, which
// stays in the first-level cache, before the next comes.
template <typename W>
void multiply_panels(const Layer& layer, const Input& x, const Output& out, int64_t first, int64_t last) {
    const int64_t pieces = layer.pieces(), tiles = x.tiles.size();
    if (tiles == 1) {
        const int64_t rows = x.tiles[0].rows;
        const int64_t side = rows == 1 ? at_once<W, 1>() : rows == 2 ? at_once<W, 2>() : 1;
        for (int64_t panel = first; panel < last; panel += side)
            for (int64_t piece = 0; piece < pieces; piece++)
                multiply_piece<W>(layer, x, out, piece, 0, 1, panel, std::min(side, last - panel));
        return;
    }
    for (int64_t tile = 0; tile < tiles; tile += BAND)
        for (int64_t piece = 0; piece < pieces; piece++)
            multiply_piece<W>(layer, x, out, piece, tile, std::min(BAND, tiles - tile), first, last - first);
}

#if defined(TILES)
// By tiles, of which sums are as exact: two of x at once with both of a panel.
template <>
void multiply_panels<Fours>(const Layer& layer, const Input& x, const Output& out, int64_t first, int64_t last) {
    const WholeTiles registers;
    int32_t sums[2 * TILE_ROWS * PANEL];
    const int64_t tiles = x.tiles.size();
    for (int64_t panel = first; panel < last; panel++)
        for (int64_t piece = 0; piece < layer.pieces(); piece++) {
            const int64_t k = piece * layer.piece(), depth = std::min(layer.piece(), layer.depth - k);
            const int8_t* const codes = (const int8_t*)layer.packed + (panel * layer.depth + k) * PANEL;
            const Target<float> target = target_of<Fours>(layer, x, out, piece, panel);
            for (int64_t tile = 0; tile < tiles; tile += 2) {
                const uint8_t* const bytes = (const uint8_t*)x.tiles[tile].words + k;
                const int64_t both = std::min<int64_t>(2, tiles - tile);
                if (both == 2)
                    multiply_bytes<2>(bytes, layer.depth, codes, depth, sums);
                else
                    multiply_bytes<1>(bytes, layer.depth, codes, depth, sums);
                for (int64_t t = 0; t < both; t++)
                    put_rows(sums + t * TILE_ROWS * PANEL, x.tiles[tile + t].rows, target.row(x.tiles[tile + t].first));
            }
        }
}
#endif

template <typename W>
void multiply(const Layer& layer, const Input& x, const Output& out, int64_t begin, int64_t end, int threads) {
    turnout::share_out(threads, end - begin, PANELS_AT_ONCE, [&](int64_t first, int64_t last) {
        multiply_panels<W>(layer, x, out, begin + first, begin + last);
    });
}

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

inline float total(const int32_t* words, int64_t apart, int64_t begin, int64_t end) {
    int32_t sum = 0;
    for (int64_t k = begin; k < end; k += 2) sum += (int16_t)words[k / 2 * apart] + (words[k / 2 * apart] >> 16);
    return (float)sum;
}

template <typename X>
inline void round_tile(const X* x, int64_t stride, int64_t size, float levels, const Layer& layer,
                       const Input& to, const Tile& tile) {
    for (int64_t r = 0; r < tile.rows; r++) {
        const int64_t row = tile.first + r;
        const X* from = x + row * stride;
        int32_t* words = tile.words + r * tile.row_apart;
        const float most = largest(from, size), factor = most == most ? levels / most : 0.0f;
        to.unit[row] = most / levels;
        if (layer.in_word == 4)
            round_row<uint8_t>(from, size, factor, ZERO, words, tile.word_apart, layer.depth);
        else
            round_row<int16_t>(from, size, factor, 0, words, tile.word_apart, layer.depth);
        for (int64_t piece = 0; layer.offset && piece < layer.pieces(); piece++) {
            const int64_t begin = piece * layer.piece(), end = std::min(layer.depth, begin + layer.piece());
            to.totals[row * layer.pieces() + piece] = total(words, tile.word_apart, begin, end);
        }
    }
}

Input room_for(const Layer& layer, int64_t rows) {
    const int64_t words = layer.depth / layer.in_word;
    const bool by_tiles = TILE_ROWS > 0 && layer.in_word == 4;
    const int64_t padded = by_tiles ? (rows + TILE_ROWS - 1) / TILE_ROWS * TILE_ROWS : rows;
    Input input = {std::unique_ptr<int32_t[]>(new int32_t[padded * words]),
                   std::unique_ptr<float[]>(new float[rows]),
                   std::unique_ptr<float[]>(new float[rows * layer.pieces()]),
                   {}};
    for (int64_t row = 0, now; row < rows; row += now) {
        int32_t* const place = input.words.get() + row * words;
        now = by_tiles ? std::min(TILE_ROWS, rows - row) : next_rows(rows - row);
        input.tiles.push_back(by_tiles ? Tile{row, now, place, words, 1} : Tile{row, now, place, 1, now});
    }
    std::fill(input.words.get() + rows * words, input.words.get() + padded * words, 0);
    return input;
}

template <typename X>
void round_rows(const X* x, int64_t stride, int64_t size, float levels, const Layer& layer, const Input& to,
                int threads) {
    const int64_t tiles = to.tiles.size();
    turnout::share_out(threads, tiles, 1, [&](int64_t first, int64_t last) {
        for (int64_t tile = first; tile < last; tile++)
            round_tile(x, stride, size, levels, layer, to, to.tiles[tile]);
    });
}

// Rounds x, and computes the panels from `first` to before `last`.
void compute(const Layer& layer, const void* x, void* out, int64_t rows, int64_t inputs, int64_t stride, int kind,
             float levels, int half, int64_t first, int64_t last, int threads) {
    const Input input = room_for(layer, rows);
    const std::unique_ptr<float[]> room(half ? new float[rows * layer.outputs] : nullptr);
    const Output output = {half ? room.get() : (float*)out, half ? (BFloat16*)out : nullptr};
    if (half)
        round_rows((const BFloat16*)x, stride, inputs, levels, layer, input, threads);
    else
        round_rows((const float*)x, stride, inputs, levels, layer, input, threads);
    if (kind == 0)
        multiply<Fours>(layer, input, output, first, last, threads);
    else if (kind == 1)
        multiply<Pairs>(layer, input, output, first, last, threads);
    else
        multiply<Nibbles>(layer, input, output, first, last, threads);
}

}  // namespace

void integer_panels(const Linear& linear, const void* x, void* out, int64_t rows, int half, int64_t first,
                    int64_t last) {
    const int kind = (int)(linear.kind - INTEGERS);
    const Layer layer = {linear.numbers, linear.shift, linear.scale, linear.offset, (const float*)linear.bias,
                         linear.depth, linear.outputs, linear.group, kind == 0 ? 4 : 2};
    compute(layer, x, out, rows, linear.inputs, linear.inputs, kind, (float)linear.levels, half, first, last, 1);
}

extern "C" {

// What stands for 0 in the bytes of x.
int turnout_integer_zero() { return ZERO; }

// Inputs of a layer of bytes, W8A8, come in multiples of this; missing ones are zeros.
int64_t turnout_bytes_unit() { return BYTES_UNIT; }

// out: [rows][outputs]; x: [rows][inputs], rows `stride` apart, of which each is rounded to whole numbers of at
// most `levels`; both bfloat16 if `half`, else float32; depth: `inputs` and the zeros behind them; group: inputs that share a scale;
// kind: 0 Fours, 1 Pairs, 2 Nibbles, whose scale and offset are bfloat16; shift: for Fours,
// -ZERO times the sum of a column's codes.
void turnout_integer_linear(const void* packed, const int32_t* shift, const void* scale, const void* offset,
                            const float* bias, const void* x, void* out, int64_t rows, int64_t inputs,
                            int64_t depth, int64_t outputs, int64_t group, int64_t stride, int kind,
                            float levels, int half, int threads) {
    const Layer layer = {packed, shift, scale, offset, bias, depth, outputs, group, kind == 0 ? 4 : 2};
    compute(layer, x, out, rows, inputs, stride, kind, levels, half, 0, layer.panels(), threads);
}
}
