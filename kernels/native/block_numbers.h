// Codes of blocks as whole numbers in bfloat16, which holds them as they are, in pairs; and what becomes of their sums:
// only the sum of what shares a scale meets it.
#pragma once

#include <algorithm>

#include "block_codes.h"

static_assert(PANEL == 32 && WIDTH == 16);

namespace {

// A step takes the inputs that share a scale: as many as a tile has in a row, or half of them.
template <typename B>
constexpr int64_t INPUTS = B::SHARED;

typedef uint16_t Shorts __attribute__((vector_size(WIDTH * 4)));

// A whole number as bfloat16.
constexpr uint16_t bits_of(int number) {
    if (number == 0) return 0;
    const int size = number < 0 ? -number : number;
    int exponent = 0;
    while (size >> (exponent + 1)) exponent++;
    return (uint16_t)((number < 0) << 15 | (127 + exponent) << 7 | ((size << (7 - exponent)) & 127));
}

// What codes stand for, of which only the lowest four bits count.
template <int ZERO>
struct Numbers {
    alignas(64) uint16_t of[2 * WIDTH];
    constexpr Numbers() : of() {
        for (int code = 0; code < 2 * WIDTH; code++) of[code] = bits_of(code % 16 - ZERO);
    }
};

template <int ZERO>
constexpr Numbers<ZERO> NUMBERS;

inline Shorts look_up(Shorts numbers, Shorts codes) {
#if defined(__AVX512BW__)  // GCC would take a look-up in two vectors
    return (Shorts)_mm512_permutexvar_epi16((__m512i)codes, (__m512i)numbers);
#else
    return __builtin_shuffle(numbers, codes);
#endif
}

// Whole numbers of eight bits at most, in pairs.
inline Words paired(Floats first, Floats second) { return ((Words)first >> 16) | ((Words)second & 0xffff0000u); }

// The codes of WIDTH columns at eight inputs: as floats, and as pairs, of 0 and 4, 1 and 5, 2 and 6, 3 and 7.
template <typename B>
struct Eight;

template <typename B, int ZERO>
struct FourBits {
    Read<B> read;

    FourBits() = default;
    FourBits(const B& block, int64_t k, int v) : read(block, k, v) {}
    Floats input(int s) const { return read.input(s); }
    Words pair(int s) const {
        return (Words)look_up(load_as<Shorts>(NUMBERS<ZERO>.of), (Shorts)read.words >> (uint16_t)(4 * s));
    }
};

template <>
struct Eight<Block4> : FourBits<Block4, 8> {
    using FourBits::FourBits;
};

template <>
struct Eight<Block4K> : FourBits<Block4K, 0> {
    using FourBits::FourBits;
};

template <>
struct Eight<Block6K> {
    Read<Block6K> read;

    Eight() = default;
    Eight(const Block6K& block, int64_t k, int v) : read(block, k, v) {}
    Floats input(int s) const { return read.input(s); }
    Words pair(int s) const { return paired(input(s), input(s + 4)); }
};

template <>
struct Eight<Block8> {
    const int8_t* codes;

    Eight() = default;
    Eight(const Block8& block, int64_t k, int v) : codes(block.codes[k] + v * WIDTH) {}
    Floats input(int s) const { return widened(codes + s * PANEL); }
    Words pair(int s) const { return paired(input(s), input(s + 4)); }
};

// Codes of a panel at a step: [INPUTS / 2][PANEL] pairs.
template <typename B>
inline void widen(const B& block, int64_t part, uint32_t* to) {
#pragma GCC unroll 4
    for (int64_t k = 0; k < INPUTS<B>; k += 8) {
        fetch_ahead<8>(block, part + k);
#pragma GCC unroll 2
        for (int v = 0; v < VECTORS; v++) {
            const Eight<B> codes(block, part + k, v);
#pragma GCC unroll 4
            for (int s = 0; s < 4; s++) {
                const Words found = codes.pair(s);
                std::memcpy(to + (k / 2 + s) * PANEL + v * WIDTH, &found, sizeof found);
            }
        }
    }
}

// The numbers of x at a step, in the order of the codes' pairs.
template <typename B>
inline void put_pairs(const BFloat16* from, void* to) {
    typedef uint16_t Few __attribute__((vector_size(16)));
    for (int64_t k = 0; k < INPUTS<B>; k += 8) {
        const Few ordered = __builtin_shuffle(load_as<Few>(from + k), Few{0, 4, 1, 5, 2, 6, 3, 7});
        std::memcpy((uint16_t*)to + k, &ordered, sizeof ordered);
    }
}

// Whether the sum of x at a step is needed, too.
template <typename B>
constexpr bool HAS_OFFSETS = std::is_same_v<B, Block4K>;

template <typename B>
inline Floats with_block(Floats total, const Scale<B>& scale, Floats sum, float) {
    return total + scale.scale * sum;
}

inline Floats with_block(Floats total, const Scale<Block4K>& scale, Floats sum, float x) {
    return (total + scale.scale * sum) - scale.offset * splat(x);
}

// The totals of a row and a panel, [PANEL], become what the layer puts out.
inline void put(const float* total, const Blocks& layer, BFloat16* row, int64_t panel) {
    const int64_t first = panel * PANEL, count = std::min(PANEL, layer.outputs - first);
    const auto add_bias = [&](const float* bias, BFloat16* to) {
        for (int v = 0; v < VECTORS; v++) store(to + v * WIDTH, load(total + v * WIDTH) + load(bias + v * WIDTH));
    };
    float none[PANEL] = {};
    if (count == PANEL) return add_bias(layer.bias ? layer.bias + first : none, row + first);
    if (layer.bias) std::copy_n(layer.bias + first, count, none);
    BFloat16 kept[PANEL];
    add_bias(none, kept);
    std::copy_n(kept, count, row + first);
}

}  // namespace
