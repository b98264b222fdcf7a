// Tests of sublet_caffe_memories.hpp by itself: memories that go away while plans are made, and after the end of main.
#include <cstdio>
#include <cstdlib>
#include <new>
#include <thread>
#include <type_traits>
#include <vector>

#include "sublet_caffe_memories.hpp"

namespace {

#define SAYS(condition)                                                         \
  do {                                                                          \
    if (!(condition)) {                                                         \
      std::fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      std::exit(1);                                                             \
    }                                                                           \
  } while (0)

using caffe::SubletMemories;
using caffe::SyncedMemory;

// Records a pass in which one layer writes one memory, or none, and plans nothing.
void pass(SubletMemories& memories, sublet::network& network, SyncedMemory* used) {
  network = sublet::network();
  memories.Begin(&network);
  network.op(1);
  memories.Enter(SubletMemories::kKnown);
  if (used) static_cast<char*>(used->mutable_cpu_data())[0] = 1;
  memories.Leave();
  memories.End();
  memories.Restore();
  memories.Settle(nullptr, network.steps());
}

// A memory that only the first pass used goes away, and another one comes to have its address. After the pass that
// writes it, that one too holds what it held before: zeros.
void an_address_is_used_again() {
  SubletMemories memories(sizeof(float));
  sublet::network network;
  std::aligned_storage<sizeof(SyncedMemory), alignof(SyncedMemory)>::type storage;
  SyncedMemory* memory = new (&storage) SyncedMemory(64);
  pass(memories, network, memory);
  pass(memories, network, nullptr);
  memory->~SyncedMemory();
  memory = new (&storage) SyncedMemory(64);
  pass(memories, network, memory);
  SAYS(static_cast<const char*>(memory->cpu_data())[0] == 0);
  memory->~SyncedMemory();
}

// A thread that reads ahead grows its blobs while a net is planned.
void a_thread_reads_ahead() {
  SubletMemories memories(sizeof(float));
  sublet::network network;
  std::thread other([] {
    for (int i = 0; i < 2000; ++i) SyncedMemory(64).mutable_cpu_data();
  });
  for (int i = 0; i < 200; ++i) {
    std::vector<caffe::shared_ptr<SyncedMemory> > marked;
    for (int j = 0; j < 100; ++j) {
      marked.push_back(caffe::shared_ptr<SyncedMemory>(new SyncedMemory(64)));
      memories.Mark(marked.back().get(), SubletMemories::kOfNet, 64);
    }
    pass(memories, network, marked[0].get());
  }
  other.join();
}

// As in a program whose net is a global variable, and whose plan is never destroyed.
struct Global {
  SyncedMemory* memory;
  ~Global() {
    memory->~SyncedMemory();
    std::puts("all checks passed");
  }
} global;

void a_net_is_global() {
  global.memory = new SyncedMemory(64);
  for (int i = 0; i < 100; ++i) new SubletMemories(sizeof(float));
}

}  // namespace

int main() {
  an_address_is_used_again();
  a_thread_reads_ahead();
  a_net_is_global();
  return 0;
}
