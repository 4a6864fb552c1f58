#include "team.h"

#include <sched.h>

#include <chrono>
#include <thread>

#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace turnout {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;

constexpr microseconds LOOKING{20};     // the next loop of a step mostly comes sooner
constexpr microseconds YIELDING{1000};  // the next step mostly comes sooner
constexpr microseconds TAKEN{100};      // a yield that lasts longer gave the core to another
constexpr int LOOKS = 32;               // between two looks at the clock
constexpr int SHARED = 64;              // waits without yielding, once another has had the core

inline void pause() {
#if defined(__x86_64__)
    _mm_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// Returns when `word` is no longer `value`, sooner if woken, or sooner for no reason.
void sleep_on(std::atomic<uint32_t>& word, uint32_t value) {
#if defined(__linux__)
    syscall(SYS_futex, (uint32_t*)&word, FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
#else
    if (word.load() == value) std::this_thread::sleep_for(microseconds(50));
#endif
}

void wake(std::atomic<uint32_t>& word, int sleepers) {
#if defined(__linux__)
    syscall(SYS_futex, (uint32_t*)&word, FUTEX_WAKE_PRIVATE, sleepers, nullptr, nullptr, 0);
#endif
}

// A word that threads wait for.
struct alignas(64) Word {
    std::atomic<uint32_t> value{0};
    std::atomic<int> sleepers{0};

    void wake_sleepers(int most) {
        if (sleepers.load()) wake(value, most);
    }
};

// One thread's way of waiting.
class Patience {
   public:
    // Returns once `done(value of the word)`.
    template <typename Done>
    void wait(Word& word, Done done) {
        for (int i = 0; i < LOOKS; i++) {
            if (done(word.value.load(std::memory_order_acquire))) return;
            pause();
        }
        if (look(word, done)) return;
        for (;;) {
            word.sleepers.fetch_add(1);
            const uint32_t value = word.value.load();
            const bool over = done(value);
            if (!over) sleep_on(word.value, value);
            word.sleepers.fetch_sub(1);
            if (over || done(word.value.load())) return;
        }
    }

   private:
    int shared = 0;

    template <typename Done>
    bool look(Word& word, Done done) {
        const auto began = Clock::now();
        for (auto now = began; now - began < LOOKING; now = Clock::now())
            for (int i = 0; i < LOOKS; i++) {
                if (done(word.value.load(std::memory_order_acquire))) return true;
                pause();
            }
        if (shared > 0 && shared--) return false;
        for (auto now = Clock::now(), last = now; now - began < YIELDING; last = now) {
            sched_yield();
            if (done(word.value.load(std::memory_order_acquire))) return true;
            now = Clock::now();
            if (now - last > TAKEN) {
                shared = SHARED;
                return false;
            }
        }
        return false;
    }
};

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
    struct {
        int threads, parts;
        int64_t grain;
        Body body;
        void* context;
    } loop = {};
    Patience patience;
    Part part[MOST_THREADS];

    void hire(int wanted) {
        for (; hired < wanted; hired++) std::thread(&Team::work, this, hired + 1).detach();
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
