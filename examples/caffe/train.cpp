// Trains or runs a net of Caffe and tells what came out, to the bit, and what memory the process took.
//
//     train NET.prototxt ITERATIONS [plan] [limit=MIB] [poison] [overlap] [infer] [test] [iter_size=N]
//           [batch=N] [debug] [reshape] [grow] [keep=BLOB] [backward] [twice] [from] [numbers]
//
// `plan` plans the net's memory, within `limit` where that is told; `poison` fills each memory with NaN as it begins;
// `overlap` changes the proved plan, so that two memories lie in one place: the results have to differ then. `test`
// evaluates the test net after each fifth iteration, by a plan of its own in the same arena. `batch` sets the number of
// items that DummyData layers make. With 0 iterations the net is planned only. `debug` has Caffe look at each blob;
// `reshape` gives each iteration another batch than the one before. `grow` doubles the batch of the third and later
// iterations without telling the layers, and reads all blobs of the test net after each iteration.
//
// The results have a hash of the outputs; the blob to `keep` counts for it too, and so do the gradients of the inputs
// where an inferring net runs `backward`. No plan has a second backward pass (`twice`), nor a first pass that begins at
// the second layer (`from`). `numbers` writes the files that the nets read: numbers.h5 and images.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "caffe/caffe.hpp"
#include "caffe/util/upgrade_proto.hpp"
#include "numbers.hpp"
#ifndef STOCK
#include "sublet_caffe.hpp"
#endif

namespace {

typedef std::map<std::string, std::string> Arguments;

double memory_mib(const char* field) {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);) {
        if (line.compare(0, std::strlen(field), field) == 0) return std::atof(line.c_str() + std::strlen(field) + 1) / 1024;
    }
    return 0;
}

// FNV-1a.
class Hash {
  public:
    void add(const void* data, size_t size) {
        for (size_t i = 0; i < size; ++i) {
            state_ = (state_ ^ static_cast<const unsigned char*>(data)[i]) * 1099511628211ull;
        }
    }
    unsigned long long value() const { return state_; }

  private:
    unsigned long long state_ = 14695981039346656037ull;
};

#ifndef STOCK
caffe::SubletOptions options(const Arguments& given) {
    caffe::SubletOptions asked;
    if (given.count("limit")) asked.limit = static_cast<uint64_t>(std::atof(given.at("limit").c_str()) * (1 << 20));
    asked.poison = given.count("poison") > 0;
    if (given.count("keep")) asked.keep.insert(given.at("keep"));
    return asked;
}

// Has the memory that is bound last before the second operator lie where the first one lies.
void overlap(std::vector<sublet_step>& steps) {
    for (sublet_step& step : steps) {
        if (step.action == SUBLET_ACTION_BIND && step.offset != steps[0].offset && step.before <= steps[0].before + 2) {
            step.offset = steps[0].offset;
            return;
        }
    }
}
#endif

// All sources make `halves` halves of the items that they made when it was `before`; their layers are not told.
void resize(caffe::Net<float>* net, int halves, int before) {
    for (size_t i = 0; i < net->layers().size(); ++i) {
        if (!net->bottom_vecs()[i].empty()) continue;
        for (caffe::Blob<float>* top : net->top_vecs()[i]) {
            std::vector<int> shape = top->shape();
            shape[0] = shape[0] * halves / before;
            top->Reshape(shape);
        }
    }
}

// Reads all blobs: they have to lie somewhere, whatever they hold.
void look(caffe::Net<float>* net) {
    volatile float sum = 0;
    for (const auto& blob : net->blobs()) {
        if (blob->count() > 0) sum = sum + blob->asum_data();
    }
}

// A pass back from gradients of all outputs.
void backward(caffe::Net<float>* net) {
    for (caffe::Blob<float>* output : net->output_blobs()) {
        for (int i = 0; i < output->count(); ++i) output->mutable_cpu_diff()[i] = static_cast<float>(i % 7) / 7;
    }
    net->Backward();
}

caffe::NetParameter read(const std::string& file, const Arguments& given) {
    caffe::NetParameter net;
    caffe::ReadNetParamsFromTextFileOrDie(file, &net);
    for (int i = 0; given.count("batch") && i < net.layer_size(); ++i) {
        if (!net.layer(i).has_dummy_data_param()) continue;
        caffe::DummyDataParameter* data = net.mutable_layer(i)->mutable_dummy_data_param();
        for (caffe::BlobShape& shape : *data->mutable_shape()) shape.set_dim(0, std::atoi(given.at("batch").c_str()));
    }
    return net;
}

double seconds(std::chrono::steady_clock::duration d) { return std::chrono::duration<double>(d).count(); }

int run(const std::string& file, int iterations, const Arguments& given) {
    const bool infers = given.count("infer") > 0;
    caffe::Caffe::set_mode(caffe::Caffe::CPU);
    caffe::Caffe::set_random_seed(1701);
    std::shared_ptr<caffe::Solver<float> > solver;
    std::shared_ptr<caffe::Net<float> > alone;
    if (infers) {
        alone.reset(new caffe::Net<float>(file, caffe::TEST));
        for (caffe::Blob<float>* input : alone->input_blobs()) {
            for (int i = 0; i < input->count(); ++i) input->mutable_cpu_data()[i] = static_cast<float>(i % 255) / 255;
        }
    } else {
        caffe::SolverParameter asked;
        asked.set_type("SGD");
        *asked.mutable_net_param() = read(file, given);
        asked.set_base_lr(0.001f);
        asked.set_momentum(0.9f);
        asked.set_weight_decay(0.0005f);
        asked.set_lr_policy("fixed");
        asked.set_snapshot_after_train(false);
        asked.set_random_seed(1701);
        asked.set_debug_info(given.count("debug") > 0);
        if (given.count("iter_size")) asked.set_iter_size(std::atoi(given.at("iter_size").c_str()));
        if (given.count("test")) {
            asked.add_test_iter(2);
            asked.set_test_interval(5);
        }
        solver.reset(caffe::SolverRegistry<float>::CreateSolver(asked));
    }
    caffe::Net<float>* net = infers ? alone.get() : solver->net().get();
    std::vector<float> numbers;
    feed(net, numbers);
    int halves = 2;  // of the items that the net says
#ifndef STOCK
    std::unique_ptr<caffe::SubletPlan<float> > plan, test;
    const auto planning = std::chrono::steady_clock::now();
    if (given.count("plan")) {
        plan.reset(new caffe::SubletPlan<float>(net, options(given)));
        std::fprintf(stderr, "%s; planned in %.2f s, VmHWM %.1f MiB\n", plan->summary().c_str(),
                     seconds(std::chrono::steady_clock::now() - planning), memory_mib("VmHWM:"));
        if (given.count("test")) {
            caffe::SubletOptions shared = options(given);
            shared.share = &plan->arena();
            test.reset(new caffe::SubletPlan<float>(solver->test_nets()[0].get(), shared));
        }
        if (given.count("overlap")) overlap(plan->steps());
    }
#endif
    Hash losses, weights;
    float last = 0;
    std::vector<double> times;
    for (int i = 0; i < iterations; ++i) {
        if (given.count("reshape")) {
            resize(net, 1 + (i + 1) % 3, halves);
            net->Reshape();
            halves = 1 + (i + 1) % 3;
        }
        if (given.count("grow") && i == 2) resize(net, 2, 1);
        // Of the processor: others that run on it do not count.
        const std::clock_t since = std::clock();
        if (infers) {
            if (given.count("from")) {
                net->ForwardFrom(1);
            } else {
                net->Forward();
            }
            if (given.count("backward")) backward(net);
            if (given.count("twice")) backward(net);
        } else {
            solver->Step(1);
        }
        times.push_back(static_cast<double>(std::clock() - since) / CLOCKS_PER_SEC);
        for (caffe::Blob<float>* output : net->output_blobs()) {
            losses.add(output->cpu_data(), output->count() * sizeof(float));
            last = output->cpu_data()[0];
        }
        if (given.count("keep")) {
            const caffe::Blob<float>& blob = *net->blob_by_name(given.at("keep"));
            losses.add(blob.cpu_data(), blob.count() * sizeof(float));
            losses.add(blob.cpu_diff(), blob.count() * sizeof(float));
        }
        for (caffe::Blob<float>* input : net->input_blobs()) {
            if (given.count("backward")) losses.add(input->cpu_diff(), input->count() * sizeof(float));
        }
        if (given.count("grow") && given.count("test")) look(solver->test_nets()[0].get());
    }
    for (caffe::Blob<float>* blob : net->learnable_params()) weights.add(blob->cpu_data(), blob->count() * sizeof(float));
    // Of the first iterations one finds its pages untouched, and one plans anew.
    if (times.size() > 4) times.erase(times.begin(), times.begin() + 4);
    std::sort(times.begin(), times.end());
    std::printf("output %.6f, outputs %016llx, weights %016llx, VmHWM %.1f MiB, median %.4f s", last, losses.value(),
                weights.value(), memory_mib("VmHWM:"), times.empty() ? 0 : times[times.size() / 2]);
#ifndef STOCK
    if (plan) {
        const sublet_network_planned& p = plan->planned();
        const double share = p.run.original_ns ? 100.0 * p.run.recomputed_ns / p.run.original_ns : 0;
        std::printf(", blobs %.1f -> %.1f MiB, load %.1f MiB, %llu layers ran again, said %.1f %%", p.planned_bytes / 1048576.0,
                    p.peak / 1048576.0, p.max_load / 1048576.0, static_cast<unsigned long long>(plan->runs()), share);
    }
#endif
    std::printf("\n");
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    FLAGS_minloglevel = 2;
    google::InitGoogleLogging(argv[0]);
    if (argc < 3) {
        std::fprintf(stderr, "train NET.prototxt ITERATIONS [plan] [limit=MIB] [poison] [overlap] [infer] [test] [iter_size=N] "
                             "[batch=N] [debug] [reshape] [grow] [keep=BLOB] [backward] [twice] "
                             "[from] [numbers]\n");
        return 2;
    }
    Arguments given;
    for (int i = 3; i < argc; ++i) {
        const std::string word = argv[i];
        const size_t equals = word.find('=');
        given[word.substr(0, equals)] = equals == std::string::npos ? "" : word.substr(equals + 1);
    }
    if (given.count("numbers")) {
        write_numbers();
        write_images();
    }
    return run(argv[1], std::atoi(argv[2]), given);
}
