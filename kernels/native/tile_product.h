// Products of rows by tiles with panels of weights, [steps][2][16][64 bytes], which are two tiles side by side.
//
// Every number of rows goes the same way, and a row's products are added up in the same order, however they are cut:
// its results do not depend on the others.
//
// Tiles multiply faster than the second-level cache can be read, and many times as fast as the third. So a piece of some
// rows of x stays in the first while some panels pass it, and a slab of x, and sums, in the second.
#pragma once

#include "compressed_halves.h"
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

constexpr int64_t LINE_OF_SUMS = PANEL * 4;  // bytes

// The sums of T tiles of x with a panel, in tiles 4 and on.
template <int T>
inline void load_sums_of_tiles(const char* sums, bool first) {
    const char* const next = sums + 16 * LINE_OF_SUMS;
    if (first) {
        TILE_ZERO(4);
        TILE_ZERO(5);
        if constexpr (T == 2) {
            TILE_ZERO(6);
            TILE_ZERO(7);
        }
    } else {
        TILE_LOAD(4, sums, LINE_OF_SUMS);
        TILE_LOAD(5, sums + STEP, LINE_OF_SUMS);
        if constexpr (T == 2) {
            TILE_LOAD(6, next, LINE_OF_SUMS);
            TILE_LOAD(7, next + STEP, LINE_OF_SUMS);
        }
    }
}

template <int T>
inline void store_sums_of_tiles(char* sums) {
    char* const next = sums + 16 * LINE_OF_SUMS;
    TILE_STORE(4, sums, LINE_OF_SUMS);
    TILE_STORE(5, sums + STEP, LINE_OF_SUMS);
    if constexpr (T == 2) {
        TILE_STORE(6, next, LINE_OF_SUMS);
        TILE_STORE(7, next + STEP, LINE_OF_SUMS);
    }
}

// Adds the products of T tiles of x with a panel, of a step.
template <Numbers OF, int T>
inline void add_step(const uint8_t* x, const uint8_t* panel) {
    TILE_LOAD(0, x, STEP);
    TILE_STREAM(2, panel, 2 * STEP);
    TILE_STREAM(3, panel + STEP, 2 * STEP);
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
}

// Adds to sums [16 * T][PANEL] the products of T tiles of x with a panel, of so many steps.
template <Numbers OF, int T>
inline void add_block(const uint8_t* x, const uint8_t* panel, int64_t steps, void* sums, bool first,
                      TileFetch& fetch) {
    load_sums_of_tiles<T>((const char*)sums, first);
    for (int64_t step = 0; step < steps; step++, x += T * TILE, panel += 2 * TILE) {
        add_step<OF, T>(x, panel);
        fetch();
    }
    store_sums_of_tiles<T>((char*)sums);
}

// Where a panel is expanded to: so many steps, the last ones if these are fewer than are written.
struct Room {
    uint8_t* data;
    int64_t steps;

    uint8_t* at(int64_t step) const { return data + step % steps * 2 * TILE; }
};

// The same of a panel that is expanded on the way: a step ahead, since what was just written is read slowly.
template <int T>
inline void add_compressed(const uint8_t* x, Expansion panel, int64_t steps, const Room& room, void* sums, bool first,
                           TileFetch& fetch) {
    load_sums_of_tiles<T>((const char*)sums, first);
    panel.next(room.at(0));
    for (int64_t step = 0; step < steps; step++, x += T * TILE) {
        if (step + 1 < steps) panel.next(room.at(step + 1));
        add_step<Numbers::PAIRS, T>(x, room.at(step));
        fetch();
    }
    store_sums_of_tiles<T>((char*)sums);
}

// Panels as they are multiplied.
struct PlainPanels {
    static constexpr bool COMPRESSED = false;
    static constexpr int64_t BYTES = 2 * TILE;  // of a step

    const uint8_t* data;
    int64_t steps;

    const uint8_t* at(int64_t panel, int64_t step) const { return data + (panel * steps + step) * BYTES; }
};

// Panels that are expanded by the first rows that they are multiplied with.
struct PanelsToExpand : CompressedPanels {
    static constexpr bool COMPRESSED = true;
    static constexpr int64_t BYTES = COMPRESSED_STEP;

    using CompressedPanels::CompressedPanels;
};

// Multiplies x's steps from `from` to before `till` with as many of each panel, and calls `finish(row, rows, item, sums,
// others)` for each block of rows of an item: a panel, or if there is `beside`, a panel and the one so many behind it, whose
// sums are `others`. Sums have 4 bytes, [rows][PANEL].
template <Numbers OF, typename Panels, typename Finish>
class TileProduct {
   public:
    TileProduct(const TileRows& x, const Panels& panels, int64_t from, int64_t till, int64_t beside,
                const OutLines& out, const Finish& finish)
        : x(x), panels(panels), from(from), till(till), beside(beside), out(out), finish(finish) {}

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
    static constexpr int64_t STEPS_OF_FEW = 2;         // that are kept of an expanded panel

    const TileRows& x;
    const Panels panels;
    const int64_t from, till, beside;
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
        TileFetch fetch = {nullptr, fetches ? (Panels::BYTES / STEP + blocks - 1) / blocks : 0, nullptr, 0, out.stride};
        for (int64_t row = begin, block = 0; row < end; row += BLOCK, block++)
            for (int64_t step = slab; step < slab_end; step += cut.piece) {
                const int64_t steps = std::min(cut.piece, slab_end - step);
                const int64_t share = slab + (block * (slab_end - slab) + step - slab) / blocks;  // of what comes later
                int32_t* const own = sums + (cut.slabs ? block * BLOCK * PANEL : 0);
                for (int64_t i = 0; i < count * cut.width; i++) {
                    const int64_t panel = panel_of(item, i);
                    fetch.panels =
                        cut.few ? panels.at(panel, step) + AHEAD_OF_FEW : panels.at(panel + cut.group, share);
                    const bool finishes = step + steps == till && (!beside || i);
                    fetch.out = out.data + row * out.stride + (beside ? item : panel) * out.panel;
                    fetch.left = finishes ? rows_of(row) : 0;
                    const Part part = {panel, step, steps, i * (slab_end - slab) + step - slab};
                    multiply(cut, row, block == 0, part, own + i * cut.sums_apart(), fetch);
                    if (finishes) put(cut, row, beside ? item : panel, own + i * cut.sums_apart());
                }
            }
    }

    int64_t panel_of(int64_t item, int64_t i) const { return beside ? item + i * beside : item + i; }

    // Of a panel, so many steps from `step` on; `place`: of its first among the steps of a group.
    struct Part {
        int64_t panel, step, steps, place;
    };

    void multiply(const Cut& cut, int64_t row, bool expands, const Part& part, int32_t* sums,
                  TileFetch& fetch) const {
        if (x.tiles(row) == 2)
            multiply<2>(cut, row, expands, part, sums, fetch);
        else
            multiply<1>(cut, row, expands, part, sums, fetch);
    }

    template <int T>
    void multiply(const Cut& cut, int64_t row, bool expands, const Part& part, int32_t* sums,
                  TileFetch& fetch) const {
        const uint8_t *const rows = x.at(row, part.step), *panel = panels.at(part.panel, part.step);
        const bool first = part.step == from;
        if constexpr (Panels::COMPRESSED) {
            uint8_t* const wide = room_for(cut) + (cut.few ? 0 : part.place * 2 * TILE);
            if (expands) {
                const Room room = {wide, cut.few ? STEPS_OF_FEW : part.steps};
                return add_compressed<T>(rows, {panels, part.panel, part.step}, part.steps, room, sums, first, fetch);
            }
            panel = wide;
        }
        add_block<OF, T>(rows, panel, part.steps, sums, first, fetch);
    }

    // For what a thread has expanded.
    static uint8_t* room_for(const Cut& cut) {
        static thread_local Scratch scratch;
        return scratch.of<uint8_t>((cut.few ? STEPS_OF_FEW : cut.group * cut.width * cut.slab) * 2 * TILE);
    }

    void put(const Cut& cut, int64_t row, int64_t item, const int32_t* sums) const {
        if (beside)
            finish(row, rows_of(row), item, sums - cut.sums_apart(), sums);
        else
            finish(row, rows_of(row), item, sums, nullptr);
    }

    int64_t rows_of(int64_t row) const { return std::min(BLOCK, x.rows - row); }
};

template <Numbers OF, typename Panels, typename Finish>
inline TileProduct<OF, Panels, Finish> tile_product(const TileRows& x, const Panels& panels, int64_t from, int64_t till,
                                                    int64_t beside, const OutLines& out, const Finish& finish) {
    return {x, panels, from, till, beside, out, finish};
}
