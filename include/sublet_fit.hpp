// sublet for C++11 and later, continued: an iteration is recorded as a trace, fitted into less memory, and the result
// is proved. The functions of sublet.h explain all of it; errors are those of sublet.hpp.
#ifndef SUBLET_FIT_HPP
#define SUBLET_FIT_HPP

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "sublet.hpp"

namespace sublet {

// A recorded iteration.
struct trace {
    std::vector<sublet_row> rows;
    // What is known of the operators: entry k tells of operator k. Of those beyond the end nothing is known.
    std::vector<sublet_operator> operators;
    // Every block number in the rows is below this.
    std::size_t block_count = 0;

    // The struct of sublet.h, with pointers into this one. Without a device it is one over PCIe 3.0.
    sublet_trace view(const sublet_device *device = nullptr) const {
        auto made = params<sublet_trace>();
        made.rows = rows.data();
        made.row_count = rows.size();
        made.operators = operators.data();
        made.operator_count = operators.size();
        made.block_count = block_count;
        made.device = device;
        return made;
    }
};

// Records an iteration as a trace, as it runs. It takes more memory as rows are added. One thread uses it at a time.
class recorder {
  public:
    // `row_capacity` is how many rows there is room for at first.
    explicit recorder(std::size_t row_capacity = 1024) : capacity_(row_capacity) {
        sublet_error error;
        sublet_layout layout;
        check(sublet_recorder_workspace(capacity_, &layout, &error), error);
        workspace_ = detail::workspace(layout);
        check(sublet_recorder_create(capacity_, workspace_.get(), layout.size, &handle_, &error), error);
    }
    recorder(recorder &&other) noexcept
        : workspace_(std::move(other.workspace_)), handle_(other.handle_), capacity_(other.capacity_) {
        other.handle_ = nullptr;
    }
    recorder &operator=(recorder &&other) noexcept {
        std::swap(workspace_, other.workspace_);
        std::swap(handle_, other.handle_);
        std::swap(capacity_, other.capacity_);
        return *this;
    }

    // Records that a block is allocated; returns its number, which the other calls name it by.
    std::uint32_t allocated(std::uint64_t time_ns, std::uint64_t bytes) {
        std::uint32_t block = 0;
        record([&](sublet_error *error) { return sublet_recorder_malloc(handle_, time_ns, bytes, &block, error); });
        return block;
    }
    void freed(std::uint64_t time_ns, std::uint32_t block) {
        record([&](sublet_error *error) { return sublet_recorder_free(handle_, time_ns, block, error); });
    }
    // Record that the operator that has begun reads or writes a block.
    void reads(std::uint64_t time_ns, std::uint32_t block) {
        record([&](sublet_error *error) { return sublet_recorder_read(handle_, time_ns, block, error); });
    }
    void writes(std::uint64_t time_ns, std::uint32_t block) {
        record([&](sublet_error *error) { return sublet_recorder_write(handle_, time_ns, block, error); });
    }
    // Operators are numbered from 0, in the order in which they begin. One that begins ends the one before.
    void begin_op() {
        record([&](sublet_error *error) { return sublet_recorder_begin_op(handle_, error); });
    }
    void end_op() {
        record([&](sublet_error *error) { return sublet_recorder_end_op(handle_, error); });
    }
    // Blocks that are allocated between these two are left out. Interruptions nest.
    void interrupt() {
        record([&](sublet_error *error) { return sublet_recorder_interrupt(handle_, error); });
    }
    void resume() {
        record([&](sublet_error *error) { return sublet_recorder_resume(handle_, error); });
    }

    // What was recorded so far; nothing is known of its operators.
    trace recorded() const {
        trace made;
        sublet_error error;
        std::size_t rows = 0;
        check(sublet_recorder_rows(handle_, nullptr, 0, &rows, &made.block_count, &error), error);
        made.rows.resize(rows);
        check(sublet_recorder_rows(handle_, made.rows.data(), rows, nullptr, nullptr, &error), error);
        return made;
    }
    sublet_recorder *handle() const noexcept { return handle_; }

  private:
    // Makes a call; once more, with room for twice as many rows, if there was none for another.
    template <class Call>
    void record(Call call) {
        sublet_error error;
        sublet_status status = call(&error);
        if (status == SUBLET_STATUS_RECORD_FULL) {
            grow(capacity_ < 8 ? 16 : 2 * capacity_);
            status = call(&error);
        }
        check(status, error);
    }
    void grow(std::size_t capacity) {
        sublet_error error;
        sublet_layout layout;
        check(sublet_recorder_workspace(capacity, &layout, &error), error);
        auto larger = detail::workspace(layout);
        check(sublet_recorder_hand_over(handle_, capacity, larger.get(), layout.size, &handle_, &error), error);
        workspace_ = std::move(larger);
        capacity_ = capacity;
    }

    // The recorder lives in it.
    std::unique_ptr<std::uint64_t[]> workspace_;
    sublet_recorder *handle_ = nullptr;
    std::size_t capacity_;
};

// The residencies of a trace, one for each malloc row, in the order of these rows.
struct residencies {
    // Each as a block with this lifetime, for `place`.
    std::vector<sublet_block> blocks;
    // Whose each one is.
    std::vector<sublet_residency> names;
};

inline residencies lifetimes(const trace &recorded) {
    const auto told = recorded.view();
    sublet_error error;
    sublet_layout layout;
    std::size_t count = 0;
    check(sublet_residencies(told.rows, told.row_count, &count, &error), error);
    check(sublet_lifetimes_workspace(&told, count, &layout, &error), error);
    auto workspace = detail::workspace(layout);
    residencies found;
    found.blocks.resize(count);
    found.names.resize(count);
    check(sublet_lifetimes(&told, workspace.get(), layout.size, found.blocks.data(), found.names.data(), count, &count,
                           &error),
          error);
    return found;
}

// A trace that was rewritten to run in less memory, with an offset for each malloc row: a schedule, proved.
struct fitted {
    std::vector<sublet_row> rows;
    // When each row happens in the simulation.
    std::vector<sublet_timing> timings;
    // Of each residency: its offset, its lifetime, and whose it is.
    std::vector<std::uint64_t> offsets;
    std::vector<sublet_block> blocks;
    std::vector<sublet_residency> names;
    // The peak, the simulated time and what else sublet_fit tells.
    sublet_fitted found;
};

// Rewrites a trace so that all its blocks fit into `limit` bytes. If they do not, the error of SUBLET_STATUS_OVER_LIMIT
// has in `needed` the least bytes for which a schedule was found, and that of SUBLET_STATUS_IMPOSSIBLE_LIMIT bytes that
// every schedule needs.
inline fitted fit(const trace &recorded, std::uint64_t limit,
                  const sublet_fit_params &asked = params<sublet_fit_params>(), const sublet_device *device = nullptr) {
    const auto told = recorded.view(device);
    sublet_error error;
    sublet_layout layout;
    sublet_fit_lengths lengths;
    check(sublet_fit_lengths_of(&told, &lengths, &error), error);
    fitted made;
    made.rows.resize(lengths.rows);
    made.timings.resize(lengths.rows);
    made.offsets.resize(lengths.residencies);
    made.blocks.resize(lengths.residencies);
    made.names.resize(lengths.residencies);
    auto output = params<sublet_fit_output>();
    output.rows = made.rows.data();
    output.timings = made.timings.data();
    output.row_capacity = lengths.rows;
    output.offsets = made.offsets.data();
    output.blocks = made.blocks.data();
    output.names = made.names.data();
    output.residency_capacity = lengths.residencies;
    made.found = params<sublet_fitted>();
    check(sublet_fit_workspace(&told, &output, &layout, &error), error);
    auto workspace = detail::workspace(layout);
    check(sublet_fit(&told, limit, &asked, workspace.get(), layout.size, &output, &made.found, &error), error);
    made.rows.resize(made.found.row_count);
    made.timings.resize(made.found.row_count);
    made.offsets.resize(made.found.residency_count);
    made.blocks.resize(made.found.residency_count);
    made.names.resize(made.found.residency_count);
    return made;
}

// Proves that a schedule, its rows and an offset for each malloc row, computes what the trace computes, and that the
// offsets are a valid plan; throws an error with the row or the constraint that is broken.
inline sublet_verified verify_schedule(const trace &recorded, const std::vector<sublet_row> &rows,
                                       const std::vector<std::uint64_t> &offsets,
                                       const sublet_schedule_params &asked = params<sublet_schedule_params>(),
                                       const sublet_device *device = nullptr) {
    const auto told = recorded.view(device);
    auto schedule = params<sublet_schedule>();
    schedule.rows = rows.data();
    schedule.row_count = rows.size();
    schedule.offsets = offsets.data();
    schedule.residency_count = offsets.size();
    sublet_error error;
    sublet_layout layout;
    check(sublet_verify_schedule_workspace(&told, &schedule, &layout, &error), error);
    auto workspace = detail::workspace(layout);
    auto verified = params<sublet_verified>();
    check(sublet_verify_schedule(&told, &schedule, &asked, workspace.get(), layout.size, nullptr, &verified, &error),
          error);
    return verified;
}

}  // namespace sublet

#endif  // SUBLET_FIT_HPP
