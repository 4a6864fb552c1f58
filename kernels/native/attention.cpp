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

// What a layer attends to.
struct Pool {
    const StoredVectors &keys, &values;
    int64_t block_size;
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

    // Where a KV head has its row at each of them.
    template <typename KV>
    void point(const StoredVectors& of, int64_t kv_head, const KV** rows) const {
        const KV* const head = (const KV*)of.numbers + kv_head * of.step;
        for (int64_t i = 0; i < count; i++) rows[i] = head + slots[i] * of.line;
    }

    // What a KV head's codes stand for at each of them.
    void put_scales(const StoredVectors& of, int64_t kv_head, float* scales) const {
        const BFloat16* const head = (const BFloat16*)of.scales + kv_head;
        for (int64_t i = 0; i < count; i++) scales[i] = widen(head[slots[i] * of.scale_line]);
    }

    // Fetches what `put_scales` will read, of all heads. runs: positions lie side by side, RUN at a time.
    void fetch_scales(const StoredVectors& of, bool runs) const {
        constexpr int64_t LINE = Rows<BFloat16>::LINE;
        const int64_t together = runs ? std::clamp<int64_t>(LINE / of.scale_line, 1, RUN) : 1;
        for (int64_t i = 0; i < count; i += together)
            __builtin_prefetch((const BFloat16*)of.scales + slots[i] * of.scale_line, 0, 2);
    }
};

// Multiplies the number of each row at each position by that position's scale. Codes are multiplied as they are: a key's
// scale meets its scores, and a value's its weights.
void scale_positions(float* scores, int64_t rows, const float* scales) {
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < POSITIONS; i += WIDTH) {
            float* const some = scores + r * POSITIONS + i;
            store(some, load(some) * load(scales + i));
        }
}

#if defined(TILES)
using HalfDesk = TileDesk;
#else
using HalfDesk = Desk<BFloat16>;
#endif

#if defined(TILES) || defined(__AVX512BF16__)
constexpr bool MULTIPLIES_HALVES = true;
#else
constexpr bool MULTIPLIES_HALVES = false;
#endif

// Where queries and keys both are bfloat16, so are the factors of their products; else they are floats. Of codes, which
// either holds exactly, they are bfloat16 where an instruction multiplies such.
template <typename Q, typename KV>
constexpr bool AS_HALVES =
    std::is_same_v<Q, BFloat16> && (IS_CODE<KV> ? MULTIPLIES_HALVES : std::is_same_v<KV, BFloat16>);

template <typename Q, typename KV>
using DeskFor = std::conditional_t<AS_HALVES<Q, KV>, HalfDesk, Desk<float>>;

// `then`: what comes next, whose first positions are fetched while the last ones of `at` are worked on: a step
// reads many contexts, and would wait at the beginning of each.
template <typename Q, typename KV>
void attend(const AttentionRule& rule, const Q* q, Q* out, const Step& step, const Pool& pool, Tile at, Tile then,
            DeskFor<Q, KV>& desk) {
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
    float key_scales[POSITIONS] = {}, value_scales[POSITIONS] = {};  // of codes alone
    const bool runs = pool.block_size % RUN == 0;
    k.line = runs ? pool.keys.line : 0;
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
        if constexpr (IS_CODE<KV>) {
            next->fetch_scales(pool.keys, runs);
            next->fetch_scales(pool.values, runs);
        }
        k.count = v.count = count;
        k.coming = v.coming = next->count;
        for (int64_t each = 0; each < at.kv_heads; each++) {
            const int64_t kv_head = at.kv_head + each, row = each * rows, later = coming.kv_head + each;
            now->point(pool.keys, kv_head, k.now);
            now->point(pool.values, kv_head, v.now);
            next->point(pool.keys, later, k.next);
            next->point(pool.values, later, v.next);
            if constexpr (IS_CODE<KV>) {
                now->put_scales(pool.keys, kv_head, key_scales);
                now->put_scales(pool.values, kv_head, value_scales);
            }
            desk.put(k, v, rows);
            for (int64_t some = 0; some < at.tokens; some += QUERIES / at.share) {
                const Tile part = at.part(some, QUERIES / at.share);
                if (first >= end_of(rule, step, part) || first + count <= begin_of(rule, step, part)) continue;
                const int64_t its = row + some * at.share, number = part.tokens * at.share;
                desk.score(its, number, count);
                if constexpr (IS_CODE<KV>) scale_positions(desk.scores_of(0), number, key_scales);
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
                if constexpr (IS_CODE<KV>) scale_positions(desk.scores_of(0), number, value_scales);
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
void run_over(const AttentionRule& rule, const Q* q, Q* out, const Step& step, const Pool& pool, int threads) {
    const int64_t parts = parts_of(rule, step, threads);
    const std::vector<Tile> tiles = tiles_of(rule, step, parts, threads);
    using Own = OwnDesk<DeskFor<Q, KV>>;
    const int64_t count = (int64_t)tiles.size();
    turnout::take_turns(
        threads, count, [&] { return Own(rule.key_dim, rule.value_dim, (float)(rule.scale * LOG2_E), parts); },
        [&](Own& own, int64_t i) {
            attend<Q, KV>(rule, q, out, step, pool, tiles[i], tiles[std::min(i + threads, count - 1)], own.desk);
        });
}

template <typename Q>
void run(const AttentionRule& rule, const Q* q, Q* out, const Step& step, const Pool& pool, int threads) {
    switch (pool.keys.kind) {
        case StoredAs::FLOATS: return run_over<Q, float>(rule, q, out, step, pool, threads);
        case StoredAs::HALVES: return run_over<Q, BFloat16>(rule, q, out, step, pool, threads);
        case StoredAs::INT8: return run_over<Q, int8_t>(rule, q, out, step, pool, threads);
        case StoredAs::FP8: return run_over<Q, Fp8>(rule, q, out, step, pool, threads);
    }
}

struct Written {
    const int64_t* slots;
    int64_t tokens, heads, dim, stride;
};

template <typename T, typename KV>
void write_as(const T* rows, const StoredVectors& to, const Written& of, int threads) {
    turnout::share_out(threads, of.tokens, WORTHWHILE / (of.heads * of.dim) + 1, [&](int64_t first, int64_t last) {
        for (int64_t token = first; token < last; token++)
            for (int64_t head = 0; head < of.heads; head++) {
                const T* const from = rows + token * of.stride + head * of.dim;
                KV* const numbers = (KV*)to.numbers + of.slots[token] * to.line + head * to.step;
                if constexpr (IS_CODE<KV>)
                    ((BFloat16*)to.scales)[of.slots[token] * to.scale_line + head] = encode(from, of.dim, numbers);
                else
                    for (int64_t i = 0; i < of.dim; i++) narrow(widen(from[i]), numbers + i);
            }
    });
}

template <typename T>
void write(const T* rows, const StoredVectors& to, const Written& of, int threads) {
    switch (to.kind) {
        case StoredAs::FLOATS: return write_as<T, float>(rows, to, of, threads);
        case StoredAs::HALVES: return write_as<T, BFloat16>(rows, to, of, threads);
        case StoredAs::INT8: return write_as<T, int8_t>(rows, to, of, threads);
        case StoredAs::FP8: return write_as<T, Fp8>(rows, to, of, threads);
    }
}

}  // namespace

extern "C" {

// rows: [tokens][heads][dim], `stride` numbers apart, each into its slot. half: rows are bfloat16, else float32.
void turnout_write(const void* rows, const StoredVectors* to, const int64_t* slots, int64_t tokens, int64_t heads,
                   int64_t dim, int64_t stride, int half, int threads) {
    const bool whole = to->kind < StoredAs::INT8 && to->step == dim;  // heads lie side by side, as one
    const Written of = {slots, tokens, whole ? 1 : heads, whole ? heads * dim : dim, stride};
    half ? write((const BFloat16*)rows, *to, of, threads) : write((const float*)rows, *to, of, threads);
}

// One layer of a step. q: [tokens][heads][key_dim], tokens `stride` numbers apart; keys and values: of one kind; sinks:
// [heads], or null; out: [tokens][heads][value_dim]. A chunk's tokens are `lengths` rows from `rows` on, at positions from
// `starts` on; `tables`: [chunks][most], the slots where its blocks begin. half: q and out are bfloat16, else float32.
// Heads share KV heads evenly; a head is 1024 wide at most.
void turnout_attend(const AttentionRule* rule, const void* q, const StoredVectors* keys, const StoredVectors* values,
                    const float* sinks, void* out, const int64_t* rows, const int64_t* lengths,
                    const int64_t* starts, const int64_t* tables, int64_t chunks, int64_t most, int64_t stride,
                    int64_t block_size, int half, int threads) {
    const Step step = {rows, lengths, starts, tables, chunks, most, stride, sinks};
    const Pool pool = {*keys, *values, block_size};
    half ? run(*rule, (const BFloat16*)q, (BFloat16*)out, step, pool, threads)
         : run(*rule, (const float*)q, (float*)out, step, pool, threads);
}
}
