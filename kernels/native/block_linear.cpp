// x @ weight.T (+ bias), with weights in blocks. x is not rounded: sums are the same, to the bit, as of the float32
// weights code * scale that linear.cpp would pack, in the same order.

#include <algorithm>
#include <memory>

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#include "blocks.h"
#include "kernels.h"
#include "linears.h"
#include "panel_rows.h"
#include "team.h"

namespace {

constexpr int64_t DEPTH = 256;                 // inputs that are summed before they are added to others: as linear.cpp
constexpr int64_t BAND = 16 * ROWS;            // of x that stay in the second-level cache
constexpr int64_t PANELS_AT_ONCE = 4;          // that a thread takes at least
constexpr int64_t NUMBERS_AT_ONCE = 1 << 14;

typedef int8_t Small __attribute__((vector_size(WIDTH)));
typedef uint8_t SmallCounts __attribute__((vector_size(WIDTH)));
typedef int16_t Wider __attribute__((vector_size(WIDTH * 2)));

// float16, by float32's bits: an exponent that is too small by 112, also where it is 0.
inline Floats widened(const uint16_t* halves) {
    const Words bits = __builtin_convertvector(load_as<Halves>(halves), Words);
    const Floats size = (Floats)((bits & 0x7fffu) << 13) * 0x1p112f;
    return (Floats)((Words)size | ((bits & 0x8000u) << 16));
}

// Bytes. GCC takes each by itself where it is to become four times as wide at once: there is an instruction for that,
// and elsewhere they become twice as wide at a time.
#if defined(__AVX512F__)
inline Floats widened(const int8_t* bytes) {
    return __builtin_convertvector((Ints)_mm512_cvtepi8_epi32(load_as<__m128i>(bytes)), Floats);
}
inline Floats widened(const uint8_t* bytes) {
    return __builtin_convertvector((Ints)_mm512_cvtepu8_epi32(load_as<__m128i>(bytes)), Floats);
}
#else
inline Floats widened(const int8_t* bytes) {
    const Wider wider = __builtin_convertvector(load_as<Small>(bytes), Wider);
    return __builtin_convertvector(__builtin_convertvector(wider, Ints), Floats);
}
inline Floats widened(const uint8_t* bytes) {
    const Wider wider = __builtin_convertvector(load_as<SmallCounts>(bytes), Wider);
    return __builtin_convertvector(__builtin_convertvector(wider, Ints), Floats);
}
#endif

// The numbers of a word's lowest nibble, of which ZERO stands for 0.
template <int ZERO>
inline Floats of_nibble(Words words) {
#if defined(__AVX512F__)
    const Floats numbers = {0 - ZERO, 1 - ZERO, 2 - ZERO,  3 - ZERO,  4 - ZERO,  5 - ZERO,  6 - ZERO,  7 - ZERO,
                            8 - ZERO, 9 - ZERO, 10 - ZERO, 11 - ZERO, 12 - ZERO, 13 - ZERO, 14 - ZERO, 15 - ZERO};
    return __builtin_shuffle(numbers, (Ints)words);
#else
    return __builtin_convertvector((Ints)(words & 15u) - ZERO, Floats);
#endif
}

// The numbers of six bits: `low`'s lowest four and `high`'s lowest two.
inline Floats of_six(Words low, Words high) {
#if defined(__AVX512F__)
    const Floats sixteens = {-32, -16, 0, 16, -32, -16, 0, 16, -32, -16, 0, 16, -32, -16, 0, 16};
    return of_nibble<0>(low) + __builtin_shuffle(sixteens, (Ints)high);
#else
    return __builtin_convertvector((Ints)((low & 15u) | (high & 3u) << 4) - 32, Floats);
#endif
}

// What is read of WIDTH columns at once, for STEP inputs, and of that the codes of input s.
template <typename B>
struct Read;

template <>
struct Read<Block8> {
    static constexpr int STEP = 1;
    Floats codes;
    Read() = default;
    Read(const Block8& block, int64_t k, int v) : codes(widened(block.codes[k] + v * WIDTH)) {}
    Floats input(int) const { return codes; }
};

template <>
struct Read<Block4> {
    static constexpr int STEP = 8;
    Words words;
    Read() = default;
    Read(const Block4& block, int64_t k, int v) : words(load_as<Words>(block.codes[k / 8] + v * WIDTH)) {}
    Floats input(int s) const { return of_nibble<8>(words >> (4 * s)); }
};

template <>
struct Read<Block4K> {
    static constexpr int STEP = 8;
    Words words;
    Read() = default;
    Read(const Block4K& block, int64_t k, int v) : words(load_as<Words>(block.codes[k / 8] + v * WIDTH)) {}
    Floats input(int s) const { return of_nibble<0>(words >> (4 * s)); }
};

template <>
struct Read<Block6K> {
    static constexpr int STEP = 8;
    Words low, high;
    Read() = default;
    Read(const Block6K& block, int64_t k, int v)
        : low(load_as<Words>(block.low[k / 8] + v * WIDTH)),
          high(__builtin_convertvector(load_as<Halves>(block.high[k / 8] + v * WIDTH), Words)) {}
    Floats input(int s) const { return of_six(low >> (4 * s), high >> (2 * s)); }
};

// What makes weights of the codes of WIDTH columns, for SHARED inputs. Products of codes and scales are exact in
// float32: one rounding is left where an offset is taken away, as in the numbers that the file stands for.
template <typename B>
struct Scale {
    Floats scale;
    Scale() = default;
    Scale(const B& block, int64_t, int v) : scale(widened(block.scale + v * WIDTH)) {}
    Floats weight(Floats code) const { return code * scale; }
};

template <>
struct Scale<Block4K> {
    Floats scale, offset;
    Scale() = default;
    Scale(const Block4K& block, int64_t k, int v)
        : scale(widened(block.scale + v * WIDTH) * widened(block.scales[k / Block4K::SHARED] + v * WIDTH)),
          offset(widened(block.offset + v * WIDTH) * widened(block.offsets[k / Block4K::SHARED] + v * WIDTH)) {}
    Floats weight(Floats code) const { return code * scale - offset; }
};

template <>
struct Scale<Block6K> {
    Floats scale;
    Scale() = default;
    Scale(const Block6K& block, int64_t k, int v)
        : scale(widened(block.scale + v * WIDTH) * widened(block.scales[k / Block6K::SHARED] + v * WIDTH)) {}
    Floats weight(Floats code) const { return code * scale; }
};

// As tile.h's, of blocks.
template <int R, int G, typename B>
inline void tile_blocks(Matrix x, const B* panels, int64_t apart, int64_t depth, Floats (&out)[G][R][VECTORS]) {
    Floats sums[G][R][VECTORS] = {};
    for (int64_t begin = 0; begin < depth; begin += B::INPUTS, panels++)
        for (int64_t part = 0; part < B::INPUTS; part += B::SHARED) {
            Scale<B> scale[G][VECTORS];
#pragma GCC unroll 4
            for (int g = 0; g < G; g++)
#pragma GCC unroll 4
                for (int v = 0; v < VECTORS; v++) scale[g][v] = Scale<B>(panels[g * apart], part, v);
            for (int64_t k = part; k < part + B::SHARED; k += Read<B>::STEP) {
                Read<B> read[G][VECTORS];
#pragma GCC unroll 4
                for (int g = 0; g < G; g++) {
                    const B& block = panels[g * apart];
                    if constexpr (R <= FETCHED)
                        __builtin_prefetch((const char*)&block + AHEAD + k * sizeof(B) / B::INPUTS);
#pragma GCC unroll 4
                    for (int v = 0; v < VECTORS; v++) read[g][v] = Read<B>(block, k, v);
                }
#pragma GCC unroll 8
                for (int s = 0; s < Read<B>::STEP; s++)
#pragma GCC unroll 4
                    for (int g = 0; g < G; g++) {
                        Floats columns[VECTORS];
#pragma GCC unroll 4
                        for (int v = 0; v < VECTORS; v++) columns[v] = scale[g][v].weight(read[g][v].input(s));
#pragma GCC unroll 16
                        for (int r = 0; r < R; r++) {
                            const Floats value = splat(x.data[r * x.stride + begin + k + s]);
#pragma GCC unroll 4
                            for (int v = 0; v < VECTORS; v++) sums[g][r][v] += value * columns[v];
                        }
                    }
            }
        }
    std::memcpy(&out, &sums, sizeof sums);
}

struct Blocks {
    const void* packed;
    const float* bias;
    int64_t inputs, outputs;

    int64_t panels() const { return (outputs + PANEL - 1) / PANEL; }

    template <typename B>
    int64_t blocks() const {
        return inputs / B::INPUTS;
    }

    template <typename B>
    const B* at(int64_t panel, int64_t k) const {
        return (const B*)packed + panel * blocks<B>() + k / B::INPUTS;
    }

    Target target(float* out, int64_t panel, int64_t k) const {
        return {out + panel * PANEL, outputs, outputs - panel * PANEL, k == 0 && bias ? bias + panel * PANEL : nullptr,
                k > 0};
    }
};

template <int R, int G, typename B>
void few_columns(Matrix x, const Blocks& layer, float* out, int64_t panel) {
    for (int64_t k = 0; k < layer.inputs; k += DEPTH) {
        Floats sums[G][R][VECTORS];
        tile_blocks<R, G>({x.data + k, x.stride}, layer.at<B>(panel, k), layer.blocks<B>(),
                          std::min(DEPTH, layer.inputs - k), sums);
        Target target = layer.target(out, panel, k);
        for (int g = 0; g < G; g++, target = target.next())
            for (int r = 0; r < R; r++) put(target, r, sums[g][r]);
    }
}

// Few rows go through panels from end to end, as they lie in memory.
template <int R, typename B>
void few_rows(Matrix x, const Blocks& layer, float* out, int64_t panel, int64_t last) {
    for (; panel + TOGETHER<R> <= last; panel += TOGETHER<R>) few_columns<R, TOGETHER<R>, B>(x, layer, out, panel);
    for (; panel < last; panel++) few_columns<R, 1, B>(x, layer, out, panel);
}

template <typename B>
void widen_panel(const B* blocks, int64_t depth, float* to) {
    for (int64_t begin = 0; begin < depth; begin += B::INPUTS, blocks++)
        for (int64_t part = 0; part < B::INPUTS; part += B::SHARED)
            for (int v = 0; v < VECTORS; v++) {
                const Scale<B> scale(*blocks, part, v);
                for (int64_t k = part; k < part + B::SHARED; k += Read<B>::STEP) {
                    const Read<B> read(*blocks, k, v);
                    for (int s = 0; s < Read<B>::STEP; s++)
                        store(to + (begin + k + s) * PANEL + v * WIDTH, scale.weight(read.input(s)));
                }
            }
}

// Of many rows, all pass a piece of a panel, widened once for all of them, before the next comes.
template <typename B>
void many_rows(int64_t rows, Matrix x, const Blocks& layer, float* out, int64_t first, int64_t last) {
    alignas(64) float wide[DEPTH * PANEL];
    for (int64_t band = 0; band < rows; band += BAND)
        for (int64_t k = 0; k < layer.inputs; k += DEPTH)
            for (int64_t panel = first; panel < last; panel++) {
                const int64_t depth = std::min(DEPTH, layer.inputs - k);
                widen_panel(layer.at<B>(panel, k), depth, wide);
                const Matrix part = {x.data + band * x.stride + k, x.stride};
                all_rows(std::min(BAND, rows - band), part, wide, {1, 0}, depth,
                         layer.target(out + band * layer.outputs, panel, k));
            }
}

template <typename B>
void multiply(int64_t rows, Matrix x, const Blocks& layer, float* out, int64_t first, int64_t last) {
    if (rows > ROWS)
        many_rows<B>(rows, x, layer, out, first, last);
    else
        for_rows(rows, [&](auto count) { few_rows<count(), B>(x, layer, out, first, last); });
}

void multiply(int64_t rows, Matrix x, const Blocks& layer, float* out, int type, int64_t first, int64_t last) {
    with_blocks(type, [&](auto* of) { multiply<Pointed<decltype(of)>>(rows, x, layer, out, first, last); });
}

// Rows of bfloat16, widened, with room for the sums behind them.
std::unique_ptr<float[]> widened_rows(const BFloat16* x, int64_t rows, int64_t stride, const Blocks& layer) {
    std::unique_ptr<float[]> room(new float[rows * (layer.inputs + layer.outputs)]);
    for (int64_t row = 0; row < rows; row++)
        for (int64_t k = 0; k < layer.inputs; k += WIDTH)
            store(room.get() + row * layer.inputs + k, load(x + row * stride + k));
    return room;
}

template <typename B>
void gather(const B* packed, const int64_t* tokens, float* out, int64_t count, int64_t inputs) {
    for (int64_t row = 0; row < count; row++) {
        const B* block = packed + tokens[row] / PANEL * (inputs / B::INPUTS);
        const int64_t column = tokens[row] % PANEL, lane = column % WIDTH;
        const int v = (int)(column / WIDTH);
        for (int64_t k = 0; k < inputs; k += Read<B>::STEP) {
            const B& of = block[k / B::INPUTS];
            const int64_t in_block = k % B::INPUTS;
            const Scale<B> scale(of, in_block, v);
            const Read<B> read(of, in_block, v);
            for (int s = 0; s < Read<B>::STEP; s++) out[row * inputs + k + s] = scale.weight(read.input(s))[lane];
        }
    }
}

}  // namespace

void block_panels(const Linear& linear, const void* x, void* out, int64_t rows, int half, int64_t first, int64_t last) {
    const Blocks layer = {linear.numbers, (const float*)linear.bias, linear.inputs, linear.outputs};
    const int type = (int)(linear.kind - BLOCKS);
    if (!half) return multiply(rows, {(const float*)x, linear.inputs}, layer, (float*)out, type, first, last);
    const auto room = widened_rows((const BFloat16*)x, rows, linear.inputs, layer);
    float* const sums = room.get() + rows * linear.inputs;
    multiply(rows, {room.get(), linear.inputs}, layer, sums, type, first, last);
    for (int64_t row = 0; row < rows; row++)
        for (int64_t i = first * PANEL; i < std::min(last * PANEL, linear.outputs); i++)
            narrow(sums[row * linear.outputs + i], (BFloat16*)out + row * linear.outputs + i);
}

extern "C" {

// out: [rows][outputs]; x: [rows][inputs], rows `stride` apart; both bfloat16 if `half`, else float32; bias:
// float32, or null; type: of blocks.
void turnout_block_linear(const void* packed, const float* bias, const void* x, void* out, int64_t rows,
                          int64_t inputs, int64_t outputs, int64_t stride, int type, int half, int threads) {
    const Blocks layer = {packed, bias, inputs, outputs};
    Matrix wide = {(const float*)x, stride};
    float* sums = (float*)out;
    std::unique_ptr<float[]> room;
    if (half) {
        room = widened_rows((const BFloat16*)x, rows, stride, layer);
        wide = {room.get(), inputs}, sums = room.get() + rows * inputs;
    }
    turnout::share_out(threads, layer.panels(), PANELS_AT_ONCE, [&](int64_t first, int64_t last) {
        multiply(rows, wide, layer, sums, type, first, last);
    });
    if (half)
        turnout::share_out(threads, rows * outputs, NUMBERS_AT_ONCE, [&](int64_t first, int64_t last) {
            for (int64_t i = first; i < last; i++) narrow(sums[i], (BFloat16*)out + i);
        });
}

// out: float32 [count][inputs], the rows `tokens` of the weight that was packed.
void turnout_block_gather(const void* packed, const int64_t* tokens, float* out, int64_t count, int64_t inputs,
                          int type) {
    with_blocks(type, [&](auto* of) { gather((decltype(of))packed, tokens, out, count, inputs); });
}
}
