// Compressed sparse rows times a dense matrix, and the same with the rows turned to columns.
#include <torch/csrc/stable/library.h>

#include <vector>

#include "dispatch.h"
#include "tensors.h"

namespace splinecnn::cpu {
namespace {

constexpr int64_t ROWS_AT_ONCE = 64;

template <typename F>
auto with_index(const Tensor& t, const F& f) {
  return t.scalar_type() == ScalarType::Int ? f(int32_t{}) : f(int64_t{});
}

template <typename T>
void combine(T* out, const T* coef, const int32_t* index, int64_t count, const T* x, int64_t C) {
  kernels<T>().combine32(out, false, coef, index, count, x, C, C);
}

template <typename T>
void combine(T* out, const T* coef, const int64_t* index, int64_t count, const T* x, int64_t C) {
  kernels<T>().combine64(out, false, coef, index, count, x, C, C);
}

template <typename Index>
void check_rows(const Tensor& ptr, const Tensor& index, int64_t columns) {
  const Index *p = data<Index>(ptr), *j = data<Index>(index);
  const int64_t N = ptr.size(0) - 1, count = index.size(0);
  SPLINECNN_REQUIRE(p[0] == 0 && p[N] == count, "ptr must run from 0 to ", count, ", got ", p[0],
                    " to ", p[N]);
  for (int64_t i = 0; i < N; ++i)
    SPLINECNN_REQUIRE(p[i] <= p[i + 1], "ptr must not decrease, got ", p[i + 1], " after ", p[i],
                      " at ", i + 1);
  for (int64_t q = 0; q < count; ++q)
    if (uint64_t(int64_t(j[q])) >= uint64_t(columns)) fail_index("index", j[q], columns, q);
}

Tensor spmm(const Tensor& ptr, const Tensor& index, const std::optional<Tensor>& value,
            const Tensor& dense) {
  check_sparse(ptr, index, value, dense);
  const Tensor x = flat(dense);
  const std::optional<Tensor> v = flat(value);
  const int64_t N = ptr.size(0) - 1, C = dense.size(1);
  return with_dtype(dense, [&](auto zero) {
    using T = decltype(zero);
    return with_index(ptr, [&](auto none) {
      using Index = decltype(none);
      check_rows<Index>(ptr, index, dense.size(0));
      const Tensor out = make<T>({N, C});
      const Index* p = data<Index>(ptr);
      for_each((N + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE, [&](int64_t part) {
        for (int64_t i = part * ROWS_AT_ONCE; i < std::min(N, (part + 1) * ROWS_AT_ONCE); ++i)
          combine(writable<T>(out) + i * C, v ? data<T>(v) + p[i] : nullptr,
                  data<Index>(index) + p[i], p[i + 1] - p[i], data<T>(x), C);
      });
      return out;
    });
  });
}

Tensor spmm_t(const Tensor& ptr, const Tensor& index, const std::optional<Tensor>& value,
              const Tensor& dense, int64_t num_columns) {
  check_sparse(ptr, index, value, dense);
  check_size(dense, "dense", 0, ptr.size(0) - 1);
  SPLINECNN_REQUIRE(num_columns >= 0, "num_columns must not be negative, got ", num_columns);
  const Tensor x = flat(dense);
  const std::optional<Tensor> v = flat(value);
  const int64_t N = ptr.size(0) - 1, C = dense.size(1);
  return with_dtype(dense, [&](auto zero) {
    using T = decltype(zero);
    return with_index(ptr, [&](auto none) {
      using Index = decltype(none);
      check_rows<Index>(ptr, index, num_columns);
      const Index *p = data<Index>(ptr), *j = data<Index>(index);
      // the rows of each column, in order: then each sum is one thread's, in one order
      const int64_t count = index.size(0);
      std::vector<int64_t> start(num_columns + 2), row(count);
      std::vector<T> coef(v ? count : 0);
      for (int64_t q = 0; q < count; ++q) ++start[j[q] + 2];
      for (int64_t c = 0; c < num_columns; ++c) start[c + 2] += start[c + 1];
      for (int64_t i = 0; i < N; ++i)
        for (int64_t q = p[i]; q < p[i + 1]; ++q) {
          const int64_t at = start[j[q] + 1]++;
          row[at] = i;
          if (v) coef[at] = data<T>(v)[q];
        }
      const Tensor out = make<T>({num_columns, C});
      for_each((num_columns + ROWS_AT_ONCE - 1) / ROWS_AT_ONCE, [&](int64_t part) {
        const int64_t end = std::min(num_columns, (part + 1) * ROWS_AT_ONCE);
        for (int64_t c = part * ROWS_AT_ONCE; c < end; ++c)
          combine(writable<T>(out) + c * C, v ? coef.data() + start[c] : nullptr,
                  row.data() + start[c], start[c + 1] - start[c], data<T>(x), C);
      });
      return out;
    });
  });
}

}  // namespace
}  // namespace splinecnn::cpu

STABLE_TORCH_LIBRARY_IMPL(splinecnn, CPU, library) {
  library.impl("spmm", TORCH_BOX(&splinecnn::cpu::spmm));
  library.impl("spmm_t", TORCH_BOX(&splinecnn::cpu::spmm_t));
}
