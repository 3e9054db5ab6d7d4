// The head: a linear layer whose outputs are never stored, only their k best and log-sum-exp.
#include <torch/csrc/stable/library.h>

#include <cmath>
#include <tuple>
#include <vector>

#include "dispatch.h"
#include "tensors.h"

namespace splinecnn::cpu {
namespace {

std::tuple<Tensor, Tensor, Tensor> head(const Tensor& x, const Tensor& weight,
                                        const std::optional<Tensor>& bias, int64_t k) {
  check_head(x, weight, bias, k);
  const Tensor x_ = flat(x), weight_ = flat(weight);
  const std::optional<Tensor> bias_ = flat(bias);
  const int64_t N = x.size(0), F = x.size(1), C = weight.size(0);
  return with_dtype(x, [&](auto zero) {
    using T = decltype(zero);
    const Kernels<T>& kernel = kernels<T>();
    const Tensor value = make<T>({N, k}), index = make<int64_t>({N, k}), logsumexp = make<T>({N});
    if (N == 0) return std::make_tuple(value, index, logsumexp);
    const Tensor packed = make<T>({kernel.head_packed_size(F, C)});
    for_each(kernel.head_stripes(C), [&](int64_t stripe) {
      kernel.head_pack(data<T>(weight_), F, C, stripe, writable<T>(packed));
    });
    std::vector<T> padded(kernel.head_columns(C), -INFINITY);
    for (int64_t c = 0; c < C; ++c) padded[c] = bias ? data<T>(bias_)[c] : T(0);
    const Head<T> work{data<T>(x_),
                       data<T>(packed),
                       padded.data(),
                       writable<T>(value),
                       writable<T>(logsumexp),
                       writable<int64_t>(index),
                       N,
                       F,
                       C,
                       k};
    constexpr int64_t ROWS = 224;
    for_each((N + ROWS - 1) / ROWS, [&](int64_t part) {
      kernel.head_rows(work, part * ROWS, std::min(N, (part + 1) * ROWS));
    });
    return std::make_tuple(value, index, logsumexp);
  });
}

}  // namespace
}  // namespace splinecnn::cpu

STABLE_TORCH_LIBRARY_IMPL(splinecnn, CPU, library) {
  library.impl("head", TORCH_BOX(&splinecnn::cpu::head));
}
