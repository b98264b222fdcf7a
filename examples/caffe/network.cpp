// Eight layers whose blobs come and go in every iteration: from the second on, memory is a look-up in the plan.

#include <cstdio>
#include <memory>

#include "stub.hpp"

namespace {

// What an iteration asks for: the data and the gradient of each layer.
void iteration() {
    std::unique_ptr<caffe::SyncedMemory> data[8], gradient[8];
    for (int layer = 0; layer < 8; ++layer) {
        data[layer] = std::make_unique<caffe::SyncedMemory>(1000U << layer);
        std::memset(data[layer]->mutable_cpu_data(), layer, 1000U << layer);
    }
    for (int layer = 7; layer >= 0; --layer) {
        gradient[layer] = std::make_unique<caffe::SyncedMemory>(1000U << layer);
        std::memset(gradient[layer]->mutable_cpu_data(), layer, 1000U << layer);
        data[layer].reset();
    }
}

}  // namespace

int main() {
    sublet_statistics before{}, after{};
    for (int i = 0; i < 5; ++i) {
        before = caffe::SubletAllocator().statistics();
        caffe::SubletIteration one;
        iteration();
        after = caffe::SubletAllocator().statistics();
    }
    std::printf("arena %llu bytes\n", static_cast<unsigned long long>(after.arena_peak));
    std::printf("%llu of 16 requests of the last iteration were not in the plan\n",
                static_cast<unsigned long long>(16 - (after.hits - before.hits)));
}
