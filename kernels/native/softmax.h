// The softmax of attention, carried along from one block of positions to the next.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "positions.h"

// A row's `scores`, [POSITIONS] of which it sees those from `begin` to `end`, become weights, and what was summed up
// so far is scaled to the new largest score. Every arithmetic of attention.cpp comes through here, row by row.
inline void soften(float* scores, int64_t begin, int64_t end, float* sums, int64_t wide, float& largest,
                   float& total) {
    constexpr float NEVER = -std::numeric_limits<float>::infinity();
    float most = largest;
    for (int64_t i = begin; i < end; i++) most = std::max(most, scores[i]);
    for (int64_t i = 0; i < begin; i++) scores[i] = NEVER;
    for (int64_t i = end; i < POSITIONS; i++) scores[i] = NEVER;
    Floats added = {};
    for (int64_t i = 0; i < POSITIONS; i += WIDTH) {
        const Floats weight = exponential(load(scores + i) - most);
        store(scores + i, weight);
        added += weight;
    }
    if (most != largest) {
        const float factor = std::exp(largest - most);
        total *= factor;
        for (int64_t i = 0; i < wide; i += WIDTH) store(sums + i, load(sums + i) * factor);
    }
    total += sum(added);
    largest = most;
}

// Scores x become cap * tanh(x / cap).
inline void cap_softly(float* scores, float cap) {
    for (int64_t i = 0; i < POSITIONS; i += WIDTH) store(scores + i, tangent(load(scores + i) / cap) * cap);
}
