// The C++ layer: ownership, exceptions, guards, and containers over a memory resource.
#include <sublet.hpp>

#include <cstdio>
#include <list>
#include <string>
#include <thread>
#include <type_traits>

#include "condition.h"
#include "throws.hpp"

void test_fit();

static sublet_block block(std::uint32_t start, std::uint32_t end, std::uint64_t size) {
    sublet_block made{};
    made.start = start;
    made.end = end;
    made.size = size;
    return made;
}

static void plans() {
    const std::vector<sublet_block> blocks = {block(0, 2, 4096), block(1, 3, 8192), block(2, 4, 4096)};
    const auto plan = sublet::place(blocks);
    CHECK(plan.peak == 12288 && plan.max_load == 12288 && plan.offsets.size() == 3);
    CHECK(sublet::verify(blocks, plan.offsets).peak == plan.peak);
    CHECK(sublet::place({}).peak == 0);

    auto asked = sublet::params<sublet_place_params>();
    asked.capacity = 12287;
    throws(SUBLET_STATUS_NO_PLAN_FITS, "no plan fits within 12287 bytes", [&] { sublet::place(blocks, asked); });
    throws(SUBLET_STATUS_PLAN_OVERLAP, "blocks 0 and 1 are both alive", [&] { sublet::verify(blocks, {0, 1, 9000}); });
    throws(SUBLET_STATUS_BUFFER_TOO_SMALL, "3 are needed", [&] { sublet::verify(blocks, {0, 1}); });
    throws(SUBLET_STATUS_ZERO_SIZE, "block 1 has size 0", [&] { sublet::place({blocks[0], block(0, 1, 0)}); });
}

// Two blocks that are alive together, and a fast bank that holds one: the one that is touched most lies there.
static void banks() {
    const std::vector<sublet_block> blocks = {block(0, 2, 8), block(1, 3, 8)};
    const std::vector<sublet_bank> fast_and_slow = {{8, 1, 0}, {64, 4, 16}};
    const auto plan = sublet::place_banks(blocks, fast_and_slow, {{10, 0}, {100, 0}});
    CHECK(plan.cost == 140 && plan.lower_bound == 140 && plan.spots.size() == 2);
    CHECK(plan.spots[0].bank == 1 && plan.spots[1].bank == 0 && plan.spots[1].offset == 0);
    CHECK(sublet::place_banks({}, fast_and_slow, {}).cost == 0);
    throws(SUBLET_STATUS_NO_BANK_FITS, "block 1", [&] { sublet::place_banks(blocks, fast_and_slow, {{10, 0}, {100, 4}}); });
    throws(SUBLET_STATUS_BUFFER_TOO_SMALL, "2 are needed",
           [&] { sublet::place_banks(blocks, fast_and_slow, {{10, 0}}); });
}

// Two activations that are never needed together, described as the hooks of a framework would do it.
static void networks() {
    sublet::network network;
    const auto parameter = network.memory(64, SUBLET_MEMORY_KEEP);
    const auto data = network.memory(4096), first = network.memory(8192), second = network.memory(1);
    CHECK(network.op(10, SUBLET_OPERATOR_ONCE) == 0);
    network.use(data, SUBLET_USE_WRITE);
    CHECK(network.op(10) == 1);
    network.use(data, SUBLET_USE_READ);
    network.use(parameter, SUBLET_USE_READ);
    network.use(first, SUBLET_USE_WRITE);
    network.op(10);
    network.use(first, SUBLET_USE_READ);
    network.use(second, SUBLET_USE_WRITE);
    network.at(second).bytes = 4096;
    network.at_op(2).time_ns = 20;
    sublet_error error;
    CHECK(network.plan(0, &error) == SUBLET_STATUS_OK);
    CHECK(network.planned().peak == 12288 && network.planned().planned_bytes == 16384 && network.planned().run.original_ns == 40);
    for (int iteration = 0; iteration < 2; ++iteration) {
        network.restart();
        CHECK(network.next(0)->subject == data && network.next(0) == nullptr);
        CHECK(network.next(1)->subject == first && network.next(1) == nullptr);
        const sublet_step *last = network.next(2);
        CHECK(last != nullptr && last->subject == second && last->action == SUBLET_ACTION_BIND);
        CHECK(network.next(2) == nullptr);
    }
    CHECK(network.plan(100, &error) == SUBLET_STATUS_IMPOSSIBLE_LIMIT && network.steps().size() == 3);
    CHECK(sublet::to_string(error).find("no schedule within 100 bytes") != std::string::npos);
}

static sublet_allocator_params small() {
    auto asked = sublet::params<sublet_allocator_params>();
    asked.capacity = 1 << 16;
    asked.events = 64;
    asked.live = 16;
    return asked;
}

static void allocators() {
    static_assert(!std::is_copy_constructible_v<sublet::allocator>, "one owner");
    static_assert(std::is_nothrow_move_constructible_v<sublet::allocator>, "that can be handed on");
    sublet::allocator first(small());
    void *kept = first.allocate(100);
    sublet::allocator owner(std::move(first));
    CHECK(first.handle() == nullptr);
    owner.deallocate(kept);
    throws(SUBLET_STATUS_NOT_ALLOCATED, "no live block", [&] { owner.deallocate(kept); });
    throws(SUBLET_STATUS_OUT_OF_MEMORY, "no hole for", [&] { owner.allocate(1 << 20); });
    throws(SUBLET_STATUS_NULL_POINTER, "argument 0 is NULL, but must point to memory here", [&] { first.allocate(1); });
    CHECK(owner.try_allocate(1 << 20) == nullptr && !owner.try_deallocate(kept));

    owner.trace_begin();
    for (int i = 0; i < 3; ++i) {
        sublet::iteration scope(owner);
        void *a = owner.allocate(1000);
        {
            sublet::interruption beside(owner);
            {
                sublet::interruption within(owner);
                owner.deallocate(owner.allocate(64));
            }
            owner.deallocate(owner.allocate(64));
        }
        void *b = owner.allocate(2000);
        owner.deallocate(a);
        owner.deallocate(b);
    }
    owner.trace_end();
    const auto done = owner.statistics();
    CHECK(done.state == SUBLET_STATE_REPLAY && done.hits == 4 && done.misses == 0);
    const auto trace = owner.export_trace();
    CHECK(trace.rfind("time_ns,event,block,bytes,op\n", 0) == 0 && trace.back() == '\n');
    CHECK(trace.find(",malloc,0,1000,\n") != std::string::npos && trace.find('\0') == std::string::npos);

    const auto learned = owner.export_plan();
    sublet::allocator fresh(small());
    owner.adopt(fresh.export_plan());
    CHECK(owner.statistics().state == SUBLET_STATE_PROFILE && owner.statistics().plans == done.plans);
    owner.adopt(learned);
    CHECK(owner.statistics().state == SUBLET_STATE_REPLAY && owner.export_plan() == learned);

    const std::vector<sublet_block> blocks = {block(0, 3, 256), block(1, 2, 512)};
    owner.adopt(blocks, {512, 0});
    {
        sublet::iteration scope(owner);
        char *a = static_cast<char *>(owner.allocate(256)), *b = static_cast<char *>(owner.allocate(512));
        CHECK(a - b == 512);
        owner.deallocate(b);
        owner.deallocate(a);
    }
    throws(SUBLET_STATUS_BUFFER_TOO_SMALL, "2 are needed", [&] { owner.adopt(blocks, {0}); });
    auto wrong = small();
    wrong.alignment = 3;
    throws(SUBLET_STATUS_ALIGNMENT, "3 is not a power of two", [&] { sublet::allocator never(wrong); });
    wrong.alignment = std::uint64_t{1} << 40;
    throws(SUBLET_STATUS_FIELD_OUT_OF_RANGE, "at byte 8, is out of range; the nearest possible is 1099511627776",
           [&] { sublet::allocator never(wrong); });
}

// Texts that grow and shrink between the call that asks for their size and the one that writes them.
static void texts_that_change() {
    const std::vector<std::string> texts = {"abc", "abcdefg", "ab"};
    std::size_t call = 0;
    const auto text = sublet::detail::whole_text([&](char *buffer, std::size_t capacity, std::size_t *needed, sublet_error *error) {
        const std::string &now = texts[call < texts.size() ? call : texts.size() - 1];
        ++call;
        *needed = now.size() + 1;
        if (capacity > 0) {
            buffer[now.copy(buffer, capacity - 1)] = '\0';
        }
        const bool cut = capacity > 0 && capacity < *needed;
        *error = {};
        error->status = cut ? SUBLET_STATUS_BUFFER_TOO_SMALL : SUBLET_STATUS_OK;
        return static_cast<sublet_status>(error->status);
    });
    CHECK(text == "ab" && call == 3);

    sublet::allocator owner(small());
    owner.trace_begin();
    std::thread other([&owner] {
        for (int i = 0; i < 3000; ++i) {
            owner.deallocate(owner.allocate(64));
        }
    });
    std::size_t before = 0;
    bool all = false;
    while (!all) {
        const auto trace = owner.export_trace();
        CHECK(trace.size() >= before && trace.back() == '\n' && trace.find('\0') == std::string::npos);
        before = trace.size();
        std::size_t lines = 0;
        for (const char c : trace) {
            lines += c == '\n';
        }
        all = lines == 1 + 2 * 3000;
    }
    other.join();
}

static void containers() {
    sublet::allocator owner(small());
    sublet::memory_resource resource(owner), same(owner);
    CHECK(resource == same);
    for (int i = 0; i < 3; ++i) {
        sublet::iteration scope(owner);
        std::pmr::vector<int> numbers(&resource);
        std::pmr::list<std::pmr::string> words(&resource);
        for (int n = 0; n < 500; ++n) {
            numbers.push_back(n);
        }
        words.emplace_back("longer than what a string holds within itself");
        words.emplace_back(words.front());
        CHECK(numbers[499] == 499 && words.back() == words.front());
    }
    CHECK(owner.statistics().state == SUBLET_STATE_REPLAY && owner.statistics().hits > 20);

    bool refused = false;
    try {
        (void)resource.allocate(1 << 20);
    } catch (const std::bad_alloc &) {
        refused = true;
    }
    CHECK(refused);
    sublet::memory_resource with_upstream(owner, std::pmr::new_delete_resource());
    CHECK(with_upstream != resource);
    for (const std::size_t alignment : {std::size_t{16}, std::size_t{4096}}) {
        void *large = with_upstream.allocate(1 << 20, alignment), *nothing = with_upstream.allocate(0, alignment);
        CHECK(large != nullptr && nothing != nullptr);
        with_upstream.deallocate(nothing, 0, alignment);
        with_upstream.deallocate(large, 1 << 20, alignment);
    }
}

int main() {
    networks();
    plans();
    banks();
    test_fit();
    allocators();
    texts_that_change();
    containers();
    std::puts("all checks passed");
    return 0;
}
