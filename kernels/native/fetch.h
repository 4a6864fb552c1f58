// What comes near while a tile of a matrix product is computed: the lines that it writes, and its part of the panel that
// is read next, since a model's weights are in no cache. They come one by one: many at once would keep waiting what the
// tile itself reads.
#pragma once

#include "tile.h"

// Rows of a panel's width, of some type, in bytes.
struct Lines {
    const char* first;
    int64_t stride, bytes, rows;

    template <typename T>
    static Lines of(const T* first, int64_t stride, int64_t rows) {
        constexpr int64_t SIZE = sizeof(T);
        return {(const char*)first, stride * SIZE, PANEL * SIZE, rows};
    }
};

struct TileOf {
    int64_t number, tiles;  // those that pass a panel
};

class Fetch {
   public:
    // next: the panel that is read next, with so many `bytes` at each of its `depth`s.
    Fetch(Lines out, const void* next, int64_t bytes, int64_t depth, TileOf tile)
        : out(out), share((bytes + tile.tiles - 1) / tile.tiles), part((const char*)next + tile.number * share * depth) {
        while (2 * share * (skipped + 1) <= LINE) skipped = 2 * skipped + 1;
    }

    // Always inlined, or GCC takes what only fetches for something that does nothing.
    [[gnu::always_inline]] void operator()(int64_t step) const {
        if (!(step & skipped))
            for (int64_t i = 0; i < share; i += LINE) __builtin_prefetch(part + step * share + i, 0, 2);
        if (step >= out.rows) return;
        for (int64_t i = 0; i < out.bytes; i += LINE) __builtin_prefetch(out.first + step * out.stride + i, 1);
    }

   private:
    static constexpr int64_t LINE = 64;
    Lines out;
    int64_t share;  // of the next panel's bytes
    const char* part;
    int64_t skipped = 0;  // between two steps that fetch, one less than a power of two
};
