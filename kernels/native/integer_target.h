// Where sums of products of integers go, and what they are multiplied with.
#pragma once

#include <algorithm>

#include "integers.h"
#include "tile.h"

// What a piece's sums become.
template <typename S>
struct Target {
    float* data;       // [rows][columns]: of pieces before the last; null: there are none
    BFloat16* halves;  // and where the last one's go, in bfloat16; null: to `data`, too
    int32_t* exact;    // [rows][whole panels]: where the only piece's go as they are, for `Target` later; null: they do not
    int64_t stride;
    int64_t columns;       // that there are, from the panel's first on
    const int32_t* shift;  // of a panel's columns: what is to be added to sums, or null
    const S* scale;        // of a panel's columns
    const S* offset;       // of a panel's columns, or null
    int64_t shift_apart, scale_apart;  // from one panel to the next
    const float* bias;     // of columns, or null
    const float* unit;     // of rows: what 1 stands for
    const float* totals;   // of rows, `apart` from one another: the sum of the piece's x
    int64_t apart;
    float center;
    bool first, last;  // of the pieces

    bool to_halves() const { return last && halves; }

    Target column(int64_t count) const {
        Target next = *this;
        const int64_t panels = count / PANEL;
        next.data += data ? count : 0, next.halves += halves ? count : 0, next.exact += exact ? count : 0;
        next.columns -= count, next.scale += panels * scale_apart;
        if (shift) next.shift += panels * shift_apart;
        if (offset) next.offset += panels * scale_apart;
        if (bias) next.bias += count;
        return next;
    }

    Target row(int64_t count) const {
        Target next = *this;
        next.data += data ? count * stride : 0, next.halves += halves ? count * stride : 0;
        next.exact += exact ? count * stride : 0;
        next.unit += count, next.totals += count * apart;
        return next;
    }
};

template <typename S>
inline void put_exactly(const Target<S>& out, int64_t row, const Ints (&sums)[VECTORS]) {
    for (int v = 0; v < VECTORS; v++) {
        const Ints sum = sums[v] + load_as<Ints>(out.shift + v * WIDTH);
        std::memcpy(out.exact + row * out.stride + v * WIDTH, &sum, sizeof sum);
    }
}

// What a row's sums become; before: the sums of pieces before, if there are some.
template <typename S>
inline void results(const Target<S>& out, int64_t row, const Ints (&sums)[VECTORS], const float* before,
                    Floats (&values)[VECTORS]) {
    for (int v = 0; v < VECTORS; v++) {
        const Ints sum = out.shift ? sums[v] + load_as<Ints>(out.shift + v * WIDTH) : sums[v];
        const Floats scale = load(out.scale + v * WIDTH);
        values[v] = __builtin_convertvector(sum, Floats) * scale;
        if (out.offset) {
            const Floats offset = load(out.offset + v * WIDTH) - out.center * scale;
            values[v] += out.totals[row * out.apart] * offset;
        }
        if (!out.first) values[v] += load(before + v * WIDTH);
        if (out.last) {
            values[v] *= splat(out.unit[row]);
            if (out.bias) values[v] = rounded(values[v]) + load(out.bias + v * WIDTH);
        }
    }
}

template <typename S>
inline void put(const Target<S>& out, int64_t row, const Ints (&sums)[VECTORS]) {
    if (out.exact) return put_exactly(out, row, sums);
    const int64_t columns = std::min(PANEL, out.columns);
    const bool whole = columns == PANEL;
    float part[PANEL] = {};
    float* const line = out.data ? out.data + row * out.stride : part;
    if (!whole && !out.first) std::copy_n(line, columns, part);
    Floats values[VECTORS];
    results(out, row, sums, whole ? line : part, values);
    const auto store_to = [&](auto* to) {
        for (int v = 0; v < VECTORS; v++) store(to + v * WIDTH, values[v]);
    };
    if (out.to_halves()) {
        BFloat16 halves[PANEL];
        BFloat16* const to = out.halves + row * out.stride;
        store_to(whole ? to : halves);
        if (!whole) std::copy_n(halves, columns, to);
    } else {
        store_to(whole ? line : part);
        if (!whole) std::copy_n(part, columns, line);
    }
}
