// What every CUDA kernel file shares: number types, shared memory, searches and checked launches.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "kernels.h"

// Shared memory of a block. The emulator hands out poisoned memory instead (tests/ops/cuda).
#ifdef SPLINECNN_EMULATE
#define SPLINECNN_SHARED(Type, name) Type& name = emulator::shared<Type>(EMULATOR_PLACE)
#else
#define SPLINECNN_SHARED(Type, name) __shared__ Type name
#endif

#define SPLINECNN_TRY(call) \
  if (const int error = (call)) return error

namespace splinecnn::cuda {

constexpr int THREADS = 256;
constexpr int WARPS = THREADS / 32;
constexpr unsigned ALL_LANES = 0xffffffffu;

// Half types are added up in float32.
template <typename T>
struct AccumulatorOf {
  using type = T;
};
template <>
struct AccumulatorOf<__half> {
  using type = float;
};
template <>
struct AccumulatorOf<__nv_bfloat16> {
  using type = float;
};
template <typename T>
using Acc = typename AccumulatorOf<T>::type;

__device__ inline float widen(float v) { return v; }
__device__ inline double widen(double v) { return v; }
__device__ inline float widen(__half v) { return __half2float(v); }
__device__ inline float widen(__nv_bfloat16 v) { return __bfloat162float(v); }

template <typename T>
struct Narrow {
  __device__ static T from(Acc<T> v) { return v; }
};
template <>
struct Narrow<__half> {
  __device__ static __half from(float v) { return __float2half(v); }
};
template <>
struct Narrow<__nv_bfloat16> {
  __device__ static __nv_bfloat16 from(float v) { return __float2bfloat16(v); }
};
template <typename T>
__device__ inline T narrow(Acc<T> v) {
  return Narrow<T>::from(v);
}

// The product rounded once: nvcc must not fuse it into a later addition, or a coordinate that lies
// on a knot would come out beside it and the plan would differ from the CPU's.
__device__ inline float rounded_product(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}
__device__ inline double rounded_product(double a, double b) {
#ifdef __CUDA_ARCH__
  return __dmul_rn(a, b);
#else
  return a * b;
#endif
}

// What stands for a value that a wrong plan would read from outside of a tensor.
template <typename T>
__device__ inline T not_a_number() {
  return T(NAN);
}

// Kernels trust a plan's structure, but not that it fits the tensors it is used with.
__device__ inline bool within(int index, int bound) { return unsigned(index) < unsigned(bound); }

__device__ inline int64_t global_thread() { return int64_t(blockIdx.x) * blockDim.x + threadIdx.x; }

// First position in sorted[0, n) whose element is not below `key`.
template <typename V>
__device__ inline int64_t lower_bound(const V* sorted, int64_t n, V key) {
  int64_t low = 0;
  while (low < n) {
    const int64_t middle = (low + n) / 2;
    if (sorted[middle] < key)
      low = middle + 1;
    else
      n = middle;
  }
  return low;
}

// Which segment [ptr[s], ptr[s + 1]) of `count` holds position `at`; empty segments are passed
// over.
template <typename V>
__device__ inline int64_t segment_of(const V* ptr, int64_t count, V at) {
  return lower_bound(ptr + 1, count, V(at + 1));
}

template <typename V>
__device__ inline V warp_sum(V v) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) v += __shfl_xor_sync(ALL_LANES, v, offset);
  return v;
}

// The smallest power of two that is at least n, kept between least and most.
__host__ __device__ inline int power_of_two(int64_t n, int least, int most) {
  int p = least;
  while (p < n && p < most) p *= 2;
  return p;
}

// Calls f with a zero of the type that `dtype` names.
template <typename F>
int dispatch(Dtype dtype, F f) {
  switch (dtype) {
    case Dtype::float32: return f(float{});
    case Dtype::float64: return f(double{});
    case Dtype::float16: return f(__half{});
    default: return f(__nv_bfloat16{});
  }
}

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

inline unsigned blocks_for(int64_t threads) { return unsigned(ceil_div(threads, THREADS)); }

// Every launch of the library: on the caller's stream, its error returned.
template <typename... Params, typename... Args>
int launch(void (*kernel)(Params...), dim3 grid, void* stream, Args... args) {
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(THREADS);
  config.stream = static_cast<cudaStream_t>(stream);
  return int(cudaLaunchKernelEx(&config, kernel, static_cast<Params>(args)...));
}

// Carves a workspace into arrays; without memory it only measures.
class Carver {
 public:
  explicit Carver(void* base = nullptr) : base_(static_cast<char*>(base)) {}

  template <typename V>
  V* take(int64_t count) {
    V* start = reinterpret_cast<V*>(base_ + used_);
    used_ += ceil_div(count * int64_t(sizeof(V)), 256) * 256;
    return base_ ? start : nullptr;
  }
  int64_t used() const { return used_; }

 private:
  char* base_;
  int64_t used_ = 0;
};

}  // namespace splinecnn::cuda
