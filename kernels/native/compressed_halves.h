// Panels of bfloat16 numbers in three quarters of their bytes, without loss: of 1,024 weights that lie together,
// nearly all exponents are among 15 that follow one another (ZipNN: Hershcovitch et al., 2024; DFloat11: Zhang et al.,
// 2025). A product of few rows takes as long as reading its weights does, and expanding them is faster than that.
//
//   numbers     [panels][steps][8][3][64 bytes]: of 128 numbers, the signs and fractions of 64, those of the others,
//               and codes of exponents, of which the first 64 are in the low halves of bytes
//   bases       [panels][steps], bytes: an exponent is base + code; code 0: it is 0
//   ranges      [panels]: where in `exceptions` those of a panel begin, and how many they are
//   exceptions  numbers with other exponents
#pragma once

#include <algorithm>

#include "tile_rows.h"
#include "vector.h"

#if defined(__AVX512VBMI2__)
#include <immintrin.h>
#endif

constexpr int64_t NUMBERS_OF_STEP = 2 * TILE / (int64_t)sizeof(BFloat16);
constexpr int64_t COMPRESSED_STEP = NUMBERS_OF_STEP * 3 / 2;  // bytes
constexpr int CODES = 16;

struct Exception {
    uint32_t place;  // in its panel
    uint32_t bits;
};

struct Range {
    uint32_t first, count;
};

struct CompressedPanels {
    int64_t steps;
    uint8_t *numbers, *bases;
    Range* ranges;
    Exception* exceptions;

    CompressedPanels(const void* data, int64_t panels, int64_t steps)
        : steps(steps),
          numbers((uint8_t*)data),
          bases(numbers + panels * steps * COMPRESSED_STEP),
          ranges((Range*)(bases + (panels * steps + 7) / 8 * 8)),
          exceptions((Exception*)(ranges + panels)) {}

    // Of a layer with room for so many exceptions.
    static int64_t bytes(int64_t panels, int64_t steps, int64_t room) {
        return panels * steps * COMPRESSED_STEP + (panels * steps + 7) / 8 * 8 + panels * (int64_t)sizeof(Range) +
               room * (int64_t)sizeof(Exception);
    }

    uint8_t* at(int64_t panel, int64_t step) const { return numbers + (panel * steps + step) * COMPRESSED_STEP; }
    const Exception* begin(int64_t panel) const { return exceptions + ranges[panel].first; }
    const Exception* end(int64_t panel) const { return begin(panel) + ranges[panel].count; }
};

// Where instructions of vectors put the byte of a number, of 64, and the other way.
constexpr int byte_of(int number) { return number % 32 / 8 * 16 + number / 32 * 8 + number % 8; }
constexpr int number_of(int byte) { return byte % 16 / 8 * 32 + byte / 16 * 8 + byte % 8; }

#if defined(__AVX512VBMI2__)

inline void expand_numbers(const uint8_t* from, uint8_t base, uint8_t* to) {
    const __m512i low = _mm512_set1_epi8(CODES - 1), bases = _mm512_set1_epi8((char)base);
    const auto put = [&](__m512i rest, __m512i codes) {
        const __m512i exponents = _mm512_maskz_add_epi8(_mm512_test_epi8_mask(codes, codes), codes, bases);
        const __m512i first = _mm512_unpacklo_epi8(rest, exponents), second = _mm512_unpackhi_epi8(rest, exponents);
        _mm512_storeu_si512(to, _mm512_shrdi_epi16(first, first, 1));
        _mm512_storeu_si512(to + STEP, _mm512_shrdi_epi16(second, second, 1));
        to += 2 * STEP;
    };
    for (const uint8_t* end = from + COMPRESSED_STEP; from < end; from += 3 * STEP) {
        const __m512i codes = _mm512_loadu_si512(from + 2 * STEP);
        put(_mm512_loadu_si512(from), _mm512_and_si512(codes, low));
        put(_mm512_loadu_si512(from + STEP), _mm512_and_si512(_mm512_srli_epi16(codes, 4), low));
    }
}

#else

inline void expand_numbers(const uint8_t* from, uint8_t base, uint8_t* to) {
    for (int64_t i = 0; i < NUMBERS_OF_STEP; i++) {
        const uint8_t* const group = from + i / 128 * 3 * STEP;
        const int byte = byte_of(i % 64), second = i / 64 % 2;
        const uint8_t code = (uint8_t)(group[2 * STEP + byte] >> 4 * second & (CODES - 1));
        const uint16_t exponent = code ? (uint8_t)(code + base) : 0, rest = group[second * STEP + byte];
        const uint16_t bits = (uint16_t)(rest << 15 | exponent << 7 | rest >> 1);
        std::memcpy(to + i * sizeof bits, &bits, sizeof bits);
    }
}

#endif

// Expands the steps of a panel one after the other, from a given one on.
class Expansion {
   public:
    Expansion(const CompressedPanels& all, int64_t panel, int64_t from)
        : numbers(all.at(panel, from)), base(all.bases + panel * all.steps + from), at(from * NUMBERS_OF_STEP),
          exception(all.begin(panel)), last(all.end(panel)) {
        while (exception < last && exception->place < at) exception++;
    }

    // Writes the next step, [2][16][64 bytes].
    void next(uint8_t* to) {
        expand_numbers(numbers, *base++, to);
        for (; exception < last && exception->place < at + NUMBERS_OF_STEP; exception++) {
            const uint16_t bits = (uint16_t)exception->bits;
            std::memcpy(to + (exception->place - at) * sizeof bits, &bits, sizeof bits);
        }
        numbers += COMPRESSED_STEP, at += NUMBERS_OF_STEP;
    }

   private:
    const uint8_t *numbers, *base;
    int64_t at;
    const Exception *exception, *last;
};

// Compresses a step, and returns its base; calls `except(place, bits)` for each number whose exponent no code tells.
#if defined(__AVX512VBMI2__)

template <typename Except>
inline uint8_t compress_numbers(const uint16_t* numbers, uint8_t* to, const Except& except) {
    constexpr int VECTORS_OF_STEP = NUMBERS_OF_STEP / 64;
    const __m512i low = _mm512_set1_epi16(255);
    __m512i exponents[VECTORS_OF_STEP], rest[VECTORS_OF_STEP], most = _mm512_setzero_si512();
    for (int i = 0; i < VECTORS_OF_STEP; i++) {
        __m512i first = _mm512_loadu_si512(numbers + i * 64), second = _mm512_loadu_si512(numbers + i * 64 + 32);
        first = _mm512_shldi_epi16(first, first, 1), second = _mm512_shldi_epi16(second, second, 1);
        rest[i] = _mm512_packus_epi16(_mm512_and_si512(first, low), _mm512_and_si512(second, low));
        exponents[i] = _mm512_packus_epi16(_mm512_srli_epi16(first, 8), _mm512_srli_epi16(second, 8));
        most = _mm512_max_epu8(most, exponents[i]);
    }
    alignas(64) uint8_t largest[64];
    _mm512_store_si512(largest, most);
    const uint8_t base = (uint8_t)std::max(0, *std::max_element(largest, largest + 64) - (CODES - 1));
    const __m512i bases = _mm512_set1_epi8((char)base);
    for (int i = 0; i < VECTORS_OF_STEP; i += 2, to += 3 * STEP) {
        __m512i codes[2];
        for (int half = 0; half < 2; half++) {
            const __m512i own = exponents[i + half];
            codes[half] = _mm512_subs_epu8(own, bases);
            uint64_t lost = _mm512_test_epi8_mask(own, own) & ~_mm512_test_epi8_mask(codes[half], codes[half]);
            for (; lost; lost &= lost - 1) {
                const int place = (i + half) * 64 + number_of(__builtin_ctzll(lost));
                except(place, numbers[place]);
            }
            _mm512_storeu_si512(to + half * STEP, rest[i + half]);
        }
        _mm512_storeu_si512(to + 2 * STEP, _mm512_or_si512(codes[0], _mm512_slli_epi16(codes[1], 4)));
    }
    return base;
}

#else

template <typename Except>
inline uint8_t compress_numbers(const uint16_t* numbers, uint8_t* to, const Except& except) {
    int most = 0;
    for (int64_t i = 0; i < NUMBERS_OF_STEP; i++) most = std::max(most, numbers[i] >> 7 & 255);
    const int base = std::max(0, most - (CODES - 1));
    std::memset(to, 0, COMPRESSED_STEP);
    for (int64_t i = 0; i < NUMBERS_OF_STEP; i++) {
        uint8_t* const group = to + i / 128 * 3 * STEP;
        const int byte = byte_of(i % 64), second = i / 64 % 2, exponent = numbers[i] >> 7 & 255;
        const int code = std::max(0, exponent - base);
        if (exponent && !code) except(i, numbers[i]);
        group[second * STEP + byte] = (uint8_t)(numbers[i] << 1 | numbers[i] >> 15);
        group[2 * STEP + byte] |= (uint8_t)(code << 4 * second);
    }
    return (uint8_t)base;
}

#endif
