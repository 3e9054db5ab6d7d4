// Small kernels, each right but for one planted bug, which the emulator or a sanitizer must catch.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "common.h"

namespace splinecnn::cuda {
namespace {

struct Numbers {
  float of[THREADS];
};

// Reverses THREADS numbers through shared memory.
__global__ void reverse_kernel(const float* in, float* out, bool with_barrier) {
  SPLINECNN_SHARED(Numbers, shared);
  shared.of[threadIdx.x] = in[threadIdx.x];
  if (with_barrier) __syncthreads();
  out[threadIdx.x] = shared.of[THREADS - 1 - threadIdx.x];
}

// The same within each warp.
__global__ void reverse_warps(const float* in, float* out, bool with_barrier) {
  SPLINECNN_SHARED(Numbers, shared);
  shared.of[threadIdx.x] = in[threadIdx.x];
  if (with_barrier) __syncwarp();
  out[threadIdx.x] = shared.of[threadIdx.x ^ 31];
}

__global__ void early_exit(const float* in, float* out) {
  if (threadIdx.x == 3) return;
  __syncthreads();
  out[threadIdx.x] = in[threadIdx.x];
}

__global__ void two_barriers(const float* in, float* out) {
  if (threadIdx.x < 32)
    __syncthreads();
  else
    __syncthreads();
  out[threadIdx.x] = in[threadIdx.x];
}

__global__ void exited_lane(const float* in, float* out) {
  if (threadIdx.x % 32 == 5) return;
  out[threadIdx.x] = __shfl_xor_sync(ALL_LANES, in[threadIdx.x], 1);
}

__global__ void foreign_mask(const float* in, float* out) {
  out[threadIdx.x] = __shfl_xor_sync(0xfffffffeu, in[threadIdx.x], 1);
}

__global__ void beyond_global(const float* in, float* out) {
  out[threadIdx.x + 1] = in[threadIdx.x];
}

__global__ void beyond_shared(const float* in, float* out) {
  SPLINECNN_SHARED(Numbers, shared);
  shared.of[threadIdx.x + 1] = in[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = shared.of[threadIdx.x];
}

__global__ void misaligned(const float* in, float* out) {
  out[threadIdx.x] = float(*reinterpret_cast<const double*>(in + (threadIdx.x & ~1u) % 128 + 1));
}

// Every block adds to one word.
__global__ void count_blocks(const float*, float* out, bool atomic) {
  if (threadIdx.x != 0) return;
  if (atomic)
    atomicAdd(out, 1.f);
  else
    out[0] += 1.f;
}

// Reads what nobody wrote.
__global__ void unwritten(const float* in, float* out) {
  SPLINECNN_SHARED(Numbers, shared);
  if (threadIdx.x != 7) shared.of[threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = shared.of[threadIdx.x];
}

int run(const char* name, const float* in, float* out) {
  const auto is = [&](const char* other) { return !std::strcmp(name, other); };
  if (is("right-block")) return launch(reverse_kernel, dim3(1), nullptr, in, out, true);
  if (is("right-warp")) return launch(reverse_warps, dim3(1), nullptr, in, out, true);
  if (is("right-atomic")) return launch(count_blocks, dim3(8), nullptr, in, out, true);
  if (is("missing-syncthreads")) return launch(reverse_kernel, dim3(1), nullptr, in, out, false);
  if (is("missing-syncwarp")) return launch(reverse_warps, dim3(1), nullptr, in, out, false);
  if (is("early-exit")) return launch(early_exit, dim3(1), nullptr, in, out);
  if (is("two-barriers")) return launch(two_barriers, dim3(1), nullptr, in, out);
  if (is("exited-lane")) return launch(exited_lane, dim3(1), nullptr, in, out);
  if (is("foreign-mask")) return launch(foreign_mask, dim3(1), nullptr, in, out);
  if (is("beyond-global")) return launch(beyond_global, dim3(1), nullptr, in, out);
  if (is("beyond-shared")) return launch(beyond_shared, dim3(1), nullptr, in, out);
  if (is("misaligned")) return launch(misaligned, dim3(1), nullptr, in, out);
  if (is("global-race")) return launch(count_blocks, dim3(8), nullptr, in, out, false);
  if (is("unwritten")) return launch(unwritten, dim3(1), nullptr, in, out);
  std::printf("no kernel is called %s\n", name);
  std::exit(2);
}

}  // namespace
}  // namespace splinecnn::cuda

// Prints the error, or a checksum in which every number has its own weight.
int main(int, char** arguments) {
  using splinecnn::cuda::THREADS;
  const std::unique_ptr<float[]> in(new float[THREADS]), out(new float[THREADS]);
  for (int i = 0; i < THREADS; ++i) in[i] = float(i), out[i] = 0;
  const int error = splinecnn::cuda::run(arguments[1], in.get(), out.get());
  double sum = 0;
  for (int i = 0; i < THREADS; ++i) sum += double(out[i]) * (i + 1);
  if (error)
    std::printf("error: %s\n", cudaGetErrorString(cudaError_t(error)));
  else
    std::printf("sum: %g\n", sum);
}
