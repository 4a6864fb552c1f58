// Linear layers in blocks whose x is in bfloat16, by tiles: codes are whole numbers, which bfloat16 holds as they are,
// so that only the sum of what shares a scale meets it.
#pragma once

#include "blocks.h"

// Where there are tiles: those outputs of x[rows][inputs], rows `stride` apart, that are in panels from `first` to
// before `last`, to out[rows][outputs]. A row's results do not depend on the others.
void multiply_blocks_by_tiles(const Blocks& layer, int type, const BFloat16* x, int64_t stride, BFloat16* out,
                              int64_t rows, int64_t first, int64_t last, int threads);
