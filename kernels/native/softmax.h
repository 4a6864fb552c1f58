// The softmax of attention, carried along from one block of positions to the next. Scores are exponents of two: queries,
// sinks and the soft cap are multiplied by LOG2_E beforehand.
#pragma once

#include <algorithm>
#include <limits>

#include "positions.h"

constexpr double LOG2_E = 1.4426950408889634;
constexpr float NEVER = -std::numeric_limits<float>::infinity();

// 2^x for x up to 0, with an error of 1.7e-7 of it; 0 below -126.5, NaN of NaN: a weight of 0 would hide it. (A polynomial
// of least error, exactly 1 at 0.)
inline Floats power_of_two(Floats x) {
    x = larger(splat(-127.0f), x);
    const Floats magic = splat(12582912.0f + 127.0f);  // 1.5 * 2^23: adding it rounds to a whole number,
    const Floats moved = x + magic;                    // which with 127 are the exponent's bits
    const Floats r = x - (moved - magic);
    Floats p = splat(1.326472725e-3f);
    p = p * r + 9.671512688e-3f;
    p = p * r + 5.550733744e-2f;
    p = p * r + 2.402224208e-1f;
    p = p * r + 6.931469776e-1f;
    p = p * r + 1.0f;
    return p * (Floats)((Words)moved << 23);
}

// Of a row's `scores`, [POSITIONS], those from `begin` to `end` are seen.
inline void hide(float* scores, int64_t begin, int64_t end) {
    for (int64_t i = 0; i < begin; i++) scores[i] = NEVER;
    for (int64_t i = end; i < POSITIONS; i++) scores[i] = NEVER;
}

// The largest, and the sum, of the lanes of each of `count` vectors: of WIDTH rows at once, a lane becomes a vector.
// Lanes are added in the same order whatever `count` is.

inline Floats largest_of_each(const Floats* rows, int64_t count) {
    Floats lanes[WIDTH] = {};
    for (int64_t i = 0; i < count; i++) lanes[i] = rows[i];
    if (count < 3) {
        for (int64_t i = 0; i < count; i++) lanes[0][i] = largest_of(rows[i]);
        return lanes[0];
    }
    transpose<1>(lanes);
#pragma GCC unroll 16
    for (int lane = 1; lane < WIDTH; lane++) lanes[0] = larger(lanes[lane], lanes[0]);
    return lanes[0];
}

inline Floats sum_of_each(const Floats* rows, int64_t count) {
    Floats lanes[WIDTH] = {}, total = {};
    for (int64_t i = 0; i < count; i++) lanes[i] = rows[i];
    if (count < 3) {
        for (int64_t i = 0; i < count; i++) total[i] = sum(rows[i]);
        return total;
    }
    transpose<1>(lanes);
#pragma GCC unroll 16
    for (int lane = 0; lane < WIDTH; lane++) total += lanes[lane];
    return total;
}

// What is known of some rows.
struct Softmax {
    float *largest, *total;  // of each row
    float* sums;             // [rows][wide]; null: nothing has been summed up yet
    int64_t wide;
};

// The scores of up to WIDTH rows, [count][POSITIONS], become weights; what was summed up so far is scaled to the new
// largest score, and the weights are added to the total.
inline void soften_some(float* scores, int64_t count, const Softmax& of) {
    Floats rows[WIDTH], largest = splat(NEVER), total = {};
    for (int64_t r = 0; r < count; r++) {
        Floats above = load(scores + r * POSITIONS);
#pragma GCC unroll 16
        for (int64_t i = WIDTH; i < POSITIONS; i += WIDTH) above = larger(load(scores + r * POSITIONS + i), above);
        rows[r] = above;
    }
    std::memcpy(&largest, of.largest, count * sizeof(float));
    std::memcpy(&total, of.total, count * sizeof(float));
    const Floats most = larger(largest_of_each(rows, count), largest);
    const Floats anchor = larger(most, splat(std::numeric_limits<float>::lowest()));  // where a row has seen nothing yet
    const Floats factor = power_of_two(largest - anchor);
    float anchors[WIDTH], factors[WIDTH];
    store(anchors, anchor);
    store(factors, factor);
    for (int64_t r = 0; r < count; r++) {
        float* const row = scores + r * POSITIONS;
        const Floats from = splat(anchors[r]);
        Floats added = {};
#pragma GCC unroll 16
        for (int64_t i = 0; i < POSITIONS; i += WIDTH) {
            const Floats weight = power_of_two(load(row + i) - from);
            store(row + i, weight);
            added += weight;
        }
        rows[r] = added;
        if (!of.sums || factors[r] == 1.0f) continue;
        float* const sums = of.sums + r * of.wide;
        for (int64_t i = 0; i < of.wide; i += WIDTH) store(sums + i, load(sums + i) * factors[r]);
    }
    total = total * factor + sum_of_each(rows, count);
    std::memcpy(of.largest, &most, count * sizeof(float));
    std::memcpy(of.total, &total, count * sizeof(float));
}

// The same of any number of rows. Every arithmetic of attention.cpp comes through here.
inline void soften(float* scores, int64_t rows, Softmax of) {
    for (int64_t count; rows > 0; rows -= count) {
        count = std::min<int64_t>(WIDTH, rows);
        soften_some(scores, count, of);
        scores += count * POSITIONS;
        of.largest += count;
        of.total += count;
        if (of.sums) of.sums += count * of.wide;
    }
}

// Scores x become cap * tanh(x / cap).
inline void cap_softly(float* scores, float cap) {
    for (int64_t i = 0; i < POSITIONS; i += WIDTH) store(scores + i, tangent(load(scores + i) / cap) * cap);
}
