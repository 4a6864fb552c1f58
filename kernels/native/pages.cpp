// Memory that is read from end to end in every step.

#include <cstdint>

#if defined(__linux__)
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace {

constexpr uintptr_t SMALL_PAGE = 4096, LARGE_PAGE = 2 << 20;
constexpr int POPULATE_WRITE = 23;  // from Linux 5.14 on; older headers do not name it
// A process that is killed ends when its last thread has run, however patient that is: at 19, beside busy engines, an
// engine's death was seen after 1.4 seconds, and its streams paused as long.
constexpr int LESS_URGENT = 5;

// A large page at a time, since whoever maps memory waits meanwhile.
bool populate(uintptr_t begin, uintptr_t end) {
    for (uintptr_t at = begin / SMALL_PAGE * SMALL_PAGE, next; at < end; at = next) {
        next = std::min(end, (at / LARGE_PAGE + 1) * LARGE_PAGE);
        if (madvise((void*)at, next - at, POPULATE_WRITE)) return false;
    }
    return true;
}

}  // namespace
#endif

extern "C" {

// Asks for large pages behind `bytes` bytes from `start` on, before they are written: with fewer of them to
// look up, weights are read faster. Where the system has none to give, small ones serve.
void turnout_large_pages(void* start, int64_t bytes) {
#if defined(__linux__)
    const uintptr_t begin = ((uintptr_t)start + LARGE_PAGE - 1) / LARGE_PAGE * LARGE_PAGE;
    const uintptr_t end = ((uintptr_t)start + (uintptr_t)bytes) / LARGE_PAGE * LARGE_PAGE;
    if (begin < end) madvise((void*)begin, end - begin, MADV_HUGEPAGE);
#endif
}

// Has the system give memory for `count` ranges, each a start and bytes, of which what was not written to yet is taken;
// nothing that is there changes, and a range may be gone. By a thread that gives way to others, one call after the
// other. It is no thread of Python's, which could not go on while so patient a one holds its lock. Does nothing where the
// system cannot.
void turnout_populate(const int64_t* ranges, int64_t count) {
#if defined(__linux__)
    const std::vector<int64_t> own(ranges, ranges + 2 * count);
    const auto all = [own] {
        static std::mutex one_at_a_time;
        const std::lock_guard<std::mutex> lock(one_at_a_time);
        setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), LESS_URGENT);
        for (size_t i = 0; i < own.size(); i += 2)
            if (!populate((uintptr_t)own[i], (uintptr_t)(own[i] + own[i + 1]))) return;
    };
    try {
        std::thread(all).detach();
    } catch (const std::system_error&) {  // there are no more threads: memory is given as it is written to
    }
#else
    (void)ranges, (void)count;
#endif
}
}
