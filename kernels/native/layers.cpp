// All layers of a step in one call: the other kernels one after the other, in float32, as Python would call
// them, without what Python takes between any two. Numbers come out the same.

#include "kernels.h"

namespace {

// Products, from which on a second thread is quicker, of floats and of integers; as compiled.py and integers.py
// have them.
constexpr int64_t WORTHWHILE = 1 << 16, INTEGERS_WORTHWHILE = 1 << 17;

enum Kind : int64_t { FLOAT32, BFLOAT16, INTEGERS };  // INTEGERS + n: what turnout_integer_linear calls kind n

// A packed linear layer; joined ones have their outputs side by side. From `shift` on: of integers alone.
struct Linear {
    const void* numbers;
    const float* bias;
    int64_t inputs, outputs, kind;
    const int32_t* shift;
    const void *scale, *offset;
    int64_t depth, group, levels;
};

struct Layer {
    const float *input_norm, *middle_norm;
    Linear qkv, out, gate_up, down;
    void *keys, *values;  // of its pool: [slots][kv_heads][dim]
};

struct Step {
    int64_t tokens, size, heads, kv_heads, dim;
    const float *cosine, *sine;  // [tokens][dim]
    const int64_t* written;      // the slots of the step's tokens
    const int64_t *rows, *lengths, *starts, *tables;
    int64_t chunks, most, block_size, pool_half, threads;
    double eps, scale;
    // A row for each token. `wide` holds what a joint layer puts out, `narrow` what comes of that.
    float *hidden, *delta, *normed, *wide, *narrow;
};

void linear(const Linear& layer, const float* x, float* out, const Step& step) {
    const int64_t products = step.tokens * layer.inputs * layer.outputs;
    const int threads = (int)step.threads;
    if (layer.kind >= INTEGERS)
        turnout_integer_linear(layer.numbers, layer.shift, layer.scale, layer.offset, layer.bias, x, out,
                               step.tokens, layer.inputs, layer.depth, layer.outputs, layer.group,
                               layer.inputs, (int)(layer.kind - INTEGERS), (float)layer.levels,
                               products > INTEGERS_WORTHWHILE ? threads : 1);
    else
        turnout_linear(layer.numbers, x, layer.bias, out, step.tokens, layer.inputs, layer.outputs,
                       layer.inputs, layer.kind == BFLOAT16, false, products > WORTHWHILE ? threads : 1);
}

void norm(const float* weight, bool add, const Step& step) {
    turnout_norm(step.hidden, add ? step.delta : nullptr, weight, step.normed, step.tokens, step.size,
                 (float)step.eps, false, (int)step.threads);
}

void attention(const Layer& layer, const Step& step) {
    const int64_t dim = step.dim, stride = layer.qkv.outputs, width = step.kv_heads * dim;
    const int threads = (int)step.threads, half = (int)step.pool_half;
    float* const q = step.wide;
    float* const k = q + step.heads * dim;
    linear(layer.qkv, step.normed, q, step);
    turnout_rotate(q, step.cosine, step.sine, step.tokens, step.heads + step.kv_heads, dim, stride, false,
                   threads);
    turnout_write(k, layer.keys, step.written, step.tokens, width, stride, false, half, threads);
    turnout_write(k + width, layer.values, step.written, step.tokens, width, stride, false, half, threads);
    turnout_attend(q, layer.keys, layer.values, step.narrow, step.rows, step.lengths, step.starts, step.tables,
                   step.chunks, step.most, step.heads, step.kv_heads, dim, stride, step.block_size,
                   (float)step.scale, false, half, threads);
    linear(layer.out, step.narrow, step.delta, step);
}

void mlp(const Layer& layer, const Step& step) {
    linear(layer.gate_up, step.normed, step.wide, step);
    turnout_gate(step.wide, step.narrow, step.tokens, layer.down.inputs, false, (int)step.threads);
    linear(layer.down, step.narrow, step.delta, step);
}

}  // namespace

extern "C" {

// hidden: the embedded tokens; afterwards what the last layer made of them, but for `delta`, which is still to
// be added.
void turnout_layers(const void* layers, int64_t count, const void* of_step) {
    const Step& step = *(const Step*)of_step;
    for (int64_t i = 0; i < count; i++) {
        const Layer& layer = ((const Layer*)layers)[i];
        norm(layer.input_norm, i > 0, step);
        attention(layer, step);
        norm(layer.middle_norm, true, step);
        mlp(layer, step);
    }
}
}
