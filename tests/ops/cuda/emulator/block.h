// A thread block: its threads are fibers, and the scheduler sees who waits where.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "fiber.h"

struct uint3 {
  unsigned x = 0, y = 0, z = 0;
};
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

inline thread_local uint3 threadIdx, blockIdx;
inline thread_local dim3 blockDim, gridDim;

namespace emulator {

// In which order threads and blocks take their turns; a right kernel gives the same in all.
struct Order {
  enum Kind { forward, reverse, random } kind = forward;
  uint64_t seed = 1;

  static Order from_environment() {
    const char* text = std::getenv("EMULATOR_ORDER");
    Order order;
    if (text && !std::strcmp(text, "reverse")) order.kind = reverse;
    if (text && !std::strncmp(text, "random:", 7)) {
      order.kind = random;
      order.seed = std::strtoull(text + 7, nullptr, 10);
    }
    return order;
  }
};

struct Shuffler {
  uint64_t state;
  uint64_t next() {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
  }
  template <typename V>
  void shuffle(std::vector<V>& values) {
    for (size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[next() % i]);
  }
};

enum class State : uint8_t { ready, at_block_barrier, at_warp, done };

// A CUDA thread. What it brings to a warp collective lies in `deposit`, in two halves used in turn,
// so that a fast lane's next collective does not overwrite what a slow lane still reads.
struct Thread {
  Fiber fiber;
  uint3 index;
  State state = State::done;
  unsigned mask = 0;            // of the collective it waits in
  const void* place = nullptr;  // where in the source it waits
  int writing = 0, reading = 0, barriers = 0;
  char fence[2];
  alignas(16) unsigned char deposit[2][64];
};

class Block {
 public:
  // Runs all threads of one block to their end; false and `error` if the kernel broke a rule.
  bool run(dim3 grid, dim3 size, uint3 index, void (*kernel)(void*), void* arguments,
           const Order& order);

  void wait_at_barrier(const void* place);
  void wait_in_warp(unsigned mask, const void* place, bool fence);
  Thread& lane(unsigned l) { return *threads_[warp_ * 32 + l]; }
  Thread& self() { return *threads_[current_]; }
  unsigned own_lane() const { return current_ % 32; }
  void* shared(size_t bytes, const void* place);

  std::string error;

 private:
  static void enter();
  bool fail(const std::string& what);
  void run_ready(const std::vector<unsigned>& turns);
  bool release_warps();
  bool release_barrier();

  std::vector<std::unique_ptr<Thread>> threads_;
  std::map<const void*, std::vector<uint64_t>> shared_;  // one object per declaration
  unsigned count_ = 0, live_ = 0, current_ = 0, warp_ = 0;
  bool progress_ = false;
  uint3 index_;
  void (*kernel_)(void*) = nullptr;
  void* arguments_ = nullptr;
  char barrier_[2], finished_;
};

inline thread_local Block* block = nullptr;
inline char launched, completed;  // what a launch and its end order

inline void Block::enter() {
  block->self().fiber.arrived();
  void (*kernel)(void*);
  void* arguments;
  {
    Quiet quiet;
    acquire(&launched);
    kernel = block->kernel_;
    arguments = block->arguments_;
  }
  kernel(arguments);
  release(&completed);
  Fiber* fiber;
  {
    Quiet quiet;
    release(&block->finished_);
    block->self().state = State::done;
    fiber = &block->self().fiber;
  }
  fiber->suspend(true);
  std::abort();
}

inline bool Block::fail(const std::string& what) {
  error = what + " in block (" + std::to_string(index_.x) + ", " + std::to_string(index_.y) + ", " +
          std::to_string(index_.z) + ")";
  return false;
}

inline bool Block::run(dim3 grid, dim3 size, uint3 index, void (*kernel)(void*), void* arguments,
                       const Order& order) {
  Quiet quiet;
  block = this;
  kernel_ = kernel;
  arguments_ = arguments;
  index_ = blockIdx = index;
  gridDim = grid;
  blockDim = size;
  error.clear();
  shared_.clear();
  live_ = count_ = size.x * size.y * size.z;
  while (threads_.size() < count_) threads_.push_back(std::make_unique<Thread>());
  std::vector<unsigned> turns(count_);
  for (unsigned t = 0; t < count_; ++t) {
    Thread& thread = *threads_[t];
    thread.index.x = t % size.x;
    thread.index.y = t / size.x % size.y;
    thread.index.z = t / (size.x * size.y);
    thread.state = State::ready;
    thread.writing = thread.reading = thread.barriers = 0;
    thread.fiber.prepare(enter);
    turns[t] = order.kind == Order::reverse ? count_ - 1 - t : t;
  }
  Shuffler shuffler{(order.seed + 1) * 0x9E3779B97F4A7C15ull ^
                    (index.x + 1) * 0xD1B54A32D192ED03ull};
  while (live_) {
    if (order.kind == Order::random) shuffler.shuffle(turns);
    progress_ = false;
    run_ready(turns);
    if (!release_warps() || !release_barrier()) return false;
    if (!progress_) return fail("deadlock of " + std::to_string(live_) + " threads");
  }
  acquire(&finished_);
  return true;
}

inline void Block::run_ready(const std::vector<unsigned>& turns) {
  for (unsigned t : turns) {
    Thread& thread = *threads_[t];
    if (thread.state != State::ready) continue;
    current_ = t;
    warp_ = t / 32;
    threadIdx = thread.index;
    thread.fiber.resume();
    progress_ = true;
    if (thread.state == State::done) --live_;
  }
}

// A warp collective goes on when all lanes of its mask wait in it, at the same place.
inline bool Block::release_warps() {
  for (unsigned first = 0; first < count_; first += 32) {
    const unsigned lanes = std::min(32u, count_ - first);
    for (unsigned l = 0; l < lanes; ++l) {
      Thread& thread = *threads_[first + l];
      if (thread.state != State::at_warp) continue;
      const unsigned mask = thread.mask;
      if (!(mask >> l & 1)) return fail("lane " + std::to_string(l) + " is not in its own mask");
      bool all = true;
      for (unsigned k = 0; k < 32; ++k) {
        if (!(mask >> k & 1)) continue;
        if (k >= lanes || threads_[first + k]->state == State::done)
          return fail("a warp mask names lane " + std::to_string(k) + ", which has exited");
        const Thread& other = *threads_[first + k];
        if (other.state == State::at_block_barrier)
          return fail("lane " + std::to_string(k) + " waits at __syncthreads, its warp elsewhere");
        all &= other.state == State::at_warp && other.mask == mask && other.place == thread.place;
      }
      if (!all) continue;
      for (unsigned k = 0; k < 32; ++k) {
        if (!(mask >> k & 1)) continue;
        Thread& other = *threads_[first + k];
        other.state = State::ready;
        other.reading = other.writing;
        other.writing ^= 1;
      }
      progress_ = true;
    }
  }
  return true;
}

// __syncthreads goes on when every thread of the block waits at the same one.
inline bool Block::release_barrier() {
  unsigned waiting = 0;
  const void* place = nullptr;
  for (unsigned t = 0; t < count_; ++t) {
    if (threads_[t]->state != State::at_block_barrier) continue;
    if (waiting++ && place != threads_[t]->place && live_) {
      // threads may still be on their way to the one place; only a full stop is a fault
      if (!progress_) return fail("__syncthreads reached at two different places");
    }
    place = threads_[t]->place;
  }
  if (waiting == 0 || waiting != live_) return true;
  for (unsigned t = 0; t < count_; ++t) {
    if (threads_[t]->state == State::done)
      return fail("__syncthreads after " + std::to_string(count_ - live_) + " threads had exited");
    if (threads_[t]->place != place) return fail("__syncthreads reached at two different places");
  }
  for (unsigned t = 0; t < count_; ++t) threads_[t]->state = State::ready;
  progress_ = true;
  return true;
}

inline void Block::wait_at_barrier(const void* place) {
  Quiet quiet;
  Thread& me = self();
  me.state = State::at_block_barrier;
  me.place = place;
  char* const order = &barrier_[me.barriers++ % 2];
  release(order);
  me.fiber.suspend(false);
  acquire(order);
}

inline void Block::wait_in_warp(unsigned mask, const void* place, bool fence) {
  Thread& me = self();
  me.state = State::at_warp;
  me.mask = mask;
  me.place = place;
  if (fence) release(&me.fence[me.writing]);
  me.fiber.suspend(false);
  if (!fence) return;
  for (unsigned k = 0; k < 32; ++k)
    if (mask >> k & 1) acquire(&lane(k).fence[lane(k).reading]);
}

// Shared memory starts as NaN (all bits set) in every block; a line of poison guards its end.
inline void* Block::shared(size_t bytes, const void* place) {
  Quiet quiet;
  constexpr size_t GUARD = 256;
  auto [at, fresh] = shared_.try_emplace(place);
  if (fresh) {
    at->second.assign((bytes + 2 * GUARD) / 8 + 1, ~uint64_t(0));
#if defined(__SANITIZE_ADDRESS__)
    char* all = reinterpret_cast<char*>(at->second.data());
    char* begin =
        reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(all) + 127) & ~uintptr_t(127));
    __asan_poison_memory_region(begin + (bytes + 7) / 8 * 8, GUARD - 128);
#endif
  }
  const uintptr_t all = reinterpret_cast<uintptr_t>(at->second.data());
  return reinterpret_cast<void*>((all + 127) & ~uintptr_t(127));
}

// One object per declaration and block.
template <typename Type>
Type& shared(const void* place) {
  return *static_cast<Type*>(block->shared(sizeof(Type), place));
}

}  // namespace emulator

// An address of its own for each place in the source.
#define EMULATOR_PLACE                             \
  ([]() __attribute__((noinline)) -> const void* { \
    static const char place = 0;                   \
    return &place;                                 \
  }())
