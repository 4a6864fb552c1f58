// Compresses packed layers in bfloat16, and reads rows of them.

#include "compressed_halves.h"

#include <vector>

#include "half_linear.h"
#include "panels.h"
#include "team.h"

extern "C" {

#if defined(TILES)

namespace {

int64_t panels_of(int64_t outputs) { return (outputs + PANEL - 1) / PANEL; }
int64_t steps_of(int64_t inputs) { return (inputs + HALF_UNIT - 1) / HALF_UNIT; }

void compress_panel(const uint16_t* plain, const CompressedPanels& to, int64_t panel, std::vector<Exception>& lost) {
    for (int64_t step = 0; step < to.steps; step++, plain += NUMBERS_OF_STEP) {
        const auto except = [&](int64_t place, uint16_t bits) {
            lost.push_back({(uint32_t)(step * NUMBERS_OF_STEP + place), bits});
        };
        to.bases[panel * to.steps + step] = compress_numbers(plain, to.at(panel, step), except);
    }
}

}  // namespace

// Of a layer with room for so many exceptions; 0: this library computes none that is compressed.
int64_t turnout_compressed_bytes(int64_t inputs, int64_t outputs, int64_t room) {
    return CompressedPanels::bytes(panels_of(outputs), steps_of(inputs), room);
}

// weight: bfloat16 [outputs][inputs], to be output columns `first`, with which a panel begins, and on of `all`; columns
// of the last panel that no weight fills become zeros. `used`: exceptions that there are already, to which these are
// added; where they become more than there is room for, the result is useless.
void turnout_compress(const uint16_t* weight, void* packed, int64_t inputs, int64_t outputs, int64_t first,
                      int64_t all, int64_t room, int64_t* used, int threads) {
    const CompressedPanels to(packed, panels_of(all), steps_of(inputs));
    const int64_t words = to.steps * NUMBERS_OF_STEP / 2, begin = first / PANEL;
    turnout::share_out(threads, panels_of(outputs), 1, [&](int64_t from, int64_t till) {
        static thread_local Scratch scratch;
        uint32_t* const plain = scratch.of<uint32_t>(words);
        std::vector<Exception> lost;
        for (int64_t panel = from; panel < till; panel++) {
            const int64_t row = panel * PANEL, columns = std::min(PANEL, outputs - row);
            if (columns < PANEL) std::fill_n(plain, words, 0);
            put_columns((const uint8_t*)(weight + row * inputs), inputs * (int64_t)sizeof *weight, columns,
                        words / PANEL, plain);
            lost.clear();
            compress_panel((const uint16_t*)plain, to, begin + panel, lost);
            const int64_t count = (int64_t)lost.size(), place = __atomic_fetch_add(used, count, __ATOMIC_RELAXED);
            if (place + count > room) continue;
            to.ranges[begin + panel] = {(uint32_t)place, (uint32_t)count};
            std::copy(lost.begin(), lost.end(), to.exceptions + place);
        }
    });
}

// out: bfloat16 [count][inputs], the rows `tokens` of a layer that was compressed.
void turnout_compressed_gather(const void* packed, const int64_t* tokens, uint16_t* out, int64_t count, int64_t inputs,
                               int64_t outputs) {
    const CompressedPanels from(packed, panels_of(outputs), steps_of(inputs));
    static thread_local Scratch scratch;
    uint16_t* const plain = scratch.of<uint16_t>(from.steps * NUMBERS_OF_STEP);
    for (int64_t row = 0; row < count; row++) {
        Expansion panel(from, tokens[row] / PANEL, 0);
        for (int64_t step = 0; step < from.steps; step++) panel.next((uint8_t*)(plain + step * NUMBERS_OF_STEP));
        pick_column(plain + tokens[row] % PANEL * 2, inputs, out + row * inputs);
    }
}

#else

int64_t turnout_compressed_bytes(int64_t, int64_t, int64_t) { return 0; }
void turnout_compress(const uint16_t*, void*, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t*, int) {}
void turnout_compressed_gather(const void*, const int64_t*, uint16_t*, int64_t, int64_t, int64_t) {}

#endif
}
