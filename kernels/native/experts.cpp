// A mixture of experts: what the gated MLPs that were chosen for a token make of it, weighted and added up.
//
// Pairs of a token and an expert are sorted by expert once. An expert's rows then lie together, and its layers
// are linear layers, of all of which threads share out the panels. Experts are taken in groups of few pairs, which
// bounds the room. What comes of a token is added up in the order of experts: it does not depend on the others.
// Where other ranks have the experts before and behind, their pairs are left to them.

#include "experts.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "aligned.h"
#include "kernels.h"
#include "linears.h"
#include "team.h"
#include "tile.h"

namespace {

constexpr int64_t PAIRS = 1024;      // that a group has at most, unless one expert alone has more
constexpr int64_t PIECES = 4;        // for each thread: few, for their cost; several, for threads of uneven speed
constexpr int64_t NUMBERS = 1 << 14;  // that a thread copies or adds up at least

struct Expert {
    Linear gate_up, down;
};

// The pairs of a step, in the order of experts.
struct Sorted {
    std::vector<int64_t> starts;  // of each expert's pairs, and their end
    std::vector<int64_t> tokens;  // of each pair
    std::vector<int64_t> places;  // [tokens][top]: a token's pairs, in the order of experts; -1: of other ranks
    std::vector<float> weights;   // [tokens][top]: and their weights

    Sorted(const Mix& mix, int64_t experts) : starts(experts + 1) {
        const int64_t pairs = mix.tokens * mix.top;
        const auto own = [&](int64_t i) {
            const int64_t expert = mix.chosen[i] - mix.before;
            return expert < experts ? expert : -1;
        };
        for (int64_t i = 0; i < pairs; i++)
            if (own(i) >= 0) starts[own(i) + 1]++;
        for (int64_t e = 0; e < experts; e++) starts[e + 1] += starts[e];
        tokens.resize(starts[experts]), places.resize(pairs), weights.assign(mix.weights, mix.weights + pairs);
        std::vector<int64_t> next(starts.begin(), starts.end() - 1);
        for (int64_t i = 0; i < pairs; i++) {
            places[i] = own(i) < 0 ? -1 : next[own(i)]++;
            if (places[i] >= 0) tokens[places[i]] = i / mix.top;
        }
        for (int64_t token = 0; token < mix.tokens; token++) in_order(token * mix.top, mix.top);
    }

    int64_t count(int64_t expert) const { return starts[expert + 1] - starts[expert]; }

   private:
    void in_order(int64_t first, int64_t top) {
        for (int64_t i = first + 1; i < first + top; i++)
            for (int64_t j = i; j > first && places[j] < places[j - 1]; j--) {
                std::swap(places[j], places[j - 1]);
                std::swap(weights[j], weights[j - 1]);
            }
    }
};

// Panels of an expert's layer.
struct Turn {
    int64_t expert, rows, first, last;
};

// The experts from `first` to before `last`, and where their rows lie: those of a group are numbered from 0.
struct Group {
    const Expert* experts;
    const Sorted& sorted;
    const Mix& mix;
    int64_t first, last;

    int64_t begin() const { return sorted.starts[first]; }
    int64_t pairs() const { return sorted.starts[last] - begin(); }

    template <typename Pick>
    std::vector<Turn> turns(Pick pick) const {
        int64_t active = 0;
        for (int64_t e = first; e < last; e++) active += sorted.count(e) > 0;
        std::vector<Turn> made;
        for (int64_t e = first; e < last; e++) {
            const int64_t rows = sorted.count(e), panels = (pick(experts[e]).outputs + PANEL - 1) / PANEL;
            if (!rows) continue;
            const int64_t parts = mix.threads > 1 ? (mix.threads * PIECES + active - 1) / active : 1;
            const int64_t length = std::max<int64_t>(4, (panels + parts - 1) / parts);
            for (int64_t panel = 0; panel < panels; panel += length)
                made.push_back({e, rows, panel, std::min(panel + length, panels)});
        }
        std::stable_sort(made.begin(), made.end(), [](const Turn& a, const Turn& b) { return a.rows > b.rows; });
        return made;
    }

    // x: [pairs][inputs]; out: [pairs][outputs] of the layer that `pick` picks of an expert.
    // most_of: what integers round each of these by; null: its largest number.
    template <typename Pick>
    void multiply(const char* x, char* out, Pick pick, const float* most_of = nullptr) const {
        const std::vector<Turn> all = turns(pick);
        turnout::take_turns(
            (int)mix.threads, (int64_t)all.size(), [] { return 0; },
            [&](int, int64_t i) {
                const Turn& turn = all[i];
                const Linear& layer = pick(experts[turn.expert]);
                const int64_t row = sorted.starts[turn.expert] - begin();
                linear_panels(layer, x + row * layer.inputs * mix.bytes(), out + row * layer.outputs * mix.bytes(),
                              turn.rows, (int)mix.half, turn.first, turn.last, most_of ? most_of + row : nullptr);
            });
    }
};

// (up + 1) * gate * sigmoid(slope * gate), with both within the limit. NaN stays NaN, by the order of what is compared.
template <typename T>
void bound(const T* both, T* out, int64_t size, float slope, float limit) {
    for (int64_t i = 0; i < size; i++) {
        const float gate = std::min(widen(both[i]), limit);
        const float up = std::max(std::min(widen(both[size + i]), limit), -limit);
        const Floats closed = exponential(splat(std::min(-slope * gate, 88.0f)));
        narrow((up + 1.0f) * gate / (1.0f + closed[0]), out + i);
    }
}

void gate(const Mix& mix, const char* both, char* out, int64_t rows) {
    if (mix.gate == SILU)
        return turnout_gate(both, out, rows, mix.inner, (int)mix.half, (int)mix.threads);
    turnout::share_out((int)mix.threads, rows, NUMBERS / mix.inner + 1, [&](int64_t first, int64_t last) {
        for (int64_t row = first; row < last; row++) {
            const int64_t from = 2 * row * mix.inner, to = row * mix.inner;
            if (mix.half)
                bound((const BFloat16*)both + from, (BFloat16*)out + to, mix.inner, (float)mix.slope, (float)mix.limit);
            else
                bound((const float*)both + from, (float*)out + to, mix.inner, (float)mix.slope, (float)mix.limit);
        }
    });
}

template <typename T>
inline void add_row(float* sums, const T* row, float weight, int64_t size) {
    int64_t i = 0;
    for (; i + WIDTH <= size; i += WIDTH) store(sums + i, load(sums + i) + load(row + i) * weight);
    for (; i < size; i++) sums[i] += widen(row[i]) * weight;
}

// Adds to sums [tokens][size] what a group's experts put out: [pairs][size].
void add_up(const Group& group, const char* out, float* sums) {
    const Mix& mix = group.mix;
    const int64_t begin = group.begin(), end = begin + group.pairs();
    turnout::share_out((int)mix.threads, mix.tokens, NUMBERS / (mix.size * mix.top) + 1,
                       [&](int64_t first, int64_t last) {
                           for (int64_t i = first * mix.top; i < last * mix.top; i++) {
                               const int64_t place = group.sorted.places[i];
                               if (place < begin || place >= end) continue;
                               float* const to = sums + i / mix.top * mix.size;
                               const char* from = out + (place - begin) * mix.size * mix.bytes();
                               const float weight = group.sorted.weights[i];
                               if (mix.half)
                                   add_row(to, (const BFloat16*)from, weight, mix.size);
                               else
                                   add_row(to, (const float*)from, weight, mix.size);
                           }
                       });
}

// False: a rank is gone.
bool compute(const Group& group, float* sums) {
    const Mix& mix = group.mix;
    const int64_t pairs = group.pairs(), bytes = mix.bytes(), row = mix.size * bytes;
    static thread_local Scratch room;  // memory that is new in every layer is cleared by the system first
    char* const x = room.of<char>(pairs * (2 * mix.size + 3 * mix.inner) * bytes);
    char *const out = x + pairs * row, *const both = out + pairs * row, *const gated = both + pairs * 2 * mix.inner * bytes;
    turnout::share_out((int)mix.threads, pairs, NUMBERS / mix.size + 1, [&](int64_t first, int64_t last) {
        for (int64_t i = first; i < last; i++)
            std::memcpy(x + i * row, (const char*)mix.x + group.sorted.tokens[group.begin() + i] * row, row);
    });
    group.multiply(x, both, [](const Expert& expert) -> const Linear& { return expert.gate_up; });
    gate(mix, both, gated, pairs);
    const bool exchanges = mix.group && rounds(group.experts[group.first].down);
    const std::unique_ptr<float[]> most(exchanges ? new float[pairs] : nullptr);
    if (exchanges && !largest_of_ranks(mix.group, gated, most.get(), pairs, mix.inner, (int)mix.half, (int)mix.threads))
        return false;
    group.multiply(gated, out, [](const Expert& expert) -> const Linear& { return expert.down; }, most.get());
    add_up(group, out, sums);
    return true;
}

}  // namespace

extern "C" {

// The `count` experts of a layer over the tokens of `of_mix`. Returns 0, or 1 if a rank of the group is gone.
int turnout_experts(const void* of_experts, int64_t count, const void* of_mix) {
    const Mix& mix = *(const Mix*)of_mix;
    const Sorted sorted(mix, count);
    const int64_t numbers = mix.tokens * mix.size;
    static thread_local Scratch wide;
    float* const sums = mix.half ? wide.of<float>(numbers) : (float*)mix.out;
    std::fill(sums, sums + numbers, 0.0f);
    for (int64_t first = 0, last; first < count; first = last) {
        for (last = first + 1; last < count && sorted.starts[last + 1] - sorted.starts[first] <= PAIRS;) last++;
        const Group group = {(const Expert*)of_experts, sorted, mix, first, last};
        if (group.pairs() && !compute(group, sums)) return 1;
    }
    if (mix.half)
        turnout::share_out((int)mix.threads, numbers, NUMBERS, [&](int64_t first, int64_t last) {
            for (int64_t i = first; i < last; i++) narrow(sums[i], (BFloat16*)mix.out + i);
        });
    return 0;
}
}
