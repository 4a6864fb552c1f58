// Which experts a token goes to, and what each of them weighs.

#include "experts.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "team.h"
#include "tile.h"

namespace {

constexpr int64_t NUMBERS = 1 << 14;  // scores that a thread looks at at least

// The places of the `top` largest scores, the largest first; of equal ones the first.
void take_largest(const float* scores, int64_t experts, int64_t top, int64_t* chosen) {
    for (int64_t e = 0; e < experts; e++) {
        int64_t place = std::min(e, top);
        while (place > 0 && scores[e] > scores[chosen[place - 1]]) place--;
        if (place == top) continue;
        for (int64_t i = std::min(e, top - 1); i > place; i--) chosen[i] = chosen[i - 1];
        chosen[place] = e;
    }
}

// 0, or no number if one of the scores is none or is infinite: `exponential` would hide it.
float broken(const float* scores, int64_t experts) {
    float sum = 0.0f;
    for (int64_t e = 0; e < experts; e++) sum += scores[e] * 0.0f;
    return sum;
}

// The sum of exp(score - most), all lanes of a vector at once; scores: whole vectors.
float total(const float* scores, int64_t count, float most) {
    Floats sums = {};
    for (int64_t i = 0; i < count; i += WIDTH) sums += exponential(load(scores + i) - most);
    return sum(sums);
}

struct Routing {
    int64_t experts, top, normalized;

    // scores: whole vectors, of which those beyond the experts are -inf; room: as many.
    void route(const float* scores, float* room, int64_t* chosen, float* weights) const {
        take_largest(scores, experts, top, chosen);
        const int64_t lines = (top + WIDTH - 1) / WIDTH * WIDTH;
        const float never = -std::numeric_limits<float>::infinity(), most = scores[chosen[0]];
        for (int64_t i = 0; i < lines; i++) room[i] = i < top ? scores[chosen[i]] : never;
        const float sum = normalized ? total(room, lines, most) : total(scores, experts, most);
        const float lost = broken(scores, experts);
        for (int64_t i = 0; i < lines; i += WIDTH) store(room + i, exponential(load(room + i) - most) / sum + lost);
        std::copy(room, room + top, weights);
    }
};

}  // namespace

extern "C" {

// scores: [tokens][experts], float32 or, if `half`, bfloat16. chosen, weights: [tokens][top], the likeliest first;
// weights are likelihoods among all, or, if `normalized`, among the chosen. A token's do not depend on the others.
void turnout_route(const void* scores, int64_t tokens, int64_t experts, int64_t top, int normalized, int half,
                   int64_t* chosen, float* weights, int threads) {
    const Routing routing = {experts, top, normalized};
    const int64_t lines = (experts + WIDTH - 1) / WIDTH * WIDTH;
    turnout::share_out(threads, tokens, NUMBERS / experts + 1, [&](int64_t first, int64_t last) {
        std::vector<float> row(lines, -std::numeric_limits<float>::infinity()), room(lines);
        for (int64_t token = first; token < last; token++) {
            for (int64_t e = 0; e < experts; e++)
                row[e] = half ? widen(((const BFloat16*)scores)[token * experts + e])
                              : ((const float*)scores)[token * experts + e];
            routing.route(row.data(), room.data(), chosen + token * top, weights + token * top);
        }
    });
}
}
