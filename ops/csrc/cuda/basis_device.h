// One active basis function of one edge, kept in registers; the polynomials are those of basis.h.
#pragma once

#include "common.h"

namespace splinecnn::cuda {

// The first dimension whose coordinate is not in [0, 1] (or is no number), -1 if none.
template <typename T>
__device__ int first_outside(const Spline& spline, const T* pseudo) {
  for (int d = 0; d < spline.D; ++d) {
    const Acc<T> u = widen(pseudo[d]);
    if (!(u >= 0 && u <= 1)) return d;
  }
  return -1;
}

// As `locate` in basis.h, with the product rounded before the cell is taken from it.
template <typename A>
__device__ int locate_rounded(const Spline& spline, int d, A u, A* v) {
  const int intervals = spline.intervals[d];
  const A scaled = rounded_product(u, A(intervals));
  int cell = int(scaled);
  if (cell > intervals - 1) cell = intervals - 1;
  *v = scaled - A(cell);
  return cell;
}

template <typename A>
__device__ A pick(const A (&b)[MAX_DEGREE + 1], int which) {
  return which == 0 ? b[0] : which == 1 ? b[1] : which == 2 ? b[2] : b[3];
}

template <typename A>
__device__ A one_value(A v, int degree, int which) {
  A b[MAX_DEGREE + 1] = {};
  bspline(v, degree, b);
  return pick(b, which);
}

template <typename A>
__device__ A one_gradient(A v, int degree, int which) {
  A b[MAX_DEGREE + 1] = {};
  bspline_grad(v, degree, b);
  return pick(b, which);
}

// Basis product and weight index of active function s at one edge's coordinates.
template <typename T>
__device__ Acc<T> basis_product(const Spline& spline, const T* pseudo, int s, int* index) {
  Acc<T> value = 1;
  int p = 0, stride = 1;
  for (int d = 0; d < spline.D; ++d, s /= spline.degree + 1) {
    const int which = s % (spline.degree + 1);
    Acc<T> v;
    int at = locate_rounded(spline, d, widen(pseudo[d]), &v) + which;
    if (at >= spline.kernel_size[d]) at -= spline.kernel_size[d];  // closed splines wrap around
    value = one_value(v, spline.degree, which) * value;
    p += at * stride;
    stride *= spline.kernel_size[d];
  }
  *index = p;
  return value;
}

}  // namespace splinecnn::cuda
