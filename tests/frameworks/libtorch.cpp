// Trains a small residual network in libtorch, first with libtorch's own memory and then with sublet's, and compares:
// the losses have to be the same, bit for bit. Half way the batch becomes larger.
//
//   libtorch marked|detected
//
// "marked" tells sublet where an iteration begins and ends, "detected" lets it find that out. Prints one figure a
// line, `name value`; exits with 1 if a loss differs.

#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <torch/torch.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "requests.hpp"
#include "sublet.hpp"

namespace {

constexpr int iterations = 50;
constexpr int batch_changes_at = 25;

struct ResidualBlockImpl : torch::nn::Module {
    explicit ResidualBlockImpl(int64_t channels)
        : first(torch::nn::Conv2dOptions(channels, channels, 3).padding(1).bias(false)),
          second(torch::nn::Conv2dOptions(channels, channels, 3).padding(1).bias(false)),
          first_norm(channels),
          second_norm(channels) {
        register_module("first", first);
        register_module("second", second);
        register_module("first_norm", first_norm);
        register_module("second_norm", second_norm);
    }

    torch::Tensor forward(const torch::Tensor &x) {
        const auto y = torch::relu(first_norm(first(x)));
        return torch::relu(x + second_norm(second(y)));
    }

    torch::nn::Conv2d first, second;
    torch::nn::BatchNorm2d first_norm, second_norm;
};
TORCH_MODULE(ResidualBlock);

struct NetworkImpl : torch::nn::Module {
    NetworkImpl() {
        register_module("stem", stem);
        register_module("blocks", blocks);
        register_module("head", head);
        for (int i = 0; i < 4; ++i) {
            blocks->push_back(ResidualBlock(16));
        }
    }

    torch::Tensor forward(const torch::Tensor &x) {
        return head(blocks->forward(torch::relu(stem(x))).mean({2, 3}));
    }

    torch::nn::Conv2d stem{torch::nn::Conv2dOptions(3, 16, 3).padding(1)};
    torch::nn::Sequential blocks;
    torch::nn::Linear head{16, 10};
};
TORCH_MODULE(Network);

// Where memory comes from: libtorch's own functions, or sublet.
struct Own {
    static void *take(std::size_t bytes) { return c10::alloc_cpu(bytes); }
    static void give(void *pointer) { c10::free_cpu(pointer); }
};
struct Planned {
    static void *take(std::size_t bytes) { return allocator->allocate(bytes); }
    static void give(void *pointer) { allocator->deallocate(pointer); }
    static sublet::allocator *allocator;
};
sublet::allocator *Planned::allocator = nullptr;

// libtorch's view of one of these, which counts what is asked of it.
template <class Source>
class Watched final : public c10::Allocator {
  public:
    c10::DataPtr allocate(std::size_t bytes) const override {
        void *pointer = bytes == 0 ? nullptr : Source::take(bytes);
        if (pointer != nullptr) {
            requests.taken(pointer, bytes);
        }
        // oneDNN asks that data and context are the same.
        return {pointer, pointer, &give, c10::Device(c10::DeviceType::CPU)};
    }
    c10::DeleterFnPtr raw_deleter() const override { return &give; }

    static Requests requests;

  private:
    static void give(void *pointer) {
        if (pointer != nullptr) {
            requests.given(pointer);
            Source::give(pointer);
        }
    }
};
template <class Source>
Requests Watched<Source>::requests;

// The loss of every iteration. `begin` and `end` are called around each.
template <class Begin, class End>
std::vector<float> train(const Begin &begin, const End &end) {
    torch::manual_seed(1);
    Network network;
    torch::optim::SGD optimizer(network->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
    std::vector<float> losses;
    for (int i = 0; i < iterations; ++i) {
        begin(i);
        {
            const int64_t batch = i < batch_changes_at ? 8 : 12;
            const auto images = torch::randn({batch, 3, 32, 32});
            const auto labels = torch::randint(10, {batch}, torch::kLong);
            optimizer.zero_grad();
            auto loss = torch::cross_entropy_loss(network(images), labels);
            loss.backward();
            optimizer.step();
            losses.push_back(loss.item<float>());
        }
        end(i);
    }
    return losses;
}

}  // namespace

int main(int count, char **words) {
    const bool marked = count > 1 && std::strcmp(words[1], "marked") == 0;
    torch::set_num_threads(1);
    const auto nothing = [](int) {};

    static Watched<Own> own;
    c10::SetCPUAllocator(&own, 1);
    const auto expected = train(nothing, nothing);
    print("framework_peak_bytes", static_cast<double>(own.requests.peak()));

    auto asked = sublet::params<sublet_allocator_params>();
    asked.capacity = std::uint64_t{1} << 30;
    asked.alignment = 64;
    sublet::allocator planned(asked);
    Planned::allocator = &planned;
    static Watched<Planned> watched;
    c10::SetCPUAllocator(&watched, 2);
    // Hits and misses at the ends of iterations, the last before the batch changes and the very last.
    sublet_statistics after_two{}, before_change{}, two_after_change{}, last{};
    const auto begin = [&](int) {
        watched.requests.restart();
        if (marked) {
            planned.iteration_begin();
        }
    };
    std::size_t max_load = 0;
    const auto end = [&](int i) {
        if (marked) {
            planned.iteration_end();
        }
        max_load = std::max(max_load, watched.requests.max_load());
        const auto now = planned.statistics();
        if (i == 1) after_two = now;
        if (i == batch_changes_at - 1) before_change = now;
        if (i == batch_changes_at + 1) two_after_change = now;
        last = now;
    };
    const auto losses = train(begin, end);

    int different = 0;
    for (int i = 0; i < iterations; ++i) {
        different += std::memcmp(&losses[i], &expected[i], sizeof(float)) != 0;
    }
    const auto share = [](const sublet_statistics &from, const sublet_statistics &to) {
        const double hits = static_cast<double>(to.hits - from.hits);
        const double misses = static_cast<double>(to.misses - from.misses);
        return hits + misses == 0 ? 0 : hits / (hits + misses);
    };
    print("losses_that_differ", different);
    print("last_loss", losses.back());
    print("hits_from_third_iteration", share(after_two, before_change));
    print("hits_from_third_after_change", share(two_after_change, last));
    print("plans", static_cast<double>(last.plans));
    print("arena_bytes", static_cast<double>(last.arena_peak));
    print("max_load_bytes", static_cast<double>(max_load));
    print("footprint_bytes", static_cast<double>(last.footprint));
    print("fallback_peak_bytes", static_cast<double>(last.fallback_peak));

    // One iteration's requests, asked again of both.
    auto fresh = sublet::allocator(asked);
    const auto none = [] {};
    print("framework_ns", watched.requests.nanoseconds(&Own::take, &Own::give, none, none));
    print("sublet_ns", watched.requests.nanoseconds([&](std::size_t n) { return fresh.allocate(n); },
                                                    [&](void *p) { fresh.deallocate(p); },
                                                    [&] { fresh.iteration_begin(); }, [&] { fresh.iteration_end(); }));
    std::fflush(stdout);
    // What the library still holds goes back to an allocator that is about to go away.
    std::_Exit(different != 0);
}
