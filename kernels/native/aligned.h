// Memory that begins where a line of the cache does. A tile's rows are 64 bytes: of memory that begins elsewhere, each
// would be read from two lines, in more than twice the time.
#pragma once

#include <cstdint>
#include <memory>
#include <new>
#include <vector>

constexpr std::align_val_t CACHE_LINE{64};

struct FreeAligned {
    void operator()(void* memory) const { ::operator delete(memory, CACHE_LINE); }
};

template <typename T>
using AlignedArray = std::unique_ptr<T[], FreeAligned>;

// `count` numbers, which nothing was written to.
template <typename T>
inline AlignedArray<T> aligned_array(int64_t count) {
    return AlignedArray<T>((T*)::operator new((size_t)count * sizeof(T), CACHE_LINE));
}

// Memory that a thread keeps for its next product: what is taken again and again is not asked for each time.
class Scratch {
   public:
    // Room for `count` numbers, until the next call.
    template <typename T>
    T* of(int64_t count) {
        const int64_t bytes = count * (int64_t)sizeof(T);
        if (bytes > size) memory = aligned_array<uint8_t>(size = bytes);
        return (T*)memory.get();
    }

   private:
    AlignedArray<uint8_t> memory;
    int64_t size = 0;
};

template <typename T>
struct AlignedMemory {
    using value_type = T;

    AlignedMemory() = default;
    template <typename Other>
    AlignedMemory(const AlignedMemory<Other>&) {}

    T* allocate(size_t count) { return (T*)::operator new(count * sizeof(T), CACHE_LINE); }
    void deallocate(T* memory, size_t) { ::operator delete(memory, CACHE_LINE); }
    template <typename Other>
    bool operator==(const AlignedMemory<Other>&) const { return true; }
    template <typename Other>
    bool operator!=(const AlignedMemory<Other>&) const { return false; }
};

template <typename T>
using AlignedVector = std::vector<T, AlignedMemory<T>>;
