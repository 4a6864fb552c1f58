// Squares of WIDTH vectors, whose rows become columns.
#pragma once

#include <utility>

#include "vector.h"

template <int STEP, bool HIGH, int... LANES>
inline Floats interleave(Floats a, Floats b, std::integer_sequence<int, LANES...>) {
    if constexpr (HIGH)
        return __builtin_shufflevector(a, b, ((LANES & STEP) ? WIDTH + LANES : LANES + STEP)...);
    else
        return __builtin_shufflevector(a, b, ((LANES & STEP) ? WIDTH + LANES - STEP : LANES)...);
}

template <int STEP>
inline void transpose(Floats (&x)[WIDTH]) {
    if constexpr (STEP < WIDTH) {
        constexpr auto lanes = std::make_integer_sequence<int, WIDTH>{};
#pragma GCC unroll 16
        for (int i = 0; i < WIDTH; i++)
            if (!(i & STEP)) {
                const Floats low = interleave<STEP, false>(x[i], x[i + STEP], lanes);
                x[i + STEP] = interleave<STEP, true>(x[i], x[i + STEP], lanes);
                x[i] = low;
            }
        transpose<2 * STEP>(x);
    }
}
