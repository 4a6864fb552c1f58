// The functions that Python calls, for those that call them from here. What each does is said where it is.
#pragma once

#include <cstdint>

// How a layer attends, as turnout.core.types.LayerAttention says it; 0: no window, no soft cap, not causal.
struct AttentionRule {
    int64_t heads, kv_heads, key_dim, value_dim, window, causal;
    double scale, softcap;
};

// How numbers are stored: as kernels/attention/stored.py has it.
enum class StoredAs : int64_t { FLOATS, HALVES, INT8, FP8 };

// Keys or values of a layer: [slots][heads][dim], slots `line` and heads `step` numbers apart. Codes, of INT8 and FP8,
// have a bfloat16 scale for each vector, [slots][heads], slots `scale_line` apart.
struct StoredVectors {
    void *numbers, *scales;
    int64_t line, step, scale_line;
    StoredAs kind;
};

extern "C" {
int64_t turnout_panel();
void turnout_linear(const void* packed, const float* x, const float* bias, float* out, int64_t rows,
                    int64_t inputs, int64_t outputs, int64_t stride, int half, int add, int threads);
void turnout_half_linear(const void* packed, const void* x, const void* bias, void* out, int64_t rows,
                         int64_t inputs, int64_t outputs, int64_t stride, int compressed, int threads);
void turnout_integer_linear(const void* packed, const int32_t* shift, const void* scale, const void* offset,
                            const float* bias, const void* x, void* out, int64_t rows, int64_t inputs,
                            int64_t depth, int64_t outputs, int64_t group, int64_t stride, int kind,
                            float levels, int half, int threads, const float* most_of);
void turnout_block_linear(const void* packed, const float* bias, const void* x, void* out, int64_t rows,
                          int64_t inputs, int64_t outputs, int64_t stride, int type, int half, int threads);
void turnout_norm(void* x, const void* delta, const void* weight, void* out, int64_t rows, int64_t size,
                  float eps, int half, int threads);
void turnout_norm_heads(void* x, const void* weight, int64_t tokens, int64_t heads, int64_t dim, int64_t stride,
                        float eps, int half, int threads);
void turnout_gate(const void* both, void* out, int64_t rows, int64_t size, int half, int threads);
void turnout_layer_norm(void* x, const void* delta, const void* weight, const void* bias, void* out, int64_t rows,
                        int64_t size, float eps, int half, int threads);
void turnout_gelu(void* x, int64_t rows, int64_t size, int by_tanh, int half, int threads);
void turnout_gelu_gate(const void* both, void* out, int64_t rows, int64_t size, int half, int threads);
void turnout_rotate(void* x, const void* cosine, const void* sine, int64_t tokens, int64_t heads, int64_t dim,
                    int64_t stride, int half, int threads);
void turnout_write(const void* rows, const StoredVectors* to, const int64_t* slots, int64_t tokens, int64_t heads,
                   int64_t dim, int64_t stride, int half, int threads);
void turnout_attend(const AttentionRule* rule, const void* q, const StoredVectors* keys, const StoredVectors* values,
                    const float* sinks, void* out, const int64_t* rows, const int64_t* lengths,
                    const int64_t* starts, const int64_t* tables, int64_t chunks, int64_t most, int64_t stride,
                    int64_t block_size, int half, int threads);
}
