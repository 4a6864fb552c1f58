// Weights as integers of 8 bits, and integers in panels, by all threads: a model that is quantized while it is read
// starts as soon as one that is not.

#include "integers.h"
#include "panels.h"

namespace {

constexpr int64_t ROWS_AT_ONCE = 16;  // that a thread takes at least
constexpr float LEAST = 1e-8f;        // what a row of zeros is divided by

typedef int8_t Kept __attribute__((vector_size(WIDTH)));

template <typename T>
void encode_row(const T* row, int64_t inputs, int8_t* codes, float* scale) {
    const float unit = std::max(largest(row, inputs), LEAST) / 127;
    const Floats units = splat(unit), magic = splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to a whole number
    int64_t i = 0;
    for (; i + WIDTH <= inputs; i += WIDTH) {
        const Floats whole = (load(row + i) / units + magic) - magic;
        const Kept kept = __builtin_convertvector(__builtin_convertvector(whole, Ints), Kept);
        std::memcpy(codes + i, &kept, sizeof kept);
    }
    for (; i < inputs; i++) codes[i] = (int8_t)((widen(row[i]) / unit + magic[0]) - magic[0]);
    *scale = unit;
}

template <typename T>
void encode(const T* weight, int64_t outputs, int64_t inputs, int8_t* codes, float* scale, int threads) {
    turnout::share_out(threads, outputs, ROWS_AT_ONCE, [&](int64_t first, int64_t last) {
        for (int64_t row = first; row < last; row++)
            encode_row(weight + row * inputs, inputs, codes + row * inputs, scale + row);
    });
}

int32_t sum_of(const int8_t* codes, int64_t count) {
    Ints sums = {};
    int64_t i = 0;
    for (; i + 4 * WIDTH <= count; i += 4 * WIDTH)
        sums = add_products(sums, load_as<Bytes>(codes + i), splat(int32_t{0x01010101}));
    int32_t total = 0;
    for (int lane = 0; lane < WIDTH; lane++) total += sums[lane];
    for (; i < count; i++) total += codes[i];
    return total;
}

}  // namespace

extern "C" {

// weight = codes · scale: int8 [outputs][inputs] from -127 to 127, float32 [outputs]; weight: bfloat16 if `half`, else
// float32, [outputs][inputs].
void turnout_integer_encode(const void* weight, int8_t* codes, float* scale, int64_t outputs, int64_t inputs, int half,
                            int threads) {
    if (half)
        encode((const BFloat16*)weight, outputs, inputs, codes, scale, threads);
    else
        encode((const float*)weight, outputs, inputs, codes, scale, threads);
}

// panels: [panels][words][PANEL] of words of four bytes, of which those behind the last row are left alone;
// rows: [count], of `bytes` each.
void turnout_integer_pack(const uint8_t* rows, void* panels, int64_t count, int64_t bytes, int64_t words, int threads) {
    put_rows(rows, bytes, count, 0, words, (uint32_t*)panels, threads);
}

// sums: int32 [pieces][outputs], of `piece` codes each; codes: int8 [outputs][inputs].
void turnout_integer_sums(const int8_t* codes, int32_t* sums, int64_t outputs, int64_t inputs, int64_t piece,
                          int threads) {
    turnout::share_out(threads, outputs, ROWS_AT_ONCE, [&](int64_t first, int64_t last) {
        for (int64_t row = first; row < last; row++)
            for (int64_t k = 0; k < inputs; k += piece) {
                sums[k / piece * outputs + row] = sum_of(codes + row * inputs + k, std::min(piece, inputs - k));
            }
    });
}
}
