#include "team.h"

#include <system_error>
#include <thread>

#include "waiting.h"

namespace turnout {
namespace {

constexpr uint32_t OPEN = 1u << 31;

// The threads beside the callers'. They live as long as the process.
class Team {
   public:
    bool try_lock() { return !busy.test_and_set(std::memory_order_acquire); }
    void unlock() { busy.clear(std::memory_order_release); }

    void run(int threads, int parts, int64_t turns, int64_t grain, Body body, void* context) {
        hire(threads - 1);
        loop = {threads, parts, grain, body, context};
        for (int64_t i = 0; i < parts; i++) {
            part[i].next.store(turns * i / parts, std::memory_order_relaxed);
            part[i].end = turns * (i + 1) / parts;
        }
        inside.value.store(OPEN, std::memory_order_release);
        calls.value.fetch_add(1);
        calls.wake_sleepers(threads - 1);
        take_part(0);
        inside.value.fetch_and(~OPEN);
        patience.wait(inside, [](uint32_t value) { return value == 0; });
    }

   private:
    std::atomic_flag busy = ATOMIC_FLAG_INIT;
    Word calls;   // counts the loops
    Word inside;  // how many threads are in the loop beside its caller, and OPEN while more may enter
    int hired = 0;
    bool refused = false;  // the system gave no more
    struct {
        int threads, parts;
        int64_t grain;
        Body body;
        void* context;
    } loop = {};
    Patience patience;
    Part part[MOST_THREADS];

    // Where the system gives fewer, as within a container's limit of processes, these take all turns.
    void hire(int wanted) {
        try {
            for (; hired < wanted && !refused; hired++) std::thread(&Team::work, this, hired + 1).detach();
        } catch (const std::system_error&) {
            refused = true;
        }
    }

    void take_part(int number) {
        Turns turns(part, loop.parts, number, loop.grain);
        loop.body(loop.context, turns);
    }

    bool enter() {
        uint32_t value = inside.value.load();
        while (value & OPEN)
            if (inside.value.compare_exchange_weak(value, value + 1)) return true;
        return false;
    }

    void leave() {
        if (inside.value.fetch_sub(1) == 1) inside.wake_sleepers(1);
    }

    void work(int number) {
        Patience own;
        for (uint32_t seen = 0;;) {
            own.wait(calls, [&](uint32_t value) { return value != seen; });
            seen = calls.value.load();
            if (!enter()) continue;
            if (number < loop.threads) take_part(number);
            leave();
        }
    }
};

Team& team() {
    static Team* const only = new Team;  // never deleted: its threads outlive static objects
    return *only;
}

}  // namespace

void run_team(int threads, int parts, int64_t turns, int64_t grain, Body body, void* context) {
    threads = (int)std::min<int64_t>({threads, turns, MOST_THREADS});
    // Two callers at once: the second computes alone.
    if (threads > 1 && team().try_lock()) {
        team().run(threads, std::min(parts, threads), turns, grain, body, context);
        team().unlock();
        return;
    }
    Part all = {{0}, turns};
    Turns own(&all, 1, 0, grain);
    body(context, own);
}

}  // namespace turnout
