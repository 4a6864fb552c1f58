// Mixtures of experts, as Python describes them.
#pragma once

#include <cstdint>

#include "linears.h"

// What lies between an expert's products: silu(gate) * up, or gpt-oss's, which is bounded by `limit`.
enum Gate : int64_t { SILU, BOUNDED };

// What the experts of a layer compute in a step.
struct Mix {
    int64_t tokens, top, size, inner, gate, half, threads;
    int64_t before;         // experts that other ranks have: `chosen` counts them, the table does not
    double slope, limit;    // of a BOUNDED gate
    const void* x;          // [tokens][size]
    const int64_t* chosen;  // [tokens][top]: experts
    const float* weights;   // [tokens][top]
    void* out;              // [tokens][size]
    void* group;            // of ranks that each have a part of the inside of every expert; null: there is one

    int64_t bytes() const { return half ? 2 : 4; }
};

// All experts of a layer, and what scores them for a token.
struct Mixture {
    Linear router;
    const void* experts;  // as turnout_experts has them
    int64_t count, top, normalized, inner, gate;
    double slope, limit;
};

extern "C" {
int turnout_experts(const void* of_experts, int64_t count, const void* of_mix);
void turnout_route(const void* scores, int64_t tokens, int64_t experts, int64_t top, int normalized, int half,
                   int64_t* chosen, float* weights, int threads);
}
