// The argument checks that both devices call first, each naming argument, value and place.
#pragma once

#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/ScalarType.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "basis.h"

namespace splinecnn {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

template <typename... Words>
[[noreturn]] void fail(const Words&... words) {
  std::ostringstream text;
  ((text << words), ...);
  throw std::runtime_error(text.str());
}

// A macro, so that the words are put together only when the check fails.
#define SPLINECNN_REQUIRE(holds, ...) \
  do {                                \
    if (!(holds)) fail(__VA_ARGS__);  \
  } while (false)

inline const char* dtype_name(ScalarType type) {
  switch (type) {
    case ScalarType::Float: return "float32";
    case ScalarType::Double: return "float64";
    case ScalarType::Half: return "float16";
    case ScalarType::BFloat16: return "bfloat16";
    case ScalarType::Int: return "int32";
    case ScalarType::Long: return "int64";
    case ScalarType::Bool: return "bool";
    default: return "another dtype";
  }
}

inline std::string shape_of(const Tensor& t) {
  std::ostringstream text;
  text << "[";
  for (int64_t d = 0; d < t.dim(); ++d) text << (d ? ", " : "") << t.size(d);
  text << "]";
  return text.str();
}

inline void check_same_device(const Tensor& t, const char* name, const Tensor& like) {
  SPLINECNN_REQUIRE(t.is_cpu() == like.is_cpu() && t.get_device_index() == like.get_device_index(),
                    name, " must be on the same device as the other arguments");
}

inline void check_dims(const Tensor& t, const char* name, int64_t dims, const char* shape) {
  SPLINECNN_REQUIRE(t.dim() == dims, name, " must be ", shape, ", got ", shape_of(t));
}

inline void check_size(const Tensor& t, const char* name, int64_t dim, int64_t size) {
  SPLINECNN_REQUIRE(t.size(dim) == size, name, " must have size ", size, " in dimension ", dim,
                    ", got ", shape_of(t));
}

inline void check_contiguous(const Tensor& t, const char* name) {
  SPLINECNN_REQUIRE(t.is_contiguous(), name, " must be contiguous");
}

inline void check_dtype(const Tensor& t, const char* name, ScalarType type) {
  SPLINECNN_REQUIRE(t.scalar_type() == type, name, " must be ", dtype_name(type), ", got ",
                    dtype_name(t.scalar_type()));
}

// Features, weights and coefficients: float32 or float64, on CUDA also float16 and bfloat16.
inline void check_floating(const Tensor& t, const char* name) {
  const ScalarType type = t.scalar_type();
  const bool wide = type == ScalarType::Float || type == ScalarType::Double;
  const bool half = type == ScalarType::Half || type == ScalarType::BFloat16;
#ifdef SPLINECNN_EMULATE
  const bool only_wide = false;  // CUDA kernels on CPU tensors, see tests/ops/cuda
#else
  const bool only_wide = t.is_cpu();
#endif
  if (only_wide)
    SPLINECNN_REQUIRE(wide, name, " must be float32 or float64, got ", dtype_name(type));
  else
    SPLINECNN_REQUIRE(wide || half, name, " must be float32, float64, float16 or bfloat16, got ",
                      dtype_name(type));
}

// A second floating tensor: dtype and device as the first, of the given number of dimensions.
inline void check_like(const Tensor& t, const char* name, const Tensor& like, int64_t dims,
                       const char* shape) {
  check_same_device(t, name, like);
  check_dtype(t, name, like.scalar_type());
  check_dims(t, name, dims, shape);
}

inline void check_ints(const Tensor& t, const char* name, const Tensor& like, ScalarType type) {
  check_same_device(t, name, like);
  check_dtype(t, name, type);
  check_dims(t, name, 1, "one-dimensional");
  check_contiguous(t, name);
}

[[noreturn]] inline void fail_pseudo(double value, int64_t edge, int64_t dim) {
  fail("pseudo must lie in [0, 1], got ", value, " at edge ", edge, ", dimension ", dim);
}

[[noreturn]] inline void fail_edge(int64_t value, int64_t bound, int64_t row, int64_t edge) {
  fail("edge_index must lie in [0, ", bound, "), got ", value, " at [", row, ", ", edge, "]");
}

[[noreturn]] inline void fail_index(const char* name, int64_t value, int64_t bound, int64_t at) {
  fail(name, " must lie in [0, ", bound, "), got ", value, " at ", at);
}

// The caller knows a plan's group_weight only as the rows of the weights it was made for.
[[noreturn]] inline void fail_weights(int64_t largest, int64_t rows) {
  fail("weight must have at least ", largest + 1, " rows for this plan, got ", rows);
}

// Everything about `pseudo` and the kernel but the values, which live on the device.
inline Spline check_spline(const Tensor& pseudo, const std::vector<int64_t>& kernel_size,
                           const std::vector<int64_t>& is_open, int64_t degree) {
  check_floating(pseudo, "pseudo");
  check_dims(pseudo, "pseudo", 2, "[E, D]");
  const int64_t D = pseudo.size(1);
  SPLINECNN_REQUIRE(D >= 1, "pseudo must have at least one dimension, got none");
  SPLINECNN_REQUIRE(1 <= degree && degree <= MAX_DEGREE, "degree must be 1, 2 or 3, got ", degree);
  SPLINECNN_REQUIRE(int64_t(kernel_size.size()) == D && int64_t(is_open.size()) == D,
                    "kernel_size and is_open must have one entry per dimension of pseudo (", D,
                    "), got ", kernel_size.size(), " and ", is_open.size());
  Spline spline{};
  spline.D = int(D);
  spline.degree = int(degree);
  int64_t S = 1, K = 1;
  for (int64_t d = 0; d < D; ++d) {
    const int64_t k = kernel_size[d];
    SPLINECNN_REQUIRE(k >= degree + 1, "kernel_size must be at least degree + 1 = ", degree + 1,
                      ", got ", k, " in dimension ", d);
    SPLINECNN_REQUIRE(k < std::numeric_limits<int32_t>::max() / K,
                      "kernel_size must have a product below 2^31, too large in dimension ", d);
    SPLINECNN_REQUIRE(is_open[d] == 0 || is_open[d] == 1, "is_open must be 0 or 1, got ",
                      is_open[d], " in dimension ", d);
    spline.kernel_size[d] = int(k);
    spline.intervals[d] = int(is_open[d] ? k - degree : k);
    K *= k;
    S *= degree + 1;
  }
  spline.S = int(S);
  spline.K = int(K);
  SPLINECNN_REQUIRE(pseudo.size(0) < std::numeric_limits<int32_t>::max() / S,
                    "pseudo has too many edges: E * S must stay below 2^31, got ", pseudo.size(0),
                    " * ", S);
  return spline;
}

inline void check_edges(const Tensor& edge_index, const Tensor& pseudo, int64_t num_nodes,
                        int64_t num_sources) {
  check_same_device(edge_index, "edge_index", pseudo);
  check_dtype(edge_index, "edge_index", ScalarType::Long);
  SPLINECNN_REQUIRE(edge_index.dim() == 2 && edge_index.size(0) == 2,
                    "edge_index must be [2, E], got ", shape_of(edge_index));
  SPLINECNN_REQUIRE(edge_index.size(1) == pseudo.size(0),
                    "edge_index and pseudo must have the same number of edges, got ",
                    edge_index.size(1), " and ", pseudo.size(0));
  const int64_t most = std::numeric_limits<int32_t>::max();
  SPLINECNN_REQUIRE(0 <= num_nodes && num_nodes < most, "num_nodes must lie in [0, 2^31), got ",
                    num_nodes);
  SPLINECNN_REQUIRE(0 <= num_sources && num_sources < most,
                    "num_sources must lie in [0, 2^31), got ", num_sources);
}

// The tensors of a plan as kernels take them, with their sizes (see Plan in ops/spline.py).
struct PlanTensors {
  const Tensor &coef, &src, &row_ptr, &row_node, &group_ptr, &group_weight, &tile_ptr;
  int64_t Q() const { return coef.size(0); }
  int64_t R() const { return row_node.size(0); }
  int64_t G() const { return group_weight.size(0); }
  int64_t tiles() const { return tile_ptr.size(0) - 1; }
};

// Shapes and dtypes only: whether the indices are in range is for each device to see.
inline void check_plan(const PlanTensors& plan, const Tensor& like) {
  check_like(plan.coef, "coef", like, 1, "[Q]");
  check_contiguous(plan.coef, "coef");
  check_ints(plan.src, "src", like, ScalarType::Int);
  check_ints(plan.row_ptr, "row_ptr", like, ScalarType::Int);
  check_ints(plan.row_node, "row_node", like, ScalarType::Int);
  check_ints(plan.group_ptr, "group_ptr", like, ScalarType::Int);
  check_ints(plan.group_weight, "group_weight", like, ScalarType::Int);
  check_ints(plan.tile_ptr, "tile_ptr", like, ScalarType::Int);
  check_size(plan.src, "src", 0, plan.Q());
  check_size(plan.row_ptr, "row_ptr", 0, plan.R() + 1);
  check_size(plan.group_ptr, "group_ptr", 0, plan.G() + 1);
  SPLINECNN_REQUIRE(plan.tiles() >= 0, "tile_ptr must not be empty");
}

inline void check_conv(const Tensor& x, const Tensor& weight, const std::optional<Tensor>& root,
                       const std::optional<Tensor>& bias, int64_t num_nodes) {
  check_floating(x, "x");
  check_dims(x, "x", 2, "[num_sources, M_in]");
  check_like(weight, "weight", x, 3, "[K, M_in, M_out]");
  check_size(weight, "weight", 1, x.size(1));
  SPLINECNN_REQUIRE(num_nodes >= 0, "num_nodes must not be negative, got ", num_nodes);
  if (root) {
    check_like(*root, "root", x, 2, "[M_in, M_out]");
    check_size(*root, "root", 0, x.size(1));
    check_size(*root, "root", 1, weight.size(2));
    SPLINECNN_REQUIRE(x.size(0) == num_nodes, "root needs as many sources as nodes, got ",
                      x.size(0), " and ", num_nodes);
  }
  if (bias) {
    check_like(*bias, "bias", x, 1, "[M_out]");
    check_size(*bias, "bias", 0, weight.size(2));
  }
}

inline void check_head(const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias,
                       int64_t k) {
  check_floating(x, "x");
  check_dims(x, "x", 2, "[N, F]");
  check_like(weight, "weight", x, 2, "[C, F]");
  check_size(weight, "weight", 1, x.size(1));
  if (bias) {
    check_like(*bias, "bias", x, 1, "[C]");
    check_size(*bias, "bias", 0, weight.size(0));
  }
  SPLINECNN_REQUIRE(1 <= k && k <= weight.size(0), "k must lie in [1, ", weight.size(0), "], got ",
                    k);
}

inline void check_sparse(const Tensor& ptr, const Tensor& index, const std::optional<Tensor>& value,
                         const Tensor& dense) {
  check_floating(dense, "dense");
  check_dims(dense, "dense", 2, "[rows, C]");
  const ScalarType type = ptr.scalar_type();
  SPLINECNN_REQUIRE(type == ScalarType::Int || type == ScalarType::Long,
                    "ptr must be int32 or int64, got ", dtype_name(type));
  check_ints(ptr, "ptr", dense, type);
  check_ints(index, "index", dense, type);
  SPLINECNN_REQUIRE(ptr.size(0) >= 1, "ptr must have at least one entry");
  if (value) {
    check_like(*value, "value", dense, 1, "[nnz]");
    check_size(*value, "value", 0, index.size(0));
  }
}

}  // namespace splinecnn
