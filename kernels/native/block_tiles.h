// Linear layers in blocks of 4 bits whose x is in bfloat16, by tiles: codes are whole numbers, which bfloat16 holds as
// they are, so that only the sum of 32 inputs meets its scale.
#pragma once

#include "blocks.h"

// Says whether layers of a type are multiplied so.
constexpr bool goes_by_tiles(int type) {
#if defined(TILES)
    return type == Q4_0 || type == Q4_K;
#else
    return false;
#endif
}

// Those outputs of x[rows][inputs], rows `stride` apart, that are in panels from `first` to before `last`: to
// out[rows][outputs]. A row's results do not depend on the others.
void multiply_blocks_by_tiles(const Blocks& layer, int type, const BFloat16* x, int64_t stride, BFloat16* out,
                              int64_t rows, int64_t first, int64_t last, int threads);
