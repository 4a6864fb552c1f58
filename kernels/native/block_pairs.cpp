#include "block_pairs.h"

#if defined(__AVX512BF16__) && !defined(TILES)

#include <algorithm>

#include "aligned.h"
#include "block_numbers.h"
#include "pairs.h"
#include "side_by_side.h"
#include "team.h"

namespace {

constexpr int64_t PANELS_AT_ONCE = 4;  // that a thread takes at least
constexpr int64_t TILES_AT_ONCE = 2;   // of x, the same
constexpr int64_t BAND = 16;           // tiles of x that stay in the second-level cache
constexpr int64_t PIECE = 8;           // steps whose codes are widened once for a band: 16 KB, in the first-level cache
constexpr int FEW = 8;                 // rows, up to which codes are widened as they are multiplied
constexpr int FEWEST = least_rows(2);  // of a tile, where there are more

// x in tiles of ROWS rows or fewer: [steps][rows of the tile][PAIRS] words, in the order of the codes' pairs.
template <typename B>
class PairRows {
   public:
    static constexpr int64_t PAIRS = INPUTS<B> / 2;
    int64_t rows, steps, tiles;

    PairRows(const BFloat16* x, int64_t stride, int64_t rows, int64_t inputs, int threads)
        : rows(rows), steps(inputs / INPUTS<B>), tiles((rows + ROWS - 1) / ROWS) {
        static thread_local Scratch words, sums;
        words_ = words.of<uint32_t>(rows * inputs / 2);
        sums_ = HAS_OFFSETS<B> ? sums.of<float>(rows * steps) : nullptr;
        turnout::share_out(threads, tiles, TILES_AT_ONCE, [&](int64_t from, int64_t until) {
            for (int64_t tile = from; tile < until; tile++)
                for (int64_t row = begin(tile); row < begin(tile + 1); row++)
                    for (int64_t step = 0; step < steps; step++)
                        put(x + row * stride + step * INPUTS<B>, at(tile, step) + (row - begin(tile)) * PAIRS,
                            row * steps + step);
        });
    }

    // The first row of a tile: tiles are nearly alike.
    int64_t begin(int64_t tile) const { return rows * tile / tiles; }
    int64_t count(int64_t tile) const { return begin(tile + 1) - begin(tile); }

    uint32_t* at(int64_t tile, int64_t step) const {
        return words_ + (begin(tile) * steps + step * count(tile)) * PAIRS;
    }

    // The sum of a row's numbers at a step; 0, where blocks have no offsets.
    float sum_of(int64_t row, int64_t step) const { return HAS_OFFSETS<B> ? sums_[row * steps + step] : 0; }

   private:
    uint32_t* words_;
    float* sums_;

    void put(const BFloat16* from, uint32_t* to, int64_t number) const {
        if (HAS_OFFSETS<B>) sums_[number] = sum(load(from) + load(from + WIDTH));
        put_pairs<B>(from, to);
    }
};

// A panel is passed from end to end, as it lies in memory. (Two side by side take longer: there would be twice as many
// places to fetch from.)
template <int R, typename B>
void few_rows(const PairRows<B>& x, const Blocks& layer, BFloat16* out, int64_t number) {
    const B* const panel = layer.at<B>(number, 0);
    Floats totals[R][VECTORS] = {};
    for (int64_t step = 0; step < x.steps; step++) {
        const B& block = panel[step * INPUTS<B> / B::INPUTS];
        const int64_t part = step * INPUTS<B> % B::INPUTS;
        const uint32_t* const words = x.at(0, step);
        Floats sums[R][VECTORS] = {};
        for (int64_t k = 0; k < INPUTS<B>; k += 8) {  // unrolled, all lines would be fetched in one burst
            Eight<B> codes[VECTORS];
#pragma GCC unroll 2
            for (int v = 0; v < VECTORS; v++) codes[v] = Eight<B>(block, part + k, v);
#pragma GCC unroll 4
            for (int s = 0; s < 4; s++) {
                fetch_ahead<8, 4>(block, part + k, s);
#pragma GCC unroll 2
                for (int v = 0; v < VECTORS; v++) {
                    const Words columns = codes[v].pair(s);
#pragma GCC unroll 8
                    for (int r = 0; r < R; r++)
                        sums[r][v] = add_pairs(sums[r][v], columns, splat(words[r * PairRows<B>::PAIRS + k / 2 + s]));
                }
            }
        }
#pragma GCC unroll 2
        for (int v = 0; v < VECTORS; v++) {
            const Scale<B> scale(block, part, v);
#pragma GCC unroll 8
            for (int r = 0; r < R; r++)
                totals[r][v] = with_block(totals[r][v], scale, sums[r][v], x.sum_of(r, step));
        }
    }
    for (int r = 0; r < R; r++) {
        float total[PANEL];
        std::memcpy(total, totals[r], sizeof total);
        put(total, layer, out + r * layer.outputs, number);
    }
}

// What R rows add to their totals, [R][PANEL], at a step.
template <int R, typename B>
inline void add_step(const PairRows<B>& x, int64_t tile, int64_t step, const uint32_t* pairs, const B& block,
                     float* totals) {
    constexpr int64_t PAIRS = PairRows<B>::PAIRS;
    const uint32_t* const words = x.at(tile, step);
    Floats sums[R][VECTORS] = {};
    for (int64_t k = 0; k < PAIRS; k++) {
        Words columns[VECTORS];
#pragma GCC unroll 2
        for (int v = 0; v < VECTORS; v++) columns[v] = load_as<Words>(pairs + k * PANEL + v * WIDTH);
#pragma GCC unroll 16
        for (int r = 0; r < R; r++) {
            const Words word = splat(words[r * PAIRS + k]);
#pragma GCC unroll 2
            for (int v = 0; v < VECTORS; v++) sums[r][v] = add_pairs(sums[r][v], columns[v], word);
        }
    }
#pragma GCC unroll 2
    for (int v = 0; v < VECTORS; v++) {
        const Scale<B> scale(block, step * INPUTS<B> % B::INPUTS, v);
#pragma GCC unroll 16
        for (int r = 0; r < R; r++) {
            float* const total = totals + r * PANEL + v * WIDTH;
            store(total, with_block(load(total), scale, sums[r][v], x.sum_of(x.begin(tile) + r, step)));
        }
    }
}

// All rows of a band pass some steps of a panel, before the next come.
template <typename B>
void many_rows(const PairRows<B>& x, const Blocks& layer, BFloat16* out, int64_t first, int64_t last) {
    static thread_local Scratch kept;
    float* const totals = kept.of<float>(BAND * ROWS * PANEL);
    alignas(64) uint32_t pairs[PIECE][PairRows<B>::PAIRS * PANEL];
    for (int64_t band = 0; band < x.tiles; band += BAND)
        for (int64_t number = first; number < last; number++) {
            const B* const panel = layer.at<B>(number, 0);
            const int64_t end = std::min(band + BAND, x.tiles), row = x.begin(band);
            std::fill_n(totals, (x.begin(end) - row) * PANEL, 0.0f);
            for (int64_t piece = 0; piece < x.steps; piece += PIECE) {
                const int64_t until = std::min(piece + PIECE, x.steps);
                const auto block_of = [&](int64_t step) -> const B& { return panel[step * INPUTS<B> / B::INPUTS]; };
                for (int64_t step = piece; step < until; step++)
                    widen(block_of(step), step * INPUTS<B> % B::INPUTS, pairs[step - piece]);
                for (int64_t tile = band; tile < end; tile++)
                    for_rows_from<FEWEST>(x.count(tile), [&](auto count) {
                        for (int64_t step = piece; step < until; step++)
                            add_step<count()>(x, tile, step, pairs[step - piece], block_of(step),
                                              totals + (x.begin(tile) - row) * PANEL);
                    });
            }
            for (int64_t each = row; each < x.begin(end); each++)
                put(totals + (each - row) * PANEL, layer, out + each * layer.outputs, number);
        }
}

template <typename B>
void multiply(const PairRows<B>& x, const Blocks& layer, BFloat16* out, int64_t first, int64_t last) {
    if (x.rows > FEW) return many_rows<B>(x, layer, out, first, last);
    for_rows<FEW>(x.rows, [&](auto count) {
        for (int64_t number = first; number < last; number++) few_rows<count()>(x, layer, out, number);
    });
}

}  // namespace

void multiply_blocks_by_pairs(const Blocks& layer, int type, const BFloat16* x, int64_t stride, BFloat16* out,
                              int64_t rows, int64_t begin, int64_t end, int threads) {
    with_blocks(type, [&](auto* of) {
        const PairRows<Pointed<decltype(of)>> input(x, stride, rows, layer.inputs, threads);
        turnout::share_out(threads, end - begin, PANELS_AT_ONCE, [&](int64_t first, int64_t last) {
            multiply(input, layer, out, first + begin, last + begin);
        });
    });
}

#else

void multiply_blocks_by_pairs(const Blocks&, int, const BFloat16*, int64_t, BFloat16*, int64_t, int64_t, int64_t,
                              int) {}

#endif
