// B-spline polynomials and their derivatives, written once for host and device.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define SPLINECNN_INLINE __host__ __device__ inline
#else
// always inlined: a copy compiled for a newer processor must not be picked by the linker for all
#define SPLINECNN_INLINE inline __attribute__((always_inline))
#endif

namespace splinecnn {

constexpr int MAX_DIMS = 30;  // each has two weights or more, and their product is below 2^31
constexpr int MAX_DEGREE = 3;

// What a graph's kernel looks like: D dimensions, S = (degree + 1)^D active functions per edge,
// K = product of kernel_size weights. Dimension 0 varies fastest in s and in the weight index.
struct Spline {
  int D;
  int degree;
  int S;
  int K;
  int kernel_size[MAX_DIMS];
  int intervals[MAX_DIMS];  // an open spline over k weights has k - degree intervals, a closed one
                            // k
};

// The degree + 1 values at the fraction v of a knot interval (paper, section 3.2).
template <typename T>
SPLINECNN_INLINE void bspline(T v, int degree, T* b) {
  const T c = T(1) - v;
  if (degree == 1) {
    b[0] = c;
    b[1] = v;
  } else if (degree == 2) {
    b[0] = T(0.5) * c * c;
    b[1] = T(0.5) + v - v * v;
    b[2] = T(0.5) * v * v;
  } else {
    b[0] = c * c * c / T(6);
    b[1] = (T(4) - T(6) * v * v + T(3) * v * v * v) / T(6);
    b[2] = (T(4) - T(6) * c * c + T(3) * c * c * c) / T(6);
    b[3] = v * v * v / T(6);
  }
}

// The derivatives of `bspline` with respect to v.
template <typename T>
SPLINECNN_INLINE void bspline_grad(T v, int degree, T* b) {
  const T c = T(1) - v;
  if (degree == 1) {
    b[0] = T(-1);
    b[1] = T(1);
  } else if (degree == 2) {
    b[0] = -c;
    b[1] = c - v;
    b[2] = v;
  } else {
    b[0] = T(-0.5) * c * c;
    b[1] = T(1.5) * v * v - T(2) * v;
    b[2] = T(2) * c - T(1.5) * c * c;
    b[3] = T(0.5) * v * v;
  }
}

// The knot interval of the coordinate u in [0, 1] of dimension d; v becomes the fraction in it.
template <typename T>
SPLINECNN_INLINE int locate(const Spline& spline, int d, T u, T* v) {
  const int intervals = spline.intervals[d];
  const T scaled = u * T(intervals);
  int cell = int(scaled);
  if (cell > intervals - 1) cell = intervals - 1;  // u = 1 belongs to the last interval
  *v = scaled - T(cell);
  return cell;
}

// One edge's position in every dimension: values and weight indices of the degree + 1 functions.
template <typename T>
struct Position {
  T value[MAX_DIMS][MAX_DEGREE + 1];
  int index[MAX_DIMS][MAX_DEGREE + 1];  // already multiplied by the dimension's stride
};

// D and degree are the spline's own; a caller that knows them as constants runs faster.
template <typename T>
SPLINECNN_INLINE void place(const Spline& spline, int D, int degree, const T* pseudo,
                            Position<T>* at) {
  int stride = 1;
  for (int d = 0; d < D; ++d) {
    T v;
    const int cell = locate(spline, d, pseudo[d], &v);
    bspline(v, degree, at->value[d]);
    for (int i = 0; i <= degree; ++i) {
      int p = cell + i;
      if (p >= spline.kernel_size[d]) p -= spline.kernel_size[d];  // closed splines wrap around
      at->index[d][i] = p * stride;
    }
    stride *= spline.kernel_size[d];
  }
}

template <typename T>
SPLINECNN_INLINE void place(const Spline& spline, const T* pseudo, Position<T>* at) {
  place(spline, spline.D, spline.degree, pseudo, at);
}

// Basis product and weight index of active function s = (i_0, i_1, …).
template <typename T>
SPLINECNN_INLINE T product(const Spline& spline, const Position<T>& at, int s, int* index) {
  T value = T(1);
  int p = 0;
  for (int d = 0; d < spline.D; ++d) {
    const int i = s % (spline.degree + 1);
    s /= spline.degree + 1;
    value = at.value[d][i] * value;
    p += at.index[d][i];
  }
  *index = p;
  return value;
}

}  // namespace splinecnn
