// What a layer does between its matrix products, in one pass each. Numbers are rounded to the tensor's dtype
// where PyTorch's own operators would.

#include <algorithm>
#include <cmath>

#include "gate.h"
#include "team.h"
#include "vector.h"

namespace {

constexpr int64_t WORTHWHILE = 1 << 15;  // numbers, from which on a second thread is quicker than none

template <typename T>
void norm_row(T* x, const T* delta, const T* weight, T* out, int64_t size, float eps) {
    Floats squares = {};
    float rest = 0;
    int64_t i = 0;
    for (; i + WIDTH <= size; i += WIDTH) {
        Floats value = load(x + i);
        if (delta) {
            value = rounded_to<T>(value + load(delta + i));
            store(x + i, value);
        }
        squares += value * value;
    }
    for (; i < size; i++) {
        if (delta) narrow(widen(x[i]) + widen(delta[i]), x + i);
        rest += widen(x[i]) * widen(x[i]);
    }
    const float factor = 1.0f / std::sqrt((sum(squares) + rest) / (float)size + eps);
    for (i = 0; i + WIDTH <= size; i += WIDTH)
        store(out + i, load(weight + i) * rounded_to<T>(load(x + i) * factor));
    for (; i < size; i++) narrow(widen(weight[i]) * rounded_to<T>(widen(x[i]) * factor), out + i);
}

template <typename T>
void norm(T* x, const T* delta, const T* weight, T* out, int64_t rows, int64_t size, float eps, int threads) {
    turnout::share_out(threads, rows, WORTHWHILE / size + 1, [&](int64_t first, int64_t last) {
        for (int64_t row = first; row < last; row++)
            norm_row(x + row * size, delta ? delta + row * size : nullptr, weight, out + row * size, size, eps);
    });
}

template <typename T>
void norm_heads(T* x, const T* weight, int64_t tokens, int64_t heads, int64_t dim, int64_t stride, float eps,
                int threads) {
    turnout::share_out(threads, tokens, WORTHWHILE / (heads * dim) + 1, [&](int64_t first, int64_t last) {
        for (int64_t token = first; token < last; token++)
            for (int64_t head = 0; head < heads; head++) {
                T* const at = x + token * stride + head * dim;
                norm_row(at, (const T*)nullptr, weight, at, dim, eps);
            }
    });
}

template <typename T>
void gate_row(const T* gate, const T* up, T* out, int64_t size) {
    int64_t i = 0;
    for (; i + WIDTH <= size; i += WIDTH) {
        store(out + i, gated<T>(load(gate + i), load(up + i)));
    }
    for (; i < size; i++) {
        const float value = widen(gate[i]);
        narrow(rounded_to<T>(value / (1.0f + std::exp(-value))) * widen(up[i]), out + i);
    }
}

template <typename T>
void gate(const T* both, T* out, int64_t rows, int64_t size, int threads) {
    turnout::share_out(threads, rows, WORTHWHILE / size + 1, [&](int64_t first, int64_t last) {
        for (int64_t row = first; row < last; row++)
            gate_row(both + 2 * row * size, both + (2 * row + 1) * size, out + row * size, size);
    });
}

template <typename T>
void rotate_head(T* x, const T* cosine, const T* sine, int64_t half) {
    int64_t i = 0;
    for (; i + WIDTH <= half; i += WIDTH) {
        const Floats a = load(x + i), b = load(x + half + i);
        store(x + i, a * load(cosine + i) - b * load(sine + i));
        store(x + half + i, b * load(cosine + i) + a * load(sine + i));
    }
    for (; i < half; i++) {
        const float a = widen(x[i]), b = widen(x[half + i]), c = widen(cosine[i]), s = widen(sine[i]);
        narrow(a * c - b * s, x + i);
        narrow(b * c + a * s, x + half + i);
    }
}

template <typename T>
void rotate(T* x, const T* cosine, const T* sine, int64_t tokens, int64_t heads, int64_t dim, int64_t stride,
            int threads) {
    turnout::share_out(threads, tokens, WORTHWHILE / (heads * dim) + 1, [&](int64_t first, int64_t last) {
        for (int64_t token = first; token < last; token++)
            for (int64_t head = 0; head < heads; head++)
                rotate_head(x + token * stride + head * dim, cosine + token * dim, sine + token * dim, dim / 2);
    });
}

}  // namespace

extern "C" {

// x: [rows][size], to which `delta` is added first where it is given; out: the norm times `weight`.
void turnout_norm(void* x, const void* delta, const void* weight, void* out, int64_t rows, int64_t size,
                  float eps, int half, int threads) {
    if (half)
        norm((BFloat16*)x, (const BFloat16*)delta, (const BFloat16*)weight, (BFloat16*)out, rows, size, eps,
             threads);
    else
        norm((float*)x, (const float*)delta, (const float*)weight, (float*)out, rows, size, eps, threads);
}

// x: [tokens][heads][dim], in place, tokens `stride` numbers apart: each head's norm times `weight`, [dim].
void turnout_norm_heads(void* x, const void* weight, int64_t tokens, int64_t heads, int64_t dim, int64_t stride,
                        float eps, int half, int threads) {
    if (half)
        norm_heads((BFloat16*)x, (const BFloat16*)weight, tokens, heads, dim, stride, eps, threads);
    else
        norm_heads((float*)x, (const float*)weight, tokens, heads, dim, stride, eps, threads);
}

// out: [rows][size] = silu(first half of each row of both) * its second half; both: [rows][2 * size].
void turnout_gate(const void* both, void* out, int64_t rows, int64_t size, int half, int threads) {
    if (half)
        gate((const BFloat16*)both, (BFloat16*)out, rows, size, threads);
    else
        gate((const float*)both, (float*)out, rows, size, threads);
}

// x: [tokens][heads][dim], in place, tokens `stride` numbers apart; cosine, sine: [tokens][dim], whose halves
// are equal.
void turnout_rotate(void* x, const void* cosine, const void* sine, int64_t tokens, int64_t heads, int64_t dim,
                    int64_t stride, int half, int threads) {
    if (half)
        rotate((BFloat16*)x, (const BFloat16*)cosine, (const BFloat16*)sine, tokens, heads, dim, stride,
               threads);
    else
        rotate((float*)x, (const float*)cosine, (const float*)sine, tokens, heads, dim, stride, threads);
}
}
