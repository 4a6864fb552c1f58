// Panels from rows: words of PANEL rows that are read together lie together.
#pragma once

#include <algorithm>

#include "team.h"
#include "tile.h"

// Column c of a panel [words][PANEL] becomes the row `from + c * bytes`, of so many bytes and then zeros, for each of
// `columns`; the others are left alone. Some words of all rows go at once, whose lines of the panel stay in the cache.
template <typename Word>
void put_columns(const uint8_t* from, int64_t bytes, int64_t columns, int64_t words, Word* panel) {
    constexpr int64_t AT_ONCE = 16, SIZE = sizeof(Word);
    const int64_t whole = bytes / SIZE, rest = bytes % SIZE;
    for (int64_t first = 0; first < whole; first += AT_ONCE) {
        const int64_t last = std::min(whole, first + AT_ONCE);
        for (int64_t c = 0; c < columns; c++)
            for (int64_t w = first; w < last; w++) panel[w * PANEL + c] = load_as<Word>(from + c * bytes + w * SIZE);
    }
    for (int64_t w = whole; w < words; w++)
        for (int64_t c = 0; c < columns; c++) {
            Word word = 0;
            if (w == whole) std::memcpy(&word, from + c * bytes + w * SIZE, rest);
            panel[w * PANEL + c] = word;
        }
}

// Rows `first` and on of all panels, whose words are `words` each, become `count` rows of so many bytes.
template <typename Word>
void put_rows(const uint8_t* rows, int64_t bytes, int64_t count, int64_t first, int64_t words, Word* panels,
              int threads) {
    const int64_t begin = first / PANEL, end = (first + count + PANEL - 1) / PANEL;
    turnout::share_out(threads, end - begin, 1, [&](int64_t from, int64_t till) {
        for (int64_t panel = begin + from; panel < begin + till; panel++) {
            const int64_t row = std::max(first, panel * PANEL), last = std::min(first + count, (panel + 1) * PANEL);
            put_columns(rows + (row - first) * bytes, bytes, last - row, words,
                        panels + panel * words * PANEL + row % PANEL);
        }
    });
}

// Numbers of a column of a panel [pairs][PANEL][2], from where its first pair is on.
inline void pick_column(const uint16_t* from, int64_t count, uint16_t* to) {
    for (int64_t k = 0; k < count; k++) to[k] = from[k / 2 * 2 * PANEL + k % 2];
}
