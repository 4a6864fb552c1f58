// Pairs of bfloat16 numbers in words of 32 bits, the first in the low half, and a tile of a matrix product of them.
#pragma once

#include "tile.h"

inline Words splat(uint32_t word) { return word - Words{}; }

// sum + a[0] * b[0] + a[1] * b[1] in each lane.
inline Floats add_pairs(Floats sum, Words a, Words b) {
#if defined(__AVX512BF16__)
    return (Floats)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
#else
    sum += (Floats)(a << 16) * (Floats)(b << 16);
    return sum + (Floats)(a & 0xffff0000u) * (Floats)(b & 0xffff0000u);
#endif
}

struct HalfMatrix {
    const BFloat16* data;
    int64_t stride;
};

// Panels [inputs / 2][PANEL][2], which lie `apart` numbers from one another.
struct PairPanels {
    const BFloat16* data;
    int64_t count, apart, inputs;

    PairPanels from(int64_t panel) const { return {data + panel * apart, count - panel, apart, inputs}; }
};

// As `tile` of floats: out[R][PANEL] of x[R][inputs] and each of G panels, added up in the order of inputs.
template <int R, int G>
inline void tile(HalfMatrix x, const PairPanels& panels, Floats (&out)[G][R][VECTORS]) {
    constexpr int64_t LINE = 2 * PANEL, LEAD = AHEAD / (LINE * sizeof(BFloat16));
    const int64_t pairs = panels.inputs / 2;
    Floats sums[G][R][VECTORS] = {};
    const auto add = [&](int64_t k, const auto word_of) {
        // Behind a panel's end come those that are being read already, and then what will be read next.
        const int64_t soon = (k + LEAD) * LINE + (k + LEAD < pairs ? 0 : (G - 1) * panels.apart);
#pragma GCC unroll 4
        for (int g = 0; g < G; g++) {
            const BFloat16* line = panels.data + g * panels.apart + k * LINE;
            if constexpr (R <= FETCHED)
                for (int64_t i = 0; i < LINE; i += 32) __builtin_prefetch(panels.data + g * panels.apart + soon + i);
            Words columns[VECTORS];
#pragma GCC unroll 4
            for (int v = 0; v < VECTORS; v++) columns[v] = load_as<Words>(line + v * 2 * WIDTH);
#pragma GCC unroll 16
            for (int r = 0; r < R; r++) {
                const Words word = splat(word_of(r));
#pragma GCC unroll 4
                for (int v = 0; v < VECTORS; v++) sums[g][r][v] = add_pairs(sums[g][r][v], columns[v], word);
            }
        }
    };
    for (int64_t k = 0; k < pairs; k++)
        add(k, [&](int r) { return load_as<uint32_t>(x.data + r * x.stride + 2 * k); });
    if (panels.inputs % 2) add(pairs, [&](int r) { return (uint32_t)x.data[r * x.stride + 2 * pairs].bits; });
    std::memcpy(&out, &sums, sizeof sums);
}
