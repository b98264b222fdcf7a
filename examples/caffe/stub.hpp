// The part of Caffe that asks for memory: a stub, so that sublet_caffe.hpp can be compiled and run without Caffe.
#ifndef STUB_HPP
#define STUB_HPP

#include <cstring>

#include "sublet_caffe.hpp"

namespace caffe {

// Memory that is there when it is first asked for, as Caffe's is.
class SyncedMemory {
  public:
    explicit SyncedMemory(std::size_t size) : size_(size) {}
    SyncedMemory(const SyncedMemory &) = delete;
    SyncedMemory &operator=(const SyncedMemory &) = delete;
    ~SyncedMemory() {
        if (cpu_ptr_ != nullptr) {
            CaffeFreeHost(cpu_ptr_, cpu_malloc_use_cuda_);
        }
    }

    void *mutable_cpu_data() {
        if (cpu_ptr_ == nullptr) {
            CaffeMallocHost(&cpu_ptr_, size_, &cpu_malloc_use_cuda_);
            std::memset(cpu_ptr_, 0, size_);
        }
        return cpu_ptr_;
    }

  private:
    void *cpu_ptr_ = nullptr;
    std::size_t size_;
    bool cpu_malloc_use_cuda_ = false;
};

}  // namespace caffe

#endif
