// Blocks as GGUF files store them, row by row, to panels, by all threads: a model of them starts as soon as another.

#include <algorithm>

#include "blocks.h"
#include "team.h"

namespace {

struct Stored8 {
    uint16_t scale;
    int8_t codes[BLOCK];
};

struct Stored4 {
    uint16_t scale;
    uint8_t codes[BLOCK / 2];  // inputs 0 to 15 low, 16 to 31 high
};

// The low halves of eight bytes, the first lowest.
inline uint32_t low_halves(uint64_t bytes) {
    bytes &= 0x0f0f0f0f0f0f0f0f;
    bytes = (bytes | bytes >> 4) & 0x00ff00ff00ff00ff;
    bytes = (bytes | bytes >> 8) & 0x0000ffff0000ffff;
    return (uint32_t)(bytes | bytes >> 16);
}

inline void put(const Stored8& from, Block8& to, int64_t column) {
    to.scale[column] = from.scale;
    for (int64_t k = 0; k < BLOCK; k++) to.codes[k][column] = from.codes[k];
}

inline void put(const Stored4& from, Block4& to, int64_t column) {
    const uint64_t first = load_as<uint64_t>(from.codes), second = load_as<uint64_t>(from.codes + 8);
    to.scale[column] = from.scale;
    to.codes[0][column] = low_halves(first);
    to.codes[1][column] = low_halves(second);
    to.codes[2][column] = low_halves(first >> 4);
    to.codes[3][column] = low_halves(second >> 4);
}

// Columns behind the last row are zeros.
constexpr Stored8 zeros(Block8*) { return {}; }

inline Stored4 zeros(Block4*) {
    Stored4 none = {};
    std::fill(none.codes, none.codes + BLOCK / 2, (uint8_t)0x88);
    return none;
}

template <typename B, typename S>
void pack(const S* rows, B* packed, int64_t outputs, int64_t blocks, int threads) {
    constexpr int64_t AT_ONCE = 8;  // blocks of a row, which is read along some lines of the cache
    const S nothing = zeros(packed);
    turnout::share_out(threads, (outputs + PANEL - 1) / PANEL, 1, [&](int64_t first, int64_t last) {
        for (int64_t panel = first; panel < last; panel++)
            for (int64_t begin = 0; begin < blocks; begin += AT_ONCE)
                for (int64_t column = 0; column < PANEL; column++) {
                    const int64_t row = panel * PANEL + column;
                    for (int64_t k = begin; k < std::min(begin + AT_ONCE, blocks); k++)
                        put(row < outputs ? rows[row * blocks + k] : nothing, packed[panel * blocks + k], column);
                }
    });
}

}  // namespace

extern "C" {

// rows: [outputs][inputs / 32] blocks of `bits`, 8 or 4, as they are stored, at an even address.
void turnout_block_pack(const void* rows, void* packed, int64_t outputs, int64_t inputs, int bits, int threads) {
    if (bits == 8)
        pack((const Stored8*)rows, (Block8*)packed, outputs, inputs / BLOCK, threads);
    else
        pack((const Stored4*)rows, (Block4*)packed, outputs, inputs / BLOCK, threads);
}
}
