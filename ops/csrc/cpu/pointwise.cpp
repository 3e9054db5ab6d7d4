// ELU, exp and softmax that treat an element alike wherever in a tensor it lies: always in blocks
// of 16, the last one padded. (torch computes what does not fill its vectors by another function,
// so that a graph's last bits would change with the company it keeps.)
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "../checks.h"
#include "parallel.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define SPLINECNN_CLONES \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define SPLINECNN_CLONES
#endif

namespace splinecnn::cpu {
namespace {

constexpr int64_t BLOCK = 16;
constexpr int64_t BLOCKS_AT_ONCE = 512;

using Floats = float __attribute__((vector_size(BLOCK * sizeof(float))));
using Ints = int32_t __attribute__((vector_size(BLOCK * sizeof(int32_t))));

#define SPLINECNN_ALWAYS_INLINE inline __attribute__((always_inline))

// exp(x) = scale * (1 + rest), for x in [-87, 88]: scale = 2^n, rest = e^r - 1, |r| <= ln(2) / 2.
SPLINECNN_ALWAYS_INLINE void split(const Floats& given, Floats* scale, Floats* rest) {
  constexpr float ROUND = 12582912.0f;  // 1.5 * 2^23: adding it rounds to a whole number
  const Floats zero = {}, low = zero - 87.0f, high = zero + 88.0f;
  Floats x = given < low ? low : given;
  x = x > high ? high : x;
  const Floats shifted = x * 1.44269504f + ROUND;
  const Floats n = shifted - ROUND;
  const Floats r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  *scale = (Floats)(((Ints)shifted - (Ints)(zero + ROUND) + 127) << 23);
  Floats p = zero + 1.0f / 5040;
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  *rest = p * r * r + r;
}

struct Exp {
  static SPLINECNN_ALWAYS_INLINE void apply(const Floats& x, Floats* out) {
    Floats scale, rest;
    split(x, &scale, &rest);
    *out = scale * rest + scale;
  }
  static double at(double x) { return std::exp(x); }
};

struct Elu {
  static SPLINECNN_ALWAYS_INLINE void apply(const Floats& x, Floats* out) {
    Floats scale, rest;
    split(x, &scale, &rest);
    const Floats below = scale * rest + (scale - 1.0f);
    *out = x > 0.0f ? x : below;
  }
  static double at(double x) { return x > 0 ? x : std::expm1(x); }
};

template <typename F>
SPLINECNN_ALWAYS_INLINE void whole_blocks(const float* x, float* out, int64_t blocks) {
  for (int64_t b = 0; b < blocks; ++b) {
    Floats value;
    std::memcpy(&value, x + b * BLOCK, sizeof value);
    F::apply(value, &value);
    std::memcpy(out + b * BLOCK, &value, sizeof value);
  }
}

// one function each, because target_clones does not go with templates
SPLINECNN_CLONES void run(Exp, const float* x, float* out, int64_t blocks) {
  whole_blocks<Exp>(x, out, blocks);
}
SPLINECNN_CLONES void run(Elu, const float* x, float* out, int64_t blocks) {
  whole_blocks<Elu>(x, out, blocks);
}
template <typename F>
void run(F, const double* x, double* out, int64_t blocks) {
  for (int64_t i = 0; i < blocks * BLOCK; ++i) out[i] = F::at(x[i]);
}

template <typename F, typename T>
void run_all(const T* x, T* out, int64_t count) {
  const int64_t blocks = count / BLOCK, rest = count % BLOCK;
  run(F{}, x, out, blocks);
  if (rest == 0) return;
  T padded[BLOCK] = {};
  std::copy_n(x + blocks * BLOCK, rest, padded);
  run(F{}, padded, padded, 1);
  std::copy_n(padded, rest, out + blocks * BLOCK);
}

template <typename T>
void softmax_row(const T* x, T* out, int64_t C) {
  const T most = *std::max_element(x, x + C);
  for (int64_t c = 0; c < C; ++c) out[c] = x[c] - most;
  run_all<Exp>(out, out, C);
  T total = 0;
  for (int64_t c = 0; c < C; ++c) total += out[c];
  for (int64_t c = 0; c < C; ++c) out[c] /= total;
}

template <typename F, typename T>
void each(const Tensor& x, const Tensor& out) {
  const T* from = static_cast<const T*>(x.const_data_ptr());
  T* to = static_cast<T*>(out.mutable_data_ptr());
  const int64_t count = x.numel(), blocks = (count + BLOCK - 1) / BLOCK;
  in_ranges(blocks, BLOCKS_AT_ONCE, [&](int64_t begin, int64_t end) {
    const int64_t first = begin * BLOCK;
    run_all<F>(from + first, to + first, std::min(end * BLOCK, count) - first);
  });
}

template <typename F>
Tensor pointwise(const Tensor& given) {
  check_floating(given, "x");
  const Tensor x = torch::stable::contiguous(given);
  const Tensor out = torch::stable::empty_like(x);
  x.scalar_type() == ScalarType::Double ? each<F, double>(x, out) : each<F, float>(x, out);
  return out;
}

Tensor exp(const Tensor& x) { return pointwise<Exp>(x); }
Tensor elu(const Tensor& x) { return pointwise<Elu>(x); }

template <typename T>
void each_row(const Tensor& x, const Tensor& out) {
  const T* from = static_cast<const T*>(x.const_data_ptr());
  T* to = static_cast<T*>(out.mutable_data_ptr());
  const int64_t C = x.size(1);
  in_ranges(x.size(0), 256, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) softmax_row(from + n * C, to + n * C, C);
  });
}

Tensor softmax(const Tensor& given) {
  check_floating(given, "x");
  check_dims(given, "x", 2, "[N, C]");
  const Tensor x = torch::stable::contiguous(given);
  const Tensor out = torch::stable::empty_like(x);
  if (x.size(1) == 0) return out;
  x.scalar_type() == ScalarType::Double ? each_row<double>(x, out) : each_row<float>(x, out);
  return out;
}

}  // namespace
}  // namespace splinecnn::cpu

STABLE_TORCH_LIBRARY_IMPL(splinecnn, CPU, library) {
  library.impl("exp", TORCH_BOX(&splinecnn::cpu::exp));
  library.impl("elu", TORCH_BOX(&splinecnn::cpu::elu));
  library.impl("softmax", TORCH_BOX(&splinecnn::cpu::softmax));
}
