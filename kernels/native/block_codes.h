// What blocks hold: codes as floats, and scales, of a vector of columns.
#pragma once

#if defined(__F16C__)
#include <immintrin.h>
#endif

#include "blocks.h"

namespace {

typedef uint8_t SmallCounts __attribute__((vector_size(WIDTH)));

// float16, by float32's bits: an exponent that is too small by 112, also where it is 0.
inline Floats widened(const uint16_t* halves) {
#if defined(__AVX512F__)
    return (Floats)_mm512_cvtph_ps(load_as<__m256i>(halves));
#elif defined(__F16C__) && !defined(TILES)
    return (Floats)_mm256_cvtph_ps(load_as<__m128i>(halves));
#else
    const Words bits = __builtin_convertvector(load_as<Halves>(halves), Words);
    const Floats size = (Floats)((bits & 0x7fffu) << 13) * 0x1p112f;
    return (Floats)((Words)size | ((bits & 0x8000u) << 16));
#endif
}

inline Floats widened(const int8_t* bytes) { return load(bytes); }

#if defined(__AVX512F__)
inline Floats widened(const uint8_t* bytes) {
    return __builtin_convertvector((Ints)_mm512_cvtepu8_epi32(load_as<__m128i>(bytes)), Floats);
}
#else
inline Floats widened(const uint8_t* bytes) {  // in two steps, as `load_whole`
    const NarrowInts wider = __builtin_convertvector(load_as<SmallCounts>(bytes), NarrowInts);
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

// What of a block comes near while the codes of `INPUTS` of its inputs are read: all, or a fourth beside each pair.
template <int INPUTS, int FOURTHS = 1, typename B>
inline void fetch_ahead(const B& block, int64_t k, int fourth = 0) {
    constexpr int64_t BYTES = (int64_t)sizeof(B) * INPUTS / B::INPUTS;
    const char* const soon = (const char*)&block + AHEAD + k / INPUTS * BYTES;
#pragma GCC unroll 8
    for (int64_t i = 64 * fourth; i < BYTES; i += 64 * FOURTHS) __builtin_prefetch(soon + i);
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

// The scales, and offsets, of WIDTH columns for SHARED inputs.
template <typename B>
struct Scale {
    Floats scale;
    Scale() = default;
    Scale(const B& block, int64_t, int v) : scale(widened(block.scale + v * WIDTH)) {}
};

template <>
struct Scale<Block4K> {
    Floats scale, offset;
    Scale() = default;
    Scale(const Block4K& block, int64_t k, int v)
        : scale(widened(block.scale + v * WIDTH) * widened(block.scales[k / Block4K::SHARED] + v * WIDTH)),
          offset(widened(block.offset + v * WIDTH) * widened(block.offsets[k / Block4K::SHARED] + v * WIDTH)) {}
};

template <>
struct Scale<Block6K> {
    Floats scale;
    Scale() = default;
    Scale(const Block6K& block, int64_t k, int v)
        : scale(widened(block.scale + v * WIDTH) * widened(block.scales[k / Block6K::SHARED] + v * WIDTH)) {}
};

}  // namespace
