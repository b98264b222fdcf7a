// The memories of a net, and where they lie: the half of sublet_caffe.hpp that knows nothing of layers.
#ifndef SUBLET_CAFFE_MEMORIES_HPP_
#define SUBLET_CAFFE_MEMORIES_HPP_

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "caffe/caffe.hpp"
#include "sublet.hpp"

namespace caffe {

// The patched syncedmem.cpp of Caffe calls this function, if there is one, at each use of a memory.
enum SubletAccess { SUBLET_CPU_READ, SUBLET_CPU_WRITE, SUBLET_GPU_READ, SUBLET_GPU_WRITE, SUBLET_GONE };
extern std::atomic<void (*)(SyncedMemory* memory, int access)> sublet_access;

// One range of memory, of the host or of the GPU.
class SubletArena {
 public:
  SubletArena() : base_(nullptr), size_(0) {}
  SubletArena(const SubletArena&) = delete;
  SubletArena& operator=(const SubletArena&) = delete;
  ~SubletArena() {
    if (base_) Return(base_, size_);
    for (const auto& place : left_) Return(place.first, place.second);
  }
  char* base() const { return base_; }
  size_t size() const { return size_; }
  // Takes at least `size` bytes; what the arena held is lost. The range where it lay before may still be read, because
  // blobs of another net that shares the arena lie there until that net runs. The range is zero, and on the processor
  // takes nothing but addresses.
  void Take(size_t size) {
    if (base_ && size <= size_) return;
    if (base_) {
      Forget(base_, size_);
      left_.push_back(std::make_pair(base_, size_));
    }
    base_ = Pages(size);
    size_ = size;
  }
  // Memory that takes nothing until it is touched, and is zero then; on a GPU managed memory, which may hold anything.
  static char* Pages(size_t size) {
#ifndef CPU_ONLY
    if (Caffe::mode() == Caffe::GPU) {
      void* pages = nullptr;
      CUDA_CHECK(cudaMallocManaged(&pages, size ? size : 1));
      return static_cast<char*>(pages);
    }
#endif
    void* pages = mmap(nullptr, size ? size : 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    CHECK(pages != MAP_FAILED) << "sublet: no addresses for " << size << " bytes";
    return static_cast<char*>(pages);
  }
  // Makes it zero, and gives back what it takes.
  static void Forget(char* pages, size_t size) {
#ifndef CPU_ONLY
    if (Caffe::mode() == Caffe::GPU) {
      CUDA_CHECK(cudaMemset(pages, 0, size));
      return;
    }
#endif
    madvise(pages, size, MADV_DONTNEED);
  }
  static void Return(char* pages, size_t size) {
#ifndef CPU_ONLY
    if (Caffe::mode() == Caffe::GPU) {
      CUDA_CHECK(cudaFree(pages));
      return;
    }
#endif
    munmap(pages, size ? size : 1);
  }

 private:
  char* base_;
  size_t size_;
  std::vector<std::pair<char*, size_t> > left_;
};

// The memories of a net as the hook sees them.
//
// While a pass is recorded, a memory that has nothing yet gets pages that take nothing until they are touched. A memory
// that held something before the pass is no part of the iteration, unless it is a blob of the net. What it held comes
// back after the pass; of a blob only if the pass reads it first, or it stays.
//
// A layer may ask for a blob to write it, and leave all or some of it as it was: a convolution does so with the
// gradient of a bottom that it does not propagate to. So if the first use of a blob is a write, the blob is filled with
// NaN before it. Numbers that are still NaN after the layer were not written. Then the layer counts as one that reads
// the blob too, and the blob stays.
class SubletMemories {
 public:
  enum { kOfNet = 1, kKeep = 2, kIgnore = 4 };  // what a memory is
  // What a layer does with memories of its own: those of a layer that is not known stay.
  enum { kTables = 1, kScratch = 2, kKnown = 4 };

  // `item`: the bytes of a number in a blob.
  explicit SubletMemories(size_t item)
      : item_(item), network_(nullptr), recording_(false), stale_(false), kind_(0), op_(0) {
    std::lock_guard<std::mutex> lock(Mutex());
    All().insert(this);
  }
  SubletMemories(const SubletMemories&) = delete;
  SubletMemories& operator=(const SubletMemories&) = delete;
  ~SubletMemories() {
    std::lock_guard<std::mutex> lock(Mutex());
    All().erase(this);
    for (Memory& m : memories_) {
      if (m.pages) SubletArena::Return(m.pages, m.size);
    }
    for (auto& m : kept_pages_) SubletArena::Return(m.second.pages, m.second.size);
  }

  bool IsRecording() const { return recording_; }
  // Whether a memory of the plan or of a blob is gone, because a blob has grown.
  bool stale() const {
    std::lock_guard<std::mutex> lock(Mutex());
    return stale_;
  }
  size_t count() const { return memories_.size(); }

  void Begin(sublet::network* network) {
    std::lock_guard<std::mutex> lock(Mutex());
    network_ = network;
    was_bound_.clear();
    for (const Memory& m : memories_) {
      if (m.bound && m.synced) was_bound_.insert(m.synced);
      if (m.pages && !m.synced) SubletArena::Return(m.pages, m.size);
      if (m.pages && m.synced) kept_pages_[m.synced] = m;
    }
    memories_.clear();
    numbers_.clear();
    marks_.clear();
    saved_.clear();
    stale_ = false;
    recording_ = true;
    op_ = 0;
    Current() = this;
    sublet_access = OnAccess;
  }
  void End() {
    Current() = nullptr;
  }
  // Tells what a memory is, at any time; `bytes`: how much of it a blob of the net uses.
  void Mark(SyncedMemory* memory, int flags, size_t bytes = 0) {
    if (!memory) return;
    std::lock_guard<std::mutex> lock(Mutex());
    std::pair<int, size_t>& mark = marks_[memory];
    mark.first |= flags;
    mark.second = std::max(mark.second, bytes);
    const auto known = numbers_.find(memory);
    if (known != numbers_.end()) memories_[known->second].flags |= flags;
  }
  // The next operator.
  void Enter(int kind) {
    kind_ = kind;
    ++op_;
  }
  // The operator has run.
  void Leave() {
    std::lock_guard<std::mutex> lock(Mutex());
    for (const Filled& f : filled_) {
      if (PutBack(memories_[f.number], f)) network_->use(f.number, SUBLET_USE_READ);
      network_->use(f.number, SUBLET_USE_WRITE);
    }
    filled_.clear();
  }
  // Puts back what memories held before the pass.
  void Restore() {
    std::lock_guard<std::mutex> lock(Mutex());
    for (auto& s : saved_) std::memcpy(s.first->mutable_cpu_data(), s.second.data(), s.second.size());
    saved_.clear();
    for (Memory& m : memories_) {
      if (m.pages && !m.held) SubletArena::Forget(m.pages, m.size);
    }
    recording_ = false;
  }
  // Tells the sizes, which the pass may have come to know late; the bytes that may be planned.
  uint64_t Size() {
    std::lock_guard<std::mutex> lock(Mutex());
    uint64_t planned = 0;
    for (size_t i = 0; i < memories_.size(); ++i) {
      const Memory& m = memories_[i];
      sublet_memory& told = network_->at(i);
      told.bytes = m.synced ? m.synced->size() : 0;
      told.flags = (m.flags & kKeep ? SUBLET_MEMORY_KEEP : 0) | (m.scratch ? SUBLET_MEMORY_SCRATCH : 0);
      if (!(m.flags & kKeep)) planned += told.bytes;
    }
    return planned;
  }
  // After planning: binds what is planned, and returns the pages that are not needed any more.
  void Settle(char* arena, const std::vector<sublet_step>& steps) {
    std::lock_guard<std::mutex> lock(Mutex());
    std::vector<bool> met(memories_.size());
    for (const sublet_step& step : steps) {
      if (step.action != SUBLET_ACTION_BIND || met[step.subject]) continue;
      met[step.subject] = memories_[step.subject].bound = true;
      Place(memories_[step.subject], arena + step.offset, false);
    }
    for (Memory& m : memories_) {
      if (m.bound || !m.synced) {
        if (m.pages) SubletArena::Return(m.pages, m.size);
        m.pages = nullptr;
      } else if (!m.pages && was_bound_.count(m.synced)) {
        m.pages = SubletArena::Pages(m.size);
        Set(m, m.pages);
      }
    }
    stale_ = false;
  }
  void Bind(uint32_t memory, char* address, bool poison) {
    std::lock_guard<std::mutex> lock(Mutex());
    Place(memories_[memory], address, poison);
  }

 private:
  struct Memory {
    SyncedMemory* synced;  // NULL once it is gone
    int flags;
    bool gpu;      // it is used by the GPU, and by it alone
    bool scratch;
    bool held;     // it held something before the pass
    bool read;     // it was read before it was written
    bool bound;    // it has a place in the arena
    char* pages;   // what it was given while it was recorded, or after that because it is not planned
    size_t size;
    int op;        // the last operator that used it
    bool reads, writes;
  };
  // A memory that was filled with NaN before a layer, and what it held until then. `before` is empty if it held nothing
  // before the pass: then it was zero.
  struct Filled {
    size_t number, bytes;
    std::vector<char> before;
  };

  // Both are never destroyed: a net that is a global variable ends after them.
  static std::set<SubletMemories*>& All() {
    static std::set<SubletMemories*>& all = *new std::set<SubletMemories*>;
    return all;
  }
  static std::mutex& Mutex() {
    static std::mutex& mutex = *new std::mutex;
    return mutex;
  }
  // What records on this thread: threads that read data use memories too.
  static SubletMemories*& Current() {
    static thread_local SubletMemories* current = nullptr;
    return current;
  }
  static void OnAccess(SyncedMemory* memory, int access) {
    if (access == SUBLET_GONE) {
      std::lock_guard<std::mutex> lock(Mutex());
      for (SubletMemories* m : All()) m->Gone(memory);
    } else if (Current()) {
      std::lock_guard<std::mutex> lock(Mutex());
      Current()->Access(memory, access);
    }
  }
  void Gone(SyncedMemory* memory) {
    // Another memory may come to have its address.
    marks_.erase(memory);
    saved_.erase(memory);
    was_bound_.erase(memory);
    const auto kept = kept_pages_.find(memory);
    if (kept != kept_pages_.end()) {
      SubletArena::Return(kept->second.pages, kept->second.size);
      kept_pages_.erase(kept);
    }
    const auto found = numbers_.find(memory);
    if (found == numbers_.end()) return;
    Memory& m = memories_[found->second];
    m.synced = nullptr;
    stale_ |= m.bound || m.flags & kOfNet;
    numbers_.erase(found);
  }

  static void Place(Memory& m, char* address, bool poison) {
    if (!m.synced) return;
    Set(m, address);
    if (poison) Spoil(m, address, m.synced->size());
  }
  static void Set(Memory& m, char* address) {
    if (m.gpu) {
      m.synced->set_gpu_data(address);
    } else {
      m.synced->set_cpu_data(address);
    }
  }
  // Fills with NaN, whatever its numbers are.
  static void Spoil(const Memory& m, char* address, size_t bytes) {
    if (!m.gpu) std::memset(address, 0xff, bytes);
#ifndef CPU_ONLY
    if (m.gpu) caffe_gpu_memset(bytes, 0xff, address);
#endif
  }
  static void Copy(const Memory& m, const char* from, char* to, size_t bytes) {
    if (!m.gpu) std::memcpy(to, from, bytes);
#ifndef CPU_ONLY
    if (m.gpu) caffe_gpu_memcpy(bytes, from, to);
#endif
  }

  void Access(SyncedMemory* memory, int access) {
    const bool writes = access == SUBLET_CPU_WRITE || access == SUBLET_GPU_WRITE;
    const bool gpu = access == SUBLET_GPU_READ || access == SUBLET_GPU_WRITE;
    const auto known = numbers_.insert(std::make_pair(memory, memories_.size()));
    const bool fresh = memory->head() == SyncedMemory::UNINITIALIZED;
    if (known.second) Meet(memory, gpu, fresh, !writes);
    Memory& m = memories_[known.first->second];
    if (m.gpu != gpu) m.flags |= kKeep;
    if (op_ > 0 && !(kind_ & kKnown) && !(m.flags & kOfNet)) m.flags |= kKeep;
    const bool held = m.held && !(m.flags & kOfNet);
    const bool comes_back = held || (m.held && (m.read || m.flags & kKeep));
    if (writes && comes_back && !saved_.count(memory)) Save(memory);
    if (m.flags & kIgnore || op_ == 0) return;
    if (held && !(m.flags & kKeep)) {
      // A table of a layer that does not change its tables: the plan leaves it alone.
      if (kind_ & kTables) return;
      m.flags |= kKeep;
    }
    const bool first = m.op == 0;
    if (m.op != op_) m.reads = m.writes = false;
    m.op = op_;
    // A convolution fills its buffer anew each time.
    if (!(kind_ & kScratch) || m.flags & kOfNet) m.scratch = false;
    bool& told = writes ? m.writes : m.reads;
    if (told || (!writes && m.writes)) return;
    told = true;
    if (writes && first && m.flags & kOfNet && !(m.flags & kKeep)) return Fill(known.first->second);
    network_->use(known.first->second, writes ? SUBLET_USE_WRITE : SUBLET_USE_READ);
  }
  // A memory is used for the first time.
  void Meet(SyncedMemory* memory, bool gpu, bool fresh, bool read) {
    const auto mark = marks_.find(memory);
    const int flags = mark == marks_.end() ? 0 : mark->second.first;
    const bool held = !fresh && !was_bound_.count(memory);
    Memory m = {memory, flags, gpu, true, held, read, false, nullptr, memory->size(), 0, false, false};
    const auto kept = kept_pages_.find(memory);
    if (kept != kept_pages_.end()) {
      m.pages = kept->second.pages;
      kept_pages_.erase(kept);
    } else if (fresh && m.size > 0) {
      m.pages = SubletArena::Pages(m.size);
      Set(m, m.pages);
    }
    network_->memory(m.size);
    memories_.push_back(m);
  }
  void Save(SyncedMemory* memory) {
    Current() = nullptr;  // it is not the layer that reads
    const char* data = static_cast<const char*>(memory->cpu_data());
    saved_[memory].assign(data, data + memory->size());
    Current() = this;
  }
  // A layer is about to write a blob that nothing has used yet: NaN will show which numbers it does not write.
  void Fill(size_t number) {
    const Memory& m = memories_[number];
    const size_t bytes = std::min(m.synced->size(), marks_[m.synced].second);
    filled_.push_back(Filled{number, bytes, std::vector<char>(m.held ? bytes : 0)});
    char* const address = Address(m);
    Copy(m, address, filled_.back().before.data(), filled_.back().before.size());
    Spoil(m, address, bytes);
  }
  // Whether a layer has left numbers of a memory as they were. These get back what they held before.
  bool PutBack(const Memory& m, const Filled& f) {
    if (!m.synced) return false;
    char* const address = Address(m);
    std::vector<char> copy(m.gpu ? f.bytes : 0);
    if (m.gpu) Copy(m, address, copy.data(), f.bytes);
    char* const now = m.gpu ? copy.data() : address;
    const std::vector<char> nan(item_, static_cast<char>(0xff)), zero(item_, 0);
    bool left = false;
    for (size_t i = 0; i + item_ <= f.bytes; i += item_) {
      if (std::memcmp(now + i, nan.data(), item_) != 0) continue;
      std::memcpy(now + i, m.held ? &f.before[i] : zero.data(), item_);
      left = true;
    }
    if (left && m.gpu) Copy(m, now, address, f.bytes);
    return left;
  }
  char* Address(const Memory& m) {
    Current() = nullptr;  // it is not the layer that asks
    void* const address = m.gpu ? m.synced->mutable_gpu_data() : m.synced->mutable_cpu_data();
    Current() = this;
    return static_cast<char*>(address);
  }

  const size_t item_;
  sublet::network* network_;
  bool recording_, stale_;
  int kind_, op_;
  std::vector<Memory> memories_;
  std::unordered_map<SyncedMemory*, size_t> numbers_;
  std::unordered_map<SyncedMemory*, std::pair<int, size_t> > marks_;  // flags, and bytes in use
  std::unordered_map<SyncedMemory*, Memory> kept_pages_;
  std::unordered_set<SyncedMemory*> was_bound_;
  std::unordered_map<SyncedMemory*, std::vector<char> > saved_;
  std::vector<Filled> filled_;
};

}  // namespace caffe

#endif  // SUBLET_CAFFE_MEMORIES_HPP_
