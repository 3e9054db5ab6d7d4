// conv and gather with their gradients, for CUDA tensors.
#include "binding.h"

namespace splinecnn::cuda::ops {
namespace {

void check_grad(const Tensor& grad, const Tensor& x) {
  check_floating(x, "x");
  check_dims(x, "x", 2, "[num_sources, M_in]");
  check_like(grad, "grad", x, 2, "[num_nodes, M_out]");
}

void check_features(const Tensor& y) {
  check_floating(y, "y");
  check_dims(y, "y", 3, "[num_sources, K, C]");
}

ConvSizes sizes(int64_t num_nodes, int64_t num_sources, int64_t num_weights, int64_t in,
                int64_t out) {
  return {int32_t(num_nodes), int32_t(num_sources), int32_t(num_weights), int32_t(in),
          int32_t(out)};
}

Tensor conv(const Tensor& x, const Tensor& weight, const std::optional<Tensor>& root,
            const std::optional<Tensor>& bias, const Tensor& coef, const Tensor& src,
            const Tensor& row_ptr, const Tensor& row_node, const Tensor& group_ptr,
            const Tensor& group_weight, const Tensor& tile_ptr, int64_t num_nodes,
            const std::vector<Tensor>&) {
  const PlanTensors plan{coef, src, row_ptr, row_node, group_ptr, group_weight, tile_ptr};
  check_conv(x, weight, root, bias, num_nodes);
  check_plan(plan, x);
  const Device device(x);
  const Tensor x_ = flat(x), weight_ = flat(weight), out = make(x, {num_nodes, weight.size(2)});
  const std::optional<Tensor> root_ = flat(root), bias_ = flat(bias);
  const ConvSizes size = sizes(num_nodes, x.size(0), weight.size(0), x.size(1), weight.size(2));
  device.check(cuda::conv(dtype_of(x), view(plan, num_nodes), size, x_.const_data_ptr(),
                          weight_.const_data_ptr(), data(root_), data(bias_),
                          out.mutable_data_ptr(), device.stream()));
  return out;
}

Tensor conv_weight_grad(const Tensor& grad, const Tensor& x, const Tensor& coef, const Tensor& src,
                        const Tensor& row_ptr, const Tensor& row_node, const Tensor& group_ptr,
                        const Tensor& group_weight, const Tensor& tile_ptr, int64_t num_weights) {
  const PlanTensors plan{coef, src, row_ptr, row_node, group_ptr, group_weight, tile_ptr};
  check_grad(grad, x);
  check_plan(plan, x);
  SPLINECNN_REQUIRE(num_weights >= 0, "num_weights must not be negative, got ", num_weights);
  const Device device(x);
  const Tensor x_ = flat(x), grad_ = flat(grad);
  const Tensor out = make(x, {num_weights, x.size(1), grad.size(1)});
  const PlanView v = view(plan, grad.size(0));
  const ConvSizes size = sizes(grad.size(0), x.size(0), num_weights, x.size(1), grad.size(1));
  const Tensor workspace = bytes(x, conv_weight_grad_workspace(dtype_of(x), v, size));
  device.check(cuda::conv_weight_grad(dtype_of(x), v, size, grad_.const_data_ptr(),
                                      x_.const_data_ptr(), out.mutable_data_ptr(),
                                      workspace.mutable_data_ptr(), device.stream()));
  return out;
}

Tensor conv_coef_grad(const Tensor& grad, const Tensor& x, const Tensor& weight, const Tensor& coef,
                      const Tensor& src, const Tensor& row_ptr, const Tensor& row_node,
                      const Tensor& group_ptr, const Tensor& group_weight, const Tensor& tile_ptr) {
  const PlanTensors plan{coef, src, row_ptr, row_node, group_ptr, group_weight, tile_ptr};
  check_grad(grad, x);
  check_conv(x, weight, std::nullopt, std::nullopt, grad.size(0));
  check_size(grad, "grad", 1, weight.size(2));
  check_plan(plan, x);
  const Device device(x);
  const Tensor x_ = flat(x), weight_ = flat(weight), grad_ = flat(grad);
  const bool wide = x.scalar_type() == ScalarType::Double;
  Tensor out = make(x, {plan.Q()}, wide ? ScalarType::Double : ScalarType::Float);
  const ConvSizes size = sizes(grad.size(0), x.size(0), weight.size(0), x.size(1), weight.size(2));
  if (x.size(1) == 0) torch::stable::zero_(out);
  device.check(cuda::conv_coef_grad(
      dtype_of(x), view(plan, grad.size(0)), size, grad_.const_data_ptr(), x_.const_data_ptr(),
      weight_.const_data_ptr(), out.mutable_data_ptr(), device.stream()));
  return torch::stable::to(out, x.scalar_type());
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
  const Device device(y);
  const Tensor y_ = flat(y), out = make(y, {num_nodes, y.size(2)});
  const std::optional<Tensor> bias_ = flat(bias);
  device.check(cuda::gather(
      dtype_of(y), view(plan, num_nodes), sizes(num_nodes, y.size(0), y.size(1), 0, y.size(2)),
      y_.const_data_ptr(), data(bias_), out.mutable_data_ptr(), device.stream()));
  return out;
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
  const Device device(grad);
  const Tensor grad_ = flat(grad), out = make(grad, {num_sources, num_weights, grad.size(1)});
  device.check(cuda::gather_grad(dtype_of(grad), view(plan, num_sources),
                                 sizes(grad.size(0), num_sources, num_weights, 0, grad.size(1)),
                                 grad_.const_data_ptr(), out.mutable_data_ptr(), device.stream()));
  return out;
}

Tensor gather_coef_grad(const Tensor& grad, const Tensor& y, const Tensor& coef, const Tensor& src,
                        const Tensor& row_ptr, const Tensor& row_node, const Tensor& group_ptr,
                        const Tensor& group_weight, const Tensor& tile_ptr) {
  const PlanTensors plan{coef, src, row_ptr, row_node, group_ptr, group_weight, tile_ptr};
  check_features(y);
  check_like(grad, "grad", y, 2, "[num_nodes, C]");
  check_size(grad, "grad", 1, y.size(2));
  check_plan(plan, y);
  const Device device(y);
  const Tensor y_ = flat(y), grad_ = flat(grad), out = make(y, {plan.Q()});
  device.check(cuda::gather_coef_grad(dtype_of(y), view(plan, grad.size(0)),
                                      sizes(grad.size(0), y.size(0), y.size(1), 0, y.size(2)),
                                      grad_.const_data_ptr(), y_.const_data_ptr(),
                                      out.mutable_data_ptr(), device.stream()));
  return out;
}

}  // namespace
}  // namespace splinecnn::cuda::ops

SPLINECNN_CUDA_LIBRARY(library) {
  library.impl("conv", TORCH_BOX(&splinecnn::cuda::ops::conv));
  library.impl("conv_weight_grad", TORCH_BOX(&splinecnn::cuda::ops::conv_weight_grad));
  library.impl("conv_coef_grad", TORCH_BOX(&splinecnn::cuda::ops::conv_coef_grad));
  library.impl("gather", TORCH_BOX(&splinecnn::cuda::ops::gather));
  library.impl("gather_grad", TORCH_BOX(&splinecnn::cuda::ops::gather_grad));
  library.impl("gather_coef_grad", TORCH_BOX(&splinecnn::cuda::ops::gather_coef_grad));
}
