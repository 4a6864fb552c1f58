// Weights of 8 or 4 bits in blocks of 32 inputs, each with a scale of its own, as llama.cpp's Q8_0 and Q4_0.
//
//   packed  [N / PANEL][K / 32] Block     a panel: PANEL output columns side by side
#pragma once

#include "tile.h"

constexpr int64_t BLOCK = 32;  // inputs that share a scale

struct Block8 {
    uint16_t scale[PANEL];  // float16
    int8_t codes[BLOCK][PANEL];
};

struct Block4 {
    uint16_t scale[PANEL];
    uint32_t codes[BLOCK / 8][PANEL];  // 8 inputs a word, the first lowest, of which 8 stands for 0
};
