// All layers of a step in one call: the other kernels one after the other, as Python would call them, without
// what Python takes between any two. Numbers come out the same. All of a step is float32, or all is bfloat16.

#include <cstring>
#include <memory>

#include "aligned.h"
#include "collectives.h"
#include "experts.h"
#include "kernels.h"
#include "linears.h"

namespace {

// Products, from which on a second thread is quicker, of floats and of integers; as compiled.py and integers.py
// have them.
constexpr int64_t WORTHWHILE = 1 << 16, INTEGERS_WORTHWHILE = 1 << 17;

struct Layer {
    const void *input_norm, *middle_norm, *q_norm, *k_norm;  // those of heads may be null
    Linear qkv, out, gate_up, down;  // the last two: of an MLP
    const Mixture* mixture;          // in place of an MLP; null: there is one
    const float* sinks;              // [heads]; may be null
    StoredVectors keys, values;
    AttentionRule rule;
    int64_t rotation;  // which of the step's it turns by
    int64_t group;     // which of the step's says where its keys and values are
};

// Layers that share block tables.
struct Group {
    const int64_t* written;  // the slots of the step's tokens
    const int64_t* tables;   // [chunks][most]: the slots where blocks begin
    int64_t most;
};

struct Step {
    int64_t tokens, size;
    const void* const* rotations;  // cosine and sine of each, [tokens][key_dim]
    const Group* groups;
    const int64_t *rows, *lengths, *starts;
    int64_t chunks, block_size, half, threads;
    double eps;
    // A row for each token. `wide` holds what a joint layer puts out, `narrow` what comes of that.
    void *hidden, *delta, *normed, *wide, *narrow;
    const int64_t* picked;  // ascending: who goes beyond the last layer's attention; null: all
    int64_t count;          // of them
    void* group;            // of ranks that each compute a share of attention and of the MLP; null: there is one
    const void* last_norm;  // the weight of a norm after the last layer, in `normed`; null: none

    // Numbers of the step from `count` of them on.
    void* behind(void* numbers, int64_t count) const { return (char*)numbers + count * (half ? 2 : 4); }
};

int threads_for(const Linear& layer, const Step& step) {
    const int64_t products = step.tokens * layer.inputs * layer.outputs;
    return products > (rounds(layer) ? INTEGERS_WORTHWHILE : WORTHWHILE) ? (int)step.threads : 1;
}

void linear(const Linear& layer, const void* x, void* out, const Step& step, const float* most_of = nullptr) {
    const int threads = threads_for(layer, step);
    if (of_halves(layer))
        turnout_half_linear(layer.numbers, x, layer.bias, out, step.tokens, layer.inputs, layer.outputs,
                            layer.inputs, layer.kind == COMPRESSED_HALVES, threads);
    else if (layer.kind >= BLOCKS)
        turnout_block_linear(layer.numbers, (const float*)layer.bias, x, out, step.tokens, layer.inputs,
                             layer.outputs, layer.inputs, (int)(layer.kind - BLOCKS), (int)step.half,
                             threads);
    else if (layer.kind >= INTEGERS)
        turnout_integer_linear(layer.numbers, layer.shift, layer.scale, layer.offset, (const float*)layer.bias, x,
                               out, step.tokens, layer.inputs, layer.depth, layer.outputs, layer.group,
                               layer.inputs, (int)(layer.kind - INTEGERS), (float)layer.levels, (int)step.half,
                               threads, most_of);
    else
        turnout_linear(layer.numbers, (const float*)x, (const float*)layer.bias, (float*)out, step.tokens,
                       layer.inputs, layer.outputs, layer.inputs, layer.kind == BFLOAT16, false, threads);
}

// In `normed`.
void norm(const void* weight, bool add, const Step& step) {
    turnout_norm(step.hidden, add ? step.delta : nullptr, weight, step.normed, step.tokens, step.size,
                 (float)step.eps, (int)step.half, (int)step.threads);
}

// Those rows of `numbers` that were picked, to its beginning.
void pick(void* numbers, int64_t size, const Step& step) {
    const size_t bytes = (size_t)(size * (step.half ? 2 : 4));
    for (int64_t row = 0; row < step.count; row++)
        std::memmove(step.behind(numbers, row * size), step.behind(numbers, step.picked[row] * size), bytes);
}

// What heads see, side by side: in `narrow`.
void attention(const Layer& layer, const Step& step) {
    const AttentionRule& rule = layer.rule;
    const int64_t stride = layer.qkv.outputs, key_width = rule.kv_heads * rule.key_dim;
    const int threads = (int)step.threads, half = (int)step.half;
    const Group& group = step.groups[layer.group];
    void* const q = step.wide;
    void* const k = step.behind(q, rule.heads * rule.key_dim);
    void* const v = step.behind(k, key_width);
    const void* const* turn = step.rotations + 2 * layer.rotation;
    linear(layer.qkv, step.normed, q, step);
    if (layer.q_norm) {
        const float eps = (float)step.eps;
        turnout_norm_heads(q, layer.q_norm, step.tokens, rule.heads, rule.key_dim, stride, eps, half, threads);
        turnout_norm_heads(k, layer.k_norm, step.tokens, rule.kv_heads, rule.key_dim, stride, eps, half, threads);
    }
    turnout_rotate(q, turn[0], turn[1], step.tokens, rule.heads + rule.kv_heads, rule.key_dim, stride, half,
                   threads);
    turnout_write(k, &layer.keys, group.written, step.tokens, rule.kv_heads, rule.key_dim, stride, half, threads);
    turnout_write(v, &layer.values, group.written, step.tokens, rule.kv_heads, rule.value_dim, stride, half, threads);
    turnout_attend(&rule, q, &layer.keys, &layer.values, layer.sinks, step.narrow, step.rows, step.lengths,
                   step.starts, group.tables, step.chunks, group.most, stride, step.block_size, half, threads);
}

// A layer whose inputs are shared out over ranks: what all of them put out, added up, in `delta`. False: a rank is
// gone.
bool shared(const Linear& layer, const Step& step) {
    const int threads = (int)step.threads;
    if (step.group && adds_integers(layer, step.group))
        return integer_linear_of_ranks(layer, step.group, step.narrow, step.delta, step.tokens, (int)step.half,
                                       threads_for(layer, step));
    const bool exchanges = step.group && rounds(layer);
    const std::unique_ptr<float[]> most(exchanges ? new float[step.tokens] : nullptr);
    if (exchanges && !largest_of_ranks(step.group, step.narrow, most.get(), step.tokens, layer.inputs, (int)step.half,
                                       threads))
        return false;
    linear(layer, step.narrow, step.delta, step, most.get());
    return !step.group || !turnout_group_all_reduce(step.group, step.delta, step.tokens * step.size,
                                                    (int)step.half, false, threads);
}

// Experts, each token through those that the router chose, in `delta`. False: a rank is gone.
bool mixture(const Mixture& of, const Step& step) {
    static thread_local Scratch places, shares;
    int64_t* const chosen = places.of<int64_t>(step.tokens * of.top);
    float* const weights = shares.of<float>(step.tokens * of.top);
    linear(of.router, step.normed, step.wide, step);
    turnout_route(step.wide, step.tokens, of.count, of.top, (int)of.normalized, (int)step.half, chosen, weights,
                  (int)step.threads);
    const Mix mix = {step.tokens, of.top, step.size, of.inner, of.gate, step.half, step.threads, 0,
                     of.slope, of.limit, step.normed, chosen, weights, step.delta, nullptr};
    return !turnout_experts(of.experts, of.count, &mix);
}

bool rest(const Layer& layer, const Step& step) {
    if (!shared(layer.out, step)) return false;
    norm(layer.middle_norm, true, step);
    if (layer.mixture) return mixture(*layer.mixture, step);
    if (!step.half || !gated_linear(layer.gate_up, step.normed, step.narrow, step.tokens,
                                     threads_for(layer.gate_up, step))) {
        linear(layer.gate_up, step.normed, step.wide, step);
        turnout_gate(step.wide, step.narrow, step.tokens, layer.down.inputs, (int)step.half, (int)step.threads);
    }
    return shared(layer.down, step);
}

}  // namespace

extern "C" {

// hidden: the embedded tokens; afterwards what the last layer made of them, but for `delta`, which is still to
// be added unless there is `last_norm`; of `picked`, if there are some, one row behind the other. Returns 0, or 1 if a
// rank of the group is gone.
int turnout_layers(const void* layers, int64_t count, const void* of_step) {
    const Step& step = *(const Step*)of_step;
    for (int64_t i = 0; i < count; i++) {
        const Layer& layer = ((const Layer*)layers)[i];
        norm(layer.input_norm, i > 0, step);
        attention(layer, step);
        if (i + 1 == count && step.picked) {
            Step last = step;
            last.tokens = step.count;
            pick(step.hidden, step.size, step);
            pick(step.narrow, layer.out.inputs, step);
            if (!rest(layer, last)) return 1;
        } else if (!rest(layer, step)) {
            return 1;
        }
    }
    if (step.last_norm) {
        Step last = step;
        if (step.picked) last.tokens = step.count;
        norm(step.last_norm, true, last);
    }
    return 0;
}
}
