// The other order of work: features that every weight has transformed already, summed over edges.
#include <torch/csrc/stable/library.h>

#include <vector>

#include "dispatch.h"
#include "tensors.h"

namespace splinecnn::cpu {
namespace {

void check_features(const Tensor& y) {
  check_floating(y, "y");
  check_dims(y, "y", 3, "[num_sources, K, C]");
}

Tensor gather(const Tensor& y, const std::optional<Tensor>& bias, const Tensor& coef,
              const Tensor& src, const Tensor& row_ptr, const Tensor& row_node,
              const Tensor& group_ptr, const Tensor& group_weight, const Tensor& tile_ptr,
              int64_t num_nodes, const std::vector<Tensor>&) {
  const PlanTensors plan{coef, src, row_ptr, row_node, group_ptr, group_weight, tile_ptr};
  check_features(y);
  if (bias) {
    check_like(*bias, "bias", y, 1, "[C]");
    check_size(*bias, "bias", 0, y.size(2));
  }
  SPLINECNN_REQUIRE(num_nodes >= 0, "num_nodes must not be negative, got ", num_nodes);
  check_plan(plan, y);
  const Tensor y_ = flat(y);
  const std::optional<Tensor> bias_ = flat(bias);
  return with_dtype(y, [&](auto zero) {
    using T = decltype(zero);
    const Tensor out = make<T>({num_nodes, y.size(2)});
    const Gather<T> work{view<T>(plan, num_nodes, y.size(0), y.size(1)),
                         data<T>(y_),
                         data<T>(bias_),
                         nullptr,
                         writable<T>(out),
                         y.size(1),
                         y.size(2)};
    for_each(work.plan.tiles, [&](int64_t tile) { kernels<T>().gather_tile(work, tile); });
    return out;
  });
}

Tensor gather_grad(const Tensor& grad, const Tensor& coef, const Tensor& src, const Tensor& row_ptr,
                   const Tensor& row_node, const Tensor& group_ptr, const Tensor& group_weight,
                   const Tensor& tile_ptr, int64_t num_sources, int64_t num_weights) {
  const PlanTensors plan{coef, src, row_ptr, row_node, group_ptr, group_weight, tile_ptr};
  check_floating(grad, "grad");
  check_dims(grad, "grad", 2, "[num_nodes, C]");
  SPLINECNN_REQUIRE(num_sources >= 0, "num_sources must not be negative, got ", num_sources);
  SPLINECNN_REQUIRE(num_weights >= 0, "num_weights must not be negative, got ", num_weights);
  check_plan(plan, grad);
  const Tensor grad_ = flat(grad);
  return with_dtype(grad, [&](auto zero) {
    using T = decltype(zero);
    const int64_t C = grad.size(1);
    const PlanView<T> v = view<T>(plan, num_sources, grad.size(0), num_weights);
    const Tensor out = make<T>({num_sources, num_weights, C});
    T* const to = writable<T>(out);
    for_each(v.tiles, [&](int64_t t) {
      const int64_t begin = t * v.tile_nodes, end = std::min(begin + v.tile_nodes, num_sources);
      if (begin < end) std::fill(to + begin * num_weights * C, to + end * num_weights * C, T(0));
      for (int64_t g = v.tile_ptr[t]; g < v.tile_ptr[t + 1]; ++g)
        for (int64_t r = v.group_ptr[g]; r < v.group_ptr[g + 1]; ++r) {
          const int64_t q = v.row_ptr[r];
          kernels<T>().combine32(to + (v.row_node[r] * num_weights + v.group_weight[g]) * C, false,
                                 v.coef + q, v.src + q, v.row_ptr[r + 1] - q, data<T>(grad_), C, C);
        }
    });
    return out;
  });
}

Tensor gather_coef_grad(const Tensor& grad, const Tensor& y, const Tensor& coef, const Tensor& src,
                        const Tensor& row_ptr, const Tensor& row_node, const Tensor& group_ptr,
                        const Tensor& group_weight, const Tensor& tile_ptr) {
  const PlanTensors plan{coef, src, row_ptr, row_node, group_ptr, group_weight, tile_ptr};
  check_features(y);
  check_like(grad, "grad", y, 2, "[num_nodes, C]");
  check_size(grad, "grad", 1, y.size(2));
  check_plan(plan, y);
  const Tensor y_ = flat(y), grad_ = flat(grad);
  return with_dtype(y, [&](auto zero) {
    using T = decltype(zero);
    const Tensor out = make<T>({plan.Q()});
    const Gather<T> work{view<T>(plan, grad.size(0), y.size(0), y.size(1)),
                         data<T>(y_),
                         nullptr,
                         data<T>(grad_),
                         writable<T>(out),
                         y.size(1),
                         y.size(2)};
    for_each(work.plan.tiles,
             [&](int64_t tile) { kernels<T>().gather_coef_grad_tile(work, tile); });
    return out;
  });
}

}  // namespace
}  // namespace splinecnn::cpu

STABLE_TORCH_LIBRARY_IMPL(splinecnn, CPU, library) {
  library.impl("gather", TORCH_BOX(&splinecnn::cpu::gather));
  library.impl("gather_grad", TORCH_BOX(&splinecnn::cpu::gather_grad));
  library.impl("gather_coef_grad", TORCH_BOX(&splinecnn::cpu::gather_coef_grad));
}
