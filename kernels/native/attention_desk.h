// What a thread of attention.cpp works with: the queries of some rows, a block of keys and values, and the products
// of both. A desk is an arithmetic: of floats, of pairs of bfloat16, or by tiles (tile_attention.h).
#pragma once

#include <memory>
#include <type_traits>

#include "aligned.h"
#include "softmax.h"

constexpr int64_t QUERIES = 64;  // rows that are multiplied together: tokens times heads
constexpr int64_t PARTS = 4;     // of so many rows, for which a block of keys and values is put down once, at most
constexpr int64_t FEW = 8;       // of a KV head, up to which its values are read where they lie

inline int64_t up(int64_t count, int64_t multiple) { return (count + multiple - 1) / multiple * multiple; }

// The sums of rows, [parts * QUERIES][wide], where `wide` is a value's width rounded up to whole panels, and what goes
// with them.
struct Sums {
    int64_t dim, wide, parts;
    AlignedVector<float> scores, sums;  // scores: of a part of a KV head's rows, [QUERIES][POSITIONS]
    float largest[PARTS * QUERIES], total[PARTS * QUERIES];

    Sums(int64_t dim, int64_t parts)
        : dim(dim), wide(up(dim, PANEL)), parts(parts), scores(QUERIES * POSITIONS), sums(parts * QUERIES * wide) {}

    float* scores_of(int64_t row) { return &scores[row * POSITIONS]; }
    float* sums_of(int64_t row) { return &sums[row * wide]; }

    // summed: whether there are sums already.
    Softmax softmax_of(int64_t row, bool summed) {
        return {largest + row, total + row, summed ? sums_of(row) : nullptr, wide};
    }

    void begin(int64_t rows) {
        std::fill_n(sums.begin(), rows * wide, 0.0f);
        std::fill_n(largest, rows, NEVER);
        std::fill_n(total, rows, 0.0f);
    }

    // A score that takes part in the softmax, and has no value.
    void put_sink(int64_t row, float score) {
        largest[row] = score;
        total[row] = 1.0f;
    }

    template <typename Q>
    void put_result(int64_t row, Q* to) const {
        for (int64_t d = 0; d < dim; d++) narrow(sums[row * wide + d] / total[row], to + d);
    }
};

// T: what queries and keys are multiplied as: pairs of bfloat16 as in pairs.h, or floats, scaled beforehand. Panels as
// in tile.h: keys [POSITIONS / PANEL][key_dim][PANEL], values [wide / PANEL][POSITIONS][PANEL].
template <typename T>
struct Desk : Sums {
    struct Registers {};

    int64_t key_dim;
    float scale;
    AlignedVector<T> queries, keys;
    AlignedVector<float> values;

    Desk(int64_t key_dim, int64_t value_dim, float scale, int64_t parts)
        : Sums(value_dim, parts),
          key_dim(key_dim),
          scale(scale),
          queries(parts * QUERIES * key_dim),
          keys(POSITIONS * up(key_dim, 2)),
          values(POSITIONS * wide) {}

    template <typename Q>
    void put_query(const Q* from, int64_t row) {
        if constexpr (std::is_same_v<T, float>)
            for (int64_t d = 0; d < key_dim; d++) queries[row * key_dim + d] = widen(from[d]) * scale;
        else
            std::copy_n(from, key_dim, &queries[row * key_dim]);
    }

    void turn_queries(int64_t, int64_t) {}

    // Puts down keys and values of some positions, for `rows` rows.
    template <typename KV>
    void put(const Rows<KV>& of_keys, const Rows<KV>& of_values, int64_t rows) {
        if constexpr (std::is_same_v<T, float>)
            put_keys(of_keys, key_dim, keys.data());
        else
            put_keys(of_keys, key_dim, key_dim, keys.data());
        in_place = rows <= FEW && dim % PANEL == 0;
        if (!in_place) put_values(of_values, dim, values.data());
    }

    // The scores of `rows` rows from `first` on with those keys.
    void score(int64_t first, int64_t rows, int64_t count) {
        const T* const q = &queries[first * key_dim];
        if constexpr (std::is_same_v<T, float>)
            product(rows, {q, key_dim}, keys.data(), scores.data(),
                    {key_dim * PANEL, key_dim, up(count, PANEL), POSITIONS, false});
        else
            product(rows, {q, key_dim}, {keys.data(), up(count, PANEL) / PANEL, up(key_dim, 2) * PANEL, key_dim},
                    scale, scores.data(), POSITIONS);
    }

    // Adds to their sums what the rows, by the weights that their scores became, see of the values.
    template <typename KV>
    void add_values(int64_t first, int64_t rows, const Rows<KV>& positions) {
        float* const to = sums_of(first);
        if (in_place) return weigh(rows, scores.data(), positions, dim, to, wide);
        product(rows, {scores.data(), POSITIONS}, values.data(), to,
                {POSITIONS * PANEL, positions.count, wide, wide, true});
    }

   private:
    bool in_place = false;  // whether values are read where they lie
};

// A thread's desk, which it keeps for the next layer and step of the same widths.
template <typename D>
struct OwnDesk {
    typename D::Registers registers;
    D& desk;

    OwnDesk(int64_t key_dim, int64_t value_dim, float scale, int64_t parts)
        : desk(kept(key_dim, value_dim, scale, parts)) {
        desk.scale = scale;
    }

   private:
    static D& kept(int64_t key_dim, int64_t value_dim, float scale, int64_t parts) {
        static thread_local std::unique_ptr<D> desk;
        if (!desk || desk->key_dim != key_dim || desk->dim != value_dim || desk->parts != parts)
            desk.reset(new D(key_dim, value_dim, scale, parts));
        return *desk;
    }
};
