// Linear layers with everything in bfloat16, x @ weight.T (+ bias): how their weights are packed.
//
//   packed  [N / PANEL][K / 2][PANEL][2]     a panel: PANEL output columns side by side, inputs in pairs
//
// K is a multiple of HALF_UNIT here: what is missing is zeros.

#include "half_linear.h"

#include <algorithm>

#include "linears.h"
#include "panels.h"

namespace {

struct Table {
    int64_t inputs;

    int64_t pairs() const { return (inputs + HALF_UNIT - 1) / HALF_UNIT * HALF_UNIT / 2; }
    // Where a row of the weight has its first pair; the next ones lie 2 * PANEL behind one another.
    int64_t place(int64_t output) const { return output / PANEL * pairs() * 2 * PANEL + output % PANEL * 2; }
};

}  // namespace

void half_panels(const Linear& layer, const void* x, void* out, int64_t rows, int64_t first, int64_t last) {
    const HalfTarget target = {(BFloat16*)out, layer.outputs, layer.outputs, (const BFloat16*)layer.bias};
    const HalfWeights weights = {layer.numbers, layer.kind == COMPRESSED_HALVES, layer.outputs};
    multiply_halves(weights, {(const BFloat16*)x, layer.inputs}, rows, layer.inputs, first, last, target, 1);
}

extern "C" {

int64_t turnout_half_unit() { return HALF_UNIT; }

// weight: bfloat16 [outputs][inputs], to be output columns `first` and on of `packed`; the others are left
// alone.
void turnout_half_pack(const uint16_t* weight, uint16_t* packed, int64_t inputs, int64_t outputs, int64_t first,
                       int threads) {
    put_rows((const uint8_t*)weight, inputs * (int64_t)sizeof(uint16_t), outputs, first, Table{inputs}.pairs(),
             (uint32_t*)packed, threads);
}

// out: bfloat16 [rows][outputs]; x: bfloat16 [rows][inputs], rows `stride` apart; bias: bfloat16, or null.
void turnout_half_linear(const void* packed, const void* x, const void* bias, void* out, int64_t rows,
                         int64_t inputs, int64_t outputs, int64_t stride, int compressed, int threads) {
    const int64_t count = (outputs + PANEL - 1) / PANEL;
    const HalfTarget target = {(BFloat16*)out, outputs, outputs, (const BFloat16*)bias};
    const HalfWeights weights = {packed, compressed != 0, outputs};
    multiply_halves(weights, {(const BFloat16*)x, stride}, rows, inputs, 0, count, target, threads);
}

// out: bfloat16 [count][inputs], the rows `tokens` of the weight that was packed.
void turnout_half_gather(const uint16_t* packed, const int64_t* tokens, uint16_t* out, int64_t count,
                         int64_t inputs) {
    const Table table = {inputs};
    for (int64_t row = 0; row < count; row++)
        pick_column(packed + table.place(tokens[row]), inputs, out + row * inputs);
}
}
