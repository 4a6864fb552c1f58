// How a thread waits for a word of memory that another thread, perhaps of another process, will change: it looks
// for some microseconds, then lets others have its core, and then sleeps.
#pragma once

#include <sched.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#endif
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace turnout {

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

// Whose threads wait for a word. Those of other processes may die, so a sleep for them is bounded.
enum Among { THREADS, PROCESSES };

// A word that threads wait for.
struct alignas(64) Word {
    std::atomic<uint32_t> value{0};
    std::atomic<int> sleepers{0};

    // Returns when the word is no longer `seen`, sooner if woken, or sooner for no reason.
    template <Among who>
    void sleep(uint32_t seen) {
#if defined(__linux__)
        const timespec bound = {0, 20'000'000};
        const int flags = FUTEX_WAIT | (who == THREADS ? FUTEX_PRIVATE_FLAG : 0);
        syscall(SYS_futex, (uint32_t*)&value, flags, seen, who == THREADS ? nullptr : &bound, nullptr, 0);
#else
        if (value.load() == seen) std::this_thread::sleep_for(microseconds(50));
#endif
    }

    // To be called after the word was changed, sequentially consistent.
    template <Among who = THREADS>
    void wake_sleepers(int most) {
#if defined(__linux__)
        const int flags = FUTEX_WAKE | (who == THREADS ? FUTEX_PRIVATE_FLAG : 0);
        if (sleepers.load()) syscall(SYS_futex, (uint32_t*)&value, flags, most, nullptr, nullptr, 0);
#endif
    }
};

// One thread's way of waiting.
class Patience {
   public:
    // Returns once `done(value of the word)`.
    template <Among who = THREADS, typename Done>
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
            if (!over) word.sleep<who>(value);
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

}  // namespace turnout
