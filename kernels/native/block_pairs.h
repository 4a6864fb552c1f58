// Linear layers in blocks whose x is in bfloat16, where there are instructions that multiply its pairs, and no tiles.
#pragma once

#include "blocks.h"
#include "tile_bytes.h"

#if defined(__AVX512BF16__)
constexpr bool HAS_PAIRS = !HAS_TILES;
#else
constexpr bool HAS_PAIRS = false;
#endif

// Where there are: what `multiply_blocks_by_tiles` does.
void multiply_blocks_by_pairs(const Blocks& layer, int type, const BFloat16* x, int64_t stride, BFloat16* out,
                              int64_t rows, int64_t first, int64_t last, int threads);
