// Attention over block tables: keys and values are read where they lie, a block of positions at a time, with
// the softmax carried along (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018; Dao et
// al., "FlashAttention", 2022). The heads that share a KV head go together, so that it is read once for them.

#include <algorithm>
#include <type_traits>
#include <utility>
#include <vector>

#include "attention_desk.h"
#include "softmax.h"
#include "team.h"
#include "tile_attention.h"

namespace {

constexpr int64_t WORTHWHILE = 1 << 14;  // numbers to write, from which on a second thread is quicker

struct Pool {
    int64_t block_size, kv_heads, dim;
};

struct Step {
    const int64_t *rows, *lengths, *starts, *tables;  // of each chunk; of tables: [chunks][most]
    int64_t chunks, most, heads, stride;
    float scale;
};

// Of a chunk, some of its tokens with the heads of some KV heads.
struct Tile {
    int64_t chunk, kv_head, kv_heads, first, tokens;
};

// The slots of `count` positions from `first` on.
void find(const int64_t* table, int64_t block_size, int64_t first, int64_t count, int64_t* slots) {
    int64_t block = first / block_size, within = first % block_size;
    for (int64_t i = 0; i < count; i++) {
        slots[i] = table[block] + within;
        if (++within == block_size) within = 0, block++;
    }
}

// Positions that the last of its tokens sees.
int64_t end_of(const Step& step, const Tile& tile) { return step.starts[tile.chunk] + tile.first + tile.tokens; }

// Always inlined, as is what calls it: GCC takes a function that only fetches for one that does nothing, and
// leaves calls of it out.
template <typename T>
[[gnu::always_inline]] inline void fetch(const T* row, int64_t count) {
    constexpr int64_t LINE = 64 / sizeof(T);
    for (int64_t i = 0; i < count; i += LINE) __builtin_prefetch(row + i, 0, 2);
}

// Finds the slots of the tile's positions from `first` on, as many as are looked at together, and fetches them.
template <typename KV>
[[gnu::always_inline]] inline void look_ahead(const KV* keys, const KV* values, const Step& step, const Pool& pool,
                                              const Tile& tile, int64_t first, int64_t* slots) {
    const int64_t count = std::min(POSITIONS, end_of(step, tile) - first);
    find(step.tables + tile.chunk * step.most, pool.block_size, first, count, slots);
    for (int64_t i = 0; i < count; i++) {
        const int64_t row = (slots[i] * pool.kv_heads + tile.kv_head) * pool.dim;
        fetch(keys + row, tile.kv_heads * pool.dim);
        fetch(values + row, tile.kv_heads * pool.dim);
    }
}

#if defined(TILES)
using HalfDesk = TileDesk;
#else
using HalfDesk = Desk<BFloat16>;
#endif

// Where queries and keys both are bfloat16, so are the factors of their products; else they are floats.
template <typename Q, typename KV>
using DeskFor =
    std::conditional_t<std::is_same_v<Q, BFloat16> && std::is_same_v<KV, BFloat16>, HalfDesk, Desk<float>>;

// `then`: what comes next, whose first positions are fetched while the last ones of `at` are worked on: a step
// reads many contexts, and would wait at the beginning of each.
template <typename Q, typename KV>
void attend(const Q* q, const KV* keys, const KV* values, Q* out, const Step& step, const Pool& pool, Tile at,
            Tile then, DeskFor<Q, KV>& desk) {
    const int64_t share = step.heads / pool.kv_heads, dim = pool.dim;
    const int64_t rows = at.tokens * share, all = at.kv_heads * rows;  // of a KV head, of the tile
    const int64_t top = step.rows[at.chunk] + at.first, start = step.starts[at.chunk] + at.first;
    // Where a row stands in q, but for the stride of its token, and in out.
    const auto token = [&](int64_t row) { return top + row % rows / share; };
    const auto head = [&](int64_t row) { return (at.kv_head + row / rows) * share + row % share; };
    for (int64_t r = 0; r < all; r++) desk.put_query(q + token(r) * step.stride + head(r) * dim, r);
    desk.begin(all);
    const int64_t end = end_of(step, at);
    const int64_t line = pool.kv_heads * dim, from = at.kv_head * dim;
    int64_t slots[2][POSITIONS];
    int64_t *now = slots[0], *next = slots[1];
    const KV *k[POSITIONS], *v[POSITIONS];
    find(step.tables + at.chunk * step.most, pool.block_size, 0, std::min(POSITIONS, end), now);
    for (int64_t first = 0; first < end; first += POSITIONS, std::swap(now, next)) {
        const int64_t count = std::min(POSITIONS, end - first);
        if (first + count < end)
            look_ahead(keys, values, step, pool, at, first + count, next);
        else if (then.chunk != at.chunk)
            look_ahead(keys, values, step, pool, then, 0, next);
        for (int64_t kv_head = 0; kv_head < at.kv_heads; kv_head++) {
            for (int64_t i = 0; i < count; i++) {
                k[i] = keys + now[i] * line + from + kv_head * dim;
                v[i] = values + now[i] * line + from + kv_head * dim;
            }
            const int64_t row = kv_head * rows;
            desk.score(row, rows, k, count);
            for (int64_t r = 0; r < rows; r++) {
                const int64_t visible = std::min(count, start + r / share + 1 - first);
                if (visible > 0)
                    soften(desk.scores_of(r), visible, desk.sums_of(row + r), desk.wide, desk.largest[row + r],
                           desk.total[row + r]);
                else
                    std::fill_n(desk.scores_of(r), POSITIONS, 0.0f);
            }
            desk.add_values(row, rows, v, count);
        }
    }
    for (int64_t r = 0; r < all; r++) desk.put_result(r, out + (token(r) * step.heads + head(r)) * dim);
}

// The longest contexts first, so that no thread is left with one at the end. Where there are chunks enough,
// few tokens go with all heads: what they read of a position lies side by side.
std::vector<Tile> tiles_of(const Step& step, int64_t kv_heads, int threads) {
    const int64_t tokens = std::max<int64_t>(1, QUERIES / (step.heads / kv_heads));
    const bool many = step.chunks >= 2 * threads;
    std::vector<Tile> tiles;
    for (int64_t chunk = 0; chunk < step.chunks; chunk++) {
        const int64_t length = step.lengths[chunk];
        const int64_t together = many && length * step.heads <= QUERIES ? kv_heads : 1;
        for (int64_t first = 0; first < length; first += tokens)
            for (int64_t head = 0; head < kv_heads; head += together)
                tiles.push_back({chunk, head, together, first, std::min(tokens, length - first)});
    }
    std::stable_sort(tiles.begin(), tiles.end(), [&](const Tile& a, const Tile& b) {
        return step.starts[a.chunk] + a.first > step.starts[b.chunk] + b.first;
    });
    return tiles;
}

template <typename Q, typename KV>
void run(const void* q, const void* keys, const void* values, void* out, const Step& step, const Pool& pool,
         int threads) {
    const std::vector<Tile> tiles = tiles_of(step, pool.kv_heads, threads);
    using Own = DeskFor<Q, KV>;
    const int64_t count = (int64_t)tiles.size();
    turnout::take_turns(
        threads, count, [&] { return Own(pool.dim, step.scale); },
        [&](Own& desk, int64_t i) {
            attend((const Q*)q, (const KV*)keys, (const KV*)values, (Q*)out, step, pool, tiles[i],
                   tiles[std::min(i + threads, count - 1)], desk);
        });
}

template <typename T, typename KV>
void write(const T* rows, KV* pool, const int64_t* slots, int64_t tokens, int64_t size, int64_t stride,
           int threads) {
    turnout::share_out(threads, tokens, WORTHWHILE / size + 1, [&](int64_t first, int64_t last) {
        for (int64_t token = first; token < last; token++) {
            const T* from = rows + token * stride;
            KV* to = pool + slots[token] * size;
            for (int64_t i = 0; i < size; i++) narrow(widen(from[i]), to + i);
        }
    });
}

}  // namespace

extern "C" {

// rows: [tokens][size], `stride` numbers apart, each into its slot of pool: [slots][size].
void turnout_write(const void* rows, void* pool, const int64_t* slots, int64_t tokens, int64_t size,
                   int64_t stride, int half, int pool_half, int threads) {
    if (half)
        pool_half ? write((const BFloat16*)rows, (BFloat16*)pool, slots, tokens, size, stride, threads)
                  : write((const BFloat16*)rows, (float*)pool, slots, tokens, size, stride, threads);
    else
        pool_half ? write((const float*)rows, (BFloat16*)pool, slots, tokens, size, stride, threads)
                  : write((const float*)rows, (float*)pool, slots, tokens, size, stride, threads);
}

// One layer of a step. q: [tokens][heads][dim], tokens `stride` numbers apart; keys, values:
// [slots][kv_heads][dim]; out: [tokens][heads][dim]. A chunk's tokens are `lengths` rows from `rows` on, at
// positions from `starts` on; `tables`: [chunks][most], the slots where its blocks begin. *_half: bfloat16,
// else float32. Heads share KV heads evenly, 64 to one at most; dim is 1024 at most.
void turnout_attend(const void* q, const void* keys, const void* values, void* out, const int64_t* rows,
                    const int64_t* lengths, const int64_t* starts, const int64_t* tables, int64_t chunks,
                    int64_t most, int64_t heads, int64_t kv_heads, int64_t dim, int64_t stride,
                    int64_t block_size, float scale, int q_half, int kv_half, int threads) {
    const Step step = {rows, lengths, starts, tables, chunks, most, heads, stride, scale};
    const Pool pool = {block_size, kv_heads, dim};
    if (q_half)
        kv_half ? run<BFloat16, BFloat16>(q, keys, values, out, step, pool, threads)
                : run<BFloat16, float>(q, keys, values, out, step, pool, threads);
    else
        kv_half ? run<float, BFloat16>(q, keys, values, out, step, pool, threads)
                : run<float, float>(q, keys, values, out, step, pool, threads);
}
}
