// Memory that is read from end to end in every step.

#include <cstdint>

#if defined(__linux__)
#include <sys/mman.h>
#endif

extern "C" {

// Asks for large pages behind `bytes` bytes from `start` on, before they are written: with fewer of them to
// look up, weights are read faster. Where the system has none to give, small ones serve.
void turnout_large_pages(void* start, int64_t bytes) {
#if defined(__linux__)
    constexpr uintptr_t PAGE = 2 << 20;
    const uintptr_t begin = ((uintptr_t)start + PAGE - 1) / PAGE * PAGE;
    const uintptr_t end = ((uintptr_t)start + (uintptr_t)bytes) / PAGE * PAGE;
    if (begin < end) madvise((void*)begin, end - begin, MADV_HUGEPAGE);
#endif
}
}
