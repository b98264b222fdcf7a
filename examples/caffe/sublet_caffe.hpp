// Planned memory for Caffe: one object for a net, made before its first iteration.
//
//     caffe::SubletPlan<float> plan(solver->net().get());            // without a limit: as fast as before
//     caffe::SubletPlan<float> plan(solver->net().get(), 400 << 20); // in 400 MiB: layers run again where they have to
//
// Three passes run when the object is made, at batch 1 where the net allows it; layers that read data do not run in
// them. The second pass is recorded: which SyncedMemory each layer reads and writes. In the first one it is not yet
// known what layers share, and what they carry from one iteration to the next. A memory that is written before it is
// read belongs to the iteration alone, and gets a place in one arena. Parameters, outputs, blobs that the user asks to
// keep, and memories that the plan does not understand stay where they are. After the passes all is as before: random
// numbers, statistics, gradients.
//
// Within a limit, the times of layers decide which of them run again. The first plan takes the times of the second and
// the third pass. The second and the third iteration are timed too. Before the fourth the net is planned once more, by
// the times that its layers take at full batch.
//
// The object lives as long as the net runs. The header needs C++11, libsublet, and sublet_caffe.patch in Caffe.
#ifndef SUBLET_CAFFE_HPP_
#define SUBLET_CAFFE_HPP_

#include <ctime>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "caffe/caffe.hpp"
#include "caffe/util/rng.hpp"
#include "sublet.hpp"
#include "sublet_caffe_memories.hpp"
#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace caffe {

struct SubletOptions {
  SubletOptions(uint64_t most = 0) : limit(most) {}
  // The most bytes that the arena may take; 0 is no limit. One that is too small becomes the least that works.
  uint64_t limit;
  // Names of blobs whose data or gradients are looked at after an iteration, beside the data of the net's outputs.
  std::set<string> keep;
  // An arena to share: that of a plan for another net, such as the training net. The two nets must never run at the
  // same time, and the other plan must live longer than this one.
  const SubletArena* share = nullptr;
  // Fills each memory with NaN as it begins, to prove that nothing else is read.
  bool poison = false;
};

template <typename Dtype>
class SubletPlan {
 public:
  explicit SubletPlan(Net<Dtype>* net, const SubletOptions& options = SubletOptions())
      : net_(net), options_(options), layers_(net->layers().size()), trains_(net->phase() == TRAIN || Forces()),
        forward_(this, false, true), backward_(this, true, true), forward_end_(this, false, false),
        backward_end_(this, true, false), memories_(sizeof(Dtype)) {
    for (const string& name : options.keep) {
      CHECK(net->has_blob(name)) << "sublet: there is no blob " << name << " in the net " << net->name() << " to keep";
    }
    net->add_before_forward(&forward_);
    net->add_before_backward(&backward_);
    net->add_after_forward(&forward_end_);
    net->add_after_backward(&backward_end_);
    Plan();
  }
  SubletPlan(const SubletPlan&) = delete;
  SubletPlan& operator=(const SubletPlan&) = delete;

  // What the plan takes and saves; its steps. If the steps are changed, nothing proves them any more.
  const sublet_network_planned& planned() const { return network_.planned(); }
  std::vector<sublet_step>& steps() { return network_.steps(); }
  const SubletArena& arena() const { return arena_; }
  // How often layers have run again, and what was recorded, as a sentence.
  uint64_t runs() const { return runs_; }
  const string& summary() const { return summary_; }

 private:
  class Hook : public Net<Dtype>::Callback {
   public:
    Hook(SubletPlan* plan, bool backward, bool before) : plan_(plan), backward_(backward), before_(before) {}

   protected:
    void run(int layer) {
      const int op = backward_ ? 2 * plan_->layers_ - 1 - layer : layer;
      if (before_) {
        plan_->Enter(op);
      } else {
        plan_->Leave(op);
      }
    }

   private:
    SubletPlan* plan_;
    bool backward_, before_;
  };

  static bool Is(const char* type, const char* const* types) {
    for (; *types != nullptr; ++types) {
      if (std::strcmp(type, *types) == 0) return true;
    }
    return false;
  }
  // Layers that may run again: a second forward pass gives the same result, and does not change the tables that the
  // layer fills when it is set up or reshaped. Any other layer runs once.
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
        "MultinomialLogisticLoss", "InfogainLoss", "Accuracy", "Silence", "DummyData", "LSTM", "RNN", nullptr};
    return Repeats(type) || Is(type, types);
  }
  // Layers that read data from elsewhere, or are given it: they do not run in the recorded pass.
  static bool Reads(const char* type) {
    static const char* const types[] = {"Data", "ImageData", "HDF5Data", "MemoryData", "WindowData", "Input", nullptr};
    return Is(type, types);
  }
  // Whether the axis that a layer names is not this one. A negative axis counts from the last, and may be this one.
  static bool IsAnother(int named, int axis) { return named >= 0 && named != axis; }
  // Whether a layer takes one item as it takes many: items lie along the first axis, in recurrent nets along the second.
  static bool AnyBatch(const LayerParameter& p, int axis) {
    static const char* const all[] = {
        "ReLU", "PReLU", "ELU", "Sigmoid", "TanH", "Swish", "Clip", "Power", "Exp", "Log", "AbsVal", "BNLL", "Threshold",
        "Eltwise", "Split", "Dropout", "Silence", "EuclideanLoss", "SigmoidCrossEntropyLoss", "DummyData", "Data",
        "ImageData", "HDF5Data", "MemoryData", "WindowData", "Input", nullptr};
    static const char* const first[] = {
        "Convolution", "Deconvolution", "Pooling", "LRN", "BatchNorm", "ContrastiveLoss", "HingeLoss", "MVN", "Im2col",
        nullptr};
    static const char* const second[] = {"LSTM", "RNN", "Embed", nullptr};
    const string& type = p.type();
    if (type == "Concat") {
      const ConcatParameter& c = p.concat_param();
      return IsAnother(c.has_concat_dim() ? static_cast<int>(c.concat_dim()) : c.axis(), axis);
    }
    if (type == "Slice") {
      const SliceParameter& s = p.slice_param();
      return IsAnother(s.has_slice_dim() ? static_cast<int>(s.slice_dim()) : s.axis(), axis);
    }
    // With one bottom, such a layer has parameters whose shape is that of the bottom from the named axis on.
    if (type == "Scale") return axis == 0 && (p.bottom_size() > 1 || p.scale_param().axis() > 0);
    if (type == "Bias") return axis == 0 && (p.bottom_size() > 1 || p.bias_param().axis() > 0);
    if (type == "InnerProduct") return p.inner_product_param().axis() == axis + 1;
    if (type == "Softmax" || type == "SoftmaxWithLoss") return p.softmax_param().axis() == axis + 1;
    if (type == "Accuracy") return p.accuracy_param().axis() == axis + 1;
    if (type == "Flatten") return p.flatten_param().axis() == axis + 1;
    if (type == "Reshape") {
      const ReshapeParameter& r = p.reshape_param();
      return axis == 0 && r.axis() == 0 && r.shape().dim_size() > 0 && r.shape().dim(0) == 0;
    }
    return Is(type.c_str(), all) || Is(type.c_str(), axis == 0 ? first : second);
  }
  const char* Type(int layer) const { return net_->layers()[layer]->type(); }
  bool IsSource(int layer) const { return net_->bottom_vecs()[layer].empty(); }

  // Whether the net is one with force_backward, where sources take gradients too.
  bool Forces() const {
    for (int i = 0; i < layers_; ++i) {
      if (IsSource(i) && net_->layer_need_backward()[i]) return true;
    }
    return false;
  }

  // Whether all sources make the same number of items along an axis, which all layers can take one by one.
  bool BatchOfOne(int axis) const {
    int items = -1;
    for (int i = 0; i < layers_; ++i) {
      if (!AnyBatch(net_->layers()[i]->layer_param(), axis)) return false;
      if (!IsSource(i)) continue;
      for (Blob<Dtype>* top : net_->top_vecs()[i]) {
        if (top->num_axes() <= axis || (items >= 0 && top->shape(axis) != items)) return false;
        items = top->shape(axis);
      }
    }
    return items > 0;
  }

  // Records, plans and binds. Where that fails, the net keeps its own memory.
  void Plan() {
    // Sources may have grown: first all blobs grow with them.
    net_->Reshape();
    std::map<Blob<Dtype>*, vector<int> > shapes;
    const int axis = BatchOfOne(0) ? 0 : 1;
    const bool one = axis == 0 || BatchOfOne(1);
    for (int i = 0; one && i < layers_; ++i) {
      if (!IsSource(i)) continue;
      for (Blob<Dtype>* top : net_->top_vecs()[i]) {
        shapes[top] = top->shape();
        vector<int> shape = top->shape();
        shape[axis] = 1;
        top->Reshape(shape);
      }
    }
    if (one) net_->Reshape();
    const rng_t random = *caffe_rng();
    network_ = sublet::network();
    memories_.Begin(&network_);
    Tell();
    Pass(kWarmUp);
    Tell();  // again: Flatten and Split have given their tops another memory
    Pass(kRecord);
    memories_.End();
    Pass(kTime);
    *caffe_rng() = random;
    memories_.Restore();
    for (auto& s : shapes) s.first->Reshape(s.second);
    if (one) net_->Reshape();
    Bind();
    iteration_ = -1;
    for (int i = 0; i < layers_; ++i) {
      if (!IsKnown(Type(i)) && !Reads(Type(i))) {
        LOG(WARNING) << "sublet: layer " << net_->layer_names()[i] << " is a " << Type(i)
                     << ", which is not known: it runs once, and memories of its own stay";
      }
    }
    Summarize(one ? "timed at batch 1" : "timed before the first iteration");
  }

  void Summarize(const char* timed) {
    std::ostringstream text;
    const sublet_network_planned& p = planned();
    text << "sublet: " << timed << "; " << memories_.count() << " memories, "
         << (p.planned_bytes >> 10) << " KiB of the iteration in " << (p.peak >> 10) << " KiB, " << (p.kept_bytes >> 10)
         << " KiB beside them; layers that run again take "
         << (p.run.original_ns ? 100.0 * p.run.recomputed_ns / p.run.original_ns : 0.0) << " % of the time";
    summary_ = text.str();
    LOG(INFO) << summary_;
  }

  // Tells what a pass does not show: which memories are blobs of the net, and which stay where they are.
  void Tell() {
    typedef SubletMemories M;
    for (int i = 0; i < net_->blobs().size(); ++i) {
      const Blob<Dtype>& blob = *net_->blobs()[i];
      const int flags = options_.keep.count(net_->blob_names()[i]) ? M::kOfNet | M::kKeep : M::kOfNet;
      memories_.Mark(blob.data().get(), flags, blob.count() * sizeof(Dtype));
      memories_.Mark(blob.diff().get(), flags, blob.count() * sizeof(Dtype));
    }
    for (int i = 0; i < layers_; ++i) {
      for (const auto& blob : net_->layers()[i]->blobs()) {
        memories_.Mark(blob->data().get(), M::kKeep);
        memories_.Mark(blob->diff().get(), M::kKeep);
      }
      // Statistics, which only the batch normalization updates; when it runs again they are put back.
      if (std::strcmp(Type(i), "BatchNorm") == 0) {
        for (const auto& blob : net_->layers()[i]->blobs()) memories_.Mark(blob->data().get(), M::kKeep | M::kIgnore);
      }
      if (IsSource(i) && std::strcmp(Type(i), "DummyData") != 0) {
        for (Blob<Dtype>* top : net_->top_vecs()[i]) memories_.Mark(top->data().get(), M::kKeep);
      }
      // Gradients of what the net is given are what force_backward is for.
      if (IsSource(i) && Forces()) {
        for (Blob<Dtype>* top : net_->top_vecs()[i]) memories_.Mark(top->diff().get(), M::kKeep);
      }
    }
    for (Blob<Dtype>* blob : net_->output_blobs()) memories_.Mark(blob->data().get(), M::kKeep);
  }

  static int Kind(const char* type) {
    const bool convolves = std::strcmp(type, "Convolution") == 0 || std::strcmp(type, "Deconvolution") == 0;
    return (Repeats(type) ? SubletMemories::kTables : 0) | (convolves ? SubletMemories::kScratch : 0) |
           (IsKnown(type) ? SubletMemories::kKnown : 0);
  }

  // A net whose iteration has fewer bytes is left alone.
  static const uint64_t kLeast = 1 << 20;

  enum Purpose { kWarmUp, kRecord, kTime };

  // One pass over all layers. The last two are timed; of both times of a layer the lesser one counts.
  void Pass(Purpose purpose) {
    for (int i = 0; i < layers_; ++i) {
      const char* type = Type(i);
      const bool runs = !IsSource(i) || std::strcmp(type, "DummyData") == 0;
      Operator(i, !Repeats(type), Kind(type), purpose, [&] {
        if (!runs) return;
        for (Blob<Dtype>* blob : InPlace(i)) Read(*blob->data());
        net_->layers()[i]->Forward(net_->bottom_vecs()[i], net_->top_vecs()[i]);
      });
    }
    for (int i = layers_ - 1; trains_ && i >= 0; --i) {
      Operator(2 * layers_ - 1 - i, true, Kind(Type(i)), purpose, [&] {
        if (!net_->layer_need_backward()[i]) return;
        for (Blob<Dtype>* blob : InPlace(i)) Read(*blob->diff());
        net_->layers()[i]->Backward(net_->top_vecs()[i], net_->bottom_need_backward()[i], net_->bottom_vecs()[i]);
      });
    }
  }

  // A layer in place reads what it writes, whichever it asks for first.
  vector<Blob<Dtype>*> InPlace(int layer) const {
    const vector<Blob<Dtype>*>& bottom = net_->bottom_vecs()[layer];
    vector<Blob<Dtype>*> both;
    for (Blob<Dtype>* top : net_->top_vecs()[layer]) {
      if (std::find(bottom.begin(), bottom.end(), top) != bottom.end()) both.push_back(top);
    }
    return both;
  }
  static void Read(SyncedMemory& memory) {
    if (Caffe::mode() == Caffe::GPU) {
      memory.gpu_data();
    } else {
      memory.cpu_data();
    }
  }

  template <typename Body>
  void Operator(int op, bool once, int kind, Purpose purpose, Body body) {
    if (purpose == kRecord) {
      network_.op(0, once ? SUBLET_OPERATOR_ONCE : 0);
      memories_.Enter(kind);
    }
    const uint64_t since = Now();
    body();
    if (purpose != kWarmUp) Took(op, Now() - since, purpose == kRecord);
    if (purpose == kRecord) memories_.Leave();
  }

  // The time in ns. On the processor it is the time that this thread has run, so that other programs do not count. On a
  // GPU it is the time of the clock, after all work of the GPU is done.
  static uint64_t Now() {
#ifndef CPU_ONLY
    if (Caffe::mode() == Caffe::GPU) {
      CUDA_CHECK(cudaDeviceSynchronize());
      const auto now = std::chrono::steady_clock::now().time_since_epoch();
      return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
    }
#endif
    timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * 1000000000ull + now.tv_nsec;
  }
  // Notes a time that an operator took. The least since the `first` counts.
  void Took(int op, uint64_t ns, bool first) {
    uint64_t& told = network_.at_op(op).time_ns;
    told = first || ns < told ? ns : told;
  }

  // The first iteration loses time to pages that are touched for the first time. The two after it are timed.
  static const int kTimed = 2;
  bool Times() const { return iteration_ >= 1 && iteration_ <= kTimed && planned().run.recomputed_ns > 0; }
  // Plans again, by the times of iterations. First the arena gives its pages back: so the process takes no more memory
  // while it plans than while it runs.
  void Refit() {
    SubletArena::Forget(Base(), planned().peak);
    if (!Fit()) return;
    memories_.Settle(Base(), network_.steps());
    Summarize("timed in iterations");
  }

  // Plans what was recorded, and binds it. Where that fails, the net keeps its own memory.
  void Bind() {
    const uint64_t bytes = memories_.Size();
    if (bytes < kLeast) {
      LOG(WARNING) << "sublet: the iteration has " << bytes << " bytes: the library itself would take more than a plan saves";
      return GiveUp();
    }
    if (!Fit()) return GiveUp();
    memories_.Settle(Base(), network_.steps());
  }
  // Whether there is a plan of what was recorded now; if not, the one before it stays.
  bool Fit() {
    sublet_error error;
    sublet_status status = network_.plan(options_.limit, &error);
    // Below what is needed at once nothing fits, and above that perhaps only from the least limit on that is known to work.
    while (status == SUBLET_STATUS_IMPOSSIBLE_LIMIT || status == SUBLET_STATUS_OVER_LIMIT) {
      LOG(WARNING) << "sublet: " << sublet::to_string(error) << ": that is the limit now";
      status = network_.plan(error.needed, &error);
    }
    if (status != SUBLET_STATUS_OK) LOG(ERROR) << "sublet: " << sublet::to_string(error) << "; there is no new plan";
#ifdef __GLIBC__
    malloc_trim(0);  // what planning took
#endif
    return status == SUBLET_STATUS_OK;
  }
  void GiveUp() {
    network_ = sublet::network();
    memories_.Settle(nullptr, network_.steps());
  }

  // Where the arena is: another plan's, as long as that is large enough.
  char* Base() {
    const SubletArena* other = options_.share;
    if (other && other->size() >= planned().peak) return other->base();
    if (other && arena_.size() < planned().peak) {
      LOG(WARNING) << "sublet: the shared arena has " << other->size() << " bytes, and the plan of " << net_->name()
                   << " needs " << planned().peak << ": it takes an arena of its own";
    }
    arena_.Take(planned().peak);
    return arena_.base();
  }

  // A layer is about to run.
  void Enter(int op) {
    if (memories_.IsRecording()) return;
    if (!network_.steps().empty()) {
      CHECK(trains_ || op < layers_)
          << "sublet: Backward of a net of phase TEST is not planned: give the net force_backward, or no plan";
      CHECK(op == 0 || op == last_ + 1)
          << "sublet: layer " << net_->layer_names()[op < layers_ ? op : 2 * layers_ - 1 - op]
          << " runs out of turn: a planned net runs Forward as a whole, then Backward as a whole, once";
    }
    if (op == 0) {
      // A blob that has grown is another memory.
      if (memories_.stale()) Plan();
      NextIteration();
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
    if (Times()) since_ = Now();
  }
  void NextIteration() {
    ++iteration_;
    if (iteration_ == kTimed + 1 && planned().run.recomputed_ns > 0) Refit();
  }
  // A layer has run.
  void Leave(int op) {
    if (!memories_.IsRecording() && Times()) Took(op, Now() - since_, iteration_ == 1);
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
  Hook forward_, backward_, forward_end_, backward_end_;
  sublet::network network_;
  SubletMemories memories_;
  SubletArena arena_;
  int last_ = -2;       // the operator that ran last; none may run before the first
  int iteration_ = -1;  // since the net was planned; -1 before the first
  uint64_t since_ = 0;  // when the layer that runs began
  uint64_t runs_ = 0;
  string summary_;
};

}  // namespace caffe

#endif  // SUBLET_CAFFE_HPP_
