// ONNX Runtime with planned memory: an allocator for its environment, and a guard around Run. C++17, over its C API and
// sublet.hpp.
//
//     sublet::onnxruntime::memory memory(*api, env);   // once, before sessions are made; lives as long as they do
//     memory.set(options);                             // for each session
//     sublet::onnxruntime::session_memory planned(memory);
//     { sublet::onnxruntime::run scope(planned); api->Run(session, ...); /* read and release the outputs */ }
//
// Each session has an allocator, and so a plan, for each of its runs at once. What is requested outside of a run, such as
// weights, comes from the C library. Values that are released after the guard has ended are no part of the plan.
#ifndef SUBLET_ONNXRUNTIME_HPP
#define SUBLET_ONNXRUNTIME_HPP

#include <onnxruntime_c_api.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <vector>

#include "sublet.hpp"

namespace sublet {
namespace onnxruntime {

// An allocator for one run at a time, and where its range of addresses begins.
struct context {
    explicit context(const sublet_allocator_params &asked) : planned(asked) {
        void *first = planned.allocate(1);
        begin = reinterpret_cast<std::uintptr_t>(first);
        planned.deallocate(first);
    }
    allocator planned;
    std::uintptr_t begin;
    // A request of the run had no room here.
    std::atomic<bool> is_full{false};
};

// The context of the run that this thread is in; nullptr if it is in none.
inline context *&current() {
    static thread_local context *own = nullptr;
    return own;
}

// The allocator that is registered with ONNX Runtime's environment.
class memory : OrtAllocator {
  public:
    // `capacity` is the most bytes that one run takes at once: addresses, which take no memory until they are used.
    memory(const OrtApi &api, OrtEnv *env, std::uint64_t capacity = std::uint64_t{1} << 36)
        : OrtAllocator(), api_(api), env_(env), capacity_(capacity) {
        check(api_.CreateMemoryInfo("Cpu", OrtDeviceAllocator, 0, OrtMemTypeDefault, &info_));
        version = ORT_API_VERSION;
        Alloc = [](OrtAllocator *own, std::size_t bytes) { return static_cast<memory *>(own)->take(bytes); };
        Free = [](OrtAllocator *own, void *pointer) { static_cast<memory *>(own)->give_back(pointer); };
        Info = [](const OrtAllocator *own) -> const OrtMemoryInfo * { return static_cast<const memory *>(own)->info_; };
        Reserve = [](OrtAllocator *, std::size_t bytes) { return beside(bytes); };
        check(api_.RegisterAllocator(env_, this));
    }
    memory(const memory &) = delete;
    memory &operator=(const memory &) = delete;
    ~memory() {
        drop(api_.UnregisterAllocator(env_, info_));
        api_.ReleaseMemoryInfo(info_);
        for (std::size_t i = 0; i < made_.load(); ++i) {
            delete contexts_[i];
        }
    }

    // Has a session take its memory here, and every request of a run be its own: no memory pattern.
    void set(OrtSessionOptions *options) const {
        check(api_.AddSessionConfigEntry(options, "session.use_env_allocators", "1"));
        check(api_.DisableMemPattern(options));
    }

  private:
    friend class session_memory;
    friend class run;

    void check(OrtStatus *status) const {
        if (status != nullptr) {
            const std::runtime_error error(api_.GetErrorMessage(status));
            api_.ReleaseStatus(status);
            throw error;
        }
    }
    void drop(OrtStatus *status) const {
        if (status != nullptr) {
            api_.ReleaseStatus(status);
        }
    }

    static void *beside(std::size_t bytes) {
        void *pointer = nullptr;
        return bytes > 0 && posix_memalign(&pointer, alignment, bytes) == 0 ? pointer : nullptr;
    }
    void *take(std::size_t bytes) noexcept {
        // ONNX Runtime's own threads are in no run: what they request is the only run's, if there is only one.
        context *own = current() != nullptr ? current() : only_.load();
        void *pointer = own != nullptr && bytes > 0 ? own->planned.try_allocate(bytes) : nullptr;
        if (own != nullptr && bytes > 0 && pointer == nullptr) {
            own->is_full.store(true);
        }
        return pointer != nullptr ? pointer : beside(bytes);
    }
    void give_back(void *pointer) noexcept {
        const auto address = reinterpret_cast<std::uintptr_t>(pointer);
        for (std::size_t i = 0; i < made_.load(); ++i) {
            if (address - contexts_[i]->begin < capacity_) {
                (void)contexts_[i]->planned.try_deallocate(pointer);
                return;
            }
        }
        std::free(pointer);
    }

    // A context that no session has, or a new one; nullptr if there are too many.
    context *borrow() {
        if (!unused_.empty()) {
            context *own = unused_.back();
            unused_.pop_back();
            return own;
        }
        const std::size_t number = made_.load();
        if (number == contexts_.size()) {
            return nullptr;
        }
        auto asked = params<sublet_allocator_params>();
        asked.capacity = capacity_;
        asked.alignment = alignment;
        contexts_[number] = new context(asked);
        made_.store(number + 1);
        return contexts_[number];
    }
    void began(context *own) {
        running_.push_back(own);
        only_.store(running_.size() == 1 ? own : nullptr);
    }
    void ended(context *own) {
        for (auto &each : running_) {
            if (each == own) {
                each = running_.back();
                running_.pop_back();
                break;
            }
        }
        only_.store(running_.size() == 1 ? running_.front() : nullptr);
    }

    static constexpr std::size_t alignment = 64;
    const OrtApi &api_;
    OrtEnv *env_;
    OrtMemoryInfo *info_ = nullptr;
    std::uint64_t capacity_;
    std::array<context *, 256> contexts_{};
    std::atomic<std::size_t> made_{0};
    std::atomic<context *> only_{nullptr};
    // Guards what follows, and what the sessions have.
    std::mutex mutex_;
    std::vector<context *> unused_, running_;
};

// The plans of one session: one for each of its runs at once.
class session_memory {
  public:
    explicit session_memory(memory &owner) : owner_(owner) {}
    session_memory(const session_memory &) = delete;
    session_memory &operator=(const session_memory &) = delete;
    ~session_memory() {
        std::lock_guard<std::mutex> lock(owner_.mutex_);
        for (context *own : idle_) {
            (void)sublet_forget(own->planned.handle(), nullptr);
            (void)sublet_trim(own->planned.handle(), nullptr);
            owner_.unused_.push_back(own);
        }
    }
    // The statistics of each plan; call it while no run is under way.
    std::vector<sublet_statistics> statistics() {
        std::lock_guard<std::mutex> lock(owner_.mutex_);
        std::vector<sublet_statistics> all;
        for (context *own : idle_) {
            all.push_back(own->planned.statistics());
        }
        return all;
    }
    // How many runs were not planned in whole: too many at once, or no room. They were served all the same.
    std::size_t unplanned() {
        std::lock_guard<std::mutex> lock(owner_.mutex_);
        return unplanned_;
    }

  private:
    friend class run;
    memory &owner_;
    std::vector<context *> idle_;
    std::size_t unplanned_ = 0;
};

// A run, as long as the scope lasts, on the thread that calls Run. It ends before the session's memory does.
class run {
  public:
    explicit run(session_memory &session) : session_(session) {
        std::lock_guard<std::mutex> lock(session_.owner_.mutex_);
        if (session_.idle_.empty()) {
            own_ = session_.owner_.borrow();
        } else {
            own_ = session_.idle_.back();
            session_.idle_.pop_back();
        }
        if (own_ != nullptr) {
            own_->planned.iteration_begin();
            session_.owner_.began(own_);
            around_ = current();
            current() = own_;
        } else {
            session_.unplanned_ += 1;
        }
    }
    run(const run &) = delete;
    run &operator=(const run &) = delete;
    ~run() {
        if (own_ == nullptr) {
            return;
        }
        current() = around_;
        {
            std::lock_guard<std::mutex> lock(session_.owner_.mutex_);
            session_.owner_.ended(own_);
        }
        // Plans, if there is no plan yet; others go on meanwhile.
        const bool has_ended = sublet_iteration_end(own_->planned.handle(), nullptr) == SUBLET_STATUS_OK;
        std::lock_guard<std::mutex> lock(session_.owner_.mutex_);
        session_.unplanned_ += has_ended && !own_->is_full.exchange(false) ? 0 : 1;
        session_.idle_.push_back(own_);
    }

  private:
    session_memory &session_;
    context *own_ = nullptr;
    // Runs nest: the context of the one around this one.
    context *around_ = nullptr;
};

}  // namespace onnxruntime
}  // namespace sublet

#endif  // SUBLET_ONNXRUNTIME_HPP
