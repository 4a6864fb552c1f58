// What a layer of an encoder does between its matrix products, in one pass each: layer norms and GELU. Numbers are
// rounded to the tensor's dtype where PyTorch's own operators would. A row's bits depend on that row alone.

#include <algorithm>
#include <cmath>

#include "team.h"
#include "vector.h"

namespace {

constexpr int64_t WORTHWHILE = 1 << 15;  // numbers, from which on a second thread is quicker than none

// Calls `work` for each whole vector of a row, and for the rest of it with a copy that zeros fill up.
template <typename T, typename Work>
inline void map_row(T* row, int64_t size, const Work& work) {
    int64_t i = 0;
    for (; i + WIDTH <= size; i += WIDTH) store(row + i, work(load(row + i), i));
    if (i == size) return;
    T rest[WIDTH] = {};
    std::copy(row + i, row + size, rest);
    store(rest, work(load(rest), i));
    std::copy(rest, rest + (size - i), row + i);
}

template <typename T>
inline Floats load_part(const T* row, int64_t first, int64_t size) {
    if (first + WIDTH <= size) return load(row + first);
    T rest[WIDTH] = {};
    std::copy(row + first, row + size, rest);
    return load(rest);
}

// bias: may be null. `out` may be `x`.
template <typename T>
void layer_norm_row(T* x, const T* delta, const T* weight, const T* bias, T* out, int64_t size, float eps) {
    Floats sums = {};
    if (delta)
        map_row(x, size, [&](Floats value, int64_t i) { return value + load_part(delta, i, size); });
    for (int64_t i = 0; i < size; i += WIDTH) sums += load_part(x, i, size);
    const float mean = sum(sums) / (float)size;
    Floats squares = {};
    int64_t i = 0;
    for (; i + WIDTH <= size; i += WIDTH) {
        const Floats apart = load(x + i) - mean;
        squares += apart * apart;
    }
    float rest = 0;
    for (; i < size; i++) rest += (widen(x[i]) - mean) * (widen(x[i]) - mean);
    const float factor = 1.0f / std::sqrt((sum(squares) + rest) / (float)size + eps);
    for (i = 0; i < size; i += WIDTH) {
        const Floats normed = (load_part(x, i, size) - mean) * factor * load_part(weight, i, size);
        const Floats moved = bias ? normed + load_part(bias, i, size) : normed;
        if (i + WIDTH <= size) {
            store(out + i, moved);
            continue;
        }
        T last[WIDTH];
        store(last, moved);
        std::copy(last, last + (size - i), out + i);
    }
}

// x times the normal distribution function of x. The complementary error function is Chebyshev's, with a fractional
// error below 1.2e-7 (Press et al., "Numerical Recipes", 6.2).
inline Floats gelu(Floats x) {
    const Floats z = (x < 0.0f ? -x : x) * 0.70710678118654752f;
    const Floats t = 1.0f / (1.0f + 0.5f * z);
    Floats p = splat(0.17087277f);
    p = p * t - 0.82215223f;
    p = p * t + 1.48851587f;
    p = p * t - 1.13520398f;
    p = p * t + 0.27886807f;
    p = p * t - 0.18628806f;
    p = p * t + 0.09678418f;
    p = p * t + 0.37409196f;
    p = p * t + 1.00002368f;
    p = p * t - 1.26551223f;
    const Floats beyond = 0.5f * t * exponential(p - z * z);
    return x * (x < 0.0f ? beyond : 1.0f - beyond);
}

inline Floats tanh_gelu(Floats x) {
    const Floats inner = 0.79788456080286536f * (x + 0.044715f * x * x * x);
    return 0.5f * x * (1.0f + tangent(inner));
}

template <typename T>
void activate(T* x, int64_t rows, int64_t size, bool by_tanh, int threads) {
    turnout::share_out(threads, rows, WORTHWHILE / size + 1, [&](int64_t first, int64_t last) {
        for (int64_t row = first; row < last; row++)
            if (by_tanh)
                map_row(x + row * size, size, [](Floats value, int64_t) { return tanh_gelu(value); });
            else
                map_row(x + row * size, size, [](Floats value, int64_t) { return gelu(value); });
    });
}

template <typename T>
inline Floats rounded(Floats x) {
    if constexpr (sizeof(T) == sizeof(float)) return x;
    T kept[WIDTH];
    store(kept, x);
    return load(kept);
}

template <typename T>
void gate(const T* both, T* out, int64_t rows, int64_t size, int threads) {
    turnout::share_out(threads, rows, WORTHWHILE / size + 1, [&](int64_t first, int64_t last) {
        for (int64_t row = first; row < last; row++) {
            T* const to = out + row * size;
            const T* const up = both + (2 * row + 1) * size;
            std::copy_n(both + 2 * row * size, size, to);
            map_row(to, size, [&](Floats value, int64_t i) {
                return rounded<T>(gelu(value)) * load_part(up, i, size);
            });
        }
    });
}

template <typename T>
void layer_norm(T* x, const T* delta, const T* weight, const T* bias, T* out, int64_t rows, int64_t size, float eps,
                int threads) {
    turnout::share_out(threads, rows, WORTHWHILE / size + 1, [&](int64_t first, int64_t last) {
        for (int64_t row = first; row < last; row++)
            layer_norm_row(x + row * size, delta ? delta + row * size : nullptr, weight, bias, out + row * size,
                           size, eps);
    });
}

}  // namespace

extern "C" {

// x: [rows][size], to which `delta` is added first where it is given; out: its norm, times `weight` and plus `bias`
// where that is given. `out` may be `x`.
void turnout_layer_norm(void* x, const void* delta, const void* weight, const void* bias, void* out, int64_t rows,
                        int64_t size, float eps, int half, int threads) {
    if (half)
        layer_norm((BFloat16*)x, (const BFloat16*)delta, (const BFloat16*)weight, (const BFloat16*)bias,
                   (BFloat16*)out, rows, size, eps, threads);
    else
        layer_norm((float*)x, (const float*)delta, (const float*)weight, (const float*)bias, (float*)out, rows,
                   size, eps, threads);
}

// x: [rows][size], in place: GELU, or its approximation by tanh.
void turnout_gelu(void* x, int64_t rows, int64_t size, int by_tanh, int half, int threads) {
    if (half)
        activate((BFloat16*)x, rows, size, by_tanh, threads);
    else
        activate((float*)x, rows, size, by_tanh, threads);
}

// out: [rows][size] = GELU of the first half of each row of both, times its second half; both: [rows][2 * size].
void turnout_gelu_gate(const void* both, void* out, int64_t rows, int64_t size, int half, int threads) {
    if (half)
        gate((const BFloat16*)both, (BFloat16*)out, rows, size, threads);
    else
        gate((const float*)both, (float*)out, rows, size, threads);
}
}
