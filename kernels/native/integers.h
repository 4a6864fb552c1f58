// Vectors of integers, which CPUs multiply and add up in pairs of 16 bits or fours of 8: more products an
// instruction than of floats.
#pragma once

#include <algorithm>

#include "vector.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

typedef int16_t Shorts __attribute__((vector_size(WIDTH * 4)));
typedef uint16_t Codes __attribute__((vector_size(WIDTH * 4)));
typedef int8_t Bytes __attribute__((vector_size(WIDTH * 4)));

// The only instructions by name: compilers do not find them by themselves.
#if defined(__AVX512BW__)
#define MULTIPLIES 1
inline Shorts products_of_pairs(Bytes x, Bytes w) {
    return (Shorts)_mm512_maddubs_epi16((__m512i)x, (__m512i)w);
}
inline Ints products_of_pairs(Shorts a, Shorts b) { return (Ints)_mm512_madd_epi16((__m512i)a, (__m512i)b); }
#elif defined(__AVX2__) && !defined(__AVX512F__) && !defined(TILES)
#define MULTIPLIES 1
inline Shorts products_of_pairs(Bytes x, Bytes w) {
    return (Shorts)_mm256_maddubs_epi16((__m256i)x, (__m256i)w);
}
inline Ints products_of_pairs(Shorts a, Shorts b) { return (Ints)_mm256_madd_epi16((__m256i)a, (__m256i)b); }
#if defined(__AVXVNNI__)
#define HALF_VNNI 1  // of vectors half as wide as AVX-512's
#endif
#endif

// sum + a[0] * b[0] + a[1] * b[1] in each lane of 32 bits, of 16-bit numbers.
inline Ints add_products(Ints sum, Shorts a, Ints b) {
#if defined(__AVX512VNNI__)
    return (Ints)_mm512_dpwssd_epi32((__m512i)sum, (__m512i)a, (__m512i)b);
#elif defined(HALF_VNNI)
    return (Ints)_mm256_dpwssd_avx_epi32((__m256i)sum, (__m256i)a, (__m256i)b);
#elif defined(MULTIPLIES)
    return sum + products_of_pairs(a, (Shorts)b);
#else
    return sum + (((Ints)a << 16) >> 16) * ((b << 16) >> 16) + ((Ints)a >> 16) * (b >> 16);
#endif
}

// sum + Σ a[i] * b[i] in each lane of 32 bits, of four bytes each, those of b unsigned. Without instructions
// for it, sums of two products have 16 bits: b is to be below 128 there.
inline Ints add_products(Ints sum, Bytes a, Ints b) {
#if defined(__AVX512VNNI__)
    return (Ints)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)b, (__m512i)a);
#elif defined(HALF_VNNI)
    return (Ints)_mm256_dpbusd_avx_epi32((__m256i)sum, (__m256i)b, (__m256i)a);
#elif defined(MULTIPLIES)
    return sum + products_of_pairs(products_of_pairs((Bytes)b, a), Shorts{} + 1);
#else
    const Ints w = (Ints)a;
    sum += ((w << 24) >> 24) * (b & 255) + ((w << 16) >> 24) * ((b >> 8) & 255);
    return sum + ((w << 8) >> 24) * ((b >> 16) & 255) + (w >> 24) * ((b >> 24) & 255);
#endif
}

#if defined(MULTIPLIES) && !defined(__AVX512VNNI__) && !defined(HALF_VNNI)
constexpr int UNSIGNED_BITS = 7;
#else
constexpr int UNSIGNED_BITS = 8;
#endif

inline Ints splat(int32_t word) { return word - Ints{}; }

// The largest size, by which integers are scaled; not 0.
template <typename X>
inline float largest(const X* x, int64_t size) {
    const float most = largest_size(x, size);
    return most < 1e-30f ? 1e-30f : most;
}
