// Fibers: stacks that take turns on one OS thread, known to the sanitizers.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

#if defined(__SANITIZE_THREAD__)
extern "C" {
void* __tsan_create_fiber(unsigned);
void __tsan_destroy_fiber(void*);
void __tsan_switch_to_fiber(void*, unsigned);
void* __tsan_get_current_fiber();
void __tsan_acquire(void*);
void __tsan_release(void*);
void AnnotateIgnoreReadsBegin(const char*, int);
void AnnotateIgnoreReadsEnd(const char*, int);
void AnnotateIgnoreWritesBegin(const char*, int);
void AnnotateIgnoreWritesEnd(const char*, int);
}
#endif
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
extern "C" {
void __sanitizer_start_switch_fiber(void**, const void*, size_t);
void __sanitizer_finish_switch_fiber(void*, const void**, size_t*);
}
#endif

// The switch itself belongs to no fiber.
#define EMULATOR_UNSEEN __attribute__((no_sanitize_thread))

namespace emulator {

// ThreadSanitizer sees each fiber as a thread; only these two order their memory.
inline void release([[maybe_unused]] void* at) {
#if defined(__SANITIZE_THREAD__)
  __tsan_release(at);
#endif
}
inline void acquire([[maybe_unused]] void* at) {
#if defined(__SANITIZE_THREAD__)
  __tsan_acquire(at);
#endif
}

// While one lives, the emulator's own reads and writes are not reported as races.
struct Quiet {
#if defined(__SANITIZE_THREAD__)
  Quiet() {
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  }
  ~Quiet() {
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
  }
#else
  Quiet() {}
  ~Quiet() {}
#endif
  Quiet(const Quiet&) = delete;
};

#if defined(__x86_64__)
// Saves the callee-saved registers and swaps stacks; ucontext would make a system call instead.
__attribute__((naked, noinline, noipa)) inline void swap_stacks(void** /*save*/, void* /*load*/) {
  asm volatile(
      "pushq %rbp; pushq %rbx; pushq %r12; pushq %r13; pushq %r14; pushq %r15;"
      "movq %rsp, (%rdi); movq %rsi, %rsp;"
      "popq %r15; popq %r14; popq %r13; popq %r12; popq %rbx; popq %rbp; ret");
}
#endif

class Fiber {
 public:
  static constexpr size_t STACK = 128 << 10;

  Fiber() = default;
  Fiber(const Fiber&) = delete;
  ~Fiber() {
    if (stack_) munmap(stack_, STACK);
#if defined(__SANITIZE_THREAD__)
    if (tsan_) __tsan_destroy_fiber(tsan_);
#endif
  }

  // The next `resume` begins `entry`, which must never return.
  void prepare(void (*entry)()) {
    if (!stack_) {
      const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
      stack_ = static_cast<char*>(mmap(nullptr, STACK, PROT_READ | PROT_WRITE, flags, -1, 0));
      if (stack_ == MAP_FAILED) {
        std::perror("emulator: mmap");
        std::abort();
      }
    }
#if defined(__SANITIZE_THREAD__)
    if (!tsan_) tsan_ = __tsan_create_fiber(0);
#endif
#if defined(__SANITIZE_ADDRESS__)
    __asan_unpoison_memory_region(stack_, STACK);
#endif
#if defined(__x86_64__)
    void** top = reinterpret_cast<void**>(stack_ + STACK);
    *--top = nullptr;
    *--top = reinterpret_cast<void*>(entry);
    for (int i = 0; i < 6; ++i) *--top = nullptr;
    pointer_ = top;
#else
    getcontext(&context_);
    context_.uc_stack.ss_sp = stack_;
    context_.uc_stack.ss_size = STACK;
    context_.uc_link = nullptr;
    makecontext(&context_, entry, 0);
#endif
  }

  // Runs the fiber until it suspends.
  EMULATOR_UNSEEN void resume() {
#if defined(__SANITIZE_ADDRESS__)
    void* fake = nullptr;
    __sanitizer_start_switch_fiber(&fake, stack_, STACK);
#endif
#if defined(__SANITIZE_THREAD__)
    caller_tsan_ = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(tsan_, 1);
#endif
#if defined(__x86_64__)
    swap_stacks(&caller_pointer_, pointer_);
#else
    swapcontext(&caller_context_, &context_);
#endif
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#endif
  }

  // Back to whoever resumed this fiber; `last` if it will not run again.
  EMULATOR_UNSEEN void suspend([[maybe_unused]] bool last) {
#if defined(__SANITIZE_ADDRESS__)
    void* fake = nullptr;
    __sanitizer_start_switch_fiber(last ? nullptr : &fake, caller_stack_, caller_size_);
#endif
#if defined(__SANITIZE_THREAD__)
    __tsan_switch_to_fiber(caller_tsan_, 1);
#endif
#if defined(__x86_64__)
    swap_stacks(&pointer_, caller_pointer_);
#else
    swapcontext(&context_, &caller_context_);
#endif
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(fake, &caller_stack_, &caller_size_);
#endif
  }

  // First thing on a fresh stack.
  void arrived() {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(nullptr, &caller_stack_, &caller_size_);
#endif
  }

 private:
  char* stack_ = nullptr;
#if defined(__x86_64__)
  void *pointer_ = nullptr, *caller_pointer_ = nullptr;
#else
  ucontext_t context_, caller_context_;
#endif
#if defined(__SANITIZE_THREAD__)
  void *tsan_ = nullptr, *caller_tsan_ = nullptr;
#endif
#if defined(__SANITIZE_ADDRESS__)
  const void* caller_stack_ = nullptr;
  size_t caller_size_ = 0;
#endif
};

}  // namespace emulator
