// The C++ layer from a recorded iteration to a schedule that is proved.
#include <sublet_fit.hpp>

#include <type_traits>
#include <utility>

#include "throws.hpp"

static const std::uint64_t MIB = 1 << 20, MS = 1000000;

// An activation that is read again after another has come and gone: 16 MiB are alive at once, and 8 are enough.
static sublet::trace record() {
    static_assert(!std::is_copy_constructible<sublet::recorder>::value, "one owner");
    static_assert(std::is_nothrow_move_constructible<sublet::recorder>::value, "that can be handed on");
    sublet::recorder first(1);
    first.begin_op();
    const auto kept = first.allocated(0, 8 * MIB);
    sublet::recorder recorder(std::move(first));
    throws(SUBLET_STATUS_NULL_POINTER, "argument 0 is NULL", [&] { first.allocated(0, 1); });
    recorder.writes(1 * MS, kept);  // there was room for one row
    recorder.begin_op();
    const auto other = recorder.allocated(1 * MS, 8 * MIB);
    recorder.writes(2 * MS, other);
    recorder.end_op();
    recorder.interrupt();
    CHECK(recorder.allocated(2 * MS, 64) == SUBLET_OUTSIDE);
    recorder.resume();
    recorder.freed(3 * MS, other);
    recorder.begin_op();
    recorder.reads(9 * MS, kept);
    recorder.end_op();
    recorder.freed(9 * MS, kept);
    throws(SUBLET_STATUS_ROW_TIME_BACKWARDS, "row 7", [&] { recorder.reads(8 * MS, kept); });
    throws(SUBLET_STATUS_ROW_UNKNOWN_BLOCK, "row 7", [&] { recorder.freed(9 * MS, 2); });
    first = std::move(recorder);
    return first.recorded();
}

// More rows than there is room for, many times over.
static void recorders_grow() {
    sublet::recorder recorder(0);
    for (std::uint32_t i = 0; i < 5000; ++i) {
        CHECK(recorder.allocated(i, i + 1) == i);
        recorder.freed(i, i);
    }
    const auto recorded = recorder.recorded();
    CHECK(recorded.rows.size() == 10000 && recorded.block_count == 5000 && recorded.rows[9998].bytes == 5000);
    CHECK(sublet::recorder().recorded().rows.empty());
}

static void traces_are_placed(const sublet::trace &recorded) {
    const auto found = sublet::lifetimes(recorded);
    CHECK(found.blocks.size() == 2 && found.names.size() == 2 && found.names[1].block == 1);
    CHECK(found.blocks[0].start == 0 && found.blocks[0].end == 6 && found.blocks[1].size == 8 * MIB);
    CHECK(sublet::place(found.blocks).peak == 16 * MIB);
    CHECK(sublet::lifetimes({}).blocks.empty());
    auto broken = recorded;
    broken.rows[4].block = 0;
    throws(SUBLET_STATUS_ROW_ACCESS_WITHOUT_MALLOC, "row 5", [&] { sublet::lifetimes(broken); });
}

static void traces_are_fitted(const sublet::trace &recorded) {
    // Nothing is known of the operators, so that the block is swapped.
    const auto swapped = sublet::fit(recorded, 8 * MIB);
    CHECK(swapped.found.original_peak == 16 * MIB && swapped.found.peak == 8 * MIB);
    CHECK(swapped.found.run.swapped_bytes == 16 * MIB && swapped.rows.size() == swapped.timings.size());
    CHECK(swapped.offsets.size() == 3 && swapped.blocks.size() == 3 && swapped.names.size() == 3);
    CHECK(swapped.names[2].block == 0 && swapped.names[2].ordinal == 1 && swapped.timings.back().end > 9e6);
    const auto proved = sublet::verify_schedule(recorded, swapped.rows, swapped.offsets);
    CHECK(proved.peak == 8 * MIB && proved.run.time_ns == swapped.found.run.time_ns);

    // It is recomputed if all operators may be, on a device with a slow link too.
    auto known = recorded;
    known.operators.resize(3);
    auto device = sublet::params<sublet_device>();
    device.in_bandwidth = 1e9;
    const auto again = sublet::fit(known, 8 * MIB, sublet::params<sublet_fit_params>(), &device);
    CHECK(again.found.run.swapped_bytes == 0 && again.found.run.time_ns == 9e6);
    auto asked = sublet::params<sublet_fit_params>();
    asked.means = SUBLET_MEANS_SWAP;
    const auto slow = sublet::fit(known, 8 * MIB, asked, &device);
    CHECK(slow.found.run.time_ns > swapped.found.run.time_ns);
    const auto repeats = sublet::params<sublet_schedule_params>();
    const auto timed = sublet::verify_schedule(known, slow.rows, slow.offsets, repeats, &device);
    CHECK(timed.run.time_ns == slow.found.run.time_ns);

    // A limit that is too small: the error has what is needed at once.
    std::uint64_t least = 0;
    throws(SUBLET_STATUS_IMPOSSIBLE_LIMIT, "no schedule within 4194304 bytes", [&] {
        try {
            sublet::fit(recorded, 4 * MIB);
        } catch (const sublet::exception &e) {
            least = e.error().needed;
            throw;
        }
    });
    CHECK(least == 8 * MIB && sublet::fit(recorded, least).found.peak == least);
}

static void what_is_spoiled_is_refused(const sublet::trace &recorded) {
    const auto fitted = sublet::fit(recorded, 12 * MIB);
    const auto whole = sublet::fit(recorded, 16 * MIB);
    auto offsets = whole.offsets;
    CHECK(sublet::verify_schedule(recorded, whole.rows, offsets).peak == 16 * MIB);
    offsets[1] = offsets[0];
    throws(SUBLET_STATUS_PLAN_OVERLAP, "blocks 0 and 1 are both alive",
           [&] { sublet::verify_schedule(recorded, whole.rows, offsets); });
    offsets.pop_back();
    throws(SUBLET_STATUS_BUFFER_TOO_SMALL, "2 are needed",
           [&] { sublet::verify_schedule(recorded, whole.rows, offsets); });
    auto rows = fitted.rows;
    for (auto &row : rows) {
        // What comes back is not what was there.
        if (row.event == SUBLET_EVENT_SWAP_IN) {
            row.event = SUBLET_EVENT_SWAP_OUT;
        }
    }
    throws(SUBLET_STATUS_ROW_OTHER_VALUE, "row", [&] { sublet::verify_schedule(recorded, rows, fitted.offsets); });
    auto asked = sublet::params<sublet_schedule_params>();
    asked.capacity = 8 * MIB;
    throws(SUBLET_STATUS_PLAN_OVER_CAPACITY, "8388608",
           [&] { sublet::verify_schedule(recorded, whole.rows, whole.offsets, asked); });
}

void test_fit() {
    const auto recorded = record();
    CHECK(recorded.rows.size() == 7 && recorded.block_count == 2);
    recorders_grow();
    traces_are_placed(recorded);
    traces_are_fitted(recorded);
    what_is_spoiled_is_refused(recorded);
}
