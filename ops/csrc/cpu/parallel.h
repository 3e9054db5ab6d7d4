// Work shared among torch's threads item by item, so that a slow thread holds up no other.
#pragma once

#include <torch/csrc/stable/ops.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace splinecnn::cpu {

template <typename F>
void for_each(int64_t count, const F& f) {
  const int64_t threads = std::min<int64_t>(count, torch::stable::get_num_threads());
  if (threads <= 1) {
    for (int64_t i = 0; i < count; ++i) f(i);
    return;
  }
  std::atomic<int64_t> next{0};
  torch::stable::parallel_for(0, threads, 1, [&](int64_t, int64_t) {
    for (int64_t i = next++; i < count; i = next++) f(i);
  });
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
