// The same headers in C++17: handles as owners, a kernel that captures.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include <sublet.hpp>
#include <sublet_relu.h>
#include <sublet_runtime.h>
#include <sublet_torch.h>

#include "../condition.h"

template <auto destroy>
struct destroyer {
    template <class Handle>
    void operator()(Handle *handle) const {
        destroy(handle);
    }
};
using runtime = std::unique_ptr<sublet_runtime, destroyer<sublet_runtime_destroy>>;
using arena = std::unique_ptr<sublet_arena, destroyer<sublet_arena_destroy>>;

static void called(void *data) {
    std::unique_ptr<std::function<void()>> work(static_cast<std::function<void()> *>(data));
    (*work)();
}

static sublet_row row(sublet_event event, sublet_op_kind kind, std::uint64_t bytes = 0) {
    sublet_row made{};
    made.event = event;
    made.op_kind = kind;
    made.bytes = bytes;
    return made;
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    sublet_error error;
    auto params = sublet::params<sublet_runtime_params>();
    params.on_host = std::strcmp(arguments[1], "none") == 0;
    params.memory = 1 << 20;
    constexpr std::size_t floats = 1024;
    const std::vector<sublet_row> rows = {
        row(SUBLET_EVENT_MALLOC, SUBLET_OP_KIND_NONE, floats * sizeof(float)),
        row(SUBLET_EVENT_READ, SUBLET_OP_KIND_FIRST),
        row(SUBLET_EVENT_WRITE, SUBLET_OP_KIND_FIRST),
    };
    const std::vector<std::uint64_t> offsets = {0};
    sublet_runtime *made = nullptr;
    auto trace = sublet::params<sublet_trace>();
    trace.rows = rows.data();
    trace.row_count = rows.size();
    trace.block_count = 1;
    auto schedule = sublet::params<sublet_schedule>();
    schedule.rows = rows.data();
    schedule.row_count = rows.size();
    schedule.offsets = offsets.data();
    schedule.residency_count = offsets.size();
    sublet::check(sublet_runtime_create(&trace, &schedule, &params, &made, &error), error);
    runtime owner(made);
    std::vector<float> weight(floats, -1.0f), y(floats);
    const auto bytes = [](std::vector<float> &v) { return reinterpret_cast<std::uint8_t *>(v.data()); };
    sublet::check(sublet_runtime_write(made, 0, bytes(weight), floats * sizeof(float), &error), error);
    for (int iteration = 0; iteration < 3; ++iteration) {
        auto launch = sublet::params<sublet_launch>();
        sublet::check(sublet_runtime_next(made, &launch, &error), error);
        auto *at = reinterpret_cast<float *>(static_cast<std::uintptr_t>(launch.operands[0].address));
        auto work = std::make_unique<std::function<void()>>([at] {
            for (std::size_t i = 0; i < floats; ++i) {
                at[i] += static_cast<float>(i % 2);
            }
        });
        sublet::check(sublet_runtime_call(made, called, work.get(), &error), error);
        work.release();
        sublet::check(sublet_runtime_next(made, &launch, &error), error);
        CHECK(launch.ended == 1);
    }
    sublet::check(sublet_runtime_read(made, 0, bytes(weight), floats * sizeof(float), &error), error);
    CHECK(weight[0] == -1.0f && weight[1] == 2.0f);

    std::vector<std::uint32_t> mask(sublet_relu_mask_words(floats));
    sublet::check(sublet_relu_forward(weight.data(), floats, nullptr, y.data(), mask.data(), mask.size(), &error), error);
    CHECK(y[0] == 0.0f && y[1] == 2.0f && mask[0] == 0xaaaaaaaau);
    auto leaky = sublet::params<sublet_relu_params>();
    leaky.leaky = 1;
    leaky.slope = 0.5f;
    sublet::check(sublet_relu_backward(y.data(), floats, mask.data(), mask.size(), &leaky, y.data(), &error), error);
    CHECK(y[1] == 2.0f);

    try {
        sublet::check(sublet_runtime_write(made, 1, bytes(weight), 4, &error), error);
        CHECK(false);
    } catch (const sublet::exception &refused) {
        CHECK(refused.status() == SUBLET_STATUS_NOT_PERSISTENT);
        CHECK(std::strcmp(refused.what(), "block 1 has no content of 4 bytes that outlives an iteration") == 0);
    }
    sublet_arena *grown = nullptr;
    sublet::check(sublet_arena_create(4096, 1 << 16, &params, &grown, &error), error);
    arena second(grown);
    sublet::check(sublet_arena_grow(grown, 1 << 16, &error), error);
    CHECK(sublet_arena_grow(grown, (1 << 16) + 1, &error) == SUBLET_STATUS_CANNOT_GROW);
    std::puts("all checks passed");
    return 0;
}
