// Attention over block tables: keys and values are read where they lie, a block of positions at a time, with
// the softmax carried along (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018; Dao et
// al., "FlashAttention", 2022). The heads that share a KV head go together, so that it is read once for them.

#include <algorithm>
#include <type_traits>
#include <utility>
#include <vector>

#include "attention_desk.h"
#include "kernels.h"
#include "softmax.h"
#include "team.h"
#include "tile_attention.h"

namespace {

constexpr int64_t WORTHWHILE = 1 << 14;  // numbers to write, from which on a second thread is quicker

// Of a layer. A position's keys are `key_line` numbers from those of the next, and lie side by side; its values are
// `value_line` numbers from those of the next position, and `value_step` from one KV head's to the next one's.
struct Pool {
    int64_t block_size, key_line, value_line, value_step;
};

struct Step {
    const int64_t *rows, *lengths, *starts, *tables;  // of each chunk; of tables: [chunks][most]
    int64_t chunks, most, stride;
    const float* sinks;  // of each head; null: none
};

// Of a chunk, some of its tokens with the heads of some KV heads; of one KV head some of its heads, if they are many.
struct Tile {
    int64_t chunk, kv_head, kv_heads, head, share, first, tokens;

    // Those of its tokens, `most` at once, that begin with number `from`.
    Tile part(int64_t from, int64_t most) const {
        return {chunk, kv_head, kv_heads, head, share, first + from, std::min(most, tokens - from)};
    }
};

// The slots of `count` positions from `first` on.
void find(const int64_t* table, int64_t block_size, int64_t first, int64_t count, int64_t* slots) {
    int64_t block = first / block_size, within = first % block_size;
    for (int64_t i = 0; i < count; i++) {
        slots[i] = table[block] + within;
        if (++within == block_size) within = 0, block++;
    }
}

// Behind the last position that one of its tokens sees.
int64_t end_of(const AttentionRule& rule, const Step& step, const Tile& tile) {
    const int64_t start = step.starts[tile.chunk], behind = start + tile.first + tile.tokens;
    if (rule.causal) return behind;
    const int64_t end = start + step.lengths[tile.chunk];
    return rule.window ? std::min(end, behind - 1 + rule.window) : end;
}

// Where the blocks of positions begin that its tokens see: each block is the same for all tokens and all tiles.
int64_t begin_of(const AttentionRule& rule, const Step& step, const Tile& tile) {
    if (!rule.window) return 0;
    const int64_t seen = step.starts[tile.chunk] + tile.first + 1 - rule.window;
    return std::max<int64_t>(0, seen) / POSITIONS * POSITIONS;
}

// A block of positions that a tile looks at: their slots.
struct Block {
    int64_t slots[POSITIONS], count = 0;

    // From `first` on, as many as are looked at together.
    void find(const AttentionRule& rule, const Step& step, const Pool& pool, const Tile& tile, int64_t first) {
        count = std::min(POSITIONS, end_of(rule, step, tile) - first);
        ::find(step.tables + tile.chunk * step.most, pool.block_size, first, count, slots);
    }

    // Where a KV head has its row at each of them; `head`: at slot 0.
    template <typename KV>
    void point(const KV* head, int64_t line, const KV** rows) const {
        for (int64_t i = 0; i < count; i++) rows[i] = head + slots[i] * line;
    }
};

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
void attend(const AttentionRule& rule, const Q* q, const KV* keys, const KV* values, Q* out, const Step& step,
            const Pool& pool, Tile at, Tile then, DeskFor<Q, KV>& desk) {
    const int64_t share = rule.heads / rule.kv_heads, dim = rule.key_dim;
    const int64_t rows = at.tokens * at.share, all = at.kv_heads * rows;  // of a KV head, of the tile
    const int64_t top = step.rows[at.chunk] + at.first, start = step.starts[at.chunk] + at.first;
    const float cap = (float)(rule.softcap * LOG2_E);
    // Where a row stands in q, but for the stride of its token, and in out.
    const auto token = [&](int64_t row) { return top + row % rows / at.share; };
    const auto head = [&](int64_t row) { return (at.kv_head + row / rows) * share + at.head + row % at.share; };
    for (int64_t r = 0; r < all; r++) desk.put_query(q + token(r) * step.stride + head(r) * dim, r);
    desk.begin(all);
    if (step.sinks)
        for (int64_t r = 0; r < all; r++) desk.put_sink(r, step.sinks[head(r)] * (float)LOG2_E);
    const int64_t begin = begin_of(rule, step, at), end = end_of(rule, step, at);
    Block blocks[2];
    Block *now = &blocks[0], *next = &blocks[1];
    Rows<KV> k = {}, v = {};
    k.line = pool.block_size % RUN ? 0 : pool.key_line;
    desk.turn_queries(at.kv_heads, rows);
    now->find(rule, step, pool, at, begin);
    for (int64_t first = begin; first < end; first += POSITIONS, std::swap(now, next)) {
        const int64_t count = now->count;
        const bool last = first + count >= end;
        const Tile& coming = last ? then : at;
        next->count = 0;
        if (!last)
            next->find(rule, step, pool, at, first + count);
        else if (then.chunk != at.chunk || then.kv_head != at.kv_head)
            next->find(rule, step, pool, then, begin_of(rule, step, then));
        k.count = v.count = count;
        k.coming = v.coming = next->count;
        for (int64_t each = 0; each < at.kv_heads; each++) {
            const int64_t kv_head = at.kv_head + each, row = each * rows, later = coming.kv_head + each;
            now->point(keys + kv_head * dim, pool.key_line, k.now);
            now->point(values + kv_head * pool.value_step, pool.value_line, v.now);
            next->point(keys + later * dim, pool.key_line, k.next);
            next->point(values + later * pool.value_step, pool.value_line, v.next);
            desk.put(k, v, rows);
            for (int64_t some = 0; some < at.tokens; some += QUERIES / at.share) {
                const Tile part = at.part(some, QUERIES / at.share);
                if (first >= end_of(rule, step, part) || first + count <= begin_of(rule, step, part)) continue;
                const int64_t its = row + some * at.share, number = part.tokens * at.share;
                desk.score(its, number, count);
                for (int64_t r = 0; r < number; r++) {
                    // Its own position, counted from `first`.
                    const int64_t behind = start + some + r / at.share + 1 - first;
                    int64_t until = count;
                    if (rule.causal)
                        until = std::min(count, behind);
                    else if (rule.window)
                        until = std::min(count, behind - 1 + rule.window);
                    const int64_t from = rule.window ? std::max<int64_t>(0, behind - rule.window) : 0;
                    if (cap != 0) cap_softly(desk.scores_of(r), cap);
                    hide(desk.scores_of(r), std::min(from, count), std::max<int64_t>(0, until));
                }
                soften(desk.scores_of(0), number, desk.softmax_of(its, first > begin));
                desk.add_values(its, number, v);
            }
            k.fetch_rest(dim);
            v.fetch_rest(rule.value_dim);
        }
    }
    for (int64_t r = 0; r < all; r++) desk.put_result(r, out + (token(r) * rule.heads + head(r)) * rule.value_dim);
}

// How many parts of QUERIES rows a tile has: keys and values are put down once for all of them. But there are tiles enough
// to keep all threads busy, and a tile's queries and sums stay in the second-level cache.
int64_t parts_of(const AttentionRule& rule, const Step& step, int threads) {
    constexpr int64_t ROOM = 1 << 15, TILES_EACH = 4;
    const int64_t share = rule.heads / rule.kv_heads;
    int64_t longest = 0, parts = 0;
    for (int64_t chunk = 0; chunk < step.chunks; chunk++) {
        const int64_t rows = step.lengths[chunk] * std::min(share, QUERIES);
        longest = std::max(longest, (rows + QUERIES - 1) / QUERIES);
        parts += (rows + QUERIES - 1) / QUERIES * rule.kv_heads;
    }
    const int64_t room = ROOM / (QUERIES * (rule.key_dim + rule.value_dim));
    return std::max<int64_t>(1, std::min({PARTS, room, longest, parts / (TILES_EACH * threads)}));
}

// The longest contexts first, so that no thread is left with one at the end. Where there are chunks enough,
// few tokens go with all heads: what they read of a position lies side by side.
std::vector<Tile> tiles_of(const AttentionRule& rule, const Step& step, int64_t parts, int threads) {
    const int64_t share = rule.heads / rule.kv_heads, part = std::min(share, QUERIES);
    const int64_t tokens = parts * (QUERIES / part);
    const bool many = step.chunks >= 2 * threads;
    std::vector<Tile> tiles;
    for (int64_t chunk = 0; chunk < step.chunks; chunk++) {
        const int64_t length = step.lengths[chunk];
        const int64_t together = many && length * rule.heads <= QUERIES ? rule.kv_heads : 1;
        for (int64_t first = 0; first < length; first += tokens)
            for (int64_t kv_head = 0; kv_head < rule.kv_heads; kv_head += together)
                for (int64_t head = 0; head < share; head += part)
                    tiles.push_back({chunk, kv_head, together, head, std::min(part, share - head), first,
                                     std::min(tokens, length - first)});
    }
    const auto context = [&](const Tile& tile) {
        return step.starts[tile.chunk] + (rule.causal ? tile.first : step.lengths[tile.chunk]);
    };
    std::stable_sort(tiles.begin(), tiles.end(),
                     [&](const Tile& a, const Tile& b) { return context(a) > context(b); });
    return tiles;
}

template <typename Q, typename KV>
void run(const AttentionRule& rule, const void* q, const void* keys, const void* values, void* out, const Step& step,
         const Pool& pool, int threads) {
    const int64_t parts = parts_of(rule, step, threads);
    const std::vector<Tile> tiles = tiles_of(rule, step, parts, threads);
    using Own = OwnDesk<DeskFor<Q, KV>>;
    const int64_t count = (int64_t)tiles.size();
    turnout::take_turns(
        threads, count, [&] { return Own(rule.key_dim, rule.value_dim, (float)(rule.scale * LOG2_E), parts); },
        [&](Own& own, int64_t i) {
            attend(rule, (const Q*)q, (const KV*)keys, (const KV*)values, (Q*)out, step, pool, tiles[i],
                   tiles[std::min(i + threads, count - 1)], own.desk);
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

// One layer of a step. q: [tokens][heads][key_dim], tokens `stride` numbers apart; keys: [slots][kv_heads][key_dim],
// slots `key_line` numbers apart; values: [slots][kv_heads][value_dim], slots `value_line` and KV heads `value_step`
// numbers apart; sinks: [heads], or null; out: [tokens][heads][value_dim]. A chunk's tokens are `lengths` rows from `rows` on, at positions from `starts`
// on; `tables`: [chunks][most], the slots where its blocks begin. *_half: bfloat16, else float32. Heads share KV heads
// evenly; a head is 1024 wide at most.
void turnout_attend(const AttentionRule* rule, const void* q, const void* keys, const void* values,
                    const float* sinks, void* out, const int64_t* rows, const int64_t* lengths,
                    const int64_t* starts, const int64_t* tables, int64_t chunks, int64_t most, int64_t stride,
                    int64_t key_line, int64_t value_line, int64_t value_step, int64_t block_size, int q_half,
                    int kv_half, int threads) {
    const Step step = {rows, lengths, starts, tables, chunks, most, stride, sinks};
    const Pool pool = {block_size, key_line, value_line, value_step};
    if (q_half)
        kv_half ? run<BFloat16, BFloat16>(*rule, q, keys, values, out, step, pool, threads)
                : run<BFloat16, float>(*rule, q, keys, values, out, step, pool, threads);
    else
        kv_half ? run<float, BFloat16>(*rule, q, keys, values, out, step, pool, threads)
                : run<float, float>(*rule, q, keys, values, out, step, pool, threads);
}
}
