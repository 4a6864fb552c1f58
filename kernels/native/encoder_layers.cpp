// All of an encoder's step in one call: embeddings, layers and the last norm, without what Python takes between any
// two kernels. Numbers come out as those kernels give them. All of a step is float32, or all is bfloat16.

#include <cstring>

#include "kernels.h"
#include "linears.h"
#include "team.h"
#include "vector.h"

namespace {

// Products, from which on a second thread is quicker, of floats and of integers; as layers.cpp has them.
constexpr int64_t WORTHWHILE = 1 << 16, INTEGERS_WORTHWHILE = 1 << 17;
constexpr int64_t PANELS_AT_ONCE = 4;         // that a thread takes at least
constexpr int64_t NUMBERS_AT_ONCE = 1 << 13;  // to embed, which are read from anywhere

// A layer norm; `weight` is null where there is none, `bias` where it has none.
struct Norm {
    const void *weight, *bias;
};

enum Activation : int64_t { GELU, TANH_GELU, GELU_GATE };

struct Layer {
    Norm attention_norm, mlp_norm;
    Linear qkv, out, up, down;  // `up` of GELU_GATE has gates and what they let through side by side
    AttentionRule rule;
    int64_t rotation;  // which of the step's it turns by; -1: none
    int64_t activation;
    int64_t post;  // whether norms are behind the residuals, or before attention and MLP
};

// Rows [count][size] of one dtype.
struct Table {
    const void* rows;
    int64_t half;
};

struct Embeddings {
    Table words, types, positions;  // the last two may be null
    Norm norm;
    int64_t first_position;
};

struct Step {
    int64_t tokens, size;
    const int64_t *ids, *positions, *types;  // of each token; types: null: all 0
    const void* const* rotations;            // cosine and sine of each, [tokens][key_dim]
    const int64_t *rows, *lengths, *starts;  // of each text; its only block begins with its first row
    int64_t texts, longest, half, threads;
    double eps;
    // A row for each token. `wide` holds what a joint layer puts out, `narrow` what comes of that.
    void *hidden, *delta, *normed, *wide, *narrow;
    const int64_t* picked;  // ascending: who goes beyond the last layer's attention; null: all
    int64_t count;          // of them

    // Numbers of the step from `count` of them on.
    void* behind(void* numbers, int64_t count) const { return (char*)numbers + count * (half ? 2 : 4); }
};

int threads_for(int64_t products, int64_t worthwhile, const Step& step) {
    return products > worthwhile ? (int)step.threads : 1;
}

// x: rows as wide as the layer's input, side by side.
void linear(const Linear& layer, const void* x, void* out, const Step& step) {
    const int64_t products = step.tokens * layer.inputs * layer.outputs;
    const int threads = threads_for(products, WORTHWHILE, step);
    if (of_halves(layer))
        turnout_half_linear(layer.numbers, x, layer.bias, out, step.tokens, layer.inputs, layer.outputs,
                            layer.inputs, layer.kind == COMPRESSED_HALVES, threads);
    else if (layer.kind >= BLOCKS)
        turnout_block_linear(layer.numbers, (const float*)layer.bias, x, out, step.tokens, layer.inputs,
                             layer.outputs, layer.inputs, (int)(layer.kind - BLOCKS), (int)step.half, threads);
    else if (layer.kind >= INTEGERS)
        turnout_integer_linear(layer.numbers, layer.shift, layer.scale, layer.offset, (const float*)layer.bias, x,
                               out, step.tokens, layer.inputs, layer.depth, layer.outputs, layer.group,
                               layer.inputs, (int)(layer.kind - INTEGERS), (float)layer.levels, (int)step.half,
                               threads_for(products, INTEGERS_WORTHWHILE, step), nullptr);
    else
        turnout_linear(layer.numbers, (const float*)x, (const float*)layer.bias, (float*)out, step.tokens,
                       layer.inputs, layer.outputs, layer.inputs, layer.kind == BFLOAT16, false, threads);
}

// The layer, then GELU of all that it puts out: of floats while a thread has its panels in its cache.
void linear_gelu(const Linear& layer, const void* x, void* out, bool by_tanh, const Step& step) {
    const int64_t columns = layer.outputs, panel = turnout_panel(), panels = (columns + panel - 1) / panel;
    if (layer.kind >= INTEGERS) {
        linear(layer, x, out, step);
        return turnout_gelu(out, step.tokens, columns, by_tanh, (int)step.half, (int)step.threads);
    }
    const int threads = threads_for(step.tokens * layer.inputs * columns, WORTHWHILE, step);
    if (layer.kind == FLOAT32 || layer.kind == BFLOAT16) {
        const Finish gelu = by_tanh ? finish_by_tanh_gelu : finish_by_gelu;
        return float_linear(layer.numbers, (const float*)x, (const float*)layer.bias, (float*)out, step.tokens,
                            layer.inputs, columns, layer.inputs, layer.kind == BFLOAT16, false, threads, gelu);
    }
    turnout::share_out(threads, panels, PANELS_AT_ONCE, [&](int64_t first, int64_t last) {
        linear_panels(layer, x, out, step.tokens, (int)step.half, first, last);
        const int64_t begin = first * panel, count = std::min(columns, last * panel) - begin;
        for (int64_t row = 0; row < step.tokens; row++)
            turnout_gelu(step.behind(out, row * columns + begin), 1, count, by_tanh, (int)step.half, 1);
    });
}

// out: the norm of `hidden`, to which `delta` is added first where it is to be.
void layer_norm(const Norm& norm, bool add, void* out, const Step& step) {
    turnout_layer_norm(step.hidden, add ? step.delta : nullptr, norm.weight, norm.bias, out, step.tokens, step.size,
                       (float)step.eps, (int)step.half, (int)step.threads);
}

template <typename T>
void add_row(const Table& table, int64_t row, T* sum, int64_t size) {
    const auto add = [&](const auto* from) {
        for (int64_t i = 0; i < size; i++) narrow(widen(sum[i]) + widen(from[i]), sum + i);
    };
    if (table.half)
        add((const BFloat16*)table.rows + row * size);
    else
        add((const float*)table.rows + row * size);
}

template <typename T>
void embed(const Embeddings& from, T* hidden, const Step& step) {
    turnout::share_out((int)step.threads, step.tokens, NUMBERS_AT_ONCE / step.size + 1, [&](int64_t first, int64_t last) {
        for (int64_t token = first; token < last; token++) {
            T* const row = hidden + token * step.size;
            std::memset(row, 0, (size_t)step.size * sizeof(T));
            add_row(from.words, step.ids[token], row, step.size);
            if (from.types.rows) add_row(from.types, step.types ? step.types[token] : 0, row, step.size);
            if (from.positions.rows)
                add_row(from.positions, step.positions[token] + from.first_position, row, step.size);
        }
    });
}

// Those rows of `numbers` that were picked, to its beginning.
void pick(void* numbers, int64_t size, const Step& step) {
    const size_t bytes = (size_t)(size * (step.half ? 2 : 4));
    for (int64_t row = 0; row < step.count; row++)
        std::memmove(step.behind(numbers, row * size), step.behind(numbers, step.picked[row] * size), bytes);
}

// What heads see, side by side: in `narrow`.
void attention(const Layer& layer, const void* x, const Step& step) {
    const AttentionRule& rule = layer.rule;
    const int64_t stride = layer.qkv.outputs, key_width = rule.kv_heads * rule.key_dim;
    const int threads = (int)step.threads, half = (int)step.half;
    void* const q = step.wide;
    void* const k = step.behind(q, rule.heads * rule.key_dim);
    void* const v = step.behind(k, key_width);
    linear(layer.qkv, x, q, step);
    if (layer.rotation >= 0) {
        const void* const* turn = step.rotations + 2 * layer.rotation;
        turnout_rotate(q, turn[0], turn[1], step.tokens, rule.heads + rule.kv_heads, rule.key_dim, stride, half,
                       threads);
    }
    const StoredAs kind = half ? StoredAs::HALVES : StoredAs::FLOATS;
    const StoredVectors keys = {k, nullptr, stride, rule.key_dim, 0, kind};
    const StoredVectors values = {v, nullptr, stride, rule.value_dim, 0, kind};
    turnout_attend(&rule, q, &keys, &values, nullptr, step.narrow, step.rows, step.lengths, step.starts, step.rows,
                   step.texts, 1, stride, step.longest, half, threads);
}

void mlp(const Layer& layer, const void* x, const Step& step) {
    if (layer.activation == GELU_GATE) {
        linear(layer.up, x, step.wide, step);
        turnout_gelu_gate(step.wide, step.narrow, step.tokens, layer.down.inputs, (int)step.half, (int)step.threads);
        return linear(layer.down, step.narrow, step.delta, step);
    }
    linear_gelu(layer.up, x, step.wide, layer.activation == TANH_GELU, step);
    linear(layer.down, step.wide, step.delta, step);
}

// What follows attention. Norms behind the residual leave nothing to be added; else `delta` is.
void rest(const Layer& layer, const Step& step) {
    linear(layer.out, step.narrow, step.delta, step);
    if (layer.post) {
        layer_norm(layer.attention_norm, true, step.hidden, step);
        mlp(layer, step.hidden, step);
        layer_norm(layer.mlp_norm, true, step.hidden, step);
    } else {
        layer_norm(layer.mlp_norm, true, step.normed, step);
        mlp(layer, step.normed, step);
    }
}

}  // namespace

extern "C" {

// hidden: afterwards what comes behind the last layer, and its norm where `last` has one; of `picked`, if there are
// some, one row behind the other.
void turnout_encode(const void* embeddings, const void* layers, int64_t count, const void* last,
                    const void* of_step) {
    const Embeddings& from = *(const Embeddings*)embeddings;
    const Norm& last_norm = *(const Norm*)last;
    Step step = *(const Step*)of_step;
    if (step.half)
        embed(from, (BFloat16*)step.hidden, step);
    else
        embed(from, (float*)step.hidden, step);
    layer_norm(from.norm, false, step.hidden, step);
    bool owed = false;  // `delta` to `hidden`
    for (int64_t i = 0; i < count; i++) {
        const Layer& layer = ((const Layer*)layers)[i];
        const bool normed = !layer.post && layer.attention_norm.weight;
        if (normed) layer_norm(layer.attention_norm, owed, step.normed, step);
        attention(layer, normed ? step.normed : step.hidden, step);
        if (i + 1 == count && step.picked) {
            pick(step.hidden, step.size, step);
            pick(step.narrow, layer.out.inputs, step);
            step.tokens = step.count;
        }
        rest(layer, step);
        owed = !layer.post;
    }
    if (last_norm.weight) layer_norm(last_norm, owed, step.hidden, step);
}
}
