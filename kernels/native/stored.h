// How keys and values are stored: as floats, as bfloat16, or as codes of 8 bits with a scale in bfloat16 for each vector.
// Codes are whole numbers, or float8_e4m3fn (Micikevicius et al., "FP8 Formats for Deep Learning", 2022).
#pragma once

#include <algorithm>

#include "kernels.h"
#include "vector.h"

struct Fp8 {
    uint8_t bits;
};

template <typename T>
constexpr bool IS_CODE = sizeof(T) == 1;

template <typename T>
constexpr float TOP = std::is_same_v<T, int8_t> ? 127.0f : 448.0f;  // the largest code

constexpr float LEAST_SCALE = 1.17549435e-38f;  // so that vectors of zeros can be divided by theirs

inline float widen(int8_t x) { return x; }

// Numbers below 2^-6 are multiples of 2^-9; the others have float32's form, with fewer bits.
inline Floats load(const Fp8* from) {
    const Words bits = (Words)load_whole((const int8_t*)from), size = bits & 0x7fu;
    const Floats small = __builtin_convertvector((Ints)size, Floats) * 0x1p-9f;
    const Floats normal = (Floats)((size << 20) + (120u << 23));
    return (Floats)((Words)(size < 8u ? small : normal) | (bits & 0x80000000u));
}

inline float widen(Fp8 x) {
    Fp8 all[WIDTH] = {x};
    return load(all)[0];
}

// WIDTH pairs of bfloat16, as words: codes are among its numbers.

inline Floats load_pairs(const BFloat16* from) { return load_as<Floats>(from); }

template <typename Code>
inline Floats load_pairs(const Code* from) {
#if defined(__AVX512BF16__)
    return (Floats)_mm512_cvtne2ps_pbh((__m512)load(from + WIDTH), (__m512)load(from));
#else
    Halves pairs[2];
    for (int half = 0; half < 2; half++)
        pairs[half] = __builtin_convertvector((Words)load(from + half * WIDTH) >> 16, Halves);
    return load_as<Floats>(pairs);
#endif
}

inline BFloat16 as_half(BFloat16 x) { return x; }

template <typename Code>
inline BFloat16 as_half(Code x) {
    BFloat16 half;
    narrow(widen(x), &half);
    return half;
}

// Both round to nearest even. x: up to TOP in size, and what rounds to it.

inline void store(int8_t* to, Floats x) {
    const Floats magic = splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to a whole number
    const SmallInts kept = narrowed(__builtin_convertvector((x + magic) - magic, Ints));
    std::memcpy(to, &kept, sizeof kept);
}

inline void store(Fp8* to, Floats x) {
    const Words bits = (Words)x, size = bits & 0x7fffffffu;
    const Floats magic = splat(0x1.8p14f);  // adding it rounds to a multiple of 2^-9
    const Floats multiple = (((Floats)size + magic) - magic) * 512.0f;
    const Words small = (Words)__builtin_convertvector(multiple, Ints);
    const Words normal = ((size + 0x7ffffu + ((size >> 20) & 1u)) >> 20) - (120u << 3);
    const Words code = ((Floats)size < splat(0x1p-6f) ? small : normal) | ((bits >> 24) & 0x80u);
    const SmallInts kept = narrowed((Ints)code);
    std::memcpy(to, &kept, sizeof kept);
}

// A vector as codes; returns their scale.
template <typename X, typename Code>
inline BFloat16 encode(const X* x, int64_t dim, Code* codes) {
    BFloat16 scale;
    const float most = largest_size(x, dim);
    narrow(most < TOP<Code> * LEAST_SCALE ? LEAST_SCALE : most / TOP<Code>, &scale);
    const Floats by = splat(widen(scale));
    int64_t i = 0;
    for (; i + WIDTH <= dim; i += WIDTH) store(codes + i, load(x + i) / by);
    if (i < dim) {
        float rest[WIDTH] = {};
        Code kept[WIDTH];
        for (int64_t k = i; k < dim; k++) rest[k - i] = widen(x[k]);
        store(kept, load(rest) / by);
        std::copy_n(kept, dim - i, codes + i);
    }
    return scale;
}
