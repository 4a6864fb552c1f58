// Each rank has two buffers that the others read. It copies a piece of its tensor into one of them, says so in
// its word, waits until all others have said so too, and reads theirs. The next piece goes into the other buffer.
// One wait for each piece is enough: a rank fills a buffer again only after all have said that they have come to
// the piece between, and so are done with the one before. Ranks take no locks: one that dies leaves none behind.

#include "collectives.h"

#include <algorithm>
#include <climits>
#include <cstring>
#include <new>
#include <type_traits>

#include "team.h"
#include "vector.h"
#include "waiting.h"

namespace {

using ::narrow;
using ::widen;
using turnout::PROCESSES;
using turnout::Word;

constexpr int64_t PIECE = 1 << 18;  // bytes: two buffers of two ranks stay in a core's second cache
constexpr int64_t SLOTS = 16;       // pieces on their way from one rank to another
constexpr int MOST_RANKS = 64;
constexpr int64_t SHARED_OUT = 1 << 16;  // bytes, from which on a second thread is quicker than none

// Pieces on their way from one rank to another.
struct Way {
    Word sent, taken;
};

struct Group {
    char* memory;
    int64_t rank, ranks;
    uint32_t pieces;  // that this rank has said
    uint32_t sent[MOST_RANKS], taken[MOST_RANKS];
    turnout::Patience patience;

    Word& aborted() const { return *(Word*)memory; }
    Word& said(int64_t of) const { return ((Word*)memory)[1 + of]; }
    Way& way(int64_t from, int64_t to) const {
        return ((Way*)(memory + (1 + ranks) * sizeof(Word)))[from * ranks + to];
    }
    char* buffers() const { return memory + words(ranks); }
    char* buffer(int64_t of, uint32_t piece) const { return buffers() + (of * 2 + piece % 2) * PIECE; }
    char* slot(int64_t from, int64_t to, uint32_t piece) const {
        return buffers() + (ranks * 2 + (from * ranks + to) * SLOTS + piece % SLOTS) * PIECE;
    }

    static int64_t words(int64_t ranks) {
        const int64_t bytes = (1 + ranks) * sizeof(Word) + ranks * ranks * sizeof(Way);
        return (bytes + 4095) / 4096 * 4096;
    }

    // Returns whether the word is at `least` or beyond; false: the group was aborted.
    bool wait(Word& word, uint32_t least) {
        bool over = false;
        patience.wait<PROCESSES>(word, [&](uint32_t value) {
            return (int32_t)(value - least) >= 0 || (over = aborted().value.load(std::memory_order_relaxed));
        });
        return !over;
    }

    static void say(Word& word, uint32_t value) {
        word.value.store(value);
        word.wake_sleepers<PROCESSES>(INT_MAX);
    }

    char* own() const { return buffer(rank, pieces + 1); }

    // Says that `own()` is filled; true once all buffers of this piece are.
    bool meet() {
        say(said(rank), ++pieces);
        for (int64_t other = 0; other < ranks; other++)
            if (other != rank && !wait(said(other), pieces)) return false;
        return true;
    }
};

// ------------------------------------------------------------------ numbers

// Sums may not depend on where a number lies, so bfloat16 is rounded by the same operations in vectors and alone:
// the instruction that a CPU may have takes the smallest numbers for zeros.
inline void keep(BFloat16* to, Floats x) {
    const Words bits = (Words)x;
    const Words rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    const Words nan = (bits >> 16) | 0x40u;
    const Halves kept = __builtin_convertvector((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded, Halves);
    std::memcpy(to, &kept, sizeof kept);
}

inline void keep(float* to, Floats x) { store(to, x); }

struct Float16 {
    uint16_t bits;
};

inline float from_bits(uint32_t bits) {
    float x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}

inline uint32_t bits_of(float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits;
}

inline float widen(Float16 x) {
    const uint32_t sign = (uint32_t)(x.bits & 0x8000u) << 16, rest = x.bits & 0x7fffu;
    if (rest >= 0x7c00u) return from_bits(sign | 0x7f800000u | rest << 13);       // infinite, or NaN
    if (rest < 0x0400u) return from_bits(sign | bits_of((float)rest * 0x1p-24f));  // below the smallest normal one
    return from_bits(sign | ((rest << 13) + (112u << 23)));
}

// Rounds to nearest even.
inline void narrow(float x, Float16* to) {
    const uint32_t sign = bits_of(x) >> 16 & 0x8000u, rest = bits_of(x) & 0x7fffffffu;
    uint32_t kept;
    if (rest > 0x7f800000u)
        kept = 0x7e00u;
    else if (rest >= 0x477ff000u)  // rounds to 65536 or more
        kept = 0x7c00u;
    else if (rest < 0x38800000u)  // below 2^-14: the addition rounds to a multiple of 2^-24
        kept = bits_of(from_bits(rest) + 0.5f) - bits_of(0.5f);
    else
        kept = (rest + 0xfffu + (rest >> 13 & 1u) - (112u << 23)) >> 13;
    to->bits = (uint16_t)(sign | kept);
}

template <bool largest, typename Number>
inline Number joined(Number a, Number b) {
    if constexpr (!largest) return a + b;
    return a != a || a > b ? a : b;  // NaN stays NaN
}

template <bool largest>
inline Floats joined_vectors(Floats a, Floats b) {
    if constexpr (!largest) return a + b;
    return a > b ? a : (a == a ? b : a);
}

// out: of each number what the parts make together, in their order; out may be one of them.
template <bool largest, typename T>
void join(const void* const* parts, int64_t count, T* out, int64_t first, int64_t last) {
    int64_t i = first;
    if constexpr (!std::is_same<T, Float16>::value)
        for (; i + WIDTH <= last; i += WIDTH) {
            Floats total = load((const T*)parts[0] + i);
            for (int64_t part = 1; part < count; part++)
                total = joined_vectors<largest>(total, load((const T*)parts[part] + i));
            keep(out + i, total);
        }
    for (; i < last; i++) {
        float total = widen(((const T*)parts[0])[i]);
        for (int64_t part = 1; part < count; part++)
            total = joined<largest>(total, widen(((const T*)parts[part])[i]));
        narrow(total, out + i);
    }
}

// The same of whole numbers, which may be added in any order.
template <bool largest>
void join_integers(const void* const* parts, int64_t count, int32_t* out, int64_t first, int64_t last) {
    for (int64_t i = first; i < last; i++) {
        int32_t total = ((const int32_t*)parts[0])[i];
        for (int64_t part = 1; part < count; part++) {
            const int32_t other = ((const int32_t*)parts[part])[i];
            total = largest ? std::max(total, other) : total + other;
        }
        out[i] = total;
    }
}

template <bool largest>
void join_as(int kind, const void* const* parts, int64_t count, void* out, int64_t first, int64_t last) {
    if (kind == COLLECTIVE_FLOAT32)
        join<largest>(parts, count, (float*)out, first, last);
    else if (kind == COLLECTIVE_BFLOAT16)
        join<largest>(parts, count, (BFloat16*)out, first, last);
    else if (kind == COLLECTIVE_INT32)
        join_integers<largest>(parts, count, (int32_t*)out, first, last);
    else
        join<largest>(parts, count, (Float16*)out, first, last);
}

inline int64_t size_of(int kind) { return kind == COLLECTIVE_FLOAT32 || kind == COLLECTIVE_INT32 ? 4 : 2; }

template <bool largest>
bool all_reduce(Group& group, char* x, int64_t count, int kind, int threads) {
    const int64_t size = size_of(kind), most = PIECE / size;
    for (int64_t begin = 0; begin < count; begin += most) {
        const int64_t length = std::min(most, count - begin);
        char *const piece = x + begin * size, *const own = group.own();
        turnout::share_out(threads, length, SHARED_OUT / size, [&](int64_t first, int64_t last) {
            std::memcpy(own + first * size, piece + first * size, (size_t)((last - first) * size));
        });
        if (!group.meet()) return false;
        const void* parts[MOST_RANKS];
        for (int64_t rank = 0; rank < group.ranks; rank++) parts[rank] = group.buffer(rank, group.pieces);
        turnout::share_out(threads, length, SHARED_OUT / size, [&](int64_t first, int64_t last) {
            join_as<largest>(kind, parts, group.ranks, piece, first, last);
        });
    }
    return true;
}

// Copies bytes from `first` on of [rows][width] to where its rows lie in `out`, [rows][stride].
void place(const char* from, int64_t first, int64_t length, char* out, int64_t width, int64_t stride) {
    while (length > 0) {
        const int64_t row = first / width, column = first % width, some = std::min(length, width - column);
        std::memcpy(out + row * stride + column, from, (size_t)some);
        from += some;
        first += some;
        length -= some;
    }
}

}  // namespace

extern "C" {

int64_t turnout_group_memory(int64_t ranks) {
    return ranks > MOST_RANKS ? 0 : Group::words(ranks) + (ranks * 2 + ranks * ranks * SLOTS) * PIECE;
}

int64_t turnout_group_bytes() { return sizeof(Group); }

void turnout_group_join(void* group, void* memory, int64_t rank, int64_t ranks) {
    Group& own = *new (group) Group();
    own.memory = (char*)memory;
    own.rank = rank;
    own.ranks = ranks;
}

int64_t turnout_group_ranks(const void* group) { return ((const Group*)group)->ranks; }

void turnout_group_abort(void* group) { Group::say(((Group*)group)->aborted(), 1); }

int turnout_group_all_reduce(void* group, void* x, int64_t count, int kind, int largest, int threads) {
    Group& own = *(Group*)group;
    return largest ? !all_reduce<true>(own, (char*)x, count, kind, threads)
                   : !all_reduce<false>(own, (char*)x, count, kind, threads);
}

int turnout_group_reduce_scatter(void* group, const void* x, void* out, int64_t count, int kind) {
    Group& own = *(Group*)group;
    const int64_t size = size_of(kind), most = PIECE / own.ranks / size;
    for (int64_t begin = 0; begin < count; begin += most) {
        const int64_t length = std::min(most, count - begin);
        for (int64_t rank = 0; rank < own.ranks; rank++)
            std::memcpy(own.own() + rank * length * size, (const char*)x + (rank * count + begin) * size,
                        (size_t)(length * size));
        if (!own.meet()) return 1;
        const void* parts[MOST_RANKS];
        for (int64_t rank = 0; rank < own.ranks; rank++)
            parts[rank] = own.buffer(rank, own.pieces) + own.rank * length * size;
        join_as<false>(kind, parts, own.ranks, (char*)out + begin * size, 0, length);
    }
    return 0;
}

int turnout_group_gather(void* group, const void* x, void* out, int64_t rows, const int64_t* widths, int everyone) {
    Group& own = *(Group*)group;
    int64_t stride = 0, widest = 0;
    for (int64_t rank = 0; rank < own.ranks; rank++) {
        stride += widths[rank];
        widest = std::max(widest, widths[rank]);
    }
    for (int64_t begin = 0; begin < rows * widest; begin += PIECE) {
        const int64_t mine = std::min(PIECE, rows * widths[own.rank] - begin);
        if (mine > 0) std::memcpy(own.own(), (const char*)x + begin, (size_t)mine);
        if (!own.meet()) return 1;
        char* column = (char*)out;
        for (int64_t rank = 0; rank < own.ranks && (everyone || own.rank == 0); rank++) {
            const int64_t length = std::min(PIECE, rows * widths[rank] - begin);
            place(own.buffer(rank, own.pieces), begin, length, column, widths[rank], stride);
            column += widths[rank];
        }
    }
    return 0;
}

int turnout_group_send(void* group, const void* x, int64_t bytes, int64_t to) {
    Group& own = *(Group*)group;
    turnout::Word &sent = own.way(own.rank, to).sent, &taken = own.way(own.rank, to).taken;
    for (int64_t begin = 0; begin < bytes; begin += PIECE) {
        uint32_t& piece = own.sent[to];
        if (!own.wait(taken, piece + 1 - SLOTS)) return 1;
        std::memcpy(own.slot(own.rank, to, piece), (const char*)x + begin,
                    (size_t)std::min(PIECE, bytes - begin));
        Group::say(sent, ++piece);
    }
    return 0;
}

int turnout_group_receive(void* group, void* x, int64_t bytes, int64_t source) {
    Group& own = *(Group*)group;
    turnout::Word &sent = own.way(source, own.rank).sent, &taken = own.way(source, own.rank).taken;
    for (int64_t begin = 0; begin < bytes; begin += PIECE) {
        uint32_t& piece = own.taken[source];
        if (!own.wait(sent, piece + 1)) return 1;
        std::memcpy((char*)x + begin, own.slot(source, own.rank, piece),
                    (size_t)std::min(PIECE, bytes - begin));
        Group::say(taken, ++piece);
    }
    return 0;
}

int turnout_group_barrier(void* group) { return !((Group*)group)->meet(); }
}
