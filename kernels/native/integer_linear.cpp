// x @ weight.T (+ bias), with weights of 8 or 4 bits, and x rounded to integers, a scale for each row.
//
//   Fours     int8    [N / PANEL][K / 4][PANEL][4]     x: unsigned bytes, of which ZERO stands for 0
//   Pairs     int8    [N / PANEL][K / 4][PANEL][4]     x: 16 bits; a panel: PANEL output columns side by side
//   Nibbles   uint32  [N / PANEL][K / 8][PANEL]        x: 16 bits; the low nibbles of bytes are inputs 8k to 8k + 3
//
// K is a multiple of 8 here, for Fours of BYTES_UNIT: what is missing is zeros. Sums of products are exact over a piece
// of K; pieces are added up as floats, always in the same order: a row's results do not depend on how many rows there
// are. x and what comes out are float32 or bfloat16.
// weight = (code - CENTER) * scale + offset, for each output and group of inputs.

#include <algorithm>
#include <cmath>
#include <memory>

#include "collectives.h"
#include "integer_input.h"
#include "integer_target.h"
#include "linears.h"
#include "team.h"
#if defined(TILES)
#include "gate.h"
#include "tile_product.h"
#endif

namespace {

constexpr int64_t PANELS_AT_ONCE = 4;  // that a thread takes at least
constexpr int64_t NUMBERS_AT_ONCE = 1 << 14;  // the same, where it only looks for the largest
constexpr int64_t BAND = 16;    // tiles of x that stay in the second-level cache, of a piece
constexpr int64_t WIDENED = 3;  // tiles, from which on it pays to widen codes once for all of them

// STEP: inputs that are read at once; IN_WORD: numbers in a word of x; SHARE: codes in an element.
// read: of WIDTH columns; columns: of that the weights for word s.
struct Fours {
    static constexpr int64_t STEP = 4, IN_WORD = 4, SHARE = 1;
    static constexpr float CENTER = 0;
    using Scale = float;
    int8_t code;

    static Bytes read(const Fours* at) { return load_as<Bytes>(at); }
    static Bytes columns(Bytes read, int) { return read; }
};
struct Pairs {
    static constexpr int64_t STEP = 4, IN_WORD = 2, SHARE = 1;
    static constexpr float CENTER = 0;
    using Scale = float;
    int8_t code;

    static Shorts read(const Pairs* at) { return load_as<Shorts>(at); }
    static Shorts columns(Shorts read, int s) { return (s ? read : read << 8) >> 8; }
};
struct Wide {  // pairs, widened
    static constexpr int64_t STEP = 2, IN_WORD = 2, SHARE = 1;
    int16_t code;

    static Shorts read(const Wide* at) { return load_as<Shorts>(at); }
    static Shorts columns(Shorts read, int) { return read; }
};
struct Nibbles {
    static constexpr int64_t STEP = 8, IN_WORD = 2, SHARE = 8;
    static constexpr float CENTER = 8;  // so that offsets are small, and lose little as bfloat16
    using Scale = BFloat16;
    uint32_t codes;

    static Codes read(const Nibbles* at) { return load_as<Codes>(at); }
    static Shorts columns(Codes read, int s) {
        constexpr int PLACES[] = {0, 2, 1, 3};
        return (Shorts)((read >> (4 * PLACES[s])) & 15);
    }
};

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
            decltype(W::read(at)) codes[VECTORS];
#pragma GCC unroll 4
            for (int v = 0; v < VECTORS; v++) codes[v] = W::read(at + v * ELEMENTS / VECTORS);
#pragma GCC unroll 4
            for (int s = 0; s < WORDS; s++) {
                decltype(W::columns(codes[0], s)) columns[VECTORS];
#pragma GCC unroll 4
                for (int v = 0; v < VECTORS; v++) columns[v] = W::columns(codes[v], s);
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
    return W::STEP / W::IN_WORD > 2 ? std::min(TOGETHER<R>, 2) : TOGETHER<R>;
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
                const Shorts columns = W::columns(W::read(from + v * W::STEP * WIDTH / W::SHARE), s);
                std::memcpy(wide + (k + 2 * s) * PANEL + v * 2 * WIDTH, &columns, sizeof columns);
            }
    return wide;
}

#if defined(TILES)

// The codes of one panel of a piece, as bytes [depth / 4][PANEL][4], behind `lead` inputs of zeros and before zeros up to
// a multiple of BYTES_UNIT.
const int8_t* bytes_of(const Block<Pairs>& block, int64_t lead, int8_t* room) {
    if (!lead && block.depth % BYTES_UNIT == 0) return &block.data->code;
    std::copy_n(&block.data->code, block.depth * PANEL, room + lead * PANEL);
    return room;
}

const int8_t* bytes_of(const Block<Nibbles>& block, int64_t lead, int8_t* room) {
    for (int64_t i = 0; i < block.depth / 8 * PANEL; i += WIDTH) {
        const Words words = load_as<Words>(block.data + i);
        const Words four[] = {words & 0x0f0f0f0fu, (words >> 4) & 0x0f0f0f0fu};
        int8_t* const to = room + lead * PANEL + i / PANEL * 8 * PANEL + i % PANEL * 4;
        for (int half = 0; half < 2; half++) std::memcpy(to + half * 4 * PANEL, &four[half], sizeof four[half]);
    }
    return room;
}

// sums: of low bytes, and of high ones.
template <typename S>
void put_parts(const int32_t* sums, int64_t rows, const Target<S>& out) {
    for (int64_t row = 0; row < rows; row++) {
        Ints columns[VECTORS];
        for (int v = 0; v < VECTORS; v++)
            columns[v] = load_as<Ints>(sums + row * PANEL + v * WIDTH) +
                         load_as<Ints>(sums + (TILE_ROWS + row) * PANEL + v * WIDTH) * 256;
        put(out, row, columns);
    }
}

// k: where the piece begins, perhaps within a step of tiles.
template <typename W, typename S>
void pass_parts(const Input& x, int64_t tile, int64_t count, int64_t k, const Block<W>& block, const Target<S>& out) {
    alignas(64) int8_t room[(PIECE + BYTES_UNIT) * PANEL];
    alignas(64) int32_t sums[2 * TILE_ROWS * PANEL];
    const int64_t lead = k % BYTES_UNIT, steps = (lead + block.depth + BYTES_UNIT - 1) / BYTES_UNIT;
    std::fill(room, room + lead * PANEL, 0);
    std::fill(room + (lead + block.depth) * PANEL, room + steps * BYTES_UNIT * PANEL, 0);
    for (int64_t panel = 0; panel < block.count; panel++) {
        const Block<W> one = {block.data + panel * block.apart, 1, 0, block.depth, 0};
        const int8_t* const codes = bytes_of(one, lead, room);
        const Target<S> columns = out.column(panel * PANEL);
        for (int64_t t = tile; t < tile + count; t++) {
            multiply_parts(x.by_tiles.at(t * BLOCK, k / BYTES_UNIT), codes, steps, sums);
            put_parts(sums, x.tiles[t].rows, columns.row(x.tiles[t].first));
        }
    }
}

#endif

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

struct Output {
    float* sums;       // null: there is but one piece, whose go to `halves`
    BFloat16* halves;  // null: `sums` are it
    int32_t* exact;    // instead of both; null: there is no need for it
    int64_t stride;
};

// Where the sums of a piece go, from a panel on.
template <typename W>
Target<typename W::Scale> target_of(const Layer& layer, const Input& x, const Output& out, int64_t piece,
                                    int64_t panel) {
    using S = typename W::Scale;
    const int64_t pieces = layer.pieces(), groups = layer.groups();
    const int64_t line = (panel * groups + piece * layer.piece() / layer.group) * PANEL;
    return {
        out.sums ? out.sums + panel * PANEL : nullptr,
        out.halves ? out.halves + panel * PANEL : nullptr,
        out.exact ? out.exact + panel * PANEL : nullptr,
        out.stride,
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
    const auto target = target_of<W>(layer, x, out, piece, panel);
#if defined(TILES)
    if constexpr (W::IN_WORD == 2)
        if (x.order == Order::PARTS)
            return pass_parts(x, tile, tiles, k, block, target);
#endif
    pass(x.tiles.data() + tile, tiles, k, block, target);
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

PlainPanels panels_of(const Layer& layer, const Input& x) { return {(const uint8_t*)layer.packed, x.by_tiles.steps}; }

// Bytes by tiles, whose sums are as exact.
void multiply_bytes(const Layer& layer, const Input& x, const Output& out, int64_t begin, int64_t end, int threads) {
    for (int64_t piece = 0; piece < layer.pieces(); piece++) {
        const int64_t k = piece * layer.piece(), till = std::min(layer.depth, k + layer.piece());
        const Target<float> target = target_of<Fours>(layer, x, out, piece, 0);
        const auto finish = [&](int64_t first, int64_t rows, int64_t panel, const int32_t* sums, const int32_t*) {
            const Target<float> to = target.column(panel * PANEL).row(first);
            for (int64_t row = 0; row < rows; row++) {
                Ints columns[VECTORS];
                std::memcpy(columns, sums + row * PANEL, sizeof columns);
                put(to, row, columns);
            }
        };
        const int64_t size = target.to_halves() ? sizeof(BFloat16) : sizeof(float);
        const void* const data = target.to_halves() ? (const void*)target.halves : target.data;
        const OutLines lines = {(const char*)data, out.stride * size, PANEL * size};
        tile_product<Numbers::BYTES>(x.by_tiles, panels_of(layer, x), k / STEP, till / STEP, 0, lines, finish)
            .run(begin, end, threads);
    }
}

// out: [rows][size], of a layer of so many gates and then so many ups.
void multiply_gated_bytes(const Layer& layer, const Input& x, BFloat16* out, int64_t size, int threads) {
    const int64_t panels = size / PANEL;
    const Target<float> target = target_of<Fours>(layer, x, {nullptr, nullptr, nullptr, 0}, 0, 0);
    const auto finish = [&](int64_t first, int64_t rows, int64_t panel, const int32_t* gates, const int32_t* ups) {
        const Target<float> of_gate = target.column(panel * PANEL).row(first);
        const Target<float> of_up = target.column((panels + panel) * PANEL).row(first);
        BFloat16* to = out + first * size + panel * PANEL;
        for (int64_t row = 0; row < rows; row++, to += size, gates += PANEL, ups += PANEL) {
            Ints sums[VECTORS];
            Floats gate[VECTORS], up[VECTORS];
            std::memcpy(sums, gates, sizeof sums), results(of_gate, row, sums, nullptr, gate);
            std::memcpy(sums, ups, sizeof sums), results(of_up, row, sums, nullptr, up);
            for (int v = 0; v < VECTORS; v++)
                store(to + v * WIDTH,
                      gated<BFloat16>(rounded_to<BFloat16>(gate[v]), rounded_to<BFloat16>(up[v])));
        }
    };
    const OutLines lines = {(const char*)out, size * (int64_t)sizeof(BFloat16), PANEL * (int64_t)sizeof(BFloat16)};
    tile_product<Numbers::BYTES>(x.by_tiles, panels_of(layer, x), 0, x.by_tiles.steps, panels, lines, finish)
        .run(0, panels, threads);
}

#endif

template <typename W>
void multiply(const Layer& layer, const Input& x, const Output& out, int64_t begin, int64_t end, int threads) {
#if defined(TILES)
    if (x.order == Order::BYTES) return multiply_bytes(layer, x, out, begin, end, threads);
#endif
    turnout::share_out(threads, end - begin, PANELS_AT_ONCE, [&](int64_t first, int64_t last) {
#if defined(TILES)
        const WholeTiles registers;
#endif
        multiply_panels<W>(layer, x, out, begin + first, begin + last);
    });
}

Input input_of(const Layer& layer, const void* x, int64_t rows, int64_t inputs, int64_t stride, float levels,
               const float* most_of, int half, int threads) {
    Input input = room_for(layer, rows);
    if (half)
        round_rows((const BFloat16*)x, stride, inputs, levels, most_of, layer, input, threads);
    else
        round_rows((const float*)x, stride, inputs, levels, most_of, layer, input, threads);
    return input;
}

// Rounds x, and computes the panels from `first` to before `last`.
void compute(const Layer& layer, const void* x, void* out, int64_t rows, int64_t inputs, int64_t stride, int kind,
             float levels, const float* most_of, int half, int64_t first, int64_t last, int threads) {
    const Input input = input_of(layer, x, rows, inputs, stride, levels, most_of, half, threads);
    const bool sums = half && layer.pieces() > 1;
    const std::unique_ptr<float[]> room(sums ? new float[rows * layer.outputs] : nullptr);
    const Output output = {half ? room.get() : (float*)out, half ? (BFloat16*)out : nullptr, nullptr, layer.outputs};
    if (kind == 0)
        multiply<Fours>(layer, input, output, first, last, threads);
    else if (kind == 1)
        multiply<Pairs>(layer, input, output, first, last, threads);
    else
        multiply<Nibbles>(layer, input, output, first, last, threads);
}

// sums: [rows][panels * PANEL], of bytes, before anything is made of them.
void sum_bytes(const Layer& layer, const void* x, int32_t* sums, int64_t rows, int64_t inputs, int64_t stride,
               float levels, const float* most_of, int half, int threads) {
    const Input input = input_of(layer, x, rows, inputs, stride, levels, most_of, half, threads);
    const Output output = {(float*)sums, nullptr, sums, layer.panels() * PANEL};
    multiply<Fours>(layer, input, output, 0, layer.panels(), threads);
}

// out[rows][outputs] of such sums: by `put`, which makes it of a layer's at once.
void finish_sums(const int32_t* sums, const float* scale, const float* bias, const float* most_of, void* out,
                 int64_t rows, int64_t outputs, float levels, int half, int threads) {
    const int64_t panels = (outputs + PANEL - 1) / PANEL;
    turnout::share_out(threads, rows, NUMBERS_AT_ONCE / outputs + 1, [&](int64_t first, int64_t last) {
        for (int64_t row = first; row < last; row++) {
            const float unit = most_of[row] / levels;
            float* const data = half ? nullptr : (float*)out + row * outputs;
            BFloat16* const halves = half ? (BFloat16*)out + row * outputs : nullptr;
            const Target<float> target = {data, halves, nullptr, 0, outputs, nullptr, scale, nullptr, 0, PANEL,
                                          bias, &unit, nullptr, 0, 0, true, true};
            for (int64_t panel = 0; panel < panels; panel++) {
                Ints columns[VECTORS];
                std::memcpy(columns, sums + (row * panels + panel) * PANEL, sizeof columns);
                put(target.column(panel * PANEL), 0, columns);
            }
        }
    });
}

}  // namespace

void integer_panels(const Linear& linear, const void* x, void* out, int64_t rows, int half, int64_t first,
                    int64_t last, const float* most_of) {
    const int kind = (int)(linear.kind - INTEGERS);
    const Layer layer = {linear.numbers, linear.shift, linear.scale, linear.offset, (const float*)linear.bias,
                         linear.depth, linear.outputs, linear.group, kind == 0 ? 4 : 2};
    compute(layer, x, out, rows, linear.inputs, linear.inputs, kind, (float)linear.levels, most_of, half, first, last,
            1);
}

#if defined(TILES)
bool gated_bytes(const Linear& linear, const void* x, void* out, int64_t rows, int threads) {
    const Layer layer = {linear.numbers, linear.shift, linear.scale, linear.offset, (const float*)linear.bias,
                         linear.depth, linear.outputs, linear.group, 4};
    if (layer.pieces() > 1) return false;
    const Input input = input_of(layer, x, rows, linear.inputs, linear.inputs, (float)linear.levels, nullptr, true,
                                 threads);
    multiply_gated_bytes(layer, input, (BFloat16*)out, linear.outputs / 2, threads);
    return true;
}
#endif

bool largest_of_ranks(void* group, const void* x, float* most, int64_t rows, int64_t inputs, int half, int threads) {
    turnout::share_out(threads, rows, NUMBERS_AT_ONCE / inputs + 1, [&](int64_t first, int64_t last) {
        for (int64_t row = first; row < last; row++) {
            const float own = half ? largest((const BFloat16*)x + row * inputs, inputs)
                                   : largest((const float*)x + row * inputs, inputs);
            most[row] = own == own ? own : INFINITY;  // which wins on all ranks, as no number would not
        }
    });
    return !turnout_group_all_reduce(group, most, rows, COLLECTIVE_FLOAT32, true, threads);
}

bool adds_integers(const Linear& layer, const void* group) {
    return layer.kind == INTEGERS && layer.inputs * turnout_group_ranks(group) <= PIECE_OF_BYTES;
}

bool integer_linear_of_ranks(const Linear& linear, void* group, const void* x, void* out, int64_t rows, int half,
                             int threads) {
    const Layer layer = {linear.numbers, linear.shift, linear.scale, nullptr, nullptr, linear.depth, linear.outputs,
                         linear.group, 4};
    const int64_t count = rows * layer.panels() * PANEL;
    const std::unique_ptr<float[]> most(new float[rows]);
    const std::unique_ptr<int32_t[]> sums(new int32_t[count]);
    const float levels = (float)linear.levels;
    if (!largest_of_ranks(group, x, most.get(), rows, linear.inputs, half, threads)) return false;
    sum_bytes(layer, x, sums.get(), rows, linear.inputs, linear.inputs, levels, most.get(), half, threads);
    if (turnout_group_all_reduce(group, sums.get(), count, COLLECTIVE_INT32, false, threads)) return false;
    finish_sums(sums.get(), (const float*)linear.scale, (const float*)linear.bias, most.get(), out, rows,
                linear.outputs, levels, half, threads);
    return true;
}

extern "C" {

// What stands for 0 in the bytes of x.
int turnout_integer_zero() { return ZERO; }

// Inputs of a layer of bytes, W8A8, come in multiples of this; missing ones are zeros.
int64_t turnout_bytes_unit() { return BYTES_UNIT; }

// out: [rows][outputs]; x: [rows][inputs], rows `stride` apart, of which each is rounded to whole numbers of at
// most `levels`; both bfloat16 if `half`, else float32; depth: `inputs` and the zeros behind them; group: inputs that share a scale;
// kind: 0 Fours, 1 Pairs, 2 Nibbles, whose scale and offset are bfloat16; shift: for Fours,
// -ZERO times the sum of a column's codes; most_of: what each row is rounded by, null: its largest number.
void turnout_integer_linear(const void* packed, const int32_t* shift, const void* scale, const void* offset,
                            const float* bias, const void* x, void* out, int64_t rows, int64_t inputs,
                            int64_t depth, int64_t outputs, int64_t group, int64_t stride, int kind,
                            float levels, int half, int threads, const float* most_of) {
    const Layer layer = {packed, shift, scale, offset, bias, depth, outputs, group, kind == 0 ? 4 : 2};
    compute(layer, x, out, rows, inputs, stride, kind, levels, most_of, half, 0, layer.panels(), threads);
}

// sums: int32 [rows][panels * PANEL], of Fours, as ranks add them up; most_of: what each row is rounded by, by all.
void turnout_integer_exact(const void* packed, const int32_t* shift, const float* scale, const void* x, int32_t* sums,
                           int64_t rows, int64_t inputs, int64_t depth, int64_t outputs, int64_t stride, float levels,
                           int half, int threads, const float* most_of) {
    const Layer layer = {packed, shift, scale, nullptr, nullptr, depth, outputs, depth, 4};
    sum_bytes(layer, x, sums, rows, inputs, stride, levels, most_of, half, threads);
}

// out: [rows][outputs] of the sums of all ranks.
void turnout_integer_finish(const int32_t* sums, const float* scale, const float* bias, const float* most_of, void* out,
                            int64_t rows, int64_t outputs, float levels, int half, int threads) {
    finish_sums(sums, scale, bias, most_of, out, rows, outputs, levels, half, threads);
}
}
