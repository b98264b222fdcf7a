// Planned memory for Caffe: one object for a net, made before its first iteration.
//
//     caffe::SubletPlan<float> plan(solver->net().get());            // without a limit: as fast as before
//     caffe::SubletPlan<float> plan(solver->net().get(), 400 << 20); // in 400 MiB: layers run again where they have to
//
// One pass is recorded at batch 1 where the net allows it: which SyncedMemory each layer reads and writes. What is written
// before it is read belongs to the iteration alone, and gets a place in one arena; parameters, outputs, what the user asks to
// keep, and what the plan does not understand stay as they are. After the pass everything is as it was before it: random
// numbers, statistics, gradients. Layers that read data do not run in it.
//
// The object lives as long as the net runs. The header needs C++11, libsublet, and sublet_caffe.patch in Caffe.
#ifndef SUBLET_CAFFE_HPP_
#define SUBLET_CAFFE_HPP_

#include <sys/mman.h>

#include <chrono>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "caffe/caffe.hpp"
#include "caffe/util/rng.hpp"
#include "sublet.hpp"

namespace caffe {

// In Caffe's syncedmem.cpp, by the patch: is told of each use of a memory.
enum SubletAccess { SUBLET_CPU_READ, SUBLET_CPU_WRITE, SUBLET_GPU_READ, SUBLET_GPU_WRITE, SUBLET_GONE };
extern void (*sublet_access)(SyncedMemory* memory, int access);

// One range of memory, of the host or of the GPU.
class SubletArena {
 public:
  SubletArena() : base_(nullptr), size_(0) {}
  SubletArena(const SubletArena&) = delete;
  SubletArena& operator=(const SubletArena&) = delete;
  ~SubletArena() { Free(); }
  char* base() const { return base_; }
  size_t size() const { return size_; }
  // Takes at least `size` bytes; what it held is lost.
  void Take(size_t size) {
    if (base_ && size <= size_) return;
    Free();
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
  void Free() {
    if (base_) Return(base_, size_);
    base_ = nullptr;
  }
  char* base_;
  size_t size_;
};

// The memories of a net as the hook sees them.
//
// While a pass is recorded, a memory that has nothing yet gets pages that take nothing until they are touched. One that
// held something before the pass is no part of the iteration, but for a blob of the net, which its layer writes as a
// whole; what it held comes back after the pass.
class SubletMemories {
 public:
  enum { kOfNet = 1, kKeep = 2, kIgnore = 4 };  // what a memory is
  // What a layer does with memories of its own: those of a layer that is not known stay.
  enum { kTables = 1, kScratch = 2, kKnown = 4 };

  SubletMemories() : network_(nullptr), recording_(false), stale_(false), kind_(0), op_(0) { All().insert(this); }
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
  // Whether a planned memory is gone, because a blob has grown.
  bool stale() const { return stale_; }
  size_t count() const { return memories_.size(); }

  void Begin(sublet::network* network) {
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
  void Mark(SyncedMemory* memory, int flags) {
    if (memory) marks_[memory] |= flags;
  }
  // The next operator.
  void Enter(int kind) {
    kind_ = kind;
    ++op_;
  }
  // Puts back what memories held before the pass.
  void Restore() {
    for (auto& s : saved_) std::memcpy(s.first->mutable_cpu_data(), s.second.data(), s.second.size());
    saved_.clear();
    for (Memory& m : memories_) {
      if (m.pages) SubletArena::Forget(m.pages, m.size);
    }
    recording_ = false;
  }
  // Tells the sizes, which the pass may have come to know late.
  void Size() {
    for (size_t i = 0; i < memories_.size(); ++i) {
      const Memory& m = memories_[i];
      sublet_memory& told = network_->at(i);
      told.bytes = m.synced ? m.synced->size() : 0;
      told.flags = (m.flags & kKeep ? SUBLET_MEMORY_KEEP : 0) | (m.scratch ? SUBLET_MEMORY_SCRATCH : 0);
    }
  }
  // After planning: binds what is planned, and returns the pages that are not needed any more.
  void Settle(char* arena, const std::vector<sublet_step>& steps) {
    for (const sublet_step& step : steps) {
      if (step.action != SUBLET_ACTION_BIND || memories_[step.subject].bound) continue;
      memories_[step.subject].bound = true;
      Bind(step.subject, arena + step.offset, false);
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
  }
  void Bind(uint32_t memory, char* address, bool poison) {
    Memory& m = memories_[memory];
    if (!m.synced) return;
    Set(m, address);
    if (!poison) return;
    if (!m.gpu) std::memset(address, 0xff, m.synced->size());
#ifndef CPU_ONLY
    if (m.gpu) caffe_gpu_memset(m.synced->size(), 0xff, address);
#endif
  }

 private:
  struct Memory {
    SyncedMemory* synced;  // NULL once it is gone
    int flags;
    bool gpu;      // it is used by the GPU, and by it alone
    bool scratch;
    bool bound;    // it has a place in the arena
    char* pages;   // what it was given while it was recorded, or after that because it is not planned
    size_t size;
    int op;        // the last operator that used it
    bool reads, writes;
  };

  static std::set<SubletMemories*>& All() {
    static std::set<SubletMemories*> all;
    return all;
  }
  static std::mutex& Mutex() {
    static std::mutex mutex;
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
      Current()->Access(memory, access);
    }
  }
  void Gone(SyncedMemory* memory) {
    const auto found = numbers_.find(memory);
    if (found == numbers_.end()) return;
    Memory& m = memories_[found->second];
    m.synced = nullptr;
    stale_ |= m.bound;
    numbers_.erase(found);
    saved_.erase(memory);
  }

  static void Set(Memory& m, char* address) {
    if (m.gpu) {
      m.synced->set_gpu_data(address);
    } else {
      m.synced->set_cpu_data(address);
    }
  }

  void Access(SyncedMemory* memory, int access) {
    const bool writes = access == SUBLET_CPU_WRITE || access == SUBLET_GPU_WRITE;
    const bool gpu = access == SUBLET_GPU_READ || access == SUBLET_GPU_WRITE;
    const auto known = numbers_.insert(std::make_pair(memory, memories_.size()));
    const bool fresh = memory->head() == SyncedMemory::UNINITIALIZED;
    if (known.second) Meet(memory, gpu, fresh);
    Memory& m = memories_[known.first->second];
    if (m.gpu != gpu) m.flags |= kKeep;
    if (op_ > 0 && !(kind_ & kKnown) && !(m.flags & kOfNet)) m.flags |= kKeep;
    const bool held = !m.pages && !(m.flags & kOfNet) && !was_bound_.count(memory);
    if (writes && held && !saved_.count(memory)) Save(memory);
    if (m.flags & kIgnore || op_ == 0) return;
    if (held && !(m.flags & kKeep)) {
      // A table of a layer whose tables stay as they are is no business of the plan.
      if (kind_ & kTables) return;
      m.flags |= kKeep;
    }
    if (m.op != op_) m.reads = m.writes = false;
    m.op = op_;
    // A layer that convolves makes its buffer anew.
    if (!(kind_ & kScratch) || m.flags & kOfNet) m.scratch = false;
    bool& told = writes ? m.writes : m.reads;
    if (told || (!writes && m.writes)) return;
    told = true;
    network_->use(known.first->second, writes ? SUBLET_USE_WRITE : SUBLET_USE_READ);
  }
  // A memory is used for the first time.
  void Meet(SyncedMemory* memory, bool gpu, bool fresh) {
    const auto mark = marks_.find(memory);
    Memory m = {memory, mark == marks_.end() ? 0 : mark->second, gpu, true, false, nullptr, memory->size(), 0, false, false};
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

  sublet::network* network_;
  bool recording_, stale_;
  int kind_, op_;
  std::vector<Memory> memories_;
  std::unordered_map<SyncedMemory*, size_t> numbers_;
  std::unordered_map<SyncedMemory*, int> marks_;
  std::unordered_map<SyncedMemory*, Memory> kept_pages_;
  std::unordered_set<SyncedMemory*> was_bound_;
  std::unordered_map<SyncedMemory*, std::vector<char> > saved_;
};

struct SubletOptions {
  // The most bytes that the arena may take; 0 is no limit. One that is too small becomes the least that works.
  uint64_t limit = 0;
  // Blobs that are looked at after an iteration, beside the net's outputs.
  std::set<string> keep;
  // A plan for another net that never runs while this one does, such as the training net: its arena is used.
  const SubletArena* share = nullptr;
  // Fills each memory with NaN as it begins, to prove that nothing else is read.
  bool poison = false;
};

template <typename Dtype>
class SubletPlan {
 public:
  explicit SubletPlan(Net<Dtype>* net, const SubletOptions& options = SubletOptions())
      : net_(net), options_(options), layers_(net->layers().size()), trains_(net->phase() == TRAIN),
        forward_(this, false), backward_(this, true) {
    net->add_before_forward(&forward_);
    net->add_before_backward(&backward_);
    Plan();
  }
  SubletPlan(Net<Dtype>* net, uint64_t limit) : SubletPlan(net, Limited(limit)) {}
  SubletPlan(const SubletPlan&) = delete;
  SubletPlan& operator=(const SubletPlan&) = delete;

  // What the plan takes and saves, and all its steps: whoever changes them answers for them.
  const sublet_network_planned& planned() const { return network_.planned(); }
  std::vector<sublet_step>& steps() { return network_.steps(); }
  const SubletArena& arena() const { return arena_; }
  // How often layers have run again, and what was recorded, as a sentence.
  uint64_t runs() const { return runs_; }
  const string& summary() const { return summary_; }

 private:
  class Hook : public Net<Dtype>::Callback {
   public:
    Hook(SubletPlan* plan, bool backward) : plan_(plan), backward_(backward) {}

   protected:
    void run(int layer) { plan_->Enter(backward_ ? 2 * plan_->layers_ - 1 - layer : layer); }

   private:
    SubletPlan* plan_;
    bool backward_;
  };

  static SubletOptions Limited(uint64_t limit) {
    SubletOptions options;
    options.limit = limit;
    return options;
  }

  static bool Is(const char* type, const char* const* types) {
    for (; *types != nullptr; ++types) {
      if (std::strcmp(type, *types) == 0) return true;
    }
    return false;
  }
  // Layers whose forward pass gives the same result again, and whose tables, filled when they are set up or reshaped, are
  // not changed by it. Any other layer runs once.
  static bool Repeats(const char* type) {
    static const char* const types[] = {
        "Convolution", "Deconvolution", "InnerProduct", "Pooling", "LRN", "ReLU", "PReLU", "ELU", "Sigmoid", "TanH",
        "Swish", "Clip", "Power", "Exp", "Log", "AbsVal", "BNLL", "Threshold", "Eltwise", "Concat", "Slice", "Split",
        "Scale", "Bias", "BatchNorm", "Softmax", "Flatten", "Reshape", "MVN", "Im2col", "Tile", "Embed", nullptr};
    return Is(type, types);
  }
  // Other layers whose own memories are written as a whole before they are read.
  static bool IsKnown(const char* type) {
    static const char* const types[] = {
        "Dropout", "SoftmaxWithLoss", "EuclideanLoss", "ContrastiveLoss", "HingeLoss", "SigmoidCrossEntropyLoss",
        "MultinomialLogisticLoss", "InfogainLoss", "Accuracy", "Silence", "DummyData", nullptr};
    return Repeats(type) || Is(type, types);
  }
  // Layers that read data from elsewhere, or are given it: they do not run in the recorded pass.
  static bool Reads(const char* type) {
    static const char* const types[] = {"Data", "ImageData", "HDF5Data", "MemoryData", "WindowData", "Input", nullptr};
    return Is(type, types);
  }
  // Whether a layer takes a batch of 1 as it takes any other.
  static bool AnyBatch(const LayerParameter& p) {
    static const char* const types[] = {
        "Convolution", "Deconvolution", "Pooling", "LRN", "ReLU", "PReLU", "ELU", "Sigmoid", "TanH", "Swish", "Clip",
        "Power", "Exp", "Log", "AbsVal", "BNLL", "Threshold", "Eltwise", "Split", "Scale", "Bias", "BatchNorm",
        "SoftmaxWithLoss", "Accuracy", "Dropout", "Silence", "EuclideanLoss", "ContrastiveLoss", "HingeLoss",
        "SigmoidCrossEntropyLoss", "MVN", "Im2col", "DummyData", "Data", "ImageData", "HDF5Data", "MemoryData",
        "WindowData", "Input", nullptr};
    const string& type = p.type();
    if (type == "Concat") return p.concat_param().axis() != 0 && p.concat_param().concat_dim() != 0;
    if (type == "Slice") return p.slice_param().axis() != 0 && p.slice_param().slice_dim() != 0;
    if (type == "InnerProduct") return p.inner_product_param().axis() == 1;
    if (type == "Softmax") return p.softmax_param().axis() == 1;
    if (type == "Flatten") return p.flatten_param().axis() == 1;
    if (type == "Reshape") {
      const ReshapeParameter& r = p.reshape_param();
      return r.axis() == 0 && r.shape().dim_size() > 0 && r.shape().dim(0) == 0;
    }
    return Is(type.c_str(), types);
  }
  const char* Type(int layer) const { return net_->layers()[layer]->type(); }
  bool IsSource(int layer) const { return net_->bottom_vecs()[layer].empty(); }

  // Whether all sources make the same number of items, which all layers can take one by one.
  bool BatchOfOne() const {
    int items = -1;
    for (int i = 0; i < layers_; ++i) {
      if (!AnyBatch(net_->layers()[i]->layer_param())) return false;
      if (!IsSource(i)) continue;
      for (Blob<Dtype>* top : net_->top_vecs()[i]) {
        if (top->num_axes() == 0 || (items >= 0 && top->shape(0) != items)) return false;
        items = top->shape(0);
      }
    }
    return items > 0;
  }

  // Records, plans and binds. Where that fails, the net keeps its own memory.
  void Plan() {
    std::map<Blob<Dtype>*, vector<int> > shapes;
    const bool one = BatchOfOne();
    for (int i = 0; one && i < layers_; ++i) {
      if (!IsSource(i)) continue;
      for (Blob<Dtype>* top : net_->top_vecs()[i]) {
        shapes[top] = top->shape();
        vector<int> shape = top->shape();
        shape[0] = 1;
        top->Reshape(shape);
      }
    }
    if (one) net_->Reshape();
    const rng_t random = *caffe_rng();
    network_ = sublet::network();
    memories_.Begin(&network_);
    Tell();
    Pass(true);
    memories_.End();
    // The pass has warmed up what is measured, and of two times the less is told.
    Pass(false);
    Pass(false);
    *caffe_rng() = random;
    memories_.Restore();
    for (auto& s : shapes) s.first->Reshape(s.second);
    if (one) net_->Reshape();
    Fit();
    for (int i = 0; i < layers_; ++i) {
      if (!IsKnown(Type(i)) && !Reads(Type(i))) {
        LOG(WARNING) << "sublet: layer " << net_->layer_names()[i] << " is a " << Type(i)
                     << ", which is not known: it runs once, and memories of its own stay";
      }
    }
    std::ostringstream text;
    const sublet_network_planned& p = planned();
    text << "sublet: recorded " << (one ? "at batch 1" : "as it is") << "; " << memories_.count() << " memories, "
         << (p.planned_bytes >> 10) << " KiB of the iteration in " << (p.peak >> 10) << " KiB, " << (p.kept_bytes >> 10)
         << " KiB beside them; layers that run again take "
         << (p.run.original_ns ? 100.0 * p.run.recomputed_ns / p.run.original_ns : 0.0) << " % of the time";
    summary_ = text.str();
    LOG(INFO) << summary_;
  }

  // What is known before the pass: the blobs of the net, and what stays.
  void Tell() {
    typedef SubletMemories M;
    for (int i = 0; i < net_->blobs().size(); ++i) {
      const Blob<Dtype>& blob = *net_->blobs()[i];
      const int flags = options_.keep.count(net_->blob_names()[i]) ? M::kOfNet | M::kKeep : M::kOfNet;
      memories_.Mark(blob.data().get(), flags);
      memories_.Mark(blob.diff().get(), flags);
    }
    for (int i = 0; i < layers_; ++i) {
      for (const auto& blob : net_->layers()[i]->blobs()) {
        memories_.Mark(blob->data().get(), M::kKeep);
        memories_.Mark(blob->diff().get(), M::kKeep);
      }
      // What only a batch normalization updates, and what is put back when it runs again.
      if (std::strcmp(Type(i), "BatchNorm") == 0) {
        for (const auto& blob : net_->layers()[i]->blobs()) memories_.Mark(blob->data().get(), M::kKeep | M::kIgnore);
      }
      if (IsSource(i) && std::strcmp(Type(i), "DummyData") != 0) {
        for (Blob<Dtype>* top : net_->top_vecs()[i]) memories_.Mark(top->data().get(), M::kKeep);
      }
    }
    for (Blob<Dtype>* blob : net_->output_blobs()) memories_.Mark(blob->data().get(), M::kKeep);
  }

  static int Kind(const char* type) {
    const bool convolves = std::strcmp(type, "Convolution") == 0 || std::strcmp(type, "Deconvolution") == 0;
    return (Repeats(type) ? SubletMemories::kTables : 0) | (convolves ? SubletMemories::kScratch : 0) |
           (IsKnown(type) ? SubletMemories::kKnown : 0);
  }

  // One pass over all layers; the first is recorded, the second is timed.
  void Pass(bool records) {
    for (int i = 0; i < layers_; ++i) {
      const char* type = Type(i);
      const bool runs = !IsSource(i) || std::strcmp(type, "DummyData") == 0;
      Operator(i, !Repeats(type), Kind(type), records, [&] {
        if (runs) net_->layers()[i]->Forward(net_->bottom_vecs()[i], net_->top_vecs()[i]);
      });
    }
    for (int i = layers_ - 1; trains_ && i >= 0; --i) {
      Operator(2 * layers_ - 1 - i, true, Kind(Type(i)), records, [&] {
        if (!net_->layer_need_backward()[i]) return;
        net_->layers()[i]->Backward(net_->top_vecs()[i], net_->bottom_need_backward()[i], net_->bottom_vecs()[i]);
      });
    }
  }

  template <typename Body>
  void Operator(int op, bool once, int kind, bool records, Body body) {
    if (records) {
      network_.op(0, once ? SUBLET_OPERATOR_ONCE : 0);
      memories_.Enter(kind);
      body();
      return;
    }
    const auto since = std::chrono::steady_clock::now();
    body();
    const auto taken = std::chrono::steady_clock::now() - since;
    const uint64_t ns = std::chrono::duration_cast<std::chrono::nanoseconds>(taken).count();
    uint64_t& told = network_.at_op(op).time_ns;
    told = told == 0 || ns < told ? ns : told;
  }

  // Plans what was recorded, and binds it.
  void Fit() {
    memories_.Size();
    sublet_error error;
    sublet_status status = network_.plan(options_.limit, &error);
    if (status == SUBLET_STATUS_OVER_LIMIT) {
      LOG(WARNING) << "sublet: " << sublet::to_string(error) << ": that is the limit now";
      status = network_.plan(error.needed, &error);
    }
    if (status != SUBLET_STATUS_OK) {
      LOG(ERROR) << "sublet: " << sublet::to_string(error) << "; the net keeps its own memory";
      network_ = sublet::network();
      memories_.Settle(nullptr, network_.steps());
      return;
    }
    memories_.Settle(Base(), network_.steps());
  }

  // Where the arena is: another plan's, as long as that is large enough.
  char* Base() {
    const SubletArena* other = options_.share;
    if (other && other->size() >= planned().peak) return other->base();
    arena_.Take(planned().peak);
    return arena_.base();
  }

  // A layer is about to run.
  void Enter(int op) {
    if (memories_.IsRecording()) return;
    if (op == 0 || op < last_) {
      // A blob that has grown is another memory.
      if (op == 0 && memories_.stale()) Plan();
      network_.restart();
    }
    last_ = op;
    char* const base = network_.steps().empty() ? nullptr : Base();
    while (const sublet_step* step = network_.next(op)) {
      if (step->action == SUBLET_ACTION_BIND) {
        memories_.Bind(step->subject, base + step->offset, options_.poison);
      } else if (step->action == SUBLET_ACTION_RUN) {
        Again(step->subject);
      } else {
        LOG(FATAL) << "sublet: a step that was not asked for";
      }
    }
  }

  void Again(int layer) {
    ++runs_;
    vector<vector<Dtype> > statistics;
    const bool restores = std::strcmp(Type(layer), "BatchNorm") == 0;
    const auto& blobs = net_->layers()[layer]->blobs();
    for (int i = 0; restores && i < blobs.size(); ++i) {
      statistics.push_back(vector<Dtype>(blobs[i]->cpu_data(), blobs[i]->cpu_data() + blobs[i]->count()));
    }
    net_->layers()[layer]->Forward(net_->bottom_vecs()[layer], net_->top_vecs()[layer]);
    for (int i = 0; restores && i < blobs.size(); ++i) {
      caffe_copy(blobs[i]->count(), statistics[i].data(), blobs[i]->mutable_cpu_data());
    }
  }

  Net<Dtype>* net_;
  SubletOptions options_;
  int layers_;
  bool trains_;
  Hook forward_, backward_;
  sublet::network network_;
  SubletMemories memories_;
  SubletArena arena_;
  int last_ = 0;
  uint64_t runs_ = 0;
  string summary_;
};

}  // namespace caffe

#endif  // SUBLET_CAFFE_HPP_
