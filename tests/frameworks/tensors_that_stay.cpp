// A network of libtorch's operators over tensors that stay, in memory that the program lends by from_blob: each has its own,
// or all have what sublet_network plans.
//
//     tensors_that_stay stock | plan [LIMIT_MIB [overlap]]
//
// With a plan every tensor begins as NaN. `overlap` has two share memory behind the proof's back.
#include <sys/mman.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include <sublet.hpp>
#include <torch/torch.h>

namespace {

const std::int64_t kBatch = 4096, kWidth = 128;
const int kLayers = 16, kIterations = 4;

double mib(const char *field) {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);) {
        if (line.compare(0, std::strlen(field), field) == 0) return std::atof(line.c_str() + std::strlen(field)) / 1024;
    }
    return 0;
}

char *pages(std::size_t size) {
    void *made = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (made == MAP_FAILED) std::abort();
    return static_cast<char *>(made);
}

// Tensors by their numbers, each bound to an address; operators as functions of them.
class Network {
  public:
    struct Use {
        std::uint32_t tensor;
        sublet_use how;
    };

    std::uint32_t tensor(std::vector<std::int64_t> shape, std::uint32_t flags = 0) {
        std::size_t bytes = sizeof(float);
        for (auto n : shape) bytes *= static_cast<std::size_t>(n);
        const auto number = told_.memory(bytes, flags);
        tensors_.push_back({std::move(shape), pages(bytes), bytes});
        return number;
    }
    void op(std::vector<Use> uses, std::function<void()> run, std::uint32_t flags = 0) {
        told_.op(1000, flags);
        for (const Use &use : uses) told_.use(use.tensor, use.how);
        operators_.push_back(std::move(run));
    }
    torch::Tensor at(std::uint32_t tensor) {
        const Tensor &t = tensors_[tensor];
        return torch::from_blob(t.address, t.shape);
    }
    sublet::network &told() { return told_; }
    void plan(std::uint64_t limit) {
        sublet_error error;
        if (told_.plan(limit, &error) != SUBLET_STATUS_OK) {
            std::fprintf(stderr, "%s\n", sublet::to_string(error).c_str());
            std::exit(1);
        }
        arena_ = pages(told_.planned().peak);
    }
    void run() {
        told_.restart();
        for (std::uint32_t op = 0; op < operators_.size(); ++op) {
            while (const sublet_step *step = told_.next(op)) {
                if (step->action == SUBLET_ACTION_BIND) {
                    tensors_[step->subject].address = arena_ + step->offset;
                    std::memset(arena_ + step->offset, 0xff, tensors_[step->subject].bytes);
                } else {
                    operators_[step->subject]();
                    ++again_;
                }
            }
            operators_[op]();
        }
    }
    int again() const { return again_; }

  private:
    struct Tensor {
        std::vector<std::int64_t> shape;
        char *address;
        std::size_t bytes;
    };
    std::vector<Tensor> tensors_;
    std::vector<std::function<void()>> operators_;
    sublet::network told_;
    char *arena_ = nullptr;
    int again_ = 0;
};

// Layers of a product and a rectifier, forwards and backwards; the loss is half the mean of the outputs' squares.
struct Model {
    Network net;
    std::vector<std::uint32_t> weights;
    float loss = 0;

    Model() {
        const auto read = [](std::uint32_t t) { return Network::Use{t, SUBLET_USE_READ}; };
        const auto write = [](std::uint32_t t) { return Network::Use{t, SUBLET_USE_OVERWRITE}; };
        const auto of_batch = [this] { return net.tensor({kBatch, kWidth}); };
        Network &n = net;
        std::vector<std::uint32_t> outputs = {of_batch()}, gradients;
        const auto data = outputs[0];
        n.op({write(data)}, [=, &n] { n.at(data).normal_(); }, SUBLET_OPERATOR_ONCE);
        for (int i = 0; i < kLayers; ++i) {
            const auto weight = n.tensor({kWidth, kWidth}, SUBLET_MEMORY_KEEP), product = of_batch(), output = of_batch();
            gradients.push_back(n.tensor({kWidth, kWidth}, SUBLET_MEMORY_KEEP));
            const auto input = outputs.back();
            auto made = n.at(weight);
            made.normal_(0, 0.12);
            n.op({read(input), read(weight), write(product)}, [=, &n] {
                auto out = n.at(product);
                torch::mm_out(out, n.at(input), n.at(weight));
            });
            n.op({read(product), write(output)}, [=, &n] {
                auto out = n.at(output);
                torch::clamp_min_out(out, n.at(product), 0);
            });
            weights.push_back(weight);
            outputs.push_back(output);
        }
        auto above = of_batch();
        const auto last = outputs.back();
        n.op({read(last), write(above)}, [=, &n] {
            auto out = n.at(above);
            torch::mul_out(out, n.at(last), torch::tensor(1.0f / kBatch));
            loss = 0.5f * n.at(last).square().sum().item<float>() / kBatch;
        }, SUBLET_OPERATOR_ONCE);
        for (int i = kLayers - 1; i >= 0; --i) {
            const auto output = outputs[static_cast<std::size_t>(i) + 1], input = outputs[static_cast<std::size_t>(i)];
            const auto weight = weights[static_cast<std::size_t>(i)], gradient = gradients[static_cast<std::size_t>(i)];
            const auto product = of_batch(), below = of_batch(), from = above;
            n.op({read(from), read(output), write(product)}, [=, &n] {
                auto out = n.at(product);
                at::threshold_backward_out(out, n.at(from), n.at(output), 0);
            });
            n.op({read(input), read(product), {gradient, SUBLET_USE_WRITE}}, [=, &n] {
                auto out = n.at(gradient);
                torch::mm_out(out, n.at(input).t(), n.at(product));
            });
            n.op({read(product), read(weight), write(below)}, [=, &n] {
                auto out = n.at(below);
                torch::mm_out(out, n.at(product), n.at(weight).t());
            });
            n.op({read(gradient), {weight, SUBLET_USE_WRITE}}, [=, &n] { n.at(weight).sub_(n.at(gradient), 0.001); });
            above = below;
        }
    }
};

void add(std::uint64_t &hash, const void *data, std::size_t size) {
    for (std::size_t i = 0; i < size; ++i) hash = (hash ^ static_cast<const unsigned char *>(data)[i]) * 1099511628211ull;
}

}  // namespace

int main(int argc, char **argv) {
    torch::NoGradGuard no_gradients;
    torch::manual_seed(7);
    torch::set_num_threads(1);
    // What libtorch itself takes, with its products' own memory.
    torch::mm(torch::ones({kBatch, kWidth}), torch::ones({kWidth, kWidth}));
    const double before = mib("VmRSS:");
    Model model;
    const bool planned = argc > 1 && std::strcmp(argv[1], "plan") == 0;
    if (planned) model.net.plan(argc > 2 ? static_cast<std::uint64_t>(std::atoi(argv[2])) << 20 : 0);
    if (argc > 3) {
        auto &steps = model.net.told().steps();
        steps[1].offset = steps[0].offset;
    }
    std::uint64_t losses = 14695981039346656037ull, weights = losses;
    for (int i = 0; i < kIterations; ++i) {
        model.net.run();
        add(losses, &model.loss, sizeof model.loss);
    }
    for (auto weight : model.weights) {
        const auto values = model.net.at(weight);
        add(weights, values.data_ptr<float>(), static_cast<std::size_t>(values.numel()) * sizeof(float));
    }
    // 52 bits, so that a reader of numbers loses none.
    std::printf("losses_hash %llu\nweights_hash %llu\n", static_cast<unsigned long long>(losses >> 12),
                static_cast<unsigned long long>(weights >> 12));
    std::printf("loss %.6f\noperators_again %d\n", model.loss, model.net.again());
    std::printf("process_mib %.1f\ntaken_mib %.1f\n", mib("VmHWM:"), mib("VmHWM:") - before);
    if (planned) {
        const auto &plan = model.net.told().planned();
        std::printf("tensors_mib %.1f\narena_mib %.1f\nmax_load_mib %.1f\n", static_cast<double>(plan.planned_bytes) / 1048576,
                    static_cast<double>(plan.peak) / 1048576, static_cast<double>(plan.max_load) / 1048576);
    }
    return 0;
}
