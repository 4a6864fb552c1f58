// What a layer of an encoder does between its matrix products, in one pass each: layer norms and GELU. Numbers are
// rounded to the tensor's dtype where PyTorch's own operators would. A row's bits depend on that row alone.

#include <algorithm>
#include <cmath>

#include "linears.h"
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

// The error function, with an error below 3e-7: a rational function of x, as Eigen has it.
inline Floats error_function(Floats x) {
    const Floats one = splat(1.0f), beyond = splat(3.8325068f);  // from there on it is 1
    x = larger(smaller(x, beyond), -beyond);
    const Floats y = x * x;
    Floats p = splat(-2.72614225801306e-10f);
    p = p * y + 2.77068142495902e-08f;
    p = p * y - 2.10102402082508e-06f;
    p = p * y - 5.69250639462346e-05f;
    p = p * y - 7.34990630326855e-04f;
    p = p * y - 2.95459980854025e-03f;
    p = p * y - 1.60960333262415e-02f;
    Floats q = splat(-1.45660718464996e-05f);
    q = q * y - 2.13374055278905e-04f;
    q = q * y - 1.68282697438203e-03f;
    q = q * y - 7.37332916720468e-03f;
    q = q * y - 1.42647390514189e-02f;
    return larger(smaller(x * p / q, one), -one);
}

// x times the normal distribution function of x.
inline Floats gelu(Floats x) { return 0.5f * x * (1.0f + error_function(x * 0.70710678118654752f)); }

inline Floats tanh_gelu(Floats x) {
    const Floats inner = 0.79788456080286536f * (x + 0.044715f * x * x * x);
    return 0.5f * x * (1.0f + tangent(inner));
}

template <typename T>
void activate_row(T* x, int64_t size, bool by_tanh) {
    if (by_tanh)
        map_row(x, size, [](Floats value, int64_t) { return tanh_gelu(value); });
    else
        map_row(x, size, [](Floats value, int64_t) { return gelu(value); });
}

template <typename T>
void activate(T* x, int64_t rows, int64_t size, bool by_tanh, int threads) {
    turnout::share_out(threads, rows, WORTHWHILE / size + 1, [&](int64_t first, int64_t last) {
        for (int64_t row = first; row < last; row++) activate_row(x + row * size, size, by_tanh);
    });
}

template <typename T>
void gate(const T* both, T* out, int64_t rows, int64_t size, int threads) {
    turnout::share_out(threads, rows, WORTHWHILE / size + 1, [&](int64_t first, int64_t last) {
        for (int64_t row = first; row < last; row++) {
            T* const to = out + row * size;
            const T* const up = both + (2 * row + 1) * size;
            std::copy_n(both + 2 * row * size, size, to);
            map_row(to, size, [&](Floats value, int64_t i) {
                return rounded_to<T>(gelu(value)) * load_part(up, i, size);
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

void finish_by_gelu(float* numbers, int64_t rows, int64_t count, int64_t stride) {
    for (int64_t row = 0; row < rows; row++) activate_row(numbers + row * stride, count, false);
}

void finish_by_tanh_gelu(float* numbers, int64_t rows, int64_t count, int64_t stride) {
    for (int64_t row = 0; row < rows; row++) activate_row(numbers + row * stride, count, true);
}

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
