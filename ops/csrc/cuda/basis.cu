// B-spline products and weight indices of every edge, their gradient, and small calls of the
// runtime.
#include "basis_device.h"

namespace splinecnn::cuda {
namespace {

template <typename T>
__global__ void __launch_bounds__(THREADS)
    basis_kernel(const __grid_constant__ Spline spline, const T* pseudo, int64_t edges, T* value,
                 int64_t* index, unsigned long long* first_bad) {
  const int64_t i = global_thread();
  if (i >= edges * spline.S) return;
  const int64_t e = i / spline.S;
  if (const int d = first_outside(spline, pseudo + e * spline.D); d >= 0) {
    atomicMin(first_bad, (unsigned long long)(e * spline.D + d));
    return;
  }
  int p;
  value[i] = narrow<T>(basis_product(spline, pseudo + e * spline.D, int(i % spline.S), &p));
  index[i] = p;
}

// One thread per edge and dimension: only that dimension's factor is derived.
template <typename T>
__global__ void __launch_bounds__(THREADS)
    basis_grad_kernel(const __grid_constant__ Spline spline, const T* grad, const T* pseudo,
                      int64_t edges, T* out) {
  const int64_t i = global_thread();
  if (i >= edges * spline.D) return;
  const int64_t e = i / spline.D;
  const int along = int(i % spline.D);
  Acc<T> sum = 0;
  for (int s = 0; s < spline.S; ++s) {
    Acc<T> term = widen(grad[e * spline.S + s]);
    for (int d = 0, rest = s; d < spline.D; ++d, rest /= spline.degree + 1) {
      const int which = rest % (spline.degree + 1);
      Acc<T> v;
      locate_rounded(spline, d, widen(pseudo[e * spline.D + d]), &v);
      term *= d == along ? one_gradient(v, spline.degree, which) * Acc<T>(spline.intervals[d])
                         : one_value(v, spline.degree, which);
    }
    sum += term;
  }
  out[i] = narrow<T>(sum);
}

}  // namespace

const char* error_text(int error) { return cudaGetErrorString(cudaError_t(error)); }

int set_device(int device) { return int(cudaSetDevice(device)); }

int read_back(void* host, const void* device, size_t bytes, void* stream) {
  const auto on = static_cast<cudaStream_t>(stream);
  SPLINECNN_TRY(int(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, on)));
  return int(cudaStreamSynchronize(on));
}

int basis(Dtype dtype, const Spline& spline, const void* pseudo, int64_t edges, void* value,
          int64_t* index, uint64_t* first_bad, void* stream) {
  SPLINECNN_TRY(int(cudaMemsetAsync(first_bad, 0xff, sizeof(uint64_t), cudaStream_t(stream))));
  if (edges == 0) return 0;
  return dispatch(dtype, [&](auto zero) {
    using T = decltype(zero);
    return launch(basis_kernel<T>, dim3(blocks_for(edges * spline.S)), stream, spline,
                  static_cast<const T*>(pseudo), edges, static_cast<T*>(value), index,
                  reinterpret_cast<unsigned long long*>(first_bad));
  });
}

int basis_grad(Dtype dtype, const Spline& spline, const void* grad, const void* pseudo,
               int64_t edges, void* out, void* stream) {
  if (edges == 0) return 0;
  return dispatch(dtype, [&](auto zero) {
    using T = decltype(zero);
    return launch(basis_grad_kernel<T>, dim3(blocks_for(edges * spline.D)), stream, spline,
                  static_cast<const T*>(grad), static_cast<const T*>(pseudo), edges,
                  static_cast<T*>(out));
  });
}

}  // namespace splinecnn::cuda
