// What a framework asks of its allocator: counted, kept in order, and asked again of two allocators to compare them.
#ifndef REQUESTS_HPP
#define REQUESTS_HPP

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <mutex>
#include <unordered_map>
#include <vector>

// The requests of one run of a network, and the bytes that are live in it.
class Requests {
  public:
    // Forgets the requests, not what is live.
    void restart() {
        std::lock_guard<std::mutex> lock(mutex_);
        events_.clear();
        order_.clear();
        live_ = peak_ = 0;
    }

    void taken(const void *pointer, std::size_t bytes) {
        std::lock_guard<std::mutex> lock(mutex_);
        order_[pointer] = events_.size();
        events_.push_back({bytes, 0});
        live_ += rounded(bytes);
        peak_ = std::max(peak_, live_);
        all_live_ += bytes;
        all_peak_ = std::max(all_peak_, all_live_);
        bytes_[pointer] = bytes;
    }

    void given(const void *pointer) {
        std::lock_guard<std::mutex> lock(mutex_);
        auto bytes = bytes_.find(pointer);
        all_live_ -= bytes->second;
        auto mine = order_.find(pointer);
        // What was taken before the restart is not part of this run.
        if (mine != order_.end()) {
            events_.push_back({0, mine->second});
            live_ -= rounded(bytes->second);
            order_.erase(mine);
        }
        bytes_.erase(bytes);
    }

    // The most bytes that were live since the restart, of what was taken since then, as an allocator of this alignment
    // counts them; and the most that ever were, as asked for.
    std::size_t max_load() const { return peak_; }
    std::size_t peak() const { return all_peak_; }

    // The time for a malloc with its free in ns, when all requests are made again and again.
    double nanoseconds(const std::function<void *(std::size_t)> &take, const std::function<void(void *)> &give,
                       const std::function<void()> &begin, const std::function<void()> &end) const {
        constexpr int warm_up = 4, rounds = 200;
        std::vector<void *> held(events_.size());
        std::chrono::steady_clock::time_point started;
        std::size_t pairs = 0;
        for (int round = 0; round < warm_up + rounds; ++round) {
            if (round == warm_up) {
                started = std::chrono::steady_clock::now();
            }
            begin();
            for (std::size_t i = 0; i < events_.size(); ++i) {
                if (events_[i].bytes > 0) {
                    held[i] = take(events_[i].bytes);
                    pairs += round >= warm_up;
                } else {
                    give(held[events_[i].of]);
                    held[events_[i].of] = nullptr;
                }
            }
            for (void *&left : held) {
                if (left != nullptr) {
                    give(left);
                    left = nullptr;
                }
            }
            end();
        }
        const std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - started;
        return pairs == 0 ? 0 : time.count() / static_cast<double>(pairs);
    }

  private:
    struct Event {
        std::size_t bytes;  // 0 for a free
        std::size_t of;     // the malloc that it frees
    };

    static std::size_t rounded(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

    mutable std::mutex mutex_;
    std::vector<Event> events_;
    std::unordered_map<const void *, std::size_t> order_, bytes_;
    std::size_t live_ = 0, peak_ = 0, all_live_ = 0, all_peak_ = 0;
};

inline void print(const char *name, double value) { std::printf("%s %.6g\n", name, value); }

#endif
