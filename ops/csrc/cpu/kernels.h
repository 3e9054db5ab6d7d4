// The serial kernels that are built once per SIMD level, as tables of function pointers.
#pragma once

#include <cstdint>

#include "../basis.h"

namespace splinecnn::cpu {

constexpr int MAX_LANES = 128;

// The active functions of some edges, one beside the other: pseudo [D, lanes] becomes value and
// weight [S, lanes]. `lanes` is 16 times something, at most MAX_LANES; divisor [lanes] may be null.
template <typename T>
struct Expand {
  const Spline& spline;
  int64_t lanes;
  const T *pseudo, *divisor;
  bool keep_zeros;  // otherwise the weight of a zero becomes -1
  T* value;
  int32_t* weight;
};

struct Expanded {
  bool outside, dropped;  // whether a coordinate was outside [0, 1]; whether a weight became -1
};

// A checked plan (see Plan in ops/spline.py); node i of tile t lies in [t * size, (t + 1) * size).
template <typename T>
struct PlanView {
  const T* coef;
  const int32_t *src, *row_ptr, *row_node, *group_ptr, *group_weight, *tile_ptr;
  int64_t tiles, nodes, tile_nodes;
};

// A weighted sum of rows: out[c] (+)= sum over q of coef[q] * x[index[q] * ld + c].
// coef may be null, which means ones.
template <typename T, typename Index>
using Combine = void (*)(T* out, bool add, const T* coef, const Index* index, int64_t count,
                         const T* x, int64_t ld, int64_t columns);

template <typename T>
struct Conv {
  PlanView<T> plan;
  const T *x, *weight, *root, *bias;  // root and bias may be null
  T* out;
  int64_t M_in, M_out;
};

// Part of one weight's gradient: `count` rows, starting `first` rows into the given groups.
template <typename T>
struct WeightGrad {
  PlanView<T> plan;
  const T *x, *grad;
  int64_t M_in, M_out;
};

template <typename T>
struct CoefGrad {
  PlanView<T> plan;
  const T *x, *grad, *weight_t;  // weight_t [K, M_out, M_in]
  T* out;
  int64_t M_in, M_out;
};

// y [sources, K, C]; `out` is [nodes, C] for the sum, [Q] for the gradient of the coefficients.
template <typename T>
struct Gather {
  PlanView<T> plan;
  const T *y, *bias, *grad;
  T* out;
  int64_t K, C;
};

// The packed weight of a head: stripes of columns, in each chunks of rows, in each panels.
template <typename T>
struct Head {
  const T *x, *packed, *bias;  // bias padded by -inf to whole stripes
  T *value, *logsumexp;
  int64_t* index;
  int64_t N, F, C, k;
};

template <typename T>
struct Kernels {
  Expanded (*expand)(const Expand<T>&);
  Combine<T, int32_t> combine32;
  Combine<T, int64_t> combine64;
  void (*conv_tile)(const Conv<T>&, int64_t tile);
  void (*weight_grad)(const WeightGrad<T>&, const int32_t* rows, int64_t count, T* out);
  void (*coef_grad_tile)(const CoefGrad<T>&, int64_t tile);
  void (*gather_tile)(const Gather<T>&, int64_t tile);
  void (*gather_coef_grad_tile)(const Gather<T>&, int64_t tile);
  // floats of a packed weight, then the packing of one stripe, then some rows of the head
  int64_t (*head_packed_size)(int64_t F, int64_t C);
  int64_t (*head_stripes)(int64_t C);
  void (*head_pack)(const T* weight, int64_t F, int64_t C, int64_t stripe, T* packed);
  int64_t (*head_columns)(int64_t C);  // C rounded up to whole stripes
  void (*head_rows)(const Head<T>&, int64_t begin, int64_t end);
};

struct Level {
  const char* name;
  Kernels<float> float32;
  Kernels<double> float64;
};

}  // namespace splinecnn::cpu
