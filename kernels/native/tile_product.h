// Products of rows by tiles with panels of weights, [steps][2][16][64 bytes], which are two tiles side by side.
//
// Every number of rows goes the same way, and a row's products are added up in the same order, however they are cut: its
// results do not depend on the others.
//
// Tiles multiply faster than the second-level cache can be read, and many times as fast as the third. So a piece of some
// rows of x stays in the first while some panels pass it, and a slab of x, and sums, in the second.
#pragma once

#include "team.h"
#include "tile.h"
#include "tile_rows.h"
#include "tiles.h"

static_assert(PANEL == 32);

// What is multiplied: pairs of bfloat16, of which sums are floats, or bytes, of which they are integers.
enum class Numbers { PAIRS, BYTES };

// Where results go: so many bytes from one row, and from one panel, to the next.
struct OutLines {
    const char* data;
    int64_t stride, panel;
};

// How a product is cut.
class Cut {
   public:
    int64_t band, bands;    // rows of x
    int64_t slab;           // steps
    int64_t piece, group;   // steps and items
    int64_t chunk, chunks;  // items of a turn
    int64_t width;          // panels of an item
    bool slabs;             // whether there are several, and sums to keep between them
    bool few;               // rows, which pass panels from end to end, as these lie in memory

    Cut(int64_t padded, int64_t steps, int64_t items, int64_t width, int threads)
        : width(width), slabs(steps > NO_SLABS && padded > BLOCK), few(padded <= BLOCK) {
        const int64_t most = slabs ? BAND : std::max(BLOCK, BYTES_OF_BAND / STEP / steps);
        band = (even(padded, most) + BLOCK - 1) / BLOCK * BLOCK;
        slab = slabs ? even(steps, SLAB) : steps;
        piece = few ? slab : even(slab, PIECE);
        group = few ? 1 : GROUP / width;
        chunk = even(items, slabs ? CHUNK / width : std::max<int64_t>(1, items / (TURNS * threads)));
        bands = (padded + band - 1) / band;
        chunks = (items + chunk - 1) / chunk;
    }

    int64_t sums() const { return (slabs ? chunk * band : group * BLOCK) * width * PANEL; }
    int64_t sums_apart() const { return (slabs ? band : BLOCK) * PANEL; }  // from one panel's to the next

   private:
    static constexpr int64_t PIECE = 14;    // steps: a block's are 28 KB, for the first-level cache
    static constexpr int64_t GROUP = 2;     // panels that pass a piece of x together
    static constexpr int64_t SLAB = 40;     // steps, of which a band's are 640 KB, for the second-level cache
    static constexpr int64_t BAND = 256;    // rows
    static constexpr int64_t CHUNK = 14;    // panels of which sums are kept, beside a slab: 448 KB
    static constexpr int64_t NO_SLABS = 48;            // steps
    static constexpr int64_t BYTES_OF_BAND = 1 << 20;  // of x, where there are no slabs
    static constexpr int64_t TURNS = 4;                // that a thread gets, if panels are enough

    static int64_t even(int64_t all, int64_t most) {
        const int64_t parts = (all + most - 1) / most;
        return (all + parts - 1) / parts;
    }
};

// What comes near while tiles are multiplied, some lines at each step: panels that are read later, since a model's
// weights are in no cache, and lines that results go to.
struct TileFetch {
    const uint8_t* panels;
    int64_t lines;
    const char* out;
    int64_t left, stride;

    void operator()() {
        for (int64_t i = 0; i < lines; i++, panels += STEP) __builtin_prefetch(panels, 0, 2);
        for (int64_t i = 0; i < OUT_LINES && left > 0; i++, left--, out += stride) __builtin_prefetch(out, 1);
    }

   private:
    static constexpr int64_t OUT_LINES = 3;
};

// Adds to sums [16 * T][PANEL] the products of T tiles of x with a panel, of so many steps.
template <Numbers OF, int T>
inline void add_block(const uint8_t* x, const uint8_t* panel, int64_t steps, void* of_sums, bool first,
                      TileFetch& fetch) {
    constexpr int64_t LINE = PANEL * 4;
    char *const sums = (char*)of_sums, *const next = sums + 16 * LINE;
    if (first) {
        TILE_ZERO(4);
        TILE_ZERO(5);
        if constexpr (T == 2) {
            TILE_ZERO(6);
            TILE_ZERO(7);
        }
    } else {
        TILE_LOAD(4, sums, LINE);
        TILE_LOAD(5, sums + STEP, LINE);
        if constexpr (T == 2) {
            TILE_LOAD(6, next, LINE);
            TILE_LOAD(7, next + STEP, LINE);
        }
    }
    for (int64_t step = 0; step < steps; step++, x += T * TILE, panel += 2 * TILE) {
        TILE_LOAD(0, x, STEP);
        TILE_STREAM(2, panel, LINE);
        TILE_STREAM(3, panel + STEP, LINE);
        if constexpr (T == 2) TILE_LOAD(1, x + TILE, STEP);
        if constexpr (OF == Numbers::PAIRS) {
            TILE_ADD_PAIRS(4, 0, 2);
            TILE_ADD_PAIRS(5, 0, 3);
        } else {
            TILE_ADD_BYTES(4, 0, 2);
            TILE_ADD_BYTES(5, 0, 3);
        }
        if constexpr (T == 2 && OF == Numbers::PAIRS) {
            TILE_ADD_PAIRS(6, 1, 2);
            TILE_ADD_PAIRS(7, 1, 3);
        } else if constexpr (T == 2) {
            TILE_ADD_BYTES(6, 1, 2);
            TILE_ADD_BYTES(7, 1, 3);
        }
        fetch();
    }
    TILE_STORE(4, sums, LINE);
    TILE_STORE(5, sums + STEP, LINE);
    if constexpr (T == 2) {
        TILE_STORE(6, next, LINE);
        TILE_STORE(7, next + STEP, LINE);
    }
}

// Multiplies x's steps from `from` to before `till` with as many of each panel, and calls `finish(row, rows, item, sums,
// others)` for each block of rows of an item: a panel, or if there is `beside`, a panel and the one so many behind it, whose
// sums are `others`. Sums have 4 bytes, [rows][PANEL].
template <Numbers OF, typename Finish>
class TileProduct {
   public:
    TileProduct(const TileRows& x, const void* panels, int64_t from, int64_t till, int64_t beside, const OutLines& out,
                const Finish& finish)
        : x(x),
          panels((const uint8_t*)panels),
          from(from),
          till(till),
          beside(beside),
          apart(x.steps * 2 * TILE),
          out(out),
          finish(finish) {}

    // Of the items from `begin` to before `end`.
    void run(int64_t begin, int64_t end, int threads) const {
        if (!x.rows || begin == end || from == till) return;
        const Cut cut(x.padded, till - from, end - begin, beside ? 2 : 1, threads);
        turnout::share_out(threads, cut.bands * cut.chunks, 1, [&](int64_t first, int64_t last) {
            const WholeTiles registers;
            static thread_local Scratch scratch;
            int32_t* const sums = scratch.of<int32_t>(cut.sums());
            for (int64_t turn = first; turn < last; turn++) {
                const int64_t row = turn / cut.chunks * cut.band, item = begin + turn % cut.chunks * cut.chunk;
                pass(cut, row, item, std::min(end, item + cut.chunk), sums);
            }
        });
    }

   private:
    static constexpr int64_t AHEAD_OF_FEW = 32 << 10;  // bytes between what is read for few rows and what is fetched

    const TileRows& x;
    const uint8_t* const panels;
    const int64_t from, till, beside;
    const int64_t apart;  // bytes from one panel to the next
    const OutLines& out;
    const Finish& finish;

    // A band of rows, and the items of a turn.
    void pass(const Cut& cut, int64_t row, int64_t first, int64_t last, int32_t* sums) const {
        for (int64_t slab = from; slab < till; slab += cut.slab)
            for (int64_t item = first; item < last; item += cut.group) {
                const int64_t count = std::min(cut.group, last - item);
                const bool fetches = !cut.slabs || item + cut.group < last;
                pass_group(cut, row, slab, item, count, fetches,
                           sums + (cut.slabs ? (item - first) * cut.width * cut.sums_apart() : 0));
            }
    }

    void pass_group(const Cut& cut, int64_t begin, int64_t slab, int64_t item, int64_t count, bool fetches,
                    int32_t* sums) const {
        const int64_t slab_end = std::min(till, slab + cut.slab), end = std::min(x.padded, begin + cut.band);
        const int64_t blocks = (end - begin + BLOCK - 1) / BLOCK;
        TileFetch fetch = {nullptr, fetches ? (2 * TILE / STEP + blocks - 1) / blocks : 0, nullptr, 0, out.stride};
        for (int64_t row = begin, block = 0; row < end; row += BLOCK, block++)
            for (int64_t step = slab; step < slab_end; step += cut.piece) {
                const int64_t steps = std::min(cut.piece, slab_end - step);
                const int64_t share = slab + (block * (slab_end - slab) + step - slab) / blocks;  // of what comes later
                int32_t* const own = sums + (cut.slabs ? block * BLOCK * PANEL : 0);
                for (int64_t i = 0; i < count * cut.width; i++) {
                    const int64_t panel = beside ? item + i * beside : item + i;
                    const uint8_t* const at = panels + panel * apart;
                    fetch.panels = cut.few ? at + step * 2 * TILE + AHEAD_OF_FEW
                                           : at + cut.group * apart + share * 2 * TILE;
                    const bool finishes = step + steps == till && (!beside || i);
                    multiply(row, step, steps, at, own + i * cut.sums_apart(), beside ? item : panel, finishes, fetch);
                    if (finishes) put(cut, row, beside ? item : panel, own + i * cut.sums_apart());
                }
            }
    }

    void multiply(int64_t row, int64_t step, int64_t steps, const uint8_t* at, int32_t* sums, int64_t item,
                  bool finishes, TileFetch& fetch) const {
        fetch.out = out.data + row * out.stride + item * out.panel;
        fetch.left = finishes ? rows_of(row) : 0;
        if (x.tiles(row) == 2)
            add_block<OF, 2>(x.at(row, step), at + step * 2 * TILE, steps, sums, step == from, fetch);
        else
            add_block<OF, 1>(x.at(row, step), at + step * 2 * TILE, steps, sums, step == from, fetch);
    }

    void put(const Cut& cut, int64_t row, int64_t item, const int32_t* sums) const {
        if (beside)
            finish(row, rows_of(row), item, sums - cut.sums_apart(), sums);
        else
            finish(row, rows_of(row), item, sums, nullptr);
    }

    int64_t rows_of(int64_t row) const { return std::min(BLOCK, x.rows - row); }
};

template <Numbers OF, typename Finish>
inline TileProduct<OF, Finish> tile_product(const TileRows& x, const void* panels, int64_t from, int64_t till,
                                            int64_t beside, const OutLines& out, const Finish& finish) {
    return {x, panels, from, till, beside, out, finish};
}
