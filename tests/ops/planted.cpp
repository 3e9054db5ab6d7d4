// Bugs planted in work shared as our kernels share it, for the sanitizers to find.
#include "../../ops/csrc/cpu/parallel.h"

using splinecnn::cpu::for_each;

extern "C" __attribute__((visibility("default"))) int64_t planted_none(int64_t n) {
  int64_t* const squares = new int64_t[n];
  for_each(n, [&](int64_t i) { squares[i] = i * i; });
  int64_t sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += squares[i];
  delete[] squares;
  return sum;
}

extern "C" __attribute__((visibility("default"))) int64_t planted_thread(int64_t n) {
  int64_t sum = 0;
  for_each(n, [&](int64_t i) { sum += i; });
  return sum;
}

extern "C" __attribute__((visibility("default"))) int64_t planted_address(int64_t n) {
  int64_t* const squares = new int64_t[n];
  for_each(n, [&](int64_t i) { squares[i + 1] = i * i; });
  const int64_t last = squares[n - 1];
  delete[] squares;
  return last;
}

extern "C" __attribute__((visibility("default"))) int64_t planted_undefined(int64_t n) {
  return int32_t(n) << 31;
}
