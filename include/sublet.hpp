// sublet for C++11 and later: classes that own handles, and exceptions, over the functions of sublet.h, which explains
// them; from C++17 on a memory resource too. What records a trace and fits it is in sublet_fit.hpp.
//
// Without exceptions (-fno-exceptions) a failure is printed and ends the program: call the functions try_... there, or
// those of sublet.h. Nothing here needs run-time types (-fno-rtti), and no name here is one that a framework may have
// as a macro.
#ifndef SUBLET_HPP
#define SUBLET_HPP

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "sublet.h"

#if __cplusplus >= 201703L && defined(__has_include)
#if __has_include(<memory_resource>)
#include <memory_resource>
#define SUBLET_HAS_MEMORY_RESOURCE 1
#endif
#endif

namespace sublet {

// An error as a sentence: what std::exception::what() of an `exception` returns.
inline std::string to_string(const sublet_error &error) {
    std::size_t needed = 0;
    (void)sublet_format_error(&error, nullptr, 0, &needed);
    std::string text(needed, '\0');
    (void)sublet_format_error(&error, &text[0], text.size(), nullptr);
    if (!text.empty()) {
        text.pop_back();
    }
    return text;
}

// A call that failed.
class exception : public std::runtime_error {
  public:
    explicit exception(const sublet_error &error) : std::runtime_error(to_string(error)), error_(error) {}
    const sublet_error &error() const noexcept { return error_; }
    sublet_status status() const noexcept { return static_cast<sublet_status>(error_.status); }

  private:
    sublet_error error_;
};

// Throws an error; without exceptions, prints it and ends the program.
[[noreturn]] inline void fail(const sublet_error &error) {
#if defined(__cpp_exceptions) || defined(__EXCEPTIONS) || defined(_CPPUNWIND)
    throw exception(error);
#else
    std::fprintf(stderr, "sublet: %s\n", to_string(error).c_str());
    std::abort();
#endif
}

// Fails with `error` if the call that wrote it has failed.
inline void check(sublet_status status, const sublet_error &error) {
    if (status != SUBLET_STATUS_OK) {
        fail(error);
    }
}

// A C struct with its size set, and 0 in all other fields: parameters at their defaults, or a struct for results.
template <class Struct>
Struct params() noexcept {
    Struct made{};
    made.struct_size = sizeof made;
    return made;
}

namespace detail {

// The workspace of one call: 64-bit words, since it has to be aligned like them. They are not set to zero: memory that
// the call does not use is not touched.
inline std::unique_ptr<std::uint64_t[]> workspace(const sublet_layout &layout) {
    return std::unique_ptr<std::uint64_t[]>(new std::uint64_t[layout.size / sizeof(std::uint64_t)]);
}

// The whole of a text that `write(buffer, capacity, &needed, &error)` writes as sublet_export_plan does. The text may
// become longer or shorter between two calls, as other threads go on.
template <class Write>
std::string whole_text(Write write) {
    std::string text;
    for (;;) {
        sublet_error error;
        std::size_t needed = 0;
        const sublet_status status = write(&text[0], text.size(), &needed, &error);
        if (status != SUBLET_STATUS_BUFFER_TOO_SMALL) {
            check(status, error);
        }
        const bool is_whole = needed <= text.size();
        // Without the zero byte that ends it.
        text.resize(is_whole ? needed - 1 : needed);
        if (is_whole) {
            return text;
        }
    }
}

}  // namespace detail

// A framework that keeps its tensors: what its hooks have seen, and the plan. It throws nothing but std::bad_alloc.
class network {
  public:
    // Adds a memory of `bytes` bytes; returns its number. `flags` are SUBLET_MEMORY_KEEP and SUBLET_MEMORY_SCRATCH,
    // added.
    std::uint32_t memory(std::uint64_t bytes, std::uint32_t flags = 0) {
        memories_.push_back({bytes, flags, 0});
        return static_cast<std::uint32_t>(memories_.size() - 1);
    }
    // Adds the operator that runs next; returns its number. `flags` is 0 or SUBLET_OPERATOR_ONCE.
    std::uint32_t op(std::uint64_t time_ns, std::uint32_t flags = 0) {
        operators_.push_back({time_ns, flags, 0});
        return static_cast<std::uint32_t>(operators_.size() - 1);
    }
    // Notes that the operator that was added last uses a memory.
    void use(std::uint32_t memory, sublet_use how) {
        accesses_.push_back({static_cast<std::uint32_t>(operators_.size() - 1), memory, static_cast<std::uint32_t>(how)});
    }
    // A memory or an operator that was added, to be corrected: sizes of another batch, times that were measured later.
    sublet_memory &at(std::uint32_t memory) { return memories_[memory]; }
    sublet_layer &at_op(std::uint32_t op) { return operators_[op]; }

    // Plans for an arena of at most `limit` bytes; 0 is no limit. On failure the plan before stays.
    sublet_status plan(std::uint64_t limit = 0, sublet_error *error = nullptr) {
        auto asked = params<sublet_network_params>();
        asked.limit = limit;
        return plan(asked, nullptr, error);
    }
    sublet_status plan(const sublet_network_params &asked, const sublet_device *device, sublet_error *error = nullptr) {
        auto told = params<sublet_network>();
        told.memories = memories_.data();
        told.memory_count = memories_.size();
        told.operators = operators_.data();
        told.operator_count = operators_.size();
        told.accesses = accesses_.data();
        told.access_count = accesses_.size();
        told.device = device;
        std::size_t capacity = 0;
        sublet_layout layout;
        sublet_status status = sublet_network_workspace(&told, &asked, &capacity, &layout, error);
        if (status != SUBLET_STATUS_OK) {
            return status;
        }
        auto workspace = detail::workspace(layout);
        std::unique_ptr<sublet_step[]> steps(new sublet_step[capacity]);
        auto planned = params<sublet_network_planned>();
        status = sublet_network_plan(&told, &asked, workspace.get(), layout.size, steps.get(), capacity, &planned, error);
        if (status == SUBLET_STATUS_OK) {
            steps_.assign(steps.get(), steps.get() + planned.step_count);
            planned_ = planned;
            next_ = 0;
        }
        return status;
    }
    // What the last plan comes to, and its steps. The steps may be changed; then nothing proves them.
    const sublet_network_planned &planned() const { return planned_; }
    std::vector<sublet_step> &steps() { return steps_; }

    // Begins an iteration, before its first operator.
    void restart() { next_ = 0; }
    // The next step that is to be done before this operator; nullptr if there is none.
    const sublet_step *next(std::uint32_t op) {
        return next_ < steps_.size() && steps_[next_].before <= op ? &steps_[next_++] : nullptr;
    }

  private:
    std::vector<sublet_memory> memories_;
    std::vector<sublet_layer> operators_;
    std::vector<sublet_access> accesses_;
    std::vector<sublet_step> steps_;
    sublet_network_planned planned_ = {};
    std::size_t next_ = 0;
};

// Offsets for blocks, proved valid.
struct plan {
    std::vector<std::uint64_t> offsets;
    // The bytes that the arena takes.
    std::uint64_t peak;
    // The most bytes that are alive at one step. If the peak equals this, no plan has a lower one.
    std::uint64_t max_load;
};

// Proves that offsets, one for each block, are a valid plan; throws an error with the constraint that they break.
inline sublet_certificate verify(const std::vector<sublet_block> &blocks, const std::vector<std::uint64_t> &offsets,
                                 const sublet_constraints &constraints = params<sublet_constraints>()) {
    if (offsets.size() != blocks.size()) {
        fail({SUBLET_STATUS_BUFFER_TOO_SMALL, 2, blocks.size(), offsets.size()});
    }
    sublet_error error;
    sublet_layout layout;
    check(sublet_verify_workspace(blocks.size(), &layout, &error), error);
    auto workspace = detail::workspace(layout);
    auto certificate = params<sublet_certificate>();
    check(sublet_verify(blocks.data(), blocks.size(), offsets.data(), &constraints, workspace.get(), layout.size,
                        &certificate, &error),
          error);
    return certificate;
}

// Gives every block an offset, and proves the plan.
inline plan place(const std::vector<sublet_block> &blocks,
                  const sublet_place_params &asked = params<sublet_place_params>()) {
    sublet_error error;
    sublet_layout layout;
    check(sublet_place_workspace(blocks.size(), &asked, &layout, &error), error);
    auto workspace = detail::workspace(layout);
    std::vector<std::uint64_t> offsets(blocks.size());
    check(sublet_place(blocks.data(), blocks.size(), &asked, workspace.get(), layout.size, offsets.data(), nullptr,
                       &error),
          error);
    auto constraints = params<sublet_constraints>();
    constraints.alignment = asked.alignment;
    constraints.capacity = asked.capacity;
    const auto certificate = verify(blocks, offsets, constraints);
    return {std::move(offsets), certificate.peak, certificate.max_load};
}

// A bank of memory and an offset in it for each block, and what that costs.
struct banks_plan {
    std::vector<sublet_spot> spots;
    // The sum, over all blocks, of the bytes touched times the cost of a byte in the block's bank.
    std::uint64_t cost;
    // No placement costs less.
    std::uint64_t lower_bound;
};

// Gives every block a bank and an offset; `uses` has an entry for each block.
inline banks_plan place_banks(const std::vector<sublet_block> &blocks, const std::vector<sublet_bank> &banks,
                              const std::vector<sublet_bank_use> &uses) {
    if (uses.size() != blocks.size()) {
        fail({SUBLET_STATUS_BUFFER_TOO_SMALL, 2, blocks.size(), uses.size()});
    }
    auto asked = params<sublet_banks_params>();
    asked.banks = banks.data();
    asked.bank_count = static_cast<std::uint32_t>(banks.size());
    asked.uses = uses.data();
    sublet_error error;
    sublet_layout layout;
    check(sublet_place_banks_workspace(blocks.size(), &layout, &error), error);
    auto workspace = detail::workspace(layout);
    std::vector<sublet_spot> spots(blocks.size());
    auto cost = params<sublet_banks_cost>();
    check(sublet_place_banks(blocks.data(), blocks.size(), &asked, workspace.get(), layout.size, spots.data(), &cost,
                             &error),
          error);
    return {std::move(spots), cost.cost, cost.lower_bound};
}

// An allocator that learns; all threads may use it, but for moving and destroying it.
class allocator {
  public:
    explicit allocator(const sublet_allocator_params &asked)
        : alignment_(asked.alignment == 0 ? 256 : asked.alignment) {
        sublet_error error;
        check(sublet_allocator_create(&asked, nullptr, 0, &handle_, &error), error);
    }
    allocator(allocator &&other) noexcept
        : handle_(other.handle_), alignment_(other.alignment_) {
        other.handle_ = nullptr;
    }
    allocator &operator=(allocator &&other) noexcept {
        std::swap(handle_, other.handle_);
        std::swap(alignment_, other.alignment_);
        return *this;
    }
    ~allocator() { sublet_allocator_destroy(handle_); }

    // Allocates `bytes` bytes; throws if there is no memory.
    void *allocate(std::size_t bytes) {
        void *pointer = nullptr;
        sublet_error error;
        check(sublet_malloc(handle_, bytes, &pointer, &error), error);
        return pointer;
    }
    // Allocates `bytes` bytes; returns nullptr if there is no memory.
    void *try_allocate(std::size_t bytes) noexcept {
        void *pointer = nullptr;
        return sublet_malloc(handle_, bytes, &pointer, nullptr) == SUBLET_STATUS_OK ? pointer : nullptr;
    }
    // Allocates at a multiple of `alignment`, a power of two; returns nullptr if there is no memory.
    void *try_allocate(std::size_t bytes, std::size_t alignment) noexcept {
        void *pointer = nullptr;
        const auto status = sublet_malloc_aligned(handle_, bytes, alignment, &pointer, nullptr);
        return status == SUBLET_STATUS_OK ? pointer : nullptr;
    }
    // Frees a block; throws if none begins at `pointer`. NULL does nothing.
    void deallocate(void *pointer) {
        sublet_error error;
        check(sublet_free(handle_, pointer, &error), error);
    }
    // Frees a block; returns false if none begins at `pointer`. NULL does nothing, and is true.
    bool try_deallocate(void *pointer) noexcept { return sublet_free(handle_, pointer, nullptr) == SUBLET_STATUS_OK; }

    // Changes the size of a block, which may move; only where the ranges are memory of the host.
    void *reallocate(void *pointer, std::size_t bytes) {
        void *moved = nullptr;
        sublet_error error;
        check(sublet_realloc(handle_, pointer, bytes, &moved, &error), error);
        return moved;
    }
    // The bytes that the block at `pointer` may use; 0 if none begins there.
    std::size_t usable_size(const void *pointer) const noexcept {
        std::size_t bytes = 0;
        (void)!sublet_usable_size(handle_, pointer, &bytes, nullptr);
        return bytes;
    }
    // Whether a pointer lies in the allocator's memory.
    bool owns(const void *pointer) const noexcept {
        std::int32_t owns = 0;
        (void)!sublet_owns(handle_, pointer, &owns, nullptr);
        return owns != 0;
    }

    void iteration_begin() {
        sublet_error error;
        check(sublet_iteration_begin(handle_, &error), error);
    }
    // Throws if there is no plan, with the reason; the allocator goes on without one.
    void iteration_end() {
        sublet_error error;
        check(sublet_iteration_end(handle_, &error), error);
    }
    void interrupt() {
        sublet_error error;
        check(sublet_interrupt(handle_, &error), error);
    }
    void resume() {
        sublet_error error;
        check(sublet_resume(handle_, &error), error);
    }

    // Follows a plan that was made elsewhere.
    void adopt(const std::vector<sublet_block> &blocks, const std::vector<std::uint64_t> &offsets) {
        if (offsets.size() != blocks.size()) {
            fail({SUBLET_STATUS_BUFFER_TOO_SMALL, 3, blocks.size(), offsets.size()});
        }
        sublet_error error;
        sublet_layout layout;
        check(sublet_verify_workspace(blocks.size(), &layout, &error), error);
        auto workspace = detail::workspace(layout);
        check(sublet_adopt(handle_, blocks.data(), blocks.size(), offsets.data(), workspace.get(), layout.size, &error),
              error);
    }

    // The plan that is followed, as CSV.
    std::string export_plan() const {
        return detail::whole_text([this](char *buffer, std::size_t capacity, std::size_t *needed, sublet_error *error) {
            return sublet_export_plan(handle_, buffer, capacity, needed, error);
        });
    }
    // Follows a plan as CSV, as export_plan and `sublet plan` write it.
    void adopt(const std::string &text) {
        sublet_error error;
        std::size_t count = 0;
        check(sublet_plan_read(text.data(), text.size(), nullptr, nullptr, 0, &count, &error), error);
        std::vector<sublet_block> blocks(count);
        std::vector<std::uint64_t> offsets(count);
        check(sublet_plan_read(text.data(), text.size(), blocks.data(), offsets.data(), count, &count, &error), error);
        adopt(blocks, offsets);
    }
    // Forgets the plan, because the network is another from here on.
    void forget() {
        sublet_error error;
        check(sublet_forget(handle_, &error), error);
    }
    // Frees the ranges without live blocks.
    void trim() {
        sublet_error error;
        check(sublet_trim(handle_, &error), error);
    }
    void reset_peaks() {
        sublet_error error;
        check(sublet_reset_peaks(handle_, &error), error);
    }

    sublet_statistics statistics() const {
        auto statistics = params<sublet_statistics>();
        sublet_error error;
        check(sublet_stats(handle_, &statistics, &error), error);
        return statistics;
    }

    void trace_begin() {
        sublet_error error;
        check(sublet_trace_begin(handle_, &error), error);
    }
    void trace_end() {
        sublet_error error;
        check(sublet_trace_end(handle_, &error), error);
    }
    // The trace as CSV, once it has ended.
    std::string export_trace() const {
        return detail::whole_text([this](char *buffer, std::size_t capacity, std::size_t *needed, sublet_error *error) {
            return sublet_export_trace(handle_, buffer, capacity, needed, error);
        });
    }

    // Every address is a multiple of this, in bytes.
    std::size_t alignment() const noexcept { return static_cast<std::size_t>(alignment_); }
    sublet_allocator *handle() const noexcept { return handle_; }

  private:
    sublet_allocator *handle_ = nullptr;
    std::uint64_t alignment_;
};

// An iteration, as long as the scope lasts. If there is no plan after it, nothing is thrown: the statistics tell.
class iteration {
  public:
    explicit iteration(allocator &owner) : owner_(owner) { owner_.iteration_begin(); }
    iteration(const iteration &) = delete;
    iteration &operator=(const iteration &) = delete;
    ~iteration() { (void)sublet_iteration_end(owner_.handle(), nullptr); }

  private:
    allocator &owner_;
};

// Requests are no part of the plan as long as the scope lasts. Scopes nest: requests are part of it again after the
// outermost.
class interruption {
  public:
    explicit interruption(allocator &owner) : owner_(owner) { owner_.interrupt(); }
    interruption(const interruption &) = delete;
    interruption &operator=(const interruption &) = delete;
    ~interruption() { (void)sublet_resume(owner_.handle(), nullptr); }

  private:
    allocator &owner_;
};

#ifdef SUBLET_HAS_MEMORY_RESOURCE

// An allocator for the containers of std::pmr. Requests that it has no memory for are served by `upstream`.
class memory_resource : public std::pmr::memory_resource {
  public:
    explicit memory_resource(allocator &owner, std::pmr::memory_resource *upstream = std::pmr::null_memory_resource())
        : owner_(owner), upstream_(upstream) {}

  protected:
    void *do_allocate(std::size_t bytes, std::size_t alignment) override {
        // A request for 0 bytes needs an address of its own: it is served as one for 1 byte.
        void *pointer = owner_.try_allocate(bytes == 0 ? 1 : bytes, alignment);
        return pointer != nullptr ? pointer : upstream_->allocate(bytes, alignment);
    }
    void do_deallocate(void *pointer, std::size_t bytes, std::size_t alignment) override {
        if (!owner_.try_deallocate(pointer)) {
            upstream_->deallocate(pointer, bytes, alignment);
        }
    }
    bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override {
        // Without run-time types another resource is not known to be one over the same allocator.
#if defined(__cpp_rtti) || defined(__GXX_RTTI) || defined(_CPPRTTI)
        const auto *same = dynamic_cast<const memory_resource *>(&other);
        return same != nullptr && &same->owner_ == &owner_ && same->upstream_->is_equal(*upstream_);
#else
        return this == &other;
#endif
    }

  private:
    allocator &owner_;
    std::pmr::memory_resource *upstream_;
};

#endif  // SUBLET_HAS_MEMORY_RESOURCE

}  // namespace sublet

#endif  // SUBLET_HPP
