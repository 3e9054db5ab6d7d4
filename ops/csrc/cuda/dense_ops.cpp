// The two ends of a network for CUDA tensors: sparse features in, the fused head out.
#include <tuple>

#include "binding.h"

namespace splinecnn::cuda::ops {
namespace {

SparseInput sparse_input(const Tensor& ptr, const Tensor& index, const std::optional<Tensor>& value,
                         const Tensor& dense, int64_t columns) {
  SparseInput in{};
  in.dtype = dtype_of(dense);
  in.wide = ptr.scalar_type() == ScalarType::Long;
  in.ptr = ptr.const_data_ptr();
  in.index = index.const_data_ptr();
  in.value = data(value);
  in.rows = ptr.size(0) - 1;
  in.nonzeros = index.size(0);
  in.columns = columns;
  in.dense = dense.const_data_ptr();
  in.width = dense.size(1);
  return in;
}

int64_t index_at(const Device& device, const SparseInput& in, const void* array, int64_t at) {
  if (in.wide) return device.read<int64_t>(static_cast<const int64_t*>(array) + at);
  return device.read<int32_t>(static_cast<const int32_t*>(array) + at);
}

void check_indices(const Device& device, const SparseInput& in, const Tensor& like) {
  const Tensor record = bytes(like, sizeof(SparseRecord));
  auto* const at = static_cast<SparseRecord*>(record.mutable_data_ptr());
  device.check(cuda::check_rows(in, at, device.stream()));
  const auto bad = device.read<SparseRecord>(at);
  if (bad.bad_ptr != NOTHING_BAD) {
    const int64_t first = index_at(device, in, in.ptr, 0);
    const int64_t last = index_at(device, in, in.ptr, in.rows);
    SPLINECNN_REQUIRE(first == 0 && last == in.nonzeros, "ptr must run from 0 to ", in.nonzeros,
                      ", got ", first, " to ", last);
    const auto i = int64_t(bad.bad_ptr);
    fail("ptr must not decrease, got ", index_at(device, in, in.ptr, i), " after ",
         index_at(device, in, in.ptr, i - 1), " at ", i);
  }
  if (bad.bad_index != NOTHING_BAD)
    fail_index("index", index_at(device, in, in.index, int64_t(bad.bad_index)), in.columns,
               int64_t(bad.bad_index));
}

Tensor spmm(const Tensor& ptr, const Tensor& index, const std::optional<Tensor>& value,
            const Tensor& dense) {
  check_sparse(ptr, index, value, dense);
  const Device device(dense);
  const Tensor dense_ = flat(dense);
  const std::optional<Tensor> value_ = flat(value);
  const SparseInput in = sparse_input(ptr, index, value_, dense_, dense.size(0));
  check_indices(device, in, dense);
  const Tensor out = make(dense, {in.rows, in.width});
  device.check(cuda::spmm(in, out.mutable_data_ptr(), device.stream()));
  return out;
}

Tensor spmm_t(const Tensor& ptr, const Tensor& index, const std::optional<Tensor>& value,
              const Tensor& dense, int64_t num_columns) {
  check_sparse(ptr, index, value, dense);
  check_size(dense, "dense", 0, ptr.size(0) - 1);
  SPLINECNN_REQUIRE(num_columns >= 0, "num_columns must not be negative, got ", num_columns);
  SPLINECNN_REQUIRE(index.size(0) < std::numeric_limits<int32_t>::max(),
                    "index must have fewer than 2^31 entries, got ", index.size(0));
  const Device device(dense);
  const Tensor dense_ = flat(dense);
  const std::optional<Tensor> value_ = flat(value);
  const SparseInput in = sparse_input(ptr, index, value_, dense_, num_columns);
  check_indices(device, in, dense);
  const Tensor out = make(dense, {num_columns, in.width});
  const Tensor workspace = bytes(dense, spmm_t_workspace(in));
  device.check(
      cuda::spmm_t(in, out.mutable_data_ptr(), workspace.mutable_data_ptr(), device.stream()));
  return out;
}

std::tuple<Tensor, Tensor, Tensor> head(const Tensor& x, const Tensor& weight,
                                        const std::optional<Tensor>& bias, int64_t k) {
  check_head(x, weight, bias, k);
  const Device device(x);
  const Tensor x_ = flat(x), weight_ = flat(weight);
  const std::optional<Tensor> bias_ = flat(bias);
  const int64_t N = x.size(0), F = x.size(1), C = weight.size(0);
  const Tensor value = make(x, {N, k}), index = make(x, {N, k}, ScalarType::Long),
               logsumexp = make(x, {N}), workspace = bytes(x, head_workspace(dtype_of(x), N, C, k));
  device.check(cuda::head(dtype_of(x), x_.const_data_ptr(), weight_.const_data_ptr(), data(bias_),
                          N, F, C, k, value.mutable_data_ptr(), index.mutable_data_ptr<int64_t>(),
                          logsumexp.mutable_data_ptr(), workspace.mutable_data_ptr(),
                          device.stream()));
  return {value, index, logsumexp};
}

}  // namespace
}  // namespace splinecnn::cuda::ops

SPLINECNN_CUDA_LIBRARY(library) {
  library.impl("spmm", TORCH_BOX(&splinecnn::cuda::ops::spmm));
  library.impl("spmm_t", TORCH_BOX(&splinecnn::cuda::ops::spmm_t));
  library.impl("head", TORCH_BOX(&splinecnn::cuda::ops::head));
}
