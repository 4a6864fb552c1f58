// Vectors of the machine's width, and bfloat16, by the compiler's own vector types: no intrinsics but
// where there is an instruction for what takes many otherwise.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__) || defined(TILES)
constexpr int WIDTH = 16;
#elif defined(__AVX__)
constexpr int WIDTH = 8;
#else
constexpr int WIDTH = 4;
#endif

typedef float Floats __attribute__((vector_size(WIDTH * 4)));
typedef uint32_t Words __attribute__((vector_size(WIDTH * 4)));
typedef int32_t Ints __attribute__((vector_size(WIDTH * 4)));
typedef uint16_t Halves __attribute__((vector_size(WIDTH * 2)));
typedef int16_t NarrowInts __attribute__((vector_size(WIDTH * 2)));
typedef int8_t SmallInts __attribute__((vector_size(WIDTH)));

struct BFloat16 {
    uint16_t bits;
};

// Memory is read and written by memcpy, which compiles to one unaligned move.

template <typename V, typename T>
inline V load_as(const T* from) {
    V x;
    std::memcpy(&x, from, sizeof x);
    return x;
}

inline Floats load(const float* from) { return load_as<Floats>(from); }

inline Floats load(const BFloat16* from) {
    return (Floats)(__builtin_convertvector(load_as<Halves>(from), Words) << 16);
}

// Bytes. GCC takes each by itself where it is to become four times as wide, or as narrow, at once: there is an
// instruction for that, and elsewhere this happens in two steps.

inline Ints load_whole(const int8_t* from) {
#if defined(__AVX512F__)
    return (Ints)_mm512_cvtepi8_epi32(load_as<__m128i>(from));
#elif defined(__AVX2__) && !defined(TILES)
    return (Ints)_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i*)from));
#else
    return __builtin_convertvector(__builtin_convertvector(load_as<SmallInts>(from), NarrowInts), Ints);
#endif
}

inline Floats load(const int8_t* from) { return __builtin_convertvector(load_whole(from), Floats); }

inline SmallInts narrowed(Ints x) {
#if defined(__AVX512F__)
    return (SmallInts)_mm512_cvtepi32_epi8((__m512i)x);
#else
    return __builtin_convertvector(__builtin_convertvector(x, NarrowInts), SmallInts);
#endif
}

inline void store(float* to, Floats x) { std::memcpy(to, &x, sizeof x); }

// Rounds to nearest even; NaN stays NaN. (The instruction takes the smallest numbers, below 2^-126, for zeros.)
inline void store(BFloat16* to, Floats x) {
#if defined(__AVX512BF16__)
    const __m256bh kept = _mm512_cvtneps_pbh((__m512)x);
#else
    const Words bits = (Words)x;
    const Words rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    const Words nan = (bits >> 16) | 0x40u;
    const Halves kept = __builtin_convertvector((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded, Halves);
#endif
    std::memcpy(to, &kept, sizeof kept);
}

inline float widen(float x) { return x; }

inline float widen(BFloat16 x) {
    const uint32_t bits = (uint32_t)x.bits << 16;
    float wide;
    std::memcpy(&wide, &bits, sizeof wide);
    return wide;
}

inline void narrow(float x, float* to) { *to = x; }

inline void narrow(float x, BFloat16* to) {
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
    to->bits = (uint16_t)(nan ? (bits >> 16) | 0x40u : (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// What T keeps of x.
template <typename T>
inline Floats rounded_to(Floats x) {
    if constexpr (sizeof(T) == sizeof(float)) return x;
    T kept[WIDTH];
    store(kept, x);
    return load(kept);
}

template <typename T>
inline float rounded_to(float x) {
    T kept;
    narrow(x, &kept);
    return widen(kept);
}

// x as it is, rounded: compilers do not multiply and add in one operation across this, as they may elsewhere.
inline Floats rounded(Floats x) {
#if defined(__x86_64__) && (defined(__AVX512F__) || !defined(TILES))
    asm("" : "+v"(x));
#elif defined(__aarch64__)
    asm("" : "+w"(x));
#else
    asm("" : "+m"(x));
#endif
    return x;
}

inline Floats splat(float x) { return x - Floats{}; }

inline float sum(Floats x) {
    float total = 0;
    for (int lane = 0; lane < WIDTH; lane++) total += x[lane];
    return total;
}

// Of two of which one is NaN, both are the second.

inline Floats larger(Floats a, Floats b) { return a > b ? a : b; }

inline Floats smaller(Floats a, Floats b) { return a < b ? a : b; }

// The largest size among x. What is not a number, or infinite, makes the result NaN.
template <typename X>
inline float largest_size(const X* x, int64_t count) {
    Floats most = {}, wrong = {};
    int64_t i = 0;
    for (; i + WIDTH <= count; i += WIDTH) {
        const Floats value = load(x + i);
        most = larger(most, larger(value, -value));
        wrong += value - value;
    }
    float found = 0, rest = sum(wrong);
    for (int lane = 0; lane < WIDTH; lane++) found = most[lane] > found ? most[lane] : found;
    for (; i < count; i++) {
        const float value = widen(x[i]), size = value < 0 ? -value : value;
        found = size > found ? size : found;
        rest += value - value;
    }
    return found + rest;
}

// The hyperbolic tangent, to a few units in the last place: a rational function of x, as Eigen has it. NaN stays NaN.
inline Floats tangent(Floats x) {
    x = larger(splat(-7.90531110763549805f), smaller(splat(7.90531110763549805f), x));
    const Floats y = x * x;
    Floats p = splat(-2.76076847742355e-16f);
    p = p * y + 2.00018790482477e-13f;
    p = p * y + -8.60467152213735e-11f;
    p = p * y + 5.12229709037114e-08f;
    p = p * y + 1.48572235717979e-05f;
    p = p * y + 6.37261928875436e-04f;
    p = p * y + 4.89352455891786e-03f;
    Floats q = splat(1.19825839466702e-06f);
    q = q * y + 1.18534705686654e-04f;
    q = q * y + 2.26843463243900e-03f;
    q = q * y + 4.89352518554385e-03f;
    return x * p / q;
}

// exp for x up to 88, to 2 units in the last place; 0 below -87. Cephes' polynomial.
inline Floats exponential(Floats x) {
    const Floats lowest = splat(-87.3f);
    const Floats clamped = larger(x, lowest);
    const Floats scaled = clamped * 1.44269504f;
    const Floats magic = splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to a whole number
    const Floats whole = (scaled + magic) - magic;
    const Floats r = (clamped - whole * 0.693359375f) - whole * -2.12194440e-4f;
    Floats p = splat(1.9875691500e-4f);
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    const Ints power = (__builtin_convertvector(whole, Ints) + 127) << 23;
    const Floats result = p * (Floats)power;
    return x < lowest ? Floats{} : result;
}
