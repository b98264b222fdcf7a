// Caffe's host memory from sublet.
//
// In Caffe's include/caffe/syncedmem.hpp, put this header in the place of the two inline functions of these names.
// Wherever an iteration of the solver begins and ends, open a caffe::SubletIteration; that is optional.
#ifndef SUBLET_CAFFE_HPP
#define SUBLET_CAFFE_HPP

#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include <unistd.h>

#include "sublet.hpp"

namespace caffe {

// The one allocator of the process. Its range is reserved at once, and becomes memory where it is touched.
// SUBLET_CAPACITY says how many bytes it has; half of the machine's memory if it is not set.
inline sublet::allocator &SubletAllocator() {
    static sublet::allocator *const allocator = [] {
        auto asked = sublet::params<sublet_allocator_params>();
        const char *capacity = std::getenv("SUBLET_CAPACITY");
        const auto machine = static_cast<std::uint64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
        asked.capacity = capacity != nullptr ? std::strtoull(capacity, nullptr, 10) : machine / 2;
        asked.alignment = 64;
        // Blobs that are static outlive it, so that it is never destroyed.
        return new sublet::allocator(asked);
    }();
    return *allocator;
}

// An iteration of the solver, as long as the scope lasts.
class SubletIteration : public sublet::iteration {
  public:
    SubletIteration() : sublet::iteration(SubletAllocator()) {}
};

inline void CaffeMallocHost(void **pointer, std::size_t bytes, bool *use_cuda) {
    *use_cuda = false;
    *pointer = SubletAllocator().allocate(bytes == 0 ? 1 : bytes);
}

inline void CaffeFreeHost(void *pointer, bool /*use_cuda*/) { SubletAllocator().deallocate(pointer); }

}  // namespace caffe

#endif
