// Blocks' weights as float32. Codes are taken where they lie in their words, and scales are made for each such place:
// powers of two, which change no bit of a weight, take less time than moving codes.
#pragma once

#include "block_codes.h"

namespace {

// The codes of WIDTH columns at STEP inputs: each as many times what it is as the scale of its place is less than the
// block's. ZERO stands for 0. There is one place for bytes, and for what is looked up.
template <typename B>
struct Placed : Read<B> {
    static constexpr int PLACES = 1, ZERO = 0;

    using Read<B>::Read;
    Floats at(int s) const { return this->input(s); }
};

#if !defined(__AVX512F__)  // has look-ups, which take no longer

template <typename B, int ZERO_CODE>
struct PlacedNibbles : Read<B> {
    static constexpr int PLACES = 8, ZERO = ZERO_CODE;

    using Read<B>::Read;
    // The highest would be read as a sign where it lies.
    Floats at(int s) const {
        const Words found = s == 7 ? this->words >> 28 : this->words & (15u << (4 * s));
        return __builtin_convertvector((Ints)found, Floats);
    }
};

template <>
struct Placed<Block4> : PlacedNibbles<Block4, 8> {
    using PlacedNibbles::PlacedNibbles;
};

template <>
struct Placed<Block4K> : PlacedNibbles<Block4K, 0> {
    using PlacedNibbles::PlacedNibbles;
};

template <>
struct Placed<Block6K> : Read<Block6K> {
    static constexpr int PLACES = 4, ZERO = 32;

    using Read::Read;
    // Of the last four, the words are moved once.
    Floats at(int s) const {
        const int place = 4 * (s % 4), up = place + 4 - 2 * s;
        const Words four = (s < 4 ? low : low >> 16) & (15u << place);
        const Words two = (up < 0 ? high >> -up : high << up) & (48u << place);
        return __builtin_convertvector((Ints)(four | two), Floats);
    }
};

#endif

// What a block's scale is multiplied by for codes of a place; those of the last are moved.
constexpr float place_scale(int place) { return place == 7 ? 1 : 1.0f / (float)(1 << (4 * place)); }

// What makes weights of codes of WIDTH columns, for SHARED inputs. Products of codes and scales are exact in float32:
// one rounding is left where an offset is taken away, as in the numbers that the file stands for.
template <typename B>
struct Weights {
    static constexpr bool STORED = std::is_same_v<B, Block4K>, SHIFTED = STORED || Placed<B>::ZERO;
    Floats scales[Placed<B>::PLACES], offset;

    Weights() = default;
    Weights(const B& block, int64_t k, int v) {
        const Scale<B> scale(block, k, v);
#pragma GCC unroll 8
        for (int place = 0; place < Placed<B>::PLACES; place++) scales[place] = scale.scale * place_scale(place);
        if constexpr (STORED)
            offset = scale.offset;
        else if constexpr (SHIFTED)
            offset = scale.scale * (float)Placed<B>::ZERO;
    }
    Floats of(Floats code, int s) const {
        const Floats product = code * scales[s % Placed<B>::PLACES];
        return SHIFTED ? product - offset : product;
    }
};

}  // namespace
