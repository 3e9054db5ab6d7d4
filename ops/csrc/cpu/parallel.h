// Work shared among torch's threads item by item, so that a slow thread holds up no other.
#pragma once

#include <torch/csrc/stable/ops.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>
#ifdef __SANITIZE_THREAD__
#include <thread>
#endif

namespace splinecnn::cpu {

// Calls f(begin, end) for ranges that make up [0, count), of at least `grain`.
template <typename F>
void in_ranges(int64_t count, int64_t grain, const F& f) {
#ifdef __SANITIZE_THREAD__
  // that torch's threads wait for each other is hidden from the sanitizer; of these it sees all
  const int64_t threads = std::max<int64_t>(
      1, std::min<int64_t>(count / std::max<int64_t>(1, grain), torch::stable::get_num_threads()));
  std::vector<std::thread> others;
  for (int64_t t = 1; t < threads; ++t)
    others.emplace_back([&, t] { f(count * t / threads, count * (t + 1) / threads); });
  f(0, count / threads);
  for (std::thread& other : others) other.join();
#else
  torch::stable::parallel_for(0, count, grain, f);
#endif
}

template <typename F>
void for_each(int64_t count, const F& f) {
  const int64_t threads = std::min<int64_t>(count, torch::stable::get_num_threads());
  if (threads <= 1) {
    for (int64_t i = 0; i < count; ++i) f(i);
    return;
  }
#ifdef __SANITIZE_THREAD__
  // every thread has its part, however late it starts: a race is found every time
  in_ranges(threads, 1, [&](int64_t thread, int64_t) {
    for (int64_t i = thread; i < count; i += threads) f(i);
  });
#else
  // a thread begins with a part of its own, the same one every time: what it wrote there in the
  // last call is still in its cache; then it helps the others
  struct alignas(64) Part {
    std::atomic<int64_t> next;
    int64_t last;
  };
  std::vector<Part> parts(threads);
  for (int64_t t = 0; t < threads; ++t) {
    parts[t].next = count * t / threads;
    parts[t].last = count * (t + 1) / threads;
  }
  in_ranges(threads, 1, [&](int64_t thread, int64_t) {
    for (int64_t t = thread; t < thread + threads; ++t) {
      Part& part = parts[t % threads];
      for (int64_t i = part.next++; i < part.last; i = part.next++) f(i);
    }
  });
#endif
}

// The smallest place at which something was found wrong, from any thread.
class FirstPlace {
 public:
  void note(int64_t at) {
    int64_t seen = place_.load();
    while (at < seen && !place_.compare_exchange_weak(seen, at)) {
    }
  }
  bool any() const { return place_.load() != NONE; }
  int64_t at() const { return place_.load(); }

 private:
  static constexpr int64_t NONE = INT64_MAX;
  std::atomic<int64_t> place_{NONE};
};

}  // namespace splinecnn::cpu
