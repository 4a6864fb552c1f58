// A team of threads that share out the turns of a loop.
//
// OpenMP gives each thread a fixed part of a loop, and waits actively until all have done theirs. Where another
// process has one of the cores, everything waits for the thread that is not running. Here a thread takes turns
// while there are any, first of its own part and then of the others', and a thread that comes too late is not
// waited for. A thread with nothing to do looks for work for some microseconds, then lets others have its core,
// and then sleeps. What a turn computes may not depend on the thread that computes it.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace turnout {

constexpr int MOST_THREADS = 256;

// A thread's part of a loop, on a cache line of its own.
struct alignas(64) Part {
    std::atomic<int64_t> next;
    int64_t end;
};

// A loop as one of its threads sees it.
class Turns {
   public:
    Turns(Part* parts, int count, int own, int64_t grain) : parts(parts), count(count), own(own), grain(grain) {}

    // Takes the next turns, from `first` to before `last`; false if there are none left.
    bool take(int64_t& first, int64_t& last) {
        for (; passed < count; passed++) {
            Part& part = parts[(own + passed) % count];
            first = part.next.load(std::memory_order_relaxed);
            if (first < part.end) first = part.next.fetch_add(grain, std::memory_order_relaxed);
            last = std::min(first + grain, part.end);
            if (first < last) return true;
        }
        return false;
    }

   private:
    Part* parts;
    int count, own;
    int64_t grain;
    int passed = 0;
};

using Body = void (*)(void* context, Turns& turns);

// Runs `body` once in each of up to `threads` threads, this one included, until all `turns` are taken and done.
// The turns are cut into `parts`; a thread takes `grain` of them at once.
void run_team(int threads, int parts, int64_t turns, int64_t grain, Body body, void* context);

// For turns of even length: calls `work(first, last)`, until [0, turns) is done, in up to `threads` threads. A
// thread takes `grain` turns or more at once; so many alone are not shared out.
template <typename Work>
inline void share_out(int threads, int64_t turns, int64_t grain, Work work) {
    constexpr int64_t PIECES = 4;  // of a part: few, for their cost; several, for threads of uneven speed
    if (threads <= 1 || turns <= grain) {
        if (turns > 0) work((int64_t)0, turns);
        return;
    }
    const int64_t piece = std::max(grain, (turns + threads * PIECES - 1) / (threads * PIECES));
    run_team(
        threads, threads, turns, piece,
        [](void* given, Turns& left) {
            for (int64_t first, last; left.take(first, last);) (*(Work*)given)(first, last);
        },
        &work);
}

// For turns of uneven length, the longest first: calls `work(own, turn)` for each of [0, turns) in up to
// `threads` threads, each of which takes the next turn and has its own `make()`.
template <typename Make, typename Work>
inline void take_turns(int threads, int64_t turns, Make make, Work work) {
    struct Given {
        Make& make;
        Work& work;
    } given = {make, work};
    run_team(
        threads, 1, turns, 1,
        [](void* given, Turns& left) {
            int64_t turn, end;
            if (!left.take(turn, end)) return;
            auto own = ((Given*)given)->make();
            do ((Given*)given)->work(own, turn);
            while (left.take(turn, end));
        },
        &given);
}

}  // namespace turnout
