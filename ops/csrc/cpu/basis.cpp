// Basis values and weight indices of every edge, and the gradient of the coordinates.
#include <torch/csrc/stable/library.h>

#include <tuple>

#include "expand.h"

namespace splinecnn::cpu {
namespace {

constexpr int64_t EDGES_AT_ONCE = 1024;

std::tuple<Tensor, Tensor> basis(const Tensor& pseudo, const Sizes& kernel_size,
                                 const Sizes& is_open, int64_t degree) {
  const Spline spline = check_spline(pseudo, kernel_size, is_open, degree);
  const Tensor u = flat(pseudo);
  const int64_t E = u.size(0), S = spline.S;
  return with_dtype(u, [&](auto zero) {
    using T = decltype(zero);
    const Tensor value = make<T>({E, S}), index = make<int64_t>({E, S});
    FirstPlace outside;
    for_each((E + EDGES_AT_ONCE - 1) / EDGES_AT_ONCE, [&](int64_t part) {
      const int64_t last = std::min(E, (part + 1) * EDGES_AT_ONCE);
      Block<T> block(S);
      for (int64_t e = part * EDGES_AT_ONCE; e < last; e += block.count) {
        block.count = std::min(last - e, block.lanes);
        for (int64_t b = 0; b < block.count; ++b) block.unit[b] = int32_t(e + b);
        expand(spline, data<T>(u), true, false, &block, &outside);
        for (int64_t b = 0; b < block.count; ++b)
          for (int64_t s = 0; s < S; ++s) {
            writable<T>(value)[(e + b) * S + s] = block.value[s * block.lanes + b];
            writable<int64_t>(index)[(e + b) * S + s] = block.weight[s * block.lanes + b];
          }
      }
    });
    report(outside, data<T>(u), spline.D);
    return std::make_tuple(value, index);
  });
}

Tensor basis_grad(const Tensor& grad, const Tensor& pseudo, const Sizes& kernel_size,
                  const Sizes& is_open, int64_t degree) {
  const Spline spline = check_spline(pseudo, kernel_size, is_open, degree);
  check_like(grad, "grad", pseudo, 2, "[E, S]");
  check_size(grad, "grad", 0, pseudo.size(0));
  check_size(grad, "grad", 1, spline.S);
  const Tensor u = flat(pseudo), g = flat(grad);
  const int64_t E = u.size(0), S = spline.S, D = spline.D;
  return with_dtype(u, [&](auto zero) {
    using T = decltype(zero);
    const Tensor out = make<T>({E, D});
    FirstPlace outside;
    for_each((E + EDGES_AT_ONCE - 1) / EDGES_AT_ONCE, [&](int64_t part) {
      for (int64_t e = part * EDGES_AT_ONCE; e < std::min(E, (part + 1) * EDGES_AT_ONCE); ++e) {
        if (!inside(data<T>(u) + e * D, D)) return outside.note(e);
        Position<T> at;
        place(spline, data<T>(u) + e * D, &at);
        for (int d = 0; d < D; ++d) {
          // the product rule: dimension d by its derivative, the others as they are
          T v, slope[MAX_DEGREE + 1], kept[MAX_DEGREE + 1];
          locate(spline, d, data<T>(u)[e * D + d], &v);
          bspline_grad(v, spline.degree, slope);
          for (int i = 0; i <= spline.degree; ++i) {
            kept[i] = at.value[d][i];
            at.value[d][i] = slope[i] * T(spline.intervals[d]);
          }
          T sum = T(0);
          int index;
          for (int s = 0; s < S; ++s) sum += data<T>(g)[e * S + s] * product(spline, at, s, &index);
          for (int i = 0; i <= spline.degree; ++i) at.value[d][i] = kept[i];
          writable<T>(out)[e * D + d] = sum;
        }
      }
    });
    report(outside, data<T>(u), spline.D);
    return out;
  });
}

}  // namespace
}  // namespace splinecnn::cpu

STABLE_TORCH_LIBRARY_IMPL(splinecnn, CPU, library) {
  library.impl("basis", TORCH_BOX(&splinecnn::cpu::basis));
  library.impl("basis_grad", TORCH_BOX(&splinecnn::cpu::basis_grad));
}
