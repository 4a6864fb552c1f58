// A packed linear layer of any kind, as Python describes it, and a part of its product by one thread.
#pragma once

#include <cstdint>

// FLOAT32, BFLOAT16: how float32 layers keep their weights; HALVES: bfloat16 in and out, and
// COMPRESSED_HALVES, of which the weights are compressed; INTEGERS + n: what
// turnout_integer_linear calls kind n; BLOCKS + n: blocks of type n.
enum Kind : int64_t { FLOAT32, BFLOAT16, HALVES, COMPRESSED_HALVES, INTEGERS, BLOCKS = 16 };

// Joined layers have their outputs side by side. From `shift` on: of integers alone.
struct Linear {
    const void *numbers, *bias;
    int64_t inputs, outputs, kind;
    const int32_t* shift;
    const void *scale, *offset;
    int64_t depth, group, levels;
};

// What becomes of the first `count` numbers of rows that are `stride` apart.
using Finish = void (*)(float* numbers, int64_t rows, int64_t count, int64_t stride);

void finish_by_gelu(float* numbers, int64_t rows, int64_t count, int64_t stride);
void finish_by_tanh_gelu(float* numbers, int64_t rows, int64_t count, int64_t stride);

// out[rows][outputs] (+)= x · packed (+ bias), and then what `after` makes of it, if it is given.
void float_linear(const void* packed, const float* x, const float* bias, float* out, int64_t rows, int64_t inputs,
                  int64_t outputs, int64_t stride, int half, bool add, int threads, Finish after);

// Those outputs of x[rows][inputs] that are in panels from `first` to before `last`: to out[rows][outputs].
void float_panels(const void* packed, const float* x, const float* bias, float* out, int64_t rows, int64_t inputs,
                  int64_t outputs, int half, int64_t first, int64_t last);
void half_panels(const Linear& layer, const void* x, void* out, int64_t rows, int64_t first, int64_t last);
// most_of: what integers round each row by; null: its largest number.
void integer_panels(const Linear& linear, const void* x, void* out, int64_t rows, int half, int64_t first,
                    int64_t last, const float* most_of);

inline bool of_halves(const Linear& layer) { return layer.kind == HALVES || layer.kind == COMPRESSED_HALVES; }

inline bool rounds(const Linear& layer) { return layer.kind >= INTEGERS && layer.kind < BLOCKS; }

// The largest number of each row of x[rows][inputs], over all ranks, which have other inputs. False: one is gone.
bool largest_of_ranks(void* group, const void* x, float* most, int64_t rows, int64_t inputs, int half, int threads);

// Says whether ranks add up a layer's integers, instead of what they put out: it then is, to the bit, what one rank
// would compute of all inputs. Only bytes have one scale for all inputs, and sums of so many stay below 2^31.
bool adds_integers(const Linear& layer, const void* group);
// out[rows][outputs] of a layer for which that is so, the same on all ranks; its bias is on all. False: one is gone.
bool integer_linear_of_ranks(const Linear& layer, void* group, const void* x, void* out, int64_t rows, int half,
                             int threads);

void block_panels(const Linear& linear, const void* x, void* out, int64_t rows, int half, int64_t first, int64_t last);

inline void linear_panels(const Linear& layer, const void* x, void* out, int64_t rows, int half, int64_t first,
                          int64_t last, const float* most_of = nullptr) {
    if (layer.kind >= BLOCKS)
        block_panels(layer, x, out, rows, half, first, last);
    else if (layer.kind >= INTEGERS)
        integer_panels(layer, x, out, rows, half, first, last, most_of);
    else if (of_halves(layer))
        half_panels(layer, x, out, rows, first, last);
    else
        float_panels(layer.numbers, (const float*)x, (const float*)layer.bias, (float*)out, rows, layer.inputs,
                     layer.outputs, layer.kind == BFLOAT16, first, last);
}

// out[rows][outputs / 2] = silu(gate) * up, all in bfloat16, of a layer of as many gates and then as many ups: to the bits
// of turnout_gate after the layer. False: this kind of layer has none by tiles, and nothing was done.
bool gated_linear(const Linear& layer, const void* x, void* out, int64_t rows, int threads);
