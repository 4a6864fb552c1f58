// Weights in blocks, each with a scale of its own, as llama.cpp's files store them.
//
//   packed  [N / PANEL][K / INPUTS] Block     a panel: PANEL output columns side by side
#pragma once

#include <type_traits>

#include "tile.h"

// Types of blocks, by their numbers in files.
enum BlockType { Q4_0 = 2, Q8_0 = 8, Q4_K = 12, Q6_K = 14 };

// INPUTS: of a block; SHARED: inputs that share a scale. Scales of blocks are float16.

struct Block8 {
    static constexpr int64_t INPUTS = 32, SHARED = 32;
    uint16_t scale[PANEL];
    int8_t codes[INPUTS][PANEL];
};

struct Block4 {
    static constexpr int64_t INPUTS = 32, SHARED = 32;
    uint16_t scale[PANEL];
    uint32_t codes[INPUTS / 8][PANEL];  // 8 inputs a word, the first lowest, of which 8 stands for 0
};

// Q4_K: code * (scale * scales) - offset * offsets
struct Block4K {
    static constexpr int64_t INPUTS = 256, SHARED = 32;
    uint16_t scale[PANEL], offset[PANEL];
    uint8_t scales[INPUTS / SHARED][PANEL], offsets[INPUTS / SHARED][PANEL];
    uint32_t codes[INPUTS / 8][PANEL];
};

// Q6_K: (code - 32) * (scale * scales)
struct Block6K {
    static constexpr int64_t INPUTS = 256, SHARED = 16;
    uint16_t scale[PANEL];
    int8_t scales[INPUTS / SHARED][PANEL];
    uint32_t low[INPUTS / 8][PANEL];   // four bits of each of 8 inputs
    uint16_t high[INPUTS / 8][PANEL];  // two bits
};

// Calls `take` with a null pointer to the type's blocks.
template <typename F>
inline void with_blocks(int type, F take) {
    switch (type) {
        case Q8_0: return take((const Block8*)nullptr);
        case Q4_0: return take((const Block4*)nullptr);
        case Q4_K: return take((const Block4K*)nullptr);
        case Q6_K: return take((const Block6K*)nullptr);
    }
}

// A packed layer.
struct Blocks {
    const void* packed;
    const float* bias;  // or null
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
};

template <typename P>
using Pointed = std::remove_const_t<std::remove_pointer_t<P>>;
