// The C++ layer in an old framework: C++11, without exceptions or run-time types, where malloc and free are macros.
#include <cstdio>
#include <cstdlib>
#include <utility>

#define malloc(bytes) this_is_no_method(bytes)
#define free(pointer) nor_is_this(pointer)
#include <sublet_fit.hpp>

#define CHECK(condition)                                                          \
    do {                                                                          \
        if (!(condition)) {                                                       \
            std::fprintf(stderr, "%d: not so: %s\n", __LINE__, #condition);      \
            return 1;                                                             \
        }                                                                         \
    } while (0)

int main() {
    auto asked = sublet::params<sublet_allocator_params>();
    asked.capacity = 1 << 16;
    asked.events = 64;
    asked.live = 16;
    sublet::allocator first(asked);
    sublet::allocator owner(std::move(first));
    CHECK(first.handle() == nullptr && first.try_allocate(1) == nullptr);
    owner.trace_begin();
    for (int i = 0; i < 3; ++i) {
        sublet::iteration scope(owner);
        void *a = owner.allocate(1000), *b = owner.try_allocate(2000);
        CHECK(owner.owns(a) && !owner.owns(&a) && owner.usable_size(a) == 1024 && owner.usable_size(&a) == 0);
        a = owner.reallocate(a, 1010);
        owner.deallocate(a);
        CHECK(owner.try_deallocate(b) && !owner.try_deallocate(b));
    }
    owner.trace_end();
    CHECK(owner.statistics().hits == 4 && owner.export_trace().size() > 100);
    const std::string plan = owner.export_plan();
    owner.forget();
    owner.adopt(plan);
    owner.trim();
    owner.reset_peaks();
    CHECK(owner.statistics().plans == 2 && owner.statistics().live_blocks == 0);
    CHECK(owner.try_allocate(1 << 20) == nullptr && owner.try_allocate(16, 4096) != nullptr);
    const std::vector<sublet_block> blocks(2, sublet_block{0, 1, 64, 0, 0, 0});
    CHECK(sublet::place(blocks).peak == 128);
    sublet::recorder recorder;
    recorder.begin_op();
    recorder.writes(1, recorder.allocated(0, 4096));
    const sublet::trace recorded = recorder.recorded();
    const sublet::fitted fitted = sublet::fit(recorded, 4096);
    CHECK(sublet::verify_schedule(recorded, fitted.rows, fitted.offsets).peak == 4096);
    CHECK(sublet::place(sublet::lifetimes(recorded).blocks).peak == 4096);
    const std::vector<sublet_bank> banks(1, sublet_bank{128, 3, 0});
    CHECK(sublet::place_banks(blocks, banks, std::vector<sublet_bank_use>(2, sublet_bank_use{64, 0})).cost == 384);
    std::puts("all checks passed");
    return 0;
}
