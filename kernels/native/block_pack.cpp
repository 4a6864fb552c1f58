// Blocks as GGUF files store them, row by row, to panels, by all threads: a model of them starts as soon as another.

#include <algorithm>

#include "blocks.h"
#include "team.h"

namespace {

struct Stored8 {
    uint16_t scale;
    int8_t codes[32];
};

struct Stored4 {
    uint16_t scale;
    uint8_t codes[16];  // inputs 0 to 15 low, 16 to 31 high
};

struct Stored4K {
    uint16_t scale, offset;
    uint8_t scales[12];  // six bits of each of 8 scales and 8 offsets
    uint8_t codes[128];  // of 64 inputs each: 0 to 31 low, 32 to 63 high
};

struct Stored6K {
    uint8_t low[128];  // of 128 inputs each: 0 to 63 low, 64 to 127 high
    uint8_t high[64];  // of 128 inputs each: 0 to 31 lowest, and so on
    int8_t scales[16];
    uint16_t scale;
};

// The low halves of eight bytes, the first lowest.
inline uint32_t low_halves(uint64_t bytes) {
    bytes &= 0x0f0f0f0f0f0f0f0f;
    bytes = (bytes | bytes >> 4) & 0x00ff00ff00ff00ff;
    bytes = (bytes | bytes >> 8) & 0x0000ffff0000ffff;
    return (uint32_t)(bytes | bytes >> 16);
}

// The lowest two bits of each of eight bytes, the first lowest.
inline uint16_t low_pairs(uint64_t bytes) {
    bytes &= 0x0303030303030303;
    bytes = (bytes | bytes >> 6) & 0x000f000f000f000f;
    bytes = (bytes | bytes >> 12) & 0x000000ff000000ff;
    return (uint16_t)(bytes | bytes >> 24);
}

inline void put(const Stored8& from, Block8& to, int64_t column) {
    to.scale[column] = from.scale;
    for (int64_t k = 0; k < 32; k++) to.codes[k][column] = from.codes[k];
}

inline void put(const Stored4& from, Block4& to, int64_t column) {
    const uint64_t first = load_as<uint64_t>(from.codes), second = load_as<uint64_t>(from.codes + 8);
    to.scale[column] = from.scale;
    to.codes[0][column] = low_halves(first);
    to.codes[1][column] = low_halves(second);
    to.codes[2][column] = low_halves(first >> 4);
    to.codes[3][column] = low_halves(second >> 4);
}

inline void put(const Stored4K& from, Block4K& to, int64_t column) {
    to.scale[column] = from.scale;
    to.offset[column] = from.offset;
    const uint8_t* six = from.scales;
    for (int64_t i = 0; i < 4; i++) {  // the last four's upper bits are the first four's topmost
        to.scales[i][column] = six[i] & 63;
        to.offsets[i][column] = six[i + 4] & 63;
        to.scales[i + 4][column] = (uint8_t)((six[i + 8] & 15) | six[i] >> 6 << 4);
        to.offsets[i + 4][column] = (uint8_t)(six[i + 8] >> 4 | six[i + 4] >> 6 << 4);
    }
    for (int64_t k = 0; k < 256; k += 8) {
        const uint64_t bytes = load_as<uint64_t>(from.codes + k / 64 * 32 + k % 32);
        to.codes[k / 8][column] = low_halves(bytes >> (k % 64 < 32 ? 0 : 4));
    }
}

inline void put(const Stored6K& from, Block6K& to, int64_t column) {
    to.scale[column] = from.scale;
    for (int64_t i = 0; i < 16; i++) to.scales[i][column] = from.scales[i];
    for (int64_t k = 0; k < 256; k += 8) {
        const uint64_t low = load_as<uint64_t>(from.low + k / 128 * 64 + k % 64);
        const uint64_t high = load_as<uint64_t>(from.high + k / 128 * 32 + k % 32);
        to.low[k / 8][column] = low_halves(low >> (k % 128 < 64 ? 0 : 4));
        to.high[k / 8][column] = low_pairs(high >> (k % 128 / 32 * 2));
    }
}

// Columns behind the last row are zeros.
constexpr Stored8 zeros(Block8*) { return {}; }
constexpr Stored4K zeros(Block4K*) { return {}; }
constexpr Stored6K zeros(Block6K*) { return {}; }

inline Stored4 zeros(Block4*) {
    Stored4 none = {};
    std::fill(none.codes, none.codes + sizeof none.codes, (uint8_t)0x88);
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

// rows: [outputs][inputs / block] blocks of a type, as they are stored, at an even address.
void turnout_block_pack(const void* rows, void* packed, int64_t outputs, int64_t inputs, int type, int threads) {
    const auto all = [&](auto* stored, auto* to) {
        pack(stored, to, outputs, inputs / Pointed<decltype(to)>::INPUTS, threads);
    };
    switch (type) {
        case Q8_0: return all((const Stored8*)rows, (Block8*)packed);
        case Q4_0: return all((const Stored4*)rows, (Block4*)packed);
        case Q4_K: return all((const Stored4K*)rows, (Block4K*)packed);
        case Q6_K: return all((const Stored6K*)rows, (Block6K*)packed);
    }
}
}
