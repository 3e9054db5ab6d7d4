// Spline convolution over a plan, and its gradients for weights and coefficients.
#include <torch/csrc/stable/library.h>

#include <vector>

#include "dispatch.h"
#include "tensors.h"

namespace splinecnn::cpu {
namespace {

Tensor conv(const Tensor& x, const Tensor& weight, const std::optional<Tensor>& root,
            const std::optional<Tensor>& bias, const Tensor& coef, const Tensor& src,
            const Tensor& row_ptr, const Tensor& row_node, const Tensor& group_ptr,
            const Tensor& group_weight, const Tensor& tile_ptr, int64_t num_nodes,
            const std::vector<Tensor>&) {
  const PlanTensors plan{coef, src, row_ptr, row_node, group_ptr, group_weight, tile_ptr};
  check_conv(x, weight, root, bias, num_nodes);
  check_plan(plan, x);
  const Tensor x_ = flat(x), weight_ = flat(weight);
  const std::optional<Tensor> root_ = flat(root), bias_ = flat(bias);
  return with_dtype(x, [&](auto zero) {
    using T = decltype(zero);
    const Tensor out = make<T>({num_nodes, weight.size(2)});
    const Conv<T> work{view<T>(plan, num_nodes, x.size(0), weight.size(0)),
                       data<T>(x_),
                       data<T>(weight_),
                       data<T>(root_),
                       data<T>(bias_),
                       writable<T>(out),
                       x.size(1),
                       weight.size(2)};
    for_each(work.plan.tiles, [&](int64_t tile) { kernels<T>().conv_tile(work, tile); });
    return out;
  });
}

void check_grad(const Tensor& grad, const Tensor& x) {
  check_floating(x, "x");
  check_dims(x, "x", 2, "[num_sources, M_in]");
  check_like(grad, "grad", x, 2, "[num_nodes, M_out]");
}

// The rows of each weight, in order of their nodes whatever the tiles.
struct RowsByWeight {
  std::vector<int64_t> ptr;
  std::vector<int32_t> row;

  template <typename T>
  RowsByWeight(const PlanView<T>& plan, int64_t G, int64_t R, int64_t K) : ptr(K + 1), row(R) {
    for (int64_t g = 0; g < G; ++g)
      ptr[plan.group_weight[g] + 1] += plan.group_ptr[g + 1] - plan.group_ptr[g];
    for (int64_t p = 0; p < K; ++p) ptr[p + 1] += ptr[p];
    std::vector<int64_t> next(ptr.begin(), ptr.end() - 1);
    for (int64_t g = 0; g < G; ++g)
      for (int64_t r = plan.group_ptr[g]; r < plan.group_ptr[g + 1]; ++r)
        row[next[plan.group_weight[g]]++] = int32_t(r);
  }
};

Tensor conv_weight_grad(const Tensor& grad, const Tensor& x, const Tensor& coef, const Tensor& src,
                        const Tensor& row_ptr, const Tensor& row_node, const Tensor& group_ptr,
                        const Tensor& group_weight, const Tensor& tile_ptr, int64_t num_weights) {
  const PlanTensors plan{coef, src, row_ptr, row_node, group_ptr, group_weight, tile_ptr};
  check_grad(grad, x);
  check_plan(plan, x);
  SPLINECNN_REQUIRE(num_weights >= 0, "num_weights must not be negative, got ", num_weights);
  const Tensor x_ = flat(x), grad_ = flat(grad);
  return with_dtype(x, [&](auto zero) {
    using T = decltype(zero);
    constexpr int64_t CHUNK = 2048;  // rows summed at once: fixed, so that the bits are too
    const int64_t K = num_weights, size = x.size(1) * grad.size(1);
    const WeightGrad<T> work{view<T>(plan, grad.size(0), x.size(0), K), data<T>(x_), data<T>(grad_),
                             x.size(1), grad.size(1)};
    const Tensor out = make<T>({K, x.size(1), grad.size(1)});
    const RowsByWeight rows(work.plan, plan.G(), plan.R(), K);

    struct Item {
      int64_t weight, first, part;  // part -1 writes the result itself
    };
    std::vector<Item> items;
    int64_t parts = 0;
    for (int64_t p = 0; p < K; ++p) {
      items.push_back({p, rows.ptr[p], -1});
      for (int64_t r = rows.ptr[p] + CHUNK; r < rows.ptr[p + 1]; r += CHUNK)
        items.push_back({p, r, parts++});
    }
    std::vector<T> part(parts * size);
    T* const result = writable<T>(out);
    for_each(int64_t(items.size()), [&](int64_t i) {
      const Item& item = items[i];
      const int64_t count = std::min(CHUNK, rows.ptr[item.weight + 1] - item.first);
      T* const to = item.part < 0 ? result + item.weight * size : part.data() + item.part * size;
      kernels<T>().weight_grad(work, rows.row.data() + item.first, count, to);
    });
    for (const Item& item : items)
      if (item.part >= 0)
        for (int64_t i = 0; i < size; ++i)
          result[item.weight * size + i] += part[item.part * size + i];
    return out;
  });
}

Tensor conv_coef_grad(const Tensor& grad, const Tensor& x, const Tensor& weight, const Tensor& coef,
                      const Tensor& src, const Tensor& row_ptr, const Tensor& row_node,
                      const Tensor& group_ptr, const Tensor& group_weight, const Tensor& tile_ptr) {
  const PlanTensors plan{coef, src, row_ptr, row_node, group_ptr, group_weight, tile_ptr};
  check_grad(grad, x);
  check_conv(x, weight, std::nullopt, std::nullopt, grad.size(0));
  check_size(grad, "grad", 1, weight.size(2));
  check_plan(plan, x);
  const Tensor x_ = flat(x), grad_ = flat(grad),
               weight_t = flat(torch::stable::transpose(weight, 1, 2));
  return with_dtype(x, [&](auto zero) {
    using T = decltype(zero);
    const Tensor out = make<T>({plan.Q()});
    const CoefGrad<T> work{view<T>(plan, grad.size(0), x.size(0), weight.size(0)),
                           data<T>(x_),
                           data<T>(grad_),
                           data<T>(weight_t),
                           writable<T>(out),
                           x.size(1),
                           weight.size(2)};
    for_each(work.plan.tiles, [&](int64_t tile) { kernels<T>().coef_grad_tile(work, tile); });
    return out;
  });
}

}  // namespace
}  // namespace splinecnn::cpu

STABLE_TORCH_LIBRARY_IMPL(splinecnn, CPU, library) {
  library.impl("conv", TORCH_BOX(&splinecnn::cpu::conv));
  library.impl("conv_weight_grad", TORCH_BOX(&splinecnn::cpu::conv_weight_grad));
  library.impl("conv_coef_grad", TORCH_BOX(&splinecnn::cpu::conv_coef_grad));
}
