// The softmax of attention, carried along from one block of positions to the next.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "positions.h"

// A row's `scores`, [POSITIONS] of which it sees those from `begin` to `end`, become weights, and what was summed up
// so far is scaled to the new largest score. Returns parts of the weights' sum, which `add_up` adds to `total`. Every
// arithmetic of attention.cpp comes through here, row by row.
inline Floats soften(float* scores, int64_t begin, int64_t end, float* sums, int64_t wide, float& largest,
                   float& total) {
    constexpr float NEVER = -std::numeric_limits<float>::infinity();
    for (int64_t i = 0; i < begin; i++) scores[i] = NEVER;
    for (int64_t i = end; i < POSITIONS; i++) scores[i] = NEVER;
    Floats above = splat(largest);
    for (int64_t i = 0; i < POSITIONS; i += WIDTH) above = larger(load(scores + i), above);
    const float most = largest_of(above);
    Floats added = {};
    for (int64_t i = 0; i < POSITIONS; i += WIDTH) {
        const Floats weight = exponential(load(scores + i) - most);
        store(scores + i, weight);
        added += weight;
    }
    if (most != largest && largest != NEVER) {  // else there are no sums yet
        const float factor = std::exp(largest - most);
        total *= factor;
        for (int64_t i = 0; i < wide; i += WIDTH) store(sums + i, load(sums + i) * factor);
    }
    largest = most;
    return added;
}

// Adds the parts of each row to its total, lane by lane as `sum` would: of WIDTH rows at once, a lane is a vector.
inline void add_up(const Floats* parts, int64_t rows, float* totals) {
    for (int64_t first = 0; first < rows; first += WIDTH) {
        Floats lanes[WIDTH] = {};
        const int64_t count = std::min<int64_t>(WIDTH, rows - first);
        for (int64_t i = 0; i < count; i++) lanes[i] = parts[first + i];
        if (count < 3) {
            for (int64_t i = 0; i < count; i++) totals[first + i] += sum(lanes[i]);
            continue;
        }
        transpose<1>(lanes);
        Floats added = {};
#pragma GCC unroll 16
        for (int lane = 0; lane < WIDTH; lane++) added += lanes[lane];
        float kept[WIDTH];
        store(kept, added);
        for (int64_t i = 0; i < count; i++) totals[first + i] += kept[i];
    }
}

// Scores x become cap * tanh(x / cap).
inline void cap_softly(float* scores, float cap) {
    for (int64_t i = 0; i < POSITIONS; i += WIDTH) store(scores + i, tangent(load(scores + i) / cap) * cap);
}
